// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Does this node's last incarnation in the array live yet? Its record names it, and a record can be
 * copied: to another machine, with the state directory, or to a second daemon on this one. The
 * fence of that incarnation would hit who serves. So before a command fences it:
 *
 * Its process, which the record names, is looked for, if it is one of this machine since that was
 * started last. Of any other the members tell: they are read for longer than an incarnation needs
 * to renew its use block (core/cluster/use.c). In a cluster other nodes write there as well, so the
 * members are read so often that each one's block is seen.
 *
 * What can't be read says nothing: a node whose members are all away is fenced as before. A policy
 * that cuts nothing off (none, zombie_timeout) needs none of this: who serves goes on, and the
 * engine finds it before it writes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/format/useblock.h"
#include "daemon/runtime/array_int.h"
#include "daemon/runtime/process.h"

#define LOOK_MS 20u      /* between two reads of a member */
#define RENEWALS 3u      /* an incarnation that lives renews in a third of this time */
#define CONNECT_MS 2000u /* for what is not connected by then nobody waits */
#define ALIGNMENT 4096u  /* of O_DIRECT, at most */

struct alive_dev {
	struct array *a;
	struct member *m;
	bool open, up, busy, met;
	uint64_t seq; /* of the last block of that incarnation's, if met */
	struct member_req req;
	struct iovec iov;
	struct useblock last;
	uint8_t (*buf)[DDR_BLOCK_BYTES];
};

struct alive {
	struct alive_dev dev[DDR_MAX_DEVS];
	uint32_t open;
	uint64_t connect_us, look_us, until_us;
	struct loop_timer timer;
	bool all, over, lives;
	char who[USE_NAME_BYTES];
};

/* All is closed. */
static void alive_end(struct array *a)
{
	struct alive *w = a->alive;
	bool lives = w->lives;
	char who[USE_NAME_BYTES];

	memcpy(who, w->who, sizeof(who));
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		free(w->dev[i].buf);
	free(w);
	a->alive = NULL;
	if (a->phase == ARRAY_PHASE_CLOSE)
		array_close_check(a);
	else
		life_watched(a, lives ? who : NULL);
}

static void alive_over(struct array *a)
{
	struct alive *w = a->alive;

	if (w->over)
		return;
	w->over = true;
	loop_timer_clear(a->loop, &w->timer);
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (w->dev[i].open)
			member_close(w->dev[i].m);
	if (!w->open) /* from a timer or a task, so nothing of the caller's is in use */
		alive_end(a);
}

static void dev_up(void *arg, const struct member_info *info)
{
	struct alive_dev *d = arg;

	d->up = info->size_bytes >= USE_OFFSET + DDR_BLOCK_BYTES;
}

static void dev_down(void *arg, int err, const char *why)
{
	struct alive_dev *d = arg;

	(void)err;
	(void)why;
	d->up = false;
}

/* True: that incarnation has written since. */
static bool shows(struct alive_dev *d)
{
	struct useblock u;
	bool before = d->met;
	uint64_t seq = d->seq;

	if (useblock_decode(&u, *d->buf) || memcmp(u.array_uuid, d->a->live.uuid, DDR_UUID_BYTES) ||
	    !u.claim || u.inc != d->a->rec.inc)
		return false;
	d->met = true;
	d->seq = u.seq;
	d->last = u;
	return before && u.seq != seq;
}

static void dev_read_done(void *arg, struct member_req *req, int err)
{
	struct alive_dev *d = arg;
	struct alive *w = d->a->alive;

	(void)req;
	d->busy = false;
	if (err || w->over || !shows(d))
		return;
	w->lives = true;
	useblock_name(&d->last, w->who);
}

static void dev_closed(void *arg)
{
	struct alive_dev *d = arg;

	d->open = false;
	if (!--d->a->alive->open && d->a->alive->over)
		alive_end(d->a);
}

static const struct member_cb callbacks = {
    .up = dev_up, .down = dev_down, .done = dev_read_done, .closed = dev_closed};

static void dev_read(struct alive_dev *d)
{
	d->busy = true;
	d->iov = (struct iovec){d->buf, DDR_BLOCK_BYTES};
	d->req = (struct member_req){.op = DEV_READ,
				     .offset_bytes = USE_OFFSET,
				     .bytes = DDR_BLOCK_BYTES,
				     .iov = &d->iov,
				     .iov_count = 1};
	member_submit(d->m, &d->req);
}

static bool all_up(const struct array *a)
{
	for (uint32_t i = 0; i < a->live.count; i++)
		if (!a->alive->dev[i].up)
			return false;
	return true;
}

static void alive_look(void *arg)
{
	struct array *a = arg;
	struct alive *w = a->alive;
	uint64_t now = loop_now_us(a->loop);

	if (w->lives || now >= w->until_us) {
		alive_over(a);
		return;
	}
	if (!w->all) {
		w->all = now >= w->connect_us || all_up(a);
		w->until_us = now + w->look_us;
	}
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (w->dev[i].up && !w->dev[i].busy)
			dev_read(&w->dev[i]);
	loop_timer_set(a->loop, &w->timer, now + LOOK_MS * 1000ull);
}

static void dev_watch(struct array *a, struct alive_dev *d, const char *uri)
{
	struct member_cfg cfg;
	const char *why;

	d->a = a;
	d->buf = aligned_alloc(ALIGNMENT, ALIGNMENT);
	if (!d->buf)
		return;
	dev_cfg_fill(a, &cfg);
	cfg.read_only = true;
	if (member_open(uri, a->loop, &cfg, &callbacks, d, &d->m, &why))
		return;
	d->open = true;
	a->alive->open++;
}

/* Of this machine, since it was started last. */
static bool is_here(const struct use_process *p, const struct use_process *own)
{
	return p->pid && p->pid_space == own->pid_space &&
	       !memcmp(p->boot, own->boot, USE_BOOT_BYTES);
}

void alive_watch(struct array *a)
{
	const struct use_process *p = &a->rec.process;
	struct use_process own;
	struct engine_cfg cfg;
	struct alive *w;
	char who[64];

	process_self(&own);
	if (a->env.conf->fence != FENCE_COMMAND ||
	    (is_here(p, &own) &&
	     ((p->pid == own.pid && p->start == own.start) || process_ended(p)))) {
		life_watched(a, NULL);
		return;
	}
	if (is_here(p, &own)) {
		snprintf(who, sizeof(who), "process %u of this machine", p->pid);
		life_watched(a, who);
		return;
	}
	w = a->alive = calloc(1, sizeof(*w));
	if (!w) {
		life_watched(a, NULL);
		return;
	}
	w->timer = (struct loop_timer){.fired = alive_look, .arg = a};
	engine_cfg_init(&cfg);
	w->look_us = RENEWALS * 1000ull * cfg.tun.renew_ms;
	w->connect_us = loop_now_us(a->loop) + CONNECT_MS * 1000ull;
	w->until_us = UINT64_MAX;
	for (uint32_t i = 0; i < a->live.count; i++)
		dev_watch(a, &w->dev[i], a->live.uri[i]);
	loop_timer_set(a->loop, &w->timer, loop_now_us(a->loop));
}

void alive_close(struct array *a)
{
	if (a->alive)
		alive_over(a);
}
