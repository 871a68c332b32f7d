// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The log; see log.h. Lines are collected in one of two batches while the writer writes the other
 * one, without a lock: whoever reads the log may stand still in the middle of it. What finds no
 * room meanwhile is counted. libqb only brings its own lines and those of corosync's libraries: its
 * thread would hold a lock that all callers spin for while it writes.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <qb/qblog.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/base/thread.h"

#define BATCH_BYTES (128u << 10)
#define WRITER_STACK_BYTES (256u << 10)
#define CLOSE_S 1 /* how long the end waits for whoever reads the log */

struct line {
	time_t when;
	int priority;
	size_t bytes; /* of the line in the batch */
	char text[];
};

struct batch {
	size_t bytes;
	uint64_t lost; /* lines that came after these */
	_Alignas(struct line) char lines[BATCH_BYTES];
};

static _Atomic int least = -1;    /* the least important priority that is written */
static int libqb = -1;            /* its target */
static int to_stderr, to_journal; /* the second: and journald reads it */

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* of what follows; not held over a write */
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER, written = PTHREAD_COND_INITIALIZER;
static struct batch batches[2], *filling = &batches[0];
static int threaded, writing;

/* ---- the writer ----------------------------------------------------------------------------- */

static void write_all(const char *at, size_t bytes)
{
	while (bytes) {
		ssize_t n = write(STDERR_FILENO, at, bytes);

		if (n >= 0) {
			at += n;
			bytes -= (size_t)n;
		} else if (errno == EAGAIN) { /* who gave us the pipe may have wished so */
			poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, -1);
		} else if (errno != EINTR) {
			return;
		}
	}
}

static void write_line(time_t when, int priority, const char *text)
{
	static const char *const names[] = {"emerg",   "alert",  "crit", "error",
					    "warning", "notice", "info", "debug"};
	char out[LOG_TEXT_BYTES + 64];
	struct tm tm;
	size_t n;

	if (!to_stderr) {
		syslog(priority, "%s", text);
		return;
	}
	if (to_journal) { /* it has the time, and takes the priority from there: sd-daemon(3) */
		n = (size_t)snprintf(out, sizeof(out), "<%d>%s\n", priority, text);
		write_all(out, n);
		return;
	}
	localtime_r(&when, &tm);
	n = strftime(out, sizeof(out), "%b %d %T ", &tm);
	n += (size_t)snprintf(out + n, sizeof(out) - n, "%s %s\n", names[priority], text);
	write_all(out, n);
}

static void write_batch(const struct batch *b)
{
	char text[LOG_TEXT_BYTES];
	const struct line *line;

	for (size_t at = 0; at < b->bytes; at += line->bytes) {
		line = (const struct line *)(const void *)(b->lines + at);
		write_line(line->when, line->priority, line->text);
	}
	if (!b->lost)
		return;
	snprintf(text, sizeof(text), "%llu lines of the log were lost: its reader stood still",
		 (unsigned long long)b->lost);
	write_line(time(NULL), LOG_WARNING, text);
}

static void *writer_main(void *arg)
{
	pthread_mutex_lock(&lock);
	for (;;) {
		struct batch *b = filling;

		if (!b->bytes) {
			pthread_cond_wait(&filled, &lock);
			continue;
		}
		filling = b == &batches[0] ? &batches[1] : &batches[0];
		writing = 1;
		pthread_mutex_unlock(&lock);
		write_batch(b);
		pthread_mutex_lock(&lock);
		b->bytes = b->lost = 0;
		writing = 0;
		pthread_cond_broadcast(&written);
	}
	return arg;
}

/* ---- lines come ----------------------------------------------------------------------------- */

static void put(int priority, const char *text)
{
	const size_t align = _Alignof(struct line), text_bytes = strlen(text) + 1;
	const size_t bytes = (sizeof(struct line) + text_bytes + align - 1) / align * align;
	struct batch *b;

	pthread_mutex_lock(&lock);
	if (!threaded) {
		pthread_mutex_unlock(&lock);
		write_line(time(NULL), priority, text);
		return;
	}
	b = filling;
	/* After a line that was lost there is none: so it is known where they are missing. */
	if (b->lost || bytes > sizeof(b->lines) - b->bytes) {
		b->lost++;
	} else {
		struct line *line = (struct line *)(void *)(b->lines + b->bytes);

		line->when = time(NULL);
		line->priority = priority;
		line->bytes = bytes;
		memcpy(line->text, text, text_bytes);
		b->bytes += bytes;
		pthread_cond_signal(&filled);
	}
	pthread_mutex_unlock(&lock);
}

static void from_libqb(int32_t target, struct qb_log_callsite *cs, struct timespec *when,
		       const char *text)
{
	(void)target;
	(void)when;
	if (cs->priority <= least)
		put(cs->priority, text);
}

void say(int priority, const char *format, ...)
{
	char text[LOG_TEXT_BYTES];
	va_list ap;

	if (priority > least)
		return;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	/* What others told may be in it: they must not write lines of their own. */
	for (char *c = text; *c; c++) {
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	}
	put(priority, text);
}

uint64_t log_lost(void)
{
	uint64_t lost;

	pthread_mutex_lock(&lock);
	lost = batches[0].lost + batches[1].lost;
	pthread_mutex_unlock(&lock);
	return lost;
}

/* ---- begin and end -------------------------------------------------------------------------- */

/* systemd says so, and whoever else has opened standard error since has another file there. */
static int stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	return stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 &&
	       !fstat(STDERR_FILENO, &st) && st.st_dev == dev && st.st_ino == ino;
}

void log_level(int level)
{
	least = level;
	if (libqb < 0)
		return;
	qb_log_filter_ctl(libqb, QB_LOG_FILTER_CLEAR_ALL, QB_LOG_FILTER_FILE, "*", LOG_DEBUG);
	qb_log_filter_ctl(libqb, QB_LOG_FILTER_ADD, QB_LOG_FILTER_FILE, "*", (uint8_t)level);
}

bool log_debugs(void)
{
	return least >= LOG_DEBUG;
}

void log_open(const char *name, int level, int foreground)
{
	to_stderr = foreground;
	to_journal = foreground && stderr_is_journal();
	qb_log_init(name, LOG_DAEMON, LOG_EMERG);
	qb_log_ctl(QB_LOG_SYSLOG, QB_LOG_CONF_ENABLED, QB_FALSE);
	libqb = qb_log_custom_open(from_libqb, NULL, NULL, NULL);
	log_level(level);
	if (libqb >= 0) {
		qb_log_format_set(libqb, "%b");
		qb_log_ctl(libqb, QB_LOG_CONF_ENABLED, QB_TRUE);
	}
	if (!foreground)
		openlog(name, LOG_PID, LOG_DAEMON);
}

void log_threaded(void)
{
	threaded = !thread_start(NULL, WRITER_STACK_BYTES, writer_main, NULL);
}

/*
 * The writer is not joined, and neither closelog() nor qb_log_fini() called: it may stand in
 * write() or, with the C library's lock, in syslog().
 */
void log_close(void)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += CLOSE_S;
	pthread_mutex_lock(&lock);
	while ((writing || filling->bytes) &&
	       !pthread_cond_clockwait(&written, &lock, CLOCK_MONOTONIC, &until))
		;
	pthread_mutex_unlock(&lock);
}
