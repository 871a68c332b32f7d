// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Failpoints. A step is a place (before a message is sent, when a request is done, ...) and what it
 * is about there (which message, which kind of request).
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/runtime/failpoint.h"
#include "daemon/base/log.h"
#include "daemon/core/format/geometry.h"
#include "proto/node.pb-c.h"

#define IDS 1024u /* requests that are looked for when they are done */

enum place { SEND, SENT, IO, IO_DONE, FENCE, FENCE_ASKED, FENCE_DONE, RECORD, RECORD_DONE };
enum request { NOTHING, SB_WRITE, SLOT_READ, SLOT_WRITE, RESYNC, REBUILD, FLUSH };

#define BODY(name) DDRAID__NODE_MSG__BODY_##name

static const struct {
	const char *name;
	enum place place;
	int what;
} steps[] = {
    {"query", SEND, BODY(QUERY)},
    {"query-sent", SENT, BODY(QUERY)},
    {"hello-sent", SENT, BODY(HELLO)},
    {"state", SEND, BODY(STATE)},
    {"state-sent", SENT, BODY(STATE)},
    {"record", RECORD, 0},
    {"recorded", RECORD_DONE, 0},
    {"claim-sent", SENT, BODY(CLAIM)},
    {"fence", FENCE, 0},
    {"fence-asked", FENCE_ASKED, 0},
    {"fenced", FENCE_DONE, 0},
    {"fenced-sent", SENT, BODY(FENCED)},
    {"slot-read", IO, SLOT_READ},
    {"slot-read-done", IO_DONE, SLOT_READ},
    {"propose", SEND, BODY(PROPOSE)},
    {"propose-sent", SENT, BODY(PROPOSE)},
    {"ack", SEND, BODY(ACK)},
    {"ack-sent", SENT, BODY(ACK)},
    {"superblock", IO, SB_WRITE},
    {"superblock-done", IO_DONE, SB_WRITE},
    {"commit", SEND, BODY(COMMIT)},
    {"commit-sent", SENT, BODY(COMMIT)},
    {"dirty-sent", SENT, BODY(DIRTY)},
    {"ready", SEND, BODY(READY)},
    {"ready-sent", SENT, BODY(READY)},
    {"assign", SEND, BODY(ASSIGN)},
    {"assign-sent", SENT, BODY(ASSIGN)},
    {"resync", IO, RESYNC},
    {"flush", IO, FLUSH},
    {"slot-clear", IO, SLOT_WRITE},
    {"slot-clear-done", IO_DONE, SLOT_WRITE},
    {"admin-sent", SENT, BODY(ADMIN)},
    {"admin-done", SEND, BODY(ADMIN_DONE)},
    {"admin-done-sent", SENT, BODY(ADMIN_DONE)},
    {"rebuild", IO, REBUILD},
};

#define STEPS (sizeof(steps) / sizeof(steps[0]))

static const char *path;
static char armed[32]; /* what `passed` counts for */
static uint32_t passed;
static struct {
	uint64_t id;
	enum request what;
} asked[IDS];
static uint32_t next_asked;

static void list(char *to, size_t bytes)
{
	size_t n = 0;

	for (size_t i = 0; i < STEPS && n < bytes; i++)
		n += (size_t)snprintf(to + n, bytes - n, "%s%s", i ? " " : "", steps[i].name);
}

int failpoint_init(void)
{
	char names[LOG_TEXT_BYTES];

	path = getenv("DDRAIDD_FAILPOINT");
	if (!path || path[0] == '/')
		return 0;
	list(names, sizeof(names));
	fprintf(stderr,
		"ddraidd: DDRAIDD_FAILPOINT wants the absolute path of a file that holds STEP "
		"[COUNT]; the steps: %s\n",
		names);
	return -EINVAL;
}

/* The step that the file names, or STEPS. */
static size_t armed_step(uint32_t *count)
{
	char name[32] = "", names[LOG_TEXT_BYTES];
	FILE *f = fopen(path, "r");
	size_t i = 0;

	*count = 1;
	if (!f)
		return STEPS;
	if (fscanf(f, "%31s %" SCNu32, name, count) < 1)
		name[0] = '\0';
	fclose(f);
	while (i < STEPS && strcmp(steps[i].name, name))
		i++;
	if (i == STEPS && name[0]) {
		list(names, sizeof(names));
		say(LOG_ERR, "failpoint %s: there is no such step; the steps: %s", name, names);
		unlink(path);
	}
	if (strcmp(armed, name)) {
		passed = 0;
		strcpy(armed, name);
	}
	return i;
}

static void at(enum place place, int what)
{
	uint32_t count;
	size_t i = armed_step(&count);

	if (i == STEPS || steps[i].place != place || steps[i].what != what || ++passed < count)
		return;
	unlink(path);
	raise(SIGKILL);
}

/* ---- messages ------------------------------------------------------------------------------- */

static void at_message(enum place place, const void *data, size_t bytes)
{
	Ddraid__NodeMsg *m = ddraid__node_msg__unpack(NULL, bytes, data);

	if (!m)
		return;
	if (m->body_case != BODY(HEARTBEAT))
		at(place, (int)m->body_case);
	ddraid__node_msg__free_unpacked(m, NULL);
}

void failpoint_sent(const void *data, size_t bytes)
{
	if (path)
		at_message(SENT, data, bytes);
}

/* ---- requests to members -------------------------------------------------------------------- */

static bool own_slot(const struct engine *e, uint64_t offset)
{
	const struct geo *g = engine_geo(e);
	uint32_t slot = engine_slot(e);

	return g && slot != UINT32_MAX && offset >= geo_log_offset(g, slot, 0, 0) &&
	       offset < geo_log_offset(g, slot + 1, 0, 0);
}

static enum request request_of(const struct engine *e, const struct out *o)
{
	bool writes = o->io.op == DEV_WRITE;

	switch (o->io.kind) {
	case KIND_SB:
		return writes ? SB_WRITE : NOTHING;
	case KIND_LOG:
		return !writes ? SLOT_READ : own_slot(e, o->io.offset) ? NOTHING : SLOT_WRITE;
	case KIND_RESYNC:
		return RESYNC;
	case KIND_REBUILD:
		return REBUILD;
	case KIND_FLUSH:
		return FLUSH;
	default:
		return NOTHING;
	}
}

static void at_request(const struct engine *e, const struct out *o)
{
	enum request what = request_of(e, o);

	if (!what)
		return;
	asked[next_asked % IDS].id = o->io.id;
	asked[next_asked++ % IDS].what = what;
	at(IO, (int)what);
}

static void at_done(uint64_t id)
{
	for (uint32_t i = 0; i < IDS; i++) {
		if (!asked[i].what || asked[i].id != id)
			continue;
		at(IO_DONE, (int)asked[i].what);
		asked[i].what = NOTHING;
	}
}

/* ---- where the pump comes by ---------------------------------------------------------------- */

void failpoint_out(const struct engine *e, const struct out *o)
{
	if (!path)
		return;
	if (o->type == OUT_SEND)
		at_message(SEND, o->send.data, o->send.bytes);
	else if (o->type == OUT_DEV_IO)
		at_request(e, o);
	else if (o->type == OUT_FENCE)
		at(FENCE, 0);
	else if (o->type == OUT_RECORD)
		at(RECORD, 0);
}

void failpoint_asked(void)
{
	if (path)
		at(FENCE_ASKED, 0);
}

void failpoint_event(const struct event *ev)
{
	if (!path)
		return;
	if (ev->type == EV_DEV_DONE)
		at_done(ev->done.id);
	else if (ev->type == EV_FENCE_DONE && !ev->fence.err)
		at(FENCE_DONE, 0);
	else if (ev->type == EV_RECORD_DONE)
		at(RECORD_DONE, 0);
}
