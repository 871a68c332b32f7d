/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One exporter and its medium: a volatile cache, FUA, FLUSH, a power loss. What it does at its door
 * (requests, connections) is dev.h's. The checks hear of every change of the medium from here.
 */
#ifndef TESTS_SIM_DISK_H
#define TESTS_SIM_DISK_H

#include "tests/sim/common.h"

struct dwrite { /* on the medium, not yet durable */
	struct dwrite *prev, *next;
	uint64_t seq, offset;
	uint64_t done_us; /* when it was answered, NEVER: not yet */
	uint32_t bytes;
	bool lost;    /* after a flush error: no later flush makes it durable */
	bool flushed; /* lost, and a FLUSH has ended well since */
	uint8_t data[];
};
struct slotpage { /* newest valid copy of a page of a slot in the durable content */
	bool valid;
	uint64_t seq, owner_inc, dirty, missed;
	uint32_t owner_node;
};
struct disk {
	uint32_t idx;
	uint64_t bytes;
	uint64_t instance;
	uint8_t *cached, *durable;
	uint64_t *durable_seq; /* per sector */
	struct dwrite *head, *tail;
	uint64_t seq;
	uint32_t unflushed[SIM_MAX_REGIONS];
	uint64_t unflushed_mask;
	struct slotpage slot[DDR_MAX_SLOTS + 1][SIM_MAX_PAGES];
	bool sb_valid;
	struct superblock sb; /* newest in the cached view */
	bool powered;
	bool hidden;            /* nobody reaches it */
	bool dead, dead_silent; /* for ever: every request fails, or nobody answers at all */
	bool cache_lost;        /* since it was last known in sync */
	uint64_t cache_lost_stamp, cache_lost_epoch;
	uint32_t witness_ii[SIM_MAX_NODES];      /* who can tell that the cache was lost */
	uint32_t flush_err_ii;                   /* who was told */
	uint64_t flush_err_gen, flush_err_epoch; /* its daemon's life; the newest map then */
	uint64_t flush_err_us;                   /* when a flush error was reported, 0 = never */
	uint64_t slow_until_us;
	uint32_t read_errs, write_errs, flush_errs; /* to be reported, once each */
	bool flush_err_loses;
	bool full; /* full.c: writes of data fail */
	uint64_t full_hit_us;
	bool spot; /* spot.c: these bytes can't be read */
	uint32_t spot_no;
	bool spot_hard; /* it can't be written either */
	uint64_t spot_from, spot_to, spot_hit_us;
	uint8_t sb_bad;      /* sbcopies.c: mask of superblock copies that can't be read */
	bool err_in_rebuild; /* the error waits for the member's rebuild */
	bool err_in_change;  /* it strikes while a proposal is under way */
	struct {             /* rival.c */
		int state;
		uint32_t no;
		bool added; /* the administrator was told that it is our member */
		uint8_t area[SB_COPIES * DDR_BLOCK_BYTES]; /* what it put there last */
	} rival;
	char uri[32];
};

int disk_init(struct sim *s, struct disk *d, uint32_t idx, uint64_t bytes);
void disk_free(struct disk *d);
/* Before the world begins: junk from `offset` on, and a block that is durable at once. */
void disk_fill(struct sim *s, struct disk *d, uint64_t offset);
void disk_poke(struct disk *d, uint64_t offset, const uint8_t *block);
void disk_scan(struct sim *s, struct disk *d); /* superblocks and log, after disk_poke */
/* Takes effect now. Returns the write's sequence number (to be given to disk_answered). */
uint64_t disk_write(struct sim *s, struct disk *d, uint64_t offset, uint32_t bytes,
		    const uint8_t *data, bool fua);
/* What a read that takes effect now sees: the cache. */
void disk_read(const struct disk *d, uint64_t offset, uint32_t bytes, uint8_t *data);
/* The write of this number was answered now: a FLUSH that is sent from now on covers it. */
void disk_answered(struct sim *s, struct disk *d, uint64_t seq);
/* Everything answered by `issued_us` becomes durable; younger writes do or don't. */
void disk_flush(struct sim *s, struct disk *d, uint64_t issued_us);
/* A flush fails, and incarnation ii is told. `lose`: what is in the cache never becomes durable. */
void disk_flush_error(struct sim *s, struct disk *d, bool lose, uint32_t ii);
/* Nobody was told of that error, or nobody who was told is left: so nothing was lost by it. */
void disk_untold(struct sim *s, struct disk *d);
void disk_witness_gone(struct sim *s, uint32_t ii);                     /* likewise, of all disks */
void disk_restore(struct sim *s, struct disk *d, const uint8_t *image); /* after a power loss */
/* Each unflushed write is dropped, torn or kept. The caller ends the requests (dev_power_loss). */
void disk_power_loss(struct sim *s, struct disk *d);

#endif
