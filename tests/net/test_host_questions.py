"""Dynamic mode: a host that no rule names waits for a decision, like a file does."""

import json
import os
import select
import signal
import time

import pytest

import harness
from dynamic import answer, asking, next_event, run
from sessions import eventually, running, sandbox
from test_filtered import CURL, PLAIN, REFUSED, allow

GOOD = allow("good.test")


@pytest.fixture(autouse=True)
def fuse():
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse cannot be opened here")


def question(control):
    return next_event(control, "event.net_request")


def approve(control, asked, scope="once"):
    assert answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": scope}) == {"ok": True}


@pytest.mark.works
@pytest.mark.parametrize("curl", [PLAIN, CURL, [*CURL, "-p"], [*CURL, "-x", "socks5h://127.0.0.1:61080"]],
                         ids=["led", "http", "connect", "socks"])
def test_the_waiting_connection_goes_on(net, curl):
    with asking(net, [*curl, "http://other.test/"], *GOOD) as session, session.watch() as control:
        asked = question(control)
        assert (asked["event"], asked["host"], asked["port"]) == ("event.net_request", "other.test", 80)
        assert asked["exe"].endswith("/curl") and asked["op"] == "connect"
        approve(control, asked)
        code, out, _ = session.result()
        assert code == 0 and json.loads(out)["address"] == "203.0.113.11"


def test_denied(net):
    with asking(net, [*CURL, "-w", "%{http_code}", "http://other.test/"], *GOOD, "--json") as session, \
            session.watch() as control:
        asked = question(control)
        assert answer(control, {"cmd": "cmd.deny", "id": asked["id"]}) == {"ok": True}
        _, out, _ = session.result()
        told = json.loads(out)
        assert told["stdout"].endswith("403") and "denied when asked" in told["stdout"]
        assert [(item["host"], item["port"]) for item in told["denials"]] == [("other.test", 80)]


def test_several_connections_are_one_question(net):
    script = "for i in 1 2 3 4 5; do curl -sS -m 15 --noproxy '*' http://other.test/$i & done; wait"
    with asking(net, ["sh", "-c", script], *GOOD) as session, session.watch() as control:
        asked = question(control)
        time.sleep(0.5)  # the others are there, too
        assert len(control.call({"cmd": "cmd.pending"})["requests"]) == 1
        approve(control, asked, "session")
        code, out, _ = session.result()
        assert code == 0 and out.count("203.0.113.11") == 5


def test_answer_for_the_session_is_remembered(net):
    script = "for i in 1 2 3; do curl -sS -m 15 --noproxy '*' http://other.test/$i; done"
    with asking(net, ["sh", "-c", script], *GOOD) as session, session.watch() as control:
        approve(control, question(control), "session")
        assert session.result()[1].count("203.0.113.11") == 3


def test_answer_for_the_user_is_kept(net):
    with asking(net, [*PLAIN, "http://other.test/"], *GOOD) as session, session.watch() as control:
        approve(control, question(control), "user")
        assert session.result()[0] == 0
    result = run(net, [*PLAIN, "http://other.test/"], GOOD)
    assert result.exit == 0, result
    assert run(net, [*PLAIN, "http://other.test:8080/"], GOOD).exit == 56, "only that port"
    sandbox(net, "policy", "revoke", "other.test:80")


def test_kept_answer_is_taken_back_while_a_session_uses_it(net):
    """It was allowed from the start of this one, without a question, and is not any more; before anything
    was reached, and after."""
    with asking(net, [*CURL, "http://other.test/"], *GOOD) as session, session.watch() as control:
        approve(control, question(control), "user")
        assert session.result()[0] == 0
    curl = "curl -sS -m 15 --noproxy '*' http://other.test/ >/dev/null"
    wait = "until [ -e go ]; do sleep 0.02; done"
    for script, before in ((f"{curl} && touch step; {wait}; {curl}", True), (f"touch step; {wait}; {curl}", False)):
        with asking(net, ["sh", "-c", script], *GOOD) as session, session.watch() as control:
            assert eventually(lambda: os.path.exists(net.path("step"))), before
            told = sandbox(net, "policy", "revoke", "other.test:80")
            assert told.exit == 0 and "in 1 running session" in told.stdout, told
            net.identity.file(net.path("go"), "")
            asked = question(control)
            assert asked["host"] == "other.test"
            approve(control, asked, "user")  # for the next round
            assert session.result()[0] == 0
        for name in ("step", "go"):
            os.unlink(net.path(name))
    sandbox(net, "policy", "revoke", "other.test:80")


@pytest.mark.escape
@pytest.mark.parametrize("name", ["other.test:80", "other.test"])
@pytest.mark.parametrize("scope", ["session", "user"])
def test_answer_is_taken_back_in_the_session_that_gave_it(net, name, scope):
    """By the host, and as 'policy grants' shows it. Another port stays what it is."""
    curl = "curl -sS -m 15 --noproxy '*' http://other.test%s/ >/dev/null"
    script = f"{curl % ''}; {curl % ''}; touch step; until [ -e go ]; do sleep 0.02; done; {curl % ''}; echo $?"
    with asking(net, ["sh", "-c", script], *GOOD) as session, session.watch() as control:
        approve(control, question(control), scope)
        assert eventually(lambda: os.path.exists(net.path("step"))), "control: asked about once"
        refused = sandbox(net, "policy", "revoke", "other.test:81")
        assert refused.exit == 125 and "nothing was approved" in refused.stderr, refused
        told = sandbox(net, "policy", "revoke", name)
        assert told.exit == 0 and "in 1 running session" in told.stdout, told
        net.identity.file(net.path("go"), "")
        asked = question(control)
        assert (asked["host"], asked["port"]) == ("other.test", 80)
        assert answer(control, {"cmd": "cmd.deny", "id": asked["id"]}) == {"ok": True}
        assert session.result()[1] != "0\n"


@pytest.mark.escape
def test_kept_answer_is_taken_back_in_static_mode(net):
    net.identity.file(net.home(".config/sandbox/grants.yaml"),
                      "version: 1\ngrants:\n  - {decision: allow, host: other.test, port: 80}\n")
    curl = "curl -sS -m 15 --noproxy '*' http://%s.test/ >/dev/null && touch %s"
    script = f"{curl % ('other', 'one')}; touch step; until [ -e go ]; do sleep 0.02; done; " \
             f"{curl % ('other', 'two')}; {curl % ('good', 'three')}"
    with running(net, ["sh", "-c", script], "--static", *GOOD) as (process, _):
        assert eventually(lambda: os.path.exists(net.path("step")))
        told = sandbox(net, "policy", "revoke", "other.test:80")
        net.identity.file(net.path("go"), "")
        process.wait(30)
    assert told.exit == 0 and "1 stored, in 1 running session" in told.stdout, told
    assert [os.path.exists(net.path(name)) for name in ("one", "two", "three")] == [True, False, True]


def test_who_has_left_is_not_asked_about(net):
    script = "timeout 0.5 curl -sS --noproxy '*' http://other.test/; sleep 20"
    with asking(net, ["sh", "-c", script], *GOOD) as session, session.watch() as control:
        asked = question(control)
        assert next_event(control, "event.withdrawn")["id"] == asked["id"]


CROWD = """
import os, socket, time
def wait(name):
    while not os.path.exists(name): time.sleep(0.02)
socket.create_connection(("good.test", 80)).close() # the relay is there
print("ready", flush=True)
wait("go")
held = []
for port in range(1000, 1400):
    try: held.append(socket.create_connection(("203.0.113.11", port), 10))
    except ConnectionResetError: pass # one too many
print("asked", flush=True)
wait("leave")
for s in held: s.close()
print("left", flush=True)
time.sleep(30)
"""


def next_line(session):
    """Not for ever: who should write it may have been stopped."""
    ready, _, _ = select.select([session.process.stdout], [], [], 20)
    return session.process.stdout.readline() if ready else None


def test_crowd_that_has_left_while_nobody_listened(net):
    """More questions than the monitor's line takes, withdrawn while it takes none: none stays."""
    if net.plain(["test", "-r", "/dev/fuse", "-a", "-w", "/dev/fuse"]).exit != 0:
        pytest.skip("/dev/fuse is closed to this user: by seccomp notify the stopped monitor does each connect")
    with asking(net, ["python3", "-c", CROWD], *GOOD) as session, session.watch() as control:
        assert next_line(session) == b"ready\n"
        os.kill(session.process.pid, signal.SIGSTOP)
        try:
            net.identity.file(net.path("go"), "")
            assert next_line(session) == b"asked\n"
            net.identity.file(net.path("leave"), "")
            assert next_line(session) == b"left\n"
            time.sleep(0.2)  # the relay has tried to tell it
        finally:
            os.kill(session.process.pid, signal.SIGCONT)
        assert question(control)["host"] == "203.0.113.11", "control: some were asked about"
        with session.connect() as other:
            assert eventually(lambda: other.call({"cmd": "cmd.pending"})["requests"] == [])


def test_nothing_leaves_before_the_answer(net):
    """E100: the name is not even looked up."""
    net.internet.queries.clear()
    with asking(net, [*PLAIN, "http://data.other.test/"], *GOOD) as session, \
            session.watch() as control:
        asked = question(control)
        assert not net.internet.was_asked("data.other.test")
        answer(control, {"cmd": "cmd.deny", "id": asked["id"]})
        assert session.result()[0] == 56
    assert not net.internet.was_asked("data.other.test")


@pytest.mark.escape
def test_guarded_addresses_are_not_asked_about(net):
    for host in ("10.1.2.3", "169.254.169.254"):
        result = run(net, [*PLAIN, f"http://{host}/"], GOOD)
        assert result.exit in REFUSED and "may not connect" not in result.stderr, result


@pytest.mark.escape
def test_approved_name_is_still_guarded(net):
    with asking(net, [*CURL, "http://private.test/"], *GOOD) as session, session.watch() as control:
        approve(control, question(control), "session")
        code, out, _ = session.result()
        assert "leads to 10.1.2.3: a private network" in out, out


def test_nobody_to_ask(net):
    """Said at once, and to those who do not know of the proxy in a way that nobody tries again."""
    net.internet.queries.clear()
    result = run(net, [*PLAIN, "http://other.test/"], GOOD)
    assert result.exit == 6 and "--allow-network=other.test," in result.stderr, result
    assert "/curl may not connect to other.test:" in result.stderr
    assert not net.internet.was_asked("other.test")
    result = run(net, [*CURL, "http://other.test/"], GOOD)
    assert "nobody is there to be asked" in result.stdout, result
    assert "--allow-network=other.test:80" in result.stderr, result
    result = run(net, [*PLAIN, "http://203.0.113.11/"], GOOD)
    assert result.exit in REFUSED and "--allow-network=203.0.113.11:80" in result.stderr, result


# Processes with many descriptors each, before the one that knocks at ever new addresses.
MANY_DESCRIPTORS = """
import os, resource, socket, sys, time
def knock(last):
    knocking = socket.socket()
    knocking.setblocking(False)
    knocking.connect_ex(("203.0.114.%d" % last, 80))
    return knocking
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
first = knock(1)
time.sleep(0.5)
held = [os.open("/dev/null", os.O_RDONLY) for _ in range(min(hard, 4096) - 500)]
hears, told = os.pipe()
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        os.close(told)
        os.read(hears, 1)
        os._exit(0)
if os.fork() == 0:
    crowd = [knock(last) for last in range(2, 202)]
    time.sleep(60)
time.sleep(60)
"""


@pytest.mark.parametrize("processes", [0, 300])
@pytest.mark.parametrize("identity", harness.SOME, indirect=True)
def test_search_for_who_asks_holds_nobody_up(net, processes):
    """The limits' clock goes on however much there is to be searched; and who is found is told."""
    result = run(net, ["/usr/bin/python3", "-c", MANY_DESCRIPTORS, str(processes)],
                 [*GOOD, "--timeout", "4s"], timeout=60)
    assert result.exit == 124 and result.seconds < 12, result
    told = [line for line in result.stderr.splitlines() if "may not connect to" in line]
    assert "python3" in told[0] and "203.0.114.1:80" in told[0], result
    assert "203.0.114.10:80" in result.stderr, "the others were asked about, too"


def test_what_was_approved_stays_so_when_nobody_is_left(net):
    script = "curl -sS -m 15 --noproxy '*' http://other.test/; until [ -e go ]; do sleep 0.02; done; " \
             "getent hosts other.test && curl -sS -m 15 --noproxy '*' http://other.test/2"
    with asking(net, ["sh", "-c", script], *GOOD) as session:
        with session.watch() as control:
            approve(control, question(control), "session")
        net.identity.file(net.path("go"), "")
        code, out, _ = session.result()
        assert code == 0 and out.count("203.0.113.11") == 2, out


def test_explicit_deny_is_not_asked_about(net):
    policy = net.identity.file(net.home("deny.yaml"),
                               "version: 1\nnetwork: {mode: filtered, deny: [other.test]}\n")
    result = run(net, [*PLAIN, "http://other.test/"], ["--policy", policy])
    assert result.exit == 6 and "may not connect" not in result.stderr, result
