"""Mode filtered: what policy names can be reached by every program, and nothing else."""

import json
import os

import pytest

CURL = ["curl", "-sS", "-m", "10"]
PLAIN = [*CURL, "--noproxy", "*"]  # knows nothing of a proxy
REFUSED = (7, 55, 56)  # what curl says: while it connects, before it has sent something, or after that


def allow(*hosts):
    return ["--allow-network=" + ",".join(hosts)]


def reached(result):
    """What the web server says of the request that reached it."""
    assert result.exit == 0, result
    return json.loads(result.stdout)


# ---- reaching ----


@pytest.mark.works
@pytest.mark.parametrize("url,address", [
    ("http://good.test/", "203.0.113.10"), ("http://both.test/", None),
    ("http://six.test/", "2001:db8:1::10"), ("http://good.test:8080/x", "203.0.113.10")])
@pytest.mark.parametrize("curl", [PLAIN, CURL, [*CURL, "-x", "socks5h://127.0.0.1:61080"],
                                  [*CURL, "-x", "socks5://127.0.0.1:61080"], [*CURL, "-p"]],
                         ids=["led", "http", "socks5h", "socks5", "connect"])
def test_reaches_what_is_allowed(net, curl, url, address):
    host = url.split("/")[2].split(":")[0]
    said = reached(net.run([*curl, url], options=allow(host)))
    assert address in (None, said["address"])
    assert said["host"] == url.split("/")[2]


@pytest.mark.works
@pytest.mark.parametrize("flag", ["-4", "-6"])
def test_both_families_inside(net, flag):
    """Which family the program prefers does not matter: the way outside is the relay's."""
    assert reached(net.run([*PLAIN, flag, "http://good.test/"], options=allow("good.test")))


@pytest.mark.works
def test_server_that_speaks_first(net):
    script = ("import socket; s = socket.create_connection(('good.test', 22)); "
              "print(s.recv(100)); s.sendall(b'x' * 1000); s.shutdown(socket.SHUT_WR); "
              "print(s.recv(100))")
    result = net.run(["python3", "-c", script], options=allow("good.test:22"))
    assert result.stdout == "b'HELLO\\n'\nb'heard 1000\\n'\n", result


@pytest.mark.works
def test_much_data_both_ways(net):
    script = ("import hashlib, os, socket, threading\n"
              "s = socket.create_connection(('good.test', 7))\n"
              "data = os.urandom(8_000_000)\n"
              "def send():\n  s.sendall(data); s.shutdown(socket.SHUT_WR)\n"
              "threading.Thread(target=send).start()\n"
              "got = b''\n"
              "while part := s.recv(1 << 20): got += part\n"
              "print(got == data)\n")
    result = net.run(["python3", "-c", script], options=allow("good.test"))
    assert result.stdout == "True\n", result


@pytest.mark.works
@pytest.mark.parametrize("size", [7, 2_000_000], ids=["little", "much"])
def test_nothing_is_left_behind_urgent_data(net, size):
    """A read stops at the mark of urgent data although more is there, and splice never gets past
    it; the byte itself is not passed on. Nothing else comes from this client that would make the
    relay look again."""
    script = ("import socket, threading\n"
              f"data = b'x' * {size}\n"
              "def send(s):\n"
              "  s.sendall(data); s.send(b'!', socket.MSG_OOB); s.sendall(data)\n"
              "for _ in range(10):\n"
              "  s = socket.create_connection(('203.0.113.10', 7), timeout=20)\n"
              "  threading.Thread(target=send, args=(s,)).start()\n"
              "  got = b''\n"
              "  while len(got) < 2 * len(data): got += s.recv(1 << 20)\n"
              "  assert got == data + data, len(got)\n"
              "print('all')\n")
    result = net.run(["python3", "-c", script], options=allow("203.0.113.10"))
    assert result.stdout == "all\n", result


@pytest.mark.works
def test_literal_address_by_rule(net):
    assert reached(net.run([*PLAIN, "http://203.0.113.11/"], options=allow("203.0.113.0/24:80")))
    refused = net.run([*PLAIN, "http://203.0.113.11:8080/"], options=allow("203.0.113.0/24:80"))
    assert refused.exit in REFUSED, refused


@pytest.mark.works
def test_listed_private_address(net):
    assert reached(net.run([*PLAIN, "http://private.test/"],
                           options=allow("private.test", "10.1.2.3:80")))


def test_search_domain(net):
    said = reached(net.run([*PLAIN, "http://db/"], options=allow("db.corp.test")))
    assert said["address"] == "203.0.113.10"


def test_completed_names_are_not_told_of(net):
    """Programs try a name that is denied again with the search domain behind it, and git its own. Who
    reads what was denied wants to know of the name itself."""
    script = "getent hosts evil.test; getent hosts $(hostname); getent hosts evil.other.test"
    result = net.run(["sh", "-c", script], options=[*allow("good.test"), "--json"])
    told = json.loads(result.stdout)
    assert {denial["host"] for denial in told["denials"]} == {"evil.test", "evil.other.test"}, told
    # control: it was asked for, and only as completed is it nothing of its own
    assert told["network"]["questions"] > told["network"]["denied_questions"] > 0
    result = net.run(["getent", "hosts", "evil.test.corp.test"], options=[*allow("good.test"), "--json"])
    assert [item["host"] for item in json.loads(result.stdout)["denials"]] == ["evil.test.corp.test"]


# ---- names ----


def resolve(name):
    return ["python3", "-c", "import socket, sys\n"
            "try: print(sorted({a[4][0] for a in socket.getaddrinfo(sys.argv[1], 80)}))\n"
            "except socket.gaierror as e: print(e.args[0])", name]


@pytest.mark.works
def test_answers_are_synthetic_and_go_back(net):
    result = net.run(["sh", "-c", "getent ahostsv4 good.test | head -1; getent hosts 198.18.0.1"],
                     options=allow("good.test"))
    first, second = result.stdout.splitlines()
    assert first.split()[0] == "198.18.0.1" and second.split() == ["198.18.0.1", "good.test"]


def test_name_that_does_not_exist(net):
    result = net.run(resolve("missing.good.test"), options=allow("*.good.test"))
    assert result.stdout.strip() == "-2", result  # EAI_NONAME
    assert net.internet.was_asked("missing.good.test")


@pytest.mark.works
def test_questions_by_tcp_to_any_server(net):
    dig = ["dig", "+short", "+tries=1", "+time=3"]
    for more in (["+tcp"], ["@8.8.8.8"], ["+tcp", "@192.0.2.77"], ["@2001:4860:4860::8888"],
                 ["+noedns"], ["@127.0.0.1"]):
        result = net.run([*dig, *more, "good.test"], options=allow("good.test"))
        assert result.stdout.strip() == "198.18.0.1", (more, result)


ASK = ["dig", "+tries=1", "+time=3", "+noednsnegotiation"]


@pytest.mark.parametrize("question,status,answer", [
    (["+edns=1", "good.test"], "BADVERS", None), (["+edns=255", "+tcp", "evil.test"], "BADVERS", None),
    (["+edns=0", "good.test"], "NOERROR", "198.18.0.1"), (["ANY", "good.test"], "NOERROR", "198.18.0.1"),
    (["+tcp", "AXFR", "good.test"], "Transfer failed", None), (["TYPE253", "good.test"], "NOTIMP", None),
    (["MX", "good.test"], "NOERROR", None), (["CH", "TXT", "version.bind"], "REFUSED", None),
    (["+opcode=update", "good.test"], "NOTIMP", None), (["NS", "."], "NOERROR", None),
    (["empty.test"], "NOERROR", None), (["missing.test"], "NXDOMAIN", None),
    (["-x", "127.0.0.1"], "NOERROR", "localhost."), (["-x", "::1"], "NOERROR", "localhost."),
    (["A", "1.0.0.127.in-addr.arpa"], "NOERROR", None),
    (["PTR", "01.0.0.127.in-addr.arpa"], "NXDOMAIN", None)], ids=lambda value: "-".join(value)
    if isinstance(value, list) else "")
def test_unusual_questions(net, question, status, answer):
    """RFC 1035, 6891, 8482: what is not known is said to be so, and what is there is not denied."""
    result = net.run([*ASK, *question], options=allow("good.test", "empty.test", "missing.test"))
    lines = result.stdout.splitlines()
    answers = [line.split()[-1] for line in lines if line and not line.startswith(";")]
    assert f"status: {status}," in result.stdout or f"; {status}." in lines, result
    assert answers == ([answer] if answer else []), result
    assert status != "BADVERS" or "EDNS: version: 0" in result.stdout, result


def test_denied_name_is_explained_to_dig(net):
    result = net.run(["dig", "evil.test"], options=allow("good.test"))
    assert "NXDOMAIN" in result.stdout and "denied by the sandbox" in result.stdout, result


def test_names_beyond_ascii(net):
    """On the wire there are only xn-- names; what looks alike is another name."""
    rules = allow("xn--bcher-kva.test", "paypal.test")
    for name in ("b\u00fccher.test", "B\u00dcCHER.test", "xn--bcher-kva.test", "XN--BCHER-KVA.test"):
        for curl in (PLAIN, CURL):
            said = reached(net.run([*curl, f"http://{name}/"], options=rules))
            assert said["address"] == "203.0.113.10", (name, said)
    for name in ("p\u0430ypal.test", "xn--pypal-4ve.test"):
        assert net.run([*PLAIN, f"http://{name}/"], options=rules).exit == 6
        assert net.run([*CURL, "-f", f"http://{name}/"], options=rules).exit == 22
        assert reached(net.plain([*PLAIN, f"http://{name}/"])), "control: it exists"


# ---- settings inside ----


@pytest.mark.works
def test_variables(net):
    result = net.run(["sh", "-c", "env | grep -i proxy | sort"], options=allow("good.test"))
    http, socks = "http://127.0.0.1:61080", "socks5://127.0.0.1:61080"
    none = "localhost,127.0.0.1,::1"
    expected = {"HTTP_PROXY": http, "HTTPS_PROXY": http, "ALL_PROXY": socks, "NO_PROXY": none}
    expected |= {name.lower(): value for name, value in expected.items()}
    assert dict(line.split("=", 1) for line in result.stdout.splitlines()) == expected


@pytest.mark.works
def test_own_loopback_stays(net):
    script = ("import socket; s = socket.create_server(('127.0.0.1', 8080)); "
              "c = socket.create_connection(('localhost', 8080)); print(s.accept()[1][0])")
    result = net.run(["python3", "-c", script], options=allow("good.test"))
    assert result.stdout.strip() == "127.0.0.1", result


# ---- what is told ----


def test_result_and_audit(net):
    script = "curl -sS --noproxy '*' http://good.test/; curl -s http://evil.test/; true"
    result = net.run(["sh", "-c", script], options=[*allow("good.test"), "--json"])
    told = json.loads(result.stdout)
    hosts = {(host["host"], host["port"], host["decision"]): host
             for host in told["network"]["hosts"]}
    good = hosts["good.test", 80, "allow"]
    assert good["connections"] == 1 and good["sent"] > 10 and good["received"] > 10
    assert good["reason"] == "network.allow: good.test"
    assert [(denial["host"], denial["port"]) for denial in told["denials"]] == [("evil.test", 80)]
    with open(os.path.join(net.identity.state, "sandbox/audit", told["sid"] + ".jsonl")) as log:
        events = [json.loads(line) for line in log]
    decisions = {(event["host"], event["decision"]) for event in events if event.get("event") == "net"}
    assert decisions == {("good.test", "allow"), ("evil.test", "deny")}, events


def test_requests_by_proxy_are_counted(net):
    script = ("curl -s -o answer -H \"X: $(head -c 30000 /dev/zero | tr '\\0' a)\" "
              "http://good.test/ && wc -c <answer")
    told = json.loads(net.run(["sh", "-c", script], options=[*allow("good.test"), "--json"]).stdout)
    assert int(told["stdout"]) > 10, told
    line = told["network"]["hosts"][0]
    assert 30000 < line["sent"] < 31000 and told["network"]["sent"] == line["sent"], line


def test_many_refusals_are_counted(net):
    """The first of them are told one by one, the others together."""
    script = ("import socket, time\n"
              "for _ in range(60):\n"
              "  s = socket.create_connection(('127.0.0.1', 61080))\n"
              "  s.sendall(b'CONNECT evil.test:80 HTTP/1.1\\r\\n\\r\\n'); s.recv(1000)\n"
              "time.sleep(2.5)\n")
    told = json.loads(net.run(["python3", "-c", script],
                              options=[*allow("good.test"), "--json"]).stdout)
    assert told["network"]["denied"] == 60, "control"
    with open(os.path.join(net.identity.state, "sandbox/audit", told["sid"] + ".jsonl")) as log:
        events = [json.loads(line) for line in log]
    counts = [event["count"] for event in events if event.get("event") == "net"]
    assert sum(counts) == 60 and len(counts) < 45, counts


def test_summary_names_what_was_denied(net):
    result = net.run(["curl", "-s", "http://evil.test/"], options=[*allow("good.test"), "--summary"])
    assert "0 connections, 1 denied" in result.stderr
    assert "denied: evil.test:80 (not in network.allow)" in result.stderr, result
    result = net.run([*PLAIN, "http://evil.test/"], options=[*allow("good.test"), "--summary"])
    assert "0 connections, 0 denied, 1 name denied" in result.stderr
    assert "denied: evil.test (not in network.allow: the name was not looked up)" in result.stderr


def test_refusal_by_proxy_says_how(net):
    result = net.run([*CURL, "-w", "%{http_code}", "http://evil.test/"], options=allow("good.test"))
    assert "evil.test:80 is not allowed: not in network.allow" in result.stdout
    assert "--allow-network=evil.test:80," in result.stdout
    assert result.stdout.endswith("403")
    result = net.run([*CURL, "http://[2001:db8:1::99]/"], options=[*allow("good.test"), "--summary"])
    assert "--allow-network=[2001:db8:1::99]:80," in result.stdout
    assert "denied: [2001:db8:1::99]:80 (not in" in result.stderr
    result = net.run([*CURL, "http://ec2v6.test/"], options=allow("ec2v6.test"))
    assert "to allow it, list [fd00:ec2::254]:80 itself" in result.stdout, result
    policy = net.identity.file(net.home("deny.yaml"),
                               "version: 1\nnetwork: {mode: full, deny: ['*.evil.test']}\n")
    result = net.run([*CURL, "http://a.evil.test/"], options=["--policy", policy])
    assert result.stdout.splitlines() == [
        "sandbox: a.evil.test:80 is not allowed: network.deny: *.evil.test",
        "To allow it, take that rule out of the policy."]


@pytest.mark.parametrize("rule,problem", [
    ("*good.test", "whole first label"), ("good.test:0", "wrong port"),
    ("good.test:65536", "wrong port"), ("10.0.0.1/8", "network's first address"),
    ("b\u00fccher.test:80", "write xn--bcher-kva.test:80"), ("p\u0430ypal.test", "xn--"),
    ("a_b.test", "not a host name")])
def test_wrong_rule_is_an_error(net, rule, problem):
    result = net.run(["true"], options=allow(rule))
    assert result.exit == 125 and problem in result.stderr, result
