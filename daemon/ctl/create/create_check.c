/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Creating an array: the only time that ddraid writes to a device that isn't its own yet. So all
 * checks that can be made by reading come first, for all devices, and each refusal names the
 * device, the cause and the remedy.
 *
 *	step		what it can find				what helps
 *	parameters	name, geometry, number of devices		-
 *	same URI	one URI given twice				-
 *	reach		unreachable, read-only				-
 *	size		too small for one region			-
 *	requests	takes only larger ones than ours		-
 *	superblock	a member of an array that is known here		-
 *			one that was replaced there			--old-member
 *			a member of another array			--old-member
 *	signature	file system, LVM, RAID, partitions, swap	--wipe
 *	use		somebody renews its use block			-
 *	blocks		fragments below the device's own block		--unaligned
 *	---- from here on it writes ----
 *	claim		another create or add on this device		-
 *			one device under two URIs			- (put back as it was)
 *	logs		then superblocks
 *
 * One device under two URIs can't be told by names: a host has many, and an exporter offers one
 * file under many. So each device gets a claim of its own where its superblocks will be, and all
 * are read back through their own connections: a device that was named twice shows the other claim.
 * What was there is put back then, since no check before had anything against keeping it. The same
 * claims decide between this and another create or add on the same device; claim.h has the rules
 * and says why they suffice.
 *
 * Who uses an array shows it on its members, again and again (core/cluster/use.c). So a device
 * whose use block names a user is watched for as long as that one asked for, and if the block
 * changes, it is in use: by an array that nobody here knows, of another cluster, or of another
 * daemon on this machine. The claim covers the use block, too. A user that was silent for so long,
 * and comes back, finds that its own claim is gone, and keeps off.
 *
 * Blocks come last of what reads: who hears of them has been told of all that is on the devices
 * before.
 *
 * The claim also wipes old superblocks. So whenever this stops half-way, a device either carries
 * what it did before, or a claim, or a superblock of the new array; and the new array's superblocks
 * are written only when the logs of all members are flushed.
 */
#include "daemon/ctl/create/create_check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/base/units.h"
#include "daemon/core/format/choose.h"
#include "daemon/ctl/create/create_int.h"
#include "daemon/ctl/create/signature.h"

#define WATCH_STEP_MS 500u
#define WATCH_LEAST_MS 5000u /* of a user that says less, or nothing that can be read */
#define WATCH_MOST_MS 600000u
#define SMALLEST_LIMIT (1ull << 50) /* where the search for the smallest size ends */

_Static_assert(CREATE_IO_BYTES >= SIGNATURE_READ_BYTES, "the signature's reads");
_Static_assert(AREA_BYTES <= CREATE_IO_BYTES && SB_OFFSET + AREA_BYTES <= LOG_OFFSET, "layout");
_Static_assert(USE_OFFSET == SB_OFFSET + USE_AT, "layout");
_Static_assert(CREATE_BAND_BYTES >= DDR_WINDOW_BYTES, "a band holds a fragment of any stripe");

int create_refuse(struct job *j, int err, int member, const char *format, ...)
{
	struct create_error *e = j->e;
	va_list ap;
	int n = 0;

	e->err = err;
	e->member = member;
	if (member >= 0)
		n = snprintf(e->text, sizeof(e->text), "member %d (%s) ", member,
			     j->dev[member].uri);
	va_start(ap, format);
	vsnprintf(e->text + n, sizeof(e->text) - (size_t)n, format, ap);
	va_end(ap);
	return err;
}

int refuse_io(struct job *j, int err, uint32_t member, const char *what)
{
	return create_refuse(
	    j, err, (int)member,
	    "can't be %s: %s; see its exporter's or the kernel's log, then create again", what,
	    strerror(-err));
}

void tell(struct job *j, const char *what, uint32_t done)
{
	char text[96];

	if (!j->ask->progress)
		return;
	snprintf(text, sizeof(text), "%s %u of %u", what, done + 1, j->count);
	j->ask->progress(j->ask->arg, text, done, j->count);
}

/* --- parameters --- */

static uint64_t smallest_bytes(struct job *j)
{
	uint64_t smallest = UINT64_MAX;

	for (uint32_t i = 0; i < j->count; i++)
		if (j->dev[i].size_bytes < smallest)
			smallest = j->dev[i].size_bytes;
	return smallest;
}

uint32_t create_block_bytes(const struct create_dev *d)
{
	uint32_t block = d->preferred_block_bytes;

	if (block > CREATE_BLOCK_MAX_BYTES)
		block = DDR_BLOCK_BYTES;
	return block > d->min_block_bytes ? block : d->min_block_bytes;
}

/* The smallest whose fragments are no smaller than any member's block. */
static void choose_stripe(struct job *j, struct geo_params *p)
{
	char *why = j->r->stripe_why, stripe[UNITS_TEXT_BYTES], block[UNITS_TEXT_BYTES];
	uint32_t order = p->order <= DDR_MAX_ORDER ? p->order : 0, largest = 0;
	uint64_t want;
	size_t n;

	for (uint32_t i = 1; i < j->count; i++)
		if (create_block_bytes(&j->dev[i]) > create_block_bytes(&j->dev[largest]))
			largest = i;
	want = (uint64_t)create_block_bytes(&j->dev[largest]) << order;
	p->stripe_bytes = CREATE_STRIPE_BYTES;
	while (p->stripe_bytes < want && p->stripe_bytes < CREATE_STRIPE_MAX_BYTES)
		p->stripe_bytes <<= 1;
	size_format(stripe, p->stripe_bytes);
	size_format(block, create_block_bytes(&j->dev[largest]));
	if (p->stripe_bytes > CREATE_STRIPE_BYTES)
		snprintf(why, CREATE_WHY_BYTES,
			 "stripe %s: member %u (%.200s) has blocks of %s; the array's "
			 "block is as large as its stripe: what needs 4 KiB, as the "
			 "kernel's nbd does, wants --stripe 4K --unaligned",
			 stripe, largest, j->dev[largest].uri, block);
	else
		snprintf(why, CREATE_WHY_BYTES,
			 "stripe %s: the smallest, and no member has larger blocks than "
			 "its fragments",
			 stripe);
	n = strlen(why);
	for (uint32_t i = 0; i < j->count; i++) {
		if (j->dev[i].preferred_block_bytes <= CREATE_BLOCK_MAX_BYTES)
			continue;
		snprintf(why + n, CREATE_WHY_BYTES - n,
			 "; member %u prefers %s, which is no disk's block, so %s was assumed", i,
			 size_format(stripe, j->dev[i].preferred_block_bytes),
			 size_format(block, create_block_bytes(&j->dev[i])));
		break;
	}
}

static void defaults(struct job *j, struct geo_params *p)
{
	if (!p->m)
		p->m = 1;
	if (!p->stripe_bytes)
		choose_stripe(j, p);
	if (!p->band_bytes)
		p->band_bytes = CREATE_BAND_BYTES;
	if (!p->slots)
		p->slots = CREATE_SLOTS;
	p->member_bytes = smallest_bytes(j);
	if (!p->region_bytes) {
		uint32_t order = p->order <= DDR_MAX_ORDER ? p->order : 0;

		p->region_bytes = geo_default_region_bytes(
		    p->member_bytes > UINT64_MAX >> order ? UINT64_MAX : p->member_bytes << order,
		    p->slots);
	}
}

/* The parameters, as far as they don't depend on the devices' sizes. */
static int check_params(struct job *j)
{
	struct geo_params p = j->ask->geo;
	struct geo g;
	const char *bad = NULL;
	char why[FORMAT_WHY_BYTES];
	uint32_t want;
	int err;

	err = array_name_check(j->ask->name, &bad);
	if (err)
		return create_refuse(j, err, -1, "the array's name \"%.63s\" can't be used: %s",
				     j->ask->name, bad);
	defaults(j, &p);
	p.member_bytes = 1ull << 40;
	err = geo_choose(&g, &p, why);
	if (err && err != -ENOSPC && p.order > 0 && p.order <= DDR_MAX_ORDER &&
	    j->ask->geo.region_bytes) {
		/* It may be the region size, which is for smaller members than this. */
		p.member_bytes = 1ull << 20;
		err = geo_choose(&g, &p, why);
	}
	if (err && err != -ENOSPC)
		return create_refuse(j, err, -1, "array %s can't be made: %s", j->ask->name, why);
	want = (1u << p.order) + p.m;
	if (j->count != want)
		return create_refuse(
		    j, -EINVAL, -1,
		    "an array of order %u has %u members (%u for data, %u for parity) and "
		    "%u were given: name %u URIs, or choose another order",
		    p.order, want, 1u << p.order, p.m, j->count, want);
	return 0;
}

/* --- what can be said about the devices without reading --- */

static int check_uris(struct job *j)
{
	for (uint32_t i = 0; i < j->count; i++) {
		if (!j->dev[i].uri[0] || strlen(j->dev[i].uri) >= DDR_URI_BYTES)
			return create_refuse(
			    j, -EINVAL, -1,
			    "the URI of member %u is %s: a URI has 1 to %d characters", i,
			    j->dev[i].uri[0] ? "too long" : "empty", DDR_URI_BYTES - 1);
		for (uint32_t k = 0; k < i; k++)
			if (!strcmp(j->dev[i].uri, j->dev[k].uri))
				return create_refuse(
				    j, -ENOTUNIQ, (int)i,
				    "was already named as member %u: name a different "
				    "device for each member",
				    k);
	}
	return 0;
}

/* The adapter's sentence without the name that begins it. */
static const char *without_name(const char *why, const char *uri)
{
	static const char scheme[] = "file://";
	const char *names[] = {uri, strncmp(uri, scheme, 7) ? uri : uri + 7};

	for (int i = 0; i < 2; i++) {
		size_t n = strlen(names[i]);

		if (!strncmp(why, names[i], n) && !strncmp(why + n, ": ", 2))
			return why + n + 2;
	}
	return why;
}

void create_open_error(const struct create_dev *d, char text[CREATE_WHY_BYTES])
{
	const char *why = without_name(d->open_why ? d->open_why : strerror(-d->open_err), d->uri);
	const char *what = "can't be reached", *remedy = "start its exporter, or correct the URI";

	switch (d->open_err) {
	case -EROFS:
		what = "is of no use";
		remedy = "make it writable";
		break;
	case -EOPNOTSUPP: /* what the server lacks, or isn't allowed to */
	case -EPROTO:
	case -ENOTBLK:
		what = "is of no use";
		remedy = "name another device";
		break;
	default:
		if (d->uri[0] != '/' && strncmp(d->uri, "file://", 7))
			break;
		what = "can't be used";
		remedy = "correct its path, or see to it";
	}
	if (strchr(why, ';'))
		snprintf(text, CREATE_WHY_BYTES, "%s: %s", what, why);
	else
		snprintf(text, CREATE_WHY_BYTES, "%s: %s; %s", what, why, remedy);
}

static int check_reach(struct job *j)
{
	char text[CREATE_WHY_BYTES];

	for (uint32_t i = 0; i < j->count; i++) {
		const struct create_dev *d = &j->dev[i];

		if (d->open_err) {
			create_open_error(d, text);
			return create_refuse(j, d->open_err, (int)i, "%s", text);
		}
		if (d->read_only)
			return create_refuse(j, -EROFS, (int)i,
					     "is read-only: export it for writing");
	}
	return 0;
}

/* The smallest member that holds an array with these parameters; 0: none. */
static uint64_t smallest_size(const struct geo_params *params)
{
	struct geo_params p = *params;
	uint64_t low = 0, high = SMALLEST_LIMIT;
	struct geo g;

	p.member_bytes = DATA_ALIGN; /* find a size that fits, then halve */
	while (p.member_bytes < high && geo_choose(&g, &p, NULL))
		p.member_bytes <<= 1;
	if (p.member_bytes >= high)
		return 0;
	high = p.member_bytes;
	while (high - low > 1) {
		p.member_bytes = low + (high - low) / 2;
		if (geo_choose(&g, &p, NULL))
			low = p.member_bytes;
		else
			high = p.member_bytes;
	}
	return high;
}

static int check_size(struct job *j, struct geo_params *p)
{
	char why[FORMAT_WHY_BYTES];
	uint32_t at = 0;
	int err;

	defaults(j, p);
	while (j->dev[at].size_bytes != p->member_bytes)
		at++;
	err = geo_choose(&j->r->geo, p, why);
	if (err == -ENOSPC)
		return create_refuse(j, err, (int)at,
				     "is too small: it has %" PRIu64
				     " bytes, and a member of this array "
				     "needs at least %" PRIu64 "; use a larger one, or a smaller "
				     "--region-size",
				     p->member_bytes, smallest_size(p));
	if (err)
		return create_refuse(j, err, -1, "array %s can't be made: %s", j->ask->name, why);
	return 0;
}

/* What can't be at all. */
static int check_requests(struct job *j)
{
	uint32_t frag = j->r->geo.frag_bytes;
	char have[UNITS_TEXT_BYTES], want[UNITS_TEXT_BYTES];

	for (uint32_t i = 0; i < j->count; i++) {
		const struct create_dev *d = &j->dev[i];

		size_format(have, frag);
		if (d->min_block_bytes > DDR_BLOCK_BYTES)
			return create_refuse(
			    j, -EINVAL, (int)i,
			    "takes only requests in multiples of %s, and superblocks and log "
			    "pages have %d KiB: use a device or an exporter with smaller "
			    "blocks",
			    size_format(want, d->min_block_bytes), DDR_BLOCK_BYTES / 1024);
		if (d->min_block_bytes > frag)
			return create_refuse(
			    j, -EINVAL, (int)i,
			    "takes only requests in multiples of %s, and the fragments of "
			    "this array have %s: choose --stripe %" PRIu64 "K",
			    size_format(want, d->min_block_bytes), have,
			    ((uint64_t)d->min_block_bytes << j->r->geo.p.order) / 1024);
	}
	return 0;
}

/* The last of all checks: who hears of this has been told of all that is on the devices. */
static int check_blocks(struct job *j)
{
	uint32_t frag = j->r->geo.frag_bytes;
	char have[UNITS_TEXT_BYTES], want[UNITS_TEXT_BYTES];

	size_format(have, frag);
	for (uint32_t i = 0; i < j->count && !j->ask->unaligned; i++) {
		const struct create_dev *d = &j->dev[i];

		if (create_block_bytes(d) > frag)
			return create_refuse(
			    j, -EINVAL, (int)i,
			    "has blocks of %s, and the fragments of this array have %s, so "
			    "that each write would make it rewrite its neighbours: choose "
			    "--stripe %" PRIu64 "K, or --unaligned if a power cut there "
			    "can't tear a block",
			    size_format(want, create_block_bytes(d)), have,
			    ((uint64_t)create_block_bytes(d) << j->r->geo.p.order) / 1024);
	}
	return 0;
}

/* --- what it carries --- */

/* How long its user has to be silent to be gone, in ms; 0: there is none. */
uint32_t patience_ms(const uint8_t *block, struct useblock *u)
{
	int err = useblock_decode(u, block);

	if (err == -EBADMSG) { /* somebody wrote it, and may be writing it */
		*u = (struct useblock){.claim = USE_UNKNOWN, .patience_ms = WATCH_LEAST_MS};
		err = 0;
	}
	if (err || !u->claim)
		return 0;
	if (u->patience_ms < WATCH_LEAST_MS)
		return WATCH_LEAST_MS;
	return u->patience_ms < WATCH_MOST_MS ? u->patience_ms : WATCH_MOST_MS;
}

#define LAST_USER_BYTES (USE_NAME_BYTES + 64)
static void last_user(struct job *j, uint32_t i, char text[LAST_USER_BYTES])
{
	const struct create_dev *d = &j->dev[i];
	char user[USE_NAME_BYTES];
	struct useblock u;

	text[0] = '\0';
	if (d->read(d->arg, USE_OFFSET, j->look, DDR_BLOCK_BYTES) || !patience_ms(j->look, &u))
		return;
	useblock_name(&u, user);
	snprintf(text, LAST_USER_BYTES, ", which %s uses, or has not given back", user);
}

/* A claim: of this create, of another one that goes on or was cut off. */
int check_claim(struct job *j, uint32_t i, const uint8_t *block)
{
	const uint8_t *own = j->r->params.array_uuid;
	char name[DDR_NAME_BYTES];
	struct claim c;

	if (claim_decode(&c, block))
		return 0;
	if (j->claimed && !memcmp(c.array_uuid, own, DDR_UUID_BYTES))
		return create_refuse(
		    j, -ENOTUNIQ, (int)i,
		    "and member %u (%s) are one and the same device: name a different "
		    "device for each member",
		    c.index, c.index < j->count ? j->dev[c.index].uri : "?");
	if (j->ask->old_member)
		return 0;
	return create_refuse(
	    j, -EBUSY, (int)i,
	    "is being made a member of an array %s, or that was cut off: wait for it, "
	    "name another device, or, if nobody works on it, --old-member",
	    text_clean(name, sizeof(name), c.name));
}

enum create_standing create_standing(const struct superblock *sb, const struct engine_status *st)
{
	const struct map *map = st ? &st->map : NULL;

	if (!map || !map->n || st->state != ENGINE_ACTIVE || !st->io_allowed || st->proposing)
		return STANDING_UNSURE;
	for (uint8_t i = 0; i < map->n; i++)
		if (!memcmp(map->member[i].uuid, sb->member_uuid, DDR_UUID_BYTES))
			return STANDING_MEMBER;
	if (!sb->map.epoch.num)
		return STANDING_ADDED;
	if (epoch_cmp(&sb->map.epoch, &map->epoch) > 0 || sb->index >= map->n)
		return STANDING_UNSURE;
	if (map->member[sb->index].state != MEMBER_IN_SYNC)
		return STANDING_AWAY;
	return lineage_differs(&st->past, sb) ? STANDING_DIFFERS : STANDING_REPLACED;
}

enum create_standing standing_of(const struct create_ask *ask, const struct superblock *sb)
{
	return ask->standing ? ask->standing(ask->arg, sb) : STANDING_MEMBER;
}

int create_refuse_known(const struct create_ask *ask, const struct superblock *sb,
			const char *known, char text[CREATE_WHY_BYTES])
{
	switch (standing_of(ask, sb)) {
	case STANDING_REPLACED:
		if (ask->old_member)
			return 0;
		snprintf(text, CREATE_WHY_BYTES,
			 "was member %u of the array %s, which has another device in that place by "
			 "now, and needs this one no more: name another device, or --old-member to "
			 "overwrite what is left on it",
			 sb->index, known);
		return -EEXIST;
	case STANDING_DIFFERS:
		if (ask->old_member)
			return 0;
		snprintf(text, CREATE_WHY_BYTES,
			 "was member %u of the array %s, and was used by somebody else since: it "
			 "has a history of its own, and may carry what nothing else does. Name "
			 "another device, or --old-member to overwrite it if that does not count",
			 sb->index, known);
		return -EEXIST;
	case STANDING_AWAY:
		snprintf(text, CREATE_WHY_BYTES,
			 "was member %u of the array %s, and the device that has its place is not "
			 "in sync yet: wait until 'ddraidctl status %s' has member %u in sync, or "
			 "name another device",
			 sb->index, known, known, sb->index);
		return -ENOTUNIQ;
	case STANDING_ADDED:
		snprintf(text, CREATE_WHY_BYTES,
			 "is being added to the array %s, or that came to nothing: wait for it, "
			 "put the device there with 'ddraidctl add %s %u', or name another device",
			 known, known, sb->index);
		return -ENOTUNIQ;
	case STANDING_UNSURE:
		snprintf(
		    text, CREATE_WHY_BYTES,
		    "is or was member %u of the array %s, which does not serve here now, so it "
		    "can't be told whether that needs it: 'ddraidctl start %s' and try again, "
		    "name another device, or give that array up with 'ddraidctl forget %s'",
		    sb->index, known, known, known);
		return -ENOTUNIQ;
	default:
		snprintf(text, CREATE_WHY_BYTES,
			 "is member %u of the array %s, which this cluster has: name another "
			 "device, replace it there first, by 'ddraidctl fail' and 'ddraidctl add', "
			 "or give that array up with 'ddraidctl forget %s'",
			 sb->index, known, known);
		return -ENOTUNIQ;
	}
}

bool create_refuse_listed(const struct create_ask *ask, uint32_t i, char text[CREATE_WHY_BYTES])
{
	uint32_t member = 0;
	const char *array = ask->listed ? ask->listed(ask->arg, i, &member) : NULL;

	if (array)
		snprintf(text, CREATE_WHY_BYTES,
			 "is named as member %u of the array %s, which this cluster has, though no "
			 "superblock on it says so any more: name another device, or give that "
			 "array up with 'ddraidctl forget %s'",
			 member, array, array);
	return array;
}

int check_superblock(struct job *j, uint32_t i)
{
	char text[CREATE_WHY_BYTES];
	struct superblock sb;
	char uuid[UUID_TEXT_BYTES], name[DDR_NAME_BYTES], user[LAST_USER_BYTES];
	const char *known;
	int none = 0, worst = 0, unread = 0;
	bool intact = false;

	for (uint32_t c = 0; c < SB_COPIES; c++) {
		uint8_t *block = j->buf + c * DDR_BLOCK_BYTES;
		int err = j->dev[i].read(j->dev[i].arg, geo_sb_offset(c), block, DDR_BLOCK_BYTES);

		if (err) { /* the other copy tells whose it is, and that goes first */
			unread = err;
			continue;
		}
		err = check_claim(j, i, block);
		if (err)
			return err;
		err = sb_decode(&sb, block, NULL);
		if (err == -ENOENT) {
			none++;
			continue;
		}
		if (err) {
			worst = err;
			continue;
		}
		intact = true;
		known = j->ask->known ? j->ask->known(j->ask->arg, sb.array_uuid) : NULL;
		if (known) {
			err = create_refuse_known(j->ask, &sb, known, text);
			if (err)
				return create_refuse(j, err, (int)i, "%s", text);
			continue; /* the other copy may be of an array that needs it */
		}
		if (j->ask->old_member)
			continue; /* both are kept, to be given back */
		if (j->ask->forgotten && j->ask->forgotten(j->ask->arg))
			return create_refuse(
			    j, -EEXIST, (int)i,
			    "was member %u of the array %s, which was forgotten: name "
			    "another device, or --old-member to overwrite what is left on "
			    "it",
			    sb.index, text_clean(name, sizeof(name), sb.name));
		last_user(j, i, user);
		return create_refuse(
		    j, -EEXIST, (int)i,
		    "is member %u of the ddraid array %s (%s)%s: name another device, or "
		    "bring that array back with 'ddraidctl import' and all its members",
		    sb.index, text_clean(name, sizeof(name), sb.name),
		    uuid_format(uuid, sb.array_uuid), user);
	}
	if (!intact && create_refuse_listed(j->ask, i, text))
		return create_refuse(j, -ENOTUNIQ, (int)i, "%s", text);
	if (unread)
		return refuse_io(j, unread, i, "read");
	if (none == SB_COPIES || j->ask->old_member)
		return 0;
	return create_refuse(
	    j, -EEXIST, (int)i,
	    "carries a superblock of ddraid that %s: name another device, or --old-member "
	    "to overwrite it",
	    worst == -EPROTONOSUPPORT ? "a newer version has written" : "is damaged");
}

int in_use(struct job *j, uint32_t i, const struct useblock *u)
{
	char user[USE_NAME_BYTES];

	useblock_name(u, user);
	return create_refuse(j, -EBUSY, (int)i,
			     "is in use, by %s: stop the array there first, or name another device",
			     user);
}

/* One look at all. `most`: the longest that any user has to be silent. */
static int look_at_use(struct job *j, bool first, uint32_t silent_ms, uint32_t *most)
{
	*most = 0;
	for (uint32_t i = 0; i < j->count; i++) {
		uint8_t *was = j->old + (size_t)i * AREA_BYTES + USE_AT;
		struct useblock u;
		uint32_t ms;
		int err;

		if (!first && !patience_ms(was, &u))
			continue;
		err = j->dev[i].read(j->dev[i].arg, USE_OFFSET, j->look, DDR_BLOCK_BYTES);
		if (err)
			return refuse_io(j, err, i, "read");
		ms = patience_ms(j->look, &u);
		if (!first && memcmp(was, j->look, DDR_BLOCK_BYTES) != 0 && ms)
			return in_use(j, i, &u);
		memcpy(was, j->look, DDR_BLOCK_BYTES);
		if (ms && !j->ask->pause)
			return in_use(j, i, &u);
		if (ms > silent_ms && ms > *most)
			*most = ms;
	}
	return 0;
}

/* Whoever is there shows it. */
int check_use(struct job *j)
{
	uint32_t most, ms = 0;
	char text[96];
	int err = look_at_use(j, true, 0, &most);

	while (!err && ms < most) {
		snprintf(text, sizeof(text), "watching for %u s whether anybody uses the members",
			 (most - ms) / 1000);
		if (j->ask->progress)
			j->ask->progress(j->ask->arg, text, 0, j->count);
		j->ask->pause(j->ask->arg, WATCH_STEP_MS);
		ms += WATCH_STEP_MS;
		err = look_at_use(j, false, ms, &most);
	}
	return err;
}

static int check_signature(struct job *j, uint32_t i)
{
	const struct create_dev *d = &j->dev[i];
	char what[256] = "";
	int found;

	if (j->ask->wipe && !j->ask->zeroed)
		return 0;
	found = signature_find(d->size_bytes, d->read, d->arg, what, sizeof(what));
	if (found < 0)
		return refuse_io(j, found, i, "read");
	if (found && j->ask->wipe)
		return create_refuse(
		    j, -EINVAL, (int)i,
		    "carries %s, so it is not zero from end to end: leave --zeroed out", what);
	if (found)
		return create_refuse(
		    j, -EEXIST, (int)i,
		    "carries %s: name another device, wipe this one with 'wipefs -a', or "
		    "--wipe to overwrite it",
		    what);
	return 0;
}

static int check_content(struct job *j)
{
	int err = 0;

	for (uint32_t i = 0; i < j->count && !err; i++) {
		tell(j, "checking member", i);
		err = check_superblock(j, i);
		if (!err)
			err = check_signature(j, i);
	}
	return err;
}

/* --- UUIDs --- */

static int random_fill(void *to, size_t bytes)
{
	uint8_t *at = to;

	while (bytes) {
		ssize_t n = getrandom(at, bytes, 0);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			at += n;
			bytes -= (size_t)n;
		}
	}
	return 0;
}

int uuid_fresh(uint8_t uuid[DDR_UUID_BYTES])
{
	int err = random_fill(uuid, DDR_UUID_BYTES);

	uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x40); /* RFC 4122: version 4 */
	uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80); /* and its variant */
	return err;
}

static int params_fill(struct job *j)
{
	struct create_params *p = &j->r->params;
	int err = uuid_fresh(p->array_uuid);

	for (uint32_t i = 0; i < j->count && !err; i++)
		err = uuid_fresh(p->member_uuid[i]);
	if (err)
		return create_refuse(j, err, -1, "no random numbers for UUIDs: %s", strerror(-err));
	strncpy(p->name, j->ask->name, DDR_NAME_BYTES - 1);
	p->geo = j->r->geo.p;
	p->inc = j->ask->inc;
	p->clean = j->ask->zeroed;
	return 0;
}

int check_all(struct job *j)
{
	struct geo_params p = j->ask->geo;
	int err = check_params(j);

	if (!err)
		err = check_uris(j);
	if (!err)
		err = check_reach(j);
	if (!err)
		err = check_size(j, &p);
	if (!err)
		err = check_requests(j);
	if (!err)
		err = check_content(j);
	if (!err)
		err = check_use(j);
	if (!err)
		err = check_blocks(j);
	return err ? err : params_fill(j);
}
