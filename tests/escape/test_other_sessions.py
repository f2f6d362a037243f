"""What one session leaves for the next one, and what sessions do to each other and to their own
files. Each attempt has two steps: one workload prepares, another, or the host, walks into it."""

import fcntl
import json
import os
import shutil
import signal
import socket
import stat
import time

import pytest

import harness

pytestmark = pytest.mark.escape


def shell(box, script, **more):
    return box.run(["sh", "-c", script], **more)


def repository(box, folder, bare=False):
    for name in ("objects", "refs/heads", "hooks"):
        box.identity.folder(os.path.join(folder, name))
    box.identity.file(os.path.join(folder, "HEAD"), "ref: refs/heads/main\n")
    box.identity.file(os.path.join(folder, "config"), f"[core]\n\tbare = {str(bare).lower()}\n")
    return folder


# ---- secrets that were moved ----


@pytest.mark.parametrize("place", ["node_modules", ".venv", "other"])
def test_secret_moved_with_its_folder(box, place):
    """The mask moves along with the folder; the next session must know the secret there, too."""
    box.identity.folder(box.path(place))
    shell(box, f"mv sub {place}/moved")
    for name in ("sub/.env", f"{place}/moved/.env"):
        shell(box, f"cat {name}")  # run() looks for the canary


def test_hidden_folder_moved_with_its_parent(box):
    """With the home folder writable, ~/.config/gcloud is hidden, but what is ~/.config?"""
    shell(box, "mv ~/.config ~/moved", options=["--rw", box.identity.home])
    shell(box, "cat ~/moved/gcloud/credentials.db", options=["--rw", box.identity.home])
    assert os.path.exists(box.home(".config/gcloud/credentials.db"))


@pytest.mark.parametrize("home", ["/nonexistent", "elsewhere", "relative"])
def test_secrets_of_the_account(box, home):
    """Build systems set HOME to something else; the secrets stay where they are."""
    if box.identity.name == "root":
        pytest.skip("the home folder of root's account is not ours to plant secrets in")
    box.identity.folder(box.home("elsewhere"))
    value = {"elsewhere": box.home("elsewhere")}.get(home, home)
    secret = box.home(".ssh/id_ed25519")
    assert box.canary in box.plain(["cat", secret], env={"HOME": value}).stdout
    box.run(["cat", secret], env={"HOME": value})
    box.run(["touch", "made"], cwd=box.identity.home, env={"HOME": value})
    assert not os.path.exists(box.home("made"))


# ---- our own files inside a writable place ----


@pytest.fixture
def state_in_project(box):
    folder = box.path("state")
    yield {"XDG_STATE_HOME": folder}
    shutil.rmtree(folder, ignore_errors=True)


def test_state_is_hidden_in_the_first_session(box, state_in_project):
    """There was nothing to hide when the plan was made."""
    shell(box, "echo PAYLOAD >state/sandbox/trust; ls state/sandbox/placeholders",
          env=state_in_project)
    assert not os.path.exists(box.path("state/sandbox/trust"))


def test_state_is_not_replaced(box, state_in_project):
    """Whoever writes the list of trusted policies is free in the next session."""
    shell(box, "true", env=state_in_project)
    shell(box, "mv state old; mkdir -p state/sandbox; echo PAYLOAD >state/sandbox/trust",
          env=state_in_project)
    assert not os.path.exists(box.path("state/sandbox/trust"))


def test_control_socket_above_the_project(box):
    """The runtime folder is hidden also when the caller stands in it."""
    runtime = box.home("runtime")
    box.identity.folder(os.path.join(runtime, "project"), 0o700)
    result = shell(box, "ls -a .. ../sandbox; echo $PWD", cwd=os.path.join(runtime, "project"),
                   env={"XDG_RUNTIME_DIR": runtime})
    assert result.exit == 0 and os.path.join(runtime, "project") in result.stdout, result
    assert "No such file" in result.stderr or "denied" in result.stderr, result


@pytest.mark.parametrize("kind", ["link", "file"])
def test_pool_gives_only_folders(box, kind):
    """A second session could swap a placeholder in the moment it is put into the pool."""
    pool = os.path.join(box.identity.state, "sandbox/pool")
    shutil.rmtree(pool, ignore_errors=True)
    for number in range(40):
        entry = os.path.join(pool, f"d{number}")
        box.identity.folder(pool, 0o700)
        if kind == "link":
            os.symlink(box.identity.home, entry)
        else:
            box.identity.file(entry, "PAYLOAD\n")
    before = sorted(os.listdir(box.project))
    result = shell(box, "true")
    assert result.exit == 0, result
    shutil.rmtree(pool)
    assert sorted(os.listdir(box.project)) == before


def test_locked_placeholder_does_not_hang(box):
    """A workload of the folder above can hold a lock on a name that we want to reserve."""
    box.identity.folder(box.path(".devcontainer"))
    os.chmod(box.path(".devcontainer"), 0o1755)
    held = os.open(box.path(".devcontainer"), os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        result = shell(box, "mkdir .devcontainer/x", timeout=10)
        assert result.exit != 0 and not os.path.exists(box.path(".devcontainer/x")), result
    finally:
        os.close(held)
        shutil.rmtree(box.path(".devcontainer"))


# ---- repositories that stop looking like one ----


@pytest.mark.parametrize("missing", ["refs", "objects", "HEAD"])
@pytest.mark.parametrize("form", ["nested", "bare"])
def test_repository_in_disguise(box, form, missing):
    """Without refs it is no repository, and nobody protects it; then the refs come back."""
    if form == "bare":
        folder = repository(box, box.home("bare.git"), bare=True)
        cwd, git = folder, "."
    else:
        folder = repository(box, box.path("sub/.git"))
        cwd, git = box.project, "sub/.git"
    shell(box, f"mv {git}/{missing} {git}/away", cwd=cwd)
    shell(box, f"echo PAYLOAD >{git}/hooks/pre-commit; echo PAYLOAD >>{git}/config; "
               f"mv {git}/away {git}/{missing}", cwd=cwd)
    assert not os.path.exists(os.path.join(folder, "hooks/pre-commit"))
    with open(os.path.join(folder, "config")) as config:
        assert "PAYLOAD" not in config.read()


def test_repository_in_a_writable_folder(box):
    """`--rw ~/work` is for the sources in it, not for the hooks."""
    folder = repository(box, box.home("work/one/.git"))
    shell(box, "echo PAYLOAD >~/work/one/.git/hooks/pre-commit; echo fine >~/work/one/new",
          options=["--rw", box.home("work")])
    assert os.path.exists(box.home("work/one/new"))
    assert not os.path.exists(os.path.join(folder, "hooks/pre-commit"))


@pytest.mark.parametrize("text", ["[core]\n\thooksPath = tools/hooks", "[core] hooksPath=tools/hooks",
                                  "[core]\n hookspath = tools/hooks  # ours", '[core]\nhooksPath = "tools/hooks" ;'])
@pytest.mark.parametrize("file", ["config", "included", "own"])
def test_hooks_folder_in_any_configuration(box, file, text):
    """Git takes core.hooksPath from included files and from the person's own configuration, too."""
    if file == "own":
        box.identity.file(box.home(".gitconfig"), text + "\n")
    else:
        config = box.path("git.inc" if file == "included" else ".git/config")
        include = "[core]\n[include]\n\tpath = ../git.inc\n"
        box.identity.file(box.path(".git/config"), include)
        box.identity.file(config, text + "\n")
    shell(box, "mkdir -p tools/hooks; echo PAYLOAD >tools/hooks/pre-commit; rm git.inc; echo x >git.inc")
    assert not os.path.exists(box.path("tools/hooks/pre-commit"))
    if file == "included":
        with open(box.path("git.inc")) as content:
            assert content.read() == text + "\n"


def test_protection_below_a_hidden_folder(box):
    """A project that is allowed below a hidden folder is protected like any other."""
    box.identity.file(box.home("hidden/other"), box.canary)
    shutil.copytree(box.project, box.home("hidden/project"))
    for folder, _, files in os.walk(box.home("hidden")):
        for name in (".", *files):
            box.identity.own(os.path.join(folder, name))
    project = box.home("hidden/project")
    shell(box, "cat ../other; cat .env; echo PAYLOAD >.git/hooks/new; echo PAYLOAD >.vscode/new; "
               "echo fine >new", cwd=project, options=["--blacklist", box.home("hidden")])
    assert os.path.exists(os.path.join(project, "new"))
    for name in (".git/hooks/new", ".vscode/new"):
        assert not os.path.exists(os.path.join(project, name)), name


def test_protection_in_a_write_protected_folder(box):
    """Its owner needs one chmod to create the names that nobody could reserve."""
    folder = box.home("readonly")
    box.identity.folder(folder)
    os.chmod(folder, 0o555)
    shell(box, "chmod 755 .; mkdir .vscode && echo PAYLOAD >.vscode/tasks.json", cwd=folder)
    assert not os.path.exists(os.path.join(folder, ".vscode/tasks.json"))


# ---- devices ----


@pytest.mark.parametrize("name", ["null", "zero", "full", "random", "urandom", "tty"])
def test_device_attributes(box, name):
    """uid 0 inside owns the host's device nodes by number. The mode is the one it has."""
    mode = stat.S_IMODE(os.stat(f"/dev/{name}").st_mode)
    result = shell(box, f"chmod {mode:o} /dev/{name} || touch -c /dev/{name} && echo CHANGED")
    assert "CHANGED" not in result.stdout, result
    assert shell(box, "head -c 1 /dev/zero >/dev/null").exit == 0


@pytest.mark.parametrize("number", [0, 1, 2])
def test_inherited_device_attributes(box, number):
    """The host's /dev/null as a descriptor was opened where it is not read-only."""
    script = f"chmod 666 /dev/fd/{number} && echo CHANGED >left"
    result = box.plain(["sh", "-c", 'exec "$@" </dev/null >/dev/null 2>/dev/null', "-",
                        *box.wrap(["sh", "-c", script])])
    assert not os.path.exists(box.path("left")), result
    assert shell(box, "cat && echo more >&2").stderr == "more\n"


def test_lease_on_a_host_file(box):
    """Whoever opens the file for writing on the host would wait for the workload."""
    script = "import fcntl; fcntl.fcntl(open('readable.txt'), fcntl.F_SETLEASE, fcntl.F_RDLCK)"
    assert box.plain(["python3", "-c", script], cwd=box.identity.home).exit == 0
    result = box.run(["python3", "-c", script], cwd=box.identity.home)
    assert result.exit != 0 and "PermissionError" in result.stderr, result


# ---- signals ----


def test_stopping_itself_stops_nobody_else(box):
    """A workload without a terminal that stops itself must stop neither its limits nor us."""
    script = (f"set -m; {box.world.command} run --static --tty never --timeout 1 -- "
              "sh -c 'kill -STOP $$' & wait $!; echo ended $?")
    result = box.plain(["sh", "-c", script], tty=True, timeout=15)
    assert "ended 124" in result.stdout, result


@pytest.mark.parametrize("identity", harness.SOME, indirect=True)
def test_time_limit_while_the_screen_is_paused(box):
    """Output that nobody reads must not hold up the limits."""
    script = (f"{box.world.command} run --static --tty always --timeout 1 -- "
              "sh -c 'yes & sleep 4; touch late' | sleep 6")
    box.plain(["sh", "-c", script], timeout=15)
    assert not os.path.exists(box.path("late"))


# ---- the control socket ----


@pytest.fixture
def detached(box):
    started = box.plain([box.world.command, "run", "--static", "--detach"])
    assert started.exit == 0, started
    sid = started.stdout.split()[0]
    yield sid
    box.plain([box.world.command, "kill", sid])
    end = time.monotonic() + 5
    while os.path.exists(os.path.join(box.identity.runtime, "sandbox", sid)):
        assert time.monotonic() < end, "the session did not end"
        time.sleep(0.02)


def test_exec_takes_no_folder(box, detached):
    """openat(0, ...) on a folder of the host walks past every mask."""
    script = f"exec {box.world.command} exec {detached} -- cat /dev/fd/0/.ssh/id_ed25519 <{box.identity.home}"
    result = box.plain(["sh", "-c", script])
    assert box.canary not in result.stdout and "folder" in result.stderr, result


def test_exec_flood_does_not_block(box, detached):
    """Requests and answers fill both directions of the line to init: the monitor must not wait."""
    path = os.path.join(box.identity.runtime, "sandbox", detached, "control.sock")
    request = json.dumps({"cmd": "cmd.exec", "argv": ["true"], "tty": True}).encode() + b"\n"
    clients = [socket.socket(socket.AF_UNIX) for _ in range(30)]
    for client in clients:
        client.connect(path)
        client.setblocking(False)
    end = time.monotonic() + 2
    while time.monotonic() < end:
        for client in clients:
            for act in (lambda: client.send(request * 300), lambda: client.recv(65536)):
                try:
                    act()
                except OSError:
                    pass
    for client in clients:
        client.close()
    end = time.monotonic() + 10  # it may say that it is busy, for a while
    result = None
    while not (result and result.stdout.strip() == "alive"):
        assert time.monotonic() < end, result
        result = box.plain([box.world.command, "exec", detached, "--", "echo", "alive"], timeout=5)


def test_stopped_session_does_not_stop_others(box, detached):
    """Ctrl-Z on one session must not make `ps` and `kill` wait for ever."""
    with open(os.path.join(box.identity.runtime, "sandbox", detached, "state.json")) as state:
        monitor = json.load(state)["pid"]
    os.kill(monitor, signal.SIGSTOP)
    try:
        listed = box.plain([box.world.command, "ps"], timeout=10)
        assert detached in listed.stdout, listed
        # `kill` wakes it, so that it can end in order.
        assert box.plain([box.world.command, "kill", detached], timeout=10).exit == 0
    finally:
        try:
            os.kill(monitor, signal.SIGCONT)
        except ProcessLookupError:
            pass


def test_names_in_the_list_of_sessions(box):
    """The project's folder may come from an archive that somebody else made."""
    project = box.home("a\x1b[31m\nb")
    box.identity.folder(project)
    process = box.start(["sleep", "20"], cwd=project)
    try:
        end = time.monotonic() + 5
        listed = box.plain([box.world.command, "ps"])
        while "sleep" not in listed.stdout and time.monotonic() < end:
            listed = box.plain([box.world.command, "ps"])
        assert "\\x1b[31m\\nb" in listed.stdout and "\x1b" not in listed.stdout, listed
    finally:
        process.terminate()
        process.wait()
