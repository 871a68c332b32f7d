/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the service manager is told: systemd's protocol for Type=notify, over the socket that
 * $NOTIFY_SOCKET names. Without it nothing is sent. The main thread's.
 */
#ifndef DDRAID_SERVICE_H
#define DDRAID_SERVICE_H

struct qb_loop;

/* "READY=1" and its like. */
void service_tell(const char *what);
/*
 * From now on the service manager is told that the daemon works, as often as it wants to hear it
 * ($WATCHDOG_USEC), but only as long as the main loop turns and the engine thread of each array
 * that runs does. A daemon that stands still is ended and started again by the service manager.
 */
void service_watch(struct qb_loop *loop);

#endif
