/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Group membership, ordered multicast and quorum, as corosync gives them: the fake adapter behind
 * ports/group.h. Nodes are named by their index, rings by theirs in g->ring.
 */
#ifndef TESTS_SIM_GROUP_H
#define TESTS_SIM_GROUP_H

#include "tests/sim/common.h"

struct gitem {
	bool view;
	uint32_t from; /* message: sender */
	uint32_t from_ii;
	uint32_t mask; /* view: nodes whose daemon is a member */
	uint32_t in_ii[SIM_MAX_NODES];
	uint32_t evicts;                 /* message: a node, or 0 */
	uint32_t left_ii[SIM_MAX_NODES]; /* view: incarnations that are not in it any more */
	uint32_t left_count;
	uint64_t sent_us;
	size_t bytes;
	uint8_t *data;
};
struct gring {
	struct ring id;
	uint32_t nodes; /* mask */
	uint32_t procs; /* mask: as of the last item */
	bool broken, quorate;
	struct gitem *item;
	uint32_t count, cap;
	uint32_t view;                 /* item: the newest view */
	uint32_t ptr[SIM_MAX_NODES];   /* next to be delivered */
	uint32_t limit[SIM_MAX_NODES]; /* nothing from here on is delivered */
	uint32_t got[SIM_MAX_NODES];   /* broken: what it has received */
	uint32_t first[SIM_MAX_NODES]; /* the daemon's first item */
};
struct gmsg {
	struct gmsg *next;
	uint64_t sent_us;
	uint32_t ii;
	uint32_t ring, view; /* in which it was sent, and comes, or nowhere */
	size_t bytes;
	uint8_t data[];
};
struct simgroup {
	struct gring **ring;
	uint32_t count, cap;
	uint64_t next_seq;
	uint32_t cur[SIM_MAX_NODES];                                 /* ring index or NONE */
	uint32_t seen_ring[SIM_MAX_NODES], seen_view[SIM_MAX_NODES]; /* delivered last */
	uint32_t comp[SIM_MAX_NODES];
	uint64_t last_us[SIM_MAX_NODES]; /* of the last scheduled delivery */
	uint64_t quorum_us[SIM_MAX_NODES];
	uint64_t not_before; /* no ring forms earlier */
	uint64_t heal_no;
	uint32_t member_ii[SIM_MAX_NODES]; /* whom the group knows, or knew last, there */
	bool joined[SIM_MAX_NODES], wants[SIM_MAX_NODES], lost[SIM_MAX_NODES];
	bool met_all[SIM_MAX_NODES]; /* two_node: it has seen the other since its start */
	struct gmsg *head[SIM_MAX_NODES], *tail[SIM_MAX_NODES];
	bool ordering[SIM_MAX_NODES];
	uint32_t solo_armed; /* fault: cut off whoever is alone in having delivered its message */
	bool solo_crash, solo_commit; /* solo_commit: only with a Commit */
};

void group_init(struct sim *s);
void group_free(struct sim *s);
void group_send(struct sim *s, struct simnode *n, const uint8_t *data, size_t bytes); /* OUT_SEND */
/* The node's daemon joins the group, or has ended. */
void group_join(struct sim *s, uint32_t node);
void group_leave(struct sim *s, uint32_t node);
/* Its corosync came or went. */
void group_node_up(struct sim *s, uint32_t node);
void group_node_down(struct sim *s, uint32_t node);
/* Links changed: nodes of the same number reach each other. */
void group_partition(struct sim *s, const uint32_t comp[SIM_MAX_NODES]);
void group_heal(struct sim *s);
void group_heal_later(struct sim *s, uint64_t delay_us);
void group_frozen_out(struct sim *s, uint32_t node); /* frozen for longer than a token */
void group_thawed(struct sim *s, uint32_t node);
bool group_in_ring(const struct sim *s, uint32_t node, uint32_t ring); /* and it is operational */
bool group_whole(const struct sim *s); /* one operational ring of all living nodes */

/* Faults of the group that happen by themselves, in some seeds. */
void votes_init(struct sim *s);      /* quorum is lost, and the ring stays */
void group_loss_init(struct sim *s); /* a daemon and its corosync lose each other */

#endif
