/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Listening sockets of the NBD front-end: "unix:/path" and loopback TCP, "tcp:127.0.0.1:10809" or
 * "tcp:[::1]:10809". Addresses are numbers, so nothing here blocks on a name service.
 */
#ifndef DDRAID_ADAPTERS_FRONT_NBD_LISTEN_H
#define DDRAID_ADAPTERS_FRONT_NBD_LISTEN_H

#include <stddef.h>

#include "daemon/base/socket_file.h"

struct nbd_listen {
	int fd;
	int before; /* -1, or the socket whose file was removed: who waits there comes first */
	struct socket_file file; /* its path is "" for TCP */
};

/*
 * Binds and listens, nonblocking. A socket file that nobody listens on is replaced; it has that
 * mode and group (socket_file.h). 0, or -errno with a sentence in why (FRONT_WHY_BYTES):
 * -EADDRINUSE somebody serves there, -EEXIST the path is no socket, -EINVAL not an address, -EPERM
 * an address beyond loopback.
 */
int nbd_listen_open(const char *address, mode_t mode, gid_t group, struct nbd_listen *l, char *why);
/* Makes a socket file that was removed again. 0: l->fd is another one now, and the old one is
 * l->before; else as socket_file_again. */
int nbd_listen_again(struct nbd_listen *l, char *why);
/* Closes, and removes the socket file if it is still ours. */
void nbd_listen_close(struct nbd_listen *l);

/* The next connection, nonblocking, its name for the log in `name`; -errno if there is none. */
int nbd_listen_accept(struct nbd_listen *l, char *name, size_t name_bytes);

#endif
