/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What surrounds the main thread's part of ddraidd in fuzz_daemon: time and threads are the
 * world's. All sources of that program are built with the names below for the real ones, so that a
 * run depends on nothing but its input.
 */
#ifndef DDRAID_TESTS_FUZZ_DAEMON_WORLD_H
#define DDRAID_TESTS_FUZZ_DAEMON_WORLD_H

#include <stdbool.h>

void world_manager_reset(void);
void world_group_open(void);
bool world_group_turn(void);
void world_group_close(void);
void world_announce_reset(void);

#endif
