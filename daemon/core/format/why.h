/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Why something that is stored, or is to be stored, can't be used: one sentence, which names the
 * field and its value.
 */
#ifndef DDRAID_CORE_FORMAT_WHY_H
#define DDRAID_CORE_FORMAT_WHY_H

#define FORMAT_WHY_BYTES 192 /* of every `why` in this folder */

/* Writes the sentence, if why is not NULL. Returns err. */
int format_refuse(char *why, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
