/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a sector of the array may contain (checks C1, C2).
 *
 * Each sector written bears its write's number and its own address. Per sector there is a list of
 * values, allowed (drop == NEVER) or dropped lately (kept as long as a read that began before the
 * drop may return them), or shadows.
 *
 *   write issued        its value is added
 *   write acknowledged  drops all values whose write had ended before this write's issue
 *   write cut off       (EIO, or its daemon is gone) stays; it has ended when nothing of its
 *                       incarnation can land any more
 *   read                each sector must match a value that was allowed at some moment of it; if no
 *                       write to the sector was open during the read, only that value stays
 *   power of more than m members lost with unflushed data: what an acknowledged, but not flushed
 *                       write had dropped is allowed again (shadows)
 *
 * WID_ANY is allowed where the crash contract allows garbage (risk.c); the first read that nothing
 * overlaps pins it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

#define WORDS (SECTOR / 8)

/* ---- contents ------------------------------------------------------------------------------- */

static void sector_fill(uint64_t *w, uint32_t wid, uint64_t sector)
{
	uint64_t v = mix64((uint64_t)wid << 32 | sector);

	w[0] = (uint64_t)wid << 32 | sector;
	for (uint32_t i = 1; i < WORDS; i++) {
		v = v * 6364136223846793005ull + 1442695040888963407ull;
		w[i] = v;
	}
}

void content_fill(uint8_t *data, uint32_t wid, uint64_t sector, uint32_t sectors)
{
	uint64_t w[WORDS];

	for (uint32_t i = 0; i < sectors; i++) {
		sector_fill(w, wid, sector + i);
		memcpy(data + (size_t)i * SECTOR, w, SECTOR);
	}
}

struct content content_of(const uint8_t *data, uint64_t sector)
{
	struct content c = {.wid = WID_JUNK};
	uint64_t w[WORDS], want[WORDS], any = 0;
	uint64_t h = 0;

	memcpy(w, data, SECTOR);
	for (uint32_t i = 0; i < WORDS; i++)
		any |= w[i];
	if (!any) {
		c.wid = WID_INIT;
		return c;
	}
	if ((uint32_t)w[0] == sector && w[0] >> 32) {
		sector_fill(want, (uint32_t)(w[0] >> 32), sector);
		if (!memcmp(w, want, SECTOR)) {
			c.wid = (uint32_t)(w[0] >> 32);
			return c;
		}
	}
	for (uint32_t i = 0; i < WORDS; i++)
		h = mix64(h ^ w[i]);
	c.hash = h;
	return c;
}

/* ---- values --------------------------------------------------------------------------------- */

static bool val_matches(const struct sim *s, const struct val *v, const struct content *c)
{
	if (v->wid == WID_ANY)
		return true;
	if (v->wid == WID_PIN)
		return c->wid == WID_JUNK && c->hash == v->hash;
	if (v->wid == WID_INIT || s->oracle.wop[v->wid].zeroes)
		return c->wid == WID_INIT;
	return c->wid == v->wid;
}

/* When the write of this value could no longer change anything. */
static uint64_t val_end(const struct sim *s, const struct val *v)
{
	return v->wid < s->oracle.wops ? s->oracle.wop[v->wid].end : v->born;
}

static uint64_t val_issue(const struct sim *s, const struct val *v)
{
	return v->wid < s->oracle.wops ? s->oracle.wop[v->wid].issue : 0;
}

static struct val *val_add(struct sector *sec, uint32_t wid)
{
	if (sec->n == sec->cap) {
		struct val *v = xmalloc(2 * sec->cap * sizeof(*v));

		memcpy(v, sec->v, sec->n * sizeof(*v));
		if (sec->v != &sec->one)
			free(sec->v);
		sec->v = v;
		sec->cap *= 2;
	}
	sec->v[sec->n] = (struct val){.wid = wid, .drop = NEVER};
	return &sec->v[sec->n++];
}

/* A shadow can't come back once a durable write began after its own had ended. */
static bool shadow_alive(const struct sim *s, const struct sector *sec, const struct val *sh)
{
	for (uint32_t i = 0; i < sec->n; i++) {
		const struct val *v = &sec->v[i];

		if (v->wid < s->oracle.wops && v->wid && s->oracle.wop[v->wid].durable &&
		    val_end(s, sh) <= val_issue(s, v))
			return false;
	}
	return true;
}

static uint64_t oldest_read(const struct sim *s)
{
	uint64_t oldest = s->stamp;

	for (uint32_t i = 0; i < s->o.nodes; i++)
		for (uint32_t k = 0; k < SIM_FRONT_DEPTH; k++) {
			const struct fop *f = &s->node[i].front.op[k];

			if (f->used && f->issue < oldest)
				oldest = f->issue;
		}
	return oldest;
}

static void prune(struct sim *s, struct sector *sec, uint64_t oldest)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < sec->n; i++) {
		const struct val *v = &sec->v[i];

		if (v->drop == NEVER || v->drop >= oldest || (v->shadow && shadow_alive(s, sec, v)))
			sec->v[n++] = *v;
	}
	sec->n = n;
}

static void val_drop(struct sim *s, struct val *v, bool shadow)
{
	v->drop = sim_stamp(s);
	v->shadow = shadow;
}

/* ---- writes --------------------------------------------------------------------------------- */

static uint64_t first_sector(const struct wop *w)
{
	return w->block * BLOCK_SECTORS;
}

static uint64_t sector_count(const struct wop *w)
{
	return (uint64_t)w->blocks * BLOCK_SECTORS;
}

/* R5: the writer was out of a quorate view that w's node had seen before w was issued, or its
 * consumers had been told that its incarnation is over: all others were to know by then. So w was
 * not to start before that one's fence; if w is through, nothing that was under way then comes
 * after it. */
static bool gone_before(const struct sim *s, const struct wop *w, const struct val *v)
{
	const struct incn *in;

	if (!v->wid || v->wid >= s->oracle.wops)
		return false;
	in = &s->inc[s->oracle.wop[v->wid].ii];
	return (in->left_at >> w->node & 1 && in->told_stamp[w->node] < w->issue) ||
	       (in->told_all && in->told_all < w->issue);
}

/*
 * What lands of an incarnation whose consumers have been told that it is over comes over nothing
 * that another wrote since, and was answered. Most of it would be written over again before anybody
 * reads it, so this is asked where it lands.
 */
void oracle_lands(struct sim *s, const struct req *r)
{
	const struct oracle *o = &s->oracle;
	uint64_t told_all = s->inc[r->ii].told_all, stripe, last;

	if (!told_all || r->kind != KIND_DATA || r->op == DEV_READ ||
	    !checks_data_span(s, r->offset, r->bytes, &stripe, &last))
		return;
	for (uint32_t i = o->wops; i-- > 1 && o->wop[i].issue > told_all;) {
		const struct wop *w = &o->wop[i];

		if (w->ii == r->ii || w->ack == NEVER || w->block > last ||
		    w->block + w->blocks <= stripe)
			continue;
		sim_fail(s, "C1",
			 "a write of (%u, %lu) lands over write %u of node %u, which was "
			 "acknowledged, and began after the former's consumers had been told",
			 s->node[r->node].id, s->inc[r->ii].inc, i, s->node[w->node].id);
	}
}

/* Another node's open write, or a dead one's, on the same block: the consumers' race. */
static bool others_open(const struct sim *s, const struct wop *w, uint64_t block, uint64_t since)
{
	const struct sector *sec = &s->oracle.sec[block * BLOCK_SECTORS];

	for (uint32_t i = 0; i < sec->n; i++) {
		const struct val *v = &sec->v[i];

		if (v->wid && v->wid < s->oracle.wops && s->oracle.wop[v->wid].ii != w->ii &&
		    val_end(s, v) >= since && !gone_before(s, w, v))
			return true;
	}
	return false;
}

uint32_t oracle_write(struct sim *s, struct simnode *n, uint64_t offset, uint32_t bytes,
		      bool zeroes)
{
	struct oracle *o = &s->oracle;
	uint32_t wid = o->wops++;
	uint64_t oldest = oldest_read(s);
	struct wop *w;

	if (o->wops > o->wop_cap) {
		o->wop_cap *= 2;
		o->wop = xrealloc(o->wop, o->wop_cap * sizeof(*o->wop));
	}
	w = &o->wop[wid];
	*w = (struct wop){.node = n->idx,
			  .ii = n->ii,
			  .end = NEVER,
			  .ack = NEVER,
			  .block = offset / DDR_BLOCK_BYTES,
			  .blocks = bytes / DDR_BLOCK_BYTES,
			  .zeroes = zeroes};
	w->issue = sim_stamp(s);
	for (uint64_t b = w->block; b < w->block + w->blocks; b++)
		if (others_open(s, w, b, w->issue)) {
			stats_fault(s, F_RACED_BLOCKS);
			risk_raise(s, b, RISK_RACE, w->issue);
		}
	for (uint64_t i = first_sector(w); i < first_sector(w) + sector_count(w); i++) {
		prune(s, &o->sec[i], oldest);
		val_add(&o->sec[i], wid);
	}
	return wid;
}

/* Its daemon answers it and has not heard yet that a connection broke, of those that all broke when
 * the exporters lost power: of what was not flushed then, what is left counts as true. */
static bool answered_unknowing(const struct sim *s, const struct wop *w, bool fua)
{
	for (uint32_t i = 0; w->powered && !fua && i < DDR_MAX_DEVS; i++)
		if (s->node[w->node].dev[i].down_due)
			return true;
	return false;
}

void oracle_acked(struct sim *s, uint32_t wid, bool fua)
{
	struct oracle *o = &s->oracle;
	struct wop *w = &o->wop[wid];
	bool unknowing = answered_unknowing(s, w, fua);

	if (w->must_fail)
		sim_fail(s, "C1", "write %u of node %u succeeds, half of it has been read", wid,
			 s->node[w->node].id);
	w->ack = w->end = sim_stamp(s);
	w->durable = fua;
	for (uint64_t b = w->block; unknowing && b < w->block + w->blocks; b++)
		risk_raise(s, b, RISK_RACE, w->issue);
	for (uint64_t i = first_sector(w); i < first_sector(w) + sector_count(w); i++) {
		struct sector *sec = &o->sec[i];
		bool raced = others_open(s, w, i / BLOCK_SECTORS, w->issue);

		for (uint32_t k = 0; k < sec->n; k++) {
			struct val *v = &sec->v[k];

			/* Of a race in degraded mode garbage may be left. */
			if ((v->wid == WID_ANY && raced) || unknowing)
				continue;
			if (v->drop == NEVER && v->wid != wid &&
			    (val_end(s, v) < w->issue || gone_before(s, w, v)))
				val_drop(s, v, !fua);
		}
	}
	checks_acked(s, w);
}

void oracle_cut(struct sim *s, uint32_t wid)
{
	struct wop *w = &s->oracle.wop[wid];

	if (w->end != NEVER || w->cut)
		return;
	w->cut = true;
	for (uint64_t b = w->block; b < w->block + w->blocks; b++)
		risk_raise(s, b, RISK_CUT, w->issue);
}

void oracle_ended(struct sim *s, uint32_t ii)
{
	for (uint32_t i = 1; i < s->oracle.wops; i++) {
		struct wop *w = &s->oracle.wop[i];

		if (w->ii != ii || w->end != NEVER)
			continue;
		oracle_cut(s, i);
		w->end = sim_stamp(s);
	}
}

void oracle_flushed(struct sim *s, uint32_t ii, uint64_t issue)
{
	for (uint32_t i = 1; i < s->oracle.wops; i++) {
		struct wop *w = &s->oracle.wop[i];

		if (w->ii == ii && w->ack < issue)
			w->durable = true;
	}
}

bool oracle_pending(const struct sim *s, uint64_t block, uint64_t since)
{
	const struct sector *sec = &s->oracle.sec[block * BLOCK_SECTORS];

	for (uint32_t i = 0; i < sec->n; i++)
		if (val_end(s, &sec->v[i]) >= since)
			return true;
	return false;
}

/* ---- garbage and power ---------------------------------------------------------------------- */

void oracle_any(struct sim *s, uint64_t sector)
{
	struct sector *sec = &s->oracle.sec[sector];

	for (uint32_t i = 0; i < sec->n; i++)
		if (sec->v[i].wid == WID_ANY && sec->v[i].drop == NEVER)
			return;
	val_add(sec, WID_ANY)->born = sim_stamp(s);
}

void oracle_power(struct sim *s)
{
	for (uint32_t i = 1; i < s->oracle.wops; i++)
		s->oracle.wop[i].powered |= s->oracle.wop[i].end == NEVER;
	/* What was made true, but not flushed, is wrong again. */
	for (uint64_t i = 0; i < s->geo.stripes; i++)
		if (s->checks.bad[i])
			risk_raise(s, i, RISK_RACE, s->stamp + 1);
	for (uint64_t i = 0; i < s->oracle.sectors; i++) {
		struct sector *sec = &s->oracle.sec[i];
		bool back = false;

		for (uint32_t k = 0; k < sec->n; k++) {
			struct val *v = &sec->v[k];

			if (v->drop == NEVER || !v->shadow || !shadow_alive(s, sec, v))
				continue;
			v->drop = NEVER;
			v->shadow = false;
			back = true;
		}
		if (back)
			risk_raise(s, i / BLOCK_SECTORS, RISK_RACE, s->stamp + 1);
	}
}

/* ---- reads ---------------------------------------------------------------------------------- */

bool oracle_allows(struct sim *s, uint64_t sector, const struct content *c, uint64_t since)
{
	const struct sector *sec = &s->oracle.sec[sector];

	for (uint32_t i = 0; i < sec->n; i++)
		if (sec->v[i].drop >= since && val_matches(s, &sec->v[i], c))
			return true;
	return false;
}

/* R18 holds for this read: whoever died while writing here was fenced before it began. */
static bool after_recovery(const struct sim *s, const struct simnode *n, const struct sector *sec,
			   uint64_t issue)
{
	for (uint32_t i = 0; i < sec->n; i++) {
		const struct val *v = &sec->v[i];

		if (v->wid && v->wid < s->oracle.wops && s->oracle.wop[v->wid].cut &&
		    !checks_recovered(&s->inc[s->oracle.wop[v->wid].ii], n, issue))
			return false;
	}
	return true;
}

/* What was read once stays (C2). */
static void pin(struct sim *s, const struct simnode *n, uint64_t sector, const struct content *c,
		uint64_t issue)
{
	struct sector *sec = &s->oracle.sec[sector];
	bool known = false, any = false, garbage = false;

	for (uint32_t i = 0; i < sec->n; i++) {
		garbage = garbage || (sec->v[i].drop == NEVER && sec->v[i].wid == WID_ANY);
		if (sec->v[i].drop != NEVER || !val_matches(s, &sec->v[i], c))
			continue;
		any = true;
		known = known || sec->v[i].wid != WID_ANY;
	}
	if (!any)
		return; /* dropped by another read meanwhile */
	/* Two nodes wrote the block at once while a member was missing: what is decoded for it may
	 * differ from what it gets, until the stripe's parity is true again with all members. */
	if (garbage && s->risk[sector / BLOCK_SECTORS] == RISK_RACE)
		return;
	for (uint32_t i = 0; i < sec->n; i++) {
		struct val *v = &sec->v[i];

		if (v->drop != NEVER)
			continue;
		if (v->wid == WID_ANY && !known) {
			v->wid = c->wid == WID_JUNK ? WID_PIN : c->wid;
			v->hash = c->hash;
			known = true;
		} else if (!val_matches(s, v, c) || v->wid == WID_ANY) {
			val_drop(s, v, v->wid != WID_ANY);
		}
	}
	if (after_recovery(s, n, sec, issue))
		risk_pinned(s, sector);
}

static void describe(const struct sim *s, uint64_t sector, char *text, size_t bytes)
{
	const struct sector *sec = &s->oracle.sec[sector];
	size_t at = 0;

	text[0] = 0;
	for (uint32_t i = 0; i < sec->n && at + 80 < bytes; i++) {
		const struct val *v = &sec->v[i];
		const struct wop *w = v->wid < s->oracle.wops ? &s->oracle.wop[v->wid] : NULL;

		at += (size_t)snprintf(text + at, bytes - at, " %s%u(n%u %s)",
				       v->drop == NEVER ? ""
				       : v->shadow      ? "shadow "
							: "dropped ",
				       v->wid, w ? s->node[w->node].id : 0,
				       !w                ? "-"
				       : w->ack != NEVER ? "acked"
				       : w->cut          ? "cut"
							 : "open");
	}
}

/*
 * With when_lost=eio, and where a bad spot can't be written, the parts of a write that have failed
 * end before the others, and half of such a part does not decode. The write may not succeed any
 * more.
 */
static bool own_part_failed(struct sim *s, uint32_t ii, uint64_t block)
{
	const struct sector *sec = &s->oracle.sec[block * BLOCK_SECTORS];
	bool may = s->o.tun.eio_when_lost || spot_refuses_lately(s, s->now), any = false;

	for (uint32_t i = 0; i < sec->n && may; i++) {
		struct wop *w = sec->v[i].wid && sec->v[i].wid < s->oracle.wops
				    ? &s->oracle.wop[sec->v[i].wid]
				    : NULL;

		if (!w || w->ii != ii || w->end != NEVER)
			continue;
		w->must_fail = any = true;
	}
	return any;
}

static void read_sector(struct sim *s, struct simnode *n, const struct fop *f, uint64_t sector,
			const uint8_t *data)
{
	struct content c = content_of(data, sector);
	uint64_t block = sector / BLOCK_SECTORS;
	struct wop self = {.ii = f->ii};
	char text[3000];

	if (!oracle_allows(s, sector, &c, f->issue)) {
		if (c.wid == WID_JUNK && s->checks.degraded_stamp >= f->issue &&
		    others_open(s, &self, block, f->issue))
			return; /* decoded while another node wrote it */
		if (c.wid == WID_JUNK && own_part_failed(s, f->ii, block))
			return;
		describe(s, sector, text, sizeof(text));
		sim_fail(s, "C1",
			 "node %u read %s %u in sector %lu (block %lu, region %lu); "
			 "allowed:%s",
			 n->id, c.wid == WID_JUNK ? "garbage" : "write", c.wid, sector, block,
			 geo_region_of(&s->geo, block), text);
		return;
	}
	if (c.wid == WID_JUNK)
		s->garbage_reads++;
	if (!oracle_pending(s, block, f->issue))
		pin(s, n, sector, &c, f->issue);
}

void oracle_read(struct sim *s, struct simnode *n, const struct fop *f)
{
	for (uint32_t i = 0; i < f->bytes / SECTOR && !s->failed; i++)
		read_sector(s, n, f, f->offset / SECTOR + i, f->buf + (size_t)i * SECTOR);
}

void oracle_init(struct sim *s)
{
	struct oracle *o = &s->oracle;

	o->sectors = s->geo.size_bytes / SECTOR;
	o->blocks = s->geo.size_bytes / DDR_BLOCK_BYTES;
	o->sec = xcalloc(o->sectors, sizeof(*o->sec));
	o->wop_cap = 1024;
	o->wop = xcalloc(o->wop_cap, sizeof(*o->wop));
	o->wops = 1; /* 0 is the creation */
	for (uint64_t i = 0; i < o->sectors; i++) {
		o->sec[i].v = &o->sec[i].one;
		o->sec[i].cap = 1;
		val_add(&o->sec[i], s->o.clean ? WID_INIT : WID_ANY);
	}
}

void oracle_free(struct sim *s)
{
	for (uint64_t i = 0; i < s->oracle.sectors; i++)
		if (s->oracle.sec[i].v != &s->oracle.sec[i].one)
			free(s->oracle.sec[i].v);
	free(s->oracle.sec);
	free(s->oracle.wop);
	s->oracle = (struct oracle){0};
}
