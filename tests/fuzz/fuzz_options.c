// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Options of an array, and the texts of people that are no files: sizes, times, names, UUIDs.
 * The first byte says which; then a word, or KEY=VALUE, a line each. What is taken can be printed
 * and is taken again as the same.
 */
#include "daemon/base/units.h"
#include "daemon/state/options.h"
#include "tests/fuzz/fuzz.h"

static void options(char *lines)
{
	char why[OPTION_WHY_BYTES], value[OPTION_VALUE_BYTES], *line, *save = NULL;
	struct options o, again;
	const char *key, *help;

	options_init(&o);
	for (line = strtok_r(lines, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *eq = strchr(line, '=');

		if (!eq)
			continue;
		*eq = '\0';
		memset(why, 'w', sizeof(why));
		if (options_set(&o, line, eq + 1, why))
			assert(why[0] && memchr(why, '\0', sizeof(why)));
	}
	options_init(&again);
	for (uint32_t i = 0; (key = options_get(&o, i, value, &help)); i++) {
		int err = options_set(&again, key, value, why);

		assert(!err);
	}
	assert(!memcmp(&o, &again, sizeof(o)));
	options_tune(&again, &o);
	assert(!memcmp(&o, &again, sizeof(o)));
}

static void sizes(const char *text)
{
	char out[UNITS_TEXT_BYTES];
	const char *why = NULL;
	uint64_t v = 0, n;
	uint32_t ms = 0;

	if (size_parse(text, &v, &why))
		assert(why);
	else
		assert(strlen(size_format(out, v)) < UNITS_TEXT_BYTES);
	if (!time_parse(text, &ms))
		assert(strlen(time_format(out, ms)) < UNITS_TEXT_BYTES);
	if (!number_parse(text, 5, 1000, &n))
		assert(n >= 5 && n <= 1000);
}

static void aways(const char *text)
{
	char out[UNITS_TEXT_BYTES];
	const char *why = NULL;
	uint32_t ms, again;
	int err;

	if (away_parse(text, &ms, &why)) {
		assert(why);
		return;
	}
	err = away_parse(away_format(out, ms), &again, &why);
	assert(!err && again == ms);
}

static void names(const char *text)
{
	uint8_t uuid[DDR_UUID_BYTES], again[DDR_UUID_BYTES];
	char out[UUID_TEXT_BYTES], clean[40];
	const char *why = NULL;
	int err;

	if (array_name_check(text, &why))
		assert(why);
	else
		assert(text[0] && strlen(text) < DDR_NAME_BYTES && !strchr(text, '/') &&
		       text[0] != '.');
	if (!uuid_parse(text, uuid)) {
		err = uuid_parse(uuid_format(out, uuid), again);
		assert(!err && !memcmp(uuid, again, sizeof(uuid)));
	}
	text_clean(clean, sizeof(clean), text);
	for (const char *c = clean; *c; c++)
		assert(*c >= ' ' && *c <= '~');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char *text;

	if (!bytes)
		return 0;
	text = fuzz_string(data + 1, bytes - 1);
	switch (data[0]) {
	case 'o':
		options(text);
		break;
	case 's':
		sizes(text);
		break;
	case 'a':
		aways(text);
		break;
	case 'n':
		names(text);
		break;
	default:
		break;
	}
	free(text);
	return 0;
}
