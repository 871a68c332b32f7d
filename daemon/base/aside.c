// SPDX-License-Identifier: GPL-2.0-or-later
#include <linux/close_range.h>
#include <unistd.h>

#include "daemon/base/aside.h"
#include "daemon/base/thread.h"

#define STACK_BYTES (256u << 10)

int aside_start(void *(*run)(void *), void *arg)
{
	return thread_start(NULL, STACK_BYTES, run, arg);
}

bool aside_alone(void)
{
	return !close_range(3, ~0u, CLOSE_RANGE_UNSHARE);
}
