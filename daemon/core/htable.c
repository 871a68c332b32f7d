/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A hash table; see htable.h. */
#include "daemon/core/htable.h"

#include <errno.h>
#include <stdlib.h>

#define BITS_LEAST 8u
#define BITS_MOST 24u

/* Fibonacci hashing: neighbouring numbers are spread, and so are those that a power of two parts.
 */
static uint32_t place(uint32_t bits, uint64_t key)
{
	return (uint32_t)(key * 0x9e3779b97f4a7c15ull >> (64 - bits));
}

static struct list *buckets_new(uint32_t bits)
{
	struct list *b = malloc(sizeof(*b) << bits);

	for (uint32_t i = 0; b && i < 1u << bits; i++)
		list_init(&b[i]);
	return b;
}

int htable_init(struct htable *t)
{
	t->bits = BITS_LEAST;
	t->count = 0;
	t->bucket = buckets_new(t->bits);
	return t->bucket ? 0 : -ENOMEM;
}

void htable_free(struct htable *t)
{
	free(t->bucket);
	t->bucket = NULL;
}

struct hentry *htable_find(const struct htable *t, uint64_t key)
{
	list_for_each(it, tmp, &t->bucket[place(t->bits, key)])
	{
		struct hentry *n = list_entry(it, struct hentry, link);

		if (n->key == key)
			return n;
	}
	return NULL;
}

/* Without memory it stays as it is: that is slower, no more. */
static void grow(struct htable *t)
{
	struct list *b = t->bits < BITS_MOST ? buckets_new(t->bits + 1) : NULL;

	if (!b)
		return;
	for (uint32_t i = 0; i < 1u << t->bits; i++)
		while (!list_empty(&t->bucket[i])) {
			struct hentry *n = list_first(&t->bucket[i], struct hentry, link);

			list_del(&n->link);
			list_add_tail(&b[place(t->bits + 1, n->key)], &n->link);
		}
	free(t->bucket);
	t->bucket = b;
	t->bits++;
}

void htable_add(struct htable *t, struct hentry *n, uint64_t key)
{
	if (t->count >= 1ull << t->bits)
		grow(t);
	n->key = key;
	list_add_tail(&t->bucket[place(t->bits, key)], &n->link);
	t->count++;
}

void htable_del(struct htable *t, struct hentry *n)
{
	list_del(&n->link);
	t->count--;
}

struct hentry *htable_any(const struct htable *t, uint32_t *from)
{
	for (; t->count && *from < 1u << t->bits; ++*from)
		if (!list_empty(&t->bucket[*from]))
			return list_first(&t->bucket[*from], struct hentry, link);
	return NULL;
}
