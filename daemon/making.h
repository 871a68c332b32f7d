/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * `create` and the check of `add`: what opens devices outside of a running array. Each has a thread
 * and a loop of its own, since checking blocks (libblkid); it is the main thread's from
 * making_start to `done`.
 */
#ifndef DDRAID_MAKING_H
#define DDRAID_MAKING_H

#include <pthread.h>

#include "daemon/config.h"
#include "daemon/create_check.h"
#include "daemon/mailbox.h"
#include "daemon/store.h"

struct making_known {
	uint8_t uuid[DDR_UUID_BYTES];
	char name[DDR_NAME_BYTES];
};

struct making {
	/* the asker's, before making_start */
	const struct config *conf;
	struct mailbox *main;
	bool add;                /* only look whether desc.uri[0] carries anything */
	struct store_array desc; /* name, URIs, options; `create` fills in the UUID */
	struct create_ask ask;   /* but for name, inc, arg and the callbacks */
	struct geo geo;          /* add: of the array */
	uint32_t known_count;
	struct making_known known[STORE_MAX_ARRAYS]; /* arrays whose members are refused */
	void (*progress)(struct making *m);          /* on the main thread; see `text` */
	void (*done)(struct making *m, int err, const char *why); /* likewise; the last */
	void *arg;
	/* the answer */
	struct create_result result;
	struct create_error error;
	/* where it is; under `lock` */
	pthread_mutex_t lock;
	char text[128];
	uint32_t step, steps;
	bool progress_posted;
	/* making.c's */
	struct task task, progress_task;
	pthread_t thread;
	struct loop *loop;
	struct making_dev *dev;
};

/* 0 or -errno. */
int making_start(struct making *m);

#endif
