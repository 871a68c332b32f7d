/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A ddraidd that knows nothing: for each request that comes over libqb IPC it does what a plan
 * says.
 *
 *	fake_ddraidd NAME DIR
 *
 * DIR/plan has lines, carried out in order; a request uses up the lines to the next "next" or the
 * end.
 *
 *	send FILE	DIR/FILE, a packed Reply, goes out in its frame
 *	raw FILE	DIR/FILE goes out as it is
 *	sleep MS
 *	hang		nothing more is sent, the connection stays
 *	die		the process ends
 *	next
 *
 * The body of the Nth request (from 0) is written to DIR/request.N. "ready" on standard output says
 * that it listens. It ends itself after a minute.
 */
#include <errno.h>
#include <qb/qbipcs.h>
#include <qb/qbloop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/ctl_wire.h"

static qb_loop_t *loop;
static const char *dir;
static FILE *plan;
static unsigned requests;

_Noreturn static void die(const char *what)
{
	fprintf(stderr, "fake_ddraidd: %s: %s\n", what, strerror(errno));
	exit(1);
}

static size_t load(const char *name, char *to, size_t bytes)
{
	char path[4096];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "r");
	if (!f)
		die(path);
	n = fread(to, 1, bytes, f);
	fclose(f);
	return n;
}

static void send_file(qb_ipcs_connection_t *c, const char *name, size_t head_bytes)
{
	static _Alignas(16) char buf[CTL_MAX_BYTES];
	struct qb_ipc_response_header *head = (void *)buf;
	size_t n;

	memset(buf, 0, sizeof(*head));
	n = head_bytes + load(name, buf + head_bytes, sizeof(buf) - head_bytes);
	if (head_bytes) {
		head->id = CTL_REPLY;
		head->size = (int32_t)n;
	}
	if (qb_ipcs_response_send(c, buf, n) != (ssize_t)n)
		die(name);
}

/* 1: the request is answered. */
static int act(qb_ipcs_connection_t *c, const char *word, const char *arg)
{
	if (!strcmp(word, "send"))
		send_file(c, arg, sizeof(struct qb_ipc_response_header));
	else if (!strcmp(word, "raw"))
		send_file(c, arg, 0);
	else if (!strcmp(word, "sleep"))
		usleep((useconds_t)atoi(arg) * 1000);
	else if (!strcmp(word, "die"))
		_exit(0);
	return !strcmp(word, "next") || !strcmp(word, "hang");
}

static int32_t process(qb_ipcs_connection_t *c, void *data, size_t bytes)
{
	struct qb_ipc_request_header head;
	char path[4096], line[256], word[16], arg[200];
	FILE *f;

	if (bytes < sizeof(head))
		die("a request is too short");
	memcpy(&head, data, sizeof(head)); /* libqb does not align it */
	if (head.id != CTL_REQUEST || (size_t)head.size != bytes)
		die("a request is badly framed");
	snprintf(path, sizeof(path), "%s/request.%u", dir, requests++);
	f = fopen(path, "w");
	if (!f ||
	    fwrite((char *)data + sizeof(head), 1, bytes - sizeof(head), f) != bytes - sizeof(head))
		die(path);
	fclose(f);
	while (fgets(line, sizeof(line), plan)) {
		arg[0] = '\0';
		if (sscanf(line, "%15s %199s", word, arg) >= 1 && act(c, word, arg))
			break;
	}
	return 0;
}

static int32_t accept_any(qb_ipcs_connection_t *c, uid_t uid, gid_t gid)
{
	(void)c;
	(void)uid;
	(void)gid;
	return 0;
}

static void created(qb_ipcs_connection_t *c)
{
	(void)c;
}

static int32_t closed(qb_ipcs_connection_t *c)
{
	(void)c;
	return 0;
}

static int32_t job_add(enum qb_loop_priority p, void *data, qb_loop_job_dispatch_fn fn)
{
	return qb_loop_job_add(loop, p, data, fn);
}

static int32_t dispatch_add(enum qb_loop_priority p, int32_t fd, int32_t events, void *data,
			    qb_ipcs_dispatch_fn_t fn)
{
	return qb_loop_poll_add(loop, p, fd, events, data, fn);
}

static int32_t dispatch_mod(enum qb_loop_priority p, int32_t fd, int32_t events, void *data,
			    qb_ipcs_dispatch_fn_t fn)
{
	return qb_loop_poll_mod(loop, p, fd, events, data, fn);
}

static int32_t dispatch_del(int32_t fd)
{
	return qb_loop_poll_del(loop, fd);
}

int main(int argc, char **argv)
{
	static struct qb_ipcs_service_handlers handlers = {
	    .connection_accept = accept_any,
	    .connection_created = created,
	    .msg_process = process,
	    .connection_closed = closed,
	    .connection_destroyed = created,
	};
	static struct qb_ipcs_poll_handlers poll = {
	    .job_add = job_add,
	    .dispatch_add = dispatch_add,
	    .dispatch_mod = dispatch_mod,
	    .dispatch_del = dispatch_del,
	};
	char path[4096];
	qb_ipcs_service_t *s;

	if (argc != 3)
		return 2;
	alarm(60);
	dir = argv[2];
	snprintf(path, sizeof(path), "%s/plan", dir);
	plan = fopen(path, "r");
	loop = qb_loop_create();
	s = qb_ipcs_create(argv[1], 4, QB_IPC_SHM, &handlers);
	if (!plan || !loop || !s)
		die("start");
	qb_ipcs_enforce_buffer_size(s, CTL_MAX_BYTES);
	qb_ipcs_poll_handlers_set(s, &poll);
	errno = -qb_ipcs_run(s);
	if (errno)
		die(argv[1]);
	printf("ready\n");
	fflush(stdout);
	qb_loop_run(loop);
	return 0;
}
