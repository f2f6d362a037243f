"""`sandbox run` as a command: exit codes, streams, environment, and what it says when it fails."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import time

import pytest

from gates import listening
from harness import signature

CLOCK = """
import time
print(time.clock_gettime(time.CLOCK_BOOTTIME), time.clock_gettime(time.CLOCK_MONOTONIC),
      time.time())
"""


def shell(box, script, **more):
    return box.run(["sh", "-c", script], **more)


def bash(box, script, **more):
    """Outside, with the command line of the sandbox as $S."""
    command = " ".join([box.world.command, "run", "--static"])
    return box.plain(["bash", "-c", script], env={"S": command}, **more)


def fails_with_125(box, options, argv=("true",), **more):
    """Our failure: 125, nothing on stdout, a message and a fix. Returns the message."""
    result = box.run([*argv], options=options, **more)
    assert result.exit == 125, result
    assert result.stdout == "", result
    assert result.stderr.startswith("sandbox: "), result
    assert "\n  fix: " in result.stderr, f"no fix is named: {result}"
    return result.stderr


# ---- exit codes ----


@pytest.mark.parametrize("code", [0, 1, 42, 124, 125, 126, 127, 128, 255])
def test_the_commands_own_status(box, code):
    result = shell(box, f"exit {code}")
    assert (result.exit, result.stderr) == (code, "")


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "KILL", "TERM", "SEGV", "ABRT", "USR1",
                                  "PIPE"])
def test_signal_is_128_plus_its_number(box, name):
    result = shell(box, f"kill -{name} $$")
    assert result.exit == 128 + getattr(signal, "SIG" + name), result


@pytest.mark.parametrize("argv, said", [
    (["./plain.txt"], "is it executable"),
    (["./folder"], "is it executable"),
    (["/etc"], "is it executable"),
])
def test_not_executable_is_126(box, argv, said):
    box.identity.file(box.path("plain.txt"), "text\n")
    box.identity.folder(box.path("folder"))
    result = box.run(argv)
    assert result.exit == 126, result
    assert argv[0] in result.stderr and said in result.stderr, result


@pytest.mark.parametrize("argv", [["no-such-command-anywhere"], ["./missing"], ["/no/such/file"]])
def test_not_found_is_127(box, argv):
    result = box.run(argv)
    assert result.exit == 127, result
    assert "command not found" in result.stderr and "fix:" in result.stderr, result


def test_missing_interpreter_is_127_as_in_a_shell(box):
    box.identity.file(box.path("script"), "#!/no/such/interpreter\n", 0o755)
    assert box.run(["./script"]).exit == 127


def test_command_found_later_in_path(box):
    """A file that may not be executed does not hide a good one further on."""
    box.identity.file(box.path("a", "tool"), "#!/bin/sh\necho first\n", 0o644)
    box.identity.file(box.path("b", "tool"), "#!/bin/sh\necho second\n", 0o755)
    path = f"{box.path('a')}:{box.path('b')}:/usr/bin:/bin"
    result = box.run(["tool"], env={"PATH": path})
    assert (result.exit, result.stdout) == (0, "second\n")


@pytest.mark.parametrize("options, said", [
    (["--no-such-flag"], "no-such-flag"),
    (["--statik"], "--static"),
    (["--tty", "sometimes"], "sometimes"),
    (["--time-offset", "soon"], "soon"),
    (["-C", "/no/such/folder"], "/no/such/folder"),
    (["-C", "README.md"], "README.md"),
    (["--rw", "/no/such/place"], "/no/such/place"),
    (["--rw", "missing-here"], "missing-here"),
    (["--ro", "/no/such/place"], "/no/such/place"),
    (["--rw", "/"], "the whole machine"),
    (["--overlay", "/"], "the whole machine"),
    (["--mode", "dynamic", "--ro", "/"], "use --static"),
    (["--rw", "/proc"], "the session has its own"),
    (["--rw", "/sys/kernel"], "the session has its own"),
    (["--rw", "/dev/null"], "the session has its own"),
    (["--overlay", "README.md"], "needs a folder"),
    (["--policy", "/no/such/policy.yaml"], "/no/such/policy.yaml"),
    (["--allow-network=exa mple.org"], "not a host name"),
    (["--allow-network=example.org:0"], "wrong port"),
    (["--backend", "podman"], "podman"),
    (["--backend", "nonsense"], "nonsense"),
])
def test_our_failure_is_125_with_a_fix(box, options, said):
    assert said in fails_with_125(box, options)


@pytest.mark.parametrize("text, said", [
    ("version: 1\nfilesystm: {}\n", "filesystem"),
    ("version: 1\nmode: [static]\n", "mode"),
    ("version: 2\n", "version"),
    ("version: 1\nfilesystem: {hide: ['/a[']}\n", "/a["),
    ("version: 1\n\tmode: static\n", "tab"),
    ("version: 1\nnetwork: {mode: full, driver: vpnkit}\n", "slirp4netns"),
    ("version: 1\nnetwork: {mode: full, http_proxy: nowhere}\n", "HOST:PORT"),
    ("version: 1\nnetwork: {unix_sockets: [/run/x.sock]}\n", "/run/x.sock"),
    ("version: 1\ncontainers: true\n", "containers"),
    ("version: 1\nvm: {enabled: true}\n", "virtual machines"),
])
def test_bad_or_unsupported_policy_is_125(box, text, said):
    box.identity.file(box.path("p.yaml"), text)
    assert said in fails_with_125(box, ["--policy", "p.yaml"])


def test_failure_as_json(box):
    result = box.run(["true"], options=["--json", "--rw", "/no/such/place"])
    assert result.exit == 125
    error = json.loads(result.stdout)["error"]
    assert error["code"] and "/no/such/place" in error["message"] and error["hint"]


def test_both_a_string_and_a_command(box):
    assert "-c" in fails_with_125(box, ["-c", "true"])


def test_empty_command(box):
    assert "empty" in fails_with_125(box, [], argv=[""])


def test_deleted_current_folder(box):
    result = bash(box, "mkdir gone; cd gone; rmdir ../gone; $S -- true")
    assert result.exit == 125 and "cd to an existing folder" in result.stderr, result


def test_nothing_happens_on_a_bad_flag(box):
    """Options are checked before anything is created."""
    before = signature(box.project)
    fails_with_125(box, ["--rw", "/no/such/place"])
    assert signature(box.project) == before


# ---- streams ----


def test_five_megabytes_unchanged(box):
    data = os.urandom(5 << 20)
    process = box.start(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE)
    out, err = process.communicate(data, timeout=20)
    assert process.returncode == 0 and err == b""
    assert hashlib.sha256(out).digest() == hashlib.sha256(data).digest()


def test_streams_stay_apart(box):
    result = shell(box, "echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit) == ("out\n", "err\n", 3)


def test_nothing_copies_the_streams(box):
    """The command's descriptors are the caller's own pipes, not copies that a relay feeds."""
    ends = [os.pipe() for _ in range(3)]
    script = "for n in 0 1; do stat -L -c %i /proc/self/fd/$n; done; stat -L -c %i /proc/self/fd/2 >&2"
    process = box.start(["sh", "-c", script], stdin=ends[0][0], stdout=ends[1][1], stderr=ends[2][1])
    assert process.wait(10) == 0
    seen = os.read(ends[1][0], 4096).split() + os.read(ends[2][0], 4096).split()
    mine = [str(os.fstat(end[0]).st_ino).encode() for end in ends]
    for end in ends:
        os.close(end[0])
        os.close(end[1])
    # With `stat … > stdout`, fd 2 of the third stat is ends[2]; its own stdout goes there too.
    assert seen == mine


def test_no_inherited_descriptors(box):
    secret = os.open(box.home("readable.txt"), os.O_RDONLY)
    os.set_inheritable(secret, True)
    try:
        argv = ["sh", "-c", "ls /proc/self/fd"]
        outside = box.plain(argv, pass_fds=(secret,)).stdout.split()
        inside = box.run(argv, pass_fds=(secret,)).stdout.split()
    finally:
        os.close(secret)
    assert str(secret) in outside, "the control shows nothing"
    assert inside == ["0", "1", "2", "3"], inside  # 3: ls itself


@pytest.mark.parametrize("prefix", ["", "$S -- "], ids=["outside", "inside"])
def test_sigpipe_as_outside(box, prefix):
    result = bash(box, f"{prefix}yes | head -1; echo ${{PIPESTATUS[*]}}")
    assert result.stdout == "y\n141 0\n", result


def test_ignored_sigpipe_stays_ignored(box):
    script = "trap '' PIPE; {}sh -c 'yes 2>/dev/null; exit $?' | head -1; echo ${{PIPESTATUS[0]}}"
    assert bash(box, script.format("$S -- ")).stdout == bash(box, script.format("")).stdout


@pytest.mark.parametrize("redirection, argv, status", [
    ("<&-", "cat", 1),
    (">&-", "echo x", 1),
    ("2>&-", "echo x", 0),
    ("<&- >&- 2>&-", "true", 0),
    (">/dev/full", "echo x", 1),
])
def test_closed_and_full_streams_as_outside(box, redirection, argv, status):
    outside = bash(box, f"env {argv} {redirection}")
    inside = bash(box, f"$S -- {argv} {redirection}")
    assert outside.exit == status
    assert inside.exit == outside.exit and inside.stdout == outside.stdout, (inside, outside)


def test_closed_stream_is_not_given_something_else(box):
    """A descriptor of ours must never land on a number that the caller left closed."""
    result = bash(box, "$S -- ls -l /proc/self/fd <&- 2>/dev/null")
    numbers = [line.split()[8] for line in result.stdout.splitlines()[1:]]
    # ls takes the lowest free number for the folder it reads: that is 0, and nothing else is new.
    assert numbers == ["0", "1", "2"], result
    assert "/proc/" in result.stdout.splitlines()[1], result


@pytest.mark.parametrize("script", [
    "echo one > /dev/stdout", "echo one >> /dev/fd/1", "cp README.md /dev/stdout"])
def test_dev_stdout_when_it_is_a_file(box, script):
    box.identity.file(box.path("README.md"), "one\n")
    assert bash(box, f"$S -c '{script}' > out.txt; cat out.txt").stdout == "one\n"


def test_dev_stderr_when_it_is_a_file(box):
    result = bash(box, "$S -c 'echo one | tee /dev/stderr > /dev/null' 2> err.txt; cat err.txt")
    assert result.stdout == "one\n", result


def test_streams_to_files_outside_the_project(box):
    """What the caller opened, the command may use, wherever it lies."""
    result = bash(box, 'cat > "$HOME/in.txt" <<< data; $S -- cat < ~/in.txt > ~/out.txt; cat ~/out.txt')
    assert result.stdout == "data\n", result


@pytest.mark.parametrize("redirection", ["< .", "0< /", "2< ."])
def test_folder_as_stream_is_refused(box, redirection):
    result = bash(box, f"$S -- true {redirection}")
    assert result.exit == 125, result
    if not redirection.startswith("2"):
        assert "is a folder" in result.stderr and "fix:" in result.stderr


def test_background_process_ends_with_the_command(box):
    """The pipe closes at once: nothing is left that holds it."""
    result = shell(box, "sleep 30 & echo started")
    assert result.stdout == "started\n" and result.seconds < 5


# ---- what is run ----


def test_command_string(box):
    result = box.plain([box.world.command, "run", "--static", "-c", "echo $((6*7)) | tr 4 5"])
    assert (result.exit, result.stdout) == (0, "52\n")


def test_no_command_is_a_shell(box):
    process = box.popen([box.world.command, "run", "--static"], stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE, env={"SHELL": "/bin/sh"})
    out, _ = process.communicate(b"echo $0 $((1+1)); exit 7\n", timeout=10)
    assert (process.returncode, out) == (7, b"/bin/sh 2\n")


def test_script_without_interpreter_line(box):
    box.identity.file(box.path("script"), 'echo "$0:$1:$#"\n', 0o755)
    result = box.run(["./script", "a b", "c"])
    assert (result.exit, result.stdout) == (0, "./script:a b:2\n"), result


def test_empty_executable_file(box):
    box.identity.file(box.path("script"), "", 0o755)
    assert box.run(["./script"]).exit == 0


def test_arguments_unchanged(box):
    words = ["", " ", "-x", "--", "a\nb", "*", "$HOME", "'", '"', "\\", "é\x01\x7f"]
    result = box.run(["printf", "[%s]", *words])
    assert result.stdout == "".join(f"[{word}]" for word in words)


def test_arguments_that_are_not_text(box):
    process = box.start(["printf", "%s", b"\xff\xfe\x80"], stdout=subprocess.PIPE)
    assert process.communicate(timeout=10)[0] == b"\xff\xfe\x80"


def test_own_options_end_at_the_command(box):
    result = box.plain([box.world.command, "run", "--static", "echo", "--rw", "/nowhere", "-c"])
    assert result.stdout == "--rw /nowhere -c\n"


def test_chdir(box):
    box.identity.folder(box.path("sub dir"))
    result = box.run(["pwd"], options=["-C", "sub dir"])
    assert result.stdout == box.path("sub dir") + "\n", result


def test_name_of_the_working_folder(box):
    """$PWD is where the command starts, by the caller's own name for it if that leads there."""
    box.identity.folder(box.path("sub"))
    os.symlink("sub", box.path("link"))
    for named, options, expected in (("link", [], "link"), ("sub", [], "sub"), ("", [], "sub"),
                                     ("..", [], "sub"), ("nowhere", [], "sub"), ("sub", ["-C", ".."], "")):
        result = box.run(["printenv", "PWD"], options=options, cwd=box.path("sub"),
                         env={"PWD": box.path(named)})
        assert result.stdout.strip() == box.path(expected).rstrip("/"), (named, result)


def test_umask_and_limits_are_the_callers(box):
    script = "umask 027; ulimit -n 100; {}sh -c 'umask; ulimit -n'"
    assert bash(box, script.format("$S -- ")).stdout == "0027\n100\n"


# ---- environment ----


@pytest.mark.parametrize("name", [
    "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "ANTHROPIC_API_KEY", "SSH_AUTH_SOCK", "LD_PRELOAD",
    "DBUS_SESSION_BUS_ADDRESS", "NPM_TOKEN", "DATABASE_URL", "LD_LIBRARY_PATH", "DISPLAY",
    "WAYLAND_DISPLAY", "GPG_AGENT_INFO", "DOCKER_HOST", "KUBECONFIG", "BASH_ENV", "ANYTHING_ELSE"])
def test_environment_is_an_allow_list(box, name):
    value = "" if name == "LD_PRELOAD" else "value-of-it"
    result = box.run(["env"], env={name: value})
    assert not any(line.startswith(name + "=") for line in result.stdout.splitlines()), result
    control = box.plain(["env"], env={name: value})
    assert any(line.startswith(name + "=") for line in control.stdout.splitlines())


def test_ordinary_variables_pass(box):
    given = {"LANG": "C.UTF-8", "TERM": "xterm-256color", "EDITOR": "vi", "TZ": "UTC",
             "LC_ALL": "C"}
    lines = box.run(["env"], env=given).stdout.splitlines()
    for name, value in {**given, "HOME": box.identity.home, "USER": box.identity.login}.items():
        assert f"{name}={value}" in lines


def test_env_option(box):
    options = ["--env", "GIVEN", "--env", "SET=a=b c", "--env", "EMPTY=", "--env", "TERM=changed"]
    lines = box.run(["env"], options=options, env={"GIVEN": "from outside"}).stdout.splitlines()
    for line in ("GIVEN=from outside", "SET=a=b c", "EMPTY=", "TERM=changed"):
        assert line in lines, lines
    assert "NOT_THERE" not in "\n".join(box.run(["env"], options=["--env", "NOT_THERE"]).stdout)


@pytest.mark.parametrize("name", ["", "=value"])
def test_env_option_without_a_name(box, name):
    assert "--env" in fails_with_125(box, ["--env", name])


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_name_of_the_machine_has_an_address(box, mode):
    """Java's getLocalHost and many others give up without one; what the host's list says stays."""
    with open("/etc/hosts", encoding="utf-8") as hosts:
        host = hosts.read()
    script = "getent hosts $(hostname) && cat /etc/hosts; echo x >>/etc/hosts"
    result = box.plain([box.world.command, "run", "--mode", mode, "-c", script])
    assert result.stdout.startswith("127.0.1.1"), result
    assert host in result.stdout and "Read-only" in result.stderr, result


def test_session_id_and_hostname(box):
    out = shell(box, "echo $SANDBOX; hostname; uname -n").stdout.split()
    assert out[1] == out[2] == f"sandbox-{out[0]}" and len(out[0]) == 8, out
    assert os.uname().nodename not in out


# claude-code#43096 #45853 #91676
@pytest.mark.parametrize("outside", [None, "/no/such/folder", "/usr", "/tmp", "relative", ""])
def test_tmpdir_exists_and_is_private(box, outside):
    env = {} if outside is None else {"TMPDIR": outside}
    script = 'test -d "$TMPDIR" && f=$(mktemp) && echo "$f" && echo x > "$f" && stat -c %a "$TMPDIR"'
    result = shell(box, script, env=env)
    assert result.exit == 0, result
    name, mode = result.stdout.split()
    assert not os.path.exists(name), "the folder is the host's"
    assert mode == "1777"
    assert shell(box, f"test -e {name}").exit == 1, "the folder is shared between sessions"


# ---- clocks ----


@pytest.mark.parametrize("offset", [100000, -1])
def test_time_offset(box, offset):
    def clocks(options):
        result = box.run(["/usr/bin/python3", "-c", CLOCK], options=options)
        return [float(word) for word in result.stdout.split()]

    if offset == -1 and time.clock_gettime(time.CLOCK_BOOTTIME) < 60:
        pytest.skip("the machine has just booted: no clock may become negative")
    plain, shifted = clocks([]), clocks([f"--time-offset={offset}"])
    assert abs(shifted[0] - plain[0] - offset) < 30 and abs(shifted[1] - plain[1] - offset) < 30
    assert abs(shifted[2] - plain[2]) < 30, "real time must not move"
    if offset < 0:
        assert shifted[0] < time.clock_gettime(time.CLOCK_BOOTTIME)


def test_time_offset_below_zero_time(box):
    assert "clocks" in fails_with_125(box, ["--time-offset=-3153600000"])


# ---- what it says ----


def test_dry_run_changes_nothing(box):
    kept = [box.identity.home, box.identity.state, box.identity.runtime]
    before = [signature(folder) for folder in kept]
    options = ["--dry-run", "--overlay", "sub", "--blacklist", "README.md"]
    result = box.run(["touch", "made"], options=options)
    assert result.exit == 0 and result.stderr == "", result
    for word in ("command: touch made", f"folder: {box.project}", "hostname: sandbox-", "view:",
                 "seccomp", "landlock", "namespaces: user mount pid"):
        assert word in result.stdout, result.stdout
    assert [signature(folder) for folder in kept] == before


def test_dry_run_json(box):
    result = box.run(["touch", "made"], options=["--dry-run", "--json"])
    plan = json.loads(result.stdout)
    assert plan["arguments"] == ["touch", "made"] and plan["working_folder"] == box.project, plan
    assert any(step["operation"] == "writable" and step["path"] == box.project
               for step in plan["operations"]), plan
    assert not os.path.exists(box.path("made"))


def test_dry_run_json_with_hostile_names(box):
    name = b"bad\xff\x1b[31m\n\"\\"
    process = box.start([b"printf", name], options=["--dry-run", "--json"], stdout=subprocess.PIPE)
    json.loads(process.communicate(timeout=10)[0])
    process = box.start([b"printf", name], options=["--dry-run"], stdout=subprocess.PIPE)
    assert b"\x1b" not in process.communicate(timeout=10)[0]


def test_timing(box):
    result = box.run(["true"], options=["--timing"])
    assert result.exit == 0 and result.stdout == ""
    rows = [line.split(None, 2) for line in result.stderr.splitlines()]
    times = [int(row[0]) for row in rows]
    assert all(row[1] == "us" for row in rows) and len(rows) >= 6, result.stderr
    for step in ("policy and plan", "file system view", "the command itself", "clean-up"):
        assert step in result.stderr
    assert times[-1] == max(times) and times[0] > 0


def test_silent_when_all_is_well(box):
    assert box.run(["true"]).stderr == ""


def test_quiet_hides_warnings_not_errors(box):
    """A `.git` file that points elsewhere is worth a warning."""
    box.identity.file(box.path("sub", ".git"), f"gitdir: {box.home('.ssh')}\n")
    loud = box.run(["true"], options=["-C", "sub"])
    quiet = box.run(["true"], options=["-C", "sub", "--quiet"])
    assert "warning" in loud.stderr and quiet.stderr == "", (loud, quiet)
    assert "fix:" in fails_with_125(box, ["--quiet", "--rw", "/no/such/place"])


def test_messages_have_no_raw_control_characters(box):
    result = box.run(["\x1b[31mno\nsuch"])
    assert result.exit == 127
    assert "\x1b" not in result.stderr and "no\nsuch" not in result.stderr, result


def test_colour_only_on_a_terminal(box):
    assert "\x1b" not in box.run(["no-such-command"]).stderr
    assert "\x1b" in box.run(["no-such-command"], tty=True).stdout


# ---- signals ----


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "USR1", "USR2", "QUIT"])
def test_signals_reach_the_command(box, name):
    script = f"trap 'echo got; exit 9' {name}; echo ready; while :; do sleep 0.02; done"
    process = box.start(["sh", "-c", script], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(getattr(signal, "SIG" + name))
    assert process.stdout.read() == b"got\n"
    assert process.wait(5) == 9


def test_signal_ends_the_command(box):
    process = box.start(["sleep", "30"], stdout=subprocess.PIPE)
    time.sleep(0.1)
    process.terminate()
    assert process.wait(5) == 128 + signal.SIGTERM


# ---- what only we can know of a failure ----

RESERVED = "to let the command make one: sandbox run --unprotect .git"
DOCKER = "commands: {exclude: [docker], allow_unsandboxed: true}"


@pytest.mark.parametrize("argv, options, said", [
    (["git", "init"], [], True),
    (["sh", "-c", "cd .; /usr/bin/git init -q && true"], [], True),
    (["git", "init", "-q", "below"], [], False),
    (["git", "init", "-q"], ["--unprotect", ".git"], False),
    (["sh", "-c", ": legit init; git status"], [], False),
])
def test_git_init_where_there_is_no_repository(box, argv, options, said):
    box.identity.folder(box.home("plain"))
    result = box.run(argv, options=options, cwd=box.home("plain"))
    assert (RESERVED in result.stderr) == said, result
    assert (result.exit == 0) == (not said and "init" in argv), result


def test_a_repository_is_not_told_how_to_become_one(box):
    result = shell(box, "git init -q 2>/dev/null; exit 1")
    assert (result.exit, result.stderr) == (1, ""), result


@pytest.mark.parametrize("script, said", [
    ("git config a.b c", "sandbox run --unprotect .git/config"),
    ("cd .; git remote add name /nowhere", "sandbox run --unprotect .git/config"),
    ("git clean -qfdx", "cannot be removed"), ("rm -rf *", "cannot be removed"),
    ("find . -path ./.git -prune -o -type d -empty -delete", "cannot be removed"),
    ("git clone -q . .", "sandbox run --unprotect ."),
    ("git config a.b", ""), ("rm ./* ../missing/*", ""), ("rm missing", ""),
    ("git clone -q ./missing other", "")])
def test_what_protected_names_are_in_the_way_of(box, script, said):
    """The kernel alone refuses it; nothing is said of a failure that has other reasons."""
    path = box.home("other")
    box.identity.folder(path)
    assert box.plain(["git", "init", "-q"], cwd=path).exit == 0
    box.identity.file(f"{path}/file", "")
    result = shell(box, script, cwd=path)
    ours = [line for line in result.stderr.splitlines() if line.startswith("sandbox: ")]
    assert result.exit != 0 and len(ours) == bool(said) and said in "".join(ours), result


REACH = "import socket, sys, time; time.sleep(0.2); " \
    "code = socket.socket(int(sys.argv[1])).connect_ex((sys.argv[2], 9)); sys.exit(bool(code) and sys.argv[3] == 'status')"


@pytest.mark.parametrize("family, address, status, said", [
    (socket.AF_INET, "192.0.2.1", "status", 1), (socket.AF_INET6, "2001:db8::1", "status", 1),
    (socket.AF_INET, "127.0.0.1", "status", 0), (socket.AF_INET, "192.0.2.1", "none", 0)])
@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_a_network_that_is_not_there_is_told_of(box, mode, family, address, status, said):
    """To who failed for it, perhaps: nobody else is told, nor who has one."""
    argv = ["/usr/bin/python3", "-c", REACH, str(int(family)), address, status]
    result = box.run(argv, options=["--mode", mode])
    assert result.exit == (status == "status") and result.stderr.count("this session has none") == said, result
    other = box.run(argv, options=["--mode", mode, "--allow-network=example.test"])
    assert "this session has none" not in other.stderr, other


def test_what_lets_git_clone_into_the_project(box):
    """The words that the line above names, where nothing else is in the way."""
    for folder in ("source", "target"):
        box.identity.folder(box.home(folder))
    assert box.plain(["git", "init", "-q"], cwd=box.home("source")).exit == 0
    result = box.run(["git", "clone", "-q", box.home("source"), "."], cwd=box.home("target"),
                     options=["--unprotect", ".", "--ro", box.home("source")])
    assert result.exit == 0 and os.path.exists(box.home("target/.git/config")), result


@pytest.mark.parametrize("script, said", [
    ("cd .; /bin/docker ps 2>/dev/null; exit 1", True), ("docker ps 2>/dev/null || true", False),
    ("grep docker /dev/null", False), ("dockerfile 2>/dev/null; exit 1", False)])
def test_docker_that_fails(box, script, said):
    """There is a daemon, but its socket is not in the sandbox."""
    path = box.home("docker.sock")
    with listening(box, path):
        result = shell(box, script, env={"DOCKER_HOST": f"unix://{path}"})
    assert (DOCKER in result.stderr) == said, result
    assert shell(box, script, env={"DOCKER_HOST": f"unix://{box.home('none')}"}).stderr == ""
