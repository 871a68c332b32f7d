/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A moment without writes, before a rebuilt member is promoted.
 *
 * Until then reads decode its fragments from the other members; from the commit on they take its
 * own. Both are the same but for what is being written: if its writer dies, one may be the old
 * content and the other the new, and a read that gave the one must not be followed by one that
 * gives the other. Nor may anything be in the member's cache only: who lost it as a rebuilding one
 * can be rebuilt again, and in sync it counts. So
 *
 *   leader: Quiet -> every node begins no write, lets end what it has under way, answers Quieted
 *   -> leader: FLUSH of the member -> Propose ... Commit
 *
 * A node writes again when an epoch is committed or another round is Ready; so also if the leader
 * dies in between, and whether or not its proposal goes on (R3), nothing was torn when it was made.
 * If a write takes too long the leader takes the Quiet back, and tries again later.
 *
 * Nor does a node answer before it knows that what it reaches is the member (member_entered): what
 * it wrote elsewhere would be taken for written if it died.
 *
 * A stripe that two writers have raced for, or whose write failed, is in doubt until its region is
 * checked, before and after the promotion (R12, R19); that is not waited for.
 */
#include "daemon/core/cluster/msg.h"

bool epoch_promotes(const struct engine *e)
{
	return e->view.proposing && map_promotes(&e->map, &e->view.prop);
}

bool writes_held(const struct engine *e)
{
	return e->c->quiet.on || epoch_promotes(e);
}

static void quiet_send(struct engine *e, bool on)
{
	NODEMSG(m, b, QUIET, Quiet, quiet);

	b.num = e->c->quiet.asked;
	b.on = on;
	msg_send(e, &m);
}

/* Leader. */
void quiet_ask(struct engine *e)
{
	struct quiet *q = &e->c->quiet;

	q->wanted = true;
	q->asked++;
	q->asked_us = e->now;
	quiet_send(e, true);
}

void quiet_take_back(struct engine *e)
{
	e->c->quiet.wanted = false;
	quiet_send(e, false);
}

/* A node that has not answered the newest Quiet; 0 = all have. */
uint32_t quiet_lacks(const struct engine *e)
{
	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		if (e->c->round.peer[i].member && e->c->round.peer[i].quieted != e->c->quiet.asked)
			return e->c->round.peer[i].node;
	return 0;
}

void quiet_end(struct engine *e)
{
	e->c->quiet.on = e->c->quiet.wanted = false;
}

void quiet_message(struct engine *e, uint32_t from, const nodemsg *m)
{
	struct quiet *q = &e->c->quiet;
	struct peer *p = peer_find(e, from);

	if (m->body_case == DDRAID__NODE_MSG__BODY_QUIETED) {
		p->quieted = m->quieted->num;
	} else if (from == e->c->round.leader) {
		q->on = m->quiet->on;
		q->num = m->quiet->num;
		q->answered = false;
	}
}

void quiet_advance(struct engine *e)
{
	struct quiet *q = &e->c->quiet;
	NODEMSG(m, b, QUIETED, Quieted, quieted);

	if (!q->on || q->answered || e->view.phase != PH_READY || io_writing(e) ||
	    regions_writing(e) || devs_entering(e))
		return;
	q->answered = true;
	b.num = q->num;
	msg_send(e, &m);
}
