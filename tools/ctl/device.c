/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tools/ctl/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libnbd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * libnbd, when an export is to be read: loading what it brings with it (TLS, XML) would take half
 * of the time of each other command.
 */
#define NBD_CALLS(f)                                                                               \
	f(create) f(connect_uri) f(get_size) f(get_errno) f(get_error) f(pread) f(close)
#define NBD_POINTER(name) __typeof__(nbd_##name) *name;
#define NBD_FIND(name) &&(*(void **)&nbd.name = dlsym(lib, "nbd_" #name))

static struct {
	NBD_CALLS(NBD_POINTER)
} nbd;

static bool nbd_load(void)
{
	void *lib = nbd.close ? NULL : dlopen("libnbd.so.0", RTLD_NOW | RTLD_LOCAL);

	return nbd.close || (lib NBD_CALLS(NBD_FIND)); /* close comes last */
}

static int fail(int err, char *why, size_t why_bytes, const char *text)
{
	snprintf(why, why_bytes, "%s", text);
	return err;
}

static int fail_nbd(char *why, size_t why_bytes)
{
	int err = nbd.get_errno();

	snprintf(why, why_bytes, "%s", nbd.get_error() ? nbd.get_error() : "NBD failed");
	return err ? -err : -EIO;
}

static int open_nbd(struct device *d, const char *uri, char *why, size_t why_bytes)
{
	int64_t size;

	if (!nbd_load()) {
		snprintf(why, why_bytes, "libnbd is missing or too old: %s", dlerror());
		return -ENOSYS;
	}
	d->nbd = nbd.create();
	if (!d->nbd || nbd.connect_uri(d->nbd, uri) < 0)
		return fail_nbd(why, why_bytes);
	size = nbd.get_size(d->nbd);
	if (size < 0)
		return fail_nbd(why, why_bytes);
	d->size_bytes = (uint64_t)size;
	return 0;
}

static int open_file(struct device *d, const char *path, char *why, size_t why_bytes)
{
	struct stat st;
	off_t end;

	/* Not blocking: a FIFO would wait for its writer. */
	d->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (d->fd < 0 || fstat(d->fd, &st) < 0)
		return fail(-errno, why, why_bytes, strerror(errno));
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return fail(-EINVAL, why, why_bytes, "it is no file and no block device");
	end = lseek(d->fd, 0, SEEK_END);
	if (end < 0)
		return fail(-errno, why, why_bytes, strerror(errno));
	d->size_bytes = (uint64_t)end;
	return 0;
}

int device_open(struct device *d, const char *uri, char *why, size_t why_bytes)
{
	const char *scheme = strstr(uri, "://");
	int err;

	*d = (struct device){.fd = -1};
	if (!strncmp(uri, "nbd", 3) && scheme)
		err = open_nbd(d, uri, why, why_bytes);
	else if (!strncmp(uri, "file://", 7))
		err = open_file(d, uri + 7, why, why_bytes);
	else if (scheme)
		err = fail(-EPROTONOSUPPORT, why, why_bytes,
			   "examine reads paths, file:// and nbd URIs only");
	else
		err = open_file(d, uri, why, why_bytes);
	if (err)
		device_close(d);
	return err;
}

int device_read(struct device *d, uint64_t offset, void *buf, uint32_t bytes, char *why,
		size_t why_bytes)
{
	uint32_t done = 0;

	if (offset > d->size_bytes || bytes > d->size_bytes - offset)
		return fail(-ENXIO, why, why_bytes, "it ends before");
	if (d->nbd)
		return nbd.pread(d->nbd, buf, bytes, offset, 0) ? fail_nbd(why, why_bytes) : 0;
	while (done < bytes) {
		ssize_t n = pread(d->fd, (char *)buf + done, bytes - done, (off_t)(offset + done));

		if (n <= 0)
			return fail(n ? -errno : -EIO, why, why_bytes,
				    n ? strerror(errno) : "it became shorter");
		done += (uint32_t)n;
	}
	return 0;
}

void device_close(struct device *d)
{
	if (d->fd >= 0)
		close(d->fd);
	if (d->nbd)
		nbd.close(d->nbd);
	*d = (struct device){.fd = -1};
}
