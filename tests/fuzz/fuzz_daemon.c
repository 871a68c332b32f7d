// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The main thread of ddraidd between its clients, the other daemons and its state directory. An
 * input is a script: requests of three clients, as bytes or with fields of their own; words of
 * other nodes, likewise; views, quorum, time that passes, what arrays, members and disks answer.
 * IPC, requests, manager, announcements and store are the daemon's; arrays and the making of new
 * ones are stubs that answer what the script says.
 *
 * Beyond memory errors and asserts it holds that
 *	every request is answered once, in whole replies that can be decoded,
 *	what this node tells can be decoded, and it takes it from itself,
 *	the next daemon finds each array in the state directory whole.
 */
#include "daemon/catalog/fence_members.h"
#include "daemon/runtime/fence/fence.h"
#include "tests/fuzz/daemon_world.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <qb/qbloop.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "daemon/base/socket_file.h"
#include "daemon/core/format/choose.h"
#include "daemon/ctl/create/create_job.h"
#include "daemon/ctl/ctl.h"
#include "daemon/daemon.h"
#include "daemon/ports/lock.h"
#include "proto/announce.pb-c.h"
#include "tests/fuzz/fuzz.h"

#define CLIENTS 3
#define NODE 2u
#define EVENTS_MAX 400
#define TURNS_MAX 20000

static struct fuzz_in in;
static struct config conf;
static struct mailbox main_box;
static struct worker worker;
static char dir[64];

/* ---- time, threads, disk -------------------------------------------------------------------- */

static uint64_t now_ns;

int world_clock_gettime(clockid_t clock, struct timespec *ts)
{
	uint64_t ns = now_ns + (clock == CLOCK_REALTIME ? UINT64_C(1700000000000000000) : 0);

	ts->tv_sec = (time_t)(ns / 1000000000);
	ts->tv_nsec = (long)(ns % 1000000000);
	return 0;
}

int world_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	(void)attr;
	(void)run;
	(void)arg;
	memset(t, 0, sizeof(*t));
	return 0;
}

int world_pthread_join(pthread_t t, void **result)
{
	(void)t;
	(void)result;
	return 0;
}

static bool disk_fails;

int world_fsync(int fd)
{
	(void)fd;
	errno = EIO;
	return disk_fails ? -1 : 0;
}

static uint64_t random_state;

ssize_t world_getrandom(void *to, size_t bytes, unsigned flags)
{
	uint8_t *at = to;

	(void)flags;
	for (size_t i = 0; i < bytes; i++) {
		random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407;
		at[i] = (uint8_t)(random_state >> 56);
	}
	return (ssize_t)bytes;
}

static void kick(void *arg)
{
	(void)arg;
}

/* What comes later: first in, first out. */
struct later {
	struct later *next;
	void (*run)(void *data);
	void *data;
};

static struct later *later, **later_last = &later;

static void do_later(void (*run)(void *data), void *data)
{
	struct later *l = malloc(sizeof(*l));

	assert(l);
	*l = (struct later){NULL, run, data};
	*later_last = l;
	later_last = &l->next;
}

static bool later_run(void)
{
	struct later *l = later;

	if (!l)
		return false;
	later = l->next;
	if (!later)
		later_last = &later;
	l->run(l->data);
	free(l);
	return true;
}

/* Until nothing is under way but timers. */
static void settle(void)
{
	bool any = true;

	for (int i = 0; any; i++) {
		any = later_run();
		any |= mailbox_run(&main_box);
		any |= mailbox_run(&worker.box);
		any |= world_group_turn();
		assert(i < TURNS_MAX);
	}
}

/* ---- libqb's loop --------------------------------------------------------------------------- */

struct timer {
	struct timer *next;
	uint64_t id, due_ns;
	qb_loop_timer_dispatch_fn run;
	void *data;
};

static struct timer *timers;
static uint64_t last_id;

int32_t qb_loop_timer_add(qb_loop_t *l, enum qb_loop_priority p, uint64_t ns, void *data,
			  qb_loop_timer_dispatch_fn run, qb_loop_timer_handle *out)
{
	struct timer *t = malloc(sizeof(*t)), **at = &timers;

	(void)l;
	(void)p;
	assert(t);
	*t = (struct timer){NULL, ++last_id, now_ns + ns, run, data};
	while (*at && (*at)->due_ns <= t->due_ns)
		at = &(*at)->next;
	t->next = *at;
	*at = t;
	*out = t->id;
	return 0;
}

int32_t qb_loop_timer_del(qb_loop_t *l, qb_loop_timer_handle id)
{
	struct timer **at = &timers, *t;

	(void)l;
	while (*at && (*at)->id != id)
		at = &(*at)->next;
	t = *at;
	if (!t)
		return -ENOENT;
	*at = t->next;
	free(t);
	return 0;
}

static bool timer_fire(void)
{
	struct timer *t = timers;

	if (!t)
		return false;
	timers = t->next;
	if (t->due_ns > now_ns)
		now_ns = t->due_ns;
	t->run(t->data);
	free(t);
	settle();
	return true;
}

int32_t qb_loop_job_add(qb_loop_t *l, enum qb_loop_priority p, void *data,
			qb_loop_job_dispatch_fn run)
{
	(void)l;
	(void)p;
	do_later(run, data);
	return 0;
}

/* ---- ddraidctl's socket --------------------------------------------------------------------- */

#define LISTEN_FD 1000
#define CLIENT_FD 1001 /* and those after it */

struct watch {
	int32_t events;
	void *data;
	qb_loop_poll_dispatch_fn run;
};

static struct peer {
	struct watch watch;
	bool connected, gone; /* gone: its own end is closed */
	bool full, watches, greeted;
	unsigned asked, answered;
	uint8_t out[4 * CTL_MAX_BYTES], reply[CTL_MAX_BYTES];
	size_t out_bytes, reply_bytes; /* it has sent and is not read; it has read */
} clients[CLIENTS];

static struct watch listening;
static struct peer *coming;
static bool file_lost, file_fails;

static struct peer *peer_of(int fd)
{
	assert(fd >= CLIENT_FD && fd < CLIENT_FD + CLIENTS && clients[fd - CLIENT_FD].connected);
	return &clients[fd - CLIENT_FD];
}

static struct watch *watch_of(int fd)
{
	return fd == LISTEN_FD ? &listening : &peer_of(fd)->watch;
}

int32_t qb_loop_poll_add(qb_loop_t *l, enum qb_loop_priority p, int32_t fd, int32_t events,
			 void *data, qb_loop_poll_dispatch_fn run)
{
	(void)l, (void)p;
	assert(!watch_of(fd)->run);
	*watch_of(fd) = (struct watch){events, data, run};
	return 0;
}

int32_t qb_loop_poll_mod(qb_loop_t *l, enum qb_loop_priority p, int32_t fd, int32_t events,
			 void *data, qb_loop_poll_dispatch_fn run)
{
	(void)l, (void)p;
	assert(watch_of(fd)->run);
	*watch_of(fd) = (struct watch){events, data, run};
	return 0;
}

int32_t qb_loop_poll_del(qb_loop_t *l, int32_t fd)
{
	(void)l;
	watch_of(fd)->run = NULL;
	return 0;
}

int socket_file_open(struct socket_file *f, const char *path, mode_t mode, gid_t group,
		     char why[SOCKET_FILE_WHY_BYTES])
{
	(void)why;
	assert(group == SOCKET_FILE_OWN);
	assert(path[0] == '/' && strlen(path) < sizeof(f->path) && mode == 0600);
	strcpy(f->path, path);
	file_lost = file_fails = false;
	return LISTEN_FD;
}

int socket_file_again(struct socket_file *f, char why[SOCKET_FILE_WHY_BYTES])
{
	(void)f;
	if (!file_lost)
		return -EALREADY;
	snprintf(why, SOCKET_FILE_WHY_BYTES, "there is something else");
	if (file_fails)
		return -EADDRINUSE;
	file_lost = false;
	return LISTEN_FD;
}

void socket_file_remove(struct socket_file *f)
{
	f->path[0] = '\0';
}

int world_accept4(int fd, struct sockaddr *sa, socklen_t *bytes, int flags)
{
	struct peer *c = coming;

	(void)sa, (void)bytes;
	assert(fd == LISTEN_FD && flags & SOCK_NONBLOCK && flags & SOCK_CLOEXEC);
	errno = EAGAIN;
	if (!c)
		return -1;
	coming = NULL;
	memset(c, 0, sizeof(*c));
	c->connected = true;
	return (int)(CLIENT_FD + (c - clients));
}

int world_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes)
{
	struct ucred *cred = value;

	assert(peer_of(fd) && level == SOL_SOCKET && name == SO_PEERCRED);
	assert(*bytes == sizeof(*cred));
	*cred = (struct ucred){.pid = 1};
	return 0;
}

int libc_close(int fd) __asm__("close");

int world_close(int fd)
{
	if (fd < LISTEN_FD)
		return libc_close(fd);
	if (fd > LISTEN_FD) {
		assert(!peer_of(fd)->watch.run);
		peer_of(fd)->connected = false;
	}
	return 0;
}

/* In pieces of up to 61 bytes. */
ssize_t world_recv(int fd, void *data, size_t room, int flags)
{
	struct peer *c = peer_of(fd);
	size_t n = c->out_bytes < 61 ? c->out_bytes : 61;

	assert(room && !flags);
	n = n < room ? n : room;
	errno = EAGAIN;
	if (!n)
		return c->gone ? 0 : -1;
	memcpy(data, c->out, n);
	c->out_bytes -= n;
	memmove(c->out, c->out + n, c->out_bytes);
	return (ssize_t)n;
}

static void reply_check(struct peer *c, size_t bytes)
{
	Reply *reply =
	    ddraid__ctl__reply__unpack(NULL, bytes - CTL_HEAD_BYTES, c->reply + CTL_HEAD_BYTES);

	assert(reply && reply->version == CTL_VERSION);
	if (!c->greeted) {
		assert(!reply->final && !reply->err && !reply->body_case);
	} else {
		assert(c->answered < c->asked);
		assert(reply->final || !reply->err);
		assert(!reply->err == !reply->error[0] || reply->err == -ENOSYS);
		c->answered += reply->final;
	}
	c->greeted = true;
	ddraid__ctl__reply__free_unpacked(reply, NULL);
}

/* A long one in pieces. */
ssize_t world_send(int fd, const void *data, size_t bytes, int flags)
{
	struct peer *c = peer_of(fd);
	size_t n = bytes > 100 ? bytes / 2 : bytes, whole;

	assert(flags == MSG_NOSIGNAL && bytes);
	errno = c->gone ? EPIPE : EAGAIN;
	if (c->gone || c->full)
		return -1;
	assert(c->reply_bytes + n <= sizeof(c->reply));
	memcpy(c->reply + c->reply_bytes, data, n);
	c->reply_bytes += n;
	if (c->reply_bytes < CTL_HEAD_BYTES)
		return (ssize_t)n;
	whole = ctl_head_get(c->reply, CTL_REPLY);
	assert(whole && c->reply_bytes <= whole);
	if (c->reply_bytes < whole)
		return (ssize_t)n;
	reply_check(c, whole);
	c->reply_bytes = 0;
	return (ssize_t)n;
}

/* Until there is nothing to tell the daemon of this one. */
static void client_turn(struct peer *c)
{
	for (int i = 0; i < TURNS_MAX && c->connected; i++) {
		int32_t events = 0;

		if (c->out_bytes || c->gone)
			events |= POLLIN;
		if (!c->full)
			events |= c->watch.events & POLLOUT;
		if (!events)
			return;
		c->watch.run((int32_t)(CLIENT_FD + (c - clients)), events, c->watch.data);
	}
	assert(!c->connected);
}

static void client_leave(struct peer *c)
{
	if (!c->connected)
		return;
	c->gone = true;
	client_turn(c);
	assert(!c->connected);
}

static void client_come(struct peer *c)
{
	if (c->connected)
		return;
	coming = c;
	listening.run(LISTEN_FD, POLLIN, listening.data);
	assert(c->connected && c->greeted && !coming);
}

static void client_send_raw(struct peer *c, const void *data, size_t bytes)
{
	client_come(c);
	assert(c->out_bytes + bytes <= sizeof(c->out));
	if (bytes)
		memcpy(c->out + c->out_bytes, data, bytes);
	c->out_bytes += bytes;
	client_turn(c);
}

/* Whatever it is, there may be requests in it. */
static void client_send_any(struct peer *c, const void *data, size_t bytes)
{
	client_come(c);
	c->watches = true;
	c->asked += (unsigned)(bytes / CTL_HEAD_BYTES);
	client_send_raw(c, data, bytes);
}

static void client_send(struct peer *c, const void *data, size_t bytes)
{
	Request *r = ddraid__ctl__request__unpack(NULL, bytes, data);
	uint8_t *m = malloc(CTL_HEAD_BYTES + bytes);

	assert(m);
	client_come(c);
	c->watches |= r && r->body_case == DDRAID__CTL__REQUEST__BODY_WATCH;
	if (r)
		ddraid__ctl__request__free_unpacked(r, NULL);
	ctl_head_put(m, CTL_REQUEST, CTL_HEAD_BYTES + bytes);
	if (bytes)
		memcpy(m + CTL_HEAD_BYTES, data, bytes);
	c->asked++;
	client_send_raw(c, m, CTL_HEAD_BYTES + bytes);
	free(m);
}

/* ---- the daemons' group --------------------------------------------------------------------- */

static const struct group_cb *group_cb;
static bool told_view;
static uint64_t last_reserved;

static int fake_open(const struct group_cfg *cfg, struct group **out);

static int fake_join(struct group *g, const char *name)
{
	(void)g, (void)name;
	return 0;
}

/* Everybody hears it, its sender too. */
static int fake_send(struct group *g, const void *data, size_t bytes)
{
	Ddraid__Announce__Message *w = ddraid__announce__message__unpack(NULL, bytes, data);

	(void)g;
	assert(w && w->body_case != DDRAID__ANNOUNCE__MESSAGE__BODY__NOT_SET);
	if (w->body_case == DDRAID__ANNOUNCE__MESSAGE__BODY_RESERVE)
		last_reserved = w->reserve->id;
	ddraid__announce__message__free_unpacked(w, NULL);
	if (!told_view)
		return -ENOTCONN;
	group_cb->msg(NULL, NODE, data, bytes);
	return 0;
}

static int fake_leave(struct group *g)
{
	(void)g;
	return -ENOTCONN;
}

static void fake_close(struct group *g)
{
	(void)g;
}

static void fake_stats(const struct group *g, struct group_stats *st)
{
	(void)g;
	memset(st, 0, sizeof(*st));
}

static struct group_ops fake_group = {.name = "corosync",
				      .open = fake_open,
				      .join = fake_join,
				      .send = fake_send,
				      .leave = fake_leave,
				      .close = fake_close,
				      .stats = fake_stats};
GROUP_REGISTER(fake_group)

static int fake_open(const struct group_cfg *cfg, struct group **out)
{
	static struct group g = {.ops = &fake_group};

	group_cb = cfg->cb;
	*out = &g;
	return 0;
}

int loop_new(struct loop **out)
{
	static int one;

	*out = (struct loop *)(void *)&one;
	return 0;
}

void loop_free(struct loop *l)
{
	(void)l;
}

int loop_run(struct loop *l)
{
	(void)l;
	return 0;
}

void loop_stop(struct loop *l)
{
	(void)l;
}

uint64_t loop_now_us(const struct loop *l)
{
	(void)l;
	return now_ns / 1000;
}

int loop_wake_add(struct loop *l, struct loop_wake *w)
{
	(void)l, (void)w;
	return 0;
}

void loop_wake_del(struct loop *l, struct loop_wake *w)
{
	(void)l, (void)w;
}

void loop_wake_kick(const struct loop_wake *w)
{
	(void)w;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t deadline_us)
{
	(void)l, (void)t, (void)deadline_us;
}

void loop_timer_clear(struct loop *l, struct loop_timer *t)
{
	(void)l, (void)t;
}

/* ---- arrays --------------------------------------------------------------------------------- */

struct array {
	struct store_array desc;
	bool running, ends;
	uint32_t clients;
};

static struct array_env env;
static struct {
	uint8_t state, phase, err, clients, flags;
} mood; /* what arrays, and the making of new ones, answer */

static int mood_err(void)
{
	static const int errs[] = {0, 0, -EAGAIN, -EIO, -EBUSY, -ESHUTDOWN, -EEXIST, -ETIMEDOUT};

	return errs[mood.err & 7];
}

struct array *array_new(const struct array_env *e, const struct store_array *desc)
{
	struct array *a = calloc(1, sizeof(*a));

	assert(a);
	env = *e;
	a->desc = *desc;
	return a;
}

void array_free(struct array *a)
{
	assert(!a->running);
	free(a);
}

const struct store_array *array_desc(const struct array *a)
{
	return &a->desc;
}

void array_set_desc(struct array *a, const struct store_array *desc)
{
	assert(!a->running);
	a->desc = *desc;
}

void array_learn(struct array *a, const struct store_array *desc)
{
	(void)a, (void)desc;
}

const char *array_failed(const struct array *a)
{
	(void)a;
	return "";
}

uint32_t array_limit_ms(const struct config *c, uint32_t token_ms)
{
	(void)c;
	return token_ms ? token_ms / 2 : 1500;
}

uint64_t array_failed_ms(const struct array *a)
{
	(void)a;
	return 0;
}

bool array_running(const struct array *a)
{
	return a->running;
}

static void serving(void *data)
{
	struct array *a = data;

	if (a->running)
		env.serving(a, mood.state & 1, a->clients);
}

int array_start(struct array *a, bool force)
{
	assert(!a->running);
	if (mood.flags & 1 && !force)
		return -EIO;
	a->running = true;
	a->ends = false;
	a->clients = mood.clients & 3;
	do_later(serving, a);
	return 0;
}

static void ended(void *data)
{
	struct array *a = data;

	a->running = a->ends = false;
	env.ended(a, mood.flags & 2 ? "a member was lost" : "");
}

static void kept(void *data)
{
	struct array *a = data;

	if (a->running && !a->ends)
		env.kept(a, a->clients);
}

void array_stop(struct array *a, enum array_stop_how how)
{
	if (!a->running || a->ends)
		return;
	if (how == ARRAY_STOP_ASKED && a->clients) {
		do_later(kept, a);
		return;
	}
	a->ends = true;
	do_later(ended, a);
}

static void status_fill(struct array *a, struct array_status *st)
{
	struct geo_params p = {.order = 1,
			       .m = 1,
			       .slots = 4,
			       .stripe_bytes = 4096,
			       .band_bytes = 65536,
			       .region_bytes = 4 << 20,
			       .member_bytes = 64 << 20};

	memset(st, 0, sizeof(*st));
	st->phase = ARRAY_PHASE_GROUP + mood.phase % ARRAY_PHASE_CLOSE;
	st->engine.state = mood.state % (ENGINE_STOPPED + 1);
	st->engine.io_allowed = mood.flags & 4;
	st->engine.waits = mood.flags & 8 ? "the fence of a departed node" : NULL;
	st->engine.waits_node = mood.flags & 16 ? 1 : 0;
	st->engine.unfenced = mood.flags & 16 ? 1 : 0;
	st->engine.rebuild_total = mood.flags & 32 ? 10 : 0;
	st->engine.map.n = (uint8_t)a->desc.count;
	st->slot = mood.flags & 64 ? UINT32_MAX : 1;
	st->have_geo = mood.flags & 128 && !geo_choose(&st->geo, &p, NULL);
	st->now_us = now_ns / 1000;
	st->front.clients = a->clients;
	st->locks = "cpg";
	for (uint32_t i = 0; i < a->desc.count && i < DDR_MAX_DEVS; i++) {
		st->dev[i].used = true;
		st->dev[i].member = (uint8_t)i;
		strcpy(st->dev[i].uri, a->desc.uri[i]);
	}
}

static void query_answer(void *data)
{
	struct array_query *q = data;
	bool running = q->array->running;

	if (running)
		status_fill(q->array, &q->status);
	q->done(q, running ? 0 : -ESHUTDOWN);
}

void array_query(struct array *a, struct array_query *q)
{
	q->array = a;
	do_later(query_answer, q);
}

static void admin_answer(void *data)
{
	struct array_admin *q = data;

	q->done(q, q->array->running ? mood_err() : -ESHUTDOWN, "");
}

void array_admin(struct array *a, struct array_admin *q)
{
	q->array = a;
	assert(q->member < a->desc.count);
	do_later(admin_answer, q);
}

static void attach_answer(void *data)
{
	struct array_attach *q = data;
	int err = q->array->running ? mood_err() : -ESHUTDOWN;

	q->there = mood.flags & 1;
	q->done(q, err, err ? "it is in use" : "");
}

void array_attach(struct array *a, struct array_attach *q)
{
	q->array = a;
	do_later(attach_answer, q);
}

int attach_discard(const struct store_array *desc, bool force, uint32_t wait_ms,
		   char why[FRONT_WHY_BYTES])
{
	(void)desc, (void)force, (void)wait_ms;
	snprintf(why, FRONT_WHY_BYTES, "it is open");
	return mood.flags & 2 ? -EBUSY : 0;
}

int attach_driver(enum attach_via via, char why[FRONT_WHY_BYTES])
{
	snprintf(why, FRONT_WHY_BYTES, "there is no driver");
	return mood.err >> (3 + via) & 1 ? -ENOENT : 0;
}

/* The fence command is not asked: what it says goes through as it is, and tests/unit/test_fence.c
 * and tests/conf/exports.sh look at that. */
bool fence_checks(void)
{
	return false;
}

void fence_ask_uri(struct fence_ask *ask, const char *uri)
{
	(void)ask;
	(void)uri;
}

void fence_run(struct fence_ask *ask)
{
	(void)ask;
	abort();
}

void fence_members_start(struct qb_loop *loop)
{
	(void)loop;
}

void fence_members_stop(void)
{
}

const char *fence_members_why(const uint8_t uuid[DDR_UUID_BYTES])
{
	(void)uuid;
	return mood.flags & 16 ? "no exporter is known for member 2" : NULL;
}

const char *fence_describe(void)
{
	return "none";
}

static const struct lock_ops dlm = {.name = "dlm"};

const struct lock_ops *lock_manager_find(const char *name)
{
	return mood.phase & 128 && !strcmp(name, "dlm") ? &dlm : NULL;
}

void say(int priority, const char *format, ...)
{
	char text[LOG_TEXT_BYTES];
	va_list ap;

	(void)priority;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (getenv("FUZZ_SAY"))
		fprintf(stderr, "%s\n", text);
}

uint64_t log_lost(void)
{
	return mood.phase & 64 ? 3 : 0;
}

/* ---- making --------------------------------------------------------------------------------- */

static void imported(struct create_job *m)
{
	memcpy(m->desc.uuid, m->imported.uuid, DDR_UUID_BYTES);
	for (uint32_t i = m->desc.count; i < m->imported.geo.n; i++)
		strcpy(m->desc.uri[i], STORE_NOWHERE);
	m->desc.count = m->imported.geo.n;
}

static void made(void *data)
{
	struct create_job *m = data;
	int err = m->go_err ? m->go_err : m->lost ? -ECANCELED : mood_err();

	for (uint32_t i = 0; i < DDR_UUID_BYTES && m->what == CREATE_JOB_CREATE; i++)
		m->desc.uuid[i] = (uint8_t)(i + (mood.phase & 7));
	if (m->what == CREATE_JOB_IMPORT)
		imported(m);
	if (mood.flags & 4 && m->progress)
		m->progress(m);
	if (m->known)
		m->known(m, m->desc.uuid);
	m->error.left = err && mood.flags & 32;
	snprintf(m->error.text, sizeof(m->error.text), "a member can't be reached");
	m->done(m, err, m->error.text);
}

void create_job_go(struct create_job *m, int err, const char *why)
{
	m->go_err = err;
	snprintf(m->go_why, sizeof(m->go_why), "%s", why);
	do_later(made, m);
}

void create_job_standing(struct create_job *m, enum create_standing standing)
{
	(void)m, (void)standing;
}

enum create_standing create_standing(const struct superblock *sb, const struct engine_status *st)
{
	(void)sb, (void)st;
	return STANDING_UNSURE;
}

void create_job_lost(struct create_job *m, const char *why)
{
	m->lost = true;
	snprintf(m->lost_why, sizeof(m->lost_why), "%s", why);
}

static void identified(void *data)
{
	struct create_job *m = data;

	for (uint32_t i = 0; i < m->desc.count; i++) {
		char uri[DDR_URI_BYTES]; /* m is all one object, for gcc with ASan */

		memcpy(uri, m->desc.uri[i], sizeof(uri));
		snprintf(m->reserve.key[i], RESERVE_KEY_BYTES, "uri:%s", uri);
		m->key_member[i] = (uint8_t)i;
	}
	m->reserve.key_count = m->desc.count;
	m->reserving(m);
}

/* It names an array that the corpus has, or another. */
static void looked_at(void *data)
{
	struct create_job *m = data;
	char why[STORE_WHY_BYTES] = "";
	int err;

	m->imported.geo.n = 3;
	for (uint32_t i = 0; i < DDR_MAX_MEMBERS; i++)
		m->imported.dev_of[i] = i < m->desc.count ? (uint8_t)i : IMPORT_NOWHERE;
	for (uint32_t i = 0; i < DDR_UUID_BYTES; i++)
		m->imported.uuid[i] = (uint8_t)(i + (mood.phase & 7));
	snprintf(m->imported.name, sizeof(m->imported.name), "vol%u", mood.phase & 7);
	err = m->importable(m, m->imported.uuid, m->imported.name, why);
	if (err) {
		m->done(m, err, why);
		return;
	}
	strcpy(m->desc.name, m->imported.name);
	if (m->joins)
		made(m);
	else
		identified(m);
}

int create_job_start(struct create_job *m)
{
	assert(m->desc.count <= DDR_MAX_MEMBERS);
	if (mood.flags & 64)
		return -ENOMEM;
	pthread_mutex_init(&m->lock, NULL);
	do_later(m->what == CREATE_JOB_IMPORT ? looked_at : identified, m);
	return 0;
}

/* ---- the script ----------------------------------------------------------------------------- */

/* Texts of requests and words: those that mean something, or bytes of the input. */
static char *arena[4096];
static size_t arena_used;

static char *text(void)
{
	static const char *const known[] = {
	    "",
	    "vol0",
	    "vol1",
	    "vol2",
	    "00010203-0405-0607-0809-0a0b0c0d0e0f",
	    "/dev/m0",
	    "/dev/m1",
	    "/dev/m2",
	    "nbd://127.0.0.1:10809/x",
	    "release_delay",
	    "2s",
	    "listen",
	    "tcp:127.0.0.1:10809,tcp:127.0.0.2:10809",
	    "locks",
	    "dlm",
	    "cpg",
	    "when_lost",
	    "eio",
	    "shim",
	    "nbd",
	    "hold",
	    "cluster.evict",
	};
	uint8_t which = fuzz_u8(&in);
	const uint8_t *at;
	char *s;
	size_t bytes;

	if (which < sizeof(known) / sizeof(known[0]))
		return (char *)known[which];
	if (which >= 250) { /* about as long as a URI may be */
		s = malloc(520);
		assert(s);
		memset(s, 'x', 520);
		s[DDR_URI_BYTES - 252 + which] = '\0';
	} else {
		at = fuzz_take(&in, which % 80, &bytes);
		s = fuzz_string(at, bytes);
	}
	assert(arena_used < sizeof(arena) / sizeof(arena[0]));
	arena[arena_used++] = s;
	return s;
}

static void arena_clear(void)
{
	while (arena_used)
		free(arena[--arena_used]);
}

static uint32_t number(void)
{
	uint8_t which = fuzz_u8(&in);

	return which < 250 ? which % 40 : fuzz_u32(&in);
}

static void send_request(struct peer *c, Request *r)
{
	size_t bytes = ddraid__ctl__request__get_packed_size(r);
	uint8_t *m = malloc(bytes + 1);

	assert(m);
	ddraid__ctl__request__pack(r, m);
	client_send(c, m, bytes);
	free(m);
}

static void ask_import(struct peer *c, Request *r, uint8_t flags)
{
	Ddraid__Ctl__Import q = DDRAID__CTL__IMPORT__INIT;
	char *uri[16];

	q.degraded = flags & 1;
	q.stale = flags & 2;
	q.n_uri = fuzz_u8(&in) & 15;
	for (size_t i = 0; i < q.n_uri; i++)
		uri[i] = text();
	q.uri = uri;
	r->import = &q;
	send_request(c, r);
}

static void ask_create(struct peer *c, Request *r)
{
	Ddraid__Ctl__Create q = DDRAID__CTL__CREATE__INIT;
	Ddraid__Ctl__Option option[4], *option_at[4];
	char *uri[16];
	uint8_t how;

	q.name = text();
	q.order = number();
	q.parity = number();
	q.layout = number();
	q.slots = number();
	q.stripe_bytes = number();
	how = fuzz_u8(&in);
	q.wipe = how & 1;
	q.old_member = how & 2;
	q.unaligned = how & 4;
	q.n_uri = fuzz_u8(&in) & 15;
	for (size_t i = 0; i < q.n_uri; i++)
		uri[i] = text();
	q.uri = uri;
	q.n_option = fuzz_u8(&in) & 3;
	for (size_t i = 0; i < q.n_option; i++) {
		option[i] = (Ddraid__Ctl__Option)DDRAID__CTL__OPTION__INIT;
		option[i].key = text();
		option[i].value = text();
		option_at[i] = &option[i];
	}
	q.option = option_at;
	r->create = &q;
	send_request(c, r);
}

#define ASK(body_, type_, INIT_, field_, ...)                                                      \
	case DDRAID__CTL__REQUEST__BODY_##body_: {                                                 \
		Ddraid__Ctl__##type_ q = DDRAID__CTL__##INIT_##__INIT;                             \
		__VA_ARGS__;                                                                       \
		r.field_ = &q;                                                                     \
		send_request(c, &r);                                                               \
		break;                                                                             \
	}

static void ask(struct peer *c)
{
	Request r = DDRAID__CTL__REQUEST__INIT;
	uint8_t flags;

	r.version = CTL_VERSION;
	r.body_case = DDRAID__CTL__REQUEST__BODY_VERSION_ASK + fuzz_u8(&in) % 16;
	flags = fuzz_u8(&in);
	switch ((int)r.body_case) {
		ASK(VERSION_ASK, VersionAsk, VERSION_ASK, version_ask, (void)flags)
		ASK(STATUS, StatusAsk, STATUS_ASK, status, q.array = text())
		ASK(START, Start, START, start, q.array = text(); q.stale = flags & 1;
		    q.all_nodes = flags & 2; q.alone = flags & 4; q.take_over = flags & 8)
		ASK(STOP, Stop, STOP, stop, q.array = text(); q.disconnect = flags & 1;
		    q.all_nodes = flags & 2)
		ASK(FAIL, Fail, FAIL, fail, q.array = text(); q.member = number())
		ASK(ADD, Add, ADD, add, q.array = text(); q.member = number(); q.uri = text();
		    q.wipe = flags & 1; q.old_member = flags & 2; q.unaligned = flags & 4)
		ASK(RE_ADD, ReAdd, RE_ADD, re_add, q.array = text(); q.member = number())
		ASK(FORGET, Forget, FORGET, forget, q.array = text(); q.disconnect = flags & 1)
		ASK(NODES, NodesAsk, NODES_ASK, nodes, (void)flags)
		ASK(SET, Set, SET, set, q.array = text(); q.key = text(); q.value = text())
		ASK(GET, Get, GET, get, q.array = text(); q.key = text())
		ASK(WATCH, Watch, WATCH, watch, q.array = text(); q.until = flags & 3)
		ASK(ATTACH, Attach, ATTACH, attach, q.array = text(); q.via = text();
		    q.away = text())
		ASK(DETACH, Detach, DETACH, detach, q.array = text(); q.disconnect = flags & 1)
	case DDRAID__CTL__REQUEST__BODY_CREATE:
		ask_create(c, &r);
		break;
	case DDRAID__CTL__REQUEST__BODY_IMPORT:
		ask_import(c, &r, flags);
		break;
	default:
		r.body_case = DDRAID__CTL__REQUEST__BODY__NOT_SET;
		r.version = flags;
		send_request(c, &r);
	}
}

static void hear(uint32_t from, const Ddraid__Announce__Message *w)
{
	size_t bytes = ddraid__announce__message__get_packed_size(w);
	uint8_t *m = malloc(bytes + 1);

	assert(m);
	ddraid__announce__message__pack(w, m);
	group_cb->msg(NULL, from, m, bytes);
	free(m);
}

static void uuid_make(ProtobufCBinaryData *b, uint8_t uuid[DDR_UUID_BYTES])
{
	uint8_t which = fuzz_u8(&in);

	for (uint8_t i = 0; i < DDR_UUID_BYTES; i++)
		uuid[i] = (uint8_t)(i + (which & 7));
	b->data = uuid;
	b->len = which < 250 ? DDR_UUID_BYTES : which - 250;
}

static uint64_t version(void)
{
	uint8_t which = fuzz_u8(&in);

	return which < 250 ? which : fuzz_u64(&in);
}

static void hear_array(uint32_t from)
{
	Ddraid__Announce__Message w = DDRAID__ANNOUNCE__MESSAGE__INIT;
	Ddraid__Announce__Array a = DDRAID__ANNOUNCE__ARRAY__INIT;
	Ddraid__Announce__Option option[4], *option_at[4];
	uint8_t uuid[DDR_UUID_BYTES], flags = fuzz_u8(&in);
	char *uri[16];

	a.name = text();
	uuid_make(&a.uuid, uuid);
	a.version = version();
	a.said = flags & 8 ? version() : 0;
	a.started = flags & 1;
	a.stop_forced = flags & 2;
	a.n_uri = flags & 4 ? 3 : fuzz_u8(&in) & 15;
	for (size_t i = 0; i < a.n_uri; i++)
		uri[i] = text();
	a.uri = uri;
	a.n_option = flags >> 4 & 3;
	for (size_t i = 0; i < a.n_option; i++) {
		option[i] = (Ddraid__Announce__Option)DDRAID__ANNOUNCE__OPTION__INIT;
		option[i].key = text();
		option[i].value = text();
		option_at[i] = &option[i];
	}
	a.option = option_at;
	w.body_case = DDRAID__ANNOUNCE__MESSAGE__BODY_ARRAY;
	w.array = &a;
	hear(from, &w);
}

static void hear_node(uint32_t from)
{
	Ddraid__Announce__Message w = DDRAID__ANNOUNCE__MESSAGE__INIT;
	Ddraid__Announce__Node a = DDRAID__ANNOUNCE__NODE__INIT;
	Ddraid__Announce__Running run[80], *at[80];
	uint8_t uuid[80][DDR_UUID_BYTES], flags = fuzz_u8(&in);

	a.version = ANNOUNCE_VERSION - (flags >> 6 & 1);
	a.name = text();
	a.dlm = flags & 1;
	a.all = flags & 2;
	a.n_running = flags & 4 ? fuzz_u8(&in) % 80 : flags >> 4 & 3;
	for (size_t i = 0; i < a.n_running; i++) {
		run[i] = (Ddraid__Announce__Running)DDRAID__ANNOUNCE__RUNNING__INIT;
		uuid_make(&run[i].uuid, uuid[i]);
		run[i].serving = flags & 8;
		run[i].clients = number();
		run[i].kept = number();
		at[i] = &run[i];
	}
	a.running = at;
	w.body_case = DDRAID__ANNOUNCE__MESSAGE__BODY_NODE;
	w.node = &a;
	hear(from, &w);
}

static void hear_forgotten(uint32_t from)
{
	Ddraid__Announce__Message w = DDRAID__ANNOUNCE__MESSAGE__INIT;
	Ddraid__Announce__Forgotten a = DDRAID__ANNOUNCE__FORGOTTEN__INIT;
	Ddraid__Announce__Tombstone stone[8], *at[8];
	uint8_t uuid[8][DDR_UUID_BYTES];

	a.n_tombstone = fuzz_u8(&in) & 7;
	for (size_t i = 0; i < a.n_tombstone; i++) {
		stone[i] = (Ddraid__Announce__Tombstone)DDRAID__ANNOUNCE__TOMBSTONE__INIT;
		uuid_make(&stone[i].uuid, uuid[i]);
		stone[i].at_s = version();
		at[i] = &stone[i];
	}
	a.tombstone = at;
	w.body_case = DDRAID__ANNOUNCE__MESSAGE__BODY_FORGOTTEN;
	w.forgotten = &a;
	hear(from, &w);
}

static void hear_reserve(uint32_t from)
{
	Ddraid__Announce__Message w = DDRAID__ANNOUNCE__MESSAGE__INIT;
	Ddraid__Announce__Reserve r = DDRAID__ANNOUNCE__RESERVE__INIT;
	Ddraid__Announce__Answer a = DDRAID__ANNOUNCE__ANSWER__INIT;
	Ddraid__Announce__Release end = DDRAID__ANNOUNCE__RELEASE__INIT;
	uint8_t flags = fuzz_u8(&in);
	char *key[80], uri[80][16];

	r.id = end.id = version();
	r.held = flags & 4;
	r.brief = flags & 8;
	r.name = flags & 16 ? text() : (char *)"vol0";
	r.what = flags & 32 ? text() : (char *)"create";
	r.n_key = flags & 64 ? fuzz_u8(&in) % 80 : 2;
	for (size_t i = 0; i < r.n_key; i++) {
		snprintf(uri[i], sizeof(uri[i]), "uri:/dev/m%u", (unsigned)(i + (flags >> 7)));
		key[i] = uri[i];
	}
	r.key = key;
	/* An answer to this node's own: its ids are known to whoever heard them. */
	a.node = flags & 16 ? number() : NODE;
	a.id = flags & 32 ? version() : last_reserved;
	a.err = flags & 8 ? -EBUSY : 0;
	a.why = flags & 4 ? text() : (char *)"";
	a.key = number();
	if ((flags & 3) == 0) {
		w.body_case = DDRAID__ANNOUNCE__MESSAGE__BODY_RELEASE;
		w.release = &end;
	} else if ((flags & 3) == 1) {
		w.body_case = DDRAID__ANNOUNCE__MESSAGE__BODY_ANSWER;
		w.answer = &a;
	} else {
		w.body_case = DDRAID__ANNOUNCE__MESSAGE__BODY_RESERVE;
		w.reserve = &r;
	}
	hear(from, &w);
}

static void view(void)
{
	struct group_view v = {.id = 1};
	uint32_t first = fuzz_u8(&in), others = fuzz_u8(&in) % DDR_MAX_NODES;

	v.node[v.count] = NODE;
	v.fresh[v.count++] = !told_view;
	for (uint32_t i = 0; i < others; i++) {
		v.node[v.count] = 3 + first + i;
		v.fresh[v.count++] = first & 1;
	}
	told_view = true;
	group_cb->view(NULL, &v);
}

static void quorum(void)
{
	struct group_quorum q = {.count = 1, .node = {NODE}};
	uint8_t flags = fuzz_u8(&in);

	q.quorate = flags & 1;
	for (; q.count < (uint32_t)(flags >> 3); q.count++)
		q.node[q.count] = 2 + q.count;
	group_cb->quorum(NULL, &q);
}

static void up(void)
{
	struct group_self self = {.node = NODE, .name = "n2"};

	group_cb->up(NULL, &self);
}

static void moods(void)
{
	mood.state = fuzz_u8(&in);
	mood.phase = fuzz_u8(&in);
	mood.err = fuzz_u8(&in);
	mood.clients = fuzz_u8(&in);
	mood.flags = fuzz_u8(&in);
}

static void event(uint8_t what)
{
	struct peer *c = &clients[what >> 5 & 3 ? (what >> 5 & 3) - 1 : 0];
	uint32_t from = 1 + (what >> 5);
	const uint8_t *at;
	size_t bytes;

	switch (what & 15) {
	case 0:
	case 1:
	case 2:
		ask(c);
		break;
	case 3:
		at = fuzz_take(&in, fuzz_u8(&in), &bytes);
		if (what & 16)
			client_send_any(c, at, bytes);
		else
			client_send(c, at, bytes);
		break;
	case 4:
		if (what & 16) {
			file_lost = true;
			file_fails = what & 128;
			break;
		}
		client_leave(c);
		break;
	case 5:
		c->full = !c->full;
		if (c->connected)
			client_turn(c);
		break;
	case 6:
		at = fuzz_take(&in, fuzz_u8(&in), &bytes);
		group_cb->msg(NULL, from, at, bytes);
		break;
	case 7:
	case 8:
		hear_array(from);
		break;
	case 9:
		hear_node(from);
		break;
	case 10:
		if (what & 16)
			hear_reserve(from);
		else
			hear_forgotten(from);
		break;
	case 11:
		view();
		break;
	case 12:
		quorum();
		break;
	case 13:
		moods();
		break;
	case 14:
		for (int n = fuzz_u8(&in); n-- && timer_fire();)
			;
		break;
	default:
		if (what & 16)
			disk_fails = !disk_fails;
		else if (what & 32)
			group_cb->lost(NULL, -EIO, "corosync ended");
		else
			up();
	}
	arena_clear();
	if (!(what & 128))
		settle();
}

/* ---- begin and end -------------------------------------------------------------------------- */

/* The store would write anew what it knows. */
static void clean_dir(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char path[400];

	assert(d);
	store_close();
	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (strcmp(e->d_name, "lock") && strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			unlink(path);
	}
	closedir(d);
}

static void remove_dir(void)
{
	char path[96];

	clean_dir();
	snprintf(path, sizeof(path), "%s/lock", dir);
	unlink(path);
	rmdir(dir);
}

static void prepare(void)
{
	const char *tmp = getenv("TMPDIR");
	char why[STORE_WHY_BYTES];

	if (dir[0])
		return;
	snprintf(dir, sizeof(dir), "%.40s/fuzz-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(dir) || store_open(dir, why)) {
		perror(dir);
		exit(1);
	}
	atexit(remove_dir);
}

static void daemon_begin(void)
{
	struct daemon_env e = {.conf = &conf, .main = &main_box, .worker = &worker};
	char why[STORE_WHY_BYTES] = "";
	int err;

	config_init(&conf);
	mailbox_init(&main_box, kick, NULL);
	mailbox_init(&worker.box, kick, NULL);
	memset(&mood, 0, sizeof(mood));
	memset(clients, 0, sizeof(clients));
	disk_fails = told_view = false;
	random_state = 1;
	err = daemon_start(&e, why);
	assert(!err);
	world_group_open();
	settle();
}

static void stopped(void)
{
}

/* The cluster is there, and nobody else: whatever waits for others goes on, or ends. */
static void alone(void)
{
	struct group_view v = {.id = 1, .count = 1, .node = {NODE}, .fresh = {!told_view}};
	struct group_quorum q = {.quorate = true, .count = 1, .node = {NODE}};

	up();
	told_view = true;
	group_cb->view(NULL, &v);
	group_cb->quorum(NULL, &q);
	settle();
}

/* Half an hour, or until there is none but the daemon's own, which never ends. */
static void timers_end(void)
{
	uint64_t end_ns = now_ns + UINT64_C(1800000000000);

	while (timers && timers->next && now_ns < end_ns)
		timer_fire();
}

/* Whoever asked is answered: each wait has an end, if only arrays end when they are told to. */
static void finish(void)
{
	memset(&mood, 0, sizeof(mood));
	disk_fails = false;
	file_fails = false;
	for (int i = 0; i < CLIENTS; i++) {
		clients[i].full = false;
		if (clients[i].connected)
			client_turn(&clients[i]);
	}
	alone();
	timers_end();
	for (int i = 0; i < CLIENTS; i++) {
		const struct peer *c = &clients[i];

		assert(!c->connected || c->watches || c->asked == c->answered);
		client_leave(&clients[i]);
	}
	timers_end();
	assert(!timers->next);
	for (uint32_t i = 0; i < manager_count(); i++)
		manager_at(i)->array->clients = 0;
	daemon_stop(stopped);
	settle();
	assert(!manager_running());
	world_group_close();
	daemon_end();
	settle();
	while (timers) {
		struct timer *t = timers;

		timers = t->next;
		free(t);
	}
}

static void next_daemon_finds_all(void)
{
	static struct store_array was[STORE_MAX_ARRAYS];
	uint32_t stored = 0, gone = 0;

	for (uint32_t i = 0; i < manager_count(); i++) {
		const struct array_entry *k = manager_at(i);

		gone += k->desc.forgotten;
		if (k->stored && !k->desc.forgotten)
			was[stored++] = k->desc;
	}
	world_manager_reset();
	world_announce_reset();
	daemon_begin();
	for (uint32_t i = 0; i < manager_count(); i++)
		assert(!manager_at(i)->damaged);
	assert(gone || manager_count() >= stored);
	for (uint32_t i = 0; i < stored; i++) {
		const struct array_entry *k = manager_find_uuid(was[i].uuid);

		assert(k && !strcmp(k->desc.name, was[i].name));
		assert(k->desc.version == was[i].version && k->desc.count == was[i].count);
		for (uint32_t m = 0; m < was[i].count; m++)
			assert(!strcmp(k->desc.uri[m], was[i].uri[m]) &&
			       !strcmp(k->desc.agreed[m], was[i].agreed[m]));
	}
	finish();
	world_manager_reset();
	world_announce_reset();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char why[STORE_WHY_BYTES];
	int err;

	prepare();
	in = (struct fuzz_in){data, bytes};
	now_ns = last_reserved = 0;
	daemon_begin();
	for (int i = 0; i < EVENTS_MAX && in.left; i++)
		event(fuzz_u8(&in));
	settle();
	finish();
	next_daemon_finds_all();
	clean_dir();
	err = store_open(dir, why);
	assert(!err);
	return 0;
}
