/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * `status`: what ddraidd knows of its arrays, for people and as JSON. The first line of an array
 * says whether its users are served; when they aren't, the second says what they wait for.
 *
 *	exit status 0	all arrays serve and are whole
 *		    5	one is degraded
 *		    6	one does not serve (worse than 5)
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/units.h"
#include "daemon/core/format/superblock.h"
#include "tools/ctl/ctl.h"
#include "tools/ctl/json.h"
#include "tools/ctl/show.h"
#include "tools/ctl/table.h"

typedef Ddraid__Ctl__ArrayStatus Array;

struct show {
	bool as_json;
	unsigned arrays;
	int status;
};

static const char *array_state_name(Ddraid__Ctl__ArrayState s)
{
	switch (s) {
	case DDRAID__CTL__ARRAY_STATE__ARRAY_CONFIGURED:
		return "not started";
	case DDRAID__CTL__ARRAY_STATE__ARRAY_WAIT_QUORUM:
		return "waits for quorum";
	case DDRAID__CTL__ARRAY_STATE__ARRAY_JOINING:
		return "joining";
	case DDRAID__CTL__ARRAY_STATE__ARRAY_ACTIVE:
		return "active";
	case DDRAID__CTL__ARRAY_STATE__ARRAY_REMOVED:
		return "removed";
	case DDRAID__CTL__ARRAY_STATE__ARRAY_REFUSED:
		return "refused";
	case DDRAID__CTL__ARRAY_STATE__ARRAY_STOPPED:
		return "stopped";
	case DDRAID__CTL__ARRAY_STATE__ARRAY_OPENING:
		return "opening its members";
	default:
		return "in a state that this ddraidctl does not know";
	}
}

static const char *layout_name(uint32_t layout)
{
	return layout == GEO_ROTATE ? "rotate" : layout == GEO_DEDICATED ? "dedicated" : "unknown";
}

static const char *node_state_name(Ddraid__Ctl__NodeState s)
{
	switch (s) {
	case DDRAID__CTL__NODE_STATE__NODE_OFFLINE:
		return "offline";
	case DDRAID__CTL__NODE_STATE__NODE_ONLINE:
		return "online";
	case DDRAID__CTL__NODE_STATE__NODE_ACTIVE:
		return "active";
	case DDRAID__CTL__NODE_STATE__NODE_UNFENCED:
		return "not fenced";
	default:
		return "unknown";
	}
}

static int status_of(const Array *s)
{
	if (s->state != DDRAID__CTL__ARRAY_STATE__ARRAY_ACTIVE || !s->io_allowed)
		return EXIT_WAITS;
	return s->degraded ? EXIT_DEGRADED : EXIT_OK;
}

/* --- for people --- */

/* One line of an array: "  word        ...". printf's arguments; cleaned. */
__attribute__((format(printf, 2, 3))) static void line(const char *word, const char *format, ...)
{
	char text[TABLE_CELL_BYTES], clean[TABLE_CELL_BYTES], clean_word[32];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	printf("  %-10s  %s\n", text_clean(clean_word, sizeof(clean_word), word),
	       text_clean(clean, sizeof(clean), text));
}

static const char *node_name(const Array *s, uint32_t id)
{
	for (size_t i = 0; i < s->n_node; i++)
		if (s->node[i]->id == id)
			return s->node[i]->name;
	return "";
}

/* "node 3 (n3)" */
static char *node_words(char *text, size_t bytes, const Array *s, uint32_t id)
{
	const char *name = node_name(s, id);

	if (name[0])
		snprintf(text, bytes, "node %u (%s)", id, name);
	else
		snprintf(text, bytes, "node %u", id);
	return text;
}

/* ", node 3 (n3)", or "" */
static char *of_node(char *text, size_t bytes, const Array *s, uint32_t id)
{
	text[0] = '\0';
	if (id) {
		text[0] = ',';
		text[1] = ' ';
		node_words(text + 2, bytes - 2, s, id);
	}
	return text;
}

static void show_waits(const Array *s)
{
	bool refused = s->state == DDRAID__CTL__ARRAY_STATE__ARRAY_REFUSED;
	char time[UNITS_TEXT_BYTES], node[160];

	if (!s->waits[0])
		return;
	of_node(node, sizeof(node), s, s->waits_node);
	if (refused && !s->waits_ms) /* since when is not known */
		line("because", "%s%s", s->waits, node);
	else
		line(refused ? "because" : "waits for", "%s%s, %s", s->waits, node,
		     time_format(time, s->waits_ms));
}

static void show_geometry(const Array *s)
{
	const Ddraid__Ctl__Geometry *g = s->geometry;
	char size[UNITS_TEXT_BYTES], stripe[UNITS_TEXT_BYTES], band[UNITS_TEXT_BYTES];
	char region[UNITS_TEXT_BYTES], rotation[64] = "dedicated parity";

	if (!g)
		return;
	if (g->layout == GEO_ROTATE)
		snprintf(rotation, sizeof(rotation), "parity rotates by %s",
			 size_format(band, g->band_bytes));
	line("size", "%s (%" PRIu64 " bytes)", size_format(size, g->size_bytes), g->size_bytes);
	line("layout", "order %u: %u members for data, %u for parity; stripe %s, %s", g->order,
	     g->order < 32 ? 1u << g->order : 0, g->parity, size_format(stripe, g->stripe_bytes),
	     rotation);
	line("log", "%" PRIu64 " regions of %s, %u slots", g->regions,
	     size_format(region, g->region_bytes), g->slots);
}

/* What it waits for may be one of them. */
static void show_warnings(const Array *s)
{
	for (size_t i = 0; i < s->n_warning; i++)
		if (strcmp(s->warning[i], s->waits) != 0)
			line("WARNING", "%s", s->warning[i]);
}

static void show_cluster(const Array *s)
{
	char leader[160] = "no leader";

	if (s->leader)
		node_words(leader, sizeof(leader), s, s->leader);
	line("map", "epoch %" PRIu64 "%s, leader %s%s", s->epoch_num,
	     s->proposing ? ", a change is under way" : "", leader, s->leading ? ", this one" : "");
	if (s->missed_from)
		line("missed", "%" PRIu64 " regions, recorded since epoch %" PRIu64,
		     s->regions_missed, s->missed_from);
	line("nodes", "%u active, %u to be fenced, %u dead slots to be recovered", s->nodes,
	     s->unfenced, s->slots_unrecovered);
	if (s->lock_waits[0])
		line("locks", "%s, waits for: %s", s->lock_backend, s->lock_waits);
	else
		line("locks", "%s", s->lock_backend);
	line("fence", "%s", s->fence[0] ? s->fence : "not known");
}

static void show_regions(const Array *s)
{
	line("regions", "%" PRIu64 " marked by this node, %" PRIu64 " to resync", s->regions_dirty,
	     s->regions_to_resync);
	for (size_t i = 0; i < s->n_unsynced; i++)
		line("", "%" PRIu64 " to %" PRIu64, s->unsynced[i]->first,
		     s->unsynced[i]->first + s->unsynced[i]->count - 1);
}

static void show_traffic(const Array *s)
{
	const Ddraid__Ctl__Counters *c = s->counters;
	char read[UNITS_TEXT_BYTES], written[UNITS_TEXT_BYTES];

	line("requests", "%u of users, %u at members", s->ios, s->dev_ios);
	if (!c)
		return;
	line("users", "%" PRIu64 " reads, %s; %" PRIu64 " writes, %s", c->reads,
	     size_format(read, c->read_bytes), c->writes, size_format(written, c->write_bytes));
	line("counters",
	     "%" PRIu64 " marks, %" PRIu64 " clears, %" PRIu64 " log pages written, %" PRIu64
	     " lock requests, %" PRIu64 " stripes with parity fixed",
	     c->marks, c->clears, c->page_writes, c->lock_requests, c->parity_fixed);
}

static void show_progress(const Array *s)
{
	char done[UNITS_TEXT_BYTES], total[UNITS_TEXT_BYTES], left[UNITS_TEXT_BYTES];
	char node[160];

	for (size_t i = 0; i < s->n_progress; i++) {
		const Ddraid__Ctl__Progress *p = s->progress[i];
		uint64_t unit = p->unit_bytes, rest = p->total - p->done;
		uint64_t bytes;

		if (!p->total || p->done > p->total ||
		    __builtin_mul_overflow(p->total, unit, &bytes) || !unit)
			line("running", "%s: %" PRIu64 " of %" PRIu64 " %s", p->text, p->done,
			     p->total, p->unit);
		else if (p->rate && rest / p->rate < UINT64_MAX / 1000)
			line("running", "%s: %.1f %%, %s of %s, %s left", p->text,
			     100.0 * (double)p->done / (double)p->total,
			     size_format(done, p->done * unit), size_format(total, bytes),
			     time_format(left, rest / p->rate * 1000));
		else
			line("running", "%s: %.1f %%, %s of %s", p->text,
			     100.0 * (double)p->done / (double)p->total,
			     size_format(done, p->done * unit), size_format(total, bytes));
		if (p->waits[0])
			line("", "waits for %s%s, %s", p->waits,
			     of_node(node, sizeof(node), s, p->waits_node),
			     time_format(left, p->waits_ms));
	}
}

/* What is the matter with it now, or why it has left: "since 2026-11-30 14:02:11: its connection
 * broke off". */
static void member_why(char text[768], const Ddraid__Ctl__Member *m)
{
	time_t at = (time_t)(m->changed_at_ms / 1000);
	struct tm tm;
	char when[32];

	text[0] = '\0';
	if (m->error[0]) {
		snprintf(text, 768, "  %s", m->error);
	} else if (m->reason[0] && m->state != MEMBER_IN_SYNC && m->state != MEMBER_REBUILDING &&
		   localtime_r(&at, &tm)) {
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
		snprintf(text, 768, "  since %s: %s", when, m->reason);
	}
}

static void show_members(const Array *s)
{
	struct table t = {.columns = 6};
	char size[UNITS_TEXT_BYTES], down[UNITS_TEXT_BYTES], why[768];

	if (!s->n_member)
		return;
	putchar('\n');
	for (const char *const *h =
		 (const char *const[]){"MEMBER", "STATE", "REBUILT", "LINK", "SIZE", "URI", NULL};
	     *h; h++)
		table_cell(&t, "%s", *h);
	for (size_t i = 0; i < s->n_member; i++) {
		const Ddraid__Ctl__Member *m = s->member[i];

		table_cell(&t, "%u", m->index);
		table_cell(&t, "%s%s",
			   m->state <= UINT8_MAX ? member_state_name((uint8_t)m->state) : "?",
			   m->partial ? ", partial" : "");
		if (m->state == MEMBER_REBUILDING)
			table_cell(&t, "%u.%u %%", m->rebuilt_permille / 10,
				   m->rebuilt_permille % 10);
		else
			table_cell(&t, "-");
		if (m->connected)
			table_cell(&t, "up");
		else if (m->down_ms)
			table_cell(&t, "down %s", time_format(down, m->down_ms));
		else
			table_cell(&t, "down");
		table_cell(&t, "%s", m->size_bytes ? size_format(size, m->size_bytes) : "-");
		member_why(why, m);
		table_cell(&t, "%s%s", m->uri, why);
	}
	table_print(&t, stdout, 2);
}

void show_nodes(Ddraid__Ctl__Node *const *node, size_t count, bool with_slot)
{
	struct table t = {.columns = with_slot ? 5 : 4};
	char since[UNITS_TEXT_BYTES];

	if (!count)
		return;
	table_cell(&t, "NODE");
	table_cell(&t, "NAME");
	table_cell(&t, "STATE");
	if (with_slot)
		table_cell(&t, "SLOT");
	table_cell(&t, "%s", "");
	for (size_t i = 0; i < count; i++) {
		const Ddraid__Ctl__Node *n = node[i];

		table_cell(&t, "%u%s", n->id, n->self ? "*" : "");
		table_cell(&t, "%s", n->name[0] ? n->name : "-");
		if (n->since_ms)
			table_cell(&t, "%s, %s", node_state_name(n->state),
				   time_format(since, n->since_ms));
		else
			table_cell(&t, "%s", node_state_name(n->state));
		if (with_slot && n->slot)
			table_cell(&t, "%u", n->slot - 1);
		else if (with_slot)
			table_cell(&t, "-");
		table_cell(&t, "%s%s%s", n->leader ? "leader" : "",
			   n->leader && n->detail[0] ? ", " : "", n->detail);
	}
	table_print(&t, stdout, 2);
}

/* "0.25 s": how long after `from` it came to `to`; "-": it has not. */
static void cell_span(struct table *t, uint64_t from_ms, uint64_t to_ms)
{
	if (!from_ms || to_ms < from_ms)
		table_cell(t, "-");
	else
		table_cell(t, "%.2f s", (double)(to_ms - from_ms) / 1000);
}

static void recovery_row(struct table *t, const Ddraid__Ctl__Recovery *r)
{
	time_t lost = (time_t)(r->lost_at_ms / 1000);
	char when[64] = "-", bytes[UNITS_TEXT_BYTES];
	struct tm tm;

	if (lost && localtime_r(&lost, &tm))
		strftime(when, sizeof(when), "%F %T", &tm);
	table_cell(t, "%u", r->node);
	if (r->slot)
		table_cell(t, "%u", r->slot - 1);
	else
		table_cell(t, "-");
	table_cell(t, "%s", when);
	if (r->fenced_before && r->fenced_at_ms)
		table_cell(t, "before");
	else
		cell_span(t, r->lost_at_ms, r->fenced_at_ms);
	cell_span(t, r->lost_at_ms, r->read_at_ms);
	cell_span(t, r->lost_at_ms, r->done_at_ms);
	table_cell(t, "%" PRIu64, r->marked);
	table_cell(t, "%" PRIu64 " regions, %s", r->regions,
		   size_format(bytes, r->bytes + r->read_bytes));
}

static void show_recoveries(const Array *s)
{
	struct table t = {.columns = 8};

	if (!s->n_recovery)
		return;
	putchar('\n');
	for (const char *const *h =
		 (const char *const[]){"LOST NODE", "SLOT", "AT", "FENCED", "SLOT READ",
				       "RECOVERED", "MARKED", "RESYNCED HERE", NULL};
	     *h; h++)
		table_cell(&t, "%s", *h);
	for (size_t i = 0; i < s->n_recovery; i++)
		recovery_row(&t, s->recovery[i]);
	table_print(&t, stdout, 2);
}

static void show_device(const Ddraid__Ctl__FrontEnd *f)
{
	if (f->device[0])
		line(f->kind, "%s, %s, %u open%s, %u requests under way, %u waiting", f->address,
		     f->device, f->opens, f->opens == 1 ? "" : "s", f->inflight, f->waiting);
	else
		line(f->kind, "%s is not there%s%s", f->address, f->error[0] ? ": " : " yet",
		     f->error);
	if (!strcmp(f->away, "hold"))
		line("", "without ddraidd requests wait");
	else if (f->away[0])
		line("", "without ddraidd requests wait %s, then they fail (EIO)", f->away);
}

static void show_front_ends(const Array *s)
{
	struct table t = {.columns = 3};
	char since[UNITS_TEXT_BYTES];

	for (size_t i = 0; i < s->n_front_end; i++) {
		const Ddraid__Ctl__FrontEnd *f = s->front_end[i];

		printf("\n");
		if (strcmp(f->kind, "nbd")) {
			show_device(f);
			continue;
		}
		line(f->kind, "%s, %zu client%s", f->address, f->n_client,
		     f->n_client == 1 ? "" : "s");
		for (size_t k = 0; k < f->n_also; k++)
			line("", "%s", f->also[k]);
		for (size_t k = 0; k < f->n_client; k++) {
			table_cell(&t, "%s", f->client[k]->peer);
			table_cell(&t, "since %s", time_format(since, f->client[k]->since_ms));
			table_cell(&t, "%u requests", f->client[k]->ios);
		}
		table_print(&t, stdout, 14);
	}
}

static void show_array(const Array *s)
{
	char name[DDR_NAME_BYTES], uuid[UUID_TEXT_BYTES];

	printf("%s: %s%s%s\n", text_clean(name, sizeof(name), s->name), array_state_name(s->state),
	       s->degraded ? ", degraded" : "",
	       s->state != DDRAID__CTL__ARRAY_STATE__ARRAY_ACTIVE ? ""
	       : s->io_allowed                                    ? ", I/O is served"
								  : ", I/O is held");
	show_waits(s);
	show_progress(s);
	if (s->uuid.len == DDR_UUID_BYTES)
		line("UUID", "%s", uuid_format(uuid, s->uuid.data));
	show_geometry(s);
	if (s->geometry)
		show_cluster(s);
	show_warnings(s);
	if (s->geometry) {
		show_regions(s);
		show_traffic(s);
	}
	show_members(s);
	if (s->n_node) {
		putchar('\n');
		show_nodes(s->node, s->n_node, true);
	}
	show_recoveries(s);
	show_front_ends(s);
}

/* --- JSON --- */

static void json_waits(struct json *j, const char *what, uint32_t node, uint64_t ms)
{
	if (!what[0]) {
		json_null(j, "waits");
		return;
	}
	json_open(j, "waits", '{');
	json_text(j, "for", what);
	if (node)
		json_number(j, "node", node);
	else
		json_null(j, "node");
	json_number(j, "ms", ms);
	json_close(j, '}');
}

static void json_geometry(struct json *j, const Ddraid__Ctl__Geometry *g)
{
	if (!g) {
		json_null(j, "geometry");
		return;
	}
	json_open(j, "geometry", '{');
	json_number(j, "order", g->order);
	json_number(j, "parity", g->parity);
	json_text(j, "layout", layout_name(g->layout));
	json_number(j, "slots", g->slots);
	json_number(j, "stripe_bytes", g->stripe_bytes);
	json_number(j, "band_bytes", g->band_bytes);
	json_number(j, "region_bytes", g->region_bytes);
	json_number(j, "member_bytes", g->member_bytes);
	json_number(j, "size_bytes", g->size_bytes);
	json_number(j, "regions", g->regions);
	json_close(j, '}');
}

static void json_time(struct json *j, const char *key, uint64_t ms)
{
	time_t t = (time_t)(ms / 1000);
	char text[64], seconds[48];
	struct tm tm;

	if (!ms || !gmtime_r(&t, &tm)) {
		json_null(j, key);
		return;
	}
	strftime(seconds, sizeof(seconds), "%FT%T", &tm);
	snprintf(text, sizeof(text), "%s.%03uZ", seconds, (unsigned)(ms % 1000));
	json_text(j, key, text);
}

static void json_member(struct json *j, const Ddraid__Ctl__Member *m)
{
	json_open(j, NULL, '{');
	json_number(j, "index", m->index);
	json_uuid(j, "uuid", m->uuid.data, m->uuid.len);
	json_text(j, "uri", m->uri);
	json_text(j, "state", m->state <= UINT8_MAX ? member_state_name((uint8_t)m->state) : "?");
	json_bool(j, "partial", m->partial);
	json_bool(j, "connected", m->connected);
	json_number(j, "rebuilt_upto", m->rebuilt_upto);
	json_number(j, "rebuilt_permille", m->rebuilt_permille);
	json_number(j, "size_bytes", m->size_bytes);
	json_number(j, "down_ms", m->down_ms);
	json_text_or_null(j, "error", m->error);
	json_number(j, "left_epoch", m->left);
	json_text_or_null(j, "reason", m->reason);
	json_time(j, "changed_at", m->changed_at_ms);
	json_close(j, '}');
}

void json_node(struct json *j, const Ddraid__Ctl__Node *n)
{
	json_open(j, NULL, '{');
	json_number(j, "id", n->id);
	json_text_or_null(j, "name", n->name);
	json_text(j, "state", node_state_name(n->state));
	json_bool(j, "self", n->self);
	json_bool(j, "leader", n->leader);
	json_hex(j, "incarnation", n->inc);
	if (n->slot)
		json_number(j, "slot", n->slot - 1);
	else
		json_null(j, "slot");
	json_number(j, "since_ms", n->since_ms);
	json_text_or_null(j, "detail", n->detail);
	json_open(j, "arrays", '[');
	for (size_t i = 0; i < n->n_array; i++)
		json_text(j, NULL, n->array[i]);
	json_close(j, ']');
	json_close(j, '}');
}

static void json_progress(struct json *j, const Ddraid__Ctl__Progress *p)
{
	json_open(j, NULL, '{');
	json_text(j, "text", p->text);
	json_number(j, "done", p->done);
	json_number(j, "total", p->total);
	json_number(j, "rate", p->rate);
	json_text(j, "unit", p->unit);
	json_number(j, "unit_bytes", p->unit_bytes);
	json_waits(j, p->waits, p->waits_node, p->waits_ms);
	json_close(j, '}');
}

static void json_span(struct json *j, const char *key, uint64_t from_ms, uint64_t to_ms)
{
	if (!from_ms || to_ms < from_ms)
		json_null(j, key);
	else
		json_number(j, key, to_ms - from_ms);
}

static void json_recovery(struct json *j, const Ddraid__Ctl__Recovery *r)
{
	json_open(j, NULL, '{');
	json_number(j, "node", r->node);
	json_hex(j, "incarnation", r->inc);
	if (r->slot)
		json_number(j, "slot", r->slot - 1);
	else
		json_null(j, "slot");
	json_time(j, "lost_at", r->lost_at_ms);
	json_time(j, "fenced_at", r->fenced_at_ms);
	json_time(j, "slot_read_at", r->read_at_ms);
	json_time(j, "recovered_at", r->done_at_ms);
	json_span(j, "fence_ms", r->fenced_before ? 0 : r->lost_at_ms, r->fenced_at_ms);
	json_span(j, "slot_read_ms", r->fenced_at_ms, r->read_at_ms);
	json_span(j, "resync_ms", r->read_at_ms, r->done_at_ms);
	json_number(j, "regions_marked", r->marked);
	json_number(j, "regions_resynced_here", r->regions);
	json_number(j, "bytes_resynced_here", r->bytes);
	json_number(j, "bytes_resynced_for_reads_here", r->read_bytes);
	json_close(j, '}');
}

static void json_front_end(struct json *j, const Ddraid__Ctl__FrontEnd *f)
{
	json_open(j, NULL, '{');
	json_text(j, "kind", f->kind);
	json_text(j, "address", f->address);
	json_open(j, "also", '[');
	for (size_t i = 0; i < f->n_also; i++)
		json_text(j, NULL, f->also[i]);
	json_close(j, ']');
	json_open(j, "clients", '[');
	for (size_t i = 0; i < f->n_client; i++) {
		json_open(j, NULL, '{');
		json_text(j, "peer", f->client[i]->peer);
		json_number(j, "since_ms", f->client[i]->since_ms);
		json_number(j, "requests", f->client[i]->ios);
		json_close(j, '}');
	}
	json_close(j, ']');
	if (strcmp(f->kind, "nbd")) {
		json_text_or_null(j, "device", f->device);
		json_text_or_null(j, "error", f->error);
		json_text_or_null(j, "away", f->away);
		json_number(j, "opens", f->opens);
		json_number(j, "requests_under_way", f->inflight);
		json_number(j, "requests_waiting", f->waiting);
	}
	json_close(j, '}');
}

static void json_counters(struct json *j, const Array *s)
{
	static const Ddraid__Ctl__Counters none = DDRAID__CTL__COUNTERS__INIT;
	const Ddraid__Ctl__Counters *c = s->counters ? s->counters : &none;

	json_open(j, "counters", '{');
	json_number(j, "marks", c->marks);
	json_number(j, "clears", c->clears);
	json_number(j, "page_writes", c->page_writes);
	json_number(j, "lock_requests", c->lock_requests);
	json_number(j, "parity_fixed", c->parity_fixed);
	json_number(j, "reads", c->reads);
	json_number(j, "writes", c->writes);
	json_number(j, "read_bytes", c->read_bytes);
	json_number(j, "write_bytes", c->write_bytes);
	json_number(j, "resync_bytes", c->resync_bytes);
	json_number(j, "read_resync_bytes", c->read_resync_bytes);
	json_number(j, "unreadable_reads", c->unreadable_reads);
	json_close(j, '}');
}

static void json_state(struct json *j, const Array *s)
{
	json_text(j, "name", s->name);
	json_uuid(j, "uuid", s->uuid.data, s->uuid.len);
	json_text(j, "state", array_state_name(s->state));
	json_bool(j, "io_allowed", s->io_allowed);
	json_bool(j, "degraded", s->degraded);
	json_waits(j, s->waits, s->waits_node, s->waits_ms);
	json_number(j, "leader", s->leader);
	json_bool(j, "leading", s->leading);
	json_hex(j, "incarnation", s->incarnation);
	json_open(j, "epoch", '{');
	json_number(j, "number", s->epoch_num);
	json_hex(j, "incarnation", s->epoch_inc);
	json_close(j, '}');
	json_bool(j, "proposing", s->proposing);
	json_number(j, "missed_from", s->missed_from);
	json_geometry(j, s->geometry);
	json_number(j, "nodes_active", s->nodes);
	json_number(j, "nodes_unfenced", s->unfenced);
	json_number(j, "slots_unrecovered", s->slots_unrecovered);
	if (s->slot)
		json_number(j, "slot", s->slot - 1);
	else
		json_null(j, "slot");
	json_number(j, "regions_dirty", s->regions_dirty);
	json_number(j, "regions_missed", s->regions_missed);
	json_number(j, "regions_to_resync", s->regions_to_resync);
	json_number(j, "rebuild_done", s->rebuild_done);
	json_number(j, "rebuild_total", s->rebuild_total);
	json_number(j, "requests", s->ios);
	json_number(j, "member_requests", s->dev_ios);
	json_text_or_null(j, "lock_backend", s->lock_backend);
	json_text_or_null(j, "lock_waits", s->lock_waits);
	json_text_or_null(j, "fence", s->fence);
}

static void json_array(struct json *j, const Array *s, bool ranges)
{
	json_open(j, NULL, '{');
	json_state(j, s);
	json_counters(j, s);
	json_open(j, "warnings", '[');
	for (size_t i = 0; i < s->n_warning; i++)
		json_text(j, NULL, s->warning[i]);
	json_close(j, ']');
	json_open(j, "progress", '[');
	for (size_t i = 0; i < s->n_progress; i++)
		json_progress(j, s->progress[i]);
	json_close(j, ']');
	json_open(j, "members", '[');
	for (size_t i = 0; i < s->n_member; i++)
		json_member(j, s->member[i]);
	json_close(j, ']');
	json_open(j, "nodes", '[');
	for (size_t i = 0; i < s->n_node; i++)
		json_node(j, s->node[i]);
	json_close(j, ']');
	json_open(j, "recoveries", '[');
	for (size_t i = 0; i < s->n_recovery; i++)
		json_recovery(j, s->recovery[i]);
	json_close(j, ']');
	json_open(j, "front_ends", '[');
	for (size_t i = 0; i < s->n_front_end; i++)
		json_front_end(j, s->front_end[i]);
	json_close(j, ']');
	if (ranges) {
		json_open(j, "unsynced", '[');
		for (size_t i = 0; i < s->n_unsynced; i++) {
			json_open(j, NULL, '{');
			json_number(j, "first", s->unsynced[i]->first);
			json_number(j, "count", s->unsynced[i]->count);
			json_close(j, '}');
		}
		json_close(j, ']');
	}
	json_close(j, '}');
}

/* --- the command --- */

struct taker {
	struct show show;
	bool ranges;
};

static int take(void *arg, const Reply *reply)
{
	struct taker *t = arg;
	struct show *w = &t->show;
	int status;

	if (reply->body_case != DDRAID__CTL__REPLY__BODY_STATUS)
		return EXIT_OK;
	status = status_of(reply->status);
	if (status > w->status)
		w->status = status;
	if (w->as_json) {
		json_array(answer(), reply->status, t->ranges);
	} else {
		if (w->arrays)
			putchar('\n');
		show_array(reply->status);
	}
	w->arrays++;
	return EXIT_OK;
}

int status_run(struct ipc *c, const struct args *a)
{
	Ddraid__Ctl__StatusAsk ask = DDRAID__CTL__STATUS_ASK__INIT;
	struct taker t = {.show = {.as_json = a->json}, .ranges = a->ranges};
	Request request = REQUEST_INIT;
	int status;

	if (a->wait) {
		status = watch(c, a->word[0], DDRAID__CTL__UNTIL__UNTIL_SYNCED);
		if (status)
			return status;
	}
	ask.array = a->count ? a->word[0] : (char *)"";
	ask.ranges = a->ranges;
	request.body_case = DDRAID__CTL__REQUEST__BODY_STATUS;
	request.status = &ask;
	if (a->json)
		json_open(answer(), "arrays", '[');
	status = ipc_request(c, &request, take, &t);
	if (a->json)
		json_close(answer(), ']');
	else if (!status && !t.show.arrays)
		printf("no arrays are known here; 'ddraidctl create' makes one, 'ddraidctl import' "
		       "brings one back by its members\n");
	return status ? status : t.show.status;
}
