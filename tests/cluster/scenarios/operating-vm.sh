#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# doc/operating-vm.md: what it tells an operator to type is read from it, and typed on the nodes. What stands for the virtual
# machines reads and writes through the socket that they would use; the node of one of them loses power.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/cluster/pages.sh
. "$(dirname "$0")/../pages.sh"

command -v qemu-img >/dev/null || { echo "skipped: no qemu-img (tools/deps)"; exit 77; }

# The page's array is "data".
eval "lib_$(declare -f ctl)"
ctl() {
	lib_ctl "${@//vol0/data}"
}
array_uri() {
	node_uri "$1" data
}

# type_in N SECTION NUMBER: on node N. What it said is in CLUSTER_DIR/typed.N.
type_in() {
	local file=$CLUSTER_DIR/typed.$1.sh
	page_block vm "$2" "$3" | sed 's/10\.0\.1\./10.77.1./g' | grep . >"$file" || fail "doc/operating-vm.md: no commands $3 in '$2'"
	node_exec "$1" env PATH="$top_builddir:$PATH" sh -e "$file" >"$CLUSTER_DIR/typed.$1" 2>&1
}
typed() { # and it must end well
	type_in "$@" || fail "node $1: $(cat "$CLUSTER_DIR/typed.$1.sh"): $(tail -n 20 "$CLUSTER_DIR/typed.$1")"
}
said() { # N TEXT
	grep -q -- "$2" "$CLUSTER_DIR/typed.$1" || fail "node $1 does not say $2: $(cat "$CLUSTER_DIR/typed.$1")"
}
lost() {
	type_in 1 "4. Try it" 1 # 6 while I/O is held
	grep -q "^ *3 *[0-9] *20[0-9-]* [0-9:]* *[0-9.]* s" "$CLUSTER_DIR/typed.1"
}
stopped() {
	holds "$1" 'a["state"] == "stopped"'
}

parts_up 3 1
typed 1 "1. The array" 1
said 1 "^array data .* runs on 3 nodes"
load_fits
serve 1 2 3
typed 2 "2. The disk" 1
said 2 "^virtual size: .*($(tells 1 'a["geometry"]["size_bytes"]') bytes)"
step "the disk"
writers_start 1 2 3
step "node 3 loses power"
node_kill 3
within 20 "the status tells of its fence" lost
writers_go_on 300 1 2
writers_stop 1 2
compare_on 1 2
typed 2 "5. Stop" 1
step "stopped"
for n in 1 2; do
	stopped $n || fail "node $n goes on"
done
typed 1 "5. Stop" 2
serve 1 2
finish 1 2
