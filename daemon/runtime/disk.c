// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The array as a block device of this node: a second front-end, by the driver that `attach`
 * named. It is there as long as live.attach says so and the engine serves:
 *
 *	no driver -> loading (the worker) -> front-end open, shut -> served: the device is there
 *
 * What goes wrong is tried again, but for the first time after `attach`, whose asker gets the
 * answer.
 *
 * Whose opens go on (R6). A device outlives the daemon; its consumer waits. The next incarnation
 * may take over what waits only if no node can have taken this one for removed meanwhile, for
 * then the consumer may run elsewhere by now. It may, if all of this is so:
 *
 * - The device has the name that the note has (front_export.token): a random one, of the
 *   incarnation that made it. The note of it, NAME.takeover in the run directory, is written by
 *   whoever serves.
 * - The ring is the one of the note: corosync has installed no other membership since the last
 *   incarnation was, by the note, one of those who serve in it. So nobody was in a quorate view
 *   without this node.
 * - The last incarnation ended cleanly: it left, and was not missed. Or the newest epoch that this
 *   incarnation finds committed is one that the earlier incarnations acknowledged: the others fence
 *   a departed incarnation and then commit an epoch, before they grant anything (leader.c). So they
 *   waited all the time. What a full fence after restart_wait comes to is such an epoch.
 * - It has not been alone for as long as --away, by the kernel's NBD client. That fails what finds
 *   no connection for so long, and keeps what had been sent on the last one, to send it again: the
 *   consumer has an error, may go on by another node, and what it wrote before would be written
 *   after that. So all of it fails. The note says when there was a connection last. Our own driver
 *   fails both (away_ms, below).
 *
 * The ring and the time are compared when the device is served. The epoch is judged by each
 * proposal up to the first map that an incarnation goes by, before anything that it acknowledges
 * itself can be on disk; a judgement against it removes the note, so that it holds for all later
 * incarnations as well. One that can't know ends what was open.
 *
 * What EIO means while no daemon serves (live.away_ms). The driver fails what waits, which is what
 * no daemon was given and what a dead one was and has not answered. It is safe as soon as all other
 * nodes know that the daemon is gone, or do no I/O since they hear nothing (config_heard_ms): a
 * consumer that has given up this node may go on by another, which must not answer what a late
 * write would come over. So no shorter time is set, and a daemon that has just come up ends nothing
 * that is open by force before (attach_discard). Then:
 *
 * - A write that failed so is old, new, or some of both by sector, as after any EIO: the dead
 *   daemon may have sent some of it. No parity is wrong for good by that: before it sent the first
 *   byte its mark of the region was durable, and whoever recovers the slot makes the parity true.
 * - No later daemon writes it: a request that the driver has failed is not handed out again. So it
 *   can't land on top of what the consumer writes there next, on this node or, having given up this
 *   one, on another. Holding is where that has to be shown (R6, above); failing only ever leaves
 *   less to go on with.
 * - The dead daemon's own writes may still be on their way to the members. Nobody reads or writes
 *   there before they can't land any more: not this node's next incarnation, which fences the last
 *   one first, nor another node, which must fence the departed incarnation before it is granted
 *   what that had locked or marked (R4, R5).
 * - A daemon that lives writes nothing of a device that it has taken away: see cut_off.
 * - A FLUSH that failed promises nothing, and one that is answered later covers what was answered
 *   before it, in whichever incarnation. That a file system may have dropped the pages of a write
 *   that failed is its own rule, as with a disk that errs.
 * - A daemon that comes back ends the failing by serving: what it takes over then has not failed,
 *   and goes on as above. It sets away_ms each time that it serves, so a restart does not undo it.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/units.h"
#include "daemon/runtime/array_int.h"

#define AGAIN_US 5000000ull  /* after a failure */
#define BUSY_US 200000ull    /* after one that passes: an earlier daemon has not ended yet */
#define LOST_US 1000000ull   /* after a device that was lost at once */
#define ALIVE_US 1000000ull  /* how often the note says so, where --away asks */
#define ASKED_US 20000000ull /* how long `attach` waits for the array to serve */
#define LINKS "/dev/ddraid"
#define ALONE "it was away for longer than --away, and some of its requests may have failed"

static void disk_answer(struct array *a, int err, const char *why);
static void answer(struct array *a, struct array_attach *q, int err, const char *why);

/* ---- the driver ------------------------------------------------------------------------------ */

struct load {
	struct task task;
	struct array *a;
	enum attach_via via;
	int err;
	char why[FRONT_WHY_BYTES];
};

/* See above. */
static uint32_t patience(const struct array *a, uint32_t away_ms)
{
	uint32_t least_ms = config_heard_ms(a->env.conf);

	return away_ms == AWAY_HOLD || away_ms > least_ms ? away_ms : least_ms;
}

/* ---- the note ------------------------------------------------------------------------------- */

static void note_path(const struct array *a, char path[STORE_PATH_BYTES], const char *suffix)
{
	snprintf(path, STORE_PATH_BYTES, "%s/%s.takeover%s", a->env.conf->run_dir, a->live.name,
		 suffix);
}

static void note_remove(const struct array *a)
{
	char path[STORE_PATH_BYTES];

	note_path(a, path, "");
	if (unlink(path) < 0 && errno != ENOENT)
		array_say(a, LOG_ERR, "%s can't be removed: %s", path, strerror(errno));
}

/* It need not outlast the machine: the device does not either. */
static void note_store(struct array *a)
{
	char path[STORE_PATH_BYTES], fresh[STORE_PATH_BYTES];
	struct disk *d = &a->disk;
	FILE *f;
	int bad;

	note_path(a, path, "");
	note_path(a, fresh, ".new");
	f = fopen(fresh, "we");
	if (f) {
		bad = fprintf(f, "%" PRIu64 " %" PRIu32 " %" PRIu64 " %" PRIu32 " %" PRIu64 "\n",
			      d->takeover.token, d->noted.rep, d->noted.seq, d->takeover.away_ms,
			      d->takeover.alone_us) < 0;
		if (!(fclose(f) || bad) && !rename(fresh, path))
			return;
	}
	array_say(
	    a, LOG_WARNING,
	    "%s can't be written: %s; whoever has %s open now gets errors when ddraidd starts "
	    "anew",
	    path, strerror(errno), a->live.name);
	note_remove(a);
}

/* How long the kernel waits for the next daemon. */
static uint32_t kernel_away_ms(const struct array *a)
{
	return a->live.attach == ATTACH_NBD ? patience(a, a->live.away_ms) : AWAY_HOLD;
}

static void note_put(struct array *a)
{
	a->disk.takeover.away_ms = kernel_away_ms(a);
	a->disk.takeover.alone_us = loop_now_us(a->loop);
	note_store(a);
}

/* The kernel is about to hear of a time, for a device that the note is of already. If that is
 * shorter the note has it first; all else in it stays as it is until the device is served. Where
 * that fails, nobody says whether the kernel has heard: the time runs from here. */
static void note_shorten(struct array *a)
{
	uint32_t away_ms = kernel_away_ms(a);
	struct disk *d = &a->disk;

	if (away_ms == AWAY_HOLD ||
	    (d->takeover.away_ms != AWAY_HOLD && d->takeover.away_ms <= away_ms))
		return;
	if (d->takeover.away_ms == AWAY_HOLD)
		d->takeover.alone_us = loop_now_us(a->loop); /* nothing has failed yet */
	d->takeover.away_ms = away_ms;
	if (!d->takeover.ours)
		d->noted = d->takeover.ring;
	note_store(a);
}

/* This incarnation serves in the ring that there is now. */
static void note_write(struct array *a)
{
	a->disk.noted = a->disk.ring;
	note_put(a);
}

static bool is_there(const struct disk *d)
{
	return d->front && front_device(d->front);
}

/* It may be held, and then its front-end may say that it has none. */
static bool is_ours(const struct disk *d)
{
	return is_there(d) || d->held;
}

/* There is a connection; one that is held ends with the last request on it. */
static bool is_connected(const struct disk *d)
{
	struct front_stats st;

	if (!d->held)
		return is_there(d);
	front_stats(d->front, &st);
	return st.inflight;
}

static void note_alive(struct array *a)
{
	const struct disk *d = &a->disk;

	if (d->takeover.token && d->takeover.away_ms != AWAY_HOLD &&
	    loop_now_us(a->loop) - d->takeover.alone_us >= ALIVE_US && is_connected(d))
		note_put(a);
}

/* What is left of a device that nobody is to go on with; tried until it works. */
static void left_end(struct array *a)
{
	struct disk *d = &a->disk;
	char why[FRONT_WHY_BYTES] = "";
	int err = attach_discard(&a->live, true, 0, why);

	d->left = err != 0;
	/* BUSY: the earlier daemon has not quite ended. AGAIN: not all know of it. */
	d->left_us = loop_now_us(a->loop) + (err == -EBUSY || err == -EAGAIN ? BUSY_US : AGAIN_US);
	if (err && err != -EAGAIN && strcmp(d->left_why, why) != 0)
		array_say(a, LOG_ERR, "whoever has its last device open goes on waiting: %s", why);
	snprintf(d->left_why, sizeof(d->left_why), "%s", err ? why : "");
}

static bool ring_same(const struct ring *x, const struct ring *y)
{
	return x->rep == y->rep && x->seq == y->seq;
}

void disk_loaded(struct array *a)
{
	struct disk *d = &a->disk;
	char path[STORE_PATH_BYTES];
	FILE *f;

	memset(&d->takeover, 0, sizeof(d->takeover));
	note_path(a, path, "");
	d->left = true;
	f = fopen(path, "re");
	if (!f)
		return;
	if (fscanf(f, "%" SCNu64 " %" SCNu32 " %" SCNu64 " %" SCNu32 " %" SCNu64,
		   &d->takeover.token, &d->takeover.ring.rep, &d->takeover.ring.seq,
		   &d->takeover.away_ms, &d->takeover.alone_us) != 5)
		d->takeover.token = 0;
	fclose(f);
	d->left = !d->takeover.token;
	if (d->left)
		note_remove(a);
	d->takeover.acked = a->rec.record.acked;
	d->takeover.clean = a->rec.clean;
}

/* Did the others commit this without an earlier incarnation of this node? */
static bool epoch_missed(const struct disk *d, const struct epoch *e)
{
	const struct epoch *acked = &d->takeover.acked, *prop = &d->takeover.proposed;

	if (d->takeover.clean || e->num < acked->num || !epoch_cmp(e, acked))
		return false;
	/* Nobody served; what was committed first is of this incarnation's own round, on top of
	 * what the earlier ones had acknowledged. */
	return epoch_cmp(e, prop) || e->num != acked->num + 1;
}

static void takeover_forget(struct array *a, const char *because)
{
	if (a->disk.takeover.token)
		array_say(a, LOG_NOTICE, "opens of this node's last incarnation don't go on: %s",
			  because);
	memset(&a->disk.takeover, 0, sizeof(a->disk.takeover));
	note_remove(a);
}

/*
 * The note goes first: who dies between the two leaves a device without one, and no incarnation
 * takes up what waits in it; the next one ends it here as well (disk_loaded). What waits fails now,
 * not when the array serves: that may be never, and its consumers could not even be killed. It
 * can't have become another's meanwhile: this daemon is the only one on this node, and serves
 * nothing yet.
 */
static void takeover_none(struct array *a, const char *because)
{
	takeover_forget(a, because);
	if (!is_there(&a->disk))
		left_end(a);
}

static void takeover_judge(struct array *a)
{
	struct disk *d = &a->disk;
	struct engine_status st;
	bool missed;

	engine_status(a->e, &st);
	if (!st.map.n && !st.proposing)
		return;
	if (!st.map.n)
		d->takeover.proposed = st.proposed.epoch;
	/* Of a proposal too, since its acknowledgement is in the record before it is committed. */
	missed = epoch_missed(d, st.map.n ? &st.map.epoch : &st.proposed.epoch);
	d->takeover.judged = st.map.n != 0;
	if (missed)
		takeover_none(a, "the other nodes have fenced it and gone on");
}

void disk_step(struct array *a, const struct event *ev)
{
	if (ev->type == EV_VIEW)
		a->disk.ring = ev->view.ring;
	if (a->disk.takeover.token && !a->disk.takeover.judged)
		takeover_judge(a);
}

/* ---- links ---------------------------------------------------------------------------------- */

/* As the udev rule has it; where no udev runs, or not yet. */
static void link_make(const struct array *a)
{
	char path[128], fresh[128], to[80];
	const char *device = front_device(a->disk.front);

	if (access(device, F_OK)) {
		array_say(a, LOG_WARNING,
			  "there is no %s, although the kernel has the device: see to /dev",
			  device);
		return;
	}
	mkdir(LINKS, 0755);
	snprintf(path, sizeof(path), LINKS "/%s", a->live.name);
	snprintf(fresh, sizeof(fresh), LINKS "/.%s.new", a->live.name);
	snprintf(to, sizeof(to), "..%s", device + strlen("/dev"));
	unlink(fresh);
	if (symlink(to, fresh) < 0 || rename(fresh, path) < 0)
		array_say(a, LOG_WARNING, "%s can't be made: %s; use %s", path, strerror(errno),
			  device);
}

static void link_remove(const struct array *a)
{
	char path[128];

	snprintf(path, sizeof(path), LINKS "/%s", a->live.name);
	unlink(path);
}

/* ---- coming and going ----------------------------------------------------------------------- */

static void disk_log(void *arg, int priority, const char *text)
{
	array_say(arg, priority, "disk: %s", text);
}

/* Nothing of it is at the sink any more: it can be closed, for another way or for good. */
static void front_drop(struct disk *d)
{
	struct front_stats st;

	if (!d->front || is_ours(d))
		return;
	front_stats(d->front, &st);
	if (st.inflight)
		return;
	front_close(d->front);
	d->front = NULL;
}

static void disk_failed(struct array *a, int err, const char *why)
{
	struct disk *d = &a->disk;

	d->retry_us = loop_now_us(a->loop) + (err == -EBUSY ? BUSY_US : AGAIN_US);
	if (strcmp(d->why, why)) {
		snprintf(d->why, sizeof(d->why), "%s", why);
		if (!d->asked)
			array_say(a, LOG_ERR, "%s; it is tried again", why);
	}
	if (!d->asked || (err == -EBUSY && loop_now_us(a->loop) - d->asked_us < ASKED_US))
		return;
	a->live.away_ms = d->undo_away_ms;
	if (d->undo) {
		a->live.attach = ATTACH_NONE;
		front_drop(d);
	}
	disk_answer(a, err, why);
}

static void disk_open(struct array *a)
{
	struct front_cfg cfg = {.loop = a->loop, .id = DISK_FRONT_ID};
	const struct front_ops *ops = front_find(a->live.attach == ATTACH_NBD ? "knbd" : "shim");
	char why[FRONT_WHY_BYTES] = "this ddraidd was built without it";
	int err = -ENOSYS;

	cfg.sink.submit = pump_submit;
	cfg.sink.log = disk_log;
	cfg.sink.arg = a;
	if (ops)
		err = ops->open(&cfg, &a->disk.front, why);
	if (err)
		disk_failed(a, err, why);
}

static void load_back(struct task *task)
{
	struct load *l = (struct load *)(void *)task;
	struct array *a = l->a;

	a->tasks--;
	a->disk.loading = false;
	if (a->phase == ARRAY_PHASE_RUN && a->live.attach == l->via && !a->disk.front) {
		if (l->err)
			disk_failed(a, l->err, l->why);
		else
			disk_open(a);
		disk_advance(a);
	}
	free(l);
	if (a->phase == ARRAY_PHASE_CLOSE)
		array_close_check(a);
}

static void load_work(struct task *task)
{
	struct load *l = (struct load *)(void *)task;

	l->err = attach_driver(l->via, l->why);
	mailbox_post(&l->a->box, &l->task, load_back);
}

static void disk_load(struct array *a)
{
	struct load *l = calloc(1, sizeof(*l));

	assert(l);
	l->a = a;
	l->via = a->live.attach;
	a->disk.loading = true;
	a->tasks++;
	mailbox_post(&a->env.worker->box, &l->task, load_work);
}

/*
 * A name that no device has, and no note had: whose it is must wait for nobody's, and have nothing
 * done that another incarnation was to do. Not the incarnation and a count: after a clock that was
 * set back the next incarnation is the last one and 1, which is what the last one's second device
 * was called. It is kept nowhere before the device has it: whoever dies between the two leaves a
 * device without a note, which nobody goes on with.
 */
static uint64_t token_new(void)
{
	uint64_t name;

	do {
		ssize_t n = getrandom(&name, sizeof(name), 0);

		assert(n == (ssize_t)sizeof(name)); /* never less, of so few bytes */
	} while (!name);
	return name;
}

/* Some of what waits may have failed, as the kernel waits for so long. */
static bool alone_too_long(const struct array *a, uint32_t away_ms)
{
	return away_ms != AWAY_HOLD &&
	       loop_clock_us(a->loop) - a->disk.takeover.alone_us >= away_ms * 1000ull;
}

static void disk_serve(struct array *a)
{
	struct disk *d = &a->disk;
	struct front_export ex;
	char why[FRONT_WHY_BYTES];
	uint32_t away_ms = d->takeover.away_ms;
	bool last;
	int err;

	if (d->takeover.token && !d->takeover.ours && !ring_same(&d->takeover.ring, &d->ring))
		takeover_none(
		    a, "the cluster's membership has changed since, and whether without this "
		       "node is not known");
	if (d->takeover.token && alone_too_long(a, away_ms))
		takeover_forget(a, ALONE);
	last = d->takeover.token != 0;
	if (last)
		note_shorten(a);
	else
		d->takeover.token = token_new();
	d->takeover.ours = d->takeover.judged = true;
	pump_export(a, engine_geo(a->e), &ex);
	ex.token = d->takeover.token;
	ex.away_ms = patience(a, a->live.away_ms);
	err = front_serve(d->front, &ex, why);
	if (err) {
		disk_failed(a, err, why);
		return;
	}
	if (last && alone_too_long(a, away_ms)) { /* nothing has been taken from it yet */
		front_reset(d->front);
		takeover_forget(a, ALONE);
		d->retry_us = loop_now_us(a->loop) + BUSY_US;
		return;
	}
	d->why[0] = '\0';
	d->left = false; /* it made way */
	d->retry_us = loop_now_us(a->loop) + LOST_US;
	note_write(a);
	link_make(a);
	array_say(a, LOG_NOTICE, "is %s", front_device(d->front));
	disk_answer(a, 0, "");
}

void disk_advance(struct array *a)
{
	struct disk *d = &a->disk;
	struct engine_status st;

	note_alive(a); /* also while it ends */
	if (a->phase != ARRAY_PHASE_RUN || !a->e)
		return;
	if (!a->live.attach) {
		front_drop(d);
		return;
	}
	if (d->left && !is_there(d) && loop_now_us(a->loop) >= d->left_us)
		left_end(a);
	if (d->asked && loop_now_us(a->loop) - d->asked_us > ASKED_US) {
		disk_failed(a, -ETIMEDOUT, "the array does not serve on this node: see its status");
		return;
	}
	if (a->removed || d->held || (is_there(d) && ring_same(&d->ring, &d->noted)))
		return;
	if (!is_there(d) && loop_now_us(a->loop) < d->retry_us)
		return;
	if (!d->front) {
		if (!d->loading)
			disk_load(a);
		return;
	}
	engine_status(a->e, &st);
	if (!st.io_allowed)
		return;
	if (is_there(d))
		note_write(a); /* in this ring as well */
	else
		disk_serve(a);
}

void disk_removed(struct array *a)
{
	struct disk *d = &a->disk;
	bool there = is_ours(d);

	/* The note first, as in takeover_none. */
	takeover_forget(a, "it was removed");
	d->takeover.judged = true;
	d->retry_us = 0;
	if (d->front) {
		link_remove(a);
		front_reset(d->front);
		d->held = false;
	}
	/* One that this incarnation has not served yet, or has lost: its consumers are as removed.
	 * */
	if (!there)
		left_end(a);
}

uint32_t disk_hold(struct array *a)
{
	struct disk *d = &a->disk;
	struct front_stats st;

	if (!d->front)
		return 0;
	/* Of a device that was lost meanwhile there may still be requests at the sink, too. */
	if (is_ours(d)) {
		front_hold(d->front);
		d->held = true;
	}
	front_stats(d->front, &st);
	note_alive(a);
	return st.inflight;
}

int disk_stop(struct array *a, enum array_stop_how how, char why[FRONT_WHY_BYTES])
{
	struct disk *d = &a->disk;
	int err = 0;

	disk_answer(a, -ESHUTDOWN, "the array was stopped meanwhile");
	if (how == ARRAY_STOP_LEAVE) {
		disk_hold(a); /* for the next daemon, unless it is revoked meanwhile */
		return 0;
	}
	if (!is_ours(d)) {
		/* One that an earlier incarnation left, or that this one has lost, if any. */
		if (how == ARRAY_STOP_FORCED)
			note_remove(a);
		err = attach_discard(&a->live, how == ARRAY_STOP_FORCED, 0, why);
		if (err)
			return err;
	}
	if (!d->front) {
		note_remove(a);
		return 0;
	}
	if (how == ARRAY_STOP_FORCED)
		front_reset(d->front);
	else
		err = front_remove(d->front);
	if (err == -EAGAIN)
		snprintf(
		    why, FRONT_WHY_BYTES,
		    "who has it open is not known yet: something on this machine does not answer; "
		    "try again, or --disconnect");
	if (err)
		return err;
	d->held = false;
	link_remove(a);
	note_remove(a);
	return 0;
}

void disk_close(struct array *a)
{
	struct array_attach *q = a->disk.detach;

	disk_answer(a, -ESHUTDOWN, "the array was stopped meanwhile");
	loop_timer_clear(a->loop, &a->disk.detach_timer);
	a->disk.detach = NULL;
	a->disk.held = false;
	a->disk.cut_us = 0;
	if (q)
		answer(a, q, -ESHUTDOWN, "the array was stopped meanwhile");
	front_close(a->disk.front);
	a->disk.front = NULL;
}

/* ---- attach and detach ---------------------------------------------------------------------- */

static void attach_back(struct task *t)
{
	struct array_attach *q = (struct array_attach *)(void *)t;

	q->done(q, q->err, q->why);
}

static void answer(struct array *a, struct array_attach *q, int err, const char *why)
{
	q->err = err;
	snprintf(q->why, sizeof(q->why), "%s", why);
	mailbox_post(a->env.main, &q->task, attach_back);
}

static void disk_answer(struct array *a, int err, const char *why)
{
	struct array_attach *q = a->disk.asked;

	a->disk.asked = NULL;
	if (q)
		answer(a, q, err, why);
}

/* Of a device that is there. The note never has a longer time than the kernel. */
static int patience_set(struct array *a, uint32_t away_ms, char *why)
{
	uint32_t was_ms = a->live.away_ms;
	int err;

	if (was_ms == AWAY_HOLD || (away_ms != AWAY_HOLD && away_ms < was_ms))
		a->live.away_ms = away_ms;
	note_put(a);
	err = front_patience(a->disk.front, away_ms, why);
	a->live.away_ms = err ? was_ms : away_ms;
	note_put(a);
	return err;
}

static void patience_run(struct array *a, struct array_attach *q)
{
	char why[FRONT_WHY_BYTES] = "", text[FRONT_WHY_BYTES];
	int err = q->patience ? patience_set(a, q->away_ms, why) : 0;

	q->there = true;
	snprintf(text, sizeof(text), "%.240s; detach it first, and attach it anew with --away",
		 why);
	answer(a, q, err, err ? text : "");
}

static void attach_run(struct array *a, struct array_attach *q)
{
	struct disk *d = &a->disk;

	q->away_ms = patience(a, q->away_ms);
	front_drop(d);
	if (a->live.attach == q->via && is_there(d) && !d->held) {
		patience_run(a, q);
		return;
	}
	if (d->asked || d->loading || d->held || (!a->live.attach && d->front)) {
		answer(a, q, -EAGAIN, "another attach or detach is under way; try again");
		return;
	}
	d->undo = a->live.attach != q->via;
	a->live.attach = q->via;
	d->undo_away_ms = a->live.away_ms;
	a->live.away_ms = q->away_ms;
	d->why[0] = '\0';
	d->retry_us = 0;
	d->asked = q;
	d->asked_us = loop_now_us(a->loop);
	disk_advance(a);
}

/* One with --disconnect takes the place of one that waits to know who has the device open. */
static bool detach_later(struct array *a, struct array_attach *q)
{
	struct disk *d = &a->disk;

	if (d->detach && q->force && !d->detach->force) {
		answer(a, d->detach, -ECANCELED, "a detach --disconnect came meanwhile");
		d->detach = NULL;
	}
	if (d->detach)
		return false;
	d->detach = q;
	loop_timer_set(a->loop, &d->detach_timer, loop_now_us(a->loop) + DISK_AGAIN_MS * 1000ull);
	return true;
}

/* Who has the device open is being found out; the array is served meanwhile. */
static bool detach_again(struct array *a, struct array_attach *q)
{
	return loop_now_us(a->loop) <= a->disk.detach_until_us && detach_later(a, q);
}

/*
 * Before a consumer that has it open is told EIO. None of its writes may be at the sink then: one
 * that waits there for members would be written when they are back, over what has been written and
 * answered since, by another node maybe. True: none is. What does not end, as nothing does while
 * too few members answer, ends with this incarnation: OUT_REMOVED, and the device with it.
 */
static bool cut_off(struct array *a)
{
	struct disk *d = &a->disk;
	uint64_t now_us = loop_now_us(a->loop);
	uint32_t n = disk_hold(a);
	struct event ev = {.type = EV_GIVE_UP};

	if (!n) {
		d->cut_us = 0;
		return true;
	}
	if (!d->cut_us)
		d->cut_us = now_us + DISK_CUT_MS * 1000ull;
	if (now_us < d->cut_us)
		return false;
	array_say(
	    a, LOG_WARNING,
	    "%u requests of its device have not ended within %u ms of detach --disconnect: this "
	    "incarnation gives up, so that none of them is written later",
	    n, DISK_CUT_MS);
	d->cut_us = now_us + DISK_CUT_MS * 1000ull;
	pump_push(a, &ev);
	return false;
}

static void detach_run(struct array *a, struct array_attach *q)
{
	struct disk *d = &a->disk;
	char why[FRONT_WHY_BYTES];
	uint32_t n = disk_opens(a);
	int err;

	if (q->force && !cut_off(a)) {
		if (!detach_later(a, q))
			answer(a, q, -EAGAIN, "another detach is under way; try again");
		return;
	}
	err = disk_stop(a, q->force ? ARRAY_STOP_FORCED : ARRAY_STOP_ASKED, why);
	if (err == -EAGAIN && detach_again(a, q))
		return;
	if (err && err != -EBUSY) {
		answer(a, q, err, why);
		return;
	}
	if (err) {
		n = n ? n : 1;
		snprintf(
		    why, sizeof(why),
		    "%s is open (%u open%s: a mount, a process, or another device on it); close "
		    "it, or --disconnect to make all of its requests fail",
		    is_there(d) ? front_device(d->front) : "its device", n, n == 1 ? "" : "s");
		answer(a, q, -EBUSY, why);
		return;
	}
	disk_answer(a, -ECANCELED, "it was detached meanwhile");
	a->live.attach = ATTACH_NONE;
	a->live.away_ms = AWAY_HOLD;
	d->takeover.token = 0;
	note_remove(a);
	front_drop(d);
	answer(a, q, 0, "");
}

void disk_detach_fired(void *arg)
{
	struct array *a = arg;
	struct array_attach *q = a->disk.detach;

	a->disk.detach = NULL;
	if (a->phase >= ARRAY_PHASE_STOP)
		answer(a, q, -ESHUTDOWN, "the array is being stopped");
	else
		detach_run(a, q);
}

static void attach_task(struct task *t)
{
	struct array_attach *q = (struct array_attach *)(void *)t;
	struct array *a = q->array;

	if (!a->running || a->phase >= ARRAY_PHASE_STOP)
		answer(a, q, -ESHUTDOWN,
		       a->running ? "the array is being stopped" : "it does not run");
	else if (q->via)
		attach_run(a, q);
	else {
		if (!a->disk.detach)
			a->disk.detach_until_us = loop_now_us(a->loop) + DISK_LOOK_MS * 1000ull;
		detach_run(a, q);
	}
}

void array_attach(struct array *a, struct array_attach *q)
{
	_Static_assert(offsetof(struct array_attach, task) == 0, "found by its task");
	q->array = a;
	q->why[0] = '\0';
	if (a->running)
		mailbox_post(&a->box, &q->task, attach_task);
	else
		answer(a, q, -ESHUTDOWN, "it does not run");
}

/* ---- looking in ----------------------------------------------------------------------------- */

uint32_t disk_opens(const struct array *a)
{
	struct front_stats st;

	if (!is_there(&a->disk))
		return 0;
	front_stats(a->disk.front, &st);
	return st.clients;
}

void disk_status(const struct array *a, struct array_status *st)
{
	const struct disk *d = &a->disk;

	st->attach = a->live.attach;
	st->away_ms = patience(a, a->live.away_ms);
	strcpy(st->disk_why, d->why);
	if (d->front)
		front_stats(d->front, &st->disk);
	if (is_there(d))
		snprintf(st->device, sizeof(st->device), "%s", front_device(d->front));
}
