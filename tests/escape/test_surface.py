"""E80-E87: keys, exploit helpers, privileges, and objects with names of their own."""

import os
import secrets
import struct
import subprocess

import pytest

from harness import TIMEOUT
from rows import NOT_ALLOWED, Row, judge, refuses, table, varies

pytestmark = pytest.mark.escape

ABSENT = {"EPERM", "ENOSYS"}
ROOT_ONLY = refuses(root=["OPEN", "ENOSYS"], user=["EPERM", "ENOSYS", "EACCES"])

CALLS = [
    Row("E80", ["E80"], ABSENT, varies("EPERM", "ENOSYS")),
    Row("E81.add", ["E81.add", "x"], ABSENT, varies("EPERM", "ENOSYS")),
    # control: the host refuses (ENOKEY) what nobody has made; the call itself is there.
    Row("E81.request", ["E81.request", "none"], ABSENT, refuses("ENOKEY", "ENOSYS", "ENOENT")),
    Row("E82.map", ["E82.map"], ABSENT, varies("EPERM", "ENOSYS")),
    Row("E82.prog", ["E82.prog"], ABSENT, varies("EPERM", "ENOSYS")),
    Row("E83", ["E83"], ABSENT, varies("EACCES", "EPERM", "ENOSYS")),
    Row("E84.kernel", ["E84", "0"], ABSENT, varies("EPERM", "ENOSYS")),
    Row("E84.user", ["E84", "1"], ABSENT, varies("EPERM", "ENOSYS")),
    *[Row(f"E85.{name}", [f"E85.{name}"], ABSENT, ROOT_ONLY)
      for name in ("kexec", "kexec_file", "init_module", "finit_module", "delete_module", "reboot",
                   "swapon", "swapoff", "acct", "ioperm", "syslog", "fanotify")],
    # control: vhangup would hang a terminal of the host up.
    Row("E85.vhangup", ["E85.vhangup"], ABSENT, control=None,
        no_control="it would hang up the terminal of whoever runs the tests as root"),
    # control: these calls look at their arguments before they look at rights.
    Row("E85.iopl", ["E85.iopl"], ABSENT, varies("EPERM", "ENOSYS")),
    Row("E85.quotactl", ["E85.quotactl"], ABSENT, varies("EPERM", "ENOSYS")),
    Row("E85.dcookie", ["E85.dcookie"], ABSENT, varies("EPERM", "ENOSYS")),
    Row("E85.nfsservctl", ["E85.nfsservctl"], ABSENT, varies("ENOSYS")),
    Row("E85.listener", ["E85.listener"], NOT_ALLOWED | {"EBUSY"}, varies("ENOSYS")),
    Row("E86.nnp", ["E86.nnp"], {"EPERM"}),
    Row("E86.filter", ["E86.filter"], {"EPERM"}, varies("EPERM")),
    # control: a plain user has none; the host's bounding set is not empty.
    *[Row(f"E86.{field}", ["E86.caps", field], {"EPERM"},
          refuses(root=["OPEN", "EPERM"], user=["EPERM", "OPEN"]))
      for field in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    Row("E86.setuid", ["E86.setuid", "65534"], {"EPERM", "EINVAL", "ENOSYS"},
        refuses(user=["EPERM"])),
    Row("E86.setgroups", ["E86.setgroups", "65534"], {"EPERM", "EINVAL", "ENOSYS"},
        refuses(user=["EPERM"])),
    Row("E87.read-implies-exec", ["E87.personality", "0x0400000"], {"EPERM", "EINVAL"}),
    Row("E87.mmap-page-zero", ["E87.personality", "0x0100000"], {"EPERM", "EINVAL"}),
    Row("E87.no-random", ["E87.personality", "0x0040000"], {"EPERM", "EINVAL"},
        options=("--no-debug",)),
    Row("E87.ldt", ["E87.ldt"], ABSENT, varies("ENOSYS")),
    Row("E87.vm86", ["E87.vm86"], ABSENT | {"SIGSYS", "SIGSEGV"}, varies("ENOSYS", "EPERM",
                                                                         "SIGSEGV")),
]


@table(CALLS)
def test_call(box, row):
    judge(box, row)


def test_session_keyring(box):
    """E81: a secret in the keyring of the session that started the sandbox."""
    before = [box.attempt, "with-key", "escape-test", box.canary]
    control = box.plain([box.attempt, "E81", "escape-test"], before=before)
    if control.verdict()[1] in ("ENOSYS", "EPERM"):
        pytest.skip("this kernel has no keys for us")
    assert box.canary in control.stdout, control
    result = box.run([box.attempt, "E81", "escape-test"], before=before)
    assert result.verdict()[0] == "DENIED", f"E81: {result}"


def test_setuid_program(box, host_root):
    """E86: a setuid program of the host (here: of another user) gives nothing."""
    other = host_root.identities["user" if box.identity.name == "root" else "root"]
    program = os.path.join(host_root.base, "setuid-" + box.identity.name)
    subprocess.run(["cp", box.attempt, program], check=True)
    os.chown(program, other.uid, other.gid)
    os.chmod(program, 0o4755)
    try:
        control = box.plain([program, "E86.euid", str(other.uid)])
        assert control.verdict()[0] == "OPEN", control
        result = box.run([program, "E86.euid", str(other.uid)])
        assert result.verdict() == ("DENIED", "EPERM"), f"E86: {result}"
    finally:
        os.unlink(program)


def test_file_capabilities(box, host_root):
    """E86: nor does a program with file capabilities."""
    program = os.path.join(host_root.base, "capable-" + box.identity.name)
    subprocess.run(["cp", box.attempt, program], check=True)
    os.chmod(program, 0o755)
    # Version 2, effective; CAP_SYS_ADMIN and CAP_DAC_READ_SEARCH.
    os.setxattr(program, "security.capability",
                struct.pack("<IIIII", 0x02000001, 1 << 21 | 1 << 2, 0, 0, 0))
    try:
        control = box.plain([program, "E86.caps", "CapEff"])
        assert control.verdict()[0] == "OPEN", control
        result = box.run([program, "E86.caps", "CapEff"])
        assert result.verdict()[0] == "DENIED" or result.exit == 126, f"E86: {result}"
    finally:
        os.unlink(program)


@pytest.mark.parametrize("tool", ["su -c true root", "sudo -n true", "pkexec true",
                                  "mount --bind /etc /tmp", "crontab -l", "at now",
                                  "systemd-run --user true", "machinectl list", "loginctl",
                                  "unshare -r true", "nsenter -t 1 -m true", "chroot / true"],
                         ids=lambda tool: "E86." + tool.split()[0])
def test_privileged_tool(box, tool):
    """E33, E86: helpers that act with more rights than ours; absent ones count as refused."""
    # control: depends on what is installed and set up; the rows on system calls stand for it.
    result = box.run(["sh", "-c", tool + " </dev/null"], timeout=TIMEOUT)
    assert result.exit != 0, f"{tool}: {result}"


# ---- objects of the kernel with their own names ----

@pytest.fixture
def objects(box):
    """One of each, made on the host by the same user."""
    key, name = str(secrets.randbelow(1 << 30) + 1), "/sandbox-test-" + secrets.token_hex(6)
    process = box.popen([box.attempt, "ipc.plant", key, name, box.canary], stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    yield {"key": key, "name": name}
    process.stdin.close()
    process.wait(5)
    process.stdout.close()


@pytest.mark.parametrize("kind", ["shm", "msg", "sem", "mq", "posix"], ids=lambda kind: "ipc." + kind)
def test_ipc_object(box, objects, kind):
    argument = objects["name"] if kind in ("mq", "posix") else objects["key"]
    control = box.plain([box.attempt, "ipc." + kind, argument])
    assert control.verdict()[0] == "OPEN", control
    result = box.run([box.attempt, "ipc." + kind, argument])
    assert result.verdict()[0] == "DENIED", f"ipc.{kind}: {result}"


@pytest.mark.works
def test_ipc_works_inside(box):
    script = "import multiprocessing as m; p = m.Pool(2); print(sum(p.map(abs, [-1, -2])))"
    result = box.run(["python3", "-c", script])
    assert result.stdout.strip() == "3", result
