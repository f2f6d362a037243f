"""Published ports: the host's loopback reaches a server inside, and nothing else does."""

import contextlib
import os
import signal
import socket
import subprocess
import time

import pytest

import harness
import sessions

SERVER = """
import socket, sys
family = socket.AF_INET6 if sys.argv[2] == '6' else socket.AF_INET
listener = socket.create_server(('::1' if sys.argv[2] == '6' else '127.0.0.1', int(sys.argv[1])),
                                family=family)
while True:
    client, _ = listener.accept()
    data = b''
    while part := client.recv(65536):
        data += part
    client.sendall(b'%d bytes' % len(data))
    client.close()
"""


SERVER_COMMAND = f'/usr/bin/python3 -c "{SERVER}" 8000 4'


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def serving(box, publish, port, family="4"):
    process = box.start(["/usr/bin/python3", "-c", SERVER, str(port), family],
                        options=["--publish", publish], stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        end(box, process)


def end(box, process):
    """In good order, or, after a kill, by the next start."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    sessions.end_group(process)
    if process.returncode == -signal.SIGKILL:
        assert box.run(["true"]).exit == 0


def talk(address, port, data=b""):
    """What a server inside answers; None while nobody does."""
    try:
        with socket.create_connection((address, port), timeout=5) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            said = b""
            while part := client.recv(65536):
                said += part
            return said.decode() or None
    except OSError:
        return None


@pytest.mark.parametrize("family", ["4", "6"])
def test_a_server_inside_is_reached(box, family):
    port = free_port()
    with serving(box, f"{port}:8000", 8000, family):
        assert sessions.eventually(lambda: talk("127.0.0.1", port, b"x")) == "1 bytes"
        large = b"y" * 5_000_000
        assert talk("127.0.0.1", port, large) == f"{len(large)} bytes"
        for _ in range(50):
            assert talk("127.0.0.1", port, b"abc") == "3 bytes"
    assert sessions.eventually(lambda: talk("127.0.0.1", port) is None), "still open after the end"


@pytest.mark.works
def test_low_ports_can_be_published(box):
    """Inside, nobody has a right to ports below 1024, and nobody needs one."""
    port = free_port()
    with serving(box, f"{port}:80", 80):
        assert sessions.eventually(lambda: talk("127.0.0.1", port, b"x")) == "1 bytes"


@pytest.mark.works
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_development_server_is_reached_by_name(box, name):
    """As a browser does it: by `localhost`, which is two addresses, several requests on a connection."""
    port = free_port()
    box.identity.file(box.path("index.html"), "<p>from inside</p>\n")
    process = box.start(["/usr/bin/python3", "-m", "http.server", "--protocol", "HTTP/1.1", "--bind",
                         "127.0.0.1", "8000"], options=["--publish", f"{port}:8000"],
                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL)
    try:
        url = f"http://{name}:{port}/"
        result = box.plain(["curl", "-sS", "--noproxy", "*", "--retry", "50", "--retry-delay", "0",
                            "--retry-all-errors", "--retry-max-time", "15", url, url + "index.html"])
        assert result.stdout == "<p>from inside</p>\n" * 2, result
    finally:
        end(box, process)


def test_without_it_nothing_is_reached(box):
    """The control: the same server, the same port, not published."""
    port = free_port()
    process = box.start(["/usr/bin/python3", "-c", SERVER, str(port), "4"],
                        stdin=subprocess.DEVNULL)
    try:
        assert not sessions.eventually(lambda: talk("127.0.0.1", port, b"x"), 1)
    finally:
        end(box, process)


def test_other_interfaces_are_refused_unless_asked(box):
    """127.0.0.2 stands for another interface: it is another address of the host."""
    port, wide = free_port(), free_port()
    with serving(box, f"{port}:8000", 8000):
        assert sessions.eventually(lambda: talk("127.0.0.1", port, b"x"))
        assert talk("127.0.0.2", port, b"x") is None
    with serving(box, f"0.0.0.0:{wide}:8000", 8000):
        assert sessions.eventually(lambda: talk("127.0.0.2", wide, b"x")) == "1 bytes"


def test_a_port_that_is_taken_is_an_error(box):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        result = box.run(["true"], options=["--publish", f"{listener.getsockname()[1]}:80"])
    assert result.exit == 125 and "in use" in result.stderr and "fix:" in result.stderr, result


@pytest.mark.parametrize("value", ["0:80", "80:65536", "x:80", "80:80:80", "1.2.3:80:80", "",
                                   "80:80 ", "[::1:80:80"])
def test_what_is_no_port_is_an_error(box, value):
    result = box.run(["true"], options=["--publish", value])
    assert result.exit == 125 and "fix:" in result.stderr, result


def test_the_ports_go_with_the_monitor(box):
    port = free_port()
    with serving(box, f"{port}:8000", 8000) as process:
        assert sessions.eventually(lambda: talk("127.0.0.1", port, b"x"))
        os.kill(process.pid, signal.SIGKILL)
        assert sessions.eventually(lambda: talk("127.0.0.1", port) is None)


def carrier_of(process):
    """The pid of the process that carries."""
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as listed:
        return int(next(pid for pid in listed.read().split()
                        if open(f"/proc/{pid}/comm").read() == "sandbox-publish\n"))


@pytest.mark.parametrize("killed", [False, True])
def test_the_end_of_the_carrier_is_told(box, killed):
    port = free_port()
    script = f"{SERVER_COMMAND} & until [ -e go ]; do sleep 0.02; done; kill $!"
    process = box.start(["sh", "-c", script], options=["--publish", f"{port}:8000"],
                        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert sessions.eventually(lambda: talk("127.0.0.1", port, b"x")) == "1 bytes"
    if killed:
        os.kill(carrier_of(process), signal.SIGKILL)
        assert sessions.eventually(lambda: talk("127.0.0.1", port) is None)
    box.identity.file(box.path("go"), "")
    said = process.communicate(timeout=20)[1]
    lines = box.plain([box.world.command, "audit", "--event", "net.publish"]).stdout.splitlines()
    assert ("published ports has ended" in said) == killed, said
    assert len(lines) == killed, lines


# ---- hostile servers and clients ----

# On 8000 an echo, on 8001 nobody who ever accepts, on 8002 a byte first and then silence.
ODD_SERVERS = """
import socket, threading
def echo(client):
    while part := client.recv(65536): client.sendall(part)
    client.close()
def serve(port, handle):
    listener = socket.create_server(("127.0.0.1", port), backlog=200)
    def loop():
        while True: threading.Thread(target=handle, args=(listener.accept()[0],), daemon=True).start()
    threading.Thread(target=loop, daemon=True).start()
held = []
deaf = socket.create_server(("127.0.0.1", 8001), backlog=0)
serve(8002, lambda client: (client.sendall(b"x" * 100), held.append(client)))
serve(8000, echo)
threading.Event().wait()
"""


@contextlib.contextmanager
def odd_servers(box, before=()):
    """Their ports on the host, and the process that carries."""
    ports = [free_port() for _ in range(3)]
    options = [word for i, port in enumerate(ports) for word in ("--publish", f"{port}:{8000 + i}")]
    process = box.popen([*before, *box.wrap(["/usr/bin/python3", "-c", ODD_SERVERS], options)],
                        stdin=subprocess.DEVNULL)
    try:
        assert sessions.eventually(lambda: talk("127.0.0.1", ports[0], b"x") == "x")
        yield ports, carrier_of(process)
    finally:
        end(box, process)


def processor_ticks(pid):
    with open(f"/proc/{pid}/stat") as status:
        return sum(map(int, status.read().rsplit(")", 1)[1].split()[11:13]))


def test_a_server_that_never_accepts_holds_nobody_up(box):
    with odd_servers(box) as (ports, _), contextlib.ExitStack() as stack:
        speaking = stack.enter_context(socket.create_connection(("127.0.0.1", ports[0]), 20))
        for i in range(30):
            stack.enter_context(socket.create_connection(("127.0.0.1", ports[1]), 5))
            speaking.sendall(b"%02d" % i)
            assert speaking.recv(100) == b"%02d" % i
        assert talk("127.0.0.1", ports[0], b"another") == "another"


@pytest.mark.parametrize("identity", harness.SOME, indirect=True)
def test_clients_that_left_a_deaf_server_make_room(box):
    with odd_servers(box, ["prlimit", "--nofile=300:300"]) as (ports, _):
        for _ in range(150):
            with contextlib.suppress(ConnectionError), \
                    socket.create_connection(("127.0.0.1", ports[1]), 5):
                pass
        assert sessions.eventually(lambda: talk("127.0.0.1", ports[0], b"room") == "room", 15)


def test_who_waits_for_nothing_takes_no_time(box):
    """A client that has said all, hears something, and is gone without reading it, while the server is
    silent: there is nothing to do, and nothing is done."""
    with odd_servers(box) as (ports, carrier):
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", ports[2]), 5) as client:
                client.shutdown(socket.SHUT_WR)
                assert client.recv(1) == b"x"
        before = processor_ticks(carrier)
        time.sleep(0.5)
        assert processor_ticks(carrier) - before < 20, "of 50 that half a second has"
        assert talk("127.0.0.1", ports[0], b"still") == "still"


def test_more_clients_than_descriptors(box):
    """Those beyond are refused, the others served, and when they have gone there is room again."""
    with odd_servers(box, ["prlimit", "--nofile=300:300"]) as (ports, _):
        for _ in range(2):
            served = 0
            with contextlib.ExitStack() as stack:
                for _ in range(150):
                    with contextlib.suppress(ConnectionError):
                        client = socket.create_connection(("127.0.0.1", ports[0]), 10)
                        stack.enter_context(client)
                        client.sendall(b"x")
                        served += client.recv(1) == b"x"
            assert 50 < served < 100, served
            assert sessions.eventually(lambda: talk("127.0.0.1", ports[0], b"again") == "again")
