// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Why a member changes its state, for people: nothing goes by it. Whoever can't use a member says
 * why with its report, or in Hello; the leader keeps that beside the request, tells all with the
 * proposal, and the commit makes it the member's cause.
 */
#include <string.h>

#include "daemon/core/cluster/cluster.h"
#include "daemon/core/cluster/msg.h"

void cause_own(const struct engine *e, uint8_t i, uint8_t state, struct member_cause *c)
{
	const struct member_error *x = &e->c->members.error[i];
	uint32_t d = e->view.dev_of[i];

	*c = (struct member_cause){.why = WHY_BROKE_OFF, .node = e->cfg.node};
	if (state == MEMBER_FAULTY && member_cut(e, &e->map.member[i])) {
		c->why = WHY_SHRANK;
	} else if (e->c->back.older >> i & 1) {
		c->why = WHY_OLDER;
	} else if (x->err && (state != MEMBER_SUSPECT || (d != NO_DEV && e->c->devs.dev[d].up))) {
		c->why = WHY_ERROR;
		c->error = *x;
	} else if (state == MEMBER_FAULTY) {
		c->why = WHY_ERROR_EARLIER;
	}
}

void cause_tell(struct pb_causes *p, uint8_t i, const struct member_cause *c)
{
	Ddraid__Cause *b = &p->cause[p->count];

	if (!c->why)
		return;
	*b = (Ddraid__Cause)DDRAID__CAUSE__INIT;
	b->member = i;
	b->why = c->why;
	b->node = c->node;
	b->err = (uint32_t)-c->error.err;
	b->op = c->error.op;
	b->fua = c->error.fua;
	b->offset = c->error.offset;
	p->ptr[p->count++] = b;
}

void cause_hear(struct member_cause cause[DDR_MAX_MEMBERS], size_t count, Ddraid__Cause *const *b)
{
	memset(cause, 0, DDR_MAX_MEMBERS * sizeof(*cause));
	for (size_t n = 0; n < count; n++) {
		struct member_cause *c = &cause[b[n]->member];

		if (b[n]->why >= WHY_COUNT)
			continue; /* of a later version */
		c->why = (enum member_why)b[n]->why;
		c->node = b[n]->node;
		c->error.err = -(int)b[n]->err;
		c->error.op = (enum dev_op)b[n]->op;
		c->error.fua = b[n]->fua;
		c->error.offset = b[n]->offset;
	}
}

void want_set(struct engine *e, uint32_t i, enum member_state want, const struct member_cause *c)
{
	e->c->lead.requested[i] = (uint8_t)want;
	e->c->lead.cause[i] = *c;
}

void request_state(struct engine *e, uint32_t i, enum member_state want, enum member_why why,
		   uint32_t node)
{
	want_set(e, i, want, &(struct member_cause){.why = why, .node = node});
}

void causes_propose(const struct engine *e, const struct map *next, struct pb_causes *p)
{
	p->count = 0;
	for (uint8_t i = 0; i < next->n; i++) {
		if (next->member[i].state == e->map.member[i].state)
			continue;
		if (e->c->lead.cause[i].why)
			cause_tell(p, i, &e->c->lead.cause[i]);
		else if (e->view.proposing) /* a former leader's */
			cause_tell(p, i, &e->c->epochs.prop_cause[i]);
	}
}

void causes_commit(struct engine *e, const struct map *old)
{
	bool told = !epoch_cmp(&e->view.prop.epoch, &e->map.epoch);

	for (uint8_t i = 0; i < e->map.n; i++) {
		if (i >= old->n || old->member[i].state == e->map.member[i].state)
			continue;
		e->c->epochs.cause[i] =
		    told ? e->c->epochs.prop_cause[i] : (struct member_cause){0};
		e->c->lead.cause[i].why = WHY_NONE;
	}
}
