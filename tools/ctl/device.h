/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reads a member for `examine`: a file or block device by its path, or an export by its NBD URI. */
#ifndef DDRAID_CTL_DEVICE_H
#define DDRAID_CTL_DEVICE_H

#include <stddef.h>
#include <stdint.h>

struct nbd_handle;

struct device {
	int fd;
	struct nbd_handle *nbd;
	uint64_t size_bytes;
};

/* 0, or -errno and a sentence. */
int device_open(struct device *d, const char *uri, char *why, size_t why_bytes);
int device_read(struct device *d, uint64_t offset, void *buf, uint32_t bytes, char *why,
		size_t why_bytes);
void device_close(struct device *d);

#endif
