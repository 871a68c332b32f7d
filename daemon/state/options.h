/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What can be set for one array: at `create`, with `ddraidctl set`, in its file in the state
 * directory. They are the same on all nodes. Of an array that runs, a new value counts at once, but
 * for force_members and listen: members were taken and addresses bound when it started, and it
 * looks at neither again. Those count from its next start.
 */
#ifndef DDRAID_STATE_OPTIONS_H
#define DDRAID_STATE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/engine.h"

#define OPTION_VALUE_BYTES 192
#define OPTION_LISTEN_MAX 3 /* addresses beside the socket in the run directory */
#define OPTION_LISTEN_BYTES 64
#define OPTION_WHY_BYTES 320

struct options {
	uint32_t release_delay_ms;
	uint32_t member_retry_ms;
	uint32_t checkpoint_regions;
	uint32_t eio_when_lost;
	uint32_t mark_ahead;
	uint32_t force_members; /* members without FLUSH and FUA, or MULTI_CONN, are taken */
	uint32_t dlm;           /* the lock manager: the kernel's DLM, else the group's leader */
	char listen[OPTION_LISTEN_MAX][OPTION_LISTEN_BYTES];
};

void options_init(struct options *o);
/* 0, or -EINVAL and a sentence with the remedy. */
int options_set(struct options *o, const char *key, const char *value, char why[OPTION_WHY_BYTES]);
/* The i-th option as text; NULL: there are no more. *help (if not NULL) gets a static sentence. */
const char *options_get(const struct options *o, uint32_t i, char value[OPTION_VALUE_BYTES],
			const char **help);
void options_apply(const struct options *o, struct tunables *t);
/* Does a new value of the i-th option count at once? */
bool options_live(uint32_t i);
/* Takes those over. */
void options_tune(struct options *o, const struct options *from);

#endif
