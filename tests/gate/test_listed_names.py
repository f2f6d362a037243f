"""The names in a home folder, or one above it, are allowed and nothing else: bundlers look for their settings in every
folder above, in each session. Nobody is asked twice, and what is in the folder stays as closed as before."""

import json
import os

import pytest

import gates
import sessions

# As esbuild and vite do: every folder from here to the root is listed.
WALK = """
import os, sys
folder = sys.argv[1]
while folder != "/":
    try:
        print(folder, sorted(os.listdir(folder)))
    except OSError as reason:
        print(folder, reason.strerror)
    folder = os.path.dirname(folder)
"""
SECRET = "the private key\n"


@pytest.fixture
def home(box, ground):
    """A home folder in which nothing is mounted from the start: then both gates ask about it."""
    box.identity.file(f"{ground}/.ssh/id_ed25519", SECRET)
    box.identity.own(f"{ground}/.ssh")
    return ground


def names_for(scope):
    """Names are allowed so long, and nothing else at all."""
    return lambda event: gates.approve(scope) if event.get("names") else gates.deny()


def run(box, gate, home, argv, answer, options=()):
    return gates.run(box, gate, argv, answer, options, env={"HOME": home})


def walk(box, gate, home, times, answer):
    """By so many processes: what one of them may do once counts for itself."""
    return run(box, gate, home, ["/bin/sh", "-c", '/usr/bin/python3 -c "$0" "$1"; ' * times, WALK, f"{home}/sub"], answer)


def listings(result, folder):
    return [line.removeprefix(f"{folder} ") for line in gates.lines(result) if line.startswith(f"{folder} ")]


def lists_of(asked):
    return [path for op, path in asked if op == "list"]


def sandbox(box, home, *words):
    return sessions.sandbox(box, *words, env={"HOME": home})


@pytest.mark.parametrize("scope, questions", [("once", 2), ("session", 1)])
def test_a_walk_up_is_asked_about_once(box, gate, home, scope, questions):
    """`once` is the control: the same names, and a question each time."""
    result, asked = walk(box, gate, home, 2, names_for(scope))
    assert listings(result, home) == [str(sorted(os.listdir(home)))] * 2, result
    assert lists_of(asked).count(home) == questions, asked
    above = [path for path in lists_of(asked) if home.startswith(f"{path}/")]
    assert len(above) == questions * len(set(above)), asked
    assert ("/home" in above) == (gate == "fuse"), asked  # with notify: the empty likeness, and no question


@pytest.mark.escape
def test_names_are_all_that_is_allowed(box, gate, home):
    """The control: what is answered with yes is read."""
    script = f"ls {home}; ls {home}; cat {home}/file; ls {home}/sub; cat {home}/.ssh/id_ed25519; ls {home}/.ssh; " \
             f"{gates.files(box)} inotify {home}; cat {home}/exact"
    answers = {f"{home}/exact": gates.approve()}
    result, asked = run(box, gate, home, ["/bin/sh", "-c", script],
                        lambda event: answers.get(event["path"], names_for("session")(event)))
    assert result.stdout.count("\nexact\n") == 2 and "content of the exact one\n" in result.stdout, result
    assert "content of the file" not in result.stdout and "below" not in result.stdout, result
    assert "private key" not in result.stdout and "id_ed25519\n" not in result.stdout, result
    watched = [("list", home)] if gate == "notify" or gates.TELLS_WHO_ASKS else []  # more than its names
    assert asked == [("list", home), ("read", f"{home}/file"), ("list", f"{home}/sub"), *watched,
                     ("read", f"{home}/exact")], asked


@pytest.mark.escape
def test_a_folder_in_it_and_one_beside_it_are_asked_about(box, gate, home):
    """Also by a descriptor of the folder whose names are allowed, and by '..'."""
    code = "import os; fd = os.open(%r, os.O_RDONLY); os.listdir(fd); os.listdir(%r)\n" \
           "for name in ('file', 'sub/below', '../gated/file'):\n" \
           "    try: os.close(os.open(name, os.O_RDONLY, dir_fd=fd)); print('opened', name)\n" \
           "    except OSError: pass" % (home, home)
    result, asked = run(box, gate, home, ["/usr/bin/python3", "-c", code], names_for("session"))
    assert result.exit == 0 and "opened" not in result.stdout, (result, asked)
    assert lists_of(asked) == [home], asked


@pytest.mark.parametrize("scope", ["project", "user"])
def test_kept_names_are_not_asked_about_in_the_next_session(box, gate, home, scope):
    _, asked = walk(box, gate, home, 1, names_for(scope))
    assert home in lists_of(asked), asked
    result, again = walk(box, gate, home, 2, names_for("once"))
    assert listings(result, home) == [str(sorted(os.listdir(home)))] * 2, result
    assert not set(lists_of(asked)) & set(lists_of(again)) - {f"{home}/sub"}, again
    assert ("list", f"{home}/sub") in again  # the control: what was not allowed is asked about
    lines = [json.loads(line) for line in sandbox(box, home, "audit", "--json", "--path", home).stdout.splitlines()]
    used = [line for line in lines if line["session"] == lines[-1]["session"] and line.get("path") == home]
    assert [(line["decision"], line["names"], line.get("tree")) for line in used] == [("allow", True, None)], used
    assert used[0]["by"] == "policy" and used[0]["rule"] == home, used
    assert "its names and nothing else" in sandbox(box, home, "audit", "--path", home).stdout
    sandbox(box, home, "policy", "revoke", home)
    _, asked = walk(box, gate, home, 1, names_for("once"))
    assert home in lists_of(asked), asked


def test_kept_names_are_shown_as_what_they_are(box, gate, home):
    walk(box, gate, home, 1, names_for("user"))
    said = {verb: sandbox(box, home, "policy", verb).stdout for verb in ("show", "export", "grants")}
    shown = said["show"].split("  list:\n")[1].splitlines()
    assert any(line.startswith(f"    - {home} ") and "approved by" in line for line in shown), shown
    assert f"  list:\n    - {home}\n" in said["export"] and f"    - {home}\n" not in said["export"].split("list:")[0]
    assert f"allow list {home} (its names, nothing else)\n" in said["grants"]
    explained = sandbox(box, home, "policy", "explain", home).stdout
    assert "asked about" in explained and "names:  may be listed" in explained, explained
    below = sandbox(box, home, "policy", "explain", f"{home}/file").stdout
    assert "names:" not in below and "no rule covers it" in below, below
    sandbox(box, home, "policy", "revoke", home)


@pytest.mark.parametrize("scope", ["session", "user"])
def test_names_are_taken_back_at_once(box, gate, home, scope):
    """What else was allowed there stays."""
    before, after = f"ls {home}; cat {home}/file", f"ls {home}; cat {home}/file"
    answers = iter([gates.approve(scope), gates.approve()])
    script = f"{before}; touch ready; while [ ! -e go ]; do sleep 0.02; done; {after}"
    with gates.Session(box, gate, ["/bin/sh", "-c", script], lambda event: next(answers, gates.deny()),
                       env={"HOME": home}) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("ready")))
        revoked = sandbox(box, home, "policy", "revoke", home)
        gates.go_on(box)
        result = it.finish()
    assert revoked.exit == 0 and f"{int(scope == 'user')} stored, in 1 running session" in revoked.stdout, revoked
    assert result.stdout.count("content of the file\n") == 2 and result.stdout.count("\nexact\n") == 1, result
    assert it.asked == [("list", home), ("read", f"{home}/file"), ("list", home)], it.asked
    assert "nothing was approved" in sandbox(box, home, "policy", "revoke", home).stderr


def test_kept_names_are_taken_back_while_a_session_runs(box, gate, home):
    """It has them from its start, and not from an answer of its own."""
    run(box, gate, home, ["/bin/ls", home], names_for("user"))
    script = f"ls {home}; touch ready; while [ ! -e go ]; do sleep 0.02; done; ls {home}; ls {home}"
    answers = iter([gates.approve(), gates.deny()])
    with gates.Session(box, gate, ["/bin/sh", "-c", script], lambda event: next(answers), env={"HOME": home}) as it:
        assert sessions.eventually(lambda: os.path.exists(box.path("ready")))
        asked = list(it.asked)
        revoked = sandbox(box, home, "policy", "revoke", home)
        gates.go_on(box)
        result = it.finish()
    assert revoked.exit == 0 and asked == [] and it.asked == [("list", home)], (revoked, asked, it.asked)
    assert result.stdout.count("\nexact\n") == 3, result


def test_a_rule_lists_names(box, gate, home):
    """By hand; of a folder that could be allowed as a whole, too. The control: a folder of which no rule speaks."""
    box.identity.file(box.home("list.yaml"), "version: 1\nfilesystem: {list: [~, ~/sub]}\n")
    script = f"ls {home} {home}/sub; cat {home}/sub/below; ls {box.home()}"
    result, asked = run(box, gate, home, ["/bin/sh", "-c", script], lambda event: gates.deny(),
                        ["--policy", box.home("list.yaml")])
    assert "exact\n" in result.stdout and "below\n" in result.stdout and "content" not in result.stdout, result
    assert asked[:1] == [("read", f"{home}/sub/below")], asked
    assert lists_of(asked) == ([box.home()] if gate == "fuse" else []), asked


@pytest.mark.escape
def test_a_hidden_folder_is_not_listed_by_a_rule(box, gate, home):
    """The control: the folder around it is."""
    box.identity.file(box.home("list.yaml"), "version: 1\nfilesystem: {list: [~, ~/.ssh, ~/sub], hide: [~/sub]}\n")
    result, asked = run(box, gate, home, ["/bin/ls", home, f"{home}/.ssh", f"{home}/sub"], names_for("session"),
                        ["--policy", box.home("list.yaml")])
    assert "exact\n" in result.stdout and asked == [], (result, asked)
    assert "below" not in result.stdout and "id_ed25519" not in result.stdout, result
