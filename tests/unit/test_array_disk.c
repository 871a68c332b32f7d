// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Whose opens of a block device go on (R6): what a life does with the device that an earlier one
 * left, by the note in the run directory, the ring and the epochs. The front-end here is one that
 * remembers under which name (front_export.life) it was served.
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/array_int.h"
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
	uint64_t life;  /* of what is open, 0 = nothing */
	uint64_t first; /* of what the first life made */
	unsigned ended; /* opens that failed */
	unsigned opens;
	unsigned inflight;
	unsigned discards;
	int discard_err, remove_err, patience_err;
	uint32_t away_ms;
} fake;

static struct front_ops fake_ops;
static bool note_there(void);

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
	(void)f;
	(void)why;
	CHECK(ex->life && !fake.held);
	if (fake.life && fake.life != ex->life)
		fake.ended++;
	fake.life = ex->life;
	fake.away_ms = ex->away_ms;
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
	fake.ended += fake.life != 0;
	fake.life = 0;
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
	fake.life = 0;
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

static struct front_ops fake_ops = {
    .name = "shim",
    .open = fake_open,
    .serve = fake_serve,
    .complete = fake_complete,
    .reset = fake_reset,
    .hold = fake_hold,
    .close = fake_close,
    .stats = fake_stats,
    .remove = fake_remove,
    .device = fake_device,
    .patience = fake_patience,
};
FRONT_REGISTER(fake_ops)

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
	fake.ended += fake.life != 0;
	fake.life = 0;
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

static bool note_there(void)
{
	char path[CONFIG_PATH_BYTES + 32];

	snprintf(path, sizeof(path), "%s/vol0.life", conf.run_dir);
	return !access(path, F_OK);
}

static void begin(void)
{
	snprintf(conf.run_dir, sizeof(conf.run_dir), "/tmp/ddraid-disk-XXXXXX");
	CHECK(mkdtemp(conf.run_dir));
	memset(&fake, 0, sizeof(fake));
	mailbox_init(&main_box, kick, NULL);
	mailbox_init(&worker.box, kick, NULL);
}

static void killed(void)
{
	fake.serving = false;
	loop_free(a->loop);
	munmap(a, sizeof(*a));
	a = NULL;
}

static void end(void)
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
static void life_of(uint64_t inc, bool clean, struct epoch acked)
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

static void life(uint64_t inc, bool clean, uint64_t acked)
{
	life_of(inc, clean, (struct epoch){acked, 1});
}

static void ring(uint64_t seq)
{
	struct event ev = {.type = EV_VIEW};

	ev.view.ring = (struct ring){1, seq};
	disk_step(a, &ev);
}

static void tick(void)
{
	struct event ev = {.type = EV_TICK};

	disk_step(a, &ev);
}

/* It goes by this map from now on. */
static void map_is(uint64_t num, uint64_t inc)
{
	now.map.n = 3;
	now.map.epoch = (struct epoch){num, inc};
	tick();
}

static void serves(void)
{
	now.io_allowed = true;
	for (int i = 0; i < 4; i++) {
		disk_advance(a);
		while (mailbox_run(&worker.box) | mailbox_run(&a->box) | mailbox_run(&main_box))
			;
	}
	CHECK(fake.serving);
}

/* The first one, with the device open. */
static void first_life(void)
{
	begin();
	life(100, true, 4);
	ring(7);
	map_is(5, 1);
	serves();
	fake.first = fake.life;
	CHECK(note_there());
	CHECK_EQ_U64(fake.ended, 0);
}

TEST(a_daemon_that_comes_back_goes_on_with_what_was_open)
{
	first_life();
	killed();
	life(101, false, 5);
	ring(7);
	map_is(5, 1);
	serves();
	CHECK_EQ_U64(fake.life, fake.first);
	killed();
	life(102, false, 6); /* and so does the next */
	ring(7);
	map_is(6, 1);
	serves();
	CHECK_EQ_U64(fake.life, fake.first);
	CHECK_EQ_U64(fake.ended, 0);
	end();
}

TEST(an_older_epoch_than_acknowledged_is_no_reason)
{
	first_life();
	killed();
	life(101, false, 6); /* a proposal that nobody committed */
	ring(7);
	map_is(5, 1);
	serves();
	CHECK_EQ_U64(fake.ended, 0);
	end();
}

TEST(a_change_of_the_membership_that_no_life_saw_ends_what_was_open)
{
	first_life();
	killed();
	life(101, true, 5);
	ring(8);
	map_is(5, 1);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	CHECK(fake.life != fake.first);
	end();
}

TEST(a_change_of_the_membership_that_it_has_served_in_does_not)
{
	first_life();
	ring(8);
	serves();
	killed();
	life(101, false, 5);
	ring(8);
	map_is(5, 1);
	serves();
	CHECK_EQ_U64(fake.ended, 0);
	end();
}

TEST(a_ring_counts_only_when_io_was_allowed_in_it)
{
	first_life();
	ring(8);
	now.io_allowed = false;
	disk_advance(a);
	killed();
	life(101, false, 5);
	ring(8);
	map_is(5, 1);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

TEST(others_that_went_on_without_it_end_what_was_open)
{
	first_life();
	killed();
	life(101, false, 5);
	ring(7);
	map_is(6, 2);
	CHECK(!note_there());
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	CHECK(fake.life != fake.first);
	end();
}

TEST(an_epoch_of_the_same_number_and_another_leader_is_another_one)
{
	first_life();
	killed();
	life(101, false, 5);
	ring(7);
	map_is(5, 2);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

/* The one that found it out has acknowledged what the others did, and dies. */
TEST(what_one_life_has_found_out_holds_for_the_next)
{
	first_life();
	killed();
	life(101, false, 5);
	ring(7);
	map_is(6, 2);
	killed();
	life_of(102, false, (struct epoch){6, 2});
	ring(7);
	map_is(6, 2);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	CHECK(fake.life != fake.first);
	end();
}

TEST(who_left_cleanly_was_not_missed)
{
	first_life();
	disk_stop(a, ARRAY_STOP_LEAVE, because);
	CHECK(fake.held && note_there());
	killed();
	life(101, true, 5);
	ring(7);
	map_is(9, 2);
	serves();
	CHECK_EQ_U64(fake.ended, 0);
	CHECK_EQ_U64(fake.life, fake.first);
	end();
}

/* Nobody served when it came; its first map is one that it has acknowledged itself. */
TEST(a_round_of_its_own_on_top_of_what_it_knew_is_none_without_it)
{
	first_life();
	killed();
	life(101, false, 5);
	ring(7);
	now.proposing = true;
	now.proposed.epoch = (struct epoch){6, 3};
	tick();
	now.proposing = false;
	map_is(6, 3);
	serves();
	CHECK_EQ_U64(fake.ended, 0);
	killed();
	life_of(102, false, (struct epoch){6, 3});
	ring(7);
	now.proposing = true;
	now.proposed.epoch = (struct epoch){8, 3}; /* there was a 7 */
	tick();
	map_is(8, 3);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

/* It is killed when it has acknowledged a proposal that shows that there was another epoch. */
TEST(what_a_life_saw_proposed_counts_for_the_next_one)
{
	first_life();
	killed();
	life(101, false, 5);
	ring(7);
	now.proposing = true;
	now.proposed.epoch = (struct epoch){7, 3};
	tick();
	killed();
	life_of(102, false, (struct epoch){7, 3});
	ring(7);
	now.proposing = false;
	map_is(7, 3);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

TEST(a_node_that_was_removed_opens_anew)
{
	first_life();
	disk_removed(a);
	CHECK_EQ_U64(fake.ended, 1);
	CHECK(!fake.serving && !note_there());
	a->inc = 101;
	serves();
	CHECK(fake.life != fake.first);
	CHECK(note_there());
	killed();
	end();
}

/* Its consumers' requests wait in the kernel; they must not wait for a node that can't come back.
 */
TEST(what_waits_fails_when_the_others_have_gone_on_though_nobody_serves_yet)
{
	first_life();
	killed();
	life(101, false, 5);
	ring(7);
	map_is(6, 2);
	CHECK(!now.io_allowed && !fake.serving);
	CHECK_EQ_U64(fake.ended, 1);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

TEST(what_waits_fails_when_the_node_is_removed_before_it_has_served_it)
{
	first_life();
	killed();
	life(101, false, 5);
	ring(7);
	disk_removed(a);
	CHECK(!note_there());
	CHECK_EQ_U64(fake.ended, 1);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

/* The driver has taken its session from it: the front-end knows no device any more. */
TEST(what_waits_fails_when_the_node_is_removed_after_it_has_lost_it)
{
	first_life();
	fake.serving = false;
	fake.lost = true;
	disk_removed(a);
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

TEST(what_waits_and_can_not_be_failed_is_tried_again)
{
	first_life();
	killed();
	life(101, false, 5);
	ring(7);
	fake.discard_err = -EBUSY;
	fake.discards = 0;
	map_is(6, 2);
	CHECK_EQ_U64(fake.ended, 0);
	CHECK_EQ_INT(fake.discards, 1);
	disk_advance(a); /* not at once */
	CHECK_EQ_INT(fake.discards, 1);
	a->disk.left_us = 0;
	fake.discard_err = 0;
	disk_advance(a);
	CHECK_EQ_U64(fake.ended, 1);
	a->disk.left_us = 0;
	disk_advance(a);
	CHECK_EQ_INT(fake.discards, 2);
	end();
}

/* The one that removed the note died before it had ended the device. */
TEST(a_device_without_a_note_is_ended_by_who_finds_it)
{
	first_life();
	killed();
	fake.discard_err = -EBUSY;
	life(101, false, 5);
	ring(7);
	map_is(6, 2);
	killed();
	fake.discard_err = 0;
	life_of(102, false, (struct epoch){6, 2});
	ring(7);
	disk_advance(a);
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

static int attach_err;
static char attach_why[FRONT_WHY_BYTES];

static void attach_done(struct array_attach *q, int err, const char *why)
{
	(void)q;
	snprintf(attach_why, sizeof(attach_why), "%s", why);
	attach_err = err;
}

static void answered(void)
{
	for (int i = 0; i < 4; i++) {
		while (mailbox_run(&worker.box) | mailbox_run(&a->box) | mailbox_run(&main_box))
			;
		disk_advance(a);
	}
}

static void ask_for(struct array_attach q)
{
	q.done = attach_done;
	attach_err = 1;
	array_attach(a, &q);
	answered();
	CHECK(attach_err <= 0);
}

static void ask(enum attach_via via, bool force)
{
	ask_for((struct array_attach){.via = via, .force = force});
}

static void ask_patience(uint32_t away_ms)
{
	ask_for((struct array_attach){.via = ATTACH_SHIM, .patience = true, .away_ms = away_ms});
}

TEST(it_waits_at_least_until_all_others_know_of_the_daemons_end)
{
	heard_ms = 4000;
	first_life();
	CHECK_EQ_U64(fake.away_ms, 0); /* for ever */
	ask_patience(1000);
	CHECK_EQ_INT(attach_err, 0);
	CHECK_EQ_U64(fake.away_ms, 4000);
	CHECK_EQ_U64(a->live.away_ms, 4000);
	ask_patience(4001);
	CHECK_EQ_U64(fake.away_ms, 4001);
	heard_ms = 5000; /* another configuration */
	killed();
	life_of(101, true, (struct epoch){5, 1});
	a->live.away_ms = 4001;
	ring(7);
	map_is(5, 1);
	serves();
	CHECK(fake.serving);
	CHECK_EQ_U64(fake.away_ms, 5000);
	heard_ms = 0;
	end();
}

TEST(how_long_it_waits_is_told_to_what_is_there_and_at_each_serve)
{
	first_life();
	CHECK_EQ_U64(fake.away_ms, 0);
	ask_patience(30000);
	CHECK_EQ_INT(attach_err, 0);
	CHECK_EQ_U64(fake.away_ms, 30000);
	ask(ATTACH_SHIM, false);
	CHECK_EQ_INT(attach_err, 0);
	CHECK_EQ_U64(fake.away_ms, 30000);
	fake.lost = true;
	fake.serving = false;
	fake.away_ms = 0; /* an operator's own doing */
	a->disk.retry_us = 0;
	disk_advance(a);
	CHECK(fake.serving);
	CHECK_EQ_U64(fake.away_ms, 30000);
	ask_patience(0);
	CHECK_EQ_INT(attach_err, 0);
	CHECK_EQ_U64(fake.away_ms, 0);
	CHECK_EQ_U64(a->live.away_ms, 0);
	killed();
	life_of(101, true, (struct epoch){5, 1});
	a->live.away_ms = 7000; /* as it was kept */
	ring(7);
	map_is(5, 1);
	serves();
	CHECK_EQ_U64(fake.away_ms, 7000);
	ask(ATTACH_NONE, false);
	CHECK_EQ_U64(a->live.away_ms, 0);
	end();
}

TEST(a_time_that_it_does_not_take_changes_nothing)
{
	first_life();
	ask_patience(30000);
	fake.patience_err = -EIO;
	ask_patience(40000);
	CHECK_EQ_INT(attach_err, -EIO);
	CHECK(strstr(attach_why, "it takes no other time; detach it first"));
	CHECK(fake.serving && a->live.attach == ATTACH_SHIM);
	CHECK_EQ_U64(fake.away_ms, 30000);
	CHECK_EQ_U64(a->live.away_ms, 30000);
	end();
}

/* Its incarnation is the one before and 1, and so was once the name of a second device. */
TEST(a_life_after_a_clock_set_back_does_not_go_on_with_a_fenced_one)
{
	first_life();
	ask(ATTACH_NONE, false);
	CHECK_EQ_INT(attach_err, 0);
	ask(ATTACH_SHIM, false);
	CHECK_EQ_INT(attach_err, 0);
	CHECK(fake.serving && fake.life != fake.first);
	killed();
	life(101, false, 5);
	ring(7);
	map_is(6, 2);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

TEST(a_note_that_is_none_ends_what_was_open)
{
	char path[CONFIG_PATH_BYTES + 32];
	FILE *f;

	first_life();
	killed();
	snprintf(path, sizeof(path), "%s/vol0.life", conf.run_dir);
	f = fopen(path, "w");
	CHECK(f && fputs("100 1", f) >= 0 && !fclose(f));
	life(101, true, 5);
	ring(7);
	map_is(5, 1);
	serves();
	CHECK_EQ_U64(fake.ended, 1);
	end();
}

TEST(a_stop_that_was_asked_for_leaves_what_is_open)
{
	first_life();
	fake.opens = 1;
	CHECK_EQ_INT(disk_stop(a, ARRAY_STOP_ASKED, because), -EBUSY);
	CHECK(fake.serving && note_there());
	fake.opens = 0;
	CHECK_EQ_INT(disk_stop(a, ARRAY_STOP_ASKED, because), 0);
	CHECK(!fake.serving && !note_there());
	CHECK_EQ_U64(fake.ended, 0);
	end();
}

/* Of a driver that can't be asked now, say: who detaches must not be told that it is gone. */
TEST(a_device_that_can_not_be_ended_is_not_detached)
{
	first_life();
	killed();
	life(101, false, 5);
	ring(7);
	fake.discard_err = -EMFILE;
	ask(ATTACH_NONE, false);
	CHECK_EQ_INT(attach_err, -EMFILE);
	CHECK_EQ_INT(a->live.attach, ATTACH_SHIM);
	fake.discard_err = 0;
	ask(ATTACH_NONE, false);
	CHECK_EQ_INT(attach_err, 0);
	CHECK_EQ_INT(a->live.attach, ATTACH_NONE);
	end();
}

static struct array_attach detach_q;

/* A detach that has to wait; it is not answered. */
static void detach_waits(void)
{
	detach_q = (struct array_attach){.via = ATTACH_NONE, .done = attach_done};
	fake.remove_err = -EAGAIN;
	attach_err = 1;
	array_attach(a, &detach_q);
	answered();
	CHECK_EQ_INT(attach_err, 1);
	CHECK(a->disk.detach == &detach_q);
}

/* Its time has come. */
static void detach_fires(void)
{
	loop_timer_clear(a->loop, &a->disk.detach_timer);
	disk_detach_fired(a);
	answered();
}

TEST(what_is_not_known_yet_changes_nothing)
{
	first_life();
	fake.remove_err = -EAGAIN;
	CHECK_EQ_INT(disk_stop(a, ARRAY_STOP_ASKED, because), -EAGAIN);
	CHECK(fake.serving && note_there());
	detach_waits();
	CHECK(fake.serving && note_there() && a->live.attach == ATTACH_SHIM);
	detach_fires();
	CHECK_EQ_INT(attach_err, 1);
	a->disk.detach_until_us = 0;
	detach_fires();
	CHECK_EQ_INT(attach_err, -EAGAIN);
	CHECK(strstr(attach_why, "who has it open is not known yet"));
	CHECK(fake.serving && note_there() && a->live.attach == ATTACH_SHIM);
	fake.remove_err = 0;
	ask(ATTACH_NONE, false);
	CHECK_EQ_INT(attach_err, 0);
	CHECK(!fake.serving && !note_there());
	end();
}

TEST(a_detach_waits_until_it_is_known_who_has_it_open)
{
	first_life();
	detach_waits();
	ask(ATTACH_NONE, false); /* a second one meanwhile */
	CHECK_EQ_INT(attach_err, -EAGAIN);
	fake.remove_err = 0;
	fake.opens = 1;
	detach_fires();
	CHECK_EQ_INT(attach_err, -EBUSY);
	CHECK(fake.serving && note_there() && a->live.attach == ATTACH_SHIM);
	detach_waits();
	fake.remove_err = 0;
	fake.opens = 0;
	detach_fires();
	CHECK_EQ_INT(attach_err, 0);
	CHECK(!fake.serving && !note_there() && a->live.attach == ATTACH_NONE);
	end();
}

TEST(a_detach_waits_for_that_of_what_an_earlier_life_left_too)
{
	first_life();
	killed();
	life(101, false, 5);
	ring(7);
	fake.discard_err = -EAGAIN;
	detach_waits();
	fake.remove_err = 0;
	fake.discard_err = 0;
	detach_fires();
	CHECK_EQ_INT(attach_err, 0);
	CHECK(!note_there() && a->live.attach == ATTACH_NONE);
	end();
}

TEST(a_detach_that_waits_is_answered_when_the_array_stops)
{
	first_life();
	detach_waits();
	a->phase = ARRAY_PHASE_STOP;
	detach_fires();
	CHECK_EQ_INT(attach_err, -ESHUTDOWN);
	a->phase = ARRAY_PHASE_RUN;
	detach_waits();
	disk_close(a);
	answered();
	CHECK_EQ_INT(attach_err, -ESHUTDOWN);
	CHECK(!a->disk.detach);
	end();
}

/* With requests under way, of somebody who has it open. */
static void detach_forced(bool hides)
{
	first_life();
	fake.hides = hides;
	fake.discards = 0;
	fake.opens = 1;
	fake.inflight = 3;
	give_ups = 0;
	detach_q = (struct array_attach){.via = ATTACH_NONE, .force = true, .done = attach_done};
	attach_err = 1;
	array_attach(a, &detach_q);
	answered();
	CHECK_EQ_INT(attach_err, 1);
	CHECK(fake.held && fake.serving && a->disk.detach == &detach_q);
	CHECK_EQ_U64(fake.ended, 0);
}

static void drained(bool hides)
{
	detach_forced(hides);
	fake.inflight = 1;
	detach_fires();
	CHECK_EQ_INT(attach_err, 1);
	CHECK_EQ_U64(fake.ended, 0);
	CHECK_EQ_INT(give_ups, 0);
	ask(ATTACH_SHIM, false); /* meanwhile */
	CHECK_EQ_INT(attach_err, -EAGAIN);
	attach_err = 1;
	fake.inflight = 0;
	detach_fires();
	CHECK_EQ_INT(attach_err, 0);
	CHECK_EQ_U64(fake.ended, 1);
	CHECK(!fake.serving && !note_there() && a->live.attach == ATTACH_NONE);
	CHECK_EQ_INT(fake.discards, 0);
	end();
}

TEST(who_has_it_open_is_told_only_when_nothing_of_theirs_is_under_way)
{
	drained(false);
	drained(true);
}

/* R6. Or else it would be written when the members are back. */
static void given_up(bool hides)
{
	detach_forced(hides);
	a->disk.cut_us = 1;
	detach_fires();
	CHECK_EQ_INT(give_ups, 1);
	CHECK_EQ_INT(attach_err, 1);
	CHECK_EQ_U64(fake.ended, 0);
	detach_fires(); /* once is enough */
	CHECK_EQ_INT(give_ups, 1);
	disk_removed(a);
	CHECK_EQ_U64(fake.ended, 1);
	fake.inflight = 0; /* the engine has dropped them */
	detach_fires();
	CHECK_EQ_INT(attach_err, 0);
	CHECK(!note_there() && a->live.attach == ATTACH_NONE);
	CHECK(!a->disk.cut_us);
	end();
}

static void lose_device(void)
{
	fake.lost = true;
	fake.serving = false;
}

/* The driver refused a call, or the kernel's NBD client ended the connection: the device waits. */
TEST(what_a_lost_device_has_under_way_ends_before_its_consumers_are_told)
{
	first_life();
	fake.inflight = 3;
	lose_device();
	give_ups = 0;
	CHECK_EQ_INT(disk_hold(a), 3); /* a stop waits, too */
	detach_q = (struct array_attach){.via = ATTACH_NONE, .force = true, .done = attach_done};
	attach_err = 1;
	array_attach(a, &detach_q);
	answered();
	CHECK_EQ_INT(attach_err, 1);
	CHECK_EQ_U64(fake.ended, 0);
	a->disk.cut_us = 1;
	detach_fires();
	CHECK_EQ_INT(give_ups, 1);
	CHECK_EQ_U64(fake.ended, 0);
	fake.inflight = 0;
	detach_fires();
	CHECK_EQ_INT(attach_err, 0);
	CHECK_EQ_U64(fake.ended, 1);
	CHECK(!note_there() && a->live.attach == ATTACH_NONE);
	end();
}

static int second_err;

static void second_done(struct array_attach *q, int err, const char *why)
{
	(void)q;
	(void)why;
	second_err = err;
}

TEST(a_detach_by_force_does_not_wait_for_one_without)
{
	struct array_attach forced = {.via = ATTACH_NONE, .force = true, .done = second_done};

	first_life();
	detach_waits();
	fake.inflight = 2;
	second_err = 1;
	array_attach(a, &forced);
	answered();
	CHECK_EQ_INT(attach_err, -ECANCELED);
	CHECK_EQ_INT(second_err, 1);
	CHECK(a->disk.detach == &forced && fake.held);
	ask(ATTACH_NONE, true); /* a second one */
	CHECK_EQ_INT(attach_err, -EAGAIN);
	CHECK_EQ_INT(second_err, 1);
	fake.inflight = 0;
	detach_fires();
	CHECK_EQ_INT(second_err, 0);
	CHECK_EQ_U64(fake.ended, 1);
	CHECK(!note_there() && a->live.attach == ATTACH_NONE);
	end();
}

TEST(what_does_not_end_when_it_is_cut_off_ends_with_the_incarnation)
{
	given_up(false);
	given_up(true);
}
