// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Listening sockets of the NBD front-end. listen.h says what they promise; the file of a Unix
 * socket is socket_file.c's.
 *
 * Called by front.c, at start and from its accept callback. Must not block, and must never
 * listen on an address that other machines can reach: NBD here has neither TLS nor passwords.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/adapters/front/nbd/listen.h"
#include "daemon/base/loopback.h"
#include "daemon/ports/front.h"

#define SEND_BUFFER_BYTES (2 << 20) /* the kernel takes net.core.wmem_max of it */

static int fail(int err, char *why, const char *address, const char *cause)
{
	snprintf(why, FRONT_WHY_BYTES, "can't serve NBD on %.150s: %s", address, cause);
	return err;
}

/* --- Unix --- */

static int unix_open(const char *address, mode_t mode, gid_t group, struct nbd_listen *l, char *why)
{
	char cause[SOCKET_FILE_WHY_BYTES];

	l->fd = socket_file_open(&l->file, address + 5, mode, group, cause);
	return l->fd < 0 ? fail(l->fd, why, address, cause) : 0;
}

int nbd_listen_again(struct nbd_listen *l, char *why)
{
	char cause[SOCKET_FILE_WHY_BYTES];
	int fd = l->file.path[0] ? socket_file_again(&l->file, cause) : -EALREADY;

	if (fd >= 0) {
		if (l->before >= 0)
			close(l->before);
		l->before = l->fd;
		l->fd = fd;
		return 0;
	}
	why[0] = '\0';
	if (fd != -EALREADY && cause[0])
		fail(fd, why, l->file.path, cause);
	return fd;
}

/* --- TCP --- */

static int tcp_fail(int err, char *why, const char *address)
{
	switch (err) {
	case -EADDRINUSE:
		return fail(err, why, address,
			    "another process has this address ('ss -ltnp' shows which); stop that, "
			    "or set listen otherwise");
	case -EADDRNOTAVAIL:
	case -EAFNOSUPPORT:
		return fail(err, why, address,
			    "this machine has no such address; set listen otherwise");
	case -EACCES:
	case -EPERM:
		return fail(err, why, address,
			    "ddraidd has not the right to; set listen to a port above 1023, or "
			    "give it CAP_NET_BIND_SERVICE");
	default:
		return fail(err, why, address, strerror(-err));
	}
}

static int tcp_open(const char *address, struct nbd_listen *l, char *why)
{
	union loopback_address a;
	const char *cause;
	int on = 1, bytes = loopback_parse(address + 4, &a, &cause);

	if (bytes < 0)
		return fail(bytes, why, address, cause);
	l->fd = socket(a.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (l->fd < 0 || setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(l->fd, &a.sa, (socklen_t)bytes) < 0 || listen(l->fd, SOCKET_FILE_BACKLOG) < 0)
		return tcp_fail(-errno, why, address);
	return 0;
}

/* --- both --- */

int nbd_listen_open(const char *address, mode_t mode, gid_t group, struct nbd_listen *l, char *why)
{
	int err;

	memset(l, 0, sizeof(*l));
	l->fd = l->before = -1;
	if (strncmp(address, "unix:", 5) == 0)
		err = unix_open(address, mode, group, l, why);
	else if (strncmp(address, "tcp:", 4) == 0)
		err = tcp_open(address, l, why);
	else
		return fail(-EINVAL, why, address,
			    "write unix:/path, tcp:127.0.0.1:PORT or tcp:[::1]:PORT");
	if (err)
		nbd_listen_close(l);
	return err;
}

void nbd_listen_close(struct nbd_listen *l)
{
	socket_file_remove(&l->file);
	if (l->fd >= 0)
		close(l->fd);
	if (l->before >= 0)
		close(l->before);
	l->fd = l->before = -1;
}

static void name_tcp(const union loopback_address *a, char *name, size_t name_bytes)
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (a->sa.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &a->in6.sin6_addr, host, sizeof(host));
		snprintf(name, name_bytes, "[%s]:%u", host, ntohs(a->in6.sin6_port));
	} else {
		inet_ntop(AF_INET, &a->in.sin_addr, host, sizeof(host));
		snprintf(name, name_bytes, "%s:%u", host, ntohs(a->in.sin_port));
	}
}

static void name_unix(int fd, char *name, size_t name_bytes)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
		snprintf(name, name_bytes, "?");
	else
		snprintf(name, name_bytes, "pid %ld uid %lu", (long)peer.pid,
			 (unsigned long)peer.uid);
}

/* Nobody can connect to the old socket any more: when none waits there, it has done. */
static int accept_before(struct nbd_listen *l)
{
	int fd;

	if (l->before < 0)
		return -1;
	fd = accept4(l->before, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0 && errno == EAGAIN) {
		close(l->before);
		l->before = -1;
	}
	return fd;
}

int nbd_listen_accept(struct nbd_listen *l, char *name, size_t name_bytes)
{
	union loopback_address a;
	socklen_t bytes = sizeof(a);
	int on = 1, send_bytes = SEND_BUFFER_BYTES, fd;
	bool tcp = !l->file.path[0];

	fd = accept_before(l);
	if (fd < 0 && l->before < 0)
		fd = accept4(l->fd, tcp ? &a.sa : NULL, tcp ? &bytes : NULL,
			     SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* None of these is needed for being right. */
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof(send_bytes));
	if (tcp) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
		name_tcp(&a, name, name_bytes);
	} else {
		name_unix(fd, name, name_bytes);
	}
	return fd;
}
