/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The control plane's inside: for the files of core/cluster/, and engine.c.
 *
 *   msg.c       node messages <-> bytes
 *   round.c     views, rounds (Query, Hello, State), eviction: who takes part
 *   departed.c  who does not any more, and is fenced
 *   leader.c    what the leader does in a round until Ready, and after it
 *   epoch.c     proposals and commits of the map, on every node
 *   propose.c   ... from a wish to a commit (leader)
 *   assemble.c  the map that a start goes on with, by what the members carry
 *   devs.c      devices, and which member each is
 *   sb_read.c   their superblocks: read, and which copy is written next
 *   locktab.c   the lock table: the leader's side
 *   locks.c     this node's side of the locks, and when a grant counts
 *   own_slot.c  the own slot as the cluster sees it: given, read, named, told
 *   leave.c     this node leaves in good order
 *   members.c   which members this node can use, and what their errors say
 *   slots.c     slots of nobody: read, told (leader)
 *   resync.c    ... and resynced, their pages written
 *   slots_told.c what a member must carry of these that left the map before an epoch told
 *   recovery.c  what is told of recoveries
 *   rebuild.c   the rebuild of a member (leader)
 *   quiet.c     a moment without writes, before it is promoted
 *   cause.c     why a member changes its state: told, and nothing goes by it
 *   back.c      what a member that is back has of the own slot: an older copy is told by that
 *   use.c       nobody else uses the members: another cluster, a daemon by itself
 */
#ifndef DDRAID_CORE_CLUSTER_CLUSTER_H
#define DDRAID_CORE_CLUSTER_CLUSTER_H

#include "daemon/core/cluster/admin.h"
#include "daemon/core/cluster/assemble.h"
#include "daemon/core/cluster/back.h"
#include "daemon/core/cluster/departed.h"
#include "daemon/core/cluster/devs.h"
#include "daemon/core/cluster/epoch.h"
#include "daemon/core/cluster/leader.h"
#include "daemon/core/cluster/leave.h"
#include "daemon/core/cluster/locks.h"
#include "daemon/core/cluster/locktab.h"
#include "daemon/core/cluster/members.h"
#include "daemon/core/cluster/nodemsg.h"
#include "daemon/core/cluster/own_slot.h"
#include "daemon/core/cluster/quiet.h"
#include "daemon/core/cluster/rebuild.h"
#include "daemon/core/cluster/recovery.h"
#include "daemon/core/cluster/resync.h"
#include "daemon/core/cluster/round.h"
#include "daemon/core/cluster/slots.h"
#include "daemon/core/cluster/slots_told.h"
#include "daemon/core/cluster/use.h"
#include "daemon/core/cluster/vouch.h"
#include "daemon/core/door.h"
#include "daemon/core/htable.h"
#include "daemon/core/rset.h"

struct cluster {
	struct dev dev[DDR_MAX_DEVS];
	uint64_t bindings;             /* so many were noted */
	uint32_t devs;                 /* of these, up to the last one that was connected */
	uint8_t bad[DDR_MAX_MEMBERS];  /* state that this node wants for a member, 0 = none */
	bool misread[DDR_MAX_MEMBERS]; /* bad, but only for an error of a read, or of a write
					  without FUA: may be taken back */
	uint64_t refused_us[DDR_MAX_MEMBERS];     /* likewise: the first time */
	uint64_t write_again_us[DDR_MAX_MEMBERS]; /* misread: for a write, tried again then; 0: for
						     a read */
	struct member_error error[DDR_MAX_MEMBERS]; /* what it answered last */
	uint64_t bad_us[DDR_MAX_MEMBERS];           /* when it was last reported */
	uint64_t bad_since_us[DDR_MAX_MEMBERS];
	uint64_t dropped[DDR_MAX_MEMBERS]; /* number of the newest commit that dropped it; 0 = none
					    * that is known here */
	struct lost kept[DDR_MAX_MEMBERS]; /* by lives before this one; until a map names them */
	uint32_t kept_count;
	uint32_t lost_earlier; /* suspect, but only since the life before this one lost it: who has
				* been lost since leaves first */
	uint64_t bad_instance[DDR_MAX_MEMBERS]; /* of its exporter, when it was lost (R17); 0 =
						   unknown */
	uint64_t lacked[DDR_MAX_MEMBERS];  /* number of an epoch that the member carries, and what
					      was reached in its place does not; 0 = none */
	uint64_t lost_us[DDR_MAX_MEMBERS]; /* SUSPECT since, on the leader */
	uint64_t entered_us[DDR_MAX_MEMBERS]; /* when it entered the map last, 0 = it was in from
						 the start */
	uint32_t flaps[DDR_MAX_MEMBERS];      /* so often in a row it was lost soon after that */

	uint64_t aside_us; /* when this node was aside last */
	uint64_t sure_us;  /* when it knew last that the array had not gone on without it */

	/* membership */
	struct ring view_ring, quorum_ring;
	bool view_known, quorate;
	uint32_t quorum_count, quorum[DDR_MAX_NODES]; /* nodes whose cluster stack lives */
	uint64_t look_us; /* when devices were last read again for a member that is nowhere here */
	bool confirmed;   /* named by a State since the ring changed or quorum was lost */
	bool met;         /* named by a State together with another node */
	uint32_t view_count, view[DDR_MAX_NODES];
	struct peer peer[PEERS_MAX];
	uint32_t peer_count;
	struct departed gone[GONE_MAX];
	uint32_t gone_count;
	bool gone_full; /* it has seen one depart, and can't remember it */
	struct fence_ask fence_ask[FENCE_ASKS_MAX];
	struct buried buried[BURIED_MAX]; /* a ring of them; those that are free come last */
	uint32_t buried_next;
	struct term term;
	uint64_t term_num, round_us, view_us;
	uint64_t give_up_us; /* 0, or this incarnation gives up: then it is removed */
	bool give_up_heard;  /* the Evict of it came */
	bool queried;
	uint32_t leader;
	uint64_t hb_sent_us; /* when the newest own heartbeat that came back was sent */
	bool hb_leased;      /* what the newest one says */
	uint64_t hb_next_us;
	bool hb_any;
	uint64_t settle_num, settle_floor; /* LOCK_EXTERNAL, see locks.c */
	uint64_t settle_us; /* when that was asked, or somebody was evicted for not answering */
	bool settle_due;
	bool claim_due; /* the end of the Claim for this round is not sent yet */
	uint64_t stop_tag;
	struct record want_record, sent_record, record;
	uint64_t record_us; /* when it was asked for */
	bool record_busy;

	/* map */
	bool doubt;        /* another node says that an epoch was committed without this one, */
	uint64_t doubt_us; /* since then */
	bool judged; /* by the epoch that was committed when this life went by a committed map */
	struct superblock base; /* the array's constants; map and seq are not used */
	struct epoch committed; /* newest epoch known committed: map's, but after an assembly */
	bool yields; /* another node was to assemble the array, for this one reached too little: */
	uint32_t yield_reach; /* so many members */
	uint64_t outdone_us;  /* since when such a one is there, and this one is to lead; 0 = not */
	uint64_t outdone_seen_us; /* when that was looked for last */
	uint64_t no_dev_us;       /* since when it joins and no device is connected, 0 = one is */
	uint32_t outcasts;        /* how often it has gone on as a new incarnation for that */
	uint64_t idle_inc;        /* the last incarnation, if that wrote to no member */
	bool dirty_untold; /* the leader told of dirty regions, and the geometry was not known */

	bool acked_proposal;
	struct member_cause prop_cause[DDR_MAX_MEMBERS], cause[DDR_MAX_MEMBERS]; /* cause.c */
	uint64_t proposing_us;                                                   /* since when */
	bool sb_names_us;    /* the newest superblocks that it wrote, as without a slot */
	uint64_t uuid_count; /* of members added by this incarnation */

	/* leader */
	struct lead ld;

	/* recovery of dead slots, rebuild: leader */
	struct resync rec;
	struct rebuild rb;
	struct quiet quiet;
	struct use use;
	struct lineage
	    past; /* epochs that were committed: what the members carry is of this line */
	struct rset *foreign; /* slots + 1: dirty in slots of nobody, as the leader told */
	struct recovery recovery[DDR_RECOVERIES];
	uint32_t recovery_count;
	uint64_t to_resync, resync_total; /* regions: in `foreign` now, and the most it was */

	/* own slot */
	bool joined_sent;
	bool missed_due;       /* the leader waits for what this node's slot has missed: R15 */
	bool left_uncommitted; /* a node has left since the last commit */
	bool leaving;          /* ADMIN_STOP: only what is under way as leader is waited for */
	uint64_t stops;        /* so many nodes have said that they leave */
	uint64_t drained_us;   /* ADMIN_STOP: nothing is dirty any more, since then; */
	uint64_t seal_us;      /* it began to seal the array then; 0 = not yet */
	uint32_t seals;        /* epochs that it is still to commit for that: leave_sealed; */
	bool unsealed;         /* it took too long */
	bool naming;           /* its slot is to name it again: slot_again */
	struct {
		uint8_t uuid[DDR_UUID_BYTES]; /* the member that back_page.told is about */
		uint64_t instance;            /* of its exporter */
		uint64_t count;               /* of images that it has acknowledged */
	} told[DDR_MAX_MEMBERS];
	struct back_page *back; /* log_pages */
	uint32_t older, unread; /* members with back_page.older, back_page.unread */

	uint32_t asks, asks_first; /* vouch.c: this node's questions */
	struct htable locks;       /* locktab.c, leader */
	struct list lock_waiters;

	struct admin admin;
	struct placing placing;
	struct adding adding;
	char open_uri[DDR_URI_BYTES]; /* what OUT_OPEN points to */
	struct asked asked;

	uint64_t n_lock_requests, n_resync_bytes, n_read_resync_bytes;
	uint64_t n_rejected; /* messages that broke a rule; the last one: */
	uint32_t rejected_node;
	const char *rejected_why;
};

/* cluster.c: -ENOMEM, or 0. */
int cluster_new(struct engine *e);
void cluster_free(struct engine *e);
/* The end of an incarnation: what it has under way in the data plane; then, after data_clear(), all
 * else. */
void cluster_end(struct engine *e);
void cluster_clear(struct engine *e);
/* As new. idle_inc: the last incarnation, if that wrote to no member, else 0. */
void cluster_restart(struct engine *e, uint64_t idle_inc);

#endif
