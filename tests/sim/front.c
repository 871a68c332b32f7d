/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The consumers: one per node, with several requests at once.
 *
 * Who may write a block follows from its number and from s->shift, so that two consumers don't
 * write one block at once (as cluster filesystems don't), yet write neighbouring blocks of one
 * region all the time. With o.races they break that rule at times. One consumer's own requests may
 * overlap.
 *
 *   HOT   single blocks in a window that all nodes share, interleaved block by block
 *   RUNS  several blocks, in runs that belong to one node
 *   SEQ   the same, on and on
 *   ANY   single blocks anywhere
 *   IDLE  nothing, for longer than the release delay
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

#define HOT_BLOCKS 48u

static void on_front(struct sim *s, struct hev *ev);

static void arm(struct sim *s, struct simnode *n, uint64_t delay_us)
{
	uint64_t at = s->now + delay_us;

	if (n->front.timer_at <= at && n->front.timer_at > s->now)
		return;
	n->front.timer_at = at;
	sim_at(s, delay_us, on_front, n->idx, n->gen, NULL);
}

/* ---- which block ---------------------------------------------------------------------------- */

static uint32_t owner_single(const struct sim *s, uint64_t block)
{
	return (uint32_t)((block + s->shift) % s->o.nodes);
}

static uint32_t owner_run(const struct sim *s, uint64_t block)
{
	return (uint32_t)((block / s->o.run_blocks + s->shift) % s->o.nodes);
}

/* The first half of the array goes by single blocks, the second by runs. */
static uint64_t half(const struct sim *s)
{
	return s->oracle.blocks / 2 / s->o.run_blocks * s->o.run_blocks;
}

static uint64_t single_block(struct sim *s, const struct simnode *n, bool hot)
{
	uint64_t range = half(s), base = 0, block;

	if (hot && range > HOT_BLOCKS) {
		base = mix64(s->seed + s->shift) % (range - HOT_BLOCKS);
		range = HOT_BLOCKS;
	}
	block = base + rng_range(&s->rng, 0, range - 1);
	if (s->o.races && rng_chance(&s->rng, 300))
		return block;
	for (uint32_t i = 0; i < s->o.nodes && owner_single(s, block) != n->idx; i++)
		block = block + 1 < half(s) ? block + 1 : 0;
	return block;
}

static uint64_t run_block(struct sim *s, struct simnode *n, bool seq, uint32_t *blocks)
{
	struct front *f = &n->front;
	uint64_t last = s->oracle.blocks, block;

	if (seq && f->seq_block >= half(s) && f->seq_block < last)
		block = f->seq_block;
	else
		block = rng_range(&s->rng, half(s), last - 1);
	for (uint32_t i = 0; i < 2 * s->o.nodes && owner_run(s, block) != n->idx; i++) {
		block = (block / s->o.run_blocks + 1) * s->o.run_blocks;
		if (block >= last)
			block = half(s);
	}
	if (*blocks > s->o.run_blocks - block % s->o.run_blocks)
		*blocks = (uint32_t)(s->o.run_blocks - block % s->o.run_blocks);
	if (*blocks > last - block)
		*blocks = (uint32_t)(last - block);
	if (owner_run(s, block) != n->idx && !s->o.races)
		*blocks = 0;
	f->seq_block = block + *blocks;
	return block;
}

/* ---- requests ------------------------------------------------------------------------------- */

static struct fop *fop_get(struct simnode *n)
{
	for (uint32_t i = 0; i < SIM_FRONT_DEPTH; i++)
		if (!n->front.op[i].used)
			return &n->front.op[i];
	return NULL;
}

/* For whoever hears the world: a request begins, or is answered. */
static void tell_request(struct sim *s, const struct simnode *n, const struct fop *f)
{
	if (f->op == IO_FLUSH)
		world_tell(s, n, "its consumer asks for a flush");
	else
		world_tell(s, n, "its consumer %s block %lu", f->op == IO_READ ? "reads" : "writes",
			   f->offset / DDR_BLOCK_BYTES);
}

static void tell_answer(struct sim *s, const struct simnode *n, const struct fop *f, int err)
{
	const char *what = f->op == IO_READ ? "read" : "written";

	if (f->op == IO_FLUSH)
		world_tell(s, n, "its consumer is told that the flush %s",
			   err ? "failed" : "is done");
	else
		world_tell(s, n, "its consumer is told that block %lu %s %s",
			   f->offset / DDR_BLOCK_BYTES, err ? "can't be" : "is", what);
}

static void submit(struct sim *s, struct simnode *n, struct fop *f)
{
	struct event ev = {.type = EV_IO};

	f->used = true;
	f->ii = n->ii;
	f->tag = mix64(++s->next_uid);
	f->issued_us = s->now;
	n->front.inflight++;
	if (f->op == IO_READ || f->op == IO_WRITE)
		f->buf = xmalloc(f->bytes);
	if (f->op == IO_READ)
		memset(f->buf, 0xdb, f->bytes);
	if (f->op == IO_WRITE || f->op == IO_ZEROES) {
		f->wid = oracle_write(s, n, f->offset, f->bytes, f->op == IO_ZEROES);
		f->issue = s->oracle.wop[f->wid].issue;
		s->writes++;
	} else {
		f->issue = sim_stamp(s);
		*(f->op == IO_READ ? &s->reads : &s->flushes) += 1;
	}
	if (f->op == IO_WRITE)
		content_fill(f->buf, f->wid, f->offset / SECTOR, f->bytes / SECTOR);
	ev.io.tag = f->tag;
	ev.io.op = f->op;
	ev.io.flags = f->flags;
	ev.io.offset = f->offset;
	ev.io.bytes = f->bytes;
	ev.io.data = f->buf;
	tell_request(s, n, f);
	node_post(s, n, 0, &ev);
}

static void issue_write(struct sim *s, struct simnode *n, struct fop *f)
{
	struct front *fr = &n->front;
	uint32_t blocks = 1;
	uint64_t block;

	if (fr->mode == FRONT_RUNS || fr->mode == FRONT_SEQ) {
		blocks = 1 + rng_below(&s->rng, s->o.max_blocks);
		block = run_block(s, n, fr->mode == FRONT_SEQ, &blocks);
	} else {
		block = single_block(s, n, fr->mode == FRONT_HOT);
	}
	if (!blocks)
		return;
	f->op = rng_chance(&s->rng, s->o.zeroes_permille) ? IO_ZEROES : IO_WRITE;
	if (rng_chance(&s->rng, s->o.fua_permille))
		f->flags |= IO_F_FUA;
	if (f->op == IO_ZEROES && rng_chance(&s->rng, 500))
		f->flags |= IO_F_UNMAP;
	f->offset = block * DDR_BLOCK_BYTES;
	f->bytes = blocks * DDR_BLOCK_BYTES;
	submit(s, n, f);
}

static void issue_read(struct sim *s, struct simnode *n, struct fop *f)
{
	uint64_t last = s->oracle.blocks, block;
	uint32_t blocks = 1 + rng_below(&s->rng, s->o.max_blocks);

	if (n->front.mode == FRONT_HOT)
		block = single_block(s, n, true);
	else
		block = rng_range(&s->rng, 0, last - 1);
	if (rng_chance(&s->rng, 500))
		blocks = 1;
	if (blocks > last - block)
		blocks = (uint32_t)(last - block);
	f->op = IO_READ;
	f->offset = block * DDR_BLOCK_BYTES;
	f->bytes = blocks * DDR_BLOCK_BYTES;
	submit(s, n, f);
}

static void issue(struct sim *s, struct simnode *n)
{
	struct fop *f = fop_get(n);

	if (!f)
		return;
	*f = (struct fop){0};
	if (rng_chance(&s->rng, s->o.read_permille)) {
		issue_read(s, n, f);
	} else if (rng_chance(&s->rng, s->o.flush_permille)) {
		f->op = IO_FLUSH;
		submit(s, n, f);
	} else {
		issue_write(s, n, f);
	}
}

bool front_request(struct sim *s, struct simnode *n, enum io_op op, uint64_t block, uint32_t blocks)
{
	struct fop *f = n->proc && n->front.open && !n->frozen && !n->removing ? fop_get(n) : NULL;

	if (!f)
		return false;
	*f = (struct fop){
	    .op = op, .offset = block * DDR_BLOCK_BYTES, .bytes = blocks * DDR_BLOCK_BYTES};
	submit(s, n, f);
	return true;
}

/* The consumer of node `was` writes this again, on another node where it has the array: first on
 * one that stands still, which may know least. */
void front_elsewhere(struct sim *s, const struct simnode *was, uint64_t block, uint32_t blocks)
{
	for (uint32_t i = 1; i < 2 * s->o.nodes; i++) {
		struct simnode *n = &s->node[(was->idx + i) % s->o.nodes];

		if (n != was && (n->stopped || i > s->o.nodes) &&
		    front_request(s, n, IO_WRITE, block, blocks))
			return;
	}
}

static void mode_draw(struct sim *s, struct simnode *n)
{
	n->front.mode = (enum front_mode)rng_below(&s->rng, FRONT_MODES);
	n->front.mode_until_us = s->now + rng_range(&s->rng, 20 * MS, 300 * MS);
	if (n->front.mode == FRONT_IDLE)
		n->front.mode_until_us += s->o.tun.release_delay_ms * MS * 3;
}

static bool may_issue(const struct sim *s)
{
	if (s->phase == PHASE_SAFETY)
		return s->writes < 4 * s->o.writes;
	return s->phase == PHASE_HEAL && s->now < s->phase_us + 150 * MS;
}

static void on_front(struct sim *s, struct hev *ev)
{
	struct simnode *n = &s->node[ev->a];
	struct front *f = &n->front;

	if (!n->proc || ev->b != n->gen || !f->open || f->timer_at != s->now || s->scripted)
		return;
	f->timer_at = 0;
	if (s->now >= f->mode_until_us)
		mode_draw(s, n);
	if (s->phase > PHASE_HEAL)
		return;
	if (may_issue(s) && !n->frozen && f->mode != FRONT_IDLE && !slotread_rests(s, n))
		for (uint32_t i = 1 + rng_below(&s->rng, 4); i-- && f->inflight < s->o.depth;)
			issue(s, n);
	arm(s, n, rng_range(&s->rng, 1, 2 * s->o.think_us));
}

void front_open(struct sim *s, struct simnode *n)
{
	n->front.open = true;
	s->inc[n->ii].served = true;
	checks_serves(s, n);
	mode_draw(s, n);
	arm(s, n, rng_range(&s->rng, 1, 5 * MS));
}

/* ---- answers -------------------------------------------------------------------------------- */

static void fop_free(struct simnode *n, struct fop *f)
{
	if (f->buf) {
		memset(f->buf, 0xee, f->bytes); /* the engine has no business there any more */
		free(f->buf);
	}
	*f = (struct fop){0};
	n->front.inflight--;
}

static void check_success(struct sim *s, const struct simnode *n, const struct fop *f)
{
	const struct incn *in = &s->inc[f->ii];
	uint64_t epoch = s->checks.map.epoch.num;

	/* The others have gone on: they serve nobody before they have committed an epoch without
	 * it. If they all froze or died before that, it may go on instead. */
	if ((checks_left(s, in) && in->gone_on) || in->removed ||
	    (in->fenced && epoch > in->fenced_epoch))
		sim_fail(s, "C8 R6",
			 "node %u answered a request of %lu us ago with success although "
			 "(%u, %lu) was %s",
			 n->id, s->now - f->issued_us, n->id, in->inc,
			 in->fenced ? "fenced" : "removed");
}

static void check_failure(struct sim *s, struct simnode *n, const struct fop *f, int err)
{
	const struct incn *in = &s->inc[f->ii];
	uint64_t since = s->checks.too_few_us;

	/* Refused because the array is being stopped here. */
	if (err == -ESHUTDOWN)
		return;
	if (err != -EIO)
		sim_fail(s, "C8", "node %u answered a request with %d", n->id, err);
	/* R6, or the policy for fewer than k fragments: one part may have failed long before the
	 * last one has ended. */
	if (checks_left(s, in) || in->removed || in->fenced ||
	    (s->o.tun.eio_when_lost && since && f->issued_us < since + 2000 * MS))
		return;
	/* One that refuses writes, and another one that is suspect: too few can be used. */
	if (s->o.tun.eio_when_lost &&
	    (full_excuses(s, f->issued_us) || spot_refuses_lately(s, f->issued_us)))
		return;
	if (f->bytes && spot_excuses(s, f->offset, f->bytes, f->issued_us))
		return;
	n->eio_us = s->now; /* it must say OUT_REMOVED in the same step */
}

void front_done(struct sim *s, struct simnode *n, uint64_t tag, int err)
{
	struct fop *f = NULL;

	for (uint32_t i = 0; i < SIM_FRONT_DEPTH; i++)
		if (n->front.op[i].used && n->front.op[i].tag == tag)
			f = &n->front.op[i];
	if (!f) {
		sim_fail(s, "C8", "node %u answered a request that nobody made, or twice", n->id);
		return;
	}
	tell_answer(s, n, f, err);
	if (err)
		check_failure(s, n, f, err);
	else
		check_success(s, n, f);
	if (f->wid && err) {
		oracle_cut(s, f->wid);
		givesup_cut(s, f->wid);
	} else if (f->wid)
		oracle_acked(s, f->wid, f->flags & IO_F_FUA);
	else if (f->op == IO_READ && !err)
		oracle_read(s, n, f);
	else if (f->op == IO_FLUSH && !err)
		oracle_flushed(s, f->ii, f->issue);
	fop_free(n, f);
	if (rng_chance(&s->rng, 500))
		arm(s, n, rng_range(&s->rng, 1, 200));
}

/* EV_RESTART comes: R6 says that everything was answered. */
void front_removed(struct sim *s, struct simnode *n)
{
	if (n->front.inflight)
		sim_fail(s, "C8 R6", "node %u was removed, but left %u requests unanswered", n->id,
			 n->front.inflight);
}

void front_abort(struct sim *s, struct simnode *n)
{
	(void)s;
	for (uint32_t i = 0; i < SIM_FRONT_DEPTH; i++) {
		struct fop *f = &n->front.op[i];

		if (!f->used)
			continue;
		if (f->wid)
			oracle_cut(s, f->wid);
		/* Only now may the buffer go: engine_free may not read it, but requests point to
		 * it. */
		fop_free(n, f);
	}
	n->front = (struct front){0};
}

/* The engine has this request from now on. */
void front_given(struct simnode *n, uint64_t tag)
{
	for (uint32_t i = 0; i < SIM_FRONT_DEPTH; i++)
		if (n->front.op[i].used && n->front.op[i].tag == tag)
			n->front.op[i].given = true;
}

uint32_t front_unanswered(const struct simnode *n)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < SIM_FRONT_DEPTH; i++)
		sum += n->front.op[i].used && n->front.op[i].given;
	return sum;
}

uint32_t front_inflight(const struct sim *s)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < s->o.nodes; i++)
		sum += s->node[i].front.inflight;
	return sum;
}

/* A write of several regions is under way for so long that some of it may be through. */
bool front_in_parts(const struct sim *s)
{
	for (uint32_t i = 0; i < s->o.nodes; i++)
		for (uint32_t k = 0; k < SIM_FRONT_DEPTH; k++) {
			const struct fop *f = &s->node[i].front.op[k];
			uint64_t first = f->offset / DDR_BLOCK_BYTES;
			uint64_t last = first + f->bytes / DDR_BLOCK_BYTES - 1;

			if (f->used && f->wid && s->now - f->issued_us > 2 * s->o.disk_lo_us &&
			    geo_region_of(&s->geo, first) != geo_region_of(&s->geo, last))
				return true;
		}
	return false;
}

/* A reader of the whole array, at the end. True when it is through. */
bool front_read_all(struct sim *s, struct simnode *n)
{
	uint64_t *next = &n->front.seq_block;
	struct fop *f;

	if (!n->proc || !n->front.open)
		return false; /* it was stopped by its operator, and comes again */
	while (*next < s->oracle.blocks && n->front.inflight < 8) {
		uint64_t left = s->oracle.blocks - *next;

		f = fop_get(n);
		*f = (struct fop){.op = IO_READ,
				  .offset = *next * DDR_BLOCK_BYTES,
				  .bytes = (uint32_t)(left < 32 ? left : 32) * DDR_BLOCK_BYTES};
		*next += f->bytes / DDR_BLOCK_BYTES;
		submit(s, n, f);
	}
	return *next >= s->oracle.blocks && !n->front.inflight;
}
