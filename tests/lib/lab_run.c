/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * node_exec of the lab (lab.sh): commands in its machines, at the price of a fork and an exec
 * there.
 *
 *   lab-run serve ADDRESS PORT
 *      In a machine, for as long as it runs: each connection brings a command.
 *
 *   lab-run exec NETNS ADDRESS PORT [NAME=VALUE...] -- COMMAND [ARGUMENT...]
 *      On the host: runs it in the machine of that address, which NETNS (a name in /run/netns)
 *      leads to, in this directory and with these variables besides the machine's own. Standard
 *      input, output and error output are the command's. Ends when all of them are closed there,
 *      with the command's exit status, 128 + its signal, or 255 and a sentence if there was none.
 *      With LAB_ALARM=SECONDS among the variables it has SIGALRM to come after so long.
 *
 * A command and its descendants have sockets for them, from which nobody in the machine has to
 * copy: one for input and output, one for error output. They lead back to the host's side, which
 * listens for them at a port of its own. The connection that they came by brings the bytes of what
 * follows (32 bits, big-endian) and strings, each with its 0: the host's port, directory, count of
 * variables, those, the command's words. It takes the status back, one byte.
 *
 * No secrets: whoever reaches the management network may do anything here.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOST 255
#define MAX_REQUEST (1u << 20)
#define MAX_WORDS 4096u
#define REFUSED_MS 5000 /* so long a machine that boots may not listen yet */

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
	int err = errno;
	va_list ap;

	fprintf(stderr, "lab-run: ");
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fprintf(stderr, err ? ": %s\n" : "\n", strerror(err));
	exit(LOST);
}

static struct sockaddr_in address_of(const char *ip, uint16_t port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};

	errno = 0;
	if (inet_pton(AF_INET, ip, &at.sin_addr) != 1)
		die("not an address: %s", ip);
	return at;
}

static int socket_new(void)
{
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		die("socket");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	return fd;
}

static void write_all(int fd, const void *data, size_t bytes)
{
	const char *p = data;

	while (bytes) {
		ssize_t n = write(fd, p, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			die("write");
		p += n;
		bytes -= (size_t)n;
	}
}

/* False: it ended before. */
static bool read_all(int fd, void *data, size_t bytes)
{
	char *p = data;

	while (bytes) {
		ssize_t n = read(fd, p, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		bytes -= (size_t)n;
	}
	return true;
}

/* ---- in the machine ------------------------------------------------------------------------- */

static int back_to(struct sockaddr_in host, uint16_t port)
{
	int fd = socket_new();

	host.sin_port = htons(port);
	if (connect(fd, (struct sockaddr *)&host, sizeof(host)))
		die("connect to port %u of the host", port);
	return fd;
}

__attribute__((noreturn)) static void command_run(char **word, uint32_t words, int io, int err)
{
	uint32_t vars = (uint32_t)strtoul(word[2], NULL, 10);
	const char *seconds;
	int failed;

	signal(SIGPIPE, SIG_DFL);
	if (dup2(io, 0) < 0 || dup2(io, 1) < 0 || dup2(err, 2) < 0)
		die("dup2");
	errno = 0;
	if (vars > words - 4)
		die("%u variables, of %u words", vars, words);
	for (uint32_t i = 0; i < vars; i++)
		putenv(word[3 + i]);
	if (chdir(word[1]))
		die("%s", word[1]);
	if ((seconds = getenv("LAB_ALARM")))
		alarm((unsigned)strtoul(seconds, NULL, 10));
	execvp(word[3 + vars], word + 3 + vars);
	failed = errno;
	fprintf(stderr, "lab-run: %s: %s\n", word[3 + vars], strerror(failed));
	_exit(failed == ENOENT ? 127 : 126);
}

/* One connection, in a process of its own. */
static void serve_one(int fd, struct sockaddr_in host)
{
	uint32_t bytes, words = 0;
	char *text, **word;
	int io, err, status;
	uint8_t answer;
	pid_t pid;

	if (!read_all(fd, &bytes, sizeof(bytes)) || !(bytes = ntohl(bytes)) || bytes > MAX_REQUEST)
		return;
	text = malloc(bytes);
	word = calloc(MAX_WORDS + 1, sizeof(*word));
	if (!text || !word || !read_all(fd, text, bytes) || text[bytes - 1])
		return;
	for (uint32_t i = 0; i < bytes && words < MAX_WORDS; i += (uint32_t)strlen(text + i) + 1)
		word[words++] = text + i;
	if (words < 4)
		return;
	io = back_to(host, (uint16_t)strtoul(word[0], NULL, 10));
	err = back_to(host, (uint16_t)strtoul(word[0], NULL, 10));
	pid = fork();
	if (!pid)
		command_run(word, words, io, err);
	close(io);
	close(err);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return;
	answer = (uint8_t)(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
	write_all(fd, &answer, 1);
}

static int serve(const char *ip, uint16_t port)
{
	struct sockaddr_in at = address_of(ip, port), host;
	int fd = socket_new();

	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 64))
		die("%s port %u", ip, port);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_IGN); /* nobody waits for those of the connections */
	for (;;) {
		socklen_t size = sizeof(host);
		int one = 1, c = accept4(fd, (struct sockaddr *)&host, &size, SOCK_CLOEXEC);

		if (c < 0)
			continue;
		setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (!fork()) {
			signal(SIGCHLD, SIG_DFL);
			close(fd);
			serve_one(c, host);
			_exit(0);
		}
		close(c);
	}
}

/* ---- on the host ---------------------------------------------------------------------------- */

static void enter(const char *netns)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/%s", netns);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		die("%s", path);
	close(fd);
}

static int connect_to(const char *ip, uint16_t port)
{
	struct sockaddr_in at = address_of(ip, port);

	for (int ms = 0;; ms += 50) {
		int fd = socket_new();

		if (!connect(fd, (struct sockaddr *)&at, sizeof(at)))
			return fd;
		if (errno != ECONNREFUSED || ms >= REFUSED_MS)
			die("%s", ip);
		close(fd);
		usleep(50000);
	}
}

static char request[MAX_REQUEST];
static uint32_t request_bytes;

static void request_add(const char *s)
{
	size_t n = strlen(s) + 1;

	errno = E2BIG;
	if (request_bytes + n > sizeof(request))
		die("the command");
	memcpy(request + request_bytes, s, n);
	request_bytes += (uint32_t)n;
}

static uint16_t listen_any(int *fd)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t size = sizeof(at);

	*fd = socket_new();
	if (bind(*fd, (struct sockaddr *)&at, size) || listen(*fd, 2) ||
	    getsockname(*fd, (struct sockaddr *)&at, &size))
		die("a port of the host");
	return ntohs(at.sin_port);
}

/* The machine's end, if it comes before a connection: it can't come any more. */
static int accept_of(int listener, int control)
{
	struct pollfd p[] = {{listener, POLLIN, 0}, {control, POLLIN, 0}};
	int fd;

	while (poll(p, 2, -1) < 0 && errno == EINTR)
		;
	errno = 0;
	if (!p[0].revents)
		die("the machine did not run the command");
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		die("accept");
	return fd;
}

/* False: it is at its end. */
static bool copy(int from, int to)
{
	char buffer[65536];
	ssize_t n = read(from, buffer, sizeof(buffer));

	if (n < 0 && errno == EINTR)
		return true;
	if (n <= 0)
		return false;
	write_all(to, buffer, (size_t)n);
	return true;
}

/* Standard input goes by a process of its own: a command that does not read does not hold up what
 * it writes. 0: there is none; a terminal or /dev/null has nothing to say. */
static pid_t feed(int io, int control, int err)
{
	struct stat st;
	pid_t pid;

	if (fstat(0, &st) || S_ISCHR(st.st_mode)) {
		shutdown(io, SHUT_WR);
		return 0;
	}
	pid = fork();
	if (pid)
		return pid;
	close(control);
	close(err);
	signal(SIGPIPE, SIG_DFL);
	while (copy(0, io))
		;
	shutdown(io, SHUT_WR);
	_exit(0);
}

static int run(const char *netns, const char *ip, uint16_t port, char **argv)
{
	char number[16], cwd[4096];
	int listener, control, io, err, vars = 0;
	uint32_t bytes;
	uint8_t status = LOST;
	bool out_open = true, err_open = true;
	pid_t feeder;

	while (argv[vars] && strcmp(argv[vars], "--"))
		vars++;
	errno = 0;
	if (!argv[vars] || !argv[vars + 1])
		die("no command");
	if (!getcwd(cwd, sizeof(cwd)))
		die("the directory");
	enter(netns);
	snprintf(number, sizeof(number), "%u", listen_any(&listener));
	request_add(number);
	request_add(cwd);
	snprintf(number, sizeof(number), "%d", vars);
	request_add(number);
	for (int i = 0; argv[i]; i++)
		if (i != vars)
			request_add(argv[i]);
	control = connect_to(ip, port);
	bytes = htonl(request_bytes);
	write_all(control, &bytes, sizeof(bytes));
	write_all(control, request, request_bytes);
	io = accept_of(listener, control);
	err = accept_of(listener, control);
	close(listener);
	feeder = feed(io, control, err);
	while (out_open || err_open) {
		struct pollfd p[] = {{out_open ? io : -1, POLLIN, 0},
				     {err_open ? err : -1, POLLIN, 0}};

		if (poll(p, 2, -1) < 0)
			continue;
		if (p[0].revents)
			out_open = copy(io, 1);
		if (p[1].revents)
			err_open = copy(err, 2);
	}
	if (feeder > 0)
		kill(feeder, SIGKILL);
	errno = 0;
	if (!read_all(control, &status, 1))
		die("the machine ended, or its lab-run");
	return status;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "serve"))
		return serve(argv[2], (uint16_t)atoi(argv[3]));
	if (argc > 5 && !strcmp(argv[1], "exec"))
		return run(argv[2], argv[3], (uint16_t)atoi(argv[4]), argv + 5);
	fprintf(
	    stderr,
	    "usage: lab-run serve ADDRESS PORT\n"
	    "       lab-run exec NETNS ADDRESS PORT [NAME=VALUE...] -- COMMAND [ARGUMENT...]\n");
	return 2;
}
