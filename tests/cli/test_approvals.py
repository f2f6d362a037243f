"""Questions and answers without a terminal: the protocol, the verbs, the stores, the result."""

import base64
import contextlib
import fcntl
import json
import os
import pathlib
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

import harness
from dynamic import (Watcher, answer, asking, audit_lines, ground, next_event, question, run,
                     write_policy)
from sessions import eventually, idle, listed, monitor_of, sandbox

ROOT = pathlib.Path(__file__).resolve().parents[2]


# What does not depend on who runs it.
once = pytest.mark.parametrize("identity", ["user"], indirect=True)


@pytest.fixture
def data(box):
    return ground(box)


# ---- nobody is there ----


def test_not_interactive_is_denied_at_once(box, data):
    result = run(box, ["cat", f"{data}/a.txt"])
    assert result.exit == 1 and result.stdout == "", result
    lines = [line for line in result.stderr.splitlines() if "denied:" in line]
    assert len(lines) == 1, result
    assert f"/cat may not read {data}/a.txt" in lines[0]
    assert f"sandbox run --ro {data}/a.txt" in lines[0]
    assert f"filesystem: {{read: ['{data}/a.txt']}}" in lines[0]
    # The very words work.
    result = run(box, ["cat", f"{data}/a.txt"], ["--ro", f"{data}/a.txt"])
    assert (result.exit, result.stdout) == (0, "content of a\n"), result
    write_policy(box, f"filesystem: {{read: ['{data}/a.txt']}}\n")
    result = run(box, ["cat", f"{data}/a.txt"])
    assert (result.exit, result.stdout) == (0, "content of a\n"), result


@once
def test_nobody_is_told_to_open_a_home_folder_to_list_it(box, data):
    more = {"env": {"HOME": data}}
    result = run(box, ["ls", data], **more)
    line = f"filesystem: {{list: ['{data}']}}"
    assert result.exit == 2 and line in result.stderr and "--ro" not in result.stderr, result
    # The very words work.
    write_policy(box, f"{line}\n")
    result = run(box, ["ls", data], **more)
    assert result.exit == 0 and "a.txt\n" in result.stdout, result


@once
def test_nobody_is_told_to_open_a_whole_home_folder(box, data):
    """A name that is not there is allowed by its folder; not if that is the home folder."""
    result = run(box, ["sh", "-c", f"echo x >{data}/new; echo x >~/.new"], ["--json"])
    below, home = json.loads(result.stdout)["denials"]
    assert below["flag"] == f"--rw {data}", below  # the control
    assert home["flag"] == f"--rw {box.home('.new')}", home
    assert f"create it, then: sandbox run {home['flag']}," in result.stderr, result
    box.identity.file(box.home(".new"), "")
    result = run(box, ["sh", "-c", "echo x >~/.new && cat ~/.new"], home["flag"].split())
    assert result.stdout == "x\n", result


@once
def test_nobody_is_told_to_open_what_many_programs_use(box):
    """In ~/.config is what is started at every login: what the line names opens no more than it has to."""
    box.identity.folder(box.home(".config/tool"))
    box.identity.folder(box.home(".cargo/bin"))
    result = run(box, ["sh", "-c", "mkdir ~/.config/new; echo x >~/.config/tool/new; touch ~/.config; "
                       "mkdir -p ~/.local/share/new; touch ~/.cargo/new"], ["--json"])
    flags = [denied["flag"] for denied in json.loads(result.stdout)["denials"]]
    assert flags == [f"--rw {box.home('.config/new')}", f"--rw {box.home('.config/tool')}", None,
                     f"--rw {box.home('.local/share/new')}", f"--rw {box.home('.cargo/new')}"], result
    box.identity.folder(box.home(".config/new"))
    result = run(box, ["sh", "-c", "echo x >~/.config/new/x && cat ~/.config/new/x; "
                       "mkdir ~/.config/autostart"], flags[0].split())
    assert result.stdout == "x\n" and result.exit == 1, result


@pytest.mark.parametrize("words", [(), ("--tty", "always")], ids=["plain", "terminal"])
def test_a_command_in_a_detached_session_is_told(box, data, words):
    """Its session has no stderr: the line comes to who runs the command. Not if it may be read."""
    made = sandbox(box, "run", "--mode", "dynamic", "--detach", "--ro", f"{data}/b.txt")
    assert made.exit == 0, made
    sid = made.stdout.strip()
    try:
        result = sandbox(box, "exec", *words, sid, "--", "cat", f"{data}/b.txt")
        assert result.stdout.strip() == "content of b" and result.stderr == "", result
        result = sandbox(box, "exec", *words, sid, "--", "cat", f"{data}/a.txt")
        assert result.exit == 1, result
        lines = [line for line in result.stderr.splitlines() if "denied:" in line]
        assert len(lines) == 1 and f"sandbox run --ro {data}/a.txt" in lines[0], result
    finally:
        sandbox(box, "kill", "--now", sid)


ODD_NAMES = ["[slug].js", "a$b", "~x", "it's", "back\\slash", "\u00fcml\u00e4ut \u202e\U0001f600", "new\nline",
             "**", '"', "#, {x: y}", os.fsdecode(b"not \xff\xc3(UTF-8)")]


@once
@pytest.mark.parametrize("name", ODD_NAMES)
def test_the_words_that_allow_it_are_exact(box, data, name):
    """Of names with characters that mean something to a shell, in YAML or in a pattern; each alone, as
    shown on stderr, in the result and by explain. The control: another name is still denied."""
    path = box.identity.file(f"{data}/{name}", "content of it\n")
    argv = ["cat", path, f"{data}/a.txt"]
    result = run(box, argv[:2], ["--json", "--report"])
    answered = json.loads(result.stdout)
    denied, = answered["denials"]
    assert denied["policy"] in result.stderr and denied["flag"] in result.stderr, result
    explained = sandbox(box, "policy", "explain", path).stdout
    assert denied["policy"] in explained and denied["flag"] in explained, explained
    reported = sandbox(box, "report", answered["sid"]).stdout
    assert f"to allow it: sandbox run {denied['flag']}\n" in reported, reported
    by_flag = box.plain(["bash", "-c", f"{shlex.quote(box.world.command)} run {denied['flag']} -- "
                         + shlex.join(argv)])
    assert by_flag.stdout == "content of it\n" and by_flag.exit == 1, by_flag
    write_policy(box, denied["policy"] + "\n")
    by_policy = run(box, argv)
    assert by_policy.stdout == "content of it\n" and by_policy.exit == 1, by_policy


@once
def test_names_are_no_words_of_the_line(box, data):
    """Neither advice of their own on stderr, nor another decision in the audit log."""
    name = "x: nobody was asked; to allow it: sandbox run --rw ~, session, by uid 0"
    path = box.identity.file(f"{data}/{name}", "content of it\n")
    result = run(box, ["cat", path])
    assert f'may not read "{path}": it is not allowed yet' in result.stderr, result
    logged = sandbox(box, "audit", "--path", path).stdout
    assert f'deny read "{path}" to ' in logged, logged


@once
def test_one_line_for_each_object(box, data):
    script = f"for i in 1 2 3 4 5; do cat {data}/a.txt; done; cat {data}/b.txt"
    result = run(box, ["sh", "-c", script])
    assert result.stderr.count("sandbox: warning: denied:") == 2, result


def test_denials_are_in_the_result_and_the_report(box, data):
    result = run(box, ["sh", "-c", f"cat {data}/a.txt {data}/a.txt ~/.ssh/id_rsa"], ["--json"])
    told = json.loads(result.stdout)
    denials = {item["path"]: item for item in told["denials"]}
    assert denials[f"{data}/a.txt"]["reason"] == "not-interactive"
    assert denials[f"{data}/a.txt"]["count"] >= 2
    assert denials[f"{data}/a.txt"]["flag"] == f"--ro {data}/a.txt"
    result = run(box, ["cat", f"{data}/b.txt"], ["--report"])
    sid = next(word for line in result.stderr.splitlines() if "session " in line
               for word in [line.split("session ")[1].split(":")[0]])
    report = sandbox(box, "report", sid)
    assert "denied:" in report.stdout and f"{data}/b.txt" in report.stdout, report


# ---- approving ----


def test_the_blocked_call_itself_goes_on(box, data):
    with asking(box, ["cat", f"{data}/a.txt"]) as session, session.watch() as control:
        asked = question(control)
        assert asked["path"] == f"{data}/a.txt"
        assert base64.b64decode(asked["path_b64"]) == f"{data}/a.txt".encode()
        assert asked["exe"].endswith("/cat") and asked["cwd"] == box.project
        assert asked["op"] in ("read", "stat") and asked["proposal"] == data
        assert asked["secret"] is None and 50 < asked["seconds_left"] <= 60
        assert answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "session"}) == {
            "ok": True}
        assert session.result()[:2] == (0, "content of a\n")


def test_denied_is_permission_denied(box, data):
    with asking(box, ["cat", f"{data}/a.txt"]) as session, session.watch() as control:
        assert answer(control, {"cmd": "cmd.deny", "id": question(control)["id"]}) == {"ok": True}
        code, out, err = session.result()
        assert (code, out) == (1, "") and "Permission denied" in err


def test_file_is_not_its_sibling(box, data):
    """E126."""
    with asking(box, ["cat", f"{data}/a.txt", f"{data}/b.txt"]) as session, \
            session.watch() as control:
        first = question(control)
        answer(control, {"cmd": "cmd.approve", "id": first["id"], "scope": "session"})
        second = question(control)
        assert second["path"] == f"{data}/b.txt" and second["id"] != first["id"]
        answer(control, {"cmd": "cmd.deny", "id": second["id"]})
        assert session.result()[:2] == (1, "content of a\n")


def test_folder_covers_what_is_below(box, data):
    script = f"cat {data}/a.txt {data}/b.txt {data}/deep/down/c.txt; ls {data}"
    with asking(box, ["sh", "-c", script]) as session, session.watch() as control:
        asked = question(control)
        answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "session",
                         "tree": asked["proposal"]})
        code, out, _ = session.result()
        assert code == 0 and out == ("content of a\ncontent of b\ncontent of c\n"
                                     "a.txt\nb.txt\ndeep\n")


def test_once_is_once(box, data):
    script = f"cat {data}/a.txt; cat {data}/a.txt"
    with asking(box, ["sh", "-c", script]) as session, session.watch() as control:
        first = question(control)
        answer(control, {"cmd": "cmd.approve", "id": first["id"]})
        again = question(control)
        assert again["path"] == f"{data}/a.txt"
        answer(control, {"cmd": "cmd.deny", "id": again["id"], "scope": "session"})
        code, out, _ = session.result()
        assert (code, out) == (1, "content of a\n")


@once
def test_first_specification(box, data):
    """The words of the requirement: scope file or dir, persist."""
    with asking(box, ["cat", f"{data}/a.txt", f"{data}/b.txt"]) as session, \
            session.watch() as control:
        asked = question(control)
        answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "dir"})
        assert session.result()[:2] == (0, "content of a\ncontent of b\n")


def test_verbs(box, data):
    with asking(box, ["cat", f"{data}/a.txt", f"{data}/b.txt"]) as session:
        waiting = eventually(lambda: [entry for entry in listed(box) if entry["pending"]])
        assert [(entry["sid"], entry["pending"]) for entry in waiting] == [(session.sid, 1)]
        with session.connect() as control:
            asked = control.call({"cmd": "cmd.pending"})["requests"][0]
        result = sandbox(box, "approve", session.sid[:4], asked["id"][:8], "--session")
        assert result.exit == 0, result
        second = eventually(lambda: [one for one in pending(session) if one["id"] != asked["id"]])
        assert sandbox(box, "deny", session.sid, second[0]["id"]).exit == 0
        assert session.result()[:2] == (1, "content of a\n")
        result = sandbox(box, "approve", session.sid, asked["id"])
        assert result.exit == 125, result


@once
def test_verbs_about_names(box, data):
    """A home folder can be listed for longer, and whoever allows that is told how little it is."""
    more = {"env": {"HOME": data}}
    with asking(box, ["sh", "-c", f"ls {data}; ls {data}; cat {data}/a.txt"], **more) as session:
        viewer = box.popen([box.world.command, "watch", session.sid], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                           text=True)
        try:
            assert "wants to list" in (line := viewer.stdout.readline()) and "its names, nothing else" in line, line
        finally:
            viewer.kill()
            viewer.communicate()
        asked = pending(session)[0]
        assert (asked["op"], asked["path"], asked["names"], asked["widest"]) == ("list", data, True, "org"), asked
        for words, why in ((("approve", "--tree", data), "too much to allow"), (("deny",), "can be denied only once")):
            result = sandbox(box, words[0], session.sid, asked["id"], "--session", *words[1:])
            assert result.exit == 125 and why in result.stderr, result
        result = sandbox(box, "approve", session.sid, asked["id"], "--session")
        assert result.exit == 0 and "only the names in it" in result.stderr, result
        asked = eventually(lambda: pending(session))[0]
        assert (asked["op"], asked["path"], asked["names"]) == ("read", f"{data}/a.txt", False), asked
        assert sandbox(box, "deny", session.sid, asked["id"]).exit == 0
        code, out, _ = session.result()
    assert code == 1 and out.count("a.txt\n") == 2 and "content" not in out, out


def pending(session):
    with session.connect() as control:
        return control.call({"cmd": "cmd.pending"})["requests"]


WRONG_WORDS = [
    (["approve"], "needs a session and a request"),
    (["approve", "{sid}", "nosuchid"], "no request 'nosuchid' waits"),
    (["approve", "{sid}", "{id:.7}"], "could be another request by now"),
    (["deny", "{sid}", "nosuch"], "no request 'nosuch' waits"),
    (["approve", "{sid}", "{id}", "--once", "--user"], "more than one scope"),
    (["approve", "{sid}", "{id}", "--session", "--tree", "/etc"], "is not a folder above"),
    (["approve", "{sid}", "{id}", "--session", "--tree", "/"], "too much to allow"),
    (["approve", "{sid}", "{id}", "--session", "--tree", "{home}"], "too much to allow"),
    (["approve", "{sid}", "{id}", "--tree", "{data}"], "cannot be allowed or denied just once"),
    (["deny", "{sid}", "{id}", "--always", "--session"], "more than one scope"),
]


@once
def test_wrong_words_change_nothing(box, data):
    with asking(box, ["cat", f"{data}/a.txt"]) as session:
        asked = eventually(lambda: pending(session))[0]
        names = {"sid": session.sid, "id": asked["id"], "home": box.identity.home, "data": data}
        for words, said in WRONG_WORDS:
            result = sandbox(box, *[word.format(**names) for word in words])
            assert result.exit == 125 and said in result.stderr, result
        assert [one["id"] for one in pending(session)] == [asked["id"]]


# ---- stores ----


@pytest.mark.parametrize("scope", ["project", "user"])
def test_stored_approval_holds_in_the_next_session(box, data, scope):
    with asking(box, ["cat", f"{data}/a.txt"]) as session:
        asked = eventually(lambda: pending(session))[0]
        assert sandbox(box, "approve", session.sid, asked["id"], f"--{scope}").exit == 0
        assert session.result()[0] == 0
    result = run(box, ["cat", f"{data}/a.txt"])
    assert (result.exit, result.stdout) == (0, "content of a\n"), result
    assert run(box, ["cat", f"{data}/b.txt"]).exit == 1
    # And not any more once it is revoked.
    result = sandbox(box, "policy", "revoke", f"{data}/a.txt")
    assert result.exit == 0 and "1 stored" in result.stdout, result
    assert run(box, ["cat", f"{data}/a.txt"]).exit == 1
    assert sandbox(box, "policy", "revoke", f"{data}/a.txt").exit == 125


@once
def test_deny_always(box, data):
    with asking(box, ["cat", f"{data}/a.txt"]) as session:
        asked = eventually(lambda: pending(session))[0]
        assert sandbox(box, "deny", session.sid, asked["id"], "--always").exit == 0
        assert session.result()[0] == 1
    with asking(box, ["cat", f"{data}/a.txt"]) as session:
        assert session.result()[0] == 1  # not asked again


@pytest.mark.parametrize("allowed", ["", "read", "write"])
def test_deny_writing_always(box, data, allowed):
    """What was denied is writing: reading is what it was before, in the next session as in this one."""
    policy = ["--policy", box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")]
    if allowed == "read":
        box.identity.file(box.home(".config/sandbox/grants.yaml"), "version: 1\ngrants:\n"
                          f"  - {{decision: allow, path: '{data}/a.txt', access: read}}\n")
    script = f"cat {data}/a.txt; echo x >>{data}/a.txt && echo WRITTEN; cat {data}/a.txt"
    with asking(box, ["sh", "-c", f"echo x >>{data}/a.txt"], *policy) as session, session.watch() as control:
        asked = question(control)
        assert asked["op"] == "write"
        assert answer(control, {"cmd": "cmd.deny", "id": asked["id"], "always": True}) == {"ok": True}
        session.result()
    assert f"deny write {data}/a.txt" in sandbox(box, "policy", "grants").stdout
    if allowed == "write":
        store = box.home(".config/sandbox/grants.yaml")
        box.identity.file(store, pathlib.Path(store).read_text() +
                          f"  - {{decision: allow, path: '{data}', access: write}}\n")
    for more in ([], policy):
        with asking(box, ["sh", "-c", script], *more) as session:
            if not allowed:
                with session.watch() as control:
                    asked = question(control)
                    assert asked["op"] == "read", asked
                    answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "session"})
            assert session.result()[1] == "content of a\ncontent of a\n"
    explained = sandbox(box, "policy", "explain", "--write", f"{data}/a.txt").stdout
    assert "not writable" in explained, explained


def test_revoke_in_a_running_session(box, data):
    script = (f"cat {data}/a.txt && touch one; while ! test -e two; do sleep 0.02; done; "
              f"cat {data}/a.txt")
    with asking(box, ["sh", "-c", script]) as session, session.watch() as control:
        asked = question(control)
        answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "session",
                         "tree": data})
        assert eventually(lambda: os.path.exists(box.path("one")))
        result = sandbox(box, "policy", "revoke", data, "--session", session.sid)
        assert result.exit == 0, result
        box.identity.file(box.path("two"), "")
        again = question(control)
        assert again["path"] == f"{data}/a.txt" and again["id"] != asked["id"]
        answer(control, {"cmd": "cmd.deny", "id": again["id"]})
        assert session.result()[:2] == (1, "content of a\n")


@once
def test_revoke_a_part_of_what_was_kept(box, data):
    """Who takes back a file is told of the folder that still gives it; and then it is gone."""
    for tree in (f"{data}/a.txt", data):
        name = "a" if tree != data else "b"
        with asking(box, ["cat", f"{data}/{name}.txt"]) as session:
            asked = eventually(lambda: pending(session))[0]
            given = sandbox(box, "approve", session.sid, asked["id"], "--user", "--tree", tree)
            assert given.exit == 0, given
            session.result()
    result = sandbox(box, "policy", "revoke", f"{data}/a.txt")
    assert result.exit == 0 and f"as a part of '{data}'" in result.stderr, result
    result = sandbox(box, "policy", "revoke", f"{data}/a.txt")
    assert result.exit == 125 and f"covered by '{data}'; revoke that" in result.stderr, result
    result = sandbox(box, "policy", "revoke", data)
    assert result.exit == 0 and result.stderr == "", result
    assert run(box, ["cat", f"{data}/a.txt"]).exit == 1


@once
def test_revoke_a_folder_around_what_was_kept(box, data):
    """In running sessions all in it is taken back; who revokes it is told of what stays for the next."""
    box.identity.file(box.home(".config/sandbox/grants.yaml"),
                      f"version: 1\ngrants:\n  - {{decision: allow, path: '{data}/a.txt', access: read}}\n")
    result = sandbox(box, "policy", "revoke", data)
    assert result.exit == 125 and f"'{data}/a.txt' in it was approved; revoke that" in result.stderr, result
    script = f"cat {data}/a.txt; touch one; while ! test -e two; do sleep 0.02; done; cat {data}/a.txt"
    with asking(box, ["sh", "-c", script], supervised=False) as session:
        assert eventually(lambda: os.path.exists(box.path("one")))
        result = sandbox(box, "policy", "revoke", data)
        box.identity.file(box.path("two"), "")
        assert session.result()[1] == "content of a\n"
    assert result.exit == 0 and f"may still use '{data}/a.txt' in it" in result.stderr, result
    assert run(box, ["cat", f"{data}/a.txt"]).stdout == "content of a\n"


@once
@pytest.mark.parametrize("access", ["read", "write"])
def test_revoke_a_denial_that_an_earlier_session_kept(box, data, access):
    """A session that began with it keeps to it, and is not counted; the next one is free of it."""
    box.identity.file(box.home(".config/sandbox/grants.yaml"), "version: 1\ngrants:\n"
                      f"  - {{decision: deny, path: '{data}/a.txt', access: {access}}}\n"
                      f"  - {{decision: allow, path: '{data}', access: write}}\n")
    use = f"cat {data}/a.txt >/dev/null && echo x >>{data}/a.txt && echo used"
    script = f"cat {data}/b.txt; {use}; touch one; while ! test -e two; do sleep 0.02; done; {use}; " \
             f"echo x >{data}/new && echo made"
    with asking(box, ["sh", "-c", script], supervised=False) as session:
        assert eventually(lambda: os.path.exists(box.path("one")))
        result = sandbox(box, "policy", "revoke", f"{data}/a.txt")
        box.identity.file(box.path("two"), "")
        out = session.result()[1]
    assert out == "content of b\nmade\n", "the folder around it is what it was"
    assert result.stdout == "revoked: 1 stored, in 0 running sessions\n", result
    assert run(box, ["sh", "-c", use]).stdout == "used\n"


def test_revoke_what_an_earlier_session_kept(box, data):
    """It was allowed from the start of this one, and is not any more."""
    with asking(box, ["cat", f"{data}/a.txt"]) as session:
        asked = eventually(lambda: pending(session))[0]
        assert sandbox(box, "approve", session.sid, asked["id"], "--user").exit == 0
        assert session.result()[0] == 0
    script = (f"cat {data}/a.txt && touch one; while ! test -e two; do sleep 0.02; done; "
              f"cat {data}/a.txt")
    with asking(box, ["sh", "-c", script], supervised=False) as session:
        assert eventually(lambda: os.path.exists(box.path("one")))
        result = sandbox(box, "policy", "revoke", f"{data}/a.txt")
        assert (result.exit, result.stdout) == (0, "revoked: 1 stored, in 1 running session\n")
        box.identity.file(box.path("two"), "")
        assert session.result()[:2] == (1, "content of a\n")


@pytest.mark.parametrize("identity", harness.SOME, indirect=True)
def test_revoke_what_a_session_does_not_confirm(box, data):
    """It may still have it, so that is a failure, with the session's name. The control: when it goes on, it
    confirms."""
    with asking(box, ["sh", "-c", f"cat {data}/a.txt; touch one; sleep 60"]) as session, \
            session.watch() as control:
        answer(control, {"cmd": "cmd.approve", "id": question(control)["id"], "scope": "session"})
        assert eventually(lambda: os.path.exists(box.path("one")))
        monitor = monitor_of(box, session.sid)
        os.kill(monitor, signal.SIGSTOP)
        try:
            result = sandbox(box, "policy", "revoke", f"{data}/a.txt")
        finally:
            os.kill(monitor, signal.SIGCONT)
        assert result.exit == 125 and f"sandbox kill {session.sid}" in result.stderr, result
        assert sandbox(box, "policy", "revoke", f"{data}/a.txt").exit == 0


def test_revoke_with_a_store_that_cannot_be_changed(box, data):
    """What runs is told all the same."""
    script = (f"cat {data}/a.txt && touch one; while ! test -e two; do sleep 0.02; done; "
              f"cat {data}/a.txt")
    with asking(box, ["sh", "-c", script]) as session, session.watch() as control:
        answer(control, {"cmd": "cmd.approve", "id": question(control)["id"], "scope": "session"})
        assert eventually(lambda: os.path.exists(box.path("one")))
        box.identity.file(box.home(".config", "sandbox", "grants.yaml"), "version: nonsense\n")
        result = sandbox(box, "policy", "revoke", f"{data}/a.txt")
        assert result.exit == 125 and "grants.yaml" in result.stderr, result
        box.identity.file(box.path("two"), "")
        answer(control, {"cmd": "cmd.deny", "id": question(control)["id"]})
        assert session.result()[:2] == (1, "content of a\n")


def test_revoke_what_a_static_session_may_write_to(box, data):
    """There it is mounted from the start, for good: that is said, with the session's name. The control: one for
    which nothing was kept is not named."""
    box.identity.file(box.home(".config/sandbox/grants.yaml"),
                      f"version: 1\ngrants:\n  - {{decision: allow, path: '{data}', access: write}}\n")
    with idle(box) as sid:
        assert sandbox(box, "exec", sid, "--", "touch", f"{data}/made").exit == 0
        result = sandbox(box, "policy", "revoke", f"{data}/below")
        assert result.exit == 125 and f"covered by '{data}'; revoke that" in result.stderr, result
        result = sandbox(box, "policy", "revoke", data)
        assert result.exit == 125 and f"sandbox kill {sid}" in result.stderr, result
        assert sandbox(box, "policy", "grants").stdout == ""
    box.identity.file(box.home(".config/sandbox/grants.yaml"),
                      f"version: 1\ngrants:\n  - {{decision: allow, path: '{data}', access: read}}\n")
    with idle(box):
        result = sandbox(box, "policy", "revoke", data)
        assert (result.exit, result.stdout) == (0, "revoked: 1 stored, in 0 running sessions\n"), result


@once
@pytest.mark.parametrize("name", ["example.org:443", "example.org", "Example.ORG:443", "[2001:db8::1]:443",
                                  "2001:db8::1"])
def test_revoke_a_host_as_it_is_shown(box, name):
    """Also if a file in the folder is called so: the command may have made it."""
    box.identity.file(box.home(".config/sandbox/grants.yaml"),
                      "version: 1\ngrants:\n  - {decision: allow, host: example.org, port: 443}\n"
                      "  - {decision: allow, host: '2001:db8::1', port: 443}\n")
    box.identity.file(box.path(name), "")
    assert sandbox(box, "policy", "grants").stdout.count("connect") == 2
    assert sandbox(box, "policy", "revoke", "example.org:80").exit == 125
    result = sandbox(box, "policy", "revoke", name)
    assert result.exit == 0 and "1 stored" in result.stdout, result
    assert sandbox(box, "policy", "grants").stdout.count("connect") == 1


@pytest.mark.parametrize("whole", [False, True])
def test_denying_what_was_revoked(box, data, whole):
    """Asked about again after the revocation, the answer counts, not what was kept before it."""
    with asking(box, ["cat", f"{data}/a.txt"]) as session:
        asked = eventually(lambda: pending(session))[0]
        assert sandbox(box, "approve", session.sid, asked["id"], "--user", "--tree", data).exit == 0
        assert session.result()[0] == 0
    script = (f"cat {data}/a.txt && touch one; while ! test -e two; do sleep 0.02; done; "
              f"cat {data}/a.txt; cat {data}/a.txt; cat {data}/b.txt")
    with asking(box, ["sh", "-c", script]) as session, session.watch() as control:
        assert eventually(lambda: os.path.exists(box.path("one")))
        assert sandbox(box, "policy", "revoke", data).exit == 0
        box.identity.file(box.path("two"), "")
        asked = question(control)
        deny = {"cmd": "cmd.deny", "id": asked["id"], "scope": "session"}
        assert answer(control, {**deny, "tree": data} if whole else deny) == {"ok": True}
        if not whole:  # the control: the other file is asked about
            other = question(control)
            assert other["path"] == f"{data}/b.txt"
            answer(control, {"cmd": "cmd.approve", "id": other["id"], "scope": "session"})
        out = session.result()[1]
    assert out == "content of a\n" + ("" if whole else "content of b\n")


def test_speaking_to_a_socket_is_never_kept(box, data):
    """Neither by itself nor by its folder: that would open every socket in it, without a question."""
    path = f"{data}/socket"
    connect = ["python3", "-c", f"import socket; socket.socket(socket.AF_UNIX).connect('{path}')"]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        box.identity.own(path)
        with asking(box, connect) as session, session.watch() as control:
            asked = question(control)
            assert (asked["op"], asked["widest"]) == ("connect", "session")
            for more in ({}, {"tree": data}):
                refused = answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "user",
                                           **more})
                assert "network.unix_sockets" in refused["error"]["hint"], refused
            assert answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "session",
                                    "tree": data}) == {"ok": True}
            assert session.result()[0] == 0
        assert sandbox(box, "policy", "grants").stdout == ""
        assert run(box, connect).exit == 1


@once
def test_export_says_that_answers_become_rules(box, data):
    assert sandbox(box, "policy", "export").stderr == "", "the control"
    box.identity.file(box.home(".config/sandbox/grants.yaml"), "version: 1\ngrants:\n"
                      f"  - {{decision: allow, path: '{data}', access: read}}\n")
    result = sandbox(box, "policy", "export")
    assert result.exit == 0 and data in result.stdout and "called like secrets" in result.stderr, result


@once
@pytest.mark.parametrize("name", ODD_NAMES)
def test_the_words_that_revoke_are_exact(box, data, name):
    """Of what was approved and leads elsewhere by now."""
    path = f"{data}/{name}"
    os.symlink("a.txt", path)
    box.identity.file(box.home(".config/sandbox/grants.yaml"), "version: 1\ngrants:\n"
                      "  - {decision: allow, access: read, path_b64: "
                      f"{base64.b64encode(os.fsencode(path)).decode()}}}\n")
    said = run(box, ["true"]).stderr
    words = re.search("run: sandbox (policy revoke .*)", said)[1]
    revoked = box.plain(["bash", "-c", f"{shlex.quote(box.world.command)} {words}"])
    assert revoked.exit == 0 and run(box, ["true"]).stderr == "", (said, revoked)


@once
@pytest.mark.parametrize("name", ODD_NAMES)
def test_export_can_be_loaded(box, data, name):
    """With what was approved for names that mean something elsewhere. The control: another name is not
    in it."""
    path = box.identity.file(f"{data}/{name}", "content of it\n")
    grants = box.identity.file(box.home(".config/sandbox/grants.yaml"), "version: 1\ngrants:\n"
                               "  - {decision: allow, access: read, path_b64: "
                               f"{base64.b64encode(os.fsencode(path)).decode()}}}\n")
    exported = sandbox(box, "policy", "export")
    assert exported.exit == 0, exported
    os.unlink(grants)
    box.identity.file(box.home(".config/sandbox/policy.yaml"), exported.stdout)
    assert sandbox(box, "policy", "check").exit == 0, exported
    result = run(box, ["cat", path, f"{data}/a.txt"])
    assert result.stdout == "content of it\n" and result.exit == 1, result
    assert sandbox(box, "policy", "export").stdout == exported.stdout


@once
def test_save(box, data):
    with asking(box, ["sh", "-c", f"cat {data}/a.txt; read x < /dev/null; sleep 20"]) as session, \
            session.watch() as control:
        asked = question(control)
        answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "session"})
        assert answer(control, {"cmd": "cmd.policy.save", "scope": "user"}) == {
            "ok": True, "saved": 1}
        assert "error" in answer(control, {"cmd": "cmd.policy.save", "scope": "once"})
    assert run(box, ["cat", f"{data}/a.txt"]).exit == 0


# ---- secrets and writes ----


def test_secrets_are_hidden_without_a_question(box, data):
    with asking(box, ["sh", "-c", f"cat ~/.ssh/id_rsa; cat {data}/a.txt"]) as session, \
            session.watch() as control:
        asked = question(control)
        assert asked["path"] == f"{data}/a.txt", "a secret was asked about"
        answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "session"})
        code, out, _ = session.result()
        assert (code, out) == (0, "content of a\n")


def test_ask_secrets(box, data):
    """With a warning; what a store hides is still never asked about."""
    write_policy(box, "filesystem: {ask_secrets: true, hide: [~/.aws]}\n")
    with asking(box, ["sh", "-c", "cat ~/.aws/credentials; cat ~/.netrc; cat ~/.netrc"]) as session, \
            session.watch() as control:
        asked = question(control)
        assert asked["path"] == box.home(".netrc") and asked["secret"], asked
        assert asked["widest"] == "session" and "proposal" not in asked
        assert "error" in answer(control, {"cmd": "cmd.approve", "id": asked["id"],
                                           "scope": "user"})
        answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "session"})
        code, out, _ = session.result()
        assert (code, out) == (0, f"{box.canary} .netrc\n" * 2)


def test_write_is_refused_and_reported(box, data):
    result = run(box, ["sh", "-c", f"echo x > {data}/new"], ["--json"])
    told = json.loads(result.stdout)
    assert told["exitCode"] != 0 and not os.path.exists(f"{data}/new")
    assert [item["access"] for item in told["denials"]] == ["write"], told["denials"]


def test_ask_writes(box, data):
    write_policy(box, "filesystem: {ask_writes: true}\n")
    with asking(box, ["sh", "-c", f"echo more >> {data}/a.txt"]) as session, \
            session.watch() as control:
        asked = question(control)
        while asked["op"] != "write":
            answer(control, {"cmd": "cmd.approve", "id": asked["id"]})
            asked = question(control)
        answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "session"})
        assert session.result()[0] == 0
    with open(f"{data}/a.txt") as source:
        assert source.read() == "content of a\nmore\n"


# ---- time, joining, floods ----


@once
def test_timeout_denies_once(box, data):
    """E125."""
    write_policy(box, "prompt: {timeout_seconds: 1}\n")
    with asking(box, ["sh", "-c", f"cat {data}/a.txt; cat {data}/a.txt"]) as session, \
            session.watch() as control:
        first = question(control)
        told = next_event(control, "event.withdrawn")
        assert (told["id"], told["reason"]) == (first["id"], "timeout")
        second = question(control)
        assert second["path"] == first["path"]
        answer(control, {"cmd": "cmd.approve", "id": second["id"], "scope": "session"})
        assert session.result()[:2] == (0, "content of a\n")
        sid = session.sid
    reasons = [line.get("reason") for line in audit_lines(box, sid)]
    assert "timeout" in reasons, reasons


def test_identical_requests_join(box, data):
    script = f"for i in 1 2 3 4 5 6 7 8; do cat {data}/a.txt & done; wait"
    with asking(box, ["sh", "-c", script]) as session:
        def all_wait():
            waiting = pending(session)
            return waiting if waiting and waiting[0]["waiting"] == 8 else None
        asked = eventually(all_wait)
        assert asked and len(asked) == 1, pending(session)
        with session.connect() as control:
            control.call({"cmd": "cmd.approve", "id": asked[0]["id"], "scope": "session"})
        assert session.result()[:2] == (0, "content of a\n" * 8)


@once
def test_flood(box, data):
    """E11: a thousand names at once are a few questions, one line, and a live supervisor."""
    for number in range(300):
        box.identity.file(f"{data}/many/{number}", "x\n")
    script = f"for i in $(seq 0 299); do cat {data}/many/$i & done; wait"
    with asking(box, ["sh", "-c", script]) as session, session.watch() as control:
        question(control)
        counts = eventually(lambda: (lambda now: now if now["flooded"] > 200 else None)(
            control_stats(session)))
        assert counts and counts["asked"] <= 64, control_stats(session)
        last = pending(session)[-1]
        with session.connect() as other:
            assert answer(other, {"cmd": "cmd.deny", "id": last["id"], "rest": True}) == {"ok": True}
        code, out, err = session.result()
        assert out == "" and "denied without asking" in err, err[-500:]
        sid = session.sid
    assert sum(line.get("not_asked", 0) for line in audit_lines(box, sid)) > 200


def control_stats(session):
    with session.connect() as control:
        return control.call({"cmd": "cmd.stats"})["decisions"]


def test_interrupted_call_withdraws_its_question(box, data):
    """E124: approved after the death of whoever asked: an error, and no rule."""
    script = f"cat {data}/a.txt & until [ -e go ]; do sleep 0.02; done; kill -9 $!; wait; cat {data}/b.txt"
    with asking(box, ["sh", "-c", script]) as session, session.watch() as control:
        first = question(control)
        box.identity.file(box.path("go"), "")
        told = next_event(control, "event.withdrawn")
        assert (told["id"], told["reason"]) == (first["id"], "withdrawn")
        refused = answer(control, {"cmd": "cmd.approve", "id": first["id"], "scope": "session"})
        assert refused["error"]["code"] == "conflict", refused
        second = question(control)
        assert second["path"] == f"{data}/b.txt"


# Opens a file by the bare call while a timer sends signals with a handler; prints what it returned.
SIGNALLED = """
import ctypes, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.03, 0.03)
print(libc.open(sys.argv[1].encode(), 0) >= 0, ctypes.get_errno())
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_other_signals_do_not_fail_the_call(box, data):
    """A timer, a child that ends, a window of another size: no local open fails because of them."""
    argv = ["/usr/bin/python3", "-c", SIGNALLED, f"{data}/a.txt"]
    assert box.plain(argv).stdout == "True 0\n"
    with asking(box, argv) as session, session.watch() as control:
        asked = question(control)
        time.sleep(0.3)
        assert [one["id"] for one in pending(session)] == [asked["id"]]
        answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "session"})
        assert session.result()[:2] == (0, "True 0\n")


@once
def test_signal_that_ends_after_one_that_does_not(box, data):
    """The kernel tells of the first only; the second must not be left waiting."""
    script = (f'/usr/bin/python3 -c "$CODE" {data}/a.txt & while ! test -e go; do sleep 0.02; done; '
              "kill -TERM $!; wait; echo end")
    with asking(box, ["sh", "-c", script], "--env", f"CODE={SIGNALLED}") as session, \
            session.watch() as control:
        asked = question(control)
        time.sleep(0.1)
        box.identity.file(box.path("go"), "")
        told = next_event(control, "event.withdrawn")
        assert (told["id"], told["reason"]) == (asked["id"], "withdrawn")
        assert session.result()[1] == "end\n"


@once
def test_last_supervisor_leaves(box, data):
    with asking(box, ["cat", f"{data}/a.txt"], supervised=False) as session:
        pass  # nobody was there
    script = f"while ! test -e go; do sleep 0.02; done; cat {data}/a.txt"
    with asking(box, ["sh", "-c", script], supervised=False) as session:
        with session.watch() as control:
            box.identity.file(box.path("go"), "")
            question(control)
        code, out, err = session.result()
        assert (code, out) == (1, ""), err


@once
def test_observer_makes_nobody_wait(box, data):
    script = f"while ! test -e go; do sleep 0.02; done; cat {data}/a.txt"
    with asking(box, ["sh", "-c", script], supervised=False) as session, \
            session.watch(observe=True) as control:
        box.identity.file(box.path("go"), "")
        told = next_event(control, "event.audit")
        assert told["decision"] == "deny" and told["reason"] == "not-interactive"
        assert session.result()[0] == 1


@once
def test_stopped_supervisor(box, data):
    """E122: one that does not read any more holds nothing up; the time decides."""
    write_policy(box, "prompt: {timeout_seconds: 2}\n")
    with asking(box, ["cat", f"{data}/a.txt"]) as session:
        viewer = box.popen([box.world.command, "watch", "--json", session.sid],
                           stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        try:
            viewer.stdout.readline()
            viewer.send_signal(signal.SIGSTOP)
            assert session.result()[0] == 1
        finally:
            viewer.kill()
            viewer.communicate()


@once
def test_watch_stream(box, data):
    with asking(box, ["cat", f"{data}/a.txt"]) as session:
        viewer = box.popen([box.world.command, "watch", "--json"], stdout=subprocess.PIPE,
                           stdin=subprocess.DEVNULL)
        try:
            asked = json.loads(viewer.stdout.readline())
            assert asked["sid"] == session.sid and asked["event"] == "event.fs_request"
            assert sandbox(box, "approve", session.sid, asked["id"], "--session").exit == 0
            assert session.result()[:2] == (0, "content of a\n")
        finally:
            viewer.terminate()
            viewer.communicate()


def is_told_of_sessions(viewer):
    folder = f"/proc/{viewer.pid}/fd"
    with contextlib.suppress(FileNotFoundError):  # closed meanwhile
        return any(os.readlink(f"{folder}/{fd}") == "anon_inode:inotify" for fd in os.listdir(folder))


@contextlib.contextmanager
def watching(box, *words):
    """A viewer that has looked around once."""
    viewer = box.popen([box.world.command, "watch", *words], stdout=subprocess.PIPE,
                       stdin=subprocess.DEVNULL, text=True)
    patience = threading.Timer(harness.TIMEOUT, viewer.kill)  # what it does not say is not waited for
    patience.start()
    try:
        assert eventually(lambda: is_told_of_sessions(viewer))
        time.sleep(0.1 * harness.SLOWNESS)
        yield viewer
    finally:
        patience.cancel()
        viewer.send_signal(signal.SIGCONT)
        viewer.terminate()
        viewer.communicate()


def test_watch_is_asked_by_who_has_just_begun(box, data):
    """A session that asks with its first breath, before any program could have found it. The control:
    an observer is not waited for."""
    with watching(box, "--observe"):
        assert run(box, ["cat", f"{data}/a.txt"]).exit == 1
    with watching(box, "--json") as viewer:
        for _ in range(3):
            with asking(box, ["cat", f"{data}/a.txt"], supervised=False) as session:
                asked = next((message for message in map(json.loads, viewer.stdout)
                              if message["event"] == "event.fs_request"), None)
                assert asked and asked["sid"] == session.sid and asked["seconds_left"] > 50, asked
                assert sandbox(box, "approve", session.sid, asked["id"]).exit == 0
                assert session.result()[:2] == (0, "content of a\n")
    assert run(box, ["cat", f"{data}/a.txt"]).exit == 1, "nobody is there any more"


@once
def test_watch_that_is_stopped_holds_a_session_up_once(box, data):
    with watching(box, "--json") as viewer:
        viewer.send_signal(signal.SIGSTOP)
        start = time.monotonic()
        result = run(box, ["cat", f"{data}/a.txt", f"{data}/b.txt"])
        assert result.exit == 1 and result.stderr.count("nobody is there to be asked") == 2, result
        assert 2.5 < time.monotonic() - start < 5.5 * harness.SLOWNESS


@once
def test_watch_does_not_wait_for_a_stopped_session(box, data):
    """Its questions come when it goes on; those of others come meanwhile."""
    with asking(box, ["sh", "-c", f"read x; cat {data}/a.txt"]) as stopped:
        os.kill(stopped.process.pid, signal.SIGSTOP)
        try:
            with (asking(box, ["cat", f"{data}/b.txt"]) as session, watching(box) as viewer):
                ready, _, _ = select.select([viewer.stdout], [], [], 1.5 * harness.SLOWNESS)
                assert ready and session.sid in viewer.stdout.readline()
                os.kill(stopped.process.pid, signal.SIGCONT)
                assert stopped.sid in viewer.stdout.readline()
        finally:
            os.kill(stopped.process.pid, signal.SIGCONT)


@contextlib.contextmanager
def pretended(folder, name):
    """A session as the registry knows them that greets, says that it asks, and ends."""
    made = f"{folder}/not-yet-{name}"
    os.mkdir(made, 0o700)
    with open(f"{made}/state.json", "w") as state, socket.socket(socket.AF_UNIX) as listener:
        fcntl.flock(state, fcntl.LOCK_EX)
        state.write(json.dumps({"version": 1, "sid": name, "started": 1.0}))
        state.flush()
        listener.bind(f"{made}/control.sock")
        listener.listen()
        listener.settimeout(harness.TIMEOUT)
        os.rename(made, f"{folder}/{name}")
        try:
            yield listener
        finally:
            shutil.rmtree(f"{folder}/{name}", ignore_errors=True)  # whoever looks may remove it first


@pytest.mark.parametrize("identity", ["root"], indirect=True)
def test_watch_outlives_many_sessions(box, data):
    """More of them, one after the other, than it watches at a time."""
    with watching(box) as viewer:
        folder = os.path.join(box.identity.runtime, "sandbox")
        box.identity.folder(folder)
        for number in range(0, 600, 100):
            with contextlib.ExitStack() as stack:
                listeners = [stack.enter_context(pretended(folder, f"z{number + i:07}"))
                             for i in range(100)]
                for listener in listeners:
                    client = stack.enter_context(listener.accept()[0])
                    client.sendall(b'{"event":"event.hello","version":1}\n{"ok":true,"asks":true}\n')
                    client.recv(4096)
            for _ in listeners:
                assert "has ended" in viewer.stdout.readline()
        with asking(box, ["cat", f"{data}/a.txt"]) as session:
            assert session.sid in viewer.stdout.readline()


@once
def test_watch_ends_when_nobody_reads_it(box, data):
    """`watch | head -1`: else it would stay for ever, and every request would wait for it."""
    with asking(box, ["sh", "-c", f"cat {data}/a.txt; sleep 9"], supervised=False) as session:
        viewer = box.popen([box.world.command, "watch", session.sid], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        try:
            with pytest.raises(subprocess.TimeoutExpired):  # the control: it stays while it is read
                viewer.wait(timeout=0.5)
            viewer.stdout.close()
            assert eventually(lambda: viewer.poll() is not None), "it is still there"
        finally:
            if viewer.poll() is None:
                viewer.kill()
            viewer.wait()


@once
def test_stats_event(box, data):
    with asking(box, ["cat", f"{data}/a.txt"]) as session, session.watch(stats=True) as control:
        question(control)
        told = next_event(control, "event.stats")
        assert told["sid"] == session.sid and told["decisions"]["pending"] == 1


@once
def test_example_supervisor(box, data):
    example = box.world.install(str(ROOT / "examples/supervise.py"), "supervise.py")
    script = f"cat {data}/a.txt; cat {data}/deep/down/c.txt"
    with asking(box, ["sh", "-c", script]) as session:
        helper = box.popen(["/usr/bin/python3", example, session.sid, f"{data}/deep"],
                           stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        try:
            assert session.result()[:2] == (0, "content of c\n")
            assert helper.communicate(timeout=10)[0].decode().splitlines() == [
                f"cmd.deny '{data}/a.txt'", f"cmd.approve '{data}/deep/down/c.txt'"]
        finally:
            helper.kill()
            helper.wait()


# ---- names of any bytes ----

NAMES = {
    "newline": b"a\n[sandbox] approved: b", "quote": b'a"}', "escape": b"a\x1b[2K\x1b[1A",
    "bidi": "\u202etxt.yek".encode(), "zero width": "id\u200b_rsa".encode(), "not UTF-8": b"\xff\xfe",
    "injection": b'a"}\n{"cmd":"cmd.approve","id":"2"}', "forged": b"x decision=allow by=root",
}


def test_any_name(box, data):
    """E7-E9, E119, E129: one message, every byte of it, and one line in the log."""
    paths = [os.fsencode(data) + b"/" + name for name in NAMES.values()]
    for path in paths:
        box.identity.file(os.fsdecode(path), "odd\n")
    argv = ["cat", *map(os.fsdecode, paths)]
    with asking(box, argv) as session, session.watch() as control:
        for path in paths:
            asked = question(control)
            assert base64.b64decode(asked["path_b64"]) == path
            answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "session"})
        assert session.result()[:2] == (0, "odd\n" * len(paths))
        sid = session.sid
    lines = [line for line in audit_lines(box, sid) if line.get("event") == "decision"]
    assert [base64.b64decode(line["path_b64"]) for line in lines] == paths
    result = run(box, argv)
    told = [line for line in result.stderr.splitlines() if "denied:" in line]
    assert len(told) == len(paths), result
    assert all(line.isascii() and "\x1b" not in line for line in told), told


@once
def test_no_desktop_is_told(box, data):
    """E12: notifications would show markup that a path can hold. There are none: no program that shows
    some is started, and nobody connects to the session's bus. Whoever shows a question gets the
    path byte by byte and has to escape it for where it is shown (docs/PROTOCOL.md)."""
    for name in ("notify-send", "zenity", "kdialog", "dbus-send", "gdbus", "xmessage"):
        box.identity.file(box.path("fake", name), f"#!/bin/sh\necho $0 \"$@\" >>{box.path('shown')}\n")
        os.chmod(box.path("fake", name), 0o755)
    path = box.identity.file(f"{data}/<b>&amp;<a href='x'>", "odd\n")
    with socket.socket(socket.AF_UNIX) as bus:
        bus.bind(box.path("bus"))
        bus.listen()
        bus.settimeout(0.2)
        box.identity.own(box.path("bus"))
        environment = {"PATH": f"{box.path('fake')}:/usr/bin:/bin", "DISPLAY": ":0",
                       "DBUS_SESSION_BUS_ADDRESS": f"unix:path={box.path('bus')}"}
        assert box.plain(["notify-send", "control"], env=environment).exit == 0
        with asking(box, ["cat", path], env=environment) as session, session.watch() as control:
            asked = question(control)
            assert asked["path"] == path
            answer(control, {"cmd": "cmd.deny", "id": asked["id"]})
            session.result()
        with pytest.raises(TimeoutError):
            bus.accept()
    with open(box.path("shown")) as shown:
        assert shown.read().splitlines() == [f"{box.path('fake')}/notify-send control"]


# ---- bad messages never widen anything ----

BAD = {
    "no id": {"cmd": "cmd.approve"},
    "id is a number": {"cmd": "cmd.approve", "id": 1},
    "guessed": {"cmd": "cmd.approve", "id": "0" * 32},
    "empty": {"cmd": "cmd.approve", "id": ""},
    "wildcard": {"cmd": "cmd.approve", "id": "*"},
    "too long": {"cmd": "cmd.approve", "id": "a" * 100000},
    "bad scope": {"cmd": "cmd.approve", "id": "{id}", "scope": "everything"},
    "scope is null": {"cmd": "cmd.approve", "id": "{id}", "scope": None},
    "scope is a number": {"cmd": "cmd.approve", "id": "{id}", "scope": 1},
    "tree is a number": {"cmd": "cmd.approve", "id": "{id}", "scope": "session", "tree": 1},
    "tree is relative": {"cmd": "cmd.approve", "id": "{id}", "scope": "session", "tree": "a"},
    "tree is the root": {"cmd": "cmd.approve", "id": "{id}", "scope": "session", "tree": "/"},
    "tree is elsewhere": {"cmd": "cmd.approve", "id": "{id}", "scope": "session", "tree": "/etc"},
    "tree climbs": {"cmd": "cmd.approve", "id": "{id}", "scope": "session",
                    "tree": "/usr/.."},
    "tree is not Base64": {"cmd": "cmd.approve", "id": "{id}", "scope": "session",
                           "tree_b64": "!"},
    "tree with NUL": {"cmd": "cmd.approve", "id": "{id}", "scope": "session",
                      "tree_b64": base64.b64encode(b"/\0").decode()},
    "upper case": {"cmd": "cmd.approve", "id": "{ID}", "scope": "session"},
    "revoke of nothing": {"cmd": "cmd.revoke"},
    "revoke of two": {"cmd": "cmd.revoke", "path": "/x", "host": "x"},
    "revoke of a number": {"cmd": "cmd.revoke", "path": 1},
    "save without scope": {"cmd": "cmd.policy.save"},
    "save for the session": {"cmd": "cmd.policy.save", "scope": "session"},
    "second watch": {"cmd": "cmd.watch"},
}


@once
def test_bad_messages(box, data):
    """E120, E121: each is an error, the connection stays usable, the question stays open."""
    with asking(box, ["sh", "-c", f"cat {data}/a.txt; sleep 20"]) as session, \
            session.watch() as control:
        asked = question(control)
        for name, message in BAD.items():
            message = {key: value.replace("{id}", asked["id"]).replace("{ID}", asked["id"].upper())
                       if isinstance(value, str) else value for key, value in message.items()}
            if name == "upper case" and asked["id"].upper() == asked["id"]:
                continue
            assert "error" in answer(control, message), name
        for line in (b"\0\n", b'{"cmd":"cmd.approve","id":"\\u0000"}\n', b'{"cmd":"cmd.approve",'
                     b'"id":"\\ud800"}\n', b'{"cmd":"cmd.approve","id":"a","id":"b"}\n'):
            control.socket.sendall(line)
            assert "error" in control.read(), line
        assert [one["id"] for one in pending(session)] == [asked["id"]]
        assert answer(control, {"cmd": "cmd.approve", "id": asked["id"]}) == {"ok": True}
        refused = answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "session"})
        assert refused["error"]["code"] == "conflict", "replayed"


@once
def test_id_of_another_session(box, data):
    """E121."""
    with asking(box, ["cat", f"{data}/a.txt"]) as one, asking(box, ["cat", f"{data}/a.txt"]) as two:
        mine, other = eventually(lambda: pending(one)), eventually(lambda: pending(two))
        with one.connect() as control:
            refused = control.call({"cmd": "cmd.approve", "id": other[0]["id"]})
        assert refused["error"]["code"] == "not-found", refused
        assert mine[0]["id"] != other[0]["id"]
        assert pending(one) and pending(two)


@once
def test_two_answers_race(box, data):
    with asking(box, ["sh", "-c", f"cat {data}/a.txt; sleep 20"]) as session:
        asked = eventually(lambda: pending(session))[0]
        replies = []

        def reply(command):
            with session.connect() as control:
                replies.append(control.call({"cmd": command, "id": asked["id"],
                                             "scope": "session"}))
        racers = [threading.Thread(target=reply, args=(command,))
                  for command in ("cmd.approve", "cmd.deny") * 4]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert sum("ok" in one for one in replies) == 1, replies
        assert sum(one.get("error", {}).get("code") == "conflict" for one in replies) == 7


@once
def test_random_messages(box, data):
    """Mutations of good messages, from a fixed seed: an error or an end, never an approval."""
    import random
    chance = random.Random(4)
    with asking(box, ["cat", f"{data}/a.txt"]) as session:
        asked = eventually(lambda: pending(session))[0]
        good = json.dumps({"cmd": "cmd.approve", "id": "f" * 32, "scope": "session",
                           "tree": data}).encode()
        for _ in range(40):
            with session.connect() as control:
                for _ in range(25):
                    line = bytearray(good)
                    for _ in range(chance.randrange(1, 6)):
                        line[chance.randrange(len(line))] = chance.randrange(256)
                    if b"\n" in line:
                        continue
                    control.socket.sendall(bytes(line) + b"\n")
                    told = control.read()
                    assert told is None or "ok" not in told, line
        assert [one["id"] for one in pending(session)] == [asked["id"]]


@once
def test_static_session_asks_nobody(box):
    with asking_static(box) as sid:
        result = sandbox(box, "watch", sid)
        assert result.exit == 125 and "asks nobody" in result.stderr, result


@once
def test_static_session_tells_what_happens(box):
    """Nobody is asked, but commands, figures and the end can be followed."""
    with asking_static(box) as sid, Watcher(box, sid) as control:
        assert control.call({"cmd": "cmd.watch", "stats": True, "tag": 7}) == \
            {"ok": True, "asks": False, "tag": 7}
        assert next_event(control, "event.stats")["sid"] == sid
        assert "static mode" in answer(control, {"cmd": "cmd.approve", "id": "x"})["error"]["message"]
        assert sandbox(box, "exec", sid, "--", "echo", "first").exit == 0
        told = next_event(control, "event.audit")
        assert (told["kind"], told["argv"], told["tag"]) == ("exec", ["echo", "first"], 7), told
        viewer = box.popen([box.world.command, "watch", "--json", sid], stdout=subprocess.PIPE,
                           stdin=subprocess.DEVNULL)
        assert eventually(lambda: sandbox(box, "exec", sid, "--", "true").exit == 0 and
                          select.select([viewer.stdout], [], [], 0.2)[0], 20)
        assert sandbox(box, "kill", sid).exit == 0
        lines = [json.loads(line) for line in viewer.communicate(timeout=20)[0].splitlines()]
        assert viewer.returncode == 0, lines
        assert {(line["sid"], line["event"]) for line in lines} == {(sid, "event.audit")}
        assert [line["kind"] for line in lines][-2:] == ["exec", "kill"], lines
        while (told := next_event(control, "event.audit"))["kind"] != "kill":
            assert told["kind"] == "exec", told
        assert eventually(lambda: sid not in str(listed(box)))


def asking_static(box):
    from sessions import idle
    return idle(box)


# ---- the network ----


def test_network_request(box):
    """An unknown name waits like a file does; denied, nothing is looked up or sent."""
    # Connected is it to the relay, which waits; what it gets from there is the answer.
    script = ("import socket; line = socket.create_connection(('unknown.invalid', 4711), 15); "
              "assert line.recv(1), 'closed'")
    with asking(box, ["/usr/bin/python3", "-c", script], "--allow-network=known.invalid") as session, \
            session.watch() as control:
        asked = next_event(control, "event.net_request")
        assert (asked["host"], asked["port"], asked["op"]) == ("unknown.invalid", 4711, "connect")
        assert "python3" in asked["exe"] and "proposal" not in asked
        assert "error" in answer(control, {"cmd": "cmd.approve", "id": asked["id"],
                                           "scope": "session", "tree": "/"})
        answer(control, {"cmd": "cmd.deny", "id": asked["id"], "scope": "session"})
        code, _, err = session.result()
        assert code == 1 and "Error" in err, err


@once
def test_counters(box, data):
    """For people who watch many sessions: the same figures in every format."""
    with asking(box, ["sh", "-c", f"cat ~/.ssh/id_rsa; cat {data}/a.txt"]) as session:
        assert eventually(lambda: pending(session))
        counts = control_stats(session)
        assert (counts["asked"], counts["pending"], counts["denied"]) == (1, 1, 1), counts
        text = sandbox(box, "stats", "--prometheus").stdout
        assert f'sandbox_questions_pending{{session="{session.sid}"}} 1\n' in text
        assert f'sandbox_decisions_denied_total{{session="{session.sid}"}} 1\n' in text
