/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Addresses of this machine that no other one can reach, as people write them. Pure, any thread. */
#ifndef DDRAID_BASE_LOOPBACK_H
#define DDRAID_BASE_LOOPBACK_H

#include <netinet/in.h>
#include <sys/socket.h>

union loopback_address {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/*
 * "127.0.0.1:PORT" or "[::1]:PORT", in numbers, so no name service is asked. The bytes of *a that
 * count, or -EINVAL, or -EPERM for an address beyond loopback; then `cause` is a static phrase.
 */
int loopback_parse(const char *text, union loopback_address *a, const char **cause);

#endif
