/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Functions that stand in for what a unit test leaves out: FAKE(head, what it does). Most look at
 * nothing that they are given.
 */
#ifndef TESTS_LIB_FAKE_H
#define TESTS_LIB_FAKE_H

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define FAKE(head_, does_)                                                                         \
	head_                                                                                      \
	{                                                                                          \
		does_;                                                                             \
	}
#define NOTHING

#endif
