/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Incarnations, and the fence that ends them at the exporters.
 *
 * o.fence_cuts: the exporters drop or finish what they had accepted, flush, answer, and take
 * nothing more from it. Otherwise (zombie_timeout) the fence does nothing but wait until nothing
 * can be under way any more, from an engine that keeps R7.
 */
#include <errno.h>
#include <string.h>

#include "tests/sim/world.h"

uint32_t inc_new(struct sim *s, uint32_t node)
{
	uint32_t ii = s->incs++;

	if (s->incs >= SIM_MAX_INCS) {
		sim_fail(s, "SIM", "more than %u incarnations", SIM_MAX_INCS - 1);
		s->incs = ii = SIM_MAX_INCS - 1;
	}
	/* A new incarnation knows of the removals that an older one has seen by its record only,
	 * and has heard of nobody. */
	for (uint32_t i = 0; i < ii; i++) {
		s->inc[i].left_at &= ~(1u << node);
		s->inc[i].known_to &= ~(1u << node);
		s->inc[i].left_heard &= ~(1u << node);
	}
	s->next_inc += rng_range(&s->rng, 1, 40);
	s->inc[ii] =
	    (struct incn){.inc = s->next_inc, .node = node, .live = true, .fenced_stamp = NEVER};
	s->inc[ii].gen = s->node[node].gen;
	while (s->inc[ii].fence_fails < 3 && rng_chance(&s->rng, s->o.fence_fail_permille))
		s->inc[ii].fence_fails++;
	while (s->o.own_fence_fails && s->inc[ii].own_fence_fails < 4 && rng_chance(&s->rng, 500))
		s->inc[ii].own_fence_fails++;
	return ii;
}

uint32_t inc_find(const struct sim *s, uint64_t inc)
{
	for (uint32_t i = 0; i < s->incs; i++)
		if (s->inc[i].inc == inc)
			return i;
	return NONE;
}

void inc_check_ended(struct sim *s, uint32_t ii)
{
	struct incn *in = &s->inc[ii];

	if ((in->live && !in->removed) || in->outstanding || in->ended)
		return;
	in->ended = true;
	oracle_ended(s, ii);
}

void inc_dead(struct sim *s, uint32_t ii)
{
	s->inc[ii].live = false;
	disk_witness_gone(s, ii);
	inc_check_ended(s, ii);
	fences_forgotten(s);
}

static void fence_answer(struct sim *s, struct simnode *n, uint32_t ii, int err)
{
	struct event ev = {
	    .type = EV_FENCE_DONE,
	    .fence = {.node = s->node[s->inc[ii].node].id, .inc = s->inc[ii].inc, .err = err}};

	node_post(s, n, 0, &ev);
}

/*
 * A fence that only waited, of somebody who lives: if all who may know of it are gone, or out of
 * the ring in which they heard of it, before they have committed anything, the array has not gone
 * on without him, and he does no harm. Who comes from that ring has to ask for it again. One that
 * only joined, and never wrote to a member, does none either if they have.
 */
void fences_forgotten(struct sim *s)
{
	for (uint32_t ii = 0; ii < s->incs && !s->o.fence_cuts; ii++) {
		struct incn *in = &s->inc[ii];
		bool known = !in->live || in->removed ||
			     (in->wrote && s->checks.map.epoch.num != in->fenced_epoch);

		for (uint32_t i = 0; i < s->o.nodes && in->fenced; i++)
			known = known || (in->fence_known[i] && s->node[i].proc &&
					  s->node[i].ii + 1 == in->fence_known[i] &&
					  group_in_ring(s, i, in->fence_ring[i]) &&
					  !s->inc[s->node[i].ii].removed);
		if (!in->fenced || known)
			continue;
		trace(s, "w  nobody knows that inc %lu was fenced", in->inc);
		in->fenced = false;
		in->fenced_stamp = NEVER;
		in->forgot_us = s->now;
	}
}

/* In the ring in which it was left out: whatever n has waited for says nothing of what it sends
 * from now on. Its daemon may have had a younger life meanwhile, or not. */
void fences_back(struct sim *s, struct simnode *n, uint32_t node, uint32_t in_ii)
{
	for (uint32_t ii = in_ii; ii < s->incs && !s->o.fence_cuts; ii++) {
		if (s->inc[ii].node != node || s->inc[ii].gen != s->inc[in_ii].gen)
			continue;
		s->inc[ii].fence_known[n->idx] = 0;
		s->inc[ii].fence_void[n->idx]++;
	}
	fences_forgotten(s);
}

/*
 * n commits a map in the ring in which it heard of such a fence: the rest of a broken ring reaches
 * those who were in it, a commit among it. So the fence counts, unless he has written since.
 */
void fences_remembered(struct sim *s, const struct simnode *n)
{
	for (uint32_t ii = 0; ii < s->incs; ii++) {
		struct incn *in = &s->inc[ii];

		if (in->fenced || !in->forgot_us || in->wrote_us >= in->forgot_us ||
		    in->outstanding || in->fence_known[n->idx] != n->ii + 1 ||
		    in->fence_ring[n->idx] != n->view_ring)
			continue;
		trace(s, "w  n%u remembers that inc %lu was fenced", n->id, in->inc);
		in->fenced = true;
		in->fenced_stamp = sim_stamp(s);
	}
}

static void fence_done(struct sim *s, uint32_t ii)
{
	struct incn *in = &s->inc[ii];

	trace(s, "w  inc %lu is fenced, %u outstanding", in->inc, in->outstanding);
	world_tell(s, NULL, "the exporters take nothing more from node %u: it is fenced",
		   s->node[in->node].id);
	if (s->o.fence_cuts)
		dev_finish_inc(s, ii);
	in->fenced = true;
	in->forgot_us = 0;
	in->fenced_stamp = sim_stamp(s);
	in->fenced_epoch = s->checks.map.epoch.num;
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		in->fence_known[i] = i != in->node && s->node[i].proc ? s->node[i].ii + 1 : 0;
		in->fence_ring[i] = s->group.cur[i];
	}
	if (in->outstanding)
		sim_fail(s, "SIM", "fence of inc %lu answered with %u outstanding", in->inc,
			 in->outstanding);
	checks_fenced(s, ii);
}

static void on_fence(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a >> 32 & 0xffff];
	uint32_t ii = (uint32_t)ev->a, asker = (uint32_t)ev->b >> 1, ring = (uint32_t)(ev->b >> 32);
	struct incn *in = &s->inc[ii];
	bool holds = group_in_ring(s, n->idx, ring) && in->fence_void[n->idx] == ev->a >> 48;

	/* Who waited is gone, and nothing else was done. */
	if (!s->o.fence_cuts && (!n->proc || n->ii != asker)) {
		/* The same daemon under another incarnation is owed an answer. */
		if (n->proc && s->inc[asker].gen == n->gen)
			fence_answer(s, n, ii, -EIO);
		return;
	}
	/* Of two halves with quorum only one may go on: the exporters know whom they took first. */
	if (s->o.two_node && s->inc[asker].fenced) {
		stats_fault(s, F_FENCE_FAILED);
		fence_answer(s, n, ii, -EIO);
		return;
	}
	/* One that was asked for while it was going to fail has not waited. */
	if (in->fence_fails || (!s->o.fence_cuts && !(ev->b & 1))) {
		in->fence_fails -= in->fence_fails > 0;
		stats_fault(s, F_FENCE_FAILED);
		trace(s, "w  fence of inc %lu fails", in->inc);
		fence_answer(s, n, ii, -EIO);
		return;
	}
	/* From another ring it says nothing, nor of one who is back; and he must not take it for
	 * more. */
	if (!in->fenced && (s->o.fence_cuts || holds || (!in->live && !in->outstanding)))
		fence_done(s, ii);
	fence_answer(s, n, ii, 0);
}

/* A daemon that can't fence its node's last incarnation doesn't join; it tries again. */
bool fence_itself_fails(struct sim *s, struct simnode *n)
{
	for (uint32_t ii = 0; ii < s->incs; ii++) {
		struct incn *in = &s->inc[ii];

		if (in->node != n->idx || in->fenced || !in->own_fence_fails)
			continue;
		in->own_fence_fails--;
		stats_fault(s, F_OWN_FENCE_FAILED);
		trace(s, "w  n%u can't fence its last incarnation, inc %lu", n->id, in->inc);
		return true;
	}
	return false;
}

/* What a daemon does before it joins: ends whatever its node's earlier incarnations have under way.
 * */
uint64_t fence_itself(struct sim *s, struct simnode *n)
{
	if (!s->o.fences_itself)
		return 0;
	for (uint32_t ii = 0; ii < s->incs; ii++) {
		if (s->inc[ii].node != n->idx || ii == n->ii || s->inc[ii].fenced)
			continue;
		stats_fault(s, F_FENCED_ITSELF);
		s->inc[ii].fenced_by = n->ii;
		fence_done(s, ii);
	}
	return s->inc[n->ii].inc - 1;
}

void fence_ask(struct sim *s, struct simnode *n, uint32_t node, uint64_t inc)
{
	uint32_t ii = inc_find(s, inc);
	uint64_t us = rng_range(&s->rng, 2 * MS, rng_chance(&s->rng, 200) ? 300 * MS : 40 * MS);
	bool waits;

	if (ii == NONE || s->node[s->inc[ii].node].id != node) {
		sim_fail(s, "C5", "node %u fences (%u, %lu), which never was", n->id, node, inc);
		return;
	}
	if (s->inc[ii].live && s->inc[ii].node == n->idx && s->inc[ii].inc == inc && n->ii == ii)
		sim_fail(s, "C5", "node %u fences itself", n->id);
	s->inc[ii].fences++;
	waits = !s->o.fence_cuts && !s->inc[ii].fence_fails;
	if (waits) {
		/* What a frozen connection may still hold, plus what R7 still lets it send. */
		us = s->o.zombie_us + s->o.tun.heartbeat_limit_ms * MS +
		     rng_range(&s->rng, 1 * MS, 50 * MS);
		stats_fault(s, F_FENCE_WAITED);
	}
	sim_at(s, us, on_fence,
	       (uint64_t)s->inc[ii].fence_void[n->idx] << 48 | (uint64_t)n->idx << 32 | ii,
	       (uint64_t)s->group.cur[n->idx] << 32 | (uint64_t)n->ii << 1 | waits, NULL);
}
