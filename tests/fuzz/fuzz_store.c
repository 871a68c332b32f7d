// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The files of the state directory. The first byte says which; the rest is what is in it. A file is
 * damaged, and then a sentence says so, or it is taken, and is the same when it is written again.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "daemon/core/format/codec.h"
#include "daemon/state/store.h"
#include "tests/fuzz/fuzz.h"

static char dir[300], why[STORE_WHY_BYTES];

int fuzz_fsync(int fd)
{
	(void)fd;
	return 0;
}

static const char *const names[] = {"vol0.array", "vol0.record", "forgotten", "incarnation"};

static void path_of(char path[400], const char *name)
{
	snprintf(path, 400, "%s/%s", dir, name);
}

static void remove_files(void)
{
	char path[400];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		path_of(path, names[i]);
		unlink(path);
	}
}

static void remove_dir(void)
{
	char path[400];

	remove_files();
	path_of(path, "lock");
	unlink(path);
	rmdir(dir);
}

static void prepare(void)
{
	const char *tmp = getenv("TMPDIR");

	if (dir[0])
		return;
	snprintf(dir, sizeof(dir), "%.200s/fuzz-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(dir) || store_open(dir, why)) {
		perror(dir);
		exit(1);
	}
	atexit(remove_dir);
}

static void file_write(const char *name, const uint8_t *data, size_t bytes)
{
	char path[400];
	int fd;

	path_of(path, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
	close(fd);
}

static void why_clear(void)
{
	memset(why, 'w', sizeof(why));
}

static void why_check(void)
{
	assert(why[0] && why[0] != 'w' && memchr(why, '\0', sizeof(why)));
}

/* ---- an array ------------------------------------------------------------------------------- */

static struct store_array got;
static bool whole;

static void take(void *arg, const struct store_array *a, const char *damage)
{
	(void)arg;
	got = *a;
	whole = !damage;
	assert(!strcmp(a->name, "vol0"));
	assert(!damage || (damage[0] && strlen(damage) < STORE_WHY_BYTES));
}

static void array(const uint8_t *data, size_t bytes)
{
	struct store_array was;
	int err;

	file_write("vol0.array", data, bytes);
	err = store_scan(take, NULL, why);
	assert(!err);
	if (!whole || got.forgotten)
		return;
	assert(!store_array_wrong(&got));
	was = got;
	err = store_put_array(&was, why);
	assert(!err);
	err = store_scan(take, NULL, why);
	assert(!err && whole);
	if (!was.attach) /* then how long it waits is not written */
		was.away_ms = got.away_ms;
	assert(!memcmp(&got, &was, sizeof(got)));
}

/* ---- a record ------------------------------------------------------------------------------- */

static void record(const uint8_t *data, size_t bytes)
{
	struct store_record r, again;
	uint8_t b[1024] = {0};
	int err;

	if (!bytes)
		return;
	/* Mostly of its length, and with its checksum: what is behind them is what there is to
	 * find. */
	if (data[0] & 1) {
		memcpy(b, data + 1, bytes - 1 < sizeof(b) ? bytes - 1 : sizeof(b));
		memcpy(b, "DDRAIDRC", BLOCK_MAGIC_BYTES);
		if (data[0] & 2)
			put_le32(b + 12, 1);
		put_le32(b + BLOCK_OFF_CRC, 0);
		put_le32(b + BLOCK_OFF_CRC, crc32c(b, sizeof(b)));
		file_write("vol0.record", b, sizeof(b));
	} else {
		file_write("vol0.record", data + 1, bytes - 1);
	}
	why_clear();
	memset(&r, 0, sizeof(r));
	memset(&again, 0, sizeof(again));
	err = store_get_record("vol0", &r, why);
	if (err) {
		why_check();
		return;
	}
	err = store_put_record("vol0", &r, why);
	assert(!err);
	err = store_get_record("vol0", &again, why);
	assert(!err && !memcmp(&r, &again, sizeof(r)));
}

/* ---- the others ----------------------------------------------------------------------------- */

static void forgotten(const uint8_t *data, size_t bytes)
{
	static struct store_forgotten list[STORE_MAX_FORGOTTEN], again[STORE_MAX_FORGOTTEN];
	uint32_t n, m;
	int err;

	file_write("forgotten", data, bytes);
	why_clear();
	err = store_get_forgotten(list, &n, why);
	assert(n <= STORE_MAX_FORGOTTEN);
	if (err)
		why_check();
	err = store_put_forgotten(list, n, why);
	assert(!err);
	err = store_get_forgotten(again, &m, why);
	assert(!err && m == n);
	for (uint32_t i = 0; i < n; i++)
		assert(list[i].at_s == again[i].at_s &&
		       !memcmp(list[i].uuid, again[i].uuid, DDR_UUID_BYTES));
}

static void incarnation(const uint8_t *data, size_t bytes)
{
	uint64_t one, two;

	file_write("incarnation", data, bytes);
	why_clear();
	if (store_incarnation(&one, why)) {
		why_check();
		return;
	}
	assert(one);
	if (!store_incarnation(&two, why))
		assert(two > one);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	if (!bytes)
		return 0;
	prepare();
	switch (data[0]) {
	case 'a':
		array(data + 1, bytes - 1);
		break;
	case 'r':
		record(data + 1, bytes - 1);
		break;
	case 'f':
		forgotten(data + 1, bytes - 1);
		break;
	case 'i':
		incarnation(data + 1, bytes - 1);
		break;
	default:
		break;
	}
	remove_files();
	return 0;
}
