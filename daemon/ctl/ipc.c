// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The socket of ddraidctl, on libqb's loop. A connection has at most one request; a request has a
 * reference to its connection. What the kernel does not take at once of a reply waits in a list of
 * packed replies until it does.
 *
 *	open	greeted; asks and is answered	-> closed
 *	closed	no descriptor			-> freed, when its request and callback have ended
 *
 * Memory is bounded: a client is read from one frame at a time, it may ask only when it has all of
 * the last answer, and a queue has a limit. One that neither asks nor takes what it is sent for
 * STALL_MS is disconnected, but for one whose request is under way.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <qb/qbloop.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/ctl/ipc.h"
#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/base/socket_file.h"

#define SOCKET_MODE 0600
#define ACCEPT_BATCH 16 /* connections taken in one turn */
#ifndef STALL_MS
#define STALL_MS 30000u /* silent for so long */
#endif
#define SLEPT_MS 10000u /* between two looks: it was not the clients that stood still */
#define WAITING_MAX_BYTES (8u << 20) /* that one client has not taken: all arrays' status */
#define WARNINGS_MAX 8

struct packed {
	struct packed *next;
	size_t bytes;
	uint8_t data[];
};

struct client {
	struct client *next;
	int fd;    /* -1: closed */
	bool busy; /* its callback runs */
	struct ipc_req *req;
	/* what is read: first a head, then the frame */
	uint8_t head[CTL_HEAD_BYTES];
	uint8_t *frame;
	size_t frame_bytes, got;
	/* what is to be sent */
	struct packed *first, **last;
	size_t sent, waiting_bytes;
	uint64_t moved_ms; /* when it has last sent or taken something */
};

struct ipc_req {
	struct client *client;
	Request *request;
	char *warning[WARNINGS_MAX];
	size_t warnings;
	bool taking;   /* ctl_take looks at it */
	bool answered; /* while it does: freed when that returns */
};

static struct qb_loop *loop;
static struct socket_file file;
static int listen_fd = -1;
static bool accepting;
static struct client *clients;
static uint32_t open_clients;
static uint64_t looked_ms;

/* ---- a connection's end --------------------------------------------------------------------- */

static void client_free(struct client *c)
{
	struct client **at = &clients;

	if (c->fd >= 0 || c->req || c->busy)
		return;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	free(c);
}

static void client_end(struct client *c)
{
	if (c->fd < 0)
		return;
	qb_loop_poll_del(loop, c->fd);
	close(c->fd);
	c->fd = -1;
	open_clients--;
	free(c->frame);
	c->frame = NULL;
	while (c->first) {
		struct packed *p = c->first;

		c->first = p->next;
		free(p);
	}
	c->last = &c->first;
}

static void violation(struct client *c, const char *what)
{
	say(LOG_WARNING, "a client of the control socket is disconnected: %s", what);
	client_end(c);
}

/* ---- sending -------------------------------------------------------------------------------- */

static int32_t on_ready(int32_t fd, int32_t revents, void *data);

/* Takes off the queue what the kernel takes. */
static void flush(struct client *c)
{
	while (c->first) {
		struct packed *p = c->first;
		ssize_t n = send(c->fd, p->data + c->sent, p->bytes - c->sent, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) { /* it has gone */
			client_end(c);
			return;
		}
		c->moved_ms = now_ms();
		c->sent += (size_t)n;
		if (c->sent < p->bytes)
			continue;
		c->sent = 0;
		c->waiting_bytes -= p->bytes;
		c->first = p->next;
		if (!c->first)
			c->last = &c->first;
		free(p);
	}
	qb_loop_poll_mod(loop, QB_LOOP_MED, c->fd, c->first ? POLLIN | POLLOUT : POLLIN, c,
			 on_ready);
}

/* NULL: it does not fit. */
static struct packed *reply_pack(const Reply *reply)
{
	size_t bytes = CTL_HEAD_BYTES + ddraid__ctl__reply__get_packed_size(reply);
	struct packed *p;

	if (bytes > CTL_MAX_BYTES)
		return NULL;
	p = malloc(sizeof(*p) + bytes);
	assert(p);
	p->next = NULL;
	p->bytes = bytes;
	ctl_head_put(p->data, CTL_REPLY, bytes);
	ddraid__ctl__reply__pack(reply, p->data + CTL_HEAD_BYTES);
	return p;
}

static void client_tell(struct client *c, Reply *reply)
{
	struct packed *p;

	if (c->fd < 0)
		return;
	reply->version = CTL_VERSION;
	p = reply_pack(reply);
	if (!p || c->waiting_bytes + p->bytes > WAITING_MAX_BYTES) {
		free(p);
		violation(c, "its answer does not fit");
		return;
	}
	*c->last = p;
	c->last = &p->next;
	c->waiting_bytes += p->bytes;
	flush(c);
}

static void reply_send(struct ipc_req *r, Reply *reply)
{
	reply->n_warning = r->warnings;
	reply->warning = r->warning;
	client_tell(r->client, reply);
	for (size_t i = 0; i < r->warnings; i++)
		free(r->warning[i]);
	r->warnings = 0;
}

const Request *ipc_request(const struct ipc_req *r)
{
	return r->request;
}

bool ipc_gone(const struct ipc_req *r)
{
	return r->client->fd < 0;
}

void ipc_warn(struct ipc_req *r, const char *text)
{
	if (r->warnings < WARNINGS_MAX)
		r->warning[r->warnings++] = strdup(text);
}

void ipc_send(struct ipc_req *r, Reply *reply)
{
	reply_send(r, reply);
}

void ipc_progress(struct ipc_req *r, Ddraid__Ctl__Progress *p)
{
	Reply reply = REPLY_INIT;

	if (r->client->first)
		return;
	reply.body_case = DDRAID__CTL__REPLY__BODY_PROGRESS;
	reply.progress = p;
	reply_send(r, &reply);
}

static void req_free(struct ipc_req *r)
{
	ddraid__ctl__request__free_unpacked(r->request, NULL);
	free(r);
}

void ipc_final(struct ipc_req *r, Reply *reply)
{
	struct client *c = r->client;
	Reply empty = REPLY_INIT;

	assert(!r->answered);
	if (!reply)
		reply = &empty;
	reply->final = true;
	c->req = NULL; /* the client may ask again as soon as it has this */
	reply_send(r, reply);
	r->answered = true;
	if (!r->taking)
		req_free(r);
	client_free(c);
}

void ipc_fail(struct ipc_req *r, int err, const char *format, ...)
{
	Reply reply = REPLY_INIT;
	char text[2048];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	reply.err = err;
	reply.error = text;
	ipc_final(r, &reply);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* A whole frame is there. */
static void frame_take(struct client *c)
{
	struct ipc_req *r = calloc(1, sizeof(*r));

	assert(r);
	r->client = c;
	r->request = ddraid__ctl__request__unpack(NULL, c->frame_bytes - CTL_HEAD_BYTES,
						  c->frame + CTL_HEAD_BYTES);
	free(c->frame);
	c->frame = NULL;
	c->got = 0;
	if (!r->request) {
		free(r);
		violation(c, "its request can't be decoded");
		return;
	}
	c->req = r;
	r->taking = true;
	ctl_take(r);
	r->taking = false;
	if (r->answered)
		req_free(r);
}

static void head_take(struct client *c)
{
	c->frame_bytes = ctl_head_get(c->head, CTL_REQUEST);
	if (!c->frame_bytes) {
		violation(c, "what it sends is no request, or is too long");
		return;
	}
	c->frame = malloc(c->frame_bytes);
	assert(c->frame);
	memcpy(c->frame, c->head, CTL_HEAD_BYTES);
}

/* True: there may be more to read. No more than one frame is taken off the socket. */
static bool client_read(struct client *c)
{
	uint8_t *to = c->frame ? c->frame : c->head;
	size_t want = c->frame ? c->frame_bytes : CTL_HEAD_BYTES;
	ssize_t n = 0;

	if (c->got < want) {
		n = recv(c->fd, to + c->got, want - c->got, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return false;
		if (n <= 0) { /* it has gone */
			client_end(c);
			return false;
		}
		if (c->req || c->first) {
			violation(c, "it asks before it has its answer");
			return false;
		}
		c->moved_ms = now_ms();
		c->got += (size_t)n;
	}
	if (c->got < want)
		return true;
	if (!c->frame) {
		head_take(c);
		return c->fd >= 0;
	}
	frame_take(c);
	return false;
}

static int32_t on_ready(int32_t fd, int32_t revents, void *data)
{
	struct client *c = data;

	(void)fd;
	c->busy = true;
	if (revents & POLLOUT)
		flush(c);
	while (c->fd >= 0 && client_read(c))
		;
	c->busy = false;
	client_free(c);
	return 0;
}

/* ---- connections ---------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void refuse(int fd, int err, const char *format, ...)
{
	Reply reply = REPLY_INIT;
	struct packed *p;
	char text[256];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	say(LOG_WARNING, "a client of the control socket is refused: %s", text);
	reply.version = CTL_VERSION;
	reply.final = true;
	reply.err = err;
	reply.error = text;
	p = reply_pack(&reply);
	if (send(fd, p->data, p->bytes, MSG_NOSIGNAL) < 0)
		say(LOG_INFO, "it has gone before it could be told");
	free(p);
	close(fd);
}

static void client_add(int fd)
{
	Reply greeting = REPLY_INIT;
	struct client *c = calloc(1, sizeof(*c));

	assert(c);
	c->fd = fd;
	c->last = &c->first;
	c->moved_ms = now_ms();
	c->next = clients;
	clients = c;
	open_clients++;
	if (qb_loop_poll_add(loop, QB_LOOP_MED, fd, POLLIN, c, on_ready))
		client_end(c);
	client_tell(c, &greeting);
	client_free(c);
}

/* The file's mode is for those who connect; this is for whoever had the file's mode changed, and
 * for what was connected before. */
static void client_come(int fd)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
		refuse(fd, -EACCES, "its user can't be found out: %s; try again", strerror(errno));
	else if (peer.uid != 0 && peer.uid != geteuid())
		refuse(fd, -EACCES, "user %lu may not control ddraidd: only root may%s; use sudo",
		       (unsigned long)peer.uid, geteuid() ? ", and the user it runs as" : "");
	else if (open_clients >= CTL_MAX_CONNECTIONS)
		refuse(fd, -EBUSY,
		       "%u clients are connected to ddraidd, and no more are served; end some of "
		       "them, or try again",
		       CTL_MAX_CONNECTIONS);
	else
		client_add(fd);
}

static int32_t on_connect(int32_t fd, int32_t revents, void *data);

static void accept_set(bool on)
{
	accepting = on;
	qb_loop_poll_mod(loop, QB_LOOP_MED, listen_fd, on ? POLLIN : 0, NULL, on_connect);
}

/* False: there are none. */
static bool accept_one(void)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd >= 0) {
		client_come(fd);
		return true;
	}
	if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
		say(LOG_ERR, "ddraidctl can't be let in for now: %s", strerror(errno));
		accept_set(false); /* until the next look */
		return false;
	}
	return errno != EAGAIN;
}

static int32_t on_connect(int32_t fd, int32_t revents, void *data)
{
	(void)fd;
	(void)revents;
	(void)data;
	for (int i = 0; i < ACCEPT_BATCH && accept_one(); i++)
		;
	return 0;
}

/* ---- the socket ----------------------------------------------------------------------------- */

static int listen_at(int fd)
{
	listen_fd = fd;
	accepting = true;
	return qb_loop_poll_add(loop, QB_LOOP_MED, fd, POLLIN, NULL, on_connect);
}

int ipc_open(struct qb_loop *l, const char *run_dir, const char *name, char *why, size_t why_bytes)
{
	char path[512], cause[SOCKET_FILE_WHY_BYTES];
	int fd, err;

	loop = l;
	snprintf(path, sizeof(path), "%s/%s" CTL_SUFFIX, run_dir, name);
	fd = socket_file_open(&file, path, SOCKET_MODE, SOCKET_FILE_OWN, cause);
	if (fd < 0) {
		snprintf(why, why_bytes, "ddraidctl can't be served on %s: %s", path, cause);
		return fd;
	}
	looked_ms = now_ms();
	err = listen_at(fd);
	if (err)
		snprintf(why, why_bytes, "the socket %s can't be watched: %s", path,
			 strerror(-err));
	return err;
}

/* Who has connected to the old one is let in first. */
static void file_look(void)
{
	char why[SOCKET_FILE_WHY_BYTES];
	int fd = socket_file_again(&file, why);

	if (fd == -EALREADY)
		return;
	if (fd < 0) {
		if (why[0])
			say(LOG_ERR,
			    "%s is gone, so ddraidctl can't connect, and it can't be made again: "
			    "%s; it is tried again",
			    file.path, why);
		return;
	}
	say(LOG_WARNING, "%s was removed, which ddraidctl needs: made again", file.path);
	for (int i = 0; i < SOCKET_FILE_BACKLOG && accept_one(); i++)
		;
	qb_loop_poll_del(loop, listen_fd);
	close(listen_fd);
	if (listen_at(fd))
		say(LOG_ERR, "%s can't be watched: restart ddraidd", file.path);
}

void ipc_look(void)
{
	uint64_t now = now_ms();
	bool slept = now - looked_ms > SLEPT_MS;
	struct client *c, *next;

	looked_ms = now;
	if (!accepting)
		accept_set(true);
	file_look();
	for (c = clients; c; c = next) {
		next = c->next;
		if (slept || (c->req && !c->first))
			c->moved_ms = now;
		if (now - c->moved_ms < STALL_MS)
			continue;
		violation(c, c->first ? "it does not take its answer"
				      : "it asks for nothing for too long");
		client_free(c);
	}
}

void ipc_close(void)
{
	struct client *c, *next;

	if (listen_fd < 0)
		return;
	qb_loop_poll_del(loop, listen_fd);
	close(listen_fd);
	listen_fd = -1;
	socket_file_remove(&file);
	for (c = clients; c; c = next) {
		next = c->next;
		client_end(c);
		client_free(c);
	}
}
