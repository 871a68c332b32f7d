// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The table of arrays and the state directory behind it, without arrays: what is stored, forgotten,
 * told by others, and found again by the next daemon. Each life of a daemon is a process.
 */
#include "daemon/catalog/manager.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/base/units.h"
#include "daemon/base/warnings.h"
#include "daemon/catalog/forgotten.h"
#include "daemon/core/format/codec.h"
#include "daemon/state/env.h"
#include "tests/lib/test.h"

/* ---- what is not here ----------------------------------------------------------------------- */

struct array {
	struct store_array desc;
	bool running;
	unsigned stops, forced; /* what it was asked for */
};

static struct array_env env;
static char warned[STORE_WHY_BYTES], said[LOG_TEXT_BYTES];

struct array *array_new(const struct array_env *e, const struct store_array *desc)
{
	struct array *a = calloc(1, sizeof(*a));

	env = *e;
	a->desc = *desc;
	return a;
}

void array_free(struct array *a)
{
	CHECK(!a->running);
	free(a);
}

void array_set_desc(struct array *a, const struct store_array *desc)
{
	a->desc = *desc;
}

int array_start(struct array *a, bool force)
{
	(void)force;
	a->running = true;
	return 0;
}

/* Ends only when the test says so. */
void array_stop(struct array *a, enum array_stop_how how)
{
	a->stops++;
	a->forced += how == ARRAY_STOP_FORCED;
}

bool array_running(const struct array *a)
{
	return a->running;
}

void array_learn(struct array *a, const struct store_array *desc)
{
	(void)a;
	(void)desc;
}

void say(int priority, const char *format, ...)
{
	va_list ap;

	(void)priority;
	va_start(ap, format);
	vsnprintf(said, sizeof(said), format, ap);
	va_end(ap);
}

void warnings_add(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(warned, sizeof(warned), format, ap);
	va_end(ap);
}

/* ---- a daemon ------------------------------------------------------------------------------- */

static struct mailbox box;
static struct worker worker;
static struct config conf;
static unsigned told_forgotten, told_count;
static struct store_array told;

static void kick(void *arg)
{
	(void)arg;
}

static void news(const struct store_array *desc)
{
	told = *desc;
	told_count++;
}

static void forgot(const struct store_forgotten *f)
{
	(void)f;
	told_forgotten++;
}

static void moved(void)
{
}

static unsigned again_asked;

static void again(uint32_t ms)
{
	CHECK(ms);
	again_asked++;
}

static const struct manager_cb callbacks = {
    .news = news, .forgot = forgot, .moved = moved, .again = again};

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

/* Until nothing is under way: a task goes to the worker and comes back. */
struct mark {
	struct task task;
	bool back;
};

static void mark_back(struct task *t)
{
	((struct mark *)(void *)t)->back = true;
}

static void mark_work(struct task *t)
{
	mailbox_post(&box, t, mark_back);
}

static void settle(void)
{
	for (int i = 0; i < 8; i++) {
		struct mark m = {.back = false};

		mailbox_post(&worker.box, &m.task, mark_work);
		while (!m.back)
			if (!mailbox_run(&box))
				usleep(100);
	}
}

static char dir[64];

static void begin(void)
{
	char why[STORE_WHY_BYTES] = "";

	CHECK_MSG(!store_open(dir, why), "%s", why);
	mailbox_init(&box, kick, NULL);
	CHECK_EQ_INT(worker_start(&worker), 0);
	CHECK_MSG(!manager_open(&conf, &box, &worker, &callbacks, why), "%s", why);
	settle();
}

/* Each in a process of its own, in the same directory. */
static void life(void (*run)(void))
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		if (setjmp(test_out))
			_exit(1);
		begin();
		run();
		settle();
		fflush(stdout);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void fresh_dir(void)
{
	strcpy(dir, "/tmp/ddraid-manager-XXXXXX");
	CHECK(mkdtemp(dir));
}

static void remove_dir(void)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	CHECK(system(command) == 0);
}

static bool file_there(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return access(path, F_OK) == 0;
}

static bool file_has(const char *name, const char *part)
{
	char path[128], text[4096] = "";
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "r");
	CHECK(f && fread(text, 1, sizeof(text) - 1, f) > 0 && !fclose(f));
	return strstr(text, part) != NULL;
}

static void file_write(const char *name, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	CHECK(f && fputs(text, f) >= 0 && !fclose(f));
}

static struct store_array desc_of(unsigned i, const char *name)
{
	struct store_array d = {.version = 1, .count = 3};

	options_init(&d.options);
	snprintf(d.name, sizeof(d.name), "%s", name);
	memset(d.uuid, 0xd0, sizeof(d.uuid));
	memcpy(d.uuid, &i, sizeof(i));
	for (uint32_t m = 0; m < d.count; m++)
		snprintf(d.uri[m], sizeof(d.uri[m]), "/dev/m%u", m);
	memcpy(d.agreed, d.uri, sizeof(d.agreed));
	return d;
}

/* How a change ended: 1 = it has not yet. */
static int ended;
static char ended_why[STORE_WHY_BYTES];

static void change_done(struct manager_change *c, int err, const char *why)
{
	(void)c;
	CHECK_EQ_INT(ended, 1);
	ended = err;
	snprintf(ended_why, sizeof(ended_why), "%s", why);
}

static struct manager_change change;

static int change_ends(void)
{
	settle();
	CHECK(ended <= 0);
	return ended;
}

static struct manager_change *change_begin(int what)
{
	memset(&change, 0, sizeof(change));
	change.what = what;
	change.done = change_done;
	ended = 1;
	return &change;
}

static int create_desc(const struct store_array *d)
{
	manager_create(d, change_begin(CHANGE_CREATE));
	return change_ends();
}

static void create(unsigned i, const char *name)
{
	struct store_array d = desc_of(i, name);

	CHECK_EQ_INT(create_desc(&d), 0);
}

static int set(struct known *k, const char *key, const char *value)
{
	struct manager_change *c = change_begin(CHANGE_OPTION);

	c->key = key;
	c->value = value;
	manager_change(k, c);
	return change_ends();
}

static int say_for(struct known *k, bool start, bool all, bool force)
{
	struct manager_change *c = change_begin(start ? CHANGE_START : CHANGE_STOP);

	c->all = all;
	c->force = force;
	manager_change(k, c);
	return change_ends();
}

static int attach(struct known *k, enum attach_via via, uint32_t away_ms)
{
	struct manager_change *c = change_begin(CHANGE_ATTACH);

	c->via = via;
	c->away_ms = away_ms;
	manager_change(k, c);
	return change_ends();
}

static int forget_it(struct known *k)
{
	manager_forget(k, change_begin(CHANGE_FORGET));
	return change_ends();
}

static void forget(const char *name)
{
	struct known *k = manager_find(name, false);

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
	struct known *k;
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
	struct known *k;

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

/* A node joins while an array is created, and tells of one that has the name. */
static void taken_while_it_is_made(void)
{
	struct store_array mine = desc_of(1, "vol0"), theirs = desc_of(2, "vol0");
	struct store_record rec = {.inc = 7}, back;
	char why[STORE_WHY_BYTES];

	theirs.started = true;
	memcpy(rec.uuid, theirs.uuid, sizeof(rec.uuid));
	/* Before the new one is written; */
	CHECK_EQ_INT(manager_apply(&theirs, false), 1);
	settle();
	CHECK(manager_find("vol0", false)->array->running);
	CHECK_EQ_INT(store_put_record("vol0", &rec, why), 0);
	CHECK_EQ_INT(create_desc(&mine), -EEXIST);
	settle();
	CHECK(!store_get_record("vol0", &back, why) && back.inc == 7);
	CHECK(file_has("vol0.array", "uuid = 02000000"));
	/* and while it is. */
	mine = desc_of(3, "vol1");
	theirs = desc_of(4, "vol1");
	theirs.started = true;
	CHECK_EQ_INT(store_put_record("vol1", &rec, why), 0);
	manager_create(&mine, change_begin(CHANGE_CREATE));
	CHECK_EQ_INT(manager_apply(&theirs, false), 1);
	CHECK_EQ_INT(change_ends(), -EEXIST);
	settle();
	CHECK(!store_get_record("vol1", &back, why) && back.inc == 7);
	CHECK(file_has("vol1.array", "uuid = 04000000"));
	CHECK(manager_find("vol1", false)->array->running);
}

TEST(a_create_whose_name_is_taken_meanwhile_leaves_that_arrays_files)
{
	fresh_dir();
	life(taken_while_it_is_made);
	remove_dir();
}

/* And that one is forgotten while the files of the first are removed. */
static void both_are_forgotten(void)
{
	struct store_array d = desc_of(2, "vol0");
	struct store_forgotten f = {.at_s = 5};
	struct known *k;

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
	struct known *k;

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
	struct known *k;

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

/* What a node with a broken memory might tell. Each would be there for ever if it were taken. */
static void others_tell_nonsense(void)
{
	struct store_forgotten f = {.at_s = UINT64_MAX};
	struct store_array d = desc_of(1, "vol0");
	const struct store_forgotten *list;
	uint32_t n;

	create(1, "vol0");
	d.version = UINT64_MAX;
	CHECK_EQ_INT(manager_apply(&d, false), -EINVAL);
	d.version = STORE_VERSION_STEP + 2;
	CHECK_EQ_INT(manager_apply(&d, false), -EINVAL);
	d.version = 2;
	d.count = 2;
	CHECK_EQ_INT(manager_apply(&d, false), -EINVAL);
	d.count = 0;
	CHECK_EQ_INT(manager_apply(&d, false), -EINVAL);
	d = desc_of(1, "renamed");
	d.version = 2;
	CHECK_EQ_INT(manager_apply(&d, false), -EINVAL);
	d = desc_of(2, "other");
	d.said = 2;
	CHECK_EQ_INT(manager_apply(&d, false), -EINVAL);
	d.version = 2;
	strcpy(d.uri[1], "nbd://two\nlines");
	CHECK_EQ_INT(manager_apply(&d, false), -EINVAL);
	strcpy(d.uri[1], "nbd://one\tline");
	CHECK_EQ_INT(manager_apply(&d, false), -EINVAL);
	CHECK_EQ_U64(manager_count(), 1);
	CHECK_EQ_U64(manager_find("vol0", false)->desc.version, 1);
	CHECK_EQ_INT(set(manager_find("vol0", false), "release_delay", "7"), 0); /* as any change */
	CHECK_EQ_U64(manager_find("vol0", false)->desc.version, 2);
	manager_forgotten(3, &f, 1);
	settle();
	list = manager_forgotten_list(&n);
	CHECK(n == 1 && list[0].at_s <= (uint64_t)time(NULL) && list[0].at_s > 1000000000);
}

static void it_was_all_stored_well(void)
{
	CHECK_EQ_U64(manager_count(), 1);
	CHECK(!manager_at(0)->damaged && manager_at(0)->desc.version == 2);
}

TEST(what_can_not_be_is_not_taken_from_others)
{
	fresh_dir();
	life(others_tell_nonsense);
	life(it_was_all_stored_well);
	remove_dir();
}

static void copy_a_file(void)
{
	struct store_array d = desc_of(1, "vol0");
	char why[STORE_WHY_BYTES];

	create(1, "vol0");
	strcpy(d.name, "vol1");
	CHECK_MSG(!store_put_array(&d, why), "%s", why);
}

static void one_of_them_is_damaged(void)
{
	CHECK_EQ_U64(manager_count(), 2);
	CHECK(!manager_find("vol0", false)->damaged && manager_find("vol1", false)->damaged);
	CHECK(strstr(manager_find("vol1", false)->error, "has the UUID of array vol0"));
	CHECK(manager_find_uuid(manager_find("vol0", false)->desc.uuid)->desc.name[3] == '0');
}

TEST(a_copied_file_is_no_second_array)
{
	fresh_dir();
	life(copy_a_file);
	life(one_of_them_is_damaged);
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

/* ---- URIs ---------------------------------------------------------------------------------- */

/* The array's thread reaches member m by this, added or not. */
static void reached(struct known *k, uint32_t m, const char *uri, bool added)
{
	struct store_array live = k->desc;

	strcpy(live.uri[m], uri);
	env.changed(k->array, &live, 1u << m, added ? 1u << m : 0);
	settle();
}

static void own_uri(void)
{
	struct store_array d = desc_of(1, "vol0");
	struct known *k;

	create(1, "vol0");
	k = manager_find("vol0", false);
	told_count = 0;
	reached(k, 1, "/dev/own", false);
	CHECK(told_count == 0 && k->desc.version == 1);
	CHECK_EQ_STR(k->desc.uri[1], "/dev/own");
	d.version = 2;
	d.options.release_delay_ms++;
	CHECK_EQ_INT(manager_apply(&d, false), 1);
	CHECK_EQ_STR(k->desc.uri[1], "/dev/own");
	settle();
}

static void own_uri_is_not_told(void)
{
	struct known *k = manager_find("vol0", false);
	struct store_array d = k->desc;

	CHECK_EQ_STR(k->desc.uri[1], "/dev/own");
	CHECK_EQ_INT(set(k, "release_delay", "7s"), 0);
	CHECK(told_count == 1 && told.version == 3);
	CHECK_EQ_STR(told.agreed[1], "/dev/m1");
	reached(k, 2, "/dev/new", true);
	CHECK(told_count == 2 && told.version == 4);
	CHECK_EQ_STR(told.agreed[2], "/dev/new");
	d = told;
	d.version = 5;
	strcpy(d.agreed[1], "/dev/moved");
	CHECK_EQ_INT(manager_apply(&d, false), 1);
	settle();
}

static void moved_member(void)
{
	struct known *k = manager_find("vol0", false);

	CHECK_EQ_STR(k->desc.uri[0], "/dev/m0");
	CHECK_EQ_STR(k->desc.uri[1], "/dev/moved");
	CHECK_EQ_STR(k->desc.uri[2], "/dev/new");
	CHECK_EQ_STR(k->desc.agreed[1], "/dev/moved");
}

TEST(a_node_keeps_its_own_uri_until_the_member_moves)
{
	fresh_dir();
	life(own_uri);
	life(own_uri_is_not_told);
	life(moved_member);
	remove_dir();
}

static void of_an_early_build(void)
{
	struct known *k = manager_find("vol0", false);

	CHECK(k && !k->damaged && k->desc.count == 2 && k->desc.guessed);
	CHECK_EQ_STR(k->desc.agreed[1], "/dev/b");
	env.changed(k->array, &k->desc, 0, 0); /* its file is written anew */
}

/* The others know where the members are; that this node has them elsewhere is no news. */
static void others_know_better(void)
{
	struct known *k = manager_find("vol0", false);
	struct store_array d = k->desc;

	CHECK(d.guessed);
	d.guessed = false;
	strcpy(d.agreed[1], "/dev/0"); /* not greater than this node's */
	said[0] = '\0';
	CHECK_EQ_INT(manager_apply(&d, false), 1);
	CHECK(!said[0] && !k->desc.guessed);
	CHECK_EQ_STR(k->desc.uri[1], "/dev/b");
	CHECK_EQ_STR(k->desc.agreed[1], "/dev/0");
	CHECK_EQ_INT(manager_apply(&d, false), 0);
}

static void both_are_kept(void)
{
	struct known *k = manager_find("vol0", false);
	struct store_array d = k->desc;

	CHECK(!k->desc.guessed);
	CHECK_EQ_STR(k->desc.uri[1], "/dev/b");
	CHECK_EQ_STR(k->desc.agreed[1], "/dev/0");
	d.version++;
	strcpy(d.agreed[1], "/dev/moved");
	CHECK_EQ_INT(manager_apply(&d, false), 1);
	CHECK_EQ_STR(k->desc.uri[1], "/dev/moved");
}

static void changed_here_first(void)
{
	struct known *k = manager_find("vol0", false);

	CHECK_EQ_INT(set(k, "release_delay", "7s"), 0);
	CHECK(!k->desc.guessed && told_count == 1);
	CHECK_EQ_STR(told.agreed[1], "/dev/b");
}

TEST(a_file_without_what_was_agreed_has_it_in_its_members_until_others_tell)
{
	static const char text[] = "version = 1\nname = vol0\n"
				   "uuid = 01000000-d0d0-d0d0-d0d0-d0d0d0d0d0d0\n"
				   "member = /dev/a\nmember = /dev/b\nend = yes\n";

	fresh_dir();
	file_write("vol0.array", text);
	life(of_an_early_build);
	life(others_know_better);
	life(both_are_kept);
	file_write("vol0.array", text);
	life(changed_here_first);
	remove_dir();
}

/* ---- versions ------------------------------------------------------------------------------- */

/* Of the same version as the one before in the list, and greater. */
static struct store_array rival(unsigned i)
{
	struct store_array d = desc_of(1, "vol0");

	d.version = 7;
	if (i >= 1)
		d.started = true;
	if (i >= 2)
		d.stop_forced = true;
	if (i >= 3)
		d.said = 6;
	if (i >= 4)
		d.options.force_members = 1;
	if (i >= 5)
		strcpy(d.agreed[2], "/dev/moved");
	return d;
}

static void rivals(void)
{
	struct known *k;

	for (unsigned i = 0; i < 6; i++) {
		for (unsigned j = 0; j < 6; j++) {
			struct store_array d = rival(i), e = rival(j);

			e.version = d.version = 7 + 6 * i + j;
			strcpy(e.uri[1], "/dev/own"); /* is told to nobody, and takes no part */
			CHECK_EQ_INT(manager_apply(&d, false), 1);
			said[0] = '\0';
			CHECK_EQ_INT(manager_apply(&e, false), j > i);
			CHECK((strstr(said, "was made here and elsewhere") != NULL) == (j > i));
			k = manager_find("vol0", false);
			if (j > i)
				d = e;
			CHECK(k->desc.started == d.started && k->desc.said == d.said &&
			      k->desc.stop_forced == d.stop_forced &&
			      k->desc.options.force_members == d.options.force_members);
			CHECK_EQ_STR(k->desc.agreed[2], d.agreed[2]);
		}
	}
	CHECK(told_count == 0);
}

TEST(two_descriptions_of_one_version_end_as_one_on_every_node)
{
	fresh_dir();
	life(rivals);
	remove_dir();
}

/* ---- stop, while it is in use --------------------------------------------------------------- */

static struct known *k_used;

/* As array.c: nobody is cut off unless by force. */
static void used_by(uint32_t clients)
{
	unsigned forced = k_used->array->forced;

	env.serving(k_used->array, true, 0); /* it is late */
	if (!forced && clients)
		env.kept(k_used->array, clients);
	else
		k_used->array->running = false;
	if (!k_used->array->running)
		env.ended(k_used->array, "");
	k_used->array->stops = k_used->array->forced = 0;
	settle();
}

/* Another node says it, in the next version. */
static void hear(bool started, bool forced)
{
	struct store_array d = k_used->desc;

	d.version++;
	d.said = d.version;
	d.started = started;
	d.stop_forced = forced;
	CHECK_EQ_INT(manager_apply(&d, false), 1);
	settle();
}

static void told_to_stop_in_use(void)
{
	struct store_array d;

	create(1, "vol0");
	k_used = manager_find("vol0", false);
	hear(true, false);
	CHECK(k_used->array->running);
	hear(false, false);
	CHECK(k_used->array->stops && !k_used->array->forced);
	said[0] = '\0';
	used_by(2);
	CHECK(k_used->array->running && k_used->kept_clients == 2 && !k_used->desc.started);
	CHECK_EQ_U64(k_used->clients, 2);
	CHECK(strstr(said, "vol0: not stopped here, 2 clients have it open"));
	/* What has nothing to do with it leaves it alone. */
	d = k_used->desc;
	d.version++;
	d.options.release_delay_ms++;
	CHECK_EQ_INT(manager_apply(&d, false), 1);
	settle();
	CHECK(!k_used->array->stops && k_used->kept_clients == 2);
	/* Said once more, although it was said already; and now with force. */
	hear(false, false);
	CHECK(k_used->array->stops && !k_used->array->forced && !k_used->kept_clients);
	used_by(1);
	CHECK(k_used->array->running && k_used->kept_clients == 1);
	hear(false, true);
	CHECK(k_used->array->stops && k_used->array->forced);
	used_by(1);
	CHECK(!k_used->array->running && !k_used->kept_clients && !k_used->clients);
}

static void a_forced_stop_is_remembered(void)
{
	k_used = manager_find("vol0", false);
	CHECK(!k_used->array->running && k_used->desc.stop_forced);
	CHECK_EQ_U64(k_used->desc.said, k_used->desc.version);
	told_count = 0;
	CHECK_EQ_INT(say_for(k_used, true, true, false), 0);
	settle();
	CHECK(k_used->array->running && told_count == 1);
	CHECK(told.started && !told.stop_forced && told.said == told.version);
}

TEST(a_stop_that_others_say_cuts_off_nobody_here_unless_it_is_forced)
{
	fresh_dir();
	life(told_to_stop_in_use);
	life(a_forced_stop_is_remembered);
	remove_dir();
}

static void stopped_here_in_use(void)
{
	create(1, "vol0");
	k_used = manager_find("vol0", false);
	CHECK_EQ_INT(say_for(k_used, true, true, false), 0);
	settle();
	CHECK_EQ_INT(say_for(k_used, false, false, false), 0);
	used_by(1); /* it was opened in the same moment */
	CHECK(k_used->array->running && k_used->kept_clients == 1 &&
	      k_used->desc.here == HERE_FOLLOWS);
	/* An answer that comes when it is to run again is an old one. */
	CHECK_EQ_INT(say_for(k_used, false, false, false), 0);
	CHECK(!k_used->kept_clients);
	CHECK_EQ_INT(say_for(k_used, true, false, false), 0);
	env.kept(k_used->array, 1);
	CHECK(!k_used->kept_clients);
	/* A stop for all reaches a node that was started by itself, too. */
	CHECK_EQ_INT(say_for(k_used, false, true, false), 0);
	CHECK(k_used->array->stops && told.said == told.version && !told.stop_forced);
	used_by(0);
	CHECK(!k_used->array->running);
	CHECK_EQ_INT(say_for(k_used, true, false, false), 0);
	settle();
	CHECK(k_used->array->running && !k_used->desc.started);
	CHECK_EQ_INT(say_for(k_used, false, true, true), 0);
	CHECK(k_used->array->forced && told.stop_forced);
	used_by(1);
	CHECK(!k_used->array->running);
}

TEST(a_stop_here_cuts_off_nobody_who_came_meanwhile)
{
	fresh_dir();
	life(stopped_here_in_use);
	remove_dir();
}

/* ---- damage --------------------------------------------------------------------------------- */

static void three(void)
{
	create(1, "one");
	create(2, "two");
	create(3, "three");
}

static void damage_seen(void)
{
	struct store_array two = desc_of(2, "two"), four = desc_of(2, "four");
	struct known *k = manager_find("two", false);

	two.version = four.version = 9;
	CHECK_EQ_U64(manager_count(), 3);
	CHECK(k && k->damaged &&
	      strstr(k->error, "two.array is damaged: line 2, vers?ion, is not"));
	CHECK(strstr(k->error, "restore it"));
	CHECK(!manager_find("one", false)->damaged && !manager_find("three", false)->damaged);
	CHECK_EQ_INT(manager_apply(&two, false), -EBADMSG);
	CHECK(strstr(said, "two: another node tells of it, but "));
	settle();
}

static void damage_is_gone(void)
{
	struct store_array two = desc_of(2, "two");

	CHECK_EQ_U64(manager_count(), 2);
	CHECK_EQ_INT(manager_apply(&two, false), 1);
}

static void attach_it(void)
{
	struct store_array d = desc_of(1, "vol0");

	d.started = true;
	CHECK_EQ_INT(create_desc(&d), 0);
	told_count = 0;
	CHECK_EQ_INT(attach(manager_find("vol0", false), ATTACH_SHIM, 30000), 0);
	CHECK_EQ_INT((int)told_count, 0);
}

/* A change that another node made, and told. */
static void still_attached_after_news(void)
{
	struct known *k = manager_find("vol0", false);
	struct store_array d = desc_of(1, "vol0");

	CHECK_EQ_INT((int)k->desc.attach, ATTACH_SHIM);
	d.version = 9;
	d.started = true;
	memcpy(d.agreed, d.uri, sizeof(d.agreed));
	CHECK_EQ_INT(manager_apply(&d, false), 1);
	CHECK_EQ_U64(k->desc.version, 9);
	CHECK_EQ_INT((int)k->desc.attach, ATTACH_SHIM);
	CHECK_EQ_U64(k->desc.away_ms, 30000);
}

static void waits_for_ever(void)
{
	struct known *k = manager_find("vol0", false);

	CHECK_EQ_U64(k->desc.away_ms, 30000);
	CHECK_EQ_INT(attach(k, ATTACH_SHIM, AWAY_HOLD), 0);
}

static void detach_it(void)
{
	struct known *k = manager_find("vol0", false);

	CHECK_EQ_INT((int)k->desc.attach, ATTACH_SHIM);
	CHECK_EQ_U64(k->desc.away_ms, AWAY_HOLD);
	CHECK_EQ_U64(k->desc.version, 9);
	CHECK_EQ_INT(attach(k, ATTACH_NONE, AWAY_HOLD), 0);
}

static void not_attached(void)
{
	CHECK_EQ_INT((int)manager_find("vol0", false)->desc.attach, ATTACH_NONE);
}

TEST(an_attach_is_this_nodes_own_and_kept_over_restarts)
{
	fresh_dir();
	life(attach_it);
	life(still_attached_after_news);
	CHECK(file_has("vol0.array", "attach = shim\naway = 30s\n"));
	life(waits_for_ever);
	CHECK(!file_has("vol0.array", "away"));
	life(detach_it);
	life(not_attached);
	remove_dir();
}

static void damaged_by_its_attach(void)
{
	CHECK(manager_find("vol0", false)->damaged);
}

TEST(an_attach_that_nobody_knows_is_damage)
{
	fresh_dir();
	file_write("vol0.array",
		   "version = 1\nname = vol0\nuuid = 00000000-0000-0000-0000-000000000001\n"
		   "started = no\nran = no\nattach = floppy\nmember = /dev/a\nend = yes\n");
	life(damaged_by_its_attach);
	remove_dir();
}

static void file_of_an_attach(const char *away)
{
	char text[400];

	snprintf(text, sizeof(text),
		 "version = 1\nname = vol0\nuuid = 00000000-0000-0000-0000-000000000001\n"
		 "started = no\nran = no\nattach = shim\n%smember = /dev/a\nend = yes\n",
		 away);
	file_write("vol0.array", text);
}

static void waits_90_s(void)
{
	CHECK_EQ_U64(manager_find("vol0", false)->desc.away_ms, 90000);
}

static void holds_without_a_word(void)
{
	CHECK_EQ_INT((int)manager_find("vol0", false)->desc.attach, ATTACH_SHIM);
	CHECK_EQ_U64(manager_find("vol0", false)->desc.away_ms, AWAY_HOLD);
}

static void damaged_by_its_time(void)
{
	struct known *k = manager_find("vol0", false);

	CHECK(k->damaged && strstr(k->error, "line 7, away, is not understood: use hold"));
	CHECK(strstr(k->error, "from 1s to 1440min"));
}

TEST(how_long_an_attach_waits_is_read_within_its_bounds)
{
	fresh_dir();
	file_of_an_attach("away = 90s\n");
	life(waits_90_s);
	file_of_an_attach("away = hold\n");
	life(holds_without_a_word);
	file_of_an_attach(""); /* as all were, once */
	life(holds_without_a_word);
	file_of_an_attach("away = 2 days\n");
	life(damaged_by_its_time);
	file_of_an_attach("away = 1ms\n");
	life(damaged_by_its_time);
	remove_dir();
}

TEST(a_damaged_file_refuses_one_array_only)
{
	char path[128];

	fresh_dir();
	life(three);
	file_write("two.array", "# x\nvers\033ion = 1\nname = two\n");
	life(damage_seen);
	life(damage_seen); /* nothing was written over it */
	snprintf(path, sizeof(path), "%s/two.array", dir);
	CHECK(unlink(path) == 0);
	life(damage_is_gone);
	remove_dir();
}

/* What life() looks at. */
static const char *twice_why;

static void is_twice(void)
{
	struct known *k = manager_find("two", false);

	CHECK(k && k->damaged);
	CHECK_MSG(strstr(k->error, twice_why), "it says: %s", k->error);
}

/* With a line `more` before or after its end. */
static void twice_write(const char *whole, const char *more, bool after)
{
	char text[8192];
	size_t at = after ? strlen(whole) : (size_t)(strstr(whole, "end = yes") - whole);

	CHECK_MSG(snprintf(text, sizeof(text), "%.*s%s%s", (int)at, whole, more, whole + at) <
		      (int)sizeof(text),
		  "too long");
	file_write("two.array", text);
	life(is_twice);
}

/* Two files in one, as a careless repair leaves. */
TEST(a_file_that_says_a_thing_twice_is_damaged)
{
	char whole[4096] = "", path[128];
	FILE *f;

	fresh_dir();
	life(three);
	snprintf(path, sizeof(path), "%s/two.array", dir);
	f = fopen(path, "r");
	CHECK(f && fread(whole, 1, sizeof(whole) - 1, f) > 0);
	fclose(f);
	CHECK(strstr(whole, "end = yes"));
	twice_why = "started, is there twice";
	twice_write(whole, "started = no\n", false);
	twice_why = "name, is there twice";
	twice_write(whole, "name = two\n", false);
	twice_why = "or after the end";
	twice_write(whole, whole, true);
	twice_write(whole, "member = file:///x\n", true);
	twice_write(whole, "end = yes\n", true);
	remove_dir();
}

/* ---- a state directory that can't be written ------------------------------------------------- */

/*
 * Its files can be read, and no new one can be made: by their names, which are taken by
 * directories, also for root.
 */
static void dir_blocks(const char *name, bool yes)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s.new", dir, name);
	CHECK(yes ? !mkdir(path, 0700) : !rmdir(path));
}

static void change_names_the_directory(void)
{
	char why[STORE_WHY_BYTES];

	CHECK_MSG(strstr(ended_why, dir) && strstr(ended_why, "can't be written"), "%s", ended_why);
	store_trouble(why);
	CHECK_EQ_STR(why, ended_why);
}

static void nothing_is_changed_that_is_not_durable(void)
{
	struct store_array was, d = desc_of(9, "vol9");
	struct known *k;
	char why[STORE_WHY_BYTES];

	create(1, "vol0");
	k = manager_find("vol0", false);
	CHECK_EQ_INT(say_for(k, true, true, false), 0);
	CHECK(k->array->running);
	was = k->desc;
	told_count = told_forgotten = again_asked = 0;
	dir_blocks("vol0.array", true);
	dir_blocks("vol9.array", true);
	dir_blocks("forgotten", true);
	CHECK_EQ_INT(set(k, "release_delay", "7s"), -EISDIR);
	change_names_the_directory();
	CHECK_EQ_INT(say_for(k, false, true, true), -EISDIR);
	change_names_the_directory();
	CHECK_EQ_INT(say_for(k, false, false, true), -EISDIR);
	CHECK_EQ_INT(say_for(k, true, false, true), -EISDIR);
	CHECK_EQ_INT(attach(k, ATTACH_SHIM, 30000), -EISDIR);
	CHECK_EQ_INT(forget_it(k), -EISDIR);
	change_names_the_directory();
	CHECK_EQ_INT(create_desc(&d), -EISDIR);
	change_names_the_directory();
	CHECK_EQ_MEM(&k->desc, &was, sizeof(was));
	CHECK(k->array->running && !k->array->stops && !k->force);
	CHECK(told_count == 0 && told_forgotten == 0 && manager_count() == 1);
	CHECK(again_asked > 0);
	/* And then it is. */
	dir_blocks("vol0.array", false);
	dir_blocks("vol9.array", false);
	dir_blocks("forgotten", false);
	manager_again();
	settle();
	store_trouble(why);
	CHECK_EQ_STR(why, "");
	CHECK_EQ_MEM(&k->desc, &was, sizeof(was));
	CHECK_EQ_INT(set(k, "release_delay", "7s"), 0);
	CHECK(told_count == 1 && file_has("vol0.array", "release_delay = 7"));
	CHECK_EQ_INT(say_for(k, false, false, true), 0);
	CHECK(k->array->stops == 1);
}

/* ---- files that others delete -----------------------------------------------------------------
 */

static void file_delete(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	CHECK(unlink(path) == 0);
}

static void look(void)
{
	manager_look();
	settle();
}

/* An array, its record, an incarnation and an array that was forgotten. */
static void files_of_all_kinds(void)
{
	struct store_record rec = {.inc = 7, .clean = true};
	struct store_array d = desc_of(1, "vol0");
	char why[STORE_WHY_BYTES];
	uint64_t inc;

	create(1, "vol0");
	create(2, "vol1");
	CHECK_EQ_INT(forget_it(manager_find("vol1", false)), 0);
	memcpy(rec.uuid, d.uuid, DDR_UUID_BYTES);
	CHECK_MSG(!store_put_record("vol0", &rec, why), "%s", why);
	CHECK_MSG(!store_incarnation(&inc, why), "%s", why);
	look();
	CHECK(!store_deleted(false, why));
}

static const char *const kinds[] = {"vol0.array", "vol0.record", "forgotten", "incarnation",
				    "lock"};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void all_are_there(void)
{
	struct store_record back;
	char why[STORE_WHY_BYTES];
	struct known *k = manager_find("vol0", false);

	CHECK(k && !k->damaged && k->desc.version == 1 && manager_count() == 1);
	CHECK(!store_get_record("vol0", &back, why) && back.inc == 7 && back.clean);
	CHECK(file_has("forgotten", "end") && file_has("incarnation", "\n"));
	CHECK(!file_there("vol1.array"));
}

/* Somebody else tries to lock it. */
static bool lock_is_free(void)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char path[128];
	bool is_free;
	int fd;

	snprintf(path, sizeof(path), "%s/lock", dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	is_free = fcntl(fd, F_OFD_SETLK, &whole) == 0;
	close(fd);
	return is_free;
}

static void deletes_all(void)
{
	char why[STORE_WHY_BYTES];

	all_are_there();
	for (uint32_t i = 0; i < KINDS; i++)
		file_delete(kinds[i]);
	look();
	CHECK(store_deleted(false, why));
	for (uint32_t i = 0; i < KINDS; i++) {
		CHECK_MSG(file_there(kinds[i]), "%s is not there", kinds[i]);
		CHECK_MSG(strstr(why, kinds[i]) && strstr(why, dir), "it says: %s", why);
	}
	CHECK(strstr(why, "is written anew: see to what deletes there"));
	CHECK_MSG(strstr(said, "vol0.array"), "it was logged: %s", said);
	CHECK(!lock_is_free());
	store_trouble(why);
	CHECK_EQ_STR(why, "");
	all_are_there();
}

static void makes_and_deletes_all(void)
{
	files_of_all_kinds();
	deletes_all();
}

TEST(files_that_others_delete_are_written_anew)
{
	fresh_dir();
	life(makes_and_deletes_all);
	life(all_are_there);
	/* Also what was there when the daemon began. */
	life(deletes_all);
	life(all_are_there);
	remove_dir();
}

static void deletes_and_cannot_write(void)
{
	char why[STORE_WHY_BYTES];

	files_of_all_kinds();
	dir_blocks("vol0.array", true);
	file_delete("vol0.array");
	file_delete("vol0.record");
	again_asked = 0;
	look();
	CHECK(!file_there("vol0.array") && file_there("vol0.record"));
	store_trouble(why);
	CHECK_MSG(strstr(why, dir) && strstr(why, "can't be written") && strstr(why, "vol0.array"),
		  "it says: %s", why);
	CHECK(store_deleted(false, why) && strstr(why, "can't be written anew yet"));
	CHECK(again_asked > 0);
	said[0] = '\0';
	look();
	CHECK_EQ_STR(said, ""); /* once */
	dir_blocks("vol0.array", false);
	look();
	all_are_there();
	store_trouble(why);
	CHECK_EQ_STR(why, "");
	CHECK(store_deleted(false, why) && strstr(why, "is written anew"));
}

TEST(files_that_can_not_be_written_anew_are_tried_again)
{
	fresh_dir();
	life(deletes_and_cannot_write);
	life(all_are_there);
	remove_dir();
}

/* What others have put there stays, and what the daemon removes does not come back. */
static void only_what_is_missing(void)
{
	char why[STORE_WHY_BYTES];

	files_of_all_kinds();
	file_delete("vol0.record");
	file_write("vol0.record", "restored\n");
	look();
	CHECK(file_has("vol0.record", "restored"));
	CHECK_EQ_INT(forget_it(manager_find("vol0", false)), 0);
	CHECK(manager_count() == 0);
	look();
	CHECK(!file_there("vol0.array") && !file_there("vol0.record"));
	CHECK(!store_deleted(false, why));
}

/* It is damaged, and an operator is told to remove it. */
static void damaged_ones_stay_away(void)
{
	struct store_record r;
	char why[STORE_WHY_BYTES];

	files_of_all_kinds();
	file_write("vol0.record", "x");
	CHECK_EQ_INT(store_get_record("vol0", &r, why), -EBADMSG);
	file_delete("vol0.record");
	look();
	CHECK(!file_there("vol0.record") && !store_deleted(false, why));
}

TEST(only_what_others_deleted_is_written_anew)
{
	fresh_dir();
	life(only_what_is_missing);
	remove_dir();
	fresh_dir();
	life(damaged_ones_stay_away);
	remove_dir();
}

/* Another daemon has made the lock anew: nothing of this one is written there any more. */
static void lock_is_another_ones(void)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct known *k;
	char path[128], why[STORE_WHY_BYTES];
	int fd;

	files_of_all_kinds();
	k = manager_find("vol0", false);
	for (uint32_t i = 0; i < KINDS; i++)
		file_delete(kinds[i]);
	snprintf(path, sizeof(path), "%s/lock", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && !fcntl(fd, F_OFD_SETLK, &whole));
	CHECK_EQ_INT(set(k, "release_delay", "7s"), -EBUSY);
	change_names_the_directory();
	CHECK_MSG(strstr(ended_why, "another ddraidd has locked it"), "it says: %s", ended_why);
	look();
	CHECK(!file_there("vol0.array") && !file_there("forgotten"));
	store_trouble(why);
	CHECK(strstr(why, "another ddraidd has locked it"));
	close(fd); /* it ends */
	look();
	store_trouble(why);
	CHECK_EQ_STR(why, "");
	CHECK(!lock_is_free());
	all_are_there();
}

TEST(a_directory_that_another_daemon_has_locked_meanwhile_is_left_alone)
{
	fresh_dir();
	life(lock_is_another_ones);
	remove_dir();
}

/* What was answered is there after a restart, and nothing else is. */
static void what_was_answered(void)
{
	struct known *k = manager_find("vol0", false);

	CHECK(manager_count() == 1 && k->desc.version == 3);
	CHECK(!k->array->running && k->desc.started && k->desc.here == HERE_OFF);
	CHECK_EQ_INT(k->desc.attach, ATTACH_NONE);
}

TEST(a_change_that_cannot_be_made_durable_is_refused_and_leaves_nothing_behind)
{
	fresh_dir();
	life(nothing_is_changed_that_is_not_durable);
	life(what_was_answered);
	remove_dir();
}

/* What others tell, and what members turn out to be, counts at once, and is written when it can be.
 */
static void heard_while_it_is_full(void)
{
	struct store_array d = desc_of(1, "vol0");
	struct known *k;

	create(1, "vol0");
	k = manager_find("vol0", false);
	dir_blocks("vol0.array", true);
	d.version = 5;
	strcpy(d.agreed[1], "/dev/moved");
	CHECK_EQ_INT(manager_apply(&d, false), 1);
	settle();
	CHECK(!k->stored && again_asked == 1 && k->desc.version == 5);
	CHECK(strstr(said, "vol0: the state directory ") && strstr(said, "it is tried again"));
	manager_again();
	settle();
	CHECK(!k->stored && again_asked == 2);
	/* A change waits for its turn, and is refused by itself alone. */
	CHECK_EQ_INT(set(k, "release_delay", "7s"), -EISDIR);
	CHECK(k->desc.version == 5);
	dir_blocks("vol0.array", false);
	manager_again();
	settle();
	CHECK(k->stored && file_has("vol0.array", "version = 5\n"));
	CHECK(file_has("vol0.array", "agreed = /dev/moved\n"));
}

TEST(what_is_heard_while_the_directory_is_full_is_written_later)
{
	fresh_dir();
	life(heard_while_it_is_full);
	remove_dir();
}

/* The worker has the change when the news comes: it is made again, of what was heard. */
static void heard_meanwhile(void)
{
	struct store_array d = desc_of(1, "vol0");
	struct known *k;
	struct manager_change *c;

	create(1, "vol0");
	k = manager_find("vol0", false);
	c = change_begin(CHANGE_OPTION);
	c->key = "release_delay";
	c->value = "7s";
	told_count = 0;
	manager_change(k, c);
	d.version = 2;
	strcpy(d.agreed[1], "/dev/moved");
	CHECK_EQ_INT(manager_apply(&d, false), 1);
	CHECK_EQ_INT(change_ends(), 0);
	CHECK(k->desc.version == 3 && told_count == 1 && told.version == 3);
	CHECK_EQ_STR(k->desc.agreed[1], "/dev/moved");
	CHECK_EQ_U64(k->desc.options.release_delay_ms, 7000);
}

static void both_count(void)
{
	struct known *k = manager_find("vol0", false);

	CHECK_EQ_STR(k->desc.agreed[1], "/dev/moved");
	CHECK_EQ_U64(k->desc.options.release_delay_ms, 7000);
}

TEST(a_change_and_what_is_heard_meanwhile_both_count)
{
	fresh_dir();
	life(heard_meanwhile);
	life(both_count);
	remove_dir();
}

/* Byte `at` of a file becomes `byte`. */
static void poke(const char *path, long at, uint8_t byte)
{
	FILE *f = fopen(path, "r+");

	CHECK(f && !fseek(f, at, SEEK_SET) && fwrite(&byte, 1, 1, f) == 1 && !fclose(f));
}

/* Whole, but its version is another. */
static void record_of_version(const char *path, uint8_t version)
{
	uint8_t b[1024];
	FILE *f;

	poke(path, BLOCK_OFF_CRC + 4, version);
	for (long i = 0; i < 4; i++)
		poke(path, BLOCK_OFF_CRC + i, 0);
	f = fopen(path, "r");
	CHECK(f && fread(b, sizeof(b), 1, f) == 1 && !fclose(f));
	put_le32(b + BLOCK_OFF_CRC, crc32c(b, sizeof(b)));
	for (long i = 0; i < 4; i++)
		poke(path, BLOCK_OFF_CRC + i, b[BLOCK_OFF_CRC + i]);
}

static void record_there_and_back(void)
{
	static struct store_record out, in;
	char why[STORE_WHY_BYTES] = "", path[128];
	struct record *r = &out.record;
	uint64_t n = 1ull << 40;
	uint8_t byte;
	FILE *f;

	CHECK_EQ_INT(store_get_record("vol1", &in, why), -ENOENT);
	memset(out.uuid, 0xa5, sizeof(out.uuid));
	out.inc = n++;
	out.clean = true;
	out.fenced = n++;
	r->acked = (struct epoch){n, n + 1};
	r->committed = (struct epoch){n + 2, n + 3};
	r->alone = (struct ring){77, n + 4};
	n += 5;
	for (uint32_t i = 0; i < DDR_MAX_NODES; i++) {
		r->removed[i].node = 100 + i;
		r->removed[i].inc = n++;
		r->removed[i].by_node = 200 + i;
		r->removed[i].by_inc = n++;
	}
	r->removed_count = DDR_MAX_NODES;
	CHECK_EQ_INT(store_put_record("vol1", &out, why), 0);
	CHECK_EQ_INT(store_get_record("vol1", &in, why), 0);
	CHECK_EQ_MEM(&in, &out, sizeof(in));
	snprintf(path, sizeof(path), "%s/vol1.record", dir);
	for (long at = 0; at < 1024; at += 97) {
		f = fopen(path, "r");
		CHECK(f && !fseek(f, at, SEEK_SET) && fread(&byte, 1, 1, f) == 1 && !fclose(f));
		poke(path, at, byte ^ 0x10);
		CHECK_EQ_INT(store_get_record("vol1", &in, why), -EBADMSG);
		CHECK(strstr(why, "vol1.record"));
		CHECK_EQ_INT(store_put_record("vol1", &out, why), 0);
	}
	record_of_version(path, 1);
	CHECK_EQ_INT(store_get_record("vol1", &in, why), 0);
	record_of_version(path, 2);
	CHECK_EQ_INT(store_get_record("vol1", &in, why), -EPROTONOSUPPORT);
	CHECK(strstr(why, "vol1.record is of version 2"));
	CHECK(!truncate(path, 1000));
	CHECK_EQ_INT(store_get_record("vol1", &in, why), -EBADMSG);
}

TEST(a_record_is_read_as_it_was_written_or_not_at_all)
{
	fresh_dir();
	life(record_there_and_back);
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

/* ---- what others have made up ---- */

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
