/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writes JSON (RFC 8259) to a stream: commas, indentation and escapes are this file's business.
 * Text that isn't UTF-8 is repaired, so that what comes out always parses.
 *
 *	struct json j = {.out = stdout};
 *	json_open(&j, NULL, '{');
 *	json_text(&j, "name", "vol0");
 *	json_close(&j, '}');
 *
 * A key is NULL inside of an array and at the top.
 */
#ifndef DDRAID_CTL_JSON_H
#define DDRAID_CTL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct json {
	FILE *out;
	unsigned depth;
	bool filled; /* the innermost open one has something in it */
};

void json_open(struct json *j, const char *key, char bracket);
void json_close(struct json *j, char bracket); /* the outermost one ends the line */
void json_text(struct json *j, const char *key, const char *text);
/* NULL or "" becomes null. */
void json_text_or_null(struct json *j, const char *key, const char *text);
void json_number(struct json *j, const char *key, uint64_t v);
/* As text: readers of JSON lose bits above 2^53. */
void json_hex(struct json *j, const char *key, uint64_t v);
void json_bool(struct json *j, const char *key, bool v);
void json_null(struct json *j, const char *key);
void json_uuid(struct json *j, const char *key, const void *uuid, size_t bytes); /* or null */

#endif
