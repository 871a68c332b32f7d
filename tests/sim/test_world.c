/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The simulator's world keeps its own promises, without an engine: group, media, connections,
 * fences, oracle. What these hold true the simulator's findings rest on.
 */
#include "tests/lib/test.h"

#include "tests/sim/faults/faults.h"
#include "tests/sim/seed.h"

#define MOST_LOG 6000u
#define MOST_SENT 1000u
#ifdef __SANITIZE_ADDRESS__
#define WORLD_SEEDS 15u /* some minutes' worth otherwise */
#else
#define WORLD_SEEDS 60u
#endif

/* One daemon's life, as it was told: views (by ring and count of views in it) and messages. */
struct heard {
	bool view;
	uint64_t id; /* message: unique; view: ring and item */
};
struct life {
	uint32_t node;
	uint64_t gen;
	struct heard log[MOST_LOG];
	uint32_t count;
	uint64_t sent, heard_own;    /* messages */
	uint64_t sent_in[MOST_SENT]; /* the view of each, from 1 on */
	bool alive;
};

static struct sim sim;
static struct sim_cli cli;
static struct stats stats;
static struct life life[24];
static uint32_t lives;
static uint64_t solo, tails; /* messages that only their sender was told */

static struct life *life_of(const struct simnode *n)
{
	for (uint32_t i = 0; i < lives; i++)
		if (life[i].node == n->idx && life[i].gen == n->gen)
			return &life[i];
	CHECK(lives < sizeof(life) / sizeof(life[0]));
	life[lives] = (struct life){.node = n->idx, .gen = n->gen};
	return &life[lives++];
}

static void hear(struct sim *s, struct simnode *n, const struct nev *nev)
{
	struct life *l = life_of(n);
	struct heard h = {0};

	(void)s;
	if (nev->ev.type == EV_VIEW) {
		h.view = true;
		h.id = (uint64_t)nev->aux << 32 | nev->aux2;
	} else if (nev->ev.type == EV_MSG) {
		memcpy(&h.id, nev->ev.msg.data, sizeof(h.id));
		l->heard_own += nev->ev.msg.from == n->id && h.id >> 40 == n->gen;
	} else {
		return;
	}
	CHECK(l->count < MOST_LOG);
	l->log[l->count++] = h;
}

static void open_world(uint64_t seed, uint32_t nodes)
{
	cli.nodes = nodes;
	lives = 0;
	CHECK(seed_open(&sim, seed, &cli, &stats));
	sim.planner.healing = true; /* no faults but ours */
	sim.hook = hear;
}

static void run_for(uint64_t us)
{
	world_run(&sim, sim.now + us, false);
	sim.now += us;
	if (sim.failed)
		FAIL("%s", sim.violation);
}

static void say(struct simnode *n)
{
	struct life *l = life_of(n);
	uint64_t text[4] = {n->gen << 40 | (uint64_t)n->idx << 32 | ++l->sent};

	CHECK(l->sent < MOST_SENT);
	l->sent_in[l->sent] =
	    (uint64_t)sim.group.seen_ring[n->idx] << 32 | sim.group.seen_view[n->idx];
	group_send(&sim, n, (const uint8_t *)text, sizeof(text));
}

static void trouble(void)
{
	static const enum fault f[] = {F_NODE_CRASH, F_DAEMON_CRASH, F_FREEZE,     F_FREEZE_LONG,
				       F_PARTITION,  F_PARTITION3,   F_QUORUM_LOST};

	fault_start(&sim, f[rng_below(&sim.rng, sizeof(f) / sizeof(f[0]))]);
}

static void chat(uint32_t rounds, bool faults)
{
	for (uint32_t i = 0; i < rounds; i++) {
		for (uint32_t k = 0; k < sim.o.nodes; k++)
			if (sim.node[k].proc && !sim.node[k].frozen && rng_chance(&sim.rng, 300))
				say(&sim.node[k]);
		if (faults && rng_chance(&sim.rng, 20))
			trouble();
		run_for(rng_range(&sim.rng, 100, 3 * MS));
	}
}

static void settle_down(void)
{
	faults_heal(&sim);
	run_for(3000 * MS);
	CHECK(group_whole(&sim));
}

/* ---- group ---------------------------------------------------------------------------------- */

static int64_t place(const struct life *l, uint64_t id)
{
	for (uint32_t i = 0; i < l->count; i++)
		if (!l->log[i].view && l->log[i].id == id)
			return i;
	return -1;
}

static void check_same_order(const struct life *a, const struct life *b)
{
	int64_t last = -1;

	for (uint32_t i = 0; i < a->count; i++) {
		int64_t at = a->log[i].view ? -1 : place(b, a->log[i].id);

		if (at < 0)
			continue;
		CHECK_MSG(at > last, "message %lx", a->log[i].id);
		last = at;
	}
}

/* From one view to the next that both were told, both were told the same. */
static void check_same_set(const struct life *a, const struct life *b)
{
	for (uint32_t i = 0; i < a->count; i++) {
		uint32_t k, n = 1;

		if (!a->log[i].view)
			continue;
		for (k = 0; k < b->count && (!b->log[k].view || b->log[k].id != a->log[i].id); k++)
			;
		while (i + n < a->count && !a->log[i + n].view)
			n++;
		if (k + n >= b->count || i + n >= a->count)
			continue;
		for (uint32_t m = k + 1; m <= k + n; m++)
			if (b->log[m].view) { /* b goes to a view: the same one? */
				if (b->log[m].id == a->log[i + n].id)
					CHECK_EQ_U64(m - k, n);
				break;
			}
	}
}

static void check_log(const struct life *l)
{
	uint64_t last[32][8] = {0}; /* as many as the id has bits for */

	for (uint32_t i = 0; i < l->count; i++) {
		uint64_t id = l->log[i].id, *from = &last[id >> 40 & 31][id >> 32 & 7];

		CHECK(i || l->log[i].view);
		if (l->log[i].view)
			continue;
		CHECK_MSG((id & UINT32_MAX) > *from, "node %u message %lx", l->node, id);
		*from = id & UINT32_MAX;
	}
}

static void count_solo(void)
{
	for (uint32_t i = 0; i < lives; i++)
		for (uint32_t k = 0; k < life[i].count; k++) {
			uint64_t id = life[i].log[k].id;
			uint32_t others = 0;

			if (life[i].log[k].view || (id >> 32 & 0xff) != life[i].node ||
			    id >> 40 != life[i].gen)
				continue;
			for (uint32_t m = 0; m < lives; m++)
				others += m != i && place(&life[m], id) >= 0;
			solo += !others;
			tails += others && others + 1 < sim.o.nodes;
		}
}

TEST(all_nodes_are_told_the_same_in_one_order)
{
	for (uint64_t seed = 1; seed <= WORLD_SEEDS; seed++) {
		open_world(seed, 0);
		run_for(500 * MS);
		chat(400, true);
		settle_down();
		for (uint32_t i = 0; i < lives; i++) {
			check_log(&life[i]);
			for (uint32_t k = 0; k < lives; k++) {
				if (i == k)
					continue;
				check_same_order(&life[i], &life[k]);
				check_same_set(&life[i], &life[k]);
			}
		}
		count_solo();
		world_close(&sim);
	}
	/* What must occur does. */
	CHECK(solo > 0);
	CHECK(tails > 0);
	CHECK(stats.seeds == 0);
}

static const struct life *life_of_message(uint64_t id)
{
	for (uint32_t i = 0; i < lives; i++)
		if (life[i].node == (id >> 32 & 0xff) && life[i].gen == id >> 40)
			return &life[i];
	FAIL("message %lx is nobody's", id);
}

static void check_views(const struct life *l)
{
	uint64_t view = 0;

	for (uint32_t i = 0; i < l->count; i++) {
		if (l->log[i].view)
			view = l->log[i].id;
		else
			CHECK_EQ_U64(
			    life_of_message(l->log[i].id)->sent_in[l->log[i].id & UINT32_MAX],
			    view);
	}
}

TEST(a_message_comes_in_the_view_in_which_it_was_sent_or_nowhere)
{
	uint64_t lost = 0;

	for (uint64_t seed = 1; seed <= WORLD_SEEDS; seed++) {
		uint64_t sent[SIM_MAX_NODES], heard[SIM_MAX_NODES];

		open_world(seed, 0);
		run_for(500 * MS);
		chat(200, true);
		settle_down();
		for (uint32_t i = 0; i < lives; i++)
			check_views(&life[i]);
		for (uint32_t i = 0; i < sim.o.nodes; i++) {
			sent[i] = life_of(&sim.node[i])->sent;
			heard[i] = life_of(&sim.node[i])->heard_own;
			lost += sent[i] - heard[i];
		}
		chat(50, false); /* all are in one view, and it stays */
		run_for(200 * MS);
		for (uint32_t i = 0; i < sim.o.nodes; i++) {
			const struct life *l = life_of(&sim.node[i]);

			CHECK_EQ_U64(l->heard_own - heard[i], l->sent - sent[i]);
		}
		world_close(&sim);
	}
	CHECK(lost > 0);
}

/* R7 rests on it: half a token time-out lies between the last own message that a cut off node could
 * still hear and the others' view without it. */
TEST(a_view_without_a_living_node_comes_a_token_later)
{
	for (uint64_t seed = 1; seed <= WORLD_SEEDS; seed++) {
		uint32_t comp[SIM_MAX_NODES] = {1};
		uint64_t cut, ring;

		open_world(seed, 3);
		run_for(800 * MS);
		CHECK(group_whole(&sim));
		chat(20, false);
		ring = sim.node[1].view_seq;
		cut = sim.now;
		group_partition(&sim, comp);
		while (sim.node[1].view_seq == ring)
			chat(1, false);
		CHECK(sim.now >= cut + sim.o.token_us);
		if (sim.node[0].view_seq == ring) /* it still takes itself for a member */
			CHECK(sim.node[0].own_msg_sent_us <= cut);
		world_close(&sim);
	}
}

TEST(views_and_quorum_come_in_both_orders)
{
	uint64_t times[2] = {0};

	for (uint64_t seed = 1; seed <= WORLD_SEEDS; seed++) {
		open_world(seed, 3);
		run_for(500 * MS);
		chat(50, true);
		settle_down();
		times[0] += sim.fault_times[F_VIEW_FIRST];
		times[1] += sim.fault_times[F_QUORUM_FIRST];
		world_close(&sim);
	}
	CHECK(times[0] > 0 && times[1] > 0);
}

/* ---- media ---------------------------------------------------------------------------------- */

static const uint64_t at = DATA_ALIGN;

static void put(struct disk *d, uint32_t sectors, uint8_t value, bool fua, bool answered)
{
	uint8_t data[8 * SECTOR];
	uint64_t seq;

	memset(data, value, sizeof(data));
	seq = disk_write(&sim, d, at, sectors * SECTOR, data, fua);
	if (answered)
		disk_answered(&sim, d, seq);
}

TEST(a_flush_keeps_what_was_answered_before_it)
{
	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct disk *d = &sim.disk[0];

		open_world(seed, 1);
		put(d, 8, 1, false, true);
		disk_flush(&sim, d, sim.now);
		put(d, 8, 2, false, true);
		disk_power_loss(&sim, d);
		CHECK(d->cached[at] == 1 || d->cached[at] == 2);
		CHECK(!memcmp(d->cached + at, d->durable + at, 8 * SECTOR));
		CHECK(!d->head && !d->unflushed_mask);
		world_close(&sim);
	}
}

TEST(a_power_loss_drops_keeps_and_tears_by_sectors)
{
	uint32_t dropped = 0, kept = 0, torn = 0;

	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct disk *d = &sim.disk[0];
		uint32_t is = 0;

		open_world(seed, 1);
		put(d, 8, 0, true, true);
		put(d, 8, 1, false, true);
		disk_power_loss(&sim, d);
		for (uint32_t i = 0; i < 8; i++) {
			CHECK(d->cached[at + i * SECTOR] ==
			      d->cached[at + i * SECTOR + SECTOR - 1]);
			is += d->cached[at + i * SECTOR] == 1;
		}
		dropped += is == 0;
		kept += is == 8;
		torn += is && is < 8;
		world_close(&sim);
	}
	CHECK(dropped && kept && torn);
}

TEST(an_older_write_never_comes_back_over_a_durable_one)
{
	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct disk *d = &sim.disk[0];

		open_world(seed, 1);
		put(d, 8, 0, true, true);
		put(d, 8, 1, false, false);
		put(d, 4, 2, true, true);
		disk_power_loss(&sim, d);
		CHECK_EQ_U64(d->cached[at], 2);
		CHECK_EQ_U64(d->cached[at + 3 * SECTOR], 2);
		CHECK(d->cached[at + 4 * SECTOR] <= 1);
		world_close(&sim);
	}
}

TEST(what_a_failed_flush_lost_is_never_durable_until_rewritten)
{
	struct disk *d = &sim.disk[0];

	open_world(7, 1);
	put(d, 8, 1, false, true);
	disk_flush_error(&sim, d, true, 0);
	disk_flush(&sim, d, sim.now);
	CHECK_EQ_U64(d->cached[at], 1);
	CHECK(d->durable[at] != 1 && d->head);
	put(d, 8, 2, false, true);
	disk_flush(&sim, d, sim.now);
	CHECK(d->durable[at] == 2 && !d->head);
	world_close(&sim);
}

/* ---- connections and fences ----------------------------------------------------------------- */

static uint8_t page[DDR_BLOCK_BYTES];

static void send_write(struct simnode *n, uint64_t id)
{
	static struct iovec iov = {page, sizeof(page)};
	uint32_t dev = dev_slot_of_disk(n, 0);
	struct out o = {.type = OUT_DEV_IO,
			.io = {.id = id,
			       .dev = dev,
			       .op = DEV_WRITE,
			       .kind = KIND_DATA,
			       .offset = at,
			       .bytes = sizeof(page),
			       .iov = &iov,
			       .iov_count = 1}};

	memset(page, (int)id, sizeof(page));
	dev_submit(&sim, n, &o);
}

TEST(late_writes_land_within_the_bound_and_never_after_a_fence)
{
	uint32_t late = 0, fenced_in_time = 0;

	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct simnode *n = &sim.node[0];
		uint32_t ii;
		uint8_t before;

		open_world(seed, 3);
		run_for(900 * MS);
		CHECK(n->proc && n->dev[dev_slot_of_disk(n, 0)].up);
		ii = n->ii;
		for (uint64_t i = 1; i <= 6; i++)
			send_write(n, i);
		node_crash(&sim, n);
		late += sim.inc[ii].outstanding > 0;
		if (seed & 1) {
			fenced_in_time += sim.inc[ii].outstanding > 0;
			dev_finish_inc(&sim, ii);
			sim.inc[ii].fenced = true;
			CHECK_EQ_U64(sim.inc[ii].outstanding, 0);
			before = sim.disk[0].cached[at];
			run_for(2 * sim.o.zombie_us);
			CHECK_EQ_U64(sim.disk[0].cached[at], before);
			CHECK(!sim.disk[0].head); /* finished and flushed */
		} else {
			run_for(sim.o.zombie_us + 1);
			CHECK_EQ_U64(sim.inc[ii].outstanding, 0);
			CHECK(sim.inc[ii].ended);
		}
		world_close(&sim);
	}
	CHECK(late > 50 && fenced_in_time > 20);
}

TEST(a_device_comes_up_only_when_nothing_old_can_land)
{
	for (uint64_t seed = 1; seed <= 100; seed++) {
		struct simnode *n = &sim.node[0];
		uint32_t dev, ii;

		open_world(seed, 1);
		run_for(900 * MS);
		dev = dev_slot_of_disk(n, 0);
		CHECK(dev != NONE && n->dev[dev].up);
		ii = n->ii;
		for (uint64_t i = 1; i <= 6; i++)
			send_write(n, i);
		node_kill_daemon(&sim, n);
		node_start(&sim, n);
		for (uint32_t i = 0; i < 400; i++) {
			run_for(1 * MS);
			dev = dev_slot_of_disk(n, 0);
			CHECK(dev == NONE || !n->dev[dev].up || !sim.inc[ii].outstanding);
		}
		world_close(&sim);
	}
}

/* ---- oracle and checks: they can fail ------------------------------------------------------- */

static bool read_says(uint32_t wid, uint64_t block, uint64_t issue)
{
	static uint8_t data[DDR_BLOCK_BYTES];
	struct fop f = {.op = IO_READ,
			.bytes = sizeof(data),
			.offset = block * sizeof(data),
			.issue = issue,
			.buf = data,
			.ii = sim.node[0].ii};

	if (wid)
		content_fill(data, wid, block * BLOCK_SECTORS, BLOCK_SECTORS);
	else
		memset(data, 0, sizeof(data));
	sim.failed = false;
	oracle_read(&sim, &sim.node[0], &f);
	return !sim.failed;
}

static uint32_t write_block(uint64_t block)
{
	return oracle_write(&sim, &sim.node[0], block * DDR_BLOCK_BYTES, DDR_BLOCK_BYTES, false);
}

/* No member has these writes: the check at the acknowledgement is not what is tested here. */
static void ack(uint32_t wid)
{
	oracle_acked(&sim, wid, false);
	sim.failed = false;
}

static void open_oracle(void)
{
	for (uint64_t seed = 1;; seed++) {
		open_world(seed, 1);
		if (sim.o.clean)
			break;
		world_close(&sim);
	}
	run_for(500 * MS);
}

TEST(an_acknowledged_write_is_what_is_read)
{
	uint32_t w;

	open_oracle();
	CHECK(read_says(0, 3, sim_stamp(&sim)));
	w = write_block(3);
	ack(w);
	CHECK(!read_says(0, 3, sim_stamp(&sim)));
	CHECK(read_says(w, 3, sim_stamp(&sim)));
	CHECK(!read_says(w, 4, sim_stamp(&sim)));
	world_close(&sim);
}

TEST(a_write_under_way_may_be_read_or_not)
{
	uint64_t issue;
	uint32_t w;

	open_oracle();
	w = write_block(3);
	CHECK(read_says(w, 3, sim_stamp(&sim)));
	CHECK(read_says(0, 3, sim_stamp(&sim)));
	issue = sim_stamp(&sim);
	ack(w);
	CHECK(read_says(0, 3, issue)); /* began before the acknowledgement */
	CHECK(!read_says(0, 3, sim_stamp(&sim)));
	world_close(&sim);
}

TEST(what_was_read_once_does_not_flip)
{
	uint32_t w;

	for (uint32_t i = 0; i < 2; i++) {
		open_oracle();
		w = write_block(3);
		oracle_cut(&sim, w);
		oracle_ended(&sim, sim.node[0].ii);
		CHECK(read_says(i ? w : 0, 3, sim_stamp(&sim)));
		CHECK(!read_says(i ? 0 : w, 3, sim_stamp(&sim)));
		world_close(&sim);
	}
}

TEST(unflushed_writes_may_come_undone_only_after_the_power_of_all_is_lost)
{
	uint32_t v, w;

	open_oracle();
	v = write_block(3);
	ack(v);
	w = write_block(3);
	ack(w);
	CHECK(!read_says(v, 3, sim_stamp(&sim)));
	oracle_power(&sim);
	CHECK(read_says(v, 3, sim_stamp(&sim)));
	world_close(&sim);

	open_oracle();
	v = write_block(3);
	ack(v);
	w = write_block(3);
	ack(w);
	oracle_flushed(&sim, sim.node[0].ii, sim_stamp(&sim));
	oracle_power(&sim);
	CHECK(!read_says(v, 3, sim_stamp(&sim)));
	CHECK(read_says(w, 3, sim_stamp(&sim)));
	world_close(&sim);
}

TEST(wrong_parity_in_a_clean_region_is_noticed)
{
	uint8_t data[SECTOR] = {1};

	open_oracle();
	sim.failed = false;
	checks_event(&sim);
	CHECK(!sim.failed);
	disk_write(&sim, &sim.disk[1], geo_offset(&sim.geo, 5), sizeof(data), data, true);
	checks_event(&sim);
	CHECK(sim.failed);
	CHECK(strstr(sim.violation, "wrong parity"));
	world_close(&sim);
}

TEST(unflushed_data_in_a_clean_region_is_noticed)
{
	uint8_t data[SECTOR] = {0};

	open_oracle();
	sim.failed = false;
	disk_write(&sim, &sim.disk[1], geo_offset(&sim.geo, 5), sizeof(data), data, false);
	checks_event(&sim);
	CHECK(sim.failed);
	CHECK(strstr(sim.violation, "not flushed"));
	world_close(&sim);
}

TEST(a_write_after_the_fence_is_noticed)
{
	struct req r = {0};

	open_oracle();
	r.ii = sim.node[0].ii;
	sim.failed = false;
	checks_exec(&sim, &r);
	CHECK(!sim.failed);
	sim.inc[r.ii].fenced = true;
	checks_exec(&sim, &r);
	CHECK(sim.failed);
	world_close(&sim);
}
