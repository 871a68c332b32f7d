// SPDX-License-Identifier: GPL-2.0-or-later
/* See loopback.h. */
#include "daemon/base/loopback.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int parse(const char *text, union loopback_address *a)
{
	const char *colon = strrchr(text, ':');
	size_t host_bytes = colon ? (size_t)(colon - text) : 0;
	unsigned long port;
	char host[64], *rest;

	if (!host_bytes || host_bytes >= sizeof(host) || colon[1] < '0' || colon[1] > '9')
		return -EINVAL;
	port = strtoul(colon + 1, &rest, 10);
	if (*rest || port == 0 || port > 65535)
		return -EINVAL;
	memset(a, 0, sizeof(*a));
	memcpy(host, text, host_bytes);
	host[host_bytes] = '\0';
	if (host[0] == '[' && host[host_bytes - 1] == ']') {
		host[host_bytes - 1] = '\0';
		a->in6.sin6_family = AF_INET6;
		a->in6.sin6_port = htons((uint16_t)port);
		if (inet_pton(AF_INET6, host + 1, &a->in6.sin6_addr) != 1)
			return -EINVAL;
		return IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr) ? (int)sizeof(a->in6) : -EPERM;
	}
	a->in.sin_family = AF_INET;
	a->in.sin_port = htons((uint16_t)port);
	if (inet_pton(AF_INET, host, &a->in.sin_addr) != 1)
		return -EINVAL;
	return ntohl(a->in.sin_addr.s_addr) >> 24 == 127 ? (int)sizeof(a->in) : -EPERM;
}

int loopback_parse(const char *text, union loopback_address *a, const char **cause)
{
	int bytes = parse(text, a);

	if (bytes == -EPERM)
		*cause = "only loopback, 127.x.y.z or [::1]; for other machines, tunnel to it";
	else if (bytes < 0)
		*cause = "write tcp:127.0.0.1:PORT or tcp:[::1]:PORT, in numbers";
	return bytes;
}
