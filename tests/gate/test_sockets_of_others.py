"""Sockets of programs outside in folders that the session sees: in the project, where they may begin to
listen at any time, and in folders that were granted. That the folder may be read or written to does not
mean that they may be spoken to: the connector (src/engine/connector.h) has that asked."""

import contextlib
import errno
import os
import signal
import socket
import threading
import time

import pytest

import dynamic
import gates
import harness
import sessions
from gates import files, lines, listening
from refused_calls import refusing_with


@contextlib.contextmanager
def late(box, gate, script, answer, *names, options=()):
    """A session whose script goes on when the host has begun to listen in the project."""
    with gates.halfway(box, gate, "true", script, answer, options) as it, contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(listening(box, box.path(name)))
        gates.go_on(box)
        yield it


ANSWERS = [(gates.deny(), "EACCES"), (gates.approve(), "ok"), (gates.approve("once"), "ok")]


@pytest.mark.escape
@pytest.mark.parametrize("answer,outcome", ANSWERS, ids=["denied", "allowed", "once"])
def test_who_begins_to_listen_in_the_project_is_asked_about(box, gate, answer, outcome):
    """The control: it is spoken to outside, without a question."""
    connect = f"{files(box)} connect late.sock"
    with late(box, gate, f"{connect}; {connect}", lambda event: answer, "late.sock") as it:
        assert lines(box.plain(["sh", "-c", connect])) == ["connect ok"]
        result = it.finish()
    assert lines(result) == [f"connect {outcome}"] * 2, (result, it.asked)
    times = 1 if answer.get("scope") == "session" else 2
    assert it.asked == times * [("connect", box.path("late.sock"))]


@pytest.mark.escape
def test_nobody_is_there_to_be_asked(box, gate):
    """What was denied is said, with the way to allow it."""
    script = f"touch ready; until [ -e go ]; do sleep 0.02; done; {files(box)} connect late.sock"
    process = box.popen([box.world.command, "run", "--mode", "dynamic", "--gate", gate, "--ro", box.world.bin,
                         "--", "sh", "-c", script], stdin=-3, stdout=-1, stderr=-1)
    assert sessions.eventually(lambda: os.path.exists(box.path("ready")))
    with listening(box, box.path("late.sock")):
        gates.go_on(box)
        said, told = map(harness.text, process.communicate(timeout=20))
    assert said == "connect EACCES\n", (said, told)
    assert f"may not connect to {box.path('late.sock')}" in told and "unix_sockets" in told, told


@pytest.mark.escape
def test_an_answer_is_for_the_socket_and_not_for_its_name(box, gate):
    """The command may rename what is in the project: also over the name that was allowed."""
    answers = iter([gates.approve()])

    connect = f"{files(box)} connect"
    script = f"{connect} good.sock; mv good.sock kept.sock; mv bad.sock good.sock; {connect} good.sock; " \
             f"mv good.sock bad.sock; mv kept.sock good.sock; {connect} good.sock"
    with late(box, gate, script, lambda event: next(answers, gates.deny()), "good.sock", "bad.sock") as it:
        result = it.finish()
    assert lines(result) == ["connect ok", "connect EACCES", "connect ok"], (result, it.asked)
    assert it.asked == [("connect", box.path("good.sock"))] * 2


@pytest.mark.escape
def test_another_does_not_get_the_number_of_one_that_was_allowed(box, gate):
    """The server is gone, its file as well, and the file system has its inode's number to give away."""
    answers = iter([gates.approve()])

    connect = f"{files(box)} connect"
    script = f"{connect} good.sock; rm good.sock; touch step; until [ -e others ]; do sleep 0.02; done; " \
             f"for i in other*.sock; do mv $i good.sock; {connect} good.sock; done"
    with contextlib.ExitStack() as stack:
        with late(box, gate, script, lambda event: next(answers, gates.deny()), "good.sock") as it:
            assert sessions.eventually(lambda: os.path.exists(box.path("step"))), it.asked
            for count in range(16):
                stack.enter_context(listening(box, box.path(f"other{count}.sock")))
            box.identity.file(box.path("others"), "")
            result = it.finish()
    assert lines(result) == ["connect ok"] + 16 * ["connect EACCES"], (result, it.asked)


@pytest.mark.escape
@pytest.mark.parametrize("answer,outcome", [(gates.deny(), "EACCES"), (gates.approve(), "ok")], ids=["denied", "allowed"])
def test_a_socket_in_a_folder_that_was_allowed(box, gate, ground, answer, outcome):
    """Whoever allowed the folder has not seen the socket."""
    script = f"ls {ground}/sub >/dev/null; touch step; until [ -e go ]; do sleep 0.02; done; " \
             f"{files(box)} connect {ground}/sub/late.sock"
    with gates.Session(box, gate, ["/bin/sh", "-c", script],
                       lambda event: answer if event["op"] == "connect" else gates.approve()) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("step"))), it.asked
        with listening(box, f"{ground}/sub/late.sock"):
            gates.go_on(box)
            result = it.finish()
    assert lines(result) == [f"connect {outcome}"], (result, it.asked)
    assert it.asked[-1] == ("connect", f"{ground}/sub/late.sock"), it.asked


# Connects from a folder that it has held since before anybody allowed to write there, renames there, and connects again.
HELD = """
import os, socket, sys
def connect(name):
    return "connect %d" % socket.socket(socket.AF_UNIX).connect_ex(name)
folder = sys.argv[1]
held = f"/proc/self/fd/{os.open(folder, os.O_PATH)}/good.sock"
open(folder + "/made", "w").close()
print(connect(held))
os.rename(folder + "/good.sock", folder + "/kept.sock")
os.rename(folder + "/bad.sock", folder + "/good.sock")
print(connect(held), connect(folder + "/good.sock"), connect(folder + "/kept.sock"))
"""


@pytest.mark.escape
def test_an_answer_is_for_the_socket_also_from_a_folder_that_was_held(box, gate, ground):
    """What was held is no mount that can be written to: FUSE, or one for reading that is covered by now."""
    box.identity.file(box.path("held.py"), HELD)
    policy = box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    answers = iter([gates.approve()])
    folder = f"{ground}/sub"
    with listening(box, f"{folder}/good.sock"), listening(box, f"{folder}/bad.sock"):
        result, asked = gates.run(
            box, gate, ["/usr/bin/python3", "held.py", folder],
            lambda event: next(answers, gates.deny()) if event["op"] == "connect" else gates.approve(),
            options=["--policy", policy])
    assert lines(result) == ["connect 0", "connect 13 connect 13 connect 13"], (result, asked)
    assert [path for op, path in asked if op == "connect"] == \
        [f"{folder}/good.sock"] * 3 + [f"{folder}/kept.sock"], asked


FLIP = """
import os, socket, subprocess, sys
folder = os.path.expanduser("~/.npm")
held = "/proc/self/fd/%d/good.sock" % os.open(folder, os.O_PATH | os.O_NOFOLLOW)

def connect():
    with socket.socket(socket.AF_UNIX) as one:
        try:
            one.connect(held)
            return one.recv(4).decode()
        except OSError:
            return "refused"

print("first", connect(), flush=True)
open(folder + "/touched", "w").close()
os.rename(folder + "/good.sock", folder + "/kept.sock")
flips = subprocess.Popen([sys.executable, "-c", "import os, time\\n"
    "end = time.monotonic() + 3\\n"
    "while time.monotonic() < end: os.rename('bad.sock', 'good.sock'); os.rename('good.sock', 'bad.sock')"], cwd=folder)
said = set()
while flips.poll() is None:
    said.add(connect())
print("then", *sorted(said))
"""


@contextlib.contextmanager
def greeting(box, path, word):
    """A server of the host that says who it is."""
    with listening(box, path) as server:
        def serve():
            with contextlib.suppress(OSError):
                while True:
                    with server.accept()[0] as one:
                        one.sendall(word)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)


@pytest.mark.escape
@pytest.mark.parametrize("pair", ["fuse-user"], indirect=True)
def test_no_race_for_the_name_of_one_that_was_allowed(box, gate):
    """A cache is mounted for writing when it is first used; who has held its folder since before finds FUSE there whenever
    the name is missing for an instant. The control: the first one is spoken to."""
    box.identity.folder(box.home(".npm"))
    box.identity.file(box.path("flip.py"), FLIP)
    answers = iter([gates.approve()])
    with greeting(box, box.home(".npm/good.sock"), b"good"), greeting(box, box.home(".npm/bad.sock"), b"bad!"):
        result, asked = gates.run(box, gate, ["/usr/bin/python3", "flip.py"], lambda event: next(answers, gates.deny()))
        os.rename(box.home(".npm/kept.sock"), box.home(".npm/good.sock"))
    assert lines(result) == ["first good", "then refused"], (result, asked[:9])


def test_what_is_taken_back_is_asked_about_again(box, gate):
    answers = [gates.deny(), gates.approve()]
    connect = f"{files(box)} connect late.sock"
    script = f"{connect}; touch step; until [ -e more ]; do sleep 0.02; done; {connect}"
    with late(box, gate, script, lambda event: answers.pop(), "late.sock") as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("step"))), it.asked
        assert box.plain([box.world.command, "policy", "revoke", box.path("late.sock")]).exit == 0
        box.identity.file(box.path("more"), "")
        result = it.finish()
    assert lines(result) == ["connect ok", "connect EACCES"], (result, it.asked)


def test_others_connect_while_somebody_thinks(box, gate):
    """To sockets of their own, also those who were asked about together."""
    script = "import os, socket, threading\n" \
             "def late():\n" \
             "    client = socket.socket(socket.AF_UNIX); client.connect('late.sock'); print('late')\n" \
             "threads = [threading.Thread(target=late) for _ in range(4)]\n" \
             "for thread in threads: thread.start()\n" \
             "server = socket.socket(socket.AF_UNIX); server.bind('own.sock'); server.listen()\n" \
             "for _ in range(50): socket.socket(socket.AF_UNIX).connect('own.sock'); server.accept()\n" \
             "print('own', flush=True); open('step', 'w').close()\n" \
             "for thread in threads: thread.join()\n"
    box.identity.file(box.path("crowd.py"), script)
    waiting = []
    with late(box, gate, "exec /usr/bin/python3 crowd.py", waiting.append, "late.sock") as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("step"))), it.asked
        assert len(waiting) == 1, waiting
        it.control.send({"id": waiting[0]["id"], **gates.approve("once")})
        result = it.finish()
    assert result.stdout == "own\n" + 4 * "late\n", result


def test_all_threads_connect_at_once(box, gate):
    """More calls than the line between the monitor and the connector has room for."""
    script = "import socket, threading\n" \
             "server = socket.socket(socket.AF_UNIX); server.bind('own.sock'); server.listen(1000)\n" \
             "start, results = threading.Barrier(800), []\n" \
             "def connect():\n" \
             "    client = socket.socket(socket.AF_UNIX); start.wait()\n" \
             "    results.append(client.connect_ex('own.sock'))\n" \
             "threads = [threading.Thread(target=connect) for _ in range(800)]\n" \
             "for thread in threads: thread.start()\n" \
             "for thread in threads: thread.join()\n" \
             "print(len(results), set(results))\n"
    box.identity.file(box.path("threads.py"), script)
    result, asked = gates.run(box, gate, ["/usr/bin/python3", "threads.py"], lambda event: gates.deny())
    assert result.stdout == "800 {0}\n", (result, asked)


def test_connections_cost_the_monitor_no_descriptor_each(box, gate):
    script = "import os, socket, time\n" \
             "for _ in range(200):\n" \
             "    client = socket.socket(socket.AF_UNIX); client.settimeout(5)\n" \
             "    client.connect('late.sock'); client.close()\n" \
             "open('step', 'w').close()\n" \
             "while not os.path.exists('more'): time.sleep(0.02)\n"
    box.identity.file(box.path("many.py"), script)
    before = []

    def answer(event):
        before.append(len(os.listdir(f"/proc/{monitor}/fd")))
        return gates.approve()

    with gates.halfway(box, gate, "true", "exec /usr/bin/python3 many.py", answer) as it, \
            listening(box, box.path("late.sock"), backlog=300):
        monitor = sessions.monitor_of(box, it.sid)
        gates.go_on(box)
        assert sessions.eventually(lambda: os.path.exists(box.path("step"))), it.asked
        after = len(os.listdir(f"/proc/{monitor}/fd"))
        box.identity.file(box.path("more"), "")
        assert it.finish().exit == 0
    assert len(it.asked) == 1 and after < before[0] + 100, (it.asked, before, after)


@pytest.mark.parametrize("signal_name", ["TERM", "ALRM", "KILL"])
def test_signals_while_somebody_thinks(box, gate, signal_name):
    """What ends programs ends the call, and the question with it; a timer does not."""
    script = f"(trap : ALRM; exec {files(box)} connect late.sock) & one=$!; until [ -e more ]; do sleep 0.02; done; " \
             f"kill -{signal_name} $one; touch step; wait $one; echo $?"
    if signal_name == "ALRM":
        script = "exec /usr/bin/python3 -c \"import signal, socket; signal.signal(signal.SIGALRM, lambda *_: None); " \
                 "signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1); socket.socket(socket.AF_UNIX).connect('late.sock'); print('0')\""
    waiting = []
    with late(box, gate, script, waiting.append, "late.sock") as it:
        assert sessions.eventually(lambda: waiting), it.asked
        if signal_name == "ALRM":
            time.sleep(0.5)
            it.control.send({"id": waiting[0]["id"], **gates.approve("once")})
        else:
            box.identity.file(box.path("more"), "")
            assert sessions.eventually(lambda: it.withdrawn), it.asked
        result = it.finish()
    number = {"ALRM": 0}.get(signal_name) if signal_name == "ALRM" else 128 + getattr(signal, "SIG" + signal_name)
    assert lines(result)[-1] == str(number), (result, it.asked, it.withdrawn)


def test_who_tries_a_hidden_socket_is_written_down(box, gate):
    """With FUSE it is the connector who looks."""
    path = box.home(".ssh", "agent.sock")
    box.identity.folder(os.path.dirname(path))
    with listening(box, path), gates.Session(box, gate, [files(box), "connect", path], lambda event: None) as it:
        assert lines(it.finish()) == ["connect EACCES"] and not it.asked, it.asked
    hidden = [line for line in dynamic.audit_lines(box, it.sid) if line.get("reason") == "hidden"]
    assert hidden and all(line["exe"] == files(box) and line["pid"] > 0 for line in hidden), hidden


# Waits for a queue that is full; when its time is over another's socket has the name, and its own server is gone.
TURNED = """
import ctypes, os, socket, struct, threading, time
def wait_for(name):
    open(name + ".wanted", "w").close()
    while not os.path.exists(name): time.sleep(0.01)
server = socket.socket(socket.AF_UNIX); server.bind("own.sock"); server.listen(0)
full = socket.socket(socket.AF_UNIX); full.connect("own.sock")
client = socket.socket(socket.AF_UNIX)
client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 3, 0))
library, address = ctypes.CDLL(None, use_errno=True), struct.pack("H", socket.AF_UNIX) + b"own.sock\\0"
results = []
thread = threading.Thread(target=lambda: results.append(library.connect(client.fileno(), address, len(address))))
thread.start()
time.sleep(0.5)
wait_for("stopped")
os.rename("late.sock", "own.sock")
server.close()
time.sleep(3)
wait_for("continued")
thread.join()
print(results, os.path.basename(client.getpeername()))
"""


def test_what_is_asked_when_the_time_of_the_call_is_over(box, gate):
    """Its time is for the queue of who was allowed, and begins anew: the question is not lost."""
    box.identity.file(box.path("turned.py"), TURNED)
    with late(box, gate, "exec /usr/bin/python3 turned.py", lambda event: gates.approve("once"), "late.sock") as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("stopped.wanted"))), it.asked
        connector = gates.child_of(sessions.monitor_of(box, it.sid), "sandbox-connect")
        for name, number in ("stopped", signal.SIGSTOP), ("continued", signal.SIGCONT):
            assert sessions.eventually(lambda name=name: os.path.exists(box.path(name + ".wanted"))), it.asked
            os.kill(connector, number)
            box.identity.file(box.path(name), "")
        result = it.finish()
    assert lines(result) == ["[0] late.sock"], (result, it.asked)
    assert it.asked == [("connect", box.path("own.sock"))]


@pytest.mark.parametrize("answer,outcome", ANSWERS[:2], ids=["denied", "allowed"])
def test_where_nobody_can_connect_for_others(box, gate, ground, answer, outcome):
    """A container may forbid what the connector needs. That is said; what the gate serves is asked about
    all the same, and what lies in the project is not, as the warning has it."""
    path, argv = f"{ground}/socket", [files(box), "connect", f"{ground}/socket", "connect", box.path("late.sock")]
    with listening(box, path), gates.halfway(
            box, gate, "true", " ".join(argv), lambda event: answer,
            preexec_fn=refusing_with("pidfd_getfd", errno.ENOSYS)) as it, listening(box, box.path("late.sock")):
        gates.go_on(box)
        result = it.finish()
    assert lines(result) == [f"connect {outcome}", "connect ok"] and it.asked == [("connect", path)], (result, it.asked)
    assert "weaker mode: connect(2) cannot be watched here" in result.stderr, result


def test_to_learn_allows_no_socket(box, gate):
    script = f"touch ready; until [ -e go ]; do sleep 0.02; done; {files(box)} connect late.sock"
    process = box.popen([box.world.command, "learn", "--gate", gate, "--ro", box.world.bin, "--", "sh", "-c", script],
                        stdin=-3, stdout=-1, stderr=-1)
    assert sessions.eventually(lambda: os.path.exists(box.path("ready")))
    with listening(box, box.path("late.sock")):
        gates.go_on(box)
        said, told = map(harness.text, process.communicate(timeout=20))
    assert "connect EACCES" in said, (said, told)
