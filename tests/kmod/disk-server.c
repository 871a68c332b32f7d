/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Serves a disk of the kernel driver from a file, by kmod/ddraid_uapi.h and nothing else; and
 * misbehaves where it is told to. One thread, as the daemon's engine.
 *
 *	disk-server --uuid N --name NAME --size BYTES --file PATH [OPTION...]
 *	disk-server --status N		the disk with this UUID (sixteen bytes of N), lines
 *					"key value"
 *
 * It prints "attached ddraidN waiting W cookie C" when it is ready. SIGTERM: leaves, the disk
 * stays, and prints how many requests and answers one call had at most. SIGUSR1: detaches, or
 * prints "busy". SIGUSR2: revokes the disk and ends. SIGHUP: answers what it holds.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "kmod/ddraid_uapi.h"

#define SLOTS 16 /* requests at once, each with a buffer of its own */

struct slot {
	struct ddraid_request rq;
	uint8_t *data;
	bool used;
};

static struct slot slots[SLOTS];
static struct ddraid_action actions[DDRAID_BATCH_MAX];
static unsigned int actions_count;
static struct ddraid_attach is = {
    .api = DDRAID_API_VERSION,
    .logical_block = 4096,
    .physical_block = 4096,
    .io_max = DDRAID_IO_MAX,
    .zeroes_max = 64u << 20,
    .depth = 64,
};
static int control, file = -1;
static FILE *log_file;
static bool probe, hold, reverse;
static long die_after = -1, delay_us, fail_errno;
static const char *die_when = "done", *stale_path;
static unsigned int most_requests, most_answers; /* in one call */
static uint64_t served;
static volatile sig_atomic_t got_signal;

static void die(const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "disk-server: ");
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

/* ---- the backing ---- */

static int back_read(void *data, uint32_t bytes, uint64_t offset)
{
	ssize_t n = pread(file, data, bytes, (off_t)offset);
	if (n < 0)
		return -errno;
	memset((uint8_t *)data + n, 0, bytes - (size_t)n);
	return 0;
}

static int back_write(const void *data, uint32_t bytes, uint64_t offset, bool fua)
{
	if (pwrite(file, data, bytes, (off_t)offset) != (ssize_t)bytes)
		return -EIO;
	return fua && fdatasync(file) ? -EIO : 0;
}

static int back_zero(uint32_t bytes, uint64_t offset)
{
	static const uint8_t zeroes[1u << 20];
	int err = 0;

	while (bytes && !err) {
		uint32_t n = bytes < sizeof(zeroes) ? bytes : (uint32_t)sizeof(zeroes);
		err = back_write(zeroes, n, offset, false);
		offset += n;
		bytes -= n;
	}
	return err;
}

static int back_flush(void)
{
	return fdatasync(file) ? -EIO : 0;
}

/* ---- answers ---- */

static int exchange(struct ddraid_action *list, unsigned int count, struct ddraid_request *room,
		    unsigned int room_count, unsigned int *got)
{
	struct ddraid_exchange x = {
	    .actions = (uintptr_t)list,
	    .requests = (uintptr_t)room,
	    .actions_count = count,
	    .requests_room = room_count,
	};
	if (ioctl(control, DDRAID_IOC_EXCHANGE, &x))
		return -errno;
	if (got)
		*got = x.requests_got;
	return 0;
}

/* One action alone: its status. */
static int act(struct ddraid_action a)
{
	int err = exchange(&a, 1, NULL, 0, NULL);

	return err ? err : a.status;
}

static void expect(const char *what, int is_status, int want)
{
	if (is_status != want)
		die("probe %s: status %d, expected %d", what, is_status, want);
}

/* Each of these must be refused and leave the request as it was. */
static void probe_request(const struct slot *s)
{
	static uint8_t *edge;
	long page = sysconf(_SC_PAGESIZE);
	struct ddraid_action good = {.tag = s->rq.tag,
				     .pass = s->rq.pass,
				     .data = (uintptr_t)s->data},
			     a;

	if (!edge) {
		edge = mmap(NULL, (size_t)page * 2, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert(edge != MAP_FAILED && !munmap(edge + page, (size_t)page));
	}
	a = good, a.tag ^= 0x40, a.pass++;
	expect("wrong tag and pass", act(a), -ESTALE);
	a = good, a.tag = UINT32_MAX;
	expect("tag out of range", act(a), -ESTALE);
	a = good, a.tag = (a.tag & 0xffff0000) | 0xfffe;
	expect("tag out of its queue", act(a), -ESTALE);
	a = good, a.pass++;
	expect("wrong pass", act(a), -ESTALE);
	a = good, a.pass = 0;
	expect("no pass", act(a), -ESTALE);
	a = good, a.what = 99;
	expect("no such action", act(a), -EINVAL);
	a = good, a.result = 1;
	expect("positive result", act(a), -EINVAL);
	a = good, a.result = -4096;
	expect("no errno", act(a), -EINVAL);
	a = good, a.result = INT32_MIN;
	expect("least number", act(a), -EINVAL);
	a = good, a.what = DDRAID_PULL;
	if (s->rq.op != DDRAID_WRITE) {
		expect("pull of no write", act(a), -EINVAL);
	} else {
		a.result = -EIO;
		expect("pull with a result", act(a), -EINVAL);
		a.result = 0, a.data = 4096;
		expect("pull to nowhere", act(a), -EFAULT);
		a.data = UINT64_MAX - 4095;
		expect("pull into the kernel", act(a), -EFAULT);
		a.data = (uintptr_t)edge + (uintptr_t)page - 2048;
		expect("pull over an edge", act(a), -EFAULT);
	}
	if (s->rq.op == DDRAID_READ) {
		a = good, a.data = 4096;
		expect("read from nowhere", act(a), -EFAULT);
		a = good, a.data = 0xffff888000000000;
		expect("read from the kernel", act(a), -EFAULT);
		a = good, a.data = (uintptr_t)edge + (uintptr_t)page - 2048;
		expect("read over an edge", act(a), -EFAULT);
	}
	/* The call as a whole. */
	expect("too many actions", exchange(&a, DDRAID_BATCH_MAX + 1, NULL, 0, NULL), -EINVAL);
	expect("too much room", exchange(NULL, 0, NULL, DDRAID_BATCH_MAX + 1, NULL), -EINVAL);
	expect("actions nowhere", exchange((void *)4096, 1, NULL, 0, NULL), -EFAULT);
}

static void add_action(struct slot *s, uint32_t what, int result)
{
	actions[actions_count++] = (struct ddraid_action){
	    .tag = s->rq.tag,
	    .what = what,
	    .pass = s->rq.pass,
	    .data = what == DDRAID_PULL || (s->rq.op == DDRAID_READ && !result) ? (uintptr_t)s->data
										: 0,
	    .result = result,
	};
}

static void maybe_die(const char *when)
{
	if (die_after >= 0 && !strcmp(when, die_when) && served >= (uint64_t)die_after)
		kill(getpid(), SIGKILL);
}

static void answer(struct slot *s)
{
	const struct ddraid_request *rq = &s->rq;
	bool fua = rq->flags & DDRAID_FUA;
	int err = 0;

	if (delay_us)
		usleep((useconds_t)delay_us);
	switch (rq->op) {
	case DDRAID_READ:
		err = back_read(s->data, rq->bytes, rq->offset);
		break;
	case DDRAID_WRITE:
		err = back_write(s->data, rq->bytes, rq->offset, fua);
		break;
	case DDRAID_FLUSH:
		err = back_flush();
		break;
	case DDRAID_ZEROES:
		err = back_zero(rq->bytes, rq->offset);
		break;
	default:
		die("unknown request %u", rq->op);
	}
	served++;
	maybe_die("done");
	add_action(s, DDRAID_DONE, fail_errno && rq->op == DDRAID_WRITE ? (int)-fail_errno : err);
}

static void take(const struct ddraid_request *rq)
{
	static const char *const ops[] = {"read", "write", "flush", "zeroes"};
	struct slot *s = slots;

	while (s->used)
		s++;
	s->used = true;
	s->rq = *rq;
	if (rq->op > DDRAID_ZEROES || !rq->pass || rq->bytes % is.logical_block ||
	    rq->offset % is.logical_block || rq->offset + rq->bytes > is.size ||
	    (rq->op <= DDRAID_WRITE && (!rq->bytes || rq->bytes > is.io_max)) ||
	    (rq->op == DDRAID_FLUSH && (rq->bytes || rq->offset || rq->flags)) ||
	    (rq->op == DDRAID_ZEROES && (!rq->bytes || rq->bytes > is.zeroes_max)))
		die("a request out of its limits: op %u offset %llu bytes %u", rq->op, rq->offset,
		    rq->bytes);
	if (log_file) {
		fprintf(log_file, "%s %llu %u%s%s %u %llu\n", ops[rq->op], rq->offset, rq->bytes,
			rq->flags & DDRAID_FUA ? " fua" : "",
			rq->flags & DDRAID_UNMAP ? " unmap" : "", rq->tag, rq->pass);
		fflush(log_file);
	}
	maybe_die("taken");
	if (probe)
		probe_request(s);
	if (rq->op == DDRAID_WRITE)
		add_action(s, DDRAID_PULL, 0);
	else if (!hold)
		answer(s);
}

/* What has become of the actions. */
static void settle(struct ddraid_action *done, unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		struct slot *s = slots;

		while (!s->used || s->rq.pass != done[i].pass)
			s++;
		if (done[i].status)
			die("%s of tag %u: %s", done[i].what == DDRAID_PULL ? "pull" : "answer",
			    done[i].tag, strerror(-done[i].status));
		if (done[i].what == DDRAID_PULL) {
			maybe_die("pulled");
			if (!hold)
				answer(s);
			continue;
		}
		s->used = false;
		if (probe)
			expect("second answer", act(done[i]), -ESTALE);
	}
}

static unsigned int free_slots(void)
{
	unsigned int i, n = 0;

	for (i = 0; i < SLOTS; i++)
		n += !slots[i].used;
	return n;
}

/* Answers that another life of the server owed: each "tag pass" of the file. */
static void answer_stale(void)
{
	FILE *f = fopen(stale_path, "r");
	char line[256], *words[8];
	unsigned int n, tried = 0;

	if (!f)
		die("%s: %s", stale_path, strerror(errno));
	while (fgets(line, sizeof(line), f)) {
		for (n = 0, words[0] = strtok(line, " \n"); words[n] && n < 7;)
			words[++n] = strtok(NULL, " \n");
		if (n < 5)
			continue;
		struct ddraid_action a = {.tag = (uint32_t)strtoul(words[n - 2], NULL, 10),
					  .pass = strtoull(words[n - 1], NULL, 10),
					  .data = (uintptr_t)slots[0].data};
		expect("an earlier life's answer", act(a), -ESTALE);
		tried++;
	}
	fclose(f);
	printf("stale %u\n", tried);
	fflush(stdout);
}

static void serve_once(void)
{
	struct ddraid_action done[DDRAID_BATCH_MAX];
	struct ddraid_request got[SLOTS];
	unsigned int count = actions_count, got_count = 0, i;
	int err;

	for (i = 0; i < count; i++)
		done[i] = actions[reverse ? count - 1 - i : i];
	actions_count = 0;
	err = exchange(done, count, got, free_slots(), &got_count);
	if (err)
		die("EXCHANGE: %s", strerror(-err));
	settle(done, count);
	most_answers = count > most_answers ? count : most_answers;
	most_requests = got_count > most_requests ? got_count : most_requests;
	/* Again, now that the tags of these answers have been handed out anew. */
	if (stale_path && got_count) {
		answer_stale();
		stale_path = NULL;
	}
	for (i = 0; i < got_count; i++)
		take(&got[i]);
}

/* ---- sessions ---- */

static void uuid_from(uint8_t *uuid, const char *word)
{
	memset(uuid, atoi(word), DDRAID_UUID_BYTES);
}

static void attach(void)
{
	struct timespec pause = {.tv_nsec = 20000000};
	int tries;

	/* The one that was killed just now may not have ended yet. */
	for (tries = 0; ioctl(control, DDRAID_IOC_ATTACH, &is); tries++) {
		if (errno != EBUSY || tries == 500)
			die("ATTACH: %s", strerror(errno));
		nanosleep(&pause, NULL);
	}
	printf("attached ddraid%u waiting %u cookie %llu\n", is.index, is.waiting, is.cookie);
	fflush(stdout);
}

static void print_status(const char *word)
{
	struct ddraid_status st = {0};

	uuid_from(st.uuid, word);
	if (ioctl(control, DDRAID_IOC_STATUS, &st))
		die("STATUS: %s", strerror(errno));
	printf("name %s\nindex %u\nserved %d\nfailing %d\nopeners %u\nwaiting %u\nhanded %u\n",
	       st.name, st.index, !!(st.flags & DDRAID_SERVED), !!(st.flags & DDRAID_FAILING),
	       st.openers, st.waiting, st.handed);
	printf("away_ms %u\npid %d\nsize %llu\ncookie %llu\nrequests %llu\nrejected %llu\n",
	       st.away_ms, st.pid, st.size, st.cookie, st.requests, st.rejected);
}

static void on_signal(int number)
{
	got_signal = number;
}

/* true: it is over. */
static bool obey(int number)
{
	unsigned int i;

	got_signal = 0;
	switch (number) {
	case SIGTERM:
		printf("at once %u requests, %u answers\n", most_requests, most_answers);
		return true;
	case SIGUSR1:
		if (!ioctl(control, DDRAID_IOC_DETACH, NULL)) {
			puts("detached");
			return true;
		}
		puts(errno == EBUSY ? "busy" : strerror(errno));
		fflush(stdout);
		return false;
	case SIGUSR2:
		if (ioctl(control, DDRAID_IOC_REVOKE, NULL))
			die("REVOKE: %s", strerror(errno));
		puts("revoked");
		return true;
	case SIGHUP:
		hold = false;
		for (i = 0; i < SLOTS; i++)
			if (slots[i].used)
				answer(&slots[i]);
		return false;
	default:
		return false;
	}
}

static void prepare(void)
{
	static const int wanted[] = {SIGTERM, SIGUSR1, SIGUSR2, SIGHUP};
	struct sigaction sa = {.sa_handler = on_signal};
	size_t i;

	for (i = 0; i < SLOTS; i++) {
		slots[i].data = aligned_alloc(4096, DDRAID_IO_MAX);
		assert(slots[i].data);
		memset(slots[i].data, 0, DDRAID_IO_MAX);
	}
	/* What its disk has to write must not wait for memory that this would free. */
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		die("mlockall: %s", strerror(errno));
	if (prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0))
		die("PR_SET_IO_FLUSHER: %s", strerror(errno));
	for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		sigaction(wanted[i], &sa, NULL);
}

static void run(void)
{
	struct pollfd p = {.fd = control, .events = POLLIN};
	sigset_t blocked, open_mask;

	/* Only ppoll is interrupted. */
	sigfillset(&blocked);
	sigprocmask(SIG_BLOCK, &blocked, &open_mask);
	for (;;) {
		/* No time to wait if there are answers, and none for requests if there is no room.
		 */
		struct timespec now = {0};

		p.events = free_slots() ? POLLIN : 0;
		if (ppoll(&p, 1, actions_count ? &now : NULL, &open_mask) < 0 && errno != EINTR)
			die("poll: %s", strerror(errno));
		if (got_signal && !actions_count && obey(got_signal))
			return;
		serve_once();
	}
}

enum {
	O_UUID = 256,
	O_NAME,
	O_SIZE,
	O_FILE,
	O_AWAY,
	O_COOKIE,
	O_DEPTH,
	O_QUEUES,
	O_LOGICAL,
	O_PHYSICAL,
	O_IO_OPT,
	O_IO_MAX,
	O_ZEROES_MAX,
	O_READ_ONLY,
	O_FRESH,
	O_LOG,
	O_PROBE,
	O_HOLD,
	O_REVERSE,
	O_DELAY,
	O_DIE,
	O_DIE_WHEN,
	O_FAIL,
	O_STALE,
	O_STATUS,
};

static const struct option options[] = {
    {"uuid", 1, NULL, O_UUID},
    {"name", 1, NULL, O_NAME},
    {"size", 1, NULL, O_SIZE},
    {"file", 1, NULL, O_FILE},
    {"away-ms", 1, NULL, O_AWAY},
    {"cookie", 1, NULL, O_COOKIE},
    {"depth", 1, NULL, O_DEPTH},
    {"queues", 1, NULL, O_QUEUES},
    {"logical", 1, NULL, O_LOGICAL},
    {"physical", 1, NULL, O_PHYSICAL},
    {"io-opt", 1, NULL, O_IO_OPT},
    {"io-max", 1, NULL, O_IO_MAX},
    {"zeroes-max", 1, NULL, O_ZEROES_MAX},
    {"read-only", 0, NULL, O_READ_ONLY},
    {"fresh", 0, NULL, O_FRESH},
    {"log", 1, NULL, O_LOG},
    {"probe", 0, NULL, O_PROBE},
    {"hold", 0, NULL, O_HOLD},
    {"reverse", 0, NULL, O_REVERSE},
    {"delay-us", 1, NULL, O_DELAY},
    {"die-after", 1, NULL, O_DIE},
    {"die-when", 1, NULL, O_DIE_WHEN},
    {"fail-writes", 1, NULL, O_FAIL},
    {"stale", 1, NULL, O_STALE},
    {"status", 1, NULL, O_STATUS},
    {NULL, 0, NULL, 0},
};

int main(int argc, char **argv)
{
	uint32_t number;
	int o;

	control = open(DDRAID_CONTROL, O_RDWR | O_CLOEXEC);
	if (control < 0)
		die(DDRAID_CONTROL ": %s", strerror(errno));
	while ((o = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		number = optarg ? (uint32_t)strtoul(optarg, NULL, 10) : 0;
		switch (o) {
		case O_UUID:
			uuid_from(is.uuid, optarg);
			break;
		case O_NAME:
			snprintf(is.name, sizeof(is.name), "%s", optarg);
			break;
		case O_SIZE:
			is.size = strtoull(optarg, NULL, 10);
			break;
		case O_FILE:
			file = open(optarg, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
			if (file < 0)
				die("%s: %s", optarg, strerror(errno));
			break;
		case O_AWAY:
			is.away_ms = number;
			break;
		case O_COOKIE:
			is.cookie = number;
			break;
		case O_DEPTH:
			is.depth = number;
			break;
		case O_QUEUES:
			is.queues = number;
			break;
		case O_LOGICAL:
			is.logical_block = number;
			break;
		case O_PHYSICAL:
			is.physical_block = number;
			break;
		case O_IO_OPT:
			is.io_opt = number;
			break;
		case O_IO_MAX:
			is.io_max = number;
			break;
		case O_ZEROES_MAX:
			is.zeroes_max = number;
			break;
		case O_READ_ONLY:
			is.flags |= DDRAID_READ_ONLY;
			break;
		case O_FRESH:
			is.flags |= DDRAID_FRESH;
			break;
		case O_LOG:
			log_file = fopen(optarg, "w");
			if (!log_file)
				die("%s: %s", optarg, strerror(errno));
			break;
		case O_PROBE:
			probe = true;
			break;
		case O_HOLD:
			hold = true;
			break;
		case O_REVERSE:
			reverse = true;
			break;
		case O_DELAY:
			delay_us = atol(optarg);
			break;
		case O_DIE:
			die_after = atol(optarg);
			break;
		case O_DIE_WHEN:
			die_when = optarg;
			break;
		case O_FAIL:
			fail_errno = atol(optarg);
			break;
		case O_STALE:
			stale_path = optarg;
			break;
		case O_STATUS:
			print_status(optarg);
			return 0;
		default:
			return 2;
		}
	}
	if (optind != argc || file < 0)
		die("see the head of its source");
	prepare();
	attach();
	if (stale_path)
		answer_stale();
	run();
	return 0;
}
