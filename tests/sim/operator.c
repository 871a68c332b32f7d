/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The administrator: fails members, and sees to it that lost ones come back or are replaced.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

#define PATIENCE_US (1500 * MS)

static void on_operator(struct sim *s, struct hev *ev);

static struct simnode *console(struct sim *s)
{
	struct simnode *leader = node_leader(s);
	uint32_t i = rng_below(&s->rng, s->o.nodes);

	if (leader && leader->st.state == ENGINE_ACTIVE && rng_chance(&s->rng, 600))
		return leader;
	for (uint32_t k = 0; k < s->o.nodes; k++, i = (i + 1) % s->o.nodes) {
		struct simnode *n = &s->node[i];

		if (n->proc && n->st.state == ENGINE_ACTIVE && !n->frozen && !n->stopped)
			return n;
	}
	return NULL;
}

/* For whoever hears the world. */
static void tell(struct sim *s, const struct simnode *n, enum admin_cmd cmd, uint8_t member)
{
	if (cmd == ADMIN_FAIL)
		world_tell(s, n, "the administrator takes member %u out", member);
	else if (cmd == ADMIN_ADD)
		world_tell(s, n, "the administrator makes another disk member %u", member);
	else if (cmd == ADMIN_READD)
		world_tell(s, n, "the administrator takes member %u back", member);
}

bool operator_ask(struct sim *s, enum admin_cmd cmd, uint8_t member, uint32_t disk)
{
	struct simnode *n = console(s);
	struct event ev = {.type = EV_ADMIN};
	struct nev *nev;

	if (!n)
		return false;
	ev.admin.tag = s->operator.tag = mix64(++s->next_uid);
	ev.admin.cmd = cmd;
	ev.admin.member = member;
	nev = nev_new(&ev, disk == NONE ? NULL : s->disk[disk].uri,
		      disk == NONE ? 0 : sizeof(s->disk[disk].uri));
	s->operator.node = n->idx;
	s->operator.gen = n->gen;
	s->operator.busy_us = s->now + PATIENCE_US;
	s->operator.fails = cmd == ADMIN_FAIL;
	s->operator.adds = cmd == ADMIN_ADD;
	if (s->operator.adds)
		rival_add_asked(s, disk);
	tell(s, n, cmd, member);
	node_post_nev(s, n, s->now, nev);
	return true;
}

void operator_answer(struct sim *s, struct simnode *n, uint64_t tag, int err, const char *why)
{
	trace(s, "a  answer %d %s", err, why ? why : "");
	world_tell(s, n, "the administrator is told: %s", err ? why : "done");
	if (tag != s->operator.tag) {
		if (tag == s->operator.last || !tag)
			sim_fail(s, "C8", "node %u answered an administrator's command twice",
				 n->id);
		return;
	}
	s->operator.refused = err != 0;
	if (s->operator.adds)
		rival_add_answered(s, err);
	s->operator.last = tag;
	s->operator.tag = 0;
	s->operator.busy_us = 0;
}

/* A disk that is no member: one that never was, if there is one. */
static uint32_t fresh_disk(const struct sim *s)
{
	uint32_t found = NONE;

	for (uint32_t i = 0; i < s->o.disks; i++) {
		const struct disk *d = &s->disk[i];

		if (d->dead || !d->powered || d->hidden || s->checks.member_of[i] != NONE)
			continue;
		if (found == NONE || (s->disk[found].sb_valid && !d->sb_valid))
			found = i;
	}
	return found;
}

static bool usable(const struct sim *s, uint32_t disk)
{
	return disk != NONE && s->disk[disk].powered && !s->disk[disk].dead &&
	       !s->disk[disk].hidden;
}

static bool replace(struct sim *s, uint8_t m)
{
	uint32_t own = s->checks.disk_of[m], disk = own;

	if (!usable(s, own) || (!s->planner.healing && rng_chance(&s->rng, 500)))
		disk = fresh_disk(s);
	if (disk == NONE)
		disk = own;
	if (!usable(s, disk) || !operator_ask(s, ADMIN_ADD, m, disk))
		return false;
	stats_fault(s, F_ADMIN_ADD);
	return true;
}

static bool bring_back(struct sim *s, uint8_t m)
{
	uint8_t state = s->checks.map.member[m].state;

	if (state != MEMBER_MISSING && state != MEMBER_FAULTY)
		return false;
	if (state == MEMBER_MISSING && usable(s, s->checks.disk_of[m]) &&
	    (!s->operator.refused || rng_chance(&s->rng, 500))) {
		if (!operator_ask(s, ADMIN_READD, m, NONE))
			return false;
		stats_fault(s, F_ADMIN_READD);
		return true;
	}
	return replace(s, m);
}

static void on_operator(struct sim *s, struct hev *ev)
{
	(void)ev;
	if (s->phase > PHASE_IDLE)
		return;
	sim_at(s, rng_range(&s->rng, 40 * MS, 250 * MS), on_operator, 0, 0, NULL);
	if (s->now < s->operator.busy_us ||(!s->planner.healing && rng_chance(&s->rng, 500)))
		return;
	for (uint8_t m = 0; m < s->geo.n; m++)
		if (bring_back(s, m))
			return;
}

bool operator_is_failing(const struct sim *s)
{
	return s->operator.fails && s->now<s->operator.busy_us;
}

bool operator_kick(struct sim *s, enum admin_cmd cmd)
{
	uint8_t m = (uint8_t)rng_below(&s->rng, s->geo.n);

	if (cmd == ADMIN_FAIL && s->checks.map.member[m].state != MEMBER_IN_SYNC)
		return false;
	return operator_ask(s, cmd, m, NONE);
}

static void on_stop_joining(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];
	struct event stop = {.type = EV_ADMIN};

	if (s->planner.healing || !n->proc || n->gen != ev->b || n->st.state != ENGINE_JOINING ||
	    n->frozen || n->stopped)
		return;
	stats_look(s);
	stats_fault(s, F_STOP_JOINING);
	trace(s, "f  n%u is stopped before it serves", n->id);
	stop.admin.cmd = ADMIN_STOP;
	stop.admin.tag = mix64(++s->next_uid) | 1; /* nobody waits for the answer */
	node_post(s, n, 0, &stop);                 /* it starts again by itself */
	stats_look_end(s);
}

/* Some nodes are stopped again before they serve. Of its own randomness. */
void operator_started(struct sim *s, const struct simnode *n)
{
	uint64_t r = mix64(s->seed ^ s->inc[n->ii].inc << 8 ^ 0x73746f70ull);

	if (!s->o.faultless && !s->planner.healing && !(s->cli && s->cli->only) && r % 16 == 0)
		sim_at(s, r / 16 % (200 * MS), on_stop_joining, n->idx, n->gen, NULL);
}

void operator_init(struct sim *s)
{
	sim_at(s, rng_range(&s->rng, 40 * MS, 250 * MS), on_operator, 0, 0, NULL);
}
