// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Who has a block device open. What holds it in the kernel, in whatever namespace (a file system, a
 * journal, swap, a device on top), has claimed it: an open with O_EXCL says EBUSY. A loop device
 * that has it for its file, and processes, claim nothing: they are looked for.
 *
 * Each look is a thread, since it may have to wait for others: the open for who is closing the
 * device, whose requests the asker may be the one to serve; the list of what a process has mapped
 * for that process; the list of mounts for each file system that is mounted (btrfs reads its trees
 * for it). So has who counts. It keeps none of the daemon's descriptors: one that hangs must not
 * keep them from being closed when the daemon dies, for that is how the kernel knows.
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

#include "daemon/adapters/front/dev_open.h"
#include "daemon/base/aside.h"
#include "daemon/base/clock.h"

#define LOOKS_MAX 8u  /* at once: of so many devices */
#define FRESH_MS 500u /* so long a count counts, and a look for who did not wait for it */
#define NAME_BYTES 32u

struct look {
	char device[NAME_BYTES];
	bool used, runs;
	unsigned waiters;
	int outcome;
	uint64_t end_ms;
};

static struct look looks[LOOKS_MAX];
static pthread_mutex_t looks_lock = PTHREAD_MUTEX_INITIALIZER; /* all of looks */
static pthread_cond_t looks_end;
static pthread_once_t looks_once = PTHREAD_ONCE_INIT;

/* ---- the kernel's tables -------------------------------------------------------------------- */

/* It, or a partition of it. */
static bool is_device(const char *path, const char *device)
{
	size_t n = strlen(device);

	return !strncmp(path, device, n) && (!path[n] || path[n] == 'p');
}

/* How many lines have the device as a word, or this number. */
static uint32_t lines_with(const char *path, const char *device, const char *number)
{
	FILE *f = fopen(path, "re");
	char line[4096];
	uint32_t n = 0;

	while (f && fgets(line, sizeof(line), f)) {
		for (char *save, *w = strtok_r(line, " \t\n", &save); w;
		     w = strtok_r(NULL, " \t\n", &save)) {
			if (is_device(w, device) || (number && !strcmp(w, number))) {
				n++;
				break;
			}
		}
	}
	if (f)
		fclose(f);
	return n;
}

static uint32_t entries(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *d;
	uint32_t n = 0;

	while (dir && (d = readdir(dir)))
		n += d->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n;
}

static uint32_t count(const char *device)
{
	char path[64], number[32] = "";
	struct stat st;

	snprintf(path, sizeof(path), "/sys/block/%s/holders", device + 5);
	if (!stat(device, &st))
		snprintf(number, sizeof(number), "%u:%u", major(st.st_rdev), minor(st.st_rdev));
	/* By its name as well: some file systems have a number of their own. */
	return entries(path) + lines_with("/proc/self/mountinfo", device, number) +
	       lines_with("/proc/swaps", device, NULL);
}

/* Requests are under way: somebody has it open, and perhaps closes it right now. */
static bool in_flight(const char *device)
{
	char path[64];
	unsigned reads = 0, writes = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/block/%s/inflight", device + 5);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (fscanf(f, "%u %u", &reads, &writes) != 2)
		reads = writes = 0;
	fclose(f);
	return reads || writes;
}

static bool loop_has(const char *device)
{
	DIR *dir = opendir("/sys/block");
	struct dirent *d;
	bool has = false;

	while (dir && !has && (d = readdir(dir))) {
		char path[320];

		snprintf(path, sizeof(path), "/sys/block/%s/loop/backing_file", d->d_name);
		has = !strncmp(d->d_name, "loop", 4) && lines_with(path, device, NULL);
	}
	if (dir)
		closedir(dir);
	return has;
}

/* 0, -EBUSY: claimed; else why it can't be told. */
static int claimed(const char *device)
{
	int fd = open(device, O_RDONLY | O_EXCL | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return errno == EBUSY ? -EBUSY : errno == ENOENT || errno == ENXIO ? 0 : -errno;
	close(fd);
	return 0;
}

/* ---- processes ------------------------------------------------------------------------------ */

/*
 * The text of the link, and no look at what it leads to, unless that is in /dev: a descriptor may
 * be of a file system whose server does not answer.
 */
static bool fd_is(int dir, const char *fd, const char *device, dev_t number)
{
	char text[256];
	struct stat st;
	ssize_t n = readlinkat(dir, fd, text, sizeof(text) - 1);

	if (n < 0)
		return false;
	text[n] = '\0';
	if (is_device(text, device))
		return true;
	return !strncmp(text, "/dev/", 5) && !fstatat(dir, fd, &st, 0) && S_ISBLK(st.st_mode) &&
	       st.st_rdev == number;
}

static bool process_opens(const char *pid, const char *device, dev_t number)
{
	char path[64];
	struct dirent *d;
	bool has = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
	dir = opendir(path);
	while (dir && !has && (d = readdir(dir)))
		has = d->d_name[0] != '.' && fd_is(dirfd(dir), d->d_name, device, number);
	if (dir)
		closedir(dir);
	return has;
}

/* A mapping outlives its descriptor. */
static bool process_maps(const char *pid, const char *device)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%.20s/maps", pid);
	return lines_with(path, device, NULL);
}

static bool processes_have(const char *device, bool mapped)
{
	struct stat st = {0};
	struct dirent *d;
	bool has = false;
	DIR *dir;

	if (stat(device, &st) < 0)
		return false;
	dir = opendir("/proc");
	while (dir && !has && (d = readdir(dir))) {
		if (isdigit((unsigned char)d->d_name[0]))
			has = mapped ? process_maps(d->d_name, device)
				     : process_opens(d->d_name, device, st.st_rdev);
	}
	if (dir)
		closedir(dir);
	return has;
}

/* ---- looks ---------------------------------------------------------------------------------- */

/* What may have to wait comes last. */
static int look(const char *device)
{
	if (in_flight(device) || count(device) || loop_has(device) || processes_have(device, false))
		return -EBUSY;
	return claimed(device) ? -EBUSY : processes_have(device, true) ? -EBUSY : 0;
}

static void *look_thread(void *arg)
{
	struct look *l = arg;
	char device[NAME_BYTES];
	/* Else not at all: who can't be told not to have it open has. */
	int outcome = aside_alone() ? 0 : -EBUSY;

	memcpy(device, l->device, sizeof(device)); /* it stays as long as the look runs */
	if (!outcome)
		outcome = look(device);
	pthread_mutex_lock(&looks_lock);
	l->runs = false;
	l->outcome = outcome;
	l->end_ms = now_ms();
	pthread_cond_broadcast(&looks_end);
	pthread_mutex_unlock(&looks_lock);
	return NULL;
}

static void looks_init(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&looks_end, &attr);
	pthread_condattr_destroy(&attr);
}

/* The one that runs, or has just ended; or a new one. NULL: there can be none. */
static struct look *look_get(const char *device)
{
	struct look *room = NULL;

	for (uint32_t i = 0; i < LOOKS_MAX; i++) {
		struct look *l = &looks[i];

		if (l->used && !l->runs && !l->waiters && now_ms() - l->end_ms > FRESH_MS)
			l->used = false;
		if (l->used && !strcmp(l->device, device))
			return l;
		if (!l->used)
			room = l;
	}
	if (!room)
		return NULL;
	*room = (struct look){.used = true, .runs = true};
	snprintf(room->device, sizeof(room->device), "%s", device);
	room->used = room->runs = !aside_start(look_thread, room);
	return room->used ? room : NULL;
}

int dev_open_look(const char *device, uint32_t wait_ms)
{
	uint64_t until_ms = now_ms() + wait_ms;
	struct timespec until = {.tv_sec = (time_t)(until_ms / 1000),
				 .tv_nsec = (long)(until_ms % 1000) * 1000000};
	int outcome = -EAGAIN;
	struct look *l;

	assert(!strncmp(device, "/dev/", 5) && strlen(device) < NAME_BYTES);
	pthread_once(&looks_once, looks_init);
	pthread_mutex_lock(&looks_lock);
	l = look_get(device);
	if (l) {
		l->waiters++;
		while (l->runs && !pthread_cond_timedwait(&looks_end, &looks_lock, &until))
			;
		if (!l->runs)
			outcome = l->outcome;
		l->waiters--;
		/* Who asks again has a reason to: it gets another look. */
		if (!l->runs && !l->waiters)
			l->used = false;
	}
	pthread_mutex_unlock(&looks_lock);
	return outcome;
}

/* ---- counts --------------------------------------------------------------------------------- */

struct dev_count {
	pthread_mutex_t lock; /* all below */
	uint32_t count;
	bool runs, dropped;
	uint64_t end_ms;
	char device[NAME_BYTES]; /* never changes */
};

static void count_free(struct dev_count *c)
{
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static void *count_thread(void *arg)
{
	struct dev_count *c = arg;
	uint32_t n = aside_alone() ? count(c->device) : 0;
	bool dropped;

	pthread_mutex_lock(&c->lock);
	c->count = n;
	c->runs = false;
	c->end_ms = now_ms();
	dropped = c->dropped;
	pthread_mutex_unlock(&c->lock);
	if (dropped)
		count_free(c);
	return NULL;
}

struct dev_count *dev_count_new(const char *device)
{
	struct dev_count *c = calloc(1, sizeof(*c));

	assert(!strncmp(device, "/dev/", 5) && strlen(device) < NAME_BYTES);
	if (!c)
		return NULL;
	pthread_mutex_init(&c->lock, NULL);
	strcpy(c->device, device);
	return c;
}

uint32_t dev_count_get(struct dev_count *c)
{
	uint32_t n;

	pthread_mutex_lock(&c->lock);
	if (!c->runs && (!c->end_ms || now_ms() - c->end_ms >= FRESH_MS)) {
		c->runs = !aside_start(count_thread, c);
		if (!c->runs)
			c->end_ms = now_ms();
	}
	n = c->count;
	pthread_mutex_unlock(&c->lock);
	return n;
}

void dev_count_free(struct dev_count *c)
{
	bool runs;

	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	runs = c->dropped = c->runs;
	pthread_mutex_unlock(&c->lock);
	if (!runs)
		count_free(c);
}
