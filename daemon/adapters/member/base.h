/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What every member adapter shares: states, queue, helper thread, backoff, settling (R5).
 *
 * An adapter embeds a struct base at the head of its own, fills in six hooks, and lists
 * base_submit, base_cancel, base_close, base_lease and base_fenced in its struct member_ops. The
 * base keeps the port's promises; the adapter opens, moves bytes and says what came back:
 *
 *	open() -> base_init, base_open
 *	helper thread:  connect
 *	loop thread:    attach, start*, flush*, drop, destroy
 *	adapter calls:  base_complete (a request is through), base_broken (the connection is),
 *	                base_dropped (after drop: the last request is back)
 *
 * Only base_fail and base_abandoned may be called from the helper thread. While connect runs, the
 * loop thread touches nothing of what connect writes.
 */
#ifndef DDRAID_ADAPTERS_MEMBER_BASE_H
#define DDRAID_ADAPTERS_MEMBER_BASE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "daemon/adapters/member/lease_guard.h"
#include "daemon/base/loop.h"
#include "daemon/ports/member.h"

#define BASE_WHY_BYTES 256
#define BASE_ZERO_BYTES (256u << 10) /* of base_zeroes */

enum base_state {
	BASE_CONNECTING, /* the helper thread is at it */
	BASE_SETTLING,   /* connected; waits until nothing sent earlier can land */
	BASE_UP,
	BASE_BREAKING, /* drop was called; requests are still out */
	BASE_BACKOFF,  /* waits before it connects again */
	BASE_CLOSING,  /* close() was called; helper thread or requests are still out */
	BASE_STATES
};

struct base;

struct base_hooks {
	/* Required; on the helper thread, may block up to connect_timeout_ms. Opens what there is
	 * to open and fills in b->info. 0, or -errno and a sentence in b->why; then nothing is left
	 * open. Asks base_abandoned from time to time. */
	int (*connect)(struct base *b);
	/* Required. Puts what connect opened into the loop. 0, or -errno and b->why; drop is called
	 * then too. */
	int (*attach)(struct base *b);
	/* Required. Sends as much of the request as there is room for; req->priv is the adapter's
	 * and zero at first. True: all of it was sent;
	 * base_complete follows, from here or later. False: no room now; called again with the
	 * same request after something completed. */
	bool (*start)(struct base *b, struct member_req *req);
	/* Optional. At the end of a turn, from attach until nothing is out after drop: hand over
	 * what was gathered. True: not all could be, call it again soon. */
	bool (*flush)(struct base *b);
	/* Required. Ends what connect opened, attached or not. Each request that start took (true)
	 * is answered by base_complete(req, err); one that it took in part is forgotten, the base
	 * answers it. True: nothing is out any more, as always when nothing was started; false:
	 * base_dropped will say so. Sets b->zombie if a WRITE or ZEROES can land afterwards. */
	bool (*drop)(struct base *b, int err);
	/* Required. Frees the adapter's struct; no request, thread or watcher is left. */
	void (*destroy)(struct base *b);
};

struct base_list {
	struct member_req *head, **tail;
};

struct base {
	struct member m; /* first */
	const struct base_hooks *hooks;
	struct loop *loop;
	struct member_cfg cfg;
	const struct member_cb *cb;
	void *arg;
	char uri[DDR_URI_BYTES];

	enum base_state state;
	struct member_info info;
	struct base_list queue; /* not yet (fully) started */
	struct base_list done;  /* to be answered */

	bool broken;        /* base_broken or cancel() came in BASE_UP or BASE_SETTLING */
	bool dropped;       /* nothing is out any more */
	bool told_down;     /* since it was up last */
	bool fence_pending; /* fence_connection was called and not answered */
	bool zombie;        /* something sent on zombie_connection can still land */
	uint64_t lease_us;  /* writes may be sent until then */
	struct lease_guard guard;
	uint64_t connection; /* attached so far */
	uint64_t zombie_connection;
	int err;                  /* why it is not up */
	char why[BASE_WHY_BYTES]; /* the sentence to it */
	uint32_t backoff_ms;
	uint64_t up_us;  /* when it went up last */
	uint32_t shorts; /* so often in a row it broke off soon after that */

	pthread_t helper;
	bool helper_runs;
	int helper_err;
	atomic_bool abandoned;

	struct loop_wake handover; /* the helper is through */
	struct loop_timer timer;   /* BACKOFF: connect again. SETTLING: zombies are dead */
	struct loop_hook hook;     /* the end of each turn */
	struct loop_timer kick;    /* for work that came after the hook ran */
};

/* A place in a request's vectors. */
struct base_cursor {
	uint32_t index;
	uint32_t within; /* bytes of iov[index] that lie behind it */
};

extern uint8_t base_zeroes[BASE_ZERO_BYTES]; /* page aligned; nobody writes it */

/* b is zeroed memory. 0 or -errno of the loop; then nothing is left behind. */
int base_init(struct base *b, const struct member_ops *ops, const struct base_hooks *hooks,
	      const char *uri, struct loop *loop, const struct member_cfg *cfg,
	      const struct member_cb *cb, void *arg);
/* The adapter is ready: the first attempt to connect. */
void base_open(struct base *b);

void base_submit(struct member *m, struct member_req *req);
void base_cancel(struct member *m);
void base_close(struct member *m);
void base_lease(struct member *m, uint64_t until_us);
void base_fenced(struct member *m, uint64_t connection, int err);

/* Before anything is sent that belongs to a WRITE or ZEROES: true = it must not be any more, and
 * the connection counts as broken. start is only called when it may. */
bool base_lease_over(struct base *b);
/* A started request is through: it will be answered with err. */
void base_complete(struct base *b, struct member_req *req, int err);
/* The connection is of no use any more; drop follows before the thread blocks. The first one
 * counts. */
void base_broken(struct base *b, int err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void base_dropped(struct base *b);
/* For connect and attach: sets b->why and returns err. */
int base_fail(struct base *b, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool base_abandoned(struct base *b);

/* Moves the cursor over n bytes. */
void base_skip(const struct member_req *req, struct base_cursor *at, uint32_t n);
/* n bytes from the cursor on into dst, or from src; moves the cursor. */
void base_gather(const struct member_req *req, struct base_cursor *at, void *dst, uint32_t n);
void base_scatter(const struct member_req *req, struct base_cursor *at, const void *src,
		  uint32_t n);

#endif
