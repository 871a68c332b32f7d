// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An nbdkit plugin: an emulated disk, for measurements that are bound by the members and not by
 *this machine's processors.
 *
 *	nbdkit -t 64 ./disk.so size=64G [latency-us=100] [rate=200M] [counters=FILE]
 *
 * It has one queue. A request is served when those before it are, of whatever connection, and takes
 * latency-us and its length / rate (bytes a second). A FLUSH takes the latency, since what was
 * answered is durable. Its content is memory that is taken up as it is written, so a size of 100T
 * costs nothing.
 *
 * counters=FILE: the file has six numbers of 64 bits in this machine's order, as long as the plugin
 * runs: requests and bytes that were read, requests and bytes that were written, flushes,
 * microseconds for which the disk was busy.
 */
#define NBDKIT_API_VERSION 2
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <nbdkit-plugin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

enum counter { READS, READ_BYTES, WRITES, WRITE_BYTES, FLUSHES, BUSY_US, COUNTERS };

static int64_t size;
static unsigned latency_us = 100;
static int64_t rate = 200000000;
static char *counters_file;
static _Atomic uint64_t nowhere[COUNTERS], *counters = nowhere;
static int content = -1; /* a file in memory */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t free_ns; /* when all that has come is served */

static int disk_config(const char *key, const char *value)
{
	if (!strcmp(key, "size"))
		return (size = nbdkit_parse_size(value)) < 0 ? -1 : 0;
	if (!strcmp(key, "rate"))
		return (rate = nbdkit_parse_size(value)) < 0 ? -1 : 0;
	if (!strcmp(key, "latency-us"))
		return nbdkit_parse_unsigned("latency-us", value, &latency_us);
	if (!strcmp(key, "counters"))
		return (counters_file = nbdkit_absolute_path(value)) ? 0 : -1;
	nbdkit_error("disk: unknown parameter %s", key);
	return -1;
}

static int disk_config_complete(void)
{
	if (size > 0 && rate > 0)
		return 0;
	nbdkit_error("disk: size= is needed, and rate= must not be 0");
	return -1;
}

static int failed(const char *what)
{
	nbdkit_error("disk: %s: %m", what);
	return -1;
}

static int disk_get_ready(void)
{
	int fd;

	content = memfd_create("disk", MFD_CLOEXEC);
	if (content < 0 || ftruncate(content, size))
		return failed("memory");
	if (!counters_file)
		return 0;
	fd = open(counters_file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0 || ftruncate(fd, sizeof(nowhere)))
		return failed(counters_file);
	counters = mmap(NULL, sizeof(nowhere), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (counters == MAP_FAILED)
		return failed(counters_file);
	close(fd);
	return 0;
}

static void disk_unload(void)
{
	free(counters_file);
}

static void *disk_open(int readonly)
{
	(void)readonly;
	return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t disk_get_size(void *handle)
{
	(void)handle;
	return size;
}

static int disk_can_multi_conn(void *handle)
{
	(void)handle;
	return 1;
}

static int disk_can_fua(void *handle)
{
	(void)handle;
	return NBDKIT_FUA_NATIVE;
}

/* Takes a place in the queue, and returns when the request is served. */
static void serve(uint32_t bytes)
{
	uint64_t takes_ns = latency_us * 1000ull + bytes * 1000000000ull / (uint64_t)rate, now, end;
	static _Thread_local bool exact;
	struct timespec t;

	if (!exact) /* else each sleep takes 50 us longer */
		prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul);
	exact = true;
	pthread_mutex_lock(&mutex);
	clock_gettime(CLOCK_MONOTONIC, &t);
	now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	end = free_ns = (free_ns > now ? free_ns : now) + takes_ns;
	pthread_mutex_unlock(&mutex);
	counters[BUSY_US] += takes_ns / 1000;
	t = (struct timespec){.tv_sec = (time_t)(end / 1000000000u),
			      .tv_nsec = (long)(end % 1000000000u)};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static bool whole(ssize_t n, uint32_t count)
{
	if (n == (ssize_t)count)
		return true;
	nbdkit_set_error(n < 0 ? errno : EIO);
	failed("memory");
	return false;
}

static int disk_pread(void *handle, void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
	(void)handle, (void)flags;
	serve(count);
	if (!whole(pread(content, buf, count, (off_t)offset), count))
		return -1;
	counters[READS]++;
	counters[READ_BYTES] += count;
	return 0;
}

static int disk_pwrite(void *handle, const void *buf, uint32_t count, uint64_t offset,
		       uint32_t flags)
{
	(void)handle, (void)flags;
	serve(count);
	if (!whole(pwrite(content, buf, count, (off_t)offset), count))
		return -1;
	counters[WRITES]++;
	counters[WRITE_BYTES] += count;
	return 0;
}

static int disk_flush(void *handle, uint32_t flags)
{
	(void)handle, (void)flags;
	serve(0);
	counters[FLUSHES]++;
	return 0;
}

static struct nbdkit_plugin plugin = {
    .name = "disk",
    .longname = "an emulated disk with one queue",
    .config = disk_config,
    .config_complete = disk_config_complete,
    .config_help = "size=SIZE latency-us=N rate=BYTES-PER-SECOND counters=FILE",
    .get_ready = disk_get_ready,
    .unload = disk_unload,
    .open = disk_open,
    .get_size = disk_get_size,
    .can_multi_conn = disk_can_multi_conn,
    .can_fua = disk_can_fua,
    .pread = disk_pread,
    .pwrite = disk_pwrite,
    .flush = disk_flush,
};

NBDKIT_REGISTER_PLUGIN(plugin)
