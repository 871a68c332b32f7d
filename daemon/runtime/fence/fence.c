// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The daemon's side of fencing; the helper is helper.c. An ask is in `asks` from fence_run
 * until its answer: by the helper, by a timer (zombie_timeout), or at once from the next turn of
 * the loop (none, or no helper). An answer may overtake the timer, and the ask is its owner's again
 * by then: timers know asks by their ids only.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <qb/qbloop.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/runtime/fence/fence.h"
#include "daemon/base/log.h"
#include "daemon/runtime/fence/helper.h"
#include "daemon/state/store.h"

static struct qb_loop *loop;
static const struct config *conf;
static struct fence_ask *asks;
static uintptr_t last_id;
static int helper_fd = -1;

const char *fence_describe(void)
{
	static char text[CONFIG_PATH_BYTES + 32];

	if (conf->fence == FENCE_COMMAND)
		snprintf(text, sizeof(text), "command %s", conf->fence_command);
	else if (conf->fence == FENCE_ZOMBIE_TIMEOUT)
		snprintf(text, sizeof(text), "only a wait: zombie_timeout, %.1f s",
			 conf->zombie_timeout_ms / 1000.0);
	else
		snprintf(text, sizeof(text), "none");
	return text;
}

int fence_check(const struct config *c, char why[FENCE_WHY_BYTES])
{
	const char *cause, *remedy = "correct it in [fence] of ddraid.conf";
	struct stat st;
	int err;

	if (c->fence != FENCE_COMMAND)
		return 0;
	if (stat(c->fence_command, &st) < 0) {
		err = -errno;
		cause = strerror(errno);
	} else if (!S_ISREG(st.st_mode)) {
		err = -EACCES;
		cause = "it is no file";
	} else if (access(c->fence_command, X_OK) < 0) {
		err = -errno;
		cause = strerror(errno);
		remedy = "make it executable";
	} else {
		return 0;
	}
	snprintf(why, FENCE_WHY_BYTES, "fence_command = %s can't be run: %s; %s", c->fence_command,
		 cause, remedy);
	return err;
}

int fence_helper_start(const struct config *c)
{
	if (c->fence != FENCE_COMMAND)
		return 0;
	helper_fd = fence_helper_fork();
	return helper_fd < 0 ? helper_fd : 0;
}

static struct fence_ask **find(uint64_t id)
{
	struct fence_ask **at = &asks;

	while (*at && (*at)->id != id)
		at = &(*at)->next;
	return at;
}

static void finish(uint64_t id, int err, const char *why)
{
	struct fence_ask **at = find(id), *ask = *at;

	if (!ask)
		return;
	*at = ask->next;
	if (ask->check) {
		ask->done(ask, err, why);
		return;
	}
	say(err ? LOG_ERR : LOG_NOTICE, "fence of node %u, incarnation %" PRIu64 ": %s", ask->node,
	    ask->inc, why);
	ask->done(ask, err, why);
}

/* --- answers --- */

static int32_t helper_ready(int32_t fd, int32_t revents, void *data)
{
	struct fence_ask *ask;
	struct fence_answer a;
	char why[FENCE_WHY_BYTES];
	ssize_t n = recv(fd, &a, sizeof(a), MSG_DONTWAIT);

	(void)data;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n != sizeof(a)) {
		(void)revents;
		say(LOG_CRIT, "the fence helper is gone: no node can be fenced; restart ddraidd");
		close(helper_fd);
		helper_fd = -1;
		while (asks)
			finish(asks->id, -EPIPE, "the fence helper is gone; restart ddraidd");
		return -1;
	}
	a.output[sizeof(a.output) - 1] = '\0';
	ask = *find(a.id);
	if (ask && ask->check && a.err == -ENXIO)
		snprintf(why, sizeof(why), "%.300s",
			 a.output[0] ? a.output : "the command does not say why");
	else if (!a.err)
		snprintf(why, sizeof(why), "succeeded after %u ms%s%.300s", a.ms,
			 a.output[0] ? ": " : "", a.output);
	else
		snprintf(why, sizeof(why), "%s %s after %u ms%s%.300s", conf->fence_command,
			 a.err == -ETIMEDOUT ? "was ended" : "failed", a.ms,
			 a.output[0] ? ": " : "", a.output);
	finish(a.id, a.err, why);
	return 0;
}

static void waited(void *id)
{
	finish((uintptr_t)id, 0,
	       conf->fence == FENCE_NONE ? "none is configured: taken as done"
					 : "zombie_timeout is over");
}

static void no_helper(void *id)
{
	finish((uintptr_t)id, -EPIPE, "the fence helper does not take it; restart ddraidd");
}

/* --- asking --- */

/* A command that does not know it may do anything with it; nobody waits for that as for a fence. */
#define CHECK_TIMEOUT_MS 15000u

bool fence_checks(void)
{
	return conf->fence == FENCE_COMMAND;
}

void fence_ask_uri(struct fence_ask *ask, const char *uri)
{
	if (!strcmp(uri, STORE_NOWHERE))
		return;
	for (uint32_t i = 0; i < ask->count; i++)
		if (!strcmp(ask->uri[i], uri))
			return;
	if (ask->count < FENCE_URIS)
		strcpy(ask->uri[ask->count++], uri);
}

static int helper_ask(const struct fence_ask *ask)
{
	static struct fence_request r;

	memset(&r, 0, sizeof(r));
	r.id = ask->id;
	r.timeout_ms = conf->fence_timeout_ms;
	r.check = ask->check;
	if (r.check && r.timeout_ms > CHECK_TIMEOUT_MS)
		r.timeout_ms = CHECK_TIMEOUT_MS;
	snprintf(r.command, sizeof(r.command), "%s", conf->fence_command);
	r.node = ask->node;
	r.inc = ask->inc;
	r.count = ask->count;
	memcpy(r.uri, ask->uri, sizeof(r.uri));
	return send(helper_fd, &r, sizeof(r), MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(r) ? 0
											: -errno;
}

void fence_run(struct fence_ask *ask)
{
	qb_loop_timer_handle timer;
	uint64_t ns = 0;
	void *id;

	ask->id = ++last_id;
	id = (void *)last_id;
	ask->next = asks;
	asks = ask;
	if (conf->fence == FENCE_COMMAND) {
		if (!ask->check)
			say(LOG_NOTICE, "fencing node %u, incarnation %" PRIu64 ": running %s",
			    ask->node, ask->inc, conf->fence_command);
		if (helper_fd >= 0 && !helper_ask(ask))
			return;
		qb_loop_timer_add(loop, QB_LOOP_MED, 0, id, no_helper, &timer);
		return;
	}
	if (conf->fence == FENCE_ZOMBIE_TIMEOUT) {
		ns = conf->zombie_timeout_ms * 1000000ull;
		say(LOG_NOTICE,
		    "fencing node %u, incarnation %" PRIu64 ": waiting for zombie_timeout, %u ms",
		    ask->node, ask->inc, conf->zombie_timeout_ms);
	}
	qb_loop_timer_add(loop, QB_LOOP_MED, ns, id, waited, &timer);
}

int fence_open(struct qb_loop *l, const struct config *c)
{
	loop = l;
	conf = c;
	if (helper_fd < 0)
		return 0;
	return qb_loop_poll_add(l, QB_LOOP_HIGH, helper_fd, POLLIN, NULL, helper_ready);
}

void fence_close(void)
{
	if (helper_fd < 0)
		return;
	qb_loop_poll_del(loop, helper_fd);
	close(helper_fd);
	helper_fd = -1;
}
