// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * NBD server front-end: an array on a Unix socket, and on loopback TCP if asked for.
 *
 * This file has the hooks of the front-end port, the listeners and the table of clients. One
 * connection is client.c, its protocol proto.c, a listening socket listen.c.
 *
 *   state	listeners				next
 *   SHUT	bound, not accepting: clients wait	SERVING (serve), freed (close)
 *		in the backlog, not yet greeted
 *   SERVING	accepting; with the table full of	SHUT (reset, hold), freed (close)
 *		clients, a further one is closed at once
 *
 * A client that waits in the backlog has opened nothing, so accepting it after a reset is the
 * reopen that R6 asks for. Its place in the table stays taken until the sink gave back its last
 * buffer, so tags are never ambiguous and memory stays bounded.
 *
 * Tags: id (8 bits) | place in the table (16) | request slot (8) | generation (32).
 *
 * Called by the runtime through the port and by the loop. It must not look into data, nor decide
 * whether a request may run.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "daemon/adapters/front/nbd/client.h"
#include "daemon/adapters/front/nbd/listen.h"
#include "daemon/ports/front.h"

#define ACCEPT_BATCH 16 /* connections taken per listener and turn */
#define CHECK_MS 1000   /* how often time limits and the sockets' files are looked at */

struct front_nbd;

struct listener {
	struct front_nbd *f;
	struct nbd_listen l;
	struct loop_fd watch;
};

struct front_nbd {
	struct front front; /* must be first */
	struct nbd_shared shared;
	bool serving;
	mode_t socket_mode;
	gid_t socket_group;
	uint32_t listeners, places_taken;
	struct listener listener[FRONT_MAX_LISTEN];
	struct nbd_client *client[NBD_MAX_CLIENTS];
	char peer[NBD_MAX_CLIENTS][FRONT_PEER_BYTES]; /* of these */
	struct loop_hook hook;
	struct loop_timer check;
	uint64_t checked_us;
};

_Static_assert(NBD_MAX_CLIENTS <= 1 << 16 && NBD_CLIENT_REQS <= 1 << 8, "both must fit the tag");

static struct front_nbd *nbd_of(struct front *front)
{
	return (struct front_nbd *)(void *)front;
}

/* --- accepting --- */

static void accept_set(struct front_nbd *f, bool on)
{
	for (uint32_t i = 0; i < f->listeners; i++) {
		struct listener *li = &f->listener[i];
		int err = loop_fd_mod(f->shared.loop, &li->watch, on ? LOOP_READ : 0);

		if (err)
			nbd_log(&f->shared, NULL, LOG_ERR, "can't poll a listener: %s",
				strerror(-err));
	}
}

/* With places that closed clients still hold, a new one waits; among living ones it would for ever.
 */
static bool may_accept(const struct front_nbd *f)
{
	return f->places_taken < NBD_MAX_CLIENTS || f->shared.stats.clients == NBD_MAX_CLIENTS;
}

static void check_again(struct front_nbd *f)
{
	f->checked_us = loop_now_us(f->shared.loop);
	loop_timer_set(f->shared.loop, &f->check,
		       loop_now_us(f->shared.loop) + (uint64_t)CHECK_MS * 1000);
}

static void client_add(struct front_nbd *f, int fd, const char *peer)
{
	char name[64];
	uint16_t i = 0;

	while (f->client[i])
		i++;
	snprintf(name, sizeof(name), "%u (%s)", i, peer);
	snprintf(f->peer[i], sizeof(f->peer[i]), "%s", peer);
	f->client[i] = nbd_client_new(&f->shared, i, fd, name);
	if (!f->client[i]) {
		nbd_log(&f->shared, NULL, LOG_ERR, "turned a client away: memory is short");
		return;
	}
	f->places_taken++;
}

static void listener_ready(void *arg, uint32_t events)
{
	struct listener *li = arg;
	struct front_nbd *f = li->f;

	(void)events;
	for (int i = 0; i < ACCEPT_BATCH && may_accept(f); i++) {
		char peer[48];
		int fd = nbd_listen_accept(&li->l, peer, sizeof(peer));

		if (fd == -EAGAIN)
			return;
		if (fd < 0) {
			if (fd != -EMFILE && fd != -ENFILE && fd != -ENOBUFS && fd != -ENOMEM)
				continue; /* that connection is gone already */
			nbd_log(&f->shared, NULL, LOG_ERR, "can't accept clients for now: %s",
				strerror(-fd));
			accept_set(f, false); /* until the next check */
			return;
		}
		if (f->places_taken < NBD_MAX_CLIENTS) {
			client_add(f, fd, peer);
			continue;
		}
		close(fd);
		nbd_log(&f->shared, NULL, LOG_WARNING,
			"turned a client away (%s): there are %d already, and no more are served",
			peer, NBD_MAX_CLIENTS);
	}
	if (!may_accept(f))
		accept_set(f, false);
}

static void client_gone(struct nbd_shared *s, uint32_t index)
{
	struct front_nbd *f = (struct front_nbd *)((char *)s - offsetof(struct front_nbd, shared));

	f->client[index] = NULL;
	f->places_taken--;
	if (f->serving)
		accept_set(f, true);
}

/* --- the loop's other calls --- */

static bool turn_end(void *arg)
{
	struct front_nbd *f = arg;

	return nbd_clients_attend(&f->shared);
}

/* Who waits at the old socket is let in, if anybody is: while shut, they wait on there. */
static void listener_drain(struct listener *li)
{
	struct front_nbd *f = li->f;

	for (int i = 0; i <= SOCKET_FILE_BACKLOG / ACCEPT_BATCH; i++) {
		if (li->l.before >= 0 && f->serving && may_accept(f))
			listener_ready(li, LOOP_READ);
	}
}

/* Whoever removes a socket's file cuts off those who come later, and nobody else. */
static void listener_look(struct listener *li)
{
	struct front_nbd *f = li->f;
	char why[FRONT_WHY_BYTES];
	int err = nbd_listen_again(&li->l, why);

	if (li->l.file.path[0] && (!err || err == -EALREADY))
		f->shared.stats.lost[0] = '\0';
	if (!err) {
		nbd_log(&f->shared, NULL, LOG_WARNING, "%s was removed: made again",
			li->l.file.path);
		loop_fd_del(f->shared.loop, &li->watch);
		li->watch.fd = li->l.fd;
		err = loop_fd_add(f->shared.loop, &li->watch,
				  f->serving && may_accept(f) ? LOOP_READ : 0);
		if (err)
			nbd_log(&f->shared, NULL, LOG_ERR, "can't poll a listener: %s",
				strerror(-err));
	} else if (why[0]) {
		nbd_log(&f->shared, NULL, LOG_ERR, "%s; it is tried again", why);
		strcpy(f->shared.stats.lost, why);
	}
	listener_drain(li);
}

static void check_time(void *arg)
{
	struct front_nbd *f = arg;
	uint64_t since_us = loop_now_us(f->shared.loop) - f->checked_us;
	uint64_t slept_us = since_us > 2 * CHECK_MS * 1000 ? since_us - CHECK_MS * 1000 : 0;

	for (int i = 0; i < NBD_MAX_CLIENTS; i++) {
		/* Where it was the machine or this thread that stood still, no client is to blame.
		 */
		if (f->client[i] && slept_us)
			nbd_client_forgive(f->client[i], slept_us);
		if (f->client[i])
			nbd_client_check(f->client[i]);
	}
	if (f->serving && may_accept(f))
		accept_set(f, true);
	for (uint32_t i = 0; i < f->listeners; i++)
		listener_look(&f->listener[i]);
	check_again(f);
}

/* --- the port's hooks --- */

static void front_nbd_close(struct front *front)
{
	struct front_nbd *f = nbd_of(front);

	f->serving = false;
	for (uint32_t i = 0; i < f->listeners; i++) {
		loop_fd_del(f->shared.loop, &f->listener[i].watch);
		nbd_listen_close(&f->listener[i].l);
	}
	for (int i = 0; i < NBD_MAX_CLIENTS; i++) {
		if (!f->client[i])
			continue;
		nbd_client_reset(f->client[i]);
		nbd_client_free(f->client[i]);
	}
	loop_timer_clear(f->shared.loop, &f->check);
	loop_hook_del(f->shared.loop, &f->hook);
	nbd_shared_fini(&f->shared);
	free(f);
}

static int listener_add(struct front_nbd *f, const char *address, char *why)
{
	struct listener *li = &f->listener[f->listeners];
	int err = nbd_listen_open(address, f->socket_mode, f->socket_group, &li->l, why);

	if (err)
		return err;
	li->f = f;
	li->watch = (struct loop_fd){.fd = li->l.fd, .ready = listener_ready, .arg = li};
	err = loop_fd_add(f->shared.loop, &li->watch, 0);
	if (err) {
		snprintf(why, FRONT_WHY_BYTES, "can't poll %s: %s", address, strerror(-err));
		nbd_listen_close(&li->l);
		return err;
	}
	f->listeners++;
	return 0;
}

static struct front_ops nbd_ops;

static int front_nbd_open(const struct front_cfg *cfg, struct front **out, char *why)
{
	struct front_nbd *f = calloc(1, sizeof(*f));
	int err = 0;

	if (!f) {
		snprintf(why, FRONT_WHY_BYTES, "can't start the NBD front-end: out of memory");
		return -ENOMEM;
	}
	f->front.ops = &nbd_ops;
	nbd_shared_init(&f->shared, cfg);
	f->shared.gone = client_gone;
	f->socket_mode = cfg->socket_mode;
	f->socket_group = cfg->socket_group;
	f->check.fired = check_time;
	f->check.arg = f;
	f->hook.run = turn_end;
	f->hook.arg = f;
	loop_hook_add(cfg->loop, &f->hook);
	for (int i = 0; i < FRONT_MAX_LISTEN && cfg->listen[i] && !err; i++)
		err = listener_add(f, cfg->listen[i], why);
	if (!err && !f->listeners) {
		snprintf(
		    why, FRONT_WHY_BYTES,
		    "the NBD front-end has no address; write unix:/path or tcp:127.0.0.1:PORT");
		err = -EINVAL;
	}
	if (err) {
		front_nbd_close(&f->front);
		return err;
	}
	check_again(f);
	*out = &f->front;
	return 0;
}

static bool export_fits(const struct front_export *ex)
{
	uint32_t p = ex->preferred_bytes, b = front_block_bytes(ex);

	return memchr(ex->name, 0, sizeof(ex->name)) &&
	       memchr(ex->description, 0, sizeof(ex->description)) && ex->size_bytes &&
	       b >= DDR_BLOCK_BYTES && (b & (b - 1)) == 0 && p >= b && ex->size_bytes % b == 0 &&
	       ex->size_bytes <= INT64_MAX && p >= DDR_BLOCK_BYTES && p <= DDR_MAX_FRONT_IO_BYTES &&
	       (p & (p - 1)) == 0;
}

static int front_nbd_serve(struct front *front, const struct front_export *ex, char *why)
{
	struct front_nbd *f = nbd_of(front);

	assert(!f->serving);
	if (!export_fits(ex)) {
		snprintf(why, FRONT_WHY_BYTES, "an array of %llu bytes can't be served by NBD",
			 (unsigned long long)ex->size_bytes);
		return -EINVAL;
	}
	f->shared.ex = *ex;
	f->serving = true;
	if (may_accept(f))
		accept_set(f, true);
	return 0;
}

static int front_nbd_listen(struct front *front, const char *address, char *why)
{
	struct front_nbd *f = nbd_of(front);
	int err;

	if (f->listeners == FRONT_MAX_LISTEN) {
		snprintf(why, FRONT_WHY_BYTES,
			 "can't serve NBD on %.150s: %u addresses are the most", address,
			 FRONT_MAX_LISTEN);
		return -ENOSPC;
	}
	err = listener_add(f, address, why);
	if (!err && f->serving && may_accept(f))
		accept_set(f, true);
	return err;
}

static void front_nbd_complete(struct front *front, uint64_t tag, int err)
{
	struct front_nbd *f = nbd_of(front);
	uint32_t place = tag >> 40 & 0xffff;

	assert(tag >> 56 == f->shared.id && place < NBD_MAX_CLIENTS && f->client[place]);
	nbd_client_complete(f->client[place], tag >> 32 & 0xff, (uint32_t)tag, err);
}

static void front_nbd_reset(struct front *front)
{
	struct front_nbd *f = nbd_of(front);
	uint32_t clients = f->shared.stats.clients;

	f->serving = false;
	accept_set(f, false);
	for (int i = 0; i < NBD_MAX_CLIENTS; i++) {
		if (f->client[i])
			nbd_client_reset(f->client[i]);
	}
	if (clients)
		nbd_log(&f->shared, NULL, LOG_NOTICE, "dropped %u client%s", clients,
			clients == 1 ? "" : "s");
}

/* No connection outlives the daemon: each ends with its last answer. */
static void front_nbd_hold(struct front *front)
{
	struct front_nbd *f = nbd_of(front);

	f->serving = false;
	accept_set(f, false);
	for (int i = 0; i < NBD_MAX_CLIENTS; i++) {
		if (f->client[i])
			nbd_client_drain(f->client[i]);
	}
}

static void front_nbd_stats(const struct front *front, struct front_stats *st)
{
	*st = ((const struct front_nbd *)(const void *)front)->shared.stats;
}

static uint32_t front_nbd_clients(const struct front *front, struct front_client *list,
				  uint32_t room)
{
	const struct front_nbd *f = (const struct front_nbd *)(const void *)front;
	uint32_t n = 0;

	for (int i = 0; i < NBD_MAX_CLIENTS && n < room; i++) {
		const struct nbd_client *c = f->client[i];

		if (!c || c->state == NBD_C_CLOSED)
			continue;
		memset(&list[n], 0, sizeof(list[n]));
		snprintf(list[n].peer, sizeof(list[n].peer), "%s", f->peer[i]);
		list[n].since_us = c->since_us;
		list[n++].requests = c->requests;
	}
	return n;
}

static struct front_ops nbd_ops = {
    .name = "nbd",
    .open = front_nbd_open,
    .serve = front_nbd_serve,
    .listen = front_nbd_listen,
    .complete = front_nbd_complete,
    .reset = front_nbd_reset,
    .hold = front_nbd_hold,
    .close = front_nbd_close,
    .stats = front_nbd_stats,
    .clients = front_nbd_clients,
};
FRONT_REGISTER(nbd_ops)
