"""What the tests of sessions share: the verbs, sessions that end with the test, and a client of the
control socket in a few lines."""

import array
import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import time

import harness


def sandbox(box, *words, **more):
    return box.plain([box.world.command, *words], **more)


def listed(box):
    return json.loads(sandbox(box, "ps", "--json").stdout)


def eventually(check, wait=5.0):
    """The first true answer, or the last one after that many seconds."""
    end = time.monotonic() + wait * harness.SLOWNESS
    while True:
        answer = check()
        if answer or time.monotonic() > end:
            return answer
        time.sleep(0.01)


def end_group(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(harness.TIMEOUT)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            stream.close()


@contextlib.contextmanager
def idle(box, *options):
    """A detached session; gives its id."""
    made = sandbox(box, "run", "--static", "--detach", *options)
    assert made.exit == 0, made
    sid = made.stdout.strip()
    try:
        yield sid
    finally:
        sandbox(box, "kill", "--now", sid)


@contextlib.contextmanager
def running(box, argv, *options, **more):
    """A session with a command that has begun; gives the process and the id."""
    reader, writer = os.pipe()
    more.setdefault("stdout", subprocess.DEVNULL)
    more.setdefault("stderr", subprocess.DEVNULL)
    process = box.start(argv, options=[*options, "--status-fd", str(writer)], pass_fds=[writer],
                        stdin=subprocess.DEVNULL, **more)
    os.close(writer)
    with os.fdopen(reader) as lines:
        sid = json.loads(lines.readline() or "{}").get("sid")
        try:
            assert sid, "no session"
            yield process, sid
        finally:
            if sid and process.poll() is None:  # in order: a killed monitor leaves placeholders
                sandbox(box, "kill", "--now", sid)
            end_group(process)


def processes_of(box, sid):
    return json.loads(sandbox(box, "ps", "--json", sid).stdout)


def monitor_of(box, sid):
    return next(entry["pid"] for entry in listed(box) if entry["sid"] == sid)


def status(pid):
    with open(f"/proc/{pid}/status") as source:
        return dict(line.rstrip("\n").split(":\t", 1) for line in source if ":\t" in line)


class Control:
    """A connection to a session. The socket answers its user, and root."""

    def __init__(self, box, sid):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(harness.TIMEOUT)
        self.socket.connect(os.path.join(box.identity.runtime, "sandbox", sid, "control.sock"))
        self.lines = self.socket.makefile("rb")
        self.hello = self.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lines.close()
        self.socket.close()

    def read(self):
        line = self.lines.readline()
        return json.loads(line) if line else None

    def send(self, request, fds=()):
        line = json.dumps(request).encode() + b"\n"
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        sent = self.socket.sendmsg([line], ancillary)
        if sent < len(line):  # sending nothing would still fail if the session has ended by now
            self.socket.sendall(line[sent:])

    def call(self, request, fds=()):
        self.send(request, fds)
        return self.read()

    def execute(self, argv, fds, **more):
        """Runs one command to its end; gives its wait status."""
        answer = self.call({"cmd": "cmd.exec", "argv": argv, **more}, fds)
        assert answer.get("event") == "event.started", answer
        answer = self.read()
        assert answer and answer.get("event") == "event.exited", answer
        return answer["status"]


def as_text(value):
    return base64.b64encode(value).decode()
