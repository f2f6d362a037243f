"""A folder that one session has closed to its owner hides from the next what has to be protected in
it, and whoever is its owner can open it again: also the command."""

import os
import subprocess

import pytest

PEER = os.environ.get("SANDBOX_PEER")
pytestmark = [pytest.mark.escape,
              pytest.mark.skipif(bool(PEER), reason="a promise of ours, not of other sandboxes")]

SECRET = "KEY=hunter2"


def git(box, *words):
    assert box.plain(["git", "-c", "protocol.file.allow=always", "-c", "user.name=a", "-c",
                      "user.email=a@example.org", *words]).exit == 0, words


def content(path):
    with open(path, encoding="utf-8") as text:
        return text.read()


@pytest.mark.parametrize("mode", ["0", "0311", "0644"])
@pytest.mark.parametrize("closed", [".git", ".", "sub", "sub/vendor"])
def test_closed_by_an_earlier_session(box, closed, mode):
    """As a plain user nothing starts, and the fix is named; root looks into it all the same."""
    box.identity.file(box.path("sub", ".env"), SECRET + "\n", 0o600)
    git(box, "init", "-q", box.path("sub", "vendor"))
    configs = [box.path(".git/config"), box.path("sub/vendor/.git/config")]
    before = [content(path) for path in configs]
    try:
        assert box.run(["chmod", mode, closed]).exit == 0
        result = box.run(["sh", "-c", f"chmod 755 {closed}; cat sub/.env; echo evil >>.git/config; "
                          "echo evil >>sub/vendor/.git/config; echo evil >.git/hooks/post-merge"])
        assert SECRET not in result.stdout, result
        if box.identity.uid != 0:
            assert result.exit == 125 and "  fix: " in result.stderr, result
    finally:
        os.chmod(box.path(closed), 0o755)
    assert [content(path) for path in configs] == before
    assert not os.path.exists(box.path(".git/hooks/post-merge"))
    assert box.run(["true"]).exit == 0, "open again, it starts"


def test_beside_folders_that_cannot_be_opened_inside(box):
    """Some are closed that the command cannot change, and one that it can: whichever comes first."""
    if box.identity.uid == 0:
        pytest.skip("root looks into everything")
    kept, other = [box.path(name) for name in (".vscode", ".idea", ".claude")], box.path("sub")
    for folder in (*kept, other):
        if not os.path.isdir(folder):
            box.identity.folder(folder)
    try:
        for folder in kept:
            os.chmod(folder, 0)
        assert box.run(["true"]).exit == 0, "control"
        os.chmod(other, 0)
        result = box.run(["true"])
        assert result.exit == 125 and repr(other) in result.stderr, result
    finally:
        for folder in (*kept, other):
            os.chmod(folder, 0o755)
    assert box.run(["true"]).exit == 0


def test_folder_of_somebody_else(box):
    """Nobody inside can open it, and it is in nobody's way: a database's, for example."""
    if box.identity.uid == 0:
        pytest.skip("root looks into everything")
    os.mkdir(box.path("data"), 0o700)  # root's
    try:
        assert box.run(["true"]).exit == 0
    finally:
        os.rmdir(box.path("data"))


def test_git_file_that_claims_another_submodule(box):
    """Its git folder is writable only for the work tree that it names."""
    top = box.home("big")
    for name in ("one", "two"):
        git(box, "init", "-q", box.home(name))
        git(box, "-C", box.home(name), "commit", "-q", "--allow-empty", "-m", "x")
    git(box, "init", "-q", top)
    for name in ("one", "two"):
        git(box, "-C", top, "submodule", "-q", "add", box.home(name), name)
    place, other = os.path.join(top, "one"), os.path.join(top, ".git/modules/two")
    probe = f"touch {top}/.git/modules/one/own && echo OWN; touch {other}/x && echo OTHER"
    assert box.run(["sh", "-c", probe], cwd=place).stdout == "OWN\n", "control"
    planted = box.run(["sh", "-c", f"mkdir n && echo 'gitdir: {other}' >n/.git"], cwd=place)
    assert planted.exit == 0, planted
    assert box.run(["sh", "-c", probe], cwd=place).stdout == "OWN\n"
    assert not os.path.exists(os.path.join(other, "x"))
    subprocess.run(["rm", "-rf", top, box.home("one"), box.home("two")], check=True)


# Makes a chain of folders, and secrets at some depths in folders beside it, before and behind it in any order.
DEPTHS = (80, 200)
DIG = f"DEPTHS = {DEPTHS}" + """
import os, sys
levels, name, secret, last = int(sys.argv[1]), *sys.argv[2:]
at = os.open("deep", os.O_RDONLY)
for level in range(levels):
    os.mkdir(name, dir_fd=at)
    for other in "aceg" if level in DEPTHS else "":
        os.mkdir(other, dir_fd=at)
        with open(os.open(other + "/.env", os.O_CREAT | os.O_WRONLY, dir_fd=at), "w") as file:
            file.write(secret)
    below = os.open(name, os.O_RDONLY, dir_fd=at)
    os.close(at)
    at = below
os.close(os.open(last, os.O_CREAT | os.O_WRONLY, dir_fd=at))
"""


def few_files(box, argv):
    """Starts it where a process may have no more open than this."""
    return box.plain(["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *box.wrap(argv)])


def test_tree_that_is_deeper_than_descriptors(box):
    """An earlier session made it: the next one starts, and hides what is in it. The control: outside it
    is read."""
    box.identity.folder(box.path("deep"))
    secrets = [f"deep/{'d/' * level}{name}/.env" for level in DEPTHS for name in "aceg"]
    try:
        assert box.run(["python3", "-c", DIG, "1200", "d", SECRET + "\n", "last"]).exit == 0
        outside, inside = box.plain(["cat", *secrets]), few_files(box, ["cat", *secrets])
        assert outside.stdout.count(SECRET) == len(secrets), outside
        assert inside.exit == 1 and not inside.stdout, inside
        assert inside.stderr.count("Permission denied") == len(secrets), inside
    finally:
        subprocess.run(["rm", "-rf", box.path("deep")], check=True)


# Walks to the end of such a chain; what is there is read, and changed.
DIG_OUT = """
import os, sys
levels, name, last = int(sys.argv[1]), *sys.argv[2:]
at = os.open("deep", os.O_RDONLY)
for level in range(levels):
    below = os.open(name, os.O_RDONLY, dir_fd=at)
    os.close(at)
    at = below
print(os.read(os.open(last, os.O_RDWR, dir_fd=at), 99).decode(), "reached")
"""


@pytest.mark.parametrize("name, levels, last", [
    ("d" * 200, 30, ".env"), ("d" * 200, 30, ".git/config"), ("d", 3000, ".env")],
    ids=["secret", "repository", "many-levels"])
def test_what_is_too_deep_to_be_mounted_on(box, name, levels, last):
    """An earlier session made it: the next one starts, and says that a folder above is hidden, so that
    neither the secret nor the repository can be reached. The control: any other name at that place can."""
    script = DIG.replace("os.close(os.open(last", "os.fchdir(at)\n"
                         "for part in ('objects', 'refs') if '/' in last else ():\n"
                         "    os.makedirs('.git/' + part)\nos.close(os.open(last")
    for there, reached in (("other", True), (last, False)):
        box.identity.folder(box.path("deep"))
        try:
            assert box.run(["python3", "-c", script, str(levels), name, "", there]).exit == 0
            assert "reached" in box.plain(["python3", "-c", DIG_OUT, str(levels), name, there]).stdout
            result = box.run(["python3", "-c", DIG_OUT, str(levels), name, there])
            assert ("reached" in result.stdout) == reached, result
            assert ("too deep" in result.stderr) == ("PermissionError" in result.stderr) == (not reached)
            if levels < min(DEPTHS):  # else there is another secret on the way
                moved = box.run(["sh", "-c", f"mv deep aside && mv aside/{name} deep && echo moved"])
                assert (moved.stdout == "moved\n") == reached, moved
        finally:
            subprocess.run(["rm", "-rf", box.path("deep"), box.path("aside")], check=True)
