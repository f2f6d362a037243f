"""Commands that are not sandboxed: commands.exclude, --bypass, and what `decide` says about them."""

import json
import os
import random
import subprocess

import pytest

PROBE = "sbx-probe"  # tells whether it runs in a sandbox; found by PATH


@pytest.fixture
def tools(box):
    """A folder on the PATH, outside of the project, with the probe and a stranger."""
    script = '#!/bin/sh\nif [ -n "$SANDBOX" ]; then echo inside "$@"; else echo outside "$@"; fi\n'
    for name in (PROBE, "stranger"):
        box.identity.file(box.home("tools", name), script, 0o755)
    return {"PATH": box.home("tools") + ":/usr/bin:/bin"}


def policy(box, text):
    return box.identity.file(box.home("policy.yaml"), f"version: 1\n{text}\n")


def allowing(box, *names):
    names = ", ".join(names or (PROBE,))
    return policy(box, f"commands: {{exclude: [{names}], allow_unsandboxed: true}}")


def run(box, tools, words, file, *options, cwd=None):
    return box.plain([box.world.command, "run", "--static", "--policy", file, *options, *words],
                     env=tools, cwd=cwd)


def decide(box, tools, words, file):
    result = box.plain([box.world.command, "decide", "--json", "--policy", file, *words], env=tools)
    assert result.exit == 0, result
    return json.loads(result.stdout)


def chain(box):
    path = os.path.join(box.identity.state, "sandbox/audit/chain.jsonl")
    with open(path) as lines:
        return [json.loads(line) for line in lines]


def test_an_excluded_command_runs_outside(box, tools):
    result = run(box, tools, ["--", PROBE, "x"], allowing(box))
    assert result.stdout == "outside x\n" and result.exit == 0, result
    assert "NOT SANDBOXED" in result.stderr and "commands.exclude" in result.stderr
    assert chain(box)[-1]["event"] == "excluded" and chain(box)[-1]["command"][:1] == [PROBE]


def test_the_control_runs_inside(box, tools):
    result = run(box, tools, ["--", PROBE, "x"], policy(box, "commands: {exclude: [stranger]}"))
    assert result.stdout == "inside x\n" and result.stderr == "", result


def test_not_allowed_by_default(box, tools):
    result = run(box, tools, ["--", PROBE], policy(box, f"commands: {{exclude: [{PROBE}]}}"))
    assert result.exit == 125 and result.stdout == "", result
    assert "commands.allow_unsandboxed" in result.stderr and "fix: " in result.stderr


@pytest.mark.parametrize("script", [
    PROBE, f"{PROBE} a b", f"{PROBE} 'x; y'", f"{PROBE} && {PROBE}", f"  {PROBE} | {PROBE} >/dev/null",
    f"{PROBE} 2>&1",
])
def test_strings_of_excluded_commands_only(box, tools, script):
    answer = decide(box, tools, ["-c", script], allowing(box))
    assert answer["excluded"] and not answer["sandboxed"] and answer["needs_approval"], answer
    assert "NOT SANDBOXED" in run(box, tools, ["-c", script], allowing(box)).stderr


@pytest.mark.parametrize("script", [
    f"{PROBE}; stranger", f"stranger && {PROBE}", f"{PROBE} | stranger", f"{PROBE}\nstranger",
    f"{PROBE} & stranger", f"{PROBE} $(stranger)", f"{PROBE} `stranger`", f"{PROBE} <(stranger)",
    f"{PROBE} > out", f"PATH=. {PROBE}", f"env {PROBE}", f"command {PROBE}", f"eval {PROBE}",
    f"exec {PROBE}", f"sh -c {PROBE}", f"({PROBE})", f"if true; then {PROBE}; fi", f"{PROBE}x",
    f"./{PROBE}", f"{PROBE} \"$HOME\"", f"cd / && {PROBE}", f"{PROBE}() {{ stranger; }}; {PROBE}",
    f"X=1 {PROBE}", f"{PROBE} <<E\nE",
])
def test_every_other_string_is_sandboxed(box, tools, script):
    """Matching the beginning of the text would let all of these out."""
    answer = decide(box, tools, ["-c", script], allowing(box))
    assert answer["sandboxed"] and not answer["excluded"], answer
    assert answer["reasons"], "no reason given"


def test_a_mixed_string_really_runs_inside(box, tools):
    result = run(box, tools, ["-c", f"{PROBE} 1; stranger 2"], allowing(box))
    assert result.stdout == "inside 1\ninside 2\n", result


def test_a_program_of_the_project_does_not_count(box, tools):
    """It has the name, and it is first on the PATH; but the sandboxed could have put it there."""
    box.identity.file(box.path("bin", PROBE), "#!/bin/sh\necho planted ${SANDBOX:+inside}\n", 0o755)
    tools = {"PATH": box.path("bin") + ":" + tools["PATH"]}
    result = run(box, tools, ["--", PROBE], allowing(box))
    assert result.stdout == "planted inside\n", result
    answer = decide(box, tools, ["--", PROBE], allowing(box))
    assert any("writable for sandboxed commands" in reason for reason in answer["reasons"]), answer


@pytest.mark.parametrize("entry", ["", ".", "bin"])
def test_a_relative_entry_of_the_path_does_not_count(box, tools, entry):
    for folder in (".", "bin"):
        box.identity.file(box.path(folder, PROBE), "#!/bin/sh\necho planted\n", 0o755)
    tools = {"PATH": entry + ":" + tools["PATH"]}
    assert decide(box, tools, ["--", PROBE], allowing(box))["sandboxed"]


def test_another_name_of_the_same_file_does_not_count(box, tools):
    """busybox is many programs in one file."""
    os.symlink(PROBE, box.home("tools", "alias"))
    assert decide(box, tools, ["--", "alias"], allowing(box))["sandboxed"]
    assert decide(box, tools, ["--", PROBE], allowing(box))["excluded"]
    assert decide(box, tools, ["--", "alias"], allowing(box, "alias"))["excluded"]


def test_an_absolute_path(box, tools):
    path = box.home("tools", PROBE)
    assert decide(box, tools, ["--", path], allowing(box))["excluded"]
    assert decide(box, tools, ["--", PROBE], allowing(box, path))["excluded"]
    assert decide(box, tools, ["--", box.home("tools", "stranger")], allowing(box, path))["sandboxed"]


def test_an_untrusted_project_excludes_nothing(box, tools):
    box.identity.file(box.path(".sandbox/policy.yaml"),
                      f"version: 1\ncommands: {{exclude: [{PROBE}], allow_unsandboxed: true}}\n")
    result = box.plain([box.world.command, "run", "--static", "--", PROBE], env=tools)
    assert result.stdout == "inside\n", result


# ---- against a real shell ----

# What random strings are made of: a few programs, and everything a shell might take in a special way.
PLAIN = ["a", "b", "c", " ", " ", " ", ";", "&&", "||", "|", "&", "\n", "2>&1", ">/dev/null", "-y", "'x y'",
         '"p q"', "\\ ", "''"]
SPECIAL = ["'", '"', "\\", "$x", "$(b)", "`b`", "(", ")", "{", "}", "<", ">", "#", "!", "*", "~", "=", "x=1",
           "\t", '""', "if", "then", "fi", "eval", "time", "[", "]", ":", ",", "%", "@", "^", "+", "-",
           "..", "/", "é", "\r", "$", ";;", "|&", "<<", "coproc", "a=b", "{a,b}", "&>", "$'b'"]


@pytest.fixture
def recorder(tmp_path):
    """Programs a, b and c that write down how they were called."""
    log = tmp_path / "log"
    for name in "abc":
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        # In one write: those of a pipeline run at the same time.
        program.write_text(f"#!/bin/sh\nprintf '%s\\0' {name} \"$@\" THE-END >>{log}\n")
        program.chmod(0o755)

    def run(script):
        log.write_bytes(b"")
        subprocess.run(["/bin/bash", "-c", script + "\nwait"], env={"PATH": str(tmp_path / "bin")},
                       stdin=subprocess.DEVNULL, capture_output=True, cwd=tmp_path, timeout=10)
        calls = log.read_bytes().split(b"\0THE-END\0")[:-1]
        return [[word.decode() for word in call.split(b"\0")] for call in calls]

    return run


def test_bash_runs_nothing_else(recorder, build):
    """Of a string whose commands are all excluded, bash runs only those, word by word."""
    source = random.Random(8)
    pieces = PLAIN * 6 + SPECIAL
    scripts = ["".join(source.choices(pieces, k=source.randint(1, 9))) for _ in range(6000)]
    done = subprocess.run([build / "tests/shell/shell-split"], input="\0".join(scripts) + "\0",
                          capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(scripts)
    understood = [(script, commands) for script, commands in zip(scripts, answers)
                  if commands and all(command[0] in "abc" for command in commands)]
    assert len(understood) > 100, "nothing is understood"
    for script, commands in understood[:150]:
        for call in recorder(script):
            assert call in commands, f"{script!r}: bash ran {call}, we saw {commands}"


def test_the_recorder_sees_what_is_hidden(recorder):
    """The control: a splitter that trusted the beginning would have missed these."""
    assert ["b"] in recorder("a $(b)") and ["c"] in recorder("a; eval c")


# ---- --bypass ----


def test_bypass_runs_outside_and_is_on_record(box, tools):
    result = run(box, tools, ["--", PROBE], policy(box, "mode: static"), "--bypass", "needs a device")
    assert result.stdout == "outside\n" and "NOT SANDBOXED" in result.stderr, result
    last = chain(box)[-1]
    assert last["event"] == "bypass" and last["reason"] == "needs a device", last
    assert last["command"] == [PROBE] and last["cwd"] == box.project


def test_bypass_can_be_forbidden(box, tools):
    file = policy(box, "commands: {allow_bypass: false}")
    result = run(box, tools, ["--", PROBE], file, "--bypass", "please")
    assert result.exit == 125 and result.stdout == "" and "allow_bypass" in result.stderr, result
    answer = decide(box, tools, ["--bypass", "--", PROBE], file)
    assert answer["refused"], answer


@pytest.mark.parametrize("reason", ["", "  "])
def test_bypass_needs_a_reason(box, tools, reason):
    result = run(box, tools, ["--", PROBE], policy(box, "mode: static"), "--bypass", reason)
    assert result.exit == 125 and "--bypass" in result.stderr and "needs a" in result.stderr, result


def test_no_record_no_bypass(box, tools):
    """A file where the log's folder should be."""
    box.identity.file(box.home("state/sandbox"), "in the way")
    result = run(box, {**tools, "XDG_STATE_HOME": box.home("state")}, ["--", PROBE],
                 policy(box, "mode: static"), "--bypass", "x")
    assert result.exit == 125 and result.stdout == "", result


# ---- decide ----


@pytest.mark.parametrize("text, sandboxed, approval", [
    ("mode: static", True, False),
    ("commands: {auto_allow: false}", True, True),
    ("require: disabled", False, True),
])
def test_auto_allow(box, tools, text, sandboxed, approval):
    answer = decide(box, tools, ["--", PROBE], policy(box, text))
    assert (answer["sandboxed"], answer["needs_approval"]) == (sandboxed, approval), answer


def test_decide_for_people(box, tools):
    result = box.plain([box.world.command, "decide", "--policy", allowing(box), "-c",
                        f"{PROBE}; stranger"], env=tools)
    assert result.stdout.startswith("sandboxed\n") and "'stranger': not in" in result.stdout, result


@pytest.mark.parametrize("words", [[], ["-c", "x", "--", "y"]])
def test_decide_needs_one_command(box, words):
    result = box.plain([box.world.command, "decide", *words])
    assert result.exit == 125 and "fix: sandbox decide" in result.stderr, result
