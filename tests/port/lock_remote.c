// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Subject `remote` of the lock suite: a real lock manager on real machines, one lock_agent each, in
 * real time. lock_dlm.sh makes the machines, and two named pipes for each of them in the folder
 * LOCK_AGENTS: in.N to the agent of node N, out.N from it. Subject `remote-nodes` loses machines,
 * too, which takes long: by two more pipes, host and answer, the script cuts their power or their
 * cable, starts them again, and makes them leave the lock space.
 *
 * All worlds are in one lock space: a new one has new daemons, and what the last one's held is
 * free.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/port/lock_conformance.h"

#define PATIENCE_MS 60000
#define BARRIER(node_) LOCK_ID(LOCK_KIND_REGION, 900000u + (node_))

static struct agent {
	struct lockspace ls;
	uint32_t node;
	FILE *to;
	int from;
	char text[4096];
	size_t bytes;
	bool running, up, killed, passed, open;
	bool said, kept;
	bool cut; /* its machine, and so it ends when that is fenced */
	const struct lock_cb *cb;
	void *arg;
} agent[SUBJECT_NODES + 1];

static void tell(struct agent *g, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void tell(struct agent *g, const char *format, ...)
{
	va_list ap;

	if (!g->to)
		return;
	va_start(ap, format);
	HOLDS(vfprintf(g->to, format, ap) > 0);
	va_end(ap);
	HOLDS(!fflush(g->to) || g->cut);
}

static void hear(struct agent *g, const char *line)
{
	uint64_t id = 0;
	int mode = 0;

	if (!strcmp(line, "up")) {
		g->up = true;
	} else if (!strcmp(line, "killed")) {
		g->killed = true;
	} else if (sscanf(line, "granted %" SCNu64 " %d", &id, &mode) == 2) {
		if (id == BARRIER(g->node)) {
			g->passed = true;
			tell(g, "release %" PRIu64 "\n", id);
		} else if (g->open)
			g->cb->granted(g->arg, id, (enum lock_mode)mode);
	} else if (sscanf(line, "refused %" SCNu64 " %d", &id, &mode) == 2) {
		if (g->open)
			g->cb->refused(g->arg, id, (enum lock_mode)mode);
	} else if (sscanf(line, "callback %" SCNu64 " %d", &id, &mode) == 2) {
		if (g->open)
			g->cb->callback(g->arg, id, (enum lock_mode)mode);
	} else if (sscanf(line, "kept %d", &mode) == 1) {
		g->said = true;
		g->kept = mode;
	} else if (!strncmp(line, "lost ", 5) && g->open) {
		g->cb->lost(g->arg, -ENOLCK, line + 5);
	} else {
		printf("node %u: %s\n", g->node, line);
		HOLDS(!"a line that is expected");
	}
}

static void disconnect(struct agent *g)
{
	fclose(g->to);
	close(g->from);
	g->to = NULL;
	g->from = -1; /* poll passes over it */
	g->bytes = 0;
	g->open = g->running = g->cut = false;
}

static void take(struct agent *g)
{
	ssize_t n = read(g->from, g->text + g->bytes, sizeof(g->text) - g->bytes);
	char *end;

	if (n <= 0 && g->cut) {
		disconnect(g);
		return;
	}
	HOLDS(n > 0);
	g->bytes += (size_t)n;
	while ((end = memchr(g->text, '\n', g->bytes))) {
		*end = '\0';
		hear(g, g->text);
		g->bytes -= (size_t)(end + 1 - g->text);
		memmove(g->text, end + 1, g->bytes);
	}
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ll + ts.tv_nsec / 1000000;
}

static void remote_run(uint32_t ms)
{
	int64_t end = now_ms() + ms, left;

	do {
		struct pollfd p[SUBJECT_NODES];

		for (uint32_t i = 0; i < SUBJECT_NODES; i++)
			p[i] = (struct pollfd){.fd = agent[i + 1].from, .events = POLLIN};
		left = end - now_ms();
		HOLDS(poll(p, SUBJECT_NODES, left > 0 ? (int)left : 0) >= 0);
		for (uint32_t i = 0; i < SUBJECT_NODES; i++)
			if (p[i].revents && agent[i + 1].to)
				take(&agent[i + 1]);
	} while (now_ms() < end);
}

static void await(const bool *what)
{
	for (uint32_t ms = 0; !*what && ms < PATIENCE_MS; ms += 5)
		remote_run(5);
	HOLDS(*what);
}

/* ---- daemons -------------------------------------------------------------------------------- */

static void remote_kill(uint32_t node)
{
	struct agent *g = &agent[node];

	g->open = g->killed = g->running = false;
	tell(g, "kill\n");
	await(&g->killed);
}

static void remote_restart(uint32_t node)
{
	struct agent *g = &agent[node];

	g->up = false;
	g->running = true;
	tell(g, "start\nopen conformance\n");
}

/* It is served. */
static void settle(uint32_t node)
{
	struct agent *g = &agent[node];

	g->passed = false;
	tell(g, "request %" PRIu64 " 2 0\n", BARRIER(node));
}

/* ---- machines ------------------------------------------------------------------------------- */

static FILE *pipe_open(const char *name, uint32_t node, const char *mode)
{
	const char *dir = getenv("LOCK_AGENTS");
	char path[512];
	FILE *f;

	HOLDS(dir);
	snprintf(path, sizeof(path), node ? "%s/%s.%u" : "%s/%s", dir, name, node);
	f = fopen(path, mode);
	HOLDS(f);
	return f;
}

/* The script does it. */
static void host(const char *what, uint32_t node)
{
	static FILE *to, *from;
	char line[16];

	if (!to) {
		to = pipe_open("host", 0, "we");
		from = pipe_open("answer", 0, "re");
	}
	HOLDS(fprintf(to, "%s %u\n", what, node) > 0 && !fflush(to));
	HOLDS(fgets(line, sizeof(line), from) && !strcmp(line, "ok\n"));
}

static void remote_crash(uint32_t node)
{
	disconnect(&agent[node]);
	host("crash", node);
}

static void remote_cut(uint32_t node)
{
	agent[node].cut = true;
	host("cut", node);
}

static void remote_leave(uint32_t node)
{
	host("leave", node);
}

static void connect_all(void)
{
	static bool connected;

	signal(SIGPIPE, SIG_IGN);
	for (uint32_t i = 1; i <= SUBJECT_NODES; i++) {
		struct agent *g = &agent[i];
		FILE *from;

		if (g->to && !g->cut)
			continue;
		if (g->to)
			disconnect(g);
		if (connected)
			host("back", i);
		g->to = pipe_open("in", i, "we");
		from = pipe_open("out", i, "re");
		g->from = fcntl(fileno(from), F_DUPFD_CLOEXEC, 0);
		fclose(from);
		HOLDS(g->from >= 0);
		g->node = i;
	}
	connected = true;
}

static void remote_start(void)
{
	connect_all();
	for (uint32_t i = 1; i <= SUBJECT_NODES; i++)
		remote_kill(i);
	for (uint32_t i = 1; i <= SUBJECT_NODES; i++)
		remote_restart(i);
	for (uint32_t i = 1; i <= SUBJECT_NODES; i++)
		await(&agent[i].up);
	for (uint32_t i = 1; i <= SUBJECT_NODES; i++)
		settle(i);
	for (uint32_t i = 1; i <= SUBJECT_NODES; i++)
		await(&agent[i].passed);
}

static void remote_end(void)
{
}

static void remote_rewind(void)
{
}

static uint64_t remote_inc(uint32_t node)
{
	return node;
}

static void remote_fences(bool answered)
{
	(void)answered;
}

/* ---- the port ------------------------------------------------------------------------------- */

static struct agent *agent_of(struct lockspace *ls)
{
	return (struct agent *)(void *)ls;
}

static const struct lock_ops remote_ops;

static int remote_open(const struct lock_cfg *cfg, struct lockspace **out)
{
	struct agent *g = &agent[cfg->node];

	HOLDS(g->running && !g->open);
	g->ls.ops = &remote_ops;
	g->cb = cfg->cb;
	g->arg = cfg->arg;
	g->open = true;
	*out = &g->ls;
	return 0;
}

static void remote_request(struct lockspace *ls, uint64_t id, enum lock_mode mode, bool try_only)
{
	tell(agent_of(ls), "request %" PRIu64 " %d %d\n", id, (int)mode, try_only);
}

static void remote_release(struct lockspace *ls, uint64_t id)
{
	tell(agent_of(ls), "release %" PRIu64 "\n", id);
}

static void remote_close(struct lockspace *ls, bool ended)
{
	agent_of(ls)->open = false;
	tell(agent_of(ls), "close %d\n", ended);
}

static bool remote_kept(struct lockspace *ls)
{
	struct agent *g = agent_of(ls);

	g->said = false;
	tell(g, "kept\n");
	await(&g->said);
	return g->kept;
}

static const struct lock_ops remote_ops = {
    .name = "remote",
    .open = remote_open,
    .request = remote_request,
    .release = remote_release,
    .close = remote_close,
    .kept = remote_kept,
};

#define REMOTE(name_, traits_)                                                                     \
	.name = name_, .ops = &remote_ops, .nodes = SUBJECT_NODES,                                 \
	.traits = LOCKS_CALL_FOR_EX | LOCKS_CALL_ONCE | LOCKS_IN_REAL_TIME | (traits_),            \
	.worlds = 1, .quiet_ms = 400, .at_once_ms = 5000, .by_name = true,                         \
	.rewind = remote_rewind, .start = remote_start, .end = remote_end, .run = remote_run,      \
	.inc = remote_inc, .kill = remote_kill, .restart = remote_restart, .fences = remote_fences

const struct lock_subject lock_remote = {REMOTE("remote", 0)};
const struct lock_subject lock_remote_nodes = {
    REMOTE("remote-nodes", LOCKS_LOSE_NODES | LOCKS_GRANT_ALONE | LOCKS_LEFT_BY_HAND),
    .crash = remote_crash,
    .cut = remote_cut,
    .leave = remote_leave,
};
