/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The connection to ddraidd (doc/wire.md, "ddraidctl and ddraidd").
 *
 * libqb's shared memory does not wake a reader whose peer has died, so answers are waited for in
 * short turns, with a look at the connection after each. A daemon that is alive and sends nothing,
 * not even progress, for IDLE_S is given up: it is stopped, or blocked in the kernel.
 *
 * That limit, and the user's, hold from the first step on. The kernel connects a client without the
 * daemon's help, and qb_ipcc_connect then waits for the daemon's word for ever; so the two halves
 * of it are called one by one (qb_ipcc_connect_async), with a poll in between.
 */
#include <errno.h>
#include <poll.h>
#include <qb/qbipcc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/core/limits.h"
#include "tools/ctl/ctl.h"

#define TURN_MS 250
#define IDLE_S 30u

struct ipc {
	qb_ipcc_connection_t *conn;
	const char *name;
	uint64_t deadline_ms; /* the user's; 0 = none */
	pid_t pid;            /* of the daemon; 0 = not known */
	bool heard;           /* it has answered something */
	char why[1024];       /* what the request waits for, as told last; "" = nothing */
	/* libqb wants its headers aligned */
	_Alignas(16) uint8_t buf[CTL_MAX_BYTES];
};

int exit_of_err(int err)
{
	switch (err) {
	case 0:
		return EXIT_OK;
	case -ENODEV:
		return EXIT_NO_ARRAY;
	case -EAGAIN:
	case -EBUSY:
	case -ETIMEDOUT:
		return EXIT_WAITS;
	default:
		return EXIT_FAILED;
	}
}

/* ---- a daemon that does not answer ---------------------------------------------------------- */

/* How the kernel has that process: 'T' stopped, 'D' in the kernel, ..., '?' not known. */
static char process_state(pid_t pid)
{
	char path[64], line[512], *after = NULL;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = pid > 0 ? fopen(path, "re") : NULL;
	if (f && fgets(line, sizeof(line), f))
		after = strrchr(line, ')'); /* of the process's name */
	if (f)
		fclose(f);
	return after && after[1] == ' ' && after[2] ? after[2] : '?';
}

#define WHERE_BYTES 256

/* What to look at. */
static const char *where_to_look(const struct ipc *c, char text[WHERE_BYTES])
{
	switch (process_state(c->pid)) {
	case 'T':
	case 't':
		snprintf(text, WHERE_BYTES,
			 "its process %d is stopped (SIGSTOP, or a debugger): 'kill -CONT %d' lets "
			 "it go on",
			 (int)c->pid, (int)c->pid);
		break;
	case 'D':
		snprintf(text, WHERE_BYTES,
			 "its process %d waits in the kernel: see the kernel's log, and "
			 "/proc/%d/stack",
			 (int)c->pid, (int)c->pid);
		break;
	case '?':
		snprintf(text, WHERE_BYTES, "see whether its process runs, and its log");
		break;
	default:
		snprintf(text, WHERE_BYTES, "see what its process %d does, and its log",
			 (int)c->pid);
	}
	return text;
}

/* Nothing was asked of it yet. */
static void complain_silent(const struct ipc *c, uint64_t began_ms)
{
	char where[WHERE_BYTES];

	complain("ddraidd (IPC name \"%s\") does not answer, for %.0f s now, and was not asked for "
		 "anything: %s",
		 c->name, (double)(now_ms() - began_ms) / 1000, where_to_look(c, where));
}

/* ---- connecting ----------------------------------------------------------------------------- */

static pid_t peer_of(int fd)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0 ? 0 : peer.pid;
}

/* 0; -ETIMEDOUT: nothing to read on it until then. */
static int readable_by(int fd, uint64_t until_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t now;
	int n;

	do {
		now = now_ms();
		n = poll(&p, 1, now < until_ms ? (int)(until_ms - now) : 0);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n ? 0 : -ETIMEDOUT;
}

/*
 * 0, -ETIMEDOUT if it does not answer, or another -errno. -EAGAIN of the first half: so many
 * clients wait for the daemon that the kernel takes no more.
 */
static int connect_by(struct ipc *c, uint64_t until_ms)
{
	int fd = -1, err;

	for (;;) {
		c->conn = qb_ipcc_connect_async(c->name, CTL_MAX_BYTES, &fd);
		if (c->conn)
			break;
		err = errno ? -errno : -EIO;
		if (err != -EAGAIN)
			return err;
		if (now_ms() >= until_ms)
			return -ETIMEDOUT;
		usleep(TURN_MS * 1000);
	}
	c->pid = peer_of(fd);
	err = readable_by(fd, until_ms);
	if (err) {
		qb_ipcc_disconnect(c->conn);
		c->conn = NULL;
		return err;
	}
	err = qb_ipcc_connect_continue(c->conn);
	if (err) /* then it has freed the connection */
		c->conn = NULL;
	return err < 0 ? err : err ? -EIO : 0;
}

static void complain_unreachable(const struct ipc *c, int err, uint64_t began_ms)
{
	if (err == -ETIMEDOUT)
		complain_silent(c, began_ms);
	else if (err == -EACCES || err == -EPERM)
		complain("ddraidd (IPC name \"%s\") does not let this user in: use sudo", c->name);
	else
		complain(
		    "ddraidd can't be reached on this machine (IPC name \"%s\"): %s; start it, "
		    "with systemd by 'systemctl start ddraidd'",
		    c->name, strerror(-err));
}

struct ipc *ipc_open(const char *name, uint64_t timeout_s)
{
	struct ipc *c = calloc(1, sizeof(*c));
	uint64_t began_ms = now_ms(), until_ms = began_ms + IDLE_S * 1000;
	int err;

	if (!c) {
		complain("there is no memory left");
		return NULL;
	}
	c->name = name;
	c->deadline_ms = timeout_s ? began_ms + timeout_s * 1000 : 0;
	if (c->deadline_ms && c->deadline_ms < until_ms)
		until_ms = c->deadline_ms;
	err = connect_by(c, until_ms);
	if (!err && qb_ipcc_get_buffer_size(c->conn) <= (int32_t)CTL_MAX_BYTES)
		return c;
	if (err) {
		complain_unreachable(c, err, began_ms);
	} else {
		complain(
		    "what listens as \"%s\" takes messages of another size: is it ddraidd, and "
		    "of this version?",
		    name);
		qb_ipcc_disconnect(c->conn);
	}
	free(c);
	return NULL;
}

void ipc_close(struct ipc *c)
{
	qb_ipcc_disconnect(c->conn);
	free(c);
}

static int send_request(struct ipc *c, Request *request)
{
	struct qb_ipc_request_header *head = (void *)c->buf;
	size_t bytes = sizeof(*head) + ddraid__ctl__request__get_packed_size(request);
	uint64_t began_ms = now_ms(), until_ms = began_ms + IDLE_S * 1000;
	ssize_t sent;

	if (c->deadline_ms && c->deadline_ms < until_ms)
		until_ms = c->deadline_ms;
	if (bytes > sizeof(c->buf)) {
		complain("the request is too long");
		return EXIT_USAGE;
	}
	memset(head, 0, sizeof(*head));
	head->id = CTL_REQUEST;
	head->size = (int32_t)bytes;
	ddraid__ctl__request__pack(request, c->buf + sizeof(*head));
	for (;;) {
		sent = qb_ipcc_send(c->conn, c->buf, bytes);
		if (sent != -EAGAIN || now_ms() >= until_ms)
			break;
		usleep(TURN_MS * 1000);
	}
	if (sent == (ssize_t)bytes)
		return EXIT_OK;
	if (sent == -EAGAIN) {
		complain_silent(c, began_ms);
		return EXIT_UNREACHABLE;
	}
	complain("ddraidd does not take the request: %s; see its log", strerror((int)-sent));
	return EXIT_UNREACHABLE;
}

/* Of each report the last one counts: what was waited for may have come. */
static void waits_note(struct ipc *c, const Ddraid__Ctl__Progress *p)
{
	const char *before =
	    strcmp(p->text, PROGRESS_REFUSED) ? "and waits for" : "but the array is refused:";

	if (!p->waits[0])
		c->why[0] = '\0';
	else if (p->waits_node)
		snprintf(c->why, sizeof(c->why), ", %s %s (node %u)", before, p->waits,
			 p->waits_node);
	else
		snprintf(c->why, sizeof(c->why), ", %s %s", before, p->waits);
}

static int out_of_time(const struct ipc *c)
{
	char where[WHERE_BYTES], state = process_state(c->pid);

	if (c->heard && state != 'T' && state != 't' && state != 'D')
		complain("not through within the timeout; it goes on in the background%s", c->why);
	else
		complain("ddraidd did not answer within the timeout; what was asked for goes on "
			 "when it does: %s",
			 where_to_look(c, where));
	return EXIT_WAITS;
}

/* What it means that nothing came for a turn: EXIT_OK = wait on. */
static int give_up(struct ipc *c, ssize_t n, uint64_t idle_ms)
{
	uint64_t now = now_ms();
	char where[WHERE_BYTES];

	if ((n != -EAGAIN && n != -ETIMEDOUT && n != -EINTR) || !qb_ipcc_is_connected(c->conn)) {
		complain(
		    "the connection to ddraidd broke; what became of the request is not known: "
		    "see 'ddraidctl status' when it is back");
		return EXIT_UNKNOWN;
	}
	if (c->deadline_ms && now >= c->deadline_ms)
		return out_of_time(c);
	if (now >= idle_ms) {
		complain("ddraidd has not answered for %u s; what became of the request is not "
			 "known: %s",
			 IDLE_S, where_to_look(c, where));
		return EXIT_UNKNOWN;
	}
	return EXIT_OK;
}

/* One reply, or NULL and an exit status. */
static Reply *receive(struct ipc *c, int *status)
{
	const struct qb_ipc_response_header *head = (void *)c->buf;
	uint64_t idle_ms = now_ms() + IDLE_S * 1000;
	Reply *reply = NULL;
	ssize_t n;

	do {
		n = qb_ipcc_recv(c->conn, c->buf, sizeof(c->buf), TURN_MS);
		if (n < 0)
			*status = give_up(c, n, idle_ms);
	} while (n < 0 && !*status);
	if (n < 0)
		return NULL;
	if ((size_t)n >= sizeof(*head) && head->id == CTL_REPLY && head->size == n)
		reply = ddraid__ctl__reply__unpack(NULL, (size_t)n - sizeof(*head),
						   c->buf + sizeof(*head));
	if (reply && (reply->err > 0 || reply->err < -DDR_ERRNO_MAX)) {
		ddraid__ctl__reply__free_unpacked(reply, NULL);
		reply = NULL;
	}
	if (!reply) {
		complain("ddraidd answers in a way that this ddraidctl doesn't understand: install "
			 "the same version of both");
		*status = EXIT_UNKNOWN;
	}
	return reply;
}

static int take_reply(struct ipc *c, const Reply *reply, ipc_take_fn take, void *arg)
{
	int status = EXIT_OK;

	if (reply->err) {
		if (reply->error[0])
			complain("%s", reply->error);
		else if (reply->err == -ENOSYS)
			complain("ddraidd does not know this request: install the same version of "
				 "both");
		else
			complain("ddraidd refused, without a reason: %s", strerror(-reply->err));
		return exit_of_err(reply->err);
	}
	for (size_t i = 0; i < reply->n_warning; i++)
		warn(reply->warning[i]);
	if (take)
		status = take(arg, reply);
	if (reply->body_case == DDRAID__CTL__REPLY__BODY_PROGRESS) {
		waits_note(c, reply->progress);
		progress_show(reply->progress);
	}
	return status;
}

int ipc_request(struct ipc *c, Request *request, ipc_take_fn take, void *arg)
{
	int status = send_request(c, request), one;
	bool final = false;

	c->heard = false;
	c->why[0] = '\0';
	while (!status && !final) {
		Reply *reply = receive(c, &status);

		if (!reply)
			break;
		c->heard = true;
		final = reply->final || reply->err;
		one = take_reply(c, reply, take, arg);
		ddraid__ctl__reply__free_unpacked(reply, NULL);
		if (final || one)
			status = one;
		if (c->deadline_ms && !final && !status && now_ms() >= c->deadline_ms)
			status = out_of_time(c);
	}
	progress_end();
	return status;
}
