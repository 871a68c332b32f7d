/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * R15: a slot with missed bits changes hands, and its new owner is slow to read it.
 *
 *   a member is away -> a node that has written dies or stops, and is back -> it is given a slot of
 *   the dirty log, and its reads of log pages take long -> the leader dies -> the member is back,
 *   and is rebuilt from what the nodes say of their slots
 *
 * The other nodes' consumers rest meanwhile: what they would write is in their own slots, too. So
 * does the planner.
 *
 * Of its own randomness.
 */
#include "tests/sim/faults/faults.h"
#include "tests/sim/world.h"

#define PATIENCE_US (3000 * MS)
#define TRIES 8u

static uint64_t draw(const struct sim *s, uint64_t salt, uint64_t below)
{
	return mix64(s->seed ^ s->now ^ salt) % below;
}

static bool steady(const struct sim *s)
{
	return !s->planner.healing && s->now > s->planner.cluster_down_until;
}

static void on_begin(struct sim *s, struct hev *ev);

/* Another fault came in between. */
static void try_later(struct sim *s)
{
	s->slotread.armed = false;
	s->slotread.rest_until_us = 0;
	if (s->slotread.tries++ < TRIES)
		sim_at(s, 100 * MS, on_begin, 0, 0, NULL);
}

static void on_leader_dies(struct sim *s, struct hev *ev)
{
	struct simnode *n = node_leader(s);

	(void)ev;
	if (!steady(s) || !n || n->idx == s->slotread.node || !n->powered) {
		try_later(s);
		return;
	}
	stats_look(s);
	stats_fault(s, F_SLOT_UNREAD);
	trace(s, "f  n%u dies while n%u has not read its slot", n->id, s->slotread.node + 1);
	node_crash(s, n);
	node_power_on_later(s, n, (100 + draw(s, 1, 900)) * MS);
	stats_look_end(s);
}

/* A node that joins reads the slot that it was given. */
uint64_t slotread_late_us(struct sim *s, const struct req *r)
{
	const struct simnode *n = &s->node[r->node];

	if (!s->slotread.armed || r->node != s->slotread.node || r->kind != KIND_LOG ||
	    r->op != DEV_READ || n->st.state != ENGINE_JOINING || n->st.leading)
		return 0;
	if (s->now > s->slotread.until_us) {
		s->slotread.armed = false;
		return 0;
	}
	if (!s->slotread.met) {
		s->slotread.met = true;
		s->slotread.until_us = s->now + (600 + draw(s, 2, 1800)) * MS;
		sim_at(s, draw(s, 3, 60 * MS), on_leader_dies, 0, 0, NULL);
	}
	return s->slotread.until_us - s->now;
}

bool slotread_rests(const struct sim *s, const struct simnode *n)
{
	return s->now < s->slotread.rest_until_us && n->idx != s->slotread.node;
}

static bool serves(const struct simnode *n)
{
	return n->powered && n->proc && !n->frozen && !n->stopped && n->st.state == ENGINE_ACTIVE;
}

/* It has written while the member was away: what that missed is in its slot. */
static void on_leaves(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[s->slotread.node];
	struct event stop = {.type = EV_ADMIN};

	if (s->checks.map_full && ev->a < 20) {
		sim_at(s, 20 * MS, on_leaves, ev->a + 1, 0, NULL);
		return;
	}
	if (!steady(s) || s->checks.map_full || node_leader(s) == n || !serves(n)) {
		try_later(s);
		return;
	}
	s->slotread.armed = true;
	s->slotread.met = false;
	s->slotread.until_us = s->slotread.rest_until_us = s->now + PATIENCE_US;
	if (draw(s, 5, 2)) {
		node_kill_daemon(s, n);
		node_start_later(s, n, (1 + draw(s, 6, 100)) * MS);
	} else {
		stop.admin.cmd = ADMIN_STOP;
		stop.admin.tag = mix64(++s->next_uid) | 1; /* nobody waits for the answer */
		node_post(s, n, 0, &stop);                 /* it starts again by itself */
	}
}

static void on_member_leaves(struct sim *s, struct hev *ev)
{
	uint32_t disk = s->checks.disk_of[draw(s, 7, s->geo.n)];

	(void)ev;
	if (disk == NONE || !breaks_unharmed(s) || !steady(s) || !s->checks.map_full) {
		try_later(s);
		return;
	}
	fault_hide(s, disk, (900 + draw(s, 8, 1800)) * MS);
	sim_at(s, (150 + draw(s, 9, 400)) * MS, on_leaves, 0, 0, NULL);
}

static void on_begin(struct sim *s, struct hev *ev)
{
	struct simnode *leader = node_leader(s), *n = &s->node[draw(s, 4, s->o.nodes)];

	(void)ev;
	if (s->planner.healing)
		return;
	if (n == leader)
		n = &s->node[(n->idx + 1) % s->o.nodes];
	if (!leader || !steady(s) || !s->checks.map_full || !serves(n)) {
		sim_at(s, 20 * MS, on_begin, 0, 0, NULL);
		return;
	}
	s->slotread.node = n->idx;
	s->slotread.rest_until_us = s->now + PATIENCE_US;
	sim_at(s, 250 * MS, on_member_leaves, 0, 0, NULL); /* what the others wrote is clean */
}

void slotread_init(struct sim *s)
{
	uint64_t r = mix64(s->seed ^ 0x736c6f74ull);

	if (s->o.faultless || s->o.nodes < 3 || (s->cli && s->cli->only) || r % 100 >= 30)
		return;
	sim_at(s, (300 + r / 100 % 700) * MS, on_begin, 0, 0, NULL);
}
