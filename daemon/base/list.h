/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A doubly linked, intrusive list. Pure, any thread that owns the list. */
#ifndef DDRAID_BASE_LIST_H
#define DDRAID_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}
static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}
static inline void list_add_tail(struct list *head, struct list *n)
{
	n->prev = head->prev;
	n->next = head;
	head->prev->next = n;
	head->prev = n;
}
/* Leaves n as a list of itself, so that a second removal is harmless. */
static inline void list_del(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}

#define list_entry(ptr, type, field) ((type *)((char *)(ptr)-offsetof(type, field)))
#define list_first(head, type, field) list_entry((head)->next, type, field)
/* Safe against removal of the current entry, not of others. */
#define list_for_each(it, tmp, head)                                                               \
	for (struct list *it = (head)->next, *tmp = it->next; it != (head);                        \
	     it = tmp, tmp = it->next)

#endif
