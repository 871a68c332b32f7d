/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How a Request and a Reply of proto/ctl.proto travel over the Unix socket between ddraidctl and
 * ddraidd (doc/wire.md). Each is a frame, and little-endian:
 *
 *	0  4  kind: CTL_REQUEST or CTL_REPLY
 *	4  4  bytes of the frame, these 8 included, CTL_MAX_BYTES at most
 *	8     the packed message
 */
#ifndef DDRAID_PROTO_CTL_WIRE_H
#define DDRAID_PROTO_CTL_WIRE_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CTL_RUN_DIR "/run/ddraid" /* run_dir, and where ddraidctl looks */
#define CTL_SERVICE "ddraid"      /* ipc_name; both sides take another by --ipc NAME */
#define CTL_SUFFIX ".ctl"         /* the socket is run_dir/ipc_name.ctl */
#define CTL_VERSION 1u
#define CTL_REQUEST 1u
#define CTL_REPLY 2u
#define CTL_HEAD_BYTES 8u
#define CTL_MAX_BYTES (256u << 10) /* one frame, both ways */
#define CTL_MAX_CONNECTIONS 64u    /* a further client is told so, and closed */
#define CTL_MAX_RANGES 1024u       /* ArrayStatus.unsynced */
#define CTL_MAX_CLIENTS 64u        /* FrontEnd.client; more are only counted in a warning */
#define PROGRESS_REFUSED "refused" /* Progress.text: then Progress.waits says why */

/* `bytes` is the whole frame's. */
static inline void ctl_head_put(uint8_t head[CTL_HEAD_BYTES], uint32_t kind, size_t bytes)
{
	uint32_t field[2] = {htole32(kind), htole32((uint32_t)bytes)};

	memcpy(head, field, sizeof(field));
}

/* The bytes of the whole frame; 0: this is no head of that kind. */
static inline size_t ctl_head_get(const uint8_t head[CTL_HEAD_BYTES], uint32_t kind)
{
	uint32_t field[2];
	size_t bytes;

	memcpy(field, head, sizeof(field));
	bytes = le32toh(field[1]);
	return le32toh(field[0]) == kind && bytes >= CTL_HEAD_BYTES && bytes <= CTL_MAX_BYTES
		   ? bytes
		   : 0;
}

#endif
