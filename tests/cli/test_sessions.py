"""Running sessions seen from outside: ps, kill, stats, completion, and what a crash leaves."""

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import time

import pytest

from harness import SLOWNESS, TIMEOUT, Box, children, command_line
from sessions import eventually, idle, listed, monitor_of, processes_of, running, sandbox

ID = re.compile(r"[a-km-np-z2-9]{8}")
LOOP = "while :; do :; done"


def fails(box, *words, said):
    """A clear error, in words and as JSON where the verb has it. Returns nothing."""
    result = sandbox(box, *words)
    assert result.exit == 125 and result.stdout == "", result
    assert said in result.stderr and "\n  fix: " in result.stderr, result
    if words[0] in ("ps", "kill", "stats"):
        error = json.loads(sandbox(box, words[0], "--json", *words[1:]).stdout)["error"]
        assert said in error["message"] and error["code"] and error["hint"]


# ---- ps ----


def test_ps_without_sessions(box):
    assert sandbox(box, "ps").stdout.count("\n") == 1
    assert listed(box) == []
    assert sandbox(box, "ps", "-q").stdout == ""


def test_ps_says_what_runs(box):
    with running(box, ["sleep", "31"]) as (process, sid):
        assert ID.fullmatch(sid)
        # A busy machine may not answer within the little time that `ps` gives each session.
        (session,) = eventually(lambda: [one for one in listed(box) if one["responsive"]])
        assert session["sid"] == sid and session["pid"] == process.pid
        assert session["command"] == ["sleep", "31"]
        assert session["project"] == box.project and session["mode"] == "static"
        assert 0 <= session["age"] < 10 * SLOWNESS and session["pending"] == 0 and session["responsive"]
        assert session["usage"]["memory_bytes"] > 0 and session["usage"]["cpu_ns"] >= 0
        heading, line = sandbox(box, "ps").stdout.splitlines()
        assert heading.split() == ["SESSION", "AGE", "MODE", "CPU", "MEMORY", "PENDING", "PROJECT",
                                   "COMMAND"]
        assert line.startswith(sid) and line.endswith("sleep 31") and box.project in line
        assert sandbox(box, "ps", "-q").stdout == sid + "\n"
    assert listed(box) == []


def test_ps_shows_hostile_words_escaped(box):
    with running(box, ["sh", "-c", "sleep 30", "\x1b]0;evil\x07\n\u202e"]):
        out = sandbox(box, "ps").stdout
        assert out.count("\n") == 2 and "\x1b" not in out and "\x07" not in out
        assert "\u202e" not in out


def test_ps_of_one_session_has_pids_inside_and_outside(box):
    with running(box, ["sh", "-c", "sleep 32 & wait"]) as (_, sid):
        found = eventually(lambda: [p for p in processes_of(box, sid) if p["command"] == "sleep 32"])
        (sleep,) = found
        processes = {process["pid"]: process for process in processes_of(box, sid)}
        assert processes[1]["command"] == "sandbox-init" and processes[1]["parent"] == 0
        assert command_line(sleep["host_pid"]).split() == ["sleep", "32"]
        assert processes[sleep["parent"]]["parent"] == 1 and sleep["state"] in "SRD"
        text = sandbox(box, "ps", sid).stdout
        assert re.search(rf"^ +{sleep['pid']} +{sleep['host_pid']} .*sleep 32$", text, re.M), text


def test_ps_does_not_wait_for_a_stopped_session(box):
    with running(box, ["sleep", "30"]) as (process, sid), idle(box) as other:
        os.kill(process.pid, signal.SIGSTOP)
        result = sandbox(box, "ps", "--json")
        assert result.seconds < 2 * SLOWNESS
        answers = {session["sid"]: session["responsive"] for session in json.loads(result.stdout)}
        assert answers == {sid: False, other: True}
        assert sandbox(box, "exec", sid, "--", "true").exit == 125


def test_ps_does_not_wait_for_a_place_in_the_queue_of_a_stopped_session(box):
    """Everybody who has asked before and did not wait is still in it."""
    path = os.path.join(box.identity.runtime, "sandbox", "{}", "control.sock")
    with running(box, ["sleep", "30"]) as (process, sid), contextlib.ExitStack() as stack:
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(BlockingIOError):
            while True:
                client = stack.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(path.format(sid))
        result = sandbox(box, "ps", "--json", timeout=10)
        assert [session["responsive"] for session in json.loads(result.stdout)] == [False], result
        assert sandbox(box, "exec", sid, "--", "true", timeout=10).exit == 125
        os.kill(process.pid, signal.SIGCONT)
        stack.close()
        assert sandbox(box, "exec", sid, "--", "true", timeout=10).exit == 0, "the control"


def test_kill_reaches_a_stopped_session(box):
    with running(box, ["sleep", "30"]) as (process, sid):
        os.kill(process.pid, signal.SIGSTOP)
        assert sandbox(box, "kill", sid).exit == 0
        assert process.wait(TIMEOUT) == 137


# ---- names ----


def test_any_unambiguous_beginning_will_do(box):
    with idle(box) as sid:
        for length in (1, 4, 8):
            assert sandbox(box, "ps", sid[:length]).exit == 0


def test_unknown_session(box):
    with idle(box) as sid:
        for verb in ("ps", "kill", "stats"):
            for name in ("nosuchid", "", sid + "x", "../" + sid, sid.upper(), "."):
                fails(box, verb, name, said="no session")
        fails(box, "exec", "nosuchid", "--", "true", said="no session")
        fails(box, "attach", "nosuchid", said="no session")
        fails(box, "kill", sid, "nosuchid", said="nosuchid")
        assert [session["sid"] for session in listed(box)] == [sid]


def test_ambiguous_beginning_ends_nothing(box):
    sids = []
    try:
        while len(sids) < 33:
            sids.append(sandbox(box, "run", "--static", "--detach").stdout.strip())
            same = [sid for sid in sids if sid[0] == sids[-1][0]]
            if len(same) > 1:
                break
        fails(box, "kill", same[0][0], said="more than one session")
        assert all(sid in sandbox(box, "kill", same[0][0]).stderr for sid in same)
        assert sandbox(box, "exec", same[0][0], "--", "true").exit == 125
        assert {session["sid"] for session in listed(box)} == set(sids)
    finally:
        assert sandbox(box, "kill", "--all", "--now").exit == 0
    assert listed(box) == []


def test_sessions_of_another_user(host_root, world, box):
    other = "user" if box.identity.name == "root" else "root"
    stranger = Box(world, world.identity(other))
    with idle(box) as sid:
        for words in (["kill", sid], ["exec", sid, "--", "true"], ["ps", sid], ["stats", sid]):
            fails(stranger, *words, said="no session")
        if other == "user":  # nor by pointing at the other's folder
            result = stranger.plain([world.command, "kill", sid],
                                    env={"XDG_RUNTIME_DIR": box.identity.runtime})
            assert result.exit == 125, result
        assert [session["sid"] for session in listed(box)] == [sid]
        assert listed(stranger) == []


def test_completion_of_ids(box):
    with idle(box) as first, idle(box) as second:
        assert sandbox(box, "__complete", "sessions").stdout.split() == [first, second]
    assert sandbox(box, "__complete", "sessions").stdout == ""
    for shell in ("bash", "zsh", "fish"):
        assert "__complete sessions" in sandbox(box, "__complete", shell).stdout


# ---- kill ----


def test_kill_terminates_first(box):
    script = ("trap 'echo said goodbye > goodbye; exit 3' TERM; touch ready; "
              "while :; do sleep 0.02; done")
    with running(box, ["sh", "-c", script]) as (process, sid):
        assert eventually(lambda: os.path.exists(box.path("ready")))
        result = sandbox(box, "kill", sid)
        assert (result.exit, result.stdout, result.stderr) == (0, "", "")
        assert result.seconds < 1.5 * SLOWNESS
        process.wait(1)
    with open(box.path("goodbye")) as source:
        assert source.read() == "said goodbye\n"


def test_kill_kills_what_ignores_it(box):
    script = "trap '' TERM; setsid sleep 33 & touch ready; while :; do sleep 1; done"
    with running(box, ["sh", "-c", script]) as (process, sid):
        assert eventually(lambda: os.path.exists(box.path("ready")))
        result = sandbox(box, "kill", "--json", sid)
        assert json.loads(result.stdout)["ok"] is True
        assert 1.5 < result.seconds < 4 * SLOWNESS
        assert process.wait(1) == 137


def test_kill_now(box):
    with running(box, ["sh", "-c", "trap 'sleep 9' TERM; while :; do sleep 1; done"]) as (process, sid):
        result = sandbox(box, "kill", "--now", sid)
        assert result.exit == 0 and result.seconds < 1 * SLOWNESS
        assert process.wait(1) == 137


def test_kill_asks_every_command_of_the_session(box):
    """Also those that `exec` started, and an idle session has no others."""
    script = "trap 'echo said goodbye > goodbye; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    with idle(box) as sid:
        process = box.popen([box.world.command, "exec", sid, "--", "sh", "-c", script],
                            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        assert process.stdout.readline() == b"ready\n"
        assert sandbox(box, "kill", sid).exit == 0
        process.wait(TIMEOUT)
        process.stdout.close()
    with open(box.path("goodbye")) as source:
        assert source.read() == "said goodbye\n"


def test_nothing_is_left_when_kill_returns(box):
    before = set(children())
    for _ in range(10):
        with idle(box) as sid:
            assert os.path.isdir(box.path(".devcontainer"))
            assert sandbox(box, "kill", sid).exit == 0
            assert not os.path.lexists(box.path(".devcontainer")), "a placeholder is still there"
            left = set(os.listdir(os.path.join(box.identity.runtime, "sandbox")))
            assert left <= {"placeholders"}, left  # stands, empty, where there is no home
        # The monitor hangs up as its last act, and is gone a moment later.
        assert eventually(lambda: set(children()) <= before)


def test_kill_all(box):
    with idle(box), idle(box), running(box, ["sleep", "30"]) as (process, _):
        assert sandbox(box, "kill", "--all").exit == 0
        assert listed(box) == []
        assert process.wait(1) == 137
    assert sandbox(box, "kill", "--all").exit == 0


def test_verbs_need_a_session(box):
    for verb in ("kill", "stats", "attach", "exec"):
        result = sandbox(box, verb)
        assert result.exit == 125 and "fix: sandbox " + verb in result.stderr, result


# ---- detached ----


def test_detach_prints_the_id_and_returns(box):
    result = sandbox(box, "run", "--static", "--detach", "--json")
    sid = json.loads(result.stdout)["sid"]
    assert result.seconds < 2 * SLOWNESS and result.stderr == ""
    (session,) = listed(box)
    assert session["sid"] == sid and session["detached"] and session["command"] is None
    assert sandbox(box, "kill", sid).exit == 0


def test_detach_takes_no_command(box):
    """It would be ignored: an idle session has none."""
    result = sandbox(box, "run", "--static", "--detach", "--", "sleep", "5")
    assert result.exit == 125 and "sandbox exec" in result.stderr, result
    assert sandbox(box, "run", "--static", "--detach", "-c", "true").exit == 125
    assert listed(box) == []


def test_detach_that_fails_says_so(box):
    for _ in range(10):
        result = sandbox(box, "run", "--static", "--detach", "-C", "/proc/self/nothing")
        assert result.exit == 125 and result.stdout == "", result
    box.identity.folder(box.home("r" * 110))  # too long for a socket: fails in the monitor
    for _ in range(10):
        result = sandbox(box, "run", "--static", "--detach",
                         env={"XDG_RUNTIME_DIR": box.home("r" * 110)})
        assert result.exit == 125 and result.stdout == "" and "XDG_RUNTIME_DIR" in result.stderr, result


def test_detached_session_keeps_no_descriptor_of_the_caller(box):
    reader, writer = os.pipe()
    result = sandbox(box, "run", "--static", "--detach", pass_fds=[writer])
    os.close(writer)
    try:
        ready, _, _ = select.select([reader], [], [], 2)
        assert ready and os.read(reader, 1) == b"", "the pipe is still open"
    finally:
        os.close(reader)
        sandbox(box, "kill", "--now", result.stdout.strip())


def test_detached_session_outlives_its_terminal(box):
    result = sandbox(box, "run", "--static", "--detach", tty=True)
    sid = ID.search(result.stdout).group(0)
    time.sleep(0.05)
    assert sandbox(box, "exec", sid, "--", "echo", "still here").stdout == "still here\n"
    assert sandbox(box, "kill", sid).exit == 0


# ---- stats ----


def test_stats_once(box):
    with running(box, ["sh", "-c", LOOP]) as (_, sid):
        def busy():
            return json.loads(sandbox(box, "stats", "--once", "--json", sid).stdout)["cpu_ns"] > 5e7
        assert eventually(busy)
        line = sandbox(box, "stats", "--once", sid).stdout
        assert re.fullmatch(rf"{sid}  age \d+s  cpu \d+\.\d\ds  memory .* \(peak .*\)  processes \d+  "
                            r"read .*  written .*\n", line), line


def test_stats_of_an_idle_session(box):
    """Nobody but its init is in it, and that is closed to a plain user."""
    with idle(box) as sid:
        sample = json.loads(sandbox(box, "stats", "--once", "--json", sid).stdout)
        assert sample["processes"] == 1 and sample["memory_bytes"] > 0 and sample["cpu_ns"] >= 0


def test_stats_as_a_stream(box):
    with running(box, ["sleep", "30"]) as (_, sid):
        process = box.popen([box.world.command, "stats", "--json", "--interval", "50ms", sid],
                            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        samples = [json.loads(process.stdout.readline()) for _ in range(4)]
        ages = [sample["age"] for sample in samples]
        assert ages == sorted(set(ages)) and all(sample["sid"] == sid for sample in samples)
        assert {"cpu_ns", "memory_bytes", "memory_peak_bytes", "processes", "io_read_bytes",
                "io_write_bytes", "limits", "decisions"} <= set(samples[0])
        sandbox(box, "kill", "--now", sid)
        process.stdout.read()
        assert process.wait(2) == 0
        process.stdout.close()


def test_stats_live_line_on_a_terminal(box):
    with running(box, ["sleep", "0.5"]) as (_, sid):
        result = sandbox(box, "stats", "--interval", "50ms", sid, tty=True)
        assert result.exit == 0
        assert result.stdout.count(sid) > 2 and result.stdout.count("\n") == 1, result
        assert result.stdout.startswith("\r\x1b[2K" + sid)


def test_stats_for_prometheus(box):
    with idle(box) as first, running(box, ["sleep", "30"]) as (_, second):
        text = sandbox(box, "stats", "--prometheus").stdout
    seen = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            seen.add(line.split()[2])
            continue
        if line.startswith("# HELP "):
            continue
        found = re.fullmatch(r'(sandbox_[a-z_]+)\{session="(\w+)"\} ([0-9.e+]+)', line)
        assert found and found[1] in seen and found[2] in (first, second), line
    for sid in (first, second):
        assert f'sandbox_processes{{session="{sid}"}}' in text


def test_stats_for_prometheus_of_one_session(box):
    with idle(box) as first, idle(box) as second:
        text = sandbox(box, "stats", "--prometheus", first).stdout
        assert f'sandbox_processes{{session="{first}"}}' in text and second not in text, text
        assert sandbox(box, "stats", "--prometheus", "nosuch").exit == 125


def test_figures_do_not_depend_on_limits(box):
    """A group that holds one limit counts one thing, on cgroup v1; the others are there as well."""
    spin = "end=$(($(date +%s) + 60)); while [ $(date +%s) -lt $end ]; do :; done"
    with running(box, ["sh", "-c", spin], "--pids", "50") as (_, sid):
        assert eventually(lambda: spent(box, sid) > 0), "no processor time"
        usage = json.loads(sandbox(box, "stats", "--once", "--json", sid).stdout)
        assert usage["memory_bytes"] > 0 and usage["processes"] > 0, usage
        assert re.search(r"cpu [0-9.]+s ", sandbox(box, "stats", "--once", sid).stdout)


def spent(box, sid):
    return json.loads(sandbox(box, "stats", "--once", "--json", sid).stdout)["cpu_ns"] or 0


@pytest.mark.parametrize("interval", ["0", "-1", "fast", "1.5s", "99999999d"])
def test_stats_interval_out_of_range(box, interval):
    result = sandbox(box, "stats", f"--interval={interval}", "whatever")
    assert result.exit == 125 and "--interval" in result.stderr and "fix:" in result.stderr


# ---- crashes ----


@pytest.mark.parametrize("next_command", [["ps"], ["__complete", "sessions"], ["kill", "--all"],
                                          ["run", "--static", "--", "true"]])
def test_next_command_cleans_up_after_a_crash(box, next_command):
    with running(box, ["sleep", "30"]) as (process, sid):
        os.kill(process.pid, signal.SIGKILL)
        process.wait(TIMEOUT)
        folder = os.path.join(box.identity.runtime, "sandbox", sid)
        assert os.path.isdir(folder), "nothing was left: nothing to clean"
        result = sandbox(box, *next_command)
        assert result.exit == 0 and sid not in result.stdout
        assert not os.path.exists(folder)
        assert not os.path.lexists(box.path(".devcontainer"))


def test_crash_of_a_detached_session(box):
    with idle(box) as sid:
        os.kill(monitor_of(box, sid), signal.SIGKILL)
        assert eventually(lambda: listed(box) == [])
        fails(box, "exec", sid, "--", "true", said="no session")


def test_a_foreign_folder_is_no_session(box):
    with idle(box) as sid:
        folder = os.path.join(box.identity.runtime, "sandbox", "something-else")
        box.identity.folder(folder)
        assert [session["sid"] for session in listed(box)] == [sid]
        assert os.path.isdir(folder)
        os.rmdir(folder)


@pytest.mark.parametrize("verb", [["ps"], ["kill", "--all"], ["policy", "revoke", "/opt/x"], ["watch"]])
def test_a_runtime_folder_that_is_not_ours_alone(box, verb):
    """Where everybody may make it (/dev/shm), another user can have been there first: with links to
    what is ours, which would be swept as a dead session is."""
    folder, runtime = box.home("precious"), box.home("shared")
    box.identity.file(os.path.join(folder, "state.json"), "{}\n")
    box.identity.folder(os.path.join(runtime, "sandbox"), 0o700)
    os.symlink(folder, os.path.join(runtime, "sandbox/abcdefgh"))

    def run():
        return sandbox(box, *verb, env={"XDG_RUNTIME_DIR": runtime})

    os.chmod(os.path.join(runtime, "sandbox"), 0o777)
    result = run()
    assert result.exit == 125 and "must be a folder of yours" in result.stderr, result
    assert os.listdir(folder) == ["state.json"]
    os.chmod(os.path.join(runtime, "sandbox"), 0o700)
    if verb == ["ps"]:
        assert run().exit == 0 and os.listdir(folder) == [], "control: it looks like a dead session"
