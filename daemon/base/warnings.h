/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What is wrong with the daemon for all of its life: logged once, and in every status from then on.
 * The main thread's. */
#ifndef DDRAID_BASE_WARNINGS_H
#define DDRAID_BASE_WARNINGS_H

#include <stdint.h>

#define WARNINGS_MAX 8 /* further ones are dropped */

void warnings_add(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A sentence; NULL: there are no more. */
const char *warnings_get(uint32_t i);

#endif
