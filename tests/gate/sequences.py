"""Random sequences of calls on gated files; test_sequences.py compares what comes of them inside and outside."""

import contextlib
import os
import random
import shutil
import socket
import subprocess
import uuid

import gates
import harness

R, W, RW = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
NB, PATH, DIR, NOF = os.O_NONBLOCK, os.O_PATH, os.O_DIRECTORY, os.O_NOFOLLOW
CREAT, EXCL, TRUNC, APPEND = os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_APPEND
EMPTY, NOFOLLOW, SYMFOLLOW, EACCESS, REMOVEDIR = 0x1000, 0x100, 0x400, 0x200, 0x200
NO_XDEV, NO_MAGIC, NO_SYMLINKS, BENEATH, IN_ROOT = 1, 2, 4, 8, 16

FILES = ("file", "hard", "empty", "closed", "foreign", "tool", "dir/below", "dir/sub/deep",
         "pass/inside", "sticky/own", "sticky/foreign", "shut/x", "other/one", "other/two")
FOLDERS = ("dir", "dir/sub", "pass", "sticky", "shut", "bare", "other")
LINKS = ("link", "dlink", "dangling", "loop", "abs", "dir/up", "dir/near", "slink")
SPECIAL = ("fifo", "sock", "dgram", "dir/sock")
MISSING = ("missing", "dir/missing", "missing/x", "file/x", "bare/new", "sticky/new", "dir/sub/new")


class Ground:
    """The objects of one sequence."""

    def __init__(self, box, prefix):
        self.box, self.prefix, self.sockets = box, prefix, []

    def path(self, name):
        return self.prefix + name

    def text(self, name, text, mode=0o644, own=True):
        with open(self.path(name), "w") as out:
            out.write(text)
        os.chmod(self.path(name), mode)
        if own:
            self.box.identity.own(self.path(name))

    def folder(self, name, mode=0o755, own=True):
        os.mkdir(self.path(name))
        os.chmod(self.path(name), mode)
        if own:
            self.box.identity.own(self.path(name))

    def listen(self, name, kind):
        it = socket.socket(socket.AF_UNIX, kind)
        it.bind(self.path(name))
        if kind == socket.SOCK_STREAM:
            it.listen(64)
        os.chmod(self.path(name), 0o755)
        self.box.identity.own(self.path(name))
        self.sockets.append(it)

    def make(self):
        if self.prefix.endswith("/"):
            self.box.identity.folder(self.prefix.rstrip("/"))
        self.text("file", "content of file\n")
        os.setxattr(self.path("file"), "user.test", b"value")
        os.link(self.path("file"), self.path("hard"))
        self.text("empty", "")
        self.text("closed", "closed\n", 0)
        self.text("foreign", "foreign\n", 0o600, own=False)
        self.text("tool", "#!/bin/sh\necho tool $0 | sed s,/proc/.*,, \n", 0o755)
        for name in ("dir", "dir/sub", "bare", "other"):
            self.folder(name)
        self.folder("sticky", 0o1777)
        self.text("sticky/own", "own\n")
        self.text("sticky/foreign", "foreign\n", own=False)
        self.folder("pass", 0o711, own=False)
        self.text("pass/inside", "inside\n")
        self.folder("shut", 0o700, own=False)
        self.text("shut/x", "x\n")
        for name in ("dir/below", "dir/sub/deep", "other/one", "other/two"):
            self.text(name, f"content of {name}\n")
        base = os.path.basename(self.prefix)
        for name, to in (("link", f"{base}file"), ("dlink", f"{base}dir"), ("dangling", f"{base}nothing"),
                         ("loop", f"{base}loop"), ("abs", self.path("dir/below")),
                         ("dir/up", f"../{base}file"), ("dir/near", "below"), ("slink", f"{base}sock")):
            os.symlink(to, self.path(name))
            self.box.identity.own(self.path(name))
        os.mkfifo(self.path("fifo"))
        os.chmod(self.path("fifo"), 0o644)
        self.box.identity.own(self.path("fifo"))
        self.listen("sock", socket.SOCK_STREAM)
        self.listen("dir/sock", socket.SOCK_STREAM)
        self.listen("dgram", socket.SOCK_DGRAM)

    def remove(self):
        for it in self.sockets:
            it.close()
        self.sockets = []
        if self.prefix.endswith("/"):
            shutil.rmtree(self.prefix, ignore_errors=True)
            return
        folder, start = os.path.split(self.prefix)
        for name in os.listdir(folder):
            if name.startswith(start):
                harness.remove(os.path.join(folder, name))


class Maker:
    """Makes sequences from a seed."""

    def __init__(self, seed, writes=False):
        self.random, self.writes = random.Random(seed), writes

    def one_of(self, *values):
        return self.random.choice(values)

    def target(self):
        """Most of the calls of a sequence are about the same few objects."""
        if self.random.random() < 0.75:
            return self.random.choice(self.focus)
        return self.any_target()

    def any_target(self):
        kind = self.random.choices((FILES, FOLDERS, LINKS, SPECIAL, MISSING), (30, 25, 20, 12, 13))[0]
        name = self.random.choice(kind)
        if self.random.random() < 0.08:
            name = self.one_of(f"dlink/{self.one_of('below', 'sub', 'up')}", name + "/", name + "/.",
                               f"dir/sub/../{self.one_of('below', 'sub')}")
        return name

    def path(self):
        name, dice = self.target(), self.random.random()
        if dice < 0.10 and self.opened:
            return f"%{self.random.choice(self.opened)}" + self.one_of("", "", "/below", "/sub", "/.")
        if dice < 0.22 and self.moved:
            return self.one_of(".", "below", "sub", "sub/deep", "../sub", "up", "inside", "own", "one")
        if dice < 0.25 and self.moved:
            return "/proc/self/cwd/" + self.one_of("below", "sub", "../dir", "")
        return "@" + name

    def at(self):
        """A folder and a path from it."""
        if self.opened and self.random.random() < 0.35:
            name = self.one_of("below", "sub", "sub/deep", ".", "up", "inside", "missing", "../dir/below",
                               "near", "one", "own")
            return f"{self.random.choice(self.opened)} {name}"
        return f"- {self.path()}"

    def place(self):
        return self.random.choice(self.opened) if self.opened and self.random.random() < 0.95 else 0

    def open_call(self):
        slot = self.random.randrange(4)
        flags = self.random.choices(
            (R | NB, R | NB | DIR, PATH, PATH | NOF, PATH | DIR, R | NB | NOF, W | NB, RW | NB, RW | NB | CREAT,
             W | NB | CREAT | EXCL, W | NB | TRUNC, W | NB | APPEND, os.O_TMPFILE | RW, os.O_NOATIME | NB,
             PATH | NOF | DIR, PATH | CREAT | EXCL, PATH | RW),
            (30, 12, 18, 6, 6, 4, 4, 3, 2, 2, 2, 2, 1, 1, 2, 2, 1))[0]
        if not self.writes and flags & (W | RW | CREAT) and self.random.random() < 0.5:
            flags = R | NB
        if slot not in self.opened:
            self.opened.append(slot)
        if self.random.random() < 0.2:
            resolve = self.one_of(0, NO_MAGIC, NO_SYMLINKS, BENEATH, IN_ROOT)
            return f"openat2 {slot} {self.at()} {flags} {resolve}"
        return f"{self.random.choices(('open', 'passed'), (9, 1))[0]} {slot} {self.at()} {flags}"

    def look_call(self):
        return self.one_of(
            lambda: f"stat {self.at()} {self.one_of(0, 0, NOFOLLOW)}",
            lambda: f"stat {self.place()} '' {EMPTY}",
            lambda: f"statx {self.at()} {self.one_of(0, NOFOLLOW, 0x2000, 0x4000)}",
            lambda: f"fstat {self.place()}", lambda: f"fstat {self.place()}",
            lambda: f"same {self.place()} {self.path()}",
            lambda: f"enter {self.path()}",
            lambda: f"access {self.at()} {self.one_of(0, 1, 2, 4, 5)} {self.one_of(0, 0, EACCESS, NOFOLLOW)}",
            lambda: f"access {self.place()} '' {self.one_of(0, 1, 4)} {EMPTY}",
            lambda: f"readlink {self.at()}", lambda: f"readlink - %{self.place()}",
            lambda: f"statfs {self.path()}", lambda: f"fstatfs {self.place()}",
            lambda: f"getxattr {self.path()} {self.one_of('user.test', 'user.none', 'security.capability')}",
            lambda: f"lgetxattr {self.path()} user.test", lambda: f"fgetxattr {self.place()} user.test",
            lambda: f"listxattr {self.path()}", lambda: f"flistxattr {self.place()}",
            lambda: f"handle {self.at()} {self.one_of(0, SYMFOLLOW)}",
            lambda: f"getxattrat {self.at()} {self.one_of(0, NOFOLLOW)}",
            lambda: f"getxattrat {self.place()} '' {EMPTY}",
            lambda: f"listxattrat {self.at()} {self.one_of(0, NOFOLLOW)}",
            lambda: f"attributes {self.at()} {self.one_of(0, NOFOLLOW)}",
            lambda: f"names {self.path()}", lambda: f"names {self.path()}",
            lambda: "getcwd")()

    def descriptor_call(self):
        one, other = self.place(), self.place()
        return self.one_of(f"read {one}", f"read {one}", f"read {one}", f"list {one}", f"list {one}", f"seek {one}",
                           f"mmap {one} 1 2", f"mmap {one} 1 1", f"mmap {one} 3 1", f"mmap {one} 5 2", f"flags {one}",
                           f"flock {one} {self.one_of(5, 6)}", f"lock {one} {self.one_of(0, 1)}",
                           f"copy {one} {other}", f"sendfile {one}", f"splice {one}", f"dup {other} {one}",
                           f"close {one}", f"fsync {one}")

    def use_call(self):
        self.moved = True
        return self.one_of(
            lambda: f"chdir {self.path()}", lambda: f"chdir {self.path()}", lambda: f"chdir @{self.random.choice(FOLDERS)}",
            lambda: f"fchdir {self.place()}",
            lambda: f"execute {self.at()} {self.one_of(0, NOFOLLOW)}", lambda: "execute - @tool 0",
            lambda: f"execute {self.place()} '' {EMPTY}",
            lambda: f"connect {self.path()} 1", lambda: f"connect @{self.one_of(*SPECIAL, 'slink')} {self.one_of(1, 2)}",
            lambda: f"send {self.one_of('@dgram', self.path())}")()

    def write_call(self):
        new = lambda: "@" + self.one_of("dir/made", "bare/made", "sticky/made", "other/made", "made", "pass/made")
        either = lambda: self.one_of(self.path(), new())
        return self.one_of(
            lambda: f"mkdir - {either()}", lambda: f"unlink {self.at()} {self.one_of(0, 0, REMOVEDIR)}",
            lambda: f"rename {self.path()} {either()} {self.one_of(0, 0, 1, 2)}",
            lambda: f"link {self.path()} {either()} {self.one_of(0, SYMFOLLOW)}",
            lambda: f"renameat {self.at()} {self.at()} {self.one_of(0, 1, 2)}",
            lambda: f"linkat {self.at()} - {either()} {self.one_of(0, SYMFOLLOW)}",
            lambda: f"linkat {self.place()} '' - {either()} {EMPTY}",
            lambda: f"fchmodat2 {self.at()} {0o711} {self.one_of(0, NOFOLLOW)}",
            lambda: f"setxattrat {self.at()} {self.one_of(0, NOFOLLOW)}",
            lambda: f"removexattrat {self.at()} {self.one_of(0, NOFOLLOW)}",
            lambda: f"symlink - {either()}", lambda: f"mknod - {either()} {self.one_of(0o10644, 0o100644)}",
            lambda: f"truncate {self.path()}", lambda: f"chmod {self.at()} {self.one_of(0o600, 0o755)}",
            lambda: f"chown {self.at()} {self.one_of(0, NOFOLLOW)}", lambda: f"utimens {self.at()} 0",
            lambda: f"times {self.path()}", lambda: f"setxattr {self.path()}", lambda: f"bind {either()}",
            lambda: f"write {self.place()}", lambda: f"ftruncate {self.place()}", lambda: f"fallocate {self.place()}",
            lambda: f"fchmod {self.place()} {0o700}",
            lambda: f"open {self.place()} - {either()} {self.one_of(RW, W | CREAT, RW | CREAT | EXCL, W | TRUNC) | NB}")()

    def sequence(self):
        self.opened, self.moved = [], False
        self.focus = [self.any_target() for _ in range(self.random.randint(1, 3))]
        calls = []
        for _ in range(self.random.randint(3, 12)):
            make = self.random.choices(
                (self.open_call, self.look_call, self.descriptor_call, self.use_call, self.write_call),
                (30, 30, 20 if self.opened else 0, 15, 30 if self.writes else 5))[0]
            calls.append(self.random.choices("ptf", (85, 8, 7))[0] + " " + make())
        return calls


class Batch:
    """Sequences that run one after the other in one session, each on ground of its own."""

    def __init__(self, box, sequences):
        self.box, self.sequences, mark = box, sequences, "sandbox-test-" + uuid.uuid4().hex[:6]
        self.top = f"/{mark}"
        places = (f"/{mark}t{{}}-", f"/{mark}/two/{{}}/tree/", box.home(mark + "h{}/tree/"), box.home(mark + "b{}/"))
        self.grounds = [Ground(box, places[number % len(places)].format(number))
                        for number in range(len(sequences))]

    @contextlib.contextmanager
    def laid(self):
        """The command that performs them, on untouched ground."""
        script = self.box.identity.file(self.box.path("sequences"), "".join(
            f"= {number} {ground.prefix}\n" + "".join(f"{call}\n" for call in calls)
            for number, (ground, calls) in enumerate(zip(self.grounds, self.sequences))))
        try:
            for ground in self.grounds:
                ground.make()
            yield [gates.program(self.box.world, "gate-sequence"), script]
        finally:
            for ground in self.grounds:
                ground.remove()
            shutil.rmtree(self.top, ignore_errors=True)

    def outside(self, writable):
        """On the host, where nothing can be written unless it can be inside."""
        identity = self.box.identity
        lock = "" if writable else "mount -o remount,bind,ro / && "
        become = f"setpriv --reuid {identity.uid} --regid {identity.gid} --clear-groups"
        with self.laid() as argv:
            done = subprocess.run(["unshare", "-m", "sh", "-c", f'{lock}exec {become} "$@"', "sh", *argv],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  env=identity.environment(), timeout=3 * harness.TIMEOUT, check=True)
        return self.answers(done.stdout)

    def inside(self, gate, options):
        with self.laid() as argv:
            done, _ = gates.run(self.box, gate, argv, lambda event: gates.approve(), options)
        assert done.exit == 0, done
        return self.answers(done.stdout)

    def answers(self, text):
        said = dict(line.split(" ", 1) for line in text.splitlines())
        return [[said.get(f"{number}.{step}", "nothing") for step in range(len(calls))]
                for number, calls in enumerate(self.sequences)]
