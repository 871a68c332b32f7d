// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The NBD server with its clients: connections, memory, requests that are answered in any order,
 * sockets that take and give as much as they like. An input is a script: clients come, send bytes
 * or requests, stop reading, go; the sink answers, fails, or is reset. Sockets and time are fakes.
 *
 * Beyond memory errors and asserts: the sink gets whole blocks within the export, in buffers that
 * are aligned and there; at the end nothing is held.
 */
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "daemon/adapters/front/nbd/listen.h"
#include "daemon/ports/front.h"
#include "tests/fuzz/fuzz.h"

#define CLIENTS 6
#define EVENTS_MAX 3000
#define FD 1000

static struct fuzz_in in;

/* ---- sockets -------------------------------------------------------------------------------- */

/* What a client has sent and the server has not read: bytes, then so many that count for nothing.
 */
struct piece {
	uint8_t bytes[32];
	uint32_t count, fill;
};

#define PIECES 256
static struct sock {
	bool open, accepted, ended;
	struct loop_fd *watch;
	uint32_t mask;
	struct piece piece[PIECES];
	uint32_t first, count;
	uint32_t cut;  /* bytes that one read gives at most; 0: all */
	uint32_t room; /* bytes that one write takes at most; 0: none */
	int write_err;
} sock[CLIENTS];
static unsigned waiting; /* connections that are not accepted yet */

static struct sock *sock_of(int fd)
{
	assert(fd >= FD && fd < FD + CLIENTS && sock[fd - FD].open);
	return &sock[fd - FD];
}

int fuzz_close(int fd)
{
	sock_of(fd)->open = false;
	return 0;
}

static size_t take_some(struct sock *s, uint8_t *to, size_t room)
{
	size_t n = 0;

	while (s->count && n < room) {
		struct piece *p = &s->piece[s->first];
		size_t k = p->count ? p->count : p->fill;

		if (k > room - n)
			k = room - n;
		if (p->count) {
			memcpy(to + n, p->bytes, k);
			p->count -= (uint32_t)k;
			memmove(p->bytes, p->bytes + k, p->count);
		} else {
			memset(to + n, 'f', k);
			p->fill -= (uint32_t)k;
		}
		n += k;
		if (!p->count && !p->fill) {
			s->first = (s->first + 1) % PIECES;
			s->count--;
		}
	}
	return n;
}

ssize_t fuzz_readv(int fd, const struct iovec *iov, int count)
{
	struct sock *s = sock_of(fd);
	size_t left = s->cut ? s->cut : SIZE_MAX, got = 0;

	if (!s->count) {
		errno = EAGAIN;
		return s->ended ? 0 : -1;
	}
	for (int i = 0; i < count && left; i++) {
		size_t want = iov[i].iov_len < left ? iov[i].iov_len : left;
		size_t n = take_some(s, iov[i].iov_base, want);

		got += n;
		left -= n;
		if (n < want)
			break;
	}
	return (ssize_t)got;
}

ssize_t fuzz_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct sock *s = sock_of(fd);
	size_t n = 0;

	(void)flags;
	for (size_t i = 0; i < msg->msg_iovlen; i++) {
		const volatile uint8_t *p = msg->msg_iov[i].iov_base;

		assert(msg->msg_iov[i].iov_len);
		(void)p[0]; /* it is there */
		(void)p[msg->msg_iov[i].iov_len - 1];
		n += msg->msg_iov[i].iov_len;
	}
	errno = s->write_err ? s->write_err : EAGAIN;
	if (s->write_err || !s->room)
		return -1;
	return (ssize_t)(n < s->room ? n : s->room);
}

ssize_t fuzz_send(int fd, const void *data, size_t bytes, int flags)
{
	struct iovec iov = {(void *)(uintptr_t)data, bytes};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	return fuzz_sendmsg(fd, &msg, flags);
}

int nbd_listen_open(const char *address, mode_t mode, gid_t group, struct nbd_listen *l, char *why)
{
	(void)address, (void)mode, (void)group, (void)why;
	memset(l, 0, sizeof(*l));
	l->fd = l->before = -1;
	return 0;
}

int nbd_listen_again(struct nbd_listen *l, char *why)
{
	(void)l;
	why[0] = '\0';
	return -EALREADY;
}

void nbd_listen_close(struct nbd_listen *l)
{
	(void)l;
}

int nbd_listen_accept(struct nbd_listen *l, char *peer, size_t peer_bytes)
{
	(void)l;
	for (int i = 0; waiting && i < CLIENTS; i++) {
		if (sock[i].open)
			continue;
		memset(&sock[i], 0, sizeof(sock[i]));
		sock[i].open = sock[i].accepted = true;
		sock[i].room = UINT32_MAX;
		waiting--;
		snprintf(peer, peer_bytes, "pid %d", i);
		return FD + i;
	}
	return -EAGAIN;
}

/* ---- the loop ------------------------------------------------------------------------------- */

static uint64_t now_us;
static struct loop_hook *hook;
static struct loop_timer *timer;
static struct loop_fd *listening;
static uint32_t listening_mask;

uint64_t loop_now_us(const struct loop *l)
{
	(void)l;
	return now_us;
}

int loop_fd_add(struct loop *l, struct loop_fd *w, uint32_t mask)
{
	if (w->fd < 0) {
		listening = w;
		listening_mask = mask;
		return 0;
	}
	sock_of(w->fd)->watch = w;
	return loop_fd_mod(l, w, mask);
}

int loop_fd_mod(struct loop *l, struct loop_fd *w, uint32_t mask)
{
	(void)l;
	if (w->fd < 0)
		listening_mask = mask;
	else
		sock_of(w->fd)->mask = mask;
	return 0;
}

void loop_fd_del(struct loop *l, struct loop_fd *w)
{
	(void)l;
	if (w->fd >= 0)
		sock_of(w->fd)->watch = NULL;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t deadline_us)
{
	(void)l;
	timer = t;
	t->deadline_us = deadline_us;
	t->pprev = &t->next;
}

void loop_timer_clear(struct loop *l, struct loop_timer *t)
{
	(void)l;
	timer = NULL;
	t->pprev = NULL;
}

void loop_hook_add(struct loop *l, struct loop_hook *h)
{
	(void)l;
	hook = h;
}

void loop_hook_del(struct loop *l, struct loop_hook *h)
{
	(void)l, (void)h;
	hook = NULL;
}

static void turn_end(void)
{
	for (int i = 0; hook->run(hook->arg); i++)
		assert(i < 100000);
}

static void ready(struct sock *s)
{
	uint32_t events = 0;

	if (!s->open || !s->watch)
		return;
	if (s->count || s->ended)
		events |= s->mask & LOOP_READ;
	if (s->room || s->write_err)
		events |= s->mask & LOOP_WRITE;
	if (events)
		s->watch->ready(s->watch->arg, events);
	turn_end();
}

static void pass(uint64_t us)
{
	now_us += us;
	if (timer && timer->deadline_us <= now_us) {
		struct loop_timer *t = timer;

		timer = NULL;
		t->pprev = NULL;
		t->fired(t->arg);
	}
	turn_end();
}

/* ---- the sink ------------------------------------------------------------------------------- */

#define SUBMITTED_MAX (CLIENTS * 64 + 64)

static const struct front_export ex = {.name = "tank",
				       .description = "fuzzed",
				       .size_bytes = UINT64_C(1) << 34,
				       .block_bytes = 8192,
				       .preferred_bytes = 65536};
static struct front *front;
static struct front_req submitted[SUBMITTED_MAX];
static uint32_t submitted_count;
static uint8_t at_once; /* answers so many of the next at once */

static void submit(void *arg, const struct front_req *r)
{
	(void)arg;
	assert(r->op < FRONT_OPS && r->tag >> 56 == 7);
	if (r->op == FRONT_FLUSH) {
		assert(!r->offset && !r->bytes && !r->data);
	} else {
		assert(r->bytes && r->bytes <= DDR_MAX_FRONT_IO_BYTES);
		assert(r->offset % ex.block_bytes == 0 && r->bytes % ex.block_bytes == 0);
		assert(r->offset < ex.size_bytes && r->bytes <= ex.size_bytes - r->offset);
	}
	if (r->op == FRONT_READ || r->op == FRONT_WRITE) {
		volatile uint8_t *p = r->data;

		assert(p && (uintptr_t)p % DDR_BLOCK_BYTES == 0);
		p[r->bytes - 1] = p[0];
	}
	if (at_once) {
		at_once--;
		front_complete(front, r->tag, 0);
		return;
	}
	assert(submitted_count < SUBMITTED_MAX);
	submitted[submitted_count++] = *r;
}

static void complete(uint8_t which, int err)
{
	struct front_req r;

	if (!submitted_count)
		return;
	which = (uint8_t)(which % submitted_count);
	r = submitted[which];
	submitted[which] = submitted[--submitted_count];
	front_complete(front, r.tag, err);
	turn_end();
}

static void log_line(void *arg, int priority, const char *text)
{
	(void)arg, (void)priority;
	assert(text[0] && !strchr(text, '\n'));
}

/* ---- the script ----------------------------------------------------------------------------- */

static void push(struct sock *s, const void *bytes, uint32_t count, uint32_t fill)
{
	struct piece *p = &s->piece[(s->first + s->count) % PIECES];

	if (!s->open || s->count == PIECES)
		return;
	assert(count <= sizeof(p->bytes));
	if (count)
		memcpy(p->bytes, bytes, count);
	p->count = count;
	p->fill = fill;
	s->count += count || fill;
}

static void push_be(uint8_t **at, uint64_t v, int bytes)
{
	while (bytes--)
		*(*at)++ = (uint8_t)(v >> (8 * bytes));
}

/* A request that is mostly right. */
static void push_request(struct sock *s)
{
	uint8_t b[28], *at = b, how = fuzz_u8(&in), size = fuzz_u8(&in);
	uint32_t bytes = (uint32_t)(1 + (size & 15)) << (13 + (size >> 4) % 3);
	uint16_t type = how & 7;

	push_be(&at, 0x25609513, 4);
	push_be(&at, how >> 3 & 3 ? how >> 3 & 3 : 0, 2); /* FUA, no hole */
	push_be(&at, type, 2);
	push_be(&at, ((uint64_t)how << 8) | size, 8);
	push_be(&at, how & 128 ? fuzz_u64(&in) : (uint64_t)fuzz_u8(&in) << 16, 8);
	push_be(&at, type == 3 || type == 2 ? 0 : how & 64 ? fuzz_u32(&in) : bytes, 4);
	push(s, b, sizeof(b), 0);
	if (type == 1)
		push(s, NULL, 0, how & 64 ? bytes / 2 : bytes);
}

static void greet(struct sock *s)
{
	push(s, "\0\0\0\3IHAVEOPT\0\0\0\7\0\0\0\6", 20, 0);
	push(s, "\0\0\0\0\0\0", 6, 0);
	ready(s);
	ready(s);
}

static void event(uint8_t what)
{
	struct sock *s = &sock[(what >> 4) % CLIENTS];
	char why[FRONT_WHY_BYTES];
	const uint8_t *at;
	size_t n;

	switch (what & 15) {
	case 0:
		waiting++;
		if (listening && listening_mask & LOOP_READ)
			listening->ready(listening->arg, LOOP_READ);
		turn_end();
		break;
	case 1:
		greet(s);
		break;
	case 2:
	case 3:
		push_request(s);
		ready(s);
		break;
	case 4:
		at = fuzz_take(&in, fuzz_u8(&in) & 31, &n);
		push(s, at, (uint32_t)n, 0);
		break;
	case 5:
		ready(s);
		break;
	case 6:
	case 7:
		complete(fuzz_u8(&in), what & 1 ? -EIO : 0);
		break;
	case 8:
		s->cut = fuzz_u8(&in);
		break;
	case 9:
		s->room = what & 128 ? UINT32_MAX : fuzz_u8(&in);
		break;
	case 10:
		s->ended = true;
		ready(s);
		break;
	case 11:
		s->write_err = EPIPE;
		ready(s);
		break;
	case 12:
		pass(what & 128 ? 70000000 : 1100000);
		break;
	case 13:
		at_once = fuzz_u8(&in) & 15;
		break;
	case 14:
		push_request(s); /* and not looked at yet */
		break;
	default:
		if (what & 128)
			front_hold(front);
		else if (what & 64)
			front_reset(front);
		else if (!listening_mask)
			(void)front_serve(front, &ex, why);
		turn_end();
	}
}

static void finish(void)
{
	struct front_stats st;

	front_reset(front);
	turn_end();
	at_once = 0;
	while (submitted_count)
		complete(0, 0);
	turn_end();
	front_stats(front, &st);
	assert(!st.clients && !st.inflight && !st.buffer_bytes);
	for (int i = 0; i < CLIENTS; i++)
		assert(!sock[i].open);
	front_close(front);
	assert(!hook && !timer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct front_cfg cfg = {
	    .sink = {.submit = submit, .log = log_line}, .id = 7, .listen = {"unix:/x"}};
	char why[FRONT_WHY_BYTES];
	int err;

	in = (struct fuzz_in){data, bytes};
	memset(sock, 0, sizeof(sock));
	waiting = 0;
	now_us = 1000000;
	submitted_count = at_once = 0;
	timer = NULL;
	listening_mask = 0;
	err = front_find("nbd")->open(&cfg, &front, why);
	assert(!err);
	err = front_serve(front, &ex, why);
	assert(!err);
	for (int i = 0; i < EVENTS_MAX && in.left; i++)
		event(fuzz_u8(&in));
	finish();
	return 0;
}
