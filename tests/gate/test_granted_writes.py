"""A folder that is allowed to be written by an answer: what the host would run later, and what is
hidden, is protected in it as in the project."""

import os
import subprocess
import time

import pytest

import gates

pytestmark = pytest.mark.escape


@pytest.fixture
def other(box):
    """Another repository, outside of the project, with a nested one and something hidden."""
    made = box.home("other")
    for folder in ("", "nested/"):
        box.identity.folder(f"{made}/{folder}.git/hooks")
        for name, text in (("HEAD", "ref: refs/heads/main\n"), ("config", "[core]\n\tbare = false\n"),
                           ("objects/x", ""), ("refs/x", "")):
            box.identity.file(f"{made}/{folder}.git/{name}", text)
    box.identity.file(f"{made}/file", "before\n")
    box.identity.file(f"{made}/hidden", box.canary + "\n")
    box.identity.file(box.home("writes.yaml"), "version: 1\nfilesystem: {ask_writes: true}\n")
    return made


ATTEMPTS = ("echo PAYLOAD >>.git/config", "echo PAYLOAD >.git/hooks/pre-commit",
            "echo PAYLOAD >>nested/.git/config", "echo PAYLOAD >nested/.git/hooks/pre-commit",
            "mkdir .vscode && echo PAYLOAD >.vscode/tasks.json", "echo PAYLOAD >.mcp.json",
            "mv .git away", "mv nested away", "rm -r .git/hooks", "ln -s /tmp .envrc",
            "cp file .git/config", "cat hidden")
# Making a file asks about its folder.
SCRIPT = "echo made >{other}/new; cd {other}; cat new; {attempts}; echo changed >file && cat file; " \
         "echo index >.git/index && cat .git/index"


def script(other):
    attempts = "; ".join(f"( {attempt} ) 2>/dev/null && echo 'WORKED: {attempt}'"
                         for attempt in ATTEMPTS)
    return SCRIPT.format(other=other, attempts=attempts)


def options(box, other):
    return ["--policy", box.home("writes.yaml"), "--blacklist", f"{other}/hidden"]


def payloads(other):
    return subprocess.run(["grep", "-rl", "PAYLOAD", other], capture_output=True, text=True).stdout


def test_protected_names_in_a_granted_folder(box, gate, other):
    before = sorted(os.listdir(other))
    inside, asked = gates.run(box, gate, ["/bin/sh", "-c", script(other)],
                              lambda event: gates.approve(), options=options(box, other))
    assert inside.stdout == "made\nchanged\nindex\n", (inside, asked)
    assert asked[0] == ("write", other)
    assert payloads(other) == ""
    assert sorted(os.listdir(other)) == sorted([*before, "new"]), "litter"


@pytest.mark.control
def test_without_the_sandbox_they_are_written(box, gate, other):
    result = box.plain(["/bin/sh", "-c", script(other)])
    assert result.stdout.count("WORKED") > 5 and payloads(other), result


def test_the_folder_of_a_repository_is_granted_itself(box, gate, other):
    """Hooks and configuration are protected in it as from the folder above."""
    commands = f"echo it >{other}/.git/made; cat {other}/.git/made; echo PAYLOAD >{other}/.git/hooks/x; " \
               f"echo PAYLOAD >>{other}/.git/config; mv {other}/.git/hooks {other}/.git/away; echo end"
    inside, asked = gates.run(box, gate, ["/bin/sh", "-c", commands],
                              lambda event: gates.approve(), options=options(box, other))
    assert inside.stdout == "it\nend\n" and asked[0] == ("write", f"{other}/.git"), (inside, asked)
    assert payloads(other) == "" and os.path.isdir(f"{other}/.git/hooks")


def test_the_host_changes_a_granted_folder(box, gate, other):
    """What is granted later is kept as what was there from the start."""
    wait = f"until [ -e {other}/go ]; do sleep 0.02; done"
    commands = f"echo a >{other}/one; echo ready >{other}/ready; {wait}; cd {other}; " + \
        "; ".join(f"( {attempt} ) 2>/dev/null && echo 'WORKED: {attempt}'" for attempt in ATTEMPTS)
    with gates.Session(box, gate, ["/bin/sh", "-c", commands],
                       lambda event: gates.approve(), options(box, other)) as it:
        end = time.monotonic() + 20
        while not os.path.exists(f"{other}/ready") and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.3)
        box.plain(["sh", "-c", f"cd {other} && git config a.b c && rm -r .git/hooks && "
                               f"mkdir -p .git/hooks && cp hidden h && mv h hidden"])
        time.sleep(0.3)
        box.identity.file(f"{other}/go", "")
        result = it.finish()
    assert os.path.exists(f"{other}/ready"), "nothing was granted"
    assert "WORKED" not in result.stdout and box.canary not in result.stdout, result
    assert payloads(other) == ""
