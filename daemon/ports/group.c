// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The registry of group adapters: each source that has GROUP_REGISTER adds itself before main.
 * Nothing here changes after that.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "daemon/ports/group.h"

static struct group_ops *all;

static const struct group_ops *find(const char *name)
{
	for (const struct group_ops *o = all; o; o = o->next) {
		if (strcmp(o->name, name) == 0)
			return o;
	}
	return NULL;
}

void group_register(struct group_ops *ops)
{
	assert(!find(ops->name));
	assert(ops->open && ops->join && ops->send && ops->leave && ops->close && ops->stats);
	ops->next = all;
	all = ops;
}

int group_open(const char *adapter, const struct group_cfg *cfg, struct group **out)
{
	const struct group_ops *ops = find(adapter);

	return ops ? ops->open(cfg, out) : -ENOENT;
}
