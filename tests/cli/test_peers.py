"""What broke for users of other sandboxes, or got out of them, and is tested nowhere else."""

import os
import shutil
import time

import pytest

SLOW_BUILD = bool(os.environ.get("SANDBOX_SANITIZED"))
NO_FOLDERS = ["env", "-u", "XDG_STATE_HOME", "-u", "XDG_RUNTIME_DIR", "-u", "HOME"]


def shell(box, script, **more):
    return box.run(["sh", "-c", script], **more)


@pytest.fixture
def fallback(box):
    """/tmp/sandbox-UID, which serves where there is no other folder; free for the test."""
    path = f"/tmp/sandbox-{box.identity.uid}"
    if os.path.lexists(path) and (os.path.islink(path) or any(os.scandir(path))):
        pytest.skip(f"{path} is in use")
    if os.path.lexists(path):
        os.rmdir(path)
    yield path
    if os.path.islink(path):
        os.unlink(path)
    else:
        shutil.rmtree(path, ignore_errors=True)


def test_predictable_name_is_a_link(box, fallback):
    """CVE-2026-46406: whoever was first in /tmp chose where the tool writes."""
    trap = box.home("trap")
    box.identity.folder(trap)
    os.symlink(trap, fallback)
    box.run(["true"], before=[*NO_FOLDERS, f"HOME={box.home('missing')}"])
    assert os.listdir(trap) == [], "written through the link"


def test_predictable_name_of_another_user(box, fallback, host_root):
    os.mkdir(fallback, 0o777)
    os.chmod(fallback, 0o777)
    os.chown(fallback, 12345, 12345)
    result = box.run(["true"], before=[*NO_FOLDERS, f"HOME={box.home('missing')}"])
    assert os.listdir(fallback) == [], "written into another user's folder"
    assert result.exit == 0 or "fix:" in result.stderr, result


@pytest.mark.parametrize("prefix", ["/proc/self/root", "/proc/$$/root", "/proc/self/cwd/../..",
                                    "/proc/thread-self/root", "/./", "//"])
def test_detours_to_a_hidden_file(box, prefix):
    """Past a list of names by way of /proc."""
    target = box.home(".ssh/id_rsa")
    path = f"{prefix}/.ssh/id_rsa" if "cwd" in prefix else prefix + target
    if "cwd" in prefix:
        path = "/proc/self/cwd/../.ssh/id_rsa"
    assert box.canary in box.plain(["sh", "-c", f"cat {path}"]).stdout, "no control"
    result = shell(box, f"cat {path}")
    assert result.exit != 0, result


def test_links_planted_in_an_overlay(box):
    """CVE-2026-39861, CVE-2025-55345: what was written inside is followed by the tool outside."""
    victim = box.home("victim")
    box.identity.file(os.path.join(victim, "file"), "kept\n")
    script = (f"ln -s {victim} sub/link; ln -s {victim}/file sub/file; mkdir -p sub/a/b;"
              f"ln -s {victim} sub/a/b/c; ln -s / sub/a/root; chmod 0 sub/a")
    assert shell(box, script, options=["--overlay", "sub"]).exit == 0
    with open(os.path.join(victim, "file")) as source:
        assert source.read() == "kept\n"
    assert not os.path.lexists(box.path("sub/link"))


def test_settings_absent_at_the_start(box):
    """CVE-2026-25725: protected only if it existed."""
    script = ("mkdir .devcontainer .cursor; echo evil > .devcontainer/devcontainer.json;"
              " echo evil > .cursor/mcp.json; ln -s README.md .codex; mv README.md .gemini; true")
    assert shell(box, script).exit == 0
    for name in (".devcontainer", ".cursor", ".codex", ".gemini"):
        assert not os.path.lexists(box.path(name)), name
    assert os.path.exists(box.path("README.md"))


@pytest.mark.parametrize("text", ["filesystem: {write: []}", "network: {allow: []}",
                                  "filesystem: {hide: []}", "filesystem: {}", "network: {}"])
def test_empty_list_is_not_everything(box, text):
    """CVE-2025-66479: an empty list of domains meant no network sandbox."""
    policy = box.identity.file(box.home("policy.yaml"), f"version: 1\n{text}\n")
    script = f"cat ~/.ssh/id_rsa; echo x > {box.home('outside')}; ls /sys/class/net"
    result = shell(box, script, options=["--policy", policy])
    assert result.stdout == "lo\n" and not os.path.exists(box.home("outside")), result


def test_thousands_of_matches(box):
    """claude-code#74081: a glob was expanded into an argument list until E2BIG."""
    for i in range(3000):
        box.identity.file(box.path("many", f"f{i}.secret"), "SECRET\n")
    find = "cat many/f7.secret many/f2999.secret; echo end"
    assert box.plain(["sh", "-c", find]).stdout.count("SECRET") == 2, "no control"
    began = time.monotonic()
    result = shell(box, find, options=["--blacklist", "**/*.secret"])
    assert result.stdout == "end\n", result
    assert SLOW_BUILD or time.monotonic() - began < 3


def test_no_surprising_limits(box):
    """nsjail#181: what the caller may, the command may, except for core files."""
    argv = ["bash", "-c", "ulimit -a | grep -v -e core -e 'pending signals'"]
    assert box.run(argv).stdout == box.plain(argv).stdout


def test_removing_the_temporary_folder(box):
    """claude-code#43096: rm -rf "$TMPDIR" hit the workspace."""
    result = shell(box, 'rm -rf "$TMPDIR"/* "$TMPDIR"/.??*; cd "$TMPDIR" && ls -A; rm -rf "$TMPDIR"',
                   env={"TMPDIR": box.project})
    assert os.path.exists(box.path("README.md")), result


def test_policy_of_a_repository_is_not_trusted(box):
    """GHSA-wpqr-6v78-jr5g: a project's own settings took effect before anybody was asked."""
    box.identity.file(box.path(".sandbox/policy.yaml"),
                      f'version: 1\nfilesystem: {{write: ["{box.identity.home}"], read: ["~/.ssh"]}}\n')
    result = shell(box, f"cat ~/.ssh/id_rsa; echo x > {box.home('outside')}; true")
    assert not os.path.exists(box.home("outside"))
    assert "trust" in result.stderr, f"nobody was told: {result}"
