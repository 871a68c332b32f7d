// SPDX-License-Identifier: GPL-2.0-or-later
/* The checksum, by ISA-L, which counts bytes in an int. */
#include "daemon/core/format/crc.h"

#include <isa-l.h>

#define CRC_PIECE (1u << 20)

uint32_t crc32c(const void *data, size_t bytes)
{
	unsigned char *at = (unsigned char *)data; /* ISA-L only lacks the const */
	uint32_t crc = ~0u;

	while (bytes) {
		size_t piece = bytes < CRC_PIECE ? bytes : CRC_PIECE;

		crc = crc32_iscsi(at, (int)piece, crc);
		at += piece;
		bytes -= piece;
	}
	return ~crc;
}
