"""The audit log through the command: what is in it, who cannot touch it, every kind of tampering,
sudden death and a disk without room."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

import dynamic
import harness
from harness import command_line
from sessions import eventually, monitor_of


class Log:
    """A state folder of its own, and the command that uses it."""

    def __init__(self, box, home):
        self.box = box
        self.home = home
        self.folder = os.path.join(home, "sandbox", "audit")
        self.chain = os.path.join(self.folder, "chain.jsonl")

    def sandbox(self, *words, **more):
        return self.box.plain([self.box.world.command, *words], env={"XDG_STATE_HOME": self.home}, **more)

    def run(self, *argv, options=()):
        return self.sandbox("run", "--static", *options, "--", *argv)

    def small_files(self, *argv):
        """Of 4 KiB."""
        line = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", self.box.world.command, "run", "--static", "--", *argv]
        return self.box.plain(line, env={"XDG_STATE_HOME": self.home})

    def detach(self):
        made = self.sandbox("run", "--static", "--detach")
        assert made.exit == 0, made
        return made.stdout.strip()

    def events(self, *words):
        lines = self.sandbox("audit", "--json", *words).stdout.splitlines()
        return [json.loads(line) for line in lines]

    def verify(self, *words):
        return self.sandbox("audit", "--verify", *words)

    def path(self, sid):
        return os.path.join(self.folder, f"{sid}.jsonl")

    def lines(self, path):
        with open(path) as source:
            return source.read().splitlines()

    def write(self, path, lines):
        with open(path, "w") as out:
            out.write("".join(line + "\n" for line in lines))


@pytest.fixture
def log(box):
    home = tempfile.mkdtemp(prefix="audit-", dir=box.world.base)
    box.identity.own(home)
    yield Log(box, home)
    shutil.rmtree(home)


@pytest.fixture
def session(log):
    """A session that has ended and left five lines of its own."""
    sid = log.detach()
    for number in range(4):
        assert log.sandbox("exec", sid, "--", "true").exit == 0, number
    log.sandbox("kill", sid)
    assert eventually(lambda: "session.end" in [event["event"] for event in log.events(sid)])
    assert len(log.lines(log.path(sid))) == 5
    return sid


def test_what_is_recorded(log):
    assert log.run("sh", "-c", "exit 7").exit == 7
    start, end = log.events()
    assert (start["event"], start["command"]) == ("session.start", ["sh", "-c", "exit 7"])
    assert start["uid"] == log.box.identity.uid and start["project"] == log.box.project
    assert (end["event"], end["exit"]) == ("session.end", 7)
    assert start["session"] == end["session"] and end["prev"] == start["hash"]
    table = log.sandbox("audit").stdout.splitlines()
    assert len(table) == 2 and "sh -c 'exit 7'" in table[0] and "exit 7" in table[1], table


def test_exec_and_kill_are_recorded(log, session):
    events = log.events(session)
    assert [event["event"] for event in events if not event["event"].startswith("log.")] == [
        "session.start", *["exec"] * 4, "kill", "session.end"]
    assert [event for event in events if event["event"] == "exec"][0]["argv"] == ["true"]
    assert log.verify(session).exit == 0


def test_limits_are_recorded(log):
    assert log.run("sleep", "9", options=["--timeout", "500ms"]).exit == 124
    assert [event["limit"] for event in log.events("--event", "limit")] == ["time"]


def test_other_engines_are_recorded(log):
    """Whoever confines the command, its start and end are on record."""
    for backend in ("bwrap", "landlock"):
        result = log.run("sh", "-c", "exit 5", options=["--backend", backend, "--weaken"])
        if result.exit == 125:
            pytest.skip(f"{backend} does not work here: {result.stderr}")
        start, end = log.events("--event", "session")[-2:]
        assert result.exit == 5 and start["backend"] == backend, (result, start)
        assert (end["event"], end["exit"]) == ("session.end", 5)
    assert log.verify().exit == 0


def test_a_session_that_does_not_start_is_recorded(log):
    assert log.run("no-such-command").exit == 127
    assert [event["event"] for event in log.events()] == ["session.start", "session.end"]


def test_hostile_names_are_escaped(log):
    assert log.run("echo", "\033[2J\u202e").exit == 0
    assert "\033" not in log.sandbox("audit").stdout
    assert log.verify().exit == 0


# ---- choosing ----

@pytest.mark.parametrize("time", ["yesterday", "1h30m", "-1h", "2026-13-01", "2026-02-30", "2026-11-18T25:00"])
def test_what_is_no_time_is_refused(log, time):
    result = log.sandbox("audit", "--since", time)
    assert result.exit == 125 and f"--since '{time}': not a time" in result.stderr, result


def test_filters(log, session):
    def count(*words):
        return len(log.events(*words))
    assert count("--event", "exec") == 4
    assert count("--event", "session") == 2
    assert count("--since", "1h") == count() > 4
    assert count("--until", "1h") == 0
    assert count("--since", "2999-01-01") == 0
    assert count("--since", "2001-01-01T10:30", "--until", "2999-01-01T00:00:00Z") == count()
    assert count("--path", "/nowhere") == 0
    assert count("--decision", "deny") == 0
    assert count(session[:5]) == count(session)
    assert [event["event"] for event in log.events("--event", "log")] == ["log.open"]


@pytest.mark.parametrize("words, said", [
    (["--since", "soon"], "--since 'soon'"), (["--prune", "x"], "--prune 'x'"),
    (["nosuchid"], "no audit log of session 'nosuchid'"), (["a", "b"], "too many"),
    (["--verify", "--follow"], "one of"), (["--decision", "perhaps"], "perhaps"),
])
def test_bad_words(log, words, said):
    log.run("true")
    result = log.sandbox("audit", *words)
    assert result.exit == 125 and said in result.stderr, result


def test_an_empty_log_is_fine(log):
    assert log.sandbox("audit").stdout == ""
    assert log.verify().exit == 0


def test_follow_ends_with_the_session(log):
    sid = log.detach()
    follower = log.box.popen([log.box.world.command, "audit", "--follow", "--json", sid],
                             env={"XDG_STATE_HOME": log.home}, stdout=subprocess.PIPE, text=True)
    assert json.loads(follower.stdout.readline())["event"] == "session.start"
    log.sandbox("exec", sid, "--", "true")
    seen = [json.loads(follower.stdout.readline())["event"] for _ in range(2)]
    assert seen == ["log.open", "exec"], seen
    log.sandbox("kill", sid)
    rest, _ = follower.communicate(timeout=10)
    assert json.loads(rest.splitlines()[-1])["event"] == "session.end"
    assert follower.returncode == 0


def test_prune(log, session):
    assert "removed 0" in log.sandbox("audit", "--prune", "1h").stdout
    assert "removed 1" in log.sandbox("audit", "--prune", "2999-01-01").stdout
    assert not os.path.exists(log.path(session))
    assert log.verify().exit == 0


# ---- tampering ----

def edit(lines, other):
    lines[2] = lines[2].replace("true", "sudo", 1)


def edit_hash(lines, other):
    lines[2] = lines[2][:-3] + ("0" if lines[2][-3] != "0" else "1") + '"}'


def cut_head(lines, other):
    del lines[0]


def cut(lines, other):
    del lines[2]


def cut_tail(lines, other):
    del lines[4]


def insert(lines, other):
    lines.insert(2, other[2])


def duplicate(lines, other):
    lines.insert(3, lines[2])


def append(lines, other):
    lines.append(other[-1])


def reorder(lines, other):
    lines[1], lines[2] = lines[2], lines[1]


def replace(lines, other):
    lines[:] = other


def empty(lines, other):
    lines.clear()


# What is done, and the line that must be named first.
TAMPERINGS = ((edit, 3), (edit_hash, 3), (cut_head, 1), (cut, 3), (cut_tail, 4), (insert, 3),
              (duplicate, 4), (append, 6), (reorder, 2), (replace, 1), (empty, 0))


def test_tampering_with_a_log(log, session):
    original = log.lines(log.path(session))
    other = [text.replace('"exec"', '"exeC"') for text in original]  # not ours, but very alike
    for tamper, line in TAMPERINGS:
        assert log.verify().exit == 0, f"the control before {tamper.__name__}"
        lines = list(original)
        tamper(lines, other)
        log.write(log.path(session), lines)
        place = f"{session}.jsonl" + (f":{line}: " if line else ": ")
        for result in (log.verify(), log.verify(session)):
            assert result.exit == 1 and result.stdout.startswith(place), (tamper.__name__, result)
        report = json.loads(log.verify("--json").stdout)
        assert report["valid"] is False and report["problems"][0]["line"] == line
        log.write(log.path(session), original)


def test_a_removed_log(log, session):
    os.unlink(log.path(session))
    result = log.verify()
    assert result.exit == 1 and f"{session}.jsonl" in result.stdout, result


@pytest.mark.parametrize("tamper, line", [(edit, 3), (cut_head, 1), (cut, 3), (reorder, 2)])
def test_tampering_with_the_chain(log, tamper, line):
    for _ in range(3):
        log.run("true")
    assert log.verify().exit == 0, "the control"
    lines = log.lines(log.chain)
    tamper(lines, lines)
    log.write(log.chain, lines)
    result = log.verify()
    assert result.exit == 1 and result.stdout.startswith(f"chain.jsonl:{line}: "), result
    log.run("true")  # who writes next does not cover it up
    assert log.verify().exit == 1


@pytest.mark.parametrize("name", ["chain.jsonl", "chain.head", "tail"])
def test_the_end_of_the_chain(log, name):
    for _ in range(3):
        log.run("true")
    assert log.verify().exit == 0, "the control"
    if name == "tail":
        log.write(log.chain, log.lines(log.chain)[:-1])
    else:
        os.unlink(os.path.join(log.folder, name))
    assert log.verify().exit == 1
    log.run("true")
    assert log.verify().exit == 1


# ---- out of reach of the workload ----

@pytest.mark.parametrize("options", [[], ["--rw"]])
def test_the_workload_cannot_reach_it(log, session, options):
    if options:
        options = ["--rw", log.home]
    files = [log.chain, log.path(session), os.path.join(log.folder, "chain.head")]
    script = 'for file; do cat "$file" && echo READ; echo x >> "$file" && echo WROTE;' \
             ' rm -f "$file"; mv "$file" "$file.x" && echo MOVED; done'
    control = log.box.plain(["cat", *files])
    assert control.exit == 0 and "session.start" in control.stdout, "the control reads nothing"
    result = log.run("sh", "-c", script, "sh", *files, options=options)
    assert result.stdout == "", result
    assert log.verify().exit == 0


# ---- sudden death ----

def test_a_killed_monitor(log):
    sid = log.detach()
    log.sandbox("exec", sid, "--", "true")
    os.kill(monitor_of(log.box, sid), signal.SIGKILL)
    assert eventually(lambda: "its session ended without closing it" in log.verify(sid).stdout)
    assert log.verify().exit == 0
    log.run("true")  # the next start seals it
    assert log.verify(sid).exit == 0
    assert [event["event"] for event in log.events(sid)][-2:] == ["exec", "log.seal"]
    log.write(log.path(sid), log.lines(log.path(sid))[:-1])
    assert log.verify(sid).exit == 1


def test_a_monitor_killed_while_it_writes(log):
    """Whatever moment it is, the log stays readable and nothing passes for tampering."""
    for attempt in range(6):
        sid = log.detach()
        monitor = monitor_of(log.box, sid)
        clients = [log.box.popen([log.box.world.command, "exec", sid, "--", "true"],
                                 env={"XDG_STATE_HOME": log.home}, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL) for _ in range(6)]
        time.sleep(0.002 * attempt)
        os.kill(monitor, signal.SIGKILL)
        for client in clients:
            client.wait(10)
        assert eventually(lambda: command_line(monitor) is None)  # only the dead are tidied up after
        assert log.run("true").exit == 0
        result = log.verify()
        assert result.exit == 0, result


def test_many_sessions_at_once(log):
    """Twenty starts and ends share the chain."""
    words = [log.box.world.command, "run", "--static", "--", "true"]
    started = [log.box.popen(words, env={"XDG_STATE_HOME": log.home}) for _ in range(20)]
    while any(process.poll() is None for process in started):
        result = log.verify()
        assert result.exit == 0, result  # what is being written is no tampering
    assert [process.wait(30) for process in started] == [0] * 20
    assert len(log.events("--event", "session")) == 40
    assert log.verify().exit == 0


# ---- no room ----

@pytest.fixture
def small(box, host_root):
    """A state folder of 256 kB, in the mount namespace of the tests."""
    with harness.small_folder(box.world, box.identity) as home:
        yield Log(box, home)


def test_nothing_starts_without_room(small):
    assert small.run("true").exit == 0
    filler = harness.fill(small.home)
    # Other files that a start needs may be refused as long as the chain's reserve lasts.
    for _ in range(100):
        result = small.run("touch", "started")
        assert result.exit == 125 and not os.path.exists(small.box.path("started")), result
        if "audit log" in result.stderr:
            break
    assert "writing the audit log: No space left" in result.stderr and "fix:" in result.stderr
    os.unlink(filler)
    assert small.run("true").exit == 0
    assert small.verify().exit == 0


@pytest.mark.parametrize("identity", harness.SOME, indirect=True)
def test_a_full_disk_refuses_and_says_so(small):
    sid = small.detach()
    assert small.sandbox("exec", sid, "--", "true").exit == 0
    filler = harness.fill(small.home)
    assert small.sandbox("exec", sid, "--", "true").exit == 0, "the log has no reserve"
    refused, number = [], 0
    while len(refused) < 2 and number < 300:
        result = small.sandbox("exec", sid, "--", "touch", f"made-{number}")
        if result.exit == 125:
            assert "No space left" in result.stderr, result
            refused.append(number)
        number += 1
    assert len(refused) == 2, result
    for number in refused:
        assert not os.path.exists(small.box.path(f"made-{number}")), "it ran unrecorded"
    os.unlink(filler)
    assert small.sandbox("exec", sid, "--", "touch", "made").exit == 0
    assert os.path.exists(small.box.path("made"))
    small.sandbox("kill", sid)
    assert eventually(lambda: small.events(sid)[-1]["event"] in ("kill", "session.end"))
    gaps = [event["count"] for event in small.events(sid) if event["event"] == "log.gap"]
    assert gaps == [len(refused)]
    result = small.verify()
    assert result.exit == 0, result


def begin_further_file(log):
    """With small files: what the folder held just before a start began another one."""
    while True:
        before = {name: open(os.path.join(log.folder, name), "rb").read() for name in os.listdir(log.folder)}
        assert log.small_files("true").exit == 0
        if len(os.listdir(log.folder)) > len(before):
            return before


def test_no_room_for_a_further_file(small):
    """It is begun and stays empty; when there is room again, everything goes on in it."""
    assert small.run("true").exit == 0
    before = begin_further_file(small)
    for name in os.listdir(small.folder):
        if name not in before:
            os.unlink(os.path.join(small.folder, name))
    for name, content in before.items():
        with open(os.path.join(small.folder, name), "wb") as out:
            out.write(content)
    filler = harness.fill(small.home)
    result = small.small_files("true")
    assert result.exit == 125 and "No space left" in result.stderr, result
    os.unlink(filler)
    for _ in range(5):
        result = small.small_files("true")
        assert result.exit == 0, result
    assert small.verify().exit == 0
    assert small.events("--event", "log.continue")


@pytest.mark.parametrize("files", ["small_files", "run"])
def test_killed_before_a_further_file_was_known(log, files):
    """It has lines, but nothing says so: the next start goes on after them, whatever its own limit."""
    assert log.run("true").exit == 0
    before = begin_further_file(log)
    with open(os.path.join(log.folder, "chain.head"), "wb") as out:
        out.write(before["chain.head"])
    result = getattr(log, files)("true")
    assert result.exit == 0, result
    result = log.verify()
    assert result.exit == 0, result


def head_at(path, lines):
    """What chain.head says when the chain ends after that many lines of a file."""
    with open(path, "rb") as source:
        kept = source.read().splitlines(True)[:lines]
    segment = path.split(".")[-2]
    last = json.loads(kept[-1])
    return (f"{last['seq']:020} {last['hash']} {int(segment) if segment.isdigit() else 1:010} "
            f"{sum(map(len, kept)):020}\n")


def test_killed_at_a_further_file_is_no_tampering(log):
    """It has its own first line and one record, of which chain.head does not know yet. The control: one
    more record is told."""
    assert log.run("true").exit == 0
    for _ in range(2):
        before = begin_further_file(log)
    further, = set(os.listdir(log.folder)) - set(before)
    number = int(further.split(".")[1])
    last = os.path.join(log.folder, f"chain.{number - 1}.jsonl")
    further, head = os.path.join(log.folder, further), os.path.join(log.folder, "chain.head")
    with open(further) as source:
        lines = source.read().splitlines(True)[:2]
    with open(further, "w") as out:
        out.write("".join(lines))
    count = len(open(last).read().splitlines())
    for known, exit in ((count, 0), (count - 1, 1)):
        with open(head, "w") as out:
            out.write(head_at(last, known))
        result = log.verify()
        assert result.exit == exit and ("more records" in result.stdout) == bool(exit), result


def test_an_approval_that_cannot_be_recorded_is_none(small):
    """The person says yes, the disk says no: the file stays closed, and both are told."""
    data = dynamic.ground(small.box)
    environment = {"XDG_STATE_HOME": small.home}
    with dynamic.asking(small.box, ["cat", f"{data}/a.txt", f"{data}/b.txt"],
                        env=environment) as session, session.watch() as control:
        first = dynamic.question(control)
        approve = {"cmd": "cmd.approve", "id": first["id"], "scope": "session"}
        filler = harness.fill(small.home)
        reply = dynamic.answer(control, approve)
        assert "error" in reply and "audit log" in reply["error"]["message"], reply
        os.unlink(filler)
        second = dynamic.question(control)
        assert dynamic.answer(control, {**approve, "id": second["id"]}) == {"ok": True}
        code, out, err = session.result()
    assert (code, out) == (1, "content of b\n"), (code, out, err)
    assert "audit log" in err, err
    decided = [event for event in small.events(session.sid) if event["event"] == "decision"]
    assert [event["path"] for event in decided if event["decision"] == "allow"] == [f"{data}/b.txt"]
    assert [event["count"] for event in small.events(session.sid) if event["event"] == "log.gap"]
    assert small.verify().exit == 0


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_no_mode_shows_it(log, session, mode):
    """The gate hides the folder as the static view does, without a question."""
    result = log.sandbox("run", "--mode", mode, "--", "sh", "-c",
                         f"cat {log.chain}; ls {log.folder}; ls {log.home}/sandbox; echo x > {log.chain}")
    assert result.stdout == "", result
    assert log.verify().exit == 0
