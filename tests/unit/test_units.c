/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <errno.h>
#include <string.h>

#include "daemon/base/units.h"
#include "tests/lib/test.h"
#include "tests/unit/sweep.h"

static void size_is(const char *text, uint64_t want)
{
	uint64_t got = ~want;

	CHECK_MSG(size_parse(text, &got, NULL) == 0, "%s", text);
	CHECK_EQ_U64(got, want);
}

static void size_is_not(const char *text, int err)
{
	uint64_t got = 4711;
	const char *why = NULL;

	CHECK_MSG(size_parse(text, &got, &why) == err, "%s", text);
	CHECK(why != NULL);
	CHECK_EQ_U64(got, 4711);
}

TEST(sizes_are_powers_of_1024)
{
	size_is("0", 0);
	size_is("4096", 4096);
	size_is("64K", 65536);
	size_is("64k", 65536);
	size_is("64KiB", 65536);
	size_is("4M", 4u << 20);
	size_is("1G", 1u << 30);
	size_is("3T", 3ull << 40);
	size_is("15E", 15ull << 60);
	size_is("18446744073709551615", UINT64_MAX);
	size_is("16383P", 16383ull << 50);
}

TEST(what_is_no_size_is_refused_and_leaves_the_value_alone)
{
	static const char *const bad[] = {"",     " ",     "-1",  "+1",  "1.5G", "K",
					  "4KB",  "4kb",   "4 K", "4K ", "4X",   "0x10",
					  "4Kib", "4KiB ", "nan", "4KM"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		size_is_not(bad[i], -EINVAL);
	size_is_not("16E", -ERANGE);
	size_is_not("18446744073709551616", -ERANGE);
	size_is_not("99999999999999999999999999999999", -ERANGE);
	size_is_not("16384P", -ERANGE);
}

/* Whatever comes in: an answer, no crash, and what is accepted is made of what is allowed. */
TEST(random_text_never_hurts_the_parsers)
{
	static const char letters[] = "0123456789KMGTPEkiB-+. x\x80\xff";
	struct prng r = {1};
	char text[48];

	for (uint32_t i = 0; i < 300000; i++) {
		uint32_t n = prng_below(&r, sizeof(text));
		uint64_t v;
		uint8_t uuid[DDR_UUID_BYTES];
		char clean[8];

		for (uint32_t k = 0; k < n; k++)
			text[k] = i & 1 ? (char)prng_next(&r)
					: letters[prng_below(&r, sizeof(letters) - 1)];
		text[n] = '\0';
		if (!size_parse(text, &v, NULL))
			CHECK(strspn(text, "0123456789KMGTPEkmgtpeiB") == strlen(text));
		if (!number_parse(text, 3, 1000, &v))
			CHECK(v >= 3 && v <= 1000);
		if (!array_name_check(text, NULL))
			CHECK(strlen(text) < DDR_NAME_BYTES && !strchr(text, '/'));
		uuid_parse(text, uuid);
		text_clean(clean, sizeof(clean), text);
		CHECK(strlen(clean) < sizeof(clean));
	}
}

static void size_reads(uint64_t bytes, const char *want)
{
	char text[UNITS_TEXT_BYTES];

	CHECK_EQ_STR(size_format(text, bytes), want);
}

TEST(sizes_are_printed_rounded_down)
{
	size_reads(0, "0 bytes");
	size_reads(1023, "1023 bytes");
	size_reads(1024, "1 KiB");
	size_reads(1535, "1.4 KiB");
	size_reads(1536, "1.5 KiB");
	size_reads((1u << 20) - 1, "1023.9 KiB");
	size_reads(4u << 20, "4 MiB");
	size_reads(UINT64_MAX, "15.9 EiB");
}

static void time_reads(uint64_t ms, const char *want)
{
	char text[UNITS_TEXT_BYTES];

	CHECK_EQ_STR(time_format(text, ms), want);
}

TEST(times_are_printed_in_two_units)
{
	time_reads(0, "0.0 s");
	time_reads(9999, "9.9 s");
	time_reads(12345, "12 s");
	time_reads(250000, "4 min 10 s");
	time_reads(12000000, "3 h 20 min");
	time_reads(UINT64_MAX, "213503982334 d 14 h");
}

static void time_is(const char *text, uint32_t want)
{
	uint32_t got = ~want;

	CHECK_MSG(time_parse(text, &got) == 0, "%s", text);
	CHECK_EQ_U64(got, want);
}

TEST(times_have_units_or_are_milliseconds)
{
	static const char *const bad[] = {"",     " ",        "-1",         "+1",  " 1",
					  "1.5s", "s",        "1 h",        "10S", "1s ",
					  "1sec", "71583min", "4294967296", "0x1"};
	uint32_t ms = 4711;

	time_is("0", 0);
	time_is("1500", 1500);
	time_is("1500ms", 1500);
	time_is("10s", 10000);
	time_is("10 s", 10000);
	time_is("2min", 120000);
	time_is("4294967295", UINT32_MAX);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_MSG(time_parse(bad[i], &ms) == -EINVAL && ms == 4711, "%s", bad[i]);
}

static void away_is(const char *text, uint32_t want, const char *printed)
{
	char out[UNITS_TEXT_BYTES];
	uint32_t got = ~want;

	CHECK_MSG(away_parse(text, &got, NULL) == 0, "%s", text);
	CHECK_EQ_U64(got, want);
	CHECK_EQ_STR(away_format(out, got), printed);
	CHECK(away_parse(out, &got, NULL) == 0 && got == want);
}

TEST(who_waits_for_ddraidd_does_so_for_ever_or_within_bounds)
{
	static const char *const bad[] = {"",      "0",       "0s",         "999",  "999ms", "Hold",
					  "hold ", "1441min", "86400001ms", "30 m", "-1s",   "eio"};
	const char *why;
	uint32_t ms = 4711;

	away_is("hold", AWAY_HOLD, "hold");
	away_is("1s", AWAY_MIN_MS, "1s");
	away_is("1000", 1000, "1s");
	away_is("1001", 1001, "1001ms");
	away_is("1500ms", 1500, "1500ms");
	away_is("2min", 120000, "120s");
	away_is("1440min", AWAY_MAX_MS, "86400s");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		why = NULL;
		CHECK_MSG(away_parse(bad[i], &ms, &why) == -EINVAL && ms == 4711, "%s", bad[i]);
		CHECK(why && strstr(why, "from 1s to 1440min"));
	}
}

TEST(names_are_safe_in_paths_and_uris)
{
	static const char *const good[] = {"a", "vol0", "Vol-0_a.b", "0"};
	static const char *const bad[] = {"",    ".",   "..", "-a",   "a/b",   "a b",
					  "a\n", "a:b", "ä",  ".vol", "a?b=c", "a%41"};
	char longest[DDR_NAME_BYTES + 1];
	const char *why;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		CHECK_EQ_INT(array_name_check(good[i], NULL), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		why = NULL;
		CHECK_MSG(array_name_check(bad[i], &why) == -EINVAL && why, "%s", bad[i]);
	}
	memset(longest, 'x', sizeof(longest));
	longest[DDR_NAME_BYTES] = '\0';
	CHECK_EQ_INT(array_name_check(longest, NULL), -EINVAL);
	longest[DDR_NAME_BYTES - 1] = '\0';
	CHECK_EQ_INT(array_name_check(longest, NULL), 0);
	CHECK_EQ_INT(array_name_check("01234567-89ab-cdef-0123-456789abcdef", NULL), -EINVAL);
}

TEST(a_path_becomes_part_of_a_uri)
{
	static const char *const pairs[][2] = {
	    {"", ""},
	    {"/run/ddraid/Vol-0_a.b~1.nbd", "/run/ddraid/Vol-0_a.b~1.nbd"},
	    {"[::1]:10809,a@b", "%5B::1%5D:10809,a@b"},
	    {"a b%c?d&e#f;g+h=i", "a%20b%25c%3Fd%26e%23f%3Bg%2Bh%3Di"},
	    {"%41", "%2541"},
	    {"\xc3\xa4\xff\x01\x7f\n\"'<\\", "%C3%A4%FF%01%7F%0A%22%27%3C%5C"},
	};
	char out[64];

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		CHECK_EQ_STR(uri_encode(out, sizeof(out), pairs[i][0]), pairs[i][1]);
	CHECK_EQ_STR(uri_encode(out, 6, "ab cd"), "ab%20");
	CHECK_EQ_STR(uri_encode(out, 5, "ab cd"), "ab"); /* no half of one */
	CHECK_EQ_STR(uri_encode(out, 3, "abc"), "ab");
	CHECK_EQ_STR(uri_encode(out, 1, "a"), "");
}

TEST(uuids_survive_the_round_trip)
{
	uint8_t uuid[DDR_UUID_BYTES], back[DDR_UUID_BYTES];
	char text[UUID_TEXT_BYTES];

	for (unsigned i = 0; i < DDR_UUID_BYTES; i++)
		uuid[i] = (uint8_t)(i * 17);
	CHECK_EQ_STR(uuid_format(text, uuid), "00112233-4455-6677-8899-aabbccddeeff");
	CHECK_EQ_INT(uuid_parse("00112233-4455-6677-8899-AABBCCDDEEFF", back), 0);
	CHECK_EQ_MEM(back, uuid, sizeof(uuid));
	CHECK_EQ_INT(uuid_parse("00112233-4455-6677-8899-aabbccddeef", back), -EINVAL);
	CHECK_EQ_INT(uuid_parse("00112233-4455-6677-8899-aabbccddeeff0", back), -EINVAL);
	CHECK_EQ_INT(uuid_parse("001122334455-6677-8899-aabbccddeeff", back), -EINVAL);
}
