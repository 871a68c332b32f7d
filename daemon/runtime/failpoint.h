/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Failpoints: named steps at which the daemon kills itself, for tests. The core knows nothing of
 * them; they lie where the engine's outs are carried out and where events come in.
 *
 * DDRAIDD_FAILPOINT names a file. While it holds `STEP [COUNT]`, the daemon dies by SIGKILL when it
 * comes to that step for the COUNTth time; it removes the file before. Without the variable nothing
 * of this is looked at.
 */
#ifndef DDRAID_RUNTIME_FAILPOINT_H
#define DDRAID_RUNTIME_FAILPOINT_H

#include "daemon/core/engine.h"

/* 0, or -EINVAL with a sentence on standard error that lists the steps. */
int failpoint_init(void);
/* Before an out is carried out, and after it (messages: when the group has taken it). */
void failpoint_out(const struct engine *e, const struct out *o);
void failpoint_asked(void);
void failpoint_sent(const void *data, size_t bytes);
/* Before the engine hears of it. */
void failpoint_event(const struct event *ev);

#endif
