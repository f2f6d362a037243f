"""inotify: the kernel looks a name up, if it does not know it yet, and tells its file system nothing more."""

import os

import pytest

import gates
import sessions
from gates import files, lines

# Where the watched thing is, and what of it is changed.
PLACES = {"sub": ("{ground}/sub", "/made"), "file": ("{ground}/file", ""),
          "top": ("{top}", "/made"), "top-file": ("{top}.file", "")}


def places(*names):
    return pytest.mark.parametrize("place", names)


@pytest.fixture
def watched(place, box, ground, top):
    """A path to watch, and the file that is written to show a change of it."""
    top.folder()
    box.identity.file(f"{top.path}.file", "content\n")
    path, changed = PLACES[place]
    path = path.format(ground=ground, top=top.path)
    yield path, path + changed
    os.unlink(f"{top.path}.file")


def need_to_know(gate, path):
    """Before Linux 6.11 the FUSE gate cannot see that a watch is made, where no file is looked up."""
    if gate == "fuse" and not gates.TELLS_WHO_ASKS and (os.path.isdir(path) or path.count("/") == 1):
        pytest.skip("before Linux 6.11 a watch on a folder, or right below /, is not asked about")


def want(path):
    return "list" if os.path.isdir(path) else "read"


def watch(box, gate, argv, answer, changed):
    """What a session's watch sees of a change by the host, and what was asked."""
    with gates.Session(box, gate, argv, lambda event: answer) as it:
        seen = sessions.eventually(lambda: os.path.exists(box.path("watching"))
                                   or it.process.poll() is not None)
        assert seen, it.asked
        box.identity.file(changed, "more\n")
        result = it.finish()
    if os.path.exists(box.path("watching")):
        os.unlink(box.path("watching"))
    return lines(result), it.asked


@places(*PLACES)
@pytest.mark.parametrize("scope", ["session", "once"])
def test_a_watch_sees_what_the_host_does(box, gate, watched, scope):
    """It waits for the answer, and is on the host's own object then. The control: one that is denied."""
    path, changed = watched
    need_to_know(gate, path)
    argv = [files(box), "watch", path]
    assert watch(box, gate, argv, gates.deny(), changed) == (["watch EACCES"], [(want(path), path)])
    assert watch(box, gate, argv, gates.approve(scope), changed) \
        == (["watch changed"], [(want(path), path)])


@places(*PLACES)
def test_what_is_watched_may_be_asked_for_to_write(box, gate, watched):
    """As a program does that watches its settings: it writes them later, and that is asked about."""
    path, changed = watched
    need_to_know(gate, path)
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    way = "append" if path == changed else "create"
    inside, asked = gates.run(box, gate, [files(box), "inotify", path, "inotify", path, way, changed],
                              lambda event: gates.approve(), options=["--policy", box.home("writes.yaml")])
    assert lines(inside) == ["inotify ok", "inotify ok", f"{way} ok"], (inside, asked)
    assert asked == [(want(path), path), ("write", path)], asked


@places("sub", "top")
@pytest.mark.parametrize("root", ["/proc/self/root", "/proc/thread-self/root"])
def test_a_watch_by_way_of_the_root_in_proc(box, gate, watched, root):
    path, changed = watched
    need_to_know(gate, path)
    argv = [files(box), "watch", root + path]
    assert watch(box, gate, argv, gates.deny(), changed) == (["watch EACCES"], [(want(path), path)])
    assert watch(box, gate, argv, gates.approve(), changed) == (["watch changed"], [(want(path), path)])


@places("sub", "top")
def test_a_watch_on_what_was_looked_at_before(box, gate, watched):
    """The kernel remembers the name then, and looks nothing up. (Whoever looks at a file is asked for it.)"""
    path, changed = watched
    need_to_know(gate, path)
    argv = [files(box), "stat", path, "watch", path]
    refused, asked = watch(box, gate, argv, gates.deny(), changed)
    assert refused[1:] == ["watch EACCES"] and asked == [("list", path)], (refused, asked)
    allowed, asked = watch(box, gate, argv, gates.approve(), changed)
    assert allowed[1:] == ["watch changed"] and asked == [("list", path)], (allowed, asked)


@places("sub", "top")
@pytest.mark.parametrize("way", ["watch-here", "watch-held"])
def test_a_watch_without_a_name(box, gate, watched, way):
    """The caller's own folder, or what it holds by a descriptor."""
    path, changed = watched
    need_to_know(gate, path)
    argv = [files(box), way, path]
    refused, asked = watch(box, gate, argv, gates.deny(), changed)
    assert refused == [f"{way} EACCES"] and asked, (refused, asked)
    allowed, asked = watch(box, gate, argv, gates.approve(), changed)
    assert allowed == [f"{way} changed"] and asked == [("list", path)], (allowed, asked)


@places("sub", "top-file")
def test_a_watch_that_follows_no_links(box, gate, watched):
    path, _ = watched
    argv = [files(box), "inotify-nofollow", path]
    need_to_know(gate, path)
    inside, asked = gates.run(box, gate, argv, lambda event: gates.approve())
    if gate == "fuse" and not gates.TELLS_WHO_ASKS:
        assert lines(inside) == ["inotify-nofollow EACCES"] and not asked, (inside, asked)
        assert "such a call cannot wait" in inside.stderr and path in inside.stderr, inside
        return
    assert lines(inside) == ["inotify-nofollow ok"] and asked == [(want(path), path)], (inside, asked)
    refused, _ = gates.run(box, gate, argv, lambda event: gates.deny())
    assert lines(refused) == ["inotify-nofollow EACCES"], refused


@places("sub", "top")
def test_a_watch_by_a_thread(box, gate, watched):
    path, _ = watched
    if gate == "fuse" and not gates.TELLS_WHO_ASKS:
        pytest.skip("before Linux 6.11 threads other than the first are not recognised")
    argv = [files(box), "thread-inotify", path]
    for answer, outcome in ((gates.deny(), "EACCES"), (gates.approve(), "ok")):
        inside, asked = gates.run(box, gate, argv, lambda event: answer)
        assert lines(inside) == [f"thread-inotify {outcome}"], (inside, asked)
        assert asked == [(want(path), path)], asked


@places("sub", "top")
def test_a_watch_by_who_is_traced(box, gate, watched):
    """Nobody else can hold it. Where a name is looked up it waits there; elsewhere it fails once, and is
    native from then on. Once is not offered."""
    path, _ = watched
    need_to_know(gate, path)
    argv = [files(box), "traced-inotify", path, "traced-inotify", path]
    inside, asked = gates.run(box, gate, argv, lambda event: gates.approve())
    first = "ESTALE" if gate == "fuse" and path.count("/") == 1 else "ok"
    assert lines(inside) == [f"traced-inotify {first}", "traced-inotify ok"], (inside, asked)
    assert asked == [(want(path), path)], asked
    refused, _ = gates.run(box, gate, argv, lambda event: gates.deny())
    assert lines(refused) == ["traced-inotify EACCES"] * 2, refused


def test_a_folder_above_what_is_allowed(box, gate):
    """It can be watched, and nobody is asked: its names are served, so nothing is seen of a change."""
    inside, asked = gates.run(box, gate, [files(box), "inotify", os.path.dirname(box.path("."))],
                              lambda event: gates.deny())
    assert lines(inside) == ["inotify ok"] and not asked, (inside, asked)


WATCH = "import ctypes; libc = ctypes.CDLL(None); print(libc.inotify_add_watch(libc.inotify_init(), b'below', 2))"


@pytest.mark.parametrize("to_speak", [{"tree": "{ground}/sub"}, {}], ids=["by the folder", "by itself"])
def test_from_a_folder_that_was_granted_after_it_was_entered(box, gate, ground, to_speak):
    """Its mount is not met from there. A watch, and a socket that is spoken to, twice, are the host's own all the same. The
    control: a file is read."""
    more = {name: value.format(ground=ground) for name, value in to_speak.items()}
    connect = f"{files(box)} connect socket"
    script = f'cd {ground}/sub; cat below; python3 -c "$0"; {connect}; {connect}'
    with gates.listening(box, f"{ground}/sub/socket"):
        inside, asked = gates.run(box, gate, ["/bin/sh", "-c", script, WATCH], lambda event: gates.approve(
            **more if event["op"] == "connect" else {"tree": f"{ground}/sub"}))
    assert lines(inside) == ["content below", "1", "connect ok", "connect ok"], (inside, asked)
