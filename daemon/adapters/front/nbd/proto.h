/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The server's side of one NBD connection, without I/O: bytes in, requests and bytes out.
 *
 * Fixed newstyle negotiation, simple replies. The machine reads no descriptor, allocates nothing,
 * and is the same however its input is cut into pieces. Source: the NBD protocol document,
 * https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
 *
 * The caller feeds it and acts on what comes back:
 *
 *	nbd_proto_feed() ->
 *	NBD_MORE	feed more
 *	NBD_DRAIN	send nbd_proto_output() first; only while negotiating
 *	NBD_HEAD	p->req is a valid request; get room for it, then nbd_proto_accept().
 *			Until then each feed gives the same NBD_HEAD
 *	NBD_WRITTEN	the payload of the write p->req is complete
 *	NBD_REJECT	answer p->req with p->reject_err; p->why says why
 *	NBD_END		no more: the client said goodbye or broke the protocol (p->violation,
 *			p->why). Send what output is left, then close
 *
 * Replies are made with nbd_reply_encode and sent by the caller, in any order, once the output of
 * the negotiation is out (nothing is added to it after the first NBD_HEAD).
 *
 * Not thread-safe; one machine per connection; the export must stay as it is meanwhile.
 */
#ifndef DDRAID_ADAPTERS_FRONT_NBD_PROTO_H
#define DDRAID_ADAPTERS_FRONT_NBD_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ports/front.h"

#define NBD_MAX_OPTION_BYTES 8192 /* data of one option: a name of 4096 and room for queries */
#define NBD_MAX_OPTIONS 64        /* options of one negotiation */
#define NBD_OUT_BYTES 2048        /* output of the negotiation that is not yet sent */
#define NBD_STEP_OUT_BYTES 640    /* the most that one option puts there */
#define NBD_REPLY_BYTES 16        /* header of a simple reply */
#define NBD_WHY_BYTES 160

enum nbd_event { NBD_MORE, NBD_DRAIN, NBD_HEAD, NBD_WRITTEN, NBD_REJECT, NBD_END };

/*
 *   state		it waits for			next
 *   FLAGS		the client's handshake flags	OPTION, ENDED
 *   OPTION		an option's header		OPTION, OPTION_DATA, REQUEST, ENDED
 *   OPTION_DATA	an option's data		OPTION, REQUEST, ENDED
 *   REQUEST		a request's header		REQUEST (rejected), HELD, SKIP, ENDED
 *   HELD		nbd_proto_accept		REQUEST, PAYLOAD
 *   PAYLOAD		a write's data			REQUEST
 *   SKIP		the data of a rejected write	REQUEST
 *   ENDED		nothing
 */
enum nbd_state {
	NBD_S_FLAGS,
	NBD_S_OPTION,
	NBD_S_OPTION_DATA,
	NBD_S_REQUEST,
	NBD_S_HELD,
	NBD_S_PAYLOAD,
	NBD_S_SKIP,
	NBD_S_ENDED,
	NBD_S_COUNT
};

struct nbd_request {
	uint64_t cookie; /* the client's, opaque */
	enum front_op op;
	uint32_t flags;  /* FRONT_F_* */
	uint64_t offset; /* READ, WRITE, ZEROES: within the export, whole blocks */
	uint32_t
	    bytes; /* READ, WRITE: up to DDR_MAX_FRONT_IO_BYTES; ZEROES: up to 4 GiB - 1 block */
};

struct nbd_proto {
	/* for the caller to read */
	enum nbd_state state;
	struct nbd_request req;  /* HEAD, WRITTEN, REJECT */
	int reject_err;          /* REJECT: -errno */
	bool violation;          /* END: the client broke the protocol */
	char why[NBD_WHY_BYTES]; /* REJECT, END: one clause; nothing of the client's is in it
				    unquoted */
	/* its own */
	const struct front_export *ex;
	bool fixed, no_zeroes;
	uint32_t option, option_bytes, options;
	size_t need, have; /* bytes that the state waits for, and has */
	uint8_t *payload;
	size_t out_first, out_end;
	uint8_t in[NBD_MAX_OPTION_BYTES];
	uint8_t out[NBD_OUT_BYTES];
};

/* Ready for a fresh connection; the server's greeting is in the output. */
void nbd_proto_init(struct nbd_proto *p, const struct front_export *ex);

/* Ready for a client's first request: both know the export, nothing was negotiated. */
void nbd_proto_init_connected(struct nbd_proto *p, const struct front_export *ex);

/* Takes in[0..bytes) up to the next event; *used says how many bytes went in. */
enum nbd_event nbd_proto_feed(struct nbd_proto *p, const uint8_t *in, size_t bytes, size_t *used);

/* After NBD_HEAD. data: where the payload of a WRITE goes, req.bytes long; else NULL. */
void nbd_proto_accept(struct nbd_proto *p, void *data);

/* Where the rest of a payload goes, for a caller that reads straight into it; NULL and 0 when no
 * payload is due. */
void *nbd_proto_want(const struct nbd_proto *p, size_t *bytes);
/* `bytes` of it were put there. NBD_MORE or NBD_WRITTEN. */
enum nbd_event nbd_proto_got(struct nbd_proto *p, size_t bytes);

/* What is to be sent for the negotiation; *bytes may be 0. Valid until the next feed. */
const uint8_t *nbd_proto_output(const struct nbd_proto *p, size_t *bytes);
/* `bytes` of it were sent. */
void nbd_proto_sent(struct nbd_proto *p, size_t bytes);

static inline bool nbd_proto_negotiating(const struct nbd_proto *p)
{
	return p->state <= NBD_S_OPTION_DATA;
}

/* True if the connection ended here would cut a message in two. */
bool nbd_proto_mid_message(const struct nbd_proto *p);

/* A simple reply's header; err 0 or -errno. After it follow the data of a READ that went well. */
void nbd_reply_encode(uint8_t out[NBD_REPLY_BYTES], uint64_t cookie, int err);
/* The protocol's error number for an -errno: the closest that it has. */
uint32_t nbd_errno(int err);

const char *nbd_state_name(enum nbd_state s);

#endif
