/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Parity, by ISA-L. See parity.h.
 *
 * xor_gen wants 32-byte aligned pointers and two sources or more, and counts bytes in an
 * int. The engine's buffers are aligned, so everything else is a side road: a plain copy for
 * one source, and a loop over words for a front-end that hands us an odd address.
 */
#include "daemon/core/level/parity.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include <isa-l.h>

#include "daemon/base/limits.h"

#define ISAL_ALIGN 32u
#define ISAL_PIECE (1u << 20) /* a multiple of ISAL_ALIGN that fits in an int */

_Static_assert(ISAL_PIECE <= INT32_MAX && ISAL_PIECE % ISAL_ALIGN == 0, "ISAL_PIECE");

static void xor_isal(uint8_t *dst, void *const *src, unsigned count, size_t bytes)
{
	void *array[DDR_MAX_MEMBERS + 1];
	size_t done = 0;

	while (done < bytes) {
		size_t piece = bytes - done < ISAL_PIECE ? bytes - done : ISAL_PIECE;
		int err;

		for (unsigned i = 0; i < count; i++)
			array[i] = (uint8_t *)src[i] + done;
		array[count] = dst + done;
		err = xor_gen((int)count + 1, (int)piece, array);
		assert(!err);
		done += piece;
	}
#if defined(__x86_64__)
	/* Some variants of xor_gen store past the cache; another thread may send it next. */
	__builtin_ia32_sfence();
#endif
}

static void xor_words(uint8_t *dst, void *const *src, unsigned count, size_t bytes)
{
	size_t at = 0;

	for (; at + 32 <= bytes; at += 32) {
		uint64_t sum[4], word[4];

		memcpy(sum, (const uint8_t *)src[0] + at, sizeof(sum));
		for (unsigned i = 1; i < count; i++) {
			memcpy(word, (const uint8_t *)src[i] + at, sizeof(word));
			for (int w = 0; w < 4; w++)
				sum[w] ^= word[w];
		}
		memcpy(dst + at, sum, sizeof(sum));
	}
	for (; at < bytes; at++) {
		uint8_t sum = *((const uint8_t *)src[0] + at);

		for (unsigned i = 1; i < count; i++)
			sum ^= *((const uint8_t *)src[i] + at);
		dst[at] = sum;
	}
}

void parity_xor(void *dst, void *const *src, unsigned count, size_t bytes)
{
	uintptr_t low = (uintptr_t)dst;

	assert(count >= 1 && count <= DDR_MAX_MEMBERS);
	if (count == 1) {
		memcpy(dst, src[0], bytes);
		return;
	}
	for (unsigned i = 0; i < count; i++)
		low |= (uintptr_t)src[i];
	if (low % ISAL_ALIGN == 0)
		xor_isal(dst, src, count, bytes);
	else
		xor_words(dst, src, count, bytes);
}

/* The definition, byte by byte: nothing here to get wrong. */
void parity_xor_scalar(void *dst, void *const *src, unsigned count, size_t bytes)
{
	uint8_t *out = dst;

	for (size_t at = 0; at < bytes; at++) {
		uint8_t sum = 0;

		for (unsigned i = 0; i < count; i++)
			sum ^= ((const uint8_t *)src[i])[at];
		out[at] = sum;
	}
}

bool mem_is_zero(const void *data, size_t bytes)
{
	return !isal_zero_detect((void *)(uintptr_t)data, bytes);
}
