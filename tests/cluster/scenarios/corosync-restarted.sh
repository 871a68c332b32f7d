#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# corosync of a node ends, and is started again, while its ddraidd lives. The others fence the node where fence-exports
# does: the exporters end its connections and refuse it, and its network stays. The same daemon comes back as a new
# incarnation, tells the exporters that the last one has ended, and serves again, without anybody's help.
set -u
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "$0")/../lib.sh"

array_up 3 1
# As ddraid-export: a life that the node itself has called over is not refused by a fence that comes late.
cat >"$CLUSTER_DIR/fence-exporters" <<END
#!/bin/bash
exec 9>"$CLUSTER_DIR/fence-exporters.lock"
flock 9
own=\$(uname -n) address=10.77.0.\$1
for e in "$CLUSTER_DIR"/exporter[0-9]*; do
	if [ "\$own" = "node\$1" ]; then
		echo "\$2" >>"\$e/over.\$1"
		rm -f "\$e/deny/\$address"
	else
		[ ! -e "\$e/deny/10.77.0.\${own#node}" ] || { echo "\$own is refused itself"; exit 1; }
		grep -qxF "\$2" "\$e/over.\$1" 2>/dev/null || : >"\$e/deny/\$address"
	fi
	"$CLUSTER_DIR/exporter" ctl "\$e" end "\$address" 9>&- || exit 1
done
echo "\$own \$*" >>"$CLUSTER_DIR/fences"
END
chmod +x "$CLUSTER_DIR/fence-exporters"
ctl 1 stop vol0 --all-nodes || fail "stop"
for n in 1 2 3; do
	daemon_stop $n
	sed -i "s|^fence_command.*|fence_command = $CLUSTER_DIR/fence-exporters|" "$CLUSTER_DIR/node$n/etc-ddraid/ddraid.conf"
done
at_once daemon_up 1 2 3
ctl 1 start vol0 --all-nodes || fail "start"
serve 1 2 3

fenced_by() { # WHO NODE
	grep -q "^node$1 $2 " "$CLUSTER_DIR/fences"
}
writers_start --reconnect 1 2 3
for how in "TERM 3" "KILL 1"; do
	read -r signal v <<<"$how"
	: >"$CLUSTER_DIR/fences"
	log_mark $v
	step "corosync of node $v ends by SIG$signal"
	began=${EPOCHREALTIME/[.,]/}
	node_signal $v corosync $signal
	ended() { ! node_alive $v corosync; }
	within 20 "the end of corosync" ended
	other=$((v % 3 + 1)) third=$(((v + 1) % 3 + 1))
	fenced() { fenced_by $other $v || fenced_by $third $v; }
	within 20 "the fence of node $v" fenced
	refused() { [ -n "$(compgen -G "$CLUSTER_DIR/exporter*/deny/10.77.0.$v")" ]; }
	refused || fail "no exporter refuses node $v"
	node_spawn $v corosync corosync -f
	step "and is started again"
	cluster_wait_quorum 20 1 2 3 || fail "no quorum"
	within 30 "node $v has a new incarnation" log_has $v "joins again as incarnation"
	serve $v
	fenced_by $v $v || fail "node $v did not say that its last incarnation has ended"
	refused && fail "an exporter refuses node $v"
	writers_go_on 300 1 2 3
	measured "node $v: served again $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms after its corosync ended"
done
writers_stop 1 2 3
compare_on 1 2 3
serve 1 2 3
finish 1 2 3
