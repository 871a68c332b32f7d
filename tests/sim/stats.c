/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How often each fault met each state. A fault that never occurs is a failure of the simulator, and
 * so is one that never met one of the states, but for those of the table below.
 */
#include <stdio.h>

#include "tests/sim/world.h"

#define IN(state) (1u << CS_##state)
#define MANY_SEEDS 10000u

static const char *const state_name[CS_COUNT] = {
    [CS_JOINING] = "joining",   [CS_ACTIVE] = "active",         [CS_PROPOSING] = "proposing",
    [CS_FENCING] = "fencing",   [CS_RECOVERING] = "recovering", [CS_REBUILDING] = "rebuilding",
    [CS_DEGRADED] = "degraded",
};

/*
 * Zeroes that are none of the simulator's failures: `from` says in how many seeds they become one.
 * NEVER: the fault can't be there, or would put more than m members at risk.
 */
static const struct {
	enum fault fault;
	uint32_t states;
	uint64_t from; /* seeds */
} may_be_zero[] = {
    /* While a member is missing, it is counted as bad-spot-while-degraded. */
    {F_READ_ERROR, IN(REBUILDING) | IN(DEGRADED), NEVER},
    {F_BAD_SPOT, IN(REBUILDING) | IN(DEGRADED), NEVER},
    {F_STORE_FULL, IN(REBUILDING), NEVER},
    {F_STORE_FULL, IN(FENCING) | IN(PROPOSING) | IN(DEGRADED), MANY_SEEDS},
    {F_STORE_FULL_KEPT, IN(FENCING) | IN(REBUILDING), MANY_SEEDS},
    /* It would be the second to be lost. The one that is rebuilt: rebuild-breaks-off and others. */
    {F_DISK_DEAD, IN(REBUILDING) | IN(DEGRADED), NEVER},
    {F_EXPORTER_POWER, IN(REBUILDING) | IN(DEGRADED), NEVER},
    /* Fragments of a block that was not flushed may be of several writes; without parity nothing
     * makes them fit, and what is decoded from them for the missing member is garbage. */
    {F_EXPORTERS_POWER, IN(REBUILDING) | IN(DEGRADED), NEVER},
    /* The member is out, and no proposal has it; the only one that may be missing. */
    {F_OLD_COPY, IN(PROPOSING) | IN(REBUILDING), NEVER},
    {F_LATE_COPY, IN(JOINING) | IN(PROPOSING) | IN(REBUILDING), NEVER},
    {F_LATE_COPY_GONE, IN(PROPOSING) | IN(REBUILDING), NEVER},
    /* It takes that member from the map. */
    {F_WRONG_WAY, IN(REBUILDING) | IN(DEGRADED), NEVER},
    /* All nodes are stopped. */
    {F_ROLLED_BACK, (1u << CS_COUNT) - 1, NEVER},
    {F_ROLLED_BACK_CRASH, (1u << CS_COUNT) - 1, NEVER},
    /* All are well, and no proposal is under way. */
    {F_RACK_POWER, IN(PROPOSING) | IN(REBUILDING) | IN(DEGRADED), NEVER},
    {F_RACK_POWER, IN(FENCING), MANY_SEEDS},
    {F_EXCHANGED, IN(PROPOSING) | IN(REBUILDING) | IN(DEGRADED), NEVER},
    /* The only member that may be missing is there already. */
    {F_ADMIN_READD, IN(REBUILDING), NEVER},
    /* Both nodes serve. */
    {F_GIVES_UP_ALONE, IN(JOINING), NEVER},
    /* Seldom: there is little I/O at the members while a fence is awaited, and no commit. */
    {F_LEADER_IN_CHANGE, IN(FENCING), MANY_SEEDS},
    {F_POWER_IN_CHANGE, IN(FENCING), MANY_SEEDS},
    {F_READ_ERROR, IN(FENCING), MANY_SEEDS},
    {F_WRITE_ERROR, IN(FENCING), MANY_SEEDS},
    {F_FLUSH_ERROR_LOST, IN(FENCING), MANY_SEEDS},
    {F_FLUSH_ERROR_KEPT, IN(FENCING), MANY_SEEDS},
    {F_DISK_DEAD, IN(FENCING), MANY_SEEDS},
    {F_EXPORTER_POWER, IN(FENCING), MANY_SEEDS},
    {F_REBUILD_BREAK, IN(FENCING), MANY_SEEDS},
    {F_REBUILD_ERROR, IN(FENCING), MANY_SEEDS},
    {F_LEADER_ALONE, IN(FENCING), MANY_SEEDS},
    {F_LEADER_IN_REBUILD, IN(FENCING), MANY_SEEDS},
    {F_LEADER_BETWEEN, IN(FENCING), MANY_SEEDS},
    {F_RIVAL, IN(FENCING) | IN(REBUILDING), MANY_SEEDS},
    {F_OUTSIDER, IN(PROPOSING) | IN(FENCING) | IN(REBUILDING), MANY_SEEDS},
    {F_SLOT_UNREAD, IN(FENCING) | IN(PROPOSING) | IN(REBUILDING), MANY_SEEDS},
    {F_FLUSH_ERROR_BREAK, IN(FENCING), MANY_SEEDS},
    {F_OLD_COPY, IN(FENCING), MANY_SEEDS},
    {F_LATE_COPY, IN(FENCING) | IN(RECOVERING), MANY_SEEDS},
    {F_LATE_COPY_GONE, IN(JOINING) | IN(FENCING), MANY_SEEDS},
    {F_WRONG_WAY, IN(FENCING) | IN(PROPOSING), MANY_SEEDS},
    {F_BAD_SPOT, IN(FENCING), MANY_SEEDS},
    {F_LOCK_CALLBACK_IO, IN(FENCING), MANY_SEEDS},
    {F_LOCK_REFUSED, IN(FENCING), MANY_SEEDS},
    /* Seldom: so small an array is rebuilt in no time, and not while nodes come and go. */
    {F_DAEMON_CRASH, IN(REBUILDING), MANY_SEEDS},
    {F_OWN_FENCE_FAILED, IN(REBUILDING), MANY_SEEDS},
    {F_LATE_AFTER_RESTART, IN(REBUILDING), MANY_SEEDS},
    {F_VOTES_LOST, IN(REBUILDING), MANY_SEEDS},
    {F_PARTITION, IN(REBUILDING), MANY_SEEDS},
    {F_QUORUM_LOST, IN(REBUILDING), MANY_SEEDS},
    {F_SOLO_MSG, IN(REBUILDING), MANY_SEEDS},
    {F_FLUSH_ERROR_LOST, IN(REBUILDING), MANY_SEEDS},
    {F_PARTITION3, IN(REBUILDING), MANY_SEEDS},
    {F_LEADER_IN_RECOVERY, IN(REBUILDING), MANY_SEEDS},
    {F_LEADER_IN_JOIN, IN(REBUILDING), MANY_SEEDS},
    {F_STALE_START, IN(REBUILDING), MANY_SEEDS},
    {F_ADMIN_ADD, IN(REBUILDING), MANY_SEEDS},
    {F_LOCK_FREED_EARLY, IN(REBUILDING), MANY_SEEDS},
    {F_REBUILD_DEATH, IN(JOINING), MANY_SEEDS},
    {F_REBUILD_WRITE_ERROR, IN(JOINING) | IN(FENCING) | IN(RECOVERING), MANY_SEEDS},
    {F_REBUILD_FLUSH_ERROR, IN(JOINING) | IN(RECOVERING), MANY_SEEDS},
    {F_REBUILD_FLUSH_ERROR, IN(FENCING), 10 * MANY_SEEDS},
    /* Seldom: a change of the map is over in milliseconds. */
    {F_READ_ERROR, IN(PROPOSING), MANY_SEEDS},
    {F_BAD_SPOT, IN(PROPOSING), MANY_SEEDS},
    {F_FLUSH_ERROR_LOST, IN(PROPOSING), MANY_SEEDS},
    {F_FLUSH_ERROR_KEPT, IN(PROPOSING), MANY_SEEDS},
    {F_DISK_DEAD, IN(PROPOSING), MANY_SEEDS},
    {F_ADMIN_FAIL, IN(PROPOSING), MANY_SEEDS},
    {F_REBUILD_FLUSH_ERROR, IN(PROPOSING), MANY_SEEDS},
    {F_EXPORTERS_POWER, IN(PROPOSING), MANY_SEEDS},
};

bool stats_in_state(const struct sim *s, enum cluster_state cs)
{
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		const struct engine_status *st = &s->node[i].st;

		if (!s->node[i].proc)
			continue;
		if ((cs == CS_JOINING && st->state == ENGINE_JOINING) ||
		    (cs == CS_ACTIVE && st->state == ENGINE_ACTIVE) ||
		    (cs == CS_PROPOSING && st->proposing) || (cs == CS_FENCING && st->unfenced) ||
		    (cs == CS_RECOVERING && st->slots_unrecovered) ||
		    (cs == CS_REBUILDING && st->rebuild_total))
			return true;
	}
	return cs == CS_DEGRADED && !s->checks.map_full;
}

/* The states that a fault meets are those before it: until stats_look_end, this picture counts. */
void stats_look(struct sim *s)
{
	s->look = 0;
	for (uint32_t cs = 0; cs < CS_COUNT; cs++)
		s->look |= (uint32_t)stats_in_state(s, (enum cluster_state)cs) << cs;
	s->looked = true;
}

void stats_look_end(struct sim *s)
{
	s->looked = false;
}

void stats_fault(struct sim *s, enum fault f)
{
	s->fault_times[f]++;
	if (f < F_PLANNED)
		s->planner.quiet_since_us = s->now;
	for (uint32_t cs = 0; cs < CS_COUNT; cs++)
		s->fault_state[f][cs] +=
		    s->looked ? s->look >> cs & 1 : stats_in_state(s, (enum cluster_state)cs);
}

void stats_seed(struct sim *s)
{
	struct stats *st = s->stats;

	st->seeds++;
	for (uint32_t f = 0; f < F_COUNT; f++) {
		st->in_seeds[f] += s->fault_times[f] > 0;
		st->times[f] += s->fault_times[f];
		for (uint32_t cs = 0; cs < CS_COUNT; cs++)
			st->in_state[f][cs] += s->fault_state[f][cs];
	}
	st->events += s->events;
	st->writes += s->writes;
	st->reads += s->reads;
	st->flushes += s->flushes;
	st->commits += s->checks.commits;
	st->virtual_us += s->now;
	st->garbage_reads += s->garbage_reads;
	st->slot_reads_unfenced += s->slot_reads_unfenced;
	if (s->events > st->max_events)
		st->max_events = s->events;
	for (uint32_t i = 0; i < s->o.nodes; i++) {
		st->parity_fixed += s->node[i].st.parity_fixed;
		st->marks += s->node[i].st.marks;
	}
}

void stats_add(struct stats *to, const struct stats *st)
{
	to->seeds += st->seeds;
	for (uint32_t f = 0; f < F_COUNT; f++) {
		to->in_seeds[f] += st->in_seeds[f];
		to->times[f] += st->times[f];
		for (uint32_t cs = 0; cs < CS_COUNT; cs++)
			to->in_state[f][cs] += st->in_state[f][cs];
	}
	to->events += st->events;
	to->writes += st->writes;
	to->reads += st->reads;
	to->flushes += st->flushes;
	to->commits += st->commits;
	to->virtual_us += st->virtual_us;
	to->garbage_reads += st->garbage_reads;
	to->slot_reads_unfenced += st->slot_reads_unfenced;
	to->parity_fixed += st->parity_fixed;
	to->marks += st->marks;
	if (st->max_events > to->max_events)
		to->max_events = st->max_events;
}

void stats_print(const struct stats *st)
{
	printf("%-26s %7s %9s %8s %8s %8s %8s %8s %8s %8s\n", "fault", "seeds", "times", "joining",
	       "active", "proposng", "fencing", "recovrng", "rebuildg", "degraded");
	for (uint32_t f = 0; f < F_COUNT; f++) {
		printf("%-26s %7lu %9lu", fault_name[f], st->in_seeds[f], st->times[f]);
		for (uint32_t cs = 0; cs < CS_COUNT; cs++)
			printf(" %8lu", st->in_state[f][cs]);
		putchar('\n');
	}
	printf("seeds %lu, events %lu (at most %lu in one), virtual time %lu s\n", st->seeds,
	       st->events, st->max_events, st->virtual_us / 1000000);
	printf("writes %lu, reads %lu, flushes %lu, map commits %lu, marks %lu, parity fixed %lu\n",
	       st->writes, st->reads, st->flushes, st->commits, st->marks, st->parity_fixed);
	printf("sectors read as garbage that the crash contract allows: %lu\n", st->garbage_reads);
	printf("slots read before their owner's fence: %lu\n", st->slot_reads_unfenced);
}

static bool zero_allowed(enum fault f, uint32_t cs, uint64_t seeds)
{
	for (size_t i = 0; i < sizeof(may_be_zero) / sizeof(may_be_zero[0]); i++)
		if (may_be_zero[i].fault == f && may_be_zero[i].states >> cs & 1)
			return seeds < may_be_zero[i].from;
	return false;
}

/* For it there have to be two nodes, of which each has quorum alone; or more than two. */
static bool of_other_nodes(uint32_t f, const struct sim_cli *cli)
{
	return cli->nodes == 2 ? f == F_PARTITION3 || f == F_QUORUM_LOST || f == F_THIRD_LAGS ||
				     f == F_SLOT_UNREAD
			       : f == F_GIVES_UP_ALONE;
}

/* Zeroes in what --stats prints. */
static int zeroes(const struct stats *st, const struct sim_cli *cli)
{
	int n = 0;

	for (uint32_t f = 0; f < F_COUNT; f++)
		for (uint32_t cs = 0; cs < CS_COUNT; cs++) {
			if (st->in_state[f][cs] || of_other_nodes(f, cli) ||
			    zero_allowed((enum fault)f, cs, st->seeds))
				continue;
			printf("fault %s never met the state %s in %lu seeds\n", fault_name[f],
			       state_name[cs], st->seeds);
			n++;
		}
	return n;
}

/* In so few seeds a rebuild is there to be struck, and one of its flushes, which are the fewest of
 * its requests. A flush error and a break at once come in one of a hundred, more or less. */
static uint64_t least_of_1000(uint32_t f)
{
	return f == F_REBUILD_FLUSH_ERROR || f == F_REBUILD_WRITE_ERROR ? 3
	       : f == F_FLUSH_ERROR_BREAK                               ? 5
									: 10;
}

/* Counts and names the faults that never came; in 1,000 seeds, those that came too seldom, and with
 * --stats those that never met one of the states. */
int stats_missing(const struct stats *st, const struct sim_cli *cli)
{
	int missing = 0;

	if (cli->only || cli->nodes)
		return 0;
	for (uint32_t f = 0; f < F_COUNT; f++) {
		if (of_other_nodes(f, cli))
			continue;
		if (st->in_seeds[f] &&
		    (st->seeds < 1000 || st->in_seeds[f] * 1000 >= st->seeds * least_of_1000(f)))
			continue;
		printf("fault %s occurred in %lu of %lu seeds: too seldom\n", fault_name[f],
		       st->in_seeds[f], st->seeds);
		missing++;
	}
	return missing + (cli->stats && st->seeds >= 1000 ? zeroes(st, cli) : 0);
}
