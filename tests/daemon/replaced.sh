#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Devices that were, or are, members: `add` and `create` tell what they are to their arrays, and name only what helps: whatever a
# refusal suggests is tried here, and works.
# shellcheck source=tests/daemon/lib.sh
. "$(dirname "$0")/lib.sh"

needs nbd
begin replaced
cat >"$tmp/conf" <<-EOC
	[daemon]
	state_dir = $tmp/state
	run_dir = $tmp/run
	ipc_name = $name
	[cluster]
	cluster = alone
	[fence]
	fence = none
EOC
clear() { # DISK...
	local i
	for i; do
		rm -f "$tmp/$i"
		truncate -s 24M "$tmp/$i"
	done
}
done_() { # COMMAND...
	ctl "$@" >"$tmp/out" 2>&1 || fail "$*: $(cat "$tmp/out")"
}
# refused WORDS COMMAND...: with these words, and without a hint at --force unless they have one.
refused() {
	local words=$1 status=0
	shift
	ctl "$@" >"$tmp/out" 2>&1 || status=$?
	[ $status = 1 ] || fail "$*: status $status, $(cat "$tmp/out")"
	grep -q -- "$words" "$tmp/out" || fail "$*: not '$words': $(cat "$tmp/out")"
	case $words in *--force*) return ;; esac
	! grep -q -- "--force" "$tmp/out" || fail "$*: speaks of --force: $(cat "$tmp/out")"
}
create() { # NAME DISK...
	local a=$1
	shift
	done_ create "$a" --order 1 --zeroed "${@/#/$tmp/}"
	until_true 10 holds "$a" 'a["io_allowed"]'
}
whole() { # ARRAY
	done_ status "$1" --wait --timeout 40
	holds "$1" 'not a["degraded"]' || fail "$1 is degraded: $(ctl status "$1")"
}

clear m0 m1 m2 m3 m4 m5
daemon_up
create v0 m0 m1 m2
nbd v0 'h.pwrite(b"x" * 65536, 0); h.flush()' || fail "I/O to v0"

echo "add in the place of a member that is in use"
done_ add v0 0 "$tmp/m0" # it is there: an add whose answer was lost
head -c 1M /dev/urandom >"$tmp/nothing"
mkfs.ext4 -q "$tmp/m4" 2>/dev/null || printf 'LABELONE' | dd of="$tmp/m4" bs=1 seek=512 conv=notrunc 2>/dev/null
for disk in m1 m3 m4 nothing nowhere; do
	refused "member 0 of v0 is in use (in-sync), and $tmp/$disk is not its device: .* first 'ddraidctl fail v0 0'" add v0 0 "$tmp/$disk"
	refused "member 0 of v0 is in use (in-sync), .* first 'ddraidctl fail v0 0'" add v0 0 "$tmp/$disk" --force
done
clear m4
done_ fail v0 0
refused "member 1 of v0 is in use (in-sync), .*: it can't be replaced now, since the data needs all that are in sync" add v0 1 "$tmp/m3"

echo "add of a device of the same array"
refused "$tmp/m1 is member 1 of this array, and in use (in-sync): name another device" add v0 0 "$tmp/m1"
refused "$tmp/m1 is member 1 of this array, and in use (in-sync): name another device" add v0 0 "$tmp/m1" --force
refused "$tmp/m0 is member 0 of this array, which is faulty: name another device, or --force" add v0 0 "$tmp/m0"
done_ add v0 0 "$tmp/m0" --force
whole v0
done_ fail v0 0
done_ add v0 0 "$tmp/m3"
whole v0
done_ fail v0 2
refused "$tmp/m0 was a member of this array: name another device, or --force to use it as a new one" add v0 2 "$tmp/m0"
done_ add v0 2 "$tmp/m0" --force
whole v0
echo "ok"
