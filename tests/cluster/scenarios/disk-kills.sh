#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# disk-kills.sh VIA: on one machine ddraidd is killed 20 times while fio writes to the block device and compares. No error
# reaches it, and in the end the members hold what the device has.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/cluster/disk.sh
. "$(dirname "$0")/../disk.sh"
disk_requires
via=${1:-shim}

array_up 1 1
disk_driver 1 "$via"
disk_attach 1 --via "$via"
step "fio, and ddraidd is killed 20 times"
disk_fio 1
disk_kills 1 20
disk_fio_end 1
taken=$(grep -c 'is taken over' "$CLUSTER_DIR/node1/log/ddraidd.out")
[ "$taken" -ge 20 ] || fail "the device was taken over $taken times"
measured "$taken times taken over; $(disk_fio_did 1)"
disk_finish 1
