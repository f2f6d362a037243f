"""With ask_writes: writes by who stands in the folder already, or has it by a descriptor. A mount that comes later is not
met from there; the call succeeds all the same, as outside. Needs that the caller can be held (ptrace)."""

import os
import shutil
import sys
import time

import pytest

import gates
import harness
from gates import approve, deny
from test_kept_writes import ask_writes

PYTHON = sys.executable

# Often, but so that an emulated processor still gets on.
TICK = 0.001 if harness.SLOWNESS == 1 else 0.1

THREADS = f"""
import os, signal, threading, time
tick = {TICK}
""" + """
count = [0]
signal.signal(signal.SIGALRM, lambda *_: count.__setitem__(0, count[0] + 1))
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, tick, tick)
def make(number):
    for step in range(5):
        os.mkdir(f"made-{number}-{step}")
threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
signal.setitimer(signal.ITIMER_REAL, 0)
print(len([name for name in os.listdir(".") if name.startswith("made-")]))
"""

DESCRIPTORS = """
import os
here, sub = os.open(".", os.O_RDONLY), os.open("sub", os.O_PATH)
os.close(os.open("one", os.O_CREAT | os.O_EXCL | os.O_WRONLY, dir_fd=here))
os.rename("one", "two", src_dir_fd=here, dst_dir_fd=here)
os.symlink("two", "three", dir_fd=sub)
os.link("two", "four", src_dir_fd=here, dst_dir_fd=here)
print(sorted(os.listdir("sub")), sorted(os.listdir(here)), os.get_inheritable(here))
"""

WAYS = {
    "create": "echo x >new; cat new; echo y >>new; cat new",
    "exclusive": "set -C; echo x >new; cat new",
    "mkdir": "mkdir new; ls -d new; mkdir -p new/a/b; ls new/a",
    "rename": "mv file other; cat other; ls file",
    "remove": "rm file; ls file",
    "tree": "mkdir -p new/a/b; rm -r new; ls -d new; rm -r sub/below; ls sub",
    "deeper": "cd sub; echo x >new; cat new; cd ..; cat sub/new",
    "links": "ln -s file soft; cat soft; ln file hard; cat hard",
    "chmod": "chmod 600 file; stat -c %a file",
    "archive": "tar cf all.tar file sub; mkdir out; tar xf all.tar -C out; ls out",
    "git": "git init -q here; ls -a here/.git/HEAD; cd here; git -c user.name=a -c user.email=b commit -q --allow-empty -m x; "
           "git log --format=%s",
    "others": "(sleep 0.1; ls new) & echo x >new; wait; sh -c 'echo y >second; cat second'; cat second",
    "threads": f"{PYTHON} -c '{THREADS}'",
    "descriptors": f"{PYTHON} -c '{DESCRIPTORS}'",
}


def folder(box, name):
    made = box.home(name)
    box.identity.file(f"{made}/file", "content of the file\n")
    box.identity.file(f"{made}/sub/below", "content below\n")
    return made


@pytest.mark.parametrize("way", WAYS)
def test_it_is_as_outside(box, gate, way):
    if way == "threads" and gate == "fuse" and not gates.TELLS_WHO_ASKS:
        pytest.skip("before 6.11 threads that write at the same moment get an error: docs/GATE.md")
    gated, free = folder(box, "gated"), folder(box, "freely")
    outside = box.plain(["/bin/sh", "-c", f"cd {free}; {WAYS[way]}"])
    inside, asked = gates.run(box, gate, ["/bin/sh", "-c", f"cd {gated}; {WAYS[way]}"], lambda event: approve(),
                              options=ask_writes(box))
    assert (inside.stdout, inside.stderr, inside.exit) == (outside.stdout, outside.stderr, outside.exit), asked


def test_what_is_denied_stays_so(box, gate, ground):
    inside, asked = gates.run(box, gate, ["/bin/sh", "-c", f"cd {ground}; mkdir new; mkdir new; ls"],
                              lambda event: deny() if event["op"] == "write" else approve(), options=ask_writes(box))
    assert not os.path.exists(f"{ground}/new") and "new" not in inside.stdout, inside
    assert any(op == "write" for op, _ in asked), asked


def test_who_is_held_by_a_debugger_gets_an_error(box, gate, ground):
    """Not a hang, and nothing is made."""
    if not shutil.which("strace"):
        pytest.skip("no strace")
    inside, _ = gates.run(box, gate, ["/bin/sh", "-c", f"cd {ground}; strace -o /dev/null mkdir new; echo over"],
                          lambda event: approve(), options=ask_writes(box))
    assert inside.stdout == "over\n" and not os.path.exists(f"{ground}/new"), inside
    assert "new" in inside.stderr, inside


# So many stand there when it is granted, and all write at once; none of them gets on for a while.
CROWD = """
import os, sys, time
reader, writer = os.pipe()
def start(count, work):
    pids = []
    for number in range(count):
        pids.append(os.fork())
        if pids[-1] == 0:
            work(number)
            os._exit(0)
    return pids
def write(number):
    os.close(writer)
    os.read(reader, 1)
    os.mkdir(f"made-{number}")
def keep_busy(_):
    end = time.monotonic() + 2
    while time.monotonic() < end: pass
crowd = start(int(sys.argv[1]), write)
os.mkdir("first")
for pid in crowd: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
start(os.cpu_count(), keep_busy)
os.close(writer)
print(sum(os.waitpid(pid, 0)[1] == 0 for pid in crowd))
"""


def test_a_crowd_is_led_there_by_few(box, gate):
    """Each is held by a process outside of the session: not more of them than there may be calls that wait, and a
    few that begin or end. All get there."""
    if gate != "notify":
        pytest.skip("fewer calls wait there")
    gated, most = folder(box, "gated"), 0
    with gates.Session(box, gate, ["/bin/sh", "-c", f"cd {gated} && exec {PYTHON} -c '{CROWD}' 400"], lambda event: approve(),
                       ask_writes(box)) as it:
        while it.process.poll() is None:
            most = max(most, len(list(gates.children_of(it.process.pid, "sandbox-again"))))
            time.sleep(0.01)
        result = it.finish()
    assert result.stdout == "400\n", result
    assert 100 < most < 320, "or nobody was slow"


def test_a_way_that_cannot_be_changed_ends(box, gate):
    """By way of a descriptor in /proc nobody can be led into the mount: an error, not a loop."""
    gated = folder(box, "gated")
    script = "import os; here = os.open('.', os.O_RDONLY)\nfor name in ('one', 'two'):\n" \
        "    try: os.mkdir(f'/proc/self/fd/{here}/{name}'); print('made')\n    except OSError as e: print('error')"
    inside, _ = gates.run(box, gate, ["/bin/sh", "-c", f"cd {gated}; {PYTHON} -c \"{script}\""], lambda event: approve(),
                          options=ask_writes(box))
    words = inside.stdout.split()
    assert len(words) == 2 and all((word == "made") == os.path.isdir(f"{gated}/{name}")
                                   for word, name in zip(words, ("one", "two"), strict=True)), inside
