"""The shape of a row of the corpus, and the one function that judges it.

A row says what is attempted, which refusals are right inside, and what the same attempt answers
without the sandbox. A control that does not succeed must say so here, with the errno.
"""

import contextlib
import dataclasses
import os
import time
from typing import Callable, Dict, Optional, Sequence

import pytest

OPEN = "OPEN"

# Groups of right answers.
HIDDEN = {"EACCES", "ENOENT"}
NOT_ALLOWED = {"EPERM", "ENOSYS", "EACCES"}
READ_ONLY = {"EROFS", "EACCES", "EPERM", "ENOENT", "EBUSY", "EXDEV", "ENOTDIR", "EEXIST", "EISDIR"}
GONE = {"ESRCH", "EPERM", "ENOSYS", "EACCES", "ENOENT"}


def refuses(*errnos, root=None, user=None):
    """Control: the host refuses too, with one of these. Named identities only, if named."""
    if errnos:
        return {"root": set(errnos), "user": set(errnos)}
    return {"root": set(root or [OPEN]), "user": set(user or [OPEN])}


def varies(*errnos):
    """Control: succeeds, or the host's settings refuse with one of these."""
    return {"root": {OPEN, *errnos}, "user": {OPEN, *errnos}}


SUCCEEDS = refuses(root=[OPEN], user=[OPEN])


@dataclasses.dataclass
class Row:
    id: str
    argv: Sequence[str]  # of the attempt program; {names} are filled in
    deny: set = dataclasses.field(default_factory=lambda: set(HIDDEN))
    control: Optional[Dict[str, set]] = dataclasses.field(default_factory=lambda: SUCCEEDS)
    no_control: str = ""  # why the control cannot be run at all
    # By identity: the control runs below this command (in a namespace of its own).
    before: Dict[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    ground: Optional[Callable] = None  # called with the box; may return more {names}
    unchanged: Sequence[str] = ()  # paths of the host that must be the same afterwards
    options: Sequence[str] = ()
    cwd: Optional[str] = None
    tty: bool = False
    only: Sequence[str] = ("root", "user")


def table(rows):
    """Parametrises a test with rows; the id of the test is the row."""
    return pytest.mark.parametrize("row", rows, ids=lambda row: row.id)


def names_of(box):
    return {
        "home": box.identity.home, "project": box.project, "canary": box.canary,
        "secret": box.home(".ssh/id_ed25519"), "base": box.world.base, "uid": box.identity.uid,
        "gid": box.identity.gid, "runtime": box.identity.runtime, "state": box.identity.state,
        "attempt": box.attempt,
    }


def lay_ground(box, row):
    names = names_of(box)
    if row.ground:
        names.update(row.ground(box) or {})
    return names


def snapshot(path):
    """Enough of a path to see that it was touched."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    content = None
    if os.path.islink(path):
        content = os.readlink(path)
    elif os.path.isdir(path):
        content = sorted((name, snapshot(os.path.join(path, name))) for name in os.listdir(path))
    elif os.path.isfile(path):
        with open(path, "rb") as source:
            content = source.read()
    return status.st_mode, status.st_ino if not os.path.isdir(path) else 0, content


def fill(words, names):
    return [word.format(**names) for word in words]


def check_control(box, row):
    """Runs the attempt without the sandbox. Returns why it proves nothing, or None."""
    if row.control is None:
        assert row.no_control, f"{row.id}: a row without a control must say why"
        return None
    names = lay_ground(box, row)
    result = box.plain([box.attempt, *fill(row.argv, names)], tty=row.tty,
                       before=row.before.get(box.identity.name, ()),
                       cwd=fill([row.cwd], names)[0] if row.cwd else None)
    word, rest = result.verdict()
    if word == "UNSUPPORTED":
        return rest
    got = OPEN if word == "OPEN" else rest
    expected = row.control[box.identity.name]
    assert got in expected, f"control of {row.id} answered {word} {rest}, not {sorted(expected)}"
    return None


def judge(box, row):
    """Control, then the attempt inside on fresh ground; the answer must be a listed refusal."""
    if box.identity.name not in row.only:
        pytest.skip(f"{row.id} is for {row.only[0]} only")
    unproven = check_control(box, row)
    box.plant()
    names = lay_ground(box, row)
    kept = {path: snapshot(path) for path in fill(row.unchanged, names)}
    result = box.run([box.attempt, *fill(row.argv, names)], tty=row.tty, options=row.options,
                     cwd=fill([row.cwd], names)[0] if row.cwd else None)
    word, rest = result.verdict()
    if unproven and word == "UNSUPPORTED":
        pytest.skip(f"{row.id}: this host cannot: {unproven}")
    assert word == "DENIED", f"{row.id}: {word} {rest}\n{result}"
    assert rest in row.deny, f"{row.id}: refused by {rest}, expected {sorted(row.deny)}\n{result}"
    for path, was in kept.items():
        assert snapshot(path) == was, f"{row.id}: {path} changed on the host"
    if unproven:
        pytest.skip(f"{row.id}: refused inside, but this host cannot show the control: {unproven}")
    return result


@dataclasses.dataclass
class ShellRow:
    """Several steps at once. It got out if `{goal}` holds PAYLOAD on the host, or if the output
    shows the canary."""

    id: str
    script: str
    goal: str = ""  # a path of the host, or empty: the canary in the output
    ground: Optional[Callable] = None
    cwd: Optional[str] = None
    control: bool = True
    no_control: str = ""
    unchanged: Sequence[str] = ()
    options: Sequence[str] = ()


def reached_goal(box, row, names, result):
    if not row.goal:
        return box.canary in result.stdout
    path = row.goal.format(**names)
    try:
        with open(path) as source:
            return "PAYLOAD" in source.read()
    except OSError:
        return False


def judge_shell(box, row):
    def once(runner, **more):
        box.plant()
        names = lay_ground(box, row)
        kept = {path: snapshot(path) for path in fill(row.unchanged, names)}
        # Not format(): scripts are full of braces.
        script = row.script
        for name, value in names.items():
            script = script.replace("{%s}" % name, str(value))
        result = runner(["sh", "-c", script], cwd=row.cwd.format(**names) if row.cwd else None,
                        **more)
        return reached_goal(box, row, names, result), result, kept

    if row.control:
        opened, result, _ = once(box.plain)
        assert opened, f"control of {row.id} did not get there: {result}"
    else:
        assert row.no_control, f"{row.id}: a row without a control must say why"
    opened, result, kept = once(box.run, may_leak=True, options=row.options)
    assert not opened, f"{row.id}: got out: {result}"
    for path, was in kept.items():
        assert snapshot(path) == was, f"{row.id}: {path} changed on the host: {result}"
    box.plant()
    return result


def eventually(condition, seconds=10):
    """Waits until it holds; the machine may be busy. False if it never does."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


class Live:
    """A shell inside a running sandbox, asked line by line, while the test changes the host."""

    def __init__(self, box, options=(), inside=True, kept=False):
        """kept: go on only when the keeper watches, so that changes are answered, not compared."""
        import subprocess
        self.box, self.last_words = box, ""
        log = os.path.join(box.identity.runtime, f"live-{id(self)}.log")
        if kept:
            options = (*options, "--log", log, "--log-level", "debug")
        start = box.start if inside else lambda argv, options, **more: box.popen(argv, **more)
        self.process = start(["sh"], options=options, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.ask("echo ready") == "ready", "the sandbox did not start"
        if kept:
            assert eventually(lambda: '"kept"' in open(log).read()), "there is no keeper"
            os.unlink(log)

    def ask(self, command):
        try:
            self.process.stdin.write(f"{{ {command}\n}} 2>&1; echo; echo END-OF-ANSWER\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"the session has ended: {self.last_words}") from None
        lines = []
        for line in self.process.stdout:
            if line.strip() == "END-OF-ANSWER":
                break
            lines.append(line)
        else:
            self.last_words = "".join(lines)
        return "".join(lines).strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(5)
        except Exception:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
