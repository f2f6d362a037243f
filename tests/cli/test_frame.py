"""The frame of the command line: help, errors, completions, man pages, start-up."""

import json
import os
import pty
import re
import shutil
import subprocess
import time

import pytest

FAILURE = 125


@pytest.fixture(scope="module")
def verbs(run):
    """The verbs as the help lists them."""
    listed = run("--help").stdout.split("Verbs:\n")[1].split("\n\n")[0]
    names = [line.split()[0] for line in listed.splitlines()]
    assert {"run", "help"} <= set(names)
    return names


# ---- help and version ----


def test_version(run):
    for word in "--version", "-V":
        result = run(word)
        assert re.fullmatch(r"sandbox \d+\.\d+\.\d+\n", result.stdout)
        assert (result.returncode, result.stderr) == (0, "")


def test_alone_lists_the_verbs_and_fails(run, verbs):
    result = run()
    assert (result.returncode, result.stdout) == (FAILURE, "")
    assert all(f"\n  {verb} " in result.stderr for verb in verbs)
    assert "__" not in result.stderr


def test_help_is_the_same_however_it_is_asked_for(run, verbs):
    assert run("--help").stdout == run("-h").stdout == run("help").stdout
    for verb in verbs:
        texts = {run(verb, "--help").stdout, run(verb, "-h").stdout, run("help", verb).stdout}
        assert len(texts) == 1
        assert texts.pop().startswith(f"Usage: sandbox {verb} ")


def test_help_fits_a_terminal(run, verbs):
    for verb in verbs:
        assert all(len(line) <= 100 for line in run("help", verb).stdout.splitlines())


def test_help_of_the_workload_is_not_ours(run):
    assert "Usage: sandbox run" not in run("run", "--dry-run", "ls", "--help").stdout


def test_a_full_disk_is_reported(sandbox):
    with open("/dev/full", "w") as full:
        result = subprocess.run([sandbox, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == FAILURE
    assert "cannot write to standard output: No space left" in result.stderr


# ---- errors ----


@pytest.mark.parametrize(
    "words, message, fix",
    [
        (["rnu"], "unknown verb 'rnu'", "did you mean 'sandbox run'?"),
        (["ls"], "unknown verb 'ls'", "sandbox run ls"),
        (["--versoin"], "unknown option '--versoin'", "did you mean '--version'?"),
        (["run", "--allow-netwrok"], "unknown option", "did you mean '--allow-network'?"),
        (["run", "--verb"], "unknown option '--verb'", "did you mean '--verbose'?"),
        (["run", "--rw"], "option '--rw' needs a value", "write --rw=PATH"),
        (["run", "--rw", "--", "ls"], "option '--rw' needs a value", "write --rw=PATH"),
        (["run", "--static=yes"], "'--static' takes no value", "write --static"),
        (["run", "--mode=statc"], "'statc' is not a value of --mode", "--mode=static"),
        (["run", "--tty"], "option '--tty' needs a value", "auto always never"),
        (["help", "polcy"], "unknown verb 'polcy'", "did you mean 'sandbox policy'?"),
    ],
)
def test_mistakes_are_explained(run, words, message, fix):
    result = run(*words)
    assert (result.returncode, result.stdout) == (FAILURE, "")
    first, second = result.stderr.splitlines()
    assert first.startswith("sandbox: ") and message in first
    assert second.startswith("  fix: ") and fix in second


def test_hostile_words_are_shown_escaped(run):
    result = run("\x1b]0;title\x07")
    assert "\x1b" not in result.stderr and "\\x1b" in result.stderr


def test_errors_as_json(run):
    result = run("run", "--nope-at-all", "--json")
    assert (result.returncode, result.stderr) == (FAILURE, "")
    assert result.stdout.count("\n") == 1
    error = json.loads(result.stdout)["error"]
    assert set(error) == {"code", "message", "hint"}
    assert error["code"] == "usage"
    assert "--nope-at-all" in error["message"]


def stderr_on_a_terminal(command, **variables):
    """What the command writes to a terminal on its standard error."""
    ours, theirs = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm", **variables}
    subprocess.run(command, stderr=theirs, env=environment, timeout=20)
    os.close(theirs)
    try:
        return os.read(ours, 4096).decode()
    finally:
        os.close(ours)


def test_colour_only_where_it_is_wanted(sandbox, run):
    command = [sandbox, "ls"]
    assert "\x1b[" in stderr_on_a_terminal(command)
    assert "\x1b[" not in stderr_on_a_terminal(command, NO_COLOR="1")
    assert "\x1b[" not in stderr_on_a_terminal(command, TERM="dumb")
    assert "\x1b[" not in run("ls").stderr


# ---- completions ----


@pytest.fixture
def script(run, tmp_path):
    """Writes the completion script of a shell to a file."""

    def write(shell):
        path = tmp_path / f"sandbox.{shell}"
        path.write_text(run("__complete", shell).stdout)
        return path

    return write


@pytest.mark.parametrize(
    "shell, flags", [("bash", ["-n"]), ("zsh", ["-n"]), ("fish", ["--no-execute"])]
)
def test_scripts_are_valid(script, shell, flags):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    result = subprocess.run([shell, *flags, script(shell)], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_bash_script_is_clean(script):
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    subprocess.run(["shellcheck", script("bash")], check=True)


@pytest.fixture
def candidates(script, tmp_path):
    """What bash would offer for the last of these words."""
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "a folder").mkdir()
    (tmp_path / "place" / "a file").touch()
    program = """
        source "$1"; shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _sandbox
        ((${#COMPREPLY[@]})) && printf '%s\\n' "${COMPREPLY[@]}"
        complete -p sandbox > /dev/null
    """
    path = script("bash")

    def complete(*words):
        return subprocess.run(
            ["bash", "--norc", "-c", program, "bash", path, "sandbox", *words],
            cwd=tmp_path / "place",
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.splitlines()

    return complete


@pytest.mark.parametrize(
    "words, expected",
    [
        (["po"], ["policy"]),
        (["--ver"], ["--version"]),
        (["help", "do"], ["doctor"]),
        (["run", "--mo"], ["--mode"]),
        (["run", "--mode", ""], ["dynamic", "static"]),
        # bash splits at '=' ...
        (["run", "--mode", "="], ["dynamic", "static"]),
        (["run", "--mode", "=", "st"], ["static"]),
        (["run", "--allow-network", "=", ""], []),
        # ... unless it was told not to
        (["run", "--mode=s"], ["--mode=static"]),
        (["run", "--rw", ""], ["a file", "a folder"]),
        (["run", "--overlay", "a"], ["a folder"]),
        (["run", "-C", ""], ["a folder"]),
        (["run", "-C", "x", "--tt"], ["--tty"]),
        (["run", "--env", "NAME", "=", "value", "--tt"], ["--tty"]),
        (["run", "--static", "--rw", "x", "mkfif"], ["mkfifo"]),
        (["run", "ls", "--mo"], []),
        (["run", "--", "--mo"], []),
        (["run", "ls", "a f"], ["a file", "a folder"]),
        (["run", "./a fi"], ["./a file"]),
        (["run", "-c", "x", "--mo"], ["--mode"]),
    ],
)
def test_bash_offers(candidates, words, expected):
    # A set: a command may be in several folders of $PATH, and readline shows it once.
    assert set(candidates(*words)) == set(expected)


def test_bash_offers_the_verbs(candidates, verbs):
    assert candidates("") == verbs


def test_bash_offers_every_option(candidates, run, verbs):
    for verb in verbs:
        listed = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", run("help", verb).stdout, re.M))
        assert listed == set(candidates(verb, "--"))


def test_sessions_are_offered_silently(run):
    result = run("__complete", "sessions")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


# ---- man pages ----


def test_every_verb_has_a_page_with_every_option(run, build, verbs):
    if not (build / "man").exists():
        pytest.skip("built without man pages")
    for verb in set(verbs) - {"help"}:
        assert (build / "man" / f"sandbox-{verb}.1").exists()
        source = run("__manual", verb).stdout
        for option in re.findall(r"--[a-z-]+", run("help", verb).stdout.split("Options:")[1]):
            assert f"*{option}*" in source


def test_exit_codes_are_documented(build):
    if not (build / "man").exists():
        pytest.skip("built without man pages")
    for page in "sandbox.1", "sandbox-run.1":
        text = (build / "man" / page).read_text()
        assert "EXIT STATUS" in text
        assert all(code in text for code in ["124", "125", "126", "127", "128", "137"])


# ---- start-up ----


def is_static(command):
    headers = subprocess.run(["readelf", "-lW", command], capture_output=True, text=True).stdout
    return "INTERP" not in headers and "DYN (Position-Independent" in headers


def spawn_time(command):
    """Seconds from spawn to exit; vfork inside, so Python's size does not count."""
    start = time.perf_counter()
    quiet = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
    pid = os.posix_spawn(command, [command, "--version"], {}, file_actions=quiet)
    assert os.waitpid(pid, 0)[1] == 0
    return time.perf_counter() - start


def test_starts_within_a_millisecond(sandbox):
    if not is_static(sandbox):
        pytest.skip("not a static build (sanitized, or -Dstatic_command=false)")
    # The best of many: the machine may be busy, the command may not.
    assert min(spawn_time(sandbox) for _ in range(100)) < 0.001
