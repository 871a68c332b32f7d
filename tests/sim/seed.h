/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One seed: it draws a world, its load and its faults, and runs it to the end.
 *
 *   SAFETY  work and faults
 *   HEAL    no more faults; everything that can be healed is; the cluster must become whole
 *   IDLE    no more work; every region must become clean
 *   READ    one node reads the whole array
 *   DONE    the media are checked raw
 */
#ifndef TESTS_SIM_SEED_H
#define TESTS_SIM_SEED_H

#include "tests/sim/world.h"

/* The world as the seed draws it, its nodes about to start. False: s->violation. */
bool seed_open(struct sim *s, uint64_t seed, const struct sim_cli *cli, struct stats *st);
/* All of it, and frees it. False: a violation (s->violation). */
bool seed_run(struct sim *s, uint64_t seed, const struct sim_cli *cli, struct stats *st);

#endif
