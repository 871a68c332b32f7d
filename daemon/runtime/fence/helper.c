// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The process that runs fence commands. It knows nothing but its socket and its children, and ends
 * when the daemon does; a command that runs then goes on to its end.
 *
 *	free    no child
 *	runs    child and pipe    -> free: it has ended and its output is read, an answer is sent
 *	                          -> stuck: it was killed and does not end, an answer is sent
 *	stuck   child             -> free: it has ended
 *
 * A command that takes longer than its time is killed with its process group: it counts as failed,
 * though it may have succeeded; it is asked again. One that sleeps in the kernel, on a dead
 * storage say, may not end by that: nobody waits for it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/runtime/fence/helper.h"
#include "daemon/base/clock.h"

#define OUTPUT_WAIT_MS 1000 /* how long output is waited for after the command's end */
#define KILL_WAIT_MS 1000   /* how long its end is waited for after SIGKILL */
#define TURN_MS 20          /* how often commands are looked at */
#define STUCK_TURN_MS 1000

struct run {
	uint64_t id;
	pid_t pid; /* 0 = free */
	int out;
	bool check;
	bool ended, timed_out, stuck;
	int status;
	bool lost; /* its status */
	uint64_t began_ms, deadline_ms, ended_ms;
	struct fence_answer answer;
	size_t bytes;
};

static struct run runs[FENCE_MAX];
static int daemon_fd;

static void answer(struct fence_answer *a)
{
	/* A sentence for the log: one line, its end without blanks. */
	for (char *p = a->output; *p; p++) {
		if ((unsigned char)*p < ' ')
			*p = ' ';
	}
	for (size_t n = strlen(a->output); n && a->output[n - 1] == ' '; n--)
		a->output[n - 1] = '\0';
	if (send(daemon_fd, a, sizeof(*a), MSG_NOSIGNAL) < 0)
		_exit(0);
}

static int spawn(const struct fence_request *r, int out, pid_t *pid)
{
	char node[16], inc[24];
	const char *argv[FENCE_URIS + 4] = {r->command, node, inc};
	uint32_t args = 3;
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	sigset_t all;
	int err;

	snprintf(node, sizeof(node), "%u", r->node);
	snprintf(inc, sizeof(inc), "%" PRIu64, r->inc);
	if (r->check) {
		argv[1] = "--check";
		args = 2;
	}
	for (uint32_t i = 0; i < r->count; i++)
		argv[args + i] = r->uri[i];
	argv[args + r->count] = NULL;
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&fa, out, 1);
	posix_spawn_file_actions_adddup2(&fa, out, 2);
	posix_spawnattr_init(&attr);
	sigfillset(&all);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setpgroup(&attr, 0);
	err = -posix_spawn(pid, r->command, &fa, &attr, (char *const *)argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&fa);
	return err;
}

static void take_request(const struct fence_request *r)
{
	struct fence_answer bad = {.id = r->id};
	struct run *u = runs;
	int out[2], err;

	while (u < runs + FENCE_MAX && u->pid)
		u++;
	err = u == runs + FENCE_MAX ? -EBUSY : pipe2(out, O_CLOEXEC) < 0 ? -errno : 0;
	if (!err) {
		memset(u, 0, sizeof(*u));
		err = spawn(r, out[1], &u->pid);
		close(out[1]);
		if (err) {
			u->pid = 0;
			close(out[0]);
		}
	}
	if (err) {
		bad.err = err;
		snprintf(bad.output, sizeof(bad.output), "can't be run: %s", strerror(-err));
		answer(&bad);
		return;
	}
	u->id = r->id;
	u->check = r->check;
	u->out = out[0];
	u->began_ms = now_ms();
	u->deadline_ms = u->began_ms + r->timeout_ms;
}

/* Also what a shell says of a program that is not there, or can't be run: that fences nobody. */
static bool check_no(int status)
{
	return status == FENCE_CHECK_NO || status == 126 || status == 127;
}

static int result(const struct run *u)
{
	if (u->timed_out)
		return -ETIMEDOUT;
	if (u->check && !u->lost && WIFEXITED(u->status) && check_no(WEXITSTATUS(u->status)))
		return -ENXIO;
	return !u->lost && WIFEXITED(u->status) && !WEXITSTATUS(u->status) ? 0 : -EIO;
}

static void remark(struct run *u, const char *text)
{
	snprintf(u->answer.output + u->bytes, sizeof(u->answer.output) - u->bytes, "%s%s",
		 u->bytes ? " " : "", text);
}

static void finish(struct run *u)
{
	struct fence_answer *a = &u->answer;

	a->id = u->id;
	a->ms = (uint32_t)(now_ms() - u->began_ms);
	a->err = result(u);
	if (u->lost)
		remark(u, "(its exit status is not known: somebody else has reaped it)");
	if (u->out >= 0)
		close(u->out);
	u->out = -1;
	if (u->ended)
		u->pid = 0;
	else
		remark(u, "(killed, but it does not end: it hangs in the kernel)");
	u->stuck = !u->ended;
	answer(a);
}

/* Keeps the beginning of the output; what is more is read and dropped. */
static void read_output(struct run *u)
{
	char text[512];
	ssize_t n = read(u->out, text, sizeof(text));
	size_t room = sizeof(u->answer.output) - 1 - u->bytes;

	if (n <= 0) {
		if (n < 0 && errno == EINTR)
			return;
		close(u->out);
		u->out = -1;
		return;
	}
	if ((size_t)n < room)
		room = (size_t)n;
	memcpy(u->answer.output + u->bytes, text, room);
	u->bytes += room;
}

static void reap(struct run *u, uint64_t now)
{
	pid_t pid = waitpid(u->pid, &u->status, WNOHANG);

	if (!pid || (pid < 0 && errno == EINTR))
		return;
	u->lost = pid < 0;
	u->ended = true;
	u->ended_ms = now;
}

static void look_after(struct run *u)
{
	uint64_t now = now_ms();

	if (!u->ended)
		reap(u, now);
	if (u->stuck) {
		if (u->ended)
			u->pid = 0;
		return;
	}
	/* Not after its end: its process group's number may be another's by then. */
	if (!u->ended && !u->timed_out && now >= u->deadline_ms) {
		kill(-u->pid, SIGKILL);
		u->timed_out = true;
	}
	/* Its own children may hold the pipe open for ever. */
	if (u->ended ? u->out < 0 || now > u->ended_ms + OUTPUT_WAIT_MS
		     : u->timed_out && now > u->deadline_ms + KILL_WAIT_MS)
		finish(u);
}

static void turn(void)
{
	static struct fence_request r;
	struct pollfd p[FENCE_MAX + 1] = {{.fd = daemon_fd, .events = POLLIN}};
	int wait_ms = -1;
	ssize_t n;

	for (int i = 0; i < FENCE_MAX; i++) {
		p[i + 1].fd = runs[i].pid && runs[i].out >= 0 ? runs[i].out : -1;
		p[i + 1].events = POLLIN;
		if (runs[i].pid && wait_ms != TURN_MS)
			wait_ms = runs[i].stuck ? STUCK_TURN_MS : TURN_MS;
	}
	if (poll(p, FENCE_MAX + 1, wait_ms) < 0)
		return;
	for (int i = 0; i < FENCE_MAX; i++) {
		if (runs[i].pid && p[i + 1].revents)
			read_output(&runs[i]);
		if (runs[i].pid)
			look_after(&runs[i]);
	}
	if (!p[0].revents)
		return;
	n = recv(daemon_fd, &r, sizeof(r), 0);
	if (n == sizeof(r) && r.count <= FENCE_URIS)
		take_request(&r);
	else if (n >= 0 || errno != EINTR)
		_exit(0); /* the daemon is gone */
}

int fence_helper_fork(void)
{
	int fd[2], bytes = 64 * (int)sizeof(struct fence_request);
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) < 0)
		return -errno;
	setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid) {
		close(fd[1]);
		return fd[0];
	}
	close(fd[0]);
	daemon_fd = fd[1];
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL); /* were it ignored, no exit status would be left to see */
	prctl(PR_SET_NAME, "ddraidd-fence");
	for (;;)
		turn();
}
