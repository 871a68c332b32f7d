// SPDX-License-Identifier: GPL-2.0-or-later
/* Options of an array; see options.h. Each is one line of the table, but for `listen`. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "daemon/state/options.h"
#include "daemon/base/loopback.h"
#include "daemon/base/units.h"
#include "daemon/ports/front.h"
#include "daemon/state/config.h"

enum kind { KIND_TIME, KIND_NUMBER, KIND_FLAG, KIND_LISTEN };

static const struct option {
	const char *key;
	enum kind kind;
	size_t offset;
	uint32_t min, max;
	const char *no, *yes; /* KIND_FLAG: the two words */
	bool live;            /* an array that runs takes a new value over */
	const char *help;
} table[] = {
    {"release_delay", KIND_TIME, offsetof(struct options, release_delay_ms), 0, 600000, NULL, NULL,
     true, "idle time before a region is flushed and its mark is cleared"},
    {"member_retry", KIND_TIME, offsetof(struct options, member_retry_ms), 0, 86400000, NULL, NULL,
     true, "how long a member whose connection broke may come back by itself"},
    {"checkpoint_regions", KIND_NUMBER, offsetof(struct options, checkpoint_regions), 1, 1 << 20,
     NULL, NULL, true, "a rebuild's progress is stored every so many regions"},
    {"when_lost", KIND_FLAG, offsetof(struct options, eio_when_lost), 0, 1, "hold", "eio", true,
     "what requests get when too few members are left"},
    {"mark_ahead", KIND_FLAG, offsetof(struct options, mark_ahead), 0, 1, "no", "yes", true,
     "mark the next region of a sequential writer"},
    {"force_members", KIND_FLAG, offsetof(struct options, force_members), 0, 1, "no", "yes", false,
     "take members that lack both FLUSH and FUA, or MULTI_CONN, from the array's next start on"},
    {"locks", KIND_FLAG, offsetof(struct options, dlm), 0, 1, "cpg", "dlm", false,
     "who keeps the locks, the array's leader (cpg) or the kernel's DLM, from the next start on "
     "all "
     "nodes on"},
    {"listen", KIND_LISTEN, offsetof(struct options, listen), 0, 0, NULL, NULL, false,
     "further NBD addresses on loopback, e.g. tcp:127.0.0.1:10809, with commas between, from the "
     "array's next start on"},
};

_Static_assert(OPTION_WHY_BYTES >= FRONT_WHY_BYTES, "why of an address");

#define OPTIONS (sizeof(table) / sizeof(table[0]))

void options_init(struct options *o)
{
	struct engine_cfg def;

	engine_cfg_init(&def);
	memset(o, 0, sizeof(*o));
	o->release_delay_ms = def.tun.release_delay_ms;
	o->member_retry_ms = def.tun.member_retry_ms;
	o->checkpoint_regions = def.tun.checkpoint_regions;
	o->eio_when_lost = def.tun.eio_when_lost;
	o->mark_ahead = def.tun.mark_ahead;
}

void options_apply(const struct options *o, struct tunables *t)
{
	t->release_delay_ms = o->release_delay_ms;
	t->member_retry_ms = o->member_retry_ms;
	t->checkpoint_regions = o->checkpoint_regions;
	t->eio_when_lost = o->eio_when_lost;
	t->mark_ahead = o->mark_ahead;
}

bool options_live(uint32_t i)
{
	return table[i].live;
}

void options_tune(struct options *o, const struct options *from)
{
	for (size_t i = 0; i < OPTIONS; i++) {
		if (table[i].live)
			memcpy((char *)o + table[i].offset, (const char *)from + table[i].offset,
			       sizeof(uint32_t));
	}
}

static int listen_set(struct options *o, const char *value, char *why)
{
	struct options fresh = *o;
	union loopback_address at;
	const char *cause;
	uint32_t n = 0;

	memset(fresh.listen, 0, sizeof(fresh.listen));
	while (*value) {
		size_t len = strcspn(value, ",");

		if (n == OPTION_LISTEN_MAX || !len || len >= OPTION_LISTEN_BYTES ||
		    strncmp(value, "tcp:", 4) != 0) {
			snprintf(why, OPTION_WHY_BYTES,
				 "listen wants up to %d addresses such as tcp:127.0.0.1:10809, "
				 "with commas between",
				 OPTION_LISTEN_MAX);
			return -EINVAL;
		}
		memcpy(fresh.listen[n], value, len);
		for (uint32_t i = 0; i < n; i++)
			if (!strcmp(fresh.listen[i], fresh.listen[n])) {
				snprintf(why, OPTION_WHY_BYTES,
					 "listen names %s twice; name it once", fresh.listen[n]);
				return -EINVAL;
			}
		if (loopback_parse(fresh.listen[n] + 4, &at, &cause) < 0) {
			snprintf(why, OPTION_WHY_BYTES, "can't serve NBD on %.150s: %s",
				 fresh.listen[n], cause);
			return -EINVAL;
		}
		n++;
		value += len + (value[len] == ',');
	}
	*o = fresh;
	return 0;
}

static int value_set(const struct option *t, uint32_t *field, const char *value, char *why)
{
	uint64_t n = 0;
	uint32_t ms = 0;
	int err;

	if (t->kind == KIND_FLAG) {
		bool yes = !strcmp(value, t->yes);

		if (!yes && strcmp(value, t->no) != 0) {
			snprintf(why, OPTION_WHY_BYTES, "%s is %s or %s, not %.60s", t->key, t->no,
				 t->yes, value);
			return -EINVAL;
		}
		*field = yes;
		return 0;
	}
	if (t->kind == KIND_TIME) {
		err = time_parse(value, &ms);
		n = ms;
	} else {
		err = number_parse(value, 0, UINT32_MAX, &n);
	}
	if (err || n < t->min || n > t->max) {
		snprintf(why, OPTION_WHY_BYTES, "%s = %.60s is out of range: use %u to %u%s",
			 t->key, value, t->min, t->max,
			 t->kind == KIND_TIME ? " ms; units are ms, s, min" : "");
		return -EINVAL;
	}
	*field = (uint32_t)n;
	return 0;
}

int options_set(struct options *o, const char *key, const char *value, char why[OPTION_WHY_BYTES])
{
	size_t n;

	for (size_t i = 0; i < OPTIONS; i++) {
		if (strcmp(table[i].key, key) != 0)
			continue;
		if (table[i].kind == KIND_LISTEN)
			return listen_set(o, value, why);
		return value_set(&table[i], (uint32_t *)(void *)((char *)o + table[i].offset),
				 value, why);
	}
	n = (size_t)snprintf(why, OPTION_WHY_BYTES, "there is no option %.60s; there are ", key);
	for (size_t i = 0; i < OPTIONS && n < OPTION_WHY_BYTES; i++)
		n += (size_t)snprintf(why + n, OPTION_WHY_BYTES - n, "%s%s", i ? ", " : "",
				      table[i].key);
	if (n < OPTION_WHY_BYTES)
		snprintf(why + n, OPTION_WHY_BYTES - n, "; see SETTINGS in ddraidctl(8)");
	return -EINVAL;
}

const char *options_get(const struct options *o, uint32_t i, char value[OPTION_VALUE_BYTES],
			const char **help)
{
	const struct option *t;
	uint32_t n;

	if (i >= OPTIONS)
		return NULL;
	t = &table[i];
	if (help)
		*help = t->help;
	memcpy(&n, (const char *)o + t->offset, sizeof(n));
	if (t->kind == KIND_FLAG) {
		snprintf(value, OPTION_VALUE_BYTES, "%s", n ? t->yes : t->no);
	} else if (t->kind != KIND_LISTEN) {
		snprintf(value, OPTION_VALUE_BYTES, "%u%s", n, t->kind == KIND_TIME ? "ms" : "");
	} else {
		value[0] = '\0';
		for (n = 0; n < OPTION_LISTEN_MAX && o->listen[n][0]; n++) {
			strcat(value, n ? "," : "");
			strcat(value, o->listen[n]);
		}
	}
	return t->key;
}
