/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A hash table against a plain array; and its chains stay short, however much is in it. */
#include "tests/lib/test.h"

#include <stdlib.h>

#include "daemon/core/htable.h"
#include "tests/unit/sweep.h"

#define KEYS 4096u

static struct hentry node[KEYS];
static bool in[KEYS];

/* Numbers as regions have: next to one another, far apart, with a kind in the top byte. */
static uint64_t key_of(uint32_t i)
{
	return i % 3 == 0 ? i : i % 3 == 1 ? (uint64_t)i << 20 : (1ull << 56) + i;
}

TEST(it_finds_what_is_in_it_and_nothing_else)
{
	struct prng rng = {3};
	struct htable t;
	uint64_t count = 0;
	uint32_t from = 0;

	CHECK_EQ_INT(htable_init(&t), 0);
	CHECK(!htable_any(&t, &from));
	for (uint32_t n = 0; n < 40000; n++) {
		uint32_t i = prng_below(&rng, KEYS);

		CHECK(htable_find(&t, key_of(i)) == (in[i] ? &node[i] : NULL));
		if (in[i])
			htable_del(&t, &node[i]);
		else
			htable_add(&t, &node[i], key_of(i));
		count += in[i] ? -1 : 1;
		in[i] = !in[i];
		CHECK_EQ_U64(t.count, count);
	}
	from = 0;
	for (struct hentry *n; (n = htable_any(&t, &from)); count--) {
		uint32_t i = (uint32_t)(n - node);

		CHECK(in[i] && n->key == key_of(i));
		in[i] = false;
		htable_del(&t, n);
	}
	CHECK_EQ_U64(count, 0);
	htable_free(&t);
}

static uint32_t longest(const struct htable *t)
{
	uint32_t most = 0;

	for (uint32_t b = 0; b < 1u << t->bits; b++) {
		uint32_t n = 0;

		list_for_each(it, tmp, &t->bucket[b]) n++;
		most = n > most ? n : most;
	}
	return most;
}

TEST(chains_stay_short)
{
	enum { MANY = 300000 };
	struct hentry *n = calloc(MANY, sizeof(*n));

	for (uint32_t step = 1; step <= 1024; step *= 32) {
		struct htable t;

		CHECK_EQ_INT(htable_init(&t), 0);
		for (uint64_t i = 0; i < MANY; i++)
			htable_add(&t, &n[i], i * step);
		CHECK(longest(&t) <= 8);
		htable_free(&t);
	}
	free(n);
}
