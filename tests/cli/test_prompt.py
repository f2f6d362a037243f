"""The prompt on the terminal of `sandbox run`, driven by a real terminal."""

import os
import re
import shlex
import signal
import termios
import time

import pexpect
import pytest

import dynamic
import harness
from sessions import eventually, listed, sandbox
from test_tty import Terminal, exit_status, outer  # noqa: F401: fixture

ASKED = "One key, within "
QUIET = 0.8  # more than the time in which keys do not count, which begins when the prompt was written


@pytest.fixture(params=["user"])
def identity(request, world):
    """A terminal does not know who sits at it: one of them is enough, but for the first test."""
    try:
        return world.identity(request.param)
    except harness.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def data(box):
    return dynamic.ground(box)


@pytest.fixture
def inside(box):
    """Starts a shell script in a session that asks, on a terminal of its own."""
    made = []

    def start(script, options=(), **more):
        made.append(Terminal(box, dynamic.wrap(box, ["sh", "-c", script], options), **more))
        return made[-1]

    yield start
    for terminal in made:
        terminal.end()


def press(terminal, key):
    """Like a person: reads first."""
    time.sleep(QUIET)
    terminal.send(key)


def whole(shown):
    """With names in one piece that were broken at the end of a line."""
    return shown.replace("\r\n    | ", "")


def see_question(terminal, path):
    """Waits for the question; gives its text, without sequences and line breaks of the screen."""
    shown = (terminal.see(ASKED)).decode()
    question = whole(re.sub(r"\x1b\[[0-9;?!]*[a-zA-Z]", "", shown.rpartition("asks ")[2]))
    assert path in question, shown
    return question


# ---- answers ----


@pytest.mark.parametrize("identity", ["root", "user"], indirect=True)
def test_keys(inside, data):
    """Each answer, one question after the other."""
    terminal = inside(f"for i in 1 2 3 4; do cat {data}/a.txt; done; cat {data}/b.txt; "
                      f"cat {data}/deep/down/c.txt; echo end")
    question = see_question(terminal, f"{data}/a.txt")
    assert "/cat wants to" in question and f"in {os.path.dirname(data)}/project" in question
    assert f"all but secrets in {data}:" in question
    for key, output in (("d", "Permission denied"), ("o", "content of a"), ("s", "content of a")):
        press(terminal, key)
        terminal.see(output)
        if key != "s":
            see_question(terminal, f"{data}/a.txt")
    terminal.see("content of a")  # once more, without a question
    see_question(terminal, f"{data}/b.txt")
    press(terminal, "t")
    terminal.see("content of b")
    terminal.see("content of c")
    terminal.see("end")
    assert exit_status(terminal) == 0


@pytest.mark.parametrize("identity", ["root", "user"], indirect=True)
def test_what_was_written_before_is_seen_before(inside, box, data):
    """Also if the monitor was late, and more has been written than it copies at a time."""
    terminal = inside("until [ -e go ]; do sleep 0.05; done; seq -s , 1 2500; echo last words; "
                      f"cat {data}/a.txt; echo end")
    assert eventually(lambda: listed(box))
    os.kill(terminal.pid, signal.SIGSTOP)
    try:
        box.identity.file(box.path("go"), "")
        time.sleep(1)  # it has written, and waits
    finally:
        os.kill(terminal.pid, signal.SIGCONT)
    shown = terminal.see(ASKED)
    assert b",2500" in shown and b"last words" in shown, shown
    press(terminal, "d")
    terminal.see("end")


def test_always_is_kept(inside, box, data):
    terminal = inside(f"cat {data}/a.txt")
    see_question(terminal, f"{data}/a.txt")
    press(terminal, "u")
    terminal.see("content of a")
    assert exit_status(terminal) == 0
    kept = sandbox(box, "policy", "grants").stdout
    assert re.search(rf"by uid {box.identity.uid} at /dev/pts/[0-9]+, ", kept), kept
    assert dynamic.run(box, ["cat", f"{data}/a.txt"]).stdout == "content of a\n"


def test_deny_everything_else(inside, data):
    terminal = inside(f"cat {data}/a.txt; cat {data}/b.txt; echo end")
    see_question(terminal, f"{data}/a.txt")
    press(terminal, "N")
    terminal.see("end")
    assert ASKED.encode() not in terminal.before


def test_questions_one_after_the_other(inside, data):
    terminal = inside(f"cat {data}/a.txt & cat {data}/b.txt & wait; echo end")
    seen = set()
    for _ in range(2):
        terminal.see(ASKED)
        seen |= set(re.findall(rb"/([ab])\.txt\x1b", terminal.before))
        press(terminal, "s")
    terminal.see("end")
    assert seen == {b"a", b"b"}


def test_settings_come_back(outer, box, data):  # noqa: F811
    """After an answer, and after a kill while it is asked."""
    outer.sendline(f"S={shlex.quote(box.world.command)}")
    outer.outer_prompt()
    before = outer.shows("stty -a")
    outer.sendline(f"$S run --mode dynamic -- cat {data}/a.txt")
    outer.see(ASKED)
    press(outer, "d")
    outer.outer_prompt()
    assert outer.shows("stty -a") == before
    outer.sendline(f"$S run --mode dynamic -- cat {data}/a.txt")
    outer.see(ASKED)
    for entry in listed(box):
        sandbox(box, "kill", "--now", entry["sid"])
    outer.outer_prompt()
    assert outer.shows("stty -a") == before


# ---- keys that were not meant for it ----


def test_typed_ahead_does_not_answer(inside, data):
    """E6: what was typed before the question was visible goes nowhere."""
    terminal = inside(f"sleep 0.4; cat {data}/a.txt; echo end; read line; echo got $line")
    terminal.send("sssstttt")
    see_question(terminal, f"{data}/a.txt")
    time.sleep(QUIET)
    with pytest.raises(pexpect.TIMEOUT):
        terminal.expect_exact("content of a", timeout=0.5)
    press(terminal, "d")
    terminal.see("end")


def test_keys_within_the_quiet_time_do_not_answer(inside, data):
    terminal = inside(f"cat {data}/a.txt; echo end")
    see_question(terminal, f"{data}/a.txt")
    for _ in range(10):  # for longer than the time itself: each key starts it anew
        terminal.send("s")
        time.sleep(0.08)
    with pytest.raises(pexpect.TIMEOUT):
        terminal.expect_exact("content of a", timeout=0.5)
    press(terminal, "d")
    terminal.see("Permission denied")


def test_pasted_bytes_do_not_answer(inside, data):
    """Nor keys that send sequences, a mouse, or keys without a meaning."""
    terminal = inside(f"cat {data}/a.txt; echo end")
    see_question(terminal, f"{data}/a.txt")
    for pasted in ("ss", "s\r", "yes\r", "\x1b[A", "\x1b[<0;10;10M", "y", "\r"):
        press(terminal, pasted)
    with pytest.raises(pexpect.TIMEOUT):
        terminal.expect_exact("content of a", timeout=0.3)
    press(terminal, "s")
    terminal.see("content of a")


def test_late_report_of_the_terminal_does_not_answer(inside, data):
    """A program asks the terminal for its title, which it had set to "s"; the answer comes over a
    slow line, byte by byte, when the question is there."""
    terminal = inside(f"cat {data}/a.txt; echo end")
    see_question(terminal, f"{data}/a.txt")
    time.sleep(QUIET)
    for byte in "\x1b]ls\x1b\\":
        terminal.send(byte)
        time.sleep(0.05)
    with pytest.raises(pexpect.TIMEOUT):
        terminal.expect_exact("content of a", timeout=0.3)
    press(terminal, "d")
    terminal.see("Permission denied")


def test_question_that_is_not_on_the_screen_yet_is_not_answered(inside, box, data):
    """A terminal that takes no output: a frozen window, a line that is down."""
    terminal = inside(f"echo ready; sleep 1; cat {data}/a.txt > got; echo end")
    terminal.see("ready")
    screen = os.open(f"/proc/{terminal.pid}/fd/0", os.O_RDWR | os.O_NOCTTY)
    termios.tcflow(screen, termios.TCOOFF)
    assert eventually(lambda: [entry for entry in listed(box) if entry["pending"]])
    time.sleep(1 + QUIET)  # it waits for the screen no longer than a second
    for _ in range(2):
        press(terminal, "s")
    time.sleep(0.5)
    with open(box.path("got")) as source:
        assert source.read() == ""
    termios.tcflow(screen, termios.TCOON)
    os.close(screen)
    terminal.see(ASKED)
    press(terminal, "s")
    terminal.see("end")
    with open(box.path("got")) as source:
        assert source.read() == "content of a\n"


def test_screen_that_stands_still_does_not_stop_the_session(inside, box):
    """In the middle of what it prints: it is still there for everybody else."""
    inside("yes flood")
    time.sleep(1)
    (entry,) = listed(box)
    with dynamic.Watcher(box, entry["sid"]) as control:
        assert control.call({"cmd": "cmd.pending"})["requests"] == []


def test_answer_does_not_reach_the_program(inside, data):
    terminal = inside(f"cat {data}/a.txt; echo end; read line; echo [$line]")
    see_question(terminal, f"{data}/a.txt")
    press(terminal, "s")
    terminal.see("end")
    terminal.sendline("typed")
    terminal.see("[typed]")


def test_workload_cannot_answer(inside, box, data):
    """E5, E6: neither by its own terminal nor by printing what a terminal would answer."""
    script = (f"(sleep 0.1; for i in 1 2 3 4 5 6 7 8; do printf 's\\033[c\\033[6n' > /dev/tty; "
              f"sleep 0.1; done) & cat {data}/a.txt; echo end; wait")
    terminal = inside(script)
    see_question(terminal, f"{data}/a.txt")
    with pytest.raises(pexpect.TIMEOUT):
        terminal.expect_exact("content of a", timeout=1.2)
    press(terminal, "d")
    terminal.see("Permission denied")


# ---- what the workload prints ----


def test_output_waits(inside, data):
    """E5: nothing of it reaches the screen while the question is there."""
    loop = "while :; do printf '\\r\\033[2K\\033[H FAKE Allow? [y/N] '; done"
    terminal = inside(f"({loop}) & p=$!; sleep 0.2; cat {data}/a.txt; kill $p; echo end")
    terminal.see("FAKE")  # the control: it does paint
    see_question(terminal, f"{data}/a.txt")
    with pytest.raises(pexpect.TIMEOUT):
        terminal.expect_exact("FAKE", timeout=0.8)
    press(terminal, "s")
    terminal.see("FAKE")  # and paints on afterwards
    terminal.see("end")


def test_warnings_wait_for_the_answer(inside, box, data):
    """The command chooses what they name: they would push the question away, and look like another."""
    command = shlex.join(dynamic.wrap(box, ["sh", "-c", f"(sleep 1; touch {data}/new) & cat {data}/a.txt; wait"]))
    terminal = Terminal(box, ["sh", "-c", f"exec {command} </dev/null"])
    try:
        see_question(terminal, f"{data}/a.txt")
        with pytest.raises(pexpect.TIMEOUT):
            terminal.expect_exact("warning", timeout=2.5)
        press(terminal, "s")
        terminal.see(f"may not write to {data}/new")
        exit_status(terminal)
    finally:
        terminal.end()


def test_half_a_sequence_does_not_hide_the_question(inside, data):
    """What could swallow it or make it unreadable is ended before it."""
    script = f"printf '\\033[8m\\033(0\\033[?25l\\033]0;title'; cat {data}/a.txt; echo end"
    terminal = inside(script)
    terminal.see("\033]0;title")
    shown = terminal.see("asks ").decode()
    assert shown.startswith("\030\033\\"), ascii(shown)
    assert "\033[!p" in shown and "\033(B" in shown and "\033[?25h" in shown
    terminal.see(ASKED)
    press(terminal, "s")
    terminal.see("\033[?25l")  # as the program wanted it
    terminal.see("content of a")


def test_terminal_of_unknown_kind(box, data):
    """Nothing but text, unless the program itself sends sequences, as one that makes all invisible."""
    script = f"cat {data}/a.txt; printf '\\033[8m'; cat {data}/b.txt; echo end"
    terminal = Terminal(box, ["env", "-u", "TERM", *dynamic.wrap(box, ["sh", "-c", script])])
    assert b"\x1b" not in terminal.see(ASKED)
    press(terminal, "d")
    terminal.see("\x1b[8m")
    assert b"\x1b[0m" in terminal.see(ASKED)
    press(terminal, "d")
    terminal.see("end")
    terminal.end()


def test_keys_that_are_told_as_sequences(inside, data):
    """A terminal that was asked to tell every key as a sequence is asked not to, meanwhile."""
    terminal = inside(f"printf '\\033[>4;2m\\033[>8u'; cat {data}/a.txt; echo end")
    shown = terminal.see(ASKED)
    _, _, after = shown.partition(b"\x1b[>8u")
    assert b"\x1b[=0;1u" in after and b"\x1b[>4;0m" in after, shown
    press(terminal, "s")
    back = terminal.see("content of a")
    assert b"\x1b[=8;1u" in back and b"\x1b[>4;2m" in back, back
    terminal.see("end")


def test_full_screen_program_is_drawn_anew(inside, data):
    """It has the alternate screen, and is told of a new size after the answer."""
    script = (f"trap 'echo redraw $(stty size)' WINCH; printf '\\033[?1049h\\033[?1000h'; "
              f"cat {data}/a.txt; for i in 1 2 3 4 5 6 7 8; do sleep 0.1; done; "
              "printf '\\033[?1049l'; echo end")
    terminal = inside(script, rows=30, columns=90)
    see_question(terminal, f"{data}/a.txt")
    press(terminal, "s")
    terminal.see("\033[?1000h")
    terminal.see("redraw 30 90")
    terminal.see("end")


def test_resize_draws_it_again(inside, data):
    terminal = inside(f"cat {data}/a.txt; stty size; echo end")
    see_question(terminal, f"{data}/a.txt")
    terminal.setwinsize(40, 100)
    see_question(terminal, f"{data}/a.txt")
    press(terminal, "s")
    terminal.see("40 100")


@pytest.mark.parametrize("rows, columns", [(6, 80), (24, 12)])
@pytest.mark.parametrize("supervisor", ["run", "watch"])
def test_what_does_not_fit_on_the_screen_is_not_allowed(inside, box, data, rows, columns, supervisor):
    """What is asked for is above it, or broken where the command likes; it can be made larger."""
    script = f"cat {data}/a.txt && touch allowed"
    if supervisor == "run":
        refuses_and_allows(inside(script, rows=rows, columns=columns), box)
        return
    with dynamic.asking(box, ["sh", "-c", script]):
        terminal = Terminal(box, [box.world.command, "watch"], rows=rows, columns=columns)
        refuses_and_allows(terminal, box)
        terminal.end()


def refuses_and_allows(terminal, box):
    terminal.see("too small")
    terminal.see(ASKED)
    press(terminal, "s")
    time.sleep(0.5)
    assert not os.path.exists(box.path("allowed"))
    terminal.setwinsize(24, 80)
    time.sleep(1.5)  # watch looks once a second
    press(terminal, "s")
    assert eventually(lambda: os.path.exists(box.path("allowed")))


def test_interrupt(inside, data):
    """Ctrl-C denies and reaches the program; it is never too early for it."""
    terminal = inside(f"trap 'echo interrupted' INT; cat {data}/a.txt; echo end")
    see_question(terminal, f"{data}/a.txt")
    terminal.sendintr()
    terminal.see("interrupted")
    terminal.see("end")
    assert exit_status(terminal) == 0


def test_hang_up(inside, box, data):
    terminal = inside(f"cat {data}/a.txt; echo end")
    see_question(terminal, f"{data}/a.txt")
    terminal.hang_up()
    assert eventually(lambda: not listed(box)), "the session goes on"


def test_withdrawn(inside, data):
    """E124: whoever asked is gone, and so is the question."""
    terminal = inside(f"timeout -s KILL 0.5 cat {data}/a.txt; cat {data}/b.txt; echo end")
    see_question(terminal, f"{data}/a.txt")
    terminal.see("withdrawn")
    see_question(terminal, f"{data}/b.txt")
    press(terminal, "s")
    terminal.see("content of b")


def test_answered_elsewhere(inside, box, data):
    terminal = inside(f"cat {data}/a.txt; echo end")
    see_question(terminal, f"{data}/a.txt")
    (entry,) = listed(box)
    with dynamic.Watcher(box, entry["sid"]) as control:
        asked = control.call({"cmd": "cmd.pending"})["requests"][0]
        control.call({"cmd": "cmd.approve", "id": asked["id"], "scope": "session"})
    terminal.see("allowed by uid")
    terminal.see("content of a")


def test_timeout(inside, box, data):
    dynamic.write_policy(box, "prompt: {timeout_seconds: 1}\n")
    terminal = inside(f"cat {data}/a.txt; echo end")
    see_question(terminal, f"{data}/a.txt")
    terminal.see("denied: nobody has answered in time")
    terminal.see("end")
    terminal.see("nobody answered in time")


# ---- several sessions at one terminal ----


def side_by_side(outer, box, *scripts):  # noqa: F811
    """Sessions of one job, each with the keyboard: none of them is in the background."""
    run = shlex.join([box.world.command, "run", "--mode", "dynamic", "--", "sh", "-c"])
    words = " ".join(f"{run} {shlex.quote(script)} </dev/tty &" for script in scripts)
    outer.sendline(f"({words} wait; echo all''over)")


def test_questions_of_two_sessions_take_turns(outer, box, data):  # noqa: F811
    """The answer is for the question that is shown, and the other one comes after it."""
    side_by_side(outer, box, f"cat {data}/a.txt", f"cat {data}/b.txt")
    shown = outer.see(ASKED).decode().rpartition(" asks ")[2]  # without the echo of the line
    first = "a" if f"{data}/a.txt" in shown else "b"
    other = "b" if first == "a" else "a"
    assert f"{data}/{other}.txt" not in shown
    with pytest.raises(pexpect.TIMEOUT):
        outer.expect_exact(" asks ", timeout=1)
    press(outer, "s")
    shown = outer.see(ASKED).decode().rpartition(" asks ")[2]
    assert f"{data}/{other}.txt" in shown and f"{data}/{first}.txt" not in shown
    press(outer, "d")
    outer.see("allover")
    assert b"Permission denied" in outer.before and f"content of {other}".encode() not in outer.before
    outer.outer_prompt()
    assert " icanon" in outer.shows("stty -a")


def test_another_session_cannot_paint_over_a_question(outer, box, data):  # noqa: F811
    """E5 by way of a second session; nor does it get the key."""
    painting = "while sleep 0.05; do printf FAKE; test -e stop && break; done; rm stop"
    side_by_side(outer, box, painting, f"sleep 0.5; cat {data}/a.txt; touch stop")
    outer.see(ASKED)
    assert b"FAKE" in outer.before  # the control: it does paint
    with pytest.raises(pexpect.TIMEOUT):
        outer.expect_exact("FAKE", timeout=1.5)
    press(outer, "s")
    outer.see("content of a")
    outer.see("FAKE")  # and paints on afterwards
    outer.see("allover")


def test_the_end_of_another_session_cannot_paint_over_a_question(outer, box, data):  # noqa: F811
    """Neither by its last output nor by what we say about it, however long the question stands."""
    run = shlex.join(dynamic.wrap(box, ["sh", "-c"]))
    outer.sendline(f"({run} 'until test -e go; do sleep 0.05; done; touch {data}/new; printf FA''KE' </dev/null & "
                   f"{run} 'cat {data}/a.txt'; wait; echo all''over)")
    see_question(outer, f"{data}/a.txt")
    box.identity.file(box.path("go"), "")
    with pytest.raises(pexpect.TIMEOUT):
        outer.expect("FAKE|warning", timeout=7)
    press(outer, "s")
    outer.see("allover")
    assert b"content of a" in outer.before
    assert b"FAKE" in outer.before and f"may not write to {data}/new".encode() in outer.before  # the control


@pytest.mark.parametrize("verb", ["run --report", "learn"])
def test_reports_of_another_session_wait_for_the_answer(outer, box, data, verb):  # noqa: F811
    """They name files as the command likes."""
    name = "FA''KE" if verb == "learn" else "FA''KE.sh"
    read = f"cat {data}/{name}" if verb == "learn" else f"touch {name}"
    box.identity.file(f"{data}/FAKE", "")
    other = f"{shlex.quote(box.world.command)} {verb} -- sh -c"
    outer.sendline(f"({other} 'until test -e go; do sleep 0.05; done; {read}' </dev/null & "
                   f"{shlex.join(dynamic.wrap(box, ['cat', data + '/a.txt']))}; wait; echo all''over)")
    see_question(outer, f"{data}/a.txt")
    box.identity.file(box.path("go"), "")
    with pytest.raises(pexpect.TIMEOUT):
        outer.expect("FAKE", timeout=2)
    press(outer, "s")
    outer.see("allover")
    assert b"content of a" in outer.before and b"FAKE" in outer.before  # the control


def test_a_question_outlives_the_end_of_another_session(outer, box, data):  # noqa: F811
    """Which puts the terminal's settings back: then no key would come before the end of a line."""
    side_by_side(outer, box, "sleep 1.5", f"sleep 0.5; cat {data}/a.txt")
    outer.see(ASKED)
    assert outer.spawn.expect_exact([ASKED, pexpect.TIMEOUT], timeout=12) == 0  # drawn again
    press(outer, "s")
    outer.see("content of a")
    outer.see("allover")
    outer.outer_prompt()
    assert " icanon" in outer.shows("stty -a")


# ---- where it is asked ----


def test_redirected_output(inside, box, data):
    """stdout is a file: the question is still on the terminal, and not in the file."""
    script = f"{box.world.command} run --mode dynamic -- cat {data}/a.txt > out; echo end"
    terminal = Terminal(box, ["sh", "-c", script])
    see_question(terminal, f"{data}/a.txt")
    press(terminal, "s")
    terminal.see("end")
    with open(box.path("out")) as source:
        assert source.read() == "content of a\n"
    terminal.end()


@pytest.mark.parametrize("options", [["--tty", "never"], ["--json"]], ids=" ".join)
def test_shared_terminal_is_not_asked_at(inside, data, options):
    """E5: a command that holds the person's own terminal could paint over any question."""
    terminal = inside(f"cat {data}/a.txt", options)
    terminal.expect(pexpect.EOF)
    assert ASKED.encode() not in terminal.before and b"may not" in terminal.before


def test_background_job_waits_for_the_terminal(outer, box, data):  # noqa: F811
    outer.sendline(f"{box.world.command} run --mode dynamic -- cat {data}/a.txt &")
    assert eventually(lambda: [entry for entry in listed(box) if entry["pending"]])
    with pytest.raises(pexpect.TIMEOUT):
        outer.expect_exact(ASKED, timeout=0.6)
    outer.sendline("fg")
    outer.see(ASKED)
    press(outer, "s")
    outer.see("content of a")


# ---- names ----


HOSTILE = {
    "x\x1b[2K\x1b[1Ay": r"x\x1b[2K\x1b[1Ay", "\u202etxt.yek": r"\u{202e}txt.yek",
    "id\u200b_rsa": r"id\u{200b}_rsa", "x\n[sandbox] approved: y": r"x\n[sandbox] approved: y",
    "x\r  allow:  o once": r"x\r\x20\x20allow:\x20\x20o once",
}


def test_hostile_names(inside, box, data):
    """E7-E9."""
    for name in HOSTILE:
        box.identity.file(f"{data}/{name}", "odd\n")
    words = " ".join(shlex.quote(f"{data}/{name}") for name in HOSTILE)
    terminal = inside(f"cat {words}; echo end")
    for shown in HOSTILE.values():
        question = see_question(terminal, shown)
        assert "\x1b" not in question.partition("wants to")[2].partition("process")[0]
        press(terminal, "s")
        terminal.see("allowed")
    terminal.see("odd")


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("supervisor", ["run", "watch"])
def test_names_draw_no_lines_of_their_own(inside, box, data, columns, supervisor):
    """A folder and a program whose names go on in the next line, as if that were ours."""
    fake = " allow all but secrets in .usr.share.doc: t this session"
    begins = f"  process 12345 in {box.project}/"
    folder = box.path("x" * (columns - 1 - len(begins)) + fake)
    program = f"{folder}/git wants to read" + " " * columns + "    .usr.share.doc.README"
    box.identity.folder(folder)
    script = f"cd {shlex.quote(folder)} && cp /bin/cat {shlex.quote(program)} && " \
             f"exec {shlex.quote(program)} {data}/a.txt"
    if supervisor == "run":
        terminal = inside(script, columns=columns)
        shown = terminal.see(ASKED).decode()
    else:
        with dynamic.asking(box, ["sh", "-c", script]):
            terminal = Terminal(box, [box.world.command, "watch"], columns=columns)
            shown = terminal.see(ASKED).decode()
            terminal.end()
    lines = [line for line in re.sub(r"\x1b\[[0-9;?!]*[a-zA-Z]", "", shown).split("\r\n")
             if "usr" in line or "xxx" in line]
    assert len(lines) > 1
    for line in lines:
        assert len(line) < columns, shown
        assert re.match(r'"/|  process \d+ in "/|    \| |    /|  allow all but secrets in /', line), shown
    assert not re.search(r"  \.usr", shown)


def test_long_name(inside, box, data):
    """E10: a path of 4 KiB does not push the question away; all of it on demand."""
    deep = data
    while len(deep) < 3500:
        deep += "/" + "d" * 200
    box.identity.file(f"{deep}/file", "deep\n")
    terminal = inside(f"cat {deep}/file; echo end")
    question = see_question(terminal, f"[{len(deep) + 5} bytes, sha256 ")
    assert question.count("\n") < 15 and len(question) < 1600
    press(terminal, "f")
    assert f"{deep}/file" in whole(terminal.see(ASKED).decode())
    press(terminal, "s")
    terminal.see("deep")


def test_name_that_is_too_long_for_the_kernel(inside, data):
    """E10: it is the kernel that says so, and nobody is asked."""
    longest = data + "/" + "x/" * ((4096 - len(data)) // 2)
    terminal = inside(f"cat {longest[:4096]}; cat {longest[:4095]}y; echo end")
    terminal.see("File name too long")
    terminal.see("end")


# ---- sandbox watch ----


def test_watch_answers_with_keys(box, data):
    with dynamic.asking(box, ["cat", f"{data}/a.txt", f"{data}/b.txt"]) as session:
        terminal = Terminal(box, [box.world.command, "watch"])
        see_question(terminal, f"{data}/a.txt")
        press(terminal, "s")
        see_question(terminal, f"{data}/b.txt")
        press(terminal, "d")
        assert session.result()[:2] == (1, "content of a\n")
        terminal.see("has ended")
        terminal.send("q")
        assert exit_status(terminal) == 0


def test_watch_asks_for_keys_as_bytes(outer, box, data):  # noqa: F811
    """Of a terminal that a session in the background has asked for sequences."""
    run = shlex.join(dynamic.wrap(box, ["sh", "-c", f"printf '\\033[>8u'; cat {data}/a.txt"], ["--supervised"]))
    outer.sendline(f"{run} &")
    outer.see("\x1b[>8u")
    outer.sendline(f"{shlex.quote(box.world.command)} watch")
    assert b"\x1b[=0;1u" in outer.see(ASKED)
    press(outer, "s")
    outer.see("allowed")
    outer.send("q")
    outer.see("content of a")


def test_watch_shows_it_again_on_a_smaller_screen(box, data):
    """What does not fit any more is not allowed by what was seen before."""
    with dynamic.asking(box, ["cat", f"{data}/a.txt"]) as session:
        terminal = Terminal(box, [box.world.command, "watch"])
        see_question(terminal, f"{data}/a.txt")
        time.sleep(QUIET)
        terminal.setwinsize(4, 80)
        terminal.send("s")
        terminal.see("too small")
        terminal.see(ASKED)
        press(terminal, "s")
        press(terminal, "d")
        assert session.result()[:2] == (1, "")
        terminal.send("q")
        assert exit_status(terminal) == 0


def test_session_in_the_background_cannot_paint_over_a_watched_question(outer, box, data):  # noqa: F811
    """E5: `sandbox run & sandbox watch` at one terminal."""
    painting = "while sleep 0.05; do printf FAKE; test -e stop && break; done"
    run = shlex.join([*dynamic.wrap(box, ["sh", "-c", f"cat {data}/a.txt & {painting}"], ["--supervised"])])
    outer.sendline(f"{run} &")
    outer.see("FAKE")  # the control: it does paint
    outer.see("FAKE")
    outer.sendline(f"{box.world.command} watch")
    outer.see(ASKED)
    with pytest.raises(pexpect.TIMEOUT):
        outer.expect_exact("FAKE", timeout=1)
    press(outer, "s")
    outer.see("content of a")
    outer.see("FAKE")  # and paints on afterwards
    box.identity.file(box.path("stop"), "")
    outer.see("has ended")
    outer.send("q")
    outer.outer_prompt()


def test_watch_ends_and_gives_the_terminal_back(outer, box):  # noqa: F811
    before = outer.shows("stty -a")
    for end in ("q", "\003"):
        outer.sendline(f"{box.world.command} watch")
        outer.see("watching; q ends it")
        outer.send(end)
        outer.outer_prompt()
        assert outer.shows("stty -a") == before
    outer.sendline(f"{box.world.command} watch & sleep 0.3; kill $!; wait")
    outer.outer_prompt()
    assert outer.shows("stty -a") == before
