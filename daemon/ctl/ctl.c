// SPDX-License-Identifier: GPL-2.0-or-later
/* Requests of ddraidctl: the short ones are answered here, the others become jobs (jobs.c,
 * make.c). */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ctl/ctl.h"
#include "daemon/catalog/lost.h"

#define SETTINGS_MAX 64

struct daemon_env ctl_env;

struct array_entry *ctl_array_known(struct ipc_req *r, const char *name)
{
	struct array_entry *k = manager_find(name, false);
	char why[STORE_WHY_BYTES];

	if (!k && lost_array(name, why))
		ipc_fail(r, -ENODEV, "there is no array %.80s on this node: %s", name, why);
	else if (!k)
		ipc_fail(r, -ENODEV,
			 "there is no array %.80s on this node; 'ddraidctl status' lists them",
			 name);
	return k;
}

struct array_entry *ctl_array(struct ipc_req *r, const char *name)
{
	struct array_entry *k = ctl_array_known(r, name);

	if (!k || !k->damaged)
		return k;
	ipc_fail(r, -EBADMSG, "%s", k->error);
	return NULL;
}

static void version(struct ipc_req *r)
{
	Ddraid__Ctl__Version v = DDRAID__CTL__VERSION__INIT;
	Reply reply = REPLY_INIT;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	v.version = PACKAGE_VERSION;
	v.ctl_version = CTL_VERSION;
	v.ondisk_version = 1;
	v.node = announce_state()->self.node;
	v.uptime_ms = (uint64_t)(now.tv_sec - ctl_env.began.tv_sec) * 1000;
	v.pid = (uint32_t)getpid();
	reply.body_case = DDRAID__CTL__REPLY__BODY_VERSION_IS;
	reply.version_is = &v;
	ipc_final(r, &reply);
}

/* ---- settings ------------------------------------------------------------------------------- */

struct settings {
	Ddraid__Ctl__Settings msg;
	Ddraid__Ctl__Setting setting[SETTINGS_MAX], *at[SETTINGS_MAX];
	char value[SETTINGS_MAX][CONFIG_PATH_BYTES];
	char help[SETTINGS_MAX][2 * OPTION_VALUE_BYTES];
};

static struct settings *settings_new(void)
{
	static struct settings s;

	s.msg = (Ddraid__Ctl__Settings)DDRAID__CTL__SETTINGS__INIT;
	s.msg.setting = s.at;
	return &s;
}

static char *settings_add(struct settings *s, const char *key, const char *origin, const char *help)
{
	Ddraid__Ctl__Setting *p = &s->setting[s->msg.n_setting];

	*p = (Ddraid__Ctl__Setting)DDRAID__CTL__SETTING__INIT;
	p->key = (char *)key;
	p->value = s->value[s->msg.n_setting];
	p->origin = (char *)origin;
	p->help = (char *)help;
	s->at[s->msg.n_setting++] = p;
	return p->value;
}

static void settings_send(struct ipc_req *r, struct settings *s, const char *key)
{
	Reply reply = REPLY_INIT;

	if (!s->msg.n_setting) {
		ipc_fail(r, -ENOENT, "there is no setting %.60s; 'get' without a key lists them",
			 key);
		return;
	}
	reply.body_case = DDRAID__CTL__REPLY__BODY_SETTINGS;
	reply.settings = &s->msg;
	ipc_final(r, &reply);
}

/* What the array runs with here, if that is not its setting yet. */
static bool still(const struct array_entry *k, uint32_t i, const char *value,
		  char old[OPTION_VALUE_BYTES])
{
	if (options_live(i) || !array_running(k->array))
		return false;
	options_get(&array_desc(k->array)->options, i, old, NULL);
	return strcmp(old, value) != 0;
}

/* Returns whether one of them has to wait for the array's next start. */
static bool settings_fill(struct settings *s, const struct array_entry *k, const char *only)
{
	const char *key, *help, *origin;
	char value[OPTION_VALUE_BYTES], other[OPTION_VALUE_BYTES], *text;
	struct options def;
	bool waits = false;

	options_init(&def);
	for (uint32_t i = 0; (key = options_get(&k->desc.options, i, value, &help)); i++) {
		if (only[0] && strcmp(only, key) != 0)
			continue;
		options_get(&def, i, other, NULL);
		origin = strcmp(value, other) ? "set" : "default";
		text = s->help[s->msg.n_setting];
		if (still(k, i, value, other)) {
			snprintf(text, sizeof(s->help[0]), "%s; here it is %s until then", help,
				 other[0] ? other : "none");
			help = text;
			waits = true;
		}
		strcpy(settings_add(s, key, origin, help), value);
	}
	return waits;
}

static void array_settings(struct ipc_req *r, const struct array_entry *k, const char *only)
{
	struct settings *s = settings_new();

	settings_fill(s, k, only);
	settings_send(r, s, only);
}

/* Nobody has set it. */
static void limit_in_force(char value[CONFIG_PATH_BYTES], char help[2 * OPTION_VALUE_BYTES])
{
	uint32_t token_ms = announce_state()->self.token_ms;
	uint32_t ms = array_limit_ms(ctl_env.conf, token_ms);

	snprintf(value, CONFIG_PATH_BYTES, "%ums", ms);
	if (token_ms && ms == token_ms / 2)
		snprintf(help, 2 * OPTION_VALUE_BYTES, "half of corosync's token time-out, %u ms",
			 token_ms);
	else if (ms == ctl_env.conf->evict_ms / 2)
		snprintf(help, 2 * OPTION_VALUE_BYTES, "half of evict");
	else
		help[0] = '\0';
}

static void daemon_settings(struct ipc_req *r, const char *only)
{
	struct settings *s = settings_new();
	const char *key, *origin;
	char value[CONFIG_PATH_BYTES], *text;
	static char names[SETTINGS_MAX][64];

	for (uint32_t i = 0; i < SETTINGS_MAX; i++) {
		key = config_get(ctl_env.conf, i, names[i], value, &origin);
		if (!key)
			break;
		if (only[0] && strcmp(only, names[i]) != 0 && strcmp(only, key) != 0)
			continue;
		if (!strcmp(key, "heartbeat_limit") && !ctl_env.conf->heartbeat_limit_ms)
			limit_in_force(value, s->help[s->msg.n_setting]);
		else
			s->help[s->msg.n_setting][0] = '\0';
		text = settings_add(s, names[i], origin, s->help[s->msg.n_setting]);
		strcpy(text, value);
	}
	settings_send(r, s, only);
}

static void get(struct ipc_req *r, const Ddraid__Ctl__Get *g)
{
	struct array_entry *k;

	if (!g->array[0]) {
		daemon_settings(r, g->key);
		return;
	}
	k = ctl_array(r, g->array);
	if (k)
		array_settings(r, k, g->key);
}

struct set_job {
	struct ipc_req *r;
	struct manager_change change;
};

static void set_done(struct manager_change *c, int err, const char *why)
{
	struct set_job *j = c->arg;
	struct settings *own;

	if (err == -EINVAL) {
		ipc_fail(j->r, err, "%s", why);
	} else if (err) {
		ipc_fail(j->r, err, "%s of %s is not changed: %s", c->key, c->k->desc.name, why);
	} else {
		own = settings_new();
		if (settings_fill(own, c->k, c->key))
			ipc_warn(j->r, "it counts from the array's next start on each node");
		settings_send(j->r, own, c->key);
	}
	free(j);
}

/* What the change points to lives as long as the request. */
static void set(struct ipc_req *r, const Ddraid__Ctl__Set *s)
{
	struct array_entry *k = ctl_array(r, s->array);
	struct set_job *j;

	if (!k)
		return;
	j = calloc(1, sizeof(*j));
	assert(j);
	j->r = r;
	j->change.what = CHANGE_OPTION;
	j->change.key = s->key;
	j->change.value = s->value;
	j->change.done = set_done;
	j->change.arg = j;
	manager_change(k, &j->change);
}

/* ---- dispatch ------------------------------------------------------------------------------- */

static void member_request(struct ipc_req *r, const char *array, enum admin_cmd cmd,
			   uint32_t member)
{
	struct array_entry *k = ctl_array(r, array);

	if (k)
		request_admin(r, k, cmd, member, "");
}

void ctl_take(struct ipc_req *r)
{
	const Request *q = ipc_request(r);

	if (q->version != CTL_VERSION) {
		ipc_fail(r, -EPROTONOSUPPORT,
			 "ddraidd speaks version %u of the protocol, not %u; install the same "
			 "version of both",
			 CTL_VERSION, q->version);
		return;
	}
	switch ((int)q->body_case) {
	case DDRAID__CTL__REQUEST__BODY_VERSION_ASK:
		version(r);
		break;
	case DDRAID__CTL__REQUEST__BODY_STATUS:
		request_status(r);
		break;
	case DDRAID__CTL__REQUEST__BODY_CREATE:
		request_create(r);
		break;
	case DDRAID__CTL__REQUEST__BODY_IMPORT:
		request_import(r);
		break;
	case DDRAID__CTL__REQUEST__BODY_START:
		request_start(r);
		break;
	case DDRAID__CTL__REQUEST__BODY_STOP:
		request_stop(r);
		break;
	case DDRAID__CTL__REQUEST__BODY_FAIL:
		member_request(r, q->fail->array, ADMIN_FAIL, q->fail->member);
		break;
	case DDRAID__CTL__REQUEST__BODY_ADD:
		request_add(r);
		break;
	case DDRAID__CTL__REQUEST__BODY_RE_ADD:
		member_request(r, q->re_add->array, ADMIN_READD, q->re_add->member);
		break;
	case DDRAID__CTL__REQUEST__BODY_FORGET:
		request_forget(r);
		break;
	case DDRAID__CTL__REQUEST__BODY_NODES:
		status_nodes(r);
		break;
	case DDRAID__CTL__REQUEST__BODY_SET:
		set(r, q->set);
		break;
	case DDRAID__CTL__REQUEST__BODY_GET:
		get(r, q->get);
		break;
	case DDRAID__CTL__REQUEST__BODY_ATTACH:
		request_attach(r);
		break;
	case DDRAID__CTL__REQUEST__BODY_DETACH:
		request_detach(r);
		break;
	case DDRAID__CTL__REQUEST__BODY_WATCH:
		request_watch(r);
		break;
	default:
		ipc_fail(r, -ENOSYS, "%s", "");
	}
}
