/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A new RAID level is one file and one line: here a mirror of two copies, which the product does
 * not have yet. Geometry, planners and windows take it as it is.
 */
#include "tests/lib/test.h"

#include <errno.h>

#include "daemon/core/data/plan.h"
#include "daemon/core/format/choose.h"
#include "daemon/core/level/level.h"

#define STRIPES 12u
#define STRIPE 8192u

static bool mirror_fits(unsigned k, unsigned m)
{
	return k == 1 && m >= 1;
}

static void mirror_encode(unsigned k, unsigned m, void *const *data, void *const *parity,
			  size_t bytes)
{
	(void)k;
	for (unsigned i = 0; i < m; i++)
		memcpy(parity[i], data[0], bytes);
}

static void mirror_decode(unsigned k, unsigned m, void *const *frag, uint32_t valid, uint32_t want,
			  size_t bytes)
{
	for (unsigned i = 0; i < k + m; i++)
		if (want >> i & 1)
			memcpy(frag[i], frag[__builtin_ctz(valid)], bytes);
}

static const struct level mirror = {"mirror", mirror_fits, mirror_encode, mirror_decode};

static struct geo_params params(uint8_t layout)
{
	return (struct geo_params){.order = 0,
				   .m = 1,
				   .layout = layout,
				   .slots = 2,
				   .stripe_bytes = STRIPE,
				   .band_bytes = STRIPE,
				   .region_bytes = STRIPE,
				   .member_bytes = (2u << 20) + STRIPES * STRIPE};
}

static void fill(uint8_t *p, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(seed + i * 7 + (i >> 8));
}

TEST(there_is_no_level_for_a_mirror_yet)
{
	struct geo_params p = params(GEO_ROTATE);
	char why[FORMAT_WHY_BYTES] = "";
	struct geo g;

	CHECK(!level_of(1, 1) && !level_of(2, 2) && level_of(2, 1) && level_of(8, 1));
	CHECK_EQ_INT(geo_choose(&g, &p, why), -EOPNOTSUPP);
	CHECK(strstr(why, "mirror"));
}

/* What is planned lies twice, each copy on a member of its own. */
static void both_hold(const struct geo *g, const struct plan *p, const uint8_t *data)
{
	CHECK_EQ_U64(p->req_count, 2);
	for (uint32_t i = 0; i < 2; i++) {
		const struct plan_req *r = &p->req[i];
		uint32_t at = 0;

		CHECK_EQ_U64(r->member, i);
		CHECK_EQ_U64(r->offset, geo_offset(g, 2));
		CHECK_EQ_U64(r->bytes, 5 * STRIPE);
		for (uint32_t v = 0; v < r->iov_count; v++) {
			const struct iovec *iov = &p->iov[r->iov_first + v];

			CHECK_EQ_MEM(iov->iov_base, data + at, iov->iov_len);
			at += (uint32_t)iov->iov_len;
		}
		CHECK_EQ_U64(at, 5 * STRIPE);
	}
}

TEST(a_mirror_is_one_file_and_one_line)
{
	uint8_t *data = malloc(5 * STRIPE), *back = malloc(5 * STRIPE), *copy = malloc(5 * STRIPE),
		*win = malloc(2 * 5 * STRIPE);

	level_add(&mirror);
	for (uint8_t layout = GEO_ROTATE; layout <= GEO_DEDICATED; layout++) {
		struct geo_params p = params(layout);
		uint32_t first = 99, rows = 0;
		struct plan_req req[16];
		struct iovec iov[64];
		struct plan plan = {.req = req, .req_cap = 16, .iov = iov, .iov_cap = 64};
		struct geo g;

		CHECK_EQ_INT(geo_choose(&g, &p, NULL), 0);
		CHECK_EQ_U64(g.n, 2);
		CHECK_EQ_U64(g.k, 1);
		CHECK_EQ_U64(g.size_bytes, g.stripes * STRIPE);
		CHECK(g.level == &mirror);
		fill(data, 5 * STRIPE, layout);
		plan_write(&g, 2, 5, data, copy, 3, &plan);
		both_hold(&g, &plan, data);
		/* Each member alone gives all of it. */
		for (unsigned lost = 0; lost < 2; lost++) {
			memset(win, 0xee, 2 * 5 * STRIPE);
			memcpy(win + (1 - lost) * 5 * STRIPE, data, 5 * STRIPE);
			CHECK_EQ_INT(window_decode(&g, 2, 5, win, 1u << (1 - lost), 1u << lost), 0);
			window_to_user(&g, 2, 5, win, back);
			CHECK_EQ_MEM(back, data, 5 * STRIPE);
		}
		CHECK_EQ_INT(window_decode(&g, 2, 5, win, 0, 1), -EINVAL);
		/* Copies that differ are told, and made alike. */
		win[geo_member_of(&g, 4, 1) * 5 * STRIPE + 2 * STRIPE + 100] ^= 1;
		CHECK_EQ_U64(window_reparity(&g, 2, 5, win, &first, &rows), 1);
		CHECK_EQ_U64(first, 2);
		CHECK_EQ_U64(rows, 1u << geo_member_of(&g, 4, 1));
		CHECK_EQ_MEM(win, data, 5 * STRIPE);
		CHECK_EQ_MEM(win + 5 * STRIPE, data, 5 * STRIPE);
	}
	free(data);
	free(back);
	free(copy);
	free(win);
}
