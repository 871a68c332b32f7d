/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A daemon gives its incarnation up, as when its locks are lost or an operator cuts off a consumer
 * whose requests can't end; mostly in the middle of writes. Nobody else has removed it, or knows.
 * With an external lock manager it may have been made to leave the lock space, at best as somebody
 * waits for what it writes in. And one of two nodes may be cut off from the other before it is
 * back.
 */
#include "tests/sim/faults/faults.h"
#include "tests/sim/world.h"

#define ELSEWHERE 8u /* writes */
#define FAIL_TRIES 100u

static void on_elsewhere(struct sim *s, struct hev *ev)
{
	const struct wop *w = &s->oracle.wop[ev->a];

	if (s->phase == PHASE_SAFETY)
		front_elsewhere(s, &s->node[w->node], w->block, w->blocks);
}

/* A write has failed. */
void givesup_cut(struct sim *s, uint32_t wid)
{
	if (s->inc[s->oracle.wop[wid].ii].told_all)
		sim_at(s, mix64(s->seed ^ wid) % (2 * MS), on_elsewhere, wid, 0, NULL);
}

static void on_lag_end(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];

	if (n->gen == ev->b && n->lags && !n->frozen)
		node_thaw(s, n);
}

/*
 * Unless it waited in vain for its own Evict, all know, or do no I/O before they do: so it is with
 * who is removed by others, too. Its consumer was told that these writes have failed, and goes on
 * elsewhere with them.
 */
void givesup_removed(struct sim *s, uint32_t ii)
{
	struct incn *in = &s->inc[ii];
	uint32_t n = 0;

	if (in->gave_up_us && s->now >= in->gave_up_us + s->o.tun.evict_ms * MS)
		return;
	in->told_all = sim_stamp(s);
	for (uint32_t i = 0; i < s->o.nodes; i++)
		sim_at(s, 3 * MS, on_lag_end, i, s->node[i].gen, NULL);
	for (uint32_t i = s->oracle.wops; i-- > 1 && n < ELSEWHERE;) {
		const struct wop *w = &s->oracle.wop[i];

		if (w->ii != ii || !w->cut || w->end != NEVER)
			continue;
		n++;
		givesup_cut(s, i);
	}
}

/*
 * Node n hears that its incarnation is over, or is about to; what it writes takes a while longer,
 * and of those that are to hear it too one stands still for a moment, of about heartbeat_limit.
 */
void givesup_third_lags(struct sim *s, const struct simnode *n, uint64_t least_us)
{
	uint64_t r = mix64(s->seed ^ s->now ^ 0x6c616773);
	struct simnode *o = &s->node[(n->idx + 1 + r / 2 % (s->o.nodes - 1)) % s->o.nodes];

	if (r % 4 == 0 || s->o.faultless || (s->cli && s->cli->only) || s->planner.healing ||
	    !n->front.open || !o->front.open || !o->proc || o->frozen || o->stopped)
		return;
	stats_fault(s, F_THIRD_LAGS);
	trace(s, "f  n%u lags", o->id);
	dev_linger(s, n, 2 * least_us + r / 4096 % (300 * MS));
	o->lags = true;
	node_stop_daemon(s, o,
			 least_us + r / 64 % (s->o.tun.heartbeat_limit_ms * MS * 3 / 2 - least_us));
}

static void on_lost(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];
	struct event up = {.type = EV_GIVE_UP};

	if (n->proc && n->ii == ev->b)
		node_post(s, n, 0, &up);
}

static bool may_give_up(const struct simnode *n)
{
	return n->proc && n->front.open && !n->frozen && !n->stopped && !n->removing;
}

/*
 * As when somebody makes a node leave the lock space by hand: others have its locks at once. It
 * hears of that before it hears what they say then (lock_kept), or within a second.
 */
static uint64_t locks_left(struct sim *s, struct simnode *n, uint64_t r)
{
	stats_fault(s, F_LOCKS_LEFT);
	s->inc[n->ii].locks_left = true;
	dlm_ended(s, n->ii, r % (5 * MS));
	return r / 32768 % (1000 * MS);
}

static bool may_leave(const struct sim *s, const struct simnode *n)
{
	return s->o.locks == LOCK_EXTERNAL && !s->inc[n->ii].locks_left;
}

/* Once in a seed, of those in which nodes give up: somebody waits for what n writes in. */
bool givesup_leaves(struct sim *s, struct simnode *n)
{
	uint64_t r = mix64(s->seed ^ s->now ^ 0x6c65617665ull);

	if (!s->givesup.leave_at_us || s->now < s->givesup.leave_at_us || s->planner.healing ||
	    !may_give_up(n) || !may_leave(s, n))
		return false;
	s->givesup.leave_at_us = 0;
	stats_look(s);
	stats_fault(s, F_GIVES_UP);
	sim_at(s, locks_left(s, n, r), on_lost, n->idx, n->ii, NULL);
	stats_look_end(s);
	return true;
}

void givesup_heard(struct sim *s, struct simnode *n)
{
	if (!s->inc[n->ii].gave_up_us)
		s->inc[n->ii].gave_up_us = s->now;
}

static void on_give_up(struct sim *s, struct hev *ev)
{
	uint64_t r = mix64(s->seed ^ s->now ^ 0x676976657570);
	struct simnode *n = &s->node[r % s->o.nodes];

	if (s->planner.healing)
		return;
	if (!may_give_up(n) || (r / 8 % 4 && !dev_writes_at(s, n))) {
		sim_at(s, 1 * MS + r / 32 % (5 * MS), on_give_up, ev->a, 0, NULL);
		return;
	}
	stats_look(s);
	stats_fault(s, F_GIVES_UP);
	trace(s, "f  n%u gives up", n->id);
	sim_at(s, may_leave(s, n) && mix64(r) % 2 == 0 ? locks_left(s, n, mix64(r) / 2) : 0,
	       on_lost, n->idx, n->ii, NULL);
	stats_look_end(s);
	if (ev->a)
		sim_at(s, 10 * MS + r / 32 % (900 * MS), on_give_up, ev->a - 1, 0, NULL);
}

static void on_half_fails(struct sim *s, struct hev *ev)
{
	if (s->planner.healing || ev->a == FAIL_TRIES)
		return;
	if (!fault_fits(s, F_ADMIN_FAIL) || !operator_kick(s, ADMIN_FAIL))
		sim_at(s, 10 * MS, on_half_fails, ev->a + 1, 0, NULL);
}

static void on_halves(struct sim *s, struct hev *ev)
{
	const uint32_t comp[SIM_MAX_NODES] = {0, 1};
	uint64_t r = mix64(s->seed ^ s->now);

	(void)ev;
	if (s->planner.healing)
		return;
	group_partition(s, comp);
	group_heal_later(s, (1000 + r % 2000) * MS);
	sim_at(s, s->o.token_us + r / 2048 % (200 * MS), on_half_fails, 0, 0, NULL);
}

/*
 * One of two nodes gives up, mostly the one that leads, and they lose sight of each other before it
 * is back: each half has quorum, and the other has never heard of the incarnation that one begins
 * with. Meanwhile the administrator fails a member, and sees to it that it comes back: so the map
 * changes several times in the half that serves.
 */
static void on_give_up_cut_off(struct sim *s, struct hev *ev)
{
	uint64_t r = mix64(s->seed ^ s->now ^ 0x68616c766573ull);
	struct simnode *n = node_leader(s);

	(void)ev;
	if (s->planner.healing)
		return;
	if (!n || r % 4 == 0)
		n = &s->node[r / 4 % 2];
	if (!may_give_up(n) || !may_give_up(&s->node[1 - n->idx]) || !group_whole(s)) {
		sim_at(s, 5 * MS, on_give_up_cut_off, 0, 0, NULL);
		return;
	}
	stats_look(s);
	stats_fault(s, F_GIVES_UP_ALONE);
	trace(s, "f  n%u gives up, and is about to be cut off", n->id);
	node_post(s, n, 0, &(struct event){.type = EV_GIVE_UP});
	sim_at(s, r / 16 % (150 * MS), on_halves, 0, 0, NULL);
	stats_look_end(s);
}

/* Of its own randomness. */
void givesup_init(struct sim *s)
{
	uint64_t r = mix64(s->seed ^ 0x67697665732d7570ull);

	if (s->o.faultless || (s->cli && s->cli->only))
		return;
	if (s->o.two_node && r / 10000000 % 2)
		sim_at(s, (200 + r / 100 % 3000) * MS, on_give_up_cut_off, 0, 0, NULL);
	if (r % 100 >= 40)
		return;
	sim_at(s, (r / 100 % 3000) * MS, on_give_up, r / 1000000 % 3, 0, NULL);
	s->givesup.leave_at_us = (200 + r / 100 % 3000) * MS;
}
