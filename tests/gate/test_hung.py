"""File systems whose server has stopped to answer (sshfs, NFS): whoever looks at one waits for ever, and cannot even be killed. That may be
a call of the command, but never a session: neither its start, nor its other calls and questions, nor its end."""

import os
import subprocess
import sys
import time

import pytest

import gates
import harness
import sessions
from gates import files, go_on, halfway, lines

SERVER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "hung_server.py")
WAYS = ("open", "stat", "lstat", "access", "connect", "send", "inotify", "path-only", "execute", "mkdir", "statfs", "chdir", "list")
SILENCE = "Connection timed out"


class Hung:
    """A file system of the tests' own; see the server's head. Without its server everybody is let go."""

    def __init__(self, path):
        self.path = path
        self.server = subprocess.Popen([sys.executable, SERVER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.server.stdout.readline() == "ready\n"
        os.stat(path)  # as after any use of it

    def say(self, text):
        self.server.stdin.write(f"{text}\n")
        self.server.stdin.flush()
        assert self.server.stdout.readline() == "done\n"

    def remove(self):
        self.server.stdin.close()
        self.server.wait(harness.TIMEOUT)
        self.server.stdout.close()
        subprocess.run(["umount", "-l", self.path], check=True)


@pytest.fixture
def hung(host_root, box):
    if not os.path.exists("/dev/fuse"):
        pytest.skip("no /dev/fuse")
    path = box.home("remote")
    box.identity.folder(path)
    box.identity.file(box.home("gated/file"), "beside\n")
    made = Hung(path)
    yield made
    made.remove()


@pytest.fixture
def hung_in_root(host_root, top):
    os.mkdir(top.path)
    made = Hung(top.path)
    yield made
    made.remove()


def test_sessions_start_beside_it(box, gate, hung, hung_in_root):
    hung.say("hang all")
    hung_in_root.say("hang all")
    result, asked = gates.run(box, gate, ["/bin/echo", "started"], lambda event: gates.deny(), timeout=8 * harness.SLOWNESS)
    assert result.stdout == "started\n" and not result.stderr and not asked, (result, asked)


@pytest.mark.parametrize("which", ["all"] if not gates.LONG else ["all", "lookup", "getattr"])
def test_only_calls_about_it_fail(box, gate, hung, which):
    """Others are asked about and go on, and when the server is back, so are these."""
    before = f"cat {hung.path}/file; cat {box.home('gated/file')}"
    control = f"until cat {hung.path}/file; do sleep 0.05; done"  # whoever was sent to look has to come back first
    hung.say(f"hang {which}")
    with halfway(box, gate, before, control, lambda event: gates.approve()) as it:
        assert it.sid in sessions.sandbox(box, "ps").stdout
        assert sessions.sandbox(box, "stats", "--once", it.sid).exit == 0
        assert it.asked == [("read", box.home("gated/file"))], it.asked
        hung.say("go")
        go_on(box)
        result = it.finish()
    assert result.stdout == "beside\ncontent\n", result
    assert result.stderr.count(SILENCE) >= 2, result.stderr  # by cat, and by us
    assert result.stderr.count(f"the file system at '{hung.path}' does not answer") == 1, result.stderr


def test_no_way_leads_into_it(box, gate, hung):
    """By its name, by a link of the project's, by way of it, and from a folder in it. The control is above."""
    os.symlink(hung.path, box.path("link"))
    hung.say("hang all")
    paths = (f"{hung.path}/file", f"{hung.path}/folder/inner", box.path("link/file"), f"{hung.path}/folder/../file", hung.path)
    argv = [files(box), *(word for path in paths for way in WAYS for word in (way, path))]
    result, asked = gates.run(box, gate, argv, lambda event: gates.deny(), timeout=10 * harness.SLOWNESS)
    assert len(lines(result)) == len(argv) // 2, (result, asked)
    assert {path for _, path in asked} <= {hung.path}, asked


def test_it_stops_while_somebody_thinks(box, gate, hung):
    """The call is refused, and that is said; the next question is answered as any."""
    def answer(event):
        if event["path"].startswith(hung.path):
            hung.say("hang all")
        return gates.approve()
    argv = ["/bin/sh", "-c", f"cat {hung.path}/file; cat {box.home('gated/file')}"]
    result, asked = gates.run(box, gate, argv, answer, timeout=12 * harness.SLOWNESS)
    assert [path for _, path in asked] == [f"{hung.path}/file", box.home("gated/file")], (asked, result)
    assert result.stdout == "beside\n" and SILENCE in result.stderr, result


EXCHANGE = """
import ctypes, os, socket, subprocess, sys
os.mkdir("dir")
os.rename("late.sock", "dir/late.sock")
os.symlink(sys.argv[1], "link")
flips = subprocess.Popen([sys.executable, "-c", "import ctypes, time\\n"
    "call, end = ctypes.CDLL(None).renameat2, time.monotonic() + 3\\n"
    "while time.monotonic() < end: call(-100, b'dir', -100, b'link', 2)"])
tries = 0
while flips.poll() is None:
    with socket.socket(socket.AF_UNIX) as one:
        one.setblocking(False)
        one.connect_ex("dir/late.sock")
        tries += 1
print("tried", tries > 10)
"""


def test_a_link_in_a_folder_s_place_leads_the_monitor_nowhere(box, gate, hung):
    """A socket of the host is asked about by a path that the command can change. The control: the session goes on."""
    box.identity.file(box.path("exchange.py"), EXCHANGE)
    with halfway(box, gate, ":", f"/usr/bin/python3 exchange.py {hung.path}/folder; cat {box.home('gated/file')}",
                 lambda event: gates.approve() if event["op"] == "read" else gates.deny()) as it:
        with gates.listening(box, box.path("late.sock")):
            hung.say("hang lookup")
            go_on(box)
            result = it.finish(timeout=15 * harness.SLOWNESS)
    assert result.stdout == "tried True\nbeside\n", (result, it.asked)


@pytest.mark.parametrize("pair", ["notify-user"], indirect=True)
def test_sessions_end_whoever_waits_for_it(box, hung):
    """In static mode it is visible: the kernel lets nobody end that call. The control: it cannot be killed."""
    hung.say("hang all")
    process = box.popen([box.world.command, "run", "--static", "--", "/bin/cat", f"{hung.path}/file"], stdin=subprocess.DEVNULL,
                        stderr=subprocess.PIPE)
    try:
        sid = sessions.eventually(lambda: next((entry["sid"] for entry in sessions.listed(box) if entry["pid"] == process.pid), None))
        time.sleep(0.3)
        sessions.sandbox(box, "kill", "--now", sid)
        assert process.wait(5 * harness.SLOWNESS) == 137
        assert b"cannot be ended" in process.stderr.readline()
    finally:
        sessions.end_group(process)


@pytest.mark.parametrize("pair", ["fuse-user"], indirect=True)
def test_sessions_end_when_it_stops_after_a_grant(box, gate, hung):
    """What was allowed is mounted, and the kernel asks nobody else. (Seccomp notify looks at each call.)"""
    read = f"cat {hung.path}/file"
    with halfway(box, gate, read, f"{read}; touch after", lambda event: gates.approve(tree=hung.path)) as it:
        hung.say("hang all")
        go_on(box)
        time.sleep(0.3)
        assert it.sid in sessions.sandbox(box, "ps").stdout
        sessions.sandbox(box, "kill", "--now", it.sid)
        assert it.process.wait(8 * harness.SLOWNESS) == 137
    assert not os.path.exists(box.path("after"))


@pytest.mark.parametrize("pair", ["notify-user"], indirect=True)
def test_what_must_be_searched_is_waited_for_in_vain(box, host_root):
    """Secrets in the project are hidden, wherever they are mounted from: if nobody can look, there is no session."""
    path = box.path("remote")
    box.identity.folder(path)
    hung = Hung(path)
    try:
        assert box.plain([box.world.command, "run", "--", "/bin/true"]).exit == 0
        hung.say("hang all")
        result = box.plain([box.world.command, "run", "--", "/bin/true"])
        assert result.exit == 125 and f"looking at '{path}': {SILENCE}" in result.stderr, result
    finally:
        hung.remove()
