// SPDX-License-Identifier: GPL-2.0-or-later
/* What an earlier daemon left is not ended by force before all other nodes can know of its end. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ports/front.h"
#include "daemon/runtime/array.h"
#include "tests/lib/test.h"

static int opened; /* -errno, to who does not force it */
static unsigned forced, asked;
static char why[FRONT_WHY_BYTES];

static int fake_discard(const char *name, const uint8_t uuid[DDR_UUID_BYTES], bool force,
			uint32_t wait_ms, char *says)
{
	(void)name;
	(void)uuid;
	CHECK_EQ_U64(wait_ms, 7);
	forced += force;
	asked += !force;
	snprintf(says, FRONT_WHY_BYTES, "it is open");
	return force ? 0 : opened;
}

static const struct front_ops shim = {.name = "shim", .discard = fake_discard};

const struct front_ops *front_find(const char *name)
{
	return strcmp(name, "shim") ? NULL : &shim;
}

static int discard(bool force)
{
	static const struct store_array desc = {.name = "vol0", .attach = ATTACH_SHIM};

	forced = asked = 0;
	return attach_discard(&desc, force, 7, why);
}

TEST(what_nobody_has_open_goes_at_once)
{
	attach_daemon_began(60000);
	opened = 0;
	CHECK_EQ_INT(discard(true), 0);
	CHECK_EQ_U64(forced, 0);
	CHECK_EQ_INT(discard(false), 0);
	opened = -EIO; /* what is wrong is told */
	CHECK_EQ_INT(discard(true), -EIO);
	CHECK_EQ_STR(why, "it is open");
}

TEST(what_is_open_stays_until_all_can_know)
{
	attach_daemon_began(60000);
	for (int i = 0; i < 2; i++) {
		opened = i ? -EAGAIN : -EBUSY;
		CHECK_EQ_INT(discard(true), -EAGAIN);
		CHECK_EQ_U64(forced, 0);
		CHECK(strstr(why, "try again in 60 s") || strstr(why, "try again in 61 s"));
		CHECK_EQ_INT(discard(false), opened);
	}
	attach_daemon_began(20);
	opened = -EBUSY;
	usleep(30000);
	CHECK_EQ_INT(discard(true), 0);
	CHECK_EQ_U64(forced, 1);
	CHECK_EQ_U64(asked, 0);
	CHECK_EQ_INT(discard(false), -EBUSY);
}

TEST(without_others_there_is_nothing_to_wait_for)
{
	attach_daemon_began(0);
	opened = -EBUSY;
	CHECK_EQ_INT(discard(true), 0);
	CHECK_EQ_U64(forced, 1);
}
