// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The members of an array, as the engine's devices.
 *
 *	free      not used                          -> open (dev_open_uri)
 *	open      a member is there, up or down     -> closing (dev_close)
 *	closing   its requests come back            -> free (closed)
 *
 * The engine hears of it by DEV_UP and DEV_DOWN in turn; of a device that is not open it is told
 * that the connection is gone. A device that belongs to no member of the map and is not among the
 * array's URIs is a candidate: `add` opened it. One that came to nothing is closed after a while,
 * as is the device whose place another one took; but not while a write of ours that was cut off may
 * still land there: only its next `up` says that none can (R5), and the engine does not leave the
 * array cleanly before.
 *
 * A member has two URIs, which differ on a node that was given URIs of its own: live.uri, by which
 * this node opens it, and live.agreed, by which the cluster knows it. The second moves by `add`
 * alone, and only then what the cluster says goes before what this node has: of two URIs that lead
 * to one device only one is to be open, as nothing that is heard by the one says when the writes
 * of the other can't land any more (R5).
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runtime/array_int.h"

#define IO_CHUNK 256
#define IO_CHUNKS_MAX 64u /* 16384 requests: more than the engine's MEMBER_IO_MAX */
#define CANDIDATE_US 60000000ull

/* ---- requests ------------------------------------------------------------------------------- */

static struct dev_io *io_get(struct array *a)
{
	struct dev_io *io;

	if (!a->io_free) {
		struct dev_io *chunk = calloc(IO_CHUNK, sizeof(*chunk));

		if (!a->io_chunk)
			a->io_chunk = calloc(IO_CHUNKS_MAX, sizeof(struct dev_io *));
		assert(chunk && a->io_chunk && a->io_chunks < IO_CHUNKS_MAX);
		a->io_chunk[a->io_chunks++] = chunk;
		for (int i = 0; i < IO_CHUNK; i++) {
			chunk[i].next = a->io_free;
			a->io_free = &chunk[i];
		}
	}
	io = a->io_free;
	a->io_free = io->next;
	return io;
}

static void done_push(struct array *a, uint64_t id, int err)
{
	struct event ev = {.type = EV_DEV_DONE};

	ev.done.id = id;
	ev.done.err = err;
	pump_push(a, &ev);
}

void dev_io(struct array *a, const struct out *o)
{
	struct dev *d = &a->dev[o->io.dev];
	struct dev_io *io;

	assert(o->io.dev < DDR_MAX_DEVS);
	if (!d->used || d->closing) {
		done_push(a, o->io.id, -ENOTCONN);
		return;
	}
	io = io_get(a);
	io->d = d;
	io->req = (struct member_req){.id = o->io.id,
				      .op = o->io.op,
				      .flags = o->io.flags,
				      .offset_bytes = o->io.offset,
				      .bytes = o->io.bytes,
				      .iov = o->io.iov,
				      .iov_count = o->io.iov_count};
	a->under_way++;
	member_submit(d->m, &io->req);
}

static void member_done(void *arg, struct member_req *req, int err)
{
	struct dev *d = arg;
	struct array *a = d->a;
	struct dev_io *io = (struct dev_io *)(void *)req;

	_Static_assert(offsetof(struct dev_io, req) == 0, "a request is found by its member_req");
	assert(a->under_way);
	a->under_way--;
	if ((err == -ECONNRESET || err == -ECANCELED) &&
	    (req->op == DEV_WRITE || req->op == DEV_ZEROES) && !(req->flags & DEV_F_LATE))
		d->zombie = true;
	io->next = a->io_free;
	a->io_free = io;
	done_push(a, req->id, err);
}

void dev_cancel(struct array *a, uint32_t dev)
{
	if (a->dev[dev].used && !a->dev[dev].closing)
		member_cancel(a->dev[dev].m);
}

/* ---- connections ---------------------------------------------------------------------------- */

static void down_push(struct dev *d, int err)
{
	struct event ev = {.type = EV_DEV_DOWN};

	d->up = false;
	d->down_us = loop_now_us(d->a->loop);
	ev.dev.dev = d->index;
	ev.dev.err = err;
	pump_push(d->a, &ev);
}

static void up_push(struct dev *d)
{
	struct event ev = {.type = EV_DEV_UP};

	d->up = true;
	d->zombie = false;
	d->foreign &= d->told;
	if (!d->told)
		d->why[0] = '\0';
	ev.dev.dev = d->index;
	ev.dev.bytes = d->info.size_bytes;
	ev.dev.multiple = d->info.min_block_bytes;
	ev.dev.instance = d->info.instance;
	ev.dev.uri = d->uri;
	pump_push(d->a, &ev);
	array_say(d->a, d->told ? LOG_DEBUG : LOG_INFO, "%s is connected", d->uri);
}

/*
 * Where the fence of this node is only a wait, the engine hears of a connection when a heartbeat
 * came back that was sent after it was made (R7). That is for a virtual machine that is paused:
 * when it goes on, no clock of its own says how long that was, and its last heartbeat looks fresh,
 * while the others may have waited, and have gone on.
 *
 *  - What its kernel has, and what the engine sends on a connection from before the pause, is for
 *    the exporter to stop: it ends connections whose node is silent, earlier than the others go on
 *    (ddraid-export). Where it does not, nothing here can.
 *  - So whatever lands is sent on a connection that was made after the pause. A heartbeat that was
 *    sent after that comes back in a ring in which all its nodes have taken part after that: had
 *    they gone on without this one they would be in another ring, and here it is the view that
 *    changes first, which shuts the gate until a State names this node.
 *  - A connection older than heartbeat_limit needs no look: the gate is open by younger
 *    heartbeats only. So none is held for longer, and nobody who is no member yet waits for what
 *    may need the device.
 */
static void held_look(struct array *a)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS && a->devs_held; i++) {
		struct dev *d = &a->dev[i];

		if (!d->held || (engine_heartbeat_us(a->e) <= d->held_us &&
				 loop_now_us(a->loop) - d->held_us < a->tell_ms * 1000ull))
			continue;
		d->held = false;
		a->devs_held--;
		up_push(d);
	}
}

static void held_end(struct dev *d)
{
	d->a->devs_held -= d->held;
	d->held = false;
}

static void member_up(void *arg, const struct member_info *info)
{
	struct dev *d = arg;

	d->info = *info;
	if (!d->a->lease_ms) {
		up_push(d);
		return;
	}
	d->a->devs_held += !d->held;
	d->held = true;
	d->held_us = loop_now_us(d->a->loop);
}

static void member_down(void *arg, int err, const char *why)
{
	struct dev *d = arg;

	held_end(d);
	d->told &= err == -ECANCELED;
	d->foreign &= d->told;
	if (!d->told)
		snprintf(d->why, sizeof(d->why), "%s", why);
	if (d->closing)
		return;
	array_say(d->a, d->told ? LOG_DEBUG : LOG_WARNING, "%s", why);
	if (d->up)
		down_push(d, err);
	else if (!d->down_us)
		d->down_us = loop_now_us(d->a->loop);
}

static void member_retry(void *arg, int err, const char *why)
{
	struct dev *d = arg;

	(void)err;
	snprintf(d->why, sizeof(d->why), "%s", why);
}

static void member_warn(void *arg, const char *why)
{
	struct dev *d = arg;

	snprintf(d->why, sizeof(d->why), "%s", why ? why : "");
	if (why)
		array_say(d->a, LOG_ERR, "%s", why);
	else
		array_say(d->a, LOG_NOTICE, "%s: the file that is in use has its name again",
			  d->uri);
}

static void member_closed(void *arg)
{
	struct dev *d = arg;
	struct array *a = d->a;

	held_end(d);
	if (d->up)
		down_push(d, -ESHUTDOWN);
	d->used = d->closing = false;
	d->m = NULL;
	a->devs_open--;
	if (a->phase == ARRAY_PHASE_CLOSE)
		array_close_check(a);
}

static const struct member_cb member_cb = {
    .up = member_up,
    .down = member_down,
    .done = member_done,
    .closed = member_closed,
    .retry = member_retry,
    .warn = member_warn,
};

void dev_cfg_fill(const struct array *a, struct member_cfg *cfg)
{
	const struct config *c = a->env.conf;

	member_cfg_init(cfg);
	cfg->max_inflight_bytes = c->member_inflight_bytes;
	cfg->connections = c->member_connections;
	cfg->connect_timeout_ms = c->member_connect_ms;
	cfg->request_timeout_ms = c->member_request_ms;
	cfg->zombie_timeout_ms = c->member_zombie_ms;
	cfg->shared = strcmp(c->cluster, "alone") != 0;
	cfg->force = a->live.options.force_members;
}

static struct dev *dev_by_uri(struct array *a, const char *uri)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		if (a->dev[i].used && !a->dev[i].closing && !strcmp(a->dev[i].uri, uri))
			return &a->dev[i];
	}
	return NULL;
}

static void dev_open_uri(struct array *a, const char *uri)
{
	struct member_cfg cfg;
	struct dev *d = dev_by_uri(a, uri);
	const char *why = "";
	uint32_t i = 0;
	int err;

	if (!strcmp(uri, STORE_NOWHERE))
		return;
	if (d) {
		d->opened_us = loop_now_us(a->loop);
		return;
	}
	while (i < DDR_MAX_DEVS && a->dev[i].used)
		i++;
	if (i == DDR_MAX_DEVS) {
		array_say(a, LOG_ERR, "%s can't be opened: there are %d devices already", uri,
			  DDR_MAX_DEVS);
		return;
	}
	d = &a->dev[i];
	memset(d, 0, sizeof(*d));
	d->a = a;
	d->index = i;
	d->opened_us = loop_now_us(a->loop);
	snprintf(d->uri, sizeof(d->uri), "%s", uri);
	dev_cfg_fill(a, &cfg);
	err = member_open(uri, a->loop, &cfg, &member_cb, d, &d->m, &why);
	if (err) {
		array_say(a, LOG_ERR, "%s can't be opened: %s (%s)", uri, why, strerror(-err));
		return;
	}
	d->used = true;
	a->devs_open++;
	if (a->lease_ms || a->alone)
		member_lease(d->m, a->lease_us);
}

bool dev_open_added(struct array *a, const char *uri)
{
	struct dev *d;

	dev_open_uri(a, uri);
	d = dev_by_uri(a, uri);
	if (d)
		d->added = true;
	return d;
}

/*
 * R7, where nothing ends what this node has sent: what it has not sent by then, it must not send.
 * Of a daemon alone that is its lease of the array (core/cluster/use.c): nobody fences it, and
 * another one may use the members when it stood still for longer. The engine looks at that lease
 * too, but what it has given to a member's queue by then it does not take back.
 */
void dev_lease(struct array *a)
{
	uint64_t heard_us = engine_heard_us(a->e);
	uint64_t until_us = heard_us ? heard_us + a->lease_ms * 1000ull : 0;

	if (!a->lease_ms && !a->alone)
		return;
	if (a->alone)
		until_us = engine_use_until_us(a->e);
	if (a->devs_held)
		held_look(a);
	if (until_us == a->lease_us)
		return;
	a->lease_us = until_us;
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (a->dev[i].used && !a->dev[i].closing)
			member_lease(a->dev[i].m, until_us);
}

static uint32_t member_of_uri(const struct array *a, const char *uri)
{
	uint32_t i = 0;

	while (i < a->live.count && strcmp(a->live.uri[i], uri) != 0)
		i++;
	return i;
}

/* This node looks there after a restart, too. */
void dev_add(struct array *a, const char *uri)
{
	if (!store_uri_ok(uri))
		array_say(a, LOG_ERR, "'add' of a device with a name that can't be one");
	else if (member_of_uri(a, uri) < a->live.count || !strcmp(a->live.adding, uri))
		dev_open_added(a, uri);
	else
		life_adding(a, uri);
}

void dev_open_all(struct array *a)
{
	for (uint32_t i = 0; i < a->live.count; i++)
		dev_open_uri(a, a->live.uri[i]);
	if (a->live.adding[0])
		dev_open_added(a, a->live.adding);
}

static bool member_is_up(const struct array *a, uint32_t member)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		if (a->dev[i].used && a->dev[i].up && a->e &&
		    engine_member_of_dev(a->e, i) == member)
			return true;
	}
	return false;
}

/* Up, and not one that waits to be replaced. */
static bool member_is_used(const struct array *a, uint32_t member)
{
	struct engine_status st;

	if (!a->e || !member_is_up(a, member))
		return false;
	engine_status(a->e, &st);
	return member < st.map.n && st.map.member[member].state != MEMBER_MISSING &&
	       st.map.member[member].state != MEMBER_FAULTY;
}

/* This node may have been away when a member was replaced. One that it uses is where it is. */
void dev_learn(struct array *a, const struct store_array *desc)
{
	uint32_t moved = 0;

	if (a->phase >= ARRAY_PHASE_STOP)
		return;
	if (a->e)
		dev_settle(a); /* what this node has by now */
	for (uint32_t i = 0; i < a->live.count && i < desc->count; i++) {
		if (!strcmp(a->live.agreed[i], desc->agreed[i]))
			continue;
		strcpy(a->live.agreed[i], desc->agreed[i]);
		if (a->live.guessed)
			continue; /* it was this node's own until now */
		moved |= 1u << i;
		if (!strcmp(a->live.uri[i], desc->agreed[i]) || member_is_used(a, i))
			continue;
		strcpy(a->live.uri[i], desc->agreed[i]);
		if (a->phase != ARRAY_PHASE_RUN)
			continue;
		array_say(a, LOG_NOTICE, "member %u is at %s, as others say", i, a->live.uri[i]);
		dev_open_uri(a, a->live.uri[i]);
	}
	a->live.guessed = false;
	if (moved)
		life_changed(a, moved, 0); /* which of the two it has become */
}

static void dev_close(struct dev *d)
{
	if (!d->used || d->closing)
		return;
	d->closing = true;
	member_close(d->m);
}

void dev_close_all(struct array *a)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		dev_close(&a->dev[i]);
}

static bool uri_known(const struct array *a, const char *uri)
{
	return member_of_uri(a, uri) < a->live.count;
}

static void older_tell(struct array *a, struct dev *d)
{
	bool older = engine_dev_older(a->e, d->index), was = d->older;

	if (!d->up)
		return;
	d->older = older;
	d->told = older || (d->told && !was); /* it is connected anew now and then */
	if (!older || was)
		return;
	array_say(a, LOG_ERR,
		  "%s has come back as an older copy of itself: it lacks what this node "
		  "wrote to its dirty log before it went away. It does not count before "
		  "all that may have been written to it since has been copied; see what "
		  "its exporter serves",
		  d->uri);
}

static void lands_tell(struct array *a, struct dev *d)
{
	bool lands = engine_dev_lands(a->e, d->index);

	if (lands && !d->lands)
		array_say(
		    a, LOG_INFO,
		    "%s leads to a member that was lost under another URI, with writes on their "
		    "way. It is used once these can't land any more: evict and zombie_timeout "
		    "in ddraid.conf say how long that is",
		    d->uri);
	d->lands = lands;
}

/* A URI that leads to another device, here or on all nodes, or to one that has changed: it is not
 * used, and is told of. */
static void foreign_tell(struct array *a, struct dev *d)
{
	const char *what = engine_dev_foreign(a->e, d->index);
	uint32_t i = member_of_uri(a, d->uri);
	bool is = what && i < a->live.count && !member_is_up(a, i);
	bool misfit = engine_dev_misfit(a->e, d->index) != NULL;
	bool unfit = engine_dev_unfit(a->e, d->index);
	char why[sizeof(d->why)];

	if (is) {
		snprintf(why, sizeof(why), "%s member %u: %s",
			 misfit ? "it can't be" : "this is not", i, what);
		if (!d->foreign || strcmp(why, d->why) != 0)
			array_say(a, LOG_ERR, "%s %s member %u: %s; it is not used. %s", d->uri,
				  misfit ? "can't be" : "is not", i, what,
				  misfit ? "See what has become of the device; connect the right "
					   "one, or replace it with 'ddraidctl add'"
					 : "See where this URI leads to on this node");
		strcpy(d->why, why);
		d->foreign = true;
		d->told = unfit; /* it is connected anew now and then */
	} else if (d->foreign && !(d->told && (!d->up || unfit))) {
		d->why[0] = '\0';
		d->foreign = d->told = false;
	}
}

/* What is read back counts, not the order in which the URIs are written. A mask of members. */
static uint32_t dev_found(struct array *a, struct dev *d, uint32_t *added)
{
	uint8_t m = engine_member_of_dev(a->e, d->index);
	uint32_t was = member_of_uri(a, d->uri), found = 0;

	if (!d->used || d->closing || m >= a->live.count)
		return 0;
	if (was != m) {
		found = 1u << m;
		if (was < a->live.count) {
			found |= 1u << was;
			strcpy(a->live.uri[was], a->live.uri[m]);
		} else {
			array_say(a, LOG_NOTICE, "member %u is now %s", m, d->uri);
		}
		strcpy(a->live.uri[m], d->uri);
		if (!strcmp(a->live.adding, d->uri))
			a->live.adding[0] = '\0';
	}
	if (d->added && strcmp(a->live.agreed[m], d->uri) != 0) {
		strcpy(a->live.agreed[m], d->uri);
		*added |= 1u << m;
	}
	d->added = false;
	return found | *added;
}

void dev_settle(struct array *a)
{
	uint32_t found = 0, added = 0;

	if (!engine_map(a->e)->n)
		a->no_map_us = loop_now_us(a->loop);
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		if (!a->dev[i].used || a->dev[i].closing)
			continue;
		foreign_tell(a, &a->dev[i]);
		older_tell(a, &a->dev[i]);
		lands_tell(a, &a->dev[i]);
	}
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		found |= dev_found(a, &a->dev[i], &added);
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		struct dev *d = &a->dev[i];

		if (!d->used || d->closing || d->zombie || engine_dev_busy(a->e, i) ||
		    engine_member_of_dev(a->e, i) != 0xff || uri_known(a, d->uri) ||
		    loop_now_us(a->loop) - d->opened_us < CANDIDATE_US ||
		    loop_now_us(a->loop) - a->no_map_us < CANDIDATE_US)
			continue;
		array_say(a, LOG_INFO, "%s is no member and is closed", d->uri);
		if (!strcmp(d->uri, a->live.adding))
			life_not_added(a, d->uri);
		dev_close(d);
	}
	if (found)
		life_changed(a, found, added);
}

void dev_free(struct array *a)
{
	for (uint32_t i = 0; i < a->io_chunks; i++)
		free(a->io_chunk[i]);
	free(a->io_chunk);
}
