/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An older copy of a member in its place (R15): a snapshot, or a mirror that had stopped.
 *
 * The copy is made of a member in sync. Once a map has been committed with the member still in it,
 * its exporter goes away for so long that it leaves the map, and comes back with the copy. What was
 * written between the copy and its leaving is in no missed set.
 *
 * It comes while the member is away, or is back as it was; then best while a leader has it enter
 * the map again, by what it was a moment ago. The records of that proposal take long; and mostly
 * another node stands still, so that the proposal comes when the copy is there already, and nobody
 * has lost what the map is to write to.
 *
 * Or the member does not leave, since the data needs it: another is away. Then the copy stands in
 * for it for a while, and is replaced by the right one. Nobody may write to it, nor go by what is
 * there; but once the data does not need it any more it may enter, and be rebuilt as a whole. It is
 * older than the last two commits: after a death of all nodes nobody knows of more than the last
 * but one.
 *
 * In other seeds one node's way leads to the copy for a while, the others' to the member: an
 * address of its own, say. The map drops the member, and all say that it is back. That node may
 * write to the copy only while the member is out or is rebuilt. In every other of these seeds it is
 * long before it can read what it reaches, from when the member is to enter on, and then it may
 * die.
 *
 * Of its own randomness: what else happens does not depend on it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cluster/msg.h"
#include "tests/sim/faults/faults.h"
#include "tests/sim/world.h"

#define LOOK_US (10 * MS)

static void on_look(struct sim *s, struct hev *ev);

static void look_again(struct sim *s)
{
	sim_at(s, LOOK_US, on_look, 0, 0, NULL);
}

static void copy_take(struct sim *s)
{
	uint8_t m = (uint8_t)(mix64(s->seed ^ 0x636f7079) % s->geo.n);
	uint32_t disk = s->checks.disk_of[m];
	struct disk *d = &s->disk[disk];

	if (disk == NONE || !s->checks.map_full || !d->powered || d->dead || !d->sb_valid)
		return;
	s->copy.image = xmalloc(d->bytes);
	memcpy(s->copy.image, d->durable, d->bytes);
	s->copy.disk = disk;
	s->copy.member = m;
	s->copy.epoch = d->sb.map.epoch.num;
	s->copy.until_us = s->now + 5 * s->o.tun.release_delay_ms * MS;
}

static uint32_t dice(const struct sim *s)
{
	return (uint32_t)(mix64(s->seed ^ 0x6f6c64) % 100);
}

static bool wrong_way(const struct sim *s)
{
	return dice(s) >= 50;
}

static void copy_drop(struct sim *s)
{
	free(s->copy.image);
	s->copy.image = NULL;
	s->copy.stands = false;
}

/* In every other seed it waits for a proposal that has the member enter. */
static bool when_it_enters(const struct sim *s)
{
	return mix64(s->seed ^ 0x656e746572) % 2;
}

/* In most of the others. */
static bool stands_in(const struct sim *s)
{
	return !when_it_enters(s) && mix64(s->seed ^ 0x7374616e64) % 3;
}

static bool may_come(struct sim *s)
{
	const struct map_member *mm = &s->checks.map.member[s->copy.member];

	return s->copy.image && s->checks.disk_of[s->copy.member] == s->copy.disk &&
	       !s->disk[s->copy.disk].dead && mm->left && mm->reached > s->copy.epoch &&
	       (mm->state == MEMBER_SUSPECT || mm->state == MEMBER_MISSING);
}

static void comes(struct sim *s, uint64_t off_us)
{
	struct disk *d = &s->disk[s->copy.disk];

	stats_fault(s, F_OLD_COPY);
	d->sb_bad = 0; /* it is another medium */
	trace(s, "w  disk %u is an older copy of itself, of epoch %lu", d->idx, s->copy.epoch);
	if (d->powered)
		fault_exporter_power(s, d->idx, off_us, false);
	disk_restore(s, d, s->copy.image);
	copy_drop(s);
}

static void on_enters(struct sim *s, struct hev *ev)
{
	(void)ev;
	if (!s->planner.healing && may_come(s))
		comes(s, MS + mix64(s->seed ^ s->now) % (10 * MS));
}

/* ---- one node's way ------------------------------------------------------------------------- */

static void dies(struct sim *s, struct simnode *n, uint64_t r)
{
	node_crash(s, n);
	node_power_on_later(s, n, 30 * MS + r % (500 * MS));
}

static void way_changes(struct sim *s, bool wrong)
{
	uint64_t r = mix64(s->seed ^ s->now ^ 0x776179);
	struct simnode *n = &s->node[s->copy.node];
	uint32_t dev = dev_slot_of_disk(n, s->copy.disk);

	trace(s, "w  n%u's way to disk %u leads to %s", n->id, s->copy.disk,
	      wrong ? "an older copy" : "it again");
	s->copy.stands = wrong;
	s->copy.way += wrong;
	s->copy.entries = 0;
	s->copy.until_us = s->now + (300 + r % 2500) * MS;
	if (wrong && n->powered && r / 4096 % 3 == 0) {
		dies(s, n, r / 16384);
	} else if (dev != NONE) {
		dev_break(s, n, dev, -ECONNRESET);
		dev_try(s, n, dev, 1 * MS + r / 16384 % (40 * MS));
	}
}

/* Another node serves with that one as its leader, and reaches the member itself. */
static bool another_looks(const struct sim *s)
{
	const struct simnode *n = &s->node[s->copy.node];

	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (i != n->idx && s->node[i].proc && s->node[i].st.state == ENGINE_ACTIVE &&
		    s->node[i].st.leader == n->id)
			return true;
	return false;
}

static void on_dies(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[s->copy.node];

	if (!s->planner.healing && s->copy.stands && s->copy.way == ev->a && n->powered)
		dies(s, n, mix64(s->seed ^ s->now));
}

/* The member is to enter. A superblock is read so fast that nothing would come in between. */
static void way_enters(struct sim *s)
{
	uint64_t r = mix64(s->seed ^ s->now ^ 0x726561647ull), late_us = r % (2000 * MS);

	if (mix64(s->seed ^ 0x736c6f77) % 2 || s->now < s->copy.unread_until_us)
		return;
	s->copy.unread_until_us = s->now + late_us;
	if (r / 4096 % 2)
		sim_at(s, late_us * (r / 8192 % 1024) / 1024, on_dies, s->copy.way, 0, NULL);
}

/*
 * It leads. What it reaches may enter the map as the member, and is rebuilt: the others see that it
 * is not what they reach. Where nobody else looks it would be the member, and sound; so far this
 * does not go.
 */
static void way_proposed(struct sim *s, uint64_t inc, uint8_t state)
{
	if (s->inc[s->node[s->copy.node].ii].inc == inc &&
	    (state == MEMBER_IN_SYNC || (state == MEMBER_REBUILDING && !another_looks(s)))) {
		way_changes(s, false);
		copy_drop(s);
	} else if (state == MEMBER_REBUILDING) {
		way_enters(s);
	}
}

/* It is another exporter then. */
static void replaced(struct sim *s, bool stands)
{
	struct disk *d = &s->disk[s->copy.disk];

	trace(s, "w  disk %u: %s", d->idx,
	      stands ? "an older copy stands in for it" : "the right one is back");
	s->copy.stands = stands;
	s->copy.since_us = s->now;
	s->copy.until_us = s->now + (200 + mix64(s->seed ^ s->now) % 700) * MS;
	d->instance = s->o.instance_known ? mix64(++s->next_uid) | 1 : 0;
	fault_hide(s, s->copy.disk, (1 + mix64(s->seed + s->now) % 30) * MS);
}

/* The other has been rebuilt meanwhile, and this one left the map (else that is C6). So nobody goes
 * by what is there; to take it back partially would be to, and is not let through. */
static void stand_in_proposed(struct sim *s, const struct map_member *mm)
{
	if (mm->state == MEMBER_REBUILDING && !(mm->flags & MEMBER_F_PARTIAL)) {
		replaced(s, false);
		copy_drop(s);
	}
}

/* A node other than the leader stands still for a moment, and the group with it. */
static void group_rests(struct sim *s, uint64_t inc)
{
	uint64_t r = mix64(s->seed ^ s->now ^ 0x72657374);
	uint32_t leader = s->inc[inc_find(s, inc)].node;
	struct simnode *n;

	if (s->o.nodes == 1 || r / 8 % 4 == 0)
		return;
	n = &s->node[(leader + 1 + r / 32 % (s->o.nodes - 1)) % s->o.nodes];
	if (!n->powered || n->frozen || n->stopped)
		return;
	trace(s, "f  n%u stands still while a member is to enter", n->id);
	stats_fault(s, F_FREEZE);
	node_freeze(s, n, (50 + r / 1024 % 40) * MS);
}

static void enters(struct sim *s, uint64_t inc)
{
	group_rests(s, inc);
	sim_at(s, mix64(s->seed + s->now) % (mix64(s->seed) % 3 ? MS / 5 : 10 * MS), on_enters, 0,
	       0, NULL);
	s->copy.slow_until_us = s->now + 15 * MS;
}

/* A message of the group is on its way. */
void oldcopy_sent(struct sim *s, const void *data, size_t bytes)
{
	bool may = when_it_enters(s) && may_come(s);
	Ddraid__NodeMsg *m;
	struct map map;

	if (!may && !s->copy.stands)
		return;
	m = ddraid__node_msg__unpack(NULL, bytes, data);
	if (m && m->body_case == DDRAID__NODE_MSG__BODY_PROPOSE &&
	    pb_map_read(&map, m->propose->map)) {
		const struct map_member *mm = &map.member[s->copy.member];

		if (s->copy.stands && s->copy.node != NONE)
			way_proposed(s, m->inc, mm->state);
		else if (s->copy.stands)
			stand_in_proposed(s, mm);
		else if (may && mm->state == MEMBER_REBUILDING && mm->flags & MEMBER_F_PARTIAL)
			enters(s, m->inc);
	}
	if (m)
		ddraid__node_msg__free_unpacked(m, NULL);
}

/* How much longer a node's record takes that is written now. */
uint64_t oldcopy_late_us(struct sim *s)
{
	return s->now < s->copy.slow_until_us ? mix64(s->seed ^ s->now) % (80 * MS) : 0;
}

/* Of a map that a new leader took from the members, and nobody has committed, all may be gone but
 * the superblocks that name an older one as committed. */
static bool older_than_known(const struct sim *s)
{
	uint64_t known = 0;

	for (uint32_t i = 0; i < s->o.disks; i++)
		if (s->checks.member_of[i] != NONE && s->disk[i].sb_valid &&
		    s->disk[i].sb.committed.num > known)
			known = s->disk[i].sb.committed.num;
	return s->copy.commits >= 2 && s->copy.epoch < known;
}

static bool may_stand_in(struct sim *s)
{
	const struct map *map = &s->checks.map;
	const struct disk *d = &s->disk[s->copy.disk];
	uint32_t in_sync = 0;

	for (uint8_t i = 0; i < map->n; i++)
		in_sync += map->member[i].state == MEMBER_IN_SYNC;
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (s->node[i].st.proposing)
			return false;
	return older_than_known(s) && in_sync == s->geo.k && d->powered && !d->hidden &&
	       map->member[s->copy.member].state == MEMBER_IN_SYNC;
}

static void stand_in_look(struct sim *s)
{
	if (s->copy.stands && s->now >= s->copy.until_us) {
		replaced(s, false);
		copy_drop(s);
	} else if (!s->copy.stands && may_stand_in(s)) {
		stats_fault(s, F_OLD_COPY);
		replaced(s, true);
	}
}

static bool may_go_wrong(const struct sim *s)
{
	const struct disk *d = &s->disk[s->copy.disk];

	return older_than_known(s) && s->checks.map_full && breaks_unharmed(s) && d->powered &&
	       !d->hidden && s->checks.map.member[s->copy.member].state == MEMBER_IN_SYNC;
}

/* Once it is known for a copy, it is not tried again. An operator may. */
static void entries_count(struct sim *s)
{
	const struct simnode *n = &s->node[s->copy.node];
	uint8_t state = s->checks.map.member[s->copy.member].state;

	if (n->ii != s->copy.entries_ii || n->st.state != ENGINE_ACTIVE)
		s->copy.entries = 0;
	s->copy.entries_ii = n->ii;
	s->copy.entries += state == MEMBER_REBUILDING && s->copy.was == MEMBER_SUSPECT;
	s->copy.was = state;
	if (s->copy.entries >
	    2) /* the leader lets it in without delay so often (member_kept_out_us) */
		sim_fail(s, "LIVENESS",
			 "member %u enters the map again and again, and node %u reaches a copy",
			 s->copy.member, n->id);
}

static void way_look(struct sim *s)
{
	if (s->copy.stands)
		entries_count(s);
	if (s->copy.stands && s->now >= s->copy.until_us) {
		way_changes(s, false);
		copy_drop(s);
	} else if (!s->copy.stands && may_go_wrong(s)) {
		stats_fault(s, F_WRONG_WAY);
		s->copy.node = (uint32_t)(mix64(s->seed ^ s->now) % s->o.nodes);
		way_changes(s, true);
	}
}

/* ---- requests ------------------------------------------------------------------------------- */

/* Its own node's alone. */
static void way_written(struct sim *s, const struct req *r, uint32_t from, uint32_t to)
{
	const struct map_member *mm = &s->checks.map.member[s->copy.member];

	if (mm->state == MEMBER_IN_SYNC && s->checks.disk_of[s->copy.member] == s->copy.disk)
		sim_fail(s, "C1", "node %u writes to an older copy of member %u, which is in sync",
			 s->node[r->node].id, s->copy.member);
	else if (r->op == DEV_WRITE)
		memcpy(s->copy.image + r->offset + from, r->buf + from, to - from);
	else
		memset(s->copy.image + r->offset + from, 0, to - from);
}

void oldcopy_issued(const struct sim *s, struct req *r)
{
	if (s->copy.stands && s->copy.node == r->node && r->disk == s->copy.disk)
		r->way = s->copy.way;
}

/* How much longer it takes to read what its own node takes for the member. */
uint64_t oldcopy_unread_us(const struct sim *s, const struct req *r)
{
	return r->way && r->op == DEV_READ && r->offset <= geo_sb_offset(SB_COPIES - 1) &&
		       !s->planner.healing && s->now < s->copy.unread_until_us
		   ? s->copy.unread_until_us - s->now
		   : 0;
}

bool oldcopy_met(const struct sim *s, const struct simnode *n, uint32_t disk)
{
	return s->copy.disk == disk &&
	       (s->copy.since_us || (s->copy.way && s->copy.node == n->idx));
}

bool oldcopy_lands(struct sim *s, struct req *r, uint32_t from, uint32_t to)
{
	bool stands =
	    s->copy.stands && r->disk == s->copy.disk &&
	    (s->copy.node == NONE ? r->issued_us >= s->copy.since_us : r->way == s->copy.way);

	if (!stands)
		return r->way; /* what was sent to a copy which is no more */
	if (r->op == DEV_READ)
		memcpy(r->buf + from, s->copy.image + r->offset + from, to - from);
	else if (r->kind == KIND_USE) /* whoever is told so uses it */
		memcpy(s->copy.image + r->offset + from, r->buf + from, to - from);
	else if (r->op != DEV_FLUSH && s->copy.node != NONE)
		way_written(s, r, from, to);
	else if (r->op == DEV_WRITE)
		sim_fail(s, "C1", "node %u writes to an older copy of member %u",
			 s->node[r->node].id, s->copy.member);
	return true;
}

static void on_look(struct sim *s, struct hev *ev)
{
	struct disk *d = &s->disk[s->copy.disk];
	const struct map_member *mm = &s->checks.map.member[s->copy.member];

	(void)ev;
	if (s->planner.healing) {
		if (s->copy.stands && wrong_way(s))
			way_changes(s, false);
		else if (s->copy.stands)
			replaced(s, false);
		copy_drop(s);
		return;
	}
	look_again(s);
	s->copy.commits += s->copy.num != s->checks.map.epoch.num;
	s->copy.num = s->checks.map.epoch.num;
	if (!s->copy.image) {
		copy_take(s);
		s->copy.commits = 0;
	} else if (wrong_way(s)) {
		if (s->copy.stands ||
		    (s->checks.disk_of[s->copy.member] == s->copy.disk && !d->dead))
			way_look(s);
		else
			copy_drop(s);
	} else if (stands_in(s) && s->checks.disk_of[s->copy.member] == s->copy.disk && !d->dead) {
		stand_in_look(s);
	} else if (s->checks.disk_of[s->copy.member] != s->copy.disk || d->dead) {
		copy_drop(s); /* another device is the member now */
	} else if (may_come(s)) {
		if (!when_it_enters(s) && mix64(s->seed ^ s->now) % 8 == 0)
			comes(s, 20 * MS);
	} else if (s->checks.map.epoch.num > s->copy.epoch && !s->copy.hidden &&
		   s->now > s->copy.until_us && fault_may_strike(s, s->copy.disk) &&
		   mm->state == MEMBER_IN_SYNC && !d->hidden) {
		s->copy.hidden = true; /* once */
		/* It comes back by itself before member_retry, or is given up. If it is soon, less
		 * is written meanwhile that would be copied anyway. */
		fault_hide(s, s->copy.disk,
			   (when_it_enters(s)    ? 40 + mix64(s->seed) % 100
			    : mix64(s->seed) & 3 ? 350
						 : 700) *
			       MS);
	}
}

void oldcopy_init(struct sim *s)
{
	s->copy.node = NONE;
	if (!s->o.faultless && !(s->cli && s->cli->only) && dice(s) < (s->o.nodes > 1 ? 75 : 50))
		sim_at(s, 300 * MS + mix64(s->seed) % (700 * MS), on_look, 0, 0, NULL);
}
