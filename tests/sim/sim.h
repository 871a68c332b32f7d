/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ddraid-sim: N real engines in one process, virtual time, one event heap, one PRNG.
 *
 *   main.c    options, range of seeds, crash handler (the only file that may look at a clock)
 *   sim.c     one seed: set-up, safety phase, liveness phase, final check
 *   opts.c    what a seed draws: geometry, tunables, latencies, habits of the world
 *   heap.c    events in order of (time, order of insertion)
 *   rng.c     xoshiro256**
 *   node.c    a node: its daemon's life, events in, outs out, freeze and backlog
 *   dev.c     member requests: latency, reordering, late ones; connections
 *   disk.c    media: volatile cache, FUA, FLUSH, power loss
 *   fence.c   incarnations and their fences
 *   group.c   extended virtual synchrony as corosync gives it, and quorum
 *   lock.c    fake DLM
 *   front.c   consumers
 *   oracle.c  what a sector may contain
 *   risk.c    which stripes may turn to garbage, and when: the crash contract
 *   checks.c  everything else that must hold
 *   plan.c    which faults when; faults.c: the faults; rebuilds.c: those that meet a rebuild;
 *             breaks.c: of members while the map changes or lacks one; spot.c: bad spots;
 *             full.c: stores without space;
 *             storage.c: nodes without members; givesup.c: daemons that end a life themselves;
 *             sbcopies.c: superblocks that are torn or can't be read;
 *             differs.c: nodes that fence otherwise; between.c: leaders that die with a page on
 *             one member; slotread.c: slots that are read late; operator.c: the administrator;
 *             rack.c: a node and an exporter that lose power together;
 *             halfopen.c: connections from before an exporter was off;
 *             rival.c: another array that is given a disk of ours; outsider.c: another user of
 *             the array
 *   trace.c, stats.c
 *
 * Rules: no wall clock, no address in any decision or line of trace, all randomness from s->rng.
 * A violation is noted once (sim_fail) and ends the seed at the end of the event.
 */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/core/engine.h"
#include "daemon/core/format/geometry.h"
#include "daemon/core/format/logpage.h"
#include "daemon/core/format/superblock.h"

#define SIM_MAX_NODES 5
#define SIM_MAX_JOBS 64
#define SIM_MAX_DISKS 14 /* up to 9 members and 5 spares */
#define SIM_MAX_INCS 512
#define SIM_MAX_REGIONS 64 /* region sets are one word */
#define STEP_SOON_US 100   /* --batch: at most so long after the first of them */
#define SIM_MAX_PAGES 64   /* of a log slot */
#define SIM_FRONT_DEPTH 24
#define SECTOR 512u
#define BLOCK_SECTORS (DDR_BLOCK_BYTES / SECTOR)
#define NEVER UINT64_MAX
#define NONE UINT32_MAX
#define MS 1000ull

struct sim;
struct sim_cli;

/* ---- rng.c, heap.c -------------------------------------------------------------------------- */

struct rng {
	uint64_t s[4];
};
void rng_seed(struct rng *r, uint64_t seed);
uint64_t rng_u64(struct rng *r);
uint32_t rng_below(struct rng *r, uint32_t n);               /* n > 0 */
uint64_t rng_range(struct rng *r, uint64_t lo, uint64_t hi); /* both included */
bool rng_chance(struct rng *r, uint32_t permille);
uint64_t mix64(uint64_t v);

struct hev {
	uint64_t at, ord;
	void (*fn)(struct sim *s, struct hev *ev);
	uint64_t a, b;
	void *p; /* one malloc block or NULL; the handler takes it by setting p to NULL */
};
struct heap {
	struct hev *v;
	uint32_t count, cap;
	uint64_t next_ord;
};
void heap_add(struct heap *h, uint64_t at, void (*fn)(struct sim *, struct hev *), uint64_t a,
	      uint64_t b, void *p);
bool heap_take(struct heap *h, struct hev *out);
void heap_clear(struct heap *h);

/* ---- opts.c --------------------------------------------------------------------------------- */

struct opts {
	uint32_t nodes, members, disks;
	struct geo_params geo;
	bool clean;
	bool races;          /* consumers of two nodes write one block at once */
	bool fence_cuts;     /* the fence cuts connections; else it only waits (zombie_timeout) */
	bool record_hangs;   /* state directories are full for a while */
	bool half_open;      /* some nodes do not know that an exporter was off (halfopen.c) */
	bool fences_itself;  /* a daemon ends its node's earlier lives before it joins */
	bool instance_known; /* exporters tell an instance id */
	bool cancel_drops; /* OUT_DEV_CANCEL closes the connection at once, else when all has ended
			    */
	bool faultless;
	bool own_fence_fails;        /* that fence may fail at first */
	bool two_node;               /* each of two has quorum alone; who is fenced can't fence */
	bool strikes_rebuilds;       /* faults may meet the member that is being rebuilt */
	uint32_t promotion_permille; /* of these: in the proposal that promotes it */
	bool lone_commits;           /* a leader may die as the only one that knows a commit */
	bool slow_recovery;          /* of the DLM: seconds */
	bool late_leave;     /* a daemon's end is known to the DLM before the group says it */
	bool quick_restarts; /* daemons die in the midst of writes and are back at once */
	enum lock_backend locks;
	struct tunables tun;
	uint32_t max_ios;
	uint64_t token_us, zombie_us;
	uint64_t disk_lo_us, disk_hi_us, net_lo_us, net_hi_us;
	uint32_t slow_permille; /* requests that take 50 times as long */
	uint32_t fence_fail_permille;
	uint32_t writes; /* at least so many in the safety phase */
	uint32_t depth, max_blocks;
	uint32_t run_blocks; /* one node's share in a row */
	uint32_t read_permille, flush_permille, zeroes_permille, fua_permille;
	uint64_t think_us;
	uint32_t faults;
};
void opts_draw(struct sim *s, uint32_t force_nodes);

/* ---- disk.c --------------------------------------------------------------------------------- */

struct dwrite { /* on the medium, not yet durable */
	struct dwrite *prev, *next;
	uint64_t seq, offset;
	uint64_t done_us; /* when it was answered, NEVER: not yet */
	uint32_t bytes;
	bool lost;    /* after a flush error: no later flush makes it durable */
	bool flushed; /* lost, and a FLUSH has ended well since */
	uint8_t data[];
};
struct slotpage { /* newest valid copy of a page of a slot in the durable content */
	bool valid;
	uint64_t seq, owner_inc, dirty, missed;
	uint32_t owner_node;
};
struct disk {
	uint32_t idx;
	uint64_t bytes;
	uint64_t instance;
	uint8_t *cached, *durable;
	uint64_t *durable_seq; /* per sector */
	struct dwrite *head, *tail;
	uint64_t seq;
	uint32_t unflushed[SIM_MAX_REGIONS];
	uint64_t unflushed_mask;
	struct slotpage slot[DDR_MAX_SLOTS + 1][SIM_MAX_PAGES];
	bool sb_valid;
	struct superblock sb; /* newest in the cached view */
	bool powered;
	bool hidden;            /* nobody reaches it */
	bool dead, dead_silent; /* for ever: every request fails, or nobody answers at all */
	bool cache_lost;        /* since it was last known in sync */
	uint64_t cache_lost_stamp, cache_lost_epoch;
	uint32_t witness_ii[SIM_MAX_NODES];      /* who can tell that the cache was lost */
	uint32_t flush_err_ii;                   /* who was told */
	uint64_t flush_err_gen, flush_err_epoch; /* its daemon's life; the newest map then */
	uint64_t flush_err_us;                   /* when a flush error was reported, 0 = never */
	uint64_t slow_until_us;
	uint32_t read_errs, write_errs, flush_errs; /* to be reported, once each */
	bool flush_err_loses;
	bool full; /* full.c: writes of data fail */
	uint64_t full_hit_us;
	bool spot; /* spot.c: these bytes can't be read */
	uint32_t spot_no;
	bool spot_hard; /* it can't be written either */
	uint64_t spot_from, spot_to, spot_hit_us;
	uint8_t sb_bad;      /* sbcopies.c: mask of superblock copies that can't be read */
	bool err_in_rebuild; /* the error waits for the member's rebuild */
	bool err_in_change;  /* it strikes while a proposal is under way */
	struct {             /* rival.c */
		int state;
		uint32_t no;
		bool added; /* the administrator was told that it is our member */
		uint8_t area[SB_COPIES * DDR_BLOCK_BYTES]; /* what it put there last */
	} rival;
	char uri[32];
};
int disk_init(struct sim *s, struct disk *d, uint32_t idx, uint64_t bytes);
void disk_free(struct disk *d);
void disk_fill(struct sim *s, struct disk *d, uint64_t offset);        /* junk from there on */
void disk_poke(struct disk *d, uint64_t offset, const uint8_t *block); /* create, durable */
void disk_scan(struct sim *s, struct disk *d); /* superblocks and log, after disk_poke */
/* Takes effect now. Returns the write's sequence number (to be given to disk_answered). */
uint64_t disk_write(struct sim *s, struct disk *d, uint64_t offset, uint32_t bytes,
		    const uint8_t *data, bool fua);
void disk_read(const struct disk *d, uint64_t offset, uint32_t bytes, uint8_t *data);
void disk_answered(struct sim *s, struct disk *d, uint64_t seq);
/* Everything answered by `issued_us` becomes durable; younger writes do or don't. */
void disk_flush(struct sim *s, struct disk *d, uint64_t issued_us);
void disk_flush_error(struct sim *s, struct disk *d, bool lose, uint32_t ii);
void disk_untold(struct sim *s, struct disk *d);
void disk_witness_gone(struct sim *s, uint32_t ii);
void disk_restore(struct sim *s, struct disk *d, const uint8_t *image); /* after a power loss */
void disk_power_loss(struct sim *s, struct disk *d);

/* ---- dev.c ---------------------------------------------------------------------------------- */

enum exec_state { EXEC_NOT, EXEC_HALF, EXEC_DONE, EXEC_NEVER };
struct req {
	bool used;
	bool orphan;   /* nobody waits for its answer any more */
	bool answered; /* the answer is on its way to the engine, or was given */
	bool given;    /* EV_DEV_DONE was delivered, or never will be */
	bool late;     /* counted as a late one */
	enum exec_state exec;
	uint32_t node, ii, dev, disk;
	uint64_t uid, gen;
	uint64_t id;
	enum dev_op op;
	enum dev_kind kind;
	uint32_t flags, bytes, half;
	uint64_t offset, region;
	const struct iovec *iov;
	uint32_t iov_count;
	uint8_t *buf;
	uint64_t issued_us, lingers_until_us, wseq[2];
	uint32_t way; /* to an older copy, 0 = not (oldcopy.c) */
	int err;
};
struct devslot { /* the runtime's number for a device, on one node */
	bool used, up;
	uint32_t disk;
	bool cut; /* no network between this node and this exporter */
	bool trying;
	bool down_due;  /* EV_DEV_DOWN was not delivered yet */
	uint32_t up_ii; /* the incarnation that connected it */
	bool half_open; /* the exporter was off since, and the node does not know */
};
struct simnode;
void dev_submit(struct sim *s, struct simnode *n, const struct out *o);
void dev_cancel(struct sim *s, struct simnode *n, uint32_t dev);
void dev_open(struct sim *s, struct simnode *n, uint32_t disk, uint64_t delay_us);
void dev_break(struct sim *s, struct simnode *n, uint32_t dev, int err);
void dev_break_disk(struct sim *s, uint32_t disk, int err);
void dev_try(struct sim *s, struct simnode *n, uint32_t dev, uint64_t delay_us);
void dev_try_disk(struct sim *s, uint32_t disk);
void dev_orphan_all(struct sim *s, struct simnode *n);
void dev_unsent(struct sim *s, struct simnode *n); /* what has not arrived never will */
uint32_t dev_writes_at(const struct sim *s, const struct simnode *n); /* not on the medium yet */
void dev_linger(struct sim *s, const struct simnode *n, uint64_t us); /* what it writes now */
bool dev_under_way(const struct sim *s, const struct simnode *n);     /* EV_DEV_DONE is owed */
void dev_finish_inc(struct sim *s, uint32_t ii); /* the fence: nothing of it is left */
/* `trusted`: of all members at once, with all nodes: what is left counts as true. */
void dev_power_loss(struct sim *s, uint32_t disk, bool trusted);
/* EV_DEV_DONE is being given to its engine: moves data, checks buffers. */
void dev_give(struct sim *s, uint32_t req, int *err);
void dev_drop_given(struct sim *s, uint32_t req); /* the engine is gone */
uint32_t dev_slot_of_disk(const struct simnode *n, uint32_t disk);

/* ---- fence.c -------------------------------------------------------------------------------- */

struct incn {
	uint64_t inc;
	uint32_t node;
	bool live;    /* an engine runs under it */
	bool removed; /* its engine said OUT_REMOVED */
	/* Per node: the daemon that was told of a quorate view without it, 0 = none. */
	uint64_t left_told[SIM_MAX_NODES];
	bool gone_on;        /* an epoch that it did not propose was committed since */
	bool wrote;          /* to a member, anything */
	bool served;         /* consumers had it open */
	uint32_t known_to;   /* mask: nodes whose present daemon has heard from it */
	uint32_t left_known; /* of left_at: whose daemons had heard of it by then */
	uint32_t left_at;    /* mask: nodes that were told so */
	uint64_t told_stamp[SIM_MAX_NODES]; /* when */
	uint32_t fenced_by;                 /* its successor, if that fenced it by itself; else 0 */
	bool graceful;                      /* left by ADMIN_STOP */
	uint32_t left_heard;                /* mask: nodes that have heard its Left */
	bool left;                          /* its engine has, or others went on by it */
	bool stopping;                      /* is about to */
	bool joined;                        /* was ever in a view */
	bool fenced;
	uint64_t fenced_stamp;               /* NEVER: not yet */
	uint64_t fenced_epoch;               /* the newest committed then */
	uint32_t fence_known[SIM_MAX_NODES]; /* 1 + who may know of it, 0 = nobody */
	uint32_t fence_ring[SIM_MAX_NODES];  /* in which ring he was */
	uint16_t fence_void[SIM_MAX_NODES];  /* so often it came back into its view meanwhile */
	uint64_t forgot_us;                  /* when nobody could know any more; 0: not so */
	uint64_t wrote_us;                   /* when its engine last sent what changes a member */
	bool ended;                          /* not live, nothing outstanding */
	uint32_t outstanding;                /* requests that may still take effect */
	uint32_t fence_fails;
	uint32_t own_fence_fails; /* of its node's next daemon */
	uint64_t gen;             /* its daemon's life */
	uint32_t fences;
	uint64_t gave_up_us; /* by itself; 0: it did not */
	bool locks_left;     /* it has lost its locks, and hears that before the next message */
	uint64_t told_all;   /* stamp: since then all know that it is over; 0: not known */
};
uint32_t inc_new(struct sim *s, uint32_t node);
uint32_t inc_find(const struct sim *s, uint64_t inc);
void inc_check_ended(struct sim *s, uint32_t ii);
void inc_dead(struct sim *s, uint32_t ii);
bool fence_itself_fails(struct sim *s, struct simnode *n); /* this time */
uint64_t fence_itself(struct sim *s, struct simnode *n);   /* up to which incarnation; 0 = none */
void fences_forgotten(struct sim *s);
void fences_back(struct sim *s, struct simnode *n, uint32_t node, uint32_t in_ii);
void fences_remembered(struct sim *s, const struct simnode *n);
void fence_ask(struct sim *s, struct simnode *n, uint32_t node, uint64_t inc);

/* ---- group.c -------------------------------------------------------------------------------- */

struct gitem {
	bool view;
	uint32_t from; /* message: sender */
	uint32_t from_ii;
	uint32_t mask; /* view: nodes whose daemon is a member */
	uint32_t in_ii[SIM_MAX_NODES];
	uint32_t evicts;                 /* message: a node, or 0 */
	uint32_t left_ii[SIM_MAX_NODES]; /* view: incarnations that are not in it any more */
	uint32_t left_count;
	uint64_t sent_us;
	size_t bytes;
	uint8_t *data;
};
struct gring {
	struct ring id;
	uint32_t nodes; /* mask */
	uint32_t procs; /* mask: as of the last item */
	bool broken, quorate;
	struct gitem *item;
	uint32_t count, cap;
	uint32_t view;                 /* item: the newest view */
	uint32_t ptr[SIM_MAX_NODES];   /* next to be delivered */
	uint32_t limit[SIM_MAX_NODES]; /* nothing from here on is delivered */
	uint32_t got[SIM_MAX_NODES];   /* broken: what it has received */
	uint32_t first[SIM_MAX_NODES]; /* the daemon's first item */
};
struct gmsg {
	struct gmsg *next;
	uint64_t sent_us;
	uint32_t ii;
	uint32_t ring, view; /* in which it was sent, and comes, or nowhere */
	size_t bytes;
	uint8_t data[];
};
struct group {
	struct gring **ring;
	uint32_t count, cap;
	uint64_t next_seq;
	uint32_t cur[SIM_MAX_NODES];                                 /* ring index or NONE */
	uint32_t seen_ring[SIM_MAX_NODES], seen_view[SIM_MAX_NODES]; /* delivered last */
	uint32_t comp[SIM_MAX_NODES];
	uint64_t last_us[SIM_MAX_NODES]; /* of the last scheduled delivery */
	uint64_t quorum_us[SIM_MAX_NODES];
	uint64_t not_before; /* no ring forms earlier */
	uint64_t heal_no;
	uint32_t member_ii[SIM_MAX_NODES]; /* whom the group knows, or knew last, there */
	bool joined[SIM_MAX_NODES], wants[SIM_MAX_NODES], lost[SIM_MAX_NODES];
	bool met_all[SIM_MAX_NODES]; /* two_node: it has seen the other since its start */
	struct gmsg *head[SIM_MAX_NODES], *tail[SIM_MAX_NODES];
	bool ordering[SIM_MAX_NODES];
	uint32_t solo_armed; /* fault: cut off whoever is alone in having delivered its message */
	bool solo_crash, solo_commit; /* solo_commit: only with a Commit */
};
void group_init(struct sim *s);
void group_free(struct sim *s);
void group_send(struct sim *s, struct simnode *n, const uint8_t *data, size_t bytes);
void group_join(struct sim *s, uint32_t node);
void group_leave(struct sim *s, uint32_t node); /* the daemon ended */
/* Corosync came or went, or links changed. */
void group_node_up(struct sim *s, uint32_t node);
void group_node_down(struct sim *s, uint32_t node);
void group_partition(struct sim *s, const uint32_t comp[SIM_MAX_NODES]);
void group_heal(struct sim *s);
void group_heal_later(struct sim *s, uint64_t delay_us);
void group_frozen_out(struct sim *s, uint32_t node); /* frozen for longer than a token */
void group_thawed(struct sim *s, uint32_t node);
bool group_in_ring(const struct sim *s, uint32_t node, uint32_t ring); /* and it is operational */
bool group_whole(const struct sim *s); /* one operational ring of all living nodes */

/* ---- lock.c --------------------------------------------------------------------------------- */

struct dlm;
void dlm_init(struct sim *s);
void dlm_free(struct sim *s);
void dlm_lock(struct sim *s, struct simnode *n, uint64_t id, enum lock_mode mode, bool try_only);
void dlm_unlock(struct sim *s, struct simnode *n, uint64_t id);
void dlm_quorate(struct sim *s, uint32_t ring);
void dlm_left(struct sim *s, uint32_t ii);
void dlm_ended(struct sim *s, uint32_t ii, uint64_t delay_us);
void dlm_node_gone(struct sim *s, uint32_t ii, uint64_t delay_us);

/* ---- front.c -------------------------------------------------------------------------------- */

struct fop {
	bool used, given; /* given: to the engine */
	uint64_t tag;
	enum io_op op;
	uint32_t flags, bytes, wid, ii;
	uint64_t offset, issue, issued_us;
	uint8_t *buf;
};
enum front_mode { FRONT_HOT, FRONT_RUNS, FRONT_SEQ, FRONT_ANY, FRONT_IDLE, FRONT_MODES };
struct front {
	bool open;
	enum front_mode mode;
	uint64_t mode_until_us;
	uint64_t seq_block;
	uint32_t inflight;
	uint64_t timer_at;
	struct fop op[SIM_FRONT_DEPTH];
};
void front_open(struct sim *s, struct simnode *n);
void front_done(struct sim *s, struct simnode *n, uint64_t tag, int err);
void front_removed(struct sim *s, struct simnode *n); /* at EV_RESTART: nothing may be left */
void front_abort(struct sim *s, struct simnode *n);   /* the daemon is gone */
void front_elsewhere(struct sim *s, const struct simnode *was, uint64_t block, uint32_t blocks);
bool front_read_all(struct sim *s, struct simnode *n);
uint32_t front_inflight(const struct sim *s);
bool front_in_parts(const struct sim *s);
void front_given(struct simnode *n, uint64_t tag);
uint32_t front_unanswered(const struct simnode *n);

/* ---- oracle.c, risk.c ----------------------------------------------------------------------- */

#define WID_INIT 0u               /* as created: zeroes */
#define WID_ANY (UINT32_MAX - 1)  /* undefined: garbage by contract */
#define WID_PIN (UINT32_MAX - 2)  /* garbage that somebody has read: `hash` */
#define WID_JUNK (UINT32_MAX - 3) /* of contents only: nobody's write */

struct wop { /* one front-end write */
	uint32_t node, ii;
	uint64_t issue, end, ack; /* stamps; end, ack NEVER while open */
	uint64_t block;
	uint32_t blocks;
	bool zeroes, durable, cut;
	bool powered;   /* it was open when all exporters lost power */
	bool must_fail; /* half of it has been read: with when_lost=eio a part ended early */
};
struct val {
	uint32_t wid;
	bool shadow; /* superseded, but comes back if the caches of more than m members are lost */
	uint64_t drop; /* stamp, NEVER = allowed */
	uint64_t born; /* WID_ANY: stamp at which the garbage came to be possible */
	uint64_t hash;
};
struct sector {
	struct val *v, one;
	uint32_t n, cap;
};
struct oracle {
	struct wop *wop;
	uint32_t wops, wop_cap;
	struct sector *sec;
	uint64_t sectors, blocks;
};
struct content {
	uint32_t wid; /* writer's id, WID_INIT = zeroes, WID_JUNK */
	uint64_t hash;
};
void oracle_init(struct sim *s);
void oracle_free(struct sim *s);
void content_fill(uint8_t *data, uint32_t wid, uint64_t sector, uint32_t sectors);
struct content content_of(const uint8_t *data, uint64_t sector);
uint32_t oracle_write(struct sim *s, struct simnode *n, uint64_t offset, uint32_t bytes,
		      bool zeroes);
void oracle_lands(struct sim *s, const struct req *r); /* on a member */
void oracle_acked(struct sim *s, uint32_t wid, bool fua);
void oracle_cut(struct sim *s, uint32_t wid);  /* EIO, or its daemon is gone */
void oracle_ended(struct sim *s, uint32_t ii); /* nothing of this incarnation lands any more */
void oracle_flushed(struct sim *s, uint32_t ii, uint64_t issue);
void oracle_read(struct sim *s, struct simnode *n, const struct fop *f);
bool oracle_allows(struct sim *s, uint64_t sector, const struct content *c, uint64_t since);
void oracle_any(struct sim *s, uint64_t sector);
void oracle_power(struct sim *s); /* unflushed data of more than m members is gone */
bool oracle_pending(const struct sim *s, uint64_t block, uint64_t since);

enum risk { RISK_NONE, RISK_CUT, RISK_RACE };
void risk_init(struct sim *s);
void risk_free(struct sim *s);
void risk_raise(struct sim *s, uint64_t stripe, enum risk r, uint64_t since);
void risk_lost(struct sim *s, uint32_t disk);   /* something befell this disk */
void risk_harmed(struct sim *s, uint32_t disk); /* and not only its connection */
void risk_settle(struct sim *s, uint64_t stripe);
void risk_settle_all(struct sim *s);
void risk_set_all(struct sim *s); /* an array that was never in sync */
void risk_pinned(struct sim *s, uint64_t sector);
void risk_advance(struct sim *s);

/* ---- checks.c ------------------------------------------------------------------------------- */

struct commit {
	struct epoch epoch;
	uint64_t hash;
};
struct checks {
	uint8_t *bad;     /* per stripe: parity is wrong over all n members */
	uint32_t *writes; /* per stripe: requests that have not taken effect yet */
	uint32_t bad_count[SIM_MAX_REGIONS];
	uint64_t bad_mask;
	uint64_t dirty_mask; /* durably dirty in some slot */
	struct map map;      /* newest committed anywhere */
	bool map_full;       /* every member in sync */
	uint32_t disk_of[DDR_MAX_MEMBERS];
	uint32_t member_of[SIM_MAX_DISKS]; /* NONE */
	struct commit *commit;
	uint32_t commits, commit_cap;
	bool dirty_stale;
	/* Per disk: something is or was wrong with it, and it isn't known to be whole again. */
	bool lossy[SIM_MAX_DISKS];
	bool harmed[SIM_MAX_DISKS]; /* of those: more than a broken connection */
	uint64_t lost_stamp[SIM_MAX_DISKS], lost_us[SIM_MAX_DISKS];
	uint64_t degraded_stamp;
	uint64_t promoted_num; /* the map since which a member was proposed for promotion */
	uint64_t too_few_us;   /* when fewer than k members were well last, 0 = never */
};
void checks_init(struct sim *s);
void checks_free(struct sim *s);
void checks_medium(struct sim *s, struct disk *d, uint64_t offset, uint32_t bytes);
void checks_log(struct sim *s); /* durable log pages or in-sync members changed */
void checks_bind(struct sim *s);
void checks_issue(struct sim *s, struct simnode *n, const struct req *r);
void checks_exec(struct sim *s, const struct req *r);
void checks_acked(struct sim *s, const struct wop *w);
void checks_view(struct sim *s, struct simnode *n, uint32_t ring, uint32_t item);
void checks_quorum(struct sim *s, struct simnode *n);
bool checks_recovered(const struct incn *in, const struct simnode *n, uint64_t since);
bool checks_left(const struct sim *s, const struct incn *in);
void checks_fenced(struct sim *s, uint32_t ii);
void checks_serves(struct sim *s, const struct simnode *n); /* consumers have it open */
void checks_witness(struct sim *s, struct disk *d);
void checks_engine_gone(struct sim *s);
void checks_map(struct sim *s, struct simnode *n);
void checks_step(struct sim *s, struct simnode *n);
void checks_event(struct sim *s);
void checks_final(struct sim *s);
bool checks_data_span(const struct sim *s, uint64_t offset, uint32_t bytes, uint64_t *stripe,
		      uint64_t *last);

/* ---- node.c --------------------------------------------------------------------------------- */

struct nev { /* an event on its way to an engine */
	struct nev *next;
	struct event ev;
	uint64_t gen;
	uint32_t req;     /* EV_DEV_DONE: request, else NONE */
	uint64_t sent_us; /* EV_MSG: own message: when it was sent */
	uint32_t aux;     /* EV_VIEW: ring, item */
	uint32_t aux2;
	size_t bytes;
	uint8_t data[];
};
struct simnode {
	uint32_t idx, id;
	bool powered, proc, frozen, stopped, removing, drained, stopped_itself;
	uint32_t cut_off; /* mask: exporters that it does not reach */
	uint32_t cut_inc; /* 1 + the last incarnation that was */
	uint64_t
	    broke_gen[SIM_MAX_DISKS]; /* likewise: daemon that lost the disk before it had a map */
	uint64_t lost_gen[SIM_MAX_DISKS]; /* 1 + the daemon that lost the disk last, and the life */
	uint32_t lost_ii[SIM_MAX_DISKS];  /* of it in which it did */
	bool conf_differs;     /* its file, from which its next daemon takes how to fence */
	bool fences_otherwise; /* its daemon has read it so */
	uint64_t frozen_no;
	struct engine *e;
	struct outq taken; /* of events that were taken together: --batch */
	bool took;         /* some, since its last step */
	uint32_t ii;
	uint64_t gen;
	uint64_t clock_us; /* offset of its clock */
	struct record record;
	bool lags; /* stopped, for a moment */
	struct nev *bl_head, *bl_tail;
	uint64_t tick_at;
	uint64_t own_msg_sent_us; /* R7: when the newest own message that came back was sent */
	bool own_msg;
	struct engine_status st;
	bool map_degraded; /* the map that it has */
	uint64_t epoch_seen, eio_us;
	struct devslot dev[DDR_MAX_DEVS];
	struct front front;
	bool quorate;
	uint32_t view_ring, view_item; /* last EV_VIEW, in the group's terms */
	uint64_t view_seq, quorum_seq; /* rings of the last events */
};
void node_post(struct sim *s, struct simnode *n, uint64_t delay_us, const struct event *ev);
void node_post_nev(struct sim *s, struct simnode *n, uint64_t at_us, struct nev *nev);
struct nev *nev_new(const struct event *ev, const void *data, size_t bytes);
void node_power_on(struct sim *s, struct simnode *n, uint64_t daemon_delay_us);
void node_power_on_later(struct sim *s, struct simnode *n, uint64_t delay_us);
void node_start(struct sim *s, struct simnode *n);
void node_start_later(struct sim *s, struct simnode *n, uint64_t delay_us);
/* Requests of this incarnation that may still change something; but for a FLUSH whose connection
 * broke: it changes nothing, whenever it lands. */
uint32_t node_under_way(const struct sim *s, uint32_t ii);
void node_end_daemon(struct sim *s, struct simnode *n);
void node_kill_daemon(struct sim *s, struct simnode *n);
void node_crash(struct sim *s, struct simnode *n);
void node_freeze(struct sim *s, struct simnode *n, uint64_t us);
void node_stop_daemon(struct sim *s, struct simnode *n, uint64_t us);
void node_thaw(struct sim *s, struct simnode *n);
struct simnode *node_leader(struct sim *s);

/* ---- plan.c, faults.c, rebuilds.c, operator.c
 * ----------------------------------------------------------- */

enum fault {
	F_NODE_CRASH,
	F_DAEMON_CRASH,
	F_FREEZE,
	F_FREEZE_LONG,
	F_STOPPED,
	F_PARTITION,
	F_PARTITION3,
	F_QUORUM_LOST,
	F_SOLO_MSG,
	F_SOLO_MSG_CRASH,
	F_CRASH_STEP,
	F_LEADER_IN_CHANGE,
	F_LEADER_IN_RECOVERY,
	F_LEADER_IN_REBUILD,
	F_LEADER_IN_JOIN,
	F_POWER_IN_CHANGE,
	F_CLUSTER_CRASH,
	F_CLUSTER_POWER,
	F_STALE_START,
	F_READ_ERROR,
	F_WRITE_ERROR,
	F_FLUSH_ERROR_LOST,
	F_FLUSH_ERROR_KEPT,
	F_DISK_DEAD,
	F_DISK_SLOW,
	F_DISCONNECT_ONE,
	F_DISCONNECT_ALL,
	F_DISCONNECT_LONG,
	F_EXPORTER_POWER,
	F_SWITCH_FLAP,
	F_ADMIN_FAIL,
	F_ADMIN_ADD,
	F_ADMIN_READD,
	F_ADMIN_STOP,
	F_PLAIN,                   /* those above every seed may draw, those below some seeds */
	F_REBUILD_BREAK = F_PLAIN, /* o.strikes_rebuilds */
	F_REBUILD_ERROR,
	F_REBUILD_POWER,
	F_REBUILD_DEATH,
	F_QUICK_RESTART, /* o.quick_restarts */
	F_LEADER_ALONE,  /* o.lone_commits */
	F_PLANNED, /* those above are chosen by the planner, those below happen by themselves */
	F_LATE_WRITE = F_PLANNED,
	F_TORN_WRITE,
	F_DROPPED_WRITE,
	F_FENCE_FAILED,
	F_FENCE_WAITED,
	F_FENCED_ITSELF,
	F_MSG_LOST,
	F_MSG_TAIL,
	F_VIEW_FIRST,
	F_QUORUM_FIRST,
	F_BACKLOG,
	F_EVICTED,
	F_RACED_BLOCKS,
	F_LOCK_CALLBACK,
	F_LOCK_CALLBACK_IO,
	F_LOCK_REFUSED,
	F_LOCK_RECOVERY,
	F_LOCK_FREED_EARLY,
	F_LOCK_CUT_OFF,
	F_GARBAGE_ALLOWED,
	F_BAD_SPOT,
	F_BAD_SPOT_DEGRADED,
	F_BAD_SPOT_REFUSES,
	F_OWN_FENCE_FAILED,
	F_LATE_AFTER_RESTART,
	F_FULL_STRUCK,
	F_PARTIAL_STRUCK,
	F_REBUILD_WRITE_ERROR,
	F_REBUILD_FLUSH_ERROR,
	F_FLUSH_ERROR_BREAK,
	F_POWER_THEN_BREAK,
	F_EXPORTERS_POWER,
	F_VOTES_LOST,
	F_OLD_COPY,
	F_LATE_COPY,
	F_LATE_COPY_GONE,
	F_WRONG_WAY,
	F_STORAGE_CUT,
	F_FENCES_OTHERWISE,
	F_LEADER_BETWEEN,
	F_GIVES_UP,
	F_LOCKS_LEFT,
	F_GROUP_LOST,
	F_THIRD_LAGS,
	F_SLOT_UNREAD,
	F_SB_TORN,
	F_SB_UNREADABLE,
	F_STORE_FULL,
	F_STORE_FULL_KEPT,
	F_RIVAL,
	F_OUTSIDER,
	F_STOP_JOINING,
	F_RACK_POWER,
	F_HALF_OPEN,
	F_GIVES_UP_ALONE,
	F_RECORD_HANGS,
	F_ROLLED_BACK,
	F_ROLLED_BACK_CRASH,
	F_EXCHANGED,
	F_COUNT
};
struct planner {
	uint32_t left;
	bool healing;
	uint32_t armed; /* enum fault or F_COUNT */
	uint32_t armed_countdown;
	uint64_t armed_until_us;
	bool at_promotion; /* of a rebuild: strike in the proposal that promotes the member */
	uint32_t deaths;   /* disks lost for ever */
	uint32_t done;     /* faults that took place */
	uint64_t swarm;    /* mask: faults that this seed may have */
	uint64_t gap_us;
	uint64_t cluster_down_until;
	uint64_t quiet_since_us; /* the last fault */
};
extern const char *const fault_name[F_COUNT];
void plan_init(struct sim *s);
void plan_event(struct sim *s); /* after each event: armed faults */
void plan_heal(struct sim *s);
bool fault_start(struct sim *s, enum fault f);
bool fault_fits(const struct sim *s, enum fault f);
bool fault_may_strike(const struct sim *s, uint32_t disk);
bool fault_counts_itself(enum fault f); /* when it happens, not when it is planned */
void faults_heal(struct sim *s);
void fault_exporter_power(struct sim *s, uint32_t disk, uint64_t off_us, bool trusted);
void fault_cluster_power(struct sim *s, bool exporters);
void spot_init(struct sim *s);
void full_init(struct sim *s);
void full_heal(struct sim *s);
bool full_strikes(struct sim *s, const struct req *r);
bool full_lately(const struct sim *s, uint32_t disk);
bool full_excuses(const struct sim *s, uint64_t since_us);
void rival_init(struct sim *s);
/* The administrator adds this disk, and was answered. */
void rival_add_asked(struct sim *s, uint32_t disk);
void rival_add_answered(struct sim *s, int err);
void faults_init(struct sim *s);
void exchange_init(struct sim *s);
void oldcopy_init(struct sim *s);
void latecopy_init(struct sim *s);
/* How much longer a read takes of what a member that is back has of its node's log. */
uint64_t latecopy_unread_us(const struct sim *s, const struct req *r);
bool rollback_act(struct sim *s);
bool rollback_holds(const struct sim *s);
uint64_t rollback_record_us(struct sim *s);
void rollback_stopped(struct sim *s, bool unsealed);
void oldcopy_sent(struct sim *s, const void *data, size_t bytes);
uint64_t oldcopy_late_us(struct sim *s);
void oldcopy_issued(const struct sim *s, struct req *r);
uint64_t oldcopy_unread_us(const struct sim *s, const struct req *r);
/* True: it was that one which took the request. */
bool oldcopy_lands(struct sim *s, struct req *r, uint32_t from, uint32_t to);
/* This node may have read the copy: a reason to give the member up. */
bool oldcopy_met(const struct sim *s, const struct simnode *n, uint32_t disk);
void votes_init(struct sim *s);
void group_loss_init(struct sim *s);
void spot_heal(struct sim *s);
void spot_written(struct disk *d, uint64_t offset, uint64_t bytes);
void spot_check(struct sim *s, const struct simnode *n);
bool spot_strikes(struct sim *s, const struct req *r);
bool spot_hides_slot(const struct sim *s, uint32_t slot);
bool spot_refuses_lately(const struct sim *s, uint64_t since_us);
bool spot_excuses(const struct sim *s, uint64_t offset, uint32_t bytes, uint64_t since_us);
void fault_break_too(struct sim *s, uint32_t disk); /* soon */
void fault_hide(struct sim *s, uint32_t disk, uint64_t us);
bool fault_disconnect_one(struct sim *s, uint32_t disk); /* from one node */
bool fault_may_lose_in_change(const struct sim *s);
bool fault_die_in_change(struct sim *s);
void fault_all_exporters(struct sim *s);
void breaks_init(struct sim *s);
void breaks_event(struct sim *s);
bool breaks_unharmed(const struct sim *s);
void storage_init(struct sim *s);
void givesup_init(struct sim *s);
bool givesup_leaves(struct sim *s, struct simnode *n); /* the lock space, now */
void givesup_heard(struct sim *s, struct simnode *n);
void givesup_removed(struct sim *s, uint32_t ii); /* OUT_REMOVED */
void givesup_cut(struct sim *s, uint32_t wid);
void givesup_third_lags(struct sim *s, const struct simnode *n, uint64_t least_us);
void between_init(struct sim *s);
void between_landed(struct sim *s, const struct req *r);
uint64_t between_late_us(struct sim *s, const struct req *r); /* so much later it arrives */
void rack_init(struct sim *s);
void halfopen_init(struct sim *s);
void halfopen_heal(struct sim *s);
void halfopen_connects(struct sim *s, const struct simnode *n, uint32_t disk);
bool halfopen_strikes(struct sim *s, struct simnode *n, uint32_t dev);
void halfopen_end(struct sim *s, struct simnode *n, uint32_t dev, int err);
void outsider_init(struct sim *s);
void outsider_issue(struct sim *s, const struct simnode *n, const struct req *r); /* C11 */
void slotread_init(struct sim *s);
bool slotread_rests(const struct sim *s, const struct simnode *n); /* its consumers do */
uint64_t slotread_late_us(struct sim *s, const struct req *r);     /* likewise */
void sbcopies_init(struct sim *s);
bool sbcopies_torn(struct sim *s, struct req *r);
bool sbcopies_unreadable(struct sim *s, const struct req *r);
void sbcopies_written(struct sim *s, const struct req *r, bool half);
void differs_init(struct sim *s);
void differs_heal(struct sim *s);
void rebuild_arm(struct sim *s);
bool rebuild_met(const struct sim *s, const struct simnode *leader);
void rebuild_strike(struct sim *s, enum fault f);
bool rebuild_may_err(const struct sim *s, uint32_t disk);
void operator_init(struct sim *s);
void operator_answer(struct sim *s, struct simnode *n, uint64_t tag, int err, const char *why);
bool operator_is_failing(const struct sim *s); /* a member; it may take effect any time */
bool operator_kick(struct sim *s, enum admin_cmd cmd);
void operator_started(struct sim *s, const struct simnode *n);

/* ---- trace.c, stats.c ----------------------------------------------------------------------- */

void trace_event(struct sim *s, const struct simnode *n, const struct nev *nev);
bool trace_is_commit(const uint8_t *data, size_t bytes);
bool trace_is_left(const uint8_t *data, size_t bytes);
uint32_t trace_evicts(const uint8_t *data, size_t bytes);
void trace_out(struct sim *s, const struct simnode *n, const struct out *o);
__attribute__((format(printf, 2, 3))) void trace(struct sim *s, const char *fmt, ...);
void trace_tail(struct sim *s);
void trace_init(struct sim *s);
void trace_free(struct sim *s);
#define TRACING(s) ((s)->tracing)

enum cluster_state {
	CS_JOINING,
	CS_ACTIVE,
	CS_PROPOSING,
	CS_FENCING,
	CS_RECOVERING,
	CS_REBUILDING,
	CS_DEGRADED,
	CS_COUNT
};
struct stats {
	uint64_t seeds;
	uint64_t in_seeds[F_COUNT], times[F_COUNT], in_state[F_COUNT][CS_COUNT];
	uint64_t events, writes, reads, flushes, commits, max_events, slot_reads_unfenced;
	uint64_t virtual_us, parity_fixed, marks, garbage_reads;
};
void stats_fault(struct sim *s, enum fault f);
bool stats_in_state(const struct sim *s, enum cluster_state cs);
void stats_look(struct sim *s);
void stats_look_end(struct sim *s);
void stats_seed(struct sim *s);
void stats_add(struct stats *to, const struct stats *st);
void stats_print(const struct stats *st);
int stats_missing(const struct stats *st, const struct sim_cli *cli);

/* ---- sim.c, main.c -------------------------------------------------------------------------- */

struct sim_cli {
	uint64_t first, last;
	uint32_t jobs;
	uint32_t nodes; /* 0 = drawn from the seed */
	uint32_t slots; /* likewise */
	bool batch;
	uint32_t tail; /* keep so many lines of trace for a failure */
	bool trace, stats, quiet, keep_going, digest;
	uint64_t seconds;
	uint64_t only; /* mask of planned faults, 0 = all */
	const char *argv0, *only_text;
};

enum breaks_kind { BREAKS_LOSSLESS, BREAKS_LOSSY, BREAKS_NODES };
struct breaks { /* breaks.c */
	struct rng rng;
	uint32_t left, countdown;
	uint64_t at_us;
	enum cluster_state state;
	enum breaks_kind kind;
};

enum phase_of_seed { PHASE_SAFETY, PHASE_HEAL, PHASE_IDLE, PHASE_READ, PHASE_DONE };

struct sim {
	uint64_t seed;
	const struct sim_cli *cli;
	struct stats *stats;
	struct rng rng, spot_rng, rival_rng, full_rng;
	uint64_t full_us;    /* when one without space struck last that the map can drop */
	uint32_t rival_disk; /* of the `add` under way */
	uint64_t spot_us;    /* when one last struck a full map */
	struct heap heap;
	uint64_t now, stamp, events;
	struct opts o;
	struct geo geo;
	struct disk disk[SIM_MAX_DISKS];
	struct simnode node[SIM_MAX_NODES];
	struct incn inc[SIM_MAX_INCS];
	uint32_t incs;
	uint64_t next_inc;
	struct req **req;
	uint32_t reqs, req_live;
	uint64_t next_uid;
	struct group group;
	struct dlm *dlm;
	struct oracle oracle;
	uint8_t *risk, *pinned; /* per stripe */
	uint32_t at_risk;       /* stripes */
	struct checks checks;
	struct planner planner;
	struct {
		uint8_t *image; /* NULL = none yet, or used */
		uint32_t disk;
		uint8_t member;
		uint64_t epoch;    /* of the superblock in the image */
		uint64_t until_us; /* by then it is old enough: regions written since are clean */
		bool hidden;       /* so that it may leave: done once */
		uint64_t slow_until_us, unread_until_us;
		bool stands; /* in for the member, for what is sent from since_us on */
		uint64_t since_us, num;
		uint32_t commits; /* since it was taken */
		uint32_t node;    /* for this one alone, or NONE */
		uint32_t way;     /* how often that has been */
		uint32_t entries; /* of the member, while it is so and that node has one life */
		uint32_t entries_ii;
		uint8_t was; /* its state in the newest map */
	} copy;              /* oldcopy.c */
	struct {
		uint8_t *image; /* NULL = none; what the disk is not just now */
		uint32_t disk;
		uint8_t member;
		bool hidden, there; /* its exporter is away, so that it leaves; it is the copy */
		uint64_t epoch;     /* of when it was taken */
		uint32_t served, ii[SIM_MAX_NODES]; /* then: mask of nodes */
		bool gone; /* one of these was, before the member left the map */
		uint64_t until_us;
	} late_copy; /* latecopy.c */
	struct {
		uint8_t *image; /* of the disk, in that epoch */
		uint32_t disk;
		uint64_t epoch;
		uint64_t asked_us;
		bool holds;       /* no daemon starts yet */
		bool over, crash; /* crash: all die at once */
		bool crashed, unsealed, slow_records;
		uint32_t ii[SIM_MAX_NODES]; /* that were asked to stop */
	} rollback;                         /* rollback.c */
	struct {
		uint32_t left;     /* leaders that are still to die */
		bool seen;         /* one has */
		uint64_t after_us; /* so long after that the connections break */
		uint32_t disk;     /* the one that has the page */
		uint32_t slot, page;
		uint64_t until_us;
	} between; /* between.c */
	struct {
		bool armed, met; /* met: its first read has begun */
		uint32_t node, tries;
		uint64_t until_us;      /* its reads end then */
		uint64_t rest_until_us; /* the others' consumers do */
	} slotread;                     /* slotread.c */
	struct {
		struct rng rng;
		uint32_t cuts; /* that are still to come */
		uint64_t from_us;
		bool due;
	} sb; /* sbcopies.c */
	struct {
		struct rng rng;
		int state;
		bool armed; /* it begins as the first node looks */
		uint32_t tries;
		uint64_t seq, until_us;
		uint64_t claim[SIM_MAX_DISKS], seen[SIM_MAX_DISKS]; /* as read last, and its seq */
		uint64_t since_us[SIM_MAX_DISKS];                   /* when that was new */
	} outsider;                                                 /* outsider.c */
	struct {
		uint64_t leave_at_us; /* from then on; 0: not, or done */
	} givesup;                    /* givesup.c */
	struct breaks breaks;
	struct outq outq;
	enum phase_of_seed phase;
	uint64_t phase_us;
	uint32_t writes, reads, flushes;
	uint32_t opened; /* disks that OUT_OPEN named: the configuration of every later start */
	uint64_t fault_times[F_COUNT], fault_state[F_COUNT][CS_COUNT];
	uint32_t look; /* stats.c */
	bool looked;
	bool failed;
	char violation[4000];
	bool tracing;
	char *tail;
	uint32_t tail_lines, tail_next;
	uint64_t digest;
	uint8_t array_uuid[DDR_UUID_BYTES];
	uint64_t operator_tag, operator_last, operator_busy_us, operator_gen;
	uint32_t operator_node;
	bool operator_adds;                    /* the one under way is ADMIN_ADD */
	bool operator_refused, operator_fails; /* fails: the one under way is ADMIN_FAIL */
	uint64_t garbage_reads, slot_reads_unfenced;
	uint64_t shift; /* who owns which block changes with it */
	/* tests of the world: takes events instead of an engine */
	void (*hook)(struct sim *s, struct simnode *n, const struct nev *nev);
	void *hook_arg;
};
__attribute__((format(printf, 3, 4))) void sim_fail(struct sim *s, const char *check,
						    const char *fmt, ...);
void sim_at(struct sim *s, uint64_t delay_us, void (*fn)(struct sim *, struct hev *), uint64_t a,
	    uint64_t b, void *p);
uint64_t sim_stamp(struct sim *s);
bool sim_setup(struct sim *s, uint64_t seed, const struct sim_cli *cli, struct stats *st);
void sim_teardown(struct sim *s);
void sim_run_events(struct sim *s, uint64_t until_us);
/* False: a violation (s->violation). */
bool sim_seed(struct sim *s, uint64_t seed, const struct sim_cli *cli, struct stats *st);
static inline uint64_t ring_key(const struct ring *r)
{
	return r->seq * 64 + r->rep;
}
/* xmalloc: the simulator doesn't simulate a lack of memory. */
void *xmalloc(size_t bytes);
void *xcalloc(size_t n, size_t bytes);
void *xrealloc(void *p, size_t bytes);

#endif
