// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libqb IPC. A connection has at most one request; a request has a reference to its connection.
 * What the client's ring does not take at once waits in a list of packed replies and is tried again
 * by a timer; a client that reads nothing for STALL_MS is disconnected.
 *
 *	open     asks and is answered                  -> ending (client_end), closed
 *	ending   its requests are not taken any more   -> closed, from the loop's next turn
 *	closed   by libqb                              -> freed, when libqb and its request let go
 *
 * libqb goes on using a connection when a callback of it has returned, and takes an error from
 * on_message for "not now": so no connection is closed but by a job of its own.
 */
#include <assert.h>
#include <errno.h>
#include <qb/qbipcs.h>
#include <qb/qbloop.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ipc.h"
#include "daemon/log.h"

#define AGAIN_MS 20u
#define STALL_MS 30000u
#define WAITING_MAX 1024u /* replies of one request that the client has not taken */
#define WARNINGS_MAX 8

struct packed {
	struct packed *next;
	bool final;
	size_t bytes;
	_Alignas(16) uint8_t data[];
};

struct client {
	qb_ipcs_connection_t *conn; /* NULL: destroyed */
	bool gone;                  /* ending or closed */
	bool ending, closed;
	struct ipc_req *req;
	struct packed *first, **last;
	uint32_t waiting, stalled_ms;
	bool timer_set;
	qb_loop_timer_handle timer;
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
static qb_ipcs_service_t *service;

/* ---- sending -------------------------------------------------------------------------------- */

static void client_free(struct client *c)
{
	if (c->conn || c->req || c->ending)
		return;
	if (c->timer_set)
		qb_loop_timer_del(loop, c->timer);
	while (c->first) {
		struct packed *p = c->first;

		c->first = p->next;
		free(p);
	}
	free(c);
}

static void end_job(void *data)
{
	struct client *c = data;

	c->ending = false;
	if (c->closed)
		client_free(c);
	else
		qb_ipcs_disconnect(c->conn);
}

static void client_end(struct client *c)
{
	c->gone = true;
	if (!c->ending && !c->closed)
		c->ending = !qb_loop_job_add(loop, QB_LOOP_HIGH, c, end_job);
}

static void flush(struct client *c);

static void flush_again(void *data)
{
	struct client *c = data;

	c->timer_set = false;
	c->stalled_ms += AGAIN_MS;
	flush(c);
}

static void flush(struct client *c)
{
	while (c->first && !c->gone) {
		struct packed *p = c->first;
		ssize_t n = qb_ipcs_response_send(c->conn, p->data, p->bytes);

		if (n == -EAGAIN && c->stalled_ms < STALL_MS) {
			if (!c->timer_set)
				qb_loop_timer_add(loop, QB_LOOP_LOW, AGAIN_MS * 1000000ull, c,
						  flush_again, &c->timer);
			c->timer_set = true;
			return;
		}
		if (n < 0) {
			say(LOG_WARNING,
			    "a client of ddraidctl's kind does not take its answer: "
			    "disconnected (%s)",
			    strerror((int)-n));
			client_end(c);
			return;
		}
		c->stalled_ms = 0;
		c->first = p->next;
		if (!c->first)
			c->last = &c->first;
		c->waiting--;
		free(p);
	}
}

static void reply_send(struct ipc_req *r, Reply *reply)
{
	struct client *c = r->client;
	struct qb_ipc_response_header *head;
	struct packed *p;
	size_t bytes;

	if (c->gone)
		return;
	reply->version = CTL_VERSION;
	reply->n_warning = r->warnings;
	reply->warning = r->warning;
	bytes = sizeof(*head) + ddraid__ctl__reply__get_packed_size(reply);
	if (bytes > CTL_MAX_BYTES || c->waiting >= WAITING_MAX) {
		say(LOG_ERR, "an answer of %zu bytes does not fit: disconnected", bytes);
		client_end(c);
		return;
	}
	p = calloc(1, sizeof(*p) + bytes);
	assert(p);
	head = (void *)p->data;
	head->id = CTL_REPLY;
	head->size = (int32_t)bytes;
	p->bytes = bytes;
	ddraid__ctl__reply__pack(reply, p->data + sizeof(*head));
	*c->last = p;
	c->last = &p->next;
	c->waiting++;
	for (size_t i = 0; i < r->warnings; i++)
		free(r->warning[i]);
	r->warnings = 0;
	flush(c);
}

const Request *ipc_request(const struct ipc_req *r)
{
	return r->request;
}

bool ipc_gone(const struct ipc_req *r)
{
	return r->client->gone;
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
	for (size_t i = 0; i < r->warnings; i++)
		free(r->warning[i]);
	r->warnings = 0;
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

/* ---- libqb's callbacks ---------------------------------------------------------------------- */

/* Before rings of the size that the client wants are made and filled. libqb takes any. */
static int32_t on_accept(qb_ipcs_connection_t *conn, uid_t uid, gid_t gid)
{
	uint32_t wanted = (uint32_t)qb_ipcs_connection_get_buffer_size(conn);

	(void)gid;
	if (uid != 0 && uid != geteuid())
		return -EACCES;
	if (wanted > CTL_MAX_BYTES) {
		say(LOG_WARNING,
		    "an IPC client is refused: it wants messages of %u bytes, and %u are the most",
		    wanted, CTL_MAX_BYTES);
		return -EMSGSIZE;
	}
	return 0;
}

static void on_created(qb_ipcs_connection_t *conn)
{
	struct client *c = calloc(1, sizeof(*c));

	assert(c);
	c->conn = conn;
	c->last = &c->first;
	qb_ipcs_context_set(conn, c);
}

static int32_t violation(struct client *c, const char *what)
{
	say(LOG_WARNING, "an IPC client is disconnected: %s", what);
	client_end(c);
	return -EPROTO;
}

static int32_t on_message(qb_ipcs_connection_t *conn, void *data, size_t bytes)
{
	struct client *c = qb_ipcs_context_get(conn);
	struct qb_ipc_request_header head;
	struct ipc_req *r;

	if (c->gone)
		return -ESHUTDOWN;
	if (bytes < sizeof(head))
		return violation(c, "its request is shorter than a header");
	memcpy(&head, data, sizeof(head));
	if (head.id != CTL_REQUEST || head.size < 0 || (size_t)head.size != bytes)
		return violation(c, "its request is badly framed");
	if (c->req)
		return violation(c, "it asks before it is answered");
	r = calloc(1, sizeof(*r));
	assert(r);
	r->client = c;
	r->request = ddraid__ctl__request__unpack(NULL, bytes - sizeof(head),
						  (uint8_t *)data + sizeof(head));
	if (!r->request) {
		free(r);
		return violation(c, "its request can't be decoded");
	}
	c->req = r;
	r->taking = true;
	ctl_take(r);
	r->taking = false;
	if (r->answered)
		req_free(r);
	return 0;
}

static int32_t on_closed(qb_ipcs_connection_t *conn)
{
	struct client *c = qb_ipcs_context_get(conn);

	if (c)
		c->gone = c->closed = true;
	return 0;
}

static void on_destroyed(qb_ipcs_connection_t *conn)
{
	struct client *c = qb_ipcs_context_get(conn);

	if (!c)
		return;
	c->gone = c->closed = true;
	c->conn = NULL;
	client_free(c);
}

static int32_t job_add(enum qb_loop_priority p, void *data, qb_loop_job_dispatch_fn fn)
{
	return qb_loop_job_add(loop, p, data, fn);
}

static int32_t dispatch_add(enum qb_loop_priority p, int32_t fd, int32_t events, void *data,
			    qb_ipcs_dispatch_fn_t fn)
{
	return qb_loop_poll_add(loop, p, fd, events, data, fn);
}

static int32_t dispatch_mod(enum qb_loop_priority p, int32_t fd, int32_t events, void *data,
			    qb_ipcs_dispatch_fn_t fn)
{
	return qb_loop_poll_mod(loop, p, fd, events, data, fn);
}

static int32_t dispatch_del(int32_t fd)
{
	return qb_loop_poll_del(loop, fd);
}

int ipc_open(struct qb_loop *l, const char *name, char *why, size_t why_bytes)
{
	static struct qb_ipcs_service_handlers handlers = {
	    .connection_accept = on_accept,
	    .connection_created = on_created,
	    .msg_process = on_message,
	    .connection_closed = on_closed,
	    .connection_destroyed = on_destroyed,
	};
	static struct qb_ipcs_poll_handlers poll = {
	    .job_add = job_add,
	    .dispatch_add = dispatch_add,
	    .dispatch_mod = dispatch_mod,
	    .dispatch_del = dispatch_del,
	};
	int err;

	loop = l;
	service = qb_ipcs_create(name, 0, QB_IPC_SHM, &handlers);
	if (!service) {
		snprintf(why, why_bytes, "the IPC service %s can't be created: %s", name,
			 strerror(errno));
		return -errno;
	}
	qb_ipcs_enforce_buffer_size(service, CTL_MAX_BYTES);
	qb_ipcs_poll_handlers_set(service, &poll);
	err = qb_ipcs_run(service);
	if (err)
		snprintf(why, why_bytes,
			 "the IPC service %s can't be offered: %s; is another ddraidd running?",
			 name, strerror(-err));
	return err;
}

void ipc_close(void)
{
	if (service)
		qb_ipcs_destroy(service);
	service = NULL;
}
