/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Whether this is a virtual machine, as far as the kernel shows it. It matters where a fence is
 * only a wait: a machine that is paused does not notice, and goes on with what it was about to
 * send.
 */
#ifndef DDRAID_BASE_VIRT_H
#define DDRAID_BASE_VIRT_H

#include <stdbool.h>

#define VIRT_BYTES 64

/* What it is, as "QEMU"; root is "" but in tests: the folder that has proc and sys. */
bool virt_machine(const char *root, char what[VIRT_BYTES]);

#endif
