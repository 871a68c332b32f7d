/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a program gets from ddraidctl: with --json, standard output is one JSON object in every case
 * but a broken standard output. It holds what the command found out, and at its end
 *
 *	"error"	    the sentence that people get on standard error, or null if nothing failed
 *	"warnings"  those sentences that people get as warnings
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/units.h"
#include "tools/ctl/ctl.h"

#define TEXT_BYTES 4096
#define WARNINGS_MAX 1024u /* more are on standard error only */

static struct {
	struct json json;
	char error[TEXT_BYTES]; /* the first one: what came of it is of less use */
	char *warning[WARNINGS_MAX];
	uint32_t warnings;
} shown;

struct json *answer(void)
{
	if (!shown.json.depth) {
		shown.json.out = stdout;
		json_open(&shown.json, NULL, '{');
	}
	return &shown.json;
}

void answer_end(const struct args *a, int status)
{
	if (a->json) {
		json_text_or_null(answer(), "error", status ? shown.error : NULL);
		json_open(answer(), "warnings", '[');
		for (uint32_t i = 0; i < shown.warnings; i++)
			json_text(answer(), NULL, shown.warning[i]);
		json_close(answer(), ']');
		json_close(answer(), '}');
	}
	for (uint32_t i = 0; i < shown.warnings; i++)
		free(shown.warning[i]);
	memset(&shown, 0, sizeof(shown));
}

static void print(const char *before, const char *text)
{
	char clean[TEXT_BYTES];

	progress_end();
	fprintf(stderr, "ddraidctl: %s%s\n", before, text_clean(clean, sizeof(clean), text));
}

void complain(const char *format, ...)
{
	char text[TEXT_BYTES];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	print("", text);
	if (!shown.error[0])
		strcpy(shown.error, text);
}

void warn(const char *text)
{
	char *copy = shown.warnings < WARNINGS_MAX ? strdup(text) : NULL;

	print("warning: ", text);
	if (copy)
		shown.warning[shown.warnings++] = copy;
}
