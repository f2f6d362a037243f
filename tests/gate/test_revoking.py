"""What was allowed is taken back: at once, for everybody, and nothing that was hidden comes to light."""

import contextlib
import os
import signal
import subprocess
import time

import pytest

import gates
import harness
import sessions
from gates import lines


def first_approved(count):
    """So many questions are answered with yes, all that come later with no."""
    answers = iter([gates.approve()] * count)
    return lambda event: next(answers, gates.deny())


def stopped_broker(box, session):
    """It sleeps, as it may on a busy machine."""
    broker = gates.broker_of(sessions.monitor_of(box, session.sid))
    os.kill(broker, signal.SIGSTOP)
    return broker


def test_revoking_takes_effect_for_new_opens(box, gate, ground):
    path = f"{ground}/file"
    with gates.halfway(box, gate, f"cat {path}", f"cat {path}", first_approved(1)) as it:
        revoked = sessions.sandbox(box, "policy", "revoke", "--session", it.sid, path)
        gates.go_on(box)
        result = it.finish()
    assert result.stdout == "content of the file\n", (result, revoked)
    assert len(it.asked) == 2


@pytest.mark.escape
@pytest.mark.parametrize("mounted", [False, True], ids=["", "mounted for reading"])
@pytest.mark.parametrize("revoked, lost, kept", [("", "new", "file"), ("/file", "file", "new")])
def test_what_covers_earlier_grants_is_revoked(box, gate, ground, revoked, lost, kept, mounted):
    """A file was allowed to be written to, then the folder that it is in. What the other answer allows stays so, and
    nothing else is read or written any more."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    box.identity.file(f"{ground}/covered/file", "content\n")
    first = f"echo more >>{ground}/covered/file; echo more >{ground}/covered/new"
    first = f"ls {ground}/covered >/dev/null; {first}" if mounted else first
    then = "; ".join(f"cat {ground}/covered/{name}; echo {name} >>{ground}/covered/{name}" for name in (lost, kept))
    with gates.halfway(box, gate, first, then, first_approved(2 + mounted), ["--policy", box.home("writes.yaml")]) as it:
        answer = sessions.sandbox(box, "policy", "revoke", "--session", it.sid, f"{ground}/covered{revoked}")
        gates.go_on(box)
        result = it.finish()
    before = {"file": "content\nmore\n", "new": "more\n"}
    assert answer.exit == 0 and result.stdout == before[kept], (answer, result, it.asked)
    assert it.asked[2 + mounted:] == [(op, f"{ground}/covered/{lost}") for op in ("read", "write")], it.asked
    for name, added in ((lost, ""), (kept, f"{kept}\n")):
        with open(f"{ground}/covered/{name}") as file:
            assert file.read() == before[name] + added


def test_a_revocation_is_over_when_it_says_so(box, gate, ground):
    """The broker sleeps meanwhile, as it may on a busy machine: nobody is told that all is done."""
    path = f"{ground}/file"
    with gates.halfway(box, gate, f"cat {path}", f"cat {path}", first_approved(1)) as it:
        broker = stopped_broker(box, it)
        revoking = box.popen([box.world.command, "policy", "revoke", "--session", it.sid, path])
        time.sleep(0.3)
        told = revoking.poll()
        os.kill(broker, signal.SIGCONT)
        assert told is None and revoking.wait(harness.TIMEOUT) == 0
        gates.go_on(box)
        assert it.finish().stdout == "content of the file\n", it.asked
    assert len(it.asked) == 2


@pytest.mark.escape
def test_a_revocation_outlives_the_broker(box, gate, ground):
    """It is killed before it has taken anything away: another one does it."""
    path = f"{ground}/file"
    with gates.halfway(box, gate, f"cat {path}", f"cat {path}", first_approved(1)) as it:
        broker = stopped_broker(box, it)
        revoking = box.popen([box.world.command, "policy", "revoke", "--session", it.sid, path],
                             stdout=subprocess.PIPE)
        time.sleep(0.2)
        os.kill(broker, signal.SIGKILL)
        said, _ = revoking.communicate(timeout=harness.TIMEOUT)
        gates.go_on(box)
        assert it.finish().stdout == "content of the file\n", it.asked
    assert revoking.returncode == 0 and b"may still" not in said and len(it.asked) == 2, said


def has_mount(pid, path):
    with open(f"/proc/{pid}/mountinfo") as mounts:
        return any(line.split()[4] == path for line in mounts)


@contextlib.contextmanager
def slow_to_say_what_it_mounted(broker):
    with subprocess.Popen(["strace", "-qq", "-p", str(broker), "-e", "inject=move_mount:delay_exit=5000000"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as tracer:
        try:
            assert sessions.eventually(lambda: sessions.status(broker)["TracerPid"] != "0", harness.TIMEOUT)
            yield
        finally:
            tracer.kill()


@pytest.mark.escape
def test_what_a_broker_mounted_before_it_was_killed_can_be_revoked(box, gate, ground, host_root):
    """Nobody has heard that it is mounted; another one mounts it again."""
    path = f"{ground}/file"
    wait = "touch {0}; while [ ! -e {0}-over ]; do sleep 0.02; done; "
    script = f"cat {ground}/exact; {wait.format('start')}cat {path}; {wait.format('death')}cat {path}"
    with gates.Session(box, gate, ["/bin/sh", "-c", script], first_approved(2)) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("start")))
        monitor = sessions.monitor_of(box, it.sid)
        broker, init = gates.broker_of(monitor), gates.child_of(monitor, "sandbox-init")
        with slow_to_say_what_it_mounted(broker):
            box.identity.file(box.path("start-over"), "")
            # Whatever the broker may mount before it is as slow.
            assert sessions.eventually(lambda: has_mount(init, path), harness.TIMEOUT), it.asked
            os.kill(broker, signal.SIGKILL)
        assert sessions.eventually(lambda: os.path.exists(box.path("death")))
        revoked = sessions.sandbox(box, "policy", "revoke", "--session", it.sid, path)
        box.identity.file(box.path("death-over"), "")
        result = it.finish()
    assert revoked.exit == 0 and lines(result) == ["content of the exact one", "content of the file"], (revoked, result)
    assert it.asked[1:] == [("read", path)] * 2, it.asked


def test_what_is_revoked_while_it_is_granted_is_not_granted(box, gate, ground):
    """The answer was yes, and is taken back before the broker has made the mount."""
    path = f"{ground}/file"
    with gates.halfway(box, gate, f"cat {ground}/exact", f"cat {path}; cat {path}",
                       first_approved(2)) as it:
        broker = stopped_broker(box, it)
        gates.go_on(box)
        assert sessions.eventually(lambda: it.withdrawn.count("allowed") == 2)
        with sessions.Control(box, it.sid) as control:
            control.send({"cmd": "cmd.revoke", "path": path, "tag": "revoke"})
            control.send({"cmd": "cmd.ps", "tag": "other"})
            assert control.read()["tag"] == "other", "it says that it is done"
            os.kill(broker, signal.SIGCONT)
            assert control.read()["ok"]
        result = it.finish()
    assert result.stdout == "content of the exact one\n" and len(it.asked) == 3, (result, it.asked)


@pytest.mark.escape
@pytest.mark.parametrize("kept", ["session", "read", "write"])
@pytest.mark.parametrize("asks", [False, True], ids=["", "asks"])
def test_a_part_that_was_revoked_does_not_come_with_the_rest(box, gate, ground, kept, asks):
    """The folder around it is still allowed, and used first; the part is asked about. Allowed again, it is."""
    if kept != "session":
        box.identity.file(box.home(".config/sandbox/grants.yaml"), "version: 1\ngrants:\n"
                          f"  - {{decision: allow, path: '{ground}', access: {kept}}}\n")
    box.identity.file(box.home("writes.yaml"), f"version: 1\nfilesystem: {{ask_writes: {str(asks).lower()}}}\n")
    before = f"cat {ground}/sub/below {ground}/file"
    after = f"cat {ground}/file; ls {ground} >/dev/null; cat {ground}/exact; " + 2 * f"cat {ground}/sub/below; "
    script = f"{before}; touch ready; while [ ! -e go ]; do sleep 0.02; done; {after}"
    answers = iter([gates.approve(tree=ground)] * (kept == "session") + [gates.deny(), gates.approve()])
    with gates.Session(box, gate, ["/bin/sh", "-c", script], lambda event: next(answers),
                       ["--policy", box.home("writes.yaml")]) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("ready")))
        revoked = sessions.sandbox(box, "policy", "revoke", f"{ground}/sub")
        gates.go_on(box)
        result = it.finish()
    assert revoked.exit == 0 and "in 1 running session" in revoked.stdout, revoked
    assert lines(result) == ["content below", "content of the file", "content of the file",
                             "content of the exact one", "content below"], (result, it.asked)
    assert it.asked[-2:] == [("read", f"{ground}/sub/below")] * 2, it.asked


@pytest.mark.escape
def test_what_the_host_replaced_below_a_later_grant_is_revoked(box, gate, ground):
    """The file was granted before its folder, and its mount is still there when the folder's is gone."""
    path = f"{ground}/file"
    answers = iter([gates.approve(), gates.approve(tree=ground)])
    with gates.halfway(box, gate, f"cat {path}; cat {ground}/exact", f"cat {path}; cat {ground}/exact",
                       lambda event: next(answers, gates.deny())) as it:
        box.identity.file(f"{ground}/new", "replaced\n")
        os.rename(f"{ground}/new", path)
        time.sleep(0.3)
        for revoked in (ground, path):
            assert sessions.sandbox(box, "policy", "revoke", revoked).exit == 0
        gates.go_on(box)
        result = it.finish()
    assert lines(result) == ["content of the file", "content of the exact one"], (result, it.asked)
    assert it.asked[2:] == [("read", path), ("read", f"{ground}/exact")], it.asked


HOLDER = """
import os, time
folder, sub = (os.open('FOLDER' + name, os.O_RDONLY) for name in ('', '/harmless-folder'))
home = os.getcwd()
os.chdir('FOLDER')
def look(name, start):
    try:
        print(name, os.read(os.open(name, os.O_RDONLY, dir_fd=start), 200))
    except OSError as error:
        print(name, error.strerror)
def look_around():
    look('harmless', folder)
    for name, start in (('gh/hosts.yml', folder), ('../gh/hosts.yml', sub),
                        ('gcloud/credentials.db', None), ('../.ssh/id_rsa', None),
                        ('../../.ssh/id_rsa', sub)):
        look(name, start)
    for entry in [entry for entry in os.listdir('/dev') if 'taken' in entry]:
        for name in (entry, entry + '/here', entry + '/here/gh/hosts.yml'):
            look('/dev/' + name, None)
look_around()
open(home + '/ready', 'w').close()
while not os.path.exists(home + '/go'):
    time.sleep(0.02)
look_around()
try:
    os.listdir('FOLDER')
except OSError as error:
    print('new', error.strerror)
"""


@pytest.mark.escape
def test_what_was_hidden_in_a_revoked_folder_stays_hidden(box, gate):
    """Also for who holds the folder, or one in it, from before. The control: outside they are read."""
    folder = box.home(".config")
    box.identity.file(f"{folder}/harmless", "harmless\n")
    box.identity.folder(f"{folder}/harmless-folder")
    outside = box.plain(["/bin/cat", f"{folder}/gh/hosts.yml", f"{folder}/gcloud/credentials.db"])
    assert outside.stdout.count(box.canary) == 2
    answers = iter([gates.approve(tree=folder)])
    with gates.Session(box, gate, ["/usr/bin/python3", "-c", HOLDER.replace("FOLDER", folder)],
                       lambda event: next(answers, gates.deny())) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("ready")))
        sessions.sandbox(box, "policy", "revoke", "--session", it.sid, folder)
        gates.go_on(box)
        result = it.finish()
    assert box.canary not in result.stdout and "harmless b'harmless" in result.stdout, result
    assert lines(result)[-1] == "new Permission denied", result


HOLDER_OF_WRITABLE = """
import os, time
open('FOLDER/made', 'w').close()
held = os.open('FOLDER', os.O_RDONLY)
def attempt(name, flags):
    try:
        os.close(os.open(name, flags, dir_fd=held))
        print(name, True)
    except OSError as error:
        print(name, error.strerror)
def all_attempts():
    attempt('file', os.O_WRONLY)
    attempt('.git/config', os.O_WRONLY)
    attempt('file', os.O_RDONLY)
all_attempts()
open('ready', 'w').close()
while not os.path.exists('go'):
    time.sleep(0.02)
all_attempts()
"""


def hold_and_revoke(box, gate, folder):
    """What who holds a folder that was granted for writing can do, before and after its revocation."""
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    box.identity.file(f"{folder}/.git/config", "[core]\n")
    for name in ("HEAD", "objects/x", "refs/x"):
        box.identity.file(f"{folder}/.git/{name}", "ref: refs/heads/main\n")
    box.identity.file(f"{folder}/file", "content\n")
    script = HOLDER_OF_WRITABLE.replace("FOLDER", folder)
    with gates.Session(box, gate, ["/usr/bin/python3", "-c", script], lambda event: gates.approve(),
                       options=["--policy", box.home("writes.yaml")]) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("ready")))
        it.answer = lambda event: gates.deny()
        sessions.sandbox(box, "policy", "revoke", "--session", it.sid, folder)
        gates.go_on(box)
        result = it.finish()
    assert lines(result)[:3] == ["file True", ".git/config Read-only file system", "file True"], result
    return lines(result)[3:]


@pytest.mark.escape
def test_a_revoked_folder_is_not_written_to_by_who_holds_it(box, gate):
    after = hold_and_revoke(box, gate, box.home("other"))
    assert {line.split(" ", 1)[1] for line in after[:2]} <= {"Read-only file system",
                                                             "Permission denied"}, after


def test_a_revoked_folder_is_not_read_by_who_holds_it(box, gate):
    assert hold_and_revoke(box, gate, box.home("other"))[2] == "file Permission denied"


# Prints what it can read, by every way that starts from a folder which it holds; twice.
SEEKER = """
import os, threading, time
home = os.getcwd()
folder = os.open('FOLDER', os.O_RDONLY)
deep = os.open('FOLDER/one/two', os.O_PATH)
os.chdir('FOLDER/one')
ways = [(None, name) for name in ('in-one', 'two/in-two', '../top', '../other/in-other', './in-one',
                                  'two/../in-one', f'/proc/self/fd/{folder}/top', '/proc/self/cwd/in-one',
                                  f'/proc/self/fd/{deep}/../../other/in-other', 'link')]
ways += [(folder, name) for name in ('top', 'one/in-one', 'one/two/in-two', 'other/../top')]
ways += [(deep, name) for name in ('in-two', '../in-one', '../../top', '../../other/in-other', '../two/in-two')]
def read(start, name):
    try:
        return os.read(os.open(name, os.O_RDONLY, dir_fd=start), 20).decode().strip()
    except OSError as error:
        return ''
def look():
    found = [f'{name} {read(start, name)}' for start, name in ways if read(start, name)]
    print(len(found), *found, sep=';', flush=True)
def wait(name):
    while not os.path.exists(f'{home}/{name}'):
        time.sleep(0.02)
look()
open(f'{home}/ready', 'w').close()
wait('go')
look()
MORE
"""


# Then it looks again, when there is nothing left to be read, or at the latest after 20 seconds.
SOON_NOTHING = """
until = time.monotonic() + 20
while any(read(*way) for way in ways) and time.monotonic() < until:
    time.sleep(0.02)
look()
"""


def planted(box):
    folder = box.home("seek")
    for name in ("top", "one/in-one", "one/two/in-two", "other/in-other"):
        box.identity.file(f"{folder}/{name}", f"content {os.path.basename(name)}\n")
    os.symlink("in-one", f"{folder}/one/link")
    return folder


def seek(box, gate, folder, more="", meanwhile=lambda it: None, before="", again=False, script=SEEKER):
    """What is found before and after a revocation; and what it said. `again`: it is allowed anew when
    all ways were tried."""
    script = before + script.replace("FOLDER", folder).replace("MORE", more)
    answers = iter([gates.approve(tree=folder)])
    anew = gates.approve(tree=folder) if again else gates.deny()
    with gates.Session(box, gate, ["/usr/bin/python3", "-c", script],
                       lambda event: next(answers, anew)) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("ready")))
        revoked = sessions.sandbox(box, "policy", "revoke", "--session", it.sid, folder)
        assert revoked.exit == 0, revoked
        meanwhile(it)
        gates.go_on(box)
        result = it.finish()
    assert result.exit == 0, result
    return lines(result), revoked, result


@pytest.mark.escape
def test_no_way_leads_from_a_folder_that_is_held(box, gate):
    """By descriptors, the working folder, "..", /proc. The control: before, each leads somewhere."""
    (before, after), revoked, _ = seek(box, gate, planted(box))
    assert before.startswith("19;") and after == "0", (before, after)
    assert "may still read" not in revoked.stdout, revoked


@pytest.mark.escape
def test_what_the_host_changes_in_a_held_folder_is_covered_again(box, gate):
    """Whoever replaces a file takes its cover away, and a new one has none: for an instant."""
    folder = planted(box)

    def change(_):
        for name in ("top", "new", "one/in-one"):
            box.identity.file(f"{folder}/{name}.tmp", "content replaced\n")
            os.rename(f"{folder}/{name}.tmp", f"{folder}/{name}")
        box.identity.file(f"{folder}/one/later/file", "content later\n")

    more = "ways += [(folder, 'new'), (folder, 'one/later/file'), (None, 'later/file')]" + SOON_NOTHING
    (before, _, after), _, result = seek(box, gate, folder, more, change)
    assert before.startswith("19;") and after == "0", result


def test_it_is_said_if_a_process_could_not_be_looked_into(box, gate):
    """It holds a folder, and shows nobody what it holds."""
    folder = planted(box)
    hide = "import ctypes; ctypes.CDLL(None).prctl(4, 0)\n"
    _, revoked, result = seek(box, gate, folder, before=hide)
    assert "may still read" in revoked.stdout and "was taken back, but" in result.stderr, (revoked, result)


def test_what_was_revoked_can_be_allowed_again(box, gate):
    """By its name; who held a folder of it from before goes there anew."""
    folder = planted(box)
    more = f"""
print(read(None, '{folder}/top'))
os.chdir('{folder}/one')
print(read(None, 'in-one'), read(None, '../top'), flush=True)
look()
"""
    found, _, result = seek(box, gate, folder, more, again=True)
    assert found[1] == "0" and found[2:4] == ["content top", "content in-one content top"], result
    assert found[4].startswith("8;"), result  # those that begin with the working folder


@pytest.mark.escape
def test_what_is_held_stays_covered_when_the_broker_is_killed(box, gate):
    """Another one goes on, also with what the host changes."""
    folder = planted(box)

    def change(it):
        monitor = sessions.monitor_of(box, it.sid)
        broker = gates.broker_of(monitor)
        os.kill(broker, signal.SIGKILL)
        assert sessions.eventually(lambda: gates.broker_of(monitor) not in (None, broker))
        box.identity.file(f"{folder}/top.tmp", "content replaced\n")
        os.rename(f"{folder}/top.tmp", f"{folder}/top")

    (before, _, after), _, result = seek(box, gate, folder, SOON_NOTHING, change)
    assert before.startswith("19;") and after == "0", result


@pytest.mark.escape
def test_a_large_folder_that_is_held_is_covered(box, gate):
    folder = planted(box)
    for number in range(2000 if gates.LONG else 200):
        os.close(os.open(f"{folder}/one/{number}", os.O_WRONLY | os.O_CREAT))
    (before, after), _, _ = seek(box, gate, folder)
    assert before.startswith("19;") and after == "0", (before, after)


def test_it_is_said_if_who_holds_a_folder_can_still_read(box, gate):
    """A folder that may be entered and not listed: nobody knows what is to be covered."""
    folder = planted(box)
    os.chmod(f"{folder}/one", 0o311)
    (before, _), revoked, result = seek(box, gate, folder)
    assert before.startswith("19;"), before
    assert "may still read" in revoked.stdout and "was taken back, but" in result.stderr, (revoked, result)


@pytest.mark.escape
def test_a_descriptor_that_was_on_its_way_is_found(box, gate):
    """Nothing shows it while the folder is taken back; it is used afterwards, and not for long."""
    before = "import socket, array\nends = socket.socketpair()\n"
    more = """
descriptor = array.array('i')
descriptor.frombytes(ends[1].recvmsg(1, 100)[1][0][2])
ways = [(descriptor[0], 'in-one'), (descriptor[0], '../top')]
until = time.monotonic() + 30
while any(read(*way) for way in ways) and time.monotonic() < until:
    time.sleep(0.02)
look()
"""
    send = "ends[0].sendmsg([b'x'], [(1, 1, array.array('i', [sent]))])\nos.close(sent)\n"
    script = SEEKER.replace("look()\nopen", f"look()\nsent = os.open('.', os.O_PATH)\n{send}"
                            "os.chdir(home)\nos.close(deep)\nopen", 1)
    (found, _, after), _, result = seek(box, gate, planted(box), more, before=before, script=script)
    assert found.startswith("19;") and after == "0", result


RUNNER = """
import os, time
os.listdir('FOLDER')
at, moved, up = os.open('FOLDER', os.O_PATH), 0, '/'.join(['..'] * 89)
open('ready', 'w').close()
while not os.path.exists('go'):
    try:
        below = os.open('down' if moved % 90 < 89 else up, os.O_PATH, dir_fd=at)
    except OSError:
        continue
    os.close(at)
    at, moved = below, moved + 1
def reads(name):
    try:
        return os.read(os.open(name, os.O_RDONLY, dir_fd=at), 20)
    except OSError:
        return b''
names = ('file', 'down/file', '../file', '../../file', 'down/down/file')
until = time.monotonic() + 20
while any(map(reads, names)) and time.monotonic() < until:
    time.sleep(0.02)
print('moved', moved, 'found', sum(map(bool, map(reads, names))))
"""


@pytest.mark.escape
def test_who_runs_away_through_folders_is_caught(box, gate):
    """He goes from folder to folder while they are covered, and may slip through; but not for long. The
    control: he does move."""
    folder = path = box.home("deep")
    for _ in range(100):
        box.identity.file(f"{path}/file", "content\n")
        path += "/down"
    box.identity.folder(path)
    with gates.Session(box, gate, ["/usr/bin/python3", "-c", RUNNER.replace("FOLDER", folder)],
                       lambda event: gates.approve(tree=folder)) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("ready")))
        it.answer = lambda event: gates.deny()
        time.sleep(0.1)
        revoked = sessions.sandbox(box, "policy", "revoke", "--session", it.sid, folder)
        gates.go_on(box)
        (line,) = lines(it.finish())
    _, moved, _, found = line.split()
    assert revoked.exit == 0 and int(moved) > 0 and found == "0", (line, revoked)
