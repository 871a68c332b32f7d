// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The block device front-end: the array as /dev/ddraidN, by ddraid's own driver (kmod/). The
 * driver hands out the requests of whoever has the device open, and holds them while nobody
 * serves it; so a device outlives the daemon. kmod/ddraid_uapi.h is the interface, doc/kmod.md
 * tells of both sides.
 *
 *	state	session (an open of DDRAID_CONTROL)	next
 *	SHUT	without a disk, or none			SERVING (serve)
 *	SERVING	has the disk				SHUT (reset, remove; lost: an ioctl failed),
 *							HELD
 *	HELD	has the disk, takes nothing more in	SHUT (reset, remove)
 *
 * A request:
 *
 *	state	where it is				next
 *	FREE						ROOM (handed out by the driver)
 *	ROOM	waits for room in the arena		PULL (WRITE), AT_SINK
 *	PULL	its bytes are fetched by the next turn	AT_SINK
 *	AT_SINK	submitted; the buffer is the sink's	ANSWER; FREE (failed when HELD, or
 *							the disk is gone)
 *	ANSWER	the answer goes by the next turn	FREE
 *
 * There is one EXCHANGE per turn of the loop, with all answers and all PULLs that have gathered;
 * it brings new requests. The driver never waits in it, so this needs no thread. What is not
 * answered when the session ends, the driver hands to the next one: that is how HELD keeps an
 * error of the daemon's end from a consumer.
 *
 * All data is in an arena that is there, and locked, from open on: a page that must first be made
 * free might have to be written to this very device. Requests wait for room in their order.
 *
 * Called by the runtime through the port and by the loop.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <syslog.h>
#include <unistd.h>

#include "daemon/ports/front.h"
#include "kmod/ddraid_uapi.h"

#define SHIM_REQS 256                /* handed out to us at once */
#define SHIM_DEPTH 128               /* of each of the driver's queues */
#define SHIM_ARENA_BYTES (16u << 20) /* data of all of them */
#define SHIM_ARENA_BLOCKS (SHIM_ARENA_BYTES / DDR_BLOCK_BYTES)
#define SHIM_ROW_MAX (1u << 20) /* readahead grows with what is told as optimal */
#define SHIM_EXCHANGES 4        /* of one turn */

_Static_assert(SHIM_ARENA_BYTES >= 4 * DDRAID_IO_MAX, "the largest request finds room");
_Static_assert(SHIM_REQS <= 1 << 16, "must fit the tag");
_Static_assert(DDRAID_UUID_BYTES == DDR_UUID_BYTES && DDRAID_NAME_BYTES == DDR_NAME_BYTES,
	       "the same on both sides");
_Static_assert(FRONT_READ == (int)DDRAID_READ && FRONT_WRITE == (int)DDRAID_WRITE &&
		   FRONT_FLUSH == (int)DDRAID_FLUSH && FRONT_ZEROES == (int)DDRAID_ZEROES &&
		   FRONT_F_FUA == (int)DDRAID_FUA && FRONT_F_UNMAP == (int)DDRAID_UNMAP,
	       "passed through");

enum shim_state { SHIM_SHUT, SHIM_SERVING, SHIM_HELD };
enum io_state { IO_S_FREE, IO_S_ROOM, IO_S_PULL, IO_S_AT_SINK, IO_S_ANSWER };

struct shim_io {
	struct shim_io *next; /* of the list that it is in */
	enum io_state state;
	uint32_t disk;       /* shim.disk when it was handed out */
	uint32_t generation; /* tells late or double completions apart */
	struct ddraid_request req;
	uint32_t first, blocks; /* in the arena; blocks 0: none */
	int result;
};

struct io_list {
	struct shim_io *first, **last;
};

struct front_shim {
	struct front front; /* must be first */
	struct front_cfg cfg;
	enum shim_state state;
	struct loop_fd watch; /* fd -1: no session */
	struct loop_hook hook;
	bool ready;    /* requests wait at the driver */
	uint32_t disk; /* counts them: one that was revoked is another one */
	uint32_t next_generation;
	char device[32];
	uint8_t *arena;
	uint8_t used[SHIM_ARENA_BLOCKS];
	uint32_t used_blocks, look; /* where the next search begins */
	struct io_list room, act;
	struct shim_io *free;
	uint32_t held; /* not free */
	struct front_stats stats;
	struct shim_io io[SHIM_REQS];
	struct ddraid_action action[DDRAID_BATCH_MAX];
	struct shim_io *action_of[DDRAID_BATCH_MAX];
	struct ddraid_request request[DDRAID_BATCH_MAX];
};

static struct front_shim *shim_of(struct front *front)
{
	return (struct front_shim *)(void *)front;
}

__attribute__((format(printf, 3, 4))) static void shim_log(struct front_shim *f, int priority,
							   const char *format, ...)
{
	char text[FRONT_WHY_BYTES];
	va_list ap;

	if (!f->cfg.sink.log)
		return;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	f->cfg.sink.log(f->cfg.sink.arg, priority, text);
}

static void list_init(struct io_list *l)
{
	l->first = NULL;
	l->last = &l->first;
}

static void list_put(struct io_list *l, struct shim_io *io)
{
	io->next = NULL;
	*l->last = io;
	l->last = &io->next;
}

static struct shim_io *list_take(struct io_list *l)
{
	struct shim_io *io = l->first;

	l->first = io->next;
	if (!l->first)
		l->last = &l->first;
	return io;
}

/* ---- the arena ------------------------------------------------------------------------------ */

static uint32_t run_free(const struct front_shim *f, uint32_t at, uint32_t blocks)
{
	uint32_t n = 0;

	while (n < blocks && at + n < SHIM_ARENA_BLOCKS && !f->used[at + n])
		n++;
	return n;
}

/* The first run from where the last one ended. */
static bool arena_take(struct front_shim *f, struct shim_io *io)
{
	uint32_t blocks = io->req.bytes / DDR_BLOCK_BYTES, at = f->look, seen = 0;

	if (f->used_blocks + blocks > SHIM_ARENA_BLOCKS)
		return false;
	while (seen < SHIM_ARENA_BLOCKS) {
		uint32_t n = run_free(f, at, blocks);

		if (n == blocks) {
			memset(f->used + at, 1, blocks);
			f->used_blocks += blocks;
			f->stats.buffer_bytes += io->req.bytes;
			io->first = at;
			io->blocks = blocks;
			f->look = (at + blocks) % SHIM_ARENA_BLOCKS;
			return true;
		}
		seen += n + 1;
		at += n + 1;
		if (at >= SHIM_ARENA_BLOCKS)
			at = 0;
	}
	return false;
}

static void arena_give(struct front_shim *f, struct shim_io *io)
{
	memset(f->used + io->first, 0, io->blocks);
	f->used_blocks -= io->blocks;
	f->stats.buffer_bytes -= (uint64_t)io->blocks * DDR_BLOCK_BYTES;
	io->blocks = 0;
}

static void *io_data(const struct front_shim *f, const struct shim_io *io)
{
	return io->blocks ? f->arena + (size_t)io->first * DDR_BLOCK_BYTES : NULL;
}

/* ---- requests ------------------------------------------------------------------------------- */

static void io_free(struct front_shim *f, struct shim_io *io)
{
	if (io->blocks)
		arena_give(f, io);
	io->state = IO_S_FREE;
	io->next = f->free;
	f->free = io;
	f->held--;
}

static void io_submit(struct front_shim *f, struct shim_io *io)
{
	struct front_req req = {.tag = (uint64_t)f->cfg.id << 56 | (uint64_t)(io - f->io) << 32 |
				       io->generation,
				.op = (enum front_op)io->req.op,
				.flags = io->req.flags,
				.offset = io->req.offset,
				.bytes = io->req.bytes,
				.data = io_data(f, io)};

	io->state = IO_S_AT_SINK;
	f->stats.inflight++;
	f->cfg.sink.submit(f->cfg.sink.arg, &req);
}

static void io_answer(struct front_shim *f, struct shim_io *io, int err)
{
	io->result = err;
	io->state = IO_S_ANSWER;
	list_put(&f->act, io);
}

static bool with_data(const struct shim_io *io)
{
	return io->req.op == DDRAID_READ || io->req.op == DDRAID_WRITE;
}

/* Gives room to those that wait for it, in their order. True: something was submitted. */
static bool io_room(struct front_shim *f)
{
	bool submitted = false;

	while (f->state == SHIM_SERVING && f->room.first) {
		struct shim_io *io = f->room.first;

		if (with_data(io) && !arena_take(f, io))
			break;
		list_take(&f->room);
		if (io->req.op == DDRAID_WRITE) {
			io->state = IO_S_PULL;
			list_put(&f->act, io);
		} else {
			io_submit(f, io);
			submitted = true;
		}
	}
	return submitted;
}

static void io_handed(struct front_shim *f, const struct ddraid_request *req)
{
	struct shim_io *io = f->free;

	/* The driver is the kernel: what it says is so. Half a block would go over the end of its
	 * room in the arena. */
	assert(io && req->op <= DDRAID_ZEROES);
	assert(req->offset % DDR_BLOCK_BYTES == 0 && req->bytes % DDR_BLOCK_BYTES == 0);
	assert(req->op > DDRAID_WRITE || (req->bytes && req->bytes <= DDRAID_IO_MAX));
	f->free = io->next;
	f->held++;
	io->req = *req;
	io->disk = f->disk;
	io->generation = f->next_generation++;
	io->state = IO_S_ROOM;
	list_put(&f->room, io);
	f->stats.requests[req->op]++;
	if (req->op == DDRAID_READ)
		f->stats.read_bytes += req->bytes;
	else if (req->op == DDRAID_WRITE)
		f->stats.write_bytes += req->bytes;
}

/* Those that are not at the sink are forgotten; the driver has them still, or has failed them. */
static void io_drop_all(struct front_shim *f)
{
	list_init(&f->room);
	list_init(&f->act);
	for (uint32_t i = 0; i < SHIM_REQS; i++) {
		if (f->io[i].state != IO_S_FREE && f->io[i].state != IO_S_AT_SINK)
			io_free(f, &f->io[i]);
	}
}

/* ---- the driver ----------------------------------------------------------------------------- */

static void session_end(struct front_shim *f)
{
	f->state = SHIM_SHUT;
	f->device[0] = '\0';
	f->disk++;
	f->ready = false;
	io_drop_all(f);
	if (f->watch.fd < 0)
		return;
	loop_fd_del(f->cfg.loop, &f->watch);
	close(f->watch.fd);
	f->watch.fd = -1;
}

/* Not a consumer's doing. The disk stays, and is taken over by the next serve. */
static void session_lost(struct front_shim *f, const char *what, int err)
{
	shim_log(f, LOG_ERR, "%s: the driver refused %s: %s", f->device, what, strerror(err));
	session_end(f);
}

static uint32_t actions_make(struct front_shim *f)
{
	uint32_t n = 0;

	while (f->act.first && n < DDRAID_BATCH_MAX) {
		struct shim_io *io = list_take(&f->act);
		bool pull = io->state == IO_S_PULL;
		bool data = pull || (io->req.op == DDRAID_READ && !io->result);

		f->action[n] = (struct ddraid_action){
		    .tag = io->req.tag,
		    .what = pull ? DDRAID_PULL : DDRAID_DONE,
		    .pass = io->req.pass,
		    .data = data ? (uintptr_t)io_data(f, io) : 0,
		    .result = pull ? 0 : io->result,
		};
		f->action_of[n++] = io;
	}
	return n;
}

static void actions_done(struct front_shim *f, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct shim_io *io = f->action_of[i];
		int status = f->action[i].status;

		if (status)
			shim_log(f, LOG_ERR, "%s: %s of request %#x was refused: %s", f->device,
				 f->action[i].what == DDRAID_PULL ? "the fetching" : "the answer",
				 io->req.tag, strerror(-status));
		if (io->state == IO_S_FREE)
			continue; /* the sink has ended the session, from within submit */
		/* One that the driver does not know is answered; another must not be left without.
		 */
		if (status && status != -ESTALE && f->action[i].result != -EIO &&
		    io->disk == f->disk)
			io_answer(f, io, -EIO);
		else if (f->action[i].what == DDRAID_DONE || status || io->disk != f->disk ||
			 f->state == SHIM_HELD)
			io_free(f, io);
		else
			io_submit(f, io);
	}
}

/* False: there is no session any more. take: new requests as well. */
static bool exchange(struct front_shim *f, bool take)
{
	uint32_t room = take && f->state == SHIM_SERVING ? SHIM_REQS - f->held : 0;
	struct ddraid_exchange x = {
	    .actions = (uintptr_t)f->action,
	    .requests = (uintptr_t)f->request,
	    .actions_count = actions_make(f),
	    .requests_room = room < DDRAID_BATCH_MAX ? room : DDRAID_BATCH_MAX,
	};
	uint32_t disk = f->disk;

	if (ioctl(f->watch.fd, DDRAID_IOC_EXCHANGE, &x) < 0) {
		for (uint32_t i = 0; i < x.actions_count; i++)
			io_free(f, f->action_of[i]);
		session_lost(f, "an exchange", errno);
		return false;
	}
	f->ready = x.waiting;
	for (uint32_t i = 0; i < x.requests_got; i++)
		io_handed(f, &f->request[i]);
	actions_done(f, x.actions_count);
	return f->disk == disk && f->state != SHIM_SHUT;
}

static bool may_take(const struct front_shim *f)
{
	return f->ready && f->state == SHIM_SERVING && f->held < SHIM_REQS;
}

static bool turn_end(void *arg)
{
	struct front_shim *f = arg;
	uint32_t inflight = f->stats.inflight;
	bool submitted;

	if (f->state == SHIM_SHUT)
		return false;
	submitted = io_room(f);
	for (int i = 0; i < SHIM_EXCHANGES && (f->act.first || may_take(f)); i++) {
		if (!exchange(f, true))
			return true;
		submitted |= io_room(f);
	}
	/* Level-triggered: not asked while there is no place for what waits. */
	if (loop_fd_mod(f->cfg.loop, &f->watch,
			f->state == SHIM_SERVING && f->held < SHIM_REQS ? LOOP_READ : 0) < 0)
		session_lost(f, "to be polled", EIO);
	return submitted || f->stats.inflight != inflight || f->act.first || may_take(f);
}

static void fd_ready(void *arg, uint32_t events)
{
	struct front_shim *f = arg;

	(void)events;
	f->ready = true;
}

/* ---- the port's hooks ----------------------------------------------------------------------- */

static int session_open(struct front_shim *f, char *why)
{
	struct ddraid_version v = {0};
	int fd = open(DDRAID_CONTROL, O_RDWR | O_NONBLOCK | O_CLOEXEC), err;

	if (fd < 0) {
		err = -errno;
		snprintf(
		    why, FRONT_WHY_BYTES,
		    "%s can't be opened: %s; load ddraid's driver (modprobe ddraid), or attach "
		    "with --via nbd",
		    DDRAID_CONTROL, strerror(-err));
		return err;
	}
	if (ioctl(fd, DDRAID_IOC_VERSION, &v) < 0 || v.api != DDRAID_API_VERSION) {
		snprintf(
		    why, FRONT_WHY_BYTES,
		    "the kernel's ddraid driver speaks version %u of its interface, and ddraidd "
		    "version %u: install the same release of both, and load the driver anew",
		    v.api, DDRAID_API_VERSION);
		close(fd);
		return -EPROTO;
	}
	f->watch = (struct loop_fd){.fd = fd, .ready = fd_ready, .arg = f};
	err = loop_fd_add(f->cfg.loop, &f->watch, 0);
	if (!err)
		return 0;
	snprintf(why, FRONT_WHY_BYTES, "can't poll %s: %s", DDRAID_CONTROL, strerror(-err));
	close(fd);
	f->watch.fd = -1;
	return err;
}

static int status_of(const struct front_shim *f, const uint8_t *uuid, struct ddraid_status *st)
{
	memset(st, 0, sizeof(*st));
	if (uuid)
		memcpy(st->uuid, uuid, sizeof(st->uuid));
	if (f->watch.fd < 0)
		return -ENOTCONN;
	return ioctl(f->watch.fd, DDRAID_IOC_STATUS, st) < 0 ? -errno : 0;
}

static int attach_failed(const struct ddraid_attach *at, int err, char *why)
{
	switch (err) {
	case -EBUSY:
		snprintf(why, FRONT_WHY_BYTES,
			 "another ddraidd serves the disk of %s on this node, or has not ended yet",
			 at->name);
		break;
	case -EEXIST:
		snprintf(
		    why, FRONT_WHY_BYTES,
		    "there is a disk named %s already, of another array: detach that one first",
		    at->name);
		break;
	case -EINVAL:
		snprintf(why, FRONT_WHY_BYTES,
			 "the disk of %s is there from before, with another name, block or size: "
			 "close what uses it and 'ddraidctl detach --disconnect' it",
			 at->name);
		break;
	default:
		snprintf(why, FRONT_WHY_BYTES, "the driver makes no disk for %s: %s", at->name,
			 strerror(-err));
	}
	return err;
}

static uint32_t io_opt(const struct front_export *ex)
{
	uint32_t row = ex->row_bytes;

	while (row > SHIM_ROW_MAX)
		row /= 2;
	return row >= ex->preferred_bytes && row % ex->preferred_bytes == 0 ? row : 0;
}

static int shim_attach(struct front_shim *f, const struct front_export *ex, char *why)
{
	struct ddraid_attach at = {
	    .api = DDRAID_API_VERSION,
	    .logical_block = front_block_bytes(ex),
	    .physical_block = ex->preferred_bytes,
	    .io_opt = io_opt(ex),
	    .io_max = DDRAID_IO_MAX,
	    .zeroes_max = DDR_MAX_FRONT_IO_BYTES,
	    .depth = SHIM_DEPTH,
	    .away_ms = ex->away_ms,
	    .size = ex->size_bytes,
	    .cookie = ex->token,
	};
	struct ddraid_status was;
	bool there = !status_of(f, ex->uuid, &was), same = there && was.cookie == ex->token;

	if (!same)
		at.flags = DDRAID_FRESH;
	memcpy(at.uuid, ex->uuid, sizeof(at.uuid));
	memcpy(at.name, ex->name, sizeof(at.name));
	if (ioctl(f->watch.fd, DDRAID_IOC_ATTACH, &at) < 0)
		return attach_failed(&at, -errno, why);
	snprintf(f->device, sizeof(f->device), "/dev/ddraid%u", at.index);
	if (same)
		shim_log(f, LOG_NOTICE, "%s is taken over, with %u requests that waited", f->device,
			 at.waiting);
	else if (there && was.openers)
		shim_log(
		    f, LOG_ERR,
		    "the disk of an earlier daemon was removed: %u opens of it have failed (R6)",
		    was.openers);
	return 0;
}

static int front_shim_serve(struct front *front, const struct front_export *ex, char *why)
{
	struct front_shim *f = shim_of(front);
	uint32_t block = front_block_bytes(ex);
	long page = sysconf(_SC_PAGESIZE);
	int err;

	assert(f->state == SHIM_SHUT);
	if (!memchr(ex->name, 0, sizeof(ex->name)) || !ex->size_bytes || ex->size_bytes % block ||
	    ex->size_bytes > INT64_MAX || ex->preferred_bytes < block) {
		snprintf(why, FRONT_WHY_BYTES, "an array of %llu bytes can't be a disk",
			 (unsigned long long)ex->size_bytes);
		return -EINVAL;
	}
	if (block > page) {
		snprintf(
		    why, FRONT_WHY_BYTES,
		    "the blocks of %.64s have %u bytes, and those of the kernel's disks at most "
		    "%ld: use it by NBD (qemu takes such blocks), or make it with a --stripe of "
		    "that size",
		    ex->name, block, page);
		return -EINVAL;
	}
	/* The driver would hand them out again, and both would be written, in any order. */
	if (f->stats.inflight) {
		snprintf(why, FRONT_WHY_BYTES, "requests of its last session have not ended");
		return -EBUSY;
	}
	if (f->watch.fd < 0) {
		err = session_open(f, why);
		if (err)
			return err;
	}
	err = shim_attach(f, ex, why);
	if (err)
		return err;
	f->state = SHIM_SERVING;
	f->ready = true;
	return 0;
}

static void front_shim_complete(struct front *front, uint64_t tag, int err)
{
	struct front_shim *f = shim_of(front);
	uint32_t at = tag >> 32 & 0xffffff;
	struct shim_io *io = &f->io[at];

	assert(tag >> 56 == f->cfg.id && at < SHIM_REQS);
	assert(io->state == IO_S_AT_SINK && io->generation == (uint32_t)tag);
	f->stats.inflight--;
	if (err)
		f->stats.failed++;
	if (io->disk != f->disk || (err && f->state == SHIM_HELD))
		io_free(f, io);
	else
		io_answer(f, io, err);
}

/* What the sink has completed is true, whatever follows. */
static void answer_what_is_done(struct front_shim *f)
{
	for (int i = 0; i < SHIM_EXCHANGES && f->state != SHIM_SHUT && f->act.first; i++) {
		if (!exchange(f, false))
			return;
	}
}

static void front_shim_hold(struct front *front)
{
	struct front_shim *f = shim_of(front);

	if (f->state == SHIM_SERVING)
		f->state = SHIM_HELD;
}

static void front_shim_reset(struct front *front)
{
	struct front_shim *f = shim_of(front);
	struct ddraid_status st;

	front_shim_hold(front); /* what is fetched now is not submitted any more */
	answer_what_is_done(f);
	if (f->state == SHIM_SHUT)
		return;
	if (!status_of(f, NULL, &st)) {
		f->stats.dropped += st.openers;
		shim_log(f, LOG_NOTICE, "%s is revoked: %u opens, %u requests fail", f->device,
			 st.openers, st.waiting + st.handed);
	}
	if (ioctl(f->watch.fd, DDRAID_IOC_REVOKE) < 0)
		shim_log(f, LOG_ERR, "%s can't be revoked: %s", f->device, strerror(errno));
	session_end(f);
}

static int front_shim_remove(struct front *front)
{
	struct front_shim *f = shim_of(front);

	if (f->state == SHIM_SHUT)
		return 0;
	/* Not with answers on their way: one that closed it may have waited for the last. */
	answer_what_is_done(f);
	if (f->state != SHIM_SHUT && ioctl(f->watch.fd, DDRAID_IOC_DETACH) < 0 && errno == EBUSY)
		return -EBUSY;
	session_end(f);
	return 0;
}

static void front_shim_close(struct front *front)
{
	struct front_shim *f = shim_of(front);

	answer_what_is_done(f);
	session_end(f);
	loop_hook_del(f->cfg.loop, &f->hook);
	munmap(f->arena, SHIM_ARENA_BYTES);
	free(f);
}

static void front_shim_stats(const struct front *front, struct front_stats *st)
{
	const struct front_shim *f = (const struct front_shim *)(const void *)front;
	struct ddraid_status of;

	*st = f->stats;
	if (f->state == SHIM_SHUT || status_of(f, NULL, &of))
		return;
	st->clients = of.openers;
	st->waiting = of.waiting;
}

static const char *front_shim_device(const struct front *front)
{
	const struct front_shim *f = (const struct front_shim *)(const void *)front;

	return f->state == SHIM_SHUT ? NULL : f->device;
}

/* By sysfs, because ATTACH is for a session without a disk: a session that began anew for it would
 * hand out again what this one has. */
static int front_shim_patience(struct front *front, uint32_t away_ms, char *why)
{
	struct front_shim *f = shim_of(front);
	char path[80];
	int fd, err = 0;

	snprintf(path, sizeof(path), "/sys/block/%s/ddraid/away_ms", f->device + strlen("/dev/"));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || dprintf(fd, "%u", away_ms) < 0)
		err = -errno;
	if (fd >= 0)
		close(fd);
	if (err)
		snprintf(why, FRONT_WHY_BYTES, "%s can't be written: %s", path, strerror(-err));
	return err;
}

static int discard(int fd, const char *name, const uint8_t uuid[DDR_UUID_BYTES], bool force,
		   char *why)
{
	struct ddraid_status st = {0};
	/* Takes its place, and goes with it. */
	struct ddraid_attach at = {.api = DDRAID_API_VERSION,
				   .flags = DDRAID_FRESH,
				   .logical_block = DDR_BLOCK_BYTES,
				   .physical_block = DDR_BLOCK_BYTES,
				   .io_max = DDR_BLOCK_BYTES,
				   .depth = 1,
				   .queues = 1,
				   .size = DDR_BLOCK_BYTES};

	memcpy(st.uuid, uuid, sizeof(st.uuid));
	memcpy(at.uuid, uuid, sizeof(at.uuid));
	snprintf(at.name, sizeof(at.name), "%s", name);
	if (ioctl(fd, DDRAID_IOC_STATUS, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (st.openers && !force) {
		snprintf(why, FRONT_WHY_BYTES,
			 "/dev/ddraid%u is open (%u opens), and waits for the array; close it, or "
			 "--disconnect to make all of its requests fail",
			 st.index, st.openers);
		return -EBUSY;
	}
	if (ioctl(fd, DDRAID_IOC_ATTACH, &at) < 0)
		return attach_failed(&at, -errno, why);
	return ioctl(fd, DDRAID_IOC_REVOKE) < 0 ? -errno : 0;
}

static int front_shim_discard(const char *name, const uint8_t uuid[DDR_UUID_BYTES], bool force,
			      uint32_t wait_ms, char *why)
{
	int fd = open(DDRAID_CONTROL, O_RDWR | O_NONBLOCK | O_CLOEXEC), err = -errno;

	(void)wait_ms; /* the driver knows who has it open */
	if (fd < 0) {
		if (err == -ENOENT || err == -ENXIO || err == -ENODEV)
			return 0; /* no driver, no disk */
		snprintf(
		    why, FRONT_WHY_BYTES,
		    "%s can't be opened: %s; so the disk of %s is there still, if there was one",
		    DDRAID_CONTROL, strerror(-err), name);
		return err;
	}
	snprintf(why, FRONT_WHY_BYTES, "the disk of %s can't be removed", name);
	err = discard(fd, name, uuid, force, why);
	close(fd);
	return err;
}

static struct front_ops shim_ops;

static int front_shim_open(const struct front_cfg *cfg, struct front **out, char *why)
{
	struct front_shim *f = calloc(1, sizeof(*f));
	int err;

	if (!f) {
		snprintf(why, FRONT_WHY_BYTES, "can't make a disk: out of memory");
		return -ENOMEM;
	}
	f->arena = mmap(NULL, SHIM_ARENA_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (f->arena == MAP_FAILED) {
		err = -errno;
		snprintf(
		    why, FRONT_WHY_BYTES,
		    "no %u MiB of memory for a disk's requests: %s; see LimitMEMLOCK, ulimit -l",
		    SHIM_ARENA_BYTES >> 20, strerror(-err));
		free(f);
		return err;
	}
	f->front.ops = &shim_ops;
	f->cfg = *cfg;
	f->watch.fd = -1;
	list_init(&f->room);
	list_init(&f->act);
	for (uint32_t i = SHIM_REQS; i--;) {
		f->io[i].next = f->free;
		f->free = &f->io[i];
	}
	f->hook = (struct loop_hook){.run = turn_end, .arg = f};
	loop_hook_add(cfg->loop, &f->hook);
	err = session_open(f, why);
	if (err) {
		front_shim_close(&f->front);
		return err;
	}
	*out = &f->front;
	return 0;
}

static struct front_ops shim_ops = {
    .name = "shim",
    .open = front_shim_open,
    .serve = front_shim_serve,
    .complete = front_shim_complete,
    .reset = front_shim_reset,
    .hold = front_shim_hold,
    .close = front_shim_close,
    .stats = front_shim_stats,
    .remove = front_shim_remove,
    .device = front_shim_device,
    .patience = front_shim_patience,
    .discard = front_shim_discard,
};
FRONT_REGISTER(shim_ops)
