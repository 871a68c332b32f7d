/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Somebody outside of the cluster uses the same members. */
#ifndef TESTS_SIM_FAULTS_OUTSIDER_H
#define TESTS_SIM_FAULTS_OUTSIDER_H

#include "tests/sim/common.h"
#include "tests/sim/rng.h"

struct outsider {
	struct rng rng;
	int state;
	bool armed; /* it begins as the first node looks */
	uint32_t tries;
	uint64_t seq, until_us;
	uint64_t claim[SIM_MAX_DISKS], seen[SIM_MAX_DISKS]; /* as read last, and its seq */
	uint64_t since_us[SIM_MAX_DISKS];                   /* when that was new */
};

void outsider_init(struct sim *s);
/* A member request is sent: while an outsider has the array, that is a violation (C11). */
void outsider_issue(struct sim *s, const struct simnode *n, const struct req *r);

#endif
