/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Member requests and the connections that carry them.
 *
 * A request takes effect on the medium at a moment between its issue and its answer, in two halves
 * at times (only a sector is atomic), so requests overtake each other. When nobody waits for the
 * answer any more (crash, broken connection, cancel), what has not taken effect yet never does, or
 * does as planned, or late, within the bound o.zombie_us, unless a fence ends it first.
 *
 *   issued -> [half] -> taken effect -> answered -> given        the normal way
 *          -> answered with an error -> ... takes effect late    broken connection, cancel
 *   A request is freed when it can't take effect any more and its answer was given or has no taker.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/faults/faults.h"
#include "tests/sim/faults/halfopen.h"
#include "tests/sim/world.h"

static void on_exec(struct sim *s, struct hev *ev);
static void on_answer(struct sim *s, struct hev *ev);

/* In a way that R4 and R5 are for. */
static bool changes_medium(const struct req *r)
{
	return r->op != DEV_READ && r->kind != KIND_USE;
}

static bool may_land(const struct req *r)
{
	return r->exec == EXEC_NOT || r->exec == EXEC_HALF;
}

static struct req *req_get(struct sim *s, uint64_t idx, uint64_t uid)
{
	struct req *r = s->req[idx];

	return r->used && r->uid == uid ? r : NULL;
}

static uint32_t req_alloc(struct sim *s)
{
	uint32_t i = 0;

	while (i < s->reqs && s->req[i]->used)
		i++;
	if (i == s->reqs) {
		s->req = xrealloc(s->req, ++s->reqs * sizeof(struct req *));
		s->req[i] = xcalloc(1, sizeof(struct req));
	}
	*s->req[i] = (struct req){.used = true, .uid = ++s->next_uid};
	return i;
}

static void req_unuse(struct req *r)
{
	if (may_land(r) || !r->given)
		return;
	free(r->buf);
	r->buf = NULL;
	r->used = false;
}

static void pending_count(struct sim *s, const struct req *r, int by)
{
	uint64_t stripe, last;

	if (r->op == DEV_READ || r->op == DEV_FLUSH ||
	    !checks_data_span(s, r->offset, r->bytes, &stripe, &last))
		return;
	for (; stripe <= last; stripe++) {
		s->checks.writes[stripe] += (uint32_t)by;
		if (!s->checks.writes[stripe])
			risk_settle(s, stripe);
	}
}

/* The exporter has answered: a FLUSH from now on covers it. */
static void said_done(struct sim *s, const struct req *r)
{
	for (uint32_t i = 0; i < 2; i++)
		disk_answered(s, &s->disk[r->disk], r->wseq[i]);
}

/* It has taken effect, or never will. */
static void exec_final(struct sim *s, struct req *r, enum exec_state state)
{
	r->exec = state;
	if (changes_medium(r)) {
		s->inc[r->ii].outstanding--;
		pending_count(s, r, -1);
		if (r->orphan)
			said_done(s, r);
		inc_check_ended(s, r->ii);
	}
	req_unuse(r);
}

/* ---- taking effect -------------------------------------------------------------------------- */

/* For whoever hears the world. */
static void tell_landed(struct sim *s, const struct req *r)
{
	static const char *const how[] = {
	    [KIND_DATA] = "written", [KIND_RESYNC] = "resynced", [KIND_REBUILD] = "rebuilt"};
	uint32_t m = s->checks.member_of[r->disk], id = s->node[r->node].id;
	const char *late = r->orphan ? ", late" : "";
	uint64_t first, last;

	if (!s->hear || m == NONE || r->kind > KIND_REBUILD || !how[r->kind] ||
	    !checks_data_span(s, r->offset, r->bytes, &first, &last))
		return;
	if (first == last)
		world_tell(s, NULL, "member %u has its part of block %lu, %s by node %u%s", m,
			   first, how[r->kind], id, late);
	else
		world_tell(s, NULL, "member %u has its part of blocks %lu to %lu, %s by node %u%s",
			   m, first, last, how[r->kind], id, late);
}

static void tell_connection(struct sim *s, const struct simnode *n, uint32_t disk, bool up)
{
	uint32_t m = s->checks.member_of[disk];

	if (m != NONE && n->st.state == ENGINE_ACTIVE)
		world_tell(s, n, "%s member %u", up ? "is connected again to" : "does not reach",
			   m);
}

static void land_write(struct sim *s, struct req *r, uint32_t from, uint32_t to)
{
	struct disk *d = &s->disk[r->disk];
	uint64_t seq;

	if (from >= to)
		return;
	spot_written(d, r->offset + from, to - from);
	seq = disk_write(s, d, r->offset + from, to - from, r->buf + from, r->flags & DEV_F_FUA);
	r->wseq[from ? 1 : 0] = seq;
	if (to == r->bytes)
		tell_landed(s, r);
	checks_exec(s, r);
	sbcopies_written(s, r, to - from < r->bytes);
	if (r->orphan && !r->late) {
		r->late = true;
		stats_fault(s, F_LATE_WRITE);
		if (r->gen != s->node[r->node].gen && s->node[r->node].proc)
			stats_fault(s, F_LATE_AFTER_RESTART);
	}
}

static bool land_error(struct sim *s, struct req *r)
{
	struct disk *d = &s->disk[r->disk];
	uint32_t *errs = r->op == DEV_READ    ? &d->read_errs
			 : r->op == DEV_FLUSH ? &d->flush_errs
					      : &d->write_errs;

	if (d->dead) {
		r->err = -EIO;
		return true;
	}
	if (full_strikes(s, r)) {
		r->err = -ENOSPC;
		return true;
	}
	if (spot_strikes(s, r) || sbcopies_unreadable(s, r)) {
		r->err = -EIO;
		return true;
	}
	if (!*errs || r->orphan || r->kind == KIND_SB || r->kind == KIND_USE ||
	    !fault_may_strike(s, r->disk))
		return false;
	/* Another member may be about to leave for a bad spot. */
	if (s->spot.us && s->now - s->spot.us < 300 * MS)
		return false;
	--*errs;
	r->err = -EIO;
	s->planner.done++;
	risk_harmed(s, r->disk);
	if (d->err_in_rebuild) {
		stats_fault(s, F_REBUILD_ERROR);
		stats_fault(s, r->op == DEV_FLUSH ? F_REBUILD_FLUSH_ERROR : F_REBUILD_WRITE_ERROR);
	}
	if (r->op == DEV_FLUSH) {
		disk_flush_error(s, d, d->flush_err_loses, r->ii);
		stats_fault(s, d->flush_err_loses ? F_FLUSH_ERROR_LOST : F_FLUSH_ERROR_KEPT);
		if (s->o.strikes_rebuilds && rng_chance(&s->rng, 400))
			fault_break_too(s, r->disk);
	} else {
		stats_fault(s, r->op == DEV_READ ? F_READ_ERROR : F_WRITE_ERROR);
		if (r->flags & DEV_F_FUA) /* that counts as a flush that failed */
			disk_flush_error(s, d, false, r->ii);
	}
	d->err_in_rebuild = d->err_in_change = false;
	if (r->op == DEV_WRITE && rng_chance(&s->rng, 500))
		land_write(s, r, 0, rng_below(&s->rng, r->bytes / SECTOR + 1) * SECTOR);
	return true;
}

/* `half`: the first half only. */
static void land(struct sim *s, struct req *r, bool half)
{
	struct disk *d = &s->disk[r->disk];
	uint32_t from = r->exec == EXEC_HALF ? r->half : 0, to = half ? r->half : r->bytes;

	if (!d->powered) {
		exec_final(s, r, EXEC_NEVER);
		return;
	}
	if (sbcopies_torn(s, r)) {
		exec_final(s, r, EXEC_NEVER);
		return;
	}
	if (r->exec == EXEC_NOT && land_error(s, r)) {
		exec_final(s, r, EXEC_DONE);
		return;
	}
	if (TRACING(s))
		trace(s, "w  exec req %lu n%u disk %u %s%s+%u%s", r->uid, s->node[r->node].id,
		      r->disk,
		      r->op == DEV_READ    ? "read "
		      : r->op == DEV_FLUSH ? "flush "
					   : "write ",
		      half ? "first half " : "", to - from, r->orphan ? " LATE" : "");
	if (oldcopy_lands(s, r, from, to))
		;
	else if (r->op == DEV_READ)
		disk_read(d, r->offset + from, to - from, r->buf + from);
	else if (r->op == DEV_FLUSH)
		disk_flush(s, d, r->issued_us);
	else
		land_write(s, r, from, to);
	if (!half)
		between_landed(s, r);
	if (half)
		r->exec = EXEC_HALF;
	else
		exec_final(s, r, EXEC_DONE);
}

static void on_exec(struct sim *s, struct hev *ev)
{
	struct req *r = req_get(s, ev->a >> 1, ev->b);

	if (!r || !may_land(r) || (ev->a & 1 && r->exec == EXEC_HALF))
		return;
	if (s->now < r->lingers_until_us)
		sim_at(s, r->lingers_until_us - s->now, on_exec, ev->a, ev->b, NULL);
	else
		land(s, r, ev->a & 1);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void answer(struct sim *s, uint32_t idx, uint64_t delay_us, int err)
{
	struct req *r = s->req[idx];
	struct event ev = {.type = EV_DEV_DONE, .done = {.id = r->id, .err = err}};
	struct nev *nev = nev_new(&ev, NULL, 0);

	r->answered = true;
	r->err = err;
	nev->req = idx;
	node_post_nev(s, &s->node[r->node], s->now + delay_us, nev);
}

static void on_answer(struct sim *s, struct hev *ev)
{
	struct req *r = req_get(s, ev->a, ev->b);

	if (!r || r->answered || r->orphan || s->node[r->node].dev[r->dev].half_open)
		return;
	if (s->now < r->lingers_until_us) {
		sim_at(s, r->lingers_until_us - s->now, on_answer, ev->a, ev->b, NULL);
		return;
	}
	if (may_land(r))
		land(s, r, false); /* not given yet, so it isn't freed */
	said_done(s, r);
	answer(s, (uint32_t)ev->a, 0, r->err);
}

static void check_buffer(struct sim *s, const struct req *r)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < r->iov_count; i++) {
		if (memcmp(r->buf + at, r->iov[i].iov_base, r->iov[i].iov_len))
			sim_fail(s, "C9", "node %u changed the memory of write %lx under way",
				 s->node[r->node].id, r->id);
		at += (uint32_t)r->iov[i].iov_len;
	}
}

static void fill_iov(const struct req *r, bool junk)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < r->iov_count; i++) {
		if (junk)
			memset(r->iov[i].iov_base, 0xa5, r->iov[i].iov_len);
		else
			memcpy(r->iov[i].iov_base, r->buf + at, r->iov[i].iov_len);
		at += (uint32_t)r->iov[i].iov_len;
	}
}

void dev_give(struct sim *s, uint32_t idx, int *err)
{
	struct req *r = s->req[idx];

	*err = r->err;
	if (r->op == DEV_READ)
		fill_iov(r, r->err != 0);
	else if (r->op == DEV_WRITE)
		check_buffer(s, r);
	dev_drop_given(s, idx);
}

void dev_drop_given(struct sim *s, uint32_t idx)
{
	struct req *r = s->req[idx];

	r->given = true;
	r->iov = NULL;
	req_unuse(r);
}

/* ---- issue ---------------------------------------------------------------------------------- */

static uint64_t latency(struct sim *s, const struct req *r)
{
	uint64_t us = rng_range(&s->rng, s->o.disk_lo_us, s->o.disk_hi_us);

	if (r->op == DEV_FLUSH || r->flags & DEV_F_FUA)
		us *= 2;
	if (s->now < s->disk[r->disk].slow_until_us)
		us *= rng_range(&s->rng, 10, 50);
	else if (rng_chance(&s->rng, s->o.slow_permille))
		us *= 50;
	return us < s->o.zombie_us * 4 / 5 ? us : s->o.zombie_us * 4 / 5;
}

static void schedule(struct sim *s, uint32_t idx)
{
	struct req *r = s->req[idx];
	uint64_t us = latency(s, r), exec = rng_range(&s->rng, 0, us);
	uint64_t late = between_late_us(s, r) + oldcopy_unread_us(s, r) + slotread_late_us(s, r) +
			latecopy_unread_us(s, r);

	us += late;
	exec += late;
	if (r->bytes > SECTOR && rng_chance(&s->rng, 250)) {
		r->half = (1 + rng_below(&s->rng, r->bytes / SECTOR - 1)) * SECTOR;
		sim_at(s, rng_range(&s->rng, 0, exec), on_exec, (uint64_t)idx << 1 | 1, r->uid,
		       NULL);
	}
	sim_at(s, exec, on_exec, (uint64_t)idx << 1, r->uid, NULL);
	sim_at(s, us, on_answer, idx, r->uid, NULL);
}

static bool well_formed(struct sim *s, const struct simnode *n, const struct out *o)
{
	uint64_t sum = 0;

	if (o->io.dev >= DDR_MAX_DEVS || !n->dev[o->io.dev].used) {
		sim_fail(s, "C9", "node %u: request for device %u that it never had", n->id,
			 o->io.dev);
		return false;
	}
	for (uint32_t i = 0; i < o->io.iov_count; i++)
		sum += o->io.iov[i].iov_len;
	if (o->io.op == DEV_FLUSH)
		return true;
	if (o->io.offset % SECTOR || o->io.bytes % SECTOR || !o->io.bytes ||
	    o->io.offset + o->io.bytes > s->disk[n->dev[o->io.dev].disk].bytes ||
	    (o->io.op != DEV_ZEROES && sum != o->io.bytes)) {
		sim_fail(s, "C9", "node %u: malformed request: offset %lu, %u bytes, iov %lu",
			 n->id, o->io.offset, o->io.bytes, sum);
		return false;
	}
	return true;
}

static void check_id(struct sim *s, const struct simnode *n, uint64_t id)
{
	for (uint32_t i = 0; i < s->reqs; i++) {
		const struct req *r = s->req[i];

		if (r->used && !r->given && r->node == n->idx && r->gen == n->gen && r->id == id)
			sim_fail(s, "C9", "node %u: request id %lx is under way already", n->id,
				 id);
	}
}

static void req_fill(struct req *r, const struct simnode *n, const struct out *o)
{
	uint32_t at = 0;

	r->node = n->idx;
	r->ii = n->ii;
	r->gen = n->gen;
	r->dev = o->io.dev;
	r->disk = n->dev[o->io.dev].disk;
	r->id = o->io.id;
	r->op = o->io.op;
	r->kind = o->io.kind;
	r->flags = o->io.flags;
	r->offset = o->io.offset;
	r->bytes = o->io.op == DEV_FLUSH ? 0 : o->io.bytes;
	r->region = o->io.region;
	r->iov = o->io.iov;
	r->iov_count = o->io.op == DEV_READ || o->io.op == DEV_WRITE ? o->io.iov_count : 0;
	r->buf = xcalloc(1, r->bytes + 1);
	for (uint32_t i = 0; i < r->iov_count && r->op == DEV_WRITE; i++) {
		memcpy(r->buf + at, r->iov[i].iov_base, r->iov[i].iov_len);
		at += (uint32_t)r->iov[i].iov_len;
	}
	if (r->op == DEV_READ)
		fill_iov(r, true);
}

void dev_submit(struct sim *s, struct simnode *n, const struct out *o)
{
	struct devslot *slot;
	struct req *r;
	uint32_t idx;

	if (!well_formed(s, n, o))
		return;
	if (n->drained)
		sim_fail(s, "C8",
			 "node %u was removed, and sends a request to device %u before its next "
			 "incarnation",
			 n->id, o->io.dev);
	check_id(s, n, o->io.id);
	slot = &n->dev[o->io.dev];
	idx = req_alloc(s);
	r = s->req[idx];
	req_fill(r, n, o);
	r->issued_us = s->now;
	oldcopy_issued(s, r);
	if (slot->half_open) {
		r->exec = EXEC_NEVER;
		return; /* until the connection breaks */
	}
	if (!slot->up || (s->inc[n->ii].fenced && s->o.fence_cuts)) {
		r->exec = EXEC_NEVER;
		answer(s, idx, rng_range(&s->rng, 10, 500), -ENOTCONN);
		return;
	}
	checks_issue(s, n, r);
	if (changes_medium(r)) {
		s->inc[r->ii].outstanding++;
		s->inc[r->ii].ended = false;
		s->inc[r->ii].wrote = true;
		s->inc[r->ii].wrote_us = s->now;
	}
	pending_count(s, r, 1);
	schedule(s, idx);
}

/* ---- broken connections, crashes, fences ---------------------------------------------------- */

static void make_orphan(struct sim *s, uint32_t idx)
{
	struct req *r = s->req[idx];
	uint32_t dice = rng_below(&s->rng, 100);

	r->orphan = true;
	if (!may_land(r)) {
		said_done(s, r); /* to a closed connection */
		return;
	}
	if (dice < 35 || !changes_medium(r)) {
		exec_final(s, r, EXEC_NEVER);
	} else if (dice >= 60) {
		uint64_t uid = r->uid;

		/* A new number voids the events that were planned. */
		r->uid = ++s->next_uid;
		if (TRACING(s))
			trace(s, "w  req %lu becomes late req %lu", uid, r->uid);
		sim_at(s, rng_range(&s->rng, 0, s->o.zombie_us), on_exec, (uint64_t)idx << 1,
		       r->uid, NULL);
	}
	/* else as planned */
}

void dev_orphan_all(struct sim *s, struct simnode *n)
{
	for (uint32_t i = 0; i < s->reqs; i++) {
		struct req *r = s->req[i];

		if (!r->used || r->node != n->idx || r->gen != n->gen)
			continue;
		r->iov = NULL;
		if (!r->answered) /* an answered one is dropped with its event */
			r->answered = r->given = true;
		make_orphan(s, i);
		req_unuse(r);
	}
}

static void break_req(struct sim *s, uint32_t idx, int err)
{
	const struct req *r = s->req[idx];

	if (r->op == DEV_FLUSH && r->exec == EXEC_DONE && r->err)
		disk_untold(s, &s->disk[r->disk]);
	answer(s, idx, rng_range(&s->rng, 0, 3 * MS), err);
	make_orphan(s, idx);
}

void dev_break(struct sim *s, struct simnode *n, uint32_t dev, int err)
{
	struct devslot *slot = &n->dev[dev];
	struct event ev = {.type = EV_DEV_DOWN, .dev = {.dev = dev, .err = err}};

	if (!slot->used || !slot->up || !n->proc)
		return;
	slot->up = slot->half_open = false;
	tell_connection(s, n, slot->disk, false);
	if (!n->st.map.epoch.num)
		n->broke_gen[slot->disk] = n->gen + 1;
	n->lost_gen[slot->disk] = n->gen + 1;
	n->lost_ii[slot->disk] = n->ii;
	for (uint32_t i = 0; i < s->reqs; i++) {
		struct req *r = s->req[i];

		if (r->used && r->node == n->idx && r->gen == n->gen && r->dev == dev &&
		    !r->answered)
			break_req(s, i, err);
	}
	risk_lost(s, slot->disk);
	slot->down_due = true;
	node_post(s, n, rng_range(&s->rng, 0, 3 * MS), &ev);
}

void dev_break_disk(struct sim *s, uint32_t disk, int err)
{
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		uint32_t dev = dev_slot_of_disk(&s->node[i], disk);

		if (s->node[i].proc && dev != NONE)
			dev_break(s, &s->node[i], dev, err);
	}
}

#define CANCEL_MOST_US (2 * MS)

/* What was cancelled is over: it connects anew, as the port says (daemon/ports/member.h). */
static void on_cancelled(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a >> 32];
	uint32_t dev = (uint32_t)ev->a;

	if (n->gen != ev->b || !n->dev[dev].up)
		return;
	dev_break(s, n, dev, -ECANCELED);
	dev_try(s, n, dev, MS);
}

void dev_cancel(struct sim *s, struct simnode *n, uint32_t dev)
{
	if (dev >= DDR_MAX_DEVS || !n->dev[dev].used) {
		sim_fail(s, "C9", "node %u cancels device %u that it never had", n->id, dev);
		return;
	}
	if (n->dev[dev].half_open) {
		halfopen_end(s, n, dev, -ECANCELED);
		return;
	}
	if (s->o.cancel_drops && n->dev[dev].up) {
		dev_break(s, n, dev, -ECANCELED);
		dev_try(s, n, dev, rng_range(&s->rng, 1 * MS, 30 * MS));
		return;
	}
	for (uint32_t i = 0; i < s->reqs; i++) {
		struct req *r = s->req[i];
		uint64_t us = rng_range(&s->rng, 0, CANCEL_MOST_US);

		if (!r->used || r->node != n->idx || r->gen != n->gen || r->dev != dev ||
		    r->answered)
			continue;
		r->uid = ++s->next_uid; /* voids what was planned */
		if (may_land(r) && rng_chance(&s->rng, 500))
			exec_final(s, r, EXEC_NEVER);
		r->err = -ECANCELED;
		sim_at(s, rng_range(&s->rng, 0, us), on_exec, (uint64_t)i << 1, r->uid, NULL);
		sim_at(s, us, on_answer, i, r->uid, NULL);
	}
	sim_at(s, CANCEL_MOST_US, on_cancelled, (uint64_t)n->idx << 32 | dev, n->gen, NULL);
}

uint32_t dev_writes_at(const struct sim *s, const struct simnode *n)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < s->reqs; i++) {
		const struct req *r = s->req[i];

		count += r->used && r->node == n->idx && r->gen == n->gen && may_land(r) &&
			 (r->op == DEV_WRITE || r->op == DEV_ZEROES);
	}
	return count;
}

void dev_linger(struct sim *s, const struct simnode *n, uint64_t us)
{
	for (uint32_t i = 0; i < s->reqs; i++) {
		struct req *r = s->req[i];
		uint64_t last = r->issued_us + s->o.zombie_us * 4 / 5;

		if (r->used && r->node == n->idx && r->gen == n->gen && may_land(r) &&
		    (r->op == DEV_WRITE || r->op == DEV_ZEROES))
			r->lingers_until_us = s->now + us < last ? s->now + us : last;
	}
}

bool dev_under_way(const struct sim *s, const struct simnode *n)
{
	for (uint32_t i = 0; i < s->reqs; i++) {
		const struct req *r = s->req[i];

		if (r->used && r->node == n->idx && r->gen == n->gen && !r->given)
			return true;
	}
	return false;
}

static void flush_after_fence(struct sim *s, uint32_t disks)
{
	for (uint32_t i = 0; i < s->o.disks; i++)
		if (disks >> i & 1 && s->disk[i].powered && !s->disk[i].dead)
			disk_flush(s, &s->disk[i], s->now);
}

void dev_finish_inc(struct sim *s, uint32_t ii)
{
	struct simnode *n = &s->node[s->inc[ii].node];
	uint32_t disks = 0;

	for (uint32_t i = 0; i < s->reqs; i++) {
		struct req *r = s->req[i];

		if (!r->used || r->ii != ii)
			continue;
		disks |= 1u << r->disk;
		if (!may_land(r))
			continue;
		r->late = true; /* ended by the fence: not a late one */
		if (rng_chance(&s->rng, 500))
			land(s, r, false);
		else
			exec_final(s, r, EXEC_NEVER);
	}
	flush_after_fence(s, disks);
	if (!s->o.fence_cuts || !n->proc || n->ii != ii)
		return;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		dev_break(s, n, i, -ESHUTDOWN);
}

void dev_unsent(struct sim *s, struct simnode *n)
{
	for (uint32_t i = 0; i < s->reqs; i++) {
		struct req *r = s->req[i];

		if (r->used && r->node == n->idx && r->gen == n->gen && may_land(r))
			exec_final(s, r, EXEC_NEVER);
	}
}

void dev_power_loss(struct sim *s, uint32_t disk, bool trusted)
{
	struct disk *d = &s->disk[disk];

	for (uint32_t i = 0; i < s->reqs; i++) {
		struct req *r = s->req[i];

		if (r->used && r->disk == disk && may_land(r))
			exec_final(s, r, EXEC_NEVER);
	}
	disk_power_loss(s, d);
	d->powered = false;
	d->instance = s->o.instance_known ? mix64(++s->next_uid) | 1 : 0;
	if (!trusted)
		risk_harmed(s, disk);
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		struct simnode *n = &s->node[i];
		uint32_t dev = dev_slot_of_disk(n, disk);

		if (n->proc && dev != NONE && (trusted || !halfopen_strikes(s, n, dev)))
			dev_break(s, n, dev, -ECONNRESET);
	}
	checks_engine_gone(s); /* if nobody was there to notice */
}

/* ---- connections ---------------------------------------------------------------------------- */

uint32_t dev_slot_of_disk(const struct simnode *n, uint32_t disk)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (n->dev[i].used && n->dev[i].disk == disk)
			return i;
	return NONE;
}

/* Nothing sent before by this node at that address, in any of its incarnations, still runs, and the
 * engine has heard of the end of all of it. What this daemon sent to the same disk at another
 * address may: the port knows nothing of that (R5, see exchange.c). */
static bool quiet(const struct sim *s, const struct simnode *n, uint32_t dev)
{
	for (uint32_t i = 0; i < s->reqs; i++) {
		const struct req *r = s->req[i];

		if (r->used && r->node == n->idx &&
		    (r->gen == n->gen ? r->dev == dev : r->disk == n->dev[dev].disk))
			return false;
	}
	return true;
}

static void on_try(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a >> 32];
	uint32_t dev = (uint32_t)ev->a;
	struct devslot *slot = &n->dev[dev];
	struct disk *d;
	struct nev *nev;

	if (ev->b != n->gen || !n->proc || !slot->trying)
		return;
	slot->trying = false;
	d = &s->disk[slot->disk];
	if (n->cut_off >> slot->disk & 1)
		n->cut_inc = n->ii + 1;
	if (slot->up || slot->cut || n->cut_off >> slot->disk & 1 || d->hidden || !d->powered ||
	    (d->dead && d->dead_silent) || (n->removing && !n->drained))
		return; /* tried again when that changes */
	if (slot->down_due || !quiet(s, n, dev) || (s->inc[n->ii].fenced && s->o.fence_cuts)) {
		dev_try(s, n, dev, 4 * MS);
		return;
	}
	halfopen_connects(s, n, slot->disk);
	slot->up = true;
	slot->up_ii = n->ii;
	tell_connection(s, n, slot->disk, true);
	nev = nev_new(
	    &(struct event){.type = EV_DEV_UP,
			    .dev = {.dev = dev, .bytes = d->bytes, .instance = d->instance}},
	    d->uri, sizeof(d->uri));
	node_post_nev(s, n, s->now, nev);
}

void dev_try(struct sim *s, struct simnode *n, uint32_t dev, uint64_t delay_us)
{
	if (n->dev[dev].trying)
		return;
	n->dev[dev].trying = true;
	sim_at(s, delay_us, on_try, (uint64_t)n->idx << 32 | dev, n->gen, NULL);
}

void dev_try_disk(struct sim *s, uint32_t disk)
{
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		uint32_t dev = dev_slot_of_disk(&s->node[i], disk);

		if (s->node[i].proc && dev != NONE)
			dev_try(s, &s->node[i], dev, rng_range(&s->rng, 1 * MS, 40 * MS));
	}
}

void dev_open(struct sim *s, struct simnode *n, uint32_t disk, uint64_t delay_us)
{
	uint32_t dev = dev_slot_of_disk(n, disk);

	if (dev == NONE) {
		/* The numbers mean nothing: any free one will do. */
		dev = rng_below(&s->rng, DDR_MAX_DEVS);
		while (n->dev[dev].used)
			dev = (dev + 1) % DDR_MAX_DEVS;
		n->dev[dev] = (struct devslot){.used = true, .disk = disk};
	}
	dev_try(s, n, dev, delay_us);
}
