"""Gets Debian kernels into a cache folder: package, uncompressed kernel, modules, first file system.

Nothing here installs a kernel: packages are downloaded by apt and unpacked into the cache.
"""

import contextlib
import fcntl
import hashlib
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from architectures import ARCHITECTURES, apt_environment

# The kernels of the lane and the Landlock version each must have. A new kernel is one line here.
KERNELS = {
    "6.1": 2,
    "6.12": 6,
}

# What the guest needs before it sees the host's root, and what the tests ask for afterwards.
MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "9p", "9pnet_virtio", "overlay", "ext4",
           "fuse", "tun", "nf_tables", "nft_tproxy", "nft_chain_nat", "nft_redir")

# Never needed in a guest, and three quarters of the unpacked size.
UNUSED_MODULES = ("sound", "drivers/gpu", "drivers/media", "drivers/net/ethernet",
                  "drivers/net/wireless", "drivers/infiniband", "drivers/scsi", "drivers/iio")

INIT = pathlib.Path(__file__).with_name("init")


class Problem(Exception):
    """Something the person at the keyboard has to know or do."""


class Kernel:
    """One unpacked kernel: `image` boots, `modules` is its folder below lib/modules."""

    def __init__(self, version, folder):
        self.version = version
        self.folder = folder
        self.image = folder / "vmlinux"
        self.modules = next((folder / "lib/modules").iterdir())
        self.release = self.modules.name


def prepare(version, cache, newest=False, architecture=ARCHITECTURES["amd64"]):
    """The kernel of this version, from the cache or else (or if asked for the newest) from apt."""
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / "lock"):
        remove_leftovers(cache)
        kept = sorted(cache.glob(f"linux-image-{version}.*-{architecture.debian}"),
                      key=lambda path: release_key(path.name))
        if not kept or newest:
            kept.append(fetch(newest_package(version, architecture, cache), architecture, cache))
        return Kernel(version, kept[-1])


@contextlib.contextmanager
def locked(path):
    """Two runs that start together must not unpack into each other."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def remove_leftovers(cache):
    """The folders of runs that were killed; none lasts for a day."""
    for folder in cache.glob("run-*"):
        if folder.stat().st_mtime < time.time() - 86400:
            shutil.rmtree(folder, ignore_errors=True)


def release_key(text):
    return [int(number) for number in re.findall(r"\d+", text)]


def newest_package(version, architecture, cache):
    environment = apt_environment(architecture, cache)
    for update_first in (False, True):
        if update_first:
            rights = [] if architecture.own_root else as_root()
            subprocess.run([*rights, "apt-get", "update", "-qq"], env=environment, check=False)
        names = subprocess.run(["apt-cache", "pkgnames", f"linux-image-{version}."], check=True,
                               env=environment, capture_output=True, text=True).stdout.split()
        # The plain flavour only: the cloud one has no 9p.
        plain = [name for name in names
                 if re.fullmatch(rf"linux-image-[\d.+-]+(deb\d+)?-{architecture.debian}", name)]
        if plain:
            return max(plain, key=release_key)
    raise Problem(f"the package sources of this machine offer no kernel {version}: add the suite "
                  "that has it (security updates or backports), or choose others with --kernel")


def as_root():
    return [] if os.geteuid() == 0 else ["sudo"]


def fetch(package, architecture, cache):
    final = cache / package
    if final.exists():
        return final
    print(f"test-vm: downloading {package}", flush=True)
    with tempfile.TemporaryDirectory(prefix="unpack-", dir=cache) as name:
        work = pathlib.Path(name)
        # Root may download into a folder that apt's own user cannot write to.
        subprocess.run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", package],
                       cwd=work, env=apt_environment(architecture, cache), check=True)
        tree = work / "tree"
        subprocess.run(["dpkg-deb", "-x", next(work.glob("*.deb")), tree], check=True)
        release = next((tree / "lib/modules").iterdir())
        (tree / "vmlinux").write_bytes(uncompressed(next((tree / "boot").glob("vmlinuz-*"))))
        for unused in ("boot", "usr"):
            shutil.rmtree(tree / unused, ignore_errors=True)
        for unused in UNUSED_MODULES:
            shutil.rmtree(release / "kernel" / unused, ignore_errors=True)
        subprocess.run(["depmod", "-b", tree, release.name], check=True)
        tree.chmod(0o755)
        tree.rename(final)
    return final


def uncompressed(image):
    """The ELF kernel inside a bzImage: emulated, its own unpacking takes longer than the boot.
    Debian's kernels for arm64 are not compressed."""
    data = image.read_bytes()
    if data[0x38:0x3c] == b"ARM\x64":
        return data
    for magic, unpack in ((b"\xfd7zXZ\0", unxz), (b"\x28\xb5\x2f\xfd", unzstd)):
        start = data.find(magic)
        while start >= 0:
            with contextlib.suppress(lzma.LZMAError, subprocess.CalledProcessError):
                kernel = unpack(data[start:])
                if kernel.startswith(b"\x7fELF"):
                    return kernel
            start = data.find(magic, start + 1)
    raise Problem(f"no xz or zstd compressed kernel in {image.name}")


def unxz(data):
    return lzma.LZMADecompressor().decompress(data)


def unzstd(data):
    # What follows the kernel in the image makes zstd complain after it has written everything.
    return subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=False).stdout


def initramfs(kernel, root):
    """The first file system: busybox, the modules in the order they are loaded, and our init."""
    busybox = root / "bin/busybox"
    # Named after what it is made of, so that a change makes a new one.
    recipe = INIT.read_bytes() + " ".join(MODULES).encode() + str(busybox.stat().st_mtime).encode()
    final = kernel.folder / f"initramfs-{hashlib.sha256(recipe).hexdigest()[:16]}"
    if final.exists():
        return final
    with tempfile.TemporaryDirectory(prefix="initramfs-", dir=kernel.folder) as name:
        tree = pathlib.Path(name, "tree")
        for folder in ("bin", "modules", "proc", "sys", "dev", "control", "lower", "lowers", "upper",
                       "root", "keep"):
            (tree / folder).mkdir(parents=True)
        shutil.copy(busybox, tree / "bin/busybox")
        shutil.copy(INIT, tree / "init")
        (tree / "init").chmod(0o755)
        order = [copy_module(path, tree / "modules") for path in module_files(kernel)]
        (tree / "modules/order").write_text("\n".join(order) + "\n")
        # Not compressed: unpacking is what an emulated processor is slow at.
        image = pathlib.Path(name, "image")
        with open(image, "wb") as out:
            files = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
            subprocess.run(["cpio", "-o", "-H", "newc", "-R", "0:0", "--quiet"], cwd=tree,
                           input=files.encode(), stdout=out, check=True)
        image.rename(final)
    return final


def module_files(kernel):
    """Every module file that MODULES need, each after those that it needs itself."""
    found = {}
    for module in MODULES:
        lines = subprocess.run(["modprobe", "-d", kernel.folder, "-S", kernel.release,
                                "--show-depends", module], check=True, capture_output=True,
                               text=True).stdout.splitlines()
        found.update((line.split()[1], None) for line in lines if line.startswith("insmod "))
    return [pathlib.Path(path) for path in found]


def copy_module(path, folder):
    name = path.name.removesuffix(".xz")
    data = path.read_bytes()
    (folder / name).write_bytes(data if name == path.name else lzma.decompress(data))
    return name
