// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * One NBD connection between its socket and the sink. client.h has the states and bounds.
 *
 * In: one readv per turn takes what is there, the rest of a payload straight into its aligned
 * buffer, what follows into c->rx, from where the protocol machine eats. So small requests come
 * many per system call, and of a long payload at most NBD_RX_BYTES are copied.
 *
 * Out: replies wait in a list until the end of the turn, then go out by one sendmsg, data straight
 * from the request's buffer.
 *
 * A client's input is left alone while it is "blocked": by its own unsent replies (all request
 * slots taken), or by memory. So whoever doesn't read its replies stalls itself only.
 *
 * Called by front.c and by the loop. It must not free a client outside nbd_clients_attend and
 * nbd_client_free, and must not touch a request's buffer while it is at the sink.
 */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <syslog.h>
#include <unistd.h>

#include "daemon/adapters/front/nbd/client.h"

#define SEND_IOV 64 /* pieces of one sendmsg: replies have two each */

_Static_assert(DDR_MAX_FRONT_IO_BYTES <= NBD_CLIENT_BYTES, "one request must fit");
_Static_assert(DDR_MAX_FRONT_IO_BYTES <= NBD_POOL_BYTES, "one request must fit");

/* --- lists of clients --- */

static void queue_init(struct nbd_queue *q)
{
	q->first = NULL;
	q->last = &q->first;
}

static void attend(struct nbd_client *c)
{
	struct nbd_queue *q = &c->s->attention;

	if (c->attended)
		return;
	c->attended = true;
	c->attention_next = NULL;
	*q->last = c;
	q->last = &c->attention_next;
}

static void wait_for_memory(struct nbd_client *c)
{
	struct nbd_queue *q = &c->s->waiters;

	if (c->waiting)
		return;
	c->waiting = true;
	c->wait_next = NULL;
	*q->last = c;
	q->last = &c->wait_next;
}

static void wait_no_more(struct nbd_client *c)
{
	struct nbd_queue *q = &c->s->waiters;
	struct nbd_client **at = &q->first;

	if (!c->waiting)
		return;
	while (*at != c)
		at = &(*at)->wait_next;
	*at = c->wait_next;
	if (q->last == &c->wait_next)
		q->last = at;
	c->waiting = false;
	if (q->first)
		attend(q->first); /* its turn now */
}

void nbd_shared_init(struct nbd_shared *s, const struct front_cfg *cfg)
{
	memset(s, 0, sizeof(*s));
	s->loop = cfg->loop;
	s->sink = cfg->sink;
	s->id = cfg->id;
	queue_init(&s->waiters);
	queue_init(&s->attention);
}

void nbd_log(struct nbd_shared *s, const struct nbd_client *c, int priority, const char *fmt, ...)
{
	char text[FRONT_WHY_BYTES], line[FRONT_WHY_BYTES + 96];
	uint64_t now_us = loop_now_us(s->loop);
	va_list ap;

	if (!s->sink.log)
		return;
	if (now_us - s->log_since_us > (uint64_t)NBD_LOG_PERIOD_MS * 1000) {
		if (s->log_suppressed) {
			snprintf(line, sizeof(line), "nbd: %u more messages were left out",
				 s->log_suppressed);
			s->sink.log(s->sink.arg, LOG_NOTICE, line);
		}
		s->log_since_us = now_us;
		s->log_lines = s->log_suppressed = 0;
	}
	if (s->log_lines >= NBD_LOG_BURST) {
		s->log_suppressed++;
		return;
	}
	s->log_lines++;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(line, sizeof(line), "nbd%s%s: %s", c ? " client " : "", c ? c->name : "", text);
	s->sink.log(s->sink.arg, priority, line);
}

/* --- memory --- */

static uint64_t pool_share(uint64_t held_bytes)
{
	return held_bytes > NBD_CLIENT_OWN_BYTES ? held_bytes - NBD_CLIENT_OWN_BYTES : 0;
}

/* False: not now; the client is looked after again when there may be room. */
static bool memory_take(struct nbd_client *c, uint32_t bytes)
{
	struct nbd_shared *s = c->s;
	uint64_t more = pool_share(c->held_bytes + bytes) - pool_share(c->held_bytes);

	if (c->held_bytes + bytes > NBD_CLIENT_BYTES)
		return false; /* its own requests will make room */
	if (more) {
		if ((s->waiters.first && s->waiters.first != c) ||
		    s->pool_used + more > NBD_POOL_BYTES) {
			wait_for_memory(c);
			return false;
		}
		s->pool_used += more;
	}
	c->held_bytes += bytes;
	s->stats.buffer_bytes += bytes;
	wait_no_more(c);
	return true;
}

static void memory_give(struct nbd_client *c, uint32_t bytes)
{
	struct nbd_shared *s = c->s;
	uint64_t less = pool_share(c->held_bytes) - pool_share(c->held_bytes - bytes);

	c->held_bytes -= bytes;
	s->stats.buffer_bytes -= bytes;
	s->pool_used -= less;
	if (less && s->waiters.first)
		attend(s->waiters.first);
}

/* --- buffers --- */

/* The class of a buffer, and what it takes; NBD_CACHE_CLASSES: too large to be kept. */
static unsigned buffer_class(uint32_t bytes, uint32_t *room_bytes)
{
	unsigned class = 0;

	while (class < NBD_CACHE_CLASSES && (uint32_t)DDR_BLOCK_BYTES << class < bytes)
		class ++;
	*room_bytes = class < NBD_CACHE_CLASSES ? (uint32_t)DDR_BLOCK_BYTES << class : bytes;
	return class;
}

static void *buffer_new(struct nbd_shared *s, uint32_t bytes)
{
	uint32_t room_bytes;
	unsigned class = buffer_class(bytes, &room_bytes);
	void *data;

	if (class < NBD_CACHE_CLASSES && s->spare[class]) {
		struct nbd_spare *spare = s->spare[class];

		s->spare[class] = spare->next;
		s->spare_bytes -= room_bytes;
		return spare;
	}
	return posix_memalign(&data, DDR_BLOCK_BYTES, room_bytes) ? NULL : data;
}

static void buffer_free(struct nbd_shared *s, void *data, uint32_t bytes)
{
	uint32_t room_bytes;
	unsigned class = buffer_class(bytes, &room_bytes);
	struct nbd_spare *spare = data;

	if (class == NBD_CACHE_CLASSES || s->spare_bytes + room_bytes > NBD_CACHE_BYTES) {
		free(data);
		return;
	}
	spare->next = s->spare[class];
	s->spare[class] = spare;
	s->spare_bytes += room_bytes;
}

void nbd_shared_fini(struct nbd_shared *s)
{
	for (unsigned class = 0; class < NBD_CACHE_CLASSES; class ++) {
		while (s->spare[class]) {
			struct nbd_spare *spare = s->spare[class];

			s->spare[class] = spare->next;
			free(spare);
		}
	}
}

/* --- requests --- */

static struct nbd_io *io_new(struct nbd_client *c)
{
	struct nbd_io *io = c->free_ios;

	c->free_ios = io->next;
	io->next = NULL;
	io->generation = c->s->next_generation++;
	io->req = c->proto.req;
	io->done_bytes = 0;
	io->piece_bytes = 0;
	return io;
}

static void io_drop_data(struct nbd_client *c, struct nbd_io *io)
{
	if (!io->data)
		return;
	buffer_free(c->s, io->data, io->data_bytes);
	io->data = NULL;
	memory_give(c, io->room_bytes);
	io->data_bytes = io->room_bytes = 0;
}

static void io_free(struct nbd_client *c, struct nbd_io *io)
{
	assert(io->state != NBD_IO_AT_SINK);
	io_drop_data(c, io);
	io->state = NBD_IO_FREE;
	io->next = c->free_ios;
	c->free_ios = io;
}

static void io_reply(struct nbd_client *c, struct nbd_io *io, int err)
{
	nbd_reply_encode(io->header, io->req.cookie, err);
	if (err || io->req.op != FRONT_READ)
		io_drop_data(c, io);
	io->state = NBD_IO_REPLY;
	io->next = NULL;
	if (!c->replies)
		c->progress_us = loop_now_us(c->s->loop);
	*c->replies_last = io;
	c->replies_last = &io->next;
	attend(c);
}

static uint64_t io_tag(const struct nbd_client *c, const struct nbd_io *io)
{
	return (uint64_t)c->s->id << 56 | (uint64_t)c->index << 40 | (uint64_t)io->index << 32 |
	       io->generation;
}

/* A ZEROES may be longer than the sink takes at once: then it goes piece by piece. */
static void io_submit(struct nbd_client *c, struct nbd_io *io)
{
	uint32_t left = io->req.bytes - io->done_bytes;
	struct front_req req = {
	    .tag = io_tag(c, io),
	    .op = io->req.op,
	    .flags = io->req.flags,
	    .offset = io->req.offset + io->done_bytes,
	    .bytes = left < DDR_MAX_FRONT_IO_BYTES ? left : DDR_MAX_FRONT_IO_BYTES,
	    .data = io->data,
	};

	io->piece_bytes = req.bytes;
	io->state = NBD_IO_AT_SINK;
	c->at_sink++;
	c->s->stats.inflight++;
	c->s->submitted = true;
	c->s->sink.submit(c->s->sink.arg, &req);
}

void nbd_client_complete(struct nbd_client *c, uint8_t slot, uint32_t generation, int err)
{
	struct nbd_io *io = &c->ios[slot];

	assert(slot < NBD_CLIENT_REQS && io->generation == generation);
	assert(io->state == NBD_IO_AT_SINK && c->at_sink > 0);
	c->at_sink--;
	c->s->stats.inflight--;
	io->done_bytes += io->piece_bytes;
	if (err)
		c->s->stats.failed++;
	if (c->state == NBD_C_CLOSED || (c->held && (err || io->done_bytes < io->req.bytes))) {
		io->state = NBD_IO_FREE;
		io_free(c, io);
		attend(c);
	} else if (!err && io->done_bytes < io->req.bytes) {
		io->state = NBD_IO_AGAIN;
		io->next = c->again;
		c->again = io;
		attend(c);
	} else {
		io_reply(c, io, err);
	}
}

/* --- the end of a connection --- */

static void free_list(struct nbd_client *c, struct nbd_io **list)
{
	while (*list) {
		struct nbd_io *io = *list;

		*list = io->next;
		io_free(c, io);
	}
}

static void client_close(struct nbd_client *c)
{
	if (c->state == NBD_C_CLOSED)
		return;
	c->state = NBD_C_CLOSED;
	loop_fd_del(c->s->loop, &c->watch);
	close(c->watch.fd);
	c->watch.fd = -1;
	free_list(c, &c->replies);
	c->replies_last = &c->replies;
	free_list(c, &c->again);
	free_list(c, &c->filling);
	wait_no_more(c);
	c->s->stats.clients--;
	attend(c);
}

void nbd_client_drain(struct nbd_client *c)
{
	if (c->state != NBD_C_OPEN)
		return;
	c->state = NBD_C_DRAINING;
	c->blocked = NBD_B_NOT;
	c->progress_us = loop_now_us(c->s->loop);
	free_list(c, &c->filling);
	wait_no_more(c);
	attend(c);
}

void nbd_client_hold(struct nbd_client *c)
{
	if (c->state == NBD_C_CLOSED)
		return;
	c->held = true;
	free_list(c, &c->again);
	nbd_client_drain(c);
}

static void client_violation(struct nbd_client *c)
{
	nbd_log(c->s, c, LOG_WARNING, "closed after %s", c->proto.why);
	c->s->stats.violations++;
	client_close(c);
}

/* --- output --- */

static bool has_output(const struct nbd_client *c)
{
	size_t bytes;

	nbd_proto_output(&c->proto, &bytes);
	return bytes || c->replies;
}

static size_t reply_bytes(const struct nbd_io *io)
{
	return NBD_REPLY_BYTES + (io->data ? io->data_bytes : 0);
}

static int gather(const struct nbd_client *c, struct iovec *iov)
{
	size_t skip = c->sent, bytes;
	const uint8_t *out = nbd_proto_output(&c->proto, &bytes);
	int n = 0;

	if (bytes)
		iov[n++] = (struct iovec){(void *)out, bytes};
	for (struct nbd_io *io = c->replies; io && n <= SEND_IOV - 2; io = io->next) {
		if (skip < NBD_REPLY_BYTES) {
			iov[n++] = (struct iovec){io->header + skip, NBD_REPLY_BYTES - skip};
			skip = 0;
		} else {
			skip -= NBD_REPLY_BYTES;
		}
		if (io->data)
			iov[n++] =
			    (struct iovec){(uint8_t *)io->data + skip, io->data_bytes - skip};
		skip = 0;
	}
	return n;
}

static void sent(struct nbd_client *c, size_t bytes)
{
	size_t out_bytes;

	nbd_proto_output(&c->proto, &out_bytes);
	if (out_bytes) {
		size_t n = bytes < out_bytes ? bytes : out_bytes;

		nbd_proto_sent(&c->proto, n);
		bytes -= n;
	}
	c->sent += bytes;
	while (c->replies && c->sent >= reply_bytes(c->replies)) {
		struct nbd_io *io = c->replies;

		c->sent -= reply_bytes(io);
		c->replies = io->next;
		if (!c->replies)
			c->replies_last = &c->replies;
		io_free(c, io);
	}
}

/* Sends until nothing is left or the client takes no more. Bounded by NBD_CLIENT_REQS. */
static void client_send(struct nbd_client *c)
{
	while (c->state != NBD_C_CLOSED && has_output(c)) {
		struct iovec iov[SEND_IOV];
		struct msghdr msg = {.msg_iov = iov};
		ssize_t n;

		msg.msg_iovlen = (size_t)gather(c, iov);
		n = sendmsg(c->watch.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			if (errno != EAGAIN)
				client_close(c);
			return;
		}
		c->progress_us = loop_now_us(c->s->loop);
		sent(c, (size_t)n);
	}
}

/* --- input --- */

/* Gets room for the request that the machine holds, and lets it in. False: blocked or closed. */
static bool request_begin(struct nbd_client *c)
{
	const struct nbd_request *r = &c->proto.req;
	bool with_data = r->op == FRONT_READ || r->op == FRONT_WRITE;
	uint32_t room_bytes = 0;
	void *data = NULL;
	struct nbd_io *io;

	if (with_data) {
		buffer_class(r->bytes, &room_bytes);
		if (!memory_take(c, room_bytes)) {
			c->blocked = NBD_B_MEMORY;
			return false;
		}
		data = buffer_new(c->s, r->bytes);
		if (!data) {
			memory_give(c, room_bytes);
			nbd_log(c->s, c, LOG_ERR, "closed because memory is short");
			client_close(c);
			return false;
		}
	}
	io = io_new(c);
	io->data = data;
	io->data_bytes = with_data ? r->bytes : 0;
	io->room_bytes = room_bytes;
	c->requests++;
	c->s->stats.requests[r->op]++;
	if (r->op == FRONT_READ)
		c->s->stats.read_bytes += r->bytes;
	else if (r->op == FRONT_WRITE)
		c->s->stats.write_bytes += r->bytes;
	nbd_proto_accept(&c->proto, r->op == FRONT_WRITE ? data : NULL);
	if (io->req.op == FRONT_WRITE) {
		io->state = NBD_IO_FILLING;
		c->filling = io;
	} else {
		io_submit(c, io);
	}
	return true;
}

static void request_written(struct nbd_client *c)
{
	struct nbd_io *io = c->filling;

	c->filling = NULL;
	io_submit(c, io);
}

static void request_reject(struct nbd_client *c)
{
	struct nbd_io *io = io_new(c);

	if (!c->reject_logged)
		nbd_log(c->s, c, LOG_WARNING, "rejected %s (said once per client)", c->proto.why);
	c->reject_logged = true;
	c->s->stats.rejected++;
	io_reply(c, io, c->proto.reject_err);
}

static void client_goodbye(struct nbd_client *c)
{
	if (c->proto.violation)
		client_violation(c);
	else if (c->state == NBD_C_OPEN)
		nbd_client_drain(c);
}

static void client_parse(struct nbd_client *c)
{
	if (c->blocked != NBD_B_NOT)
		c->progress_us = loop_now_us(c->s->loop); /* that it waited was not its own doing */
	c->blocked = NBD_B_NOT;
	while (c->state == NBD_C_OPEN) {
		size_t used;

		if (!c->free_ios) {
			c->blocked = NBD_B_SLOTS;
			return;
		}
		switch (nbd_proto_feed(&c->proto, c->rx + c->rx_first, c->rx_end - c->rx_first,
				       &used)) {
		case NBD_MORE:
			c->rx_first = c->rx_end = 0;
			return;
		case NBD_DRAIN:
			c->rx_first += used;
			c->blocked = NBD_B_OUTPUT;
			return;
		case NBD_HEAD:
			c->rx_first += used;
			if (!request_begin(c))
				return;
			break;
		case NBD_WRITTEN:
			c->rx_first += used;
			request_written(c);
			break;
		case NBD_REJECT:
			c->rx_first += used;
			request_reject(c);
			break;
		case NBD_END:
			client_send(c);
			client_goodbye(c);
			return;
		}
	}
}

static void client_hung_up(struct nbd_client *c, int err)
{
	const char *how = err ? strerror(err) : "end of input";

	if (nbd_proto_negotiating(&c->proto) || nbd_proto_mid_message(&c->proto))
		nbd_log(c->s, c, LOG_INFO, "is gone in the middle of a message: %s", how);
	if (err)
		client_close(c);
	else
		nbd_client_drain(c); /* it may have closed its sending half only */
}

static void client_receive(struct nbd_client *c)
{
	struct iovec iov[2];
	size_t want;
	void *payload = nbd_proto_want(&c->proto, &want);
	ssize_t n;

	assert(c->rx_end == 0);
	iov[0] = (struct iovec){payload, want};
	iov[1] = (struct iovec){c->rx, NBD_RX_BYTES};
	n = readv(c->watch.fd, payload ? iov : iov + 1, payload ? 2 : 1);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		client_hung_up(c, n < 0 ? errno : 0);
		return;
	}
	c->progress_us = loop_now_us(c->s->loop);
	if (payload) {
		size_t got = (size_t)n < want ? (size_t)n : want;

		n -= (ssize_t)got;
		if (nbd_proto_got(&c->proto, got) == NBD_WRITTEN)
			request_written(c);
	}
	c->rx_end = (size_t)n;
	client_parse(c);
}

/* --- the loop's calls --- */

static void client_ready(void *arg, uint32_t events)
{
	struct nbd_client *c = arg;

	if (events & LOOP_WRITE)
		client_send(c);
	if (events & LOOP_READ && c->state == NBD_C_OPEN && !c->blocked)
		client_receive(c);
	attend(c);
}

static void submit_again(struct nbd_client *c)
{
	struct nbd_io *list = c->again;

	c->again = NULL;
	while (list) {
		struct nbd_io *io = list;

		list = io->next;
		if (c->state == NBD_C_CLOSED)
			io_free(c, io);
		else
			io_submit(c, io);
	}
}

static void client_attend(struct nbd_client *c)
{
	uint32_t mask = 0;

	submit_again(c);
	client_send(c);
	if (c->state == NBD_C_OPEN && c->blocked)
		client_parse(c);
	if (c->state == NBD_C_DRAINING && !c->at_sink && !c->again && !has_output(c))
		client_close(c);
	if (c->state == NBD_C_CLOSED)
		return;
	if (c->state == NBD_C_OPEN && !c->blocked)
		mask |= LOOP_READ;
	if (has_output(c) && !c->attended)
		mask |= LOOP_WRITE; /* if attended, it is tried again before the loop blocks */
	if (loop_fd_mod(c->s->loop, &c->watch, mask) < 0)
		client_close(c);
}

bool nbd_clients_attend(struct nbd_shared *s)
{
	struct nbd_client *list = s->attention.first;

	queue_init(&s->attention);
	s->submitted = false;
	while (list) {
		struct nbd_client *c = list;

		list = c->attention_next;
		c->attended = false;
		if (c->state != NBD_C_CLOSED)
			client_attend(c);
		if (c->state == NBD_C_CLOSED && !c->at_sink && !c->attended) {
			uint32_t index = c->index;

			nbd_client_free(c);
			s->gone(s, index);
		}
	}
	return s->submitted || s->attention.first;
}

/* --- what front.c calls --- */

struct nbd_client *nbd_client_new(struct nbd_shared *s, uint16_t index, int fd, const char *name)
{
	struct nbd_client *c = calloc(1, sizeof(*c));

	if (!c) {
		close(fd);
		return NULL;
	}
	c->s = s;
	c->index = index;
	c->replies_last = &c->replies;
	c->since_us = c->progress_us = loop_now_us(s->loop);
	snprintf(c->name, sizeof(c->name), "%s", name);
	for (int i = NBD_CLIENT_REQS - 1; i >= 0; i--) {
		c->ios[i].index = (uint8_t)i;
		c->ios[i].next = c->free_ios;
		c->free_ios = &c->ios[i];
	}
	nbd_proto_init(&c->proto, &s->ex);
	c->watch = (struct loop_fd){.fd = fd, .ready = client_ready, .arg = c};
	if (loop_fd_add(s->loop, &c->watch, LOOP_READ) < 0) {
		close(fd);
		free(c);
		return NULL;
	}
	s->stats.clients++;
	s->stats.accepted++;
	attend(c);
	return c;
}

struct nbd_client *nbd_client_connected(struct nbd_shared *s, uint16_t index, int fd,
					const char *name)
{
	struct nbd_client *c = nbd_client_new(s, index, fd, name);

	if (c)
		nbd_proto_init_connected(&c->proto, &s->ex);
	return c;
}

void nbd_client_cut(struct nbd_client *c)
{
	client_close(c);
}

void nbd_client_reset(struct nbd_client *c)
{
	uint8_t out[NBD_CLIENT_REQS * NBD_REPLY_BYTES];
	size_t bytes = 0;

	if (c->state == NBD_C_CLOSED)
		return;
	client_send(c); /* what is true already; EIO must not cut into a reply */
	if (c->state == NBD_C_CLOSED)
		return;
	for (int i = 0; i < NBD_CLIENT_REQS && !has_output(c); i++) {
		const struct nbd_io *io = &c->ios[i];

		if (io->state != NBD_IO_AT_SINK && io->state != NBD_IO_AGAIN)
			continue;
		nbd_reply_encode(out + bytes, io->req.cookie, -EIO);
		bytes += NBD_REPLY_BYTES;
	}
	if (bytes && send(c->watch.fd, out, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		nbd_log(c->s, c, LOG_NOTICE, "could not be told that its requests failed");
	c->s->stats.dropped++;
	client_close(c);
}

static bool idle_for(const struct nbd_client *c, uint64_t since_us, uint64_t limit_ms)
{
	return loop_now_us(c->s->loop) - since_us > limit_ms * 1000;
}

void nbd_client_forgive(struct nbd_client *c, uint64_t us)
{
	uint64_t now_us = loop_now_us(c->s->loop);

	c->since_us = now_us - c->since_us > us ? c->since_us + us : now_us;
	c->progress_us = now_us - c->progress_us > us ? c->progress_us + us : now_us;
}

void nbd_client_check(struct nbd_client *c)
{
	bool owes = has_output(c) || c->filling;
	bool in_the_way = pool_share(c->held_bytes) && c->s->waiters.first;

	if (c->state == NBD_C_CLOSED)
		return;
	if (nbd_proto_negotiating(&c->proto) && idle_for(c, c->since_us, NBD_HANDSHAKE_MS))
		nbd_log(c->s, c, LOG_NOTICE, "closed: its negotiation took too long");
	else if (owes && idle_for(c, c->progress_us, NBD_STALL_MS) &&
		 (in_the_way || c->state == NBD_C_DRAINING))
		nbd_log(c->s, c, LOG_WARNING,
			"closed: it stalled with %llu bytes of memory that others need",
			(unsigned long long)c->held_bytes);
	else if (c->state == NBD_C_OPEN && c->blocked == NBD_B_NOT &&
		 nbd_proto_mid_message(&c->proto) && idle_for(c, c->progress_us, NBD_MESSAGE_MS))
		nbd_log(c->s, c, LOG_WARNING,
			"closed: it sent a part of a request, and nothing more for %u s",
			NBD_MESSAGE_MS / 1000);
	else
		return;
	c->s->stats.dropped++;
	client_close(c);
}

void nbd_client_free(struct nbd_client *c)
{
	struct nbd_queue *q = &c->s->attention;
	struct nbd_client **at = &q->first;

	client_close(c);
	for (int i = 0; i < NBD_CLIENT_REQS; i++)
		io_drop_data(c, &c->ios[i]);
	while (c->attended && *at != c)
		at = &(*at)->attention_next;
	if (c->attended) {
		*at = c->attention_next;
		if (q->last == &c->attention_next)
			q->last = at;
	}
	c->s->stats.inflight -= c->at_sink;
	free(c);
}
