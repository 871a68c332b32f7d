/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The trace, the digest, and what the world knows of the nodes' messages.
 *
 * The digest sums up all events and outs of a seed, but for words: two runs with the same digest
 * did the same.
 */
#ifndef TESTS_SIM_TRACE_H
#define TESTS_SIM_TRACE_H

#include "tests/sim/common.h"

struct nev;

void trace_init(struct sim *s);
void trace_free(struct sim *s);
/* An event that goes in, an out that came; both go into the digest, too. */
void trace_event(struct sim *s, const struct simnode *n, const struct nev *nev);
void trace_out(struct sim *s, const struct simnode *n, const struct out *o);
/* A line of the world's own, if it is traced. */
__attribute__((format(printf, 2, 3))) void trace(struct sim *s, const char *fmt, ...);
void trace_tail(struct sim *s); /* prints what --tail kept */
#define TRACING(s) ((s)->tracing)

bool trace_is_commit(const uint8_t *data, size_t bytes);
bool trace_is_left(const uint8_t *data, size_t bytes);
uint32_t trace_evicts(const uint8_t *data, size_t bytes); /* whom, 0 = it is no Evict */

#endif
