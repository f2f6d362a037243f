"""Runs the command under test as a black box, as root and as a plain user.

Nothing here knows how the product works. It plants things (users, homes, secrets, projects), runs
commands inside and outside the sandbox as one of two identities, and looks at the host afterwards.

Environment:
  SANDBOX       the command under test (required, unless SANDBOX_PEER is set)
  SANDBOX_PEER  "bwrap": run the same tests against another program, for comparison only
  ATTEMPT       the attempt program; else build*/tests/escape/attempt, else it is compiled
"""

import contextlib
import ctypes
import dataclasses
import fcntl
import glob
import os
import pty
import pwd
import re
import secrets
import select
import shutil
import signal
import stat
import subprocess
import tempfile
import termios
import time

TESTS = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(TESTS)
# How `run` starts the tests' commands: "--mode dynamic --gate fuse" runs the same tests again with
# a gate in place of the whole host's tree.
IDENTITIES = os.environ.get("SANDBOX_TEST_IDENTITIES", "root user").split()
# For what takes seconds and is no different for the other: both in the long run only.
LONG = bool(os.environ.get("SANDBOX_TEST_LONG"))
SOME = IDENTITIES if LONG else IDENTITIES[-1:]
MODE = os.environ.get("SANDBOX_TEST_MODE", "--static").split()
DYNAMIC = MODE != ["--static"]
# An emulated processor does a tenth of the work, on a busy machine less: nothing here measures time.
SLOWNESS = 6 if os.environ.get("SANDBOX_TEST_VM") else 1
TIMEOUT = 20 * SLOWNESS

# Planted in every home; all of them must be unreadable inside. Relative to the home folder.
SECRET_FILES = (
    ".ssh/id_ed25519", ".ssh/id_rsa", ".ssh/config", ".ssh/authorized_keys",
    ".gnupg/private-keys-v1.d/key.key", ".gnupg/trustdb.gpg",
    ".aws/credentials", ".aws/config", ".config/gcloud/credentials.db",
    ".azure/msal_token_cache.json", ".kube/config", ".docker/config.json",
    ".netrc", ".npmrc", ".pypirc", ".git-credentials", ".config/git/credentials",
    ".password-store/mail.gpg", ".local/share/keyrings/login.keyring",
    ".mozilla/firefox/x.default/logins.json", ".config/google-chrome/Default/Login Data",
    ".config/chromium/Default/Cookies", ".bash_history", ".zsh_history", ".python_history",
    ".config/gh/hosts.yml", ".cargo/credentials.toml", ".pgpass", ".my.cnf",
    ".vault-token", ".terraform.d/credentials.tfrc.json",
)
# The same inside a project.
PROJECT_SECRETS = (".env", ".env.local", ".env.production", "sub/.env", "production.env")
# Files of a project that the host's tools run later: present, must not change.
PROTECTED_PRESENT = (
    ".git/hooks/pre-commit", ".git/config", ".vscode/tasks.json", ".idea/workspace.xml",
    ".claude/settings.json", ".mcp.json", ".envrc", ".sandbox/policy.yaml",
)
# The same, absent at the start: must not come into being.
PROTECTED_ABSENT = (
    ".git/hooks/post-checkout", ".git/config.worktree", ".devcontainer/devcontainer.json",
    ".cursor/mcp.json", ".codex/config.toml", ".gemini/settings.json", ".claude/settings.local.json",
    ".helix/languages.toml", "opencode.jsonc",
)


class Unavailable(Exception):
    """This machine or caller cannot run the test; the text says why."""


@dataclasses.dataclass
class Result:
    exit: int
    stdout: str
    stderr: str
    seconds: float = 0.0
    typed: str = ""  # what arrived in the terminal's input queue although nobody typed it

    def verdict(self):
        """The line of the attempt program: ("OPEN", detail), ("DENIED", errno), …"""
        for line in self.stdout.replace("\r", "").splitlines():
            # Not at the start: an echoed character of the terminal may come before it.
            found = re.search(r"(OPEN|DENIED|UNSUPPORTED) (.*)", line)
            if found:
                return found.group(1), found.group(2).strip()
        if self.exit > 128 and not self.stdout.strip():
            return "DENIED", signal_name(self.exit - 128)
        return "NOTHING", f"exit {self.exit}, stdout {self.stdout!r}, stderr {self.stderr!r}"


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclasses.dataclass
class Identity:
    name: str  # "root" or "user"
    uid: int
    gid: int
    login: str
    home: str
    runtime: str
    state: str
    canary: str = ""  # in every planted secret, and nowhere else
    planted: dict = dataclasses.field(default_factory=dict)  # signature of the untouched home

    def environment(self):
        return {
            "HOME": self.home,
            "USER": self.login,
            "LOGNAME": self.login,
            "SHELL": "/bin/sh",
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "XDG_RUNTIME_DIR": self.runtime,
            "XDG_STATE_HOME": self.state,
            "XDG_CONFIG_HOME": os.path.join(self.home, ".config"),
            # For a sanitized build of the command under test; never reaches the sandbox.
            **{name: os.environ[name] for name in ("ASAN_OPTIONS",) if name in os.environ},
        }

    def credentials(self):
        """For subprocess; nothing if we already are this user."""
        if os.getuid() == self.uid:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def become(self):
        """The same, in a child that is about to execute something."""
        if self.credentials():
            os.setgroups([])
            os.setgid(self.gid)
            os.setuid(self.uid)

    def own(self, path):
        if os.getuid() == 0:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    # ---- planting ----

    def folder(self, path, mode=0o755):
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for name in reversed(missing):
            os.mkdir(name, mode)
            self.own(name)

    def file(self, path, text, mode=0o644):
        self.folder(os.path.dirname(path))
        with open(path, "w") as out:
            out.write(text)
        os.chmod(path, mode)
        self.own(path)
        return path


class World:
    """Everything that lives as long as the test run: folders, users, the attempt program."""

    def __init__(self):
        self.root = os.getuid() == 0
        command = tested_command()  # before anything is made
        if self.root:
            leave_host_namespaces()
        # Not below /tmp, /var/tmp or /run: those are private inside.
        parent = "/home" if self.root else os.path.expanduser("~")
        self.base = tempfile.mkdtemp(prefix="sandbox-test-", dir=parent)
        os.chmod(self.base, 0o755)
        self.bin = os.path.join(self.base, "bin")
        os.mkdir(self.bin)
        self.login = None
        self.identities = {}
        become_subreaper()
        self.attempt = self.install(find_attempt(self.bin), "attempt")
        self.command = command and self._reachable(command)
        self._make_identities()

    def install(self, source, name):
        target = os.path.join(self.bin, name)
        if source != target:
            shutil.copy(source, target)
        os.chmod(target, 0o755)
        return target

    def _reachable(self, command):
        """A plain user may be unable to reach the build folder, and nobody inside reaches one in a
        private place: then it is a copy."""
        private = os.path.realpath(command).startswith(("/tmp/", "/var/tmp/", "/run/"))
        usable = world_reachable(command) and not private
        if usable:
            return command
        # A copy needs the programs that it starts beside it.
        build = os.environ.get("SANDBOX_BUILD", "")
        for name in ("toml/sandbox-toml", "backend/sandbox-init", "backend/sandbox-vm"):
            if os.path.exists(os.path.join(build, "src", name)):
                self.install(os.path.join(build, "src", name), os.path.basename(name))
        return self.install(command, "sandbox")

    def _make_identities(self):
        if self.root:
            self._add("root", 0, 0, "root")
            self.login = "sbt" + secrets.token_hex(4)
            home = os.path.join(self.base, "user")
            subprocess.run(["useradd", "--no-create-home", "--home-dir", home, "--shell", "/bin/sh",
                            "--user-group", self.login], check=True, capture_output=True)
            entry = pwd.getpwnam(self.login)
            self._add("user", entry.pw_uid, entry.pw_gid, self.login)
        else:
            entry = pwd.getpwuid(os.getuid())
            self._add("user", entry.pw_uid, entry.pw_gid, entry.pw_name)

    def _add(self, name, uid, gid, login):
        home, runtime, state = (os.path.join(self.base, part)
                                for part in (name, "run-" + name, "state-" + name))
        identity = Identity(name, uid, gid, login, home, runtime, state,
                            "CANARY-" + secrets.token_hex(12))
        identity.folder(home)
        identity.folder(runtime, 0o700)
        identity.folder(state, 0o700)
        self.identities[name] = identity

    def identity(self, name):
        if name not in self.identities:
            raise Unavailable(f"started as a plain user: cannot run as {name}")
        return self.identities[name]

    def close(self):
        for pid, line in children().items():
            if is_of_the_user(line):
                kill(pid)
        if self.login:
            subprocess.run(["userdel", self.login], capture_output=True)
        shutil.rmtree(self.base, ignore_errors=True)


def tested_command():
    """None where it is another sandbox that is tried."""
    command = os.environ.get("SANDBOX")
    if os.environ.get("SANDBOX_PEER"):
        return None
    if not command or not os.access(command, os.X_OK):
        raise SystemExit(f"SANDBOX is not a program: {command!r}")
    return command


def find_built(name):
    """A program of the tests, or None. Not a sanitized one, if there is another: they run inside.
    Other folders than the one that is tested may be in the middle of a build."""
    tested = os.environ.get("SANDBOX_BUILD", "")
    folders = sorted({*glob.glob(os.path.join(REPOSITORY, "build*")), *([tested] if tested else [])},
                     key=lambda folder: ("sanitized" in folder, folder != tested, folder))
    found = [path for folder in folders for path in glob.glob(os.path.join(folder, "tests", "*", name))]
    return found[0] if found else None


def find_attempt(folder):
    built = os.environ.get("ATTEMPT") or find_built("attempt")
    if built:
        return built
    target = os.path.join(folder, "attempt")
    subprocess.run(["cc", "-D_GNU_SOURCE", "-O1", "-static", "-o", target,
                    *glob.glob(os.path.join(TESTS, "escape", "attempts", "*.c")), "-lpthread"],
                   check=True)
    return target


def world_reachable(path):
    path = os.path.realpath(path)
    while True:
        if not os.stat(path).st_mode & stat.S_IXOTH:
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)


def leave_host_namespaces():
    """Mounts and names of the machine are not at stake, whatever a sandbox that fails open lets the
    attempts do as root (one unmounts /proc). Shared among us, so that propagation shows."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x00020000 | 0x04000000) != 0:  # CLONE_NEWNS | CLONE_NEWUTS
        raise SystemExit("cannot leave the host's mount namespace: not running attempts as root")
    for propagation in ("--make-rprivate", "--make-rshared"):
        subprocess.run(["mount", propagation, "/"], check=True)


def become_subreaper():
    """Orphans of our children become our children, so that a leak has nowhere to hide."""
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)


# ---- running ----


class Box:
    """One identity in one planted project."""

    def __init__(self, world, identity):
        self.world = world
        self.identity = identity
        self.canary = identity.canary
        self.project = os.path.join(identity.home, "project")
        self.plant()

    # ---- what is there ----

    def home(self, *parts):
        return os.path.join(self.identity.home, *parts)

    def path(self, *parts):
        return os.path.join(self.project, *parts)

    @property
    def attempt(self):
        return self.world.attempt

    def wanted(self):
        """Every planted file: a home with secrets and a project that looks like one."""
        files = {self.home(name): (f"{self.canary} {name}\n", 0o600) for name in SECRET_FILES}
        files[self.home("readable.txt")] = ("ordinary\n", 0o644)
        files[self.home(".bashrc")] = ("# ordinary\n", 0o644)
        for name in PROJECT_SECRETS:
            files[self.path(name)] = (f"{self.canary} {name}\n", 0o600)
        for name in PROTECTED_PRESENT:
            files[self.path(name)] = (ORDINARY_CONTENT.get(name, "{}\n"), 0o644)
        files[self.path(".git/HEAD")] = ("ref: refs/heads/main\n", 0o644)
        files[self.path("main.c")] = ("int main(void) { return 0; }\n", 0o644)
        files[self.path("README.md")] = ("ordinary\n", 0o644)
        return files

    def plant(self):
        """Untouched ground: removes what is not wanted or was touched, puts back what is missing.
        Doing it all anew for every test would take most of the time of the run."""
        now, was = signature(self.identity.home), self.identity.planted
        for path in sorted(now):
            if path != self.identity.home and was.get(path) != now[path] and os.path.lexists(path):
                remove(path)
        for path, (content, mode) in self.wanted().items():
            if not os.path.lexists(path):
                self.identity.file(path, content, mode)
        self.identity.folder(self.path(".git/objects"))
        self.identity.folder(self.path(".git/refs/heads"))
        self.identity.planted = signature(self.identity.home)

    # ---- running things ----

    def wrap(self, argv, options=(), cwd=None):
        peer = os.environ.get("SANDBOX_PEER")
        if peer == "bwrap":
            return self._bwrap(argv, cwd or self.project)
        tools = ["--ro", self.world.bin] if DYNAMIC else []
        return [self.world.command, "run", *MODE, *tools, *options, "--", *argv]

    def _bwrap(self, argv, cwd):
        hide = [part for name in (".ssh", ".gnupg", ".aws") for part in ("--tmpfs", self.home(name))]
        return ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev",
                "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/var/tmp",
                "--bind", self.project, self.project, *hide, "--chdir", cwd, "--", *argv]

    def run(self, argv, cwd=None, env=None, timeout=TIMEOUT, tty=False, options=(), pass_fds=(),
            may_leak=False, before=()):
        """Inside the sandbox. Whatever comes out must not hold the canary, in any test."""
        result = self.execute([*before, *self.wrap(argv, options, cwd)], cwd, env, timeout, tty,
                              pass_fds)
        if not may_leak:
            assert self.canary not in result.stdout + result.stderr, f"a secret came out: {result}"
        return result

    def plain(self, argv, cwd=None, env=None, timeout=TIMEOUT, tty=False, pass_fds=(), before=()):
        """The same identity, no sandbox: the positive control."""
        return self.execute([*before, *argv], cwd, env, timeout, tty, pass_fds)

    def start(self, argv, cwd=None, env=None, options=(), **more):
        """Inside, without waiting. The caller ends it."""
        return self.popen(self.wrap(argv, options, cwd), cwd, env, **more)

    def popen(self, argv, cwd=None, env=None, **more):
        return subprocess.Popen(argv, cwd=cwd or self.project,
                                env={**self.identity.environment(), **(env or {})},
                                start_new_session=True, **self.identity.credentials(), **more)

    def execute(self, argv, cwd, env, timeout, tty, pass_fds):
        if tty:
            return self._execute_on_terminal(argv, cwd, env, timeout)
        began = time.monotonic()
        process = self.popen(argv, cwd, env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, pass_fds=pass_fds)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"no end within {timeout} s: {argv} {out!r} {err!r}") from None
        return Result(shell_status(process.returncode), text(out), text(err),
                      time.monotonic() - began)

    def _execute_on_terminal(self, argv, cwd, env, timeout):
        """On a pty as controlling terminal. `typed` is what was pushed into its input."""
        began = time.monotonic()
        master, slave = pty.openpty()
        before = termios.tcgetattr(slave)
        self.identity.own(os.ttyname(slave))

        def take_terminal():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        process = self.popen(argv, cwd, env, stdin=slave, stdout=slave, stderr=slave,
                             preexec_fn=take_terminal)
        try:
            out = drain(master, process, began + timeout)
            after = termios.tcgetattr(slave)
            result = Result(shell_status(process.wait(1)), text(out), "",
                            time.monotonic() - began, unread_input(slave))
            result.terminal_restored = before == after
            return result
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            os.close(master)
            os.close(slave)


def signature(folder):
    """What changes when a file below is touched: the time of change cannot be forged. For folders
    the entries say enough."""
    found, queue = {}, [folder]
    while queue:
        path = queue.pop()
        try:
            status = os.lstat(path)
        except OSError:  # deeper than a path can say: whatever is above it will be removed
            continue
        folder_like = stat.S_ISDIR(status.st_mode)
        found[path] = (status.st_mode, status.st_uid,
                       *(() if folder_like else (status.st_ino, status.st_ctime_ns)))
        if folder_like:
            queue += [entry.path for entry in os.scandir(path)]
    return found


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


ORDINARY_CONTENT = {
    ".git/config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
    ".sandbox/policy.yaml": "version: 1\n",
}


@contextlib.contextmanager
def small_folder(world, identity):
    """On a file system of 256 kB."""
    folder = tempfile.mkdtemp(prefix="small-", dir=world.base)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=256k,uid={identity.uid},mode=0700",
                    "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
    os.rmdir(folder)


def fill(folder):
    """Until there is no room for one byte more. Returns the file that has to go for that."""
    path = os.path.join(folder, "filler")
    with open(path, "wb", buffering=0) as out:
        for size in (4096, 1):
            try:
                while True:
                    out.write(b"x" * size)
            except OSError:
                pass
    return path


def text(data):
    return data.decode("utf-8", "backslashreplace")


def shell_status(code):
    return 128 - code if code < 0 else code


def drain(master, process, end):
    out, over = b"", False
    while time.monotonic() < end:
        # Asked before looking: what it wrote last is there to be read once it is over.
        over = over or process.poll() is not None
        ready, _, _ = select.select([master], [], [], 0 if over else 0.02)
        if ready:
            try:
                out += os.read(master, 65536)
            except OSError:
                break
        elif over:
            return out
    raise AssertionError(f"no end on the terminal: {out!r}")


def unread_input(slave):
    """What waits to be read from the terminal although nothing was typed."""
    settings = termios.tcgetattr(slave)
    settings[3] &= ~termios.ICANON
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    ready, _, _ = select.select([slave], [], [], 0)
    return text(os.read(slave, 4096)) if ready else ""


# ---- what must not be left ----


def children(pid=None):
    """All descendants that still run, as {pid: command line}."""
    found, queue = {}, [pid or os.getpid()]
    while queue:
        parent = queue.pop()
        for listing in glob.glob(f"/proc/{parent}/task/*/children"):
            try:
                with open(listing) as source:
                    pids = [int(word) for word in source.read().split()]
            except OSError:
                continue
            for child in pids:
                line = command_line(child)
                if line is None:
                    reap(child)
                    continue
                found[child] = line
                queue.append(child)
    return found


def command_line(pid):
    """None for a process that is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as source:
            if source.read().rpartition(")")[2].split()[0] in ("Z", "X"):
                return None
        with open(f"/proc/{pid}/cmdline", "rb") as source:
            return text(source.read().replace(b"\0", b" "))
    except OSError:
        return None


class Patience:
    """Some seconds, not counting those in which somebody on the machine waits for a processor or the
    disk: what must be over soon may take longer then, but not for ever."""

    def __init__(self, seconds):
        self.seconds, self.began, self.stalled = seconds, time.monotonic(), self._stalled()

    @staticmethod
    def _stalled():
        seconds = 0
        for kind in ("cpu", "io"):
            try:
                with open(f"/proc/pressure/{kind}") as source:
                    seconds += int(source.readline().rpartition("total=")[2]) / 1e6
            except (OSError, ValueError):  # a kernel that does not tell
                pass
        return seconds

    def is_over(self):
        passed = time.monotonic() - self.began
        return passed > TIMEOUT or passed - (self._stalled() - self.stalled) > self.seconds


def reap(pid):
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass


def mounts_below(base):
    with open("/proc/self/mountinfo") as source:
        return sorted(line.split()[4] for line in source if base in line)


# Any podman command of a plain user starts this, once per user, and needs it as long as containers
# run: it holds the user namespace. Not a leak of ours; it ends with the tests. Without catatonit it
# is podman itself, which has wiped its arguments.
def is_of_the_user(line):
    return line.startswith(("catatonit -P", "podman pause")) or line.strip() == "/usr/bin/podman"


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def is_unlocked(path):
    """Whoever uses a scratch folder holds a shared lock on it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


class LeakCheck:
    """Compares the host before and after a test."""

    # Kept by design, below the state folder: what `diff`, `apply`, `report` and `audit` read later,
    # the stock of unused placeholders, and the lock of who changes approvals.
    STATE_ALLOWED = ("audit", "log", "trust", "history", "lock", "overlays", "reports", "pool",
                     "grants.lock", "terminals.lock")
    RUNTIME_ALLOWED = ("lock", "audit")

    def __init__(self, box):
        self.box = box
        self.processes = set(children())
        self.mounts = mounts_below(box.world.base)
        self.temporary = self._temporary_folders()
        self.names = self._protected_names()

    def _protected_names(self):
        names = {name.split("/")[0] for name in PROTECTED_PRESENT + PROTECTED_ABSENT}
        names |= {name for name in PROTECTED_PRESENT + PROTECTED_ABSENT}
        return {name for name in names if os.path.lexists(self.box.path(name))}

    def _temporary_folders(self):
        return set(glob.glob(f"/tmp/sandbox-{self.box.identity.uid}/*"))

    def check(self, wait=1.5 * SLOWNESS):
        problems = self._processes(wait)
        problems += [f"mount left: {path}" for path in mounts_below(self.box.world.base)
                     if path not in self.mounts]
        problems += [f"placeholder left in the project: {name}"
                     for name in sorted(self._protected_names() - self.names)]
        problems += [f"left in /tmp: {path}" for path in self._left_temporary()]
        problems += self._files(self.box.identity.runtime, self.RUNTIME_ALLOWED)
        problems += self._files(self.box.identity.state, self.STATE_ALLOWED)
        return problems

    def _left_temporary(self):
        """What another test of root's has there is locked, or gone soon: one that kills sessions
        looks at the end whether the next one removes what they left."""
        left, patience = self._temporary_folders() - self.temporary, Patience(30)
        while left and not patience.is_over():
            time.sleep(0.05)
            left = {path for path in left if is_unlocked(path)}
        return left

    def _processes(self, wait):
        patience = Patience(wait)
        while True:
            left = {pid: line for pid, line in children().items()
                    if pid not in self.processes and not is_of_the_user(line)}
            if not left or patience.is_over():
                break
            time.sleep(0.01)
        for pid in left:  # they are ours: started by this test, found below us
            kill(pid)
        return [f"process left: {pid} {line}" for pid, line in left.items()]

    def _files(self, folder, allowed):
        found, owner = [], self.box.identity.name
        for path, folders, files in os.walk(os.path.join(folder, "sandbox")):
            relative = os.path.relpath(path, folder).split(os.sep)[1:]
            # A folder of a session is a leftover even if empty; one of the state is not.
            for name in files + (folders if folder.endswith("run-" + owner) and not relative else []):
                parts = [*relative, name]
                if parts == ["placeholders"]:
                    continue  # stands, empty, where there is no home; files in it are found below
                if not any(word in part for part in parts for word in allowed):
                    found.append(f"left in {os.path.basename(folder)}: {os.path.join(path, name)}")
        return found
