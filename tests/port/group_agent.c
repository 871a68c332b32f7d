// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * One node of the group conformance test of several nodes (group.sh): a member of a group that
 * writes down what it gets, and does what it is told.
 *
 *	group_agent ADAPTER GROUP TAG FIFO TRANSCRIPT
 *
 * TAG tells this daemon from others, earlier ones of this node included. Commands come by the
 * FIFO, one per line:
 *
 *	send COUNT BYTES	COUNT messages of 32..BYTES bytes, as fast as they are taken
 *	mark WORD		one message that says so
 *	leave			leave when all of a `send` were taken, and end
 *
 * The transcript, a line each, flushed at once:
 *
 *	up NODE NAME TOKEN
 *	view ID RING MEMBERS FRESH		lists are separated by commas
 *	quorum RING 0|1 MEMBERS
 *	from NODE TAG FIRST LAST COUNT		whose messages, before `end` and `sum`
 *	end ID COUNT HASH NEXT-ID		the messages in view ID, at its end
 *	sum ID COUNT HASH WORD			the same, where a mark was delivered
 *	sent COUNT US AGAIN			a `send` is through; AGAIN times not at once
 *	got COUNT				every 1000 messages, and at marks
 *	lost ERR WHY, left
 *	BAD WHAT				a broken promise
 */
#include "daemon/ports/group.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SENDERS 64 /* tags whose numbering is followed */
#define TAG_BYTES 8

/* What a message begins with. */
struct head {
	char tag[TAG_BYTES];
	uint32_t number;
	uint32_t bytes;
	char word[16]; /* of a mark, or empty */
};

struct sender {
	char tag[TAG_BYTES];
	uint32_t node, next;
	uint32_t first, got; /* in this view */
};

static struct loop *loop;
static struct group *group;
static const char *group_name;
static FILE *transcript;
static struct loop_fd fifo;
static struct loop_timer sending;

static struct group_self self;
static struct group_view view;
static bool viewed, leaving; /* leaving: as soon as all is sent */
static uint64_t hash, count, total;
static struct sender senders[SENDERS];

static char tag[TAG_BYTES];
static uint32_t next_number, to_send, send_count, send_bytes;
static uint64_t send_start_us, again_before;

__attribute__((format(printf, 1, 2))) static void put(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vfprintf(transcript, format, ap);
	va_end(ap);
	putc('\n', transcript);
	fflush(transcript);
}

static const char *list(char *text, size_t bytes, const uint32_t *v, uint32_t n)
{
	size_t at = 0;

	text[0] = 0;
	for (uint32_t i = 0; i < n; i++)
		at += (size_t)snprintf(text + at, bytes - at, "%s%u", i ? "," : "", v[i]);
	return n ? text : "-";
}

static void fnv(const void *data, size_t bytes)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ p[i]) * 0x100000001b3u;
}

/* ---- callbacks ---- */

static void put_senders(bool reset)
{
	for (int i = 0; i < SENDERS && senders[i].node; i++) {
		struct sender *s = &senders[i];

		if (s->got)
			put("from %u %.8s %u %u %u", s->node, s->tag, s->first, s->next - 1,
			    s->got);
		if (reset)
			s->got = 0;
	}
}

static void on_up(void *arg, const struct group_self *s)
{
	int err;

	(void)arg;
	self = *s;
	put("up %u %s %u", s->node, s->name, s->token_ms);
	err = group_join(group, group_name);
	if (err)
		put("BAD join %d", err);
}

static void on_view(void *arg, const struct group_view *v)
{
	char members[512], fresh[512];
	uint32_t f[DDR_MAX_NODES], n = 0;
	bool here = false;

	(void)arg;
	put_senders(true);
	if (viewed)
		put("end %016" PRIx64 " %" PRIu64 " %016" PRIx64 " %016" PRIx64, view.id, count,
		    hash, v->id);
	for (uint32_t i = 0; i < v->count; i++) {
		here |= v->node[i] == self.node;
		if (v->fresh[i])
			f[n++] = v->node[i];
		if (i && v->node[i] <= v->node[i - 1])
			put("BAD members are not ascending");
	}
	if (!here)
		put("BAD view without this node");
	put("view %016" PRIx64 " %u.%" PRIu64 " %s %s", v->id, v->ring.rep, v->ring.seq,
	    list(members, sizeof(members), v->node, v->count), list(fresh, sizeof(fresh), f, n));
	view = *v;
	viewed = true;
	hash = 0xcbf29ce484222325u;
	count = 0;
}

static void on_quorum(void *arg, const struct group_quorum *q)
{
	char members[512];

	(void)arg;
	put("quorum %u.%" PRIu64 " %d %s", q->ring.rep, q->ring.seq, q->quorate,
	    list(members, sizeof(members), q->node, q->count));
}

/* Each daemon's messages come without a gap, from its first in our views on. */
static void follow(uint32_t from, const struct head *h)
{
	for (int i = 0; i < SENDERS; i++) {
		struct sender *s = &senders[i];

		if (s->node == 0) {
			memcpy(s->tag, h->tag, TAG_BYTES);
			s->node = from;
			s->next = h->number;
		}
		if (memcmp(s->tag, h->tag, TAG_BYTES) != 0)
			continue;
		/* Over a cut, the other side's messages of meanwhile are missing. */
		if (from != s->node || h->number < s->next || (s->got && h->number != s->next))
			put("BAD node %u tag %.8s: message %u after %u", from, h->tag, h->number,
			    s->next - 1);
		if (s->got++ == 0)
			s->first = h->number;
		s->next = h->number + 1;
		return;
	}
}

static void on_msg(void *arg, uint32_t from, const void *data, size_t bytes)
{
	const struct head *h = data;
	bool member = false;

	(void)arg;
	for (uint32_t i = 0; i < view.count; i++)
		member |= view.node[i] == from;
	if (!viewed || !member)
		put("BAD message of node %u, which is not in the view", from);
	if (bytes < sizeof(*h) || h->bytes != bytes) {
		put("BAD length %zu", bytes);
		return;
	}
	follow(from, h);
	fnv(&from, sizeof(from));
	fnv(data, bytes);
	count++;
	if (++total % 1000 == 0 || h->word[0])
		put("got %" PRIu64, total);
	if (h->word[0])
		put_senders(false);
	if (h->word[0])
		put("sum %016" PRIx64 " %" PRIu64 " %016" PRIx64 " %.16s", view.id, count, hash,
		    h->word);
}

static void on_lost(void *arg, int err, const char *why)
{
	(void)arg;
	put("lost %d %s", err, why);
	viewed = false;
	to_send = 0;
}

static void on_left(void *arg)
{
	(void)arg;
	put_senders(true);
	put("end %016" PRIx64 " %" PRIu64 " %016" PRIx64 " left", view.id, count, hash);
	put("left");
	loop_stop(loop);
}

static void go_on(void *arg)
{
	(void)arg;
	if (to_send)
		loop_timer_set(loop, &sending, loop_now_us(loop));
}

static void on_log(void *arg, int priority, const char *text)
{
	(void)arg;
	fprintf(stderr, "<%d> %s\n", priority, text);
}

static const struct group_cb callbacks = {
    .up = on_up,
    .view = on_view,
    .quorum = on_quorum,
    .msg = on_msg,
    .lost = on_lost,
    .left = on_left,
    .writable = go_on,
    .log = on_log,
};

/* ---- commands ---- */

static void leave(void)
{
	leaving = false;
	if (group_leave(group))
		put("BAD leave");
}

static int send_one(uint32_t bytes, const char *word)
{
	static uint8_t data[GROUP_MESSAGE_BYTES];
	struct head h = {.number = next_number, .bytes = bytes};
	int err;

	memcpy(h.tag, tag, TAG_BYTES);
	snprintf(h.word, sizeof(h.word), "%s", word);
	for (uint32_t i = 0; i < bytes; i += 61)
		data[i] = (uint8_t)(next_number + i);
	memcpy(data, &h, sizeof(h));
	err = group_send(group, data, bytes);
	if (!err)
		next_number++;
	return err;
}

static void send_more(void *arg)
{
	struct group_stats st;

	(void)arg;
	for (int i = 0; i < 256 && to_send; i++) {
		uint32_t bytes =
		    (uint32_t)sizeof(struct head) +
		    next_number * 2654435761u % (send_bytes - (uint32_t)sizeof(struct head) + 1);
		int err = send_one(bytes, "");

		if (err == -EAGAIN)
			return; /* writable() goes on */
		if (err) {
			put("BAD send %d", err);
			to_send = 0;
			return;
		}
		to_send--;
	}
	if (to_send) {
		go_on(NULL);
		return;
	}
	group_stats(group, &st);
	put("sent %u %" PRIu64 " %" PRIu64, send_count, loop_clock_us(loop) - send_start_us,
	    st.try_again - again_before);
	again_before = st.try_again;
	if (leaving)
		leave();
}

static void command(char *line)
{
	char word[16];

	if (sscanf(line, "send %u %u", &send_count, &send_bytes) == 2) {
		if (send_bytes < sizeof(struct head) || send_bytes > GROUP_MESSAGE_BYTES)
			put("BAD command %s", line);
		to_send = send_count;
		send_start_us = loop_clock_us(loop);
		go_on(NULL);
	} else if (sscanf(line, "mark %15s", word) == 1) {
		if (send_one(sizeof(struct head), word))
			put("BAD mark");
	} else if (strcmp(line, "leave") == 0) {
		leaving = true;
		if (!to_send)
			leave();
	} else {
		put("BAD command %s", line);
	}
}

static void read_commands(void *arg, uint32_t events)
{
	static char text[4096];
	static size_t have;
	ssize_t got = read(fifo.fd, text + have, sizeof(text) - 1 - have);
	char *end;

	(void)arg;
	(void)events;
	if (got <= 0)
		return;
	have += (size_t)got;
	text[have] = 0;
	while ((end = strchr(text, '\n'))) {
		*end = 0;
		command(text);
		have -= (size_t)(end + 1 - text);
		memmove(text, end + 1, have + 1);
	}
}

int main(int argc, char **argv)
{
	struct group_cfg cfg = {.cb = &callbacks};

	if (argc != 6) {
		fprintf(stderr, "usage: group_agent ADAPTER GROUP TAG FIFO TRANSCRIPT\n");
		return 2;
	}
	group_name = argv[2];
	snprintf(tag, sizeof(tag), "%s", argv[3]);
	transcript = fopen(argv[5], "a");
	fifo.fd = open(argv[4], O_RDWR | O_NONBLOCK | O_CLOEXEC);
	fifo.ready = read_commands;
	sending.fired = send_more;
	if (!transcript || fifo.fd < 0 || loop_new(&loop) || loop_fd_add(loop, &fifo, LOOP_READ)) {
		perror("group_agent");
		return 1;
	}
	cfg.loop = loop;
	if (group_open(argv[1], &cfg, &group)) {
		fprintf(stderr, "group_agent: no adapter %s\n", argv[1]);
		return 1;
	}
	put("start %s", tag);
	loop_run(loop);
	group_close(group);
	loop_timer_clear(loop, &sending);
	loop_fd_del(loop, &fifo);
	loop_free(loop);
	return 0;
}
