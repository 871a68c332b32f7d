/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The crash contract (C7): which stripes may turn to garbage if a member is lost now. The oracle
 * and the checks raise the risk of a stripe; it settles by itself.
 */
#ifndef TESTS_SIM_CHECKS_RISK_H
#define TESTS_SIM_CHECKS_RISK_H

#include "tests/sim/common.h"

enum risk { RISK_NONE, RISK_CUT, RISK_RACE };

void risk_init(struct sim *s);
void risk_free(struct sim *s);
void risk_set_all(struct sim *s); /* an array that was never in sync */
/* Something happened to this stripe that began at that stamp. */
void risk_raise(struct sim *s, uint64_t stripe, enum risk r, uint64_t since);
void risk_lost(struct sim *s, uint32_t disk);   /* something befell this disk */
void risk_harmed(struct sim *s, uint32_t disk); /* and not only its connection */
/* Its parity is true: is all else well, too? */
void risk_settle(struct sim *s, uint64_t stripe);
void risk_settle_all(struct sim *s);
void risk_pinned(struct sim *s, uint64_t sector); /* somebody has read it after a recovery */
void risk_advance(struct sim *s);                 /* after each event */

#endif
