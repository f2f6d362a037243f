"""A filter from outside that refuses one system call, as a container has one. For preexec_fn."""

import ctypes
import os
import platform
import struct

SYSCALLS = {  # the same numbers on x86_64 and aarch64, from 424 on
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "pidfd_open": 434, "clone3": 435,
    "close_range": 436, "openat2": 437, "pidfd_getfd": 438, "mount_setattr": 442,
    "landlock_create_ruleset": 444, "statmount": 457,
    "unshare": {"x86_64": 272, "aarch64": 97}.get(platform.machine()),
    "seccomp": {"x86_64": 317, "aarch64": 277}.get(platform.machine()),
    "process_vm_readv": {"x86_64": 310, "aarch64": 270}.get(platform.machine()),
}
KILL = 0x80000000


def refusing(name, action):
    """A preexec_fn that installs a filter which refuses one system call."""
    number = SYSCALLS[name]
    assert number is not None, "unknown architecture"
    program = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, action),
               (0x06, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    libc = ctypes.CDLL(None, use_errno=True)

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    def install():
        filter_program = Program(len(program), ctypes.addressof(code))
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(filter_program)):
            os._exit(99)

    return install


def refusing_with(name, error):
    return refusing(name, 0x00050000 | error)
