/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A daemon gives its incarnation up by itself. */
#ifndef TESTS_SIM_FAULTS_GIVESUP_H
#define TESTS_SIM_FAULTS_GIVESUP_H

#include "tests/sim/common.h"

struct givesup {
	uint64_t leave_at_us; /* from then on; 0: not, or done */
};

void givesup_init(struct sim *s);
bool givesup_leaves(struct sim *s, struct simnode *n); /* the lock space, now */
void givesup_heard(struct sim *s, struct simnode *n);  /* EV_GIVE_UP */
void givesup_removed(struct sim *s, uint32_t ii);      /* OUT_REMOVED */
void givesup_cut(struct sim *s, uint32_t wid);         /* a write that it had was failed */
/* Of those that are to hear that n's incarnation is over, one stands still for so long or more. */
void givesup_third_lags(struct sim *s, const struct simnode *n, uint64_t least_us);

#endif
