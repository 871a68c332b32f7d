// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Every request is on the heap with buffers of its own, freed in its done(): under ASan a touch
 * after that ends the program, and so does a second done(). What the kernel or libnbd might write
 * into a buffer of a cancelled read is looked for in buffers that stay, filled after done().
 */
#include "tests/port/member_conformance.h"

#define DEAD_BEEF 0xdeadbeefu

_Noreturn void fail(const char *file, int line, const char *what)
{
	fprintf(stderr, "FAILED in %s: %s (%s:%d)\n", now_running, what, file, line);
	exit(1);
}

/* --- callbacks --- */

static void on_up(void *arg, const struct member_info *info)
{
	struct world *w = arg;

	CHECK(!w->is_up && !w->closing);
	w->is_up = true;
	w->ups++;
	w->info = *info;
	w->up_at_us = loop_clock_us(w->loop);
}

static void on_down(void *arg, int err, const char *why)
{
	struct world *w = arg;

	CHECK(w->is_up || !w->ups);
	CHECK(!w->closing && err < 0 && why[0]);
	w->is_up = false;
	w->downs++;
	w->down_err = err;
	snprintf(w->down_why, sizeof(w->down_why), "%s", why);
	w->out_at_down = w->out;
	w->down_at_us = loop_clock_us(w->loop);
	printf("  down: %s (%s)\n", strerror(-err), why);
}

static void on_retry(void *arg, int err, const char *why)
{
	struct world *w = arg;

	CHECK(!w->is_up && w->downs && err < 0 && why[0]);
	w->retries++;
}

void io_free(struct io *io)
{
	CHECK(io->magic == DEAD_BEEF);
	io->magic = 0;
	free(io->data);
	free(io->iov);
	free(io);
}

static void on_done(void *arg, struct member_req *req, int err)
{
	struct world *w = arg;
	struct io *io = (struct io *)req;

	CHECK(io->magic == DEAD_BEEF && io->w == w && !io->done && err <= 0);
	CHECK(req->id == (uint64_t)(uintptr_t)io && !w->is_closed);
	CHECK(w->out > 0);
	w->out--;
	w->answered++;
	io->done = true;
	io->err = err;
	if (io->then)
		io->then(io);
	else if (!io->kept)
		io_free(io);
}

static void on_closed(void *arg)
{
	struct world *w = arg;

	CHECK(w->closing && !w->is_closed && w->out == 0);
	w->is_closed = true;
}

static void on_fence(void *arg, uint64_t connection)
{
	struct world *w = arg;

	w->fences++;
	w->fence_connection = connection;
}

static const struct member_cb plain_cb = {
    .up = on_up, .down = on_down, .done = on_done, .closed = on_closed, .retry = on_retry};
static const struct member_cb fence_cb = {.up = on_up,
					  .down = on_down,
					  .done = on_done,
					  .closed = on_closed,
					  .fence_connection = on_fence};

/* --- waiting --- */

void turn(struct world *w)
{
	CHECK_INT(loop_turn(w->loop, 20000), 0);
}

void pause_ms(struct world *w, uint32_t ms)
{
	uint64_t until = loop_clock_us(w->loop) + ms * 1000ull;

	while (loop_clock_us(w->loop) < until)
		turn(w);
}

static struct world *start_with(const char *uri, const struct member_cfg *cfg,
				const struct member_cb *cb)
{
	struct world *w = calloc(1, sizeof(*w));
	const char *why = "?";
	int err;

	CHECK(w);
	w->uri = uri;
	w->cfg = *cfg;
	CHECK_INT(loop_new(&w->loop), 0);
	err = member_open(uri, w->loop, cfg, cb, w, &w->m, &why);
	if (err)
		fprintf(stderr, "%s\n", why);
	CHECK_INT(err, 0);
	CHECK(!w->is_up && !w->downs);
	return w;
}

struct world *world_start(const char *uri, const struct member_cfg *cfg)
{
	return start_with(uri, cfg, &plain_cb);
}

static struct world *until_up(struct world *w)
{
	WAIT(w, w->is_up || w->downs);
	CHECK(w->is_up);
	return w;
}

struct world *world_open(const char *uri, const struct member_cfg *cfg)
{
	return until_up(start_with(uri, cfg, &plain_cb));
}

struct world *world_open_fencing(const char *uri, const struct member_cfg *cfg)
{
	return until_up(start_with(uri, cfg, &fence_cb));
}

void world_close(struct world *w)
{
	w->closing = true;
	member_close(w->m);
	CHECK(!w->is_closed);
	WAIT(w, w->is_closed);
	loop_free(w->loop);
	free(w);
}

/* --- requests --- */

struct io *io_new(struct world *w, enum dev_op op, uint32_t flags, uint64_t offset, uint32_t bytes)
{
	struct io *io = calloc(1, sizeof(*io));
	void *data = NULL;

	CHECK(io);
	memset(&io->req, 0xee, sizeof(io->req)); /* the adapter's part may be anything */
	io->w = w;
	io->magic = DEAD_BEEF;
	if (op == DEV_READ || op == DEV_WRITE) {
		CHECK(posix_memalign(&data, 4096, bytes ? bytes : 1) == 0);
		io->data = data;
		io->iov = calloc(1, sizeof(*io->iov));
		CHECK(io->iov);
		io->iov[0] = (struct iovec){io->data, bytes};
	}
	io->req.id = (uint64_t)(uintptr_t)io;
	io->req.op = op;
	io->req.flags = flags;
	io->req.offset_bytes = offset;
	io->req.bytes = bytes;
	io->req.iov = io->iov;
	io->req.iov_count = io->iov ? 1 : 0;
	return io;
}

void io_cut(struct io *io, uint32_t shift, const uint32_t *lengths, uint32_t kinds)
{
	uint32_t bytes = io->req.bytes, at = 0, count = 0;

	free(io->data);
	free(io->iov);
	io->data = malloc(bytes + shift);
	io->iov = calloc(bytes + 1, sizeof(*io->iov));
	CHECK(io->data && io->iov);
	while (at < bytes) {
		uint32_t n = lengths[count % kinds];

		if (n > bytes - at)
			n = bytes - at;
		io->iov[count++] = (struct iovec){io->data + shift + at, n};
		at += n;
	}
	io->req.iov = io->iov;
	io->req.iov_count = count;
}

void io_submit(struct io *io)
{
	bool was_up = io->w->is_up;
	unsigned int answered = io->w->answered;

	io->w->out++;
	member_submit(io->w->m, &io->req);
	CHECK(answered == io->w->answered && was_up == io->w->is_up); /* no callback from within */
}

int io_wait(struct io *io)
{
	io->kept = true;
	io_submit(io);
	WAIT(io->w, io->done);
	return io->err;
}

/* A word that names its place and a seed, so that nothing can be in a wrong place unnoticed. */
static uint64_t word_at(uint64_t byte, uint64_t seed)
{
	uint64_t x = (byte / 8 + 1) * 0x9e3779b97f4a7c15u ^ (seed + 1) * 0xbf58476d1ce4e5b9u;

	x ^= x >> 29;
	x *= 0x94d049bb133111ebu;
	return x ^ x >> 32;
}

void fill(uint8_t *p, uint64_t offset, uint32_t bytes, uint64_t seed)
{
	uint32_t i;

	for (i = 0; i < bytes; i += 8) {
		uint64_t x = word_at(offset + i, seed);

		memcpy(p + i, &x, 8);
	}
}

bool is_filled(const uint8_t *p, uint64_t offset, uint32_t bytes, uint64_t seed)
{
	uint32_t i;

	for (i = 0; i < bytes; i += 8) {
		uint64_t x = word_at(offset + i, seed);

		if (memcmp(p + i, &x, 8))
			return false;
	}
	return true;
}

static bool is_zero(const uint8_t *p, uint32_t bytes)
{
	return !bytes || (!p[0] && !memcmp(p, p + 1, bytes - 1));
}

void put(struct world *w, uint64_t offset, uint32_t bytes, uint64_t seed, uint32_t flags)
{
	struct io *io = io_new(w, DEV_WRITE, flags, offset, bytes);

	fill(io->data, offset, bytes, seed);
	CHECK_INT(io_wait(io), 0);
	io_free(io);
}

bool holds(struct world *w, uint64_t offset, uint32_t bytes, uint64_t seed)
{
	struct io *io = io_new(w, DEV_READ, 0, offset, bytes);
	bool ok;

	memset(io->data, 0x55, bytes);
	CHECK_INT(io_wait(io), 0);
	ok = is_filled(io->data, offset, bytes, seed);
	io_free(io);
	return ok;
}

bool holds_zeroes(struct world *w, uint64_t offset, uint32_t bytes)
{
	struct io *io = io_new(w, DEV_READ, 0, offset, bytes);
	bool ok;

	memset(io->data, 0x55, bytes);
	CHECK_INT(io_wait(io), 0);
	ok = is_zero(io->data, bytes);
	io_free(io);
	return ok;
}

int simple(struct world *w, enum dev_op op, uint32_t flags, uint64_t offset, uint32_t bytes)
{
	struct io *io = io_new(w, op, flags, offset, bytes);
	int err;

	if (op == DEV_WRITE)
		fill(io->data, offset, bytes, 1);
	err = io_wait(io);
	io_free(io);
	return err;
}

/* --- load --- */

static uint8_t quiet[64][4096] __attribute__((aligned(4096)));

/* A read into memory that stays: after done() it is filled, and must stay so. */
static void quiet_done(struct io *io)
{
	memset(quiet[io->state], 0xa5, sizeof(quiet[0]));
	io->then = NULL;
	io_free(io);
}

void load(struct world *w, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++) {
		enum dev_op op = i % 3 == 1 ? DEV_READ : DEV_WRITE;
		uint32_t bytes = i == 0 ? 2560 * KIB : i == 2 ? 3 * MIB : 64 * KIB;
		struct io *io = io_new(w, op, 0, (uint64_t)(i % 512) * 64 * KIB, bytes);

		if (op == DEV_WRITE)
			fill(io->data, io->req.offset_bytes, bytes, 9);
		io_submit(io);
		if (i % 16 || i / 16 >= 64)
			continue;
		io_submit(io_new(w, DEV_FLUSH, 0, 0, 0));
		io = io_new(w, DEV_READ, 0, (uint64_t)i * 4096, 4096);
		io->iov[0].iov_base = quiet[i / 16];
		io->state = i / 16;
		io->then = quiet_done;
		io_submit(io);
	}
}

void quiet_is_quiet(void)
{
	uint32_t i, j;

	for (i = 0; i < 64; i++)
		for (j = 0; j < sizeof(quiet[0]); j++)
			CHECK(quiet[i][j] == 0xa5);
}
