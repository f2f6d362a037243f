"""Names right below "/": the session's root is a file system of its own, and follows the host's."""

import os
import signal
import threading

import pytest

import gates
import sessions
from gates import files, lines

WAIT = "until ls -A / | grep -qx {0}; do sleep 0.02; done; "
GONE = "while ls -A / | grep -qx {0}; do sleep 0.02; done; "


def shell(box, gate, script, answer, **more):
    """A session that has run for a while, with nobody's name in its root."""
    it = gates.Session(box, gate, ["/bin/sh", "-c", f"touch ready; {script}"], answer, **more)
    assert sessions.eventually(lambda: os.path.exists(box.path("ready")))
    return it


def allow(*paths):
    return lambda event: gates.approve() if event["path"] in paths else gates.deny()


def test_a_folder_that_the_host_makes(box, gate, top):
    """It is there, as gated as any other. The control: before, it is not."""
    script = f"ls {top.path} || echo missing; touch asked; {WAIT.format(top.name)}" \
             f"cat {top.path}/file {top.path}/other; stat -c %F {top.path}"
    with shell(box, gate, script, allow(f"{top.path}/file", f"{top.path}/file")) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("asked")))
        if gate == "notify":
            pytest.skip("its root lists what was used, no more: test_a_name_that_is_made_early")
        top.folder()
        result = it.finish()
    assert lines(result) == ["missing", "content of the file", "directory"], (result, it.asked)
    assert sorted(it.asked) == [("read", f"{top.path}/file"), ("read", f"{top.path}/other")]


def test_a_name_that_is_made_early(box, gate, top):
    """Before anybody watches, or a moment after."""
    with gates.Session(box, gate, ["/bin/sh", "-c",
                                   f"until cat {top.path}/file 2>/dev/null; do sleep 0.05; done"],
                       allow(f"{top.path}/file")) as it:
        top.folder()
        assert lines(it.finish()) == ["content of the file"], it.asked


def test_what_becomes_of_a_name(box, gate, top):
    """A file, another one in its place, a link, a folder, nothing."""
    if gate == "notify":
        pytest.skip("its root lists what was used, no more")
    steps = [top.file, lambda: top.file("more\n"), None, top.folder, None]
    looks = [WAIT + "cat /{0}", "until cat /{0} | grep more; do sleep 0.02; done",
             GONE, WAIT + "cat /{0}/other", GONE]
    script = "; ".join(f"{look.format(top.name)}; touch step{number}"
                       for number, look in enumerate(looks)).replace("; ;", ";")
    with shell(box, gate, script, lambda event: gates.approve()) as it:
        for number, step in enumerate(steps):
            step() if step else top.remove()
            assert sessions.eventually(lambda: os.path.exists(box.path(f"step{number}"))), number
        assert lines(it.finish()) == ["content", "more", "content of the other"], it.asked


def test_names_are_followed_when_a_broker_was_killed(box, gate, top):
    """Another one takes its place."""
    if gate == "notify":
        pytest.skip("its root lists what was used, no more")
    script = f"{WAIT.format(top.name)} cat {top.path}; touch step; {GONE.format(top.name)}" \
             f"touch gone; {WAIT.format(top.name)} cat {top.path}/file"
    with shell(box, gate, script, lambda event: gates.approve()) as it:
        top.file()
        assert sessions.eventually(lambda: os.path.exists(box.path("step")))
        os.kill(gates.broker_of(sessions.monitor_of(box, it.sid)), signal.SIGKILL)
        top.remove()
        assert sessions.eventually(lambda: os.path.exists(box.path("gone")))
        top.folder()
        assert lines(it.finish()) == ["content", "content of the file"], it.asked


def test_names_that_come_and_go_while_sessions_end(box, gate, top):
    """What is still being told of a name finds no gate any more."""
    if gate == "notify":
        pytest.skip("its root lists what was used, no more")
    over = threading.Event()

    def change():
        while not over.is_set():
            os.mkdir(top.path)
            os.rmdir(top.path)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(8):
            inside = box.run(["sleep", "0.1"], options=("--mode", "dynamic", "--gate", gate))
            assert inside.exit == 0, inside
    finally:
        over.set()
        changing.join()


def test_a_link_that_the_host_makes(box, gate, top, ground):
    if gate == "notify":
        pytest.skip("its root lists what was used, no more")
    script = WAIT.format(top.name) + f"readlink {top.path}; cat {top.path}/file; touch step; " \
        + GONE.format(top.name)
    with shell(box, gate, script, allow(f"{ground}/file")) as it:
        os.symlink(ground, top.path)
        assert sessions.eventually(lambda: os.path.exists(box.path("step")))
        top.remove()
        assert lines(it.finish()) == [ground, "content of the file"], it.asked


@pytest.mark.escape
def test_what_names_are_taken_from_is_out_of_reach(box, gate, top):
    """All of the gate lies somewhere in the session then, where a host's own /tmp would be asked for as
    if it was the session's. The control: it is there."""
    if gate == "notify":
        pytest.skip("its root lists what was used, no more")
    script = WAIT.format(top.name) + "grep -c /dev/.taken /proc/self/mountinfo; " \
        "for i in /dev/.taken*; do ls $i; ls $i/here; cd $i; cat $i/here/etc/passwd; cat $i/here/tmp/..; " \
        "chmod 777 $i; done"
    with shell(box, gate, script, lambda event: gates.approve()) as it:
        top.folder()
        result = it.finish()
    assert lines(result) == ["1"] and result.stderr.count("denied") == 4, result
    assert not it.asked and "Read-only file system" in result.stderr, (result, it.asked)


@pytest.mark.escape
def test_what_policy_hides_stays_hidden(box, gate, top):
    """A name that comes later, and is read outside."""
    box.identity.file(box.home("hides.yaml"),
                      f"version: 1\nfilesystem: {{hide: ['{top.path}', '{top.path}/**']}}\n")
    script = "touch ready; for i in $(seq 15); do cat {0}/file {0}; sleep 0.02; done".format(top.path)
    with gates.Session(box, gate, ["/bin/sh", "-c", script], lambda event: gates.approve(),
                       options=["--policy", box.home("hides.yaml")]) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("ready")))
        top.folder()
        assert lines(box.plain(["/bin/cat", f"{top.path}/file"])) == ["content of the file"]
        result = it.finish()
    assert result.stdout == "" and not it.asked, (result, it.asked)


def test_what_is_granted_stays_when_the_host_removes_it(box, gate, top):
    """As what is open stays open. The session goes on."""
    top.folder()
    script = f"cd {top.path} && cat file && touch {box.path('step')}; " \
             f"until [ -e {box.path('go')} ]; do sleep 0.02; done; echo on"
    with shell(box, gate, script, lambda event: gates.approve(tree=top.path)) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("step")))
        top.remove()
        top.folder()
        box.identity.file(box.path("go"), "")
        assert lines(it.finish()) == ["content of the file", "on"], it.asked


def test_many_names_at_once(box, gate, top):
    """More than are asked for at a time; the session is none the worse."""
    if gate == "notify":
        pytest.skip("its root lists what was used, no more")
    script = f"until [ $(ls -A / | grep -c ^{top.name}) = 200 ]; do sleep 0.02; done; touch step; " \
             f"until [ $(ls -A / | grep -c ^{top.name}) = 0 ]; do sleep 0.02; done; echo none"
    with shell(box, gate, script, lambda event: gates.deny()) as it:
        names = [f"{top.path}-{number}" for number in range(200)]
        try:
            for name in names:
                os.mkdir(name)
            assert sessions.eventually(lambda: os.path.exists(box.path("step")))
        finally:
            for name in names:
                os.rmdir(name)
        assert lines(it.finish()) == ["none"]


ANSWERS = [(gates.deny(), "EACCES"), (gates.approve(), "ok"), (gates.approve("once"), "ok")]


@pytest.mark.escape
@pytest.mark.parametrize("answer,outcome", ANSWERS, ids=["denied", "allowed", "once"])
def test_a_socket_there_is_asked_for(box, gate, top, answer, outcome):
    """The kernel looks nothing up where a mount begins, so a socket is a link to it. The control: it is
    spoken to outside, and by who may."""
    argv = [files(box), "connect", top.path]
    with gates.listening(box, top.path):
        assert lines(box.plain(argv)) == ["connect ok"]
        inside, asked = gates.run(box, gate, argv, lambda event: answer)
    assert lines(inside) == [f"connect {outcome}"], (inside, asked)
    assert asked == [("connect", top.path)]


def test_a_socket_that_the_host_makes(box, gate, top):
    if gate == "notify":
        pytest.skip("its root lists what was used, no more")
    script = f"{WAIT.format(top.name)} {files(box)} connect {top.path}"
    with shell(box, gate, script, lambda event: gates.approve()) as it:
        with gates.listening(box, top.path):
            assert lines(it.finish()) == ["connect ok"] and it.asked == [("connect", top.path)]


@pytest.mark.parametrize("way", ["stat", "lstat", "access", "path-only"])
def test_who_looks_at_a_socket_there(box, gate, top, way):
    """Sees a socket, or nothing. The right to speak to it is asked for where it takes that: with FUSE, and by
    who holds it."""
    argv = [files(box), way, top.path, "connect", top.path]
    with gates.listening(box, top.path):
        outside = lines(box.plain(argv))
        allowed, asked = gates.run(box, gate, argv, lambda event: gates.approve())
        refused, _ = gates.run(box, gate, argv, lambda event: gates.deny())
    assert lines(allowed) == outside and ("connect", top.path) in asked, (allowed, asked)
    assert lines(refused) == [f"{way} EACCES", "connect EACCES"], refused


def test_who_changes_the_owner_of_a_socket_there(box, gate, top):
    """Refused as a write. The control: it can be spoken to afterwards."""
    argv = [files(box), "chown", top.path, "connect", top.path]
    with gates.listening(box, top.path):
        inside, asked = gates.run(box, gate, argv, lambda event: gates.approve())
    assert lines(inside) == ["chown EROFS", "connect ok"], (inside, asked)


@pytest.mark.parametrize("want", ["read", "write"])
@pytest.mark.parametrize("answer", ["allowed", "denied"])
def test_a_fifo_there_is_the_hosts(box, gate, top, want, answer):
    """The kernel opens it by itself. The control: not if it is denied."""
    if gate == "fuse" and not gates.TELLS_WHO_ASKS:
        pytest.skip("before Linux 6.11 it is not asked about")
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    os.mkfifo(top.path)
    box.identity.own(top.path)
    end = os.open(top.path, os.O_RDWR | os.O_NONBLOCK)
    script = {"read": f"head -n 1 {top.path}", "write": f"echo word >{top.path}"}[want]
    try:
        if want == "read":
            os.write(end, b"word\n")
        inside, asked = gates.run(box, gate, ["/usr/bin/timeout", "5", "/bin/sh", "-c", script],
                                  lambda event: gates.approve() if answer == "allowed" else gates.deny(),
                                  options=["--policy", box.home("writes.yaml")])
        got = inside.stdout.encode() if want == "read" else read_some(end)
    finally:
        os.close(end)
    assert asked == [(want, top.path)], (inside, asked)
    assert got == (b"word\n" if answer == "allowed" else b""), inside
    assert inside.exit in ((0,) if answer == "allowed" else (1, 2)), inside


def read_some(end):
    try:
        return os.read(end, 100)
    except BlockingIOError:
        return b""


# ---- writing right below them ----

@pytest.mark.parametrize("way", ["mkdir", "bind", "create", "exclusive", "symlink", "mkfifo"])
def test_a_write_right_below_such_a_name_waits(box, gate, top, way):
    """The call itself goes on when the folder is there, also one that the kernel does not repeat."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    top.folder()
    argv = [files(box), way, f"{top.path}/first", way, f"{top.path}/second"]
    inside, asked = gates.run(box, gate, argv, lambda event: gates.approve(),
                              options=["--policy", box.home("writes.yaml")])
    assert lines(inside) == [f"{way} ok"] * 2 and len(asked) == 1, (inside, asked)
    assert {"first", "second"} <= set(os.listdir(top.path))


@pytest.mark.parametrize("way", ["mkdir", "bind"])
def test_a_write_there_that_is_denied(box, gate, top, way):
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    top.folder()
    inside, asked = gates.run(box, gate, [files(box), way, f"{top.path}/made"],
                              lambda event: gates.deny(),
                              options=["--policy", box.home("writes.yaml")])
    assert lines(inside) == [f"{way} EACCES"] and len(asked) == 1, (inside, asked)
    assert "made" not in os.listdir(top.path)


def test_a_file_there_that_is_sent_once(box, gate, top):
    """The kernel has to know its size."""
    if gate == "fuse" and not gates.TELLS_WHO_ASKS:
        pytest.skip("before Linux 6.11 there is no second look at it")
    top.file("content\n")
    argv = [files(box), "sendfile", top.path]
    inside, asked = gates.run(box, gate, argv, lambda event: gates.approve("once"))
    assert lines(inside) == lines(box.plain(argv)), (inside, asked)
