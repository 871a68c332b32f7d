/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ddraidctl's command line -> struct args. No I/O; what is wrong comes back as a sentence.
 */
#ifndef DDRAID_CTL_ARGS_H
#define DDRAID_CTL_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/limits.h"

#define ARGS_MAX_SETTINGS 32
#define ARGS_MAX_WORDS 1024
#define ARGS_ERROR_BYTES 512

enum command {
	CMD_CREATE,
	CMD_IMPORT,
	CMD_START,
	CMD_STOP,
	CMD_STATUS,
	CMD_FAIL,
	CMD_ADD,
	CMD_READD,
	CMD_ATTACH,
	CMD_DETACH,
	CMD_FORGET,
	CMD_NODES,
	CMD_SET,
	CMD_GET,
	CMD_VERSION,
	CMD_EXAMINE,
	CMD_HELP,
	CMD_COUNT
};

struct args {
	enum command cmd;
	int count;   /* of words that are no options */
	char **word; /* into words */
	char *words[ARGS_MAX_WORDS];
	const char *ipc;  /* of the daemon: a name, or with a '/' the path of its socket */
	const char *via;  /* attach; NULL = whatever the kernel has */
	const char *away; /* attach; NULL = as it is */
	bool json, wait, wipe, old_member, unaligned, disconnect, force, all_nodes, alone,
	    take_over, degraded, stale, ranges, daemon, zeroed;
	bool version;       /* --version: nothing else counts */
	uint64_t timeout_s; /* 0 = none */
	/* create; 0 = the daemon's default */
	uint64_t order, layout, stripe_bytes, band_bytes, region_bytes, slots;
	bool has_order;
	int settings;
	char *setting[ARGS_MAX_SETTINGS]; /* KEY=VALUE */
};

/*
 * 0, or -EINVAL and a sentence in `error`; a->json counts all the same. *a points into argv and
 * itself. With --help or -h anywhere, the command is CMD_HELP and word[0], if any, the command that
 * it is about.
 */
int args_parse(struct args *a, int argc, char **argv, char error[ARGS_ERROR_BYTES]);

/* "KEY=VALUE": the '=' becomes the key's end. The value, or NULL if there is no key or no '='. */
char *args_split(char *setting);

const char *args_name(enum command cmd);
const char *args_usage(enum command cmd); /* one line, without "usage: ddraidctl" */
const char *args_help(enum command cmd);  /* what it does, one line */

#endif
