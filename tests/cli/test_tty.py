"""The terminal: its own pty, job control, size, settings, and what happens when parts are missing."""

import hashlib
import os
import re
import shlex
import signal
import subprocess
import termios
import time

import pexpect
import pytest

import dynamic
from harness import SLOWNESS, children
from sessions import listed, sandbox

SCALE = 4 if os.environ.get("SANDBOX_SANITIZED") else SLOWNESS
WAIT = 10 * SCALE


class Terminal:
    """A person at a terminal, in an interactive bash or in the sandbox directly."""

    PROMPT = "outer> "

    def __init__(self, box, argv, rows=24, columns=80):
        self.box = box
        environment = {**box.identity.environment(), "PS1": self.PROMPT, "INPUTRC": "/dev/null",
                       "HISTFILE": ""}
        self.spawn = pexpect.spawn(argv[0], argv[1:], cwd=box.project, env=environment,
                                   dimensions=(rows, columns), timeout=WAIT,
                                   preexec_fn=box.identity.become, echo=True)
        self.spawn.delaybeforesend = 0.02
        self.spawn.str_last_chars = 4000  # of what a test waited for in vain

    def __getattr__(self, name):
        return getattr(self.spawn, name)

    def see(self, text):
        """Waits for the literal text."""
        self.spawn.expect_exact(text)
        return self.spawn.before

    def settings(self):
        return termios.tcgetattr(self.spawn.child_fd)

    def ask(self, command, answer):
        self.spawn.sendline(command)
        self.see(answer)

    def outer_prompt(self):
        self.see(self.PROMPT)

    def interrupt(self):
        """Ctrl-C, but not at once: dash loses one that comes while it starts a command."""
        time.sleep(0.15)
        self.spawn.sendintr()

    def shows(self, command):
        """What a command prints, without its own echo."""
        self.spawn.sendline(command)
        return self.see(self.PROMPT).decode().partition("\r\n")[2]

    def hang_up(self):
        self.spawn.ptyproc.fileobj.close()
        self.spawn.ptyproc.closed = self.spawn.closed = True
        self.spawn.ptyproc.fd = self.spawn.child_fd = -1

    def end(self):
        if not self.spawn.closed:
            self.spawn.ptyproc.delayafterterminate = 1.0  # a killed monitor could not tidy up
            self.spawn.close(force=True)


@pytest.fixture
def inside(box):
    """Starts a command in the sandbox on a terminal of its own."""
    made = []

    def start(argv, options=(), **more):
        made.append(Terminal(box, box.wrap(argv, options), **more))
        return made[-1]

    yield start
    for terminal in made:
        terminal.end()


@pytest.fixture
def outer(box):
    """An interactive bash outside, with the sandbox as $S."""
    terminal = Terminal(box, ["bash", "--norc", "--noediting", "-i"])
    terminal.outer_prompt()
    command = shlex.join([box.world.command, "run", "--static"])
    terminal.sendline(f"S={shlex.quote(command)}")
    terminal.outer_prompt()
    yield terminal
    terminal.end()


def bash_inside(inside):
    terminal = inside(["env", "PS1=in> ", "bash", "--norc", "--noediting", "-i"])
    terminal.see("in> ")
    return terminal


def exit_status(terminal):
    terminal.expect(pexpect.EOF)
    terminal.wait()
    return terminal.exitstatus


# ---- the basics ----


def test_own_terminal(inside, box):
    terminal = inside(["sh", "-c", "tty; test -t 0 && test -t 1 && test -t 2 && echo all; exit 5"])
    text = terminal.see("all").decode()
    assert "/dev/pts/0" in text, text
    assert exit_status(terminal) == 5


def test_terminal_is_not_the_hosts(inside, box):
    terminal = inside(["sh", "-c", "ls /dev/pts; stat -c %t:%T-%d /dev/pts/0; ls -l /proc/self/fd/0"])
    text = terminal.read().decode()
    assert sorted(text.split("\r\n")[0].split()) == ["0", "ptmx"], text
    assert re.search(r"-> /dev/pts/0", text)


def test_size(inside):
    terminal = inside(["stty", "size"], rows=37, columns=111)
    terminal.see("37 111")


def test_resize(inside):
    terminal = bash_inside(inside)
    terminal.setwinsize(50, 132)
    time.sleep(0.1)
    terminal.ask("stty size", "50 132")
    terminal.sendline("trap 'echo resized' WINCH; read x")
    time.sleep(0.2)
    terminal.setwinsize(20, 60)
    time.sleep(0.1)
    terminal.sendline("")
    terminal.see("resized")


def test_control_d(inside):
    terminal = inside(["cat"])
    terminal.sendline("hello")
    terminal.see("hello\r\nhello\r\n")
    terminal.sendeof()
    assert exit_status(terminal) == 0


def test_control_c(inside):
    terminal = inside(["sh", "-c", "echo ready; sleep 30"])
    terminal.see("ready")
    terminal.interrupt()
    assert exit_status(terminal) == 130


def test_control_c_goes_to_the_foreground_only(inside):
    terminal = inside(["sh", "-c", "trap 'echo caught' INT; echo ready; read x; echo went on"])
    terminal.see("ready")
    terminal.interrupt()
    terminal.see("caught")


def test_control_backslash(inside):
    terminal = inside(["sh", "-c", "echo ready; sleep 30"])
    terminal.see("ready")
    terminal.send("\x1c")
    assert exit_status(terminal) == 131


def test_every_byte_passes(inside):
    """Raw relay: nothing is interpreted on the way in."""
    script = "stty raw -echo; echo ready; head -c 256 | od -An -v -tu1 | tr -d '\\n'; stty sane"
    terminal = inside(["sh", "-c", script])
    terminal.see("ready")
    time.sleep(0.1)
    terminal.send(bytes(range(256)))
    text = terminal.read().decode()
    assert [int(word) for word in re.findall(r"\d+", text)] == list(range(256)), text


def test_one_megabyte_in_order(inside):
    terminal = inside(["sh", "-c", "stty -opost; seq 1 170000"])
    out = terminal.read()
    expected = "".join(f"{i}\n" for i in range(1, 170001)).encode()
    assert len(expected) > 1_000_000
    assert hashlib.sha256(out).hexdigest() == hashlib.sha256(expected).hexdigest(), len(out)


def test_output_right_before_the_end_arrives(inside):
    for _ in range(10):
        terminal = inside(["sh", "-c", "seq 1 2000; echo the last line"])
        assert terminal.read().decode().endswith("the last line\r\n")


def test_large_input(inside):
    terminal = inside(["sh", "-c", "stty raw -echo; echo ready; head -c 300000 | sha256sum"])
    terminal.see("ready")
    time.sleep(0.1)
    data = os.urandom(300000)
    view = memoryview(data)
    while view:
        view = view[os.write(terminal.child_fd, view[:4096]):]
    terminal.see(hashlib.sha256(data).hexdigest())


# ---- job control: bubblewrap#162 #571, sandbox-runtime#76 ----


def test_stopped_before_it_has_begun(box):
    """Ctrl-Z at any moment of a start: whoever it stops goes on, for nobody else could have it do so."""
    for attempt in range(45):
        terminal = Terminal(box, dynamic.wrap(box, ["true"], ["--gate", "notify"]))
        try:
            terminal.ptyproc.delayafterclose = 0
            time.sleep((attempt % 15) * 0.002 * SCALE)
            os.write(terminal.child_fd, b"\x1a")
            terminal.expect(pexpect.EOF)
        finally:
            terminal.end()


def test_job_control_in_a_shell_inside(inside):
    terminal = bash_inside(inside)
    terminal.sendline("sleep 60")
    time.sleep(0.3)
    terminal.send("\x1a")
    terminal.see("Stopped")
    terminal.see("in> ")
    terminal.ask("jobs", "[1]+  Stopped")
    terminal.ask("bg", "sleep 60 &")
    terminal.ask("jobs", "Running")
    terminal.sendline("fg")
    terminal.see("sleep 60")
    time.sleep(0.2)
    terminal.interrupt()
    terminal.see("in> ")
    terminal.ask("echo $?", "130")
    terminal.ask("jobs; echo none", "none")
    terminal.sendline("exit 3")
    assert exit_status(terminal) == 3


def test_no_job_control_warning(inside):
    terminal = inside(["bash", "--norc", "-i"])
    terminal.sendline("exit")
    text = terminal.read().decode()
    assert "no job control" not in text and "cannot set terminal" not in text, text


def test_control_z_stops_the_sandbox_for_the_outer_shell(outer):
    outer.sendline("$S -- sh -c 'echo ready; sleep 1; echo woke; read x; echo got $x'")
    outer.see("ready\r\n")
    outer.send("\x1a")
    outer.see("Stopped")
    outer.outer_prompt()
    outer.ask("stty -a | grep -o ' -\\?icanon'", " icanon")
    outer.ask("jobs", "[1]+  Stopped")
    outer.sendline("fg")
    outer.see("woke")
    outer.sendline("line")
    outer.see("got line")
    outer.outer_prompt()
    outer.ask("echo status $?", "status 0")


def test_stopped_twice(outer):
    outer.sendline("$S -- sh -c 'echo ready; cat'")
    outer.see("ready\r\n")
    for word in ("one", "two"):
        outer.send("\x1a")
        outer.see("Stopped")
        outer.outer_prompt()
        outer.sendline("fg")
        time.sleep(0.3)
        outer.sendline(word)
        outer.see(f"{word}\r\n{word}\r\n")
    outer.sendeof()
    outer.outer_prompt()


def test_stopped_and_killed(outer, box):
    before = set(children())
    outer.sendline("$S -- sh -c 'echo ready; sleep 60'")
    outer.see("ready\r\n")
    outer.send("\x1a")
    outer.see("Stopped")
    outer.outer_prompt()
    outer.sendline("kill %1; fg")
    outer.outer_prompt()
    outer.ask("echo status $?", "status 143")
    assert not [line for pid, line in children().items() if pid not in before and "sleep" in line]


def test_in_the_background(outer):
    outer.sendline("$S --tty never -- sh -c 'sleep 0.3; echo from behind' &")
    outer.see("from behind")
    outer.sendline("wait; echo status $?")
    outer.see("status 0")


def test_started_in_the_background_with_a_terminal(outer):
    """It must neither take the terminal away from the shell nor its input; fg brings it back."""
    before = outer.settings()
    outer.sendline("$S -- sh -c 'read x; echo got $x' &")
    time.sleep(0.5)
    assert outer.settings() == before, "raw mode under the shell's feet"
    outer.ask("echo the shell $((20+3))", "the shell 23")
    outer.ask("jobs", "Running")
    outer.sendline("fg")
    time.sleep(0.6)
    outer.sendline("line")
    outer.see("got line")
    outer.outer_prompt()


def test_sent_to_the_background(outer):
    outer.sendline("$S -- sh -c 'echo ready; sleep 1; echo woke'")
    outer.see("ready\r\n")
    outer.send("\x1a")
    outer.see("Stopped")
    outer.outer_prompt()
    before = outer.settings()
    outer.sendline("bg")
    time.sleep(0.3)
    assert outer.settings() == before, "raw mode under the shell's feet"
    outer.see("woke")
    outer.sendline("wait; echo status $?")
    outer.see("status 0")


# ---- programs that own the screen ----


def test_vim(inside, box):
    box.identity.file(box.path("text"), "first line\n")
    terminal = inside(["vim.tiny", "-u", "NONE", "-i", "NONE", "-n", "text"])
    terminal.see("first line")
    terminal.send("osecond line\x1b:wq\r")
    assert exit_status(terminal) == 0
    with open(box.path("text")) as text:
        assert text.read() == "first line\nsecond line\n"


def test_vim_survives_control_z(outer, box):
    box.identity.file(box.path("text"), "first line\n")
    outer.sendline("$S -- vim.tiny -u NONE -i NONE -n text")
    outer.see("first line")
    time.sleep(0.2)
    outer.send("\x1a")
    outer.see("Stopped")
    outer.outer_prompt()
    outer.ask("echo outside $((1+1))", "outside 2")
    outer.sendline("fg")
    outer.see("first line")
    time.sleep(0.3)
    outer.send("oafter\x1b:wq\r")
    outer.outer_prompt()
    with open(box.path("text")) as text:
        assert text.read() == "first line\nafter\n"
    outer.ask("stty -a | grep -o ' -\\?icanon'", " icanon")


def test_vim_in_a_shell_inside(inside, box):
    terminal = bash_inside(inside)
    terminal.sendline("vim.tiny -u NONE -i NONE -n made")
    time.sleep(0.5)
    terminal.send("ihello\x1b")
    time.sleep(0.2)
    terminal.send("\x1a")
    terminal.see("Stopped")
    terminal.sendline("fg")
    time.sleep(0.4)
    terminal.send(":wq\r")
    time.sleep(0.3)
    terminal.ask("cat made", "hello")
    terminal.sendline("exit")
    assert exit_status(terminal) == 0


def test_less(inside, box):
    box.identity.file(box.path("long"), "".join(f"line {i}\n" for i in range(1, 501)))
    terminal = inside(["less", "long"])
    terminal.see("line 22")
    terminal.send(" ")
    terminal.see("line 45")
    terminal.send("G")
    terminal.see("line 500")
    terminal.send("q")
    assert exit_status(terminal) == 0


# ---- the caller's settings ----


def run_outside(outer, command):
    before = outer.settings()
    outer.sendline(command + "; echo 'status' $?")
    outer.expect(r"status (\d+)")
    status = int(outer.match.group(1))
    outer.outer_prompt()
    assert outer.settings() == before, "the terminal is not as it was"
    return status


@pytest.mark.parametrize("script, status", [
    ("true", 0), ("stty raw -echo", 0), ("kill -9 $$", 137), ("kill -TERM $$", 143),
    ("stty raw -echo; kill -9 $$", 137), ("exec no-such-command", 127)])
def test_settings_are_restored(outer, script, status):
    assert run_outside(outer, f"$S -- sh -c '{script}'") == status


def test_settings_after_a_failed_start(outer):
    assert run_outside(outer, "$S -- no-such-command") == 127
    assert run_outside(outer, "$S --rw /no/such -- true") == 125


@pytest.mark.parametrize("name", ["TERM", "HUP", "INT"])
def test_settings_after_a_signal_to_the_monitor(outer, box, name):
    before = outer.settings()
    outer.sendline("$S -- sh -c 'echo ready; exec sleep 60'")
    outer.see("ready\r\n")
    monitor = [pid for pid, line in children().items() if line.startswith(box.world.command)]
    os.kill(monitor[0], getattr(signal, "SIG" + name))
    outer.outer_prompt()
    assert outer.settings() == before


def test_settings_of_the_caller_are_inherited(outer):
    outer.sendline("stty intr ^X; $S -- stty -a; stty intr ^C")
    outer.see("intr = ^X")
    outer.outer_prompt()


# ---- only some of the three ----


def test_output_to_a_pipe(outer):
    text = outer.shows("$S -- sh -c 'test -t 0 && echo in; test -t 1 || echo no out;"
                       " test -t 2 && echo err >&2' | cat")
    assert sorted(text.split("\r\n")) == ["", "err", "in", "no out"], text


def test_output_to_a_pipe_stays_clean(outer, box):
    """No carriage returns: the pipe is the caller's, not the pty's."""
    outer.sendline("$S -- sh -c 'echo a; echo b' > out.txt; od -c out.txt | head -1")
    outer.see("a  \\n   b  \\n")


def test_input_from_a_file(outer):
    text = outer.shows("$S -- sh -c 'test -t 0 || echo no in; cat; test -t 1 && echo out' < README.md")
    assert text == "no in\r\nordinary\r\nout\r\n", text


def test_errors_to_a_file(outer):
    text = outer.shows("$S -- sh -c 'test -t 2 || echo no err; echo oops >&2; test -t 1 && echo out'"
                       " 2> err.txt")
    assert text == "no err\r\nout\r\n", text
    assert outer.shows("cat err.txt") == "oops\r\n"


def test_interactive_read_with_output_to_a_pipe(outer):
    outer.sendline("$S -- sh -c 'read x; echo got $x' | cat")
    time.sleep(0.3)
    outer.sendline("line")
    outer.see("got line")
    outer.outer_prompt()


def test_control_c_with_output_to_a_pipe(outer):
    outer.sendline("$S -- sh -c 'echo ready; sleep 60' | cat")
    outer.see("ready\r\n")
    outer.interrupt()
    outer.outer_prompt()
    assert outer.shows("echo ${PIPESTATUS[0]}") == "130\r\n"


def test_password_prompt(outer):
    """/dev/tty works even when nothing else is a terminal."""
    outer.sendline("$S -- sh -c 'echo to the terminal > /dev/tty; echo $?' 2>&1 < README.md")
    outer.see("to the terminal")


# ---- --tty ----


def test_tty_always_without_a_terminal(box):
    result = box.run(["sh", "-c", "test -t 0 && test -t 1 && tty"], options=["--tty", "always"])
    assert result.exit == 0 and result.stdout == "/dev/pts/0\r\n", result


def test_tty_always_with_input(box):
    process = box.start(["cat"], options=["--tty", "always"], stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE)
    out, _ = process.communicate(b"hello\n", timeout=10)
    assert (process.returncode, out) == (0, b"hello\r\n")


def test_tty_never(outer):
    text = outer.shows("$S --tty never -- sh -c 'ls /dev/pts; echo evil > /dev/tty'")
    assert text.startswith("ptmx\r\n") and "evil" not in text, text


# ---- the end of the terminal ----


def new_processes(before):
    return {pid: line for pid, line in children().items() if pid not in before}


def test_terminal_closes(inside):
    before = set(children())
    terminal = inside(["sh", "-c", "echo ready; sleep 60"])
    terminal.see("ready")
    terminal.hang_up()
    end = time.monotonic() + 3 * SCALE
    while new_processes(before) and time.monotonic() < end:
        time.sleep(0.02)
    assert not new_processes(before)


@pytest.mark.parametrize("words", [[], ["--now"]], ids=["kill", "now"])
def test_killed_at_a_terminal_that_stands_still(box, words):
    """By Ctrl-S: nobody waits for the rest of its output, nor for what we say about it."""
    command = shlex.join(box.wrap(["sh", "-c", "echo ready; until test -e go; do sleep 0.05; done; yes"]))
    terminal = Terminal(box, ["sh", "-c", f"exec {command} </dev/null"])
    try:
        terminal.see("ready")
        terminal.send("\x13")
        time.sleep(0.3)
        box.identity.file(box.path("go"), "")
        time.sleep(0.5)
        (entry,) = listed(box)
        killed = sandbox(box, "kill", *words, entry["sid"], timeout=8 * SCALE)
        assert killed.exit == 0, killed
        terminal.send("\x11")
        assert exit_status(terminal) == 128 + signal.SIGKILL
    finally:
        terminal.end()


def test_terminal_closes_under_a_command_that_ignores_it(inside, box):
    """As outside it goes on; we must not spin on a terminal that is gone, and still obey."""
    before = set(children())
    terminal = inside(["sh", "-c", "trap '' HUP; echo ready; sleep 1; echo x > late; sleep 60"])
    terminal.see("ready")
    terminal.hang_up()
    monitor = terminal.spawn.pid
    end = time.monotonic() + 5 * SCALE
    while not os.path.exists(box.path("late")) and time.monotonic() < end:
        time.sleep(0.05)
    assert os.path.exists(box.path("late")), "it ended with the terminal"
    with open(f"/proc/{monitor}/stat") as source:
        ticks = sum(int(word) for word in source.read().rpartition(")")[2].split()[11:13])
    assert ticks < 30 * SCALE, f"the monitor spins: {ticks} ticks"
    os.kill(monitor, signal.SIGTERM)
    end = time.monotonic() + 3 * SCALE
    while new_processes(before) and time.monotonic() < end:
        time.sleep(0.02)
    assert not new_processes(before)


def test_brought_back_before_it_has_stopped(box):
    """Whoever stops and continues it in one breath finds it running."""
    process = box.start(["sh", "-c", "echo ready; until test -e go; do sleep 0.02; done"], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    for number in range(60):
        process.send_signal(signal.SIGTSTP)
        time.sleep(number % 12 * 0.0002)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.02)
    box.identity.file(box.path("go"), "")
    try:
        assert process.wait(5 * SCALE) == 0
    finally:
        process.kill()


def test_stop_signal_without_a_terminal(outer, box):
    """SIGTSTP stops command and monitor together, SIGCONT brings both back."""
    log = box.path("log")
    outer.sendline("$S --tty never -- sh -c 'while :; do sleep 0.02; echo tick >> log; done' &")
    end = time.monotonic() + 5 * SCALE
    while not os.path.exists(log) and time.monotonic() < end:
        time.sleep(0.02)
    outer.sendline("kill -TSTP %1; until jobs | grep Stopped; do sleep 0.1; done")
    outer.see("[1]+  Stopped")
    size = os.path.getsize(log)
    time.sleep(0.3)
    assert os.path.getsize(log) == size, "the command goes on"
    outer.sendline("bg")
    time.sleep(0.5)
    assert os.path.getsize(log) > size, "it did not come back"
    outer.sendline("kill %1; wait %1; echo status $?")
    outer.see("status 143")
