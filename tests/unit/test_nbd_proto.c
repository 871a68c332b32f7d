// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The NBD protocol machine: each option, each command, each error; the same however the input is
 * cut; and whatever the input, a machine stays within its bounds and leaves others alone.
 */
#include <endian.h>
#include <stdarg.h>

#include "daemon/adapters/front/nbd/proto.h"
#include "tests/lib/nbd_drive.h"
#include "tests/lib/test.h"

#define SIZE (UINT64_C(8) << 30)
#define MIB (1u << 20)

#define FLAGS_FIXED 1u
#define FLAGS_BOTH 3u

enum { EXPORT_NAME = 1, ABORT = 2, LIST = 3, STARTTLS = 5, INFO = 6, GO = 7, STRUCTURED = 8 };
enum { READ, WRITE, DISC, FLUSH, TRIM, CACHE, ZEROES, BLOCK_STATUS };
enum { FUA = 1, NO_HOLE = 2, DF = 4, REQ_ONE = 8, FAST_ZERO = 16 };

static const struct front_export ex = {
    .name = "tank",
    .description = "ddraid, order 2",
    .size_bytes = SIZE,
    .preferred_bytes = 16384,
};

/* --- building input --- */

struct input {
	uint8_t *data;
	size_t bytes, cap;
};

static struct drive d; /* big; made anew by each run */

static void add(struct input *in, const void *data, size_t bytes)
{
	if (in->bytes + bytes > in->cap) {
		in->cap = 2 * (in->bytes + bytes);
		in->data = realloc(in->data, in->cap);
		CHECK(in->data);
	}
	if (bytes)
		memcpy(in->data + in->bytes, data, bytes);
	in->bytes += bytes;
}

static void add16(struct input *in, uint16_t v)
{
	v = htobe16(v);
	add(in, &v, 2);
}

static void add32(struct input *in, uint32_t v)
{
	v = htobe32(v);
	add(in, &v, 4);
}

static void add64(struct input *in, uint64_t v)
{
	v = htobe64(v);
	add(in, &v, 8);
}

static void add_option(struct input *in, uint32_t option, const void *data, size_t bytes)
{
	add(in, "IHAVEOPT", 8);
	add32(in, option);
	add32(in, (uint32_t)bytes);
	add(in, data, bytes);
}

static void add_info(struct input *in, uint32_t option, const char *name, int count, ...)
{
	struct input data = {0};
	va_list ap;

	add32(&data, (uint32_t)strlen(name));
	add(&data, name, strlen(name));
	add16(&data, (uint16_t)count);
	va_start(ap, count);
	for (int i = 0; i < count; i++)
		add16(&data, (uint16_t)va_arg(ap, int));
	va_end(ap);
	add_option(in, option, data.data, data.bytes);
	free(data.data);
}

static void add_request(struct input *in, uint16_t flags, uint16_t type, uint64_t offset,
			uint32_t bytes)
{
	add32(in, 0x25609513);
	add16(in, flags);
	add16(in, type);
	add64(in, 0xc00c1e0000000000u | in->bytes);
	add64(in, offset);
	add32(in, bytes);
}

static void add_payload(struct input *in, uint32_t bytes, uint8_t first)
{
	uint8_t *data = malloc(bytes);

	CHECK(data);
	for (uint32_t i = 0; i < bytes; i++)
		data[i] = (uint8_t)(first + i * 7 + i / 251);
	add(in, data, bytes);
	free(data);
}

/* Handshake flags and GO: ready for requests. */
static struct input served(void)
{
	struct input in = {0};

	add32(&in, FLAGS_BOTH);
	add_info(&in, GO, "tank", 0);
	return in;
}

/* --- running it --- */

static void run(struct input *in)
{
	drive_init(&d, &ex);
	drive_all(&d, in->data, in->bytes, in->bytes, 0);
	free(in->data);
	memset(in, 0, sizeof(*in));
}

#define CHECK_EVENTS(want_) CHECK_EQ_STR(d.events, want_)

/* Compares the output from `at` on with a text of hex digits. */
static void check_out(size_t at, const char *hex)
{
	uint8_t want[1024];
	size_t bytes = 0;
	unsigned v;

	for (; *hex; hex++) {
		if (*hex == ' ')
			continue;
		CHECK(sscanf(hex, "%2x", &v) == 1);
		want[bytes++] = (uint8_t)v;
		hex++;
	}
	CHECK_EQ_U64(d.out_bytes, at + bytes);
	CHECK_EQ_MEM(d.out + at, want, bytes);
}

#define GREETING 18
#define REPLY_MAGIC "0003e889045565a9 "
#define EXPORT_INFO(opt_) REPLY_MAGIC opt_ "00000003 0000000c 0000 0000000200000000 016d "
#define BLOCK_INFO(opt_) REPLY_MAGIC opt_ "00000003 0000000e 0003 00001000 00004000 02000000 "
#define ACK(opt_) REPLY_MAGIC opt_ "00000001 00000000 "

/* The error type of the only option reply there is. */
static uint32_t only_reply_type(uint32_t option)
{
	uint32_t head[5];

	CHECK(d.out_bytes >= GREETING + sizeof(head));
	memcpy(head, d.out + GREETING, sizeof(head));
	CHECK_EQ_U64(be32toh(head[0]), 0x0003e889);
	CHECK_EQ_U64(be32toh(head[1]), 0x045565a9);
	CHECK_EQ_U64(be32toh(head[2]), option);
	CHECK_EQ_U64(d.out_bytes, GREETING + sizeof(head) + be32toh(head[4]));
	return be32toh(head[3]);
}

/* --- negotiation --- */

TEST(the_server_greets_first)
{
	drive_init(&d, &ex);
	drive_drain(&d);
	check_out(0, "4e42444d41474943 49484156454f5054 0003");
}

TEST(go_tells_size_flags_and_block_sizes)
{
	struct input in = served();

	run(&in);
	check_out(GREETING, EXPORT_INFO("00000007") BLOCK_INFO("00000007") ACK("00000007"));
	CHECK(d.p.state == NBD_S_REQUEST);
	CHECK_EVENTS("");
}

TEST(info_tells_the_same_and_stays_in_negotiation)
{
	struct input in = {0};

	add32(&in, FLAGS_BOTH);
	add_info(&in, INFO, "", 1, 3);
	run(&in);
	check_out(GREETING, EXPORT_INFO("00000006") BLOCK_INFO("00000006") ACK("00000006"));
	CHECK(d.p.state == NBD_S_OPTION);
}

TEST(name_and_description_are_told_if_asked_for)
{
	struct input in = {0};

	add32(&in, FLAGS_BOTH);
	add_info(&in, INFO, "tank", 4, 2, 77, 1, 1);
	run(&in);
	check_out(GREETING, EXPORT_INFO("00000006") BLOCK_INFO("00000006") REPLY_MAGIC
		  "00000006 00000003 00000006 0001 74616e6b" REPLY_MAGIC
		  "00000006 00000003 00000011 0002"
		  "6464726169642c206f726465722032" ACK("00000006"));
}

TEST(export_name_serves_with_and_without_zeroes)
{
	for (uint32_t flags = 1; flags <= 3; flags += 2) {
		struct input in = {0};

		add32(&in, flags);
		add_option(&in, EXPORT_NAME, "tank", 4);
		add_request(&in, 0, FLUSH, 0, 0);
		run(&in);
		CHECK_EQ_U64(d.out_bytes, GREETING + 10 + (flags == 1 ? 124 : 0));
		CHECK_EQ_MEM(d.out + GREETING, "\0\0\0\2\0\0\0\0\x01\x6d", 10);
		CHECK(d.p.state == NBD_S_REQUEST);
		CHECK(strstr(d.events, "flush 0+0"));
	}
}

TEST(export_name_without_fixed_newstyle_serves_too)
{
	struct input in = {0};

	add32(&in, 0);
	add_option(&in, EXPORT_NAME, "", 0);
	run(&in);
	CHECK_EQ_U64(d.out_bytes, GREETING + 134);
	CHECK(d.p.state == NBD_S_REQUEST);
}

TEST(any_other_option_without_fixed_newstyle_ends_it)
{
	struct input in = {0};

	add32(&in, 0);
	add_option(&in, LIST, "", 0);
	run(&in);
	CHECK_EVENTS("end violation no fixed newstyle, yet option 0x3\n");
}

TEST(export_name_of_another_export_ends_it)
{
	static const char *const names[] = {"tan", "tanks", "Tank", "x"};

	for (size_t i = 0; i < 4; i++) {
		struct input in = {0};

		add32(&in, FLAGS_BOTH);
		add_option(&in, EXPORT_NAME, names[i], strlen(names[i]));
		run(&in);
		CHECK_EVENTS("end violation asked for an export that doesn't exist\n");
		CHECK_EQ_U64(d.out_bytes, GREETING);
	}
}

TEST(go_for_another_export_is_an_error_reply)
{
	struct input in = {0};

	add32(&in, FLAGS_BOTH);
	add_info(&in, GO, "tanks", 1, 3);
	run(&in);
	CHECK_EQ_U64(only_reply_type(GO), 0x80000006);
	CHECK(d.p.state == NBD_S_OPTION);
	CHECK_EVENTS("");
}

TEST(info_and_go_with_lengths_that_contradict_are_invalid)
{
	/* Name length, name bytes that are there, count, wishes that are there. */
	static const uint32_t bad[][4] = {
	    {5, 4, 0, 0}, {3, 4, 0, 0}, {4, 4, 1, 0},          {4, 4, 0, 1},
	    {4, 4, 2, 1}, {0, 0, 1, 2}, {0xffffffff, 4, 0, 0}, {0xfffffffa, 0, 0, 0},
	    {6, 4, 0, 0}, {7, 4, 0, 0}, {4, 4, 0xffff, 1},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct input in = {0}, data = {0};

		add32(&data, bad[i][0]);
		add(&data, "tank", bad[i][1]);
		add16(&data, (uint16_t)bad[i][2]);
		for (uint32_t w = 0; w < bad[i][3]; w++)
			add16(&data, 3);
		add32(&in, FLAGS_BOTH);
		add_option(&in, i % 2 ? INFO : GO, data.data, data.bytes);
		free(data.data);
		run(&in);
		CHECK_MSG(only_reply_type(i % 2 ? INFO : GO) == 0x80000003, "case %zu", i);
		CHECK(d.p.state == NBD_S_OPTION);
	}
}

TEST(info_that_is_too_short_is_invalid)
{
	for (size_t bytes = 0; bytes < 6; bytes++) {
		struct input in = {0};

		add32(&in, FLAGS_BOTH);
		add_option(&in, GO, "\0\0\0\0\0", bytes);
		run(&in);
		CHECK_EQ_U64(only_reply_type(GO), 0x80000003);
	}
}

TEST(list_names_the_array)
{
	struct input in = {0};

	add32(&in, FLAGS_BOTH);
	add_option(&in, LIST, NULL, 0);
	run(&in);
	check_out(GREETING, REPLY_MAGIC "00000003 00000002 00000017 00000004 74616e6b"
					"6464726169642c206f726465722032" ACK("00000003"));
}

TEST(list_with_data_is_invalid)
{
	struct input in = {0};

	add32(&in, FLAGS_BOTH);
	add_option(&in, LIST, "x", 1);
	run(&in);
	CHECK_EQ_U64(only_reply_type(LIST), 0x80000003);
}

TEST(options_that_are_not_offered_are_refused_one_by_one)
{
	static const uint32_t options[] = {0, 4, STARTTLS, STRUCTURED, 9, 10, 11, 99, 0xffffffff};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		for (size_t bytes = 0; bytes <= NBD_MAX_OPTION_BYTES; bytes += 4096) {
			static const uint8_t data[NBD_MAX_OPTION_BYTES];
			struct input in = {0};

			add32(&in, FLAGS_BOTH);
			add_option(&in, options[i], data, bytes);
			run(&in);
			CHECK_EQ_U64(only_reply_type(options[i]), 0x80000001);
			CHECK(d.p.state == NBD_S_OPTION);
			CHECK_EVENTS("");
		}
	}
}

TEST(abort_is_acknowledged_and_ends_it)
{
	struct input in = {0};

	add32(&in, FLAGS_BOTH);
	add_option(&in, ABORT, NULL, 0);
	run(&in);
	check_out(GREETING, ACK("00000002"));
	CHECK_EVENTS("end clean aborted the negotiation\n");
}

TEST(unknown_handshake_flags_end_it)
{
	for (int bit = 2; bit < 32; bit++) {
		struct input in = {0};

		add32(&in, FLAGS_BOTH | 1u << bit);
		run(&in);
		CHECK(strstr(d.events, "end violation unknown handshake flags"));
		CHECK_EQ_U64(d.out_bytes, GREETING);
	}
}

TEST(bad_option_magic_ends_it)
{
	struct input in = {0};

	add32(&in, FLAGS_BOTH);
	add_option(&in, LIST, NULL, 0);
	in.data[4] ^= 1;
	run(&in);
	CHECK_EVENTS("end violation bad magic of an option: 0x48484156454f5054\n");
}

TEST(too_much_option_data_ends_it)
{
	struct input in = {0};

	add32(&in, FLAGS_BOTH);
	add(&in, "IHAVEOPT\0\0\0\7\0\0\x20\1", 16);
	run(&in);
	CHECK_EVENTS("end violation too much data in an option: 0x2001\n");
}

TEST(too_many_options_end_it)
{
	for (int count = NBD_MAX_OPTIONS; count <= NBD_MAX_OPTIONS + 1; count++) {
		struct input in = {0};

		add32(&in, FLAGS_BOTH);
		for (int i = 0; i < count; i++)
			add_option(&in, LIST, NULL, 0);
		run(&in);
		CHECK_EVENTS(count > NBD_MAX_OPTIONS ? "end violation too many options\n" : "");
	}
}

TEST(a_client_that_takes_no_output_is_not_read_from)
{
	struct input in = {0};
	size_t used, all = 0;

	add32(&in, FLAGS_BOTH);
	for (int i = 0; i < NBD_MAX_OPTIONS; i++)
		add_option(&in, LIST, NULL, 0);
	nbd_proto_init(&d.p, &ex);
	CHECK(nbd_proto_feed(&d.p, in.data, in.bytes, &used) == NBD_DRAIN);
	for (all = used; nbd_proto_feed(&d.p, in.data + all, in.bytes - all, &used) == NBD_DRAIN;) {
		size_t bytes;

		CHECK_EQ_U64(used, 0);
		nbd_proto_output(&d.p, &bytes);
		CHECK(bytes > NBD_OUT_BYTES - NBD_STEP_OUT_BYTES && bytes <= NBD_OUT_BYTES);
		nbd_proto_sent(&d.p, bytes - 1);
		CHECK(nbd_proto_feed(&d.p, in.data + all, in.bytes - all, &used) == NBD_DRAIN);
		nbd_proto_sent(&d.p, 1);
		CHECK(nbd_proto_feed(&d.p, in.data + all, in.bytes - all, &used) != NBD_END);
		all += used;
	}
	CHECK_EQ_U64(all + used, in.bytes);
	free(in.data);
}

/* --- transmission --- */

TEST(each_command_becomes_its_request)
{
	static const struct {
		uint16_t flags, type;
		uint64_t offset;
		uint32_t bytes;
		const char *want;
	} good[] = {
	    {0, READ, 0, 4096, "read 0+4096 "},
	    {FUA, READ, 8192, 4096, "read 8192+4096 "},
	    {0, READ, SIZE - 4096, 4096, "read 8589930496+4096 "},
	    {0, READ, 4096, 32 * MIB, "read 4096+33554432 "},
	    {0, FLUSH, 0, 0, "flush 0+0 "},
	    {FUA, FLUSH, 0, 0, "flush 0+0 "},
	    {0, TRIM, 4096, 8192, "zeroes unmap 4096+8192 "},
	    {FUA, TRIM, 4096, 8192, "zeroes fua unmap 4096+8192 "},
	    {0, ZEROES, 4096, 8192, "zeroes unmap 4096+8192 "},
	    {NO_HOLE, ZEROES, 4096, 8192, "zeroes 4096+8192 "},
	    {NO_HOLE | FUA, ZEROES, 4096, 8192, "zeroes fua 4096+8192 "},
	    {0, ZEROES, 0, 0xfffff000, "zeroes unmap 0+4294963200 "},
	    {0, TRIM, SIZE - 0xfffff000, 0xfffff000, "zeroes unmap 4294971392+4294963200 "},
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct input in = served();

		add_request(&in, good[i].flags, good[i].type, good[i].offset, good[i].bytes);
		run(&in);
		CHECK_MSG(strncmp(d.events, good[i].want, strlen(good[i].want)) == 0, "%zu: %s", i,
			  d.events);
		CHECK(d.p.state == NBD_S_REQUEST);
	}
}

TEST(a_connection_that_is_connected_already_begins_with_a_request)
{
	static struct nbd_proto p;
	struct input in = {0};
	size_t used, bytes;

	add_request(&in, FUA, WRITE, 8192, 4096);
	nbd_proto_init_connected(&p, &ex);
	CHECK(!nbd_proto_negotiating(&p));
	nbd_proto_output(&p, &bytes);
	CHECK_EQ_U64(bytes, 0);
	CHECK(nbd_proto_feed(&p, in.data, in.bytes, &used) == NBD_HEAD);
	CHECK_EQ_U64(used, in.bytes);
	CHECK(p.req.op == FRONT_WRITE && p.req.flags == FRONT_F_FUA);
	CHECK_EQ_U64(p.req.offset, 8192);
	free(in.data);
}

TEST(the_cookie_comes_back_as_it_was)
{
	struct input in = served();

	add_request(&in, 0, READ, 0, 4096);
	memcpy(in.data + in.bytes - 20, "\xfe\xdc\xba\x98\x76\x54\x32\x10", 8);
	run(&in);
	CHECK_EVENTS("read 0+4096 #fedcba9876543210\n");
}

TEST(a_write_brings_its_payload)
{
	for (uint32_t bytes = 4096; bytes <= 32 * MIB; bytes *= 32) {
		for (int direct = 0; direct < 2; direct++) {
			struct input in = served();
			char want[128];

			add_request(&in, FUA, WRITE, 4096, bytes);
			add_payload(&in, bytes, 3);
			add_request(&in, 0, DISC, 0, 0);
			snprintf(want, sizeof(want),
				 "write fua 4096+%u #c00c1e0000000026\nwritten %08x\n"
				 "end clean disconnected\n",
				 bytes, drive_sum(in.data + in.bytes - 28 - bytes, bytes));
			drive_init(&d, &ex);
			d.direct = direct;
			drive_all(&d, in.data, in.bytes, direct ? 100000 : in.bytes, 0);
			free(in.data);
			CHECK_EVENTS(want);
		}
	}
}

TEST(a_request_is_held_until_it_is_accepted)
{
	struct input in = served();
	size_t used, at;

	add_request(&in, 0, READ, 0, 4096);
	at = in.bytes;
	add_request(&in, 0, READ, 8192, 4096);
	drive_init(&d, &ex);
	CHECK(nbd_proto_feed(&d.p, in.data, in.bytes, &used) == NBD_HEAD);
	CHECK_EQ_U64(used, at);
	for (int i = 0; i < 3; i++) {
		CHECK(nbd_proto_feed(&d.p, in.data + at, in.bytes - at, &used) == NBD_HEAD);
		CHECK_EQ_U64(used, 0);
		CHECK_EQ_U64(d.p.req.offset, 0);
	}
	nbd_proto_accept(&d.p, NULL);
	CHECK(nbd_proto_feed(&d.p, in.data + at, in.bytes - at, &used) == NBD_HEAD);
	CHECK_EQ_U64(d.p.req.offset, 8192);
	free(in.data);
}

TEST(a_bad_request_is_rejected_and_the_next_one_is_served)
{
	static const struct {
		uint16_t flags, type;
		uint64_t offset;
		uint32_t bytes;
		int err;
		const char *why;
	} bad[] = {
	    {0, READ, 0, 0, -EINVAL, "no length"},
	    {0, WRITE, 0, 0, -EINVAL, "no length"},
	    {0, ZEROES, 4096, 0, -EINVAL, "no length"},
	    {0, READ, 1, 4096, -EINVAL, "aligned"},
	    {0, READ, 0, 512, -EINVAL, "aligned"},
	    {0, WRITE, 512, 4096, -EINVAL, "aligned"},
	    {0, WRITE, 0, 4095, -EINVAL, "aligned"},
	    {0, TRIM, 0, 4097, -EINVAL, "aligned"},
	    {0, ZEROES, 2048, 2048, -EINVAL, "aligned"},
	    {0, READ, SIZE, 4096, -EINVAL, "beyond"},
	    {0, READ, SIZE - 4096, 8192, -EINVAL, "beyond"},
	    {0, READ, UINT64_MAX - 4095, 4096, -EINVAL, "beyond"},
	    {0, READ, UINT64_C(1) << 63, 4096, -EINVAL, "beyond"},
	    {0, WRITE, SIZE, 4096, -ENOSPC, "beyond"},
	    {FUA, WRITE, SIZE - 4096, 8192, -ENOSPC, "beyond"},
	    {0, WRITE, UINT64_MAX - 4095, 4096, -ENOSPC, "beyond"},
	    {0, ZEROES, SIZE, 4096, -ENOSPC, "beyond"},
	    {0, TRIM, SIZE, 4096, -EINVAL, "beyond"},
	    {0, READ, 0, 32 * MIB + 4096, -EINVAL, "maximum"},
	    {NO_HOLE, READ, 0, 4096, -EINVAL, "flags"},
	    {DF, READ, 0, 4096, -EINVAL, "flags"},
	    {0x8000, WRITE, 0, 4096, -EINVAL, "flags"},
	    {NO_HOLE, WRITE, 0, 4096, -EINVAL, "flags"},
	    {NO_HOLE, TRIM, 0, 4096, -EINVAL, "flags"},
	    {FAST_ZERO, ZEROES, 0, 4096, -EINVAL, "flags"},
	    {REQ_ONE, FLUSH, 0, 0, -EINVAL, "flags"},
	    {0, FLUSH, 4096, 0, -EINVAL, "in a flush"},
	    {0, FLUSH, 0, 4096, -EINVAL, "in a flush"},
	    {0, CACHE, 0, 4096, -EINVAL, "command"},
	    {0, BLOCK_STATUS, 0, 4096, -EINVAL, "command"},
	    {0, 8, 0, 4096, -EINVAL, "command"},
	    {0, 0xffff, 0, 4096, -EINVAL, "command"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct input in = served();
		char want[64];

		add_request(&in, bad[i].flags, bad[i].type, bad[i].offset, bad[i].bytes);
		if (bad[i].type == WRITE)
			add_payload(&in, bad[i].bytes, 9);
		add_request(&in, 0, FLUSH, 0, 0);
		run(&in);
		snprintf(want, sizeof(want), "reject %d #c00c1e0000000026 ", bad[i].err);
		CHECK_MSG(strncmp(d.events, want, strlen(want)) == 0, "%zu: %s", i, d.events);
		CHECK_MSG(strstr(d.events, bad[i].why), "%zu: %s", i, d.events);
		CHECK_MSG(strstr(d.events, "\nflush 0+0"), "%zu: %s", i, d.events);
	}
}

TEST(each_flag_of_each_command_is_taken_or_rejected)
{
	static const uint16_t taken[] = {
	    [READ] = FUA, [WRITE] = FUA, [FLUSH] = FUA, [TRIM] = FUA, [ZEROES] = FUA | NO_HOLE,
	};

	for (uint16_t type = READ; type <= ZEROES; type++) {
		for (int bit = 0; bit < 16; bit++) {
			struct input in = served();
			uint32_t bytes = type == FLUSH ? 0 : 4096;

			if (type == DISC || type == CACHE) {
				free(in.data);
				continue;
			}
			add_request(&in, (uint16_t)(1u << bit), type, 0, bytes);
			if (type == WRITE)
				add_payload(&in, bytes, 0);
			run(&in);
			CHECK_MSG(!strncmp(d.events, "reject", 6) == !(taken[type] & 1u << bit),
				  "type %u bit %d: %s", type, bit, d.events);
			CHECK(!d.ended);
			drive_fini(&d);
		}
	}
}

TEST(a_write_that_is_too_long_ends_it)
{
	struct input in = served();

	add_request(&in, 0, WRITE, 0, 32 * MIB + 4096);
	add_request(&in, 0, FLUSH, 0, 0);
	run(&in);
	CHECK_EVENTS("end violation too long a write: 0x2001000\n");
}

TEST(bad_request_magic_ends_it)
{
	struct input in = served();

	add_request(&in, 0, FLUSH, 0, 0);
	add_request(&in, 0, FLUSH, 0, 0);
	in.data[in.bytes - 28] ^= 0x80;
	run(&in);
	CHECK_EVENTS("flush 0+0 #c00c1e0000000026\nend violation bad magic of a request: "
		     "0xa5609513\n");
}

TEST(after_the_end_nothing_is_taken)
{
	struct input in = served();
	size_t used = 1;

	add_request(&in, 0, DISC, 0, 0);
	run(&in);
	CHECK_EVENTS("end clean disconnected\n");
	CHECK(nbd_proto_feed(&d.p, (const uint8_t *)"abc", 3, &used) == NBD_END);
	CHECK_EQ_U64(used, 0);
	CHECK(!d.p.violation);
}

TEST(it_knows_when_the_input_stops_within_a_message)
{
	struct input in = served();
	size_t whole = in.bytes, with_head;

	add_request(&in, 0, WRITE, 0, 4096);
	with_head = in.bytes;
	add_payload(&in, 4096, 1);
	for (size_t bytes = 1; bytes <= in.bytes; bytes += bytes > with_head ? 100 : 1) {
		bool whole_one = bytes == 4 || bytes == whole || bytes == in.bytes;

		drive_init(&d, &ex);
		drive_all(&d, in.data, bytes, bytes, 0);
		CHECK_MSG(nbd_proto_mid_message(&d.p) == !whole_one, "after %zu bytes", bytes);
		drive_fini(&d);
	}
	free(in.data);
}

TEST(replies_carry_the_protocol_s_error_numbers)
{
	static const int errs[][2] = {
	    {0, 0},           {-EPERM, 1},    {-EROFS, 1},       {-EACCES, 1},    {-EIO, 5},
	    {-ENOMEM, 12},    {-EINVAL, 22},  {-ENOSPC, 28},     {-EDQUOT, 28},   {-EFBIG, 28},
	    {-EOVERFLOW, 75}, {-ENOTSUP, 95}, {-ESHUTDOWN, 108}, {-ETIMEDOUT, 5}, {-EBADF, 5},
	};
	uint8_t out[NBD_REPLY_BYTES];

	for (size_t i = 0; i < sizeof(errs) / sizeof(errs[0]); i++)
		CHECK_EQ_U64(nbd_errno(errs[i][0]), errs[i][1]);
	nbd_reply_encode(out, 0x0102030405060708, -ENOSPC);
	CHECK_EQ_MEM(out, "\x67\x44\x66\x98\0\0\0\x1c\1\2\3\4\5\6\7\x8", sizeof(out));
}

TEST(each_state_has_a_name)
{
	for (int s = 0; s < NBD_S_COUNT; s++)
		CHECK(nbd_state_name((enum nbd_state)s)[0] != '?');
	CHECK_EQ_STR(nbd_state_name(NBD_S_COUNT), "?");
}

/* --- any cut, any garbage --- */

/* Sessions that between them go through every state and event. */
static struct input session(int which)
{
	struct input in = {0};

	add32(&in, which == 3 ? FLAGS_FIXED : FLAGS_BOTH);
	if (which == 0)
		add_option(&in, STRUCTURED, NULL, 0);
	if (which == 1) {
		add_option(&in, LIST, NULL, 0);
		add_option(&in, STARTTLS, "some data", 9);
		add_info(&in, INFO, "other", 2, 1, 2);
		add_info(&in, INFO, "tank", 3, 1, 2, 3);
	}
	if (which == 2) {
		for (int i = 0; i < 20; i++)
			add_info(&in, INFO, "", 3, 1, 2, 3);
		add_option(&in, ABORT, NULL, 0);
		return in;
	}
	if (which == 3)
		add_option(&in, EXPORT_NAME, "tank", 4);
	else
		add_info(&in, GO, which ? "" : "tank", 1, 3);
	add_request(&in, 0, READ, 0, 8192);
	add_request(&in, FUA, WRITE, 4096, 8192);
	add_payload(&in, 8192, 1);
	add_request(&in, 0, WRITE, SIZE, 4096);
	add_payload(&in, 4096, 2);
	add_request(&in, FUA, TRIM, 4096, 8192);
	add_request(&in, NO_HOLE, ZEROES, 0, 0xfffff000);
	add_request(&in, 0, CACHE, 0, 4096);
	add_request(&in, 0, READ, 100, 200);
	add_request(&in, 0, FLUSH, 0, 0);
	if (which == 4)
		add32(&in, 0xdeadbeef);
	add_request(&in, 0, DISC, 0, 0);
	return in;
}
#define SESSIONS 5

struct transcript {
	char *events;
	uint8_t *out;
	size_t out_bytes, consumed;
};

static struct transcript keep(void)
{
	struct transcript t = {strdup(d.events), malloc(d.out_bytes), d.out_bytes, d.consumed};

	CHECK(t.events && t.out);
	memcpy(t.out, d.out, t.out_bytes);
	return t;
}

static void check_same(const struct transcript *t)
{
	CHECK_EQ_STR(d.events, t->events);
	CHECK_EQ_U64(d.out_bytes, t->out_bytes);
	CHECK_EQ_MEM(d.out, t->out, t->out_bytes);
	CHECK_EQ_U64(d.consumed, t->consumed);
}

static void drop(struct transcript *t)
{
	free(t->events);
	free(t->out);
}

TEST(however_the_input_is_cut_the_result_is_the_same)
{
	for (int which = 0; which < SESSIONS; which++) {
		struct input in = session(which);
		struct transcript t;

		drive_init(&d, &ex);
		drive_all(&d, in.data, in.bytes, in.bytes, 0);
		CHECK(d.ended && d.p.violation == (which == 4));
		t = keep();
		for (int cut = 0; cut < 400; cut++) {
			drive_init(&d, &ex);
			d.direct = cut % 2;
			/* 1, 1, 2, 2, 3, 3, .. bytes; then of all sizes */
			drive_all(&d, in.data, in.bytes, cut < 200 ? 1 + (size_t)cut / 2 : 0,
				  (uint64_t)cut);
			check_same(&t);
		}
		drop(&t);
		free(in.data);
	}
}

static uint64_t rnd_state;

static uint32_t rnd(uint32_t below)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 7;
	rnd_state ^= rnd_state << 17;
	return (uint32_t)(rnd_state >> 20) % below;
}

/* One of: a bit, a byte, a 32-bit word of interest, a cut, a piece twice, a piece out. */
static void mutate(struct input *in)
{
	static const uint32_t words[] = {0,          1,          2,          0xffffffff, 0x80000000,
					 0x7fffffff, 0x02000000, 0x02001000, 0xfffff000, 4096};
	static const uint8_t room[64];
	uint32_t bytes = (uint32_t)in->bytes, at = rnd(bytes), n = 1 + rnd(64);

	/* Most of the bytes are payload; the heads are what matters. */
	if (rnd(2) && bytes > 300)
		at = rnd(2) ? rnd(300) : bytes - 1 - rnd(200);
	if (n > bytes - at)
		n = bytes - at;
	switch (rnd(6)) {
	case 0:
		in->data[at] ^= (uint8_t)(1u << rnd(8));
		break;
	case 1:
		in->data[at] = (uint8_t)rnd(256);
		break;
	case 2:
		if (at + 4 <= bytes) {
			uint32_t w = htobe32(words[rnd(sizeof(words) / sizeof(words[0]))]);

			memcpy(in->data + at, &w, 4);
		}
		break;
	case 3:
		if (at)
			in->bytes = at;
		break;
	case 4:
		add(in, room, n);
		memmove(in->data + at + n, in->data + at, bytes - at);
		break;
	default:
		if (n < bytes) {
			memmove(in->data + at, in->data + at + n, bytes - at - n);
			in->bytes -= n;
		}
	}
}

TEST(garbage_stays_within_bounds_and_does_not_touch_another_connection)
{
	static struct drive other; /* runs undisturbed between the pieces of the garbage */
	struct input clean = session(1);
	struct transcript t;
	unsigned violations = 0, survived = 0;

	drive_init(&d, &ex);
	drive_all(&d, clean.data, clean.bytes, clean.bytes, 0);
	t = keep();
	rnd_state = 20261120;
	for (int i = 0; i < 20000; i++) {
		struct input in = session(i % SESSIONS);
		struct transcript whole;
		size_t half;

		for (uint32_t n = 1 + rnd(4); n; n--)
			mutate(&in);
		drive_init(&d, &ex);
		drive_all(&d, in.data, in.bytes, in.bytes, 0);
		drive_fini(&d);
		whole = keep();
		half = clean.bytes / 2;
		drive_init(&other, &ex);
		drive_all(&other, clean.data, half, half, 0);
		drive_init(&d, &ex);
		d.direct = i % 2;
		drive_all(&d, in.data, in.bytes, 0, (uint64_t)i);
		drive_fini(&d);
		check_same(&whole);
		drive_all(&other, clean.data + half, clean.bytes - half, clean.bytes, 0);
		CHECK_EQ_STR(other.events, t.events);
		CHECK_EQ_MEM(other.out, t.out, t.out_bytes);
		violations += d.p.violation;
		survived += !d.p.violation;
		drop(&whole);
		free(in.data);
	}
	CHECK_MSG(violations > 2000 && survived > 2000, "%u, %u", violations, survived);
	drop(&t);
	free(clean.data);
}
