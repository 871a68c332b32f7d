/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * `create`, the check of `add`, `import`, and the end of a create that was cut off: what opens
 * devices outside of a running array. Each has a thread and a loop of its own, since checking
 * blocks (libblkid); it is the main thread's from create_job_start to `done`.
 *
 * The thread first finds out what the devices are known by (m->reserve.key) and then waits for the
 * main thread to reserve that (`reserving`, create_job_go). From the first write of a create until
 * the array is known, or nothing is left of it, NAME.making is in the state directory.
 */
#ifndef DDRAID_CTL_CREATE_CREATE_JOB_H
#define DDRAID_CTL_CREATE_CREATE_JOB_H

#include <pthread.h>
#include <semaphore.h>

#include "daemon/base/mailbox.h"
#include "daemon/ctl/create/create_check.h"
#include "daemon/ctl/create/identity.h"
#include "daemon/ctl/create/import_check.h"
#include "daemon/state/config.h"
#include "daemon/state/store.h"

struct create_job {
	/* the asker's, before create_job_start */
	const struct config *conf;
	struct mailbox *main;
	enum { CREATE_JOB_CREATE, CREATE_JOB_ADD, CREATE_JOB_UNDO, CREATE_JOB_IMPORT } what;
	uint32_t node;
	struct store_array desc;  /* name, URIs, options; `create` fills in the UUID; `import` name
				   * and UUID, and puts the URIs in order */
	struct create_ask ask;    /* but for name, inc, arg and the callbacks */
	struct geo geo;           /* add: of the array */
	struct map map;           /* likewise */
	uint32_t member;          /* likewise: which one it is to be */
	struct import_ask import; /* import */
	/* import, on the main thread: 0, or -errno and a sentence, if these members are of no use
	 * here; `joins`: the array is known, and lacks some of them. */
	int (*importable)(struct create_job *m, const uint8_t uuid[DDR_UUID_BYTES],
			  const char *name, char why[STORE_WHY_BYTES]);
	struct store_array *others; /* the known arrays, but for add's own; freed with free() */
	uint32_t other_count;
	/* On the main thread: the name of the array that has this UUID, whose members are refused;
	 * or NULL. */
	const char *(*known)(struct create_job *m, const uint8_t uuid[DDR_UUID_BYTES]);
	/* On the main thread: what a device with m->ask_sb is to that array; create_job_standing is
	 * to follow. */
	void (*standing)(struct create_job *m);
	/* On the main thread: m->reserve has its keys; create_job_go is to follow. */
	void (*reserving)(struct create_job *m);
	void (*progress)(struct create_job *m); /* on the main thread; see `text` */
	void (*done)(struct create_job *m, int err, const char *why); /* likewise; the last */
	void *arg;
	struct reserve reserve;
	uint8_t key_member[RESERVE_KEYS]; /* whose each key is */
	struct {                          /* by member: another array that names its device */
		const char *array;        /* NULL: none does */
		uint32_t member;
	} listed[DDR_MAX_MEMBERS];
	/* the answer */
	struct create_result result;
	struct import_result imported;
	bool joins;
	struct create_error error;
	/* where it is; under `lock` */
	pthread_mutex_t lock;
	char text[128];
	uint32_t step, steps;
	bool progress_posted, lost;
	char lost_why[RESERVE_WHY_BYTES];
	/* create_job.c's */
	struct task task, progress_task, ask_task;
	sem_t go, told;
	int go_err;
	char go_why[CREATE_ERROR_BYTES];
	const uint8_t *ask_uuid;
	char ask_name[DDR_NAME_BYTES];
	bool ask_forgotten; /* with ask_name: for good */
	const struct superblock *ask_sb;
	char *ask_why;
	int ask_err;
	enum create_standing ask_standing;
	uint64_t before; /* add: as EV_ADMIN has it */
	bool clears; /* add: its device is another array's by its superblock, and is to be nobody's
		      */
	pthread_t thread;
	struct loop *loop;
	struct create_job_dev *dev;
};

/* 0 or -errno. */
int create_job_start(struct create_job *m);
/* It is reserved, and may go on; or err and a sentence, with which it ends. */
void create_job_go(struct create_job *m, int err, const char *why);
/* The answer to m->standing. */
void create_job_standing(struct create_job *m, enum create_standing standing);
/* It is reserved no more: no further write is begun. */
void create_job_lost(struct create_job *m, const char *why);

#endif
