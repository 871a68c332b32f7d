// SPDX-License-Identifier: GPL-2.0-or-later
/* The table of arrays with a way to begin anew, as the next daemon would. */
#include "tests/fuzz/daemon_world.h"

#include "daemon/catalog/manager.c"        /* NOLINT: its state is static */
#include "daemon/catalog/manager_change.c" /* NOLINT */
#include "daemon/catalog/manager_forget.c" /* NOLINT */

void world_manager_reset(void)
{
	while (count) {
		assert(!array_running(table[count - 1]->array));
		assert(table[count - 1]->refs == 1); /* whoever held it has let go */
		manager_table_remove(table[count - 1]);
	}
	assert(!list_storing && !forgets);
	again_asked = false;
	memset(&forgotten, 0, sizeof(forgotten));
	list_version = list_put = 0;
	manager.closing = false;
	all_stopped = NULL;
}
