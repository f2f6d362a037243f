"""network.driver: a plain IP stack in place of the relay, with the same rules. Every
refusal has a control: the same request outside, or of something that is allowed."""

import ast
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

import harness

for folder in ("escape", "cli"):
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", folder))

from test_network import FAMILIES  # noqa: E402
from test_require import NO_LANDLOCK  # noqa: E402
from test_escapes import host_server, more_own  # noqa: E402, F401 (fixtures)
from test_faults import children, name_of  # noqa: E402
from test_filtered import PLAIN  # noqa: E402
from world import CARRIERS, OURS  # noqa: E402

# veth is root's; test_veth_is_for_root shows what a plain user is told.
PAIRS = [("slirp4netns", "root"), ("slirp4netns", "user"), ("pasta", "root"), ("pasta", "user"),
         ("veth", "root")]
FORWARD = "/proc/sys/net/ipv4/ip_forward"
FORWARD_SIX = "/proc/sys/net/ipv6/conf/all/forwarding"
NO_SIX = "/proc/sys/net/ipv6/conf/%s/disable_ipv6"


def write(path, text):
    with open(path, "w") as setting:
        setting.write(text)


def state_of_host():
    """What a driver may have left in our network namespace."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    rules = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True)
    with open(FORWARD) as forward:
        return [line.split(":")[1] for line in links.splitlines()], rules.stdout, forward.read()


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request):
    return request.param


@pytest.fixture
def identity(pair, world):
    return world.identity(pair[1])


def only(*pairs):
    """Where not every driver has something of its own to show."""
    return pytest.mark.parametrize("pair", pairs, ids="-".join, indirect=True)


def restore_six():
    """Addresses that the kernel has dropped."""
    for address in OURS:
        if ":" in address:
            subprocess.run(["ip", "address", "replace", address, "dev", "wire0", "nodad"], check=True)
    for network in CARRIERS:
        subprocess.run(["ip", "route", "replace", network, "dev", "wire0"], check=True)
    routes()


def routes():
    for family, gateway in (("-4", "203.0.113.10"), ("-6", "2001:db8:1::10")):
        subprocess.run(["ip", family, "route", "replace", "default", "via", gateway], check=True)


@pytest.fixture
def routed(net):
    """The host has a way out, as pasta wants it, and forwards, as veth does: in a network namespace
    of the tests' own."""
    write(FORWARD, "1")
    write(FORWARD_SIX, "1")
    routes()
    before = state_of_host()
    yield net
    patience = harness.Patience(3)
    while (after := state_of_host()) != before and not patience.is_over():
        time.sleep(0.01)
    for family in ("-4", "-6"):
        subprocess.run(["ip", family, "route", "del", "default"], check=True)
    assert after == before, "left on the host"


@pytest.fixture
def driver(pair):
    if pair[0] != "veth" and not os.access("/dev/net/tun", os.W_OK):
        pytest.skip("this machine has no /dev/net/tun")
    return pair[0]


def by(driver, *hosts):
    return ["--network-driver", driver,
            "--allow-network=" + ",".join(hosts) if hosts else "--allow-network"]


def attempts(net, driver, urls, hosts=(), policy=None):
    """What curl says to each of them in one session: 0 is reached, 7 is refused."""
    script = "for url; do curl -s -m 5 -o /dev/null $url; echo $? $url; done"
    options = by(driver, *hosts)
    if policy:
        options += ["--policy", net.identity.file(net.home("more.yaml"), policy)]
    result = net.run(["sh", "-c", script, "sh", *urls], options=options)
    said = dict(reversed(line.split()) for line in result.stdout.splitlines())
    assert set(said) == set(urls), result
    return said


# ---- reaching ----


@pytest.mark.works
def test_full(routed, driver):
    """Names, addresses, streams and datagrams."""
    script = ("import socket, urllib.request\n"
              "print(urllib.request.urlopen('http://good.test:8080/x', timeout=5).read().decode())\n"
              "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)\n"
              "s.sendto(b'hello', ('203.0.113.10', 7)); print(s.recv(100))")
    result = routed.run(["python3", "-c", script], options=by(driver))
    *web, datagram = result.stdout.splitlines()
    assert json.loads("".join(web))["address"] == "203.0.113.10", result
    assert datagram == "b'echo hello'", result


@pytest.mark.works
def test_six(routed, driver):
    url, port = "http://[2001:db8:1::10]/", "http://[2001:db8:1::10]:8080/"
    assert set(attempts(routed, driver, [url, port]).values()) == {"0"}
    said = attempts(routed, driver, [url, port], ["[2001:db8:1::10]:80", "2001:db8:1::11"])
    assert [said[url], said[port]] == ["0", "7"]


@pytest.mark.escape
def test_six_names(routed, driver):
    """What a name opens is opened for the family that was asked for, and guarded alike."""
    urls = ["http://six.test/", "http://six.test:8080/", "http://[2001:db8:1::10]/",
            "http://[fd00:ec2::254]/", "http://[::ffff:203.0.113.11]/"]
    for url in urls[2:]:
        assert routed.plain([*PLAIN, url]).exit == 0, f"control: {url}"
    before = attempts(routed, driver, [urls[2]], ["six.test:80"])
    assert before == {urls[2]: "7"}
    said = attempts(routed, driver, urls, ["six.test:80"])
    assert [said[url] for url in urls] == ["0", "7", "0", "7", "7"], said


@only(("veth", "root"), ("slirp4netns", "user"), ("pasta", "root"))
def test_no_six(routed, driver):
    """A machine without it has IPv4, and says so to a rule that wants more."""
    good, six = "http://203.0.113.10/", "http://[2001:db8:1::10]/"
    if driver == "veth":
        write(FORWARD_SIX, "0")
        try:
            refused(routed, by(driver, "2001:db8:1::10"), "network.allow: 2001:db8:1::10",
                    "forwards no IPv6", "net.ipv6.conf.all.forwarding=1")
            said = attempts(routed, driver, [good, six])
            assert said[good] == "0" and said[six] == "7"
        finally:
            write(FORWARD_SIX, "1")
    for setting in ("default", "all"):
        write(NO_SIX % setting, "1")
        try:
            refused(routed, by(driver, "203.0.113.10", "2001:db8::/32"),
                    "network.allow: 2001:db8::/32", driver, "IPv6 is switched off",
                    f"net.ipv6.conf.{setting}.disable_ipv6=0")
            said = attempts(routed, driver, [good, six])
            assert said[good] == "0" and (said[six] in ("7", "28") or driver == "pasta")
        finally:
            write(NO_SIX % setting, "0")
            restore_six()


@pytest.mark.escape
def test_filtered(routed, driver):
    good, port, other, private = ("http://203.0.113.10:80/", "http://203.0.113.10:8080/",
                                  "http://203.0.113.11:80/", "http://10.1.2.3:80/")
    for url in (good, port, other, private):
        assert routed.plain([*PLAIN, url]).exit == 0, f"control: {url}"
    urls = [good, port, other, private]
    said = attempts(routed, driver, urls, ["203.0.113.10:80-90", "10.1.2.0/24"])
    assert [said[url] for url in urls] == ["0", "7", "7", "0"]


@pytest.mark.escape
@only(("slirp4netns", "user"))
def test_every_host_of_a_port(routed, driver):
    """It is no list: the guard holds."""
    urls = ["http://203.0.113.10:80/", "http://203.0.113.10:8080/", "http://10.1.2.3:80/"]
    said = attempts(routed, driver, urls, ["*:8080"])
    assert [said[url] for url in urls] == ["7", "0", "7"]
    said = attempts(routed, driver, urls, ["*"])
    assert [said[url] for url in urls] == ["0", "0", "7"]


@pytest.mark.escape
@only(("slirp4netns", "user"), ("pasta", "root"))
def test_deny_comes_first(routed, driver):
    urls = ["http://203.0.113.10:80/", "http://203.0.113.10:8080/", "http://203.0.113.11:80/"]
    policy = "version: 1\nnetwork: {deny: ['203.0.113.11', '*:8080']}\n"
    said = attempts(routed, driver, urls, policy=policy)
    assert [said[url] for url in urls] == ["0", "7", "7"]
    said = attempts(routed, driver, urls, ["203.0.113.0/24"], policy)
    assert [said[url] for url in urls] == ["0", "7", "7"]


@pytest.mark.escape
def test_guard(routed, driver, host_server):  # noqa: F811
    """E98, E99: what the relay's guard keeps closed, in mode full."""
    guarded = ["http://10.1.2.3/", "http://169.254.169.254/", f"http://203.0.113.1:{host_server}/",
               f"http://10.1.2.1:{host_server}/", f"http://127.0.0.1:{host_server}/",
               f"http://[2001:db8:1::1]:{host_server}/"]
    for url in guarded:
        assert routed.plain([*PLAIN, url]).exit == 0, f"control: {url}"
    more = ["http://10.0.2.2/", f"http://10.0.2.2:{host_server}/", "http://203.0.113.10/"]
    said = attempts(routed, driver, [*guarded, *more])
    assert said.pop("http://203.0.113.10/") == "0"
    assert set(said.values()) == {"7"}, said
    # Listing lifts the guard (see test_filtered); the host's loopback is nowhere inside.
    assert routed.plain([*PLAIN, f"http://[::1]:{host_server}/"]).exit == 0, "control"
    ways = [f"http://10.0.2.2:{host_server}/", f"http://[fd00::2]:{host_server}/"]
    urls = [guarded[4], f"http://[::1]:{host_server}/", *(ways if driver == "slirp4netns" else [])]
    said = attempts(routed, driver, urls,
                    ["127.0.0.1", "::1", "203.0.113.1", "10.0.0.0/8", "fd00::/8"])
    assert "0" not in said.values(), said


@pytest.mark.escape
def test_own_addresses_on_no_interface(routed, driver, host_server, more_own):  # noqa: F811
    """And those that IPv6 addresses carry, where somebody translates them."""
    urls = [f"http://{host}:{host_server}/" for host in more_own]
    urls.append("http://[64:ff9b::203.0.113.1]/")
    for url in urls:
        assert routed.plain([*PLAIN, url]).exit == 0, f"control: {url}"
    good = ["http://203.0.113.10/", "http://[64:ff9b::203.0.113.10]/"]
    said = attempts(routed, driver, [*urls, *good])
    assert [said.pop(url) for url in good] == ["0"] * len(good), "control"
    assert set(said.values()) == {"7"}, said


@pytest.mark.escape
@pytest.mark.parametrize("kind,more", [("address", "203.0.113.50/32 dev wire0"),
                                       ("route", "local 203.0.113.48/28 dev lo")])
def test_guard_follows_the_host(routed, driver, host_server, shell, kind, more):  # noqa: F811
    """An address that the host gets while the session runs is its own, too."""
    url = f"http://203.0.113.50:{host_server}/"
    assert shell.run(GOOD) == ["0"]
    subprocess.run(["ip", kind, "add", *more.split()], check=True)
    try:
        assert routed.plain([*PLAIN, url]).exit == 0, "control"
        for _ in range(50):  # it takes a moment; without new rules it would stay open
            if shell.run(f"curl -s -m 3 -o /dev/null {url}") != ["0"]:
                break
            time.sleep(0.1)
        assert shell.run(f"curl -s -m 3 -o /dev/null {url}") == ["7"]
        assert shell.run(GOOD) == ["0"], "and the rest goes on"
    finally:
        subprocess.run(["ip", kind, "del", *more.split()], check=True)


@pytest.mark.escape
def test_no_questions_leave_in_filtered(routed, driver):
    name = f"leak-{driver}-{routed.identity.name}.good.test"
    routed.plain(["getent", "ahosts", "control-" + name])
    assert any(routed.internet.was_asked("control-" + name) for _ in range(100)), "control"
    routed.run(["getent", "ahosts", name], options=by(driver, "203.0.113.10"))
    assert not routed.internet.was_asked(name)


@pytest.mark.escape
def test_workload_cannot_change_it(routed, driver):
    """E100 and its like: no rule, route, address or interface of its own; no host socket."""
    name = f"\0sandbox-driver-{os.getpid()}-{driver}-{routed.identity.name}"
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(name)
        abstract.listen()
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})"
        assert routed.plain(["python3", "-c", connect]).exit == 0, "control"
        script = f"""
for try in "nft flush ruleset" "nft delete table inet sandbox" "ip link delete dev tap0" \
    "ip link set lo down" "ip address add 203.0.113.77/24 dev lo" "ip route flush table main" \
    "unshare -n true" "unshare -Urn true" "ip tuntap add dev tap9 mode tap"; do
  $try >/dev/null 2>&1 && echo "OPEN $try"
done
python3 -c '{connect}' 2>/dev/null && echo "OPEN abstract"
curl -s -m 5 -o /dev/null http://203.0.113.11/ ; echo $?
curl -s -m 5 -o /dev/null http://203.0.113.10/ ; echo $?
"""
        result = routed.run(["sh", "-c", script], options=by(driver, "203.0.113.10"))
    assert result.stdout == "7\n0\n", result


@pytest.mark.escape
@only(("slirp4netns", "user"), ("pasta", "root"), ("veth", "root"))
def test_families(routed, driver):
    """E114-E116: a plain IP stack is no reason for other sockets. The rows, and what each does outside,
    are those of tests/escape/test_network.py."""
    script = """
attempt=$1; shift
for arguments; do printf '%s: ' "$arguments"; $attempt $arguments; done
"""
    rows = [" ".join(row.argv) for row in FAMILIES]
    result = routed.run(["sh", "-c", script, "sh", routed.attempt, *rows], options=by(driver))
    lines = result.stdout.splitlines()
    assert len(lines) == len(rows), result
    assert not [line for line in lines if ": DENIED" not in line and ": UNSUPPORTED" not in line], \
        result


SOURCE_ROUTES = """
import socket, struct
def send(family, level, option, value, to):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        try:
            if value:
                s.setsockopt(level, option, value)
            s.sendto(b'x', (to, 7)); return 'sent'
        except PermissionError:
            return 'refused'
first, last = (socket.inet_pton(socket.AF_INET6, '2001:db8:1::' + end) for end in ('10', '11'))
segments = bytes([0, 4, 4, 1, 1, 0, 0, 0]) + last + first
print(send(socket.AF_INET6, 0, 0, b'', '2001:db8:1::10'),
      send(socket.AF_INET6, socket.IPPROTO_IPV6, socket.IPV6_RTHDR, segments, '2001:db8:1::11'))
for kind in (131, 137): # loose, strict
    route = bytes([kind, 7, 4]) + socket.inet_aton('203.0.113.10') + b'\\0'
    print(send(socket.AF_INET, socket.IPPROTO_IP, socket.IP_OPTIONS, route, '203.0.113.11'))
"""


@pytest.mark.escape
@only(("pasta", "user"), ("slirp4netns", "root"), ("veth", "root"))
def test_source_routes(routed, driver):
    """A packet for an allowed host that asks to be passed on to another."""
    outside = routed.plain(["python3", "-c", SOURCE_ROUTES]).stdout.split()
    assert outside[:2] == ["sent", "sent"], "control"
    if routed.identity.name == "root":
        assert outside[2:] == ["sent", "sent"], "control"
    result = routed.run(["python3", "-c", SOURCE_ROUTES],
                        options=by(driver, "203.0.113.10", "2001:db8:1::10"))
    assert result.stdout.split() == ["sent", "refused", "refused", "refused"], result


@pytest.mark.works
def test_published_port(routed, driver):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = ("import socket; s = socket.create_server(('0.0.0.0', 8000)); print('up', flush=True)\n"
              "c, _ = s.accept(); c.sendall(b'inside')")
    process = routed.start(["python3", "-c", script], stdout=subprocess.PIPE, text=True,
                           options=[*by(driver), "--publish", f"{port}:8000"])
    try:
        assert process.stdout.readline() == "up\n"
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            assert connection.recv(10) == b"inside"
        assert process.wait(10) == 0
    finally:
        process.stdout.close()


# ---- names ----


@pytest.mark.works
def test_names(routed, driver):
    """Streams and datagrams; what was not asked for, and what may not be, stays closed."""
    never = f"never-{driver}-{routed.identity.name}.test"
    script = f"never = '{never}'\n" + """
import socket, urllib.request
def reach(address, port=80):
    try:
        socket.create_connection((address, port), 5).close(); return 'reached'
    except OSError as error:
        return type(error).__name__
print(reach('203.0.113.10'))
print(urllib.request.urlopen('http://good.test/', timeout=5).status)
print(reach('203.0.113.10'), reach('good.test', 8080), reach('203.0.113.11'), reach(never))
print(reach('www.good.test', 8080))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)
s.sendto(b'x' * 3000, ('www.good.test', 7)); print(len(s.recv(9000)))
print(socket.gethostbyname('db'))
"""
    result = routed.run(["python3", "-c", script],
                        options=[*by(driver, "good.test:80", "*.good.test", "db.corp.test"),
                                 "--json"])
    said = json.loads(result.stdout)
    assert said["stdout"].split() == [
        "ConnectionRefusedError", "200", "reached", "ConnectionRefusedError",
        "ConnectionRefusedError", "gaierror", "reached", "3005", "203.0.113.10"], said
    hosts = {(line["host"], line["port"]): line for line in said["network"]["hosts"]}
    assert hosts["good.test", 0]["decision"] == "allow"
    assert hosts["good.test", 0]["reason"] == "network.allow: good.test:80"
    assert hosts[never, 0]["decision"] == "deny"
    assert hosts["203.0.113.11", 80]["decision"] == "deny"
    assert ("www.good.test", 0) in hosts and said["network"]["denied_questions"] > 0
    assert routed.internet.was_asked("www.good.test") and not routed.internet.was_asked(never)


@pytest.mark.works
@only(("pasta", "root"), ("slirp4netns", "user"), ("veth", "root"))
def test_names_in_dynamic_mode(routed, driver):
    """Nothing is asked about; programs are led to the resolver all the same."""
    gate = "fuse" if driver == "veth" and os.path.exists("/dev/fuse") else "notify"
    script = ("cat /etc/resolv.conf; for host in good.test other.test 203.0.113.11; do "
              "curl -s -m 5 -o /dev/null $host; echo $?; done")
    result = routed.run(["sh", "-c", script],
                        options=[*by(driver, "good.test"), "--mode", "dynamic", "--gate", gate])
    assert "nameserver 127.0.0.53\n" in result.stdout, result
    assert result.stdout.splitlines()[-3:] == ["0", "6", "7"], result


def found(net, driver, names, hosts, policy=None, more=()):
    """What a session finds for each name, by the C library."""
    script = ("import socket, sys\n"
              "for name in sys.argv[1:]:\n"
              "    try:\n"
              "        all = {item[4][0] for item in socket.getaddrinfo(name, 80)}\n"
              "    except OSError:\n"
              "        all = []\n"
              "    print(name, *sorted(all))\n")
    options = [*by(driver, *hosts), *more]
    if policy:
        options += ["--policy", net.identity.file(net.home("more.yaml"), policy)]
    result = net.run(["python3", "-c", script, *names], options=options)
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[0] for line in lines] == names, result
    return {line[0]: line[1:] for line in lines}, result


INWARD = ["loopback.test", "loopback6.test", "mapped.test", "metadata.test", "private.test",
          "own.test", "ec2v6.test", "gateway.test", "inward.test"]


@pytest.mark.escape
@only(("slirp4netns", "user"), ("pasta", "root"), ("veth", "root"))
def test_names_that_lead_inside(routed, driver):
    names = [*INWARD, "mixed.test", "circle.test", "alias.test", "middle.test", "evilgood.test"]
    answers, result = found(routed, driver, names,
                            [*INWARD, "mixed.test", "alias.test", "circle.test", "*.good.test"],
                            more=["--summary"])
    assert answers.pop("mixed.test") == ["203.0.113.10"] == answers.pop("alias.test")
    assert not any(answers.values()), answers
    assert "denied: private.test (leads to 10.1.2.3: a private network" in result.stderr, result
    listed_too, _ = found(routed, driver, ["private.test"], ["private.test", "10.1.2.3:80"])
    assert listed_too == {"private.test": ["10.1.2.3"]}
    said = attempts(routed, driver, ["http://private.test/", "http://private.test:8080/"],
                    ["private.test", "10.1.2.3:80"])
    assert list(said.values()) == ["0", "7"], said


@pytest.mark.escape
@only(("slirp4netns", "user"), ("pasta", "user"), ("veth", "root"))
def test_denied_names(routed, driver):
    urls = ["http://good.test/", "http://www.good.test/", "http://good.test:8080/",
            "http://db.corp.test/"]
    policy = "version: 1\nnetwork: {deny: [www.good.test, '*.corp.test', 'good.test:8000-9000']}\n"
    said = attempts(routed, driver, urls, ["good.test", "*.good.test", "*.test"], policy)
    assert [said[url] for url in urls] == ["0", "6", "7", "6"], said
    policy = "version: 1\nnetwork: {deny: [www.good.test]}\n"  # mode full
    said = attempts(routed, driver, urls, policy=policy)
    assert [said[url] for url in urls] == ["0", "6", "0", "0"], said


ASK = """
import socket, struct
def ask(server, name, by=socket.SOCK_DGRAM, kind=1):
    packed = b''.join(bytes([len(part)]) + part.encode() for part in name.split('.')) + b'\\0'
    query = struct.pack('!HHHHHH', 7, 0x100, 1, 0, 0, 0) + packed + struct.pack('!HH', kind, 1)
    s = socket.socket(socket.AF_INET, by); s.settimeout(5)
    try:
        s.connect((server, 53))
        s.sendall(query if by == socket.SOCK_DGRAM else struct.pack('!H', len(query)) + query)
        answer = s.recv(2000)
        if by == socket.SOCK_STREAM:
            while len(answer) < 2 or len(answer) < 2 + struct.unpack('!H', answer[:2])[0]:
                answer += s.recv(2000)
            answer = answer[2:]
        return 'code %d answers %d' % (answer[3] & 15, answer[7])
    except OSError as error:
        return type(error).__name__
"""


@pytest.mark.escape
@only(("slirp4netns", "root"), ("pasta", "user"), ("veth", "root"))
def test_other_resolvers(routed, driver):
    """A program may ask whom it wants, but only we answer, in the other modes, too."""
    script = ASK + """
for server in ('203.0.113.53', '127.0.0.53', '10.0.2.3'):
    print(ask(server, 'good.test'), ask(server, 'other.test'), sep=', ')
print(ask('127.0.0.53', 'good.test', socket.SOCK_STREAM))
print(ask('203.0.113.53', 'good.test', socket.SOCK_STREAM))
print(ask('127.0.0.53', 'good.test', kind=16))
"""
    outside = routed.plain(["python3", "-c", ASK + "print(ask('203.0.113.53', 'other.test'))"])
    assert outside.stdout == "code 0 answers 1\n", "control"
    deny = routed.identity.file(routed.home("deny.yaml"),
                                "version: 1\nnetwork: {deny: [other.test]}\n")
    for options in (by(driver, "good.test"), [*by(driver), "--policy", deny]):
        result = routed.run(["python3", "-c", script], options=options)
        no = "ConnectionRefusedError"
        refused_way = result.stdout.splitlines()[0].split(", ")[0]
        assert refused_way in (no, "PermissionError", "OSError"), result
        assert result.stdout.splitlines() == [
            f"{refused_way}, {refused_way}", "code 0 answers 1, code 3 answers 0",
            f"{refused_way}, {refused_way}", "code 0 answers 1", no, "code 0 answers 0"], result


@only(("pasta", "user"))
def test_many_questions(routed, driver):
    """More than the minder opens at once, of askers who go away in the middle."""
    script = ASK + """
def ask_and_go(name, reset):
    packed = b''.join(bytes([len(part)]) + part.encode() for part in name.split('.')) + b'\\0'
    query = struct.pack('!HHHHHHH', len(packed) + 16, 7, 0x100, 1, 0, 0, 0) + packed
    s = socket.create_connection(('127.0.0.53', 53))
    s.sendall((query + struct.pack('!HH', 1, 1)) * 2)
    if reset:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    return s
held = [ask_and_go(f'{number}.flood.test', number % 3 == 0) for number in range(400)]
for s in held[::2]:
    s.close()
print(ask('127.0.0.53', 'good.test'), ask('127.0.0.53', '1.flood.test', socket.SOCK_STREAM),
      sum(len(s.recv(2)) for s in held[1::2]), sep=', ')
"""
    result = routed.run(["python3", "-c", script], options=by(driver, "*.flood.test", "good.test"))
    assert result.stdout == "code 0 answers 1, code 0 answers 1, 400\n", result
    assert "ended" not in result.stderr, result


@pytest.mark.escape
@only(("slirp4netns", "user"))
def test_rebinding_name(routed, driver):
    script = ("getent ahostsv4 rebind-driver.test | head -1; sleep 3.2; "  # it is remembered for 3 s
              "getent ahostsv4 rebind-driver.test | head -1; echo end")
    result = routed.run(["sh", "-c", script], options=by(driver, "rebind-driver.test"))
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["203.0.113.10", "end"]


def session_net(pid):
    """The session's network namespace, by a process in it."""
    ours = os.readlink("/proc/self/ns/net")
    for below in descendants(pid):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{below}/ns/net") != ours:
                return ["nsenter", f"--net=/proc/{below}/ns/net"]
    raise AssertionError("no process inside")


def descendants(pid):
    for child in children(pid):
        yield child
        yield from descendants(child)


@pytest.mark.escape
@only(("pasta", "user"), ("slirp4netns", "root"), ("veth", "root"))
def test_time_of_a_name(routed, driver):
    """An address is open as long as the answer may be kept; who is connected then goes on."""
    script = """
import socket, sys
s = socket.create_connection(('good.test', 7), 5)
def say(text): print(text, flush=True); sys.stdin.readline()
say('open')
s.sendall(b'x'); say(s.recv(1))
try:
    socket.create_connection(('203.0.113.10', 7), 5); print('reached')
except ConnectionRefusedError:
    print('refused')
say(socket.create_connection(('good.test', 7), 5).getpeername()[0])
"""
    process = routed.start(["python3", "-c", script], options=by(driver, "good.test:7"), text=True,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def read():
        process.stdin.write("\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    try:
        assert process.stdout.readline() == "open\n"
        enter = session_net(process.pid)
        told = subprocess.run([*enter, "nft", "-j", "list", "set", "inet", "sandbox", "named4_0"],
                              capture_output=True, text=True, check=True).stdout
        element = json.loads(told)["nftables"][1]["set"]["elem"][0]["elem"]
        assert element["val"] == "203.0.113.10" and 120 <= element["timeout"] <= 330, told
        subprocess.run([*enter, "nft", "flush", "set", "inet", "sandbox", "named4_0"], check=True)
        assert [read(), read(), read()] == ["b'x'", "refused", "203.0.113.10"]
        process.stdin.close()
        assert process.wait(10) == 0
    finally:
        process.stdout.close()


@pytest.mark.skipif(not os.environ.get("SANDBOX_TEST_LONG"), reason="SANDBOX_TEST_LONG is not set")
@only(("pasta", "user"), ("veth", "root"))
def test_flood_of_names(routed, driver):
    """The sets are bounded: then nothing more is found, and nothing else is open."""
    script = ASK + """
codes = {}
for number in range(4400):
    code = ask('127.0.0.53', '%d.flood.test' % number)
    codes[code] = codes.get(code, 0) + 1
print(codes)
"""
    result = routed.run(["python3", "-c", script], options=by(driver, "*.flood.test"))
    codes = ast.literal_eval(result.stdout)
    assert codes == {"code 0 answers 1": 4096, "code 2 answers 0": 304}, codes


# ---- what is told ----


def test_result_and_audit(routed, driver):
    def result_of(url):
        result = routed.run([*PLAIN, "-o", "/dev/null", url],
                            options=[*by(driver, "203.0.113.10"), "--json"])
        return json.loads(result.stdout)

    assert result_of("http://203.0.113.11/")["network"]["refused"] > 0
    said = result_of("http://203.0.113.10/")
    network = said["network"]
    assert network["driver"] == driver and network["connected"] is True
    assert network["sent"] > 100 and network["received"] > 100, network
    assert network["refused"] == 0, network
    audit = routed.plain([routed.world.command, "audit", "--json", said["sid"]])
    events = [json.loads(line) for line in audit.stdout.splitlines()]
    assert [event["state"] for event in events if event["event"] == "net.driver"] == ["started"]
    assert [event["driver"] for event in events if event["event"] == "net.summary"] == [driver]


def wait_until(happened, seconds=20):
    until = time.monotonic() + seconds
    while not happened() and time.monotonic() < until:
        time.sleep(0.01)
    assert happened()


def listed(network):
    """What was refused."""
    return {(line["host"], line["protocol"], line["port"]): line["packets"]
            for line in network["hosts"] if "packets" in line}


def permitted(network):
    """What was let through."""
    return {(line["host"], line["protocol"], line["port"]): line
            for line in network["hosts"] if line["decision"] == "allow" and "protocol" in line}


SCATTER = """
import socket
def send(address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.sendto(b'x', (address, port))
        except PermissionError:
            pass
"""


def test_refusals_are_listed(routed, driver):
    """Where to, by what, how often, and why; also while the session runs."""
    script = SCATTER + """
import os, subprocess, sys
for _ in range(3):
    send('203.0.113.11', 5353)
for url in ('http://203.0.113.11:8080/', 'http://10.1.2.3/', 'http://203.0.113.10/'):
    subprocess.run(['curl', '-s', '-m', '5', '-o', '/dev/null', url])
subprocess.run(['ping', '-c', '1', '-W', '1', '203.0.113.11'], capture_output=True)
os.mkdir('sent'); sys.stdin.read(1)
"""
    status, writer = os.pipe()
    process = routed.start(["python3", "-c", script], stdin=subprocess.PIPE, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[writer],
                           options=[*by(driver, "203.0.113.10"), "--json", "--summary",
                                    "--status-fd", str(writer)])
    os.close(writer)
    with open(status) as told:
        sid = json.loads(told.readline())["sid"]
        wait_until(lambda: os.path.exists(routed.path("sent")) or process.poll() is not None)
        stats = routed.plain([routed.world.command, "stats", "--json", "--once", sid])
        out, said = process.communicate("x", 20)
    expected = {("203.0.113.11", "udp", 5353): 3, ("203.0.113.11", "tcp", 8080): 1,
                ("10.1.2.3", "tcp", 80): 1}
    assert expected.items() <= listed(json.loads(stats.stdout)["network"]).items(), (stats, said)
    result = json.loads(out)
    network = result["network"]
    assert expected.items() <= listed(network).items(), network
    assert sum(listed(network).values()) + network["unlisted"] == network["refused"], network
    reasons = {line["host"]: line["reason"] for line in network["hosts"]
               if line["decision"] == "deny"}
    assert reasons["203.0.113.11"] == "not in network.allow"
    assert "a private network" in reasons["10.1.2.3"] and "203.0.113.10" not in reasons
    assert "denied: udp 203.0.113.11:5353 (not in network.allow)" in said
    denial = next(one for one in result["denials"] if one["port"] == 5353)
    assert (denial["host"], denial["protocol"], denial["count"]) == ("203.0.113.11", "udp", 3)
    audit = routed.plain([routed.world.command, "audit", "--json", "--event", "net.summary",
                          result["sid"]])
    assert listed(json.loads(audit.stdout)) == listed(network)


def opened(net, sid):
    """The first connection to each, in the audit log."""
    audit = net.plain([net.world.command, "audit", "--json", "--event", "net", sid])
    lines = [json.loads(line) for line in audit.stdout.splitlines()]
    return [line for line in lines if line["event"] == "net" and line["decision"] == "allow"]


@pytest.mark.works
def test_connections_are_listed(routed, driver):
    """Where to, by what, how often, how much, and by which rule; also while the session runs."""
    script = """
import os, socket, subprocess, sys
for url in ('http://good.test:8080/1', 'http://good.test:8080/2', 'http://203.0.113.11/big',
            'http://[2001:db8:1::10]:8080/', 'http://203.0.113.10:9/'):
    subprocess.run(['curl', '-s', '-m', '9', '-o', '/dev/null', url])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)
for _ in range(3):
    s.sendto(b'x' * 1000, ('203.0.113.10', 7)); s.recv(2000)
os.mkdir('sent'); sys.stdin.read(1)
"""
    status, writer = os.pipe()
    hosts = ["good.test:8080", "203.0.113.11", "203.0.113.10:7", "2001:db8:1::/64"]
    process = routed.start(["python3", "-c", script], stdin=subprocess.PIPE, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[writer],
                           options=[*by(driver, *hosts), "--json", "--summary", "--status-fd",
                                    str(writer)])
    os.close(writer)
    with open(status) as told:
        sid = json.loads(told.readline())["sid"]
        wait_until(lambda: os.path.exists(routed.path("sent")) or process.poll() is not None)
        live = routed.plain([routed.world.command, "stats", "--json", "--once", sid])
        people = routed.plain([routed.world.command, "stats", "--once", sid])
        wait_until(lambda: len(opened(routed, sid)) == 4)  # while it runs: it may be killed
        out, said = process.communicate("x", 20)
    result = json.loads(out)
    network = result["network"]
    lines = permitted(network)
    assert {key: line["connections"] for key, line in lines.items()} == {
        ("good.test", "tcp", 8080): 2, ("203.0.113.11", "tcp", 80): 1,
        ("2001:db8:1::10", "tcp", 8080): 1, ("203.0.113.10", "udp", 7): 1}, network
    assert network["connections"] == 5 and network["unlisted_connections"] == 0, network
    good, big = lines["good.test", "tcp", 8080], lines["203.0.113.11", "tcp", 80]
    assert (good["address"], good["names"]) == ("203.0.113.10", ["good.test"])
    assert good["reason"] == "network.allow: good.test:8080"
    assert (big["address"], big["names"]) == ("203.0.113.11", [])
    assert big["reason"] == "network.allow: 203.0.113.11"
    assert 20_000_000 < big["received"] < 25_000_000 and 100 < big["sent"] < 3_000_000, big
    datagrams = lines["203.0.113.10", "udp", 7]
    assert (datagrams["sent"], datagrams["received"]) == (3 * 1028, 3 * 1033), datagrams
    assert datagrams["names"] == ["good.test"], "a name leads there, but a rule lists the address"
    assert ("203.0.113.10", "tcp", 9) in listed(network), "control: what was refused is not among them"
    assert [one["port"] for one in result["denials"]] == [9]
    assert set(permitted(json.loads(live.stdout)["network"])) == set(lines), live
    assert f"{driver} connections 5, sent" in people.stdout, people
    assert f"{driver}: 5 connections, " in said
    audit = routed.plain([routed.world.command, "audit", "--json", "--event", "net.summary",
                          result["sid"]])
    assert permitted(json.loads(audit.stdout)) == lines
    assert {(line["host"], line["protocol"], line["port"]): line["rule"]
            for line in opened(routed, sid)} == {key: line["reason"] for key, line in lines.items()}


@only(("slirp4netns", "user"), ("veth", "root"))
def test_address_of_several_names(routed, driver):
    """Which of them it was is not known, and not said."""
    script = "for host in good.test www.good.test; do curl -s -m 5 -o /dev/null $host; done"
    result = routed.run(["sh", "-c", script],
                        options=[*by(driver, "good.test", "*.good.test"), "--json"])
    (key, line), = permitted(json.loads(result.stdout)["network"]).items()
    assert key == ("203.0.113.10", "tcp", 80) and line["connections"] == 2, line
    assert line["names"] == ["good.test", "www.good.test"], line


@only(("pasta", "user"), ("veth", "root"))
def test_flood_of_connections(routed, driver):
    """What is kept is bounded; all of it is counted."""
    script = SCATTER + """
for number in range(1000):
    send('203.0.113.10', 1000 + number)
"""
    result = routed.run(["python3", "-c", script], options=[*by(driver, "203.0.113.10"), "--json"])
    network = json.loads(result.stdout)["network"]
    assert network["connections"] == 1000 and network["refused"] == 0, network
    assert len(permitted(network)) == 128 and network["unlisted_connections"] == 1000 - 128, network


@only(("pasta", "user"), ("veth", "root"))
def test_flood_of_refusals(routed, driver):
    """What is kept is bounded, and everything is still refused and counted."""
    script = SCATTER + """
for number in range(2000):
    send(f'203.0.113.{11 + number % 200}', 1000 + number)
"""
    result = routed.run(["python3", "-c", script], options=[*by(driver, "203.0.113.10"), "--json"])
    network = json.loads(result.stdout)["network"]
    assert network["refused"] == 2000, network
    assert len(network["hosts"]) == 128 and network["unlisted"] == 2000 - 128, network


@only(("pasta", "user"), ("veth", "root"))
def test_dry_run(routed, driver):
    result = routed.run(["true"], options=[*by(driver), "--dry-run"])
    assert f"network: {driver}\n" in result.stdout + result.stderr, result
    assert state_of_host()


@only(("pasta", "root"), ("pasta", "user"))
def test_doctor_tries_them(routed):
    def states():
        result = routed.plain([routed.world.command, "doctor", "--json"])
        rows = {row["id"]: row for row in json.loads(result.stdout)["rows"]}
        return [rows[name] for name in ("slirp4netns", "pasta", "veth")]

    slirp, pasta, veth = states()
    assert slirp["state"] == pasta["state"] == "ok" and "tried" in slirp["found"], (slirp, pasta)
    assert veth["state"] == ("ok" if routed.identity.name == "root" else "restricted"), veth
    if routed.identity.name == "root":
        return
    for family in ("-4", "-6"):
        subprocess.run(["ip", family, "route", "del", "default"], check=True)
    assert states()[1]["state"] == "restricted", "without a way out pasta does not start"
    routes()


# ---- ends ----


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def minder_of(pid):
    for _ in range(1000):
        with contextlib.suppress(FileNotFoundError):  # one that has ended since it was listed
            found = [child for child in children(pid) if name_of(child) == "sandbox-net"]
            if found and children(found[0]):
                return found[0]
        time.sleep(0.01)
    raise AssertionError("no minder")


@pytest.fixture
def shell(routed, driver):
    """A session that runs lines of shell, one at a time."""
    status, writer = os.pipe()
    process = routed.start(["sh"], options=[*by(driver), "--status-fd", str(writer)],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           pass_fds=[writer], text=True)
    os.close(writer)
    process.status = open(status)

    def run(line):
        process.stdin.write(f"{line}; echo END $?\n")
        process.stdin.flush()
        return process.stdout.readline().split()[-1:]

    process.run = run
    yield process
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.wait(10)
    process.stdout.close()
    process.stderr.close()
    process.status.close()


GOOD = "curl -s -m 3 -o /dev/null http://203.0.113.10/"


@pytest.mark.parametrize("victim", ["program", "minder"])
def test_driver_killed(routed, driver, shell, victim):
    assert shell.run(GOOD) == ["0"]
    minder = minder_of(shell.pid)
    program = children(minder)[0]
    os.kill(minder if victim == "minder" else program, signal.SIGKILL)
    for _ in range(500):
        if not os.path.exists(f"/proc/{minder}"):
            break
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{program}")
    assert shell.run(GOOD)[0] in ("7", "28")
    assert shell.run("true") == ["0"], "the session goes on"
    shell.stdin.close()
    assert shell.wait(10) == 0
    said = shell.stderr.read()
    assert said.count("has ended; nothing can be reached") == 1, said
    told = [json.loads(line) for line in shell.status]
    assert [line["driver"] for line in told if line["event"] == "disconnected"] == [driver], told
    sid = told[0]["sid"]
    audit = routed.plain([routed.world.command, "audit", "--json", "--event", "net.driver", sid])
    states = [json.loads(line)["state"] for line in audit.stdout.splitlines()]
    assert states == ["started", "ended"], audit


@pytest.mark.parametrize("victim", ["resolver", "minder"])
@only(("slirp4netns", "user"), ("pasta", "root"), ("veth", "root"))
def test_resolver_killed(routed, driver, victim):
    """Without it nothing is opened, and what was open is closed."""
    script = ("exec 2>&1; curl -s -m 3 -o /dev/null http://good.test/; echo $?; read line; "
              "for host in good.test 203.0.113.10; do curl -s -m 3 -o /dev/null $host; echo $?; done")
    process = routed.start(["sh", "-c", script], options=by(driver, "good.test"), text=True,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout.readline() == "0\n"
        minder = minder_of(process.pid)
        resolver = next(pid for pid in children(process.pid) if name_of(pid) == "sandbox-relay")
        os.kill(minder if victim == "minder" else resolver, signal.SIGKILL)
        wait_until(lambda: state_of(minder) in "ZX" and state_of(resolver) in "ZX")
        process.stdin.write("\n")
        process.stdin.close()
        assert process.stdout.readline() == "6\n"
        assert process.stdout.readline() in ("7\n", "28\n")
        assert process.wait(10) == 0
        said = process.stderr.read()
        assert said.count("has ended; nothing can be reached") == 1, said
    finally:
        process.stdout.close()
        process.stderr.close()


@pytest.mark.parametrize("when", ["while it starts", "at work", "with names"])
def test_monitor_killed(routed, driver, when):
    hosts = ["good.test"] if when == "with names" else []
    script = "getent hosts good.test; sleep 60"
    process = routed.start(["sh", "-c", script], options=by(driver, *hosts), stdout=subprocess.PIPE)
    if when == "at work":
        minder_of(process.pid)
    elif when == "with names":
        assert process.stdout.readline()
    elif when == "while it starts":
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(5)
    process.stdout.close()
    routed.plain([routed.world.command, "ps"])  # tidies up; what else is left, the fixtures find


# ---- refusals ----


def refused(net, options, *words, env=None):
    marker = net.path("ran")
    result = net.run(["touch", marker], options=options, env=env)
    assert result.exit == 125, result
    for word in words:
        assert word in result.stderr, result
    assert not os.path.exists(marker)


@only(("pasta", "root"), ("slirp4netns", "user"))
def test_names_that_cannot_be_kept(routed, driver):
    policy = routed.identity.file(routed.home("deny.yaml"),
                                  "version: 1\nnetwork: {deny: ['bad.test:25']}\n")
    for hosts in ([], ["*", "good.test"]):
        refused(routed, [*by(driver, *hosts), "--policy", policy], "bad.test:25", "without a port",
                "auto")
    many = [f"good.test:{port}" for port in range(100, 200, 2)]
    refused(routed, by(driver, *many), "ranges of ports", "auto")


@only(("veth", "root"), ("slirp4netns", "user"))
def test_other_bad_values(routed, driver):
    refused(routed, by("nonsense"), "nonsense", "slirp4netns")
    policy = routed.identity.file(routed.home("proxy.yaml"),
                                  "version: 1\nnetwork: {http_proxy: '127.0.0.1:1'}\n")
    refused(routed, [*by(driver), "--policy", policy], "upstream proxy", "auto")
    refused(routed, [*by(driver), "--backend", "bwrap"], "network driver")


@only(("slirp4netns", "root"), ("pasta", "user"))
def test_missing_program(routed, driver):
    """Also where a policy prefers to run without a sandbox rather than not at all."""
    for more in ([], ["--require", "preferred"]):
        refused(routed, [*by(driver), *more], f"needs the program {driver}", "install", "auto",
                env={"PATH": "/nonexistent"})


@only(("slirp4netns", "user"), ("pasta", "root"))
def test_no_device(routed, driver):
    subprocess.run(["mount", "-t", "tmpfs", "none", "/dev/net"], check=True)  # in our namespace
    try:
        refused(routed, by(driver), "/dev/net/tun", "modprobe tun", "auto")
    finally:
        subprocess.run(["umount", "/dev/net"], check=True)


@only(("pasta", "user"))
def test_driver_that_does_not_start(routed, driver):
    """Its own words are the explanation."""
    for family in ("-4", "-6"):
        subprocess.run(["ip", family, "route", "del", "default"], check=True)
    try:
        refused(routed, by(driver), "starting network.driver pasta", "interface", "doctor")
    finally:
        routes()


@only(("pasta", "user"), ("slirp4netns", "user"), ("veth", "root"))
def test_ignored_signals(routed, driver):
    """What whoever started us ignores is not for the driver: pasta would not start."""
    ignore = ["env", "--ignore-signal", "sh", "-c", 'exec "$0" "$@"']
    result = routed.run([*PLAIN, "http://203.0.113.10/"], options=by(driver), before=ignore)
    assert result.exit == 0, result


@only(("slirp4netns", "user"), ("slirp4netns", "root"))
def test_no_landlock(routed, driver):
    """A protection that is not there is said aloud; root's shuts itself in."""
    lacks = routed.identity.name == "user"
    said = routed.run(PLAIN + ["http://203.0.113.10/"], options=by(driver), before=NO_LANDLOCK)
    assert said.exit == 0 and ("no Landlock" in said.stderr) == lacks, said
    with_it = routed.run(["true"], options=by(driver))
    assert "Landlock" not in with_it.stderr, with_it
    doctor = routed.plain([*NO_LANDLOCK, routed.world.command, "doctor", "--json"])
    row = next(row for row in json.loads(doctor.stdout)["rows"] if row["id"] == driver)
    assert row["state"] == ("restricted" if lacks else "ok"), row
    assert ("no Landlock" in row["found"]) == lacks, row


@only(("veth", "root"), ("veth", "user"))
def test_veth_is_for_root(routed):
    if routed.identity.name == "root":
        with open(FORWARD, "w") as forward:
            forward.write("0")
        try:
            refused(routed, by("veth"), "forwards no packets", "net.ipv4.ip_forward=1", "pasta")
        finally:
            with open(FORWARD, "w") as forward:
                forward.write("1")
    else:
        refused(routed, by("veth"), "needs root", "pasta")


@only(("veth", "root"))
def test_veth_lets_nobody_in(routed):
    """Not even the host itself, which has an address on the other end."""
    script = ("import socket, subprocess\n"
              "s = socket.create_server(('::', 8000), family=socket.AF_INET6, dualstack_ipv6=True)\n"
              "print(subprocess.run(['hostname', '-I'], capture_output=True).stdout.decode())\n"
              "for own in ('127.0.0.1', '::1'): socket.create_connection((own, 8000))\n"
              "import sys; sys.stdout.flush(); sys.stdin.read()")
    process = routed.start(["python3", "-c", script], options=by("veth"), stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True)
    try:
        four, six = process.stdout.readline().split()
        assert four.startswith("198.") and six.startswith("fd73:6264:"), (four, six)
        assert process.poll() is None, "control: it can be reached inside"
        for address in (four, six):
            with pytest.raises(TimeoutError):
                socket.create_connection((address, 8000), 0.5)
        process.stdin.close()
        assert process.wait(10) == 0
    finally:
        process.stdout.close()
