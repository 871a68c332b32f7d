/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the lock port's conformance suite runs on. A subject is a lock manager in a world of its
 * own, with virtual time unless it is the real one, that the suite can hurt:
 *
 *	local	lock_engines.c	the core's table, one engine
 *	cpg	lock_engines.c	the same, three engines: the lowest living one leads
 *	dlm	lock_fake.c	the simulator's fake DLM, three nodes
 *	remote	lock_remote.c	the real one, on three machines, in real time: lock_dlm.sh
 *	remote-nodes	the same, which loses machines, too
 *
 * Nodes count from 1. One thread, and a loop in no handle: the world is turned by run().
 */
#ifndef TESTS_PORT_LOCK_CONFORMANCE_H
#define TESTS_PORT_LOCK_CONFORMANCE_H

#include "daemon/core/engine.h"
#include "daemon/ports/lock.h"

#define SUBJECT_NODES 3

/* What sets lock managers apart. */
enum {
	LOCKS_WAIT_FOR_FENCE = 1, /* R9: from a loss to its fence nothing is granted; else what the
				   * lost one held is free at once (R10) */
	LOCKS_BY_MESSAGES = 2,    /* unsafe_grants() and quorum() are there */
	LOCKS_LOSE_NODES = 4,     /* crash() and cut() are there; else a daemon is killed instead */
	LOCKS_TAKE_ENGINES = 8,   /* start_engines() is there */
	LOCKS_CALL_FOR_EX = 16,   /* a callback says EX, whatever is wanted */
	LOCKS_CALL_ONCE = 32,     /* a callback stands for whoever waits next in the same mode */
	LOCKS_GRANT_ALONE = 64,   /* to who is cut off, too, until its own group tells */
	LOCKS_IN_REAL_TIME = 128, /* a machine may stand still for a while */
	LOCKS_LEFT_BY_HAND = 256, /* leave() is there */
};

struct lock_subject {
	const char *name;
	bool by_name; /* runs only if it is named */
	const struct lock_ops *ops;
	uint32_t nodes;
	uint32_t traits;
	uint32_t worlds;     /* that differ, and are worth a run of each test */
	uint32_t quiet_ms;   /* longer than messages and recoveries take, 0 = 3000 */
	uint32_t at_once_ms; /* what is answered at once is answered within, 0 = 1000 */
	/* The worlds of a test are the same, whichever tests ran before. */
	void (*rewind)(void);
	/* A new world, in which all daemons run. The one before is ended. */
	void (*start)(void);
	void (*end)(void);
	void (*run)(uint32_t ms);
	uint64_t (*inc)(uint32_t node); /* of its present daemon */
	/* The daemon dies and its node lives; or the node dies. Its handle is never used again. */
	void (*kill)(uint32_t node);
	void (*crash)(uint32_t node);
	/* No node hears it any more, nor does it hear them; it runs on, and so does its handle. */
	void (*cut)(uint32_t node);
	/* Somebody makes it leave the lock space, behind the back of its handle. */
	void (*leave)(uint32_t node);
	void (*restart)(uint32_t node); /* of a killed daemon */
	/* Whether fences are answered. If not, they are when they may be again. */
	void (*fences)(bool answered);
	/* A grant is seen by its sender only, while this is on. */
	void (*unsafe_grants)(bool on);
	/* All nodes lose quorum, or have it again, in the same ring. */
	void (*quorum)(bool quorate);
	/* Engines, and their regions as users of the locks, where they aren't there anyway. */
	void (*start_engines)(void);
};

/* For the subjects, where CHECK of test.h doesn't reach: ends the test as failed. */
_Noreturn void subject_fail(const char *file, int line, const char *what);
#define HOLDS(expr_)                                                                               \
	do {                                                                                       \
		if (!(expr_))                                                                      \
			subject_fail(__FILE__, __LINE__, #expr_);                                  \
	} while (0)

extern const struct lock_subject lock_local, lock_cpg, lock_dlm, lock_remote, lock_remote_nodes;

/* ---- lock_engines.c: engines on members in memory ------------------------------------------- */

/* external: the engines' locks are this manager's, else their own table's. */
void engines_start(uint32_t nodes, const struct lock_ops *external);
void engines_end(void); /* harmless if there are none */
void engines_ms(void);  /* one millisecond */
void engines_kill(uint32_t node);
void engines_crash(uint32_t node);
void engines_fences(bool answered);
/* A consumer writes the first block of a region. */
void engines_write(uint32_t node, uint64_t region);
/* Writes of consumers' data are not answered by the members, while this is on. */
void engines_hold_writes(uint32_t node, bool on);
uint32_t engines_writes_sent(uint32_t node); /* of consumers' data, to members */
uint32_t engines_writes_done(uint32_t node); /* answered to consumers */
uint32_t engines_grants(uint32_t node);      /* external: granted to the engine */
uint32_t engines_fences_asked(void);
struct engine_status engines_status(uint32_t node);
enum lock_mode engines_held(uint32_t node, uint64_t id);

#endif
