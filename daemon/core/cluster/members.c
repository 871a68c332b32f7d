/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What this node thinks of the members: which ones it can use, which of them reads and writes go
 * to, and what an error that one of them answers says of it.
 *
 * A member that this node can't use is "bad" here, and gets nothing more, until the map says
 * otherwise: `bad` is the state that this node wants for it. It may be taken back only if that came
 * from an error of a read, or of a write without FUA (`read_error`), and the data needs it.
 */
#include <errno.h>
#include <string.h>

#include "daemon/core/cluster/cluster.h"

#define WRITE_AGAIN_US 1000000ull /* a member that must stay is tried again after so long */

bool member_usable(const struct engine *e, uint8_t member)
{
	uint32_t d = e->view.dev_of[member];

	return d != NO_DEV && e->c->devs.dev[d].up && !e->c->devs.dev[d].back.due &&
	       !e->c->members.bad[member];
}

/* Whoever needs every member waits for this first, so that he does not try in vain over and over.
 */
bool members_ready(const struct engine *e, uint32_t mask)
{
	for (; mask; mask &= mask - 1)
		if (!member_usable(e, (uint8_t)__builtin_ctz(mask)))
			return false;
	return true;
}

uint32_t write_musts(const struct engine *e)
{
	return map_write_mask(&e->map);
}

/*
 * New writes go to the proposed map's members as soon as the proposal is seen: what it drops gets
 * nothing more, and what it adds gets everything before this node acknowledges (so that no write
 * that lacks it can start after the commit).
 */
uint32_t write_targets(const struct engine *e)
{
	return map_write_mask(e->view.proposing ? &e->view.prop : &e->map);
}

uint32_t read_mask(const struct engine *e)
{
	uint32_t mask = map_insync_mask(&e->map), usable = 0;

	if (e->view.proposing)
		mask &= map_insync_mask(&e->view.prop);
	for (uint8_t i = 0; i < e->map.n; i++)
		if (mask >> i & 1 && member_usable(e, i))
			usable |= 1u << i;
	return usable;
}

uint32_t devs_up_mask(const struct engine *e)
{
	uint32_t mask = 0;

	for (uint8_t i = 0; i < DDR_MAX_MEMBERS; i++)
		if (e->view.dev_of[i] != NO_DEV && e->c->devs.dev[e->view.dev_of[i]].up &&
		    !e->c->devs.dev[e->view.dev_of[i]].back.due &&
		    (!e->c->members.bad[i] || !(map_write_mask(&e->map) >> i & 1)))
			mask |= 1u << i;
	return mask;
}

/* ---- errors --------------------------------------------------------------------------------- */

const struct map *map_next(const struct engine *e)
{
	return e->view.proposing ? &e->view.prop : &e->map;
}

/* R3: the map can't do without it. */
bool member_indispensable(const struct engine *e, uint8_t member)
{
	const struct map *m = map_next(e);

	return map_insync_mask(m) >> member & 1 && map_count_insync(m) <= e->geo.k;
}

bool member_read_error(const struct engine *e, uint8_t member)
{
	return e->c->members.bad[member] == MEMBER_MISSING && e->c->members.read_error[member];
}

/* It was lost in this incarnation, and is back as what it was; see log_rows in slots.c. */
bool member_log_readable(const struct engine *e, uint8_t member)
{
	uint32_t d = e->view.dev_of[member];

	return e->state == ENGINE_JOINING && leading(e) &&
	       (e->c->members.bad[member] == MEMBER_SUSPECT || member_read_error(e, member)) &&
	       d != NO_DEV && e->c->devs.dev[d].sb_ok && member_back(e, member);
}

/* It is the incarnation before that lost it, and no other reason is known; nor that its exporter
 * has been away. */
bool member_lost_earlier(const struct engine *e, uint8_t member)
{
	const struct dev *d =
	    e->view.dev_of[member] == NO_DEV ? NULL : &e->c->devs.dev[e->view.dev_of[member]];

	return e->c->members.bad[member] == MEMBER_SUSPECT &&
	       e->c->members.lost_earlier >> member & 1 &&
	       !(d && d->up && d->instance && e->c->members.bad_instance[member] &&
		 d->instance != e->c->members.bad_instance[member]);
}

/* This node can't use `member` any more: it gets nothing until the map says otherwise. */
void member_bad(struct engine *e, uint8_t member, enum member_state want)
{
	if (member_read_error(e, member))
		e->c->members.bad[member] = 0; /* whatever it is now weighs more */
	e->c->members.read_error[member] = false;
	e->c->members.write_again_us[member] = 0;
	if (e->c->members.lost_earlier >> member & 1)
		e->c->members.bad_us[member] = 0; /* told anew */
	e->c->members.lost_earlier &= ~(1u << member);
	if (e->c->members.bad[member] == MEMBER_FAULTY || e->c->members.bad[member] == want)
		return;
	if (e->c->members.bad[member] == MEMBER_MISSING && want == MEMBER_SUSPECT)
		return;
	if (!e->c->members.bad[member]) {
		e->c->members.bad_since_us[member] = e->now;
		e->c->members.bad_instance[member] =
		    e->view.dev_of[member] != NO_DEV
			? e->c->devs.dev[e->view.dev_of[member]].instance
			: 0;
	}
	TRACE(e, "can't use member %u: it shall be %s", member, member_state_name(want));
	e->c->members.bad[member] = (uint8_t)want;
	e->c->members.bad_us[member] = 0;
	if (e->view.dev_of[member] != NO_DEV && dev_ios(e, e->view.dev_of[member]))
		out_add(e, OUT_DEV_CANCEL)->cancel.dev = e->view.dev_of[member];
}

/*
 * It answered a read with an error, but is there. As long as the others can do without it, it is
 * given up like any other. If they can't, the error is this read's alone: one bad sector is no
 * reason to stop the array. Nothing is cancelled: what it was sent, it may well carry out, and
 * it may be taken back.
 */
static bool read_failed(struct engine *e, uint8_t member)
{
	if (member_indispensable(e, member))
		return true;
	if (e->c->members.bad[member])
		return false;
	e->c->members.bad[member] = MEMBER_MISSING;
	e->c->members.read_error[member] = true;
	e->c->members.write_again_us[member] = 0;
	e->c->members.bad_us[member] = 0;
	return false;
}

/*
 * It answered a write with an error: it has no space, say. As long as the others can do without it,
 * it is given up. If they can't, the write waits, its region marked and under its lock, and is
 * tried again now and then, with all others that wait: until one has gone through the member gets
 * nothing else. For what must be durable is not tried (R14): a mark that failed, or a superblock,
 * would end the member for good. Nothing is lost meanwhile: what it had it has, but for these
 * blocks, and they are read when their write is through. So reads go on.
 */
static void write_failed(struct engine *e, uint8_t member)
{
	if (!(map_insync_mask(map_next(e)) >> member & 1)) {
		member_bad(e, member, MEMBER_MISSING);
		return;
	}
	if (e->c->members.bad[member] && !member_read_error(e, member))
		return;
	if (!e->c->members.bad[member])
		e->c->members.bad_us[member] = 0;
	if (!e->c->members.write_again_us[member])
		e->c->members.refused_us[member] = e->now;
	e->c->members.bad[member] = MEMBER_MISSING;
	e->c->members.read_error[member] = true;
	e->c->members.write_again_us[member] = e->now + WRITE_AGAIN_US;
}

bool member_unwritable(const struct engine *e, uint8_t member)
{
	uint32_t d = e->view.dev_of[member];

	return d != NO_DEV && e->c->devs.dev[d].up && member_read_error(e, member) &&
	       e->c->members.write_again_us[member] && member_indispensable(e, member);
}

bool member_on_trial(const struct engine *e, uint8_t member)
{
	return member_unwritable(e, member) && e->now >= e->c->members.write_again_us[member];
}

static void member_taken_back(struct engine *e, uint8_t member)
{
	e->c->members.bad[member] = 0;
	e->c->members.read_error[member] = false;
	e->c->members.write_again_us[member] = 0;
	e->c->members.error[member].err = 0;
}

void member_wrote(struct engine *e, uint8_t member)
{
	if (member_unwritable(e, member))
		member_taken_back(e, member);
}

/* The member takes writes: one of this node's use block, which need not be durable, began there
 * after that time. */
bool member_wrote_since(const struct engine *e, uint8_t member, uint64_t us)
{
	return !e->cfg.tun.claim_ms || use_wrote_us(e, e->view.dev_of[member]) > us;
}

uint64_t member_refused_us(const struct engine *e, uint8_t member)
{
	return e->c->members.refused_us[member];
}

/* Another member left before the map could drop the one with an error: so that one stays. Of one
 * that a write tries, the write says whether it can be used; if none waits, the use block does:
 * were a mark the first to try, its error would end the member for good. */
void misread_advance(struct engine *e)
{
	for (uint8_t i = 0; i < e->map.n; i++) {
		if (!member_read_error(e, i) || !member_indispensable(e, i))
			continue;
		if (!e->c->members.write_again_us[i])
			e->c->members.bad[i] = 0;
		else if (member_on_trial(e, i) && !io_tries(e, i) &&
			 member_wrote_since(e, i, e->c->members.write_again_us[i] - WRITE_AGAIN_US))
			member_taken_back(e, i);
	}
}

static void error_note(struct engine *e, const struct dev_error *f)
{
	struct member_error *x = &e->c->members.error[f->member];

	x->err = f->err;
	x->op = f->op;
	x->fua = f->flags & DEV_F_FUA;
	x->offset = f->offset;
	x->us = e->now;
	x->count++;
}

bool member_failed(struct engine *e, const struct dev_error *f)
{
	if (!(map_write_mask(&e->map) >> f->member & 1) &&
	    !(e->view.proposing && map_write_mask(&e->view.prop) >> f->member & 1))
		return false; /* it is out already */
	if (!is_connection_error(f->err) &&
	    !(f->op == DEV_READ && member_indispensable(e, f->member)))
		error_note(e, f); /* unreadable_met() tells of the rest */
	if (is_connection_error(f->err)) {
		member_bad(e, f->member, MEMBER_SUSPECT);
	} else if (f->op == DEV_FLUSH || f->flags & DEV_F_FUA) {
		e->c->devs.dev[f->dev].flush_failed = true;
		memcpy(e->c->devs.dev[f->dev].failed_uuid, e->c->devs.dev[f->dev].sb.member_uuid,
		       DDR_UUID_BYTES);
		e->c->members.bad_us[f->member] = 0;
		member_bad(e, f->member, MEMBER_FAULTY); /* R14 */
	} else if (f->op == DEV_READ) {
		return read_failed(e, f->member);
	} else {
		write_failed(e, f->member);
	}
	return false;
}

bool others_suffice(const struct engine *e, uint8_t member)
{
	uint32_t n = 0;

	for (uint8_t i = 0; i < e->map.n; i++)
		n += i != member && map_insync_mask(&e->map) >> i & 1 && member_usable(e, i);
	return n >= e->geo.k;
}
