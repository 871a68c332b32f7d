/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The trace: one line per event and per out, the same to the byte for the same seed.
 *
 *     time(us) n<node>.<incarnation> <- event | -> out
 *     time(us) f|g|l|w|a ...    faults, group, lock manager, world of disks, administrator
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

#include "proto/node.pb-c.h"

#define TAIL_LINE 256

static const char *const op_name[] = {"read", "write", "flush", "zeroes"};
static const char *const kind_name[] = {"data",  "log",   "sb",   "resync", "rebuild",
					"check", "flush", "back", "use"};
static const char *const mode_name[] = {"none", "cw", "ex", "pr"};

static void line(struct sim *s, const char *text)
{
	if (s->cli->trace) {
		puts(text);
		return;
	}
	snprintf(s->tail + (size_t)(s->tail_next % s->tail_lines) * TAIL_LINE, TAIL_LINE, "%s",
		 text);
	s->tail_next++;
}

void trace(struct sim *s, const char *fmt, ...)
{
	char text[TAIL_LINE];
	int at;
	va_list ap;

	if (!s->tracing)
		return;
	at = snprintf(text, sizeof(text), "%10lu ", s->now);
	va_start(ap, fmt);
	vsnprintf(text + at, sizeof(text) - (size_t)at, fmt, ap);
	va_end(ap);
	line(s, text);
}

void trace_tail(struct sim *s)
{
	uint32_t n = s->tail_next < s->tail_lines ? s->tail_next : s->tail_lines;

	for (uint32_t i = s->tail_next - n; n && i < s->tail_next; i++)
		puts(s->tail + (size_t)(i % s->tail_lines) * TAIL_LINE);
}

static void digest(struct sim *s, uint64_t a, uint64_t b)
{
	s->digest = mix64(s->digest ^ s->now) + mix64(a << 32 ^ b);
}

static uint64_t bytes_sum(const uint8_t *data, size_t bytes)
{
	uint64_t h = bytes, word;

	for (size_t i = 0; i < bytes; i += 8) {
		word = 0;
		memcpy(&word, data + i, bytes - i < 8 ? bytes - i : 8);
		h = mix64(h ^ word);
	}
	return h;
}

/* What it says of members. */
static void members_text(const Ddraid__NodeMsg *m, char *text, size_t bytes)
{
	size_t at = 0;

	if (m->body_case == DDRAID__NODE_MSG__BODY_REPORT)
		snprintf(text, bytes, ": member %u %s", m->report->member,
			 member_state_name((uint8_t)m->report->state));
	if (m->body_case == DDRAID__NODE_MSG__BODY_EVICT && m->evict->who)
		snprintf(text, bytes, ": n%u.%lu", m->evict->who->node, m->evict->who->inc);
	if (m->body_case != DDRAID__NODE_MSG__BODY_PROPOSE || !m->propose->map)
		return;
	for (size_t i = 0; i < m->propose->map->n_member && at + 16 < bytes; i++)
		at +=
		    (size_t)snprintf(text + at, bytes - at, "%s%s", i ? " " : ": ",
				     member_state_name((uint8_t)m->propose->map->member[i]->state));
}

/* The name of the message, its round, and of the epochs that it speaks of. */
static void message_text(const char *verb, const uint8_t *data, size_t len, char *text,
			 size_t bytes)
{
	Ddraid__NodeMsg *m = ddraid__node_msg__unpack(NULL, len, data);
	const ProtobufCFieldDescriptor *f = NULL;
	const Ddraid__Epoch *ep = NULL;

	if (!m) {
		snprintf(text, bytes, "%s malformed, %zu bytes", verb, len);
		return;
	}
	f = protobuf_c_message_descriptor_get_field(m->base.descriptor, m->body_case);
	if (m->body_case == DDRAID__NODE_MSG__BODY_ACK)
		ep = m->ack->epoch;
	else if (m->body_case == DDRAID__NODE_MSG__BODY_COMMIT)
		ep = m->commit->epoch;
	else if (m->body_case == DDRAID__NODE_MSG__BODY_PROPOSE && m->propose->map)
		ep = m->propose->map->epoch;
	snprintf(text, bytes, "%s %s of round %lu.%lu epoch %lu.%lu, %zu bytes", verb,
		 f ? f->name : "empty", m->term_num, m->term_inc, ep ? ep->num : 0,
		 ep ? ep->inc : 0, len);
	members_text(m, text + strlen(text), bytes - strlen(text));
	ddraid__node_msg__free_unpacked(m, NULL);
}

static void view_text(const struct event *ev, char *text, size_t bytes)
{
	size_t at = (size_t)snprintf(text, bytes, "%s ring %u.%lu nodes",
				     ev->type == EV_VIEW ? "view" : "quorum", ev->view.ring.rep,
				     ev->view.ring.seq);

	for (uint32_t i = 0; i < ev->view.count && at + 8 < bytes; i++)
		at += (size_t)snprintf(text + at, bytes - at, " %u", ev->view.node[i]);
	if (ev->type == EV_QUORUM)
		snprintf(text + at, bytes - at, ev->view.quorate ? " quorate" : " not quorate");
}

static void lock_text(const char *what, uint64_t id, enum lock_mode mode, bool try_only, char *text,
		      size_t bytes)
{
	static const char *const kind[] = {"?", "slot", "region", "config"};

	snprintf(text, bytes, "%s %s/%lu %s%s", what, kind[id >> 56 & 3],
		 (uint64_t)(id & ((1ull << 56) - 1)), mode_name[mode], try_only ? " try" : "");
}

static void event_text(const struct event *ev, char *text, size_t bytes)
{
	int at;

	switch (ev->type) {
	case EV_TICK:
		snprintf(text, bytes, "tick");
		break;
	case EV_DEV_UP:
		snprintf(text, bytes, "dev-up %u %s instance %lx", ev->dev.dev, ev->dev.uri,
			 ev->dev.instance);
		break;
	case EV_DEV_DOWN:
		snprintf(text, bytes, "dev-down %u err %d", ev->dev.dev, ev->dev.err);
		break;
	case EV_DEV_DONE:
		snprintf(text, bytes, "dev-done id %lx err %d", ev->done.id, ev->done.err);
		break;
	case EV_VIEW:
	case EV_QUORUM:
		view_text(ev, text, bytes);
		break;
	case EV_MSG:
		at = snprintf(text, bytes, "msg from %u", ev->msg.from);
		message_text("", ev->msg.data, ev->msg.bytes, text + at, bytes - (size_t)at);
		break;
	case EV_FENCE_DONE:
		snprintf(text, bytes, "fence-done (%u, %lu) err %d", ev->fence.node, ev->fence.inc,
			 ev->fence.err);
		break;
	case EV_RECORD_DONE:
		snprintf(text, bytes, "record-done");
		break;
	case EV_IO:
		snprintf(text, bytes, "io %s tag %lx block %lu+%u%s%s",
			 op_name[ev->io.op == IO_READ    ? 0
				 : ev->io.op == IO_WRITE ? 1
				 : ev->io.op == IO_FLUSH ? 2
							 : 3],
			 ev->io.tag, ev->io.offset / DDR_BLOCK_BYTES,
			 ev->io.bytes / DDR_BLOCK_BYTES, ev->io.flags & IO_F_FUA ? " fua" : "",
			 ev->io.flags & IO_F_UNMAP ? " unmap" : "");
		break;
	case EV_ADMIN:
		snprintf(text, bytes, "admin cmd %d member %u %s", (int)ev->admin.cmd,
			 ev->admin.member, ev->admin.uri ? ev->admin.uri : "");
		break;
	case EV_LOCK_GRANTED:
		lock_text("granted", ev->lock.id, ev->lock.mode, false, text, bytes);
		break;
	case EV_LOCK_REFUSED:
		lock_text("refused", ev->lock.id, ev->lock.mode, false, text, bytes);
		break;
	case EV_LOCK_CALLBACK:
		lock_text("callback", ev->lock.id, ev->lock.mode, false, text, bytes);
		break;
	case EV_GIVE_UP:
		snprintf(text, bytes, "give up");
		break;
	case EV_PROBED:
		snprintf(text, bytes, "user of claim %lu %s", ev->probed.claim,
			 ev->probed.dead ? "has ended" : "may live");
		break;
	case EV_RESTART:
		snprintf(text, bytes, "restart as inc %lu", ev->restart.inc);
		break;
	}
}

static bool is_body(const uint8_t *data, size_t bytes, Ddraid__NodeMsg__BodyCase body)
{
	Ddraid__NodeMsg *m = ddraid__node_msg__unpack(NULL, bytes, data);
	bool is = m && m->body_case == body;

	if (m)
		ddraid__node_msg__free_unpacked(m, NULL);
	return is;
}

bool trace_is_commit(const uint8_t *data, size_t bytes)
{
	return is_body(data, bytes, DDRAID__NODE_MSG__BODY_COMMIT);
}

bool trace_is_left(const uint8_t *data, size_t bytes)
{
	return is_body(data, bytes, DDRAID__NODE_MSG__BODY_LEFT);
}

/* Whom it evicts, or 0. */
uint32_t trace_evicts(const uint8_t *data, size_t bytes)
{
	Ddraid__NodeMsg *m = ddraid__node_msg__unpack(NULL, bytes, data);
	uint32_t node = 0;

	if (m && m->body_case == DDRAID__NODE_MSG__BODY_EVICT && m->evict->who)
		node = m->evict->who->node;
	if (m)
		ddraid__node_msg__free_unpacked(m, NULL);
	return node;
}

void trace_event(struct sim *s, const struct simnode *n, const struct nev *nev)
{
	char text[200];

	digest(s, (uint64_t)n->id << 8 | (uint64_t)nev->ev.type,
	       nev->ev.type == EV_DEV_DONE ? nev->ev.done.id + (uint32_t)nev->ev.done.err
					   : bytes_sum(nev->data, nev->bytes));
	if (!s->tracing)
		return;
	event_text(&nev->ev, text, sizeof(text));
	trace(s, "n%u.%lu <- %s", n->id, s->inc[n->ii].inc, text);
}

static void out_text(const struct sim *s, const struct simnode *n, const struct out *o, char *text,
		     size_t bytes)
{
	switch (o->type) {
	case OUT_DEV_IO:
		snprintf(text, bytes,
			 "dev-io id %lx dev %u disk %u %s %s%s offset %lu+%u region "
			 "%lu",
			 o->io.id, o->io.dev, n->dev[o->io.dev % DDR_MAX_DEVS].disk,
			 kind_name[o->io.kind], op_name[o->io.op],
			 o->io.flags & DEV_F_FUA ? " fua" : "", o->io.offset, o->io.bytes,
			 o->io.region);
		break;
	case OUT_DEV_CANCEL:
		snprintf(text, bytes, "dev-cancel %u disk %u", o->cancel.dev,
			 n->dev[o->cancel.dev % DDR_MAX_DEVS].disk);
		break;
	case OUT_SEND:
		message_text("send", o->send.data, o->send.bytes, text, bytes);
		break;
	case OUT_FENCE:
		snprintf(text, bytes, "fence (%u, %lu)", o->fence.node, o->fence.inc);
		break;
	case OUT_RECORD:
		snprintf(text, bytes, "record acked %lu committed %lu", o->record->acked.num,
			 o->record->committed.num);
		break;
	case OUT_IO_DONE:
		snprintf(text, bytes, "io-done tag %lx err %d", o->io_done.tag, o->io_done.err);
		break;
	case OUT_ADMIN_DONE:
		snprintf(text, bytes, "admin-done err %d %s", o->admin_done.err,
			 o->admin_done.why ? o->admin_done.why : "");
		break;
	case OUT_OPEN:
		snprintf(text, bytes, "open %.100s", o->open.uri);
		break;
	case OUT_LOCK:
		lock_text("lock", o->lock.id, o->lock.mode, o->lock.try_only, text, bytes);
		break;
	case OUT_UNLOCK:
		lock_text("unlock", o->lock.id, o->lock.mode, false, text, bytes);
		break;
	case OUT_REMOVED:
		snprintf(text, bytes, "removed");
		break;
	case OUT_PROBE:
		snprintf(text, bytes, "does the user of claim %lu live?", o->probe.claim);
		break;
	case OUT_STOPPED:
		snprintf(text, bytes, "stopped");
		break;
	case OUT_SAY:
		break;
	}
	(void)s;
}

/* What the trace would print of it. */
static uint64_t out_sum(const struct out *o)
{
	switch (o->type) {
	case OUT_DEV_IO:
		return mix64(o->io.offset) ^ mix64(o->io.id) ^
		       mix64((uint64_t)o->io.bytes << 32 | o->io.dev << 16 |
			     (uint32_t)o->io.kind << 8 | (uint32_t)o->io.op << 4 | o->io.flags);
	case OUT_SEND:
		return bytes_sum(o->send.data, o->send.bytes);
	case OUT_FENCE:
		return o->fence.inc;
	case OUT_RECORD:
		return mix64(o->record->acked.num) + o->record->committed.num;
	case OUT_IO_DONE:
		return mix64(o->io_done.tag) + (uint32_t)o->io_done.err;
	case OUT_LOCK:
	case OUT_UNLOCK:
		return mix64(o->lock.id) + (uint32_t)o->lock.mode;
	default:
		return 0;
	}
}

void trace_out(struct sim *s, const struct simnode *n, const struct out *o)
{
	char text[220];

	if (o->type == OUT_SAY) { /* only if it is traced, or heard */
		world_tell(s, n, "%s", o->say);
		trace(s, "n%u.%lu    %s", n->id, s->inc[n->ii].inc, o->say);
		return;
	}
	digest(s, (uint64_t)n->id << 8 | 0x80 | (uint64_t)o->type, out_sum(o));
	if (!s->tracing)
		return;
	out_text(s, n, o, text, sizeof(text));
	trace(s, "n%u.%lu -> %s", n->id, s->inc[n->ii].inc, text);
}

void trace_init(struct sim *s)
{
	s->tracing = s->cli->trace || s->cli->tail;
	s->tail_lines = s->cli->tail;
	if (s->tail_lines)
		s->tail = xcalloc(s->tail_lines, TAIL_LINE);
}

void trace_free(struct sim *s)
{
	free(s->tail);
	s->tail = NULL;
}
