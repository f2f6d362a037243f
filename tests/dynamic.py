"""What the tests of dynamic mode share: sessions that ask, and somebody who answers."""

import contextlib
import json
import os
import subprocess

import sessions

# Where a question is sure to come: outside the project, no secret, no tool.
GATED = "data"


def ground(box):
    """Files that are not allowed yet. Gives their folder."""
    for name, text in (("a.txt", "content of a\n"), ("b.txt", "content of b\n"),
                       ("deep/down/c.txt", "content of c\n")):
        box.identity.file(box.home(GATED, name), text)
    return box.home(GATED)


def wrap(box, argv, options=()):
    return [box.world.command, "run", "--mode", "dynamic", *options, "--", *argv]


def run(box, argv, options=(), **more):
    return box.plain(wrap(box, argv, options), **more)


def write_policy(box, text):
    """The user's policy file; the harness removes it before the next test."""
    return box.identity.file(box.home(".config/sandbox/policy.yaml"), "version: 1\n" + text)


class Session:
    """A session under way whose command waits for an answer, and what became of it."""

    def __init__(self, box, process, sid):
        self.box, self.process, self.sid = box, process, sid

    def connect(self):
        return Watcher(self.box, self.sid)

    def watch(self, **more):
        control = self.connect()
        assert control.call({"cmd": "cmd.watch", **more}) == {"ok": True, "asks": True}
        return control

    def result(self, timeout=20):
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out.decode(), err.decode()


@contextlib.contextmanager
def asking(box, argv, *options, supervised=True, **more):
    """Starts a command in a session without a terminal that waits for supervisors."""
    reader, writer = os.pipe()
    words = [*options, *(["--supervised"] if supervised else []), "--status-fd", str(writer)]
    more.setdefault("stdout", subprocess.PIPE)
    more.setdefault("stderr", subprocess.PIPE)
    process = box.popen(wrap(box, argv, words), pass_fds=[writer], stdin=subprocess.DEVNULL, **more)
    os.close(writer)
    with os.fdopen(reader) as lines:
        line = lines.readline()
        try:
            assert line, process.communicate(timeout=10)
            yield Session(box, process, json.loads(line)["sid"])
        finally:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)
            sessions.end_group(process)


class Watcher(sessions.Control):
    """A supervisor; keeps events that came while it waited for a reply."""

    def __init__(self, box, sid):
        self.kept = []
        super().__init__(box, sid)


def next_event(control, name):
    """The next event of that name; others are left out."""
    while True:
        message = control.kept.pop(0) if control.kept else control.read()
        assert message is not None, f"the end instead of {name}"
        assert "error" not in message, message
        if message.get("event") == name:
            return message


def question(control):
    return next_event(control, "event.fs_request")


def answer(control, request):
    """Sends an answer and gives the reply; events before it are kept."""
    control.send(request)
    while True:
        message = control.read()
        assert message is not None
        if "event" not in message:
            return message
        control.kept.append(message)


def audit_lines(box, sid):
    """The decisions in the log of a session."""
    path = os.path.join(box.identity.state, "sandbox", "audit", f"{sid}.jsonl")
    if not os.path.exists(path):
        return []
    with open(path) as lines:
        return [json.loads(line) for line in lines]
