/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A set of regions; see rset.h. */
#include "daemon/core/rset.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BYTES 8u
#define WORD_BITS 64u

/* The bits from byte i on, the first one lowest. The last word of a plane may be a short one. */
static uint64_t word_at(const uint8_t *plane, uint32_t i)
{
	uint32_t left = LOG_PLANE_BYTES - i;
	uint64_t word = 0;

	memcpy(&word, plane + i, left < WORD_BYTES ? left : WORD_BYTES);
	return le64toh(word);
}

int rset_init(struct rset *s, uint64_t regions, uint32_t pages)
{
	memset(s, 0, sizeof(*s));
	s->page = calloc(pages, sizeof(*s->page));
	if (!s->page)
		return -ENOMEM;
	s->regions = regions;
	s->pages = pages;
	return 0;
}

void rset_free(struct rset *s)
{
	for (uint32_t i = 0; i < s->pages; i++)
		free(s->page[i].bits);
	free(s->page);
	memset(s, 0, sizeof(*s));
}

bool rset_has(const struct rset *s, uint64_t region)
{
	const struct rset_page *p = &s->page[region / LOG_REGIONS_PER_PAGE];

	return p->count && bit_get(p->bits, (uint32_t)(region % LOG_REGIONS_PER_PAGE));
}

static uint8_t *bits_of(struct rset_page *p)
{
	if (!p->bits)
		p->bits = calloc(1, LOG_PLANE_BYTES);
	assert(p->bits);
	return p->bits;
}

void rset_put(struct rset *s, uint64_t region, bool on)
{
	struct rset_page *p = &s->page[region / LOG_REGIONS_PER_PAGE];
	uint32_t bit = (uint32_t)(region % LOG_REGIONS_PER_PAGE);

	if (rset_has(s, region) == on)
		return;
	if (on) {
		bit_set(bits_of(p), bit);
		p->count++;
		s->count++;
	} else {
		bit_clear(p->bits, bit);
		p->count--;
		s->count--;
	}
}

uint32_t plane_count(const uint8_t *plane)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < LOG_PLANE_BYTES; i += WORD_BYTES)
		n += (uint32_t)__builtin_popcountll(word_at(plane, i));
	return n;
}

/* The first bit from `bit` on, or LOG_REGIONS_PER_PAGE. */
static uint32_t plane_next(const uint8_t *plane, uint32_t bit)
{
	for (uint32_t first = bit - bit % WORD_BITS; first < LOG_REGIONS_PER_PAGE;
	     first += WORD_BITS) {
		uint64_t word = word_at(plane, first / 8);

		if (first < bit)
			word &= ~0ull << (bit - first);
		if (word)
			return first + (uint32_t)__builtin_ctzll(word);
	}
	return LOG_REGIONS_PER_PAGE;
}

uint64_t rset_next(const struct rset *s, uint64_t from)
{
	uint32_t bit = (uint32_t)(from % LOG_REGIONS_PER_PAGE);

	if (!s->count || from >= s->regions)
		return s->regions;
	for (uint64_t i = from / LOG_REGIONS_PER_PAGE; i < s->pages; i++, bit = 0) {
		if (!s->page[i].count)
			continue;
		bit = plane_next(s->page[i].bits, bit);
		if (bit < LOG_REGIONS_PER_PAGE)
			return i * LOG_REGIONS_PER_PAGE + bit;
	}
	return s->regions;
}

void rset_clear(struct rset *s)
{
	for (uint32_t i = 0; i < s->pages && s->count; i++) {
		if (!s->page[i].count)
			continue;
		memset(s->page[i].bits, 0, LOG_PLANE_BYTES);
		s->count -= s->page[i].count;
		s->page[i].count = 0;
	}
}

const uint8_t *rset_plane(const struct rset *s, uint32_t page)
{
	static const uint8_t none[LOG_PLANE_BYTES];

	return s->page[page].count ? s->page[page].bits : none;
}

/* How many regions the array has in this page. */
static uint32_t regions_in(const struct rset *s, uint32_t page)
{
	uint64_t first = (uint64_t)page * LOG_REGIONS_PER_PAGE;

	if (first >= s->regions)
		return 0;
	return s->regions - first < LOG_REGIONS_PER_PAGE ? (uint32_t)(s->regions - first)
							 : LOG_REGIONS_PER_PAGE;
}

/* The plane was changed: no others than there are, and how many. */
static void counted(struct rset *s, uint32_t page)
{
	struct rset_page *p = &s->page[page];
	uint32_t there = regions_in(s, page), n;

	if (there < LOG_REGIONS_PER_PAGE) {
		if (there % 8)
			p->bits[there / 8] &= (uint8_t)((1u << there % 8) - 1);
		memset(p->bits + (there + 7) / 8, 0, LOG_PLANE_BYTES - (there + 7) / 8);
	}
	n = plane_count(p->bits);
	s->count += n;
	s->count -= p->count;
	p->count = n;
}

static bool is_empty(const uint8_t *plane)
{
	return !plane[0] && !memcmp(plane, plane + 1, LOG_PLANE_BYTES - 1);
}

void rset_plane_put(struct rset *s, uint32_t page, const uint8_t *plane)
{
	if (!s->page[page].count && is_empty(plane))
		return;
	memcpy(bits_of(&s->page[page]), plane, LOG_PLANE_BYTES);
	counted(s, page);
}

void rset_plane_add(struct rset *s, uint32_t page, const uint8_t *plane)
{
	uint8_t *bits;

	if (is_empty(plane))
		return;
	bits = bits_of(&s->page[page]);
	for (uint32_t i = 0; i < LOG_PLANE_BYTES; i++)
		bits[i] |= plane[i];
	counted(s, page);
}

void rset_plane_fill(struct rset *s, uint32_t page)
{
	memset(bits_of(&s->page[page]), 0xff, LOG_PLANE_BYTES);
	counted(s, page);
}

void rset_add(struct rset *s, const struct rset *of)
{
	for (uint32_t i = 0; i < s->pages && of->count; i++)
		if (of->page[i].count)
			rset_plane_add(s, i, of->page[i].bits);
}
