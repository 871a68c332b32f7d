/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tests/sim/world.h"

void checks_acts(struct sim *s, const struct simnode *n, const char *what)
{
	if (n->view_ring == NONE || !n->quorate)
		sim_fail(s, "C12", "node %u %s without quorum", n->id, what);
	else if (n->view_seq != n->quorum_seq)
		sim_fail(s, "C12", "node %u %s by the view of ring %lu; its quorum is of ring %lu",
			 n->id, what, n->view_seq, n->quorum_seq);
}
