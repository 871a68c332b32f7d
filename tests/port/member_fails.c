// SPDX-License-Identifier: GPL-2.0-or-later
/* Members that are not there, or that fail under load: all modes but `conform`. */
#include "tests/port/member_conformance.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

void mode_refused(const char *uri)
{
	struct world *w = world_start(uri, &base_cfg);
	uint64_t longest = 0;

	while (!w->downs) {
		uint64_t t = loop_clock_us(w->loop);

		CHECK(!w->is_up);
		turn(w);
		t = loop_clock_us(w->loop) - t;
		longest = t > longest ? t : longest;
	}
	if (atoi(mode_args[0]))
		CHECK_INT(w->down_err, -atoi(mode_args[0]));
	CHECK(longest < 500000);
	WAIT(w, w->retries >= 2); /* it goes on trying */
	CHECK_INT(w->downs, 1);
	world_close(w);
}

/* Each read breaks its connection off: attempts become rarer, though each comes through. */
void mode_flaps(const char *uri)
{
	struct world *w = world_open(uri, &base_cfg);
	uint64_t down_us = 0;

	for (unsigned int i = 1; i <= 8; i++) {
		struct io *io = io_new(w, DEV_READ, 0, 0, 4096);

		WAIT(w, w->is_up);
		if (i == 8) /* 20 ms, twice that after each but the first */
			CHECK(w->up_at_us - down_us >= base_cfg.backoff_max_ms * 1000ull);
		io_submit(io);
		WAIT(w, w->downs == i);
		down_us = w->down_at_us;
	}
	world_close(w);
}

void mode_readonly(const char *uri)
{
	struct member_cfg cfg = base_cfg;
	struct world *w;

	cfg.read_only = true;
	w = world_open(uri, &cfg);
	CHECK(w->info.flags & MEMBER_READ_ONLY);
	CHECK_INT(simple(w, DEV_READ, 0, 0, 64 * KIB), 0);
	CHECK_INT(simple(w, DEV_WRITE, 0, 0, 4096), -EROFS);
	CHECK_INT(simple(w, DEV_ZEROES, DEV_F_UNMAP, 0, 4096), -EROFS);
	world_close(w);
	w = world_start(uri, &base_cfg);
	WAIT(w, w->downs || w->is_up);
	if (w->is_up) /* root may write a file that nobody may write */
		CHECK_INT(simple(w, DEV_WRITE, 0, 0, 4096), 0);
	else
		CHECK(w->down_err == -EROFS || w->down_err == -EACCES || w->down_err == -EPERM);
	world_close(w);
}

static pid_t pid_of(const char *arg)
{
	int pid = atoi(arg);

	CHECK(pid > 1); /* 0 would be everything here */
	return pid;
}

/* Descriptors that somebody else opens, in the turn in which a connection is found dead as well:
 * they get its number as soon as that is free, and the loop must not mix them up. */
static struct newcomer {
	struct loop_fd watch;
	unsigned int called;
} newcomers[64];
static unsigned int newcomer_count;

static int eventfd_set(void)
{
	int fd = eventfd(1, EFD_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

static void newcomer_ready(void *arg, uint32_t events)
{
	struct newcomer *n = arg;

	CHECK(events == LOOP_READ);
	n->called++;
}

static void newcomers_come(void *arg, uint32_t events)
{
	struct world *w = arg;
	int i;

	CHECK(events == LOOP_READ);
	for (i = 0; i < 2 && newcomer_count < sizeof(newcomers) / sizeof(newcomers[0]); i++) {
		struct newcomer *n = &newcomers[newcomer_count++];

		*n = (struct newcomer){.watch = {.fd = eventfd_set(), .ready = newcomer_ready}};
		n->watch.arg = n;
		CHECK_INT(loop_fd_add(w->loop, &n->watch, LOOP_READ), 0);
	}
}

static void newcomers_go(struct world *w)
{
	unsigned int i;

	CHECK(newcomer_count > 0);
	for (i = 0; i < newcomer_count; i++)
		newcomers[i].called = 0;
	pause_ms(w, 20); /* they are more than one batch */
	for (i = 0; i < newcomer_count; i++) {
		CHECK(newcomers[i].called > 0);
		loop_fd_del(w->loop, &newcomers[i].watch);
		close(newcomers[i].watch.fd);
	}
}

void mode_killed(const char *uri)
{
	struct world *w = world_open(uri, &base_cfg);
	pid_t pid = pid_of(mode_args[0]);
	struct loop_fd door = {.fd = eventfd_set(), .ready = newcomers_come, .arg = w};

	put(w, 0, MIB, 3, DEV_F_FUA);
	load(w, 1024);
	WAIT(w, w->answered > 100);
	CHECK(w->out > 0);
	CHECK(kill(pid, SIGKILL) == 0);
	usleep(100000); /* its sockets are ready before the door, and come first in the turn */
	CHECK_INT(loop_fd_add(w->loop, &door, LOOP_READ), 0);
	WAIT(w, w->downs == 1);
	CHECK_INT(w->out_at_down, 0);
	CHECK(w->down_err == -ECONNRESET || w->down_err == -EPIPE);
	loop_fd_del(w->loop, &door);
	close(door.fd);
	newcomers_go(w);
	quiet_is_quiet();
	WAIT(w, w->retries >= 2);
	CHECK(!w->is_up);
	CHECK_INT(system(mode_args[1]), 0);
	WAIT(w, w->is_up);
	CHECK_INT(w->downs, 1);
	CHECK(holds_zeroes(w, 0, MIB)); /* a new one, empty */
	put(w, 0, MIB, 4, 0);
	CHECK(holds(w, 0, MIB, 4));
	world_close(w);
}

void mode_frozen(const char *uri)
{
	struct member_cfg cfg = base_cfg;
	pid_t pid = pid_of(mode_args[0]);
	uint64_t thawed;
	struct world *w;

	cfg.request_timeout_ms = 600;
	cfg.connect_timeout_ms = 300;
	cfg.zombie_timeout_ms = 500;
	w = world_open(uri, &cfg);
	pause_ms(w, 1000); /* nothing out: nothing times out */
	CHECK(w->is_up);
	CHECK(kill(pid, SIGSTOP) == 0);
	load(w, 1024);
	thawed = loop_clock_us(w->loop);
	WAIT(w, w->downs == 1);
	CHECK(w->down_at_us - thawed >= 500000);
	CHECK(w->down_at_us - thawed < 5000000);
	CHECK_INT(w->down_err, -ETIMEDOUT);
	CHECK_INT(w->out_at_down, 0);
	WAIT(w, w->retries >= 2); /* for longer than the zombie timeout */
	CHECK(!w->is_up);
	thawed = loop_clock_us(w->loop);
	CHECK(kill(pid, SIGCONT) == 0);
	WAIT(w, w->is_up);
	CHECK(w->up_at_us - thawed >= 500000); /* it had writes of ours all the time */
	quiet_is_quiet();
	put(w, 0, MIB, 5, 0);
	CHECK(holds(w, 0, MIB, 5));
	world_close(w);
}

/* R7: half sent, and the rest is still here when the lease is over. */
static void overdue(const char *uri, bool shared)
{
	struct member_cfg cfg = base_cfg;
	pid_t pid = pid_of(mode_args[0]);
	uint32_t i, count = 24, landed = 0;
	struct world *w;

	cfg.max_inflight_bytes = 32 * MIB;
	cfg.shared = shared;
	w = world_open(uri, &cfg);
	for (i = 0; i < count; i++)
		put(w, (uint64_t)i * MIB, MIB, 1, 0);
	CHECK(kill(pid, SIGSTOP) == 0);
	for (i = 0; i < count; i++) {
		struct io *io = io_new(w, DEV_WRITE, 0, (uint64_t)i * MIB, MIB);

		fill(io->data, io->req.offset_bytes, MIB, 9);
		io_submit(io);
	}
	pause_ms(w, 300); /* what the sockets take is sent */
	CHECK_INT(w->out, count);
	member_lease(w->m, loop_clock_us(w->loop));
	CHECK(kill(pid, SIGCONT) == 0);
	WAIT(w, w->downs == 1);
	CHECK_INT(w->down_err, -ETIMEDOUT);
	CHECK_INT(w->out, 0);
	/* Who is alone has no cluster to hear from. */
	CHECK(!strstr(w->down_why, "cluster") == !shared);
	CHECK(strstr(w->down_why, shared ? "others may go on" : "another one may use them"));
	WAIT(w, w->is_up);
	pause_ms(w, 300);
	for (i = 0; i < count; i++)
		landed += holds(w, (uint64_t)i * MIB, MIB, 9);
	printf("  of %u writes, %u were sent in time\n", count, landed);
	CHECK(landed < count);
	CHECK(!holds(w, (uint64_t)(count - 1) * MIB, MIB, 9));
	/* What does no harm late needs no lease, and there is still none. */
	CHECK(w->is_up && w->downs == 1);
	CHECK_INT(simple(w, DEV_WRITE, DEV_F_LATE, 0, 64 * KIB), 0);
	CHECK(w->is_up && w->downs == 1);
	world_close(w);
}

void mode_overdue(const char *uri)
{
	overdue(uri, true);
	overdue(uri, false);
}

void mode_errors(const char *uri)
{
	struct world *w = world_open(uri, &base_cfg);
	int fd, i;

	put(w, 0, MIB, 6, 0);
	fd = open(mode_args[0], O_CREAT | O_WRONLY, 0600);
	CHECK(fd >= 0);
	close(fd);
	for (i = 0; i < 10; i++) {
		CHECK_INT(simple(w, DEV_READ, 0, 0, 64 * KIB), -EIO);
		CHECK_INT(simple(w, DEV_WRITE, 0, 8 * MIB, 5 * MIB), -EIO);
		CHECK_INT(simple(w, DEV_WRITE, DEV_F_FUA, 8 * MIB, 4 * KIB), -EIO);
		CHECK_INT(simple(w, DEV_ZEROES, DEV_F_UNMAP, 8 * MIB, 64 * KIB), -EIO);
	}
	CHECK(w->is_up && !w->downs); /* the medium's errors are no break */
	CHECK(unlink(mode_args[0]) == 0);
	CHECK(holds(w, 0, MIB, 6));
	put(w, 8 * MIB, MIB, 6, DEV_F_FUA);
	world_close(w);
}

void mode_slow(const char *uri)
{
	struct member_cfg cfg = base_cfg;
	uint64_t ms = strtoull(mode_args[0], NULL, 0), t;
	struct world *w;
	uint32_t i;

	cfg.request_timeout_ms = (uint32_t)ms * 10;
	w = world_open(uri, &cfg);
	t = loop_clock_us(w->loop);
	put(w, 0, 4096, 1, 0);
	CHECK(loop_clock_us(w->loop) - t >= ms * 1000);
	for (i = 0; i < 32; i++) { /* one after the other they would time out */
		struct io *io = io_new(w, DEV_WRITE, 0, i * 4096, 4096);

		fill(io->data, io->req.offset_bytes, 4096, 2);
		io_submit(io);
	}
	WAIT(w, !w->out);
	CHECK(w->is_up && !w->downs);
	CHECK(holds(w, 0, 32 * 4096, 2));
	world_close(w);
}

void mode_durable(const char *uri)
{
	struct world *w = world_open(uri, &base_cfg);
	uint64_t i;

	for (i = 0; i < 10; i++) {
		CHECK_INT(simple(w, DEV_WRITE, DEV_F_FUA, i * 64 * KIB, 4 * KIB), 0);
		CHECK_INT(simple(w, DEV_ZEROES, DEV_F_FUA, i * 64 * KIB, 4 * KIB), 0);
		CHECK_INT(simple(w, DEV_WRITE, 0, i * 64 * KIB, 4 * KIB), 0);
	}
	CHECK_INT(simple(w, DEV_FLUSH, 0, 0, 0), 0);
	world_close(w);
}
