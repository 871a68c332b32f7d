/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Devices, and which member each is; their superblocks (devs.c, sb_read.c). */
#ifndef DDRAID_CORE_CLUSTER_DEVS_H
#define DDRAID_CORE_CLUSTER_DEVS_H

#include "daemon/core/door.h"

struct peer;

#define NO_COPY 0xff

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
	uint64_t asked_no;    /* the number of that read, of any */
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
		bool lands; /* first, what was cut off on another way to it must have landed */
		bool reading;
		uint8_t member;
		uint32_t ups;                /* of this connection */
		uint32_t at, count, singly;  /* images, two of each page */
		bool fits;                   /* one of the page's is no older */
		bool unread;                 /* ... can't be read */
		uint32_t of_orphans;         /* pages of orphan slots that were compared */
		uint64_t again_us, heard_us; /* heard: it answered last, or was asked first */
		uint64_t told;               /* told[].count when it was asked last */
		struct batch batch;
		struct iovec iov;
		uint8_t *buf;
	} back;
	char uri[DDR_URI_BYTES];
};

/* A member that an incarnation of this daemon lost, and ended before a map said so. */
struct lost {
	uint8_t uuid[DDR_UUID_BYTES];
	uint64_t instance; /* of its exporter then, 0 = unknown */
	uint64_t num;      /* of the map by which that incarnation went */
	uint64_t since_us; /* when */
};

/* Writes that were cut off, and may land: those for one member, by one way. */
struct cut_off {
	bool used;
	uint32_t dev, ups;            /* ups: the connection */
	uint8_t uuid[DDR_UUID_BYTES]; /* of the member; zeroes: none's */
	uint64_t us;                  /* when the last one was */
	uint64_t reads;               /* devs.reads then */
	uint32_t by, by_ups;  /* the way by which the member answered first after that, and */
	uint64_t answered_us; /* when; NO_DEV: not yet */
};

#define CUT_OFFS (4u * DDR_MAX_DEVS)

struct devs {
	struct dev dev[DDR_MAX_DEVS];
	struct cut_off cut_off[CUT_OFFS];
	uint32_t cut_offs;                 /* so many are used */
	uint64_t reads;                    /* of superblocks, that were sent */
	uint32_t count;                    /* of these, up to the last one that was connected */
	uint64_t bindings;                 /* so many were noted */
	struct lost kept[DDR_MAX_MEMBERS]; /* by incarnations before this one; until a map names
					      them */
	uint32_t kept_count;
	uint64_t lacked[DDR_MAX_MEMBERS]; /* number of an epoch that the member carries, and what
					     was reached in its place does not; 0 = none */
	uint64_t look_us; /* when devices were last read again for a member that is nowhere here */
	uint64_t observer_us; /* when this node was an observer last */
};

/* Another incarnation: what was so of the last one only ends. */
void devs_restart(struct devs *devs);
/* How many members are connected that the newest map known here has in sync. */
uint32_t members_reached(const struct engine *e);
/* How many devices are connected whose superblocks are this array's. */
uint32_t members_read(const struct engine *e);
/* Why the array can't be assembled by `map`, in words: too few of its members in sync are here. */
void fewer_insync(const struct engine *e, const struct map *map, char *text, size_t size);
/* R14: it failed one, as that member. */
bool dev_failed_flush(const struct dev *d, const struct map_member *mm);
/* It ended before that member does, and may do so still. */
bool dev_was_cut(const struct dev *d, const struct map_member *mm);
/* So did the member's device, whatever is connected now. */
bool member_cut(const struct engine *e, const struct map_member *mm);
/* R7: this node joins, and reaches fewer members than the data needs. */
bool is_observer(const struct engine *e);
/* The same of another node, as the leader sees it. */
bool peer_is_observer(const struct engine *e, const struct peer *p);
/* Reads both copies of its superblock. */
void sb_read(struct engine *e, uint32_t dev);
/* The geometry is known: which devices fit it? */
void devs_fit(struct engine *e);
/* Nothing is known of the copies any more: others have written them. */
void copies_forget(struct engine *e);
/* Which copy is the newest intact one. False: it is being read. */
bool copies_known(struct engine *e, uint32_t dev);
/* The other one. */
uint8_t copy_to_write(const struct dev *d);
void copy_write_begins(struct dev *d);
/* ok: it is the newest one now. */
void copy_written(struct dev *d, uint8_t copy, uint64_t seq, bool ok);
/* The fresh leader reads all superblocks anew. */
void devs_reread(struct engine *e);
/* A member is nowhere here: those that were read before there was this map are read again. */
void devs_look_again(struct engine *e);
/* This incarnation goes by its first committed map: what it read before counts no more. */
void devs_judge(struct engine *e);
/* A commit let the member in: is what is connected here that member? */
void member_entered(struct engine *e, uint8_t member);
/* What is to be known of it before it counts will be known before long, or can't be done without.
 * */
bool dev_being_read(const struct engine *e, const struct dev *d);
/* ... of any. */
bool devs_looking(const struct engine *e);
/* Reads the superblock of one again. */
void dev_reread(struct engine *e, uint32_t dev);
/* There is a map now, which names the members that were lost before. */
void devs_lost_tell(struct engine *e);
/* This incarnation ends: the next one tells what it has lost. */
void devs_lost_keep(struct engine *e);
/* By the connection that is there now. */
bool member_sb_read(const struct engine *e, uint8_t member);
/* Connected, and it is what this node had lost. */
bool member_back(const struct engine *e, uint8_t member);
/* One that the map writes to is connected, and is an older copy of itself. */
bool members_older(const struct engine *e);
/* R15: of one out of the map, the superblock was read after it left. Else it is read again. */
bool member_sb_current(struct engine *e, uint8_t member);
/* R15: it is an older copy of what it was when it left. */
bool member_older(const struct engine *e, uint8_t member, uint64_t reached);
/* R15: it carries an epoch of after it left that is not of this line. */
bool member_strange(const struct engine *e, uint8_t member, uint64_t left);
/* EV_DEV_UP. */
void dev_up(struct engine *e, const struct event *ev);
/* EV_DEV_DOWN. */
void dev_down(struct engine *e, const struct event *ev);
/* Which device is which member, by the map and what they carry. */
void devs_bind(struct engine *e);
void devs_advance(struct engine *e);
/* A superblock that another member's confirms, or NULL. */
const struct superblock *sb_confirmed(const struct engine *e);

/* For sb_read.c. */
void dev_fit(const struct engine *e, struct dev *d);
bool uuid_is_none(const uint8_t uuid[DDR_UUID_BYTES]);
bool map_names(const struct map *map, const uint8_t uuid[DDR_UUID_BYTES]);
/* Notes whether it ends before its member. */
void cut_note(struct engine *e, struct dev *d);
/* ... whether it says of the array what the others do not. */
void dev_odd(const struct engine *e, struct dev *d);
/* It lacks an epoch that member m carries: it is an older copy. */
void dev_lacks(struct engine *e, const struct dev *d, uint8_t m, uint64_t num);
/* Its superblock was read: may it be used as the member that it is? */
void dev_judge(struct engine *e, struct dev *d, uint8_t m);
/* The newest map seen here, or NULL. up: only on what is connected. */
const struct map *map_seen(const struct engine *e, bool up);
/* R17: it broke off before there was a map to name its member. */
void loss_note(struct engine *e, struct dev *d);

#endif
