"""What a command is given as stdin, stdout and stderr comes from outside of every wall: none of it
may lead out by itself."""

import contextlib
import os
import socket
import subprocess

import pytest

import sessions

PEER = os.environ.get("SANDBOX_PEER")
pytestmark = [pytest.mark.escape,
              pytest.mark.skipif(bool(PEER), reason="a promise of ours, not of other sandboxes")]

# With the socket as stdin: to somebody else than whom it was meant for.
AWAY = r"""
import ctypes, socket, sys
target = eval(sys.argv[1])
s = socket.socket(fileno=0)
if s.type == socket.SOCK_STREAM:
    ctypes.CDLL(None).connect(0, (ctypes.c_char * 16)(), 16)  # AF_UNSPEC: disconnects TCP
    s.connect(target)
    s.send(b"hello")
else:
    s.sendto(b"hello", target)
"""


class Server:
    """A program of the host; says what it has got since it was last asked."""

    def __init__(self, family, kind, address):
        self.socket = socket.socket(family, kind)
        self.socket.bind(address)
        self.socket.settimeout(0.3)
        self.streams = kind == socket.SOCK_STREAM
        if self.streams:
            self.socket.listen()
        self.address = self.socket.getsockname()

    def got(self):
        try:
            if not self.streams:
                return self.socket.recv(9)
            client = self.socket.accept()[0]
            client.settimeout(2)
            with client:
                return client.recv(9)
        except TimeoutError:
            return None


@contextlib.contextmanager
def leading_out(box, kind):
    """A socket that could be used to reach a server it was not made for: (socket maker, server)."""
    with contextlib.ExitStack() as stack:
        if kind in ("unix", "datagrams", "abstract"):
            path = "\0sandbox-" + os.urandom(4).hex() if kind == "abstract" else box.home("server")
            form = socket.SOCK_DGRAM if kind == "datagrams" else socket.SOCK_STREAM
            server = Server(socket.AF_UNIX, form, path)
            if kind != "abstract":
                box.identity.own(path)
                stack.callback(os.unlink, path)
            make = {"datagrams": lambda: socket.socketpair(socket.AF_UNIX, form)[0]}.get(
                kind, lambda: socket.socket(socket.AF_UNIX, form))
        else:
            form = socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM
            server = Server(socket.AF_INET, form, ("127.0.0.1", 0))
            other = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            make = {"inetd": lambda: socket.create_connection(other.getsockname())}.get(
                kind, lambda: socket.socket(socket.AF_INET, form))
        stack.enter_context(server.socket)
        yield make, server


KINDS = ("udp", "tcp", "inetd", "unix", "abstract", "datagrams")


def argv_for(server):
    return ["/usr/bin/python3", "-c", AWAY, repr(server.address)]


def gets(box, argv, stdin):
    with stdin:
        process = box.popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)
        out, err = process.communicate(timeout=30)
    return process.returncode, out, err


@pytest.mark.parametrize("kind", KINDS)
def test_socket_as_a_stream(box, kind):
    with leading_out(box, kind) as (make, server):
        status, _, told = gets(box, box.wrap(argv_for(server)), make())
        assert server.got() is None
        assert status == 125 and "descriptor 0 is a" in told and "through a pipe" in told, told
        assert gets(box, argv_for(server), make())[0] == 0 and server.got() == b"hello", "control"


@pytest.mark.parametrize("kind", KINDS)
def test_socket_for_exec(box, kind):
    with leading_out(box, kind) as (make, server), sessions.idle(box) as sid:
        argv = [box.world.command, "exec", sid, "--", *argv_for(server)]
        status, _, told = gets(box, argv, make())
        assert server.got() is None
        assert status == 125 and "descriptor 0 is a" in told, told


def test_connected_pair_is_a_stream_like_any_other(box):
    """As ssh, editors and Node give them."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = box.popen(box.wrap(["cat"]), stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
        theirs.close()
        ours.sendall(b"through")
        ours.shutdown(socket.SHUT_WR)
        assert ours.makefile("rb").read() == b"through"
        assert process.wait(10) == 0, process.stderr.read()


# The descriptor is on the host's own mount: it can be opened again, as it was not opened before.
AGAIN = """
import os, sys
for flags in os.O_WRONLY | os.O_APPEND, os.O_RDONLY:
    fd = os.open("/proc/self/fd/" + sys.argv[1], flags)
    os.write(fd, b"evil") if flags else os.read(fd, 99)
"""


@pytest.mark.parametrize("redirection", ["<{0}", ">>{0}"])
@pytest.mark.parametrize("name", [".mcp.json", ".env", ".git/config"])
@pytest.mark.parametrize("how", ["run", "exec"])
def test_guarded_file_as_a_stream(box, name, redirection, how):
    with open(box.path(name), encoding="utf-8") as text:
        before = text.read()
    redirected = redirection.format(box.path(name))
    argv = ["/usr/bin/python3", "-c", AGAIN, "01"[redirection.startswith(">")]]
    with contextlib.ExitStack() as stack:
        if how == "run":
            words = box.wrap(argv)
        else:
            sid = stack.enter_context(sessions.idle(box))
            words = [box.world.command, "exec", sid, "--", *argv]
        result = box.plain(["sh", "-c", f'"$@" {redirected}', "sh", *words])
    assert result.exit == 125 and "hidden or protected" in result.stderr, result
    with open(box.path(name), encoding="utf-8") as text:
        assert text.read() == before
    control = box.plain(["sh", "-c", f'"$@" {redirected}', "sh", *argv])
    with open(box.path(name), encoding="utf-8") as text:
        assert control.exit == 0 and "evil" in text.read(), "control"
