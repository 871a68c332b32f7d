/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The seed's randomness: xoshiro256** (Blackman, Vigna), filled by splitmix64.
 */
#include "tests/sim/world.h"

uint64_t mix64(uint64_t v)
{
	v += 0x9e3779b97f4a7c15ull;
	v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ull;
	v = (v ^ v >> 27) * 0x94d049bb133111ebull;
	return v ^ v >> 31;
}

void rng_seed(struct rng *r, uint64_t seed)
{
	for (uint32_t i = 0; i < 4; i++)
		r->s[i] = mix64(seed * 4 + i);
}

static uint64_t rotl(uint64_t v, uint32_t by)
{
	return v << by | v >> (64 - by);
}

uint64_t rng_u64(struct rng *r)
{
	uint64_t result = rotl(r->s[1] * 5, 7) * 9, t = r->s[1] << 17;

	r->s[2] ^= r->s[0];
	r->s[3] ^= r->s[1];
	r->s[1] ^= r->s[2];
	r->s[0] ^= r->s[3];
	r->s[2] ^= t;
	r->s[3] = rotl(r->s[3], 45);
	return result;
}

uint32_t rng_below(struct rng *r, uint32_t n)
{
	return (uint32_t)((rng_u64(r) >> 32) * n >> 32);
}

uint64_t rng_range(struct rng *r, uint64_t lo, uint64_t hi)
{
	return lo + rng_u64(r) % (hi - lo + 1);
}

bool rng_chance(struct rng *r, uint32_t permille)
{
	return rng_below(r, 1000) < permille;
}
