/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the leader does in a round until Ready, and after it (leader.c). */
#ifndef DDRAID_CORE_CLUSTER_LEADER_H
#define DDRAID_CORE_CLUSTER_LEADER_H

#include "daemon/core/cluster/nodemsg.h"
#include "daemon/core/cluster/slots_told.h"
#include "daemon/core/door.h"

struct peer;
struct departed;
struct slotinfo;

struct lead {
	bool begun;           /* State is sent */
	bool knows;           /* led the last round up to Ready: superblocks and slots are known */
	bool need_epoch;      /* the round needs an epoch of its own before Ready */
	bool cleared;         /* orphan slots, and they are not all clean yet */
	uint64_t cleared_num; /* the newest epoch when they were; 0 = never */
	bool reassemble;      /* next epoch: more than m were lost, recompute parity: R17 */
	bool forced;          /* what the members carry is not known to be the newest: R1 */
	bool own_prop, sb_writing, committing, announced, refused, rereading, assembled, gathered;
	struct epoch prop_epoch; /* of the own proposal */
	bool prop_fresh;         /* ... that goes back to e->map, and no superblock has it */
	uint64_t state_us, assemble_us, propose_us;
	uint64_t waits_us; /* since when for absent members, at most once a round; 0: not yet */
	uint64_t max_num;  /* newest epoch number seen anywhere */
	uint32_t lacked;   /* members that did, until all slots were read with them */
	uint32_t lacks;    /* members that slots tell are older copies; by these connections */
	uint32_t lacks_dev[DDR_MAX_MEMBERS], lacks_ups[DDR_MAX_MEMBERS];
	struct {
		uint32_t slot, page;
		uint64_t seq;
	} lacks_by[DDR_MAX_MEMBERS]; /* of that page all others had this image, or later */
	struct batch sb_batch;
	bool sb_second; /* of the two copies of each member */
	uint32_t sb_dev[DDR_MAX_MEMBERS];
	uint8_t sb_copy[DDR_MAX_MEMBERS];
	uint64_t sb_seq[DDR_MAX_MEMBERS];
	struct iovec sb_iov[DDR_MAX_MEMBERS];
	uint8_t (*sb_buf)[DDR_BLOCK_BYTES];
	uint8_t requested[DDR_MAX_MEMBERS];         /* states that somebody asked for, 0 = none */
	struct member_cause cause[DDR_MAX_MEMBERS]; /* ... and why: want_set() */
	bool read_error[DDR_MAX_MEMBERS];  /* requested is MISSING, but see members.read_error */
	uint32_t earlier;                  /* requested is SUSPECT, but see members.lost_earlier */
	uint64_t kept_us[DDR_MAX_MEMBERS]; /* a node said so last of one that must stay */
	bool full[DDR_MAX_MEMBERS];        /* REBUILDING from nothing */
	uint64_t unlike_us[DDR_MAX_MEMBERS]; /* some reach it, and some don't; 0: not so */
	uint64_t unlike_seen_us[DDR_MAX_MEMBERS];
	uint8_t new_uuid[DDR_MAX_MEMBERS][DDR_UUID_BYTES]; /* of a member to add */
	const char *why;
	char text[DDR_URI_BYTES * 2 + 256]; /* what `why` may point to */
	struct slotinfo *slot;              /* slots + 1 */
	struct slot_told told[DDR_MAX_MEMBERS];
	uint32_t rd_slot, rd_page, rd_count; /* the run of pages that is read */
	uint32_t rd_singly;                  /* up to this page it is one page, copy by copy */
	uint8_t (*rd_buf)[DDR_BLOCK_BYTES];  /* see image_at */
	struct iovec rd_iov[2 * DDR_MAX_MEMBERS];
	struct batch rd_batch;
	bool reading;
	uint32_t rd_rows;                  /* members from which each page was read that is known */
	uint8_t rd_fails[DDR_MAX_MEMBERS]; /* how often one broke off in it, this round */
	bool rd_stale; /* what is being read was asked for before that became unknown */
	bool assigned[DDR_MAX_SLOTS]; /* to a node that has not said Joined yet */
};

/* Which node is to assemble the array. */
struct choice {
	bool defers; /* another node was to assemble the array, for this one reached too little: */
	uint32_t defers_reach; /* so many members */
	uint64_t better_us; /* since when such a one is there, and this one is to lead; 0 = not */
	uint64_t better_seen_us; /* when that was looked for last */
	uint64_t no_dev_us;      /* since when it joins and no device is connected, 0 = one is */
	uint32_t fenced_out;     /* how often it has gone on as a new incarnation for that */
};

/* It broke off again and again, and is not let in for so long; 0: it may come. */
uint64_t member_kept_out_us(const struct engine *e, uint8_t m);
/* A new incarnation of that node has seen to it. */
bool fenced_by_itself(const struct engine *e, uint32_t node, uint64_t inc);
void leader_advance(struct engine *e);
/* A new round: nothing of the last one's dealings counts. */
void leader_reset(struct engine *e);
/* Fenced, Dirty, Lock, Unlock and the like. */
void leader_message(struct engine *e, uint32_t from, const nodemsg *m);
/* EV_FENCE_DONE. */
void leader_fence_done(struct engine *e, const struct event *ev);
/* Every node: the leader has this one fence, since it can not. */
void leader_asks_fence(struct engine *e, uint32_t node, uint64_t inc);
/* Another node has fenced it, since this one asked. */
void leader_fence_told(struct engine *e, uint32_t from, struct departed *d);
/* Tells all that the node is out. */
void evict(struct engine *e, const struct peer *p);

#endif
