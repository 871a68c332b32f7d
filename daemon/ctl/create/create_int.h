/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between create_check.c, which only reads, and create.c, which writes. */
#ifndef DDRAID_CTL_CREATE_CREATE_INT_H
#define DDRAID_CTL_CREATE_CREATE_INT_H

#include "daemon/ctl/create/create_check.h"

/* What says whose the device is: the superblocks, and the use block after them. */
#define AREA_BLOCKS (SB_COPIES + 1u)
#define AREA_BYTES (AREA_BLOCKS * DDR_BLOCK_BYTES)
#define USE_AT (SB_COPIES * DDR_BLOCK_BYTES)

/* One create under way. */
struct job {
	const struct create_ask *ask;
	const struct create_dev *dev;
	uint32_t count;
	struct create_result *r;
	struct create_error *e;
	uint8_t *old;  /* count * AREA_BYTES: what was there */
	uint8_t *mine; /* count * AREA_BYTES: what was put there last */
	uint8_t *buf;  /* CREATE_IO_BYTES */
	uint8_t *look; /* AREA_BYTES: what is there */
	uint32_t claimed, settle_ms;
	uint32_t logs;    /* so many members' place of the log may have been written */
	bool backing_out; /* it only makes good */
	uint32_t at;      /* writing: the member, */
	uint64_t from;    /* and the run of blocks in buf: from here on the member, */
	uint32_t bytes;   /* so long */
};

/* member < 0: not about one device. Returns err. */
int create_refuse(struct job *j, int err, int member, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* create_check.c. All return 0, or -errno with j->e filled in. */
int refuse_io(struct job *j, int err, uint32_t member, const char *what);
void tell(struct job *j, const char *what, uint32_t done); /* progress */
int check_all(struct job *j); /* everything that can be found by reading */
int check_superblock(struct job *j, uint32_t i);
/* `block`, of member i: is it a claim of somebody else? */
int check_claim(struct job *j, uint32_t i, const uint8_t *block);
int check_use(struct job *j); /* waits as long as anybody may be silent */
int in_use(struct job *j, uint32_t i, const struct useblock *u); /* says so, -EBUSY */
/* How long its user may be silent; 0: it names none. */
uint32_t patience_ms(const uint8_t *block, struct useblock *u);
enum create_standing standing_of(const struct create_ask *ask, const struct superblock *sb);
int uuid_fresh(uint8_t uuid[DDR_UUID_BYTES]);

#endif
