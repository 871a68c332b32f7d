/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a sector of the array may contain (checks C1, C2). The consumers tell it of each request;
 * what they read, and what is on the media, is judged by it.
 */
#ifndef TESTS_SIM_CHECKS_ORACLE_H
#define TESTS_SIM_CHECKS_ORACLE_H

#include "tests/sim/common.h"
#include "tests/sim/front.h"

#define WID_INIT 0u               /* as created: zeroes */
#define WID_ANY (UINT32_MAX - 1)  /* undefined: garbage by contract */
#define WID_PIN (UINT32_MAX - 2)  /* garbage that somebody has read: `hash` */
#define WID_JUNK (UINT32_MAX - 3) /* of contents only: nobody's write */

struct wop { /* one front-end write */
	uint32_t node, ii;
	uint64_t issue, end, ack; /* stamps; end, ack NEVER while open */
	uint64_t block;
	uint32_t blocks;
	bool zeroes, durable, cut;
	bool powered;   /* it was open when all exporters lost power */
	bool must_fail; /* half of it has been read: with when_lost=eio a part ended early */
};
struct val {
	uint32_t wid;
	bool shadow; /* superseded, but comes back if the caches of more than m members are lost */
	uint64_t drop; /* stamp, NEVER = allowed */
	uint64_t born; /* WID_ANY: stamp at which the garbage came to be possible */
	uint64_t hash;
};
struct sector {
	struct val *v, one;
	uint32_t n, cap;
};
struct oracle {
	struct wop *wop;
	uint32_t wops, wop_cap;
	struct sector *sec;
	uint64_t sectors, blocks;
};
struct content {
	uint32_t wid; /* writer's id, WID_INIT = zeroes, WID_JUNK */
	uint64_t hash;
};

void oracle_init(struct sim *s);
void oracle_free(struct sim *s);
/* What a write puts into sectors, and whose write a sector's content is. */
void content_fill(uint8_t *data, uint32_t wid, uint64_t sector, uint32_t sectors);
struct content content_of(const uint8_t *data, uint64_t sector);

/* A consumer's write begins: returns its number. */
uint32_t oracle_write(struct sim *s, struct simnode *n, uint64_t offset, uint32_t bytes,
		      bool zeroes);
void oracle_lands(struct sim *s, const struct req *r); /* on a member */
void oracle_acked(struct sim *s, uint32_t wid, bool fua);
void oracle_cut(struct sim *s, uint32_t wid);  /* EIO, or its daemon is gone */
void oracle_ended(struct sim *s, uint32_t ii); /* nothing of this incarnation lands any more */
/* A FLUSH that began at this stamp has ended well. */
void oracle_flushed(struct sim *s, uint32_t ii, uint64_t issue);
/* A read has ended well: judges what it returned, and pins it. */
void oracle_read(struct sim *s, struct simnode *n, const struct fop *f);

/* The sector may have this content, for whoever looks since that stamp. */
bool oracle_allows(struct sim *s, uint64_t sector, const struct content *c, uint64_t since);
bool oracle_pending(const struct sim *s, uint64_t block, uint64_t since); /* some write is open */
void oracle_any(struct sim *s, uint64_t sector); /* risk.c: garbage is allowed there */
void oracle_power(struct sim *s);                /* unflushed data of more than m members is gone */

#endif
