"""Many sessions, one after the other and at once: afterwards no process, mount, cgroup, file or
placeholder is left (the fixture looks for most of it), and survivors have not grown.

SANDBOX_TEST_LONG=1 runs ten times as many."""

import glob
import os
import subprocess
import time

import pytest

from harness import children, mounts_below
from sessions import eventually, idle, listed, monitor_of, sandbox

LONG = bool(os.environ.get("SANDBOX_TEST_LONG"))
IN_A_ROW, AT_ONCE = (2000, 200) if LONG else (200, 20)


def groups():
    """The cgroups of sessions, wherever this machine has them."""
    return set(glob.glob("/sys/fs/cgroup/**/sandbox-*/", recursive=True))


def files(box):
    return {os.path.join(path, name) for folder in (box.identity.runtime, box.identity.state)
            for path, _, names in os.walk(folder) for name in names
            if not {"pool", "reports", "audit"} & set(path.split(os.sep))}


def private_memory(pid):
    with open(f"/proc/{pid}/smaps_rollup") as source:
        return sum(int(line.split()[1]) for line in source if line.startswith("Private_Dirty"))


@pytest.fixture
def survivor(box):
    """A session that lives through it all; it must neither grow nor notice."""
    with idle(box) as sid:
        monitor = monitor_of(box, sid)

        def descriptors():
            return len(os.listdir(f"/proc/{monitor}/fd"))

        # With its first command a session opens its part of the audit log.
        assert sandbox(box, "exec", sid, "--", "true").exit == 0
        time.sleep(0.05)  # until our connection is closed at its end, too
        before = descriptors(), private_memory(monitor)
        known = (set(children()), mounts_below(box.world.base), files(box))
        yield sid
        assert eventually(lambda: set(children()) <= known[0]), children()
        assert mounts_below(box.world.base) == known[1]
        assert files(box) == known[2]
        assert [session["sid"] for session in listed(box)] == [sid]
        assert sandbox(box, "exec", sid, "--", "echo", "alive").stdout == "alive\n"
        assert eventually(lambda: descriptors() == before[0]), (before, descriptors())
        if not os.environ.get("SANDBOX_SANITIZED"):  # AddressSanitizer keeps freed memory on purpose
            assert private_memory(monitor) <= before[1] + 64, (before, private_memory(monitor))


def own_groups_are_gone(sids):
    left = [path for path in groups() if any(sid in path for sid in sids)]
    assert not left, left


def test_in_a_row(host_root, box, survivor):
    options = ["--pids", "50", "--open-files", "100"]
    reader, writer = os.pipe()
    sids = set()
    with os.fdopen(reader) as lines:
        for number in range(IN_A_ROW):
            process = box.start(["true"], options=[*options[:2 * (number % 3)], "--status-fd",
                                                   str(writer)], pass_fds=[writer],
                                stdin=subprocess.DEVNULL)
            assert process.wait(10) == 0, number
            sids.add(lines.readline().split('"sid":"')[1][:8])
            lines.readline(), lines.readline()
    os.close(writer)
    assert len(sids) == IN_A_ROW, "an id came twice"
    own_groups_are_gone(sids)


def test_at_once(host_root, box, survivor):
    processes = [box.start(["sh", "-c", f"sleep 0.5; exit {number % 100}"], options=["--pids", "50"],
                           stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
                 for number in range(AT_ONCE)]
    assert eventually(lambda: len(listed(box)) > min(AT_ONCE, 20) / 2)
    sids = {session["sid"] for session in listed(box)}
    for number, process in enumerate(processes):
        said = process.communicate(timeout=60)[1]
        assert process.returncode == number % 100, said
    own_groups_are_gone(sids)


def test_detached_at_once(host_root, box, survivor):
    processes = [box.popen([box.world.command, "run", "--static", "--detach"],
                           stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
                 for _ in range(AT_ONCE)]
    sids = [process.communicate(timeout=60)[0].decode().strip() for process in processes]
    try:
        assert len(listed(box)) == AT_ONCE + 1
    finally:
        assert sandbox(box, "kill", "--now", *sids, timeout=60).exit == 0
