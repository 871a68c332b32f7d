// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Members that are files or block devices of this host, by io_uring. Of the adapters this is the
 * one to copy for what answers every request; base.h says what to fill in. nbd.c is one of those
 * that may lose their connection.
 *
 * A request is a chain of operations, one at a time, each chosen by next_op from the step that
 * the request is in:
 *
 *   step     operation                            then
 *   MOVE     readv or writev (FUA: RWF_DSYNC)     short: MOVE goes on where it stopped; else end
 *   PUNCH    fallocate PUNCH_HOLE                 not supported: RANGE; else SYNC if FUA, or end
 *   RANGE    fallocate ZERO_RANGE                 not supported: WIPE; else SYNC if FUA, or end
 *   WIPE     writev of zeroes                     until done; then SYNC if FUA, or end
 *   SYNC     fsync, data only                     end
 *
 * O_DIRECT wherever the file takes it, so that no page cache stands between the nodes of one
 * device. Where it does not (some file systems), the file is opened buffered: right for nodes of
 * one kernel only. FLUSH is fdatasync in both cases.
 *
 * A block device that is opened for writing is this process's alone (dev_claim.h): what has it
 * mounted, say, would not see what is written here. A file is not locked. Where it is on a file
 * system that several nodes have, they all use it, and of daemons that are alone the members
 * themselves say who uses them (core/cluster/use.c).
 *
 * A file that is removed, or replaced by another one of its name, stays open here and works; all
 * that is written is gone with the last process that has it open. So its name is looked at now and
 * then. So is its size, and a device's: the next write behind the end of a file that was cut off
 * makes it as long as that reaches, with zeroes where data was. One that is smaller than when it
 * was opened is connected anew, and whoever uses it hears its size. Only a write of the last bytes
 * that are used (DEV_F_END) can make it long enough again before it is looked at: so the size is
 * looked at before each of these, too. That write, and what is behind it in the queue, waits.
 *
 * Zombies (R5): none. The kernel answers every operation, so drop waits for all of them; asking
 * it to cancel only helps for those that it has not begun. A device that hangs in the kernel
 * hangs its requests: there is no request timeout here.
 *
 * The ring and the file are opened by connect, on the helper thread, and kept over a down until
 * the next connect replaces them, since closing a device can block.
 *
 * Called by member_base. It must not touch a request after base_complete.
 */
#include "daemon/adapters/member/base.h"
#include "daemon/adapters/member/dev_claim.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <limits.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define URING_DEPTH 1024u        /* operations in flight */
#define URING_SQ_ENTRIES 256u    /* handed over with one system call at most */
#define URING_MIN_BLOCK 512u     /* also where the file would take less */
#define URING_WIPE_VECTORS 16u   /* of base_zeroes in one write: 4 MiB */
#define URING_LOOK_US 2000000ull /* between two looks at a file's name, and its size */
#define URING_MEM_ALIGN 4096u    /* of bounce buffers, and what is assumed of unknown devices */

enum step { STEP_MOVE, STEP_PUNCH, STEP_RANGE, STEP_WIPE, STEP_SYNC };

/* What a request needs while it is here; lies in its priv. */
struct job {
	enum step step;
	uint32_t done; /* bytes */
	struct base_cursor at;
	void *bounce; /* aligned copy of all its bytes, or NULL */
	struct iovec one;
};
_Static_assert(sizeof(struct job) <= sizeof(((struct member_req *)0)->priv), "job fits in priv");

struct uring {
	struct base b; /* first */
	int fd;
	struct dev_claim *claim; /* of a block device, unless it is only read */
	int eventfd;
	bool have_ring, watched;
	bool direct;
	uint32_t mem_align; /* of vectors, for O_DIRECT; their lengths are multiples of min_block */
	bool no_punch, no_range;
	bool dropping; /* answer all with drop_err */
	int drop_err;
	uint32_t inflight;       /* operations, the cancelling one too */
	uint32_t inflight_bytes; /* as charged */
	struct io_uring ring;
	struct loop_fd watch;
	struct statx opened;   /* the file that is open */
	struct statx named;    /* ... what its name leads to */
	struct statx now;      /* ... and the open one again, later */
	uint64_t opened_bytes; /* its size then; a device's, too */
	uint32_t looks;        /* statx that are under way */
	struct loop_timer look;
	struct statx before_end;                       /* the open one, before a write of its end */
	enum { END_UNKNOWN, END_ASKED, END_SEEN } end; /* of the first in the queue, if it is one */
	int warned;                                    /* 0, or as in looked() */
	struct iovec wipe[URING_WIPE_VECTORS];
};

static struct uring *uring_of(struct base *b)
{
	return (struct uring *)b;
}

static struct job *job_of(struct member_req *req)
{
	return (struct job *)req->priv;
}

/* --- connect --- */

static uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static void close_all(struct uring *u)
{
	if (u->have_ring)
		io_uring_queue_exit(&u->ring);
	u->have_ring = false;
	if (u->eventfd >= 0)
		close(u->eventfd);
	u->eventfd = -1;
	if (u->fd >= 0)
		close(u->fd);
	u->fd = -1;
	dev_claim_drop(u->claim);
	u->claim = NULL;
}

/* The physical block of the device below a file, by sysfs; 0 = unknown. */
static uint32_t sysfs_physical_block(unsigned int major, unsigned int minor)
{
	/* the second is for partitions */
	static const char *const where[] = {"queue", "../queue"};
	char path[128];
	unsigned int i, bytes = 0;

	for (i = 0; i < 2 && !bytes; i++) {
		FILE *f;

		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s/physical_block_size", major,
			 minor, where[i]);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (fscanf(f, "%u", &bytes) != 1)
			bytes = 0;
		fclose(f);
	}
	return bytes;
}

static uint64_t mix(uint64_t h, const void *data, size_t bytes)
{
	const uint8_t *p = data;

	while (bytes--)
		h = (h ^ *p++) * 0x100000001b3u; /* FNV-1a */
	return h;
}

/* A regular file's volatile cache is this kernel's: same file and same boot, nothing was lost.
 * For a device that may be in another box nothing is known. */
static uint64_t file_instance(const struct statx *st)
{
	char boot[40] = "";
	uint64_t h = 0xcbf29ce484222325u;
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (!f)
		return 0;
	if (!fgets(boot, sizeof(boot), f))
		boot[0] = '\0';
	fclose(f);
	if (!boot[0] || !(st->stx_mask & STATX_BTIME))
		return 0;
	h = mix(h, boot, strlen(boot));
	h = mix(h, &st->stx_dev_major, sizeof(st->stx_dev_major));
	h = mix(h, &st->stx_dev_minor, sizeof(st->stx_dev_minor));
	h = mix(h, &st->stx_ino, sizeof(st->stx_ino));
	h = mix(h, &st->stx_btime.tv_sec, sizeof(st->stx_btime.tv_sec));
	h = mix(h, &st->stx_btime.tv_nsec, sizeof(st->stx_btime.tv_nsec));
	return h ? h : 1;
}

/* Does O_DIRECT take blocks of so many bytes? Asked by reading one. */
static bool direct_reads(int fd, uint32_t bytes)
{
	void *p;
	bool ok;

	if (posix_memalign(&p, URING_MEM_ALIGN, bytes))
		return false;
	ok = pread(fd, p, bytes, 0) >= 0;
	free(p);
	return ok;
}

/* Alignment for O_DIRECT into mem_align and min_block; false: not possible. */
static bool direct_alignment(struct uring *u, const struct statx *st)
{
	uint32_t block = 0;

	u->mem_align = URING_MEM_ALIGN;
#ifdef STATX_DIOALIGN
	if (st->stx_mask & STATX_DIOALIGN) {
		if (!st->stx_dio_offset_align)
			return false;
		u->mem_align = max_u32(st->stx_dio_mem_align, 1);
		block = st->stx_dio_offset_align;
	}
#endif
	if (!block && direct_reads(u->fd, URING_MIN_BLOCK))
		block = URING_MIN_BLOCK;
	if (!block && direct_reads(u->fd, URING_MEM_ALIGN))
		block = URING_MEM_ALIGN;
	u->b.info.min_block_bytes = max_u32(block, URING_MIN_BLOCK);
	return block != 0;
}

static int busy(struct uring *u, const char *path, dev_t number)
{
	char why[DEV_CLAIM_WHY_BYTES];

	dev_claim_who(number, why);
	return base_fail(&u->b, -EBUSY, "%s: %s", path, why);
}

/* Before it is opened for writing: the end of that has udev look at it again. */
static int claim(struct uring *u, const char *path, dev_t *number)
{
	char why[DEV_CLAIM_WHY_BYTES];
	struct stat st;
	int err;

	*number = 0;
	if (u->b.cfg.read_only || stat(path, &st) < 0 || !S_ISBLK(st.st_mode))
		return 0;
	*number = st.st_rdev;
	err = dev_claim_take(path, st.st_rdev, &u->claim, why);
	/* what else is wrong with it the next open says in its own words */
	return err == -EBUSY ? base_fail(&u->b, err, "%s: %s", path, why) : 0;
}

static const char *path_of(const struct uring *u)
{
	const char *path = u->b.uri;

	return strncasecmp(path, "file://", 7) ? path : path + 7;
}

static int open_file(struct uring *u, struct statx *st)
{
	struct base *b = &u->b;
	const char *path = path_of(u);
	int how = (b->cfg.read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK;
	unsigned int mask = STATX_BASIC_STATS | STATX_BTIME;
	dev_t number;
	int err;

#ifdef STATX_DIOALIGN
	mask |= STATX_DIOALIGN;
#endif
	err = claim(u, path, &number);
	if (err)
		return err;
	u->fd = open(path, how | O_DIRECT);
	u->direct = u->fd >= 0;
	if (u->fd < 0 && errno == EINVAL)
		u->fd = open(path, how);
	if (u->fd < 0 && errno == EBUSY && number)
		return busy(u, path, number);
	if (u->fd < 0)
		return base_fail(b, -errno, "%s: can't open it for %s: %s", path,
				 b->cfg.read_only ? "reading" : "reading and writing",
				 strerror(errno));
	if (statx(u->fd, "", AT_EMPTY_PATH, mask, st) < 0)
		return base_fail(b, -errno, "%s: statx: %s", path, strerror(errno));
	if (!S_ISREG(st->stx_mode) && !S_ISBLK(st->stx_mode))
		return base_fail(b, -ENOTBLK, "%s: neither a file nor a block device", path);
	if (S_ISBLK(st->stx_mode) && !b->cfg.read_only &&
	    (!u->claim || makedev(st->stx_rdev_major, st->stx_rdev_minor) != number))
		return base_fail(b, -EAGAIN, "%s: can't take it for this daemon alone", path);
	fcntl(u->fd, F_SETFL, fcntl(u->fd, F_GETFL) & ~O_NONBLOCK);
	if (!u->direct)
		return 0;
	u->direct = direct_alignment(u, st);
	if (!u->direct && fcntl(u->fd, F_SETFL, fcntl(u->fd, F_GETFL) & ~O_DIRECT) < 0)
		return base_fail(b, -errno, "%s: can't leave O_DIRECT: %s", path, strerror(errno));
	return 0;
}

static int measure(struct uring *u, const struct statx *st)
{
	struct base *b = &u->b;
	struct member_info *info = &b->info;
	unsigned int physical = 0;
	int locked = 0;

	info->size_bytes = st->stx_size;
	if (S_ISBLK(st->stx_mode)) {
		if (ioctl(u->fd, BLKGETSIZE64, &info->size_bytes) < 0)
			return base_fail(b, -errno, "%s: BLKGETSIZE64: %s", b->uri,
					 strerror(errno));
		if (ioctl(u->fd, BLKPBSZGET, &physical) < 0)
			physical = 0;
		/* such a device can be opened for writing, and then fails every write */
		if (!b->cfg.read_only && ioctl(u->fd, BLKROGET, &locked) == 0 && locked)
			return base_fail(b, -EROFS, "%s: the device is read-only", b->uri);
	} else {
		physical = sysfs_physical_block(st->stx_dev_major, st->stx_dev_minor);
		info->instance = file_instance(st);
	}
	if (!u->direct)
		info->min_block_bytes = URING_MIN_BLOCK;
	u->opened_bytes = info->size_bytes;
	info->size_bytes -= info->size_bytes % info->min_block_bytes;
	info->preferred_block_bytes = max_u32(physical, info->min_block_bytes);
	info->flags = MEMBER_FLUSH | MEMBER_FUA | MEMBER_MULTI_CONN;
	if (b->cfg.read_only)
		info->flags |= MEMBER_READ_ONLY;
	/* Behind the end of a file it changes nothing; a device's kernel always has a way. */
	else if (S_ISBLK(st->stx_mode) ||
		 fallocate(u->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)st->stx_size,
			   URING_MEM_ALIGN) == 0)
		info->flags |= MEMBER_ZEROES;
	return 0;
}

static int open_ring(struct uring *u)
{
	struct io_uring_params p = {.flags = IORING_SETUP_CQSIZE, .cq_entries = 2 * URING_DEPTH};
	struct base *b = &u->b;
	int err = io_uring_queue_init_params(URING_SQ_ENTRIES, &u->ring, &p);

	if (err)
		return base_fail(b, err, "%s: io_uring: %s (see sysctl kernel.io_uring_disabled)",
				 b->uri, strerror(-err));
	u->have_ring = true;
	u->eventfd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (u->eventfd < 0)
		return base_fail(b, -errno, "%s: eventfd: %s", b->uri, strerror(errno));
	err = io_uring_register_eventfd(&u->ring, u->eventfd);
	if (err)
		return base_fail(b, err, "%s: io_uring eventfd: %s", b->uri, strerror(-err));
	return 0;
}

static int uring_connect(struct base *b)
{
	struct uring *u = uring_of(b);
	int err;

	close_all(u);
	b->info = (struct member_info){0};
	u->no_punch = u->no_range = false;
	err = open_file(u, &u->opened);
	if (!err)
		err = measure(u, &u->opened);
	if (!err)
		err = open_ring(u);
	if (err)
		close_all(u);
	return err;
}

/* --- operations --- */

static struct io_uring_sqe *get_sqe(struct uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	if (!sqe) {
		/* Hands over what has gathered; then all entries are free again. */
		io_uring_submit(&u->ring);
		sqe = io_uring_get_sqe(&u->ring);
	}
	return sqe;
}

static void prep_move(struct uring *u, struct io_uring_sqe *sqe, struct member_req *req)
{
	struct job *j = job_of(req);
	uint64_t offset = req->offset_bytes + j->done;
	const struct iovec *v;
	unsigned int count = 1;

	if (j->bounce) {
		j->one = (struct iovec){(uint8_t *)j->bounce + j->done, req->bytes - j->done};
		v = &j->one;
	} else if (j->at.within) { /* after a short one: the rest of this vector alone */
		v = &req->iov[j->at.index];
		j->one = (struct iovec){(uint8_t *)v->iov_base + j->at.within,
					v->iov_len - j->at.within};
		v = &j->one;
	} else {
		v = &req->iov[j->at.index];
		count = req->iov_count - j->at.index;
		if (count > IOV_MAX)
			count = IOV_MAX;
	}
	if (req->op == DEV_READ)
		io_uring_prep_readv(sqe, u->fd, v, count, offset);
	else
		io_uring_prep_writev2(sqe, u->fd, v, count, offset,
				      req->flags & DEV_F_FUA ? RWF_DSYNC : 0);
}

static void prep_wipe(struct uring *u, struct io_uring_sqe *sqe, struct member_req *req)
{
	struct job *j = job_of(req);
	uint32_t left = req->bytes - j->done;
	uint64_t offset = req->offset_bytes + j->done;

	if (left >= BASE_ZERO_BYTES) {
		uint32_t count = left / BASE_ZERO_BYTES;

		if (count > URING_WIPE_VECTORS)
			count = URING_WIPE_VECTORS;
		io_uring_prep_writev(sqe, u->fd, u->wipe, count, offset);
		return;
	}
	j->one = (struct iovec){base_zeroes, left};
	io_uring_prep_writev(sqe, u->fd, &j->one, 1, offset);
}

static bool lasting(const struct member_req *req)
{
	return req->op == DEV_FLUSH || req->flags & DEV_F_FUA;
}

static void finish(struct uring *u, struct member_req *req, int err);

static void next_op(struct uring *u, struct member_req *req)
{
	struct job *j = job_of(req);
	struct io_uring_sqe *sqe = get_sqe(u);

	if (!sqe) { /* the kernel took nothing: out of memory */
		finish(u, req, -ENOMEM);
		return;
	}
	switch (j->step) {
	case STEP_MOVE:
		prep_move(u, sqe, req);
		break;
	case STEP_PUNCH:
		io_uring_prep_fallocate(sqe, u->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					(off_t)req->offset_bytes, req->bytes);
		break;
	case STEP_RANGE:
		io_uring_prep_fallocate(sqe, u->fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
					(off_t)req->offset_bytes, req->bytes);
		break;
	case STEP_WIPE:
		prep_wipe(u, sqe, req);
		break;
	case STEP_SYNC:
		io_uring_prep_fsync(sqe, u->fd, IORING_FSYNC_DATASYNC);
		break;
	}
	io_uring_sqe_set_data(sqe, req);
	u->inflight++;
}

/* --- requests --- */

static uint32_t charge(const struct uring *u, const struct member_req *req)
{
	uint32_t bytes = req->op == DEV_READ || req->op == DEV_WRITE ? req->bytes : 0;

	bytes = max_u32(bytes, MEMBER_MIN_CHARGE_BYTES);
	return bytes < u->b.cfg.max_inflight_bytes ? bytes : u->b.cfg.max_inflight_bytes;
}

static void finish(struct uring *u, struct member_req *req, int err)
{
	struct job *j = job_of(req);
	struct base_cursor at = {0};

	/* The kernel tells of what a flush has lost once, and never again (R14). */
	if (u->dropping && !(lasting(req) && err < 0 && err != -ECANCELED))
		err = u->drop_err;
	if (j->bounce && req->op == DEV_READ && !err)
		base_scatter(req, &at, j->bounce, req->bytes);
	free(j->bounce);
	u->inflight_bytes -= charge(u, req);
	base_complete(&u->b, req, err);
}

static bool needs_bounce(const struct uring *u, const struct member_req *req)
{
	uintptr_t bits = 0, length_bits = 0;
	uint32_t i;

	if (!u->direct)
		return false;
	for (i = 0; i < req->iov_count; i++) {
		bits |= (uintptr_t)req->iov[i].iov_base;
		length_bits |= req->iov[i].iov_len;
	}
	return bits & (u->mem_align - 1) || length_bits & (u->b.info.min_block_bytes - 1);
}

static bool take_bounce(struct uring *u, struct member_req *req)
{
	struct job *j = job_of(req);
	struct base_cursor at = {0};

	if (!needs_bounce(u, req))
		return true;
	if (posix_memalign(&j->bounce, max_u32(u->mem_align, URING_MEM_ALIGN), req->bytes)) {
		j->bounce = NULL;
		return false;
	}
	if (req->op == DEV_WRITE)
		base_gather(req, &at, j->bounce, req->bytes);
	return true;
}

static enum step zero_step(const struct uring *u, const struct member_req *req)
{
	if (req->flags & DEV_F_UNMAP && !u->no_punch)
		return STEP_PUNCH;
	return u->no_range ? STEP_WIPE : STEP_RANGE;
}

static bool end_seen(struct uring *u);

static bool uring_start(struct base *b, struct member_req *req)
{
	struct uring *u = uring_of(b);
	struct job *j = job_of(req);
	uint32_t cost = charge(u, req);

	if (u->inflight == URING_DEPTH ||
	    (u->inflight_bytes && u->inflight_bytes + cost > b->cfg.max_inflight_bytes))
		return false;
	if (req->flags & DEV_F_END && S_ISREG(u->opened.stx_mode) && !end_seen(u))
		return false;
	j->step = STEP_MOVE;
	u->inflight_bytes += cost;
	if (req->op == DEV_FLUSH) {
		j->step = STEP_SYNC;
	} else if (req->op == DEV_ZEROES) {
		j->step = zero_step(u, req);
	} else if (!take_bounce(u, req)) {
		finish(u, req, -ENOMEM);
		return true;
	}
	next_op(u, req);
	return true;
}

static bool uring_flush(struct base *b)
{
	struct uring *u = uring_of(b);

	if (io_uring_sq_ready(&u->ring))
		io_uring_submit(&u->ring);
	return io_uring_sq_ready(&u->ring); /* the kernel is out of something: again */
}

/* --- what comes back --- */

/* An end of its data: with FUA, zeroes need a flush (moves have RWF_DSYNC). */
static void data_done(struct uring *u, struct member_req *req)
{
	struct job *j = job_of(req);

	if (req->op == DEV_ZEROES && req->flags & DEV_F_FUA) {
		j->step = STEP_SYNC;
		next_op(u, req);
	} else {
		finish(u, req, 0);
	}
}

static void moved(struct uring *u, struct member_req *req, int res)
{
	struct job *j = job_of(req);

	if (res < 0) {
		finish(u, req, res);
		return;
	}
	if (res == 0) { /* the file has become shorter, or its file system can't go on */
		finish(u, req, -EIO);
		return;
	}
	if (j->step == STEP_MOVE && !j->bounce)
		base_skip(req, &j->at, (uint32_t)res);
	j->done += (uint32_t)res;
	if (j->done < req->bytes)
		next_op(u, req);
	else
		data_done(u, req);
}

static void zeroed(struct uring *u, struct member_req *req, int res)
{
	struct job *j = job_of(req);

	if (res == -EOPNOTSUPP || res == -ENOSYS) {
		if (j->step == STEP_PUNCH)
			u->no_punch = true;
		else
			u->no_range = true;
		j->step = zero_step(u, req);
		next_op(u, req);
	} else if (res < 0) {
		finish(u, req, res);
	} else {
		data_done(u, req);
	}
}

static void op_done(struct uring *u, struct member_req *req, int res)
{
	struct job *j = job_of(req);

	if (u->dropping) {
		finish(u, req, res == -EINTR || res == -EAGAIN ? -ECANCELED : res);
		return;
	}
	if (res == -EINTR || res == -EAGAIN) { /* not begun */
		next_op(u, req);
		return;
	}
	switch (j->step) {
	case STEP_MOVE:
	case STEP_WIPE:
		moved(u, req, res);
		break;
	case STEP_PUNCH:
	case STEP_RANGE:
		zeroed(u, req, res);
		break;
	case STEP_SYNC:
		finish(u, req, res < 0 ? res : 0);
		break;
	}
}

/* ---- the file's name, and its size ---- */

static void look_later(struct uring *u)
{
	loop_timer_set(u->b.loop, &u->look, loop_now_us(u->b.loop) + URING_LOOK_US);
}

static void measured(struct uring *u, uint64_t bytes)
{
	if (bytes < u->opened_bytes)
		base_broken(&u->b, -EIO,
			    "%s: it was cut off while in use: it has %llu bytes, and had %llu "
			    "when it was opened",
			    u->b.uri, (unsigned long long)bytes,
			    (unsigned long long)u->opened_bytes);
}

static bool ask(struct uring *u, int dir, const char *path, int flags, struct statx *st)
{
	struct io_uring_sqe *sqe = u->inflight < URING_DEPTH ? get_sqe(u) : NULL;

	if (!sqe)
		return false;
	io_uring_prep_statx(sqe, dir, path, flags, STATX_BASIC_STATS, st);
	io_uring_sqe_set_data(sqe, st);
	u->inflight++;
	return true;
}

static bool look_at(struct uring *u, int dir, const char *path, int flags, struct statx *st)
{
	bool asked = ask(u, dir, path, flags, st);

	u->looks += asked;
	return asked;
}

/* A device tells its size without waiting for anything. */
static void look_fired(void *arg)
{
	struct uring *u = arg;
	uint64_t bytes;

	if (S_ISBLK(u->opened.stx_mode)) {
		if (!ioctl(u->fd, BLKGETSIZE64, &bytes))
			measured(u, bytes);
		look_later(u);
		return;
	}
	if (!look_at(u, AT_FDCWD, path_of(u), 0, &u->named) ||
	    !look_at(u, u->fd, "", AT_EMPTY_PATH, &u->now)) {
		if (!u->looks)
			look_later(u);
	}
	io_uring_submit(&u->ring);
}

static void sized(struct uring *u, int res)
{
	if (!res)
		measured(u, u->now.stx_size);
}

/* A look is good for one write: the size may change at any time. */
static bool end_seen(struct uring *u)
{
	if (u->end == END_SEEN) {
		u->end = END_UNKNOWN;
		return true;
	}
	if (u->end == END_UNKNOWN && ask(u, u->fd, "", AT_EMPTY_PATH, &u->before_end))
		u->end = END_ASKED;
	return false;
}

/* The first in the queue is started at the end of this turn, unless the connection is broken. */
static void end_looked(struct uring *u, int res)
{
	u->end = END_UNKNOWN;
	if (u->dropping || res == -EINTR || res == -EAGAIN)
		return;
	if (res) {
		base_broken(&u->b, res, "%s: can't look at its size: %s", u->b.uri, strerror(-res));
		return;
	}
	u->end = END_SEEN;
	measured(u, u->before_end.stx_size);
}

static void looked(struct uring *u, int res)
{
	bool other = !res && (u->named.stx_ino != u->opened.stx_ino ||
			      u->named.stx_dev_major != u->opened.stx_dev_major ||
			      u->named.stx_dev_minor != u->opened.stx_dev_minor);
	int warn = res == -ENOENT ? 1 : other ? 2 : 0;
	char why[DDR_URI_BYTES + 256];

	if ((res && res != -ENOENT) || warn == u->warned)
		return;
	u->warned = warn;
	snprintf(
	    why, sizeof(why),
	    "%s: the file that is in use %s; it works, and is gone for good when ddraidd closes "
	    "it: move it back, or let 'ddraidctl fail' take it out, and put another one in its "
	    "place "
	    "with 'ddraidctl add'",
	    u->b.uri, other ? "was replaced by another one" : "was removed");
	if (u->b.cb->warn)
		u->b.cb->warn(u->b.arg, warn ? why : NULL);
}

static bool is_look(struct uring *u, const void *data)
{
	return data == &u->named || data == &u->now;
}

static void look_done(struct uring *u, const void *data, int res)
{
	assert(u->looks);
	if (!--u->looks && !u->dropping)
		look_later(u);
	if (u->dropping)
		return;
	if (data == &u->named)
		looked(u, res);
	else
		sized(u, res);
}

static void uring_ready(void *arg, uint32_t events)
{
	struct uring *u = arg;
	struct io_uring_cqe *cqe;
	uint64_t count;

	(void)events;
	if (read(u->eventfd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		assert(!"an eventfd can be read");
	while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
		void *data = io_uring_cqe_get_data(cqe);
		int res = cqe->res;

		io_uring_cqe_seen(&u->ring, cqe);
		assert(u->inflight);
		u->inflight--;
		if (data == &u->before_end)
			end_looked(u, res);
		else if (is_look(u, data))
			look_done(u, data, res);
		else if (data)
			op_done(u, data, res);
	}
	if (u->dropping && !u->inflight) {
		u->dropping = false;
		loop_fd_del(u->b.loop, &u->watch);
		u->watched = false;
		base_dropped(&u->b);
	}
}

static int uring_attach(struct base *b)
{
	struct uring *u = uring_of(b);
	int err;

	u->watch = (struct loop_fd){.fd = u->eventfd, .ready = uring_ready, .arg = u};
	err = loop_fd_add(b->loop, &u->watch, LOOP_READ);
	if (err)
		return base_fail(b, err, "%s: can't poll its eventfd: %s", b->uri, strerror(-err));
	u->watched = true;
	u->end = END_UNKNOWN;
	u->warned = 0;
	look_later(u);
	return 0;
}

static bool uring_drop(struct base *b, int err)
{
	struct uring *u = uring_of(b);
	struct io_uring_sqe *sqe;

	loop_timer_clear(b->loop, &u->look);
	if (!u->inflight) {
		if (u->watched)
			loop_fd_del(b->loop, &u->watch);
		u->watched = false;
		return true;
	}
	u->dropping = true;
	u->drop_err = err;
	sqe = get_sqe(u);
	if (sqe) { /* else they just take their time */
		io_uring_prep_cancel64(sqe, 0, IORING_ASYNC_CANCEL_ANY);
		io_uring_sqe_set_data(sqe, NULL);
		u->inflight++;
	}
	return false;
}

static void uring_destroy(struct base *b)
{
	struct uring *u = uring_of(b);

	close_all(u);
	free(u);
}

static const struct base_hooks uring_hooks = {
    .connect = uring_connect,
    .attach = uring_attach,
    .start = uring_start,
    .flush = uring_flush,
    .drop = uring_drop,
    .destroy = uring_destroy,
};

static const struct member_ops uring_ops;

static int uring_open(const char *uri, struct loop *loop, const struct member_cfg *cfg,
		      const struct member_cb *cb, void *arg, struct member **m, const char **why)
{
	struct uring *u;
	unsigned int i;
	int err;

	if (uri[0] != '/' && uri[strlen("file://")] != '/') {
		*why = "member: a file URI is file:///PATH with an absolute path and no host";
		return -EINVAL;
	}
	u = calloc(1, sizeof(*u));
	*why = "member: out of memory or descriptors";
	if (!u)
		return -ENOMEM;
	u->fd = -1;
	u->eventfd = -1;
	u->look = (struct loop_timer){.fired = look_fired, .arg = u};
	for (i = 0; i < URING_WIPE_VECTORS; i++)
		u->wipe[i] = (struct iovec){base_zeroes, BASE_ZERO_BYTES};
	err = base_init(&u->b, &uring_ops, &uring_hooks, uri, loop, cfg, cb, arg);
	if (err) {
		free(u);
		return err;
	}
	*why = NULL;
	*m = &u->b.m;
	base_open(&u->b);
	return 0;
}

static const char *const uring_schemes[] = {"file", NULL};

static const struct member_ops uring_ops = {
    .schemes = uring_schemes,
    .open = uring_open,
    .submit = base_submit,
    .cancel = base_cancel,
    .close = base_close,
    .lease = base_lease,
    .fenced = base_fenced,
};
MEMBER_ADAPTER(uring_ops);
