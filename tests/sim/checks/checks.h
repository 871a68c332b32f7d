/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What must hold after every event, besides the contents (oracle.h): C3 to C10, as checks.c lists
 * them. A violation is noted by sim_fail. The parts of the world say what happens; checks_event and
 * checks_final look at the whole.
 */
#ifndef TESTS_SIM_CHECKS_CHECKS_H
#define TESTS_SIM_CHECKS_CHECKS_H

#include "tests/sim/common.h"

struct commit {
	struct epoch epoch;
	uint64_t hash;
};
struct checks {
	uint8_t *bad;     /* per stripe: parity is wrong over all n members */
	uint32_t *writes; /* per stripe: requests that have not taken effect yet */
	uint32_t bad_count[SIM_MAX_REGIONS];
	uint64_t bad_mask;
	uint64_t dirty_mask; /* durably dirty in some slot */
	struct map map;      /* newest committed anywhere */
	bool map_full;       /* every member in sync */
	uint32_t disk_of[DDR_MAX_MEMBERS];
	uint32_t member_of[SIM_MAX_DISKS]; /* NONE */
	struct commit *commit;
	uint32_t commits, commit_cap;
	bool dirty_stale;
	/* Per disk: something is or was wrong with it, and it isn't known to be whole again. */
	bool lossy[SIM_MAX_DISKS];
	bool harmed[SIM_MAX_DISKS]; /* of those: more than a broken connection */
	uint64_t lost_stamp[SIM_MAX_DISKS], lost_us[SIM_MAX_DISKS];
	uint64_t degraded_stamp;
	uint64_t promoted_num; /* the map since which a member was proposed for promotion */
	uint64_t too_few_us;   /* when fewer than k members were well last, 0 = never */
};

struct disk;
struct wop;

void checks_init(struct sim *s);
void checks_free(struct sim *s);
void checks_event(struct sim *s); /* after each event */
/* At the end, when all is at rest: what the media hold, raw. */
void checks_final(struct sim *s);

/* The medium changed there; durable log pages or in-sync members did; superblocks did. */
void checks_medium(struct sim *s, struct disk *d, uint64_t offset, uint32_t bytes);
void checks_log(struct sim *s);
void checks_bind(struct sim *s);

/* A member request is sent; it takes effect. A consumer's write is acknowledged. */
void checks_issue(struct sim *s, struct simnode *n, const struct req *r);
void checks_exec(struct sim *s, const struct req *r);
void checks_acked(struct sim *s, const struct wop *w);

/* Node n is told of a view, of quorum; its step is done, before and after its outs. */
void checks_view(struct sim *s, struct simnode *n, uint32_t ring, uint32_t item);
void checks_quorum(struct sim *s, struct simnode *n);
void checks_map(struct sim *s, struct simnode *n);
/* Node n does what only a view allows that is the quorum's (R2), in words: "has node 2 fenced". */
void checks_acts(struct sim *s, const struct simnode *n, const char *what);
void checks_step(struct sim *s, struct simnode *n);
void checks_serves(struct sim *s, const struct simnode *n); /* consumers have it open */
void checks_fenced(struct sim *s, uint32_t ii);
void checks_witness(struct sim *s, struct disk *d); /* who can tell that its cache was lost */
void checks_engine_gone(struct sim *s);             /* somebody who could may be gone */

/* R18 holds for what n reads from that stamp on: the writer was fenced before. */
bool checks_recovered(const struct incn *in, const struct simnode *n, uint64_t since);
bool checks_left(const struct sim *s, const struct incn *in); /* a quorate view is without it */
/* The stripes that a span of a member's bytes belongs to; false: it is none of the data. */
bool checks_data_span(const struct sim *s, uint64_t offset, uint32_t bytes, uint64_t *stripe,
		      uint64_t *last);

#endif
