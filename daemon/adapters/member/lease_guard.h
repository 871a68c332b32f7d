/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Cuts connections at the end of their lease (member_lease), also if their thread stands still just
 * then. To look at the clock before each send is not enough: a process that is stopped between
 * the look and the send sends when it goes on, however late that is. A timer of the kernel's
 * signals the thread instead; a stopped one runs the handler before anything else, and after that
 * the kernel takes nothing more for these sockets.
 *
 * So who is about to send arms the connection, looks at the clock, and sends, in this order.
 *
 * All calls for one guard are made on one thread. A guard or a connection of zeroes is one.
 */
#ifndef DDRAID_ADAPTERS_MEMBER_LEASE_GUARD_H
#define DDRAID_ADAPTERS_MEMBER_LEASE_GUARD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct lease_cut {
	int fd; /* a socket's; open as long as this is added */
	volatile sig_atomic_t armed;
	struct lease_cut *next;
};

struct lease_guard {
	struct lease_cut *volatile cuts;
	timer_t timer;
	bool has_timer;
};

void lease_guard_add(struct lease_guard *g, struct lease_cut *c);
void lease_guard_remove(struct lease_guard *g, struct lease_cut *c);

/* Until when, by CLOCK_BOOTTIME; UINT64_MAX: for ever. 0 or -errno. */
int lease_guard_until(struct lease_guard *g, uint64_t until_us);

/* Nothing is added any more. */
void lease_guard_end(struct lease_guard *g);

#endif
