// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Lock manager `dlm`: the kernel's, by libdlm.
 *
 * A handle has a thread of its own, since libdlm's calls block for as long as the kernel recovers
 * the lock space, in D state, where nothing can end them. The loop's thread hands it requests and
 * takes answers from it, both in order; the table of locks is the thread's alone.
 *
 *	loop's thread				the handle's thread
 *	lock_request, lock_release -> asks ->	dlm_ls_lock, dlm_ls_unlock	-> kernel
 *	lock_cb	<- loop_wake <- tells <-	dlm_dispatch: completions, BASTs <- kernel
 *
 * A lock is one kernel lock from its first request to the completion of its unlock. A name may have
 * two for a moment: the one that is being unlocked and the next; the kernel keeps their order.
 *
 * The locks are ordinary ones, and end with the descriptor of the lock space: when the daemon dies,
 * the kernel grants them to others at once, and the engine is prepared for that
 * (Settle in daemon/core/cluster/locks.c; doc/locking.md says why they are not persistent).
 *
 * lock_close works in the background, since leaving takes a recovery of those that stay. The next
 * handle of that name waits for it. What it held is free before that. At the end of the program no
 * lock space is left until all are closed, and then in the order of their names, on all nodes the
 * same: see leave_turn.
 *
 * A second thread, one for all handles, asks dlm_controld what a lock space waits for while some
 * handle has waited for long: that answer, too, may be long in coming.
 *
 * libdlm does not hand on which mode a blocking callback is about. EX is told, whatever it is.
 *
 * It must not know what the locks are for.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/types.h>
#include <unistd.h>

#include <libdlm.h>
#include <libdlmcontrol.h>

#include "daemon/base/aside.h"
#include "daemon/base/limits.h"
#include "daemon/base/list.h"
#include "daemon/base/loop.h"
#include "daemon/ports/lock.h"

#define BUCKETS 1024u  /* of the table of locks; a power of two */
#define WATCH_MOST 64u /* lock spaces that are asked about at a time */
#define NAME_BYTES 17  /* of a lock, with its NUL */
#define KEPT_MS 1000   /* so often a thread looks whether its lock space was left */
#define HOLDER_S 5     /* without an answer for so long, a request waits for who has the lock */
#define LEAVE_NAME "leave"
#define LEAVE_TURN_S 8 /* a node waits for its turn to leave, at most */
#define LEAVE_PAUSE_MS                                                                             \
	300 /* for the one before: the kernel still talks to it when the lock comes */

enum ask_type { ASK_LOCK, ASK_TRY, ASK_RELEASE };

struct ask {
	struct ask *next;
	enum ask_type type;
	enum lock_mode mode;
	uint64_t id;
};

enum tell_type { TELL_UP, TELL_GRANTED, TELL_REFUSED, TELL_CALLBACK, TELL_LOST };

struct tell {
	struct tell *next;
	enum tell_type type;
	enum lock_mode mode;
	int err;
	uint64_t id;
	char why[]; /* TELL_LOST */
};

/* One lock of the kernel's. */
struct klock {
	struct dlm_lksb lksb;
	struct handle *h;
	struct klock *next; /* in its bucket */
	struct list entry;  /* of all that the kernel may still tell of */
	uint64_t id;
	enum lock_mode held, asked; /* asked: NONE, or what a completion is due for */
	bool unlocking;             /* not in the table any more */
};

struct handle {
	struct lockspace ls; /* must be first */
	char name[LOCK_SPACE_BYTES];
	uint32_t node;

	/* the loop's thread */
	struct loop *loop;
	struct loop_wake wake;
	const struct lock_cb *cb;
	void *arg;

	/* under mutex */
	pthread_mutex_t mutex;
	struct ask *asks, **asks_end;
	struct tell *tells, **tells_end;
	bool closed, ended;            /* lock_close was called, and with what */
	const char *doing;             /* a call that may block, or NULL */
	time_t since;                  /* of `doing`; CLOCK_BOOTTIME */
	uint32_t waiting;              /* requests without an answer */
	time_t answered;               /* when `waiting` last became 0, or an answer came */
	char reason[LOCK_WAITS_BYTES]; /* what dlm_controld says, "" = nothing */

	int kick;   /* eventfd: there are asks, it is closed, or the lock space was left */
	int device; /* of the lock space: its attribute in sysfs, from before up() to the end; -1 */

	/* the handle's thread */
	dlm_lshandle_t space;
	struct klock *bucket[BUCKETS]; /* those that are not being unlocked */
	struct list klocks;
	bool failed;
	bool leaving; /* under all_mutex: closed, and about to leave the lock space */

	struct handle *next; /* of all; under all_mutex */
};

/* All handles whose threads run, the newest first: one waits for the older ones of its name. */
static pthread_mutex_t all_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_changed = PTHREAD_COND_INITIALIZER;
static struct handle *all;
static bool watching; /* the thread that asks dlm_controld is there */
static bool ending;   /* dlm_ending was called, and dlm_settle was not yet */

static time_t now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return ts.tv_sec;
}

static struct handle *handle_of(struct lockspace *ls)
{
	return (struct handle *)(void *)ls;
}

/* ---- from the handle's thread to the loop's ------------------------------------------------- */

static void tell_put(struct handle *h, struct tell *t)
{
	pthread_mutex_lock(&h->mutex);
	if (h->closed) {
		free(t);
	} else {
		*h->tells_end = t;
		h->tells_end = &t->next;
		loop_wake_kick(&h->wake);
	}
	pthread_mutex_unlock(&h->mutex);
}

static void tell_lost(struct handle *h, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void tell_lost(struct handle *h, int err, const char *format, ...)
{
	static const size_t room = 256;
	struct tell *t = calloc(1, sizeof(*t) + room);
	va_list ap;

	assert(t); /* without it nobody would know that nothing is locked any more */
	if (h->failed) {
		free(t);
		return;
	}
	h->failed = true;
	t->type = TELL_LOST;
	t->err = -err;
	va_start(ap, format);
	vsnprintf(t->why, room, format, ap);
	va_end(ap);
	tell_put(h, t);
}

static void tell(struct handle *h, enum tell_type type, uint64_t id, enum lock_mode mode)
{
	struct tell *t;

	if (h->failed)
		return;
	t = calloc(1, sizeof(*t));
	if (!t) {
		tell_lost(h, ENOMEM, "the lock space %s: memory is short", h->name);
		return;
	}
	t->type = type;
	t->id = id;
	t->mode = mode;
	tell_put(h, t);
}

/* ---- the kernel's locks --------------------------------------------------------------------- */

static struct klock **klock_at(struct handle *h, uint64_t id)
{
	struct klock **at = &h->bucket[(id ^ id >> 32) & (BUCKETS - 1)];

	while (*at && (*at)->id != id)
		at = &(*at)->next;
	return at;
}

static void klock_drop(struct handle *h, struct klock *k)
{
	struct klock **at = klock_at(h, k->id);

	assert(*at == k);
	*at = k->next;
}

static void klock_free(struct klock *k)
{
	list_del(&k->entry);
	free(k);
}

/* A call that may block: status says so. */
static void begin(struct handle *h, const char *doing)
{
	pthread_mutex_lock(&h->mutex);
	h->doing = doing;
	h->since = now_s();
	pthread_mutex_unlock(&h->mutex);
}

static void on_completion(void *arg)
{
	struct klock *k = arg;
	struct handle *h = k->h;
	int status = k->lksb.sb_status;

	if (k->unlocking) {
		klock_free(k); /* EUNLOCK, or that there was no such lock any more */
		return;
	}
	assert(k->asked != LOCK_MODE_NONE);
	if (status == 0) {
		k->held = k->asked;
		k->asked = LOCK_MODE_NONE;
		tell(h, TELL_GRANTED, k->id, k->held);
	} else if (status == EAGAIN) {
		tell(h, TELL_REFUSED, k->id, k->asked);
		k->asked = LOCK_MODE_NONE;
		if (k->held == LOCK_MODE_NONE) {
			klock_drop(h, k);
			klock_free(k);
		}
	} else {
		tell_lost(h, status, "the kernel's DLM refused a lock of %s: %s", h->name,
			  strerror(status));
	}
}

static void on_bast(void *arg)
{
	struct klock *k = arg;

	if (!k->unlocking)
		tell(k->h, TELL_CALLBACK, k->id, LOCK_MODE_EX);
}

static uint32_t kernel_mode(enum lock_mode mode)
{
	switch (mode) {
	case LOCK_MODE_PR:
		return LKM_PRMODE;
	case LOCK_MODE_CW:
		return LKM_CWMODE;
	case LOCK_MODE_EX:
		return LKM_EXMODE;
	case LOCK_MODE_NONE:
		break;
	}
	assert(!"a mode of no lock");
	return 0;
}

/* The kernel converts in place; it grants EX to PR at once, whoever waits. */
static bool may_convert(enum lock_mode from, const struct ask *a)
{
	if (a->mode == LOCK_MODE_EX)
		return (from == LOCK_MODE_PR || from == LOCK_MODE_CW) && a->type == ASK_TRY;
	return from == LOCK_MODE_EX && a->mode == LOCK_MODE_PR && a->type == ASK_LOCK;
}

static void kernel_lock(struct handle *h, const struct ask *a)
{
	struct klock *k = *klock_at(h, a->id);
	uint32_t flags = a->type == ASK_TRY ? LKF_NOQUEUE : 0;
	char name[NAME_BYTES];

	assert(!k || (k->asked == LOCK_MODE_NONE && may_convert(k->held, a)));
	if (k) {
		flags |= LKF_CONVERT;
	} else {
		k = calloc(1, sizeof(*k));
		if (!k) {
			tell_lost(h, ENOMEM, "the lock space %s: memory is short", h->name);
			return;
		}
		k->h = h;
		k->id = a->id;
		*klock_at(h, a->id) = k;
		list_add_tail(&h->klocks, &k->entry);
	}
	k->asked = a->mode;
	snprintf(name, sizeof(name), "%016llx", (unsigned long long)a->id);
	begin(h, "a lock request");
	if (dlm_ls_lock(h->space, kernel_mode(a->mode), &k->lksb, flags, name, NAME_BYTES - 1, 0,
			on_completion, k, on_bast, NULL))
		tell_lost(h, errno, "the kernel's DLM took no request for %s: %s", h->name,
			  strerror(errno));
	begin(h, NULL);
}

static void kernel_unlock(struct handle *h, const struct ask *a)
{
	struct klock *k = *klock_at(h, a->id);

	assert(k && k->held != LOCK_MODE_NONE && k->asked == LOCK_MODE_NONE);
	klock_drop(h, k);
	k->unlocking = true;
	begin(h, "the release of a lock");
	if (dlm_ls_unlock(h->space, k->lksb.sb_lkid, 0, &k->lksb, k))
		tell_lost(h, errno, "the kernel's DLM did not take back a lock of %s: %s", h->name,
			  strerror(errno));
	begin(h, NULL);
}

/* ---- the handle's thread -------------------------------------------------------------------- */

static bool older_there(const struct handle *h)
{
	for (const struct handle *o = h->next; o; o = o->next)
		if (!strcmp(o->name, h->name))
			return true;
	return false;
}

static void wait_for_older(struct handle *h)
{
	begin(h, "an earlier use of the lock space to end");
	pthread_mutex_lock(&all_mutex);
	while (older_there(h))
		pthread_cond_wait(&all_changed, &all_mutex);
	pthread_mutex_unlock(&all_mutex);
	begin(h, NULL);
}

static const char *dlm_missing(void);

static void space_refused(struct handle *h, int err)
{
	const char *why = dlm_missing();

	if (why)
		tell_lost(h, err, "%s", why);
	else
		tell_lost(h, err,
			  "the kernel's DLM does not open the lock space %s: %s; 'dlm_tool status' "
			  "and the log of dlm_controld say more",
			  h->name, strerror(err));
}

/*
 * Without fencing the kernel frees the locks of a node as soon as its dlm_controld is gone, though
 * the node and its daemon live, write under them, and answer Settle.
 */
static bool fencing_is_off(void)
{
	char *text = calloc(1, DLMC_DUMP_SIZE + 1);
	bool off = text && !dlmc_dump_config(text) && strstr(text, "enable_fencing=0");

	free(text);
	return off;
}

/*
 * Anybody may make this node leave, as by `dlm_tool leave`: our descriptor stays open then, and
 * nothing wakes who polls it. But the device of the lock space is gone before dlm_controld hears of
 * the leave, and so before any other node frees our locks (fs/dlm/lockspace.c, release_lockspace).
 */
static bool space_kept(const struct handle *h)
{
	char c;

	return pread(h->device, &c, 1, 0) >= 0 || errno != ENODEV;
}

static bool device_path(const struct handle *h, const char *format, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, format, h->name);
	return !access(path, F_OK);
}

/* The lock space without its device: it is being left, or joined. */
static bool half_there(const struct handle *h)
{
	char path[PATH_MAX];

	return device_path(h, "/sys/kernel/dlm/%s", path) &&
	       !device_path(h, "/sys/class/misc/dlm_%s", path);
}

static bool closed(struct handle *h)
{
	bool yes;

	pthread_mutex_lock(&h->mutex);
	yes = h->closed;
	pthread_mutex_unlock(&h->mutex);
	return yes;
}

/* Until the kernel is through, a call that joins blocks, and nothing could end it. */
static void wait_for_left(struct handle *h)
{
	begin(h, "this node's earlier part in the lock space to end");
	while (half_there(h) && !closed(h))
		poll(NULL, 0, 100);
	begin(h, NULL);
}

/* It may be there: a daemon that was killed did not leave it. */
static bool space_open(struct handle *h)
{
	char path[PATH_MAX], c;

	begin(h, "dlm_controld to tell its configuration");
	if (fencing_is_off()) {
		begin(h, NULL);
		tell_lost(h, ENOLCK,
			  "dlm_controld fences nobody here (enable_fencing=0), and gives a node's "
			  "locks away while that still writes; set enable_fencing=1 and a fence "
			  "agent in dlm.conf and restart it, or set locks=cpg for the array");
		return false;
	}
	wait_for_left(h);
	if (closed(h))
		return false;
	begin(h, "the nodes of the lock space to let this one in");
	h->space = dlm_open_lockspace(h->name);
	if (!h->space)
		h->space = dlm_create_lockspace(h->name, 0600);
	begin(h, NULL);
	if (!h->space) {
		space_refused(h, errno);
		return false;
	}
	device_path(h, "/sys/class/misc/dlm_%s/dev", path);
	h->device = open(path, O_RDONLY | O_CLOEXEC);
	/* The first read allocates. */
	if (h->device < 0 || pread(h->device, &c, 1, 0) != 1)
		tell_lost(h, errno, "the lock space %s was left as it was opened: %s: %s", h->name,
			  path, strerror(errno));
	else
		tell(h, TELL_UP, 0, LOCK_MODE_NONE);
	return true;
}

static struct ask *asks_take(struct handle *h)
{
	struct ask *list;

	pthread_mutex_lock(&h->mutex);
	list = h->asks;
	h->asks = NULL;
	h->asks_end = &h->asks;
	pthread_mutex_unlock(&h->mutex);
	return list;
}

static void asks_do(struct handle *h)
{
	struct ask *list = asks_take(h), *a;

	while ((a = list)) {
		list = a->next;
		if (h->failed || closed(h))
			;
		else if (a->type == ASK_RELEASE)
			kernel_unlock(h, a);
		else
			kernel_lock(h, a);
		free(a);
	}
}

static void serve(struct handle *h)
{
	struct pollfd p[2] = {{.fd = h->kick, .events = POLLIN},
			      {.fd = dlm_ls_get_fd(h->space), .events = POLLIN}};
	uint64_t kicks;

	while (!closed(h)) {
		if (poll(p, h->failed ? 1 : 2, h->failed ? -1 : KEPT_MS) < 0 && errno != EINTR) {
			tell_lost(h, errno, "poll of the lock space %s: %s", h->name,
				  strerror(errno));
			continue;
		}
		if ((p[0].revents & POLLIN) && read(h->kick, &kicks, sizeof(kicks)) < 0)
			assert(errno == EAGAIN || errno == EINTR);
		if (!h->failed && p[1].revents && dlm_dispatch(p[1].fd) < 0)
			tell_lost(h, errno, "the lock space %s: %s", h->name, strerror(errno));
		if (!h->failed && !space_kept(h))
			tell_lost(h, ENOLCK,
				  "somebody made this node leave the lock space %s while the array "
				  "was served ('dlm_tool leave'?), and others got its locks; stop "
				  "the array first",
				  h->name);
		asks_do(h);
	}
}

static void handle_free(struct handle *h)
{
	struct ask *a;

	while ((a = h->asks)) {
		h->asks = a->next;
		free(a);
	}
	list_for_each(it, next, &h->klocks) free(list_entry(it, struct klock, entry));
	if (h->device >= 0)
		close(h->device);
	close(h->kick);
	pthread_mutex_destroy(&h->mutex);
	free(h);
}

static void on_turn(void *arg)
{
	*(bool *)arg = true;
}

/*
 * Nodes leave one after the other. Two that leave their last lock space at once may each wait for
 * the other's end of their connection, and the kernel gives that up after three minutes only
 * (fs/dlm/midcomms.c, DLM_SHUTDOWN_TIMEOUT); the process can't end before. Whoever has this lock is
 * next. It goes with the lock space, when the others have recovered from that. If it does not come,
 * we leave all the same.
 *
 * It serialises the nodes in one lock space only, so with several the last one must be the same on
 * all nodes: hence the order of leaves_later.
 */
static void leave_turn(struct handle *h)
{
	struct pollfd p = {.fd = dlm_ls_get_fd(h->space), .events = POLLIN};
	time_t end = now_s() + LEAVE_TURN_S;
	struct dlm_lksb lksb = {0};
	bool mine = false;

	if (dlm_ls_lock(h->space, LKM_EXMODE, &lksb, 0, LEAVE_NAME, sizeof(LEAVE_NAME) - 1, 0,
			on_turn, &mine, NULL, NULL))
		return;
	while (!mine && now_s() < end)
		if (poll(&p, 1, 1000) > 0 && dlm_dispatch(p.fd) < 0)
			return;
	if (mine)
		poll(NULL, 0, LEAVE_PAUSE_MS);
}

/* Under all_mutex: at the end of the program, does h have to wait before it leaves? */
static bool leaves_later(const struct handle *h)
{
	if (ending)
		return true;
	for (const struct handle *o = all; o; o = o->next)
		if (o->leaving && strcmp(o->name, h->name) < 0)
			return true;
	return false;
}

/*
 * What is still locked is freed, and nothing is told of any lock after it. That is at once, since
 * leaving may have to wait; it takes a handle of its own.
 */
static void space_close(struct handle *h)
{
	static pthread_mutex_t leaving = PTHREAD_MUTEX_INITIALIZER;

	dlm_close_lockspace(h->space);
	if (!h->ended)
		return;
	pthread_mutex_lock(&all_mutex);
	h->leaving = true;
	while (leaves_later(h))
		pthread_cond_wait(&all_changed, &all_mutex);
	pthread_mutex_unlock(&all_mutex);
	pthread_mutex_lock(&leaving); /* one space after the other as well */
	h->space = dlm_open_lockspace(h->name);
	if (h->space && !h->failed && space_kept(h))
		leave_turn(h);
	if (h->space && space_kept(h))
		dlm_release_lockspace(h->name, h->space, 1);
	else if (h->space) /* the kernel is about to free it, and must not be told to do so again */
		dlm_close_lockspace(h->space);
	pthread_mutex_unlock(&leaving);
}

static void *handle_thread(void *arg)
{
	struct handle *h = arg, **at;
	uint64_t kicks;

	pthread_setname_np(pthread_self(), "dlm");
	wait_for_older(h);
	if (!closed(h) && space_open(h))
		serve(h);
	while (!closed(h)) /* lost before it was there: until the loop's thread knows */
		if (poll(&(struct pollfd){.fd = h->kick, .events = POLLIN}, 1, -1) > 0 &&
		    read(h->kick, &kicks, sizeof(kicks)) < 0)
			break;
	if (h->space)
		space_close(h);
	pthread_mutex_lock(&all_mutex);
	for (at = &all; *at != h;)
		at = &(*at)->next;
	*at = h->next;
	pthread_cond_broadcast(&all_changed);
	pthread_mutex_unlock(&all_mutex);
	handle_free(h);
	return NULL;
}

/* ---- what it waits for ---------------------------------------------------------------------- */

/* How long it has waited for the DLM, as far as can be told from here. */
static time_t waited_s(const struct handle *h)
{
	time_t now = now_s();

	if (h->doing)
		return now - h->since;
	return h->waiting ? now - h->answered : 0;
}

static void need_fencing(char *name, char text[LOCK_WAITS_BYTES])
{
	struct dlmc_node node[DDR_MAX_NODES];
	size_t at = strlen(text);
	int count = 0;

	if (dlmc_lockspace_nodes(name, DLMC_NODES_ALL, DDR_MAX_NODES, &count, node))
		return;
	for (int i = 0; i < count && at < LOCK_WAITS_BYTES; i++)
		if (node[i].flags & DLMC_NF_NEED_FENCING)
			at += (size_t)snprintf(text + at, LOCK_WAITS_BYTES - at, " of node %d",
					       node[i].nodeid);
}

static void reason_ask(char *name, char text[LOCK_WAITS_BYTES])
{
	struct dlmc_lockspace info;

	text[0] = '\0';
	if (dlmc_lockspace_info(name, &info) || !info.cg_next.seq)
		return;
	if (info.cg_next.wait_messages) {
		strcpy(text, "the other nodes of the lock space");
		return;
	}
	switch (info.cg_next.wait_condition) {
	case DLMC_LS_WAIT_FENCING:
		strcpy(text, "dlm_controld's fencing");
		need_fencing(name, text);
		break;
	case DLMC_LS_WAIT_QUORUM:
		strcpy(text, "quorum");
		break;
	case DLMC_LS_WAIT_RINGID:
		strcpy(text, "corosync's membership to settle");
		break;
	default:
		strcpy(text, "its recovery");
	}
}

/* The names of those that have waited for a while; all others wait for nothing. */
static uint32_t waiting_names(char name[WATCH_MOST][LOCK_SPACE_BYTES])
{
	uint32_t count = 0;

	pthread_mutex_lock(&all_mutex);
	for (struct handle *h = all; h; h = h->next) {
		pthread_mutex_lock(&h->mutex);
		if (waited_s(h) < 1)
			h->reason[0] = '\0';
		else if (count < WATCH_MOST)
			strcpy(name[count++], h->name);
		pthread_mutex_unlock(&h->mutex);
	}
	pthread_mutex_unlock(&all_mutex);
	return count;
}

static void *watch_thread(void *arg)
{
	static char name[WATCH_MOST][LOCK_SPACE_BYTES];
	char text[LOCK_WAITS_BYTES];

	pthread_setname_np(pthread_self(), "dlm-watch");
	for (;; sleep(1)) {
		for (uint32_t count = waiting_names(name); count--;) {
			reason_ask(name[count], text);
			pthread_mutex_lock(&all_mutex);
			for (struct handle *h = all; h; h = h->next) {
				if (strcmp(h->name, name[count]) != 0)
					continue;
				pthread_mutex_lock(&h->mutex);
				strcpy(h->reason, text);
				pthread_mutex_unlock(&h->mutex);
			}
			pthread_mutex_unlock(&all_mutex);
		}
	}
	return arg;
}

static const char *dlm_missing(void)
{
	if (access("/sys/kernel/dlm", F_OK))
		return "the kernel's DLM is not loaded on this node; load it: modprobe dlm";
	if (access("/sys/kernel/config/dlm/cluster", F_OK))
		return "dlm_controld does not run on this node; start it: systemctl start dlm";
	if (access("/dev/misc/dlm-control", F_OK))
		return "/dev/misc/dlm-control is missing on this node; udev makes it by a rule of "
		       "dlm_controld's (51-dlm.rules): install that";
	return NULL;
}

/* ---- the loop's thread ---------------------------------------------------------------------- */

static void woken(void *arg)
{
	struct handle *h = arg;
	struct tell *list, *t;

	pthread_mutex_lock(&h->mutex);
	list = h->tells;
	h->tells = NULL;
	h->tells_end = &h->tells;
	pthread_mutex_unlock(&h->mutex);
	while ((t = list)) {
		list = t->next;
		if (t->type == TELL_GRANTED || t->type == TELL_REFUSED) {
			pthread_mutex_lock(&h->mutex);
			h->waiting--;
			h->answered = now_s();
			pthread_mutex_unlock(&h->mutex);
		}
		switch (t->type) {
		case TELL_UP:
			h->cb->up(h->arg);
			break;
		case TELL_GRANTED:
			h->cb->granted(h->arg, t->id, t->mode);
			break;
		case TELL_REFUSED:
			h->cb->refused(h->arg, t->id, t->mode);
			break;
		case TELL_CALLBACK:
			h->cb->callback(h->arg, t->id, t->mode);
			break;
		case TELL_LOST:
			h->cb->lost(h->arg, t->err, t->why);
			break;
		}
		free(t);
	}
}

static void ask(struct handle *h, enum ask_type type, uint64_t id, enum lock_mode mode)
{
	static const uint64_t one = 1;
	struct ask *a = calloc(1, sizeof(*a));

	assert(a);
	a->type = type;
	a->id = id;
	a->mode = mode;
	pthread_mutex_lock(&h->mutex);
	*h->asks_end = a;
	h->asks_end = &a->next;
	if (type == ASK_LOCK || type == ASK_TRY) {
		if (!h->waiting++)
			h->answered = now_s();
	}
	pthread_mutex_unlock(&h->mutex);
	if (write(h->kick, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN);
}

static void dlm_request(struct lockspace *ls, uint64_t id, enum lock_mode mode, bool try_only)
{
	ask(handle_of(ls), try_only ? ASK_TRY : ASK_LOCK, id, mode);
}

static void dlm_release(struct lockspace *ls, uint64_t id)
{
	ask(handle_of(ls), ASK_RELEASE, id, LOCK_MODE_NONE);
}

/*
 * Who has a lock is called back, and lets go of it when its own requests there have ended. One that
 * doesn't, when all that we ask for has gone unanswered for a while, may be a daemon that stands
 * still: nothing but its end takes its locks from it.
 */
static void dlm_waits(struct lockspace *ls, char text[LOCK_WAITS_BYTES])
{
	struct handle *h = handle_of(ls);
	time_t s;

	text[0] = '\0';
	pthread_mutex_lock(&h->mutex);
	s = waited_s(h);
	if (s > 1 && (h->doing || h->reason[0]))
		snprintf(text, LOCK_WAITS_BYTES, "the kernel's DLM, for %lld s: %.200s",
			 (long long)s, h->reason[0] ? h->reason : h->doing);
	else if (s >= HOLDER_S)
		snprintf(text, LOCK_WAITS_BYTES,
			 "an answer of the kernel's DLM, for %lld s; maybe another node does not "
			 "let go of a lock: 'dlm_tool lockdebug %s'",
			 (long long)s, h->name);
	pthread_mutex_unlock(&h->mutex);
}

/* The thread is told, so that it says so. */
static bool dlm_kept(struct lockspace *ls)
{
	static const uint64_t one = 1;
	struct handle *h = handle_of(ls);

	if (space_kept(h))
		return true;
	if (write(h->kick, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN);
	return false;
}

static void dlm_close(struct lockspace *ls, bool ended)
{
	static const uint64_t one = 1;
	struct handle *h = handle_of(ls);
	struct tell *list, *t;

	pthread_mutex_lock(&h->mutex);
	h->closed = true;
	h->ended = ended;
	list = h->tells;
	h->tells = NULL;
	loop_wake_del(h->loop, &h->wake);
	/* The thread frees h once it has the mutex: nothing of h after this. */
	if (write(h->kick, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN);
	pthread_mutex_unlock(&h->mutex);
	while ((t = list)) {
		list = t->next;
		free(t);
	}
}

static int handle_start(struct handle *h)
{
	int err = 0;

	pthread_mutex_lock(&all_mutex);
	if (!watching)
		err = aside_start(watch_thread, NULL);
	watching |= !err;
	if (!err)
		err = aside_start(handle_thread, h);
	if (!err) {
		h->next = all;
		all = h;
	}
	pthread_mutex_unlock(&all_mutex);
	return err;
}

static void dlm_ending(void)
{
	pthread_mutex_lock(&all_mutex);
	ending = true;
	pthread_mutex_unlock(&all_mutex);
}

static void dlm_settle(uint32_t ms)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += (until.tv_nsec / 1000000 + ms) / 1000;
	until.tv_nsec = (until.tv_nsec + ms % 1000 * 1000000ll) % 1000000000;
	pthread_mutex_lock(&all_mutex);
	ending = false;
	pthread_cond_broadcast(&all_changed);
	while (all && !pthread_cond_timedwait(&all_changed, &all_mutex, &until))
		;
	pthread_mutex_unlock(&all_mutex);
}

static struct lock_ops dlm_ops;

static int dlm_open(const struct lock_cfg *cfg, struct lockspace **out)
{
	struct handle *h;
	int err;

	if (!cfg->name || !cfg->name[0] || strlen(cfg->name) >= LOCK_SPACE_BYTES || !cfg->node)
		return -EINVAL;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->ls.ops = &dlm_ops;
	strcpy(h->name, cfg->name);
	h->node = cfg->node;
	h->loop = cfg->loop;
	h->cb = cfg->cb;
	h->arg = cfg->arg;
	h->asks_end = &h->asks;
	h->tells_end = &h->tells;
	list_init(&h->klocks);
	pthread_mutex_init(&h->mutex, NULL);
	h->wake.woken = woken;
	h->wake.arg = h;
	h->device = -1;
	h->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = h->kick < 0 ? -errno : loop_wake_add(h->loop, &h->wake);
	if (!err) {
		err = handle_start(h);
		if (err)
			loop_wake_del(h->loop, &h->wake);
	}
	if (err) {
		if (h->kick >= 0)
			close(h->kick);
		pthread_mutex_destroy(&h->mutex);
		free(h);
		return err;
	}
	*out = &h->ls;
	return 0;
}

static struct lock_ops dlm_ops = {
    .name = "dlm",
    .open = dlm_open,
    .request = dlm_request,
    .release = dlm_release,
    .close = dlm_close,
    .kept = dlm_kept,
    .waits = dlm_waits,
    .missing = dlm_missing,
    .ending = dlm_ending,
    .settle = dlm_settle,
};
LOCK_REGISTER(dlm_ops)
