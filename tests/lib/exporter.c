// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An NBD exporter that can be told to end a client for good: a super-server that starts one
 * `nbdkit -s` per connection.
 *
 *	exporter serve DIR ADDRESS PORT NBDKIT-ARG...	(as pid 1 of a pid namespace)
 *	exporter ctl DIR COMMAND
 *
 * What fencing needs is the answer "nothing that this node ever sent can change the disk any more"
 * (R5). Cutting the network is not that answer: what the exporter has received waits in its socket
 * and in its threads, and lands later. Nor is closing the socket (ss -K): threads that have read
 * their request go on. And neither FLUSH nor a time-out from another connection says
 * anything about them. So each connection has a process of its own. SIGKILL ends it, with its
 * socket and whatever waited in it; once waitpid has returned, none of its threads is inside a
 * write, since a process is not reaped before its last thread has left the kernel. The members
 * are plain files, written by pwrite and fallocate in those threads and by nobody else, so after
 * that nothing of it lands. An fsync of the file then makes durable what did land.
 *
 * Order in a fence, by whoever asks: create DIR/deny/ADDRESS, then send `end ADDRESS`. The server
 * accepts and ends in one thread, so a connection is either in its table when `end` comes, and
 * is killed, or is accepted afterwards, and is refused. The deny file survives the
 * server, so a server that was killed and comes back refuses too.
 *
 * A server that does not run can't answer. Each of its processes holds a lock on DIR/lock,
 * inherited and never released: `ctl` takes that lock, which proves that all of them are gone,
 * and does the fsync itself.
 *
 * All processes share one file and with it the page cache, hence FLUSH and FUA mean the same on all
 * connections and nbdkit's CAN_MULTI_CONN is true. With a file `cache` in DIR the disk has a
 * volatile cache (volatile.c), and what is only there when a fence comes stays there.
 *
 * Commands: `end ADDRESS [NS]` kills the connections from there (those accepted before NS, in
 * nanoseconds since 1970, if given), `list` names all of them, `stop` and `cont` freeze and thaw
 * the exporter, `stall ADDRESS` freezes the connections from there, `ping`. Answer: lines, the last
 * one "ok ..." or "error ...".
 *
 * In DIR: disk (the member), ctl (socket), lock, deny/, exporter.log (accepts, ends, refusals),
 * req/ADDRESS.SEQ.log (nbdkit's log filter: each request of that connection with its time).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 256
#define COMMAND_BYTES 256
#define ARGS_MAX 64
#define LOCK_WAIT_MS 10000 /* for the processes of a killed server to be gone */

struct connection {
	pid_t pid; /* 0: free */
	struct in_addr peer;
	uint64_t accepted_ns;
	uint64_t seq;
};

static struct connection table[CONNECTIONS_MAX];
static uint64_t next_seq = 1;
static bool frozen;
static char **nbdkit_args;
static int nbdkit_arg_count;

static void die(const char *what)
{
	fprintf(stderr, "exporter: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t realtime_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* In the form of nbdkit's log filter, so that both sort as one. */
__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
	uint64_t now = realtime_ns();
	time_t s = (time_t)(now / 1000000000u);
	struct tm tm;
	char date[32], line[512];
	int at;
	va_list ap;

	localtime_r(&s, &tm);
	strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &tm);
	at = snprintf(line, sizeof line, "%s.%06u ", date, (unsigned)(now / 1000u % 1000000u));
	va_start(ap, format);
	vsnprintf(line + at, sizeof line - (size_t)at, format, ap);
	va_end(ap);
	dprintf(STDERR_FILENO, "%s\n", line);
}

static int sync_disk(void)
{
	int fd = open("disk", O_RDWR | O_CLOEXEC), err;

	if (fd < 0)
		return -errno;
	err = fsync(fd) ? -errno : 0;
	close(fd);
	return err;
}

static bool denied(struct in_addr peer)
{
	char path[64], text[INET_ADDRSTRLEN];

	inet_ntop(AF_INET, &peer, text, sizeof text);
	snprintf(path, sizeof path, "deny/%s", text);
	return access(path, F_OK) == 0 || errno != ENOENT;
}

/* ---- connections ---- */

_Noreturn static void run_nbdkit(int fd, const struct connection *c)
{
	char log[96], peer[INET_ADDRSTRLEN];
	char *argv[ARGS_MAX + 8];
	int n = 0;

	inet_ntop(AF_INET, &c->peer, peer, sizeof peer);
	snprintf(log, sizeof log, "logfile=req/%s.%06" PRIu64 ".log", peer, c->seq);
	argv[n++] = (char *)"nbdkit";
	argv[n++] = (char *)"-s";
	argv[n++] = (char *)"--filter=log";
	for (int i = 0; i < nbdkit_arg_count; i++)
		if (nbdkit_args[i][0] == '-')
			argv[n++] = nbdkit_args[i];
	if (access("cache", F_OK) == 0) {
		argv[n++] = (char *)"../volatile.so"; /* in a folder, so no name of a plugin that is
							 installed */
	} else {
		argv[n++] = (char *)"file";
		argv[n++] = (char *)"disk";
	}
	argv[n++] = log;
	for (int i = 0; i < nbdkit_arg_count; i++)
		if (nbdkit_args[i][0] != '-')
			argv[n++] = nbdkit_args[i];
	argv[n] = NULL;
	if (dup2(fd, STDIN_FILENO) < 0 || dup2(fd, STDOUT_FILENO) < 0)
		_exit(1);
	execvp(argv[0], argv);
	_exit(127);
}

static void start_connection(int fd, struct in_addr peer, const char *peer_text)
{
	struct connection *c = NULL;
	sigset_t none;

	for (int i = 0; i < CONNECTIONS_MAX && !c; i++)
		if (table[i].pid == 0)
			c = &table[i];
	if (!c) {
		note("refuse peer=%s: %d connections are open", peer_text, CONNECTIONS_MAX);
		return;
	}
	c->peer = peer;
	c->accepted_ns = realtime_ns();
	c->seq = next_seq++;
	c->pid = fork();
	if (c->pid == 0) {
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		run_nbdkit(fd, c);
	}
	if (c->pid < 0) {
		c->pid = 0;
		note("refuse peer=%s: fork: %s", peer_text, strerror(errno));
		return;
	}
	note("accept peer=%s seq=%" PRIu64 " pid=%d", peer_text, c->seq, (int)c->pid);
}

static void accept_one(int listener)
{
	struct linger reset = {.l_onoff = 1, .l_linger = 0};
	struct sockaddr_in from;
	socklen_t bytes = sizeof from;
	char text[INET_ADDRSTRLEN];
	int one = 1;
	int fd = accept4(listener, (struct sockaddr *)&from, &bytes, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	inet_ntop(AF_INET, &from.sin_addr, text, sizeof text);
	if (denied(from.sin_addr)) {
		note("refuse peer=%s: fenced", text);
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	} else {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		start_connection(fd, from.sin_addr, text);
	}
	close(fd);
}

static void forget(pid_t pid)
{
	for (int i = 0; i < CONNECTIONS_MAX; i++)
		if (table[i].pid == pid) {
			note("close seq=%" PRIu64, table[i].seq);
			table[i].pid = 0;
		}
}

static void reap(void)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
		forget(pid);
}

/* Returns how many. All of them are killed before the first is waited for. */
static int end_connections(struct in_addr peer, uint64_t before_ns)
{
	bool hit[CONNECTIONS_MAX] = {false};
	int n = 0;

	for (int i = 0; i < CONNECTIONS_MAX; i++) {
		const struct connection *c = &table[i];

		if (c->pid == 0 || c->peer.s_addr != peer.s_addr)
			continue;
		if (before_ns && c->accepted_ns >= before_ns)
			continue;
		hit[i] = true;
		n++;
		kill(c->pid, SIGKILL);
	}
	for (int i = 0; i < CONNECTIONS_MAX; i++) {
		if (!hit[i])
			continue;
		while (waitpid(table[i].pid, NULL, 0) < 0 && errno == EINTR)
			;
		forget(table[i].pid);
	}
	return n;
}

/* ---- commands ---- */

static void answer_end(int fd, const char *command)
{
	char text[INET_ADDRSTRLEN];
	unsigned long long before_ns = 0;
	struct in_addr peer;
	int n, err;

	if (sscanf(command, "end %15s %llu", text, &before_ns) < 1 ||
	    inet_pton(AF_INET, text, &peer) != 1) {
		dprintf(fd, "error no such address\n");
		return;
	}
	n = end_connections(peer, before_ns);
	err = sync_disk();
	note("end peer=%s before=%llu connections=%d sync=%d", text, before_ns, n, err);
	if (err)
		dprintf(fd, "error fsync: %s\n", strerror(-err));
	else
		dprintf(fd, "ok %d connections ended\n", n);
}

static void answer_list(int fd)
{
	char text[INET_ADDRSTRLEN];
	int n = 0;

	for (int i = 0; i < CONNECTIONS_MAX; i++) {
		if (table[i].pid == 0)
			continue;
		inet_ntop(AF_INET, &table[i].peer, text, sizeof text);
		dprintf(fd, "%s %" PRIu64 " %" PRIu64 "\n", text, table[i].seq,
			table[i].accepted_ns);
		n++;
	}
	dprintf(fd, "ok %d\n", n);
}

static void freeze(bool on)
{
	frozen = on;
	for (int i = 0; i < CONNECTIONS_MAX; i++)
		if (table[i].pid)
			kill(table[i].pid, on ? SIGSTOP : SIGCONT);
	note("%s", on ? "stop" : "cont");
}

/* "stall ADDRESS": what waits in these connections stays there until they are ended. */
static void answer_stall(int fd, const char *address)
{
	struct in_addr peer;
	int n = 0;

	if (inet_pton(AF_INET, address, &peer) != 1) {
		dprintf(fd, "error no such address\n");
		return;
	}
	for (int i = 0; i < CONNECTIONS_MAX; i++)
		if (table[i].pid && table[i].peer.s_addr == peer.s_addr) {
			kill(table[i].pid, SIGSTOP);
			n++;
		}
	note("stall peer=%s connections=%d", address, n);
	dprintf(fd, "ok %d connections stalled\n", n);
}

static void answer(int listener)
{
	struct timeval limit = {.tv_sec = 2};
	char command[COMMAND_BYTES];
	ssize_t got;
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	got = read(fd, command, sizeof command - 1);
	command[got < 0 ? 0 : got] = 0;
	if (strncmp(command, "end ", 4) == 0) {
		answer_end(fd, command);
	} else if (strncmp(command, "stall ", 6) == 0) {
		answer_stall(fd, command + 6);
	} else if (strcmp(command, "list") == 0) {
		answer_list(fd);
	} else if (strcmp(command, "stop") == 0 || strcmp(command, "cont") == 0) {
		freeze(command[0] == 's');
		dprintf(fd, "ok\n");
	} else if (strcmp(command, "ping") == 0) {
		dprintf(fd, "ok\n");
	} else {
		dprintf(fd, "error unknown command\n");
	}
	close(fd);
}

/* ---- serve ---- */

static int listen_tcp(const char *address, const char *port)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;

	if (inet_pton(AF_INET, address, &in.sin_addr) != 1) {
		errno = EINVAL;
		die(address);
	}
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
	    bind(fd, (struct sockaddr *)&in, sizeof in) || listen(fd, 64))
		die("TCP socket");
	return fd;
}

static int listen_ctl(void)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "ctl"};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	unlink("ctl");
	if (fd < 0 || bind(fd, (struct sockaddr *)&un, sizeof un) || listen(fd, 16))
		die("ctl");
	return fd;
}

/* 0, or -ETIMEDOUT: somebody else holds it. */
static int lock_within(int fd, int limit_ms)
{
	for (int waited_ms = 0; flock(fd, LOCK_EX | LOCK_NB); waited_ms += 10) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			die("lock");
		if (waited_ms >= limit_ms)
			return -ETIMEDOUT;
		usleep(10000);
	}
	return 0;
}

/* Held as long as any process of this server is there; hence inherited. */
static void take_lock(void)
{
	int fd = open("lock", O_RDWR | O_CREAT, 0600);

	if (fd < 0)
		die("lock");
	errno = EBUSY;
	if (lock_within(fd, LOCK_WAIT_MS))
		die("lock: another exporter on this directory");
}

static void redirect(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
		die(path);
	close(fd);
}

/* Numbers of connections go on over restarts, so that no log is overwritten. */
static void next_seq_init(void)
{
	char path[64];
	int fd;

	for (uint64_t start = 1;; start++) {
		snprintf(path, sizeof path, "req/.start.%" PRIu64, start);
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		if (fd < 0 && errno != EEXIST)
			die(path);
		if (fd >= 0) {
			close(fd);
			next_seq = start * 1000;
			return;
		}
	}
}

_Noreturn static void serve(const char *dir, const char *address, const char *port)
{
	struct signalfd_siginfo info;
	struct pollfd p[3];
	sigset_t set;

	if (chdir(dir))
		die(dir);
	take_lock();
	next_seq_init();
	redirect("exporter.log");
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	p[0] =
	    (struct pollfd){.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), .events = POLLIN};
	p[1] = (struct pollfd){.fd = listen_tcp(address, port), .events = POLLIN};
	p[2] = (struct pollfd){.fd = listen_ctl(), .events = POLLIN};
	note("serve %s:%s", address, port);
	for (;;) {
		p[1].events = frozen ? 0 : POLLIN;
		if (poll(p, 3, -1) < 0 && errno != EINTR)
			die("poll");
		while (read(p[0].fd, &info, sizeof info) > 0)
			;
		reap();
		if (p[2].revents)
			answer(p[2].fd);
		else if (p[1].revents && !frozen)
			accept_one(p[1].fd);
	}
}

/* ---- ctl ---- */

/* No server: prove that it and all its children are gone, then do what `end` does at the end. */
static int without_server(const char *command)
{
	int fd = open("lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600), err;

	if (strncmp(command, "end ", 4) != 0) {
		printf("error not running\n");
		return 1;
	}
	if (fd < 0)
		die("lock");
	if (lock_within(fd, LOCK_WAIT_MS)) {
		printf("error the server does not answer, but its processes live\n");
		return 1;
	}
	err = sync_disk();
	if (err)
		printf("error fsync: %s\n", strerror(-err));
	else
		printf("ok not running\n");
	return err ? 1 : 0;
}

static int ctl(const char *dir, int argc, char **argv)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "ctl"};
	char command[COMMAND_BYTES] = "", text[65536];
	size_t have = 0;
	ssize_t got;
	char *last;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	for (int i = 0; i < argc; i++) {
		have += (size_t)snprintf(command + have, sizeof command - have, "%s%s",
					 i ? " " : "", argv[i]);
		if (have >= sizeof command)
			return 2;
	}
	if (fd < 0 || chdir(dir))
		die(dir);
	if (connect(fd, (struct sockaddr *)&un, sizeof un))
		return without_server(command);
	if (write(fd, command, have) != (ssize_t)have)
		die("write");
	have = 0;
	while ((got = read(fd, text + have, sizeof text - 1 - have)) > 0)
		have += (size_t)got;
	text[have] = 0;
	fputs(text, stdout);
	/* Without a complete answer the server died meanwhile. */
	if (have == 0 || text[have - 1] != '\n')
		return without_server(command);
	text[have - 1] = 0;
	last = strrchr(text, '\n');
	return strncmp(last ? last + 1 : text, "ok", 2) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	if (argc >= 4 && strcmp(argv[1], "ctl") == 0)
		return ctl(argv[2], argc - 3, argv + 3);
	if (argc >= 5 && argc <= 5 + ARGS_MAX && strcmp(argv[1], "serve") == 0) {
		nbdkit_args = argv + 5;
		nbdkit_arg_count = argc - 5;
		serve(argv[2], argv[3], argv[4]);
	}
	fprintf(stderr, "usage: exporter serve DIR ADDRESS PORT NBDKIT-ARG...\n"
			"       exporter ctl DIR COMMAND\n");
	return 2;
}
