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

#include "daemon/core/cluster/msg.h"

#define LOOK_AGAIN_US 250000ull
#define LEASE_RENEWALS 3u  /* the lease is so many of them */
#define HIDDEN_RENEWALS 2u /* a claim of somebody who lives is seen again within so many */
#define TRIES_MAX 6u       /* from then on a claim's time does not grow */
#define PATIENCE_MAX_MS 600000u

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

static uint64_t nonce(const struct engine *e)
{
	return e->cfg.nonce ? e->cfg.nonce : e->cfg.inc;
}

static void state_move(struct engine *e, enum use_state to)
{
	static const char *const name[] = {"none",      "looks who uses the array",
					   "claims it", "looks whether its claim stands",
					   "held",      "given back"};
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
	TRACE(e, "the use of the members: %s", name[to]);
	u->state = to;
	u->round_over = false;
}

/* ---- which devices -------------------------------------------------------------------------- */

/* Of what the members tell: see newest_sb in assemble.c. */
static const struct superblock *newest(const struct engine *e)
{
	const struct superblock *believed = sb_newest(e), *sb = believed;

	for (uint32_t i = 0; !believed && i < DDR_MAX_DEVS; i++)
		if (e->c->dev[i].up && e->c->dev[i].sb_ok &&
		    (!sb || epoch_cmp(&e->c->dev[i].sb.map.epoch, &sb->map.epoch) > 0))
			sb = &e->c->dev[i].sb;
	return sb;
}

/* The round's leader has said that the array is assembled, and whose it is. */
static bool told(const struct engine *e)
{
	return e->state == ENGINE_ACTIVE || e->view.phase == PH_READY;
}

/* What this node goes by: before the array is assembled, the newest map on the members. */
static const struct map *map_of(const struct engine *e)
{
	const struct superblock *sb = told(e) ? NULL : newest(e);

	return sb ? &sb->map : map_next(e);
}

/*
 * Its member, if the map writes to that; else NO_MEMBER. One that this node has lost for a moment
 * counts once it is back (R17 needs the lease for that), an older copy of it does not.
 */
static uint8_t member_on(const struct engine *e, uint32_t dev, const struct map *map)
{
	const struct dev *d = &e->c->dev[dev];

	for (uint8_t m = 0; map && d->up && d->sb_ok && !d->misfit[0] && m < map->n; m++) {
		if (!(map_write_mask(map) >> m & 1) ||
		    memcmp(d->sb.member_uuid, map->member[m].uuid, DDR_UUID_BYTES))
			continue;
		if (told(e) && (e->view.dev_of[m] != dev || !member_back(e, m)))
			continue;
		return m;
	}
	return NO_MEMBER;
}

/* ---- requests ------------------------------------------------------------------------------- */

static void block_read(struct engine *e, struct use_dev *d)
{
	struct useblock *g = &d->got;
	int err = useblock_decode(g, (const uint8_t *)d->buf);

	if (err != -EBADMSG) {
		if (err || memcmp(g->array_uuid, e->cfg.array_uuid, DDR_UUID_BYTES))
			memset(g, 0, sizeof(*g));
		return;
	}
	/* Somebody wrote it, and may be writing it. */
	memset(g, 0, sizeof(*g));
	g->claim = USE_UNKNOWN;
	memcpy(&g->seq, *d->buf + 8, sizeof(g->seq));
}

static bool is_ours(const struct engine *e, uint64_t claim);
static uint64_t lease_end(const struct engine *e);
static bool lease_runs(const struct engine *e);
static void renew_read(struct engine *e, struct use_dev *d);

static uint64_t claim_us(const struct engine *e)
{
	uint32_t tries = e->c->use.tries < TRIES_MAX ? e->c->use.tries : TRIES_MAX;

	return (e->cfg.tun.claim_ms * 1000ull) << tries;
}

static void use_done(struct engine *e, struct batch *b)
{
	struct use *u = &e->c->use;
	struct use_dev *d = list_entry(b, struct use_dev, batch);
	bool gone = d->gone, late = d->late;

	d->busy = d->gone = d->late = false;
	if (!b->failed)
		d->answered_us = e->now;
	if (!b->failed || (b->sent && !is_connection_error(b->err) && b->err != -ECANCELED))
		d->asked_us = d->sent_us; /* also an error is an answer (R14) */
	d->failed = b->failed;
	if (claim_us(e) && e->now - d->sent_us > claim_us(e))
		d->slow[d->reading] = true;
	else if (!b->failed)
		d->slow[d->reading] = false;
	if (d->in_round && !--u->pending)
		u->round_over = true;
	if (!d->reading && !d->in_round) {
		d->lost = b->failed || gone;
		if (!lease_runs(e))
			u->late_us = e->now;
	}
	if (e->state == ENGINE_REMOVED)
		return;
	if (gone) {
		memset(&d->got, 0, sizeof(d->got));
		d->wrote = false;
		return;
	}
	if (late)
		return;
	if (!d->reading) {
		d->wrote &= !b->failed;
		if (d->wrote) {
			d->held_us = d->sent_us;
			u->lease_us = lease_end(e);
		}
		return;
	}
	if (!b->failed) {
		block_read(e, d);
	} else {
		/* A sector that can't be read says nothing. It counts like one that is damaged: the
		 * next write may mend it. */
		memset(&d->got, 0, sizeof(d->got));
		if (!is_connection_error(b->err) && b->err != -ECANCELED)
			d->got.claim = USE_UNKNOWN;
	}
	d->seen = !b->failed || d->got.claim;
	d->ours = d->seen && (is_ours(e, d->got.claim) || (u->given && !d->got.claim));
	d->taken = d->seen && !d->ours && d->got.claim != USE_UNKNOWN;
	if (!d->in_round && d->seen)
		renew_read(e, d);
}

static void dev_start(struct engine *e, uint32_t i, bool read, bool in_round)
{
	struct use_dev *d = &e->c->use.dev[i];

	d->busy = true;
	d->in_round = in_round;
	d->reading = read;
	d->sent_us = e->now;
	d->iov = (struct iovec){d->buf, DDR_BLOCK_BYTES};
	if (in_round)
		e->c->use.pending++;
	if (read) {
		d->was = d->got;
		d->seen = d->ours = d->taken = false;
	}
	batch_init(&d->batch, use_done);
	batch_open(&d->batch);
	dio_start_raw(e, &d->batch, i, read ? DEV_READ : DEV_WRITE, KIND_USE, USE_OFFSET, &d->iov);
	batch_close(e, &d->batch);
}

/* Who claims renews nothing until it has read again: for so long it asks for more patience: see
 * again_late. */
static void dev_write(struct engine *e, uint32_t i, uint64_t claim, bool in_round)
{
	uint32_t waits_ms = in_round ? (uint32_t)(5 * claim_us(e) / 1000) : 0;
	struct useblock u = {.claim = claim,
			     .seq = e->now + e->cfg.node,
			     .inc = e->inc,
			     .at_s = e->cfg.wall_s ? e->cfg.wall_s + e->now / 1000000 : 0,
			     .node = e->cfg.node,
			     .patience_ms = e->cfg.tun.patience_ms + waits_ms,
			     .process = e->cfg.process};
	struct use_dev *d = &e->c->use.dev[i];

	memcpy(u.array_uuid, e->cfg.array_uuid, DDR_UUID_BYTES);
	memcpy(u.cluster, e->cfg.cluster, DDR_NAME_BYTES);
	memcpy(u.host, e->cfg.host, DDR_NAME_BYTES);
	useblock_encode(&u, *d->buf);
	d->wrote = claim != 0;
	dev_start(e, i, false, in_round);
}

static bool prompt(const struct use_dev *d)
{
	return !d->slow[0] && !d->slow[1];
}

static uint32_t insync_of(const struct engine *e, bool (*what)(const struct use_dev *));
static bool enough(const struct engine *e, bool (*what)(const struct use_dev *));

static bool enough_are_prompt(const struct engine *e)
{
	if (told(e))
		return enough(e, prompt);
	return e->view.have_geo && insync_of(e, prompt) >= e->geo.k;
}

/* Its read is under way for so long that a claim would be late by it. */
static bool is_late(const struct engine *e, const struct use_dev *d)
{
	return claim_us(e) && d->busy && d->reading && e->now - d->sent_us >= claim_us(e) / 2;
}

/* All at once. False: an earlier request of one is still under way. */
static bool round_start(struct engine *e, bool reads, uint64_t claim)
{
	const struct map *map = map_of(e);
	struct use *u = &e->c->use;
	bool all;

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		u->dev[i].slow[1] |= is_late(e, &u->dev[i]);
	all = !enough_are_prompt(e);
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		struct use_dev *d = &u->dev[i];

		if (d->busy && !d->late && (all || !is_late(e, d)))
			return false;
		d->late = d->busy;
	}
	u->reads = reads;
	u->round_us = e->now;
	u->round_over = false;
	u->pending = 1; /* until all are begun */
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		bool member = member_on(e, i, map) != NO_MEMBER;

		if (reads)
			u->dev[i].seen = u->dev[i].ours = u->dev[i].taken = false;
		else
			u->dev[i].wrote = false;
		if (u->dev[i].busy || (!all && !prompt(&u->dev[i])))
			continue;
		if (reads && member)
			dev_start(e, i, true, true);
		else if (!reads && member && (told(e) || !claim || u->dev[i].seen))
			dev_write(e, i, claim, true); /* over what was looked at */
	}
	if (!--u->pending)
		u->round_over = true;
	return true;
}

/* ---- whose are the claims ------------------------------------------------------------------- */

/* Of this daemon, or of a node that takes part in this round: it goes by what is agreed here. */
static bool is_ours(const struct engine *e, uint64_t claim)
{
	if (!claim)
		return false;
	if (claim == nonce(e) || claim == e->c->use.claim)
		return true;
	for (uint32_t i = 0; i < e->c->peer_count; i++) {
		const struct peer *p = &e->c->peer[i];

		if (p->in_round && p->hello && (claim == p->use_nonce || claim == p->use_claim))
			return true;
	}
	return false;
}

static struct use_watch *watch_of(struct use *u, uint64_t claim)
{
	for (uint32_t i = 0; i < u->watches; i++)
		if (u->watch[i].last.claim == claim)
			return &u->watch[i];
	return NULL;
}

static void watch_look(struct engine *e, const struct use_dev *d)
{
	const struct useblock *got = &d->got;
	struct use *u = &e->c->use;
	struct use_watch *w = watch_of(u, got->claim);
	bool changed = d->was.claim == got->claim && d->was.seq != got->seq;

	if (!w) {
		u->too_many |= u->watches == USE_WATCHED;
		if (u->watches == USE_WATCHED)
			return;
		w = &u->watch[u->watches++];
		*w = (struct use_watch){.last = *got, .since_us = e->now};
	}
	/* Nobody knows what it did while no device showed it. */
	if (w->unseen)
		w->since_us = e->now;
	w->shown = true;
	w->unseen = false;
	if (!changed)
		return;
	w->last = *got;
	w->alive = true;
	w->ended = false;
	w->since_us = e->now;
}

static uint64_t patience_us(const struct engine *e, const struct use_watch *w)
{
	uint32_t ms = w->last.patience_ms;

	if (w->last.claim == USE_UNKNOWN || ms < e->cfg.tun.renew_ms)
		ms = e->cfg.tun.patience_ms;
	return (ms > PATIENCE_MAX_MS ? PATIENCE_MAX_MS : ms) * 1000ull;
}

/*
 * What a process that has ended sent last may land later than that, and hide somebody who has the
 * array by now: until he renews his claim.
 */
static uint64_t watch_us(const struct engine *e, const struct use_watch *w)
{
	return w->ended ? HIDDEN_RENEWALS * 1000ull * e->cfg.tun.renew_ms : patience_us(e, w);
}

static bool watch_over(const struct engine *e, const struct use_watch *w)
{
	return e->now - w->since_us >= watch_us(e, w);
}

/*
 * A process of this machine, since it was started last: the daemon can see whether it lives. A
 * cluster's claim has a process on each node, so that of one says nothing of the others.
 */
static void watch_probe(struct engine *e, struct use_watch *w)
{
	const struct use_process *p = &w->last.process, *own = &e->cfg.process;
	struct out *o;

	if (w->probed || w->last.cluster[0] || !p->pid || p->pid_space != own->pid_space ||
	    memcmp(p->boot, own->boot, USE_BOOT_BYTES))
		return;
	w->probed = true;
	o = out_add(e, OUT_PROBE);
	o->probe.claim = w->last.claim;
	o->probe.process = *p;
}

void use_probed(struct engine *e, const struct event *ev)
{
	struct use_watch *w = watch_of(&e->c->use, ev->probed.claim);

	if (!w)
		return;
	w->ended = ev->probed.dead;
	if (e->c->use.state == USE_LOOK) /* else the next reads wait for who may claim now */
		e->c->use.next_us = e->now;
}

/*
 * A device that no round waits for carries another's claim. That is waited for by the next looks,
 * though none of them may see it: else they end alike, and it is found again and again. One for
 * each such device: its exporter may return anything.
 */
static void watch_found(struct engine *e, const struct use_dev *d)
{
	uint32_t dev = (uint32_t)(d - e->c->use.dev) + 1, n = 0;
	struct use *u = &e->c->use;
	struct use_watch *w;

	for (uint32_t i = 0; i < u->watches; i++)
		if (u->watch[i].found_on != dev || u->watch[i].last.claim == d->got.claim)
			u->watch[n++] = u->watch[i];
	u->watches = n;
	watch_look(e, d);
	w = watch_of(u, d->got.claim);
	if (w)
		w->found_on = dev;
}

/* The reads of a round are in: what others claim, as far as it was seen. */
static void watches_look(struct engine *e)
{
	struct use *u = &e->c->use;
	uint32_t n = 0;

	u->too_many = false;
	for (uint32_t i = 0; i < u->watches; i++) {
		u->watch[i].unseen = !u->watch[i].shown;
		u->watch[i].shown = false;
	}
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->c->dev[i].up && u->dev[i].seen && u->dev[i].got.claim &&
		    !is_ours(e, u->dev[i].got.claim))
			watch_look(e, &u->dev[i]);
	for (uint32_t i = 0; i < u->watches; i++)
		if (u->watch[i].shown || (u->watch[i].found_on && !told(e)))
			u->watch[n++] = u->watch[i];
	u->watches = n;
	for (uint32_t i = 0; i < n; i++)
		watch_probe(e, &u->watch[i]);
}

/* ---- in words ------------------------------------------------------------------------------- */

/* An array of a cluster, and this is another, or none. */
static bool foreign_cluster(struct engine *e)
{
	const struct superblock *sb = newest(e);
	struct use *u = &e->c->use;

	if (!sb || !sb->clustered || e->cfg.take_over || !strcmp(sb->cluster, e->cfg.cluster))
		return false;
	if (e->cfg.cluster[0])
		snprintf(u->why, sizeof(u->why),
			 "it belongs to cluster %s, and this is cluster %s; if it is to be this "
			 "cluster's from now on, start it once with --take-over",
			 sb->cluster, e->cfg.cluster);
	else
		snprintf(u->why, sizeof(u->why),
			 "it belongs to cluster %s, and this daemon is alone (cluster = alone in "
			 "ddraid.conf); start it on that cluster's nodes, or here with --alone if "
			 "none of them uses it",
			 sb->cluster);
	return true;
}

static void look_why(struct engine *e)
{
	const struct use_watch *w = NULL;
	struct use *u = &e->c->use;
	char name[USE_NAME_BYTES];

	for (uint32_t i = 0; i < u->watches; i++)
		if (!watch_over(e, &u->watch[i]) && (!w || u->watch[i].alive))
			w = &u->watch[i];
	u->refused = w && w->alive;
	if (!w)
		return;
	useblock_name(&w->last, name);
	if (w->alive)
		snprintf(u->why, sizeof(u->why),
			 "its members are in use by %s; stop it there first, or disconnect these "
			 "members from one of the two",
			 name);
	else
		snprintf(u->why, sizeof(u->why),
			 "%s to be gone: %s; %u s without a sign of it are enough", name,
			 w->ended ? "its process has ended, and what it sent last may yet land"
				  : "it used the members last and did not give them back",
			 (unsigned)(watch_us(e, w) / 1000000));
}

/* ---- assembling ----------------------------------------------------------------------------- */

/* Members in sync, of those whose device satisfies `what`. */
static uint32_t insync_of(const struct engine *e, bool (*what)(const struct use_dev *))
{
	const struct map *map = map_of(e);
	uint32_t mask = 0;

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		uint8_t m = member_on(e, i, map);

		if (m != NO_MEMBER && what(&e->c->use.dev[i]))
			mask |= 1u << m;
	}
	return map ? (uint32_t)__builtin_popcount(mask & map_insync_mask(map)) : 0;
}

static bool seen(const struct use_dev *d)
{
	return d->seen;
}

static bool ours(const struct use_dev *d)
{
	return d->ours;
}

static bool taken(const struct use_dev *d)
{
	return d->taken;
}

static bool odd(const struct use_dev *d)
{
	return d->odd;
}

static bool wrote(const struct use_dev *d)
{
	return d->wrote;
}

/* Those that are prompt were not enough: the next round asks all. */
static void ask_all(struct engine *e)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		e->c->use.dev[i].slow[0] = e->c->use.dev[i].slow[1] = false;
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
 * before: it begins as a new life.
 */
static void lost_before_told(struct engine *e, uint64_t again_us)
{
	if (e->view.slot != NO_SLOT || e->view.proposing || e->c->ld.assembled ||
	    e->c->ld.own_prop || e->c->sb_names_us)
		round_removed(e);
	else
		look_again(e, again_us);
}

/* Found by who is to assemble the array where it has not looked: a claim, and not one of those that
 * it has waited for. */
static bool found_another(const struct engine *e, const struct use_dev *d)
{
	if (told(e) || !d->unread || !d->taken || !d->got.claim)
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

	u->refused = e->c->ld.refused = false;
	snprintf(u->why, sizeof(u->why), "members to assemble the array from");
	if (!e->view.have_geo || insync_of(e, seen) < e->geo.k) {
		ask_all(e);
		e->c->ld.refused = (e->view.have_geo || members_read(e)) &&
				   e->now - u->began_us >= e->cfg.tun.evict_ms * 1000ull;
		if (e->c->ld.refused)
			fewer_insync(e, map_of(e), u->why, sizeof(u->why));
		look_again(e, LOOK_AGAIN_US);
		return;
	}
	u->refused = foreign_cluster(e);
	if (!u->refused)
		look_why(e);
	for (uint32_t i = 0; i < u->watches; i++)
		if (!watch_over(e, &u->watch[i])) {
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
	u->claim = nonce(e);
	state_move(e, USE_CLAIM);
	round_start(e, false, u->claim);
}

static uint64_t lease_length(const struct engine *e)
{
	return LEASE_RENEWALS * 1000ull * e->cfg.tun.renew_ms;
}

/* A claim that took too long may have landed over somebody's who has the array by now, and hides
 * him until he has renewed his. */
static bool claim_late(const struct engine *e)
{
	return claim_us(e) && e->now - e->c->use.look_us > claim_us(e);
}

/* CLAIM: the writes are over. */
static void claimed(struct engine *e)
{
	struct use *u = &e->c->use;

	if (insync_of(e, wrote) < e->geo.k || claim_late(e)) {
		uint64_t after_us = claim_late(e) ? lease_length(e) : LOOK_AGAIN_US;

		u->tries++;
		u->unclaimed = true;
		if (!claim_late(e))
			ask_all(e); /* one that answers at once may answer with errors */
		look_again(e, after_us);
		return;
	}
	u->unclaimed = false;
	state_move(e, USE_VERIFY);
	u->next_us = e->now + 2 * claim_us(e);
}

/* The claim was read again so long after it was due that somebody may have waited for it, found it
 * unchanged, and not have claimed yet: no quorum, or the node stood still. */
static bool again_late(const struct engine *e, uint64_t due_us)
{
	return claim_us(e) && e->now > due_us + 2 * claim_us(e);
}

/* The claim was read again: where it stands still. */
static void still_ours(struct engine *e)
{
	struct use *u = &e->c->use;

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		u->dev[i].wrote &= u->dev[i].seen && u->dev[i].got.claim == u->claim;
}

static void check_ends(struct engine *e)
{
	struct use *u = &e->c->use;

	u->check = CHECK_DONE;
	/* Told by Ready: that the lease begins only now is no sign that this node stood still. */
	if (u->adopted && e->now - e->c->sure_us < lease_length(e))
		e->c->sure_us = e->now;
	u->adopted = u->given = false;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		u->dev[i].unread &= !u->dev[i].seen;
	/* From the claim's write to the first renewal it takes less than the patience that it asked
	 * for: it was read again 2 T later, within 2 T more, and counts for a lease's length from
	 * then on. */
	u->checked_us = u->round_us + claim_us(e) < e->now ? u->round_us + claim_us(e) : e->now;
	u->tries = 0;
	u->next_us = e->now;
}

/* VERIFY: the claim is read again. */
static void verified(struct engine *e)
{
	struct use *u = &e->c->use;
	bool lost = u->too_many || again_late(e, u->next_us);

	still_ours(e);
	/* Nor may one be there that was not read before: whether it changes is not known. What is
	 * connected no more was not read now, and says nothing. */
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		const struct use_dev *d = &u->dev[i];

		lost |= d->seen && d->got.claim && !d->was.claim && !is_ours(e, d->got.claim);
	}
	for (uint32_t i = 0; i < u->watches; i++)
		lost |= !watch_over(e, &u->watch[i]);
	if (!lost && insync_of(e, wrote) >= e->geo.k) {
		state_move(e, USE_HELD);
		check_ends(e);
		return;
	}
	if (insync_of(e, wrote) < e->geo.k)
		ask_all(e);
	/* Two that take turns at this would do so for ever. */
	u->tries++;
	look_again(e, claim_us(e) * (1 + u->claim % 4));
}

/* This node is to lead a round. A node in it may hold a claim, by an earlier round. */
void use_begin(struct engine *e)
{
	struct use *u = &e->c->use;

	if (e->state == ENGINE_ACTIVE || u->state == USE_HELD)
		return;
	for (uint32_t i = 0; i < e->c->peer_count; i++)
		if (e->c->peer[i].in_round && e->c->peer[i].use_held &&
		    e->c->peer[i].node != e->cfg.node)
			use_adopt(e, e->c->peer[i].use_claim);
}

/*
 * What has connected since the claim was verified counts once its use block was read: a way that
 * was set right leads to another device, which somebody else may be using.
 */
bool use_taken(struct engine *e)
{
	const struct map *map = map_of(e);

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->c->use.dev[i].unread && member_on(e, i, map) != NO_MEMBER)
			return false;
	return e->c->use.state == USE_HELD;
}

void use_dev_up(struct engine *e, uint32_t dev)
{
	struct use_dev *d = &e->c->use.dev[dev];

	d->unread = true;
	d->seen = d->ours = d->taken = false;
	d->gone = d->busy; /* by the connection before, to another device maybe */
	if (d->lost && !lease_runs(e))
		e->c->use.late_us = e->now;
	d->lost = false; /* it has landed, or never will: what comes and goes holds nobody up */
	if (told(e))
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

/* ---- holding -------------------------------------------------------------------------------- */

/* Each node that serves, or is about to: none depends on another, whose way to the members may be
 * broken. And who leads before it serves. */
static bool renews(const struct engine *e)
{
	return e->view.have_geo && (told(e) || leading(e));
}

/* Whoever reaches k members in sync must meet the claim, so it has to be on all of them but k - 1.
 */
static int needed(const struct engine *e, const struct map *map)
{
	return map ? __builtin_popcount(map_insync_mask(map)) - e->geo.k + 1 : 0;
}

/* The lease counts from the oldest write of the newest so many. */
static uint64_t lease_by(const struct engine *e, const struct map *map)
{
	uint64_t best[DDR_MAX_MEMBERS] = {0}, least = UINT64_MAX;
	uint32_t insync = map ? map_insync_mask(map) : 0;

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		uint8_t m = member_on(e, i, map);

		if (m != NO_MEMBER && insync >> m & 1 && e->c->use.dev[i].held_us > best[m])
			best[m] = e->c->use.dev[i].held_us;
	}
	for (int need = needed(e, map); need > 0; need--) {
		uint8_t newest = 0;

		for (uint8_t m = 1; m < DDR_MAX_MEMBERS; m++)
			if (best[m] > best[newest])
				newest = m;
		least = best[newest] < least ? best[newest] : least;
		best[newest] = 0;
	}
	if (!insync || !least || least == UINT64_MAX)
		return 0;
	return least + lease_length(e);
}

/* Until when the lease runs: as long as a map is proposed others may read it, or the one before. */
static uint64_t lease_end(const struct engine *e)
{
	uint64_t end = lease_by(e, map_of(e)), before;

	if (!told(e) || !e->view.proposing)
		return end;
	before = lease_by(e, &e->map);
	return before < end ? before : end;
}

static bool lease_runs(const struct engine *e)
{
	const struct use *u = &e->c->use;

	return u->state == USE_HELD && u->check == CHECK_DONE &&
	       (e->now < u->lease_us || !e->cfg.tun.claim_ms);
}

/* Asked for each request, of every node: one that joins writes its slot of the log. The lease
 * itself is worked out when a write of the claim has landed. */
bool use_lease(const struct engine *e)
{
	return lease_runs(e) || !e->cfg.tun.claim_ms;
}

/* There was none for a while since then: this node stood still, or the members did. */
bool use_lapsed(const struct engine *e, uint64_t since_us)
{
	return e->cfg.tun.claim_ms && (!lease_runs(e) || e->c->use.checked_us > since_us);
}

/*
 * There is no lease, and the members are why: for longer than it takes to get one back, too few of
 * them have answered anything here. A node that stood still has no lease either, and gets it back.
 */
bool use_hangs(const struct engine *e)
{
	uint64_t most = lease_length(e) + 2000ull * e->cfg.tun.renew_ms;
	const struct map *map = map_of(e);
	uint32_t mask = 0;

	if (use_lease(e))
		return false; /* asked for each request */
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		uint8_t m = member_on(e, i, map);

		if (m != NO_MEMBER && e->now - e->c->use.dev[i].answered_us < most)
			mask |= 1u << m;
	}
	return map && __builtin_popcount(mask & map_insync_mask(map)) < needed(e, map);
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
	if (told(e))
		round_give_up(e);
	else
		lost_before_told(e, LOOK_AGAIN_US);
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
static void renew_read(struct engine *e, struct use_dev *d)
{
	const struct useblock *got = &d->got;
	struct use *u = &e->c->use;

	if (u->state != USE_HELD || u->check != CHECK_DONE || !renews(e) || !quorum_gate(e))
		return;
	if (found_another(e, d)) {
		watch_found(e, d);
		lost_before_told(e, 0);
		return;
	}
	d->unread = false;
	d->odd =
	    d->taken && (!got->claim || (d->met.claim == got->claim && d->met.seq != got->seq));
	memset(&d->met, 0, sizeof(d->met));
	if (d->taken)
		d->met = *got;
	if (d->odd && insync_of(e, odd) >= e->geo.k)
		give_up(e);
	else
		dev_write(e, (uint32_t)(d - u->dev), u->claim, false);
}

static void renew(struct engine *e)
{
	const struct map *map = map_of(e);

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (!e->c->use.dev[i].busy && member_on(e, i, map) != NO_MEMBER)
			dev_start(e, i, true, false);
}

/* Enough of them to meet any other's claim. */
static bool enough(const struct engine *e, bool (*what)(const struct use_dev *))
{
	const struct map *map = map_of(e);
	int n = (int)insync_of(e, what);

	return n > 0 && n >= needed(e, map);
}

/*
 * The lease had run out, or was never this node's: has somebody else taken the array meanwhile? If
 * not, the run's claim stands where it was. It is claimed anew, as in LOOK, CLAIM and VERIFY, but
 * that nobody is waited for: whoever is found has waited for us. Others may carry what they like,
 * see renew_read.
 */
static void checked(struct engine *e)
{
	struct use *u = &e->c->use;
	uint64_t due_us = u->next_us;
	bool late;

	u->next_us = e->now;
	if (u->reads && u->check != CHECK_DONE && insync_of(e, taken) >= e->geo.k) {
		give_up(e);
		return;
	}
	for (uint32_t i = 0; i < DDR_MAX_DEVS && u->reads; i++)
		if (found_another(e, &u->dev[i])) {
			watch_found(e, &u->dev[i]);
			lost_before_told(e, 0);
			return;
		}
	switch (u->check) {
	case CHECK_READ:
		if (!u->reads || !enough(e, ours)) {
			ask_all(e);
			if (u->reads && !told(e))
				lost_before_told(e, LOOK_AGAIN_US);
			else
				u->next_us = e->now + LOOK_AGAIN_US;
			return;
		}
		u->look_us = u->round_us;
		u->check = CHECK_WRITE;
		return;
	case CHECK_WRITE:
		late = claim_late(e);
		u->check = late || !enough(e, wrote) ? CHECK_READ : CHECK_AGAIN;
		if (u->check == CHECK_READ && !late)
			ask_all(e);
		u->tries += late;
		u->next_us = e->now + (late                     ? lease_length(e)
				       : u->check == CHECK_READ ? LOOK_AGAIN_US
								: 2 * claim_us(e));
		return;
	case CHECK_AGAIN:
		still_ours(e);
		if (enough(e, wrote) && !again_late(e, due_us)) {
			check_ends(e);
			return;
		}
		if (!enough(e, wrote))
			ask_all(e);
		else
			u->tries++; /* as in verified: what makes it late may do so again */
		u->check = CHECK_READ;
		return;
	case CHECK_DONE:
		return;
	}
}

static void hold_advance(struct engine *e)
{
	struct use *u = &e->c->use;

	if (!renews(e) || !quorum_gate(e) || u->pending)
		return;
	if (u->check == CHECK_DONE && !lease_runs(e))
		u->lease_us = lease_end(e); /* the map may have changed */
	if (u->check == CHECK_DONE && !lease_runs(e) && e->now - u->checked_us >= lease_length(e)) {
		u->check = CHECK_READ;
		u->next_us = e->now;
	}
	for (uint32_t i = 0; i < DDR_MAX_DEVS && u->check == CHECK_DONE && !told(e); i++)
		if (u->dev[i].unread && !u->dev[i].busy && member_on(e, i, map_of(e)) != NO_MEMBER)
			dev_start(e, i, true, false);
	if (e->now < u->next_us)
		return;
	/* Whoever has the array by now renews within a lease's length, or has lost it. */
	if (u->check == CHECK_READ && u->late_us && e->now - u->late_us < lease_length(e))
		return;
	if (u->check != CHECK_DONE) {
		round_start(e, u->check != CHECK_WRITE, u->claim);
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
		if (!round_start(e, false, 0))
			return false;
		u->state = USE_GIVEN;
		u->given = true;
	}
	return !u->pending;
}

/* A round of reads has all that it needs, but for those that are late. */
static void round_wait(struct engine *e)
{
	struct use *u = &e->c->use;

	if (!claim_us(e) || !u->pending || !u->reads || e->now - u->round_us < claim_us(e) / 2 ||
	    !(told(e) ? enough(e, seen) : e->view.have_geo && insync_of(e, seen) >= e->geo.k))
		return;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		struct use_dev *d = &u->dev[i];

		if (!d->busy || !d->in_round)
			continue;
		d->late = d->slow[1] = true;
		d->in_round = false;
		u->pending--;
	}
	u->round_over = !u->pending;
}

/* ---- each step ------------------------------------------------------------------------------ */

static void round_look(struct engine *e)
{
	struct use *u = &e->c->use;

	u->round_over = false;
	if (u->reads)
		watches_look(e);
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
		checked(e);
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
	round_wait(e);
	if (u->state == USE_GIVEN && !u->pending && !e->c->leaving)
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
		hold_advance(e);
	if ((u->state == USE_LOOK || u->state == USE_VERIFY) && !u->pending && !u->round_over &&
	    e->now >= u->next_us && quorum_gate(e))
		round_start(e, true, 0);
}
