"""Where no sandbox can be had: what `require` promises, and what is said about it."""

import json
import os

import pytest

NO_USER_NAMESPACES = ["unshare", "-Ur", "sh", "-c",
                      'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"', "sh"]

# No Landlock either: system call 444 does not exist for what runs below.
NO_LANDLOCK = ["/usr/bin/python3", "-c", """
import ctypes, os, struct, sys
program = struct.pack("HBBIHBBIHBBIHBBI", 0x20, 0, 0, 0, 0x15, 0, 1, 444,
                      0x06, 0, 0, 0x00050000 | 38, 0x06, 0, 0, 0x7fff0000)
memory = ctypes.create_string_buffer(program)
header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(memory)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, header, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""]
NOTHING = NO_LANDLOCK + NO_USER_NAMESPACES


def run_without(box, argv, options=(), before=NO_USER_NAMESPACES, **more):
    return box.run(argv, options=options, before=before, may_leak=True, **more)


def policy(box, level):
    return box.identity.file(box.home("policy.yaml"), f"version: 1\nrequire: {level}\n")


# codex#15057, sandbox-runtime#74, bubblewrap#632: cryptic failures


@pytest.mark.parametrize("options", [(), ("--require", "required")], ids=["default", "required"])
def test_required(box, options):
    result = run_without(box, ["touch", "made"], options)
    assert result.exit == 125 and result.stdout == "", result
    assert "user.max_user_namespaces is 0" in result.stderr, result
    assert "fix: sudo sysctl -w user.max_user_namespaces=" in result.stderr, result
    assert "No space left" not in result.stderr, "the errno explains nothing"
    assert not os.path.exists(box.path("made")), "it ran all the same"


def test_required_as_json(box):
    result = run_without(box, ["true"], ["--json"])
    error = json.loads(result.stdout)["error"]
    assert result.exit == 125 and error["code"] == "unsupported"
    assert "max_user_namespaces" in error["message"] and "sysctl" in error["hint"]


def test_preferred_takes_what_is_left(box):
    """Landlock needs no user namespace: the secrets stay hidden, and one line says what is lost."""
    result = run_without(box, ["sh", "-c", "echo ran; cat ~/.ssh/id_rsa; exit 7"],
                         ["--require", "preferred", "--json"])
    answer = json.loads(result.stdout)
    assert result.exit == 7 and answer["backend"] == "landlock" and answer["stdout"] == "ran\n"
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and "WEAKENED" in lines[0] and "protected names" in lines[0], result
    assert "max_user_namespaces" in lines[0], "the reason is missing"


def test_required_does_not_take_less(box):
    """Landlock alone cannot hold the protected names of this project."""
    result = run_without(box, ["touch", "made"], ["--backend", "auto"])
    assert result.exit == 125 and "max_user_namespaces" in result.stderr, result
    assert not os.path.exists(box.path("made"))


def test_preferred(box):
    result = run_without(box, ["sh", "-c", "echo ran; cat ~/.ssh/id_rsa; exit 7"],
                         ["--require", "preferred"], before=NOTHING)
    assert result.exit == 7 and result.stdout.startswith("ran\n"), result
    assert box.canary in result.stdout, "no sandbox, no mask"
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and "NOT SANDBOXED" in lines[0], result
    assert "max_user_namespaces" in lines[0], "the reason is missing"


def test_preferred_with_a_sandbox_to_be_had(box):
    result = box.run(["sh", "-c", "cat ~/.ssh/id_rsa; hostname"], options=["--require", "preferred"])
    assert result.stdout.startswith("sandbox-") and "NOT SANDBOXED" not in result.stderr, result


def test_quiet_does_not_hide_the_loss(box):
    options = ["--require", "preferred", "--quiet"]
    result = run_without(box, ["true"], options, before=NOTHING)
    assert result.exit == 0 and "NOT SANDBOXED" in result.stderr, result
    result = run_without(box, ["true"], options)
    assert result.exit == 0 and "WEAKENED" in result.stderr, result


@pytest.mark.parametrize("level, status", [("required", 125), ("preferred", 0), ("disabled", 0)])
def test_from_a_policy_file(box, level, status):
    result = run_without(box, ["true"], ["--policy", policy(box, level)])
    assert result.exit == status, result


def test_a_project_cannot_weaken_it(box):
    """It is a repository's own file; until trusted it may only narrow."""
    box.identity.file(box.path(".sandbox/policy.yaml"), "version: 1\nrequire: preferred\n")
    result = run_without(box, ["touch", "made"])
    assert result.exit == 125 and not os.path.exists(box.path("made")), result
    box.identity.file(box.path(".sandbox/policy.yaml"), "version: 1\nrequire: disabled\n")
    result = box.run(["hostname"])
    assert result.stdout.startswith("sandbox-"), result


def test_preferred_is_no_way_out_for_a_hostile_project(box):
    """Only what the machine lacks is forgiven, not what this project or policy made fail."""
    box.identity.file(box.path("state"), "a file where a folder is needed")
    options = ["--require", "preferred", "--overlay", "sub"]
    env = {"XDG_STATE_HOME": box.path("state")}
    result = box.run(["touch", "made"], options=options, env=env)
    assert result.exit == 125 and "fix:" in result.stderr, result
    assert not os.path.exists(box.path("made"))


@pytest.mark.parametrize("before", [[], NO_USER_NAMESPACES], ids=["possible", "impossible"])
def test_disabled(box, before):
    result = run_without(box, ["sh", "-c", "cat ~/.ssh/id_rsa; exit 7"], ["--require", "disabled"],
                         before=before)
    assert result.exit == 7 and box.canary in result.stdout and result.stderr == "", result


def on_record(box):
    lines = box.plain([box.world.command, "audit", "--json"]).stdout.splitlines()
    return [line for line in map(json.loads, lines) if line["event"] in ("disabled", "preferred")]


def test_what_runs_without_a_sandbox_is_on_record(box):
    """And if it cannot be put on record, it does not run."""
    assert box.run(["/bin/echo", "one"], options=["--require", "disabled"]).stdout == "one\n"
    assert run_without(box, ["/bin/echo", "two"], ["--require", "preferred"],
                       before=NOTHING).stdout == "two\n"
    lines = on_record(box)[-2:]
    assert [(line["event"], line["command"]) for line in lines] == [
        ("disabled", ["/bin/echo", "one"]), ("preferred", ["/bin/echo", "two"])], lines
    assert "max_user_namespaces" in lines[1]["reason"]
    box.identity.file(box.path("state"), "a file where a folder is needed")
    result = box.run(["touch", "made"], options=["--require", "disabled"],
                     env={"XDG_STATE_HOME": box.path("state")})
    assert result.exit == 125 and not os.path.exists(box.path("made")), result


@pytest.mark.parametrize("argv, status", [(["no-such-command"], 127), (["/etc"], 126)])
def test_disabled_keeps_the_exit_codes(box, argv, status):
    result = box.run(argv, options=["--require", "disabled"])
    assert result.exit == status and "cannot execute" in result.stderr, result


def test_a_command_that_fails_is_not_run_twice(box):
    """`preferred` is about the sandbox: 127 inside must not become a second try outside."""
    result = box.run(["no-such-command"], options=["--require", "preferred"])
    assert result.exit == 127 and "NOT SANDBOXED" not in result.stderr, result
    result = box.run(["sh", "-c", "echo x >> log; exit 125"], options=["--require", "preferred"])
    assert result.exit == 125
    with open(box.path("log")) as log:
        assert log.read() == "x\n"
