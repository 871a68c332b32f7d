// SPDX-License-Identifier: GPL-2.0-or-later
/* See service.h. */
#include <errno.h>
#include <qb/qbloop.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/service.h"
#include "daemon/base/log.h"
#include "daemon/catalog/manager.h"

#define TIMES 4u             /* so often within the time that the service manager waits */
#define STANDS_MS 2000u      /* an engine thread's beat comes twice a second */
#define LIMIT_US 3600000000u /* longer than that is no watchdog */

static struct qb_loop *loop;
static uint64_t every_ns;
static bool stands; /* it was said */

/* An address that begins with @ is in the abstract space. */
void service_tell(const char *what)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	size_t n = path ? strlen(path) : 0;
	int fd;

	if (!n || n >= sizeof(sun.sun_path))
		return;
	memcpy(sun.sun_path, path, n);
	if (path[0] == '@')
		sun.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 ||
	    sendto(fd, what, strlen(what), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&sun,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
		say(LOG_WARNING, "the service manager can't be told %s: %s", what, strerror(errno));
	if (fd >= 0)
		close(fd);
}

/* The array whose thread has not turned its loop since the last look, or NULL. */
static const struct array_entry *standing(void)
{
	for (uint32_t i = 0; i < manager_count(); i++)
		if (array_still_ms(manager_at(i)->array) > STANDS_MS)
			return manager_at(i);
	return NULL;
}

static void beat(void *arg)
{
	const struct array_entry *k = standing();
	qb_loop_timer_handle timer;

	(void)arg;
	if (k && !stands)
		say(LOG_CRIT,
		    "%s: its thread stands still, so the service manager is not told that ddraidd "
		    "works; it will end ddraidd and start it again",
		    k->desc.name);
	stands = k;
	if (!stands)
		service_tell("WATCHDOG=1");
	qb_loop_timer_add(loop, QB_LOOP_HIGH, every_ns, NULL, beat, &timer);
}

void service_watch(struct qb_loop *l)
{
	const char *us = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	uint64_t n = us ? strtoull(us, NULL, 10) : 0;

	if (!n || n > LIMIT_US || (pid && strtol(pid, NULL, 10) != (long)getpid()))
		return;
	loop = l;
	every_ns = n * 1000 / TIMES;
	beat(NULL);
}
