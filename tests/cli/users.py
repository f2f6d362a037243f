"""Who runs a test: root, and an ordinary user that is made for the tests and removed after."""

import os
import pathlib
import pwd
import shutil
import subprocess
import tempfile

import pytest

import harness

USER = f"sandboxtest{os.getpid() % 100000}"


class Caller:
    """Runs commands as one user, in a project folder of its own."""

    def __init__(self, sandbox, name, folder):
        self.sandbox, self.name, self.folder = sandbox, name, pathlib.Path(folder)
        self.project = self.folder / "project"
        self.state = self.folder / "state"
        self.project.mkdir()
        self.state.mkdir()
        self.own()

    def own(self, folder=None):
        """Gives what the test made to the user."""
        if self.name:
            subprocess.run(["chown", "-R", f"{self.name}:", folder or self.folder], check=True)

    def words(self, *words):
        prefix = ["setpriv", f"--reuid={self.name}", f"--regid={self.name}", "--init-groups"]
        return [*(prefix if self.name else []), self.sandbox, *map(str, words)]

    def options(self, options):
        home = pwd.getpwnam(self.name).pw_dir if self.name else "/root"
        options.setdefault("cwd", self.project)
        options.setdefault("stdin", subprocess.DEVNULL)
        options["env"] = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "XDG_STATE_HOME": str(self.state),
            **options.get("env", {}),
        }
        return options

    def run(self, *words, **options):
        options.setdefault("timeout", 120)
        options.setdefault("text", True)
        return subprocess.run(self.words(*words), capture_output=True, **self.options(options))

    def start(self, *words, **options):
        for stream in ("stdout", "stderr"):
            options.setdefault(stream, subprocess.DEVNULL)
        return subprocess.Popen(self.words(*words), **self.options(options))

    def sessions(self):
        folder = self.state / "sandbox/overlays"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def overlay(self, script, *flags):
        """Runs a script with the project as overlay; returns the session's id."""
        before = set(self.sessions())
        done = self.run("run", "--static", "--overlay", ".", *flags, "--", "sh", "-ec", script)
        assert done.returncode == 0, done.stderr
        new = set(self.sessions()) - before
        assert len(new) == 1, done.stderr
        return new.pop()


@pytest.fixture(scope="session")
def ordinary_user():
    if os.geteuid() != 0:
        pytest.skip("only root can make a user")
    subprocess.run(["useradd", "--create-home", USER], check=True)
    yield USER
    subprocess.run(["userdel", "--remove", USER], capture_output=True)


@pytest.fixture(params=harness.IDENTITIES)
def caller(request, sandbox):
    name = None
    if request.param == "user" and os.geteuid() == 0:
        name = request.getfixturevalue("ordinary_user")
    elif request.param == "root" and os.geteuid() != 0:
        pytest.skip("not root")
    # On a disk: before Linux 6.6 a tmpfs cannot hold overlays.
    folder = tempfile.mkdtemp(prefix="sandbox-test-", dir="/var/tmp")
    os.chmod(folder, 0o755)
    reachable = pathlib.Path(folder) / "sandbox"  # the build may lie where only root can go
    shutil.copy(sandbox, reachable)
    yield Caller(str(reachable), name, folder)
    shutil.rmtree(folder, ignore_errors=True)
