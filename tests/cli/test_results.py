"""What a run tells: JSON, summary, status lines and the log."""

import base64
import json
import os
import re
import subprocess

import pytest

from dynamic import answer, asking, ground, question
from sessions import running, sandbox

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]")


def as_json(box, argv, *options, **more):
    result = box.run(argv, options=["--json", *options], **more)
    assert result.stdout.count("\n") == 1 and not CONTROL.search(result.stdout), result
    return json.loads(result.stdout), result


# ---- JSON ----


def test_every_field(box):
    answer, result = as_json(box, ["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert result.exit == answer["exitCode"] == 3 and answer["success"] is False
    assert (answer["stdout"], answer["stderr"]) == ("out\n", "err\n") and result.stderr == ""
    assert re.fullmatch(r"[a-z2-9]{8}", answer["sid"])
    assert (answer["backend"], answer["mode"], answer["limitHit"]) == ("native", "static", None)
    assert isinstance(answer["denials"], list) and answer["limits"] == {}
    assert "changes" in answer
    usage = answer["resourceUsage"]
    assert {"cpuTime", "memoryPeak", "wallTime"} <= set(usage)
    assert 0 < usage["wallTime"] < 10


def test_success(box):
    answer, result = as_json(box, ["true"])
    assert answer["success"] is True and answer["exitCode"] == result.exit == 0


def test_killed_by_a_signal(box):
    assert as_json(box, ["sh", "-c", "kill -SEGV $$"])[0]["exitCode"] == 139


def test_usage_is_measured(box):
    program = "data = bytearray(60 << 20)\nfor i in range(0, len(data), 4096): data[i] = 1\n" \
              "import time\nwhile time.process_time() < 0.3: pass"
    answer, _ = as_json(box, ["python3", "-c", program], "--memory", "400M")
    usage = answer["resourceUsage"]
    assert 0.25 < usage["cpuTime"] < 3 and usage["wallTime"] >= 0.25
    assert usage["memoryPeak"] > 50e6


def test_what_is_not_text_is_base64(box):
    answer, _ = as_json(box, ["printf", r"\377\376a\000b"])
    assert answer["stdout"] is None
    assert base64.b64decode(answer["stdout_b64"]) == b"\xff\xfea\0b"
    assert answer["stderr"] == "" and "stderr_b64" not in answer


@pytest.mark.parametrize("text", [r"\033[31mred\n\t", r"\000", r"\342\200\256", r"\"quoted\"\\"])
def test_control_characters_are_escaped(box, text):
    answer, _ = as_json(box, ["printf", text])
    expected = text.encode().decode("unicode_escape").encode("latin-1").decode()
    assert answer["stdout"] == expected


@pytest.mark.parametrize("size, cut", [(99, False), (100, False), (101, True)])
def test_cut_exactly_at_the_cap(box, size, cut):
    answer, _ = as_json(box, ["sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x"],
                        "--max-output", "100")
    assert len(answer["stdout"]) == min(size, 100) and answer["stdoutTruncated"] is cut


def test_cut_inside_a_character(box):
    answer, _ = as_json(box, ["printf", "aaa\u20ac"], "--max-output", "4")
    assert answer["stdoutTruncated"]
    kept = (answer["stdout"] or "").encode() or base64.b64decode(answer["stdout_b64"])
    assert kept.startswith(b"aaa")


def test_background_process_does_not_hold_the_result(box):
    answer, result = as_json(box, ["sh", "-c", "sleep 30 & echo done"])
    assert answer["stdout"] == "done\n" and result.seconds < 5


def test_not_found_as_json(box):
    result = box.run(["no-such-command"], options=["--json"])
    assert result.exit == 127 and json.loads(result.stdout)["error"]["message"], result


# ---- for people ----


def test_quiet_by_default(box):
    result = box.run(["echo", "only this"])
    assert (result.stdout, result.stderr) == ("only this\n", "")


def test_summary(box):
    result = box.run(["echo", "hello"], options=["--summary", "--memory", "300M", "--timeout", "9s"])
    assert result.stdout == "hello\n"
    header, footer = result.stderr.splitlines()[0], result.stderr.splitlines()[-1]
    assert re.match(r"sandbox \w{8}  network disabled", header), result
    assert "memory 300 MiB" in header and "time 9 seconds" in header
    assert re.search(r"completed in \d+\.\d\ds  cpu \d+\.\d\ds  peak memory .*  exit code 0$", footer)


def test_summary_and_quiet(box):
    assert box.run(["true"], options=["--summary", "--quiet"]).stderr == ""


def test_summary_names_the_limit(box):
    result = box.run(["sleep", "5"], options=["--summary", "--timeout", "1s"])
    assert result.exit == 124 and "limit exceeded: time" in result.stderr
    assert "limits.timeout_seconds" in result.stderr


# ---- status lines ----


def status_lines(box, argv, *options):
    reader, writer = os.pipe()
    process = box.start(argv, options=[*options, "--status-fd", str(writer)], pass_fds=[writer],
                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL)
    os.close(writer)
    with os.fdopen(reader) as lines:
        events = [json.loads(line) for line in lines]
    return events, process.wait(5)


def test_status_lines(box):
    events, code = status_lines(box, ["sh", "-c", "exit 5"])
    assert [event["event"] for event in events] == ["started", "ready", "exited"]
    assert len({event["sid"] for event in events}) == 1
    assert events[0]["pid"] > 1 and events[0]["init"] > 1
    assert events[-1]["exitCode"] == code == 5


def test_status_descriptor_stays_outside(box):
    reader, writer = os.pipe()
    result = box.run(["ls", "/proc/self/fd"], options=["--status-fd", str(writer)], pass_fds=[writer])
    os.close(writer)
    os.close(reader)
    assert result.stdout.split() == ["0", "1", "2", "3"]


@pytest.mark.parametrize("value", ["0", "1", "2", "-1", "99", "x", "99999999999"])
def test_bad_status_descriptor(box, value):
    result = box.run(["touch", "started"], options=[f"--status-fd={value}"])
    assert result.exit == 125 and "--status-fd" in result.stderr and "fix:" in result.stderr
    assert not os.path.exists(box.path("started"))


def test_status_reader_that_left(box):
    reader, writer = os.pipe()
    os.close(reader)
    result = box.run(["echo", "fine"], options=["--status-fd", str(writer)], pass_fds=[writer])
    os.close(writer)
    assert (result.exit, result.stdout) == (0, "fine\n")


@pytest.mark.skipif(bool(os.environ.get("SANDBOX_SANITIZED")),
                    reason="sanitizers reserve more address space than this allows")
def test_a_result_larger_than_memory(box):
    """Refused before anything runs; what is not asked for is kept as far as there is room."""
    little = ["prlimit", "--as=300000000"]
    result = box.run(["touch", "started"], options=["--json", "--max-output", "10G"], before=little)
    told = json.loads(result.stdout)["error"]
    assert result.exit == 125 and told["code"] == "usage" and "memory" in told["message"], result
    assert not os.path.exists(box.path("started"))
    # Each byte becomes six.
    result = box.run(["head", "-c", "100M", "/dev/zero"], options=["--json"], before=little)
    told = json.loads(result.stdout)
    assert told["exitCode"] == 0 and told["stdoutTruncated"] and len(told["stdout"]) > 1 << 20
    again = re.search(r"--max-output (\d+K)", box.run(
        ["true"], options=["--json", "--max-output", "10G"], before=little).stdout)[1]
    assert box.run(["true"], options=["--json", "--max-output", again], before=little).exit == 0


# ---- the log ----


def test_log_lines(box):
    for level, least in (("error", 0), ("info", 2), ("debug", 2)):
        path = box.home(f"log-{level}.jsonl")
        result = box.run(["sh", "-c", "exit 2", "\x1b]0;evil\x07\n"],
                         options=["--log", path, "--log-level", level, "--env", "TOKEN=hunter2secret"],
                         env={"PASSWORD": "hunter2secret"})
        assert result.exit == 2
        with open(path, newline="\n") as source:
            text = source.read()
        assert not CONTROL.search(text) and "hunter2secret" not in text
        lines = [json.loads(line) for line in text.splitlines()]
        assert len(lines) >= least
        for line in lines:
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["time"])
            assert line["level"] in ("error", "warning", "info", "debug") and line["operation"]
        assert os.stat(path).st_mode & 0o777 == 0o600


def test_log_has_the_end_and_the_limit(box):
    path = box.home("log.jsonl")
    assert box.run(["sleep", "5"], options=["--log", path, "--timeout", "1s"]).exit == 124
    with open(path) as source:
        lines = {line["operation"]: line for line in map(json.loads, source)}
    assert lines["started"]["init"] > 1 and lines["exited"]["exit"] == 124
    assert lines["limit"]["limit"] == "time" and lines["limit"]["level"] == "warning"


def test_log_has_decisions_and_commands(box):
    """With how long each took, and without the words of commands."""
    path, data = box.home("log.jsonl"), ground(box)
    os.rename(f"{data}/b.txt", f"{data}/b\x1b[2J\u202e.txt")
    script = f"cat {data}/a.txt; cat {data}/b*; until test -e go; do sleep 0.05; done"
    with asking(box, ["sh", "-c", script], "--log", path, "--log-level", "debug") as session:
        with session.watch() as control:
            asked = question(control)
            answer(control, {"cmd": "cmd.approve", "id": asked["id"], "scope": "once"})
            answer(control, {"cmd": "cmd.deny", "id": question(control)["id"]})
        assert sandbox(box, "exec", session.sid, "--", "sh", "-c", "exit 3; hunter2secret").exit == 3
        box.identity.file(box.path("go"), "")
        session.result()
    with open(path, newline="\n") as source:
        text = source.read()
    assert not CONTROL.search(text) and "hunter2secret" not in text and "\u202e" not in text
    lines = [json.loads(line) for line in text.splitlines()]
    found = {(line["operation"], line.get("decision")): line for line in lines}
    allowed, denied = found["decision", "allow"], found["decision", "deny"]
    assert (allowed["path"], allowed["access"]) == (f"{data}/a.txt", asked["access"]), allowed
    assert allowed["level"] == "debug" and denied["level"] == "info"
    assert allowed["latency_us"] > 0 and allowed["process"] == asked["pid"]
    assert found["exec", None]["status"] == 3 << 8 and found["exec", None]["latency_us"] > 0
    assert len({line["session"] for line in lines}) == 1


def test_log_is_appended_to(box):
    path = box.home("log.jsonl")
    for _ in range(2):
        assert box.run(["true"], options=["--log", path]).exit == 0
    with open(path) as source:
        assert len({json.loads(line)["session"] for line in source}) == 2


def test_log_that_cannot_be_written(box):
    for path in ("/no/such/folder/log", "/proc/log"):
        result = box.run(["touch", "started"], options=["--log", path])
        assert result.exit == 125 and path in result.stderr and "fix:" in result.stderr
    os.symlink(box.home("target"), box.home("link"))
    assert box.run(["true"], options=["--log", box.home("link")]).exit == 125
    assert not os.path.exists(box.path("started"))


def test_environment_values_are_nowhere(box):
    with running(box, ["sleep", "30"], "--env", "TOKEN=hunter2secret") as (_, sid):
        for words in (["ps"], ["ps", "--json"], ["ps", "--json", sid], ["stats", "--once", sid]):
            assert "hunter2secret" not in sandbox(box, *words).stdout
