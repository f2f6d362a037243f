"""The Python binding, as a program of the user would use it."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3"


@pytest.fixture
def python(box, build):
    """Runs a program with `sandbox` imported and COMMAND set; what it prints as JSON comes back."""
    library = build / "src/api/libsandbox.so.0"
    if "__asan_init" in subprocess.run(["nm", "-D", library], capture_output=True, text=True).stdout:
        pytest.skip("a sanitized library needs a sanitized Python")
    folder = box.home("binding")
    box.identity.folder(folder)
    for file in (library, ROOT / "python/sandbox.py"):
        shutil.copy(file, folder)
    head = (f"import json, os, sys\nsys.path.insert(0, {folder!r})\nimport sandbox\n"
            f"from sandbox import *\nCOMMAND = {box.world.command!r}\n"
            "def show(value): print(json.dumps(value), flush=True)\n")

    def words(program):
        return [PYTHON, "-c", head + program]

    def run(program):
        result = box.plain(words(program), env=environment, timeout=60)
        assert result.exit == 0, result
        return json.loads(result.stdout)

    environment = {"SANDBOX_LIBRARY": os.path.join(folder, "libsandbox.so.0")}
    run.start = lambda program: box.popen(words(program), env=environment, stdout=subprocess.PIPE,
                                          text=True)
    return run


BOX = "box = Sandbox({'mode': 'static'}, command=COMMAND)\n"


def test_run(python):
    shown = python(BOX + """
result = box.run("echo out; echo err >&2; exit 3")
show([result.success, result.exit_code, result.stdout, result.stderr, result.resource_usage,
      result.backend, result.raw["mode"]])""")
    assert shown[:4] == [False, 3, "out\n", "err\n"]
    assert shown[4]["wall_time"] > 0 and set(shown[4]) == {"wall_time", "cpu_time", "memory_peak"}
    assert shown[5:] == ["native", "static"]


def test_it_is_a_sandbox(python, box):
    assert python(BOX + f"""
result = box.run(["sh", "-c", "cat ~/.ssh/id_rsa; echo x > {box.home('planted')}; echo y > made"])
show(result.stderr)""").count("\n") == 2
    assert not os.path.exists(box.home("planted")) and os.path.exists(box.path("made"))


def test_words_input_and_bytes(python):
    assert python(BOX + r"""
result = box.run(["cat"], input=b"a\xff\x00b")
show([list(result.stdout_bytes), box.run(["printf", "%s|", "a b", "$x"]).stdout])""") == [
        [97, 255, 0, 98], "a b|$x|"]


def test_policy_options_and_limits(python):
    shown = python("""
box = Sandbox("version: 1\\nmode: static\\nlimits: {timeout_seconds: 1}\\n", command=COMMAND)
events = []
result = box.run("sleep 30", on_event=events.append)
other = Sandbox(command=COMMAND, static=True, env=["A=1", "B=2"]).run("echo $A$B")
show([result.exit_code, result.limit_hit, [event["event"] for event in events], other.stdout])""")
    assert shown == [124, "time", ["started", "ready", "limit", "exited"], "12\n"]


def test_failures(python):
    shown = python(BOX + """
def failure(call):
    try:
        call()
    except SandboxError as error:
        return [error.code, error.message, error.hint]
show([failure(lambda: box.run(["nosuchprogram"])),
      failure(lambda: Sandbox({"filesystm": {}}, command=COMMAND).run("true")),
      failure(lambda: box.run("true", nosuch="x")),
      failure(lambda: box.run("true", json=True)),
      failure(lambda: Sandbox(command="/nonexistent").run("true")),
      failure(lambda: Sandbox({"filesystm": {}}).decide("true")),
      failure(lambda: Session.open("nosuch"))])""")
    assert [entry[0] for entry in shown] == ["not-found", "policy", "usage", "usage", "not-found",
                                             "policy", "not-found"]
    assert "filesystem" in shown[1][2], "no hint"


def test_session(python):
    shown = python(BOX + """
with box.session() as session:
    first = session.exec("echo $((6*7)) > answer; exit 4")
    second = session.exec(["cat", "answer"])
    third = session.exec("cat; echo $X", input="in ", environment={"X": "set"})
    with_id = Session.open(session.id)
    fourth = with_id.exec(["true"])
    with_id.close()
    stats = session.stats()
    ended = [session.wait(0.01)]
    session.kill(now=True)
    ended.append(session.wait(5))
show([first.exit_code, second.stdout, third.stdout, fourth.success, stats["execs_total"], ended])""")
    assert shown == [4, "42\n", "in set\n", True, 4, [False, True]]


def test_decide_explain_wrap(python, box):
    shown = python("""
box = Sandbox({"mode": "static", "commands": {"exclude": ["true"], "allow_unsandboxed": True}},
              command=COMMAND)
yes, no = box.decide(["true"]), box.decide("true; ls")
show([yes.excluded, yes.sandboxed, yes.needs_approval, no.sandboxed, no.reasons != [],
      box.explain("/etc/shadow")["verdict"], box.explain("x", write=True)["verdict"],
      box.wrap_command(["echo", "hi"], "seatbelt")[-3:], sandbox.version().count(".")])""")
    assert shown == [True, False, True, True, True, "hide", "allow", ["--", "echo", "hi"], 2]


def test_other_programs_settings(python, box):
    file = box.identity.file(box.home("settings.json"), json.dumps({"sandbox": {
        "enabled": True, "autoAllowBashIfSandboxed": False, "excludedCommands": ["npm run x"]}}))
    shown = python(f"""
box = Sandbox.from_settings({file!r}, command=COMMAND)
show([box.lost, box.decide("ls").needs_approval, box.run("echo ran").stdout])""")
    assert len(shown[0]) == 1 and "npm run x" in shown[0][0]
    assert shown[1:] == [True, "ran\n"]


def test_a_supervisor(python, box):
    """Questions of dynamic mode, answered by a program."""
    file = box.identity.file(box.home("elsewhere/notes"), "asked for\n")
    shown = python(f"""
import threading
asked = []
def answer(events):
    for message in events:
        if message.get("event") == "event.fs_request":
            asked.append(message["path"])
            verb = "approve" if len(asked) == 1 else "deny"
            events.send({{"cmd": "cmd." + verb, "id": message["id"]}})
try:
    session = Sandbox({{"mode": "dynamic"}}, command=COMMAND).session()
except SandboxError as error:
    show([error.code])
    sys.exit()
with session:
    thread = threading.Thread(target=answer, args=[session.events(observe=False)])
    thread.start()
    first, second = session.exec(["cat", {file!r}]), session.exec(["cat", {file!r}])
    session.kill(now=True)
    thread.join()
show([first.stdout, second.exit_code, asked])""")
    if shown == ["unsupported"]:
        pytest.skip("dynamic mode cannot be had here")
    assert shown == ["asked for\n", 1, [file, file]]


def test_is_available(python):
    assert python(BOX + "show([box.is_available(), Sandbox(command='/nonexistent').is_available()])") \
        == [True, False]


SLEEP = f"sleep {100000 + os.getpid()}"  # nobody else's


def sleepers():
    found = subprocess.run(["pgrep", "-f", f"^{SLEEP}"], capture_output=True, text=True).stdout
    return found.split()


@pytest.mark.parametrize("program", [
    f'box.run("echo > mark; {SLEEP}")',
    f'session = box.session(); session.exec("echo > mark; {SLEEP}")',
], ids=["run", "session"])
def test_nothing_outlives_the_caller(python, box, program):
    """Killed without a chance to clean up."""
    assert not sleepers()
    process = python.start(BOX + program)
    end = time.monotonic() + 20
    while not (os.path.exists(box.path("mark")) and sleepers()):
        assert time.monotonic() < end and process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    while sleepers() or os.listdir(os.path.join(box.identity.runtime, "sandbox")):
        assert time.monotonic() < end, "the sandbox outlives its caller"
        time.sleep(0.05)


def test_the_command_is_killed(python, box):
    """The call fails, and what it started is gone."""
    shown = python(BOX + f"""
import signal, subprocess, threading, time
def kill():
    while not os.path.exists("mark"):
        time.sleep(0.01)
    child = subprocess.run(["pgrep", "-P", str(os.getpid()), "-x", "sandbox"], capture_output=True, text=True)
    os.kill(int(child.stdout), signal.SIGKILL)
thread = threading.Thread(target=kill)
thread.start()
try:
    show(box.run("echo > mark; {SLEEP}").exit_code)
except SandboxError as error:
    show([error.code, error.message])
thread.join()""")
    assert shown == ["system", "sandbox gave no result"]
    end = time.monotonic() + 10
    while sleepers():
        assert time.monotonic() < end
        time.sleep(0.02)
    box.plain([box.world.command, "ps"])  # sweeps what the killed one left
