/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The world around daemon/runtime/disk.c, for its tests: incarnations of a daemon on one node, one
 * after another, with a run directory, rings and epochs. The front-end is one that remembers under
 * which name (front_export.token) it was served.
 */
#ifndef DDRAID_TESTS_UNIT_DISK_WORLD_H
#define DDRAID_TESTS_UNIT_DISK_WORLD_H

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/base/units.h"
#include "daemon/runtime/array_int.h"
#include "tests/lib/test.h"

static struct array *a;
static struct config conf;
static struct mailbox main_box;
static struct worker worker;
static struct engine_status now;
static char because[FRONT_WHY_BYTES];
static char device[] = "/dev/null-disk";

/* ---- a front-end ---------------------------------------------------------------------------- */

static struct {
	struct front front;
	bool serving, held, lost;
	bool hides;     /* while it is held, its device, as knbd's */
	uint64_t token; /* of what is open, 0 = nothing */
	uint64_t first; /* of what the first incarnation made */
	unsigned ended; /* opens that failed */
	unsigned opens;
	unsigned inflight;
	unsigned discards;
	int discard_err, remove_err, patience_err;
	int serve_err; /* the next time */
	uint32_t away_ms;
	uint64_t serve_takes_us; /* the next one */
} fake;

static struct front_ops fake_ops;
static inline bool note_there(void);

static int fake_open(const struct front_cfg *cfg, struct front **out, char *why)
{
	(void)cfg;
	(void)why;
	fake.front.ops = &fake_ops;
	fake.held = false;
	*out = &fake.front;
	return 0;
}

static int fake_serve(struct front *f, const struct front_export *ex, char *why)
{
	int err = fake.serve_err;

	(void)f;
	(void)why;
	CHECK(ex->token && !fake.held);
	fake.serve_err = 0;
	if (err)
		return err;
	if (fake.token && fake.token != ex->token)
		fake.ended++;
	fake.token = ex->token;
	fake.away_ms = ex->away_ms;
	a->disk.takeover.alone_us -= fake.serve_takes_us;
	fake.serve_takes_us = 0;
	fake.serving = true;
	return 0;
}

static void fake_complete(struct front *f, uint64_t tag, int err)
{
	(void)f;
	(void)tag;
	(void)err;
}

static void fake_reset(struct front *f)
{
	(void)f;
	if (fake.lost)
		return;
	fake.ended += fake.token != 0;
	fake.token = 0;
	fake.serving = fake.held = false;
}

static void fake_hold(struct front *f)
{
	(void)f;
	fake.held = true;
}

static void fake_close(struct front *f)
{
	(void)f;
	fake.serving = false;
}

static void fake_stats(const struct front *f, struct front_stats *st)
{
	(void)f;
	memset(st, 0, sizeof(*st));
	st->clients = fake.opens;
	st->inflight = fake.inflight;
}

static int fake_remove(struct front *f)
{
	(void)f;
	if (fake.remove_err)
		return fake.remove_err;
	if (fake.opens)
		return -EBUSY;
	fake.token = 0;
	fake.serving = false;
	return 0;
}

static const char *fake_device(const struct front *f)
{
	(void)f;
	return fake.serving && !(fake.held && fake.hides) ? device : NULL;
}

static int fake_patience(struct front *f, uint32_t away_ms, char *why)
{
	(void)f;
	CHECK(fake.serving);
	if (fake.patience_err)
		snprintf(why, FRONT_WHY_BYTES, "it takes no other time");
	else
		fake.away_ms = away_ms;
	return fake.patience_err;
}

#define FAKE_OPS(name_)                                                                            \
	{                                                                                          \
		.name = name_, .open = fake_open, .serve = fake_serve, .complete = fake_complete,  \
		.reset = fake_reset, .hold = fake_hold, .close = fake_close, .stats = fake_stats,  \
		.remove = fake_remove, .device = fake_device, .patience = fake_patience,           \
	}
static struct front_ops fake_ops = FAKE_OPS("shim");
FRONT_REGISTER(fake_ops)
static struct front_ops fake_knbd_ops = FAKE_OPS("knbd");
FRONT_REGISTER(fake_knbd_ops)

/* ---- what is not here ----------------------------------------------------------------------- */

void array_say(const struct array *x, int priority, const char *format, ...)
{
	(void)x;
	(void)priority;
	(void)format;
}

void array_close_check(struct array *x)
{
	(void)x;
}

void pump_submit(void *x, const struct front_req *req)
{
	(void)x;
	(void)req;
}

void pump_export(const struct array *x, const struct geo *g, struct front_export *ex)
{
	(void)x;
	(void)g;
	memset(ex, 0, sizeof(*ex));
}

static unsigned give_ups;

void pump_push(struct array *array, const struct event *ev)
{
	CHECK(array == a);
	CHECK_EQ_INT(ev->type, EV_GIVE_UP);
	give_ups++;
}

void engine_status(const struct engine *e, struct engine_status *st)
{
	(void)e;
	*st = now;
}

const struct geo *engine_geo(const struct engine *e)
{
	(void)e;
	return NULL;
}

int attach_driver(enum attach_via via, char why[FRONT_WHY_BYTES])
{
	(void)via;
	(void)why;
	return 0;
}

int attach_discard(const struct store_array *desc, bool force, uint32_t wait_ms,
		   char why[FRONT_WHY_BYTES])
{
	CHECK_EQ_INT(wait_ms, 0); /* not on the engine's thread */
	(void)desc;
	fake.discards++;
	/* Never one that is served, nor before it is known for good that nobody goes on with it. */
	CHECK(!fake.serving);
	CHECK(!force || !note_there());
	snprintf(why, FRONT_WHY_BYTES, "it can't be ended");
	if (fake.discard_err)
		return fake.discard_err;
	fake.ended += fake.token != 0;
	fake.token = 0;
	return 0;
}

static uint32_t heard_ms;

uint32_t config_heard_ms(const struct config *c)
{
	CHECK(c == &conf);
	return heard_ms;
}

const char *attach_via_name(enum attach_via via)
{
	(void)via;
	return "shim";
}

/* ---- lives ---------------------------------------------------------------------------------- */

static void kick(void *arg)
{
	(void)arg;
}

static inline bool note_there(void)
{
	char path[CONFIG_PATH_BYTES + 32];

	snprintf(path, sizeof(path), "%s/vol0.takeover", conf.run_dir);
	return !access(path, F_OK);
}

static inline void begin(void)
{
	snprintf(conf.run_dir, sizeof(conf.run_dir), "/tmp/ddraid-disk-XXXXXX");
	CHECK(mkdtemp(conf.run_dir));
	memset(&fake, 0, sizeof(fake));
	mailbox_init(&main_box, kick, NULL);
	mailbox_init(&worker.box, kick, NULL);
}

static inline void killed(void)
{
	fake.serving = false;
	loop_free(a->loop);
	munmap(a, sizeof(*a));
	a = NULL;
}

static inline void end(void)
{
	char command[CONFIG_PATH_BYTES + 16];

	/* What it has asked of the worker. */
	while (a && (mailbox_run(&worker.box) | mailbox_run(&a->box) | mailbox_run(&main_box)))
		;
	if (a)
		killed();
	snprintf(command, sizeof(command), "rm -rf %s", conf.run_dir);
	CHECK(system(command) == 0);
}

/* A daemon that has read its record: it ended cleanly, or had acknowledged this epoch. */
static inline void life_of(uint64_t inc, bool clean, struct epoch acked)
{
	a = mmap(NULL, sizeof(*a), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(a != MAP_FAILED);
	memset(&now, 0, sizeof(now));
	CHECK_EQ_INT(loop_new(&a->loop), 0);
	a->env.conf = &conf;
	a->env.main = &main_box;
	a->env.worker = &worker;
	mailbox_init(&a->box, kick, NULL);
	strcpy(a->live.name, "vol0");
	a->live.attach = ATTACH_SHIM;
	a->running = true;
	a->inc = inc;
	a->rec.clean = clean;
	a->rec.record.acked = acked;
	disk_loaded(a);
	a->e = (struct engine *)(void *)&fake; /* looked at by nobody */
	a->phase = ARRAY_PHASE_RUN;
}

static inline void incarnation(uint64_t inc, bool clean, uint64_t acked)
{
	life_of(inc, clean, (struct epoch){acked, 1});
}

static inline void ring(uint64_t seq)
{
	struct event ev = {.type = EV_VIEW};

	ev.view.ring = (struct ring){1, seq};
	disk_step(a, &ev);
}

static inline void tick(void)
{
	struct event ev = {.type = EV_TICK};

	disk_step(a, &ev);
}

/* It goes by this map from now on. */
static inline void map_is(uint64_t num, uint64_t inc)
{
	now.map.n = 3;
	now.map.epoch = (struct epoch){num, inc};
	tick();
}

static inline void disk_settles(void)
{
	for (int i = 0; i < 4; i++) {
		disk_advance(a);
		while (mailbox_run(&worker.box) | mailbox_run(&a->box) | mailbox_run(&main_box))
			;
	}
}

static inline void serves(void)
{
	now.io_allowed = true;
	disk_settles();
	CHECK(fake.serving);
}

/* The first one, with the device open. */
static inline void first_life(void)
{
	begin();
	incarnation(100, true, 4);
	ring(7);
	map_is(5, 1);
	serves();
	fake.first = fake.token;
	CHECK(note_there());
	CHECK_EQ_U64(fake.ended, 0);
}

static int attach_err;
static char attach_why[FRONT_WHY_BYTES];

static void attach_done(struct array_attach *q, int err, const char *why)
{
	(void)q;
	snprintf(attach_why, sizeof(attach_why), "%s", why);
	attach_err = err;
}

static inline void answered(void)
{
	for (int i = 0; i < 4; i++) {
		while (mailbox_run(&worker.box) | mailbox_run(&a->box) | mailbox_run(&main_box))
			;
		disk_advance(a);
	}
}

static inline void ask_for(struct array_attach q)
{
	q.done = attach_done;
	attach_err = 1;
	array_attach(a, &q);
	answered();
	CHECK(attach_err <= 0);
}

static inline void ask(enum attach_via via, bool force)
{
	ask_for((struct array_attach){.via = via, .force = force});
}

static inline void ask_patience(uint32_t away_ms)
{
	ask_for((struct array_attach){.via = ATTACH_SHIM, .patience = true, .away_ms = away_ms});
}

#endif
