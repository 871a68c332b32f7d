/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a device carries: file systems, volume managers, RAID members, partition tables, swap.
 */
#ifndef DDRAID_CTL_CREATE_SIGNATURE_H
#define DDRAID_CTL_CREATE_SIGNATURE_H

#include <stddef.h>
#include <stdint.h>

#define SIGNATURE_HEAD_BYTES (5u << 20)
#define SIGNATURE_TAIL_BYTES (2u << 20)
#define SIGNATURE_READ_BYTES (1u << 20) /* largest piece that is read at once */

/* 0 or -errno; all of it or nothing. */
typedef int (*signature_read_fn)(void *arg, uint64_t offset, void *buf, uint32_t bytes);

/*
 * 1: it carries something, and `what` says what, as "an ext4 file system (label \"home\")";
 * 0: nothing known; -errno: it couldn't be read, or there is no memory. Blocks; any thread.
 */
int signature_find(uint64_t size_bytes, signature_read_fn read, void *arg, char *what,
		   size_t what_bytes);

#endif
