/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Planners and window arithmetic. See plan.h.
 *
 * All of them walk the range in runs, stripes with one rotation, and ask only once per run
 * which member has which fragment.
 */
#include "daemon/core/data/plan.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* One piece of window_reparity's check: small enough for the stack and the first-level cache. */
#define PLAN_SCRATCH_BYTES 4096u
#define PLAN_ALIGN 32

/* A range starts anywhere in its first band. */
static uint32_t max_runs(const struct geo *g, uint32_t count)
{
	uint32_t band = g->p.band_bytes / g->frag_bytes;

	if (count == 0 || g->p.layout == GEO_DEDICATED)
		return !!count;
	return 1 + (count - 1) / band + !!((count - 1) % band);
}

/*
 * A member's range in a read is split only by the runs in which it holds parity, and a run has
 * m such members. The first run and the last one shorten a range instead.
 */
uint32_t plan_max_reqs(const struct geo *g, uint32_t count)
{
	uint32_t runs = max_runs(g, count);

	return g->n + (runs > 2 ? g->p.m * (runs - 2) : 0);
}

/* Worst case: no two fragments are neighbours in memory. */
uint32_t plan_max_iovs(const struct geo *g, uint32_t count)
{
	return g->n * count;
}

int plan_alloc(struct plan *p, const struct geo *g, uint32_t count)
{
	size_t bytes;

	p->req_cap = plan_max_reqs(g, count);
	p->iov_cap = plan_max_iovs(g, count);
	p->req_count = p->iov_count = 0;
	bytes = p->req_cap * sizeof(*p->req) + p->iov_cap * sizeof(*p->iov);
	if (!p->req || p->bytes < bytes) {
		plan_free(p);
		p->req = malloc(bytes);
		if (!p->req)
			return -ENOMEM;
		p->bytes = bytes;
	}
	p->iov = (struct iovec *)(void *)(p->req + p->req_cap);
	return 0;
}

void plan_free(struct plan *p)
{
	free(p->req);
	p->req = NULL;
	p->bytes = 0;
}

static void check_range(const struct geo *g, uint64_t stripe, uint32_t count)
{
	assert(g->level && stripe < g->stripes && count <= g->stripes - stripe);
	assert((uint64_t)count * g->p.stripe_bytes <= UINT32_MAX);
}

static void begin(struct plan *p)
{
	p->req_count = 0;
	p->iov_count = 0;
}

/* The member's next `bytes` at `offset` are at `mem`; joins what is neighbouring. */
static void add(struct plan *p, uint8_t member, uint64_t offset, void *mem, uint32_t bytes)
{
	struct plan_req *req = p->req_count ? &p->req[p->req_count - 1] : NULL;
	struct iovec *iov;

	if (!req || req->member != member || req->offset + req->bytes != offset) {
		assert(p->req_count < p->req_cap);
		req = &p->req[p->req_count++];
		*req = (struct plan_req){
		    .member = member, .offset = offset, .iov_first = p->iov_count};
	}
	req->bytes += bytes;
	iov = req->iov_count ? &p->iov[p->iov_count - 1] : NULL;
	if (iov && (uint8_t *)iov->iov_base + iov->iov_len == mem) {
		iov->iov_len += bytes;
		return;
	}
	assert(p->iov_count < p->iov_cap);
	p->iov[p->iov_count++] = (struct iovec){.iov_base = mem, .iov_len = bytes};
	req->iov_count++;
}

/* Adds one member's share of user-order memory; its parity, if asked for, is a row of `parity`. */
static void add_member(const struct geo *g, uint64_t stripe, uint32_t count, uint8_t member,
		       uint8_t *data, uint8_t *parity, struct plan *p)
{
	for (uint32_t at = 0, run; at < count; at += run) {
		uint8_t frag = geo_frag_of(g, stripe + at, member);

		run = geo_run(g, stripe + at, count - at);
		if (frag >= g->k) {
			if (parity)
				add(p, member, geo_offset(g, stripe + at),
				    parity + ((size_t)(frag - g->k) * count + at) * g->frag_bytes,
				    run * g->frag_bytes);
			continue;
		}
		for (uint32_t s = at; s < at + run; s++)
			add(p, member, geo_offset(g, stripe + s),
			    data + (size_t)s * g->p.stripe_bytes + (size_t)frag * g->frag_bytes,
			    g->frag_bytes);
	}
}

void plan_write(const struct geo *g, uint64_t stripe, uint32_t count, const void *data,
		void *parity, uint32_t members, struct plan *p)
{
	uint8_t *user = (uint8_t *)data; /* an iovec knows no const; writes only read it */
	void *src[1 << DDR_MAX_ORDER], *to[DDR_MAX_PARITY];

	check_range(g, stripe, count);
	assert(members >> g->n == 0);
	for (uint32_t s = 0; s < count; s++) {
		for (unsigned f = 0; f < g->k; f++)
			src[f] = user + (size_t)s * g->p.stripe_bytes + (size_t)f * g->frag_bytes;
		for (unsigned f = 0; f < g->p.m; f++)
			to[f] = (uint8_t *)parity + ((size_t)f * count + s) * g->frag_bytes;
		g->level->encode(g->k, g->p.m, src, to, g->frag_bytes);
	}
	begin(p);
	for (uint8_t i = 0; i < g->n; i++)
		if (members >> i & 1)
			add_member(g, stripe, count, i, user, parity, p);
}

void plan_read(const struct geo *g, uint64_t stripe, uint32_t count, void *data, struct plan *p)
{
	check_range(g, stripe, count);
	begin(p);
	for (uint8_t i = 0; i < g->n; i++)
		add_member(g, stripe, count, i, data, NULL, p);
}

void plan_window(const struct geo *g, uint64_t stripe, uint32_t count, void *win, uint32_t members,
		 struct plan *p)
{
	uint32_t row_bytes = count * g->frag_bytes;

	check_range(g, stripe, count);
	assert(members >> g->n == 0);
	begin(p);
	for (uint8_t i = 0; count && i < g->n; i++) {
		if (!(members >> i & 1))
			continue;
		assert(p->req_count < p->req_cap && p->iov_count < p->iov_cap);
		p->req[p->req_count++] = (struct plan_req){.member = i,
							   .bytes = row_bytes,
							   .offset = geo_offset(g, stripe),
							   .iov_first = p->iov_count,
							   .iov_count = 1};
		p->iov[p->iov_count++] = (struct iovec){
		    .iov_base = (uint8_t *)win + (size_t)i * row_bytes,
		    .iov_len = row_bytes,
		};
	}
}

int window_decode(const struct geo *g, uint64_t stripe, uint32_t count, void *win, uint32_t valid,
		  uint32_t want)
{
	size_t row_bytes = (size_t)count * g->frag_bytes;

	check_range(g, stripe, count);
	assert((valid | want) >> g->n == 0 && !(valid & want));
	if (__builtin_popcount(valid) < g->k)
		return -EINVAL;
	for (uint32_t at = 0, run; want && at < count; at += run) {
		void *frag[DDR_MAX_MEMBERS];
		uint32_t from = 0, to = 0;

		run = geo_run(g, stripe + at, count - at);
		for (uint8_t f = 0; f < g->n; f++) {
			uint8_t row = geo_member_of(g, stripe + at, f);

			frag[f] = (uint8_t *)win + row * row_bytes + (size_t)at * g->frag_bytes;
			from |= (valid >> row & 1) << f;
			to |= (want >> row & 1) << f;
		}
		g->level->decode(g->k, g->p.m, frag, from, to, (size_t)run * g->frag_bytes);
	}
	return 0;
}

/* Makes the parity fragments of one stripe true; which of them were not. */
static uint32_t reparity_stripe(const struct geo *g, void *const *frag)
{
	uint8_t scratch[DDR_MAX_PARITY][PLAN_SCRATCH_BYTES] __attribute__((aligned(PLAN_ALIGN)));
	void *data[1 << DDR_MAX_ORDER], *parity[DDR_MAX_PARITY];
	uint32_t changed = 0;

	for (size_t at = 0, piece; at < g->frag_bytes; at += piece) {
		piece = g->frag_bytes - at < PLAN_SCRATCH_BYTES ? g->frag_bytes - at
								: PLAN_SCRATCH_BYTES;
		for (unsigned f = 0; f < g->k; f++)
			data[f] = (uint8_t *)frag[f] + at;
		for (unsigned f = 0; f < g->p.m; f++)
			parity[f] = scratch[f];
		g->level->encode(g->k, g->p.m, data, parity, piece);
		for (unsigned f = 0; f < g->p.m; f++) {
			uint8_t *is = (uint8_t *)frag[g->k + f] + at;

			if (memcmp(scratch[f], is, piece) == 0)
				continue;
			memcpy(is, scratch[f], piece);
			changed |= 1u << f;
		}
	}
	return changed;
}

uint32_t window_reparity(const struct geo *g, uint64_t stripe, uint32_t count, void *win,
			 uint32_t *first_bad, uint32_t *dirty_rows)
{
	size_t row_bytes = (size_t)count * g->frag_bytes;
	uint32_t stripes = 0, rows = 0;
	uint8_t row[DDR_MAX_MEMBERS];
	void *frag[DDR_MAX_MEMBERS];

	check_range(g, stripe, count);
	for (uint32_t at = 0, run; at < count; at += run) {
		run = geo_run(g, stripe + at, count - at);
		for (uint8_t f = 0; f < g->n; f++)
			row[f] = geo_member_of(g, stripe + at, f);
		for (uint32_t s = at; s < at + run; s++) {
			uint32_t changed;

			for (uint8_t f = 0; f < g->n; f++)
				frag[f] =
				    (uint8_t *)win + row[f] * row_bytes + (size_t)s * g->frag_bytes;
			changed = reparity_stripe(g, frag);
			if (changed && !stripes++ && first_bad)
				*first_bad = s;
			for (uint8_t f = 0; f < g->p.m; f++)
				rows |= (changed >> f & 1) << row[g->k + f];
		}
	}
	if (dirty_rows)
		*dirty_rows = rows;
	return stripes;
}

void window_to_user(const struct geo *g, uint64_t stripe, uint32_t count, const void *win,
		    void *data)
{
	size_t row_bytes = (size_t)count * g->frag_bytes;

	check_range(g, stripe, count);
	for (uint32_t at = 0, run; at < count; at += run) {
		run = geo_run(g, stripe + at, count - at);
		for (uint8_t f = 0; f < g->k; f++) {
			const uint8_t *row =
			    (const uint8_t *)win + geo_member_of(g, stripe + at, f) * row_bytes;
			uint8_t *user = (uint8_t *)data + (size_t)f * g->frag_bytes;

			for (uint32_t s = at; s < at + run; s++)
				memcpy(user + (size_t)s * g->p.stripe_bytes,
				       row + (size_t)s * g->frag_bytes, g->frag_bytes);
		}
	}
}
