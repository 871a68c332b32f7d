/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What differs between kernels is here and nowhere else. Built and tested: 6.1 (Debian 12).
 */
#ifndef DDRAID_COMPAT_H
#define DDRAID_COMPAT_H

#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0) || LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
#error "this block driver is for Linux 6.1; what another kernel needs belongs in its compat header"
#endif

#endif
