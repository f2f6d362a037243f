"""The broker is killed while it brings in what was allowed: another one does it, or it is said that nobody could.
Never does a call fail without a word, or wait for ever, and nothing stays mounted that nobody knows of."""

import contextlib
import os
import random
import signal
import threading

import pytest

import gates
import harness
import sessions
from gates import lines

# Some hold a lock of the kernel's that mounting needs: with FUSE they are sent away before, and walk again. What is
# asked about, how, and what it says.
CALLS = {
    "read": ("file", "cat {0}/file", "content of the file"),
    "stat": ("file", "stat -c %s {0}/file", "20"),
    "list": ("sub", "ls {0}/sub", "below"),
    "append": ("file", "echo more >>{0}/file && echo done", "done"),
    "change": ("file", "chmod 600 {0}/file && echo done", "done"),
    "rename": ("sub", "mv {0}/sub/below {0}/sub/moved && echo done", "done"),
    "make": ("sub", "mkdir {0}/sub/made && echo done", "done"),
}

# Between the steps: the object is opened, cloned and made read-only; the session is entered; the mount is announced
# (or, with seccomp notify, all is told), made, and not told yet.
MOMENTS = ("openat2", "open_tree", "mount_setattr", "setns", "sendmsg", "move_mount", "chdir")

TOLD = "it was allowed, but could not be brought into the session"


@contextlib.contextmanager
def brought_in(box, gate, ground, call, answer=lambda event: gates.approve()):
    """A session in which a file was granted, so that it has a broker; go_on() lets it make the call. It ends after
    end()."""
    script = CALLS[call][1].format(ground) + "; touch called; until [ -e end ]; do sleep 0.02; done"
    writes = call in ("append", "change", "rename", "make")
    box.identity.file(box.home("writes.yaml"), f"version: 1\nfilesystem: {{ask_writes: {str(writes).lower()}}}\n")
    with gates.halfway(box, gate, f"{gates.files(box)} inotify {ground}/exact", script, answer,
                       ["--policy", box.home("writes.yaml")]) as it:
        monitor = sessions.monitor_of(box, it.sid)
        yield it, monitor, sessions.eventually(lambda: gates.broker_of(monitor))


def called(box):
    return sessions.eventually(lambda: os.path.exists(box.path("called")), harness.TIMEOUT)


def end(box, session):
    box.identity.file(box.path("end"), "")
    return session.finish()


def mounted_below(monitor, folder):
    with open(f"/proc/{gates.child_of(monitor, 'sandbox-init')}/mountinfo") as mounts:
        return {path for path in (line.split()[4] for line in mounts) if path.startswith(folder)}


def revoke(box, session, path):
    return sessions.sandbox(box, "policy", "revoke", "--session", session.sid, path)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_another_broker_brings_it_in(box, gate, ground, call, moment, host_root):
    """And what the first one may have mounted, of which nobody heard, can be taken back."""
    if not (gates.LONG or (moment in ("sendmsg", "move_mount", "chdir") and call in ("read", "append", "rename"))):
        pytest.skip("other moments and calls: only with SANDBOX_TEST_LONG=1")
    name, _, said = CALLS[call]
    with brought_in(box, gate, ground, call) as (it, monitor, broker):
        with gates.killing(broker, at=moment):
            gates.go_on(box)
            assert called(box), it.asked
        assert gates.broker_of(monitor) not in (None, broker), "it was not killed"
        mounted = mounted_below(monitor, ground)
        revoked = revoke(box, it, ground)
        left = mounted_below(monitor, ground)
        result = end(box, it)
    assert lines(result)[1:] == [said] and TOLD not in result.stderr, (result, it.asked)
    assert mounted - {f"{ground}/exact"} == {f"{ground}/{name}"} and not left, (mounted, left, revoked)
    assert len(set(it.asked)) == len(it.asked), it.asked


@pytest.mark.parametrize("call", CALLS)
def test_no_broker_brings_it_in(box, gate, ground, call, host_root):
    """Each of them is killed over it: that is told. The control: later ones live, and nobody is asked again."""
    name, script, said = CALLS[call]
    with brought_in(box, gate, ground, call) as (it, monitor, _):
        with gates.killing_brokers(monitor, at="move_mount"):
            gates.go_on(box)
            assert called(box), it.asked
        mounted = mounted_below(monitor, ground)
        again = sessions.sandbox(box, "exec", it.sid, "--", "/bin/sh", "-c", script.format(ground))
        result = end(box, it)
    assert len(lines(result)) == 1 and f"{ground}/{name}: {TOLD}" in result.stderr, (result, it.asked)
    assert mounted <= {f"{ground}/exact", f"{ground}/{name}"} and lines(again) == [said], (mounted, again, it.asked)


LOOP = """
import os, sys
ground = sys.argv[1]
ways = [lambda path: print(open(path).read(), end=""), lambda path: open(path, "a").close(),
        lambda path: os.chmod(path, 0o600), lambda path: os.mkdir(f"{path}.folder/made")]
for number in range(int(sys.argv[2])):
    path = f"{ground}/{number}"
    try:
        ways[number % len(ways)](path)
        print(number, "done", flush=True)
    except OSError as error:
        print(number, error.strerror, flush=True)
"""


@pytest.mark.escape
def test_it_is_killed_at_any_time(box, gate, ground, host_root):
    """Every other time the answer is no: nothing of that is ever done, or mounted."""
    count, killed, chance = (400 if gates.LONG else 48), set(), random.Random(1)
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    for number in range(count):
        box.identity.file(f"{ground}/{number}", f"content of {number}\n")
        box.identity.file(f"{ground}/{number}.folder/old", "")
    denied = {number for number in range(count) if number // 4 % 2}

    def kill(broker):
        with contextlib.suppress(ProcessLookupError):
            os.kill(broker, signal.SIGKILL)
            killed.add(broker)

    def answer(event):
        number = int(os.path.basename(event["path"]).split(".")[0])
        broker = gates.broker_of(sessions.monitor_of(box, it.sid))
        if broker:
            threading.Timer(chance.uniform(0, 0.003), kill, (broker,)).start()
        return gates.deny() if number in denied else gates.approve()

    argv = ["/bin/sh", "-c", 'until [ -e go ]; do sleep 0.02; done; /usr/bin/python3 -c "$@"; touch called; '
            "until [ -e end ]; do sleep 0.02; done", "sh", LOOP, ground, str(count)]
    with gates.Session(box, gate, argv, answer, ["--policy", box.home("writes.yaml")]) as it:
        monitor = sessions.monitor_of(box, it.sid)
        gates.go_on(box)
        assert sessions.eventually(lambda: os.path.exists(box.path("called")), 3 * harness.TIMEOUT), it.asked
        mounted = {int(os.path.basename(path).split(".")[0]) for path in mounted_below(monitor, f"{ground}/")}
        result = end(box, it)
    done = {int(line.split()[0]) for line in lines(result) if line.endswith(" done")}
    told = {number for number in range(count) if f"{ground}/{number}: {TOLD}" in result.stderr
            or f"{ground}/{number}.folder: {TOLD}" in result.stderr}
    assert len(lines(result)) >= count and killed, (result, it.asked)
    assert not denied & (done | mounted), (denied & done, denied & mounted)
    assert set(range(count)) - denied == done | told, (result, set(range(count)) - denied - done - told)
    assert len(done) > count / 4, result  # the control


def test_no_broker_shows_a_folder(box, ground):
    """Nobody has to be asked about that. With FUSE no broker is needed for it, either."""
    with gates.halfway(box, "notify", ":", f"ls -d {ground}/sub", lambda event: None) as it:
        with gates.killing_brokers(sessions.monitor_of(box, it.sid), at="open_tree"):
            gates.go_on(box)
            result = it.finish()
    assert lines(result) == [] and f"{ground}/sub: {TOLD}" in result.stderr and not it.asked, (result, it.asked)
