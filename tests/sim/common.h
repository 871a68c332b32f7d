/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What all parts of the simulated world share: its bounds, its units, its memory.
 *
 * Rules for every part: no wall clock, no address in any decision or line of trace, all randomness
 * from the seed. Times are microseconds of virtual time (`now`); a stamp (sim_stamp) orders what
 * happens at one moment.
 */
#ifndef TESTS_SIM_COMMON_H
#define TESTS_SIM_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/core/engine.h"
#include "daemon/core/format/choose.h"
#include "daemon/core/format/logpage.h"
#include "daemon/core/format/superblock.h"

#define SIM_MAX_NODES 5
#define SIM_MAX_DISKS 14 /* up to 9 members and 5 spares */
#define SIM_MAX_INCS 512
#define SIM_MAX_REGIONS 64 /* region sets are one word */
#define SIM_MAX_PAGES 64   /* of a log slot */
#define SIM_FRONT_DEPTH 24
#define SECTOR 512u
#define BLOCK_SECTORS (DDR_BLOCK_BYTES / SECTOR)
#define NEVER UINT64_MAX /* of a time or a stamp */
#define NONE UINT32_MAX  /* of an index */
#define MS 1000ull

struct sim;     /* world.h: the world, to which all these parts belong */
struct simnode; /* node.h */
struct sim_cli; /* world.h */
struct req;     /* dev.h */
struct incn;    /* fence.h */

/* As malloc, calloc, realloc, but never NULL: the simulator doesn't simulate a lack of memory. */
void *xmalloc(size_t bytes);
void *xcalloc(size_t n, size_t bytes);
void *xrealloc(void *p, size_t bytes);

#endif
