"""More commands in a running session: exec and attach, their streams, terminals, signals and
confinement, and that a thousand of them leave nothing."""

import json
import os
import shlex
import signal
import subprocess
import time

import pexpect
import pytest

import harness
from harness import TIMEOUT
from sessions import (Control, as_text, eventually, idle, monitor_of, processes_of, running, sandbox,
                      status)


def execute(box, sid, *argv, options=(), **more):
    return sandbox(box, "exec", *options, sid, "--", *argv, **more)


def start(box, sid, *argv, **more):
    more.setdefault("stdin", subprocess.DEVNULL)
    more.setdefault("stdout", subprocess.PIPE)
    return box.popen([box.world.command, "exec", sid, "--", *argv], **more)


def waiting(box, sid, script):
    """A command under way that has said "ready"."""
    process = start(box, sid, "sh", "-c", script)
    assert process.stdout.readline() == b"ready\n"
    return process


def commands_of(box, sid):
    return [process["command"] for process in processes_of(box, sid)]


# ---- streams and codes ----


@pytest.mark.parametrize("code", [0, 1, 42, 124, 125, 126, 127, 255])
def test_the_commands_own_status(box, code):
    with idle(box) as sid:
        result = execute(box, sid, "sh", "-c", f"exit {code}")
        assert (result.exit, result.stdout, result.stderr) == (code, "", "")


def test_a_string_for_the_shell(box):
    """As `run -c`; the control: after "--" it is the name of a program."""
    with idle(box) as sid:
        result = sandbox(box, "exec", sid, "-c", "echo one; echo two >&2; exit 7")
        assert (result.exit, result.stdout, result.stderr) == (7, "one\n", "two\n"), result
        assert sandbox(box, "exec", sid, "--", "-c", "true").exit == 127


@pytest.mark.parametrize("name", ["INT", "KILL", "TERM", "SEGV", "PIPE"])
def test_signal_is_128_plus_its_number(box, name):
    with idle(box) as sid:
        result = execute(box, sid, "sh", "-c", f"kill -{name} $$")
        assert result.exit == 128 + getattr(signal, "SIG" + name), result


def test_not_found_and_not_executable(box):
    box.identity.file(box.path("plain.txt"), "text\n")
    with idle(box) as sid:
        for argv, code in ((["no-such-command"], 127), (["/no/such"], 127), (["./plain.txt"], 126),
                           (["/etc"], 126)):
            result = execute(box, sid, *argv)
            assert result.exit == code and argv[0] in result.stderr, result
            assert "fix:" in result.stderr
        assert execute(box, sid, "true", options=["-C", "/no/such/folder"]).exit in (126, 127)
        assert execute(box, sid, "true").exit == 0


def test_streams_are_binary_safe_and_apart(box):
    data = os.urandom(1 << 20)
    with idle(box) as sid:
        process = start(box, sid, "sh", "-c", "cat; printf 'to stderr' >&2; exit 3",
                        stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(data, timeout=20)
        assert (out == data, err, process.returncode) == (True, b"to stderr", 3)


def test_end_of_input_reaches_the_command(box):
    with idle(box) as sid:
        process = start(box, sid, "cat", stdin=subprocess.PIPE)
        process.stdin.write(b"first")
        process.stdin.flush()
        assert process.stdout.read(5) == b"first"
        process.stdin.close()
        assert process.wait(2) == 0 and process.stdout.read() == b""
        process.stdout.close()


def test_closed_reader_ends_the_writer(box):
    with idle(box) as sid:
        process = start(box, sid, "sh", "-c", "while echo line; do :; done", stderr=subprocess.DEVNULL)
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(TIMEOUT) in (-signal.SIGPIPE, 141, 1, 2), process.returncode
        assert eventually(lambda: len(commands_of(box, sid)) == 1)


def test_every_byte_of_the_words_arrives(box):
    words = [b"\xff\xfe", b"a b", b"", b"\n", "ü€😀".encode(), b"'\"\\$", b"\x01\x1b", b"-x", b"--"]
    with idle(box) as sid:
        process = start(box, sid, "python3", "-c",
                        "import os, sys\nfor word in sys.argv[1:]:\n print(os.fsencode(word).hex())\n"
                        "print(os.environb[b'ODD'].hex())", *words)
        out = process.communicate(timeout=TIMEOUT)[0]
        assert process.returncode == 1, "no variable yet"
        assert out.decode().split("\n")[:-1] == [word.hex() for word in words]
        process = box.popen([box.world.command, "exec", "--env", b"ODD=\xff=\xfe", sid, "printenv",
                             "ODD"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        assert process.communicate(timeout=TIMEOUT)[0] == b"\xff=\xfe\n"
        folder = os.path.join(os.fsencode(box.project), b"odd\xff")
        os.mkdir(folder)
        box.identity.own(folder)
        process = box.popen([box.world.command, "exec", "-C", folder, sid, "pwd"],
                            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        assert process.communicate(timeout=TIMEOUT)[0] == folder + b"\n"


def test_long_arguments(box):
    with idle(box) as sid:
        words = ["x" * 1000] * 400
        assert execute(box, sid, "sh", "-c", "echo $#", "sh", *words).stdout == "400\n"
        result = execute(box, sid, "true", *["\u00e9" * 60000] * 10)  # more than a request may hold
        assert result.exit == 125 and "too long" in result.stderr and "fix:" in result.stderr, result
        assert execute(box, sid, "true").exit == 0


def test_folder_and_environment(box):
    with idle(box, "--env", "FROM_RUN=1") as sid:
        assert execute(box, sid, "pwd").stdout == box.project + "\n"
        assert execute(box, sid, "pwd", options=["-C", "/usr"]).stdout == "/usr\n"
        assert execute(box, sid, "printenv", "PWD", options=["-C", "/usr"]).stdout == "/usr\n"
        result = execute(box, sid, "sh", "-c", "echo $FROM_RUN $FROM_EXEC $STRAY",
                         options=["--env", "FROM_EXEC=2"], env={"STRAY": "leaked"})
        assert result.stdout == "1 2\n"
        result = execute(box, sid, "true", options=["--env", "NOVALUE"])
        assert result.exit == 125 and "fix:" in result.stderr


def test_without_descriptors(box):
    """stdin closed by the caller: nothing of ours may land there."""
    with idle(box) as sid:
        script = f'"{box.world.command}" exec {sid} -- sh -c "cat <&0; echo code \\$?" <&-'
        result = box.plain(["sh", "-c", script])
        assert "code" in result.stdout or result.exit == 125, result
        assert execute(box, sid, "true").exit == 0


# ---- confined like the first command ----

DUMP = r"""
import os, json, resource, signal, socket
found = {}
for line in open("/proc/self/status"):
    key, _, value = line.partition(":")
    if key.startswith(("Cap", "Sig", "Shd")) or key in ("NoNewPrivs", "Seccomp", "Seccomp_filters",
            "Uid", "Gid", "Groups", "Umask", "NStgid", "Speculation_Store_Bypass"):
        found[key] = value.strip()
found.pop("NStgid", None)
found.pop("SigQ", None)
for name in ("uid_map", "gid_map", "setgroups", "mountinfo", "limits", "cgroup", "oom_score_adj",
             "personality", "attr/current"):
    try:
        found[name] = open("/proc/self/" + name).read()
    except OSError as problem:
        found[name] = problem.errno
for name in os.listdir("/proc/self/ns"):
    found["ns/" + name] = os.readlink("/proc/self/ns/" + name)
found["environment"] = sorted(item for item in os.environ.items() if item[0] not in ("PWD", "OLDPWD"))
found["descriptors"] = sorted(os.listdir("/proc/self/fd"))[:-1]
found["cwd"], found["nice"] = os.getcwd(), os.nice(0)
found["writes"] = []
for path in ("/usr/x", "/etc/x", os.path.expanduser("~/x"), "/proc/sys/kernel/hostname",
             "/sys/x", ".git/hooks/post-checkout", ".vscode/tasks.json", "/tmp/x", "fine"):
    try:
        open(path, "a").close()
        found["writes"].append((path, 0))
    except OSError as problem:
        found["writes"].append((path, problem.errno))
calls = found["calls"] = []
for call in (lambda: os.unshare(0x10000000) if hasattr(os, "unshare") else None,
             lambda: os.setuid(0 if os.getuid() else 1), lambda: os.kill(1, 9), lambda: os.chroot("/"),
             lambda: socket.socket(socket.AF_PACKET), lambda: os.setgroups([0]),
             lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20))):
    try:
        call()
        calls.append(0)
    except (OSError, ValueError) as problem:
        calls.append(str(problem))
print(json.dumps(found), flush=True)
"""


@pytest.mark.parametrize("options", [[], ["--open-files", "100", "--file-size", "50M"],
                                     ["--no-debug"]])
def test_confined_exactly_like_the_first_command(box, options):
    box.identity.file(box.path("dump.py"), DUMP)
    with running(box, ["sh", "-c", "python3 dump.py > first; touch done; exec sleep 30"],
                 *options) as (_, sid):
        assert eventually(lambda: os.path.exists(box.path("done")))
        with open(box.path("first")) as source:
            first = json.load(source)
        with open(box.path("second"), "w") as target:
            box.identity.own(box.path("second"))
            process = start(box, sid, "python3", "dump.py", stdout=target, stderr=target)
            assert process.wait(TIMEOUT) == 0
        with open(box.path("second")) as source:
            second = json.load(source)
    assert first["CapEff"] == first["CapBnd"] == "0" * 16 and first["NoNewPrivs"] == "1"
    assert first["Seccomp"] == "2"
    for key in first:
        assert first[key] == second[key], key


def test_secrets_stay_secret(box):
    with idle(box) as sid:
        for path in (box.home(".ssh/id_ed25519"), box.path(".env")):
            result = execute(box, sid, "cat", path)
            assert box.canary not in result.stdout and (result.exit or not result.stdout), result


def test_no_descriptor_of_the_supervisor_gets_in(box):
    with idle(box) as sid:
        listing = execute(box, sid, "ls", "/proc/self/fd").stdout.split()
        assert listing == ["0", "1", "2", "3"], listing  # 3 is the listing itself


# ---- ends ----


def test_killed_client_ends_its_command(box):
    with idle(box) as sid:
        process = waiting(box, sid, "echo ready; sleep 41 & sleep 42; :")
        other = waiting(box, sid, "echo ready; sleep 43; :")
        process.kill()
        process.wait(2)
        assert eventually(lambda: not {"sleep 41", "sleep 42"} & set(commands_of(box, sid)))
        assert "sleep 43" in commands_of(box, sid), "another client's command was hit"
        other.kill()
        other.wait(2)
        process.stdout.close()
        other.stdout.close()
        assert eventually(lambda: len(commands_of(box, sid)) == 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT,
                                    signal.SIGUSR1])
def test_signals_are_forwarded(box, number):
    with idle(box) as sid:
        process = waiting(box, sid, f"trap 'echo got it; exit 9' {number.name[3:]}; echo ready; "
                                    "while :; do sleep 0.02; done")
        os.kill(process.pid, number)
        assert process.wait(3) == 9
        assert process.stdout.read() == b"got it\n"
        process.stdout.close()


def test_signal_without_a_handler(box):
    with idle(box) as sid:
        process = waiting(box, sid, "echo ready; exec sleep 30")
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(3) == 130
        process.stdout.close()


def test_after_the_end_of_the_session(box):
    with idle(box) as sid:
        sandbox(box, "kill", sid)
        result = execute(box, sid, "true")
        assert result.exit == 125 and "no session" in result.stderr, result


def test_session_ends_meanwhile(box):
    with idle(box) as sid:
        process = start(box, sid, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done",
                        stderr=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        assert sandbox(box, "kill", "--now", sid).exit == 0
        _, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 125 and b"the session has ended" in err


def test_first_command_ends_while_another_runs(box):
    with running(box, ["sleep", "0.4"]) as (process, sid):
        other = start(box, sid, "sleep", "30", stderr=subprocess.DEVNULL)
        assert process.wait(3) == 0
        assert other.wait(3) == 125
        other.stdout.close()


# ---- terminals ----


def terminal(box, *words, **more):
    """The command on a terminal of its own, typed at by us."""
    return pexpect.spawn(box.world.command, list(words), env=box.identity.environment(),
                         cwd=box.project, preexec_fn=box.identity.become, timeout=TIMEOUT,
                         encoding="utf-8", dimensions=(30, 100), **more)


def test_terminal_of_its_own(box):
    with idle(box) as sid:
        child = terminal(box, "exec", sid, "--", "sh", "-c", "tty; stty size; exit 7")
        child.expect(r"/dev/pts/\d+")
        child.expect("30 100")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 7


def test_typing_and_end_of_file(box):
    with idle(box) as sid:
        child = terminal(box, "exec", sid, "--", "cat")
        child.sendline("hello there")
        child.expect("hello there\r\nhello there")
        child.sendeof()
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 0


def test_interrupt_key(box):
    with idle(box) as sid:
        child = terminal(box, "exec", sid, "--", "sh", "-c", "echo ready; exec sleep 30")
        child.expect("ready")
        child.sendintr()
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 130


def test_window_size_follows(box):
    with idle(box) as sid:
        child = terminal(box, "exec", sid, "--", "sh", "-c",
                         "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done")
        child.expect("ready")
        child.setwinsize(41, 123)
        child.expect("41 123")
        child.expect(pexpect.EOF)
        child.close()


def test_attach_is_a_shell(box):
    with running(box, ["sleep", "30"]) as (_, sid):
        child = terminal(box, "attach", sid)
        child.sendline("echo $((6 * 7)); cat .env; exit 5")
        child.expect("\r\n42\r\n")
        child.expect(pexpect.EOF)
        assert box.canary not in child.before
        child.close()
        assert child.exitstatus == 5
        assert sandbox(box, "ps", sid).exit == 0, "the session went with it"


def test_terminal_is_restored(box):
    with idle(box) as sid:
        result = sandbox(box, "exec", sid, "--", "true", tty=True)
        assert result.exit == 0 and result.terminal_restored


def test_hang_up_ends_the_command(box):
    with idle(box) as sid:
        child = terminal(box, "exec", sid, "--", "sh", "-c", "echo ready; sleep 44; :")
        child.expect("ready")
        child.close(force=True)
        assert eventually(lambda: len(commands_of(box, sid)) == 1), commands_of(box, sid)


@pytest.mark.parametrize("how", ["</dev/null", "| cat", ">out"])
def test_the_terminal_is_not_left_to_the_command(box, how):
    """Whatever of the streams is one: it could read what is typed there as long as the session lasts."""
    device = "stat -L -c %t:%T /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2"
    script = f"{device} >devices; test -t 2 && echo still a terminal >&2"
    with idle(box) as sid:
        for options, held in ([], False), (["--tty", "never"], True):
            line = shlex.join([box.world.command, "exec", *options, sid, "--", "sh", "-c", script])
            child = pexpect.spawn("sh", ["-c", f"stat -L -c %t:%T /dev/stderr; {line} {how}"], cwd=box.project,
                                  env=box.identity.environment(), preexec_fn=box.identity.become, timeout=10)
            child.expect("([0-9a-f]+:[0-9a-f]+)\r\n")
            ours = child.match[1].decode()
            child.expect("still a terminal")
            child.expect(pexpect.EOF)
            child.close()
            with open(box.path("devices")) as source:
                assert (ours in source.read().split()) == held


def test_lines_typed_for_a_command_whose_output_goes_elsewhere(box):
    with idle(box) as sid:
        line = shlex.join([box.world.command, "exec", sid, "--", "sh", "-c", "echo ready >&2; cat"])
        child = pexpect.spawn("sh", ["-c", f"{line} >out; echo over $?"], cwd=box.project,
                              env=box.identity.environment(), preexec_fn=box.identity.become, timeout=10)
        child.expect("ready")
        child.sendline("one")
        child.sendline("two")
        time.sleep(0.3)
        child.sendeof()
        child.expect("over 0")
        child.close()
        with open(box.path("out")) as source:
            assert source.read() == "one\ntwo\n"


def test_terminal_on_request(box):
    with idle(box) as sid:
        assert execute(box, sid, "tty", options=["--tty", "always"]).stdout.startswith("/dev/pts/")
        assert execute(box, sid, "tty", options=["--tty", "never"]).exit == 1


# ---- many ----


def footprint(pid):
    """Descriptors and private memory (kB) of a process; what a leak would grow."""
    with open(f"/proc/{pid}/smaps_rollup") as source:
        private = sum(int(line.split()[1]) for line in source if line.startswith("Private_Dirty"))
    return len(os.listdir(f"/proc/{pid}/fd")), private


def keys(uid):
    with open("/proc/key-users") as source:
        counts = dict(line.split(":", 1) for line in source)
    return int(counts.get(f"{uid:5d}", "0").split()[0])


@pytest.mark.parametrize("identity", harness.SOME, indirect=True)
def test_a_thousand_leave_nothing(host_root, box):
    with idle(box) as sid, open(os.devnull, "r+b") as null:
        fds = [null.fileno()] * 3
        monitor, init = monitor_of(box, sid), processes_of(box, sid)[0]["host_pid"]

        def many(count):
            for _ in range(count):
                with Control(box, sid) as control:
                    assert control.execute(["/bin/true"], fds) == 0

        def look():
            time.sleep(0.1)  # until the last connection is closed at the other end, too
            return [footprint(pid) for pid in (monitor, init)]

        many(50)
        before, keys_before = look(), keys(box.identity.uid)
        many(1000)
        after = look()
        assert keys(box.identity.uid) < keys_before + 100  # others on this machine have some, too
        for (fds_before, memory_before), (fds_after, memory_after) in zip(before, after):
            # AddressSanitizer keeps freed memory on purpose.
            flat = memory_after <= memory_before + 64 or os.environ.get("SANDBOX_SANITIZED")
            assert fds_after == fds_before and flat, (before, after)
        assert len(processes_of(box, sid)) == 1


def test_fifty_at_once(box):
    with idle(box) as sid:
        many = [start(box, sid, "sh", "-c", f"sleep 0.2; echo {i}; exit {i}") for i in range(50)]
        for i, process in enumerate(many):
            out = process.communicate(timeout=TIMEOUT)[0]
            assert (process.returncode, out) == (i, b"%d\n" % i)
        assert len(processes_of(box, sid)) == 1


def test_too_many_at_once_is_said(box):
    with idle(box) as sid:
        connections = []
        try:
            for _ in range(700):
                connections.append(Control(box, sid))
                if "error" in (connections[-1].hello or {"error": "closed without a word"}):
                    break
            assert "too many" in connections[-1].hello["error"]["message"]
            assert len(connections) > 200
            result = execute(box, sid, "true")
            assert result.exit == 125 and "too many" in result.stderr, result
        finally:
            for connection in connections:
                connection.__exit__()
        assert eventually(lambda: execute(box, sid, "true").exit == 0)


# ---- the protocol itself ----


def test_requests_in_a_row(box):
    """Descriptors belong to the command they came with, whatever else is on its way."""
    with idle(box) as sid, Control(box, sid) as control:
        pipes = [os.pipe() for _ in range(3)]
        with open(os.devnull) as null:
            for number, (_, writer) in enumerate(pipes):
                control.send({"cmd": "cmd.info", "tag": "between"})
                control.send({"cmd": "cmd.exec", "argv": ["echo", str(number)], "tag": number},
                             [null.fileno(), writer, writer])
        for _, writer in pipes:
            os.close(writer)
        for number, (reader, _) in enumerate(pipes):
            with os.fdopen(reader, "rb") as source:
                assert source.read() == b"%d\n" % number
        messages = [control.read() for _ in range(9)]
        assert not [message for message in messages if "error" in message], messages


def test_words_as_base64(box):
    with idle(box) as sid, Control(box, sid) as control, open(os.devnull, "r+b") as null:
        reader, writer = os.pipe()
        words = [as_text(word) for word in (b"printf", b"%s", b"\xff\x00"[:1])]
        control.send({"cmd": "cmd.exec", "argv_b64": words}, [null.fileno(), writer, writer])
        os.close(writer)
        with os.fdopen(reader, "rb") as source:
            assert source.read() == b"\xff"


@pytest.mark.parametrize("request_, said", [
    ({"cmd": "cmd.exec"}, "argv"),
    ({"cmd": "cmd.exec", "argv": []}, "argv"),
    ({"cmd": "cmd.exec", "argv": "ls"}, "argv"),
    ({"cmd": "cmd.exec", "argv": [1]}, "argv"),
    ({"cmd": "cmd.exec", "argv": ["a\0b"]}, "u0000"),
    ({"cmd": "cmd.exec", "argv_b64": ["!"]}, "argv"),
    ({"cmd": "cmd.exec", "argv": ["true"]}, "descriptors"),
    ({"cmd": "cmd.exec", "argv": ["true"], "env": "A=1"}, "env"),
    ({"cmd": "cmd.exec", "argv": ["true"], "cwd": 7}, "cwd"),
    ({"cmd": "cmd.exec.signal", "id": 99, "signal": 9}, "no such command"),
    ({"cmd": "cmd.signal", "signal": 0}, "signal"),
    ({"cmd": "cmd.signal", "signal": 4711}, "signal"),
    ({"cmd": "cmd.nonsense"}, "unknown"),
    ({}, "unknown"),
    ([], "JSON object"),
])
def test_wrong_requests_are_refused(box, request_, said):
    with idle(box) as sid, Control(box, sid) as control:
        answer = control.call(request_)
        assert said in answer["error"]["message"], answer
        assert control.call({"cmd": "cmd.info"})["sid"] == sid


def test_garbage_does_not_disturb(box):
    with idle(box) as sid:
        with Control(box, sid) as control:
            control.socket.sendall(b"\xff\x00not json\n")
            assert "error" in control.read()
        with Control(box, sid) as control:
            try:
                control.socket.sendall(b"x" * (3 << 20))
            except OSError:
                pass
        with Control(box, sid) as control:
            control.send({"cmd": "cmd.stats"})  # and leaves without reading
        assert execute(box, sid, "echo", "fine").stdout == "fine\n"


def test_folder_as_descriptor_is_refused(box):
    """openat(0, "..") would walk the host."""
    with idle(box) as sid:
        result = box.plain(["sh", "-c", f'"{box.world.command}" exec {sid} -- ls /proc/self/fd/0/ </'])
        assert result.exit == 125 and "folder" in result.stderr and result.stdout == "", result
        assert execute(box, sid, "true").exit == 0
