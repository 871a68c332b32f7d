/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The lock port: which nodes write a region now, and who has it to himself.
 *
 * One lock space per array. A node's part in it is a handle (struct lockspace), which belongs to
 * one incarnation of its daemon: it is opened when that begins, and closed when that ends.
 *
 * Modes. PR, protected read: decodes or compares what is there, as others may, too, and nobody
 * writes. CW, concurrent write: writes here, as others may, too. EX, exclusive: has it alone. What
 * a handle holds is never in its own way; what others hold is, as lock_compatible() says:
 *
 *	asked for	nobody else	others hold PR	others hold CW	another holds EX
 *	PR		yes		yes		no		no
 *	CW		yes		no		yes		no
 *	EX		yes		no		no		no
 *
 * There is no mode for a lock that is kept without a right, as the kernel's DLM has it in NL: what
 * is not held does not exist, and is nobody's to convert.
 *
 * One lock of one handle:
 *
 *	          request(PR, CW, EX)         granted()              release()
 *	[nothing] -----------------> [asked] -----------> [holds it] ----------> [nothing]
 *	     ^                          |
 *	     +--- refused(), a try -----+
 *
 *	                 request(EX, try)                    granted()
 *	[holds PR or CW] -----------------> [holds it, asks] -----------> [holds EX]
 *	         ^                                 |
 *	         +------------ refused() ----------+
 *
 *	           request(PR)                    granted()
 *	[holds EX] ------------> [holds PR, asks] -----------> [holds PR]
 *
 * The caller's part: one request of a lock at a time. It asks for nothing that it holds already.
 * It converts upward, from PR or CW to EX, only by a try: two that held CW and queued for EX would
 * wait for each other. It converts downward from EX to PR, so that readers are let in and no writer
 * comes between; from that request on it holds PR and no more. PR and CW are not converted into
 * each other: each lets in what the other keeps out. All else is release, then request. It releases
 * what it holds, while no request of that lock is unanswered. A release has no answer, and the next
 * request may follow at once. When called back it gives the lock up as soon as the last member
 * request that it made under it is answered, not before.
 *
 * What a lock manager promises, and tests/port/lock_conformance.c checks:
 *
 *  - It grants what was asked for, once, and never two handles what excludes each other.
 *  - Requests of a lock are served in order: CW that comes after a waiting EX waits behind it,
 *    though the holders are CW (else busy writers would starve a resync), and so does PR, though
 *    they are PR (else readers would starve a writer). All that go together and are next are
 *    granted.
 *  - A downward conversion is granted whoever waits, and lets in who is next and goes with it.
 *  - A try is never queued. It is refused if another holder is in the way, and may be if others
 *    wait; else it is granted. A refused one leaves what is held as it is.
 *  - The request that is next calls back every holder in its way: once, and perhaps again when one
 *    of them has released, or has converted and is in the way yet. callback() names the mode that
 *    is wanted, or EX. The request after it does so again, if it has to wait. A callback may be
 *    out of date: for what was released, or for a waiter that is gone. A caller ignores it then,
 *    or gives up more than it had to.
 *  - Answers and callbacks of one lock come to a handle in the order in which they came to be: a
 *    callback never overtakes the grant that it is about. Nobody would give up that lock.
 *  - A living handle keeps what it was granted until it releases it, over the loss of any other
 *    node, the one that keeps the table included. If it can't be so, it is lost().
 *  - A request that was made is answered in the end, once no holder is in its way, whatever was
 *    lost meanwhile.
 *  - A node without quorum is granted nothing. (If quorum is lost and nobody is, as when a vote is
 *    taken away, it may be: nobody else grants. The engine sends nothing then, R2.)
 *  - What was granted to, and what was asked by, an incarnation that ended counts no more, at the
 *    latest when it is fenced. A new one of the same node begins with nothing.
 *
 * What it may do. Answer late: while it recovers from a loss, nobody is granted anything, for
 * seconds (R10), a try neither. Free a dead daemon's locks at once, while what that has written is
 * still under way, and grant them before anybody hears of the death (R10, the kernel's DLM); or
 * only after its fence (`cpg`). A dead node's too, but no sooner than all hear of that death: after
 * the cluster stack's time-out. Lose the holder while its node lives: its daemon was killed.
 * Grant to a node that is cut off, until its own group tells, what nobody held (the kernel's DLM;
 * `cpg` does not). Nothing tells the caller.
 *
 * A lock is therefore no proof that its last holder's writes have landed (R5), and the engine does
 * not take it for one: what is granted counts when all others of the round have answered since, so
 * nobody had died or was cut off (Settle), and between a loss and the fence not at all (R4).
 *
 * R9, for a manager on top of messages without safe delivery: from the loss of any node until its
 * fence it grants nothing at all, whatever the lost one seemed to hold. That one may have been
 * granted what nobody else has seen.
 *
 * Where it is. `cpg` and `local` are in the core, with this contract and without this interface
 * (core/cluster/locktab.c; doc/locking.md says why the leader keeps the table). For any other the
 * engine is configured with LOCK_EXTERNAL, and the runtime passes on, one for one:
 *
 *	OUT_LOCK		lock_request		granted()	EV_LOCK_GRANTED
 *	OUT_UNLOCK		lock_release		refused()	EV_LOCK_REFUSED
 *	OUT_REMOVED, the end	lock_close		lost()		EV_GIVE_UP
 *				lock_kept is false, before any EV_MSG	EV_GIVE_UP
 *
 * A new handle is opened, and is up(), before the first event and before EV_RESTART.
 *
 * Threads. All calls and all callbacks are made on the thread that runs the loop. No call blocks,
 * no callback is made from within a call; a callback may call everything but lock_close. The calls
 * of the kernel's DLM block for as long as it recovers, in D state, 8 s as seen (R10): an adapter
 * has a thread of its own for each handle, hands its calls over in their order, and brings answers
 * back by a loop_wake. Status is answered meanwhile.
 */
#ifndef DDRAID_PORTS_LOCK_H
#define DDRAID_PORTS_LOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;
struct lockspace; /* one handle */

/* They are in node messages, so they keep their numbers. No order: PR and CW exclude each other. */
enum lock_mode { LOCK_MODE_NONE = 0, LOCK_MODE_CW = 1, LOCK_MODE_EX = 2, LOCK_MODE_PR = 3 };

/* May two handles hold these at once? */
static inline bool lock_compatible(enum lock_mode a, enum lock_mode b)
{
	return a == LOCK_MODE_NONE || b == LOCK_MODE_NONE || (a == b && a != LOCK_MODE_EX);
}

/* Does who holds the one need no more for what the other is good for? */
static inline bool lock_covers(enum lock_mode held, enum lock_mode mode)
{
	return held == mode || held == LOCK_MODE_EX || mode == LOCK_MODE_NONE;
}

/* For people: "PR". */
static inline const char *lock_mode_name(enum lock_mode mode)
{
	return mode == LOCK_MODE_PR   ? "PR"
	       : mode == LOCK_MODE_CW ? "CW"
	       : mode == LOCK_MODE_EX ? "EX"
				      : "none";
}

/*
 * A lock's name: the kind in the top byte, then a number. The same on all nodes; it is in node
 * messages too, so kinds keep their numbers. A manager that wants text gets 16 hexadecimal digits.
 */
#define LOCK_KIND_REGION 2u /* region of the array, from 0 */
#define LOCK_ID(kind, i) ((uint64_t)(kind) << 56 | (uint64_t)(i))
#define LOCK_INDEX_MASK ((UINT64_C(1) << 56) - 1)

#define LOCK_SPACE_BYTES 64 /* name of a lock space, with its NUL: all that the kernel's takes */

#define LOCK_WAITS_BYTES 256

/* All Required. */
struct lock_cb {
	/* The lock space is there; the first callback, unless it is lost(). */
	void (*up)(void *arg);
	/* The lock is held in this mode, from now on. */
	void (*granted)(void *arg, uint64_t id, enum lock_mode mode);
	/* A try of this mode failed. */
	void (*refused)(void *arg, uint64_t id, enum lock_mode mode);
	/* Somebody waits for `wanted`, and what is held here is in the way. EX: maybe for less. */
	void (*callback)(void *arg, uint64_t id, enum lock_mode wanted);
	/* The lock space is gone or was never there; the last callback. Nothing is known of what
	 * is held: the runtime ends this incarnation (R6) and closes the handle. err: -errno;
	 * `why`: a sentence, valid during the call. */
	void (*lost)(void *arg, int err, const char *why);
};

struct lock_cfg {
	struct loop *loop;
	const char *name;         /* of the lock space, the same on all nodes; copied */
	uint32_t node;            /* > 0 */
	uint64_t inc;             /* the incarnation that this handle belongs to */
	const struct lock_cb *cb; /* not copied */
	void *arg;
};

/* What an adapter fills in; as the functions below of the same names. */
struct lock_ops {
	const char *name; /* "dlm" */
	/* Required. */
	int (*open)(const struct lock_cfg *cfg, struct lockspace **out);
	void (*request)(struct lockspace *ls, uint64_t id, enum lock_mode mode, bool try_only);
	void (*release)(struct lockspace *ls, uint64_t id);
	void (*close)(struct lockspace *ls, bool ended);
	/* Optional. */
	bool (*kept)(struct lockspace *ls);
	void (*waits)(struct lockspace *ls, char text[LOCK_WAITS_BYTES]);
	const char *(*missing)(void);
	void (*ending)(void);
	void (*settle)(uint32_t ms);
	struct lock_ops *next; /* the registry's */
};

/*
 * List the adapter's source in the program's own sources: the linker drops self-registering
 * objects from static libraries.
 */
void lock_register(struct lock_ops *ops);
#define LOCK_REGISTER(ops_)                                                                        \
	__attribute__((constructor)) static void register_##ops_(void)                             \
	{                                                                                          \
		lock_register(&ops_);                                                              \
	}
/* NULL: no such lock manager is built in. */
const struct lock_ops *lock_manager_find(const char *name);
/* The program is about to end, and closes all its lock spaces: a manager that wants to leave them
 * in some order may wait for the call of lock_managers_settle. */
void lock_managers_ending(void);
/* At the end of the program: blocks until what lock_close began is through, at most so long. */
void lock_managers_settle(uint32_t ms);

/* What each adapter's own struct begins with. */
struct lockspace {
	const struct lock_ops *ops;
};

/* Joins the lock space in the background; requests may be made at once, and are served when it is
 * there. 0; -EINVAL: no name, or too long, or no node; -ENOMEM. */
static inline int lock_open(const struct lock_ops *ops, const struct lock_cfg *cfg,
			    struct lockspace **out)
{
	return ops->open(cfg, out);
}

/* granted() follows, or refused() if it is a try; a downward conversion is none. Can't fail: what
 * the adapter can't remember for want of memory it is lost() for. */
static inline void lock_request(struct lockspace *ls, uint64_t id, enum lock_mode mode,
				bool try_only)
{
	ls->ops->request(ls, id, mode, try_only);
}

static inline void lock_release(struct lockspace *ls, uint64_t id)
{
	ls->ops->release(ls, id);
}

/*
 * False: this node was made to leave the lock space behind the handle's back, and others get what
 * it holds. It is false before any of them is granted that, so who asks as a message comes, before
 * he heeds it, does not answer a Settle of such a grant. lost() follows. Only after up(); never
 * blocks.
 */
static inline bool lock_kept(struct lockspace *ls)
{
	return !ls->ops->kept || ls->ops->kept(ls);
}

/* What the manager itself waits for, as a part of a sentence; "" if for nothing. Never blocks. */
static inline void lock_waits(struct lockspace *ls, char text[LOCK_WAITS_BYTES])
{
	text[0] = '\0';
	if (ls->ops->waits)
		ls->ops->waits(ls, text);
}

/* What this node lacks for that manager, and how to mend it, as a sentence; NULL: nothing. Never
 * blocks. */
static inline const char *lock_missing(const struct lock_ops *ops)
{
	return ops->missing ? ops->missing() : NULL;
}

/*
 * The end of a handle; what was asked for is forgotten. What it holds is free. `ended`: the node
 * leaves the lock space, too. Else that stays, as at the daemon's death. Returns at once, without a
 * callback then or later; a handle that is opened after it is served after it. NULL is fine.
 */
static inline void lock_close(struct lockspace *ls, bool ended)
{
	if (ls)
		ls->ops->close(ls, ended);
}

#endif
