/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * `import`: which array these devices are members of, by what they carry, and where each of its
 * members is. Nothing is written. Whether the array may start with them the engine decides (R1,
 * core/cluster/assemble.c); what is said here comes before anything is remembered of the array.
 *
 * As create_check.h: devices are reached through callbacks, all calls block, and no state outside
 * the arguments is touched.
 */
#ifndef DDRAID_CTL_CREATE_IMPORT_CHECK_H
#define DDRAID_CTL_CREATE_IMPORT_CHECK_H

#include "daemon/ctl/create/create_check.h"

struct import_ask {
	bool degraded; /* a device that can't be reached is one of those that are not there */
	bool stale;    /* older members will do, if they are enough: as --stale of a start */
};

#define IMPORT_NOWHERE DDR_MAX_MEMBERS

struct import_result {
	char name[DDR_NAME_BYTES];
	uint8_t uuid[DDR_UUID_BYTES];
	struct geo geo;
	/* By member: which of the devices it is, or IMPORT_NOWHERE. One that can't be reached has
	 * the place of a member that is not there. */
	uint8_t dev_of[DDR_MAX_MEMBERS];
};

/*
 * 0 and *r, or -errno and *e: -EINVAL no members of one array, one twice, -ENOTUNIQ one has
 * another device in its place by now; or too few for the array to start (stale may help);
 * whatever open_err and the callbacks give. dev[i].write and flush are not called.
 */
int import_check(const struct import_ask *ask, const struct create_dev *dev, uint32_t count,
		 struct import_result *r, struct create_error *e);

#endif
