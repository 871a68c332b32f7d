/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sentences of refusal. See why.h. */
#include "daemon/core/format/why.h"

#include <stdarg.h>
#include <stdio.h>

int format_refuse(char *why, int err, const char *format, ...)
{
	va_list ap;

	if (!why)
		return err;
	va_start(ap, format);
	vsnprintf(why, FORMAT_WHY_BYTES, format, ap);
	va_end(ap);
	return err;
}
