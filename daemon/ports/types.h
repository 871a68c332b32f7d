/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Types that the core shares with more than one port, or takes from one. */
#ifndef DDRAID_PORTS_TYPES_H
#define DDRAID_PORTS_TYPES_H

#include <stdint.h>

#include "daemon/base/limits.h"

/* A ring id as corosync gives it: names one membership, never comes twice. */
struct ring {
	uint32_t rep;
	uint64_t seq;
};

/* A request to a member. */
enum dev_op { DEV_READ, DEV_WRITE, DEV_FLUSH, DEV_ZEROES };
/* LATE: it does no harm whenever it lands, so nobody need wait for it (R5). END: the array uses
 * nothing behind it of the member. */
enum { DEV_F_FUA = 1, DEV_F_UNMAP = 2, DEV_F_LATE = 4, DEV_F_END = 8 };

#endif
