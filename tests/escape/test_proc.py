"""E67-E74: procfs, sysfs, cgroups and devices."""

import glob
import os

import pytest

from rows import Row, judge, refuses, table, varies

pytestmark = pytest.mark.escape

SHUT = {"EROFS", "EACCES", "EPERM", "ENOENT"}
# Root of a container may lack the capability that a file asks for (EACCES).
ROOT_WRITES = refuses(root=["OPEN", "ENOENT", "EACCES"], user=["EACCES", "EPERM", "ENOENT"])

# Opened for writing, never written: the control runs as root on the host.
WRITES = [
    Row("E67", ["openw", "/proc/sys/kernel/core_pattern"], SHUT, ROOT_WRITES),
    Row("E68.modprobe", ["openw", "/proc/sys/kernel/modprobe"], SHUT, ROOT_WRITES),
    Row("E68.hotplug", ["openw", "/proc/sys/kernel/hotplug"], SHUT, ROOT_WRITES),
    Row("E68.uevent_helper", ["openw", "/sys/kernel/uevent_helper"], SHUT, ROOT_WRITES),
    Row("E69", ["openw", "/proc/sysrq-trigger"], SHUT, ROOT_WRITES),
    Row("E69.setting", ["openw", "/proc/sys/kernel/sysrq"], SHUT, ROOT_WRITES),
    Row("E70.forward", ["openw", "/proc/sys/net/ipv4/ip_forward"], SHUT, ROOT_WRITES),
    Row("E70.userns", ["openw", "/proc/sys/user/max_user_namespaces"], SHUT, ROOT_WRITES),
    Row("E70.binfmt", ["openw", "/proc/sys/fs/binfmt_misc/register"], SHUT, ROOT_WRITES),
    Row("E70.ptrace", ["openw", "/proc/sys/kernel/randomize_va_space"], SHUT, ROOT_WRITES),
    Row("E70.all", ["walkw", "/proc/sys"], SHUT | {"EINVAL"},
        refuses(root=["OPEN"], user=["OPEN", "EACCES", "EPERM", "ENOENT"])),
    Row("E68.sys-all", ["walkw", "/sys"], SHUT | {"EINVAL", "EIO"},
        refuses(root=["OPEN"], user=["OPEN", "EACCES", "EPERM", "ENOENT"])),
    Row("E69.irq", ["walkw", "/proc/irq"], SHUT, ROOT_WRITES),
    Row("E69.mtrr", ["openw", "/proc/mtrr"], SHUT, ROOT_WRITES),
    Row("E69.scsi", ["openw", "/proc/scsi/scsi"], SHUT, ROOT_WRITES),
    Row("E69.slabinfo", ["openw", "/proc/slabinfo"], SHUT, ROOT_WRITES),
    Row("E69.timer", ["openw", "/proc/timer_stats"], SHUT, ROOT_WRITES),
    Row("E71.walk", ["walkw", "/sys/fs/cgroup"], SHUT | {"EINVAL"},
        refuses(root=["OPEN"], user=["OPEN", "EACCES", "EPERM", "ENOENT"])),
    Row("E71.mkdir", ["mkdir", "/sys/fs/cgroup/unified/escape"], SHUT, control=None,
        no_control="it would make a cgroup on the host"),
    Row("E71.mkdir-root", ["mkdir", "/sys/fs/cgroup/escape"], SHUT, control=None,
        no_control="it would make a cgroup on the host"),
    # control: the host refuses a plain user (EPERM).
    Row("E71.mount", ["E53.tmpfs", "cgroup2", "{project}/sub"], {"EPERM", "ENOSYS"},
        refuses(user=["EPERM"]), before={"root": ("unshare", "-m")}),
    Row("E71.nested", ["E59", "cgroup2", "{project}/sub"], {"EPERM", "ENOSYS", "ENOSPC"},
        varies("EPERM", "EACCES")),
    # A lower score would make the host's processes die first.
    Row("E72.oom-self", ["oom", "/proc/self/oom_score_adj"], SHUT,
        refuses(root=["OPEN", "EACCES"], user=["EACCES"])),
    Row("E72.oom-init", ["oom", "/proc/1/oom_score_adj"], SHUT, control=None,
        no_control="pid 1 of the host is not ours to touch; E72.oom-self stands for it"),
    # control: the host refuses (EPERM, EACCES): its maps are written once and for all.
    Row("E72.uid_map", ["write", "/proc/1/uid_map"], SHUT, refuses("EPERM", "EACCES")),
    Row("E72.own-uid_map", ["write", "/proc/self/uid_map"], SHUT, refuses("EPERM", "EACCES")),
]

EMPTY = SHUT | {"EMPTY"}
READS = [
    Row("E72.kallsyms", ["E72.kallsyms"], EMPTY,
        refuses(root=["OPEN", "EMPTY", "ENOENT"], user=["EMPTY", "OPEN", "ENOENT"])),
    Row("E72.dmesg", ["E72.dmesg"], EMPTY | {"ENOSYS"}, varies("EPERM")),
    *[Row(f"E72.{name}", ["read", f"/proc/{name}"], EMPTY | {"EINVAL", "EIO", "EAGAIN"},
          refuses(root=["OPEN", "ENOENT", "EPERM", "EMPTY", "EAGAIN", "EINVAL"],
                  user=["OPEN", "EACCES", "EPERM", "ENOENT", "EMPTY"]))
      for name in ("kcore", "kmsg", "keys", "key-users", "timer_list", "sched_debug", "slabinfo",
                   "vmallocinfo", "latency_stats", "kpageflags")],
    Row("E72.debugfs", ["list", "/sys/kernel/debug"], EMPTY,
        refuses(root=["OPEN", "EMPTY", "ENOENT"], user=["EACCES", "EMPTY", "ENOENT"])),
    Row("E72.tracefs", ["list", "/sys/kernel/tracing"], EMPTY,
        refuses(root=["OPEN", "EMPTY", "ENOENT"], user=["EACCES", "EMPTY", "ENOENT"])),
    Row("E72.securityfs", ["list", "/sys/kernel/security"], EMPTY, varies("EMPTY", "ENOENT")),
    Row("E73.mac", ["E73.mac"], EMPTY, varies("EMPTY", "ENOENT")),
    Row("E73.dmi", ["list", "/sys/class/dmi/id"], EMPTY, varies("ENOENT", "EMPTY")),
    Row("E73.dmi-serial", ["read", "/sys/class/dmi/id/product_serial"], EMPTY,
        refuses(root=["OPEN", "ENOENT"], user=["EACCES", "ENOENT"])),
    Row("E73.block", ["list", "/sys/block"], EMPTY, varies("ENOENT", "EMPTY")),
    Row("E73.firmware", ["list", "/sys/firmware"], EMPTY, varies("ENOENT", "EMPTY")),
    Row("E73.efivars", ["list", "/sys/firmware/efi/efivars"], EMPTY, varies("ENOENT", "EMPTY")),
    Row("E73.acpi", ["list", "/proc/acpi"], EMPTY, varies("ENOENT", "EMPTY")),
]


@table(WRITES)
def test_write(box, row):
    judge(box, row)


@table(READS)
def test_read(box, row):
    judge(box, row)


# ---- devices ----

ALLOWED_DEVICES = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd",
                   "stdin", "stdout", "stderr", "mqueue", "console"}
DANGEROUS = ("mem", "kmem", "port", "kmsg", "kvm", "fuse", "loop-control", "loop0", "vda", "sda",
             "nvme0n1", "userfaultfd", "vsock", "vhost-net", "vhost-vsock", "net/tun", "uinput",
             "input/event0", "dri/card0", "mapper/control", "btrfs-control", "autofs", "ppp",
             "snd/controlC0", "video0", "hwrng", "cpu/0/msr", "vga_arbiter", "zram0", "tty0",
             "rfkill", "hidraw0", "bus/usb/001/001", "hpet", "rtc0", "watchdog", "mcelog", "vcs")


@pytest.mark.parametrize("name", DANGEROUS, ids=lambda name: "E74." + name)
def test_device(box, name):
    # The control is that the host has it and root may open it; what it lacks proves nothing, but
    # the answer inside is the same.
    result = box.run([box.attempt, "openw", "/dev/" + name])
    assert result.verdict() == ("DENIED", "ENOENT"), f"E74.{name}: {result}"


@pytest.mark.control
def test_some_device_exists_outside():
    assert [name for name in DANGEROUS if os.path.exists("/dev/" + name)], "no device to deny"


def test_no_other_device(box):
    """E74: the list above cannot be complete; the list of what is there can."""
    host = set(os.listdir("/dev"))
    assert host - ALLOWED_DEVICES, "control: the host has nothing else either"
    result = box.run(["ls", "/dev"])
    extra = set(result.stdout.split()) - ALLOWED_DEVICES - {"core"}
    assert result.exit == 0 and not extra, f"E74: also in /dev: {extra}"


def test_no_device_node_anywhere(box):
    """E74: nor in the private folders or the project."""
    result = box.run(["find", "/dev", "/tmp", "/run", "/var/tmp", box.project, "-xdev",
                      "(", "-type", "b", "-o", "-type", "c", ")"])
    found = {os.path.basename(path) for path in result.stdout.split()}
    assert found <= ALLOWED_DEVICES, found


def test_private_folders_are_empty(box):
    """/tmp, /run, /var/tmp and /dev/shm show nothing of the host."""
    planted = [path + "/sandbox-test-" + box.canary
               for path in ("/tmp", "/var/tmp", "/dev/shm", "/run") if os.access(path, os.W_OK)]
    for path in planted:
        box.identity.file(path, box.canary)
    try:
        for path in planted:
            assert box.plain([box.attempt, "read", path]).verdict()[0] == "OPEN"
            assert box.run([box.attempt, "read", path]).verdict() == ("DENIED", "ENOENT"), path
    finally:
        for path in planted:
            os.unlink(path)


def test_private_tmp_stays_inside(box):
    """What is written to /tmp inside is not on the host."""
    name = "/tmp/sandbox-test-" + box.canary
    result = box.run(["sh", "-c", f"echo x >{name} && cat {name}"])
    assert result.stdout.strip() == "x", result
    assert not glob.glob(name)
