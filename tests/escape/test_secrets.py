"""E13-E19, E23-E36: secrets, by every name, object and system call."""

import os
import signal
import subprocess
import time

import pytest

from harness import DYNAMIC, PROJECT_SECRETS, SECRET_FILES
from rows import (HIDDEN, NOT_ALLOWED, READ_ONLY, Row, ShellRow, judge, judge_shell, refuses,
                  table, varies)

pytestmark = pytest.mark.escape


# ---- ground ----

def hard_link_outside(box):
    os.link(box.home(".ssh/id_ed25519"), box.home("innocent"))


def hard_link_in_project(box):
    os.link(box.home(".ssh/id_ed25519"), box.path("innocent"))


def hard_link_of_pattern(box):
    """What is known to be a secret only when the walk comes to its name."""
    os.link(box.path(".env"), box.path("innocent"))


def secret_is_symlink(box):
    """As people do who keep their dot files in a repository."""
    os.rename(box.home(".netrc"), box.home("dotfiles-netrc"))
    os.symlink("dotfiles-netrc", box.home(".netrc"))


def secret_folder_is_symlink(box):
    box.identity.folder(box.home("dotfiles"))
    os.rename(box.home(".aws"), box.home("dotfiles/aws"))
    os.symlink("dotfiles/aws", box.home(".aws"))


def parent_of_secret_is_symlink(box):
    """The rule names a file in a folder that lies elsewhere."""
    box.identity.folder(box.home("dotfiles"))
    os.rename(box.home(".docker"), box.home("dotfiles/docker"))
    os.symlink("dotfiles/docker", box.home(".docker"))


def project_env_is_symlink(box):
    os.unlink(box.path(".env"))
    box.identity.file(box.home("shared/settings"), box.canary + "\n")
    os.symlink("../shared/settings", box.path(".env"))


def attribute(box):
    os.setxattr(box.home(".netrc"), "user.secret", box.canary.encode())
    return {"size": os.path.getsize(box.home(".netrc"))}


def link_in_secret_folder(box):
    os.symlink("/" + box.canary, box.home(".ssh/link"))


def executable_secret(box):
    box.identity.file(box.home(".netrc"), f"#!/bin/sh\necho {box.canary}\n", 0o700)


FILES = [Row(f"E13.{name}", ["read", "{home}/" + name]) for name in SECRET_FILES] + [
    Row(f"E13.project.{name}", ["read", "{project}/" + name]) for name in PROJECT_SECRETS] + [
    Row("E13.etc.shadow", ["read", "/etc/shadow"], control=refuses(user=["EACCES"])),
    Row("E13.etc.gshadow", ["read", "/etc/gshadow"], control=refuses(user=["EACCES"])),
    Row("E13.etc.shadow-", ["read", "/etc/shadow-"],
        control=refuses(root=["OPEN", "ENOENT"], user=["EACCES", "ENOENT"])),
]

FOLDERS = [Row(f"E23.list.{name}", ["list", "{home}/" + name], HIDDEN | {"EMPTY"})
           for name in (".ssh", ".gnupg", ".aws", ".config/gcloud", ".kube", ".password-store",
                        ".local/share/keyrings", ".mozilla", ".azure")]

TRICKS = [
    Row("E14.link", ["E14", "{secret}", "{project}/a"]),
    Row("E14.relative", ["E14", "../.ssh/id_ed25519", "{project}/a"]),
    Row("E14.chain", ["E14", "/proc/self/root{secret}", "{project}/a"]),
    Row("E14.folder", ["E18", "{project}/d", "id_ed25519"],
        ground=lambda box: os.symlink(box.home(".ssh"), box.path("d"))),
    Row("E14.write-through", ["write", "{project}/w/file"], READ_ONLY, unchanged=("{home}/out",),
        ground=lambda box: (box.identity.folder(box.home("out")),
                            os.symlink("../out", box.path("w")))[1]),
    Row("E14.target", ["read", "{home}/dotfiles-netrc"], ground=secret_is_symlink),
    Row("E14.target-by-name", ["read", "{home}/.netrc"], ground=secret_is_symlink),
    Row("E14.target-folder", ["read", "{home}/dotfiles/aws/credentials"],
        ground=secret_folder_is_symlink),
    Row("E14.parent", ["read", "{home}/.docker/config.json"],
        ground=parent_of_secret_is_symlink),
    Row("E14.parent-target", ["read", "{home}/dotfiles/docker/config.json"],
        ground=parent_of_secret_is_symlink),
    Row("E14.project-env", ["read", "{project}/.env"], ground=project_env_is_symlink),
    Row("E14.project-env-target", ["read", "{home}/shared/settings"],
        ground=project_env_is_symlink),
    Row("E15.link", ["E15", "{secret}", "{project}/b"], HIDDEN | READ_ONLY),
    Row("E15.fd", ["E15.fd", "{secret}", "{project}/b"], HIDDEN | READ_ONLY),
    Row("E15.project", ["E15", "{project}/.env", "{project}/b"], HIDDEN | READ_ONLY),
    Row("E15.project-rename", ["rename", "{project}/.env", "{project}/b"], HIDDEN | READ_ONLY,
        unchanged=("{project}/.env",)),
    Row("E15.opath", ["E15.opath", "{secret}"]),
    Row("E15.opath-project", ["E15.opath", "{project}/.env"]),
    Row("E15.before", ["read", "{home}/innocent"], ground=hard_link_outside),
    Row("E15.before-in-project", ["read", "{project}/innocent"], ground=hard_link_in_project),
    Row("E15.before-by-pattern", ["read", "{project}/innocent"], ground=hard_link_of_pattern),
    Row("E16", ["E16", "{secret}"]),
    Row("E16.project", ["E16", "{project}/.env"]),
    Row("E17.proc", ["E17", "{home}/readable.txt", "/proc/self/fd"], {"EROFS", "EACCES"},
        unchanged=("{home}/readable.txt",)),
    Row("E17.dev", ["E17", "{home}/readable.txt", "/dev/fd"], {"EROFS", "EACCES"},
        unchanged=("{home}/readable.txt",)),
    Row("E17.protected", ["E17", "{project}/.git/config", "/proc/self/fd"], {"EROFS", "EACCES"},
        unchanged=("{project}/.git/config",)),
    Row("E18.home", ["E18", "{home}", ".ssh/id_ed25519"]),
    Row("E18.dotdot", ["E18", "{project}", "../.ssh/id_ed25519"]),
    Row("E18.root", ["E18", "/", "../../..{secret}"]),
    Row("E18.slash", ["read", "/..{secret}"]),
    Row("E18.slash-proc", ["read", "/../proc/self/root/..{secret}"]),
    # control: the host refuses (ENOENT): nothing is mounted on top of its root.
    Row("E18.above", ["E18.above"], {"ENOENT"}, refuses("ENOENT")),
    Row("E18.long", ["E18.long", "{secret}"]),
    Row("E18.depth", ["E18.depth", "{project}", "{secret}"]),
    Row("E19.casefold", ["E19", "{project}"], {"ENOENT"}),
    # control: the host refuses (ENOENT): its file system keeps cases apart.
    Row("E19.upper", ["read", "{home}/.SSH/ID_ED25519"], control=refuses("ENOENT")),
    Row("E23.size", ["E23.size", "{home}/.netrc", "{size}"], HIDDEN | {"EMPTY"}, ground=attribute),
    Row("E23.xattr", ["E23.xattr", "{home}/.netrc", "user.secret"], HIDDEN | {"ENODATA", "ENOTSUP"},
        ground=attribute),
    Row("E23.readlink", ["E23.readlink", "{home}/.ssh/link"], ground=link_in_secret_folder),
    Row("E23.inotify", ["E23.inotify", "{home}/.netrc"]),
    Row("E24", ["E24", "/etc/hostname", "{secret}"], NOT_ALLOWED, refuses(user=["EPERM"])),
    Row("E24.project", ["E24", "{project}", "{project}/.env"], NOT_ALLOWED,
        refuses(user=["EPERM"])),
    Row("E24.name", ["E24.name", "/usr"], NOT_ALLOWED),
    Row("E24.pidfs", ["E24.pidfs", "1"], NOT_ALLOWED, varies("EPERM", "EOPNOTSUPP", "ESTALE")),
    # control: the host refuses (EPERM): not its own mount.
    Row("E25", ["E25", "/etc/hostname", "{secret}"], NOT_ALLOWED | {"ENOSPC"}, refuses("EPERM")),
    Row("E26", ["E26", "{secret}"], {"ENOSYS", "EPERM"}, varies("EPERM")),
    Row("E26.setup", ["E26.setup"], {"ENOSYS", "EPERM"}, varies("EPERM")),
    Row("E26.register", ["E26.register"], {"ENOSYS", "EPERM"}, varies("EPERM")),
    Row("E27", ["E27", "{secret}"], HIDDEN | {"ENOSYS", "EPERM", "SIGSYS", "SIGSEGV"},
        varies("SIGSEGV", "ENOSYS")),
    # The 32-bit table as a way around the filter itself. EFAULT and the like count as reached.
    *[Row(f"E27.{name}", ["E27.call", str(call), *arguments],
          {"ENOSYS", "EPERM", "EAFNOSUPPORT", "SIGSYS", "SIGSEGV", "ECHILD"},
          varies("SIGSEGV", "ENOSYS", "EPERM", "EAFNOSUPPORT"))
      for name, call, arguments in (
          ("keyctl", 288, ("0", "-3", "0")), ("io_uring", 425, ("0", "0", "0")),
          ("unshare", 310, ("0x10000000", "0", "0")), ("bpf", 357, ("0", "0", "0")),
          ("perf", 336, ("0", "0", "0")), ("userfaultfd", 374, ("1", "0", "0")),
          ("clone3", 435, ("0", "0", "0")), ("name_to_handle", 341, ("0", "0", "0")),
          ("vsock", 359, ("40", "1", "0")), ("add_key", 286, ("0", "0", "0")))],
    # control: the host refuses (ENOSYS) where the kernel has no x32 table.
    Row("E28", ["E28", "{secret}"], HIDDEN | {"ENOSYS", "EPERM", "SIGSYS"}, varies("ENOSYS")),
    Row("E29.open", ["E29.open", "{secret}"]),
    Row("E29.openat2", ["E29.openat2", "{secret}"], HIDDEN | {"ENOSYS"}),
    Row("E29.creat", ["E29.creat", "{secret}"], HIDDEN | {"EROFS"}, unchanged=("{secret}",)),
    Row("E29.creat-project", ["E29.creat", "{project}/.env"], HIDDEN | {"EROFS"},
        unchanged=("{project}/.env",)),
    Row("E29.truncate", ["E29.truncate", "{home}/.netrc"], HIDDEN | {"EROFS"},
        unchanged=("{home}/.netrc",)),
    Row("E29.execveat", ["E29.execveat", "{home}/.netrc"], HIDDEN | {"ENOSYS", "EPERM"},
        ground=executable_secret),
    Row("E29.uselib", ["E29.uselib", "{home}/.netrc"], HIDDEN | {"ENOSYS", "EPERM"},
        varies("ENOSYS")),
    Row("E29.mmap", ["E29.mmap", "{secret}"]),
    Row("E29.sendfile", ["E29.sendfile", "{secret}", "{project}/copy"]),
    Row("E30", ["E30", "{home}/readable.txt", "{secret}", "{canary}", "400"]),
    Row("E31", ["E31", "{project}/sub2", "{home}/.aws", "credentials", "{canary}", "400"],
        ground=lambda box: box.identity.file(box.path("sub2/credentials"), "ordinary\n") and None),
    Row("E36", ["E36", "{project}"], {"ENOENT"}),
]

SHELL = [
    ShellRow("E33.git-diff", "git diff --no-index /dev/null {home}/.netrc"),
    ShellRow("E33.tar", "tar -cf - -C {home} .ssh .netrc 2>/dev/null"),
    ShellRow("E33.find", "find {home} -type f -exec cat {} + 2>/dev/null"),
    ShellRow("E33.grep", "grep -r CANARY {home} {project} 2>/dev/null"),
    ShellRow("E33.python", "python3 -c 'import mmap,sys;print(open(\"{secret}\").read())'"),
    ShellRow("E33.rename-parent", "mv sub moved && cat moved/.env"),
    ShellRow("E33.copy-tree", "cp -r sub copied; cat copied/.env"),
    ShellRow("E33.exchange-parent",
             "mkdir other; {attempt} exchange {project}/sub {project}/other; cat other/.env"),
    ShellRow("E33.new-parent", "mv sub gone; mkdir sub; ln gone/.env sub/x; cat sub/x"),
    # A project in a folder of secrets: the rule for secrets is stronger than "the project".
    ShellRow("E63.cwd", "cat id_ed25519", cwd="{home}/.ssh"),
    ShellRow("E63.cwd-parent", "cat .ssh/id_ed25519 .netrc", cwd="{home}"),
]


@table(FILES)
def test_secret_file(box, row):
    judge(box, row)


@table(FOLDERS)
def test_secret_folder(box, row):
    judge(box, row)


@table(TRICKS)
def test_secret_trick(box, row):
    result = judge(box, row)
    assert box.canary not in result.stdout
    assert not [name for name in os.listdir(box.project) if name.startswith("core")]


@table(SHELL)
def test_secret_by_tool(box, row):
    judge_shell(box, row)


def test_secret_at_bind_alias(box, host_root):
    """E13: the same folder, mounted a second time by root before the start."""
    alias = os.path.join(host_root.base, "alias")
    os.makedirs(alias, exist_ok=True)
    subprocess.run(["mount", "--bind", box.home(".ssh"), alias], check=True)
    try:
        control = box.plain([box.attempt, "read", alias + "/id_ed25519"])
        assert control.verdict()[0] == "OPEN", control
        result = box.run([box.attempt, "read", alias + "/id_ed25519"], may_leak=True)
        assert result.verdict()[0] == "DENIED", f"E13.alias: {result}"
    finally:
        subprocess.run(["umount", alias], check=True)


def test_home_at_bind_alias(box, host_root):
    """E13: the same, one level up."""
    alias = os.path.join(host_root.base, "alias")
    os.makedirs(alias, exist_ok=True)
    subprocess.run(["mount", "--bind", box.identity.home, alias], check=True)
    try:
        control = box.plain([box.attempt, "read", alias + "/.ssh/id_ed25519"])
        assert control.verdict()[0] == "OPEN", control
        result = box.run([box.attempt, "read", alias + "/.ssh/id_ed25519"], may_leak=True)
        assert result.verdict()[0] == "DENIED", f"E13.alias: {result}"
    finally:
        subprocess.run(["umount", alias], check=True)


# ---- other processes and the environment ----

@pytest.mark.parametrize("file", ["environ", "cmdline"], ids=lambda file: "E34." + file)
def test_secret_of_other_process(box, file):
    """E34: a process of the host that carries a secret."""
    victim = box.popen(["sh", "-c", "sleep 60; :", box.canary], env={"TOKEN": box.canary},
                       stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.02)
        argv = [box.attempt, "E34", file, box.canary[:12], box.canary[12:]]
        control = box.plain(argv)
        assert control.verdict()[0] == "OPEN", control
        result = box.run(argv)
        assert result.verdict() == ("DENIED", "ENOENT"), f"E34.{file}: {result}"
    finally:
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()


TOKENS = ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "GH_TOKEN", "OPENAI_API_KEY", "NPM_TOKEN",
          "ANTHROPIC_API_KEY", "DB_PASSWORD", "MY_SECRET", "PGPASSWORD", "VAULT_TOKEN",
          "SSH_AUTH_SOCK", "DOCKER_HOST", "DBUS_SESSION_BUS_ADDRESS", "KUBECONFIG",
          "GPG_AGENT_INFO", "SUDO_ASKPASS", "WAYLAND_DISPLAY", "XAUTHORITY", "LD_LIBRARY_PATH",
          "BASH_ENV", "ENV", "PYTHONSTARTUP", "GIT_ASKPASS", "UNKNOWN_TO_EVERYBODY")


@pytest.mark.parametrize("where", ["env", "cat /proc/self/environ", "cat /proc/1/environ",
                                   "cat /proc/*/environ"], ids=lambda where: "E35." + where)
def test_environment(box, where):
    """E35: names that hold secrets, and names nobody knows, stay outside."""
    environment = {name: "/nonexistent/" + box.canary for name in TOKENS}
    script = where + " 2>/dev/null | tr '\\0' '\\n'"
    if where != "cat /proc/1/environ":  # there our control would be another program's
        assert box.canary in box.plain(["sh", "-c", script], env=environment).stdout
    result = box.run(["sh", "-c", script], env=environment, may_leak=True)
    left = [line for line in result.stdout.splitlines() if box.canary in line]
    assert not left, f"E35: passed in: {left}"


@pytest.mark.works
def test_environment_given_on_purpose(box):
    result = box.run(["sh", "-c", "echo $WANTED"], options=("--env", "WANTED=yes"))
    assert result.stdout.strip() == "yes", result


@pytest.mark.works
def test_ordinary_files_are_readable(box):
    """Without this the refusals above could just mean that nothing works."""
    ordinary = [box.path("README.md"), "/etc/passwd"]
    for path in ordinary if DYNAMIC else [*ordinary, box.home("readable.txt")]:
        assert box.run([box.attempt, "read", path]).verdict()[0] == "OPEN", path
    result = box.run([box.attempt, "write", box.path("new.txt")])
    assert result.verdict()[0] == "OPEN" and os.path.exists(box.path("new.txt")), result


def test_second_names_on_a_mount_in_the_project(box, host_root):
    """E15: a link cannot lead to another file system, but the secret may be there, too."""
    folder = box.path("volume")
    os.mkdir(folder)
    subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
    try:
        for secret, second in ((".env", "by-pattern"), ("named", "by-rule")):
            box.identity.file(os.path.join(folder, secret), box.canary)
            os.link(os.path.join(folder, secret), os.path.join(folder, second))
        box.identity.file(os.path.join(folder, "plain"), "ordinary")
        command = ["sh", "-c", f"cd {folder}; cat plain by-pattern by-rule"]
        control = box.plain(command)
        result = box.run(command, options=["--blacklist", os.path.join(folder, "named")])
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
    assert control.stdout.count(box.canary) == 2, control
    assert result.stdout == "ordinary", result


@pytest.mark.parametrize("how", ["flag", "policy"])
def test_a_project_that_is_only_to_be_read(box, how):
    """E13.read-only: that the project may not be written to opens nothing in it. The control: another file."""
    policy = box.identity.file(box.home("read.yaml"), "version: 1\nfilesystem: {read: [.]}\n")
    result = box.run(["sh", "-c", "cat README.md; cat .env sub/.env; echo x >>README.md"],
                     options=["--ro", "."] if how == "flag" else ["--policy", policy])
    assert box.canary in box.plain(["cat", ".env"]).stdout, "control"
    assert result.stdout == box.plain(["cat", "README.md"]).stdout and box.canary not in result.stderr, result
    assert result.stderr.count("Permission denied") == 2 and "Read-only file system" in result.stderr, result


def test_secrets_of_the_folder_itself_where_there_is_no_project(box):
    """E13.no-project: the home folder is not searched as a whole, which is said (in dynamic mode nothing is seen of the
    rest). The control: another file of the same folder."""
    box.identity.file(box.home(".env"), box.canary)
    box.identity.file(box.home("other.txt"), "content\n")
    result = box.run(["sh", "-c", "cat .env other.txt"], cwd=box.home())
    assert box.canary not in result.stdout + result.stderr, result
    if DYNAMIC:
        assert "is no project" not in result.stderr, result
    else:
        assert result.stdout == "content\n" and "is no project" in result.stderr, result
