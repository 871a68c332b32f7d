// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What an array asks of other threads. Here they are mailboxes that the test empties when it likes,
 * and the disk is what was put there last.
 */
#include <errno.h>
#include <sys/mman.h>

#include "daemon/runtime/array_int.h"
#include "tests/lib/test.h"

/* ---- what is not here ----------------------------------------------------------------------- */

static struct array *a;
static struct mailbox main_box;
static struct worker worker;
static struct config conf;
static struct store_record disk;
static int disk_err;
static uint64_t last_inc;
static unsigned records_done, restarts, fences_done;
static struct fence_ask *asked[4];
static unsigned asked_count;
static void (*again)(struct array *a);
static const char *lives; /* whose incarnation the last one is yet */

void alive_watch(struct array *x)
{
	life_watched(x, lives);
}

void array_phase(struct array *x, enum array_phase phase)
{
	x->phase = phase;
}

void array_waits(struct array *x, const char *format, ...)
{
	(void)x;
	(void)format;
}

void array_fail(struct array *x, const char *format, ...)
{
	(void)x;
	CHECK_MSG(false, "%s", format);
}

void array_say(const struct array *x, int priority, const char *format, ...)
{
	(void)x;
	(void)priority;
	(void)format;
}

void array_again(struct array *x, uint32_t ms, void (*do_it)(struct array *a))
{
	(void)x;
	(void)ms;
	again = do_it;
}

static char opened[DDR_URI_BYTES];

static bool opens;

bool dev_open_added(struct array *x, const char *uri)
{
	(void)x;
	if (opens)
		strcpy(opened, uri);
	return opens;
}

/* As for an array whose locks are the core's. */
void locks_open(struct array *x)
{
	life_ready(x);
}

void array_run(struct array *x)
{
	x->phase = ARRAY_PHASE_RUN;
}

static int closes;

void array_close_check(struct array *x)
{
	(void)x;
	closes++;
}

void disk_loaded(struct array *x)
{
	(void)x;
}

uint32_t disk_opens(const struct array *x)
{
	(void)x;
	return 0;
}

void pump_push(struct array *x, const struct event *ev)
{
	(void)x;
	records_done += ev->type == EV_RECORD_DONE;
	restarts += ev->type == EV_RESTART;
	fences_done += ev->type == EV_FENCE_DONE;
}

bool engine_dev_busy(const struct engine *e, uint32_t dev)
{
	(void)e;
	(void)dev;
	return false;
}

uint8_t engine_member_of_dev(const struct engine *e, uint32_t dev)
{
	(void)e;
	(void)dev;
	return 0xff;
}

void fence_run(struct fence_ask *ask)
{
	CHECK(asked_count < 4);
	asked[asked_count++] = ask;
}

static const char full[] = "the state directory is full";

uint64_t loop_now_us(const struct loop *l)
{
	(void)l;
	return 77;
}

void fence_ask_uri(struct fence_ask *ask, const char *uri)
{
	(void)ask;
	(void)uri;
}

int store_put_record(const char *name, const struct store_record *r, char why[STORE_WHY_BYTES])
{
	(void)name;
	if (!disk_err)
		disk = *r;
	else
		strcpy(why, full);
	return disk_err;
}

int store_get_record(const char *name, struct store_record *r, char why[STORE_WHY_BYTES])
{
	(void)name;
	(void)why;
	*r = disk;
	return 0;
}

int store_incarnation(uint64_t *inc, char why[STORE_WHY_BYTES])
{
	(void)why;
	*inc = ++last_inc;
	return 0;
}

/* ---- an array ------------------------------------------------------------------------------- */

static void kick(void *arg)
{
	(void)arg;
}

static void changed(struct array *x, const struct store_array *desc, uint32_t found, uint32_t added)
{
	(void)x;
	(void)desc;
	CHECK(!found && !added);
}

static int adding_err;
static char stored[DDR_URI_BYTES];

static void adding(struct array *x, const char *uri, bool over,
		   void (*done)(void *arg, int err, const char *why), void *arg)
{
	(void)x;
	CHECK(!opened[0]); /* not before it would be found again */
	strcpy(stored, over ? "" : uri);
	done(arg, adding_err, adding_err ? full : "");
}

static void settle(void)
{
	while (mailbox_run(&worker.box) | mailbox_run(&main_box) | mailbox_run(&a->box))
		;
}

static void begin(void)
{
	disk_err = 0;
	memset(&disk, 0, sizeof(disk));
	disk.clean = true;
	conf.fence = FENCE_ZOMBIE_TIMEOUT;
	records_done = restarts = fences_done = asked_count = 0;
	again = NULL;
	a = mmap(NULL, sizeof(*a), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(a != MAP_FAILED);
	a->env.conf = &conf;
	a->env.main = &main_box;
	a->env.worker = &worker;
	a->env.changed = changed;
	a->env.adding = adding;
	opened[0] = '\0';
	a->self.node = 1;
	mailbox_init(&main_box, kick, NULL);
	mailbox_init(&worker.box, kick, NULL);
	mailbox_init(&a->box, kick, NULL);
	life_load(a);
	settle();
	CHECK(a->phase == ARRAY_PHASE_RUN && a->inc == disk.inc && !disk.clean);
}

static void end(void)
{
	CHECK_EQ_U64(a->tasks, 0);
	CHECK(!munmap(a, sizeof(*a))); /* whoever comes too late does not get far */
}

static void record(uint64_t epoch)
{
	struct record r = {.acked = {.num = epoch}};

	life_record(a, &r);
}

/* As pump_end does. */
static void renew(void)
{
	a->restarting = true;
	life_renew(a);
}

/* ---- records -------------------------------------------------------------------------------- */

TEST(a_record_is_tried_again_until_it_is_on_disk)
{
	begin();
	disk_err = -ENOSPC;
	record(5);
	settle();
	CHECK(again && !records_done);
	/* The status says so until then. */
	CHECK_EQ_STR(a->record_why, full);
	CHECK_EQ_U64(a->record_us, 77);
	disk_err = 0;
	again(a);
	settle();
	CHECK(records_done == 1 && disk.record.acked.num == 5);
	CHECK_EQ_STR(a->record_why, "");
	end();
}

/* The time to try again comes while the new incarnation is made, before or after it is on disk. */
TEST(a_record_that_is_tried_again_never_brings_an_old_incarnation_back)
{
	for (int after = 0; after < 2; after++) {
		uint64_t inc;

		begin();
		disk_err = -ENOSPC;
		record(5);
		settle();
		CHECK(again);
		disk_err = 0;
		renew();
		if (after)
			mailbox_run(&worker.box);
		again(a);
		inc = last_inc + !after;
		settle();
		CHECK(restarts == 1 && records_done == 1);
		CHECK_EQ_U64(disk.inc, inc);
		CHECK_EQ_U64(disk.record.acked.num, 5);
		end();
	}
}

/* ---- add ---- */

TEST(what_add_names_is_opened_once_it_is_on_disk)
{
	enum { GOOD, FULL, NOT_OPENED, STOPPED };

	for (int t = GOOD; t <= STOPPED; t++) {
		begin();
		adding_err = t == FULL ? -ENOSPC : 0;
		opens = t != NOT_OPENED;
		life_adding(a, "nbd://new");
		a->phase = t == STOPPED ? ARRAY_PHASE_CLOSE : a->phase;
		closes = 0;
		settle();
		CHECK_EQ_STR(opened, t == GOOD ? "nbd://new" : "");
		CHECK_EQ_STR(a->live.adding, t == GOOD || t == STOPPED ? "nbd://new" : "");
		CHECK_EQ_STR(stored, t == NOT_OPENED ? "" : "nbd://new");
		CHECK_EQ_INT(closes > 0, t == STOPPED); /* the end of the task is looked at */
		end();
	}
}

/* ---- fences --------------------------------------------------------------------------------- */

static void ask(uint32_t node)
{
	a->e = (struct engine *)(void *)a; /* there is one; nobody here looks into it */
	life_fence(a, node, 7);
	settle();
}

TEST(fences_are_answered_in_any_order)
{
	begin();
	ask(2);
	ask(3);
	ask(4);
	asked[1]->done(asked[1], 0, "");
	asked[0]->done(asked[0], 0, "");
	settle();
	CHECK(fences_done == 2);
	asked[2]->done(asked[2], -EIO, "");
	settle();
	CHECK(fences_done == 3 && !a->fences);
	end();
}

/* One is answered just before the end, one after it, and one when the array has been freed. */
TEST(the_end_does_not_wait_for_fences)
{
	begin();
	ask(2);
	ask(3);
	ask(4);
	CHECK_EQ_U64(a->tasks, 0);
	a->phase = ARRAY_PHASE_CLOSE;
	asked[0]->done(asked[0], 0, "");
	settle();
	life_ended(a);
	asked[1]->done(asked[1], 0, "");
	settle();
	CHECK(!fences_done);
	end();
	asked[2]->done(asked[2], -EIO, "");
}

/* ---- an incarnation that was removed -------------------------------------------------------- */

static void answer(unsigned i, int err)
{
	asked[i]->done(asked[i], err, "so it is");
	settle();
}

static void removed(bool was_in)
{
	begin();
	conf.fence = FENCE_COMMAND;
	a->e = (struct engine *)(void *)a;
	a->removed = true;
	a->had_slot = was_in;
	renew();
	settle();
}

TEST(a_removed_incarnation_is_fenced_by_its_own_node_before_the_next)
{
	uint64_t was;

	removed(true);
	was = a->inc;
	CHECK(asked_count == 1 && asked[0]->node == 1 && asked[0]->inc == was);
	CHECK(!restarts && a->restarting && last_inc == was);
	answer(0, 0);
	CHECK(restarts == 1 && a->inc > was && !a->removed && !a->restarting && !a->had_slot);
	CHECK(!fences_done); /* the engine did not ask */
	end();
}

/* The stop is in the queue, and the new incarnation would not hear of it. */
TEST(who_is_stopped_as_it_is_renewed_begins_no_other_life)
{
	removed(true);
	a->phase = ARRAY_PHASE_STOP;
	answer(0, 0);
	CHECK(!restarts && a->removed); /* pump_end closes the array for that */
	end();
}

/* Since then the node was set to `cluster = alone`: it is node 1 for itself only. */
TEST(the_last_life_is_fenced_by_the_node_id_that_it_had)
{
	begin();
	CHECK_EQ_U64(disk.node, 1);
	conf.fence = FENCE_COMMAND;
	disk.node = 3;
	life_load(a);
	settle();
	CHECK(asked_count == 1 && asked[0]->node == 3 && asked[0]->inc == disk.inc);
	answer(0, 0);
	CHECK_EQ_U64(disk.node, 1);
	end();
}

/* The state directory is a copy. Its fence would hit who serves. */
TEST(a_last_life_that_has_not_ended_is_not_fenced)
{
	begin();
	conf.fence = FENCE_COMMAND;
	lives = "node 1 (host1) of cluster c";
	life_load(a);
	settle();
	CHECK(!asked_count && again == alive_watch && a->phase == ARRAY_PHASE_FENCE);
	again(a);
	settle();
	CHECK(!asked_count);
	lives = NULL;
	again(a);
	settle();
	CHECK(asked_count == 1 && asked[0]->inc == disk.inc);
	answer(0, 0);
	CHECK(a->phase == ARRAY_PHASE_RUN);
	end();
}

/* The id it had alone is another node's in the cluster that it joins: that one serves. */
TEST(a_life_that_ran_alone_is_fenced_by_the_id_of_now)
{
	begin();
	conf.fence = FENCE_COMMAND;
	a->alone = true;
	life_load(a);
	settle();
	answer(0, 0);
	CHECK_EQ_U64(disk.node, 0);
	a->alone = false;
	a->self.node = 3;
	life_load(a);
	settle();
	CHECK(asked_count == 2 && asked[1]->node == 3 && asked[1]->inc == disk.inc);
	answer(1, 0);
	CHECK_EQ_U64(disk.node, 3);
	end();
}

/* Which was alone, or was in a cluster by another id. */
TEST(the_fence_of_the_last_life_alone_is_none_of_node_1_of_a_cluster)
{
	for (int was_alone = 0; was_alone < 2; was_alone++) {
		begin();
		conf.fence = FENCE_COMMAND;
		a->alone = true;
		disk.node = was_alone ? 0 : 3;
		disk.inc = last_inc = 100;
		life_load(a);
		settle();
		answer(0, 0);
		ask(1); /* of its incarnation 7 */
		CHECK_EQ_U64(asked_count, 2);
		CHECK_EQ_U64(fences_done, 0);
		life_fence(a, 1, 100);
		settle();
		CHECK(asked_count == 2 && fences_done == 1);
		answer(1, 0);
		CHECK_EQ_U64(fences_done, 2);
		end();
	}
}

/* As a daemon that starts does. */
static void load(void)
{
	unsigned asked_before = asked_count;

	a->had_slot = false;
	life_load(a);
	settle();
	if (asked_count > asked_before)
		answer(asked_before, 0);
}

static void life_over(void)
{
	life_end(a);
	settle();
}

/* It never had a slot, so it does not know whether others have gone on without the lives before it.
 * But none of them is there any more, and it ended with nothing under way: nothing of this node is
 * to be fenced at the next start. */
TEST(a_life_that_never_served_vouches_for_no_other_and_is_not_fenced)
{
	begin();
	conf.fence = FENCE_COMMAND;
	CHECK(!disk.clean);
	load();
	CHECK_EQ_U64(asked_count, 1);
	life_over();
	CHECK(!disk.clean);
	load();
	CHECK_EQ_U64(asked_count, 1);
	CHECK_EQ_U64(a->fenced_inc, a->inc - 1);
	/* It ends in a crash, and is fenced. */
	load();
	CHECK_EQ_U64(asked_count, 2);
	a->had_slot = true;
	life_over();
	CHECK(disk.clean);
	load();
	CHECK_EQ_U64(asked_count, 2);
	life_over();
	CHECK(disk.clean);
	end();
}

/* Nobody fenced the one that was removed: it needs that at the next start, and one that came after
 * it and was never let in says nothing of it. */
TEST(a_life_after_one_that_was_removed_is_not_taken_for_the_end_of_both)
{
	begin();
	a->removed = a->had_slot = true;
	renew();
	settle();
	CHECK(restarts == 1 && !a->had_slot);
	life_over();
	CHECK(!disk.clean);
	CHECK(disk.fenced < disk.inc);
	conf.fence = FENCE_COMMAND;
	load();
	CHECK_EQ_U64(asked_count, 1);
	/* With a command the node has its own fence run before it goes on. */
	a->removed = a->had_slot = true;
	renew();
	settle();
	answer(1, 0);
	CHECK_EQ_U64(restarts, 2);
	life_over();
	CHECK(!disk.clean);
	CHECK_EQ_U64(disk.fenced, disk.inc);
	end();
}

TEST(it_is_asked_again_until_it_succeeds)
{
	uint64_t was;

	removed(true);
	was = a->inc;
	answer(0, -EIO);
	CHECK(!restarts && !a->restarting && a->renew_us > 77 && a->inc == was);
	record(5); /* is not kept back */
	settle();
	CHECK(records_done == 1);
	renew();
	settle();
	CHECK(asked_count == 2 && asked[1]->inc == was);
	record(6); /* waits for the new incarnation */
	settle();
	CHECK(records_done == 1);
	answer(1, 0);
	CHECK(restarts == 1 && a->inc > was && records_done == 2 && disk.inc == a->inc);
	end();
}

/* Without a slot: if it has proposed a map it may be fenced, else it goes on whatever is answered.
 */
TEST(one_that_was_never_let_in_does_not_depend_on_it)
{
	removed(false);
	CHECK(asked_count == 1 && !restarts);
	answer(0, -EIO);
	CHECK(restarts == 1);
	end();

	begin();
	conf.fence = FENCE_COMMAND;
	a->rec.record.acked.inc = a->inc;
	renew();
	settle();
	answer(0, -EIO);
	CHECK(!restarts);
	end();
}

/* It would end the connections of all arrays of this node. */
TEST(one_that_was_never_let_in_and_reaches_members_is_not_fenced)
{
	begin();
	conf.fence = FENCE_COMMAND;
	a->dev[1].used = a->dev[1].up = true;
	renew();
	settle();
	CHECK(!asked_count && restarts == 1);
	end();
}

TEST(a_wait_lets_nobody_in_and_is_not_asked_for)
{
	begin();
	a->had_slot = true;
	renew();
	settle();
	CHECK(!asked_count && restarts == 1);
	end();
}

TEST(the_end_comes_while_its_fence_is_asked_for)
{
	removed(true);
	a->phase = ARRAY_PHASE_CLOSE;
	life_ended(a);
	end();
	asked[0]->done(asked[0], 0, "");
}
