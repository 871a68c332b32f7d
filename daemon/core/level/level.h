/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a RAID level is: how the parity fragments of a stripe follow from its data fragments. Where
 * fragments lie (format/geometry.h), and when they are read and written (data/), is the same for
 * all levels.
 *
 * A new level is a file beside xor.c and a line in level.c. Pure functions, any thread.
 */
#ifndef DDRAID_CORE_LEVEL_LEVEL_H
#define DDRAID_CORE_LEVEL_LEVEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct level {
	const char *name;
	/* Does it serve arrays of k data and m parity fragments? Any m members may be lost then. */
	bool (*fits)(unsigned k, unsigned m);
	/* parity[0] to parity[m - 1] from data[0] to data[k - 1]; `bytes` of each. */
	void (*encode)(unsigned k, unsigned m, void *const *data, void *const *parity,
		       size_t bytes);
	/* frag[0] to frag[k - 1] are data, the m behind them parity. Computes those of the mask
	 * `want` from those of `valid`, which are k or more, and none of `want`. */
	void (*decode)(unsigned k, unsigned m, void *const *frag, uint32_t valid, uint32_t want,
		       size_t bytes);
};

/* NULL: there is none for such arrays. */
const struct level *level_of(unsigned k, unsigned m);
/* For a test: one more, before any other call. */
void level_add(const struct level *l);

#endif
