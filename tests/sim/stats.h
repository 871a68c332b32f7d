/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How often each fault met each state of the cluster, and what a run of seeds did in all. */
#ifndef TESTS_SIM_STATS_H
#define TESTS_SIM_STATS_H

#include "tests/sim/common.h"
#include "tests/sim/faults/plan.h"

enum cluster_state {
	CS_JOINING,
	CS_ACTIVE,
	CS_PROPOSING,
	CS_FENCING,
	CS_RECOVERING,
	CS_REBUILDING,
	CS_DEGRADED,
	CS_COUNT
};
struct stats {
	uint64_t seeds;
	uint64_t in_seeds[F_COUNT], times[F_COUNT], in_state[F_COUNT][CS_COUNT];
	uint64_t events, writes, reads, flushes, commits, max_events, slot_reads_unfenced;
	uint64_t virtual_us, parity_fixed, marks, garbage_reads;
};

void stats_fault(struct sim *s, enum fault f); /* it happens now */
/* Until stats_look_end, the states that a fault meets are those of now: it changes them itself. */
void stats_look(struct sim *s);
void stats_look_end(struct sim *s);
bool stats_in_state(const struct sim *s, enum cluster_state cs);

void stats_seed(struct sim *s); /* at the end of a seed: adds it to s->stats */
void stats_add(struct stats *to, const struct stats *st);
void stats_print(const struct stats *st);
/* Names the faults that came too seldom, and counts them. */
int stats_missing(const struct stats *st, const struct sim_cli *cli);

#endif
