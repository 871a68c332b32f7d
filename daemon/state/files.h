/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between files.c, which has the files of the state directory, and store.c, which knows what is in
 * them. `why` has STORE_WHY_BYTES. Any thread. */
#ifndef DDRAID_STATE_FILES_H
#define DDRAID_STATE_FILES_H

#include <stddef.h>
#include <sys/types.h>

#include "daemon/state/store.h"

#define RECORD_BYTES 1024 /* in every version: what has another length is damaged */
#define FORGOTTEN_LINE_BYTES 80
#define FORGOTTEN_BYTES (STORE_MAX_FORGOTTEN * FORGOTTEN_LINE_BYTES + 256) /* the largest file */

/* Returns err, with a sentence. */
int complain(int err, char *why, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* What an operator can do about a file or directory that can't be read, as a phrase. */
const char *remedy_of_reading(int err);

/* Opens and locks the directory: as store_open(). */
int files_open(const char *dir, char *why);
void files_close(void);
const char *files_dir(void); /* its path */

/* 0: it is durable under its name, and kept in memory; else -errno, and the old one stands. */
int file_put(const char *name, const void *data, size_t bytes, char *why);
/* The bytes that were read, at most `bytes`, or -errno. */
ssize_t file_get(const char *name, void *data, size_t bytes, char *why);
bool file_there(const char *name);
/* It was read, and is whole: it is written anew if others delete it. */
void keep_read(const char *name);
/* Likewise, this is what it held, but only as long as `beside` is known. NULL: it is not to come
 * back. */
void file_known(const char *name, const void *data, size_t bytes, const char *beside);
int files_remove(const char *const *name, uint32_t count, char *why);
int file_rename(const char *from, const char *to, char *why);

#endif
