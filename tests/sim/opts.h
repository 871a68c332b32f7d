/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a world is like: its geometry, its tunables, its latencies and the habits of what surrounds
 * the engines. A seed draws all of it before anything happens; a story says it.
 */
#ifndef TESTS_SIM_OPTS_H
#define TESTS_SIM_OPTS_H

#include "tests/sim/common.h"

struct opts {
	uint32_t nodes, members, disks;
	struct geo_params geo;
	bool clean;
	bool races;          /* consumers of two nodes write one block at once */
	bool fence_cuts;     /* the fence cuts connections; else it only waits (zombie_timeout) */
	bool record_hangs;   /* state directories are full for a while */
	bool half_open;      /* some nodes do not know that an exporter was off (halfopen.c) */
	bool fences_itself;  /* a daemon ends its node's earlier incarnations before it joins */
	bool instance_known; /* exporters tell an instance id */
	bool cancel_drops; /* OUT_DEV_CANCEL closes the connection at once, else when all has ended
			    */
	bool faultless;
	bool own_fence_fails;        /* that fence may fail at first */
	bool two_node;               /* each of two has quorum alone; who is fenced can't fence */
	bool strikes_rebuilds;       /* faults may meet the member that is being rebuilt */
	uint32_t promotion_permille; /* of these: in the proposal that promotes it */
	bool lone_commits;           /* a leader may die as the only one that knows a commit */
	bool slow_recovery;          /* of the DLM: seconds */
	bool late_leave;     /* a daemon's end is known to the DLM before the group says it */
	bool quick_restarts; /* daemons die in the midst of writes and are back at once */
	enum lock_backend locks;
	struct tunables tun;
	uint32_t max_ios;
	uint64_t token_us, zombie_us;
	uint64_t disk_lo_us, disk_hi_us, net_lo_us, net_hi_us;
	uint32_t slow_permille; /* requests that take 50 times as long */
	uint32_t fence_fail_permille;
	uint32_t writes; /* at least so many in the safety phase */
	uint32_t depth, max_blocks;
	uint32_t run_blocks; /* one node's share in a row */
	uint32_t read_permille, flush_permille, zeroes_permille, fua_permille;
	uint64_t think_us;
	uint32_t faults;
};

/* Draws s->o from the seed. force_nodes: so many nodes, 0 = as drawn. */
void opts_draw(struct sim *s, uint32_t force_nodes);

#endif
