"""E75-E79, E88, E95: other processes, those of the sandbox and those of the host."""

import os
import signal
import subprocess
import time

import pytest

from harness import SLOWNESS
from rows import GONE, Row, judge, refuses, table
from sessions import eventually

pytestmark = pytest.mark.escape

INIT = {"EPERM", "EACCES", "ESRCH", "ENOSYS", "ENOENT"}
HOST_INIT = "pid 1 of the host is not ours to touch; the row on a planted process stands for it"


def on_init(name, argv, deny=INIT):
    return Row(name, argv, deny, control=None, no_control=HOST_INIT)


# On the sandbox's own pid 1. What a process may always do to another of the same user and what
# harms nobody but the session (signals, nice values) is not here.
ON_INIT = [
    on_init("E75.seize", ["E75", "1"]),
    on_init("E75.attach", ["E75.attach", "1"]),
    on_init("E75.all", ["E75.all"]),
    on_init("E76.write", ["E76.write", "1"]),
    on_init("E76.read", ["E76.read", "1"]),
    *[on_init(f"E76.getfd.{fd}", ["E76.pidfd", "1", str(fd)], INIT)
      for fd in (0, 1, 2, 3, 4, 5)],
    on_init("E77.mem", ["openw", "/proc/1/mem"]),
    on_init("E77.mem-read", ["read", "/proc/1/mem"]),
    on_init("E77.environ", ["read", "/proc/1/environ"], INIT | {"EMPTY"}),
    on_init("E77.maps", ["read", "/proc/1/maps"], INIT | {"EMPTY"}),
    on_init("E77.auxv", ["read", "/proc/1/auxv"], INIT | {"EMPTY"}),
    on_init("E77.stack", ["read", "/proc/1/stack"], INIT | {"EMPTY"}),
    on_init("E77.syscall", ["read", "/proc/1/syscall"], INIT | {"EMPTY"}),
    # The numbers may be listed by the same user; what they lead to may not.
    *[on_init(f"E77.fd.{fd}", ["E77.link", f"/proc/1/fd/{fd}"]) for fd in (0, 1, 2, 3, 4, 5)],
    on_init("E77.map_files", ["list", "/proc/1/map_files"], INIT | {"EMPTY"}),
    on_init("E77.exe", ["E77.link", "/proc/1/exe"]),
    on_init("E77.root", ["E77.link", "/proc/1/root"]),
    on_init("E77.cwd", ["E77.link", "/proc/1/cwd"]),
    on_init("E77.list-root", ["list", "/proc/1/root"]),
    on_init("kcmp", ["kcmp", "1"]),
    on_init("robust", ["robust", "1"]),
]

# Rights over scheduling that only a capability gives. control: the host refuses a plain user.
OVER_US = [
    Row("sched.fifo", ["sched.fifo"], {"EPERM", "ENOSYS"}, refuses(root=["OPEN"], user=["EPERM"])),
    Row("nice", ["nice"], {"EPERM", "EACCES"}, refuses(root=["OPEN"], user=["EACCES", "EPERM"])),
    Row("ioprio.rt", ["ioprio.rt"], {"EPERM", "ENOSYS"},
        refuses(root=["OPEN"], user=["EPERM", "OPEN"])),
    Row("prlimit.raise", ["prlimit.raise"], {"EPERM"},
        refuses(root=["OPEN", "EPERM"], user=["EPERM"])),  # EPERM: root of a container
]


@table(ON_INIT)
def test_init(box, row):
    judge(box, row)


@table(OVER_US)
def test_scheduling(box, row):
    judge(box, row)


@pytest.fixture
def victim(box):
    """A process of the host, of the same user."""
    process = box.popen(["sleep", "60"], stdout=subprocess.DEVNULL)
    time.sleep(0.02)
    yield process
    if process.poll() is None:
        process.kill()
    process.wait()


ON_HOST = [
    ("E75.host", ["E75", "{pid}"]),
    ("E75.host-attach", ["E75.attach", "{pid}"]),
    ("E76.host-read", ["E76.read", "{pid}"]),
    ("E76.host-write", ["E76.write", "{pid}"]),
    ("E76.host-getfd", ["E76.pidfd", "{pid}", "0"]),
    ("E77.host-mem", ["openw", "/proc/{pid}/mem"]),
    ("E77.host-environ", ["read", "/proc/{pid}/environ"]),
    ("E77.host-root", ["list", "/proc/{pid}/root"]),
    ("E79.host-signal", ["kill", "{pid}", "0"]),
    ("E79.host-pidfd", ["kill.pidfd", "{pid}", "0"]),
    ("prlimit.host", ["prlimit", "{pid}"]),
    ("sched.host", ["sched", "{pid}"]),
    ("ioprio.host", ["ioprio", "{pid}"]),
    ("kcmp.host", ["kcmp", "{pid}"]),
    ("migrate.host", ["migrate", "{pid}"]),
    ("robust.host", ["robust", "{pid}"]),
    ("oom.host", ["oom", "/proc/{pid}/oom_score_adj"]),
    ("timerslack.host", ["openw", "/proc/{pid}/timerslack_ns"]),
    ("coredump.host", ["openw", "/proc/{pid}/coredump_filter"]),
]
# The host may refuse these too: yama, kernels without the call, capabilities.
HOST_MAY_REFUSE = {"E75.host", "E75.host-attach", "E76.host-read", "E76.host-write",
                   "E76.host-getfd", "E77.host-mem", "oom.host", "kcmp.host", "migrate.host",
                   "robust.host"}


@pytest.mark.parametrize("name,argv", ON_HOST, ids=[name for name, _ in ON_HOST])
def test_process_of_host(box, victim, name, argv):
    argv = [box.attempt, *(word.format(pid=victim.pid) for word in argv)]
    word, rest = box.plain(argv).verdict()
    assert word == "OPEN" or (name in HOST_MAY_REFUSE and rest in ("EPERM", "EACCES", "ENOSYS")), \
        f"control of {name}: {word} {rest}"
    word, rest = box.run(argv).verdict()
    assert word == "DENIED" and rest in GONE, f"{name}: {word} {rest}"
    assert victim.poll() is None


def test_kill_everything(box, victim):
    """E79: only the sandbox dies, and the caller is told."""
    here = os.readlink("/proc/self/ns/pid")
    control = box.plain(["unshare", *(["-U"] if box.identity.uid else []), "-pf", "--kill-child",
                         "--mount-proc" if not box.identity.uid else "--mount", "sh", "-c",
                         f"sleep 60 & {box.attempt} E79 pid:[0]; wait; echo survived"],
                        timeout=5 * SLOWNESS)
    assert "OPEN" in control.stdout or control.exit >= 128, control
    result = box.run([box.attempt, "E79", here], timeout=10 * SLOWNESS)
    assert "not tried" not in result.stdout, f"E79: {result}"
    assert victim.poll() is None, "E79: a process of the host was killed"
    assert result.exit != 0 or result.verdict()[0] in ("DENIED", "OPEN"), result


MAKER = {
    "trace": ["E75", "2"], "write": ["E76.write", "2"], "steal": ["E76.pidfd", "2", "0"],
    "root": ["E77.link", "/proc/2/root"],
}


@pytest.mark.skipif(bool(os.environ.get("SANDBOX_PEER")), reason="a process of ours")
@pytest.mark.parametrize("name", MAKER)
def test_maker(box, name):
    """E75: who made the session's network may still be on its way out when the command begins. The
    control is the other process that is there, which is the command's own."""
    for _ in range(20):
        verdict = box.run([box.attempt, *MAKER[name]]).verdict()
        assert verdict[0] == "DENIED", verdict
    own = [word if word not in ("2", "/proc/2/root") else word.replace("2", "$!")
           for word in MAKER[name]]
    words = " ".join(own)
    control = box.run(["sh", "-c", f"sleep 5 & {box.attempt} {words}; kill -9 $!"])
    assert "OPEN" in control.stdout, control


@pytest.mark.parametrize("number", [9, 15, 19, 11], ids=lambda number: f"E88.{number}")
def test_signal_to_init(box, number):
    """E88: ignored, or the sandbox ends. It does not hang, and nobody takes init's place."""
    result = box.run(["sh", "-c", f"{box.attempt} kill 1 {number}; sleep 0.2; echo went-on"],
                     timeout=10 * SLOWNESS)
    assert "went-on" in result.stdout or result.exit >= 125, result


def test_supervisor_invisible(box):
    """E75: neither the supervisor nor anything else of the host is among the processes."""
    control = box.plain(["sh", "-c", "ls -d /proc/[0-9]* | wc -l"])
    result = box.run(["sh", "-c", "ls -d /proc/[0-9]* | wc -l"])
    assert int(control.stdout) > 8, control
    assert int(result.stdout) <= 6, f"more processes than ours: {result}"


def test_parent_is_inside(box):
    """E75: the parent's pid is 0 or one of the sandbox, never a number of the host."""
    result = box.run(["sh", "-c", "echo $PPID"])
    assert int(result.stdout) <= 3, result


def test_daemon_ends_with_session(box):
    """E95: double fork, own session, every signal ignored."""
    beat = box.path("beat")
    control = box.plain([box.attempt, "E95", beat])
    time.sleep(0.12)
    first = open(beat).read()
    time.sleep(0.12)
    assert open(beat).read() != first, f"control: the daemon does not live: {control}"
    kill_daemons(box)
    os.unlink(beat)
    result = box.run([box.attempt, "E95", beat])
    time.sleep(0.3)
    first = open(beat).read() if os.path.exists(beat) else ""
    time.sleep(0.15)
    last = open(beat).read() if os.path.exists(beat) else ""
    assert first == last, f"E95: it outlived the session: {result}"


def kill_daemons(box):
    """Only ours: descendants of this test run that run the attempt program."""
    import harness
    for pid, line in harness.children().items():
        if line.startswith(box.attempt + " E95"):
            os.kill(pid, signal.SIGKILL)


def test_background_job_does_not_hold_the_session(box):
    """E95: a job that keeps the pipes open is ended, not waited for."""
    result = box.run(["sh", "-c", "sleep 30 & echo done"], timeout=10 * SLOWNESS)
    assert "done" in result.stdout and result.seconds < 5 * SLOWNESS, result


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP],
                         ids=lambda number: f"E95.{number.name}")
def test_supervisor_killed(box, number):
    """The session ends with its supervisor, however that dies; the fixture looks for leftovers."""
    beat = box.path("beat")
    process = box.start([box.attempt, "E95", beat], stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL)
    other = box.start(["sh", "-c", f"trap '' TERM INT HUP; while :; do date +%N >{beat}; done"],
                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process.wait(10)
    time.sleep(0.2)
    os.kill(other.pid, number)
    if number in (signal.SIGKILL,):
        other.wait(5)
        time.sleep(1)
        first = open(beat).read()
        time.sleep(0.1)
        assert open(beat).read() == first, "the workload outlived its supervisor"
    else:
        time.sleep(0.2)
        other.kill()
        other.wait(5)
        time.sleep(1)
    box.run(["true"])


@pytest.mark.works
def test_debugging_works(box):
    """E78: a debugger on its own child."""
    assert box.run([box.attempt, "E78"]).verdict()[0] == "OPEN"


def test_no_debug(box):
    """E78: and not with --no-debug."""
    result = box.run([box.attempt, "E78"], options=("--no-debug",))
    assert result.verdict()[0] == "DENIED", result
    result = box.run([box.attempt, "E76.read", "2"], options=("--no-debug",))
    assert result.verdict()[0] == "DENIED", result


@pytest.mark.works
@pytest.mark.parametrize("tool", [["gdb", "-batch", "-ex", "run", "-ex", "bt", "/bin/true"],
                                  ["strace", "-f", "-o", "/dev/null", "/bin/true"]],
                         ids=["E78.gdb", "E78.strace"])
def test_debugger(box, tool):
    if box.plain(["sh", "-c", "command -v " + tool[0]]).exit:
        pytest.skip(f"{tool[0]} is not installed")
    control = box.plain(tool, timeout=30)
    result = box.run(tool, timeout=30)
    assert result.exit == control.exit and "not permitted" not in result.stderr, result


# In every way: the library's call, a shell's, and one with a pointer whose lower half is zero.
LOWER_CORE_LIMIT = """
import ctypes, os, resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
flags = 0x22 | 0x100000  # private, anonymous, fixed
at = libc.mmap(ctypes.c_void_p(1 << 32), 4096, 3, flags, -1, ctypes.c_long(0))
assert at == 1 << 32, at
number = {"x86_64": 302, "aarch64": 261}[os.uname().machine]
assert libc.syscall(number, 0, resource.RLIMIT_CORE, ctypes.c_void_p(at), None) == 0
os.execvp("sh", ["sh", "-c", "ulimit -c 0; " + AFTERWARDS])
"""


def lower_core_limit(afterwards):
    return ["python3", "-c", LOWER_CORE_LIMIT.replace("AFTERWARDS", repr(afterwards))]


def test_core_limit_stays(box):
    """1 keeps the kernel from starting the handler that core_pattern names; 0 does not."""
    show = lower_core_limit("grep core /proc/self/limits")
    assert box.plain(show).stdout.split()[4:6] == ["0", "0"], "the control lowers nothing"
    assert box.run(show).stdout.split()[4:6] == ["1", "1"]


@pytest.mark.parametrize("options", [["--static"], ["--mode", "dynamic"], ["--backend", "landlock", "--weaken"]],
                         ids=["static", "dynamic", "landlock"])
def test_no_core_files_at_all(box, options):
    """`ulimit -c 0`: nobody can raise the limit to 1 any more."""
    result = box.run(["grep", "core", "/proc/self/limits"], options=options, before=["prlimit", "--core=0"])
    assert result.exit == 0 and result.stdout.split()[4:6] in (["0", "0"], ["1", "1"]), result  # 1: root may


@pytest.mark.parametrize("pattern", ["|/usr/lib/handler %P", "core"])
def test_it_is_said_if_a_core_handler_can_be_started(box, host_root, pattern):
    here = box.home("pattern")
    box.identity.file(here, f"{pattern}\n")
    place = "/proc/sys/kernel/core_pattern"  # the tests' mount namespace is their own
    subprocess.run(["mount", "--bind", here, place], check=True)
    try:
        first, second = (box.plain([box.world.command, "run", "--static", "--dry-run", "--", "true"], before=before)
                         for before in (["prlimit", "--core=0"], []))
    finally:
        subprocess.run(["umount", place], check=True)
    assert first.exit == 0 and (place in first.stdout + first.stderr) == pattern.startswith("|"), first
    assert second.exit == 0 and place not in second.stdout + second.stderr, second


@pytest.mark.skipif("SANDBOX_TEST_VM" not in os.environ,
                    reason="core_pattern belongs to the whole machine: only in a guest of test-vm")
def test_core_handler_of_the_host_is_not_started(box):
    if os.geteuid() != 0:
        pytest.skip("core_pattern is root's")
    mark, handler = box.home("handled"), box.home("handler")
    with open(handler, "w") as script:
        script.write(f"#!/bin/sh\necho handled >> {mark}\n")
    os.chmod(handler, 0o755)
    with open("/proc/sys/kernel/core_pattern", "w") as pattern:
        pattern.write("|" + handler)
    crash = lower_core_limit("kill -SEGV $$")
    box.run(crash)
    time.sleep(1)
    assert not os.path.exists(mark)
    box.plain(crash)
    assert eventually(lambda: os.path.exists(mark)), "the control starts no handler"


LIMIT = r"""
import resource, subprocess, sys
number = getattr(resource, sys.argv[1])
resource.prlimit(0, number, resource.prlimit(0, number))  # one's own
for target in subprocess.Popen(["sleep", "9"]), None:
    try: resource.prlimit(target.pid if target else 1, number, (1, 1)); print("set")
    except PermissionError: print("refused")
    if target: target.kill()
"""


@pytest.mark.parametrize("limit", ["RLIMIT_NOFILE", "RLIMIT_NPROC"])
def test_limits_of_others(box, limit):
    """Without descriptors or processes init could start no `exec`."""
    argv = ["/usr/bin/python3", "-c", LIMIT, limit]
    own_user_space = ["unshare", "--user", "--pid", "--fork", "--map-root-user"]
    control = box.plain([*own_user_space, *argv])
    assert "set" in control.stdout.split(), control
    result = box.run(argv)
    assert result.exit == 0 and result.stdout.split() == ["refused"] * 2, result
