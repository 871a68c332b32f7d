/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A fuzz target: one file that includes this header and defines LLVMFuzzerTestOneInput. With
 * libFuzzer (configure --enable-fuzz, `make fuzz`) that brings main(); else this header does, and
 * the program replays the files that it is given.
 *
 * A target must do the same for the same input each time, keep nothing from one input to the next,
 * and free what it took.
 */
#ifndef DDRAID_TESTS_FUZZ_FUZZ_H
#define DDRAID_TESTS_FUZZ_FUZZ_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* An input that is taken apart from its front. What is missing at its end reads as zeros. */
struct fuzz_in {
	const uint8_t *at;
	size_t left;
};

static inline uint64_t fuzz_number(struct fuzz_in *in, size_t bytes)
{
	uint64_t v = 0;

	for (size_t i = 0; i < bytes && in->left; i++) {
		v |= (uint64_t)*in->at++ << (8 * i);
		in->left--;
	}
	return v;
}

static inline uint8_t fuzz_u8(struct fuzz_in *in)
{
	return (uint8_t)fuzz_number(in, 1);
}

static inline uint16_t fuzz_u16(struct fuzz_in *in)
{
	return (uint16_t)fuzz_number(in, 2);
}

static inline uint32_t fuzz_u32(struct fuzz_in *in)
{
	return (uint32_t)fuzz_number(in, 4);
}

static inline uint64_t fuzz_u64(struct fuzz_in *in)
{
	return fuzz_number(in, 8);
}

/* At most `want` bytes of the input, as they are; *got says how many. */
static inline const uint8_t *fuzz_take(struct fuzz_in *in, size_t want, size_t *got)
{
	const uint8_t *at = in->at;

	*got = want < in->left ? want : in->left;
	in->at += *got;
	in->left -= *got;
	return at;
}

/* A copy with a zero at its end and not a byte more, so that reading on is seen. The caller frees
 * it. */
static inline char *fuzz_string(const uint8_t *data, size_t bytes)
{
	char *s = malloc(bytes + 1);

	assert(s);
	if (bytes)
		memcpy(s, data, bytes);
	s[bytes] = '\0';
	return s;
}

#ifndef FUZZ_LIBFUZZER
/* In memory of exactly its size: reading past its end is seen by ASan. */
static int fuzz_replay(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data;
	long bytes;

	if (!f || fseek(f, 0, SEEK_END) < 0 || (bytes = ftell(f)) < 0) {
		perror(path);
		if (f)
			fclose(f);
		return 1;
	}
	rewind(f);
	data = malloc(bytes ? (size_t)bytes : 1);
	assert(data);
	if (fread(data, 1, (size_t)bytes, f) != (size_t)bytes) {
		perror(path);
		fclose(f);
		free(data);
		return 1;
	}
	fclose(f);
	LLVMFuzzerTestOneInput(data, (size_t)bytes);
	free(data);
	return 0;
}

int main(int argc, char **argv)
{
	int bad = 0;

	for (int i = 1; i < argc; i++)
		bad |= fuzz_replay(argv[i]);
	return bad;
}
#endif

#endif
