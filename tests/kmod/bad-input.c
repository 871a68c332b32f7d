/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the kernel driver must refuse of a session's calls, other than answers (disk-server
 * --probe). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kmod/ddraid_uapi.h"

static int failed;

static void expect(const char *what, int got, int want)
{
	if (got == want)
		return;
	printf("%s: %d (%s), expected %d\n", what, got, strerror(got), want);
	failed++;
}

static int session(void)
{
	return open(DDRAID_CONTROL, O_RDWR | O_CLOEXEC);
}

static int call(int fd, unsigned long command, void *arg)
{
	return ioctl(fd, command, arg) ? errno : 0;
}

static struct ddraid_attach good(void)
{
	struct ddraid_attach a = {
	    .api = DDRAID_API_VERSION,
	    .logical_block = 4096,
	    .physical_block = 4096,
	    .io_max = DDRAID_IO_MAX,
	    .zeroes_max = 1u << 20,
	    .depth = 8,
	    .size = 1u << 20,
	};

	memset(a.uuid, 7, sizeof(a.uuid));
	strcpy(a.name, "bad-input");
	return a;
}

#define REFUSED(error_, ...)                                                                       \
	do {                                                                                       \
		struct ddraid_attach a = good();                                                   \
                                                                                                   \
		__VA_ARGS__;                                                                       \
		expect(#__VA_ARGS__, call(fd, DDRAID_IOC_ATTACH, &a), error_);                     \
	} while (0)

static void bad_attaches(int fd)
{
	REFUSED(EPROTO, a.api = 0);
	REFUSED(EPROTO, a.api = DDRAID_API_VERSION + 1);
	REFUSED(EINVAL, a.flags = 4);
	REFUSED(EINVAL, a.flags = 0x80000001);
	REFUSED(EINVAL, a.logical_block = 0);
	REFUSED(EINVAL, a.logical_block = 512);
	REFUSED(EINVAL, a.logical_block = 6144);
	REFUSED(EINVAL, a.logical_block = a.physical_block = 1u << 16);
	REFUSED(EINVAL, a.physical_block = 2048);
	REFUSED(EINVAL, a.physical_block = 12288);
	REFUSED(EINVAL, a.physical_block = 1u << 31);
	REFUSED(EINVAL, a.io_opt = 4097);
	REFUSED(EINVAL, a.io_max = 0);
	REFUSED(EINVAL, a.io_max = 5000);
	REFUSED(EINVAL, a.io_max = DDRAID_IO_MAX + 4096);
	REFUSED(EINVAL, a.zeroes_max = 1);
	REFUSED(EINVAL, a.physical_block = 16384, a.zeroes_max = 4096);
	REFUSED(EINVAL, a.depth = 0);
	REFUSED(EINVAL, a.depth = DDRAID_DEPTH_MAX + 1);
	REFUSED(EINVAL, a.depth = UINT_MAX);
	REFUSED(EINVAL, a.size = 0);
	REFUSED(EINVAL, a.size = 4097);
	REFUSED(EINVAL, a.size = 1ull << 63);
	REFUSED(EINVAL, memset(a.uuid, 0, sizeof(a.uuid)));
	REFUSED(EINVAL, a.name[0] = 0);
	REFUSED(EINVAL, a.name[0] = '.');
	REFUSED(EINVAL, a.name[1] = '/');
	REFUSED(EINVAL, a.name[1] = ' ');
	REFUSED(EINVAL, a.name[1] = '\n');
	REFUSED(EINVAL, a.name[1] = (char)0xe9);
	REFUSED(EINVAL, memset(a.name, 'x', sizeof(a.name)));
	expect("ATTACH of nothing", call(fd, DDRAID_IOC_ATTACH, NULL), EFAULT);
	expect("ATTACH of the kernel", call(fd, DDRAID_IOC_ATTACH, (void *)0xffff888000000000),
	       EFAULT);
}

static void calls_without_a_disk(int fd)
{
	struct ddraid_exchange x = {0};
	struct ddraid_status st = {0};
	struct ddraid_version v = {.reserved = 1};

	expect("VERSION", call(fd, DDRAID_IOC_VERSION, &v), 0);
	expect("VERSION's api", (int)v.api, DDRAID_API_VERSION);
	expect("VERSION's reserved", (int)v.reserved, 0);
	expect("VERSION to nowhere", call(fd, DDRAID_IOC_VERSION, NULL), EFAULT);
	expect("EXCHANGE unbound", call(fd, DDRAID_IOC_EXCHANGE, &x), ENOTCONN);
	expect("DETACH unbound", call(fd, DDRAID_IOC_DETACH, NULL), ENOTCONN);
	expect("REVOKE unbound", call(fd, DDRAID_IOC_REVOKE, NULL), ENOTCONN);
	expect("STATUS unbound", call(fd, DDRAID_IOC_STATUS, &st), ENOTCONN);
	memset(st.uuid, 99, sizeof(st.uuid));
	expect("STATUS of no disk", call(fd, DDRAID_IOC_STATUS, &st), ENOENT);
	expect("STATUS to nowhere", call(fd, DDRAID_IOC_STATUS, NULL), EFAULT);
	expect("unknown call", call(fd, _IO(0xDD, 0x3f), NULL), ENOTTY);
	expect("another size", call(fd, _IOWR(0xDD, 0x42, int), NULL), ENOTTY);
}

static void two_sessions(int fd)
{
	struct ddraid_attach a = good();
	struct ddraid_exchange x = {.requests_room = 1, .requests = 4096};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct ddraid_status st = {0};
	int other = session();

	a.cookie = 5;
	expect("ATTACH", call(fd, DDRAID_IOC_ATTACH, &a), 0);
	expect("ATTACH's cookie", (int)a.cookie, 0);
	expect("nothing waits", poll(&p, 1, 0), 0);
	expect("room nowhere, but nothing to put there", call(fd, DDRAID_IOC_EXCHANGE, &x), 0);
	x.actions_count = DDRAID_BATCH_MAX + 1;
	expect("too many actions", call(fd, DDRAID_IOC_EXCHANGE, &x), EINVAL);
	x.actions_count = 0, x.requests_room = UINT_MAX;
	expect("too much room", call(fd, DDRAID_IOC_EXCHANGE, &x), EINVAL);
	a = good();
	expect("ATTACH twice", call(fd, DDRAID_IOC_ATTACH, &a), EISCONN);
	expect("ATTACH beside", call(other, DDRAID_IOC_ATTACH, &a), EBUSY);
	a.flags = DDRAID_FRESH;
	expect("ATTACH fresh beside", call(other, DDRAID_IOC_ATTACH, &a), EBUSY);
	a = good(), a.uuid[0]++;
	expect("ATTACH with a name that is taken", call(other, DDRAID_IOC_ATTACH, &a), EEXIST);
	expect("EXCHANGE beside", call(other, DDRAID_IOC_EXCHANGE, &x), ENOTCONN);
	memcpy(st.uuid, good().uuid, sizeof(st.uuid));
	expect("STATUS beside", call(other, DDRAID_IOC_STATUS, &st), 0);
	expect("STATUS's name", strcmp(st.name, good().name), 0);
	expect("STATUS's pid", st.pid, getpid());
	expect("STATUS's flags", (int)st.flags, DDRAID_SERVED);
	expect("STATUS's cookie", (int)st.cookie, 5);
	close(fd);

	/* Taken over with other values. */
	a = good(), strcpy(a.name, "other");
	expect("another name", call(other, DDRAID_IOC_ATTACH, &a), EINVAL);
	a = good(), a.size -= 4096;
	expect("smaller", call(other, DDRAID_IOC_ATTACH, &a), EINVAL);
	a = good(), a.io_max -= 4096;
	expect("shorter requests", call(other, DDRAID_IOC_ATTACH, &a), EINVAL);
	a = good(), a.zeroes_max = 0;
	expect("no zeroes", call(other, DDRAID_IOC_ATTACH, &a), EINVAL);
	a = good(), a.flags = DDRAID_READ_ONLY;
	expect("read-only now", call(other, DDRAID_IOC_ATTACH, &a), EINVAL);
	a = good(), a.physical_block = 8192, a.io_opt = 8192, a.depth = 16, a.size += 4096;
	expect("larger", call(other, DDRAID_IOC_ATTACH, &a), 0);
	expect("size", (int)a.size, (int)good().size + 4096);
	expect("the depth that it has", (int)a.depth, (int)good().depth);
	expect("the physical block that it has", (int)a.physical_block, 4096);
	expect("the optimal size that it has", (int)a.io_opt, 0);
	expect("the cookie of the one before", (int)a.cookie, 5);
	expect("DETACH", call(other, DDRAID_IOC_DETACH, NULL), 0);
	expect("STATUS after it", call(other, DDRAID_IOC_STATUS, &st), ENOENT);
	/* The session is free for another. */
	a = good();
	expect("ATTACH again", call(other, DDRAID_IOC_ATTACH, &a), 0);
	expect("no cookie", (int)a.cookie, 0);
	expect("REVOKE", call(other, DDRAID_IOC_REVOKE, NULL), 0);
	close(other);
}

/* As nobody, whom the mode of the device would let in. */
static void unprivileged(void)
{
	pid_t pid = fork();
	int status = 0;

	if (!pid) {
		int fd;

		if (chmod(DDRAID_CONTROL, 0666) || setuid(65534))
			_exit(2);
		fd = session();
		_exit(fd >= 0 ? 3 : errno != EPERM);
	}
	waitpid(pid, &status, 0);
	expect("open as nobody", status, 0);
	chmod(DDRAID_CONTROL, 0600);
}

int main(void)
{
	int fd = session();

	if (fd < 0) {
		perror(DDRAID_CONTROL);
		return 1;
	}
	calls_without_a_disk(fd);
	bad_attaches(fd);
	two_sessions(fd);
	unprivileged();
	return failed != 0;
}
