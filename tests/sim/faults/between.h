/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A leader dies with a page of the log on one member only. */
#ifndef TESTS_SIM_FAULTS_BETWEEN_H
#define TESTS_SIM_FAULTS_BETWEEN_H

#include "tests/sim/common.h"

struct between {
	uint32_t left;     /* leaders that are still to die */
	bool seen;         /* one has */
	uint64_t after_us; /* so long after that the connections break */
	uint32_t disk;     /* the one that has the page */
	uint32_t slot, page;
	uint64_t until_us;
};

void between_init(struct sim *s);
uint64_t between_late_us(struct sim *s, const struct req *r); /* so much later it arrives */
void between_landed(struct sim *s, const struct req *r);

#endif
