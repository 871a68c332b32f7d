// SPDX-License-Identifier: GPL-2.0-or-later
#include "daemon/catalog/forgotten.h"

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

static uint32_t count_by(const struct forgotten *f, uint32_t by)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->count; i++)
		n += f->entry[i].by == by;
	return n;
}

static uint32_t oldest_by(const struct forgotten *f, uint32_t by)
{
	uint32_t i = 0;

	while (f->entry[i].by != by)
		i++;
	return i;
}

/* Who has told most of arrays that were never used here; `first`, if it has as many. */
static uint32_t tells_most(const struct forgotten *f, uint32_t first)
{
	uint32_t most = first, n = first ? count_by(f, first) : 0;

	for (uint32_t i = 0; i < f->count; i++) {
		uint32_t by = f->entry[i].by, m = by && by != most ? count_by(f, by) : 0;

		if (m > n) {
			most = by;
			n = m;
		}
	}
	return n ? most : 0;
}

/* Whose oldest entry makes room for it; `by` of nobody: UINT32_MAX, there is room. False: nobody's.
 */
static bool room_of(const struct forgotten *f, const struct store_forgotten *e, uint32_t *by)
{
	bool strangers = count_by(f, 0) < f->count;

	if (e->by && count_by(f, e->by) >= FORGOTTEN_OF_NODE)
		*by = e->by;
	else if (f->count < STORE_MAX_FORGOTTEN)
		*by = UINT32_MAX;
	else if (strangers)
		*by = tells_most(f, e->by);
	else if (!e->by)
		*by = 0;
	else
		return false;
	return true;
}

bool forgotten_add(struct forgotten *f, const struct store_forgotten *e, bool keep)
{
	uint32_t at, by;

	if (forgotten_has(f, e->uuid) || !room_of(f, e, &by))
		return false;
	if (by != UINT32_MAX) {
		at = oldest_by(f, by);
		if (!keep && by == e->by && older(e, &f->entry[at]))
			return false;
		f->count--;
		memmove(&f->entry[at], &f->entry[at + 1], (f->count - at) * sizeof(f->entry[0]));
	}
	for (at = f->count; at && older(e, &f->entry[at - 1]); at--)
		f->entry[at] = f->entry[at - 1];
	f->entry[at] = *e;
	f->count++;
	return true;
}

bool forgotten_room(const struct forgotten *f, uint64_t now_s)
{
	uint64_t at_s;

	if (count_by(f, 0) < STORE_MAX_FORGOTTEN)
		return true;
	at_s = f->entry[oldest_by(f, 0)].at_s;
	return now_s > at_s && now_s - at_s > FORGOTTEN_DAYS * 86400ull;
}
