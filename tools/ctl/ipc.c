/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The connection to ddraidd (doc/wire.md, "ddraidctl and ddraidd").
 *
 * libqb's shared memory does not wake a reader whose peer has died, so answers are waited for in
 * short turns, with a look at the connection after each. A daemon that is alive and sends nothing,
 * not even progress, for IDLE_S is given up: it is stopped, or blocked in the kernel.
 */
#include <errno.h>
#include <qb/qbipcc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/units.h"
#include "tools/ctl/ctl.h"

#define TURN_MS 250
#define IDLE_S 30
#define SEND_TRIES 40

struct ipc {
	qb_ipcc_connection_t *conn;
	const char *name;
	/* libqb wants its headers aligned */
	_Alignas(16) uint8_t buf[CTL_MAX_BYTES];
};

void complain(const char *format, ...)
{
	char text[4096], clean[4096];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	progress_end();
	fprintf(stderr, "ddraidctl: %s\n", text_clean(clean, sizeof(clean), text));
}

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

struct ipc *ipc_open(const char *name)
{
	struct ipc *c = calloc(1, sizeof(*c));

	if (!c) {
		complain("there is no memory left");
		return NULL;
	}
	c->name = name;
	c->conn = qb_ipcc_connect(name, CTL_MAX_BYTES);
	if (c->conn && qb_ipcc_get_buffer_size(c->conn) <= (int32_t)CTL_MAX_BYTES)
		return c;
	if (c->conn) {
		complain(
		    "what listens as \"%s\" takes messages of another size: is it ddraidd, and "
		    "of this version?",
		    name);
		qb_ipcc_disconnect(c->conn);
	} else if (errno == EACCES || errno == EPERM) {
		complain("ddraidd (IPC name \"%s\") does not let this user in: use sudo", name);
	} else {
		complain(
		    "ddraidd can't be reached on this machine (IPC name \"%s\"): %s; start it, "
		    "with systemd by 'systemctl start ddraidd'",
		    name, strerror(errno));
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
	ssize_t sent = -EAGAIN;

	if (bytes > sizeof(c->buf)) {
		complain("the request is too long");
		return EXIT_USAGE;
	}
	memset(head, 0, sizeof(*head));
	head->id = CTL_REQUEST;
	head->size = (int32_t)bytes;
	ddraid__ctl__request__pack(request, c->buf + sizeof(*head));
	for (int i = 0; sent == -EAGAIN && i < SEND_TRIES; i++) {
		if (i)
			usleep(TURN_MS * 1000);
		sent = qb_ipcc_send(c->conn, c->buf, bytes);
	}
	if (sent == (ssize_t)bytes)
		return EXIT_OK;
	complain("ddraidd does not take the request: %s; see its log", strerror((int)-sent));
	return EXIT_UNREACHABLE;
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* What it means that nothing came for a turn: EXIT_OK = wait on. */
static int give_up(struct ipc *c, ssize_t n, uint64_t deadline_ms, uint64_t idle_ms)
{
	uint64_t now = now_ms();

	if ((n != -EAGAIN && n != -ETIMEDOUT && n != -EINTR) || !qb_ipcc_is_connected(c->conn)) {
		complain(
		    "the connection to ddraidd broke; what became of the request is not known: "
		    "see 'ddraidctl status' when it is back");
		return EXIT_UNKNOWN;
	}
	if (deadline_ms && now >= deadline_ms) {
		complain("not through within the timeout; it goes on in the background");
		return EXIT_WAITS;
	}
	if (now >= idle_ms) {
		complain("ddraidd has not answered for %d s; what became of the request is not "
			 "known: see its log",
			 IDLE_S);
		return EXIT_UNKNOWN;
	}
	return EXIT_OK;
}

/* One reply, or NULL and an exit status. */
static Reply *receive(struct ipc *c, uint64_t deadline_ms, int *status)
{
	const struct qb_ipc_response_header *head = (void *)c->buf;
	uint64_t idle_ms = now_ms() + IDLE_S * 1000;
	Reply *reply = NULL;
	ssize_t n;

	do {
		n = qb_ipcc_recv(c->conn, c->buf, sizeof(c->buf), TURN_MS);
		if (n < 0)
			*status = give_up(c, n, deadline_ms, idle_ms);
	} while (n < 0 && !*status);
	if (n < 0)
		return NULL;
	if ((size_t)n >= sizeof(*head) && head->id == CTL_REPLY && head->size == n)
		reply = ddraid__ctl__reply__unpack(NULL, (size_t)n - sizeof(*head),
						   c->buf + sizeof(*head));
	if (!reply) {
		complain("ddraidd answers in a way that this ddraidctl doesn't understand: install "
			 "the same version of both");
		*status = EXIT_UNKNOWN;
	}
	return reply;
}

static int take_reply(const Reply *reply, ipc_take_fn take, void *arg)
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
		complain("warning: %s", reply->warning[i]);
	if (take)
		status = take(arg, reply);
	if (reply->body_case == DDRAID__CTL__REPLY__BODY_PROGRESS)
		progress_show(reply->progress);
	return status;
}

int ipc_request(struct ipc *c, Request *request, uint64_t timeout_s, ipc_take_fn take, void *arg)
{
	uint64_t deadline_ms = timeout_s ? now_ms() + timeout_s * 1000 : 0;
	int status = send_request(c, request), one;
	bool final = false;

	while (!status && !final) {
		Reply *reply = receive(c, deadline_ms, &status);

		if (!reply)
			break;
		final = reply->final || reply->err;
		one = take_reply(reply, take, arg);
		ddraid__ctl__reply__free_unpacked(reply, NULL);
		if (final || one)
			status = one;
		if (deadline_ms && !final && !status && now_ms() >= deadline_ms) {
			complain("not through within the timeout; it goes on in the background");
			status = EXIT_WAITS;
		}
	}
	progress_end();
	return status;
}
