/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Claims of others (use.c): who else has one on the members, since when it has not changed, and
 * what is said of that.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/core/cluster/use_int.h"

#define HIDDEN_RENEWALS 2u /* a claim of somebody who lives is seen again within so many */
#define PATIENCE_MAX_MS 600000u

/* Of this daemon, or of a node that takes part in this round: it goes by what is agreed here. */
bool use_ours(const struct engine *e, uint64_t claim)
{
	if (!claim)
		return false;
	if (claim == use_nonce(e) || claim == e->c->use.claim)
		return true;
	for (uint32_t i = 0; i < e->c->round.peer_count; i++) {
		const struct peer *p = &e->c->round.peer[i];

		if (p->in_round && p->hello && (claim == p->use_nonce || claim == p->use_claim))
			return true;
	}
	return false;
}

static struct use_watch *watch_of(struct use *u, uint64_t claim)
{
	for (uint32_t i = 0; i < u->watches; i++)
		if (u->watch[i].last.claim == claim)
			return &u->watch[i];
	return NULL;
}

static void watch_look(struct engine *e, const struct use_dev *d)
{
	const struct useblock *got = &d->got;
	struct use *u = &e->c->use;
	struct use_watch *w = watch_of(u, got->claim);
	bool changed = d->was.claim == got->claim && d->was.seq != got->seq;

	if (!w) {
		u->too_many |= u->watches == USE_WATCHED;
		if (u->watches == USE_WATCHED)
			return;
		w = &u->watch[u->watches++];
		*w = (struct use_watch){.last = *got, .since_us = e->now};
	}
	/* Nobody knows what it did while no device showed it. */
	if (w->unseen)
		w->since_us = e->now;
	w->shown = true;
	w->unseen = false;
	if (!changed)
		return;
	w->last = *got;
	w->alive = true;
	w->ended = false;
	w->since_us = e->now;
}

static uint64_t patience_us(const struct engine *e, const struct use_watch *w)
{
	uint32_t ms = w->last.patience_ms;

	if (w->last.claim == USE_UNKNOWN || ms < e->cfg.tun.renew_ms)
		ms = e->cfg.tun.patience_ms;
	return (ms > PATIENCE_MAX_MS ? PATIENCE_MAX_MS : ms) * 1000ull;
}

/*
 * What a process that has ended sent last may land later than that, and hide somebody who has the
 * array by now: until he renews his claim.
 */
static uint64_t watch_us(const struct engine *e, const struct use_watch *w)
{
	return w->ended ? HIDDEN_RENEWALS * 1000ull * e->cfg.tun.renew_ms : patience_us(e, w);
}

bool use_watch_over(const struct engine *e, const struct use_watch *w)
{
	return e->now - w->since_us >= watch_us(e, w);
}

/*
 * A process of this machine, since it was started last: the daemon can see whether it lives. A
 * cluster's claim has a process on each node, so that of one says nothing of the others.
 */
static void watch_probe(struct engine *e, struct use_watch *w)
{
	const struct use_process *p = &w->last.process, *own = &e->cfg.process;
	struct out *o;

	if (w->probed || w->last.cluster[0] || !p->pid || p->pid_space != own->pid_space ||
	    memcmp(p->boot, own->boot, USE_BOOT_BYTES))
		return;
	w->probed = true;
	o = out_add(e, OUT_PROBE);
	o->probe.claim = w->last.claim;
	o->probe.process = *p;
}

void use_probed(struct engine *e, const struct event *ev)
{
	struct use_watch *w = watch_of(&e->c->use, ev->probed.claim);

	if (!w)
		return;
	w->ended = ev->probed.dead;
	if (e->c->use.state == USE_LOOK) /* else the next reads wait for who may claim now */
		e->c->use.next_us = e->now;
}

/*
 * A device that no round waits for carries another's claim. That is waited for by the next looks,
 * though none of them may see it: else they end alike, and it is found again and again. One for
 * each such device: its exporter may return anything.
 */
void use_watch_found(struct engine *e, const struct use_dev *d)
{
	uint32_t dev = (uint32_t)(d - e->c->use.dev) + 1, n = 0;
	struct use *u = &e->c->use;
	struct use_watch *w;

	for (uint32_t i = 0; i < u->watches; i++)
		if (u->watch[i].found_on != dev || u->watch[i].last.claim == d->got.claim)
			u->watch[n++] = u->watch[i];
	u->watches = n;
	watch_look(e, d);
	w = watch_of(u, d->got.claim);
	if (w)
		w->found_on = dev;
}

/* The reads of a round are in: what others claim, as far as it was seen. */
void use_watches_look(struct engine *e)
{
	struct use *u = &e->c->use;
	uint32_t n = 0;

	u->too_many = false;
	for (uint32_t i = 0; i < u->watches; i++) {
		u->watch[i].unseen = !u->watch[i].shown;
		u->watch[i].shown = false;
	}
	for (uint32_t i = 0; i < DDR_MAX_DEVS; i++)
		if (e->c->devs.dev[i].up && u->dev[i].seen && u->dev[i].got.claim &&
		    !use_ours(e, u->dev[i].got.claim))
			watch_look(e, &u->dev[i]);
	for (uint32_t i = 0; i < u->watches; i++)
		if (u->watch[i].shown || (u->watch[i].found_on && !use_told(e)))
			u->watch[n++] = u->watch[i];
	u->watches = n;
	for (uint32_t i = 0; i < n; i++)
		watch_probe(e, &u->watch[i]);
}

/* An array of a cluster, and this is another, or none. */
bool use_foreign_cluster(struct engine *e)
{
	const struct superblock *sb = use_newest(e);
	struct use *u = &e->c->use;

	if (!sb || !sb->clustered || e->cfg.take_over || !strcmp(sb->cluster, e->cfg.cluster))
		return false;
	if (e->cfg.cluster[0])
		snprintf(u->why, sizeof(u->why),
			 "it belongs to cluster %s, and this is cluster %s; if it is to be this "
			 "cluster's from now on, start it once with --take-over",
			 sb->cluster, e->cfg.cluster);
	else
		snprintf(u->why, sizeof(u->why),
			 "it belongs to cluster %s, and this daemon is alone (cluster = alone in "
			 "ddraid.conf); start it on that cluster's nodes, or here with --alone if "
			 "none of them uses it",
			 sb->cluster);
	return true;
}

void use_look_why(struct engine *e)
{
	const struct use_watch *w = NULL;
	struct use *u = &e->c->use;
	char name[USE_NAME_BYTES];

	for (uint32_t i = 0; i < u->watches; i++)
		if (!use_watch_over(e, &u->watch[i]) && (!w || u->watch[i].alive))
			w = &u->watch[i];
	u->refused = w && w->alive;
	if (!w)
		return;
	useblock_name(&w->last, name);
	if (w->alive)
		snprintf(u->why, sizeof(u->why),
			 "its members are in use by %s; stop it there first, or disconnect these "
			 "members from one of the two",
			 name);
	else
		snprintf(u->why, sizeof(u->why),
			 "%s to be gone: %s; %u s without a sign of it are enough", name,
			 w->ended ? "its process has ended, and what it sent last may yet land"
				  : "it used the members last and did not give them back",
			 (unsigned)(watch_us(e, w) / 1000000));
}
