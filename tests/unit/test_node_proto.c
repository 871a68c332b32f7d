/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The messages between nodes, byte for byte as they go over the wire. */
#include "proto/node.pb-c.h"
#include "tests/lib/test.h"

TEST(epoch_has_its_golden_bytes)
{
	static const uint8_t golden[] = {0x09, 7, 0, 0, 0, 0, 0, 0, 0, /* num */
					 0x11, 8, 7, 6, 5, 4, 3, 2, 1 /* inc */};
	Ddraid__Epoch e = DDRAID__EPOCH__INIT;
	uint8_t wire[sizeof(golden)];

	e.num = 7;
	e.inc = UINT64_C(0x0102030405060708);
	CHECK_EQ_U64(ddraid__epoch__get_packed_size(&e), sizeof(golden));
	CHECK_EQ_U64(ddraid__epoch__pack(&e, wire), sizeof(golden));
	CHECK_EQ_MEM(wire, golden, sizeof(golden));
}

TEST(epoch_comes_back)
{
	Ddraid__Epoch e = DDRAID__EPOCH__INIT, *back;
	uint8_t wire[64];

	e.num = UINT64_MAX;
	e.inc = UINT64_MAX - 1;
	back = ddraid__epoch__unpack(NULL, ddraid__epoch__pack(&e, wire), wire);
	CHECK(back);
	CHECK_EQ_U64(back->num, e.num);
	CHECK_EQ_U64(back->inc, e.inc);
	ddraid__epoch__free_unpacked(back, NULL);
}

TEST(a_cut_off_epoch_is_refused)
{
	Ddraid__Epoch e = DDRAID__EPOCH__INIT;
	uint8_t wire[64];
	size_t bytes;

	e.num = 300;
	bytes = ddraid__epoch__pack(&e, wire);
	CHECK(!ddraid__epoch__unpack(NULL, bytes - 1, wire));
}
