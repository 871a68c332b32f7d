/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Has anybody a block device of the kernel's open whose driver does not tell? */
#ifndef DDRAID_ADAPTERS_FRONT_DEV_OPEN_H
#define DDRAID_ADAPTERS_FRONT_DEV_OPEN_H

#include <stdint.h>

/*
 * 0: nobody, as far as can be found out; -EBUSY: somebody; -EAGAIN: not known within wait_ms. The
 * look goes on then, and its outcome is there for who asks again soon. `device` is "/dev/NAME".
 * Any thread.
 */
int dev_open_look(const char *device, uint32_t wait_ms);

/*
 * How many have it open, of those that can be counted: mounts of this namespace, swap, devices on
 * top. That may have to wait, and a thread does it: dev_count_get starts one now and then, and says
 * what the last one has found, 0 before the first. NULL: out of memory. Each is of one thread.
 */
struct dev_count *dev_count_new(const char *device);
uint32_t dev_count_get(struct dev_count *c);
void dev_count_free(struct dev_count *c);

#endif
