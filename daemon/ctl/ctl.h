/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What requests of ddraidctl mean; between the files ctl*.c. The main thread's. */
#ifndef DDRAID_CTL_CTL_H
#define DDRAID_CTL_CTL_H

#include "daemon/base/log.h"
#include "daemon/base/units.h"
#include "daemon/catalog/announce.h"
#include "daemon/catalog/manager.h"
#include "daemon/ctl/ipc.h"
#include "daemon/state/env.h"

extern struct daemon_env ctl_env;

/* NULL, and the request was answered: -ENODEV, or -EBADMSG if its file is damaged. */
struct array_entry *ctl_array(struct ipc_req *r, const char *name);
/* As that, but one with a damaged file as well. */
struct array_entry *ctl_array_known(struct ipc_req *r, const char *name);

/* status.c: who keeps the locks: "dlm", "cpg" or "local"; st is NULL if it does not run. */
const char *locks_of(const struct array_entry *k, const struct array_status *st);
/* Packs what is known of an array; st is NULL if it does not run. What the message
 * points to lives until status_release. */
struct status_msg {
	Ddraid__Ctl__ArrayStatus msg;
	void **memory;
	size_t count, cap;
};
/* What is warned of whatever arrays there are, the i-th; false: there are no more. */
bool status_warning(uint32_t i, char text[STORE_WHY_BYTES]);
void status_make(struct status_msg *m, const struct array_entry *k, const struct array_status *st);
void status_release(struct status_msg *m);
/* What goes on in an array, as far as it is one thing. */
void status_progress(Ddraid__Ctl__Progress *p, const struct array_entry *k,
		     const struct array_status *st);
bool status_synced(const struct array_status *st);
/* It can't be assembled, as this node finds or the one that leads. */
bool status_refused(const struct array_entry *k, const struct array_status *st);
void status_nodes(struct ipc_req *r);

/* why.c: why an array is not active here, to stand behind its name; st is NULL if it does not
 * run. */
#define WHY_NOT_BYTES (STORE_WHY_BYTES + 1024)
void why_not(const struct array_entry *k, const struct array_status *st, char text[WHY_NOT_BYTES]);
/* Appends the members that this node does not reach, if there are any. */
void why_members(const struct array_entry *k, const struct array_status *st,
		 char text[WHY_NOT_BYTES]);

/* jobs.c: requests that take their time. */
void request_status(struct ipc_req *r);
void request_watch(struct ipc_req *r);
void request_start(struct ipc_req *r);
void request_stop(struct ipc_req *r);
void request_forget(struct ipc_req *r);
void request_admin(struct ipc_req *r, struct array_entry *k, enum admin_cmd cmd, uint32_t member,
		   const char *uri);

/* make.c: those that open devices outside of a running array. */
void request_create(struct ipc_req *r);
void request_import(struct ipc_req *r);
void request_add(struct ipc_req *r);

/* attach.c */
void request_attach(struct ipc_req *r);
void request_detach(struct ipc_req *r);

#endif
