/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a program gets from ddraidctl: with --json, standard output is one JSON object in every case
 * but a broken standard output. It holds what the command found out, and, if the command failed,
 * "error", the sentence that people get on standard error.
 */
#include <stdarg.h>
#include <string.h>

#include "daemon/units.h"
#include "tools/ctl/ctl.h"

#define TEXT_BYTES 4096

static struct {
	struct json json;
	char error[TEXT_BYTES]; /* the first one: what came of it is of less use */
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
	if (a->json && status && shown.error[0])
		json_text(answer(), "error", shown.error);
	if (shown.json.depth)
		json_close(&shown.json, '}');
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
	print("warning: ", text);
}
