"""Several sessions at one terminal: its modes are the user's again when they are over, in whichever order."""

import contextlib
import os
import shlex
import signal
import termios
import time

import pytest

from harness import children
from sessions import eventually, listed, sandbox
from test_prompt import ASKED, data, identity, press, side_by_side  # noqa: F401: fixtures
from test_tty import Terminal, outer  # noqa: F401: fixture


@pytest.fixture(autouse=True)
def tidied(box):
    """The next session removes what killed ones have left."""
    yield
    eventually(lambda: not listed(box))
    sandbox(box, "run", "--static", "--", "true")


def is_raw(terminal):
    return not terminal.settings()[3] & (termios.ICANON | termios.ECHO | termios.ISIG)


def monitors(box, word):
    """The sandboxes that run a command with this word."""
    return [pid for pid, line in children().items()
            if line.startswith(box.world.command) and word in line]


def start_both(outer, box):  # noqa: F811
    """Two of one job; each ends when there is a file of its name. Gives the modes before."""
    before = outer.settings()
    run = shlex.join([box.world.command, "run", "--static", "--", "sh", "-c"])
    words = [f"{run} 'echo {name} is''there; until [ -e {name} ]; do sleep 0.05; done' </dev/tty & "
             for name in ("first", "second")]
    outer.sendline(f"({words[0]} until [ -e go ]; do sleep 0.05; done; {words[1]} wait; echo all''over)")
    outer.see("first isthere")
    assert eventually(lambda: is_raw(outer))
    box.identity.file(box.path("go"), "")
    outer.see("second isthere")
    return before


def send(box, name, number):
    """The first of them may end the others."""
    for pid in monitors(box, name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def end_one(box, name, how):
    if how == "killed":
        send(box, name, signal.SIGKILL)
    else:
        box.identity.file(box.path(name), "")
    assert eventually(lambda: not monitors(box, name), 10)  # its last output waits for a question

@pytest.mark.parametrize("how", [("ended", "ended"), ("killed", "ended"), ("killed", "terminated")], ids="-".join)
@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")], ids="-".join)
def test_every_order(outer, box, order, how):  # noqa: F811
    before = start_both(outer, box)
    end_one(box, order[0], how[0])
    if how[1] == "terminated":
        send(box, order[1], signal.SIGTERM)
    else:
        end_one(box, order[1], how[1])
    outer.see("allover")
    outer.outer_prompt()
    assert outer.settings() == before


def test_the_next_one_repairs_what_a_killed_one_left(outer, box):  # noqa: F811
    before = start_both(outer, box)
    for name in ("first", "second"):
        end_one(box, name, "killed")
    outer.see("allover")
    assert is_raw(outer)  # the control: nobody was left who could
    outer.send(f"{box.world.command} run --static -- stty -a; echo re''paired\n")
    shown = outer.see("repaired").decode()
    assert {"icanon", "isig"} <= set(shown.split()), shown
    outer.outer_prompt()
    assert outer.settings() == before


def test_modes_that_were_raw_before_stay(outer, box):  # noqa: F811
    """It is what a session found that comes back, not what an earlier one had found."""
    run = f"{box.world.command} run --static -- true"
    outer.sendline(f"{run}; stty raw; {run}; stty -a | tr -d '\\n'; stty sane; echo")
    outer.see(" -icanon")
    outer.outer_prompt()


def test_who_remains_has_it_raw(outer, box):  # noqa: F811
    """The end of another one is no reason for keys to be echoed, or to wait for the end of a line."""
    start_both(outer, box)
    end_one(box, "second", "ended")
    assert eventually(lambda: is_raw(outer))
    time.sleep(0.3)
    assert is_raw(outer)
    end_one(box, "first", "ended")
    outer.see("allover")


def test_a_key_for_one_does_not_hold_up_the_other(outer, box):  # noqa: F811
    """Both wake up for it, and who comes too late must not wait for the next."""
    start_both(outer, box)
    for _ in range(10):
        outer.send("x")
        time.sleep(0.05)
    for name in ("first", "second"):
        end_one(box, name, "ended")
    outer.see("allover")


def test_second_one_has_usual_modes_inside(outer, box):  # noqa: F811
    """Not the raw ones of the first."""
    run = shlex.join([box.world.command, "run", "--static", "--"])
    outer.sendline(f"({run} sleep 2 </dev/tty & sleep 1; {run} stty -a </dev/tty; wait; echo all''over)")
    shown = outer.see("allover").decode()
    assert {"icanon", "echo", "opost"} <= set(shown.partition("speed")[2].split()), shown


def test_background_job_of_a_shell_that_edits_its_line(box):
    """The modes of its line editor are not the user's: neither inside nor when it is over."""
    terminal = Terminal(box, ["bash", "--norc", "-i"])
    try:
        terminal.outer_prompt()
        before = terminal.shows("stty -a")
        terminal.sendline(f"{box.world.command} run --static -- sh -c 'sleep 1; stty -a; read x' &")
        terminal.see(" icanon")
        time.sleep(0.5)
        terminal.sendline("fg")
        time.sleep(0.8)
        terminal.sendline("line")
        terminal.outer_prompt()
        terminal.sendline("")
        terminal.outer_prompt()
        assert terminal.shows("stty -a").split() == before.split()
    finally:
        terminal.end()


def test_both_stopped_and_back(outer, box):  # noqa: F811
    before = start_both(outer, box)
    for _ in range(2):
        outer.send("\x1a")
        outer.see("Stopped")
        outer.outer_prompt()
        time.sleep(0.5)  # bash waits for its own child only
        assert outer.settings() == before
        outer.sendline("fg")
        assert eventually(lambda: is_raw(outer))
    for name in ("first", "second"):
        end_one(box, name, "ended")
    outer.see("allover")
    outer.outer_prompt()
    assert outer.settings() == before


def test_question_beside_a_relay_that_ends(outer, box, data):  # noqa: F811
    """As under make -j: one has the keyboard, another one asks."""
    before = outer.settings()
    run = shlex.join([box.world.command, "run", "--mode", "dynamic", "--", "sh", "-c"])
    outer.sendline(f"({run} 'until [ -e first ]; do sleep 0.05; done' </dev/tty & "
                   f"{run} 'sleep 1; cat {data}/a.txt' </dev/null; wait; echo all''over)")
    outer.see(ASKED)
    end_one(box, "first", "ended")
    press(outer, "d")
    time.sleep(1)
    outer.send("d")  # if it was asked again meanwhile
    outer.see("allover")
    outer.outer_prompt()
    assert outer.settings() == before


@pytest.mark.parametrize("end", ["\003", "hangup"])
def test_two_at_a_terminal_are_interrupted(outer, box, data, end):  # noqa: F811
    before = outer.settings()
    side_by_side(outer, box, f"cat {data}/a.txt", f"cat {data}/b.txt")
    outer.see(ASKED)
    if end == "hangup":
        outer.hang_up()
    else:
        outer.send(end)
        outer.see(ASKED)
        outer.send(end)
        outer.see("allover")
        outer.outer_prompt()
        assert outer.settings() == before
    assert eventually(lambda: not listed(box))


def test_question_of_a_stopped_session(outer, box, data):  # noqa: F811
    """Does not keep the terminal from others, nor raw; and is asked again afterwards."""
    run = shlex.join([box.world.command, "run", "--mode", "dynamic", "--", "sh", "-c"])
    before = outer.settings()
    outer.sendline(f"{run} 'cat {data}/a.txt & wait; echo e''nd' </dev/null")
    outer.see(ASKED)
    for pid in monitors(box, "a.txt"):
        os.kill(pid, signal.SIGTSTP)
    outer.see("Stopped")
    outer.outer_prompt()
    assert outer.settings() == before
    outer.sendline(f"{run} 'echo before; read x; echo got $x'")
    outer.see("before\r\n")
    outer.sendline("line")
    outer.see("got line")
    outer.outer_prompt()
    outer.sendline("fg")
    outer.see(ASKED)
    press(outer, "s")
    outer.see("content of a")
    outer.outer_prompt()
    assert outer.settings() == before
