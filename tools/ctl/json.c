/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tools/ctl/json.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/base/units.h"

/* Bytes of the UTF-8 sequence at s, or 0 if it is none: no overlong forms, no surrogates. */
static unsigned utf8_length(const unsigned char *s)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	uint32_t code;
	unsigned n;

	if (s[0] < 0x80)
		return 1;
	if (s[0] >> 5 == 6)
		n = 2, code = s[0] & 0x1f;
	else if (s[0] >> 4 == 14)
		n = 3, code = s[0] & 0x0f;
	else if (s[0] >> 3 == 30)
		n = 4, code = s[0] & 0x07;
	else
		return 0;
	for (unsigned i = 1; i < n; i++) {
		if (s[i] >> 6 != 2)
			return 0;
		code = code << 6 | (s[i] & 0x3f);
	}
	if (code < least[n] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		return 0;
	return n;
}

static void put_string(FILE *out, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	putc('"', out);
	while (*s) {
		unsigned n = utf8_length(s);

		if (!n)
			fputs("\\ufffd", out);
		else if (*s == '"' || *s == '\\')
			fprintf(out, "\\%c", *s);
		else if (*s < 0x20 || *s == 0x7f)
			fprintf(out, "\\u%04x", *s);
		else
			fwrite(s, 1, n, out);
		s += n ? n : 1;
	}
	putc('"', out);
}

static void item(struct json *j, const char *key)
{
	if (j->depth)
		fprintf(j->out, "%s\n%*s", j->filled ? "," : "", (int)j->depth * 2, "");
	j->filled = true;
	if (!key)
		return;
	put_string(j->out, key);
	fputs(": ", j->out);
}

void json_open(struct json *j, const char *key, char bracket)
{
	item(j, key);
	putc(bracket, j->out);
	j->depth++;
	j->filled = false;
}

void json_close(struct json *j, char bracket)
{
	j->depth--;
	if (j->filled)
		fprintf(j->out, "\n%*s", (int)j->depth * 2, "");
	putc(bracket, j->out);
	j->filled = true;
	if (!j->depth)
		putc('\n', j->out);
}

void json_text(struct json *j, const char *key, const char *text)
{
	item(j, key);
	put_string(j->out, text);
}

void json_null(struct json *j, const char *key)
{
	item(j, key);
	fputs("null", j->out);
}

void json_text_or_null(struct json *j, const char *key, const char *text)
{
	if (text && *text)
		json_text(j, key, text);
	else
		json_null(j, key);
}

void json_number(struct json *j, const char *key, uint64_t v)
{
	item(j, key);
	fprintf(j->out, "%" PRIu64, v);
}

void json_hex(struct json *j, const char *key, uint64_t v)
{
	item(j, key);
	fprintf(j->out, "\"0x%016" PRIx64 "\"", v);
}

void json_bool(struct json *j, const char *key, bool v)
{
	item(j, key);
	fputs(v ? "true" : "false", j->out);
}

void json_uuid(struct json *j, const char *key, const void *uuid, size_t bytes)
{
	char text[UUID_TEXT_BYTES];

	if (bytes == DDR_UUID_BYTES)
		json_text(j, key, uuid_format(text, uuid));
	else
		json_null(j, key);
}
