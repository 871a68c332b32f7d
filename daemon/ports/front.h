/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The front-end port: how consumers reach the array. A front-end (NBD server, kernel shim) takes
 * requests from its consumers, hands them to the runtime's sink and answers when told so.
 *
 * A front-end is one of
 *
 *   shut      reachable for consumers, but none is let in; they wait.   -> serving, closed
 *   serving   consumers open the array, requests run.                   -> shut, closed
 *   closed                                                              (front_close frees it)
 *
 *   front_open    ------> shut
 *   front_serve   shut -> serving    the array is assembled: its size is known
 *   front_reset   any  -> shut       R6: this node was removed; every open ends
 *   front_hold    any  -> shut       the daemon is about to end, or consumers are to be cut off
 *   front_remove  any  -> shut       consumers are to have no array here, if none has it open
 *   front_close   any  -> closed
 *
 * What a consumer has opened may outlive the daemon (a disk of the kernel's does, an NBD connection
 * does not): it waits then, and the next daemon goes on with it, if front_export.token is the same.
 * So nothing but front_reset, front_remove and another token ends an open.
 *
 * Requests simply wait in the sink while I/O may not run (quorum lost, fence under way): there is
 * no pause. All calls, in both directions, are made on the thread that runs cfg.loop, and none
 * blocks. The sink may complete a request from within submit; front_reset may come there too.
 *
 * A request's buffer belongs to the sink from submit to front_complete, whatever becomes of the
 * consumer meanwhile. So a front-end keeps buffers of requests whose consumer is gone;
 * front_stats counts them as in flight.
 *
 * What a front-end must not do: reorder, merge or retry requests, remember anything about data, or
 * decide what may run.
 */
#ifndef DDRAID_PORTS_FRONT_H
#define DDRAID_PORTS_FRONT_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "daemon/base/limits.h"
#include "daemon/base/loop.h"

#define FRONT_MAX_LISTEN 4  /* addresses of one front-end */
#define FRONT_WHY_BYTES 320 /* a sentence for a person, with its NUL */

struct front;

/* The same values as the engine's enum io_op and IO_F_*: the runtime passes them through. */
enum front_op { FRONT_READ, FRONT_WRITE, FRONT_FLUSH, FRONT_ZEROES, FRONT_OPS };
enum { FRONT_F_FUA = 1, FRONT_F_UNMAP = 2 };

struct front_req {
	uint64_t tag; /* given back to front_complete; the top byte is cfg.id */
	enum front_op op;
	uint32_t flags;  /* FRONT_F_FUA on WRITE and ZEROES, FRONT_F_UNMAP on ZEROES; else 0 */
	uint64_t offset; /* multiple of DDR_BLOCK_BYTES, within the array; 0 for FLUSH */
	uint32_t
	    bytes;  /* multiple of DDR_BLOCK_BYTES, 1 block..DDR_MAX_FRONT_IO_BYTES; 0 for FLUSH */
	void *data; /* READ, WRITE: aligned to DDR_BLOCK_BYTES; else NULL */
};

/* What the runtime offers. */
struct front_sink {
	/* Required. Takes the request (not the struct, which is valid during the call). Can't
	 * refuse: an error comes by front_complete. */
	void (*submit)(void *arg, const struct front_req *req);
	/* Optional. `priority` is syslog's; `text` is one sentence without a newline. Bounded: a
	 * front-end doesn't let its consumers flood the log. */
	void (*log)(void *arg, int priority, const char *text);
	void *arg;
};

/* What front_open is told. Strings are copied. */
struct front_cfg {
	struct loop *loop;
	struct front_sink sink;
	uint8_t id; /* unique among the runtime's front-ends */
	/* Where consumers find it, in the words of that front-end; up to the first NULL. NBD:
	 * "unix:/path", "tcp:127.0.0.1:10809", "tcp:[::1]:10809" (loopback only). shim: none, the
	 * device follows from the array's name. */
	const char *listen[FRONT_MAX_LISTEN];
	/* NBD: who may open the files of its Unix sockets; (gid_t)-1: the group of new files. */
	mode_t socket_mode;
	gid_t socket_group;
};

/* What is served: told at front_serve, when the array is assembled. */
struct front_export {
	char name[DDR_NAME_BYTES]; /* the array's */
	char description[128];     /* for people; may be empty */
	uint64_t size_bytes;       /* multiple of DDR_BLOCK_BYTES */
	uint32_t block_bytes;      /* offsets and lengths are multiples of it; a power of two, at
				    * least DDR_BLOCK_BYTES; 0 = DDR_BLOCK_BYTES */
	uint32_t preferred_bytes;  /* what a consumer had best align to: the stripe; a power of
				    * two, DDR_BLOCK_BYTES..DDR_MAX_FRONT_IO_BYTES */
	uint32_t row_bytes;        /* what a streaming consumer had best take at once: a multiple
				    * of preferred_bytes, or 0 */
	uint8_t uuid[DDR_UUID_BYTES];
	/*
	 * For opens that outlive the daemon: a name, not 0, kept with what is opened from now on.
	 * Opens that are there under the same name go on, with all their requests that wait; those
	 * under another end before anybody is let in, as by front_reset (R6).
	 */
	uint64_t token;
	/* Likewise: how long they wait for a daemon before their requests fail with EIO, until one
	 * serves them again; 0: for ever. */
	uint32_t away_ms;
};

static inline uint32_t front_block_bytes(const struct front_export *ex)
{
	return ex->block_bytes ? ex->block_bytes : DDR_BLOCK_BYTES;
}

/* A picture for status; a copy. Counters count from front_open. */
struct front_stats {
	uint32_t clients;      /* opens now */
	uint32_t inflight;     /* requests at the sink now, those of gone consumers included */
	uint64_t buffer_bytes; /* held for requests and replies now */
	uint64_t accepted;     /* opens */
	uint64_t violations;   /* opens ended because of a protocol error */
	uint64_t dropped;      /* opens ended by reset, or because they stalled */
	uint64_t requests[FRONT_OPS]; /* by enum front_op, as the consumers sent them */
	uint64_t rejected;            /* requests answered with an error without asking the sink */
	uint64_t failed;              /* requests that the sink failed */
	uint64_t read_bytes, write_bytes; /* asked for by these; zeroes not counted */
	uint32_t waiting;                 /* requests that were not taken in yet, if it is known */
	char lost[FRONT_WHY_BYTES];       /* why nobody can open it any more: the socket's file */
};

#define FRONT_PEER_BYTES 64

/* One open, for status; a copy. */
struct front_client {
	char peer[FRONT_PEER_BYTES]; /* who, as far as the front-end knows: "pid 4711 uid 0" */
	uint64_t since_us;           /* when it came, in loop_now_us's time */
	uint64_t requests;           /* it has sent */
};

/* One kind of front-end. Registered by FRONT_REGISTER in its own source. */
struct front_ops {
	const char *name; /* in configuration: "nbd", "shim" */
	/* Required. Claims the addresses. 0, or -errno with a sentence in why (FRONT_WHY_BYTES)
	 * that names the object, the cause and the remedy. */
	int (*open)(const struct front_cfg *cfg, struct front **out, char *why);
	/* Required. As the functions below of the same names. */
	int (*serve)(struct front *f, const struct front_export *ex, char *why);
	void (*complete)(struct front *f, uint64_t tag, int err);
	void (*reset)(struct front *f);
	void (*hold)(struct front *f);
	void (*close)(struct front *f);
	void (*stats)(const struct front *f, struct front_stats *st);
	/* Optional. */
	uint32_t (*clients)(const struct front *f, struct front_client *list, uint32_t room);
	int (*remove)(struct front *f);
	int (*listen)(struct front *f, const char *address, char *why);
	const char *(*device)(const struct front *f);
	int (*patience)(struct front *f, uint32_t away_ms, char *why);
	/*
	 * For what outlived a daemon and has no front-end that serves it: the array does not run,
	 * or can't. Ends it, as front_reset (force) or front_remove. 0 also if there is nothing;
	 * -EBUSY: it is open and not forced, or another daemon serves it; -EAGAIN: whether it is
	 * open was not known within wait_ms, ask again; -errno, with a sentence. Any thread.
	 */
	int (*discard)(const char *name, const uint8_t uuid[DDR_UUID_BYTES], bool force,
		       uint32_t wait_ms, char *why);
	struct front_ops *next; /* the registry's */
};

/* What each front-end's own struct begins with. */
struct front {
	const struct front_ops *ops;
};

/*
 * List the front-end's source in the program's own sources: the linker drops self-registering
 * objects from static libraries.
 */
void front_register(struct front_ops *ops);
#define FRONT_REGISTER(ops_)                                                                       \
	__attribute__((constructor)) static void register_##ops_(void)                             \
	{                                                                                          \
		front_register(&ops_);                                                             \
	}
/* NULL: no such front-end is built in. */
const struct front_ops *front_find(const char *name);

/* Lets consumers in. 0, or -errno with a sentence in why (FRONT_WHY_BYTES); -EINVAL: the export is
 * out of bounds; -EBUSY: what is open is still another daemon's, try again. Only when shut. */
static inline int front_serve(struct front *f, const struct front_export *ex, char *why)
{
	return f->ops->serve(f, ex, why);
}

/* Answers a request: err 0 or -errno, any. Exactly once per submit. An unknown tag is a broken
 * invariant: it asserts. */
static inline void front_complete(struct front *f, uint64_t tag, int err)
{
	f->ops->complete(f, tag, err);
}

/*
 * R6. Drops every open: no further request of theirs is submitted, those in flight are answered
 * EIO as far as the consumer takes the answer at once, then the connection is closed. Consumers
 * that come back wait until front_serve is called, under the new incarnation. The sink still
 * completes what it has.
 */
static inline void front_reset(struct front *f)
{
	f->ops->reset(f);
}

/*
 * Takes in nothing more, and says nothing of what the sink has: a consumer that is told EIO may run
 * elsewhere in the next moment, and what the sink still does then would come over what it writes
 * there. What is in flight is answered as the sink completes it; where opens outlive the daemon,
 * but for errors: its end is no reason to fail a request that the next one will take over. Where
 * they don't, each ends when all that it had in flight is answered. Again, or when shut: nothing.
 */
static inline void front_hold(struct front *f)
{
	f->ops->hold(f);
}

/* Consumers find no array here any more. 0; -EBUSY: it is open, and nothing has changed, nor can
 * anybody who opened it in the same moment be cut off; -EAGAIN: that is being found out, ask again.
 * 0 where opens end by themselves. */
static inline int front_remove(struct front *f)
{
	return f->ops->remove ? f->ops->remove(f) : 0;
}

/* At one more address, in any state. 0, or -errno with a sentence in why (FRONT_WHY_BYTES): nothing
 * has changed, and it may be tried again. */
static inline int front_listen(struct front *f, const char *address, char *why)
{
	if (f->ops->listen)
		return f->ops->listen(f, address, why);
	snprintf(why, FRONT_WHY_BYTES, "it has no addresses");
	return -EOPNOTSUPP;
}

/* The block device that consumers open while it serves; NULL: there is none. Valid until the next
 * call of a hook. */
static inline const char *front_device(const struct front *f)
{
	return f->ops->device ? f->ops->device(f) : NULL;
}

/* Another front_export.away_ms, of one that serves; nothing is interrupted. 0, or -errno with a
 * sentence in why: nothing has changed, and the next front_serve would do it. */
static inline int front_patience(struct front *f, uint32_t away_ms, char *why)
{
	if (f->ops->patience)
		return f->ops->patience(f, away_ms, why);
	snprintf(why, FRONT_WHY_BYTES, "it can't be told while it serves");
	return -EOPNOTSUPP;
}

/* After a reset, inflight 0 means that the sink has no buffer of this front-end any more. */
static inline void front_stats(const struct front *f, struct front_stats *st)
{
	f->ops->stats(f, st);
}

/* Fills in at most `room` of the opens that there are now, and returns how many it did. */
static inline uint32_t front_clients(const struct front *f, struct front_client *list,
				     uint32_t room)
{
	return f->ops->clients ? f->ops->clients(f, list, room) : 0;
}

/* Ends everything of this daemon's; opens that can outlive it stay (front_hold). The sink must not
 * touch the buffers of requests that it has not completed, and must not complete them. Not from
 * within submit. NULL is fine. */
static inline void front_close(struct front *f)
{
	if (f)
		f->ops->close(f);
}

#endif
