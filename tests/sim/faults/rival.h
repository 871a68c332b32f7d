/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Another array that wants a disk of ours. */
#ifndef TESTS_SIM_FAULTS_RIVAL_H
#define TESTS_SIM_FAULTS_RIVAL_H

#include "tests/sim/common.h"
#include "tests/sim/rng.h"

struct rival {
	struct rng rng;
	uint32_t disk; /* of the `add` under way */
};

void rival_init(struct sim *s);
/* The administrator adds this disk, and was answered. */
void rival_add_asked(struct sim *s, uint32_t disk);
void rival_add_answered(struct sim *s, int err);

#endif
