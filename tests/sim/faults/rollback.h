/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A member is rolled back while all nodes are down. */
#ifndef TESTS_SIM_FAULTS_ROLLBACK_H
#define TESTS_SIM_FAULTS_ROLLBACK_H

#include "tests/sim/common.h"

struct rollback {
	uint8_t *image; /* of the disk, in that epoch */
	uint32_t disk;
	uint64_t epoch;
	uint64_t asked_us;
	bool holds;       /* no daemon starts yet */
	bool over, crash; /* crash: all die at once */
	bool crashed, unsealed, slow_records;
	uint32_t ii[SIM_MAX_NODES]; /* that were asked to stop */
};

/* The array is whole, and the seed would go on. True: this fault is under way first. */
bool rollback_act(struct sim *s);
bool rollback_holds(const struct sim *s);            /* no daemon may start */
uint64_t rollback_record_us(struct sim *s);          /* so much longer a node's record takes */
void rollback_stopped(struct sim *s, bool unsealed); /* OUT_STOPPED */

#endif
