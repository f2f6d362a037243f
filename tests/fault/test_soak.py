"""Many sessions, one after the other and at once, in static mode and with both gates: afterwards no
process, mount, cgroup, file or placeholder is left (the fixture looks for most of it), and survivors
have not grown.

SANDBOX_TEST_LONG=1: 2,000 in a row and 200 at once in every mode; else a tenth, and less with a
gate."""

import contextlib
import glob
import os
import subprocess
import time

import pytest

import gates
from dynamic import ground
from harness import Unavailable, children, mounts_below
from sessions import eventually, listed, monitor_of, sandbox

LONG = bool(os.environ.get("SANDBOX_TEST_LONG"))
PATIENCE = 60


class Mode:
    """How sessions are started here, how many, and what they do while they run."""

    def __init__(self, box, gate):
        self.box = box
        self.options = ["--mode", "dynamic", "--gate", gate] if gate else ["--static"]
        self.in_a_row, self.at_once = (2000, 200) if LONG else (20, 8) if gate else (200, 20)
        # A gate has something to do: nobody is there to answer, so it denies.
        data = ground(box)
        self.work = f"cat {data}/a.txt 2>&- && exit 111; " if gate else ""

    def start(self, argv, *options, **more):
        more.setdefault("stderr", subprocess.DEVNULL)
        words = [self.box.world.command, "run", *self.options, *options]
        return self.box.popen([*words, "--", *argv] if argv else words, stdin=subprocess.DEVNULL,
                              **more)


@pytest.fixture(params=["static", *gates.GATES])
def mode(request, host_root, box):
    gate = request.param if request.param != "static" else None
    try:
        gates.need(host_root, gate)
    except Unavailable as reason:
        pytest.skip(str(reason))
    return Mode(box, gate)


def groups():
    """The cgroups of sessions, wherever this machine has them."""
    return set(glob.glob("/sys/fs/cgroup/**/sandbox-*/", recursive=True))


def files(box):
    return {os.path.join(path, name) for folder in (box.identity.runtime, box.identity.state)
            for path, _, names in os.walk(folder) for name in names
            if not {"pool", "reports", "audit"} & set(path.split(os.sep))}


def gate_connections():
    """A FUSE connection outlives its mount if somebody holds on to it."""
    with open("/proc/mounts") as mounts:
        return sum(" fuse." in line or " fuse " in line for line in mounts)


def private_memory(pids):
    """Kilobytes that are theirs alone."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as source:
            total += sum(int(line.split()[1]) for line in source if line.startswith("Private_Dirty"))
    return total


@pytest.fixture
def survivor(box, mode):
    """A session that lives through it all; it must neither grow nor notice."""
    sid = mode.start([], "--detach", stdout=subprocess.PIPE).communicate(timeout=PATIENCE)[0]
    sid = sid.decode().strip()
    monitor = monitor_of(box, sid)

    def descriptors():
        """Names in the host's root are followed, and some kept open; other tests make and remove such."""
        count = 0
        for number in os.listdir(f"/proc/{monitor}/fd"):
            with contextlib.suppress(FileNotFoundError):
                target = os.readlink(f"/proc/{monitor}/fd/{number}")
                count += os.path.dirname(target) != "/" or target == "/"
        return count

    def memory():
        return private_memory([monitor, *children(monitor)])

    # With its first command a session opens its part of the audit log. Its keeper is a copy of the
    # monitor: what either of the two uses again becomes its own, once.
    assert sandbox(box, "exec", sid, "--", "true").exit == 0
    time.sleep(0.3)
    assert mode.start(["true"]).wait(PATIENCE) == 0 and [entry["sid"] for entry in listed(box)] == [sid]
    assert sandbox(box, "exec", sid, "--", "echo", "alive").exit == 0
    time.sleep(0.05)  # until our connection is closed at its end, too
    before = descriptors(), memory()
    known = (set(children()), mounts_below(box.world.base), files(box), gate_connections())
    yield sid
    assert eventually(lambda: set(children()) <= known[0]), children()
    assert (mounts_below(box.world.base), files(box), gate_connections()) == known[1:]
    assert [session["sid"] for session in listed(box)] == [sid]
    assert sandbox(box, "exec", sid, "--", "echo", "alive").stdout == "alive\n"
    assert eventually(lambda: descriptors() == before[0]), (before, descriptors())
    print(f"memory of the survivor: {before[1]} kB before, {memory()} kB after")
    if not os.environ.get("SANDBOX_SANITIZED"):  # AddressSanitizer keeps freed memory on purpose
        # Once the process of the last command is gone, which was the monitor's child.
        assert eventually(lambda: memory() <= before[1] + 64), (before, memory())
    assert sandbox(box, "kill", "--now", sid).exit == 0


def own_groups_are_gone(sids):
    left = [path for path in groups() if any(sid in path for sid in sids)]
    assert not left, left


def test_in_a_row(mode, survivor):
    options = ["--pids", "50", "--open-files", "100"]
    reader, writer = os.pipe()
    sids = set()
    with os.fdopen(reader) as lines:
        for number in range(mode.in_a_row):
            argv = ["sh", "-c", f"{mode.work}exit 0"] if mode.work else ["true"]
            process = mode.start(argv, *options[:2 * (number % 3)], "--status-fd", str(writer),
                                 pass_fds=[writer])
            assert process.wait(PATIENCE) == 0, number
            sids.add(lines.readline().split('"sid":"')[1][:8])
            while '"exited"' not in lines.readline():
                pass
    os.close(writer)
    assert len(sids) == mode.in_a_row, "an id came twice"
    own_groups_are_gone(sids)


def test_at_once(box, mode, survivor):
    wait = "until [ -e all ]; do sleep 0.2; done"
    processes = [mode.start(["sh", "-c", f"{mode.work}{wait}; exit {number % 100}"],
                            "--pids", "50", stderr=subprocess.PIPE)
                 for number in range(mode.at_once)]
    assert eventually(lambda: len(listed(box)) == mode.at_once + 1, PATIENCE)
    sids = {session["sid"] for session in listed(box)}
    box.identity.file(box.path("all"), "")
    for number, process in enumerate(processes):
        said = process.communicate(timeout=PATIENCE)[1]
        assert process.returncode == number % 100, said
    own_groups_are_gone(sids - {survivor})


def test_detached_at_once(box, mode, survivor):
    processes = [mode.start([], "--detach", stdout=subprocess.PIPE)
                 for _ in range(mode.at_once)]
    sids = [process.communicate(timeout=PATIENCE)[0].decode().strip() for process in processes]
    try:
        assert len(listed(box)) == mode.at_once + 1
    finally:
        assert sandbox(box, "kill", "--now", *sids, timeout=PATIENCE).exit == 0
