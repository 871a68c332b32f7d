// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Fuzzes what a node of the cluster may be told by another. Three engines in one world; one of them
 * is broken, and says whatever the input wants, in its own name and in the round that the others
 * are in. Neither of the other two may crash or hang: once the broken one has left they serve, and
 * if it has never led, they hold all that they have acknowledged.
 *
 * The first byte says which node is broken (the lowest leads). Then come steps, each a byte and
 * what it needs: time passes; a block is written; a message that was really sent is sent again with
 * some of its fields changed; the next one of a kind that the broken node's own engine sends is
 * changed; bytes are sent as they are; the broken node stops speaking for itself, leaves the view,
 * is back, or starts anew. Values of fields come from a pool in which are those that mean something
 * in this world.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/unit/hostile_world.h"

static uint64_t pool(uint8_t pick)
{
	const struct engine *good = h.node[BAD == 1 ? 2 : 1].e, *bad = h.node[BAD].e;
	const uint64_t values[] = {
	    0,
	    1,
	    2,
	    3,
	    4,
	    5,
	    8,
	    9,
	    10,
	    16,
	    63,
	    64,
	    65,
	    255,
	    256,
	    1024,
	    INT32_MAX,
	    UINT32_MAX,
	    INT64_MAX,
	    UINT64_MAX,
	    EPOCH_NUM_MAX,
	    good->inc,
	    bad->inc,
	    bad->inc + 1,
	    bad->inc - 1,
	    h.node[NODES - 1].e->inc,
	    good->map.epoch.num,
	    good->map.epoch.num + 1,
	    good->map.epoch.num - 1,
	    good->map.epoch.num + 100,
	    good->map.epoch.inc,
	    LOCK_ID(LOCK_KIND_REGION, 0),
	    LOCK_ID(LOCK_KIND_REGION, 1),
	    LOCK_ID(LOCK_KIND_REGION, 7),
	    LOCK_ID(LOCK_KIND_REGION, 8),
	    good->geo.regions,
	    good->c->round.id.num,
	    good->view.prop.epoch.num,
	    good->c->locks.settle_num,
	    good->c->quiesce.asked,
	    BAD,
	    DDR_MAX_NODES,
	};

	return values[pick % (sizeof(values) / sizeof(values[0]))];
}

static void set_number(void *at, ProtobufCType type, uint64_t v)
{
	switch (type) {
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		memcpy(at, &v, 8);
		break;
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_SINT32: {
		uint32_t w = (uint32_t)v;

		memcpy(at, &w, 4);
		break;
	}
	case PROTOBUF_C_TYPE_BOOL: {
		protobuf_c_boolean b = v & 1;

		memcpy(at, &b, sizeof(b));
		break;
	}
	default:
		break;
	}
}

static size_t size_of(ProtobufCType type)
{
	if (type == PROTOBUF_C_TYPE_MESSAGE)
		return sizeof(void *);
	if (type == PROTOBUF_C_TYPE_BYTES)
		return sizeof(ProtobufCBinaryData);
	return type == PROTOBUF_C_TYPE_UINT64 || type == PROTOBUF_C_TYPE_FIXED64 ? 8 : 4;
}

/* A list of bytes is one of UUIDs of members. */
static ProtobufCBinaryData member_uuid(uint64_t member)
{
	const struct map *map = engine_map(h.node[BAD].e);
	ProtobufCBinaryData b = {DDR_UUID_BYTES, calloc(1, DDR_UUID_BYTES)};

	if (map->n)
		memcpy(b.data, map->member[member % map->n].uuid, DDR_UUID_BYTES);
	return b;
}

static void bytes_change(ProtobufCBinaryData *b, uint8_t how)
{
	if (how & 1)
		b->len = how / 2 < b->len ? how / 2 : b->len;
	else if (how && b->len)
		b->data[how % b->len] ^= how;
}

/* Up to 600 more elements of a list. */
static void grow(struct fuzz_in *in, const ProtobufCFieldDescriptor *f, void **list, size_t *n)
{
	size_t more = fuzz_u8(in) * 20u % 600u + 1, size = size_of(f->type);
	uint64_t node = pool(fuzz_u8(in)), inc = pool(fuzz_u8(in));

	if (f->type == PROTOBUF_C_TYPE_MESSAGE && f->descriptor != &ddraid__incarnation__descriptor)
		return;
	*list = realloc(*list, (*n + more) * size);
	for (size_t i = 0; i < more; i++) {
		pb_inc *who;

		if (f->type == PROTOBUF_C_TYPE_BYTES) {
			((ProtobufCBinaryData *)*list)[*n + i] = member_uuid(node + i);
			continue;
		}
		if (f->type != PROTOBUF_C_TYPE_MESSAGE) {
			set_number((uint8_t *)*list + (*n + i) * size, f->type, inc + i);
			continue;
		}
		who = malloc(sizeof(*who));
		ddraid__incarnation__init(who);
		who->node = (uint32_t)(node & 64 ? node + i : node);
		who->inc = inc + i;
		((pb_inc **)*list)[*n + i] = who;
	}
	*n += more;
}

/* Every field below m, in order: with a 0 of the input it stays, else it changes. */
static void mutate(struct fuzz_in *in, ProtobufCMessage *m, unsigned depth)
{
	const ProtobufCMessageDescriptor *d = m->descriptor;

	for (unsigned i = 0; i < d->n_fields && in->left; i++) {
		const ProtobufCFieldDescriptor *f = &d->fields[i];
		uint8_t *at = (uint8_t *)m + f->offset;
		size_t *n = (size_t *)(void *)((uint8_t *)m + f->quantifier_offset);

		if (f->label == PROTOBUF_C_LABEL_REPEATED) {
			void **list = (void **)(void *)at;
			uint8_t how = fuzz_u8(in);

			for (; how & 1 && *n > how / 2; --*n)
				if (f->type == PROTOBUF_C_TYPE_MESSAGE)
					protobuf_c_message_free_unpacked(
					    ((ProtobufCMessage **)*list)[*n - 1], NULL);
				else if (f->type == PROTOBUF_C_TYPE_BYTES)
					free(((ProtobufCBinaryData *)*list)[*n - 1].data);
			if ((how & 7) == 4)
				grow(in, f, (void **)(void *)at, n);
			for (size_t j = 0; how & 2 && j < *n && j < 8; j++) {
				if (f->type == PROTOBUF_C_TYPE_MESSAGE)
					mutate(in, ((ProtobufCMessage **)*list)[j], depth + 1);
				else if (f->type == PROTOBUF_C_TYPE_BYTES)
					bytes_change(&((ProtobufCBinaryData *)*list)[j],
						     fuzz_u8(in));
				else
					set_number((uint8_t *)*list + j * size_of(f->type), f->type,
						   pool(fuzz_u8(in)));
			}
		} else if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
			ProtobufCMessage *sub = *(ProtobufCMessage **)(void *)at;

			if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF &&
			    *(uint32_t *)(void *)n != f->id)
				continue;
			if (sub && depth < 4)
				mutate(in, sub, depth + 1);
		} else if (f->type == PROTOBUF_C_TYPE_BYTES) {
			bytes_change((ProtobufCBinaryData *)(void *)at, fuzz_u8(in));
		} else if (f->type != PROTOBUF_C_TYPE_STRING && fuzz_u8(in) & 1) {
			set_number(at, f->type, pool(fuzz_u8(in)));
		}
	}
}

/* Else most of it would be dropped for what is no secret: who sends it. */
static void own(nodemsg *m)
{
	uint64_t inc = h.node[BAD].e->inc;
	pb_inc *me = NULL;

	m->inc = inc;
	switch ((int)m->body_case) {
	case DDRAID__NODE_MSG__BODY_QUERY:
		m->term_inc = inc;
		break;
	case DDRAID__NODE_MSG__BODY_HELLO:
		me = m->hello->me;
		break;
	case DDRAID__NODE_MSG__BODY_JOINED:
		me = m->joined->me;
		break;
	case DDRAID__NODE_MSG__BODY_LEFT:
		me = m->left->me;
		break;
	case DDRAID__NODE_MSG__BODY_PROPOSE:
		if (m->propose->map && m->propose->map->epoch)
			m->propose->map->epoch->inc = inc;
		break;
	case DDRAID__NODE_MSG__BODY_COMMIT:
		if (m->commit->epoch)
			m->commit->epoch->inc = inc;
		break;
	}
	if (me) {
		me->node = BAD;
		me->inc = inc;
	}
}

/* The next message of this kind that the broken node's engine sends is changed as the input says.
 */
static struct {
	uint32_t body;
	bool as_own, once;
	struct fuzz_in how;
} armed;

static void twist(nodemsg *m)
{
	struct fuzz_in in = armed.how;

	if (m->body_case != armed.body)
		return;
	mutate(&in, &m->base, 0);
	if (armed.as_own)
		own(m);
	if (armed.once)
		armed.body = 0;
}

static void arm(struct fuzz_in *in)
{
	uint8_t how;

	armed.body = 10 + fuzz_u8(in) % 28;
	how = fuzz_u8(in);
	armed.as_own = how & 3;
	armed.once = how & 4;
	armed.how.left = fuzz_u8(in) % 64u;
	if (armed.how.left > in->left)
		armed.how.left = in->left;
	armed.how.at = in->at;
	in->at += armed.how.left;
	in->left -= armed.how.left;
}

static void send_changed(struct fuzz_in *in)
{
	uint32_t body = 10 + fuzz_u8(in) % 28;
	bool as_own = fuzz_u8(in) & 3;
	nodemsg *m;

	if (!h.heard[body].data)
		return;
	m = ddraid__node_msg__unpack(NULL, h.heard[body].bytes, h.heard[body].data);
	mutate(in, &m->base, 0);
	if (as_own)
		own(m);
	h_say(m);
	ddraid__node_msg__free_unpacked(m, NULL);
}

static void send_raw(struct fuzz_in *in)
{
	size_t bytes = fuzz_u8(in) % 96u;
	nodemsg *m;

	if (bytes > in->left)
		bytes = in->left;
	m = ddraid__node_msg__unpack(NULL, bytes, in->at);
	if (m && m->body_case) {
		m->inc = m->inc ? m->inc : h.node[BAD].e->inc;
		h_say(m);
	} else {
		h_multicast(BAD, in->at, bytes);
		h_drain();
	}
	if (m)
		ddraid__node_msg__free_unpacked(m, NULL);
	in->at += bytes;
	in->left -= bytes;
}

static void step(struct fuzz_in *in)
{
	uint8_t how = fuzz_u8(in);
	uint32_t good = 1 + how / 16 % NODES;

	switch (how % 16) {
	case 0:
		h_run_ms(10 + 10u * (fuzz_u8(in) % 64u));
		break;
	case 1:
		h_run_ms(1000 + 100u * (fuzz_u8(in) % 64u));
		break;
	case 2:
	case 3:
		if (good != BAD)
			h_write(good, fuzz_u8(in) % (BLOCKS / 2), fuzz_u8(in) | 1);
		break;
	case 4:
		send_raw(in);
		break;
	case 5:
		h.node[BAD].mute = how & 16;
		break;
	case 6:
		h.node[BAD].deaf = how & 16;
		h_view();
		h_drain();
		break;
	case 7:
		h_start(BAD);
		h_view();
		h_drain();
		break;
	case 8:
	case 9:
	case 10:
	case 11:
		arm(in);
		break;
	default:
		send_changed(in);
		break;
	}
}

static void settle(void)
{
	h.node[BAD].deaf = true;
	h_view();
	for (uint32_t n = 0; n < 3000; n++) {
		bool busy = false;

		h_run_ms(10);
		for (uint32_t b = 0; b < BLOCKS; b++)
			busy |= h.busy[b];
		for (uint32_t i = 1; i <= NODES; i++)
			busy |= i != BAD && !h_serves(i);
		if (!busy)
			return;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_in in = {data, bytes};
	const char *bad;

	memset(&armed, 0, sizeof(armed));
	h_twist = twist;
	h_begin(fuzz_u8(&in) & 1 ? 1 : NODES);
	for (uint32_t n = 0; in.left && n < 64; n++)
		step(&in);
	settle();
	bad = h_verify();
	if (bad && (!h.node[1].led_by_bad || BAD == 1) && !h.node[2].led_by_bad) {
		fprintf(stderr, "%s\n", bad);
		abort();
	}
	h_end();
	return 0;
}
