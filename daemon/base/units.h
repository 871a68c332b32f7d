/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Text that people type and read: sizes, times, names of arrays, UUIDs. Used by ddraidd and by
 * ddraidctl, so that both mean the same by it. Pure functions, any thread.
 */
#ifndef DDRAID_BASE_UNITS_H
#define DDRAID_BASE_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/limits.h"

#define UNITS_TEXT_BYTES 32
#define UUID_TEXT_BYTES 37

/*
 * "4096", "64K", "64KiB", "4M", "1G", ... K = 1024. 0; -EINVAL: not a size; -ERANGE: 2^64 or
 * more. *why (if not NULL) then gets a static sentence with the remedy.
 */
int size_parse(const char *text, uint64_t *bytes, const char **why);

/* A decimal number from min to max and nothing else. 0 or -EINVAL. */
int number_parse(const char *text, uint64_t min, uint64_t max, uint64_t *value);

/* Milliseconds; "1500", "1500ms", "10s", "2min". 0 or -EINVAL. */
int time_parse(const char *text, uint32_t *ms);

/* How long who has a block device open waits for a ddraidd that does not run, in ms. */
#define AWAY_HOLD 0u /* for ever */
#define AWAY_MIN_MS 1000u
#define AWAY_MAX_MS 86400000u
/* "hold", or a time within these bounds. 0, or -EINVAL and *why as above. */
int away_parse(const char *text, uint32_t *ms, const char **why);
/* "hold", "30s", "1500ms": what away_parse takes. Returns text. */
char *away_format(char text[UNITS_TEXT_BYTES], uint32_t ms);

/* "512 bytes", "64 KiB", "23.4 GiB". Returns text. */
char *size_format(char text[UNITS_TEXT_BYTES], uint64_t bytes);
/* "0.3 s", "12 s", "4 min 10 s", "3 h 20 min", "5 d 2 h". Returns text. */
char *time_format(char text[UNITS_TEXT_BYTES], uint64_t ms);

/* 1 to 63 of A-Z a-z 0-9 . _ -, beginning with a letter or digit, and not a UUID's text: a name
 * becomes part of file names and URIs. 0 or -EINVAL and *why as above. */
int array_name_check(const char *name, const char **why);

char *uuid_format(char text[UUID_TEXT_BYTES], const uint8_t uuid[DDR_UUID_BYTES]);
int uuid_parse(const char *text, uint8_t uuid[DDR_UUID_BYTES]); /* 0 or -EINVAL */

/* Copies text into out; what isn't printable ASCII becomes '?'. For words that a device or a peer
 * chose and that end up on a terminal. */
char *text_clean(char *out, size_t out_bytes, const char *text);

/* Likewise; for a path or another part of a URI: each byte but letters, digits and -._~/:@, becomes
 * %XX. Some readers take '+' for a blank, and ';' for another '&'. */
char *uri_encode(char *out, size_t out_bytes, const char *text);

#endif
