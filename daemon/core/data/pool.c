/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory of front-end requests and their parts that are through, for the next ones: in steady state
 * a request allocates nothing. What is kept has a bound. A build with AddressSanitizer keeps
 * nothing, so that it sees a use after the end.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/core/data/data.h"

#if defined(__SANITIZE_ADDRESS__)
#define KEPT 0u
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KEPT 0u
#endif
#endif
#ifndef KEPT
#define KEPT 256u /* of each kind */
#endif
#define KEPT_MEM (64u << 10) /* bytes; larger ones are freed */

struct front_request *front_request_get(struct engine *e)
{
	struct front_request *f;

	if (list_empty(&e->d->front_requests_kept))
		return calloc(1, sizeof(*f));
	f = list_first(&e->d->front_requests_kept, struct front_request, link);
	list_del(&f->link);
	e->d->front_requests_kept_count--;
	memset(f, 0, sizeof(*f));
	return f;
}

void front_request_put(struct engine *e, struct front_request *f)
{
	if (e->d->front_requests_kept_count + 1 > KEPT) {
		free(f);
		return;
	}
	list_add_tail(&e->d->front_requests_kept, &f->link);
	e->d->front_requests_kept_count++;
}

struct op *op_get(struct engine *e)
{
	struct op *op;
	struct stripes s;

	if (list_empty(&e->d->ops_kept))
		return calloc(1, sizeof(*op));
	op = list_first(&e->d->ops_kept, struct op, link);
	list_del(&op->link);
	e->d->ops_kept_count--;
	s = op->s;
	memset(op, 0, sizeof(*op));
	op->s = s;
	return op;
}

static void op_free(struct op *op)
{
	stripes_free(&op->s);
	free(op);
}

void op_put(struct engine *e, struct op *op)
{
	if (e->d->ops_kept_count + 1 > KEPT || op->s.mem_bytes > KEPT_MEM) {
		op_free(op);
		return;
	}
	stripes_renew(&op->s);
	list_add_tail(&e->d->ops_kept, &op->link);
	e->d->ops_kept_count++;
}

void pool_free(struct engine *e)
{
	while (!list_empty(&e->d->front_requests_kept)) {
		struct front_request *f =
		    list_first(&e->d->front_requests_kept, struct front_request, link);

		list_del(&f->link);
		free(f);
	}
	while (!list_empty(&e->d->ops_kept)) {
		struct op *op = list_first(&e->d->ops_kept, struct op, link);

		list_del(&op->link);
		op_free(op);
	}
	e->d->front_requests_kept_count = e->d->ops_kept_count = 0;
}
