// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Why an array does not do what was asked of it: one sentence for a person, with the members that
 * this node does not reach, since an array that is refused or waits mostly lacks one of them.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/ctl/ctl.h"

#define MEMBERS_TOLD 3u

/* What it has for that member, or NULL. */
static const struct array_dev_status *dev_of(const struct array_status *st, uint32_t member,
					     const char *uri)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		const struct array_dev_status *d = &st->dev[i];

		if (d->used && (d->member == member || (d->member == 0xff && !strcmp(d->uri, uri))))
			return d;
	}
	return NULL;
}

static size_t add(char *text, size_t at, const char *before, const char *what)
{
	int n =
	    at < WHY_NOT_BYTES ? snprintf(text + at, WHY_NOT_BYTES - at, "%s%s", before, what) : 0;

	return at + (n > 0 ? (size_t)n : 0);
}

void why_members(const struct array_entry *k, const struct array_status *st,
		 char text[WHY_NOT_BYTES])
{
	uint32_t told = 0, more = 0;
	size_t at = strlen(text);
	char one[sizeof(st->dev[0].why) + 32];

	for (uint32_t i = 0; i < k->desc.count; i++) {
		const struct array_dev_status *d = dev_of(st, i, k->desc.uri[i]);

		if (d && d->up)
			continue;
		if (told == MEMBERS_TOLD) {
			more++;
			continue;
		}
		snprintf(one, sizeof(one), "member %u (%.240s)", i,
			 d && d->why[0] ? d->why : k->desc.uri[i]);
		at = add(text, at, told++ ? ", " : "; this node does not reach ", one);
	}
	if (!more)
		return;
	snprintf(one, sizeof(one), " and %u more", more);
	add(text, at, "", one);
}

/* What a status has as what it waits for, or "". */
static void waits(const struct array_entry *k, const struct array_status *st,
		  char text[WHY_NOT_BYTES])
{
	Ddraid__Ctl__Progress p;

	status_progress(&p, k, st);
	if (p.waits[0] && p.waits_node)
		snprintf(text, WHY_NOT_BYTES, "%s, node %u", p.waits, p.waits_node);
	else
		snprintf(text, WHY_NOT_BYTES, "%s", p.waits);
}

void why_not(const struct array_entry *k, const struct array_status *st, char text[WHY_NOT_BYTES])
{
	char what[WHY_NOT_BYTES] = "";
	size_t at = 0;

	text[0] = '\0';
	if (!st) {
		if (k->error[0])
			add(text, 0, "does not run here: ", k->error);
		else
			add(text, 0, "does not run here; start it first", "");
		return;
	}
	waits(k, st, what);
	if (st->phase >= ARRAY_PHASE_STOP)
		add(text, 0, "stops here just now; start it again", "");
	else if (status_refused(k, st))
		at = add(text, 0, "is refused: ", what);
	else
		at = add(text, 0, "is not active here yet",
			 what[0] ? ": it waits for " : "; try again");
	if (at && what[0] && !status_refused(k, st))
		add(text, at, what, "");
	if (st->phase == ARRAY_PHASE_RUN)
		why_members(k, st, text);
}
