/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Processes as the use block names them (core/format/useblock.h): this one, and whether another one
 * of this machine has ended. Any thread; reads a few small files of /proc.
 */
#ifndef DDRAID_RUNTIME_PROCESS_H
#define DDRAID_RUNTIME_PROCESS_H

#include <stdbool.h>

#include "daemon/core/format/useblock.h"

/* All zero if /proc does not say it: then nobody can tell by it whether this process has ended. */
void process_self(struct use_process *p);
/* True: it has ended, for certain. It is of this boot and of this name space of process ids (the
 * caller has compared both with process_self). */
bool process_ended(const struct use_process *p);

#endif
