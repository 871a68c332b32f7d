// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The claim is a descriptor of its own, opened with O_EXCL and used for nothing else: what reads
 * and writes is opened beside it, as often as it takes. So the claim ends with its close, whatever
 * the kernel still has to do for the other ones.
 *
 *	none	nobody here has the device	-> busy (take)
 *	busy	one thread opens or closes it	-> held (opened), none (closed, or refused)
 *	held	by `users` of this process	-> held (take, drop), busy (the last drop)
 *
 * Who else has it is looked up by a thread that nobody has to wait for: the list of mounts may have
 * to wait for a file system (dev_open.c).
 */
#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "daemon/adapters/member/dev_claim.h"
#include "daemon/base/aside.h"
#include "daemon/base/clock.h"

#define LOOK_MS 1000u /* so long it is waited for who has it */
#define NUMBERS_MAX 64u
#define NAME_BYTES 64u

struct dev_claim {
	struct dev_claim *next;
	dev_t number;
	bool busy;
	uint32_t users;
	int fd;
};

static struct dev_claim *claims; /* one per device */
static pthread_mutex_t claims_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t claims_change = PTHREAD_COND_INITIALIZER;

/* ---- who has it ----------------------------------------------------------------------------- */

struct look {
	dev_t number;
	char why[DEV_CLAIM_WHY_BYTES];
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t end;
	bool done, dropped;
};

/* The device, its partitions, and the disk that it is a partition of: each keeps the others. */
struct family {
	dev_t number[NUMBERS_MAX];
	char name[NUMBERS_MAX][NAME_BYTES]; /* as in /dev */
	uint32_t count;
};

static bool family_add(struct family *f, const char *dir)
{
	char path[384], target[256], *slash;
	unsigned int maj, min;
	bool known;
	ssize_t n;
	FILE *file;

	if (f->count == NUMBERS_MAX)
		return false;
	snprintf(path, sizeof(path), "%s/dev", dir);
	file = fopen(path, "re");
	if (!file)
		return false;
	known = fscanf(file, "%u:%u", &maj, &min) == 2;
	fclose(file);
	n = known ? readlink(dir, target, sizeof(target) - 1) : -1;
	if (!known)
		return false;
	if (n < 0) { /* a folder in the disk's */
		n = snprintf(target, sizeof(target), "%s", dir);
		if (n >= (ssize_t)sizeof(target))
			return false;
	}
	target[n] = '\0';
	slash = strrchr(target, '/');
	snprintf(f->name[f->count], NAME_BYTES, "%.63s", slash ? slash + 1 : target);
	f->number[f->count++] = makedev(maj, min);
	return true;
}

static void family_find(struct family *f, dev_t number)
{
	char dir[320], path[352];
	struct dirent *d;
	FILE *file;
	DIR *disk;

	f->count = 0;
	snprintf(dir, sizeof(dir), "/sys/dev/block/%u:%u", major(number), minor(number));
	if (!family_add(f, dir))
		return;
	snprintf(path, sizeof(path), "%s/partition", dir);
	if (!access(path, F_OK)) {
		unsigned int maj, min;

		snprintf(path, sizeof(path), "%s/../dev", dir);
		file = fopen(path, "re");
		if (file && fscanf(file, "%u:%u", &maj, &min) == 2) {
			snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", maj, min);
			family_add(f, path);
		}
		if (file)
			fclose(file);
		return;
	}
	disk = opendir(dir);
	while (disk && (d = readdir(disk))) {
		snprintf(path, sizeof(path), "%.60s/%.200s/partition", dir, d->d_name);
		if (d->d_name[0] == '.' || access(path, F_OK))
			continue;
		*strrchr(path, '/') = '\0';
		family_add(f, path);
	}
	if (disk)
		closedir(disk);
}

/* Which of the family a path of /dev is; its count: none. */
static uint32_t family_of(const struct family *f, const char *path)
{
	struct stat st;
	uint32_t i = f->count;

	if (!strncmp(path, "/dev/", 5) && !stat(path, &st) && S_ISBLK(st.st_mode))
		for (i = 0; i < f->count && f->number[i] != st.st_rdev; i++)
			;
	return i;
}

/* What stands before the sentence, where it is not the device itself. */
static const char *relative(const struct family *f, uint32_t i, char text[NAME_BYTES + 8])
{
	text[0] = '\0';
	if (i)
		snprintf(text, NAME_BYTES + 8, "%s is ", f->name[i]);
	return text;
}

/* Some file systems have a number of their own there: their source is the device. */
static bool mounted(const struct family *f, char why[DEV_CLAIM_WHY_BYTES])
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char line[4096], rel[NAME_BYTES + 8];
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file)) {
		char place[128], source[256], *rest = strstr(line, " - ");
		unsigned int maj, min;
		uint32_t i;

		if (!rest || sscanf(line, "%*s %*s %u:%u %*s %127s", &maj, &min, place) != 3)
			continue;
		if (sscanf(rest, " - %*s %255s", source) != 1)
			source[0] = '\0';
		for (i = 0; i < f->count && f->number[i] != makedev(maj, min); i++)
			;
		if (i == f->count)
			i = family_of(f, source);
		found = i < f->count;
		if (found)
			snprintf(why, DEV_CLAIM_WHY_BYTES,
				 "in use by the kernel: %smounted at %s; unmount it, or name "
				 "another device",
				 relative(f, i, rel), place);
	}
	if (file)
		fclose(file);
	return found;
}

static bool swapped(const struct family *f, char why[DEV_CLAIM_WHY_BYTES])
{
	char line[4096], path[256], rel[NAME_BYTES + 8];
	FILE *file = fopen("/proc/swaps", "re");
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file)) {
		uint32_t i = sscanf(line, "%255s", path) == 1 ? family_of(f, path) : f->count;

		found = i < f->count;
		if (found)
			snprintf(why, DEV_CLAIM_WHY_BYTES,
				 "in use by the kernel: %sswap space; 'swapoff /dev/%s', or name "
				 "another device",
				 relative(f, i, rel), f->name[i]);
	}
	if (file)
		fclose(file);
	return found;
}

/* What LVM and its like call it; their own name else. */
static void holder_name(const char *name, char text[2 * NAME_BYTES])
{
	char path[320], label[NAME_BYTES];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/block/%.200s/dm/name", name);
	file = fopen(path, "re");
	if (file && fscanf(file, "%63s", label) == 1)
		snprintf(text, 2 * NAME_BYTES, "%.50s (%s)", name, label);
	else
		snprintf(text, 2 * NAME_BYTES, "%.63s", name);
	if (file)
		fclose(file);
}

static bool held(const struct family *f, char why[DEV_CLAIM_WHY_BYTES])
{
	char path[96], name[2 * NAME_BYTES], rel[NAME_BYTES + 8];
	bool found = false;

	for (uint32_t i = 0; i < f->count && !found; i++) {
		struct dirent *d;
		DIR *dir;

		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/holders", major(f->number[i]),
			 minor(f->number[i]));
		dir = opendir(path);
		while (dir && !found && (d = readdir(dir))) {
			if (d->d_name[0] == '.')
				continue;
			found = true;
			holder_name(d->d_name, name);
			snprintf(why, DEV_CLAIM_WHY_BYTES,
				 "in use by the kernel: %sheld by %s; take that down, or name "
				 "another device",
				 relative(f, i, rel), name);
		}
		if (dir)
			closedir(dir);
	}
	return found;
}

static bool process_has(const struct family *f, const char *pid)
{
	char path[64], text[256];
	bool has = false;
	struct dirent *d;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
	dir = opendir(path);
	while (dir && !has && (d = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), d->d_name, text, sizeof(text) - 1);

		text[n < 0 ? 0 : n] = '\0';
		has = family_of(f, text) < f->count;
	}
	if (dir)
		closedir(dir);
	return has;
}

/* Nothing tells which of them has it for itself: another ddraidd, rather than any other. */
static bool opened(const struct family *f, char why[DEV_CLAIM_WHY_BYTES])
{
	DIR *dir = opendir("/proc");
	bool found = false, ours = false;
	struct dirent *d;

	while (dir && !ours && (d = readdir(dir))) {
		char path[64], name[32] = "";
		FILE *file;

		if (!isdigit((unsigned char)d->d_name[0]) || atoi(d->d_name) == getpid() ||
		    !process_has(f, d->d_name))
			continue;
		snprintf(path, sizeof(path), "/proc/%.20s/comm", d->d_name);
		file = fopen(path, "re");
		if (file && fscanf(file, "%31[^\n]", name) != 1)
			name[0] = '\0';
		if (file)
			fclose(file);
		ours = !strcmp(name, "ddraidd");
		if (ours || !found)
			snprintf(why, DEV_CLAIM_WHY_BYTES,
				 "in use: process %.20s (%s) has it open, and nobody else may; "
				 "end that, or name another device",
				 d->d_name, name);
		found = true;
	}
	if (dir)
		closedir(dir);
	return found;
}

static void find(dev_t number, char why[DEV_CLAIM_WHY_BYTES])
{
	struct family *f = calloc(1, sizeof(*f));

	if (f)
		family_find(f, number);
	if (!f || !(mounted(f, why) || swapped(f, why) || held(f, why) || opened(f, why)))
		snprintf(why, DEV_CLAIM_WHY_BYTES,
			 "in use by the kernel, or by a process that has it for itself; 'lsblk' "
			 "and 'fuser -v' may show it: end that, or name another device");
	free(f);
}

static void look_free(struct look *l)
{
	pthread_mutex_destroy(&l->lock);
	pthread_cond_destroy(&l->end);
	free(l);
}

static void *look_thread(void *arg)
{
	struct look *l = arg;
	char why[DEV_CLAIM_WHY_BYTES] = "";
	bool dropped;

	if (aside_alone())
		find(l->number, why);
	pthread_mutex_lock(&l->lock);
	strcpy(l->why, why);
	l->done = true;
	dropped = l->dropped;
	pthread_cond_signal(&l->end);
	pthread_mutex_unlock(&l->lock);
	if (dropped)
		look_free(l);
	return NULL;
}

static struct look *look_start(dev_t number)
{
	struct look *l = calloc(1, sizeof(*l));
	pthread_condattr_t attr;

	if (!l)
		return NULL;
	l->number = number;
	pthread_mutex_init(&l->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&l->end, &attr);
	pthread_condattr_destroy(&attr);
	if (!aside_start(look_thread, l))
		return l;
	look_free(l);
	return NULL;
}

void dev_claim_who(dev_t number, char why[DEV_CLAIM_WHY_BYTES])
{
	uint64_t until_ms = now_ms() + LOOK_MS;
	struct timespec until = {.tv_sec = (time_t)(until_ms / 1000),
				 .tv_nsec = (long)(until_ms % 1000) * 1000000};
	struct look *l = look_start(number);
	bool done;

	snprintf(why, DEV_CLAIM_WHY_BYTES,
		 "in use by the kernel; end that, or name another device");
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	while (!l->done && !pthread_cond_timedwait(&l->end, &l->lock, &until))
		;
	done = l->done;
	l->dropped = !done;
	if (done && l->why[0])
		strcpy(why, l->why);
	pthread_mutex_unlock(&l->lock);
	if (done)
		look_free(l);
}

/* ---- claims --------------------------------------------------------------------------------- */

/* By path, but only if it is still that device. */
static int claim_open(const char *path, dev_t number)
{
	int fd = open(path, O_RDONLY | O_EXCL | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (!fstat(fd, &st) && S_ISBLK(st.st_mode) && st.st_rdev == number)
		return fd;
	close(fd);
	return -EAGAIN;
}

static struct dev_claim *claim_find(dev_t number)
{
	struct dev_claim *c = claims;

	while (c && c->number != number)
		c = c->next;
	return c;
}

/* The lock is held. */
static void claim_remove(struct dev_claim *c)
{
	struct dev_claim **at = &claims;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	free(c);
	pthread_cond_broadcast(&claims_change);
}

int dev_claim_take(const char *path, dev_t number, struct dev_claim **out,
		   char why[DEV_CLAIM_WHY_BYTES])
{
	struct dev_claim *c;
	int fd;

	*out = NULL;
	pthread_mutex_lock(&claims_lock);
	while ((c = claim_find(number)) && c->busy)
		pthread_cond_wait(&claims_change, &claims_lock);
	if (c) {
		c->users++;
		*out = c;
		pthread_mutex_unlock(&claims_lock);
		return 0;
	}
	c = calloc(1, sizeof(*c));
	if (c) {
		*c = (struct dev_claim){.next = claims, .number = number, .busy = true};
		claims = c;
	}
	pthread_mutex_unlock(&claims_lock);
	fd = c ? claim_open(path, number) : -ENOMEM;
	if (fd == -EBUSY)
		dev_claim_who(number, why);
	if (!c)
		return fd;
	pthread_mutex_lock(&claims_lock);
	if (fd < 0) {
		claim_remove(c);
	} else {
		c->fd = fd;
		c->users = 1;
		c->busy = false;
		*out = c;
		pthread_cond_broadcast(&claims_change);
	}
	pthread_mutex_unlock(&claims_lock);
	return fd < 0 ? fd : 0;
}

void dev_claim_drop(struct dev_claim *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&claims_lock);
	assert(c->users && !c->busy);
	c->busy = !--c->users;
	if (!c->busy) {
		pthread_mutex_unlock(&claims_lock);
		return;
	}
	pthread_mutex_unlock(&claims_lock);
	close(c->fd); /* may have to wait for the device */
	pthread_mutex_lock(&claims_lock);
	claim_remove(c);
	pthread_mutex_unlock(&claims_lock);
}
