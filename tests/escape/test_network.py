"""E96, E97, E105, E108-E117: what the network namespace and the view of sockets must stop."""

import os
import socket
import subprocess
import time

import pytest

from harness import DYNAMIC
from rows import Row, judge, refuses, table, varies

pytestmark = pytest.mark.escape

NO_ROUTE = {"ENETUNREACH", "EACCES", "EPERM", "EADDRNOTAVAIL", "EHOSTUNREACH"}
NO_FAMILY = {"EPERM", "EAFNOSUPPORT", "EACCES", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT"}
RAW, DGRAM, STREAM = 3, 2, 1

# A datagram socket that connects sends nothing: it asks for the route. The host may have none.
ROUTES = [
    *[Row(f"E96.{address}", ["route", address], NO_ROUTE, varies("ENETUNREACH"))
      for address in ("1.1.1.1", "8.8.8.8", "2606:4700:4700::1111")],
    *[Row(f"E98.{address}", ["route", address], NO_ROUTE, varies("ENETUNREACH", "EHOSTUNREACH"))
      for address in ("169.254.169.254", "10.0.2.2", "192.168.65.7", "100.100.100.200",
                      "172.17.0.1", "224.0.0.1")],
    Row("E105.tcp", ["connect", "192.0.2.1", "80"], NO_ROUTE, control=None,
        no_control="it would send beyond loopback; E96 stands for it"),
]

NETLINK = {"usersock": 2, "sock_diag": 4, "xfrm": 6, "selinux": 7, "audit": 9, "connector": 11,
           "netfilter": 12, "uevent": 15, "generic": 16, "crypto": 21}

FAMILIES = [
    *[Row(f"E114.{name}", ["socket", "16", str(RAW), str(number)], NO_FAMILY,
          varies("EPROTONOSUPPORT", "EPERM", "EACCES")) for name, number in NETLINK.items()],
    # control: the host refuses a plain user (EPERM).
    Row("E115.packet", ["socket", "17", str(RAW), "768"], NO_FAMILY, refuses(user=["EPERM"])),
    Row("E115.packet-dgram", ["socket", "17", str(DGRAM), "768"], NO_FAMILY,
        refuses(user=["EPERM"])),
    Row("E115.raw", ["socket", "2", str(RAW), "1"], NO_FAMILY, refuses(user=["EPERM"])),
    Row("E115.raw6", ["socket", "10", str(RAW), "58"], NO_FAMILY,
        refuses(root=["OPEN", "EAFNOSUPPORT"], user=["EPERM", "EAFNOSUPPORT"])),
    Row("E116.vsock", ["socket", "40", str(STREAM), "0"], NO_FAMILY, varies("EAFNOSUPPORT")),
    Row("E116.connect", ["E116.connect"], NO_FAMILY,
        varies("EAFNOSUPPORT", "ENODEV", "ENETUNREACH", "ETIMEDOUT", "ECONNRESET")),
    *[Row(f"E116.family.{name}", ["socket", str(family), str(kind), "0"], NO_FAMILY,
          varies("EAFNOSUPPORT", "EPERM", "ESOCKTNOSUPPORT", "EPROTONOSUPPORT", "EACCES"))
      for name, family, kind in (("alg", 38, 5), ("bluetooth", 31, 3), ("can", 29, 3),
                                 ("tipc", 30, 4), ("kcm", 41, 2), ("xdp", 44, 3), ("rds", 21, 5),
                                 ("key", 15, 3), ("ax25", 3, 3), ("qrtr", 42, 2), ("smc", 43, 1),
                                 ("nfc", 39, 3), ("mctp", 45, 2), ("llc", 26, 1), ("pppox", 24, 1))],
]


@table(ROUTES)
def test_route(box, row):
    judge(box, row)


@table(FAMILIES)
def test_family(box, row):
    judge(box, row)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"], ids=lambda address: "E97." + address)
def test_host_loopback(box, address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        server = socket.create_server((address, 0), family=family)
    except OSError as error:
        pytest.skip(f"this host has no {address}: {error}")
    with server:
        argv = [box.attempt, "connect", address, str(server.getsockname()[1])]
        assert box.plain(argv).verdict()[0] == "OPEN"
        result = box.run(argv)
        assert result.verdict()[0] == "DENIED", f"E97: {result}"


def test_same_port_inside(box):
    """E117: a port that the host uses is free inside."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        assert box.plain([box.attempt, "listen", port]).verdict() == ("DENIED", "EADDRINUSE")
        assert box.run([box.attempt, "listen", port]).verdict()[0] == "OPEN"


def listener(box, path, absolute=True):
    """A socket of the host, owned by the identity, that accepts everything."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder, name = os.path.split(path)
    box.identity.folder(folder)
    if absolute:
        name = path
        assert len(path) < 108, f"no path for a socket: {path}"
    here = os.open(".", os.O_RDONLY)
    os.chdir(folder)
    try:
        server.bind(name)
    finally:
        os.fchdir(here)
        os.close(here)
    box.identity.own(path)
    server.listen(8)
    return server


SOCKETS = [
    ("E109.podman", "{runtime}/podman/podman.sock"),
    ("E110.ssh-agent", "/tmp/ssh-{token}/agent.1"),
    ("E110.gpg-agent", "{home}/.gnupg/S.gpg-agent"),
    ("E110.gpg-runtime", "{runtime}/gnupg/S.gpg-agent"),
    ("E110.keyring", "{runtime}/keyring/control"),
    ("E111.bus", "{runtime}/bus"),
    ("E111.systemd", "{runtime}/systemd/private"),
    ("E112.x11", "/tmp/.X11-unix/X{token}"),
    ("E112.wayland", "{runtime}/wayland-0"),
    ("E112.pipewire", "{runtime}/pipewire-0"),
    ("E112.pulse", "{runtime}/pulse/native"),
    ("E113.tmux", "/tmp/tmux-{token}/default"),
    ("E113.vscode", "{runtime}/vscode-ipc-1.sock"),
    ("E113.emacs", "{home}/.emacs.d/server/server"),
    ("E109.docker-home", "{home}/.docker/run/docker.sock"),
    ("E109.docker-desktop", "{home}/.docker/desktop/docker.sock"),
    ("E109.colima", "{home}/.colima/default/docker.sock"),
    ("E109.containers", "{home}/.local/share/containers/podman/machine/podman.sock"),
    ("E109.anywhere", "{home}/some/where/control.sock"),
]
SYSTEM_SOCKETS = [
    ("E109.docker", "/run/{token}/docker.sock"),
    ("E109.var-run", "/var/run/{token}/docker.sock"),
    ("E111.system-bus", "/run/{token}/system_bus_socket"),
    ("E113.var-lib", "/var/lib/{token}/daemon.sock"),
]


def named(sockets):
    return [pytest.param(row, path, id=row) for row, path in sockets]


def try_socket(box, row, pattern, absolute=True):
    token = "sandboxtest" + box.canary[-8:]
    path = pattern.format(home=box.identity.home, runtime=box.identity.runtime, token=token)
    folder = os.path.dirname(path)
    server = listener(box, path, absolute)
    try:
        assert box.plain([box.attempt, "unix", path]).verdict()[0] == "OPEN", f"control of {row}"
        result = box.run([box.attempt, "unix", path])
        assert result.verdict() in [("DENIED", "ENOENT"), ("DENIED", "EACCES"),
                                    ("DENIED", "ECONNREFUSED"), ("DENIED", "EPERM")], \
            f"{row}: {result}"
        above = box.run([box.attempt, "unix", "/.." + path])
        assert above.verdict()[0] == "DENIED", f"{row}: by way of /..: {above}"
    finally:
        server.close()
        os.unlink(path)
        while folder not in (box.identity.runtime, box.identity.home, "/tmp", "/run", "/var/run",
                             "/var/lib"):
            try:
                os.rmdir(folder)
            except OSError:
                break
            folder = os.path.dirname(folder)


@pytest.mark.parametrize("row,pattern", named(SOCKETS))
def test_socket_of_user(box, row, pattern):
    try_socket(box, row, pattern)


@pytest.mark.parametrize("row,pattern", named(SYSTEM_SOCKETS))
def test_socket_of_system(box, host_root, row, pattern):
    try_socket(box, row, pattern)


def test_socket_with_a_relative_name(box):
    """E109: its server went to its folder first."""
    try_socket(box, "E109.relative", "{home}/some/where/control.sock", absolute=False)


@pytest.mark.parametrize("place", ["home", "project"])
def test_socket_of_a_server_that_starts_later(box, place):
    path = getattr(box, {"home": "home", "project": "path"}[place])("later", "control.sock")
    box.identity.folder(os.path.dirname(path))
    script = "touch ready; until [ -e go ]; do sleep 0.02; done; exec \"$@\""
    process = box.start(["sh", "-c", script, "sh", box.attempt, "unix", path], text=True,
                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        for _ in range(1000):
            if os.path.exists(box.path("ready")):
                break
            time.sleep(0.01)
        with listener(box, path):
            assert box.plain([box.attempt, "unix", path]).verdict()[0] == "OPEN", "control"
            box.identity.file(box.path("go"), "")
            said = process.communicate(timeout=20)[0]
    finally:
        process.kill()
        process.wait(10)
        os.unlink(path)
    assert said.startswith("DENIED"), said


@pytest.mark.works
def test_sockets_of_ones_own_in_the_project(box):
    """Also where another program of the host listens beside it."""
    script = ("import socket; s = socket.socket(socket.AF_UNIX); s.bind('own.sock'); s.listen(); "
              "c = socket.socket(socket.AF_UNIX); c.connect('own.sock'); print('connected')")
    with listener(box, box.path("foreign.sock")):
        result = box.run(["/usr/bin/python3", "-c", script])
        assert result.stdout.strip() == "connected", result
        assert box.run([box.attempt, "unix", box.path("foreign.sock")]).verdict()[0] == "DENIED"


def test_abstract_socket(box):
    """E108: a name that is in no file system."""
    name = "sandbox-test-" + box.canary
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind("\0" + name)
        server.listen(4)
        control = box.plain([box.attempt, "E108", name])
        assert control.verdict()[0] == "OPEN", control
        result = box.run([box.attempt, "E108", name])
        assert result.verdict() in [("DENIED", "ECONNREFUSED"), ("DENIED", "EPERM")], result


@pytest.mark.works
def test_loopback_works_inside(box):
    script = ("import socket; s = socket.create_server(('127.0.0.1', 0)); "
              "c = socket.create_connection(s.getsockname()); print('connected')")
    result = box.run(["python3", "-c", script])
    assert result.stdout.strip() == "connected", result


LISTENING = """
import socket
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
    s = socket.socket(family)
    try:
        if family == socket.AF_UNIX: s.bind("/tmp/listening")
        s.listen(); print("listens")
    except OSError as error: print(type(error).__name__)
"""


def test_listening_can_be_forbidden(box):
    """network.allow_local_binding: false"""
    argv = ["/usr/bin/python3", "-c", LISTENING]
    assert box.run(argv).stdout.split() == ["listens"] * 3, "control"
    policy = box.identity.file(box.home("none.yaml"),
                               "version: 1\nnetwork: {allow_local_binding: false}\n")
    result = box.run(argv, options=["--policy", policy])
    assert result.stdout.split() == ["PermissionError"] * 3, result


@pytest.mark.parametrize("options", [[], ["--allow-network=good.test"]], ids=["none", "filtered"])
def test_only_sockets_inside_are_listed(box, options):
    """E97: `ss` and /proc/net show the sandbox, whatever the host does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = ["sh", "-c", "ss -Htuln; cat /proc/net/tcp"]
        assert f"127.0.0.1:{port} " in box.plain(command).stdout, "control"
        result = box.run(command, options=options)
        assert f":{port} " not in result.stdout and f":{port:04X} " not in result.stdout, result


@pytest.mark.works
def test_interfaces_can_be_listed(box):
    """E114: NETLINK_ROUTE stays, getifaddrs needs it; only loopback is there."""
    result = box.run(["python3", "-c", "import socket; print(socket.if_nameindex())"])
    assert "'lo'" in result.stdout and result.stdout.count("(") == 1, result


@pytest.mark.works
def test_unix_sockets_work_inside(box):
    script = ("import socket; s = socket.socket(socket.AF_UNIX); s.bind('/tmp/s'); s.listen(); "
              "c = socket.socket(socket.AF_UNIX); c.connect('/tmp/s'); print('connected')")
    result = box.run(["python3", "-c", script])
    assert result.stdout.strip() == "connected", result
