// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The state directory behind the table of arrays: files that are damaged, that others delete, that
 * can't be written; what a change leaves there, and what the next daemon reads.
 */
#include "tests/unit/manager_world.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "daemon/base/units.h"
#include "daemon/core/format/codec.h"

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
	struct array_entry *k = manager_find("two", false);

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
	struct array_entry *k = manager_find("two", false);

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

/* ---- an attach ------------------------------------------------------------------------------ */

static int attach(struct array_entry *k, enum attach_via via, uint32_t away_ms)
{
	struct manager_change *c = change_begin(CHANGE_ATTACH);

	c->via = via;
	c->away_ms = away_ms;
	manager_change(k, c);
	return change_ends();
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
	struct array_entry *k = manager_find("vol0", false);
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
	struct array_entry *k = manager_find("vol0", false);

	CHECK_EQ_U64(k->desc.away_ms, 30000);
	CHECK_EQ_INT(attach(k, ATTACH_SHIM, AWAY_HOLD), 0);
}

static void detach_it(void)
{
	struct array_entry *k = manager_find("vol0", false);

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
	struct array_entry *k = manager_find("vol0", false);

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

/* ---- a state directory that can't be written ------------------------------------------------ */

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
	struct array_entry *k;
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

/* What was answered is there after a restart, and nothing else is. */
static void what_was_answered(void)
{
	struct array_entry *k = manager_find("vol0", false);

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
	struct array_entry *k;

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
	struct array_entry *k;
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
	struct array_entry *k = manager_find("vol0", false);

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

/* ---- files that others delete --------------------------------------------------------------- */

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
	struct array_entry *k = manager_find("vol0", false);

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
	struct array_entry *k;
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

/* ---- the record ----------------------------------------------------------------------------- */

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
