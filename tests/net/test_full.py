"""Mode full: everything that is not denied and not guarded, by TCP and UDP."""

import json
import socket
import threading

import pytest

from test_filtered import CURL, PLAIN, reached

FULL = ["--allow-network"]

ASK = """
import socket, sys
host, port, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
s = socket.socket(family, socket.SOCK_DGRAM)
s.settimeout(0.5 if how == "refused" else 5)
for text in (b"one", b"two", b"x" * 3000)[:1 if how == "refused" else 3]:
    try:
        if how != "unconnected":
            s.connect(address); s.send(text); print(s.recv(9000)[:12])
        else:
            s.sendto(text, address)
            answer, sender = s.recvfrom(9000)
            print(answer[:12] if sender[:2] == address[:2] else ("from", sender))
    except OSError as error:
        print(type(error).__name__)
"""


def ask(host, how="connected", port=7):
    return ["python3", "-c", ASK, host, str(port), how]


@pytest.mark.works
@pytest.mark.parametrize("how", ["connected", "unconnected"])
@pytest.mark.parametrize("host", ["good.test", "203.0.113.10", "2001:db8:1::10", "six.test"])
def test_datagrams_are_carried(net, host, how):
    result = net.run(ask(host, how), options=FULL)
    assert result.stdout == "b'echo one'\nb'echo two'\nb'echo xxxxxxx'\n", result


@pytest.mark.works
def test_many_clients_get_their_own_answers(net):
    script = """
import socket
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(40)]
for number, s in enumerate(sockets):
    s.settimeout(5); s.sendto(b"%d" % number, ("203.0.113.10", 7))
print(all(s.recv(99) == b"echo %d" % number for number, s in enumerate(sockets)))
"""
    result = net.run(["python3", "-c", script], options=FULL)
    assert result.stdout == "True\n", result


@pytest.mark.works
def test_what_is_not_named_is_reached(net):
    assert reached(net.run([*PLAIN, "http://other.test/"], options=FULL))
    assert reached(net.run([*CURL, "http://203.0.113.11/"], options=FULL))


@pytest.mark.escape
@pytest.mark.parametrize("host", ["own.test", "private.test", "203.0.113.1", "10.1.2.3"])
def test_guarded_datagrams(net, host):
    """E98, E99: also without a connection."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("203.0.113.1", 7))
    server.settimeout(0.1)
    heard, over = [], threading.Event()

    def serve():
        while not over.is_set():
            try:
                message, client = server.recvfrom(4096)
            except TimeoutError:
                continue
            heard.append(message)
            server.sendto(b"open", client)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        control = net.plain(ask(host, "refused"))
        assert "open" in control.stdout or "echo" in control.stdout, f"control: {control}"
        heard.clear()
        result = net.run(ask(host, "refused"), options=[*FULL, "--json"])
        told = json.loads(result.stdout)
        assert told["stdout"] == "TimeoutError\n" and not heard, result
        assert told["denials"][0]["host"] == host
    finally:
        over.set()
        thread.join(5)
        server.close()


@pytest.mark.escape
def test_denied_datagrams(net):
    policy = net.identity.file(net.home("deny.yaml"), "version: 1\nnetwork: {mode: full, "
                               "deny: ['*:7', other.test]}\n")
    result = net.run(ask("203.0.113.10", "refused"), options=["--policy", policy])
    assert result.stdout == "TimeoutError\n", result
    assert net.run([*PLAIN, "http://other.test/"], options=["--policy", policy]).exit == 6


def test_figures(net):
    told = json.loads(net.run(ask("good.test"), options=[*FULL, "--json"]).stdout)
    host = told["network"]["hosts"][0]
    assert (host["host"], host["port"], host["decision"]) == ("good.test", 7, "allow")
    assert host["sent"] == 3006 and host["received"] == 3021


# ---- ping ----


@pytest.fixture
def pings(net):
    """The machine's own users may ping, as on most of them."""
    with open("/proc/sys/net/ipv4/ping_group_range", "r+") as setting:
        before = setting.read()
        setting.seek(0)
        setting.write("0 2147483647")
    yield
    with open("/proc/sys/net/ipv4/ping_group_range", "w") as setting:
        setting.write(before)


def ping(host):
    return ["ping", "-n", "-c", "2", "-i", "0.2", "-W", "1", host]


@pytest.mark.works
@pytest.mark.parametrize("host", ["203.0.113.10", "good.test", "2001:db8:1::10", "127.0.0.1", "::1"])
def test_ping(net, pings, host):
    result = net.run(ping(host), options=FULL)
    assert result.exit == 0 and "2 received" in result.stdout, result


@pytest.mark.escape
@pytest.mark.parametrize("host", ["10.1.2.3", "203.0.113.1", "private.test"])
def test_guarded_ping(net, pings, host):
    assert net.plain(ping(host)).exit == 0, "control"
    result = net.run(ping(host), options=FULL)
    assert result.exit == 1 and "0 received" in result.stdout, result


@pytest.mark.escape
@pytest.mark.parametrize("options", [[], ["--allow-network=good.test,203.0.113.10"]],
                         ids=["E96.none", "E96.filtered"])
def test_ping_without_the_whole_network(net, pings, options):
    assert net.plain(ping("203.0.113.10")).exit == 0, "control"
    assert net.run(ping("203.0.113.10"), options=options).exit in (1, 2)


def test_ping_of_nobody_is_not_answered(net, pings):
    assert net.run(ping("203.0.113.99"), options=FULL).exit == 1


def test_denied_ping(net, pings):
    policy = net.identity.file(net.home("deny.yaml"),
                               "version: 1\nnetwork: {mode: full, deny: [203.0.113.10]}\n")
    for host in ("203.0.113.10", "good.test"):
        assert net.run(ping(host), options=["--policy", policy]).exit == 1


def test_datagrams_leave_descriptors_for_others(net):
    """Each pair of addresses takes one, the oldest are given up for the latest."""
    script = """
import socket, subprocess, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(10)
for port in range(1000, 1400):
    s.sendto(b"x", ("203.0.113.10", port))
    time.sleep(0.001) # the audit log takes a line about each
time.sleep(0.3)
s.sendto(b"x", ("203.0.113.10", 7))
while True:
    try: print(s.recv(100), flush=True); break
    except ConnectionRefusedError: pass
print(subprocess.run(["curl", "-sS", "-m", "10", "--noproxy", "*", "http://other.test/"]).returncode)
"""
    result = net.run(["python3", "-c", script], options=["--allow-network"],
                     before=["prlimit", "--nofile=300:300"])
    assert "b'echo x'" in result.stdout and result.stdout.endswith("0\n"), result
