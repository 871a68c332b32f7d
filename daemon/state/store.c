// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The state directory; store.h says what is in it. The text of an array:
 *
 *	version = 3			what all nodes share; newest wins
 *	name = vol0
 *	uuid = 6f...
 *	started = yes
 *	said = 3			the version in which that was last said; only if it was
 *	stop_forced = yes		only if it was
 *	ran = yes
 *	here = off			this node's: stopped (off) or started (on) here alone
 *	attach = shim			this node's: by what it is a block device; only if it is
 *	away = 30s			how long that waits for a ddraidd; only if not for ever
 *	adding = nbd://...		the device that `add` makes a member of just now, if any
 *	member = nbd://...		each member, in the order of their index: this node's URI
 *	agreed = nbd://...		likewise: the URI that all nodes were told
 *	option KEY = VALUE		see options.h
 *	end = yes			the last line: the file is whole
 *
 * The forgotten: a line "UUID SECONDS [NODE]" each, and at last "end". With a node, that one has
 *told so, and the array was never used here.
 *
 * The record, little-endian, 1024 bytes: magic 8 | crc32c 4 | version 4 | uuid 16 | inc 8 |
 * clean 4 | removed count 4 | acked 16 | committed 16 | removed { node 4, by_node 4, inc 8 } x 32 |
 * by_inc 8 x 32 | alone { rep 4, zero 4, seq 8 } | node 4 | zero 4 | fenced 8 |
 * process { boot 16, pid_space 8, start 8, pid 4, zero 4 }. Older ones have no process.
 */
#include "daemon/state/store.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/units.h"
#include "daemon/core/format/codec.h"
#include "daemon/state/files.h"

#define TEXT_BYTES (16u << 10)
#define RECORD_VERSION 1u

/* Of an array's file that is damaged. */
static const char *damaged_remedy(const char *file)
{
	if (strstr(file, ".making"))
		return "nothing was acknowledged of it: stop ddraidd, remove the file, and create "
		       "the array again, with --old-member if its members say that they are in one";
	return "restore it; or stop ddraidd, remove the file, and start it again: then another "
	       "node "
	       "tells of the array, or 'ddraidctl import' brings it back by its members";
}

enum {
	REC_VERSION = 12,
	REC_UUID = 16,
	REC_INC = 32,
	REC_CLEAN = 40,
	REC_COUNT = 44,
	REC_ACKED = 48,
	REC_COMMITTED = 64,
	REC_REMOVED = 80,
	REC_REMOVED_BY = REC_REMOVED + 16 * DDR_MAX_NODES,
	REC_ALONE = REC_REMOVED_BY + 8 * DDR_MAX_NODES,
	REC_NODE = REC_ALONE + 16,
	REC_FENCED = REC_NODE + 8,
	REC_PROCESS = REC_FENCED + 8,
	REC_END = REC_PROCESS + 40
};

_Static_assert(REC_END <= RECORD_BYTES, "the record fits");

static const char record_magic[BLOCK_MAGIC_BYTES] = "DDRAIDRC";
static pthread_mutex_t inc_lock = PTHREAD_MUTEX_INITIALIZER;

/* --- arrays --- */

bool store_uri_ok(const char *uri)
{
	size_t n = strlen(uri);

	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)uri[i] < ' ' || uri[i] == 0x7f)
			return false;
	}
	return n && n < DDR_URI_BYTES;
}

const char *store_array_wrong(const struct store_array *a)
{
	static const uint8_t none[DDR_UUID_BYTES];

	if (array_name_check(a->name, NULL))
		return "its name can't be one";
	if (!memcmp(a->uuid, none, DDR_UUID_BYTES))
		return "it has no UUID";
	if (!a->version || a->version > STORE_VERSION_MAX)
		return "its version is no count of changes";
	if (a->said > a->version)
		return "its start was said in a later version";
	if (!a->count || a->count > DDR_MAX_MEMBERS)
		return "an array has members";
	for (uint32_t i = 0; i < a->count; i++) {
		if (!store_uri_ok(a->uri[i]) || !store_uri_ok(a->agreed[i]))
			return "the URI of a member can't be one";
	}
	return NULL;
}

static int array_put(const struct store_array *a, const char *suffix, char *why)
{
	char name[STORE_PATH_BYTES], uuid[UUID_TEXT_BYTES], value[OPTION_VALUE_BYTES];
	char away[UNITS_TEXT_BYTES], *text = NULL;
	const char *key;
	size_t bytes;
	FILE *f = open_memstream(&text, &bytes);
	int err;

	if (!f)
		return complain(-ENOMEM, why, "out of memory");
	fprintf(f, "# Written by ddraidd; edit it only while that is stopped.\n");
	fprintf(f, "version = %" PRIu64 "\nname = %s\nuuid = %s\n", a->version, a->name,
		uuid_format(uuid, a->uuid));
	fprintf(f, "started = %s\nran = %s\n", a->started ? "yes" : "no", a->ran ? "yes" : "no");
	if (a->said)
		fprintf(f, "said = %" PRIu64 "\n", a->said);
	if (a->stop_forced)
		fprintf(f, "stop_forced = yes\n");
	if (a->here != HERE_FOLLOWS)
		fprintf(f, "here = %s\n", a->here == HERE_ON ? "on" : "off");
	if (a->attach)
		fprintf(f, "attach = %s\n", attach_via_name(a->attach));
	if (a->attach && a->away_ms != AWAY_HOLD)
		fprintf(f, "away = %s\n", away_format(away, a->away_ms));
	if (a->adding[0])
		fprintf(f, "adding = %s\n", a->adding);
	for (uint32_t i = 0; i < a->count; i++)
		fprintf(f, "member = %s\n", a->uri[i]);
	for (uint32_t i = 0; i < a->count && !a->guessed; i++)
		fprintf(f, "agreed = %s\n", a->agreed[i]);
	for (uint32_t i = 0; (key = options_get(&a->options, i, value, NULL)); i++)
		fprintf(f, "option %s = %s\n", key, value);
	fprintf(f, "end = yes\n");
	if (fclose(f)) {
		free(text);
		return complain(-ENOMEM, why, "out of memory");
	}
	snprintf(name, sizeof(name), "%s%s", a->name, suffix);
	err = file_put(name, text, bytes, why);
	free(text);
	return err;
}

int store_put_array(const struct store_array *a, char why[STORE_WHY_BYTES])
{
	return array_put(a, ".array", why);
}

int store_put_making(const struct store_array *a, char why[STORE_WHY_BYTES])
{
	return array_put(a, ".making", why);
}

const char *attach_via_name(enum attach_via via)
{
	static const char *const name[] = {
	    [ATTACH_NONE] = "", [ATTACH_SHIM] = "shim", [ATTACH_NBD] = "nbd"};

	return name[via];
}

int attach_via_parse(const char *name, enum attach_via *via)
{
	for (*via = ATTACH_SHIM; *via <= ATTACH_NBD; (*via)++) {
		if (!strcmp(name, attach_via_name(*via)))
			return 0;
	}
	return -EINVAL;
}

static int take_flag(const char *value, bool *flag)
{
	*flag = !strcmp(value, "yes");
	return *flag || !strcmp(value, "no") ? 0 : -EINVAL;
}

static int take_here(const char *value, enum here *here)
{
	*here = !strcmp(value, "on") ? HERE_ON : HERE_OFF;
	return *here == HERE_ON || !strcmp(value, "off") ? 0 : -EINVAL;
}

static int take_away(const char *value, uint32_t *ms, char *why)
{
	const char *because;
	int err = away_parse(value, ms, &because);

	if (err)
		snprintf(why, OPTION_WHY_BYTES, "%s", because);
	return err;
}

static uint32_t agreed_count(const struct store_array *a)
{
	uint32_t n = 0;

	while (n < DDR_MAX_MEMBERS && a->agreed[n][0])
		n++;
	return n;
}

static int take_uri(char list[DDR_MAX_MEMBERS][DDR_URI_BYTES], uint32_t *count, const char *value)
{
	if (*count == DDR_MAX_MEMBERS || !store_uri_ok(value))
		return -EINVAL;
	strcpy(list[(*count)++], value);
	return 0;
}

static int take_key(struct store_array *a, const char *key, const char *value, char *why)
{
	uint32_t agreed = agreed_count(a);
	bool end;

	if (!strcmp(key, "version"))
		return number_parse(value, 0, UINT64_MAX, &a->version);
	if (!strcmp(key, "uuid"))
		return uuid_parse(value, a->uuid);
	if (!strcmp(key, "started"))
		return take_flag(value, &a->started);
	if (!strcmp(key, "said"))
		return number_parse(value, 0, UINT64_MAX, &a->said);
	if (!strcmp(key, "stop_forced"))
		return take_flag(value, &a->stop_forced);
	if (!strcmp(key, "forgotten")) /* an early build's way */
		return take_flag(value, &a->forgotten);
	if (!strcmp(key, "ran"))
		return take_flag(value, &a->ran);
	if (!strcmp(key, "here"))
		return take_here(value, &a->here);
	if (!strcmp(key, "attach"))
		return attach_via_parse(value, &a->attach);
	if (!strcmp(key, "away"))
		return take_away(value, &a->away_ms, why);
	if (!strcmp(key, "adding")) {
		if (!store_uri_ok(value))
			return -EINVAL;
		strcpy(a->adding, value);
		return 0;
	}
	if (!strcmp(key, "end"))
		return take_flag(value, &end);
	if (!strncmp(key, "option ", 7))
		return options_set(&a->options, key + 7, value, why);
	if (!strcmp(key, "name")) {
		if (array_name_check(value, NULL))
			return -EINVAL;
		strcpy(a->name, value);
		return 0;
	}
	if (!strcmp(key, "member"))
		return take_uri(a->uri, &a->count, value);
	if (!strcmp(key, "agreed"))
		return take_uri(a->agreed, &agreed, value);
	return -EINVAL;
}

#define KEYS_MAX 64u

/* Twice in a file are only lists; and nothing comes after its end. */
static bool key_again(const char *key, const char *had[KEYS_MAX], uint32_t *count)
{
	if (*count && !strcmp(had[*count - 1], "end"))
		return true;
	if (!strcmp(key, "member") || !strcmp(key, "agreed"))
		return false;
	for (uint32_t i = 0; i < *count; i++)
		if (!strcmp(had[i], key))
			return true;
	if (*count == KEYS_MAX)
		return true;
	had[(*count)++] = key;
	return false;
}

static int array_parse(struct store_array *a, char *text, const char *file, char *why)
{
	char *line, *save = NULL, *eq = NULL;
	char what[OPTION_WHY_BYTES] = "", key[61], reason[201];
	const char *had[KEYS_MAX];
	uint32_t keys = 0;
	bool end = false;
	int number = 0;

	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		number++;
		if (line[0] == '#')
			continue;
		eq = strstr(line, " = ");
		if (eq)
			*eq = '\0';
		end = !strcmp(line, "end");
		if (eq && key_again(line, had, &keys))
			return complain(-EBADMSG, why,
					"%s/%s is damaged: line %d, %s, is there twice, or after "
					"the end; %s",
					files_dir(), file, number,
					text_clean(key, sizeof(key), line), damaged_remedy(file));
		if (!eq || take_key(a, line, eq + 3, what)) {
			text_clean(key, sizeof(key), line);
			text_clean(reason, sizeof(reason), what);
			return complain(-EBADMSG, why,
					"%s/%s is damaged: line %d, %s, is not understood%s%s; %s",
					files_dir(), file, number, key, what[0] ? ": " : "", reason,
					damaged_remedy(file));
		}
	}
	if (!agreed_count(a)) { /* an early build's file */
		memcpy(a->agreed, a->uri, sizeof(a->agreed));
		a->guessed = true;
	}
	if (!end || agreed_count(a) != a->count || (!a->forgotten && store_array_wrong(a)) ||
	    !a->name[0])
		return complain(-EBADMSG, why, "%s/%s is damaged: it is not whole; %s", files_dir(),
				file, damaged_remedy(file));
	return 0;
}

/* a->name, whatever the file says. */
static void array_name(struct store_array *a, const char *file)
{
	memset(a, 0, sizeof(*a));
	options_init(&a->options);
	text_clean(a->name, sizeof(a->name), file);
	if (strrchr(file, '.') < file + sizeof(a->name))
		a->name[strrchr(file, '.') - file] = '\0';
}

static int array_load(const char *file, struct store_array *a, char *why)
{
	char text[TEXT_BYTES];
	ssize_t n = file_get(file, text, sizeof(text) - 1, why);
	size_t stem = (size_t)(strrchr(file, '.') - file);
	int err;

	if (n < 0)
		return (int)n;
	text[n] = '\0';
	memset(a, 0, sizeof(*a));
	options_init(&a->options);
	err = array_parse(a, text, file, why);
	if (!err && (strlen(a->name) != stem || strncmp(a->name, file, stem)))
		err = complain(-EBADMSG, why,
			       "%s/%s speaks of array %s; rename it while ddraidd is stopped",
			       files_dir(), file, a->name);
	return err;
}

static bool ends_with(const char *text, const char *suffix)
{
	size_t n = strlen(text), m = strlen(suffix);

	return n > m && !strcmp(text + n - m, suffix);
}

static int is_array_file(const struct dirent *d)
{
	return ends_with(d->d_name, ".array");
}

static int is_making_file(const struct dirent *d)
{
	return ends_with(d->d_name, ".making");
}

static int is_record_file(const struct dirent *d)
{
	return ends_with(d->d_name, ".record");
}

static int scan(int (*filter)(const struct dirent *d),
		void (*take)(void *arg, const struct store_array *a, const char *damage), void *arg,
		char why[STORE_WHY_BYTES])
{
	struct store_array *a = malloc(sizeof(*a));
	struct dirent **list = NULL;
	char damage[STORE_WHY_BYTES];
	int n = scandir(files_dir(), &list, filter, alphasort), err = 0;

	if (n < 0 || !a)
		err = complain(n < 0 ? -errno : -ENOMEM, why,
			       "the state directory %s can't be read: %s; %s", files_dir(),
			       strerror(errno), remedy_of_reading(n < 0 ? -errno : -ENOMEM));
	if (n > STORE_MAX_ARRAYS)
		err =
		    complain(-E2BIG, why,
			     "%s has more than %d arrays; move .array files of forgotten ones away",
			     files_dir(), STORE_MAX_ARRAYS);
	for (int i = 0; i < n; i++) {
		bool whole = !err && !array_load(list[i]->d_name, a, damage);

		if (whole)
			keep_read(list[i]->d_name);
		else if (!err)
			array_name(a, list[i]->d_name);
		if (!err)
			take(arg, a, whole ? NULL : damage);
		free(list[i]);
	}
	free(list);
	free(a);
	return err;
}

int store_scan(void (*take)(void *arg, const struct store_array *a, const char *damage), void *arg,
	       char why[STORE_WHY_BYTES])
{
	return scan(is_array_file, take, arg, why);
}

int store_scan_making(void (*take)(void *arg, const struct store_array *a, const char *damage),
		      void *arg, char why[STORE_WHY_BYTES])
{
	return scan(is_making_file, take, arg, why);
}

int store_scan_records(void (*take)(void *arg, const char *name), void *arg,
		       char why[STORE_WHY_BYTES])
{
	struct dirent **list = NULL;
	int n = scandir(files_dir(), &list, is_record_file, alphasort);

	if (n < 0)
		return complain(-errno, why, "the state directory %s can't be read: %s; %s",
				files_dir(), strerror(errno), remedy_of_reading(-errno));
	for (int i = 0; i < n; i++) {
		*strrchr(list[i]->d_name, '.') = '\0';
		if (!array_name_check(list[i]->d_name, NULL))
			take(arg, list[i]->d_name);
		free(list[i]);
	}
	free(list);
	return 0;
}

static bool there(const char *name, const char *suffix)
{
	char file[STORE_PATH_BYTES];

	snprintf(file, sizeof(file), "%s%s", name, suffix);
	return file_there(file);
}

bool store_lost(const char *name, const uint8_t uuid[DDR_UUID_BYTES], char why[STORE_WHY_BYTES])
{
	static const uint8_t none[DDR_UUID_BYTES];
	char text[UUID_TEXT_BYTES + 3] = "";

	if (!there(name, ".record"))
		return false;
	if (memcmp(uuid, none, DDR_UUID_BYTES) != 0) {
		strcpy(text, " (");
		uuid_format(text + 2, uuid);
		strcat(text, ")");
	}
	if (there(name, ".array"))
		complain(0, why,
			 "%s/%s.array was not there when ddraidd started, and is now: restart "
			 "ddraidd, and the array %s%s is known here again",
			 files_dir(), name, name, text);
	else
		complain(0, why,
			 "%s/%s.record is there, and %s.array is not: the array %s%s was known "
			 "here, and is not any more. 'ddraidctl import' with its members brings it "
			 "back; or restore %s.array and restart ddraidd; or, if that array is not "
			 "wanted here, remove %s.record",
			 files_dir(), name, name, name, text, name, name);
	return true;
}

/* --- records --- */

int store_put_record(const char *name, const struct store_record *r, char why[STORE_WHY_BYTES])
{
	char file[STORE_PATH_BYTES];
	uint8_t b[RECORD_BYTES] = {0};

	memcpy(b, record_magic, BLOCK_MAGIC_BYTES);
	put_le32(b + REC_VERSION, RECORD_VERSION);
	memcpy(b + REC_UUID, r->uuid, DDR_UUID_BYTES);
	put_le64(b + REC_INC, r->inc);
	put_le32(b + REC_NODE, r->node);
	put_le32(b + REC_CLEAN, r->clean);
	put_le32(b + REC_COUNT, r->record.removed_count);
	put_le64(b + REC_ACKED, r->record.acked.num);
	put_le64(b + REC_ACKED + 8, r->record.acked.inc);
	put_le64(b + REC_COMMITTED, r->record.committed.num);
	put_le64(b + REC_COMMITTED + 8, r->record.committed.inc);
	put_le32(b + REC_ALONE, r->record.alone.rep);
	put_le64(b + REC_ALONE + 8, r->record.alone.seq);
	put_le64(b + REC_FENCED, r->fenced);
	memcpy(b + REC_PROCESS, r->process.boot, USE_BOOT_BYTES);
	put_le64(b + REC_PROCESS + 16, r->process.pid_space);
	put_le64(b + REC_PROCESS + 24, r->process.start);
	put_le32(b + REC_PROCESS + 32, r->process.pid);
	for (uint32_t i = 0; i < r->record.removed_count; i++) {
		put_le32(b + REC_REMOVED + 16 * i, r->record.removed[i].node);
		put_le32(b + REC_REMOVED + 16 * i + 4, r->record.removed[i].by_node);
		put_le64(b + REC_REMOVED + 16 * i + 8, r->record.removed[i].inc);
		put_le64(b + REC_REMOVED_BY + 8 * i, r->record.removed[i].by_inc);
	}
	put_le32(b + BLOCK_OFF_CRC, crc32c(b, sizeof(b)));
	snprintf(file, sizeof(file), "%s.record", name);
	return file_put(file, b, sizeof(b), why);
}

/* 0, -EBADMSG: damaged, or -EPROTONOSUPPORT: whole, and of another version. */
static int record_decode(const uint8_t b[RECORD_BYTES], struct store_record *r)
{
	uint8_t copy[RECORD_BYTES];

	memcpy(copy, b, sizeof(copy));
	put_le32(copy + BLOCK_OFF_CRC, 0);
	if (memcmp(b, record_magic, BLOCK_MAGIC_BYTES) ||
	    crc32c(copy, sizeof(copy)) != get_le32(b + BLOCK_OFF_CRC))
		return -EBADMSG;
	if (get_le32(b + REC_VERSION) != RECORD_VERSION)
		return -EPROTONOSUPPORT;
	if (get_le32(b + REC_COUNT) > DDR_MAX_NODES)
		return -EBADMSG;
	memset(r, 0, sizeof(*r));
	memcpy(r->uuid, b + REC_UUID, DDR_UUID_BYTES);
	r->inc = get_le64(b + REC_INC);
	r->node = get_le32(b + REC_NODE);
	r->clean = get_le32(b + REC_CLEAN) != 0;
	r->record.removed_count = get_le32(b + REC_COUNT);
	r->record.acked = (struct epoch){get_le64(b + REC_ACKED), get_le64(b + REC_ACKED + 8)};
	r->record.committed =
	    (struct epoch){get_le64(b + REC_COMMITTED), get_le64(b + REC_COMMITTED + 8)};
	r->record.alone.rep = get_le32(b + REC_ALONE);
	r->record.alone.seq = get_le64(b + REC_ALONE + 8);
	r->fenced = get_le64(b + REC_FENCED);
	memcpy(r->process.boot, b + REC_PROCESS, USE_BOOT_BYTES);
	r->process.pid_space = get_le64(b + REC_PROCESS + 16);
	r->process.start = get_le64(b + REC_PROCESS + 24);
	r->process.pid = get_le32(b + REC_PROCESS + 32);
	for (uint32_t i = 0; i < r->record.removed_count; i++) {
		r->record.removed[i].node = get_le32(b + REC_REMOVED + 16 * i);
		r->record.removed[i].by_node = get_le32(b + REC_REMOVED + 16 * i + 4);
		r->record.removed[i].inc = get_le64(b + REC_REMOVED + 16 * i + 8);
		r->record.removed[i].by_inc = get_le64(b + REC_REMOVED_BY + 8 * i);
	}
	return 0;
}

/* One that is damaged, or of an array that is not known here, an operator may be told to remove: it
 * must not come back. */
static void record_keep(const char *name, const char *file, const uint8_t *b)
{
	char array[STORE_PATH_BYTES];

	snprintf(array, sizeof(array), "%s.array", name);
	file_known(file, b, RECORD_BYTES, array);
}

int store_get_record(const char *name, struct store_record *r, char why[STORE_WHY_BYTES])
{
	char file[STORE_PATH_BYTES];
	uint8_t b[RECORD_BYTES + 1];
	ssize_t n;
	int err;

	snprintf(file, sizeof(file), "%s.record", name);
	n = file_get(file, b, sizeof(b), why);
	if (n < 0)
		return (int)n;
	err = n == RECORD_BYTES ? record_decode(b, r) : -EBADMSG;
	record_keep(name, file, err ? NULL : b);
	if (err == -EPROTONOSUPPORT)
		return complain(
		    err, why,
		    "%s/%s is of version %u, and this ddraidd reads version %u; run the "
		    "version of ddraid that wrote it",
		    files_dir(), file, get_le32(b + REC_VERSION), RECORD_VERSION);
	if (err)
		return complain(err, why,
				"%s/%s is damaged; restore it, or remove it and start the array "
				"with --stale",
				files_dir(), file);
	return 0;
}

static int remove_files(const char *name, const char *const *suffix, char *why)
{
	char file[2][STORE_PATH_BYTES];
	const char *list[2];
	uint32_t n = 0;

	for (; n < 2 && suffix[n]; n++) {
		snprintf(file[n], sizeof(file[n]), "%s.%s", name, suffix[n]);
		list[n] = file[n];
	}
	return files_remove(list, n, why);
}

int store_remove(const char *name, char why[STORE_WHY_BYTES])
{
	static const char *const suffix[] = {"array", "record", NULL};

	return remove_files(name, suffix, why);
}

int store_remove_making(const struct store_array *a, char why[STORE_WHY_BYTES])
{
	static const char *const suffix[] = {"making", NULL};
	struct store_array *there = malloc(sizeof(*there));
	char file[STORE_PATH_BYTES], unused[STORE_WHY_BYTES];
	bool other;

	if (!there)
		return complain(-ENOMEM, why, "out of memory");
	snprintf(file, sizeof(file), "%s.making", a->name);
	other = !array_load(file, there, unused) && memcmp(there->uuid, a->uuid, DDR_UUID_BYTES);
	free(there);
	return other ? 0 : remove_files(a->name, suffix, why);
}

/* --- the forgotten --- */

int store_put_forgotten(const struct store_forgotten *list, uint32_t count,
			char why[STORE_WHY_BYTES])
{
	char *text = malloc(FORGOTTEN_BYTES), uuid[UUID_TEXT_BYTES], by[16];
	size_t n;
	int err;

	if (!text)
		return complain(-ENOMEM, why, "out of memory");
	n = (size_t)sprintf(text, "# Written by ddraidd: arrays that were forgotten, and when.\n");
	for (uint32_t i = 0; i < count; i++) {
		snprintf(by, sizeof(by), list[i].by ? " %" PRIu32 : "", list[i].by);
		n += (size_t)snprintf(text + n, FORGOTTEN_LINE_BYTES, "%s %" PRIu64 "%s\n",
				      uuid_format(uuid, list[i].uuid), list[i].at_s, by);
	}
	n += (size_t)sprintf(text + n, "end\n");
	err = file_put("forgotten", text, n, why);
	free(text);
	return err;
}

static bool forgotten_parse(char *line, struct store_forgotten *f)
{
	char *at = strchr(line, ' '), *by = at ? strchr(at + 1, ' ') : NULL;
	uint64_t node = 0;

	if (!at)
		return false;
	*at = '\0';
	if (by) {
		*by = '\0';
		if (number_parse(by + 1, 1, UINT32_MAX, &node))
			return false;
	}
	f->by = (uint32_t)node;
	return !uuid_parse(line, f->uuid) && !number_parse(at + 1, 0, UINT64_MAX, &f->at_s);
}

/* 0, -EBADMSG, or as file_get. */
static int forgotten_get(const char *file, struct store_forgotten list[STORE_MAX_FORGOTTEN],
			 uint32_t *count, char why[STORE_WHY_BYTES])
{
	char *text = malloc(FORGOTTEN_BYTES), *line, *save = NULL;
	ssize_t n = text ? file_get(file, text, FORGOTTEN_BYTES - 1, why) : -ENOMEM;
	uint32_t bad = 0;
	bool end = false;

	*count = 0;
	if (n < 0) {
		free(text);
		return (int)n;
	}
	text[n] = '\0';
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (line[0] == '#')
			continue;
		end = !strcmp(line, "end");
		if (end)
			continue;
		if (*count == STORE_MAX_FORGOTTEN || !forgotten_parse(line, &list[*count]))
			bad++;
		else
			++*count;
	}
	free(text);
	if (!bad && end)
		return 0;
	return complain(-EBADMSG, why, "%s/%s is damaged%s", files_dir(), file,
			end ? "" : " or cut off");
}

#define DAMAGED "forgotten.damaged"

int store_get_forgotten(struct store_forgotten list[STORE_MAX_FORGOTTEN], uint32_t *count,
			char why[STORE_WHY_BYTES])
{
	int err = forgotten_get("forgotten", list, count, why);

	if (!err)
		keep_read("forgotten");
	return err == -ENOENT ? 0 : err;
}

int store_keep_damaged(char why[STORE_WHY_BYTES])
{
	return file_rename("forgotten", DAMAGED, why);
}

int store_get_damaged(struct store_forgotten list[STORE_MAX_FORGOTTEN], uint32_t *count,
		      char why[STORE_WHY_BYTES])
{
	return forgotten_get(DAMAGED, list, count, why);
}

int store_remove_damaged(char why[STORE_WHY_BYTES])
{
	static const char *const name[] = {DAMAGED};

	return files_remove(name, 1, why);
}

bool store_has_damaged(char why[STORE_WHY_BYTES])
{
	if (!there(DAMAGED, ""))
		return false;
	complain(0, why,
		 "the list of the forgotten was damaged, and is %s/" DAMAGED
		 "; what could be read of it counts, and an array of the rest may come back from "
		 "a node that was away. Put a whole copy of the list in the place of that file, "
		 "and restart ddraidd; or, if there is none, remove it, and forget again what "
		 "comes back",
		 files_dir());
	return true;
}

/* --- incarnations --- */

/* 0: there was none. */
static int incarnation_last(uint64_t *inc, char *why)
{
	char text[64];
	ssize_t n = file_get("incarnation", text, sizeof(text) - 1, why);

	*inc = 0;
	if (n < 0)
		return n == -ENOENT ? 0 : (int)n;
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (number_parse(text, 1, UINT64_MAX - 1, inc))
		return complain(-EBADMSG, why,
				"%s/incarnation is damaged; remove it if the clock is right",
				files_dir());
	return 0;
}

static int incarnation_next(uint64_t *inc, char *why)
{
	char text[64];
	struct timespec ts;
	uint64_t last, now;
	int err = incarnation_last(&last, why);

	if (err)
		return err;
	clock_gettime(CLOCK_REALTIME, &ts);
	now = (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
	*inc = now > last ? now : last + 1;
	snprintf(text, sizeof(text), "%" PRIu64 "\n", *inc);
	return file_put("incarnation", text, strlen(text), why);
}

int store_incarnation(uint64_t *inc, char why[STORE_WHY_BYTES])
{
	int err;

	pthread_mutex_lock(&inc_lock);
	err = incarnation_next(inc, why);
	pthread_mutex_unlock(&inc_lock);
	return err;
}

int store_open(const char *dir, char why[STORE_WHY_BYTES])
{
	char unused[STORE_WHY_BYTES];
	uint64_t inc;
	int err = files_open(dir, why);

	if (!err && !incarnation_last(&inc, unused) && inc)
		keep_read("incarnation");
	return err;
}

void store_close(void)
{
	files_close();
}
