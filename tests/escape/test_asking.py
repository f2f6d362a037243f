"""Rows about questions and approvals: whoever is asked about must not be the one who answers, and
what is denied must not become a question. See the README for the rows that tests/cli has."""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest

import dynamic
from sessions import eventually, listed, sandbox

pytestmark = pytest.mark.escape

# Connects to the socket and approves whatever waits, as the example client does. Prints what it got.
SELF_APPROVAL = """
import json, os, socket, sys
line = socket.socket(socket.AF_UNIX)
try:
    line.connect(sys.argv[1])
    lines = line.makefile("rwb", 0)
    lines.readline()
    lines.write(b'{"cmd":"cmd.pending"}\\n')
    for request in json.loads(lines.readline())["requests"]:
        lines.write(json.dumps({"cmd": "cmd.approve", "id": request["id"],
                                "scope": "session"}).encode() + b"\\n")
        print("answered", json.loads(lines.readline()), flush=True)
except OSError as error:
    print("refused", error.strerror, flush=True)
"""


@pytest.fixture
def data(box):
    return dynamic.ground(box)


def socket_of(box, sid):
    return os.path.join(box.identity.runtime, "sandbox", sid, "control.sock")


def approve_from_inside(box, data, path_of):
    """The output of a session that waits for a file and tries to approve itself."""
    script = (f"while ! test -s socket; do sleep 0.02; done; (cat {data}/a.txt; echo cat $?) & "
              f"sleep 0.3; /usr/bin/python3 -c \"$CODE\" \"$(cat socket)\"; touch tried; wait")
    with dynamic.asking(box, ["sh", "-c", script], "--env", f"CODE={SELF_APPROVAL}") as session:
        box.identity.file(box.path("socket"), path_of(session.sid))
        assert eventually(lambda: os.path.exists(box.path("tried")), 10)
        with session.watch() as control:
            waiting = dynamic.question(control)
            assert waiting["path"] == f"{data}/a.txt", f"asked about {waiting['path']}"
            dynamic.answer(control, {"cmd": "cmd.deny", "id": waiting["id"], "rest": True})
            return session.result()[1]


def test_socket_from_inside(box, data):
    """E118: a command that finds the control socket and approves itself."""
    with dynamic.asking(box, ["cat", f"{data}/a.txt"]) as session:
        eventually(lambda: [entry for entry in listed(box) if entry["pending"]])
        control = box.plain(["/usr/bin/python3", "-c", SELF_APPROVAL, socket_of(box, session.sid)])
        assert "answered {'ok': True}" in control.stdout, control
        assert session.result()[:2] == (0, "content of a\n")
    out = approve_from_inside(box, data, lambda sid: socket_of(box, sid))
    assert "refused" in out and "answered" not in out and "cat 1" in out, out


def test_folder_of_the_sockets_is_never_asked_about(box, data):
    """E118: nor can a person be brought to open the way to it."""
    folder = os.path.join(box.identity.runtime, "sandbox")
    script = (f"ls {folder}; ls {box.identity.runtime}; ls {box.identity.state}/sandbox; "
              f"cat {folder}/*/state.json; cat {data}/a.txt")
    with dynamic.asking(box, ["sh", "-c", script]) as session, session.watch() as control:
        asked = dynamic.question(control)
        assert asked["path"] == f"{data}/a.txt", asked
        dynamic.answer(control, {"cmd": "cmd.deny", "id": asked["id"]})
        code, out, err = session.result()
        assert (code, out) == (1, "") and session.sid not in err, (out, err)


def test_verbs_from_inside(box, data):
    """E118: our own command, run inside, sees no session."""
    shutil.copy(box.world.command, box.path("own"))
    box.identity.own(box.path("own"))
    script = "./own ps -q; ./own watch --json & sleep 0.3; kill $!; echo end"
    with dynamic.asking(box, ["sh", "-c", script]) as session:
        assert session.result()[1] == "end\n"


@pytest.mark.parametrize("trick", ["symbolic link", "hard link"])
def test_secret_by_another_name(box, data, trick):
    """E14, E15 in dynamic mode: the question would show a harmless name."""
    make = os.symlink if trick == "symbolic link" else os.link
    make(box.home(".ssh/id_rsa"), f"{data}/innocent.txt")
    control = box.plain(["cat", f"{data}/innocent.txt"])
    assert box.canary in control.stdout
    with dynamic.asking(box, ["sh", "-c", f"cat {data}/innocent.txt; cat {data}/a.txt"]) as session, \
            session.watch() as control:
        asked = dynamic.question(control)
        assert asked["path"] == f"{data}/a.txt", f"asked about {asked['path']}"
        dynamic.answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "session"})
        code, out, _ = session.result()
        assert (code, out) == (0, "content of a\n")


def test_explicit_deny_is_silent_and_audited(box, data):
    """E127: what a rule hides is never asked about, whoever is there to answer."""
    dynamic.write_policy(box, f"filesystem: {{hide: [{data}/b.txt]}}\n")
    with dynamic.asking(box, ["cat", f"{data}/b.txt"]) as session:
        code, out, err = session.result()
        assert (code, out) == (1, "") and "denied:" not in err, err
        sid = session.sid
    lines = [line for line in dynamic.audit_lines(box, sid) if line.get("event") == "decision"]
    assert [(line["decision"], line["path"], line["store"]) for line in lines] == [
        ("hide", f"{data}/b.txt", "user")], lines


def test_policy_of_a_repository_does_not_answer(box, data):
    """E128: the project's own policy allows what would be asked, and a secret."""
    box.identity.file(box.path(".sandbox/policy.yaml"),
                      f"version: 1\nfilesystem: {{read: [~/.ssh, {data}], ask_secrets: true}}\n")
    script = f"cat ~/.ssh/id_rsa; cat {data}/a.txt"
    with dynamic.asking(box, ["sh", "-c", script]) as session, session.watch() as control:
        asked = dynamic.question(control)
        assert asked["path"] == f"{data}/a.txt" and asked["secret"] is None
        dynamic.answer(control, {"cmd": "cmd.deny", "id": asked["id"]})
        code, out, _ = session.result()
        assert (code, out) == (1, "")
    assert sandbox(box, "policy", "trust").exit == 0  # the control: now it does
    assert dynamic.run(box, ["cat", f"{data}/a.txt"]).stdout == "content of a\n"
    sandbox(box, "policy", "trust", "--revoke")


def test_write_to_our_own_policy_is_not_asked_about(box, data):
    """E50 with ask_writes: an answer must not widen what the next session may do."""
    dynamic.write_policy(box, "filesystem: {ask_writes: true}\n")
    script = (f"echo x >> ~/.config/sandbox/policy.yaml; echo x > ~/.config/sandbox/new; "
              f"echo x >> {box.project}/.sandbox/policy.yaml; echo x >> ~/.bashrc; "
              f"echo x >> {data}/a.txt")
    with dynamic.asking(box, ["sh", "-c", script]) as session, session.watch() as control:
        asked = dynamic.question(control)
        while asked["op"] != "write":
            dynamic.answer(control, {"cmd": "cmd.deny", "id": asked["id"]})
            asked = dynamic.question(control)
        assert asked["path"] == f"{data}/a.txt", asked
        dynamic.answer(control, {"cmd": "cmd.deny", "id": asked["id"]})
        session.result()


# ---- sudden death ----


def test_monitor_killed_while_it_asks(box, data):
    """Nothing opens; the command is gone, and the next look tidies up."""
    with dynamic.asking(box, ["sh", "-c", f"cat {data}/a.txt > got; sleep 60"]) as session:
        assert eventually(lambda: [entry for entry in listed(box) if entry["pending"]])
        inside = [process["host_pid"] for process in
                  json.loads(sandbox(box, "ps", "--json", session.sid).stdout)]
        os.kill(session.process.pid, signal.SIGKILL)
        session.process.wait(5)
        assert eventually(lambda: not [pid for pid in inside if os.path.exists(f"/proc/{pid}/exe")])
        assert os.path.getsize(box.path("got")) == 0
    assert listed(box) == []


def test_watch_killed_while_it_is_asked(box, data):
    """The last supervisor dies: denied once. Nothing else changes."""
    script = f"while ! test -e go; do sleep 0.02; done; cat {data}/a.txt; echo $?"
    with dynamic.asking(box, ["sh", "-c", script], supervised=False) as session:
        viewer = box.popen([box.world.command, "watch", "--json", session.sid],
                           stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        try:
            time.sleep(0.3)
            box.identity.file(box.path("go"), "")
            assert b"event.fs_request" in viewer.stdout.readline()
        finally:
            viewer.kill()
            viewer.communicate()
        assert session.result()[1] == "1\n"


def test_stopped_monitor_opens_nothing(box, data):
    with dynamic.asking(box, ["sh", "-c", f"cat {data}/a.txt; echo $?"]) as session:
        waiting = eventually(lambda: [entry for entry in listed(box) if entry["pending"]])
        os.kill(waiting[0]["pid"], signal.SIGSTOP)
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                session.process.wait(0.5)
        finally:
            os.kill(waiting[0]["pid"], signal.SIGCONT)
        with session.watch() as control:
            asked = dynamic.question(control)
            dynamic.answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "session"})
        assert session.result()[1] == "content of a\n0\n"
