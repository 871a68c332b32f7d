/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Block devices that this process has for itself, as md or a file system that is mounted has them:
 * the kernel gives a device to one holder at a time, and its partitions with it. It is the whole
 * process that holds one, so that its second open, as of a check beside the array that runs, does
 * not meet its first. The kernel ends it with the process, however that ends.
 */
#ifndef DDRAID_ADAPTERS_MEMBER_DEV_CLAIM_H
#define DDRAID_ADAPTERS_MEMBER_DEV_CLAIM_H

#include <sys/types.h>

#define DEV_CLAIM_WHY_BYTES 320

struct dev_claim;

/*
 * Takes the device `path`, which has this number. 0 and *c; or -errno. -EBUSY: somebody else has
 * it, and `why` is the cause and the remedy, to stand behind its name. It may have to wait for the
 * device. Any thread.
 */
int dev_claim_take(const char *path, dev_t number, struct dev_claim **c,
		   char why[DEV_CLAIM_WHY_BYTES]);

/* That sentence, for another open of it that was refused with -EBUSY. */
void dev_claim_who(dev_t number, char why[DEV_CLAIM_WHY_BYTES]);

/* Gives it back, after what was opened under it is closed. NULL is allowed. Any thread. */
void dev_claim_drop(struct dev_claim *c);

#endif
