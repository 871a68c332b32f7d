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

#include "daemon/core/door.h"
#include "daemon/core/htable.h"
#include "daemon/core/rset.h"

#define NO_COPY 0xff
#define PEERS_MAX (2 * DDR_MAX_NODES) /* nodes in view, and those that were and may be back */
#define GONE_MAX 512u /* departed incarnations between two commits; of these at most */
#define GONE_TOLD (GONE_MAX - 4 * DDR_MAX_NODES) /* when another tells of one more, */
#define GONE_OF_NODE 16u                         /* that others tell of one node, */
#define GONE_STRANGERS 64u                       /* that they tell of nodes never seen here */
#define GONE_JOINS (GONE_OF_NODE / 2)            /* a node with so many unfenced has to wait */
#define FENCE_ASKS_MAX (2 * DDR_MAX_NODES)
#define RD_PAGES 32u        /* of a slot that are read at once: 256 KiB of each member */
#define WR_PAGES 16u        /* ... and written at once */
#define MSG_IDS 2048u       /* lock claims per message */
#define DIRTY_BITS_MAX 512u /* regions that a Dirty message names one by one */

typedef struct Ddraid__NodeMsg nodemsg;

struct term {
	uint64_t inc, num;
};

struct sb_copy { /* one of a device's two superblock copies, while it is read */
	struct batch batch;
	struct iovec iov;
	struct dev *dev;
	int err;
};

struct dev {
	bool up, sb_ok, reading;
	bool fresh; /* sb was read since it was asked for last; until then the old one binds */
	bool flush_failed; /* R14, and the map does not say so yet; outlives an incarnation */
	uint8_t failed_uuid[DDR_UUID_BYTES]; /* the member that the device was then */
	bool zombie;        /* a write ended without an answer and may still land: R5 */
	uint64_t zombie_us; /* when the last one did */
	bool stale_read;    /* connected anew while the read of the old connection was ending */
	bool entered;       /* its member has entered the map, and the superblock is read since */
	uint64_t retry_us;  /* when to read the superblock again after an error, 0 = not */
	uint64_t failed_us; /* when that has failed last */
	uint8_t member;     /* NO_MEMBER until the map names it */
	uint8_t bound_uuid[DDR_UUID_BYTES]; /* the member that no other device was before it */
	uint8_t moved_uuid[DDR_UUID_BYTES]; /* another that it was found to be since: was_another */
	uint64_t bound_no, moved_no;        /* the order in which that was noted */
	/* A connection broke (R17) before there was a map to name its member, or before its
	 * superblock was read. */
	bool lost;
	bool lost_own; /* with so many others at once that it was this node's own network */
	uint8_t lost_uuid[DDR_UUID_BYTES];
	uint64_t lost_instance, lost_us;
	bool connected_here; /* in this incarnation */
	bool connected_next; /* for the next one: this one is removed */
	uint32_t asks;       /* vouch.c: this node's question when it was connected last */
	uint32_t ups;        /* how often it was connected */
	uint64_t up_us;      /* when it was last, or was asked to be connected anew */
	uint64_t bytes, instance;
	uint32_t multiple;
	char misfit[160];    /* why it can't be a member, empty: it can */
	bool carries_misfit; /* for what its superblocks say: `add` writes them over */
	bool odd;     /* because its superblock speaks of another array than the others' do */
	bool cut;     /* because it has fewer bytes */
	bool was_cut; /* of that member; it may have been extended since, and then it lacks the
		       * end */
	uint8_t cut_uuid[DDR_UUID_BYTES];
	/* When sb was read last, and the read that is under way or has failed: the number of the
	 * map's epoch, and of the newest that was known to be committed. */
	uint64_t read_num, read_all, asked_num, asked_all;
	struct superblock sb; /* valid if sb_ok */
	/* Of its two copies: which one is the newest intact, and that one's number. Known from the
	 * connection that is there, and as long as nobody else writes them: see sb_written. */
	bool copies_known, copies_raced, sb_writing;
	uint8_t newest_copy; /* or NO_COPY */
	uint64_t newest_seq;
	uint8_t unreadable; /* mask of the copies that answered the last read with an error */
	uint8_t to_read;    /* copies that are being read */
	struct sb_copy copy[SB_COPIES];
	uint8_t (*buf)[DDR_BLOCK_BYTES]; /* SB_COPIES blocks */
	/* As read last. A new connection leaves them as they are until it has been read, too. */
	bool misplaced;   /* no copy counts, and one of them is the other one: sb_misplaced */
	bool no_sb;       /* no copy counts, though none answered with an error */
	bool asked_anew;  /* this node ended the connection, to look at the device again */
	struct {          /* back.c: this node's pages of the log, as it has them */
		bool due; /* not known yet; until then it is not used */
		bool older, found; /* some were older images; as far as they are known */
		bool settles;      /* what it lacks for that is on its way to the log */
		bool reading;
		uint8_t member;
		uint32_t ups;                /* of this connection */
		uint32_t at, count, singly;  /* images, two of each page */
		bool fits;                   /* one of the page's is no older */
		bool unread;                 /* ... can't be read */
		uint32_t of_nobody;          /* pages of slots of nobody that were compared */
		uint64_t again_us, heard_us; /* heard: it answered last, or was asked first */
		uint64_t told;               /* e->told.count when it was asked last */
		struct batch batch;
		struct iovec iov;
		uint8_t *buf;
	} back;
	char uri[DDR_URI_BYTES];
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
	bool hello_yields, yields; /* another should assemble the array: in this round, by now */
	uint64_t settled;          /* the newest Settle of ours that it answered */
	uint64_t quieted;          /* the newest Quiet of this round that it answered */
	bool other_locks;          /* its lock manager is not ours */
	bool other_fence;          /* its fence is of another kind, or waits for another time */
	uint64_t idle_inc;         /* as told in Hello: its last life wrote to no member */
	bool hello, claimed, acked, sent_missed;
	struct map committed, proposed; /* of its Hello */
	struct epoch acked_epoch, known_epoch;
	uint8_t bad[DDR_MAX_MEMBERS]; /* as told in Hello; */
	uint32_t bad_earlier;         /* which of those only an earlier life of it has lost */
	struct member_cause cause[DDR_MAX_MEMBERS];   /* why, of each */
	uint8_t failed[DDR_MAX_DEVS][DDR_UUID_BYTES]; /* and who failed a flush there (R14) */
	uint32_t failed_count;
	uint64_t use_nonce,
	    use_claim;       /* likewise; claim: of this run, or an earlier one; 0 = none */
	bool use_held;       /* of this one, for certain */
	uint64_t fenced_inc; /* its lives up to here are fenced, by itself */
	uint64_t reject_us;  /* it was asked to be evicted for a message; not before this */
	uint64_t disputes;   /* whose claims conflict with its own; mask by index */
	uint32_t mute;       /* Queries in a row that it did not answer */
};

struct departed {
	uint32_t node, by_node; /* by: the incarnation that saw it left behind, 0 = not known */
	uint64_t inc, by_inc;
	bool fenced, asked;
	uint32_t failures; /* of its fence by this node, which leads */
	bool sure; /* seen, or told by who saw it or by a leader, since this incarnation began */
	uint64_t retry_us, since_us;
};

/* Fenced lately: such an incarnation never takes part again, though all else forgot it. */
#define BURIED_MAX (DDR_MAX_NODES * 2)
struct buried {
	uint32_t node;
	uint64_t inc;
	struct ring settled; /* in which an epoch was committed since */
};

/* fence_waits: answers that are owed. */
struct fence_ask {
	uint32_t node, owed;
	uint64_t inc;
	struct ring ring; /* of the youngest */
	bool failed;
};

/* A member that a life of this daemon lost, and ended before a map said so. */
struct lost {
	uint8_t uuid[DDR_UUID_BYTES];
	uint64_t instance; /* of its exporter then, 0 = unknown */
	uint64_t num;      /* of the map by which that life went */
	uint64_t since_us; /* when */
};

struct back_page {                      /* of a page of the own slot */
	uint64_t told[DDR_MAX_MEMBERS]; /* the newest image that each has acknowledged */
	uint32_t sent_dev[DDR_MAX_MEMBERS], sent_ups[DDR_MAX_MEMBERS]; /* by these connections */
	uint32_t older;  /* members in the map that have come back with an older one, */
	uint32_t unread; /* ... or with one that can't be read */
};

struct pageinfo {
	uint64_t seq;
	bool stale;            /* it is newer here than on some member */
	bool changed;          /* ... than what is being written */
	bool untold;           /* its dirty regions are others than the nodes were told */
	uint64_t told, before; /* its image that all members have, and the one before */
};

/* slots_told.c: of a slot of nobody, and as a member had it when it left the map. */
struct told_page {
	uint32_t slot, page;
	uint64_t told, before;
};

struct slot_told {
	uint8_t uuid[DDR_UUID_BYTES];
	uint32_t count;
	struct told_page *page;
};

struct pagewrite { /* a page of a slot of nobody, on its way to the members */
	struct batch batch;
	struct iovec iov;
	uint32_t page;
	bool durable;
};

struct slotinfo { /* a slot, as the leader has read it */
	bool known;
	uint32_t owner_node;
	uint64_t owner_inc;
	uint32_t hear_node;  /* whom too few members name to be its owner, 0 = nobody: */
	uint64_t hear_inc;   /* it is not given away */
	uint32_t stale;      /* pages that are */
	bool cleared;        /* ... since bits were cleared */
	bool unlike;         /* members told different things of it */
	bool lost;           /* a page could not be read as a whole: see page_take */
	bool untold;         /* read or written, and no epoch above this one is committed since: */
	uint64_t untold_num; /* some members may have carried this one before */
	struct pageinfo *page;
	struct rset dirty, missed;
};

#define EXTENDED_INSYNC                                                                            \
	"fewer members in sync are reachable than the data needs, but for one that was too small " \
	"for a while, and what lay beyond its end may be gone; connect the others, or stop the "   \
	"array on all nodes, start it, and check the data"

#define MEMBER_NEEDED_OLDER                                                                        \
	"members: one that the data needs is an older copy of itself; connect the right one"

/* use.c */
enum use_state {
	USE_NONE,   /* this node does not assemble the array, nor takes part in it */
	USE_LOOK,   /* reads who uses the array, again and again until nobody does */
	USE_CLAIM,  /* writes that it does */
	USE_VERIFY, /* waits for who may have claimed at the same time, then reads again */
	USE_HELD,   /* may use it, as long as it is renewed */
	USE_GIVEN,  /* has written that nobody uses it any more */
};

/* Claims of others that are watched at once: each device has one now, and had one a moment ago.
 * With a bound that they can reach, what lives that died one after the other have left would never
 * be waited for to its end. */
#define USE_WATCHED (2u * DDR_MAX_DEVS)
struct use_watch {
	struct useblock last;
	uint64_t since_us;  /* nothing of it has changed since */
	bool shown;         /* a device showed it in the last round of reads */
	bool unseen;        /* none did in the round before */
	uint32_t found_on;  /* 1 + a device that has it and is too slow for a round; 0 = none */
	bool alive;         /* something has changed while we looked */
	bool probed, ended; /* asked; its process has ended for certain */
};

/* HELD: on the way to a lease. */
enum use_check {
	CHECK_READ,  /* is somebody else there? */
	CHECK_WRITE, /* claims anew */
	CHECK_AGAIN, /* waits for who may have done so at the same time, then reads again */
	CHECK_DONE,  /* renews */
};

struct use_dev {
	bool busy, in_round, reading;
	bool seen, ours, taken;   /* read last: was it? The run's claim; another's, or none */
	bool odd;                 /* it shows that another holds the array, or has held it */
	bool wrote;               /* our claim, in the last round of writes */
	bool unread;              /* connected since the claim was verified */
	bool gone;                /* the request under way is of the connection before */
	bool lost;                /* our last renewal failed: it may land yet */
	bool failed;              /* the last request ended with an error */
	uint64_t asked_us;        /* when the last one that was answered began */
	bool late;                /* the read under way counts for nothing: nobody waits for it */
	bool slow[2];             /* its last write, its last read took longer than a claim may */
	uint64_t sent_us;         /* when the request under way began */
	uint64_t answered_us;     /* when the last one ended well */
	uint64_t held_us;         /* when the last write of our claim began that landed; 0 = none */
	struct useblock got, was; /* as read last, and before */
	struct useblock met;      /* another's, as it was renewed last */
	struct batch batch;
	struct iovec iov;
	uint8_t (*buf)[DDR_BLOCK_BYTES];
};

struct use {
	enum use_state state;
	uint64_t claim;    /* names this run of the array; 0 = not known yet */
	uint32_t pending;  /* requests of the round under way */
	bool reads;        /* that is of reads */
	bool round_over;   /* its end was not looked at yet */
	uint64_t round_us; /* when it began */
	uint64_t began_us; /* this node is to assemble the array since then */
	uint64_t look_us;  /* the reads that found nobody began then */
	uint64_t lease_us; /* until then I/O may go on */
	uint64_t late_us;  /* a renewal landed then without a lease, maybe over another's claim */
	uint64_t next_us;  /* the next one is not due before */
	uint64_t hurried_us;
	uint32_t tries; /* claims that came to nothing */
	bool unclaimed; /* the last one did: another may be able to write */
	bool given;     /* this node wrote last that nobody uses it */
	bool adopted;   /* the claim is another's, and was not read since it was told */
	enum use_check check;
	uint64_t checked_us; /* DONE: the reads that found the own claim began then */
	struct use_dev dev[DDR_MAX_DEVS];
	struct use_watch watch[USE_WATCHED];
	uint32_t watches;
	bool too_many;              /* claims, to watch them all */
	uint64_t over[USE_WATCHED]; /* claims that the last look has waited for */
	uint32_t overs;
	bool refused;
	char why[640];
};

enum rebuild_state { RB_IDLE, RB_GATHER, RB_COPY, RB_FLUSH, RB_LOG, RB_QUIET, RB_PROMOTE };

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
	uint64_t settle_num, settle_floor; /* LOCK_EXTERNAL, see settle_advance */
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
	struct {
		bool begun; /* State is sent */
		bool knows; /* led the last round up to Ready: superblocks and slots are known */
		bool need_epoch;      /* the round needs an epoch of its own before Ready */
		bool cleared;         /* slots of nobody, and they are not all clean yet */
		uint64_t cleared_num; /* the newest epoch when they were; 0 = never */
		bool revive;          /* next epoch: more than m were lost, recompute parity: R17 */
		bool forced;          /* what the members carry is not known to be the newest: R1 */
		bool own_prop, sb_writing, committing, announced, refused, rereading, assembled,
		    gathered;
		struct epoch prop_epoch; /* of the own proposal */
		bool prop_fresh; /* ... that goes back to e->map, and no superblock has it */
		uint64_t state_us, assemble_us, propose_us;
		uint64_t
		    waits_us; /* since when for absent members, at most once a round; 0: not yet */
		uint64_t max_num; /* newest epoch number seen anywhere */
		uint32_t lacked;  /* members that did, until all slots were read with them */
		uint32_t lacks; /* members that slots tell are older copies; by these connections */
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
		uint8_t wanted[DDR_MAX_MEMBERS]; /* states that somebody asked for, 0 = none */
		struct member_cause cause[DDR_MAX_MEMBERS]; /* ... and why: want_set() */
		bool misread[DDR_MAX_MEMBERS];     /* wanted MISSING, but see engine.misread */
		uint32_t earlier;                  /* wanted SUSPECT, but see engine.lost_earlier */
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
		uint32_t rd_singly; /* up to this page it is one page, copy by copy */
		uint8_t (*rd_buf)[DDR_BLOCK_BYTES]; /* see image_at */
		struct iovec rd_iov[2 * DDR_MAX_MEMBERS];
		struct batch rd_batch;
		bool reading;
		uint32_t rd_rows; /* members from which each page was read that is known */
		uint8_t rd_fails[DDR_MAX_MEMBERS]; /* how often one broke off in it, this round */
		bool rd_stale; /* what is being read was asked for before that became unknown */
		bool assigned[DDR_MAX_SLOTS]; /* to a node that has not said Joined yet */
	} ld;

	/* recovery of dead slots, rebuild: leader */
	struct {
		struct job job;
		bool running, flushing, flushed, writing, rewriting;
		bool doubted; /* a round has ended since what is being written was begun */
		bool again;   /* what was written is not on all members, and is written again */
		uint64_t again_us;    /* a bad spot was in the way: not before this */
		struct rset done;     /* resynced, not yet cleared */
		struct rset clearing; /* cleared in pages that are on their way */
		uint32_t of_slot;     /* where the job's region is dirty */
		uint32_t slot, count; /* a run of pages of it is written, */
		uint32_t pending;     /* so many of them not yet */
		struct pagewrite run[WR_PAGES];
		uint8_t (*block)[DDR_BLOCK_BYTES];
		struct batch batch; /* of the flush */
		struct logpage image;
		struct term term; /* of the flush */
	} rec;
	struct {
		enum rebuild_state state;
		uint8_t member;
		bool partial;
		struct job job;
		bool running;
		struct rset set; /* regions to copy: partial */
		uint64_t next, done, total;
		uint64_t checkpoint;
		uint64_t map_num;
		uint64_t flush_num; /* map_num when the flush was issued */
		uint64_t again_us;  /* a bad spot was in the way: not before this */
		uint64_t gather_us; /* GATHER, or LOG, since */
		uint64_t quiet_us;  /* a Quiet was taken back: not before this */
		uint32_t quiet_tries;
		uint32_t quiet_node; /* who had not answered then */
		struct batch batch;
		bool busy;
	} rb;
	struct {
		bool on, answered; /* every node's: begins no write; has said that none is left */
		uint64_t num;
		bool wanted;              /* leader: */
		uint64_t asked, asked_us; /* the newest that it has sent */
	} quiet;
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

	struct {                           /* the leader's */
		uint64_t tag, since, seen; /* seen: mask by index in peer */
		uint32_t node;
		bool used, opened, anew, looked, placed, written, checked, entered;
		uint32_t dev, ups; /* anew: which one is, and the connection before that */
		uint64_t looked_us, written_us;
		uint64_t before; /* see EV_ADMIN */
		uint8_t member, cmd;
		char uri[DDR_URI_BYTES];
		uint8_t uuid[DDR_UUID_BYTES];
	} admin;
	struct { /* leader: the superblocks of an `add`, also of one that a new round has ended */
		bool busy;
		uint8_t block[SB_COPIES][DDR_BLOCK_BYTES];
		struct iovec iov[SB_COPIES];
		struct batch batch;
	} placing;
	struct { /* every node's: a device to look at */
		bool used, reread;
		struct term term;
		char uri[DDR_URI_BYTES];
		uint8_t uuid[DDR_UUID_BYTES];
	} adding;
	char open_uri[DDR_URI_BYTES]; /* what OUT_OPEN points to */
	struct {                      /* the node's that was asked */
		bool used;
		uint64_t tag;
		struct term term;
	} asked;

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

/* engine.c */
static inline bool ring_is(const struct ring *a, const struct ring *b)
{
	return a->rep == b->rep && a->seq == b->seq;
}

/* devs.c */
uint32_t members_reached(const struct engine *e);
/* Why the array can't be assembled by `map`: too few of its members in sync are reached. */
uint32_t members_read(const struct engine *e);
void fewer_insync(const struct engine *e, const struct map *map, char *text, size_t size);
bool dev_failed_flush(const struct dev *d, const struct map_member *mm);
bool dev_was_cut(const struct dev *d, const struct map_member *mm);
bool member_cut(const struct engine *e, const struct map_member *mm);
bool aside(const struct engine *e);
bool peer_aside(const struct engine *e, const struct peer *p);
void sb_read(struct engine *e, uint32_t dev);
void devs_fit(struct engine *e);
void copies_forget(struct engine *e);
bool copies_known(struct engine *e, uint32_t dev);
uint8_t copy_to_write(const struct dev *d);
void copy_write_begins(struct dev *d);
void copy_written(struct dev *d, uint8_t copy, uint64_t seq, bool ok);
void devs_reread(struct engine *e);
void devs_look_again(struct engine *e);
void devs_judge(struct engine *e);
void member_entered(struct engine *e, uint8_t member);
bool dev_being_read(const struct dev *d);
bool devs_looking(const struct engine *e);
void dev_reread(struct engine *e, uint32_t dev);
void devs_lost_tell(struct engine *e);
void devs_lost_keep(struct engine *e);
bool member_sb_read(const struct engine *e, uint8_t member);
bool member_back(const struct engine *e, uint8_t member);
bool members_older(const struct engine *e);
bool member_sb_current(struct engine *e, uint8_t member);
bool member_older(const struct engine *e, uint8_t member, uint64_t reached);
bool member_strange(const struct engine *e, uint8_t member, uint64_t left);
void dev_up(struct engine *e, const struct event *ev);
void dev_down(struct engine *e, const struct event *ev);
void devs_bind(struct engine *e);
void devs_advance(struct engine *e);
const struct superblock *sb_confirmed(const struct engine *e);

/* leader.c */
uint64_t member_kept_out_us(const struct engine *e, uint8_t m);
bool fenced_by_itself(const struct engine *e, uint32_t node, uint64_t inc);
void leader_advance(struct engine *e);
void leader_reset(struct engine *e);
void leader_message(struct engine *e, uint32_t from, const nodemsg *m);
void leader_fence_done(struct engine *e, const struct event *ev);
void leader_asks_fence(struct engine *e, uint32_t node, uint64_t inc);
void leader_fence_told(struct engine *e, uint32_t from, struct departed *d);
void evict(struct engine *e, const struct peer *p);

/* members.c */
void member_bad(struct engine *e, uint8_t member, enum member_state want);
bool member_misread(const struct engine *e, uint8_t member);
bool member_indispensable(const struct engine *e, uint8_t member);
uint32_t devs_up_mask(const struct engine *e);
bool member_lost_earlier(const struct engine *e, uint8_t member);
void misread_advance(struct engine *e); /* who was given up for an error, and is needed now */

/* back.c */
const struct peer *member_older_by(const struct engine *e, uint8_t member); /* NULL: nobody */
bool member_doubted(const struct engine *e, uint8_t member);
int back_alloc(struct engine *e);
void back_free(struct engine *e);
void back_forget(struct engine *e, uint32_t page); /* the slot is taken anew */
void back_tell(const struct engine *e, uint32_t *older, uint32_t *looking);
void back_dropped(struct engine *e, uint8_t member);
void back_lacks(struct engine *e, uint8_t member); /* others' pages tell that it is older */
void back_up(struct dev *d);
void back_bound(struct engine *e, struct dev *d, uint8_t member);
void back_restart(struct dev *d);
void back_advance(struct engine *e);

/* departed.c */
void departed_note(struct engine *e);
void departed_committed(struct engine *e);
void departed_keep(const struct engine *e, struct departed *d, const struct departed *old);
bool may_go_alone(const struct engine *e);
struct departed *gone_find(struct engine *e, uint32_t node, uint64_t inc);
void gone_add(struct engine *e, uint32_t node, uint64_t inc);
void gone_recall(struct engine *e, const struct record *r);
uint32_t gone_unfenced(const struct engine *e);
bool gone_waits(const struct engine *e, uint32_t node);
void record_removed(struct engine *e);
void bury(struct engine *e, struct departed *d);
bool is_buried(const struct engine *e, uint32_t node, uint64_t inc);
void fences_void(struct engine *e);
void fences_void_of(struct engine *e, const struct peer *p);
void fence_settled(struct engine *e, uint32_t node, uint64_t inc);
bool fence_stands(const struct engine *e, uint32_t node, uint64_t inc);

/* admin.c */
void admin_submit(struct engine *e, const struct event *ev);
void admin_advance(struct engine *e);
void admin_look(struct engine *e);
void admin_reset(struct engine *e);
void admin_message(struct engine *e, uint32_t from, const nodemsg *m);

/* msg.c */
void nodemsg_join(struct engine *e);
void msg_send(struct engine *e, nodemsg *m);
void msg_receive(struct engine *e, const struct event *ev);
void msg_rejected(struct engine *e, struct peer *p, uint64_t inc, const char *why, bool certain);

/* round.c */
void round_view(struct engine *e, const struct event *ev);
void round_quorum(struct engine *e, const struct event *ev);
void round_message(struct engine *e, uint32_t from, const nodemsg *m);
void round_advance(struct engine *e);
void round_removed(struct engine *e);
void round_put_out(struct engine *e);
void round_give_up(struct engine *e);
bool yields(const struct engine *e);
struct peer *peer_find(struct engine *e, uint32_t node);
struct peer *peer_get(struct engine *e, uint32_t node);
bool in_effective_view(const struct engine *e, const struct peer *p);
static inline bool peer_differs(const struct peer *p) /* so it may not serve beside this node */
{
	return p->other_locks || p->other_fence;
}
bool leading(const struct engine *e);
void record_advance(struct engine *e);
bool record_stuck(const struct engine *e);

/* assemble.c */
bool assemble(struct engine *e);
bool array_still_ours(struct engine *e);
void epoch_doubt(struct engine *e);
void doubt_advance(struct engine *e);
bool takes_part(const struct engine *e);
bool epoch_unknown(const struct engine *e, const struct epoch *ep);
const struct superblock *sb_newest(const struct engine *e);

/* epoch.c */
/* How far ahead of all that this node knows an epoch can be that it is told: proposals that came to
 * nothing. Else one node that is broken could use up all numbers. */
#define EPOCH_AHEAD_MAX 1024u
uint64_t epoch_seen(const struct engine *e); /* the greatest number that it knows itself */
uint8_t bad_told(const struct engine *e, const struct map *m, uint8_t member);
bool flush_error_untold(const struct engine *e);
void epoch_message(struct engine *e, uint32_t from, const nodemsg *m);
void epoch_advance(struct engine *e);
void epoch_reset(struct engine *e);
void epoch_adopt(struct engine *e, const struct map *m);
void epoch_want_out(struct engine *e, uint32_t member, uint32_t want, bool misread, bool earlier,
		    const struct member_cause *c);
bool epoch_propose_wanted(struct engine *e);
uint64_t epoch_next_num(const struct engine *e, const struct map *base);
void geo_adopt(struct engine *e);
uint32_t map_count_insync(const struct map *m);

/* slots_told.c */
void slots_told_committed(struct engine *e, const struct map *old, uint32_t dropped);
void slot_untold(const struct engine *e, struct slotinfo *s);
void slots_told_forget(struct engine *e, uint8_t m);
void slots_told_reset(struct engine *e);
/* What member m must carry of slots of nobody; NULL = nothing that is known here. */
const struct slot_told *slots_told(const struct engine *e, uint8_t m);
uint32_t slots_told_mask(const struct engine *e);
/* Leader: one that leaves now has to be compared when it is back. */
bool slots_tell(const struct engine *e, uint8_t m);
/* Some node is going to do that; or once it has a slot. */
bool slots_compared(const struct engine *e, uint8_t m);
bool slots_compare_waits(const struct engine *e, uint8_t m);

/* locktab.c */
void locktab_reset(struct engine *e);
void locktab_claim(struct engine *e, uint32_t node, uint64_t id, enum lock_mode mode);
void locktab_request(struct engine *e, uint32_t node, uint64_t id, enum lock_mode mode,
		     bool try_only);
void locktab_release(struct engine *e, uint32_t node, uint64_t id);
/* A node that holds what another has waited for longest, since then; 0 = none. */
uint32_t locktab_held_by(const struct engine *e, uint64_t *since_us);

/* locks.c */
void settle_message(struct engine *e, uint32_t from, const nodemsg *m);

/* own_slot.c */
void own_slot_advance(struct engine *e);
bool slot_names_us(
    const struct engine *e); /* R4: there they find whom to fence if this node dies */
void slot_tell_missed(struct engine *e);

/* leave.c */
void leave_unserved(struct engine *e);
void leave_advance(struct engine *e);
bool leave_held(const struct engine *e);
const char *leave_waits(const struct engine *e);

/* slots.c */
int slots_alloc(struct engine *e);
void slot_read(struct engine *e, uint32_t slot);
void slots_lacking(struct engine *e);
bool slots_lacking_may_leave(const struct engine *e, uint8_t lacking);
bool slots_lacking_leaves(const struct engine *e, uint8_t lacking);
bool slots_read(struct engine *e); /* true: all slots of nobody are known */
void hearsay_advance(struct engine *e, bool wanted);
void slots_forget(struct engine *e);
void slots_announce(struct engine *e);
void slots_advance(struct engine *e);
bool slots_rewrite(struct engine *e); /* true: all are on every member */
bool slot_is_owned(const struct engine *e, uint32_t slot);
bool slot_clean(const struct engine *e, uint32_t slot);
bool slots_dirty(const struct engine *e); /* any slot of nobody; on the leader */
uint32_t slots_unrecovered(const struct engine *e);
void slots_reset(struct engine *e);
void slots_doubt(struct engine *e);
void slots_unknow(struct engine *e);
void slots_dropped(struct engine *e); /* a member has left the map */
void slots_free(struct engine *e);

/* between slots.c and resync.c */
void page_stale(struct slotinfo *s, uint32_t page);
void page_announce(struct engine *e, uint32_t slot, uint32_t page);

/* between epoch.c and propose.c */
void revive(struct engine *e);
#define REPORT_AGAIN_US 300000ull

/* between devs.c and sb_read.c */
void dev_fit(const struct engine *e, struct dev *d);
bool uuid_is_none(const uint8_t uuid[DDR_UUID_BYTES]);
bool map_names(const struct map *map, const uint8_t uuid[DDR_UUID_BYTES]);
void cut_note(struct engine *e, struct dev *d);
void dev_odd(const struct engine *e, struct dev *d);
void dev_lacks(struct engine *e, const struct dev *d, uint8_t m, uint64_t num);
void dev_judge(struct engine *e, struct dev *d, uint8_t m);
const struct map *map_seen(const struct engine *e, bool up);
void loss_note(struct engine *e, struct dev *d);

/* recovery.c */
void recovery_lost(struct engine *e, uint32_t node, uint64_t inc);
uint32_t recovery_slot(struct engine *e, uint32_t node, uint64_t inc);
void recovery_slot_is(struct engine *e, uint32_t node, uint64_t inc, uint32_t slot);
void recovery_fenced(struct engine *e, uint32_t node, uint64_t inc);
void recovery_read(struct engine *e, uint32_t slot);
void recovery_told(struct engine *e);
void recovery_region(struct engine *e);
uint64_t regions_to_resync(const struct engine *e);

/* rebuild.c */
void rebuild_advance(struct engine *e);
void rebuild_reset(struct engine *e);
void rebuild_missed(struct engine *e, uint32_t from, const nodemsg *m);
bool rebuild_keeps(const struct engine *e);
/* A node that has not told what is missed, or has not read its slot yet; 0: none. */
uint32_t rebuild_waits(const struct engine *e, const char **why);

/* use.c */
int use_alloc(struct engine *e);
void use_free(struct engine *e);
void use_restart(struct engine *e, const struct use *old);
void use_begin(struct engine *e); /* leads a round: has somebody in it a claim? */
void use_dev_up(struct engine *e, uint32_t dev);
bool use_taken(struct engine *e); /* this node, which assembles the array, may go on */
bool use_fails(const struct engine *e, uint32_t dev);        /* also its use block can't be used */
uint64_t use_wrote_us(const struct engine *e, uint32_t dev); /* likewise, a write */
uint64_t use_answered_us(const struct engine *e, uint32_t dev); /* what was sent then, has been */
void use_hurry(struct engine *e);                               /* renews now */
bool use_lease(const struct engine *e);
bool use_lapsed(const struct engine *e,
		uint64_t since_us);               /* as far as the use blocks go, I/O may go on */
void use_adopt(struct engine *e, uint64_t claim); /* the leader's */
bool use_given_back(struct engine *e);            /* the last node leaves */
void use_advance(struct engine *e);
void use_probed(struct engine *e, const struct event *ev);

/* vouch.c */
const struct peer *vouch_lacks(const struct engine *e); /* this node waits for it; NULL: for none */
void vouch_anew(struct engine *e, struct dev *d);       /* was connected */
void vouch_advance(struct engine *e);

/* quiet.c */
bool epoch_promotes(const struct engine *e); /* the proposal under way does */
void quiet_ask(struct engine *e);
void quiet_take_back(struct engine *e);
uint32_t quiet_lacks(const struct engine *e);
void quiet_end(struct engine *e);
void quiet_message(struct engine *e, uint32_t from, const nodemsg *m);
void quiet_advance(struct engine *e);

#endif
