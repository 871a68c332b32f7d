#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# ddraid-export ends the connections of a node that stands still, or that the network cut off, as a paused virtual machine
# is: nothing that it has not sent by then lands later. Others' connections stay. In network namespaces of its own, as root.
set -u
top_srcdir=$(cd "${top_srcdir:-$(dirname "$0")/../..}" && pwd)
[ "$(id -u)" = 0 ] && unshare --mount --net true 2>/dev/null || { echo "skipped: needs root"; exit 77; }
for p in ip perl nbdkit python3; do
	command -v $p >/dev/null || { echo "skipped: no $p"; exit 77; }
done
[ -n "${SILENT_INSIDE:-}" ] || SILENT_INSIDE=yes exec unshare --mount --net bash "$0"
work=$(mktemp -d) || exit 1
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
mkdir -p "$work/ddraid-export/disks"
mount --bind "$work" /var/lib || exit 1
truncate -s 8M "$work/disk"
echo "$work/disk" >/var/lib/ddraid-export/disks/sdb

# The node is a second namespace, at the other end of a veth. The exporter's end goes down: nothing comes back, and nobody says so.
unshare --net sleep 300 &
node=$!
until [ "$(readlink /proc/$node/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add ve0 type veth peer name ve1 netns $node && ip addr add 10.9.9.1/24 dev ve0 && ip link set ve0 up && ip link set lo up &&
	nsenter -t $node -n ip addr add 10.9.9.2/24 dev ve1 && nsenter -t $node -n ip link set ve1 up || exit 1
/usr/bin/python3 - "$top_srcdir/cluster-conf/ddraid-export" $node <<'PYTHON'
import ctypes, os, signal, socket, struct, subprocess, sys, threading, time

export, node = sys.argv[1:]
listener = socket.create_server(('0.0.0.0', 10809))
servers = []

def connect(host, inside=False):
    """A client, and the process that serves it; the socket is made in the node's namespace."""
    def make():
        if inside:
            fd = os.open('/proc/%s/ns/net' % node, os.O_RDONLY)
            assert not ctypes.CDLL(None, use_errno=True).setns(fd, 0x40000000)
            os.close(fd)
        result.append(socket.create_connection((host, 10809), timeout=10))
    result = []
    t = threading.Thread(target=make)  # setns is the thread's
    t.start()
    server, _ = listener.accept()
    t.join()
    p = subprocess.Popen([export, 'serve', 'sdb'], stdin=server, stdout=server)
    server.close()
    s = result[0]
    assert s.recv(18, socket.MSG_WAITALL)[:8] == b'NBDMAGIC'
    s.sendall(struct.pack('>I8sII', 3, b'IHAVEOPT', 1, 0))  # NBD_OPT_EXPORT_NAME ''
    assert len(s.recv(10, socket.MSG_WAITALL)) == 10
    return s, p

def request(s, kind, offset, length, data=b''):
    s.sendall(struct.pack('>IHHQQI', 0x25609513, 0, kind, 1, offset, length) + data)

def answered(s, length=0):
    return len(s.recv(16 + length, socket.MSG_WAITALL)) == 16 + length

def fail(text):
    sys.exit('FAILED: ' + text)

idle = connect('10.9.9.1', True)
behind = connect('10.9.9.1', True)  # answers are on their way to it
other = connect('127.0.0.1')
for s, p in idle, behind, other:
    request(s, 1, 0, 512, b'a' * 512)
    answered(s) or fail('a write is not answered')
request(behind[0], 0, 0, 4 << 20)
time.sleep(0.2)
subprocess.check_call(['ip', 'link', 'set', 've0', 'down'])
began = time.monotonic()
# What it sends from here on is in its kernel, as it is in that of a machine which is paused.
request(idle[0], 1, 4096, 512, b'b' * 512)
for name, (s, p) in ('idle', idle), ('with answers on their way', behind):
    try:
        p.wait(30 - (time.monotonic() - began))
    except subprocess.TimeoutExpired:
        fail('the connection %s is there after 30 s' % name)
    took = time.monotonic() - began
    if took > 20:
        fail('the connection %s ended only after %.1f s' % (name, took))
    if took < 3:
        fail('the connection %s ended at once, after %.1f s' % (name, took))
    print('%s: ended after %.1f s' % (name, took))
other[1].poll() is None or fail("another's connection has ended, too")
request(other[0], 1, 0, 512, b'c' * 512)
answered(other[0]) or fail("another's write is not answered")
subprocess.check_call(['ip', 'link', 'set', 've0', 'up'])
idle[0].settimeout(60)
try:
    answered(idle[0]) and fail('its old write was answered')
except (ConnectionError, TimeoutError) as e:
    isinstance(e, ConnectionResetError) or fail('its old connection was not reset: %r' % e)
disk = open('/var/lib/disk', 'rb').read()
disk[4096:4608] == bytes(512) or fail('its old write has landed')
disk[:512] == b'c' * 512 or fail("another's write is not there")
other[0].close()
other[1].wait(10)
PYTHON
