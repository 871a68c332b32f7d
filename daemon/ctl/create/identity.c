// SPDX-License-Identifier: GPL-2.0-or-later
#include "daemon/ctl/create/identity.h"

#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define NBD_PORT "10809"

struct keys {
	uint32_t node, count;
	char (*key)[RESERVE_KEY_BYTES];
};

__attribute__((format(printf, 2, 3))) static void add(struct keys *k, const char *format, ...)
{
	char text[RESERVE_KEY_BYTES];
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	for (uint32_t i = 0; i < k->count; i++)
		if (!strcmp(k->key[i], text))
			return;
	if (n > 0 && (size_t)n < sizeof(text) && k->count < IDENTITY_KEYS)
		strcpy(k->key[k->count++], text);
}

static void of_path(struct keys *k, const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return;
	if (S_ISBLK(st.st_mode))
		add(k, "%u:blk:%u:%u", k->node, major(st.st_rdev), minor(st.st_rdev));
	else
		add(k, "%u:file:%u:%u:%llu", k->node, major(st.st_dev), minor(st.st_dev),
		    (unsigned long long)st.st_ino);
}

/* "%41" is A. */
static void decode(char *text)
{
	char *to = text, hex[3] = "";

	for (char *from = text; *from; from++) {
		if (from[0] == '%' && from[1] && from[2]) {
			memcpy(hex, from + 1, 2);
			*to++ = (char)strtoul(hex, NULL, 16);
			from += 2;
		} else {
			*to++ = *from;
		}
	}
	*to = '\0';
}

/* nbd+unix:///EXPORT?socket=PATH */
static void of_socket(struct keys *k, char *rest)
{
	char *query = strchr(rest, '?'), *path = NULL, *name, *save = NULL;
	struct stat st;

	if (!query)
		return;
	*query++ = '\0';
	name = strchr(rest, '/');
	for (char *p = strtok_r(query, "&", &save); p; p = strtok_r(NULL, "&", &save))
		if (!strncmp(p, "socket=", 7))
			path = p + 7;
	if (!path || !name)
		return;
	decode(path);
	decode(name);
	if (!stat(path, &st))
		add(k, "%u:sock:%u:%u:%llu%s", k->node, major(st.st_dev), minor(st.st_dev),
		    (unsigned long long)st.st_ino, name);
}

static void of_host(struct keys *k, const char *host, const char *port, const char *name)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
	char address[NI_MAXHOST], number[NI_MAXSERV];

	if (getaddrinfo(host, port, &hints, &all))
		return;
	for (const struct addrinfo *a = all; a; a = a->ai_next)
		if (!getnameinfo(a->ai_addr, a->ai_addrlen, address, sizeof(address), number,
				 sizeof(number), NI_NUMERICHOST | NI_NUMERICSERV))
			add(k, "nbd:%s:%s%s", address, number, name);
	freeaddrinfo(all);
}

/* nbd://[USER@]HOST[:PORT][/EXPORT][?...] */
static void of_server(struct keys *k, char *rest)
{
	char *name, *port, *at;
	char export[DDR_URI_BYTES] = "/";

	rest[strcspn(rest, "?#")] = '\0';
	name = strchr(rest, '/');
	if (name) {
		snprintf(export, sizeof(export), "%s", name);
		decode(export);
		*name = '\0';
	}
	at = strrchr(rest, '@');
	rest = at ? at + 1 : rest;
	port = strrchr(rest, ':');
	if (rest[0] == '[') {
		char *end = strchr(rest, ']');

		if (!end)
			return;
		*end = '\0';
		rest++;
		port = end[1] == ':' ? end + 1 : NULL;
	}
	if (port)
		*port++ = '\0';
	of_host(k, rest, port && port[0] ? port : NBD_PORT, export);
}

uint32_t identity_keys(const char *uri, uint32_t node, char key[IDENTITY_KEYS][RESERVE_KEY_BYTES])
{
	struct keys k = {.node = node, .key = key};
	char text[DDR_URI_BYTES], *rest;

	add(&k, "uri:%s", uri);
	snprintf(text, sizeof(text), "%s", uri);
	rest = strstr(text, "://");
	if (text[0] == '/') {
		of_path(&k, text);
	} else if (rest && !strncasecmp(text, "file:", 5)) {
		of_path(&k, rest + 3);
	} else if (rest && !strncasecmp(text, "nbd", 3)) {
		bool socket = memmem(text, (size_t)(rest - text), "+unix", 5) != NULL;

		if (socket)
			of_socket(&k, rest + 3);
		else
			of_server(&k, rest + 3);
	}
	return k.count;
}
