// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The server side of ddraidctl's protocol: its socket's file, and clients that are slow, many,
 * strangers, or break the protocol: they are disconnected, and the next one is served. The server
 * is a process of its own, in which freed memory is overwritten. Request.version says what it does
 * with a request.
 */
#include "daemon/ctl/ipc.h"

#include <errno.h>
#include <malloc.h>
#include <qb/qbloop.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "tests/lib/test.h"

enum { DO_ANSWER = 1, DO_OVERFLOW, DO_HOLD, DO_LOOK_BACK, DO_MANY, DO_FLOOD, DO_PROGRESS, DO_END };

#define MANY 40u /* answers of PIECE bytes, far more than a socket holds */
#define PIECE (100u << 10)
#define LOOK_NS 50000000ull

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

static void send_many(struct ipc_req *r, uint32_t count, size_t bytes)
{
	static char text[CTL_MAX_BYTES];
	Reply reply = REPLY_INIT;
	char *warning = text;

	memset(text, 'x', bytes);
	text[bytes] = '\0';
	for (uint32_t i = 0; i < count; i++) {
		ipc_warn(r, warning);
		ipc_send(r, &reply);
	}
}

static void send_progress(struct ipc_req *r)
{
	Ddraid__Ctl__Progress p = DDRAID__CTL__PROGRESS__INIT;
	char text[1000];

	memset(text, 'p', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	p.text = text;
	for (int i = 0; i < 10000; i++)
		ipc_progress(r, &p);
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
	case DO_MANY:
		send_many(r, MANY, PIECE);
		break;
	case DO_FLOOD:
		send_many(r, 20 * MANY, PIECE);
		break;
	case DO_PROGRESS:
		send_progress(r);
		break;
	case DO_END:
		qb_loop_job_add(loop, QB_LOOP_LOW, NULL, end);
		break;
	default:
		break;
	}
	ipc_final(r, NULL);
}

static bool looks; /* as the daemon does */

static void look(void *data)
{
	qb_loop_timer_handle timer;

	(void)data;
	ipc_look();
	qb_loop_timer_add(loop, QB_LOOP_LOW, LOOK_NS, NULL, look, &timer);
}

static char dir[32], path[64];

static _Noreturn void serve(int ready_fd)
{
	char why[512] = "";

	mallopt(M_PERTURB, 0xa5);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	loop = qb_loop_create();
	if (ipc_open(loop, dir, "t", why, sizeof(why))) {
		say(0, "%s", why);
		_exit(1);
	}
	if (write(ready_fd, "", 1) != 1)
		_exit(1);
	if (looks)
		look(NULL);
	qb_loop_run(loop);
	ipc_close();
	_exit(0);
}

/* ---- the clients ---------------------------------------------------------------------------- */

static pid_t server;
static int said_fd;

static void directory(void)
{
	strcpy(dir, "/tmp/ddraid-ipc-XXXXXX");
	CHECK(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/t.ctl", dir);
}

static void clean(void)
{
	unlink(path);
	rmdir(dir);
}

/* False: it did not start, and said why. */
static bool server_up(void)
{
	int ready[2], said[2];
	bool is;
	char c;

	CHECK(!pipe(ready) && !pipe(said));
	fflush(stdout);
	server = fork();
	CHECK(server >= 0);
	if (!server) {
		log_fd = said[1];
		serve(ready[1]);
	}
	close(ready[1]);
	close(said[1]);
	said_fd = said[0];
	is = read(ready[0], &c, 1) == 1;
	close(ready[0]);
	return is;
}

static void begin(void)
{
	directory();
	CHECK_MSG(server_up(), "the server does not start");
}

static int plug(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct timeval limit = {.tv_sec = 20};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(at.sun_path, path);
	CHECK(fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	CHECK_MSG(!connect(fd, (struct sockaddr *)&at, sizeof(at)), "not connected: %s",
		  strerror(errno));
	return fd;
}

/* The next reply; NULL: disconnected. */
static Reply *answer(int fd)
{
	static uint8_t m[CTL_MAX_BYTES];
	size_t bytes;
	ssize_t n = recv(fd, m, CTL_HEAD_BYTES, MSG_WAITALL);
	Reply *reply;

	CHECK_MSG(n >= 0 || errno != EAGAIN, "neither an answer nor the end");
	if (n != CTL_HEAD_BYTES)
		return NULL;
	bytes = ctl_head_get(m, CTL_REPLY);
	CHECK_MSG(bytes, "badly framed");
	bytes -= CTL_HEAD_BYTES;
	if (recv(fd, m, bytes, MSG_WAITALL) != (ssize_t)bytes)
		return NULL;
	reply = ddraid__ctl__reply__unpack(NULL, bytes, m);
	CHECK(reply && reply->version == CTL_VERSION);
	return reply;
}

static void drop(Reply *reply)
{
	ddraid__ctl__reply__free_unpacked(reply, NULL);
}

static void answered(int fd)
{
	Reply *reply = answer(fd);

	CHECK(reply && reply->final);
	drop(reply);
}

/* Connected and greeted. */
static int client(void)
{
	int fd = plug();
	Reply *reply = answer(fd);

	CHECK_MSG(reply && !reply->final && !reply->err && !reply->body_case, "not greeted");
	drop(reply);
	return fd;
}

/* What it finds closed is no concern of these tests. */
static void send_bytes(int fd, uint32_t kind, size_t bytes, const void *data, size_t count)
{
	uint8_t m[256];

	ctl_head_put(m, kind, bytes);
	if (count)
		memcpy(m + CTL_HEAD_BYTES, data, count);
	if (send(fd, m, CTL_HEAD_BYTES + count, MSG_NOSIGNAL) < 0)
		CHECK(errno == EPIPE || errno == ECONNRESET);
}

static void send_request(int fd, const Request *r)
{
	uint8_t m[64];
	size_t n = ddraid__ctl__request__pack(r, m);

	send_bytes(fd, CTL_REQUEST, CTL_HEAD_BYTES + n, m, n);
}

static void ask(int fd, uint32_t what)
{
	Request r = DDRAID__CTL__REQUEST__INIT;

	r.version = what;
	send_request(fd, &r);
}

static void end_server(void)
{
	int fd = client(), status;

	ask(fd, DO_END);
	CHECK(waitpid(server, &status, 0) == server);
	CHECK_MSG(WIFEXITED(status) && !WEXITSTATUS(status), "the server's status: %x", status);
	CHECK_MSG(access(path, F_OK), "it leaves its socket behind");
	close(fd);
	close(said_fd);
	clean();
}

/* Until it says that. */
static void says(const char *words)
{
	char text[LOG_TEXT_BYTES];

	do {
		size_t n = 0;

		do {
			CHECK_MSG(read(said_fd, text + n, 1) == 1, "it does not say: %s", words);
		} while (text[n++] && n < sizeof(text));
	} while (!strstr(text, words));
}

static void next_is_served(void)
{
	int fd = client();

	ask(fd, DO_ANSWER);
	answered(fd);
	close(fd);
}

/* It hangs up, says why (NULL: was read), and serves the next. */
static void disconnected(int fd, const char *why)
{
	Reply *reply;

	while ((reply = answer(fd)))
		drop(reply);
	close(fd);
	if (why)
		says(why);
	next_is_served();
}

/* ---- the protocol --------------------------------------------------------------------------- */

TEST(a_client_that_breaks_the_protocol_is_disconnected)
{
	static const struct {
		uint32_t kind;
		size_t bytes;
	} bad[] = {
	    {CTL_REPLY, CTL_HEAD_BYTES},       {0, 0},           {UINT32_MAX, UINT32_MAX},
	    {CTL_REQUEST, CTL_HEAD_BYTES - 1}, {CTL_REQUEST, 0}, {CTL_REQUEST, CTL_MAX_BYTES + 1},
	    {CTL_REQUEST, UINT32_MAX}};
	int fd;

	begin();
	fd = client();
	send_bytes(fd, CTL_REQUEST, CTL_HEAD_BYTES + 3, "\xff\xff\xff", 3);
	disconnected(fd, "can't be decoded");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		fd = client();
		send_bytes(fd, bad[i].kind, bad[i].bytes, "", 0);
		disconnected(fd, "no request, or is too long");
	}
	fd = client();
	ask(fd, DO_HOLD);
	ask(fd, DO_ANSWER);
	disconnected(fd, "before it has its answer");
	end_server();
}

TEST(a_request_may_come_in_pieces)
{
	static const uint8_t m[] = {CTL_REQUEST, 0, 0, 0,    CTL_HEAD_BYTES + 2,
				    0,           0, 0, 0x08, DO_ANSWER};
	int fd;

	begin();
	fd = client();
	for (int turn = 0; turn < 2; turn++) {
		for (size_t i = 0; i < sizeof(m); i++) {
			CHECK(send(fd, m + i, 1, MSG_NOSIGNAL) == 1);
			usleep(2000);
		}
		answered(fd);
	}
	close(fd);
	end_server();
}

TEST(a_request_that_was_refused_can_be_looked_at_until_its_function_returns)
{
	Ddraid__Ctl__StatusAsk status = DDRAID__CTL__STATUS_ASK__INIT;
	Request r = DDRAID__CTL__REQUEST__INIT;
	int fd;

	begin();
	fd = client();
	status.array = (char *)"vol0";
	r.version = DO_LOOK_BACK;
	r.body_case = DDRAID__CTL__REQUEST__BODY_STATUS;
	r.status = &status;
	for (int i = 0; i < 3; i++) {
		send_request(fd, &r);
		answered(fd);
	}
	close(fd);
	end_server();
}

TEST(a_client_whose_answer_does_not_fit_is_disconnected)
{
	int fd;

	begin();
	fd = client();
	ask(fd, DO_OVERFLOW);
	disconnected(fd, "does not fit");
	end_server();
}

TEST(a_client_may_go_away_at_any_time)
{
	begin();
	for (int i = 0; i < 40; i++) {
		int fd = i % 5 ? client() : plug();

		switch (i % 4) {
		case 0:
			send_bytes(fd, CTL_REQUEST, 100, "half", 4);
			break;
		case 1:
			CHECK(send(fd, "\1\0", 2, MSG_NOSIGNAL) == 2);
			break;
		case 2:
			ask(fd, DO_HOLD);
			break;
		default:
			ask(fd, i & 4 ? DO_MANY : DO_ANSWER);
		}
		close(fd);
	}
	end_server();
}

/* ---- who is slow ---------------------------------------------------------------------------- */

TEST(a_client_that_reads_late_gets_all_and_others_are_served_meanwhile)
{
	uint32_t got = 0;
	Reply *reply;
	int fd;

	begin();
	fd = client();
	ask(fd, DO_MANY);
	next_is_served();
	while ((reply = answer(fd)) && !reply->final) {
		CHECK(reply->n_warning == 1 && strlen(reply->warning[0]) == PIECE);
		drop(reply);
		got++;
	}
	CHECK(reply);
	drop(reply);
	CHECK_EQ_U64(got, MANY);
	ask(fd, DO_ANSWER); /* it may ask again */
	answered(fd);
	close(fd);
	end_server();
}

TEST(what_a_client_does_not_read_is_bounded)
{
	int fd;

	begin();
	fd = client();
	ask(fd, DO_FLOOD);
	says("does not fit");
	disconnected(fd, NULL);
	end_server();
}

TEST(progress_is_dropped_where_it_is_not_read)
{
	uint32_t got = 0;
	Reply *reply;
	int fd;

	begin();
	fd = client();
	ask(fd, DO_PROGRESS);
	next_is_served();
	while ((reply = answer(fd)) && !reply->final) {
		drop(reply);
		got++;
	}
	CHECK_MSG(reply && got && got < 5000, "%u of 10000", got);
	drop(reply);
	close(fd);
	end_server();
}

/* STALL_MS is short here. */
TEST(a_client_that_stands_still_is_disconnected_but_not_one_that_waits)
{
	int waits, fd;

	looks = true;
	begin();
	looks = false;
	waits = client();
	ask(waits, DO_HOLD);
	fd = client();
	ask(fd, DO_MANY);
	says("does not take its answer");
	disconnected(fd, NULL);
	fd = client();
	send_bytes(fd, CTL_REQUEST, 100, "half", 4);
	disconnected(fd, "asks for nothing");
	fd = client();
	disconnected(fd, "asks for nothing");
	ask(waits, DO_ANSWER); /* still there: or it would say something else */
	disconnected(waits, "before it has its answer");
	end_server();
}

TEST(more_clients_than_there_is_room_for_are_told)
{
	int fd[CTL_MAX_CONNECTIONS], more;
	Reply *reply;

	begin();
	for (uint32_t i = 0; i < CTL_MAX_CONNECTIONS; i++)
		fd[i] = client();
	for (int i = 0; i < 3; i++) {
		more = plug();
		reply = answer(more);
		CHECK(reply && reply->final && reply->err == -EBUSY &&
		      strstr(reply->error, "no more are served"));
		drop(reply);
		CHECK(!answer(more));
		close(more);
		says("is refused: 64 clients");
	}
	ask(fd[0], DO_ANSWER);
	answered(fd[0]);
	for (uint32_t i = 0; i < CTL_MAX_CONNECTIONS; i++)
		close(fd[i]);
	for (more = 0; more < 100; more++) { /* it sees that they have gone in its own time */
		int one = plug();
		bool in;

		reply = answer(one);
		CHECK(reply);
		in = !reply->final;
		drop(reply);
		close(one);
		if (in)
			break;
		usleep(20000);
	}
	CHECK(more < 100);
	end_server();
}

/* ---- the socket's file ---------------------------------------------------------------------- */

static void check_file(void)
{
	struct stat st;

	CHECK(!lstat(path, &st));
	CHECK(S_ISSOCK(st.st_mode) && st.st_uid == geteuid());
	CHECK_EQ_INT(st.st_mode & 07777, 0600);
}

static int listen_there(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(at.sun_path, path);
	CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&at, sizeof(at)) && !listen(fd, 1));
	return fd;
}

static void server_is_refused(const char *why)
{
	CHECK(!server_up());
	says(why);
	close(said_fd);
	CHECK(waitpid(server, NULL, 0) == server);
}

TEST(a_leftover_is_replaced_and_nothing_else)
{
	mode_t mask = umask(0);
	int fd, status;
	FILE *f;

	directory();
	fd = listen_there();
	server_is_refused("another program serves there; stop it");
	close(fd);
	CHECK_MSG(server_up(), "a leftover is in the way");
	check_file();
	kill(server, SIGKILL);
	CHECK(waitpid(server, &status, 0) == server);
	CHECK(!access(path, F_OK));
	close(said_fd);
	umask(0777);
	CHECK_MSG(server_up(), "a killed server's is in the way");
	umask(mask);
	check_file();
	end_server();

	directory();
	f = fopen(path, "w");
	CHECK(f);
	fclose(f);
	server_is_refused("not a socket; remove it");
	clean();
}

static void wait_for_file(void)
{
	for (int i = 0; i < 1000 && access(path, F_OK); i++)
		usleep(20000);
	check_file();
}

TEST(a_file_that_was_removed_is_made_again)
{
	int fd, other;

	looks = true;
	begin();
	looks = false;
	fd = client();
	ask(fd, DO_HOLD);
	CHECK(!unlink(path));
	wait_for_file();
	says("was removed, which ddraidctl needs: made again");
	next_is_served();
	/* With its directory, and another one in its place. */
	CHECK(!unlink(path) && !rmdir(dir));
	wait_for_file();
	says("made again");
	CHECK(!unlink(path));
	other = listen_there();
	says("can't be made again: another program serves there; stop it");
	usleep(200000);
	close(other);
	says("made again"); /* the next that it says: it was complained of once */
	wait_for_file();
	ask(fd, DO_ANSWER); /* who was connected before still is */
	disconnected(fd, "before it has its answer");
	end_server();
}

TEST(a_stranger_is_refused_although_the_file_lets_him_in)
{
	pid_t child;
	int status;

	if (geteuid())
		SKIP("only root can be somebody else");
	begin();
	CHECK(!chmod(dir, 0755) && !chmod(path, 0666));
	fflush(stdout);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		Reply *reply;
		int fd;

		if (setuid(65534))
			_exit(1);
		fd = plug();
		reply = answer(fd);
		_exit(!reply || !reply->final || reply->err != -EACCES ||
		      !strstr(reply->error, "user 65534 may not control ddraidd"));
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK_MSG(WIFEXITED(status) && !WEXITSTATUS(status), "%x", status);
	says("is refused: user 65534");
	next_is_served();
	end_server();
}
