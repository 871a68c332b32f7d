/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the member port's conformance suite is made of:
 *
 *   member_world.c        one open member, its requests, what they carry
 *   member_works.c        the mode `conform`: what holds for a member that works
 *   member_fails.c        the other modes: members that are refused, killed, frozen, slow, ...
 *   member_conformance.c  the program
 */
#ifndef TESTS_PORT_MEMBER_CONFORMANCE_H
#define TESTS_PORT_MEMBER_CONFORMANCE_H

#include "daemon/base/loop.h"
#include "daemon/ports/member.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB 1024u
#define MIB (1024u * 1024u)
#define LIMIT_MS 30000u /* nothing here may take longer */

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond))                                                                       \
			fail(__FILE__, __LINE__, #cond);                                           \
	} while (0)
#define CHECK_INT(got, want)                                                                       \
	do {                                                                                       \
		long long got_ = (got), want_ = (want);                                            \
		if (got_ != want_) {                                                               \
			fprintf(stderr, "got %lld, want %lld\n", got_, want_);                     \
			fail(__FILE__, __LINE__, #got " == " #want);                               \
		}                                                                                  \
	} while (0)

#define WAIT(w, cond)                                                                              \
	do {                                                                                       \
		uint64_t until_ = loop_clock_us((w)->loop) + LIMIT_MS * 1000ull;                   \
		while (!(cond)) {                                                                  \
			if (loop_clock_us((w)->loop) > until_)                                     \
				fail(__FILE__, __LINE__, "in time: " #cond);                       \
			turn(w);                                                                   \
		}                                                                                  \
	} while (0)

/* One open member, and what it told. */
struct world {
	const char *uri;
	struct loop *loop;
	struct member *m;
	struct member_cfg cfg;
	struct member_info info;
	bool is_up, is_closed, closing;
	unsigned int ups, downs, retries, fences;
	int down_err;
	char down_why[256];
	uint64_t fence_connection;
	uint64_t up_at_us, down_at_us;
	unsigned int out; /* submitted and not answered */
	unsigned int answered;
	unsigned int out_at_down; /* must be none */
};

/* One request; freed in done() unless somebody waits for it. */
struct io {
	struct member_req req;
	struct world *w;
	bool kept, done;
	int err;
	uint8_t *data; /* READ, WRITE: all vectors lie in it */
	struct iovec *iov;
	void (*then)(struct io *io); /* instead of freeing it */
	uint64_t state;              /* then's */
	uint32_t magic;
};

extern struct member_cfg base_cfg;   /* as the command line has it */
extern const char *const *mode_args; /* what follows the URI */
extern const char *now_running;      /* is named when something fails */

/* ---- member_world.c ------------------------------------------------------------------------- */

_Noreturn void fail(const char *file, int line, const char *what);

/* start: it need not be up yet. fencing: fence_connection() is there to be asked. */
struct world *world_start(const char *uri, const struct member_cfg *cfg);
struct world *world_open(const char *uri, const struct member_cfg *cfg);
struct world *world_open_fencing(const char *uri, const struct member_cfg *cfg);
void world_close(struct world *w);
void turn(struct world *w);
void pause_ms(struct world *w, uint32_t ms);

struct io *io_new(struct world *w, enum dev_op op, uint32_t flags, uint64_t offset, uint32_t bytes);
/* Cuts the buffer, moved by `shift` bytes, into vectors of the lengths in turn. */
void io_cut(struct io *io, uint32_t shift, const uint32_t *lengths, uint32_t kinds);
void io_submit(struct io *io);
int io_wait(struct io *io);
void io_free(struct io *io);

/* Contents that name their place and a seed, so that nothing can be in a wrong place unnoticed. */
void fill(uint8_t *p, uint64_t offset, uint32_t bytes, uint64_t seed);
bool is_filled(const uint8_t *p, uint64_t offset, uint32_t bytes, uint64_t seed);
/* Whole requests, waited for: write it; does it hold this, or zeroes; any, and its error. */
void put(struct world *w, uint64_t offset, uint32_t bytes, uint64_t seed, uint32_t flags);
bool holds(struct world *w, uint64_t offset, uint32_t bytes, uint64_t seed);
bool holds_zeroes(struct world *w, uint64_t offset, uint32_t bytes);
int simple(struct world *w, enum dev_op op, uint32_t flags, uint64_t offset, uint32_t bytes);

/* Many requests at once; the third one doesn't fit into the bound as a whole. */
void load(struct world *w, uint32_t count);
/* No buffer of a read of load() was touched after its done(). */
void quiet_is_quiet(void);

/* ---- the modes ------------------------------------------------------------------------------ */

/* member_works.c */
void mode_conform(const char *uri);
/* member_fails.c */
void mode_refused(const char *uri);
void mode_readonly(const char *uri);
void mode_killed(const char *uri);
void mode_frozen(const char *uri);
void mode_overdue(const char *uri);
void mode_flaps(const char *uri);
void mode_errors(const char *uri);
void mode_slow(const char *uri);
void mode_durable(const char *uri);

#endif
