/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The member port: how the engine's requests reach one member of an array.
 *
 * A member is a flat range of bytes behind a URI: a file, a block device, an NBD export. The
 * runtime opens it, sends it what the engine's OUT_DEV_IO says, and is told what became of it.
 * An adapter only moves bytes: it decides nothing about maps, marks or parity, and it never
 * repeats a request by itself.
 *
 *	  open              up()                      down(err)
 *	-------> [closed] ---------> [up: submit ok] -----------+
 *	             ^    <------------------------------------ +
 *	             |    connects again by itself, with backoff
 *	   down(err) at the first failure to connect, then silent (retry()) until up()
 *
 * What holds for every adapter, and what tests/port/member_conformance checks:
 *
 *  - All functions are called, and all callbacks are made, on the loop's thread. No callback is
 *    made from within a call: they come from the loop, later. A callback may call everything.
 *  - Every submitted request is answered by done() exactly once. After that the adapter touches
 *    neither the request nor what it points to. Until then they belong to the adapter.
 *  - A request submitted while the member is not up is answered with -ENOTCONN.
 *  - When a connection breaks, done() comes for all that was submitted, then down().
 *  - up() after a down() means that nothing sent before it can still land (R5). See `fencing`.
 *  - Data in flight is bounded by max_inflight_bytes; what is beyond waits in the adapter and is
 *    sent in the order of submission. Requests under way at once may land in any order: whoever
 *    needs an order submits the second one after the first one's done().
 *  - FLUSH covers the writes whose done() came before it was submitted.
 *  - Opening, resolving and connecting happen on a helper thread, never on the loop's.
 *
 * Fencing (R5): a WRITE or ZEROES that was sent and not answered when a connection broke is a
 * zombie: it may sit in a socket or in the exporter. With no zombie, up() comes as soon as the
 * exporter answers again. With one, up() comes when fence_connection() was answered with
 * success, or else zombie_timeout_ms after the exporter first *answered* on the new connection;
 * not after the break, since a frozen exporter carries out what it holds only when it thaws.
 * The timeout is a promise by whoever configures it: it must be longer than the exporter can hold
 * a request that it has accepted. Local files need neither: the kernel answers every request.
 *
 * The memory that an adapter needs is allocated at open() and when it connects; nothing is
 * allocated per request, but by member_uring for memory that is not aligned as O_DIRECT wants it.
 */
#ifndef DDRAID_PORTS_MEMBER_H
#define DDRAID_PORTS_MEMBER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "daemon/ports/types.h"

struct loop;
struct member; /* one open member */

/* Defaults of struct member_cfg. */
#define MEMBER_INFLIGHT_BYTES (4u << 20)
#define MEMBER_MAX_INFLIGHT_BYTES (256u << 20)
#define MEMBER_CONNECT_MS 10000u
#define MEMBER_REQUEST_MS 10000u
#define MEMBER_ZOMBIE_MS 10000u
#define MEMBER_BACKOFF_MIN_MS 200u
#define MEMBER_BACKOFF_MAX_MS 5000u
#define MEMBER_MAX_CONNECTIONS 8u
/* In flight, a request counts with its bytes, at least this: bounds the number of requests too. */
#define MEMBER_MIN_CHARGE_BYTES 4096u

struct member_cfg {
	uint32_t max_inflight_bytes; /* 1 MiB .. MEMBER_MAX_INFLIGHT_BYTES */
	uint32_t connections;        /* network adapters: sockets per member, 1..8. More than one
				      * only if the exporter says MULTI_CONN, else one is used */
	uint32_t connect_timeout_ms; /* to connect and negotiate, name look-up not counted */
	uint32_t request_timeout_ms; /* a request unanswered for so long breaks the connection;
				      * 0 = never. Local files ignore it */
	uint32_t zombie_timeout_ms;  /* see `fencing` above */
	uint32_t backoff_min_ms;     /* between attempts to connect: doubles from min to max */
	uint32_t backoff_max_ms;
	bool shared;    /* other nodes write this member too: it must say MULTI_CONN (true) */
	bool force;     /* take it although it lacks FLUSH and FUA, or MULTI_CONN */
	bool read_only; /* open for reading; WRITE and ZEROES are answered with -EROFS */
};

/* What a member can do. FLUSH and FUA requests may always be sent: what is missing is made up
 * for (FUA by a flush, FLUSH by writing everything with FUA), or open is refused. */
enum {
	MEMBER_FLUSH = 1,      /* FLUSH is real */
	MEMBER_FUA = 2,        /* FUA is the member's own, not write + flush */
	MEMBER_MULTI_CONN = 4, /* a FLUSH covers what other connections wrote */
	MEMBER_ZEROES = 8,     /* ZEROES is the member's own, not written zeroes */
	MEMBER_READ_ONLY = 16,
};

struct member_info {
	uint64_t size_bytes;
	uint32_t min_block_bytes;       /* offsets and lengths are multiples of it, else -EINVAL */
	uint32_t preferred_block_bytes; /* below it the member rewrites neighbours (section 2);
					 * 0 = it did not say */
	uint32_t flags;                 /* MEMBER_* */
	uint64_t instance; /* while it is the same over a down/up, the member's volatile cache was
			    * not lost (R17); 0 = unknown */
};

/*
 * One request; the caller's memory, until done(). `iov` as OUT_DEV_IO gives it: its lengths sum
 * up to `bytes`, it stays unchanged and valid until done(), as does the memory it points to.
 */
struct member_req {
	uint64_t id; /* the caller's */
	enum dev_op op;
	uint32_t flags; /* DEV_F_FUA, DEV_F_END: WRITE, ZEROES; DEV_F_UNMAP: ZEROES */
	uint64_t offset_bytes;
	uint32_t bytes; /* 0 for FLUSH */
	const struct iovec *iov;
	uint32_t iov_count;
	/* The adapter's, from submit() to done(). */
	struct member_req *next;
	int err;
	uint64_t priv[8];
};

struct member_cb {
	/* Required. Connected, and nothing sent before can still land. */
	void (*up)(void *arg, const struct member_info *info);
	/* Required. It was up and is not any more, or the first attempt failed. err: -errno;
	 * -ECANCELED after cancel(). `why`: a sentence, valid during the call. */
	void (*down)(void *arg, int err, const char *why);
	/* Required. err: 0 or -errno: -EIO and other errors of the medium; -EINVAL not a multiple
	 * of the block, beyond the end, or ill-formed; -ECONNRESET the connection broke and the
	 * request may or may not have landed; -ECANCELED; -ENOTCONN; -EROFS; -ENOSPC. After an
	 * error of a WRITE or ZEROES any part of its range may be new. */
	void (*done)(void *arg, struct member_req *req, int err);
	/* Required. close() is through, nothing is under way; the last callback. */
	void (*closed)(void *arg);
	/* Optional. A further attempt to connect failed; for log and status. */
	void (*retry)(void *arg, int err, const char *why);
	/* Optional. It is up and works, and yet is not what it should be: why, and what to do; a
	 * sentence, valid during the call. NULL: it is again. For log and status. */
	void (*warn)(void *arg, const char *why);
	/* Optional. See to it that nothing that was sent on `connection` (counted from 1) lands any
	 * more, and answer with member_fenced(). Asked after down(); after an answer with an error
	 * asked again when the next connection is made. */
	void (*fence_connection)(void *arg, uint64_t connection);
};

/*
 * What an adapter fills in. One file, one `const struct member_ops`, one MEMBER_ADAPTER line;
 * adapters/member/base.h has what most adapters share, adapters/member/uring.c is the one to copy.
 */
struct member_ops {
	/* Required. URI schemes without "://", NULL at the end. */
	const char *const *schemes;
	/* Required. Starts to connect. 0, or -errno (-EINVAL: malformed URI; -ENOMEM) and *why a
	 * static sentence; then there is no member and no callback. `uri` is copied, `cb` is not.
	 */
	int (*open)(const char *uri, struct loop *loop, const struct member_cfg *cfg,
		    const struct member_cb *cb, void *arg, struct member **m, const char **why);
	/* Required. */
	void (*submit)(struct member *m, struct member_req *req);
	/* Required. As if the connection broke with -ECANCELED: all that was submitted is answered
	 * so, at once where the adapter can (network), else as soon as the kernel is through with
	 * it (local). Then down(), then it connects again. Nothing if the member is not up. What
	 * was cancelled may still land: only up() says that it can't. */
	void (*cancel)(struct member *m);
	/* Required. Answers as cancel() does, no up() or down() any more, at last closed(). The
	 * member must not be used after the call. Over a network what was under way may land after
	 * closed(), and nobody says when it can't any more. */
	void (*close)(struct member *m);
	/* Required. From until_us on, in the loop's time, no byte of a WRITE or ZEROES may be
	 * handed to the kernel any more (R7): the other nodes take over where this one has written.
	 * What is submitted and not sent by then is not sent: the connection breaks, with
	 * -ETIMEDOUT. Moved on again and again, before that; UINT64_MAX, as at open: no limit.
	 * A local member has no time limit for what its kernel has either: it looks at a request's
	 * start only. Nothing of this is for a request with DEV_F_LATE. */
	void (*lease)(struct member *m, uint64_t until_us);
	/* Required if up() ever waits for it. The answer to fence_connection(), err = 0 or -errno.
	 * One that is not asked for any more is ignored. */
	void (*fenced)(struct member *m, uint64_t connection, int err);
};

/* The head of every adapter's own struct. */
struct member {
	const struct member_ops *ops;
};

/* The defaults above; shared = true. */
void member_cfg_init(struct member_cfg *cfg);

/* By the URI's scheme; a plain absolute path is a `file`. NULL: no adapter in this build. */
const struct member_ops *member_find(const char *uri);

/* As the hooks above. member_open: -EPROTONOSUPPORT if no adapter knows the scheme; -EINVAL if
 * *cfg is out of range. *why is a static sentence whenever it fails. */
int member_open(const char *uri, struct loop *loop, const struct member_cfg *cfg,
		const struct member_cb *cb, void *arg, struct member **m, const char **why);
void member_submit(struct member *m, struct member_req *req);
void member_cancel(struct member *m);
void member_close(struct member *m);
void member_lease(struct member *m, uint64_t until_us);
void member_fenced(struct member *m, uint64_t connection, int err);

/*
 * Registers itself before main(). The file must be among the program's own sources: the linker
 * drops it from a static library, since nothing refers to it.
 */
#define MEMBER_MAX_ADAPTERS 8u
void member_register(const struct member_ops *ops);
#define MEMBER_ADAPTER(ops)                                                                        \
	static __attribute__((constructor)) void member_adapter_register(void)                     \
	{                                                                                          \
		member_register(&(ops));                                                           \
	}                                                                                          \
	_Static_assert(1, "")

#endif
