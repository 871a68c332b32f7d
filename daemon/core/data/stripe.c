/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Stripes under way: read, compute, write. See stripe.h. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/data/data.h"
#include "daemon/core/level/parity.h"

#define MEM_ALIGN 64u

static void stripes_move(struct stripes *s, enum stripes_state to)
{
	static const uint8_t legal[] = {
	    [STRIPES_EMPTY] = 1 << STRIPES_EMPTY | 1 << STRIPES_READING | 1 << STRIPES_READY,
	    [STRIPES_READING] = 1 << STRIPES_READ | 1 << STRIPES_EMPTY,
	    [STRIPES_READ] = 1 << STRIPES_READY | 1 << STRIPES_READING | 1 << STRIPES_EMPTY,
	    [STRIPES_READY] = 1 << STRIPES_WRITING | 1 << STRIPES_EMPTY,
	    [STRIPES_WRITING] = 1 << STRIPES_READY,
	};

	assert(legal[s->state] >> to & 1);
	s->state = to;
}

bool stripes_busy(const struct stripes *s)
{
	return s->state == STRIPES_READING || s->state == STRIPES_WRITING;
}

void stripes_set(struct stripes *s, uint64_t first, uint32_t count)
{
	assert(!stripes_busy(s));
	stripes_move(s, STRIPES_EMPTY);
	s->first = first;
	s->count = count;
}

/* ---- memory --------------------------------------------------------------------------------- */

void stripes_renew(struct stripes *s)
{
	struct stripes old = *s;

	memset(s, 0, sizeof(*s));
	s->mem = old.mem;
	s->mem_bytes = old.mem_bytes;
	s->plan = old.plan;
	s->plan.req_count = s->plan.iov_count = 0;
}

void stripes_free(struct stripes *s)
{
	free(s->mem);
	s->mem = NULL;
	s->mem_bytes = 0;
	plan_free(&s->plan);
}

static bool mem_get(struct stripes *s, size_t bytes)
{
	if (s->mem_bytes >= bytes)
		return true;
	free(s->mem);
	bytes = (bytes + MEM_ALIGN - 1) & ~(size_t)(MEM_ALIGN - 1);
	s->mem = aligned_alloc(MEM_ALIGN, bytes);
	s->mem_bytes = s->mem ? bytes : 0;
	return s->mem;
}

bool stripes_mem_user(struct stripes *s, const struct geo *g, uint32_t count, bool parity)
{
	return (!parity || mem_get(s, (size_t)count * g->p.m * g->frag_bytes)) &&
	       !plan_alloc(&s->plan, g, count);
}

bool stripes_mem_window(struct stripes *s, const struct geo *g, uint32_t count)
{
	return mem_get(s, (size_t)count * g->n * g->frag_bytes) && !plan_alloc(&s->plan, g, count);
}

/* ---- compute -------------------------------------------------------------------------------- */

void stripes_encode(struct engine *e, struct stripes *s)
{
	stripes_move(s, STRIPES_READY);
	plan_write(&e->geo, s->first, s->count, s->user, s->mem, geo_all(&e->geo), &s->plan);
}

void stripes_zero(struct stripes *s)
{
	stripes_move(s, STRIPES_READY);
	s->zeroes = true;
}

void stripes_decode(struct engine *e, struct stripes *s, uint32_t members)
{
	stripes_move(s, STRIPES_READY);
	window_decode(&e->geo, s->first, s->count, s->mem, s->rows, members);
}

uint32_t stripes_reparity(struct engine *e, struct stripes *s, uint32_t *wrong)
{
	uint32_t rows = 0;

	stripes_move(s, STRIPES_READY);
	*wrong = window_reparity(&e->geo, s->first, s->count, s->mem, NULL, &rows);
	return rows;
}

void stripes_to_user(const struct engine *e, const struct stripes *s, uint8_t *user)
{
	assert(s->state == STRIPES_READY);
	window_to_user(&e->geo, s->first, s->count, s->mem, user);
}

/* ---- at the members ------------------------------------------------------------------------- */

static void stripes_ended(struct engine *e, struct batch *b)
{
	struct stripes *s = list_entry(b, struct stripes, batch);

	stripes_move(s, s->state == STRIPES_WRITING ? STRIPES_READY
			: b->failed                 ? STRIPES_EMPTY
						    : STRIPES_READ);
	s->done(e, s);
}

static void stripes_begin(struct stripes *s, enum stripes_state state,
			  void (*done)(struct engine *, struct stripes *))
{
	stripes_move(s, state);
	s->done = done;
	batch_init(&s->batch, stripes_ended);
	s->batch.consumer = s->consumer;
	batch_open(&s->batch);
}

void stripes_read(struct engine *e, struct stripes *s, uint32_t members, enum dev_kind kind,
		  void (*done)(struct engine *, struct stripes *))
{
	s->rows = members;
	if (s->user && members == geo_all(&e->geo))
		plan_read(&e->geo, s->first, s->count, s->user, &s->plan);
	else
		plan_window(&e->geo, s->first, s->count, s->mem, members, &s->plan);
	stripes_begin(s, STRIPES_READING, done);
	for (uint32_t i = 0; i < s->plan.req_count; i++) {
		const struct plan_req *r = &s->plan.req[i];

		member_io_start(e, &s->batch, r->member, DEV_READ, kind, 0, r->offset, r->bytes,
				s->plan.iov + r->iov_first, r->iov_count,
				geo_region_of(&e->geo, s->first));
	}
	batch_close(e, &s->batch);
}

static void zeroes_send(struct engine *e, struct stripes *s, uint32_t members, enum dev_kind kind,
			uint32_t flags)
{
	for (uint8_t i = 0; i < e->geo.n; i++)
		if (members >> i & 1)
			member_io_start(e, &s->batch, i, DEV_ZEROES, kind, flags,
					geo_offset(&e->geo, s->first), s->count * e->geo.frag_bytes,
					NULL, 0, geo_region_of(&e->geo, s->first));
}

static bool all_zero(const struct plan *p, const struct plan_req *r)
{
	for (uint32_t i = 0; i < r->iov_count; i++)
		if (!mem_is_zero(p->iov[r->iov_first + i].iov_base,
				 p->iov[r->iov_first + i].iov_len))
			return false;
	return true;
}

static void plan_send(struct engine *e, struct stripes *s, uint32_t members, enum dev_kind kind,
		      uint32_t flags)
{
	uint64_t region = geo_region_of(&e->geo, s->first);

	for (uint32_t i = 0; i < s->plan.req_count; i++) {
		const struct plan_req *r = &s->plan.req[i];

		if (!(members >> r->member & 1))
			continue;
		if (!s->user && all_zero(&s->plan, r))
			member_io_start(e, &s->batch, r->member, DEV_ZEROES, kind,
					flags | DEV_F_UNMAP, r->offset, r->bytes, NULL, 0, region);
		else
			member_io_start(e, &s->batch, r->member, DEV_WRITE, kind, flags, r->offset,
					r->bytes, s->plan.iov + r->iov_first, r->iov_count, region);
	}
}

void stripes_write(struct engine *e, struct stripes *s, uint32_t members, enum dev_kind kind,
		   uint32_t flags, void (*done)(struct engine *, struct stripes *))
{
	if (!s->user && !s->zeroes)
		plan_window(&e->geo, s->first, s->count, s->mem, members, &s->plan);
	stripes_begin(s, STRIPES_WRITING, done);
	if (s->zeroes)
		zeroes_send(e, s, members, kind, flags);
	else
		plan_send(e, s, members, kind, flags);
	batch_close(e, &s->batch);
}
