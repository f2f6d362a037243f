"""Debuggers inside: they work on the session's own processes, and on nothing else."""

import os
import subprocess
import time

import pytest

PROGRAM = r"""
#include <stdio.h>
#include <unistd.h>
static int add(int a, int b) {
  return a + b;
}
int main(int count, char **arguments) {
  (void)arguments;
  if (count > 1)
    for (volatile int go = 1; go; )
      usleep(10000);
  printf("sum %d\n", add(40, 2));
  return 0;
}
"""
# The sanitizers' build of the product is slow enough to need more time here.
SLOW = {"timeout": 60}


@pytest.fixture
def program(box):
    """Compiled inside the sandbox: the compiler is part of what must work."""
    box.identity.file(box.path("program.c"), PROGRAM)
    result = box.run(["cc", "-g", "-O0", "-o", "program", "program.c"], **SLOW)
    assert result.exit == 0, result
    return box.path("program")


def gdb(box, *commands, arguments=(), options=()):
    argv = ["gdb", "-nx", "-batch"]
    for command in commands:
        argv += ["-ex", command]
    return box.run([*argv, "--args", "./program", *arguments], options=options, **SLOW)


def test_gdb_session(box, program):
    result = gdb(box, "break add", "run", "backtrace", "print a", "finish", "continue")
    assert result.exit == 0, result
    assert "Breakpoint 1, add (a=40, b=2)" in result.stdout, result
    assert "#1 " in result.stdout and " main " in result.stdout, "no backtrace"
    assert "$1 = 40" in result.stdout
    assert "sum 42" in result.stdout and "exited normally" in result.stdout, result


# The debugger takes the place of the shell that started the program: Yama, where it is, allows
# attaching to descendants only, as it does outside.
ATTACH = """
./program wait & victim=$!
sleep 0.2
exec gdb -nx -batch -ex "attach $victim" -ex "up 10" -ex "backtrace" -ex "kill" ./program 2>&1
"""


def test_gdb_attach(box, program):
    result = box.run(["sh", "-c", ATTACH], **SLOW)
    assert "in main (" in result.stdout or "main (count=2" in result.stdout, result
    assert "ptrace:" not in result.stdout, result


def test_strace(box):
    result = box.run(["strace", "-f", "-e", "trace=execve,openat", "sh", "-c", "cat README.md"], **SLOW)
    assert result.exit == 0 and "ordinary" in result.stdout, result
    assert 'openat(AT_FDCWD, "README.md"' in result.stderr, result


def test_strace_attach(box):
    script = "sleep 1 & p=$!; exec strace -p $p 2>&1"
    result = box.run(["sh", "-c", script], **SLOW)
    assert "attached" in result.stdout and "exited with 0" in result.stdout, result


def test_strace_attach_to_a_sibling(box):
    """As outside: what the host's Yama forbids to plain users, it forbids inside."""
    script = "sleep 5 & p=$!; sleep 0.1; timeout 1 strace -p $p 2>&1 | head -3; kill $p"
    result = box.run(["sh", "-c", script], **SLOW)
    assert ("attached" in result.stdout) == (yama_scope() == 0), result
    if box.identity.name == "user":
        plain = box.plain(["sh", "-c", script], **SLOW)
        assert ("attached" in plain.stdout) == (yama_scope() == 0), plain


def yama_scope():
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope") as source:
            return int(source.read())
    except OSError:
        return 0


# ---- --no-debug ----


def test_no_debug_gdb(box, program):
    result = gdb(box, "run", options=["--no-debug"])
    assert "sum 42" not in result.stdout, result
    assert "not permitted" in result.stdout + result.stderr, result
    plain = box.run(["./program"], options=["--no-debug"])
    assert plain.stdout == "sum 42\n", "the program itself must run"


def test_no_debug_attach(box, program):
    result = box.run(["sh", "-c", ATTACH], options=["--no-debug"], **SLOW)
    assert "not permitted" in result.stdout and " main " not in result.stdout, result


def test_no_debug_strace(box):
    result = box.run(["strace", "true"], options=["--no-debug"], **SLOW)
    assert result.exit != 0 and "not permitted" in result.stderr, result


def test_no_debug_memory_of_others(box):
    """/proc/PID/mem and process_vm_readv are the same thing by another name."""
    script = """
import ctypes, os, subprocess, sys
child = subprocess.Popen(["sleep", "5"])
try:
    open(f"/proc/{child.pid}/mem", "rb").close()
    print("mem open")
except OSError as error:
    print("mem", error.strerror)
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(8)
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
mine = Vector(ctypes.addressof(buffer), 8)
theirs = Vector(ctypes.addressof(buffer), 8)
libc.process_vm_readv(child.pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
print("readv", os.strerror(ctypes.get_errno()))
child.kill()
"""
    result = box.run(["/usr/bin/python3", "-c", script], options=["--no-debug"], **SLOW)
    lines = result.stdout.splitlines()
    assert len(lines) == 2 and "readv Operation not permitted" in lines, result


# ---- what is not the session's own ----


def test_init_cannot_be_traced(box):
    """pid 1 of the session is ours."""
    result = box.run(["gdb", "-nx", "-batch", "-p", "1"], **SLOW)
    text = result.stdout + result.stderr
    assert "not permitted" in text or "No such process" in text, result
    result = box.run(["strace", "-p", "1"], **SLOW)
    assert result.exit != 0 and "not permitted" in result.stderr, result
    for name in ("mem", "environ", "maps", "root/etc/passwd", "fd/0", "cwd", "stack"):
        read = box.run(["sh", "-c", f"ls -l /proc/1/{name} && head -c 10 /proc/1/{name}"])
        assert read.exit != 0, (name, read)


def test_leader_of_the_terminal_cannot_be_traced(box):
    """Between init and the command stands the owner of the terminal's session."""
    script = 'p=$(ps -o ppid= -p $$ | tr -d " "); echo "parent $p"; strace -p $p; gdb -nx -batch -p $p'
    result = box.run(["sh", "-c", script], tty=True, **SLOW)
    assert "attached" not in result.stdout, result
    assert "not permitted" in result.stdout, result


def test_monitor_is_out_of_reach(box):
    """It is not even visible; its pid outside means nothing, or somebody else, inside."""
    process = box.start(["sh", "-c", "read pid; kill -0 $pid; strace -p $pid; ls /proc | grep -c '^[0-9]'"],
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(f"{process.pid}\n".encode(), timeout=20)
    assert b"attached" not in err and b"No such process" in err, (out, err)
    assert int(out) <= 6, out


def test_monitor_cannot_be_traced_by_the_same_user_outside(box):
    """A sandbox of the same user that is less strict must not get at it either."""
    if box.identity.name == "root":
        return  # root outside may do everything
    process = box.start(["sleep", "5"])
    time.sleep(0.2)
    try:
        result = box.plain(["strace", "-p", str(process.pid)])
        assert result.exit != 0 and "not permitted" in result.stderr, result
        assert box.plain(["cat", f"/proc/{process.pid}/environ"]).exit != 0
    finally:
        process.terminate()
        process.wait(5)


def test_other_processes_of_the_user_are_out_of_reach(box):
    # Open to every tracer: Yama must not be what protects it.
    script = ("import ctypes, time; libc = ctypes.CDLL(None); any = ctypes.c_ulong(-1); "
              "libc.prctl(0x59616d61, any, 0, 0, 0); print('open', flush=True); time.sleep(60)")
    victim = box.popen(["/usr/bin/python3", "-c", script], stdout=subprocess.PIPE)
    try:
        assert victim.stdout.readline() == b"open\n"
        control = box.plain(["timeout", "1", "strace", "-p", str(victim.pid)])
        assert "attached" in control.stderr, control
        result = box.run(["strace", "-p", str(victim.pid)], **SLOW)
        assert result.exit != 0 and "attached" not in result.stderr, result
    finally:
        victim.kill()
        victim.communicate()


def test_no_core_file(box):
    """A core would copy approved secrets into the project, or wake a handler on the host."""
    result = box.run(["sh", "-c", "ulimit -c; kill -SEGV $$"], **SLOW)
    assert result.exit == 139 and result.stdout == "0\n", result
    assert not [name for name in os.listdir(box.project) if name.startswith("core")]
