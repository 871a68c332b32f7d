/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Each field of each message at its bound and one beyond: what passes, what is broken for certain,
 * and what is broken only for an array of this geometry. */
#include "tests/lib/test.h"

#include <errno.h>

#include "daemon/core/cluster/msg.h"
#include "proto/node.pb-c.h"

#define FROM 3u
#define INC 333u

static struct engine *e;

static void with_engine(bool geometry)
{
	struct engine_cfg cfg;

	engine_free(e);
	engine_cfg_init(&cfg);
	cfg.node = 1;
	cfg.inc = 111;
	e = engine_new(&cfg);
	if (!geometry)
		return;
	e->geo = (struct geo){.k = 2, .n = 3, .regions = 8, .log_pages = 2};
	e->geo.p.slots = 4;
	e->view.have_geo = true;
}

enum verdict { GOOD, OURS, BROKEN }; /* OURS: only with the geometry */

static enum verdict verdict(const nodemsg *m)
{
	bool certain, with;

	with_engine(true);
	with = msg_check(e, FROM, m, &certain) != NULL;
	if (!with)
		CHECK(!certain);
	with_engine(false);
	if (msg_check(e, FROM, m, &certain)) {
		CHECK(with && certain);
		return BROKEN;
	}
	CHECK(!certain);
	return with ? OURS : GOOD;
}

#define IS(want) CHECK_EQ_INT(verdict(&m), want)
/* With `at` set to `value` it is `want`; then `at` is what it was. */
#define SET(at, value, want)                                                                       \
	do {                                                                                       \
		__typeof__(at) before_ = (at);                                                     \
		(at) = (__typeof__(at))(value);                                                    \
		CHECK_MSG(verdict(&m) == (want), "%s = %s: not %s", #at, #value, #want);           \
		(at) = before_;                                                                    \
	} while (0)
#define MESSAGE(TYPE, Type, field)                                                                 \
	NODEMSG(m, b, TYPE, Type, field);                                                          \
	m.version = 1;                                                                             \
	m.inc = INC

static struct map sample_map(void)
{
	struct map map = {.epoch = {42, INC}, .n = 3};

	for (uint8_t i = 0; i < 3; i++) {
		memset(map.member[i].uuid, i + 1, DDR_UUID_BYTES);
		map.member[i].state = MEMBER_IN_SYNC;
	}
	return map;
}

/* What a map of a message must be, wherever it stands in it. */
static void each_map(nodemsg *at, Ddraid__Map **where, bool own_epoch)
{
	struct map map = sample_map();
	struct pb_map p;
	const nodemsg m = *at;

	pb_map_fill(&p, &map);
	*where = &p.map;
	IS(GOOD);
	SET(p.map.n_member, 0, BROKEN);
	SET(p.map.n_member, 2, BROKEN);
	SET(p.map.epoch, NULL, BROKEN);
	SET(p.epoch.num, 0, BROKEN);
	SET(p.epoch.num, EPOCH_NUM_MAX, GOOD);
	SET(p.epoch.num, EPOCH_NUM_MAX + 1, BROKEN);
	SET(p.epoch.num, UINT64_MAX, BROKEN);
	SET(p.map.missed_from, 42, GOOD);
	SET(p.map.missed_from, 43, BROKEN);
	if (own_epoch)
		SET(p.epoch.inc, INC + 1, BROKEN);
	for (uint8_t i = 0; i < 3; i++) {
		SET(p.member[i].uuid.len, 15, BROKEN);
		SET(p.member[i].uuid.len, 0, BROKEN);
		SET(p.member[i].state, 0, BROKEN);
		SET(p.member[i].state, 6, BROKEN);
		SET(p.member[i].state, 257, BROKEN);
		SET(p.member[i].state, MEMBER_FAULTY, GOOD);
		SET(p.member[i].flags, 2, BROKEN);
		SET(p.member[i].flags, 257, BROKEN);
		SET(p.member[i].left, 43, BROKEN);
		SET(p.member[i].reached, 43, BROKEN);
		SET(p.member[i].uuid.data, p.member[(i + 1) % 3].uuid.data, BROKEN);
		p.member[i].state = MEMBER_REBUILDING;
		SET(p.member[i].rebuilt_upto, 8, GOOD);
		SET(p.member[i].rebuilt_upto, 9, OURS);
		p.member[(i + 1) % 3].state = MEMBER_MISSING;
		IS(OURS); /* one of three in sync, and the data needs two */
		p.member[(i + 2) % 3].state = MEMBER_MISSING;
		IS(BROKEN);
		for (uint8_t j = 0; j < 3; j++)
			p.member[j].state = MEMBER_IN_SYNC;
	}
	map.n = 10;
	for (uint8_t i = 0; i < 10; i++) {
		memset(map.member[i].uuid, i + 1, DDR_UUID_BYTES);
		map.member[i].state = MEMBER_IN_SYNC;
	}
	pb_map_fill(&p, &map);
	IS(OURS);
	*where = NULL;
}

TEST(maps)
{
	pb_inc me = pb_inc_of(FROM, INC, 0, true), *mp = &me;

	{
		MESSAGE(PROPOSE, Propose, propose);

		each_map(&m, &b.map, true);
		IS(BROKEN);
	}
	{
		MESSAGE(STATE, State, state);

		b.node = &mp;
		b.n_node = 1;
		IS(GOOD);
		each_map(&m, &b.committed, false);
	}
	{
		struct map map = sample_map();
		struct pb_map p;
		MESSAGE(HELLO, Hello, hello);

		b.me = &me;
		IS(BROKEN); /* it serves, and has no map */
		each_map(&m, &b.committed, false);
		pb_map_fill(&p, &map);
		b.committed = &p.map;
		each_map(&m, &b.proposed, false);
		/* Who does not serve may pass on what it could not check. */
		me.active = false;
		map.n = 1;
		pb_map_fill(&p, &map);
		IS(GOOD);
		b.proposed = &p.map;
		IS(GOOD);
	}
}

TEST(a_hello)
{
	pb_inc me = pb_inc_of(FROM, INC, NO_SLOT, false), d = pb_inc_of(9, 7, NO_SLOT, false);
	pb_inc *list[DEPARTED_MAX + 1];
	uint32_t bad[DDR_MAX_MEMBERS + 1] = {0};
	Ddraid__Epoch ep = DDRAID__EPOCH__INIT;
	MESSAGE(HELLO, Hello, hello);

	b.me = &me;
	b.acked = b.known = &ep;
	b.departed = list;
	b.bad = bad;
	for (uint32_t i = 0; i <= DEPARTED_MAX; i++)
		list[i] = &d;
	IS(GOOD);
	SET(m.inc, 0, BROKEN);
	SET(b.me, NULL, BROKEN);
	SET(me.node, FROM + 1, BROKEN);
	SET(me.node, 0, BROKEN);
	SET(me.inc, INC + 1, BROKEN);
	SET(me.slot, 4, GOOD);
	SET(me.slot, 5, OURS);
	SET(me.slot, DDR_MAX_SLOTS, OURS);
	SET(me.slot, DDR_MAX_SLOTS + 1, BROKEN);
	SET(me.slot, UINT32_MAX, BROKEN);
	SET(ep.num, EPOCH_NUM_MAX + 1, BROKEN);
	SET(b.fenced_inc, INC - 1, GOOD);
	SET(b.fenced_inc, INC, BROKEN);
	SET(b.idle_inc, UINT64_MAX, BROKEN);
	SET(b.reach, DDR_MAX_MEMBERS + 1, BROKEN);
	SET(b.n_departed, DEPARTED_MAX, GOOD);
	SET(b.n_departed, DEPARTED_MAX + 1, BROKEN);
	b.n_departed = 3;
	SET(d.node, 0, BROKEN);
	SET(d.inc, 0, GOOD);           /* whoever it is */
	SET(d.slot, UINT32_MAX, GOOD); /* is no slot */
	SET(b.n_bad, 3, GOOD);
	SET(b.n_bad, 4, OURS);
	SET(b.n_bad, DDR_MAX_MEMBERS + 1, BROKEN);
	b.n_bad = 3;
	SET(bad[2], MEMBER_FAULTY, GOOD);
	SET(bad[2], MEMBER_REBUILDING, BROKEN);
}

TEST(a_state)
{
	pb_inc n[DDR_MAX_NODES + 1], *np[DDR_MAX_NODES + 1], d = pb_inc_of(9, 7, NO_SLOT, false);
	pb_inc *dp = &d;
	MESSAGE(STATE, State, state);

	for (uint32_t i = 0; i <= DDR_MAX_NODES; i++) {
		n[i] = pb_inc_of(i + 1, 100 + i, 0, true);
		np[i] = &n[i];
	}
	b.node = np;
	b.n_node = DDR_MAX_NODES;
	IS(GOOD);
	SET(b.n_node, 0, BROKEN);
	SET(b.n_node, DDR_MAX_NODES + 1, BROKEN);
	SET(n[1].node, 1, BROKEN);
	SET(n[1].node, 0, BROKEN);
	SET(n[1].inc, 0, BROKEN);
	SET(n[1].slot, 5, OURS);
	SET(n[1].slot, DDR_MAX_SLOTS + 1, BROKEN);
	b.departed = &dp;
	b.n_departed = 1;
	IS(GOOD);
	SET(d.inc, 0, BROKEN);
	SET(d.node, 0, BROKEN);
}

TEST(a_query)
{
	uint32_t view[DDR_MAX_NODES + 1], group[DDR_MAX_NODES + 1];
	MESSAGE(QUERY, Query, query);

	for (uint32_t i = 0; i <= DDR_MAX_NODES; i++)
		view[i] = group[i] = FROM + i;
	m.term_inc = INC;
	b.view = view;
	b.group = group;
	b.n_view = b.n_group = DDR_MAX_NODES;
	IS(GOOD);
	SET(m.term_inc, 0, BROKEN);
	SET(m.term_inc, INC + 1, BROKEN);
	SET(b.n_view, 0, BROKEN);
	SET(b.n_group, 0, BROKEN);
	SET(b.n_view, DDR_MAX_NODES + 1, BROKEN);
	SET(b.n_group, DDR_MAX_NODES + 1, BROKEN);
	SET(view[5], FROM - 1, BROKEN); /* that would have asked */
	SET(view[5], view[6], BROKEN);
	SET(view[0], 77, BROKEN); /* not itself */
}

TEST(locks)
{
	uint64_t id[2] = {LOCK_ID(LOCK_KIND_REGION, 7), LOCK_ID(LOCK_KIND_REGION, 0)};
	uint32_t mode[2] = {LOCK_MODE_EX, LOCK_MODE_PR};
	pb_inc to = pb_inc_of(1, 111, NO_SLOT, false);

	{
		MESSAGE(CLAIM, Claim, claim);

		b.id = id;
		b.mode = mode;
		b.n_id = b.n_mode = 2;
		IS(GOOD);
		SET(b.n_mode, 1, BROKEN);
		SET(mode[0], LOCK_MODE_NONE, BROKEN);
		SET(mode[1], 77, BROKEN);
		SET(id[0], LOCK_ID(LOCK_KIND_REGION, 8), OURS);
		SET(id[0], 7, BROKEN);
		SET(id[0], UINT64_MAX, BROKEN);
	}
	{
		MESSAGE(LOCK, Lock, lock);
		b.id = id[0];
		b.mode = LOCK_MODE_CW;
		IS(GOOD);
		SET(b.mode, LOCK_MODE_PR, GOOD);
		SET(b.mode, LOCK_MODE_EX, GOOD);
		SET(b.mode, 4, BROKEN);
		SET(b.id, LOCK_ID(LOCK_KIND_REGION, 8), OURS);
		SET(b.id, LOCK_ID(99, 0), BROKEN);
	}
	{
		MESSAGE(UNLOCK, Unlock, unlock);
		b.id = id[0];
		IS(GOOD);
		SET(b.id, 0, BROKEN);
	}
	{
		MESSAGE(GRANT, Grant, grant);
		b.id = id[0];
		b.mode = LOCK_MODE_EX;
		IS(BROKEN);
		b.to = &to;
		IS(GOOD);
		SET(b.mode, 0, BROKEN);
		SET(b.id, LOCK_ID(LOCK_KIND_REGION, 8), OURS);
	}
	{
		MESSAGE(CALLBACK, Callback, callback);
		b.id = id[0];
		b.mode = LOCK_MODE_EX;
		IS(GOOD);
		SET(b.mode, 4, BROKEN);
		SET(b.id, LOCK_ID(LOCK_KIND_REGION, UINT32_MAX), OURS);
	}
}

static void names(nodemsg *at, pb_inc **who, bool own, bool slot, bool unnamed)
{
	pb_inc i = pb_inc_of(FROM, INC, 0, false);
	const nodemsg m = *at;

	IS(BROKEN);
	*who = &i;
	IS(GOOD);
	SET(i.node, 0, BROKEN);
	SET(i.node, 9, own ? BROKEN : GOOD);
	SET(i.inc, 9, own ? BROKEN : GOOD);
	SET(i.inc, 0, unnamed ? GOOD : BROKEN);
	SET(i.slot, 0, slot ? BROKEN : GOOD);
	SET(i.slot, 5, slot ? OURS : GOOD);
	SET(i.slot, DDR_MAX_SLOTS + 1, BROKEN);
}

TEST(who_is_named)
{
	{
		MESSAGE(FENCED, Fenced, fenced);
		names(&m, &b.who, false, false, false);
	}
	{
		MESSAGE(ASSIGN, Assign, assign);
		names(&m, &b.who, false, true, false);
	}
	{
		MESSAGE(JOINED, Joined, joined);
		names(&m, &b.me, true, true, false);
	}
	{
		MESSAGE(LEFT, Left, left);
		names(&m, &b.me, true, false, false);
	}
	{
		MESSAGE(EVICT, Evict, evict);
		names(&m, &b.who, false, false, true);
	}
}

TEST(planes_reports_and_the_rest)
{
	uint8_t plane[LOG_PLANE_BYTES];
	Ddraid__Epoch ep = DDRAID__EPOCH__INIT;
	char uri[DDR_URI_BYTES + 1];

	{
		uint32_t bit[DIRTY_BITS_MAX + 1] = {LOG_REGIONS_PER_PAGE - 1, 3};
		MESSAGE(DIRTY, Dirty, dirty);
		IS(GOOD); /* no region any more */
		b.bit = bit;
		b.n_bit = 2;
		IS(GOOD);
		SET(bit[0], LOG_REGIONS_PER_PAGE, BROKEN);
		SET(b.n_bit, DIRTY_BITS_MAX + 1, BROKEN);
		SET(b.plane.len, sizeof(plane), BROKEN);
		b.n_bit = 0;
		b.plane.data = plane;
		b.plane.len = sizeof(plane);
		IS(GOOD);
		SET(b.plane.len, sizeof(plane) - 1, BROKEN);
		SET(b.slot, 4, GOOD); /* the array's own */
		SET(b.slot, 5, OURS);
		SET(b.slot, UINT32_MAX, BROKEN);
		SET(b.page, 1, GOOD);
		SET(b.page, 2, OURS);
		SET(b.page, UINT32_MAX, BROKEN);
	}
	{
		MESSAGE(MISSED, Missed, missed);
		IS(BROKEN);
		b.epoch = &ep;
		IS(BROKEN);
		b.end = true;
		IS(GOOD);
		b.plane.data = plane;
		b.plane.len = sizeof(plane);
		SET(b.page, 2, OURS);
		SET(b.plane.len, 1, BROKEN);
	}
	{
		Ddraid__Cause cause = DDRAID__CAUSE__INIT, *causes = &cause;
		MESSAGE(REPORT, Report, report);

		b.member = 2;
		b.state = MEMBER_MISSING;
		IS(GOOD);
		SET(b.member, 3, OURS);
		SET(b.member, UINT32_MAX, BROKEN);
		SET(b.state, MEMBER_IN_SYNC, BROKEN);
		SET(b.state, MEMBER_REBUILDING, BROKEN);
		SET(b.read_error, true, GOOD);
		b.state = MEMBER_FAULTY;
		SET(b.read_error, true, BROKEN);
		b.read_error = false;
		b.cause = &causes;
		b.n_cause = 1;
		IS(GOOD);
		SET(cause.member, DDR_MAX_MEMBERS, BROKEN);
		SET(cause.op, DEV_ZEROES + 1, BROKEN);
		SET(cause.err, DDR_ERRNO_MAX + 1, BROKEN);
		SET(cause.why, WHY_COUNT, GOOD); /* of a later version */
		SET(b.n_cause, DDR_MAX_MEMBERS + 1, BROKEN);
	}
	{
		MESSAGE(ACK, Ack, ack);
		IS(BROKEN);
		b.epoch = &ep;
		IS(GOOD);
		SET(ep.num, EPOCH_NUM_MAX + 1, BROKEN);
	}
	{
		MESSAGE(COMMIT, Commit, commit);
		IS(BROKEN);
		b.epoch = &ep;
		IS(BROKEN); /* another's */
		SET(ep.inc, INC, GOOD);
	}
	{
		MESSAGE(HEARTBEAT, Heartbeat, heartbeat);
		b.up_mask = b.raw_mask = (1u << DDR_MAX_MEMBERS) - 1;
		b.reach = DDR_MAX_MEMBERS;
		IS(GOOD);
		SET(b.up_mask, 1u << DDR_MAX_MEMBERS, BROKEN);
		SET(b.raw_mask, UINT32_MAX, BROKEN);
		SET(b.older, UINT32_MAX, BROKEN);
		SET(b.reach, DDR_MAX_MEMBERS + 1, BROKEN);
	}
	memset(uri, 'x', sizeof(uri));
	uri[DDR_URI_BYTES] = 0;
	{
		MESSAGE(ADMIN, Admin, admin);
		IS(GOOD);
		SET(b.cmd, ADMIN_STOP, BROKEN);
		SET(b.cmd, CMD_TAKE + 1, BROKEN);
		SET(b.member, DDR_MAX_MEMBERS, BROKEN);
		SET(b.uri, uri, BROKEN);
		SET(b.uri, uri + 1, GOOD);
		b.cmd = CMD_OPEN;
		IS(BROKEN);
		SET(b.uuid.len, DDR_UUID_BYTES, GOOD);
	}
	{
		MESSAGE(ADMIN_DONE, AdminDone, admin_done);
		SET(b.err, -EIO, GOOD);
		SET(b.err, 1, BROKEN);
		SET(b.err, INT32_MIN, BROKEN);
	}
	engine_free(e);
	e = NULL;
}
