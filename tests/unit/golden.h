/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Golden hex dumps of 4 KiB blocks: the 16-byte rows that are not all zero, one per line as
 * {offset, "hex"}, in a file *.golden. A test that fails here says that the format changed:
 * then it needs a new version, not a new dump. GOLDEN_PRINT=1 in the environment prints the
 * block as it is now.
 */
#ifndef DDRAID_TESTS_UNIT_GOLDEN_H
#define DDRAID_TESTS_UNIT_GOLDEN_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/limits.h"

struct golden_row {
	unsigned offset;
	const char *hex; /* 32 digits; blanks between bytes */
};

static inline void golden_expand(uint8_t *block, const struct golden_row *row, size_t rows)
{
	memset(block, 0, DDR_BLOCK_BYTES);
	for (size_t i = 0; i < rows; i++) {
		const char *at = row[i].hex;

		for (unsigned b = 0; b < 16; b++) {
			char *end;

			block[row[i].offset + b] = (uint8_t)strtoul(at, &end, 16);
			at = end;
		}
	}
}

static inline void golden_print_if_asked(const uint8_t *block)
{
	if (!getenv("GOLDEN_PRINT"))
		return;
	for (unsigned at = 0; at < DDR_BLOCK_BYTES; at += 16) {
		unsigned b = 0;

		while (b < 16 && !block[at + b])
			b++;
		if (b == 16)
			continue;
		printf("{%u, \"", at);
		for (b = 0; b < 16; b++)
			printf("%s%02x", b ? " " : "", block[at + b]);
		printf("\"},\n");
	}
}

#endif
