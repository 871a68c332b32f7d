// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The server's side of the NBD protocol, without I/O. proto.h has the states and the use.
 *
 * Each state waits for `need` bytes: p->in gathers headers and option data, a write's payload goes
 * to where nbd_proto_accept said, the payload of a rejected write nowhere. When all are there, the
 * state's step runs once; it moves on, and may raise an event.
 *
 * What a client may do wrong, and what follows (the protocol's words are the measure):
 *
 *   while negotiating: an option that is unknown or not offered	an error reply, go on
 *   a malformed or unknown export name in INFO, GO, LIST		an error reply, go on
 *   bad magic, unknown flags, too much data, too many options,
 *   EXPORT_NAME for another export					END, violation
 *   a request with bad flags, alignment, length, range, command	NBD_REJECT, go on
 *   a request with bad magic, or a write of more than 32 MiB		END, violation
 *
 * The NBD server front-end is its only user. It must not do I/O, keep data, or know that there is
 * more than one connection.
 */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/adapters/front/nbd/proto.h"

#define NBD_MAGIC UINT64_C(0x4e42444d41474943)    /* "NBDMAGIC" */
#define NBD_IHAVEOPT UINT64_C(0x49484156454f5054) /* "IHAVEOPT" */
#define NBD_OPTION_REPLY UINT64_C(0x0003e889045565a9)
#define NBD_REQUEST_MAGIC UINT32_C(0x25609513)
#define NBD_REPLY_MAGIC UINT32_C(0x67446698)

enum { NBD_FLAG_FIXED_NEWSTYLE = 1, NBD_FLAG_NO_ZEROES = 2 };

enum {
	NBD_OPT_EXPORT_NAME = 1,
	NBD_OPT_ABORT = 2,
	NBD_OPT_LIST = 3,
	NBD_OPT_INFO = 6,
	NBD_OPT_GO = 7,
};

#define NBD_REP_ACK UINT32_C(1)
#define NBD_REP_SERVER UINT32_C(2)
#define NBD_REP_INFO UINT32_C(3)
#define NBD_REP_ERR_UNSUP UINT32_C(0x80000001)
#define NBD_REP_ERR_INVALID UINT32_C(0x80000003)
#define NBD_REP_ERR_UNKNOWN UINT32_C(0x80000006)

enum { NBD_INFO_EXPORT = 0, NBD_INFO_NAME = 1, NBD_INFO_DESCRIPTION = 2, NBD_INFO_BLOCK_SIZE = 3 };

#define NBD_FLAG_HAS_FLAGS (1u << 0)
#define NBD_FLAG_SEND_FLUSH (1u << 2)
#define NBD_FLAG_SEND_FUA (1u << 3)
#define NBD_FLAG_SEND_TRIM (1u << 5)
#define NBD_FLAG_SEND_WRITE_ZEROES (1u << 6)
#define NBD_FLAG_CAN_MULTI_CONN (1u << 8) /* a flush covers all connections: it is the array's */
#define NBD_EXPORT_FLAGS                                                                           \
	(NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_FUA | NBD_FLAG_SEND_TRIM |       \
	 NBD_FLAG_SEND_WRITE_ZEROES | NBD_FLAG_CAN_MULTI_CONN)

enum {
	NBD_CMD_READ = 0,
	NBD_CMD_WRITE = 1,
	NBD_CMD_DISC = 2,
	NBD_CMD_FLUSH = 3,
	NBD_CMD_TRIM = 4,
	NBD_CMD_WRITE_ZEROES = 6,
};

enum { NBD_CMD_FLAG_FUA = 1, NBD_CMD_FLAG_NO_HOLE = 2 };

#define FLAGS_BYTES 4u
#define OPTION_HEAD_BYTES 16u
#define REQUEST_HEAD_BYTES 28u

#define BIT(s_) (1u << NBD_S_##s_)
static const uint32_t moves[NBD_S_COUNT] = {
    [NBD_S_FLAGS] = BIT(OPTION) | BIT(ENDED),
    [NBD_S_OPTION] = BIT(OPTION) | BIT(OPTION_DATA) | BIT(REQUEST) | BIT(ENDED),
    [NBD_S_OPTION_DATA] = BIT(OPTION) | BIT(REQUEST) | BIT(ENDED),
    [NBD_S_REQUEST] = BIT(REQUEST) | BIT(HELD) | BIT(SKIP) | BIT(ENDED),
    [NBD_S_HELD] = BIT(REQUEST) | BIT(PAYLOAD),
    [NBD_S_PAYLOAD] = BIT(REQUEST),
    [NBD_S_SKIP] = BIT(REQUEST),
    [NBD_S_ENDED] = 0,
};

const char *nbd_state_name(enum nbd_state s)
{
	static const char *const names[NBD_S_COUNT] = {
	    "flags", "option", "option-data", "request", "held", "payload", "skip", "ended",
	};

	return (unsigned)s < NBD_S_COUNT ? names[s] : "?";
}

static void move(struct nbd_proto *p, enum nbd_state to, size_t need)
{
	assert(moves[p->state] & 1u << to);
	p->state = to;
	p->need = need;
	p->have = 0;
}

/* --- bytes --- */

static uint16_t get16(const uint8_t *b)
{
	uint16_t v;

	memcpy(&v, b, sizeof(v));
	return be16toh(v);
}

static uint32_t get32(const uint8_t *b)
{
	uint32_t v;

	memcpy(&v, b, sizeof(v));
	return be32toh(v);
}

static uint64_t get64(const uint8_t *b)
{
	uint64_t v;

	memcpy(&v, b, sizeof(v));
	return be64toh(v);
}

static void put(struct nbd_proto *p, const void *data, size_t bytes)
{
	assert(bytes <= sizeof(p->out) - p->out_end);
	memcpy(p->out + p->out_end, data, bytes);
	p->out_end += bytes;
}

static void put16(struct nbd_proto *p, uint16_t v)
{
	v = htobe16(v);
	put(p, &v, sizeof(v));
}

static void put32(struct nbd_proto *p, uint32_t v)
{
	v = htobe32(v);
	put(p, &v, sizeof(v));
}

static void put64(struct nbd_proto *p, uint64_t v)
{
	v = htobe64(v);
	put(p, &v, sizeof(v));
}

const uint8_t *nbd_proto_output(const struct nbd_proto *p, size_t *bytes)
{
	*bytes = p->out_end - p->out_first;
	return p->out + p->out_first;
}

void nbd_proto_sent(struct nbd_proto *p, size_t bytes)
{
	assert(bytes <= p->out_end - p->out_first);
	p->out_first += bytes;
	if (p->out_first == p->out_end)
		p->out_first = p->out_end = 0;
}

/* --- ends --- */

static enum nbd_event end(struct nbd_proto *p, bool violation, const char *why)
{
	move(p, NBD_S_ENDED, 0);
	p->violation = violation;
	snprintf(p->why, sizeof(p->why), "%s", why);
	return NBD_END;
}

static enum nbd_event end_value(struct nbd_proto *p, const char *what, uint64_t value)
{
	char why[NBD_WHY_BYTES];

	snprintf(why, sizeof(why), "%s 0x%llx", what, (unsigned long long)value);
	return end(p, true, why);
}

/* --- negotiation --- */

void nbd_proto_init(struct nbd_proto *p, const struct front_export *ex)
{
	memset(p, 0, offsetof(struct nbd_proto, in));
	p->ex = ex;
	p->state = NBD_S_FLAGS;
	p->need = FLAGS_BYTES;
	put64(p, NBD_MAGIC);
	put64(p, NBD_IHAVEOPT);
	put16(p, NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES);
}

void nbd_proto_init_connected(struct nbd_proto *p, const struct front_export *ex)
{
	memset(p, 0, offsetof(struct nbd_proto, in));
	p->ex = ex;
	p->fixed = p->no_zeroes = true;
	p->state = NBD_S_REQUEST;
	p->need = REQUEST_HEAD_BYTES;
}

static enum nbd_event step_flags(struct nbd_proto *p)
{
	uint32_t flags = get32(p->in);

	if (flags & ~(uint32_t)(NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES))
		return end_value(p, "unknown handshake flags", flags);
	p->fixed = flags & NBD_FLAG_FIXED_NEWSTYLE;
	p->no_zeroes = flags & NBD_FLAG_NO_ZEROES;
	move(p, NBD_S_OPTION, OPTION_HEAD_BYTES);
	return NBD_MORE;
}

static void put_reply(struct nbd_proto *p, uint32_t type, size_t bytes)
{
	put64(p, NBD_OPTION_REPLY);
	put32(p, p->option);
	put32(p, type);
	put32(p, (uint32_t)bytes);
}

/* An error reply may carry a sentence for the user. */
static void put_error(struct nbd_proto *p, uint32_t type, const char *text)
{
	put_reply(p, type, strlen(text));
	put(p, text, strlen(text));
}

static void put_info_string(struct nbd_proto *p, uint16_t info, const char *text)
{
	put_reply(p, NBD_REP_INFO, 2 + strlen(text));
	put16(p, info);
	put(p, text, strlen(text));
}

static void put_info_export(struct nbd_proto *p)
{
	put_reply(p, NBD_REP_INFO, 12);
	put16(p, NBD_INFO_EXPORT);
	put64(p, p->ex->size_bytes);
	put16(p, NBD_EXPORT_FLAGS);
}

static void put_info_block_size(struct nbd_proto *p)
{
	put_reply(p, NBD_REP_INFO, 14);
	put16(p, NBD_INFO_BLOCK_SIZE);
	put32(p, front_block_bytes(p->ex));
	put32(p, p->ex->preferred_bytes);
	put32(p, DDR_MAX_FRONT_IO_BYTES);
}

/* One socket serves one array: under its name, and as the default export. */
static bool is_our_name(const struct nbd_proto *p, const uint8_t *name, size_t bytes)
{
	return bytes == 0 ||
	       (bytes == strlen(p->ex->name) && memcmp(name, p->ex->name, bytes) == 0);
}

static void option_done(struct nbd_proto *p)
{
	move(p, NBD_S_OPTION, OPTION_HEAD_BYTES);
}

static enum nbd_event opt_export_name(struct nbd_proto *p)
{
	static const uint8_t zeroes[124];

	if (!is_our_name(p, p->in, p->option_bytes))
		return end(p, true, "asked for an export that doesn't exist"); /* no reply exists */
	put64(p, p->ex->size_bytes);
	put16(p, NBD_EXPORT_FLAGS);
	if (!p->no_zeroes)
		put(p, zeroes, sizeof(zeroes));
	move(p, NBD_S_REQUEST, REQUEST_HEAD_BYTES);
	return NBD_MORE;
}

static enum nbd_event opt_list(struct nbd_proto *p)
{
	size_t name_bytes = strlen(p->ex->name);

	option_done(p);
	if (p->option_bytes) {
		put_error(p, NBD_REP_ERR_INVALID, "LIST takes no data");
		return NBD_MORE;
	}
	put_reply(p, NBD_REP_SERVER, 4 + name_bytes + strlen(p->ex->description));
	put32(p, (uint32_t)name_bytes);
	put(p, p->ex->name, name_bytes);
	put(p, p->ex->description, strlen(p->ex->description));
	put_reply(p, NBD_REP_ACK, 0);
	return NBD_MORE;
}

/*
 * INFO and GO: name length (4), name, count (2), `count` wishes (2 each). The block sizes are told
 * to everybody, asked or not: they matter here.
 */
static enum nbd_event opt_info(struct nbd_proto *p)
{
	uint32_t bytes = p->option_bytes, name_bytes = bytes >= 6 ? get32(p->in) : 0;
	bool name_wanted = false, description_wanted = false;
	const uint8_t *wish;
	uint32_t count;

	if (bytes < 6 || name_bytes > bytes - 6 ||
	    bytes - 6 - name_bytes != 2 * (uint32_t)get16(p->in + 4 + name_bytes)) {
		put_error(p, NBD_REP_ERR_INVALID,
			  "the lengths in this option contradict each other");
		option_done(p);
		return NBD_MORE;
	}
	if (!is_our_name(p, p->in + 4, name_bytes)) {
		put_error(p, NBD_REP_ERR_UNKNOWN,
			  "no such export here; LIST names the one there is");
		option_done(p);
		return NBD_MORE;
	}
	count = get16(p->in + 4 + name_bytes);
	wish = p->in + 6 + name_bytes;
	for (uint32_t i = 0; i < count; i++, wish += 2) {
		name_wanted |= get16(wish) == NBD_INFO_NAME;
		description_wanted |= get16(wish) == NBD_INFO_DESCRIPTION;
	}
	put_info_export(p);
	put_info_block_size(p);
	if (name_wanted)
		put_info_string(p, NBD_INFO_NAME, p->ex->name);
	if (description_wanted && p->ex->description[0])
		put_info_string(p, NBD_INFO_DESCRIPTION, p->ex->description);
	put_reply(p, NBD_REP_ACK, 0);
	if (p->option == NBD_OPT_GO)
		move(p, NBD_S_REQUEST, REQUEST_HEAD_BYTES);
	else
		option_done(p);
	return NBD_MORE;
}

static enum nbd_event step_option_data(struct nbd_proto *p)
{
	if (!p->fixed && p->option != NBD_OPT_EXPORT_NAME)
		return end_value(p, "no fixed newstyle, yet option", p->option);
	switch (p->option) {
	case NBD_OPT_EXPORT_NAME:
		return opt_export_name(p);
	case NBD_OPT_ABORT:
		put_reply(p, NBD_REP_ACK, 0);
		return end(p, false, "aborted the negotiation");
	case NBD_OPT_LIST:
		return opt_list(p);
	case NBD_OPT_INFO:
	case NBD_OPT_GO:
		return opt_info(p);
	default: /* STARTTLS, STRUCTURED_REPLY and the like, and what is yet to be invented */
		put_error(p, NBD_REP_ERR_UNSUP, "not offered here");
		option_done(p);
		return NBD_MORE;
	}
}

static enum nbd_event step_option(struct nbd_proto *p)
{
	uint64_t magic = get64(p->in);

	if (magic != NBD_IHAVEOPT)
		return end_value(p, "bad magic of an option:", magic);
	if (++p->options > NBD_MAX_OPTIONS)
		return end(p, true, "too many options");
	p->option = get32(p->in + 8);
	p->option_bytes = get32(p->in + 12);
	if (p->option_bytes > NBD_MAX_OPTION_BYTES)
		return end_value(p, "too much data in an option:", p->option_bytes);
	if (!p->option_bytes)
		return step_option_data(p);
	move(p, NBD_S_OPTION_DATA, p->option_bytes);
	return NBD_MORE;
}

/* --- transmission --- */

struct command {
	const char *name;
	bool known;
	enum front_op op;
	uint16_t flags; /* NBD_CMD_FLAG_* that it may carry */
};

/* FUA is valid everywhere, and means nothing where nothing is written. */
static const struct command commands[] = {
    [NBD_CMD_READ] = {"READ", true, FRONT_READ, NBD_CMD_FLAG_FUA},
    [NBD_CMD_WRITE] = {"WRITE", true, FRONT_WRITE, NBD_CMD_FLAG_FUA},
    [NBD_CMD_FLUSH] = {"FLUSH", true, FRONT_FLUSH, NBD_CMD_FLAG_FUA},
    [NBD_CMD_TRIM] = {"TRIM", true, FRONT_ZEROES, NBD_CMD_FLAG_FUA},
    [NBD_CMD_WRITE_ZEROES] = {"WRITE_ZEROES", true, FRONT_ZEROES,
			      NBD_CMD_FLAG_FUA | NBD_CMD_FLAG_NO_HOLE},
};

static const struct command *command_find(uint16_t type)
{
	if (type >= sizeof(commands) / sizeof(commands[0]) || !commands[type].known)
		return NULL;
	return &commands[type];
}

/* What is wrong with the request in p->req; NULL: nothing. */
static const char *find_fault(const struct nbd_proto *p, const struct command *cmd, uint16_t type,
			      uint16_t flags, int *err)
{
	const struct nbd_request *r = &p->req;

	*err = -EINVAL;
	if (!cmd)
		return "a command that is not offered";
	if (flags & ~(uint32_t)cmd->flags)
		return "flags that are not offered";
	if (cmd->op == FRONT_FLUSH)
		return r->offset || r->bytes ? "an offset or a length in a flush" : NULL;
	if (!r->bytes)
		return "no length";
	if ((r->offset | r->bytes) % front_block_bytes(p->ex))
		return "not aligned to the minimum block size that was announced";
	if (cmd->op == FRONT_READ && r->bytes > DDR_MAX_FRONT_IO_BYTES)
		return "more than the maximum block size that was announced";
	if (r->offset > p->ex->size_bytes || r->bytes > p->ex->size_bytes - r->offset) {
		if (type == NBD_CMD_WRITE || type == NBD_CMD_WRITE_ZEROES)
			*err = -ENOSPC;
		return "beyond the end of the array";
	}
	return NULL;
}

static void set_request(struct nbd_proto *p, const struct command *cmd, uint16_t flags)
{
	struct nbd_request *r = &p->req;

	r->cookie = get64(p->in + 8);
	r->offset = get64(p->in + 16);
	r->bytes = get32(p->in + 24);
	r->op = cmd ? cmd->op : FRONT_READ;
	r->flags = 0;
	if (flags & NBD_CMD_FLAG_FUA && (r->op == FRONT_WRITE || r->op == FRONT_ZEROES))
		r->flags |= FRONT_F_FUA;
	if (r->op == FRONT_ZEROES && !(flags & NBD_CMD_FLAG_NO_HOLE))
		r->flags |= FRONT_F_UNMAP;
}

static enum nbd_event step_request(struct nbd_proto *p)
{
	uint16_t flags = get16(p->in + 4), type = get16(p->in + 6);
	const struct command *cmd = command_find(type);
	struct nbd_request *r = &p->req;
	const char *fault;

	if (get32(p->in) != NBD_REQUEST_MAGIC)
		return end_value(p, "bad magic of a request:", get32(p->in));
	if (type == NBD_CMD_DISC)
		return end(p, false, "disconnected");
	set_request(p, cmd, flags);
	if (type == NBD_CMD_WRITE && r->bytes > DDR_MAX_FRONT_IO_BYTES)
		return end_value(p, "too long a write:", r->bytes);
	fault = find_fault(p, cmd, type, flags, &p->reject_err);
	if (!fault) {
		move(p, NBD_S_HELD, 0);
		return NBD_HEAD;
	}
	snprintf(p->why, sizeof(p->why), "%s (type %u, flags 0x%x) at %llu, %u bytes: %s",
		 cmd ? cmd->name : "request", type, flags, (unsigned long long)r->offset, r->bytes,
		 fault);
	if (type == NBD_CMD_WRITE && r->bytes) {
		move(p, NBD_S_SKIP, r->bytes);
		return NBD_MORE;
	}
	move(p, NBD_S_REQUEST, REQUEST_HEAD_BYTES);
	return NBD_REJECT;
}

void nbd_proto_accept(struct nbd_proto *p, void *data)
{
	assert(p->state == NBD_S_HELD);
	assert(!data == (p->req.op != FRONT_WRITE));
	p->payload = data;
	if (data)
		move(p, NBD_S_PAYLOAD, p->req.bytes);
	else
		move(p, NBD_S_REQUEST, REQUEST_HEAD_BYTES);
}

static enum nbd_event step_payload(struct nbd_proto *p)
{
	p->payload = NULL;
	move(p, NBD_S_REQUEST, REQUEST_HEAD_BYTES);
	return NBD_WRITTEN;
}

static enum nbd_event step_skip(struct nbd_proto *p)
{
	move(p, NBD_S_REQUEST, REQUEST_HEAD_BYTES);
	return NBD_REJECT;
}

/* --- input --- */

static size_t take(struct nbd_proto *p, const uint8_t *in, size_t bytes)
{
	size_t n = p->need - p->have;

	if (n > bytes)
		n = bytes;
	if (n && p->state == NBD_S_PAYLOAD)
		memcpy(p->payload + p->have, in, n);
	else if (n && p->state != NBD_S_SKIP)
		memcpy(p->in + p->have, in, n);
	p->have += n;
	return n;
}

static enum nbd_event step(struct nbd_proto *p)
{
	switch (p->state) {
	case NBD_S_FLAGS:
		return step_flags(p);
	case NBD_S_OPTION:
		return step_option(p);
	case NBD_S_OPTION_DATA:
		return step_option_data(p);
	case NBD_S_REQUEST:
		return step_request(p);
	case NBD_S_HELD:
		return NBD_HEAD;
	case NBD_S_PAYLOAD:
		return step_payload(p);
	case NBD_S_SKIP:
		return step_skip(p);
	case NBD_S_ENDED:
	case NBD_S_COUNT:
		break;
	}
	return NBD_END;
}

enum nbd_event nbd_proto_feed(struct nbd_proto *p, const uint8_t *in, size_t bytes, size_t *used)
{
	*used = 0;
	for (;;) {
		enum nbd_event ev;

		if (nbd_proto_negotiating(p) && NBD_OUT_BYTES - p->out_end < NBD_STEP_OUT_BYTES)
			return NBD_DRAIN;
		*used += take(p, in + *used, bytes - *used);
		if (p->have < p->need)
			return NBD_MORE;
		ev = step(p);
		if (ev != NBD_MORE)
			return ev;
	}
}

void *nbd_proto_want(const struct nbd_proto *p, size_t *bytes)
{
	*bytes = p->state == NBD_S_PAYLOAD ? p->need - p->have : 0;
	return *bytes ? p->payload + p->have : NULL;
}

enum nbd_event nbd_proto_got(struct nbd_proto *p, size_t bytes)
{
	assert(p->state == NBD_S_PAYLOAD && bytes <= p->need - p->have);
	p->have += bytes;
	return p->have == p->need ? step_payload(p) : NBD_MORE;
}

bool nbd_proto_mid_message(const struct nbd_proto *p)
{
	return p->state == NBD_S_HELD || p->state == NBD_S_PAYLOAD || p->state == NBD_S_SKIP ||
	       p->state == NBD_S_OPTION_DATA || p->have > 0;
}

/* --- replies --- */

uint32_t nbd_errno(int err)
{
	switch (-err) {
	case 0:
		return 0;
	case EPERM:
	case EACCES:
	case EROFS:
		return 1;
	case ENOMEM:
		return 12;
	case EINVAL:
		return 22;
	case ENOSPC:
	case EFBIG:
	case EDQUOT:
		return 28;
	case EOVERFLOW:
		return 75;
	case EOPNOTSUPP:
		return 95;
	case ESHUTDOWN:
		return 108;
	default:
		return 5; /* EIO */
	}
}

void nbd_reply_encode(uint8_t out[NBD_REPLY_BYTES], uint64_t cookie, int err)
{
	uint32_t magic = htobe32(NBD_REPLY_MAGIC), code = htobe32(nbd_errno(err));
	uint64_t be_cookie = htobe64(cookie);

	memcpy(out, &magic, 4);
	memcpy(out + 4, &code, 4);
	memcpy(out + 8, &be_cookie, 8);
}
