// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The member port's conformance suite: one program, run on every adapter (tests/port/member.sh).
 *
 *	member_conformance [OPTION...] MODE URI [ARG...]
 *
 *   mode                    what it holds true
 *   conform URI SIZE        everything that the port promises of a member that works
 *   readonly URI            a member that can't be written: refused, or reads only
 *   refused URI ERRNO       open ends in down(-ERRNO) with a sentence, the loop never blocks
 *   killed URI PID COMMAND  exporter killed under load, restarted by COMMAND
 *   frozen URI PID          exporter stopped under load, then continued
 *   overdue URI PID         exporter stopped under load, continued when the lease is over
 *   errors URI TRIGGER      every request fails while the file TRIGGER exists (nbdkit's error)
 *   slow URI MS             answers take that long, which is not an error
 *   durable URI             sends 10 writes and 10 zeroes with FUA, 10 writes without, 1 FLUSH, for
 *                           the exporter's log to show what became of them
 *
 *	-c N connections  -z MS zombie timeout  -f force
 *
 * Exit: 0 all held, 1 one didn't. It ends no process but PID, and that by SIGKILL, SIGSTOP and
 * SIGCONT only.
 */
#include "tests/port/member_conformance.h"

#include <unistd.h>

struct member_cfg base_cfg;
const char *const *mode_args;
const char *now_running = "start";

static void usage(void)
{
	fprintf(stderr, "usage: member_conformance [-f] [-c N] [-z MS] MODE URI [ARG...]\n");
	exit(1);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int args;
		void (*run)(const char *uri);
	} modes[] = {
	    {"conform", 1, mode_conform}, {"readonly", 0, mode_readonly},
	    {"refused", 1, mode_refused}, {"killed", 2, mode_killed},
	    {"frozen", 1, mode_frozen},   {"errors", 1, mode_errors},
	    {"slow", 1, mode_slow},       {"durable", 0, mode_durable},
	    {"overdue", 1, mode_overdue}, {"flaps", 0, mode_flaps},
	};
	uint32_t i;
	int c;

	setvbuf(stdout, NULL, _IOLBF, 0);
	member_cfg_init(&base_cfg);
	base_cfg.backoff_min_ms = 20;
	base_cfg.backoff_max_ms = 200;
	base_cfg.zombie_timeout_ms = 100;
	while ((c = getopt(argc, argv, "fc:z:")) != -1) {
		if (c == 'f')
			base_cfg.force = true;
		else if (c == 'c')
			base_cfg.connections = (uint32_t)atoi(optarg);
		else if (c == 'z')
			base_cfg.zombie_timeout_ms = (uint32_t)atoi(optarg);
		else
			usage();
	}
	if (argc - optind < 2)
		usage();
	mode_args = (const char *const *)argv + optind + 2;
	for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (strcmp(modes[i].name, argv[optind]) || argc - optind - 2 != modes[i].args)
			continue;
		now_running = modes[i].name;
		modes[i].run(argv[optind + 1]);
		return 0;
	}
	usage();
	return 1;
}
