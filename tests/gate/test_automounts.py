"""Folders in which the host mounts what somebody looks for (autofs): a name in one may be that of a server. Nobody has been
asked yet when the gate looks where a path leads, so it must not be looked for, and nobody must wait for it."""

import os
import select
import subprocess

import pytest

import gates
from gates import files, lines, listening

WAYS = ("open", "stat", "lstat", "access", "connect", "send", "inotify", "path-only", "execute", "mkdir", "statfs", "chdir")


class Automounts:
    """A folder of this kind, of which the test is the daemon; something is mounted in it already."""

    def __init__(self, box):
        self.path = box.home("automounts")
        box.identity.folder(self.path)
        self.requests, writer = os.pipe()
        options = f"fd={writer},pgrp={os.getpgrp()},minproto=5,maxproto=5,indirect"
        self.mount("autofs", self.path, "-o", options, pass_fds=[writer])
        os.close(writer)
        os.mkdir(f"{self.path}/here")
        self.mount("tmpfs", f"{self.path}/here")
        box.identity.file(f"{self.path}/here/file", "content\n")

    def mount(self, kind, path, *options, **more):
        subprocess.run(["mount", "-i", "-t", kind, *options, "test", path], check=True, **more)

    def was_asked_to_mount(self):
        return bool(select.select([self.requests], [], [], 0.3)[0])

    def remove(self):
        os.close(self.requests)  # who waits is let go
        for path in (f"{self.path}/here", self.path):
            subprocess.run(["umount", "-l", path], check=True)


@pytest.fixture
def automounts(host_root, box):
    with open("/proc/filesystems") as source:
        if "\tautofs\n" not in source.read():
            pytest.skip("the kernel has no autofs")
    made = Automounts(box)
    yield made
    made.remove()


@pytest.mark.escape
def test_nothing_is_mounted_before_somebody_was_asked(box, gate, automounts):
    """By its name, by links of the project, by a folder that can be entered. The control: without a gate the host is
    asked to mount it."""
    server, where = f"{automounts.path}/server", box.project
    os.symlink(f"{server}/file", f"{where}/link")
    os.symlink(server, f"{where}/folder")
    paths = (server, f"{server}/file", f"{where}/link", f"{where}/folder/file", f"{automounts.path}/here/../server/file")
    argv = [files(box), *(word for path in paths for way in WAYS for word in (way, path))]
    result, asked = gates.run(box, gate, argv, lambda event: gates.deny(), timeout=15)
    assert not automounts.was_asked_to_mount(), (result, asked)
    assert len(lines(result)) == len(argv) // 2 and not any("server" in path for _, path in asked), (result, asked)
    with box.popen(["/bin/cat", f"{server}/file"]) as control:
        assert automounts.was_asked_to_mount()
        control.kill()


def test_what_is_mounted_already_is_asked_about(box, gate, automounts):
    path = f"{automounts.path}/here"
    with listening(box, f"{path}/socket"):
        argv = [files(box), "open", f"{path}/file", "inotify", f"{path}/file", "connect", f"{path}/socket"]
        outside = lines(box.plain(argv))
        result, asked = gates.run(box, gate, argv, lambda event: gates.approve())
    assert lines(result) == outside and outside[0] == "open content", (result, outside)
    assert {name for _, name in asked} == {f"{path}/file", f"{path}/socket"}, asked
