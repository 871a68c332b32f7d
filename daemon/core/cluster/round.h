/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Views and rounds: who takes part (round.c). */
#ifndef DDRAID_CORE_CLUSTER_ROUND_H
#define DDRAID_CORE_CLUSTER_ROUND_H

#include "daemon/core/cluster/nodemsg.h"
#include "daemon/core/door.h"

#define PEERS_MAX (2 * DDR_MAX_NODES) /* nodes in view, and those that were and may be back */
#define MSG_IDS 2048u                 /* lock claims per message */

struct round_id {
	uint64_t inc, num;
};

struct peer { /* one node of the group */
	uint32_t node;
	uint64_t inc;                  /* 0 = not known */
	uint64_t evicted_inc;          /* which of its incarnations was evicted, 0 = not known */
	uint64_t member_inc;           /* which of its incarnations takes part, if member */
	bool in_round;                 /* named by the present Query */
	bool in_view, evicted, member; /* member: takes part in the present round's State */
	bool dropped;                  /* was in the view, and is no more */
	bool left; /* a quorate view was without it, and which incarnation that was is not known */
	bool active; /* holds a slot and serves */
	uint32_t slot;
	uint64_t seen_us;  /* its last message */
	uint64_t heard;    /* whose message that was, until it left in good order; 0 = none */
	uint32_t up_mask;  /* members that it reaches and can use */
	uint32_t raw_mask; /* members whose devices are connected there */
	uint32_t older;    /* members that are older copies of themselves, as it finds: back.c; */
	uint32_t looking;  /* ... or may be */
	uint32_t tells;    /* members that it is going to compare (slots_told.c) */
	uint64_t up_inc;   /* who told it */
	uint64_t up_us;    /* and when that came here */
	bool leased;       /* it may write to members (use.c) */
	uint64_t stops;    /* it is going to leave, and said so as the stops-th; 0 = it is not */
	uint32_t asks;     /* vouch.c: its newest question, heard then; 0 = none */
	uint64_t asks_inc, asks_us;
	uint32_t vouched;                  /* members, to it */
	uint32_t vouches[DDR_MAX_MEMBERS]; /* to us: the newest question that it answered so */
	uint32_t reach;                    /* how many members in sync are connected there */
	bool hello_defers, defers; /* another should assemble the array: in this round, by now */
	uint64_t settled;          /* the newest Settle of ours that it answered */
	uint64_t quiesced;         /* the newest Quiesce of this round that it answered */
	bool other_locks;          /* its lock manager is not ours */
	bool other_fence;          /* its fence is of another kind, or waits for another time */
	uint64_t idle_inc;         /* as told in Hello: its last incarnation wrote to no member */
	bool hello, claimed, acked, sent_missed;
	struct map committed, proposed; /* of its Hello */
	struct epoch acked_epoch, known_epoch;
	uint8_t bad[DDR_MAX_MEMBERS]; /* as told in Hello; */
	uint32_t bad_earlier; /* which of those only an earlier incarnation of it has lost */
	struct member_cause cause[DDR_MAX_MEMBERS];   /* why, of each */
	uint8_t failed[DDR_MAX_DEVS][DDR_UUID_BYTES]; /* and who failed a flush there (R14) */
	uint32_t failed_count;
	uint64_t use_nonce,
	    use_claim;       /* likewise; claim: of this run, or an earlier one; 0 = none */
	bool use_held;       /* of this one, for certain */
	uint64_t fenced_inc; /* its incarnations up to here are fenced, by itself */
	uint64_t reject_us;  /* it was asked to be evicted for a message; not before this */
	uint64_t disputes;   /* whose claims conflict with its own; mask by index */
	uint32_t mute;       /* Queries in a row that it did not answer */
};

/* Who is there, as the cluster stack says. */
struct views {
	struct ring view_ring, quorum_ring;
	bool view_known, quorate;
	uint32_t quorum_count, quorum[DDR_MAX_NODES]; /* nodes whose cluster stack lives */
	uint32_t view_count, view[DDR_MAX_NODES];
};

/* Who takes part, as the nodes agree. */
struct round {
	bool confirmed; /* named by a State since the ring changed or quorum was lost */
	bool met;       /* named by a State together with another node */
	struct peer peer[PEERS_MAX];
	uint32_t peer_count;
	struct round_id id;
	uint64_t last_num; /* of the newest round that this node has begun or heard of */
	uint64_t since_us, view_us;
	bool queried;
	uint32_t leader;
	bool claim_due;      /* the end of the Claim for this round is not sent yet */
	uint64_t give_up_us; /* 0, or this incarnation gives up: then it is removed */
	bool give_up_heard;  /* the Evict of it came */
	uint64_t hb_sent_us; /* when the newest own heartbeat that came back was sent */
	bool hb_leased;      /* what the newest one says */
	uint64_t hb_next_us;
	bool hb_any;
	uint64_t idle_inc; /* the last incarnation, if that wrote to no member */
};

/* This node's record: as it should be, as it was asked to be made durable last, as it is. */
struct records {
	struct record want, sent, durable;
	uint64_t asked_us;
	bool busy;
};

static inline bool ring_is(const struct ring *a, const struct ring *b)
{
	return a->rep == b->rep && a->seq == b->seq;
}

/* EV_VIEW. */
void round_view(struct engine *e, const struct event *ev);
/* EV_QUORUM. */
void round_quorum(struct engine *e, const struct event *ev);
/* Query, Hello, State, Ready, heartbeats and the like. */
void round_message(struct engine *e, uint32_t from, const nodemsg *m);
void round_advance(struct engine *e);
/* R6: this incarnation is over. */
void round_removed(struct engine *e);
/* The others went on without it, and say so. */
void round_put_out(struct engine *e);
/* EV_GIVE_UP. */
void round_give_up(struct engine *e);
/* Another node should assemble the array. */
bool defers(const struct engine *e);
/* NULL: it was never here. */
struct peer *peer_find(struct engine *e, uint32_t node);
/* ... then it is added. */
struct peer *peer_get(struct engine *e, uint32_t node);
/* In the view, and not evicted. */
bool in_effective_view(const struct engine *e, const struct peer *p);
static inline bool peer_differs(const struct peer *p) /* so it may not serve beside this node */
{
	return p->other_locks || p->other_fence;
}
/* This node leads the round. */
bool leading(const struct engine *e);
/* Has the record made durable. */
void record_advance(struct engine *e);
/* That takes too long. */
bool record_stuck(const struct engine *e);

#endif
