// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ddraidd. The order of its start matters:
 *
 *	arguments, configuration	errors go to the terminal
 *	background			a parent stays until it is known how the rest went
 *	fence helper			forked while there are no threads, locks, or locked memory
 *	oom_score_adj, PR_SET_IO_FLUSHER, mlockall	threads inherit the second; stacks count for
 *			the third
 *	state_dir, run_dir		locked: one daemon per directory
 *	loop, worker, IPC, arrays	an engine thread for each
 *
 * The main thread runs libqb's loop: IPC, signals, the fence helper, and tasks from other threads.
 * It is not in any I/O's way. SIGTERM and SIGINT stop the arrays, with a bound, and end the daemon.
 * SIGHUP reads the configuration anew.
 */
#include "daemon/catalog/manager.h"
#include "daemon/daemon.h"
#include "daemon/ports/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <qb/qbloop.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/base/mailbox.h"
#include "daemon/base/units.h"
#include "daemon/base/virt.h"
#include "daemon/base/warnings.h"
#include "daemon/runtime/failpoint.h"
#include "daemon/runtime/fence/fence.h"
#include "daemon/service.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

_Static_assert(FENCE_WHY_BYTES >= CONFIG_WHY_BYTES, "for either's sentence");

#define STOP_SPARE_MS 8000u /* for the group and the members to let go */

static struct config conf;
static struct qb_loop *loop;
static struct mailbox main_box;
static struct worker worker;
static int box_fd = -1;
static int exit_status;
static bool stopping;
static const char *config_file; /* that was named on the command line, or NULL */

static const struct option long_options[] = {{"config", required_argument, NULL, 'c'},
					     {"foreground", no_argument, NULL, 'f'},
					     {"state-dir", required_argument, NULL, 's'},
					     {"run-dir", required_argument, NULL, 'r'},
					     {"ipc", required_argument, NULL, 'i'},
					     {"version", no_argument, NULL, 'V'},
					     {"help", no_argument, NULL, 'h'},
					     {NULL, 0, NULL, 0}};

static void usage(FILE *to)
{
	fprintf(to,
		"usage: ddraidd [OPTION]...\n\n"
		"  -c, --config FILE    configuration (%s, if there is one)\n"
		"  -f, --foreground     stay in the foreground, log to standard error\n"
		"  -s, --state-dir DIR  instead of the configuration's state_dir;\n"
		"                       $DDRAID_STATE_DIR does the same\n"
		"      --run-dir DIR    instead of run_dir\n"
		"      --ipc NAME       instead of ipc_name, for several daemons on one machine\n"
		"      --version, --help\n",
		CONFIG_FILE);
}

struct args {
	const char *config, *state_dir, *run_dir, *ipc;
	bool foreground;
	enum config_origin state_dir_by;
};

static void parse_args(struct args *a, int argc, char **argv)
{
	int c;

	a->state_dir = getenv("DDRAID_STATE_DIR");
	a->state_dir_by = CONFIG_ENVIRONMENT;
	while ((c = getopt_long(argc, argv, "c:fs:h", long_options, NULL)) != -1) {
		switch (c) {
		case 'c':
			a->config = optarg;
			break;
		case 'f':
			a->foreground = true;
			break;
		case 's':
			a->state_dir = optarg;
			a->state_dir_by = CONFIG_ARGUMENT;
			break;
		case 'r':
			a->run_dir = optarg;
			break;
		case 'i':
			a->ipc = optarg;
			break;
		case 'V':
			printf("ddraidd %s\n", PACKAGE_VERSION);
			exit(0);
		case 'h':
			usage(stdout);
			exit(0);
		default:
			usage(stderr);
			exit(2);
		}
	}
	if (optind < argc) {
		fprintf(stderr, "ddraidd: what is %s? see ddraidd --help\n", argv[optind]);
		exit(2);
	}
}

static void path_set(char field[CONFIG_PATH_BYTES], const char *value, const char *what,
		     const char *key, enum config_origin origin)
{
	if (!value)
		return;
	if (value[0] != '/' || strlen(value) >= CONFIG_PATH_BYTES) {
		fprintf(stderr, "ddraidd: %s wants an absolute path of at most %d characters\n",
			what, CONFIG_PATH_BYTES - 1);
		exit(2);
	}
	strcpy(field, value);
	config_overruled(&conf, key, origin);
}

static void configure(const struct args *a)
{
	char why[FENCE_WHY_BYTES];
	const char *reason;
	int err;

	config_init(&conf);
	err = config_load(&conf, a->config ? a->config : CONFIG_FILE, why);
	if (err == -ENOENT && !a->config)
		err = config_finish(&conf, why);
	if (!err)
		err = fence_check(&conf, why);
	if (err) {
		fprintf(stderr, "ddraidd: %s\n", why);
		exit(2);
	}
	path_set(conf.state_dir, a->state_dir, "--state-dir", "state_dir", a->state_dir_by);
	path_set(conf.run_dir, a->run_dir, "--run-dir", "run_dir", CONFIG_ARGUMENT);
	if (!a->ipc)
		return;
	if (array_name_check(a->ipc, &reason)) {
		fprintf(stderr, "ddraidd: --ipc %.63s can't be used: %s\n", a->ipc, reason);
		exit(2);
	}
	strcpy(conf.ipc_name, a->ipc);
	config_overruled(&conf, "ipc_name", CONFIG_ARGUMENT);
}

/* ---- what the process is -------------------------------------------------------------------- */

/* Who is killed to make room must not be who has to write it. Children don't inherit it: the fence
 * helper was forked before. */
static void protect_from_oom(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "-1000", 5) < 0)
		warnings_add(
		    "this process can't be kept from the OOM killer (%s): run ddraidd with "
		    "CAP_SYS_RESOURCE",
		    strerror(errno));
	if (fd >= 0)
		close(fd);
}

static void warn_of_pauses(void)
{
	char what[VIRT_BYTES];

	if (conf.fence != FENCE_ZOMBIE_TIMEOUT || !strcmp(conf.cluster, "alone") ||
	    !virt_machine("", what))
		return;
	warnings_add("fence = zombie_timeout on a virtual machine (%s): one that is paused for "
		     "longer than %.1f s, or goes on from a snapshot, may write over what the "
		     "others wrote meanwhile, unless all exporters end the connections of a silent "
		     "node before that; configure a fence_command, or see that nobody pauses it",
		     what, conf.zombie_timeout_ms / 1000.0);
}

static void protect_process(void)
{
	protect_from_oom();
	if (prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) < 0)
		warnings_add("this process can't be marked as an I/O flusher (%s): under memory "
			     "pressure it may wait for itself; run ddraidd with CAP_SYS_RESOURCE",
			     strerror(errno));
	if (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) < 0)
		warnings_add("memory can't be locked (%s): under memory pressure ddraidd may wait "
			     "for the array it serves; raise LimitMEMLOCK, or ulimit -l",
			     strerror(errno));
	if (getenv("DDRAIDD_FAILPOINT"))
		warnings_add(
		    "DDRAIDD_FAILPOINT is set: this daemon kills itself at the step that %s "
		    "names; for tests only",
		    getenv("DDRAIDD_FAILPOINT"));
	if (conf.fence == FENCE_NONE)
		warnings_add("fence = none: writes of a node that died may still land after its "
			     "regions were recovered; configure a fence_command");
	warn_of_pauses();
	if (conf.fence == FENCE_ZOMBIE_TIMEOUT)
		warnings_add("fence = zombie_timeout: a node that died is not cut off, only waited "
			     "for, %.1f s; what of its writes lands later destroys data; configure "
			     "a fence_command",
			     conf.zombie_timeout_ms / 1000.0);
}

/* ---- the background ------------------------------------------------------------------------- */

/* What the daemon tells the process that somebody waits for. */
struct start {
	int status; /* to exit with */
	char why[STORE_WHY_BYTES];
};

_Static_assert(sizeof(struct start) <= PIPE_BUF, "is written as a whole");

static int start_fd = -1;

static void start_told(int status, const char *why)
{
	struct start s = {.status = status};

	if (start_fd < 0)
		return;
	snprintf(s.why, sizeof(s.why), "%s", why);
	if (write(start_fd, &s, sizeof(s)) < 0)
		say(LOG_INFO, "nobody waits for the start any more");
	close(start_fd);
	start_fd = -1;
}

/* Returns the status, for main. */
static int start_ends(int status, const char *why)
{
	say(LOG_ERR, "%s", why);
	start_told(status, why);
	return status;
}

__attribute__((format(printf, 1, 2))) static int start_failed(const char *format, ...)
{
	char why[STORE_WHY_BYTES];
	va_list ap;

	va_start(ap, format);
	vsnprintf(why, sizeof(why), format, ap);
	va_end(ap);
	return start_ends(1, why);
}

static void start_wait(int fd)
{
	struct start s;
	ssize_t n;

	do {
		n = read(fd, &s, sizeof(s));
	} while (n < 0 && errno == EINTR);
	if (n != sizeof(s)) {
		fprintf(stderr, "ddraidd: it ended before it was ready; see the log\n");
		exit(1);
	}
	if (s.status)
		fprintf(stderr, "ddraidd: %s\n", s.why);
	exit(s.status);
}

/* The parent stays until the daemon is ready or has failed, and ends with its status. */
static void detach(void)
{
	int fd[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
	pid_t pid = null < 0 || pipe2(fd, O_CLOEXEC) < 0 ? -1 : fork();

	if (pid < 0) {
		fprintf(stderr, "ddraidd: can't go to the background: %s\n", strerror(errno));
		exit(1);
	}
	if (pid) {
		close(fd[1]);
		start_wait(fd[0]);
	}
	close(fd[0]);
	start_fd = fd[1];
	setsid();
	if (chdir("/") < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
		exit(1);
	close(null);
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void box_kick(void *arg)
{
	uint64_t one = 1;

	(void)arg;
	if (write(box_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		abort();
}

static int32_t box_ready(int32_t fd, int32_t revents, void *data)
{
	uint64_t kicks;

	(void)revents;
	(void)data;
	if (read(fd, &kicks, sizeof(kicks)) == sizeof(kicks))
		mailbox_run(&main_box);
	return 0;
}

static void all_stopped(void)
{
	qb_loop_stop(loop);
}

static void out_of_time(void *data)
{
	(void)data;
	say(LOG_ERR,
	    "arrays that did not stop in time: %u; the end is hard, and these incarnations are "
	    "fenced at "
	    "the next start",
	    manager_running());
	log_close();
	_exit(1);
}

/* An array that did not drain waits for heartbeat_limit before it tells its consumers. */
static uint64_t end_ms(void)
{
	return conf.stop_ms + config_limit_ms(&conf) + STOP_SPARE_MS;
}

static int32_t on_signal(int32_t sig, void *data)
{
	qb_loop_timer_handle timer;

	(void)data;
	if (stopping)
		return 0;
	stopping = true;
	say(LOG_NOTICE, "%s: stopping", strsignal(sig));
	service_tell("STOPPING=1");
	qb_loop_timer_add(loop, QB_LOOP_HIGH, end_ms() * 1000000ull, NULL, out_of_time, &timer);
	lock_managers_ending();
	daemon_stop(all_stopped);
	return 0;
}

static void setting_differs(const char *key, const char *was, const char *now, bool taken)
{
	if (taken)
		say(LOG_NOTICE, "%s = %s from now on; it was %s", key, now,
		    was[0] ? was : "not set");
	else
		say(LOG_WARNING,
		    "%s = %s counts from the next start of ddraidd; until then it is %s", key, now,
		    was[0] ? was : "not set");
}

/* What can't be read, or does not go together, changes nothing. */
static void reload(void)
{
	char why[FENCE_WHY_BYTES];
	struct config now;
	int err;

	config_init(&now);
	err = config_load(&now, config_file ? config_file : CONFIG_FILE, why);
	if (err == -ENOENT && !config_file)
		err = config_finish(&now, why);
	if (!err)
		err = fence_check(&now, why);
	if (err) {
		say(LOG_ERR, "the configuration stays as it was: %s", why);
		return;
	}
	config_follow(&conf, &now, setting_differs);
	log_level((int)conf.log_level);
	say(LOG_NOTICE, "the configuration was read anew");
}

static int32_t on_hangup(int32_t sig, void *data)
{
	(void)sig;
	(void)data;
	if (stopping)
		return 0;
	service_tell("RELOADING=1");
	reload();
	service_tell("READY=1");
	return 0;
}

/* Those that nobody means, and that would end the process by themselves. */
static void ignore_signals(void)
{
	static const int ignored[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR};

	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], SIG_IGN);
}

static int setup_loop(void)
{
	qb_loop_signal_handle handle;
	int err;

	loop = qb_loop_create();
	box_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (!loop || box_fd < 0)
		return -ENOMEM;
	mailbox_init(&main_box, box_kick, NULL);
	err = qb_loop_poll_add(loop, QB_LOOP_MED, box_fd, POLLIN, NULL, box_ready);
	if (!err)
		err = qb_loop_signal_add(loop, QB_LOOP_HIGH, SIGTERM, NULL, on_signal, &handle);
	if (!err)
		err = qb_loop_signal_add(loop, QB_LOOP_HIGH, SIGINT, NULL, on_signal, &handle);
	if (!err)
		err = qb_loop_signal_add(loop, QB_LOOP_MED, SIGHUP, NULL, on_hangup, &handle);
	if (!err)
		err = worker_start(&worker);
	return err;
}

#define LOCKS_END_MS 15000u /* how long the end waits for lock spaces to be left */

static int run(void)
{
	struct daemon_env env = {.conf = &conf, .loop = loop, .main = &main_box, .worker = &worker};
	char why[STORE_WHY_BYTES];
	int err;

	err = fence_open(loop, &conf);
	if (err)
		return start_failed("the fence helper can't be watched: %s", strerror(-err));
	clock_gettime(CLOCK_MONOTONIC, &env.began);
	attach_daemon_began(config_heard_ms(&conf));
	err = daemon_start(&env, why);
	if (err)
		return start_failed("%s", why);
	say(LOG_NOTICE, "ddraidd %s is ready, fence %s", PACKAGE_VERSION, fence_describe());
	start_told(0, "");
	service_tell("READY=1");
	service_watch(loop);
	qb_loop_run(loop);
	daemon_end();
	return exit_status;
}

/* What was deleted within the last seconds: the next start is to find it. */
static void last_look(void)
{
	char why[STORE_WHY_BYTES];

	if (store_look(why))
		say(LOG_ERR, "%s", why);
	if (store_deleted(true, why))
		say(LOG_WARNING, "%s", why);
}

int main(int argc, char **argv)
{
	struct args a = {0};
	char why[STORE_WHY_BYTES];
	int err;

	parse_args(&a, argc, argv);
	if (failpoint_init())
		return 2;
	configure(&a);
	config_file =
	    a.config ? realpath(a.config, NULL) : NULL; /* whatever directory this is in */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN); /* until the loop has it */
	if (!a.foreground)
		detach();
	err = fence_helper_start(&conf);
	ignore_signals();
	log_open("ddraidd", (int)conf.log_level, a.foreground);
	if (err)
		return start_failed("the fence helper can't be started: %s", strerror(-err));
	protect_process();
	err = store_open(conf.state_dir, why);
	if (!err)
		err = store_run_open(conf.run_dir, conf.ipc_name, why);
	if (err) { /* a path that no machine can use is a wrong configuration */
		err = start_ends(err == -ENAMETOOLONG ? 2 : 1, why);
		log_close();
		return err;
	}
	log_threaded();
	if (setup_loop()) {
		err = start_failed("the main loop can't be set up: out of memory or descriptors");
		log_close();
		return err;
	}
	err = run();
	fence_close();
	lock_managers_settle(LOCKS_END_MS);
	worker_stop(&worker);
	last_look();
	store_close();
	log_close();
	return err;
}
