/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Connections from before an exporter was off. */
#ifndef TESTS_SIM_FAULTS_HALFOPEN_H
#define TESTS_SIM_FAULTS_HALFOPEN_H

#include "tests/sim/common.h"

void halfopen_init(struct sim *s);
void halfopen_heal(struct sim *s);
void halfopen_connects(struct sim *s, const struct simnode *n, uint32_t disk); /* is about to */
bool halfopen_strikes(struct sim *s, struct simnode *n, uint32_t dev); /* it does not hear of it */
void halfopen_end(struct sim *s, struct simnode *n, uint32_t dev, int err); /* now it does */

#endif
