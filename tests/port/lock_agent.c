// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * One node of the lock conformance test on machines (lock_dlm.sh): a daemon with one handle, that
 * lock_remote.c drives by lines of text.
 *
 *	lock_agent MANAGER NODE
 *
 * stdin, to the agent itself:		to its daemon, a child:
 *	start	a new daemon			open SPACE
 *	kill	SIGKILL to the daemon		request ID MODE 0|1, release ID, close 0|1, kept
 * stdout:	killed				up, granted ID MODE, refused ID MODE,
 *					callback ID MODE, lost ERR WHY, kept 0|1
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/loop.h"
#include "daemon/ports/lock.h"

#define LINE_BYTES 256

static const struct lock_ops *ops;
static uint32_t node;
static struct loop *loop;
static struct loop_fd input;
static struct lockspace *space;
static char line[LINE_BYTES];
static size_t line_bytes;

/* One write each: who is killed leaves no half line. */
#define SAY(...)                                                                                   \
	do {                                                                                       \
		char text_[LINE_BYTES * 2];                                                        \
		int n_ = snprintf(text_, sizeof(text_), __VA_ARGS__);                              \
		if (write(1, text_, (size_t)n_) != n_)                                             \
			_exit(1);                                                                  \
	} while (0)

static void on_up(void *arg)
{
	(void)arg;
	SAY("up\n");
}

static void on_granted(void *arg, uint64_t id, enum lock_mode mode)
{
	(void)arg;
	SAY("granted %" PRIu64 " %d\n", id, (int)mode);
}

static void on_refused(void *arg, uint64_t id, enum lock_mode mode)
{
	(void)arg;
	SAY("refused %" PRIu64 " %d\n", id, (int)mode);
}

static void on_callback(void *arg, uint64_t id, enum lock_mode mode)
{
	(void)arg;
	SAY("callback %" PRIu64 " %d\n", id, (int)mode);
}

static void on_lost(void *arg, int err, const char *why)
{
	(void)arg;
	SAY("lost %d %.200s\n", err, why);
}

static const struct lock_cb callbacks = {on_up, on_granted, on_refused, on_callback, on_lost};

static void obey(const char *command)
{
	struct lock_cfg cfg = {
	    .loop = loop, .name = command + 5, .node = node, .inc = 1, .cb = &callbacks};
	uint64_t id;
	int mode, flag;

	if (!strncmp(command, "open ", 5)) {
		if (lock_open(ops, &cfg, &space))
			SAY("lost 1 no handle\n");
	} else if (sscanf(command, "request %" SCNu64 " %d %d", &id, &mode, &flag) == 3) {
		lock_request(space, id, (enum lock_mode)mode, flag);
	} else if (sscanf(command, "release %" SCNu64, &id) == 1) {
		lock_release(space, id);
	} else if (!strcmp(command, "kept")) {
		SAY("kept %d\n", lock_kept(space));
	} else if (sscanf(command, "close %d", &flag) == 1) {
		lock_close(space, flag);
		space = NULL;
	} else {
		SAY("lost 1 unknown command\n");
	}
}

static void readable(void *arg, uint32_t events)
{
	ssize_t n = read(input.fd, line + line_bytes, sizeof(line) - 1 - line_bytes);
	char *end;

	(void)arg;
	(void)events;
	if (n <= 0)
		_exit(0);
	line_bytes += (size_t)n;
	while ((end = memchr(line, '\n', line_bytes))) {
		*end = '\0';
		obey(line);
		line_bytes -= (size_t)(end + 1 - line);
		memmove(line, end + 1, line_bytes);
	}
}

static _Noreturn void daemon_run(int fd)
{
	input = (struct loop_fd){.fd = fd, .ready = readable};
	if (loop_new(&loop) || loop_fd_add(loop, &input, LOOP_READ))
		_exit(1);
	loop_run(loop);
	_exit(0);
}

static pid_t daemon_start(FILE **to)
{
	int fd[2];
	pid_t pid;

	if (pipe2(fd, O_CLOEXEC))
		exit(1);
	pid = fork();
	if (!pid) {
		close(fd[1]);
		daemon_run(fd[0]);
	}
	close(fd[0]);
	*to = fdopen(fd[1], "w");
	return pid;
}

int main(int argc, char **argv)
{
	char command[LINE_BYTES];
	FILE *to = NULL;
	pid_t pid = 0;

	ops = argc == 3 ? lock_manager_find(argv[1]) : NULL;
	if (!ops) {
		fprintf(stderr, "lock_agent MANAGER NODE, with a manager that is built in\n");
		return 2;
	}
	node = (uint32_t)strtoul(argv[2], NULL, 10);
	signal(SIGPIPE, SIG_IGN);
	while (fgets(command, sizeof(command), stdin)) {
		if (!strcmp(command, "start\n")) {
			pid = daemon_start(&to);
		} else if (!strcmp(command, "kill\n")) {
			if (pid) {
				kill(pid, SIGKILL);
				waitpid(pid, NULL, 0);
				fclose(to);
			}
			pid = 0;
			SAY("killed\n");
		} else if (pid) {
			fputs(command, to);
			fflush(to);
		}
	}
	if (pid)
		kill(pid, SIGKILL);
	return 0;
}
