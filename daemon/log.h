/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The daemon's log: libqb's, to syslog or standard error. Lines are queued and written by a thread
 * of libqb's, so a caller never waits for a log that lies on an array. Any thread.
 */
#ifndef DDRAID_LOG_H
#define DDRAID_LOG_H

#include <syslog.h>

#define LOG_TEXT_BYTES 1024

/* `level`: syslog's, the least important that is written. */
void log_open(const char *name, int level, int to_stderr);
/* Writes what is queued. */
void log_close(void);
/* From now on by a thread of its own: after the last fork. */
void log_threaded(void);

/* One sentence without a newline. */
void say(int priority, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
