/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What two nodes say that they do, in the order in which they do it: a start, a write, a node's
 * death, a member's loss and return. Each is a file in tests/trace/ for people to read, and has to
 * stay as it is: a line that comes, goes or moves is a change of behaviour.
 *
 * UPDATE=yes writes the files anew.
 */
#include <stdarg.h>

#include "tests/unit/two_nodes_world.h"

#define STORY_BYTES (64u << 10)

static char story[STORY_BYTES];
static size_t story_at;
static uint64_t began;

__attribute__((format(printf, 1, 2))) static void line(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	story_at += (size_t)vsnprintf(story + story_at, STORY_BYTES - story_at, format, ap);
	va_end(ap);
	CHECK(story_at + 256 < STORY_BYTES);
}

static void hear(uint32_t node, const char *say)
{
	line("%5u ms  node %u: %s\n", (unsigned)((w.now - began) / 1000), node, say);
}

static void story_begin(const char *title)
{
	story_at = 0;
	began = w.now;
	line("%s\n\n", title);
}

static void story_is(const char *name)
{
	static char golden[STORY_BYTES];
	const char *top = getenv("top_srcdir"), *update = getenv("UPDATE");
	char path[512];
	size_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/tests/trace/%s.txt", top ? top : ".", name);
	if (update) {
		f = fopen(path, "w");
		CHECK(f && fwrite(story, 1, story_at, f) == story_at && !fclose(f));
		return;
	}
	f = fopen(path, "r");
	CHECK_MSG(f, "%s is not there", path);
	n = fread(golden, 1, sizeof(golden) - 1, f);
	fclose(f);
	golden[n] = '\0';
	for (size_t i = 0, at = 0; i <= n || i <= story_at; i++) {
		if (i < n && i < story_at && golden[i] == story[i]) {
			at = story[i] == '\n' ? i + 1 : at;
			continue;
		}
		CHECK_MSG(i == n && i == story_at, "%s differs: \"%.*s\", it was \"%.*s\"", path,
			  (int)strcspn(story + at, "\n"), story + at,
			  (int)strcspn(golden + at, "\n"), golden + at);
		return;
	}
}

static void tell_create(enum engine_trace trace)
{
	create();
	w.hear = hear;
	w.trace = trace;
}

TEST(two_nodes_start)
{
	tell_create(TRACE_CLUSTER); /* without the resync of each region */
	story_begin("Two nodes start an array that nobody has used yet.");
	start(1);
	run_ms(1000);
	line("\nNode 2 joins.\n\n");
	start(2);
	run_ms(1000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	story_is("start");
	finish();
}

static void serving(void)
{
	tell_create(TRACE_ALL);
	start(1);
	start(2);
	run_ms(5000);
	CHECK(status(1).io_allowed && status(2).io_allowed);
	CHECK_EQ_U64(status(1).regions_to_resync, 0);
}

TEST(a_node_writes)
{
	serving();
	story_begin("Node 1 writes a block, and later node 2 the one beside it.");
	write_block(1, 0);
	run_ms(10);
	line("\nNode 2 writes in the same region.\n\n");
	write_block(2, 4096);
	run_ms(2000);
	CHECK_EQ_U64(status(1).regions_dirty + status(2).regions_dirty, 0);
	story_is("write");
	finish();
}

TEST(a_node_dies)
{
	serving();
	write_block(2, 0);
	run_ms(10);
	story_begin("Node 2 has just written, and dies.");
	w.node[2].stopped = true;
	view(1, 1, 1);
	run_ms(500);
	CHECK(status(1).io_allowed);
	CHECK_EQ_U64(status(1).regions_to_resync, 0);
	story_is("node-dies");
	finish();
}

TEST(a_member_is_lost_and_back)
{
	serving();
	story_begin("Both nodes lose the connection to member 2.");
	member_cut(1, 2, true);
	member_cut(2, 2, true);
	run_ms(50);
	line("\nNode 1 writes, while the member is away.\n\n");
	write_block(1, 65536);
	run_ms(500);
	line("\nThe member is back.\n\n");
	member_cut(1, 2, false);
	member_cut(2, 2, false);
	run_ms(3000);
	CHECK_EQ_U64(status(1).map.member[2].state, MEMBER_IN_SYNC);
	story_is("member-lost");
	finish();
}
