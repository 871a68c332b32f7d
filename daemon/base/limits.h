/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Named bounds of the core. Every queue, table and loop in daemon/core is bounded by one of these.
 */
#ifndef DDRAID_BASE_LIMITS_H
#define DDRAID_BASE_LIMITS_H

#define DDR_MAX_ORDER 3      /* k = 2^order data fragments */
#define DDR_MAX_PARITY 2     /* m; formats carry 2, the code of today builds 1 */
#define DDR_MAX_MEMBERS 10   /* (1 << DDR_MAX_ORDER) + DDR_MAX_PARITY */
#define DDR_MAX_DEVS 16      /* open devices of one array: members, and candidates for `add` */
#define DDR_MAX_NODES 32     /* nodes of one cluster that use one array */
#define DDR_MAX_SLOTS 64     /* slots of the dirty log, without the array's own */
#define DDR_NAME_BYTES 64    /* array name with its NUL */
#define DDR_RECOVERIES 8     /* lost nodes that the status tells of */
#define DDR_URI_BYTES 512    /* member URI with its NUL */
#define DDR_BLOCK_BYTES 4096 /* block of the format: superblock, log page; smallest stripe */
#define DDR_UUID_BYTES 16
#define DDR_ERRNO_MAX 4095 /* a message's -errno is no less than its negative */

#define DDR_MAX_IO_BYTES (1u << 20)        /* largest request that the planner takes in one piece */
#define DDR_WINDOW_BYTES (128u << 10)      /* user bytes of one resync, rebuild or check window */
#define DDR_MAX_FRONT_IO_BYTES (32u << 20) /* largest front-end request */

#endif
