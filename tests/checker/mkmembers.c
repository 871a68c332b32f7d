/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Makes the member images of an array with random data, by the core's own codecs and planners,
 * for test-check-members.sh.
 *
 *	mkmembers DIR [order=2] [layout=0] [stripe=4096] [band=65536] [region=1048576]
 *		[member_mib=4] [slots=4] [seed=1] [epoch=7] [array=0xdd] [ids=0x10]
 *		[state=INDEX:STATE[:REBUILT_UPTO]]... [dirty=SLOT:REGION]... [missed=SLOT:REGION]...
 *		[zero=1] [cluster=NAME] [past=EPOCH:INCARNATION]... [used=NODE:AT_SECONDS]
 *		[claimed=1] [log_pages=N] [journal=BYTES] [data_offset=BYTES] [dead=SLOT:NUMBER]
 *		[incompat=BITS]
 *
 * log_pages, journal and data_offset come instead of what create chooses. dead=: the number of R22,
 * in that slot's page 0.
 *
 * DIR/m0, m1, ... are the members, DIR/user is the user data. zero=1 leaves the data zero (and
 * the files sparse).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/core/data/plan.h"
#include "daemon/core/format/choose.h"
#include "daemon/core/format/claim.h"
#include "daemon/core/format/codec.h"
#include "daemon/core/format/logpage.h"
#include "daemon/core/format/superblock.h"
#include "daemon/core/format/useblock.h"
#include "tests/unit/sweep.h"

#define MAX_MARKS 64

struct mark {
	bool missed;
	uint32_t slot;
	uint64_t region;
};

struct maker {
	const char *dir;
	uint8_t ids; /* the members' UUIDs start here */
	struct superblock sb;
	struct geo g;
	struct prng prng;
	struct useblock use; /* node 0: none */
	struct mark mark[MAX_MARKS];
	unsigned marks;
	bool zero, claimed; /* by a create that was cut off */
	uint64_t incompat;
	struct geo_params other; /* log_pages, journal_bytes, data_offset, if not 0 */
	uint64_t dead[DDR_MAX_SLOTS + 1];
	int member[DDR_MAX_MEMBERS], user;
};

_Noreturn static void die(const char *what)
{
	fprintf(stderr, "mkmembers: %s: %s\n", what, errno ? strerror(errno) : "wrong");
	exit(1);
}

static void put(int fd, const void *data, size_t bytes, uint64_t offset)
{
	if (pwrite(fd, data, bytes, (off_t)offset) != (ssize_t)bytes)
		die("write");
}

static int create(const struct maker *m, const char *name, uint64_t bytes)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", m->dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		die(path);
	return fd;
}

static void set_state(struct maker *m, char *value)
{
	unsigned long index = strtoul(value, &value, 0);
	struct map_member *mm = &m->sb.map.member[index];

	if (index >= DDR_MAX_MEMBERS || *value != ':')
		die("state");
	mm->state = (uint8_t)strtoul(value + 1, &value, 0);
	if (*value == ':')
		mm->rebuilt_upto = strtoull(value + 1, NULL, 0);
}

static void add_mark(struct maker *m, bool missed, char *value)
{
	struct mark *k = &m->mark[m->marks++];

	if (m->marks > MAX_MARKS)
		die("too many marks");
	k->missed = missed;
	k->slot = (uint32_t)strtoul(value, &value, 0);
	if (*value != ':')
		die("mark");
	k->region = strtoull(value + 1, NULL, 0);
}

static void set_dead(struct maker *m, char *value)
{
	unsigned long slot = strtoul(value, &value, 0);

	if (slot > DDR_MAX_SLOTS || *value != ':')
		die("dead");
	m->dead[slot] = strtoull(value + 1, NULL, 0);
}

static void set_used(struct maker *m, char *value)
{
	m->use = (struct useblock){
	    .claim = 1, .seq = 2, .inc = 70, .patience_ms = 5000, .process.pid = 123, .host = "h1"};
	m->use.node = (uint32_t)strtoul(value, &value, 0);
	if (*value != ':')
		die("used");
	m->use.at_s = strtoull(value + 1, NULL, 0);
}

static void add_past(struct maker *m, char *value)
{
	struct epoch ep = {.num = strtoull(value, &value, 0)};

	if (*value != ':')
		die("past");
	ep.inc = strtoull(value + 1, NULL, 0);
	lineage_add(&m->sb.past, &ep);
}

static void set_cluster(struct maker *m, const char *value)
{
	m->sb.clustered = true;
	snprintf(m->sb.cluster, sizeof(m->sb.cluster), "%s", value);
}

static void option(struct maker *m, char *text)
{
	char *value = strchr(text, '=');
	uint64_t number;

	if (!value)
		die(text);
	*value++ = 0;
	number = strtoull(value, NULL, 0);
	if (strcmp(text, "order") == 0)
		m->sb.geo.order = (uint8_t)number;
	else if (strcmp(text, "layout") == 0)
		m->sb.geo.layout = (uint8_t)number;
	else if (strcmp(text, "stripe") == 0)
		m->sb.geo.stripe_bytes = (uint32_t)number;
	else if (strcmp(text, "band") == 0)
		m->sb.geo.band_bytes = (uint32_t)number;
	else if (strcmp(text, "region") == 0)
		m->sb.geo.region_bytes = (uint32_t)number;
	else if (strcmp(text, "member_mib") == 0)
		m->sb.geo.member_bytes = number << 20;
	else if (strcmp(text, "slots") == 0)
		m->sb.geo.slots = (uint8_t)number;
	else if (strcmp(text, "seed") == 0)
		m->prng.state = number;
	else if (strcmp(text, "epoch") == 0)
		m->sb.map.epoch.num = m->sb.committed.num = number;
	else if (strcmp(text, "array") == 0)
		memset(m->sb.array_uuid, (int)number, DDR_UUID_BYTES);
	else if (strcmp(text, "ids") == 0)
		m->ids = (uint8_t)number;
	else if (strcmp(text, "zero") == 0)
		m->zero = number;
	else if (strcmp(text, "cluster") == 0)
		set_cluster(m, value);
	else if (strcmp(text, "claimed") == 0)
		m->claimed = number;
	else if (strcmp(text, "used") == 0)
		set_used(m, value);
	else if (strcmp(text, "past") == 0)
		add_past(m, value);
	else if (strcmp(text, "log_pages") == 0)
		m->other.log_pages = (uint32_t)number;
	else if (strcmp(text, "journal") == 0)
		m->other.journal_bytes = number;
	else if (strcmp(text, "data_offset") == 0)
		m->other.data_offset = number;
	else if (strcmp(text, "incompat") == 0)
		m->incompat = number;
	else if (strcmp(text, "dead") == 0)
		set_dead(m, value);
	else if (strcmp(text, "state") == 0)
		set_state(m, value);
	else if (strcmp(text, "dirty") == 0 || strcmp(text, "missed") == 0)
		add_mark(m, *text == 'm', value);
	else
		die(text);
}

static void write_superblocks(struct maker *m)
{
	uint8_t block[DDR_BLOCK_BYTES];

	m->sb.map.n = m->g.n;
	for (uint8_t i = 0; i < m->g.n; i++)
		memset(m->sb.map.member[i].uuid, m->ids + i, DDR_UUID_BYTES);
	for (uint8_t i = 0; i < m->g.n; i++) {
		m->sb.index = i;
		memcpy(m->sb.member_uuid, m->sb.map.member[i].uuid, DDR_UUID_BYTES);
		/* An older copy beside the newest, as the engine leaves them. */
		for (m->sb.seq = 4; m->sb.seq <= 5; m->sb.seq++) {
			m->sb.place = (uint8_t)(1 + (m->sb.seq & 1));
			sb_encode(&m->sb, block);
			put_le64(block + 32, m->incompat);
			block_seal(block);
			put(m->member[i], block, sizeof(block), geo_sb_offset(m->sb.seq & 1));
		}
	}
}

static void write_claims(struct maker *m)
{
	struct claim claim = {.name = "claimed"};
	uint8_t block[DDR_BLOCK_BYTES];

	for (uint8_t i = 0; i < m->g.n && m->claimed; i++) {
		memcpy(claim.array_uuid, m->sb.array_uuid, DDR_UUID_BYTES);
		claim.index = i;
		claim_encode(&claim, block);
		for (uint32_t c = 0; c < SB_COPIES; c++)
			put(m->member[i], block, sizeof(block), geo_sb_offset(c));
	}
}

static void write_use(struct maker *m)
{
	uint8_t block[DDR_BLOCK_BYTES];

	if (!m->use.node)
		return;
	memcpy(m->use.array_uuid, m->sb.array_uuid, DDR_UUID_BYTES);
	memcpy(m->use.cluster, m->sb.cluster, DDR_NAME_BYTES);
	useblock_encode(&m->use, block);
	for (uint8_t i = 0; i < m->g.n; i++)
		put(m->member[i], block, sizeof(block), USE_OFFSET);
}

/* Each page twice: an older one that has every bit, and the newest with the bits asked for. */
static void write_log(struct maker *m, uint32_t slot, uint32_t page)
{
	uint8_t block[DDR_BLOCK_BYTES];
	struct logpage lp = {.slot = (uint16_t)slot, .page = (uint16_t)page, .seq = 8};

	memcpy(lp.array_uuid, m->sb.array_uuid, DDR_UUID_BYTES);
	lp.owner_node = slot + 1;
	lp.owner_inc = 0xabc000 + slot;
	lp.dead_below = page ? 0 : m->dead[slot];
	memset(lp.dirty, 0xff, sizeof(lp.dirty));
	logpage_encode(&lp, block);
	for (uint8_t i = 0; i < m->g.n; i++)
		put(m->member[i], block, sizeof(block), geo_log_offset(&m->g, slot, page, 0));
	lp.seq = 9;
	memset(lp.dirty, 0, sizeof(lp.dirty));
	for (unsigned i = 0; i < m->marks; i++)
		if (m->mark[i].slot == slot && m->mark[i].region / LOG_REGIONS_PER_PAGE == page)
			bit_set(m->mark[i].missed ? lp.missed : lp.dirty,
				(uint32_t)(m->mark[i].region % LOG_REGIONS_PER_PAGE));
	logpage_encode(&lp, block);
	/* The newest on two members only: that is what makes it durable. */
	for (uint8_t i = 0; i < 2; i++)
		put(m->member[i], block, sizeof(block), geo_log_offset(&m->g, slot, page, 1));
}

static void write_data(struct maker *m)
{
	const uint32_t step = DDR_MAX_IO_BYTES / m->g.p.stripe_bytes;
	uint8_t *data = aligned_alloc(4096, DDR_MAX_IO_BYTES);
	uint8_t *parity = aligned_alloc(4096, DDR_MAX_IO_BYTES);
	struct plan p = {.req_cap = plan_max_reqs(&m->g, step),
			 .iov_cap = plan_max_iovs(&m->g, step)};

	p.req = calloc(p.req_cap, sizeof(*p.req));
	p.iov = calloc(p.iov_cap, sizeof(*p.iov));
	if (!data || !parity || !p.req || !p.iov)
		die("memory");
	for (uint64_t s = 0; s < m->g.stripes; s += step) {
		uint32_t count = m->g.stripes - s < step ? (uint32_t)(m->g.stripes - s) : step;

		prng_fill(&m->prng, data, (size_t)count * m->g.p.stripe_bytes);
		put(m->user, data, (size_t)count * m->g.p.stripe_bytes, s * m->g.p.stripe_bytes);
		plan_write(&m->g, s, count, data, parity, (1u << m->g.n) - 1, &p);
		for (uint32_t i = 0; i < p.req_count; i++) {
			uint64_t at = p.req[i].offset;

			for (uint32_t v = 0; v < p.req[i].iov_count; v++) {
				const struct iovec *io = &p.iov[p.req[i].iov_first + v];

				put(m->member[p.req[i].member], io->iov_base, io->iov_len, at);
				at += io->iov_len;
			}
		}
	}
	free(p.req);
	free(p.iov);
	free(data);
	free(parity);
}

static void make_geometry(struct maker *m)
{
	struct geo_params *p = &m->sb.geo;
	char why[FORMAT_WHY_BYTES];

	if (geo_choose(&m->g, p, why))
		die(why);
	if (m->other.log_pages)
		p->log_pages = m->other.log_pages;
	if (m->other.journal_bytes)
		p->journal_bytes = m->other.journal_bytes;
	if (m->other.data_offset)
		p->data_offset = m->other.data_offset;
	if (geo_init(&m->g, p, why))
		die(why);
}

int main(int argc, char **argv)
{
	struct maker m = {.ids = 0x10, .prng = {1}};
	char name[16];

	if (argc < 2)
		die("usage: mkmembers DIR [option=value]...");
	m.dir = argv[1];
	m.sb.geo = (struct geo_params){.order = 2,
				       .m = 1,
				       .slots = 4,
				       .stripe_bytes = 4096,
				       .band_bytes = 65536,
				       .region_bytes = 1 << 20,
				       .member_bytes = 4 << 20};
	memset(m.sb.array_uuid, 0xdd, DDR_UUID_BYTES);
	strcpy(m.sb.name, "checked");
	m.sb.map.epoch = m.sb.committed = (struct epoch){7, 70};
	for (unsigned i = 0; i < DDR_MAX_MEMBERS; i++)
		m.sb.map.member[i].state = MEMBER_IN_SYNC;
	for (int i = 2; i < argc; i++)
		option(&m, argv[i]);
	make_geometry(&m);
	for (uint8_t i = 0; i < m.g.n; i++) {
		snprintf(name, sizeof(name), "m%u", i);
		m.member[i] = create(&m, name, m.sb.geo.member_bytes);
	}
	m.user = create(&m, "user", m.g.size_bytes);
	write_superblocks(&m);
	write_use(&m);
	write_claims(&m);
	for (uint32_t slot = 0; slot <= m.g.p.slots; slot++)
		for (uint32_t page = 0; page < m.g.log_pages; page++)
			write_log(&m, slot, page);
	if (!m.zero)
		write_data(&m);
	return 0;
}
