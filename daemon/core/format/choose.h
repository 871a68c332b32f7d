/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What `create` chooses of an array's shape when nothing else is asked for, and where it puts log,
 * journal and data on the members. This is the only place that does so. What was chosen is stored
 * (struct geo_params), and whatever reads a member goes by that.
 *
 * Pure functions: no state, any thread.
 */
#ifndef DDRAID_CORE_FORMAT_CHOOSE_H
#define DDRAID_CORE_FORMAT_CHOOSE_H

#include <stdint.h>

#include "daemon/core/format/geometry.h"

/*
 * From what a person chooses in *p this fills in the rest of *p: chunk, logical block, log_pages,
 * journal_bytes, data_offset; what stood there is overwritten. Then *g, as geo_init, whose errors
 * these are. On an error *p and *g are as before.
 */
int geo_choose(struct geo *g, struct geo_params *p, char *why);

/* 4 MiB, or what keeps a slot within 4 log pages, up to 64 MiB; more only for arrays whose log
 * would be too large then. */
uint32_t geo_default_region_bytes(uint64_t user_bytes, uint32_t slots);

#endif
