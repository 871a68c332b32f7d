/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A configuration that is wrong says in which line, and what is wrong there. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/state/config.h"
#include "tests/lib/test.h"

static struct config conf;
static char why[CONFIG_WHY_BYTES];

static int load(const char *text, size_t bytes)
{
	char path[] = "/tmp/ddraid-config-XXXXXX";
	int fd = mkstemp(path), err;

	CHECK(fd >= 0);
	CHECK(write(fd, text, bytes) == (ssize_t)bytes);
	close(fd);
	config_init(&conf);
	why[0] = '\0';
	err = config_load(&conf, path, why);
	unlink(path);
	return err;
}

static void refused_bytes(const char *text, size_t bytes, const char *says)
{
	CHECK_MSG(load(text, bytes) < 0, "%s was taken", text);
	CHECK_MSG(strstr(why, says), "\"%s\" does not say \"%s\"", why, says);
}

#define REFUSED(text, says) refused_bytes(text, sizeof(text) - 1, says)
#define TAKEN(text) CHECK_MSG(load(text, sizeof(text) - 1) == 0, "%s", why)

TEST(what_is_right_is_taken)
{
	TAKEN("");
	TAKEN("# nothing\n\n");
	TAKEN("[cluster]\ncluster = alone # here\nevict=5s\n[daemon]\nlog_level = debug");
	CHECK_EQ_U64(conf.evict_ms, 5000);
	CHECK(!strcmp(conf.cluster, "alone"));
	TAKEN("[members]\nzombie_timeout = 1s\n[fence]\nzombie_timeout = 20s\n");
	CHECK_EQ_U64(conf.zombie_timeout_ms, 20000);
	TAKEN("[members]\nrequest_timeout = 1s\n[fence]\nzombie_timeout = 2s\n");
	TAKEN("[cluster]\r\nevict = 2min\r\n");
	CHECK_EQ_U64(conf.evict_ms, 120000);
}

TEST(each_setting_knows_where_it_comes_from)
{
	char name[64], value[CONFIG_PATH_BYTES];
	const char *origin, *want;
	uint32_t i;

	TAKEN("[cluster]\nevict = 4s\n[members]\nzombie_timeout = 1s\n[daemon]\nrun_dir = /x\n");
	config_overruled(&conf, "run_dir", CONFIG_ARGUMENT);
	config_overruled(&conf, "state_dir", CONFIG_ENVIRONMENT);
	for (i = 0; config_get(&conf, i, name, value, &origin); i++) {
		want = "default";
		if (!strcmp(name, "cluster.evict") || !strcmp(name, "members.zombie_timeout"))
			want = "ddraid.conf";
		else if (!strcmp(name, "daemon.run_dir"))
			want = "command line";
		else if (!strcmp(name, "daemon.state_dir"))
			want = "environment";
		CHECK_MSG(!strcmp(origin, want), "%s: %s", name, origin);
	}
	CHECK(i > 10);
}

TEST(what_is_wrong_says_where)
{
	REFUSED("[daemon]\n[nothing]\n", ":2: there is no section [nothing]");
	REFUSED("[daemon]\n\nnothing = 1\n", ":3: there is no key nothing");
	REFUSED("evict = 4s\n", ":1: evict belongs into section [cluster]");
	REFUSED("[cluster]\nevict = fast\n", ":2: evict = fast");
	REFUSED("[cluster]\nevict =\n", ":2: evict =");
	REFUSED("[cluster]\nevict", ":2: write `key = value`");
	REFUSED("[cluster]\nevict = 4s\nevict = 5s\n", ":3: evict was set in line 2 already");
	REFUSED("[daemon]\nipc_name = a b\n", ":2: ipc_name = a b can't be used");
	REFUSED("[daemon]\nsocket_group = no.such\n", ":2: socket_group = no.such is no group of");
	REFUSED("[daemon]\nsocket_group =\n", ":2: socket_group wants 1 to");
	REFUSED("[daemon]\n\nsocket_mode = 0770\n", ":3: socket_mode = 0770 can't be used: write");
	REFUSED("[daemon]\nsocket_mode = 640\n", ":2: socket_mode = 640 can't be used");
	REFUSED("[daemon]\nsocket_mode = 060\n", ":2: socket_mode = 060 can't be used");
	REFUSED("[daemon]\nsocket_mode = 0660x\n", ":2: socket_mode = 0660x can't be used");
	REFUSED("[daemon]\nsocket_mode = 4660\n", ":2: socket_mode = 4660 can't be used");
	REFUSED("[daemon]\nsocket_mode = 432\n", ":2: socket_mode = 432 can't be used");
	REFUSED("[daemon\n", ":1: a section is [name]");
	REFUSED("[fence]\nzombie_timeout = 2s\n", "is not longer than request_timeout");
	REFUSED("[members]\nrequest_timeout = 0\n", "is not longer than request_timeout");
}

TEST(who_may_open_the_sockets_of_arrays)
{
	TAKEN("");
	CHECK(conf.socket_gid == (gid_t)-1);
	CHECK_EQ_INT(conf.socket_mode, 0660);
	TAKEN("[daemon]\nsocket_group = root\nsocket_mode = 600\n");
	CHECK_EQ_INT(conf.socket_gid, 0);
	CHECK_EQ_INT(conf.socket_mode, 0600);
	TAKEN("[daemon]\nsocket_group = 4711\nsocket_mode = 0666\n");
	CHECK_EQ_INT(conf.socket_gid, 4711);
	CHECK_EQ_INT(conf.socket_mode, 0666);
}

TEST(a_line_has_a_limit)
{
	char text[2000];

	memset(text, '#', sizeof(text));
	text[1023] = '\n';
	CHECK_MSG(load(text, 1024) == 0, "%s", why);
	text[1023] = '#';
	refused_bytes(text, sizeof(text), ":1: the line is longer than 1023 characters");
}

TEST(what_is_not_text_is_refused)
{
	REFUSED("[cluster]\nevict = 4s\0 and more\n", ":2: there is a NUL byte");
	REFUSED("[cluster]\n\0evict", ":2: there is a NUL byte");
	config_init(&conf);
	CHECK_EQ_INT(config_load(&conf, "/tmp", why), -ENOSTR);
	CHECK_MSG(strstr(why, "/tmp can't be read: it is no file"), "%s", why);
}

/* Whoever reads from one waits for a writer. */
TEST(a_fifo_is_refused)
{
	char path[] = "/tmp/ddraid-config-XXXXXX", fifo[64];

	CHECK(mkdtemp(path));
	snprintf(fifo, sizeof(fifo), "%s/fifo", path);
	CHECK(!mkfifo(fifo, 0600));
	config_init(&conf);
	CHECK_EQ_INT(config_load(&conf, fifo, why), -ENOSTR);
	CHECK_MSG(strstr(why, "it is no file"), "%s", why);
	unlink(fifo);
	rmdir(path);
}

TEST(a_file_that_is_not_there_is_told_apart)
{
	config_init(&conf);
	CHECK_EQ_INT(config_load(&conf, "/nonexistent/ddraid.conf", why), -ENOENT);
}

TEST(how_long_until_all_know_goes_by_the_limit)
{
	TAKEN("[cluster]\nevict = 5s");
	CHECK_EQ_U64(config_limit_ms(&conf), 2500);
	CHECK_EQ_U64(config_heard_ms(&conf), 5000);
	TAKEN("[cluster]\nheartbeat_limit = 700ms");
	CHECK_EQ_U64(config_limit_ms(&conf), 700);
	CHECK_EQ_U64(config_heard_ms(&conf), 1400);
	TAKEN("[cluster]\ncluster = alone");
	CHECK_EQ_U64(config_heard_ms(&conf), 0);
}
