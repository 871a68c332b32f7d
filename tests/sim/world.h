/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The simulated world: N real engines in one process, virtual time, one event heap, one PRNG. It is
 * a library: libworld.a. Who uses it:
 *
 *   main.c         ddraid-sim: seeds, of which each draws a world, its load and its faults (seed.h)
 *   test_world.c   the world keeps its own promises, without an engine (s->hook)
 *   tests/trace/   stories: what happens is scripted, and told in words (world_open, s->hear)
 *   tests/port/    the fake DLM passes the lock port's suite
 *
 * Its parts, each with a header and a file of that name:
 *
 *   rng, heap        randomness and time
 *   opts             what the world is like
 *   node             a node: its daemon's life, events in, outs out, freeze and backlog
 *   disk, dev        media; member requests and connections
 *   fence            incarnations and their fences
 *   group            extended virtual synchrony as corosync gives it, and quorum
 *   lock             fake DLM
 *   front, operator  consumers, the administrator
 *   checks/          the judges: oracle (what a sector may contain), risk (which stripes may turn
 *                    to garbage, and when), checks (everything else that must hold)
 *   faults/          plan (which faults, when), faults (what they do), and a file for each kind
 *   trace, stats
 *   seed             one seed: safety phase, liveness phase, final check
 *
 * A violation is noted once (sim_fail) and ends the run at the end of the event.
 */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include <stdarg.h>

#include "tests/sim/checks/checks.h"
#include "tests/sim/checks/oracle.h"
#include "tests/sim/checks/risk.h"
#include "tests/sim/common.h"
#include "tests/sim/dev.h"
#include "tests/sim/disk.h"
#include "tests/sim/faults/between.h"
#include "tests/sim/faults/breaks.h"
#include "tests/sim/faults/full.h"
#include "tests/sim/faults/givesup.h"
#include "tests/sim/faults/latecopy.h"
#include "tests/sim/faults/oldcopy.h"
#include "tests/sim/faults/outsider.h"
#include "tests/sim/faults/plan.h"
#include "tests/sim/faults/rival.h"
#include "tests/sim/faults/rollback.h"
#include "tests/sim/faults/sbcopies.h"
#include "tests/sim/faults/slotread.h"
#include "tests/sim/faults/spot.h"
#include "tests/sim/fence.h"
#include "tests/sim/front.h"
#include "tests/sim/group.h"
#include "tests/sim/heap.h"
#include "tests/sim/lock.h"
#include "tests/sim/node.h"
#include "tests/sim/operator.h"
#include "tests/sim/opts.h"
#include "tests/sim/rng.h"
#include "tests/sim/stats.h"
#include "tests/sim/trace.h"

/* What was asked for on the command line. All zero for whoever has none. */
struct sim_cli {
	uint64_t first, last;
	uint32_t jobs;
	uint32_t nodes; /* 0 = drawn from the seed */
	uint32_t slots; /* likewise */
	bool batch, readers;
	uint32_t tail; /* keep so many lines of trace for a failure */
	bool trace, stats, quiet, keep_going, digest;
	uint64_t seconds;
	uint64_t only; /* mask of planned faults, 0 = all */
	const char *argv0, *only_text;
};

enum phase_of_seed { PHASE_SAFETY, PHASE_HEAL, PHASE_IDLE, PHASE_READ, PHASE_DONE };

/* Is told in words what a node does, or what happens to it; n is NULL: it happens to no node. */
typedef void world_hear_fn(struct sim *s, const struct simnode *n, const char *words);

struct sim {
	uint64_t seed;
	const struct sim_cli *cli;
	struct stats *stats;
	struct rng rng;
	struct heap heap;
	uint64_t now, stamp, events;
	struct opts o;
	struct geo geo;
	uint8_t array_uuid[DDR_UUID_BYTES];
	bool scripted; /* nothing happens that no script says: world_open */
	bool failed;
	char violation[4000];

	struct disk disk[SIM_MAX_DISKS];
	struct simnode node[SIM_MAX_NODES];
	struct incn inc[SIM_MAX_INCS];
	uint32_t incs;
	uint64_t next_inc;
	struct req **req;
	uint32_t reqs;
	uint64_t next_uid; /* of requests of all kinds */
	struct simgroup group;
	struct dlm *dlm;
	struct outq outq;
	struct operator operator;
	uint32_t opened; /* disks that OUT_OPEN named: the configuration of every later start */
	uint64_t shift;  /* who owns which block changes with it */

	/* The judges. */
	struct oracle oracle;
	uint8_t *risk, *pinned; /* per stripe */
	uint32_t at_risk;       /* stripes */
	struct checks checks;
	uint64_t garbage_reads, slot_reads_unfenced;

	/* The faults. */
	struct planner planner;
	struct spot spot;
	struct full full;
	struct rival rival;
	struct old_copy copy;
	struct late_copy late_copy;
	struct rollback rollback;
	struct between between;
	struct slotread slotread;
	struct sbcopies sb;
	struct outsider outsider;
	struct givesup givesup;
	struct breaks breaks;

	/* The seed, and what is known of it. */
	enum phase_of_seed phase;
	uint64_t phase_us;
	uint32_t writes, reads, flushes;
	uint64_t fault_times[F_COUNT], fault_state[F_COUNT][CS_COUNT];
	uint32_t look; /* stats.c */
	bool looked;
	bool tracing;
	char *tail;
	uint32_t tail_lines, tail_next;
	uint64_t digest;

	/* Takes events instead of an engine. */
	void (*hook)(struct sim *s, struct simnode *n, const struct nev *nev);
	/* world_hear */
	world_hear_fn *hear;
	enum engine_trace hear_what;
};

/* An empty world, which draws from this seed. Its options (s->o) are the caller's to fill in. */
void world_begin(struct sim *s, uint64_t seed, const struct sim_cli *cli, struct stats *st);
/* By s->o: the array on its disks, the judges, the nodes without power. False: s->violation. */
bool world_make(struct sim *s);
/* Both, for a script: such a world has no faults of its own, and its consumers do what
 * front_request says. */
bool world_open(struct sim *s, uint64_t seed, const struct opts *o, const struct sim_cli *cli,
		struct stats *st);
void world_close(struct sim *s); /* frees everything; s->violation stays */
/* Until this time, or a violation. `judged`: after each event, what must hold then is checked. */
void world_run(struct sim *s, uint64_t until_us, bool judged);
/* The next event, if it comes by then. */
bool world_event(struct sim *s, uint64_t until_us);
/* From now on the engines say what they do, so much of it, and the world what happens to them. */
void world_hear(struct sim *s, world_hear_fn *hear, enum engine_trace what);
__attribute__((format(printf, 3, 4))) void world_tell(struct sim *s, const struct simnode *n,
						      const char *fmt, ...);
/* No region is dirty, no member missing, and no slot to be recovered: checks_final may look. */
bool world_clean(const struct sim *s);

/* The check by this name is violated. Only the first violation of a run is kept. */
__attribute__((format(printf, 3, 4))) void sim_fail(struct sim *s, const char *check,
						    const char *fmt, ...);
void sim_at(struct sim *s, uint64_t delay_us, void (*fn)(struct sim *, struct hev *), uint64_t a,
	    uint64_t b, void *p);
uint64_t sim_stamp(struct sim *s); /* younger than all before */

#endif
