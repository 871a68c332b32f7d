/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Stores without space. */
#ifndef TESTS_SIM_FAULTS_FULL_H
#define TESTS_SIM_FAULTS_FULL_H

#include "tests/sim/common.h"
#include "tests/sim/rng.h"

struct full {
	struct rng rng;
	uint64_t us; /* when one without space struck last that the map can drop */
};

void full_init(struct sim *s);
void full_heal(struct sim *s);
bool full_strikes(struct sim *s, const struct req *r); /* this write fails */
bool full_lately(const struct sim *s, uint32_t disk);  /* a node may not be able to use it */
/* A consumer's request that began then may have been failed for it. */
bool full_excuses(const struct sim *s, uint64_t since_us);

#endif
