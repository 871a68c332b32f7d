/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Nodes, as `status` and `nodes` print them. */
#ifndef DDRAID_CTL_SHOW_H
#define DDRAID_CTL_SHOW_H

#include "proto/ctl.pb-c.h"
#include "tools/ctl/json.h"

void show_nodes(Ddraid__Ctl__Node *const *node, size_t count, bool with_slot);
void json_node(struct json *j, const Ddraid__Ctl__Node *n);

#endif
