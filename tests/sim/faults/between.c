/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A leader dies, or two in a row, with a page of the dirty log on one member and not yet on the
 * others. That member's connections break, for long enough that it may leave the map: before the
 * next leader can read the page, so that the member comes back with images that nobody who wrote
 * it meanwhile has seen (two), or soon after, so that who takes the slot sees an older one (one).
 *
 * Until then that member is the one that takes such a page first.
 *
 * Of its own randomness.
 */
#include <errno.h>
#include <string.h>

#include "tests/sim/faults/faults.h"
#include "tests/sim/world.h"

#define LATE_US (3 * MS)
#define PATIENCE_US (4000 * MS)

/* A page of an orphan slot, or of one that died: its leader writes it. */
static bool leaders_page(struct sim *s, const struct req *r)
{
	struct logpage lp;

	return r->kind == KIND_LOG && r->op == DEV_WRITE && r->offset >= LOG_OFFSET && !r->orphan &&
	       node_leader(s) == &s->node[r->node] && !logpage_decode(&lp, r->buf) &&
	       lp.owner_inc != s->inc[r->ii].inc;
}

uint64_t between_late_us(struct sim *s, const struct req *r)
{
	return s->between.left && s->now <= s->between.until_us && r->disk != s->between.disk &&
		       leaders_page(s, r)
		   ? LATE_US
		   : 0;
}

static void on_breaks(struct sim *s, struct hev *ev)
{
	(void)ev;
	if (!s->planner.healing && breaks_unharmed(s) && !s->disk[s->between.disk].hidden)
		fault_hide(s, s->between.disk, (300 + mix64(s->seed ^ s->now) % 900) * MS);
}

static void on_dies(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];

	if (!s->between.left || !n->powered || ev->b != n->gen || s->planner.healing)
		return;
	if (!breaks_unharmed(s)) {
		s->between.left = 0;
		return;
	}
	stats_look(s);
	stats_fault(s, F_LEADER_BETWEEN);
	trace(s, "f  n%u dies with page %u of slot %u on disk %u only", n->id, s->between.page,
	      s->between.slot, s->between.disk);
	dev_unsent(s, n);
	node_crash(s, n);
	node_power_on_later(s, n, (30 + mix64(s->seed ^ s->now) % 800) * MS);
	s->between.seen = true;
	if (!--s->between.left)
		sim_at(s, s->between.after_us, on_breaks, 0, 0, NULL);
	stats_look_end(s);
}

void between_landed(struct sim *s, const struct req *r)
{
	struct logpage lp;

	if (!s->between.left || r->disk != s->between.disk || s->now > s->between.until_us ||
	    !leaders_page(s, r) || logpage_decode(&lp, r->buf))
		return;
	if (s->between.seen && (lp.slot != s->between.slot || lp.page != s->between.page))
		return;
	s->between.slot = lp.slot;
	s->between.page = lp.page;
	sim_at(s, 0, on_dies, r->node, s->node[r->node].gen, NULL);
}

static void on_begin(struct sim *s, struct hev *ev)
{
	uint32_t disk = s->checks.disk_of[mix64(s->seed ^ 0x6265) % s->geo.n];
	bool two = mix64(s->seed ^ 0x64656164) % 2;

	(void)ev;
	if (s->planner.healing)
		return;
	if (disk == NONE || !fault_may_strike(s, disk)) {
		sim_at(s, 20 * MS, on_begin, 0, 0, NULL);
		return;
	}
	s->between.disk = disk;
	s->between.left = two ? 2 : 1;
	s->between.after_us = two ? 0 : mix64(s->seed + s->now) % (800 * MS);
	s->between.until_us = s->now + PATIENCE_US;
}

void between_init(struct sim *s)
{
	uint64_t r = mix64(s->seed ^ 0x6265747765656eull);

	if (s->o.faultless || s->o.nodes == 1 || (s->cli && s->cli->only) || r % 100 >= 30)
		return;
	sim_at(s, (200 + r / 100 % 2500) * MS, on_begin, 0, 0, NULL);
}
