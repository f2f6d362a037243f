#!/usr/bin/python3
"""The internet of the network tests: name server, web, echo and TLS servers, in a network namespace
of their own. Started by world.py, which moves one end of a veth pair here. Prints "ready" when all
of them listen, then one line for every question that reaches the name server: `query NAME TYPE`.
Ends when its standard input does."""

import argparse
import http.server
import ipaddress
import json
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import threading
import time

BIG = 20_000_000
LATE_SECONDS = 2.2  # after the relay looks at resolv.conf again, before it asks again


def run(*argv):
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def configure(device, addresses):
    while subprocess.run(["ip", "link", "show", device], capture_output=True,
                         check=False).returncode != 0:
        time.sleep(0.01)
    run("ip", "link", "set", "lo", "up")
    for address in addresses:
        run("ip", "address", "add", address, "dev", device, *(["nodad"] if ":" in address else []))
    run("ip", "link", "set", device, "up")


# ---- names ----


def parse_question(message):
    labels, at = [], 12
    while message[at]:
        labels.append(message[at + 1:at + 1 + message[at]].decode("latin-1"))
        at += message[at] + 1
    kind = struct.unpack("!H", message[at + 1:at + 3])[0]
    return ".".join(labels).lower(), kind, message[12:at + 5]


def is_late(name):
    """Such a name's answer takes its time: 1.late.test, 2.late.test …"""
    return name.endswith(".late.test")


class Names:
    def __init__(self, zone):
        self.zone = zone
        self.rebound = set()

    def answer(self, message):
        name, kind, question = parse_question(message)
        print("query", name, kind, flush=True)
        if name.startswith("silent."):
            return None
        addresses = self.zone.get("late.test" if is_late(name) else name)
        if name.startswith("rebind"):  # a good address first, then one inside
            addresses = ["127.0.0.1"] if name in self.rebound else addresses
            if kind == 1:
                self.rebound.add(name)
        if name.endswith(".flood.test"):  # 7.flood.test: an address for each number
            addresses = [str(ipaddress.ip_address("11.0.0.0") + int(name.split(".")[0]))]
        records = b""
        count = 0
        owner = b"\xc0\x0c"
        while addresses and addresses[0].startswith("=") and count < 8:
            target = addresses[0][1:]
            packed = b"".join(bytes([len(part)]) + part.encode() for part in target.split(".")) + b"\0"
            records += owner + struct.pack("!HHIH", 5, 1, 1, len(packed)) + packed
            count += 1
            owner, addresses = packed, self.zone.get(target)
        for address in addresses or ():
            if address.startswith("="):
                continue
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            if kind != (28 if family == socket.AF_INET6 else 1):
                continue
            packed = socket.inet_pton(family, address)
            records += owner + struct.pack("!HHIH", kind, 1, 1, len(packed)) + packed
            count += 1
        code = 3 if addresses is None else 0
        return message[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, count, 0, 0) + question + records


def serve_names(address, zone):
    names = Names(zone)
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind((address, 53))

    def loop():
        while True:
            message, client = listener.recvfrom(4096)
            answer = names.answer(message)
            if answer and is_late(parse_question(message)[0]):
                threading.Timer(LATE_SECONDS, listener.sendto, (answer, client)).start()
            elif answer:
                listener.sendto(answer, client)

    threading.Thread(target=loop, daemon=True).start()


# ---- web ----


# The beginning of an answer, and the end of the connection; /stuck leaves it open.
ODD_HEADS = {
    "/half": b"HTTP/1.1 200 OK\r\nContent-Le",
    "/half-hints": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 20",
    "/line-feeds": b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
    "/stuck": b"HTTP/1.1 200 OK\r\nContent-Le",
}


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, body, code=200, headers=()):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        where = self.connection.getsockname()
        if self.path == "/big":
            self.reply(b"x" * BIG)
        elif self.path == "/socket":  # as a WebSocket begins; then everything comes back
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.end_headers()
            self.close_connection = True
            while part := self.connection.recv(65536):
                self.connection.sendall(part)
        elif self.path == "/continue":  # never comes to an answer
            for _ in range(BIG // 1000):
                self.wfile.write(b"HTTP/1.1 100 Continue\r\nX-Padding: %s\r\n\r\n" % (b"x" * 5000))
        elif self.path in ODD_HEADS:
            self.wfile.write(ODD_HEADS[self.path])
            self.wfile.flush()
            time.sleep(60 if self.path == "/stuck" else 0)
            self.close_connection = True
        elif self.path == "/hints":  # two heads and a body at once
            self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n"
                             b"Content-Length: 5\r\n\r\nhints")
        elif self.path.startswith("/redirect/"):
            self.reply(b"", 301, [("Location", "http://" + self.path[len("/redirect/"):] + "/")])
        elif self.path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in (b"one ", b"two ", b"three"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.reply(json.dumps({"address": where[0].replace("::ffff:", ""), "port": where[1],
                                   "host": self.headers["Host"], "path": self.path,
                                   "peer": self.client_address[1]}).encode() + b"\n")

    do_HEAD = do_GET

    def do_POST(self):
        length = self.headers.get("Content-Length")
        if length is not None:
            size = len(self.rfile.read(int(length)))
        else:
            size = 0
            while True:
                chunk = int(self.rfile.readline(), 16)
                size += len(self.rfile.read(chunk))
                self.rfile.readline()
                if chunk == 0:
                    break
        self.reply(f"got {size}\n".encode())

    def log_message(self, *ignored):
        pass


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    request_queue_size = 1024
    daemon_threads = True

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "servers", self.server_address[1]


def serve_web(port, certificate=None, curve=None):
    server = Server(("::", port), Web)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        if curve:
            context.set_ecdh_curve(curve)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


# ---- other protocols ----


def serve_connections(port, handle):
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True,
                                    backlog=1024)

    def loop():
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=handle, args=(connection,), daemon=True).start()

    threading.Thread(target=loop, daemon=True).start()


def greet_first(connection):
    """Speaks first, as ssh and mail do, then says back what it hears until the other side ends."""
    with connection:
        connection.sendall(b"HELLO\n")
        heard = b""
        while part := connection.recv(65536):
            heard += part
        connection.sendall(b"heard %d\n" % len(heard))


def never_read(connection):
    with connection:
        time.sleep(60)


def echo(connection):
    with connection:
        while part := connection.recv(65536):
            connection.sendall(part)


def serve_datagrams(port):
    listener = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("::", port))

    def loop():
        while True:
            message, client = listener.recvfrom(4096)
            listener.sendto(b"echo " + message, client)

    threading.Thread(target=loop, daemon=True).start()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--address", action="append", required=True)
    parser.add_argument("--names", required=True)
    parser.add_argument("--zone", type=json.loads, required=True)
    parser.add_argument("--certificate", required=True)
    given = parser.parse_args()
    configure(given.device, given.address)
    serve_names(given.names, given.zone)
    serve_web(80)
    serve_web(8080)
    serve_web(443, given.certificate)
    serve_web(444, given.certificate, "secp521r1")  # few offer it: it asks for another hello
    serve_connections(22, greet_first)
    serve_connections(7, echo)
    serve_connections(9, never_read)
    serve_datagrams(7)
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
