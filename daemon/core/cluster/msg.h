/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shorthand for building node messages; files of core/cluster/ only. */
#ifndef DDRAID_CORE_CLUSTER_MSG_H
#define DDRAID_CORE_CLUSTER_MSG_H

#include "daemon/core/cluster/cluster.h"
#include "proto/node.pb-c.h"

typedef Ddraid__Incarnation pb_inc;

enum {
	CMD_OPEN = 16,
	CMD_CHECK,
	CMD_SEEN,
	CMD_FORCE,
	CMD_TAKE,
	CMD_LANDS
}; /* steps of an `add`: Admin.cmd, beside admin_cmd */

/* Declares nodemsg `m` whose body is the message `b` of type Type, field `field`. */
#define NODEMSG(m, b, TYPE, Type, field)                                                           \
	Ddraid__##Type b = DDRAID__##TYPE##__INIT;                                                 \
	nodemsg m = DDRAID__NODE_MSG__INIT;                                                        \
	m.body_case = DDRAID__NODE_MSG__BODY_##TYPE;                                               \
	m.field = &b

struct pb_map {
	Ddraid__Map map;
	Ddraid__Epoch epoch;
	Ddraid__MapMember member[DDR_MAX_MEMBERS];
	Ddraid__MapMember *ptr[DDR_MAX_MEMBERS];
};

void pb_map_fill(struct pb_map *p, const struct map *m);
/* false: it doesn't fit. What it says is map_check's to judge. */
bool pb_map_read(struct map *m, const Ddraid__Map *p);
pb_inc pb_inc_of(uint32_t node, uint64_t inc, uint32_t slot, bool active);
pb_inc pb_departed(struct engine *e, const struct departed *d);
uint32_t pb_slot(const struct engine *e, const pb_inc *i); /* NO_SLOT if none, or not one of ours */
/* cause.c: why this node can't use a member, which it wants in that state. */
void cause_own(const struct engine *e, uint8_t member, uint8_t state, struct member_cause *c);
struct pb_causes {
	Ddraid__Cause cause[DDR_MAX_MEMBERS];
	Ddraid__Cause *ptr[DDR_MAX_MEMBERS];
	size_t count;
};
void cause_tell(struct pb_causes *p, uint8_t member, const struct member_cause *c);
void cause_hear(struct member_cause cause[DDR_MAX_MEMBERS], size_t count, Ddraid__Cause *const *b);
/* The leader: what a member shall be, and why. */
void want_set(struct engine *e, uint32_t member, enum member_state want,
	      const struct member_cause *c);
void request_state(struct engine *e, uint32_t member, enum member_state want, enum member_why why,
		   uint32_t node);
void causes_propose(const struct engine *e, const struct map *next, struct pb_causes *p);
void causes_commit(struct engine *e, const struct map *old);
/* msgcheck.c. NULL: every field is in its range. Else what is not, in words; `certain`: whoever
 * sends that is broken, whatever this node knows of the array. */
const char *msg_check(const struct engine *e, uint32_t from, const nodemsg *m, bool *certain);
bool epoch_is(const Ddraid__Epoch *p, const struct epoch *e);

/* departed.c */
bool departed_is_me(const struct engine *e, const pb_inc *who);
bool is_deaf_to(struct engine *e, uint32_t node, uint64_t inc);
bool departed_void(const struct engine *e, const pb_inc *who);
void departed_take(struct engine *e, const struct peer *from, const pb_inc *who);
void departed_told(struct engine *e, const pb_inc *who, uint32_t from, uint64_t from_inc,
		   bool by_leader);

/* vouch.c */
void vouch_asked(struct engine *e, struct peer *p, uint64_t inc, uint32_t asks);
void vouch_told(struct engine *e, struct peer *p, const Ddraid__Vouch *v);
uint32_t vouch_tell(struct engine *e, Ddraid__Vouch *v);

#endif
