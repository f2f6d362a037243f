"""E1-E4: the terminal of the person who started the sandbox."""

import os
import pty
import select

import pytest

from rows import Row, check_control, refuses, table, varies

pytestmark = pytest.mark.escape

# EIO: the host has dev.tty.legacy_tiocsti = 0.
INJECTION = [
    Row(f"{attempt}.{mode}", [attempt], {"EPERM", "ENXIO", "ENOTTY", "ENOENT"}, varies("EIO"),
        tty=True, options=("--tty", mode))
    for attempt in ("E1.stdin", "E1.high", "E1.tty")
    for mode in ("auto", "always", "never")
] + [
    Row("E1.own", ["E1.own"], {"EPERM"}, varies("EIO"), tty=True),
    # control: the host refuses (ENOTTY): a pty is no virtual console.
    Row("E2", ["E2"], {"EPERM", "ENOTTY"}, refuses("ENOTTY"), tty=True),
    Row("E2.high", ["E2.high"], {"EPERM", "ENOTTY"}, refuses("ENOTTY"), tty=True),
]


@table(INJECTION)
def test_terminal_injection(box, row):
    check_control(box, row)
    result = box.run([box.attempt, *row.argv], tty=True, options=row.options)
    word, errno = result.verdict()
    assert result.typed == "", f"{row.id}: {result.typed!r} was pushed into the host's terminal"
    assert word == "DENIED" and errno in row.deny, f"{row.id}: {word} {errno} {result}"


def host_terminal(box):
    master, slave = pty.openpty()
    box.identity.own(os.ttyname(slave))
    return master, slave, os.ttyname(slave)


def arrived(master):
    ready, _, _ = select.select([master], [], [], 0.05)
    return os.read(master, 4096) if ready else b""


@pytest.mark.parametrize("attempt", ["E3", "E4"])
def test_other_terminal(box, attempt):
    """E3, E4: a terminal of the host that is not even ours."""
    master, slave, name = host_terminal(box)
    try:
        control = box.plain([box.attempt, attempt, name, "MARK"])
        assert control.verdict()[0] == "OPEN" and b"MARK" in arrived(master), control
        result = box.run([box.attempt, attempt, name, "MARK"])
        assert arrived(master) == b"", f"{attempt}: wrote to a terminal of the host: {result}"
        assert result.verdict() in [("DENIED", "ENOENT"), ("DENIED", "EACCES")], result
    finally:
        os.close(master)
        os.close(slave)


def test_dev_tty_without_terminal(box):
    """E4: with --tty never there is no terminal behind /dev/tty."""
    control = box.plain([box.attempt, "E4", "/dev/tty", "MARK"], tty=True)
    assert "MARK" in control.stdout, control
    result = box.run([box.attempt, "E4", "/dev/tty", "\033[2JMARK"], tty=True,
                     options=("--tty", "never"))
    assert "MARK" not in result.stdout, result
    assert result.verdict()[0] == "DENIED", result


def test_terminal_settings_survive(box):
    """E4: a workload that switches echo off does not leave the person's terminal mute."""
    control = box.plain([box.attempt, "E4.termios"], tty=True)
    assert control.verdict()[0] == "OPEN" and not control.terminal_restored, control
    result = box.run([box.attempt, "E4.termios"], tty=True)
    assert result.terminal_restored, result


@pytest.mark.works
def test_terminal_works_inside(box):
    """Without this the refusals above could just mean that there is no terminal at all."""
    result = box.run(["sh", "-c", "test -t 0 && test -t 1 && echo on-a-terminal"], tty=True)
    assert "on-a-terminal" in result.stdout, result


def test_console_devices(box):
    """E2, E3: no virtual console and no serial line in the view."""
    result = box.run(["sh", "-c", "ls -d /dev/tty0 /dev/tty1 /dev/console /dev/ttyS0 /dev/vcs"])
    assert "/dev/" not in result.stdout, result
