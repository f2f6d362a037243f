"""What the audit log says of a connection, it says before the connection is made."""

import json
import os
import signal
import socket
import subprocess
import tempfile
import time

import pytest

import harness
from test_filtered import allow
from test_full import FULL, ask, ping, pings  # noqa: F401


def net_lines(state):
    """Of all sessions in this state folder."""
    folder, found = os.path.join(state, "sandbox/audit"), []
    for name in os.listdir(folder):
        with open(os.path.join(folder, name)) as log:
            found += [json.loads(line) for line in log if '"event":"net"' in line]
    return found


@pytest.fixture
def small(net):
    """A state folder of 256 kB."""
    with harness.small_folder(net.world, net.identity) as home:
        yield home


def test_nothing_is_opened_before_it_is_recorded(net):
    """Who writes the log is stopped; so are new connections, and no others."""
    state = tempfile.mkdtemp(prefix="recorded-", dir=net.world.base)
    net.identity.own(state)
    script = ("curl -sS -m 10 --noproxy '*' http://good.test/ && touch ready && "
              "until [ -e go ]; do sleep 0.02; done; "
              "curl -sS -m 10 --noproxy '*' http://good.test/ >again; touch gone-again; "
              "curl -sS -m 20 --noproxy '*' http://203.0.113.1:9191/")
    with socket.create_server(("203.0.113.1", 9191)) as server:
        process = net.start(["sh", "-c", script], options=allow("good.test", "203.0.113.1"),
                            env={"XDG_STATE_HOME": state}, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL)
        try:
            wait_for(net.path("ready"))
            os.kill(process.pid, signal.SIGSTOP)
            net.identity.file(net.path("go"), "")
            wait_for(net.path("gone-again"))  # control: a known host needs no line
            server.settimeout(1)
            with pytest.raises(TimeoutError):
                server.accept()
            os.kill(process.pid, signal.SIGCONT)
            server.settimeout(15)
            connection, _ = server.accept()
            hosts = [(line["host"], line["port"], line["decision"]) for line in net_lines(state)]
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            connection.close()
            assert process.wait(20) == 0
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGCONT)
            process.wait(20)
    assert hosts == [("good.test", 80, "allow"), ("203.0.113.1", 9191, "allow")]


def wait_for(path):
    for _ in range(1500):
        if os.path.exists(path):
            return
        time.sleep(0.01)
    raise AssertionError(f"{path} does not come")


# One connection by the proxy to each port; what the proxy answers to it.
PORTS = """
import socket, sys, time
for port in range(20000, 20400):
    s = socket.create_connection(("127.0.0.1", 61080))
    s.sendall(b"CONNECT 203.0.113.10:%d HTTP/1.1\\r\\n\\r\\n" % port)
    answer = b""
    while part := s.recv(4096): answer += part
    print(answer.split()[1].decode(), "audit" in answer.decode(), flush=True)
    if b" 403 " in answer.split(b"\\r\\n")[0] + b" ":
        break
    if port == 20000: sys.stdin.readline()
sys.stdin.readline()
s = socket.create_connection(("127.0.0.1", 61080))
s.sendall(b"CONNECT 203.0.113.10:%d HTTP/1.1\\r\\n\\r\\n" % port)
print(s.recv(4096).split()[1].decode(), flush=True)
"""


def test_what_cannot_be_recorded_is_not_opened(net, small):
    """The log's reserve lasts for some lines; then nothing new is reached, until there is room."""
    process = net.start(["python3", "-c", PORTS], options=allow("203.0.113.10"), text=True,
                        env={"XDG_STATE_HOME": small}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline().split() == ["502", "False"]  # nobody listens, but it was tried
    filler = harness.fill(small)
    process.stdin.write("\n")
    process.stdin.flush()
    said = ["502", "False"]
    while said == ["502", "False"]:
        said = process.stdout.readline().split()
    assert said == ["403", "True"]
    os.unlink(filler)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline().split() == ["502"]
    process.stdin.close()
    assert process.wait(20) == 0
    process.stdout.close()


def test_datagrams_are_recorded(net):
    told = json.loads(net.run(ask("good.test"), options=[*FULL, "--json"]).stdout)
    with open(os.path.join(net.identity.state, "sandbox/audit", told["sid"] + ".jsonl")) as log:
        lines = [json.loads(line) for line in log]
    assert [(line["host"], line["port"], line["decision"], line["rule"]) for line in lines
            if line["event"] == "net"] == [("good.test", 7, "allow", "network.mode: full")]


def audit_of(net, told):
    with open(os.path.join(net.identity.state, "sandbox/audit", told["sid"] + ".jsonl")) as log:
        return [json.loads(line) for line in log]


@pytest.mark.parametrize("host", ["203.0.113.10", "good.test", "2001:db8:1::10"])
def test_pings_are_recorded(net, pings, host):  # noqa: F811
    told = json.loads(net.run(ping(host), options=[*FULL, "--json"]).stdout)
    assert "2 received" in told["stdout"], f"control: {told}"
    lines = audit_of(net, told)
    assert [(line["host"], line["port"], line["decision"], line["rule"]) for line in lines
            if line["event"] == "net"] == [(host, 0, "allow", "network.mode: full")]
    summary = [line for line in lines if line["event"] == "net.summary"][0]["hosts"]
    assert [(line["host"], line["connections"], line["sent"], line["received"])
            for line in summary] == [(host, 1, 128, 128)]


@pytest.mark.parametrize("host", ["203.0.113.10", "good.test"])
def test_refused_pings_are_recorded(net, pings, host):  # noqa: F811
    policy = net.identity.file(net.home("deny.yaml"),
                               "version: 1\nnetwork: {mode: full, deny: [203.0.113.10]}\n")
    told = json.loads(net.run(ping(host), options=["--policy", policy, "--json"]).stdout)
    refused = [(line["host"], line["port"], line["decision"]) for line in audit_of(net, told)
               if line["event"] == "net"]
    assert refused == [(host, 0, "deny")]
    assert "network.deny: 203.0.113.10" in told["denials"][0]["reason"], told


def test_ping_waits_for_its_line(net, pings):  # noqa: F811
    """Who writes the log is stopped; what is asked meanwhile is not sent."""
    script = ("curl -sS -m 10 --noproxy '*' http://good.test/ && touch ready && "
              "until [ -e go ]; do sleep 0.02; done; "
              "ping -n -c 1 -W 1 203.0.113.10 >/dev/null; echo $? >first; touch gone; "
              "until [ -e again ]; do sleep 0.02; done; ping -n -c 1 -W 5 203.0.113.10")
    process = net.start(["sh", "-c", script], options=FULL, stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL)
    try:
        wait_for(net.path("ready"))
        os.kill(process.pid, signal.SIGSTOP)
        net.identity.file(net.path("go"), "")
        wait_for(net.path("gone"))
        with open(net.path("first")) as first:
            assert first.read() == "1\n"
    finally:
        os.kill(process.pid, signal.SIGCONT)
        net.identity.file(net.path("again"), "")
        assert process.wait(20) == 0


@pytest.mark.skipif(not os.environ.get("SANDBOX_TEST_LONG"), reason="10 s; with SANDBOX_TEST_LONG=1")
def test_many_new_hosts_do_not_fill_the_log(net):
    """Beyond a thousand at once, which no program needs: refused, and soon there is room again."""
    script = """
import socket, time
def status(port):
    s = socket.create_connection(("127.0.0.1", 61080))
    s.sendall(b"CONNECT 203.0.113.10:%d HTTP/1.1\\r\\n\\r\\n" % port)
    answer = b""
    while part := s.recv(4096): answer += part
    return answer.split()[1].decode()
seen = [status(port) for port in range(20000, 24000)]
print(seen[:1000].count("502"))
time.sleep(0.3)
print(status(30000))
"""
    told = json.loads(net.run(["python3", "-c", script], options=[*allow("203.0.113.10"), "--json"],
                              timeout=120).stdout)
    assert told["stdout"].split() == ["1000", "502"], told["stdout"]
    with open(os.path.join(net.identity.state, "sandbox/audit", told["sid"] + ".jsonl")) as log:
        written = sum('"decision":"allow"' in line and '"event":"net",' in line for line in log)
    assert 1000 < written < 1024 + 100 * (told["resourceUsage"]["wallTime"] + 2), written
