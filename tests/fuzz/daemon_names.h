/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Included before everything else in the sources of fuzz_daemon. */
#ifndef DDRAID_TESTS_FUZZ_DAEMON_NAMES_H
#define DDRAID_TESTS_FUZZ_DAEMON_NAMES_H

#include <pthread.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int world_clock_gettime(clockid_t clock, struct timespec *ts);
int world_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg);
int world_pthread_join(pthread_t t, void **result);
int world_fsync(int fd);
ssize_t world_getrandom(void *to, size_t bytes, unsigned flags);
int world_accept4(int fd, struct sockaddr *sa, socklen_t *bytes, int flags);
int world_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes);
ssize_t world_recv(int fd, void *data, size_t room, int flags);
ssize_t world_send(int fd, const void *data, size_t bytes, int flags);
int world_close(int fd);
#define clock_gettime world_clock_gettime
#define pthread_create world_pthread_create
#define pthread_join world_pthread_join
#define fsync world_fsync
#define getrandom world_getrandom
#define accept4 world_accept4
#define getsockopt world_getsockopt
#define recv world_recv
#define send world_send
#define close world_close

#endif
