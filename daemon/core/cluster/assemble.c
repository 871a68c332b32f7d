/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Assembly: what the array was last, by what its members carry (R1). Each may be an older copy, or
 * its exporter may lie; up to m of them at once.
 *
 *   superblocks read -> the newest map that counts (map_believed) -> one history? -> which members
 *   are what they were in it -> k of them in sync, and no node's record knows better -> the map
 *
 * With --stale an older state of the array will do, if enough members are of that one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/core/cluster/msg.h"

static bool refuse(struct engine *e, const char *why)
{
	e->c->lead.why = why;
	e->c->lead.refused = true;
	return false;
}

static uint32_t sb_device(const struct engine *e, const struct superblock *sb)
{
	uint32_t i = 0;

	while (&e->c->devs.dev[i].sb != sb)
		i++;
	return i;
}

/* A member may say any epoch. What nobody else confirms does not drag the array's own numbers up by
 * more than this, and is no sign that others went on without this node if it is beyond that. */
#define EPOCH_DRAG 1024ull
#define EPOCH_AHEAD (1ull << 20)

/* Of several that call themselves so, the one that is opened as this member: see devs_bind. */
static const struct superblock *sb_of_member(const struct engine *e, const struct map *m, uint8_t i)
{
	for (uint32_t k = 0; k < DDR_MAX_DEVS; k++) {
		const struct dev *d = &e->c->devs.dev[(i + k) % DDR_MAX_DEVS];

		if (d->up && d->fresh && !d->misfit[0] &&
		    !memcmp(d->sb.member_uuid, m->member[i].uuid, DDR_UUID_BYTES))
			return &d->sb;
	}
	return NULL;
}

/* A node's record says that this was proposed, or something later. */
static bool epoch_recorded(const struct engine *e, const struct epoch *ep)
{
	if (epoch_cmp(&e->c->records.want.acked, ep) >= 0 ||
	    epoch_cmp(&e->c->records.want.committed, ep) >= 0)
		return true;
	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		const struct peer *p = &e->c->round.peer[i];

		if (p->in_round && p->hello &&
		    (epoch_cmp(&p->acked_epoch, ep) >= 0 || epoch_cmp(&p->known_epoch, ep) >= 0))
			return true;
	}
	return false;
}

/* Members that carry the epoch of this map, and another content. Who they are is what they say
 * themselves: the map in question may name others. */
static uint32_t twins_of(const struct engine *e, const struct map *m)
{
	uint32_t mask = 0, twins = 0;

	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
		const struct dev *d = &e->c->devs.dev[i];
		bool again = false;

		if (!d->up || !d->fresh || d->misfit[0] || epoch_cmp(&d->sb.map.epoch, &m->epoch) ||
		    map_same(&d->sb.map, m))
			continue;
		for (uint32_t j = 0; j < i; j++)
			again |= mask >> j & 1 && !memcmp(e->c->devs.dev[j].sb.member_uuid,
							  d->sb.member_uuid, DDR_UUID_BYTES);
		mask |= 1u << i;
		twins += !again;
	}
	return twins;
}

/*
 * Whether a map that a member carries was ever proposed. Its exporter may return anything; no more
 * than m do (and no more than m members are rolled back), else the data is lost as well.
 *
 * 1. More than m carry it, or a later one: one of them is honest.
 * 2. All that are here of those to which it was to be written carry it: nobody contradicts.
 * 3. Some of these do not carry it. So it was not committed (sb_write), or they were rolled back.
 *    Before the leader wrote it anywhere every node of its round had acknowledged it, durably. A
 *    node's record knows it: it is completed, and keeps its demotions (R3).
 * 4. No record knows it, and more than m do not carry it: it was not committed. Nobody who could
 *    have seen it is here, and no write was answered by it. It is a lie, or as good as none.
 *    The same of one that carries a map's epoch with another content than more members carry, or as
 *    many, also if a record knows the epoch.
 * 5. No record knows it, and those few that do not carry it carry what it calls committed: it was
 *    not committed, unless they were rolled back to the moment before it, which nothing can tell.
 *    If they lack that, they may well be rolled back: it counts, and they don't.
 */
static bool map_believed(const struct engine *e, const struct superblock *sb)
{
	const struct map *m = &sb->map;
	uint32_t same = 0, later = 0, twins = twins_of(e, m), lack = 0, old = 0;

	for (uint8_t i = 0; i < m->n; i++) {
		const struct superblock *own = sb_of_member(e, m, i);
		int cmp = own ? epoch_cmp(&own->map.epoch, &m->epoch) : 0;

		if (!own)
			continue;
		if (!(map_write_mask(m) >> i & 1))
			continue;
		same += !cmp && map_same(&own->map, m);
		later += cmp > 0;
		lack += cmp < 0;
		old += epoch_cmp(&own->map.epoch, &sb->committed) < 0;
	}
	if (twins && twins >= same)
		return false;
	if (same + later > e->geo.p.m || !(lack + twins) || epoch_recorded(e, &m->epoch))
		return true;
	return lack + twins <= e->geo.p.m && old;
}

/* The newest map that counts; and, if asked for, the newest that any member tells. */
static const struct superblock *newest_sb(const struct engine *e, const struct superblock **told)
{
	const struct superblock *best;
	uint32_t out = 0, at = 0;

	if (told)
		*told = NULL;
	do {
		best = NULL;
		for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
			const struct dev *d = &e->c->devs.dev[i];

			if (!d->up || !d->fresh || out >> i & 1 ||
			    (best && epoch_cmp(&d->sb.map.epoch, &best->map.epoch) <= 0))
				continue;
			best = &d->sb;
			at = i;
		}
		if (best && told && !*told)
			*told = best;
		out |= 1u << at;
	} while (best && e->view.have_geo && !map_believed(e, best));
	return best;
}

/* By what the members tell so far. */
const struct superblock *sb_newest(const struct engine *e)
{
	return newest_sb(e, NULL);
}

/* Numbers go on from what any member tells, within reason. */
static void max_num_raise(struct engine *e, const struct superblock *told, uint64_t known)
{
	if (told->map.epoch.num > e->c->lead.max_num && told->map.epoch.num <= known + EPOCH_DRAG)
		e->c->lead.max_num = told->map.epoch.num;
}

/*
 * R1: is this set of members the newest one? Whatever came after its map has k members in sync at
 * least, all of them among those that this map writes to, and each carries that later map. So with
 * fewer than k of these absent, one of them would be here and show it.
 *
 * With k > m, as in every geometry that there is, the members don't suffice for k that are in sync
 * and k that are absent; so the refusal for these says that something else is wrong. A mirror, or
 * k = 2 with m = 2, could get there. For such R1 has the records of a majority of the *cluster's*
 * nodes decide; those in the round may be fewer, and the engine knows of no others.
 *
 * What this can't see is that members were rolled back, all of them. A node's record can.
 */
static bool records_agree(struct engine *e, const struct map *map, uint32_t absent)
{
	bool behind_known = false, other_line = false;

	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		const struct peer *p = &e->c->round.peer[i];

		behind_known |= p->member && epoch_cmp(&p->known_epoch, &map->epoch) > 0;
		other_line |= p->member && p->known_epoch.num &&
			      lineage_denies(&e->c->assembly.past, &p->known_epoch);
	}
	e->c->lead.forced = e->cfg.force && (other_line || behind_known || absent >= e->geo.k);
	if (e->cfg.force)
		return true;
	if (other_line)
		return refuse(e, "these members have another history than a node that takes part: "
				 "the array was run twice at once; connect the members that this "
				 "node used last, or start with --stale to go on with these");
	if (behind_known)
		return refuse(e,
			      "only stale members are reachable: a node knows a newer epoch than "
			      "they carry; connect the newer members, or start with --stale");
	if (absent >= e->geo.k)
		return refuse(e, "so many members are absent that a newer set could exist; connect "
				 "more of them, or start with --stale");
	return true;
}

static bool carries(const struct superblock *own, const struct superblock *sb)
{
	return own && !epoch_cmp(&own->map.epoch, &sb->map.epoch) && map_same(&own->map, &sb->map);
}

/*
 * Whether a commit that a superblock tells of took place. More than m that tell of it, or of a
 * later one, are not all lies, however many members lack it. Of fewer, the others' word counts: no
 * more than m members are rolled back, so what more than m lack was not committed.
 */
static bool commit_believed(const struct engine *e, const struct superblock *sb,
			    const struct epoch *ep)
{
	const struct map *m = &sb->map;
	uint32_t told = 0, lack = 0;

	for (uint8_t i = 0; i < m->n; i++) {
		const struct superblock *own = sb_of_member(e, m, i);

		told += carries(own, sb) && epoch_cmp(&own->committed, ep) >= 0;
		lack += own && map_write_mask(m) >> i & 1 && epoch_cmp(&own->map.epoch, ep) < 0;
	}
	return told > e->geo.p.m || lack <= e->geo.p.m;
}

/* The last commit that this map's superblocks know: an exporter that conceals it would otherwise
 * have members pass that were rolled back to before it. */
static struct epoch committed_told(const struct engine *e, const struct superblock *sb)
{
	struct epoch best = {0, 0};

	for (uint8_t i = 0; i < sb->map.n; i++) {
		const struct superblock *own = sb_of_member(e, &sb->map, i);

		if (carries(own, sb) && epoch_cmp(&own->committed, &best) > 0 &&
		    epoch_cmp(&own->committed, &sb->map.epoch) <= 0 &&
		    commit_believed(e, sb, &own->committed))
			best = own->committed;
	}
	return best;
}

/*
 * An epoch that was committed for certain, so that all members of this superblock's map that were
 * in that epoch's carry it or a later one. A superblock was written before its own map's commit, so
 * what it names may be several incarnations old; records know better (R1). What they know beyond
 * the map, records_agree refuses, or --stale sets aside.
 */
static struct epoch committed_once(const struct engine *e, const struct superblock *sb)
{
	struct epoch best = committed_told(e, sb);

	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		const struct peer *p = &e->c->round.peer[i];

		if (p->member && epoch_cmp(&p->known_epoch, &best) > 0 &&
		    epoch_cmp(&p->known_epoch, &sb->map.epoch) <= 0)
			best = p->known_epoch;
	}
	return best;
}

static void past_of(struct engine *e, const struct superblock *sb)
{
	e->c->assembly.past = sb->past;
	lineage_add(&e->c->assembly.past, &sb->committed);
}

/*
 * The members are of two histories: the array was run twice at once, once by each of two parties
 * that knew nothing of one another. A higher number says only which of them changed its map more
 * often. So neither is taken for newer than the other, and an operator has to say which one counts;
 * what is of the other is rebuilt as a whole then.
 */
static bool histories_agree(struct engine *e, const struct superblock *sb)
{
	struct lead *ld = &e->c->lead;

	past_of(e, sb);
	for (uint32_t i = 0; i < DDR_MAX_DEVS && !e->cfg.force; i++) {
		const struct dev *d = &e->c->devs.dev[i];

		if (!d->up || !d->fresh || !lineage_differs(&e->c->assembly.past, &d->sb))
			continue;
		snprintf(
		    ld->text, sizeof(ld->text),
		    "the members are of two histories: the array was run twice at once, and "
		    "%s has changes that %s knows nothing of; disconnect those that are not to "
		    "count, start the array, then add them as new ones",
		    d->uri, e->c->devs.dev[sb_device(e, sb)].uri);
		return refuse(e, ld->text);
	}
	return true;
}

/* One whose read has failed since is not waited for again: two that hang in turns would hold this
 * node up for as long as they do. */
static bool devs_reading(const struct engine *e, uint64_t since_us)
{
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->c->devs.dev[i].reading &&
		    (!e->c->devs.dev[i].failed_us || e->c->devs.dev[i].failed_us < since_us))
			return true;
	return false;
}

/* True: all superblocks have been read since the round began, or can't be. */
static bool superblocks_read(struct engine *e)
{
	struct lead *ld = &e->c->lead;

	if (!ld->rereading) {
		ld->rereading = true;
		ld->assemble_us = e->now;
		if (!ld->waits_us)
			ld->waits_us = e->now;
		devs_reread(e);
	}
	return !devs_reading(e, ld->assemble_us);
}

/*
 * An epoch that this node has neither acknowledged nor goes by, and not an older one: the others
 * went on without it. Where the numbers are equal nothing says which of two incarnations proposed
 * first.
 */
bool epoch_unknown(const struct engine *e, const struct epoch *ep)
{
	return ep->num >= e->c->records.want.acked.num && ep->num >= e->map.epoch.num &&
	       epoch_cmp(ep, &e->c->records.want.acked) && epoch_cmp(ep, &e->map.epoch);
}

/* The newest number that this node has heard of for certain. */
static uint64_t epoch_known(const struct engine *e)
{
	return e->c->records.want.acked.num > e->map.epoch.num ? e->c->records.want.acked.num
							       : e->map.epoch.num;
}

/* What others do without this node concerns it: it serves, or has a slot to do so. */
bool takes_part(const struct engine *e)
{
	return e->state == ENGINE_ACTIVE || (e->state == ENGINE_JOINING && e->view.slot != NO_SLOT);
}

/*
 * Members of this node's map show that the array went on without it. A commit is on all members of
 * its map that are written to, so no more than m of those that are read lack it: what fewer show is
 * said by exporters that return anything. One of another history, which somebody went on without by
 * force, says nothing of this one.
 */
static bool went_on(const struct engine *e)
{
	uint32_t show = 0, lack = 0;

	for (uint8_t i = 0; i < e->map.n; i++) {
		const struct superblock *own = sb_of_member(e, &e->map, i);
		bool shows = own && epoch_unknown(e, &own->map.epoch) &&
			     own->map.epoch.num <= epoch_known(e) + EPOCH_AHEAD &&
			     !lineage_differs(&e->c->assembly.past, own);

		show += shows;
		lack += own && !shows;
	}
	return show && lack <= e->geo.p.m;
}

/* This node has stood still, and nobody knows for how long: also members that are in the place of
 * others by now may tell, and of those that it knows some may be out. */
static bool may_have_slept(const struct engine *e, const struct superblock *told)
{
	return use_lapsed(e, e->c->assembly.sure_us) && epoch_unknown(e, &told->map.epoch) &&
	       told->map.epoch.num <= epoch_known(e) + EPOCH_AHEAD &&
	       !lineage_differs(&e->c->assembly.past, told);
}

/*
 * R6: a leader that serves, but may have slept through a view, looks whether the array went on
 * without it, before it tells anybody anything: an epoch on disk that it did not acknowledge. Every
 * epoch is on k members or more; so m + 1 of them tell.
 */
bool array_still_ours(struct engine *e)
{
	struct lead *ld = &e->c->lead;
	const struct superblock *told;
	uint32_t n = 0;
	bool read;

	ld->why = "enough members to see that no other node went on without this one";
	read = superblocks_read(e); /* not all of them: one may hang */
	for (uint8_t i = 0; i < e->map.n; i++)
		n += sb_of_member(e, &e->map, i) != NULL;
	if (n <= e->geo.p.m || !newest_sb(e, &told))
		return false;
	max_num_raise(e, told, epoch_known(e));
	if (may_have_slept(e, told)) {
		round_removed(e);
	} else if (went_on(e)) {
		if (!read && e->now - ld->assemble_us < e->cfg.tun.evict_ms * 1000ull)
			return false; /* those that are still being read may deny it */
		round_removed(e);
	}
	ld->assembled = e->state == ENGINE_ACTIVE;
	if (e->state != ENGINE_REMOVED)
		e->c->assembly.sure_us = e->now;
	return e->state != ENGINE_REMOVED;
}

/*
 * R6, on the word of one node: the others went on without this one. If more than m members deny it,
 * it is not so. As long as that is not known this node uses nothing.
 */
void epoch_doubt(struct engine *e)
{
	if (e->c->assembly.doubt)
		return;
	e->c->assembly.doubt = true;
	e->c->assembly.doubt_us = e->now;
	devs_reread(e);
}

void doubt_advance(struct engine *e)
{
	uint32_t n = 0;

	if (!e->c->assembly.doubt || e->state == ENGINE_REMOVED)
		return;
	for (uint8_t i = 0; i < e->map.n; i++)
		n += sb_of_member(e, &e->map, i) != NULL;
	if (n <= e->geo.p.m)
		return;
	if (!went_on(e))
		e->c->assembly.doubt = false;
	else if (!devs_reading(e, e->c->assembly.doubt_us) ||
		 e->now - e->c->assembly.doubt_us >= e->cfg.tun.evict_ms * 1000ull)
		round_removed(e); /* those that are still being read might have denied it */
}

/* Its exporter may return anything: more than m members that carry this map name another. */
static bool writer_denied(const struct engine *e, const struct superblock *sb, uint32_t node)
{
	const struct map *map = &sb->map;

	for (uint8_t i = 0; i < map->n; i++) {
		const struct superblock *own = sb_of_member(e, map, i);
		uint32_t told = 0;

		if (!carries(own, sb) || own->writer_node == node)
			continue;
		for (uint8_t k = 0; k < map->n; k++) {
			const struct superblock *other = sb_of_member(e, map, k);

			told += carries(other, sb) && other->writer_node == own->writer_node;
		}
		if (told > e->geo.p.m)
			return true;
	}
	return false;
}

static bool writer_departed(struct engine *e, const struct superblock *sb, uint32_t node)
{
	const struct peer *p = peer_find(e, node);
	uint64_t inc = sb->map.epoch.inc;

	if (!node || (p && p->member && p->inc == inc) || departed_find(e, node, inc) ||
	    fence_stands(e, node, inc) || writer_denied(e, sb, node))
		return false;
	departed_add(e, node, inc);
	e->c->lead.rereading = false;
	return true;
}

/*
 * R4: whoever wrote this map had no slot yet whose pages would name it. What else it sent may still
 * land, also a newer map: so all is read again after its fence. Where the few members that carry
 * the map differ, each that they name is fenced.
 */
static bool writers_departed(struct engine *e, const struct superblock *sb)
{
	const struct map *map = &sb->map;
	bool any = writer_departed(e, sb, sb->writer_node);

	for (uint8_t i = 0; i < map->n; i++) {
		const struct superblock *own = sb_of_member(e, map, i);

		if (carries(own, sb))
			any |= writer_departed(e, sb, own->writer_node);
	}
	return any;
}

/*
 * By force this array goes on from a map that is not the newest. The numbers that it leaves out may
 * be those of epochs that others have committed: here they are of this incarnation, so that whoever
 * carries one of them as another's is of another history (lineage_denies).
 */
static void lineage_fork(struct engine *e, const struct map *from)
{
	uint64_t top = epoch_next_num(e, from), num = from->epoch.num + 1;

	if (top > num + LINEAGE_MAX)
		num = top - LINEAGE_MAX;
	for (; num < top; num++)
		lineage_add(&e->c->assembly.past, &(struct epoch){num, e->inc});
}

/* What the members carry, by one of their superblocks. */
struct judged {
	struct epoch committed;
	uint32_t absent, insync;
	bool extended;  /* one that was too small for a while */
	uint32_t older; /* device of one that lacks that commit, or NO_DEV */
	uint8_t requested[DDR_MAX_MEMBERS];
};

static void members_judge(const struct engine *e, const struct superblock *sb, struct judged *j)
{
	const struct map *map = &sb->map;

	*j = (struct judged){.older = NO_DEV};
	j->committed = committed_once(e, sb);
	for (uint8_t i = 0; i < map->n; i++) {
		const struct superblock *own = sb_of_member(e, map, i);
		bool needed = map_write_mask(map) >> i & 1;
		/* Not either what tells of a commit that no other has seen: of another history,
		 * or of none. */
		bool cut = member_cut(e, &map->member[i]);
		bool lacks = own && epoch_cmp(&own->map.epoch, &j->committed) < 0;
		bool fresh = own && !cut && !lacks &&
			     epoch_cmp(&own->committed, &map->epoch) <= 0 &&
			     !lineage_differs(&e->c->assembly.past, own);

		if (needed && !own && !cut)
			j->requested[i] = MEMBER_SUSPECT;
		else if (needed && !fresh)
			j->requested[i] = MEMBER_FAULTY; /* rolled back: only a full rebuild */
		j->absent += needed && !fresh;
		j->insync += map->member[i].state == MEMBER_IN_SYNC && fresh;
		j->extended |= needed && own && cut;
		if (needed && lacks)
			j->older = sb_device(e, own);
	}
}

/*
 * Too few members are what they were last: the others have been rolled back, say. The newest state
 * of the array before that of which enough are left; never some members of one state and some of
 * another. NULL: there is none, and e->c->assembly.past is as it was.
 */
static const struct superblock *older_sb(struct engine *e, const struct superblock *newest,
					 struct judged *j)
{
	struct lineage past = e->c->assembly.past;
	const struct superblock *sb = newest;

	while (sb) {
		const struct superblock *next = NULL;

		for (uint32_t i = 0; i < DDR_MAX_DEVS; i++) {
			const struct dev *d = &e->c->devs.dev[i];

			if (d->up && d->fresh && epoch_cmp(&d->sb.map.epoch, &sb->map.epoch) < 0 &&
			    (!next || epoch_cmp(&d->sb.map.epoch, &next->map.epoch) > 0))
				next = &d->sb;
		}
		sb = next;
		if (!sb)
			break;
		past_of(e, sb);
		members_judge(e, sb, j);
		if (j->insync >= e->geo.k)
			return sb;
	}
	e->c->assembly.past = past;
	return NULL;
}

/* Refused, since fewer than k are in sync by the newest map. */
static bool too_few(struct engine *e, const struct superblock *sb, const struct judged *j)
{
	struct lead *ld = &e->c->lead;
	struct judged o;
	struct lineage past = e->c->assembly.past;
	bool older;

	if (j->extended)
		return refuse(e, EXTENDED_INSYNC);
	if (j->older == NO_DEV) {
		fewer_insync(e, &sb->map, ld->text, sizeof(ld->text));
		return refuse(e, ld->text);
	}
	older = older_sb(e, sb, &o);
	e->c->assembly.past = past;
	snprintf(ld->text, sizeof(ld->text),
		 "fewer members in sync are reachable than the data needs: %.160s is as it was in "
		 "epoch %" PRIu64 ", and epoch %" PRIu64 " was committed; %s",
		 e->c->devs.dev[j->older].uri, e->c->devs.dev[j->older].sb.map.epoch.num,
		 j->committed.num,
		 older ? "connect the others as they were last, or start with --stale to go on "
			 "with an older state of the array"
		       : "connect the others as they were last; --stale does not help, since too "
			 "few members are of any one state");
	return refuse(e, ld->text);
}

/*
 * The fresh leader looks at what the members carry. True: e->map is what the array was last, and
 * lead.requested names what must leave it.
 */
bool assemble(struct engine *e)
{
	struct lead *ld = &e->c->lead;
	const struct superblock *sb, *told, *older = NULL;
	struct judged j, o;
	struct map map;

	ld->why = "the superblocks of the members to be read";
	if (!superblocks_read(e))
		return false;
	sb = newest_sb(e, &told);
	ld->refused = false;
	ld->why = "members to assemble the array from";
	if (!sb || !e->view.have_geo)
		return false;
	if (sb->map.epoch.num > ld->max_num)
		ld->max_num = sb->map.epoch.num;
	max_num_raise(e, told, sb->map.epoch.num);
	if (writers_departed(e, sb))
		return false;
	if (!histories_agree(e, sb))
		return false;
	members_judge(e, sb, &j);
	if (j.absent && e->now - ld->waits_us < e->cfg.tun.evict_ms * 1000ull)
		return false; /* they may still be connecting */
	if (j.insync < e->geo.k) {
		older = e->cfg.force ? older_sb(e, sb, &o) : NULL;
		if (!older)
			return too_few(e, sb, &j);
		if (writers_departed(e, older))
			return false;
		sb = older;
		j = o;
	}
	map = sb->map;
	if (!records_agree(e, &map, j.absent))
		return false;
	ld->forced |= older != NULL;
	for (uint8_t i = 0; i < map.n; i++) {
		request_state(e, i, (enum member_state)j.requested[i],
			      !j.requested[i]                    ? WHY_NONE
			      : j.requested[i] == MEMBER_SUSPECT ? WHY_ABSENT
								 : WHY_STALE,
			      e->cfg.node);
		ld->read_error[i] = false;
		ld->earlier &= ~(1u << i);
		/* Of one that is absent nobody knows by which line it went. */
		if (ld->forced && ld->requested[i])
			ld->requested[i] = MEMBER_FAULTY;
	}
	ld->refused = false;
	/* Not the map's own epoch: that may be a proposal which some members have never got. Called
	 * committed, it would make them stale if this leader died while it wrote the next one. */
	e->c->epochs.committed = j.committed;
	lineage_add(&e->c->assembly.past, &j.committed);
	if (ld->forced)
		lineage_fork(e, &map);
	e->c->epochs.base.clustered = sb->clustered;
	memcpy(e->c->epochs.base.cluster, sb->cluster, DDR_NAME_BYTES);
	epoch_adopt(e, &map);
	/* Also what failed a flush, at once: no proposal that drops another can be taken back. */
	for (uint8_t i = 0; i < map.n; i++) {
		uint8_t bad = bad_told(e, &map, i);
		struct member_cause cause;

		cause_own(e, i, bad, &cause);
		if ((bad == MEMBER_SUSPECT || bad == MEMBER_FAULTY) &&
		    map_write_mask(&map) >> i & 1)
			epoch_want_out(e, i, bad, false,
				       bad == MEMBER_SUSPECT && member_lost_earlier(e, i), &cause);
	}
	return true;
}
