/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What group adapters share: a bounded queue of copied messages, each with room for the adapter's
 * own header in front.
 */
#ifndef DDRAID_ADAPTERS_GROUP_QUEUE_H
#define DDRAID_ADAPTERS_GROUP_QUEUE_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ports/group.h"

#define GROUP_HEADER_BYTES 32u

struct group_message {
	struct group_message *next;
	size_t bytes; /* without the header */
	uint8_t header[GROUP_HEADER_BYTES];
	uint8_t data[];
};

/* Zeroed: empty. */
struct group_queue {
	struct group_message *first, *last;
	uint32_t count;
	size_t bytes;
	bool was_full; /* -EAGAIN was said, and writable() is due */
};

static inline int group_queue_push(struct group_queue *q, const void *data, size_t bytes,
				   struct group_message **out)
{
	struct group_message *m;

	if (bytes > GROUP_MESSAGE_BYTES)
		return -EMSGSIZE;
	if (q->count >= GROUP_QUEUE_MESSAGES || q->bytes + bytes > GROUP_QUEUE_BYTES) {
		q->was_full = true;
		return -EAGAIN;
	}
	m = malloc(sizeof(*m) + bytes);
	if (!m)
		return -ENOMEM;
	m->next = NULL;
	m->bytes = bytes;
	memset(m->header, 0, sizeof(m->header));
	if (bytes)
		memcpy(m->data, data, bytes);
	if (q->last)
		q->last->next = m;
	else
		q->first = m;
	q->last = m;
	q->count++;
	q->bytes += bytes;
	*out = m;
	return 0;
}

/* The first message, taken out; the caller frees it. */
static inline struct group_message *group_queue_pop(struct group_queue *q)
{
	struct group_message *m = q->first;

	q->first = m->next;
	if (!q->first)
		q->last = NULL;
	q->count--;
	q->bytes -= m->bytes;
	return m;
}

static inline void group_queue_clear(struct group_queue *q)
{
	while (q->first)
		free(group_queue_pop(q));
	q->was_full = false;
}

/* True once after each -EAGAIN, when half of the queue is free. */
static inline bool group_queue_writable(struct group_queue *q)
{
	if (!q->was_full || q->count > GROUP_QUEUE_MESSAGES / 2 || q->bytes > GROUP_QUEUE_BYTES / 2)
		return false;
	q->was_full = false;
	return true;
}

#endif
