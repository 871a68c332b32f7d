/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What must hold after every event, besides the contents (oracle.c):
 *
 *   C3  parity is true over the members that the newest committed map calls in sync, and what they
 *       hold is flushed, or the region is durably dirty in some slot
 *   C4  member writes only with the region's lock, a durable mark and within the map
 *   C5  nothing of a fenced incarnation lands; no commit before the fence of the departed
 *   C6  one chain of committed maps, each with at least k members in sync; whom one dropped, none
 *       has in sync again without a rebuild (R3)
 *   C8  requests answered once, none with success after removal; no I/O on a stale heartbeat (R7)
 *   C9  discipline at the device port (dev.c)
 *   C10 nobody takes a message of a node that works for one of a broken node
 *   C12 a node has others fenced only by a view that is the quorum's (R2; quorum.c)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

/* ---- parity --------------------------------------------------------------------------------- */

bool checks_data_span(const struct sim *s, uint64_t offset, uint32_t bytes, uint64_t *stripe,
		      uint64_t *last)
{
	uint64_t from = offset > s->geo.data_offset ? offset - s->geo.data_offset : 0;

	if (!bytes || offset + bytes <= s->geo.data_offset ||
	    from / s->geo.frag_bytes >= s->geo.stripes)
		return false;
	*stripe = from / s->geo.frag_bytes;
	*last = (offset + bytes - 1 - s->geo.data_offset) / s->geo.frag_bytes;
	if (*last >= s->geo.stripes)
		*last = s->geo.stripes - 1;
	return true;
}

static bool stripe_bad(const struct sim *s, uint64_t stripe)
{
	uint64_t sum[DDR_BLOCK_BYTES / 2 / 8] = {0}, word, any = 0;
	uint64_t at = geo_offset(&s->geo, stripe);

	for (uint8_t m = 0; m < s->geo.n; m++) {
		const uint8_t *p;

		if (s->checks.disk_of[m] == NONE)
			return true;
		p = s->disk[s->checks.disk_of[m]].cached + at;
		for (uint32_t i = 0; i < s->geo.frag_bytes / 8; i++) {
			memcpy(&word, p + (size_t)i * 8, 8);
			sum[i] ^= word;
		}
	}
	for (uint32_t i = 0; i < s->geo.frag_bytes / 8; i++)
		any |= sum[i];
	return any != 0;
}

static void stripe_check(struct sim *s, uint64_t stripe)
{
	struct checks *c = &s->checks;
	uint64_t region = geo_region_of(&s->geo, stripe);
	bool bad = stripe_bad(s, stripe);

	if (bad != c->bad[stripe]) {
		c->bad[stripe] = bad;
		c->bad_count[region] += bad ? 1u : -1u;
		if (c->bad_count[region])
			c->bad_mask |= 1ull << region;
		else
			c->bad_mask &= ~(1ull << region);
	}
	if (!bad)
		risk_settle(s, stripe);
}

void checks_medium(struct sim *s, struct disk *d, uint64_t offset, uint32_t bytes)
{
	uint64_t stripe, last;

	if (s->checks.member_of[d->idx] == NONE ||
	    !checks_data_span(s, offset, bytes, &stripe, &last))
		return;
	for (; stripe <= last; stripe++)
		stripe_check(s, stripe);
}

/* Which disk is which member of the newest committed map. */
void checks_bind(struct sim *s)
{
	struct checks *c = &s->checks;
	bool changed = false;

	if (!c->bad)
		return;
	for (uint8_t m = 0; m < s->geo.n; m++) {
		uint32_t found = NONE;

		for (uint32_t i = 0; i < s->o.disks; i++)
			if (s->disk[i].sb_valid && s->disk[i].sb.index == m &&
			    !memcmp(s->disk[i].sb.member_uuid, c->map.member[m].uuid,
				    DDR_UUID_BYTES))
				found = i;
		/* Superblocks may be torn for a while: keep the last that is known. */
		if (found == NONE || found == c->disk_of[m])
			continue;
		if (c->disk_of[m] != NONE)
			c->member_of[c->disk_of[m]] = NONE;
		c->disk_of[m] = found;
		c->member_of[found] = m;
		changed = true;
	}
	c->dirty_stale = true;
	for (uint64_t i = 0; changed && i < s->geo.stripes; i++)
		stripe_check(s, i);
}

/* ---- the dirty log on the media ------------------------------------------------------------- */

void checks_log(struct sim *s)
{
	s->checks.dirty_stale = true;
}

static bool in_sync(const struct sim *s, uint8_t m)
{
	return s->checks.map.member[m].state == MEMBER_IN_SYNC && s->checks.disk_of[m] != NONE;
}

/* A slot's page as it is newest on the members in sync; NULL: readable nowhere. */
static const struct slotpage *page_newest(const struct sim *s, uint32_t slot, uint64_t page)
{
	const struct slotpage *best = NULL;

	for (uint8_t m = 0; m < s->geo.n; m++) {
		const struct slotpage *p;

		if (!in_sync(s, m))
			continue;
		p = &s->disk[s->checks.disk_of[m]].slot[slot][page];
		if (p->valid && (!best || p->seq > best->seq))
			best = p;
	}
	return best;
}

static uint64_t all_regions(const struct sim *s)
{
	return s->geo.regions == 64 ? UINT64_MAX : (1ull << s->geo.regions) - 1;
}

static uint64_t page_of(uint64_t region)
{
	return region / LOG_REGIONS_PER_PAGE;
}

/* Those that the page speaks for. */
static uint64_t page_regions(const struct sim *s, uint64_t page)
{
	uint64_t mask = 0;

	for (uint64_t r = page * LOG_REGIONS_PER_PAGE; r < s->geo.regions && page_of(r) == page;
	     r++)
		mask |= 1ull << r;
	return mask;
}

static uint64_t slot_dirty(const struct sim *s, uint32_t slot)
{
	uint64_t mask = 0;

	for (uint32_t page = 0; page < s->geo.log_pages; page++) {
		const struct slotpage *p = page_newest(s, slot, page);

		mask |= p ? p->dirty : page_regions(s, page);
	}
	return mask;
}

static void dirty_update(struct sim *s)
{
	struct checks *c = &s->checks;

	c->dirty_stale = false;
	c->dirty_mask = 0;
	for (uint32_t i = 0; i <= s->geo.p.slots; i++)
		c->dirty_mask |= slot_dirty(s, i);
}

/* Members in sync on which `slot` has the region marked durably. */
static uint32_t mark_copies(const struct sim *s, uint32_t slot, uint64_t region)
{
	const struct slotpage *newest = page_newest(s, slot, page_of(region));
	uint32_t n = 0;

	if (!newest || !(newest->dirty >> region & 1))
		return 0;
	for (uint8_t m = 0; m < s->geo.n; m++) {
		const struct slotpage *p =
		    in_sync(s, m) ? &s->disk[s->checks.disk_of[m]].slot[slot][page_of(region)]
				  : NULL;

		n += p && p->valid && p->dirty >> region & 1;
	}
	return n;
}

/* R11: m + 1, less those that are missing already. */
static uint32_t copies_needed(const struct sim *s)
{
	uint32_t out = 0, want = s->geo.p.m + 1u;

	for (uint8_t m = 0; m < s->geo.n; m++)
		out += s->checks.map.member[m].state != MEMBER_IN_SYNC;
	return want > out + 1 ? want - out : 1;
}

/* ---- member requests ------------------------------------------------------------------------ */

static void check_heartbeat(struct sim *s, const struct simnode *n, const struct req *r)
{
	uint64_t limit = s->o.tun.heartbeat_limit_ms * MS;

	if (s->cli->batch)
		limit += STEP_SOON_US; /* what was decided then is begun with the step */
	if ((r->kind == KIND_SB && r->op == DEV_READ) || r->kind == KIND_BACK ||
	    r->kind == KIND_USE)
		return;
	if (!n->own_msg || s->now - n->own_msg_sent_us > limit)
		sim_fail(s, "C8 R7", "node %u starts I/O (kind %d) with a heartbeat %lu us old",
			 n->id, (int)r->kind, n->own_msg ? s->now - n->own_msg_sent_us : 0);
}

static bool region_write(const struct req *r)
{
	return (r->op == DEV_WRITE || r->op == DEV_ZEROES) &&
	       (r->kind == KIND_DATA || r->kind == KIND_RESYNC || r->kind == KIND_REBUILD ||
		r->kind == KIND_CHECK);
}

static bool marked(const struct sim *s, const struct simnode *n, const struct req *r,
		   uint64_t region)
{
	if (r->kind == KIND_DATA)
		return engine_slot(n->e) != UINT32_MAX &&
		       mark_copies(s, engine_slot(n->e), region) >= copies_needed(s);
	if (r->kind == KIND_REBUILD)
		return true;
	for (uint32_t i = 0; i <= s->geo.p.slots; i++)
		if (!page_newest(s, i, page_of(region)) || spot_hides_slot(s, i) ||
		    mark_copies(s, i, region) >= copies_needed(s))
			return true;
	return false;
}

static void check_region(struct sim *s, struct simnode *n, const struct req *r, uint64_t region)
{
	enum lock_mode held = engine_lock_held(n->e, LOCK_ID(LOCK_KIND_REGION, region));
	uint32_t written = map_write_mask(&s->checks.map);

	/* What is still on its way to a member that this write leaves out harms nobody: that member
	 * has missed the write anyway. */
	if (n->st.proposing)
		written &= map_write_mask(&n->st.proposed);
	if (held != LOCK_MODE_EX && (r->kind != KIND_DATA || held != LOCK_MODE_CW))
		sim_fail(s, "C4", "node %u writes region %lu (kind %d) with lock mode %d", n->id,
			 region, (int)r->kind, (int)held);
	if (dlm_reader_in(s, n->ii, LOCK_ID(LOCK_KIND_REGION, region)))
		sim_fail(s, "C4", "node %u writes region %lu (kind %d) under a reader's lock",
			 n->id, region, (int)r->kind);
	if (!marked(s, n, r, region))
		sim_fail(s, "C4",
			 "node %u writes region %lu (kind %d) without a durable mark "
			 "(slot %d, dirty %lx)",
			 n->id, region, (int)r->kind, (int)engine_slot(n->e), s->checks.dirty_mask);
	for (uint32_t i = 0; i < s->reqs; i++) {
		const struct req *o = s->req[i];

		if (!o->used || o == r || !region_write(o) || o->ii == r->ii ||
		    s->checks.member_of[o->disk] == NONE || s->inc[o->ii].fenced ||
		    o->exec == EXEC_DONE || o->exec == EXEC_NEVER ||
		    (o->kind == KIND_DATA && r->kind == KIND_DATA) || o->region != region)
			continue;
		if (!(written >> s->checks.member_of[o->disk] & 1))
			continue;
		sim_fail(s, "C4",
			 "node %u writes region %lu (kind %d) while a request of node %u "
			 "(kind %d) is under way there",
			 n->id, region, (int)r->kind, s->node[o->node].id, (int)o->kind);
	}
}

static void check_map(struct sim *s, struct simnode *n, const struct req *r)
{
	uint32_t m = s->checks.member_of[r->disk];
	uint8_t state;

	if (m == NONE || s->inc[n->ii].fenced || r->kind == KIND_SB || r->kind == KIND_FLUSH ||
	    r->kind == KIND_LOG || r->kind == KIND_BACK || r->kind == KIND_USE)
		return;
	state = s->checks.map.member[m].state;
	/* What a proposal adds gets all new writes before the commit, what it drops none. */
	if (n->st.proposing && r->op != DEV_READ) {
		if (!(map_write_mask(&n->st.proposed) >> m & 1))
			sim_fail(s, "C4",
				 "node %u writes member %u (kind %d), which map %lu, proposed "
				 "to it, leaves out",
				 n->id, m, (int)r->kind, n->st.proposed.epoch.num);
		return;
	}
	if (state != MEMBER_IN_SYNC && state != MEMBER_REBUILDING)
		sim_fail(s, "C4",
			 "node %u uses member %u (kind %d, op %d), which the committed "
			 "map %lu calls %s",
			 n->id, m, (int)r->kind, (int)r->op, s->checks.map.epoch.num,
			 member_state_name(state));
}

static void check_slot(struct sim *s, struct simnode *n, const struct req *r)
{
	uint64_t page = 2ull * DDR_BLOCK_BYTES * s->geo.log_pages, slot;
	const struct slotpage *p;
	uint32_t ii;

	if (r->kind != KIND_LOG || r->offset < LOG_OFFSET)
		return;
	slot = (r->offset - LOG_OFFSET) / page;
	p = slot > s->geo.p.slots ? NULL : page_newest(s, (uint32_t)slot, 0);
	if (!p || !p->owner_inc || p->owner_inc == s->inc[n->ii].inc)
		return;
	ii = inc_find(s, p->owner_inc);
	if (ii == NONE || s->inc[ii].fenced || s->inc[ii].ended)
		return;
	if (r->op == DEV_READ) {
		s->slot_reads_unfenced += !s->inc[ii].live || checks_left(s, &s->inc[ii]);
		return;
	}
	sim_fail(s, "C5", "node %u writes slot %lu, which belongs to (%u, %lu), not fenced", n->id,
		 slot, p->owner_node, p->owner_inc);
}

/*
 * R18 holds for what node n reads from `since` on: the writer was fenced before. One that was
 * fenced by its own restart, faster than anybody could see that it had gone, must have left for n
 * as well: until then its writes are simply under way.
 */
bool checks_recovered(const struct incn *in, const struct simnode *n, uint64_t since)
{
	if (!in->fenced || in->fenced_stamp >= since)
		return false;
	return !in->fenced_by || n->ii >= in->fenced_by ||
	       (in->left_at >> n->idx & 1 && in->told_stamp[n->idx] < since);
}

/* R18: what a fenced one left in doubt is not read as it is: it would read otherwise after a loss.
 */
static void check_read(struct sim *s, const struct simnode *n, const struct req *r)
{
	uint64_t stripe, last;

	if (r->kind != KIND_DATA || r->op != DEV_READ || n->map_degraded || n->st.proposing ||
	    n->st.unusable || !checks_data_span(s, r->offset, r->bytes, &stripe, &last))
		return;
	for (uint32_t i = 0; i < s->geo.p.slots; i++) {
		const struct slotpage *p = page_newest(s, i, 0);
		uint32_t ii = p && p->owner_inc ? inc_find(s, p->owner_inc) : NONE;

		if (ii == NONE || !checks_recovered(&s->inc[ii], n, s->stamp + 1))
			continue;
		for (uint64_t k = stripe; k <= last; k++)
			if (slot_dirty(s, i) >> geo_region_of(&s->geo, k) & 1 && s->checks.bad[k] &&
			    !s->checks.writes[k])
				sim_fail(s, "C2",
					 "node %u reads stripe %lu, whose parity is wrong since "
					 "(%u, %lu) died",
					 n->id, k, p->owner_node, p->owner_inc);
	}
}

void checks_issue(struct sim *s, struct simnode *n, const struct req *r)
{
	uint64_t stripe, last;

	if (s->hook)
		return;
	outsider_issue(s, n, r);
	check_heartbeat(s, n, r);
	check_slot(s, n, r);
	check_map(s, n, r);
	check_read(s, n, r);
	if (!region_write(r))
		return;
	if (s->checks.dirty_stale)
		dirty_update(s);
	if (!checks_data_span(s, r->offset, r->bytes, &stripe, &last)) {
		sim_fail(s, "C9", "node %u writes data at member offset %lu", n->id, r->offset);
		return;
	}
	for (uint64_t i = geo_region_of(&s->geo, stripe); i <= geo_region_of(&s->geo, last); i++)
		check_region(s, n, r, i);
}

/*
 * Of two images of a log page, the one that was written later has the higher number (R16): also
 * than what a member has that nobody reads now, for it may be read again. What a broken connection
 * still carries may come in after its writer's next.
 */
static void check_page_number(struct sim *s, const struct req *r)
{
	struct logpage lp, had;

	if (r->kind != KIND_LOG || r->op != DEV_WRITE || r->offset < LOG_OFFSET || r->orphan ||
	    logpage_decode(&lp, r->buf) || lp.slot > s->geo.p.slots || lp.page >= s->geo.log_pages)
		return;
	for (uint32_t i = 0; i < s->o.disks; i++) {
		for (uint32_t c = 0; c < 2; c++) {
			const uint8_t *at =
			    s->disk[i].durable + geo_log_offset(&s->geo, lp.slot, lp.page, c);

			if (logpage_decode(&had, at) || had.seq <= lp.seq ||
			    memcmp(had.array_uuid, lp.array_uuid, DDR_UUID_BYTES))
				continue;
			sim_fail(
			    s, "C5",
			    "node %u writes page %u of slot %u as number %lu, while disk %u has "
			    "one as %lu",
			    s->node[r->node].id, lp.page, lp.slot, lp.seq, i, had.seq);
		}
	}
}

void checks_exec(struct sim *s, const struct req *r)
{
	const struct incn *in = &s->inc[r->ii];

	check_page_number(s, r);
	if (r->kind == KIND_USE)
		return;
	if (in->fenced)
		sim_fail(s, "C5", "a write of (%u, %lu) lands after its fence was answered",
			 s->node[in->node].id, in->inc);
	if (in->left)
		sim_fail(s, "C5", "a write of (%u, %lu) lands after it had left: nobody fences it",
			 s->node[in->node].id, in->inc);
	oracle_lands(s, r);
}

/* ---- acknowledgements ----------------------------------------------------------------------- */

static bool overlapped(const struct sim *s, const struct wop *w, uint64_t block)
{
	const struct sector *sec = &s->oracle.sec[block * BLOCK_SECTORS];

	for (uint32_t i = 0; i < sec->n; i++) {
		const struct wop *o;

		if (sec->v[i].wid >= s->oracle.wops)
			continue;
		o = &s->oracle.wop[sec->v[i].wid];
		if (o != w && o->end >= w->issue)
			return true;
	}
	return false;
}

/* The write is on every member that the newest committed map calls in sync. */
static void check_acked_stripe(struct sim *s, const struct wop *w, uint64_t stripe)
{
	uint32_t per = BLOCK_SECTORS / s->geo.k;

	for (uint32_t i = 0; i < BLOCK_SECTORS; i++) {
		uint8_t m = geo_member_of(&s->geo, stripe, (uint8_t)(i / per));
		const struct disk *d;
		uint64_t sector = stripe * BLOCK_SECTORS + i;
		struct content c;

		if (!in_sync(s, m))
			continue;
		d = &s->disk[s->checks.disk_of[m]];
		if (d->cache_lost && d->cache_lost_stamp >= w->issue)
			continue;
		c = content_of(d->cached + geo_offset(&s->geo, stripe) + (i % per) * SECTOR,
			       sector);
		if (!oracle_allows(s, sector, &c, s->stamp + 1))
			sim_fail(s, "C1",
				 "write %u of node %u was acknowledged, but member %u has "
				 "%u in sector %lu",
				 (uint32_t)(w - s->oracle.wop), s->node[w->node].id, m, c.wid,
				 sector);
	}
}

static bool any_cache_lost(const struct sim *s, uint64_t since)
{
	for (uint32_t i = 0; i < s->o.disks; i++)
		if (s->disk[i].cache_lost && s->disk[i].cache_lost_stamp >= since)
			return true;
	return false;
}

void checks_acked(struct sim *s, const struct wop *w)
{
	for (uint64_t b = w->block; b < w->block + w->blocks; b++) {
		if (overlapped(s, w, b))
			continue;
		check_acked_stripe(s, w, b);
		if (s->checks.map_full && s->checks.bad[b] && !s->checks.writes[b] &&
		    !any_cache_lost(s, w->issue))
			sim_fail(s, "C3", "block %lu was acknowledged with wrong parity", b);
	}
}

/* ---- maps ----------------------------------------------------------------------------------- */

static uint64_t map_hash(const struct map *m)
{
	uint64_t h = mix64(m->n ^ m->missed_from << 8);

	for (uint8_t i = 0; i < m->n; i++) {
		const struct map_member *mm = &m->member[i];

		for (uint32_t k = 0; k < DDR_UUID_BYTES; k++)
			h = mix64(h ^ mm->uuid[k]);
		h = mix64(h ^ mm->state ^ (uint64_t)mm->flags << 8);
		h = mix64(h ^ mm->rebuilt_upto);
		h = mix64(h ^ mm->left);
		h = mix64(h ^ mm->reached);
	}
	return h;
}

/* The view that this node has seen last has it, or what its daemon was before it was removed. */
static bool in_view_of(const struct sim *s, const struct simnode *n, uint32_t ii)
{
	const struct gitem *it;
	uint32_t in;

	if (n->view_ring == NONE)
		return false;
	it = &s->group.ring[n->view_ring]->item[n->view_item];
	if (!(it->mask >> s->inc[ii].node & 1))
		return false;
	in = it->in_ii[s->inc[ii].node];
	return in <= ii && s->inc[in].gen == s->inc[ii].gen;
}

/* R5: who fences otherwise may write for longer than the other waits for. */
void checks_serves(struct sim *s, const struct simnode *n)
{
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		const struct simnode *o = &s->node[i];

		if (o->proc && o->st.state == ENGINE_ACTIVE && !s->inc[o->ii].fenced &&
		    o->fences_otherwise != n->fences_otherwise && in_view_of(s, n, o->ii) &&
		    in_view_of(s, o, n->ii))
			sim_fail(s, "C5", "node %u serves beside node %u, which fences otherwise",
				 n->id, o->id);
	}
}

/*
 * One of two halves that both have quorum, whose fence only waits: that chooses none of them. So it
 * goes on with nothing, and for it nobody is removed.
 */
static bool waits_alone(const struct sim *s, const struct simnode *n)
{
	return s->o.two_node && n->fences_otherwise && n->view_ring != NONE &&
	       __builtin_popcount(s->group.ring[n->view_ring]->nodes) < 2;
}

static void check_fenced(struct sim *s, const struct simnode *n, const struct map *map)
{
	if (waits_alone(s, n) && map->epoch.inc == s->inc[n->ii].inc)
		sim_fail(s, "C5", "node %u committed map %lu alone, and its fence only waits",
			 n->id, map->epoch.num);
	for (uint32_t i = 0; i < s->incs; i++) {
		struct incn *in = &s->inc[i];
		const struct simnode *o = &s->node[in->node];

		if (!in->live && node_under_way(s, i) && !in->fenced && !in_view_of(s, n, i))
			sim_fail(s, "C5",
				 "node %u committed map %lu, and something of (%u, %lu) may still "
				 "land",
				 n->id, map->epoch.num, o->id, in->inc);
		if (!(in->left_at >> n->idx & 1) || in->fenced || in->graceful)
			continue;
		/* One that never wrote can't do harm; of one that never spoke to this daemon and
		 * has nothing under way, it need not know. */
		if (!in->wrote || (!(in->left_known >> n->idx & 1) && !in->outstanding))
			continue;
		/* Back before anybody had done anything without it: it made this map itself. */
		if (map->epoch.inc == in->inc && !(in->left_known >> n->idx & 1))
			continue;
		/* It died after its last word, before it heard that itself. */
		if (in->ended && in->stopping && !in->outstanding)
			continue;
		/* Or lost the group: from here on nothing of it may land. */
		if (in->left_heard >> n->idx & 1 && !in->outstanding) {
			in->left = true;
			continue;
		}
		/* Recovered by its own restart: a younger one is there and nothing can land. */
		if (in->ended && o->proc && o->ii != i)
			continue;
		sim_fail(s, "C5", "node %u committed map %lu before the fence of (%u, %lu)", n->id,
			 map->epoch.num, o->id, in->inc);
	}
}

/* It has acknowledged this map, so it is one of those that go on. */
static bool is_in(const struct sim *s, uint32_t ii, const struct map *map)
{
	const struct simnode *n = &s->node[s->inc[ii].node];

	return n->proc && n->ii == ii && !epoch_cmp(&n->record.acked, &map->epoch);
}

static void map_commit(struct sim *s, struct simnode *n, const struct map *map)
{
	struct checks *c = &s->checks;
	uint32_t insync = 0;
	struct map old = c->map;

	if (c->commits == c->commit_cap) {
		c->commit_cap = c->commit_cap ? 2 * c->commit_cap : 64;
		c->commit = xrealloc(c->commit, c->commit_cap * sizeof(*c->commit));
	}
	c->commit[c->commits++] = (struct commit){map->epoch, map_hash(map)};
	if (n && map->epoch.num <= old.epoch.num)
		sim_fail(s, "C6", "node %u committed map %lu after map %lu was", n->id,
			 map->epoch.num, old.epoch.num);
	c->map = *map;
	c->map_full = true;
	for (uint8_t m = 0; m < map->n; m++) {
		bool ok = map->member[m].state == MEMBER_IN_SYNC;

		insync += ok;
		c->map_full = c->map_full && ok;
		if (n && ok && old.member[m].state != MEMBER_IN_SYNC &&
		    old.member[m].state != MEMBER_REBUILDING)
			sim_fail(s, "C6", "map %lu has member %u in sync, which map %lu calls %s",
				 map->epoch.num, m, old.epoch.num,
				 member_state_name(old.member[m].state));
		if (n && !ok && old.member[m].state == MEMBER_IN_SYNC && c->disk_of[m] != NONE)
			risk_lost(s, c->disk_of[m]);
	}
	if (insync < s->geo.k)
		sim_fail(s, "C6", "map %lu has %u members in sync", map->epoch.num, insync);
	/* A leader that assembles the array takes a proposal from the members before it knows whom
	 * to fence: slots name their owners. It serves nobody before an epoch of its own. */
	if (n && (!n->st.leading || map->epoch.inc == s->inc[n->ii].inc)) {
		fences_remembered(s, n);
		check_fenced(s, n, map);
	}
	for (uint32_t i = 0; i < s->incs; i++)
		s->inc[i].gone_on |= checks_left(s, &s->inc[i]) &&
				     map->epoch.inc != s->inc[i].inc && !is_in(s, i, map);
	checks_bind(s);
	risk_settle_all(s);
}

static void trace_map(struct sim *s, const struct simnode *n)
{
	char text[DDR_MAX_MEMBERS * 40] = "";
	size_t at = 0;

	if (!TRACING(s))
		return;
	for (uint8_t m = 0; m < n->st.map.n; m++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, " %s",
				       member_state_name(n->st.map.member[m].state));
	trace(s, "n%u has map %lu.%lu:%s", n->id, n->st.map.epoch.num, n->st.map.epoch.inc, text);
}

static void check_epoch(struct sim *s, struct simnode *n)
{
	struct checks *c = &s->checks;
	const struct map *map = &n->st.map;

	if (map->epoch.num == n->epoch_seen)
		return;
	trace_map(s, n);
	/* What nobody has committed may be on one copy, which can't be read any more. */
	if (map->epoch.num < n->epoch_seen && map->epoch.num &&
	    (n->epoch_seen <= c->map.epoch.num || map->epoch.num < c->map.epoch.num))
		sim_fail(s, "C6", "node %u went back from map %lu to %lu", n->id, n->epoch_seen,
			 map->epoch.num);
	n->epoch_seen = map->epoch.num;
	n->map_degraded = map->epoch.num && map_degraded(map);
	if (!map->epoch.num)
		return;
	/* two_node: its own word, which it hears as it thaws. The other has fenced it meanwhile,
	 * and gone on from what this one had proposed. */
	if (s->o.two_node && s->inc[n->ii].fenced && map->epoch.num <= c->map.epoch.num)
		return;
	for (uint32_t i = 0; i < c->commits; i++) {
		if (c->commit[i].epoch.num != map->epoch.num)
			continue;
		if (c->commit[i].epoch.inc != map->epoch.inc || c->commit[i].hash != map_hash(map))
			sim_fail(s, "C6",
				 "map %lu was committed with two contents, by %lu and "
				 "%lu",
				 map->epoch.num, c->commit[i].epoch.inc, map->epoch.inc);
		return;
	}
	/* A leader that assembles the array goes by what the members carry until it has an epoch of
	 * its own. That may be a proposal which nobody has committed, and which the next leader
	 * does not find any more: a commit is on both copies of all its members, a proposal need
	 * not be. */
	if (n->st.leading && n->st.state == ENGINE_JOINING && map->epoch.inc != s->inc[n->ii].inc)
		return;
	map_commit(s, n, map);
}

/* ---- after events --------------------------------------------------------------------------- */

/*
 * R6: a node is removed when a quorate view without it was installed: somebody has been told both
 * of the view and of the quorum. If he is gone before he can tell, nobody knows.
 */
static void view_installed(struct sim *s, struct simnode *n)
{
	const struct gitem *it;

	if (n->view_ring == NONE || n->view_seq != n->quorum_seq || !n->quorate ||
	    waits_alone(s, n))
		return;
	/* Old views that a fenced one gets to see when it thaws: its consumers have no array any
	 * more. */
	if (s->inc[n->ii].fenced)
		return;
	it = &s->group.ring[n->view_ring]->item[n->view_item];
	for (uint32_t i = 0; i < it->left_count; i++) {
		struct incn *in = &s->inc[it->left_ii[i]];

		/* It is about consumers: one that never served had none, and to one that does not
		 * serve nobody takes them: it has a round to go, which the other may be in. */
		if (in->served && !checks_left(s, in))
			in->gone_on = false;
		if (in->served && s->inc[n->ii].served)
			in->left_told[n->idx] = n->gen;
		if (!(in->left_at >> n->idx & 1))
			in->told_stamp[n->idx] = sim_stamp(s);
		in->left_at |= 1u << n->idx;
		in->left_known = (in->left_known & ~(1u << n->idx)) | (in->known_to & 1u << n->idx);
		disk_witness_gone(s, it->left_ii[i]);
	}
}

void checks_view(struct sim *s, struct simnode *n, uint32_t ring, uint32_t item)
{
	const struct gitem *it = &s->group.ring[ring]->item[item];
	uint32_t had =
	    n->view_ring == ring ? s->group.ring[ring]->item[n->view_item].mask : it->mask;

	n->view_ring = ring;
	n->view_item = item;
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if ((it->mask & ~had) >> i & 1)
			fences_back(s, n, i, it->in_ii[i]);
	/* One that never served may come back as itself. */
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (it->mask >> i & 1 && !s->inc[it->in_ii[i]].served)
			s->inc[it->in_ii[i]].left_at &= ~(1u << n->idx);
	view_installed(s, n);
}

void checks_quorum(struct sim *s, struct simnode *n)
{
	view_installed(s, n);
}

bool checks_left(const struct sim *s, const struct incn *in)
{
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (in->left_told[i] && s->node[i].proc && s->node[i].gen == in->left_told[i])
			return true;
	return false;
}

void checks_fenced(struct sim *s, uint32_t ii)
{
	/* two_node: what it saw counts no more, whoever it is by now. */
	for (uint32_t i = 0; i < s->incs && s->o.two_node; i++)
		if (s->inc[i].left_told[s->inc[ii].node] == s->inc[ii].gen)
			s->inc[i].left_told[s->inc[ii].node] = 0;
	risk_settle_all(s);
	checks_engine_gone(s); /* what it knew, it can tell nobody who may write */
}

/* It has no map yet, and will say so when it has one. A connection of its former incarnation breaks
 * by that one's fence, if this cuts. */
static bool joins_connected(const struct sim *s, const struct simnode *n, uint32_t dev)
{
	return dev != NONE && n->dev[dev].up && (n->dev[dev].up_ii == n->ii || !s->o.fence_cuts);
}

/* Who can tell that this exporter lost its cache: it had the array, or joins, and was connected. */
void checks_witness(struct sim *s, struct disk *d)
{
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		const struct simnode *n = &s->node[i];
		uint32_t dev = dev_slot_of_disk(n, d->idx);
		bool knows = n->proc && n->st.state != ENGINE_REMOVED &&
			     (n->st.map.epoch.num || joins_connected(s, n, dev));

		/* Who serves and is not connected wants it out already; who joins has seen nothing.
		 */
		if (n->st.state != ENGINE_ACTIVE && (dev == NONE || !n->dev[dev].up))
			knows = false;

		d->witness_ii[i] = knows ? n->ii : NONE;
	}
}

static bool witnessed(const struct sim *s, const struct disk *d)
{
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (d->witness_ii[i] != NONE && s->node[i].proc &&
		    s->node[i].ii == d->witness_ii[i] && !s->inc[d->witness_ii[i]].removed &&
		    !s->inc[d->witness_ii[i]].fenced)
			return true;
	return false;
}

/*
 * Nobody is left who knows that an exporter lost its cache, and the map doesn't say so either: what
 * is on the media is taken for the truth.
 */
void checks_engine_gone(struct sim *s)
{
	bool lost = false;

	for (uint32_t i = 0; i < s->o.disks; i++) {
		struct disk *d = &s->disk[i];
		uint32_t m = s->checks.member_of[i];

		if (!d->cache_lost || witnessed(s, d) ||
		    (m != NONE && s->checks.map.member[m].state != MEMBER_IN_SYNC))
			continue;
		disk_untold(s, d); /* whom a flush error was told of may be stopped, and fenced */
		d->cache_lost = false;
		lost = true;
	}
	if (lost)
		oracle_power(s);
}

/* Before the outs of a step: what the step did, it did knowing this map. */
void checks_map(struct sim *s, struct simnode *n)
{
	check_epoch(s, n);
}

/*
 * The member that this leader has just proposed to promote, if nobody has since the last commit.
 * What one proposes who slept through a newer epoch is nothing any more.
 */
static uint32_t promoted_first(struct sim *s, const struct simnode *n)
{
	struct checks *c = &s->checks;
	const struct map *p = &n->st.proposed;

	if (!n->st.proposing || !n->st.leading || p->epoch.inc != s->inc[n->ii].inc ||
	    p->epoch.num <= c->map.epoch.num || c->promoted_num == c->map.epoch.num)
		return NONE;
	for (uint8_t m = 0; m < p->n; m++) {
		if (p->member[m].state != MEMBER_IN_SYNC ||
		    c->map.member[m].state == MEMBER_IN_SYNC)
			continue;
		c->promoted_num = c->map.epoch.num;
		return m;
	}
	return NONE;
}

/*
 * R3, R18: whoever finds the proposal may complete it. So nothing may be torn by then that reads
 * have decoded so far, and nothing lost with the member's cache.
 */
static void check_promotion(struct sim *s, const struct simnode *n)
{
	uint32_t m = promoted_first(s, n), d = m == NONE ? NONE : s->checks.disk_of[m];

	if (d == NONE)
		return;
	for (uint32_t i = 0; i < s->reqs; i++) {
		const struct req *r = s->req[i];

		if (r->used && !r->orphan && !r->answered && region_write(r) &&
		    in_view_of(s, n, r->ii) && !s->inc[r->ii].removed)
			sim_fail(s, "C2", "member %u is promoted while node %u writes region %lu",
				 m, s->node[r->node].id, r->region);
	}
	if (s->disk[d].unflushed_mask && !s->disk[d].cache_lost)
		sim_fail(s, "C3", "member %u is promoted with regions %lx in its cache only", m,
			 s->disk[d].unflushed_mask);
}

void checks_step(struct sim *s, struct simnode *n)
{
	spot_check(s, n);
	check_promotion(s, n);
	if (n->eio_us == s->now && s->now && !n->removing)
		sim_fail(s, "C8",
			 "node %u failed a request although it was not removed and k "
			 "members are well",
			 n->id);
}

static uint64_t unflushed(const struct sim *s)
{
	uint64_t mask = 0;

	for (uint8_t m = 0; m < s->geo.n; m++) {
		uint32_t d = s->checks.disk_of[m];

		/* After a flush error that lost data it is as good as out of the map. */
		if (d != NONE && !s->disk[d].cache_lost)
			mask |= s->disk[d].unflushed_mask;
	}
	return mask;
}

void checks_event(struct sim *s)
{
	struct checks *c = &s->checks;
	uint64_t clean, wrong;

	risk_advance(s);
	if (c->dirty_stale)
		dirty_update(s);
	if (!c->map_full)
		return;
	clean = all_regions(s) & ~c->dirty_mask;
	wrong = c->bad_mask & clean;
	if (wrong)
		sim_fail(s, "C3", "region %u is clean, but %u of its stripes have wrong parity",
			 (uint32_t)__builtin_ctzll(wrong), c->bad_count[__builtin_ctzll(wrong)]);
	wrong = unflushed(s) & clean;
	if (wrong)
		sim_fail(s, "C3", "region %u is clean, but a member has not flushed it",
			 (uint32_t)__builtin_ctzll(wrong));
}

/* ---- the end -------------------------------------------------------------------------------- */

void checks_final(struct sim *s)
{
	uint32_t per = BLOCK_SECTORS / s->geo.k;

	for (uint64_t i = 0; i < s->geo.stripes && !s->failed; i++) {
		if (stripe_bad(s, i))
			sim_fail(s, "C3", "at the end block %lu has wrong parity", i);
		for (uint32_t k = 0; k < BLOCK_SECTORS; k++) {
			uint8_t m = geo_member_of(&s->geo, i, (uint8_t)(k / per));
			const struct disk *d = &s->disk[s->checks.disk_of[m]];
			struct content c =
			    content_of(d->cached + geo_offset(&s->geo, i) + (k % per) * SECTOR,
				       i * BLOCK_SECTORS + k);

			if (!oracle_allows(s, i * BLOCK_SECTORS + k, &c, s->stamp + 1))
				sim_fail(s, "C1", "at the end member %u has %u in sector %lu", m,
					 c.wid, i * BLOCK_SECTORS + k);
		}
	}
	for (uint8_t m = 0; m < s->geo.n; m++) {
		const struct disk *d = &s->disk[s->checks.disk_of[m]];

		for (const struct dwrite *w = d->head; w; w = w->next)
			if (w->lost && w->offset / DDR_BLOCK_BYTES != USE_OFFSET / DDR_BLOCK_BYTES)
				sim_fail(s, "C3",
					 "at the end member %u is in sync, but lost data "
					 "in a failed flush (R14)",
					 m);
	}
}

void checks_init(struct sim *s)
{
	struct checks *c = &s->checks;
	struct map map = s->disk[0].sb.map;

	for (uint32_t i = 0; i < SIM_MAX_DISKS; i++)
		c->member_of[i] = NONE;
	for (uint32_t m = 0; m < DDR_MAX_MEMBERS; m++)
		c->disk_of[m] = NONE;
	c->bad = xcalloc(s->geo.stripes, 1);
	c->writes = xcalloc(s->geo.stripes, sizeof(*c->writes));
	map_commit(s, NULL, &map);
}

void checks_free(struct sim *s)
{
	free(s->checks.bad);
	free(s->checks.writes);
	free(s->checks.commit);
	s->checks = (struct checks){0};
}
