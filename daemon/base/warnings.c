// SPDX-License-Identifier: GPL-2.0-or-later
/* See warnings.h. */
#include "daemon/base/warnings.h"

#include <stdarg.h>
#include <stdio.h>

#include "daemon/base/log.h"

static char warnings[WARNINGS_MAX][512];
static uint32_t count;

void warnings_add(const char *format, ...)
{
	va_list ap;

	if (count == WARNINGS_MAX)
		return;
	va_start(ap, format);
	vsnprintf(warnings[count], sizeof(warnings[0]), format, ap);
	va_end(ap);
	say(LOG_WARNING, "%s", warnings[count]);
	count++;
}

const char *warnings_get(uint32_t i)
{
	return i < count ? warnings[i] : NULL;
}
