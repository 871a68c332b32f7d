/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Time, for what is outside of the engine's thread (that has loop_now_us). Any thread. */
#ifndef DDRAID_BASE_CLOCK_H
#define DDRAID_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Of CLOCK_MONOTONIC. */
static inline uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

#endif
