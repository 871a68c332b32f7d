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
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/units.h"
#include "daemon/core/format/codec.h"
#include "proto/ctl_wire.h"

#define TEXT_BYTES (16u << 10)
#define RECORD_BYTES 1024 /* in every version: what has another length is damaged */
#define RECORD_VERSION 1u
#define FORGOTTEN_LINE_BYTES 80
#define FORGOTTEN_BYTES (STORE_MAX_FORGOTTEN * FORGOTTEN_LINE_BYTES + 256) /* the largest file */
#define LOCK_TRIES 8                         /* so often its file may go while it is being locked */
#define DELETED_SHOWN_MS (60u * 60u * 1000u) /* so long the status says what was deleted */

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
static char dir_path[STORE_PATH_BYTES / 2];
static int dir_fd = -1, lock_fd = -1, run_fd = -1;
static char run_lock[STORE_PATH_BYTES]; /* the file that run_fd locks */
static pthread_mutex_t inc_lock = PTHREAD_MUTEX_INITIALIZER;
/* Who writes or removes files: one at a time. It lasts as long as the disk takes. */
static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t trouble_lock = PTHREAD_MUTEX_INITIALIZER;
static char trouble[STORE_WHY_BYTES];
static size_t trouble_bytes; /* of the file that could not be written */

/* What each file held when it was written or read last; files_lock. */
struct kept {
	struct kept *next;
	char name[DDR_NAME_BYTES + 16];
	bool missed; /* it was deleted by others, and that is told */
	size_t bytes;
	uint8_t data[];
};

static struct kept *kept;
static bool lock_missed; /* likewise, and not had again */

/* What was deleted by others; trouble_lock. */
static struct {
	char names[STORE_WHY_BYTES / 3];
	uint64_t at_ms;
	uint32_t left; /* files that could not be written anew */
	bool unlocked; /* nor could the lock be had again */
	bool news;     /* for the log */
	bool more;     /* than there is room for in names */
} deleted;

static int complain(int err, char *why, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int complain(int err, char *why, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(why, STORE_WHY_BYTES, format, ap);
	va_end(ap);
	return err;
}

/* --- files, whole or not at all --- */

static int write_all(int fd, const void *data, size_t bytes)
{
	const char *p = data;

	while (bytes) {
		ssize_t n = write(fd, p, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		bytes -= (size_t)n;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

/* What an operator can do about it. */
static const char *remedy_of(int err)
{
	switch (err) {
	case -ENOSPC:
	case -EDQUOT:
		return "it is full: make room there";
	case -EROFS:
		return "it is read-only: see in the kernel's log why, and mount it writable";
	case -EACCES:
	case -EPERM:
		return "give ddraidd the right to write there";
	case -ENOENT:
		return "it was removed or moved away: move it back";
	case -EBUSY:
		return "its lock was deleted, and another ddraidd has locked it since: stop that "
		       "one, or this one";
	case -ESTALE:
		return "it is another one than when ddraidd began, moved or mounted there: set "
		       "that right, or restart ddraidd";
	default:
		return "see to its disk";
	}
}

/* Likewise, about a directory or a file that is to be read. */
static const char *remedy_of_reading(int err)
{
	switch (err) {
	case -EACCES:
	case -EPERM:
		return "give ddraidd's user the right to read and write there, as 'chown -R' and "
		       "'chmod -R u+rwX' do";
	case -ENOTDIR:
	case -ELOOP:
		return "name a directory in ddraid.conf";
	case -EISDIR:
		return "move that directory away";
	case -EROFS:
		return "it is read-only: see in the kernel's log why, and mount it writable";
	default:
		return "see to its disk, and into the kernel's log";
	}
}

void store_trouble(char why[STORE_WHY_BYTES])
{
	pthread_mutex_lock(&trouble_lock);
	strcpy(why, trouble);
	pthread_mutex_unlock(&trouble_lock);
}

/* Returns err. */
static int written(int err, const char *name, size_t bytes, char *why)
{
	if (err)
		complain(err, why, "the state directory %s can't be written: %s (%s); %s", dir_path,
			 strerror(-err), name, remedy_of(err));
	pthread_mutex_lock(&trouble_lock);
	strcpy(trouble, err ? why : "");
	if (err)
		trouble_bytes = bytes;
	pthread_mutex_unlock(&trouble_lock);
	return err;
}

/* 0: what bears its name is what was opened. Another daemon, and this one when it is started again,
 * would not find what is written to one that was moved away, or that another was mounted over. */
static int dir_moved(void)
{
	struct stat named, opened;

	if (stat(dir_path, &named) < 0 || fstat(dir_fd, &opened) < 0)
		return -errno;
	return named.st_dev == opened.st_dev && named.st_ino == opened.st_ino ? 0 : -ESTALE;
}

/* --- what each file held --- */

static struct kept **kept_find(const char *name)
{
	struct kept **at = &kept;

	while (*at && strcmp((*at)->name, name) != 0)
		at = &(*at)->next;
	return at;
}

static void kept_drop(const char *name)
{
	struct kept **at = kept_find(name), *k = *at;

	if (!k)
		return;
	*at = k->next;
	free(k);
}

/* Without memory for it, the file is one that is not written anew. */
static void keep(const char *name, const void *data, size_t bytes)
{
	struct kept *k;

	kept_drop(name);
	k = strlen(name) < sizeof(k->name) ? malloc(sizeof(*k) + bytes) : NULL;
	if (!k)
		return;
	*k = (struct kept){.next = kept, .bytes = bytes};
	strcpy(k->name, name);
	memcpy(k->data, data, bytes);
	kept = k;
}

static bool is_listed(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = list; (at = strstr(at, name)); at++)
		if ((at == list || at[-1] == ' ') && (!at[n] || at[n] == ','))
			return true;
	return false;
}

static void deleted_add(const char *name, bool again)
{
	size_t n;

	pthread_mutex_lock(&trouble_lock);
	if (now_ms() - deleted.at_ms > DELETED_SHOWN_MS) {
		deleted.names[0] = '\0';
		deleted.more = false;
	}
	deleted.at_ms = now_ms();
	deleted.news |= !again;
	n = strlen(deleted.names);
	if (!is_listed(deleted.names, name)) {
		if (n + 2 + strlen(name) < sizeof(deleted.names))
			sprintf(deleted.names + n, "%s%s", n ? ", " : "", name);
		else
			deleted.more = true;
	}
	pthread_mutex_unlock(&trouble_lock);
}

bool store_deleted(bool news, char why[STORE_WHY_BYTES])
{
	bool yes;

	pthread_mutex_lock(&trouble_lock);
	yes = deleted.names[0] && now_ms() - deleted.at_ms <= DELETED_SHOWN_MS;
	if (news) {
		yes &= deleted.news;
		deleted.news = false;
	}
	if (yes)
		snprintf(why, STORE_WHY_BYTES,
			 "files were deleted from the state directory %.200s while ddraidd uses "
			 "it: %s%s; what ddraidd knows of them %s: see to what deletes there",
			 dir_path, deleted.names, deleted.more ? " and others" : "",
			 deleted.left || deleted.unlocked ? "can't be written anew yet"
							  : "is written anew");
	pthread_mutex_unlock(&trouble_lock);
	return yes;
}

/* --- the lock --- */

/* 0: what bears its name is what was locked; -ENOENT, or -ESTALE: another file is. */
static int lock_moved(int fd)
{
	struct stat named, opened;

	if (fstatat(dir_fd, "lock", &named, 0) < 0 || fstat(fd, &opened) < 0)
		return -errno;
	return named.st_dev == opened.st_dev && named.st_ino == opened.st_ino ? 0 : -ESTALE;
}

/* The descriptor, or -errno. -EBUSY: another one has it. Between the open and the lock somebody may
 * delete the file, and a third daemon make another one: only the one with the name counts. */
static int lock_take(void)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	for (int i = 0; i < LOCK_TRIES; i++) {
		int fd = openat(dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

		if (fd < 0)
			return -errno;
		if (fcntl(fd, F_OFD_SETLK, &whole) < 0) {
			close(fd);
			return -EBUSY;
		}
		if (!lock_moved(fd))
			return fd;
		close(fd);
	}
	return -EBUSY;
}

static void lock_is_missed(bool yes)
{
	lock_missed = yes;
	pthread_mutex_lock(&trouble_lock);
	deleted.unlocked = yes;
	pthread_mutex_unlock(&trouble_lock);
}

/* 0: it is held, or held again. */
static int lock_again(void)
{
	int fd, err = lock_moved(lock_fd);

	if (!err && lock_missed)
		lock_is_missed(false); /* it was moved back */
	if (err != -ENOENT && err != -ESTALE)
		return err;
	deleted_add("lock", lock_missed);
	fd = lock_take();
	lock_is_missed(fd < 0);
	if (fd < 0)
		return fd;
	close(lock_fd);
	lock_fd = fd;
	return fsync(dir_fd) < 0 ? -errno : 0;
}

/* What is written to it now is this daemon's, and the next one finds it. */
static int dir_usable(void)
{
	int err = dir_moved();

	return err ? err : lock_again();
}

/* Whole, or nothing of it. */
static int fresh_write(const char *fresh, const void *data, size_t bytes)
{
	int fd = openat(dir_fd, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int err = fd < 0 ? -errno : write_all(fd, data, bytes);

	if (fd >= 0)
		close(fd);
	if (err && fd >= 0)
		unlinkat(dir_fd, fresh, 0); /* half a file only takes room */
	return err;
}

static int file_put(const char *name, const void *data, size_t bytes, char *why)
{
	char fresh[STORE_PATH_BYTES];
	int err;

	snprintf(fresh, sizeof(fresh), "%s.new", name);
	pthread_mutex_lock(&files_lock);
	err = dir_usable();
	if (!err)
		err = fresh_write(fresh, data, bytes);
	if (!err && renameat(dir_fd, fresh, dir_fd, name) < 0) {
		err = -errno;
		unlinkat(dir_fd, fresh, 0);
	} else if (!err) {
		keep(name, data, bytes);
	}
	if (!err && fsync(dir_fd) < 0)
		err = -errno;
	pthread_mutex_unlock(&files_lock);
	return written(err, name, bytes, why);
}

/* --- what others deleted --- */

/* Gives the file its name, unless there is one of that name. Not every file system can do that with
 * one call. */
static int name_fresh(const char *fresh, const char *name)
{
	int err = renameat2(dir_fd, fresh, dir_fd, name, RENAME_NOREPLACE) < 0 ? -errno : 0;

	if (err == -EINVAL || err == -ENOSYS) {
		err = linkat(dir_fd, fresh, dir_fd, name, 0) < 0 ? -errno : 0;
		if (!err)
			unlinkat(dir_fd, fresh, 0);
	}
	if (err)
		unlinkat(dir_fd, fresh, 0);
	return err == -EEXIST ? 0 : err; /* somebody has just put one there */
}

/* 1: it was written anew; 0: it is there; or -errno. */
static int kept_look(struct kept *k)
{
	char fresh[sizeof(k->name) + sizeof(".new")];
	struct stat st;
	int err;

	if (!fstatat(dir_fd, k->name, &st, AT_SYMLINK_NOFOLLOW) || errno != ENOENT) {
		k->missed = false;
		return 0;
	}
	deleted_add(k->name, k->missed);
	k->missed = true;
	snprintf(fresh, sizeof(fresh), "%s.new", k->name);
	err = fresh_write(fresh, k->data, k->bytes);
	if (!err)
		err = name_fresh(fresh, k->name);
	k->missed = err != 0;
	return err ? err : 1;
}

int store_look(char why[STORE_WHY_BYTES])
{
	const char *name = "lock";
	size_t bytes = RECORD_BYTES;
	uint32_t anew = 0, left = 0;
	int err;

	pthread_mutex_lock(&files_lock);
	err = dir_usable();
	for (struct kept *k = err ? NULL : kept; k; k = k->next) {
		int got = kept_look(k);

		anew += got > 0;
		left += got < 0;
		if (got < 0 && !err) {
			err = got;
			name = k->name;
			bytes = k->bytes;
		}
	}
	if (anew && fsync(dir_fd) < 0 && !err)
		err = -errno;
	pthread_mutex_lock(&trouble_lock);
	deleted.left = left;
	pthread_mutex_unlock(&trouble_lock);
	pthread_mutex_unlock(&files_lock);
	/* That all are there does not say that one can be written. */
	return err || anew ? written(err, name, bytes, why) : 0;
}

int store_probe(char why[STORE_WHY_BYTES])
{
	static const char name[] = "probe.new";
	char *data;
	size_t bytes;
	int err;

	pthread_mutex_lock(&trouble_lock);
	bytes = trouble[0] && trouble_bytes > RECORD_BYTES ? trouble_bytes : RECORD_BYTES;
	pthread_mutex_unlock(&trouble_lock);
	data = calloc(1, bytes);
	if (!data)
		return complain(-ENOMEM, why, "out of memory");
	pthread_mutex_lock(&files_lock);
	err = dir_usable();
	if (!err)
		err = fresh_write(name, data, bytes);
	if (!err && (unlinkat(dir_fd, name, 0) < 0 || fsync(dir_fd) < 0))
		err = -errno;
	pthread_mutex_unlock(&files_lock);
	free(data);
	return written(err, "a file to try it", bytes, why);
}

/* The length, or -errno. */
static ssize_t file_get(const char *name, void *data, size_t bytes, char *why)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, data, bytes);
	int err = errno;

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return complain(-err, why, "%s/%s can't be read: %s; %s", dir_path, name,
				strerror(err), remedy_of_reading(-err));
	return n;
}

/* It was read, and is whole. */
static void keep_read(const char *name)
{
	char unused[STORE_WHY_BYTES], *data = malloc(FORGOTTEN_BYTES);
	ssize_t n = data ? file_get(name, data, FORGOTTEN_BYTES, unused) : -ENOMEM;

	pthread_mutex_lock(&files_lock);
	if (n >= 0)
		keep(name, data, (size_t)n);
	pthread_mutex_unlock(&files_lock);
	free(data);
}

/* --- the directory --- */

static int incarnation_last(uint64_t *inc, char *why);

int store_open(const char *dir, char why[STORE_WHY_BYTES])
{
	char unused[STORE_WHY_BYTES];
	uint64_t inc;

	if (strlen(dir) >= sizeof(dir_path))
		return complain(-ENAMETOOLONG, why, "the state directory's path is too long");
	strcpy(dir_path, dir);
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return complain(-errno, why,
				"the state directory %s can't be created: %s; create it, or set "
				"another state_dir in ddraid.conf",
				dir, strerror(errno));
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return complain(-errno, why, "the state directory %s can't be opened: %s; %s", dir,
				strerror(errno), remedy_of_reading(-errno));
	lock_fd = lock_take();
	if (lock_fd == -EBUSY)
		return complain(-EBUSY, why,
				"another ddraidd uses the state directory %s; stop it first, or "
				"set another state_dir in ddraid.conf",
				dir);
	if (lock_fd < 0)
		return complain(lock_fd, why,
				"the state directory's %s/lock can't be opened: %s; %s", dir,
				strerror(-lock_fd), remedy_of_reading(lock_fd));
	if (!incarnation_last(&inc, unused) && inc)
		keep_read("incarnation");
	return 0;
}

/* --- the directory of the sockets --- */

/* Of NAME: "/NAME.nbd" and the end of the text. */
#define SOCKET_BYTES sizeof(((struct sockaddr_un *)0)->sun_path)
#define SOCKET_MAX (SOCKET_BYTES - 1)
#define SOCKET_MORE (sizeof("/.nbd") - 1)

int store_run_fits(const char *dir, const char *name, char why[STORE_WHY_BYTES])
{
	size_t bytes = strlen(dir) + strlen(name) + SOCKET_MORE;

	if (bytes <= SOCKET_MAX)
		return 0;
	return complain(-ENAMETOOLONG, why,
			"its NBD server's socket would be %s/%s.nbd, of %zu characters, and the "
			"kernel takes %zu at most: take a name of at most %d characters, or set a "
			"shorter run_dir in ddraid.conf",
			dir, name, bytes, SOCKET_MAX,
			(int)SOCKET_MAX - (int)(strlen(dir) + SOCKET_MORE));
}

/* The descriptor, or -errno. -EBUSY: another one has it. */
static int run_lock_take(void)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open(run_lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -errno;
	if (fcntl(fd, F_OFD_SETLK, &whole) == 0)
		return fd;
	close(fd);
	return -EBUSY;
}

int store_run_open(const char *dir, const char *ipc_name, char why[STORE_WHY_BYTES])
{
	size_t ctl_bytes = strlen(dir) + 1 + strlen(ipc_name) + strlen(CTL_SUFFIX);

	if (strlen(dir) + 1 + SOCKET_MORE > SOCKET_MAX)
		return complain(
		    -ENAMETOOLONG, why,
		    "run_dir = %s has %zu characters, and the path of a socket there, "
		    "run_dir/NAME.nbd, has at most %zu for the kernel: set a run_dir of "
		    "at most %zu characters in ddraid.conf, %zu for names of any length",
		    dir, strlen(dir), SOCKET_MAX, SOCKET_MAX - 1 - SOCKET_MORE,
		    SOCKET_MAX - (DDR_NAME_BYTES - 1) - SOCKET_MORE);
	if (ctl_bytes > SOCKET_MAX)
		return complain(-ENAMETOOLONG, why,
				"ddraidctl's socket would be %s/%s" CTL_SUFFIX
				", of %zu characters, and the kernel takes %zu at most: set a "
				"shorter run_dir or ipc_name in ddraid.conf",
				dir, ipc_name, ctl_bytes, SOCKET_MAX);
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return complain(-errno, why,
				"run_dir = %s can't be created: %s; create it, or set another "
				"run_dir in ddraid.conf",
				dir, strerror(errno));
	snprintf(run_lock, sizeof(run_lock), "%s/lock", dir);
	run_fd = run_lock_take();
	if (run_fd == -EBUSY)
		return complain(-EBUSY, why,
				"another ddraidd uses run_dir = %s; stop it first, or set another "
				"run_dir in ddraid.conf",
				dir);
	if (run_fd < 0)
		return complain(run_fd, why,
				"run_dir = %s can't be used: its file lock can't be "
				"opened: %s; %s",
				dir, strerror(-run_fd), remedy_of_reading(run_fd));
	return 0;
}

void store_run_look(void)
{
	char dir[STORE_PATH_BYTES];
	struct stat named, opened;
	int fd;

	if (run_fd < 0 || fstat(run_fd, &opened) < 0)
		return;
	if (stat(run_lock, &named) == 0) {
		if (named.st_dev == opened.st_dev && named.st_ino == opened.st_ino)
			return;
	} else if (errno != ENOENT) {
		return;
	}
	strcpy(dir, run_lock);
	*strrchr(dir, '/') = '\0';
	mkdir(dir, 0755); /* the lock says what is wrong with it */
	fd = run_lock_take();
	if (fd < 0)
		return;
	close(run_fd);
	run_fd = fd;
}

void store_close(void)
{
	if (lock_fd >= 0)
		close(lock_fd);
	if (dir_fd >= 0)
		close(dir_fd);
	if (run_fd >= 0)
		close(run_fd);
	lock_fd = dir_fd = run_fd = -1;
	while (kept)
		kept_drop(kept->name);
}

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
					dir_path, file, number, text_clean(key, sizeof(key), line),
					damaged_remedy(file));
		if (!eq || take_key(a, line, eq + 3, what)) {
			text_clean(key, sizeof(key), line);
			text_clean(reason, sizeof(reason), what);
			return complain(-EBADMSG, why,
					"%s/%s is damaged: line %d, %s, is not understood%s%s; %s",
					dir_path, file, number, key, what[0] ? ": " : "", reason,
					damaged_remedy(file));
		}
	}
	if (!agreed_count(a)) { /* an early build's file */
		memcpy(a->agreed, a->uri, sizeof(a->agreed));
		a->guessed = true;
	}
	if (!end || agreed_count(a) != a->count || (!a->forgotten && store_array_wrong(a)) ||
	    !a->name[0])
		return complain(-EBADMSG, why, "%s/%s is damaged: it is not whole; %s", dir_path,
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
			       dir_path, file, a->name);
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
	int n = scandir(dir_path, &list, filter, alphasort), err = 0;

	if (n < 0 || !a)
		err = complain(n < 0 ? -errno : -ENOMEM, why,
			       "the state directory %s can't be read: %s; %s", dir_path,
			       strerror(errno), remedy_of_reading(n < 0 ? -errno : -ENOMEM));
	if (n > STORE_MAX_ARRAYS)
		err =
		    complain(-E2BIG, why,
			     "%s has more than %d arrays; move .array files of forgotten ones away",
			     dir_path, STORE_MAX_ARRAYS);
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
	int n = scandir(dir_path, &list, is_record_file, alphasort);

	if (n < 0)
		return complain(-errno, why, "the state directory %s can't be read: %s; %s",
				dir_path, strerror(errno), remedy_of_reading(-errno));
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
	return !faccessat(dir_fd, file, F_OK, 0);
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
			 dir_path, name, name, text);
	else
		complain(0, why,
			 "%s/%s.record is there, and %s.array is not: the array %s%s was known "
			 "here, and is not any more. 'ddraidctl import' with its members brings it "
			 "back; or restore %s.array and restart ddraidd; or, if that array is not "
			 "wanted here, remove %s.record",
			 dir_path, name, name, name, text, name, name);
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
	pthread_mutex_lock(&files_lock);
	if (b && *kept_find(array))
		keep(file, b, RECORD_BYTES);
	else
		kept_drop(file);
	pthread_mutex_unlock(&files_lock);
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
		    dir_path, file, get_le32(b + REC_VERSION), RECORD_VERSION);
	if (err)
		return complain(err, why,
				"%s/%s is damaged; restore it, or remove it and start the array "
				"with --stale",
				dir_path, file);
	return 0;
}

static int remove_files(const char *name, const char *const *suffix, char *why)
{
	char file[STORE_PATH_BYTES] = "";
	int err = 0;

	pthread_mutex_lock(&files_lock);
	for (; *suffix && !err; suffix++) {
		snprintf(file, sizeof(file), "%s.%s", name, *suffix);
		kept_drop(file);
		if (unlinkat(dir_fd, file, 0) < 0 && errno != ENOENT)
			err = -errno;
	}
	if (!err && fsync(dir_fd) < 0)
		err = -errno;
	pthread_mutex_unlock(&files_lock);
	/* That a file could be removed does not say that one can be written. */
	return err ? written(err, file, RECORD_BYTES, why) : 0;
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
	return complain(-EBADMSG, why, "%s/%s is damaged%s", dir_path, file,
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
	int err =
	    renameat(dir_fd, "forgotten", dir_fd, DAMAGED) < 0 || fsync(dir_fd) < 0 ? -errno : 0;

	return written(err, DAMAGED, RECORD_BYTES, why);
}

int store_get_damaged(struct store_forgotten list[STORE_MAX_FORGOTTEN], uint32_t *count,
		      char why[STORE_WHY_BYTES])
{
	return forgotten_get(DAMAGED, list, count, why);
}

int store_remove_damaged(char why[STORE_WHY_BYTES])
{
	int err = unlinkat(dir_fd, DAMAGED, 0) < 0 || fsync(dir_fd) < 0 ? -errno : 0;

	return err ? written(err, DAMAGED, RECORD_BYTES, why) : 0;
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
		 dir_path);
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
				dir_path);
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
