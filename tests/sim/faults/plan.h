/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which faults a seed has, and when. faults.h is what each of them does.
 */
#ifndef TESTS_SIM_FAULTS_PLAN_H
#define TESTS_SIM_FAULTS_PLAN_H

#include "tests/sim/common.h"

enum fault {
	F_NODE_CRASH,
	F_DAEMON_CRASH,
	F_FREEZE,
	F_FREEZE_LONG,
	F_STOPPED,
	F_PARTITION,
	F_PARTITION3,
	F_QUORUM_LOST,
	F_SOLO_MSG,
	F_SOLO_MSG_CRASH,
	F_CRASH_STEP,
	F_LEADER_IN_CHANGE,
	F_LEADER_IN_RECOVERY,
	F_LEADER_IN_REBUILD,
	F_LEADER_IN_JOIN,
	F_POWER_IN_CHANGE,
	F_CLUSTER_CRASH,
	F_CLUSTER_POWER,
	F_STALE_START,
	F_READ_ERROR,
	F_WRITE_ERROR,
	F_FLUSH_ERROR_LOST,
	F_FLUSH_ERROR_KEPT,
	F_DISK_DEAD,
	F_DISK_SLOW,
	F_DISCONNECT_ONE,
	F_DISCONNECT_ALL,
	F_DISCONNECT_LONG,
	F_EXPORTER_POWER,
	F_SWITCH_FLAP,
	F_ADMIN_FAIL,
	F_ADMIN_ADD,
	F_ADMIN_READD,
	F_ADMIN_STOP,
	F_PLAIN,                   /* those above every seed may draw, those below some seeds */
	F_REBUILD_BREAK = F_PLAIN, /* o.strikes_rebuilds */
	F_REBUILD_ERROR,
	F_REBUILD_POWER,
	F_REBUILD_DEATH,
	F_QUICK_RESTART, /* o.quick_restarts */
	F_LEADER_ALONE,  /* o.lone_commits */
	F_PLANNED, /* those above are chosen by the planner, those below happen by themselves */
	F_LATE_WRITE = F_PLANNED,
	F_TORN_WRITE,
	F_DROPPED_WRITE,
	F_FENCE_FAILED,
	F_FENCE_WAITED,
	F_FENCED_ITSELF,
	F_MSG_LOST,
	F_MSG_TAIL,
	F_VIEW_FIRST,
	F_QUORUM_FIRST,
	F_BACKLOG,
	F_EVICTED,
	F_RACED_BLOCKS,
	F_LOCK_CALLBACK,
	F_LOCK_CALLBACK_IO,
	F_LOCK_REFUSED,
	F_LOCK_RECOVERY,
	F_LOCK_FREED_EARLY,
	F_LOCK_CUT_OFF,
	F_GARBAGE_ALLOWED,
	F_BAD_SPOT,
	F_BAD_SPOT_DEGRADED,
	F_BAD_SPOT_REFUSES,
	F_OWN_FENCE_FAILED,
	F_LATE_AFTER_RESTART,
	F_FULL_STRUCK,
	F_PARTIAL_STRUCK,
	F_REBUILD_WRITE_ERROR,
	F_REBUILD_FLUSH_ERROR,
	F_FLUSH_ERROR_BREAK,
	F_POWER_THEN_BREAK,
	F_EXPORTERS_POWER,
	F_VOTES_LOST,
	F_OLD_COPY,
	F_LATE_COPY,
	F_LATE_COPY_GONE,
	F_WRONG_WAY,
	F_STORAGE_CUT,
	F_FENCES_OTHERWISE,
	F_LEADER_BETWEEN,
	F_GIVES_UP,
	F_LOCKS_LEFT,
	F_GROUP_LOST,
	F_THIRD_LAGS,
	F_SLOT_UNREAD,
	F_SB_TORN,
	F_SB_UNREADABLE,
	F_STORE_FULL,
	F_STORE_FULL_KEPT,
	F_RIVAL,
	F_OUTSIDER,
	F_STOP_JOINING,
	F_RACK_POWER,
	F_HALF_OPEN,
	F_GIVES_UP_ALONE,
	F_RECORD_HANGS,
	F_ROLLED_BACK,
	F_ROLLED_BACK_CRASH,
	F_EXCHANGED,
	F_COUNT
};
struct planner {
	uint32_t left;
	bool healing;
	uint32_t armed; /* enum fault or F_COUNT */
	uint32_t armed_countdown;
	uint64_t armed_until_us;
	bool at_promotion; /* of a rebuild: strike in the proposal that promotes the member */
	uint32_t deaths;   /* disks lost for ever */
	uint32_t done;     /* faults that took place */
	uint64_t swarm;    /* mask: faults that this seed may have */
	uint64_t gap_us;
	uint64_t cluster_down_until;
	uint64_t quiet_since_us; /* the last fault */
};
extern const char *const fault_name[F_COUNT];

void plan_init(struct sim *s);
void plan_event(struct sim *s); /* after each event: armed faults */
void plan_heal(struct sim *s);  /* no more faults; everything that can be healed is */

#endif
