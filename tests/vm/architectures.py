"""What differs between the processors that guests have: packages, QEMU's words, and the root.

A guest of this machine's own kind boots on this machine's root. Another kind gets a root of its own:
Debian packages, downloaded by apt with a state of its own and unpacked into the cache. Nothing here
changes what this machine has installed.
"""

import dataclasses
import hashlib
import os
import pathlib
import shlex
import subprocess
import tempfile

# What the tests use there, and what a cross build links against.
ROOT_PACKAGES = (
    "base-files base-passwd bash coreutils dash debianutils diffutils e2fsprogs file findutils gawk "
    "grep gzip hostname iproute2 iputils-ping kmod less libc-bin login mount ncurses-base passwd "
    "perl-base procps psmisc sed tar util-linux busybox-static "
    "bind9-dnsutils bubblewrap curl gcc gdb git nftables openssl passt slirp4netns strace "
    "python3 python3-pytest python3-pexpect "
    "libc6-dev libc-ares-dev libcmocka-dev libfuse3-dev libjansson-dev libseccomp-dev libyaml-dev"
).split()


@dataclasses.dataclass(frozen=True)
class Architecture:
    debian: str  # its name in packages
    qemu: tuple  # program, machine and processor
    package: str  # Debian package of the program
    console: str
    own_root: bool = False


ARCHITECTURES = {
    "amd64": Architecture("amd64", ("qemu-system-x86_64", "-M", "q35", "-cpu", "max"),
                          "qemu-system-x86", "console=ttyS0 tsc=reliable no_timer_check"),
    # Signing pointers by the book takes an emulated processor most of its time.
    "arm64": Architecture("arm64", ("qemu-system-aarch64", "-M", "virt", "-cpu",
                                    "max,pauth-impdef=on"),
                          "qemu-system-arm", "console=ttyAMA0", own_root=True),
}


def apt_environment(architecture, cache):
    """For apt: this machine's package sources, but lists and packages of the architecture."""
    if not architecture.own_root:
        return dict(os.environ)
    folder = cache / f"apt-{architecture.debian}"
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    settings = {"APT::Architecture": architecture.debian, "APT::Sandbox::User": "root",
                "APT::Install-Recommends": "false", "Acquire::Languages": "none",
                "Dir::State": folder / "state", "Dir::State::status": folder / "status",
                "Dir::Cache": folder / "cache"}
    lines = [f'{name} "{value}";\n' for name, value in settings.items()]
    # A list: what the machine itself is must not be added.
    lines.append(f'APT::Architectures {{ "{architecture.debian}"; }};\n')
    (folder / "apt.conf").write_text("".join(lines))
    return dict(os.environ, APT_CONFIG=str(folder / "apt.conf"))


def prepare_root(architecture, cache, newest=False):
    """The folder that the guest has as its root; `/` for this machine's own kind."""
    if not architecture.own_root:
        return pathlib.Path("/")
    recipe = hashlib.sha256(" ".join(ROOT_PACKAGES).encode()).hexdigest()[:16]
    final = cache / f"root-{architecture.debian}-{recipe}"
    if final.exists() and not newest:
        return final
    print(f"test-vm: making a root of {architecture.debian} packages", flush=True)
    environment = apt_environment(architecture, cache)
    subprocess.run(["apt-get", "update", "-qq"], env=environment, check=False)
    subprocess.run(["apt-get", "install", "-qq", "-y", "--download-only", *ROOT_PACKAGES],
                   env=environment, check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory(prefix="unpack-", dir=cache) as name:
        tree = pathlib.Path(name, "root")
        packages = cache / f"apt-{architecture.debian}/cache/archives"
        unpack(sorted(packages.glob("*.deb")), tree)
        complete(tree)
        if final.exists():
            final.rename(pathlib.Path(name, "old"))
        tree.rename(final)
    subprocess.run(["apt-get", "clean"], env=environment, check=False)
    return final


def unpack(packages, tree):
    """Their files only: the programs that would configure them are of another processor."""
    for name in ("bin", "sbin", "lib"):
        (tree / "usr" / name).mkdir(parents=True)
        (tree / name).symlink_to(f"usr/{name}")
    into = shlex.join(["tar", "-x", "--keep-directory-symlink", "-C", str(tree)])
    for package in packages:
        subprocess.run(f"dpkg-deb --fsys-tarfile {shlex.quote(str(package))} | {into}", shell=True,
                       check=True)


def complete(tree):
    """What the packages' own scripts would have made, as far as a test misses it."""
    for name in ("media", "mnt", "opt", "srv"):
        (tree / name).mkdir(exist_ok=True)
    for name in ("passwd", "group"):
        (tree / "etc" / name).write_bytes((tree / f"usr/share/base-passwd/{name}.master").read_bytes())
    (tree / "etc/resolv.conf").touch()
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    for name, program in (("awk", "gawk"), ("cc", "gcc")):
        (tree / "usr/bin" / name).symlink_to(program)
    # A cross linker that looks into this tree from outside must stay in it.
    for link in (tree / "usr/lib").glob("*-linux-gnu/*"):
        if link.is_symlink() and os.readlink(link).startswith("/"):
            target = "../../.." + os.readlink(link)
            link.unlink()
            link.symlink_to(target)
