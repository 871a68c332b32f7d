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
 *   leader: Quiesce -> every node begins no write, lets end what it has under way, answers Quiesced
 *   -> leader: FLUSH of the member -> Propose ... Commit
 *
 * A node writes again when an epoch is committed or another round is Ready; so also if the leader
 * dies in between, and whether or not its proposal goes on (R3), nothing was torn when it was made.
 * If a write takes too long the leader takes the Quiesce back, and tries again later.
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
	return e->c->quiesce.on || epoch_promotes(e);
}

static void quiet_send(struct engine *e, bool on)
{
	NODEMSG(m, b, QUIESCE, Quiesce, quiesce);

	b.num = e->c->quiesce.asked;
	b.on = on;
	msg_send(e, &m);
}

/* Leader. */
void quiesce_ask(struct engine *e)
{
	struct quiesce *q = &e->c->quiesce;

	q->wanted = true;
	q->asked++;
	q->asked_us = e->now;
	quiet_send(e, true);
}

void quiesce_take_back(struct engine *e)
{
	e->c->quiesce.wanted = false;
	quiet_send(e, false);
}

/* A node that has not answered the newest Quiesce; 0 = all have. */
uint32_t quiesce_lacks(const struct engine *e)
{
	for (uint32_t i = 0; i < e->c->round.peer_count; i++)
		if (e->c->round.peer[i].member &&
		    e->c->round.peer[i].quiesced != e->c->quiesce.asked)
			return e->c->round.peer[i].node;
	return 0;
}

void quiesce_end(struct engine *e)
{
	e->c->quiesce.on = e->c->quiesce.wanted = false;
}

void quiesce_message(struct engine *e, uint32_t from, const nodemsg *m)
{
	struct quiesce *q = &e->c->quiesce;
	struct peer *p = peer_find(e, from);

	if (m->body_case == DDRAID__NODE_MSG__BODY_QUIESCED) {
		p->quiesced = m->quiesced->num;
	} else if (from == e->c->round.leader) {
		q->on = m->quiesce->on;
		q->num = m->quiesce->num;
		q->answered = false;
	}
}

void quiesce_advance(struct engine *e)
{
	struct quiesce *q = &e->c->quiesce;
	NODEMSG(m, b, QUIESCED, Quiesced, quiesced);

	if (!q->on || q->answered || e->view.phase != PH_READY || io_writing(e) ||
	    regions_writing(e) || devs_entering(e))
		return;
	q->answered = true;
	b.num = q->num;
	msg_send(e, &m);
}
