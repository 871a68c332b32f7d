// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The daemons' group. Above: the main thread's side, which packs and unpacks. Below: the thread
 * with the group. Between them struct note, a task that carries one thing.
 *
 * Nothing is queued for later: whoever has no view tells nobody, and each new view is told
 * everything. So a message that its sender never saw delivered is made good by the next view.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/catalog/announce.h"
#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/base/thread.h"
#include "daemon/base/units.h"
#include "daemon/catalog/reserve.h"
#include "daemon/ports/lock.h"
#include "proto/announce.pb-c.h"

#define GROUP_NAME "ddraid"
#define AGAIN_US 100000ull
#define OPTIONS_MAX 64 /* of an array that another node tells of: it may have a later version's */
#define REFUSED_BYTES 1024u    /* that another node may say of one array */
#define STACK_BYTES (8u << 20) /* libcpg takes a megabyte of it for each dispatch */

typedef Ddraid__Announce__Message Message;

enum note_type {
	NOTE_UP,
	NOTE_DOWN,
	NOTE_TOKEN,
	NOTE_VIEW,
	NOTE_QUORUM,
	NOTE_MESSAGE,
	NOTE_SEND,
	NOTE_STOP
};

struct note {
	struct task task;
	struct note *next; /* of `unsent` */
	enum note_type type;
	union {
		struct group_self self;
		struct group_view view;
		struct group_quorum quorum;
		uint32_t from, token_ms;
	};
	size_t bytes;
	uint8_t data[];
};

static struct announce_state state;
static struct mailbox *main_box;
static struct announce_cb cb;

/* the thread's */
static const char *adapter;
static pthread_t thread;
static struct mailbox box;
static struct loop *loop;
static struct loop_wake wake;
static struct loop_timer again;
static struct group *group;
static struct note *unsent, **unsent_tail = &unsent;

static struct note *note_new(enum note_type type, const void *data, size_t bytes)
{
	struct note *n = calloc(1, sizeof(*n) + bytes);

	assert(n);
	n->type = type;
	n->bytes = bytes;
	if (bytes)
		memcpy(n->data, data, bytes);
	return n;
}

/* ---- the main thread: what is told ---------------------------------------------------------- */

static void at_thread(struct task *t);

static void tell(const Message *w)
{
	size_t bytes = ddraid__announce__message__get_packed_size(w);
	struct note *n = note_new(NOTE_SEND, NULL, 0);
	struct note *big = realloc(n, sizeof(*n) + bytes);

	assert(big && bytes <= GROUP_MESSAGE_BYTES);
	big->bytes = ddraid__announce__message__pack(w, big->data);
	mailbox_post(&box, &big->task, at_thread);
}

void announce_array(const struct store_array *desc)
{
	Ddraid__Announce__Array a = DDRAID__ANNOUNCE__ARRAY__INIT;
	Ddraid__Announce__Option option[32], *option_at[32];
	char value[32][OPTION_VALUE_BYTES];
	char *uri[DDR_MAX_MEMBERS];
	Message w = DDRAID__ANNOUNCE__MESSAGE__INIT;
	const char *key;

	if (!loop)
		return;
	a.name = (char *)desc->name;
	a.uuid.data = (uint8_t *)desc->uuid;
	a.uuid.len = DDR_UUID_BYTES;
	a.version = desc->version;
	a.started = desc->started;
	a.stop_forced = desc->stop_forced;
	a.said = desc->said;
	for (uint32_t i = 0; i < desc->count; i++)
		uri[i] = (char *)desc->agreed[i];
	a.uri = uri;
	a.n_uri = desc->count;
	while (a.n_option < 32 &&
	       (key = options_get(&desc->options, (uint32_t)a.n_option, value[a.n_option], NULL))) {
		option[a.n_option] = (Ddraid__Announce__Option)DDRAID__ANNOUNCE__OPTION__INIT;
		option[a.n_option].key = (char *)key;
		option[a.n_option].value = value[a.n_option];
		option_at[a.n_option] = &option[a.n_option];
		a.n_option++;
	}
	a.option = option_at;
	w.body_case = DDRAID__ANNOUNCE__MESSAGE__BODY_ARRAY;
	w.array = &a;
	tell(&w);
}

void announce_forgotten(const struct store_forgotten *list, uint32_t count)
{
	static Ddraid__Announce__Tombstone stone[STORE_MAX_FORGOTTEN], *at[STORE_MAX_FORGOTTEN];
	Ddraid__Announce__Forgotten f = DDRAID__ANNOUNCE__FORGOTTEN__INIT;
	Message w = DDRAID__ANNOUNCE__MESSAGE__INIT;

	if (!loop || !count)
		return;
	for (uint32_t i = 0; i < count && i < STORE_MAX_FORGOTTEN; i++) {
		stone[i] = (Ddraid__Announce__Tombstone)DDRAID__ANNOUNCE__TOMBSTONE__INIT;
		stone[i].uuid.data = (uint8_t *)list[i].uuid;
		stone[i].uuid.len = DDR_UUID_BYTES;
		stone[i].at_s = list[i].at_s;
		at[f.n_tombstone++] = &stone[i];
	}
	f.tombstone = at;
	w.body_case = DDRAID__ANNOUNCE__MESSAGE__BODY_FORGOTTEN;
	w.forgotten = &f;
	tell(&w);
}

void announce_message(const Message *w)
{
	if (loop && state.up)
		tell(w);
}

bool announce_dlm(void)
{
	const struct lock_ops *ops = lock_manager_find("dlm");

	return ops && !lock_missing(ops);
}

void announce_running(const struct announce_running *r, uint32_t count, bool all)
{
	Ddraid__Announce__Running running[STORE_MAX_ARRAYS], *at[STORE_MAX_ARRAYS];
	Ddraid__Announce__Node n = DDRAID__ANNOUNCE__NODE__INIT;
	Message w = DDRAID__ANNOUNCE__MESSAGE__INIT;

	if (!loop || !state.up)
		return;
	n.version = ANNOUNCE_VERSION;
	n.name = state.self.name;
	n.dlm = announce_dlm();
	n.all = all;
	for (uint32_t i = 0; i < count && i < STORE_MAX_ARRAYS; i++) {
		running[i] = (Ddraid__Announce__Running)DDRAID__ANNOUNCE__RUNNING__INIT;
		running[i].uuid.data = (uint8_t *)r[i].uuid;
		running[i].uuid.len = DDR_UUID_BYTES;
		running[i].serving = r[i].serving;
		running[i].clients = r[i].clients;
		running[i].kept = r[i].kept;
		if (r[i].refused)
			running[i].refused = r[i].refused;
		at[n.n_running++] = &running[i];
	}
	n.running = at;
	w.body_case = DDRAID__ANNOUNCE__MESSAGE__BODY_NODE;
	w.node = &n;
	tell(&w);
}

/* ---- the main thread: what is heard --------------------------------------------------------- */

const struct announce_state *announce_state(void)
{
	return &state;
}

const struct announce_node *announce_find(uint32_t node)
{
	for (uint32_t i = 0; i < state.count; i++) {
		if (state.node[i].node == node)
			return &state.node[i];
	}
	return NULL;
}

const struct announce_running *announce_runs(const struct announce_node *n,
					     const uint8_t uuid[DDR_UUID_BYTES])
{
	for (uint32_t i = 0; n->here && i < n->count; i++) {
		if (!memcmp(n->running[i].uuid, uuid, DDR_UUID_BYTES))
			return &n->running[i];
	}
	return NULL;
}

const char *announce_refused(const uint8_t uuid[DDR_UUID_BYTES], uint32_t leader, uint32_t *node)
{
	const char *why = NULL;

	for (uint32_t i = 0; i < state.count; i++) {
		const struct announce_running *r = announce_runs(&state.node[i], uuid);

		if (!r || !r->refused || (why && state.node[i].node != leader))
			continue;
		why = r->refused;
		*node = state.node[i].node;
	}
	return why;
}

static void running_drop(struct announce_node *n)
{
	for (uint32_t i = 0; i < n->count; i++)
		free(n->running[i].refused);
	n->count = 0;
}

static struct announce_node *node_get(uint32_t node)
{
	struct announce_node *n = (struct announce_node *)announce_find(node);

	if (n)
		return n;
	/* There is no room for more: the place of that which is away for longest, if one is. */
	for (uint32_t i = 0; state.count == DDR_MAX_NODES && i < state.count; i++) {
		struct announce_node *old = &state.node[i];

		if (!old->here && (!n || old->since_ms < n->since_ms))
			n = old;
	}
	if (!n && state.count == DDR_MAX_NODES)
		return NULL;
	if (!n)
		n = &state.node[state.count++];
	running_drop(n);
	memset(n, 0, sizeof(*n));
	n->node = node;
	return n;
}

static void set_here(struct announce_node *n, bool here)
{
	if (n->here != here)
		n->since_ms = now_ms();
	n->here = here;
	if (!here) {
		n->told = n->all = false;
		running_drop(n);
	}
}

static void tell_quorum(void)
{
	bool settled = state.view_ring.rep == state.quorum_ring.rep &&
		       state.view_ring.seq == state.quorum_ring.seq;

	reserve_quorum(state.quorate, settled);
}

static void take_view(const struct group_view *v)
{
	for (uint32_t i = 0; i < state.count; i++) {
		bool in = false;

		for (uint32_t j = 0; j < v->count; j++)
			in |= v->node[j] == state.node[i].node;
		if (!in)
			set_here(&state.node[i], false);
	}
	for (uint32_t j = 0; j < v->count; j++) {
		struct announce_node *n = node_get(v->node[j]);

		if (n && v->fresh[j])
			set_here(n, false);
		if (n)
			set_here(n, true);
	}
	state.view_ring = v->ring;
	reserve_view(state.self.node, v->count, v->node, v->fresh);
	cb.fresh();
	tell_quorum();
}

static bool desc_read(struct store_array *d, const Ddraid__Announce__Array *a)
{
	char why[OPTION_WHY_BYTES];

	memset(d, 0, sizeof(*d));
	options_init(&d->options);
	if (a->uuid.len != DDR_UUID_BYTES || strlen(a->name) >= DDR_NAME_BYTES ||
	    a->n_uri > DDR_MAX_MEMBERS || a->n_option > OPTIONS_MAX)
		return false;
	strcpy(d->name, a->name);
	memcpy(d->uuid, a->uuid.data, DDR_UUID_BYTES);
	d->version = a->version;
	d->started = a->started;
	d->stop_forced = a->stop_forced;
	d->said = a->said;
	d->count = (uint32_t)a->n_uri;
	for (uint32_t i = 0; i < d->count; i++) {
		if (strlen(a->uri[i]) >= DDR_URI_BYTES)
			return false;
		strcpy(d->uri[i], a->uri[i]);
		strcpy(d->agreed[i], a->uri[i]);
	}
	if (store_array_wrong(d))
		return false;
	for (size_t i = 0; i < a->n_option; i++) {
		if (options_set(&d->options, a->option[i]->key, a->option[i]->value, why))
			say(LOG_WARNING, "%s: %s; another node knows it", d->name, why);
	}
	return true;
}

static bool names(const struct announce_node *n, const uint8_t uuid[DDR_UUID_BYTES])
{
	for (uint32_t i = 0; i < n->count; i++) {
		if (!memcmp(n->running[i].uuid, uuid, DDR_UUID_BYTES))
			return true;
	}
	return false;
}

static void take_node(uint32_t from, const Ddraid__Announce__Node *a)
{
	struct announce_node *n = node_get(from);

	if (!n)
		return;
	reserve_node(from, a->version, a->all);
	n->told = true;
	n->all |= a->all;
	running_drop(n);
	n->dlm = a->dlm;
	snprintf(n->name, sizeof(n->name), "%s", a->name);
	for (size_t i = 0; i < a->n_running && n->count < STORE_MAX_ARRAYS; i++) {
		if (a->running[i]->uuid.len != DDR_UUID_BYTES || names(n, a->running[i]->uuid.data))
			continue;
		memcpy(n->running[n->count].uuid, a->running[i]->uuid.data, DDR_UUID_BYTES);
		n->running[n->count].clients = a->running[i]->clients;
		n->running[n->count].kept = a->running[i]->kept;
		n->running[n->count].refused = a->running[i]->refused[0]
						   ? strndup(a->running[i]->refused, REFUSED_BYTES)
						   : NULL;
		n->running[n->count++].serving = a->running[i]->serving;
	}
}

static void take_forgotten(uint32_t from, const Ddraid__Announce__Forgotten *a)
{
	static struct store_forgotten list[STORE_MAX_FORGOTTEN];
	uint32_t n = 0;

	for (size_t i = 0; i < a->n_tombstone && n < STORE_MAX_FORGOTTEN; i++) {
		if (a->tombstone[i]->uuid.len != DDR_UUID_BYTES)
			continue;
		memcpy(list[n].uuid, a->tombstone[i]->uuid.data, DDR_UUID_BYTES);
		list[n++].at_s = a->tombstone[i]->at_s;
	}
	cb.forgotten(from, list, n);
}

static void take_word(uint32_t from, const uint8_t *data, size_t bytes)
{
	Message *w = ddraid__announce__message__unpack(NULL, bytes, data);
	struct store_array *desc;

	if (!w) {
		say(LOG_WARNING, "node %u tells what this version does not know: ignored", from);
		return;
	}
	if (w->body_case == DDRAID__ANNOUNCE__MESSAGE__BODY_NODE)
		take_node(from, w->node);
	if (w->body_case == DDRAID__ANNOUNCE__MESSAGE__BODY_FORGOTTEN)
		take_forgotten(from, w->forgotten);
	reserve_heard(from, w);
	desc = w->body_case == DDRAID__ANNOUNCE__MESSAGE__BODY_ARRAY ? malloc(sizeof(*desc)) : NULL;
	if (desc && desc_read(desc, w->array))
		cb.array(desc);
	else if (desc)
		say(LOG_WARNING, "node %u tells of an array that can't be: ignored", from);
	free(desc);
	ddraid__announce__message__free_unpacked(w, NULL);
}

static void at_main(struct task *t)
{
	struct note *n = (struct note *)(void *)t;

	switch (n->type) {
	case NOTE_UP:
		state.up = true;
		state.self = n->self;
		break;
	case NOTE_DOWN:
		state.up = state.counted = state.quorate = false;
		state.quorum_count = 0;
		for (uint32_t i = 0; i < state.count; i++)
			set_here(&state.node[i], false);
		reserve_view(state.self.node, 0, NULL, NULL);
		tell_quorum();
		break;
	case NOTE_VIEW:
		take_view(&n->view);
		break;
	case NOTE_TOKEN:
		say(LOG_WARNING, "corosync's token time-out is %u ms now, and was %u ms",
		    n->token_ms, state.self.token_ms);
		state.self.token_ms = n->token_ms;
		break;
	case NOTE_QUORUM:
		state.counted = true;
		state.quorate = n->quorum.quorate;
		state.quorum_count = n->quorum.count;
		memcpy(state.quorum, n->quorum.node, sizeof(state.quorum));
		state.quorum_ring = n->quorum.ring;
		tell_quorum();
		break;
	case NOTE_MESSAGE:
		take_word(n->from, n->data, n->bytes);
		break;
	default:
		break;
	}
	free(n);
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void post(struct note *n)
{
	mailbox_post(main_box, &n->task, at_main);
}

static void group_up(void *arg, const struct group_self *self)
{
	struct note *n = note_new(NOTE_UP, NULL, 0);

	(void)arg;
	n->self = *self;
	post(n);
	group_join(group, GROUP_NAME);
}

static void group_view(void *arg, const struct group_view *v)
{
	struct note *n = note_new(NOTE_VIEW, NULL, 0);

	(void)arg;
	n->view = *v;
	post(n);
}

static void group_quorum(void *arg, const struct group_quorum *q)
{
	struct note *n = note_new(NOTE_QUORUM, NULL, 0);

	(void)arg;
	n->quorum = *q;
	post(n);
}

static void group_token(void *arg, uint32_t token_ms)
{
	struct note *n = note_new(NOTE_TOKEN, NULL, 0);

	(void)arg;
	n->token_ms = token_ms;
	post(n);
}

static void group_msg(void *arg, uint32_t from, const void *data, size_t bytes)
{
	struct note *n = note_new(NOTE_MESSAGE, data, bytes);

	(void)arg;
	n->from = from;
	post(n);
}

static void drop_unsent(void)
{
	while (unsent) {
		struct note *n = unsent;

		unsent = n->next;
		free(n);
	}
	unsent_tail = &unsent;
}

static void group_lost(void *arg, int err, const char *why)
{
	(void)arg;
	say(LOG_WARNING, "the daemons' group is lost: %s (%s)", why, strerror(-err));
	drop_unsent();
	post(note_new(NOTE_DOWN, NULL, 0));
}

static void group_left(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void group_log(void *arg, int priority, const char *text)
{
	(void)arg;
	say(priority, "group: %s", text);
}

static void send_unsent(void)
{
	while (unsent) {
		struct note *n = unsent;

		if (group_send(group, n->data, n->bytes) == -EAGAIN)
			return;
		/* -ENOTCONN: the next view is told everything. */
		unsent = n->next;
		if (!unsent)
			unsent_tail = &unsent;
		free(n);
	}
}

static void group_writable(void *arg)
{
	(void)arg;
	send_unsent();
}

static void again_fired(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

/* A note from the main thread. */
static void at_thread(struct task *t)
{
	struct note *n = (struct note *)(void *)t;

	if (!group) {
		free(n); /* too late */
		return;
	}
	if (n->type == NOTE_SEND) {
		n->next = NULL;
		*unsent_tail = n;
		unsent_tail = &n->next;
		send_unsent();
		return;
	}
	free(n);
	if (group_leave(group))
		loop_stop(loop);
	else
		loop_timer_set(loop, &again, loop_now_us(loop) + 10 * AGAIN_US);
}

static const struct group_cb callbacks = {
    .up = group_up,
    .view = group_view,
    .quorum = group_quorum,
    .token = group_token,
    .msg = group_msg,
    .lost = group_lost,
    .left = group_left,
    .writable = group_writable,
    .log = group_log,
};

static void *thread_main(void *arg)
{
	struct group_cfg cfg = {.loop = loop, .cb = &callbacks};

	(void)arg;
	if (group_open(adapter, &cfg, &group))
		abort(); /* the name was checked by the configuration */
	loop_run(loop);
	group_close(group);
	group = NULL;
	loop_timer_clear(loop, &again);
	drop_unsent();
	return NULL;
}

static void woken(void *arg)
{
	(void)arg;
	mailbox_run(&box);
}

static void kick(void *arg)
{
	(void)arg;
	loop_wake_kick(&wake);
}

int announce_start(const char *cluster, struct mailbox *m, const struct announce_cb *announce_cb)
{
	int err = loop_new(&loop);

	adapter = cluster;
	main_box = m;
	cb = *announce_cb;
	mailbox_init(&box, kick, NULL);
	wake.woken = woken;
	again.fired = again_fired;
	if (!err)
		err = loop_wake_add(loop, &wake);
	if (err)
		return err;
	return thread_start(&thread, STACK_BYTES, thread_main, NULL);
}

void announce_stop(void)
{
	struct note *n = note_new(NOTE_STOP, NULL, 0);

	mailbox_post(&box, &n->task, at_thread);
	pthread_join(thread, NULL);
	mailbox_run(&box);
	loop_wake_del(loop, &wake);
	loop_free(loop);
	loop = NULL;
}
