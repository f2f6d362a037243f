"""What the tests of the gate share: both triggers, and sessions whose questions the test answers."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import uuid

import harness
import sessions

GATES = ("fuse", "notify")
LONG = bool(os.environ.get("SANDBOX_TEST_LONG"))
# FUSE as root has nothing of its own here: only in the long run.
PAIRS = [f"{gate}-{name}" for gate in GATES for name in harness.IDENTITIES
         if LONG or (gate, name) != ("fuse", "root")]


# From 6.11 on the kernel tells who asks; before, calls about folders are not looked at.
KERNEL = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
TELLS_WHO_ASKS = KERNEL >= (6, 11)


# The kernel follows 40 in one call, but counts on when it has to walk again because somebody on the
# machine mounts something meanwhile: with 20 it can.
LINKS = 20


def program(world, name):
    """One of the programs of the tests, where everybody can run it."""
    target = os.path.join(world.bin, name)
    if not os.path.exists(target):
        world.install(harness.find_built(name), name)
    return target


def files(box):
    """The program that uses a path in one way; see its head."""
    return program(box.world, "gate-files")


def lines(result):
    return result.stdout.splitlines()


@contextlib.contextmanager
def listening(box, path, kind=socket.SOCK_STREAM, backlog=5):
    """Somebody on the host who can be spoken to."""
    with socket.socket(socket.AF_UNIX, kind) as listener:
        listener.bind(path)
        if kind == socket.SOCK_STREAM:
            listener.listen(backlog)
        box.identity.own(path)
        yield listener


def need(world, gate):
    """Everybody here may open /dev/fuse, if that is needed. The host's stays as it is: the tests
    have a mount namespace of their own."""
    if gate != "fuse":
        return
    try:
        status = os.stat("/dev/fuse")
    except OSError as reason:
        raise harness.Unavailable(f"no /dev/fuse: {reason}") from None
    if status.st_mode & 0o6 == 0o6:
        return
    if not world.root:
        raise harness.Unavailable("/dev/fuse is closed to this user, and only root can open it")
    folder = tempfile.mkdtemp(dir="/run")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    os.mknod(f"{folder}/fuse", stat.S_IFCHR, status.st_rdev)
    os.chmod(f"{folder}/fuse", 0o666)
    subprocess.run(["mount", "--bind", f"{folder}/fuse", "/dev/fuse"], check=True)
    subprocess.run(["umount", "-l", folder], check=True)
    os.rmdir(folder)


class Top:
    """A name in the host's root, of this test alone."""

    def __init__(self, box):
        self.box, self.name = box, f"sandbox-test-{uuid.uuid4().hex[:8]}"
        self.path = f"/{self.name}"

    def folder(self):
        os.mkdir(self.path)
        self.box.identity.own(self.path)
        self.box.identity.file(f"{self.path}/file", "content of the file\n")
        self.box.identity.file(f"{self.path}/other", "content of the other\n")

    def file(self, text="content\n"):
        self.box.identity.file(f"{self.path}.new", text)
        os.rename(f"{self.path}.new", self.path)

    def remove(self):
        for path in (self.path, f"{self.path}.new"):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            elif os.path.lexists(path):
                os.unlink(path)


def children_of(monitor, name):
    """The processes of that name; it is what they call themselves."""
    with contextlib.suppress(OSError), open(f"/proc/{monitor}/task/{monitor}/children") as source:
        for pid in map(int, source.read().split()):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as comm:
                if comm.read().strip() == name:
                    yield pid


def child_of(monitor, name):
    return next(children_of(monitor, name), None)


def broker_of(monitor):
    return child_of(monitor, "sandbox-broker")


def is_traced_or_gone(process):
    try:
        return sessions.status(process)["TracerPid"] != "0"
    except OSError:
        return True


@contextlib.contextmanager
def killing(*processes, at):
    """Whoever of them, or of the children that they get, makes this call is killed before it is made."""
    attached = [word for process in processes for word in ("-p", str(process))]
    with subprocess.Popen(["strace", "-f", "-qq", *attached, "-e", f"inject={at}:signal=KILL"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as tracer:
        try:
            assert sessions.eventually(lambda: all(map(is_traced_or_gone, processes)), harness.TIMEOUT)
            yield
        finally:
            tracer.terminate()


@contextlib.contextmanager
def killing_brokers(monitor, at):
    """Each of them, also those that are started later. What else the monitor starts at its beginning mounts, too."""
    assert sessions.eventually(lambda: child_of(monitor, "sandbox-keeper"), harness.TIMEOUT)
    broker = broker_of(monitor)
    with killing(monitor, *([broker] if broker else []), at=at):
        end_untraced_brokers(monitor)
        yield


def end_untraced_brokers(monitor):
    """One of them may have been started in between, as another test makes a name in the host's root; what has just
    been forked has the monitor's name still."""
    own = sessions.status(monitor)["Name"]
    assert sessions.eventually(lambda: all(map(is_traced_or_gone, children_of(monitor, own))), harness.TIMEOUT)
    for broker in children_of(monitor, "sandbox-broker"):
        if not is_traced_or_gone(broker):
            os.kill(broker, signal.SIGKILL)


def approve(scope="session", **more):
    return {"cmd": "cmd.approve", "scope": scope, **more}


def deny(**more):
    return {"cmd": "cmd.deny", **more}


class Session:
    """A session in dynamic mode whose questions `answer` decides: it gets the event and gives the
    command to answer with, or None to leave it waiting."""

    def __init__(self, box, gate, argv, answer, options=(), early=False, **more):
        self.box, self.answer = box, answer
        self.asked, self.withdrawn = [], []
        reader, writer = os.pipe()
        self.process = box.popen(
            [box.world.command, "run", "--mode", "dynamic", "--gate", gate, "--supervised",
             "--status-fd", str(writer), "--ro", box.world.bin, *options, "--", *argv],
            pass_fds=[writer], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, **more)
        os.close(writer)
        with os.fdopen(reader) as lines:
            self.sid = self._waits_for_its_command() if early else \
                json.loads(lines.readline() or "{}").get("sid")
        self.control = None
        with contextlib.suppress(OSError):  # it may be over already
            self.control = sessions.Control(box, self.sid or "none")
            self.control.socket.settimeout(None)
            self.control.send({"cmd": "cmd.watch"})
        self.thread = threading.Thread(target=self._supervise, daemon=True)
        self.thread.start()

    def _waits_for_its_command(self):
        """The session is there, but what it is to run is asked about first."""
        return sessions.eventually(lambda: next(
            (entry["sid"] for entry in sessions.listed(self.box)
             if entry["pid"] == self.process.pid), None))

    def _supervise(self):
        with contextlib.suppress(OSError, ValueError):
            while self.control and (event := self.control.read()):
                if event.get("event") == "event.withdrawn":
                    self.withdrawn.append(event["reason"])
                if event.get("event") != "event.fs_request":
                    continue
                self.asked.append((event["op"], event["path"]))
                reply = self.answer(event)
                if reply:
                    self.control.send({"id": event["id"], **reply})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None and self.sid:
            sessions.sandbox(self.box, "kill", "--now", self.sid)
        sessions.end_group(self.process)
        if self.control:
            with contextlib.suppress(OSError):
                self.control.socket.shutdown(2)
            self.thread.join(5)
            self.control.__exit__()

    def finish(self, timeout=3 * harness.TIMEOUT):
        """What came out, once it is over."""
        out, err = self.process.communicate(timeout=timeout)
        return harness.Result(harness.shell_status(self.process.returncode), harness.text(out),
                              harness.text(err), 0)


@contextlib.contextmanager
def halfway(box, gate, before, after, answer, options=(), **more):
    """A session in which one script has run, and another waits for go_on()."""
    script = f"{before}; touch ready; while [ ! -e go ]; do sleep 0.02; done; {after}"
    with Session(box, gate, ["/bin/sh", "-c", script], answer, options, **more) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("ready")))
        yield it


def go_on(box):
    box.identity.file(box.path("go"), "")


def run(box, gate, argv, answer, options=(), timeout=3 * harness.TIMEOUT, **more):
    """The whole of it: the result, and what was asked."""
    with Session(box, gate, argv, answer, options, **more) as session:
        result = session.finish(timeout)
        return result, session.asked
