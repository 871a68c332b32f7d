/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The unit tests' harness: one header, one program per file.
 *
 *	#include "tests/lib/test.h"
 *
 *	TEST(a_full_stripe_needs_no_read)
 *	{
 *		CHECK(plan.iov_count > 0);
 *		CHECK_EQ_U64(plan.req_count, 5);
 *	}
 *
 * That is the whole file: this header brings main(). The program runs its tests in the order of
 * the file, or only those whose name contains an argument. A failed check prints its expression,
 * file and line and ends that test, not the program. Checks work at any depth of calls. Exit
 * status: 0 passed, 1 failed, 77 every test was skipped or there was none to run.
 *
 * A check costs one comparison while it holds, so exhaustive loops may be full of them.
 */
#ifndef DDRAID_TESTS_LIB_TEST_H
#define DDRAID_TESTS_LIB_TEST_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEST_EXIT_SKIP 77

enum test_end { TEST_PASSED = 0, TEST_FAILED = 1, TEST_SKIPPED = 2 };

struct test {
	const char *name;
	void (*run)(void);
	struct test *next;
};

static struct test *test_first, **test_last = &test_first;
static jmp_buf test_out;

static inline void test_register(struct test *t)
{
	*test_last = t;
	test_last = &t->next;
}

#define TEST(name_)                                                                                \
	static void test_##name_(void);                                                            \
	__attribute__((constructor)) static void test_reg_##name_(void)                            \
	{                                                                                          \
		static struct test t = {#name_, test_##name_, NULL};                               \
		test_register(&t);                                                                 \
	}                                                                                          \
	static void test_##name_(void)

_Noreturn static inline void test_end_now(enum test_end how)
{
	fflush(stdout);
	longjmp(test_out, (int)how);
}

/* Ends the test as failed or skipped. The arguments are printf's. */
#define FAIL(...) TEST_END(TEST_FAILED, "failed: ", __VA_ARGS__)
#define SKIP(...) TEST_END(TEST_SKIPPED, "skipped: ", __VA_ARGS__)
#define TEST_END(how_, word_, ...)                                                                 \
	do {                                                                                       \
		printf("%s:%d: " word_, __FILE__, __LINE__);                                       \
		printf(__VA_ARGS__);                                                               \
		putchar('\n');                                                                     \
		test_end_now(how_);                                                                \
	} while (0)

#define CHECK(expr_)                                                                               \
	do {                                                                                       \
		if (!(expr_))                                                                      \
			FAIL("%s", #expr_);                                                        \
	} while (0)

/* As CHECK, and says on which case of a loop: CHECK_MSG(x == y, "order %u stripe %u", o, s). */
#define CHECK_MSG(expr_, ...)                                                                      \
	do {                                                                                       \
		if (!(expr_)) {                                                                    \
			printf("at ");                                                             \
			printf(__VA_ARGS__);                                                       \
			printf("\n");                                                              \
			FAIL("%s", #expr_);                                                        \
		}                                                                                  \
	} while (0)

#define CHECK_EQ_U64(got_, want_)                                                                  \
	do {                                                                                       \
		uint64_t check_got = (uint64_t)(got_), check_want = (uint64_t)(want_);             \
		if (check_got != check_want)                                                       \
			FAIL("%s == %s: %" PRIu64 " (0x%" PRIx64 "), wanted %" PRIu64              \
			     " (0x%" PRIx64 ")",                                                   \
			     #got_, #want_, check_got, check_got, check_want, check_want);         \
	} while (0)

/* For results that are 0 or -errno. */
#define CHECK_EQ_INT(got_, want_)                                                                  \
	do {                                                                                       \
		int64_t check_got = (int64_t)(got_), check_want = (int64_t)(want_);                \
		if (check_got != check_want)                                                       \
			FAIL("%s == %s: %" PRId64 ", wanted %" PRId64, #got_, #want_, check_got,   \
			     check_want);                                                          \
	} while (0)

#define CHECK_EQ_STR(got_, want_)                                                                  \
	do {                                                                                       \
		const char *check_got = (got_), *check_want = (want_);                             \
		if (strcmp(check_got, check_want) != 0)                                            \
			FAIL("%s == %s: \"%s\", wanted \"%s\"", #got_, #want_, check_got,          \
			     check_want);                                                          \
	} while (0)

static inline void test_print_hex(const char *what, const void *data, size_t bytes)
{
	printf("  %s", what);
	for (size_t i = 0; i < bytes; i++)
		printf(" %02x", ((const unsigned char *)data)[i]);
	printf("\n");
}

/* Index of the first byte that differs, or `bytes`. */
static inline size_t test_first_diff(const void *a, const void *b, size_t bytes)
{
	const unsigned char *p = a, *q = b;
	size_t i = 0;

	while (i < bytes && p[i] == q[i])
		i++;
	return i;
}

#define CHECK_EQ_MEM(got_, want_, bytes_)                                                          \
	do {                                                                                       \
		const unsigned char *check_got = (const void *)(got_);                             \
		const unsigned char *check_want = (const void *)(want_);                           \
		size_t check_bytes = (bytes_);                                                     \
		if (check_bytes && memcmp(check_got, check_want, check_bytes) != 0) {              \
			size_t check_at = test_first_diff(check_got, check_want, check_bytes);     \
			size_t check_len = check_bytes - check_at;                                 \
			if (check_len > 16)                                                        \
				check_len = 16;                                                    \
			test_print_hex("got   ", check_got + check_at, check_len);                 \
			test_print_hex("wanted", check_want + check_at, check_len);                \
			FAIL("%s == %s: differs from byte %zu of %zu on", #got_, #want_, check_at, \
			     check_bytes);                                                         \
		}                                                                                  \
	} while (0)

static inline bool test_wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strstr(name, argv[i]))
			return true;
	return argc < 2;
}

static inline int test_run(int argc, char **argv)
{
	static const char *const words[] = {"ok  ", "FAIL", "skip"};
	static unsigned count[3]; /* static: must survive longjmp */
	static struct test *t;

	for (t = test_first; t; t = t->next) {
		enum test_end how;

		if (!test_wanted(t->name, argc, argv))
			continue;
		switch (setjmp(test_out)) {
		case 0:
			t->run();
			how = TEST_PASSED;
			break;
		case TEST_SKIPPED:
			how = TEST_SKIPPED;
			break;
		default:
			how = TEST_FAILED;
			break;
		}
		count[how]++;
		printf("%s %s\n", words[how], t->name);
		fflush(stdout);
	}
	if (count[TEST_FAILED])
		return 1;
	return count[TEST_PASSED] ? 0 : TEST_EXIT_SKIP;
}

#ifndef TEST_NO_MAIN
int main(int argc, char **argv)
{
	return test_run(argc, argv);
}
#endif

#endif
