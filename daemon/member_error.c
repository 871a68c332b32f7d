// SPDX-License-Identifier: GPL-2.0-or-later
/* What a member answered, in words: for the log and for the status. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/array.h"

/* "write at byte 4096 failed: No space left on device" */
void member_error_words(char *text, size_t bytes, const struct member_error *x)
{
	static const char *const op[] = {"read", "write", "flush", "write of zeroes"};

	if (x->op == DEV_FLUSH)
		snprintf(text, bytes, "flush failed: %s", strerror(-x->err));
	else
		snprintf(text, bytes, "%s%s at byte %" PRIu64 " failed: %s",
			 x->fua ? "durable " : "", op[x->op], x->offset, strerror(-x->err));
}
