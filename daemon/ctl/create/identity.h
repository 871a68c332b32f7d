/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a device is known by, so that two who mean the same one find out, however they spell it:
 *
 *	uri:URI			as it was given: nodes are told URIs, and use each other's
 *	nbd:ADDRESS:PORT/EXPORT	each address that the host of an NBD URI has
 *	N:sock:DEV:INO/EXPORT	a Unix socket on node N
 *	N:blk:MAJOR:MINOR	a block device of node N
 *	N:file:DEV:INO		a file of node N
 *
 * Two keys that are equal are one device; two that differ may be one all the same (an exporter
 * offers one file twice, a disk has two paths). Then the device itself decides (claim.h).
 */
#ifndef DDRAID_CTL_CREATE_IDENTITY_H
#define DDRAID_CTL_CREATE_IDENTITY_H

#include <stdint.h>

#include "daemon/catalog/reserve.h"

#define IDENTITY_KEYS 6u /* of one device, at most */

_Static_assert(IDENTITY_KEYS *DDR_MAX_MEMBERS <= RESERVE_KEYS, "all members' keys fit");

/* How many. Blocks: host names are looked up. */
uint32_t identity_keys(const char *uri, uint32_t node, char key[IDENTITY_KEYS][RESERVE_KEY_BYTES]);

#endif
