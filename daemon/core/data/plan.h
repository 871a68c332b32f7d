/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Planners: a range of whole stripes -> requests to members. Pure functions, any
 * thread; memory is the caller's. A plan is bounded: n requests for a write (each
 * member holds one contiguous range, whatever the bands do), for a read at most one
 * per member and band.
 *
 * Two layouts of memory are used:
 *  user order:   `data`, stripe by stripe, S bytes each
 *  member-major: `win`, n rows of `count * F` bytes; row i = member i's range
 * Masks have bit i set for member i.
 */
#ifndef DDRAID_CORE_DATA_PLAN_H
#define DDRAID_CORE_DATA_PLAN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "daemon/core/format/geometry.h"

struct plan_req {
	uint8_t member;
	uint32_t bytes;
	uint64_t offset;    /* member byte offset */
	uint32_t iov_first; /* index into plan.iov */
	uint32_t iov_count;
};

struct plan {
	struct plan_req *req;
	uint32_t req_count, req_cap;
	struct iovec *iov;
	uint32_t iov_count, iov_cap;
	size_t bytes; /* of the memory behind req, which iov is in as well */
};

/* Memory for a plan of `count` stripes. May be called again for another count: keeps what is
 * enough. -ENOMEM, and then it has none; or 0. */
int plan_alloc(struct plan *p, const struct geo *g, uint32_t count);
void plan_free(struct plan *p);

/* What caps a plan of `count` stripes needs at most. */
uint32_t plan_max_reqs(const struct geo *g, uint32_t count);
uint32_t plan_max_iovs(const struct geo *g, uint32_t count);

/*
 * Computes the parity of `count` stripes of user data into `parity` (m rows of count * F
 * bytes) and plans one write for each member in `members`. Neighbouring pieces of
 * memory merge into one vector.
 */
void plan_write(const struct geo *g, uint64_t stripe, uint32_t count, const void *data,
		void *parity, uint32_t members, struct plan *p);

/* Plans the reads of the data fragments straight into `data`: every member is readable. */
void plan_read(const struct geo *g, uint64_t stripe, uint32_t count, void *data, struct plan *p);

/* Plans reads (or writes) of whole member rows of `win` for each member in `members`. */
void plan_window(const struct geo *g, uint64_t stripe, uint32_t count, void *win, uint32_t members,
		 struct plan *p);

/* Recomputes rows `want` from the rows of `valid` (>= k of them, disjoint from `want`). -EINVAL if
 * that can't be done with this many fragments. */
int window_decode(const struct geo *g, uint64_t stripe, uint32_t count, void *win, uint32_t valid,
		  uint32_t want);
/* Recomputes the parity fragments of the window from its data fragments; returns how many stripes
 * changed. All rows are valid. first_bad, if not NULL, gets the first changed stripe's index in
 * the window. dirty_rows gets the mask of the rows in which anything changed. */
uint32_t window_reparity(const struct geo *g, uint64_t stripe, uint32_t count, void *win,
			 uint32_t *first_bad, uint32_t *dirty_rows);
/* Copies the user data out of / into the window's data fragments. */
void window_to_user(const struct geo *g, uint64_t stripe, uint32_t count, const void *win,
		    void *data);

#endif
