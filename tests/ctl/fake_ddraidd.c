/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A ddraidd that knows nothing: for each request that comes over its socket it does what a plan
 * says.
 *
 *	fake_ddraidd SOCKET DIR
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
 * The first line may be "greet FILE": DIR/FILE, a packed Reply, instead of the greeting; or
 * "greet-raw FILE", as it is. One client is served after the other.
 *
 * The body of the Nth request (from 0) is written to DIR/request.N. "ready" on standard output says
 * that it listens. It ends itself after a minute.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/ctl_wire.h"

static int client;
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

static void send_file(const char *name, size_t head_bytes)
{
	static uint8_t buf[CTL_MAX_BYTES];
	size_t n = head_bytes + load(name, (char *)buf + head_bytes, sizeof(buf) - head_bytes);

	if (head_bytes)
		ctl_head_put(buf, CTL_REPLY, n);
	if (send(client, buf, n, MSG_NOSIGNAL) != (ssize_t)n && errno != EPIPE)
		die(name);
}

/* 1: the request is answered. */
static int act(const char *word, const char *arg)
{
	if (!strcmp(word, "send"))
		send_file(arg, CTL_HEAD_BYTES);
	else if (!strcmp(word, "raw"))
		send_file(arg, 0);
	else if (!strcmp(word, "sleep"))
		usleep((useconds_t)atoi(arg) * 1000);
	else if (!strcmp(word, "die"))
		_exit(0);
	return !strcmp(word, "next") || !strcmp(word, "hang");
}

static void greet(void)
{
	static const uint8_t version[] = {0x08, CTL_VERSION}; /* Reply's first field */
	uint8_t frame[CTL_HEAD_BYTES + sizeof(version)];
	char line[256], word[16], arg[200];
	long at = ftell(plan);

	if (fgets(line, sizeof(line), plan) && sscanf(line, "%15s %199s", word, arg) == 2 &&
	    !strncmp(word, "greet", 5)) {
		send_file(arg, strcmp(word, "greet") ? 0 : CTL_HEAD_BYTES);
		return;
	}
	fseek(plan, at, SEEK_SET);
	ctl_head_put(frame, CTL_REPLY, sizeof(frame));
	memcpy(frame + CTL_HEAD_BYTES, version, sizeof(version));
	if (send(client, frame, sizeof(frame), MSG_NOSIGNAL) != sizeof(frame))
		die("greeting");
}

/* 0: the client has gone. */
static int process(void)
{
	static uint8_t buf[CTL_MAX_BYTES];
	char path[4096], line[256], word[16], arg[200];
	size_t bytes;
	FILE *f;

	if (recv(client, buf, CTL_HEAD_BYTES, MSG_WAITALL) != CTL_HEAD_BYTES)
		return 0;
	bytes = ctl_head_get(buf, CTL_REQUEST);
	if (!bytes)
		die("a request is badly framed");
	bytes -= CTL_HEAD_BYTES;
	if (recv(client, buf, bytes, MSG_WAITALL) != (ssize_t)bytes)
		die("a request is too short");
	snprintf(path, sizeof(path), "%s/request.%u", dir, requests++);
	f = fopen(path, "w");
	if (!f || fwrite(buf, 1, bytes, f) != bytes)
		die(path);
	fclose(f);
	while (fgets(line, sizeof(line), plan)) {
		arg[0] = '\0';
		if (sscanf(line, "%15s %199s", word, arg) >= 1 && act(word, arg))
			break;
	}
	return 1;
}

int main(int argc, char **argv)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	char path[4096];

	if (argc != 3 || strlen(argv[1]) >= sizeof(at.sun_path))
		return 2;
	alarm(60);
	dir = argv[2];
	snprintf(path, sizeof(path), "%s/plan", dir);
	plan = fopen(path, "r");
	strcpy(at.sun_path, argv[1]);
	unlink(argv[1]);
	if (!plan || fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
	    listen(fd, 16) < 0)
		die(argv[1]);
	printf("ready\n");
	fflush(stdout);
	while ((client = accept(fd, NULL, NULL)) >= 0) {
		greet();
		while (process())
			;
		close(client);
	}
	die("accept");
}
