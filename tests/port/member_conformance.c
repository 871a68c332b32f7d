// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The member port's conformance suite: one program, run on every adapter (tests/port/member.sh).
 *
 *	member_conformance [OPTION...] MODE URI [ARG...]
 *
 *   mode                    what it holds true
 *   conform URI SIZE        everything that the port promises of a member that works
 *   readonly URI            a member that can't be written: refused, or reads only
 *   refused URI ERRNO       open ends in down(-ERRNO) with a sentence, the loop never blocks
 *   killed URI PID COMMAND  exporter killed under load, restarted by COMMAND
 *   frozen URI PID          exporter stopped under load, then continued
 *   errors URI TRIGGER      every request fails while the file TRIGGER exists (nbdkit's error)
 *   slow URI MS             answers take that long, which is not an error
 *   durable URI             sends 10 writes and 10 zeroes with FUA, 10 writes without, 1 FLUSH, for
 *                           the exporter's log to show what became of them
 *
 *	-c N connections  -z MS zombie timeout  -f force
 *
 * Every request is on the heap with buffers of its own, freed in its done(): under ASan a touch
 * after that ends the program, and so does a second done(). What the kernel or libnbd might write
 * into a buffer of a cancelled read is looked for in buffers that stay, filled after done().
 *
 * Exit: 0 all held, 1 one didn't. It ends no process but PID, and that by SIGKILL, SIGSTOP and
 * SIGCONT only.
 */
#include "daemon/ports/loop.h"
#include "daemon/ports/member.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define KIB 1024u
#define MIB (1024u * 1024u)
#define LIMIT_MS 30000u /* nothing here may take longer */
#define DEAD_BEEF 0xdeadbeefu

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond))                                                                       \
			fail(__FILE__, __LINE__, #cond);                                           \
	} while (0)
#define CHECK_INT(got, want)                                                                       \
	do {                                                                                       \
		long long got_ = (got), want_ = (want);                                            \
		if (got_ != want_) {                                                               \
			fprintf(stderr, "got %lld, want %lld\n", got_, want_);                     \
			fail(__FILE__, __LINE__, #got " == " #want);                               \
		}                                                                                  \
	} while (0)

/* One open member, and what it told. */
struct world {
	const char *uri;
	struct loop *loop;
	struct member *m;
	struct member_cfg cfg;
	struct member_info info;
	bool is_up, is_closed, closing;
	unsigned int ups, downs, retries, fences;
	int down_err;
	uint64_t fence_connection;
	uint64_t up_at_us, down_at_us;
	unsigned int out; /* submitted and not answered */
	unsigned int answered;
	unsigned int out_at_down; /* must be none */
};

/* One request; freed in done() unless somebody waits for it. */
struct io {
	struct member_req req;
	struct world *w;
	bool kept, done;
	int err;
	uint8_t *data; /* READ, WRITE: all vectors lie in it */
	struct iovec *iov;
	void (*then)(struct io *io); /* instead of freeing it */
	uint64_t state;              /* then's */
	uint32_t magic;
};

static struct member_cfg base_cfg;
static const char *now_running = "start";
static const char *const *mode_args;
static bool with_fence_hook;

static _Noreturn void fail(const char *file, int line, const char *what)
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

static void io_free(struct io *io)
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

static void turn(struct world *w)
{
	CHECK_INT(loop_turn(w->loop, 20000), 0);
}

#define WAIT(w, cond)                                                                              \
	do {                                                                                       \
		uint64_t until_ = loop_clock_us((w)->loop) + LIMIT_MS * 1000ull;                   \
		while (!(cond)) {                                                                  \
			if (loop_clock_us((w)->loop) > until_)                                     \
				fail(__FILE__, __LINE__, "in time: " #cond);                       \
			turn(w);                                                                   \
		}                                                                                  \
	} while (0)

static void pause_ms(struct world *w, uint32_t ms)
{
	uint64_t until = loop_clock_us(w->loop) + ms * 1000ull;

	while (loop_clock_us(w->loop) < until)
		turn(w);
}

static struct world *world_start(const char *uri, const struct member_cfg *cfg)
{
	struct world *w = calloc(1, sizeof(*w));
	const char *why = "?";
	int err;

	CHECK(w);
	w->uri = uri;
	w->cfg = *cfg;
	CHECK_INT(loop_new(&w->loop), 0);
	err =
	    member_open(uri, w->loop, cfg, with_fence_hook ? &fence_cb : &plain_cb, w, &w->m, &why);
	if (err)
		fprintf(stderr, "%s\n", why);
	CHECK_INT(err, 0);
	CHECK(!w->is_up && !w->downs);
	return w;
}

static struct world *world_open(const char *uri, const struct member_cfg *cfg)
{
	struct world *w = world_start(uri, cfg);

	WAIT(w, w->is_up || w->downs);
	CHECK(w->is_up);
	return w;
}

static void world_close(struct world *w)
{
	w->closing = true;
	member_close(w->m);
	CHECK(!w->is_closed);
	WAIT(w, w->is_closed);
	loop_free(w->loop);
	free(w);
}

/* --- requests --- */

static struct io *io_new(struct world *w, enum dev_op op, uint32_t flags, uint64_t offset,
			 uint32_t bytes)
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

/* Cuts the buffer, moved by `shift` bytes, into vectors of the lengths in turn. */
static void io_cut(struct io *io, uint32_t shift, const uint32_t *lengths, uint32_t kinds)
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

static void io_submit(struct io *io)
{
	bool was_up = io->w->is_up;
	unsigned int answered = io->w->answered;

	io->w->out++;
	member_submit(io->w->m, &io->req);
	CHECK(answered == io->w->answered && was_up == io->w->is_up); /* no callback from within */
}

static int io_wait(struct io *io)
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

static void fill(uint8_t *p, uint64_t offset, uint32_t bytes, uint64_t seed)
{
	uint32_t i;

	for (i = 0; i < bytes; i += 8) {
		uint64_t x = word_at(offset + i, seed);

		memcpy(p + i, &x, 8);
	}
}

static bool is_filled(const uint8_t *p, uint64_t offset, uint32_t bytes, uint64_t seed)
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

static void put(struct world *w, uint64_t offset, uint32_t bytes, uint64_t seed, uint32_t flags)
{
	struct io *io = io_new(w, DEV_WRITE, flags, offset, bytes);

	fill(io->data, offset, bytes, seed);
	CHECK_INT(io_wait(io), 0);
	io_free(io);
}

static bool holds(struct world *w, uint64_t offset, uint32_t bytes, uint64_t seed)
{
	struct io *io = io_new(w, DEV_READ, 0, offset, bytes);
	bool ok;

	memset(io->data, 0x55, bytes);
	CHECK_INT(io_wait(io), 0);
	ok = is_filled(io->data, offset, bytes, seed);
	io_free(io);
	return ok;
}

static bool holds_zeroes(struct world *w, uint64_t offset, uint32_t bytes)
{
	struct io *io = io_new(w, DEV_READ, 0, offset, bytes);
	bool ok;

	memset(io->data, 0x55, bytes);
	CHECK_INT(io_wait(io), 0);
	ok = is_zero(io->data, bytes);
	io_free(io);
	return ok;
}

static int simple(struct world *w, enum dev_op op, uint32_t flags, uint64_t offset, uint32_t bytes)
{
	struct io *io = io_new(w, op, flags, offset, bytes);
	int err;

	if (op == DEV_WRITE)
		fill(io->data, offset, bytes, 1);
	err = io_wait(io);
	io_free(io);
	return err;
}

/* --- what holds for a member that works --- */

static void what_it_says_of_itself(struct world *w)
{
	const struct member_info *i = &w->info;
	uint64_t want = strtoull(mode_args[0], NULL, 0);

	CHECK_INT(i->size_bytes, want);
	CHECK(i->min_block_bytes >= 512 && !(i->min_block_bytes & (i->min_block_bytes - 1)));
	CHECK(!i->preferred_block_bytes || i->preferred_block_bytes >= i->min_block_bytes);
	CHECK(i->flags & MEMBER_FLUSH || w->cfg.force);
	CHECK(!(i->flags & MEMBER_READ_ONLY));
	printf("  %" PRIu64 " bytes, block %u, preferred %u,%s%s%s%s, instance %s\n", i->size_bytes,
	       i->min_block_bytes, i->preferred_block_bytes,
	       i->flags & MEMBER_FLUSH ? " FLUSH" : "", i->flags & MEMBER_FUA ? " FUA" : "",
	       i->flags & MEMBER_MULTI_CONN ? " MULTI_CONN" : "",
	       i->flags & MEMBER_ZEROES ? " ZEROES" : "", i->instance ? "known" : "unknown");
}

static void what_is_written_is_read(struct world *w)
{
	uint32_t block = w->info.min_block_bytes;
	uint32_t sizes[] = {block, 3 * block,       64 * KIB, 64 * KIB + block,
			    MIB,   3 * MIB + block, 9 * MIB};
	uint64_t offset;
	uint32_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		offset = 5 * block;
		put(w, offset, sizes[i], i, 0);
		CHECK(holds(w, offset, sizes[i], i));
		CHECK(!holds(w, offset, sizes[i], i + 1));
		offset = w->info.size_bytes - sizes[i]; /* up to the end */
		offset -= offset % block;
		put(w, offset, sizes[i], 100 + i, i & 1 ? DEV_F_FUA : 0);
		CHECK(holds(w, offset, sizes[i], 100 + i));
		CHECK_INT(simple(w, DEV_FLUSH, 0, 0, 0), 0);
	}
}

/* Writes through vectors of one cut, reads through those of another. */
static void vectors_pair(struct world *w, uint32_t bytes, const uint32_t *cut, uint32_t kinds,
			 uint32_t shift, uint64_t seed)
{
	uint64_t offset = 2 * MIB;
	struct io *wr = io_new(w, DEV_WRITE, seed & 1 ? DEV_F_FUA : 0, offset, bytes);
	struct io *rd = io_new(w, DEV_READ, 0, offset, bytes);

	io_cut(wr, shift, cut, kinds);
	fill(wr->data + shift, offset, bytes, seed);
	CHECK_INT(io_wait(wr), 0);
	CHECK(is_filled(wr->data + shift, offset, bytes, seed));
	io_cut(rd, shift, cut + kinds - 1, 1);
	CHECK_INT(io_wait(rd), 0);
	CHECK(is_filled(rd->data + shift, offset, bytes, seed));
	io_free(wr);
	io_free(rd);
	CHECK(holds(w, offset, bytes, seed));
}

static void vectors_of_any_count(struct world *w)
{
	uint32_t block = w->info.min_block_bytes;
	const uint32_t whole[] = {block};
	const uint32_t mixed[] = {block, 3 * block, 7 * block, 2 * block};
	const uint32_t odd[] = {1, 100, 0, block - 1, 4097, 13};
	uint32_t counts[] = {1, 3, 7, 255, 1023, 1025, 2500};
	uint32_t i;

	for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		vectors_pair(w, counts[i] * block, whole, 1, 0, i);
		vectors_pair(w, counts[i] * block, mixed, 4, 0, 100 + i);
	}
	for (i = 0; i < 5; i++) { /* lengths and addresses that O_DIRECT would refuse */
		vectors_pair(w, (i + 1) * 8 * block, odd, 6, i, 200 + i);
		vectors_pair(w, (i + 1) * 8 * block, mixed, 4, i, 300 + i);
	}
}

static void zeroes_are_zero_and_nothing_else_is(struct world *w)
{
	const uint32_t flags[] = {0, DEV_F_UNMAP, DEV_F_FUA, DEV_F_UNMAP | DEV_F_FUA};
	uint32_t block = w->info.min_block_bytes, i;
	uint32_t sizes[] = {block, 7 * block, 64 * KIB, 9 * MIB + block};

	for (i = 0; i < 16; i++) {
		uint32_t bytes = sizes[i / 4];
		uint64_t offset = 3 * MIB + 3 * block;

		put(w, offset - block, bytes + 2 * block, i, 0);
		CHECK_INT(simple(w, DEV_ZEROES, flags[i % 4], offset, bytes), 0);
		CHECK(holds_zeroes(w, offset, bytes));
		CHECK(holds(w, offset - block, block, i));
		CHECK(holds(w, offset + bytes, block, i));
	}
	CHECK_INT(simple(w, DEV_ZEROES, 0, 0, 48 * MIB), 0);
	CHECK(holds_zeroes(w, 0, 48 * MIB));
}

static void far_more_than_the_bound_at_once(struct world *w)
{
	uint32_t block = w->info.min_block_bytes, i;

	for (i = 0; i < 512; i++) { /* 32 MiB */
		struct io *io = io_new(w, DEV_WRITE, 0, (uint64_t)i * 64 * KIB, 64 * KIB);

		fill(io->data, io->req.offset_bytes, 64 * KIB, 7);
		io_submit(io);
	}
	for (i = 0; i < 5000; i++) {
		struct io *io = io_new(w, DEV_WRITE, i % 50 ? 0 : DEV_F_FUA,
				       40 * MIB + (uint64_t)i * block, block);

		fill(io->data, io->req.offset_bytes, block, 8);
		io_submit(io);
		if (i % 100 == 0)
			io_submit(io_new(w, DEV_FLUSH, 0, 0, 0));
	}
	CHECK_INT(w->out, 512 + 5000 + 50);
	WAIT(w, !w->out);
	CHECK(holds(w, 0, 32 * MIB, 7));
	CHECK(holds(w, 40 * MIB, 5000 * block, 8));
}

/* One of many places that is written and read in turn, each from the other's done(). */
static void chain_next(struct io *io)
{
	struct world *w = io->w;
	uint64_t offset = io->req.offset_bytes, round = io->state;
	uint32_t bytes = io->req.bytes;
	enum dev_op op = io->req.op == DEV_WRITE ? DEV_READ : DEV_WRITE;
	struct io *next;

	CHECK_INT(io->err, 0);
	if (op == DEV_WRITE) {
		CHECK(is_filled(io->data, offset, bytes, round));
		round++;
	}
	io->then = NULL;
	io_free(io);
	if (round == 20)
		return;
	next = io_new(w, op, 0, offset, bytes);
	next->state = round;
	next->then = chain_next;
	if (op == DEV_WRITE)
		fill(next->data, offset, bytes, round);
	io_submit(next);
}

static void a_read_after_a_write_sees_it(struct world *w)
{
	uint32_t i;

	for (i = 0; i < 200; i++) {
		struct io *io = io_new(w, DEV_WRITE, 0, (uint64_t)i * 16 * KIB, 16 * KIB);

		fill(io->data, io->req.offset_bytes, 16 * KIB, 0);
		io->then = chain_next;
		io_submit(io);
	}
	WAIT(w, !w->out);
}

static void ill_formed_requests_fail(struct world *w)
{
	uint32_t block = w->info.min_block_bytes;
	uint64_t size = w->info.size_bytes;
	struct io *io;

	CHECK_INT(simple(w, DEV_READ, 0, size, block), -EINVAL);
	CHECK_INT(simple(w, DEV_READ, 0, size - block, 2 * block), -EINVAL);
	CHECK_INT(simple(w, DEV_WRITE, 0, size - block, 2 * block), -EINVAL);
	CHECK_INT(simple(w, DEV_ZEROES, 0, size - block, 2 * block), -EINVAL);
	CHECK_INT(simple(w, DEV_READ, 0, UINT64_MAX - block + 1, block), -EINVAL);
	CHECK_INT(simple(w, DEV_READ, 0, 1, block), -EINVAL);
	CHECK_INT(simple(w, DEV_WRITE, 0, 0, block / 2), -EINVAL);
	CHECK_INT(simple(w, DEV_READ, 0, 0, 0), -EINVAL);
	CHECK_INT(simple(w, DEV_READ, 0, size - block, block), 0);
	io = io_new(w, DEV_READ, 0, 0, 4 * block);
	io->iov[0].iov_len = block;
	CHECK_INT(io_wait(io), -EINVAL);
	io_free(io);
}

/* --- cancel, close --- */

static uint8_t quiet[64][4096] __attribute__((aligned(4096)));

/* A read into memory that stays: after done() it is filled, and must stay so. */
static void quiet_done(struct io *io)
{
	memset(quiet[io->state], 0xa5, sizeof(quiet[0]));
	io->then = NULL;
	io_free(io);
}

/* Many requests at once; the third one doesn't fit into the bound as a whole. */
static void load(struct world *w, uint32_t count)
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

static void quiet_is_quiet(void)
{
	uint32_t i, j;

	for (i = 0; i < 64; i++)
		for (j = 0; j < sizeof(quiet[0]); j++)
			CHECK(quiet[i][j] == 0xa5);
}

static void cancel_answers_everything_once(struct world *w)
{
	unsigned int all, before = w->answered, ups = w->ups, round;

	for (round = 0; round < 3; round++) {
		load(w, 1024);
		all = w->out;
		if (round)
			WAIT(w, w->answered - before > 20 * round);
		member_cancel(w->m);
		load(w, 10); /* after it too */
		all = w->out;
		WAIT(w, !w->is_up);
		CHECK_INT(w->out_at_down, 0);
		CHECK_INT(w->out, 0);
		CHECK(all > 0);
		CHECK_INT(w->down_err, -ECANCELED);
		CHECK_INT(simple(w, DEV_READ, 0, 0, w->info.min_block_bytes), -ENOTCONN);
		WAIT(w, w->is_up);
		CHECK_INT(w->ups, ++ups);
		quiet_is_quiet();
		put(w, 0, MIB, round, 0);
		CHECK(holds(w, 0, MIB, round));
		before = w->answered;
	}
	member_cancel(w->m); /* with nothing under way */
	WAIT(w, !w->is_up);
	WAIT(w, w->is_up);
}

static void close_answers_everything_once(struct world *w)
{
	struct world *w2 = world_open(w->uri, &w->cfg);

	load(w2, 1024);
	turn(w2);
	world_close(w2);
	w2 = world_start(w->uri, &w->cfg); /* while it connects */
	world_close(w2);
	w2 = world_open(w->uri, &w->cfg);
	member_cancel(w2->m); /* with down() still to come, which then doesn't */
	load(w2, 10);
	world_close(w2);
	pause_ms(w, 50);
	quiet_is_quiet();
}

static void what_was_written_is_there_after_reopening(struct world *w)
{
	struct world *w2;
	uint64_t instance = w->info.instance;

	put(w, 11 * MIB, MIB, 77, DEV_F_FUA);
	w2 = world_open(w->uri, &w->cfg);
	CHECK_INT(w2->info.size_bytes, w->info.size_bytes);
	CHECK(w2->info.instance == instance);
	CHECK(holds(w2, 11 * MIB, MIB, 77));
	put(w2, 12 * MIB, MIB, 78, 0); /* both are open: what one wrote the other reads */
	CHECK(holds(w, 12 * MIB, MIB, 78));
	world_close(w2);
}

static void before_it_is_up_requests_fail(struct world *w)
{
	struct world *w2 = world_start(w->uri, &w->cfg);

	CHECK_INT(simple(w2, DEV_FLUSH, 0, 0, 0), -ENOTCONN);
	WAIT(w2, w2->is_up);
	CHECK_INT(simple(w2, DEV_FLUSH, 0, 0, 0), 0);
	world_close(w2);
}

/* R7: what waits here when the lease ends is never sent; reads go on. */
static void nothing_is_written_after_the_lease(struct world *w)
{
	struct world *w2 = world_open(w->uri, &w->cfg);
	static const enum dev_op ops[] = {DEV_WRITE, DEV_ZEROES};
	unsigned int i;

	put(w2, 13 * MIB, MIB, 1, 0);
	for (i = 0; i < 2; i++) {
		member_lease(w2->m, loop_clock_us(w2->loop) + LIMIT_MS * 1000ull);
		put(w2, 13 * MIB, MIB, 2 + i, 0);
		member_lease(w2->m, loop_clock_us(w2->loop));
		CHECK_INT(simple(w2, ops[i], 0, 13 * MIB, MIB), -ECONNRESET);
		WAIT(w2, w2->downs == i + 1);
		CHECK_INT(w2->down_err, -ETIMEDOUT);
		WAIT(w2, w2->is_up);
		CHECK(holds(w2, 13 * MIB, MIB, 2 + i));
		CHECK_INT(simple(w2, DEV_FLUSH, 0, 0, 0), 0);
		CHECK(w2->is_up);
	}
	member_lease(w2->m, UINT64_MAX);
	put(w2, 13 * MIB, MIB, 4, 0);
	CHECK(holds(w2, 13 * MIB, MIB, 4));
	world_close(w2);
}

/* R5: with writes out at the break, up() waits for the fence or for the timeout. */
static void what_may_still_land_holds_up_back(struct world *w)
{
	struct member_cfg cfg = w->cfg;
	bool local = !strncmp(w->uri, "file:", 5) || w->uri[0] == '/';
	struct world *w2;

	if (local)
		return;
	cfg.zombie_timeout_ms = 300;
	w2 = world_open(w->uri, &cfg);
	load(w2, 1024);
	turn(w2);
	member_cancel(w2->m);
	WAIT(w2, !w2->is_up);
	WAIT(w2, w2->is_up);
	CHECK(w2->up_at_us - w2->down_at_us >= 300000);
	world_close(w2);

	cfg.zombie_timeout_ms = 10 * LIMIT_MS;
	w2 = world_open(w->uri, &cfg);
	put(w2, 0, MIB, 1, 0);
	member_cancel(w2->m); /* every write was answered: nothing to wait for */
	WAIT(w2, !w2->is_up);
	WAIT(w2, w2->is_up);
	world_close(w2);

	with_fence_hook = true;
	w2 = world_open(w->uri, &cfg);
	with_fence_hook = false;
	load(w2, 1024);
	turn(w2);
	member_cancel(w2->m);
	WAIT(w2, w2->fences == 1);
	CHECK(!w2->is_up);
	CHECK_INT(w2->fence_connection, 1);
	member_fenced(w2->m, 1, -EIO);
	WAIT(w2, w2->fences == 2);  /* asked again with the new connection */
	member_fenced(w2->m, 7, 0); /* of another connection: no answer */
	pause_ms(w2, 300);
	CHECK(!w2->is_up);
	member_fenced(w2->m, 1, 0);
	CHECK(!w2->is_up);
	WAIT(w2, w2->is_up);
	CHECK_INT(w2->fences, 2);
	world_close(w2);
}

static void mode_conform(const char *uri)
{
	static const struct {
		const char *name;
		void (*run)(struct world *w);
	} tests[] = {
#define ROW(f) {#f, f}
	    ROW(what_it_says_of_itself),
	    ROW(what_is_written_is_read),
	    ROW(vectors_of_any_count),
	    ROW(zeroes_are_zero_and_nothing_else_is),
	    ROW(far_more_than_the_bound_at_once),
	    ROW(a_read_after_a_write_sees_it),
	    ROW(ill_formed_requests_fail),
	    ROW(before_it_is_up_requests_fail),
	    ROW(what_was_written_is_there_after_reopening),
	    ROW(cancel_answers_everything_once),
	    ROW(close_answers_everything_once),
	    ROW(what_may_still_land_holds_up_back),
	    ROW(nothing_is_written_after_the_lease),
	};
	struct world *w = world_open(uri, &base_cfg);
	uint32_t i;

	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		now_running = tests[i].name;
		tests[i].run(w);
		CHECK_INT(w->out, 0);
	}
	world_close(w);
	printf("  %u held\n", i);
}

/* --- members that don't --- */

static void mode_refused(const char *uri)
{
	struct world *w = world_start(uri, &base_cfg);
	uint64_t longest = 0;

	while (!w->downs) {
		uint64_t t = loop_clock_us(w->loop);

		CHECK(!w->is_up);
		turn(w);
		t = loop_clock_us(w->loop) - t;
		longest = t > longest ? t : longest;
	}
	if (atoi(mode_args[0]))
		CHECK_INT(w->down_err, -atoi(mode_args[0]));
	CHECK(longest < 500000);
	WAIT(w, w->retries >= 2); /* it goes on trying */
	CHECK_INT(w->downs, 1);
	world_close(w);
}

static void mode_readonly(const char *uri)
{
	struct member_cfg cfg = base_cfg;
	struct world *w;

	cfg.read_only = true;
	w = world_open(uri, &cfg);
	CHECK(w->info.flags & MEMBER_READ_ONLY);
	CHECK_INT(simple(w, DEV_READ, 0, 0, 64 * KIB), 0);
	CHECK_INT(simple(w, DEV_WRITE, 0, 0, 4096), -EROFS);
	CHECK_INT(simple(w, DEV_ZEROES, DEV_F_UNMAP, 0, 4096), -EROFS);
	world_close(w);
	w = world_start(uri, &base_cfg);
	WAIT(w, w->downs || w->is_up);
	if (w->is_up) /* root may write a file that nobody may write */
		CHECK_INT(simple(w, DEV_WRITE, 0, 0, 4096), 0);
	else
		CHECK(w->down_err == -EROFS || w->down_err == -EACCES || w->down_err == -EPERM);
	world_close(w);
}

static pid_t pid_of(const char *arg)
{
	int pid = atoi(arg);

	CHECK(pid > 1); /* 0 would be everything here */
	return pid;
}

/* Descriptors that somebody else opens, in the turn in which a connection is found dead as well:
 * they get its number as soon as that is free, and the loop must not mix them up. */
static struct newcomer {
	struct loop_fd watch;
	unsigned int called;
} newcomers[64];
static unsigned int newcomer_count;

static int eventfd_set(void)
{
	int fd = eventfd(1, EFD_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

static void newcomer_ready(void *arg, uint32_t events)
{
	struct newcomer *n = arg;

	CHECK(events == LOOP_READ);
	n->called++;
}

static void newcomers_come(void *arg, uint32_t events)
{
	struct world *w = arg;
	int i;

	CHECK(events == LOOP_READ);
	for (i = 0; i < 2 && newcomer_count < sizeof(newcomers) / sizeof(newcomers[0]); i++) {
		struct newcomer *n = &newcomers[newcomer_count++];

		*n = (struct newcomer){.watch = {.fd = eventfd_set(), .ready = newcomer_ready}};
		n->watch.arg = n;
		CHECK_INT(loop_fd_add(w->loop, &n->watch, LOOP_READ), 0);
	}
}

static void newcomers_go(struct world *w)
{
	unsigned int i;

	CHECK(newcomer_count > 0);
	for (i = 0; i < newcomer_count; i++)
		newcomers[i].called = 0;
	pause_ms(w, 20); /* they are more than one batch */
	for (i = 0; i < newcomer_count; i++) {
		CHECK(newcomers[i].called > 0);
		loop_fd_del(w->loop, &newcomers[i].watch);
		close(newcomers[i].watch.fd);
	}
}

static void mode_killed(const char *uri)
{
	struct world *w = world_open(uri, &base_cfg);
	pid_t pid = pid_of(mode_args[0]);
	struct loop_fd door = {.fd = eventfd_set(), .ready = newcomers_come, .arg = w};

	put(w, 0, MIB, 3, DEV_F_FUA);
	load(w, 1024);
	WAIT(w, w->answered > 100);
	CHECK(w->out > 0);
	CHECK(kill(pid, SIGKILL) == 0);
	usleep(100000); /* its sockets are ready before the door, and come first in the turn */
	CHECK_INT(loop_fd_add(w->loop, &door, LOOP_READ), 0);
	WAIT(w, w->downs == 1);
	CHECK_INT(w->out_at_down, 0);
	CHECK(w->down_err == -ECONNRESET || w->down_err == -EPIPE);
	loop_fd_del(w->loop, &door);
	close(door.fd);
	newcomers_go(w);
	quiet_is_quiet();
	WAIT(w, w->retries >= 2);
	CHECK(!w->is_up);
	CHECK_INT(system(mode_args[1]), 0);
	WAIT(w, w->is_up);
	CHECK_INT(w->downs, 1);
	CHECK(holds_zeroes(w, 0, MIB)); /* a new one, empty */
	put(w, 0, MIB, 4, 0);
	CHECK(holds(w, 0, MIB, 4));
	world_close(w);
}

static void mode_frozen(const char *uri)
{
	struct member_cfg cfg = base_cfg;
	pid_t pid = pid_of(mode_args[0]);
	uint64_t thawed;
	struct world *w;

	cfg.request_timeout_ms = 600;
	cfg.connect_timeout_ms = 300;
	cfg.zombie_timeout_ms = 500;
	w = world_open(uri, &cfg);
	pause_ms(w, 1000); /* nothing out: nothing times out */
	CHECK(w->is_up);
	CHECK(kill(pid, SIGSTOP) == 0);
	load(w, 1024);
	thawed = loop_clock_us(w->loop);
	WAIT(w, w->downs == 1);
	CHECK(w->down_at_us - thawed >= 500000);
	CHECK(w->down_at_us - thawed < 5000000);
	CHECK_INT(w->down_err, -ETIMEDOUT);
	CHECK_INT(w->out_at_down, 0);
	WAIT(w, w->retries >= 2); /* for longer than the zombie timeout */
	CHECK(!w->is_up);
	thawed = loop_clock_us(w->loop);
	CHECK(kill(pid, SIGCONT) == 0);
	WAIT(w, w->is_up);
	CHECK(w->up_at_us - thawed >= 500000); /* it had writes of ours all the time */
	quiet_is_quiet();
	put(w, 0, MIB, 5, 0);
	CHECK(holds(w, 0, MIB, 5));
	world_close(w);
}

/* R7: half sent, and the rest is still here when the lease is over. */
static void mode_overdue(const char *uri)
{
	struct member_cfg cfg = base_cfg;
	pid_t pid = pid_of(mode_args[0]);
	uint32_t i, count = 24, landed = 0;
	struct world *w;

	cfg.max_inflight_bytes = 32 * MIB;
	w = world_open(uri, &cfg);
	put(w, 0, MIB, 1, 0);
	CHECK(kill(pid, SIGSTOP) == 0);
	for (i = 0; i < count; i++) {
		struct io *io = io_new(w, DEV_WRITE, 0, (uint64_t)i * MIB, MIB);

		fill(io->data, io->req.offset_bytes, MIB, 9);
		io_submit(io);
	}
	pause_ms(w, 300); /* what the sockets take is sent */
	CHECK_INT(w->out, count);
	member_lease(w->m, loop_clock_us(w->loop));
	CHECK(kill(pid, SIGCONT) == 0);
	WAIT(w, w->downs == 1);
	CHECK_INT(w->down_err, -ETIMEDOUT);
	CHECK_INT(w->out, 0);
	WAIT(w, w->is_up);
	pause_ms(w, 300);
	for (i = 0; i < count; i++)
		landed += holds(w, (uint64_t)i * MIB, MIB, 9);
	printf("  of %u writes, %u were sent in time\n", count, landed);
	CHECK(landed < count);
	CHECK(!holds(w, (uint64_t)(count - 1) * MIB, MIB, 9));
	world_close(w);
}

static void mode_errors(const char *uri)
{
	struct world *w = world_open(uri, &base_cfg);
	int fd, i;

	put(w, 0, MIB, 6, 0);
	fd = open(mode_args[0], O_CREAT | O_WRONLY, 0600);
	CHECK(fd >= 0);
	close(fd);
	for (i = 0; i < 10; i++) {
		CHECK_INT(simple(w, DEV_READ, 0, 0, 64 * KIB), -EIO);
		CHECK_INT(simple(w, DEV_WRITE, 0, 8 * MIB, 5 * MIB), -EIO);
		CHECK_INT(simple(w, DEV_WRITE, DEV_F_FUA, 8 * MIB, 4 * KIB), -EIO);
		CHECK_INT(simple(w, DEV_ZEROES, DEV_F_UNMAP, 8 * MIB, 64 * KIB), -EIO);
	}
	CHECK(w->is_up && !w->downs); /* the medium's errors are no break */
	CHECK(unlink(mode_args[0]) == 0);
	CHECK(holds(w, 0, MIB, 6));
	put(w, 8 * MIB, MIB, 6, DEV_F_FUA);
	world_close(w);
}

static void mode_slow(const char *uri)
{
	struct member_cfg cfg = base_cfg;
	uint64_t ms = strtoull(mode_args[0], NULL, 0), t;
	struct world *w;
	uint32_t i;

	cfg.request_timeout_ms = (uint32_t)ms * 10;
	w = world_open(uri, &cfg);
	t = loop_clock_us(w->loop);
	put(w, 0, 4096, 1, 0);
	CHECK(loop_clock_us(w->loop) - t >= ms * 1000);
	for (i = 0; i < 32; i++) { /* one after the other they would time out */
		struct io *io = io_new(w, DEV_WRITE, 0, i * 4096, 4096);

		fill(io->data, io->req.offset_bytes, 4096, 2);
		io_submit(io);
	}
	WAIT(w, !w->out);
	CHECK(w->is_up && !w->downs);
	CHECK(holds(w, 0, 32 * 4096, 2));
	world_close(w);
}

static void mode_durable(const char *uri)
{
	struct world *w = world_open(uri, &base_cfg);
	uint64_t i;

	for (i = 0; i < 10; i++) {
		CHECK_INT(simple(w, DEV_WRITE, DEV_F_FUA, i * 64 * KIB, 4 * KIB), 0);
		CHECK_INT(simple(w, DEV_ZEROES, DEV_F_FUA, i * 64 * KIB, 4 * KIB), 0);
		CHECK_INT(simple(w, DEV_WRITE, 0, i * 64 * KIB, 4 * KIB), 0);
	}
	CHECK_INT(simple(w, DEV_FLUSH, 0, 0, 0), 0);
	world_close(w);
}

static void usage(void)
{
	fprintf(stderr, "usage: member_conformance [-f] [-c N] [-z MS] MODE URI [ARG...]\n");
	exit(1);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int args;
		void (*run)(const char *uri);
	} modes[] = {
	    {"conform", 1, mode_conform}, {"readonly", 0, mode_readonly},
	    {"refused", 1, mode_refused}, {"killed", 2, mode_killed},
	    {"frozen", 1, mode_frozen},   {"errors", 1, mode_errors},
	    {"slow", 1, mode_slow},       {"durable", 0, mode_durable},
	    {"overdue", 1, mode_overdue},
	};
	uint32_t i;
	int c;

	setvbuf(stdout, NULL, _IOLBF, 0);
	member_cfg_init(&base_cfg);
	base_cfg.backoff_min_ms = 20;
	base_cfg.backoff_max_ms = 200;
	base_cfg.zombie_timeout_ms = 100;
	while ((c = getopt(argc, argv, "fc:z:")) != -1) {
		if (c == 'f')
			base_cfg.force = true;
		else if (c == 'c')
			base_cfg.connections = (uint32_t)atoi(optarg);
		else if (c == 'z')
			base_cfg.zombie_timeout_ms = (uint32_t)atoi(optarg);
		else
			usage();
	}
	if (argc - optind < 2)
		usage();
	mode_args = (const char *const *)argv + optind + 2;
	for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (strcmp(modes[i].name, argv[optind]) || argc - optind - 2 != modes[i].args)
			continue;
		now_running = modes[i].name;
		modes[i].run(argv[optind + 1]);
		return 0;
	}
	usage();
	return 1;
}
