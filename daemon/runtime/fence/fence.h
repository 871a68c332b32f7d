/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fencing (R4, R5): to see to it that nothing of a departed incarnation lands on a member any more.
 *
 *	command         fence_command NODE INCARNATION URI...; exit status 0 = it is so
 *	                fence_command --check URI...; 0 = it could, FENCE_CHECK_NO = it couldn't
 *	zombie_timeout  nothing better exists: wait for so long, then hold it for so
 *	none            somebody said in so many words that it is not needed: at once
 *
 * The command is run by a helper process that is forked before the daemon has threads, locked
 * memory or anything in flight: the process that serves I/O never forks or execs, and the helper
 * is ready when memory is short. They speak over a socket pair, a datagram per request and answer.
 *
 * fence_helper_start is for main() at its start; everything else for the main thread. Answers come
 * from its loop.
 */
#ifndef DDRAID_RUNTIME_FENCE_FENCE_H
#define DDRAID_RUNTIME_FENCE_FENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/limits.h"
#include "daemon/state/config.h"

struct qb_loop;

#define FENCE_MAX 64        /* asked for at once */
#define FENCE_WHY_BYTES 768 /* a sentence, with its NUL */
#define FENCE_URIS DDR_MAX_DEVS
#define FENCE_CHECK_NO 78 /* EX_CONFIG of sysexits.h */

/*
 * With `check`: could it fence at all of these members, if it had to? 0: yes. -ENXIO: no, `why` is
 * the command's own words. Any other: the command does not know that question, or has not answered
 * in time; it is to be taken for one that can. Not for a policy other than `command`.
 */
struct fence_ask {
	bool check;
	uint32_t node;
	uint64_t inc;
	uint32_t count;
	char uri[FENCE_URIS][DDR_URI_BYTES];
	/* err 0: nothing of it lands any more. `why`: what was tried, and what was said. The
	 * struct is the caller's again. */
	void (*done)(struct fence_ask *ask, int err, const char *why);
	/* fence.c's */
	uint64_t id;
	struct fence_ask *next;
};

/* Whether the policy's command can be run at all. 0, or -errno with a sentence. */
int fence_check(const struct config *conf, char why[FENCE_WHY_BYTES]);
/* Forks the helper if the policy needs it. 0 or -errno. */
int fence_helper_start(const struct config *conf);
/* 0 or -errno. */
int fence_open(struct qb_loop *loop, const struct config *conf);
void fence_run(struct fence_ask *ask);
/* Whether there is a command, which can be asked to check. */
bool fence_checks(void);
/* Adds the URI to those of the ask, once. */
void fence_ask_uri(struct fence_ask *ask, const char *uri);
/* The helper ends with this process, too. */
void fence_close(void);

/* For log and status: "command /etc/ddraid/fence", "only a wait: zombie_timeout, 30.0 s". */
const char *fence_describe(void);

#endif
