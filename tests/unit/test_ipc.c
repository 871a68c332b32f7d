// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The server side of ddraidctl's protocol against clients that break it: they are disconnected, and
 * the next one is served. The server is a process of its own, in which freed memory is overwritten.
 * Request.version says what it does with a request.
 */
#include "daemon/ipc.h"

#include <errno.h>
#include <malloc.h>
#include <qb/qbipcc.h>
#include <qb/qbloop.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/log.h"
#include "tests/lib/test.h"

enum { DO_ANSWER = 1, DO_OVERFLOW, DO_HOLD, DO_LOOK_BACK, DO_END };

/* ---- the server ----------------------------------------------------------------------------- */

static struct qb_loop *loop;
static int log_fd;

void say(int priority, const char *format, ...)
{
	char text[LOG_TEXT_BYTES];
	va_list ap;

	(void)priority;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (write(log_fd, text, strlen(text) + 1) < 0)
		abort();
}

static void end(void *data)
{
	(void)data;
	qb_loop_stop(loop);
}

void ctl_take(struct ipc_req *r)
{
	static char text[CTL_MAX_BYTES];
	Reply big = REPLY_INIT;

	switch (ipc_request(r)->version) {
	case DO_OVERFLOW:
		memset(text, 'x', sizeof(text) - 1);
		big.err = -EIO;
		big.error = text;
		ipc_final(r, &big);
		return;
	case DO_HOLD:
		return;
	case DO_LOOK_BACK:
		ipc_final(r, NULL);
		if (ipc_request(r)->version != DO_LOOK_BACK || !ipc_request(r)->status ||
		    strcmp(ipc_request(r)->status->array, "vol0"))
			abort();
		return;
	case DO_END:
		qb_loop_job_add(loop, QB_LOOP_LOW, NULL, end);
		break;
	default:
		break;
	}
	ipc_final(r, NULL);
}

/* libqb takes what a client wants before we are asked, but does not touch it. */
static bool large;

static _Noreturn void serve(const char *name, int ready_fd)
{
	char why[256] = "";

	if (!large)
		mallopt(M_PERTURB, 0xa5);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	loop = qb_loop_create();
	if (ipc_open(loop, name, why, sizeof(why)) || write(ready_fd, "", 1) != 1) {
		fprintf(stderr, "%s\n", why);
		_exit(1);
	}
	qb_loop_run(loop);
	ipc_close();
	_exit(0);
}

/* ---- the clients ---------------------------------------------------------------------------- */

static char name[48];
static unsigned servers;
static pid_t server;
static int said_fd;

static void begin(void)
{
	int ready[2], said[2];
	char c;

	snprintf(name, sizeof(name), "ddraid-test-ipc-%d-%u", getpid(), ++servers);
	CHECK(!pipe(ready) && !pipe(said));
	fflush(stdout);
	server = fork();
	CHECK(server >= 0);
	if (!server) {
		log_fd = said[1];
		serve(name, ready[1]);
	}
	close(ready[1]);
	close(said[1]);
	said_fd = said[0];
	CHECK_MSG(read(ready[0], &c, 1) == 1, "the server does not start");
	close(ready[0]);
}

static qb_ipcc_connection_t *client(void)
{
	qb_ipcc_connection_t *c = qb_ipcc_connect(name, CTL_MAX_BYTES);

	CHECK_MSG(c, "not connected: %s", strerror(errno));
	return c;
}

static void send_bytes(qb_ipcc_connection_t *c, int32_t id, const void *data, size_t bytes)
{
	_Alignas(8) uint8_t m[256];
	struct qb_ipc_request_header head = {.id = id};

	head.size = (int32_t)(sizeof(head) + bytes);
	memcpy(m, &head, sizeof(head));
	memcpy(m + sizeof(head), data, bytes);
	CHECK(qb_ipcc_send(c, m, (size_t)head.size) == head.size);
}

static void ask(qb_ipcc_connection_t *c, uint32_t what)
{
	Request r = DDRAID__CTL__REQUEST__INIT;
	uint8_t m[64];

	r.version = what;
	send_bytes(c, CTL_REQUEST, m, ddraid__ctl__request__pack(&r, m));
}

static ssize_t answer(qb_ipcc_connection_t *c)
{
	static _Alignas(8) uint8_t m[CTL_MAX_BYTES];

	return qb_ipcc_recv(c, m, sizeof(m), 3000);
}

static void end_server(void)
{
	qb_ipcc_connection_t *c = client();
	int status;

	ask(c, DO_END);
	CHECK(waitpid(server, &status, 0) == server);
	CHECK_MSG(WIFEXITED(status) && !WEXITSTATUS(status), "the server's status: %x", status);
	qb_ipcc_disconnect(c);
	close(said_fd);
}

/* It hangs up, says why, and serves the next. */
static void disconnected(qb_ipcc_connection_t *c, const char *why)
{
	char text[LOG_TEXT_BYTES] = "";
	ssize_t n = answer(c);

	CHECK_MSG(n < 0 && n != -EAGAIN && n != -ETIMEDOUT, "not disconnected: %zd", n);
	qb_ipcc_disconnect(c);
	CHECK(read(said_fd, text, sizeof(text) - 1) > 0);
	CHECK_MSG(strstr(text, why), "it says: %s", text);
	c = client();
	ask(c, DO_ANSWER);
	CHECK(answer(c) > 0);
	qb_ipcc_disconnect(c);
}

TEST(a_client_that_breaks_the_protocol_is_disconnected)
{
	qb_ipcc_connection_t *c;

	begin();
	c = client();
	send_bytes(c, CTL_REQUEST, "\xff\xff\xff", 3);
	disconnected(c, "can't be decoded");
	c = client();
	send_bytes(c, CTL_REQUEST + 1, "", 0);
	disconnected(c, "badly framed");
	c = client();
	ask(c, DO_HOLD);
	ask(c, DO_ANSWER);
	ask(c, DO_ANSWER);
	disconnected(c, "before it is answered");
	end_server();
}

TEST(a_request_that_was_refused_can_be_looked_at_until_its_function_returns)
{
	Ddraid__Ctl__StatusAsk status = DDRAID__CTL__STATUS_ASK__INIT;
	Request r = DDRAID__CTL__REQUEST__INIT;
	qb_ipcc_connection_t *c;
	uint8_t m[64];

	begin();
	c = client();
	status.array = "vol0";
	r.version = DO_LOOK_BACK;
	r.body_case = DDRAID__CTL__REQUEST__BODY_STATUS;
	r.status = &status;
	for (int i = 0; i < 3; i++) {
		send_bytes(c, CTL_REQUEST, m, ddraid__ctl__request__pack(&r, m));
		CHECK(answer(c) > 0);
	}
	qb_ipcc_disconnect(c);
	end_server();
}

TEST(a_client_whose_answer_does_not_fit_is_disconnected)
{
	qb_ipcc_connection_t *c;

	begin();
	c = client();
	ask(c, DO_OVERFLOW);
	disconnected(c, "does not fit");
	end_server();
}

/* libqb's own words; its client library would ask the same. The error that it is answered. */
static int hello(uint32_t wanted)
{
	struct {
		struct qb_ipc_request_header head;
		_Alignas(8) uint32_t bytes;
	} ask = {.head = {.id = QB_IPC_MSG_AUTHENTICATE, .size = sizeof(ask)}, .bytes = wanted};
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	struct qb_ipc_response_header said = {0};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(to.sun_path + 1, sizeof(to.sun_path) - 1, "%s", name);
	CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof(to)));
	CHECK(send(fd, &ask, sizeof(ask), 0) == sizeof(ask));
	CHECK(recv(fd, &said, sizeof(said), MSG_WAITALL) == sizeof(said));
	close(fd);
	return said.error;
}

TEST(a_client_that_wants_large_messages_is_refused_before_it_gets_memory)
{
	static const uint32_t most[] = {CTL_MAX_BYTES + 4096, 16u << 20, INT32_MAX, UINT32_MAX};
	char text[LOG_TEXT_BYTES] = "";

	large = true;
	begin();
	large = false;
	CHECK_EQ_INT(hello(CTL_MAX_BYTES), 0);
	for (uint32_t i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
		CHECK_EQ_INT(hello(most[i]), -EMSGSIZE);
		CHECK(read(said_fd, text, sizeof(text) - 1) > 0);
		CHECK_MSG(strstr(text, "are the most"), "it says: %s", text);
	}
	end_server();
}

TEST(a_client_may_go_away_at_any_time)
{
	begin();
	for (int i = 0; i < 20; i++) {
		qb_ipcc_connection_t *c = client();

		if (i & 1)
			send_bytes(c, CTL_REQUEST, "\xff", 1);
		else
			ask(c, i & 2 ? DO_HOLD : DO_ANSWER);
		qb_ipcc_disconnect(c);
	}
	end_server();
}
