// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The registry of lock managers: each source that has LOCK_REGISTER adds itself before main.
 * The runtime looks them up by name. Nothing here changes after that.
 */
#include <assert.h>
#include <string.h>

#include "daemon/ports/lock.h"

static struct lock_ops *types;

void lock_register(struct lock_ops *ops)
{
	assert(!lock_manager_find(ops->name));
	assert(ops->open && ops->request && ops->release && ops->close);
	ops->next = types;
	types = ops;
}

const struct lock_ops *lock_manager_find(const char *name)
{
	for (const struct lock_ops *o = types; o; o = o->next) {
		if (strcmp(o->name, name) == 0)
			return o;
	}
	return NULL;
}

void lock_managers_ending(void)
{
	for (const struct lock_ops *o = types; o; o = o->next) {
		if (o->ending)
			o->ending();
	}
}

void lock_managers_settle(uint32_t ms)
{
	for (const struct lock_ops *o = types; o; o = o->next) {
		if (o->settle)
			o->settle(ms);
	}
}
