/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Plans are carried out on members in memory. The capacity of each plan is exactly what
 * plan_max_* promise, so the planners' own asserts hold those to be true bounds.
 */
#include "tests/lib/test.h"

#include <errno.h>

#include "daemon/core/data/plan.h"
#include "daemon/core/level/parity.h"
#include "tests/unit/sweep.h"

#define STRIPES 24u
#define MAX_COUNT 20u
/* Longer runs of stripes only where they are small. */
#define MAX_BYTES (80u << 10)

struct rig {
	struct geo g;
	uint8_t *member[DDR_MAX_MEMBERS]; /* the data area of each */
	uint8_t *data, *back, *parity, *win, *truth;
	struct plan plan;
	struct prng prng;
};

static void *aligned(size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

	CHECK(p);
	return p;
}

static void rig_open(struct rig *r, struct geo_params *p)
{
	size_t user, row;

	memset(r, 0, sizeof(*r));
	CHECK_EQ_INT(geo_choose(&r->g, p, NULL), 0);
	r->prng.state = p->band_bytes + p->stripe_bytes;
	user = r->g.size_bytes;
	row = r->g.stripes * r->g.frag_bytes;
	for (unsigned i = 0; i < r->g.n; i++) {
		r->member[i] = aligned(row);
		prng_fill(&r->prng, r->member[i], row);
	}
	r->data = aligned(user);
	r->back = aligned(user);
	r->parity = aligned(row);
	r->win = aligned(row * r->g.n);
	r->truth = aligned(row * r->g.n);
	prng_fill(&r->prng, r->data, user);
}

static void rig_close(struct rig *r)
{
	for (unsigned i = 0; i < r->g.n; i++)
		free(r->member[i]);
	free(r->data);
	free(r->back);
	free(r->parity);
	free(r->win);
	free(r->truth);
}

static void plan_open(struct rig *r, uint32_t count)
{
	r->plan.req_cap = plan_max_reqs(&r->g, count);
	r->plan.iov_cap = plan_max_iovs(&r->g, count);
	r->plan.req = calloc(r->plan.req_cap, sizeof(*r->plan.req));
	r->plan.iov = calloc(r->plan.iov_cap, sizeof(*r->plan.iov));
	/* What a planner leaves over from an earlier use must not matter. */
	r->plan.req_count = r->plan.iov_count = 1;
}

static void plan_close(struct rig *r)
{
	free(r->plan.req);
	free(r->plan.iov);
}

/* Carries the plan out, and checks its form: in order, in range, vectors all used once. */
static void carry_out(struct rig *r, bool write, uint64_t stripe, uint32_t count)
{
	uint64_t first = geo_offset(&r->g, stripe), end = first + count * r->g.frag_bytes;
	uint32_t iov = 0;

	for (uint32_t i = 0; i < r->plan.req_count; i++) {
		const struct plan_req *q = &r->plan.req[i];
		uint8_t *at = r->member[q->member] + (q->offset - r->g.data_offset);
		uint64_t bytes = 0;

		CHECK(q->member < r->g.n && q->bytes && q->iov_count);
		CHECK(q->offset >= first && q->offset + q->bytes <= end);
		CHECK_EQ_U64(q->iov_first, iov);
		/* Ascending, and what is adjacent has been merged. */
		if (i && q[-1].member == q->member)
			CHECK(q[-1].offset + q[-1].bytes < q->offset);
		else
			CHECK(!i || q[-1].member < q->member);
		for (uint32_t v = 0; v < q->iov_count; v++, iov++) {
			const struct iovec *io = &r->plan.iov[iov];

			CHECK(io->iov_len);
			CHECK(!v || (uint8_t *)io[-1].iov_base + io[-1].iov_len != io->iov_base);
			if (write)
				memcpy(at + bytes, io->iov_base, io->iov_len);
			else
				memcpy(io->iov_base, at + bytes, io->iov_len);
			bytes += io->iov_len;
		}
		CHECK_EQ_U64(bytes, q->bytes);
	}
	CHECK_EQ_U64(iov, r->plan.iov_count);
}

static void write_range(struct rig *r, uint64_t stripe, uint32_t count, uint32_t members)
{
	uint32_t mask = 0;

	plan_open(r, count);
	plan_write(&r->g, stripe, count, r->data + stripe * r->g.p.stripe_bytes, r->parity, members,
		   &r->plan);
	CHECK_EQ_U64(r->plan.req_count, __builtin_popcount(members));
	for (uint32_t i = 0; i < r->plan.req_count; i++) {
		mask |= 1u << r->plan.req[i].member;
		CHECK_EQ_U64(r->plan.req[i].offset, geo_offset(&r->g, stripe));
		CHECK_EQ_U64(r->plan.req[i].bytes, count * r->g.frag_bytes);
	}
	CHECK_EQ_U64(mask, members);
	carry_out(r, true, stripe, count);
	plan_close(r);
}

static void read_range(struct rig *r, uint64_t stripe, uint32_t count)
{
	uint64_t bytes = (uint64_t)count * r->g.p.stripe_bytes, planned = 0;
	uint8_t *data = r->data + stripe * r->g.p.stripe_bytes;

	memset(r->back, 0x5a, bytes);
	plan_open(r, count);
	plan_read(&r->g, stripe, count, r->back, &r->plan);
	for (uint32_t i = 0; i < r->plan.req_count; i++)
		planned += r->plan.req[i].bytes;
	CHECK_EQ_U64(planned, bytes); /* no parity, nothing twice */
	carry_out(r, false, stripe, count);
	CHECK_EQ_MEM(r->back, data, bytes);
	plan_close(r);
}

static void read_window(struct rig *r, uint64_t stripe, uint32_t count, uint8_t *win,
			uint32_t members)
{
	plan_open(r, count);
	plan_window(&r->g, stripe, count, win, members, &r->plan);
	CHECK_EQ_U64(r->plan.req_count, __builtin_popcount(members));
	CHECK_EQ_U64(r->plan.iov_count, __builtin_popcount(members));
	carry_out(r, false, stripe, count);
	plan_close(r);
}

/* Every geometry, every first stripe of a whole turn and more, growing counts. */
static void for_each_range(void (*fn)(struct rig *r, uint64_t stripe, uint32_t count),
			   uint32_t max_bytes, bool write_all)
{
	for (struct sweep w = {.stripes = STRIPES}; sweep_next(&w);) {
		struct rig r;

		/* Planners do not look at regions; of the stripes, two small and the largest do. */
		if (w.p.region_bytes != w.p.stripe_bytes || w.p.stripe_bytes == 65536)
			continue;
		rig_open(&r, &w.p);
		if (write_all)
			write_range(&r, 0, STRIPES, (1u << r.g.n) - 1);
		for (uint64_t s = 0; s < STRIPES; s++)
			for (uint32_t count = 1; count <= MAX_COUNT && s + count <= STRIPES;
			     count += 1 + count / 6)
				if (count == 1 || count * w.p.stripe_bytes <= max_bytes)
					fn(&r, s, count);
		rig_close(&r);
	}
}

static void write_read(struct rig *r, uint64_t stripe, uint32_t count)
{
	uint8_t *data = r->data + stripe * r->g.p.stripe_bytes;

	prng_fill(&r->prng, data, (size_t)count * r->g.p.stripe_bytes);
	write_range(r, stripe, count, (1u << r->g.n) - 1);
	read_range(r, stripe, count);
}

TEST(a_read_returns_what_was_written)
{
	for_each_range(write_read, MAX_BYTES, false);
}

static void parity_is_xor(struct rig *r, uint64_t stripe, uint32_t count)
{
	uint8_t *want = r->win;

	write_range(r, stripe, count, (1u << r->g.n) - 1);
	for (uint64_t s = stripe; s < stripe + count; s++) {
		const uint8_t *parity = r->member[geo_member_of(&r->g, s, r->g.k)];
		void *src[8];

		for (uint8_t f = 0; f < r->g.k; f++)
			src[f] = r->data + s * r->g.p.stripe_bytes + (size_t)f * r->g.frag_bytes;
		parity_xor_scalar(want, src, r->g.k, r->g.frag_bytes);
		CHECK_EQ_MEM(parity + s * r->g.frag_bytes, want, r->g.frag_bytes);
	}
}

TEST(a_write_leaves_true_parity)
{
	for_each_range(parity_is_xor, MAX_BYTES, false);
}

static bool all_are(const uint8_t *p, size_t bytes, uint8_t value)
{
	return p[0] == value && memcmp(p, p + 1, bytes - 1) == 0;
}

static void masked(struct rig *r, uint64_t stripe, uint32_t count)
{
	size_t row = (size_t)count * r->g.frag_bytes, at = stripe * r->g.frag_bytes;

	/* All masks for short ranges, each single member and each single gap for longer ones. */
	for (uint32_t mask = 0; mask < 1u << r->g.n; mask++) {
		int members = __builtin_popcount(mask);

		if (count > 3 && members > 1 && members < r->g.n - 1)
			continue;
		if (stripe % 5 || count > 8)
			continue;
		for (unsigned i = 0; i < r->g.n; i++)
			memset(r->member[i] + at, 0x11, row);
		write_range(r, stripe, count, mask);
		for (unsigned i = 0; i < r->g.n; i++)
			if (!(mask >> i & 1))
				CHECK(all_are(r->member[i] + at, row, 0x11));
	}
}

TEST(a_write_touches_only_the_members_of_its_mask)
{
	for_each_range(masked, 32768, false);
}

static void lose_one(struct rig *r, uint64_t stripe, uint32_t count)
{
	const uint32_t all = (1u << r->g.n) - 1;
	size_t row = (size_t)count * r->g.frag_bytes;
	uint8_t *data = r->data + stripe * r->g.p.stripe_bytes;

	read_window(r, stripe, count, r->truth, all);
	for (unsigned lost = 0; lost < r->g.n; lost++) {
		uint32_t valid = all & ~(1u << lost);

		memset(r->win, 0x77, row * r->g.n);
		read_window(r, stripe, count, r->win, valid);
		CHECK_EQ_INT(window_decode(&r->g, stripe, count, r->win, valid, 1u << lost), 0);
		CHECK_EQ_MEM(r->win, r->truth, row * r->g.n);
		window_to_user(&r->g, stripe, count, r->win, r->back);
		CHECK_EQ_MEM(r->back, data, (size_t)count * r->g.p.stripe_bytes);
	}
}

TEST(any_one_member_can_be_decoded_from_the_others)
{
	for_each_range(lose_one, MAX_BYTES, true);
}

TEST(a_write_without_a_member_can_be_decoded)
{
	for (struct sweep w = {.stripes = STRIPES}; sweep_next(&w);) {
		struct rig r;

		if (w.p.region_bytes != w.p.stripe_bytes || w.p.stripe_bytes > 8192)
			continue;
		rig_open(&r, &w.p);
		for (unsigned lost = 0; lost < r.g.n; lost++) {
			uint32_t valid = ((1u << r.g.n) - 1) & ~(1u << lost);

			prng_fill(&r.prng, r.data, r.g.size_bytes);
			write_range(&r, 0, STRIPES, valid);
			read_window(&r, 0, STRIPES, r.win, valid);
			CHECK_EQ_INT(window_decode(&r.g, 0, STRIPES, r.win, valid, 1u << lost), 0);
			window_to_user(&r.g, 0, STRIPES, r.win, r.back);
			CHECK_EQ_MEM(r.back, r.data, r.g.size_bytes);
		}
		rig_close(&r);
	}
}

TEST(decoding_needs_k_fragments)
{
	for (struct sweep w = {.stripes = STRIPES}; sweep_next(&w);) {
		struct rig r;
		uint32_t all;

		if (w.p.region_bytes != w.p.stripe_bytes || w.p.stripe_bytes != 4096)
			continue;
		rig_open(&r, &w.p);
		all = (1u << r.g.n) - 1;
		memset(r.win, 0x33, r.g.frag_bytes * r.g.n);
		memcpy(r.truth, r.win, r.g.frag_bytes * r.g.n);
		for (uint32_t valid = 0; valid <= all; valid++) {
			bool enough = __builtin_popcount(valid) >= r.g.k;

			/* Nothing wanted: nothing to do, if there is enough to do it from. */
			CHECK_EQ_INT(window_decode(&r.g, 0, 1, r.win, valid, 0),
				     enough ? 0 : -EINVAL);
			if (enough)
				continue;
			CHECK_EQ_INT(window_decode(&r.g, 0, 1, r.win, valid, all & ~valid),
				     -EINVAL);
		}
		CHECK_EQ_MEM(r.win, r.truth, r.g.frag_bytes * r.g.n);
		rig_close(&r);
	}
}

static void check_parity(const struct geo *g, uint32_t count, const uint8_t *win)
{
	size_t row = (size_t)count * g->frag_bytes;

	for (size_t at = 0; at < row; at++) {
		uint8_t sum = 0;

		for (unsigned i = 0; i < g->n; i++)
			sum ^= win[i * row + at];
		CHECK(sum == 0);
	}
}

static void break_some(struct rig *r, uint64_t stripe, uint32_t count)
{
	const uint32_t all = (1u << r->g.n) - 1;
	size_t row = (size_t)count * r->g.frag_bytes, user = (size_t)count * r->g.p.stripe_bytes;
	uint32_t bad = 0, rows = 0, first = 0, got_first = 99, got_rows = 99;

	read_window(r, stripe, count, r->win, all);
	CHECK_EQ_U64(window_reparity(&r->g, stripe, count, r->win, &got_first, &got_rows), 0);
	CHECK_EQ_U64(got_rows, 0);
	for (uint32_t s = 0; s < count; s++) {
		/* Any fragment, data or parity, first byte to last. */
		uint32_t member = prng_below(&r->prng, r->g.n);
		uint32_t at = prng_below(&r->prng, 3);
		size_t off = at == 0   ? 0
			     : at == 1 ? r->g.frag_bytes - 1
				       : prng_below(&r->prng, r->g.frag_bytes);

		if (prng_below(&r->prng, 3))
			continue;
		r->win[member * row + (size_t)s * r->g.frag_bytes + off] ^= 0x40;
		first = bad++ ? first : s;
		rows |= 1u << geo_member_of(&r->g, stripe + s, r->g.k);
	}
	memcpy(r->truth, r->win, row * r->g.n);
	window_to_user(&r->g, stripe, count, r->win, r->back);
	CHECK_EQ_U64(window_reparity(&r->g, stripe, count, r->win, &got_first, &got_rows), bad);
	CHECK_EQ_U64(got_rows, rows);
	if (bad)
		CHECK_EQ_U64(got_first, first);
	check_parity(&r->g, count, r->win);
	/* Data fragments, as they were found, are the truth. */
	window_to_user(&r->g, stripe, count, r->win, r->truth);
	CHECK_EQ_MEM(r->truth, r->back, user);
	CHECK_EQ_U64(window_reparity(&r->g, stripe, count, r->win, NULL, NULL), 0);
}

TEST(reparity_finds_and_mends_exactly_what_is_wrong)
{
	for_each_range(break_some, 65536, true);
}

/* An unaligned buffer of a front-end is slower, not wrong. */
TEST(user_memory_may_have_any_alignment)
{
	for (struct sweep w = {.stripes = STRIPES}; sweep_next(&w);) {
		struct rig r;

		if (w.p.region_bytes != w.p.stripe_bytes || w.p.stripe_bytes != 4096)
			continue;
		rig_open(&r, &w.p);
		for (unsigned shift = 1; shift < 64; shift += 6) {
			plan_open(&r, STRIPES - 1);
			plan_write(&r.g, 0, STRIPES - 1, r.data + shift, r.parity + 3,
				   (1u << r.g.n) - 1, &r.plan);
			carry_out(&r, true, 0, STRIPES - 1);
			plan_read(&r.g, 0, STRIPES - 1, r.back + shift + 1, &r.plan);
			carry_out(&r, false, 0, STRIPES - 1);
			CHECK_EQ_MEM(r.back + shift + 1, r.data + shift,
				     (STRIPES - 1) * (size_t)w.p.stripe_bytes);
			plan_close(&r);
			read_window(&r, 0, STRIPES - 1, r.win, (1u << r.g.n) - 1);
			check_parity(&r.g, STRIPES - 1, r.win);
		}
		rig_close(&r);
	}
}

/* The largest request there is, from every stripe of a turn. */
TEST(bounds_hold_for_the_largest_request)
{
	for (struct sweep w = {.stripes = 1200}; sweep_next(&w);) {
		const uint32_t count = DDR_MAX_IO_BYTES / w.p.stripe_bytes;
		struct rig r = {.g = {.n = 0}};
		uint32_t most = 0, runs;
		uint8_t *data;

		if (w.p.region_bytes != w.p.stripe_bytes)
			continue;
		CHECK_EQ_INT(geo_choose(&r.g, &w.p, NULL), 0);
		data = calloc(2, DDR_MAX_IO_BYTES);
		plan_open(&r, count);
		for (uint64_t s = 0; s + count <= r.g.stripes && s < 600; s += 1 + s / 16) {
			plan_read(&r.g, s, count, data, &r.plan);
			if (r.plan.req_count > most)
				most = r.plan.req_count;
		}
		plan_write(&r.g, 1, count, data, data + DDR_MAX_IO_BYTES, (1u << r.g.n) - 1,
			   &r.plan);
		CHECK_EQ_U64(r.plan.req_count, r.g.n);
		/* plan.h: at most one read per member and band */
		runs = 2 + (count - 1) / (w.p.band_bytes / r.g.frag_bytes);
		CHECK(most <= r.g.n * runs);
		/* And no more is asked for than can be needed. */
		if (w.p.layout == GEO_DEDICATED)
			CHECK(most == r.g.k && plan_max_reqs(&r.g, count) == r.g.n);
		else if (plan_max_reqs(&r.g, count) > r.g.n)
			CHECK_EQ_U64(most, plan_max_reqs(&r.g, count));
		plan_close(&r);
		free(data);
	}
}

TEST(an_empty_range_plans_nothing)
{
	struct sweep w = {.stripes = STRIPES};
	struct plan_req req[DDR_MAX_MEMBERS];
	struct plan p = {.req = req, .req_cap = DDR_MAX_MEMBERS, .req_count = 4, .iov_count = 4};
	uint8_t byte = 0;
	struct geo g;

	CHECK(sweep_next(&w));
	CHECK_EQ_INT(geo_choose(&g, &w.p, NULL), 0);
	CHECK(plan_max_reqs(&g, 0) <= DDR_MAX_MEMBERS);
	CHECK_EQ_U64(plan_max_iovs(&g, 0), 0);
	plan_write(&g, 0, 0, &byte, &byte, 7, &p);
	CHECK_EQ_U64(p.req_count + p.iov_count, 0);
	plan_read(&g, 0, 0, &byte, &p);
	CHECK_EQ_U64(p.req_count + p.iov_count, 0);
	plan_window(&g, 0, 0, &byte, 7, &p);
	CHECK_EQ_U64(p.req_count + p.iov_count, 0);
	CHECK_EQ_U64(window_reparity(&g, 0, 0, &byte, NULL, NULL), 0);
}

/* k = 2, S = 4 KiB, a band of two stripes; six stripes are a whole turn. */
TEST(a_small_example_by_hand)
{
	static const struct {
		uint8_t member;
		uint32_t offset, bytes, iov_count;
	} want[] = {
	    /* its fragments in bands 0, 1, 2 are 0, parity, 1 */
	    {0, 0, 4096, 2},
	    {0, 8192, 4096, 2},
	    /* 1, 0, parity: fragment 1 of stripe 1 and 0 of stripe 2 are neighbours in memory */
	    {1, 0, 8192, 3},
	    /* parity, 1, 0 */
	    {2, 4096, 8192, 3},
	};
	struct geo_params p = {.order = 1,
			       .m = 1,
			       .slots = 2,
			       .stripe_bytes = 4096,
			       .band_bytes = 4096,
			       .region_bytes = 4096,
			       .member_bytes = DATA_ALIGN + 6 * 2048};
	static uint8_t data[6 * 4096];
	struct rig r;

	rig_open(&r, &p);
	plan_open(&r, 6);
	plan_read(&r.g, 0, 6, data, &r.plan);
	CHECK_EQ_U64(r.plan.req_count, sizeof(want) / sizeof(*want));
	for (unsigned i = 0; i < r.plan.req_count; i++) {
		CHECK_EQ_U64(r.plan.req[i].member, want[i].member);
		CHECK_EQ_U64(r.plan.req[i].offset, DATA_ALIGN + want[i].offset);
		CHECK_EQ_U64(r.plan.req[i].bytes, want[i].bytes);
		CHECK_EQ_U64(r.plan.req[i].iov_count, want[i].iov_count);
	}
	CHECK(r.plan.iov[0].iov_base == data);
	CHECK(r.plan.iov[1].iov_base == data + 4096);
	plan_close(&r);
	rig_close(&r);
}
