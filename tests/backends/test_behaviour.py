"""What every back end must do, whatever is behind it. Each security test has a control."""

import fcntl
import json
import os
import pty
import select
import shutil
import signal
import socket
import subprocess
import termios
import threading
import time

import pytest

import gates
import harness


def sh(text):
    return ["sh", "-c", text]


def feed(box, argv, data, options=()):
    process = box.start(argv, options=options, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE)
    out, err = process.communicate(data, timeout=harness.TIMEOUT * 2)
    return process.returncode, out, err


def wait_for(condition, what, seconds=15):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.02)


# ---- exit codes ----


@pytest.mark.essential
@pytest.mark.parametrize("text, status", [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)])
def test_exit_code(box, text, status):
    assert box.run(sh(text)).exit == status


@pytest.mark.host
def test_a_command_that_does_not_exist(box):
    result = box.run(["no-such-command"])
    assert result.exit == 127 and "no-such-command" in result.stderr, result


@pytest.mark.host
def test_a_command_that_cannot_be_executed(box):
    box.identity.file(box.path("data"), "no program")
    result = box.run(["./data"])
    assert result.exit == 126 and "data" in result.stderr, result


# ---- among the sessions ----


def ask_sandbox(box, *words):
    return harness.Box.execute(box, [box.world.command, *words], None, None, harness.TIMEOUT, False, ())


def listed(box, process):
    entries = json.loads(ask_sandbox(box, "ps", "--json").stdout)
    return next((entry for entry in entries if entry["pid"] == process.pid), None)


@pytest.mark.essential
def test_it_is_listed_and_can_be_killed(box):
    process = box.start(sh("trap '' TERM; touch up; while :; do sleep 0.1; done"), stdin=subprocess.DEVNULL)
    wait_for(lambda: os.path.exists(box.path("up")) and listed(box, process), "the session", 120)
    entry = listed(box, process)
    assert entry["backend"] == box.name and entry["responsive"], entry
    processes = json.loads(ask_sandbox(box, "ps", "--json", entry["sid"]).stdout)
    assert processes, "no process of it is seen"
    if box.name not in ("native", "podman", "docker", "vm"):
        refusal = ask_sandbox(box, "exec", entry["sid"], "--", "true")
        assert refusal.exit == 125 and "cannot be entered" in refusal.stderr and "fix:" in refusal.stderr
    assert ask_sandbox(box, "kill", "--now", entry["sid"]).exit == 0
    assert process.wait(harness.TIMEOUT) == 137
    assert listed(box, process) is None


# ---- files ----


@pytest.mark.essential
def test_the_project_is_writable(box):
    result = box.run(sh("echo made > new && mkdir folder && mv new folder/moved && cat main.c"))
    assert result.exit == 0 and "main" in result.stdout, result
    with open(box.path("folder/moved")) as made:
        assert made.read() == "made\n"
    status = os.stat(box.path("folder/moved"))
    assert (status.st_uid, status.st_gid) == (box.identity.uid, box.identity.gid)


@pytest.mark.host
@pytest.mark.needs("hide")
def test_secrets_of_the_home_folder_are_hidden(box):
    """Refused, or empty; box.run looks for the canary in all that comes out."""
    names = [".ssh/id_rsa", ".aws/credentials", ".netrc", ".bash_history", ".config/gh/hosts.yml"]
    paths = [box.home(name) for name in names]
    assert box.plain(["cat", *paths]).stdout.count(box.canary) == len(paths), "control"
    assert box.run(["cat", *paths]).stdout == ""
    assert box.run(sh("cd ~/.ssh && cat *; ls ~/.ssh")).stdout == ""


@pytest.mark.host
def test_the_rest_of_the_home_folder_is_readable_and_not_writable(box):
    assert box.run(["cat", box.home("readable.txt")]).stdout == "ordinary\n"
    assert box.plain(sh("echo x >> ~/.bashrc")).exit == 0, "control"
    result = box.run(sh("echo x >> ~/.bashrc; echo y > ~/new; rm -f ~/readable.txt"))
    assert result.exit != 0 or "denied" in result.stderr or "ead-only" in result.stderr, result
    assert not os.path.exists(box.home("new")) and os.path.exists(box.home("readable.txt"))
    with open(box.home(".bashrc")) as content:
        assert content.read().count("x\n") == 1


@pytest.mark.needs("hide-in-writable")
def test_secrets_of_the_project_are_hidden(box):
    names = [".env", "sub/.env"]
    assert box.plain(["cat", *names]).stdout.count(box.canary) == len(names), "control"
    assert box.run(["cat", *names]).stdout == ""
    assert box.run(sh("mv .env moved; mv sub moved; cat moved moved/.env")).stdout == ""


@pytest.mark.host
def test_the_system_is_not_writable(box):
    result = box.run(sh("echo x > /etc/made; echo x >> /etc/hostname; touch /usr/bin/made"))
    assert result.exit != 0, result
    assert not os.path.exists("/etc/made") and not os.path.exists("/usr/bin/made")


@pytest.mark.needs("protect")
def test_protected_names_stay(box):
    names = [".git/hooks/pre-commit", ".git/config", ".mcp.json"]

    def contents():
        return [open(box.path(name)).read() for name in names]

    before = contents()
    for name in names:
        assert box.plain(["test", "-w", name]).exit == 0, "control"
    box.run(sh("mv .git git; " + "; ".join(
        f"echo evil >> {name}; rm -f {name}; mv {name} gone; echo evil > {name}" for name in names)))
    assert contents() == before


@pytest.mark.needs("reserve")
def test_protected_names_cannot_be_created(box):
    names = (".cursor/mcp.json", ".git/hooks/post-checkout")
    box.run(sh("; ".join(f"mkdir -p {os.path.dirname(name)}; echo evil > {name}" for name in names)))
    for name in names:
        assert not os.path.exists(box.path(name)), name


@pytest.mark.host
def test_places_of_the_command_line(box):
    box.identity.file(box.home("extra/file"), "extra\n")
    box.identity.file(box.home("veiled/file"), box.canary)
    assert box.run(sh("echo more >> ~/extra/file"), options=["--rw", box.home("extra")]).exit == 0
    with open(box.home("extra/file")) as content:
        assert content.read() == "extra\nmore\n"
    result = box.run(["cat", box.home("veiled/file")], options=["--blacklist", box.home("veiled")])
    assert result.exit != 0 and box.canary not in result.stdout


@pytest.mark.host
@pytest.mark.needs("private-tmp")
def test_temporary_folders_are_private(box):
    name = f"sandbox-test-{os.getpid()}-{box.identity.name}"
    path = os.path.join("/tmp", name)
    with open(path, "w") as outside:
        outside.write("outside")
    os.chmod(path, 0o644)
    try:
        assert box.plain(["cat", path]).stdout == "outside", "control"
        assert "outside" not in box.run(["cat", path]).stdout
        result = box.run(sh('echo inside > "$TMPDIR/file" && cat "$TMPDIR/file"'))
        assert result.stdout == "inside\n", result
        box.run(sh(f"echo x > /tmp/{name}.inside"))
        assert not os.path.exists(path + ".inside")
    finally:
        os.unlink(path)


# ---- network ----


@pytest.mark.essential
@pytest.mark.needs("network-none")
def test_no_network(box):
    """Not even to this machine: a listener here, a connection from inside."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    came = []

    def accept():
        try:
            while True:
                came.append(listener.accept()[0])
        except OSError:
            pass

    threading.Thread(target=accept, daemon=True).start()
    connect = ["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"]
    try:
        assert box.plain(connect).stdout == "connected\n", "control"
        wait_for(lambda: came, "the control's connection")
        before = len(came)
        argv = connect if box.ready.engine.sees_host else sh(f"nc -w 2 127.0.0.1 {port} </dev/null")
        result = box.run(argv)
        assert result.exit != 0 and "connected" not in result.stdout, result
        assert len(came) == before
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for one in came:
            one.close()


# ---- environment, words, bytes ----


@pytest.mark.essential
def test_the_environment_is_scrubbed(box):
    result = box.run(["env"], env={"MY_PASSWORD": "hunter2", "KEPT": "yes"},
                     options=["--env", "KEPT", "--env", "SET=a b'c"])
    assert "hunter2" not in result.stdout and "KEPT=yes" in result.stdout, result
    assert "SET=a b'c" in result.stdout, result


@pytest.mark.essential
def test_odd_words_arrive_as_they_are(box):
    words = ["a b", "", "'", '"', "$HOME", "`id`", "\\", "new\nline", "--", "-x", "*", "ü", "%s"]
    result = box.run(["sh", "-c", 'for w; do printf "[%s]" "$w"; done', "sh", *words])
    assert result.stdout == "".join(f"[{word}]" for word in words), result


@pytest.mark.host
@pytest.mark.parametrize("name", ["with space", "quote'd", "ü\ttab", "a=b,{c}"])
def test_odd_names_of_projects(box, name):
    folder = box.home(name)
    box.identity.file(os.path.join(folder, "file"), "there\n")
    result = box.run(sh("cat file && echo made > made"), cwd=folder)
    if result.exit == 125:  # a tool that cannot take such a name must say so and start nothing
        assert box.name == "firejail" and "name" in result.stderr, result
        return
    assert result.stdout == "there\n" and os.path.exists(os.path.join(folder, "made")), result


def test_binary_stdin(box):
    data = os.urandom(300_000)
    status, out, err = feed(box, ["cat"], data)
    assert status == 0 and out == data, err


@pytest.mark.essential
def test_stdout_and_stderr_stay_apart(box):
    result = box.run(sh("echo out; echo err >&2"))
    said = [line for line in result.stderr.splitlines() if not line.startswith("sandbox: warning:")]
    assert result.stdout == "out\n" and said == ["err"], result


@pytest.mark.essential
def test_json_result(box):
    result = box.run(sh("echo out; echo err >&2; exit 3"), options=["--json"])
    answer = json.loads(result.stdout)
    assert result.exit == 3 and answer["exitCode"] == 3 and answer["success"] is False
    assert answer["stdout"] == "out\n" and answer["stderr"] == "err\n", answer
    assert answer["backend"] == box.name and answer["resourceUsage"]["wallTime"] > 0


@pytest.mark.once
def test_changes_are_reported(box):
    result = box.run(sh("echo x > new; rm README.md; mkfifo pipe"), options=["--json"])
    changes = json.loads(result.stdout)["changes"]
    assert (changes["created"], changes["deleted"]) == (2, 1), changes
    assert "pipe" in json.dumps(changes["items"]), changes


@pytest.mark.once
def test_the_start_is_in_the_audit_log(box):
    answer = json.loads(box.run(["true"], options=["--json"]).stdout)
    log = box.plain([box.world.command, "audit", "--json"])
    assert answer["sid"] in log.stdout and '"bwrap"' in log.stdout, log


@pytest.mark.once
@pytest.mark.parametrize("gone", ["rm {0}/socket", "rm -r {0}"], ids=["socket", "folder"])
def test_what_is_to_be_hidden_vanishes_before_the_tool_starts(box, gone):
    """A socket of another program, with the folder that it is in; sessions that start make such."""
    folder, tools = box.home("passing"), box.home("tools")
    box.identity.folder(folder)
    script = f'#!/bin/sh\n[ "$1" = --version ] || {gone.format(folder)} 2>&-\nexec {shutil.which("bwrap")} "$@"\n'
    os.chmod(box.identity.file(f"{tools}/bwrap", script), 0o755)
    with gates.listening(box, f"{folder}/socket"):
        result = box.run(sh("echo ran"), options=["--json"], env={"PATH": f"{tools}:{os.environ['PATH']}"})
    answer = json.loads(result.stdout)
    assert not os.path.exists(f"{folder}/socket"), "it was not what was meant"
    assert result.exit == 0 and (answer["stdout"], answer["stderr"]) == ("ran\n", ""), result


def test_a_terminal(box):
    result = box.run(sh("test -t 0 && test -t 1 && echo yes"), tty=True)
    assert "yes" in result.stdout and result.exit == 0 and result.terminal_restored, result


def test_ctrl_c_on_a_terminal(box):
    """The command catches it and goes on; the tool around it must survive it, too."""
    master, slave = pty.openpty()
    box.identity.own(os.ttyname(slave))
    process = box.popen(
        box.wrap(sh("trap 'echo caught' INT; echo ready; read line; echo got $line; exit 42")),
        stdin=slave, stdout=slave, stderr=slave,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(slave)
    seen = b""

    def see(text):
        nonlocal seen
        while text not in seen:
            ready, _, _ = select.select([master], [], [], harness.TIMEOUT)
            assert ready, f"waited for {text}, saw {seen}"
            seen += os.read(master, 4096)

    try:
        see(b"ready")
        os.write(master, b"\x03")
        if box.name == "firejail":  # takes it as the end, whatever the command makes of it, and does not wait for it
            expected = 130
        else:
            # Some shells end `read` at a signal; what counts is that the trap ran and the end is theirs.
            see(b"caught")
            os.write(master, b"word\n")
            expected = 42
        process.wait(harness.TIMEOUT)
        assert process.returncode == expected, (process.returncode, seen)
    finally:
        process.kill()
        process.wait()
        os.close(master)


# ---- signals and ends ----


@pytest.mark.essential
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_command(box, number):
    name = signal.Signals(number).name[3:]
    process = box.start(sh(f"trap 'echo caught; exit 42' {name}; echo ready > ready; "
                           "while :; do sleep 0.05; done"),
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: os.path.exists(box.path("ready")), "the command")
    time.sleep(0.1)
    process.send_signal(number)
    out, err = process.communicate(timeout=harness.TIMEOUT)
    assert (process.returncode, out) == (42, b"caught\n"), err


@pytest.mark.essential
def test_time_limit(box):
    result = box.run(sh("trap 'echo asked; exit 0' TERM; echo start; while :; do sleep 0.05; done"),
                     options=["--timeout", "6" if box.ready.engine.slow else "1"])
    assert result.exit == 124 and result.stdout == "start\nasked\n", result


@pytest.mark.once
def test_time_limit_of_a_command_that_ignores_it(box):
    result = box.run(sh("trap '' TERM; while :; do sleep 0.05; done"), options=["--timeout", "1"])
    assert result.exit == 124, result


@pytest.mark.essential
def test_what_runs_in_the_background_ends_with_the_command(box):
    box.run(sh("(while :; do date > beat; sleep 0.05; done) >/dev/null 2>&1 & "
               "while ! test -e beat; do sleep 0.02; done"))
    os.unlink(box.path("beat"))
    time.sleep(0.3)
    assert not os.path.exists(box.path("beat")), "it goes on"


@pytest.mark.essential
def test_nothing_is_left_when_we_are_killed(box):
    process = box.start(sh("setsid sh -c 'while :; do date > beat; sleep 0.05; done' & "
                           "trap '' TERM INT HUP; while :; do sleep 1; done"),
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: os.path.exists(box.path("beat")), "the command")
    process.kill()
    process.wait()

    def silent():
        if os.path.exists(box.path("beat")):
            os.unlink(box.path("beat"))
        time.sleep(0.2)
        return not os.path.exists(box.path("beat"))

    wait_for(silent, "the end of what it started", 5)
    # Placeholders of a killed session go with the next start.
    box.run(["true"])


@pytest.mark.once
def test_nothing_is_left_when_the_guard_is_killed(box):
    process = box.start(sh("setsid sleep 1000 & touch ready; sleep 1000"), stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL)
    wait_for(lambda: os.path.exists(box.path("ready")), "the command")
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
        os.kill(int(children.read().split()[0]), signal.SIGKILL)
    assert harness.shell_status(process.wait(harness.TIMEOUT)) == 137


@pytest.mark.once
def test_an_early_signal_is_not_lost(box):
    for delay in (0, 0.01, 0.03, 0.06):
        process = box.start(["sleep", "100"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        process.send_signal(signal.SIGTERM)
        assert harness.shell_status(process.wait(harness.TIMEOUT)) == 143


# ---- limits ----


LIMITS = {
    "memory": ("limit-memory", ["--memory", "512M"]), "cpu": ("limit-cpu", ["--cpus", "1.5"]),
    "processes": ("limit-processes", ["--pids", "200"]), "disk": ("limit-disk", ["--disk", "1G"]),
    "inodes": ("limit-disk", ["--inodes", "10000"]), "io": ("limit-io", ["--io", "100M"]),
    "open-files": ("limit-files", ["--open-files", "256"]),
    "file-size": ("limit-files", ["--file-size", "100M"]), "time": ("limit-time", ["--timeout", "60"]),
}


MENTIONED = {"memory": "memory", "cpu": "processor", "processes": "processes", "disk": "disk",
             "inodes": "files", "io": "input and output"}


@pytest.mark.essential
def test_every_limit_is_held_or_refused_by_name(box):
    """As the matrix says, and as the result says."""
    features = box.ready.entry["features"]

    def enforcers(asked):
        options = [word for _, words in asked.values() for word in words]
        answer = json.loads(box.run(["true"], options=["--json", "--weaken", *options]).stdout)
        return {name: entry["enforcedBy"] for name, entry in answer["limits"].items()}

    held = {name: row for name, row in LIMITS.items() if features[row[0]] == "yes"}
    rest = {name: row for name, row in LIMITS.items() if name not in held}
    by = enforcers(held)
    assert by.keys() == held.keys() and "none" not in by.values(), by
    if rest and box.name != "native":  # which has `require: preferred` for it
        by = enforcers(rest)
        assert by.keys() == rest.keys() and set(by.values()) == {"none"}, by
    if rest:
        words = [word for _, options in rest.values() for word in options]
        refusal = box.run(["touch", "made"], options=["--strict", *words])
        assert refusal.exit == 125 and "fix:" in refusal.stderr, refusal
        named = [name for name in rest if MENTIONED[name] in refusal.stderr]
        assert named if box.name == "native" else named == list(rest), refusal  # it names the first
        assert not os.path.exists(box.path("made"))


@pytest.mark.needs("limit-files")
def test_limit_of_open_files(box):
    assert box.run(sh("ulimit -n"), options=["--open-files", "64"]).stdout == "64\n"


@pytest.mark.needs("limit-memory")
def test_limit_of_memory(box):
    hog = sh("head -c 200000000 /dev/zero | tail | wc -c")
    assert "200000000" in box.run(hog, timeout=60).stdout, "control"
    result = box.run(hog, options=["--memory", "64M"], timeout=60)
    assert "200000000" not in result.stdout, result


@pytest.mark.needs("limit-processes")
def test_limit_of_processes(box):
    many = sh("for i in $(seq 60); do sleep 2 & done; wait; echo all")
    result = box.run(many, options=["--pids", "30"], timeout=60)
    assert "fork" in result.stderr.lower() or result.exit != 0, result
