/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Nobody else uses the members. R2 to R9 keep the nodes of one cluster from each other. They say
 * nothing of a daemon that takes no part in it: one that was set to `cluster = alone` by mistake,
 * one with a copied state directory, another cluster with the same members in its configuration.
 * So each member carries a use block: who uses the array. As long as the array runs, one node
 * renews it (multi-mount protection, as ext4 and ZFS have it).
 *
 *   LOOK   the node that is to assemble the array reads the use block of every member, before it
 *          fences anybody and before it writes anything. A claim that changes has a user that
 *          lives: the array is refused, and he is named. One that does not change for the patience
 *          that it asks for is left by a user that is gone; so is that of a daemon alone whose
 *          process has ended, as this machine can tell (OUT_PROBE).
 *   CLAIM  it writes its own claim to all members.
 *   VERIFY it waits for whoever may have found the array free at the same moment, and reads again.
 *   HELD   its claim is on all members; from Ready on each node of the round renews it, and has a
 *          lease by its own writes. The claim is the run's, not the node's: Ready tells it.
 *          A connection that is made between VERIFY and Ready may lead to another device: what that
 *          carries is read before anything goes on. Whoever finds then that the array is somebody
 *          else's, or was, begins anew with all that it has assembled.
 *
 * Two never hold the array at once. Let A and B both come to HELD, and let T be the time that a
 * claim may take, from the issue of the reads that found nobody to the answer of the last write
 * (if it took longer: LOOK again, when whoever holds the array has had the time to renew).
 *
 *  1. Each of them wrote to at least k members in sync; any two such sets share a member (k > m;
 *     see R1). Look at that one. It carries the newer of their two maps, so both go by that, and
 *     what a device carries that it does not name any more is nobody's concern.
 *  2. B's reads saw A's claim: then B waited until it had not changed for the patience. The lease
 *     of each node of A's was over by then: none does I/O when its last renewal began longer than
 *     the lease ago, and the lease is shorter than the patience. Who wakes up has to claim anew:
 *     it reads, writes, waits and reads again like B. If its reads find B's claim, it gives up;
 *     else see 3. The same with A and B exchanged.
 *  3. Neither saw the other's: each read before the other's write landed, so both writes landed
 *     within T of each other's reads. Each waits for 2 T after its own, then reads again. One of
 *     the two claims was overwritten by then, and its owner finds that.
 *
 * A machine whose clock stood still does not know that it has to claim anew (a virtual machine that
 * was paused). So whoever renews reads first: two that hold the array find each other within two
 * renewals, and give up.
 *
 * A use block that lands late hides another's until his next renewal, which is longer than a claim
 * takes. So whoever claims anew, and whose own renewals have ended only when the lease was over,
 * reads first when that renewal must have come (late_us). Else it makes at most somebody wait: R4
 * and R5 are not for it.
 *
 * An exporter that answers late, or not before request_timeout, holds nobody up for long. A round
 * of reads waits for half of a claim's time; then it goes on without those that are late, if the
 * others are enough: k members in sync for who looks, and all but k - 1 for who was told the claim.
 * That is as if the late ones were not reached, and nothing above asks for more: 1. is about any k
 * members, and all but k - 1 meet any k. What they answer after that counts for nothing. They are
 * not written to, nor asked in the next rounds, if the others are enough without them (slow). A
 * device that was not read before the array is assembled is read by itself first (unread). A claim
 * that is found there is waited for like those of a look (watch_found), though the next looks may
 * not see it: whoever holds the array has claimed k members, of which the k that are looked at have
 * one (1.). If one of those shows it, its patience begins anew (unseen), since nobody knows what it
 * did meanwhile. If the own claim is not found without the slow ones, all are asked again.
 *
 * A write is waited for in any case, since what lands late hides another's claim. So an exporter
 * that reads at once, and hangs the write of its use block, makes a claim late once.
 *
 * What it does not see: a lone exporter that lies; two users that share no member.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cluster/use_int.h"

int use_alloc(struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		e->c->use.dev[i].buf = calloc(1, DDR_BLOCK_BYTES);
		if (!e->c->use.dev[i].buf)
			return -ENOMEM;
	}
	return 0;
}

void use_free(struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		free(e->c->use.dev[i].buf);
}

/* The next incarnation looks anew. It knows the claim again, so it need not wait for itself. */
void use_restart(struct engine *e, const struct use *old)
{
	struct use *u = &e->c->use;

	u->claim = old->claim;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		u->dev[i].buf = old->dev[i].buf;
		memcpy(u->dev[i].slow, old->dev[i].slow, sizeof(u->dev[i].slow));
	}
	for (uint32_t i = 0; i < old->watches; i++)
		if (old->watch[i].found_on)
			u->watch[u->watches++] = old->watch[i];
	for (uint32_t i = 0; i < u->watches; i++)
		u->watch[i].shown = false;
}

static void state_move(struct engine *e, enum use_state to)
{
	static const char *const name[] = {
	    [USE_NONE] = "does not have the array any more",
	    [USE_LOOK] = "looks on the members whether anybody else uses the array",
	    [USE_CLAIM] = "claims the array: writes so to the members",
	    [USE_VERIFY] = "looks whether its claim is still there",
	    [USE_HELD] = "has the array: nobody outside of this cluster uses it",
	    [USE_GIVEN] = "gives the array back: writes so to the members",
	};
	static const uint8_t legal[] = {
	    [USE_NONE] = 1 << USE_LOOK | 1 << USE_HELD,
	    [USE_LOOK] = 1 << USE_NONE | 1 << USE_CLAIM | 1 << USE_HELD,
	    [USE_CLAIM] = 1 << USE_NONE | 1 << USE_LOOK | 1 << USE_VERIFY | 1 << USE_HELD,
	    [USE_VERIFY] = 1 << USE_NONE | 1 << USE_LOOK | 1 << USE_HELD,
	    [USE_HELD] = 1 << USE_NONE | 1 << USE_LOOK | 1 << USE_GIVEN,
	    [USE_GIVEN] = 1 << USE_HELD,
	};

	struct use *u = &e->c->use;

	assert(legal[u->state] >> to & 1);
	TRACE(e, "%s", name[to]);
	u->state = to;
	u->round_over = false;
}

static void look_again(struct engine *e, uint64_t after_us)
{
	struct use *u = &e->c->use;

	if (u->state != USE_LOOK)
		state_move(e, USE_LOOK);
	u->next_us = e->now + after_us;
	u->round_over = false;
}

/*
 * A node that is to assemble the array has lost it, or may have: somebody else may have used it
 * meanwhile. What it has assembled, read of slots, has in its own or has heard proposed is of
 * before: it begins as a new incarnation.
 */
void use_lost_before_told(struct engine *e, uint64_t again_us)
{
	if (e->view.slot != NO_SLOT || e->view.proposing || e->c->lead.assembled ||
	    e->c->lead.own_prop || e->c->epochs.sb_names_us)
		round_removed(e);
	else
		look_again(e, again_us);
}

/* Found by who is to assemble the array where it has not looked: a claim, and not one of those that
 * it has waited for. */
bool use_found_another(const struct engine *e, const struct use_dev *d)
{
	if (use_told(e) || !d->unread || !d->taken || !d->got.claim)
		return false;
	for (uint32_t i = 0; i < e->c->use.overs; i++)
		if (e->c->use.over[i] == d->got.claim)
			return false;
	return true;
}

/* LOOK: a round of reads is over. */
static void looked(struct engine *e)
{
	struct use *u = &e->c->use;

	u->refused = e->c->lead.refused = false;
	snprintf(u->why, sizeof(u->why), "members to assemble the array from");
	if (!e->view.have_geo || use_insync(e, use_dev_seen) < e->geo.k) {
		use_ask_all(e);
		e->c->lead.refused = (e->view.have_geo || members_read(e)) &&
				     e->now - u->began_us >= e->cfg.tun.evict_ms * 1000ull;
		if (e->c->lead.refused)
			fewer_insync(e, use_map(e), u->why, sizeof(u->why));
		look_again(e, LOOK_AGAIN_US);
		return;
	}
	u->refused = use_foreign_cluster(e);
	if (!u->refused)
		use_look_why(e);
	for (uint32_t i = 0; i < u->watches; i++)
		if (!use_watch_over(e, &u->watch[i])) {
			look_again(e, LOOK_AGAIN_US);
			return;
		}
	if (u->refused || u->too_many) {
		look_again(e, LOOK_AGAIN_US);
		return;
	}
	snprintf(u->why, sizeof(u->why), "the members to be claimed");
	u->overs = u->watches;
	for (uint32_t i = 0; i < u->watches; i++)
		u->over[i] = u->watch[i].last.claim;
	u->look_us = u->round_us;
	u->claim = use_nonce(e);
	state_move(e, USE_CLAIM);
	use_round_start(e, false, u->claim);
}

/* CLAIM: the writes are over. */
static void claimed(struct engine *e)
{
	struct use *u = &e->c->use;

	if (use_insync(e, use_dev_wrote) < e->geo.k || use_claim_late(e)) {
		uint64_t after_us = use_claim_late(e) ? use_lease_length(e) : LOOK_AGAIN_US;

		u->tries++;
		u->unclaimed = true;
		if (!use_claim_late(e))
			use_ask_all(e); /* one that answers at once may answer with errors */
		look_again(e, after_us);
		return;
	}
	u->unclaimed = false;
	state_move(e, USE_VERIFY);
	u->next_us = e->now + 2 * use_claim_us(e);
}

/* VERIFY: the claim is read again. */
static void verified(struct engine *e)
{
	struct use *u = &e->c->use;
	bool lost = u->too_many || use_again_late(e, u->next_us);

	use_still_ours(e);
	/* Nor may one be there that was not read before: whether it changes is not known. What is
	 * connected no more was not read now, and says nothing. */
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		const struct use_dev *d = &u->dev[i];

		lost |= d->seen && d->got.claim && !d->was.claim && !use_ours(e, d->got.claim);
	}
	for (uint32_t i = 0; i < u->watches; i++)
		lost |= !use_watch_over(e, &u->watch[i]);
	if (!lost && use_insync(e, use_dev_wrote) >= e->geo.k) {
		state_move(e, USE_HELD);
		use_check_ends(e);
		return;
	}
	if (use_insync(e, use_dev_wrote) < e->geo.k)
		use_ask_all(e);
	/* Two that take turns at this would do so for ever. */
	u->tries++;
	look_again(e, use_claim_us(e) * (1 + u->claim % 4));
}

/* This node is to lead a round. A node in it may hold a claim, by an earlier round. */
void use_begin(struct engine *e)
{
	struct use *u = &e->c->use;

	if (e->state == ENGINE_ACTIVE || u->state == USE_HELD)
		return;
	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		if (e->c->round.peer[i].in_round && e->c->round.peer[i].use_held &&
		    e->c->round.peer[i].node != e->cfg.node)
			use_adopt(e, e->c->round.peer[i].use_claim);
}

/*
 * What has connected since the claim was verified counts once its use block was read: a way that
 * was set right leads to another device, which somebody else may be using.
 */
bool use_taken(struct engine *e)
{
	const struct map *map = use_map(e);

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->c->use.dev[i].unread && use_member(e, i, map) != NO_MEMBER)
			return false;
	return e->c->use.state == USE_HELD;
}

void use_dev_up(struct engine *e, uint32_t dev)
{
	struct use_dev *d = &e->c->use.dev[dev];

	d->unread = true;
	d->seen = d->ours = d->taken = false;
	d->gone = d->busy; /* by the connection before, to another device maybe */
	if (d->lost && !use_lease_runs(e))
		e->c->use.late_us = e->now;
	d->lost = false; /* it has landed, or never will: what comes and goes holds nobody up */
	if (use_told(e))
		return; /* it is told by its superblock, and a renewal reads first */
	d->wrote = false;
	d->held_us = 0;
}

/* Another node holds it for all. */
void use_adopt(struct engine *e, uint64_t claim)
{
	struct use *u = &e->c->use;

	if (!claim || (u->state == USE_HELD && u->claim == claim))
		return;
	if (u->state != USE_HELD)
		state_move(e, USE_HELD);
	u->claim = claim;
	u->check = CHECK_READ;
	u->adopted = true;
	u->refused = false;
	u->next_us = u->lease_us = 0;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		u->dev[i].held_us = 0;
}

static void round_look(struct engine *e)
{
	struct use *u = &e->c->use;

	u->round_over = false;
	if (u->reads)
		use_watches_look(e);
	switch (u->state) {
	case USE_LOOK:
		looked(e);
		break;
	case USE_CLAIM:
		claimed(e);
		break;
	case USE_VERIFY:
		verified(e);
		break;
	case USE_HELD:
		use_checked(e);
		break;
	case USE_NONE:
	case USE_GIVEN:
		break;
	}
}

void use_advance(struct engine *e)
{
	struct use *u = &e->c->use;
	bool assembles = e->state == ENGINE_JOINING && leading(e);

	if (e->state == ENGINE_REMOVED || e->state == ENGINE_STOPPED || e->view.left_sent)
		return;
	use_round_wait(e);
	if (u->state == USE_GIVEN && !u->pending && !e->c->leave.leaving)
		use_adopt(e, u->claim); /* somebody has come, and the array goes on */
	if (u->state >= USE_LOOK && u->state <= USE_VERIFY && !assembles && !u->pending)
		state_move(e, USE_NONE);
	if (u->state == USE_NONE && assembles && !u->pending) {
		u->began_us = e->now;
		look_again(e, 0);
	}
	if (u->round_over)
		round_look(e);
	if (u->state == USE_CLAIM && !u->pending && !u->round_over)
		look_again(e, LOOK_AGAIN_US); /* an earlier request of a device had not ended */
	if (u->state == USE_HELD)
		use_hold_advance(e);
	if ((u->state == USE_LOOK || u->state == USE_VERIFY) && !u->pending && !u->round_over &&
	    e->now >= u->next_us && quorum_gate(e))
		use_round_start(e, true, 0);
}
