/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A hash table of what has a number, intrusive, which grows with what is in it: finding costs the
 * same with ten entries and with a million. Pure, any thread that owns it.
 */
#ifndef DDRAID_CORE_HTABLE_H
#define DDRAID_CORE_HTABLE_H

#include <stdint.h>

#include "daemon/base/list.h"

struct hentry {
	struct list link;
	uint64_t key;
};

struct htable {
	struct list *bucket; /* 1 << bits */
	uint32_t bits;
	uint64_t count;
};

/* 0, or -ENOMEM. Empty. */
int htable_init(struct htable *t);
/* The entries are their owner's. Also of one that is all zero. */
void htable_free(struct htable *t);
/* NULL: there is none with this key. */
struct hentry *htable_find(const struct htable *t, uint64_t key);
/* Of this key there must be none. */
void htable_add(struct htable *t, struct hentry *n, uint64_t key);
void htable_del(struct htable *t, struct hentry *n);
/* Any one of them; NULL: it is empty. `from`: where to look first, 0 to begin with; kept for the
 * next call, so that emptying it as a whole looks at each bucket once. */
struct hentry *htable_any(const struct htable *t, uint32_t *from);

#endif
