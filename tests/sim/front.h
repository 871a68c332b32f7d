/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The consumers: one per node, with several requests at once. In a seed they write and read by
 * themselves; in a script (s->scripted) only what front_request says. Either way every
 * request is told to the oracle, which judges its answer.
 */
#ifndef TESTS_SIM_FRONT_H
#define TESTS_SIM_FRONT_H

#include "tests/sim/common.h"

struct fop {
	bool used, given; /* given: to the engine */
	uint64_t tag;
	enum io_op op;
	uint32_t flags, bytes, wid, ii;
	uint64_t offset, issue, issued_us;
	uint8_t *buf;
};
enum front_mode { FRONT_HOT, FRONT_RUNS, FRONT_SEQ, FRONT_ANY, FRONT_IDLE, FRONT_MODES };
struct front {
	bool open;
	enum front_mode mode;
	uint64_t mode_until_us;
	uint64_t seq_block;
	uint32_t inflight;
	uint64_t timer_at;
	struct fop op[SIM_FRONT_DEPTH];
};

void front_open(struct sim *s, struct simnode *n); /* the array can be used here from now on */
void front_given(struct simnode *n, uint64_t tag); /* the engine has this request from now on */
void front_done(struct sim *s, struct simnode *n, uint64_t tag, int err); /* OUT_IO_DONE */
void front_removed(struct sim *s, struct simnode *n); /* at EV_RESTART: nothing may be left */
void front_abort(struct sim *s, struct simnode *n);   /* the daemon is gone */
/* The consumer of node n begins a request; false: it does not have the array, or has too many. */
bool front_request(struct sim *s, struct simnode *n, enum io_op op, uint64_t block,
		   uint32_t blocks);
/* The consumer of node `was` writes this again, on another node where it has the array. */
void front_elsewhere(struct sim *s, const struct simnode *was, uint64_t block, uint32_t blocks);
/* A reader of the whole array, at the end; call it until it is true. */
bool front_read_all(struct sim *s, struct simnode *n);

uint32_t front_inflight(const struct sim *s);       /* requests of all consumers */
uint32_t front_unanswered(const struct simnode *n); /* that its engine has */
bool front_in_parts(const struct sim *s);           /* a write of which some may be through */

#endif
