/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Bad spots: bytes of a member that can't be read, or written. */
#ifndef TESTS_SIM_FAULTS_SPOT_H
#define TESTS_SIM_FAULTS_SPOT_H

#include "tests/sim/common.h"
#include "tests/sim/rng.h"

struct disk;
struct spot {
	struct rng rng;
	uint64_t us; /* when one last struck a full map */
};

void spot_init(struct sim *s);
void spot_heal(struct sim *s);
void spot_written(struct disk *d, uint64_t offset, uint64_t bytes);
void spot_check(struct sim *s, const struct simnode *n);  /* C8, after each step */
bool spot_strikes(struct sim *s, const struct req *r);    /* this request fails */
bool spot_hides_slot(const struct sim *s, uint32_t slot); /* nobody may have read it as a whole */
/* A consumer's request that began then may have been failed for it. */
bool spot_refuses_lately(const struct sim *s, uint64_t since_us);
bool spot_excuses(const struct sim *s, uint64_t offset, uint32_t bytes, uint64_t since_us);

#endif
