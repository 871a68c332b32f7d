/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The connection to ddraidd (doc/wire.md, "ddraidctl and ddraidd").
 *
 * A daemon that is alive and sends nothing, not even progress, for IDLE_S is given up: it is
 * stopped, or blocked in the kernel. That limit, and the user's, hold from the first step on. The
 * kernel connects a client without the daemon's help, so nothing is asked before the daemon has
 * greeted: one that never does was not asked for anything.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/limits.h"
#include "tools/ctl/ctl.h"

#define TURN_MS 250
#define IDLE_S 30u

struct ipc {
	int fd;
	struct sockaddr_un at;
	uint64_t deadline_ms; /* the user's; 0 = none */
	pid_t pid;            /* of the daemon; 0 = not known */
	bool heard;           /* it has answered something */
	char why[1024];       /* what the request waits for, as told last; "" = nothing */
	size_t got;           /* bytes in buf */
	uint8_t buf[CTL_MAX_BYTES];
};

/* The exit status for a Reply.err. */
static int exit_of_err(int err)
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

	complain("ddraidd (socket %s) does not answer, for %.0f s now, and was not asked for "
		 "anything: %s",
		 c->at.sun_path, (double)(now_ms() - began_ms) / 1000, where_to_look(c, where));
}

/* ---- frames --------------------------------------------------------------------------------- */

/* 0; -ETIMEDOUT: it is not ready until then. */
static int ready_by(const struct ipc *c, short events, uint64_t until_ms)
{
	struct pollfd p = {.fd = c->fd, .events = events};
	uint64_t now;
	int n;

	do {
		now = now_ms();
		n = poll(&p, 1, now < until_ms ? (int)(until_ms - now) : 0);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n ? 0 : -ETIMEDOUT;
}

/* IDLE_S from now on, or the user's deadline. */
static uint64_t patience(const struct ipc *c)
{
	uint64_t until_ms = now_ms() + IDLE_S * 1000;

	return c->deadline_ms && c->deadline_ms < until_ms ? c->deadline_ms : until_ms;
}

/* Until there are so many bytes in buf. 0; -ECONNRESET: the daemon has gone; -ETIMEDOUT. */
static int fill(struct ipc *c, size_t bytes, uint64_t until_ms)
{
	int err = 0;

	while (c->got < bytes && !err) {
		ssize_t n = recv(c->fd, c->buf + c->got, bytes - c->got, 0);

		if (n > 0)
			c->got += (size_t)n;
		else if (!n || (errno != EAGAIN && errno != EINTR))
			err = -ECONNRESET;
		else
			err = ready_by(c, POLLIN, until_ms);
	}
	return err;
}

/* The next reply. 0; -EBADMSG: it is none; or as fill. */
static int reply_get(struct ipc *c, uint64_t until_ms, Reply **reply)
{
	int err = fill(c, CTL_HEAD_BYTES, until_ms);
	size_t bytes = err ? 0 : ctl_head_get(c->buf, CTL_REPLY);

	if (!err)
		err = bytes ? fill(c, bytes, until_ms) : -EBADMSG;
	if (err)
		return err;
	c->got = 0;
	*reply = ddraid__ctl__reply__unpack(NULL, bytes - CTL_HEAD_BYTES, c->buf + CTL_HEAD_BYTES);
	if (*reply && ((*reply)->err > 0 || (*reply)->err < -DDR_ERRNO_MAX)) {
		ddraid__ctl__reply__free_unpacked(*reply, NULL);
		*reply = NULL;
	}
	return *reply ? 0 : -EBADMSG;
}

/* ---- connecting ----------------------------------------------------------------------------- */

/* False, with a sentence: it is not known to be root's or this user's. */
static bool is_trusted(struct ipc *c)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0) {
		complain("whose socket %s is can't be found out: %s; nothing was asked there",
			 c->at.sun_path, strerror(errno));
		return false;
	}
	c->pid = peer.pid;
	if (!peer.uid || peer.uid == geteuid())
		return true;
	complain("on %s listens user %lu (process %d), neither root nor this user: it is not "
		 "trusted, and was not asked for anything; end that process and start ddraidd, or "
		 "name another socket by --ipc",
		 c->at.sun_path, (unsigned long)peer.uid, (int)peer.pid);
	return false;
}

/* 0, -ETIMEDOUT or another -errno. EAGAIN: so many clients wait for the daemon that the kernel
 * takes no more. */
static int connect_by(struct ipc *c, uint64_t until_ms)
{
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->fd < 0)
		return -errno;
	while (connect(c->fd, (struct sockaddr *)&c->at, sizeof(c->at)) < 0) {
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		if (now_ms() >= until_ms)
			return -ETIMEDOUT;
		usleep(TURN_MS * 1000);
	}
	return 0;
}

static void complain_unreachable(const struct ipc *c, int err, uint64_t began_ms)
{
	const char *path = c->at.sun_path;

	if (err == -ETIMEDOUT)
		complain_silent(c, began_ms);
	else if (err == -EACCES || err == -EPERM)
		complain("ddraidd (socket %s) does not let this user in: use sudo", path);
	else if (err == -EBADMSG)
		complain("what listens on %s does not greet as ddraidd does: is it ddraidd, and of "
			 "this version?",
			 path);
	else
		complain("ddraidd can't be reached on this machine (socket %s): %s; start it, with "
			 "systemd by 'systemctl start ddraidd'",
			 path, strerror(-err));
}

/* 0: it lets us in. 1: it doesn't, and that was said. */
static int greeting_take(struct ipc *c, uint64_t until_ms)
{
	Reply *reply = NULL;
	int err = reply_get(c, until_ms, &reply);

	if (err)
		return err;
	if (reply->err && reply->error[0]) {
		complain("%s", reply->error);
		err = 1;
	} else {
		err = reply->final ? -EBADMSG : reply->err;
	}
	ddraid__ctl__reply__free_unpacked(reply, NULL);
	return err;
}

/* A name is one in the run directory that is compiled in. */
static void address_set(struct ipc *c, const char *name)
{
	bool path = strchr(name, '/');

	c->at.sun_family = AF_UNIX;
	snprintf(c->at.sun_path, sizeof(c->at.sun_path), "%s%s%s", path ? "" : CTL_RUN_DIR "/",
		 name, path ? "" : CTL_SUFFIX);
}

struct ipc *ipc_open(const char *name, uint64_t timeout_s)
{
	struct ipc *c = calloc(1, sizeof(*c));
	uint64_t began_ms = now_ms(), until_ms;
	int err;

	if (!c) {
		complain("there is no memory left");
		return NULL;
	}
	c->fd = -1;
	c->deadline_ms = timeout_s ? began_ms + timeout_s * 1000 : 0;
	until_ms = patience(c);
	address_set(c, name);
	err = connect_by(c, until_ms);
	if (!err)
		err = is_trusted(c) ? greeting_take(c, until_ms) : 1;
	if (!err)
		return c;
	if (err < 0)
		complain_unreachable(c, err, began_ms);
	ipc_close(c);
	return NULL;
}

void ipc_close(struct ipc *c)
{
	if (c->fd >= 0)
		close(c->fd);
	free(c);
}

/* ---- a request ------------------------------------------------------------------------------ */

/* 0 or -errno. What was sent in part only is no request to the daemon. */
static int send_all(struct ipc *c, size_t bytes, uint64_t until_ms)
{
	size_t sent = 0;
	int err = 0;

	while (sent < bytes && !err) {
		ssize_t n = send(c->fd, c->buf + sent, bytes - sent, MSG_NOSIGNAL);

		if (n >= 0)
			sent += (size_t)n;
		else if (errno != EAGAIN && errno != EINTR)
			err = -errno;
		else
			err = ready_by(c, POLLOUT, until_ms);
	}
	return err;
}

static int send_request(struct ipc *c, Request *request)
{
	size_t bytes = CTL_HEAD_BYTES + ddraid__ctl__request__get_packed_size(request);
	uint64_t began_ms = now_ms();
	int err;

	if (bytes > sizeof(c->buf)) {
		complain("the request is too long");
		return EXIT_USAGE;
	}
	ctl_head_put(c->buf, CTL_REQUEST, bytes);
	ddraid__ctl__request__pack(request, c->buf + CTL_HEAD_BYTES);
	err = send_all(c, bytes, patience(c));
	if (!err)
		return EXIT_OK;
	if (err == -ETIMEDOUT)
		complain_silent(c, began_ms);
	else
		complain("ddraidd does not take the request: %s; see its log", strerror(-err));
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

/* Nothing came in time, or nothing will come any more. */
static int give_up(const struct ipc *c, int err)
{
	char where[WHERE_BYTES];

	if (err == -EBADMSG)
		complain("ddraidd answers in a way that this ddraidctl doesn't understand: install "
			 "the same version of both");
	else if (err != -ETIMEDOUT)
		complain(
		    "the connection to ddraidd broke; what became of the request is not known: "
		    "see 'ddraidctl status' when it is back");
	else if (c->deadline_ms && now_ms() >= c->deadline_ms)
		return out_of_time(c);
	else
		complain("ddraidd has not answered for %u s; what became of the request is not "
			 "known: %s",
			 IDLE_S, where_to_look(c, where));
	return EXIT_UNKNOWN;
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
	int status = send_request(c, request), one, err;
	bool final = false;

	c->heard = false;
	c->why[0] = '\0';
	while (!status && !final) {
		Reply *reply = NULL;

		err = reply_get(c, patience(c), &reply);
		if (err) {
			status = give_up(c, err);
			break;
		}
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
