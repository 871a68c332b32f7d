/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A fake DLM, for worlds with o.locks == LOCK_EXTERNAL: the fake adapter behind ports/lock.h. In
 * the others the engines have their own table of locks, and nothing here is called by them.
 */
#ifndef TESTS_SIM_LOCK_H
#define TESTS_SIM_LOCK_H

#include "tests/sim/common.h"

struct dlm;

void dlm_init(struct sim *s);
void dlm_free(struct sim *s);
/* OUT_LOCK, OUT_UNLOCK of node n's engine. */
void dlm_lock(struct sim *s, struct simnode *n, uint64_t id, enum lock_mode mode, bool try_only);
void dlm_unlock(struct sim *s, struct simnode *n, uint64_t id);
void dlm_quorate(struct sim *s, uint32_t ring); /* of that ring, which has quorum now */
/* This incarnation gives its locks back in order; or its process has ended; or its node is gone,
 * and the DLM's own recovery takes delay_us. */
void dlm_left(struct sim *s, uint32_t ii);
void dlm_ended(struct sim *s, uint32_t ii, uint64_t delay_us);
void dlm_node_gone(struct sim *s, uint32_t ii, uint64_t delay_us);
/* --readers: one has that lock, which this incarnation has none of then. */
bool dlm_reader_in(struct sim *s, uint32_t ii, uint64_t id);

#endif
