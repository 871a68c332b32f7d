/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The seed's randomness. The same seed gives the same numbers on every machine.
 *
 * A fault that is "of its own randomness" has a stream of its own, or takes mix64 of the seed and
 * the time: a seed in which it does not strike runs as it would without it.
 */
#ifndef TESTS_SIM_RNG_H
#define TESTS_SIM_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct rng {
	uint64_t s[4];
};

void rng_seed(struct rng *r, uint64_t seed);
uint64_t rng_u64(struct rng *r);
uint32_t rng_below(struct rng *r, uint32_t n);               /* n > 0 */
uint64_t rng_range(struct rng *r, uint64_t lo, uint64_t hi); /* both included */
bool rng_chance(struct rng *r, uint32_t permille);
uint64_t mix64(uint64_t v); /* a hash: no state */

#endif
