/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How a Request and a Reply of proto/ctl.proto travel over libqb IPC (doc/wire.md):
 *
 *	request: struct qb_ipc_request_header  { id = CTL_REQUEST, size } | packed Request
 *	reply:   struct qb_ipc_response_header { id = CTL_REPLY, size, error = 0 } | packed Reply
 *
 * `size` counts header and message. libqb aligns its headers' fields to 8 bytes, so the messages
 * start at byte 16 and 24. But the memory that a server's msg_process gets is not aligned: copy
 * the header out of it.
 */
#ifndef DDRAID_PROTO_CTL_WIRE_H
#define DDRAID_PROTO_CTL_WIRE_H

#include <qb/qbipc_common.h>

#define CTL_SERVICE "ddraid" /* libqb's service name; both sides take another by --ipc NAME */
#define CTL_VERSION 1u
#define CTL_REQUEST 1
#define CTL_REPLY 2
#define CTL_MAX_BYTES (256u << 10) /* one message with its header, both ways */
#define CTL_MAX_RANGES 1024u       /* ArrayStatus.unsynced */
#define CTL_MAX_CLIENTS 64u        /* FrontEnd.client; more are only counted in a warning */
#define PROGRESS_REFUSED "refused" /* Progress.text: then Progress.waits says why */

_Static_assert(sizeof(struct qb_ipc_request_header) == 16, "doc/wire.md says 16");
_Static_assert(sizeof(struct qb_ipc_response_header) == 24, "doc/wire.md says 24");

#endif
