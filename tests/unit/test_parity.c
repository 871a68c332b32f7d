/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/lib/test.h"

#include "daemon/base/limits.h"
#include "daemon/core/format/crc.h"
#include "daemon/core/level/parity.h"
#include "tests/unit/sweep.h"

#define EDGE 64 /* guard bytes before and after */
#define GUARD 0xa5

static uint8_t *aligned(size_t bytes)
{
	uint8_t *p = (uint8_t *)aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

	CHECK(p);
	return p;
}

static bool all(const uint8_t *p, size_t bytes, uint8_t value)
{
	while (bytes--)
		if (*p++ != value)
			return false;
	return true;
}

struct bench {
	uint8_t *src[DDR_MAX_MEMBERS], *dst, *twin;
	size_t cap;
};

static void bench_open(struct bench *b, size_t cap)
{
	struct prng r = {cap};

	b->cap = cap + 2 * EDGE;
	for (unsigned i = 0; i < DDR_MAX_MEMBERS; i++) {
		b->src[i] = aligned(b->cap);
		prng_fill(&r, b->src[i], b->cap);
	}
	b->dst = aligned(b->cap);
	b->twin = aligned(b->cap);
}

static void bench_close(struct bench *b)
{
	for (unsigned i = 0; i < DDR_MAX_MEMBERS; i++)
		free(b->src[i]);
	free(b->dst);
	free(b->twin);
}

/* Source i begins `shift` + i * `step` bytes off alignment. */
static void compare(struct bench *b, unsigned count, size_t bytes, size_t dst_shift, size_t shift,
		    size_t step)
{
	void *src[DDR_MAX_MEMBERS];
	uint8_t *dst = b->dst + EDGE + dst_shift;

	for (unsigned i = 0; i < count; i++)
		src[i] = b->src[i] + (shift + i * step) % EDGE;
	memset(b->dst, GUARD, bytes + 2 * EDGE);
	parity_xor(dst, src, count, bytes);
	parity_xor_scalar(b->twin, src, count, bytes);
	CHECK_EQ_MEM(dst, b->twin, bytes);
	CHECK(all(b->dst, EDGE + dst_shift, GUARD));
	CHECK(all(dst + bytes, EDGE - dst_shift, GUARD));
}

TEST(xor_equals_its_scalar_twin_at_every_alignment)
{
	static const size_t length[] = {0, 1, 31, 32, 33, 127, 512, 515};
	struct bench b;

	bench_open(&b, 1024);
	for (unsigned count = 1; count <= DDR_MAX_MEMBERS; count++)
		for (size_t dst = 0; dst <= 32; dst++)
			for (size_t shift = 0; shift <= 32; shift++)
				for (unsigned i = 0; i < sizeof(length) / sizeof(*length); i++) {
					compare(&b, count, length[i], dst, shift, 0);
					if (dst == shift || i == 3)
						compare(&b, count, length[i], dst, shift, 7);
				}
	bench_close(&b);
}

TEST(xor_equals_its_scalar_twin_at_every_length)
{
	struct bench b;

	bench_open(&b, 8192);
	for (unsigned count = 1; count <= DDR_MAX_MEMBERS; count++)
		for (size_t bytes = 0; bytes <= 600; bytes++) {
			compare(&b, count, bytes, 0, 0, 0);
			compare(&b, count, bytes, 0, 0, 32);
			compare(&b, count, bytes, 3, 8, 0);
		}
	for (size_t bytes = 512; bytes <= 8192; bytes *= 2)
		for (unsigned count = 1; count <= DDR_MAX_MEMBERS; count++)
			compare(&b, count, bytes, 0, 0, 0);
	bench_close(&b);
}

TEST(xor_of_more_than_one_piece)
{
	struct bench b;

	bench_open(&b, (5u << 19) + 77);
	compare(&b, 2, (5u << 19) + 77, 0, 0, 0);
	compare(&b, 9, (5u << 19) + 77, 0, 0, 0);
	compare(&b, 3, (2u << 20), 0, 0, 0);
	compare(&b, 1, (5u << 19) + 77, 0, 0, 0);
	bench_close(&b);
}

TEST(xor_of_all_fragments_and_their_parity_is_zero)
{
	struct bench b;
	void *src[DDR_MAX_MEMBERS];

	bench_open(&b, 4096);
	for (unsigned k = 2; k <= 8; k *= 2) {
		for (unsigned i = 0; i < k; i++)
			src[i] = b.src[i];
		parity_xor(b.src[k], src, k, 4096);
		src[k] = b.src[k];
		parity_xor(b.dst, src, k + 1, 4096);
		CHECK(all(b.dst, 4096, 0));
	}
	bench_close(&b);
}

/* The definition: reflected polynomial 0x1edc6f41, bit by bit. */
static uint32_t crc32c_scalar(const uint8_t *p, size_t bytes)
{
	uint32_t crc = ~0u;

	while (bytes--) {
		crc ^= *p++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (0x82f63b78u & -(crc & 1));
	}
	return ~crc;
}

TEST(crc32c_known_vectors)
{
	uint8_t buf[32];

	CHECK_EQ_U64(crc32c("123456789", 9), 0xe3069283u);
	CHECK_EQ_U64(crc32c("", 0), 0);
	/* RFC 3720, B.4 */
	memset(buf, 0, 32);
	CHECK_EQ_U64(crc32c(buf, 32), 0x8a9136aau);
	memset(buf, 0xff, 32);
	CHECK_EQ_U64(crc32c(buf, 32), 0x62a8ab43u);
	for (unsigned i = 0; i < 32; i++)
		buf[i] = (uint8_t)i;
	CHECK_EQ_U64(crc32c(buf, 32), 0x46dd794eu);
	for (unsigned i = 0; i < 32; i++)
		buf[i] = (uint8_t)(31 - i);
	CHECK_EQ_U64(crc32c(buf, 32), 0x113fdb5cu);
}

TEST(crc32c_equals_its_scalar_twin)
{
	const size_t big = (3u << 20) + 5;
	struct prng r = {8192};
	uint8_t *p = aligned(big);

	prng_fill(&r, p, big);
	for (size_t shift = 0; shift <= 32; shift++)
		for (size_t bytes = 0; bytes <= 300; bytes++)
			CHECK_EQ_U64(crc32c(p + shift, bytes), crc32c_scalar(p + shift, bytes));
	CHECK_EQ_U64(crc32c(p, 4096), crc32c_scalar(p, 4096));
	CHECK_EQ_U64(crc32c(p, big), crc32c_scalar(p, big));
	CHECK_EQ_U64(crc32c(p + 1, big - 1), crc32c_scalar(p + 1, big - 1));
	free(p);
}
