// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ddraidctl: any command line, any replies, any device that it examines. The first byte chooses a
 * command; for `examine` a device follows, for all others replies, either as bytes or as messages
 * whose fields are drawn, in frames that are right or not, as a whole or in pieces.
 *
 * Beyond memory errors and asserts: what people see has no control characters, and what programs
 * read is JSON, whatever strings come in.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/core/format/codec.h"
#include "daemon/core/format/superblock.h"
#include "tests/fuzz/fuzz_proto.h"
#include "tools/ctl/ctl.h"
#include "tools/ctl/device.h"

int ctl_main(int argc, char **argv); /* tools/ddraidctl.c */

static struct fuzz_in in;

/* ---- the daemon ----------------------------------------------------------------------------- */

static struct {
	bool greets; /* as it should; else what the input says */
	bool greeted, again, late;
	uint8_t frame[CTL_HEAD_BYTES + CTL_MAX_BYTES + 1];
	size_t bytes, at, piece; /* piece: what one recv gives at most */
	uint8_t asked[CTL_MAX_BYTES];
	size_t asked_bytes;
} peer;

int fuzz_socket(int domain, int type, int protocol)
{
	assert(domain == AF_UNIX && type & SOCK_NONBLOCK && type & SOCK_CLOEXEC && !protocol);
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int fuzz_connect(int fd, const struct sockaddr *sa, socklen_t bytes)
{
	const struct sockaddr_un *at = (const struct sockaddr_un *)(const void *)sa;

	(void)fd;
	assert(at->sun_family == AF_UNIX && at->sun_path[0] && bytes == sizeof(*at));
	assert(memchr(at->sun_path, 0, sizeof(at->sun_path)));
	return 0;
}

int fuzz_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes)
{
	struct ucred *cred = value;

	(void)fd;
	assert(level == SOL_SOCKET && name == SO_PEERCRED && *bytes == sizeof(*cred));
	*cred = (struct ucred){.pid = getpid(), .uid = geteuid()};
	return 0;
}

int fuzz_poll(struct pollfd *p, nfds_t count, int ms)
{
	(void)p;
	assert(count == 1 && ms >= 0);
	return !peer.late;
}

/* What it asks can be decoded. Of each frame the daemon takes a half first. */
ssize_t fuzz_send(int fd, const void *data, size_t bytes, int flags)
{
	Request *r;
	size_t n = peer.asked_bytes ? bytes : (bytes + 1) / 2;

	(void)fd;
	assert(peer.greeted && flags == MSG_NOSIGNAL);
	assert(bytes && peer.asked_bytes + n <= sizeof(peer.asked));
	memcpy(peer.asked + peer.asked_bytes, data, n);
	peer.asked_bytes += n;
	if (n < bytes)
		return (ssize_t)n;
	assert(ctl_head_get(peer.asked, CTL_REQUEST) == peer.asked_bytes);
	r = ddraid__ctl__request__unpack(NULL, peer.asked_bytes - CTL_HEAD_BYTES,
					 peer.asked + CTL_HEAD_BYTES);
	assert(r && r->version == CTL_VERSION && r->body_case);
	ddraid__ctl__request__free_unpacked(r, NULL);
	peer.asked_bytes = 0;
	return (ssize_t)n;
}

static size_t drawn(uint8_t *to, size_t room)
{
	Reply *r = fuzz_alloc(sizeof(*r));
	size_t bytes;

	ddraid__ctl__reply__init(r);
	fuzz_proto(&in, &r->base, 0);
	bytes = ddraid__ctl__reply__get_packed_size(r);
	assert(bytes <= room);
	ddraid__ctl__reply__pack(r, to);
	ddraid__ctl__reply__free_unpacked(r, NULL);
	return bytes;
}

static void frame_draw(void)
{
	static const uint8_t version[] = {0x08, CTL_VERSION};
	const uint8_t *from = version;
	size_t n = sizeof(version);
	uint8_t how = 0;

	if (peer.greeted || !peer.greets) {
		how = fuzz_u8(&in);
		from = NULL;
		if (how & 1)
			n = drawn(peer.frame + CTL_HEAD_BYTES, CTL_MAX_BYTES);
		else
			from = fuzz_take(&in, how & 2 ? fuzz_u16(&in) & 2047 : fuzz_u8(&in), &n);
	}
	if (from && n)
		memcpy(peer.frame + CTL_HEAD_BYTES, from, n);
	peer.greeted = true;
	n += CTL_HEAD_BYTES;
	ctl_head_put(peer.frame, how >= 252 ? how : CTL_REPLY,
		     how == 248 ? CTL_MAX_BYTES + 1 : n + (how == 250));
	peer.at = 0;
	peer.bytes = how == 251 ? 11 : n;
	if (how == 251)
		in.left = 0; /* it ends there */
	peer.piece = how & 4 ? 1u + (how >> 4) : SIZE_MAX;
	peer.again = how & 8;
	peer.late = how == 249;
}

ssize_t fuzz_recv(int fd, void *data, size_t room, int flags)
{
	size_t n;

	(void)fd;
	assert(room && !flags);
	if (peer.at == peer.bytes) {
		if (!in.left && (peer.greeted || !peer.greets))
			return 0;
		frame_draw();
	}
	if (peer.again || peer.late) {
		peer.again = false;
		errno = EAGAIN;
		return -1;
	}
	n = peer.bytes - peer.at;
	n = n < room ? n : room;
	n = n < peer.piece ? n : peer.piece;
	memcpy(data, peer.frame + peer.at, n);
	peer.at += n;
	return (ssize_t)n;
}

/* ---- the device ----------------------------------------------------------------------------- */

/* Blocks of the input, each at a place; the rest is zeros. */
#define PATCHES 8
static struct {
	uint64_t offset;
	uint8_t block[DDR_BLOCK_BYTES];
} patch[PATCHES];
static unsigned patches;
static uint64_t device_bytes;
static uint32_t reads;

static void device_draw(void)
{
	static const char *const magic[] = {"ddraidsb", "ddraidlg"};
	const uint8_t *from;
	size_t n;

	device_bytes = (uint64_t)fuzz_u16(&in) << 12;
	for (patches = 0; patches < PATCHES && in.left; patches++) {
		uint8_t how = fuzz_u8(&in);
		uint8_t *b = patch[patches].block;

		patch[patches].offset = SB_OFFSET + (uint64_t)fuzz_u8(&in) * DDR_BLOCK_BYTES;
		memset(b, 0, DDR_BLOCK_BYTES);
		from = fuzz_take(&in, fuzz_u16(&in) & 1023, &n);
		if (n)
			memcpy(b, from, n);
		if (how & 1)
			memcpy(b, magic[how >> 1 & 1], BLOCK_MAGIC_BYTES);
		if (how & 4)
			block_seal(b);
	}
}

int device_open(struct device *d, const char *uri, char *why, size_t why_bytes)
{
	*d = (struct device){.fd = -1};
	reads = 0;
	if (!strncmp(uri, "nbd://", 6)) {
		snprintf(why, why_bytes, "nobody is there");
		return -ECONNREFUSED;
	}
	device_draw();
	d->size_bytes = device_bytes;
	return 0;
}

int device_read(struct device *d, uint64_t offset, void *buf, uint32_t bytes, char *why,
		size_t why_bytes)
{
	if (offset > d->size_bytes || bytes > d->size_bytes - offset || reads++ > 600) {
		snprintf(why, why_bytes, "it ends before");
		return -ENXIO;
	}
	memset(buf, 0, bytes);
	for (unsigned i = 0; i < patches; i++) {
		if (patch[i].offset >= offset &&
		    patch[i].offset + DDR_BLOCK_BYTES <= offset + bytes)
			memcpy((uint8_t *)buf + (patch[i].offset - offset), patch[i].block,
			       DDR_BLOCK_BYTES);
	}
	return 0;
}

void device_close(struct device *d)
{
	*d = (struct device){.fd = -1};
}

/* ---- what is printed ------------------------------------------------------------------------ */

static const char *json_value(const char *s, unsigned depth);

static const char *space(const char *s)
{
	return s + strspn(s, " \n");
}

static const char *json_string(const char *s)
{
	assert(*s == '"');
	for (s++; *s != '"'; s++) {
		assert((unsigned char)*s >= ' ' && *s != 0x7f);
		if (*s != '\\')
			continue;
		s++;
		assert(strchr("\"\\u", *s));
		if (*s == 'u') {
			assert(strspn(s + 1, "0123456789abcdef") >= 4);
			s += 4;
		}
	}
	return s + 1;
}

static const char *json_list(const char *s, char end, unsigned depth)
{
	s = space(s + 1);
	if (*s == end)
		return s + 1;
	for (;;) {
		if (end == '}') {
			s = space(json_string(s));
			assert(*s == ':');
			s++;
		}
		s = space(json_value(s, depth + 1));
		if (*s == end)
			return s + 1;
		assert(*s == ',');
		s = space(s + 1);
	}
}

static const char *json_value(const char *s, unsigned depth)
{
	size_t n;

	s = space(s);
	assert(depth < 16);
	if (*s == '{' || *s == '[')
		return json_list(s, *s == '{' ? '}' : ']', depth);
	if (*s == '"')
		return json_string(s);
	if (!strncmp(s, "null", 4) || !strncmp(s, "true", 4))
		return s + 4;
	if (!strncmp(s, "false", 5))
		return s + 5;
	n = strspn(s, "0123456789");
	assert(n);
	return s + n;
}

static void check_printed(const char *text, bool json)
{
	if (json) {
		text = space(text);
		assert(*text == '{' && !*space(json_value(text, 0)));
		return;
	}
	for (; *text; text++)
		assert((*text >= ' ' && *text <= '~') || *text == '\n');
}

/* ---- a run ---------------------------------------------------------------------------------- */

#define WORDS 24

static const char *const commands[][8] = {
    {"status"},
    {"status", "--json", "--ranges"},
    {"status", "vol0", "--wait"},
    {"nodes"},
    {"nodes", "--json"},
    {"create", "vol0", "--order", "1", "/a", "/b", "nbd://c"},
    {"create", "vol0", "--order=1", "--json", "/a", "/b", "/c"},
    {"attach", "vol0"},
    {"attach", "vol0", "--json", "--away=10s"},
    {"get", "vol0"},
    {"get", "--daemon", "--json"},
    {"set", "vol0", "key=value"},
    {"version"},
    {"version", "--json"},
    {"fail", "vol0", "nbd://x", "--json"},
    {"add", "vol0", "1", "/dev/x"},
    {"start", "vol0", "--wait", "--all-nodes", "--json"},
    {"examine", "/dev/x"},
    {"examine", "--json", "--ranges", "/dev/x"},
    {"import", "/a", "/b"},
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

/* Words of the input, each to its NUL. */
static int words_drawn(char *argv[WORDS + 2])
{
	int n = 1;

	while (n <= WORDS && in.left) {
		const uint8_t *end = memchr(in.at, 0, in.left);
		size_t bytes = end ? (size_t)(end - in.at) : in.left;

		argv[n++] = fuzz_string(in.at, bytes);
		in.at += bytes + (end ? 1 : 0);
		in.left -= bytes + (end ? 1 : 0);
	}
	return n;
}

static int words_given(char *argv[WORDS + 2], size_t which)
{
	int n = 1;

	for (int i = 0; i < 8 && commands[which][i]; i++)
		argv[n++] =
		    fuzz_string((const uint8_t *)commands[which][i], strlen(commands[which][i]));
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	FILE *out = stdout, *err = stderr;
	char *argv[WORDS + 2] = {(char *)"ddraidctl"}, *printed[2] = {NULL, NULL};
	size_t room[2];
	bool json = false;
	int argc, status;
	uint8_t which;

	in = (struct fuzz_in){data, bytes};
	memset(&peer, 0, sizeof(peer));
	which = fuzz_u8(&in);
	peer.greets = which < 252;
	which %= COMMANDS + 1;
	argc = which < COMMANDS ? words_given(argv, which) : words_drawn(argv);
	for (int i = 1; i < argc; i++)
		json |= !strcmp(argv[i], "--json");
	stdout = open_memstream(&printed[0], &room[0]);
	stderr = open_memstream(&printed[1], &room[1]);
	assert(stdout && stderr);
	status = ctl_main(argc, argv);
	fclose(stdout);
	fclose(stderr);
	stdout = out;
	stderr = err;
	assert(status >= EXIT_OK && status <= EXIT_UNKNOWN);
	if (which < COMMANDS)
		check_printed(printed[0], json);
	check_printed(printed[1], false);
	free(printed[0]);
	free(printed[1]);
	for (int i = 1; i < argc; i++)
		free(argv[i]);
	return 0;
}
