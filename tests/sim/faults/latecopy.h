/* SPDX-License-Identifier: GPL-2.0-or-later */
/* An older copy of a member that no superblock tells. */
#ifndef TESTS_SIM_FAULTS_LATECOPY_H
#define TESTS_SIM_FAULTS_LATECOPY_H

#include "tests/sim/common.h"

struct late_copy {
	uint8_t *image; /* NULL = none; what the disk is not just now */
	uint32_t disk;
	uint8_t member;
	bool hidden, there; /* its exporter is away, so that it leaves; it is the copy */
	uint64_t epoch;     /* of when it was taken */
	uint32_t served, ii[SIM_MAX_NODES]; /* then: mask of nodes */
	bool gone;                          /* one of these was, before the member left the map */
	uint64_t until_us;
};

void latecopy_init(struct sim *s);
/* How much longer a read takes of what a member that is back has of its node's log. */
uint64_t latecopy_unread_us(const struct sim *s, const struct req *r);

#endif
