// SPDX-License-Identifier: GPL-2.0-or-later
/* What holds for a member that works: the mode `conform`. */
#include "tests/port/member_conformance.h"

#include <inttypes.h>

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

	w2 = world_open_fencing(w->uri, &cfg);
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

void mode_conform(const char *uri)
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
