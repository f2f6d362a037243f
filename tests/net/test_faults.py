"""What goes wrong: hostile and slow clients, dead servers, a dead relay. Nothing crashes, nothing
passes, and what has nothing to do with it goes on."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

import harness
import sessions
from test_escapes import proxy_bytes
from test_filtered import CURL, PLAIN, allow, reached


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as listed:
        return [int(word) for word in listed.read().split()]


def name_of(pid):
    with open(f"/proc/{pid}/comm") as comm:
        return comm.read().strip()


def relay_of(process):
    """The relay's pid, once it is there."""
    for _ in range(500):
        found = [pid for pid in children(process.pid) if name_of(pid) == "sandbox-relay"]
        if found:
            return found[0]
        time.sleep(0.01)
    raise AssertionError("no relay")


def resident_kilobytes(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def has_ended(pid):
    try:
        with open(f"/proc/{pid}/stat") as status:
            return status.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


@pytest.fixture
def session(net):
    with lines_of_shell(net) as process:
        yield process


@pytest.fixture
def scarce_session(net):
    """One with few descriptors."""
    with lines_of_shell(net, ["prlimit", "--nofile=300:300"]) as process:
        yield process


@contextlib.contextmanager
def lines_of_shell(net, before=()):
    """A session that runs lines of shell from its standard input, one at a time."""
    options = allow("good.test", "silent.test", "dead.test")
    process = net.popen([*before, *net.wrap(["sh"], options)], stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(line):
        process.stdin.write(f"{line}; echo END $?\n")
        process.stdin.flush()
        said = ""
        while not (got := process.stdout.readline()).startswith("END"):
            assert got, f"the session has ended: {said}"
            said += got
        return int(got.split()[1]), said

    process.run = run
    yield process
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.wait(10)
    process.stdout.close()


LONG = pytest.mark.skipif(not os.environ.get("SANDBOX_TEST_LONG"),
                          reason="waits for the relay's patience; with SANDBOX_TEST_LONG=1")
GOOD = "curl -sS -m 10 --noproxy '*' http://good.test/"


# ---- the relay ----


def test_relay_killed(net, session):
    assert session.run(GOOD)[0] == 0
    session.run("curl -sN -m 20 --noproxy '*' telnet://good.test:22 >/tmp/out 2>&1 & "
                "for i in $(seq 100); do grep -q HELLO /tmp/out && break; sleep 0.1; done")
    os.kill(relay_of(session), signal.SIGKILL)
    code, said = session.run(GOOD)
    assert code in (6, 7, 28) and "203.0.113.10" not in said, said
    assert session.run("curl -sS -m 3 http://good.test/")[0] in (5, 7), "the proxy is gone, too"
    assert session.run("curl -sS -m 3 --noproxy '*' http://203.0.113.10/")[0] == 7
    code, said = session.run("wait; cat /tmp/out")
    assert "HELLO" in said, "and the open connection has ended"
    assert session.run("echo still here")[1] == "still here\n"


def test_no_relay_before_it_is_used(net, session):
    session.run("true")
    assert "sandbox-relay" not in [name_of(pid) for pid in children(session.pid)]
    assert session.run(GOOD)[0] == 0
    assert relay_of(session)


def test_relay_stopped_holds_nobody_up(net, session):
    """The monitor never waits for it: the control socket answers."""
    session.run(GOOD)
    relay = relay_of(session)
    os.kill(relay, signal.SIGSTOP)
    try:
        sid = session.run("echo $SANDBOX")[1].strip()
        stats = net.execute([net.world.command, "stats", "--once", "--json", sid], None, None, 10,
                            False, ())
        assert json.loads(stats.stdout)["network"]["connections"] == 1, stats
    finally:
        os.kill(relay, signal.SIGCONT)
    assert session.run(GOOD)[0] == 0


# Two questions in one connection: the second is asked while the first is being answered.
TWO_QUESTIONS = """
import socket, struct, sys
def question(number):
    name = b"".join(bytes([len(part)]) + part.encode() for part in (str(number), "late", "test"))
    message = struct.pack("!HHHHHH", number, 0x100, 1, 0, 0, 0) + name + b"\\0\\0\\1\\0\\1"
    return struct.pack("!H", len(message)) + message
first = int(sys.argv[1])
asking = socket.create_connection(("127.0.0.53", 53), timeout=15)
asking.sendall(question(first) + question(first + 1))
with asking.makefile("rb") as answers:
    for number in (first, first + 1):
        answer = answers.read(struct.unpack("!H", answers.read(2))[0])
        print(struct.unpack("!HHHH", answer[:8]) == (number, 0x8180, 1, 1), flush=True)
"""


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("identity", harness.SOME, indirect=True)
def test_name_servers_change_while_a_name_is_looked_up(net, changed):
    net.internet.queries.clear()
    first = "3" if changed else "1"
    process = net.popen(net.wrap(["/usr/bin/python3", "-c", TWO_QUESTIONS, first], allow("*.late.test")),
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert sessions.eventually(lambda: net.internet.was_asked(f"{first}.late.test"))
    if changed:
        with open(net.internet.resolver, "a") as resolver:
            resolver.write("# changed\n")
    out, err = process.communicate(timeout=30)
    assert out == "True\nTrue\n" and "has ended" not in err, (out, err)


@pytest.fixture
def own_etc(net):
    """An /etc in which files can be replaced, in our own mount namespace."""
    folder = os.path.join(net.internet.folder, "etc")
    subprocess.run(["cp", "-a", "/etc", folder], check=True)
    subprocess.run(["mount", "--bind", folder, "/etc"], check=True)
    yield
    subprocess.run(["umount", "/etc"], check=True)
    shutil.rmtree(folder)


def replace(path, text, renames):
    written = path + ".new" if renames else path
    with open(written, "w") as out:
        out.write(text)
    if renames:
        os.rename(written, path)


@pytest.mark.parametrize("renames", [False, True], ids=["written", "renamed"])
def test_files_about_names_are_replaced(net, own_etc, renames):
    """Who waits for a name server that is no more is answered by the new one."""
    replace("/etc/resolv.conf", "nameserver 203.0.113.99\n", False)
    script = ("curl -sS -m 10 --noproxy '*' http://good.test/first & until [ -e go ]; do sleep 0.02; done\n"
              "curl -sS -m 10 --noproxy '*' http://www.good.test/second; wait\n"
              "curl -sS -m 10 http://hosts.test/third")
    process = net.popen(net.wrap(["sh", "-c", script], allow("good.test", "www.good.test", "hosts.test")),
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    relay_of(process)
    time.sleep(0.5)
    replace("/etc/resolv.conf", "nameserver 203.0.113.53\n", renames)
    replace("/etc/hosts", "127.0.0.1 localhost\n203.0.113.10 hosts.test\n", renames)
    net.identity.file(net.path("go"), "")
    out, err = process.communicate(timeout=30)
    reached_paths = {json.loads(line)["path"] for line in out.splitlines()}
    assert reached_paths == {"/first", "/second", "/third"}, (out, err)


def test_monitor_killed_takes_the_relay_along(net, session):
    session.run(GOOD)
    relay = relay_of(session)
    os.kill(session.pid, signal.SIGKILL)
    assert sessions.eventually(lambda: has_ended(relay)), "the relay lives on"
    session.wait(5)
    net.plain([net.world.command, "ps"])  # tidies up after the dead


def test_relay_is_confined(net, session):
    session.run(GOOD)
    relay = relay_of(session)
    with open(f"/proc/{relay}/status") as status:
        fields = dict(line.split(":\t", 1) for line in status.read().splitlines() if ":\t" in line)
    assert fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2"
    assert int(fields["CapEff"], 16) == 0 and int(fields["CapPrm"], 16) == 0
    links = [os.readlink(f"/proc/{relay}/fd/{fd}") for fd in os.listdir(f"/proc/{relay}/fd")]
    assert all(link.startswith(("socket:", "anon_inode:[eventpoll]", "/dev/null", "pipe:"))
               for link in links), links


# ---- servers ----


def test_dead_name_server(net, session):
    """A name that is never answered; others are, meanwhile."""
    session.run("(getent hosts silent.test; echo $?) >/tmp/out & sleep 0.2")
    began = time.monotonic()
    assert session.run(GOOD)[0] == 0
    assert time.monotonic() - began < 5


def test_dead_server(net, session):
    session.run("curl -sS -m 20 --noproxy '*' http://dead.test/ >/tmp/out 2>&1 & sleep 0.2")
    assert session.run(GOOD)[0] == 0


def test_server_that_never_reads(net, session):
    """What it does not take stays with the program: the relay holds no more than a little."""
    relay_was_used = session.run(GOOD)
    assert relay_was_used[0] == 0
    relay = relay_of(session)
    session.run("head -c 80000000 /dev/zero | timeout 20 curl -sS -m 15 --noproxy '*' -T - "
                "telnet://good.test:9 >/dev/null 2>&1 & sleep 0.7")
    assert session.run(GOOD)[0] == 0
    assert resident_kilobytes(relay) < 40_000
    session.run("kill %1 2>/dev/null")


def test_server_that_refuses(net):
    result = net.run([*CURL, "-w", "%{http_code}", "http://good.test:9999/"],
                     options=allow("good.test"))
    assert "cannot reach good.test:9999: connecting: Connection refused" in result.stdout
    assert result.stdout.endswith("502")
    assert net.run([*PLAIN, "http://good.test:9999/"], options=allow("good.test")).exit in (7, 52, 56)


# ---- clients ----


def test_head_of_100_kilobytes(net):
    text = b"GET http://good.test/ HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n"
    answer = proxy_bytes(net, text[:90_000], allow("good.test"))
    assert "431" in answer, answer
    fine = b"GET http://good.test/ HTTP/1.1\r\nConnection: close\r\nX: " + b"a" * 30_000 + b"\r\n\r\n"
    assert "200 OK" in proxy_bytes(net, fine, allow("good.test"))


def test_slow_and_half_open_clients(net):
    """Hundreds of connections that say nothing or half of something are in nobody's way."""
    script = """
import socket, subprocess
held = []
for part in (b"", b"\\x05", b"GET http://good", b"CONNECT good.test:443 HTTP/1.1\\r\\n"):
    for _ in range(100):
        s = socket.create_connection(("127.0.0.1", 61080)); s.sendall(part); held.append(s)
for _ in range(100):
    s = socket.create_connection(("good.test", 443)); s.sendall(b"\\x16\\x03\\x01"); held.append(s)
print(subprocess.run(["curl", "-sS", "-m", "10", "http://good.test/"]).returncode)
"""
    result = net.run(["python3", "-c", script], options=allow("good.test"))
    assert result.stdout.endswith("0\n") and "203.0.113.10" in result.stdout, result


HALF_CLOSED = """
import socket, time
proxy, server, names = ("127.0.0.1", 61080), ("good.test", 443), ("127.0.0.53", 53)
halves = [(proxy, b""), (proxy, b"\\x05"), (proxy, b"\\x05\\x02\\x00"), (proxy, b"\\x05\\x01\\x00"),
          (proxy, b"\\x05\\x01\\x00\\x05\\x01\\x00\\x03\\x09good.test\\x00"), (proxy, b"GET http://good"),
          (proxy, b"CONNECT good.test:443 HTTP/1.1\\r\\n"),
          (proxy, b"POST http://good.test/ HTTP/1.1\\r\\nContent-Length: 3\\r\\n\\r\\nab"),
          (proxy, b"CONNECT good.test:443 HTTP/1.1\\r\\n\\r\\n\\x16\\x03\\x01\\x02"),
          (server, b"\\x16\\x03\\x01\\x02\\x00\\x01"), (names, b"\\x00"), (names, b"\\x00\\x30\\x12\\x34")]
def start(where, text, half):
    s = socket.create_connection(where, 10)
    s.sendall(text)
    if half: s.shutdown(socket.SHUT_WR)
    return s
slow = [start(*half, False) for half in halves]
closing = [start(*half, True) for half in halves]
def heard(s):
    out = b""
    try:
        while part := s.recv(65536): out += part
    except ConnectionResetError: pass
    return out
for s in closing: print(heard(s).split(b"\\r\\n")[0])
for s in slow: s.settimeout(0.01)
def is_held(s):
    try: return bool(s.recv(2)) # a SOCKS greeting was answered
    except socket.timeout: return True
    except ConnectionError: return False
print(all(map(is_held, slow)))
"""


def test_half_closed_clients(net):
    """Who has ended before its request has can never complete it, and is not waited for: 30 seconds
    would be beyond its patience. Who is only slow is held."""
    result = net.run(["python3", "-c", HALF_CLOSED], options=allow("good.test"))
    *answers, held = result.stdout.splitlines()
    assert held == "True", result
    assert len(answers) == 12 and not any("200 OK" in answer for answer in answers), answers
    assert answers[5] == answers[6] == "b'HTTP/1.1 400 Bad Request'", answers


HOLD = """
import socket, sys, time
def fill():
    held = []
    for i in range(int(sys.argv[1])):
        held.append(socket.create_connection(("good.test", 7), 10))
        talk(held[-1], b"%d" % i)
    return held
def talk(s, text):
    s.sendall(text)
    assert s.recv(100) == text
for _ in range(2):
    held = fill()
    for text in (b"once", b"more"):
        for s in held: talk(s, text)
    held[0].shutdown(socket.SHUT_WR) # half an end, by whoever has it
    assert held[0].recv(100) == b""
    for s in held[1:]: s.close()
held = fill()
print("full", flush=True)
sys.stdin.readline()
for s in held:
    try: assert s.recv(100) == b""
    except ConnectionResetError: pass
print("all have ended", flush=True)
"""


@pytest.mark.works
def test_more_connections_than_descriptors(net, scarce_session):
    """300 descriptors are 84 connections; the relay's annex has as many. Both carry on with what they
    have, neither forgets who has gone, and when the relay dies nothing lives on."""
    net.identity.file(net.path("hold.py"), HOLD)
    session = scarce_session
    session.stdin.write("python3 hold.py 160\n")
    session.stdin.flush()
    assert session.stdout.readline() == "full\n"
    relay = relay_of(session)
    annex, = children(relay)
    assert name_of(annex) == "sandbox-relay"
    assert len(os.listdir(f"/proc/{annex}/fd")) > 140
    sid = [one["sid"] for one in json.loads(net.plain([net.world.command, "ps", "--json"]).stdout)
           if one["pid"] == session.pid]
    figures = net.plain([net.world.command, "stats", "--once", "--json", *sid])
    figures = json.loads(figures.stdout)["network"]
    assert figures["active"] == 160 and figures["connections"] == 480, figures
    assert figures["sent"] == figures["received"] > 160 * 2 * 8, figures
    os.kill(relay, signal.SIGKILL)
    session.stdin.write("\n")
    session.stdin.flush()
    assert "all have ended\n" in (session.stdout.readline(), session.stdout.readline())
    assert sessions.eventually(lambda: has_ended(annex)), "the annex lives on"


def test_annex_killed(net, scarce_session):
    """What it carried ends; the relay goes on, with fewer."""
    assert scarce_session.run(GOOD)[0] == 0
    annex, = children(relay_of(scarce_session))
    os.kill(annex, signal.SIGKILL)
    assert scarce_session.run("python3 -c 'import socket\nfor i in range(300): "
                              "socket.create_connection((\"good.test\", 7), 10)'")[0] == 0
    assert scarce_session.run(GOOD)[0] == 0


def test_out_of_descriptors(net):
    """More connections than the relay and its annex may have files: those beyond wait, are refused
    when nobody has ended for a while, and it comes back."""
    script = """
import socket, subprocess
held, refused = [], 0
for _ in range(250):
    s = socket.create_connection(("198.18.0.1", 7), 20); s.sendall(b"x"); held.append(s)
for s in held:
    try: refused += s.recv(1) != b"x"
    except ConnectionResetError: refused += 1
print(refused, flush=True)
for s in held: s.close()
print(subprocess.run(["curl", "-sS", "-m", "15", "--noproxy", "*", "http://good.test/"]).returncode)
"""
    argv = ["sh", "-c", "getent hosts good.test >/dev/null; python3 -c \"$0\"", script]
    result = net.run(argv, options=allow("good.test"), before=["prlimit", "--nofile=300:300"])
    refused, *_, status = result.stdout.splitlines()
    assert int(refused) == 250 - 2 * 84 and status == "0", result


PIPELINED = """
import socket, threading
question = b"\\x12\\x34\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0\\x04good\\x04test\\0\\0\\x01\\0\\x01"
count = 20000
s = socket.create_connection(("127.0.0.53", 53), 20)
threading.Thread(target=s.sendall, args=((b"\\0%c" % len(question) + question) * count,)).start()
left = count * (2 + len(question) + 16) # each answer has an address more
while left > 0: left -= len(s.recv(1 << 20)) or count * 100
print(left)
"""


def test_many_questions_at_once(net):
    """By one TCP connection. The answer is remembered, so each is answered at once."""
    script = "getent hosts good.test >/dev/null; python3 -c \"$0\" && curl -sS http://good.test/"
    result = net.run(["sh", "-c", script, PIPELINED], options=allow("good.test"))
    said, web = result.stdout.splitlines()
    assert said == "0" and "203.0.113.10" in web, result


def test_answers_before_the_answer(net, session):
    """Several heads at once (103, then 200) and no end of them: the first are all passed on, the others
    not beyond what the client takes."""
    for _ in range(2):
        assert session.run("curl -sS -m 5 http://good.test/hints; echo")[1] == "hints\n"
    session.run("printf 'GET http://good.test/continue HTTP/1.1\\r\\n\\r\\n' >request; "
                "sleep 5 | timeout 5 python3 -c 'import socket, time; "
                "s = socket.create_connection((\"127.0.0.1\", 61080)); "
                "s.sendall(open(\"request\", \"rb\").read()); time.sleep(5)' & sleep 1")
    assert session.run(GOOD)[0] == 0
    assert resident_kilobytes(relay_of(session)) < 40_000
    session.run("kill %1 2>/dev/null")


@pytest.mark.parametrize("path, reason", [
    ("half", "in the middle of an answer's head"),
    ("half-hints", "in the middle of an answer's head"),
    ("line-feeds", "its answer cannot be read"),
    pytest.param("stuck", "no answer in time", marks=LONG),
])
def test_answer_whose_head_has_no_end(net, session, path, reason):
    """By the HTTP proxy: whoever asked is told so, and does not wait for ever."""
    code, said = session.run(f"curl -sS -m 45 -w '%{{http_code}}\\n' http://good.test/{path}")
    assert code == 0 and said.endswith("502\n") and reason in said, said
    _, said = session.run("curl -sS -m 5 http://good.test/hints http://good.test/chunked; echo")
    assert said == "hintsone two three\n", "others are answered"


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_garbage(net, kind):
    """Whatever bytes come, the next honest request is answered."""
    script = f"""
import random, socket, subprocess
random.seed(7)
hello = bytes.fromhex("1603010200010001fc0303") + bytes(40)
dns = bytes.fromhex("123401000001000000000000") + b"\\x04good\\x04test\\x00\\x00\\x01\\x00\\x01"
socks = b"\\x05\\x01\\x00\\x05\\x01\\x00\\x03\\x09good.test\\x00\\x50"
web = b"GET http://good.test/ HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 3\\r\\n\\r\\nabc"
def damaged(text):
    text = bytearray(text)
    for _ in range(random.randrange(1, 4)):
        text[random.randrange(len(text))] = random.randrange(256)
    return bytes(text[:random.randrange(1, len(text) + 1)])
for i in range(400):
    if "{kind}" == "udp":
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.sendto(damaged(dns) if i % 2 else random.randbytes(random.randrange(600)), ("127.0.0.53", 53))
    else:
        where = [("127.0.0.1", 61080), ("good.test", 443), ("127.0.0.53", 53)][i % 3]
        text = [socks, hello, len(dns).to_bytes(2, "big") + dns][i % 3] if i % 2 else web
        s = socket.create_connection(where); s.sendall(damaged(text)); s.close()
print(subprocess.run(["curl", "-sS", "-m", "10", "http://good.test/"]).returncode)
"""
    result = net.run(["python3", "-c", script], options=allow("good.test"))
    assert result.stdout.endswith("0\n") and "203.0.113.10" in result.stdout, result


def test_clients_that_vanish_leave_nothing(net, session):
    """Killed in the middle, with much on its way to them and by every way in."""
    script = ("for way in '--noproxy *' '' '-p' '-x socks5h://127.0.0.1:61080'; do for i in 1 2 3; do "
              "timeout -s KILL 0.3 curl -s --limit-rate 1k $way http://good.test/big >/dev/null; "
              "done; done 2>/dev/null")
    session.run("set -f; " + script)
    sid = session.run("echo $SANDBOX")[1].strip()
    for _ in range(100):
        stats = net.execute([net.world.command, "stats", "--once", "--json", sid], None, None, 10,
                            False, ())
        network = json.loads(stats.stdout)["network"]
        if network["active"] == 0:
            break
        time.sleep(0.05)
    assert network["active"] == 0 and network["connections"] > 0, network
    sockets = [link for link in os.listdir(f"/proc/{relay_of(session)}/fd")]
    assert len(sockets) < 20, sockets


HANG_UP = """
import socket
for i in range(100):
    s = socket.create_connection(("127.0.0.1", 61080), 10)
    s.sendall(b"GET http://good.test/big HTTP/1.1\\r\\n\\r\\n")
    s.recv(1 + 3000 * i)
    s.close() # with more on its way: a reset
"""


def test_clients_that_hang_up_leave_nothing(net, session):
    """The reset may be told to the relay while it is writing: that must not be all it hears of it."""
    net.identity.file(net.path("hang-up.py"), HANG_UP)
    assert session.run("python3 hang-up.py")[0] == 0
    relay = relay_of(session)
    assert sessions.eventually(lambda: len(os.listdir(f"/proc/{relay}/fd")) < 20), \
        len(os.listdir(f"/proc/{relay}/fd"))


# ---- upstream proxies ----

# Who resolves with the C library takes each of them for 127.0.0.1.
LOOPBACK = ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.0.0.0x1", "127.0.0.0X1", "0x7f.1",
            "0177.0.0.0x1", "[::ffff:127.0.0.1]", "[::1]", "localhost", "LOCALHOST.", "a.localhost"]
CONNECTS = """
import socket, sys
for host in sys.argv[1:]:
    s = socket.create_connection(("127.0.0.1", 61080))
    s.sendall(b"CONNECT %s:80 HTTP/1.1\\r\\n\\r\\n" % host.encode())
    print(host, s.recv(100).split()[1].decode())
"""


@pytest.mark.works
@pytest.mark.parametrize("kind", ["http", "socks"])
def test_through_an_upstream_proxy(net, kind):
    """The relay of one session is the upstream of another: its ports are reached by `publish`."""
    import socket
    import threading
    seen = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=handle, args=(client,), daemon=True).start()

    def handle(client):
        if kind == "http":
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(1)
            seen.append(head.split()[1].decode())
            host, port = seen[-1].rsplit(":", 1)
            answer = b"HTTP/1.1 200 OK\r\n\r\n"
        else:
            head = client.recv(3) + client.recv(5)
            name = client.recv(head[7])
            port = int.from_bytes(client.recv(2), "big")
            host = name.decode()
            seen.append(f"{host}:{port}")
            client.sendall(b"\x05\x00")
            answer = b"\x05\x00\x00\x01" + bytes(6)
        server = socket.create_connection(("203.0.113.10", int(port)))
        client.sendall(answer)
        threading.Thread(target=copy, args=(client, server), daemon=True).start()
        copy(server, client)

    def copy(source, target):
        try:
            while part := source.recv(65536):
                target.sendall(part)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    threading.Thread(target=serve, daemon=True).start()
    key = "http_proxy" if kind == "http" else "socks_proxy"
    policy = net.identity.file(net.home("up.yaml"), "version: 1\nnetwork: {mode: filtered, "
                               f"allow: [elsewhere.test], {key}: '{listener.getsockname()[1]}'}}\n")
    try:
        for curl in (PLAIN, CURL):
            result = net.run([*curl, "http://elsewhere.test/"], options=["--policy", policy])
            assert reached(result)["host"] == "elsewhere.test"
        assert seen == ["elsewhere.test:80"] * 2
        net.internet.queries.clear()
        refused = net.run([*CURL, "-f", "http://evil.test/"], options=["--policy", policy])
        assert refused.exit == 22 and len(seen) == 2
        full = net.identity.file(net.home("full.yaml"), "version: 1\nnetwork: {mode: full, "
                                 f"{key}: '{listener.getsockname()[1]}'}}\n")
        guarded = net.run([*CURL, "-f", "http://10.1.2.3/"], options=["--policy", full])
        assert guarded.exit == 22 and len(seen) == 2
        result = net.run(["python3", "-c", CONNECTS, *LOOPBACK, "more.test"],
                         options=["--policy", full])
        statuses = dict(line.split() for line in result.stdout.splitlines())
        assert statuses.pop("more.test") == "200", f"control: {result}"
        assert set(statuses) == set(LOOPBACK) and "200" not in statuses.values(), result
        assert seen[2:] == ["more.test:80"]
    finally:
        listener.close()
