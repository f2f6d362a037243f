"""podman and docker for the tests: storage, daemon and image of their own, nothing of the machine's.

No registry is needed: the image is a static busybox and a few files, imported from a tar stream.
It has the name of the default image, so that `sandbox backends` finds it without any option.
"""

import ctypes
import glob
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time

import harness
from engines import Engine, not_in_a_guest

IMAGE = "ubuntu:22.04"
SMALL = "sandbox-small:1"  # the same files under another name, for --image
BUSYBOX = "/bin/busybox"
APPLETS = ("sh", "cat", "ls", "id", "env", "touch", "mkdir", "mv", "rm", "rmdir", "chmod", "ln", "cp",
           "sleep", "echo", "date", "test", "true", "false", "seq", "head", "tail", "dd", "wc", "nc",
           "ps", "kill", "mount", "stat", "setsid", "grep", "sed", "printf", "tty", "stty", "hostname",
           "readlink", "find", "su", "which", "pwd")
SCRIPTS = {
    # For `container.user: create`, what a usual image has by these names; busybox has only su.
    "bin/groupadd": '#!/bin/sh\necho "$5:x:$4:" >> /etc/group\n',
    "bin/useradd": '#!/bin/sh\necho "$9:x:$3:$5::$7:/bin/sh" >> /etc/passwd\n',
}


def image_tar():
    """The image as bytes: what `import` reads."""
    if not os.path.exists(BUSYBOX):
        raise harness.Unavailable("no static busybox for an image (fix: apt install busybox-static)")
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777), ("var/tmp", 0o1777),
                           ("run", 0o755), ("home", 0o755), ("proc", 0o755), ("sys", 0o755),
                           ("dev", 0o755)):
            add(tar, name, mode=mode, kind=tarfile.DIRTYPE)
        with open(BUSYBOX, "rb") as program:
            add(tar, "bin/busybox", program.read(), 0o755)
        for name in APPLETS:
            add(tar, f"bin/{name}", kind=tarfile.SYMTYPE, target="busybox")
        for name, text in SCRIPTS.items():
            add(tar, name, text.encode(), 0o755)
        add(tar, "etc/passwd", b"root:x:0:0::/root:/bin/sh\n")
        add(tar, "etc/group", b"root:x:0:\n")
        add(tar, "of-the-image", b"of the image\n")
    return made.getvalue()


def add(tar, name, data=b"", mode=0o644, kind=tarfile.REGTYPE, target=""):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.type, entry.linkname = len(data), mode, kind, target
    tar.addfile(entry, io.BytesIO(data))


def need(program, package):
    if not shutil.which(program):
        raise harness.Unavailable(f"no {program} here (fix: apt install {package})")


class Container(Engine):
    sees_host = False
    listed = "root"  # the identity for the list of behaviours; test_containers.py has both

    def is_slow(self, identity):
        return bool(os.environ.get("SANDBOX_SANITIZED"))

    def left_out(self, identity):
        if identity.name != self.listed:
            return f"with {self.name} the list runs as {self.listed}; see test_containers.py"

    def run_tool(self, identity, *words, data=None, check=True):
        result = subprocess.run([self.name, *words], input=data, capture_output=True, timeout=120,
                                cwd=identity.home, env={**identity.environment(), **self.environment},
                                check=False, **identity.credentials())
        if check and result.returncode:
            raise harness.Unavailable(f"{self.name} {words[0]}: {harness.text(result.stderr)[-300:]}")
        return harness.text(result.stdout)

    def load_image(self, identity):
        for name in (IMAGE, SMALL):
            self.run_tool(identity, "import", "-", name, data=image_tar())

    def left(self, identity):
        """Names of our containers that exist, running or not."""
        return self.run_tool(identity, "ps", "--all", "--filter", "label=sandbox.session",
                             "--format", "{{.Names}}").split()


    def network(self):
        """A network namespace to be in when a container is given a network: nothing of it is the
        machine's own, and one address stands for the internet."""
        raise NotImplementedError


INTERNET = "203.0.113.1"


class Namespace:
    """A network namespace, that of a process or a new one; `with` it, a thread and what it starts are
    in it."""

    NETWORK = 0x40000000  # CLONE_NEWNET

    def __init__(self, pid=None):
        self.libc = ctypes.CDLL(None, use_errno=True)
        if pid:
            self.inside = self._open(f"/proc/{pid}/ns/net")
        else:
            outside = self._open("/proc/thread-self/ns/net")
            self._check(self.libc.unshare(self.NETWORK))
            self.inside = self._open("/proc/thread-self/ns/net")
            self._check(self.libc.setns(outside, self.NETWORK))
            os.close(outside)
        with self:
            for words in (["link", "set", "lo", "up"], ["address", "add", INTERNET, "dev", "lo"]):
                subprocess.run(["ip", *words], check=True, capture_output=True)

    @staticmethod
    def _open(path):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @staticmethod
    def _check(result):
        if result != 0:
            raise OSError(ctypes.get_errno(), "network namespace")

    def __enter__(self):
        self.outside = self._open("/proc/thread-self/ns/net")
        self._check(self.libc.setns(self.inside, self.NETWORK))
        return self

    def __exit__(self, *_):
        self._check(self.libc.setns(self.outside, self.NETWORK))
        os.close(self.outside)

    def close(self):
        os.close(self.inside)


class Podman(Container):
    listed = "user"

    def __init__(self):
        super().__init__("podman")
        self.base, self.users, self.environment, self.namespace = None, [], {}, None

    def network(self):
        if not self.namespace:
            self.namespace = Namespace()
        return self.namespace

    def prepare(self, world, identity):
        not_in_a_guest()
        need("podman", "podman")
        need("runc", "runc")
        if identity.name == "user":
            need("newuidmap", "uidmap")
        self._configure(world)
        self.users.append(identity)
        self.load_image(identity)
        return []

    def _configure(self, world):
        """runc and cgroupfs, for machines with cgroup v1 or without systemd."""
        if self.base:
            return
        self.base = os.path.join(world.base, "podman")
        os.mkdir(self.base)
        os.chmod(self.base, 0o1777)
        containers, storage = (os.path.join(self.base, name)
                               for name in ("containers.conf", "storage.conf"))
        with open(containers, "w") as out:
            out.write('[containers]\nlog_driver = "k8s-file"\n'
                      f'[network]\nnetwork_config_dir = "{self.base}/networks"\n'
                      '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\n'
                      'events_logger = "none"\n')
        self._describe_network()
        with open(storage, "w") as out:
            out.write(f'[storage]\ndriver = "overlay"\ngraphroot = "{self.base}/root-graph"\n'
                      f'runroot = "{self.base}/root-run"\n'
                      f'rootless_storage_path = "{self.base}/user-graph"\n')
        self.environment = {"CONTAINERS_CONF": containers, "CONTAINERS_STORAGE_CONF": storage}

    def _describe_network(self):
        """The usual bridge of root's containers, with its leases in our folder."""
        folder = os.path.join(self.base, "networks")
        os.mkdir(folder)
        with open(os.path.join(folder, "cni.lock"), "w") as lock:  # of both identities
            os.chmod(lock.name, 0o666)
        addresses = {"type": "host-local", "dataDir": f"{self.base}/leases",
                     "ranges": [[{"subnet": "10.88.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}
        bridge = {"type": "bridge", "bridge": "cni-podman0", "isGateway": True, "ipam": addresses}
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        with open(os.path.join(folder, "podman.conflist"), "w") as out:
            json.dump({"cniVersion": "0.4.0", "name": "podman", "plugins": [bridge, ports]}, out)

    def close(self):
        if self.namespace:
            self.namespace.close()
        for identity in self.users:
            self.run_tool(identity, "rm", "--all", "--force", "--time", "0", check=False)
            if identity.name == "user":
                # Files in the storage belong to subordinate ids; and its pause process goes.
                self.run_tool(identity, "unshare", "rm", "-rf", f"{self.base}/user-graph", check=False)
                self.run_tool(identity, "system", "migrate", check=False)
        if self.base:
            for path in harness.mounts_below(self.base):
                subprocess.run(["umount", "--lazy", path], capture_output=True, check=False)


class Docker(Container):
    def __init__(self):
        super().__init__("docker")
        self.daemon, self.base, self.environment, self.namespace = None, None, {}, None
        self.group = f"sandbox-test-docker-{os.getpid()}"  # it removes containers' groups, not this

    def prepare(self, world, identity):
        not_in_a_guest()
        need("docker", "docker.io")
        need("dockerd", "docker.io")
        if not world.root:
            raise harness.Unavailable("only root can start a docker daemon")
        if not self.daemon:
            self._start(world)
            self.load_image(identity)
        return []

    def _start(self, world):
        self.base = os.path.join(world.base, "docker")
        os.mkdir(self.base)
        # Not the test's path: a socket's name has room for a hundred letters.
        sock = os.path.join(self.base, "s")
        # In a network namespace of its own: it makes bridges and changes settings. No rules for
        # packets: what a published port needs, its own proxy does.
        words = ["unshare", "--net", "dockerd", "--data-root", f"{self.base}/data",
                 "--exec-root", f"{self.base}/exec", "--pidfile", f"{self.base}/pid",
                 "-H", f"unix://{sock}", "--iptables=false", "--ip6tables=false", "--bip", "10.89.0.1/24",
                 "--storage-driver", "overlay2", "--exec-opt", "native.cgroupdriver=cgroupfs",
                 "--cgroup-parent", f"/{self.group}"]
        self.log = open(os.path.join(self.base, "log"), "wb")
        self.daemon = subprocess.Popen(words, stdout=self.log, stderr=self.log,
                                       stdin=subprocess.DEVNULL, start_new_session=True)
        # Not the planted one, which is no JSON.
        self.environment = {"DOCKER_HOST": f"unix://{sock}",
                            "DOCKER_CONFIG": os.path.join(self.base, "config")}
        end = time.monotonic() + 30
        while not self._answers():
            if time.monotonic() > end or self.daemon.poll() is not None:
                self.close()
                raise harness.Unavailable(f"dockerd does not start: {self._last_words()}")
            time.sleep(0.05)
        os.chmod(sock, 0o666)

    def network(self):
        if not self.namespace:
            self.namespace = Namespace(self.daemon.pid)
        return self.namespace

    def _answers(self):
        return subprocess.run(["docker", "version"], env={**os.environ, **self.environment},
                              capture_output=True, check=False).returncode == 0

    def _last_words(self):
        with open(os.path.join(self.base, "log"), "rb") as log:
            return harness.text(log.read())[-300:]

    def close(self):
        if not self.daemon:
            return
        self.daemon.send_signal(signal.SIGTERM)
        try:
            self.daemon.wait(20)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()
        self.log.close()
        self.daemon = None
        for path in glob.glob(f"/sys/fs/cgroup/{self.group}") + glob.glob(
                f"/sys/fs/cgroup/*/{self.group}"):
            for folder, _, _ in os.walk(path, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    pass  # not empty: somebody is still in it, which the tests notice
        for path in harness.mounts_below(self.base):
            subprocess.run(["umount", "--lazy", path], capture_output=True, check=False)
