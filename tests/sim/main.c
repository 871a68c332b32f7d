/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ddraid-sim: options, the range of seeds, and what to do when an assertion in the engine fails.
 */
#include <getopt.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/seed.h"

#define SIM_MAX_JOBS 64
#define HANG_SECONDS 60 /* a seed takes some ten milliseconds; under sanitizers ten times that */

static volatile uint64_t running_seed;
static sigjmp_buf next_seed;
static struct sim_cli cli;
static struct sim sim;

/* What one process of --jobs has done; in memory that all share. */
struct job_share {
	struct stats stats;
	uint64_t seeds, failed;
};
static struct job_share *share;
static struct stats *stats; /* this process's */

static const char usage[] =
    "usage: ddraid-sim [option...]\n"
    "  --seed N        one seed\n"
    "  --seeds A..B    all seeds from A to B\n"
    "  --seconds S     begin no further seed after S seconds\n"
    "  --batch         engines get events of the data path together, as ddraidd has it\n"
    "  --readers       somebody else takes locks in PR, where they are the DLM's\n"
    "  --slots N       force the number of log slots (4 to 32), where that many fit\n"
    "  --nodes N       force the number of nodes (1 to 5); 1: crashes and power loss only\n"
    "  --only F[,F]    only these faults are planned (--list names them)\n"
    "  --jobs N        in N processes at once (1 to 64)\n"
    "  --keep-going    go on after a violation\n"
    "  --trace         print every event and out\n"
    "  --tail N        print the last N lines of the trace of a seed that fails\n"
    "  --digest        print a digest of each seed's trace\n"
    "  --stats         print how often each fault met each state\n"
    "  --quiet         print violations only\n"
    "Exit status: 0 all seeds passed, 1 a violation, or a fault that never occurred in 500\n"
    "seeds or more, or with --stats never met one of the states in 1000; 2 wrong usage.\n";

static void replay(FILE *f, uint64_t seed)
{
	fprintf(f, "replay: %s --seed %lu", cli.argv0, seed);
	if (cli.nodes)
		fprintf(f, " --nodes %u", cli.nodes);
	if (cli.batch)
		fprintf(f, " --batch");
	if (cli.readers)
		fprintf(f, " --readers");
	if (cli.slots)
		fprintf(f, " --slots %u", cli.slots);
	if (cli.only_text)
		fprintf(f, " --only %s", cli.only_text);
	fprintf(f, " --trace\n");
}

static void on_signal(int sig)
{
	char text[200];
	int n =
	    snprintf(text, sizeof(text), "seed %lu: VIOLATION %s: signal %d at %lu us\n",
		     (unsigned long)running_seed, sig == SIGALRM ? "HANG" : "CRASH", sig, sim.now);

	fflush(stdout);
	if (write(STDOUT_FILENO, text, (size_t)n) < 0)
		_exit(1);
	replay(stdout, running_seed);
	if (cli.tail)
		trace_tail(&sim);
	fflush(stdout);
	if (cli.keep_going)
		siglongjmp(next_seed, 1);
	signal(sig, SIG_DFL);
	raise(sig);
}

static bool parse_only(const char *list)
{
	while (*list) {
		size_t n = strcspn(list, ",");
		uint32_t f;

		for (f = 0; f < F_PLANNED; f++)
			if (strlen(fault_name[f]) == n && !strncmp(fault_name[f], list, n))
				break;
		if (f == F_PLANNED) {
			fprintf(stderr, "ddraid-sim: no fault has the name %.*s; see --list\n",
				(int)n, list);
			return false;
		}
		cli.only |= 1ull << f;
		list += n + (list[n] == ',');
	}
	return true;
}

static bool parse_range(const char *text)
{
	char *end;

	cli.first = cli.last = strtoull(text, &end, 0);
	if (!strncmp(end, "..", 2))
		cli.last = strtoull(end + 2, &end, 0);
	if (!*end && end != text && cli.first <= cli.last)
		return true;
	fprintf(stderr, "ddraid-sim: %s is not a range of seeds: write A..B\n", text);
	return false;
}

static const struct option options[] = {
    {"seed", required_argument, NULL, 's'},    {"seeds", required_argument, NULL, 's'},
    {"seconds", required_argument, NULL, 'S'}, {"nodes", required_argument, NULL, 'n'},
    {"slots", required_argument, NULL, 'L'},   {"batch", no_argument, NULL, 'B'},
    {"readers", no_argument, NULL, 'R'},       {"only", required_argument, NULL, 'o'},
    {"tail", required_argument, NULL, 't'},    {"keep-going", no_argument, NULL, 'k'},
    {"trace", no_argument, NULL, 'T'},         {"digest", no_argument, NULL, 'd'},
    {"stats", no_argument, NULL, 'a'},         {"quiet", no_argument, NULL, 'q'},
    {"list", no_argument, NULL, 'l'},          {"jobs", required_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
};

static void list_faults(void)
{
	for (uint32_t f = 0; f < F_PLANNED; f++)
		puts(fault_name[f]);
	exit(0);
}

static bool option(int c)
{
	switch (c) {
	case 's':
		return parse_range(optarg);
	case 'S':
		cli.seconds = strtoull(optarg, NULL, 0);
		return true;
	case 'n':
		cli.nodes = (uint32_t)strtoul(optarg, NULL, 0);
		return cli.nodes >= 1 && cli.nodes <= SIM_MAX_NODES;
	case 'B':
		cli.batch = true;
		return true;
	case 'R':
		cli.readers = true;
		return true;
	case 'L':
		cli.slots = (uint32_t)strtoul(optarg, NULL, 0);
		return cli.slots >= 4 && cli.slots <= 32;
	case 'j':
		cli.jobs = (uint32_t)strtoul(optarg, NULL, 0);
		return cli.jobs >= 1 && cli.jobs <= SIM_MAX_JOBS;
	case 'o':
		cli.only_text = optarg;
		return parse_only(optarg);
	case 't':
		cli.tail = (uint32_t)strtoul(optarg, NULL, 0);
		return true;
	case 'k':
		cli.keep_going = true;
		return true;
	case 'T':
		cli.trace = true;
		return true;
	case 'd':
		cli.digest = true;
		return true;
	case 'a':
		cli.stats = true;
		return true;
	case 'q':
		cli.quiet = true;
		return true;
	case 'l':
		list_faults();
		return true;
	default:
		return false;
	}
}

static bool parse(int argc, char **argv)
{
	int c;

	cli.argv0 = argv[0];
	cli.first = cli.last = 1;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		if (!option(c)) {
			fputs(usage, c == 'h' ? stdout : stderr);
			return false;
		}
	if (optind == argc)
		return true;
	fputs(usage, stderr);
	return false;
}

static uint64_t seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec;
}

static bool run_seed(uint64_t seed)
{
	running_seed = seed;
	alarm(HANG_SECONDS);
	if (sigsetjmp(next_seed, 1))
		return false; /* what the seed had allocated is lost */
	if (seed_run(&sim, seed, &cli, stats)) {
		if (cli.digest)
			printf("seed %lu: digest %016lx\n", seed, sim.digest);
		return true;
	}
	printf("seed %lu: VIOLATION %s\n", seed, sim.violation);
	replay(stdout, seed);
	fflush(stdout);
	return false;
}

static void set_handlers(void)
{
	static const int sigs[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};

	for (size_t i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++)
		signal(sigs[i], on_signal);
}

static bool any_failed(void)
{
	for (uint32_t j = 0; j < cli.jobs; j++)
		if (share[j].failed)
			return true;
	return false;
}

/* Every so many-th seed of the range. */
static void run_share(uint32_t job, uint64_t begin)
{
	struct job_share *mine = &share[job];

	stats = &mine->stats;
	for (uint64_t seed = cli.first + job; seed <= cli.last; seed += cli.jobs) {
		if (cli.seconds && seconds() - begin >= cli.seconds)
			return;
		if (!cli.keep_going && any_failed())
			return;
		mine->seeds++;
		mine->failed += !run_seed(seed);
	}
}

/* One process each; one that dies of a seed counts as a failure. */
static void run_jobs(uint64_t begin)
{
	pid_t pid[SIM_MAX_JOBS];

	fflush(stdout);
	for (uint32_t j = 0; j < cli.jobs; j++) {
		pid[j] = fork();
		if (pid[j] < 0) {
			perror("ddraid-sim: fork");
			exit(1);
		}
		if (pid[j])
			continue;
		run_share(j, begin);
		fflush(stdout);
		_exit(0);
	}
	for (uint32_t j = 0; j < cli.jobs; j++) {
		int status = 0;

		if (waitpid(pid[j], &status, 0) != pid[j] || status)
			share[j].failed++;
	}
}

int main(int argc, char **argv)
{
	uint64_t begin = seconds();

	cli.jobs = 1;
	if (!parse(argc, argv))
		return 2;
	share = mmap(NULL, cli.jobs * sizeof(*share), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (share == MAP_FAILED) {
		perror("ddraid-sim: mmap");
		return 1;
	}
	set_handlers();
	if (cli.jobs == 1)
		run_share(0, begin);
	else
		run_jobs(begin);
	for (uint32_t j = 1; j < cli.jobs; j++) {
		stats_add(&share[0].stats, &share[j].stats);
		share[0].seeds += share[j].seeds;
		share[0].failed += share[j].failed;
	}
	if (cli.stats)
		stats_print(&share[0].stats);
	if (!cli.quiet)
		printf("%lu seeds, %lu failed\n", share[0].seeds, share[0].failed);
	if (share[0].seeds >= 500 && stats_missing(&share[0].stats, &cli))
		return 1;
	return share[0].failed ? 1 : 0;
}
