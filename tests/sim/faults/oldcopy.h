/* SPDX-License-Identifier: GPL-2.0-or-later */
/* An older copy of a member in its place (R15). */
#ifndef TESTS_SIM_FAULTS_OLDCOPY_H
#define TESTS_SIM_FAULTS_OLDCOPY_H

#include "tests/sim/common.h"

struct old_copy {
	uint8_t *image; /* NULL = none yet, or used */
	uint32_t disk;
	uint8_t member;
	uint64_t epoch;    /* of the superblock in the image */
	uint64_t until_us; /* by then it is old enough: regions written since are clean */
	bool hidden;       /* so that it may leave: done once */
	uint64_t slow_until_us, unread_until_us;
	bool stands; /* in for the member, for what is sent from since_us on */
	uint64_t since_us, num;
	uint32_t commits; /* since it was taken */
	uint32_t node;    /* for this one alone, or NONE */
	uint32_t way;     /* how often that has been */
	uint32_t entries; /* of the member, while it is so and that node has one incarnation */
	uint32_t entries_ii;
	uint8_t was; /* its state in the newest map */
};

void oldcopy_init(struct sim *s);
void oldcopy_sent(struct sim *s, const void *data, size_t bytes); /* a message of the group */
uint64_t oldcopy_late_us(struct sim *s); /* so much longer a node's record takes */
/* A member request is sent: does it go to the copy? Its read takes so much longer. */
void oldcopy_issued(const struct sim *s, struct req *r);
uint64_t oldcopy_unread_us(const struct sim *s, const struct req *r);
/* True: it was that one which took the request. */
bool oldcopy_lands(struct sim *s, struct req *r, uint32_t from, uint32_t to);
/* This node may have read the copy: a reason to give the member up. */
bool oldcopy_met(const struct sim *s, const struct simnode *n, uint32_t disk);

#endif
