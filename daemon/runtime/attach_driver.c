// SPDX-License-Identifier: GPL-2.0-or-later
/* What is asked of the kernel's drivers for block devices without an array that runs. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/runtime/array.h"
#include "kmod/ddraid_uapi.h"

extern char **environ;

static uint64_t heard_ms; /* when all know of the end of the last daemon; CLOCK_MONOTONIC */

void attach_daemon_began(uint32_t ms)
{
	heard_ms = now_ms() + ms;
}

static int modprobe(const char *module)
{
	char *const argv[] = {"modprobe", "-q", (char *)module, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int status, err;
	pid_t pid;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	err = -posix_spawnp(&pid, argv[0], &actions, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	if (err)
		return err;
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -ENODEV;
}

int attach_driver(enum attach_via via, char why[FRONT_WHY_BYTES])
{
	const char *module = via == ATTACH_NBD ? "nbd" : "ddraid";
	const char *there = via == ATTACH_NBD ? "/sys/module/nbd" : DDRAID_CONTROL;

	if (!access(there, F_OK) || !modprobe(module))
		return 0;
	snprintf(why, FRONT_WHY_BYTES,
		 "the kernel has no driver %s, and 'modprobe %s' loads none; install it for this "
		 "kernel, or attach with --via %s",
		 module, module, via == ATTACH_NBD ? "shim" : "nbd");
	return -EOPNOTSUPP;
}

int attach_discard(const struct store_array *desc, bool force, uint32_t wait_ms,
		   char why[FRONT_WHY_BYTES])
{
	const struct front_ops *ops = front_find(desc->attach == ATTACH_NBD ? "knbd" : "shim");

	uint64_t now = now_ms();
	int err;

	if (!desc->attach || !ops || !ops->discard)
		return 0;
	if (!force || now >= heard_ms)
		return ops->discard(desc->name, desc->uuid, force, wait_ms, why);
	err = ops->discard(desc->name, desc->uuid, false, wait_ms, why);
	if (err != -EBUSY && err != -EAGAIN)
		return err;
	snprintf(why, FRONT_WHY_BYTES,
		 "its device is open, and other nodes may not know yet that the last ddraidd here "
		 "has ended, which may have been writing; try again in %llu s",
		 (unsigned long long)(heard_ms - now) / 1000 + 1);
	return -EAGAIN;
}
