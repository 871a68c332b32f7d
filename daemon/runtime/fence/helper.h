/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the fence helper and the daemon say to each other; a datagram each. */
#ifndef DDRAID_RUNTIME_FENCE_HELPER_H
#define DDRAID_RUNTIME_FENCE_HELPER_H

#include "daemon/runtime/fence/fence.h"

struct fence_request {
	uint64_t id, inc;
	uint32_t timeout_ms, node, count;
	bool check; /* without node and incarnation */
	char command[CONFIG_PATH_BYTES];
	char uri[FENCE_URIS][DDR_URI_BYTES];
};

struct fence_answer {
	uint64_t id;
	/* 0; -ENXIO: a check's exit status FENCE_CHECK_NO, 126 or 127; -EIO: another exit status
	 * than 0; -ETIMEDOUT; -errno of posix_spawn. */
	int err;
	uint32_t ms; /* how long it took */
	char output[320];
};

/* Forks. The daemon's end of the socket pair, or -errno. */
int fence_helper_fork(void);

#endif
