// SPDX-License-Identifier: GPL-2.0-or-later
/* What a member answered, and why its state has changed, in words: for the log and for the status.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/runtime/array.h"

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

/* "its connection broke off, on node 2"; "" if it is not known */
void member_cause_words(char *text, size_t bytes, const struct member_cause *c, uint32_t self)
{
	static const char *const why[WHY_COUNT] = {
	    [WHY_BROKE_OFF] = "its connection broke off",
	    [WHY_ERROR_EARLIER] = "a flush failed in an earlier incarnation of ddraidd",
	    [WHY_SHRANK] = "its device is smaller than the array needs, or was",
	    [WHY_OLDER] = "it is an older copy of itself",
	    [WHY_ABSENT] = "it was absent when the array was assembled",
	    [WHY_STALE] =
		"when the array was assembled it was older than the others, or of another "
		"history",
	    [WHY_AWAY] = "it was not back within member_retry",
	    [WHY_OPERATOR] = "an operator said so",
	    [WHY_BACK] = "it is back",
	    [WHY_REBUILT] = "its rebuild is through"};
	size_t at;

	text[0] = '\0';
	if (c->why == WHY_ERROR)
		member_error_words(text, bytes, &c->error);
	else if (c->why)
		snprintf(text, bytes, "%s", why[c->why]);
	at = strlen(text);
	if (at && c->node && c->node != self)
		snprintf(text + at, bytes - at, ", on node %u", c->node);
}
