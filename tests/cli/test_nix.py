"""`nix`: a real daemon of Nix, with a store and settings of the test's own, asked from inside."""

import contextlib
import os
import shutil
import subprocess
import uuid

import pytest

import dynamic
import harness
import sessions

BUILD = 'derivation { name = "made"; system = builtins.currentSystem; builder = "/bin/sh"; ' \
        'args = [ "-c" "echo made >$out" ]; }'


class Nix:
    """A daemon that builds as a user of its own; `settings` is what it, and we, are told by nix.conf."""

    def __init__(self, world):
        self.top = os.path.join(world.base, f"nix-{uuid.uuid4().hex[:6]}")
        self.conf = os.path.join(self.top, "conf")
        for folder in ("conf", "store"):
            os.makedirs(os.path.join(self.top, folder))
        self.variables = {
            "NIX_STORE_DIR": f"{self.top}/store", "NIX_STATE_DIR": f"{self.top}/state", "NIX_CONF_DIR": self.conf,
            "NIX_LOG_DIR": f"{self.top}/log", "NIX_DAEMON_SOCKET_PATH": f"{self.top}/state/daemon-socket/socket"}
        self.builder = f"sbn{uuid.uuid4().hex[:6]}"
        self.settings("")

    def settings(self, lines, name="nix.conf"):
        with open(os.path.join(self.conf, name), "w") as out:
            out.write(f"build-users-group = {self.builder}\nsandbox = false\nsubstituters =\n{lines}")

    @contextlib.contextmanager
    def daemon(self):
        subprocess.run(["groupadd", self.builder], check=True)
        subprocess.run(["useradd", "-M", "-g", self.builder, "-G", self.builder, "-s", "/bin/false", self.builder],
                       check=True)
        with subprocess.Popen(["nix-daemon"], env={**os.environ, **self.variables}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                assert sessions.eventually(lambda: os.path.exists(self.variables["NIX_DAEMON_SOCKET_PATH"]))
                yield self
            finally:
                process.terminate()
                process.wait()
                subprocess.run(["userdel", self.builder], check=True, stderr=subprocess.DEVNULL)
                subprocess.run(["groupdel", self.builder], check=False, stderr=subprocess.DEVNULL)
                subprocess.run(["chmod", "-R", "u+w", self.top], check=True)
                shutil.rmtree(self.top)


@pytest.fixture(scope="module")
def nix(world):
    if not world.root:
        pytest.skip("only root can start a daemon that builds as another user")
    if not shutil.which("nix-daemon"):
        pytest.skip("nix-daemon is not installed")
    with Nix(world).daemon() as it:
        yield it


@pytest.fixture(autouse=True)
def settings_of_before(request):
    yield
    if "nix" in request.fixturenames:
        request.getfixturevalue("nix").settings("")


def policy(box, word):
    return ["--policy", box.identity.file(box.home("nix.yaml"), f"version: 1\nnix: {word}\n")]


def static(box, argv, options, **more):
    return box.run(argv, options=["--static", *options], **more)


def asked(box, argv, options, **more):
    """Nobody answers; what the client looks at beside the daemon is no matter of the daemon's."""
    return dynamic.run(box, argv, ["--ro", more["env"]["NIX_CONF_DIR"], "--ro", more["env"]["NIX_STORE_DIR"], *options],
                       **more)


@pytest.mark.parametrize("identity", ["user"], indirect=True)
@pytest.mark.parametrize("run", [static, asked])
def test_the_daemon_makes_what_the_session_cannot(box, nix, run):
    """The control: without a word about it, it is out of reach; and the store is never writable."""
    add = ["sh", "-c", "nix-store --add README.md; echo >$NIX_STORE_DIR/own"]
    env = {**nix.variables, "NIX_REMOTE": "daemon"}
    passed = [word for name in env for word in ("--env", name)]
    result = run(box, add, [*policy(box, "on"), *passed], env=env)
    path = result.stdout.strip()
    assert path.startswith(nix.variables["NIX_STORE_DIR"]) and os.path.exists(path), result
    assert "Read-only file system" in result.stderr and not os.path.exists(f"{nix.variables['NIX_STORE_DIR']}/own")
    assert "the daemon of Nix builds outside" in result.stderr, result
    without = run(box, add, [*policy(box, "auto"), *passed], env=env)
    assert without.stdout == "", without
    assert box.plain(add[:2] + ["nix-store --add README.md"], env=env).stdout.strip() == path


@pytest.mark.parametrize("identity", ["user"], indirect=True)
def test_a_build(box, nix):
    """What it needs of the environment comes along."""
    result = static(box, ["nix-build", "--no-out-link", "-E", BUILD], policy(box, "on"), env=nix.variables)
    assert result.exit == 0, result
    with open(result.stdout.strip()) as made:
        assert made.read() == "made\n"


@pytest.mark.parametrize("identity", ["user"], indirect=True)
@pytest.mark.parametrize("lines, said", [
    ("build-users-group =\n", "builds as root"), ("build-users-group = # nobody\n", "builds as root"),
    ("trusted-users = root {user}\n", "trusts this user"), ("trusted-users = *\n", "trusts this user"),
    ("trusted-users = @{group}\n", "trusts this user"), ("extra-trusted-users = {user}\n", "trusts this user"),
    ("trusted-users = root nobody-knows-him\n", "trusts this user"), ("trusted-users = @nobodys\n", "trusts this user"),
    ("!include more.conf\n", "trusts this user"), ("include more.conf\n", "trusts this user"),
    ("include loop.conf\n", "Too many levels"), ("include .\n", "reading the daemon's settings"),
    ("trusted-users = {user}\ntrusted-users = root\n", None), ("trusted-users = root nobody @root\n", None),
    ("!include missing.conf\n#trusted-users = *\n", None)])
def test_a_daemon_that_would_do_everything_is_refused(box, nix, lines, said):
    """Those at the end are the control."""
    words = {"user": box.identity.login, "group": group_of(box.identity)}
    nix.settings("trusted-users = *\n", "more.conf")
    nix.settings("include loop.conf\n", "loop.conf")
    nix.settings(lines.format(**words))
    result = static(box, ["echo", "ran"], policy(box, "on"), env=nix.variables)
    if said is None:
        assert (result.exit, result.stdout) == (0, "ran\n"), result
        return
    assert result.exit == 125 and result.stdout == "" and said in result.stderr, result
    assert "nix: on: " in result.stderr and "  fix: leave nix at auto" in result.stderr, result


def group_of(identity):
    return subprocess.run(["getent", "group", str(identity.gid)], capture_output=True, text=True,
                          check=True).stdout.split(":")[0]


@pytest.mark.parametrize("identity", ["root"], indirect=True)
def test_root_is_trusted_always(box, nix):
    result = static(box, ["true"], policy(box, "on"), env=nix.variables)
    assert result.exit == 125 and "trusts this user" in result.stderr, result


@pytest.mark.parametrize("identity", harness.SOME, indirect=True)
def test_no_daemon(box):
    result = static(box, ["true"], policy(box, "on"), env={"NIX_DAEMON_SOCKET_PATH": box.home("README.md")})
    assert result.exit == 125 and "no daemon has its socket at" in result.stderr, result
    assert static(box, ["true"], policy(box, "auto")).exit == 0


@pytest.mark.parametrize("identity", harness.SOME, indirect=True)
@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_off_hides_it(box, host_root, mode):
    """The control: without a word it can be read, in both modes."""
    if os.path.exists("/nix"):
        pytest.skip("this machine has a store of its own")
    try:
        os.makedirs("/nix/store")
        with open("/nix/store/file", "w") as out:
            out.write("content\n")
        for word, seen in (("off", ""), ("auto", "content\n")):
            result = box.run(["cat", "/nix/store/file"], options=["--mode", mode, *policy(box, word)])
            assert result.stdout == seen, (word, result)
    finally:
        shutil.rmtree("/nix")
