// SPDX-License-Identifier: GPL-2.0-or-later
#include "daemon/catalog/lost.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/catalog/manager.h"

static struct lost {
	struct lost *next;
	char name[DDR_NAME_BYTES];
	uint8_t uuid[DDR_UUID_BYTES]; /* zero: the record can't be read */
} * all;

static bool is_lost(const struct lost *l, char why[STORE_WHY_BYTES])
{
	return !manager_find(l->name, true) && store_lost(l->name, l->uuid, why);
}

static void take(void *arg, const char *name)
{
	char why[STORE_WHY_BYTES];
	struct store_record r;
	struct lost *l;

	(void)arg;
	if (manager_find(name, true))
		return;
	l = calloc(1, sizeof(*l));
	if (!l)
		return;
	snprintf(l->name, sizeof(l->name), "%s", name);
	if (!store_get_record(name, &r, why)) {
		memcpy(l->uuid, r.uuid, DDR_UUID_BYTES);
		if (manager_was_forgotten(r.uuid)) { /* what a power cut has left of its files */
			store_remove(name, why);
			free(l);
			return;
		}
	}
	if (is_lost(l, why))
		say(LOG_WARNING, "%s", why);
	l->next = all;
	all = l;
}

int lost_open(char why[STORE_WHY_BYTES])
{
	return store_scan_records(take, NULL, why);
}

bool lost_warning(uint32_t i, char why[STORE_WHY_BYTES])
{
	if (i >= LOST_SHOWN)
		return false;
	if (store_has_damaged(why) && !i--)
		return true;
	for (const struct lost *l = all; l; l = l->next)
		if (is_lost(l, why) && !i--)
			return true;
	return false;
}

static const struct lost *find(const char *name)
{
	const struct lost *l = all;

	while (l && strcmp(l->name, name) != 0)
		l = l->next;
	return l;
}

bool lost_array(const char *name, char why[STORE_WHY_BYTES])
{
	const struct lost *l = find(name);

	return l && is_lost(l, why);
}

bool lost_other(const char *name, const uint8_t uuid[DDR_UUID_BYTES], char why[STORE_WHY_BYTES])
{
	static const uint8_t none[DDR_UUID_BYTES];
	const struct lost *l = find(name);
	bool is_new = !memcmp(uuid, none, DDR_UUID_BYTES);

	if (!l || (!is_new && (!memcmp(l->uuid, none, DDR_UUID_BYTES) ||
			       !memcmp(l->uuid, uuid, DDR_UUID_BYTES))))
		return false;
	return is_lost(l, why);
}
