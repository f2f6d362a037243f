"""What the gate must not wait for. Most of all memory of the command that is a file which the gate serves: whoever looks
at it waits for the monitor, and must not be the monitor. (With seccomp notify nothing is served.)"""

import contextlib
import json
import os
import subprocess
import time

import pytest

import gates
import harness
import sessions


@pytest.fixture
def zeros(box, ground):
    return box.identity.file(f"{ground}/zeros", "\0" * 8192)


def answer(event):
    return gates.approve("once") if event["path"].endswith("/zeros") else gates.deny()


def stall(box):
    return gates.program(box.world, "gate-stall")


# One of many that are looked at executes a program: there is time for it to do so meanwhile.
EXEC = '''
import os, sys, time
for i in range(200):
    if os.fork() == 0:
        time.sleep(60)
if os.fork() == 0:
    file = os.open(sys.argv[1], os.O_RDONLY | os.O_CLOEXEC)
    open("ready", "w").close()
    time.sleep(0.5)
    os.execv("/bin/touch", ["touch", "executed"])
while not os.path.exists("go"):
    time.sleep(0.02)
print("done", flush=True)
os.kill(-1, 9)
'''


def test_a_call_whose_arguments_the_gate_serves(box, gate, ground, zeros):
    """What a call is about is read from the caller's memory. The control: it was asked about, so it was looked at."""
    argv = [stall(box), "3", zeros, f"{ground}/sub/../sub/../sub/below"]
    result, asked = gates.run(box, gate, argv, answer, timeout=harness.TIMEOUT)
    assert result.stdout == "done\n", result
    assert asked[0] == ("read", zeros) and ("read", f"{ground}/sub/below") in asked, asked


def test_a_list_of_processes_whose_memory_waits_for_the_gate(box, gate, zeros):
    """The words of a command line are in memory, too. It goes on when the command ends, which the command decides
    on: so the list must come before. The control: the words are told when it lets us look."""
    patience = 2 * harness.SLOWNESS
    argv = [stall(box), str(3 * patience), zeros]
    told = set()
    with gates.Session(box, gate, argv, answer) as it:
        assert sessions.eventually(lambda: it.asked)
        with sessions.Control(box, it.sid) as control, contextlib.suppress(ConnectionError):
            control.socket.settimeout(patience)
            while it.process.poll() is None and (listed := control.call({"cmd": "cmd.ps"})):
                told |= {process["command"] for process in listed.get("processes", ())}
        assert it.finish(harness.TIMEOUT).stdout == "done\n"
    assert " ".join(argv) in told, told


def test_an_exec_that_closes_what_the_gate_serves(box, gate, ground):
    """Nobody can look at a process that is closing its files, and these are closed when the gate knows of it. The
    control: it has executed the program while somebody looked."""
    with gates.Session(box, gate, ["/usr/bin/python3", "-c", EXEC, f"{ground}/file"],
                       lambda event: gates.approve("once")) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("ready")))
        with sessions.Control(box, it.sid) as control:
            control.socket.settimeout(harness.TIMEOUT)
            looks = 0
            while not os.path.exists(box.path("executed")):
                assert "processes" in control.call({"cmd": "cmd.stats"})
                looks += 1
        gates.go_on(box)
        assert it.finish(harness.TIMEOUT).stdout == "done\n" and looks > 1
    assert it.asked == [("read", f"{ground}/file")]


# Whoever opens it waits until he gives it back, as he is asked to; or for the kernel's 45 seconds.
LEASE = '''
import fcntl, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
held = open(sys.argv[1])
fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
time.sleep(600)
'''


def test_a_file_that_somebody_has_a_lease_on(box, gate, ground):
    """Allowed once it is opened for the caller. That fails, and the next question is answered as ever. The control: it
    does not fail when the lease is gone."""
    argv = ["/bin/cat", f"{ground}/file", f"{ground}/exact"]
    holder = box.popen(["/usr/bin/python3", "-c", LEASE, f"{ground}/file"], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        with gates.Session(box, gate, argv, lambda event: gates.approve("once")) as it:
            result = it.finish(harness.TIMEOUT)
    finally:
        sessions.end_group(holder)
    assert result.stdout == "content of the exact one\n" and result.exit == 1, (result, it.asked)
    after, _ = gates.run(box, gate, argv, lambda event: gates.approve("once"))
    assert after.stdout == "content of the file\ncontent of the exact one\n", after


def end_connection(pid):
    """As an administrator can do it, or a kernel that waits for no file system longer than it was told to."""
    with open(f"/proc/{pid}/mountinfo") as mounts:
        number = next(line.split()[2].split(":")[1] for line in mounts if " - fuse.sandbox " in line)
    folder = "/sys/fs/fuse/connections"
    script = f"mount -t fusectl fusectl {folder} && echo 1 >{folder}/{number}/abort"
    ended = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        pytest.skip(f"FUSE connections cannot be ended here: {ended.stderr}")


def used_seconds(pid):
    with open(f"/proc/{pid}/stat") as source:
        return sum(map(int, source.read().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def test_a_gate_that_the_kernel_has_ended(box, gate, ground, host_root):
    """Nobody waits for an answer any more, and there is nothing to be done. What is mounted is as it was. Whoever sees
    commands fail is told why, once; the control is every other test, whose stderr says nothing of it."""
    if gate != "fuse":
        pytest.skip("there is none")
    script = f"cat {ground}/file; touch refused; while [ ! -e go ]; do sleep 0.02; done; cat {ground}/exact; cat main.c"
    with gates.Session(box, gate, ["/bin/sh", "-c", script], lambda event: None) as it:
        assert sessions.eventually(lambda: it.asked)
        end_connection(sessions.processes_of(box, it.sid)[-1]["host_pid"])
        assert sessions.eventually(lambda: os.path.exists(box.path("refused")))
        assert sessions.eventually(lambda: it.withdrawn == ["withdrawn"]), it.withdrawn
        before = used_seconds(it.process.pid)
        time.sleep(1)
        assert used_seconds(it.process.pid) - before < 0.2
        gates.go_on(box)
        result = it.finish()
    with open(box.path("main.c")) as source:
        assert result.stdout == source.read() and len(it.asked) == 1, (result, it.asked)
    assert result.stderr.count("the gate of this session was closed from outside") == 1, result
    assert f"sandbox kill {it.sid}" in result.stderr, result
    logged = box.plain([box.world.command, "audit", "--event", "gate.ended", "--json"]).stdout.splitlines()
    assert len(logged) == 1 and json.loads(logged[0])["session"] == it.sid, logged
