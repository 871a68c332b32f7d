/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The control plane's inside: for the files of core/cluster/, and engine.c.
 *
 *   msg.c       node messages <-> bytes
 *   round.c     views, rounds (Query, Hello, State), eviction: who takes part
 *   departed.c  who does not any more, and is fenced
 *   leader.c    what the leader does in a round until Ready, and after it
 *   epoch.c     proposals and commits of the map, on every node
 *   propose.c   ... from a request to a commit (leader)
 *   assemble.c  the map that a start goes on with, by what the members carry
 *   devs.c      devices, and which member each is
 *   cut_off.c   writes that may still land, as nobody heard their end
 *   sb_read.c   their superblocks: read, and which copy is written next
 *   locktab.c   the lock table: the leader's side
 *   locks.c     this node's side of the locks, and when a grant counts
 *   own_slot.c  the own slot as the cluster sees it: given, read, named, told
 *   leave.c     this node leaves in good order
 *   members.c   which members this node can use, and what their errors say
 *   slots.c     orphan slots: read, told (leader)
 *   pass.c      work through the regions in the background: a region, FLUSH, what that allows
 *   resync.c    ... orphan slots are resynced so, and their pages written
 *   slots_told.c what a member must carry of these that left the map before an epoch told
 *   recovery.c  what is told of recoveries
 *   rebuild.c   the rebuild of a member (leader)
 *   quiesce.c     a moment without writes, before it is promoted
 *   cause.c     why a member changes its state: told, and nothing goes by it
 *   back.c      what a member that is back has of the own slot: an older copy is told by that
 *   use.c       nobody else uses the members: another cluster, a daemon by itself
 */
#ifndef DDRAID_CORE_CLUSTER_CLUSTER_H
#define DDRAID_CORE_CLUSTER_CLUSTER_H

#include "daemon/core/cluster/admin.h"
#include "daemon/core/cluster/assemble.h"
#include "daemon/core/cluster/back.h"
#include "daemon/core/cluster/cut_off.h"
#include "daemon/core/cluster/departed.h"
#include "daemon/core/cluster/devs.h"
#include "daemon/core/cluster/epoch.h"
#include "daemon/core/cluster/leader.h"
#include "daemon/core/cluster/leave.h"
#include "daemon/core/cluster/locks.h"
#include "daemon/core/cluster/locktab.h"
#include "daemon/core/cluster/members.h"
#include "daemon/core/cluster/nodemsg.h"
#include "daemon/core/cluster/own_slot.h"
#include "daemon/core/cluster/pass.h"
#include "daemon/core/cluster/quiesce.h"
#include "daemon/core/cluster/rebuild.h"
#include "daemon/core/cluster/recovery.h"
#include "daemon/core/cluster/resync.h"
#include "daemon/core/cluster/round.h"
#include "daemon/core/cluster/slots.h"
#include "daemon/core/cluster/slots_told.h"
#include "daemon/core/cluster/use.h"
#include "daemon/core/cluster/vouch.h"
#include "daemon/core/door.h"

struct cluster {
	/* who takes part */
	struct views group;
	struct round round;
	struct records records;
	struct departures departures;
	struct fences fences;
	struct rejected rejected;
	/* the map */
	struct devs devs;
	struct members members;
	struct epochs epochs;
	struct assembly assembly;
	struct use use;
	struct vouch vouch;
	/* the leader's */
	struct choice choice;
	struct lead lead;
	struct resync resync;
	struct rebuild rebuild;
	struct locktab locktab;
	/* locks and the dirty log, as every node knows them */
	struct locks locks;
	struct own_slot own_slot;
	struct back back;
	struct orphans orphans;
	struct recoveries recoveries;
	/* what was asked of the array, or of this node */
	struct quiesce quiesce;
	struct admin admin;
	struct leave leave;
};

/* cluster.c: -ENOMEM, or 0. */
int cluster_new(struct engine *e);
void cluster_free(struct engine *e);
/* The end of an incarnation: what it has under way in the data plane; then, after data_clear(), all
 * else. */
void cluster_end(struct engine *e);
void cluster_clear(struct engine *e);
/* As new. idle_inc: the last incarnation, if that wrote to no member, else 0. */
void cluster_restart(struct engine *e, uint64_t idle_inc);

#endif
