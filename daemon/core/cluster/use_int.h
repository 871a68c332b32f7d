/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between the files of the use of the members: use.c has the protocol. */
#ifndef DDRAID_CORE_CLUSTER_USE_INT_H
#define DDRAID_CORE_CLUSTER_USE_INT_H

#include "daemon/core/cluster/msg.h"

#define LOOK_AGAIN_US 250000ull

/* What this daemon's own claims carry. */
static inline uint64_t use_nonce(const struct engine *e)
{
	return e->cfg.nonce ? e->cfg.nonce : e->cfg.inc;
}

/* ---- use_dev.c ---- */

/* The superblock that this node goes by before the array is assembled. NULL: none was read. */
const struct superblock *use_newest(const struct engine *e);
/* The round's leader has said that the array is assembled, and whose it is. */
bool use_told(const struct engine *e);
/* What this node goes by: before the array is assembled, the newest map on the members. */
const struct map *use_map(const struct engine *e);
/* The device's member, if that map writes to it; else NO_MEMBER. */
uint8_t use_member(const struct engine *e, uint32_t dev, const struct map *map);

/* What a device has shown, or done. */
static inline bool use_dev_seen(const struct use_dev *d)
{
	return d->seen;
}

static inline bool use_dev_ours(const struct use_dev *d)
{
	return d->ours;
}

static inline bool use_dev_taken(const struct use_dev *d)
{
	return d->taken;
}

static inline bool use_dev_odd(const struct use_dev *d)
{
	return d->odd;
}

static inline bool use_dev_wrote(const struct use_dev *d)
{
	return d->wrote;
}

static inline bool use_dev_prompt(const struct use_dev *d)
{
	return !d->slow[0] && !d->slow[1];
}

/* Members in sync, of those whose device satisfies `what`. */
uint32_t use_insync(const struct engine *e, bool (*what)(const struct use_dev *));
/* Whoever reaches k members in sync must meet the claim, so it has to be on all but k - 1. */
int use_needed(const struct engine *e, const struct map *map);
/* Enough devices satisfy `what` to meet any other's claim. */
bool use_enough(const struct engine *e, bool (*what)(const struct use_dev *));

/* How long a claim may take (T). 0: nobody claims here. */
uint64_t use_claim_us(const struct engine *e);
/* One device: reads its use block; writes it. `in_round`: the round waits for it. */
void use_dev_start(struct engine *e, uint32_t i, bool read, bool in_round);
void use_dev_write(struct engine *e, uint32_t i, uint64_t claim, bool in_round);
/* All devices at once. False: an earlier request of one is still under way. */
bool use_round_start(struct engine *e, bool reads, uint64_t claim);
/* A round of reads that has all that it needs goes on without those that are late. */
void use_round_wait(struct engine *e);
/* Those that are prompt were not enough: the next round asks all. */
void use_ask_all(struct engine *e);

/* ---- use_watch.c ---- */

/* Of this daemon, or of a node that takes part in this round. */
bool use_ours(const struct engine *e, uint64_t claim);
/* The reads of a round are in: what others claim. */
void use_watches_look(struct engine *e);
/* A device that no round waits for carries another's claim: the next looks wait for that. */
void use_watch_found(struct engine *e, const struct use_dev *d);
/* It has not changed for as long as it asks for. */
bool use_watch_over(const struct engine *e, const struct use_watch *w);
/* An array of a cluster, and this is another, or none; `why` says so then. */
bool use_foreign_cluster(struct engine *e);
/* Sets `refused`, and `why` if a claim is waited for. */
void use_look_why(struct engine *e);

/* ---- use.c ---- */

/* A device that was not looked at carries a claim that nobody has waited for. */
bool use_found_another(const struct engine *e, const struct use_dev *d);
/* This node, which is to assemble the array, may have lost it: it begins anew. */
void use_lost_before_told(struct engine *e, uint64_t again_us);

/* ---- use_hold.c ---- */

uint64_t use_lease_length(const struct engine *e);
/* Until when the lease runs, by the writes that have landed. 0: there is none. */
uint64_t use_lease_end(const struct engine *e);
bool use_lease_runs(const struct engine *e);
/* A claim that took too long may hide that of somebody who has the array by now. */
bool use_claim_late(const struct engine *e);
/* The claim was read again so late after it was due that somebody may be claiming meanwhile. */
bool use_again_late(const struct engine *e, uint64_t due_us);
/* The claim was read again: marks where it stands still. */
void use_still_ours(struct engine *e);
/* It stands on enough members: from now on it is renewed. */
void use_check_ends(struct engine *e);
/* A round of HELD is over. */
void use_checked(struct engine *e);
/* The use block of a device was read outside of a round. */
void use_renew_read(struct engine *e, struct use_dev *d);
void use_hold_advance(struct engine *e);

#endif
