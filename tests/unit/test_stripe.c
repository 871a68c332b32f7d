/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stripes under way (core/data/stripe.c) on members in memory: here are the functions by which they
 * send member requests, so that a test sees each of them, and says how it ends.
 */
#include "tests/lib/test.h"

#include <errno.h>

#include "daemon/core/data/data.h"
#include "daemon/core/format/choose.h"

#define STRIPE 8192u
#define COUNT 5u

struct request {
	uint8_t member;
	enum dev_op op;
	enum dev_kind kind;
	uint32_t flags, bytes, iov_count;
	uint64_t offset;
	const struct iovec *iov;
};

static struct {
	struct engine e;
	struct stripes s;
	uint8_t *disk[DDR_MAX_MEMBERS]; /* its data area */
	struct request req[32];
	uint32_t count, done;
	uint8_t user[COUNT * STRIPE], back[COUNT * STRIPE];
} rig;

void batch_init(struct batch *b, void (*done)(struct engine *, struct batch *))
{
	memset(b, 0, sizeof(*b));
	b->done = done;
}

void batch_open(struct batch *b)
{
	b->pending = 1;
}

void batch_close(struct engine *e, struct batch *b)
{
	if (!--b->pending)
		b->done(e, b);
}

void member_io_start(struct engine *e, struct batch *b, uint8_t member, enum dev_op op,
		     enum dev_kind kind, uint32_t flags, uint64_t offset, uint32_t bytes,
		     const struct iovec *iov, uint32_t iov_count, uint64_t region)
{
	CHECK_EQ_U64(region, geo_region_of(&e->geo, rig.s.first));
	CHECK(rig.count < sizeof(rig.req) / sizeof(*rig.req));
	rig.req[rig.count++] =
	    (struct request){member, op, kind, flags, bytes, iov_count, offset, iov};
	b->pending++;
}

static void carry_out(const struct request *r)
{
	uint8_t *p = rig.disk[r->member] + (r->offset - rig.e.geo.p.data_offset);

	if (r->op == DEV_ZEROES)
		memset(p, 0, r->bytes);
	for (uint32_t i = 0; i < r->iov_count; i++) {
		if (r->op == DEV_READ)
			memcpy(r->iov[i].iov_base, p, r->iov[i].iov_len);
		else
			memcpy(p, r->iov[i].iov_base, r->iov[i].iov_len);
		p += r->iov[i].iov_len;
	}
}

/* All that is under way ends: at these members with an error, and nothing happens there. */
static void end(uint32_t failed)
{
	uint32_t count = rig.count;

	rig.count = 0;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t bit = 1u << rig.req[i].member;

		if (failed & bit) {
			rig.s.batch.failed |= bit;
		} else {
			carry_out(&rig.req[i]);
			rig.s.batch.ok |= bit;
		}
		batch_close(&rig.e, &rig.s.batch);
	}
}

static void ended(struct engine *e, struct stripes *s)
{
	CHECK(e == &rig.e && s == &rig.s && !stripes_busy(s));
	rig.done++;
}

static void setup(void)
{
	struct geo_params p = {.order = 1,
			       .m = 1,
			       .layout = GEO_ROTATE,
			       .slots = 2,
			       .stripe_bytes = STRIPE,
			       .band_bytes = STRIPE,
			       .region_bytes = 16 * STRIPE,
			       .member_bytes = 4u << 20};

	memset(&rig, 0, sizeof(rig));
	CHECK_EQ_INT(geo_choose(&rig.e.geo, &p, NULL), 0);
	for (uint32_t i = 0; i < rig.e.geo.n; i++) {
		rig.disk[i] = malloc(2u << 20);
		CHECK(rig.disk[i]);
		memset(rig.disk[i], 0x11 * (int)(i + 1), 2u << 20);
	}
	for (uint32_t i = 0; i < sizeof(rig.user); i++)
		rig.user[i] = (uint8_t)(1 + i * 7 + (i >> 8));
	rig.s.user = rig.user;
}

static void teardown(void)
{
	stripes_free(&rig.s);
	for (uint32_t i = 0; i < rig.e.geo.n; i++)
		free(rig.disk[i]);
}

/* The user's data are at all members. */
static void written(void)
{
	stripes_set(&rig.s, 3, COUNT);
	CHECK(stripes_mem_user(&rig.s, &rig.e.geo, COUNT, true));
	stripes_encode(&rig.e, &rig.s);
	stripes_write(&rig.e, &rig.s, geo_all(&rig.e.geo), KIND_DATA, DEV_F_FUA, ended);
	CHECK(stripes_busy(&rig.s));
	CHECK_EQ_U64(rig.count, rig.e.geo.n);
	for (uint32_t i = 0; i < rig.count; i++) {
		CHECK_EQ_INT(rig.req[i].op, DEV_WRITE);
		CHECK_EQ_U64(rig.req[i].flags, DEV_F_FUA);
		CHECK_EQ_U64(rig.req[i].bytes, COUNT * STRIPE / 2);
	}
}

static void read_is_right(uint32_t members)
{
	uint32_t all = geo_all(&rig.e.geo);

	memset(rig.back, 0, sizeof(rig.back));
	stripes_free(&rig.s);
	memset(&rig.s, 0, sizeof(rig.s));
	rig.s.user = rig.back;
	stripes_set(&rig.s, 3, COUNT);
	CHECK(stripes_mem_user(&rig.s, &rig.e.geo, COUNT, false));
	CHECK(members == all || stripes_mem_window(&rig.s, &rig.e.geo, COUNT));
	stripes_read(&rig.e, &rig.s, members, KIND_DATA, ended);
	end(0);
	CHECK_EQ_INT(rig.s.state, STRIPES_READ);
	if (members != all) {
		stripes_decode(&rig.e, &rig.s, all & ~members);
		stripes_to_user(&rig.e, &rig.s, rig.back);
	}
	CHECK_EQ_MEM(rig.back, rig.user, sizeof(rig.user));
}

TEST(whole_stripes_are_written_without_a_read_and_read_with_any_member_missing)
{
	setup();
	written();
	end(0);
	CHECK_EQ_U64(rig.done, 1);
	for (uint32_t lost = 0; lost <= rig.e.geo.n; lost++)
		read_is_right(geo_all(&rig.e.geo) & ~(1u << lost));
	teardown();
}

/* R26: and where it has been it does not go again. */
TEST(what_goes_out_again_is_what_was_computed_first)
{
	setup();
	written();
	end(1u << 1);
	CHECK_EQ_INT(rig.s.state, STRIPES_READY);
	CHECK_EQ_U64(rig.s.batch.failed, 1u << 1);
	stripes_write(&rig.e, &rig.s, 1u << 1, KIND_DATA, 0, ended);
	CHECK_EQ_U64(rig.count, 1);
	CHECK_EQ_INT(rig.req[0].member, 1);
	end(0);
	CHECK_EQ_U64(rig.done, 2);
	for (uint32_t lost = 0; lost <= rig.e.geo.n; lost++)
		read_is_right(geo_all(&rig.e.geo) & ~(1u << lost));
	teardown();
}

TEST(a_read_that_failed_has_nothing_and_is_read_again)
{
	setup();
	written();
	end(0);
	rig.s.user = rig.back;
	stripes_set(&rig.s, 3, COUNT);
	stripes_read(&rig.e, &rig.s, geo_all(&rig.e.geo), KIND_DATA, ended);
	end(1u << 2);
	CHECK_EQ_INT(rig.s.state, STRIPES_EMPTY);
	read_is_right(geo_all(&rig.e.geo));
	teardown();
}

static void window_read(uint32_t members)
{
	stripes_free(&rig.s);
	memset(&rig.s, 0, sizeof(rig.s));
	stripes_set(&rig.s, 3, COUNT);
	CHECK(stripes_mem_window(&rig.s, &rig.e.geo, COUNT));
	stripes_read(&rig.e, &rig.s, members, KIND_RESYNC, ended);
	CHECK_EQ_U64(rig.count, (uint32_t)__builtin_popcount(members));
	end(0);
}

/* One stripe's parity is wrong: that member's row is written, and no other. */
TEST(parity_that_is_wrong_is_found_and_written)
{
	uint32_t wrong, rows;
	uint8_t member;

	setup();
	written();
	end(0);
	window_read(geo_all(&rig.e.geo));
	CHECK_EQ_U64(stripes_reparity(&rig.e, &rig.s, &wrong), 0);
	CHECK_EQ_U64(wrong, 0);
	member = geo_member_of(&rig.e.geo, 4, rig.e.geo.k);
	rig.disk[member][geo_offset(&rig.e.geo, 4) - rig.e.geo.p.data_offset + 77] ^= 1;
	window_read(geo_all(&rig.e.geo));
	rows = stripes_reparity(&rig.e, &rig.s, &wrong);
	CHECK_EQ_U64(rows, 1u << member);
	CHECK_EQ_U64(wrong, 1);
	stripes_write(&rig.e, &rig.s, rows, KIND_RESYNC, 0, ended);
	CHECK_EQ_U64(rig.count, 1);
	CHECK_EQ_INT(rig.req[0].member, member);
	end(0);
	window_read(geo_all(&rig.e.geo));
	CHECK_EQ_U64(stripes_reparity(&rig.e, &rig.s, &wrong), 0);
	teardown();
}

/* A member is filled anew: with what it had, and with holes where there is nothing. */
TEST(a_member_is_decoded_with_holes)
{
	setup();
	written();
	end(0);
	memset(rig.disk[0], 0xee, 2u << 20);
	window_read(6);
	stripes_decode(&rig.e, &rig.s, 1);
	stripes_write(&rig.e, &rig.s, 1, KIND_REBUILD, 0, ended);
	CHECK_EQ_U64(rig.count, 1);
	CHECK_EQ_INT(rig.req[0].op, DEV_WRITE);
	end(0);
	read_is_right(3);
	for (uint32_t i = 0; i < rig.e.geo.n; i++)
		memset(rig.disk[i], i ? 0 : 0xee, 2u << 20);
	window_read(6);
	stripes_decode(&rig.e, &rig.s, 1);
	stripes_write(&rig.e, &rig.s, 1, KIND_REBUILD, 0, ended);
	CHECK_EQ_U64(rig.count, 1);
	CHECK_EQ_INT(rig.req[0].op, DEV_ZEROES);
	CHECK_EQ_U64(rig.req[0].flags, DEV_F_UNMAP);
	end(0);
	memset(rig.user, 0, sizeof(rig.user));
	read_is_right(3);
	teardown();
}

TEST(zeroes_need_no_memory)
{
	setup();
	written();
	end(0);
	stripes_free(&rig.s);
	memset(&rig.s, 0, sizeof(rig.s));
	stripes_set(&rig.s, 3, COUNT);
	stripes_zero(&rig.s);
	stripes_write(&rig.e, &rig.s, geo_all(&rig.e.geo), KIND_DATA, DEV_F_UNMAP, ended);
	CHECK_EQ_U64(rig.count, rig.e.geo.n);
	CHECK_EQ_INT(rig.req[0].op, DEV_ZEROES);
	end(0);
	CHECK(!rig.s.mem);
	memset(rig.user, 0, sizeof(rig.user));
	read_is_right(3);
	teardown();
}
