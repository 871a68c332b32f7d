/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The faults, and what several of them are made of. Those with more to say have a header of their
 * own beside this one. What the contract allows bounds them: faults.c.
 */
#ifndef TESTS_SIM_FAULTS_FAULTS_H
#define TESTS_SIM_FAULTS_FAULTS_H

#include "tests/sim/faults/plan.h"

/* The planner's. False: it can't be now; it did not begin. */
bool fault_fits(const struct sim *s, enum fault f);
bool fault_start(struct sim *s, enum fault f);
bool fault_counts_itself(enum fault f); /* when it happens, not when it is planned */
void faults_heal(struct sim *s);

/* May this disk err now, so that no more than m members are at risk? */
bool fault_may_strike(const struct sim *s, uint32_t disk);
bool fault_may_lose_in_change(const struct sim *s); /* while a proposal is under way */

void fault_exporter_power(struct sim *s, uint32_t disk, uint64_t off_us, bool trusted);
void fault_cluster_power(struct sim *s, bool exporters);    /* all nodes */
void fault_all_exporters(struct sim *s);                    /* and no node */
void fault_hide(struct sim *s, uint32_t disk, uint64_t us); /* no node reaches it for so long */
bool fault_disconnect_one(struct sim *s, uint32_t disk);    /* one node does not */
void fault_break_too(struct sim *s, uint32_t disk);         /* soon */
bool fault_die_in_change(struct sim *s);                    /* a member, for ever */

/* Faults that happen by themselves in some seeds, and of which nobody else knows. */
void faults_init(struct sim *s);   /* all exporters lose power */
void exchange_init(struct sim *s); /* exchange.c: two members change places */
void rack_init(struct sim *s);     /* rack.c: a node and an exporter lose power together */
void storage_init(struct sim *s);  /* storage.c: a node does not reach the members */

/* differs.c: nodes that fence otherwise than the others. */
void differs_init(struct sim *s);
void differs_heal(struct sim *s);

/* rebuilds.c: faults that meet a rebuild. */
void rebuild_arm(struct sim *s); /* the planner has armed one */
bool rebuild_met(const struct sim *s, const struct simnode *leader);
void rebuild_strike(struct sim *s, enum fault f);
bool rebuild_may_err(const struct sim *s, uint32_t disk);

#endif
