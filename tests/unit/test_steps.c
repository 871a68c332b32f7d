/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What an event costs does not depend on how many regions the array has. The core is built for this
 * test so that it counts each branch that it takes (-fsanitize-coverage=trace-pc): the same
 * sequence of events must take exactly as many with 64 regions as with a million. A loop over
 * regions, or over pages of the log, shows.
 */
#include <stdint.h>
#include <sys/mman.h>

/* Memory that is taken up as it is touched. */
static uint64_t disk_bytes;

static void *disk_new(void)
{
	return mmap(0, disk_bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static void disk_free(void *disk)
{
	if (disk)
		munmap(disk, disk_bytes);
}

#define DISK_BYTES disk_bytes
#define DISK_NEW(i) disk_new()
#define DISK_FREE(disk) disk_free(disk)
#define DISK_CLEAN true
#include "tests/unit/engine_world.h"

#define REGION_BYTES (64u << 10)

static uint64_t steps;

/* The compiler puts a call of it into each branch of the core, and of this file. */
void __sanitizer_cov_trace_pc(void);
__attribute__((no_sanitize_coverage)) void __sanitizer_cov_trace_pc(void)
{
	steps++;
}

static uint64_t allocations;
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
	allocations++;
	return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	allocations++;
	return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
	allocations++;
	return __real_realloc(p, bytes);
}

/* Those of the world count as well, and are the same. */
static uint64_t since(uint64_t *from)
{
	uint64_t n = steps - *from;

	*from = steps;
	return n;
}

enum what {
	READ,
	WRITE_MARKS, /* the first one to a region, */
	WRITE,       /* and another one */
	FLUSH,
	RELEASE, /* ticks until the region is clean again */
	IDLE,
	STATUS,
	LEAVES, /* a member, */
	MISSES, /* ... and a write meanwhile */
	WHATS
};

static const char *const what_it_is[WHATS] = {
    [READ] = "a read",
    [WRITE_MARKS] = "a write that marks its region",
    [WRITE] = "a write to a region that is marked",
    [FLUSH] = "a flush",
    [RELEASE] = "the release of a region",
    [IDLE] = "a second without anything to do",
    [STATUS] = "the status",
    [LEAVES] = "a member that leaves",
    [MISSES] = "a write that it misses",
};

static uint64_t count[2][WHATS];
static uint8_t buf[4096];

static void begin(uint64_t regions)
{
	disk_bytes = (64u << 20) + regions * (REGION_BYTES / 2);
	create_regions(1, REGION_BYTES);
	start();
	run_ms(3000);
	CHECK(status().io_allowed);
	CHECK_MSG(engine_geo(w.e)->regions >= regions, "%llu regions",
		  (unsigned long long)engine_geo(w.e)->regions);
	CHECK_EQ_U64(status().regions_dirty, 0);
}

static void measure(uint64_t regions, uint64_t *n)
{
	uint64_t from, at;

	begin(regions);
	at = (regions - 2) * REGION_BYTES;
	/* Once each, for what is allocated at the first use. */
	for (uint32_t turn = 0; turn < 2; turn++) {
		from = steps;
		io(1, IO_READ, at, sizeof(buf), buf);
		n[READ] = since(&from);
		io(2, IO_WRITE, at, sizeof(buf), buf);
		n[WRITE_MARKS] = since(&from);
		CHECK(status().regions_dirty == 1 && w.io_done[2] == 1);
		from = steps;
		io(3, IO_WRITE, at + 8192, sizeof(buf), buf);
		n[WRITE] = since(&from);
		io(4, IO_FLUSH, 0, 0, NULL);
		n[FLUSH] = since(&from);
		CHECK(w.io_done[1] == 1 && w.io_done[3] == 1 && w.io_done[4] == 1);
		from = steps;
		run_ms(2000);
		n[RELEASE] = since(&from);
		CHECK_EQ_U64(status().regions_dirty, 0);
		from = steps;
		run_ms(1000);
		n[IDLE] = since(&from);
		status();
		n[STATUS] = since(&from);
		dev_down(1);
		run_ms(2000);
		n[LEAVES] = since(&from);
		CHECK_EQ_U64(status().map.member[1].state, MEMBER_SUSPECT);
		from = steps;
		io(5, IO_WRITE, at, sizeof(buf), buf);
		n[MISSES] = since(&from);
		CHECK_EQ_U64(w.io_done[5], 1);
		/* Its copies of the log's pages are written anew, all of them: not measured. */
		dev_up(1);
		run_ms(6000);
		CHECK_EQ_U64(status().map.member[1].state, MEMBER_IN_SYNC);
		CHECK_EQ_U64(status().regions_dirty, 0);
	}
	finish();
}

TEST(an_event_takes_as_many_steps_with_a_million_regions_as_with_64)
{
	bool same = true;

	measure(64, count[0]);
	measure(1000000, count[1]);
	for (uint32_t i = 0; i < WHATS; i++) {
		printf("%s: %llu and %llu\n", what_it_is[i], (unsigned long long)count[0][i],
		       (unsigned long long)count[1][i]);
		CHECK(count[0][i]);
		same &= count[0][i] == count[1][i];
	}
	CHECK(same);
}

/* Spread over the array, so that each page of the log has some. */
static void dirty(uint32_t regions, uint64_t *n)
{
	uint64_t from;

	begin(1000000);
	for (uint32_t i = 0; i < regions; i++) {
		io(1, IO_WRITE, (uint64_t)i * (1000000 / regions) * REGION_BYTES, sizeof(buf), buf);
		CHECK_EQ_U64(w.io_done[1], 1);
	}
	CHECK(status().regions_dirty >= regions); /* and those marked ahead */
	for (uint32_t turn = 0; turn < 2; turn++) {
		from = steps;
		io(2, IO_READ, 0, sizeof(buf), buf);
		n[READ] = since(&from);
		io(3, IO_WRITE, 8192, sizeof(buf), buf);
		n[WRITE] = since(&from);
		io(4, IO_FLUSH, 0, 0, NULL);
		n[FLUSH] = since(&from);
		step((struct event){.type = EV_TICK});
		n[IDLE] = since(&from);
		CHECK(w.io_done[2] == 1 && w.io_done[3] == 1 && w.io_done[4] == 1);
	}
	finish();
}

TEST(nor_does_it_matter_how_many_regions_are_dirty)
{
	static const enum what each[] = {READ, WRITE, FLUSH, IDLE};
	bool same = true;

	dirty(10, count[0]);
	dirty(10000, count[1]);
	for (uint32_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		printf("%s: %llu and %llu\n", what_it_is[each[i]],
		       (unsigned long long)count[0][each[i]],
		       (unsigned long long)count[1][each[i]]);
		same &= count[0][each[i]] == count[1][each[i]];
	}
	CHECK(same);
}

TEST(a_request_allocates_nothing)
{
	uint64_t from;

#ifdef __SANITIZE_ADDRESS__
	return; /* there it does, see core/data/pool.c */
#endif
	begin(1000);
	for (uint32_t turn = 0; turn < 3; turn++) {
		from = allocations;
		for (uint32_t i = 0; i < 16; i++)
			io(i, IO_READ, i * 4096, sizeof(buf), buf);
		CHECK_MSG(turn < 2 || allocations == from, "%llu for 16 reads",
			  (unsigned long long)(allocations - from));
		from = allocations;
		for (uint32_t i = 0; i < 16; i++)
			io(i, IO_WRITE, i * 4096, sizeof(buf), buf);
		CHECK_MSG(turn < 2 || allocations == from, "%llu for 16 writes",
			  (unsigned long long)(allocations - from));
		from = allocations;
		io(16, IO_FLUSH, 0, 0, NULL);
		CHECK_MSG(turn < 2 || allocations == from, "%llu for a flush",
			  (unsigned long long)(allocations - from));
	}
	for (uint32_t i = 0; i <= 16; i++)
		CHECK_EQ_U64(w.io_done[i], 1);
	finish();
}
