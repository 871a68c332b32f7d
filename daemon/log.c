// SPDX-License-Identifier: GPL-2.0-or-later
/* The log; see log.h. libqb keeps call sites by file and line: ours is always this one. */
#include <pthread.h>
#include <qb/qblog.h>
#include <stdarg.h>
#include <stdio.h>

#include "daemon/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int target = QB_LOG_STDERR;

void log_open(const char *name, int level, int to_stderr)
{
	qb_log_init(name, LOG_DAEMON, LOG_EMERG);
	target = to_stderr ? QB_LOG_STDERR : QB_LOG_SYSLOG;
	qb_log_ctl(QB_LOG_SYSLOG, QB_LOG_CONF_ENABLED, !to_stderr);
	qb_log_ctl(QB_LOG_STDERR, QB_LOG_CONF_ENABLED, to_stderr);
	qb_log_filter_ctl(QB_LOG_SYSLOG, QB_LOG_FILTER_CLEAR_ALL, QB_LOG_FILTER_FILE, "*",
			  LOG_TRACE);
	qb_log_filter_ctl(target, QB_LOG_FILTER_ADD, QB_LOG_FILTER_FILE, "*", (uint8_t)level);
	qb_log_format_set(target, to_stderr ? "%t %p %b" : "%b");
}

void log_threaded(void)
{
	qb_log_ctl(target, QB_LOG_CONF_THREADED, QB_TRUE);
	qb_log_thread_start();
}

void log_close(void)
{
	qb_log_fini();
}

void say(int priority, const char *format, ...)
{
	char text[LOG_TEXT_BYTES];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	/* What others told may be in it: they must not write lines of their own. */
	for (char *c = text; *c; c++) {
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	}
	pthread_mutex_lock(&lock);
	qb_log_from_external_source(__func__, __FILE__, "%s", (uint8_t)priority, __LINE__, 0, text);
	pthread_mutex_unlock(&lock);
}
