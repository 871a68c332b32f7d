/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ddraidctl: the command line of ddraid. It knows nothing of RAID: it turns words into a request to
 * this machine's ddraidd and the replies into text or JSON (proto/ctl.proto, doc/wire.md). Only
 * `examine` works alone, on the members themselves.
 *
 *	tools/ctl/args	  words -> struct args
 *	tools/ctl/ipc	  request and replies over the daemon's socket
 *	tools/ctl/commands, status, examine	  what is asked, and how it is printed
 *	tools/ctl/answer	  the object of --json, and what failed
 *	tools/ctl/progress, table, json	  ways of printing
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/ctl/ctl.h"

static int (*const runs[CMD_COUNT])(struct ipc *, const struct args *) = {
    [CMD_CREATE] = create_command, [CMD_IMPORT] = create_command, [CMD_START] = change_run,
    [CMD_STOP] = change_run,       [CMD_STATUS] = status_run,     [CMD_FAIL] = change_run,
    [CMD_ADD] = change_run,        [CMD_READD] = change_run,      [CMD_ATTACH] = attach_run,
    [CMD_DETACH] = attach_run,     [CMD_FORGET] = change_run,     [CMD_NODES] = nodes_run,
    [CMD_SET] = settings_run,      [CMD_GET] = settings_run,      [CMD_VERSION] = version_run,
};

#define EVERY_COMMAND                                                                              \
	"every command: --json, --timeout SECONDS, --ipc NAME (the daemon's, \"%s\", or the path " \
	"of its socket), --help\n"

static void help_of(enum command cmd)
{
	printf("usage: ddraidctl %s\n\n%s\n\n" EVERY_COMMAND, args_usage(cmd), args_help(cmd),
	       CTL_SERVICE);
}

static void help_json(int only)
{
	json_open(answer(), "commands", '[');
	for (int i = 0; i < CMD_COUNT; i++) {
		if (only >= 0 && only != i)
			continue;
		json_open(answer(), NULL, '{');
		json_text(answer(), "name", args_name((enum command)i));
		json_text(answer(), "usage", args_usage((enum command)i));
		json_text(answer(), "help", args_help((enum command)i));
		json_close(answer(), '}');
	}
	json_close(answer(), ']');
}

static int help(const struct args *a)
{
	int only = -1;

	for (int i = 0; a->count && i < CMD_COUNT; i++)
		if (!strcmp(a->word[0], args_name((enum command)i)))
			only = i;
	if (a->json) {
		help_json(only);
		return EXIT_OK;
	}
	if (only >= 0) {
		help_of((enum command)only);
		return EXIT_OK;
	}
	printf("usage: ddraidctl COMMAND [OPTION]... [WORD]...\n\n");
	for (int i = 0; i < CMD_COUNT; i++)
		printf("  %s\n      %s\n", args_usage((enum command)i), args_help((enum command)i));
	printf("\n" EVERY_COMMAND "--version alone\n"
	       "a SIZE is a number with an optional K, M, G, T (powers of 1024)\n"
	       "exit status: 0 done, 1 refused or failed, 2 wrong usage, 3 no daemon, 4 no such "
	       "array,\n  5 degraded (status), 6 not now or not served (status), 7 answer lost\n",
	       CTL_SERVICE);
	return EXIT_OK;
}

/* Of the command alone. */
static int version(const struct args *a)
{
	if (a->json)
		json_text(answer(), "ddraidctl", PACKAGE_VERSION);
	else
		printf("ddraidctl %s\n", PACKAGE_VERSION);
	return EXIT_OK;
}

static int run(const struct args *a)
{
	struct ipc *c;
	int status;

	if (a->version)
		return version(a);
	if (a->cmd == CMD_HELP)
		return help(a);
	if (a->cmd == CMD_EXAMINE)
		return examine_run(a);
	c = ipc_open(a->ipc ? a->ipc : CTL_SERVICE, a->timeout_s);
	if (!c)
		return a->cmd == CMD_VERSION ? version_run(NULL, a) : EXIT_UNREACHABLE;
	status = runs[a->cmd](c, a);
	ipc_close(c);
	return status;
}

int main(int argc, char **argv)
{
	static struct args a;
	char error[ARGS_ERROR_BYTES];
	int status;

	signal(SIGPIPE, SIG_IGN);
	if (args_parse(&a, argc, argv, error)) {
		complain("%s", error);
		status = EXIT_USAGE;
	} else {
		status = run(&a);
	}
	answer_end(&a, status);
	if (fflush(stdout) || ferror(stdout)) {
		complain("the output can't be written");
		return status ? status : EXIT_FAILED;
	}
	return status;
}
