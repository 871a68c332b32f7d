/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What one broken node can't do to the others: end them, hold them for ever, or use up what they
 * have. */
#include "tests/lib/test.h"

#include "tests/unit/hostile_world.h"

static uint32_t others_removed(void)
{
	uint32_t n = 0;

	for (uint32_t i = 1; i <= NODES; i++)
		n += i != BAD ? h.node[i].removals : 0;
	return n;
}

/* The broken node leaves, or was evicted; the others go on with what they had acknowledged. */
static void others_go_on(void)
{
	const char *bad;

	h.node[BAD].deaf = true;
	h_view();
	h_run_ms(20000);
	bad = h_verify();
	CHECK_MSG(!bad, "%s", bad ? bad : "");
	CHECK_EQ_U64(others_removed(), 0);
	CHECK_EQ_U64(h.node[1].fenced_works + h.node[2].fenced_works, 0);
}

static void begin(uint32_t bad)
{
	h_twist = NULL;
	h_begin(bad);
	h_write(2, 5, 0x55);
	h_write(bad == 1 ? NODES : 1, 70, 0x77);
	h_run_ms(20);
}

static void new_round(void)
{
	h.node[BAD].deaf = true;
	h_view();
	h_drain();
	h_start(BAD);
	h_view();
	h_run_ms(200);
}

/* ---- slots ---------------------------------------------------------------------------------- */

static void twist_slots(nodemsg *m)
{
	if (m->body_case == DDRAID__NODE_MSG__BODY_HELLO)
		m->hello->me->slot = 64;
	if (m->body_case == DDRAID__NODE_MSG__BODY_JOINED)
		m->joined->me->slot = 64;
	if (m->body_case == DDRAID__NODE_MSG__BODY_STATE)
		for (size_t i = 0; i < m->state->n_node; i++)
			m->state->node[i]->slot = 64;
	if (m->body_case == DDRAID__NODE_MSG__BODY_ASSIGN)
		m->assign->who->slot = 64;
}

TEST(a_slot_beyond_the_last_is_nobodys)
{
	for (uint32_t bad = 1; bad <= NODES; bad += NODES - 1) {
		begin(bad);
		h_twist = twist_slots;
		new_round();
		h_run_ms(3000);
		CHECK(h_status(2).rejected);
		others_go_on();
		h_end();
	}
}

/* The broken node may not take the slot of one that works. */
static void twist_joined(nodemsg *m)
{
	if (m->body_case == DDRAID__NODE_MSG__BODY_JOINED)
		m->joined->me->slot = h.node[2].e->view.slot + 1;
}

TEST(a_slot_that_was_not_given_is_not_taken)
{
	begin(NODES);
	h_twist = twist_joined;
	new_round();
	h_run_ms(3000);
	CHECK(!strcmp(h_status(1).rejected_why, "takes a slot that it was not given"));
	others_go_on();
	h_end();
}

/* ---- the departed --------------------------------------------------------------------------- */

static uint32_t made_up_node, made_up;
static bool made_up_fenced;

static void twist_departed(nodemsg *m)
{
	size_t *n;
	pb_inc ***list;

	if (m->body_case == DDRAID__NODE_MSG__BODY_HELLO) {
		n = &m->hello->n_departed;
		list = &m->hello->departed;
	} else if (m->body_case == DDRAID__NODE_MSG__BODY_STATE) {
		n = &m->state->n_departed;
		list = &m->state->departed;
	} else {
		return;
	}
	*list = realloc(*list, (*n + made_up) * sizeof(**list));
	for (uint32_t i = 0; i < made_up; i++) {
		pb_inc *who = malloc(sizeof(*who));

		ddraid__incarnation__init(who);
		who->node = made_up_node ? made_up_node : 1000 + i;
		who->inc = 5000 + i;
		who->active = made_up_fenced;
		who->slot = 64;
		(*list)[(*n)++] = who;
	}
}

static void many_departed(uint32_t bad, uint32_t node, uint32_t count, bool fenced)
{
	made_up_node = node;
	made_up = count;
	made_up_fenced = fenced;
	begin(bad);
	h_twist = twist_departed;
	new_round();
	h_run_ms(3000);
	CHECK(h.node[2].e->c->departures.count <= DEPARTED_MAX);
	/* Such a node could not fill the table by the time it is gone: the others' own departures
	 * have room. */
	h_twist = NULL;
	others_go_on();
	CHECK(!h.node[2].e->c->departures.full);
	h_end();
}

TEST(any_number_of_departed_can_be_told)
{
	for (uint32_t bad = 1; bad <= NODES; bad += NODES - 1)
		for (uint32_t count = 1; count <= 1024; count *= 4)
			for (uint32_t how = 0; how < 4; how++)
				many_departed(bad, how & 1 ? 9 : 0, count, how & 2);
}

TEST(of_one_node_no_more_lives_are_believed_than_there_can_be)
{
	made_up_node = 9;
	made_up = 200;
	made_up_fenced = false;
	begin(NODES);
	h.unfenceable = 9;
	h_twist = twist_departed;
	new_round();
	h_run_ms(2000);
	CHECK(h.node[1].e->c->departures.count > 1);
	CHECK(h.node[1].e->c->departures.count <= DEPARTED_OF_NODE + 2);
	h_end();
}

/* ---- locks ---------------------------------------------------------------------------------- */

static void say_claim(const uint64_t *id, const uint32_t *mode, size_t n, bool end)
{
	NODEMSG(m, b, CLAIM, Claim, claim);

	b.id = (uint64_t *)id;
	b.mode = (uint32_t *)mode;
	b.n_id = b.n_mode = n;
	b.end = end;
	m.inc = 0;
	h_say(&m);
}

static uint64_t claim_region;
static uint32_t claim_mode;

/* In front of the end of its Claim it claims what it does not hold. */
static void twist_claim(nodemsg *m)
{
	if (m->body_case != DDRAID__NODE_MSG__BODY_CLAIM || !m->claim->end)
		return;
	m->claim->id = malloc(sizeof(*m->claim->id));
	m->claim->mode = malloc(sizeof(*m->claim->mode));
	m->claim->n_id = m->claim->n_mode = 1;
	m->claim->id[0] = LOCK_ID(LOCK_KIND_REGION, claim_region);
	m->claim->mode[0] = claim_mode;
}

/* A new round, without anybody leaving. */
static void round_by_join(void)
{
	NODEMSG(m, b, JOIN, Join, join);

	h_say(&m);
	h_run_ms(100);
}

TEST(a_claim_against_the_leaders_own_lock_evicts_who_claims)
{
	for (uint32_t i = 0; i < 2; i++) {
		begin(NODES);
		h_write(1, 3, 0x33); /* node 1 leads, and holds CW of region 0 */
		CHECK_EQ_INT(engine_lock_held(h.node[1].e, LOCK_ID(LOCK_KIND_REGION, 0)),
			     LOCK_MODE_CW);
		claim_region = 0;
		claim_mode = i ? LOCK_MODE_PR : LOCK_MODE_EX;
		h_twist = twist_claim;
		round_by_join();
		h_twist = NULL;
		CHECK(!strcmp(h_status(1).rejected_why, "claims locks that others hold"));
		h_run_ms(2000);
		CHECK(h.node[NODES].removals);
		others_go_on();
		h_end();
	}
}

/* The leader holds nothing of it: which of two is wrong, nobody can say. None is evicted, and it is
 * granted to nobody before both have given it up. */
TEST(a_lock_in_dispute_is_granted_to_nobody)
{
	for (uint32_t i = 0; i < 2; i++) {
		begin(NODES);
		h_write(2, 150, 0x33); /* region 2; block 150 */
		CHECK_EQ_INT(engine_lock_held(h.node[2].e, LOCK_ID(LOCK_KIND_REGION, 2)),
			     LOCK_MODE_CW);
		claim_region = 2;
		claim_mode = i ? LOCK_MODE_PR : LOCK_MODE_EX;
		h_twist = twist_claim;
		round_by_join();
		h_twist = NULL;
		CHECK_EQ_U64(h_status(1).rejected, 0);
		CHECK_EQ_U64(h.node[2].removals + h.node[NODES].removals, 0);
		h_write(1, 151, 0x44);
		h_run_ms(3000);
		CHECK(h.busy[151]); /* the broken one does not give it up */
		others_go_on();
		CHECK_EQ_U64(h.told[151], 0x44);
		h_end();
	}
}

static void say_lock(uint64_t id, bool try_only)
{
	NODEMSG(m, b, LOCK, Lock, lock);

	b.id = id;
	b.mode = LOCK_MODE_EX;
	b.try_only = try_only;
	h_say(&m);
}

static uint32_t locks(uint32_t node)
{
	return (uint32_t)h.node[node].e->c->locktab.table.count;
}

TEST(there_is_one_lock_for_each_region_and_no_other)
{
	begin(NODES);
	for (uint64_t i = 0; i < 20000; i++) {
		say_lock(i << 40, i & 1);
		say_lock(LOCK_ID(LOCK_KIND_REGION, i), i & 1);
	}
	CHECK(locks(1) <= h.node[1].e->geo.regions);
	others_go_on();
	h_end();
}

TEST(a_lock_asked_for_too_early_is_not_granted)
{
	uint64_t id = LOCK_ID(LOCK_KIND_REGION, 3);
	uint32_t mode = LOCK_MODE_EX, before;

	begin(NODES);
	h.unfenceable = 9;
	made_up_node = 9;
	made_up = 1;
	made_up_fenced = false;
	h_twist = twist_departed;
	new_round();
	CHECK(departed_unfenced(h.node[1].e));
	before = locks(1); /* what was claimed */
	say_lock(id, false);
	say_lock(id, true);
	CHECK_EQ_U64(locks(1), before);
	h.unfenceable = 0;
	h_twist = NULL;
	h_run_ms(8000);
	CHECK(h_serves(1));
	say_claim(&id, &mode, 1, true); /* too late */
	CHECK_EQ_INT(engine_lock_held(h.node[1].e, id), LOCK_MODE_NONE);
	others_go_on();
	h_end();
}

/* ---- maps and numbers ----------------------------------------------------------------------- */

static const struct map *lie;

static void twist_map(nodemsg *m)
{
	static struct pb_map pm[2];
	static uint32_t next;
	struct pb_map *p = &pm[next++ % 2];
	Ddraid__Map **at = NULL;

	if (m->body_case == DDRAID__NODE_MSG__BODY_STATE)
		at = &m->state->committed;
	if (m->body_case == DDRAID__NODE_MSG__BODY_PROPOSE)
		at = &m->propose->map;
	if (m->body_case == DDRAID__NODE_MSG__BODY_HELLO)
		at = &m->hello->committed;
	if (!at || !*at)
		return;
	/* The message is freed as protobuf-c has made it, so the lie is packed and unpacked. */
	pb_map_fill(p, lie);
	{
		uint8_t packed[4096];
		size_t bytes = ddraid__map__pack(&p->map, packed);

		ddraid__map__free_unpacked(*at, NULL);
		*at = ddraid__map__unpack(NULL, bytes, packed);
	}
}

static void broken_map(uint32_t bad, void (*change)(struct map *m))
{
	struct map m;

	begin(bad);
	m = h.node[BAD].e->map;
	change(&m);
	lie = &m;
	h_twist = twist_map;
	round_by_join();
	h_run_ms(3000);
	h_twist = NULL;
	for (uint32_t i = 1; i <= NODES; i++)
		if (i != BAD) {
			const struct map *got = &h.node[i].e->map;

			CHECK(!map_check(got, &h.node[i].e->geo));
			CHECK_EQ_U64(got->n, MEMBERS);
			CHECK_EQ_U64(map_count_insync(got), MEMBERS);
			CHECK(got->epoch.num < 1000);
		}
	others_go_on();
	h_end();
}

static void of_ten(struct map *m)
{
	m->n = 10;
	m->epoch.num += 5;
	for (uint8_t i = 3; i < 10; i++) {
		m->member[i] = m->member[0];
		m->member[i].uuid[0] = (uint8_t)(100 + i);
	}
}

static void of_the_last_epoch(struct map *m)
{
	m->epoch.num = EPOCH_NUM_MAX;
}

static void beyond_the_last_epoch(struct map *m)
{
	m->epoch.num = UINT64_MAX;
}

static void of_one_uuid(struct map *m)
{
	memcpy(m->member[1].uuid, m->member[0].uuid, DDR_UUID_BYTES);
	m->epoch.num += 5;
}

static void with_none_in_sync(struct map *m)
{
	m->epoch.num += 5;
	m->missed_from = 1;
	for (uint8_t i = 0; i < m->n; i++)
		m->member[i].state = MEMBER_FAULTY;
}

TEST(no_map_counts_that_could_not_be)
{
	static void (*const change[])(struct map *) = {
	    of_ten, of_the_last_epoch, beyond_the_last_epoch, of_one_uuid, with_none_in_sync};

	for (uint32_t i = 0; i < sizeof(change) / sizeof(change[0]); i++)
		broken_map(1, change[i]);
}

static void twist_numbers(nodemsg *m)
{
	if (m->body_case == DDRAID__NODE_MSG__BODY_HELLO && m->hello->acked)
		m->hello->acked->num = EPOCH_NUM_MAX;
}

TEST(one_node_can_not_use_up_the_epochs)
{
	begin(NODES);
	h_twist = twist_numbers;
	new_round();
	h_run_ms(3000);
	CHECK(h_serves(1));
	CHECK(h.node[1].e->map.epoch.num < 1000);
	h_twist = NULL;
	others_go_on();
	h_end();
}

/* Nobody has committed that: the members show it, and all go on. */
static void twist_known(nodemsg *m)
{
	if (m->body_case == DDRAID__NODE_MSG__BODY_HELLO && m->hello->known)
		m->hello->known->num += 3;
}

TEST(an_epoch_that_no_member_carries_ends_nobody)
{
	for (uint32_t bad = 1; bad <= NODES; bad += NODES - 1) {
		begin(bad);
		h_twist = twist_known;
		new_round();
		h_run_ms(3000);
		CHECK_EQ_U64(others_removed(), 0);
		for (uint32_t i = 1; i <= NODES; i++)
			CHECK(i == BAD || h_serves(i));
		h_twist = NULL;
		others_go_on();
		h_end();
	}
}

/* ---- who does not answer -------------------------------------------------------------------- */

static void twist_mute(nodemsg *m)
{
	if (m->body_case != DDRAID__NODE_MSG__BODY_HELLO)
		return;
	ddraid__hello__free_unpacked(m->hello, NULL);
	m->hello = NULL;
	m->body_case = DDRAID__NODE_MSG__BODY__NOT_SET;
}

TEST(one_that_lives_and_answers_no_query_is_evicted)
{
	begin(NODES);
	h_twist = twist_mute;
	h.node[NODES].ends = true;
	new_round();
	h_run_ms(2000);
	CHECK(!h_serves(1));
	h_run_ms(13000);
	CHECK(h.node[NODES].removals);
	CHECK(h_serves(1) && h_serves(2));
	h_twist = NULL;
	others_go_on();
	h_end();
}

static void twist_silent(nodemsg *m)
{
	twist_mute(m);
	if (m->body_case != DDRAID__NODE_MSG__BODY_JOIN)
		return;
	ddraid__join__free_unpacked(m->join, NULL);
	m->join = NULL;
	m->body_case = DDRAID__NODE_MSG__BODY__NOT_SET;
}

/* Its daemon was started again. The others know it by heartbeats only, and must not evict the
 * incarnation before: this one would not hear that it is meant. */
TEST(so_is_one_that_lives_again_and_says_nothing_else)
{
	begin(NODES);
	h.node[NODES].deaf = true;
	new_round();
	h_run_ms(3000);
	CHECK(h_serves(1) && h_serves(2));
	h_start(NODES);
	h.node[NODES].ends = true;
	h_twist = twist_silent;
	new_round();
	h_run_ms(15000);
	CHECK(h.node[NODES].removals);
	CHECK(h_serves(1) && h_serves(2));
	h_twist = NULL;
	others_go_on();
	h_end();
}

/* ---- what the group says of it ----------------------------------------------------------------
 */

/* It numbers its messages as it likes: nothing of it is heard, and it goes at once. */
TEST(one_that_breaks_the_groups_order_is_evicted)
{
	for (uint32_t bad = 1; bad <= NODES; bad += 2) {
		begin(bad);
		h.node[bad].ends = true;
		for (uint32_t i = 1; i <= NODES; i++) {
			struct event ev = {.type = EV_MSG,
					   .msg = {.from = bad, .broken = "leaves out numbers"}};

			if (i != bad)
				h_push(i, ev, NULL);
		}
		h_run_ms(3000);
		CHECK(h.node[bad].removals);
		h_run_ms(5000);
		for (uint32_t i = 1; i <= NODES; i++)
			CHECK(i == bad || (!h.node[i].removals && h_serves(i)));
		others_go_on();
		h_end();
	}
}

/* ---- node ids ------------------------------------------------------------------------------- */

static void view_with(uint32_t first, uint32_t last)
{
	struct event ev = {.type = EV_VIEW};

	h.ring++;
	ev.view.ring = (struct ring){1, h.ring};
	ev.view.node[ev.view.count++] = 1;
	for (uint32_t i = first; i <= last; i++)
		ev.view.node[ev.view.count++] = i;
	h_step(1, ev);
	ev.type = EV_QUORUM;
	ev.view.quorate = true;
	h_step(1, ev);
	h_drain();
}

TEST(any_number_of_node_ids_may_come_and_go)
{
	h_create();
	BAD = NODES;
	h_start(1);
	for (uint32_t x = 2; x < 600; x += 31) {
		view_with(x, x + 30);
		h_run_ms(20);
		CHECK(peer_find(h.node[1].e, x + 30)); /* the newest have room */
		CHECK(peer_find(h.node[1].e, 1));
		view_with(2, 1);
		h_run_ms(100);
	}
	h_run_ms(3000);
	CHECK(h_serves(1));
	h_step(1, (struct event){.type = EV_GIVE_UP});
	h_drain();
	h_run_ms(10000);
	CHECK_EQ_U64(h.node[1].removals, 1);
	CHECK(h_serves(1));
	h_end();
}

/* ---- consumers ------------------------------------------------------------------------------ */

static int io_err(enum io_op op, uint64_t offset, uint32_t bytes, void *data)
{
	struct event ev = {.type = EV_IO};

	h.read_done = false;
	ev.io.tag = READ_TAG;
	ev.io.op = op;
	ev.io.offset = offset;
	ev.io.bytes = bytes;
	ev.io.data = data;
	h_step(1, ev);
	h_run_ms(50);
	CHECK(h.read_done);
	return h.read_err;
}

static int admin_err(enum admin_cmd cmd, uint8_t member, const char *uri)
{
	struct event ev = {.type = EV_ADMIN};
	uint32_t before = h.admin_done;

	ev.admin.cmd = cmd;
	ev.admin.member = member;
	ev.admin.uri = uri;
	h_step(1, ev);
	h_run_ms(50);
	CHECK_EQ_U64(h.admin_done, before + 1);
	return h.admin_err;
}

TEST(requests_that_can_not_be_are_answered_with_an_error)
{
	static uint8_t buf[DDR_BLOCK_BYTES];
	static char uri[2 * DDR_URI_BYTES];

	begin(NODES);
	CHECK_EQ_INT(io_err(IO_READ, 1, sizeof(buf), buf), -EINVAL);
	CHECK_EQ_INT(io_err(IO_READ, 0, 0, buf), -EINVAL);
	CHECK_EQ_INT(io_err(IO_READ, 0, 17, buf), -EINVAL);
	CHECK_EQ_INT(io_err(IO_READ, 0, sizeof(buf), NULL), -EINVAL);
	CHECK_EQ_INT(io_err(IO_WRITE, UINT64_MAX & ~0xfffull, sizeof(buf), buf), -EINVAL);
	CHECK_EQ_INT(io_err(IO_WRITE, 1ull << 40, sizeof(buf), buf), -EINVAL);
	CHECK_EQ_INT(io_err(IO_ZEROES, 0, UINT32_MAX & ~0xfffu, NULL), -EINVAL);
	CHECK_EQ_INT(io_err((enum io_op)77, 0, sizeof(buf), buf), -EINVAL);
	CHECK_EQ_INT(io_err(IO_READ, 0, sizeof(buf), buf), 0);
	memset(uri, 'x', sizeof(uri) - 1);
	CHECK_EQ_INT(admin_err(ADMIN_FAIL, 3, NULL), -EINVAL);
	CHECK_EQ_INT(admin_err(ADMIN_READD, 255, NULL), -EINVAL);
	CHECK_EQ_INT(admin_err((enum admin_cmd)9, 0, NULL), -EINVAL);
	CHECK_EQ_INT(admin_err(ADMIN_ADD, 0, uri), -EINVAL);
	CHECK_EQ_U64(h_status(2).rejected + h_status(NODES).rejected, 0);
	others_go_on();
	h_end();
}

/* ---- what it does not say ------------------------------------------------------------------- */

static int unsaid; /* a body that it leaves out */
static uint32_t left_out;

static void twist_unsaid(nodemsg *m)
{
	if ((int)m->body_case != unsaid)
		return;
	/* As an answer to nobody: its number stays away. */
	if (unsaid == DDRAID__NODE_MSG__BODY_UNLOCK)
		ddraid__unlock__free_unpacked(m->unlock, NULL);
	else if (unsaid == DDRAID__NODE_MSG__BODY_SETTLED)
		ddraid__settled__free_unpacked(m->settled, NULL);
	else
		ddraid__quiesced__free_unpacked(m->quiesced, NULL);
	m->unlock = NULL;
	m->body_case = DDRAID__NODE_MSG__BODY__NOT_SET;
	left_out++;
}

static void leaves_out(int body)
{
	unsaid = body;
	left_out = 0;
	h_twist = twist_unsaid;
}

static void member_away(uint32_t m, bool away)
{
	for (uint32_t i = 1; i <= NODES; i++) {
		struct event ev = {.type = away ? EV_DEV_DOWN : EV_DEV_UP};

		ev.dev.dev = m;
		ev.dev.bytes = DISK_BYTES;
		ev.dev.uri = "mem:";
		ev.dev.err = away ? -ECONNRESET : 0;
		h_push(i, ev, NULL);
	}
	h_drain();
	h_run_ms(1000);
}

/* Else it would hold up every write of the others, for ever. */
TEST(who_does_not_answer_settle_is_evicted)
{
	h_other_locks = true;
	begin(NODES);
	leaves_out(DDRAID__NODE_MSG__BODY_SETTLED);
	h_write(2, 200, 0x56);
	h_write(1, 100, 0x57);
	h_run_ms(20000);
	CHECK(left_out);
	CHECK(!h.busy[200] && !h.busy[100]);
	CHECK(h.node[NODES].removals);
	h_other_locks = false;
	others_go_on();
	h_end();
}

TEST(who_gives_a_lock_back_to_nobody_is_named)
{
	begin(NODES);
	leaves_out(DDRAID__NODE_MSG__BODY_UNLOCK);
	h_write(NODES, 5, 0x55); /* so it has the lock of region 0 */
	h_run_ms(200);
	member_away(0, true);
	h_write(2, 6, 0x66); /* which the member misses */
	h_run_ms(1000);
	CHECK(!h_status(1).waits);
	member_away(0, false);
	for (uint32_t i = 0; i < 60 && !h_status(1).waits; i++)
		h_run_ms(1000);
	CHECK(left_out);
	CHECK(h_status(1).waits && strstr(h_status(1).waits, "region"));
	CHECK_EQ_U64(h_status(1).waits_node, NODES);
	h_twist = NULL;
	others_go_on();
	CHECK(!h_status(1).waits);
	h_end();
}

TEST(who_does_not_end_its_writes_is_named_by_the_rebuild)
{
	begin(NODES);
	leaves_out(DDRAID__NODE_MSG__BODY_QUIESCED);
	member_away(0, true);
	h_write(2, 6, 0x66);
	member_away(0, false);
	h_run_ms(30000);
	CHECK(left_out);
	CHECK_EQ_INT(h_status(1).map.member[0].state, MEMBER_REBUILDING);
	CHECK_EQ_U64(h_status(1).rebuild_waits_node, NODES);
	CHECK(strstr(h_status(1).rebuild_waits, "writes"));
	h_twist = NULL;
	h_run_ms(60000);
	CHECK_EQ_INT(h_status(1).map.member[0].state, MEMBER_IN_SYNC);
	CHECK_EQ_U64(h_status(1).rebuild_waits_node, 0);
	others_go_on();
	h_end();
}

/* ---- a past that is none -------------------------------------------------------------------- */

static bool past_now, past_said;

/* It leads. A node that joins for the first time gets no map from it, and a Ready before the
 * commit. */
static void twist_past(nodemsg *m)
{
	Ddraid__Epoch ep = DDRAID__EPOCH__INIT, *past[1] = {&ep};
	NODEMSG(r, b, READY, Ready, ready);

	if (m->body_case == DDRAID__NODE_MSG__BODY_STATE && m->state->committed) {
		ddraid__map__free_unpacked(m->state->committed, NULL);
		m->state->committed = NULL;
	}
	if (m->body_case != DDRAID__NODE_MSG__BODY_PROPOSE || past_said)
		return;
	past_said = true;
	ep.num = past_now ? m->propose->map->epoch->num : EPOCH_NUM_MAX;
	ep.inc = 7;
	b.past = past;
	b.n_past = 1;
	b.use_claim = h.node[BAD].e->c->use.claim;
	r.version = 1;
	r.inc = m->inc;
	r.term_inc = m->term_inc;
	r.term_num = m->term_num;
	h_send(BAD, &r);
}

static void until_serves(uint32_t node)
{
	for (uint32_t n = 0; n < 3000 && !h_serves(node); n++)
		h_run_ms(10);
	CHECK(h_serves(node));
}

TEST(a_past_that_is_to_come_is_not_taken_by_who_has_no_map)
{
	for (uint32_t now = 0; now < 2; now++) {
		past_now = now;
		past_said = false;
		h_twist = NULL;
		h_create();
		BAD = 1;
		h_start(1);
		h_start(2);
		h_view();
		until_serves(1);
		until_serves(2);
		h_start(3);
		h_twist = twist_past;
		h_view();
		until_serves(3);
		CHECK(past_said);
		h_twist = NULL;
		h.node[BAD].deaf = true; /* it leaves */
		h_view();
		h_run_ms(8000);
		CHECK(h_serves(2) && h_serves(3));
		h_start(2); /* so node 3 leads */
		h_view();
		h_run_ms(8000);
		for (uint32_t m = 0; m < 2; m++) {
			member_away(m, true);
			member_away(m, false);
			h_run_ms(20000);
			CHECK_EQ_INT(h_status(3).map.member[m].state, MEMBER_IN_SYNC);
			CHECK(!engine_dev_foreign(h.node[3].e, m));
		}
		CHECK(h_serves(2) && h_serves(3));
		h_end();
	}
}

static void told_more(nodemsg *m)
{
	if (m->body_case == DDRAID__NODE_MSG__BODY_HELLO && m->hello->known)
		m->hello->known->num += 3;
}

/* It tells of an epoch that nobody else knows, and the exporter of one member of the next one,
 * which answers first. */
TEST(who_tells_of_an_epoch_ends_the_others_only_if_the_members_say_so)
{
	struct superblock sb, other;

	begin(NODES);
	h_run_ms(3000);
	h.node[BAD].deaf = true;
	h_view();
	h_drain();
	h_start(BAD);
	h_run_ms(3000);
	h_twist = told_more;
	CHECK(!sb_decode(&sb, h.disk[0] + geo_sb_offset(0), NULL));
	if (!sb_decode(&other, h.disk[0] + geo_sb_offset(1), NULL) && sb_newer(&other, &sb))
		sb = other;
	sb.map.epoch = (struct epoch){sb.map.epoch.num + 1, 4711};
	for (uint32_t c = 0; c < SB_COPIES; c++) {
		sb.seq++;
		sb.place = (uint8_t)(c + 1);
		sb_encode(&sb, h.disk[0] + geo_sb_offset(c));
	}
	h_view();
	h_run_ms(3000);
	for (uint32_t i = 1; i <= NODES; i++)
		CHECK(i == BAD || (h_serves(i) && !h.node[i].removals));
	h_end();
}

/* ---- before anything ------------------------------------------------------------------------ */

TEST(a_message_before_everything_else_is_dropped)
{
	uint8_t junk[64];

	h_create();
	BAD = NODES;
	h_start(1);
	for (uint32_t i = 0; i < sizeof(junk); i++)
		junk[i] = (uint8_t)(i * 37);
	for (uint32_t n = 0; n <= sizeof(junk); n++)
		h_multicast(BAD, junk, n);
	h_drain();
	h_view();
	h_run_ms(100);
	h_end();
}
