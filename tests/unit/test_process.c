// SPDX-License-Identifier: GPL-2.0-or-later
/* Has a process of this machine ended? For certain, or the answer is no. */
#include "daemon/runtime/process.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"

static void *second_thread(void *arg)
{
	pause();
	return arg;
}

/* A child that says who it is and then stays, with or without its first thread. */
static pid_t child_start(struct use_process *p, bool without_first)
{
	int fd[2];
	pid_t pid;

	CHECK(!pipe(fd));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		pthread_t thread;

		process_self(p);
		if (write(fd[1], p, sizeof(*p)) != sizeof(*p))
			_exit(1);
		if (without_first && !pthread_create(&thread, NULL, second_thread, NULL))
			pthread_exit(NULL);
		pause();
		_exit(0);
	}
	CHECK(read(fd[0], p, sizeof(*p)) == sizeof(*p));
	close(fd[0]);
	close(fd[1]);
	return pid;
}

static void child_ends(pid_t pid)
{
	siginfo_t info;

	CHECK(!kill(pid, SIGKILL));
	CHECK(!waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT));
}

static char state_of(pid_t pid)
{
	char path[64], state = '?';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	CHECK(f && fscanf(f, "%*d (%*[^)]) %c", &state) == 1 && !fclose(f));
	return state;
}

TEST(one_that_lives_and_ends)
{
	struct use_process p, other;
	pid_t pid = child_start(&p, false);

	CHECK_EQ_U64(p.pid, (uint32_t)pid);
	CHECK(!process_ended(&p));
	other = p;
	other.start++; /* its id has come again */
	CHECK(process_ended(&other));
	child_ends(pid);
	CHECK_EQ_INT(state_of(pid),
		     'Z'); /* nobody has asked for its status: so it is without a reaper */
	CHECK(process_ended(&p));
	CHECK_EQ_INT(waitpid(pid, NULL, 0), pid);
	CHECK(process_ended(&p));
}

TEST(its_first_thread_ends_others_go_on)
{
	struct use_process p;
	pid_t pid = child_start(&p, true);

	while (state_of(pid) != 'Z')
		usleep(1000);
	CHECK(!process_ended(&p));
	child_ends(pid);
	CHECK(process_ended(&p));
	CHECK_EQ_INT(waitpid(pid, NULL, 0), pid);
}

/* What `inside` says in a name space of process ids of its own; 77: there is none to be had here.
 */
static int in_own_space(int (*inside)(void))
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		if (unshare(CLONE_NEWPID | CLONE_NEWNS) &&
		    unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS))
			_exit(77);
		pid = fork();
		if (!pid)
			_exit(inside());
		waitpid(pid, &status, 0);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
	}
	CHECK_EQ_INT(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

/* /proc is that of the space outside. */
static int names_itself(void)
{
	struct use_process p;

	process_self(&p);
	return p.pid != 0;
}

/* /proc shows one's own processes only. */
static int takes_another_for_ended(void)
{
	struct use_process p;
	pid_t pid;

	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("proc", "/proc", "proc", 0, "hidepid=2"))
		return 77;
	pid = child_start(&p, false);
	if (!p.pid)
		return 1;
	if (process_ended(&p))
		return 2;
	if (setresuid(65534, 65534, 65534))
		return 77;
	if (process_ended(&p))
		return 3;
	p.pid = (uint32_t)pid + 1000; /* nobody has this one */
	return process_ended(&p) ? 0 : 4;
}

static void holds(int status)
{
	if (status == 77)
		printf("not checked: no name space, mount or user to be had\n");
	CHECK_MSG(!status || status == 77, "%d", status);
}

TEST(a_process_that_is_not_shown_has_not_ended)
{
	holds(in_own_space(names_itself));
	holds(in_own_space(takes_another_for_ended));
}

TEST(one_that_is_not_named)
{
	struct use_process p = {.pid = 0};

	CHECK(!process_ended(&p));
	p.pid = UINT32_MAX;
	CHECK(!process_ended(&p));
}
