/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Drives an NBD protocol machine over a recorded input, and writes down what it did.
 *
 * The transcript is a text of events and the output's bytes. It does not depend on how the input
 * was cut, so two runs of one input must give the same one. On the way it checks what holds for
 * any input: requests are within the export, writes get their payload and no more, output stays
 * within its bound, and after NBD_END nothing happens any more.
 */
#ifndef DDRAID_TESTS_LIB_NBD_DRIVE_H
#define DDRAID_TESTS_LIB_NBD_DRIVE_H

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/adapters/front/nbd/proto.h"

#define DRIVE_EVENTS_BYTES 65536
#define DRIVE_OUT_BYTES 65536

struct drive {
	struct nbd_proto p;
	char events[DRIVE_EVENTS_BYTES];
	size_t events_bytes;
	uint8_t out[DRIVE_OUT_BYTES];
	size_t out_bytes;
	size_t consumed;
	uint8_t *payload; /* of the write under way, exactly as long as it must be */
	bool direct;      /* read payloads by nbd_proto_want and _got */
	bool ended;
};

static inline void drive_init(struct drive *d, const struct front_export *ex)
{
	memset(d, 0, offsetof(struct drive, p));
	nbd_proto_init(&d->p, ex);
	d->events_bytes = d->out_bytes = d->consumed = 0;
	d->events[0] = '\0';
	d->payload = NULL;
	d->direct = d->ended = false;
}

static inline void drive_fini(struct drive *d)
{
	free(d->payload);
	d->payload = NULL;
}

static inline void drive_drain(struct drive *d)
{
	size_t bytes;
	const uint8_t *out = nbd_proto_output(&d->p, &bytes);

	assert(bytes <= NBD_OUT_BYTES);
	if (bytes > DRIVE_OUT_BYTES - d->out_bytes)
		d->out_bytes = 0; /* a fuzzer's; a test would see it */
	memcpy(d->out + d->out_bytes, out, bytes);
	d->out_bytes += bytes;
	/* In two pieces, as a socket may take it. */
	nbd_proto_sent(&d->p, bytes / 2);
	nbd_proto_sent(&d->p, bytes - bytes / 2);
}

__attribute__((format(printf, 2, 3))) static inline void drive_note(struct drive *d,
								    const char *fmt, ...)
{
	va_list ap;
	int n;

	if (d->events_bytes > DRIVE_EVENTS_BYTES - 512)
		d->events_bytes = 0;
	va_start(ap, fmt);
	n = vsnprintf(d->events + d->events_bytes, DRIVE_EVENTS_BYTES - d->events_bytes, fmt, ap);
	va_end(ap);
	d->events_bytes += (size_t)n;
}

static inline uint32_t drive_sum(const uint8_t *data, size_t bytes)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < bytes; i++)
		h = (h ^ data[i]) * 16777619u;
	return h;
}

static inline void drive_head(struct drive *d)
{
	static const char *const ops[] = {"read", "write", "flush", "zeroes"};
	const struct nbd_request *r = &d->p.req;

	assert(r->op < FRONT_OPS);
	if (r->op == FRONT_FLUSH) {
		assert(!r->offset && !r->bytes);
	} else {
		assert(r->bytes && r->offset % DDR_BLOCK_BYTES == 0);
		assert(r->bytes % DDR_BLOCK_BYTES == 0 && r->offset <= d->p.ex->size_bytes);
		assert(r->bytes <= d->p.ex->size_bytes - r->offset);
		assert(r->op == FRONT_ZEROES || r->bytes <= DDR_MAX_FRONT_IO_BYTES);
	}
	drive_note(d, "%s%s%s %llu+%u #%llx\n", ops[r->op], r->flags & FRONT_F_FUA ? " fua" : "",
		   r->flags & FRONT_F_UNMAP ? " unmap" : "", (unsigned long long)r->offset,
		   r->bytes, (unsigned long long)r->cookie);
	assert(!d->payload);
	if (r->op == FRONT_WRITE) {
		d->payload = malloc(r->bytes);
		assert(d->payload);
	}
	nbd_proto_accept(&d->p, d->payload);
}

static inline void drive_event(struct drive *d, enum nbd_event ev)
{
	switch (ev) {
	case NBD_MORE:
		break;
	case NBD_DRAIN:
		drive_drain(d);
		break;
	case NBD_HEAD:
		drive_head(d);
		break;
	case NBD_WRITTEN:
		drive_note(d, "written %08x\n", drive_sum(d->payload, d->p.req.bytes));
		free(d->payload);
		d->payload = NULL;
		break;
	case NBD_REJECT:
		assert(d->p.reject_err == -EINVAL || d->p.reject_err == -ENOSPC);
		assert(d->p.why[0]);
		drive_note(d, "reject %d #%llx %s\n", d->p.reject_err,
			   (unsigned long long)d->p.req.cookie, d->p.why);
		break;
	case NBD_END:
		if (!d->ended)
			drive_note(d, "end %s %s\n", d->p.violation ? "violation" : "clean",
				   d->p.why);
		d->ended = true;
		break;
	}
}

static inline size_t drive_direct(struct drive *d, const uint8_t *in, size_t bytes)
{
	size_t want;
	void *at = nbd_proto_want(&d->p, &want);

	if (!d->direct || !at || !bytes)
		return 0;
	if (want > bytes)
		want = bytes;
	memcpy(at, in, want);
	drive_event(d, nbd_proto_got(&d->p, want));
	return want;
}

/* One piece of input, as one read from a socket gives it. */
static inline void drive_piece(struct drive *d, const uint8_t *in, size_t bytes)
{
	for (;;) {
		size_t used = drive_direct(d, in, bytes);
		enum nbd_event ev;

		in += used;
		bytes -= used;
		d->consumed += used;
		ev = nbd_proto_feed(&d->p, in, bytes, &used);
		assert(used <= bytes);
		in += used;
		bytes -= used;
		d->consumed += used;
		drive_event(d, ev);
		if (ev == NBD_END || ev == NBD_MORE) {
			assert(ev == NBD_END || !bytes);
			return;
		}
	}
}

/* The whole input in pieces of piece_bytes, or, if 0, of sizes that *seed gives. */
static inline void drive_all(struct drive *d, const uint8_t *in, size_t bytes, size_t piece_bytes,
			     uint64_t seed)
{
	while (bytes) {
		size_t n = piece_bytes;

		if (!n) {
			seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
			n = 1 + (size_t)(seed >> 33) % (seed >> 62 ? 40 : 6000);
		}
		if (n > bytes)
			n = bytes;
		drive_piece(d, in, n);
		if (!(seed >> 61 & 1))
			drive_drain(d);
		in += n;
		bytes -= n;
	}
	drive_drain(d);
}

#endif
