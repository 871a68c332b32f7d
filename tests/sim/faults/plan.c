/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which faults a seed has, and when.
 */
#include "tests/sim/faults/faults.h"
#include "tests/sim/faults/halfopen.h"
#include "tests/sim/world.h"

#define BUSY_WRITES 4u
#define LEAST_FAULTS 3u /* per seed that is not drawn to be without */

const char *const fault_name[F_COUNT] = {
    [F_NODE_CRASH] = "node-crash",
    [F_DAEMON_CRASH] = "daemon-crash",
    [F_FREEZE] = "freeze",
    [F_FREEZE_LONG] = "freeze-long",
    [F_STOPPED] = "stopped-daemon",
    [F_PARTITION] = "partition",
    [F_PARTITION3] = "partition-3",
    [F_QUORUM_LOST] = "quorum-lost",
    [F_SOLO_MSG] = "solo-message-cut",
    [F_SOLO_MSG_CRASH] = "solo-message-crash",
    [F_CRASH_STEP] = "crash-at-step",
    [F_LEADER_IN_CHANGE] = "leader-dies-in-map-change",
    [F_LEADER_IN_RECOVERY] = "leader-dies-in-recovery",
    [F_LEADER_IN_REBUILD] = "leader-dies-in-rebuild",
    [F_LEADER_IN_JOIN] = "leader-dies-in-join",
    [F_POWER_IN_CHANGE] = "power-cut-in-map-change",
    [F_CLUSTER_CRASH] = "all-nodes-crash",
    [F_CLUSTER_POWER] = "all-nodes-and-exporters",
    [F_STALE_START] = "start-with-stale-members",
    [F_READ_ERROR] = "member-read-error",
    [F_WRITE_ERROR] = "member-write-error",
    [F_FLUSH_ERROR_LOST] = "flush-error-data-lost",
    [F_FLUSH_ERROR_KEPT] = "flush-error-data-kept",
    [F_DISK_DEAD] = "member-dead",
    [F_DISK_SLOW] = "member-slow",
    [F_DISCONNECT_ONE] = "disconnect-one-node",
    [F_DISCONNECT_ALL] = "disconnect-all-nodes",
    [F_DISCONNECT_LONG] = "disconnect-for-long",
    [F_EXPORTER_POWER] = "exporter-power-loss",
    [F_SWITCH_FLAP] = "switch-flap",
    [F_ADMIN_FAIL] = "admin-fail",
    [F_ADMIN_STOP] = "admin-stop",
    [F_ADMIN_ADD] = "admin-add",
    [F_ADMIN_READD] = "admin-readd",
    [F_REBUILD_BREAK] = "rebuild-breaks-off",
    [F_REBUILD_ERROR] = "rebuild-error",
    [F_REBUILD_POWER] = "rebuild-power-loss",
    [F_REBUILD_DEATH] = "rebuild-breaks-node-dies",
    [F_QUICK_RESTART] = "daemon-back-at-once",
    [F_LEADER_ALONE] = "leader-dies-alone-with-commit",
    [F_LATE_WRITE] = "late-write",
    [F_TORN_WRITE] = "torn-write",
    [F_DROPPED_WRITE] = "dropped-write",
    [F_FENCE_FAILED] = "fence-fails-first",
    [F_FENCE_WAITED] = "fence-by-waiting",
    [F_FENCED_ITSELF] = "fenced-by-itself",
    [F_MSG_LOST] = "message-lost-at-view",
    [F_MSG_TAIL] = "message-seen-by-some",
    [F_VIEW_FIRST] = "view-before-quorum",
    [F_QUORUM_FIRST] = "quorum-before-view",
    [F_BACKLOG] = "backlog-at-once",
    [F_EVICTED] = "removed",
    [F_RACED_BLOCKS] = "raced-blocks",
    [F_LOCK_CALLBACK] = "dlm-callback",
    [F_LOCK_CALLBACK_IO] = "dlm-callback-under-io",
    [F_LOCK_REFUSED] = "dlm-try-refused",
    [F_LOCK_RECOVERY] = "dlm-recovery",
    [F_LOCK_FREED_EARLY] = "dlm-freed-before-fence",
    [F_LOCK_CUT_OFF] = "dlm-grants-in-broken-ring",
    [F_GARBAGE_ALLOWED] = "garbage-allowed",
    [F_BAD_SPOT] = "bad-spot",
    [F_BAD_SPOT_REFUSES] = "bad-spot-that-refuses-writes",
    [F_BAD_SPOT_DEGRADED] = "bad-spot-while-degraded",
    [F_OWN_FENCE_FAILED] = "own-fence-fails-first",
    [F_LATE_AFTER_RESTART] = "late-write-after-restart",
    [F_FULL_STRUCK] = "full-rebuild-struck",
    [F_PARTIAL_STRUCK] = "partial-rebuild-struck",
    [F_REBUILD_WRITE_ERROR] = "write-error-in-rebuild",
    [F_REBUILD_FLUSH_ERROR] = "flush-error-in-rebuild",
    [F_FLUSH_ERROR_BREAK] = "flush-error-and-break",
    [F_POWER_THEN_BREAK] = "power-loss-then-break",
    [F_EXPORTERS_POWER] = "all-exporters",
    [F_VOTES_LOST] = "votes-lost",
    [F_OLD_COPY] = "old-copy-of-a-member",
    [F_LATE_COPY] = "old-copy-of-the-same-epoch",
    [F_LATE_COPY_GONE] = "old-copy-after-a-node-is-gone",
    [F_WRONG_WAY] = "node-reaches-an-older-copy",
    [F_STORAGE_CUT] = "node-cut-off-from-members",
    [F_FENCES_OTHERWISE] = "fences-otherwise",
    [F_LEADER_BETWEEN] = "leader-dies-between-members",
    [F_GIVES_UP] = "gives-up",
    [F_GIVES_UP_ALONE] = "gives-up-and-is-cut-off",
    [F_LOCKS_LEFT] = "dlm-left-by-hand",
    [F_GROUP_LOST] = "group-lost",
    [F_THIRD_LAGS] = "third-node-lags",
    [F_RIVAL] = "rival-array",
    [F_OUTSIDER] = "outsider-has-the-array",
    [F_STOP_JOINING] = "stopped-before-it-serves",
    [F_RACK_POWER] = "node-and-exporter-power",
    [F_HALF_OPEN] = "half-open-connection",
    [F_RECORD_HANGS] = "record-hangs",
    [F_ROLLED_BACK] = "rolled-back-while-stopped",
    [F_ROLLED_BACK_CRASH] = "rolled-back-after-a-crash",
    [F_SLOT_UNREAD] = "leader-dies-slot-unread",
    [F_SB_TORN] = "superblock-torn-by-flapping-power",
    [F_SB_UNREADABLE] = "superblock-copy-unreadable",
    [F_EXCHANGED] = "members-exchanged",
    [F_STORE_FULL] = "store-full",
    [F_STORE_FULL_KEPT] = "store-full-of-one-that-must-stay",
};

static bool allowed(const struct sim *s, enum fault f)
{
	uint64_t only = s->cli ? s->cli->only : 0;

	if (only)
		return only >> f & 1;
	if (s->cli && s->cli->nodes == 1)
		return f == F_NODE_CRASH || f == F_DAEMON_CRASH || f == F_CRASH_STEP ||
		       f == F_CLUSTER_CRASH || f == F_CLUSTER_POWER || f == F_FREEZE;
	return s->planner.swarm >> f & 1;
}

/* Those that need a state that is rare are tried first: most of the time they don't fit. */
static enum fault draw_fault(struct sim *s, bool first)
{
	if (first && s->o.strikes_rebuilds && rng_chance(&s->rng, 450))
		return (enum fault)(F_REBUILD_BREAK + rng_below(&s->rng, 4));
	if (first && s->o.quick_restarts && rng_chance(&s->rng, 250))
		return F_QUICK_RESTART;
	if (first && s->o.lone_commits && rng_chance(&s->rng, 350))
		return F_LEADER_ALONE;
	return (enum fault)rng_below(&s->rng, s->cli && s->cli->only ? F_PLANNED : F_PLAIN);
}

static bool start_one(struct sim *s)
{
	for (uint32_t i = 0; i < 30; i++) {
		enum fault f = draw_fault(s, i == 0);

		if (!allowed(s, f) || !fault_fits(s, f))
			continue;
		trace(s, "f  %s", fault_name[f]);
		if (!fault_start(s, f))
			continue;
		if (!fault_counts_itself(f)) {
			stats_fault(s, f);
			s->planner.done++;
		}
		return true;
	}
	return false;
}

static void on_plan(struct sim *s, struct hev *ev)
{
	struct planner *p = &s->planner;

	(void)ev;
	if (p->healing)
		return;
	/* What was injected or armed may not have come: at least so many faults must. */
	if (!p->left && p->done < LEAST_FAULTS && p->armed == F_COUNT)
		p->left = 1;
	stats_look(s);
	if (p->left && s->now >= s->slotread.rest_until_us && start_one(s))
		p->left--;
	stats_look_end(s);
	sim_at(s, rng_range(&s->rng, 10 * MS, rng_chance(&s->rng, 300) ? 100 * MS : p->gap_us),
	       on_plan, 0, 0, NULL);
}

void plan_init(struct sim *s)
{
	struct planner *p = &s->planner;

	p->armed = F_COUNT;
	spot_init(s);
	full_init(s);
	rival_init(s);
	faults_init(s);
	oldcopy_init(s);
	latecopy_init(s);
	votes_init(s);
	breaks_init(s);
	storage_init(s);
	givesup_init(s);
	exchange_init(s);
	group_loss_init(s);
	differs_init(s);
	between_init(s);
	slotread_init(s);
	sbcopies_init(s);
	outsider_init(s);
	rack_init(s);
	halfopen_init(s);
	s->o.record_hangs = !s->o.faultless && s->o.nodes > 1 && !(s->cli && s->cli->only) &&
			    mix64(s->seed ^ 0x7265636f7264ull) % 100 < 15;
	if (s->o.faultless)
		return;
	p->left = s->o.faults;
	p->swarm = rng_u64(&s->rng) | rng_u64(&s->rng); /* each fault in three of four seeds */
	p->gap_us = rng_range(&s->rng, 200 * MS, 900 * MS);
	sim_at(s, rng_range(&s->rng, 0, 600 * MS), on_plan, 0, 0, NULL);
}

/* ---- armed faults: after each event --------------------------------------------------------- */

static bool someone_joins(const struct sim *s)
{
	for (uint32_t i = 0; i < s->o.nodes; i++)
		if (s->node[i].proc && s->node[i].st.state == ENGINE_JOINING)
			return true;
	return false;
}

/* The one with most writes on their way to the members; NULL: nobody has many. */
static struct simnode *busy_writer(struct sim *s)
{
	struct simnode *best = NULL;
	uint32_t most = BUSY_WRITES - 1;

	for (uint32_t i = 0; i < s->o.nodes; i++) {
		struct simnode *n = &s->node[i];
		uint32_t count = n->proc && !n->frozen && !n->stopped ? dev_writes_at(s, n) : 0;

		if (count > most) {
			best = n;
			most = count;
		}
	}
	return best;
}

static bool armed_condition(struct sim *s, const struct simnode *leader)
{
	switch (s->planner.armed) {
	case F_CRASH_STEP:
		return true;
	case F_LEADER_IN_CHANGE:
	case F_POWER_IN_CHANGE:
		return leader && leader->st.proposing;
	case F_LEADER_IN_RECOVERY:
		return leader && leader->st.slots_unrecovered;
	case F_LEADER_IN_REBUILD:
		return leader && leader->st.rebuild_total;
	case F_LEADER_IN_JOIN:
		return leader && someone_joins(s);
	case F_REBUILD_BREAK:
	case F_REBUILD_ERROR:
	case F_REBUILD_POWER:
	case F_REBUILD_DEATH:
		return rebuild_met(s, leader);
	case F_QUICK_RESTART:
		return busy_writer(s);
	default:
		return false;
	}
}

static void strike(struct sim *s, struct simnode *leader)
{
	enum fault f = (enum fault)s->planner.armed;

	s->planner.armed = F_COUNT;
	trace(s, "f  %s strikes", fault_name[f]);
	if (f == F_QUICK_RESTART) {
		leader = busy_writer(s);
		stats_fault(s, f);
		s->planner.done++;
		node_kill_daemon(s, leader);
		node_start_later(s, leader, rng_range(&s->rng, 200, 25 * MS));
		return;
	}
	if (f >= F_REBUILD_BREAK) {
		rebuild_strike(s, f);
		s->planner.done += f != F_REBUILD_ERROR;
		return;
	}
	stats_fault(s, f);
	s->planner.done++;
	if (f == F_POWER_IN_CHANGE) {
		fault_cluster_power(s, rng_chance(&s->rng, 500));
		return;
	}
	if (!leader)
		leader = &s->node[rng_below(&s->rng, s->o.nodes)];
	if (f == F_CRASH_STEP && rng_chance(&s->rng, 700))
		leader = &s->node[rng_below(&s->rng, s->o.nodes)];
	if (rng_chance(&s->rng, 400)) {
		node_kill_daemon(s, leader);
		node_start_later(s, leader, rng_range(&s->rng, 1 * MS, 600 * MS));
	} else {
		node_crash(s, leader);
		node_power_on_later(s, leader, rng_range(&s->rng, 30 * MS, 2000 * MS));
	}
}

void plan_event(struct sim *s)
{
	struct planner *p = &s->planner;
	struct simnode *leader;

	breaks_event(s);
	if (p->armed == F_COUNT)
		return;
	if (s->now > p->armed_until_us) {
		p->armed = F_COUNT;
		p->left++; /* another one instead */
		return;
	}
	leader = node_leader(s);
	if (!armed_condition(s, leader) || --p->armed_countdown)
		return;
	stats_look(s);
	strike(s, leader);
	stats_look_end(s);
}

void plan_heal(struct sim *s)
{
	s->planner.healing = true;
	s->planner.armed = F_COUNT;
	s->planner.left = 0;
	s->group.solo_armed = 0;
	faults_heal(s);
}
