"""An internet for the network tests: two network namespaces with a wire between them. In one the
test process itself (and so the monitor) lives from now on, in the other the servers. Nothing leaves
them: the machine's own network is not in either."""

import ctypes
import os
import shutil
import subprocess
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CLONE_NEWNET = 0x40000000

NAME_SERVER = "203.0.113.53"
# Documentation addresses stand for the internet; the guard must not know them.
ZONE = {
    "good.test": ["203.0.113.10"],
    "www.good.test": ["203.0.113.10"],
    "other.test": ["203.0.113.11"],
    "both.test": ["203.0.113.10", "2001:db8:1::10"],
    "six.test": ["2001:db8:1::10"],
    "secret.test": ["203.0.113.11"],
    "private.test": ["10.1.2.3"],
    "loopback.test": ["127.0.0.1"],
    "loopback6.test": ["::1"],
    "mapped.test": ["::ffff:127.0.0.1"],
    "metadata.test": ["169.254.169.254"],
    "metadata.google.internal": ["169.254.169.254"],
    "ecs.test": ["169.254.170.2"],
    "ec2v6.test": ["fd00:ec2::254"],
    "alibaba.test": ["100.100.100.200"],
    "gateway.test": ["192.168.65.7"],
    "own.test": ["203.0.113.1"],
    "carrier.test": ["64:ff9b::203.0.113.10"],
    "own-carrier.test": ["64:ff9b::203.0.113.1"],
    "mixed.test": ["10.1.2.3", "203.0.113.10"],
    "rebind.test": ["203.0.113.10"],  # so do others that begin like this; see servers.py
    "rebind-driver.test": ["203.0.113.10"],
    "alias.test": ["=middle.test"],  # another name for it
    "middle.test": ["=db.corp.test"],
    "circle.test": ["=circle.test"],
    "inward.test": ["=private.test"],
    "late.test": ["203.0.113.10"],  # see servers.py
    "dead.test": ["203.0.113.99"],
    "empty.test": [],  # it exists, with other data than addresses
    "db.corp.test": ["203.0.113.10"],
    "xn--bcher-kva.test": ["203.0.113.10"],  # bücher
    "xn--pypal-4ve.test": ["203.0.113.10"],  # paypal with a Cyrillic letter
    "programs.test": ["203.0.113.20"],  # see services.py
    "denied-programs.test": ["203.0.113.20"],
}
SERVERS = ["203.0.113.10/24", "203.0.113.11/24", NAME_SERVER + "/24", "10.1.2.3/24",
           "169.254.169.254/16", "169.254.170.2/16", "100.100.100.200/24", "192.168.65.7/24",
           "fd00:ec2::254/64", "2001:db8:1::10/64", "64:ff9b::203.0.113.10/96",
           "64:ff9b::203.0.113.1/96", "2002:cb00:710a::10/48"]
OURS = ["203.0.113.1/24", "10.1.2.1/24", "169.254.0.1/16", "100.100.100.1/24", "192.168.65.1/24",
        "fd00:ec2::1/64", "2001:db8:1::1/64"]
CARRIERS = ["64:ff9b::/96", "2002:cb00:710a::/48"]  # somebody translates them


def run(*argv):
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def unshare_network():
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


class Internet:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="sandbox-net-")
        self.certificate = self._make_certificate()
        self.queries = []
        unshare_network()
        self.servers = subprocess.Popen(
            ["/usr/bin/python3", os.path.join(HERE, "servers.py"), "--device", "wire1",
             "--names", NAME_SERVER, "--zone", __import__("json").dumps(ZONE),
             "--certificate", self.certificate,
             *[part for address in SERVERS for part in ("--address", address)]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=unshare_network)
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "wire0", "type", "veth", "peer", "name", "wire1")
        run("ip", "link", "set", "wire1", "netns", str(self.servers.pid))
        for address in OURS:
            run("ip", "address", "add", address, "dev", "wire0",
                *(["nodad"] if ":" in address else []))
        run("ip", "link", "set", "wire0", "up")
        for network in CARRIERS:
            run("ip", "route", "add", network, "dev", "wire0")
        self._use_name_server()
        assert self.servers.stdout.readline() == "ready\n"
        threading.Thread(target=self._listen, daemon=True).start()

    def _make_certificate(self):
        path = os.path.join(self.folder, "certificate.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                        "/CN=good.test", "-addext", "subjectAltName=DNS:good.test,DNS:other.test",
                        "-keyout", path, "-out", path + ".crt"], check=True, capture_output=True)
        with open(path, "a") as both, open(path + ".crt") as public:
            both.write(public.read())
        return path

    def _use_name_server(self):
        """In our own mount namespace; see harness.leave_host_namespaces."""
        self.resolver = os.path.join(self.folder, "resolv.conf")
        with open(self.resolver, "w") as out:
            out.write(f"nameserver {NAME_SERVER}\nsearch corp.test\n")
        run("mount", "--bind", self.resolver, "/etc/resolv.conf")

    def _listen(self):
        for line in self.servers.stdout:
            self.queries.append(line.split()[1])

    def was_asked(self, name):
        time.sleep(0.05)  # the name server's line may still be on its way
        return any(query == name or query.endswith("." + name) for query in self.queries)

    def close(self):
        self.servers.stdin.close()
        self.servers.wait(5)
        subprocess.run(["umount", "/etc/resolv.conf"], check=False)
        shutil.rmtree(self.folder)
