/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The data plane's memory, and its beginning anew with each incarnation. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/data/data.h"

static void data_setup(struct data *d)
{
	list_init(&d->member_io_free);
	list_init(&d->member_io_held);
	list_init(&d->member_io_gone);
	list_init(&d->regions);
	list_init(&d->locks);
	list_init(&d->locks_early);
	list_init(&d->locks_busy);
	list_init(&d->pages_due);
	list_init(&d->front_requests);
	list_init(&d->ops);
	list_init(&d->front_requests_kept);
	list_init(&d->ops_kept);
	list_init(&d->retry);
	list_init(&d->job_wait);
	list_init(&d->decoding);
	for (uint32_t i = 0; i < MEMBER_IO_MAX; i++)
		list_add_tail(&d->member_io_free, &d->member_io[i].link);
	d->member_io_free_count = MEMBER_IO_MAX;
}

int data_new(struct engine *e)
{
	struct data *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->member_io = calloc(MEMBER_IO_MAX, sizeof(*d->member_io));
	if (!d->member_io || htable_init(&d->region_of) || htable_init(&d->lock_of)) {
		htable_free(&d->region_of);
		free(d->member_io);
		free(d);
		return -ENOMEM;
	}
	data_setup(d);
	e->d = d;
	return 0;
}

void data_free(struct engine *e)
{
	if (!e->d)
		return;
	free(e->d->member_io);
	htable_free(&e->d->region_of);
	htable_free(&e->d->lock_of);
	free(e->d);
}

void data_clear(struct engine *e)
{
	io_free_all(e); /* before the regions, whose lists the ops are in */
	regions_drop_all(e);
	dlog_reset(e);
}

void data_restart(struct engine *e)
{
	struct data *d = e->d;
	struct member_io *member_io = d->member_io;
	struct htable region_of = d->region_of, lock_of = d->lock_of;

	memset(d, 0, sizeof(*d));
	d->member_io = member_io;
	d->region_of = region_of;
	d->lock_of = lock_of;
	data_setup(d);
}
