/* SPDX-License-Identifier: GPL-2.0-or-later WITH Linux-syscall-note */
/*
 * Between the ddraid block driver and the daemon that serves its disks. doc/kmod.md tells who
 * owns what when, and what happens when either side dies.
 *
 * /dev/ddraid-control is opened once per disk: such an open is a session. ATTACH binds it to a
 * disk, which is made or, if it is there without a session, taken over with all requests that wait
 * in it. EXCHANGE hands answers to the kernel and takes requests from it, many in one call. The end
 * of the session leaves the disk: its requests wait for the next one. The session ends when its
 * last descriptor is closed, so open it O_CLOEXEC and don't let children keep it.
 *
 * All numbers are of the host's byte order; all pointers are of the calling process, as __u64.
 * Calls of one session are served one after the other.
 */
#ifndef _UAPI_DDRAID_H
#define _UAPI_DDRAID_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define DDRAID_CONTROL "/dev/ddraid-control"

/*
 * Changes when a structure does. The driver serves exactly this one; a daemon asks first.
 *
 *	1	as it is here
 */
#define DDRAID_API_VERSION 1

#define DDRAID_UUID_BYTES 16
#define DDRAID_NAME_BYTES 64	/* with its NUL */
#define DDRAID_BLOCK_MIN 4096	/* least logical block; the most is the kernel's page */
#define DDRAID_DEPTH_MAX 256	/* requests per queue */
#define DDRAID_IO_MAX 0x100000u /* most bytes of a READ or WRITE */
#define DDRAID_BATCH_MAX 256	/* actions, and requests, per EXCHANGE */

/* VERSION. Of any session, bound or not. */
struct ddraid_version {
	__u32 api;	/* out: DDRAID_API_VERSION of the driver */
	__u32 reserved; /* out: 0 */
};

/* ddraid_attach.flags */
#define DDRAID_FRESH 0x1u     /* a disk of this UUID is revoked first, as by REVOKE */
#define DDRAID_READ_ONLY 0x2u /* the disk takes no writes */

/*
 * ATTACH. Makes the disk `uuid`, or takes it over: "present" is then what the disk has and keeps,
 * whatever was asked for.
 *
 * EPROTO: another api. EINVAL: a value is out of bounds; or the disk is there, and its name, its
 * logical_block or READ_ONLY is another one, or its size, io_max or zeroes_max is larger (it may
 * have requests of that size). With FRESH the disk that is there may be revoked although the new
 * one can't be made then. EBUSY: the disk has a session: its daemon lives, or has not
 * ended yet. EEXIST: another disk has the name. EISCONN: this session has a disk. ENOMEM.
 *
 * When the disk is without a session for away_ms, the requests that wait and all that come fail
 * (EIO), until it has one again.
 */
struct ddraid_attach {
	__u32 api;	      /* in: DDRAID_API_VERSION */
	__u32 flags;	      /* in */
	__u32 logical_block;  /* in: bytes, a power of two; offsets and sizes are multiples */
	__u32 physical_block; /* in, out: present: bytes, a power of two >= logical_block */
	__u32 io_opt;	      /* in, out: present: bytes, a multiple of logical_block, or 0 */
	__u32 io_max;	      /* in, out: present: most bytes of a READ or WRITE, a multiple */
	__u32 zeroes_max;     /* in, out: present: the same of ZEROES, of physical_block; 0: none */
	__u32 depth;	      /* in, out: present: requests per queue, 1..DDRAID_DEPTH_MAX */
	__u32 queues;	      /* in, out: present: at most one per CPU; 0: one per CPU */
	__u32 away_ms;	      /* in: patience without a session, see above; 0: endless */
	__u32 index;	      /* out: the disk is ddraid<index> */
	__u32 waiting;	      /* out: requests that were taken over */
	__u64 size;	      /* in: bytes, a multiple of logical_block; the disk may grow */
	__u64 cookie;	      /* in: kept for the next; out: of the last, 0: made anew */
	__u8 uuid[DDRAID_UUID_BYTES]; /* in: of the array */
	char name[DDRAID_NAME_BYTES]; /* in: letters, digits, "-_."; a NUL at its end */
};

/* ddraid_status.flags */
#define DDRAID_SERVED 0x1u  /* it has a session */
#define DDRAID_FAILING 0x2u /* it was without one for longer than away_ms: requests fail */

/*
 * STATUS. Of any session, bound or not. ENOENT: no disk has the UUID. ENOTCONN: an UUID of zeroes
 * was given, which means this session's disk, but it has none.
 */
struct ddraid_status {
	__u8 uuid[DDRAID_UUID_BYTES]; /* in, out */
	char name[DDRAID_NAME_BYTES]; /* out, as all that follow */
	__u32 index;
	__u32 flags;
	__u32 openers; /* opens of the block device, a mount being one */
	__u32 waiting; /* requests that no daemon has been handed */
	__u32 handed;  /* requests that a daemon has been handed and has not answered */
	__u32 away_ms;
	__s32 pid;	/* that attached, as the caller's pid namespace has it; 0: no session */
	__u32 reserved; /* 0 */
	__u64 size;
	__u64 cookie;
	__u64 requests; /* taken from the block layer since the disk was made */
	__u64 rejected; /* actions that were not done, status not 0 */
};

enum ddraid_op {
	DDRAID_READ = 0,   /* answered with data */
	DDRAID_WRITE = 1,  /* its data is to be pulled */
	DDRAID_FLUSH = 2,  /* offset and bytes are 0 */
	DDRAID_ZEROES = 3, /* write zeroes; with DDRAID_UNMAP the space may be given back */
};

#define DDRAID_FUA 0x1u	  /* WRITE, ZEROES: durable before it is answered */
#define DDRAID_UNMAP 0x2u /* ZEROES */

/* A request, from the kernel. `tag` and `pass` together name it. */
struct ddraid_request {
	__u32 tag; /* opaque; reused when the request has been answered */
	__u32 op;  /* enum ddraid_op */
	__u32 flags;
	__u32 bytes;
	__u64 offset; /* bytes */
	__u64 pass;   /* anew at each handing out; never 0, never the same twice, of no disk */
};

enum ddraid_what {
	DDRAID_DONE = 0, /* answers the request: result 0 or -errno; READ: data */
	DDRAID_PULL = 1, /* copies a WRITE's bytes to data; any number of times before DONE */
};

/*
 * What is done about a request that this session has been handed. On the way back `status` is 0, or
 * why it was not done, and then the request is as before: EINVAL, no such action, or not on such a
 * request; ESTALE, the session has no such request (it was answered, or never handed to it);
 * EFAULT, `data` can't be read or written.
 *
 * Of results, 0, -EIO, -ENOSPC, -ETIMEDOUT and -EOPNOTSUPP reach who waits; others become -EIO.
 */
struct ddraid_action {
	__u32 tag;
	__u32 what; /* enum ddraid_what */
	__u64 pass;
	__u64 data;   /* READ DONE with result 0: its bytes; WRITE PULL: where they go; else 0 */
	__s32 result; /* DONE: 0 or -errno; PULL: 0 */
	__s32 status; /* out: 0 or -errno */
};

/*
 * EXCHANGE. Actions first, in their order; then as many requests are handed out as wait and as
 * there is room for. It never waits for requests: poll() says that some wait (EPOLLIN, level). 0,
 * with `status` in each action. ENOTCONN: the session has no disk. EINVAL: a count is too large;
 * nothing was done. EFAULT: one of the arrays; what was done is not told, and requests that were
 * handed out into nothing come back at the end of the session only: end it.
 */
struct ddraid_exchange {
	__u64 actions;	     /* in: struct ddraid_action[actions_count] */
	__u64 requests;	     /* in: room for struct ddraid_request[requests_room] */
	__u32 actions_count; /* in: 0..DDRAID_BATCH_MAX */
	__u32 requests_room; /* in: 0..DDRAID_BATCH_MAX */
	__u32 requests_got;  /* out */
	__u32 waiting;	     /* out: requests that still wait */
};

#define DDRAID_IOC_VERSION _IOR(0xDD, 0x40, struct ddraid_version)
#define DDRAID_IOC_ATTACH _IOWR(0xDD, 0x41, struct ddraid_attach)
#define DDRAID_IOC_EXCHANGE _IOWR(0xDD, 0x42, struct ddraid_exchange)
/* Removes the session's disk; the session is free for another. EBUSY: it is open. ENOTCONN. */
#define DDRAID_IOC_DETACH _IO(0xDD, 0x43)
/*
 * The same, whoever has it open, as if it had been pulled out: every request fails with EIO, now
 * and later, and every open is good for nothing any more. What is attached then under the same UUID
 * is another disk, with another index, to be opened anew. The old one may be seen for a moment yet.
 */
#define DDRAID_IOC_REVOKE _IO(0xDD, 0x44)
#define DDRAID_IOC_STATUS _IOWR(0xDD, 0x45, struct ddraid_status)

#endif
