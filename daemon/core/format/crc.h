/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The checksum of every on-member block. A pure function, any thread. */
#ifndef DDRAID_CORE_FORMAT_CRC_H
#define DDRAID_CORE_FORMAT_CRC_H

#include <stddef.h>
#include <stdint.h>

/* crc32c (Castagnoli), as iSCSI has it: initial value and final xor all ones. */
uint32_t crc32c(const void *data, size_t bytes);

#endif
