/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The harness tells a failed test from a passed one. Without this every other test could be green
 * for the wrong reason. Each case runs in a child, with its own list of tests.
 */
#define TEST_NO_MAIN
#include "tests/lib/test.h"

#include <sys/wait.h>
#include <unistd.h>

#undef NDEBUG
#include <assert.h>

static void passes(void)
{
	CHECK(1 + 1 == 2);
	CHECK_EQ_U64(UINT64_MAX, UINT64_MAX);
	CHECK_EQ_INT(-5, -5);
	CHECK_EQ_STR("a", "a");
	CHECK_EQ_MEM("abc", "abd", 2);
	CHECK_EQ_MEM(NULL, NULL, 0);
}

static void fails_check(void)
{
	CHECK(1 + 1 == 3);
}

static void fails_u64(void)
{
	CHECK_EQ_U64(UINT64_C(1) << 32, 0);
}

static void fails_int(void)
{
	CHECK_EQ_INT(-5, 0);
}

static void fails_str(void)
{
	CHECK_EQ_STR("a", "b");
}

static void fails_mem(void)
{
	CHECK_EQ_MEM("abc", "abd", 3);
}

static void fails_deeper(void)
{
	fails_check();
	exit(0); /* not reached: a failed check ends the whole test */
}

static void skips(void)
{
	SKIP("for a test");
}

/* Runs up to two tests; returns the program's exit status and what it printed. */
static int run(void (*a)(void), void (*b)(void), char *arg, char *text, size_t text_bytes)
{
	struct test ta = {"first", a, NULL}, tb = {"second", b, NULL};
	char *argv[] = {(char *)"harness", arg, NULL};
	int fd[2], status;
	size_t have = 0;
	ssize_t got;
	pid_t pid;

	assert(pipe(fd) == 0);
	fflush(stdout);
	pid = fork();
	assert(pid >= 0);
	if (pid == 0) {
		dup2(fd[1], 1);
		close(fd[0]);
		test_first = NULL;
		test_last = &test_first;
		if (a)
			test_register(&ta);
		if (b)
			test_register(&tb);
		exit(test_run(arg ? 2 : 1, argv));
	}
	close(fd[1]);
	while ((got = read(fd[0], text + have, text_bytes - 1 - have)) > 0)
		have += (size_t)got;
	text[have] = '\0';
	close(fd[0]);
	assert(waitpid(pid, &status, 0) == pid);
	assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

int main(void)
{
	char text[4096], first[] = "first", nothing[] = "nothing";
	void (*const failing[])(void) = {fails_check, fails_u64, fails_int,
					 fails_str,   fails_mem, fails_deeper};

	assert(run(passes, passes, NULL, text, sizeof(text)) == 0);
	for (size_t i = 0; i < sizeof(failing) / sizeof(failing[0]); i++) {
		assert(run(failing[i], passes, NULL, text, sizeof(text)) == 1);
		assert(strstr(text, "FAIL first"));
		assert(strstr(text, "ok   second"));
		assert(strstr(text, "test_harness.c:"));
	}
	assert(run(fails_check, NULL, NULL, text, sizeof(text)) == 1);
	assert(strstr(text, "1 + 1 == 3"));

	assert(run(skips, passes, NULL, text, sizeof(text)) == 0);
	assert(run(skips, skips, NULL, text, sizeof(text)) == TEST_EXIT_SKIP);
	assert(run(passes, fails_check, first, text, sizeof(text)) == 0);
	assert(!strstr(text, "second"));
	assert(run(passes, fails_check, nothing, text, sizeof(text)) == TEST_EXIT_SKIP);
	return 0;
}
