/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ddraid.conf: lines of `key = value`, sections in brackets, comments after #. A key that is not
 * known, stands in another section than its own, or has a value out of its range is an error that
 * names file and line. Nothing is guessed.
 *
 *	[daemon]    state_dir run_dir log_level ipc_name socket_group socket_mode
 *	[cluster]   cluster heartbeat heartbeat_limit evict stop_timeout
 *	[fence]     fence fence_command fence_timeout zombie_timeout
 *	[members]   connections inflight connect_timeout request_timeout zombie_timeout
 *
 * Times are milliseconds, or have a unit: 1500, 1500ms, 10s, 2min. Sizes are as in units.h.
 */
#ifndef DDRAID_STATE_CONFIG_H
#define DDRAID_STATE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CONFIG_FILE "/etc/ddraid/ddraid.conf"
#define CONFIG_PATH_BYTES 256
#define CONFIG_WHY_BYTES 512

enum fence_policy {
	FENCE_UNSAID, /* no `fence` in the file: COMMAND with a fence_command, else ZOMBIE_TIMEOUT
		       */
	FENCE_COMMAND,
	FENCE_ZOMBIE_TIMEOUT,
	FENCE_NONE
};

#define CONFIG_MAX_KEYS 32

enum config_origin { CONFIG_DEFAULT, CONFIG_SET, CONFIG_ARGUMENT, CONFIG_ENVIRONMENT };

struct config {
	uint8_t origin[CONFIG_MAX_KEYS]; /* by the number of the setting */
	char state_dir[CONFIG_PATH_BYTES];
	char run_dir[CONFIG_PATH_BYTES];
	char ipc_name[64];
	char socket_group[64]; /* of the arrays' NBD sockets; "": the daemon's */
	gid_t socket_gid;      /* the same; (gid_t)-1 */
	uint32_t socket_mode;
	uint32_t log_level; /* syslog's */
	char cluster[16];   /* name of the group adapter */
	uint32_t heartbeat_ms;
	uint32_t heartbeat_limit_ms; /* 0 = half of the cluster's token time-out */
	uint32_t evict_ms;
	uint32_t stop_ms; /* how long a stop may take before what is under way is dropped */
	uint32_t fence;   /* enum fence_policy, never UNSAID after config_load */
	char fence_command[CONFIG_PATH_BYTES];
	uint32_t fence_timeout_ms;
	uint32_t restart_wait_ms;   /* for a daemon that died alone to start again */
	uint32_t zombie_timeout_ms; /* [fence]: what lands of a dead node lands within this time */
	uint32_t member_connections;
	uint32_t member_inflight_bytes;
	uint32_t member_connect_ms;
	uint32_t member_request_ms;
	uint32_t member_zombie_ms; /* [members]: the same, of a connection that broke */
};

/* The defaults. */
void config_init(struct config *c);
/*
 * Reads `path` over the defaults. 0, or -errno with a sentence in why. -ENOENT: there is no such
 * file, which is an error only if somebody named it.
 */
int config_load(struct config *c, const char *path, char why[CONFIG_WHY_BYTES]);
/* What config_load does at its end; for callers that have no file. */
int config_finish(struct config *c, char why[CONFIG_WHY_BYTES]);

/*
 * `now` was read anew: what may change while the daemon runs is taken from there. differs() is
 * called for each key with another value there, but for those that the command line or the
 * environment has set. The main thread's; no other thread reads the keys that are taken.
 */
void config_follow(struct config *c, const struct config *now,
		   void (*differs)(const char *key, const char *was, const char *now, bool taken));
/* The caller has overwritten the field of this key. */
void config_overruled(struct config *c, const char *key, enum config_origin origin);
/* The i-th setting: its name as "section.key", its value as text, and where that comes from.
 * Returns the key alone; NULL: there are no more. */
const char *config_get(const struct config *c, uint32_t i, char name[64],
		       char value[CONFIG_PATH_BYTES], const char **origin);
/* heartbeat_limit, or the most that it is by itself. ms */
uint32_t config_limit_ms(const struct config *c);
/*
 * So long after a daemon of this node has ended, in whatever way, all other nodes have heard of it,
 * or do no I/O since they hear nothing (R7): twice the limit, for corosync has to find out first.
 * 0: there are no others. ms
 */
uint32_t config_heard_ms(const struct config *c);

#endif
