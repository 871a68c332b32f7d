/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * `examine`: what a member says of itself, read from the device, without a daemon: both superblock
 * copies, the map of the newer one, who uses the array, which epochs came before, and who holds
 * which slot of the dirty log with how many regions in it. It only reads; on a member in use, what
 * it prints may be a moment old and a page may look torn.
 *
 * Exit status 1, and a sentence, if one of the members has no good superblock, or a slot has a page
 * without a good copy.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/units.h"
#include "daemon/core/format/claim.h"
#include "daemon/core/format/logpage.h"
#include "daemon/core/format/superblock.h"
#include "daemon/core/format/useblock.h"
#include "tools/ctl/ctl.h"
#include "tools/ctl/device.h"
#include "tools/ctl/json.h"
#include "tools/ctl/table.h"

#define MAX_RANGES 1024u

struct copy {
	struct superblock sb;
	int err;
	const char *why; /* text, or a constant */
	char text[FORMAT_WHY_BYTES];
};

struct slot {
	uint32_t owner_node;
	uint64_t owner_inc, seq;
	uint64_t dirty, missed; /* regions */
	uint64_t dead_below;    /* of the newest page 0 */
	uint32_t lost;          /* pages with no good copy: all their regions are dirty */
	uint32_t torn;          /* pages with one good copy */
};

struct exam {
	const char *uri;
	struct device dev;
	char why[512]; /* what is wrong with it */
	struct copy copy[SB_COPIES];
	int best; /* copy that counts, -1 = none */
	struct useblock use;
	int use_err; /* 0: there is a use block of this array; -ENOENT: none; else it is damaged */
	struct geo geo;
	struct slot slot[DDR_MAX_SLOTS + 1];
	uint32_t slots; /* with the array's own */
	uint32_t ranges;
	struct {
		uint64_t first, count;
	} range[MAX_RANGES]; /* dirty in any slot */
};

/* --- reading --- */

/*
 * Both copies of a superblock or log page, in one read or, where that fails, each by itself: a copy
 * that can't be read is a damaged one. Only if neither can be read that is told in x->why. Returns
 * a mask of the copies that were read.
 */
static unsigned read_copies(struct exam *x, uint64_t offset, uint8_t *block, int *err)
{
	unsigned got = 0;

	*err = device_read(&x->dev, offset, block, 2 * DDR_BLOCK_BYTES, x->why, sizeof(x->why));
	if (!*err)
		return 3;
	for (uint32_t c = 0; c < 2; c++) {
		uint64_t at = (uint64_t)c * DDR_BLOCK_BYTES;
		int e = device_read(&x->dev, offset + at, block + at, DDR_BLOCK_BYTES, x->why,
				    sizeof(x->why));

		if (e)
			*err = e;
		else
			got |= 1u << c;
	}
	if (got)
		x->why[0] = '\0';
	return got;
}

/* What `create` leaves if it is cut off. */
static void look_for_claim(struct copy *k, const uint8_t *block)
{
	char uuid[UUID_TEXT_BYTES], name[DDR_NAME_BYTES];
	struct claim claim;

	if (claim_decode(&claim, block))
		return;
	snprintf(k->text, sizeof(k->text),
		 "a claim: 'create' of the array %s (%s) is under way, or was cut off",
		 text_clean(name, sizeof(name), claim.name), uuid_format(uuid, claim.array_uuid));
}

static void read_use(struct exam *x)
{
	static uint8_t block[DDR_BLOCK_BYTES];
	char why[sizeof(x->why)];

	x->use_err = device_read(&x->dev, USE_OFFSET, block, sizeof(block), why, sizeof(why));
	if (!x->use_err)
		x->use_err = useblock_decode(&x->use, block);
	else
		x->use_err = -EIO;
	if (!x->use_err &&
	    (!x->use.claim ||
	     memcmp(x->use.array_uuid, x->copy[x->best].sb.array_uuid, DDR_UUID_BYTES)))
		x->use_err = -ENOENT;
}

static int read_superblocks(struct exam *x)
{
	static uint8_t block[SB_COPIES * DDR_BLOCK_BYTES];
	int err;
	unsigned got = read_copies(x, SB_OFFSET, block, &err);
	char why[FORMAT_WHY_BYTES];

	x->best = -1;
	if (!got)
		return err;
	for (int c = 0; c < (int)SB_COPIES; c++) {
		struct copy *k = &x->copy[c];

		if (!(got >> c & 1)) /* as examine() has it */
			continue;
		k->why = k->text;
		k->err = sb_decode(&k->sb, block + c * DDR_BLOCK_BYTES, k->text);
		if (!k->err && sb_misplaced(&k->sb, (uint32_t)c)) {
			k->err = -EINVAL;
			k->why = "it was written at another byte of the device, which begins "
				 "elsewhere now";
		}
		if (k->err == -ENOENT)
			look_for_claim(k, block + c * DDR_BLOCK_BYTES);
		if (!k->err && (x->best < 0 || sb_newer(&k->sb, &x->copy[x->best].sb)))
			x->best = c;
	}
	if (x->best < 0)
		return x->copy[0].err;
	err = geo_init(&x->geo, &x->copy[x->best].sb.geo, why);
	if (err)
		snprintf(x->why, sizeof(x->why), "its superblock makes no sense: %s", why);
	return err;
}

/* The newer good copy of a page; how many of the two are good. */
static unsigned page_best(const struct exam *x, uint32_t slot, uint32_t page, const uint8_t *block,
			  unsigned got, struct logpage *best)
{
	struct logpage lp;
	unsigned good = 0;

	for (uint32_t c = 0; c < 2; c++) {
		if (!(got >> c & 1) || logpage_decode(&lp, block + c * DDR_BLOCK_BYTES) ||
		    memcmp(lp.array_uuid, x->copy[x->best].sb.array_uuid, DDR_UUID_BYTES) ||
		    lp.slot != slot || lp.page != page)
			continue;
		if (!good++ || lp.seq > best->seq)
			*best = lp;
	}
	return good;
}

static void take_page(struct slot *s, uint8_t *any, const struct logpage *lp, uint64_t first,
		      uint64_t regions)
{
	for (uint32_t r = 0; r < LOG_REGIONS_PER_PAGE && first + r < regions; r++) {
		s->dirty += bit_get(lp->dirty, r);
		s->missed += bit_get(lp->missed, r);
		if (bit_get(lp->dirty, r))
			any[(first + r) / 8] |= (uint8_t)(1u << ((first + r) % 8));
	}
	if (!lp->page)
		s->dead_below = lp->dead_below;
	if (lp->seq < s->seq)
		return;
	s->seq = lp->seq;
	s->owner_node = lp->owner_node;
	s->owner_inc = lp->owner_inc;
}

static int read_slot(struct exam *x, uint32_t slot, uint8_t *any)
{
	static uint8_t block[2 * DDR_BLOCK_BYTES];
	static struct logpage lp;
	struct slot *s = &x->slot[slot];

	for (uint32_t p = 0; p < x->geo.log_pages; p++) {
		int err;
		unsigned got = read_copies(x, geo_log_offset(&x->geo, slot, p, 0), block, &err);
		unsigned good;

		if (!got && err != -EIO)
			return err;
		x->why[0] = '\0';
		good = page_best(x, slot, p, block, got, &lp);
		if (!good)
			s->lost++;
		else
			take_page(s, any, &lp, (uint64_t)p * LOG_REGIONS_PER_PAGE, x->geo.regions);
		s->torn += good == 1;
	}
	return 0;
}

static void find_ranges(struct exam *x, const uint8_t *any)
{
	for (uint64_t r = 0; r < x->geo.regions && x->ranges < MAX_RANGES; r++) {
		uint64_t first = r;

		while (r < x->geo.regions && any[r / 8] >> (r % 8) & 1)
			r++;
		if (r == first)
			continue;
		x->range[x->ranges].first = first;
		x->range[x->ranges++].count = r - first;
	}
}

static int read_log(struct exam *x)
{
	uint8_t *any = calloc(1, x->geo.regions / 8 + 1);
	int err = any ? 0 : -ENOMEM;

	x->slots = x->geo.p.slots + 1u;
	for (uint32_t s = 0; s < x->slots && !err; s++)
		err = read_slot(x, s, any);
	if (!err)
		find_ranges(x, any);
	free(any);
	return err;
}

/* --- for people --- */

static void show_copies(const struct exam *x)
{
	for (int c = 0; c < (int)SB_COPIES; c++) {
		const struct copy *k = &x->copy[c];

		printf("  superblock %d  ", c);
		if (k->err)
			printf("%s\n", k->why);
		else
			printf("good, sequence %" PRIu64 ", epoch %" PRIu64
			       ", known committed %" PRIu64 "%s\n",
			       k->sb.seq, k->sb.map.epoch.num, k->sb.committed.num,
			       c == x->best ? ", counts" : "");
	}
}

static void show_head(const struct exam *x)
{
	const struct superblock *sb = &x->copy[x->best].sb;
	const struct geo *g = &x->geo;
	char name[DDR_NAME_BYTES], uuid[UUID_TEXT_BYTES], a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES];
	char c[UNITS_TEXT_BYTES];

	printf("  array         %s (%s)\n", text_clean(name, sizeof(name), sb->name),
	       uuid_format(uuid, sb->array_uuid));
	printf("  member        %u (%s)\n", sb->index, uuid_format(uuid, sb->member_uuid));
	printf("  size          %s of users, %s used of each member, data from %s on\n",
	       size_format(a, g->size_bytes), size_format(b, g->p.member_bytes),
	       size_format(c, g->data_offset));
	printf("  layout        order %u, %s, %u + %u members, stripe %s, band %s\n", g->p.order,
	       g->p.layout == GEO_ROTATE ? "rotate" : "dedicated", g->k, g->p.m,
	       size_format(a, g->p.stripe_bytes), size_format(b, g->p.band_bytes));
	printf("  blocks        chunks of %s on a member, logical blocks of %s for users\n",
	       size_format(a, g->p.chunk_bytes), size_format(b, g->p.logical_block_bytes));
	printf("  log           %" PRIu64 " regions of %s, %u slots of %u page%s\n", g->regions,
	       size_format(a, g->p.region_bytes), g->p.slots, g->log_pages,
	       g->log_pages == 1 ? "" : "s");
	if (g->p.journal_bytes)
		printf("  journal       room for %u rings of %s\n", g->p.slots,
		       size_format(a, g->p.journal_bytes));
	printf("  epoch         %" PRIu64 " of incarnation 0x%016" PRIx64, sb->map.epoch.num,
	       sb->map.epoch.inc);
	if (sb->map.missed_from)
		printf(", missed writes are recorded since epoch %" PRIu64, sb->map.missed_from);
	putchar('\n');
}

/* "2026-11-28 09:41:02", or "" */
static char *when(char *text, size_t bytes, uint64_t s, const char *format)
{
	time_t t = (time_t)s;
	struct tm tm;

	text[0] = '\0';
	if (s && s < 1ull << 40 && gmtime_r(&t, &tm))
		strftime(text, bytes, format, &tm);
	return text;
}

static void show_user(const struct useblock *u)
{
	char host[DDR_NAME_BYTES], cluster[DDR_NAME_BYTES], at[64], ago[UNITS_TEXT_BYTES];
	uint64_t now = (uint64_t)time(NULL);

	printf("  used by       node %u (%s) of %s%s, process %u, incarnation 0x%016" PRIx64 "\n",
	       u->node, text_clean(host, sizeof(host), u->host),
	       u->cluster[0] ? "cluster " : "no cluster",
	       text_clean(cluster, sizeof(cluster), u->cluster), u->process.pid, u->inc);
	printf("                ");
	if (when(at, sizeof(at), u->at_s, "%F %T UTC")[0]) {
		printf("last sign of it %s by its node's clock", at);
		if (now >= u->at_s)
			printf(", %s ago by this one's", time_format(ago, (now - u->at_s) * 1000));
		printf("; ");
	}
	printf("without a sign for %s it is gone\n", time_format(ago, u->patience_ms));
}

static void show_use(const struct exam *x)
{
	const struct superblock *sb = &x->copy[x->best].sb;
	char cluster[DDR_NAME_BYTES];

	printf("  cluster       %s\n", sb->clustered
					   ? text_clean(cluster, sizeof(cluster), sb->cluster)
					   : "none, a daemon by itself");
	if (!x->use_err)
		show_user(&x->use);
	else
		printf("  used by       %s\n",
		       x->use_err == -ENOENT ? "nobody"
		       : x->use_err == -EIO
			   ? "not known: the use block can't be read"
			   : "somebody who is not known: the use block is damaged");
}

/* Epochs in a row that one incarnation made are one word. */
static void show_history(const struct exam *x)
{
	const struct lineage *l = &x->copy[x->best].sb.past;

	for (uint32_t i = 0, last; i < l->count; i = last + 1) {
		const struct epoch *from, *to = &l->epoch[i];

		for (last = i; last + 1 < l->count && l->epoch[last + 1].inc == to->inc &&
			       l->epoch[last + 1].num + 1 == l->epoch[last].num;)
			last++;
		from = &l->epoch[last];
		printf("  %-12s  epoch", i ? "" : "history");
		if (from == to)
			printf(" %" PRIu64, to->num);
		else
			printf("s %" PRIu64 " to %" PRIu64, from->num, to->num);
		printf(" of incarnation 0x%016" PRIx64 "\n", to->inc);
	}
}

static void show_map(const struct exam *x)
{
	const struct map *map = &x->copy[x->best].sb.map;
	struct table t = {.columns = 5};
	char uuid[UUID_TEXT_BYTES];

	putchar('\n');
	for (const char *const *h =
		 (const char *const[]){"MEMBER", "STATE", "REBUILT", "LEFT", "UUID", NULL};
	     *h; h++)
		table_cell(&t, "%s", *h);
	for (uint8_t i = 0; i < map->n; i++) {
		const struct map_member *m = &map->member[i];

		table_cell(&t, "%u%s", i, i == x->copy[x->best].sb.index ? "*" : "");
		table_cell(&t, "%s%s", member_state_name(m->state),
			   m->flags & MEMBER_F_PARTIAL      ? ", partial"
			   : m->flags & MEMBER_F_UNCOMPARED ? ", uncompared"
							    : "");
		if (m->state == MEMBER_REBUILDING)
			table_cell(&t, "%" PRIu64 " of %" PRIu64, m->rebuilt_upto, x->geo.regions);
		else
			table_cell(&t, "-");
		if (m->left)
			table_cell(&t, "epoch %" PRIu64, m->left);
		else
			table_cell(&t, "-");
		table_cell(&t, "%s", uuid_format(uuid, m->uuid));
	}
	table_print(&t, stdout, 2);
}

static bool slot_worth_a_line(const struct slot *s)
{
	return s->owner_node || s->dirty || s->missed || s->lost || s->torn;
}

static void pages_cell(struct table *t, const struct slot *s)
{
	if (s->lost && s->torn)
		table_cell(t, "%u LOST, %u with one good copy", s->lost, s->torn);
	else if (s->lost)
		table_cell(t, "%u LOST", s->lost);
	else if (s->torn)
		table_cell(t, "%u with one good copy", s->torn);
	else
		table_cell(t, "good");
}

static void show_log(const struct exam *x)
{
	struct table t = {.columns = 6};
	uint32_t idle = 0;

	for (const char *const *h = (const char *const[]){"SLOT", "OWNER", "DIRTY", "MISSED",
							  "SEQUENCE", "PAGES", NULL};
	     *h; h++)
		table_cell(&t, "%s", *h);
	for (uint32_t i = 0; i < x->slots; i++) {
		const struct slot *s = &x->slot[i];

		if (!slot_worth_a_line(s)) {
			idle++;
			continue;
		}
		if (i == x->geo.p.slots)
			table_cell(&t, "array");
		else
			table_cell(&t, "%u", i);
		if (s->owner_node)
			table_cell(&t, "node %u, 0x%016" PRIx64, s->owner_node, s->owner_inc);
		else
			table_cell(&t, "-");
		table_cell(&t, "%" PRIu64, s->dirty);
		table_cell(&t, "%" PRIu64, s->missed);
		table_cell(&t, "%" PRIu64, s->seq);
		pages_cell(&t, s);
	}
	putchar('\n');
	if (idle < x->slots)
		table_print(&t, stdout, 2);
	else
		table_drop(&t);
	printf("  %u slots are free and empty\n", idle);
	for (uint32_t i = 0; i < x->slots; i++)
		if (x->slot[i].dead_below)
			printf("  slot %u: entries of the journal below %" PRIu64 " are dead\n", i,
			       x->slot[i].dead_below);
}

static void show(const struct exam *x, bool ranges)
{
	char clean[DDR_URI_BYTES], size[UNITS_TEXT_BYTES];

	printf("%s: %s\n", text_clean(clean, sizeof(clean), x->uri),
	       size_format(size, x->dev.size_bytes));
	show_copies(x);
	if (x->best < 0)
		return;
	show_head(x);
	show_use(x);
	show_history(x);
	show_map(x);
	show_log(x);
	for (uint32_t i = 0; ranges && i < x->ranges; i++)
		printf("  dirty regions %" PRIu64 " to %" PRIu64 "\n", x->range[i].first,
		       x->range[i].first + x->range[i].count - 1);
}

/* --- JSON --- */

static void json_copies(struct json *j, const struct exam *x)
{
	json_open(j, "superblocks", '[');
	for (int c = 0; c < (int)SB_COPIES; c++) {
		const struct copy *k = &x->copy[c];

		json_open(j, NULL, '{');
		json_bool(j, "good", !k->err);
		json_bool(j, "counts", c == x->best);
		json_text_or_null(j, "error", k->err ? k->why : NULL);
		if (!k->err) {
			json_number(j, "sequence", k->sb.seq);
			json_number(j, "epoch", k->sb.map.epoch.num);
			json_number(j, "committed", k->sb.committed.num);
		}
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void json_head(struct json *j, const struct exam *x)
{
	const struct superblock *sb = &x->copy[x->best].sb;
	const struct geo *g = &x->geo;

	json_text(j, "name", sb->name);
	json_uuid(j, "array_uuid", sb->array_uuid, DDR_UUID_BYTES);
	json_uuid(j, "member_uuid", sb->member_uuid, DDR_UUID_BYTES);
	json_number(j, "index", sb->index);
	json_number(j, "epoch", sb->map.epoch.num);
	json_hex(j, "epoch_incarnation", sb->map.epoch.inc);
	json_number(j, "committed", sb->committed.num);
	json_number(j, "missed_from", sb->map.missed_from);
	json_open(j, "geometry", '{');
	json_number(j, "order", g->p.order);
	json_number(j, "parity", g->p.m);
	json_text(j, "layout", g->p.layout == GEO_ROTATE ? "rotate" : "dedicated");
	json_number(j, "slots", g->p.slots);
	json_number(j, "stripe_bytes", g->p.stripe_bytes);
	json_number(j, "chunk_bytes", g->p.chunk_bytes);
	json_number(j, "logical_block_bytes", g->p.logical_block_bytes);
	json_number(j, "band_bytes", g->p.band_bytes);
	json_number(j, "region_bytes", g->p.region_bytes);
	json_number(j, "member_bytes", g->p.member_bytes);
	json_number(j, "data_offset", g->data_offset);
	json_number(j, "size_bytes", g->size_bytes);
	json_number(j, "regions", g->regions);
	json_number(j, "log_pages", g->log_pages);
	json_number(j, "journal_bytes", g->p.journal_bytes);
	json_close(j, '}');
}

static void json_use(struct json *j, const struct exam *x)
{
	const struct superblock *sb = &x->copy[x->best].sb;
	const struct useblock *u = &x->use;
	char at[64];

	json_bool(j, "clustered", sb->clustered);
	json_text_or_null(j, "cluster", sb->clustered ? sb->cluster : NULL);
	json_open(j, "use", '{');
	json_text(j, "state",
		  !x->use_err             ? "used"
		  : x->use_err == -ENOENT ? "nobody"
		  : x->use_err == -EIO    ? "unreadable"
					  : "damaged");
	if (!x->use_err) {
		json_number(j, "node", u->node);
		json_text(j, "host", u->host);
		json_text_or_null(j, "cluster", u->cluster);
		json_number(j, "process", u->process.pid);
		json_hex(j, "incarnation", u->inc);
		json_hex(j, "claim", u->claim);
		json_text_or_null(j, "written_at", when(at, sizeof(at), u->at_s, "%FT%TZ"));
		json_number(j, "patience_ms", u->patience_ms);
	}
	json_close(j, '}');
	json_open(j, "history", '[');
	for (uint32_t i = 0; i < sb->past.count; i++) {
		json_open(j, NULL, '{');
		json_number(j, "epoch", sb->past.epoch[i].num);
		json_hex(j, "incarnation", sb->past.epoch[i].inc);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void json_map(struct json *j, const struct map *map)
{
	json_open(j, "map", '[');
	for (uint8_t i = 0; i < map->n; i++) {
		const struct map_member *m = &map->member[i];

		json_open(j, NULL, '{');
		json_number(j, "index", i);
		json_uuid(j, "uuid", m->uuid, DDR_UUID_BYTES);
		json_text(j, "state", member_state_name(m->state));
		json_bool(j, "partial", m->flags & MEMBER_F_PARTIAL);
		json_bool(j, "uncompared", m->flags & MEMBER_F_UNCOMPARED);
		json_number(j, "rebuilt_upto", m->rebuilt_upto);
		json_number(j, "left_epoch", m->left);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void json_log(struct json *j, const struct exam *x)
{
	json_open(j, "slots", '[');
	for (uint32_t i = 0; i < x->slots; i++) {
		const struct slot *s = &x->slot[i];

		json_open(j, NULL, '{');
		json_number(j, "slot", i);
		json_bool(j, "array_own", i == x->geo.p.slots);
		json_number(j, "owner_node", s->owner_node);
		json_hex(j, "owner_incarnation", s->owner_inc);
		json_number(j, "sequence", s->seq);
		json_number(j, "dirty", s->dirty);
		json_number(j, "missed", s->missed);
		json_number(j, "dead_below", s->dead_below);
		json_number(j, "pages_torn", s->torn);
		json_number(j, "pages_lost", s->lost);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void show_json(struct json *j, const struct exam *x, bool ranges)
{
	json_open(j, NULL, '{');
	json_text(j, "uri", x->uri);
	json_text_or_null(j, "error", x->why);
	json_number(j, "device_bytes", x->dev.size_bytes);
	json_copies(j, x);
	if (x->best >= 0) {
		json_head(j, x);
		json_use(j, x);
		json_map(j, &x->copy[x->best].sb.map);
		json_log(j, x);
	}
	if (ranges) {
		json_open(j, "dirty", '[');
		for (uint32_t i = 0; i < x->ranges; i++) {
			json_open(j, NULL, '{');
			json_number(j, "first", x->range[i].first);
			json_number(j, "count", x->range[i].count);
			json_close(j, '}');
		}
		json_close(j, ']');
	}
	json_close(j, '}');
}

/* --- the command --- */

/* x->why[0]: it can't be read. */
static void examine(struct exam *x, const char *uri)
{
	memset(x, 0, sizeof(*x));
	x->uri = uri;
	x->best = -1;
	for (int c = 0; c < (int)SB_COPIES; c++)
		x->copy[c] = (struct copy){.err = -EIO, .why = "can't be read"};
	if (device_open(&x->dev, uri, x->why, sizeof(x->why)) || read_superblocks(x))
		return;
	read_use(x);
	if (read_log(x) == -ENOMEM)
		snprintf(x->why, sizeof(x->why), "there is no memory left");
}

static uint32_t pages_lost(const struct exam *x)
{
	uint32_t lost = 0;

	for (uint32_t s = 0; s < x->slots; s++)
		lost += x->slot[s].lost;
	return lost;
}

/* True: something is wrong with it, and a sentence was printed. */
static bool judge(struct exam *x)
{
	const struct copy *k = x->copy;
	uint32_t lost = pages_lost(x);

	if (x->why[0]) {
		complain("%s can't be examined: %s; check the path or URI", x->uri, x->why);
	} else if (x->best < 0) {
		if (strcmp(k[0].why, k[1].why))
			snprintf(x->why, sizeof(x->why), "superblock 0: %s; superblock 1: %s",
				 k[0].why, k[1].why);
		else
			snprintf(x->why, sizeof(x->why), "%s", k[0].why);
		complain("%s carries no good superblock: %s; check the path or URI", x->uri,
			 x->why);
	} else if (lost) {
		snprintf(x->why, sizeof(x->why), "%u page%s of its dirty log %s no good copy", lost,
			 lost == 1 ? "" : "s", lost == 1 ? "has" : "have");
		complain("%s: %s; the array goes by its other members' pages, and where none of "
			 "them is good it takes all regions of the page for dirty",
			 x->uri, x->why);
	}
	return x->why[0];
}

int examine_run(const struct args *a)
{
	static struct exam x;
	int status = EXIT_OK;
	bool any = false;

	if (a->json)
		json_open(answer(), "members", '[');
	for (int i = 0; i < a->count; i++) {
		bool readable;

		examine(&x, a->word[i]);
		readable = !x.why[0];
		if (judge(&x))
			status = EXIT_FAILED;
		if (a->json) {
			show_json(answer(), &x, a->ranges);
		} else if (readable) {
			if (i)
				putchar('\n');
			show(&x, a->ranges);
		}
		any |= x.best >= 0;
		device_close(&x.dev);
	}
	if (a->json)
		json_close(answer(), ']');
	else if (any)
		printf("\nwhere no node knows the array, 'ddraidctl import' with all its members "
		       "brings it back\n");
	return status;
}
