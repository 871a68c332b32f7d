# SPDX-License-Identifier: GPL-2.0-or-later
# Cases of front_nbd.sh that need a client's finer points: front_nbd.py CASE. Wants libnbd's module;
# the server's socket and control FIFO come from the script.
import errno
import os
import resource
import signal
import socket
import struct
import sys
import time

import nbd

SOCK = os.environ["sock"]
URI = os.environ["uri"]
DIR = os.environ["dir"]
MIB = 1 << 20
SIZE_8G = 8192 * MIB


def say(line):
    with open(DIR + "/control", "w") as f:
        f.write(line + "\n")


def stats():
    with open(DIR + "/out") as f:
        before = len(f.readlines())
    say("stats")
    end = time.monotonic() + 10
    while True:
        with open(DIR + "/out") as f:
            lines = f.readlines()
        if len(lines) > before and lines[-1].endswith("\n"):
            words = lines[-1].split()
            return dict(zip(words[::2], map(int, words[1::2])))
        assert time.monotonic() < end, "no stats"
        time.sleep(0.005)


def wait_for(what, limit=15):
    end = time.monotonic() + limit
    while not what():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def connect(strict=True):
    h = nbd.NBD()
    if not strict:
        h.set_strict_mode(0)
    h.connect_uri(URI)
    return h


def expect(err, f, *args):
    try:
        f(*args)
    except nbd.Error as e:
        assert e.errnum == err, (e.errnum, err, str(e))
        return
    assert False, "it should have failed"


# --- a client without a library ---


class Raw:
    def __init__(self, serve=True):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.settimeout(20)
        self.s.connect(SOCK)
        self.cookie = 0
        if serve:
            self.greeted()
            self.go()

    def greeted(self):
        assert self.recv(18) == b"NBDMAGICIHAVEOPT\0\3"

    def go(self):
        self.s.sendall(struct.pack(">I", 3) + option(7, struct.pack(">IH", 0, 0)))
        while True:
            magic, opt, kind, n = struct.unpack(">QIII", self.recv(20))
            assert magic == 0x3E889045565A9 and opt == 7
            self.recv(n)
            if kind == 1:
                return

    def recv(self, n):
        b = b""
        while len(b) < n:
            got = self.s.recv(n - len(b))
            if not got:
                raise EOFError
            b += got
        return b

    def send(self, cmd, offset=0, n=0, flags=0, data=b""):
        self.cookie += 1
        self.s.sendall(request(cmd, offset, n, flags, self.cookie) + data)
        return self.cookie

    def reply(self, data_bytes=0):
        magic, err, cookie = struct.unpack(">IIQ", self.recv(16))
        assert magic == 0x67446698
        return cookie, err, self.recv(data_bytes) if not err else b""

    def closed(self):
        try:
            while self.s.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True


def option(opt, data=b""):
    return b"IHAVEOPT" + struct.pack(">II", opt, len(data)) + data


def request(cmd, offset=0, n=0, flags=0, cookie=1):
    return struct.pack(">IHHQQI", 0x25609513, flags, cmd, cookie, offset, n)


READ, WRITE, DISC, FLUSH, TRIM, ZEROES = 0, 1, 2, 3, 4, 6

# --- cases ---


def libnbd():
    h = connect(strict=False)
    assert h.get_size() == SIZE_8G
    assert h.get_block_size(nbd.SIZE_MINIMUM) == 4096
    assert h.get_block_size(nbd.SIZE_MAXIMUM) == 32 * MIB
    data = os.urandom(MIB)
    h.pwrite(data, 4096)
    assert h.pread(MIB, 4096) == data
    h.pwrite(data[:8192], SIZE_8G - 8192, nbd.CMD_FLAG_FUA)
    assert h.pread(8192, SIZE_8G - 8192) == data[:8192]
    before = stats()
    assert before["fua"] == 1
    h.flush()
    h.trim(65536, 4096)
    h.zero(65536, 4096 + 65536, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
    assert h.pread(131072, 4096) == bytes(131072)
    assert h.pread(MIB - 131072, 4096 + 131072) == data[131072:]
    s = stats()
    assert s["unmap"] - before["unmap"] == 1 and s["fua"] - before["fua"] == 1, s
    # The largest requests; zeroes that are longer go to the sink in pieces.
    big = os.urandom(32 * MIB)
    h.pwrite(big, 64 * MIB)
    assert h.pread(32 * MIB, 64 * MIB) == big
    h.zero((1 << 32) - 4096, 4096)
    assert h.pread(32 * MIB, 64 * MIB) == bytes(32 * MIB)
    before = stats()
    assert before["rejected"] == 0 and before["failed"] == 0
    # Alignment, range, flags: errors that leave the connection alone.
    expect(errno.EINVAL, h.pread, 512, 0)
    expect(errno.EINVAL, h.pread, 4096, 512)
    expect(errno.EINVAL, h.pwrite, bytes(4095), 0)
    expect(errno.EINVAL, h.zero, 4096, 2048)
    expect(errno.EINVAL, h.trim, 2048, 4096)
    expect(errno.EINVAL, h.pread, 4096, SIZE_8G)
    expect(errno.EINVAL, h.pread, 8192, SIZE_8G - 4096)
    expect(errno.ENOSPC, h.pwrite, bytes(4096), SIZE_8G)
    expect(errno.ENOSPC, h.pwrite, bytes(8192), SIZE_8G - 4096)
    expect(errno.ENOSPC, h.zero, 4096, SIZE_8G)
    expect(errno.EINVAL, h.zero, 4096, 0, nbd.CMD_FLAG_FAST_ZERO)
    expect(errno.EINVAL, h.cache, 4096, 0)
    assert stats()["rejected"] == before["rejected"] + 12
    # What the sink fails.
    say("fail 1")
    wait_for(lambda: stats()["failed"] == 0)
    expect(errno.ENOSPC, h.pread, 4096, 0)
    assert h.pread(4096, 0) == bytes(4096)
    h.shutdown()
    listed = []
    h = nbd.NBD()
    h.set_opt_mode(True)
    h.connect_unix(SOCK)
    assert h.opt_list(lambda name, text: listed.append((name, text)) or 0) == 1
    assert listed == [("ram", "memory for tests")]
    h.set_export_name("nope")
    expect(errno.ENOENT, h.opt_info)
    h.set_export_name("ram")
    h.opt_info()
    assert h.get_size() == SIZE_8G and h.get_canonical_export_name
    h.opt_go()
    assert h.pread(4096, 0) == bytes(4096)
    h.shutdown()


def multi_conn():
    hs = [connect() for _ in range(8)]
    assert all(h.can_multi_conn() for h in hs)
    for round_ in range(20):
        for i, h in enumerate(hs):
            h.pwrite(bytes([round_ * 8 + i]) * 8192, i * 8192)
        hs[round_ % 8].flush()
        for i in range(8):
            assert hs[(i + 3) % 8].pread(8192, i * 8192) == bytes([round_ * 8 + i]) * 8192
    for h in hs:
        h.shutdown()


def malformed():
    """Whatever one client sends, another one goes on, and the sender is closed or told."""
    other = connect()
    greeting = struct.pack(">I", 3)
    go = greeting + option(7, struct.pack(">IH", 0, 0))
    ends = [
        b"\xff" * 64,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack(">I", 0x80000003),
        greeting + b"X" * 16,
        greeting + b"IHAVEOPT" + struct.pack(">II", 7, 1 << 31),
        greeting + option(3) * 100,
        greeting + option(1, b"nope"),
        go + b"\0" * 28,
        go + request(FLUSH) + b"Y" * 28,
        go + request(WRITE, 0, 64 * MIB),
        go + request(WRITE, 0, 0xFFFFFFFF),
    ]
    for i, bad in enumerate(ends):
        r = Raw(serve=False)
        try:
            r.s.sendall(bad)
        except BrokenPipeError:
            pass
        assert r.closed()
        other.pwrite(bytes([i]) * 4096, 4096)
        assert other.pread(4096, 4096) == bytes([i]) * 4096
    assert stats()["violations"] == len(ends), stats()
    # Cut off at every length, closed by the client: nothing of it stays.
    whole = go + request(READ, 0, 4096) + request(WRITE, 0, 8192) + bytes(8192) + request(DISC)
    for n in list(range(0, 120)) + [500, 8000, len(whole)]:
        r = Raw(serve=False)
        r.s.sendall(whole[:n])
        r.s.close()
    wait_for(lambda: stats()["clients"] == 1)
    assert stats()["buffers"] == 0
    # Rejected ones are answered in their turn, a rejected write's payload is skipped.
    r = Raw()
    r.send(9, 0, 4096)
    assert r.reply()[1] == errno.EINVAL
    r.send(WRITE, 512, 4096, data=request(DISC) * 146 + bytes(8))
    assert r.reply()[1] == errno.EINVAL
    for _ in range(1000):
        r.send(READ, 1, 1)
    for _ in range(1000):
        assert r.reply()[1] == errno.EINVAL
    r.send(FLUSH)
    assert r.reply()[1] == 0
    r.send(DISC)
    assert r.closed()
    # Reasons are logged, but not without bound.
    with open(DIR + "/err") as f:
        log = f.read()
    assert "bad magic of a request" in log and "unknown handshake flags" in log, log
    assert 0 < len(log.splitlines()) < 100
    # Byte by byte.
    r = Raw()
    for b in request(WRITE, 0, 4096) + b"z" * 4096:
        r.s.sendall(bytes([b]))
    assert r.reply()[1] == 0
    for b in request(READ, 0, 4096):
        r.s.sendall(bytes([b]))
    assert r.reply(4096)[2] == b"z" * 4096
    r.s.close()
    other.shutdown()


def hundred_clients():
    hs = [connect() for _ in range(100)]
    for h in hs:
        for k in range(4):
            h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(b"%04d" % (k + 1) * 1024)), k * 4096)
    for h in hs:
        while h.aio_in_flight():
            h.poll(-1)
    for i, h in enumerate(hs):
        h.pwrite(b"%04d" % i * 4096, (i + 4) * 16384)
    for i, h in enumerate(hs):
        assert hs[99 - i].pread(16384, (i + 4) * 16384) == b"%04d" % i * 4096
    s = stats()
    assert s["clients"] == 100 and s["writes"] == 500, s
    for h in hs:
        h.shutdown()


def too_many_clients():
    """A client for whom there is no place is told so by the end of its connection."""
    rs = [Raw() for _ in range(128)]
    for _ in range(50):
        assert Raw(serve=False).closed()
    with open(DIR + "/err") as f:
        assert 0 < f.read().count("turned a client away") <= 30
    rs[77].send(READ, 0, 4096)
    assert rs[77].reply(4096)[1] == 0
    rs.pop(5).s.close()
    wait_for(lambda: stats()["clients"] == 127)
    late = Raw()
    late.send(FLUSH)
    assert late.reply()[1] == 0
    for r in rs + [late]:
        r.s.close()


def disconnect_waits():
    """What is in flight at a DISC is answered before the connection ends."""
    r = Raw()
    say("hold")
    sent = [r.send(READ, i * 4096, 4096) for i in range(8)] + [
        r.send(WRITE, 65536, 4096, data=b"d" * 4096)
    ]
    r.send(DISC)
    wait_for(lambda: stats()["inflight"] == 9)
    r.s.settimeout(0.3)
    try:
        r.recv(1)
        assert False, "something came before its time"
    except TimeoutError:
        pass
    r.s.settimeout(20)
    say("release")
    got = []
    for _ in range(9):
        magic, err, cookie = struct.unpack(">IIQ", r.recv(16))
        assert err == 0
        if cookie != sent[-1]:
            r.recv(4096)
        got.append(cookie)
    assert sorted(got) == sent and got != sent, "in order: %s" % got
    assert r.closed()


def half_close():
    """A client that only closed its sending half still gets its answers."""
    r = Raw()
    say("hold")
    r.send(READ, 0, 4096)
    r.s.shutdown(socket.SHUT_WR)
    wait_for(lambda: stats()["inflight"] == 1)
    say("release")
    assert r.reply(4096)[1] == 0
    assert r.closed()


def killed_client():
    """A client dies with writes in flight and one half sent: buffers stay until the sink is done."""
    other = connect()
    say("hold")
    pid = os.fork()
    if pid == 0:
        r = Raw()
        for i in range(16):
            r.send(WRITE, i * 65536, 65536, data=b"k" * 65536)
        for i in range(16):
            r.send(READ, i * 65536, 65536)
        r.send(WRITE, 4 * MIB, 65536, data=b"k" * 5000)
        time.sleep(60)
        os._exit(1)
    wait_for(lambda: stats()["inflight"] == 32 and stats()["buffers"] == 33 * 65536)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    wait_for(lambda: stats()["buffers"] == 32 * 65536)  # the half one goes at once
    s = stats()
    assert s["inflight"] == 32 and s["writes"] == 17, s
    say("release")
    wait_for(lambda: stats()["inflight"] == 0 and stats()["buffers"] == 0)
    assert stats()["clients"] == 1
    assert other.pread(MIB, 0) == b"k" * MIB
    assert other.pread(65536, 4 * MIB) == bytes(65536)
    other.shutdown()


def reset():
    """R6: every open ends, requests in flight get EIO, who comes back waits for the new serve."""
    rs = [Raw() for _ in range(20)]
    h = connect()
    h.pwrite(b"a" * 4096, 0)
    say("hold")
    sent = [
        {r.send(READ, 0, 4096), r.send(WRITE, MIB, 8192, data=b"r" * 8192), r.send(ZEROES, 0, 64 * MIB)}
        for r in rs[1:]
    ]
    rs[1].s.sendall(request(WRITE, 2 * MIB, 65536) + b"half")
    wait_for(lambda: stats()["inflight"] == 57)
    say("reset")
    for r, cookies in zip(rs[1:], sent):
        for _ in range(3):
            cookie, err, _ = r.reply()
            assert err == errno.EIO
            cookies.remove(cookie)
        assert r.closed()
    assert rs[0].closed()
    try:
        h.pread(4096, 0)
        assert False, "an old open was served"
    except nbd.Error:
        pass
    s = stats()
    assert s["clients"] == 0 and s["inflight"] == 57 and s["dropped"] == 21, s
    late = Raw(serve=False)
    late.s.settimeout(0.3)
    try:
        late.greeted()
        assert False, "served while shut"
    except TimeoutError:
        pass
    late.s.settimeout(20)
    say("serve")
    late.greeted()
    late.go()
    c = late.send(READ, 4096, 4096)
    wait_for(lambda: stats()["inflight"] == 58)
    say("release")
    assert late.reply(4096) == (c, 0, bytes(4096))
    wait_for(lambda: stats()["inflight"] == 0)
    s = stats()
    # The first piece of each long ZEROES only: nothing of a dropped open is submitted any more.
    assert s["clients"] == 1 and s["buffers"] == 0, s
    late.send(DISC)
    assert late.closed()
    say("reset")
    say("serve")
    connect().shutdown()


def held():
    """Nobody is told an error of what the sink still has; each open ends with its last answer."""
    rs = [Raw() for _ in range(3)]
    say("hold")
    write = rs[1].send(WRITE, MIB, 8192, data=b"h" * 8192)
    zeroes = rs[1].send(ZEROES, 64 * MIB, 96 * MIB)
    wait_for(lambda: stats()["inflight"] == 2)
    lost = rs[2].send(WRITE, 2 * MIB, 4096, data=b"l" * 4096)
    rs[2].s.sendall(request(WRITE, 3 * MIB, 65536) + b"half")
    wait_for(lambda: stats()["inflight"] == 3)
    say("end")
    say("end")
    assert rs[0].closed()
    late = Raw(serve=False)
    for r in [late] + rs[1:]:
        r.s.settimeout(0.3)
        try:
            r.recv(1)
            assert False, "answered before it had ended"
        except TimeoutError:
            pass
        r.s.settimeout(20)
    rs[1].send(READ, 0, 4096)  # not taken in any more
    s = stats()
    assert s["clients"] == 2 and s["inflight"] == 3, s
    say("fail 1")  # the last that was submitted is answered first
    say("release")
    assert sorted(rs[1].reply()[:2] for _ in range(2)) == [(write, 0), (zeroes, 0)]
    cookie, err, _ = rs[2].reply()
    assert cookie == lost and err == errno.ENOSPC
    assert rs[1].closed() and rs[2].closed()
    wait_for(lambda: stats()["clients"] == 0)
    s = stats()
    assert s["inflight"] == 0 and s["buffers"] == 0, s
    say("serve")
    late.greeted()
    late.go()
    late.send(READ, MIB, 8192)
    assert late.reply(8192)[2] == b"h" * 8192
    late.send(READ, 3 * MIB, 4096)
    assert late.reply(4096)[2] == bytes(4096)
    late.send(DISC)
    assert late.closed()
    say("reset")
    say("serve")
    connect().shutdown()


def write_and_read(h, n):
    """n times a MiB; the seconds that each took."""
    took = []
    for i in range(n):
        begin = time.monotonic()
        h.pwrite(b"s" * MIB, i % 64 * MIB)
        assert h.pread(MIB, i % 64 * MIB) == b"s" * MIB
        took.append(time.monotonic() - begin)
    return took


def stalled_client():
    """Clients that don't read their replies hold the pool; the others go on, and it comes back."""
    h = connect()
    quick = sorted(write_and_read(h, 20))[10]
    dropped = stats()["dropped"]

    def stall(*lengths):
        r = Raw()
        for length in lengths:
            r.send(READ, 0, length)
        return r

    # To the last byte: 64 MiB each, of which 1 MiB is a client's own, and then the last 4 MiB.
    two_and_more = 32 * MIB, 32 * MIB, 4096, 4096, 4096, 4096
    stalled = [stall(*two_and_more) for _ in range(4)] + [stall(5 * MIB)]
    wait_for(lambda: stats()["buffers"] == 261 * MIB)
    took = write_and_read(h, 200)
    assert stats()["dropped"] == dropped, "others had to wait for what the stalled hold"
    stalled += [stall(*two_and_more) for _ in range(4)]
    took += write_and_read(h, 200)
    assert sum(took) < 4 + 4 * 400 * quick, "400 took %.1f s, one before %.3f s" % (sum(took), quick)
    held = stats()["buffers"]
    assert held <= (256 + 9) * MIB, held
    # A small reader among the stalled: it stalls, but nobody needs its memory.
    quiet = Raw()
    for i in range(64):
        quiet.send(READ, 0, 16384)
    # Large requests wait for the pool; the stalled ones are dropped for it after a while.
    begin = time.monotonic()
    assert len(h.pread(32 * MIB, 0)) == 32 * MIB
    took = time.monotonic() - begin
    assert took < 15, "%.1f s" % took
    assert stats()["dropped"] > dropped
    for i in range(64):
        assert quiet.reply(16384)[1] == 0
    # Many requests, no reading: the server stops reading, and all are answered in the end.
    n = 0
    quiet.s.setblocking(False)
    whole = request(READ, 0, 65536)
    try:
        while n < 100000:
            sent = quiet.s.send(whole)
            assert sent == len(whole)
            n += 1
    except BlockingIOError:
        pass
    assert 64 < n < 100000
    assert stats()["buffers"] <= (256 + 10) * MIB
    quiet.s.setblocking(True)
    quiet.s.settimeout(20)
    for _ in range(n):
        assert quiet.reply(65536)[1] == 0
    for r in stalled + [quiet]:
        r.s.close()
    h.shutdown()


def half_a_request():
    """A request that stops in the middle ends its connection; silence between requests does not."""
    idle, head, payload, slow, held = Raw(), Raw(), Raw(), Raw(), Raw()
    idle.send(FLUSH)
    assert idle.reply()[1] == 0
    whole = request(WRITE, 0, 65536)
    head.s.sendall(whole[:11])
    payload.s.sendall(whole + b"x" * 100)
    slow.s.sendall(whole)
    say("hold")
    for _ in range(64):  # all its slots are taken; what follows is not read
        held.send(READ, 0, 4096)
    held.s.sendall(whole[:11])
    begin = time.monotonic()
    for i in range(6):
        slow.s.sendall(b"y" * 10000)
        time.sleep(1)
    assert head.closed() and payload.closed()
    with open(DIR + "/err") as f:
        assert f.read().count("a part of a request") == 2
    say("release")
    for _ in range(64):
        assert held.reply(4096)[1] == 0
    held.s.sendall(whole[11:] + bytes(65536))
    assert held.reply()[1] == 0
    slow.s.sendall(b"y" * 5536)
    assert slow.reply()[1] == 0
    idle.send(FLUSH)
    assert idle.reply()[1] == 0
    for r in (idle, slow, held):
        r.s.close()


def slow_handshake():
    """A place in the table is not kept for somebody who never negotiates."""
    r = Raw(serve=False)
    idle = Raw()
    r.greeted()
    begin = time.monotonic()
    assert r.closed()
    took = time.monotonic() - begin
    assert 1.5 < took < 8, took
    idle.send(FLUSH)  # one that is through may be silent
    assert idle.reply()[1] == 0
    idle.s.close()


def removed():
    """Whoever removes the socket's file disturbs nobody who is connected, not even who waits."""

    def said(words):
        with open(DIR + "/err") as f:
            return f.read().count(words)

    def remove():
        os.unlink(SOCK)
        wait_for(lambda: os.path.exists(SOCK) and os.stat(SOCK).st_mode & 0o777 == 0o660)

    old = Raw()
    remove()
    new = Raw()
    for r in old, new:
        r.send(FLUSH)
        assert r.reply()[1] == 0
    assert said(SOCK + " was removed: made again") == 1
    say("reset")
    assert old.closed() and new.closed()
    waits = [Raw(serve=False) for _ in range(40)]
    remove()
    waits += [Raw(serve=False) for _ in range(3)]
    say("serve")
    for r in waits:
        r.greeted()
        r.go()
        r.send(FLUSH)
        assert r.reply()[1] == 0
        r.s.close()
    # What is another's is left to him, and that is said once.
    other = socket.socket(socket.AF_UNIX)
    os.unlink(SOCK)
    other.bind(SOCK)
    other.listen()
    wait_for(lambda: said("another program serves there"))
    time.sleep(1.5)
    assert said("another program serves there; stop it") == 1
    other.close()
    wait_for(lambda: said("made again") == 3)
    Raw().s.close()


def quit_with_requests_held():
    r = Raw()
    say("hold")
    r.send(READ, 0, 65536)
    r.send(WRITE, 0, 65536, data=bytes(65536))
    r.send(WRITE, 0, 65536, data=bytes(6))
    wait_for(lambda: stats()["inflight"] == 2)
    say("quit")
    assert r.reply()[1] == errno.EIO
    assert r.reply()[1] == errno.EIO
    assert r.closed()


resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
globals()[sys.argv[1]]()
