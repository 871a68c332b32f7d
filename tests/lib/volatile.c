// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An nbdkit plugin: a disk with a volatile write cache, for exporters whose power can be cut.
 *
 * In the exporter's folder: `disk` is what a loss of power leaves, `cache` is what reads see, and
 * `unflushed` has a byte per sector, not 0 where only the cache has it. Who cuts the power ends all
 * of the exporter's processes and copies `disk` over `cache` (exporter_power_cut in cluster.sh).
 *
 * A plain write goes to the cache; a part of its sectors, chosen anew each time, to the disk too,
 * as a cache evicts what it likes: so a write may survive in part, and a later one without an
 * earlier one. FUA makes durable what it writes and nothing else; FLUSH all that was answered
 * before it came, of whatever connection.
 *
 * Each connection has a process of its own, so the state is in these files, and what changes it
 * holds a lock on one of them. A process that is killed within a FLUSH leaves what it had not
 * copied marked. An exporter with this disk must not have single connections frozen
 * (exporter_stall): they might have the lock.
 */
#define NBDKIT_API_VERSION 2
#include <errno.h>
#include <fcntl.h>
#include <nbdkit-plugin.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define SECTOR 512u
#define PIECE (256u << 10) /* bytes that a FLUSH copies at once */
#define EVICTED 4          /* one of so many sectors */

static int cache_fd = -1, disk_fd = -1;
static uint8_t *unflushed;
static uint64_t size;
static unsigned seed;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of threads; flock, of processes */

static int failed(const char *what)
{
	int err = errno;

	nbdkit_error("%s: %m", what);
	nbdkit_set_error(err);
	return -1;
}

static int volatile_get_ready(void)
{
	struct stat st;
	int fd;

	disk_fd = open("disk", O_RDWR | O_CLOEXEC);
	cache_fd = open("cache", O_RDWR | O_CLOEXEC);
	fd = open("unflushed", O_RDWR | O_CLOEXEC);
	if (disk_fd < 0 || cache_fd < 0 || fd < 0)
		return failed("disk, cache and unflushed");
	if (fstat(disk_fd, &st))
		return failed("disk");
	size = (uint64_t)st.st_size;
	unflushed = mmap(NULL, size / SECTOR, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (unflushed == MAP_FAILED)
		return failed("unflushed");
	close(fd);
	seed = (unsigned)time(NULL) ^ (unsigned)getpid();
	return 0;
}

static void *volatile_open(int readonly)
{
	(void)readonly;
	return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t volatile_get_size(void *handle)
{
	(void)handle;
	return (int64_t)size;
}

static int yes(void *handle)
{
	(void)handle;
	return 1;
}

static int fua_is_native(void *handle)
{
	(void)handle;
	return NBDKIT_FUA_NATIVE;
}

static int put(int fd, const void *buf, size_t bytes, uint64_t at)
{
	const char *from = buf;

	while (bytes) {
		ssize_t n = pwrite(fd, from, bytes, (off_t)at);

		if (n <= 0)
			return failed("pwrite");
		from += n;
		bytes -= (size_t)n;
		at += (uint64_t)n;
	}
	return 0;
}

static int get(int fd, void *buf, size_t bytes, uint64_t at)
{
	char *to = buf;

	while (bytes) {
		ssize_t n = pread(fd, to, bytes, (off_t)at);

		if (n <= 0)
			return failed("pread");
		to += n;
		bytes -= (size_t)n;
		at += (uint64_t)n;
	}
	return 0;
}

static void lock(void)
{
	pthread_mutex_lock(&mutex);
	while (flock(cache_fd, LOCK_EX) && errno == EINTR)
		;
}

static void unlock(void)
{
	flock(cache_fd, LOCK_UN);
	pthread_mutex_unlock(&mutex);
}

static int volatile_pread(void *handle, void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
	(void)handle;
	(void)flags;
	return get(cache_fd, buf, count, offset);
}

/*
 * Under the lock. Marked first: what a process that is killed in between has left in the cache is
 * read, so a FLUSH must make it durable.
 */
static int write_locked(const char *buf, uint32_t count, uint64_t offset, bool fua)
{
	memset(unflushed + offset / SECTOR, 1, count / SECTOR);
	if (put(cache_fd, buf, count, offset))
		return -1;
	if (fua) {
		if (put(disk_fd, buf, count, offset))
			return -1;
		memset(unflushed + offset / SECTOR, 0, count / SECTOR);
		return 0;
	}
	for (uint32_t at = 0; at < count; at += SECTOR) {
		bool evicted = rand_r(&seed) % EVICTED == 0;

		if (evicted && put(disk_fd, buf + at, SECTOR, offset + at))
			return -1;
		if (evicted)
			unflushed[(offset + at) / SECTOR] = 0;
	}
	return 0;
}

static int volatile_pwrite(void *handle, const void *buf, uint32_t count, uint64_t offset,
			   uint32_t flags)
{
	int ret;

	(void)handle;
	if (count % SECTOR || offset % SECTOR) {
		nbdkit_error("no whole sectors");
		nbdkit_set_error(EINVAL);
		return -1;
	}
	lock();
	ret = write_locked(buf, count, offset, flags & NBDKIT_FLAG_FUA);
	unlock();
	return ret;
}

/* Zeroes and trims write zeroes. */
static int volatile_zero(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
	static const char zeroes[PIECE];

	while (count) {
		uint32_t n = count < PIECE ? count : PIECE;

		if (volatile_pwrite(handle, zeroes, n, offset, flags))
			return -1;
		count -= n;
		offset += n;
	}
	return 0;
}

static int flush_locked(void)
{
	static char buf[PIECE];
	uint64_t sectors = size / SECTOR, n;

	for (uint64_t at = 0; at < sectors; at += n) {
		const uint8_t *next = memchr(unflushed + at, 1, sectors - at);

		if (!next)
			break;
		at = (uint64_t)(next - unflushed);
		for (n = 1; n < PIECE / SECTOR && at + n < sectors && unflushed[at + n]; n++)
			;
		if (get(cache_fd, buf, n * SECTOR, at * SECTOR) ||
		    put(disk_fd, buf, n * SECTOR, at * SECTOR))
			return -1;
		memset(unflushed + at, 0, n);
	}
	return 0;
}

static int volatile_flush(void *handle, uint32_t flags)
{
	int ret;

	(void)handle;
	(void)flags;
	lock();
	ret = flush_locked();
	unlock();
	return ret;
}

static struct nbdkit_plugin plugin = {
    .name = "volatile",
    .get_ready = volatile_get_ready,
    .open = volatile_open,
    .get_size = volatile_get_size,
    .can_write = yes,
    .can_flush = yes,
    .can_fua = fua_is_native,
    .can_zero = yes,
    .can_trim = yes,
    .can_multi_conn = yes,
    .pread = volatile_pread,
    .pwrite = volatile_pwrite,
    .zero = volatile_zero,
    .trim = volatile_zero,
    .flush = volatile_flush,
};

struct nbdkit_plugin *plugin_init(void); /* which this defines */
NBDKIT_REGISTER_PLUGIN(plugin)
