"""The network of the vm back end: QEMU's own, which leads to the relay like every socket of its session.
A boot takes seconds, so one boot asks for everything."""

import contextlib
import json
import os
import socket
import subprocess
import sys

import pytest

import harness
import sessions

sys.path.insert(0, os.path.join(harness.TESTS, "backends"))

from engines import ENGINES, not_in_a_guest  # noqa: E402
from machines import unpacked_kernel  # noqa: E402

pytestmark = pytest.mark.skipif(bool(os.environ.get("SANDBOX_SANITIZED")),
                                reason="a guest is not sanitized, and the relay is tested without one")

TIMEOUT = 150
PORT = 8000

# `plain` knows nothing of a proxy. The last one serves a published port, on loopback.
INSIDE = r"""
plain() { curl -sS -m 20 --noproxy '*' "$@"; }
say() { printf '%s: ' "$1"; shift; "$@" 2>&1 | tr '\n' ' '; echo; }
datagram() { bash -c 'exec 3<>/dev/udp/203.0.113.10/7; echo x >&3; read -t 2 -u 3 && echo answered'; }
say device ls /sys/class/net
say plain plain http://good.test/
say six plain -6 http://good.test/
say proxy curl -sS -m 20 http://good.test/
say refused plain http://secret.test/
say literal plain http://203.0.113.11/
say explained curl -sS -m 20 http://secret.test/
say resolver cat /etc/resolv.conf
say datagram datagram
exec perl -MSocket -e '
socket($l, AF_INET, SOCK_STREAM, 0) && setsockopt($l, SOL_SOCKET, SO_REUSEADDR, 1)
  && bind($l, sockaddr_in(8000, INADDR_LOOPBACK)) && listen($l, 1) && mkdir("up") && accept($c, $l) or die $!;
sysread($c, $said, 100); syswrite($c, length($said) . " bytes");'
"""


def fetch_kernel():
    """While there is a way to it; whoever cannot have one is told by the fixture."""
    with contextlib.suppress(harness.Unavailable):
        not_in_a_guest()
        if os.geteuid() == 0 and not os.environ.get("SANDBOX_SANITIZED"):
            unpacked_kernel()


@pytest.fixture(scope="session")
def machine(world):
    """The options for a kernel that is there."""
    made = ENGINES["vm"]
    try:
        made.prepare(world, None)
    except harness.Unavailable as reason:
        pytest.skip(str(reason))
    return made


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def talk(port):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(b"four")
            return client.recv(100).decode() or None
    except OSError:
        return None


@pytest.mark.parametrize("identity", ["user"], indirect=True)
def test_a_guest_reaches_what_policy_names(net, machine):
    port = free_port()
    process = net.popen([net.world.command, "run", "--static", "--json", "--backend", "vm",
                         "--allow-network=good.test", "--publish", f"{port}:{PORT}", "--",
                         "sh", "-c", INSIDE], env=machine.environment, stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE)
    try:
        assert sessions.eventually(lambda: os.path.exists(net.path("up")) or process.poll(), TIMEOUT)
        answered = talk(port)
        out, err = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
        process.wait()
    result = json.loads(out)
    said = dict(line.split(": ", 1) for line in result["stdout"].splitlines())
    assert result["exitCode"] == 0 and result["backend"] == "vm", (result, err)
    assert said["device"].split() == ["eth0", "lo"]
    for way in ("plain", "six", "proxy"):
        assert json.loads(said[way])["host"] == "good.test", (way, said)
    # Control: the same server answers for the other name when it is asked directly.
    assert net.plain(["curl", "-sS", "-m", "10", "http://203.0.113.11/"]).exit == 0
    for way in ("refused", "literal"):
        assert "address" not in said[way] and "curl: (" in said[way], (way, said)
    assert "network.allow" in said["explained"], said
    assert not net.internet.was_asked("secret.test"), "the name left the machine"
    assert "127.0.0.53" not in said["resolver"] and "search corp.test" in said["resolver"], said
    assert "answered" not in said["datagram"], said
    assert answered == "4 bytes"
    assert sessions.eventually(lambda: talk(port) is None), "still open after the end"
    refused = [entry["host"] for entry in result["network"]["hosts"] if entry["decision"] == "deny"]
    assert "secret.test" in refused, result["network"]
