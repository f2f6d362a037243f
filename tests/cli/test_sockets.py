"""Sockets of the host by path: only those a policy lists, in every mode."""

import contextlib
import os
import re
import socket
import threading

import pytest

CONNECT = ("import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
           "print(s.recv(99).decode(), end='')")
MODES = {"static": ["--static"], "fuse": ["--mode", "dynamic", "--gate", "fuse"],
         "notify": ["--mode", "dynamic", "--gate", "notify"]}


@contextlib.contextmanager
def listening(box, path):
    """A service of the host that greets whoever comes."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    box.identity.own(path)
    listener.listen()

    def serve():
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client:
                    client.sendall(b"greetings\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield path
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)
        os.unlink(path)


def policy(box, *sockets):
    return box.identity.file(box.home("sockets.yaml"), "version: 1\nnetwork:\n  unix_sockets: ["
                             + ", ".join(sockets) + "]\n") or box.home("sockets.yaml")


def ask(box, path, *options, mode="static"):
    return box.plain([box.world.command, "run", *MODES[mode], *options, "--", "/usr/bin/python3",
                      "-c", CONNECT, path])


@pytest.fixture(params=["runtime", "home", "secret"])
def place(request, box):
    """Below the private /run or /tmp, in the home folder, and in a folder that is hidden."""
    folder = {"runtime": box.identity.runtime, "home": box.home("service"),
              "secret": box.home(".gnupg")}[request.param]
    box.identity.folder(folder)
    return os.path.join(folder, "service.sock")


@pytest.mark.parametrize("mode", MODES)
def test_a_listed_socket_can_be_reached(box, place, mode):
    if mode == "fuse" and not box.world.root and not os.access("/dev/fuse", os.W_OK):
        pytest.skip("/dev/fuse is closed to this user")
    with listening(box, place):
        result = ask(box, place, "--policy", policy(box, place), mode=mode)
        if mode == "fuse" and "fuse" in result.stderr and result.exit == 125:
            pytest.skip("/dev/fuse is closed to this user")
        assert (result.exit, result.stdout) == (0, "greetings\n"), result


@pytest.mark.parametrize("mode", ["static", "notify"])
def test_others_are_absent(box, mode):
    """The control is the plain connection; and a listed neighbour opens nothing else."""
    box.identity.folder(box.identity.runtime)
    first = os.path.join(box.identity.runtime, "first.sock")
    second = os.path.join(box.identity.runtime, "second.sock")
    with listening(box, first), listening(box, second):
        assert box.plain(["/usr/bin/python3", "-c", CONNECT, second]).stdout == "greetings\n"
        result = ask(box, second, "--policy", policy(box, first), mode=mode)
        assert result.exit != 0 and "greetings" not in result.stdout, result


@pytest.mark.parametrize("path, words", [("/etc/passwd", "is no socket"),
                                         ("/no/such.sock", "No such file")])
def test_what_is_no_socket_is_an_error(box, path, words):
    result = ask(box, path, "--policy", policy(box, path))
    assert result.exit == 125 and words in result.stderr and "fix:" in result.stderr, result


def test_an_untrusted_project_cannot_list_one(box):
    box.identity.folder(box.identity.runtime)
    path = os.path.join(box.identity.runtime, "first.sock")
    box.identity.file(box.path(".sandbox/policy.yaml"),
                      f"version: 1\nnetwork:\n  unix_sockets: [{path}]\n")
    with listening(box, path):
        result = ask(box, path)
        assert result.exit != 0 and "greetings" not in result.stdout, result


@pytest.mark.parametrize("identity", ["user"], indirect=True)
@pytest.mark.parametrize("name", ["[a].sock", "a$b.sock", "back\\slash", "*", os.fsdecode(b"\xff")])
def test_the_line_that_allows_it_is_exact(box, name):
    """Also as it is exported. The control: without it the connection is denied, and another one with it."""
    folder = box.identity.folder(box.home("service")) or box.home("service")
    with listening(box, f"{folder}/{name}") as path, listening(box, f"{folder}/x") as other:
        denied = ask(box, path, mode="notify")
        assert "greetings" not in denied.stdout, denied
        line = re.search(r"in a policy file: (network: .*)", denied.stderr)[1]
        listed = box.identity.file(box.home(".config/sandbox/policy.yaml"), f"version: 1\n{line}\n")
        assert ask(box, path, mode="notify").stdout == "greetings\n", line
        assert "greetings" not in ask(box, other, mode="notify").stdout
        exported = box.plain([box.world.command, "policy", "export"]).stdout
        box.identity.file(listed, exported)
        assert ask(box, path, mode="notify").stdout == "greetings\n", exported
