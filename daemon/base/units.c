/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char unit_letters[] = "KMGTPE";

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int refuse(const char **why, int err, const char *text)
{
	if (why)
		*why = text;
	return err;
}

/* Digits from *text on; moves it behind them. */
static int digits_parse(const char **text, uint64_t *value)
{
	const char *at = *text;
	uint64_t v = 0;

	if (!is_digit(*at))
		return -EINVAL;
	for (; is_digit(*at); at++) {
		if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*at - '0'), &v))
			return -ERANGE;
	}
	*text = at;
	*value = v;
	return 0;
}

/* The exponent of a unit: 0 for "", 10 for K and KiB, ...; -1: none. */
static int unit_shift(const char *unit)
{
	const char *at;
	char upper = *unit;

	if (!upper)
		return 0;
	if (upper >= 'a' && upper <= 'z')
		upper = (char)(upper - 'a' + 'A');
	at = strchr(unit_letters, upper);
	if (!at || (unit[1] && strcmp(unit + 1, "iB")))
		return -1;
	return 10 * ((int)(at - unit_letters) + 1);
}

int size_parse(const char *text, uint64_t *bytes, const char **why)
{
	const char *at = text;
	uint64_t v;
	int err = digits_parse(&at, &v), shift;

	if (err == -EINVAL)
		return refuse(why, err,
			      "a size is a whole number with an optional unit: 64K, 4M, 1G");
	if (!err) {
		shift = unit_shift(at);
		if (shift < 0)
			return refuse(
			    why, -EINVAL,
			    "the units are K, M, G, T, P and E, powers of 1024: 64K, 4M, 1G");
		if (v <= UINT64_MAX >> shift) {
			*bytes = v << shift;
			return 0;
		}
	}
	return refuse(why, -ERANGE, "the size is out of range: it must be below 16E");
}

int number_parse(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	uint64_t v;

	if (digits_parse(&text, &v) || *text || v < min || v > max)
		return -EINVAL;
	*value = v;
	return 0;
}

int time_parse(const char *text, uint32_t *ms)
{
	static const struct {
		const char *name;
		uint32_t ms;
	} unit[] = {{"", 1}, {"ms", 1}, {"s", 1000}, {"min", 60000}};
	uint64_t n;

	if (digits_parse(&text, &n))
		return -EINVAL;
	while (*text == ' ')
		text++;
	for (size_t i = 0; i < sizeof(unit) / sizeof(unit[0]); i++) {
		if (strcmp(text, unit[i].name) != 0)
			continue;
		if (n > UINT32_MAX / unit[i].ms)
			return -EINVAL;
		*ms = (uint32_t)(n * unit[i].ms);
		return 0;
	}
	return -EINVAL;
}

int away_parse(const char *text, uint32_t *ms, const char **why)
{
	uint32_t v;

	if (!strcmp(text, "hold")) {
		*ms = AWAY_HOLD;
		return 0;
	}
	_Static_assert(AWAY_MIN_MS == 1000 && AWAY_MAX_MS == 1440 * 60000, "as the sentence says");
	if (time_parse(text, &v) || v < AWAY_MIN_MS || v > AWAY_MAX_MS)
		return refuse(why, -EINVAL,
			      "use hold (for ever), or a time from 1s to 1440min; the units are ms "
			      "(or none), s and min");
	*ms = v;
	return 0;
}

char *away_format(char text[UNITS_TEXT_BYTES], uint32_t ms)
{
	if (ms == AWAY_HOLD)
		snprintf(text, UNITS_TEXT_BYTES, "hold");
	else if (ms % 1000)
		snprintf(text, UNITS_TEXT_BYTES, "%" PRIu32 "ms", ms);
	else
		snprintf(text, UNITS_TEXT_BYTES, "%" PRIu32 "s", ms / 1000);
	return text;
}

char *size_format(char text[UNITS_TEXT_BYTES], uint64_t bytes)
{
	uint32_t unit = 0;
	uint64_t whole = bytes, tenths;

	if (bytes < 1024) {
		snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " bytes", bytes);
		return text;
	}
	for (; whole >= 1024; unit++)
		whole >>= 10;
	/* Rounded down: what is printed is there. */
	tenths = ((bytes >> (10 * (unit - 1))) & 1023) * 10 / 1024;
	if (tenths)
		snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 ".%" PRIu64 " %ciB", whole, tenths,
			 unit_letters[unit - 1]);
	else
		snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " %ciB", whole, unit_letters[unit - 1]);
	return text;
}

char *time_format(char text[UNITS_TEXT_BYTES], uint64_t ms)
{
	uint64_t s = ms / 1000;

	if (ms < 10000)
		snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 ".%" PRIu64 " s", s, ms % 1000 / 100);
	else if (s < 60)
		snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " s", s);
	else if (s < 3600)
		snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
	else if (s < 86400)
		snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " h %" PRIu64 " min", s / 3600,
			 s % 3600 / 60);
	else
		snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " d %" PRIu64 " h", s / 86400,
			 s % 86400 / 3600);
	return text;
}

int array_name_check(const char *name, const char **why)
{
	uint8_t uuid[DDR_UUID_BYTES];
	size_t n = strlen(name);

	if (!n || n >= DDR_NAME_BYTES)
		return refuse(why, -EINVAL, "a name has 1 to 63 characters");
	if (!is_letter(name[0]) && !is_digit(name[0]))
		return refuse(why, -EINVAL, "a name begins with a letter or a digit");
	for (size_t i = 0; i < n; i++)
		if (!is_letter(name[i]) && !is_digit(name[i]) && !strchr("._-", name[i]))
			return refuse(why, -EINVAL,
				      "a name has letters, digits, '.', '_' and '-' only");
	if (!uuid_parse(name, uuid))
		return refuse(why, -EINVAL, "a name must not look like a UUID");
	return 0;
}

char *uuid_format(char text[UUID_TEXT_BYTES], const uint8_t uuid[DDR_UUID_BYTES])
{
	static const char hex[] = "0123456789abcdef";
	char *at = text;

	for (unsigned i = 0; i < DDR_UUID_BYTES; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*at++ = '-';
		*at++ = hex[uuid[i] >> 4];
		*at++ = hex[uuid[i] & 15];
	}
	*at = '\0';
	return text;
}

static int hex_digit(char c)
{
	if (is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int uuid_parse(const char *text, uint8_t uuid[DDR_UUID_BYTES])
{
	uint8_t out[DDR_UUID_BYTES];

	for (unsigned i = 0; i < DDR_UUID_BYTES; i++) {
		int high, low;

		if ((i == 4 || i == 6 || i == 8 || i == 10) && *text++ != '-')
			return -EINVAL;
		high = hex_digit(text[0]);
		low = high < 0 ? -1 : hex_digit(text[1]);
		if (low < 0)
			return -EINVAL;
		out[i] = (uint8_t)(high << 4 | low);
		text += 2;
	}
	if (*text)
		return -EINVAL;
	memcpy(uuid, out, DDR_UUID_BYTES);
	return 0;
}

char *text_clean(char *out, size_t out_bytes, const char *text)
{
	size_t i;

	for (i = 0; i + 1 < out_bytes && text[i]; i++)
		out[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
	if (out_bytes)
		out[i] = '\0';
	return out;
}

char *uri_encode(char *out, size_t out_bytes, const char *text)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
				    "-._~/:@,";
	size_t n = 0;

	for (; *text; text++) {
		bool is_plain = strchr(plain, *text);

		if (n + (is_plain ? 1 : 3) >= out_bytes)
			break;
		if (is_plain)
			out[n++] = *text;
		else
			n += (size_t)sprintf(out + n, "%%%02X", (unsigned char)*text);
	}
	if (out_bytes)
		out[n] = '\0';
	return out;
}
