/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Any message of proto/, with its fields drawn from an input: so every field is reached, also those
 * deep in it, and each mutation of the input is a message again.
 */
#ifndef DDRAID_TESTS_FUZZ_FUZZ_PROTO_H
#define DDRAID_TESTS_FUZZ_FUZZ_PROTO_H

#include <protobuf-c/protobuf-c.h>

#include "tests/fuzz/fuzz.h"

#define FUZZ_PROTO_DEPTH 6

static inline void fuzz_proto(struct fuzz_in *in, ProtobufCMessage *m, unsigned depth);

static inline uint64_t fuzz_proto_number(struct fuzz_in *in)
{
	uint8_t how = fuzz_u8(in);

	return how < 224 ? how : how < 240 ? fuzz_u16(in) : fuzz_u64(in);
}

static inline void *fuzz_alloc(size_t bytes)
{
	void *p = calloc(1, bytes ? bytes : 1);

	assert(p);
	return p;
}

/* Sets one value of a field at `at`. */
static inline void fuzz_proto_value(struct fuzz_in *in, const ProtobufCFieldDescriptor *f, void *at,
				    unsigned depth)
{
	const ProtobufCMessageDescriptor *sub = f->descriptor;
	uint64_t n = f->type < PROTOBUF_C_TYPE_STRING ? fuzz_proto_number(in) : 0;
	const uint8_t *from;
	size_t bytes;

	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
		from = fuzz_take(in, fuzz_u8(in) & 63, &bytes);
		*(char **)at = fuzz_string(from, bytes);
		break;
	case PROTOBUF_C_TYPE_BYTES: {
		uint8_t how = fuzz_u8(in);
		ProtobufCBinaryData *b = at;

		from = fuzz_take(in, how < 200 ? 16 : how & 31, &bytes);
		b->len = bytes;
		b->data = (uint8_t *)fuzz_string(from, bytes);
		break;
	}
	case PROTOBUF_C_TYPE_MESSAGE: {
		ProtobufCMessage *m = fuzz_alloc(sub->sizeof_message);

		protobuf_c_message_init(sub, m);
		fuzz_proto(in, m, depth + 1);
		*(ProtobufCMessage **)at = m;
		break;
	}
	case PROTOBUF_C_TYPE_BOOL:
		*(protobuf_c_boolean *)at = n & 1;
		break;
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		*(uint64_t *)at = n;
		break;
	default:
		*(uint32_t *)at = (uint32_t)n;
	}
}

static inline size_t fuzz_proto_bytes(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	case PROTOBUF_C_TYPE_BOOL:
		return sizeof(protobuf_c_boolean);
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		return 8;
	default:
		return 4;
	}
}

static inline void fuzz_proto_field(struct fuzz_in *in, ProtobufCMessage *m,
				    const ProtobufCFieldDescriptor *f, unsigned depth)
{
	char *base = (char *)m;
	size_t count, each = fuzz_proto_bytes(f);
	char *list;

	if (f->label != PROTOBUF_C_LABEL_REPEATED) {
		if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
			*(uint32_t *)(void *)(base + f->quantifier_offset) = f->id;
		fuzz_proto_value(in, f, base + f->offset, depth);
		return;
	}
	count = fuzz_u8(in) & 3;
	list = fuzz_alloc(count * each);
	for (size_t i = 0; i < count; i++)
		fuzz_proto_value(in, f, list + i * each, depth);
	*(size_t *)(void *)(base + f->quantifier_offset) = count;
	*(void **)(void *)(base + f->offset) = list;
}

/* Fields by their places, until one that is not there; each once. m was initialised; the caller
 * frees it by protobuf_c_message_free_unpacked, m itself included. */
static inline void fuzz_proto(struct fuzz_in *in, ProtobufCMessage *m, unsigned depth)
{
	const ProtobufCMessageDescriptor *d = m->descriptor;
	uint64_t done = 0;
	bool chosen = false;

	if (depth >= FUZZ_PROTO_DEPTH || !d->n_fields)
		return;
	for (unsigned i = 0; i < d->n_fields && in->left; i++) {
		unsigned at = fuzz_u8(in);
		const ProtobufCFieldDescriptor *f = &d->fields[at % d->n_fields];
		bool oneof = f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;

		if (at >= 4 * d->n_fields)
			return;
		at %= d->n_fields;
		if (done >> at & 1 || (oneof && chosen))
			continue;
		done |= UINT64_C(1) << at;
		chosen |= oneof;
		fuzz_proto_field(in, m, f, depth);
	}
}

#endif
