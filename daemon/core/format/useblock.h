/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The use block: who uses the array, on each of its members (doc/ondisk.md). Its user renews it as
 * long as it lives; use.c has the protocol. Pure functions, any thread.
 */
#ifndef DDRAID_CORE_FORMAT_USEBLOCK_H
#define DDRAID_CORE_FORMAT_USEBLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/format/geometry.h"

/* After the superblocks. */
#define USE_OFFSET (SB_OFFSET + SB_COPIES * DDR_BLOCK_BYTES)

#define USE_BOOT_BYTES 16
#define USE_UNKNOWN UINT64_MAX /* of claims: a block that is damaged was written by somebody */

/* A process, as its own machine can find it again. All zero: not said. */
struct use_process {
	uint8_t boot[USE_BOOT_BYTES]; /* of the kernel that it runs on: differs with each boot */
	uint64_t pid_space;           /* the name space that its id is of */
	uint64_t start;               /* when it began: ids come again */
	uint32_t pid;
};

struct useblock {
	uint8_t array_uuid[DDR_UUID_BYTES];
	uint64_t claim; /* names one run of the array, by all nodes of one cluster; 0 = nobody */
	uint64_t seq;   /* another one in each block that is written */
	uint64_t inc;   /* the incarnation that wrote it */
	uint64_t at_s;  /* when, in seconds since 1970, by the clock of its node; for people */
	uint32_t node;  /* its node */
	uint32_t patience_ms;         /* unchanged for so long: its user is gone */
	char cluster[DDR_NAME_BYTES]; /* "" = a daemon alone */
	char host[DDR_NAME_BYTES];    /* its node's name */
	struct use_process process;
};

void useblock_encode(const struct useblock *u, uint8_t out[DDR_BLOCK_BYTES]);
/* 0; -ENOENT: none was ever written here; -EBADMSG: damaged, or of another version. Text ends in
 * time and is printable. The caller compares the UUID. */
int useblock_decode(struct useblock *u, const uint8_t in[DDR_BLOCK_BYTES]);

/* "node 2 (host) of cluster c": whose block it is, for people; of USE_UNKNOWN, too. */
#define USE_NAME_BYTES 220
void useblock_name(const struct useblock *u, char text[USE_NAME_BYTES]);

#endif
