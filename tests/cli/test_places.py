"""Where a project can lie, what a repository can look like, and which rule wins for a path."""

import contextlib
import os
import shutil
import stat
import subprocess
import tempfile

import pytest

import harness

# The sanitizers' own cost is not the product's.
SLOW_BUILD = bool(os.environ.get("SANDBOX_SANITIZED"))
AUTHOR = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
          "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org"}
MAKES_A_FILE = 'echo made > "made here" && cat "made here"'
ODD_NAMES = [b"with space", b"new\nline", b"quote'\"s", b"back\\slash", b"co:lon,comma",
             b"[bracket", b"star*?", b"{brace}~$HOME", b"not\xff\xfeutf8", b"-dash", b"#hash",
             b"\xc3\xa9\xe2\x80\xae", b"tab\tand\x07bell", b" ", b"...", b"\\040"]


def shell(box, script, cwd, options=(), env=None, **more):
    return box.run(["sh", "-c", script], cwd=cwd, options=options, env={**AUTHOR, **(env or {})},
                   **more)


def outside(box, script, cwd, **more):
    """The same identity, no sandbox; must work."""
    result = box.plain(["sh", "-ec", script], cwd=cwd, env=AUTHOR, **more)
    assert result.exit == 0, result
    return result.stdout


def project_at(box, path):
    box.identity.folder(path)
    box.identity.file(os.path.join(path, "README.md"), "ordinary\n")
    return path


def check_project(box, path, options=(), **more):
    """The project is writable, the machine is not, and nothing is left but what was made."""
    result = shell(box, MAKES_A_FILE, path, options, **more)
    assert (result.exit, result.stdout) == (0, "made\n"), result
    with open(os.path.join(path, "made here")) as made:
        assert made.read() == "made\n"
    assert sorted(os.listdir(path)) == ["README.md", "made here"]
    refused = shell(box, f"echo x > '{box.home('outside')}'", path, options, **more)
    assert refused.exit != 0 and not os.path.exists(box.home("outside"))


@contextlib.contextmanager
def temporary_project(box, parent):
    folder = tempfile.mkdtemp(prefix="sandbox-test-", dir=parent)
    box.identity.own(folder)
    try:
        yield project_at(box, os.path.join(folder, "project"))
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def mounted(box, point, *options):
    box.identity.folder(point)
    subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", point], check=True)
    try:
        box.identity.own(point)
        yield point
    finally:
        subprocess.run(["umount", point], check=True)


# ---- where ----


def test_ordinary(box):
    check_project(box, project_at(box, box.home("p")))


def test_other_file_system(box, host_root):
    with mounted(box, box.home("mnt")) as point:
        check_project(box, project_at(box, os.path.join(point, "p")))
        shell(box, "echo at root > x", point)
        assert os.path.exists(os.path.join(point, "x")), "the project is the mount point itself"


def test_mount_inside_the_project(box, host_root):
    project = project_at(box, box.home("p"))
    with mounted(box, os.path.join(project, "mnt")) as point:
        result = shell(box, "echo x > mnt/x && cat mnt/x", project)
        assert result.stdout == "x\n" and os.path.exists(os.path.join(point, "x")), result


def test_read_only_file_system(box, host_root):
    with mounted(box, box.home("mnt")) as point:
        project_at(box, point)
        subprocess.run(["mount", "-o", "remount,ro", point], check=True)
        result = shell(box, "cat README.md; echo x > x", point)
        assert "ordinary" in result.stdout and result.exit != 0 and result.exit < 125, result
        asked = box.run(["true"], cwd=box.project, options=["--rw", point])
        assert asked.exit == 125 and "read-only" in asked.stderr, asked


@pytest.mark.parametrize("parent", ["/tmp", "/var/tmp", "/dev/shm"])
def test_below_a_private_place(box, parent):
    with temporary_project(box, parent) as project:
        if parent == "/dev/shm":
            result = box.run(["true"], cwd=project)
            assert result.exit in (0, 125), result
            assert result.exit == 0 or "fix:" in result.stderr, result
        else:
            check_project(box, project)
            siblings = shell(box, f"ls {parent}", project).stdout.split()
            assert siblings == [os.path.basename(os.path.dirname(project))], siblings


def test_directly_in_tmp(box):
    """cwd = /tmp: it is private, so it starts empty, and works."""
    result = shell(box, "ls -A; echo x > sandbox-test-x && cat sandbox-test-x", "/tmp")
    assert (result.exit, result.stdout) == (0, "x\n"), result
    assert "private to the session" in result.stderr, result
    assert not os.path.exists("/tmp/sandbox-test-x")


def test_a_marker_in_tmp_makes_no_project(box):
    """Anybody can put a .git into /tmp; it must not make all of /tmp the project."""
    with temporary_project(box, "/tmp") as project:
        shared = os.path.dirname(project)
        os.chmod(shared, 0o1777)
        os.mkdir(os.path.join(shared, ".git"))
        check_project(box, project)
        result = shell(box, "echo x > ../x; ls -A ..", project)
        assert not os.path.exists(os.path.join(shared, "x")) and ".git" not in result.stdout, result


def test_through_a_symbolic_link(box):
    project = project_at(box, box.home("real"))
    os.symlink("real", box.home("link"))
    check_project(box, project, options=["-C", box.home("link")])
    result = box.run(["sh", "-c", "echo x > x"], cwd=box.home("link"),
                     env={"PWD": box.home("link")})
    assert result.exit == 0 and os.path.exists(os.path.join(project, "x")), result


@pytest.mark.parametrize("name", ODD_NAMES, ids=repr)
def test_odd_names(box, name):
    project = project_at(box, os.fsdecode(os.path.join(os.fsencode(box.home("odd")), name)))
    check_project(box, project)
    box.identity.file(os.path.join(project, "secret"), box.canary)
    box.identity.file(os.path.join(project, "fixed"), "fixed")
    result = shell(box, "cat secret; echo x > fixed", project,
                   ["--blacklist", "secret", "--ro", "fixed"])
    assert result.exit != 0 and "made" not in result.stdout
    with open(os.path.join(project, "fixed")) as fixed:
        assert fixed.read() == "fixed"


@pytest.mark.parametrize("name", ODD_NAMES, ids=repr)
def test_odd_names_as_options(box, name):
    """What a flag names is a path if it exists, whatever characters are in it."""
    other = project_at(box, os.fsdecode(os.path.join(os.fsencode(box.home("odd")), name)))
    project = project_at(box, box.home("p"))
    process = box.popen(["sh", "-c", 'cd "$1" && "$0" run --static --rw "$2" -- sh -c "$3" sh "$2"',
                         box.world.command, project, other, 'echo x > "$1/x"'])
    assert process.wait(10) == 0
    assert os.path.exists(os.path.join(other, "x"))


def test_deep_path(box):
    path = box.home("deep", *["x" * 200] * 15)
    check_project(box, project_at(box, path))


def test_deeper_than_a_path_can_say(box):
    script = ('i=0; while [ $i -lt 25 ]; do mkdir -p $(printf %0200d 0); cd $(printf %0200d 0);'
              ' i=$((i+1)); done; "$S" run --static -- true')
    result = box.plain(["bash", "-c", script], cwd=box.home(), env={"S": box.world.command})
    assert result.exit == 125 and "fix:" in result.stderr, result
    subprocess.run(["rm", "-rf", box.home("0" * 200)], check=True)


def test_read_only_folder(box):
    project = project_at(box, box.home("p"))
    os.chmod(project, 0o555)
    result = shell(box, "cat README.md && echo x > x", project)
    assert "ordinary" in result.stdout and 0 < result.exit < 125, result
    assert os.listdir(project) == ["README.md"]


def test_project_of_another_user(box, host_root):
    project = project_at(box, box.home("p"))
    for path in (project, os.path.join(project, "README.md")):
        os.chown(path, 12345, 12345)
    result = shell(box, "cat README.md && echo x > x", project)
    assert "ordinary" in result.stdout and 0 < result.exit < 125, result
    assert os.listdir(project) == ["README.md"]


# ---- home ----


def test_home_is_not_writable(box):
    result = shell(box, "cat readable.txt && echo x > x", box.home())
    assert "ordinary" in result.stdout and 0 < result.exit < 125, result
    assert not os.path.exists(box.home("x"))


def test_no_litter_in_the_home(box):
    before = sorted(os.listdir(box.home()))
    inside = shell(box, "ls -A", box.home()).stdout.split("\n")[:-1]
    assert sorted(os.listdir(box.home())) == before == sorted(inside)


def test_read_only_home(box):
    project = project_at(box, box.home("p"))
    os.chmod(box.home(), 0o555)
    try:
        result = shell(box, MAKES_A_FILE, project, before=["env", "-u", "XDG_STATE_HOME"])
        assert (result.exit, result.stdout) == (0, "made\n"), result
    finally:
        os.chmod(box.home(), 0o755)
        shutil.rmtree(box.home(".local", "state"), ignore_errors=True)


@pytest.mark.parametrize("home", [None, "/no/such/home", "relative", "/", ""])
def test_no_home(box, home):
    project = project_at(box, os.path.join(box.world.base, f"no-home-{box.identity.name}"))
    try:
        before = ["env", "-u", "XDG_STATE_HOME", "-u", "XDG_CONFIG_HOME"]
        before += ["-u", "HOME"] if home is None else [f"HOME={home}"]
        result = shell(box, MAKES_A_FILE, project, before=before)
        assert (result.exit, result.stdout) == (0, "made\n"), result
        assert sorted(os.listdir(project)) == ["README.md", "made here"]
    finally:
        shutil.rmtree(project)
        shutil.rmtree(box.home(".local", "state"), ignore_errors=True)


def test_home_below_tmp(box):
    """It would vanish behind the private /tmp with every tool in it; its secrets must."""
    with temporary_project(box, "/tmp") as project:
        home = os.path.dirname(project)
        box.identity.file(os.path.join(home, ".ssh/id_rsa"), box.canary)
        box.identity.file(os.path.join(home, "tool"), "#!/bin/sh\necho tool\n", 0o755)
        control = box.plain(["cat", os.path.join(home, ".ssh/id_rsa")])
        assert box.canary in control.stdout
        result = shell(box, "../tool; cat ../.ssh/id_rsa; echo x > ../x; echo x > x", project,
                       env={"HOME": home})
        assert result.stdout == "tool\n" and os.path.exists(os.path.join(project, "x")), result
        assert not os.path.exists(os.path.join(home, "x"))


def test_root_folder(box):
    """cwd = /: nothing is writable, and nobody walks the machine."""
    result = shell(box, "pwd; echo x > /sandbox-test-x", "/")
    assert result.stdout == "/\n" and 0 < result.exit < 125, result
    assert result.seconds < (3 if SLOW_BUILD else 0.5), result.seconds


def test_below_the_project_root(box):
    box.identity.folder(box.path("src", "deep"))
    result = shell(box, "echo x > ../../x && pwd", box.path("src", "deep"))
    assert (result.exit, result.stdout) == (0, box.path("src", "deep") + "\n"), result
    assert os.path.exists(box.path("x"))


def test_project_above_home_is_not_taken(box):
    """A marker in or above the home folder must not make all of it the project."""
    os.mkdir(box.home(".git"))
    box.identity.own(box.home(".git"))
    project = project_at(box, box.home("p"))
    check_project(box, project)


# ---- git ----


def repository(box, name="repo"):
    path = project_at(box, box.home(name))
    outside(box, "git init -q -b main && git add . && git commit -qm first", path)
    return path


def is_clean(box, path):
    """What the human's git sees: no placeholder, ever."""
    return outside(box, "git status --porcelain", path) == ""


COMMIT = "echo more >> README.md && git commit -qam inside && git log --format=%s -1"


def commits(box, path, options=()):
    result = shell(box, COMMIT, path, options)
    assert (result.exit, result.stdout) == (0, "inside\n"), result
    assert result.stderr == "", result
    assert outside(box, "git log --format=%s -1", path) == "inside\n"
    assert is_clean(box, path)


def cannot_write(box, cwd, paths, options=()):
    """Neither change, replace nor create; outside, the same user can."""
    for path in paths:
        script = f"echo evil >> '{path}' || {{ mv '{path}' '{path}.x' && echo evil > '{path}'; }}"
        result = shell(box, script + "; true", cwd, options)
        assert result.exit == 0, result
        target = path if os.path.isabs(path) else os.path.join(cwd, path)
        if os.path.isfile(target):
            with open(target) as source:
                assert "evil" not in source.read(), f"written from inside: {path}"
        assert not os.path.lexists(target + ".x"), f"moved from inside: {path}"
        assert box.plain(["sh", "-c", f'test -w "$(dirname {target})"']).exit == 0, "no control"


def test_git_works(box):
    path = repository(box)
    commits(box, path)
    script = ("set -e; git status --porcelain; echo b >> README.md; git diff --stat | tail -1;"
              "git stash -q; git status --porcelain; git stash pop -q; git checkout -q -b other;"
              "git commit -qam other; git checkout -q main; git merge -q other; git branch -d other;"
              "git tag v1; git log --oneline | wc -l; git clone -q . sub/clone;"
              "git -C sub/clone log --format=%s -1; git gc -q; git fsck --no-dangling")
    result = shell(box, script, path)
    assert result.exit == 0, result
    assert result.stdout.splitlines()[-2:] == ["3", "other"], result


def test_git_config_and_hooks_are_read_only(box):
    path = repository(box)
    cannot_write(box, path, [".git/config", ".git/hooks/pre-commit", ".git/hooks/new",
                             ".git/config.worktree", ".git/commondir", ".git/info/attributes"])
    result = shell(box, "git config core.fsmonitor ./evil; mv .git x; rm -rf .git/hooks .git/info;"
                   "mv .git/info .git/other; true", path)
    assert result.exit == 0
    assert "fsmonitor" not in outside(box, "git config -l", path)
    assert os.path.isdir(os.path.join(path, ".git", "hooks")) and is_clean(box, path)


def test_git_keeps_house_without_complaint(box):
    """It writes .git/info, of which only the attributes are protected."""
    path = repository(box)
    result = shell(box, "git gc -q && git update-server-info && echo x >> .git/info/exclude", path)
    assert (result.exit, result.stdout, result.stderr) == (0, "", ""), result
    assert os.path.exists(os.path.join(path, ".git/info/refs"))
    assert sorted(os.listdir(os.path.join(path, ".git/info"))) == ["exclude", "refs"]


def test_own_hooks_run_inside(box):
    path = repository(box)
    box.identity.file(os.path.join(path, ".git/hooks/pre-commit"), "#!/bin/sh\nhostname >&2\n", 0o755)
    result = shell(box, COMMIT, path)
    assert result.exit == 0 and result.stderr.startswith("sandbox-"), result


def test_linked_worktree(box):
    path = repository(box)
    outside(box, "git worktree add -q ../tree", path)
    tree = box.home("tree")
    commits(box, tree)
    result = shell(box, "git branch other && git stash list && git worktree list", tree)
    assert result.exit == 0 and path in result.stdout, result
    cannot_write(box, tree, [f"{path}/README.md", f"{path}/.git/config", f"{path}/.git/hooks/x",
                             f"{path}/.git/worktrees/tree/commondir",
                             f"{path}/.git/worktrees/tree/gitdir",
                             f"{path}/.git/worktrees/tree/config.worktree", ".git"])
    assert is_clean(box, tree) and is_clean(box, path)


def test_worktree_inside_the_project(box):
    path = repository(box)
    outside(box, "git worktree add -q inner && echo inner > .git/info/exclude", path)
    commits(box, path)
    commits(box, os.path.join(path, "inner"))
    result = shell(box, "cd inner && git status --porcelain", path)
    assert (result.exit, result.stdout) == (0, ""), result
    cannot_write(box, path, [".git/worktrees/inner/commondir", "inner/.git"])


def test_worktree_of_a_bare_repository(box):
    repository(box)
    outside(box, "git clone -q --bare repo store.git && git -C store.git worktree add -q ../tree main",
            box.home())
    commits(box, box.home("tree"))
    cannot_write(box, box.home("tree"), [box.home("store.git/hooks/x"), box.home("store.git/config")])


def test_worktree_config(box):
    path = repository(box)
    outside(box, "git worktree add -q ../tree; git config extensions.worktreeConfig true;"
                 "git config --worktree user.name here; git -C ../tree config --worktree user.name there",
            path)
    commits(box, path)
    commits(box, box.home("tree"))
    cannot_write(box, path, [".git/config.worktree"])
    cannot_write(box, box.home("tree"), [f"{path}/.git/worktrees/tree/config.worktree"])


def test_git_file_to_a_foreign_folder(box):
    """It is the repository's own claim, and would make somebody else's repository writable."""
    victim = repository(box, "victim")
    path = project_at(box, box.home("p"))
    box.identity.file(os.path.join(path, ".git"), f"gitdir: {victim}/.git\n")
    result = shell(box, "git status --porcelain; true", path)
    assert "warning" in result.stderr and "not made writable" in result.stderr, result
    cannot_write(box, path, [f"{victim}/.git/HEAD", f"{victim}/.git/objects/x", ".git"])
    result = shell(box, "git commit -qm evil --allow-empty", path)
    assert result.exit != 0
    assert outside(box, "git log --format=%s -1", victim) == "first\n"


def test_forged_worktree(box):
    """A planted administrative folder names the foreign repository as its common folder."""
    victim = repository(box, "victim")
    path = project_at(box, box.home("p"))
    for name, text in (("commondir", f"{victim}/.git\n"), ("gitdir", f"{path}/.git\n"),
                       ("HEAD", "ref: refs/heads/main\n")):
        box.identity.file(os.path.join(path, "admin", name), text)
    box.identity.file(os.path.join(path, ".git"), f"gitdir: {path}/admin\n")
    cannot_write(box, path, [f"{victim}/.git/HEAD", f"{victim}/.git/objects/x"])


def test_git_is_a_link_inside(box):
    path = repository(box)
    outside(box, "mv .git .store && ln -s .store .git && echo .store > .store/info/exclude", path)
    commits(box, path)
    cannot_write(box, path, [".store/config", ".store/hooks/x", ".git/hooks/x"])
    shell(box, "rm .git; ln -s elsewhere .git; true", path)
    assert os.readlink(os.path.join(path, ".git")) == ".store"


def test_git_is_a_link_outside(box):
    path = repository(box)
    outside(box, "mv .git ../store && ln -s ../store .git", path)
    result = shell(box, "git status --porcelain && git log --format=%s -1", path)
    assert (result.exit, result.stdout) == (0, "first\n"), result
    cannot_write(box, path, [box.home("store/config"), box.home("store/hooks/x")])


@pytest.mark.parametrize("where", ["tools/hooks", "../hooks"], ids=["inside", "outside"])
def test_hooks_are_a_link(box, where):
    path = repository(box)
    target = os.path.normpath(os.path.join(path, where))
    box.identity.file(os.path.join(target, "pre-commit"), "#!/bin/sh\necho ran >&2\n", 0o755)
    shutil.rmtree(os.path.join(path, ".git/hooks"))
    os.symlink(os.path.relpath(target, os.path.join(path, ".git")), os.path.join(path, ".git/hooks"))
    result = shell(box, COMMIT, path)
    assert (result.exit, result.stderr) == (0, "ran\n"), result
    cannot_write(box, path, [f"{target}/pre-commit", f"{target}/post-commit", ".git/hooks/pre-push"])
    shell(box, "rm .git/hooks; mkdir .git/hooks; true", path)
    assert os.path.islink(os.path.join(path, ".git/hooks"))


def test_one_hook_is_a_link(box):
    path = repository(box)
    box.identity.file(os.path.join(path, "tools/check"), "#!/bin/sh\necho ran >&2\n", 0o755)
    os.symlink("../../tools/check", os.path.join(path, ".git/hooks/pre-commit"))
    result = shell(box, COMMIT, path)
    assert (result.exit, result.stderr) == (0, "ran\n"), result
    cannot_write(box, path, [".git/hooks/pre-commit", ".git/hooks/new", "tools/check"])


def test_dangling_hooks_link(box):
    path = repository(box)
    shutil.rmtree(os.path.join(path, ".git/hooks"))
    os.symlink("../nowhere", os.path.join(path, ".git/hooks"))
    commits(box, path)
    shell(box, "mkdir nowhere && echo evil > nowhere/pre-commit; true", path)
    assert not os.path.exists(os.path.join(path, "nowhere/pre-commit")), "a hook came into being"


def test_hooks_folder_named_in_the_config(box):
    """core.hooksPath, and a configuration that is included from the project."""
    path = repository(box)
    box.identity.file(os.path.join(path, "tools/hooks/pre-commit"), "#!/bin/sh\necho ran >&2\n", 0o755)
    box.identity.file(os.path.join(path, "tools/gitconfig"), "[user]\n\temail = x@example.org\n")
    outside(box, "git config core.hooksPath tools/hooks; git config include.path ../tools/gitconfig;"
                 "git add .; git commit -qm tools", path)
    result = shell(box, COMMIT, path)
    assert (result.exit, result.stderr) == (0, "ran\n"), result
    cannot_write(box, path, ["tools/hooks/pre-commit", "tools/hooks/post-commit", "tools/gitconfig"])


def test_core_worktree(box):
    path = repository(box)
    tree = project_at(box, box.home("tree"))
    outside(box, f"git config core.worktree {tree}", path)
    result = shell(box, "git status --porcelain", path)
    assert result.exit == 0, result
    cannot_write(box, path, [f"{tree}/README.md", f"{tree}/new"])


def with_submodule(box):
    repository(box, "library")
    path = repository(box, "super")
    outside(box, "git -c protocol.file.allow=always submodule add -q ../library lib 2>/dev/null &&"
                 "git commit -qm submodule", path)
    return path


def test_submodule_from_the_superproject(box):
    path = with_submodule(box)
    result = shell(box, f"git submodule status && cd lib && {COMMIT} && cd .. && "
                        "git commit -qam bump && git status --porcelain", path)
    assert result.exit == 0 and result.stdout.endswith("inside\n"), result
    cannot_write(box, path, [".git/modules/lib/config", ".git/modules/lib/hooks/x", "lib/.git",
                             ".git/modules/lib/commondir"])
    assert is_clean(box, path)


def test_inside_a_submodule(box):
    path = with_submodule(box)
    lib = os.path.join(path, "lib")
    result = shell(box, COMMIT, lib)
    assert (result.exit, result.stdout, result.stderr) == (0, "inside\n", ""), result
    cannot_write(box, lib, [f"{path}/.git/modules/lib/config", f"{path}/.git/modules/lib/hooks/x",
                            f"{path}/.git/config", f"{path}/.git/HEAD", f"{path}/README.md", ".git"])


def test_bare_repository(box):
    repository(box)
    outside(box, "git clone -q --bare repo store.git", box.home())
    bare = box.home("store.git")
    script = ("git log --format=%s -1 && git clone -q . /tmp/copy && cd /tmp/copy &&"
              "git commit -qm pushed --allow-empty && git push -q origin main && cd - >/dev/null &&"
              "git log --format=%s -1")
    result = shell(box, script, bare)
    assert (result.exit, result.stdout) == (0, "first\npushed\n"), result
    cannot_write(box, bare, ["config", "hooks/post-update", "info/attributes", "commondir"])
    assert "commondir" not in os.listdir(bare)


def test_nested_repository(box):
    path = repository(box)
    box.identity.folder(os.path.join(path, "deps"))
    outside(box, "git clone -q . deps/inner && echo deps > .git/info/exclude", path)
    commits(box, path)
    result = shell(box, "cd deps/inner && git status --porcelain", path)
    assert (result.exit, result.stdout) == (0, ""), result
    cannot_write(box, path, ["deps/inner/.git/config", "deps/inner/.git/hooks/pre-commit"])


def test_unprotect(box):
    path = repository(box)
    result = shell(box, "git config test.key value", path, ["--unprotect", ".git/config"])
    assert result.exit == 0, result
    assert outside(box, "git config test.key", path) == "value\n"


def test_unprotect_a_folder(box):
    """With it the built-in names in it, as for `git init`; what somebody protects in it stays so."""
    path = box.path("new")
    box.identity.file(os.path.join(path, "kept/by-hand"), "ordinary\n")
    box.identity.file(box.path("rules.yaml"),
                      f"version: 1\nfilesystem: {{protect: ['{path}/kept/by-hand']}}\n")
    options = ["--policy", box.path("rules.yaml"), "--unprotect", "."]
    result = shell(box, "git init -q . && echo x >kept/other && ! echo x >kept/by-hand", path, options)
    assert result.exit == 0 and "Read-only" in result.stderr, result
    assert outside(box, "git rev-parse --git-dir; cat kept/*", path) == ".git\nordinary\nx\n"


# ---- placeholders: sandbox-runtime#139 #103, claude-code#25603, bubblewrap#427 ----


def running(box, cwd, script="echo ready; read line", options=()):
    process = box.start(["sh", "-c", script], cwd=cwd, options=options, stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def finish(process):
    process.communicate(b"\n", timeout=10)
    return process.returncode


def test_placeholders_are_invisible_to_git(box):
    path = repository(box)
    process = running(box, path)
    assert os.path.isdir(os.path.join(path, ".vscode")), "no placeholder: nothing to test"
    assert is_clean(box, path), "during"
    outside(box, "echo y >> README.md && git commit -qam 'outside, during' && git worktree list", path)
    inside = shell(box, "git status --porcelain", path)
    assert inside.stdout == "", inside
    assert finish(process) == 0
    assert is_clean(box, path), "after"
    assert sorted(os.listdir(path)) == [".git", "README.md"]
    left = set(os.listdir(os.path.join(path, ".git"))) & {"commondir", "config.worktree"}
    assert not left


@pytest.mark.parametrize("closed", ["500 .", "500 . .git"])
def test_no_placeholder_stays_in_a_closed_folder(box, closed):
    """The command has taken the right to write to its folder away, and that is as it was left."""
    path = repository(box)
    result = shell(box, f"test -d .vscode && chmod {closed}", path)
    mode = stat.S_IMODE(os.stat(path).st_mode)
    os.chmod(path, 0o755)
    assert result.exit == 0 and mode == int(closed[:3], 8), (result, mode)
    assert sorted(os.listdir(path)) == [".git", "README.md"]
    assert not {"commondir", "config.worktree"} & set(os.listdir(os.path.join(path, ".git")))


def test_two_sessions_in_one_project(box):
    path = repository(box)
    first, second = running(box, path), running(box, path, "echo ready; read line; "
                                                "mkdir .vscode; echo x > .vscode/tasks.json; "
                                                "rmdir .vscode; test -d .vscode")
    assert finish(first) == 0
    assert os.path.isdir(os.path.join(path, ".vscode")), "the second session lost its placeholder"
    assert finish(second) == 0
    assert sorted(os.listdir(path)) == [".git", "README.md"]


def test_many_sessions_in_one_project(box):
    path = repository(box)
    processes = [box.start(["sh", "-c", "mkdir .vscode 2>/dev/null && echo evil"], cwd=path,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(30)]
    for process in processes:
        out, err = process.communicate(timeout=20)
        assert (out, err) == (b"", b""), (out, err)
    assert sorted(os.listdir(path)) == [".git", "README.md"]


def test_what_a_person_makes_meanwhile_stays(box):
    """An empty folder of somebody else is never removed, nor one with something in it."""
    path = repository(box)
    process = running(box, path)
    os.rmdir(os.path.join(path, ".vscode"))
    box.identity.file(os.path.join(path, ".vscode/settings.json"), "{}\n")
    assert finish(process) == 0
    assert os.path.exists(os.path.join(path, ".vscode/settings.json"))
    box.identity.folder(os.path.join(path, ".idea"))
    shell(box, "true", path)
    assert os.path.isdir(os.path.join(path, ".idea"))
    shutil.rmtree(os.path.join(path, ".idea"))
    shutil.rmtree(os.path.join(path, ".vscode"))


# ---- many rules: bubblewrap#384 #754, claude-code#74081 #84681 #92684 ----


def milliseconds(box, options, cwd, times=7):
    taken = []
    for _ in range(times):
        result = box.run(["true"], cwd=cwd, options=options)
        assert result.exit == 0, result
        taken.append(result.seconds * 1000)
    return sorted(taken)[times // 2]


def report(capsys, text):
    with capsys.disabled():
        print(f"\n  measured: {text}", end="")


def test_two_thousand_paths(box, capsys):
    project = project_at(box, box.home("p"))
    names = [os.path.join(project, "many", f"file{i}") for i in range(2000)]
    for name in names:
        box.identity.file(name, "x")
    plain = milliseconds(box, [], project)
    many = milliseconds(box, [word for name in names for word in ("--ro", name)], project)
    report(capsys, f"2,000 --ro paths: {many:.0f} ms, none: {plain:.0f} ms")
    assert SLOW_BUILD or many - plain < 300
    result = shell(box, "echo x > many/file1999; echo x > many/new", project,
                   [word for name in names for word in ("--ro", name)])
    assert "file1999" in result.stderr and result.exit == 0, result


# To make them takes longer than all else, and everybody waits for the disk.
LARGE = 100000 if os.environ.get("SANDBOX_TEST_LONG") else 20000


@pytest.fixture(scope="module")
def large_tree(world):
    """15 files of many are to be hidden, one in node_modules."""
    top = os.path.join(world.base, "large")
    for i in range(200):
        folder = os.path.join(top, "packages" if i % 2 else "node_modules", f"d{i}")
        os.makedirs(folder)
        handle = os.open(folder, os.O_PATH)
        for j in range(LARGE // 200):
            os.close(os.open(f"file{j}.js", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=handle))
        os.close(handle)
    for i in range(15):
        with open(os.path.join(top, "node_modules" if i == 0 else "packages",
                               f"d{i * 2 + (i > 0)}", f"a.secret{i}"), "w") as out:
            out.write("SECRET\n")
    yield top
    shutil.rmtree(top)


@pytest.mark.parametrize("identity", harness.SOME, indirect=True)
def test_globs_over_a_large_tree(box, large_tree, capsys):
    empty = project_at(box, box.home("p"))
    options = [word for i in range(15)
               for word in ("--blacklist", os.path.join(large_tree, f"**/*.secret{i}"))]
    plain = milliseconds(box, [], empty)
    built_in = milliseconds(box, [], large_tree)
    globs = milliseconds(box, options, large_tree)
    report(capsys, f"15 globs over {LARGE:,} files: {globs:.0f} ms, the built-in ones alone:"
                   f" {built_in:.0f} ms, empty project: {plain:.0f} ms")
    find = ["sh", "-c", "find . -name '*.secret*' -exec cat {} + 2>/dev/null"]
    assert box.plain(find, cwd=large_tree).stdout.count("SECRET") == 15, "no control"
    assert box.run(find, cwd=large_tree, options=options).stdout.count("SECRET") == 0
    assert SLOW_BUILD or globs - plain < 200


# ---- which rule wins ----


@pytest.fixture
def tree(box):
    """d/{open,secret}, d/w/{file}, d/w/r/{file}: a folder with all kinds in it."""
    path = project_at(box, box.home("p"))
    for name in ("open", "secret", "w/file", "w/r/file", "w/r/ww/file"):
        box.identity.file(os.path.join(path, "d", name), name + "\n")
    return path


def reads(box, cwd, path, options):
    return shell(box, f"cat '{path}'", cwd, options).exit == 0


def writes(box, cwd, path, options):
    return shell(box, f"echo x >> '{path}'", cwd, options).exit == 0


def test_hidden_folder_with_a_readable_file(box, tree):
    options = ["--blacklist", "d", "--ro", "d/open"]
    assert reads(box, tree, "d/open", options)
    assert not writes(box, tree, "d/open", options)
    assert not reads(box, tree, "d/secret", options)
    assert not reads(box, tree, "d/w/file", options)
    assert shell(box, "ls d", tree, options).stdout == "open\n"


def test_hidden_folder_with_a_writable_folder(box, tree):
    options = ["--blacklist", "d", "--rw", "d/w"]
    assert writes(box, tree, "d/w/file", options) and writes(box, tree, "d/w/new", options)
    assert not reads(box, tree, "d/secret", options)


def test_readable_folder_with_a_hidden_file(box, tree):
    options = ["--ro", "d", "--blacklist", "d/secret"]
    assert reads(box, tree, "d/open", options) and not writes(box, tree, "d/open", options)
    assert not reads(box, tree, "d/secret", options)
    assert not writes(box, tree, "d/new", options)


def test_hidden_in_readable_in_hidden(box, tree):
    options = ["--blacklist", "d", "--ro", "d/w", "--blacklist", "d/w/r"]
    assert reads(box, tree, "d/w/file", options)
    assert not reads(box, tree, "d/w/r/file", options)
    assert not reads(box, tree, "d/open", options)


def test_write_in_read_in_write(box, tree):
    options = ["--ro", "d/w/r", "--rw", "d/w/r/ww"]
    assert writes(box, tree, "d/w/file", options)
    assert not writes(box, tree, "d/w/r/file", options)
    assert writes(box, tree, "d/w/r/ww/file", options)


def test_order_of_flags_does_not_matter(box, tree):
    options = ["--rw", "d/w/r/ww", "--ro", "d/w/r"]
    assert not writes(box, tree, "d/w/r/file", options)
    assert writes(box, tree, "d/w/r/ww/file", options)


def test_rules_of_a_policy_file(box, tree):
    box.identity.file(box.home("policy.yaml"), f"""version: 1
filesystem:
  write: ["{tree}/d/w/r/ww"]
  read: ["{tree}/d", "{tree}/d/secret/none"]
  hide: ["{tree}/d/**/file", "{tree}/d/secret"]
""")
    options = ["--policy", box.home("policy.yaml")]
    assert reads(box, tree, "d/open", options) and not writes(box, tree, "d/open", options)
    for name in ("d/secret", "d/w/file", "d/w/r/file"):
        assert not reads(box, tree, name, options), name
    assert writes(box, tree, "d/w/r/ww/new", options)


def test_overlay(box, tree):
    script = "echo x >> d/open && echo new > d/new && rm d/w/file && cat d/open d/new; ls d/w"
    result = shell(box, script, tree, ["--overlay", "d"])
    assert (result.exit, result.stdout) == (0, "open\nx\nnew\nr\n"), result
    with open(os.path.join(tree, "d/open")) as source:
        assert source.read() == "open\n"
    assert not os.path.exists(os.path.join(tree, "d/new"))
    assert os.path.exists(os.path.join(tree, "d/w/file"))


def test_overlay_with_other_rules_inside(box, tree):
    options = ["--overlay", "d", "--blacklist", "d/secret", "--ro", "d/w/r", "--rw", "d/w/r/ww"]
    assert writes(box, tree, "d/open", options)
    assert not reads(box, tree, "d/secret", options)
    assert not writes(box, tree, "d/w/r/file", options), "read inside overlay"
    assert writes(box, tree, "d/w/r/ww/file", options)
    with open(os.path.join(tree, "d/open")) as source:
        assert source.read() == "open\n"
    with open(os.path.join(tree, "d/w/r/ww/file")) as source:
        assert source.read() == "w/r/ww/file\nx\n"


def test_overlay_of_a_system_folder(box):
    result = shell(box, "echo x > /usr/share/sandbox-test && cat /usr/share/sandbox-test",
                   box.project, ["--overlay", "/usr/share"])
    assert (result.exit, result.stdout) == (0, "x\n"), result
    assert not os.path.exists("/usr/share/sandbox-test")


def test_hidden_link(box, tree):
    """A glob that finds a link hides the object; one that leads nowhere or too far hides nothing."""
    for name, target in ((".env", "d/secret"), ("d/.env", "/no/such/file"), ("d/w/.env", ".."),
                         ("d/w/r/.env", "/")):
        os.symlink(target, os.path.join(tree, name))
    assert not reads(box, tree, ".env", []) and not reads(box, tree, "d/secret", [])
    assert reads(box, tree, "d/open", []) and writes(box, tree, "d/w/file", [])


def test_path_of_a_policy_file_that_does_not_exist(box, tree):
    """A file may list what other machines have; a flag means this one, now."""
    box.identity.file(box.home("policy.yaml"),
                      "version: 1\nfilesystem: {read: [/no/such/place], write: [/no/such/place]}\n")
    result = shell(box, "true", tree, ["--policy", box.home("policy.yaml")])
    assert (result.exit, result.stderr) == (0, ""), result
    loud = shell(box, "true", tree, ["--policy", box.home("policy.yaml"), "--verbose"])
    assert "/no/such/place" in loud.stderr and "left out" in loud.stderr, loud


def test_prefix_is_not_a_folder(box, tree):
    """/x/d never matches /x/dd."""
    box.identity.file(os.path.join(tree, "dd", "file"), "x")
    options = ["--blacklist", "d", "--ro", "dd/file"]
    assert reads(box, tree, "dd/file", options) and writes(box, tree, "dd/new", options)


def test_rule_through_a_link_means_the_object(box, tree):
    """CVE-2026-25724: the rule matched the link's name, not its target."""
    os.symlink("d/secret", os.path.join(tree, "link"))
    assert not reads(box, tree, "d/secret", ["--blacklist", "link"])
    assert not reads(box, tree, "link", ["--blacklist", "d/secret"])
