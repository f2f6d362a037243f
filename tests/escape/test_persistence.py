"""E20-E22, E37-E51: leaving something behind that the host runs later."""

import contextlib
import os
import stat
import subprocess

import pytest

from harness import DYNAMIC, PROTECTED_ABSENT, PROTECTED_PRESENT
from rows import READ_ONLY, Row, ShellRow, judge, judge_shell, refuses, snapshot, table

pytestmark = pytest.mark.escape

P = "{project}/"


def spare_file(box):
    box.identity.file(box.path("spare"), "PAYLOAD\n", 0o755)


def spare_folder(box):
    box.identity.file(box.path("spare/pre-commit"), "PAYLOAD\n", 0o755)


def on_present(verb, argv, ground=None):
    """One way of changing, on every protected file that exists."""
    return [Row(f"{row_of(name)}.{verb}.{name}", [word.replace("{it}", P + name) for word in argv],
                READ_ONLY, ground=ground, unchanged=(P + name,)) for name in PROTECTED_PRESENT]


def on_absent(verb, argv, ground=None):
    """One way of creating, on every protected file that does not exist."""
    return [Row(f"{row_of(name)}.{verb}.{name}", [word.replace("{it}", P + name) for word in argv],
                READ_ONLY, ground=ground, unchanged=(P + name,)) for name in PROTECTED_ABSENT]


def row_of(name):
    for prefix, row in ((".git/hooks", "E37"), (".git", "E38"), (".vscode", "E40"), (".idea", "E40"),
                        (".devcontainer", "E40"), (".helix", "E40"), (".envrc", "E41"), (".sandbox", "E50")):
        if name.startswith(prefix):
            return row
    return "E39"


CHANGES = [
    *on_present("append", ["write", "{it}"]),
    *on_present("truncate", ["E29.truncate", "{it}"]),
    *on_present("unlink", ["unlink", "{it}"]),
    *on_present("chmod", ["chmod", "{it}"]),
    *on_present("away", ["rename", "{it}", P + "elsewhere"]),
    *on_present("over", ["rename", P + "spare", "{it}"], spare_file),
    *on_present("exchange", ["exchange", P + "spare", "{it}"], spare_file),
    *on_present("link", ["linkwrite", "{it}", P + "alias"]),
    *on_present("symlink", ["E17", "{it}", "/proc/self/fd"]),
]

CREATIONS = [
    *on_absent("create", ["create", "{it}"]),
    Row("E20", ["create", P + ".claude/settings.local.json"], READ_ONLY,
        unchanged=(P + ".claude",)),
    Row("E21", ["create", P + ".devcontainer/devcontainer.json"], READ_ONLY,
        unchanged=(P + ".devcontainer",)),
    *[Row(f"E21.mkdir.{name}", ["mkdir", P + name], READ_ONLY)
      for name in (".cursor", ".codex", ".gemini", ".devcontainer")],
    *[Row(f"E21.symlink.{name}", ["symlink", "spare", P + name], READ_ONLY, ground=spare_folder)
      for name in (".cursor", ".codex", ".gemini", ".devcontainer")],
    *[Row(f"E21.rename.{name}", ["rename", P + "spare", P + name], READ_ONLY, ground=spare_folder)
      for name in (".cursor", ".codex", ".gemini", ".devcontainer")],
    Row("E37.tmpfile", ["tmpfile", P + ".git/hooks", P + ".git/hooks/post-merge"], READ_ONLY),
    Row("E37.tmpfile-across", ["tmpfile", P + "sub", P + ".git/hooks/post-merge"], READ_ONLY),
    Row("E37.link-into", ["link", P + "spare", P + ".git/hooks/post-merge"], READ_ONLY,
        ground=spare_file),
    Row("E37.folder-away", ["rename", P + ".git/hooks", P + "hooks"], READ_ONLY,
        unchanged=(P + ".git/hooks",)),
    Row("E37.folder-exchange", ["exchange", P + ".git/hooks", P + "spare"], READ_ONLY,
        ground=spare_folder, unchanged=(P + ".git/hooks",)),
    Row("E37.nested", ["rename", P + ".vscode", P + "editor"], READ_ONLY,
        unchanged=(P + ".vscode",)),
    Row("E39.mcp-by-symlink", ["symlink", "spare", P + ".mcp.json"], READ_ONLY,
        ground=lambda box: os.unlink(box.path(".mcp.json")), unchanged=(P + ".mcp.json",)),
    Row("E39.mcp-absent", ["write", P + ".mcp.json"], READ_ONLY,
        ground=lambda box: os.unlink(box.path(".mcp.json")), unchanged=(P + ".mcp.json",)),
    Row("E41.envrc-absent", ["write", P + ".envrc"], READ_ONLY,
        ground=lambda box: os.unlink(box.path(".envrc")), unchanged=(P + ".envrc",)),
    Row("E50.absent", ["create", P + ".sandbox/policy.yaml"], READ_ONLY,
        ground=lambda box: subprocess.run(["rm", "-r", box.path(".sandbox")], check=True) and None,
        unchanged=(P + ".sandbox",)),
]

HOME = [
    *[Row(f"E22.{name}", ["create", "{home}/" + name], READ_ONLY, unchanged=("{home}/" + name,))
      for name in (".profile", ".zshenv", ".bash_profile", ".config/fish/config.fish",
                   ".config/autostart/x.desktop", ".config/systemd/user/x.service",
                   ".local/bin/ls", ".gitconfig", ".config/git/config", ".vimrc", ".cargo/bin/x",
                   ".local/share/applications/x.desktop")],
    Row("E44", ["write", "{home}/.bashrc"], READ_ONLY, unchanged=("{home}/.bashrc",)),
    Row("E44.chmod", ["chmod", "{home}/.bashrc"], READ_ONLY, unchanged=("{home}/.bashrc",)),
    Row("E44.over", ["rename", P + "README.md", "{home}/.bashrc"], READ_ONLY,
        unchanged=("{home}/.bashrc",)),
    Row("E44.away", ["rename", "{project}", "{home}/moved"], READ_ONLY),
    *[Row(f"E46.{name}", ["write", "{home}/.ssh/" + name], READ_ONLY, unchanged=("{home}/.ssh",))
      for name in ("config", "authorized_keys", "rc", "known_hosts")],
    # control: the host refuses a plain user (EACCES).
    *[Row(f"E47.{path}", ["openw", path], READ_ONLY, refuses(user=["EACCES"]))
      for path in ("/etc/passwd", "/etc/hosts", "/etc/profile", "/usr/bin/factor")],
    Row("E47.preload", ["tmpfile", "/etc", "/etc/ld.so.preload-test"], READ_ONLY,
        control=None, no_control="it would leave a file in the host's /etc"),
    Row("E45.cron", ["tmpfile", "/etc/cron.d", "/etc/cron.d/x"], READ_ONLY,
        control=None, no_control="it would leave a file in the host's /etc"),
    # control: the host refuses (EPERM) a plain user.
    Row("E48.cap", ["E48.cap", P + "capable"], {"EPERM", "EOPNOTSUPP"}, refuses(user=["EPERM"])),
    Row("E49.block", ["mknod", P + "disk", "b", "254", "0"], {"EPERM"}, refuses(user=["EPERM"])),
    Row("E49.char", ["mknod", P + "mem", "c", "1", "1"], {"EPERM"}, refuses(user=["EPERM"])),
    Row("E51.state", ["create", "{state}/sandbox/audit/forged"], READ_ONLY),
    Row("E51.flags", ["E51.flags", P + "README.md"], {"EPERM"}, refuses(user=["EPERM"]),
        only=("user",)),
]

# Shared caches, which are not there yet.
CACHES = [Row(f"E43.{name}", ["create", "{home}/" + name], READ_ONLY, unchanged=("{home}/" + name,))
          for name in (".npm/x", ".cache/pip/x")]

STEPS = [
    ShellRow("E37.git-away", "mv .git was && mkdir -p .git/hooks && echo PAYLOAD >.git/hooks/x",
             goal="{project}/.git/hooks/x", unchanged=(P + ".git",)),
    ShellRow("E37.git-symlink", "mv .git was && mkdir -p fake/hooks && echo PAYLOAD >fake/hooks/x "
             "&& ln -s fake .git", goal="{project}/.git/hooks/x"),
    ShellRow("E37.git-file", "mkdir -p fake/hooks; mv .git was; echo 'gitdir: fake' >.git; "
             "echo PAYLOAD >>.git", goal="{project}/.git"),
    ShellRow("E37.git-exchange", "mkdir -p fake/hooks; echo PAYLOAD >fake/hooks/x; "
             "{attempt} exchange {project}/fake {project}/.git", goal="{project}/.git/hooks/x"),
    ShellRow("E37.through-link", "ln -s .git/hooks h; echo PAYLOAD >h/x",
             goal="{project}/.git/hooks/x"),
    ShellRow("E37.through-fd", "exec 9<.git/hooks; echo PAYLOAD >/proc/self/fd/9/x",
             goal="{project}/.git/hooks/x"),
    ShellRow("E37.remove-tree", "rm -rf .git/hooks; mkdir .git/hooks; echo PAYLOAD >.git/hooks/x",
             goal="{project}/.git/hooks/x", unchanged=(P + ".git/hooks",)),
    ShellRow("E38.git-config", "git config core.fsmonitor PAYLOAD", goal="{project}/.git/config"),
    ShellRow("E38.lock", "cp .git/config .git/config.lock; echo PAYLOAD >>.git/config.lock; "
             "mv .git/config.lock .git/config", goal="{project}/.git/config"),
    ShellRow("E38.sed", "sed -i 's/bare/PAYLOAD/' .git/config", goal="{project}/.git/config"),
    ShellRow("E38.info", "mkdir -p .git/info; echo '* filter=PAYLOAD' >.git/info/attributes",
             goal="{project}/.git/info/attributes"),
    ShellRow("E38.submodule", "echo PAYLOAD >>.git/modules/m/config",
             goal="{project}/.git/modules/m/config",
             ground=lambda box: box.identity.file(box.path(".git/modules/m/config"), "") and None),
    ShellRow("E38.submodule-hook", "mkdir -p .git/modules/m/hooks; "
             "echo PAYLOAD >.git/modules/m/hooks/x", goal="{project}/.git/modules/m/hooks/x",
             ground=lambda box: box.identity.file(box.path(".git/modules/m/config"), "") and None),
    ShellRow("E38.commondir", "mkdir -p fake; echo PAYLOAD >fake/config; echo ../fake >.git/commondir; "
             "cp fake/config .git/commondir", goal="{project}/.git/commondir"),
    ShellRow("E40.new-in-sub", "mkdir -p sub/.vscode; echo PAYLOAD >sub/.vscode/tasks.json",
             goal="{project}/.vscode/tasks.json", control=False,
             no_control="another folder: shows only that it does not reach the protected one"),
    ShellRow("E43.cargo", "mkdir -p {home}/.cargo/bin; echo PAYLOAD >{home}/.cargo/bin/x",
             goal="{home}/.cargo/bin/x"),
    ShellRow("E43.pip", "mkdir -p {home}/.local/lib; echo PAYLOAD >{home}/.local/lib/x.pth",
             goal="{home}/.local/lib/x.pth"),
    ShellRow("E44.dotdot", "cd sub; echo PAYLOAD >>../../.bashrc", goal="{home}/.bashrc"),
    ShellRow("E44.symlink", "ln -s ../.bashrc rc; echo PAYLOAD >>rc", goal="{home}/.bashrc"),
    ShellRow("E44.symlink-made-before", "echo PAYLOAD >>rc", goal="{home}/.bashrc",
             ground=lambda box: os.symlink("../.bashrc", box.path("rc"))),
    ShellRow("E44.project-sibling", "mkdir -p ../other && echo PAYLOAD >../other/x",
             goal="{home}/other/x"),
]


@table(CHANGES)
def test_protected_file(box, row):
    judge(box, row)


@table(CREATIONS)
def test_protected_creation(box, row):
    judge(box, row)


@table(HOME)
def test_home_and_system(box, row):
    judge(box, row)


@table(CACHES)
@pytest.mark.skipif(DYNAMIC, reason="builds may write to their caches there: SECURITY.md, tests/gate/test_everyday.py")
def test_shared_caches(box, row):
    judge(box, row)


@table(STEPS)
def test_in_steps(box, row):
    judge_shell(box, row)


# ---- forms of a repository ----

def linked_worktree(box):
    """`.git` is a file; hooks and configuration are in another folder."""
    os.rename(box.path(".git"), box.home("main.git"))
    box.identity.file(box.home("main.git/worktrees/w/commondir"), "../..\n")
    box.identity.file(box.home("main.git/worktrees/w/gitdir"), box.path(".git") + "\n")
    box.identity.file(box.home("main.git/worktrees/w/HEAD"), "ref: refs/heads/main\n")
    box.identity.file(box.path(".git"), f"gitdir: {box.home('main.git/worktrees/w')}\n")


def bare_repository(box):
    """The project is the repository itself."""
    for name in os.listdir(box.path(".git")):
        os.rename(box.path(".git", name), box.path(name))
    os.rmdir(box.path(".git"))


def separate_git_folder(box):
    """As `git init --separate-git-dir` makes it, or a bare repository beside its worktrees."""
    os.rename(box.path(".git"), box.path(".bare"))
    box.identity.file(box.path(".git"), "gitdir: ./.bare\n")


def linked_hooks(box):
    os.rename(box.path(".git/hooks"), box.path("shared-hooks"))
    os.symlink("../shared-hooks", box.path(".git/hooks"))


def configured_hooks(box):
    """core.hooksPath points to a folder of the project."""
    box.identity.file(box.path(".git/config"), "[core]\n\thooksPath = myhooks\n")
    box.identity.folder(box.path("myhooks"))


def configured_programs(box):
    """Git runs them at the next `git status`, or when it shows what has changed."""
    box.identity.file(box.path(".git/config"), "[core]\n\tfsmonitor = tools/watch\n"
                      "[filter \"x\"]\n\tclean = \"python3 clean.py %f\" # ours\n"
                      "[diff \"y\"]\n\ttextconv = \\\"" + box.path("show") + "\\\" -a .env\n"
                      "[merge \"z\"]\n\tdriver = .venv/bin/merge %A\n")
    for name in ("tools/watch", "clean.py", "show", ".venv/bin/merge"):
        box.identity.file(box.path(name), "")


def hooks_of_a_worktree(box):
    """Named by `git config --worktree core.hooksPath`."""
    linked_worktree(box)
    box.identity.file(box.home("main.git/worktrees/w/config.worktree"), "[core]\n\thooksPath = myhooks\n")
    box.identity.folder(box.path("myhooks"))


def hooks_in_a_long_configuration(box):
    """Each branch has three lines in it."""
    configured_hooks(box)
    with open(box.path(".git/config"), "a", encoding="utf-8") as config:
        config.writelines(f'[branch "b{number}"]\n\tremote = origin\n\tmerge = refs/heads/b{number}\n'
                          for number in range(2000))


FORMS = [
    ShellRow("E37.worktree-hook", "echo PAYLOAD >{home}/main.git/hooks/x",
             goal="{home}/main.git/hooks/x", ground=linked_worktree),
    ShellRow("E38.worktree-config", "echo PAYLOAD >>{home}/main.git/config",
             goal="{home}/main.git/config", ground=linked_worktree),
    ShellRow("E38.worktree-own-config", "echo PAYLOAD >{home}/main.git/worktrees/w/config.worktree",
             goal="{home}/main.git/worktrees/w/config.worktree", ground=linked_worktree),
    ShellRow("E38.worktree-gitfile", "echo 'gitdir: PAYLOAD' >.git", goal="{project}/.git",
             ground=linked_worktree),
    ShellRow("E38.worktree-commondir", "echo PAYLOAD >{home}/main.git/worktrees/w/commondir",
             goal="{home}/main.git/worktrees/w/commondir", ground=linked_worktree),
    ShellRow("E37.bare-hook", "echo PAYLOAD >hooks/x", goal="{project}/hooks/x",
             ground=bare_repository),
    ShellRow("E38.bare-config", "echo PAYLOAD >>config", goal="{project}/config",
             ground=bare_repository),
    ShellRow("E37.separate-hook", "echo PAYLOAD >.bare/hooks/x", goal="{project}/.bare/hooks/x",
             ground=separate_git_folder),
    ShellRow("E38.separate-config", "echo PAYLOAD >>.bare/config", goal="{project}/.bare/config",
             ground=separate_git_folder),
    ShellRow("E38.separate-away", "mv .bare was; mkdir -p .bare/hooks; echo PAYLOAD >.bare/hooks/x",
             goal="{project}/.bare/hooks/x", ground=separate_git_folder),
    ShellRow("E37.linked-hooks", "echo PAYLOAD >.git/hooks/x", goal="{project}/shared-hooks/x",
             ground=linked_hooks),
    ShellRow("E37.linked-hooks-target", "echo PAYLOAD >shared-hooks/x",
             goal="{project}/shared-hooks/x", ground=linked_hooks),
    ShellRow("E37.hooksPath", "echo PAYLOAD >myhooks/pre-commit", goal="{project}/myhooks/pre-commit",
             ground=configured_hooks),
    *[ShellRow(f"E38.program.{name}", f"rm {name}; echo PAYLOAD >{name}", goal="{project}/" + name,
               ground=configured_programs) for name in ("tools/watch", "clean.py", "show")],
    ShellRow("E37.hooksPath-long", "echo PAYLOAD >myhooks/pre-commit", goal="{project}/myhooks/pre-commit",
             ground=hooks_in_a_long_configuration),
    ShellRow("E37.hooksPath-worktree", "echo PAYLOAD >myhooks/pre-commit",
             goal="{project}/myhooks/pre-commit", ground=hooks_of_a_worktree),
    ShellRow("E37.husky", "echo PAYLOAD >>.husky/pre-commit", goal="{project}/.husky/pre-commit",
             ground=lambda box: box.identity.file(box.path(".husky/pre-commit"), "") and None),
    *[ShellRow(f"E39.present.{name}", f"echo PAYLOAD >>{name}", goal="{project}/" + name,
               ground=lambda box, name=name: box.identity.file(box.path(name), "") and None)
      for name in ("lefthook.yml", "lefthook-local.yml", "crush.json", ".crush.json")],
    ShellRow("E37.subfolder-start", "echo PAYLOAD >../.git/hooks/x", goal="{project}/.git/hooks/x",
             cwd="{project}/sub"),
]


@table(FORMS)
def test_form_of_repository(box, row):
    judge_shell(box, row)


# ---- what cannot be refused must be undone or said ----


@pytest.mark.parametrize("row,mode,bit", [("E48.setuid", "04755", stat.S_ISUID),
                                          ("E48.setgid", "02755", stat.S_ISGID)],
                         ids=["E48.setuid", "E48.setgid"])
def test_setuid_left_behind(box, row, mode, bit):
    control = box.plain([box.attempt, "E48.mode", box.path("left"), mode])
    assert os.stat(box.path("left")).st_mode & bit, control
    os.unlink(box.path("left"))
    result = box.run([box.attempt, "E48.mode", box.path("left"), mode])
    if os.path.exists(box.path("left")) and os.stat(box.path("left")).st_mode & bit:
        assert "left" in result.stderr, f"{row}: neither cleared nor reported: {result}"


def test_fifo_left_behind(box):
    control = box.plain([box.attempt, "E49.fifo", box.path("left")])
    assert stat.S_ISFIFO(os.stat(box.path("left")).st_mode), control
    os.unlink(box.path("left"))
    result = box.run([box.attempt, "E49.fifo", box.path("left")], options=["--report"])
    if os.path.exists(box.path("left")):
        assert "left" in result.stderr, f"E49: a FIFO is left and not reported: {result}"


@pytest.mark.works
def test_installed_programs_are_replaced(box):
    """Those of a package manager, although git's configuration names one."""
    configured_programs(box)
    assert box.run(["sh", "-c", "rm -r .venv && mkdir .venv && git status >/dev/null"]).exit == 0


@pytest.mark.works
def test_project_is_writable_and_not_littered(box):
    """Ordinary work, and afterwards exactly that work is there."""
    before = snapshot(box.project)
    result = box.run(["sh", "-c", "echo x >new && mkdir -p d/e && mv new d/e && git status >/dev/null"])
    assert os.path.exists(box.path("d/e/new")), result
    subprocess.run(["rm", "-r", box.path("d")], check=True)
    assert snapshot(box.project) == before


@pytest.mark.works
def test_git_works_inside(box):
    """Hooks and configuration are read-only; committing is not."""
    script = ("git -c user.name=a -c user.email=a@b add main.c && "
              "git -c user.name=a -c user.email=a@b commit -qm x && git log --oneline")
    result = box.run(["sh", "-c", script])
    assert result.exit == 0 and " x" in result.stdout, result


@pytest.mark.works
def test_nothing_left_after_kill(box):
    """A supervisor that is killed leaves no placeholder that the next start does not remove."""
    process = box.start(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(0.3)
    except subprocess.TimeoutExpired:
        pass
    process.kill()
    process.wait()
    box.run(["true"])  # the leak check of the fixture does the rest


@contextlib.contextmanager
def linked_from_home(box, links):
    """The home folder has these links, each to a name in the project."""
    try:
        for name, target in links.items():
            os.makedirs(os.path.dirname(box.home(name)), exist_ok=True)
            os.symlink(box.path(target), box.home(name))
        yield
    finally:
        for name in links:
            os.unlink(box.home(name))


@pytest.mark.skipif(bool(os.environ.get("SANDBOX_PEER")), reason="a promise of ours, not of other sandboxes")
def test_settings_that_the_home_folder_links_to(box):
    """People keep them in a project, under any name. What is not linked to is the control, and so is
    what --unprotect names."""
    links = {".zlogin": "rc/zlogin", ".tcshrc": "rc/first", ".xprofile": "rc/missing", ".pythonrc.py": "rc/py",
             ".config/tmux": "rc/tmux"}
    for name in ("rc/zlogin", "rc/second", "rc/py", "rc/tmux/tmux.conf", "rc/other"):
        box.identity.file(box.path(name), "as it was\n")
    os.symlink("second", box.path("rc/first"))
    script = "; ".join([f"echo evil >>{name}" for name in ("rc/zlogin", "rc/second", "rc/py", "rc/tmux/tmux.conf",
                                                            "rc/missing", "rc/other")] +
                       ["ln -sf other rc/first", "mv rc moved", "rm -rf rc/tmux", "mkdir rc/free"])
    with linked_from_home(box, links):
        result = box.run(["sh", "-c", script], options=["--unprotect", box.path("rc/py")])
        changed = [name for name in ("zlogin", "second", "py", "tmux/tmux.conf", "other")
                   if open(box.path("rc", name), encoding="utf-8").read() != "as it was\n"]
    assert changed == ["py", "other"], result
    assert os.readlink(box.path("rc/first")) == "second" and os.path.isdir(box.path("rc/free"))
    assert not os.path.lexists(box.path("rc/missing")), "nothing is left behind"
