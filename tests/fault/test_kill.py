"""Sudden death at any moment, and machines that are short of something: nothing may be left."""

import contextlib
import glob
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

import dynamic
import gates
from harness import SLOWNESS, TIMEOUT, LeakCheck, Patience, children, command_line, mounts_below

# For each of three targets and two identities: more than 200.
MOMENTS = 34 if SLOWNESS == 1 else 8
SLOW_BUILD = bool(os.environ.get("SANDBOX_SANITIZED"))
WINDOW = 0.2 if SLOW_BUILD or SLOWNESS > 1 else 0.015  # seconds after the start


def child_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as source:
            return int(source.read().split()[0])
    except (OSError, IndexError):
        return None


def find(process, target, wait=TIMEOUT):
    """The pid to kill: of the monitor, of the session's init, or of the command."""
    depth = ("monitor", "init", "workload").index(target)
    end = time.monotonic() + wait
    while time.monotonic() < end and process.poll() is None:
        pid = process.pid
        for _ in range(depth):
            pid = pid and child_of(pid)
        if pid:
            return pid
    return None


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def kill_workload(process):
    """Init's child may be the maker of the network namespace, which may just have ended by itself."""
    while process.poll() is None and (pid := find(process, "workload")):
        kill(pid)


def nothing_runs(before, wait=1.0 * SLOWNESS):
    """No process of the session after at most a second."""
    patience = Patience(wait)
    while True:
        left = {pid: line for pid, line in children().items() if pid not in before}
        if not left or patience.is_over():
            return left
        time.sleep(0.002)


def recover(box, options=()):
    """The next start tidies up what a killed monitor left; the fixture looks whether it did."""
    result = box.run(["true"], options=options)
    assert result.exit == 0, result
    # Podman, which other tests let look for images, keeps files of its own there.
    for folder in (box.identity.state, os.path.join(box.identity.runtime, "sandbox")):
        left = [os.path.join(path, name) for path, _, files in os.walk(folder) for name in files
                if not any(f"/sandbox/{kept}" in os.path.join(path, name)
                           for kept in LeakCheck.STATE_ALLOWED)]
        assert not left, left


@pytest.mark.parametrize("target", ["monitor", "init", "workload"])
def test_killed_at_any_moment(box, target):
    before, mounts = set(children()), mounts_below(box.world.base)
    chance = random.Random()
    statuses = {}
    for _ in range(MOMENTS):
        process = box.start(["sleep", "30"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(chance.uniform(0, WINDOW))
        pid = find(process, target)
        assert pid, f"no {target}: {process.poll()} {process.stderr.read()}"
        kill(pid)
        if target == "workload":
            kill_workload(process)
        status = process.wait(TIMEOUT)
        error = process.stderr.read().decode()
        process.stderr.close()
        statuses[status] = statuses.get(status, 0) + 1
        assert not nothing_runs(before), f"{target} killed: {nothing_runs(before)}"
        assert mounts_below(box.world.base) == mounts
        if target == "monitor":
            assert status == -signal.SIGKILL
        else:
            assert status == 137 or (status == 125 and error), (status, error)
    recover(box)


def test_runner_killed_at_any_moment(box):
    """With Landlock alone the command's process waits for the runner, which makes the rules."""
    before, chance = set(children()), random.Random()
    engine = ["--backend", "landlock", "--weaken"]
    for _ in range(MOMENTS):
        process = box.start(["sleep", "30"], options=engine, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0, WINDOW))
        kill(process.pid)
        process.wait(TIMEOUT)
        assert not nothing_runs(before), nothing_runs(before)
    recover(box, engine)  # files for an engine are swept by who makes some


def pid_inside(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            return int(next(line for line in status if line.startswith("NSpid:")).split()[-1])
    except (OSError, StopIteration):
        return None


def test_maker_killed_at_any_moment(box):
    """The process beside init, which makes its network and takes the old root away, is init's first
    child. Without it nothing starts, and that is said; when its work is done, nobody misses it."""
    before, chance, outcomes = set(children()), random.Random(), []
    for _ in range(MOMENTS):
        process = box.start(["cat", "/proc/self/mountinfo"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)
        maker = find(process, "workload")
        time.sleep(chance.uniform(0, WINDOW / 10))
        if maker and pid_inside(maker) == 2:
            kill(maker)
        said, told = process.communicate(timeout=TIMEOUT)
        outcomes.append(process.returncode)
        assert process.returncode == 0 and said or process.returncode == 125 and told, (said, told)
        assert not nothing_runs(before), nothing_runs(before)
    print(f"{outcomes.count(125)} of {MOMENTS} starts failed")
    assert 125 in outcomes
    recover(box)


def running(box, argv=("sleep", "30"), **more):
    """A session whose command runs for sure."""
    process = box.start(["sh", "-c", 'echo ready; exec "$@"', "sh", *argv], stdout=subprocess.PIPE,
                        **more)
    assert process.stdout.readline() == b"ready\n"
    return process


def test_monitor_killed_while_the_command_runs(box):
    before = set(children())
    process = running(box, ["sh", "-c", "setsid sleep 30 & sleep 30 & wait"])
    kill(process.pid)
    process.wait(TIMEOUT)
    assert not nothing_runs(before)
    assert os.path.isdir(box.path(".devcontainer")), "no placeholder left: nothing to recover"
    recover(box)


def test_monitor_killed_in_a_flood_of_orphans(box):
    """From its first moment the command leaves init one dead process after the other. Init looks at
    the monitor all the same."""
    before = set(children())
    for _ in range(12):
        process = box.start(["sh", "-c", "while :; do (: &); done"], stdout=subprocess.DEVNULL)
        time.sleep(0.1 * SLOWNESS)
        kill(process.pid)
        process.wait(TIMEOUT)
        left = nothing_runs(before)
        for pid in left:
            kill(pid)
        assert not left, left
    recover(box)


def test_monitor_stopped_then_killed(box):
    before = set(children())
    process = running(box)
    kill(process.pid, signal.SIGSTOP)
    time.sleep(0.05)
    assert command_line(find(process, "workload")), "the command goes on while the monitor is stopped"
    kill(process.pid)
    process.wait(TIMEOUT)
    assert not nothing_runs(before)
    recover(box)


def test_init_killed(box):
    before = set(children())
    process = running(box, ["sh", "-c", "setsid sleep 30 & sleep 30"])
    kill(find(process, "init"))
    assert process.wait(TIMEOUT) == 137
    assert not nothing_runs(before)
    assert not os.path.exists(box.path(".devcontainer")), "a living monitor tidies up by itself"


def test_init_stopped_is_no_way_to_stay(box):
    before = set(children())
    process = running(box)
    kill(find(process, "init"), signal.SIGSTOP)
    process.terminate()
    time.sleep(0.1)
    kill(process.pid)
    process.wait(TIMEOUT)
    left = nothing_runs(before, 0.3)
    # A stopped init cannot see the monitor's end. It holds no power, and ends when it goes on.
    for pid in left:
        kill(pid, signal.SIGCONT)
    assert not nothing_runs(before)
    recover(box)


def test_command_killed(box):
    process = running(box)
    kill_workload(process)
    assert process.wait(TIMEOUT) == 137


LAUNCHER = """
import os, signal, subprocess, sys, threading, time
started = []
def start():
    started.append(subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE))
thread = threading.Thread(target=start)
thread.start()
thread.join()
process = started[0]
assert process.stdout.readline() == b"ready\\n"
time.sleep(0.2)
print("alive" if process.poll() is None else "ended with the thread", flush=True)
if "KILL" in os.environ:
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.5)
    print("killed", flush=True)
"""


# bubblewrap#692 #700 #633: PR_SET_PDEATHSIG is sent when the thread ends


@pytest.mark.parametrize("end", ["thread", "monitor"])
def test_started_from_a_thread(box, end):
    """The session outlives the thread that started it, and ends with the monitor."""
    before = set(children())
    argv = box.wrap(["sh", "-c", "echo ready; sleep 1" if end == "thread" else "echo ready; sleep 30"])
    env = {} if end == "thread" else {"KILL": "1"}
    result = box.plain([sys.executable, "-c", LAUNCHER, *argv], env=env)
    assert result.stdout.split()[0] == "alive", result
    assert not nothing_runs(before, 3.0 if end == "thread" else 0.2)
    recover(box)


def test_parent_goes_away(box):
    """A shell that ends does not end the session; SIGHUP and signals do that."""
    command = " ".join(box.wrap(["sh", "-c", "'sleep 0.3; echo x > late'"]))
    assert box.plain(["sh", "-c", f"{command} >/dev/null 2>&1 &"]).exit == 0
    end = time.monotonic() + 5
    while not os.path.exists(box.path("late")) and time.monotonic() < end:
        time.sleep(0.02)
    assert os.path.exists(box.path("late"))


def test_signal_in_the_middle_of_the_start(box):
    """Whatever the moment: the signal's own status, and everything tidied up."""
    before = set(children())
    for _ in range(20):
        process = box.start(["sleep", "30"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(random.uniform(0.002, WINDOW))
        process.terminate()
        status = process.wait(TIMEOUT)
        process.stderr.close()
        assert status in (143, -signal.SIGTERM), status
        assert not nothing_runs(before)
    recover(box)


def test_recovery_spares_what_somebody_used(box):
    """A placeholder that got a content after a crash is nobody's to remove."""
    process = running(box)
    kill(process.pid)
    process.wait(TIMEOUT)
    os.chmod(box.path(".devcontainer"), 0o755)
    box.identity.file(box.path(".devcontainer/mine"), "x")
    recover_result = box.run(["true"])
    assert recover_result.exit == 0 and os.path.exists(box.path(".devcontainer/mine"))
    os.unlink(box.path(".devcontainer/mine"))
    os.rmdir(box.path(".devcontainer"))


def test_recovery_believes_no_forged_journal(box):
    """The journal is the user's own, but a broken one must do no harm."""
    folder = os.path.join(box.identity.state, "sandbox/placeholders")
    box.identity.folder(folder, 0o700)
    victim = box.home("victim")
    box.identity.folder(victim)
    for name, data in (("aaaaaaaa", b"d" + os.fsencode(victim) + b"\0\0"), ("bbbbbbbb", b"d"),
                       ("cccccccc", b"\0" * 5000), ("dddddddd", b"f/etc/passwd\0x"),
                       ("eeeeeeee", b"drelative\0\0"), ("ffffffff", b"")):
        path = os.path.join(folder, name)
        with open(path, "wb") as out:
            out.write(data)
        box.identity.own(path)
    recover(box)
    assert os.path.isdir(victim), "a folder of the user's own was removed"


@contextlib.contextmanager
def passing_sockets(box):
    """Folders of the project with a socket in each, which come and go; gives how many there were."""
    over, count = threading.Event(), [0]

    def come_and_go():
        while not over.is_set():
            folder = box.path(f"passing-{count[0]}")
            box.identity.folder(folder)
            with gates.listening(box, f"{folder}/socket"):
                time.sleep(0.0015)
            shutil.rmtree(folder)
            count[0] += 1

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        yield count
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("options", [["--static"], ["--mode", "dynamic"], ["--backend", "bwrap", "--weaken"]],
                         ids=["static", "dynamic", "bwrap"])
def test_what_vanishes_while_a_session_starts(box, options):
    if "bwrap" in options and not shutil.which("bwrap"):
        pytest.skip("bwrap is not installed")
    with passing_sockets(box) as count:
        results = [box.run(["true"], options=options) for _ in range(30)]
    assert not [result for result in results if result.exit], results
    assert count[0] > 30 and not glob.glob(box.path("passing-*")), (count, os.listdir(box.path(".")))


# ---- machines that are short of something ----


def fails_clearly(result):
    assert result.exit == 125, result
    assert result.stderr.startswith("sandbox: ") and "fix:" in result.stderr, result


@pytest.fixture
def small_disk(box, host_root):
    """A full file system of one page."""
    point = box.home("disk")
    box.identity.folder(point)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=4", "tmpfs", point], check=True)
    box.identity.own(point)
    yield point
    subprocess.run(["umount", point], check=True)


def test_full_disk_for_state(box, small_disk):
    box.identity.folder(os.path.join(small_disk, "sandbox/placeholders"), 0o700)
    box.identity.file(os.path.join(small_disk, "last"), "")
    result = box.run(["true"], env={"XDG_STATE_HOME": small_disk})
    fails_clearly(result)
    assert "No space left" in result.stderr
    assert os.listdir(os.path.join(small_disk, "sandbox/placeholders")) == []


def test_full_disk_for_the_project(box, small_disk):
    for name in ("a", "b", "c"):
        box.identity.file(os.path.join(small_disk, name), "")
    result = box.run(["true"], cwd=small_disk)
    fails_clearly(result)
    assert sorted(os.listdir(small_disk)) == ["a", "b", "c"]


@pytest.mark.parametrize("also_runtime", [False, True])
def test_read_only_state_folder(box, host_root, also_runtime):
    point = box.home("disk")
    box.identity.folder(point)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", point], check=True)
    try:
        env = {"XDG_STATE_HOME": point}
        if also_runtime:
            os.symlink(point, box.home("runtime"))
            env["XDG_RUNTIME_DIR"] = point
        result = box.run(["true"], env=env)
        # The runtime folder serves instead; without it there is /tmp.
        assert result.exit == 0 or "fix:" in result.stderr, result
        assert result.exit == 0 or also_runtime, result
    finally:
        subprocess.run(["umount", point], check=True)


def test_overlay_without_a_state_folder(box, small_disk):
    for name in ("a", "b", "c"):
        box.identity.file(os.path.join(small_disk, name), "")
    fails_clearly(box.run(["true"], options=["--overlay", "sub"], env={"XDG_STATE_HOME": small_disk}))


@pytest.mark.parametrize("limit", [3, 4, 6, 8, 12, 16, 24, 32, 64])
def test_few_descriptors(box, limit):
    result = box.run(["true"], before=["prlimit", f"--nofile={limit}"])
    if result.exit == 127 and "prlimit" in result.stderr + result.stdout:
        return  # too few even to load the program
    assert result.exit in (0, 125, 127), result
    if result.exit == 125:
        assert result.stderr.startswith("sandbox: "), result
    assert limit < 32 or result.exit == 0, f"32 descriptors should be enough: {result}"


@pytest.mark.parametrize("gate", gates.GATES)
def test_few_descriptors_for_a_gate(box, host_root, gate):
    """Some of them are just too few for the gate alone: that is told from a command that was killed."""
    gates.need(host_root, gate)
    statuses = []
    for limit in range(30, 80, 4):
        result = dynamic.run(box, ["true"], ["--gate", gate], before=["prlimit", f"--nofile={limit}"])
        statuses.append(result.exit)
        assert result.exit == 0 or result.exit == 125 and result.stderr.startswith("sandbox: "), (limit, result)
    assert {0, 125} == set(statuses), statuses


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_few_processes(box, limit):
    if box.identity.name == "root":
        return  # the kernel exempts uid 0
    result = box.run(["true"], before=["prlimit", f"--nproc={limit}"])
    # A command that is not over at once needs a keeper of its protections, or it is ended.
    ended = result.exit == 137 and "keeper" in result.stderr
    assert result.exit in (0, 125) or ended, result
    if result.exit == 125:
        fails_clearly(result)
        assert "process" in result.stderr
    assert limit > 1 or result.exit == 125, result


@pytest.mark.parametrize("megabytes", [4, 8, 16, 64])
def test_little_memory(box, megabytes):
    if SLOW_BUILD:
        pytest.skip("the sanitizers reserve terabytes of address space")
    result = box.run(["true"], before=["prlimit", f"--as={megabytes << 20}"])
    assert result.exit in (0, 125, 126, 127, 134, 139), result
    assert result.exit == 0 or result.stderr, result


def test_full_private_tmp(box):
    """The command's own trouble, not ours."""
    result = box.run(["sh", "-c", "head -c 1000000 /dev/zero > /tmp/x; exec true"],
                     before=["prlimit", "--fsize=4096"])
    assert result.exit == 0, result


def test_nothing_left_after_a_failed_start(box):
    before = sorted(os.listdir(box.project))
    for options in (["--time-offset=-3153600000"], ["-C", "sub", "--blacklist", "."]):
        box.run(["true"], options=options)
        assert sorted(os.listdir(box.project)) == before
    assert box.run(["no-such-command"]).exit == 127
    assert sorted(os.listdir(box.project)) == before
