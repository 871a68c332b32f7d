/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Parity arithmetic: XOR by ISA-L, with a scalar twin that the tests hold it to.
 * Pure functions, any thread. Buffers may have any alignment and any length.
 */
#ifndef DDRAID_CORE_LEVEL_PARITY_H
#define DDRAID_CORE_LEVEL_PARITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* dst = src[0] ^ ... ^ src[count - 1], `bytes` long, count >= 1. dst overlaps no src. */
void parity_xor(void *dst, void *const *src, unsigned count, size_t bytes);
void parity_xor_scalar(void *dst, void *const *src, unsigned count, size_t bytes);

bool mem_is_zero(const void *data, size_t bytes);

#endif
