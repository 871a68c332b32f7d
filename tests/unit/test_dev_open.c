// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Who has a block device open: every way to have it is found. On a loop device, so as root; what
 * this machine has no loop devices for is skipped.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/adapters/front/dev_open.h"
#include "tests/lib/test.h"

#define WAIT_MS 10000u

static char device[64], second[64];

/* The first line that a command prints; false: it failed. */
static bool says(char *line, int bytes, const char *command)
{
	FILE *p = popen(command, "r");
	bool got = p && fgets(line, bytes, p);

	if (p && pclose(p))
		got = false;
	line[got ? strcspn(line, "\n") : 0] = '\0';
	return got;
}

/* Soon: udev may look at a new device, and a namespace goes a little later than its last process.
 */
static void nobody(void)
{
	for (int i = 0; i < 500 && dev_open_look(device, WAIT_MS); i++)
		usleep(10000);
	CHECK_EQ_INT(dev_open_look(device, WAIT_MS), 0);
}

static void begin(void)
{
	if (getuid() || !says(device, sizeof(device),
			      "f=$(mktemp /tmp/ddraid-open-XXXXXX) && truncate -s 8M $f && "
			      "losetup -f --show $f 2>/dev/null; s=$?; rm -f $f; exit $s"))
		SKIP("no loop devices here");
	nobody();
}

static void end(void)
{
	char command[128];

	nobody();
	snprintf(command, sizeof(command), "losetup -d %s", device);
	CHECK(system(command) == 0);
}

/* A process that does this and waits; it is there when this returns. */
static pid_t child(void (*does)(void))
{
	int ready[2];
	pid_t pid;
	char c;

	CHECK(pipe(ready) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		does();
		_exit(write(ready[1], "x", 1) == 1 && pause() ? 1 : 0);
	}
	close(ready[1]);
	CHECK(read(ready[0], &c, 1) == 1);
	close(ready[0]);
	return pid;
}

static void child_end(pid_t pid)
{
	kill(pid, SIGKILL);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

static void opens(void)
{
	if (open(device, O_RDONLY) < 0)
		_exit(1);
}

TEST(a_process_that_has_it_open_is_found)
{
	pid_t pid;

	begin();
	pid = child(opens);
	CHECK_EQ_INT(dev_open_look(device, WAIT_MS), -EBUSY);
	child_end(pid);
	end();
}

static void counts(struct dev_count *c, uint32_t n)
{
	for (int i = 0; i < 1000 && dev_count_get(c) != n; i++)
		usleep(10000);
	CHECK_EQ_U64(dev_count_get(c), n);
}

TEST(mounts_are_counted_and_nobody_waits_for_it)
{
	char at[] = "/tmp/ddraid-open-XXXXXX", command[128];
	struct dev_count *c;

	begin();
	snprintf(command, sizeof(command), "mkfs.ext4 -q %s >/dev/null 2>&1", device);
	if (system(command))
		SKIP("no ext4 here");
	CHECK(mkdtemp(at) && !unshare(CLONE_NEWNS));
	CHECK(!mount("", "/", "", MS_REC | MS_PRIVATE, ""));
	c = dev_count_new(device);
	CHECK(c && !mount(device, at, "ext4", 0, ""));
	CHECK_EQ_U64(dev_count_get(c), 0); /* a thread is about it */
	counts(c, 1);
	CHECK(!umount(at));
	counts(c, 0);
	dev_count_free(c);
	c = dev_count_new(device);
	dev_count_get(c);
	dev_count_free(c); /* while it is counted */
	rmdir(at);
	end();
}

static void opens_another_name(void)
{
	struct stat st;

	if (stat(device, &st) || unshare(CLONE_NEWNS) ||
	    mount("", "/", "", MS_REC | MS_PRIVATE, "") ||
	    mknod("/dev/ddraid-test-node", S_IFBLK | 0600, st.st_rdev) ||
	    open("/dev/ddraid-test-node", O_RDONLY) < 0)
		_exit(1);
	unlink("/dev/ddraid-test-node");
}

TEST(a_node_of_another_name_is_the_same_device)
{
	pid_t pid;

	begin();
	pid = child(opens_another_name);
	CHECK_EQ_INT(dev_open_look(device, WAIT_MS), -EBUSY);
	child_end(pid);
	end();
}

static void maps(void)
{
	int fd = open(device, O_RDONLY);

	if (fd < 0 || mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
		_exit(1);
	close(fd);
}

TEST(a_mapping_whose_descriptor_is_closed_is_found)
{
	pid_t pid;

	begin();
	pid = child(maps);
	CHECK_EQ_INT(dev_open_look(device, WAIT_MS), -EBUSY);
	child_end(pid);
	end();
}

/* As a file system does, or a journal on a device of its own; in any namespace. The descriptor is
 * in no table of a process. */
static void claims(void)
{
	if (unshare(CLONE_NEWNS) || mount("", "/", "", MS_REC | MS_PRIVATE, "") ||
	    mount(device, "/mnt", "ext4", 0, ""))
		_exit(1);
}

TEST(a_mount_in_another_namespace_is_found)
{
	char command[128];
	pid_t pid;

	begin();
	snprintf(command, sizeof(command), "mkfs.ext4 -q %s >/dev/null 2>&1", device);
	if (system(command))
		SKIP("no ext4 here");
	pid = child(claims);
	CHECK_EQ_INT(dev_open_look(device, WAIT_MS), -EBUSY);
	child_end(pid);
	end();
}

TEST(a_loop_device_on_it_is_found)
{
	char command[192];

	begin();
	snprintf(command, sizeof(command), "losetup -f --show %s", device);
	CHECK(says(second, sizeof(second), command));
	CHECK_EQ_INT(dev_open_look(device, WAIT_MS), -EBUSY);
	snprintf(command, sizeof(command), "losetup -d %s", second);
	CHECK(system(command) == 0);
	end();
}

/* Nobody waits longer than said, and who asks again gets what was found meanwhile. */
TEST(one_that_is_not_known_in_time_is_known_later)
{
	pid_t pid;
	int got;

	begin();
	pid = child(opens);
	got = dev_open_look(device, 0);
	CHECK(got == -EAGAIN || got == -EBUSY);
	for (int i = 0; i < 500 && got == -EAGAIN; i++) {
		usleep(10000);
		got = dev_open_look(device, 0);
	}
	CHECK_EQ_INT(got, -EBUSY);
	child_end(pid);
	end();
}

/* It has none of ours, so it can't keep them from being closed. */
TEST(our_own_descriptors_stay_ours)
{
	int p[2];
	char c;

	begin();
	CHECK(pipe(p) == 0);
	CHECK_EQ_INT(dev_open_look(device, WAIT_MS), 0);
	CHECK(write(p[1], "x", 1) == 1 && read(p[0], &c, 1) == 1);
	close(p[1]);
	CHECK_EQ_INT((int)read(p[0], &c, 1), 0);
	close(p[0]);
	end();
}
