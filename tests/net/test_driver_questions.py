"""Dynamic mode with a network driver: a name that no rule knows waits for a decision when it is
looked up. Every refusal has a control."""

import json
import os
import time

import pytest

from dynamic import answer, asking, next_event, run
from sessions import eventually, sandbox
from test_drivers import (ASK, by, driver, identity, only, pair, permitted,  # noqa: F401 (fixtures)
                          routed)
from test_filtered import PLAIN
from test_host_questions import approve, question

SOME = only(("pasta", "user"), ("veth", "root"))
ONE = only(("pasta", "user"))
LONG = pytest.mark.skipif(not os.environ.get("SANDBOX_TEST_LONG"),
                          reason="waits for TCP; with SANDBOX_TEST_LONG=1")


def gated(driver, *hosts):  # noqa: F811
    return [*by(driver, *hosts), "--gate", "notify"]


@pytest.mark.works
def test_the_waiting_look_up_goes_on(routed, driver):  # noqa: F811
    """Once: no other question while what it has opened is open. Nothing leaves before the answer."""
    name = f"{driver}-{routed.identity.name}.flood.test"
    script = (f"curl -s -m 20 -o /dev/null http://other.test:8080/; echo $?; "
              f"curl -s -m 20 -o /dev/null http://other.test/; echo $?; "
              f"curl -s -m 20 -o /dev/null http://{name}/; echo $?; "
              f"curl -s -m 5 -o /dev/null http://good.test/; echo $?")
    routed.internet.queries.clear()
    with asking(routed, ["sh", "-c", script], *gated(driver, "good.test"), "--json") as session, \
            session.watch() as control:
        asked = question(control)
        assert (asked["host"], asked["port"], asked["op"]) == ("other.test", 0, "connect")
        assert asked["exe"].endswith("/curl") and asked["pid"] > 0, asked
        assert not routed.internet.was_asked("other.test")
        approve(control, asked)
        second = question(control)
        assert second["host"] == name, "the second look-up of the first name was not asked about"
        assert routed.internet.was_asked("other.test"), "control"
        assert answer(control, {"cmd": "cmd.deny", "id": second["id"]}) == {"ok": True}
        code, out, said = session.result()
    told = json.loads(out)
    assert told["stdout"].split() == ["0", "0", "6", "0"], (told, said)
    assert not routed.internet.was_asked(name)
    lines = permitted(told["network"])
    assert lines["other.test", "tcp", 8080]["reason"] == "approved", lines
    assert lines["other.test", "tcp", 80]["connections"] == 1, lines
    assert [(one["host"], one["port"]) for one in told["denials"]] == [(name, 0)]


@ONE
def test_several_look_ups_are_one_question(routed, driver):  # noqa: F811
    """Also where rules are about addresses alone; by TCP, too."""
    script = ("for i in 1 2 3 4; do curl -s -m 20 -o /dev/null http://other.test/$i & done; "
              "python3 -c \"$0\"; wait")
    ask = ASK + "print(ask('127.0.0.53', 'other.test', socket.SOCK_STREAM))"
    with asking(routed, ["sh", "-c", script, ask.replace("settimeout(5)", "settimeout(20)")],
                *gated(driver, "203.0.113.10"), "--json") as session, session.watch() as control:
        asked = question(control)
        time.sleep(0.5)  # the others are there, too
        assert len(answer(control, {"cmd": "cmd.pending"})["requests"]) == 1
        approve(control, asked, "session")
        told = json.loads(session.result()[1])
    assert told["stdout"] == "code 0 answers 1\n", told
    assert permitted(told["network"])["other.test", "tcp", 80]["connections"] == 4, told


@SOME
def test_answer_for_the_user_is_kept(routed, driver):  # noqa: F811
    options = gated(driver, "good.test")
    with asking(routed, [*PLAIN, "http://other.test/"], *options) as session, \
            session.watch() as control:
        approve(control, question(control), "user")
        assert session.result()[0] == 0
    assert run(routed, [*PLAIN, "http://other.test:8080/"], options).exit == 0, "every port"
    sandbox(routed, "policy", "revoke", "other.test")
    result = run(routed, [*PLAIN, "http://other.test/"], options)
    assert result.exit == 6 and "--allow-network=other.test," in result.stderr, result
    assert "/curl may not connect to other.test:" in result.stderr


@pytest.mark.escape
@ONE
def test_approved_name_is_still_guarded(routed, driver):  # noqa: F811
    """And its denied ports stay closed."""
    policy = routed.identity.file(routed.home("deny.yaml"),
                                  "version: 1\nnetwork: {deny: ['*.good.test:8080', secret.test]}\n")
    script = "for url; do curl -s -m 20 -o /dev/null $url; echo $?; done"
    urls = ["http://private.test/", "http://www.good.test/", "http://www.good.test:8080/",
            "http://secret.test/", "http://203.0.113.11/"]
    with asking(routed, ["sh", "-c", script, "sh", *urls], *gated(driver, "good.test"), "--policy",
                policy) as session, session.watch() as control:
        for host in ("private.test", "www.good.test"):
            asked = question(control)
            assert asked["host"] == host
            approve(control, asked, "session")
        asked = question(control)
        assert asked["host"] == "203.0.113.11", "neither the denied port nor the denied name"
        assert answer(control, {"cmd": "cmd.deny", "id": asked["id"]}) == {"ok": True}
        assert session.result()[1].split() == ["6", "0", "7", "6", "7"]


# ---- addresses ----


@pytest.mark.works
@only(("slirp4netns", "user"), ("veth", "root"))
def test_the_waiting_connection_goes_on(routed, driver):  # noqa: F811
    """TCP itself knocks again while somebody is asked. A new port of a known name is asked about as
    that name; what is guarded is not asked about."""
    script = ("for url; do (curl -s -g -m 20 -o /dev/null $url; echo $? $url) & done; wait; "
              "curl -s -m 20 -o /dev/null $1; echo $? again")
    urls = ["http://203.0.113.11:8080/", "http://good.test:8080/", "http://[2001:db8:1::10]/",
            "http://203.0.113.11/", "http://10.1.2.3/"]
    expected = {("203.0.113.11", 8080), ("good.test", 8080), ("2001:db8:1::10", 80),
                ("203.0.113.11", 80)}
    with asking(routed, ["sh", "-c", script, "sh", *urls], *gated(driver, "good.test:80"),
                "--json") as session, session.watch() as control:
        while expected:
            asked = question(control)
            what = asked["host"], asked["port"]
            expected.remove(what)
            assert asked["exe"].endswith("/curl") and asked["pid"] > 0, asked
            if what == ("203.0.113.11", 80):
                assert answer(control, {"cmd": "cmd.deny", "id": asked["id"]}) == {"ok": True}
            else:
                approve(control, asked)
        code, out, said = session.result()
    told = json.loads(out)
    codes = dict(reversed(line.split()) for line in told["stdout"].splitlines())
    assert [codes[url] for url in urls] == ["0", "0", "0", "7", "7"], (told, said)
    assert codes["again"] == "0", "it stays open for a while"
    lines = permitted(told["network"])
    assert lines["203.0.113.11", "tcp", 8080]["connections"] == 2, lines
    assert lines["203.0.113.11", "tcp", 8080]["reason"] == "approved", lines
    assert lines["good.test", "tcp", 8080]["address"] == "203.0.113.10", lines
    denied = sorted((one["host"], one["port"]) for one in told["denials"])
    assert denied == [("10.1.2.3", 80), ("203.0.113.11", 80)], "each of them once"


@LONG
@ONE
def test_several_knocks_are_one_question(routed, driver):  # noqa: F811
    script = "for i in 1 2 3; do curl -s -m 20 -o /dev/null http://203.0.113.11/ & done; wait"
    with asking(routed, ["sh", "-c", script], *gated(driver, "good.test"), "--json") as session, \
            session.watch() as control:
        asked = question(control)
        time.sleep(0.5)  # the others are there, too
        assert len(answer(control, {"cmd": "cmd.pending"})["requests"]) == 1
        approve(control, asked, "session")
        told = json.loads(session.result()[1])
    assert permitted(told["network"])["203.0.113.11", "tcp", 80]["connections"] == 3, told


@LONG
@SOME
def test_who_has_stopped_knocking_is_not_asked_about(routed, driver):  # noqa: F811
    script = "timeout 0.5 curl -s http://203.0.113.11/; sleep 30"
    with asking(routed, ["sh", "-c", script], *gated(driver, "good.test")) as session, \
            session.watch() as control:
        asked = question(control)
        assert next_event(control, "event.withdrawn")["id"] == asked["id"]


@pytest.mark.escape
@ONE
def test_revoked(routed, driver):  # noqa: F811
    """New connections are asked about from the reply on, whether a name or an address was approved."""
    script = ("for turn in 1 2; do for host in other.test 203.0.113.10; do "
              "curl -s -m 20 -o /dev/null $host; echo $? $host; done; done; "
              "touch reached; while [ ! -e go ]; do sleep 0.02; done; "
              "for host in 203.0.113.11 other.test 203.0.113.10; do "
              "curl -s -m 20 -o /dev/null $host & done; wait; echo end")
    with asking(routed, ["sh", "-c", script], *gated(driver, "six.test"), "--json") as session, \
            session.watch() as control:
        for host in ("other.test", "203.0.113.10"):
            asked = question(control)
            assert asked["host"] == host, "control: each is asked about once"
            approve(control, asked, "session")
        assert eventually(lambda: os.path.exists(routed.path("reached")), 20)
        for host in ("other.test", "203.0.113.10"):
            assert answer(control, {"cmd": "cmd.revoke", "host": host})["ok"] is True
        routed.identity.file(routed.path("go"), "")
        again = [question(control) for _ in range(3)]
        assert sorted((asked["host"], asked["port"]) for asked in again) == [
            ("203.0.113.10", 80), ("other.test", 0), ("other.test", 80)], again
        for asked in again:
            assert answer(control, {"cmd": "cmd.deny", "id": asked["id"]}) == {"ok": True}
        told = json.loads(session.result()[1])
    assert told["stdout"].split() == ["0", "other.test", "0", "203.0.113.10"] * 2 + ["end"], told
    lines = permitted(told["network"])
    assert {key: line["connections"] for key, line in lines.items()} == {
        ("other.test", "tcp", 80): 2, ("203.0.113.10", "tcp", 80): 2}, lines


@SOME
def test_nobody_to_ask_about_an_address(routed, driver):  # noqa: F811
    """Refused at once, as without questions."""
    result = run(routed, ["curl", "-s", "-m", "5", "-w", "%{time_total}", "http://203.0.113.11/"],
                 gated(driver, "good.test"))
    assert result.exit == 7, result


@only(("slirp4netns", "user"))
def test_kernel_that_does_not_tell(routed, driver):  # noqa: F811
    """Without NFLOG, as an nft that refuses its rules: nothing is asked about addresses, all the rest
    is as it was."""
    folder = os.path.dirname(routed.identity.file(
        routed.home("tools", "nft"),
        "#!/bin/sh\nrules=$(cat)\ncase $rules in *'log prefix'*) echo no log >&2; exit 1;; esac\n"
        "echo \"$rules\" | exec /usr/sbin/nft \"$@\"\n"))
    os.chmod(os.path.join(folder, "nft"), 0o755)
    script = "for host; do curl -s -m 20 -o /dev/null $host; echo $?; done"
    with asking(routed, ["sh", "-c", script, "sh", "good.test", "203.0.113.11", "other.test"],
                *gated(driver, "good.test"), "--json",
                env={"PATH": folder + ":" + os.environ["PATH"]}) as session, \
            session.watch() as control:
        asked = question(control)
        assert asked["host"] == "other.test", "not the address"
        approve(control, asked)
        told = json.loads(session.result()[1])
    assert told["stdout"].split() == ["0", "7", "0"], told
    assert set(permitted(told["network"])) == {("good.test", "tcp", 80), ("other.test", "tcp", 80)}


# ---- who goes away ----


GONE = ASK.replace("settimeout(5)", "settimeout(0.5)") + """
import os, time
def send(name, port=None):
    packed = b''.join(bytes([len(part)]) + part.encode() for part in name.split('.')) + b'\\0'
    query = struct.pack('!HHHHHH', 7, 0x100, 1, 0, 0, 0) + packed + struct.pack('!HH', 1, 1)
    if port is None:
        s = socket.create_connection(('127.0.0.53', 53))
        s.sendall(struct.pack('!H', len(query)) + query)
        return s
    port.sendto(query, ('127.0.0.53', 53))
"""


@only(("veth", "root"))
def test_who_has_left_is_not_asked_about(routed, driver):  # noqa: F811
    script = GONE + "s = send('other.test'); time.sleep(0.2); s.close(); time.sleep(30)"
    with asking(routed, ["python3", "-c", script], *gated(driver, "good.test")) as session, \
            session.watch() as control:
        asked = question(control)
        assert asked["exe"].rpartition("/")[2].startswith("python3") and asked["pid"] > 0, asked
        assert next_event(control, "event.withdrawn")["id"] == asked["id"]


@ONE
def test_flood_of_unknown_names(routed, driver):  # noqa: F811
    """What waits is bounded, repeated questions are one, and known names are still answered."""
    script = GONE + """
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(3000):
    send('%d.unknown.test' % (number % 1500), u)
while (said := ask('127.0.0.53', 'good.test')) == 'TimeoutError':
    pass  # the kernel keeps so many datagrams
print(said, flush=True)
"""
    with asking(routed, ["python3", "-c", script], *gated(driver, "good.test")) as session, \
            session.watch() as control:
        code, out, said = session.result(40)
        assert out == "code 0 answers 1\n" and code == 0, (out, said)
        assert "ended; nothing" not in said


@pytest.mark.escape
@only(("veth", "root"))
def test_flood_of_knocks(routed, driver):  # noqa: F811
    """Thousands of unknown addresses while somebody is asked: bounded, none passes, and what is
    known is reached all the same."""
    script = """
import errno, socket, subprocess
held = []
for number in range(1500):
    s = socket.socket(); s.setblocking(False)
    code = s.connect_ex((f'203.0.113.{11 + number % 40}', 2000 + number))
    assert code in (errno.EINPROGRESS, errno.ECONNREFUSED), code
    held.append(s)
print(subprocess.run(['curl', '-s', '-m', '9', '-o', '/dev/null', 'good.test']).returncode)
"""
    with asking(routed, ["python3", "-c", script], *gated(driver, "good.test"), "--json") as session, \
            session.watch() as control:
        question(control)
        assert len(answer(control, {"cmd": "cmd.pending"})["requests"]) <= 64
        told = json.loads(session.result(40)[1])
    assert told["stdout"] == "0\n", told
    assert set(permitted(told["network"])) == {("good.test", "tcp", 80)}, told["network"]


FORGE = """
import socket, struct
def attempt(protocol, to, message):
    try:
        s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        s.bind((0, 0)); s.sendto(message, (to, 0)); s.settimeout(0.3)
        return 'answer %d' % struct.unpack('=i', s.recv(4096)[16:20])[0] if to == 0 else 'sent'
    except OSError as error:
        return type(error).__name__
# bind NFLOG's group 1; add an address to what is wanted, flush the rules; then whoever may listen
config = struct.pack('=IHHII', 28, 0x401, 5, 1, 0) + struct.pack('!BBH', 0, 0, 1) + struct.pack('=HHBBBB', 5, 1, 1, 0, 0, 0)
said = {attempt(12, 0, config)} | {attempt(12, to, config) for to in range(1, 400)}
print(*sorted(said))
"""


@pytest.mark.escape
@SOME
def test_workload_cannot_forge_it(routed, driver):  # noqa: F811
    """It can neither hear nor say what the packet filter tells."""
    if routed.identity.name == "root":
        outside = routed.plain(["python3", "-c", FORGE]).stdout
        assert "answer 0" in outside, "control"
    result = run(routed, ["python3", "-c", FORGE], gated(driver, "good.test"))
    assert result.stdout.strip() and "answer 0" not in result.stdout, result
    assert "sent" not in result.stdout, result


@only(("pasta", "user"), ("slirp4netns", "root"))
def test_listed_name_server_is_asked(routed, driver):  # noqa: F811
    """Whoever lists one wants that: nothing is asked about then."""
    server = "10.0.2.3" if driver == "slirp4netns" else "203.0.113.53"
    script = "cat /etc/resolv.conf; getent ahostsv4 other.test"
    result = run(routed, ["sh", "-c", script], gated(driver, server + ":53", "203.0.113.10"))
    assert f"nameserver {server}\n" in result.stdout and "127.0.0.53" not in result.stdout, result
    assert "203.0.113.11" in result.stdout, result
    result = run(routed, ["cat", "/etc/resolv.conf"], gated(driver, "203.0.113.10"))
    assert "nameserver 127.0.0.53\n" in result.stdout and "timeout:30" in result.stdout, result


def children_named(pid, name):
    found = []
    for child in open(f"/proc/{pid}/task/{pid}/children").read().split():
        if open(f"/proc/{child}/comm").read().strip() == name:
            found.append(int(child))
    return found


@pytest.mark.parametrize("pair, victim, host", [
    (("pasta", "user"), "sandbox-relay", "other.test"),
    (("pasta", "root"), "sandbox-net", "203.0.113.11")], indirect=["pair"])
def test_killed_while_somebody_is_asked(routed, driver, victim, host):  # noqa: F811
    """The question goes, and nothing opens."""
    script = "for host in $1 203.0.113.11; do curl -s -m 1 -o /dev/null $host; done; echo $?"
    with asking(routed, ["sh", "-c", script, "sh", host], *gated(driver, "good.test")) as session, \
            session.watch() as control:
        asked = question(control)
        assert asked["host"] == host
        (pid,) = eventually(lambda: children_named(session.process.pid, victim))
        os.kill(pid, 9)
        assert next_event(control, "event.withdrawn")["id"] == asked["id"]
        reply = answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "session"})
        assert "error" in reply, reply
        code, out, said = session.result()
        assert out.strip() in ("7", "28") and said.count("has ended; nothing can be reached") == 1
