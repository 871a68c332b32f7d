// SPDX-License-Identifier: GPL-2.0-or-later
#include "daemon/forgotten.h"

#include <string.h>

bool forgotten_has(const struct forgotten *f, const uint8_t uuid[DDR_UUID_BYTES])
{
	for (uint32_t i = 0; i < f->count; i++)
		if (!memcmp(f->entry[i].uuid, uuid, DDR_UUID_BYTES))
			return true;
	return false;
}

/* By time, and among equals by UUID: the same on every node. */
static bool older(const struct store_forgotten *a, const struct store_forgotten *b)
{
	if (a->at_s != b->at_s)
		return a->at_s < b->at_s;
	return memcmp(a->uuid, b->uuid, DDR_UUID_BYTES) < 0;
}

bool forgotten_add(struct forgotten *f, const struct store_forgotten *e, bool keep)
{
	uint32_t at;

	if (forgotten_has(f, e->uuid))
		return false;
	if (f->count == STORE_MAX_FORGOTTEN) {
		if (!keep && older(e, &f->entry[0]))
			return false;
		f->count--;
		memmove(&f->entry[0], &f->entry[1], f->count * sizeof(f->entry[0]));
	}
	for (at = f->count; at && older(e, &f->entry[at - 1]); at--)
		f->entry[at] = f->entry[at - 1];
	f->entry[at] = *e;
	f->count++;
	return true;
}

bool forgotten_room(const struct forgotten *f, uint64_t now_s)
{
	return f->count < STORE_MAX_FORGOTTEN ||
	       (now_s > f->entry[0].at_s && now_s - f->entry[0].at_s > FORGOTTEN_DAYS * 86400ull);
}
