/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One NBD connection: its socket, its requests, its share of the memory. front.c owns the
 * listeners and the table of clients; this part moves the bytes of one of them.
 *
 * All on the loop's thread. A client is freed only in nbd_clients_attend, never under the feet of
 * a caller, so the sink may complete or reset from within submit.
 */
#ifndef DDRAID_ADAPTERS_FRONT_NBD_CLIENT_H
#define DDRAID_ADAPTERS_FRONT_NBD_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/adapters/front/nbd/proto.h"
#include "daemon/base/loop.h"
#include "daemon/ports/front.h"

/*
 * Bounds. A client's buffers count against its own allowance first, then against the pool that
 * all share: a request of up to NBD_CLIENT_OWN_BYTES never waits for what other clients hold.
 * All data in flight: NBD_POOL_BYTES + NBD_MAX_CLIENTS * NBD_CLIENT_OWN_BYTES = 384 MiB; besides
 * NBD_CACHE_BYTES.
 */
#define NBD_MAX_CLIENTS 128             /* a further one is closed at once */
#define NBD_CLIENT_REQS 64              /* requests of one client, until their replies are sent */
#define NBD_CLIENT_BYTES (64u << 20)    /* data of one client */
#define NBD_CLIENT_OWN_BYTES (1u << 20) /* of these, what doesn't count against the pool */
#define NBD_POOL_BYTES (256u << 20)     /* data of all clients beyond their own allowance */
#define NBD_RX_BYTES 65536              /* input of one client that is not yet parsed */
/*
 * Free buffers kept for the next request, so that not each request faults in fresh pages (seen:
 * 3/4 of the CPU time of 1 MiB requests). Under AddressSanitizer none, so that it sees late uses.
 */
#if defined(__has_feature) /* clang's way to say it */
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define NBD_CACHE_BYTES 0u
#else
#define NBD_CACHE_BYTES (16u << 20)
#endif
#define NBD_CACHE_CLASSES 9 /* 4 KiB, 8 KiB, .. 1 MiB; larger ones are not kept */

/* Time limits; the port test builds with shorter ones. */
#ifndef NBD_HANDSHAKE_MS
#define NBD_HANDSHAKE_MS 10000 /* a negotiation that takes longer is ended */
#endif
/* A client that takes no replies, or delivers no payload, is dropped after this time, but only if
 * it holds pool memory that others wait for, or has said goodbye. Else it may take its time. */
#ifndef NBD_STALL_MS
#define NBD_STALL_MS 10000
#endif
/* Half a request, and no more of it for so long: the client is broken. Between requests it may be
 * silent for ever. */
#ifndef NBD_MESSAGE_MS
#define NBD_MESSAGE_MS 60000
#endif
#define NBD_LOG_BURST 30 /* lines per NBD_LOG_PERIOD_MS; the rest is counted */
#define NBD_LOG_PERIOD_MS 10000

struct nbd_client;

/*
 *   state	what it means				next
 *   FREE	not in use				FILLING, AT_SINK, REPLY (rejected)
 *   FILLING	the payload of a write arrives		AT_SINK, FREE (client gone)
 *   AT_SINK	submitted; the buffer is the sink's	REPLY, AGAIN, FREE (client gone)
 *   AGAIN	a long ZEROES waits for its next piece	AT_SINK, FREE (client gone)
 *   REPLY	in the queue of replies			FREE
 */
enum nbd_io_state { NBD_IO_FREE, NBD_IO_FILLING, NBD_IO_AT_SINK, NBD_IO_AGAIN, NBD_IO_REPLY };

struct nbd_io {
	struct nbd_io *next; /* free, again or reply list */
	enum nbd_io_state state;
	uint8_t index;
	uint32_t generation; /* tells late or double completions apart */
	struct nbd_request req;
	uint32_t done_bytes; /* ZEROES: pieces that are through; READ: length of the reply's data */
	uint32_t piece_bytes; /* at the sink */
	void *data;
	uint32_t data_bytes;
	uint32_t room_bytes; /* what data really takes */
	uint8_t header[NBD_REPLY_BYTES];
};

struct nbd_spare {
	struct nbd_spare *next; /* in the buffer itself */
};

struct nbd_queue {
	struct nbd_client *first, **last;
};

/* What all clients of one front-end share. */
struct nbd_shared {
	struct loop *loop;
	struct front_sink sink;
	uint8_t id;
	struct front_export ex;
	struct front_stats stats;
	bool submitted; /* since the last nbd_clients_attend began */
	uint32_t next_generation;
	uint64_t pool_used;
	struct nbd_spare *spare[NBD_CACHE_CLASSES];
	uint32_t spare_bytes;
	struct nbd_queue waiters;   /* for pool memory, first come first served */
	struct nbd_queue attention; /* to be looked after at the end of this turn */
	uint64_t log_since_us;
	uint32_t log_lines, log_suppressed;
	void (*gone)(struct nbd_shared *s, uint32_t index); /* that place is free again */
};

/*
 *   state	what it means					next
 *   OPEN	negotiates and serves				DRAINING, CLOSED
 *   DRAINING	goodbye, end of input, or a hold: answers what	CLOSED
 *		runs
 *   CLOSED	no socket; buffers are still at the sink	(freed)
 */
enum nbd_client_state { NBD_C_OPEN, NBD_C_DRAINING, NBD_C_CLOSED };

/* Why input is left unparsed. Rechecked whenever the client is looked after. */
enum nbd_blocked { NBD_B_NOT, NBD_B_SLOTS, NBD_B_MEMORY, NBD_B_OUTPUT };

struct nbd_client {
	struct nbd_shared *s;
	uint16_t index;
	enum nbd_client_state state;
	enum nbd_blocked blocked;
	struct loop_fd watch;
	char name[80];        /* for the log */
	uint64_t since_us;    /* accepted */
	uint64_t requests;    /* taken in */
	uint64_t progress_us; /* bytes moved, or the first reply was queued */
	bool reject_logged;
	bool held; /* what fails or is not whole is not answered: it is sent again elsewhere */
	uint32_t at_sink;
	uint64_t held_bytes; /* of its requests' buffers */
	struct nbd_io *free_ios, *again, *filling;
	struct nbd_io *replies, **replies_last;
	size_t sent; /* bytes of the first reply that are out */
	bool waiting, attended;
	struct nbd_client *wait_next, *attention_next;
	size_t rx_first, rx_end;
	struct nbd_io ios[NBD_CLIENT_REQS];
	struct nbd_proto proto;
	uint8_t rx[NBD_RX_BYTES];
};

void nbd_shared_init(struct nbd_shared *s, const struct front_cfg *cfg);
/* After the last client is freed. */
void nbd_shared_fini(struct nbd_shared *s);
/* One sentence into the log, within NBD_LOG_BURST. c may be NULL. */
void nbd_log(struct nbd_shared *s, const struct nbd_client *c, int priority, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Takes over the connected, nonblocking fd. NULL: no memory, and fd is closed. */
struct nbd_client *nbd_client_new(struct nbd_shared *s, uint16_t index, int fd, const char *name);
/* The same, of one that has nothing to negotiate. */
struct nbd_client *nbd_client_connected(struct nbd_shared *s, uint16_t index, int fd,
					const char *name);
/* Ends the connection without a word: nothing more is answered on it. */
void nbd_client_cut(struct nbd_client *c);
/* The sink is done with one request. */
void nbd_client_complete(struct nbd_client *c, uint8_t slot, uint32_t generation, int err);
/* Takes nothing more in; answers what runs as it ends, and closes then. */
void nbd_client_drain(struct nbd_client *c);
/* The same, but what runs is answered only if it succeeds. */
void nbd_client_hold(struct nbd_client *c);
/* R6: answers what runs with EIO if the client takes it at once, and closes. */
void nbd_client_reset(struct nbd_client *c);
/* Nothing ran here for `us`: that doesn't count against the client. */
void nbd_client_forgive(struct nbd_client *c, uint64_t us);
/* Drops the client if it negotiates or stalls for too long. */
void nbd_client_check(struct nbd_client *c);
/* Frees a client at the end of all things, whatever it waits for. */
void nbd_client_free(struct nbd_client *c);

/* The end of a turn: sends, goes on parsing, frees. True: call again before blocking. */
bool nbd_clients_attend(struct nbd_shared *s);

#endif
