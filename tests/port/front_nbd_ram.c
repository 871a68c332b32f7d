// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The NBD front-end in front of plain memory, for tests/port/front_nbd.sh.
 *
 *	front_nbd_ram --size BYTES [--name N] [--sync] [--control FIFO] ADDRESS...
 *
 * Requests are answered at the end of the turn, the last one first, so that answers are out of
 * order; with --sync from within submit. What a test may say through the FIFO, a line each:
 *
 *	hold		answer nothing from now on
 *	release		answer what was held, and go on
 *	fail N		the next N requests get ENOSPC
 *	reset		front_reset
 *	end		front_hold
 *	serve		front_serve
 *	stats		one line of "name value" pairs to the standard output
 *	quit		front_reset, front_close, exit 0
 *
 * The sink checks what the port promises: alignment, range, buffer, flags.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/ports/front.h"

struct held {
	struct held *next;
	struct front_req req;
};

struct ram {
	struct loop *loop;
	struct front *front;
	struct front_export ex;
	uint8_t *data;
	bool sync, hold;
	unsigned long fail;
	struct held *held;
	unsigned long fua, unmap, depth, depth_max;
	struct loop_hook hook;
	struct loop_fd control;
	char line[256];
	size_t line_bytes;
};

static void check_request(const struct ram *r, const struct front_req *q)
{
	bool with_data = q->op == FRONT_READ || q->op == FRONT_WRITE;

	assert(q->tag >> 56 == 7);
	assert(!with_data == !q->data);
	assert((uintptr_t)q->data % DDR_BLOCK_BYTES == 0);
	assert(!(q->flags & FRONT_F_FUA) || q->op == FRONT_WRITE || q->op == FRONT_ZEROES);
	assert(!(q->flags & FRONT_F_UNMAP) || q->op == FRONT_ZEROES);
	if (q->op == FRONT_FLUSH) {
		assert(!q->offset && !q->bytes);
		return;
	}
	assert(q->bytes && q->bytes <= DDR_MAX_FRONT_IO_BYTES);
	assert(q->bytes % DDR_BLOCK_BYTES == 0 && q->offset % DDR_BLOCK_BYTES == 0);
	assert(q->offset <= r->ex.size_bytes && q->bytes <= r->ex.size_bytes - q->offset);
}

static void zero(uint8_t *at, uint32_t bytes, uint32_t flags)
{
	if (!(flags & FRONT_F_UNMAP) || madvise(at, bytes, MADV_DONTNEED) < 0)
		memset(at, 0, bytes);
}

static void answer(struct ram *r, const struct front_req *q)
{
	uint8_t *at = r->data + q->offset;
	int err = 0;

	r->depth--;
	if (r->fail) {
		r->fail--;
		err = -ENOSPC;
	} else if (q->op == FRONT_READ) {
		memcpy(q->data, at, q->bytes);
	} else if (q->op == FRONT_WRITE) {
		memcpy(at, q->data, q->bytes);
	} else if (q->op == FRONT_ZEROES) {
		zero(at, q->bytes, q->flags);
	}
	r->fua += q->flags & FRONT_F_FUA ? 1 : 0;
	r->unmap += q->flags & FRONT_F_UNMAP ? 1 : 0;
	front_complete(r->front, q->tag, err);
}

static void submit(void *arg, const struct front_req *q)
{
	struct ram *r = arg;
	struct held *h;

	check_request(r, q);
	if (++r->depth > r->depth_max)
		r->depth_max = r->depth;
	if (r->sync && !r->hold) {
		answer(r, q);
		return;
	}
	h = malloc(sizeof(*h));
	assert(h);
	h->req = *q;
	h->next = r->held;
	r->held = h;
}

static bool answer_all(void *arg)
{
	struct ram *r = arg;
	struct held *list = r->held;
	bool any = list && !r->hold;

	if (!any)
		return false;
	r->held = NULL;
	while (list) {
		struct held *h = list;

		list = h->next;
		answer(r, &h->req);
		free(h);
	}
	return any;
}

static void log_line(void *arg, int priority, const char *text)
{
	(void)arg;
	fprintf(stderr, "<%d> %s\n", priority, text);
}

static void print_stats(const struct ram *r)
{
	struct front_stats st;

	front_stats(r->front, &st);
	printf("clients %u inflight %u buffers %llu accepted %llu violations %llu dropped %llu "
	       "reads %llu writes %llu flushes %llu zeroes %llu rejected %llu failed %llu "
	       "fua %lu unmap %lu depth %lu\n",
	       st.clients, st.inflight, (unsigned long long)st.buffer_bytes,
	       (unsigned long long)st.accepted, (unsigned long long)st.violations,
	       (unsigned long long)st.dropped, (unsigned long long)st.requests[FRONT_READ],
	       (unsigned long long)st.requests[FRONT_WRITE],
	       (unsigned long long)st.requests[FRONT_FLUSH],
	       (unsigned long long)st.requests[FRONT_ZEROES], (unsigned long long)st.rejected,
	       (unsigned long long)st.failed, r->fua, r->unmap, r->depth_max);
	fflush(stdout);
}

static void command(struct ram *r, const char *line)
{
	if (strcmp(line, "hold") == 0)
		r->hold = true;
	else if (strcmp(line, "release") == 0)
		r->hold = false;
	else if (strncmp(line, "fail ", 5) == 0)
		r->fail = strtoul(line + 5, NULL, 10);
	else if (strcmp(line, "reset") == 0)
		front_reset(r->front);
	else if (strcmp(line, "end") == 0)
		front_hold(r->front);
	else if (strcmp(line, "serve") == 0)
		assert(front_serve(r->front, &r->ex, (char[FRONT_WHY_BYTES]){0}) == 0);
	else if (strcmp(line, "stats") == 0)
		print_stats(r);
	else if (strcmp(line, "quit") == 0)
		loop_stop(r->loop);
	else
		fprintf(stderr, "unknown command: %s\n", line);
}

static void control_ready(void *arg, uint32_t events)
{
	struct ram *r = arg;
	char c;

	(void)events;
	while (read(r->control.fd, &c, 1) == 1) {
		if (c != '\n') {
			assert(r->line_bytes < sizeof(r->line) - 1);
			r->line[r->line_bytes++] = c;
			continue;
		}
		r->line[r->line_bytes] = '\0';
		r->line_bytes = 0;
		command(r, r->line);
	}
}

static void usage(void)
{
	fprintf(stderr,
		"front_nbd_ram --size BYTES [--name N] [--sync] [--control FIFO] ADDRESS...\n");
	exit(2);
}

static const char *parse(struct ram *r, struct front_cfg *cfg, int argc, char **argv)
{
	const char *control = NULL;
	int listeners = 0;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--sync") == 0)
			r->sync = true;
		else if (strcmp(argv[i], "--size") == 0 && i + 1 < argc)
			r->ex.size_bytes = strtoull(argv[++i], NULL, 10);
		else if (strcmp(argv[i], "--name") == 0 && i + 1 < argc)
			snprintf(r->ex.name, sizeof(r->ex.name), "%s", argv[++i]);
		else if (strcmp(argv[i], "--control") == 0 && i + 1 < argc)
			control = argv[++i];
		else if (argv[i][0] != '-' && listeners < FRONT_MAX_LISTEN)
			cfg->listen[listeners++] = argv[i];
		else
			usage();
	}
	return control;
}

static void control_open(struct ram *r, const char *path)
{
	r->control.fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	r->control.ready = control_ready;
	r->control.arg = r;
	if (r->control.fd < 0 || loop_fd_add(r->loop, &r->control, LOOP_READ) < 0) {
		perror(path);
		exit(2);
	}
}

static void finish(struct ram *r)
{
	front_reset(r->front);
	front_close(r->front);
	while (r->held) {
		struct held *h = r->held;

		r->held = h->next;
		free(h);
	}
	if (r->control.ready) {
		loop_fd_del(r->loop, &r->control);
		close(r->control.fd);
	}
	loop_hook_del(r->loop, &r->hook);
	loop_free(r->loop);
	munmap(r->data, r->ex.size_bytes);
}

int main(int argc, char **argv)
{
	static struct ram r;
	struct front_cfg cfg = {.sink = {.submit = submit, .log = log_line, .arg = &r},
				.id = 7,
				.socket_mode = 0660,
				.socket_group = (gid_t)-1};
	char why[FRONT_WHY_BYTES];
	const char *control;

	snprintf(r.ex.name, sizeof(r.ex.name), "ram");
	snprintf(r.ex.description, sizeof(r.ex.description), "memory for tests");
	r.ex.preferred_bytes = 65536;
	control = parse(&r, &cfg, argc, argv);
	r.data = mmap(NULL, r.ex.size_bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (r.data == MAP_FAILED || loop_new(&r.loop) < 0) {
		perror("front_nbd_ram");
		return 2;
	}
	cfg.loop = r.loop;
	r.hook.run = answer_all;
	r.hook.arg = &r;
	loop_hook_add(r.loop, &r.hook);
	if (front_find("nbd")->open(&cfg, &r.front, why) < 0) {
		fprintf(stderr, "%s\n", why);
		return 1;
	}
	if (control)
		control_open(&r, control);
	if (front_serve(r.front, &r.ex, why) < 0) {
		fprintf(stderr, "%s\n", why);
		return 1;
	}
	if (loop_run(r.loop) < 0)
		return 1;
	finish(&r);
	return 0;
}
