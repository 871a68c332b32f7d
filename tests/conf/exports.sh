#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# ddraid-export and fence-exports: what they accept, and in which order they do what. They must never say that a fence
# was done when it was not. Here with stand-ins for systemctl and ssh; the scenario `operating` has the real ones.
# In a mount namespace of its own, as root.
set -u
top_srcdir=$(cd "${top_srcdir:-$(dirname "$0")/../..}" && pwd)
if [ -z "${EXPORTS_INSIDE:-}" ]; then
	[ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null || { echo "skipped: needs root"; exit 77; }
	EXPORTS_INSIDE=yes exec unshare --mount bash "$0"
fi
failed=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/bin" "$work/lib" "$work/conf"
mkdir -p "$work/units.d"
mount --bind "$work/bin" /usr/local/sbin && mount --bind "$work/lib" /var/lib && mount --bind "$work/units.d" /etc/systemd/system || exit 1
install "$top_srcdir/cluster-conf/ddraid-export" "$top_srcdir/cluster-conf/fence-exports" /usr/local/sbin/

# systemctl: connections are lines of $work/units, one that can't be ended has "stuck"; ssh: HOST COMMAND..., as sshd would by the
# line in authorized_keys, with the addresses in $work/key, from the address in $work/own or, if that is there, $work/from, unless
# $work/down.HOST is there, with a /var/lib of its own if $work/lib.HOST is, after $work/before.HOST, once, if it is there and HOST is to refuse somebody; sync: says so; pidof: ddraidd runs if $work/runs is there,
# whatever else runs on this machine. OWN_ADDRESS stands for $work/own and $work/key.
cat >/usr/local/sbin/systemctl <<END
#!/bin/bash
[ "\$1" != --quiet ] || shift
verb=\$1
shift
pattern=\${!#}
case \$verb in
disable)
	echo "disable \$pattern" >>$work/did ;;
stop)
	echo "stop \$pattern" >>$work/did
	[ ! -e $work/no-systemd ] || exit 1
	while read -r unit state; do
		[[ \$unit == \$pattern && \$state != stuck ]] || echo "\$unit \$state"
	done <$work/units >$work/units.new.\$\$
	mv $work/units.new.\$\$ $work/units ;;
list-units)
	while read -r unit state; do
		[[ \$unit != \$pattern ]] || echo "\$unit loaded active running"
	done <$work/units ;;
esac
END
cat >/usr/local/sbin/ssh <<END
#!/bin/bash
while [ "\$1" = -o ]; do shift 2; done
[ ! -e "$work/down.\$1" ] || exit 255
host=\${1#root@}
shift
export SSH_CONNECTION="\${OWN_ADDRESS:-\$(cat $work/from 2>/dev/null || cat $work/own)} 40000 10.0.1.1 22" SSH_ORIGINAL_COMMAND="\$*"
key=\${OWN_ADDRESS:-\$(cat $work/key)}
case "\$2 \$(mv "$work/before.\$host" "$work/now.\$host" 2>/dev/null && echo before)" in
'fence before' | 'try before') sh "$work/now.\$host" >/dev/null 2>&1 ;;
*before) mv "$work/now.\$host" "$work/before.\$host" ;;
esac
[ -d "$work/lib.\$host" ] || exec ddraid-export ssh \$key
echo "\$key asks \$host: \$*" >>$work/asked
exec unshare --mount sh -c "mount --bind $work/lib.\$host /var/lib && exec ddraid-export ssh \$key"
END
cat >/usr/local/sbin/sync <<END
#!/bin/bash
echo "sync \$*" >>$work/did
[ "\$*" != /dev/null ] || [ ! -e $work/no-flush ] || exit 1
[ "\$*" != /dev/zero ] || { echo \$\$ >>$work/hangs; exec sleep 1000; }
END
cat >/usr/local/sbin/ip <<END
#!/bin/bash
echo "2: eth0    inet \${OWN_ADDRESS:-\$(cat $work/own)}/24 brd 10.0.0.255 scope global eth0"
END
cat >/usr/local/sbin/systemd-run <<END
#!/bin/bash
echo "run \$*" >>$work/did
END
cat >/usr/local/sbin/pidof <<END
#!/bin/bash
[ -e $work/runs ]
END
chmod +x /usr/local/sbin/*

is() { # WHAT STATUS COMMAND...: a sentence on standard error if it isn't 0
	local what=$1 want=$2 status=0
	shift 2
	"$@" >"$work/out" 2>&1 || status=$?
	if [ $((status != 0)) != "$want" ] || { [ "$want" = 1 ] && ! grep -q '^[a-z-]*: ' "$work/out"; }; then
		echo "FAILED: $what: status $status: $(cat "$work/out")"
		failed=1
	fi
}
ok() { is "$1" 0 "${@:2}"; }
refused() { is "$1" 1 "${@:2}"; }
same() { # WHAT GOT WANTED
	[ "$2" = "$3" ] || { echo "FAILED: $1: '$2', not '$3'"; failed=1; }
}
begin() {
	rm -rf /var/lib/ddraid-export /var/lib/ddraid "$work"/down.* "$work"/before.* "$work"/lib.* "$work"/{did,asked,no-systemd,no-flush,from,runs}
	cp "$work/own" "$work/key"
	mkdir -p /var/lib/ddraid-export/disks
	echo /dev/null >/var/lib/ddraid-export/disks/sdb
	: >"$work/did"
	cat >"$work/units" <<-END
		ddraid-export-sdb@1-10.0.1.1:10809-10.0.0.1:4001.service up
		ddraid-export-sdb@2-10.0.1.1:10809-10.0.0.11:4001.service up
		ddraid-export-sdb@3-10.0.1.1:10809-110.0.0.1:4001.service up
		ddraid-export-sdb@4-10.0.0.1:10809-10.0.0.2:4001.service up
		ddraid-export-sdb@5-fd00::a:10809-fd00::1:4001.service up
	END
}
left() {
	sed 's/.*@\([0-9]*\)-.*/\1/' "$work/units" | tr '\n' ' '
}
mark() {
	cat "/var/lib/ddraid-export/$1" 2>/dev/null || echo none
}

echo 10.0.0.9 >"$work/own"

# ---- ddraid-export ----

begin
ok "a fence" ddraid-export fence 10.0.0.1 7
same "what it ends" "$(left)" "2 3 4 5 "
same "its mark" "$(mark refused/10.0.0.1)" 7
same "the order" "$(grep -o '^stop\|^sync /dev/null' "$work/did" | tr '\n' ' ')" "stop sync /dev/null "
ok "once more" ddraid-export fence 10.0.0.1 7
ok "of an earlier life" ddraid-export fence 10.0.0.1 5
same "both are marked" "$(mark refused/10.0.0.1 | tr '\n' ' ')" "7 5 "
refused "an admission of an earlier life" ddraid-export admit 10.0.0.1 6
same "the mark stays" "$(mark refused/10.0.0.1)" 7
ok "an admission" ddraid-export admit 10.0.0.1 7
same "no mark" "$(mark refused/10.0.0.1)" none
: >"$work/did"
ok "a fence of a life that is over" ddraid-export fence 10.0.0.1 7
same "ends what there is, and refuses nobody" "$(grep -c ^stop "$work/did") $(mark refused/10.0.0.1)" "1 none"
ok "IPv6" ddraid-export fence fd00::1 7
same "IPv6 is ended" "$(left)" "2 3 4 "

# A node that was installed anew, with its clock behind: whatever was fenced before, a life is over if that was said of it.
begin
ok "a fence" ddraid-export fence 10.0.0.1 2000
ok "that is over" ddraid-export admit 10.0.0.1 2000
sed -i '1i\\ddraid-export-sdb@6-10.0.1.1:10809-10.0.0.1:4002.service up' "$work/units"
ok "a fence of a smaller life" ddraid-export fence 10.0.0.1 1000
same "ends its connections" "$(left)" "2 3 4 5 "
same "refuses it" "$(mark refused/10.0.0.1)" 1000
refused "that is not over by less" ddraid-export admit 10.0.0.1 999
ok "it has ended, says the node" ddraid-export own 10.0.0.1 1000
same "and is let in" "$(mark refused/10.0.0.1)" none
ok "the fence comes late" ddraid-export fence 10.0.0.1 1000
same "and refuses nobody" "$(mark refused/10.0.0.1)" none
begin
ok "a fence" ddraid-export fence 10.0.0.1 2000
ok "that is over" ddraid-export admit 10.0.0.1 2000
sed -i '1i\\ddraid-export-sdb@6-10.0.1.1:10809-10.0.0.1:4002.service up' "$work/units"
ok "a smaller life has ended" ddraid-export own 10.0.0.1 1000
same "so do its connections" "$(left)" "2 3 4 5 "
same "the greatest life" "$(ddraid-export last 10.0.0.1)" 2000
ok "a fence" ddraid-export fence 10.0.0.1 3000
same "the greatest life, if it is refused" "$(ddraid-export last 10.0.0.1)" 3000
same "of a node that nobody named" "$(ddraid-export last 10.0.0.2)" 0

# What is remembered has a bound: a life that was forgotten is refused rather than let in.
begin
for ((life = 1; life <= 70; life++)); do
	ok "life $life" ddraid-export own 10.0.0.1 $life
done
same "so many are remembered" "$(wc -l </var/lib/ddraid-export/over/10.0.0.1)" 64
ok "a fence of the last" ddraid-export fence 10.0.0.1 70
same "refuses nobody" "$(mark refused/10.0.0.1)" none
ok "a fence of one that is forgotten" ddraid-export fence 10.0.0.1 1
same "refuses it" "$(mark refused/10.0.0.1)" 1

# A node in two arrays: lives 7 and 9. What it says of one is no word on the other.
begin
mkdir -p /var/lib/ddraid-export/over && echo 5 >/var/lib/ddraid-export/over/10.0.0.1
ok "its own life 9" ddraid-export own 10.0.0.1 9
same "ends what there is" "$(left)" "2 3 4 5 "
same "is not the end of 7" "$(mark over/10.0.0.1 | tr '\n' ' ')" "5 9 "
ok "a fence of 7" ddraid-export fence 10.0.0.1 7
same "refuses it" "$(mark refused/10.0.0.1)" 7
ok "a fence of 9 comes late" ddraid-export fence 10.0.0.1 9
same "and refuses nothing more" "$(mark refused/10.0.0.1)" 7
ok "its own life 9, once more" ddraid-export own 10.0.0.1 9
same "leaves 7 refused" "$(mark refused/10.0.0.1)" 7
refused "an admission up to 6" ddraid-export admit 10.0.0.1 6
ok "its own life 7" ddraid-export own 10.0.0.1 7
same "nothing is left" "$(mark refused/10.0.0.1) $(mark over/10.0.0.1 | tr '\n' ' ')" "none 5 9 6 7 "
: >"$work/did"
ok "a life that is over" ddraid-export own 10.0.0.1 6
same "has no connections" "$(cat "$work/did")" ''
ok "an admission that ends no life" ddraid-export admit 10.0.0.2 0
same "makes it known" "$(mark over/10.0.0.2)" 0

begin
for life in '' 08 07 -1 1.0 x 0x10 9223372036854775808 9999999999999999999 18446744073709551615 '7 8' '7;8'; do
	refused "the life '$life'" ddraid-export fence 10.0.0.1 "$life"
	refused "the life '$life' over" ddraid-export admit 10.0.0.1 "$life"
	refused "the life '$life' over, too" ddraid-export admit 10.0.0.1 7 "$life"
	refused "the life '$life' of its own" ddraid-export own 10.0.0.1 "$life"
done
refused "the life 0" ddraid-export fence 10.0.0.1 0
refused "the life 0 of its own" ddraid-export own 10.0.0.1 0
for address in '' . 10.0.0 010.0.0.1 10.0.0.1. '10.0.0.*' '*' 1 FD00::1 fd00:0::1 ::ffff:10.0.0.1 host ../x 10.0.0.1:4001; do
	refused "the address '$address'" ddraid-export fence "$address" 7
done
same "nothing was ended" "$(left)" "1 2 3 4 5 "
ok "the greatest life" ddraid-export fence 10.0.0.1 9223372036854775807
same "is refused" "$(mark refused/10.0.0.1)" 9223372036854775807

begin
mkdir -p /var/lib/ddraid-export/{refused,over}
for damaged in '' 08 x 9999999999999999999; do
	echo "$damaged" >/var/lib/ddraid-export/over/10.0.0.1
	refused "a damaged mark of what is over" ddraid-export fence 10.0.0.1 7
	rm /var/lib/ddraid-export/over/10.0.0.1
	echo "$damaged" >/var/lib/ddraid-export/refused/10.0.0.1
	refused "a damaged mark of who is refused" ddraid-export fence 10.0.0.1 7
	refused "a damaged mark at an admission" ddraid-export admit 10.0.0.1 7
done

begin
sed -i '1s/up/stuck/' "$work/units"
refused "a connection that does not end" ddraid-export fence 10.0.0.1 7
same "its node is refused nevertheless" "$(mark refused/10.0.0.1)" 7
refused "its node is not admitted" ddraid-export admit 10.0.0.1 7
begin
touch "$work/no-systemd"
refused "no systemd" ddraid-export fence 10.0.0.1 7
begin
touch "$work/no-flush"
ok "a disk that does not flush" ddraid-export fence 10.0.0.1 7
same "is offered to nobody" "$(left)$(ls /var/lib/ddraid-export/disks)" ""
grep -q '^disable .*ddraid-export-sdb.socket' "$work/did" || { echo "FAILED: its socket stays"; failed=1; }
begin
touch "$work/no-flush"
sed -i '4s/up/stuck/' "$work/units"
refused "one whose connection does not end" ddraid-export fence 10.0.0.1 7
rm "$work/no-flush"
refused "the error comes only once, and is not forgotten" ddraid-export fence 10.0.0.1 7
same "it is marked" "$(mark failed/sdb)" /dev/null
sed -i '/stuck/d' "$work/units"
ok "it has ended" ddraid-export fence 10.0.0.1 7
same "it is withdrawn" "$(ls /var/lib/ddraid-export/disks)" ""

# One that hangs holds up nobody for long, and is not taken for one that has failed.
begin
echo /dev/zero >/var/lib/ddraid-export/disks/sdc
sed -i 's/^flush_s=.*/flush_s=1/' /usr/local/sbin/ddraid-export
ok "a disk whose flush hangs" ddraid-export fence 10.0.0.1 7
grep -q 'sdc hangs' "$work/out" || { echo "FAILED: the disk is not named"; failed=1; }
same "both are still offered" "$(ls /var/lib/ddraid-export/disks | tr '\n' ' ')" "sdb sdc "
ok "the next fence" timeout -k 10 20 ddraid-export fence 10.0.0.2 7
xargs kill <"$work/hangs"

begin
ok "what there is" ddraid-export list
same "what there is" "$(cat "$work/out")" "disk sdb: /dev/null, connections from: 10.0.0.1 (1) 10.0.0.11 (1) 10.0.0.2 (1) 110.0.0.1 (1) fd00::1 (1)"

ok "a fence" ddraid-export fence 10.0.0.9 33 10.0.0.1
ok "who is refused" ddraid-export list
grep -qE '^refused: 10\.0\.0\.9, for its life 33 \(fenced by 10\.0\.0\.1 +at [0-9-]+ [0-9:]+\)$' "$work/out" || { echo "FAILED: not by whom: $(cat "$work/out")"; failed=1; }
ok "its end" ddraid-export own 10.0.0.9 33
grep -qE '^10\.0\.0\.9 was refused here, for its life 33 \(fenced by 10\.0\.0\.1 +at ' "$work/out" || { echo "FAILED: not by whom: $(cat "$work/out")"; failed=1; }
ok "who is refused then" ddraid-export list
! grep -q "^refused" "$work/out" || { echo "FAILED: refused still: $(cat "$work/out")"; failed=1; }

# The key speaks for its node's addresses, and for no others.
by_key() { # KEY-ADDRESSES FROM COMMAND
	local key
	read -ra key <<<"$1"
	SSH_CONNECTION="$2 40000 10.0.1.1 22" SSH_ORIGINAL_COMMAND="$3" ddraid-export ssh "${key[@]}"
}
begin
ok "who the machine is" by_key 10.0.0.2 10.0.0.2 'ddraid-export id'
id=$(cat "$work/out")
same "it stays who it is" "$(ddraid-export id)" "$id"
sed -i 's/ .*/ ofanothermachine/' /var/lib/ddraid-export/id
[ "$(ddraid-export id)" != "$id" ] || { echo "FAILED: a copied machine is who the first one is"; failed=1; }
for word in 'own 10.0.0.1 9' 'admit 10.0.0.1 9' 'admit 10.0.0.1 0' 'last 10.0.0.1' 'own  9' 'own * 9' "admit '' 9" 'own 10.0.0.2 9 10.0.0.1'; do
	refused "another's life: '$word'" by_key '10.0.0.2 10.9.0.2' 10.0.0.2 "ddraid-export $word"
	refused "another's life, by a key for its own address only: '$word'" by_key '' 10.0.0.2 "ddraid-export $word"
done
same "nothing came of it" "$(left)$(mark over/10.0.0.1)" "1 2 3 4 5 none"
ok "its own life" by_key '10.0.0.2 10.9.0.2' 192.168.0.2 'ddraid-export own 10.0.0.2 9'
ok "its own, at another of its addresses" by_key '10.0.0.2 10.9.0.2' 192.168.0.2 'ddraid-export admit 10.9.0.2 9'
same "one address, as the line says none" "$(by_key '' 10.0.0.2 'ddraid-export last 10.0.0.2')" 9
for key in 10.0.0 host ::ffff:10.0.0.2 '10.0.0.2 x'; do
	refused "a key for '$key'" by_key "$key" 10.0.0.2 'ddraid-export last 10.0.0.2'
	grep -q authorized_keys "$work/out" || { echo "FAILED: it doesn't say where: $(cat "$work/out")"; failed=1; }
done
# Who is refused at one of its addresses fences nobody, from wherever it asks, until it is admitted.
begin
ok "a fence" by_key 10.0.0.1 10.0.0.1 'ddraid-export fence 10.0.0.2 22'
for from in 10.0.0.2 10.9.0.2 192.168.0.2; do
	refused "a fence by who is refused, from $from" by_key '10.9.0.2 10.0.0.2' $from 'ddraid-export fence 10.0.0.1 11'
	refused "likewise, and it says that it is another" by_key '10.9.0.2 10.0.0.2' $from 'ddraid-export fence 10.0.0.1 11 10.0.0.3'
	refused "likewise, without a key that says who it is" by_key '' $from 'ddraid-export fence 10.0.0.1 11'
	refused "likewise, and says so itself" by_key '' $from 'ddraid-export fence 10.0.0.1 11 10.9.0.2 10.0.0.2'
done
same "nobody is refused" "$(mark refused/10.0.0.1)" none
ok "it is admitted" by_key '10.9.0.2 10.0.0.2' 10.9.0.2 'ddraid-export admit 10.0.0.2 22'
ok "and may fence" by_key '10.9.0.2 10.0.0.2' 10.9.0.2 'ddraid-export fence 10.0.0.1 11'
same "by that" "$(mark refused/10.0.0.1)" 11

for word in '' list 'serve sdb' 'add a /dev/sda 1' 'remove sdb' 'fence' 'fence 10.0.0.1' 'ddraid-export list' 'sh -c true'; do
	begin
	is "by ssh: '$word'" 1 env "SSH_ORIGINAL_COMMAND=$word" sh -c 'ddraid-export ssh 10.0.0.1 || { echo "x: "; exit 1; }'
	same "by ssh: '$word' does nothing" "$(cat "$work/did")" ''
done

# Its own directory is full: the disk is not offered, nothing is left of it, and no fence stumbles over it later.
begin
mount -t tmpfs -o size=64k full /var/lib || exit 1
truncate -s 16M "$work/disk"
mkdir -p /var/lib/ddraid-export/disks
echo /dev/null >/var/lib/ddraid-export/disks/sdb
ok "a node is admitted" ddraid-export admit 10.0.0.1 9
cat /dev/zero >/var/lib/all 2>/dev/null
refused "a full directory: a further disk" ddraid-export add sdc "$work/disk" 10899
grep -q "the disk is not offered" "$work/out" || { echo "FAILED: it says: $(cat "$work/out")"; failed=1; }
is "a full directory: who this machine is" 1 sh -c 'ddraid-export standing || { echo "x: "; exit 1; }'
rm /var/lib/all
same "nothing is left of it" "$(ls /var/lib/ddraid-export/disks "$work/units.d" | tr '\n' ' ' | grep -o sdc)" ''
: >/var/lib/ddraid-export/disks/sdc.new # by an earlier version
ok "a fence" ddraid-export fence 10.0.0.1 9
ok "who this machine is" ddraid-export standing
umount /var/lib || exit 1

# ---- fence-exports ----

export DDRAID_FENCE_CONF=$work/conf/it
conf() {
	printf "$1" >"$DDRAID_FENCE_CONF"
}
whole='node 1 10.0.0.1\nnode 2 10.0.0.2\nnode 5 fd00::1\n# text\n\ndisks 10.0.1.1\ndisks 10.0.1.2 other\n'

begin
conf "$whole"
ok "two machines" fence-exports 1 7 nbd://10.0.1.1 nbd://10.0.1.2:10809/x
same "what was ended" "$(left)" "2 3 4 5 "
same "both were asked" "$(grep -c ^stop "$work/did")" 2
begin
touch "$work/down.other"
refused "one does not answer" fence-exports 1 7 nbd://10.0.1.1 nbd://10.0.1.2:10809/x
grep -q '10\.0\.1\.2' "$work/out" || { echo "FAILED: it is not named: $(cat "$work/out")"; failed=1; }

# Who is switched off for certain isn't asked; somebody must be.
begin
conf "${whole}off 10.0.1.2\n"
ok "a machine is off" fence-exports 1 7 nbd://10.0.1.1 nbd://10.0.1.2:10809/x
grep -q '10\.0\.1\.2 off' "$work/out" || { echo "FAILED: that isn't said: $(cat "$work/out")"; failed=1; }
same "the other was asked" "$(grep -c ^stop "$work/did") $(left)" "1 2 3 4 5 "
refused "all are off" fence-exports 1 7 nbd://10.0.1.2
begin
refused "a machine is off, another does not answer" sh -c "touch '$work/down.root@10.0.1.1'; exec fence-exports 1 7 nbd://10.0.1.1 nbd://10.0.1.2"
begin
conf "${whole}off\n"
refused "off without a machine" fence-exports 1 7 nbd://10.0.1.1
conf "${whole}off 10.0.1.1 10.0.1.2\n"
refused "off with two" fence-exports 1 7 nbd://10.0.1.1 nbd://10.0.1.2

# Two halves of a cluster fence each other: the one that comes second to the first machine gets nowhere. Which is the first is said by the
# machines, not by what a node calls them: here each node has names of its own, which sort the other way round.
machine() { # NAME ID
	mkdir -p "$work/lib.$1/ddraid-export/disks"
	echo /dev/null >"$work/lib.$1/ddraid-export/disks/sdb"
	echo "$2 $(cat /etc/machine-id 2>/dev/null || echo none)" >"$work/lib.$1/ddraid-export/id"
}
a=aaaaaaaa-0000-4000-8000-000000000000 b=bbbbbbbb-0000-4000-8000-000000000000
refused_at() {
	cat "$work/lib.$1/ddraid-export/refused/$2" 2>/dev/null || echo none
}
for ids in "$a $b" "$b $a"; do
	read -r id1 id2 <<<"$ids"
	begin
	machine d1 "$id1"
	machine d2 "$id2"
	conf 'node 1 10.0.0.1\nnode 2 10.0.0.2\ndisks da d1\ndisks db d2\ndisks x1 d2\ndisks x2 d1\n'
	ok "the first of two" env OWN_ADDRESS=10.0.0.1 fence-exports 2 22 nbd://da nbd://db
	: >"$work/asked"
	refused "the second" env OWN_ADDRESS=10.0.0.2 fence-exports 1 11 nbd://x1 nbd://x2
	same "it fences nowhere" "$(refused_at d1 10.0.0.1) $(refused_at d2 10.0.0.1)" "none none"
	same "and asks nobody to, since it is refused itself" "$(sed -n 's/^10.0.0.2 asks \(.*\): ddraid-export \(try\|fence\).*/\1/p' "$work/asked")" ''
	ok "the first, once more" env OWN_ADDRESS=10.0.0.1 fence-exports 2 22 nbd://db nbd://da
	# Both at once: one wins, at both machines, and wins again.
	begin
	machine d1 "$id1"
	machine d2 "$id2"
	env OWN_ADDRESS=10.0.0.1 fence-exports 2 22 nbd://da nbd://db >"$work/out1" 2>&1 &
	env OWN_ADDRESS=10.0.0.2 fence-exports 1 11 nbd://x1 nbd://x2 >"$work/out2" 2>&1
	r2=$? r1=0
	wait $! || r1=$?
	same "one of two wins" "$(((r1 == 0) + (r2 == 0)))" 1
	loser=10.0.0.1 winner=10.0.0.2 its=11
	[ $r1 != 0 ] || loser=10.0.0.2 winner=10.0.0.1 its=22
	same "the other is refused everywhere" "$(refused_at d1 $loser) $(refused_at d2 $loser)" "$its $its"
	same "and it nowhere" "$(refused_at d1 $winner) $(refused_at d2 $winner)" "none none"
done

# Of two arrays on some of the same machines: A refuses B at d1, B refuses A at d2 meanwhile. One of the two gets both.
c=cccccccc-0000-4000-8000-000000000000
three() {
	begin
	machine d1 $a
	machine d2 $b
	machine d3 $c
	conf 'node 1 10.0.0.1\nnode 2 10.0.0.2\nnode 3 10.0.0.3\ndisks d1\ndisks d2\ndisks d3\n'
}
by() { # NODE COMMAND...: without the life
	local node=$1
	shift
	env OWN_ADDRESS=10.0.0.$node "$@"
}
who_is_refused() {
	local host node
	for host in d1 d2 d3; do
		for node in 1 2 3; do
			[ "$(refused_at $host 10.0.0.$node)" = none ] || printf '%s ' $host:$node
		done
	done
}
three
echo "OWN_ADDRESS=10.0.0.2 fence-exports 1 11 nbd://d2 nbd://d3" >"$work/before.d2"
refused "A, for d1 and d2, when B came first to d2" by 1 fence-exports 2 22 nbd://d1 nbd://d2
same "takes back what it had tried" "$(who_is_refused)" "d2:1 d3:1 "
same "and has ended no connection by it" "$(grep -c 'stop .*10\.0\.0\.2:' "$work/did")" 0
ok "B, for d1 and d2" by 2 fence-exports 1 12 nbd://d1 nbd://d2
same "has both arrays" "$(who_is_refused)" "d1:1 d2:1 d3:1 "
refused "A, once more" by 1 fence-exports 2 22 nbd://d1 nbd://d2
refused "A, for the other one" by 1 fence-exports 2 23 nbd://d2 nbd://d3
same "refuses nobody" "$(who_is_refused)" "d1:1 d2:1 d3:1 "

# A fence that was done stays, whatever becomes of who asked for it.
three
ok "A fences B" by 1 fence-exports 2 22 nbd://d1 nbd://d2
ok "C fences A" by 3 fence-exports 1 11 nbd://d2 nbd://d3
refused "A fences B once more" by 1 fence-exports 2 22 nbd://d1 nbd://d2
same "B stays refused" "$(refused_at d1 10.0.0.2) $(refused_at d2 10.0.0.2)" "22 22"
ok "A takes it back" by 1 ssh d1 ddraid-export withdraw 10.0.0.2 22 10.0.0.1
same "it does not" "$(refused_at d1 10.0.0.2)" 22
# Nor is what another asked for taken back.
three
for order in '1 3' '3 1'; do
	read -r one other <<<"$order"
	ok "one tries" by $one ssh d1 ddraid-export try 10.0.0.2 22 10.0.0.$one
	ok "and again" by $one ssh d1 ddraid-export try 10.0.0.2 22 10.0.0.$one
	ok "the other tries" by $other ssh d1 ddraid-export try 10.0.0.2 22 10.0.0.$other
	ok "one takes it back" by $one ssh d1 ddraid-export withdraw 10.0.0.2 22 10.0.0.$one
	ok "twice" by $one ssh d1 ddraid-export withdraw 10.0.0.2 22 10.0.0.$one
	same "that of the other stays" "$(refused_at d1 10.0.0.2)" 22
	ok "the other takes it back" by $other ssh d1 ddraid-export withdraw 10.0.0.2 22 10.0.0.$other
	same "nothing stays" "$(refused_at d1 10.0.0.2)" none
done
ok "A tries" by 1 ssh d1 ddraid-export try 10.0.0.2 22 10.0.0.1
ok "of another life" by 1 ssh d1 ddraid-export withdraw 10.0.0.2 23 10.0.0.1
same "that is another" "$(refused_at d1 10.0.0.2)" 22
ok "C fences" by 3 ssh d1 ddraid-export fence 10.0.0.2 22 10.0.0.3
ok "A takes back" by 1 ssh d1 ddraid-export withdraw 10.0.0.2 22 10.0.0.1
same "what C has fenced stays" "$(refused_at d1 10.0.0.2)" 22
ok "A tries what is fenced" by 1 ssh d1 ddraid-export try 10.0.0.2 22 10.0.0.1
ok "A takes back" by 1 ssh d1 ddraid-export withdraw 10.0.0.2 22 10.0.0.1
same "what is fenced stays" "$(refused_at d1 10.0.0.2)" 22
ok "B's life has ended" by 2 ssh d1 ddraid-export own 10.0.0.2 22
same "no note is left" "$(ls "$work/lib.d1/ddraid-export/tried")" ''

# Both at once, for two arrays each, run again as ddraidd does: one of them gets both.
three
both() { # NODE OTHER LIFE LIFE
	local won=0 i
	for i in 1 2 3 4 5 6; do
		won=0
		by $1 fence-exports $2 $3 nbd://d1 nbd://d2 >/dev/null 2>&1 && won=$((won + 1))
		by $1 fence-exports $2 $4 nbd://d2 nbd://d3 >/dev/null 2>&1 && won=$((won + 1))
		[ $won != 2 ] || break
	done
	return $((2 - won))
}
both 1 2 22 23 &
both 2 1 11 12
r2=$? r1=0
wait $! || r1=$?
case "$r1 $r2 $(who_is_refused)" in
'0 2 d1:2 d2:2 d3:2 ' | '2 0 d1:1 d2:1 d3:1 ') ;;
*)
	echo "FAILED: of two nodes and two arrays: status $r1 $r2, refused $(who_is_refused)"
	failed=1
	;;
esac

begin
machine d1 $a
machine d2 $b
touch "$work/down.root@d2" "$work/down.d2"
conf 'node 1 10.0.0.1\nnode 2 10.0.0.2\ndisks d1\ndisks d2\n'
refused "one machine says nothing" env OWN_ADDRESS=10.0.0.1 fence-exports 2 22 nbd://d1 nbd://d2
same "then none is asked to fence, since another may be the first" "$(refused_at d1 10.0.0.2)" none
conf 'node 1 10.0.0.1\nnode 2 10.0.0.2\ndisks D1.\n'
for uri in nbd://d1 nbd://D1/x nbd://d1.:10809; do
	ok "the same name: $uri" env OWN_ADDRESS=10.0.0.1 fence-exports 2 22 $uri
done

# Of all the addresses that a node has.
for lines in 'node 1 10.0.0.1 10.0.0.11\n' 'node 1 10.0.0.11\nnode 1 10.0.0.1\n'; do
	begin
	conf "disks 10.0.1.1\n$lines"
	ok "two addresses: $lines" fence-exports 1 7 nbd://10.0.1.1
	same "two addresses: $lines" "$(left)" "3 4 5 "
	begin
	conf "disks 10.0.1.1\n${lines%\\n}"
	ok "no end of the last line: $lines" fence-exports 1 7 nbd://10.0.1.1
	same "no end of the last line: $lines" "$(left)" "3 4 5 "
done

begin
conf "$whole"
refused "no URI" fence-exports 1 7
refused "no life" fence-exports 1
refused "a node that is not there" fence-exports 3 7 nbd://10.0.1.1
refused "a machine that is not there" fence-exports 1 7 nbd://10.0.1.1 nbd://10.0.1.3
refused "a URI of another kind" fence-exports 1 7 nbd://10.0.1.1 iscsi://10.0.1.2/x/1
refused "a life that is none" fence-exports 1 x nbd://10.0.1.1
for text in 'node 1\ndisks 10.0.1.1\n' 'node\n' 'disks\n' 'nodes 1 10.0.0.1\n' 'node 1 10.0.0.1\\r\ndisks 10.0.1.1\n'; do
	conf "$text"
	refused "the file '$text'" fence-exports 1 7 nbd://10.0.1.1
done
rm "$DDRAID_FENCE_CONF"
refused "no file" fence-exports 1 7 nbd://10.0.1.1
same "none of these ended anything" "$(left)" "1 2 3 4 5 "

# What could not be fenced is known before it has to be.
begin
conf "$whole"
echo 10.0.0.1 >"$work/own"
check() { # STATUS URI...
	local want=$1 status=0
	shift
	fence-exports --check "$@" >"$work/out" 2>&1 || status=$?
	same "a check of $*" "$status" "$want"
}
check 0 nbd://10.0.1.1 nbd://10.0.1.2:10809/x
check 0
check 78 nbd://10.0.1.1 nbd://10.0.1.3
grep -q "no line 'disks 10.0.1.3', which nbd://10.0.1.3" "$work/out" || { echo "FAILED: it doesn't say why: $(cat "$work/out")"; failed=1; }
for uri in /dev/sda nbd+unix:///x?socket=/run/x iscsi://10.0.1.1/x/1 'nbd://x@10.0.1.1/'; do
	check 78 "$uri" nbd://10.0.1.1 nbd://10.0.1.9
	same "each is named" "$(wc -l <"$work/out")" 2
done
echo 10.0.0.77 >"$work/own"
check 78 nbd://10.0.1.1
echo 10.0.0.1 >"$work/own"
conf 'nodes 1 10.0.0.1\n'
check 78 nbd://10.0.1.1
rm "$DDRAID_FENCE_CONF"
check 78 nbd://10.0.1.1
same "nothing was asked of the machines" "$(cat "$work/did")" ''

# Itself: its last life has ended.
begin
conf "$whole"
ok "its own last life" fence-exports 1 7 nbd://10.0.1.1
same "what was ended" "$(left)" "2 3 4 5 "
same "no mark is left, and that life is over" "$(mark refused/10.0.0.1) $(mark over/10.0.0.1)" "none 7"
# A machine that is off may have refused it: it is told when it is back, of this life only.
conf "${whole}off 10.0.1.2\n"
ok "its own last life, and a machine is off" fence-exports 1 8 nbd://10.0.1.1 nbd://10.0.1.2
same "it is told later" "$(grep -c '^run .*--admit 0 8$' "$work/did")" 1
echo 8 >/var/lib/ddraid-export/refused/10.0.0.1
echo 6 >>/var/lib/ddraid-export/refused/10.0.0.1
sed -i '/8/d' /var/lib/ddraid-export/over/10.0.0.1
refused "later, and another life was fenced" fence-exports --admit 0 8
same "which stays" "$(mark refused/10.0.0.1)" 6
ok "that is over, too" fence-exports --admit 0 6
rm -r /var/lib/ddraid-export/{over,refused}
conf "$whole"
ok "its own last life" fence-exports 1 7 nbd://10.0.1.1
mkdir -p /var/lib/ddraid
echo 9 >/var/lib/ddraid/incarnation
ok "all disks admit it" fence-exports --admit
same "up to that life" "$(mark over/10.0.0.1 | tr '\n' ' ')" "7 9 "
touch "$work/runs"
rm /var/lib/ddraid-export/over/10.0.0.1
: >"$work/did"
ok "while ddraidd runs" fence-exports --admit
same "ends nothing" "$(grep -c '^stop' "$work/did")" 0
same "no life is over by that" "$(mark over/10.0.0.1)" 0
rm "$work/runs"

# ddraidd starts although one does not answer and one is off: they are asked in the background, as long as it takes.
begin
conf "${whole}disks 10.0.1.3\noff 10.0.1.3\n"
mkdir -p /var/lib/ddraid
echo 9 >/var/lib/ddraid/incarnation
touch "$work/down.other" "$work/down.root@10.0.1.3"
ok "one is down and one off" fence-exports --admit
same "the third" "$(mark over/10.0.0.1)" 9
same "the two" "$(grep -oE 'by .* yet' "$work/out") $(grep -c '^run .*--admit 9$' "$work/did")" "by 10.0.1.3 10.0.1.2 yet 1"
refused "in the background" fence-exports --admit 9
rm "$work"/down.*
rm -r /var/lib/ddraid-export/over
ok "in the background, later" fence-exports --admit 9
same "and then it is admitted" "$(mark over/10.0.0.1)" 9

# The state directory is lost, or the machine was installed anew and its clock is behind: numbers go on after what the disks know.
begin
conf "$whole"
ok "it was fenced" ddraid-export fence 10.0.0.1 2000
: >"$work/did"
ok "a start without a state directory" fence-exports --admit
same "numbers go on" "$(cat /var/lib/ddraid/incarnation)" 2000
same "it is let in" "$(mark refused/10.0.0.1) $(mark over/10.0.0.1)" "none 2000"
same "requests of earlier starts have ended before" "$(head -n 1 "$work/did")" "stop ddraid-admit-*.service"
ok "once more" fence-exports --admit
same "that changes nothing" "$(cat /var/lib/ddraid/incarnation; cat "$work/out")" 2000
echo 3000 >/var/lib/ddraid/incarnation
ok "a greater one" fence-exports --admit
same "stays" "$(cat /var/lib/ddraid/incarnation)" 3000
touch "$work/runs"
ok "it is fenced" ddraid-export fence 10.0.0.1 4000
ok "it asks to be admitted while it runs" fence-exports --admit
same "it stays refused" "$(mark refused/10.0.0.1) $(cat /var/lib/ddraid/incarnation)" "4000 3000"
rm "$work/runs"
echo 9223372036854775807 >/var/lib/ddraid-export/refused/10.0.0.1
ok "a number that no node has reached" fence-exports --admit
same "is not taken over" "$(cat /var/lib/ddraid/incarnation)" 3000
same "and keeps nobody out for ever" "$(mark refused/10.0.0.1)" none
echo 9223372036854775807 >/var/lib/ddraid-export/refused/10.0.0.1
sed -i /9223372036854775807/d /var/lib/ddraid-export/over/10.0.0.1
refused "a word that is not of a start" ddraid-export admit 10.0.0.1 0 3000
same "lets nobody in by that" "$(mark refused/10.0.0.1)" 9223372036854775807
for text in '' x 08 '-1'; do
	echo "$text" >/var/lib/ddraid/incarnation
	refused "a number that is none: '$text'" fence-exports --admit
done

# The last life of each array is over by name: a fence that comes late finds it so.
begin
conf "$whole"
mkdir -p /var/lib/ddraid
echo 9 >/var/lib/ddraid/incarnation
{ printf DDRAIDRC; head -c 24 /dev/zero; printf '\007\0\0\0\0\0\0\0'; head -c 984 /dev/zero; } >/var/lib/ddraid/a.record
{ printf WHATELSE; head -c 24 /dev/zero; printf '\006\0\0\0\0\0\0\0'; head -c 984 /dev/zero; } >/var/lib/ddraid/b.record
: >/var/lib/ddraid/c.record
ok "a start" fence-exports --admit
same "its lives" "$(mark over/10.0.0.1 | tr '\n' ' ')" "9 7 "
ok "a late fence" ddraid-export fence 10.0.0.1 7
same "refuses nobody" "$(mark refused/10.0.0.1)" none
[ $failed = 0 ]
