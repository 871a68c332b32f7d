// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The files of the state directory: each is written whole or not at all, and durable before it is
 * acknowledged. What others delete is written anew, and told. And the locks of this directory and
 * of the run directory.
 */
#include "daemon/state/files.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "proto/ctl_wire.h"

#define LOCK_TRIES 8                         /* so often its file may go while it is being locked */
#define DELETED_SHOWN_MS (60u * 60u * 1000u) /* so long the status says what was deleted */

static char dir_path[STORE_PATH_BYTES / 2];
static int dir_fd = -1, lock_fd = -1, run_fd = -1;
static char run_lock[STORE_PATH_BYTES]; /* the file that run_fd locks */
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

int complain(int err, char *why, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(why, STORE_WHY_BYTES, format, ap);
	va_end(ap);
	return err;
}

/* --- whole or not at all --- */

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
const char *remedy_of_reading(int err)
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

/* --- what others deleted, in words --- */

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

int file_put(const char *name, const void *data, size_t bytes, char *why)
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

/* --- what others deleted is written anew --- */

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
ssize_t file_get(const char *name, void *data, size_t bytes, char *why)
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
void keep_read(const char *name)
{
	char unused[STORE_WHY_BYTES], *data = malloc(FORGOTTEN_BYTES);
	ssize_t n = data ? file_get(name, data, FORGOTTEN_BYTES, unused) : -ENOMEM;

	pthread_mutex_lock(&files_lock);
	if (n >= 0)
		keep(name, data, (size_t)n);
	pthread_mutex_unlock(&files_lock);
	free(data);
}

/* --- for store.c --- */

const char *files_dir(void)
{
	return dir_path;
}

bool file_there(const char *name)
{
	return !faccessat(dir_fd, name, F_OK, 0);
}

void file_known(const char *name, const void *data, size_t bytes, const char *beside)
{
	pthread_mutex_lock(&files_lock);
	if (data && *kept_find(beside))
		keep(name, data, bytes);
	else
		kept_drop(name);
	pthread_mutex_unlock(&files_lock);
}

int files_remove(const char *const *name, uint32_t count, char *why)
{
	int err = 0;
	uint32_t i;

	pthread_mutex_lock(&files_lock);
	for (i = 0; i < count && !err; i++) {
		kept_drop(name[i]);
		if (unlinkat(dir_fd, name[i], 0) < 0 && errno != ENOENT)
			err = -errno;
	}
	if (!err && fsync(dir_fd) < 0)
		err = -errno;
	pthread_mutex_unlock(&files_lock);
	/* That a file could be removed does not say that one can be written. */
	return err ? written(err, name[i - 1], RECORD_BYTES, why) : 0;
}

int file_rename(const char *from, const char *to, char *why)
{
	int err = renameat(dir_fd, from, dir_fd, to) < 0 || fsync(dir_fd) < 0 ? -errno : 0;

	return written(err, to, RECORD_BYTES, why);
}

/* --- the directory --- */

int files_open(const char *dir, char *why)
{
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

void files_close(void)
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
