/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Copies of messages on their way: each is there until so many others have been sent. */
#ifndef DDRAID_TESTS_UNIT_KEPT_MESSAGES_H
#define DDRAID_TESTS_UNIT_KEPT_MESSAGES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_MESSAGES 4096u

struct kept_messages {
	uint8_t *v[KEPT_MESSAGES];
	uint32_t next;
};

static inline const uint8_t *message_keep(struct kept_messages *k, const void *data, size_t bytes)
{
	uint8_t **at = &k->v[k->next++ % KEPT_MESSAGES];

	free(*at);
	*at = malloc(bytes ? bytes : 1);
	return memcpy(*at, data, bytes);
}

static inline void messages_free(struct kept_messages *k)
{
	for (uint32_t i = 0; i < KEPT_MESSAGES; i++)
		free(k->v[i]);
	memset(k, 0, sizeof(*k));
}

#endif
