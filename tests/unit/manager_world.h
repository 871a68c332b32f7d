/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The table of arrays and the state directory behind it, without arrays. Each life of a daemon is a
 * process, and the next one finds what that has left in the directory.
 *
 *   test_manager.c         what other nodes tell, and what an array here does then
 *   test_manager_files.c   the state directory: damaged, deleted by others, not to be written
 *   test_manager_forget.c  forgetting, and the list of the forgotten
 */
#ifndef DDRAID_TESTS_UNIT_MANAGER_WORLD_H
#define DDRAID_TESTS_UNIT_MANAGER_WORLD_H

#include "daemon/catalog/manager.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/base/warnings.h"
#include "tests/lib/test.h"

/* ---- what is not here ----------------------------------------------------------------------- */

struct array {
	struct store_array desc;
	bool running;
	unsigned stops, forced; /* what it was asked for */
};

static struct array_env env;
static char warned[STORE_WHY_BYTES], said[LOG_TEXT_BYTES];

struct array *array_new(const struct array_env *e, const struct store_array *desc)
{
	struct array *a = calloc(1, sizeof(*a));

	env = *e;
	a->desc = *desc;
	return a;
}

void array_free(struct array *a)
{
	CHECK(!a->running);
	free(a);
}

void array_set_desc(struct array *a, const struct store_array *desc)
{
	a->desc = *desc;
}

int array_start(struct array *a, bool force)
{
	(void)force;
	a->running = true;
	return 0;
}

/* Ends only when the test says so. */
void array_stop(struct array *a, enum array_stop_how how)
{
	a->stops++;
	a->forced += how == ARRAY_STOP_FORCED;
}

bool array_running(const struct array *a)
{
	return a->running;
}

void array_learn(struct array *a, const struct store_array *desc)
{
	(void)a;
	(void)desc;
}

void say(int priority, const char *format, ...)
{
	va_list ap;

	(void)priority;
	va_start(ap, format);
	vsnprintf(said, sizeof(said), format, ap);
	va_end(ap);
}

void warnings_add(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(warned, sizeof(warned), format, ap);
	va_end(ap);
}

/* ---- a daemon ------------------------------------------------------------------------------- */

static struct mailbox box;
static struct worker worker;
static struct config conf;
static unsigned told_forgotten, told_count;
static struct store_array told;

static void kick(void *arg)
{
	(void)arg;
}

static void news(const struct store_array *desc)
{
	told = *desc;
	told_count++;
}

static void forgot(const struct store_forgotten *f)
{
	(void)f;
	told_forgotten++;
}

static void moved(void)
{
}

static unsigned again_asked;

static void again(uint32_t ms)
{
	CHECK(ms);
	again_asked++;
}

static const struct manager_cb callbacks = {
    .news = news, .forgot = forgot, .moved = moved, .again = again};

/* Until nothing is under way: a task goes to the worker and comes back. */
struct mark {
	struct task task;
	bool back;
};

static void mark_back(struct task *t)
{
	((struct mark *)(void *)t)->back = true;
}

static void mark_work(struct task *t)
{
	mailbox_post(&box, t, mark_back);
}

static void settle(void)
{
	for (int i = 0; i < 8; i++) {
		struct mark m = {.back = false};

		mailbox_post(&worker.box, &m.task, mark_work);
		while (!m.back)
			if (!mailbox_run(&box))
				usleep(100);
	}
}

static char dir[64];

static void begin(void)
{
	char why[STORE_WHY_BYTES] = "";

	CHECK_MSG(!store_open(dir, why), "%s", why);
	mailbox_init(&box, kick, NULL);
	CHECK_EQ_INT(worker_start(&worker), 0);
	CHECK_MSG(!manager_open(&conf, &box, &worker, &callbacks, why), "%s", why);
	settle();
}

/* Each in a process of its own, in the same directory. */
static void life(void (*run)(void))
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		if (setjmp(test_out))
			_exit(1);
		begin();
		run();
		settle();
		fflush(stdout);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void fresh_dir(void)
{
	strcpy(dir, "/tmp/ddraid-manager-XXXXXX");
	CHECK(mkdtemp(dir));
}

static void remove_dir(void)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	CHECK(system(command) == 0);
}

static inline bool file_there(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return access(path, F_OK) == 0;
}

static bool file_has(const char *name, const char *part)
{
	char path[128], text[4096] = "";
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "r");
	CHECK(f && fread(text, 1, sizeof(text) - 1, f) > 0 && !fclose(f));
	return strstr(text, part) != NULL;
}

static void file_write(const char *name, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	CHECK(f && fputs(text, f) >= 0 && !fclose(f));
}

static struct store_array desc_of(unsigned i, const char *name)
{
	struct store_array d = {.version = 1, .count = 3};

	options_init(&d.options);
	snprintf(d.name, sizeof(d.name), "%s", name);
	memset(d.uuid, 0xd0, sizeof(d.uuid));
	memcpy(d.uuid, &i, sizeof(i));
	for (uint32_t m = 0; m < d.count; m++)
		snprintf(d.uri[m], sizeof(d.uri[m]), "/dev/m%u", m);
	memcpy(d.agreed, d.uri, sizeof(d.agreed));
	return d;
}

/* How a change ended: 1 = it has not yet. */
static int ended;
static char ended_why[STORE_WHY_BYTES];

static void change_done(struct manager_change *c, int err, const char *why)
{
	(void)c;
	CHECK_EQ_INT(ended, 1);
	ended = err;
	snprintf(ended_why, sizeof(ended_why), "%s", why);
}

static struct manager_change change;

static int change_ends(void)
{
	settle();
	CHECK(ended <= 0);
	return ended;
}

static struct manager_change *change_begin(int what)
{
	memset(&change, 0, sizeof(change));
	change.what = what;
	change.done = change_done;
	ended = 1;
	return &change;
}

static int create_desc(const struct store_array *d)
{
	manager_create(d, change_begin(CHANGE_CREATE));
	return change_ends();
}

static void create(unsigned i, const char *name)
{
	struct store_array d = desc_of(i, name);

	CHECK_EQ_INT(create_desc(&d), 0);
}

static int set(struct array_entry *k, const char *key, const char *value)
{
	struct manager_change *c = change_begin(CHANGE_OPTION);

	c->key = key;
	c->value = value;
	manager_change(k, c);
	return change_ends();
}

static int say_for(struct array_entry *k, bool start, bool all, bool force)
{
	struct manager_change *c = change_begin(start ? CHANGE_START : CHANGE_STOP);

	c->all = all;
	c->force = force;
	manager_change(k, c);
	return change_ends();
}

static inline int forget_it(struct array_entry *k)
{
	manager_forget(k, change_begin(CHANGE_FORGET));
	return change_ends();
}

#endif
