// SPDX-License-Identifier: GPL-2.0-or-later
/* See socket_file.h. */
#include "daemon/base/socket_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(int err, char *why, const char *text)
{
	snprintf(why, SOCKET_FILE_WHY_BYTES, "%s", text);
	return err;
}

static int fail_errno(char *why)
{
	int err = -errno;

	snprintf(why, SOCKET_FILE_WHY_BYTES,
		 "%.50s; see that ddraidd can make this socket, or set run_dir in ddraid.conf",
		 strerror(-err));
	return err;
}

static int socket_new(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* True: `sun` is a socket on which nobody listens. */
static bool is_leftover(const struct sockaddr_un *sun)
{
	int fd = socket_new();
	bool refused;

	if (fd < 0)
		return false;
	refused =
	    connect(fd, (const struct sockaddr *)sun, sizeof(*sun)) < 0 && errno == ECONNREFUSED;
	close(fd);
	return refused;
}

static void directory_make(const char *path)
{
	char dir[sizeof(((struct sockaddr_un *)0)->sun_path)];

	strcpy(dir, path);
	*strrchr(dir, '/') = '\0';
	if (dir[0])
		mkdir(dir, 0755); /* bind says what is wrong with it */
}

static int file_bind(int fd, const struct sockaddr_un *sun, char *why)
{
	const struct sockaddr *sa = (const struct sockaddr *)sun;
	struct stat st;

	if (bind(fd, sa, sizeof(*sun)) == 0)
		return 0;
	if (errno != EADDRINUSE || lstat(sun->sun_path, &st) < 0)
		return fail_errno(why);
	if (!S_ISSOCK(st.st_mode))
		return fail(-EEXIST, why,
			    "that file is not a socket; remove it or choose another path");
	if (!is_leftover(sun))
		return fail(-EADDRINUSE, why,
			    "another program serves there; stop it or choose another path");
	if (unlink(sun->sun_path) < 0 || bind(fd, sa, sizeof(*sun)) < 0)
		return fail_errno(why);
	return 0;
}

/* To its group, then to all that the mode says, whatever the umask took. */
static int file_give(const struct socket_file *f, const char *path, char *why)
{
	int err;

	if (f->group != SOCKET_FILE_OWN && lchown(path, (uid_t)-1, f->group) < 0) {
		err = -errno;
		snprintf(why, SOCKET_FILE_WHY_BYTES,
			 "it can't be given to group %lu: %.40s; give ddraidd CAP_CHOWN, or change "
			 "socket_group",
			 (unsigned long)f->group, strerror(-err));
		return err;
	}
	return chmod(path, f->mode) < 0 ? fail_errno(why) : 0;
}

/* Until listen, whoever connects is refused. */
static int file_make(struct socket_file *f, int fd, const struct sockaddr_un *sun, char *why)
{
	struct stat st;
	int err;

	/* Before bind: the file is open to nobody else at first. */
	if (fchmod(fd, f->mode & S_IRWXU) < 0)
		return fail_errno(why);
	directory_make(sun->sun_path);
	err = file_bind(fd, sun, why);
	if (err)
		return err;
	err = file_give(f, sun->sun_path, why);
	if (!err && (lstat(sun->sun_path, &st) < 0 || listen(fd, SOCKET_FILE_BACKLOG) < 0))
		err = fail_errno(why);
	if (err) {
		unlink(sun->sun_path);
		return err;
	}
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	return 0;
}

int socket_file_open(struct socket_file *f, const char *path, mode_t mode, gid_t group,
		     char why[SOCKET_FILE_WHY_BYTES])
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int fd, err;

	memset(f, 0, sizeof(*f));
	if (path[0] != '/' || strlen(path) >= sizeof(sun.sun_path))
		return fail(-EINVAL, why, "give an absolute path of at most 107 characters");
	memcpy(sun.sun_path, path, strlen(path) + 1);
	f->mode = mode;
	f->group = group;
	fd = socket_new();
	if (fd < 0)
		return fail_errno(why);
	err = file_make(f, fd, &sun, why);
	if (err) {
		close(fd);
		return err;
	}
	memcpy(f->path, path, strlen(path) + 1);
	return fd;
}

/* Its inode is not given to another file while the socket is open. */
static bool is_ours(const struct socket_file *f)
{
	struct stat st;

	return lstat(f->path, &st) == 0 ? st.st_dev == f->dev && st.st_ino == f->ino
					: errno != ENOENT && errno != ENOTDIR;
}

int socket_file_again(struct socket_file *f, char why[SOCKET_FILE_WHY_BYTES])
{
	struct socket_file fresh;
	int fd;

	if (is_ours(f)) {
		f->missed = false;
		return -EALREADY;
	}
	fd = socket_file_open(&fresh, f->path, f->mode, f->group, why);
	if (fd >= 0)
		*f = fresh;
	else if (f->missed)
		why[0] = '\0';
	else
		f->missed = true;
	return fd;
}

void socket_file_remove(struct socket_file *f)
{
	struct stat st;

	if (f->path[0] && lstat(f->path, &st) == 0 && st.st_dev == f->dev && st.st_ino == f->ino)
		unlink(f->path);
	f->path[0] = '\0';
}
