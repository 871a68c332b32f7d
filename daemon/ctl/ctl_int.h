/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between the files that carry out requests which take their time: jobs.c and make.c. */
#ifndef DDRAID_CTL_CTL_INT_H
#define DDRAID_CTL_CTL_INT_H

#include <qb/qbloop.h>

#include "daemon/ctl/create/create_check.h"
#include "daemon/ctl/ctl.h"

#define LOOK_MS 200u
#define ADMIN_AGAIN_MS 500u

/* jobs.c: waiting for an array. */
struct asked;
enum job_kind { JOB_WATCH, JOB_CREATE, JOB_IMPORT, JOB_START, JOB_STOP, JOB_FORGET };

struct job {
	struct ipc_req *r;
	struct array_entry *k; /* held */
	enum job_kind kind;
	Ddraid__Ctl__Until until; /* JOB_WATCH */
	bool all_nodes;
	bool stale, alone, take; /* JOB_START, and stale of JOB_IMPORT */
	bool disconnect;         /* JOB_STOP, JOB_FORGET */
	bool was_running;        /* JOB_START, when it was asked */
	bool forced;             /* JOB_START: it was not active, and was told to whoever leads */
	uint64_t began_ms, here_ms, told_ms, forced_ms;
	bool put;            /* JOB_START, JOB_STOP: what was asked for counts */
	uint64_t said;       /* JOB_STOP of all nodes: the version that says so */
	uint64_t size_bytes; /* JOB_CREATE, and the next two */
	uint32_t stripe_bytes;
	char stripe_why[CREATE_WHY_BYTES];
	struct asked *asked;          /* JOB_CREATE */
	struct manager_change change; /* JOB_START, JOB_STOP, JOB_FORGET */
	struct array_query q;
	qb_loop_timer_handle timer;
};

/* Its answer is the end of the wait; k is held. */
struct job *job_new(struct ipc_req *r, struct array_entry *k, enum job_kind kind);
void job_look(void *job);
void ctl_after(uint32_t ms, void (*fn)(void *data), void *data);

/* jobs.c: a change of one member. `make` has its device reserved until the end, or NULL. */
struct make_job;
void admin_begin(struct ipc_req *r, struct array_entry *k, enum admin_cmd cmd, uint32_t member,
		 const char *uri, struct make_job *make, uint64_t before);
/* False: there is no such member, and the request was answered. */
bool member_there(struct ipc_req *r, const struct array_entry *k, uint32_t member);

/* make.c */
void make_free(struct make_job *j);
/* Whoever asked for a create has been answered, or has gone: then the next who asks the same is
 * told. */
void asked_end(struct job *j);

#endif
