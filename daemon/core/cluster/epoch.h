/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Proposals and commits of the map (epoch.c, propose.c). */
#ifndef DDRAID_CORE_CLUSTER_EPOCH_H
#define DDRAID_CORE_CLUSTER_EPOCH_H

#include "daemon/core/cluster/nodemsg.h"
#include "daemon/core/door.h"

/* The map's epochs, as every node knows them. Those by number of member say when it changed. */
struct epochs {
	struct superblock base; /* the array's constants; map and seq are not used */
	struct epoch committed; /* newest epoch known committed: map's, but after an assembly */
	bool judged; /* by the epoch that was committed when this incarnation went by a committed
			map */
	bool acked;  /* the proposal under way */
	uint64_t proposing_us; /* since when one is */
	struct member_cause prop_cause[DDR_MAX_MEMBERS], cause[DDR_MAX_MEMBERS]; /* cause.c */
	bool sb_names_us; /* the newest superblocks that it wrote, as without a slot */
	uint64_t dropped[DDR_MAX_MEMBERS];    /* number of the newest commit that dropped it; 0 =
						 none that is known here */
	uint64_t lost_us[DDR_MAX_MEMBERS];    /* SUSPECT since, on the leader */
	uint64_t entered_us[DDR_MAX_MEMBERS]; /* when it entered the map last, 0 = it was in from
						 the start */
	uint32_t flaps[DDR_MAX_MEMBERS];      /* so often in a row it was lost soon after that */
};

/* How far ahead of all that this node knows an epoch can be that it is told: proposals that came to
 * nothing. Else one node that is broken could use up all numbers. */
#define EPOCH_AHEAD_MAX 1024u
uint64_t epoch_seen(const struct engine *e); /* the greatest number that it knows itself */
uint8_t bad_told(const struct engine *e, const struct map *m, uint8_t member);
/* R14: somebody must know it before this node leaves. */
bool flush_error_untold(const struct engine *e);
/* Propose, Ack, Commit, Report. */
void epoch_message(struct engine *e, uint32_t from, const nodemsg *m);
/* Every node's part: reports, acknowledges. */
void epoch_advance(struct engine *e);
/* A round has ended. */
void epoch_reset(struct engine *e);
/* This node goes by the map from now on. */
void epoch_adopt(struct engine *e, const struct map *m);
/* Leader: a node can't use the member. The worst that anybody says counts. */
void epoch_want_out(struct engine *e, uint32_t member, uint32_t want, bool read_error, bool earlier,
		    const struct member_cause *c);
/* Leader: proposes what is wanted, and drives it on. True while a proposal is under way. */
bool epoch_propose_wanted(struct engine *e);
/* Above all that anybody in the round has acknowledged; 0: no number is left. */
uint64_t epoch_next_num(const struct engine *e, const struct map *base);
/* The geometry, once enough members say it alike. */
void geo_adopt(struct engine *e);
uint32_t map_count_insync(const struct map *m);

/* For propose.c. */
void reassemble(struct engine *e);
#define REPORT_AGAIN_US 300000ull

#endif
