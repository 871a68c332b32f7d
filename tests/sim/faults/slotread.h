/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A slot changes hands, and its new owner is slow to read it (R15). */
#ifndef TESTS_SIM_FAULTS_SLOTREAD_H
#define TESTS_SIM_FAULTS_SLOTREAD_H

#include "tests/sim/common.h"

struct slotread {
	bool armed, met; /* met: its first read has begun */
	uint32_t node, tries;
	uint64_t until_us;      /* its reads end then */
	uint64_t rest_until_us; /* the others' consumers do */
};

void slotread_init(struct sim *s);
bool slotread_rests(const struct sim *s, const struct simnode *n); /* its consumers do */
uint64_t slotread_late_us(struct sim *s, const struct req *r);     /* so much later it arrives */

#endif
