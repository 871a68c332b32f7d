/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A Unix socket that listens, and its file: ddraidctl's, and the NBD server's of an array.
 *
 * The file is never open to more than its mode says, and nobody can connect before it is right. A
 * file that nobody listens on is a leftover of a daemon that was killed, and is replaced; one that
 * somebody listens on is not. Whoever removes the file cuts off all who come later, so its owner
 * looks now and then, and makes it again (socket_file_again). Nothing here blocks.
 */
#ifndef DDRAID_BASE_SOCKET_FILE_H
#define DDRAID_BASE_SOCKET_FILE_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

#define SOCKET_FILE_BACKLOG 128
#define SOCKET_FILE_WHY_BYTES 144   /* cause and remedy, without the object */
#define SOCKET_FILE_OWN ((gid_t)-1) /* the group that new files have */

struct socket_file {
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* "": there is none */
	mode_t mode;
	gid_t group;
	dev_t dev; /* as we made it: only that one is removed again */
	ino_t ino;
	bool missed; /* it is not there, could not be made again, and that was said */
};

/*
 * Makes the file, in a directory that is made if it is not there, and listens. The descriptor,
 * nonblocking, or -errno with cause and remedy in why: -EADDRINUSE somebody listens there, -EEXIST
 * the path is no socket, -EINVAL it is not absolute or too long.
 */
int socket_file_open(struct socket_file *f, const char *path, mode_t mode, gid_t group,
		     char why[SOCKET_FILE_WHY_BYTES]);
/*
 * If the file is not there any more, or is another one: makes it again. The new descriptor, which
 * takes the old one's place; or -EALREADY, it is there; or another -errno, with a why that is ""
 * if the last call ended in the same way.
 */
int socket_file_again(struct socket_file *f, char why[SOCKET_FILE_WHY_BYTES]);
/* Removes it, if it is still ours. */
void socket_file_remove(struct socket_file *f);

#endif
