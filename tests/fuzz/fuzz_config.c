// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ddraid.conf, as text. Whatever it says: it is taken, or refused with a sentence. What is taken
 * can be written down as `ddraidctl get --daemon` shows it, and read again as the same.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/state/config.h"
#include "tests/fuzz/fuzz.h"

static int fd = -1;

/* config_load wants a path. */
static int load(struct config *c, const void *text, size_t bytes, char why[CONFIG_WHY_BYTES])
{
	char path[64];
	int err;

	if (fd < 0)
		fd = memfd_create("fuzz-config", MFD_CLOEXEC);
	assert(fd >= 0);
	err = ftruncate(fd, 0);
	assert(!err);
	assert(pwrite(fd, text, bytes, 0) == (ssize_t)bytes);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	config_init(c);
	memset(why, 'w', CONFIG_WHY_BYTES);
	err = config_load(c, path, why);
	assert(!err || (why[0] && memchr(why, '\0', CONFIG_WHY_BYTES)));
	return err;
}

/* The settings that were made, section by section, as text. */
static size_t write_down(const struct config *c, char *text, size_t room)
{
	char name[64], value[CONFIG_PATH_BYTES];
	const char *key, *origin;
	size_t n = 0;

	text[0] = '\0';
	for (uint32_t i = 0; (key = config_get(c, i, name, value, &origin)); i++) {
		char *dot = strchr(name, '.');

		assert(dot && memchr(value, '\0', sizeof(value)));
		if (strcmp(origin, "ddraid.conf") != 0)
			continue;
		*dot = '\0';
		n += (size_t)snprintf(text + n, room - n, "[%s]\n%s = %s\n", name, key, value);
		assert(n < room);
	}
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char why[CONFIG_WHY_BYTES], text[16384], again_text[16384];
	struct config c, again;
	size_t n;
	int err;

	if (load(&c, data, bytes, why))
		return 0;
	assert(c.fence != FENCE_UNSAID);
	n = write_down(&c, text, sizeof(text));
	err = load(&again, text, n, why);
	assert(!err);
	assert(write_down(&again, again_text, sizeof(again_text)) == n);
	assert(!memcmp(text, again_text, n));
	assert(again.fence == c.fence && config_heard_ms(&again) == config_heard_ms(&c));
	return 0;
}
