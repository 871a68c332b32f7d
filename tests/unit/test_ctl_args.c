/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <errno.h>

#include "tests/lib/test.h"
#include "tests/unit/sweep.h"
#include "tools/ctl/args.h"
#include "tools/ctl/json.h"

#define MAX_WORDS 16

static struct args a;
static char error[ARGS_ERROR_BYTES];

/* Splits a line at blanks; the parser may write into its arguments. */
static int parse(const char *line)
{
	static char copy[4096];
	char *argv[64] = {(char *)"ddraidctl"};
	int argc = 1;

	snprintf(copy, sizeof(copy), "%s", line);
	for (char *w = strtok(copy, " "); w && argc < 63; w = strtok(NULL, " "))
		argv[argc++] = w;
	return args_parse(&a, argc, argv, error);
}

static void refused(const char *line, const char *words)
{
	CHECK_MSG(parse(line) == -EINVAL, "%s", line);
	CHECK_MSG(strstr(error, words), "%s: %s", line, error);
}

TEST(options_may_stand_anywhere)
{
	CHECK_EQ_INT(parse("create --order 1 vol0 --wipe a --stripe=64K b c --json"), 0);
	CHECK_EQ_INT(a.cmd, CMD_CREATE);
	CHECK_EQ_U64(a.order, 1);
	CHECK_EQ_U64(a.stripe_bytes, 65536);
	CHECK(a.wipe && a.json && !a.wait && !a.old_member && !a.unaligned);
	CHECK_EQ_INT(a.count, 4);
	CHECK_EQ_STR(a.word[0], "vol0");
	CHECK_EQ_STR(a.word[3], "c");
	CHECK_EQ_INT(parse("--json --ipc x1 status vol0"), 0);
	CHECK_EQ_STR(a.ipc, "x1");
	CHECK_EQ_STR(a.word[0], "vol0");
}

TEST(a_daemon_has_a_name_or_a_path)
{
	CHECK_EQ_INT(parse("status --ipc ./x"), 0);
	CHECK_EQ_STR(a.ipc, "./x");
	refused("status --ipc x~", "letters, digits");
	refused("status --ipc /0123456789012345678901234567890123456789012345678901234567890123456"
		"7890123456789012345678901234567890123456",
		"at most 107");
}

TEST(two_dashes_end_the_options)
{
	CHECK_EQ_INT(parse("examine -- --json -x"), 0);
	CHECK(!a.json);
	CHECK_EQ_INT(a.count, 2);
	CHECK_EQ_STR(a.word[0], "--json");
}

TEST(an_option_belongs_to_its_commands)
{
	refused("fail vol0 1 --wait", "no option --wait");
	refused("status --layout rotate", "no option --layout");
	refused("examine a --wait", "no option --wait");
	refused("status --orde 2", "no option --orde");
	refused("status --orders=2", "no option --orders");
}

TEST(sizes_of_create_fit_their_messages)
{
	refused("create v --order 1 --stripe 4G a b c", "out of range");
	refused("create v --order 1 --region-size 0 a b c", "out of range");
	refused("create v --order 1 --slots 1 a b c", "2 to 64");
	refused("create v --order 1 --slots 65 a b c", "2 to 64");
	refused("create v --order 0 a b c", "1, 2 or 3");
	CHECK_EQ_INT(parse("create v --order 1 --region-size 2G --slots 64 a b c"), 0);
	CHECK_EQ_U64(a.region_bytes, 2147483648u);
}

TEST(settings_are_split_at_the_first_equals_sign)
{
	char setting[] = "fence_command=/bin/x a=b", bad[] = "=x", none[] = "x";

	CHECK_EQ_STR(args_split(setting), "/bin/x a=b");
	CHECK_EQ_STR(setting, "fence_command");
	CHECK(!args_split(bad));
	CHECK(!args_split(none));
	refused("create v --order 1 --set novalue a b c", "KEY=VALUE");
	refused("create v --order 1 --set =x a b c", "KEY=VALUE");
}

TEST(more_words_than_anybody_needs_are_refused)
{
	static char *argv[ARGS_MAX_WORDS + 3];

	argv[0] = (char *)"ddraidctl";
	argv[1] = (char *)"examine";
	for (int i = 2; i < ARGS_MAX_WORDS + 2; i++)
		argv[i] = (char *)"x";
	CHECK_EQ_INT(args_parse(&a, ARGS_MAX_WORDS + 1, argv, error), 0);
	CHECK_EQ_INT(a.count, ARGS_MAX_WORDS - 1);
	CHECK_EQ_INT(args_parse(&a, ARGS_MAX_WORDS + 2, argv, error), -EINVAL);
	CHECK_EQ_INT(args_parse(&a, 1, argv, error), -EINVAL);
	CHECK_EQ_INT(args_parse(&a, 0, argv, error), -EINVAL);
}

static const char *const vocabulary[] = {
    "create",    "start",   "stop",    "status",    "fail",     "add",
    "re-add",    "forget",  "nodes",   "set",       "get",      "version",
    "examine",   "help",    "--order", "--order=2", "--wipe",   "--json",
    "--wait",    "--",      "-",       "-h",        "--help",   "--stripe",
    "--stripe=", "--set",   "a=b",     "=",         "4K",       "99999999999999999999",
    "vol0",      "nbd://x", "",        "--=",       "--daemon", "--timeout",
    "1",         "2",       "--ipc",   "%s%n",      "attach",   "detach",
    "--via",     "shim"};

/* Words of the language and of none, in any order: an answer, in bounds, and a reason when refused.
 */
TEST(random_command_lines_never_hurt)
{
	const uint32_t words = sizeof(vocabulary) / sizeof(vocabulary[0]);
	static char text[MAX_WORDS][40];
	struct prng r = {7};
	unsigned accepted = 0;

	for (uint32_t i = 0; i < 200000; i++) {
		char *argv[MAX_WORDS + 1] = {(char *)"ddraidctl"};
		int argc = 1 + (int)prng_below(&r, MAX_WORDS);

		for (int k = 1; k < argc; k++) {
			char *w = text[k - 1];

			argv[k] = w;
			snprintf(w, sizeof(text[0]), "%s", vocabulary[prng_below(&r, words)]);
			if (!prng_below(&r, 8)) {
				prng_fill(&r, w, sizeof(text[0]));
				w[prng_below(&r, sizeof(text[0]))] = '\0';
			}
			w[sizeof(text[0]) - 1] = '\0';
		}
		memset(error, 'x', sizeof(error));
		if (args_parse(&a, argc, argv, error)) {
			CHECK(error[0] && memchr(error, '\0', sizeof(error)));
			continue;
		}
		accepted++;
		CHECK(a.cmd < CMD_COUNT && a.count >= 0 && a.count <= ARGS_MAX_WORDS);
		for (int k = 0; k < a.count; k++)
			CHECK(a.word[k] != NULL);
	}
	CHECK(accepted > 1000);
}

static const char *json_of(const char *text)
{
	static char out[256];
	struct json j = {.out = fmemopen(out, sizeof(out), "w")};

	json_text(&j, NULL, text);
	fclose(j.out);
	return out;
}

TEST(json_text_is_always_valid)
{
	CHECK_EQ_STR(json_of("a\"\\\n\t\x7f"), "\"a\\\"\\\\\\u000a\\u0009\\u007f\"");
	CHECK_EQ_STR(json_of("\xc3\xa4 \xf0\x9f\x98\x80"), "\"\xc3\xa4 \xf0\x9f\x98\x80\"");
	CHECK_EQ_STR(json_of("\xc0\xaf"), "\"\\ufffd\\ufffd\"");            /* overlong */
	CHECK_EQ_STR(json_of("\xed\xa0\x80"), "\"\\ufffd\\ufffd\\ufffd\""); /* surrogate */
	CHECK_EQ_STR(json_of("\xf4\x90\x80\x80"),
		     "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");        /* > 10ffff */
	CHECK_EQ_STR(json_of("\xe2\x82"), "\"\\ufffd\\ufffd\""); /* cut off */
}
