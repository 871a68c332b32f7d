/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * HELD (use.c): the array's use is this run's. Each node renews the claim, and has a lease by its
 * own writes; when the lease has run out it looks whether the claim still stands. The last node
 * gives it back.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/core/cluster/use_int.h"

#define LEASE_RENEWALS 3u /* the lease is so many of them */

uint64_t use_lease_length(const struct engine *e)
{
	return LEASE_RENEWALS * 1000ull * e->cfg.tun.renew_ms;
}

/* The lease counts from the oldest write of the newest so many. */
static uint64_t lease_by(const struct engine *e, const struct map *map)
{
	uint64_t best[DDR_MAX_MEMBERS] = {0}, least = UINT64_MAX;
	uint32_t insync = map ? map_insync_mask(map) : 0;

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		uint8_t m = use_member(e, i, map);

		if (m != NO_MEMBER && insync >> m & 1 && e->c->use.dev[i].held_us > best[m])
			best[m] = e->c->use.dev[i].held_us;
	}
	for (int need = use_needed(e, map); need > 0; need--) {
		uint8_t newest = 0;

		for (uint8_t m = 1; m < DDR_MAX_MEMBERS; m++)
			if (best[m] > best[newest])
				newest = m;
		least = best[newest] < least ? best[newest] : least;
		best[newest] = 0;
	}
	if (!insync || !least || least == UINT64_MAX)
		return 0;
	return least + use_lease_length(e);
}

/* Until when the lease runs: as long as a map is proposed others may read it, or the one before. */
uint64_t use_lease_end(const struct engine *e)
{
	uint64_t end = lease_by(e, use_map(e)), before;

	if (!use_told(e) || !e->view.proposing)
		return end;
	before = lease_by(e, &e->map);
	return before < end ? before : end;
}

bool use_lease_runs(const struct engine *e)
{
	const struct use *u = &e->c->use;

	return u->state == USE_HELD && u->check == CHECK_DONE &&
	       (e->now < u->lease_us || !e->cfg.tun.claim_ms);
}

/* Asked for each request, of every node: one that joins writes its slot of the log. The lease
 * itself is worked out when a write of the claim has landed. */
bool use_lease(const struct engine *e)
{
	return use_lease_runs(e) || !e->cfg.tun.claim_ms;
}

/* There was none for a while since then: this node stood still, or the members did. */
bool use_lapsed(const struct engine *e, uint64_t since_us)
{
	return e->cfg.tun.claim_ms && (!use_lease_runs(e) || e->c->use.checked_us > since_us);
}

/*
 * There is no lease, and the members are why: for longer than it takes to get one back, too few of
 * them have answered anything here. A node that stood still has no lease either, and gets it back.
 */
bool use_hangs(const struct engine *e)
{
	uint64_t most = use_lease_length(e) + 2000ull * e->cfg.tun.renew_ms;
	const struct map *map = use_map(e);
	uint32_t mask = 0;

	if (use_lease(e))
		return false; /* asked for each request */
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		uint8_t m = use_member(e, i, map);

		if (m != NO_MEMBER && e->now - e->c->use.dev[i].answered_us < most)
			mask |= 1u << m;
	}
	return map && __builtin_popcount(mask & map_insync_mask(map)) < use_needed(e, map);
}

bool use_fails(const struct engine *e, uint32_t dev)
{
	return e->c->use.dev[dev].failed;
}

uint64_t use_answered_us(const struct engine *e, uint32_t dev)
{
	return e->c->use.dev[dev].asked_us;
}

uint64_t use_wrote_us(const struct engine *e, uint32_t dev)
{
	return e->c->use.dev[dev].held_us;
}

/* Not for each word of a node that never ends to ask. */
void use_hurry(struct engine *e)
{
	struct use *u = &e->c->use;
	uint64_t at = u->hurried_us + 100ull * e->cfg.tun.renew_ms;

	if (u->state != USE_HELD || u->check != CHECK_DONE)
		return;
	if (at < e->now)
		at = e->now;
	if (at >= u->next_us)
		return;
	u->next_us = u->hurried_us = at;
}

uint64_t engine_use_until_us(const struct engine *e)
{
	return e->cfg.tun.claim_ms ? e->c->use.lease_us : UINT64_MAX;
}

/* Each node that serves, or is about to: none depends on another, whose way to the members may be
 * broken. And who leads before it serves. */
static bool renews(const struct engine *e)
{
	return e->view.have_geo && (use_told(e) || leading(e));
}

static void give_up(struct engine *e)
{
	struct use *u = &e->c->use;
	char name[USE_NAME_BYTES] = "somebody who is gone";

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (u->dev[i].taken && u->dev[i].got.claim)
			useblock_name(&u->dev[i].got, name);
	snprintf(u->why, sizeof(u->why),
		 "its members were taken by %s while this node did not show that it uses them",
		 name);
	if (use_told(e))
		round_give_up(e);
	else
		use_lost_before_told(e, LOOK_AGAIN_US);
}

/*
 * Whoever renews has read the block. Another's claim may be an old write that has landed late, or
 * that of somebody who has looked while this node stood still: it is written over, and finds that.
 * If it comes back, somebody holds the array who does not look, like this node: both give up. And
 * if the claim is gone, somebody had the array, and has given it back.
 *
 * A member alone says nothing: it may have come back with what it carried, and an exporter may
 * return anything. Whoever takes the array takes k members.
 */
void use_renew_read(struct engine *e, struct use_dev *d)
{
	const struct useblock *got = &d->got;
	struct use *u = &e->c->use;

	if (u->state != USE_HELD || u->check != CHECK_DONE || !renews(e) || !quorum_gate(e))
		return;
	if (use_found_another(e, d)) {
		use_watch_found(e, d);
		use_lost_before_told(e, 0);
		return;
	}
	d->unread = false;
	d->odd =
	    d->taken && (!got->claim || (d->met.claim == got->claim && d->met.seq != got->seq));
	memset(&d->met, 0, sizeof(d->met));
	if (d->taken)
		d->met = *got;
	if (d->odd && use_insync(e, use_dev_odd) >= e->geo.k)
		give_up(e);
	else
		use_dev_write(e, (uint32_t)(d - u->dev), u->claim, false);
}

static void renew(struct engine *e)
{
	const struct map *map = use_map(e);

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (!e->c->use.dev[i].busy && use_member(e, i, map) != NO_MEMBER)
			use_dev_start(e, i, true, false);
}

void use_check_ends(struct engine *e)
{
	struct use *u = &e->c->use;

	u->check = CHECK_DONE;
	/* Told by Ready: that the lease begins only now is no sign that this node stood still. */
	if (u->adopted && e->now - e->c->assembly.sure_us < use_lease_length(e))
		e->c->assembly.sure_us = e->now;
	u->adopted = u->given = false;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		u->dev[i].unread &= !u->dev[i].seen;
	/* From the claim's write to the first renewal it takes less than the patience that it asked
	 * for: it was read again 2 T later, within 2 T more, and counts for a lease's length from
	 * then on. */
	u->checked_us =
	    u->round_us + use_claim_us(e) < e->now ? u->round_us + use_claim_us(e) : e->now;
	u->tries = 0;
	u->next_us = e->now;
}

/* The claim was read again: where it stands still. */
void use_still_ours(struct engine *e)
{
	struct use *u = &e->c->use;

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		u->dev[i].wrote &= u->dev[i].seen && u->dev[i].got.claim == u->claim;
}

/* A claim that took too long may have landed over somebody's who has the array by now, and hides
 * him until he has renewed his. */
bool use_claim_late(const struct engine *e)
{
	return use_claim_us(e) && e->now - e->c->use.look_us > use_claim_us(e);
}

/* The claim was read again so long after it was due that somebody may have waited for it, found it
 * unchanged, and not have claimed yet: no quorum, or the node stood still. */
bool use_again_late(const struct engine *e, uint64_t due_us)
{
	return use_claim_us(e) && e->now > due_us + 2 * use_claim_us(e);
}

/*
 * The lease had run out, or was never this node's: has somebody else taken the array meanwhile? If
 * not, the run's claim stands where it was. It is claimed anew, as in LOOK, CLAIM and VERIFY, but
 * that nobody is waited for: whoever is found has waited for us. Others may carry what they like,
 * see renew_read.
 */
void use_checked(struct engine *e)
{
	struct use *u = &e->c->use;
	uint64_t due_us = u->next_us;
	bool late;

	u->next_us = e->now;
	if (u->reads && u->check != CHECK_DONE && use_insync(e, use_dev_taken) >= e->geo.k) {
		give_up(e);
		return;
	}
	for (uint32_t i = 0; i < DDR_MAX_DEVS && u->reads; i++)
		if (use_found_another(e, &u->dev[i])) {
			use_watch_found(e, &u->dev[i]);
			use_lost_before_told(e, 0);
			return;
		}
	switch (u->check) {
	case CHECK_READ:
		if (!u->reads || !use_enough(e, use_dev_ours)) {
			use_ask_all(e);
			if (u->reads && !use_told(e))
				use_lost_before_told(e, LOOK_AGAIN_US);
			else
				u->next_us = e->now + LOOK_AGAIN_US;
			return;
		}
		u->look_us = u->round_us;
		u->check = CHECK_WRITE;
		return;
	case CHECK_WRITE:
		late = use_claim_late(e);
		u->check = late || !use_enough(e, use_dev_wrote) ? CHECK_READ : CHECK_AGAIN;
		if (u->check == CHECK_READ && !late)
			use_ask_all(e);
		u->tries += late;
		u->next_us = e->now + (late                     ? use_lease_length(e)
				       : u->check == CHECK_READ ? LOOK_AGAIN_US
								: 2 * use_claim_us(e));
		return;
	case CHECK_AGAIN:
		use_still_ours(e);
		if (use_enough(e, use_dev_wrote) && !use_again_late(e, due_us)) {
			use_check_ends(e);
			return;
		}
		if (!use_enough(e, use_dev_wrote))
			use_ask_all(e);
		else
			u->tries++; /* as in verified: what makes it late may do so again */
		u->check = CHECK_READ;
		return;
	case CHECK_DONE:
		return;
	}
}

void use_hold_advance(struct engine *e)
{
	struct use *u = &e->c->use;

	if (!renews(e) || !quorum_gate(e) || u->pending)
		return;
	if (u->check == CHECK_DONE && !use_lease_runs(e))
		u->lease_us = use_lease_end(e); /* the map may have changed */
	if (u->check == CHECK_DONE && !use_lease_runs(e) &&
	    e->now - u->checked_us >= use_lease_length(e)) {
		u->check = CHECK_READ;
		u->next_us = e->now;
	}
	for (uint32_t i = 0; i < DDR_MAX_DEVS && u->check == CHECK_DONE && !use_told(e); i++)
		if (u->dev[i].unread && !u->dev[i].busy &&
		    use_member(e, i, use_map(e)) != NO_MEMBER)
			use_dev_start(e, i, true, false);
	if (e->now < u->next_us)
		return;
	/* Whoever has the array by now renews within a lease's length, or has lost it. */
	if (u->check == CHECK_READ && u->late_us && e->now - u->late_us < use_lease_length(e))
		return;
	if (u->check != CHECK_DONE) {
		use_round_start(e, u->check != CHECK_WRITE, u->claim);
		return;
	}
	u->next_us = e->now + e->cfg.tun.renew_ms * 1000ull;
	renew(e);
}

/*
 * The last node of the run leaves, nothing of it is under way any more, and it begins nothing: the
 * next one need not wait. What fails here only costs that wait.
 */
bool use_given_back(struct engine *e)
{
	struct use *u = &e->c->use;

	if (!alone(e) || (u->state != USE_HELD && u->state != USE_GIVEN))
		return true;
	if (u->state == USE_HELD) {
		if (!use_round_start(e, false, 0))
			return false;
		u->state = USE_GIVEN;
		u->given = true;
	}
	return !u->pending;
}
