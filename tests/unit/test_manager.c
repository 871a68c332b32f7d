// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What other nodes tell of arrays, and what becomes of them here: names, members' URIs, versions,
 * and a stop while an array is in use.
 */
#include "tests/unit/manager_world.h"

/* ---- names ---------------------------------------------------------------------------------- */

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

/* ---- URIs ----------------------------------------------------------------------------------- */

/* The array's thread reaches member m by this, added or not. */
static void reached(struct array_entry *k, uint32_t m, const char *uri, bool added)
{
	struct store_array live = k->desc;

	strcpy(live.uri[m], uri);
	env.changed(k->array, &live, 1u << m, added ? 1u << m : 0);
	settle();
}

static void own_uri(void)
{
	struct store_array d = desc_of(1, "vol0");
	struct array_entry *k;

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
	struct array_entry *k = manager_find("vol0", false);
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
	struct array_entry *k = manager_find("vol0", false);

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
	struct array_entry *k = manager_find("vol0", false);

	CHECK(k && !k->damaged && k->desc.count == 2 && k->desc.guessed);
	CHECK_EQ_STR(k->desc.agreed[1], "/dev/b");
	env.changed(k->array, &k->desc, 0, 0); /* its file is written anew */
}

/* The others know where the members are; that this node has them elsewhere is no news. */
static void others_know_better(void)
{
	struct array_entry *k = manager_find("vol0", false);
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
	struct array_entry *k = manager_find("vol0", false);
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
	struct array_entry *k = manager_find("vol0", false);

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
	struct array_entry *k;

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

/* ---- stop, while it is in use --------------------------------------------------------------- */

static struct array_entry *k_used;

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
