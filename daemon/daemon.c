// SPDX-License-Identifier: GPL-2.0-or-later
/* The daemon's parts, in the order in which they start and end. */
#include <stdarg.h>
#include <stdio.h>

#include "daemon/daemon.h"
#include "daemon/log.h"

static char warnings[DAEMON_WARNINGS][512];
static uint32_t warning_count;

void daemon_warn(const char *format, ...)
{
	va_list ap;

	if (warning_count == DAEMON_WARNINGS)
		return;
	va_start(ap, format);
	vsnprintf(warnings[warning_count], sizeof(warnings[0]), format, ap);
	va_end(ap);
	say(LOG_WARNING, "%s", warnings[warning_count]);
	warning_count++;
}

const char *daemon_warning(uint32_t i)
{
	return i < warning_count ? warnings[i] : NULL;
}

int daemon_start(const struct daemon_env *env, char why[STORE_WHY_BYTES])
{
	return manager_open(env->conf, env->main, env->worker, NULL, why);
}

void daemon_stop(void (*done)(void))
{
	manager_stop_all(done);
}

void daemon_end(void)
{
}
