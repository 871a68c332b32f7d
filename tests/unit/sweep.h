/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the exhaustive tests of the core share: a sweep over geometries, and a PRNG whose
 * stream is the same everywhere.
 */
#ifndef DDRAID_TESTS_UNIT_SWEEP_H
#define DDRAID_TESTS_UNIT_SWEEP_H

#include <stdint.h>
#include <string.h>

#include "daemon/core/format/choose.h"

/* splitmix64. */
struct prng {
	uint64_t state;
};

static inline uint64_t prng_next(struct prng *r)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* 0 .. limit - 1 */
static inline uint32_t prng_below(struct prng *r, uint32_t limit)
{
	return (uint32_t)((prng_next(r) >> 32) * limit >> 32);
}

static inline void prng_fill(struct prng *r, void *to, size_t bytes)
{
	uint8_t *at = (uint8_t *)to;

	while (bytes) {
		uint64_t v = prng_next(r);
		size_t piece = bytes < sizeof(v) ? bytes : sizeof(v);

		memcpy(at, &v, piece);
		at += piece;
		bytes -= piece;
	}
}

/*
 * for (struct sweep w = {0}; sweep_next(&w);) ... w.p: every order and layout, stripes of one
 * block to a whole window, bands of one fragment to many, regions of one stripe to many. The
 * arrays are small: `stripes` whole stripes, and one byte less than another fragment.
 */
struct sweep {
	struct geo_params p;
	uint32_t stripes; /* set before the first call; 0: 300 */
	unsigned at;
};

static inline int sweep_next(struct sweep *w)
{
	static const uint32_t stripe[] = {4096, 8192, 65536, 131072};
	static const uint32_t band_frags[] = {1, 2, 8, 64};
	static const uint32_t region_stripes[] = {1, 4, 16};
	unsigned at = w->at++;

	if (!w->stripes)
		w->stripes = 300;
	w->p.m = 1;
	w->p.slots = 2;
	w->p.order = (uint8_t)(1 + at % DDR_MAX_ORDER);
	at /= DDR_MAX_ORDER;
	w->p.layout = (uint8_t)(at % 2);
	at /= 2;
	w->p.stripe_bytes = stripe[at % 4];
	at /= 4;
	w->p.band_bytes = band_frags[at % 4] * (w->p.stripe_bytes >> w->p.order);
	at /= 4;
	if (at >= 3)
		return 0;
	w->p.region_bytes = region_stripes[at] * w->p.stripe_bytes;
	/* All these arrays have one log page per slot, so data starts at the first MiB. */
	w->p.member_bytes =
	    DATA_ALIGN + (uint64_t)(w->stripes + 1) * (w->p.stripe_bytes >> w->p.order) - 1;
	return 1;
}

#endif
