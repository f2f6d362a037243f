"""The control socket as docs/PROTOCOL.md describes it, the example client, and bad clients: each is
refused, and the session goes on as if nothing had been."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

import dynamic
import sessions

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINE_LIMIT = 1 << 20
CLIENT_LIMIT = 512


class Client:
    """One connection; reads message by message."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(path)
        self.rest = b""

    def message(self):
        """The next one, or None at the end."""
        while b"\n" not in self.rest:
            try:
                got = self.socket.recv(65536)
            except ConnectionResetError:
                got = b""
            if not got:
                return None
            self.rest += got
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def send(self, body, fds=()):
        line = body if isinstance(body, bytes) else json.dumps(body).encode() + b"\n"
        if fds:
            socket.send_fds(self.socket, [line], fds)
        else:
            self.socket.sendall(line)

    def ask(self, body, fds=()):
        self.send(body, fds)
        return self.message()

    def until(self, event):
        while (message := self.message()).get("event") != event:
            assert "error" not in message, message
        return message

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


class Session:
    def __init__(self, box, sid):
        self.box, self.sid = box, sid
        self.path = os.path.join(box.identity.runtime, "sandbox", sid, "control.sock")

    def connect(self, greeted=True):
        client = Client(self.path)
        if greeted:
            assert client.message()["event"] == "event.hello"
        return client

    def exec(self, *argv):
        return self.box.plain([self.box.world.command, "exec", self.sid, "--", *argv])

    def check(self):
        """It is well: it answers, and it still runs commands."""
        with self.connect() as client:
            assert client.ask({"cmd": "cmd.info"})["sid"] == self.sid
        result = self.exec("echo", "well")
        assert (result.exit, result.stdout) == (0, "well\n"), result


@pytest.fixture
def session(box):
    command = box.world.command
    started = box.plain([command, "run", "--static", "--detach"])
    assert started.exit == 0, started
    sid = started.stdout.strip()
    made = Session(box, sid)
    try:
        yield made
        made.check()
    finally:
        box.plain([command, "kill", "--now", sid])


@pytest.fixture
def null():
    fd = os.open("/dev/null", os.O_RDWR)
    yield fd
    os.close(fd)


# ---- what is documented ----


def test_every_command_and_event_is_documented():
    text = (ROOT / "docs/PROTOCOL.md").read_text()
    sources = "".join(path.read_text() for path in (ROOT / "src/session").glob("*.c"))
    names = set(re.findall(r'"((?:cmd|event)\.[a-z.]+)"', sources))
    assert {"cmd.exec", "event.hello"} <= names
    assert not [name for name in sorted(names) if f"`{name}`" not in text]


def test_example(session):
    """The same file that the document shows."""
    box = session.box
    example = box.world.install(str(ROOT / "examples/exec.py"), "exec.py")
    result = box.plain(["/usr/bin/python3", example, session.sid, "sh", "-c", "echo in; exit 7"])
    assert (result.exit, result.stdout) == (0, "in\nexit status 7\n"), result
    result = box.plain(["/usr/bin/python3", example, session.sid, "no-such-command"])
    assert result.exit == 1 and "not started: No such file" in result.stderr, result
    result = box.plain(["/usr/bin/python3", example, "nosuchid", "true"])
    assert result.exit == 1 and "no session" in result.stderr, result


def test_hello(session):
    with session.connect(greeted=False) as client:
        assert client.message() == {"event": "event.hello", "version": 1}


@pytest.mark.parametrize("tag", [7, "seven", None, [1, {"a": 2}]], ids=str)
def test_tag_comes_back(session, tag):
    with session.connect() as client:
        assert client.ask({"cmd": "cmd.info", "tag": tag})["tag"] == tag
        assert client.ask({"cmd": "cmd.nothing", "tag": tag})["tag"] == tag


def test_answers(session):
    with session.connect() as client:
        info = client.ask({"cmd": "cmd.info"})
        assert set(info) == {"sid", "init", "execs", "age", "pending"}
        assert client.ask({"cmd": "cmd.stats"})["sid"] == session.sid
        processes = client.ask({"cmd": "cmd.ps"})["processes"]
        assert processes[0]["pid"] == 1 and processes[0]["host_pid"] == info["init"]


def test_requests_are_answered_in_order(session):
    with session.connect() as client:
        client.send(b"".join(json.dumps({"cmd": "cmd.info", "tag": n}).encode() + b"\n"
                             for n in range(200)))
        assert [client.message()["tag"] for _ in range(200)] == list(range(200))


def test_line_in_pieces(session):
    with session.connect() as client:
        for byte in b'{"cmd":"cmd.info","tag":"slow"}\n':
            client.send(bytes([byte]))
            time.sleep(0.001)
        assert client.message()["tag"] == "slow"


def test_exec_with_descriptors(session, null):
    reader, writer = os.pipe()
    with session.connect() as client:
        client.send({"cmd": "cmd.exec", "argv": ["sh", "-c", 'echo "$A $PWD"; exit 3'], "tag": "t",
                     "cwd": "/usr", "env": ["A=b"]}, [null, writer, null])
        os.close(writer)
        started = client.until("event.started")
        assert started["tag"] == "t" and started["pid"] > 1
        exited = client.until("event.exited")
        assert exited["id"] == started["id"] and os.waitstatus_to_exitcode(exited["status"]) == 3
    with os.fdopen(reader) as output:
        assert output.read() == "b /usr\n"


def test_exec_with_a_terminal(session):
    with session.connect() as client:
        client.send({"cmd": "cmd.exec", "argv": ["sh", "-c", "tty; exit 5"], "tty": True})
        data, fds, _, _ = socket.recv_fds(client.socket, 65536, 4)
        client.rest = data
        assert client.message()["event"] == "event.terminal" and len(fds) == 1
        assert client.until("event.started")
        assert os.waitstatus_to_exitcode(client.until("event.exited")["status"]) == 5
        assert b"/dev/pts/" in os.read(fds[0], 100)
        os.close(fds[0])


def test_exec_signal(session, null):
    with session.connect() as client, session.connect() as other:
        client.send({"cmd": "cmd.exec", "argv": ["sleep", "60"]}, [null, null, null])
        number = client.until("event.started")["id"]
        refused = other.ask({"cmd": "cmd.exec.signal", "id": number, "signal": 9})
        assert refused["error"]["code"] == "usage", "a command of another connection"
        client.send({"cmd": "cmd.exec.signal", "id": number, "signal": int(signal.SIGUSR1)})
        status = client.until("event.exited")["status"]
        assert os.waitstatus_to_exitcode(status) == -signal.SIGUSR1


def test_command_ends_with_its_connection(session, null):
    with session.connect() as client:
        client.send({"cmd": "cmd.exec", "argv": ["sleep", "60"]}, [null, null, null])
        client.until("event.started")
    with session.connect() as client:
        end = time.monotonic() + 5
        while len(client.ask({"cmd": "cmd.ps"})["processes"]) > 1:
            assert time.monotonic() < end, "it still runs"
            time.sleep(0.01)


# ---- malformed and unknown ----

BAD = {
    "empty": b"\n",
    "no JSON": b"hello\n",
    "half an object": b'{"cmd":\n',
    "two objects": b'{"cmd":"cmd.info"} {"cmd":"cmd.info"}\n',
    "array": b"[]\n",
    "text": b'"cmd.info"\n',
    "NUL": b"\0\n",
    "NUL in a string": b'{"cmd":"cmd.info\\u0000"}\n',
    "not UTF-8": b'{"cmd":"\xff"}\n',
    "repeated key": b'{"cmd":"cmd.info","cmd":"cmd.kill"}\n',
    "number too large": b'{"cmd":"cmd.signal","signal":99999999999999999999}\n',
    "nested": b"[" * 100000 + b"\n",
    "no command": b"{}\n",
    "command is a number": b'{"cmd":1}\n',
    "unknown command": b'{"cmd":"cmd.nothing"}\n',
    "prefix of a command": b'{"cmd":"cmd.kil"}\n',
    "no signal": b'{"cmd":"cmd.signal"}\n',
    "signal out of range": b'{"cmd":"cmd.signal","signal":65}\n',
    "exec of nothing": b'{"cmd":"cmd.exec"}\n',
    "exec of an empty list": b'{"cmd":"cmd.exec","argv":[],"tty":true}\n',
    "exec of a number": b'{"cmd":"cmd.exec","argv":[1],"tty":true}\n',
    "exec without descriptors": b'{"cmd":"cmd.exec","argv":["true"]}\n',
    "signal to nobody": b'{"cmd":"cmd.exec.signal","id":99,"signal":9}\n',
}


@pytest.mark.parametrize("line", BAD.values(), ids=BAD)
def test_bad_line(session, line):
    """An error that says why; the connection can still be used."""
    with session.connect() as client:
        error = client.ask(line)["error"]
        assert error["code"] == "usage" and error["message"], error
        assert client.ask({"cmd": "cmd.info"})["sid"] == session.sid


def test_control_characters_are_escaped(session):
    with session.connect() as client:
        error = client.ask({"cmd": "cmd.\x1b[2J\u202e"})["error"]
        assert "\x1b" not in error["message"] and "\u202e" not in error["message"], error


def test_too_few_descriptors(session, null):
    with session.connect() as client:
        error = client.ask({"cmd": "cmd.exec", "argv": ["true"]}, [null, null])["error"]
        assert "descriptors" in error["message"]
        # They were closed with the request: nothing is left for the next one to use.
        assert "descriptors" in client.ask({"cmd": "cmd.exec", "argv": ["true"]})["error"]["message"]


def test_folder_as_descriptor_is_refused(session, null):
    """As `sandbox run` does: openat(0, "..") would walk the host."""
    folder = os.open(session.box.identity.home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with session.connect() as client:
            answer = client.ask({"cmd": "cmd.exec", "argv": ["true"]}, [folder, null, null])
            assert "error" in answer, answer
    finally:
        os.close(folder)


# ---- huge ----


def send_all_that_is_taken(client, data):
    try:
        client.send(data)
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused before the end


def test_longest_line(session):
    with session.connect() as client:
        request = {"cmd": "cmd.info", "tag": "x" * (LINE_LIMIT - 100)}
        assert client.ask(request)["tag"] == request["tag"]


def test_line_too_long(session):
    """Refused while it still arrives, and closed."""
    with session.connect() as client:
        send_all_that_is_taken(client, b"x" * (2 * LINE_LIMIT))
        assert "longer than" in client.message()["error"]["message"]
        assert client.message() is None


def test_many_lines_too_long(session):
    for _ in range(20):
        with session.connect() as client:
            send_all_that_is_taken(client, b"[" * (2 * LINE_LIMIT))
    session.check()


# ---- slow ----


def test_half_a_line(session):
    with session.connect() as client:
        client.send(b'{"cmd":"cmd.in')
        session.check()
        client.send(b'fo"}\n')
        assert client.message()["sid"] == session.sid


def test_client_that_never_reads(session):
    """Four megabytes wait for it, then it is let go."""
    with session.connect() as client:
        request = json.dumps({"cmd": "cmd.info", "tag": "x" * 100000}).encode() + b"\n"
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(200):
                client.send(request)
                time.sleep(0.001)
        session.check()


def test_long_line_of_a_client_that_never_reads(session):
    """What it sends after it was refused is not kept while the replies wait for it."""
    monitor = sessions.monitor_of(session.box, session.sid)

    def memory():
        return int(sessions.status(monitor)["VmRSS"].split()[0])

    with session.connect() as client:
        for _ in range(900):
            client.send({"cmd": "x" * 1000})
        before = memory()
        client.socket.settimeout(1)
        with pytest.raises((TimeoutError, BrokenPipeError, ConnectionResetError)):
            client.send(b"x" * (128 * LINE_LIMIT))
        assert memory() - before < 32 << 10, "kilobytes"
    session.check()


def test_who_sends_much_does_not_keep_others_waiting(session):
    """All is there at once when the monitor looks: the one request comes after one of each, not after all. We may be
    late to look ourselves, but not each time."""
    many, lines = 20, 700
    answered = []
    while len(answered) < 10 and not any(count < many * lines / 7 for count in answered):
        answered.append(answered_before_another(session, many, lines))
    assert any(count < many * lines / 7 for count in answered), answered


def answered_before_another(session, many, lines):
    """How many requests of many clients, and the few after it that were answered while nobody looked."""
    monitor, clients = sessions.monitor_of(session.box, session.sid), [session.connect() for _ in range(many)]
    with session.connect() as other, stopped(monitor):
        for client in clients:
            client.send(b'{"cmd":"cmd.pending"}\n' * lines)
            client.socket.setblocking(False)
        other.send({"cmd": "cmd.info"})
        os.kill(monitor, signal.SIGCONT)
        assert other.message()["sid"] == session.sid
        os.kill(monitor, signal.SIGSTOP)
        answered = sum(waiting_lines(client) for client in clients)
    for client in clients:
        client.socket.close()
    return answered


@contextlib.contextmanager
def stopped(process):
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def waiting_lines(client):
    try:
        return client.socket.recv(1 << 20).count(b"\n")
    except BlockingIOError:
        return 0


def test_too_many_clients(session):
    clients = [session.connect() for _ in range(CLIENT_LIMIT)]
    try:
        with session.connect(greeted=False) as late:
            said = late.message()
            assert said and "error" in said, f"one more than the limit: {said}"
        assert clients[0].ask({"cmd": "cmd.info"})["sid"] == session.sid
        clients.pop().socket.close()
        end = time.monotonic() + 5
        while True:
            with session.connect(greeted=False) as late:
                if "error" not in (late.message() or {"error": None}):
                    break
            assert time.monotonic() < end, "its place was not given back"
    finally:
        for client in clients:
            client.socket.close()


# Not strict: it depends on timing whether both are caught with full buffers.
def test_many_commands_without_waiting(box):
    """Monitor and init both send without a limit; neither may block the other."""
    command = box.world.command
    sid = box.plain([command, "run", "--static", "--detach"]).stdout.strip()
    session = Session(box, sid)
    with open(os.path.join(os.path.dirname(session.path), "state.json")) as source:
        monitor = json.load(source)["pid"]
    try:
        with session.connect() as client:
            request = {"cmd": "cmd.exec", "argv": ["true"], "tty": True}
            client.socket.settimeout(3)
            try:
                client.send((json.dumps(request) + "\n").encode() * 2000)
            except TimeoutError:
                pass
            time.sleep(0.5)
            with session.connect(greeted=False) as other:
                other.socket.settimeout(3)
                assert other.message(), "the session does not answer any more"
    finally:
        os.kill(monitor, signal.SIGKILL)
        box.plain([command, "ps"])  # sweeps what is left of it
        box.run(["true"])


# ---- foreign ----


def open_up(session):
    """Takes the folders' protection away, so that only the check of the peer is left."""
    path, opened = session.path, []
    while path != session.box.world.base:
        opened.append((path, os.stat(path).st_mode & 0o7777))
        os.chmod(path, 0o777 if path == session.path else 0o711)
        path = os.path.dirname(path)
    return opened


FOREIGN = """
import socket, sys
line = socket.socket(socket.AF_UNIX)
line.settimeout(5)
try:
    line.connect(sys.argv[1])
    print("answer", line.recv(100))
except PermissionError:
    print("no way in")
"""


def test_foreign_user(session, host_root):
    """Two walls: the folder's mode, and the peer's id."""
    other = {"user": 65534, "group": 65534, "extra_groups": []}

    def attempt():
        return subprocess.run([sys.executable, "-c", FOREIGN, session.path], capture_output=True,
                              text=True, timeout=20, check=True, cwd="/", **other).stdout.strip()

    assert attempt() == "no way in"
    opened = open_up(session)
    try:
        assert attempt() == "answer b''"
    finally:
        for path, mode in opened:
            os.chmod(path, mode)


# Says what it gets for a greeting.
GREETED = """import socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
print(line.makefile().readline())
"""


def test_another_user_namespace(session):
    """Whoever is there: a command of a session, a container. The control: here."""
    greeted = [sys.executable, "-c", GREETED, session.path]
    assert "event.hello" in session.box.plain(greeted).stdout
    for options in (["-U"], ["-Ur"]):
        refused = session.box.plain(["unshare", *options, *greeted])
        assert json.loads(refused.stdout)["error"]["code"] == "denied", refused
    session.check()


def test_from_another_session(box):
    """The socket lies in a folder that was approved: below another XDG_RUNTIME_DIR."""
    runtime = box.home("rt2")
    box.identity.folder(runtime)
    os.chmod(runtime, 0o700)
    other = {"XDG_RUNTIME_DIR": runtime}
    sid = box.plain([box.world.command, "run", "--detach"], env=other).stdout.strip()
    path = f"{runtime}/sandbox/{sid}/control.sock"
    greeted = ["/usr/bin/python3", "-c", GREETED, path]
    try:
        assert "event.hello" in box.plain(greeted).stdout, "no control"
        with dynamic.asking(box, greeted) as asker, asker.watch() as control:
            asked = dynamic.question(control)
            assert (asked["op"], asked["path"]) == ("connect", path)
            dynamic.answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "session",
                                     "tree": runtime})
            code, out, err = asker.result()
        assert code == 0 and json.loads(out)["error"]["code"] == "denied", (out, err)
    finally:
        box.plain([box.world.command, "kill", "--now", sid], env=other)


def test_not_reachable_from_inside(session):
    """Neither the session's own commands nor those of another session get at the socket."""
    box, script = session.box, f"test -e {session.path} || ls {os.path.dirname(session.path)}"
    assert session.exec("sh", "-c", script).exit != 0
    assert session.exec(box.attempt, "unix", session.path).verdict()[0] == "DENIED"
    assert box.run([box.attempt, "unix", session.path]).verdict()[0] == "DENIED"
