/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The event heap: a binary heap by (time, order of insertion).
 */
#include <stdlib.h>

#include "tests/sim/world.h"

static bool before(const struct hev *a, const struct hev *b)
{
	return a->at != b->at ? a->at < b->at : a->ord < b->ord;
}

void heap_add(struct heap *h, uint64_t at, void (*fn)(struct sim *, struct hev *), uint64_t a,
	      uint64_t b, void *p)
{
	struct hev ev = {.at = at, .ord = h->next_ord++, .fn = fn, .a = a, .b = b, .p = p};
	uint32_t i = h->count++;

	if (h->count > h->cap) {
		h->cap = h->cap ? 2 * h->cap : 256;
		h->v = xrealloc(h->v, h->cap * sizeof(*h->v));
	}
	for (; i && before(&ev, &h->v[(i - 1) / 2]); i = (i - 1) / 2)
		h->v[i] = h->v[(i - 1) / 2];
	h->v[i] = ev;
}

bool heap_take(struct heap *h, struct hev *out)
{
	struct hev last;
	uint32_t i = 0;

	if (!h->count)
		return false;
	*out = h->v[0];
	last = h->v[--h->count];
	for (;;) {
		uint32_t c = 2 * i + 1;

		if (c >= h->count)
			break;
		if (c + 1 < h->count && before(&h->v[c + 1], &h->v[c]))
			c++;
		if (!before(&h->v[c], &last))
			break;
		h->v[i] = h->v[c];
		i = c;
	}
	h->v[i] = last;
	return true;
}

void heap_clear(struct heap *h)
{
	for (uint32_t i = 0; i < h->count; i++)
		free(h->v[i].p);
	free(h->v);
	*h = (struct heap){0};
}
