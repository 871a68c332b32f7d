/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Superblock copies that are torn, or can't be read. */
#ifndef TESTS_SIM_FAULTS_SBCOPIES_H
#define TESTS_SIM_FAULTS_SBCOPIES_H

#include "tests/sim/common.h"
#include "tests/sim/rng.h"

struct sbcopies {
	struct rng rng;
	uint32_t cuts; /* that are still to come */
	uint64_t from_us;
	bool due;
};

void sbcopies_init(struct sim *s);
bool sbcopies_torn(struct sim *s, struct req *r);             /* this write is, and power fails */
bool sbcopies_unreadable(struct sim *s, const struct req *r); /* this read fails */
/* `half` of a write, or all of it, has taken effect. */
void sbcopies_written(struct sim *s, const struct req *r, bool half);

#endif
