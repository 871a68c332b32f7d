// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * See import_check.h.
 *
 *	superblocks of all	-> each is readable, and of one and the same array
 *	the newest map of these	-> each device is a member of that, and no two are the same one
 *	R1			-> enough of those that this map has in sync are there
 */
#include "daemon/ctl/create/import_check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/units.h"

struct look {
	const struct import_ask *ask;
	const struct create_dev *dev;
	uint32_t count;
	struct create_error *e;
	struct superblock *sb; /* by device */
	uint32_t there;        /* mask of devices */
	uint8_t *block;
};

__attribute__((format(printf, 4, 5))) static int refuse(struct look *l, int err, int dev,
							const char *format, ...)
{
	struct create_error *e = l->e;
	va_list ap;
	int n = 0;

	e->err = err;
	e->member = dev;
	if (dev >= 0)
		n = snprintf(e->text, sizeof(e->text), "%s ", l->dev[dev].uri);
	va_start(ap, format);
	vsnprintf(e->text + n, sizeof(e->text) - (size_t)n, format, ap);
	va_end(ap);
	return err;
}

/* ---- what each device carries --------------------------------------------------------------- */

/* newer: what this build lacks, if a copy says that it does. */
static int refuse_unread(struct look *l, uint32_t i, int worst, int io, const char *claimed,
			 const char *newer)
{
	if (claimed)
		return refuse(
		    l, -EBUSY, (int)i,
		    "is being made a member of an array %s, or that was cut off: it is no "
		    "member yet; leave it out",
		    claimed);
	if (io)
		return refuse(l, io, (int)i,
			      "can't be read: %s; see to its exporter, or leave it out",
			      strerror(-io));
	if (newer[0])
		return refuse(l, -EPROTONOSUPPORT, (int)i,
			      "carries a superblock that a newer version of ddraid has written: %s",
			      newer);
	if (worst)
		return refuse(
		    l, worst, (int)i,
		    "carries no intact superblock ('ddraidctl examine' says more): leave "
		    "it out; once the array runs, 'ddraidctl add' takes it as a new member");
	return refuse(l, -EINVAL, (int)i,
		      "carries no superblock of ddraid: it is no member of an array, or begins at "
		      "another byte than it did; name members only");
}

static int read_one(struct look *l, uint32_t i)
{
	const struct create_dev *d = &l->dev[i];
	char claimed[DDR_NAME_BYTES] = "", why[FORMAT_WHY_BYTES], newer[FORMAT_WHY_BYTES] = "";
	struct superblock sb;
	struct claim claim;
	bool any = false;
	int worst = 0, io = 0;

	for (uint32_t c = 0; c < SB_COPIES; c++) {
		int err = d->read(d->arg, geo_sb_offset(c), l->block, DDR_BLOCK_BYTES);

		if (err) {
			io = err;
			continue;
		}
		if (!claim_decode(&claim, l->block))
			text_clean(claimed, sizeof(claimed), claim.name);
		err = sb_decode(&sb, l->block, why);
		if (err == -EPROTONOSUPPORT)
			strcpy(newer, why);
		if (!err && sb_misplaced(&sb, c))
			err = -EBADMSG;
		if (err && err != -ENOENT)
			worst = err;
		if (err || (any && !sb_newer(&sb, &l->sb[i])))
			continue;
		l->sb[i] = sb;
		any = true;
	}
	if (!any)
		return refuse_unread(l, i, worst, io, claimed[0] ? claimed : NULL, newer);
	if (!l->sb[i].map.epoch.num)
		return refuse(l, -EINVAL, (int)i,
			      "was to become a member, and never was one, since the 'add' came to "
			      "nothing: leave it out");
	l->there |= 1u << i;
	return 0;
}

static int read_all(struct look *l)
{
	char why[CREATE_WHY_BYTES];
	int err = 0;

	for (uint32_t i = 0; i < l->count && !err; i++) {
		if (!l->dev[i].open_err) {
			err = read_one(l, i);
		} else if (!l->ask->degraded) {
			create_open_error(&l->dev[i], why);
			err = refuse(l, l->dev[i].open_err, (int)i,
				     "%.480s; if it is to be a while, --degraded takes the array "
				     "without it",
				     why);
		}
	}
	if (!err && !l->there)
		err = refuse(l, -EINVAL, -1, "none of these devices can be reached");
	return err;
}

static int one_array(struct look *l)
{
	const uint32_t first = (uint32_t)__builtin_ctz(l->there);
	char uuid[UUID_TEXT_BYTES], other[UUID_TEXT_BYTES], name[DDR_NAME_BYTES];
	char first_name[DDR_NAME_BYTES];

	for (uint32_t i = first + 1; i < l->count; i++) {
		const struct superblock *a = &l->sb[first], *b = &l->sb[i];

		if (!(l->there >> i & 1))
			continue;
		if (memcmp(a->array_uuid, b->array_uuid, DDR_UUID_BYTES) != 0)
			return refuse(
			    l, -EINVAL, (int)i,
			    "is a member of the array %s (%s), and %s one of %s (%s): name "
			    "the members of one array",
			    text_clean(name, sizeof(name), b->name),
			    uuid_format(uuid, b->array_uuid), l->dev[first].uri,
			    text_clean(first_name, sizeof(first_name), a->name),
			    uuid_format(other, a->array_uuid));
		if (!geo_same(&a->geo, &b->geo) || strcmp(a->name, b->name) != 0)
			return refuse(
			    l, -EINVAL, (int)i,
			    "tells of another name or layout of the array than %s: one of "
			    "the two is damaged; leave that one out",
			    l->dev[first].uri);
	}
	return 0;
}

/* ---- which members they are ----------------------------------------------------------------- */

/* Which member of the map a device is by its superblock; map->n: none. */
static uint8_t member_of(const struct map *map, const struct superblock *own)
{
	uint8_t m = 0;

	while (m < map->n && memcmp(map->member[m].uuid, own->member_uuid, DDR_UUID_BYTES) != 0)
		m++;
	return m;
}

static const struct superblock *newest(const struct look *l, uint32_t *at)
{
	const struct superblock *best = NULL;

	for (uint32_t i = 0; i < l->count; i++) {
		if (!(l->there >> i & 1) ||
		    (best && epoch_cmp(&l->sb[i].map.epoch, &best->map.epoch) <= 0))
			continue;
		best = &l->sb[i];
		*at = i;
	}
	return best;
}

/* A larger number says only that one of them has changed its map more often; see
 * histories_agree in core/cluster/assemble.c. */
static int one_history(struct look *l, const struct superblock *best, uint32_t of)
{
	struct lineage past = best->past;

	lineage_add(&past, &best->committed);
	for (uint32_t i = 0; i < l->count && !l->ask->stale; i++)
		if (l->there >> i & 1 && lineage_differs(&past, &l->sb[i]))
			return refuse(
			    l, -EINVAL, (int)i,
			    "has changes that %s knows nothing of, and the other way round: "
			    "the array was run twice at once. Name only those that are to "
			    "count; the others are added as new ones then",
			    l->dev[of].uri);
	return 0;
}

static int places(struct look *l, const struct superblock *best, uint32_t of,
		  struct import_result *r)
{
	uint32_t next = 0;

	memset(r->dev_of, IMPORT_NOWHERE, sizeof(r->dev_of));
	for (uint32_t i = 0; i < l->count; i++) {
		uint8_t m = member_of(&best->map, &l->sb[i]);

		if (!(l->there >> i & 1))
			continue;
		if (m == best->map.n)
			return refuse(l, -ENOTUNIQ, (int)i,
				      "was member %u of the array, and has another device in that "
				      "place by now, as %s tells: leave it out",
				      l->sb[i].index, l->dev[of].uri);
		if (r->dev_of[m] != IMPORT_NOWHERE)
			return refuse(
			    l, -EINVAL, (int)i,
			    "is member %u of the array, and so is %s: they are one device, "
			    "or one is a copy; leave out what is not to be used",
			    m, l->dev[r->dev_of[m]].uri);
		r->dev_of[m] = (uint8_t)i;
	}
	for (uint32_t i = 0; i < l->count; i++) {
		if (l->there >> i & 1)
			continue;
		while (next < best->map.n && r->dev_of[next] != IMPORT_NOWHERE)
			next++;
		if (next == best->map.n)
			return refuse(
			    l, -EINVAL, (int)i,
			    "can't be reached, and all members are there without it: leave "
			    "it out");
		r->dev_of[next] = (uint8_t)i;
	}
	return 0;
}

/* How many of those that are there are in sync by this superblock's map, and what it says they are:
 * neither older nor further on (members_judge in core/cluster/assemble.c). */
static uint32_t in_sync_by(const struct look *l, const struct superblock *sb)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < l->count; i++) {
		const struct superblock *own = &l->sb[i];
		uint8_t m = member_of(&sb->map, own);

		n += l->there >> i & 1 && m < sb->map.n &&
		     sb->map.member[m].state == MEMBER_IN_SYNC &&
		     epoch_cmp(&own->map.epoch, &sb->committed) >= 0 &&
		     epoch_cmp(&own->committed, &sb->map.epoch) <= 0;
	}
	return n;
}

static bool older_state(const struct look *l, const struct superblock *best, uint32_t k)
{
	for (uint32_t i = 0; i < l->count; i++)
		if (l->there >> i & 1 && epoch_cmp(&l->sb[i].map.epoch, &best->map.epoch) < 0 &&
		    in_sync_by(l, &l->sb[i]) >= k)
			return true;
	return false;
}

static size_t list_add(char *text, size_t bytes, size_t at, uint32_t member)
{
	int n = at < bytes ? snprintf(text + at, bytes - at, "%s%u", at ? ", " : "", member) : 0;

	return at + (size_t)n;
}

/* R1: a set of members that was left behind must not be taken for the array. */
static int enough(struct look *l, const struct superblock *best, const struct import_result *r)
{
	uint32_t in_sync = in_sync_by(l, best), absent = 0, k = r->geo.k;
	uint32_t there = (uint32_t)__builtin_popcount(l->there);
	bool older = older_state(l, best, k);
	char not_there[64] = "", behind[64] = "", remedy[160];
	size_t at = 0, at_behind = 0;

	for (uint8_t m = 0; m < best->map.n; m++) {
		uint8_t i = r->dev_of[m];

		if (!(map_write_mask(&best->map) >> m & 1))
			continue;
		if (i == IMPORT_NOWHERE || !(l->there >> i & 1)) {
			absent++;
			at = list_add(not_there, sizeof(not_there), at, m);
		} else if (epoch_cmp(&l->sb[i].map.epoch, &best->committed) < 0) {
			at_behind = list_add(behind, sizeof(behind), at_behind, m);
		}
	}
	if (there < k)
		return refuse(l, -EINVAL, -1,
			      "the array %s needs %u of its %u members, and %u %s there: name the "
			      "others as well",
			      best->name, k, best->map.n, there, there == 1 ? "is" : "are");
	if (in_sync >= k && absent < k)
		return 0;
	if (l->ask->stale && (in_sync >= k || older))
		return 0;
	if (in_sync >= k || older)
		snprintf(remedy, sizeof(remedy),
			 "or, if these are all that is left, --stale goes on with an older state, "
			 "without what was written since");
	else
		snprintf(remedy, sizeof(remedy),
			 "--stale does not help, since too few members are of any one state");
	return refuse(l, -EINVAL, -1,
		      "the array %s needs %u members that are in sync, and %u of those that are "
		      "there %s%s%s%s%s: name the others, as they were last; %s",
		      best->name, k, in_sync, in_sync == 1 ? "is" : "are",
		      at ? "; not there: " : "", not_there, at_behind ? "; an older copy: " : "",
		      behind, remedy);
}

static int look(struct look *l, struct import_result *r)
{
	const struct superblock *best;
	char why[FORMAT_WHY_BYTES];
	uint32_t at = 0;
	int err = read_all(l);

	if (!err)
		err = one_array(l);
	if (err)
		return err;
	best = newest(l, &at);
	if (geo_init(&r->geo, &best->geo, why))
		return refuse(l, -EINVAL, (int)at, "tells of a layout that can't be: %s", why);
	memcpy(r->uuid, best->array_uuid, DDR_UUID_BYTES);
	snprintf(r->name, sizeof(r->name), "%s", best->name);
	err = one_history(l, best, at);
	if (!err)
		err = places(l, best, at, r);
	return err ? err : enough(l, best, r);
}

int import_check(const struct import_ask *ask, const struct create_dev *dev, uint32_t count,
		 struct import_result *r, struct create_error *e)
{
	struct look l = {.ask = ask, .dev = dev, .count = count, .e = e};
	int err;

	memset(r, 0, sizeof(*r));
	memset(e, 0, sizeof(*e));
	e->member = -1;
	l.sb = calloc(count ? count : 1, sizeof(*l.sb));
	if (!l.sb || posix_memalign((void **)&l.block, DDR_BLOCK_BYTES, DDR_BLOCK_BYTES)) {
		free(l.sb);
		return refuse(&l, -ENOMEM, -1, "out of memory");
	}
	err = look(&l, r);
	free(l.block);
	free(l.sb);
	return err;
}
