/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A node and its daemon: life and death, events in, outs out. This is what ddraidd's runtime is to
 * the engine.
 */
#ifndef TESTS_SIM_NODE_H
#define TESTS_SIM_NODE_H

#include "tests/sim/dev.h"
#include "tests/sim/front.h"

#define STEP_SOON_US 100 /* --batch: at most so long after the first of them */

struct nev { /* an event on its way to an engine */
	struct nev *next;
	struct event ev;
	uint64_t gen;
	uint32_t req;     /* EV_DEV_DONE: request, else NONE */
	uint64_t sent_us; /* EV_MSG: own message: when it was sent */
	uint32_t aux;     /* EV_VIEW: ring, item */
	uint32_t aux2;
	size_t bytes;
	uint8_t data[];
};
struct simnode {
	uint32_t idx, id;
	bool powered, proc, frozen, stopped, removing, drained, stopped_itself;
	uint32_t cut_off; /* mask: exporters that it does not reach */
	uint32_t cut_inc; /* 1 + the last incarnation that was */
	uint64_t
	    broke_gen[SIM_MAX_DISKS]; /* likewise: daemon that lost the disk before it had a map */
	uint64_t lost_gen[SIM_MAX_DISKS]; /* 1 + the daemon that lost the disk last, and which */
	uint32_t lost_ii[SIM_MAX_DISKS];  /* of it in which it did */
	bool conf_differs;     /* its file, from which its next daemon takes how to fence */
	bool fences_otherwise; /* its daemon has read it so */
	uint64_t frozen_no;
	struct engine *e;
	struct outq taken; /* of events that were taken together: --batch */
	bool took;         /* some, since its last step */
	uint32_t ii;
	uint64_t gen;
	uint64_t clock_us; /* offset of its clock */
	struct record record;
	bool lags; /* stopped, for a moment */
	struct nev *bl_head, *bl_tail;
	uint64_t tick_at;
	uint64_t own_msg_sent_us; /* R7: when the newest own message that came back was sent */
	bool own_msg;
	struct engine_status st;
	bool map_degraded; /* the map that it has */
	uint64_t epoch_seen, eio_us;
	struct devslot dev[DDR_MAX_DEVS];
	struct front front;
	bool quorate;
	uint32_t view_ring, view_item; /* last EV_VIEW, in the group's terms */
	uint64_t view_seq, quorum_seq; /* rings of the last events */
};

/* An event for its engine, in delay_us or at at_us. It is lost if the daemon ends before. */
void node_post(struct sim *s, struct simnode *n, uint64_t delay_us, const struct event *ev);
void node_post_nev(struct sim *s, struct simnode *n, uint64_t at_us, struct nev *nev);
struct nev *nev_new(const struct event *ev, const void *data, size_t bytes);

/* The machine: with power corosync runs, and the daemon starts after daemon_delay_us. */
void node_power_on(struct sim *s, struct simnode *n, uint64_t daemon_delay_us);
void node_power_on_later(struct sim *s, struct simnode *n, uint64_t delay_us);
void node_crash(struct sim *s, struct simnode *n); /* power is gone */
/* The daemon, under a new incarnation. */
void node_start(struct sim *s, struct simnode *n);
void node_start_later(struct sim *s, struct simnode *n, uint64_t delay_us);
void node_kill_daemon(struct sim *s, struct simnode *n); /* the machine lives */
void node_end_daemon(struct sim *s, struct simnode *n);  /* and nobody is told */
/* For so long the machine, or only its daemon, stands still. */
void node_freeze(struct sim *s, struct simnode *n, uint64_t us);
void node_stop_daemon(struct sim *s, struct simnode *n, uint64_t us);
void node_thaw(struct sim *s, struct simnode *n); /* at once */

struct simnode *node_leader(struct sim *s); /* NULL: nobody leads */
/* Requests of this incarnation that may still change something; but for a FLUSH whose connection
 * broke: it changes nothing, whenever it lands. */
uint32_t node_under_way(const struct sim *s, uint32_t ii);

#endif
