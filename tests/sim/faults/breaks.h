/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Faults of members while the map changes or lacks one. */
#ifndef TESTS_SIM_FAULTS_BREAKS_H
#define TESTS_SIM_FAULTS_BREAKS_H

#include "tests/sim/rng.h"
#include "tests/sim/stats.h"

enum breaks_kind { BREAKS_LOSSLESS, BREAKS_LOSSY, BREAKS_NODES };
struct breaks { /* breaks.c */
	struct rng rng;
	uint32_t left, countdown;
	uint64_t at_us;
	enum cluster_state state;
	enum breaks_kind kind;
};

void breaks_init(struct sim *s);
void breaks_event(struct sim *s); /* after each event */
/* Nothing has befallen a member in use but a broken connection. */
bool breaks_unharmed(const struct sim *s);

#endif
