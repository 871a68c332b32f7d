/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The daemon's log, to syslog or standard error. Lines are queued and written by a thread of its
 * own, so a caller never waits for whoever reads the log, nor for a log that lies on an array: if
 * the queue is full, lines are lost, and the log says how many. Any thread.
 */
#ifndef DDRAID_BASE_LOG_H
#define DDRAID_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <syslog.h>

#define LOG_TEXT_BYTES 1024

/* `level`: syslog's, the least important that is written. `foreground`: to standard error. */
void log_open(const char *name, int level, int foreground);
/* Another one from now on. The main thread's. */
void log_level(int level);
bool log_debugs(void); /* LOG_DEBUG is written, too */
/* What is queued is written, but a reader that stands still is waited for only for a second. */
void log_close(void);
/* From now on by a thread of its own: after the last fork. Until then callers write. */
void log_threaded(void);
/* How many lines were lost since the reader stands still; 0 again when the log says it. */
uint64_t log_lost(void);

/* One sentence without a newline. */
void say(int priority, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
