/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Included before everything else in the sources of fuzz_daemon. */
#ifndef DDRAID_TESTS_FUZZ_DAEMON_NAMES_H
#define DDRAID_TESTS_FUZZ_DAEMON_NAMES_H

#include <pthread.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

int world_clock_gettime(clockid_t clock, struct timespec *ts);
int world_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg);
int world_pthread_join(pthread_t t, void **result);
int world_fsync(int fd);
ssize_t world_getrandom(void *to, size_t bytes, unsigned flags);
#define clock_gettime world_clock_gettime
#define pthread_create world_pthread_create
#define pthread_join world_pthread_join
#define fsync world_fsync
#define getrandom world_getrandom

#endif
