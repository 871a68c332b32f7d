// SPDX-License-Identifier: GPL-2.0-or-later
/* Reads ddraid.conf; config.h says what it looks like. Each key is one line of the table below. */
#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>

#include "daemon/state/config.h"
#include "daemon/base/units.h"
#include "daemon/ports/member.h"
#include "proto/ctl_wire.h"

#define LINE_BYTES 1024

enum kind {
	KIND_PATH,
	KIND_NAME,
	KIND_WORD,
	KIND_GROUP,
	KIND_TIME,
	KIND_SIZE,
	KIND_NUMBER,
	KIND_MODE,
	KIND_CHOICE
};

static const char *const levels[] = {"emerg",   "alert",  "crit", "error",
				     "warning", "notice", "info", "debug"};
static const char *const fences[] = {"", "command", "zombie_timeout", "none"};
static const char *const clusters[] = {"corosync", "alone"};

struct key {
	const char *section, *name;
	enum kind kind;
	size_t offset, bytes; /* of the field */
	uint64_t min, max;
	const char *const *choice; /* KIND_CHOICE: names by number; KIND_WORD: names, or NULL */
	uint32_t choices;
};

#define FIELD(f) offsetof(struct config, f), sizeof(((struct config *)0)->f)
#define CHOICES(a) (a), sizeof(a) / sizeof((a)[0])

static const struct key keys[] = {
    {"daemon", "state_dir", KIND_PATH, FIELD(state_dir), 0, 0, NULL, 0},
    {"daemon", "run_dir", KIND_PATH, FIELD(run_dir), 0, 0, NULL, 0},
    {"daemon", "ipc_name", KIND_NAME, FIELD(ipc_name), 0, 0, NULL, 0},
    {"daemon", "socket_group", KIND_GROUP, FIELD(socket_group), 0, 0, NULL, 0},
    {"daemon", "socket_mode", KIND_MODE, FIELD(socket_mode), 0, 0, NULL, 0},
    {"daemon", "log_level", KIND_CHOICE, FIELD(log_level), 0, 0, CHOICES(levels)},
    {"cluster", "cluster", KIND_WORD, FIELD(cluster), 0, 0, CHOICES(clusters)},
    {"cluster", "heartbeat", KIND_TIME, FIELD(heartbeat_ms), 10, 60000, NULL, 0},
    {"cluster", "heartbeat_limit", KIND_TIME, FIELD(heartbeat_limit_ms), 50, 600000, NULL, 0},
    {"cluster", "evict", KIND_TIME, FIELD(evict_ms), 200, 600000, NULL, 0},
    {"cluster", "stop_timeout", KIND_TIME, FIELD(stop_ms), 100, 600000, NULL, 0},
    {"fence", "fence", KIND_CHOICE, FIELD(fence), 1, 0, CHOICES(fences)},
    {"fence", "fence_command", KIND_PATH, FIELD(fence_command), 0, 0, NULL, 0},
    {"fence", "fence_timeout", KIND_TIME, FIELD(fence_timeout_ms), 100, 3600000, NULL, 0},
    {"fence", "restart_wait", KIND_TIME, FIELD(restart_wait_ms), 0, 600000, NULL, 0},
    {"fence", "zombie_timeout", KIND_TIME, FIELD(zombie_timeout_ms), 0, 3600000, NULL, 0},
    {"members", "connections", KIND_NUMBER, FIELD(member_connections), 1, MEMBER_MAX_CONNECTIONS,
     NULL, 0},
    {"members", "inflight", KIND_SIZE, FIELD(member_inflight_bytes), 1 << 20,
     MEMBER_MAX_INFLIGHT_BYTES, NULL, 0},
    {"members", "connect_timeout", KIND_TIME, FIELD(member_connect_ms), 100, 600000, NULL, 0},
    {"members", "request_timeout", KIND_TIME, FIELD(member_request_ms), 0, 600000, NULL, 0},
    {"members", "zombie_timeout", KIND_TIME, FIELD(member_zombie_ms), 0, 3600000, NULL, 0},
};

#define KEYS (sizeof(keys) / sizeof(keys[0]))
_Static_assert(KEYS <= CONFIG_MAX_KEYS, "each has an origin");

void config_init(struct config *c)
{
	memset(c, 0, sizeof(*c));
	strcpy(c->state_dir, "/var/lib/ddraid");
	strcpy(c->run_dir, CTL_RUN_DIR);
	strcpy(c->ipc_name, CTL_SERVICE);
	c->socket_gid = (gid_t)-1;
	c->socket_mode = 0660;
	strcpy(c->cluster, "corosync");
	c->log_level = LOG_INFO;
	c->heartbeat_ms = 200;
	c->evict_ms = 4000;
	c->stop_ms = 10000;
	c->fence_timeout_ms = 60000;
	c->restart_wait_ms = 3000;
	c->zombie_timeout_ms = 30000;
	c->member_connections = 1;
	c->member_inflight_bytes = MEMBER_INFLIGHT_BYTES;
	c->member_connect_ms = MEMBER_CONNECT_MS;
	c->member_request_ms = MEMBER_REQUEST_MS;
	c->member_zombie_ms = MEMBER_ZOMBIE_MS;
}

uint32_t config_limit_ms(const struct config *c)
{
	return c->heartbeat_limit_ms ? c->heartbeat_limit_ms : c->evict_ms / 2;
}

uint32_t config_heard_ms(const struct config *c)
{
	return strcmp(c->cluster, "alone") != 0 ? 2 * config_limit_ms(c) : 0;
}

static int choice_find(const struct key *k, const char *value, uint32_t *index)
{
	for (uint32_t i = (uint32_t)k->min; i < k->choices; i++) {
		*index = i;
		if (!strcmp(k->choice[i], value))
			return 0;
	}
	return -EINVAL;
}

static int bad_choice(const struct key *k, const char *value, char *why)
{
	size_t n =
	    (size_t)snprintf(why, CONFIG_WHY_BYTES, "%s = %.60s is not one of:", k->name, value);

	for (uint32_t i = (uint32_t)k->min; i < k->choices && n < CONFIG_WHY_BYTES; i++)
		n += (size_t)snprintf(why + n, CONFIG_WHY_BYTES - n, " %s", k->choice[i]);
	return -EINVAL;
}

static bool is_text(const struct key *k)
{
	return k->kind == KIND_PATH || k->kind == KIND_NAME || k->kind == KIND_WORD ||
	       k->kind == KIND_GROUP;
}

static int set_text(const struct key *k, char *field, const char *value, char *why)
{
	const char *reason;
	uint32_t i;

	if (k->choice && choice_find(k, value, &i))
		return bad_choice(k, value, why);
	if (k->kind == KIND_PATH && value[0] != '/') {
		snprintf(why, CONFIG_WHY_BYTES,
			 "%s = %.60s is not an absolute path; begin it with /", k->name, value);
		return -EINVAL;
	}
	if (!value[0] || strlen(value) >= k->bytes) {
		snprintf(why, CONFIG_WHY_BYTES, "%s wants 1 to %zu characters", k->name,
			 k->bytes - 1);
		return -EINVAL;
	}
	if (k->kind == KIND_NAME && array_name_check(value, &reason)) {
		snprintf(why, CONFIG_WHY_BYTES, "%s = %.63s can't be used: %s", k->name, value,
			 reason);
		return -EINVAL;
	}
	strcpy(field, value);
	return 0;
}

/* Of /etc/group alone: who else could be asked for names may itself wait for an array. */
static int group_find(const char *name, gid_t *gid)
{
	FILE *f = fopen("/etc/group", "re");
	struct group *g;

	while (f && (g = fgetgrent(f))) {
		if (strcmp(g->gr_name, name) != 0)
			continue;
		*gid = g->gr_gid;
		fclose(f);
		return 0;
	}
	if (f)
		fclose(f);
	return -ENOENT;
}

static int group_set(struct config *c, char *why)
{
	uint64_t number;

	if (!number_parse(c->socket_group, 0, UINT32_MAX - 1, &number)) {
		c->socket_gid = (gid_t)number;
		return 0;
	}
	if (!group_find(c->socket_group, &c->socket_gid))
		return 0;
	snprintf(
	    why, CONFIG_WHY_BYTES,
	    "socket_group = %.60s is no group of /etc/group; make it with 'groupadd %.60s', or "
	    "name one by its number",
	    c->socket_group, c->socket_group);
	return -EINVAL;
}

static int set_mode(const struct key *k, uint32_t *field, const char *value, char *why)
{
	size_t digits = strspn(value, "01234567");
	uint32_t mode = digits == 3 || digits == 4 ? (uint32_t)strtoul(value, NULL, 8) : 0;

	/* To connect takes the right to write; to read alone is no use. */
	if (value[digits] || (mode & ~0666u) || (mode & 0600) != 0600 ||
	    (mode & 0444) >> 1 != (mode & 0222)) {
		snprintf(why, CONFIG_WHY_BYTES,
			 "%s = %.60s can't be used: write three octal digits, 6 for the owner, and "
			 "6 or 0 for the group and for all others, such as 660",
			 k->name, value);
		return -EINVAL;
	}
	*field = mode;
	return 0;
}

static int set_number(const struct key *k, uint32_t *field, const char *value, char *why)
{
	uint64_t n = 0;
	uint32_t ms = 0;
	int err;

	if (k->kind == KIND_MODE)
		return set_mode(k, field, value, why);
	if (k->kind == KIND_CHOICE)
		return choice_find(k, value, field) ? bad_choice(k, value, why) : 0;
	if (k->kind == KIND_TIME) {
		err = time_parse(value, &ms);
		n = ms;
	} else if (k->kind == KIND_SIZE) {
		err = size_parse(value, &n, NULL);
	} else {
		err = number_parse(value, 0, UINT32_MAX, &n);
	}
	if (err || n < k->min || n > k->max) {
		snprintf(why, CONFIG_WHY_BYTES, "%s = %.60s is out of range: use %llu to %llu%s",
			 k->name, value, (unsigned long long)k->min, (unsigned long long)k->max,
			 k->kind == KIND_TIME ? " ms; units are ms, s, min" : "");
		return -EINVAL;
	}
	*field = (uint32_t)n;
	return 0;
}

/* seen: for each key, the line that set it, or 0. */
static int set_key(struct config *c, int seen[KEYS], int line, const char *section,
		   const char *name, const char *value, char *why)
{
	const struct key *other = NULL;

	for (size_t i = 0; i < KEYS; i++) {
		const struct key *k = &keys[i];
		char *field = (char *)c + k->offset;

		if (strcmp(k->name, name) != 0)
			continue;
		other = k;
		if (strcmp(k->section, section) != 0)
			continue;
		if (seen[i]) {
			snprintf(why, CONFIG_WHY_BYTES,
				 "%s was set in line %d already; leave one of the two", name,
				 seen[i]);
			return -EINVAL;
		}
		seen[i] = line;
		c->origin[i] = CONFIG_SET;
		if (is_text(k) && set_text(k, field, value, why))
			return -EINVAL;
		if (is_text(k))
			return k->kind == KIND_GROUP ? group_set(c, why) : 0;
		return set_number(k, (uint32_t *)(void *)field, value, why);
	}
	if (other)
		snprintf(why, CONFIG_WHY_BYTES, "%s belongs into section [%s]", name,
			 other->section);
	else
		snprintf(why, CONFIG_WHY_BYTES, "there is no key %.60s; see ddraid.conf(5)", name);
	return -EINVAL;
}

static char *strip(char *s)
{
	size_t n;

	while (isspace((unsigned char)*s))
		s++;
	n = strlen(s);
	while (n && isspace((unsigned char)s[n - 1]))
		s[--n] = '\0';
	return s;
}

static bool section_known(const char *section)
{
	for (size_t i = 0; i < KEYS; i++) {
		if (!strcmp(keys[i].section, section))
			return true;
	}
	return false;
}

/* 1: a line is there, without its end. 0: the file has no more. Or -errno. */
static int read_line(FILE *f, char line[LINE_BYTES], char *why)
{
	size_t n = 0;
	int c;

	while ((c = getc(f)) != EOF && c != '\n') {
		if (!c) {
			snprintf(why, CONFIG_WHY_BYTES,
				 "there is a NUL byte; a configuration is text");
			return -EINVAL;
		}
		if (n == LINE_BYTES - 1) {
			snprintf(why, CONFIG_WHY_BYTES, "the line is longer than %d characters",
				 LINE_BYTES - 1);
			return -EINVAL;
		}
		line[n++] = (char)c;
	}
	line[n] = '\0';
	if (ferror(f)) {
		snprintf(why, CONFIG_WHY_BYTES,
			 "can't be read: %s; name a file by --config, or see to its disk",
			 strerror(errno));
		return -EIO;
	}
	return c != EOF || n;
}

/* `section` is what the line stands in, and changes with it. */
static int take_line(struct config *c, int seen[KEYS], int number, char *line, char section[64],
		     char *why)
{
	char *s, *eq, *hash = strchr(line, '#');
	size_t n;

	if (hash)
		*hash = '\0';
	s = strip(line);
	n = strlen(s);
	if (!n)
		return 0;
	if (s[0] == '[') {
		if (s[n - 1] != ']' || n - 2 >= 64) {
			snprintf(why, CONFIG_WHY_BYTES, "a section is [name] on a line of its own");
			return -EINVAL;
		}
		s[n - 1] = '\0';
		strcpy(section, strip(s + 1));
		if (section_known(section))
			return 0;
		snprintf(why, CONFIG_WHY_BYTES,
			 "there is no section [%s]; use [daemon], [cluster], [fence], [members]",
			 section);
		return -EINVAL;
	}
	eq = strchr(s, '=');
	if (!eq) {
		snprintf(why, CONFIG_WHY_BYTES, "write `key = value`");
		return -EINVAL;
	}
	*eq = '\0';
	return set_key(c, seen, number, section, strip(s), strip(eq + 1), why);
}

int config_finish(struct config *c, char why[CONFIG_WHY_BYTES])
{
	if (c->fence == FENCE_UNSAID)
		c->fence = c->fence_command[0] ? FENCE_COMMAND : FENCE_ZOMBIE_TIMEOUT;
	if (c->fence == FENCE_COMMAND && !c->fence_command[0]) {
		snprintf(why, CONFIG_WHY_BYTES,
			 "fence = command wants a fence_command = /path in [fence]");
		return -EINVAL;
	}
	/* R5: a node that was cut off and is plugged in again sends what its kernel has, until a
	 * request times out (TCP_USER_TIMEOUT, and the reset by which the adapter closes). */
	if (c->fence == FENCE_ZOMBIE_TIMEOUT &&
	    (!c->member_request_ms || c->zombie_timeout_ms <= c->member_request_ms)) {
		snprintf(why, CONFIG_WHY_BYTES,
			 "zombie_timeout = %u ms in [fence] is not longer than request_timeout, "
			 "%u ms%s, in [members]: for so long a node may send what it has; raise it",
			 c->zombie_timeout_ms, c->member_request_ms,
			 c->member_request_ms ? "" : " (for ever)");
		return -EINVAL;
	}
	if (c->heartbeat_limit_ms && c->heartbeat_limit_ms < 2 * c->heartbeat_ms) {
		snprintf(why, CONFIG_WHY_BYTES,
			 "heartbeat_limit = %u ms is less than two heartbeats of %u ms; raise it",
			 c->heartbeat_limit_ms, c->heartbeat_ms);
		return -EINVAL;
	}
	return 0;
}

/* -ENOSTR: a FIFO, which nobody might write to for ever, a device or a directory. */
static FILE *file_open(const char *path)
{
	struct stat st;

	if (!stat(path, &st) && !S_ISREG(st.st_mode)) {
		errno = ENOSTR;
		return NULL;
	}
	return fopen(path, "re");
}

int config_load(struct config *c, const char *path, char why[CONFIG_WHY_BYTES])
{
	char line[LINE_BYTES], section[64] = "", what[CONFIG_WHY_BYTES] = "";
	FILE *f = file_open(path);
	int err, number = 1, seen[KEYS] = {0};

	if (!f) {
		err = -errno;
		if (err == -ENOENT || err == -ENOSTR) {
			snprintf(why, CONFIG_WHY_BYTES,
				 err == -ENOENT
				     ? "%s can't be read: there is no such file; write it, or name "
				       "another by --config"
				     : "%s can't be read: it is no file; name one by --config",
				 path);
			return err;
		}
		snprintf(why, CONFIG_WHY_BYTES,
			 "%s can't be read: %s; give ddraidd's user the right to read it, or name "
			 "another file by --config",
			 path, strerror(errno));
		return err;
	}
	while ((err = read_line(f, line, what)) > 0) {
		err = take_line(c, seen, number, line, section, what);
		if (err)
			break;
		number++;
	}
	fclose(f);
	if (err)
		snprintf(why, CONFIG_WHY_BYTES, "%s:%d: %.300s", path, number, what);
	else if (config_finish(c, what)) {
		snprintf(why, CONFIG_WHY_BYTES, "%s: %.300s", path, what);
		err = -EINVAL;
	}
	return err;
}

void config_overruled(struct config *c, const char *key, enum config_origin origin)
{
	for (size_t i = 0; i < KEYS; i++) {
		if (!strcmp(keys[i].name, key))
			c->origin[i] = (uint8_t)origin;
	}
}

const char *config_get(const struct config *c, uint32_t i, char name[64],
		       char value[CONFIG_PATH_BYTES], const char **origin)
{
	static const char *const origins[] = {[CONFIG_DEFAULT] = "default",
					      [CONFIG_SET] = "ddraid.conf",
					      [CONFIG_ARGUMENT] = "command line",
					      [CONFIG_ENVIRONMENT] = "environment"};
	const struct key *k;
	const char *field;
	uint32_t n;

	if (i >= KEYS)
		return NULL;
	k = &keys[i];
	field = (const char *)c + k->offset;
	*origin = origins[c->origin[i]];
	snprintf(name, 64, "%s.%s", k->section, k->name);
	if (is_text(k)) {
		snprintf(value, CONFIG_PATH_BYTES, "%s", field);
		return k->name;
	}
	memcpy(&n, field, sizeof(n));
	if (k->kind == KIND_CHOICE)
		snprintf(value, CONFIG_PATH_BYTES, "%s", k->choice[n]);
	else if (k->kind == KIND_MODE)
		snprintf(value, CONFIG_PATH_BYTES, "%04o", n);
	else
		snprintf(value, CONFIG_PATH_BYTES, "%u%s", n, k->kind == KIND_TIME ? "ms" : "");
	return k->name;
}

/* What only the main thread reads, at the moment when it needs it. */
static bool is_live(const struct config *c, const struct config *now, const char *key)
{
	return !strcmp(key, "log_level") || !strcmp(key, "fence_timeout") ||
	       (!strcmp(key, "fence_command") && c->fence == FENCE_COMMAND &&
		now->fence == FENCE_COMMAND); /* else there is no helper that runs it */
}

void config_follow(struct config *c, const struct config *now,
		   void (*differs)(const char *key, const char *was, const char *now, bool taken))
{
	char name[64], is[CONFIG_PATH_BYTES], other[CONFIG_PATH_BYTES];
	const char *origin;

	for (uint32_t i = 0; i < KEYS; i++) {
		bool live = is_live(c, now, keys[i].name);

		if (c->origin[i] != CONFIG_DEFAULT && c->origin[i] != CONFIG_SET)
			continue;
		config_get(c, i, name, is, &origin);
		config_get(now, i, name, other, &origin);
		if (live) {
			memcpy((char *)c + keys[i].offset, (const char *)now + keys[i].offset,
			       keys[i].bytes);
			c->origin[i] = now->origin[i];
		}
		if (strcmp(is, other) != 0)
			differs(keys[i].name, is, other, live);
	}
}
