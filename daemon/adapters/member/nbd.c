// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Members that are NBD exports, by libnbd: nbd://HOST[:PORT]/EXPORT,
 * nbd+unix:///EXPORT?socket=PATH.
 *
 * A request is cut into chunks, each one NBD command on one connection:
 *
 *   request   chunks                                          then
 *   READ      pread, at most chunk_max each                   copied into the vectors; end
 *   WRITE     pwrite, gathered from the vectors by copy       FUA without the server's: flush; end
 *   ZEROES    zero, or pwrite of zeroes if it has none        the same
 *   FLUSH     flush, on one connection                        end
 *
 *   chunk     free -> sent -> landed (libnbd's callback) -> free
 *
 * Buffers come from one arena per member of max_inflight_bytes, in pages; a request for which
 * there is no room now waits at the head of the queue. libnbd has no vectored I/O, so all data
 * is copied. That is what makes drop simple too: it closes the handles, after which libnbd holds
 * neither arena nor chunks, and answers every request at once.
 *
 * libnbd calls back with the handle locked, so the callback only notes the result and puts the
 * chunk on the `landed` list, which is worked off after the libnbd call has returned.
 *
 * Zombies (R5): a WRITE or ZEROES chunk that was sent and has no answer when the connections are
 * closed. A TCP connection is closed by a reset, which throws away what our kernel still has to
 * send; what the server's has is what fencing is for. ENOTCONN of a chunk is libnbd's word for
 * "no answer", ESHUTDOWN the server's for "not any more": both break the connection, and leave
 * the chunk without an answer.
 *
 * The loop watches a duplicate of each socket: libnbd closes its own as soon as it finds the
 * connection dead, and whoever opens one next gets that number, before we could take it out of
 * the loop.
 *
 * A FLUSH on one connection covers the others only if the server says MULTI_CONN; without it one
 * connection is used, and refused at all where other nodes write too (cfg.shared).
 *
 * Called by member_base. connect runs on the helper thread and is done with the handles before
 * attach; all else on the loop's.
 */
#include "daemon/adapters/member/base.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libnbd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NBD_PAGE_BYTES 4096u
#define NBD_CHUNK_BYTES (1u << 20) /* largest payload of one command */
#define NBD_ZERO_BYTES (32u << 20) /* largest range of one zero command */
#define NBD_MIN_BLOCK 512u         /* also where the server would take less */
#define NBD_POLL_MS 100            /* how often connect looks at base_abandoned */
#define NBD_READS_PER_TURN 64      /* replies taken before the loop goes on */
#define NBD_KEEPALIVE_S 5          /* TCP: probes on an idle connection */

/* A list of chunks: on the way (oldest first), or free. */
struct chunk {
	struct chunk *next, **pprev;
	struct export *x;
	struct conn *conn; /* NULL: free */
	struct member_req *req;
	uint64_t deadline_us;
	struct base_cursor at; /* READ: where its data goes */
	uint32_t page, pages;  /* of the arena */
	uint32_t bytes;
	bool flush;
	bool landed;
	int err;
	struct chunk *landed_next;
};

struct conn {
	struct export *x;
	struct nbd_handle *h;
	struct loop_fd watch;
	struct lease_cut cut; /* armed as long as there are writes */
	bool watched;
	bool tcp;
	uint32_t inflight; /* chunks */
	uint32_t writes;   /* of these, WRITE and ZEROES: libnbd may have some of it to send */
};

/* What a request needs while it is here; lies in its priv. */
struct job {
	uint32_t issued;  /* bytes that are in chunks */
	uint32_t pending; /* chunks */
	struct base_cursor at;
	int err;       /* the first one */
	bool started;  /* start returned true */
	bool flushing; /* the last chunk is the flush for FUA */
};
_Static_assert(sizeof(struct job) <= sizeof(((struct member_req *)0)->priv), "job fits in priv");

struct export
{
	struct base b; /* first */
	struct conn conns[MEMBER_MAX_CONNECTIONS];
	uint32_t conn_count;
	/* what the server can do */
	bool can_flush, can_fua, can_zero;
	uint32_t chunk_max; /* bytes */

	struct chunk *chunks;
	uint32_t chunk_count;
	struct chunk *free;
	struct chunk *sent, **sent_tail;
	struct chunk *landed, **landed_tail;
	struct loop_timer timeout; /* of the oldest chunk on the way */

	uint8_t *arena;
	uint64_t *used; /* a bit per page */
	uint32_t pages, page_hint;
};

static struct export *export_of(struct base *b)
{
	return (struct export *)b;
}

static struct job *job_of(struct member_req *req)
{
	return (struct job *)req->priv;
}

/* --- the arena --- */

static bool page_used(const struct export *x, uint32_t i)
{
	return x->used[i / 64] >> (i % 64) & 1;
}

static void pages_mark(struct export *x, uint32_t first, uint32_t count, bool used)
{
	uint32_t i;

	for (i = first; i < first + count; i++) {
		if (used)
			x->used[i / 64] |= 1ull << (i % 64);
		else
			x->used[i / 64] &= ~(1ull << (i % 64));
	}
}

/* The first run of `count` free pages in [from, to); UINT32_MAX: none. */
static uint32_t pages_find(const struct export *x, uint32_t from, uint32_t to, uint32_t count)
{
	uint32_t i, run = 0;

	for (i = from; i < to; i++) {
		if (i % 64 == 0 && x->used[i / 64] == UINT64_MAX) {
			run = 0;
			i += 63;
			continue;
		}
		run = page_used(x, i) ? 0 : run + 1;
		if (run == count)
			return i + 1 - count;
	}
	return UINT32_MAX;
}

static bool pages_get(struct export *x, struct chunk *c, uint32_t bytes)
{
	uint32_t count = (bytes + NBD_PAGE_BYTES - 1) / NBD_PAGE_BYTES;
	uint32_t first = pages_find(x, x->page_hint, x->pages, count);

	if (first == UINT32_MAX)
		first = pages_find(x, 0, x->pages, count);
	if (first == UINT32_MAX)
		return false;
	pages_mark(x, first, count, true);
	x->page_hint = first + count;
	c->page = first;
	c->pages = count;
	return true;
}

static uint8_t *chunk_data(const struct chunk *c)
{
	return c->x->arena + (size_t)c->page * NBD_PAGE_BYTES;
}

/* --- chunks --- */

static void chunk_put(struct chunk *c)
{
	struct export *x = c->x;

	pages_mark(x, c->page, c->pages, false);
	c->pages = 0;
	c->conn = NULL;
	c->next = x->free;
	x->free = c;
}

static void sent_add(struct export *x, struct chunk *c)
{
	c->next = NULL;
	c->pprev = x->sent_tail;
	*x->sent_tail = c;
	x->sent_tail = &c->next;
}

static void sent_del(struct export *x, struct chunk *c)
{
	*c->pprev = c->next;
	if (c->next)
		c->next->pprev = c->pprev;
	else
		x->sent_tail = c->pprev;
}

static void chunks_reset(struct export *x)
{
	uint32_t i;

	x->free = NULL;
	x->sent = NULL;
	x->sent_tail = &x->sent;
	x->landed = NULL;
	x->landed_tail = &x->landed;
	x->page_hint = 0;
	memset(x->used, 0, (size_t)(x->pages + 63) / 64 * sizeof(x->used[0]));
	for (i = 0; i < x->chunk_count; i++) {
		x->chunks[i] = (struct chunk){.x = x};
		chunk_put(&x->chunks[i]);
	}
}

/* libnbd's completion callback: the handle is locked, so only take note. */
static int chunk_landed(void *arg, int *error)
{
	struct chunk *c = arg;
	struct export *x = c->x;

	if (c->landed)
		return 1;
	c->landed = true;
	c->err = -*error;
	c->landed_next = NULL;
	*x->landed_tail = c;
	x->landed_tail = &c->landed_next;
	return 1; /* libnbd may forget the command */
}

/* --- connect, on the helper thread --- */

static void conns_close(struct export *x)
{
	struct linger reset = {.l_onoff = 1, .l_linger = 0};
	uint32_t i;

	for (i = 0; i < MEMBER_MAX_CONNECTIONS; i++) {
		struct conn *c = &x->conns[i];

		if (c->watched) {
			loop_fd_del(x->b.loop, &c->watch);
			lease_guard_remove(&x->b.guard, &c->cut);
			if (c->tcp && c->inflight)
				setsockopt(c->watch.fd, SOL_SOCKET, SO_LINGER, &reset,
					   sizeof(reset));
			close(c->watch.fd);
		}
		c->watched = false;
		if (c->h)
			nbd_close(c->h);
		c->h = NULL;
	}
}

/* The last libnbd error of this thread. */
static int export_error(struct base *b, int fallback)
{
	int err = nbd_get_errno();
	const char *text = nbd_get_error();

	return base_fail(b, err > 0 ? -err : fallback, "%s: %s", b->uri,
			 text ? text : "unknown error");
}

static uint64_t clock_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static struct nbd_handle *handle_new(void)
{
	struct nbd_handle *h = nbd_create();

	if (!h)
		return NULL;
	/* Simple replies: one header per read. Buffers needn't be cleared: a read that failed is
	 * not copied out. */
	if (nbd_set_request_structured_replies(h, false) < 0 ||
	    nbd_set_pread_initialize(h, false) < 0 ||
	    nbd_set_uri_allow_transports(h, LIBNBD_ALLOW_TRANSPORT_TCP |
						LIBNBD_ALLOW_TRANSPORT_UNIX) < 0 ||
	    nbd_set_uri_allow_tls(h, LIBNBD_TLS_DISABLE) < 0) {
		nbd_close(h);
		return NULL;
	}
	return h;
}

/* Until the handshake is through. The deadline starts after the name is resolved. */
static int handshake(struct base *b, struct nbd_handle *h)
{
	uint64_t until;

	if (nbd_aio_connect_uri(h, b->uri) < 0)
		return export_error(b, -ECONNREFUSED);
	until = clock_ms() + b->cfg.connect_timeout_ms;
	while (!nbd_aio_is_ready(h)) {
		if (base_abandoned(b))
			return -ECANCELED;
		if (clock_ms() >= until)
			return base_fail(b, -ETIMEDOUT,
					 "%s: the server accepted no connection, or didn't "
					 "answer, within %u ms",
					 b->uri, b->cfg.connect_timeout_ms);
		if (nbd_aio_is_dead(h) || nbd_aio_is_closed(h))
			return base_fail(b, -ECONNRESET,
					 "%s: the server ended the connection at once: it does not "
					 "let this node in, or can't start ('ddraid-export list' "
					 "there says who is refused, and by whom)",
					 b->uri);
		if (nbd_poll(h, NBD_POLL_MS) < 0)
			return export_error(b, -ECONNRESET);
	}
	return 0;
}

/* A dead peer is noticed on an idle connection too. */
static void tune_socket(struct conn *c)
{
	struct sockaddr_storage name;
	socklen_t bytes = sizeof(name);
	int fd = nbd_aio_get_fd(c->h), on = 1, s = NBD_KEEPALIVE_S;
	unsigned int ms = c->x->b.cfg.request_timeout_ms;

	c->tcp = getsockname(fd, (struct sockaddr *)&name, &bytes) == 0 &&
		 (name.ss_family == AF_INET || name.ss_family == AF_INET6);
	if (!c->tcp)
		return;
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &s, sizeof(s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &s, sizeof(s));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

static int conn_open(struct export *x, uint32_t i)
{
	struct conn *c = &x->conns[i];
	int err;

	*c = (struct conn){.x = x, .h = handle_new()};
	if (!c->h)
		return export_error(&x->b, -ENOMEM);
	err = handshake(&x->b, c->h);
	if (!err)
		tune_socket(c);
	return err;
}

static int check_blocks(struct export *x, struct nbd_handle *h)
{
	struct member_info *info = &x->b.info;
	int64_t min = nbd_get_block_size(h, LIBNBD_SIZE_MINIMUM);
	int64_t preferred = nbd_get_block_size(h, LIBNBD_SIZE_PREFERRED);
	int64_t max = nbd_get_block_size(h, LIBNBD_SIZE_MAXIMUM);

	if (min < NBD_MIN_BLOCK)
		min = NBD_MIN_BLOCK;
	if (max <= 0 || max > NBD_CHUNK_BYTES)
		max = NBD_CHUNK_BYTES;
	if (min > NBD_CHUNK_BYTES / 2 || max < min || min & (min - 1))
		return base_fail(&x->b, -EPROTO,
				 "%s: the server's block sizes make no sense: at least %lld, at "
				 "most %lld bytes",
				 x->b.uri, (long long)min, (long long)max);
	info->min_block_bytes = (uint32_t)min;
	info->preferred_block_bytes = preferred > 0 ? (uint32_t)preferred : 0;
	x->chunk_max = (uint32_t)(max - max % min);
	return 0;
}

static int check_flags(struct export *x, struct nbd_handle *h)
{
	struct base *b = &x->b;
	struct member_info *info = &b->info;
	bool multi = nbd_can_multi_conn(h) > 0;

	x->can_flush = nbd_can_flush(h) > 0;
	x->can_fua = nbd_can_fua(h) > 0;
	x->can_zero = nbd_can_zero(h) > 0;
	info->flags = (x->can_flush || x->can_fua ? MEMBER_FLUSH : 0) |
		      (x->can_fua ? MEMBER_FUA : 0) | (multi ? MEMBER_MULTI_CONN : 0) |
		      (x->can_zero ? MEMBER_ZEROES : 0);
	if (b->cfg.read_only) {
		info->flags |= MEMBER_READ_ONLY;
		return 0;
	}
	if (nbd_is_read_only(h) > 0)
		return base_fail(b, -EROFS, "%s: the export is read-only; export it writable",
				 b->uri);
	if (b->cfg.force)
		return 0;
	if (!x->can_flush && !x->can_fua)
		return base_fail(b, -EOPNOTSUPP,
				 "%s: the server offers neither FLUSH nor FUA, so nothing written "
				 "to it is ever known to be durable; use another server, or "
				 "set force_members",
				 b->uri);
	if (!multi && b->cfg.shared)
		return base_fail(b, -EOPNOTSUPP,
				 "%s: the server doesn't offer CAN_MULTI_CONN, so a flush of one "
				 "node may not cover another's writes; let it serve several "
				 "clients from one cache, or set "
				 "force_members",
				 b->uri);
	return 0;
}

static int check_server(struct export *x, struct nbd_handle *h)
{
	struct base *b = &x->b;
	int64_t size = nbd_get_size(h);
	int err;

	if (size < 0)
		return export_error(b, -EPROTO);
	b->info = (struct member_info){0};
	err = check_blocks(x, h);
	if (!err)
		err = check_flags(x, h);
	if (!err)
		b->info.size_bytes = (uint64_t)size - (uint64_t)size % b->info.min_block_bytes;
	return err;
}

static int export_connect(struct base *b)
{
	struct export *x = export_of(b);
	uint32_t i;
	int err = conn_open(x, 0);

	x->conn_count = 1;
	if (!err)
		err = check_server(x, x->conns[0].h);
	if (!err && (b->info.flags & MEMBER_MULTI_CONN || b->cfg.read_only))
		x->conn_count = b->cfg.connections;
	for (i = 1; i < x->conn_count && !err; i++) {
		err = conn_open(x, i);
		if (!err && nbd_get_size(x->conns[i].h) != nbd_get_size(x->conns[0].h))
			err = base_fail(b, -ESTALE, "%s: changed its size between two connections",
					b->uri);
	}
	if (err)
		conns_close(x);
	return err;
}

/* --- chunks out --- */

static uint32_t wanted_events(struct nbd_handle *h)
{
	unsigned int dir = nbd_aio_get_direction(h);

	return (dir & LIBNBD_AIO_DIRECTION_READ ? LOOP_READ : 0) |
	       (dir & LIBNBD_AIO_DIRECTION_WRITE ? LOOP_WRITE : 0);
}

/* After each call that can move the handle's state. */
static void conn_settle(struct conn *c)
{
	struct export *x = c->x;
	int err;

	if (nbd_aio_is_dead(c->h) || nbd_aio_is_closed(c->h)) {
		base_broken(&x->b, -ECONNRESET, "%s: the server ended the connection", x->b.uri);
		return;
	}
	err = loop_fd_mod(x->b.loop, &c->watch, wanted_events(c->h));
	if (err)
		base_broken(&x->b, err, "%s: can't poll its socket: %s", x->b.uri, strerror(-err));
}

static struct conn *conn_pick(struct export *x)
{
	struct conn *best = &x->conns[0];
	uint32_t i;

	for (i = 1; i < x->conn_count; i++)
		if (x->conns[i].inflight < best->inflight)
			best = &x->conns[i];
	return best;
}

static uint32_t fua_flag(const struct export *x, const struct member_req *req)
{
	/* without FLUSH everything must go through at once */
	return x->can_fua && (req->flags & DEV_F_FUA || !x->can_flush) ? LIBNBD_CMD_FLAG_FUA : 0;
}

static int64_t chunk_command(struct export *x, struct chunk *c, uint64_t offset)
{
	nbd_completion_callback cb = {.callback = chunk_landed, .user_data = c};
	struct nbd_handle *h = c->conn->h;
	uint32_t flags;

	if (c->flush)
		return nbd_aio_flush(h, cb, 0);
	if (c->req->op == DEV_READ)
		return nbd_aio_pread(h, chunk_data(c), c->bytes, offset, cb, 0);
	flags = fua_flag(x, c->req);
	if (c->req->op == DEV_WRITE)
		return nbd_aio_pwrite(h, chunk_data(c), c->bytes, offset, cb, flags);
	if (!x->can_zero)
		return nbd_aio_pwrite(h, base_zeroes, c->bytes, offset, cb, flags);
	if (!(c->req->flags & DEV_F_UNMAP))
		flags |= LIBNBD_CMD_FLAG_NO_HOLE;
	return nbd_aio_zero(h, c->bytes, offset, cb, flags);
}

/* What the lease ends: one that does no harm late may be sent before there is a lease, too. */
static bool chunk_writes(const struct chunk *c)
{
	return !c->flush && (c->req->op == DEV_WRITE || c->req->op == DEV_ZEROES) &&
	       !(c->req->flags & DEV_F_LATE);
}

/* Sends chunk c, off the free list and filled in but for these fields. */
static void chunk_send(struct export *x, struct chunk *c, uint64_t offset)
{
	uint32_t ms = x->b.cfg.request_timeout_ms;

	c->landed = false;
	c->conn = conn_pick(x);
	c->deadline_us = loop_now_us(x->b.loop) + (uint64_t)ms * 1000;
	job_of(c->req)->pending++;
	c->conn->inflight++;
	c->conn->writes += chunk_writes(c);
	sent_add(x, c);
	if (ms && !loop_timer_is_set(&x->timeout))
		loop_timer_set(x->b.loop, &x->timeout, c->deadline_us);
	if (c->conn->writes) {
		c->conn->cut.armed = 1;
		if (base_lease_over(&x->b))
			return;
	}
	if (chunk_command(x, c, offset) < 0)
		base_broken(&x->b, -ECONNRESET, "%s: %s", x->b.uri, nbd_get_error());
	else
		conn_settle(c->conn);
}

/* The request's last chunk was given back: end, or the flush that stands for FUA. */
static void job_through(struct export *x, struct member_req *req)
{
	struct job *j = job_of(req);
	bool fua = req->flags & DEV_F_FUA && (req->op == DEV_WRITE || req->op == DEV_ZEROES);

	if (!j->err && !j->flushing && fua && !x->can_fua && x->can_flush) {
		struct chunk *c = x->free;

		assert(c);
		x->free = c->next;
		j->flushing = true;
		c->req = req;
		c->bytes = 0;
		c->flush = true;
		chunk_send(x, c, 0);
		return;
	}
	base_complete(&x->b, req, j->err);
}

static uint32_t chunk_limit(const struct export *x, const struct member_req *req)
{
	if (req->op != DEV_ZEROES)
		return x->chunk_max;
	if (x->can_zero)
		return NBD_ZERO_BYTES;
	return x->chunk_max < BASE_ZERO_BYTES ? x->chunk_max : BASE_ZERO_BYTES;
}

/* One more chunk of the request; false: no room. */
static bool issue(struct export *x, struct member_req *req)
{
	struct job *j = job_of(req);
	struct chunk *c = x->free;
	uint32_t left = req->bytes - j->issued, limit = chunk_limit(x, req);
	uint64_t offset = req->offset_bytes + j->issued;

	if (!c)
		return false;
	c->bytes = left < limit ? left : limit;
	if (req->op != DEV_ZEROES && req->op != DEV_FLUSH && !pages_get(x, c, c->bytes))
		return false;
	x->free = c->next;
	c->req = req;
	c->flush = req->op == DEV_FLUSH;
	c->at = j->at;
	if (req->op == DEV_WRITE)
		base_gather(req, &j->at, chunk_data(c), c->bytes);
	else if (req->op == DEV_READ)
		base_skip(req, &j->at, c->bytes);
	j->issued += c->bytes;
	chunk_send(x, c, offset);
	return true;
}

static bool export_start(struct base *b, struct member_req *req)
{
	struct export *x = export_of(b);
	struct job *j = job_of(req);

	if (req->op == DEV_FLUSH && !x->can_flush) { /* all was written with FUA, or forced */
		base_complete(b, req, 0);
		return true;
	}
	do {
		if (!j->err && !issue(x, req))
			return false;
	} while (!j->err && !b->broken && j->issued < req->bytes);
	if (b->broken && j->issued < req->bytes)
		return false;
	j->started = true;
	if (!j->pending)
		job_through(x, req);
	return true;
}

/* --- chunks in --- */

static void chunk_done(struct export *x, struct chunk *c)
{
	struct member_req *req = c->req;
	struct job *j = job_of(req);

	sent_del(x, c);
	c->conn->inflight--;
	c->conn->writes -= chunk_writes(c);
	if (!c->conn->writes)
		c->conn->cut.armed = 0;
	j->pending--;
	if (c->err && !j->err)
		j->err = c->err;
	if (!c->err && req->op == DEV_READ)
		base_scatter(req, &c->at, chunk_data(c), c->bytes);
	chunk_put(c);
	if (!j->pending && j->started)
		job_through(x, req);
}

static void work_off_landed(struct export *x)
{
	while (x->landed) {
		struct chunk *c = x->landed;

		x->landed = c->landed_next;
		if (!x->landed)
			x->landed_tail = &x->landed;
		if (c->err == -ENOTCONN || c->err == -ESHUTDOWN)
			base_broken(&x->b, c->err == -ENOTCONN ? -ECONNRESET : c->err, "%s: %s",
				    x->b.uri,
				    c->err == -ENOTCONN ? "the server ended the connection"
							: "the server is shutting down");
		else
			chunk_done(x, c);
	}
}

/* Is there something to read? libnbd must not be told so when there isn't: it then waits for a
 * reply and forgets, until one comes, a command that it has sent half (seen with 1.14). */
static bool conn_readable(const struct conn *c)
{
	char byte;

	return recv(c->watch.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

static void conn_ready(void *arg, uint32_t events)
{
	struct conn *c = arg;
	struct export *x = c->x;
	bool readable = events & LOOP_READ;
	int i, r = 0;

	/* Also to take a reply makes libnbd send what it has waiting. */
	if (c->writes && base_lease_over(&x->b))
		return;
	for (i = 0; readable && i < NBD_READS_PER_TURN && r >= 0; i++) {
		r = nbd_aio_notify_read(c->h);
		readable = nbd_aio_in_flight(c->h) > 0 && conn_readable(c);
	}
	if (r >= 0 && events & LOOP_WRITE && wanted_events(c->h) & LOOP_WRITE)
		r = nbd_aio_notify_write(c->h);
	if (r < 0)
		base_broken(&x->b, -ECONNRESET, "%s: %s", x->b.uri, nbd_get_error());
	work_off_landed(x);
	if (!x->b.broken)
		conn_settle(c);
}

static void timed_out(void *arg)
{
	struct export *x = arg;

	if (!x->sent)
		return;
	if (x->sent->deadline_us > loop_now_us(x->b.loop)) {
		loop_timer_set(x->b.loop, &x->timeout, x->sent->deadline_us);
		return;
	}
	base_broken(&x->b, -ETIMEDOUT, "%s: a request was not answered within %u ms", x->b.uri,
		    x->b.cfg.request_timeout_ms);
}

/* --- attach and drop --- */

static int export_attach(struct base *b)
{
	struct export *x = export_of(b);
	uint32_t i;

	for (i = 0; i < x->conn_count; i++) {
		struct conn *c = &x->conns[i];
		int err, fd = fcntl(nbd_aio_get_fd(c->h), F_DUPFD_CLOEXEC, 0);

		c->watch = (struct loop_fd){.fd = fd, .ready = conn_ready, .arg = c};
		err = fd < 0 ? -errno : loop_fd_add(b->loop, &c->watch, wanted_events(c->h));
		if (err && fd >= 0)
			close(fd);
		if (err)
			return base_fail(b, err, "%s: can't poll its socket: %s", b->uri,
					 strerror(-err));
		c->watched = true;
		c->cut.fd = fd;
		lease_guard_add(&b->guard, &c->cut);
	}
	return 0;
}

static bool export_drop(struct base *b, int err)
{
	struct export *x = export_of(b);
	struct chunk *c, *next;

	loop_timer_clear(b->loop, &x->timeout);
	conns_close(x);
	for (c = x->sent; c; c = next) {
		struct job *j = job_of(c->req);

		next = c->next;
		if ((c->req->op == DEV_WRITE || c->req->op == DEV_ZEROES) &&
		    !(c->req->flags & DEV_F_LATE))
			b->zombie = true;
		if (--j->pending == 0 && j->started)
			base_complete(b, c->req, err);
	}
	chunks_reset(x);
	return true;
}

static void export_destroy(struct base *b)
{
	struct export *x = export_of(b);

	conns_close(x);
	free(x->arena);
	free(x->used);
	free(x->chunks);
	free(x);
}

static const struct base_hooks export_hooks = {
    .connect = export_connect,
    .attach = export_attach,
    .start = export_start,
    .drop = export_drop,
    .destroy = export_destroy,
};

static const struct member_ops nbd_ops;

static bool export_alloc(struct export *x, uint32_t arena_bytes)
{
	void *arena;

	x->pages = arena_bytes / NBD_PAGE_BYTES;
	x->chunk_count = arena_bytes / MEMBER_MIN_CHARGE_BYTES;
	x->used = calloc((x->pages + 63) / 64, sizeof(x->used[0]));
	x->chunks = calloc(x->chunk_count, sizeof(x->chunks[0]));
	if (posix_memalign(&arena, NBD_PAGE_BYTES, (size_t)x->pages * NBD_PAGE_BYTES))
		arena = NULL;
	x->arena = arena;
	return x->used && x->chunks && x->arena;
}

static int nbd_open(const char *uri, struct loop *loop, const struct member_cfg *cfg,
		    const struct member_cb *cb, void *arg, struct member **m, const char **why)
{
	struct export *x = calloc(1, sizeof(*x));
	int err = -ENOMEM;

	*why = "member: out of memory or descriptors";
	if (!x)
		return -ENOMEM;
	x->timeout = (struct loop_timer){.fired = timed_out, .arg = x};
	if (export_alloc(x, cfg->max_inflight_bytes)) {
		chunks_reset(x);
		err = base_init(&x->b, &nbd_ops, &export_hooks, uri, loop, cfg, cb, arg);
	}
	if (err) {
		export_destroy(&x->b);
		return err;
	}
	*why = NULL;
	*m = &x->b.m;
	base_open(&x->b);
	return 0;
}

static const char *const nbd_schemes[] = {"nbd", "nbd+unix", NULL};

static const struct member_ops nbd_ops = {
    .schemes = nbd_schemes,
    .open = nbd_open,
    .submit = base_submit,
    .cancel = base_cancel,
    .close = base_close,
    .lease = base_lease,
    .fenced = base_fenced,
};
MEMBER_ADAPTER(nbd_ops);
