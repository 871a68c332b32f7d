/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The event heap: what is going to happen, in order of (time, order of insertion). It is what makes
 * time virtual: the clock of the world is the time of the event that is taken.
 */
#ifndef TESTS_SIM_HEAP_H
#define TESTS_SIM_HEAP_H

#include <stdbool.h>
#include <stdint.h>

struct sim;

struct hev {
	uint64_t at, ord;
	void (*fn)(struct sim *s, struct hev *ev);
	uint64_t a, b; /* the handler's arguments */
	void *p;       /* one malloc block or NULL; the handler takes it by setting p to NULL */
};
struct heap {
	struct hev *v;
	uint32_t count, cap;
	uint64_t next_ord;
};

void heap_add(struct heap *h, uint64_t at, void (*fn)(struct sim *, struct hev *), uint64_t a,
	      uint64_t b, void *p);
bool heap_take(struct heap *h, struct hev *out); /* the earliest; false: there is none */
void heap_clear(struct heap *h);                 /* frees all, with what they point to */

#endif
