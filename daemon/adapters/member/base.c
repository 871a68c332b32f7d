// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What every member adapter shares; base.h says how an adapter uses it.
 *
 *   state       in it                                     leaves it when
 *   CONNECTING  the helper thread runs connect            it is through: SETTLING or BACKOFF
 *   SETTLING    attached, no request accepted             no zombie (any more): UP; broken: BACKOFF
 *   UP          requests are accepted and started         broken or cancelled: BREAKING
 *   BREAKING    drop was called                           the last request is back: BACKOFF
 *   BACKOFF     nothing is open, or nothing is used       the timer fires: CONNECTING
 *   CLOSING     from any state by close()                 helper and requests are back: freed
 *
 * Invariants: a request is in `queue`, or with the adapter, or in `done`. One that the adapter
 * has started only in part is still the head of `queue`. zombie is set while something sent on
 * zombie_connection can still land, and then nothing is sent: in UP it is false.
 *
 * Every callback is made from base_run, at the end of a turn of the loop or from the kick timer
 * right after it; a call of the port (submit, cancel, close, fenced) only changes state and
 * kicks. So callbacks can call everything, and an adapter is never entered twice.
 *
 * Called by the adapters and through struct member_ops by the runtime. It must not know what an
 * adapter is made of.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/adapters/member/base.h"
#include "daemon/base/thread.h"

#define HELPER_STACK_BYTES (1u << 20) /* the daemon locks its memory: not 8 MiB per connect */

uint8_t base_zeroes[BASE_ZERO_BYTES] __attribute__((aligned(4096)));

#define TO(s) (1u << (s))
static const unsigned int moves[BASE_STATES] = {
    [BASE_CONNECTING] = TO(BASE_SETTLING) | TO(BASE_BACKOFF) | TO(BASE_CLOSING),
    [BASE_SETTLING] = TO(BASE_UP) | TO(BASE_BACKOFF) | TO(BASE_CLOSING),
    [BASE_UP] = TO(BASE_BREAKING) | TO(BASE_CLOSING),
    [BASE_BREAKING] = TO(BASE_BACKOFF) | TO(BASE_CLOSING),
    [BASE_BACKOFF] = TO(BASE_CONNECTING) | TO(BASE_CLOSING),
    [BASE_CLOSING] = 0,
};

static void move(struct base *b, enum base_state to)
{
	assert(moves[b->state] & TO(to));
	b->state = to;
}

static struct base *base_of(struct member *m)
{
	return (struct base *)m; /* m is its first field */
}

/* --- lists of requests --- */

static void list_init(struct base_list *l)
{
	l->head = NULL;
	l->tail = &l->head;
}

static void list_add(struct base_list *l, struct member_req *req)
{
	req->next = NULL;
	*l->tail = req;
	l->tail = &req->next;
}

/* The head becomes `next`, what followed it before. */
static void list_advance(struct base_list *l, struct member_req *next)
{
	l->head = next;
	if (!next)
		l->tail = &l->head;
}

/* --- vectors --- */

/* Moves the cursor over n bytes; copies them into dst, or from src, unless those are NULL. */
static void walk(const struct member_req *req, struct base_cursor *at, uint8_t *dst,
		 const uint8_t *src, uint32_t n)
{
	while (n) {
		const struct iovec *v = &req->iov[at->index];
		size_t left = v->iov_len - at->within;
		uint32_t piece = left < n ? (uint32_t)left : n;
		uint8_t *here = (uint8_t *)v->iov_base + at->within;

		if (dst && piece) {
			memcpy(dst, here, piece);
			dst += piece;
		}
		if (src && piece) {
			memcpy(here, src, piece);
			src += piece;
		}
		n -= piece;
		at->within += piece;
		if (at->within == v->iov_len) { /* it may be of no length at all */
			at->index++;
			at->within = 0;
		}
	}
}

void base_skip(const struct member_req *req, struct base_cursor *at, uint32_t n)
{
	walk(req, at, NULL, NULL, n);
}

void base_gather(const struct member_req *req, struct base_cursor *at, void *dst, uint32_t n)
{
	walk(req, at, dst, NULL, n);
}

void base_scatter(const struct member_req *req, struct base_cursor *at, const void *src, uint32_t n)
{
	walk(req, at, NULL, src, n);
}

/* --- notes from the adapter --- */

static void set_why(struct base *b, const char *fmt, va_list ap)
{
	vsnprintf(b->why, sizeof(b->why), fmt, ap);
}

int base_fail(struct base *b, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	set_why(b, fmt, ap);
	va_end(ap);
	return err;
}

bool base_abandoned(struct base *b)
{
	return atomic_load(&b->abandoned);
}

static void kick(struct base *b)
{
	if (!loop_timer_is_set(&b->kick))
		loop_timer_set(b->loop, &b->kick, 0);
}

void base_complete(struct base *b, struct member_req *req, int err)
{
	req->err = err;
	list_add(&b->done, req);
	kick(b);
}

void base_broken(struct base *b, int err, const char *fmt, ...)
{
	va_list ap;

	if (b->broken || (b->state != BASE_UP && b->state != BASE_SETTLING))
		return;
	b->broken = true;
	b->err = err;
	va_start(ap, fmt);
	set_why(b, fmt, ap);
	va_end(ap);
	kick(b);
}

/* The clock is read anew: this thread, or the machine, may have stood still just now. */
bool base_lease_over(struct base *b)
{
	if (b->lease_us == UINT64_MAX || loop_clock_us(b->loop) < b->lease_us)
		return false;
	base_broken(b, -ETIMEDOUT, "%s: given up with writes that were not sent yet: %s", b->uri,
		    b->cfg.shared
			? "this node stood still, or heard nothing from the cluster, for so long "
			  "that others may go on without it"
			: "this daemon stood still, or could not renew its claim on the members, "
			  "for so long that another one may use them");
	return true;
}

void base_dropped(struct base *b)
{
	b->dropped = true;
	kick(b);
}

/* --- connecting --- */

static void *helper_main(void *arg)
{
	struct base *b = arg;

	b->helper_err = b->hooks->connect(b);
	loop_wake_kick(&b->handover);
	return NULL;
}

static int helper_start(struct base *b)
{
	int err = thread_start(&b->helper, HELPER_STACK_BYTES, helper_main, b);

	b->helper_runs = !err;
	return err;
}

static uint64_t in_ms(const struct base *b, uint32_t ms)
{
	return loop_now_us(b->loop) + (uint64_t)ms * 1000;
}

/* An attempt came to nothing: says so, once by down() and then by retry(). */
static void attempt_failed(struct base *b, int err)
{
	b->err = err;
	b->dropped = true;
	move(b, BASE_BACKOFF);
	loop_timer_set(b->loop, &b->timer, in_ms(b, b->backoff_ms));
	b->backoff_ms *= 2;
	if (b->backoff_ms > b->cfg.backoff_max_ms)
		b->backoff_ms = b->cfg.backoff_max_ms;
	if (!b->told_down) {
		b->told_down = true;
		b->cb->down(b->arg, err, b->why);
	} else if (b->cb->retry) {
		b->cb->retry(b->arg, err, b->why);
	}
}

static void connect_start(struct base *b)
{
	int err;

	b->why[0] = '\0';
	err = helper_start(b);
	if (err)
		attempt_failed(
		    b, base_fail(b, err, "%s: can't start a thread: %s", b->uri, strerror(-err)));
}

static void ask_fence(struct base *b)
{
	if (!b->zombie || b->fence_pending || !b->cb->fence_connection || b->state == BASE_CLOSING)
		return;
	b->fence_pending = true;
	b->cb->fence_connection(b->arg, b->zombie_connection);
}

static void helper_through(void *arg)
{
	struct base *b = arg;
	int err;

	assert(b->helper_runs);
	pthread_join(b->helper, NULL);
	b->helper_runs = false;
	err = b->helper_err;
	if (b->state == BASE_CLOSING) {
		if (!err)
			b->dropped = b->hooks->drop(b, -ECANCELED);
		kick(b);
		return;
	}
	if (!err) {
		err = b->hooks->attach(b);
		if (err && !b->hooks->drop(b, err))
			assert(!"drop with nothing under way");
	}
	if (err) {
		attempt_failed(b, err);
		return;
	}
	b->dropped = false;
	b->connection++;
	move(b, BASE_SETTLING);
	if (b->zombie)
		loop_timer_set(b->loop, &b->timer, in_ms(b, b->cfg.zombie_timeout_ms));
	ask_fence(b);
	kick(b);
}

static void timer_fired(void *arg)
{
	struct base *b = arg;

	if (b->state == BASE_SETTLING) {
		b->zombie = false;
		kick(b);
	} else if (b->state == BASE_BACKOFF) {
		move(b, BASE_CONNECTING);
		connect_start(b);
	}
}

static void go_up(struct base *b)
{
	loop_timer_clear(b->loop, &b->timer);
	move(b, BASE_UP);
	b->told_down = false;
	b->fence_pending = false;
	b->up_us = loop_now_us(b->loop);
	b->cb->up(b->arg, &b->info);
}

/* --- breaking and closing --- */

/* Ends the connection; answers all that was submitted, sooner or later. */
static void drop_all(struct base *b, int err)
{
	struct member_req *req = b->queue.head, *next;

	b->zombie = false;
	b->dropped = b->hooks->drop(b, err);
	if (b->zombie)
		b->zombie_connection = b->connection;
	list_init(&b->queue);
	for (; req; req = next) {
		next = req->next;
		base_complete(b, req, err);
	}
}

/* The first attempt comes soon; later if the member is one that connects and breaks off at once,
 * again and again. What the user of the port breaks off has a pace of its own. */
static void backoff_begin(struct base *b)
{
	bool soon = loop_now_us(b->loop) - b->up_us < b->cfg.backoff_max_ms * 1000ull;

	b->shorts = soon && b->err != -ECANCELED ? b->shorts + 1 : 0;
	b->backoff_ms = b->cfg.backoff_min_ms;
	for (uint32_t i = 1; i < b->shorts && b->backoff_ms < b->cfg.backoff_max_ms; i++)
		b->backoff_ms *= 2;
	if (b->backoff_ms > b->cfg.backoff_max_ms)
		b->backoff_ms = b->cfg.backoff_max_ms;
}

static void break_up(struct base *b)
{
	b->broken = false;
	if (b->state == BASE_UP) {
		backoff_begin(b);
		move(b, BASE_BREAKING);
		drop_all(b, b->err == -ECANCELED ? -ECANCELED : -ECONNRESET);
	} else if (b->state == BASE_SETTLING) {
		/* What was a zombie before is one still; nothing new was sent. */
		bool zombie = b->zombie;

		loop_timer_clear(b->loop, &b->timer);
		if (!b->hooks->drop(b, b->err))
			assert(!"drop with nothing under way");
		b->zombie = zombie;
		attempt_failed(b, b->err);
	}
}

static void finish_close(struct base *b)
{
	const struct member_cb *cb = b->cb;
	void *arg = b->arg;

	loop_timer_clear(b->loop, &b->timer);
	loop_timer_clear(b->loop, &b->kick);
	loop_hook_del(b->loop, &b->hook);
	loop_wake_del(b->loop, &b->handover);
	lease_guard_end(&b->guard);
	b->hooks->destroy(b);
	cb->closed(arg);
}

/* --- the end of a turn --- */

static void deliver(struct base *b)
{
	struct member_req *req = b->done.head, *next;

	list_init(&b->done);
	for (; req; req = next) {
		next = req->next;
		b->cb->done(b->arg, req, req->err);
	}
}

/* One that the lease ends. */
static bool is_write(const struct member_req *req)
{
	return (req->op == DEV_WRITE || req->op == DEV_ZEROES) && !(req->flags & DEV_F_LATE);
}

static void start_queue(struct base *b)
{
	while (b->queue.head && b->state == BASE_UP && !b->broken) {
		struct member_req *req = b->queue.head, *next = req->next;

		if (is_write(req) && base_lease_over(b))
			break;
		if (!b->hooks->start(b, req))
			break;
		/* req may be in `done` already: its next is not the queue's any more */
		list_advance(&b->queue, next);
	}
	if (b->hooks->flush && !b->dropped && b->hooks->flush(b))
		kick(b);
}

static void base_run(struct base *b)
{
	bool through;

	loop_timer_clear(b->loop, &b->kick);
	if (b->broken)
		break_up(b);
	/* Nothing can be added to `done` for what was sent once it is all back: what is delivered
	 * now is the last of it, and down() follows. */
	through = b->dropped;
	deliver(b);
	if (b->state == BASE_CLOSING) {
		if (b->dropped && !b->helper_runs && !b->done.head) {
			finish_close(b);
			return;
		}
	} else if (b->state == BASE_BREAKING && through) {
		attempt_failed(b, b->err);
		ask_fence(b);
	} else if (b->state == BASE_SETTLING && !b->zombie && !b->broken) {
		go_up(b);
	}
	start_queue(b);
	if (b->broken || b->done.head)
		kick(b);
}

static bool hook_run(void *arg)
{
	base_run(arg);
	return false;
}

static void kick_fired(void *arg)
{
	base_run(arg);
}

/* --- the port --- */

static int check(const struct base *b, const struct member_req *req)
{
	uint64_t sum = 0;
	uint32_t i;

	if (req->op == DEV_FLUSH)
		return req->bytes ? -EINVAL : 0;
	if (!req->bytes || req->bytes % b->info.min_block_bytes ||
	    req->offset_bytes % b->info.min_block_bytes || req->offset_bytes > b->info.size_bytes ||
	    req->bytes > b->info.size_bytes - req->offset_bytes)
		return -EINVAL;
	if (req->op != DEV_READ && b->info.flags & MEMBER_READ_ONLY)
		return -EROFS;
	if (req->op == DEV_ZEROES)
		return 0;
	for (i = 0; i < req->iov_count; i++)
		sum += req->iov[i].iov_len;
	return sum == req->bytes ? 0 : -EINVAL;
}

void base_submit(struct member *m, struct member_req *req)
{
	struct base *b = base_of(m);
	int err = b->state == BASE_UP ? check(b, req) : -ENOTCONN;

	memset(req->priv, 0, sizeof(req->priv));
	if (err) {
		base_complete(b, req, err);
		return;
	}
	list_add(&b->queue, req);
	kick(b);
}

void base_cancel(struct member *m)
{
	struct base *b = base_of(m);

	if (b->state != BASE_UP)
		return;
	base_broken(b, -ECANCELED, "%s: cancelled", b->uri);
	break_up(b); /* at once: the adapter is never below us on the stack */
}

void base_close(struct member *m)
{
	struct base *b = base_of(m);
	enum base_state was = b->state;

	move(b, BASE_CLOSING);
	atomic_store(&b->abandoned, true);
	loop_timer_clear(b->loop, &b->timer);
	b->broken = false;
	if (was == BASE_UP || was == BASE_SETTLING)
		drop_all(b, -ECANCELED);
	kick(b);
}

void base_lease(struct member *m, uint64_t until_us)
{
	struct base *b = base_of(m);
	int err = lease_guard_until(&b->guard, until_us);

	b->lease_us = until_us;
	if (err)
		base_broken(b, err, "%s: no timer for its lease: %s", b->uri, strerror(-err));
}

void base_fenced(struct member *m, uint64_t connection, int err)
{
	struct base *b = base_of(m);

	if (!b->fence_pending || connection != b->zombie_connection)
		return;
	b->fence_pending = false;
	if (err)
		return;
	b->zombie = false;
	kick(b);
}

int base_init(struct base *b, const struct member_ops *ops, const struct base_hooks *hooks,
	      const char *uri, struct loop *loop, const struct member_cfg *cfg,
	      const struct member_cb *cb, void *arg)
{
	int err;

	b->m.ops = ops;
	b->hooks = hooks;
	b->loop = loop;
	b->cfg = *cfg;
	b->cb = cb;
	b->arg = arg;
	snprintf(b->uri, sizeof(b->uri), "%s", uri);
	list_init(&b->queue);
	list_init(&b->done);
	b->state = BASE_CONNECTING;
	b->dropped = true;
	b->backoff_ms = cfg->backoff_min_ms;
	b->lease_us = UINT64_MAX;
	b->handover = (struct loop_wake){.woken = helper_through, .arg = b};
	b->timer = (struct loop_timer){.fired = timer_fired, .arg = b};
	b->kick = (struct loop_timer){.fired = kick_fired, .arg = b};
	b->hook = (struct loop_hook){.run = hook_run, .arg = b};
	err = loop_wake_add(loop, &b->handover);
	if (!err)
		loop_hook_add(loop, &b->hook);
	return err;
}

void base_open(struct base *b)
{
	/* Not connect_start: if there is no thread to be had, open() must not call back. */
	move(b, BASE_BACKOFF);
	loop_timer_set(b->loop, &b->timer, 0);
}
