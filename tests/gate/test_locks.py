"""Calls that hold a lock of the kernel's while they wait: mounting needs some of these locks, and one broker
mounts for all."""

import os
import time

import pytest

import gates
import sessions
from gates import lines

CACHES = ["pip", "uv", "pypoetry", "pre-commit", "node-gyp", "yarn", "go-build", "sccache"]

# A rename holds the locks of two folders, and waits until the first is mounted; meanwhile somebody opens a
# file in the second, which is to be mounted, too.
PAIRS = """
import os, sys, threading
cache = os.environ["HOME"] + "/.cache/"

def rename(first, second, begin):
    begin.wait()
    try:
        os.rename(f"{cache}{first}/a", f"{cache}{second}/b")
    except OSError:
        pass  # another mount by then

def read(second, begin):
    begin.wait()
    open(f"{cache}{second}/file").read()

open(os.environ["HOME"] + "/data/file").read()
for first, second in zip(sys.argv[1::2], sys.argv[2::2]):
    begin = threading.Barrier(2)
    threads = [threading.Thread(target=rename, args=(first, second, begin), daemon=True),
               threading.Thread(target=read, args=(second, begin), daemon=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    if any(thread.is_alive() for thread in threads):
        print("stuck", first, second, flush=True)
        os._exit(1)
print("none is stuck", flush=True)
sys.stdin.read()
"""


def revoked(box, path):
    return box.plain([box.world.command, "policy", "revoke", path])


def test_a_call_that_holds_the_locks_of_two_folders(box, gate):
    """Neither it nor the broker is stuck: what was approved can be taken back."""
    data = os.path.dirname(box.identity.file(box.home("data", "file"), "content\n"))
    for name in CACHES:
        for file in ("a", "file"):
            box.identity.file(box.home(".cache", name, file), "content\n")
    script = f'/usr/bin/python3 -c "$0" {" ".join(CACHES)}; ' \
             f"cat {data}/file; touch over; until [ -e go ]; do sleep 0.02; done; cat {data}/file"
    answers = [gates.deny(), gates.approve(tree=data)]
    with gates.Session(box, gate, ["/bin/sh", "-c", script, PAIRS], lambda event: answers.pop()) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("over")), 40), it.asked
        taken = revoked(box, data)
        box.identity.file(box.path("go"), "")
        result = it.finish()
    assert taken.exit == 0, taken
    assert lines(result) == ["none is stuck", "content"], result  # the control: it could be read before


def test_a_watch_on_a_folder_in_which_somebody_waits_to_write(box, gate, ground):
    """The write is asked about, and nobody answers; the watch is allowed, and does not wait for the write."""
    if gate == "fuse" and not gates.TELLS_WHO_ASKS:
        pytest.skip("before Linux 6.11 a watch on a folder is not asked about")
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    script = f"{gates.files(box)} mkdir {ground}/sub/made >made & sleep 0.4; " \
             f"{gates.files(box)} inotify {ground}/sub; kill $! 2>/dev/null; wait; echo over"
    with gates.Session(box, gate, ["/bin/sh", "-c", script],
                       lambda event: None if event["access"] == "write" else gates.approve(),
                       options=["--policy", box.home("writes.yaml")]) as it:
        result = it.finish(20)
    assert lines(result) == ["inotify ok", "over"], (result, it.asked)
    assert ("write", f"{ground}/sub") in [(op, path) for op, path in it.asked], it.asked
    assert not os.path.exists(f"{ground}/sub/made")


def test_a_connection_to_a_socket_in_a_folder_in_which_somebody_waits_to_write(box, gate, ground):
    """The kernel has to look the socket up anew before it can be mounted, and the write locks the folder."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    script = f"{gates.files(box)} connect {ground}/socket & one=$!; until [ -e go ]; do sleep 0.02; done; " \
             f"{gates.files(box)} mkdir {ground}/made & two=$!; wait $one; kill $two; wait; echo over"
    connects = []

    def answer(event):
        if event["op"] != "connect":
            return gates.approve(id=connects[0])  # now that somebody waits to write, who is not answered
        connects.append(event["id"])
        gates.go_on(box)
        return None

    with gates.listening(box, f"{ground}/socket"), \
            gates.Session(box, gate, ["/bin/sh", "-c", script], answer, ["--policy", box.home("writes.yaml")]) as it:
        result = it.finish(20)
    assert lines(result) == ["connect ok", "over"], (result, it.asked)
    assert ("write", ground) in it.asked and not os.path.exists(f"{ground}/made"), it.asked


def test_files_in_a_folder_in_which_somebody_waits_to_write(box, gate, ground):
    """They are allowed one after the other, each by a mount; nobody answers the write, and it waits on."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    names = [f"file-{number}" for number in range(10)]
    for name in names:
        box.identity.file(f"{ground}/sub/{name}", "content\n")
    # Before Linux 6.12 whatever may have to be made takes the lock of its folder: docs/GATE.md.
    write = ">>" if gates.KERNEL >= (6, 12) else "| dd oflag=append conv=notrunc,nocreat status=none of="
    script = f"cat {' '.join(f'{ground}/sub/{name}' for name in names)} | sort -u; " \
             f"{gates.files(box)} mkdir {ground}/sub/made & sleep 0.4; for name in {' '.join(names)}; do " \
             f"echo more {write}{ground}/sub/$name || echo refused; done; kill $!; wait; echo over"
    with gates.Session(box, gate, ["/bin/sh", "-c", script],
                       lambda event: None if event["path"] == f"{ground}/sub" else gates.approve(),
                       ["--policy", box.home("writes.yaml")]) as it:
        result = it.finish(20)
    assert lines(result) == ["content", "over"], (result, it.asked)
    writes = [path for op, path in it.asked if op == "write"]
    assert writes == [f"{ground}/sub", *(f"{ground}/sub/{name}" for name in names)], it.asked


def test_names_in_folders_in_which_somebody_waits_to_make_one(box, gate, ground):
    """Others look for names there, new ones as well, and do not wait for that answer. Then it is given, and each that
    waited makes its own, by its path or from where it stands."""
    if gate == "fuse" and not gates.TELLS_WHO_ASKS:
        pytest.skip("before Linux 6.11 it waits with the folder locked")
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    ways, held = ("mkdir", "create", "symlink", "mkfifo"), []
    folders = [f"{ground}/{way}-{where}" for way in ways for where in ("by-path", "inside")]
    for folder in folders:
        box.identity.file(f"{folder}/old", "content\n")
    script = "".join(f"{gates.files(box)} {way} {ground}/{way}-by-path/made & "
                     f"(cd {ground}/{way}-inside && {gates.files(box)} {way} made) & " for way in ways)
    script += "while [ ! -e go ]; do sleep 0.02; done; " + "".join(
        f"[ -e {folder}/new ] || [ ! -e {folder}/old ] || " for folder in folders) + "touch seen; wait"
    with gates.Session(box, gate, ["/bin/sh", "-c", script],
                       lambda event: held.append(event["id"]) if event["op"] == "write" else gates.approve(),
                       ["--policy", box.home("writes.yaml")]) as it:
        assert sessions.eventually(lambda: len(held) == len(folders)), it.asked
        gates.go_on(box)
        seen = sessions.eventually(lambda: os.path.exists(box.path("seen")))
        for one in held:
            it.control.send({**gates.approve(), "id": one})
        result = it.finish(20)
    assert sorted(lines(result)) == sorted(f"{way} ok" for way in ways for _ in range(2)) and seen, (result, it.asked)
    assert all(os.path.lexists(f"{folder}/made") for folder in folders), result
    assert sorted(path for op, path in it.asked if op == "write") == sorted(folders), it.asked


LISTING = """
import os, sys, time
ground = sys.argv[1]
open(f"{ground}/sub/below").close()
folder = os.open(f"{ground}/sub", os.O_RDONLY | os.O_DIRECTORY)
open("ready", "w").close()
while not os.path.exists("go"):
    time.sleep(0.02)
print(os.listdir(folder), open(f"{ground}/exact").read(), end="", flush=True)
"""


def test_who_lists_a_folder_that_was_above_a_mount(box, gate, ground):
    """It was opened when nothing could be mounted on it. Its names are asked for when something can: the kernel
    has it locked meanwhile, and neither that call nor the next approval is stuck."""
    with gates.Session(box, gate, ["/usr/bin/python3", "-c", LISTING, ground], lambda event: gates.approve()) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("ready"))), it.asked
        os.rename(f"{ground}/sub/below", f"{ground}/sub/moved")  # so that it is taken back
        time.sleep(0.5)
        gates.go_on(box)
        result = it.finish(20)
    assert lines(result) == ["['moved'] content of the exact one"], (result, it.asked)


# By a descriptor: the kernel holds the file's own lock while it checks the right to do this. What was allowed
# once is over by then.
ATTRIBUTE = """
import os, sys, time
file = os.open(sys.argv[1], os.O_RDONLY)
time.sleep(2.5)
try:
    os.setxattr(file, "user.name", b"value")
except OSError:
    print("refused", flush=True)
print(open(sys.argv[1]).read(), open(sys.argv[2]).read(), end="", flush=True)
"""


def test_a_write_by_a_descriptor(box, gate, ground):
    """It is asked about, and approved: neither it nor the next approval is stuck."""
    scopes = ["once"]
    with gates.Session(box, gate, ["/usr/bin/python3", "-c", ATTRIBUTE, f"{ground}/file", f"{ground}/exact"],
                       lambda event: gates.approve(scopes.pop() if scopes else "session")) as it:
        result = it.finish(20)
    assert lines(result) == ["refused", "content of the file", " content of the exact one"], (result, it.asked)
