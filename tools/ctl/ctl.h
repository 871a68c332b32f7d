/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What ddraidctl's parts share: exit statuses, the connection to ddraidd, messages to people.
 */
#ifndef DDRAID_CTL_CTL_H
#define DDRAID_CTL_CTL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/ctl.pb-c.h"
#include "proto/ctl_wire.h"
#include "tools/ctl/args.h"
#include "tools/ctl/json.h"

/* Exit statuses; doc/man/ddraidctl.8 documents them, scripts rely on them. */
enum {
	EXIT_OK = 0,
	EXIT_FAILED = 1,      /* refused or failed, with the reason */
	EXIT_USAGE = 2,       /* wrong command line */
	EXIT_UNREACHABLE = 3, /* no ddraidd here, or not for this user */
	EXIT_NO_ARRAY = 4,    /* no such array */
	EXIT_DEGRADED = 5,    /* status: serves, but a member is not in sync */
	EXIT_WAITS = 6,       /* not now; status: I/O is not served */
	EXIT_UNKNOWN = 7,     /* the answer was lost: what became of the request isn't known */
};

typedef Ddraid__Ctl__Request Request;
typedef Ddraid__Ctl__Reply Reply;

struct ipc;

/*
 * NULL: a sentence was printed. timeout_s: from now on, for all that is asked; 0 = as long as it
 * takes, but a daemon that sends nothing at all is given up in any case.
 */
struct ipc *ipc_open(const char *name, uint64_t timeout_s);
void ipc_close(struct ipc *c);

/*
 * Sends a request and takes its replies until the final one. `take` (may be NULL) gets each reply
 * that is no error; progress replies it may leave alone: they go to progress.c. Errors are printed.
 * Returns an exit status; the final reply's, or what `take` returned for it.
 */
typedef int (*ipc_take_fn)(void *arg, const Reply *reply);
int ipc_request(struct ipc *c, Request *request, ipc_take_fn take, void *arg);

/* Request with its version; body is set by the caller. */
#define REQUEST_INIT                                                                               \
	{                                                                                          \
		PROTOBUF_C_MESSAGE_INIT(&ddraid__ctl__request__descriptor), CTL_VERSION,           \
		    DDRAID__CTL__REQUEST__BODY__NOT_SET,                                           \
		{                                                                                  \
			0                                                                          \
		}                                                                                  \
	}

/*
 * "ddraidctl: ..." on standard error, cleaned of what isn't printable; with --json the first one is
 * also the answer's error, if the command fails.
 */
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);
/* Likewise, but nothing has failed: with --json also one of the answer's warnings. */
void warn(const char *text);

/* answer.c: the object that --json prints, the same one all along. The caller adds keys. */
struct json *answer(void);
/* At the end, once: the error, the warnings, and the object's end. */
void answer_end(const struct args *a, int status);

/* progress.c: a line that is redrawn on a terminal, a line every few seconds elsewhere; on standard
 * error, so that standard output stays clean. */
void progress_show(const Ddraid__Ctl__Progress *p);
void progress_end(void); /* before anything else is printed */

/* status.c, examine.c, commands.c: an exit status each. */
int status_run(struct ipc *c, const struct args *a);
int nodes_run(struct ipc *c, const struct args *a);
int create_command(struct ipc *c, const struct args *a);
int change_run(struct ipc *c, const struct args *a); /* start, stop, fail, add, re-add, forget */
int attach_run(struct ipc *c, const struct args *a); /* detach, too */
int settings_run(struct ipc *c, const struct args *a);
int version_run(struct ipc *c, const struct args *a); /* c NULL: no daemon */
int examine_run(const struct args *a);

/* Watches until it is so; its exit status. */
int watch(struct ipc *c, const char *array, Ddraid__Ctl__Until until);

#endif
