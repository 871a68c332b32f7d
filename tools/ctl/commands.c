/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The commands that change something, and the small ones that print. Each makes one request of its
 * arguments; with --wait, a second one watches what the first has started.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/units.h"
#include "daemon/core/format/superblock.h"
#include "tools/ctl/ctl.h"
#include "tools/ctl/json.h"
#include "tools/ctl/show.h"
#include "tools/ctl/table.h"

/* No array has more members. */
#define NO_MEMBER UINT32_MAX

int watch(struct ipc *c, const char *array, Ddraid__Ctl__Until until)
{
	Ddraid__Ctl__Watch w = DDRAID__CTL__WATCH__INIT;
	Request request = REQUEST_INIT;

	w.array = (char *)array;
	w.until = until;
	request.body_case = DDRAID__CTL__REQUEST__BODY_WATCH;
	request.watch = &w;
	return ipc_request(c, &request, NULL, NULL);
}

/* The daemon has another working directory: a path becomes absolute. NULL: a sentence was printed.
 * The caller frees it. */
static char *absolute_uri(const char *uri)
{
	char *cwd, *out = NULL;

	if (uri[0] == '/' || strstr(uri, "://"))
		return strdup(uri);
	cwd = getcwd(NULL, 0);
	if (!cwd)
		complain("the working directory is gone: give %.100s with its whole path", uri);
	else if (asprintf(&out, "%s/%s", cwd, uri) < 0)
		out = NULL;
	free(cwd);
	return out;
}

/* --- create, import --- */

struct created {
	bool json;
	char name[DDR_NAME_BYTES]; /* as it is answered: `import` learns it so */
};

static int take_created(void *arg, const Reply *reply)
{
	struct created *w = arg;
	const Ddraid__Ctl__Created *made = reply->created;
	char name[DDR_NAME_BYTES], uuid[UUID_TEXT_BYTES] = "?", size[UNITS_TEXT_BYTES], why[1024];
	struct json *j;

	if (reply->body_case != DDRAID__CTL__REPLY__BODY_CREATED)
		return EXIT_OK;
	progress_end();
	snprintf(w->name, sizeof(w->name), "%s", made->name);
	if (made->uuid.len == DDR_UUID_BYTES)
		uuid_format(uuid, made->uuid.data);
	if (!w->json) {
		printf("array %s (%s): %s, runs on %zu node%s\n",
		       text_clean(name, sizeof(name), made->name), uuid,
		       size_format(size, made->size_bytes), made->n_node,
		       made->n_node == 1 ? "" : "s");
		if (made->stripe_why[0])
			printf("%s\n", text_clean(why, sizeof(why), made->stripe_why));
		if (!strcmp(made->lock_backend, "dlm"))
			printf("its locks are kept by the kernel's DLM, which all nodes have\n");
		return EXIT_OK;
	}
	j = answer();
	json_text(j, "name", made->name);
	json_uuid(j, "uuid", made->uuid.data, made->uuid.len);
	json_number(j, "size_bytes", made->size_bytes);
	json_number(j, "stripe_bytes", made->stripe_bytes);
	json_text_or_null(j, "stripe_why", made->stripe_why);
	json_text_or_null(j, "locks", made->lock_backend);
	json_open(j, "nodes", '[');
	for (size_t i = 0; i < made->n_node; i++)
		json_number(j, NULL, made->node[i]);
	json_close(j, ']');
	return EXIT_OK;
}

static int options_make(const struct args *a, Ddraid__Ctl__Option *option,
			Ddraid__Ctl__Option **pointer)
{
	for (int i = 0; i < a->settings; i++) {
		option[i] = (Ddraid__Ctl__Option)DDRAID__CTL__OPTION__INIT;
		option[i].value = args_split(a->setting[i]);
		option[i].key = a->setting[i];
		pointer[i] = &option[i];
	}
	return a->settings;
}

static int create_send(struct ipc *c, const struct args *a, char **uri, struct created *made)
{
	Ddraid__Ctl__Create create = DDRAID__CTL__CREATE__INIT;
	Ddraid__Ctl__Option option[ARGS_MAX_SETTINGS], *option_at[ARGS_MAX_SETTINGS];
	Request request = REQUEST_INIT;

	create.name = a->word[0];
	create.order = (uint32_t)a->order;
	create.parity = 1;
	create.layout = (uint32_t)a->layout;
	create.stripe_bytes = (uint32_t)a->stripe_bytes;
	create.band_bytes = (uint32_t)a->band_bytes;
	create.region_bytes = (uint32_t)a->region_bytes;
	create.slots = (uint32_t)a->slots;
	create.wipe = a->wipe;
	create.old_member = a->old_member;
	create.unaligned = a->unaligned;
	create.zeroed = a->zeroed;
	create.n_uri = (size_t)a->count - 1;
	create.uri = uri;
	create.n_option = (size_t)options_make(a, option, option_at);
	create.option = option_at;
	request.body_case = DDRAID__CTL__REQUEST__BODY_CREATE;
	request.create = &create;
	return ipc_request(c, &request, take_created, made);
}

static int import_send(struct ipc *c, const struct args *a, char **uri, struct created *made)
{
	Ddraid__Ctl__Import import = DDRAID__CTL__IMPORT__INIT;
	Request request = REQUEST_INIT;

	import.n_uri = (size_t)a->count;
	import.uri = uri;
	import.degraded = a->degraded;
	import.stale = a->stale;
	request.body_case = DDRAID__CTL__REQUEST__BODY_IMPORT;
	request.import = &import;
	return ipc_request(c, &request, take_created, made);
}

/* create, import */
int create_command(struct ipc *c, const struct args *a)
{
	struct created made = {.json = a->json};
	char *uri[DDR_MAX_MEMBERS];
	bool imports = a->cmd == CMD_IMPORT;
	char *const *word = a->word + !imports;
	int count = a->count - !imports, status = EXIT_OK;

	for (int i = 0; i < count; i++) {
		uri[i] = absolute_uri(word[i]);
		if (!uri[i] || strlen(uri[i]) >= DDR_URI_BYTES)
			status = EXIT_FAILED;
		if (uri[i] && status)
			complain("the path of member %d is longer than %d characters", i,
				 DDR_URI_BYTES - 1);
	}
	if (!status)
		status = imports ? import_send(c, a, uri, &made) : create_send(c, a, uri, &made);
	for (int i = 0; i < count; i++)
		free(uri[i]);
	if (!status && a->wait)
		status = watch(c, made.name, DDRAID__CTL__UNTIL__UNTIL_SYNCED);
	return status;
}

/* --- start, stop, fail, add, re-add, forget --- */

struct search {
	const char *uri;
	uint32_t index;
};

static int take_search(void *arg, const Reply *reply)
{
	struct search *s = arg;
	char uuid[UUID_TEXT_BYTES];

	if (reply->body_case != DDRAID__CTL__REPLY__BODY_STATUS)
		return EXIT_OK;
	for (size_t i = 0; i < reply->status->n_member; i++) {
		const Ddraid__Ctl__Member *m = reply->status->member[i];

		if (!strcmp(m->uri, s->uri) || (m->uuid.len == DDR_UUID_BYTES &&
						!strcmp(uuid_format(uuid, m->uuid.data), s->uri)))
			s->index = m->index;
	}
	return EXIT_OK;
}

/* A member is named by its number, or by its URI or UUID as `status` prints it. */
static int member_find(struct ipc *c, const struct args *a, uint32_t *index)
{
	struct search s = {.uri = a->word[1], .index = NO_MEMBER};
	Ddraid__Ctl__StatusAsk ask = DDRAID__CTL__STATUS_ASK__INIT;
	Request request = REQUEST_INIT;
	uint64_t number;
	int status;

	if (!number_parse(a->word[1], 0, DDR_MAX_MEMBERS - 1, &number)) {
		*index = (uint32_t)number;
		return EXIT_OK;
	}
	ask.array = a->word[0];
	request.body_case = DDRAID__CTL__REQUEST__BODY_STATUS;
	request.status = &ask;
	status = ipc_request(c, &request, take_search, &s);
	if (!status && s.index == NO_MEMBER) {
		complain(
		    "array %s has no member %s: 'ddraidctl status %s' lists them by number and "
		    "URI",
		    a->word[0], a->word[1], a->word[0]);
		status = EXIT_FAILED;
	}
	*index = s.index;
	return status;
}

static int member_change(struct ipc *c, const struct args *a, Request *request)
{
	Ddraid__Ctl__Fail fail = DDRAID__CTL__FAIL__INIT;
	Ddraid__Ctl__Add add = DDRAID__CTL__ADD__INIT;
	Ddraid__Ctl__ReAdd re_add = DDRAID__CTL__RE_ADD__INIT;
	uint32_t index;
	int status = member_find(c, a, &index);

	if (status)
		return status;
	fail.array = add.array = re_add.array = a->word[0];
	fail.member = add.member = re_add.member = index;
	if (a->cmd == CMD_FAIL) {
		request->body_case = DDRAID__CTL__REQUEST__BODY_FAIL;
		request->fail = &fail;
	} else if (a->cmd == CMD_READD) {
		request->body_case = DDRAID__CTL__REQUEST__BODY_RE_ADD;
		request->re_add = &re_add;
	} else {
		add.uri = absolute_uri(a->word[2]);
		if (!add.uri)
			return EXIT_FAILED;
		add.wipe = a->wipe;
		add.old_member = a->old_member;
		add.unaligned = a->unaligned;
		request->body_case = DDRAID__CTL__REQUEST__BODY_ADD;
		request->add = &add;
	}
	status = ipc_request(c, request, NULL, NULL);
	if (a->cmd == CMD_ADD)
		free(add.uri);
	return status;
}

static int array_change(struct ipc *c, const struct args *a, Request *request)
{
	Ddraid__Ctl__Start start = DDRAID__CTL__START__INIT;
	Ddraid__Ctl__Stop stop = DDRAID__CTL__STOP__INIT;
	Ddraid__Ctl__Forget forget = DDRAID__CTL__FORGET__INIT;

	start.array = stop.array = forget.array = a->word[0];
	stop.disconnect = forget.disconnect = a->disconnect;
	start.stale = a->stale;
	start.all_nodes = stop.all_nodes = a->all_nodes;
	start.alone = a->alone;
	start.take_over = a->take_over;
	if (a->cmd == CMD_START) {
		request->body_case = DDRAID__CTL__REQUEST__BODY_START;
		request->start = &start;
	} else if (a->cmd == CMD_STOP) {
		request->body_case = DDRAID__CTL__REQUEST__BODY_STOP;
		request->stop = &stop;
	} else {
		request->body_case = DDRAID__CTL__REQUEST__BODY_FORGET;
		request->forget = &forget;
	}
	return ipc_request(c, request, NULL, NULL);
}

int change_run(struct ipc *c, const struct args *a)
{
	Request request = REQUEST_INIT;
	bool of_member = a->cmd == CMD_FAIL || a->cmd == CMD_ADD || a->cmd == CMD_READD;
	Ddraid__Ctl__Until until = a->cmd == CMD_STOP    ? DDRAID__CTL__UNTIL__UNTIL_STOPPED
				   : a->cmd == CMD_START ? DDRAID__CTL__UNTIL__UNTIL_SERVING
							 : DDRAID__CTL__UNTIL__UNTIL_SYNCED;
	int status = of_member ? member_change(c, a, &request) : array_change(c, a, &request);

	if (!status && a->wait)
		status = watch(c, a->word[0], until);
	return status;
}

/* --- attach, detach --- */

static int take_attached(void *arg, const Reply *reply)
{
	const struct args *a = arg;
	const Ddraid__Ctl__Attached *at = reply->attached;
	char device[160], link[160], via[32], away[UNITS_TEXT_BYTES];
	struct json *j;

	if (reply->body_case != DDRAID__CTL__REPLY__BODY_ATTACHED)
		return EXIT_OK;
	if (a->away && !at->away[0]) {
		complain("%s is attached, and waits for ever: this ddraidd does not know --away; "
			 "install the same version of ddraidd and ddraidctl",
			 a->word[0]);
		return EXIT_FAILED;
	}
	if (!a->json) {
		bool hold = !at->away[0] || !strcmp(at->away, "hold");

		printf("%s (%s, by %s%s%s)\n", text_clean(link, sizeof(link), at->link),
		       text_clean(device, sizeof(device), at->device),
		       text_clean(via, sizeof(via), at->via), hold ? "" : ", away ",
		       hold ? "" : text_clean(away, sizeof(away), at->away));
		return EXIT_OK;
	}
	j = answer();
	json_text(j, "link", at->link);
	json_text(j, "device", at->device);
	json_text(j, "via", at->via);
	json_text_or_null(j, "away", at->away);
	return EXIT_OK;
}

int attach_run(struct ipc *c, const struct args *a)
{
	Ddraid__Ctl__Attach attach = DDRAID__CTL__ATTACH__INIT;
	Ddraid__Ctl__Detach detach = DDRAID__CTL__DETACH__INIT;
	Request request = REQUEST_INIT;

	attach.array = detach.array = a->word[0];
	if (a->cmd == CMD_ATTACH) {
		attach.via = (char *)(a->via ? a->via : "");
		attach.away = (char *)(a->away ? a->away : "");
		request.body_case = DDRAID__CTL__REQUEST__BODY_ATTACH;
		request.attach = &attach;
	} else {
		detach.disconnect = a->disconnect;
		request.body_case = DDRAID__CTL__REQUEST__BODY_DETACH;
		request.detach = &detach;
	}
	return ipc_request(c, &request, take_attached, (void *)a);
}

/* --- set, get --- */

struct settings {
	bool json;
	struct table table;
};

static int take_settings(void *arg, const Reply *reply)
{
	struct settings *w = arg;
	struct json *j;

	if (reply->body_case != DDRAID__CTL__REPLY__BODY_SETTINGS)
		return EXIT_OK;
	for (size_t i = 0; i < reply->settings->n_setting; i++) {
		const Ddraid__Ctl__Setting *s = reply->settings->setting[i];

		if (!w->json) {
			table_cell(&w->table, "%s = %s", s->key, s->value);
			table_cell(&w->table, "%s", s->origin);
			table_cell(&w->table, "%s", s->help);
			continue;
		}
		j = answer();
		json_open(j, NULL, '{');
		json_text(j, "key", s->key);
		json_text(j, "value", s->value);
		json_text_or_null(j, "origin", s->origin);
		json_text_or_null(j, "help", s->help);
		json_close(j, '}');
	}
	return EXIT_OK;
}

static int settings_ask(struct ipc *c, const struct args *a, Request *request)
{
	struct settings w = {.json = a->json, .table = {.columns = 3}};
	int status;

	if (a->json)
		json_open(answer(), "settings", '[');
	status = ipc_request(c, request, take_settings, &w);
	if (a->json)
		json_close(answer(), ']');
	else
		table_print(&w.table, stdout, 0);
	return status;
}

int settings_run(struct ipc *c, const struct args *a)
{
	Ddraid__Ctl__Set set = DDRAID__CTL__SET__INIT;
	Ddraid__Ctl__Get get = DDRAID__CTL__GET__INIT;
	Request request = REQUEST_INIT;
	char **word = a->word + !a->daemon;
	int count = a->count - !a->daemon;

	set.array = get.array = a->daemon ? (char *)"" : a->word[0];
	if (a->cmd == CMD_GET) {
		get.key = count ? word[0] : (char *)"";
		request.body_case = DDRAID__CTL__REQUEST__BODY_GET;
		request.get = &get;
		return settings_ask(c, a, &request);
	}
	/* KEY=VALUE or KEY VALUE */
	set.value = count == 2 ? word[1] : args_split(word[0]);
	set.key = word[0];
	request.body_case = DDRAID__CTL__REQUEST__BODY_SET;
	request.set = &set;
	return settings_ask(c, a, &request);
}

/* --- nodes, version --- */

static int take_nodes(void *arg, const Reply *reply)
{
	const struct args *a = arg;
	const Ddraid__Ctl__Nodes *n = reply->nodes;
	struct json *j;
	char cluster[128];

	if (reply->body_case != DDRAID__CTL__REPLY__BODY_NODES)
		return EXIT_OK;
	if (!a->json) {
		printf("%s: %s\n", text_clean(cluster, sizeof(cluster), n->cluster),
		       n->quorate ? "quorate" : "no quorum, arrays wait");
		show_nodes(n->node, n->n_node, false);
		return EXIT_OK;
	}
	j = answer();
	json_text_or_null(j, "cluster", n->cluster);
	json_bool(j, "quorate", n->quorate);
	json_open(j, "nodes", '[');
	for (size_t i = 0; i < n->n_node; i++)
		json_node(j, n->node[i]);
	json_close(j, ']');
	return EXIT_OK;
}

int nodes_run(struct ipc *c, const struct args *a)
{
	Ddraid__Ctl__NodesAsk ask = DDRAID__CTL__NODES_ASK__INIT;
	Request request = REQUEST_INIT;

	request.body_case = DDRAID__CTL__REQUEST__BODY_NODES;
	request.nodes = &ask;
	return ipc_request(c, &request, take_nodes, (void *)a);
}

static void version_print(const struct args *a, const Ddraid__Ctl__Version *v)
{
	struct json *j;
	char text[64], up[UNITS_TEXT_BYTES];

	if (!a->json) {
		printf("ddraidctl %s\n", PACKAGE_VERSION);
		if (v)
			printf("ddraidd   %s, node %u, process %u, up %s\n",
			       text_clean(text, sizeof(text), v->version), v->node, v->pid,
			       time_format(up, v->uptime_ms));
		return;
	}
	j = answer();
	json_text(j, "ddraidctl", PACKAGE_VERSION);
	if (v) {
		json_open(j, "ddraidd", '{');
		json_text(j, "version", v->version);
		json_number(j, "ctl_version", v->ctl_version);
		json_number(j, "ondisk_version", v->ondisk_version);
		json_number(j, "node", v->node);
		json_number(j, "uptime_ms", v->uptime_ms);
		json_number(j, "pid", v->pid);
		json_close(j, '}');
	} else {
		json_null(j, "ddraidd");
	}
}

static int take_version(void *arg, const Reply *reply)
{
	if (reply->body_case == DDRAID__CTL__REPLY__BODY_VERSION_IS)
		version_print(arg, reply->version_is);
	return EXIT_OK;
}

int version_run(struct ipc *c, const struct args *a)
{
	Ddraid__Ctl__VersionAsk ask = DDRAID__CTL__VERSION_ASK__INIT;
	Request request = REQUEST_INIT;

	if (!c) {
		version_print(a, NULL);
		return EXIT_UNREACHABLE;
	}
	request.body_case = DDRAID__CTL__REQUEST__BODY_VERSION_ASK;
	request.version_ask = &ask;
	return ipc_request(c, &request, take_version, (void *)a);
}
