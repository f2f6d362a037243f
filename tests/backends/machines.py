"""Virtual machines for the tests: QEMU and a kernel of Debian's, unpacked into a folder of the test.

The kernel is that of `tools/test-vm`, from its cache or downloaded by apt; it is never installed.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import harness
from engines import Engine, not_in_a_guest

VERSION = "6.1"
# Of the modules only what a guest of ours may need; a whole kernel has hundreds of megabytes.
PARTS = ("kernel/drivers/virtio", "kernel/drivers/char/virtio_console.ko", "kernel/net/9p",
         "kernel/fs/9p", "kernel/fs/netfs", "kernel/fs/fscache",
         "kernel/drivers/net/virtio_net.ko", "kernel/drivers/net/net_failover.ko",
         "kernel/net/core/failover.ko")


def unpacked_kernel():
    """Its folder in the cache of `tools/test-vm`."""
    sys.path.insert(0, os.path.join(harness.TESTS, "vm"))
    import kernels

    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache",
                         "sandbox-test-vm")
    try:
        return kernels.prepare(VERSION, cache)
    except (kernels.Problem, subprocess.CalledProcessError, OSError) as reason:
        raise harness.Unavailable(f"no kernel {VERSION} to boot: {reason}") from None


class Machine(Engine):
    slow = True
    accepts = False  # whatever the native engine has, it has

    def __init__(self):
        super().__init__("vm")
        self.environment = {}

    def prepare(self, world, identity):
        not_in_a_guest()
        if not shutil.which("qemu-system-x86_64"):
            raise harness.Unavailable("no QEMU here (fix: apt install qemu-system-x86)")
        if not shutil.which("depmod", path="/sbin:/usr/sbin:/usr/bin"):
            raise harness.Unavailable("no depmod here (fix: apt install kmod)")
        if not self.environment:
            self._install(world)
        return []

    def left_out(self, identity):
        if not os.environ.get("SANDBOX_TEST_LONG"):
            return "a boot takes seconds: see test_vm.py; the list runs with SANDBOX_TEST_LONG=1"

    def _install(self, world):
        """Readable for both identities; the configuration names it."""
        kernel, base = unpacked_kernel(), os.path.join(world.base, "machine")
        modules = os.path.join(base, "lib/modules", kernel.release)
        os.makedirs(modules)
        shutil.copy(kernel.image, os.path.join(base, "vmlinux"))
        for path in kernel.modules.glob("modules.*"):
            shutil.copy(path, modules)
        for part in PARTS:
            source, target = kernel.modules / part, os.path.join(modules, part)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target)
            elif source.exists():
                shutil.copy(source, target)
        self.kernel = os.path.join(base, "vmlinux")
        configuration = os.path.join(base, "config/sandbox")
        os.makedirs(configuration)
        with open(os.path.join(configuration, "policy.yaml"), "w") as out:
            out.write(f"version: 1\nvm: {{kernel: {self.kernel}}}\n")
        self.environment = {"XDG_CONFIG_HOME": os.path.dirname(configuration)}
        for folder, _, _ in os.walk(base):
            os.chmod(folder, 0o755)
