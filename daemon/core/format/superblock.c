/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The map's rules and the superblock's codec. See superblock.h; doc/ondisk.md has the same
 * offsets in words.
 *
 * A decoded superblock has passed everything that sb_encode asserts, so what was read can
 * be written again, and the rest of the core need not distrust it.
 */
#include "daemon/core/format/superblock.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "daemon/core/format/codec.h"

#define SB_MAGIC "ddraidsb"
#define SB_VERSION 1u

/*
 * Features. This build knows none and writes none. These bits of incompat are given out to what is
 * to come, so that a build which lacks it can say what it lacks; none of ro-compat is.
 */
static const char *const incompat_name[] = {
    [0] = "partial-stripes", /* S > L: a write may change a part of a stripe */
    [1] = "journal",         /* the rings behind the log may have to be redone */
    [2] = "p+q",             /* m = 2 */
    [3] = "mirror",          /* order 0 */
    [4] = "external-log",    /* the dirty log is on another device */
};

/* Offsets in the block; codec.h has the magic and the checksum, 0..11. */
enum {
	SB_OFF_VERSION = 12,       /* u32 */
	SB_OFF_COMPAT = 16,        /* u64: unknown bits are ignored */
	SB_OFF_RO_COMPAT = 24,     /* u64: unknown bits forbid writing */
	SB_OFF_INCOMPAT = 32,      /* u64: unknown bits forbid all use */
	SB_OFF_SEQ = 40,           /* u64 */
	SB_OFF_ARRAY_UUID = 48,    /* 16 bytes */
	SB_OFF_MEMBER_UUID = 64,   /* 16 bytes */
	SB_OFF_NAME = 80,          /* 64 bytes, padded with NUL */
	SB_OFF_ORDER = 144,        /* u8 */
	SB_OFF_M = 145,            /* u8 */
	SB_OFF_LAYOUT = 146,       /* u8 */
	SB_OFF_SLOTS = 147,        /* u8 */
	SB_OFF_STRIPE = 148,       /* u32 */
	SB_OFF_BAND = 152,         /* u32 */
	SB_OFF_REGION = 156,       /* u32 */
	SB_OFF_MEMBER_BYTES = 160, /* u64 */
	SB_OFF_DATA_OFFSET = 168,  /* u64 */
	SB_OFF_LOG_PAGES = 176,    /* u32 */
	SB_OFF_INDEX = 180,        /* u8 */
	SB_OFF_N = 181,            /* u8 */
	SB_OFF_USE = 182,          /* u8: SB_USE_...; 183 reserved */
	SB_OFF_COMMITTED = 184,    /* u64 number, u64 incarnation */
	SB_OFF_EPOCH = 200,        /* u64 number, u64 incarnation */
	SB_OFF_MISSED_FROM = 216,  /* u64 */
	SB_OFF_WRITER_NODE = 224,  /* u32 */
	SB_OFF_PLACE = 228,        /* u8; 229..231 reserved */
	SB_OFF_JOURNAL = 232,      /* u64 */
	SB_OFF_CHUNK = 240,        /* u32 */
	SB_OFF_LOGICAL = 244,      /* u32; 248..255 reserved */
	SB_OFF_MEMBERS = 256,      /* SB_MEMBER_BYTES each; 896..1023 reserved */
	SB_OFF_CLUSTER = 1024,     /* 64 bytes, padded with NUL */
	SB_OFF_PAST_COUNT = 1088,  /* u32; 1092..1103 reserved */
	SB_OFF_PAST = 1104,        /* u64 number, u64 incarnation each */
};

enum { SB_USE_CLUSTERED = 1 };

/* Offsets in a member's entry. */
enum {
	SB_MEMBER_UUID = 0,     /* 16 bytes */
	SB_MEMBER_STATE = 16,   /* u8 */
	SB_MEMBER_FLAGS = 17,   /* u8; 18..23 reserved */
	SB_MEMBER_UPTO = 24,    /* u64 */
	SB_MEMBER_LEFT = 32,    /* u64 */
	SB_MEMBER_REACHED = 40, /* u64; 48..63 reserved */
	SB_MEMBER_BYTES = 64,
};

_Static_assert(SB_OFF_NAME + DDR_NAME_BYTES == SB_OFF_ORDER, "superblock name");
_Static_assert(SB_OFF_MEMBERS + DDR_MAX_MEMBERS * SB_MEMBER_BYTES <= SB_OFF_CLUSTER,
	       "superblock members");
_Static_assert(SB_OFF_CLUSTER + DDR_NAME_BYTES == SB_OFF_PAST_COUNT, "superblock cluster");
_Static_assert(SB_OFF_PAST + 16 * LINEAGE_MAX <= DDR_BLOCK_BYTES, "superblock past");
_Static_assert(sizeof(SB_MAGIC) == BLOCK_MAGIC_BYTES + 1, "superblock magic");

int epoch_cmp(const struct epoch *a, const struct epoch *b)
{
	if (a->num != b->num)
		return a->num < b->num ? -1 : 1;
	if (a->inc != b->inc)
		return a->inc < b->inc ? -1 : 1;
	return 0;
}

bool sb_misplaced(const struct superblock *sb, uint32_t copy)
{
	return sb->place && sb->place != copy + 1;
}

bool sb_newer(const struct superblock *a, const struct superblock *b)
{
	if (a->seq != b->seq)
		return a->seq > b->seq;
	return epoch_cmp(&a->map.epoch, &b->map.epoch) > 0;
}

void lineage_add(struct lineage *l, const struct epoch *ep)
{
	uint32_t at = 0;

	while (at < l->count && l->epoch[at].num > ep->num)
		at++;
	if (!ep->num || at == LINEAGE_MAX || (at < l->count && l->epoch[at].num == ep->num))
		return;
	if (l->count < LINEAGE_MAX)
		l->count++;
	memmove(&l->epoch[at + 1], &l->epoch[at], (l->count - 1 - at) * sizeof(*ep));
	l->epoch[at] = *ep;
}

bool lineage_denies(const struct lineage *l, const struct epoch *ep)
{
	for (uint32_t i = 0; i < l->count; i++)
		if (l->epoch[i].num == ep->num)
			return l->epoch[i].inc != ep->inc;
	return false;
}

bool lineage_differs(const struct lineage *l, const struct superblock *sb)
{
	bool differs = sb->committed.num && lineage_denies(l, &sb->committed);

	for (uint32_t i = 0; i < sb->past.count; i++)
		differs |= lineage_denies(l, &sb->past.epoch[i]);
	return differs;
}

static bool lineage_has(const struct lineage *l, const struct epoch *ep)
{
	for (uint32_t i = 0; i < l->count; i++)
		if (!epoch_cmp(&l->epoch[i], ep))
			return true;
	return false;
}

bool lineage_shares(const struct lineage *l, const struct superblock *sb, uint64_t num)
{
	bool shares = sb->committed.num >= num && lineage_has(l, &sb->committed);

	for (uint32_t i = 0; i < sb->past.count; i++)
		shares |= sb->past.epoch[i].num >= num && lineage_has(l, &sb->past.epoch[i]);
	return shares;
}

static const char *check_name(const char *name)
{
	size_t len = strnlen(name, DDR_NAME_BYTES);

	if (len == DDR_NAME_BYTES)
		return "a name in the superblock has no end";
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)name[i] < ' ' || name[i] == 0x7f)
			return "a name in the superblock has control characters";
	return NULL;
}

static const char *check_past(const struct superblock *sb)
{
	if (sb->past.count > LINEAGE_MAX)
		return "the superblock remembers too many epochs";
	for (uint32_t i = 0; i < sb->past.count; i++)
		if (!sb->past.epoch[i].num || sb->past.epoch[i].num > sb->map.epoch.num ||
		    (i && sb->past.epoch[i].num >= sb->past.epoch[i - 1].num))
			return "the epochs that the superblock remembers are in no order";
	return NULL;
}

static const char *check_member(const struct map_member *mm, const struct map *map,
				const struct geo *g)
{
	if (mm->state < MEMBER_IN_SYNC || mm->state > MEMBER_REBUILDING)
		return "a member's state in the map is unknown";
	if (mm->flags & ~(MEMBER_F_PARTIAL | MEMBER_F_UNCOMPARED))
		return "a member's flags in the map are unknown";
	if (mm->flags & MEMBER_F_PARTIAL
		? mm->state != MEMBER_REBUILDING
		: mm->flags && mm->state != MEMBER_SUSPECT && mm->state != MEMBER_MISSING)
		return "a member's flags in the map do not fit its state";
	if (g && mm->state == MEMBER_REBUILDING && mm->rebuilt_upto > g->regions)
		return "a member in the map is rebuilt beyond the end of the array";
	if (mm->left > map->epoch.num)
		return "a member in the map left in an epoch that is still to come";
	if (mm->reached > map->epoch.num)
		return "a member in the map had reached an epoch that is still to come";
	for (const struct map_member *other = map->member; other != mm; other++)
		if (!memcmp(other->uuid, mm->uuid, DDR_UUID_BYTES))
			return "two members in the map have one UUID";
	return NULL;
}

static const char *map_fields(const struct map *m, const struct geo *g)
{
	const char *bad = NULL;

	if (g ? m->n != g->n : m->n <= DDR_MAX_PARITY || m->n > DDR_MAX_MEMBERS)
		return "the number of members in the map does not fit the geometry";
	if (m->epoch.num > EPOCH_NUM_MAX)
		return "the map's epoch is beyond all that an array can reach";
	if (m->missed_from > m->epoch.num)
		return "the map's missed set starts in an epoch that is still to come";
	for (unsigned i = 0; i < m->n && !bad; i++)
		bad = check_member(&m->member[i], m, g);
	return bad;
}

const char *map_check(const struct map *m, const struct geo *g)
{
	const char *bad = map_fields(m, g);

	if (bad)
		return bad;
	if (!m->epoch.num || !m->epoch.inc)
		return "the map has no epoch";
	if (__builtin_popcount(map_insync_mask(m)) < (g ? g->k : m->n - DDR_MAX_PARITY))
		return "the map has fewer members in sync than the data needs";
	return NULL;
}

/* What `add` puts on a device before a map names it: nobody is in sync by it. */
static const char *check_placeholder(const struct map *m, const struct geo *g)
{
	if (m->epoch.inc || map_write_mask(m))
		return "the map has no epoch, and members that are in use";
	return map_fields(m, g);
}

/* What holds for every superblock, whoever made it. NULL, or what does not hold. */
static const char *check_fields(const struct superblock *sb, const struct geo *g)
{
	const char *bad = check_name(sb->name);

	if (!bad)
		bad = check_name(sb->cluster);
	if (!bad)
		bad = check_past(sb);
	if (bad)
		return bad;
	if (sb->place > SB_COPIES)
		return "the superblock names a place where none is";
	if (sb->map.n != g->n)
		return "the number of members in the superblock does not fit the geometry";
	if (sb->index >= sb->map.n)
		return "the member index in the superblock is out of range";
	if (sb->committed.num > sb->map.epoch.num)
		return "the committed epoch in the superblock is newer than the superblock's own";
	bad = sb->map.epoch.num ? map_check(&sb->map, g) : check_placeholder(&sb->map, g);
	if (bad)
		return bad;
	if (memcmp(sb->member_uuid, sb->map.member[sb->index].uuid, DDR_UUID_BYTES) != 0)
		return "the member's own UUID in the superblock is not the one in its map";
	return NULL;
}

static void put_epoch(uint8_t *p, const struct epoch *e)
{
	put_le64(p, e->num);
	put_le64(p + 8, e->inc);
}

static void get_epoch(struct epoch *e, const uint8_t *p)
{
	e->num = get_le64(p);
	e->inc = get_le64(p + 8);
}

static void put_geo(uint8_t *out, const struct geo_params *p)
{
	out[SB_OFF_ORDER] = p->order;
	out[SB_OFF_M] = p->m;
	out[SB_OFF_LAYOUT] = p->layout;
	out[SB_OFF_SLOTS] = p->slots;
	put_le32(out + SB_OFF_STRIPE, p->stripe_bytes);
	put_le32(out + SB_OFF_BAND, p->band_bytes);
	put_le32(out + SB_OFF_REGION, p->region_bytes);
	put_le64(out + SB_OFF_MEMBER_BYTES, p->member_bytes);
	put_le64(out + SB_OFF_DATA_OFFSET, p->data_offset);
	put_le32(out + SB_OFF_LOG_PAGES, p->log_pages);
	put_le64(out + SB_OFF_JOURNAL, p->journal_bytes);
	put_le32(out + SB_OFF_CHUNK, p->chunk_bytes);
	put_le32(out + SB_OFF_LOGICAL, p->logical_block_bytes);
}

static void get_geo(struct geo_params *p, const uint8_t *in)
{
	p->order = in[SB_OFF_ORDER];
	p->m = in[SB_OFF_M];
	p->layout = in[SB_OFF_LAYOUT];
	p->slots = in[SB_OFF_SLOTS];
	p->stripe_bytes = get_le32(in + SB_OFF_STRIPE);
	p->band_bytes = get_le32(in + SB_OFF_BAND);
	p->region_bytes = get_le32(in + SB_OFF_REGION);
	p->member_bytes = get_le64(in + SB_OFF_MEMBER_BYTES);
	p->data_offset = get_le64(in + SB_OFF_DATA_OFFSET);
	p->log_pages = get_le32(in + SB_OFF_LOG_PAGES);
	p->journal_bytes = get_le64(in + SB_OFF_JOURNAL);
	p->chunk_bytes = get_le32(in + SB_OFF_CHUNK);
	p->logical_block_bytes = get_le32(in + SB_OFF_LOGICAL);
}

static void put_member(uint8_t *p, const struct map_member *mm)
{
	memcpy(p + SB_MEMBER_UUID, mm->uuid, DDR_UUID_BYTES);
	p[SB_MEMBER_STATE] = mm->state;
	p[SB_MEMBER_FLAGS] = mm->flags;
	put_le64(p + SB_MEMBER_UPTO, mm->rebuilt_upto);
	put_le64(p + SB_MEMBER_LEFT, mm->left);
	put_le64(p + SB_MEMBER_REACHED, mm->reached);
}

static void get_member(struct map_member *mm, const uint8_t *p)
{
	memcpy(mm->uuid, p + SB_MEMBER_UUID, DDR_UUID_BYTES);
	mm->state = p[SB_MEMBER_STATE];
	mm->flags = p[SB_MEMBER_FLAGS];
	mm->rebuilt_upto = get_le64(p + SB_MEMBER_UPTO);
	mm->left = get_le64(p + SB_MEMBER_LEFT);
	mm->reached = get_le64(p + SB_MEMBER_REACHED);
}

void sb_encode(const struct superblock *sb, uint8_t out[DDR_BLOCK_BYTES])
{
	struct geo g;
	int err = geo_init(&g, &sb->geo, NULL);

	assert(!err && !check_fields(sb, &g));
	memset(out, 0, DDR_BLOCK_BYTES);
	memcpy(out, SB_MAGIC, BLOCK_MAGIC_BYTES);
	put_le32(out + SB_OFF_VERSION, SB_VERSION);
	put_le64(out + SB_OFF_SEQ, sb->seq);
	memcpy(out + SB_OFF_ARRAY_UUID, sb->array_uuid, DDR_UUID_BYTES);
	memcpy(out + SB_OFF_MEMBER_UUID, sb->member_uuid, DDR_UUID_BYTES);
	memcpy(out + SB_OFF_NAME, sb->name, strnlen(sb->name, DDR_NAME_BYTES));
	put_geo(out, &sb->geo);
	out[SB_OFF_INDEX] = sb->index;
	out[SB_OFF_N] = sb->map.n;
	put_epoch(out + SB_OFF_COMMITTED, &sb->committed);
	put_epoch(out + SB_OFF_EPOCH, &sb->map.epoch);
	put_le64(out + SB_OFF_MISSED_FROM, sb->map.missed_from);
	put_le32(out + SB_OFF_WRITER_NODE, sb->writer_node);
	out[SB_OFF_PLACE] = sb->place;
	out[SB_OFF_USE] = sb->clustered ? SB_USE_CLUSTERED : 0;
	memcpy(out + SB_OFF_CLUSTER, sb->cluster, strnlen(sb->cluster, DDR_NAME_BYTES));
	put_le32(out + SB_OFF_PAST_COUNT, sb->past.count);
	for (size_t i = 0; i < sb->past.count; i++)
		put_epoch(out + SB_OFF_PAST + 16 * i, &sb->past.epoch[i]);
	for (size_t i = 0; i < sb->map.n; i++)
		put_member(out + SB_OFF_MEMBERS + i * SB_MEMBER_BYTES, &sb->map.member[i]);
	block_seal(out);
}

/* By the first feature that this build doesn't know, there being one. */
static int refuse_feature(char *why, uint64_t incompat, uint64_t ro_compat)
{
	unsigned bit = (unsigned)__builtin_ctzll(incompat ? incompat : ro_compat);

	/* We never open an array only to read it. */
	if (!incompat)
		return format_refuse(why, -EPROTONOSUPPORT,
				     "the array has the ro-compat feature %u, so it may not be "
				     "written by this build: update ddraid",
				     bit);
	if (bit < sizeof(incompat_name) / sizeof(*incompat_name))
		return format_refuse(why, -EPROTONOSUPPORT,
				     "the array uses the feature %s, which this build doesn't "
				     "have: update ddraid",
				     incompat_name[bit]);
	return format_refuse(why, -EPROTONOSUPPORT,
			     "the array uses the incompat feature %u, which this build doesn't "
			     "know: update ddraid",
			     bit);
}

/* May this build use the block at all? */
static int check_header(const uint8_t *in, char *why)
{
	uint64_t incompat = get_le64(in + SB_OFF_INCOMPAT);
	uint64_t ro_compat = get_le64(in + SB_OFF_RO_COMPAT);

	if (memcmp(in, SB_MAGIC, BLOCK_MAGIC_BYTES) != 0)
		return format_refuse(why, -ENOENT, "there is no ddraid superblock here");
	if (!block_intact(in))
		return format_refuse(why, -EBADMSG, "the superblock's checksum is wrong");
	if (get_le32(in + SB_OFF_VERSION) != SB_VERSION)
		return format_refuse(why, -EPROTONOSUPPORT,
				     "the superblock has the unknown version %" PRIu32
				     ": update ddraid",
				     get_le32(in + SB_OFF_VERSION));
	if (incompat || ro_compat)
		return refuse_feature(why, incompat, ro_compat);
	return 0;
}

int sb_decode(struct superblock *sb, const uint8_t in[DDR_BLOCK_BYTES], char *why)
{
	int err = check_header(in, why);
	struct superblock out = {0};
	const char *bad;
	struct geo g;

	if (err)
		return err;
	get_geo(&out.geo, in);
	/* Even what a later build may support (-EOPNOTSUPP) is out of range for this one. */
	if (geo_init(&g, &out.geo, why))
		return -EINVAL;
	out.seq = get_le64(in + SB_OFF_SEQ);
	memcpy(out.array_uuid, in + SB_OFF_ARRAY_UUID, DDR_UUID_BYTES);
	memcpy(out.member_uuid, in + SB_OFF_MEMBER_UUID, DDR_UUID_BYTES);
	memcpy(out.name, in + SB_OFF_NAME, strnlen((const char *)in + SB_OFF_NAME, DDR_NAME_BYTES));
	out.index = in[SB_OFF_INDEX];
	out.map.n = in[SB_OFF_N];
	get_epoch(&out.committed, in + SB_OFF_COMMITTED);
	get_epoch(&out.map.epoch, in + SB_OFF_EPOCH);
	out.map.missed_from = get_le64(in + SB_OFF_MISSED_FROM);
	out.writer_node = get_le32(in + SB_OFF_WRITER_NODE);
	out.place = in[SB_OFF_PLACE];
	if (in[SB_OFF_USE] & ~SB_USE_CLUSTERED)
		return format_refuse(why, -EINVAL,
				     "the superblock is used in a way that is unknown");
	out.clustered = in[SB_OFF_USE] & SB_USE_CLUSTERED;
	memcpy(out.cluster, in + SB_OFF_CLUSTER,
	       strnlen((const char *)in + SB_OFF_CLUSTER, DDR_NAME_BYTES));
	out.past.count = get_le32(in + SB_OFF_PAST_COUNT);
	for (size_t i = 0; i < out.past.count && i < LINEAGE_MAX; i++)
		get_epoch(&out.past.epoch[i], in + SB_OFF_PAST + 16 * i);
	/* g.n, not the untrusted map.n; check_fields compares them. */
	for (size_t i = 0; i < g.n; i++)
		get_member(&out.map.member[i], in + SB_OFF_MEMBERS + i * SB_MEMBER_BYTES);
	bad = check_fields(&out, &g);
	if (bad)
		return format_refuse(why, -EINVAL, "%s", bad);
	*sb = out;
	return 0;
}

uint32_t map_write_mask(const struct map *m)
{
	uint32_t mask = 0;

	for (unsigned i = 0; i < m->n && i < DDR_MAX_MEMBERS; i++)
		mask |= (uint32_t)((m->member[i].state == MEMBER_IN_SYNC) |
				   (m->member[i].state == MEMBER_REBUILDING))
			<< i;
	return mask;
}

uint32_t map_insync_mask(const struct map *m)
{
	uint32_t mask = 0;

	for (unsigned i = 0; i < m->n && i < DDR_MAX_MEMBERS; i++)
		mask |= (uint32_t)(m->member[i].state == MEMBER_IN_SYNC) << i;
	return mask;
}

uint64_t sb_place_sum(const uint8_t copy0[DDR_BLOCK_BYTES], const uint8_t copy1[DDR_BLOCK_BYTES])
{
	uint64_t sum =
	    (uint64_t)crc32c(copy0, DDR_BLOCK_BYTES) << 32 | crc32c(copy1, DDR_BLOCK_BYTES);

	return sum ? sum : 1;
}

bool map_same(const struct map *a, const struct map *b)
{
	if (epoch_cmp(&a->epoch, &b->epoch) || a->missed_from != b->missed_from || a->n != b->n)
		return false;
	for (unsigned i = 0; i < a->n; i++) {
		const struct map_member *x = &a->member[i], *y = &b->member[i];

		if (memcmp(x->uuid, y->uuid, DDR_UUID_BYTES) || x->state != y->state ||
		    x->flags != y->flags || x->rebuilt_upto != y->rebuilt_upto ||
		    x->left != y->left || x->reached != y->reached)
			return false;
	}
	return true;
}

bool map_degraded(const struct map *m)
{
	return map_insync_mask(m) != (1u << m->n) - 1;
}

bool map_promotes(const struct map *from, const struct map *to)
{
	for (uint8_t i = 0; i < from->n && i < to->n; i++)
		if (from->member[i].state != MEMBER_IN_SYNC &&
		    to->member[i].state == MEMBER_IN_SYNC)
			return true;
	return false;
}

bool map_move_legal(uint8_t from, uint8_t to)
{
#define TO(state) (1u << MEMBER_##state)
	static const uint8_t legal[] = {
	    [MEMBER_IN_SYNC] = TO(IN_SYNC) | TO(SUSPECT) | TO(MISSING) | TO(FAULTY),
	    /* back in sync: waived by the exporter's instance id, or by policy (R17) */
	    [MEMBER_SUSPECT] =
		TO(SUSPECT) | TO(IN_SYNC) | TO(REBUILDING) | TO(MISSING) | TO(FAULTY),
	    [MEMBER_MISSING] = TO(MISSING) | TO(REBUILDING) | TO(FAULTY),
	    [MEMBER_FAULTY] = TO(FAULTY) | TO(REBUILDING),
	    [MEMBER_REBUILDING] =
		TO(REBUILDING) | TO(IN_SYNC) | TO(SUSPECT) | TO(MISSING) | TO(FAULTY),
	};
#undef TO

	return from < sizeof(legal) && to < 8 && legal[from] >> to & 1;
}

const char *member_state_name(uint8_t state)
{
	static const char *const name[] = {
	    [MEMBER_IN_SYNC] = "in-sync",       [MEMBER_SUSPECT] = "suspect",
	    [MEMBER_MISSING] = "missing",       [MEMBER_FAULTY] = "faulty",
	    [MEMBER_REBUILDING] = "rebuilding",
	};

	if (state < MEMBER_IN_SYNC || state > MEMBER_REBUILDING)
		return "unknown";
	return name[state];
}
