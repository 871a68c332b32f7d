// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The registry of front-ends: each source that has FRONT_REGISTER adds itself before main.
 * The runtime looks them up by the name in the configuration. Nothing here changes after that.
 */
#include <assert.h>
#include <string.h>

#include "daemon/ports/front.h"

static struct front_ops *types;

void front_register(struct front_ops *ops)
{
	assert(!front_find(ops->name));
	assert(ops->open && ops->serve && ops->complete && ops->reset && ops->hold);
	assert(ops->close && ops->stats);
	ops->next = types;
	types = ops;
}

const struct front_ops *front_find(const char *name)
{
	for (const struct front_ops *o = types; o; o = o->next) {
		if (strcmp(o->name, name) == 0)
			return o;
	}
	return NULL;
}
