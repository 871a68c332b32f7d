/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Progress for people and for logs: on a terminal one line that is redrawn, elsewhere a line at the
 * start, every LINE_S seconds, and when what goes on changes. The rate comes from the daemon; if it
 * does not know one yet, it is measured here since the first report.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/units.h"
#include "tools/ctl/ctl.h"

#define LINE_S 5
#define LINE_BYTES 512

#define TEXT_BYTES 96

static struct {
	bool drawn;            /* a line on the terminal is not ended */
	char text[TEXT_BYTES]; /* of the last report */
	char waits[TEXT_BYTES];
	time_t said_s;  /* not a terminal: when a line was last printed */
	time_t first_s; /* first report of this text */
	uint64_t first_done;
} shown;

static time_t now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

static uint64_t rate_of(const Ddraid__Ctl__Progress *p)
{
	uint64_t seconds = (uint64_t)(now_s() - shown.first_s);

	if (p->rate || !seconds || p->done < shown.first_done)
		return p->rate;
	return (p->done - shown.first_done) / seconds;
}

/* Appends, as far as there is room. */
__attribute__((format(printf, 2, 3))) static void add(char line[LINE_BYTES], const char *format,
						      ...)
{
	size_t have = strlen(line);
	va_list ap;

	va_start(ap, format);
	vsnprintf(line + have, LINE_BYTES - have, format, ap);
	va_end(ap);
}

/* "43.2 %, 1.2 GiB of 2.9 GiB, 110 MiB/s, 16 s left", or the unit's name instead of bytes. */
static void add_amount(char line[LINE_BYTES], const Ddraid__Ctl__Progress *p)
{
	char one[UNITS_TEXT_BYTES], two[UNITS_TEXT_BYTES];
	double percent = 100.0 * (double)p->done / (double)p->total;
	uint64_t rate = rate_of(p), bytes;
	bool data = p->unit_bytes && p->done <= p->total &&
		    !__builtin_mul_overflow(p->total, p->unit_bytes, &bytes);

	add(line, ": %.1f %%, ", percent < 100 ? percent : 100);
	if (data)
		add(line, "%s of %s", size_format(one, p->done * p->unit_bytes),
		    size_format(two, bytes));
	else
		add(line, "%" PRIu64 " of %" PRIu64 " %s", p->done, p->total, p->unit);
	if (!rate)
		return;
	if (data && !__builtin_mul_overflow(rate, p->unit_bytes, &bytes))
		add(line, ", %s/s", size_format(one, bytes));
	else
		add(line, ", %" PRIu64 " %s/s", rate, p->unit);
	if (p->done < p->total && (p->total - p->done) / rate < UINT64_MAX / 1000)
		add(line, ", %s left", time_format(one, (p->total - p->done) / rate * 1000));
}

static void line_make(char line[LINE_BYTES], const Ddraid__Ctl__Progress *p)
{
	char raw[LINE_BYTES] = "", text[UNITS_TEXT_BYTES];

	add(raw, "%s", p->text);
	if (p->total)
		add_amount(raw, p);
	if (p->waits && p->waits[0]) {
		add(raw, strcmp(p->text, PROGRESS_REFUSED) ? ", waits for %s" : ": %s", p->waits);
		if (p->waits_node)
			add(raw, " (node %u)", p->waits_node);
		add(raw, ", %s", time_format(text, p->waits_ms));
	}
	text_clean(line, LINE_BYTES, raw);
}

/* True if something else goes on than in the last report. */
static bool is_news(const Ddraid__Ctl__Progress *p, time_t now)
{
	bool text = !shown.first_s || strncmp(shown.text, p->text, TEXT_BYTES - 1);
	bool waits = strncmp(shown.waits, p->waits, TEXT_BYTES - 1);

	snprintf(shown.text, TEXT_BYTES, "%s", p->text);
	snprintf(shown.waits, TEXT_BYTES, "%s", p->waits);
	if (text) {
		shown.first_s = now;
		shown.first_done = p->done;
	}
	return text || waits;
}

void progress_show(const Ddraid__Ctl__Progress *p)
{
	bool tty = isatty(STDERR_FILENO), drawn = shown.drawn;
	char line[LINE_BYTES];
	time_t now = now_s();
	bool news = is_news(p, now);

	if (!tty && !news && now < shown.said_s + LINE_S)
		return;
	line_make(line, p);
	shown.said_s = now;
	shown.drawn = tty;
	if (tty)
		fprintf(stderr, "%s\r\033[K%s", news && drawn ? "\n" : "", line);
	else
		fprintf(stderr, "%s\n", line);
	fflush(stderr);
}

void progress_end(void)
{
	if (shown.drawn)
		putc('\n', stderr);
	memset(&shown, 0, sizeof(shown));
}
