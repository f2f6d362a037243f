#!/usr/bin/python3
"""Servers for real programs: git by HTTP, a Python index, an npm registry (one web server), git by
ssh (dropbear), PostgreSQL and redis. Started by test_programs.py in the network namespace and with
an address of the tests' internet; everything they keep is in one folder. Prints "ready" when all of
them answer, ends when its standard input does, and takes them along."""

import argparse
import base64
import ctypes
import hashlib
import http.server
import io
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
import zipfile

WEB, SSH, POSTGRES, REDIS = 8081, 2222, 5432, 6379
NOBODY = pwd.getpwnam("nobody")
PR_SET_PDEATHSIG = 1


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run(*argv, **more):
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, **more)


def start(*argv, **more):
    """A server that says what is wrong on our standard error, and nothing else."""
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            preexec_fn=die_with_parent, **more)


# ---- what can be installed ----


def make_wheel():
    """A package of one line, `tinywheel`."""
    data = io.BytesIO()
    info = "tinywheel-1.0.dist-info"
    files = {"tinywheel.py": "answer = 42\n",
             f"{info}/METADATA": "Metadata-Version: 2.1\nName: tinywheel\nVersion: 1.0\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
                              "Tag: py3-none-any\n"}
    record = "".join(f"{name},sha256={digest(text)},{len(text)}\n" for name, text in files.items())
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(data, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return data.getvalue()


def digest(text):
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def make_tarball():
    """The same for npm, `tinypackage`."""
    data = io.BytesIO()
    files = {"package.json": json.dumps({"name": "tinypackage", "version": "1.0.0",
                                         "main": "index.js"}),
             "index.js": "module.exports = 42;\n"}
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo("package/" + name)
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return data.getvalue()


def registry_entry(host, tarball):
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()
    version = {"name": "tinypackage", "version": "1.0.0", "main": "index.js",
               "dist": {"tarball": f"http://{host}/npm/tinypackage/-/tinypackage-1.0.0.tgz",
                        "integrity": integrity, "shasum": hashlib.sha1(tarball).hexdigest()}}
    return json.dumps({"name": "tinypackage", "dist-tags": {"latest": "1.0.0"},
                       "versions": {"1.0.0": version}}).encode()


WHEEL, TARBALL = make_wheel(), make_tarball()
WHEEL_NAME = "tinywheel-1.0-py3-none-any.whl"
FILES = {
    "/hello": ("text/plain", b"hello from the web\n"),
    "/simple/tinywheel/": ("text/html", f'<a href="/files/{WHEEL_NAME}">{WHEEL_NAME}</a>'.encode()),
    f"/files/{WHEEL_NAME}": ("application/octet-stream", WHEEL),
    "/npm/tinypackage/-/tinypackage-1.0.0.tgz": ("application/octet-stream", TARBALL),
}


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, code, kind, body):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path.startswith("/git/"):
            self.git()
        elif self.path == "/npm/tinypackage":
            self.reply(200, "application/json", registry_entry(self.headers["Host"], TARBALL))
        else:
            kind, body = FILES.get(self.path, ("text/plain", None))
            self.reply(200 if body else 404, kind, body or b"no such file\n")

    do_POST = do_GET

    def read_body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def git(self):
        """git's own server, as a CGI program."""
        path, _, query = self.path.removeprefix("/git").partition("?")
        body = self.read_body()
        environment = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": self.server.folder,
            "GIT_HTTP_EXPORT_ALL": "1", "REMOTE_USER": "tester", "PATH_INFO": path,
            "QUERY_STRING": query, "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        answer = subprocess.run(["git", "http-backend"], env=environment, input=body,
                                stdout=subprocess.PIPE, check=True).stdout
        head, _, content = answer.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(fields.get("Status", "200").split()[0])
        self.reply(status, fields.get("Content-Type", "text/plain"), content)

    def log_message(self, *ignored):
        pass


def serve_web(address, folder):
    server = http.server.ThreadingHTTPServer((address, WEB), Web)
    server.folder = folder
    threading.Thread(target=server.serve_forever, daemon=True).start()


# ---- git ----


def make_repository(folder, name):
    """Bare, with one commit, open for who may push."""
    bare = os.path.join(folder, name)
    tree = os.path.join(folder, "tree")
    environment = {**os.environ, "HOME": folder, "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    run("git", "init", "-q", "-b", "main", tree, env=environment)
    with open(os.path.join(tree, "README"), "w") as out:
        out.write("from " + name + "\n")
    run("git", "-C", tree, "add", "README", env=environment)
    run("git", "-C", tree, *identity, "commit", "-q", "-m", "first", env=environment)
    run("git", "clone", "-q", "--bare", tree, bare, env=environment)
    run("git", "-C", bare, "config", "http.receivepack", "true", env=environment)
    run("rm", "-r", tree)
    return bare


def give_to_nobody(*paths):
    for path in paths:
        run("chown", "-R", f"{NOBODY.pw_uid}:{NOBODY.pw_gid}", path)


def make_settings(folder, home):
    """An /etc with a user `git`, for the ssh server alone. The whole folder: a mount on /etc/passwd
    is gone when somebody on this machine adds a user."""
    settings = os.path.join(folder, "etc")
    os.mkdir(settings)
    for name, text in (("passwd", f"git:x:{NOBODY.pw_uid}:{NOBODY.pw_gid}:git:{home}:/bin/sh\n"),
                       ("group", f"nogroup:x:{NOBODY.pw_gid}:\n"), ("shells", "/bin/sh\n"),
                       ("nsswitch.conf", "passwd: files\ngroup: files\n")):
        with open(os.path.join(settings, name), "w") as out:
            out.write(text)
    return settings


def serve_ssh(address, folder, public_key):
    home, host_key = os.path.join(folder, "git-home"), os.path.join(folder, "host-key")
    os.makedirs(os.path.join(home, ".ssh"), mode=0o700)
    with open(os.path.join(home, ".ssh", "authorized_keys"), "w") as out:
        out.write(public_key)
    os.chmod(out.name, 0o600)
    make_repository(home, "ssh.git")
    give_to_nobody(home)
    settings = make_settings(folder, home)
    run("dropbearkey", "-t", "ed25519", "-f", host_key, stderr=subprocess.DEVNULL)
    mount = f"mount --bind {settings} /etc && exec \"$@\""
    with open(os.path.join(folder, "dropbear.log"), "w") as log:
        start("unshare", "--mount", "sh", "-c", mount, "sh", "dropbear", "-F", "-E", "-s", "-j", "-k",
              "-r", host_key, "-p", f"{address}:{SSH}", "-P", os.path.join(folder, "dropbear.pid"),
              stderr=log)


# ---- databases ----


def find_postgres():
    """Debian keeps the servers' programs apart, by version."""
    base = "/usr/lib/postgresql"
    return os.path.join(base, max(os.listdir(base), key=int), "bin")


def serve_postgres(address, folder):
    """It refuses to run as root. Nothing of it has to outlive a power cut."""
    programs, data = find_postgres(), os.path.join(folder, "postgres")
    os.mkdir(data)
    give_to_nobody(data)
    as_nobody = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "extra_groups": [], "cwd": data}
    run(os.path.join(programs, "initdb"), "-D", data, "-U", "tester", "--auth=trust", "--no-sync",
        "--encoding=UTF8", "--locale=C", "--no-instructions", **as_nobody)
    with open(os.path.join(data, "pg_hba.conf"), "a") as out:
        out.write("host all all 203.0.113.0/24 trust\n")
    settings = {"listen_addresses": address, "port": POSTGRES, "unix_socket_directories": "",
                "fsync": "off", "shared_buffers": "1MB", "autovacuum": "off",
                "dynamic_shared_memory_type": "mmap", "shared_memory_type": "mmap",
                "log_min_messages": "fatal"}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    start(os.path.join(programs, "postgres"), "-D", data, *options, **as_nobody)


def serve_redis(address, folder):
    """Debian's checker of databases is the server itself under another name. So no package that
    starts a service on the developer's machine has to be installed."""
    program = os.path.join(folder, "redis-server")
    os.symlink("/usr/bin/redis-check-rdb", program)
    start(program, "--bind", address, "--port", str(REDIS), "--save", "", "--dir", folder,
          "--protected-mode", "no", "--loglevel", "warning")


def wait_for(address, port):
    for _ in range(1000):
        try:
            socket.create_connection((address, port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f"nobody listens on {address}:{port}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--public-key", required=True)
    given = parser.parse_args()
    run("ip", "address", "add", given.address + "/24", "dev", given.device)
    serve_postgres(given.address, given.folder)
    serve_redis(given.address, given.folder)
    make_repository(given.folder, "http.git")
    serve_web(given.address, given.folder)
    serve_ssh(given.address, given.folder, given.public_key)
    for port in (WEB, SSH, POSTGRES, REDIS):
        wait_for(given.address, port)
    print("ready", flush=True)
    sys.stdin.read()
    run("ip", "address", "del", given.address + "/24", "dev", given.device)


if __name__ == "__main__":
    main()
