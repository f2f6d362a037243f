"""What is allowed once: one use by one process, of the object that was shown, and nothing for others."""

import contextlib
import os
import signal
import socket
import struct

import pytest

import gates
import harness
import sessions
from gates import files, lines, listening


def test_once_is_one_call(box, gate, ground):
    path = f"{ground}/file"
    answers = iter([gates.approve("once")])
    inside, asked = gates.run(box, gate, ["/bin/sh", "-c", f"cat {path}; cat {path}"],
                              lambda event: next(answers, gates.deny()))
    assert inside.stdout == "content of the file\n", inside
    assert len(asked) == 2


def test_what_may_be_looked_at_once_cannot_be_written_to(box, gate, ground):
    """And nobody says that it could. What is sent to a pipe is not written to it."""
    argv = [files(box), "writable", f"{ground}/file", "access", f"{ground}/file", "append", f"{ground}/file",
            "writable", f"{ground}/fifo"]
    inside, asked = gates.run(box, gate, argv, lambda event: gates.approve("once"))
    assert lines(inside) == ["writable EROFS", "access ok", "append EROFS", "writable ok"], (inside, asked)


@pytest.mark.parametrize("way", ["stat", "statx", "access", "getxattr", "listxattr", "statfs"])
def test_once_is_one_use(box, gate, ground, way):
    """Programs look at a file, then open it: one question. The next one is another use."""
    path, answers = f"{ground}/file", iter([gates.approve("once")])
    with contextlib.suppress(OSError):  # where there are none, both say so
        os.setxattr(path, "user.test", b"value of it")
    argv = [files(box), way, path, "open", path, "open", path]
    inside, asked = gates.run(box, gate, argv, lambda event: next(answers, gates.deny()))
    assert lines(inside) == [*lines(box.plain(argv))[:2], "open EACCES"], (inside, asked)
    assert len(asked) == 2


def gated_by(way):
    """What a way is tried on."""
    return "program" if way == "execute" else "socket" if "connect" in way or "send" in way else "file"


@pytest.mark.parametrize("rights", [False, True])
def test_once_is_refused_where_it_would_give_nothing(box, gate, ground, rights):
    """Nobody else can send a descriptor for its owner. Whoever answers is told so, and may answer
    again. The control: without one it can be had."""
    if gate == "notify":
        pytest.skip("sendmsg with a name is not asked about there, see docs/GATE.md")
    way, told = "send-rights" if rights else "send-message", []
    with listening(box, f"{ground}/socket", socket.SOCK_DGRAM) as listener:
        with gates.Session(box, gate, [files(box), way, f"{ground}/socket"], lambda event: None) as it:
            assert sessions.eventually(lambda: it.asked)
            control = sessions.Control(box, it.sid)
            pending = control.call({"cmd": "cmd.pending"})
            (question,) = pending["requests"]
            for scope in ("once", "session")[:1 + rights]:
                told.append(control.call({"cmd": "cmd.approve", "id": question["id"], "scope": scope}))
            assert lines(it.finish()) == [f"{way} ok"], told
            control.__exit__()
        assert listener.recv(10) == b"x"
    assert question["narrowest"] == ("session" if rights else "once") and told[-1]["ok"], told
    assert not rights or "just once" in told[0]["error"]["message"], told


@pytest.mark.parametrize("way", ["connect", "compat-connect", "thread-connect", "alone-connect",
                                 "alarmed-connect", "send", "inotify",
                                 "path-only", "path-nofollow", "execute"])
def test_once_is_one_call_of_any_kind(box, gate, ground, way):
    """It does what it does outside; the next one is asked about again, and denied. The process forks to
    execute, so that the second is another's."""
    if way == "alone-connect" and gates.KERNEL < (6, 9):
        pytest.skip("no pidfd of a thread, see docs/GATE.md")
    path = f"{ground}/{gated_by(way)}"
    answers = iter([gates.approve("once")])
    kind = socket.SOCK_DGRAM if way == "send" else socket.SOCK_STREAM
    with listening(box, f"{ground}/socket", kind):
        argv = [files(box), way, path]
        expected = lines(box.plain(argv))
        script = f"{files(box)} {way} {path}; {files(box)} {way} {path}"
        inside, asked = gates.run(box, gate, ["/bin/sh", "-c", script],
                                  lambda event: next(answers, gates.deny()))
    assert lines(inside) == [expected[0], f"{way} EACCES"], (inside, asked)
    assert len(asked) == 2, asked


def test_a_watch_that_is_allowed_once_sees_what_the_host_does(box, gate, ground):
    path = f"{ground}/file"
    with gates.Session(box, gate, [files(box), "watch", path],
                       lambda event: gates.approve("once")) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("watching")))
        box.identity.file(path, "more\n")
        assert lines(it.finish()) == ["watch changed"]


def test_a_script_runs_once(box, gate, ground):
    """With its interpreter, and by the name that it was called with; then it is read by its
    interpreter, which is the same process."""
    box.identity.file(f"{ground}/script", "#!/bin/sh\necho \"$0\" \"$@\"\n")
    os.chmod(f"{ground}/script", 0o755)
    answers = iter([gates.approve("once")])
    script = f"{ground}/script word; {ground}/script word"
    inside, asked = gates.run(box, gate, ["/bin/sh", "-c", script],
                              lambda event: next(answers, gates.deny()))
    assert inside.stdout == f"{ground}/script word\n", (inside, asked)
    assert len(asked) == 2, asked


def test_many_execute_once_at_the_same_time(box, gate, ground):
    """Each is allowed by itself, and none is disturbed by the others' looking at the same names."""
    script = f"for i in $(seq 20); do {ground}/program $i & {files(box)} execute {ground}/script & " \
             "done; wait"
    inside, _ = gates.run(box, gate, ["/bin/sh", "-c", script], lambda event: gates.approve("once"))
    assert sorted(lines(inside)) == sorted([*map(str, range(1, 21)),
                                            *[f"execute {ground}/script argument"] * 20]), inside


def test_a_script_and_its_interpreter_execute_once_at_the_same_time(box, gate, ground):
    """One runs the script, the other its interpreter, a script itself; both have got as far as the program that
    runs it. The control: one after the other."""
    for name, runs in (("outer", f"{ground}/inner"), ("inner", f"{ground}/program")):
        box.identity.file(f"{ground}/{name}", f"#!{runs}\n")
        os.chmod(f"{ground}/{name}", 0o755)
    both = [f"{files(box)} execute {ground}/{name}" for name in ("outer", "inner")]
    expected = [f"execute {ground}/inner {ground}/outer argument", f"execute {ground}/inner argument"]
    inside, _ = gates.run(box, gate, ["/bin/sh", "-c", "; ".join(both)], lambda event: gates.approve("once"))
    assert lines(inside) == expected, inside
    held = []

    def answer(event):
        if event["path"] != f"{ground}/program":
            return gates.approve("once")
        held.append(event["id"])
        box.identity.file(box.path("second"), "")
        return None

    script = f"{both[0]} & while [ ! -e second ]; do sleep 0.02; done; {both[1]} & wait"
    with gates.Session(box, gate, ["/bin/sh", "-c", script], answer) as it:
        with sessions.Control(box, it.sid) as control:
            assert sessions.eventually(lambda: [one["waiting"] for one in control.call(
                {"cmd": "cmd.pending"})["requests"]] == [2])
            assert control.call({"cmd": "cmd.approve", "id": held[0], "scope": "once"})["ok"]
        assert sorted(lines(it.finish())) == sorted(expected)


OPENERS = r"""
import os, sys, threading
def open_it():
    try:
        fd = os.open(sys.argv[1], os.O_RDONLY)
        os.sendfile(1, fd, 0, 64)
        os.close(fd)
    except OSError as error:
        os.write(1, repr(error).encode() + b"\n")
os.fork(); os.fork()
threads = [threading.Thread(target=open_it) for _ in range(4)]
[one.start() for one in threads]
[one.join() for one in threads]
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""


def test_many_open_once_at_the_same_time(box, gate, ground):
    """Threads and processes that one answer lets go, and each is gone again at once. Each reads the whole file,
    whatever the others have done to it by then."""
    with gates.Session(box, gate, ["/usr/bin/python3", "-c", OPENERS, f"{ground}/file"],
                       lambda event: None) as it:
        with sessions.Control(box, it.sid) as control:
            waiting = sessions.eventually(lambda: [one["id"] for one in control.call(
                {"cmd": "cmd.pending"})["requests"] if one["waiting"] == 16])
            assert waiting
            assert control.call({"cmd": "cmd.approve", "id": waiting[0], "scope": "once"})["ok"]
        assert lines(it.finish()) == ["content of the file"] * 16


ONLOOKER = """
import os, subprocess, sys, time
program = sys.argv[1]
running = subprocess.Popen([program, '60'])
def attempt(name, what):
    try:
        what()
        print(name, 'WORKED')
    except OSError as error:
        print(name, error.strerror)
for turn in range(2):
    attempt('execute', lambda: subprocess.run([program, '0'], check=True))
    attempt('open', lambda: open(program, 'rb'))
    attempt('link', lambda: os.readlink(program))
    for number in ('1023', '1022', '1021'):
        attempt(number, lambda: open('/proc/thread-self/fd/' + number, 'rb'))
    time.sleep(0.3)
print(running.poll())
running.kill()
"""


@pytest.mark.escape
def test_what_one_may_execute_once_is_nothing_to_others(box, gate, ground):
    """Its parent tries while it runs, by the same name. The control: the program does run."""
    with open("/bin/sleep", "rb") as source, open(f"{ground}/program", "wb") as target:
        target.write(source.read())
    answers = iter([gates.approve("once")])
    inside, asked = gates.run(box, gate, ["/usr/bin/python3", "-c", ONLOOKER, f"{ground}/program"],
                              lambda event: next(answers, gates.deny()))
    assert "WORKED" not in inside.stdout and lines(inside)[-1] == "None", (inside, asked)
    assert len(asked) > 3, asked


@pytest.mark.escape
@pytest.mark.parametrize("way", ["open", "stat", "path-only", "execute", "connect"])
def test_once_is_for_the_object_that_was_shown(box, gate, ground, way):
    """The command's own link leads elsewhere when the answer comes. The control: that can be used
    outside."""
    link, names = box.path("swapped"), {"connect": ("socket", "bad-socket"),
                                        "execute": ("program", "bad-program")}
    good, bad = (f"{ground}/{name}" for name in names.get(way, ("file", "bad")))
    box.identity.file(f"{ground}/bad", "BAD, and longer than the other one\n")
    box.identity.file(f"{ground}/bad-program", "#!/bin/sh\necho BAD\n")
    os.chmod(f"{ground}/bad-program", 0o755)

    def answer(event):
        if event["path"] != good:
            return gates.deny()
        os.remove(link)
        os.symlink(bad, link)
        return gates.approve("once")

    with listening(box, f"{ground}/socket"), listening(box, f"{ground}/bad-socket") as other:
        os.symlink(bad, link)
        forbidden = lines(box.plain([files(box), way, link]))[0]
        os.remove(link)
        os.symlink(good, link)
        other.setblocking(False)
        if way == "connect":
            other.accept()[0].close()
        inside, asked = gates.run(box, gate, [files(box), way, link], answer)
        with pytest.raises(BlockingIOError):
            other.accept()
    assert asked and (way == "connect" or lines(inside)[0] != forbidden), (inside, asked)


def test_who_connects_once_is_the_user(box, gate, ground):
    """Whoever listens sees the user's number, and what is sent."""
    script = f"import socket; it = socket.socket(socket.AF_UNIX); it.connect('{ground}/socket'); " \
             "it.send(b'hello'); print(it.recv(10))"
    with listening(box, f"{ground}/socket") as listener:
        with gates.Session(box, gate, ["/usr/bin/python3", "-c", script],
                           lambda event: gates.approve("once")) as it:
            listener.settimeout(harness.TIMEOUT)
            peer, _ = listener.accept()
            _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            assert (uid, peer.recv(10)) == (box.identity.uid, b"hello")
            peer.send(b"answer")
            assert it.finish().stdout == "b'answer'\n"
            peer.close()


def test_many_connect_once_at_the_same_time(box, gate, ground):
    """Each gets its own result, and each thing that it may have is one connection."""
    script = f"for i in $(seq 20); do {files(box)} connect {ground}/socket & " \
             f"{files(box)} inotify {ground}/file & done; wait"
    with listening(box, f"{ground}/socket", backlog=50) as listener:
        inside, asked = gates.run(box, gate, ["/bin/sh", "-c", script],
                                  lambda event: gates.approve("once"))
        listener.setblocking(False)
        for _ in range(20):
            listener.accept()[0].close()
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert sorted(lines(inside)) == ["connect ok"] * 20 + ["inotify ok"] * 20, (inside, asked)


def test_who_is_traced_cannot_be_held(box, gate, ground):
    """The FUSE gate has to hold who watches a file for an instant, and only one can: so `once` is not
    offered, and whoever answers is told so. The controls: seccomp notify needs no hold, nor does who
    connects for others."""
    answers = []

    def answer(event):
        answers.append(event["narrowest"])
        return gates.approve(event["narrowest"])

    argv = [files(box), "traced-connect", f"{ground}/socket", "traced-inotify", f"{ground}/file"]
    with listening(box, f"{ground}/socket"):
        inside, asked = gates.run(box, gate, argv, answer)
    assert lines(inside) == ["traced-connect ok", "traced-inotify ok"], (inside, asked)
    assert answers == ["once", "once" if gate == "notify" else "session"], asked


@contextlib.contextmanager
def full_socket(box, path):
    """Somebody listens and takes nobody; who connects to it has to wait."""
    with listening(box, path, backlog=0) as listener, contextlib.ExitStack() as waiting:
        listener.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(10):
                one = waiting.enter_context(socket.socket(socket.AF_UNIX))
                one.setblocking(False)
                one.connect(path)
        yield


@pytest.mark.parametrize("who", ["stand-in", "monitor"])
def test_who_connects_in_its_place_is_killed(box, gate, ground, who):
    """It waits for somebody who does not take it: nothing hangs, and the call fails. With FUSE it is
    the connector, without which a session ends."""
    with full_socket(box, f"{ground}/socket"):
        with gates.Session(box, gate, [files(box), "connect", f"{ground}/socket"],
                           lambda event: gates.approve("once")) as it:
            monitor = sessions.monitor_of(box, it.sid)
            name = "sandbox-once" if gate == "notify" else "sandbox-connect"
            stand_in = sessions.eventually(lambda: gates.child_of(monitor, name))
            os.kill(stand_in if who == "stand-in" else monitor, signal.SIGKILL)
            result = it.finish()
    assert "ok" not in result.stdout, result
    if who == "stand-in" and gate == "notify":
        assert lines(result) == ["connect EACCES"], result
    elif who == "stand-in":  # the command may be faster than its end
        assert result.exit == 137 or lines(result) == ["connect ENOSYS"], result
    assert sessions.eventually(lambda: harness.command_line(stand_in) is None), "it is left behind"
    assert box.run(["/bin/true"]).exit == 0  # removes what a killed monitor could not


@pytest.mark.escape
def test_once_gives_no_rights_that_the_command_has_not(box, gate, ground):
    """A socket of somebody else's: root speaks to it outside, and has no such power inside."""
    if box.identity.name != "root":
        pytest.skip("only root could do more than the command")
    with listening(box, f"{ground}/socket"):
        os.chown(f"{ground}/socket", 12345, 12345)
        os.chmod(f"{ground}/socket", 0o600)
        argv = [files(box), "connect", f"{ground}/socket"]
        assert lines(box.plain(argv)) == ["connect ok"]
        inside, asked = gates.run(box, gate, argv, lambda event: gates.approve("once"))
    assert lines(inside) == ["connect EACCES"] and len(asked) == 1, (inside, asked)


@pytest.mark.escape
@pytest.mark.parametrize("mode", [0o700, 0o755])
@pytest.mark.parametrize("scope", ["once", "session"])
def test_names_that_the_command_may_not_read(box, gate, ground, mode, scope):
    """A home folder of somebody else's, the names of which are allowed: closed to root without its powers. The
    control: one that is open to all."""
    if box.identity.name != "root":
        pytest.skip("only root could do more than the command")
    os.chown(ground, 12345, 12345)
    os.chmod(ground, mode)
    result, asked = gates.run(box, gate, ["/bin/sh", "-c", f"ls {ground}; ls {ground}"],
                              lambda event: gates.approve(scope), env={"HOME": ground})
    assert result.stdout.count("exact\n") == (2 if mode == 0o755 else 0), (result, asked)


def test_once_shows_no_more_than_the_command_may_see(box, gate, ground):
    """A file of somebody else's, which root may look into outside. The control: as with a mount."""
    if box.identity.name != "root":
        pytest.skip("only root could do more than the command")
    path = f"{ground}/private"
    box.identity.file(path, "content\n")
    with contextlib.suppress(OSError):  # where there are none, access(2) is left
        os.setxattr(path, "user.test", b"value of it")
    os.chown(path, 12345, 12345)
    os.chmod(path, 0o600)
    argv = [files(box), "getxattr", path, "access", path, "open", path]
    seen = {scope: lines(gates.run(box, gate, argv, lambda event, scope=scope: gates.approve(scope))[0])
            for scope in ("session", "once")}
    assert lines(box.plain(argv))[1:] == ["access ok", "open content"]
    assert seen["once"] == seen["session"] and seen["once"][1:] == ["access EACCES", "open EACCES"], seen


def test_who_waits_to_be_connected_once_can_be_ended(box, gate, ground):
    """The one who listens takes no more: it waits as outside, and leaves nothing behind."""
    with full_socket(box, f"{ground}/socket"):
        script = f"{files(box)} connect {ground}/socket & sleep 0.5; kill -9 $!; wait; echo after"
        inside, asked = gates.run(box, gate, ["/bin/sh", "-c", script],
                                  lambda event: gates.approve("once"))
    assert lines(inside) == ["after"] and len(asked) == 1, (inside, asked)


def test_once_cannot_be_opened_for_writing(box, gate, ground):
    inside, _ = gates.run(box, gate, [files(box), "write-again", f"{ground}/file"],
                          lambda event: gates.approve("once"))
    assert lines(inside)[0].split()[1] in ("EROFS", "EACCES"), inside


def test_once_with_a_full_table_of_descriptors(box, gate, ground):
    """The descriptor cannot be handed in: the call fails as outside, and nothing hangs."""
    inside, _ = gates.run(box, gate, [files(box), "full-table", f"{ground}/file"],
                          lambda event: gates.approve("once"))
    assert lines(inside) == ["full-table EMFILE"], inside


LISTER = """
import os, sys
held = os.open(sys.argv[1], os.O_RDONLY)
print(sorted((entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink())
             for entry in os.scandir(held)))
def attempt(*words, **more):
    try:
        os.open(*words, **more)
        print('WORKED', words)
    except OSError as error:
        print(error.strerror)
if len(sys.argv) > 2:
    attempt('file', os.O_RDONLY, dir_fd=held)
    attempt('sub', os.O_RDONLY, dir_fd=held)
    attempt('sub/below', os.O_RDONLY, dir_fd=held)
    attempt('../.ssh/id_rsa', os.O_RDONLY, dir_fd=held)
    attempt('made', os.O_WRONLY | os.O_CREAT, dir_fd=held)
    attempt(sys.argv[1], os.O_RDONLY)
"""


@pytest.mark.escape
def test_a_folder_is_listed_once(box, gate, ground):
    """Its names, as outside, and nothing more: what they stand for is another question."""
    outside = box.plain(["/usr/bin/python3", "-c", LISTER, ground])
    answers = iter([gates.approve("once")])
    inside, asked = gates.run(box, gate, ["/usr/bin/python3", "-c", LISTER, ground, "more"],
                              lambda event: next(answers, gates.deny()))
    assert asked[0] == ("list", ground) and lines(inside)[0] == lines(outside)[0], (inside, asked)
    assert "('sub', True, False)" in lines(inside)[0] and "WORKED" not in inside.stdout, inside


def test_a_folder_is_not_empty_for_who_opens_it_strictly(box, gate, ground):
    """openat2 with RESOLVE_NO_MAGICLINKS: the names, or an error, and never a folder without names."""
    script = "import ctypes, os, struct, sys\n" \
             "how = struct.pack('QQQ', os.O_RDONLY | os.O_DIRECTORY, 0, 2)\n" \
             "fd = ctypes.CDLL(None).syscall(437, -100, sys.argv[1].encode(), how, len(how))\n" \
             "print(sorted(os.listdir(fd)) if fd >= 0 else 'refused')"
    argv = ["/usr/bin/python3", "-c", script, ground]
    inside, asked = gates.run(box, gate, argv, lambda event: gates.approve("once"))
    names = [lines(box.plain(argv))[0]] + (["refused"] if gate == "notify" else [])
    assert lines(inside)[0] in names and asked == [("list", ground)], (inside, asked)


def test_folders_are_never_handed_in(box, gate, ground):
    """A descriptor of a host folder would be a way to walk the host."""
    script = f"import os\nfd = os.open('{ground}/sub', os.O_RDONLY)\n" \
             "try: print(os.open('../file', os.O_RDONLY, dir_fd=fd))\n" \
             "except OSError as error: print(error.errno)"
    inside, asked = gates.run(
        box, gate, ["/usr/bin/python3", "-c", script],
        lambda event: gates.approve("once") if event["folder"] else gates.deny())
    assert inside.stdout.strip() in ("2", "13"), inside
