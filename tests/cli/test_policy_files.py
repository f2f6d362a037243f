"""Policies as files: export, import, diff; and the grants that are kept."""

import json
import os
import shutil
import subprocess

import pytest

import dynamic
from sessions import running, sandbox

MINE = """# mine
version: 1
filesystem:
  read: [/opt/sdk, ~/notes]
  hide: ["**/*.kdbx"]
network: {mode: filtered, allow: [a.example]}
"""
THEIRS = """version: 1
mode: static
filesystem: {read: [/opt/sdk, /opt/more], write: [build]}
network: {allow: ["b.example:443"]}
limits: {memory_mb: 512}
environment: {set: {A: "x y"}}
"""


class Files:
    def __init__(self, box):
        self.box = box
        self.mine = box.home(".config/sandbox/policy.yaml")

    def policy(self, *words, **more):
        return sandbox(self.box, "policy", *words, **more)

    def write(self, path, text):
        self.box.identity.file(path, text)
        return path

    def read(self, path):
        with open(path) as source:
            return source.read()

    def shown(self):
        result = json.loads(self.policy("show", "--json").stdout)
        rules = sorted((rule["kind"], rule["pattern"]) for rule in result["rules"])
        return result["policy"], rules


@pytest.fixture
def files(box):
    return Files(box)


def test_export_loads_again(files):
    files.write(files.mine, MINE)
    before = files.shown()
    exported = files.policy("export").stdout
    assert "/opt/sdk" in exported and "mode: filtered" in exported
    files.write(files.mine, exported)
    assert files.policy("check").exit == 0
    assert files.shown() == before


def test_export_of_nothing_is_a_policy(files):
    out = files.policy("export").stdout
    assert out.endswith("version: 1\n")


def test_import_dry_run_writes_nothing(files):
    files.write(files.mine, MINE)
    theirs = files.write(files.box.path("theirs.yaml"), THEIRS)
    result = files.policy("import", "--dry-run", theirs)
    assert result.exit == 0, result
    assert result.stdout.splitlines() == [
        "+ mode: static", "+ filesystem.read: /opt/more", "+ filesystem.write: build",
        "+ network.allow: b.example:443", "+ limits.memory_mb: 512", "+ environment.set: A=x y"]
    assert files.read(files.mine) == MINE


def test_import_merges_and_keeps_the_old_one(files):
    files.write(files.mine, MINE)
    theirs = files.write(files.box.path("theirs.yaml"), THEIRS)
    result = files.policy("import", theirs)
    assert result.exit == 0 and "written" in result.stderr, result
    merged = files.read(files.mine)
    assert merged.startswith("# mine\nversion: 1\n")
    assert files.read(files.mine + ".old") == MINE
    assert files.policy("check").exit == 0
    for part in ("/opt/sdk", "/opt/more", "~/notes", "b.example:443", "a.example", "memory_mb: 512"):
        assert merged.count(part) == 1, (part, merged)
    # Once more: nothing changes.
    again = files.policy("import", theirs)
    assert again.exit == 0 and again.stdout == "" and files.read(files.mine) == merged


def test_import_is_in_the_audit_log(files):
    files.policy("import", files.write(files.box.path("theirs.yaml"), THEIRS))
    events = sandbox(files.box, "audit", "--event", "policy.write", "--json").stdout.splitlines()
    assert json.loads(events[-1])["file"] == files.mine


def test_import_while_a_session_runs(files):
    """The folders are placeholders of the session meanwhile."""
    theirs = files.write(files.box.path("theirs.yaml"), THEIRS)
    shutil.rmtree(files.box.path(".sandbox"))
    with running(files.box, ["sleep", "30"], "--rw", files.box.home(".config")):
        assert files.policy("import", theirs).exit == 0
        assert files.policy("import", "--project", theirs).exit == 0
    assert "memory_mb: 512" in files.read(files.mine)
    assert "memory_mb: 512" in files.read(files.box.path(".sandbox/policy.yaml"))


def test_import_into_the_project_is_not_trusted(files):
    theirs = files.write(files.box.path("theirs.yaml"), THEIRS)
    result = files.policy("import", "--project", theirs)
    assert result.exit == 0 and "sandbox policy trust" in result.stderr, result
    assert "memory_mb: 512" in files.read(files.box.path(".sandbox/policy.yaml"))
    assert "is not trusted" in files.policy("check").stderr


def test_import_of_another_programs_settings(files):
    settings = files.write(files.box.path("sub/.claude/settings.json"), json.dumps(
        {"sandbox": {"enabled": True, "network": {"allowedDomains": ["a.example"]}, "nonsense": 1}}))
    for words in ([], ["--from", "claude"]):
        result = files.policy("import", "--dry-run", *words, settings)
        assert result.exit == 0 and "+ network.allow: a.example" in result.stdout, result
        assert "not imported" in result.stderr and "nonsense" in result.stderr, result
    assert files.policy("import", "--from", "sandbox", settings).exit == 125
    assert files.policy("import", "--from", "other", settings).exit == 125


@pytest.mark.parametrize("text, said", [
    ("version: 1\nfilesystem: {reed: [/x]}\n", "theirs.yaml:2:14: unknown key 'filesystem.reed'"),
    ("version: 2\n", "version"), ("{", "theirs.yaml:"), ("- a\n", "not a format known here"),
    ("nonsense: 1\n", "not a format known here"),
])
def test_import_of_a_wrong_file(files, text, said):
    files.write(files.mine, MINE)
    result = files.policy("import", files.write(files.box.path("theirs.yaml"), text))
    assert result.exit == 125 and said in result.stderr, result
    assert files.read(files.mine) == MINE


def test_import_into_a_wrong_file(files):
    files.write(files.mine, "version: 1\nnonsense: 1\n")
    result = files.policy("import", files.write(files.box.path("theirs.yaml"), THEIRS))
    assert result.exit == 125 and "policy.yaml:2:1" in result.stderr, result
    assert files.read(files.mine) == "version: 1\nnonsense: 1\n"


def test_import_does_not_follow_a_planted_link(files):
    """A repository whose .sandbox leads elsewhere."""
    elsewhere = files.box.home("elsewhere")
    files.box.identity.folder(elsewhere)
    folder = files.box.path(".sandbox")
    os.rename(folder, folder + "-was")
    os.symlink(elsewhere, folder)
    theirs = files.write(files.box.path("theirs.yaml"), THEIRS)
    assert files.policy("import", "--project", theirs).exit == 125
    assert os.listdir(elsewhere) == []
    os.unlink(folder)
    os.rename(folder + "-was", folder)
    # Nor a file whose content would be kept beside it.
    other = files.write(os.path.join(elsewhere, "other.yaml"), MINE)
    os.unlink(files.box.path(".sandbox/policy.yaml"))
    os.symlink(other, files.box.path(".sandbox/policy.yaml"))
    result = files.policy("import", "--project", theirs)
    assert result.exit == 125 and "not a regular file" in result.stderr, result
    assert files.read(other) == MINE and not os.path.exists(files.box.path(".sandbox/policy.yaml.old"))


def test_diff(files):
    files.write(files.mine, MINE)
    theirs = files.write(files.box.path("theirs.yaml"), THEIRS)
    assert "+ network.mode: filtered" in files.policy("diff").stdout.splitlines()
    lines = files.policy("diff", "user", theirs).stdout.splitlines()
    assert "- filesystem.read: ~/notes" in lines and "+ limits.memory_mb: 512" in lines
    assert "filesystem.read: /opt/sdk" not in "".join(lines)
    assert files.policy("diff", theirs, theirs).stdout == ""
    report = json.loads(files.policy("diff", "user", theirs, "--json").stdout)
    assert "limits.memory_mb: 512" in report["added"]
    assert files.policy("diff", "nowhere.yaml").exit == 125


# ---- grants ----

def grant(files, text, project=None):
    path = files.box.home(".config/sandbox/grants.yaml")
    return files.write(path, "version: 1\ngrants:\n" + text)


def test_grants_are_listed_shown_and_revoked(files):
    tree = files.box.home("sdk")
    files.box.identity.folder(tree)
    path = grant(files, f"  - {{decision: allow, path: \"{tree}\", access: read, by: ann,"
                        " when: \"2026-11-15T22:31:08Z\", why: \"gcc asked\"}\n"
                        "  - {decision: deny, host: pastebin.example, by: ann}\n")
    listed = files.policy("grants").stdout
    assert f"allow read {tree}" in listed and "by ann, 2026-11-15T22:31:08Z: gcc asked" in listed
    found = json.loads(files.policy("grants", "--json").stdout)["grants"]
    assert [(one["decision"], one["scope"], one["line"]) for one in found] == [
        ("allow", "user", 3), ("deny", "user", 4)]
    assert f"{path}:3:5: approved by ann" in files.policy("show").stdout
    assert "approved by ann" in files.policy("explain", tree).stdout
    assert files.policy("revoke", tree).exit == 0
    assert tree not in files.policy("grants").stdout and "pastebin" in files.policy("grants").stdout
    assert "approved by" not in files.policy("show").stdout
    assert files.policy("revoke", "pastebin.example").exit == 0
    assert files.policy("grants").stdout == ""


def test_a_granted_name_that_became_a_link(files):
    tree, secret = files.box.home("sdk"), files.box.home("other")
    files.box.identity.folder(secret)
    os.symlink(secret, tree)
    grant(files, f"  - {{decision: allow, path: \"{tree}\", access: write, by: ann}}\n")
    warned = files.policy("check")
    assert warned.exit == 0 and "leads elsewhere" in warned.stderr, warned
    result = files.box.run(["sh", "-c", f"echo x > {secret}/made"])
    assert not os.path.exists(os.path.join(secret, "made")), result
    assert files.policy("revoke", tree).exit == 0
    assert "leads elsewhere" not in files.policy("check").stderr


def test_a_wrong_grants_file_stops_every_start(files):
    grant(files, "  - {decision: allow, pth: /x}\n")
    result = files.box.run(["true"])
    assert result.exit == 125 and "grants.yaml:3:23: unknown key 'pth'" in result.stderr, result
    assert "did you mean 'path'?" in result.stderr


@pytest.mark.parametrize("name", ["policy.yaml", "grants.yaml"])
@pytest.mark.parametrize("target", ["/no/such/file", "policy.yaml", "grants.yaml"])
def test_a_link_that_leads_nowhere_stops_every_start(files, name, target):
    """Whoever put it there has rules behind it, also such that deny."""
    folder = files.box.home(".config/sandbox")
    files.box.identity.folder(folder)
    assert files.box.run(["true"]).exit == 0, "the control"
    os.symlink(target, f"{folder}/{name}")
    result = files.box.run(["true"])
    assert result.exit == 125 and f"{folder}/{name}" in result.stderr and "fix:" in result.stderr, result


def test_grants_that_cannot_be_looked_for_stop_every_start(files):
    if files.box.identity.uid == 0:
        pytest.skip("root may look everywhere")
    grant(files, "  - {decision: deny, path: /x, access: read}\n")
    projects = files.box.home(".config/sandbox/projects")
    files.box.identity.folder(projects)
    assert files.box.run(["true"]).exit == 0, "the control"
    os.chmod(projects, 0)
    try:
        result = files.box.run(["true"])
        assert result.exit == 125 and "Permission denied" in result.stderr, result
    finally:
        os.chmod(projects, 0o700)


def test_only_an_administrator_approves_for_everybody(files):
    if files.box.identity.uid == 0:
        pytest.skip("root may, and would change this machine")
    data = dynamic.ground(files.box)
    with dynamic.asking(files.box, ["cat", f"{data}/a.txt"]) as session, session.watch() as control:
        asked = dynamic.question(control)
        reply = dynamic.answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "org"})
        assert "error" in reply and "/etc/sandbox" in json.dumps(reply), reply
    assert not os.path.exists("/etc/sandbox/grants.yaml")


def test_an_approval_survives_the_placeholder(files):
    """While the session runs, the folder of the user's policy is a placeholder of ours."""
    data = dynamic.ground(files.box)
    config = files.box.home(".config")
    assert not os.path.exists(os.path.join(config, "sandbox"))
    with dynamic.asking(files.box, ["cat", f"{data}/a.txt"], "--rw", config) as session:
        with session.watch() as control:
            asked = dynamic.question(control)
            reply = dynamic.answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "user"})
            assert reply == {"ok": True}, reply
        assert session.result()[:2] == (0, "content of a\n")
    assert f"allow read {data}/a.txt" in files.policy("grants").stdout
    assert dynamic.run(files.box, ["cat", f"{data}/a.txt"]).stdout == "content of a\n"


def test_grants_of_a_repository_do_not_count(files):
    files.write(files.box.path(".sandbox/grants.yaml"),
                f"version: 1\ngrants:\n  - {{decision: allow, path: \"{files.box.home()}\"}}\n")
    assert "approved" not in files.policy("show").stdout
    assert files.policy("grants").stdout == ""


def test_the_workload_cannot_grant_itself(files):
    grant(files, "  - {decision: deny, host: pastebin.example}\n")
    folder = files.box.home(".config/sandbox")
    script = f"echo x >> {folder}/grants.yaml; mkdir -p {folder}/projects/x; rm -rf {folder}/grants.yaml"
    before = files.read(f"{folder}/grants.yaml")
    files.box.run(["sh", "-c", script], options=["--rw", files.box.home(".config")])
    assert files.read(f"{folder}/grants.yaml") == before
    assert not os.path.exists(f"{folder}/projects")


# Locks what it can open of the folders it is given, and says what that was.
LOCKER = """import fcntl, os, sys, time
held = []
for top in sys.argv[1:]:
    for folder, _, names in os.walk(top):
        for path in [folder, *(os.path.join(folder, name) for name in names)]:
            held.append(os.open(path, os.O_RDONLY))
            fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            print(path, flush=True)
print("done", flush=True)
time.sleep(60)
"""


def test_the_workload_cannot_stop_changes(files):
    """Who can open a file can lock it: what we lock ourselves is where no session can look."""
    data = dynamic.ground(files.box)
    config, state = files.box.home(".config/sandbox"), files.box.home(".local/state/sandbox")
    grant(files, "  - {decision: deny, host: pastebin.example}\n  - {decision: deny, host: b.example}\n")
    files.write(f"{config}/grants.lock", "")  # of an older version
    assert files.policy("revoke", "b.example").exit == 0
    with running(files.box, ["python3", "-c", LOCKER, config, state], "--static",
                 stdout=subprocess.PIPE) as (process, _):
        locked = [line.decode().strip() for line in iter(process.stdout.readline, b"done\n")]
        assert {config, f"{config}/grants.yaml"} <= set(locked), locked  # the control
        assert not [path for path in locked if os.path.isfile(path) and path.startswith(state)]
        assert files.policy("revoke", "pastebin.example").exit == 0
        with dynamic.asking(files.box, ["cat", f"{data}/a.txt"]) as session, \
                session.watch() as control:
            asked = dynamic.question(control)
            reply = dynamic.answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "user"})
            assert reply == {"ok": True}, reply
            assert session.result()[:2] == (0, "content of a\n")
    assert files.policy("grants").stdout.count("allow read") == 1
    assert sorted(os.listdir(config)) == ["grants.yaml"]
