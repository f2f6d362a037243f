"""Who may be connected to is decided by the connector (src/engine/connector.h), which asks in dynamic
mode: tests/gate/test_sockets_of_others.py."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

import gates
from harness import DYNAMIC
from test_network import listener

PEER = os.environ.get("SANDBOX_PEER")
pytestmark = [pytest.mark.escape,
              pytest.mark.skipif(bool(PEER), reason="a promise of ours, not of other sandboxes")]
STATIC = pytest.mark.skipif(DYNAMIC, reason="dynamic mode asks about datagrams by its gate")
SECONDS = 60 if gates.LONG else 1
RACES = ("address", "link", "socket")


@contextlib.contextmanager
def served(box, path):
    """A server of the host that accepts everything."""
    with listener(box, path) as server:
        def accept():
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            os.unlink(path)


@contextlib.contextmanager
def session(box, argv, options=()):
    """A command that waits in a session until it may go on: what the host makes then comes later
    than its start."""
    name = "ready-" + os.urandom(4).hex()
    script = f"touch {name}; until [ -e {name}.go ]; do sleep 0.02; done; exec \"$@\""
    process = box.start(["sh", "-c", script, "sh", *argv], text=True, options=list(options),
                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def finish(timeout=30):
        box.identity.file(box.path(name + ".go"), "")
        return process.communicate(timeout=timeout)[0]
    try:
        wait_for(lambda: os.path.exists(box.path(name)))
        yield finish
    finally:
        process.kill()
        process.wait(10)


def wait_for(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it does not happen")


def counts(said):
    found = re.search(r"tries (\d+) own (\d+) leaks (\d+)", said)
    assert found, said
    return dict(zip(("tries", "own", "leaks"), map(int, found.groups())))


def race_argv(box, how, seconds, host):
    return [gates.program(box.world, "connect-race"), how, str(seconds), f"own-{how}.sock", host,
            f"link-{how}"]


@pytest.mark.parametrize("place", ["home", "path"], ids=["home", "project"])
def test_no_race_is_won(box, place):
    """A second thread changes the address, a link in it, or the socket behind the number, while the
    call is looked at. Against a supervisor that lets the kernel look again each of them wins."""
    host = getattr(box, place)("late", "control.sock")
    box.identity.folder(os.path.dirname(host))
    with contextlib.ExitStack() as stack:
        finishes = {how: stack.enter_context(session(box, race_argv(box, how, SECONDS, host)))
                    for how in RACES}
        stack.enter_context(served(box, host))
        results, threads = {}, []
        for how, finish in finishes.items():
            thread = threading.Thread(
                target=lambda how=how, finish=finish: results.update({how: finish(SECONDS + 30)}))
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join()
        for how in RACES:
            result = counts(results[how])
            print(f"{how}: {result}")
            assert result["leaks"] == 0, (how, result)
            assert result["tries"] > 50 and result["own"] > 0, (how, result)
        for how in RACES:
            argv = [gates.program(box.world, "gate-naive"), host, *race_argv(box, how, 0.3, host)]
            assert any(counts(box.plain(argv).stdout)["leaks"] > 0 for _ in range(10)), f"control of {how}"


KINDS = r"""
import os, socket, struct, threading, time
STREAM, PACKETS, DATAGRAMS = socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM
def new(kind=STREAM, family=socket.AF_UNIX): return socket.socket(family, kind)
here = os.open(".", os.O_RDONLY)
for place in ("own.sock", "./own.sock", os.getcwd() + "/own.sock", "/tmp/own.sock", "\0abstract",
              f"/proc/self/fd/{here}/own.sock", "/proc/self/cwd/own.sock"):
    for kind in (STREAM, PACKETS, DATAGRAMS):
        server, client = new(kind), new(kind)
        server.bind(place)
        if kind != DATAGRAMS: server.listen()
        client.connect(place)
        client.send(b"hello")
        other = server if kind == DATAGRAMS else server.accept()[0]
        assert other.recv(9) == b"hello", (place, kind)
        if kind == DATAGRAMS: client.sendto(b"again", place); assert other.recv(9) == b"again"
        if place[0] != "\0": os.unlink(place)
os.symlink("own.sock", "link"); server = new(); server.bind("own.sock"); server.listen(0)
first = new(); first.connect("link")
busy = new(); busy.setblocking(False); print("full", busy.connect_ex("own.sock"))
slow = new(); slow.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 100000))
print("late", slow.connect_ex("own.sock"))
threading.Timer(0.2, server.accept).start()
patient = new(); patient.connect("own.sock"); print("blocking", os.get_blocking(patient.fileno()))
for name in ("missing", "/etc/passwd", "/etc/passwd/x", "x" * 100): print(new().connect_ex(name))
server.close(); print("stale", new().connect_ex("own.sock"))
os.unlink("own.sock"); os.unlink("link")
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname()); print("inet")
c = new(STREAM, socket.AF_INET); print(c.connect_ex(("127.0.0.1", 1)))
try: os.close(c.fileno()); c.connect(("127.0.0.1", 1))
except OSError as error: print(error.errno)
"""


def datagrams_wanted(box):
    policy = box.identity.file(box.home("datagrams.yaml"),
                               "version: 1\nnetwork: {unix_datagrams: true}\n")
    return ["--policy", policy]


@pytest.mark.works
def test_sockets_of_ones_own(box):
    """Of all kinds and names, with queues that are full, and what is no socket: as outside."""
    argv = ["/usr/bin/python3", "-c", KINDS]
    inside, outside = box.run(argv, options=datagrams_wanted(box)), box.plain(argv)
    assert inside.exit == outside.exit == 0, (inside, outside)
    assert inside.stdout == outside.stdout


@pytest.mark.works
def test_blocked_connect_hears_signals(box):
    script = ("import signal, socket\n"
              "def stop(*_): raise TimeoutError\n"
              "signal.signal(signal.SIGALRM, stop)\n"
              "server = socket.socket(socket.AF_UNIX); server.bind('full.sock'); server.listen(0)\n"
              "socket.socket(socket.AF_UNIX).connect('full.sock')\n"
              "signal.setitimer(signal.ITIMER_REAL, 0.2)\n"
              "try: socket.socket(socket.AF_UNIX).connect('full.sock')\n"
              "except TimeoutError: print('heard')\n")
    assert box.run(["/usr/bin/python3", "-c", script]).stdout.strip() == "heard"


# Many wait for a server that takes its time; then for another that has taken its name.
CROWD = """
import os, socket, threading, time
def serve(backlog):
    server = socket.socket(socket.AF_UNIX)
    server.bind("new.sock")
    server.listen(backlog)
    server.settimeout(10)
    os.rename("new.sock", "full.sock")
    return server
def join():
    client = socket.socket(socket.AF_UNIX)
    client.connect("full.sock")
    client.recv(1)
server, web = serve(0), socket.create_server(("127.0.0.1", 0), backlog=64)
crowd = [threading.Thread(target=join) for _ in range(400)]
for one in crowd: one.start()
time.sleep(2)
began = time.monotonic()
others = [socket.create_connection(web.getsockname()) for _ in range(20)]
print("others", time.monotonic() - began < 3, flush=True)
for _ in range(100): server.accept()[0].close()
second = serve(100)
server.close() # and one or two in its queue with it
for _ in range(290): second.accept()[0].close()
print("joined", flush=True)
os._exit(0)
"""


@pytest.mark.works
def test_crowd_that_waits_holds_nobody_up(box):
    result = box.run(["/usr/bin/python3", "-c", CROWD], timeout=60)
    assert result.stdout == "others True\njoined\n", result


def test_socket_that_policy_names(box):
    """Also when its server starts anew. The command cannot give the name to another one."""
    listed, other = box.home("listed", "a.sock"), box.path("other.sock")
    mine = box.path("mine.sock")
    policy = box.identity.file(box.home("sockets.yaml"), "version: 1\nnetwork: {unix_sockets: "
                               f"['{listed}', '{mine}']}}\n")
    tries = (f"{box.attempt} unix {listed}; {box.attempt} unix {mine}; {box.attempt} unix {other}; "
             f"mv {mine} {mine}.old || echo KEPT; mv {other} {mine} || echo KEPT")
    with contextlib.ExitStack() as stack:
        stack.enter_context(served(box, mine))
        with served(box, listed):
            finish = stack.enter_context(session(box, ["sh", "-c", tries], ["--policy", policy]))
        stack.enter_context(served(box, listed))
        stack.enter_context(served(box, other))
        assert box.plain([box.attempt, "unix", other]).verdict()[0] == "OPEN", "control"
        verdicts = [line.split()[0] for line in finish().splitlines()]
    assert verdicts == ["OPEN", "OPEN", "DENIED", "KEPT", "KEPT"]


def named(box, path):
    return ["--policy", box.identity.file(box.home("sockets.yaml"),
                                          f"version: 1\nnetwork: {{unix_sockets: ['{path}']}}\n")]


def test_folder_of_a_socket_that_policy_names(box):
    """Whoever moves it away could make another in its place. The control: another folder can be moved."""
    good, bad = box.path("a", "good.sock"), box.path("bad.sock")
    tries = (f"{box.attempt} unix {good}; mkdir b && mv b c && echo MOVED; mv a x || echo KEPT; mkdir -p a; "
             f"mv {bad} {good} || echo KEPT; sleep 0.4; {box.attempt} unix {good}.none; {box.attempt} unix {bad}")
    with served(box, good), served(box, bad), session(box, ["sh", "-c", tries], named(box, good)) as finish:
        assert box.plain([box.attempt, "unix", bad]).verdict()[0] == "OPEN", "control"
        verdicts = [line.split()[0] for line in finish().splitlines()]
    assert verdicts == ["OPEN", "MOVED", "KEPT", "KEPT", "DENIED", "DENIED"], verdicts


def test_name_of_a_socket_whose_server_is_gone(box):
    """The host has removed it, and with it what protected its name: the command gives that to another."""
    good, bad = box.path("good.sock"), box.path("bad.sock")
    tries = f"mv {bad} {good}; for i in 1 2 3 4 5 6; do {box.attempt} unix {good}; sleep 0.1; done"
    with contextlib.ExitStack() as stack:
        with served(box, good):
            finish = stack.enter_context(session(box, ["sh", "-c", tries], named(box, good)))
        with listener(box, bad):
            assert box.plain([box.attempt, "unix", bad]).verdict()[0] == "OPEN", "control"
            verdicts = [line.split()[0] for line in finish().splitlines()]
            moved = os.path.exists(good) and not os.path.exists(bad)
            os.rename(good, bad)
    assert moved and set(verdicts) == {"DENIED"}, verdicts


def test_folder_of_what_is_only_to_be_read(box):
    """In the project, a place that is to stay as it is cannot be exchanged with the folder above it."""
    box.identity.file(box.path("a/vendor/file"), "of the host\n")
    box.identity.file(box.path("c/vendor/file"), "another\n")
    script = "mv a x || echo KEPT; mkdir -p a/vendor; mv c d && echo MOVED; cat a/vendor/file"
    result = box.run(["sh", "-c", script], options=["--ro", box.path("a/vendor")])
    assert result.stdout.split("\n") == ["KEPT", "MOVED", "of the host", ""], result
    with open(box.path("a/vendor/file")) as kept:
        assert kept.read() == "of the host\n"


def give_number(stack, box, number):
    """A socket of the host whose inode has a number that another one had, or None."""
    for count in range(64):
        path = box.path(f"other{count}.sock")
        stack.enter_context(served(box, path))
        if os.stat(path).st_ino == number:
            return path
    return None


def outlive(box, used):
    """What a session says of the named socket and, when that is gone, of others; and which of them has its number."""
    listed = box.path("listed.sock")
    policy = box.identity.file(box.home("sockets.yaml"),
                               f"version: 1\nnetwork: {{unix_sockets: ['{listed}']}}\n")
    tries = f"{box.attempt} unix {listed}; touch tried; until [ -e go ]; do sleep 0.02; done; " \
        f"for name in other*.sock; do {box.attempt} unix $name; done"
    verdicts = []
    with contextlib.ExitStack() as stack:
        with served(box, listed):
            number = os.stat(listed).st_ino
            finish = stack.enter_context(session(box, ["sh", "-c", tries], ["--policy", policy]))
            thread = threading.Thread(target=lambda: verdicts.extend(finish().splitlines()))
            if used:
                thread.start()
                wait_for(lambda: os.path.exists(box.path("tried")))
        taken = give_number(stack, box, number)
        box.identity.file(box.path("go"), "")
        if not used:
            thread.start()
        thread.join(30)
    return verdicts, taken


def numbers_are_given_away(box):
    """The control: where no session holds a socket that is gone, the next one gets its number, if nobody is faster."""
    for _ in range(8):
        with served(box, box.path("listed.sock")):
            number = os.stat(box.path("listed.sock")).st_ino
        with contextlib.ExitStack() as stack:
            if give_number(stack, box, number):
                return True
    return False


@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
def test_socket_that_policy_names_keeps_its_number(box, used):
    """Or another one of the host's would be taken for it, when it is gone."""
    verdicts, taken = outlive(box, used)
    assert len(verdicts) > 1 and all(line.startswith("DENIED") for line in verdicts[1:]), verdicts
    assert not taken and verdicts[0].startswith("OPEN" if used else "DENIED"), verdicts
    if not numbers_are_given_away(box):
        pytest.skip("this file system does not give a number away again soon")


def test_second_name_of_a_socket(box):
    """A hard link in the project, made by the command, is the host's socket all the same."""
    host = box.path("host", "control.sock")
    with session(box, ["sh", "-c", f"ln {host} linked; {box.attempt} unix linked"]) as finish:
        with served(box, host):
            said = finish()
            os.unlink(box.path("linked"))
    assert said.split()[:2] == ["DENIED", "EACCES" if DYNAMIC else "ECONNREFUSED"], said


def connectors():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as stat:
            name, rest = stat.read().rsplit(")", 1)
            if name.endswith("(sandbox-connect"):
                yield int(pid), int(rest.split()[1])


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_without_the_connector(box, how):
    """It fails closed: nothing connects, and the session ends."""
    script = ("import os, socket, sys, time\n"
              "server = socket.socket(socket.AF_UNIX); server.bind('a.sock'); server.listen()\n"
              "socket.socket(socket.AF_UNIX).connect('a.sock'); open('up', 'w').close()\n"
              "while not os.path.exists('go'): time.sleep(0.01)\n"
              f"print(socket.socket(socket.AF_UNIX).connect_ex({box.home('late.sock')!r}))\n"
              "sys.stdout.flush(); time.sleep(60)\n")
    process = box.start(["/usr/bin/python3", "-c", script], text=True, stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_for(lambda: os.path.exists(box.path("up")))
        [pid] = [pid for pid, parent in connectors() if is_below(parent, process.pid)]
        with served(box, box.home("late.sock")):
            os.kill(pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
            box.identity.file(box.path("go"), "")
            if how == "stopped":  # it waits; the session can be ended all the same
                time.sleep(0.3)
                process.send_signal(signal.SIGTERM)
            said, told = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait(10)
    assert "\n0\n" not in "\n" + said
    if how == "killed":
        assert process.returncode == 137 and "connects the command's sockets is gone" in told, told
    wait_for(lambda: pid not in [pid for pid, _ in connectors()])


def is_below(pid, ancestor):
    while pid > 1 and pid != ancestor:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                pid = int(stat.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            return False
    return pid == ancestor


# One way to send from each way to have a socket: made, or one of a pair; a raw one is the same.
SENDERS = {
    "socket": "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "raw": "s = socket.socket(socket.AF_UNIX, socket.SOCK_RAW)",
    "pair": "s = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0]",
}


def received_late(box, sender, options=()):
    """What a datagram socket gets that the host binds when the session has begun."""
    path = box.home("late", "datagrams")
    script = f"import socket; {SENDERS[sender]}; s.sendmsg([b'hello'], [], 0, {path!r})"
    argv = ["/usr/bin/python3", "-c", script]
    box.identity.folder(os.path.dirname(path))
    with session(box, argv, options) as finish:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
            server.bind(path)
            box.identity.own(path)
            server.setblocking(False)
            finish()
            inside = None
            with contextlib.suppress(BlockingIOError):
                inside = server.recv(9)
            assert box.plain(argv).exit == 0 and server.recv(9) == b"hello", "control"
            os.unlink(path)
    return inside


@pytest.mark.parametrize("sender", SENDERS)
def test_datagram_to_a_server_that_starts_later(box, sender):
    assert received_late(box, sender) is None


@STATIC
@pytest.mark.parametrize("sender", SENDERS)
def test_datagrams_that_policy_wants(box, sender):
    """They are as outside then, at the price that SECURITY.md names."""
    assert received_late(box, sender, datagrams_wanted(box)) == b"hello"


@STATIC
def test_datagram_socket_that_policy_names(box):
    """It could not be used: that is said before anything starts."""
    path, argv = box.home("log"), ["/usr/bin/python3", "-c", "import socket; socket.socket("
                                   "socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'hello', '%s')"]
    argv[2] %= path
    text = "version: 1\nnetwork: {{unix_sockets: ['{}']{}}}\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path)
        box.identity.own(path)
        server.setblocking(False)
        alone = box.identity.file(box.home("alone.yaml"), text.format(path, ""))
        result = box.run(argv, options=["--policy", alone])
        assert result.exit == 125 and "network.unix_datagrams: true" in result.stderr, result
        with pytest.raises(BlockingIOError):
            server.recv(9)
        both = box.identity.file(box.home("both.yaml"), text.format(path, ", unix_datagrams: true"))
        assert box.run(argv, options=["--policy", both]).exit == 0
        assert server.recv(9) == b"hello"


@STATIC
def test_which_sockets_can_be_made(box):
    """All but the datagrams; with what was wanted, all."""
    script = ("import socket\n"
              "for make in socket.socket, socket.socketpair:\n"
              "    for kind in 'STREAM', 'SEQPACKET', 'DGRAM', 'RAW':\n"
              "        try: make(socket.AF_UNIX, getattr(socket, 'SOCK_' + kind)); print('made')\n"
              "        except OSError as error: print(type(error).__name__)\n"
              "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n")
    argv = ["/usr/bin/python3", "-c", script]
    refused = ["made"] * 2 + ["PermissionError"] * 2
    assert box.plain(argv).stdout.split() == ["made"] * 8, "control"
    result = box.run(argv)
    assert result.exit == 0 and result.stdout.split() == refused * 2, result
    assert box.run(argv, options=datagrams_wanted(box)).stdout.split() == ["made"] * 8


def test_datagram_to_a_server_with_clients(box):
    """It is not listed as one that waits any more, once somebody has connected to it."""
    path = box.home("datagrams")
    script = f"import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); " \
             f"s.sendto(b'hello', {path!r})"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server, \
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        server.bind(path)
        box.identity.own(path)
        server.setblocking(False)
        client.connect(path)
        box.run(["/usr/bin/python3", "-c", script])
        with pytest.raises(BlockingIOError):
            server.recv(9)
        assert box.plain(["/usr/bin/python3", "-c", script]).exit == 0
        assert server.recv(9) == b"hello"  # the control
    os.unlink(path)
