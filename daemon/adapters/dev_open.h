/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Has anybody a block device of the kernel's open whose driver does not tell? */
#ifndef DDRAID_ADAPTERS_DEV_OPEN_H
#define DDRAID_ADAPTERS_DEV_OPEN_H

#include <stdint.h>

/*
 * 0: nobody, as far as can be found out; -EBUSY: somebody; -EAGAIN: not known within wait_ms. The
 * look goes on then, and its outcome is there for who asks again soon. `device` is "/dev/NAME".
 * Any thread.
 */
int dev_open_look(const char *device, uint32_t wait_ms);

/* What can be counted without waiting for anything: mounts of this namespace, swap, devices on top.
 */
uint32_t dev_open_count(const char *device);

#endif
