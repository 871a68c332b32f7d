// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An array is forgotten, here or by another node: it does not come back, and its name is free. And
 * the list of the forgotten: what it keeps, whatever others make up.
 */
#include "tests/unit/manager_world.h"

#include <sys/stat.h>
#include <sys/syscall.h>

#include "daemon/base/units.h"
#include "daemon/catalog/forgotten.h"

/* Files are synced, and the directory is not. */
static bool dirs_fail;

int fsync(int fd)
{
	struct stat st;

	if (dirs_fail && !fstat(fd, &st) && S_ISDIR(st.st_mode)) {
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_fsync, fd);
}

static void forget(const char *name)
{
	struct array_entry *k = manager_find(name, false);

	CHECK(k);
	CHECK_MSG(!forget_it(k), "%s", ended_why);
}

/* ---- forgetting ----------------------------------------------------------------------------- */

#define NAMES 200u

static void create_and_forget_many(void)
{
	char name[16];

	for (unsigned i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "vol%u", i);
		create(i, name);
		CHECK(manager_find(name, false));
		forget(name);
		CHECK_EQ_U64(manager_count(), 0);
	}
	CHECK_EQ_U64(told_forgotten, NAMES);
	CHECK(!file_there("vol0.array") && !file_there("vol199.array"));
	create(NAMES, "vol0");
	CHECK_EQ_U64(manager_count(), 1);
}

/* A node that was away tells what it had; whatever it did meanwhile, it is over. */
static void old_news(void)
{
	CHECK_EQ_U64(manager_count(), 1);
	for (unsigned i = 0; i < NAMES; i++) {
		struct store_array d = desc_of(i, i & 1 ? "vol0" : "other");

		d.version = 1000;
		d.started = true;
		CHECK_EQ_INT(manager_apply(&d, false), 0);
	}
	settle();
	CHECK_EQ_U64(manager_count(), 1);
	CHECK(manager_find("vol0", false)->desc.uuid[0] == NAMES);
}

TEST(a_forgotten_array_takes_no_room_and_does_not_come_back)
{
	fresh_dir();
	life(create_and_forget_many);
	life(old_news);
	remove_dir();
}

static void forget_while_it_runs(void)
{
	struct array_entry *k;
	struct array *a;

	create(1, "vol0");
	k = manager_hold(manager_find("vol0", false));
	CHECK_EQ_INT(say_for(k, true, false, false), 0);
	a = k->array;
	CHECK(a->running);
	forget("vol0");
	CHECK(!k->gone && file_there("vol0.array"));
	CHECK(!manager_find("vol0", false) && manager_find("vol0", true) == k);
	a->running = false;
	env.ended(a, "");
	settle();
	CHECK(k->gone && !file_there("vol0.array") && manager_count() == 0);
	manager_let_go(k);
}

TEST(an_array_is_given_up_only_when_it_has_stopped)
{
	fresh_dir();
	life(forget_while_it_runs);
	remove_dir();
}

static void forget_is_refused(void)
{
	create(1, "vol0");
	dirs_fail = true;
	CHECK_EQ_INT(forget_it(manager_find("vol0", false)), -EIO);
	dirs_fail = false;
	CHECK(again_asked);
	manager_again();
	settle();
}

static void still_known(void)
{
	CHECK(manager_find("vol0", false) && manager_count() == 1);
}

TEST(a_forget_that_was_refused_does_not_come_to_pass_at_the_next_start)
{
	fresh_dir();
	life(forget_is_refused);
	life(still_known);
	remove_dir();
}

/* The name's next array was told while the old one still stops. */
static void name_taken_over(void)
{
	struct store_array d = desc_of(2, "vol0");
	struct array_entry *k;

	create(1, "vol0");
	k = manager_find("vol0", false);
	CHECK_EQ_INT(say_for(k, true, false, false), 0);
	forget("vol0");
	CHECK_EQ_INT(manager_apply(&d, false), 1);
	k->array->running = false;
	env.ended(k->array, "");
	settle();
	CHECK(!k->gone && !k->desc.forgotten && k->desc.uuid[0] == 2);
	CHECK(file_there("vol0.array") && manager_find("vol0", false) == k);
}

TEST(a_name_is_free_as_soon_as_its_array_is_forgotten)
{
	fresh_dir();
	life(name_taken_over);
	remove_dir();
}

/* And that one is forgotten while the files of the first are removed. */
static void both_are_forgotten(void)
{
	struct store_array d = desc_of(2, "vol0");
	struct store_forgotten f = {.at_s = 5};
	struct array_entry *k;

	memcpy(f.uuid, d.uuid, sizeof(f.uuid));
	create(1, "vol0");
	k = manager_hold(manager_find("vol0", false));
	manager_forget(k, change_begin(CHANGE_FORGET));
	while (!k->removing)
		mailbox_run(&box);
	CHECK_EQ_INT(manager_apply(&d, false), 1);
	manager_forgotten(3, &f, 1);
	CHECK_EQ_INT(change_ends(), 0);
	CHECK(k->gone && k->refs == 1 && manager_count() == 0 && !file_there("vol0.array"));
	manager_let_go(k);
}

TEST(a_name_can_be_forgotten_twice_in_a_row)
{
	fresh_dir();
	life(both_are_forgotten);
	remove_dir();
}

/* Who holds it, as a stop that waits does, may still ask for something. */
static void asked_when_it_is_gone(void)
{
	struct array_entry *k;

	create(1, "vol0");
	k = manager_hold(manager_find("vol0", false));
	forget("vol0");
	CHECK(k->gone);
	create(2, "vol0");
	CHECK_EQ_INT(say_for(k, false, false, true), -ENODEV);
	CHECK_EQ_INT(say_for(k, true, true, false), -ENODEV);
	CHECK_EQ_INT(set(k, "release_delay", "7s"), -ENODEV);
	CHECK_EQ_INT(forget_it(k), 0);
	manager_attach(k, ATTACH_NBD, AWAY_HOLD);
	settle();
	CHECK(k->refs == 1 && !k->array->running);
	CHECK(manager_count() == 1 && file_there("vol0.array") &&
	      !file_has("vol0.array", "attach"));
	manager_let_go(k);
}

TEST(what_is_gone_stays_gone_whatever_it_is_asked)
{
	fresh_dir();
	life(asked_when_it_is_gone);
	remove_dir();
}

/* While it is written, others forget the array and make the next one of its name. */
static void changed_too_late(void)
{
	struct store_array one = desc_of(1, "vol0"), two = desc_of(2, "vol0");
	struct store_forgotten f = {.at_s = 5};
	struct manager_change *c;
	struct array_entry *k;

	create(1, "vol0");
	k = manager_find("vol0", false);
	memcpy(f.uuid, one.uuid, sizeof(f.uuid));
	c = change_begin(CHANGE_OPTION);
	c->key = "release_delay";
	c->value = "7s";
	manager_change(k, c);
	manager_forgotten(3, &f, 1);
	CHECK_EQ_INT(manager_apply(&two, false), 1);
	CHECK_EQ_INT(change_ends(), -ENODEV);
	CHECK(k->desc.uuid[0] == 2 && k->desc.version == 1 && k->stored);
	CHECK(file_has("vol0.array", "release_delay = 1000ms\n"));
}

TEST(a_change_is_of_one_array_not_of_the_next_one_of_its_name)
{
	fresh_dir();
	life(changed_too_late);
	remove_dir();
}

static void others_forget(void)
{
	struct store_array one = desc_of(1, "one"), two = desc_of(2, "two");
	struct store_forgotten f[2] = {{.at_s = 5}, {.at_s = 6}};

	memcpy(f[0].uuid, one.uuid, sizeof(one.uuid));
	memcpy(f[1].uuid, two.uuid, sizeof(two.uuid));
	create(1, "one");
	manager_forgotten(3, f, 2);
	settle();
	CHECK(manager_count() == 0 && !file_there("one.array"));
	CHECK_EQ_INT(manager_apply(&two, false), 0); /* it was never here, and will not be */
}

static void others_forgot(void)
{
	struct store_array two = desc_of(2, "two");

	CHECK_EQ_INT(manager_apply(&two, false), 0);
	CHECK_EQ_U64(manager_count(), 0);
}

TEST(what_others_have_forgotten_is_forgotten_here)
{
	fresh_dir();
	life(others_forget);
	life(others_forgot);
	remove_dir();
}

static void power_cut_after_the_list(void)
{
	char why[STORE_WHY_BYTES];
	struct store_array d = desc_of(1, "vol0");
	struct store_forgotten f = {.at_s = 1};

	create(1, "vol0");
	memcpy(f.uuid, d.uuid, sizeof(f.uuid));
	CHECK_EQ_INT(store_put_forgotten(&f, 1, why), 0);
}

static void nothing_is_left(void)
{
	CHECK(manager_count() == 0 && !file_there("vol0.array"));
}

TEST(an_array_whose_files_were_left_is_not_started)
{
	fresh_dir();
	life(power_cut_after_the_list);
	life(nothing_is_left);
	remove_dir();
}

/* ---- the list ------------------------------------------------------------------------------- */

static void half_a_list(void)
{
	struct store_array d = desc_of(1, "vol0");

	char why[STORE_WHY_BYTES];

	CHECK(strstr(said, "the list of the forgotten was damaged") && store_has_damaged(why));
	CHECK_EQ_INT(manager_apply(&d, false), 0);
}

/* What was read counts on, and is written down; the other file is the operator's. */
static void still_half_a_list(void)
{
	struct store_array d = desc_of(1, "vol0"), e = desc_of(2, "vol1");
	char why[STORE_WHY_BYTES];

	CHECK(file_there("forgotten") && store_has_damaged(why));
	CHECK_EQ_INT(manager_apply(&d, false), 0);
	CHECK_EQ_INT(manager_apply(&e, false), 1);
	settle();
	CHECK(file_there("forgotten") && store_has_damaged(why));
}

static void whole_again(void)
{
	struct store_array d = desc_of(1, "vol0"), e = desc_of(2, "vol1");
	char why[STORE_WHY_BYTES];

	settle();
	CHECK(!store_has_damaged(why) && !file_there("vol1.array"));
	CHECK_EQ_INT(manager_apply(&d, false), 0);
	CHECK_EQ_INT(manager_apply(&e, false), 0);
}

TEST(a_damaged_list_counts_as_far_as_it_can_be_read)
{
	fresh_dir();
	file_write("forgotten", "01000000-d0d0-d0d0-d0d0-d0d0d0d0d0d0 17\nx\n02000000-d0d0-");
	life(half_a_list);
	life(still_half_a_list);
	file_write("forgotten.damaged", "02000000-d0d0-d0d0-d0d0-d0d0d0d0d0d0 18\nend\n");
	life(whole_again);
	CHECK(!file_there("forgotten.damaged"));
	life(whole_again);
	remove_dir();
}

TEST(the_list_keeps_the_newest_on_every_node)
{
	static struct forgotten a, b;
	struct store_forgotten e = {.at_s = 0};

	for (uint32_t i = 0; i < STORE_MAX_FORGOTTEN + 50; i++) {
		uint32_t j = STORE_MAX_FORGOTTEN + 49 - i;

		memcpy(e.uuid, &i, sizeof(i));
		e.at_s = 100 + i / 2;
		CHECK(forgotten_add(&a, &e, false));
		CHECK(!forgotten_add(&a, &e, false));
		memcpy(e.uuid, &j, sizeof(j));
		e.at_s = 100 + j / 2;
		forgotten_add(&b, &e, false);
	}
	CHECK_EQ_U64(a.count, STORE_MAX_FORGOTTEN);
	CHECK_EQ_MEM(&a, &b, sizeof(a));
	e.at_s = 1;
	memset(e.uuid, 0xff, sizeof(e.uuid));
	CHECK(!forgotten_add(&a, &e, false) && forgotten_add(&a, &e, true));
	CHECK(forgotten_has(&a, e.uuid));
	CHECK(!forgotten_room(&a, 2 + FORGOTTEN_DAYS * 86400 - 1));
	CHECK(forgotten_room(&a, 2 + FORGOTTEN_DAYS * 86400));
}

/* ---- what others have made up --------------------------------------------------------------- */

static struct store_forgotten stone(uint32_t no, uint32_t by, uint64_t at_s)
{
	struct store_forgotten e = {.at_s = at_s, .by = by};

	memcpy(e.uuid, &no, sizeof(no));
	memcpy(e.uuid + 4, &by, sizeof(by));
	return e;
}

static uint32_t stones(const struct forgotten *f, uint32_t by)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->count; i++) {
		n += f->entry[i].by == by;
		CHECK(!i || f->entry[i].at_s >= f->entry[i - 1].at_s);
	}
	return n;
}

TEST(what_was_used_here_is_kept_in_mind_whatever_others_make_up)
{
	static struct forgotten f;
	struct store_forgotten e;

	memset(&f, 0, sizeof(f));
	for (uint32_t i = 0; i < 100; i++) {
		e = stone(i, 0, 1000 + i);
		CHECK(forgotten_add(&f, &e, false));
	}
	for (uint32_t i = 0; i < 3 * STORE_MAX_FORGOTTEN; i++) {
		e = stone(i, 7, 1000000 + i / 2);
		CHECK(forgotten_add(&f, &e, false));
	}
	CHECK(stones(&f, 0) == 100 && stones(&f, 7) == FORGOTTEN_OF_NODE);
	CHECK(forgotten_room(&f, 1000001));
	/* Another node finds room as well, and who tells most makes way. */
	for (uint32_t i = 0; i < STORE_MAX_FORGOTTEN; i++) {
		e = stone(i, 8, 2000 + i);
		forgotten_add(&f, &e, false);
	}
	CHECK_EQ_U64(f.count, STORE_MAX_FORGOTTEN);
	CHECK(stones(&f, 0) == 100 && stones(&f, 7) == 462 && stones(&f, 8) == 462);
	/* What is told again does not come back. */
	for (uint32_t i = 0; i < 3 * STORE_MAX_FORGOTTEN; i++) {
		e = stone(i, 7, 1000000 + i / 2);
		CHECK(!forgotten_add(&f, &e, false));
	}
	/* Those that were used here take what they need. */
	for (uint32_t i = 100; i < STORE_MAX_FORGOTTEN; i++) {
		CHECK(forgotten_room(&f, 1000001));
		e = stone(i, 0, 1000 + i);
		CHECK(forgotten_add(&f, &e, false));
	}
	CHECK_EQ_U64(stones(&f, 0), STORE_MAX_FORGOTTEN);
	CHECK(!forgotten_room(&f, 1000001));
	e = stone(1, 9, UINT64_MAX);
	CHECK(!forgotten_add(&f, &e, false) && !forgotten_add(&f, &e, true));
}

static struct store_forgotten made_up[STORE_MAX_FORGOTTEN];

static void make_up(uint32_t from)
{
	for (uint32_t i = 0; i < STORE_MAX_FORGOTTEN; i++)
		made_up[i] = stone(from * STORE_MAX_FORGOTTEN + i, 77, UINT64_MAX);
	manager_forgotten(9, made_up, STORE_MAX_FORGOTTEN);
	settle();
}

static void others_make_up(void)
{
	struct store_array d;
	char name[16];
	uint32_t n, mine = 0;

	create(1, "vol1");
	forget("vol1");
	create(2, "vol2"); /* another node is going to be asked to */
	memcpy(made_up[0].uuid, manager_find("vol2", false)->desc.uuid, DDR_UUID_BYTES);
	made_up[0].at_s = 5;
	manager_forgotten(9, made_up, 1);
	for (uint32_t i = 0; i < 3; i++)
		make_up(i);
	/* It may tell of the arrays as well, before they are forgotten. */
	for (uint32_t i = 10; i < 13; i++) {
		snprintf(name, sizeof(name), "up%u", i);
		d = desc_of(i, name);
		CHECK_EQ_INT(manager_apply(&d, false), 1);
		memcpy(made_up[0].uuid, d.uuid, DDR_UUID_BYTES);
		made_up[0].at_s = 5; /* older than all others */
		manager_forgotten(9, made_up, 1);
		settle();
		CHECK(!manager_find(name, true));
		CHECK_EQ_INT(manager_apply(&d, false), 0);
	}
	create(3, "vol3");
	forget("vol3");
	for (uint32_t i = 0; i < (manager_forgotten_list(&n), n); i++)
		mine += !manager_forgotten_list(&n)[i].by;
	CHECK_EQ_U64(mine, 3);
	CHECK_EQ_U64(n, 3 + FORGOTTEN_OF_NODE);
}

static void those_that_were_here_stay_away(void)
{
	uint32_t n, mine = 0;

	for (uint32_t i = 1; i <= 3; i++) {
		struct store_array d = desc_of(i, "back");

		CHECK_EQ_INT(manager_apply(&d, false), 0);
	}
	for (uint32_t i = 0; i < (manager_forgotten_list(&n), n); i++)
		mine += !manager_forgotten_list(&n)[i].by;
	CHECK(mine == 3 && n == 3 + FORGOTTEN_OF_NODE);
}

TEST(what_one_node_makes_up_keeps_nobody_from_forgetting)
{
	fresh_dir();
	life(others_make_up);
	life(those_that_were_here_stay_away);
	remove_dir();
}

static void was_used_in_a_life_before(void)
{
	struct store_forgotten f = {.at_s = 5};
	const struct store_forgotten *list;
	uint32_t n;

	CHECK(manager_find("vol1", false)->used && !manager_find("vol2", false)->used);
	memcpy(f.uuid, manager_find("vol1", false)->desc.uuid, DDR_UUID_BYTES);
	manager_forgotten(9, &f, 1);
	memcpy(f.uuid, manager_find("vol2", false)->desc.uuid, DDR_UUID_BYTES);
	f.at_s = 6;
	manager_forgotten(9, &f, 1);
	settle();
	list = manager_forgotten_list(&n);
	CHECK(n == 2 && list[0].by == 0 && list[1].by == 9);
}

/* Both ran here, and only one of them has ever committed a map. */
static void two_that_ran(void)
{
	for (uint32_t i = 1; i <= 2; i++) {
		struct store_array d = desc_of(i, i == 1 ? "vol1" : "vol2");
		struct store_record r = {.record.acked.num = i == 1};
		char why[STORE_WHY_BYTES];

		memcpy(r.uuid, d.uuid, DDR_UUID_BYTES);
		d.ran = true;
		CHECK_MSG(!store_put_array(&d, why), "%s", why);
		CHECK_MSG(!store_put_record(d.name, &r, why), "%s", why);
	}
}

TEST(an_array_that_never_served_may_be_made_up)
{
	fresh_dir();
	life(two_that_ran);
	life(was_used_in_a_life_before);
	remove_dir();
}
