/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The server side of ctl.proto (doc/wire.md): connections, framing, replies. What requests mean is
 * in ctl.c. The main thread's.
 *
 * A request lives from ipc's call of ctl_take to ipc_final, also when its client is gone: then
 * replies go nowhere. One that is answered within ctl_take lives until that returns, so that
 * whoever has just refused it may still look at its fields.
 */
#ifndef DDRAID_CTL_IPC_H
#define DDRAID_CTL_IPC_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/ctl.pb-c.h"
#include "proto/ctl_wire.h"

typedef Ddraid__Ctl__Request Request;
typedef Ddraid__Ctl__Reply Reply;
#define REPLY_INIT DDRAID__CTL__REPLY__INIT

struct ipc_req;
struct qb_loop;

/* 0, or -errno with a sentence. */
int ipc_open(struct qb_loop *loop, const char *run_dir, const char *name, char *why,
	     size_t why_bytes);
/* Every second or two: makes the socket's file again if it was removed, and ends clients that stand
 * still. */
void ipc_look(void);
void ipc_close(void);

const Request *ipc_request(const struct ipc_req *r);
bool ipc_gone(const struct ipc_req *r);                         /* nobody listens any more */
void ipc_warn(struct ipc_req *r, const char *text);             /* a warning in the next reply */
void ipc_send(struct ipc_req *r, Reply *reply);                 /* not the last one */
void ipc_progress(struct ipc_req *r, Ddraid__Ctl__Progress *p); /* dropped if the client is slow */
/* The last one, and r's end: see above. reply may be NULL. */
void ipc_final(struct ipc_req *r, Reply *reply);
void ipc_fail(struct ipc_req *r, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ctl.c: a request has come. */
void ctl_take(struct ipc_req *r);

#endif
