"""sandbox policy from outside: show, check, explain, trust."""

import json
import os
import shutil
import socket
import subprocess

import pytest

FAILURE = 125
VERSION = "version: 1\n"


@pytest.fixture
def world(run, tmp_path):
    """A home with a project in it; call it to run `sandbox policy ...` there."""
    home = tmp_path.resolve() / "home"
    project = home / "project"
    (project / ".git").mkdir(parents=True)
    (home / ".ssh").mkdir()
    (home / ".ssh/id_rsa").write_text("secret")
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}

    def policy(*words):
        return run("policy", *words, cwd=project, env=environment)

    policy.home, policy.project = home, project
    return policy


def user_policy(world, text):
    folder = world.home / ".config/sandbox"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "policy.yaml").write_text(VERSION + text)


def project_policy(world, text):
    folder = world.project / ".sandbox"
    folder.mkdir(exist_ok=True)
    (folder / "policy.yaml").write_text(VERSION + text)


def explain(world, path, *options):
    return json.loads(world("explain", path, "--json", *options).stdout)


def test_show_names_origins(world):
    user_policy(world, "network: {mode: filtered}\n")
    text = world("show").stdout
    assert "mode: filtered" in text and "sandbox/policy.yaml:2:17" in text
    whole = json.loads(world("show", "--json").stdout)
    assert whole["policy"]["network"]["mode"] == "filtered"
    assert whole["origins"]["network.mode"]["store"] == "user"


def test_check_names_place_and_fix(world, tmp_path):
    user_policy(world, "filesystem:\n  reed: [/x]\n")
    result = world("check")
    assert result.returncode == FAILURE
    assert "policy.yaml:3:3: unknown key 'filesystem.reed'" in result.stderr
    assert "did you mean 'filesystem.read'?" in result.stderr
    good = tmp_path / "good.yaml"
    good.write_text(VERSION)
    assert world("check", str(good)).returncode == 0
    assert world("check", str(tmp_path / "none.yaml")).returncode == FAILURE
    good.write_bytes(b"\xef\xbb\xbfversion: 1\r\nmode: static\r\n")  # as other systems' editors write it
    assert world("check", str(good)).returncode == 0


def test_explain_reads_and_writes(world):
    assert explain(world, str(world.home / ".ssh/id_rsa"))["verdict"] == "hide"
    assert explain(world, "src/a.c", "--write")["verdict"] == "allow"
    hooks = explain(world, ".git/hooks/x", "--write")
    assert (hooks["verdict"], hooks["flag"]) == ("deny", "--unprotect")
    assert hooks["rule"]["origin"]["store"] == "built-in"
    assert "sandbox run --ro" in world("explain", str(world.home / ".ssh/id_rsa")).stdout


def test_explain_knows_what_is_reserved(world):
    """`git init` fails where there is no repository: the name is kept for what is protected in it."""
    assert explain(world, ".git", "--write")["verdict"] == "allow"
    shutil.rmtree(world.project / ".git")
    named = explain(world, ".git", "--write")
    assert (named["verdict"], named["flag"], named["key"]) == ("deny", "--unprotect", "unprotect")
    user_policy(world, "filesystem: {unprotect: [.git]}\n")
    assert explain(world, ".git", "--write")["verdict"] == "allow"


def test_explain_says_whether_a_secret_is_asked_about(world):
    secret = str(world.home / ".ssh/id_rsa")
    assert not explain(world, secret)["asks_secret"]
    assert "ask_secrets: true" in world("explain", secret).stdout
    user_policy(world, "filesystem: {ask_secrets: true, hide: [/srv/x]}\n")
    assert explain(world, secret)["asks_secret"]
    assert "with a warning" in world("explain", secret).stdout
    assert not explain(world, "/srv/x")["asks_secret"], "what a store hides is never asked about"
    assert "asked:" not in world("explain", "/srv/x").stdout + world("explain", "src/a.c").stdout


def test_explain_looks_behind_links(world):
    (world.project / "innocent").symlink_to(world.home / ".ssh/id_rsa")
    assert explain(world, "innocent")["verdict"] == "hide"
    (world.project / ".env").symlink_to("settings")
    (world.project / "settings").write_text("")
    assert explain(world, ".env")["verdict"] == "hide"


def test_project_policy_needs_trust(world):
    project_policy(world, "network: {mode: full}\nfilesystem: {hide: [private]}\n")
    result = world("check")
    assert result.returncode == 0 and "sandbox policy trust" in result.stderr
    assert "mode: none" in world("show").stdout
    assert explain(world, "private")["verdict"] == "hide"
    assert world("trust").returncode == 0
    assert "mode: full" in world("show").stdout
    assert str(world.project) in world("trust", "--list").stdout
    project_policy(world, "network: {mode: full}\n# changed\n")
    assert "mode: none" in world("show").stdout
    assert json.loads(world("trust", "--revoke", "--json").stdout)["changed"] == 1


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace")
@pytest.mark.parametrize("call", ["fsync", "rename,renameat,renameat2"], ids=["fsync", "rename"])
def test_killed_while_it_writes(world, sandbox, call):
    """A list is there as it was or as it should be, and nothing is in the way of who comes next. In a
    container that may be one with the same pid."""
    project_policy(world, "network: {mode: full}\n")
    alone = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
    trace = ["strace", "-f", "-qq", "-o", str(world.home / "trace"), "-e", f"trace={call}",
             "-e", f"inject={call}:signal=KILL"]
    environment = {"HOME": str(world.home), "PATH": "/usr/bin:/bin"}

    def trust(*before):
        return subprocess.run([*before, *alone, sandbox, "policy", "trust"], cwd=world.project,
                              env=environment, capture_output=True, text=True)

    assert trust(*trace).returncode, "it was not killed"
    assert call == "rename,renameat,renameat2" or not list(world.home.rglob("*.tmp"))
    again = trust()
    assert again.returncode == 0 and "mode: full" in world("show").stdout, again


@pytest.mark.parametrize("words", [["frob"], ["explain"], ["show", "x"], ["trust", "x", "y"]])
def test_wrong_words(world, words):
    result = world(*words)
    assert result.returncode == FAILURE and "sandbox: " in result.stderr


def bind_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


NOT_A_FILE = {"FIFO": os.mkfifo, "folder": os.mkdir, "socket": bind_socket,
              "device": lambda path: os.symlink("/dev/null", path),
              "symbolic link": lambda path: os.symlink("/nowhere/at/all", path)}


@pytest.mark.parametrize("name", ["policy.yaml", "grants.yaml"])
@pytest.mark.parametrize("kind", NOT_A_FILE)
def test_what_is_in_the_place_of_a_store_is_named(world, name, kind):
    """Nobody knows which rules were meant to be there: nothing starts, and nothing hangs."""
    store = world.home / ".config/sandbox" / name
    store.parent.mkdir(parents=True)
    NOT_A_FILE[kind](store)
    result = world("show")
    assert result.returncode == FAILURE
    assert f"{store}: this is a {kind}" in result.stderr and "remove it" in result.stderr


@pytest.mark.parametrize("place", [".config", ".config/sandbox"])
@pytest.mark.parametrize("lay, what", [
    (lambda path: path.symlink_to("/nowhere/at/all"), "this is a symbolic link that leads nowhere"),
    (lambda path: path.write_text(""), "this is a file, not a folder"),
], ids=["link", "file"])
def test_the_folder_of_a_store_is_no_folder(world, place, lay, what):
    path = world.home / place
    path.parent.mkdir(exist_ok=True)
    assert world("show").returncode == 0  # control: an absent folder is no rules
    lay(path)
    result = world("show")
    assert result.returncode == FAILURE
    assert f"{path}: {what}" in result.stderr and "remove it" in result.stderr
