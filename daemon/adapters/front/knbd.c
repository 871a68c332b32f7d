// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The block device front-end where ddraid's own driver is not: /dev/nbdN, by the kernel's NBD
 * client. The kernel is given one end of a pair of sockets by netlink; the other is an NBD client
 * like any other (adapters/front/nbd/client.c), but for the negotiation, which was never needed:
 * both ends are ours.
 *
 *	state	/dev/nbdN				next
 *	SHUT	not ours				SERVING (serve)
 *	SERVING	connected				SHUT (reset, remove), HELD (hold, or the
 *							connection broke)
 *	HELD	ours: it waits. The connection stays	SHUT (reset, remove), SERVING (serve)
 *		until nothing is under way on it, and
 *		takes nothing more
 *
 * The device is found again by the identifier that it was connected with, "ddraid UUID LIFE NAME",
 * which the kernel shows in /sys/block/nbdN/backend and asks for when the connection is replaced.
 * The name is for udev.
 * What was not answered on the old connection the kernel sends again on the new one,
 * IO_TIMEOUT_MS later.
 *
 * One connection: of several, the kernel takes each for broken that has not answered within its
 * request timeout; of a single one with no such timeout it only says so in its log. An array may
 * hold requests for longer.
 *
 * away_ms is the kernel's dead connection timeout, in seconds, rounded up. Each request that finds
 * no connection waits so long, so there is one for as long as this daemon may still write for its
 * consumers, who hear of an error only after that (runtime/disk.c); when the first has, the rest
 * fails at once, until there is a connection again. What was sent on the old one is no part of
 * this: it waits until it can be sent again, or the device is disconnected. To have that fail as
 * well takes a request timeout, see above.
 *
 * The kernel does not tell who has the device open. front_remove looks for who that may be
 * (dev_open.h). One that opens it in that very moment finds it gone.
 */
#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/nbd-netlink.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <syslog.h>
#include <unistd.h>

#include "daemon/adapters/front/dev_open.h"
#include "daemon/adapters/front/nbd/client.h"
#include "daemon/base/aside.h"
#include "daemon/base/units.h"
#include "daemon/ports/front.h"

#define ID_BYTES (64 + DDR_NAME_BYTES)
/* How long the kernel waits for a new connection, for ever: its timer takes no more. */
#define HOLD_S (365u * 86400u)
/* Of NBD's protocol: there are flags; flush, FUA and trim are known. The client of 6.1 has no
 * write-zeroes. */
#define SERVER_FLAGS (1u << 0 | 1u << 2 | 1u << 3 | 1u << 5)
#define IO_TIMEOUT_MS 10000u
#define BUFFER_BYTES (1 << 20) /* of the sockets */

enum knbd_state { KNBD_SHUT, KNBD_SERVING, KNBD_HELD };

struct front_knbd {
	struct front front; /* must be first */
	struct nbd_shared shared;
	enum knbd_state state;
	struct nbd_client *client;
	struct loop_hook hook;
	struct nl_sock *nl;
	int family;
	uint32_t index;
	char id[ID_BYTES]; /* of the device that we have */
	char device[32];
	struct dev_count *count; /* of its opens, while it is ours; or memory was short */
};

static struct front_knbd *knbd_of(struct front *front)
{
	return (struct front_knbd *)(void *)front;
}

/* ---- /sys ----------------------------------------------------------------------------------- */

/* A line from a file; "" if there is none. */
static void file_line(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void file_line(char *text, size_t bytes, const char *format, ...)
{
	char path[300];
	va_list ap;
	ssize_t n;
	int fd;

	va_start(ap, format);
	vsnprintf(path, sizeof(path), format, ap);
	va_end(ap);
	text[0] = '\0';
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, text, bytes - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
}

/* What all of an array's begin with; its length. */
static size_t id_prefix(char id[ID_BYTES], const uint8_t uuid[DDR_UUID_BYTES])
{
	size_t at = (size_t)sprintf(id, "ddraid ");

	for (int i = 0; i < DDR_UUID_BYTES; i++)
		at += (size_t)sprintf(id + at, "%02x", uuid[i]);
	return at + (size_t)sprintf(id + at, " ");
}

/*
 * The next device of this array that is connected, or waits for it. One that was disconnected keeps
 * its identifier for as long as somebody has it open, but no process.
 */
static bool device_next(DIR *dir, const char *prefix, size_t bytes, uint32_t *index,
			char id[ID_BYTES])
{
	struct dirent *d;

	while (dir && (d = readdir(dir))) {
		char *end, pid[32];

		if (strncmp(d->d_name, "nbd", 3) || !isdigit((unsigned char)d->d_name[3]))
			continue;
		*index = (uint32_t)strtoul(d->d_name + 3, &end, 10);
		file_line(id, ID_BYTES, "/sys/block/%.20s/backend", d->d_name);
		file_line(pid, sizeof(pid), "/sys/block/%.20s/pid", d->d_name);
		if (!*end && !strncmp(id, prefix, bytes) && pid[0] && strcmp(pid, "0") != 0)
			return true;
	}
	return false;
}

/* ---- netlink -------------------------------------------------------------------------------- */

static struct nl_msg *message_new(const struct front_knbd *f, uint8_t command)
{
	struct nl_msg *m = nlmsg_alloc();

	assert(m && genlmsg_put(m, NL_AUTO_PORT, NL_AUTO_SEQ, f->family, 0, 0, command, 0));
	return m;
}

struct talk {
	bool done;
	int err;
	int64_t index;
};

static int on_reply(struct nl_msg *m, void *arg)
{
	struct nlattr *attr[NBD_ATTR_MAX + 1];
	struct talk *t = arg;

	if (!genlmsg_parse(nlmsg_hdr(m), 0, attr, NBD_ATTR_MAX, NULL) && attr[NBD_ATTR_INDEX])
		t->index = nla_get_u32(attr[NBD_ATTR_INDEX]);
	return NL_OK;
}

static int on_ack(struct nl_msg *m, void *arg)
{
	struct talk *t = arg;

	(void)m;
	t->done = true;
	return NL_STOP;
}

static int on_error(struct sockaddr_nl *from, struct nlmsgerr *e, void *arg)
{
	struct talk *t = arg;

	(void)from;
	t->err = e->error;
	t->done = true;
	return NL_STOP;
}

/* Sends m and waits for what the kernel says to it, which it does before the send is over. */
static int message_send(struct front_knbd *f, struct nl_msg *m, int64_t *index)
{
	struct nl_cb *cb = nl_cb_alloc(NL_CB_DEFAULT);
	struct talk t = {.index = -1};

	assert(cb);
	nl_cb_set(cb, NL_CB_VALID, NL_CB_CUSTOM, on_reply, &t);
	nl_cb_set(cb, NL_CB_ACK, NL_CB_CUSTOM, on_ack, &t);
	nl_cb_err(cb, NL_CB_CUSTOM, on_error, &t);
	if (nl_send_auto(f->nl, m) < 0)
		t.err = -EIO;
	nlmsg_free(m);
	while (!t.err && !t.done) {
		if (nl_recvmsgs(f->nl, cb) < 0 && !t.done)
			t.err = -EIO;
	}
	nl_cb_put(cb);
	if (index)
		*index = t.index;
	return t.err;
}

static void put_socket(struct nl_msg *m, int fd)
{
	struct nlattr *list = nla_nest_start(m, NBD_ATTR_SOCKETS), *item;

	item = nla_nest_start(m, NBD_SOCK_ITEM);
	NLA_PUT_U32(m, NBD_SOCK_FD, (uint32_t)fd);
	nla_nest_end(m, item);
	nla_nest_end(m, list);
	return;
nla_put_failure:
	assert(!"one page holds it");
}

static uint64_t away_s(uint32_t away_ms)
{
	return away_ms ? (away_ms + 999ull) / 1000 : HOLD_S;
}

static int connect_new(struct front_knbd *f, const struct front_export *ex, int fd)
{
	struct nl_msg *m = message_new(f, NBD_CMD_CONNECT);
	int64_t index = -1;
	int err;

	NLA_PUT_U64(m, NBD_ATTR_SIZE_BYTES, ex->size_bytes);
	NLA_PUT_U64(m, NBD_ATTR_BLOCK_SIZE_BYTES, front_block_bytes(ex));
	NLA_PUT_U64(m, NBD_ATTR_SERVER_FLAGS, SERVER_FLAGS);
	NLA_PUT_U64(m, NBD_ATTR_DEAD_CONN_TIMEOUT, away_s(ex->away_ms));
	NLA_PUT_STRING(m, NBD_ATTR_BACKEND_IDENTIFIER, f->id);
	put_socket(m, fd);
	err = message_send(f, m, &index);
	f->index = (uint32_t)index;
	return err || index >= 0 ? err : -EIO;
nla_put_failure:
	assert(!"one page holds it");
	return -ENOMEM;
}

/* fd -1: the connection stays. */
static int reconfigure(struct front_knbd *f, uint32_t away_ms, int fd)
{
	struct nl_msg *m = message_new(f, NBD_CMD_RECONFIGURE);

	NLA_PUT_U32(m, NBD_ATTR_INDEX, f->index);
	NLA_PUT_U64(m, NBD_ATTR_DEAD_CONN_TIMEOUT, away_s(away_ms));
	NLA_PUT_STRING(m, NBD_ATTR_BACKEND_IDENTIFIER, f->id);
	if (fd >= 0)
		put_socket(m, fd);
	return message_send(f, m, NULL);
nla_put_failure:
	assert(!"one page holds it");
	return -ENOMEM;
}

static int disconnect(struct front_knbd *f, uint32_t index)
{
	struct nl_msg *m = message_new(f, NBD_CMD_DISCONNECT);

	NLA_PUT_U32(m, NBD_ATTR_INDEX, index);
	return message_send(f, m, NULL);
nla_put_failure:
	assert(!"one page holds it");
	return -ENOMEM;
}

/* ---- the connection ------------------------------------------------------------------------- */

static void client_gone(struct nbd_shared *s, uint32_t index)
{
	struct front_knbd *f =
	    (struct front_knbd *)((char *)s - offsetof(struct front_knbd, shared));

	(void)index;
	f->client = NULL;
}

static bool turn_end(void *arg)
{
	struct front_knbd *f = arg;
	bool again = nbd_clients_attend(&f->shared);

	if (f->state == KNBD_SERVING && (!f->client || f->client->state != NBD_C_OPEN)) {
		nbd_log(&f->shared, NULL, LOG_ERR,
			"%s: the kernel has ended the connection; it gets another one", f->device);
		f->state = KNBD_HELD;
		/* Until serve, which waits for what is under way, says otherwise. */
		reconfigure(f, AWAY_HOLD, -1);
	}
	return again;
}

/* One end for the kernel; the other is f->client. */
static int client_make(struct front_knbd *f, int *kernel_fd)
{
	int fd[2], bytes = BUFFER_BYTES, err;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0)
		return -errno;
	for (int i = 0; i < 2; i++)
		setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	/* Only ours: the kernel's end blocks. */
	err = fcntl(fd[1], F_SETFL, O_RDWR | O_NONBLOCK) < 0 ? -errno : 0;
	if (err) {
		close(fd[1]);
	} else {
		f->client = nbd_client_connected(&f->shared, 0, fd[1], "kernel");
		err = f->client ? 0 : -ENOMEM;
	}
	if (err)
		close(fd[0]);
	else
		*kernel_fd = fd[0];
	return err;
}

/* ---- the port's hooks ----------------------------------------------------------------------- */

/*
 * When what the last connection did not answer is sent again; 30 s, if this fails. By a thread: the
 * kernel lets one at a time change a queue, and who changes its scheduler waits for our answers.
 */
static void *io_timeout_set(void *arg)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/sys/block/nbd%u/queue/io_timeout", (uint32_t)(uintptr_t)arg);
	fd = aside_alone() ? open(path, O_WRONLY | O_CLOEXEC) : -1;
	if (fd >= 0) {
		dprintf(fd, "%u", IO_TIMEOUT_MS);
		close(fd);
	}
	return NULL;
}

/* Names the device that is to be ours; true: it is there already. Others of this array end. */
static bool others_end(struct front_knbd *f, const struct front_export *ex)
{
	size_t prefix = id_prefix(f->id, ex->uuid);
	DIR *dir = opendir("/sys/block");
	char id[ID_BYTES];
	uint32_t index;
	bool same = false;

	snprintf(f->id + prefix, ID_BYTES - prefix, "%016llx %s", (unsigned long long)ex->token,
		 ex->name);
	while (device_next(dir, f->id, prefix, &index, id)) {
		if (!strcmp(id, f->id)) {
			f->index = index;
			same = true;
			continue;
		}
		nbd_log(&f->shared, NULL, LOG_ERR,
			"/dev/nbd%u of an earlier daemon is disconnected: opens of it fail (R6)",
			index);
		disconnect(f, index);
	}
	if (dir)
		closedir(dir);
	return same;
}

static int device_take(struct front_knbd *f, const struct front_export *ex, char *why)
{
	char device[sizeof(f->device)];
	bool same = others_end(f, ex);
	int fd = -1, err = client_make(f, &fd);

	if (!err) {
		err = same ? reconfigure(f, ex->away_ms, fd) : connect_new(f, ex, fd);
		if (err && same) { /* somebody has disconnected it */
			same = false;
			err = connect_new(f, ex, fd);
		}
		close(fd);
		if (err)
			nbd_client_cut(f->client);
	}
	if (err) {
		snprintf(why, FRONT_WHY_BYTES, "the kernel's NBD client takes no device: %s",
			 strerror(-err));
		return err;
	}
	snprintf(device, sizeof(device), "/dev/nbd%u", f->index);
	if (!f->count || strcmp(device, f->device) != 0) {
		strcpy(f->device, device);
		dev_count_free(f->count);
		f->count = dev_count_new(device);
	}
	if (same)
		nbd_log(&f->shared, NULL, LOG_NOTICE, "%s is taken over", f->device);
	else if (aside_start(io_timeout_set, (void *)(uintptr_t)f->index))
		nbd_log(&f->shared, NULL, LOG_WARNING,
			"%s: after a restart of ddraidd requests wait for 30 s: no thread",
			f->device);
	return 0;
}

static int front_knbd_serve(struct front *front, const struct front_export *ex, char *why)
{
	struct front_knbd *f = knbd_of(front);
	long page = sysconf(_SC_PAGESIZE);
	int err;

	assert(f->state != KNBD_SERVING);
	if (!ex->size_bytes || ex->size_bytes % front_block_bytes(ex) ||
	    ex->size_bytes > INT64_MAX || !memchr(ex->name, 0, sizeof(ex->name))) {
		snprintf(why, FRONT_WHY_BYTES, "an array of %llu bytes can't be a device",
			 (unsigned long long)ex->size_bytes);
		return -EINVAL;
	}
	if (front_block_bytes(ex) > page) {
		snprintf(why, FRONT_WHY_BYTES,
			 "the blocks of %.64s have %u bytes, and those of the kernel's devices at "
			 "most %ld: use it by NBD (qemu takes such blocks), or make it with a "
			 "--stripe of that size",
			 ex->name, front_block_bytes(ex), page);
		return -EINVAL;
	}
	if (f->client) {
		snprintf(why, FRONT_WHY_BYTES, "requests of its last connection have not ended");
		return -EBUSY;
	}
	f->shared.ex = *ex;
	err = device_take(f, ex, why);
	if (err) {
		f->state = KNBD_SHUT;
		return err;
	}
	f->state = KNBD_SERVING;
	return 0;
}

static void front_knbd_complete(struct front *front, uint64_t tag, int err)
{
	struct front_knbd *f = knbd_of(front);

	assert(tag >> 56 == f->shared.id && f->client);
	nbd_client_complete(f->client, tag >> 32 & 0xff, (uint32_t)tag, err);
}

/* The kernel keeps what is not answered, and sends it again. */
static void front_knbd_hold(struct front *front)
{
	struct front_knbd *f = knbd_of(front);

	if (f->state != KNBD_SERVING)
		return;
	f->state = KNBD_HELD;
	if (f->client)
		nbd_client_hold(f->client);
}

static void front_knbd_reset(struct front *front)
{
	struct front_knbd *f = knbd_of(front);
	int err;

	if (f->state == KNBD_SHUT)
		return;
	f->state = KNBD_SHUT;
	dev_count_free(f->count);
	f->count = NULL;
	/*
	 * First our end. The kernel's disconnect waits for the mutex of whoever sends to us, and
	 * that one for room in a socket that we don't read while all slots are taken: for ever. The
	 * kernel can't send again meanwhile what was on its way: this was its only connection, it
	 * waits for another one, and disconnect makes that wait fail. What the sink has ends there:
	 * nothing of it is answered.
	 */
	if (f->client)
		nbd_client_cut(f->client);
	err = disconnect(f, f->index);
	if (err)
		nbd_log(&f->shared, NULL, LOG_ERR, "%s can't be disconnected: %s", f->device,
			strerror(-err));
	else
		nbd_log(&f->shared, NULL, LOG_NOTICE, "%s is disconnected: opens of it fail",
			f->device);
	f->shared.stats.dropped++;
}

static int front_knbd_remove(struct front *front)
{
	struct front_knbd *f = knbd_of(front);
	int err = f->state == KNBD_SHUT ? 0 : dev_open_look(f->device, 0);

	if (!err)
		front_knbd_reset(front);
	return err;
}

static void front_knbd_close(struct front *front)
{
	struct front_knbd *f = knbd_of(front);

	if (f->client) {
		nbd_client_cut(f->client);
		nbd_client_free(f->client);
	}
	dev_count_free(f->count);
	loop_hook_del(f->shared.loop, &f->hook);
	nbd_shared_fini(&f->shared);
	nl_socket_free(f->nl);
	free(f);
}

static void front_knbd_stats(const struct front *front, struct front_stats *st)
{
	const struct front_knbd *f = (const struct front_knbd *)(const void *)front;

	*st = f->shared.stats;
	st->clients = f->state == KNBD_SHUT || !f->count ? 0 : dev_count_get(f->count);
}

static const char *front_knbd_device(const struct front *front)
{
	const struct front_knbd *f = (const struct front_knbd *)(const void *)front;

	return f->state == KNBD_SERVING ? f->device : NULL;
}

static int front_knbd_patience(struct front *front, uint32_t away_ms, char *why)
{
	struct front_knbd *f = knbd_of(front);
	int err = reconfigure(f, away_ms, -1);

	if (err)
		snprintf(why, FRONT_WHY_BYTES, "the kernel's NBD client takes no other time: %s",
			 strerror(-err));
	return err;
}

static bool netlink_open(struct front_knbd *f)
{
	f->nl = nl_socket_alloc();
	f->family = f->nl && !genl_connect(f->nl) ? genl_ctrl_resolve(f->nl, "nbd") : -1;
	return f->family >= 0;
}

static int front_knbd_discard(const char *name, const uint8_t uuid[DDR_UUID_BYTES], bool force,
			      uint32_t wait_ms, char *why)
{
	struct front_knbd f = {0};
	char id[ID_BYTES], found[ID_BYTES];
	size_t prefix = id_prefix(id, uuid);
	DIR *dir = opendir("/sys/block");
	int err = 0;

	while (!err && device_next(dir, id, prefix, &f.index, found)) {
		snprintf(f.device, sizeof(f.device), "/dev/nbd%u", f.index);
		err = force ? 0 : dev_open_look(f.device, wait_ms);
		if (err) {
			snprintf(
			    why, FRONT_WHY_BYTES,
			    "%s is open%s; close it, or --disconnect to make all of its requests "
			    "fail",
			    f.device,
			    err == -EBUSY ? ", and waits for the array"
					  : ", as far as is known yet");
			continue;
		}
		err = f.nl || netlink_open(&f) ? disconnect(&f, f.index) : -EIO;
		if (err)
			snprintf(why, FRONT_WHY_BYTES, "%s of %s can't be disconnected: %s",
				 f.device, name, strerror(-err));
	}
	if (dir)
		closedir(dir);
	nl_socket_free(f.nl);
	return err;
}

static struct front_ops knbd_ops;

static int front_knbd_open(const struct front_cfg *cfg, struct front **out, char *why)
{
	struct front_knbd *f = calloc(1, sizeof(*f));

	if (!f) {
		snprintf(why, FRONT_WHY_BYTES, "can't make a device: out of memory");
		return -ENOMEM;
	}
	f->front.ops = &knbd_ops;
	nbd_shared_init(&f->shared, cfg);
	f->shared.gone = client_gone;
	f->hook = (struct loop_hook){.run = turn_end, .arg = f};
	loop_hook_add(cfg->loop, &f->hook);
	if (!netlink_open(f)) {
		snprintf(why, FRONT_WHY_BYTES,
			 "the kernel's NBD client can't be reached by netlink: load it (modprobe "
			 "nbd), and run ddraidd in the machine's own network namespace");
		front_knbd_close(&f->front);
		return -EOPNOTSUPP;
	}
	*out = &f->front;
	return 0;
}

static struct front_ops knbd_ops = {
    .name = "knbd",
    .open = front_knbd_open,
    .serve = front_knbd_serve,
    .complete = front_knbd_complete,
    .reset = front_knbd_reset,
    .hold = front_knbd_hold,
    .close = front_knbd_close,
    .stats = front_knbd_stats,
    .remove = front_knbd_remove,
    .device = front_knbd_device,
    .patience = front_knbd_patience,
    .discard = front_knbd_discard,
};
FRONT_REGISTER(knbd_ops)
