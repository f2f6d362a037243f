"""What waits at the gate, and what comes of it: every way to use a path, both triggers, both
identities. The same program does the same outside and inside, and the lines are compared."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time

import pytest

import gates
import harness
import sessions
from gates import files, lines, listening

READS = ("open", "old-open", "compat-open", "openat", "openat2", "in-root", "mmap", "path-only", "path-nofollow", "nofollow",
         "stat", "lstat", "fstatat", "statx", "access", "faccessat2", "getxattr", "listxattr",
         "inotify", "statfs", "relative", "up", "proc-fd", "proc-cwd", "reopen", "thread",
         "thread-self", "fork", "directory", "bad-resolve", "readlink", "execute")
WRITES = ("append", "create", "exclusive", "mkdir", "rmdir", "unlink", "truncate", "rename",
          "symlink", "chmod", "fchmodat", "chown", "mkfifo", "mknod", "bind")
MAKES = ("create", "mkdir", "symlink", "mkfifo", "mknod", "bind")
CHANGES = ("append", "truncate", "chmod", "fchmodat", "chown", "unlink", "rename")


def words(ways, path):
    return [word for way in ways for word in (way, path)]


# ---- allowed ----


def test_every_way_gives_what_it_gives_outside(box, gate, ground):
    """Once the folder is allowed, nothing differs: neither results nor errors."""
    argv = [files(box)]
    for name in ("file", "link", "sub", "folder-link", "dangling", "missing", "missing/below",
                 "file/below", f"deep{gates.LINKS - 1}"):
        ways = [way for way in READS if (way, name) not in OUTSIDE_ONLY and
                not (name in ("sub", "folder-link") and way in ("execute", "inotify"))]
        argv += words(ways, f"{ground}/{name}")
    argv += words(("execute",), f"{ground}/program") + words(("execute",), f"{ground}/script")
    argv += words(("list",), ground)
    outside = box.plain(argv)
    inside, asked = gates.run(box, gate, argv, lambda event: gates.approve(tree=ground))
    assert inside.exit == 0, inside
    assert lines(inside) == lines(outside)
    assert {path for _, path in asked} and all(path.startswith(ground) for _, path in asked)


# What depends on where the program stands, not on the gate.
OUTSIDE_ONLY = {("statfs", "sub"), ("statfs", "folder-link")}


def test_the_call_that_waited_succeeds(box, gate, ground):
    """Each way is the first to touch its file: it waits, is allowed, and no restart is needed."""
    ways = [way for way in READS if way not in ("directory", "bad-resolve", "readlink", "execute",
                                                "thread-self")]
    argv = [files(box)]
    for way in ways:
        box.identity.file(f"{ground}/for-{way}/file", f"content for {way}\n")
        argv += [way, f"{ground}/for-{way}/file"]
    outside = box.plain(argv)
    inside, asked = gates.run(box, gate, argv, lambda event: gates.approve())
    assert lines(inside) == lines(outside), (inside, asked)
    touched = {path.split("/for-")[1].split("/")[0] for _, path in asked}
    assert touched == set(ways), "not asked about"


@pytest.mark.parametrize("answer", ["session", "once", "writes"])
def test_what_the_kernel_does_by_the_size_alone(box, gate, ground, answer):
    """A file that is served without a mount (once, or where writes are asked about) is as long as it is.
    The control: a way that looks at the open file."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    options = ["--policy", box.home("writes.yaml")] if answer == "writes" else []
    argv = [files(box)]
    for way in ("mmap", "mmap-looked", "sendfile"):
        box.identity.file(f"{ground}/for-{way}/file", f"content for {way}\n")
        argv += [way, f"{ground}/for-{way}/file"] * 2
    scope = "once" if answer == "once" else "session"
    inside, asked = gates.run(box, gate, argv, lambda event: gates.approve(scope), options=options)
    assert lines(inside) == lines(box.plain(argv)), (inside, asked)


def chain(target, count):
    """So many links that lead to a file, beside it; the last one."""
    for number in range(count):
        os.symlink(os.path.basename(target) if number == 0 else f"link{number - 1}",
                   os.path.join(os.path.dirname(target), f"link{number}"))
    return os.path.join(os.path.dirname(target), f"link{count - 1}")


def test_the_call_that_waited_may_have_come_by_many_links(box, gate, ground):
    """Each way is the first to touch its file."""
    ways = [way for way in READS if way not in ("directory", "bad-resolve", "readlink", "lstat",
                                                "thread-self", "nofollow", "path-nofollow", "execute",
                                                "proc-fd", "proc-cwd")]  # more links
    argv = [files(box)]
    for way in ways:
        box.identity.file(f"{ground}/for-{way}/file", f"content for {way}\n")
        argv += [way, chain(f"{ground}/for-{way}/file", gates.LINKS - 1)]
    argv += ["execute", chain(f"{ground}/program", gates.LINKS - 1)]
    outside = box.plain(argv)
    inside, asked = gates.run(box, gate, argv, lambda event: gates.approve())
    assert lines(inside) == lines(outside), (inside, asked)
    assert {path.split("/for-")[1].split("/")[0] for _, path in asked if "/for-" in path} == set(ways)


# A folder as deep as a path can be, and links that go out of it and in again, as often as a text can say.
WINDING = """
import os, sys
for _ in range((4000 - len(os.getcwd())) // 2):
    os.mkdir("a")
    os.chdir("a")
links = int(sys.argv[2])
for number in range(links):
    os.symlink("../a/" * 800 + f"link{number + 1}", f"link{number}")
os.symlink(sys.argv[1], f"link{links}")
print(open("link0").read(), end="")
"""


# It takes the kernel so long that somebody is likely to mount something meanwhile: 13 links are 39 in three walks.
@pytest.mark.parametrize("links", [2, 12])
def test_a_winding_path_keeps_nobody_else_waiting(box, gate, ground, links):
    """The kernel needs milliseconds for it, and the monitor must not need much longer: it has other things
    to do. Where it walks itself (seccomp notify) it gives up at some length. The control is outside."""
    box.identity.folder(box.path("deep"))
    argv = ["/usr/bin/python3", "-c", WINDING, f"{ground}/file", str(links)]
    try:
        control = box.plain(["/bin/sh", "-c", f"cd deep && exec {shlex.join(argv)}"])
        subprocess.run(["rm", "-rf", box.path("deep/a")], check=True)
        started = time.monotonic()
        result, asked = gates.run(box, gate, ["/bin/sh", "-c", f"cd deep && exec {shlex.join(argv)}"],
                                  lambda event: gates.approve())
        taken = time.monotonic() - started
    finally:
        subprocess.run(["rm", "-rf", box.path("deep")], check=True)
    assert control.stdout == "content of the file\n", control
    assert taken < 4 + 3 * control.seconds, (control, taken)  # it was 16 and more, idle
    if gate == "notify" and links > 2:
        assert "Too many levels of symbolic links" in result.stderr and not asked, (result, asked)
    else:
        assert result.stdout == control.stdout and asked == [("read", f"{ground}/file")], (result, asked)


def test_links_of_earlier_calls_do_not_count(box, gate, ground):
    """The kernel gives up after 40. The control: a socket that is spoken to without that."""
    os.symlink("loop", f"{ground}/loop")
    with listening(box, f"{ground}/socket"), listening(box, f"{ground}/sub/socket"):
        argv = [files(box), "connect", f"{ground}/sub/socket", "stat", f"{ground}/loop", "connect",
                f"{ground}/socket"]
        inside, asked = gates.run(box, gate, argv, lambda event: gates.approve())
    assert lines(inside) == ["connect ok", "stat ELOOP", "connect ok"], (inside, asked)


@pytest.mark.parametrize("way", ["open", "stat", "execute", "path-only"])
def test_forty_links(box, gate, ground, way):
    """All that the kernel follows; one less where the gate shows a link of its own for a moment. See
    gates.LINKS for why each of ten may fail, but not all."""
    argv, count = [files(box)], 40 - (gate == "fuse" and way == "path-only")
    for number in range(10):
        folder = f"{ground}/{number}"
        box.identity.folder(folder)
        with open("/bin/true", "rb") as source, open(f"{folder}/file", "wb") as target:
            target.write(source.read())
        os.chmod(f"{folder}/file", 0o755)
        box.identity.own(f"{folder}/file")
        argv += [way, chain(f"{folder}/file", count)]
    inside, asked = gates.run(box, gate, argv, lambda event: gates.approve())
    assert {line.split(" ", 1)[1] for line in lines(inside)} - {"ELOOP"}, (inside, asked)
    assert "EACCES" not in inside.stdout and asked, inside


@pytest.mark.parametrize("name", ["program", "script"])
def test_programs_are_asked_for_with_their_interpreters(box, gate, ground, name):
    path = f"{ground}/{name}"
    inside, asked = gates.run(box, gate, [files(box), "execute", path],
                              lambda event: gates.approve())
    assert lines(inside) == lines(box.plain([files(box), "execute", path])), inside
    wanted = {f"{ground}/program"} | ({path} if name == "script" else set())
    want = "execute" if gate == "notify" or gates.TELLS_WHO_ASKS else "stat"
    assert set(asked) == {(want, one) for one in wanted}


@pytest.mark.parametrize("way", ["execute", "execute-open"])
def test_what_runs_a_script_of_the_project_is_asked_for(box, gate, ground, way):
    box.identity.file(box.path("script"), f"#!{ground}/program\n")
    os.chmod(box.path("script"), 0o755)
    argv = [files(box), way, box.path("script")]
    inside, asked = gates.run(box, gate, argv, lambda event: gates.approve())
    assert lines(inside) == lines(box.plain(argv)), (inside, asked)
    assert [path for _, path in asked] == [f"{ground}/program"]


def test_there_is_as_much_room_as_on_the_host(box, gate, ground):
    """Of a folder that may only be passed, too, and nobody is asked; of one that was looked at before."""
    argv = ["/usr/bin/stat", "-f", "-c", "%S %b %c", os.path.dirname(ground), ground]
    outside = lines(box.plain(argv))
    inside, asked = gates.run(box, gate, argv, lambda event: gates.deny())
    assert lines(inside) == outside and not asked, (inside, outside)


def test_the_command_itself_may_be_asked_for(box, gate, ground):
    inside, asked = gates.run(box, gate, [f"{ground}/script", "word"],
                              lambda event: gates.approve(), early=True)
    assert (inside.exit, inside.stdout) == (0, f"{ground}/script word\n"), inside


def test_a_socket_is_asked_for(box, gate, ground):
    path = f"{ground}/socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        box.identity.own(path)
        refused, asked = gates.run(box, gate, [files(box), "connect", path],
                                   lambda event: gates.deny())
        assert lines(refused) == ["connect EACCES"], refused
        allowed, asked = gates.run(box, gate, [files(box), "connect", path],
                                   lambda event: gates.approve())
        assert lines(allowed) == ["connect ok"], allowed
        assert asked


def test_a_socket_is_used_in_other_ways(box, gate, ground):
    """Held by a descriptor that is spoken to, looked at, opened, entered: as outside."""
    ways, argv = ("connect-held", "path-only", "writable", "open", "chdir"), [files(box)]
    with contextlib.ExitStack() as them:
        for way in ways:
            box.identity.folder(f"{ground}/for-{way}")
            them.enter_context(listening(box, f"{ground}/for-{way}/socket"))
            argv += [way, f"{ground}/for-{way}/socket"]
        outside = box.plain(argv)
        inside, asked = gates.run(box, gate, argv, lambda event: gates.approve())
        refused, _ = gates.run(box, gate, argv, lambda event: gates.deny())
    assert lines(inside) == lines(outside), (inside, asked)
    assert ("connect", f"{ground}/for-connect-held/socket") in asked, asked
    assert "connect-held EACCES" in lines(refused), refused


def test_a_folder_that_its_owner_closed(box, gate, ground, host_root):
    """Nobody is asked about entering a folder, but who may not on the host does not here. The control:
    one that he may enter."""
    os.chmod(f"{ground}/sub", 0o700)
    os.chown(f"{ground}/sub", 0, 0)
    box.identity.folder(f"{ground}/open")
    ways = ("chdir", "open", *(["access"] if gate == "fuse" else []))  # notify: of its empty likeness
    argv = [files(box), *words(ways, f"{ground}/sub"), "chdir", f"{ground}/open"]
    if box.identity.uid == 0:
        pytest.skip("root outside has more rights than its files give it")
    inside, asked = gates.run(box, gate, argv, lambda event: gates.approve())
    assert lines(inside) == lines(box.plain(argv)), (inside, asked)
    assert lines(inside)[::len(ways)] == ["chdir EACCES", "chdir ok"], inside


def connect_twice(box, path):
    return f"{files(box)} connect {path}; touch step; until [ -e go ]; do sleep 0.02; done; {files(box)} connect {path}"


def test_a_service_that_is_started_again(box, gate, ground):
    """Another socket by the same name: the answer holds for it."""
    path = f"{ground}/socket"
    with contextlib.ExitStack() as first:
        first.enter_context(listening(box, path))
        with gates.Session(box, gate, ["/bin/sh", "-c", connect_twice(box, path)],
                           lambda event: gates.approve()) as it:
            assert sessions.eventually(lambda: os.path.exists(box.path("step"))), it.asked
            first.close()
            os.unlink(path)
            with listening(box, path):
                time.sleep(0.3)
                box.identity.file(box.path("go"), "")
                result = it.finish()
    assert lines(result) == ["connect ok"] * 2 and it.asked == [("connect", path)], (result, it.asked)


def test_a_socket_is_asked_for_again_when_it_was_taken_back(box, gate, ground):
    path, answers = f"{ground}/socket", [gates.deny(), gates.approve()]
    with listening(box, path):
        with gates.Session(box, gate, ["/bin/sh", "-c", connect_twice(box, path)],
                           lambda event: answers.pop()) as it:
            assert sessions.eventually(lambda: os.path.exists(box.path("step"))), it.asked
            assert box.plain([box.world.command, "policy", "revoke", path]).exit == 0
            box.identity.file(box.path("go"), "")
            result = it.finish()
    assert lines(result) == ["connect ok", "connect EACCES"], (result, it.asked)
    assert it.asked == [("connect", path)] * 2


def test_sending_to_a_socket_is_asked_for(box, gate, ground):
    path = f"{ground}/socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        box.identity.own(path)
        argv = [files(box), "send", path]
        refused, _ = gates.run(box, gate, argv, lambda event: gates.deny())
        allowed, asked = gates.run(box, gate, argv, lambda event: gates.approve())
    assert (lines(refused), lines(allowed)) == (["send EACCES"], ["send ok"]), (refused, allowed)
    assert asked == [("connect", path)]


def test_a_program_that_cannot_be_read_is_refused_and_reported(host_root, box, gate, ground):
    """Its memory is closed to its user, so nobody can see what it does. Root may look."""
    closed = os.path.join(box.world.bin, "gate-files-closed")
    if not os.path.exists(closed):
        with open(files(box), "rb") as source, open(closed, "wb") as target:
            target.write(source.read())
        os.chmod(closed, 0o711)
    assert lines(box.plain([closed, "open", f"{ground}/file"])) == ["open content of the file"]
    with listening(box, f"{ground}/socket"):
        inside, asked = gates.run(box, gate, [closed, "open", f"{ground}/file", "connect",
                                              f"{ground}/socket"], lambda event: gates.approve())
    if box.identity.name == "root":
        assert lines(inside) == ["open content of the file", "connect ok"], inside
    elif gate == "fuse":
        assert lines(inside) == ["open content of the file", "connect EACCES"], inside
        # Why the kernel wants to know the file's attributes cannot be seen, either.
        want = "stat" if gates.TELLS_WHO_ASKS else "read"
        assert "each connection of the program" in inside.stderr, inside
        assert asked == [(want, f"{ground}/file")]
    else:
        assert lines(inside) == ["open EACCES", "connect EACCES"] and not asked, inside
        assert "you may run, but not read it" in inside.stderr, inside


def test_who_may_look_at_a_socket_may_not_speak_to_it(box, gate, ground):
    path = f"{ground}/socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        box.identity.own(path)
        argv = [files(box), "stat", path, "lstat", path, "access", path, "connect", path]
        looked, asked = gates.run(
            box, gate, argv,
            lambda event: gates.deny() if event["op"] == "connect" else gates.approve())
        assert lines(looked) == [*lines(box.plain(argv))[:3], "connect EACCES"], (looked, asked)
        assert asked == [("stat", path), ("connect", path)]
        spoken, _ = gates.run(box, gate, argv, lambda event: gates.approve())
        assert lines(spoken)[3] == "connect ok", spoken


def test_what_is_only_held_is_asked_about_whatever_other_flags_say(box, gate, ground):
    """O_CREAT, O_EXCL and O_WRONLY are nothing with O_PATH: a link is followed, and nothing is made."""
    argv = [files(box), *(word for name in ("link", "folder-link", "missing") for word in ("path-made", f"{ground}/{name}"))]
    inside, asked = gates.run(box, gate, argv, lambda event: gates.approve())
    kinds, outside = ([line.split()[1] for line in lines(it)] for it in (inside, box.plain(argv)))
    assert kinds == outside == ["100000", "40000", "ENOENT"], (inside, asked)
    assert f"{ground}/file" in [path for _, path in asked], asked
    assert gate == "fuse" or f"{ground}/sub" in [path for _, path in asked], asked


def test_nobody_sees_how_quiet_calls_are_asked_about(box, gate, ground):
    """While one waits, every other call finds the file to be what it is."""
    path = f"{ground}/file"
    script = f"{files(box)} path-only {path} >first & sleep 0.15; " \
             f"{files(box)} readlink {path} nofollow {path} lstat {path}; wait; cat first"

    def late(event):
        time.sleep(0.5)
        return gates.approve()

    result, asked = gates.run(box, gate, ["/bin/sh", "-c", script], late)
    assert len(asked) == 1, asked
    expected = box.plain([files(box), "readlink", path, "nofollow", path, "lstat", path,
                          "path-only", path])
    assert lines(result) == lines(expected), result


SMALL_WAYS = ("open", "openat", "path-only", "stat", "statx", "access", "inotify")


def test_a_32_bit_program_waits_as_well(box, gate, ground, small):
    argv = [small]
    for way in SMALL_WAYS:
        box.identity.file(f"{ground}/for-{way}/file", f"content for {way}\n")
        argv += [way, f"{ground}/for-{way}/file"]
    argv += ["execute", f"{ground}/program", "stat", f"{ground}/missing"]
    outside = box.plain(argv)
    inside, asked = gates.run(box, gate, argv, lambda event: gates.approve())
    assert lines(inside) == lines(outside) and "open content for open" in lines(outside), inside
    assert {path.split("/for-")[1].split("/")[0] for _, path in asked if "/for-" in path} == \
        set(SMALL_WAYS)


def test_a_32_bit_program_is_refused_as_well(box, gate, ground, small):
    argv = [small, *words((*SMALL_WAYS, "execute"), f"{ground}/program")]
    inside, asked = gates.run(box, gate, argv, lambda event: gates.deny())
    assert {line.split(" ", 1)[1] for line in lines(inside)} == {"EACCES"}, inside
    assert asked


@pytest.mark.parametrize("way", ["stat", "statx", "access"])
def test_a_32_bit_program_may_look_once(box, gate, ground, small, way):
    path, answers = f"{ground}/file", iter([gates.approve("once")])
    inside, asked = gates.run(box, gate, [small, way, path, "open", path, "open", path],
                              lambda event: next(answers, gates.deny()))
    assert lines(inside) == [f"{way} ", "open content of the file", "open EACCES"], inside
    assert len(asked) == 2


def test_a_32_bit_program_connects(box, gate, ground, small):
    path = f"{ground}/socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        box.identity.own(path)
        argv = [small, "connect", path]
        refused, _ = gates.run(box, gate, argv, lambda event: gates.deny())
        allowed, asked = gates.run(box, gate, argv, lambda event: gates.approve())
    assert (lines(refused), lines(allowed)) == (["connect EACCES"], ["connect "]), (refused, allowed)
    assert asked == [("connect", path)]


def test_names_may_hold_any_byte(box, gate, ground):
    name = os.fsencode(ground) + b"/\xff\x01 \n'\\\xe2\x80\xae"
    with open(name, "w") as target:
        target.write("odd\n")
    box.identity.own(os.fsdecode(name))
    inside, _ = gates.run(box, gate, [files(box), "open", os.fsdecode(name)],
                          lambda event: gates.approve())
    assert lines(inside) == ["open odd"], inside


def test_a_replaced_file_is_the_new_one(box, gate, ground):
    """By rename on the host, after it was approved and read."""
    with gates.halfway(box, gate, f"cat {ground}/exact", f"sleep 0.2; cat {ground}/exact",
                       lambda event: gates.approve()) as it:
        box.identity.file(f"{ground}/new", "the new one\n")
        os.rename(f"{ground}/new", f"{ground}/exact")
        gates.go_on(box)
        result = it.finish()
    assert result.stdout == "content of the exact one\nthe new one\n", result


@pytest.mark.parametrize("how", ["removed", "moved"])
def test_a_file_in_a_replaced_folder_is_the_new_one(box, gate, ground, how):
    """A folder above it goes, or is moved away, and another one gets its name: as `git checkout` does, and more than
    once. Within some seconds, since the kernel remembers for one what is missing."""
    path = box.identity.file(f"{ground}/sub/deep/file", "0\n")
    script = (f"for n in 0 1 2; do timeout 8 sh -c 'until [ \"$(cat {path} 2>&1)\" = '$n' ]; do sleep 0.05; done' || "
              f"break; touch seen$n; done; cat {path}")
    with gates.Session(box, gate, ["/bin/sh", "-c", script], lambda event: gates.approve()) as it:
        for number in range(2):
            assert sessions.eventually(lambda: os.path.exists(box.path(f"seen{number}"))), it.finish()
            if how == "moved":
                os.rename(f"{ground}/sub", f"{ground}/old{number}")
            else:
                shutil.rmtree(f"{ground}/sub")
            box.identity.file(path, f"{number + 1}\n")
        result = it.finish()
    assert (result.stdout, len(it.asked)) == ("2\n", 1), (result, it.asked)


@pytest.mark.parametrize("writes", ["false", "true"])
def test_a_file_in_a_folder_that_was_away(box, gate, ground, writes):
    """Somebody moved it and has moved it back: the first access finds the file again."""
    box.identity.file(box.home("writes.yaml"), f"version: 1\nfilesystem: {{ask_writes: {writes}}}\n")
    below = f"{ground}/sub/below"
    first = f"echo more >>{below}; cat {below}" if writes == "true" else f"cat {below}"
    with gates.halfway(box, gate, f"{first} >seen", f"cat {below} {below}", lambda event: gates.approve(),
                       ["--policy", box.home("writes.yaml")]) as it:
        os.rename(f"{ground}/sub", f"{ground}/away")
        time.sleep(0.5)
        os.rename(f"{ground}/away", f"{ground}/sub")
        time.sleep(0.2)
        gates.go_on(box)
        result = it.finish()
    with open(box.path("seen")) as seen:
        assert result.stdout == 2 * seen.read() != "", (result, it.asked)


@pytest.mark.parametrize("how", ["removed", "moved"])
def test_a_replaced_folder_is_the_new_one(box, gate, ground, how):
    """One that was allowed as a whole. Nobody is asked again."""
    path, script = f"{ground}/sub/below", "until cat {0} | grep new; do sleep 0.1; done; ls {1}"
    with gates.halfway(box, gate, f"cat {path}", f"timeout 8 sh -c '{script.format(path, f'{ground}/sub')}'",
                       lambda event: gates.approve(tree=f"{ground}/sub")) as it:
        if how == "moved":
            os.rename(f"{ground}/sub", f"{ground}/old")
        else:
            shutil.rmtree(f"{ground}/sub")
        box.identity.file(path, "new\n")
        box.identity.file(f"{ground}/sub/more", "more\n")
        gates.go_on(box)
        result = it.finish()
    assert (result.stdout, len(it.asked)) == ("content below\nnew\nbelow\nmore\n", 1), (result, it.asked)


def test_hard_links_are_objects_of_their_own_names(box, gate, ground):
    os.link(f"{ground}/file", f"{ground}/second-name")
    inside, asked = gates.run(
        box, gate, [files(box), "open", f"{ground}/second-name", "open", f"{ground}/file"],
        lambda event: gates.approve() if "second" in event["path"] else gates.deny())
    assert lines(inside) == ["open content of the file", "open EACCES"], inside


# ---- denied ----


def test_denied_is_denied_in_every_way(box, gate, ground):
    path = f"{ground}/file"
    ways = [way for way in READS if way not in ("directory", "bad-resolve", "readlink",
                                                "thread-self", "execute")]
    inside, asked = gates.run(box, gate, [files(box), *words(ways, path)],
                              lambda event: gates.deny())
    assert {line.split(" ", 1)[1] for line in lines(inside)} == {"EACCES"}, inside
    assert asked


def test_missing_names_are_not_asked_about(box, gate, ground):
    inside, asked = gates.run(
        box, gate, [files(box), *words(("open", "stat", "execute"), f"{ground}/missing"),
                    "stat", f"{ground}/dangling", "open", "/nowhere/at/all"],
        lambda event: gates.deny())
    assert {line.split(" ", 1)[1] for line in lines(inside)} == {"ENOENT"}, inside
    assert not asked


def test_writes_are_refused_and_change_nothing(box, gate, ground):
    argv = [files(box)]
    for name in ("file", "sub", "absent"):
        argv += words(WRITES, f"{ground}/{name}")
    before = harness.signature(ground)
    inside, asked = gates.run(box, gate, argv, lambda event: gates.deny())
    assert inside.exit == 0 and harness.signature(ground) == before
    assert {line.split(" ", 1)[1] for line in lines(inside)} <= {
        "EROFS", "EACCES", "EEXIST", "ENOENT", "EISDIR", "ENOTDIR", "ENOTEMPTY", "EBUSY", "EXDEV",
        "EADDRINUSE",
        *(["EOVERFLOW"] if gate == "fuse" else [])}  # the owner has no name inside
    assert "create EROFS" in lines(inside) and "mkdir EROFS" in lines(inside)


def test_every_refused_write_is_reported_with_its_path(box, gate, ground):
    argv = [files(box)]
    for way in MAKES:
        argv += [way, f"{ground}/to-{way}"]
    for way in CHANGES:
        box.identity.file(f"{ground}/to-{way}", "content\n")
        argv += [way, f"{ground}/to-{way}"]
    result = box.execute([box.world.command, "run", "--mode", "dynamic", "--gate", gate, "--json",
                          "--ro", box.world.bin, "--", *argv], None, None, 30, False, ())
    found = json.loads(result.stdout)
    assert {line.split(" ", 1)[1] for line in found["stdout"].splitlines()} == {"EROFS"}, found
    denied = {entry["path"]: entry for entry in found["denials"]}
    assert set(denied) == {f"{ground}/to-{way}" for way in (*MAKES, *CHANGES)}, denied
    assert {entry["access"] for entry in denied.values()} == {"write"}


def test_histories_are_not_written(box, gate):
    """They are hidden, also before they are there: no advice at the end of every shell."""
    for name in (".bash_history", ".python_history"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(box.home(name))
    script = "for name in .bash_history .python_history new; do echo x >>~/$name; done"
    result = box.plain([box.world.command, "run", "--gate", gate, "-c", script])
    assert result.stderr.count("Permission denied") == 2, result
    assert result.stderr.count("may not write to") == 1, result
    assert f"may not write to {box.home('new')}:" in result.stderr, result


def test_no_advice_that_would_not_help(box, gate):
    """Where the user cannot write without a sandbox, either."""
    script = f"touch /var/lib/new; touch {box.home('new')}"
    result = box.plain([box.world.command, "run", "--gate", gate, "-c", script])
    closed = box.identity.uid != 0
    assert ("'/var/lib/new': Permission denied" in result.stderr) == closed, result
    assert ("may not write to /var/lib/new:" in result.stderr) == (not closed), result
    assert f"may not write to {box.home('new')}:" in result.stderr, result


def test_every_write_may_be_asked_for(box, gate, ground):
    """And then it does what it does outside; each is the first to touch its folder."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    argv = [files(box)]
    ways = [way for way in (*MAKES, *CHANGES)
            if gates.TELLS_WHO_ASKS or (gate, way) != ("fuse", "bind")]
    for way in ways:
        box.identity.file(f"{ground}/for-{way}/below", "content\n")
        argv += [way, f"{ground}/for-{way}/{'made' if way in MAKES else 'below'}"]
    inside, asked = gates.run(box, gate, argv, lambda event: gates.approve(),
                              options=["--policy", box.home("writes.yaml")])
    assert lines(inside) == [f"{way} ok" for way in ways], (inside, asked)
    assert {op for op, _ in asked} == {"write"} and len(asked) == len(ways), asked


BY_DESCRIPTOR = """
import os, sys
calls = {
    'chmod': lambda fd: os.fchmod(fd, 0o750),
    'chown': lambda fd: os.fchown(fd, os.getuid(), os.getgid()),
    'utime': lambda fd: os.utime(fd, (5, 5)),
    'setxattr': lambda fd: os.setxattr(fd, 'user.test', b'1'),
    'removexattr': lambda fd: os.removexattr(fd, 'user.test'),
}
opened = [os.open(sys.argv[1], os.O_RDONLY) for _ in calls]
for name, fd in zip(calls, opened):
    try:
        calls[name](fd)
        print(name, 'ok')
    except OSError as error:
        print(name, error.strerror)
print(*(os.lseek(fd, 0, os.SEEK_CUR) for fd in opened))
"""


@pytest.mark.parametrize("name", ["sub", "file"])
def test_what_is_open_is_changed_without_a_path(box, gate, ground, name):
    """A folder is led into what was mounted. A file that is open cannot be: nobody is asked about it, and the refusal is
    noted. The control is the same outside."""
    if gate == "notify":
        pytest.skip("such calls take no path, and find what is mounted")
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    argv = ["/usr/bin/python3", "-c", BY_DESCRIPTOR]
    box.identity.folder(box.home("other"))
    outside = lines(box.plain([*argv, box.home("other")]))
    assert outside[:3] == ["chmod ok", "chown ok", "utime ok"], outside
    inside, asked = gates.run(box, gate, [*argv, f"{ground}/{name}"], lambda event: gates.approve(),
                              options=["--policy", box.home("writes.yaml")])
    status = os.stat(f"{ground}/{name}")
    assert lines(inside) == (outside if name == "sub" else [
        f"{line.split()[0]} Read-only file system" for line in outside[:-1]] + outside[-1:]), (inside, asked)
    assert (status.st_mode & 0o777 == 0o750 and status.st_mtime == 5) == (name == "sub"), status
    assert [path for op, path in asked if op == "write"] == ([f"{ground}/sub"] if name == "sub" else []), asked
    assert (f"may not write to {ground}/file" in inside.stderr) == (name == "file"), inside


@pytest.mark.parametrize("first", ["", "ls {0} >/dev/null; "], ids=["not mounted", "mounted for reading"])
def test_a_folder_may_be_asked_for_after_what_is_in_it(box, gate, ground, first):
    """A file is written to, then one beside it is made, as an editor does, and renamed over it; files that were read
    before, and written to, are there as before, and can be removed. The control is outside."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    script = (first + "cat {0}/read; echo more >>{0}/a; echo other >>{0}/deep/b; echo new >{0}/c; mv {0}/c {0}/a; "
              "echo last >>{0}/deep/b; cat {0}/a {0}/deep/b {0}/read; ls {0} {0}/deep; rm {0}/deep/b {0}/a; ls {0} {0}/deep")
    for place in ("outside", "inside"):
        for name in ("read", "a", "deep/b"):
            box.identity.file(f"{ground}/{place}/{name}", f"content of {name}\n")
    outside = box.plain(["/bin/sh", "-c", script.format(f"{ground}/outside")])
    inside, asked = gates.run(box, gate, ["/bin/sh", "-c", script.format(f"{ground}/inside")],
                              lambda event: gates.approve(), options=["--policy", box.home("writes.yaml")])
    assert inside.stdout.replace("/inside", "/outside") == outside.stdout and not inside.stderr, (inside, asked)
    assert [path for op, path in asked if op == "write"] == [f"{ground}/inside{name}" for name in ("/a", "/deep/b", "")]


def test_what_was_allowed_for_reading_may_be_asked_for_again_for_writing(box, gate, ground):
    """As an editor does: it reads, and writes later. Also in a folder that was allowed as a whole."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    script = f"""
        cat {ground}/file; cat {ground}/file; echo more >>{ground}/file; cat {ground}/file
        ls {ground}/sub; cat {ground}/sub/below
        echo new >{ground}/sub/made; cat {ground}/sub/made; mv {ground}/sub/made {ground}/sub/moved
        cat {ground}/sub/moved; {ground}/program run"""
    inside, asked = gates.run(box, gate, ["/bin/sh", "-c", script], lambda event: gates.approve(),
                              options=["--policy", box.home("writes.yaml")])
    assert inside.stdout.splitlines() == [
        "content of the file", "content of the file", "content of the file", "more",
        "below", "content below", "new", "new", "run"], (inside, asked)
    assert [one for one in asked if one[0] == "write"] == [
        ("write", f"{ground}/file"), ("write", f"{ground}/sub")], asked
    assert len(asked) == 5, asked


@pytest.mark.parametrize("asks", [False, True], ids=["refused", "asked"])
def test_who_looks_whether_a_folder_can_be_written_to(box, gate, ground, asks):
    """As programs do before they try. The write itself is what is asked about."""
    box.identity.file(box.home("writes.yaml"), f"version: 1\nfilesystem: {{ask_writes: {str(asks).lower()}}}\n")
    closed = f"{ground}/closed"
    box.identity.folder(closed)
    os.chmod(closed, 0o555)
    inside, asked = gates.run(box, gate, [files(box), "writable", f"{ground}/sub", "writable", closed,
                                          "writable", f"/proc/self/root{ground}/sub", "writable", closed,
                                          "mkdir", f"{ground}/sub/made"],
                              lambda event: gates.approve(), options=["--policy", box.home("writes.yaml")])
    if box.identity.uid != 0:  # to whom nothing is closed
        assert lines(inside)[1] == f"writable {'EACCES' if asks else 'EROFS'}", inside
    assert lines(inside)[::2] == [f"{way} {'ok' if asks else 'EROFS'}" for way in ("writable", "writable", "mkdir")], inside
    assert asked == ([("write", f"{ground}/sub")] if asks else []), asked


@pytest.mark.parametrize("scope", ["session", "once"])
@pytest.mark.parametrize("asks", [False, True], ids=["refused", "asked"])
def test_who_looks_whether_what_may_be_read_can_be_written_to(box, gate, ground, asks, scope):
    """Also by itself, and in a folder that may be read. Nobody is asked about that but about the write."""
    box.identity.file(box.home("writes.yaml"), f"version: 1\nfilesystem: {{ask_writes: {str(asks).lower()}}}\n")
    closed = box.identity.file(f"{ground}/sub/closed", "content\n")
    os.chmod(closed, 0o444)
    argv = [files(box), "open", f"{ground}/file", "writable", f"{ground}/file", "writable", f"{ground}/exact",
            "list", f"{ground}/sub", "writable", f"{ground}/sub", "writable", f"{ground}/sub/below", "writable", closed,
            "writable", f"{ground}/sub/missing", "append", f"{ground}/file"]
    inside, asked = gates.run(box, gate, argv, lambda event: gates.approve("session" if event["op"] == "write" else scope),
                              options=["--policy", box.home("writes.yaml")])
    may = "ok" if asks else "EROFS"
    assert lines(inside) == ["open content of the file", f"writable {may}", f"writable {may}", "list  below closed",
                             f"writable {may}", f"writable {may}", "writable EACCES", "writable ENOENT",
                             f"append {may}"], (inside, asked)
    assert [one for one in asked if one[0] == "write"] == ([("write", f"{ground}/file")] if asks else []), asked


def test_reading_does_not_write(box, gate, ground):
    """The same, and writing is denied: nothing changes, and reading goes on. A revoked one is asked
    about again."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    script = f"""
        cat {ground}/file; echo more >>{ground}/file; rm {ground}/file; cat {ground}/file
        touch ready; while [ ! -e go ]; do sleep 0.02; done; cat {ground}/file"""
    before = harness.signature(ground)
    answers = iter([gates.approve()])
    with gates.Session(box, gate, ["/bin/sh", "-c", script],
                       lambda event: gates.deny() if event["op"] == "write"
                       else next(answers, gates.deny()),
                       options=["--policy", box.home("writes.yaml")]) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("ready")))
        sessions.sandbox(box, "policy", "revoke", "--session", it.sid, f"{ground}/file")
        box.identity.file(box.path("go"), "")
        result = it.finish()
    assert result.stdout == "content of the file\n" * 2, (result, it.asked)
    assert harness.signature(ground) == before
    assert [op for op, _ in it.asked] == ["read", "write", "write", "read"], it.asked


def test_writes_may_be_asked_for(box, gate, ground):
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    inside, asked = gates.run(
        box, gate, ["/bin/sh", "-c", f"echo new >{ground}/sub/made && cat {ground}/sub/made"],
        lambda event: gates.approve(), options=["--policy", box.home("writes.yaml")])
    assert inside.stdout == "new\n", inside
    with open(f"{ground}/sub/made") as source:
        assert source.read() == "new\n"
    assert ("write", f"{ground}/sub") in asked


def test_a_fifo_keeps_nobody_waiting(box, gate, ground):
    """Nobody writes to it. Whoever opens it waits, as outside; the session itself must not."""
    with gates.Session(box, gate, ["/bin/sh", "-c",
                                   f"cat {ground}/fifo & sleep 0.3; cat {ground}/file; kill %1"],
                       lambda event: gates.approve()) as it:
        assert it.finish().stdout == "content of the file\n"


@pytest.mark.parametrize("answer", ["allowed", "denied"])
def test_a_fifo_is_the_hosts(box, gate, ground, answer):
    """Whoever opens it first, without looking at it, waits for an answer and meets who is at its other end.
    The control: not if it is denied."""
    path, end = f"{ground}/fifo", os.open(f"{ground}/fifo", os.O_RDWR)
    try:
        os.write(end, b"from the host\n")
        inside, asked = gates.run(box, gate, ["/usr/bin/timeout", "5", "/usr/bin/head", "-n", "1", path],
                                  lambda event: gates.approve() if answer == "allowed" else gates.deny())
    finally:
        os.close(end)
    assert asked == [("read", path)]
    assert inside.stdout == ("from the host\n" if answer == "allowed" else ""), inside
    assert inside.exit == (0 if answer == "allowed" else 1), inside  # and nobody waits for nothing


@pytest.mark.parametrize("asks", [False, True])
def test_writing_to_a_fifo(box, gate, ground, asks):
    """Refused, or asked about; never to a FIFO that is nobody's."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    options = ["--policy", box.home("writes.yaml")] if asks else []
    path, end = f"{ground}/fifo", os.open(f"{ground}/fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        script = f"timeout 5 /bin/sh -c 'echo from inside >{path}'"
        inside, asked = gates.run(box, gate, ["/bin/sh", "-c", script], lambda event: gates.approve(),
                                  options=options)
        got = os.read(end, 100)
    finally:
        os.close(end)
    assert (got, inside.exit) == ((b"from inside\n", 0) if asks else (b"", 2)), (inside, asked)
    assert asked == ([("write", path)] if asks else [])


HELD = """
import os, sys
held = os.open(sys.argv[1], os.O_PATH | os.O_NOFOLLOW)
try:
    print(os.read(os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_NONBLOCK), 10))
except OSError as error:
    print(error.strerror)
"""


def test_a_fifo_that_was_held_before(box, gate, ground):
    """By its descriptor. With FUSE the mount is not met from there, and that is told."""
    inside, asked = gates.run(box, gate, ["/usr/bin/python3", "-c", HELD, f"{ground}/fifo"], lambda event: gates.approve())
    told = f"{ground}/fifo: it was allowed, but could not be brought into the session" in inside.stderr
    assert (lines(inside), told) == ((["b''"], False) if gate == "notify" else (["Permission denied"], True)), inside
    assert len(asked) == 1, asked


def test_secrets_below_an_approved_folder_stay_hidden(box, gate):
    folder = box.home(".config")
    box.identity.file(f"{folder}/harmless", "harmless\n")
    script = f"cat {folder}/harmless; cat {folder}/gcloud/credentials.db {folder}/gh/hosts.yml"
    inside, asked = gates.run(
        box, gate, ["/bin/sh", "-c", script],
        lambda event: gates.approve(tree=folder) if event["path"].endswith("harmless")
        else gates.deny())
    assert inside.stdout == "harmless\n" and box.canary not in inside.stderr, (inside, asked)


@pytest.mark.parametrize("writes", ["false", "true"])
def test_second_names_of_secrets_stay_hidden(box, gate, ground, writes):
    """A hard link, and a secret by its own name, in a folder that is allowed as a whole; with
    ask_writes FUSE serves it without a mount. The control: outside they can be read."""
    box.identity.file(box.home("writes.yaml"), f"version: 1\nfilesystem: {{ask_writes: {writes}, "
                                               f"hide: ['{ground}/sub/hidden']}}\n")
    os.link(box.home(".ssh/id_rsa"), f"{ground}/sub/innocent")
    box.identity.file(f"{ground}/sub/hidden", box.canary)
    secrets = f"cat {ground}/sub/innocent; cat {ground}/sub/hidden"
    assert box.plain(["/bin/sh", "-c", secrets]).stdout.count(box.canary) == 2
    inside, asked = gates.run(
        box, gate, ["/bin/sh", "-c", f"cat {ground}/file; cat {ground}/sub/below; {secrets}"],
        lambda event: gates.approve(tree=ground), options=["--policy", box.home("writes.yaml")])
    assert inside.stdout == "content of the file\ncontent below\n", (inside, asked)
    assert inside.stderr.count("denied") == 2 and box.canary not in inside.stderr
    assert len(asked) == 1, "not one grant"


@pytest.fixture
def disk(box, ground, host_root):
    """Another file system, mounted in the folder."""
    place = f"{ground}/disk"
    os.mkdir(place)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"uid={box.identity.uid}", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.escape
def test_second_names_of_secrets_on_what_is_mounted_in_a_folder(box, gate, ground, disk):
    """It comes with the folder. One secret is hidden by a rule, one by its name; a second name of what is neither can be
    read. The control: outside all can."""
    for name, text in (("hidden", box.canary), (".env", box.canary), ("open", "open\n")):
        os.link(box.identity.file(f"{disk}/{name}", text), f"{disk}/second-of-{name}")
    names = " ".join(f"{disk}/second-of-{name}" for name in ("open", "hidden", ".env"))
    assert box.plain(["/bin/sh", "-c", f"cat {names}"]).stdout.count(box.canary) == 2
    inside, asked = gates.run(box, gate, ["/bin/sh", "-c", f"cat {ground}/file {names}"],
                              lambda event: gates.approve(tree=ground), options=["--blacklist", f"{disk}/hidden"])
    assert inside.stdout == "content of the file\nopen\n" and len(asked) == 1, (inside, asked)
    assert inside.stderr.count("denied") == 2 and box.canary not in inside.stderr


@pytest.mark.parametrize("writes", ["false", "true"])
def test_second_names_that_the_host_makes_later(box, gate, ground, writes):
    """Folders are granted, or served, before and after. The control: outside it can be read."""
    box.identity.file(box.home("writes.yaml"), f"version: 1\nfilesystem: {{ask_writes: {writes}}}\n")
    later = box.identity.file(box.home("later/file"), "content of the later one\n")
    second = f"{os.path.dirname(later)}/innocent"
    with gates.halfway(box, gate, f"cat {ground}/file", f"cat {later}; cat {second}",
                       lambda event: gates.approve(tree=os.path.dirname(event["path"])),
                       options=["--policy", box.home("writes.yaml")]) as it:
        os.link(box.home(".ssh/id_rsa"), second)
        assert box.canary in box.plain(["cat", second]).stdout
        gates.go_on(box)
        inside = it.finish()
    assert inside.stdout == "content of the file\ncontent of the later one\n", (inside, it.asked)
    assert "denied" in inside.stderr and box.canary not in inside.stderr


def test_a_second_name_of_a_secret_that_was_saved_anew(box, gate, ground):
    """Another object by now, which was not one when the first second name was looked at. Nobody is asked about it."""
    os.link(box.home(".netrc"), f"{ground}/first")
    with gates.halfway(box, gate, f"cat {ground}/first", f"cat {ground}/second", lambda event: gates.approve()) as it:
        os.rename(box.identity.file(box.home("saved"), box.canary, 0o600), box.home(".netrc"))
        os.link(box.home(".netrc"), f"{ground}/second")
        gates.go_on(box)
        inside = it.finish()
    assert (inside.stdout, inside.stderr.count("denied"), it.asked) == ("", 2, []), inside


@pytest.mark.skipif(not gates.LONG, reason="fifty thousand files: only with SANDBOX_TEST_LONG=1")
def test_second_names_in_a_folder_too_large_to_search(box, gate, ground):
    """Its files are granted one by one."""
    os.link(box.home(".ssh/id_rsa"), f"{ground}/sub/innocent")
    for number in range(50001):
        os.mknod(f"{ground}/sub/{number}")
    script = f"cat {ground}/file; cat {ground}/sub/below; cat {ground}/sub/innocent"
    inside, asked = gates.run(box, gate, ["/bin/sh", "-c", script],
                              lambda event: gates.approve(tree=ground))
    assert inside.stdout == "content of the file\ncontent below\n", (inside, asked)
    assert box.canary not in inside.stderr


@pytest.mark.parametrize("scope", ["session", "once"])
def test_what_is_allowed_but_cannot_be_brought_in_is_told(box, gate, ground, scope):
    """Every broker dies over it. The control: another one brings in what is asked for next."""
    if gate == "fuse" and scope == "once":
        pytest.skip("what is allowed once is served without a broker")
    with gates.halfway(box, gate, ":", f"cat {ground}/file; touch told; until [ -e over ]; do sleep 0.02; done; "
                       f"cat {ground}/exact", lambda event: gates.approve(scope)) as it:
        with gates.killing_brokers(sessions.monitor_of(box, it.sid), at="open_tree"):
            gates.go_on(box)
            assert sessions.eventually(lambda: os.path.exists(box.path("told")), harness.TIMEOUT), it.asked
        box.identity.file(box.path("over"), "")
        inside = it.finish()
    assert inside.stdout == "content of the exact one\n", (inside, it.asked)
    assert f"{ground}/file: it was allowed, but could not be brought into the session" in inside.stderr, inside
    assert f"{ground}/exact:" not in inside.stderr, inside


# ---- what an approval does not give ----


@pytest.mark.escape
def test_approved_files_cannot_be_opened_for_writing(box, gate, ground):
    """E17: by way of the descriptor. The control: outside it can."""
    path = f"{ground}/file"
    assert lines(box.plain([files(box), "write-again", path])) == ["write-again ok"]
    for answer in (gates.approve(), gates.approve(tree=ground)):
        inside, _ = gates.run(box, gate, [files(box), "write-again", path], lambda event: answer)
        assert lines(inside)[0].split()[1] in ("EROFS", "EACCES"), inside


CLIMB = """
import os
fd = os.open('GROUND/sub', os.O_RDONLY)
def look(name, **where):
    try:
        print(name, os.read(os.open(name, os.O_RDONLY, **where), 100))
    except OSError as error:
        print(name, os.strerror(error.errno))
look('below', dir_fd=fd)
look('../file', dir_fd=fd)
look('../../.ssh/id_rsa', dir_fd=fd)
os.fchdir(fd)
look('../exact')
"""


@pytest.mark.escape
def test_approved_folders_are_no_way_up(box, gate, ground):
    """E18: the folder's descriptor leads to nothing else. The control: outside it does."""
    script = CLIMB.replace("GROUND", ground)
    assert box.plain(["/usr/bin/python3", "-c", script]).stdout.count("content") == 3
    inside, asked = gates.run(
        box, gate, ["/usr/bin/python3", "-c", script],
        lambda event: gates.approve() if event["path"] == f"{ground}/sub" else gates.deny())
    assert inside.stdout.count("content") == 1 and "below b'content below" in inside.stdout, inside
    assert ("read", f"{ground}/file") in asked and ("read", f"{ground}/exact") in asked, asked
    assert box.canary not in inside.stdout


@pytest.mark.escape
def test_a_link_put_into_an_approved_folder_is_what_it_leads_to(box, gate, ground):
    """E32: the approval is for objects in the folder, not for names. The control: outside it opens."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    script = f"ln -s ../file {ground}/sub/new && rm {ground}/sub/below && " \
             f"ln -s ../exact {ground}/sub/below; cat {ground}/sub/new {ground}/sub/below"
    inside, asked = gates.run(
        box, gate, ["/bin/sh", "-c", script],
        lambda event: gates.approve() if event["path"] == f"{ground}/sub" else gates.deny(),
        options=["--policy", box.home("writes.yaml")])
    assert inside.stdout == "" and os.readlink(f"{ground}/sub/below") == "../exact", inside
    assert {("read", f"{ground}/file"), ("read", f"{ground}/exact")} <= set(asked), asked
    control = box.plain(["/bin/cat", f"{ground}/sub/new", f"{ground}/sub/below"])
    assert control.stdout == "content of the file\ncontent of the exact one\n"


# ---- what was denied ----


@pytest.mark.escape
@pytest.mark.parametrize("scope", ["session", "user"])
def test_a_denial_holds_in_a_folder_that_is_allowed_later(box, gate, ground, scope):
    """By an answer about another file in it, and when the host puts another file in its place. The control:
    the other file is read."""
    denied, other = f"{ground}/file", box.identity.file(f"{ground}/other", "content of the other\n")

    def answer(event):
        return gates.deny(scope=scope) if event["path"] == denied else gates.approve(tree=ground)

    script = f"cat {denied}; cat {other}; cat {denied}; touch step; " \
             f"until [ -e go ]; do sleep 0.02; done; cat {denied}; cat {other}"
    with gates.Session(box, gate, ["/bin/sh", "-c", script], answer) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("step"))), it.asked
        time.sleep(0.2)  # the keeper has come
        os.rename(box.identity.file(f"{ground}/new", "another content\n"), denied)
        time.sleep(0.2)
        box.identity.file(box.path("go"), "")
        result = it.finish()
    assert lines(result) == ["content of the other"] * 2, (result, it.asked)
    assert it.asked == [("read", denied), ("read", other)]


@pytest.mark.escape
def test_a_denial_holds_for_what_comes_back(box, gate, ground):
    """The host has removed it when its folder is allowed, and makes it anew. The control: it can be read
    outside, and another new file inside."""
    denied, other = f"{ground}/file", box.identity.file(f"{ground}/other", "content of the other\n")

    def answer(event):
        return gates.deny(scope="session") if event["path"] == denied else gates.approve(tree=ground)

    script = f"cat {denied}; touch one; until [ -e go1 ]; do sleep 0.02; done; cat {other}; touch two; " \
             f"until [ -e go2 ]; do sleep 0.02; done; cat {ground}/late; cat {denied}"
    with gates.Session(box, gate, ["/bin/sh", "-c", script], answer) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("one"))), it.asked
        os.unlink(denied)
        box.identity.file(box.path("go1"), "")
        assert sessions.eventually(lambda: os.path.exists(box.path("two"))), it.asked
        time.sleep(0.3)
        box.identity.file(denied, "content again\n")
        box.identity.file(f"{ground}/late", "content of the late one\n")
        time.sleep(0.3)
        assert lines(box.plain(["/bin/cat", denied])) == ["content again"]
        box.identity.file(box.path("go2"), "")
        result = it.finish()
    assert lines(result) == ["content of the other", "content of the late one"], (result, it.asked)


@pytest.mark.escape
def test_a_denied_write_holds_in_a_folder_that_may_be_written_to_later(box, gate, ground):
    """The control: elsewhere in the folder it is written, and what was denied can be read."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    denied, other = f"{ground}/file", box.identity.file(f"{ground}/other", "old\n")

    def answer(event):
        write = event["access"] == "write" and event["path"] == denied
        return gates.deny(scope="session") if write else gates.approve()

    script = f"echo new >{denied}; mkdir {ground}/made; echo new >{other}; cat {other} {denied}; " \
             f"echo new >{denied}; cat {denied}"
    result, asked = gates.run(box, gate, ["/bin/sh", "-c", script], answer,
                              options=["--policy", box.home("writes.yaml")])
    assert lines(result) == ["new", "content of the file", "content of the file"], (result, asked)
    assert ("write", ground) in asked and os.path.isdir(f"{ground}/made"), asked
    assert open(denied).read() == "content of the file\n"


def wait_for(name):
    return f"touch {name}; until [ -e {name}-over ]; do sleep 0.02; done"


@pytest.mark.escape
@pytest.mark.parametrize("comes_back", [True, False], ids=["back", "gone"])
def test_a_denied_write_holds_for_what_is_gone(box, gate, ground, comes_back):
    """The host has removed it when its folder may be written to, and when that is allowed a second time. The
    control: elsewhere in the folder it is written, and what the host puts there can be read."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    denied = box.identity.file(f"{ground}/inner/file", "old\n")

    def answer(event):
        write = event["access"] == "write" and event["path"].startswith(f"{ground}/inner")
        return gates.deny(scope="session") if write else gates.approve()

    attack = f"echo evil >{denied}; rm -f {denied}; mv {ground}/inner {ground}/away; " \
             f"mkdir -p {ground}/inner; echo evil >{denied}"
    script = f"echo evil >{denied}; {wait_for('one')}; mkdir {ground}/made; {attack}; {wait_for('two')}; " \
             f"{attack}; mkdir {ground}/again; {attack}; cat {denied}; echo written >{ground}/other"
    with gates.Session(box, gate, ["/bin/sh", "-c", script], answer,
                       options=["--policy", box.home("writes.yaml")]) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("one"))), it.asked
        os.unlink(denied)
        box.identity.file(box.path("one-over"), "")
        assert sessions.eventually(lambda: os.path.exists(box.path("two"))), it.asked
        time.sleep(0.2)  # the keeper has come
        if comes_back:
            os.rename(box.identity.file(f"{ground}/new", "of the host\n"), denied)
            time.sleep(0.2)
        sessions.sandbox(box, "policy", "revoke", "--session", it.sid, ground)
        box.identity.file(box.path("two-over"), "")
        result = it.finish()
    assert {f"{ground}/{name}" for name in ("made", "again", "other")} <= \
        {entry.path for entry in os.scandir(ground)}, (result, it.asked)
    assert not os.path.exists(f"{ground}/away"), result
    assert ("of the host" in result.stdout) == comes_back and "evil" not in result.stdout, result
    assert os.path.exists(denied) == comes_back, "nothing of ours stays"
    assert not comes_back or open(denied).read() == "of the host\n"


@pytest.mark.parametrize("kind", ["file", "folder", "write", "gone"])
def test_a_revoked_denial_opens_in_a_folder_that_was_allowed(box, gate, ground, kind):
    """At once, and without a question. The control: before, and beside it what was denied as well, nothing
    opens; that stays so."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    writes, name = kind in ("write", "gone"), "sub" if kind == "folder" else "file"
    denied, kept = f"{ground}/{name}", [f"{ground}/exact", f"{ground}/sub/below"]
    box.identity.file(f"{ground}/sub/more", "content of more\n")

    def answer(event):
        hit = event["path"] in (denied, *kept) and (event["access"] == "write" or not writes)
        return gates.deny(scope="session") if hit else gates.approve(**({} if writes else {"tree": ground}))

    use = f"echo new >{denied}" if writes else f"cat {denied}/more" if kind == "folder" else f"cat {denied}"
    others = "; ".join(f"echo new >{path}" if writes else f"cat {path}" for path in kept)
    first = f"ls {denied}" if kind == "folder" else use
    allow = f"mkdir {ground}/made" if writes else f"cat {ground}/program >/dev/null"
    script = f"{others}; {first}; {wait_for('zero')}; {allow} && echo allowed; {use} && echo leaked; " \
             f"{wait_for('one')}; {use} && echo opened; {others}; [ -d {ground}/made ] && cat {denied}"
    with gates.Session(box, gate, ["/bin/sh", "-c", script], answer,
                       options=["--policy", box.home("writes.yaml")] if writes else []) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("zero"))), it.asked
        if kind == "gone":
            os.unlink(denied)
        box.identity.file(box.path("zero-over"), "")
        assert sessions.eventually(lambda: os.path.exists(box.path("one"))), it.asked
        time.sleep(0.2)  # the keeper has come
        asked = list(it.asked)
        sessions.sandbox(box, "policy", "revoke", "--session", it.sid, denied)
        box.identity.file(box.path("one-over"), "")
        result = it.finish()
    expected = {"file": ["content of the file"], "folder": ["content of more"]}.get(kind, [])
    assert lines(result) == ["allowed", *expected, "opened", *(["new"] if writes else [])], (result, it.asked)
    assert it.asked == asked, "nobody is asked again"
    assert not writes or open(denied).read() == "new\n"
    assert [open(path).read() for path in kept] == ["content of the exact one\n", "content below\n"]


# ---- interruption and death ----


def test_a_program_that_ends_while_a_thread_of_it_waits(box, gate, ground):
    """It ends, and its question with it. The control: somebody was asked."""
    script = f"import os, threading, time; threading.Thread(target=open, args=('{ground}/file',)).start(); " \
             f"time.sleep(0.3); os._exit(3)"
    with gates.Session(box, gate, ["/usr/bin/python3", "-c", script], lambda event: None) as it:
        result = it.finish(20)
    assert result.exit == 3 and it.asked == [("read", f"{ground}/file")], (result, it.asked)


def test_a_thread_that_an_exec_ends_takes_its_question_along(box, gate, ground):
    """The process goes on, with another program. The control: somebody was asked."""
    script = f"import os, threading, time; threading.Thread(target=open, args=('{ground}/file',)).start(); " \
             f"time.sleep(0.3); os.execv('/bin/sh', ['sh', '-c', 'sleep 2; echo after | tee over'])"
    with gates.Session(box, gate, ["/usr/bin/python3", "-c", script], lambda event: None) as it:
        withdrawn = sessions.eventually(lambda: it.withdrawn)
        over = os.path.exists(box.path("over"))
        assert it.finish(20).stdout == "after\n"
    assert it.asked == [("read", f"{ground}/file")] and withdrawn == ["withdrawn"] and not over


# Its first thread ends, another one opens the file and tells what it read.
LAST_THREAD = """
import ctypes, os, sys, threading, time
def last():
    time.sleep(0.2)
    os.write(1, open(sys.argv[1], "rb").read())
    os._exit(0)
threading.Thread(target=last).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
"""


def test_who_asks_is_known_when_its_first_thread_has_ended(box, gate, ground):
    """Nothing is to be read of the process itself any more, but of the thread that waits."""
    events = []

    def answer(event):
        events.append(event)
        return gates.approve()

    program = os.path.realpath("/usr/bin/python3")
    result, _ = gates.run(box, gate, [program, "-c", LAST_THREAD, f"{ground}/file"], answer)
    assert result.stdout == "content of the file\n", result
    assert [(event["exe"], event["cwd"]) for event in events] == [(program, box.project)]


def test_a_signal_that_is_blocked_withdraws_nothing(box, gate, ground):
    """It ends nothing outside, either. The control: there the file is read."""
    script = f"import os, signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); " \
             f"os.kill(os.getpid(), signal.SIGTERM); print(open('{ground}/file').read(), end='')"

    def answer(event):
        time.sleep(1)
        return gates.approve()

    argv = ["/usr/bin/python3", "-c", script]
    result, asked = gates.run(box, gate, argv, answer)
    assert result.stdout == box.plain(argv).stdout == "content of the file\n", (result, asked)
    assert asked == [("read", f"{ground}/file")]


def test_a_process_that_dies_takes_its_question_along(box, gate, ground):
    with gates.Session(box, gate, ["/bin/sh", "-c", f"cat {ground}/file & sleep 0.5; kill -9 $!; "
                                                    "wait; sleep 0.5; echo after"],
                       lambda event: None) as it:
        assert it.finish().stdout == "after\n"
        assert it.asked and it.withdrawn[:1] == ["withdrawn"]


def test_without_the_monitor_nothing_opens(box, gate, ground):
    """It is killed while the workload waits and tries on."""
    script = f"while :; do cat {ground}/file && echo LEAK >>leak; done"
    with gates.Session(box, gate, ["/bin/sh", "-c", script], lambda event: gates.deny()) as it:
        assert sessions.eventually(lambda: it.asked)
        os.kill(sessions.monitor_of(box, it.sid), signal.SIGKILL)
        it.finish()
    assert not os.path.exists(box.path("leak"))
    assert box.run(["/bin/true"]).exit == 0  # removes what the killed one could not


def test_more_commands_have_the_same_gate(box, gate, ground):
    with gates.Session(box, gate, ["/bin/sleep", "20"], lambda event: gates.approve()) as it:
        run = sessions.sandbox(box, "exec", it.sid, "--", files(box), "open", f"{ground}/file")
        assert run.stdout == "open content of the file\n", run
        assert it.asked == [("read", f"{ground}/file")]


# ---- files that the caller opened ----

# Opened again by its descriptor, a file lies on the host's own mount, which is writable.
REOPENED = "(: > /proc/self/fd/0) || echo refused; truncate -s 0 /proc/self/fd/0 || echo refused; cat"


def with_file(box, path, words):
    return box.plain(["sh", "-c", 'file=$1; shift; "$@" <"$file"', "sh", path, *words])


def test_names_in_the_root(box, gate):
    """All that the host has there, and no writing; a folder of it is asked about like any other."""
    inside, asked = gates.run(box, gate, ["sh", "-c", "ls -A /srv && ls /srv/.. && mkdir /srv/x"],
                              lambda event: gates.approve())
    assert [path for _, path in asked] == ["/srv"], asked
    names = set(inside.stdout.split())
    assert names >= set(os.listdir("/srv")), inside
    if gate == "fuse":  # the other shows only what is mounted
        others = (".", "sandbox-test-")  # and what other tests make there at the moment
        assert names >= {name for name in os.listdir("/") if not name.startswith(others)}, inside
    assert inside.exit != 0 and "Read-only file system" in inside.stderr, inside
    inside = box.run(["sh", "-c", "mkdir /new || touch /new || ln -s usr /new"],
                     options=("--mode", "dynamic", "--gate", gate))
    assert inside.exit != 0 and not os.path.lexists("/new"), inside


def test_a_redirected_file_is_only_read(box, gate):
    path = box.identity.file(box.home("redirected"), "content\n")
    outside = with_file(box, path, ["sh", "-c", ": > /proc/self/fd/0"])
    assert outside.exit == 0 and os.path.getsize(path) == 0  # the control: it can be done
    box.identity.file(path, "content\n")
    for mode in (["--mode", "dynamic", "--gate", gate], ["--static"]):
        inside = with_file(box, path, [box.world.command, "run", *mode, "--", "sh", "-c", REOPENED])
        assert inside.stdout == "refused\nrefused\ncontent\n", inside


TRUNCATE = ["/usr/bin/python3", "-c", "import os; os.truncate('/proc/self/fd/0', 0)"]


def test_a_redirected_file_is_not_truncated_in_static_mode(box):
    """Landlock leaves truncation alone where all there is lies below read-only mounts; this does not."""
    path = box.identity.file(box.home("redirected"), "content\n")
    inside = with_file(box, path, [box.world.command, "run", "--static", "--", *TRUNCATE])
    assert inside.exit == 1 and "Permission denied" in inside.stderr, inside
    with sessions.running(box, ["sleep", "60"], "--static") as (_, sid):
        inside = with_file(box, path, [box.world.command, "exec", sid, "--", *TRUNCATE])
        assert inside.exit == 1, inside
        assert_file_itself_is_held(box, sid, path)
    assert os.path.getsize(path) == len("content\n")
    outside = with_file(box, path, TRUNCATE)
    assert outside.exit == 0 and os.path.getsize(path) == 0  # the control: it can be done


def assert_file_itself_is_held(box, sid, path):
    null = os.open("/dev/null", os.O_RDWR)
    source = os.open(path, os.O_RDONLY)
    try:
        with sessions.Control(box, sid) as client:
            answer = client.call({"cmd": "cmd.exec", "argv": ["sh", "-c", ": > /proc/self/fd/0"]},
                                 [source, null, null])
            # Before Linux 6.12 Landlock is nothing without files, and holds them in every session.
            assert "pipe" in json.dumps(answer) or client.read()["event"] == "event.exited", answer
    finally:
        os.close(source)
        os.close(null)
    assert os.path.getsize(path) > 0


def test_what_exec_does_not_read_of_a_file_is_left(box, gate):
    path = box.identity.file(box.home("lines"), "one\ntwo\nthree\n")
    with sessions.running(box, ["sleep", "60"], "--mode", "dynamic", "--gate", gate) as (_, sid):
        script = 'while read -r line; do echo "$line"; "$0" exec "$1" -- true; done; "$0" exec "$1" -- cat <"$2"'
        inside = with_file(box, path, ["sh", "-c", script, box.world.command, sid, path])
        assert inside.stdout == 2 * "one\ntwo\nthree\n", inside


def test_a_file_for_exec_is_only_read(box, gate):
    """Nothing holds files of outside in a session that was started without any: they come by a pipe."""
    path = box.identity.file(box.home("redirected"), "content\n")
    dynamic = ("--mode", "dynamic", "--gate", gate)
    with sessions.running(box, ["sleep", "60"], *dynamic) as (_, sid):
        inside = with_file(box, path, [box.world.command, "exec", sid, "--", "sh", "-c", REOPENED])
        assert inside.exit == 0 and inside.stdout.endswith("content\n"), inside
        with open(path) as source:
            assert source.read() == "content\n"
        assert_file_itself_is_held(box, sid, path)
    made = sessions.sandbox(box, "run", *dynamic, "--detach")
    sid = made.stdout.strip()
    try:
        inside = with_file(box, path, [box.world.command, "exec", sid, "--", "sh", "-c", REOPENED])
        assert inside.stdout == "refused\nrefused\ncontent\n", inside
    finally:
        sessions.sandbox(box, "kill", "--now", sid)
