/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * All nodes are stopped in order, or all die at once, and a member comes back as it was earlier in
 * that run: a snapshot of its exporter that is put back meanwhile. The map may have stayed the
 * same for the whole run, so nothing but what the last node writes before it leaves (leave_sealed)
 * tells that the copy is an older one. Who starts the array must find that, and rebuild the member
 * as a whole.
 *
 * It comes when all else is over and the array is whole: the copy is made, consumers write on for
 * a while, then the nodes are asked to stop, at once or one after the other, and none starts again
 * before all have stopped. A member may be slow then, or their records, or one of them dies. If
 * all have left in order, and none has said that it took too long (unsealed), the members must
 * tell of such an epoch. All is let go, and nothing rolled back, if they don't, if a node is
 * removed from the array meanwhile, and would have to be asked again, or if one can't leave in
 * order. So it is if a member has left the map while they stopped: the data needs all others then.
 *
 * If all die, the others' pages of the log must tell: two images of one page that are newer than
 * what the copy has. If none does, what lacks is in regions that are dirty still, and nobody can
 * know; so it is let go. While the array starts the connections to the copy may break for a moment,
 * or to another member, or one of them is there only later. Or the copy comes when the first map
 * has dropped it, and all have died once more, or one starts so late that its round crosses that
 * map.
 *
 * Of its own randomness.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/faults/faults.h"
#include "tests/sim/world.h"

#define LOOK_US (5 * MS)
#define PATIENCE_US (5000 * MS)

static uint64_t draw(const struct sim *s, uint64_t what, uint64_t below)
{
	return mix64(s->seed ^ mix64(what ^ 0x726f6c6c)) % below;
}

static void copy_take(struct sim *s)
{
	uint32_t disk = s->checks.disk_of[draw(s, 1, s->geo.n)];
	const struct disk *d = &s->disk[disk];

	s->rollback.image = xmalloc(d->bytes);
	memcpy(s->rollback.image, d->durable, d->bytes);
	s->rollback.disk = disk;
	s->rollback.epoch = d->sb.map.epoch.num;
	trace(s, "w  disk %u: a copy is made of epoch %lu", disk, s->rollback.epoch);
}

/* And nothing is on its way to the disk that its exporter would write over what was rolled back. */
static bool all_stopped(const struct sim *s)
{
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (s->node[i].proc && !s->node[i].stopped_itself)
			return false;
	for (uint32_t i = 0; i < s->reqs; i++)
		if (s->req[i]->used && s->req[i]->orphan && s->req[i]->disk == s->rollback.disk)
			return false;
	return true;
}

/* An epoch that was committed after the copy was made: so enough members say themselves. */
static bool told(const struct sim *s)
{
	uint32_t tell = 0;

	for (uint32_t i = 0; i < s->o.disks; i++)
		tell += i != s->rollback.disk && s->checks.member_of[i] != NONE &&
			s->disk[i].sb_valid && s->disk[i].sb.committed.num > s->rollback.epoch;
	return tell >= s->geo.k;
}

/* The numbers of the newer and the older image of a page; 0: it is not intact. */
static void numbers(const struct sim *s, const uint8_t *image, uint32_t slot, uint32_t page,
		    uint64_t seq[2])
{
	struct logpage lp;

	seq[0] = seq[1] = 0;
	for (uint32_t c = 0; c < 2; c++) {
		uint64_t at = geo_log_offset(&s->geo, slot, page, c);

		if (logpage_decode(&lp, image + at))
			continue;
		seq[1] = lp.seq > seq[0] ? seq[0] : lp.seq;
		seq[0] = lp.seq > seq[0] ? lp.seq : seq[0];
	}
}

static bool page_tells(const struct sim *s, uint32_t slot, uint32_t page)
{
	uint64_t has[2], other[2], first = s->rollback.epoch << 36;

	numbers(s, s->rollback.image, slot, page, has);
	for (uint32_t i = 0; i < s->o.disks; i++) {
		if (i == s->rollback.disk || s->checks.member_of[i] == NONE)
			continue;
		numbers(s, s->disk[i].cached, slot, page, other);
		if (other[1] <= has[0] || other[1] < first)
			return false;
	}
	return s->geo.n > 2;
}

/* All members are as they were, and those that were in sync are so still. */
static bool pages_tell(const struct sim *s)
{
	for (uint32_t i = 0; i < s->o.disks; i++) {
		const struct disk *d = &s->disk[i];

		if (s->checks.member_of[i] == NONE)
			continue;
		if (!d->powered || d->hidden || d->dead || d->spot || d->cache_lost ||
		    !s->checks.map_full || d->sb.map.epoch.num != s->rollback.epoch)
			return false;
	}
	for (uint32_t slot = 0; slot <= s->geo.p.slots; slot++)
		for (uint32_t page = 0; page < s->geo.log_pages; page++)
			if (page_tells(s, slot, page))
				return true;
	return false;
}

static void on_breaks(struct sim *s, struct hev *ev)
{
	trace(s, "w  disk %lu is gone for a moment", ev->a);
	fault_hide(s, (uint32_t)ev->a, (1 + draw(s, 31, 10)) * MS);
}

static void kill_all(struct sim *s)
{
	trace(s, "w  all nodes die");
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		node_crash(s, &s->node[i]);
		node_power_on_later(s, &s->node[i], 100 * MS);
	}
}

static void on_all_die(struct sim *s, struct hev *ev)
{
	(void)ev;
	kill_all(s);
}

static void on_one_dies(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[draw(s, 37, s->o.nodes)];

	(void)ev;
	trace(s, "w  n%u dies", n->id);
	node_crash(s, n);
	node_power_on_later(s, n, (100 + draw(s, 38, 2500)) * MS);
}

static void disturb_start(struct sim *s)
{
	uint8_t m = (uint8_t)(s->checks.member_of[s->rollback.disk] + 1 + draw(s, 32, 2));
	uint32_t other = s->checks.disk_of[m % s->geo.n];
	/* Two others are to tell. */
	uint32_t disk = s->geo.n < 4 || draw(s, 33, 2) ? s->rollback.disk : other;

	switch (draw(s, 30, 4)) {
	case 0:
		fault_hide(s, disk, (1 + draw(s, 34, 2500)) * MS);
		break;
	case 1:
	case 2:
		sim_at(s, 95 * MS + draw(s, 35, 200 * MS), on_breaks, disk, 0, NULL);
		break;
	case 3:
		fault_hide(s, s->rollback.disk, (1500 + draw(s, 34, 4000)) * MS);
		if (draw(s, 39, 2))
			sim_at(s, (1800 + draw(s, 36, 4000)) * MS, on_all_die, 0, 0, NULL);
		else
			sim_at(s, 95 * MS + draw(s, 36, 10 * MS), on_one_dies, 0, 0, NULL);
		break;
	}
}

static void roll_back(struct sim *s)
{
	struct disk *d = &s->disk[s->rollback.disk];

	stats_fault(s, s->rollback.crash ? F_ROLLED_BACK_CRASH : F_ROLLED_BACK);
	trace(s, "w  disk %u is rolled back to epoch %lu", d->idx, s->rollback.epoch);
	d->sb_bad = 0;
	disk_restore(s, d, s->rollback.image);
	risk_harmed(s, d->idx);
	if (s->rollback.crash)
		disturb_start(s);
}

/* Somebody goes on under another incarnation. */
static bool removed(const struct sim *s)
{
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (s->node[i].ii != s->rollback.ii[i])
			return true;
	return false;
}

/* What was sent to a device that is dead keeps its node from leaving in order. */
static void break_off(struct sim *s)
{
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		struct simnode *n = &s->node[i];

		if (!n->proc || n->stopped_itself)
			continue;
		node_crash(s, n);
		node_power_on_later(s, n, 100 * MS);
	}
	s->rollback.holds = false;
}

static void on_look(struct sim *s, struct hev *ev)
{
	bool tells;

	(void)ev;
	if (removed(s)) {
		s->rollback.holds = false;
		return;
	}
	if (s->now > s->rollback.asked_us + PATIENCE_US) {
		break_off(s);
		return;
	}
	if (!all_stopped(s)) {
		sim_at(s, LOOK_US, on_look, 0, 0, NULL);
		return;
	}
	tells = s->rollback.crash ? pages_tell(s) : told(s);
	if (tells && s->checks.map_full)
		roll_back(s);
	else if (!tells && !s->rollback.crash && !s->rollback.crashed && !s->rollback.unsealed)
		sim_fail(s, "R1", "all nodes were stopped in order, and the members don't tell");
	s->rollback.holds = false;
}

static void on_dies(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];

	if (!s->rollback.holds || !n->proc || n->stopped_itself)
		return;
	s->rollback.crashed = true;
	node_crash(s, n);
	node_power_on_later(s, n, 100 * MS);
}

/* How much longer a record takes that is written now. */
uint64_t rollback_record_us(struct sim *s)
{
	return s->rollback.holds && s->rollback.slow_records ? mix64(s->seed ^ s->now) % (100 * MS)
							     : 0;
}

static void disturb(struct sim *s)
{
	uint64_t us = draw(s, 21, 300 * MS);

	switch (draw(s, 20, 6)) {
	case 0:
		s->disk[draw(s, 22, s->o.disks)].slow_until_us = s->now + 3 * us;
		break;
	case 1:
		s->rollback.slow_records = true;
		break;
	case 2:
		sim_at(s, us, on_dies, draw(s, 22, s->o.nodes), 0, NULL);
		break;
	}
}

void rollback_stopped(struct sim *s, bool unsealed)
{
	s->rollback.unsealed |= unsealed;
}

static void stop_all(struct sim *s)
{
	bool at_once = draw(s, 2, 2);

	s->rollback.holds = true;
	s->rollback.asked_us = s->now;
	for (uint32_t i = 0; i < s->o.nodes; i++)
		s->rollback.ii[i] = s->node[i].ii;
	sim_at(s, LOOK_US, on_look, 0, 0, NULL);
	if (s->rollback.crash) {
		kill_all(s);
		return;
	}
	trace(s, "w  all nodes are to stop");
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		struct event stop = {.type = EV_ADMIN};

		stop.admin.cmd = ADMIN_STOP;
		stop.admin.tag = mix64(++s->next_uid) | 1; /* nobody waits for the answer */
		node_post(s, &s->node[i], draw(s, 3 + i, (at_once ? 1 : 300) * MS), &stop);
	}
	disturb(s);
}

/* No daemon is started before all have stopped. */
bool rollback_holds(const struct sim *s)
{
	return s->rollback.holds;
}

/* The array is whole. True: it goes on from here. */
bool rollback_act(struct sim *s)
{
	uint64_t dice = draw(s, 0, 100);

	if (s->rollback.over || s->o.faultless || (s->cli && s->cli->only) || dice >= 25)
		return false;
	s->rollback.crash = dice >= 15;
	if (!s->rollback.image) {
		copy_take(s);
		return true;
	}
	s->rollback.over = true;
	stop_all(s);
	return true;
}
