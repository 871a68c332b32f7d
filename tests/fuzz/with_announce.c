// SPDX-License-Identifier: GPL-2.0-or-later
/* The daemons' group without its thread, and with a way to begin anew. */
#include "tests/fuzz/daemon_world.h"

#include "daemon/catalog/announce.c" /* NOLINT: its state is static */

/* What thread_main does before its loop. */
void world_group_open(void)
{
	struct group_cfg cfg = {.loop = loop, .cb = &callbacks};
	int err = group_open(adapter, &cfg, &group);

	assert(!err);
}

bool world_group_turn(void)
{
	return mailbox_run(&box);
}

/* And after it. */
void world_group_close(void)
{
	mailbox_run(&box);
	group_close(group);
	group = NULL;
	drop_unsent();
}

void world_announce_reset(void)
{
	memset(&state, 0, sizeof(state));
}
