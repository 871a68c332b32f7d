/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A claim: what `create` writes where the superblocks of a new member will be, before anything
 * else, so that of two that want one device only one gets it. It takes the use block's place with
 * them: who uses the device already, and is seen by that, shows there. doc/ondisk.md has the
 *format.
 *
 * The cluster's reservations (reserve.h) come first, and are enough as long as both know the device
 * by a name that tells. But an exporter offers one file under many names, a SAN one disk under
 * many paths, and a node that was cut off does not know that it has lost its reservation. So the
 * device itself decides. It is a register that both can read and write, and nothing more; what two
 * can agree on with that needs a bound on how long a write takes (Fischer's algorithm; sanlock's
 * delta leases are the same thing). The rules, for `create` and for the leader of an `add`
 * (core/cluster/admin.c):
 *
 *	read before write	Each write is sent after a read of the superblocks' place has shown
 *				what this one itself put there last (the first time: that nobody
 *				holds the device). Read and write together take less than DELTA, or
 *				it gives up.
 *	wait before trust	What was written is read again SETTLE after it was acknowledged, and
 *				counts only if it is there unchanged. DELTA is less than SETTLE.
 *
 * `create` writes a claim C, trusts it (c), writes the log, writes the superblock S, trusts it (s),
 * and has won. `add` writes the superblock P of a new member, trusts it (p) on every node, and has
 * won. G is the read before a write. A and B are two on one device, in any of these roles.
 *
 * While one trusts what it wrote, no other writes. Say A has read back W (its C, S or P) after
 * SETTLE. Whatever B writes later than that, it writes after a read of its own:
 *
 *  1. B's read came before W landed. Then B's write landed within DELTA of its read, so less than
 *     DELTA after W; and A, which read SETTLE after W, would have seen it. It did not.
 *  2. B's read came after W landed. Then B saw W, and not what it put there itself. If it held
 *     the device, or wanted a free one, it gave up and wrote nothing.
 *
 * So after (c) the log is written by one alone, and after (s) or (p) the other can't win:
 *
 *  3. Both claim before either trusts: the later C stands. The other reads it at its (c), by 1, and
 *     gives up; it does not touch the device any more, since that does not show its own claim.
 *  4. B claims between A's (c) and A's S, since it read the device before A's C: it would have to
 *     land within DELTA of that read, before A's (c), which contradicts 1.
 *  5. `create --old-member` does not mind a claim or superblock that no array here has. Then B's
 *     read may show A's C or S and it goes on. If its C lands before A's (s), A reads it there, or
 *     before its next write, and gives up; if after, A has won and tells all nodes: B, which asks
 *     again SETTLE later, before its log, whether the superblock that it replaced is of an array
 *     that is known by now, puts it back and gives up. (If A needs longer than SETTLE to tell, B
 *     has overwritten an array that its node did not know, as it was asked to.)
 *  6. `add` can't tell a foreign claim from what users leave on disks, and writes P over it: the
 *     `create` sees P at (c), before its log, before its S, or at (s), whichever comes next, by 1;
 *     and if P landed before the claim did, the `add` misses it at (p).
 *     It never writes over a superblock of another array.
 *  7. Two `add`s: the first P is a superblock of another array to the second, by 2; within DELTA of
 *     each other, the first misses its own at (p), by 1.
 *  8. Who gives up restores what was there, or makes it nobody's, only where G shows its own, so by
 *     1 within DELTA of something that was its own; the winner finds that at its (c), (s) or (p)
 *     and gives up, too: nobody wins, nothing is lost, and a further try gets the device.
 *
 * `add --old-member` of a device that carries another array's superblock first makes that
 * nobody's, as a `create --old-member` does that gives up once it trusts its claim (create_clear),
 * and is an `add` only then.
 *
 * What this relies on: a write that took longer than DELTA is found out by who sent it, which
 * fails; but if that process stood still in between, or the write lay in a socket, it may have
 * landed on the winner's superblock. The two copies are then a member's that is not of the array,
 * which the array says and does not use.
 */
#ifndef DDRAID_CORE_FORMAT_CLAIM_H
#define DDRAID_CORE_FORMAT_CLAIM_H

#include "daemon/core/format/geometry.h"

#define CLAIM_SETTLE_MS 1000u /* at least; more where a device is slow */
#define CLAIM_SETTLE_MAX_MS 10000u

struct claim {
	uint8_t array_uuid[DDR_UUID_BYTES];
	uint8_t member_uuid[DDR_UUID_BYTES]; /* random: no two claims are equal */
	uint32_t index;
	char name[DDR_NAME_BYTES];
};

void claim_encode(const struct claim *c, uint8_t block[DDR_BLOCK_BYTES]);
/* 0; -ENOENT: it is none; -EBADMSG: it is damaged; -EPROTONOSUPPORT: of another version. */
int claim_decode(struct claim *c, const uint8_t block[DDR_BLOCK_BYTES]);

#endif
