// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * `create` on a thread: opens the members through the member port in a loop of its own, gives
 * create_check.c blocking calls to them (submit, then turn the loop until the answer is there),
 * and closes them. Nothing of a running array is touched.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/create/create_job.h"
#include "daemon/base/loop.h"
#include "daemon/base/thread.h"
#include "daemon/base/units.h"
#include "daemon/ctl/create/signature.h"
#include "daemon/ports/member.h"

#define CREATE_JOB_STACK_BYTES (1u << 20)
#define LOOKUP_MS 20000u /* beyond the time to connect: names are looked up */

struct create_job_dev {
	struct create_job *m;
	struct member *member;
	bool up, failed, closed;
	struct member_info info;
	int err; /* of opening, or of the connection when it broke */
	char why[320];
	struct member_req req;
	struct iovec iov;
	bool done;
	int done_err;
};

/* ---- the members ---------------------------------------------------------------------------- */

static void member_up(void *arg, const struct member_info *info)
{
	struct create_job_dev *d = arg;

	d->up = true;
	d->info = *info;
}

static void member_down(void *arg, int err, const char *why)
{
	struct create_job_dev *d = arg;

	d->up = false;
	d->failed = true;
	d->err = err;
	snprintf(d->why, sizeof(d->why), "%s", why);
}

static void member_done(void *arg, struct member_req *req, int err)
{
	struct create_job_dev *d = arg;

	(void)req;
	d->done = true;
	d->done_err = err;
}

static void member_closed(void *arg)
{
	struct create_job_dev *d = arg;

	d->closed = true;
}

static const struct member_cb callbacks = {
    .up = member_up, .down = member_down, .done = member_done, .closed = member_closed};

static void open_one(struct create_job *m, struct create_job_dev *d, const char *uri)
{
	struct member_cfg cfg;
	const char *why = "";

	member_cfg_init(&cfg);
	cfg.connect_timeout_ms = m->conf->member_connect_ms;
	cfg.request_timeout_ms = m->conf->member_request_ms;
	cfg.shared = strcmp(m->conf->cluster, "alone") != 0;
	cfg.force = m->desc.options.force_members;
	d->m = m;
	d->err = member_open(uri, m->loop, &cfg, &callbacks, d, &d->member, &why);
	if (d->err) {
		d->failed = d->closed = true;
		snprintf(d->why, sizeof(d->why), "%s", why);
	}
}

static bool settled(const struct create_job *m)
{
	for (uint32_t i = 0; i < m->desc.count; i++) {
		if (!m->dev[i].up && !m->dev[i].failed)
			return false;
	}
	return true;
}

static void open_all(struct create_job *m)
{
	uint64_t end;

	for (uint32_t i = 0; i < m->desc.count; i++)
		open_one(m, &m->dev[i], m->desc.uri[i]);
	end = loop_now_us(m->loop) + (m->conf->member_connect_ms + LOOKUP_MS) * 1000ull;
	while (!settled(m) && loop_now_us(m->loop) < end)
		loop_turn(m->loop, 100000);
	for (uint32_t i = 0; i < m->desc.count; i++) {
		if (m->dev[i].up || m->dev[i].failed)
			continue;
		m->dev[i].err = -ETIMEDOUT;
		snprintf(m->dev[i].why, sizeof(m->dev[i].why), "%s: no answer", m->desc.uri[i]);
	}
}

static void close_all(struct create_job *m)
{
	for (uint32_t i = 0; i < m->desc.count; i++) {
		if (m->dev[i].member)
			member_close(m->dev[i].member);
	}
	for (uint32_t i = 0; i < m->desc.count; i++) {
		while (!m->dev[i].closed)
			loop_turn(m->loop, 100000);
	}
}

/* ---- what create_check.c calls -------------------------------------------------------------- */

static int request(struct create_job_dev *d, enum dev_op op, uint64_t offset, void *buf,
		   uint32_t bytes)
{
	if (!d->up)
		return d->err ? d->err : -ENOTCONN;
	d->iov = (struct iovec){buf, bytes};
	d->req = (struct member_req){.op = op, .offset_bytes = offset, .bytes = bytes};
	if (op != DEV_FLUSH) {
		d->req.iov = &d->iov;
		d->req.iov_count = 1;
	}
	d->done = false;
	member_submit(d->member, &d->req);
	while (!d->done)
		loop_turn(d->m->loop, 1000000);
	return d->done_err;
}

static int dev_read(void *arg, uint64_t offset, void *buf, uint32_t bytes)
{
	return request(arg, DEV_READ, offset, buf, bytes);
}

static int dev_write(void *arg, uint64_t offset, const void *buf, uint32_t bytes)
{
	return request(arg, DEV_WRITE, offset, (void *)buf, bytes);
}

static int dev_flush(void *arg)
{
	return request(arg, DEV_FLUSH, 0, NULL, 0);
}

static struct create_job *of_ask(struct task *t)
{
	return (struct create_job *)((char *)t - offsetof(struct create_job, ask_task));
}

static void known_run(struct task *t)
{
	struct create_job *m = of_ask(t);
	const char *name = m->known(m, m->ask_uuid);

	snprintf(m->ask_name, sizeof(m->ask_name), "%s", name ? name : "");
	sem_post(&m->told);
}

static void wait_for(sem_t *sem)
{
	while (sem_wait(sem) < 0)
		;
}

/* As it is now, not as it was when this began. */
static const char *known(void *arg, const uint8_t uuid[DDR_UUID_BYTES])
{
	struct create_job *m = arg;

	m->ask_uuid = uuid;
	mailbox_post(m->main, &m->ask_task, known_run);
	wait_for(&m->told);
	return m->ask_name[0] ? m->ask_name : NULL;
}

static bool forgotten(void *arg)
{
	struct create_job *m = arg;

	return m->ask_forgotten;
}

static void standing_run(struct task *t)
{
	struct create_job *m = of_ask(t);

	m->standing(m);
}

void create_job_standing(struct create_job *m, enum create_standing standing)
{
	m->ask_standing = standing;
	sem_post(&m->told);
}

static enum create_standing standing(void *arg, const struct superblock *sb)
{
	struct create_job *m = arg;

	m->ask_sb = sb;
	mailbox_post(m->main, &m->ask_task, standing_run);
	wait_for(&m->told);
	return m->ask_standing;
}

static int begin(void *arg, const struct create_params *p, char why[STORE_WHY_BYTES])
{
	struct create_job *m = arg;

	memcpy(m->desc.uuid, p->array_uuid, DDR_UUID_BYTES);
	memcpy(m->desc.agreed, m->desc.uri, sizeof(m->desc.agreed));
	m->desc.version = 1;
	return store_put_making(&m->desc, why);
}

static int allowed(void *arg, char why[STORE_WHY_BYTES])
{
	struct create_job *m = arg;
	bool lost;

	pthread_mutex_lock(&m->lock);
	lost = m->lost;
	if (lost)
		snprintf(why, STORE_WHY_BYTES, "%s is given up: %.600s", m->reserve.what,
			 m->lost_why);
	pthread_mutex_unlock(&m->lock);
	return lost ? -ECANCELED : 0;
}

static uint64_t now_us(void *arg)
{
	struct create_job *m = arg;

	return loop_now_us(m->loop);
}

/* The connections live meanwhile. */
static void pause_ms(void *arg, uint32_t ms)
{
	struct create_job *m = arg;
	uint64_t now = loop_now_us(m->loop), end = now + ms * 1000ull;

	for (; now < end; now = loop_now_us(m->loop))
		loop_turn(m->loop, end - now);
}

static void progress_run(struct task *t)
{
	struct create_job *m =
	    (struct create_job *)((char *)t - offsetof(struct create_job, progress_task));

	pthread_mutex_lock(&m->lock);
	m->progress_posted = false;
	pthread_mutex_unlock(&m->lock);
	if (m->progress)
		m->progress(m);
}

static void progress(void *arg, const char *text, uint32_t done, uint32_t total)
{
	struct create_job *m = arg;
	bool post;

	pthread_mutex_lock(&m->lock);
	snprintf(m->text, sizeof(m->text), "%s", text);
	m->step = done;
	m->steps = total;
	post = !m->progress_posted;
	m->progress_posted = true;
	pthread_mutex_unlock(&m->lock);
	if (post)
		mailbox_post(m->main, &m->progress_task, progress_run);
}

/* ---- the two jobs --------------------------------------------------------------------------- */

static const char *listed(void *arg, uint32_t i, uint32_t *member)
{
	const struct create_job *m = arg;

	*member = m->listed[i].member;
	return m->listed[i].array;
}

static void create_devs(struct create_job *m, struct create_dev dev[DDR_MAX_MEMBERS])
{
	memset(dev, 0, DDR_MAX_MEMBERS * sizeof(dev[0]));
	for (uint32_t i = 0; i < m->desc.count; i++) {
		struct create_job_dev *d = &m->dev[i];

		dev[i] = (struct create_dev){.uri = m->desc.uri[i],
					     .size_bytes = d->info.size_bytes,
					     .min_block_bytes = d->info.min_block_bytes,
					     .preferred_block_bytes = d->info.preferred_block_bytes,
					     .read_only = d->info.flags & MEMBER_READ_ONLY,
					     .open_err = d->up ? 0 : d->err,
					     .open_why = d->why[0] ? d->why : NULL,
					     .arg = d,
					     .read = dev_read,
					     .write = dev_write,
					     .flush = dev_flush};
	}
	m->ask.name = m->desc.name;
	m->ask.arg = m;
	m->ask.known = known;
	m->ask.forgotten = forgotten;
	m->ask.listed = listed;
	m->ask.standing = m->standing ? standing : NULL;
	m->ask.begin = begin;
	m->ask.allowed = allowed;
	m->ask.now_us = now_us;
	m->ask.pause = pause_ms;
	m->ask.progress = progress;
}

static int create_array(struct create_job *m)
{
	struct create_dev dev[DDR_MAX_MEMBERS];
	char why[STORE_WHY_BYTES];
	int err;

	create_devs(m, dev);
	err = create_run(&m->ask, dev, m->desc.count, &m->result, &m->error);
	if (err && !m->error.left)
		store_remove_making(&m->desc, why); /* if it stays, there is nothing to undo */
	return err;
}

static int undo(struct create_job *m)
{
	struct create_dev dev[DDR_MAX_MEMBERS];
	char why[STORE_WHY_BYTES];
	int err;

	create_devs(m, dev);
	err = create_undo(&m->ask, dev, m->desc.count, m->desc.uuid, &m->error);
	if (!err)
		err = store_remove_making(&m->desc, why);
	if (err && !m->error.text[0])
		snprintf(m->error.text, sizeof(m->error.text), "%s", why);
	return err;
}

static int refuse(struct create_job *m, int err, const char *what)
{
	m->error.err = err;
	snprintf(m->error.text, sizeof(m->error.text), "%s %.500s", m->desc.uri[0], what);
	return err;
}

/* An `add` of this array put it there, and came to nothing before the map named it: nothing of the
 * array's data was ever on it. */
static bool never_entered(const struct create_job *m, const struct superblock *sb)
{
	if (sb->map.epoch.num)
		return false;
	for (uint8_t i = 0; i < m->map.n; i++)
		if (!memcmp(m->map.member[i].uuid, sb->member_uuid, DDR_UUID_BYTES))
			return false;
	return true;
}

/* An `add` of the very same has succeeded, and its answer may have got lost. */
static bool is_member(const struct create_job *m, const struct superblock *sb)
{
	const struct map_member *mm = &m->map.member[m->member];

	return m->member < m->map.n && !memcmp(mm->uuid, sb->member_uuid, DDR_UUID_BYTES) &&
	       (mm->state == MEMBER_REBUILDING || mm->state == MEMBER_IN_SYNC);
}

/* No other device may come in its place: what the engine says then, before --old-member is spoken
 * of. */
static bool place_taken(const struct create_job *m)
{
	uint8_t s = m->member < m->map.n ? m->map.member[m->member].state : 0;

	return s && s != MEMBER_MISSING && s != MEMBER_FAULTY;
}

static int refuse_place(struct create_job *m)
{
	uint8_t state = m->map.member[m->member].state;
	char remedy[2 * DDR_NAME_BYTES + 64];
	uint32_t in_sync = 0;

	for (uint8_t i = 0; i < m->map.n; i++)
		in_sync += m->map.member[i].state == MEMBER_IN_SYNC;
	if (state == MEMBER_IN_SYNC && in_sync <= m->geo.k)
		snprintf(remedy, sizeof(remedy),
			 "it can't be replaced now, since the data needs all that are in sync");
	else
		snprintf(remedy, sizeof(remedy),
			 "to put another one in its place, first 'ddraidctl fail %s %u'",
			 m->desc.name, m->member);
	m->error.err = -EINVAL;
	if (state == MEMBER_SUSPECT)
		snprintf(m->error.text, sizeof(m->error.text),
			 "member %u of %s has lost its device (suspect), and may come back by "
			 "itself: %s; if this is its own device, and the status has no URI for it, "
			 "'ddraidctl import' of all members says where it is",
			 m->member, m->desc.name, remedy);
	else
		snprintf(m->error.text, sizeof(m->error.text),
			 "member %u of %s is in use (%s), and %s is not its device: %s", m->member,
			 m->desc.name, member_state_name(state), m->desc.uri[0], remedy);
	return m->error.err;
}

/* Its superblock is of this array. Is there anything against using it as a new member? */
static int look_at_own(struct create_job *m, const struct superblock *sb)
{
	char what[300] = "was a member of this array: name another device, or --old-member to use "
			 "it as a new one";

	for (uint8_t i = 0; i < m->map.n; i++) {
		const struct map_member *mm = &m->map.member[i];

		if (memcmp(mm->uuid, sb->member_uuid, DDR_UUID_BYTES) != 0)
			continue;
		if (mm->state != MEMBER_MISSING && mm->state != MEMBER_FAULTY) {
			snprintf(what, sizeof(what),
				 "is member %u of this array, and in use (%s), or a copy of that: "
				 "name another device, or, if it is a copy that nobody needs, "
				 "overwrite its first 16 KiB with zeroes",
				 i, member_state_name(mm->state));
			return refuse(m, -ENOTUNIQ, what);
		}
		snprintf(what, sizeof(what),
			 "is member %u of this array, which is %s: name another device, %sor "
			 "--old-member to use it as a new one",
			 i, member_state_name(mm->state),
			 mm->state == MEMBER_MISSING ? "take it back by 're-add', " : "");
	}
	return m->ask.old_member ? 0 : refuse(m, -EEXIST, what);
}

/* Of an array that is not known here; sb: NULL if it is not intact. */
static int refuse_foreign(struct create_job *m, const struct superblock *sb, bool newer)
{
	char what[CREATE_WHY_BYTES], name[DDR_NAME_BYTES];

	if (sb && !m->ask_forgotten) {
		snprintf(what, sizeof(what),
			 "is member %u of the ddraid array %s, which this cluster does not know: "
			 "name another device, or bring that array back with 'ddraidctl import' "
			 "and all its members",
			 sb->index, text_clean(name, sizeof(name), sb->name));
		return refuse(m, -EEXIST, what);
	}
	return refuse(m, -EEXIST,
		      newer
			  ? "carries a superblock of ddraid that a newer version has written: "
			    "name another device, or --old-member to overwrite it"
			  : "carries a superblock of ddraid that is damaged, or of an array that "
			    "was forgotten: name another device, or --old-member to overwrite it");
}

/*
 * A superblock of an array that is not known here is left to --old-member as well, and so is one of
 * the array itself: of a member that left it, or of an `add` that came to nothing. The engine
 * refuses one that is in use.
 */
static int look_at_superblock(struct create_job *m, uint8_t *block)
{
	char what[CREATE_WHY_BYTES];
	struct superblock sb;
	struct claim claim;
	const char *of;
	bool intact = false, newer = false;
	int unread = 0;

	for (uint32_t c = 0; c < SB_COPIES; c++) {
		int err = dev_read(&m->dev[0], geo_sb_offset(c), block, DDR_BLOCK_BYTES);

		if (err) { /* the other copy tells whose it is, and that goes first */
			unread = err;
			continue;
		}
		if (!claim_decode(&claim, block) && !m->ask.old_member && !place_taken(m))
			return refuse(m, -EBUSY,
				      "is being made a member of another array, or that was cut "
				      "off: wait for it, name another device, or, if nobody works "
				      "on it, --old-member");
		err = sb_decode(&sb, block, NULL);
		if (err == -ENOENT)
			continue;
		intact |= !err;
		newer |= err == -EPROTONOSUPPORT;
		of = err ? NULL : known(m, sb.array_uuid);
		if (of && !strcmp(of, m->desc.name) && is_member(m, &sb))
			return refuse(m, -EALREADY, "is that member of this array already");
		if (place_taken(m))
			continue;
		if (of && !strcmp(of, m->desc.name) && never_entered(m, &sb))
			continue;
		if (of && !strcmp(of, m->desc.name)) {
			err = look_at_own(m, &sb);
			if (err)
				return err;
			continue;
		}
		if (of) {
			err = create_refuse_known(&m->ask, &sb, of, what);
			if (err)
				return refuse(m, err, what);
			m->clears = true;
			continue;
		}
		if (!m->ask.old_member)
			return refuse_foreign(m, err ? NULL : &sb, newer);
		m->clears |= !err;
	}
	if (place_taken(m))
		return refuse_place(m);
	if (!intact && create_refuse_listed(&m->ask, 0, what))
		return refuse(m, -ENOTUNIQ, what);
	if (unread)
		return refuse(m, unread, "can't be read; see to the exporter");
	return 0;
}

/* What can't be at all. */
static int check_added_requests(struct create_job *m)
{
	const struct member_info *info = &m->dev[0].info;
	char text[300], have[UNITS_TEXT_BYTES], want[UNITS_TEXT_BYTES];
	uint32_t frag = m->geo.frag_bytes;

	size_format(have, frag < DDR_BLOCK_BYTES ? frag : DDR_BLOCK_BYTES);
	if (info->min_block_bytes > frag || info->min_block_bytes > DDR_BLOCK_BYTES) {
		snprintf(text, sizeof(text),
			 "takes only requests in multiples of %s, and this array makes some of %s; "
			 "name a device or an exporter with smaller blocks",
			 size_format(want, info->min_block_bytes), have);
		return refuse(m, -EINVAL, text);
	}
	if (info->size_bytes >= m->geo.p.member_bytes)
		return 0;
	snprintf(text, sizeof(text),
		 "is too small: it has %llu bytes, and the members of this array have %llu; name a "
		 "larger one",
		 (unsigned long long)info->size_bytes, (unsigned long long)m->geo.p.member_bytes);
	return refuse(m, -ENOSPC, text);
}

/* The last of all checks: who hears of this has been told of all that is on the device. */
static int check_added_blocks(struct create_job *m)
{
	const struct member_info *info = &m->dev[0].info;
	struct create_dev d = {.min_block_bytes = info->min_block_bytes,
			       .preferred_block_bytes = info->preferred_block_bytes};
	char text[300], have[UNITS_TEXT_BYTES], want[UNITS_TEXT_BYTES];

	if (create_block_bytes(&d) <= m->geo.frag_bytes || m->ask.unaligned)
		return 0;
	size_format(have, m->geo.frag_bytes);
	snprintf(text, sizeof(text),
		 "has blocks of %s, and the fragments of this array have %s, so that each "
		 "write would make it rewrite its neighbours; name a device with smaller "
		 "blocks, or --unaligned if a power cut there can't tear a block",
		 size_format(want, create_block_bytes(&d)), have);
	return refuse(m, -EINVAL, text);
}

/* The engine writes over no superblock of another array (claim.h): so it is gone before. */
static int clear_added(struct create_job *m, const struct create_dev *dev)
{
	static const char first[] = "member 0";
	struct create_error e;
	int err = create_clear(&m->ask, dev, &e);

	/* To create_clear() it is the first of its devices. */
	if (err && !strncmp(e.text, first, strlen(first)))
		snprintf(m->error.text, sizeof(m->error.text), "member %u%.1000s", m->member,
			 e.text + strlen(first));
	else if (err)
		snprintf(m->error.text, sizeof(m->error.text), "%s", e.text);
	return err;
}

/* For the leader, which writes there: it must be this device. What can't be read here the leader
 * finds as well. */
static int added_sum(struct create_job *m)
{
	uint8_t *copy;
	int err = 0;

	if (place_taken(m))
		return 0;
	if (posix_memalign((void **)&copy, DDR_BLOCK_BYTES, SB_COPIES * DDR_BLOCK_BYTES))
		return -ENOMEM;
	for (uint32_t c = 0; c < SB_COPIES && !err; c++)
		err = dev_read(&m->dev[0], geo_sb_offset(c), copy + c * DDR_BLOCK_BYTES,
			       DDR_BLOCK_BYTES);
	if (!err)
		m->before = sb_place_sum(copy, copy + DDR_BLOCK_BYTES);
	free(copy);
	return 0;
}

static int check_added(struct create_job *m)
{
	struct create_dev devs[DDR_MAX_MEMBERS];
	struct create_job_dev *d = &m->dev[0];
	char what[256] = "", text[320];
	uint8_t *block;
	int found;

	create_devs(m, devs);
	if (!d->up && place_taken(m))
		return refuse_place(m);
	if (!d->up) {
		char why[CREATE_WHY_BYTES];

		create_open_error(&devs[0], why);
		return refuse(m, d->err, why);
	}
	if (d->info.flags & MEMBER_READ_ONLY && !place_taken(m))
		return refuse(m, -EROFS, "is read-only; export it for writing");
	found = place_taken(m) ? 0 : check_added_requests(m);
	if (found)
		return found;
	if (posix_memalign((void **)&block, DDR_BLOCK_BYTES, DDR_BLOCK_BYTES))
		return -ENOMEM;
	found = look_at_superblock(m, block);
	free(block);
	if (found)
		return found;
	if (!m->ask.wipe)
		found = signature_find(d->info.size_bytes, dev_read, d, what, sizeof(what));
	if (found < 0)
		return refuse(m, found, "can't be read; see to the exporter");
	if (found) {
		snprintf(text, sizeof(text),
			 "carries %s; name another device, or --wipe to destroy that", what);
		return refuse(m, -EEXIST, text);
	}
	found = check_added_blocks(m);
	return found || !m->clears ? found : clear_added(m, devs);
}

static int added_looked_at(struct create_job *m)
{
	int err = check_added(m);

	return err ? err : added_sum(m);
}

static int reserved(struct create_job *m);

static void importable_run(struct task *t)
{
	struct create_job *m = of_ask(t);

	m->ask_err = m->importable(m, m->imported.uuid, m->imported.name, m->ask_why);
	sem_post(&m->told);
}

static int importable(struct create_job *m)
{
	char why[STORE_WHY_BYTES] = "";

	m->ask_why = why;
	mailbox_post(m->main, &m->ask_task, importable_run);
	wait_for(&m->told);
	if (m->ask_err)
		snprintf(m->error.text, sizeof(m->error.text), "%s", why);
	return m->ask_err;
}

/* The URIs, each in the place of the member that it leads to. */
static void import_take(struct create_job *m)
{
	static const struct store_array none;
	struct store_array *d = &m->desc, given = m->desc;

	memcpy(d->uuid, m->imported.uuid, DDR_UUID_BYTES);
	memcpy(d->uri, none.uri, sizeof(d->uri));
	d->count = m->imported.geo.n;
	for (uint32_t i = 0; i < d->count; i++) {
		uint8_t at = m->imported.dev_of[i];

		strcpy(d->uri[i], at == IMPORT_NOWHERE ? STORE_NOWHERE : given.uri[at]);
	}
}

/* Its name is known by its members only: so that is reserved when they have been looked at, and
 * they are looked at once more then. */
static int import_array(struct create_job *m)
{
	struct create_dev dev[DDR_MAX_MEMBERS];
	int err;

	create_devs(m, dev);
	err = import_check(&m->import, dev, m->desc.count, &m->imported, &m->error);
	if (!err)
		err = importable(m);
	if (err)
		return err;
	strcpy(m->desc.name, m->imported.name);
	if (m->joins)
		return 0;
	err = reserved(m);
	if (!err)
		err = import_check(&m->import, dev, m->desc.count, &m->imported, &m->error);
	return err;
}

static void finished(struct task *t)
{
	struct create_job *m = (struct create_job *)((char *)t - offsetof(struct create_job, task));

	pthread_join(m->thread, NULL);
	sem_destroy(&m->go);
	sem_destroy(&m->told);
	if (m->error.err && !m->error.text[0])
		snprintf(m->error.text, sizeof(m->error.text), "%s", strerror(-m->error.err));
	m->done(m, m->error.err, m->error.text);
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void reserving_run(struct task *t)
{
	struct create_job *m = of_ask(t);

	m->reserving(m);
}

/* Hosts are not looked up for it: one that does not answer would hold up each request. */
static void listed_look(struct create_job *m, const struct store_array *other, uint32_t at)
{
	char key[IDENTITY_KEYS][RESERVE_KEY_BYTES];
	const char *uri = other->uri[at];
	uint32_t n;

	for (uint32_t i = 0; i < m->desc.count; i++)
		if (!strcmp(m->desc.uri[i], uri)) {
			m->listed[i].array = other->name;
			m->listed[i].member = at;
		}
	if (!strncmp(uri, "nbd://", 6) || !strncmp(uri, "nbds://", 7))
		return;
	n = identity_keys(uri, m->node, key);
	for (uint32_t k = 0; k < n; k++)
		for (uint32_t j = 0; j < m->reserve.key_count; j++)
			if (!strcmp(key[k], m->reserve.key[j])) {
				m->listed[m->key_member[j]].array = other->name;
				m->listed[m->key_member[j]].member = at;
			}
}

/* Names and devices are this request's from here on, or it ends. */
static int reserved(struct create_job *m)
{
	struct reserve *r = &m->reserve;

	for (uint32_t i = 0; i < m->desc.count; i++) {
		uint32_t n = identity_keys(m->desc.uri[i], m->node, &r->key[r->key_count]);

		memset(&m->key_member[r->key_count], (int)i, n);
		r->key_count += n;
	}
	for (uint32_t i = 0; i < m->other_count; i++)
		for (uint32_t at = 0; at < m->others[i].count; at++)
			if (strcmp(m->others[i].uri[at], STORE_NOWHERE) != 0)
				listed_look(m, &m->others[i], at);
	mailbox_post(m->main, &m->ask_task, reserving_run);
	wait_for(&m->go);
	if (m->go_err)
		snprintf(m->error.text, sizeof(m->error.text), "%s", m->go_why);
	return m->go_err;
}

void create_job_go(struct create_job *m, int err, const char *why)
{
	m->go_err = err;
	snprintf(m->go_why, sizeof(m->go_why), "%s", why);
	sem_post(&m->go);
}

void create_job_lost(struct create_job *m, const char *why)
{
	pthread_mutex_lock(&m->lock);
	m->lost = true;
	snprintf(m->lost_why, sizeof(m->lost_why), "%s", why);
	pthread_mutex_unlock(&m->lock);
}

static int work(struct create_job *m)
{
	switch (m->what) {
	case CREATE_JOB_CREATE:
		return create_array(m);
	case CREATE_JOB_ADD:
		return added_looked_at(m);
	case CREATE_JOB_IMPORT:
		return import_array(m);
	default:
		return undo(m);
	}
}

static void *thread_main(void *arg)
{
	struct create_job *m = arg;
	char why[STORE_WHY_BYTES];
	int err = m->what == CREATE_JOB_IMPORT ? 0 : reserved(m);

	if (!err && m->what == CREATE_JOB_CREATE) {
		err = store_incarnation(&m->ask.inc, why);
		if (err)
			snprintf(m->error.text, sizeof(m->error.text), "%.700s", why);
	}
	if (!err) {
		progress(m, "connecting to the members", 0, m->desc.count);
		open_all(m);
		err = work(m);
		close_all(m);
		if (!err && m->what == CREATE_JOB_IMPORT)
			import_take(m);
	}
	m->error.err = err;
	loop_free(m->loop);
	free(m->dev);
	mailbox_post(m->main, &m->task, finished);
	return NULL;
}

int create_job_start(struct create_job *m)
{
	int err;

	pthread_mutex_init(&m->lock, NULL);
	sem_init(&m->go, 0, 0);
	sem_init(&m->told, 0, 0);
	m->dev = calloc(DDR_MAX_MEMBERS, sizeof(*m->dev));
	if (!m->dev)
		return -ENOMEM;
	err = loop_new(&m->loop);
	if (err) {
		free(m->dev);
		return err;
	}
	err = thread_start(&m->thread, CREATE_JOB_STACK_BYTES, thread_main, m);
	if (err) {
		loop_free(m->loop);
		free(m->dev);
	}
	return err;
}
