/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One exporter and its medium.
 *
 * `cached` is what reads see, `durable` what a power loss leaves. A write without FUA is in
 * `cached` and in the list of unflushed writes, in the order in which the writes took effect. When
 * a write becomes durable, older ones no longer matter for the sectors that it covers
 * (durable_seq): a cache holds one content per sector.
 *
 * A power loss drops, tears (by sectors) or keeps each unflushed write. After a flush error that
 * loses data the writes stay in the list as `lost`: reads go on seeing them (as the page cache of a
 * Linux exporter shows them), no later flush makes them durable.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

int disk_init(struct sim *s, struct disk *d, uint32_t idx, uint64_t bytes)
{
	(void)s;
	memset(d, 0, sizeof(*d));
	d->idx = idx;
	d->bytes = bytes;
	d->cached = xcalloc(1, bytes);
	d->durable = xcalloc(1, bytes);
	d->durable_seq = xcalloc(bytes / SECTOR, sizeof(*d->durable_seq));
	d->powered = true;
	return 0;
}

void disk_free(struct disk *d)
{
	for (struct dwrite *w = d->head, *next; w; w = next) {
		next = w->next;
		free(w);
	}
	free(d->cached);
	free(d->durable);
	free(d->durable_seq);
	memset(d, 0, sizeof(*d));
}

void disk_fill(struct sim *s, struct disk *d, uint64_t offset)
{
	uint64_t v = rng_u64(&s->rng);

	for (; offset < d->bytes; offset += sizeof(v)) {
		v = v * 6364136223846793005ull + 1442695040888963407ull;
		memcpy(d->cached + offset, &v, sizeof(v));
		memcpy(d->durable + offset, &v, sizeof(v));
	}
}

void disk_poke(struct disk *d, uint64_t offset, const uint8_t *block)
{
	memcpy(d->cached + offset, block, DDR_BLOCK_BYTES);
	memcpy(d->durable + offset, block, DDR_BLOCK_BYTES);
}

static void page_scan(struct sim *s, struct disk *d, uint32_t slot, uint32_t page)
{
	struct slotpage *p = &d->slot[slot][page];
	uint32_t first = page * LOG_REGIONS_PER_PAGE;
	struct logpage lp;

	*p = (struct slotpage){0};
	for (uint32_t c = 0; c < 2; c++) {
		if (logpage_decode(&lp, d->durable + geo_log_offset(&s->geo, slot, page, c)) ||
		    memcmp(lp.array_uuid, s->array_uuid, DDR_UUID_BYTES) || lp.slot != slot ||
		    lp.page != page || (p->valid && lp.seq < p->seq))
			continue;
		p->valid = true;
		p->seq = lp.seq;
		p->owner_node = lp.owner_node;
		p->owner_inc = lp.owner_inc;
		p->dirty = p->missed = 0;
		for (uint32_t r = 0; r < LOG_REGIONS_PER_PAGE && first + r < s->geo.regions; r++) {
			p->dirty |= (uint64_t)bit_get(lp.dirty, r) << (first + r);
			p->missed |= (uint64_t)bit_get(lp.missed, r) << (first + r);
		}
	}
}

static void slot_scan(struct sim *s, struct disk *d, uint32_t slot)
{
	for (uint32_t page = 0; page < s->geo.log_pages; page++)
		page_scan(s, d, slot, page);
}

static void sb_scan(struct sim *s, struct disk *d)
{
	struct superblock sb;

	d->sb_valid = false;
	for (uint32_t c = 0; c < SB_COPIES; c++) {
		if (sb_decode(&sb, d->cached + geo_sb_offset(c), NULL) ||
		    memcmp(sb.array_uuid, s->array_uuid, DDR_UUID_BYTES) ||
		    (d->sb_valid && sb.seq < d->sb.seq))
			continue;
		d->sb_valid = true;
		d->sb = sb;
	}
	checks_bind(s);
}

void disk_scan(struct sim *s, struct disk *d)
{
	for (uint32_t i = 0; i <= s->geo.p.slots; i++)
		slot_scan(s, d, i);
	sb_scan(s, d);
}

/* Parts of the durable content changed. */
static void durable_changed(struct sim *s, struct disk *d, uint64_t offset, uint64_t bytes)
{
	uint64_t page = 2ull * s->geo.log_pages * DDR_BLOCK_BYTES;
	uint64_t first, last;

	if (offset >= s->geo.data_offset || offset + bytes <= LOG_OFFSET)
		return;
	first = offset < LOG_OFFSET ? 0 : (offset - LOG_OFFSET) / page;
	last = (offset + bytes - 1 - LOG_OFFSET) / page;
	for (uint64_t i = first; i <= last && i <= s->geo.p.slots; i++)
		slot_scan(s, d, (uint32_t)i);
	checks_log(s);
}

static void cached_changed(struct sim *s, struct disk *d, uint64_t offset, uint32_t bytes)
{
	if (offset < SB_OFFSET + SB_COPIES * DDR_BLOCK_BYTES && offset + bytes > SB_OFFSET)
		sb_scan(s, d);
	checks_medium(s, d, offset, bytes);
}

static void unflushed_count(struct sim *s, struct disk *d, const struct dwrite *w, int by)
{
	uint64_t stripe, last;

	if (!checks_data_span(s, w->offset, w->bytes, &stripe, &last))
		return;
	for (uint64_t r = geo_region_of(&s->geo, stripe); r <= geo_region_of(&s->geo, last); r++) {
		d->unflushed[r] += (uint32_t)by;
		if (d->unflushed[r])
			d->unflushed_mask |= 1ull << r;
		else
			d->unflushed_mask &= ~(1ull << r);
	}
}

static void unlink_write(struct sim *s, struct disk *d, struct dwrite *w)
{
	*(w->prev ? &w->prev->next : &d->head) = w->next;
	*(w->next ? &w->next->prev : &d->tail) = w->prev;
	unflushed_count(s, d, w, -1);
	free(w);
}

/* Sectors [from, to) of a write become durable, but where something newer already is. */
static void make_durable(struct disk *d, uint64_t offset, const uint8_t *data, uint64_t seq,
			 uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		uint64_t sector = offset / SECTOR + i;

		if (d->durable_seq[sector] >= seq)
			continue;
		d->durable_seq[sector] = seq;
		memcpy(d->durable + sector * SECTOR, data + (size_t)i * SECTOR, SECTOR);
	}
}

uint64_t disk_write(struct sim *s, struct disk *d, uint64_t offset, uint32_t bytes,
		    const uint8_t *data, bool fua)
{
	uint64_t seq = ++d->seq;
	struct dwrite *w;

	memcpy(d->cached + offset, data, bytes);
	if (fua) {
		make_durable(d, offset, data, seq, 0, bytes / SECTOR);
		durable_changed(s, d, offset, bytes);
	} else {
		w = xmalloc(sizeof(*w) + bytes);
		*w = (struct dwrite){.prev = d->tail,
				     .seq = seq,
				     .offset = offset,
				     .done_us = NEVER,
				     .bytes = bytes};
		memcpy(w->data, data, bytes);
		*(d->tail ? &d->tail->next : &d->head) = w;
		d->tail = w;
		unflushed_count(s, d, w, 1);
	}
	cached_changed(s, d, offset, bytes);
	return seq;
}

void disk_read(const struct disk *d, uint64_t offset, uint32_t bytes, uint8_t *data)
{
	memcpy(data, d->cached + offset, bytes);
}

void disk_answered(struct sim *s, struct disk *d, uint64_t seq)
{
	for (struct dwrite *w = d->tail; w && seq && w->seq >= seq; w = w->prev)
		if (w->seq == seq)
			w->done_us = s->now;
}

/* After a flush error: everything that it wrote has been written again and is durable. */
static bool rewritten(const struct disk *d, const struct dwrite *w)
{
	for (uint32_t i = 0; i < w->bytes / SECTOR; i++)
		if (d->durable_seq[w->offset / SECTOR + i] <= w->seq)
			return false;
	return true;
}

void disk_flush(struct sim *s, struct disk *d, uint64_t issued_us)
{
	for (struct dwrite *w = d->head, *next; w; w = next) {
		uint64_t offset = w->offset;
		uint32_t bytes = w->bytes;

		next = w->next;
		if (w->lost || (w->done_us > issued_us && rng_chance(&s->rng, 500))) {
			w->flushed = w->flushed || (w->lost && w->done_us <= issued_us);
			continue;
		}
		make_durable(d, offset, w->data, w->seq, 0, bytes / SECTOR);
		unlink_write(s, d, w);
		durable_changed(s, d, offset, bytes);
	}
	for (struct dwrite *w = d->head, *next; w; w = next) {
		next = w->next;
		if (w->lost && rewritten(d, w))
			unlink_write(s, d, w);
	}
}

void disk_flush_error(struct sim *s, struct disk *d, bool lose, uint32_t ii)
{
	d->flush_err_us = s->now;
	d->flush_err_ii = ii;
	d->flush_err_gen = s->node[s->inc[ii].node].gen;
	d->flush_err_epoch = s->checks.map.epoch.num;
	for (struct dwrite *w = d->head; w && lose; w = w->next)
		w->lost = true;
	if (lose && d->head) {
		d->cache_lost = true;
		checks_witness(s, d);
		d->cache_lost_stamp = sim_stamp(s);
		d->cache_lost_epoch = s->checks.map.epoch.num;
	}
}

/*
 * The only one that was told of a flush error is gone before it could say so, or its connection
 * broke before it was told: nobody can know. That is beyond any contract, so in this world nothing
 * was lost then.
 */
void disk_untold(struct sim *s, struct disk *d)
{
	bool any = false;

	if (!d->flush_err_us || s->checks.member_of[d->idx] == NONE ||
	    s->checks.map.member[s->checks.member_of[d->idx]].state == MEMBER_FAULTY)
		return;
	for (struct dwrite *w = d->head, *next; w; w = next) {
		uint64_t offset = w->offset;
		uint32_t bytes = w->bytes;

		next = w->next;
		any = any || w->lost;
		w->lost = false;
		if (!w->flushed)
			continue;
		make_durable(d, offset, w->data, w->seq, 0, bytes / SECTOR);
		unlink_write(s, d, w);
		durable_changed(s, d, offset, bytes);
	}
	if (any)
		d->cache_lost = false;
}

void disk_witness_gone(struct sim *s, uint32_t ii)
{
	for (uint32_t i = 0; i < s->o.disks; i++)
		if (s->disk[i].flush_err_ii == ii)
			disk_untold(s, &s->disk[i]);
}

/* One sector at a time is kept or not, or all up to some sector, or all but some. */
static void tear(struct sim *s, struct disk *d, const struct dwrite *w)
{
	uint32_t n = w->bytes / SECTOR, cut = rng_below(&s->rng, n + 1);

	switch (rng_below(&s->rng, 3)) {
	case 0:
		make_durable(d, w->offset, w->data, w->seq, 0, cut);
		break;
	case 1:
		make_durable(d, w->offset, w->data, w->seq, cut, n);
		break;
	default:
		for (uint32_t i = 0; i < n; i++)
			if (rng_chance(&s->rng, 500))
				make_durable(d, w->offset, w->data, w->seq, i, i + 1);
	}
}

void disk_restore(struct sim *s, struct disk *d, const uint8_t *image)
{
	memcpy(d->cached, image, d->bytes);
	memcpy(d->durable, image, d->bytes);
	disk_scan(s, d);
}

/* Everything is as it will be before anybody looks: what lies between is no state of this disk. */
void disk_power_loss(struct sim *s, struct disk *d)
{
	uint32_t habit = rng_below(&s->rng, 4); /* mostly drop, mostly keep, mixed */

	for (struct dwrite *w = d->head; w; w = w->next) {
		uint32_t dice = rng_below(&s->rng, 100);
		uint32_t keep = habit == 0 ? 5 : habit == 1 ? 80 : 35;

		if (!w->lost && dice < keep) {
			make_durable(d, w->offset, w->data, w->seq, 0, w->bytes / SECTOR);
		} else if (!w->lost && dice < keep + 20 && w->bytes > SECTOR) {
			tear(s, d, w);
			stats_fault(s, F_TORN_WRITE);
			d->cache_lost = true;
		} else {
			stats_fault(s, F_DROPPED_WRITE);
			d->cache_lost = true;
		}
	}
	for (struct dwrite *w = d->head; w; w = w->next)
		memcpy(d->cached + w->offset, d->durable + w->offset, w->bytes);
	while (d->head) {
		uint64_t offset = d->head->offset;
		uint32_t bytes = d->head->bytes;

		unlink_write(s, d, d->head);
		durable_changed(s, d, offset, bytes);
		cached_changed(s, d, offset, bytes);
	}
	checks_witness(s, d);
	d->cache_lost_stamp = sim_stamp(s);
	d->cache_lost_epoch = s->checks.map.epoch.num;
}
