"""What only the trigger by seccomp notify has: its empty root, its listener, its folders."""

import contextlib
import json
import os
import shlex
import subprocess

import pytest

import dynamic
import gates
import harness
import sessions

pytestmark = pytest.mark.parametrize("pair", [f"notify-{name}" for name in harness.IDENTITIES],
                                     indirect=True)


@pytest.fixture
def ground(box):
    made = box.home("gated")
    for name in ("file", "sub/below", "sub/allowed/deep"):
        box.identity.file(f"{made}/{name}", f"content of {name}\n")
    return made


def shell(box, script, answer=lambda event: gates.deny(), options=()):
    return gates.run(box, "notify", ["/bin/sh", "-c", script], answer, options)


def test_a_second_listener_is_refused_with_a_reason(box):
    """Inside something that listens already; the control: that something runs other programs."""
    naive = gates.program(box.world, "gate-naive")
    assert box.plain([naive, "/nothing", "/bin/echo", "works"]).stdout == "works\n"
    result = box.plain([naive, "/nothing", box.world.command, "run", "--mode", "dynamic", "--gate",
                        "notify", "--", "/bin/true"])
    assert result.exit == 125, result
    assert "one listener per process tree" in result.stderr and "--gate fuse" in result.stderr


# A machine with this at /dev/fuse: a device's number and its mode.
OTHER_FUSE = """
mount -t tmpfs tmpfs /mnt && mknod /mnt/fuse c 10 $4 && chmod $5 /mnt/fuse &&
mount --bind /mnt/fuse /dev/fuse && exec setpriv --reuid $1 --regid $2 --clear-groups -- sh -c "$3"
"""


@pytest.mark.parametrize("device, mode", [("229", "600"), ("250", "666")],
                         ids=["only root may open it", "no driver, or a rule for devices"])
def test_it_is_taken_where_fuse_cannot_be_opened(host_root, box, device, mode):
    if box.identity.name == "root" and mode == "600":
        pytest.skip("root may open every device")
    argv = [box.world.command, "run", "--mode", "dynamic", "--", "/bin/ls", "/"]
    shown = box.execute(["/bin/ls", "/"], None, None, 20, False, ())
    environment = [f"{name}={value}" for name, value in box.identity.environment().items()]
    found = subprocess.run(
        ["unshare", "-m", "sh", "-c", OTHER_FUSE, "sh", str(box.identity.uid),
         str(box.identity.gid), shlex.join(["env", "-i", *environment, *argv]), device, mode],
        cwd=box.project, capture_output=True, text=True, check=False)
    assert found.returncode == 0 and "usr" in found.stdout.split(), found
    assert found.stderr == "", "another back end"
    assert len(found.stdout.split()) < len(shown.stdout.split()), "not the empty root"


def test_the_root_is_read_only_and_shows_what_is_allowed(box, ground):
    result, asked = shell(box, "ls /; touch /made; mkdir /made; ln -s a /made; ls /etc/hostname")
    names = result.stdout.split()
    assert "usr" in names and "tmp" in names and "made" not in names
    assert "boot" not in names and not asked, (result, asked)


def test_folders_above_allowed_places_show_those(box, ground):
    script = f"ls {box.identity.home}; cd {box.identity.home} && ls project/main.c && ls .ssh"
    result, asked = shell(box, script)
    assert result.stdout.split() == ["project", "project/main.c"], (result, asked)
    assert os.path.exists(box.home("readable.txt"))


def test_a_grant_is_met_from_a_folder_that_was_entered_before(box, ground):
    """The folder can be entered as part of it is allowed; then all of it is approved."""
    script = f"cd {ground}/sub && cat below && cat allowed/deep"
    result, asked = shell(box, script, lambda event: gates.approve(tree=f"{ground}/sub"),
                          ["--ro", f"{ground}/sub/allowed"])
    assert result.stdout == "content of sub/below\ncontent of sub/allowed/deep\n", (result, asked)
    assert [path for _, path in asked] == [f"{ground}/sub/below"]


def test_a_folder_that_is_covered_later_still_works(box, ground):
    """One process stands in the folder by an approval for once; another has it approved."""
    answers = iter([gates.approve("once"), gates.approve("session"), gates.approve("session")])
    script = f"cd {ground}/sub && (cd / && ls {ground}/sub) && cat below"
    result, asked = shell(box, script, lambda event: next(answers))
    assert result.stdout == "allowed\nbelow\ncontent of sub/below\n", (result, asked)


def test_a_socket_in_a_folder_that_is_covered_later_can_be_spoken_to(box, ground):
    """As by its whole path, which is the control. That the folder was allowed is not enough."""
    answers = iter([gates.approve("once"), *2 * [gates.approve("session")], gates.deny()])
    connect = f"{gates.files(box)} connect"
    script = f"cd {ground}/sub && (cd / && ls {ground}/sub >/dev/null) && {connect} {ground}/sub/socket; {connect} socket; {connect} other"
    with gates.listening(box, f"{ground}/sub/socket"), gates.listening(box, f"{ground}/sub/other"):
        result, asked = shell(box, script, lambda event: next(answers))
    assert result.stdout == "connect ok\n" * 2 + "connect EACCES\n", (result, asked)
    assert asked[2:] == [("connect", f"{ground}/sub/socket"), ("connect", f"{ground}/sub/other")], asked


COVERED_WAYS = [(way, what) for what in ("folder", "link", "file") for way in (
    "stat", "lstat", "statx", "access", "faccessat2", "readlink", "getxattr", "listxattr", "statfs", "path-only",
    "path-nofollow", "directory", "list", "openat2", "open", "chdir", "inotify")]


@pytest.fixture
def covered(box, ground):
    """Stands in a folder by an approval for once, while another process has it approved: a mount covers it."""
    for old, new in (("below", "file"), ("allowed", "folder")):
        os.rename(f"{ground}/sub/{old}", f"{ground}/sub/{new}")
    os.symlink("file", f"{ground}/sub/link")
    answers = iter([gates.approve("once")])

    def perform(script, options=()):
        inside, asked = shell(box, f"cd {ground}/sub && (cd / && ls {ground}/sub >/dev/null) && {script}",
                              lambda event: next(answers, gates.approve()), options)
        return gates.lines(inside), asked

    return perform


def test_calls_from_a_folder_that_is_covered_later_are_what_they_are(box, ground, covered):
    """The kernel would not meet the mount from there; each by a process of its own that stands there."""
    script = "; ".join(f"{gates.files(box)} {way} {what}" for way, what in COVERED_WAYS)
    inside, asked = covered(script)
    outside = gates.lines(box.plain(["/bin/sh", "-c", f"cd {ground}/sub && {script}"]))
    assert inside == outside and {"chdir ok", "readlink file"} < set(inside), (inside, asked)
    assert len(asked) == 2, asked


HOLDS = """if True:
    import os, subprocess, sys
    held = os.open(sys.argv[1], os.O_PATH)
    subprocess.run(["/bin/ls", sys.argv[1]], stdout=subprocess.DEVNULL)
    print(oct(os.stat("allowed", dir_fd=held).st_mode))
    inner = os.open("allowed", os.O_PATH, dir_fd=held)
    print(os.listdir(os.open(".", os.O_RDONLY, dir_fd=inner)), os.readlink(f"/proc/self/fd/{inner}"))
    os.fchdir(held)
    os.chdir("allowed")
    print(os.getcwd(), os.listdir())
"""


def test_a_descriptor_of_a_folder_that_is_covered_later_works(box, ground):
    argv = ["/usr/bin/python3", "-ESs", "-c", HOLDS, f"{ground}/sub"]
    answers = iter([gates.approve("once")])
    inside, asked = gates.run(box, "notify", argv, lambda event: next(answers, gates.approve()))
    assert gates.lines(inside) == gates.lines(box.plain(argv)), (inside, asked)
    assert [path for _, path in asked] == [f"{ground}/sub"] * 2 and len(gates.lines(inside)) == 3, asked


def test_who_is_traced_looks_from_a_folder_that_is_covered_later(box, ground, covered):
    """Nobody else can hold it, to lead it into the mount."""
    script = "; ".join(f"{gates.files(box)} traced-stat {what}" for what in ("file", "folder", "link"))
    inside, asked = covered(script)
    outside = gates.lines(box.plain(["/bin/sh", "-c", f"cd {ground}/sub && {script}"]))
    assert inside == outside and not any("E" in line for line in inside), (inside, outside, asked)


@pytest.mark.parametrize("asks", [False, True])
def test_a_write_from_a_folder_that_is_covered_later_is_asked_about(box, ground, covered, asks):
    """With ask_writes; the control: without, nobody is, and it is a read-only file system."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    options = ["--policy", box.home("writes.yaml")] if asks else []
    inside, asked = covered(f"{gates.files(box)} append file; {gates.files(box)} mkdir new", options)
    expected = ["append ok", "mkdir ok"] if asks else ["append EROFS", "mkdir EROFS"]
    assert inside == expected and len(asked) == 2 + 2 * asks, (inside, asked)


def test_a_32_bit_program_looks_from_a_folder_that_is_covered_later(box, ground, covered, small):
    """It cannot be led into the mount, and is told what is there."""
    script = "; ".join(f"{small} {way} {what}" for way in ("stat", "statx", "access", "llistxattr", "readlinkat")
                       for what in ("file", "folder", "link"))
    inside, asked = covered(script)
    outside = gates.lines(box.plain(["/bin/sh", "-c", f"cd {ground}/sub && {script}"]))
    assert inside == outside and not any("E" in line for line in inside[:9]), (inside, outside, asked)


@pytest.mark.parametrize("mounted", [False, True], ids=["", "in what may be read"])
def test_to_remove_what_may_be_written_to_is_asked_about(box, ground, mounted):
    """It is a write to its folder. The control: the answer no."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    first = f"ls {ground} >/dev/null; " if mounted else ""
    script = f"{first}echo more >>{ground}/file && rm {ground}/file"
    for allowed in (False, True):
        answers = iter([gates.approve()] * (1 + mounted) + [gates.approve() if allowed else gates.deny()])
        inside, asked = shell(box, script, lambda event: next(answers), ["--policy", box.home("writes.yaml")])
        assert [path for op, path in asked if op == "write"] == [f"{ground}/file", ground], (inside, asked)
        assert os.path.exists(f"{ground}/file") != allowed, (inside, asked)


def test_links_on_the_way_are_followed_and_repeated(box, ground):
    os.symlink(f"{ground}/sub", box.home("first"))
    os.symlink("first/below", box.home("second"))
    result, asked = shell(box, f"readlink {box.home('second')}; cat {box.home('second')}; "
                               f"cat {box.home('first')}/below",
                          lambda event: gates.approve())
    assert result.stdout == "first/below\n" + "content of sub/below\n" * 2, (result, asked)
    assert [path for _, path in asked] == [f"{ground}/sub/below"]


@pytest.mark.parametrize("way", ["by-link", "by-folder/file", "deep/../../gated/file", "../gated/file",
                                 "/../{ground}/file", "/proc/self/cwd/by-link"])
def test_ways_out_of_a_place_that_was_used(box, ground, way):
    """What is mounted there is known by then; a way from it to something else is still asked about.
    The control: what is missing beside it is not."""
    os.symlink(f"{ground}/file", f"{box.project}/by-link")
    os.symlink(ground, f"{box.project}/by-folder")
    os.makedirs(f"{box.project}/deep")
    use = "for i in 1 2 3; do cat main.c deep/none ./none by-link/none /usr/none; ls /usr deep /proc/1; done"
    result, asked = shell(box, f"{{ {use}; }} >/dev/null 2>&1; cat {way.format(ground=ground)}",
                          lambda event: gates.approve())
    assert result.stdout == "content of file\n", (result, asked)
    assert [path for _, path in asked] == [f"{ground}/file"]


def test_a_link_that_changes_on_the_host_is_followed_anew(box, ground):
    link = box.home("changing")
    os.symlink(f"{ground}/file", link)
    with gates.halfway(box, "notify", f"cat {link}", f"cat {link}",
                       lambda event: gates.approve()) as it:
        os.unlink(link)
        os.symlink(f"{ground}/sub/below", link)
        gates.go_on(box)
        assert it.finish().stdout == "content of file\ncontent of sub/below\n"


def test_denied_folders_cannot_be_entered(box, ground):
    result, asked = shell(box, f"cd {ground}/sub || echo refused; ls {ground} || echo refused")
    assert result.stdout == "refused\nrefused\n", (result, asked)


def test_links_to_what_has_no_name_are_reported(box, ground):
    """A file that is only open gets its name by a call whose first path is empty. The control: in the project it
    gets one."""
    made = [f"{box.project}/made", f"{ground}/made"][gates.KERNEL < (6, 10):]  # before, only with a capability
    argv = [part for path in made for part in ("link-open", path)]
    result = box.execute([box.world.command, "run", "--mode", "dynamic", "--gate", "notify", "--json", "--ro",
                          box.world.bin, "--", gates.files(box), *argv], None, None, 30, False, ())
    found = json.loads(result.stdout)
    assert found["stdout"].splitlines() == ["link-open ok", "link-open EROFS"][-len(made):], found
    assert [entry["path"] for entry in found["denials"]] == [f"{ground}/made"], found


def test_who_links_to_what_is_elsewhere_may_copy_it(box, ground):
    """It is another file system's, whatever it is called by."""
    os.symlink(f"{ground}/file", f"{box.project}/link")
    result, asked = gates.run(box, "notify", [gates.files(box), "link", f"{ground}/file", "link-followed", "link"],
                              lambda event: gates.deny())
    assert gates.lines(result) == ["link EXDEV", "link-followed EXDEV"], (result, asked)


def test_many_wait_at_the_same_time(box, ground):
    """More than may wait: those are denied, the others answered, and nothing is stuck."""
    names = [f"{ground}/many/{number}" for number in range(40)]
    for name in names:
        box.identity.file(name, "x\n")
    script = "".join(f"cat {name} & " for name in names) + "wait; echo end"
    result, asked = shell(box, script, lambda event: gates.approve())
    assert result.stdout.endswith("end\n") and result.stdout.count("x") >= 5, result


def test_a_thread_of_a_process_is_asked_for_as_the_process(box, ground):
    program = gates.program(box.world, "gate-files")
    pids = []

    def answer(event):
        pids.append(event["pid"])
        return gates.approve()

    result, _ = gates.run(box, "notify", [program, "thread", f"{ground}/file", "open",
                                          f"{ground}/sub/below"], answer)
    assert result.stdout == "thread content of file\nopen content of sub/below\n", result
    assert len(set(pids)) == 1


def test_paths_in_memory_that_is_closed_to_others(box, ground):
    """What is allowed can be used as outside, and nothing else. So it is with a path that is too long, in a call that
    is wrong before that. The control is outside."""
    argv = [gates.files(box), "closed-memory", "/etc/passwd", "closed-memory", f"{ground}/file", "wrong-statx", "x/" * 2100]
    outside = gates.lines(box.plain(argv))
    if outside[0] == "closed-memory ENOSYS":
        pytest.skip("the kernel has no memfd_secret")
    assert outside[1:] == ["closed-memory content of file", "wrong-statx EINVAL"], outside
    result, asked = gates.run(box, "notify", argv, lambda event: gates.approve())
    assert gates.lines(result) == [outside[0], "closed-memory ENOENT", outside[2]] and not asked, (result, asked)


# So many threads open one file at the same time; each says what came of it.
THREADS = """import sys, threading
def look():
    try:
        open(sys.argv[1]).close()
        print("ok", flush=True)
    except PermissionError:
        print("denied", flush=True)
threading.stack_size(64 * 1024)
many = [threading.Thread(target=look) for _ in range(300)]
[one.start() for one in many]
[one.join() for one in many]
"""


def test_calls_beyond_what_can_wait_are_counted(box, ground):
    """256 wait; the rest is denied, whatever the answer, and somebody is told."""
    argv = ["/usr/bin/python3", "-c", THREADS, f"{ground}/file"]
    with dynamic.asking(box, argv, "--gate", "notify") as session, session.watch() as control:
        asked = dynamic.question(control)

        def denied():
            with session.connect() as other:
                return other.call({"cmd": "cmd.stats"})["decisions"]["denied"] == 44

        assert sessions.eventually(denied)
        assert dynamic.answer(control, {"cmd": "cmd.approve", "id": asked["id"],
                                        "scope": "session"}) == {"ok": True}
        code, out, err = session.result()
        assert (code, out.count("ok"), out.count("denied")) == (0, 256, 44), (out, err)
        assert "44 requests were denied without asking" in err, err
        lines = dynamic.audit_lines(box, session.sid)
    assert sum(line.get("not_asked", 0) for line in lines) == 44


LOOKS = ("whole-stat", "whole-lstat", "whole-fstatat", "statx", "statfs", "statfs64", "access", "lgetxattr", "getxattrat",
         "llistxattr", "listxattrat", "readlinkat", "file-getattr")


@pytest.mark.parametrize("scope", ["once", "session"])
def test_a_32_bit_program_is_told_what_it_is_told_outside(box, ground, small, scope):
    """Byte by byte: what it may look at once the monitor tells it, in the kernel's place."""
    argv = [small]
    for way in LOOKS:
        path = box.identity.file(f"{ground}/{way}/file", f"content for {way}\n")
        with contextlib.suppress(OSError):  # where there are none, both say so
            os.setxattr(path, "user.test", b"value of it")
        argv += [way, path]
    outside = box.plain(argv)
    inside, asked = gates.run(box, "notify", argv, lambda event: gates.approve(scope))
    assert gates.lines(inside) == gates.lines(outside), (inside, asked)
    assert len(asked) == len(LOOKS) and not any("EACCES" in line for line in gates.lines(outside)), outside
