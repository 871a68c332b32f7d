// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A level, and the one to copy: level.h says what one must do. One parity fragment: the XOR of all
 * data fragments. So each fragment is the XOR of all others.
 */
#include "daemon/base/limits.h"
#include "daemon/core/level/level.h"
#include "daemon/core/level/parity.h"

static bool fits(unsigned k, unsigned m)
{
	return k >= 2 && m == 1;
}

static void encode(unsigned k, unsigned m, void *const *data, void *const *parity, size_t bytes)
{
	(void)m;
	parity_xor(parity[0], data, k, bytes);
}

/* `want` is none of k or more of k + 1 fragments: it is one. */
static void decode(unsigned k, unsigned m, void *const *frag, uint32_t valid, uint32_t want,
		   size_t bytes)
{
	void *src[DDR_MAX_MEMBERS];
	unsigned sources = 0;

	for (unsigned f = 0; f < k + m; f++)
		if (valid >> f & 1)
			src[sources++] = frag[f];
	parity_xor(frag[__builtin_ctz(want)], src, sources, bytes);
}

const struct level level_xor = {"xor", fits, encode, decode};
