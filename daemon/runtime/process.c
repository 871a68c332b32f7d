/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/runtime/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads a small file as text. 0 or -errno. */
static int text_of(const char *path, char *text, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, text, bytes - 1);
	if (n <= 0)
		err = n < 0 ? -errno : -EIO;
	text[n > 0 ? n : 0] = '\0';
	close(fd);
	return err;
}

/*
 * -ESRCH, -ENOENT: no such process is shown. *ended: there is, but all that is left of it is its
 * status, for a parent that has not asked for it yet. Its first thread alone being in that state
 * says nothing: others may go on.
 */
static int start_of(const char *pid, uint64_t *start, bool *ended)
{
	char path[64], text[1024], *at;
	unsigned long long ticks;
	long threads;
	char state;
	int err;

	snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	err = text_of(path, text, sizeof(text));
	if (err)
		return err;
	/* The program's name, in parentheses, may have anything in it; what follows has not. The
	 * state is the third field of all, the number of threads the 20th, the start the 22nd. */
	at = strrchr(text, ')');
	if (!at || sscanf(at + 1,
			  " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
			  "%ld %*d %llu",
			  &state, &threads, &ticks) != 3)
		return -EBADMSG;
	*start = ticks;
	*ended = (state == 'Z' || state == 'X') && threads <= 1;
	return 0;
}

static bool boot_of(uint8_t boot[USE_BOOT_BYTES])
{
	char text[64];
	unsigned n = 0, byte;

	if (text_of("/proc/sys/kernel/random/boot_id", text, sizeof(text)))
		return false;
	for (const char *c = text; *c && n < USE_BOOT_BYTES; c++) {
		if (*c == '-')
			continue;
		if (sscanf(c, "%2x", &byte) != 1 || !c[1])
			break;
		boot[n++] = (uint8_t)byte;
		c++;
	}
	return n == USE_BOOT_BYTES;
}

/* A /proc of another name space of process ids, as after `unshare --pid` without a mount of its
 * own, has other processes by our numbers. */
static bool proc_is_ours(void)
{
	char text[16], pid[16];
	ssize_t n = readlink("/proc/self", text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	snprintf(pid, sizeof(pid), "%d", getpid());
	return !strcmp(text, pid);
}

void process_self(struct use_process *p)
{
	struct stat st;
	bool ended;

	memset(p, 0, sizeof(*p));
	if (!proc_is_ours() || stat("/proc/self/ns/pid", &st) || !boot_of(p->boot) ||
	    start_of("self", &p->start, &ended)) {
		memset(p, 0, sizeof(*p));
		return;
	}
	p->pid_space = st.st_ino;
	p->pid = (uint32_t)getpid();
}

bool process_ended(const struct use_process *p)
{
	char pid[16];
	uint64_t start;
	bool ended;
	int err;

	if (!p->pid || p->pid > INT32_MAX)
		return false;
	snprintf(pid, sizeof(pid), "%u", p->pid);
	err = start_of(pid, &start, &ended);
	/* With `hidepid`, /proc does not show the processes of others. */
	if (err == -ENOENT || err == -ESRCH)
		return kill((pid_t)p->pid, 0) < 0 && errno == ESRCH;
	return !err && (ended || start != p->start);
}
