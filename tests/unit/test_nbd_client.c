// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An NBD connection whose peer keeps what is not answered and sends it again to the next daemon, as
 * the kernel's client does: nbd_client_hold. What came before is answered if it succeeded as a
 * whole, and nothing else is; then the connection ends. By nbd_client_drain, which is for other
 * peers, errors are answered too. A socket pair is the connection, the test is the sink.
 */
#include <endian.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/adapters/front/nbd/client.h"
#include "tests/lib/test.h"

enum { READ, WRITE, DISC, FLUSH, TRIM, CACHE, ZEROES };

#define REQUEST_MAGIC 0x25609513u
#define REPLY_MAGIC 0x67446698u
#define SIZE (UINT64_C(1) << 30)
#define BLOCK DDR_BLOCK_BYTES

static struct loop *l;
static struct nbd_shared s;
static struct nbd_client *c;
static struct loop_hook hook;
static int peer;
static bool gone;
static struct front_req at_sink[8];
static unsigned submitted;

static void submit(void *arg, const struct front_req *req)
{
	(void)arg;
	CHECK(submitted < 8);
	at_sink[submitted++] = *req;
}

static void client_gone(struct nbd_shared *shared, uint32_t index)
{
	CHECK(shared == &s && index == 3);
	gone = true;
}

static bool attend_all(void *arg)
{
	(void)arg;
	return nbd_clients_attend(&s);
}

static void setup(void)
{
	struct front_cfg cfg = {.sink = {.submit = submit}, .id = 9};
	int fd[2];

	CHECK_EQ_INT(loop_new(&l), 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) == 0);
	cfg.loop = l;
	nbd_shared_init(&s, &cfg);
	s.gone = client_gone;
	s.ex = (struct front_export){.name = "tank", .size_bytes = SIZE, .preferred_bytes = 65536};
	hook = (struct loop_hook){.run = attend_all};
	loop_hook_add(l, &hook);
	c = nbd_client_connected(&s, 3, fd[0], "the kernel");
	CHECK(c);
	peer = fd[1];
	gone = false;
	submitted = 0;
}

static void turns(void)
{
	for (int i = 0; i < 4; i++)
		CHECK_EQ_INT(loop_turn(l, 0), 0);
}

static void teardown(void)
{
	turns();
	CHECK(gone);
	CHECK_EQ_U64(s.stats.inflight, 0);
	CHECK_EQ_U64(s.stats.clients, 0);
	loop_hook_del(l, &hook);
	nbd_shared_fini(&s);
	loop_free(l);
	close(peer);
}

/* The cookie is the offset in blocks. */
static void send_request(uint16_t command, uint64_t block, uint32_t bytes, uint32_t payload_bytes)
{
	static uint8_t payload[4 * BLOCK];
	struct {
		uint32_t magic;
		uint16_t flags, command;
		uint64_t cookie, offset;
		uint32_t bytes;
	} __attribute__((packed)) request = {
	    .magic = htobe32(REQUEST_MAGIC),
	    .command = htobe16(command),
	    .cookie = htobe64(block),
	    .offset = htobe64(block * BLOCK),
	    .bytes = htobe32(bytes),
	};

	CHECK(payload_bytes <= sizeof(payload));
	CHECK(send(peer, &request, sizeof(request), MSG_NOSIGNAL) == sizeof(request));
	CHECK(send(peer, payload, payload_bytes, MSG_NOSIGNAL) == (ssize_t)payload_bytes);
}

/* The n-th that came to the sink has ended. */
static void complete(unsigned n, int err)
{
	uint64_t tag = at_sink[n].tag;

	CHECK(n < submitted && tag >> 56 == 9 && (tag >> 40 & 0xffff) == 3);
	nbd_client_complete(c, tag >> 32 & 0xff, (uint32_t)tag, err);
}

/* The next that the peer hears: an answer to this request, with so many bytes of data. */
static void expect_reply(uint64_t block, uint32_t nbd_error, uint32_t data_bytes)
{
	struct {
		uint32_t magic, error;
		uint64_t cookie;
	} __attribute__((packed)) reply;
	static uint8_t data[4 * BLOCK];

	turns();
	CHECK(recv(peer, &reply, sizeof(reply), MSG_DONTWAIT) == sizeof(reply));
	CHECK_EQ_U64(be32toh(reply.magic), REPLY_MAGIC);
	CHECK_EQ_U64(be64toh(reply.cookie), block);
	CHECK_EQ_U64(be32toh(reply.error), nbd_error);
	CHECK(!data_bytes || recv(peer, data, data_bytes, MSG_DONTWAIT) == (ssize_t)data_bytes);
}

static void expect_silence(void)
{
	char byte;

	turns();
	CHECK(recv(peer, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
}

/* A reset of the connection tells as much: there was input that nobody read. */
static void expect_end(void)
{
	char byte;
	ssize_t got;

	turns();
	got = recv(peer, &byte, 1, MSG_DONTWAIT);
	CHECK(got == 0 || (got < 0 && errno == ECONNRESET));
}

TEST(held_it_answers_what_succeeds_and_nothing_else)
{
	setup();
	send_request(WRITE, 1, BLOCK, BLOCK);
	send_request(WRITE, 2, BLOCK, BLOCK);
	send_request(READ, 3, 2 * BLOCK, 0);
	send_request(READ, 4, BLOCK, 0);
	turns();
	CHECK_EQ_U64(submitted, 4);
	nbd_client_hold(c);
	expect_silence(); /* and it has not ended, since what runs may succeed */
	complete(1, -EIO);
	expect_silence();
	complete(0, 0);
	expect_reply(1, 0, 0);
	complete(3, -EIO);
	expect_silence();
	complete(2, 0);
	expect_reply(3, 0, 2 * BLOCK);
	expect_end();
	teardown();
}

TEST(held_it_takes_nothing_more_in)
{
	setup();
	send_request(WRITE, 1, BLOCK, BLOCK);
	send_request(WRITE, 2, 2 * BLOCK, BLOCK); /* half of it is still to come */
	turns();
	CHECK_EQ_U64(submitted, 1);
	nbd_client_hold(c);
	turns();
	CHECK(send(peer, "x", 1, MSG_NOSIGNAL) == 1);
	send_request(READ, 3, BLOCK, 0);
	expect_silence();
	CHECK_EQ_U64(submitted, 1);
	complete(0, 0);
	expect_reply(1, 0, 0);
	expect_end();
	CHECK_EQ_U64(submitted, 1);
	teardown();
}

TEST(held_with_nothing_under_way_it_ends)
{
	setup();
	nbd_client_hold(c);
	expect_end();
	teardown();
}

/* Two pieces: the second never gets to the sink, so the request is not done, and sent again. */
TEST(held_in_the_middle_of_a_long_request_it_does_not_answer_that)
{
	setup();
	send_request(ZEROES, 1, DDR_MAX_FRONT_IO_BYTES + BLOCK, 0);
	turns();
	CHECK_EQ_U64(submitted, 1);
	nbd_client_hold(c);
	complete(0, 0);
	expect_end();
	CHECK_EQ_U64(submitted, 1);
	teardown();
}

/* The same, when the first piece has ended and the second has not begun yet. */
TEST(held_between_two_pieces_it_does_not_begin_the_second)
{
	setup();
	send_request(ZEROES, 1, DDR_MAX_FRONT_IO_BYTES + BLOCK, 0);
	send_request(FLUSH, 0, 0, 0);
	turns();
	CHECK_EQ_U64(submitted, 2);
	complete(0, 0);
	nbd_client_hold(c);
	turns();
	CHECK_EQ_U64(submitted, 2);
	complete(1, 0);
	expect_reply(0, 0, 0);
	expect_end();
	CHECK_EQ_U64(submitted, 2);
	teardown();
}

TEST(held_in_its_last_piece_it_answers_a_long_request)
{
	setup();
	send_request(ZEROES, 1, DDR_MAX_FRONT_IO_BYTES + BLOCK, 0);
	turns();
	complete(0, 0);
	turns();
	CHECK_EQ_U64(submitted, 2);
	nbd_client_hold(c);
	complete(1, 0);
	expect_reply(1, 0, 0);
	expect_end();
	teardown();
}

TEST(drained_it_answers_what_fails_too_and_finishes_long_requests)
{
	setup();
	send_request(WRITE, 1, BLOCK, BLOCK);
	send_request(ZEROES, 2, DDR_MAX_FRONT_IO_BYTES + BLOCK, 0);
	turns();
	CHECK_EQ_U64(submitted, 2);
	nbd_client_drain(c);
	complete(0, -EIO);
	expect_reply(1, EIO, 0);
	complete(1, 0);
	turns();
	CHECK_EQ_U64(submitted, 3);
	complete(2, 0);
	expect_reply(2, 0, 0);
	expect_end();
	teardown();
}

TEST(drained_and_then_held_it_answers_no_failure)
{
	setup();
	send_request(WRITE, 1, BLOCK, BLOCK);
	turns();
	nbd_client_drain(c);
	turns();
	nbd_client_hold(c);
	complete(0, -EIO);
	expect_end();
	teardown();
}
