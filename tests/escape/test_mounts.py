"""E52-E66: mounts, roots, namespaces, inherited descriptors, clocks and names."""

import os
import socket
import subprocess
import time

import pytest

from rows import GONE, NOT_ALLOWED, Live, Row, judge, refuses, table, varies

pytestmark = pytest.mark.escape

NEW = {"user": 0x10000000, "mnt": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000,
       "uts": 0x4000000, "cgroup": 0x2000000, "time": 0x80}
OWN_MOUNTS = ("unshare", "-m")  # the control's mounts stay in a namespace of its own
ROOT_ONLY = refuses(user=["EPERM"])  # the host refuses a plain user (EPERM)
NO_NESTING = NOT_ALLOWED | {"ENOSPC", "EINVAL", "EUSERS"}


def mounted(box):
    box.identity.folder(box.home("here"))


def row(name, argv, deny=NOT_ALLOWED, control=ROOT_ONLY):
    return Row(name, argv, deny, control, before={"root": OWN_MOUNTS}, ground=mounted)


MOUNTS = [
    # control: the host refuses root too (EINVAL): nothing is mounted there.
    row("E52.ssh", ["E52", "{home}/.ssh"], NOT_ALLOWED, refuses(root=["EINVAL"], user=["EPERM"])),
    row("E52.env", ["E52", "{project}/.env"], NOT_ALLOWED | {"EINVAL"}, refuses(root=["EINVAL"], user=["EPERM"])),
    row("E52.hooks", ["E52", "{project}/.git/hooks"], NOT_ALLOWED,
         refuses(root=["EINVAL"], user=["EPERM"])),
    row("E52.proc", ["E52", "/proc"]),
    row("E52.root", ["E52", "/dev"]),
    row("E53.root", ["E53", "/"]),
    row("E53.proc", ["E53", "/proc"]),
    row("E53.bind", ["E53.bind", "/etc", "{home}/here"]),
    row("E53.bind-project", ["E53.bind", "/usr", "{project}/sub"]),
    row("E53.tmpfs", ["E53.tmpfs", "tmpfs", "{project}/sub"]),
    row("E53.proc-new", ["E53.tmpfs", "proc", "{project}/sub"]),
    row("E53.shared", ["E53.shared", "/"]),
    row("E54.fsopen", ["E54.fsopen", "tmpfs"]),
    row("E54.open_tree", ["E54.open_tree", "/"]),
    row("E54.open_tree_attr", ["E54.open_tree_attr", "/"], NOT_ALLOWED,
         refuses(root=["OPEN", "ENOSYS"], user=["EPERM", "ENOSYS"])),
    row("E54.move_mount", ["E54.move_mount"]),
    row("E54.mount_setattr", ["E54.mount_setattr", "/"]),
    row("E54.fspick", ["E54.fspick", "/"]),
    row("E54.fsmount", ["E54.fsmount"]),
    row("E55.chroot", ["E55.chroot", "{project}"]),
    row("E55.pivot", ["E55.pivot"]),
]

NAMESPACES = [
    *[Row(f"E56.unshare.{kind}", ["E56.unshare", str(flag)], NO_NESTING,
          varies("EPERM", "EACCES", "ENOSPC") if kind == "user" else ROOT_ONLY)
      for kind, flag in NEW.items()],
    *[Row(f"E56.clone.{kind}", ["E56.clone", str(flag)], NO_NESTING,
          varies("EPERM", "EACCES", "ENOSPC") if kind == "user" else ROOT_ONLY)
      for kind, flag in NEW.items() if kind != "time"],
    Row("E56.unshare.user+mnt", ["E56.unshare", str(NEW["user"] | NEW["mnt"])], NO_NESTING,
        varies("EPERM", "EACCES", "ENOSPC")),
    Row("E57", ["E57", "{home}/.ssh", "{secret}"], NO_NESTING,
        refuses("EINVAL", "EPERM", "EACCES")),  # the host refuses: nothing is mounted there
    Row("E58", ["E58", "/"], NO_NESTING, varies("EPERM", "EACCES", "EINVAL")),
    Row("E59.tmpfs", ["E59", "tmpfs", "{project}/sub"], NO_NESTING, varies("EPERM", "EACCES")),
    Row("E59.overlay", ["E59", "overlay", "{project}/sub"], NO_NESTING,
        varies("EPERM", "EACCES", "ENODEV")),
    Row("E59.proc", ["E59", "proc", "{project}/sub"], NO_NESTING, varies("EPERM", "EACCES")),
    *[Row(f"E60.{kind}", ["E60", str(NEW[kind])], {"ENOSYS", "EPERM"},
          varies("EPERM", "ENOSPC") if kind == "user" else ROOT_ONLY)
      for kind in ("user", "mnt", "pid", "net")],
    *[Row(f"E61.{kind}", ["E61", f"/proc/1/ns/{kind}"], GONE | {"EINVAL"},
          # the host may refuse root (EACCES) where its pid 1 has more rights; see E61.self
          refuses(root=["OPEN", "EINVAL", "EACCES"], user=["EACCES", "EPERM"]))
      for kind in ("mnt", "net", "pid", "user", "ipc", "uts", "cgroup")],
    Row("E61.self", ["E61", "/proc/self/ns/mnt"], NOT_ALLOWED, ROOT_ONLY),
    Row("E61.pidfd", ["E61.pidfd", "1"], GONE | {"EINVAL"},
        refuses(root=["OPEN", "EPERM"], user=["EPERM"])),
    Row("E62.block", ["mknod", "{project}/disk", "b", "254", "0"], {"EPERM"}, ROOT_ONLY),
    Row("E62.tmp", ["mknod", "/tmp/disk-{canary}", "b", "254", "0"], {"EPERM"}, control=None,
        no_control="the same as E62.block, in a file system of the sandbox"),
    Row("E64.self", ["openw", "/proc/self/exe"], {"ETXTBSY", "EROFS", "EACCES"},
        refuses("ETXTBSY", "EACCES")),
    Row("E64.init", ["openw", "/proc/1/exe"], {"EROFS", "EACCES", "EPERM", "ENOENT"},
        refuses(root=["ETXTBSY", "ENOENT", "EACCES"], user=["EACCES"])),
    # control for root: not run.
    Row("E65.clock", ["E65.clock"], {"EPERM", "ENOSYS"}, control=None,
        no_control="it would step the host's clock; E65.adjtimex stands for it"),
    Row("E65.tod", ["E65.tod"], {"EPERM", "ENOSYS"}, control=None,
        no_control="it would step the host's clock; E65.adjtimex stands for it"),
    Row("E65.adjtimex", ["E65.adjtimex"], {"EPERM", "ENOSYS"}, ROOT_ONLY),
    *[Row(f"E66.{kind}", [f"E66.{kind}", "escaped"], {"EPERM", "ENOSYS"}, ROOT_ONLY,
          before={"root": ("unshare", "-u")}) for kind in ("host", "domain")],
]


@table(MOUNTS)
def test_mount(box, row):
    judge(box, row)


@table(NAMESPACES)
def test_namespace(box, row):
    host = socket.gethostname()
    judge(box, row)
    assert socket.gethostname() == host


@pytest.mark.parametrize("kind", ["mnt", "pid", "net", "ipc", "uts", "user", "cgroup"],
                         ids=lambda kind: "E61.own." + kind)
def test_own_namespace(box, kind):
    """The workload is in none of the host's namespaces."""
    here = os.readlink(f"/proc/self/ns/{kind}")
    assert box.plain([box.attempt, "E61.same", kind, here]).verdict()[0] == "OPEN"
    result = box.run([box.attempt, "E61.same", kind, here])
    assert result.verdict()[0] == "DENIED", f"E61.own.{kind}: {result}"


def test_inherited_descriptor(box):
    """E63: a descriptor of the host's root folder, left open by whoever started us."""
    fds = [os.open(box.home(".ssh"), os.O_RDONLY), os.open("/", os.O_RDONLY)]
    try:
        control = box.plain([box.attempt, "E63"], pass_fds=fds)
        assert control.verdict()[0] == "OPEN", control
        result = box.run([box.attempt, "E63"], pass_fds=fds)
        assert result.verdict() == ("DENIED", "EBADF"), f"E63: {result}"
        script = "for i in 3 4 5 6 7 8 9 10 11 12 13 14 15; do cat /proc/self/fd/$i/id_ed25519; done"
        box.run(["sh", "-c", script], pass_fds=fds)  # the canary is checked for every run
    finally:
        for fd in fds:
            os.close(fd)


def test_descriptors_of_init(box):
    """E63: what pid 1 holds open is not ours to use."""
    result = box.run(["sh", "-c", "ls /proc/1/fd && for f in /proc/1/fd/*; do ls $f/; done"])
    assert "id_ed25519" not in result.stdout and ".ssh" not in result.stdout, result


@pytest.mark.parametrize("where", ["outside", "inside-project"],
                         ids=lambda where: "E53.propagation." + where)
def test_mount_of_host_does_not_appear(box, host_root, where):
    """A mount made on the host during the session must not show up inside."""
    folder = box.path("sub") if where == "inside-project" else box.home("place")
    box.identity.folder(folder)
    with Live(box) as shell:
        subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
        try:
            with open(folder + "/appeared", "w") as out:
                out.write(box.canary)
            time.sleep(0.05)
            answer = shell.ask(f"cat {folder}/appeared")
        finally:
            # The gate answers before it lets go of what it looked at; then nothing holds it.
            for patience in range(20, -1, -1):
                if subprocess.run(["umount", folder], check=not patience).returncode == 0:
                    break
                time.sleep(0.05)
        assert box.canary not in answer, f"E53.propagation: {answer}"


def test_mount_of_sandbox_does_not_appear(box):
    """The other way round: while it runs, the host's table has nothing of ours."""
    before = open("/proc/self/mountinfo").read().count(box.world.base)
    with Live(box):
        assert open("/proc/self/mountinfo").read().count(box.world.base) == before


@pytest.mark.works
def test_everything_else_is_read_only(box):
    """No mount of the view is writable but the project and the private folders."""
    result = box.run(["cat", "/proc/self/mountinfo"])
    private = ("/tmp", "/run", "/dev", "/proc", "/var/tmp", box.project, box.identity.runtime)
    for line in result.stdout.splitlines():
        fields = line.split()
        path, options = fields[4], fields[5].split(",")
        gate = " - fuse.sandbox none " in line  # refuses every write itself, and says so
        if not gate and not any(path == name or path.startswith(name + "/") for name in private):
            assert "ro" in options, f"writable: {line}"
        assert "nosuid" in options, f"setuid works: {line}"
        if not path.startswith("/dev"):
            assert "nodev" in options, f"devices work: {line}"
