"""The vm back end, by really booting. A boot takes seconds, so each test asks for much at once; with
SANDBOX_TEST_LONG=1 the common list of behaviours (test_behaviour.py) runs on it as well."""

import base64
import json
import os
import signal
import subprocess
import time

import pytest

import harness

pytestmark = pytest.mark.skipif(bool(os.environ.get("SANDBOX_SANITIZED")),
                                reason="a guest is not sanitized, and the rest is in unit tests")

TIMEOUT = 120


@pytest.fixture
def box(identity, boxed):
    made = boxed("vm", identity)
    check = harness.LeakCheck(made)
    yield made
    problems = check.check(wait=3)
    assert not problems, "\n".join(problems)


def sh(text):
    return ["sh", "-c", text]


def wait_for(condition, what, seconds=TIMEOUT):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.05)


SEEN = r"""
id -u; id -g; pwd; uname -r; hostname
cat .env 2>/dev/null || echo env-hidden
cat ~/.ssh/id_rsa 2>/dev/null || echo key-hidden
cat ~/readable.txt
echo x >> .git/config 2>/dev/null || echo config-protected
mv .git away 2>/dev/null || echo git-pinned
mkdir -p .cursor 2>/dev/null && touch .cursor/mcp.json 2>/dev/null || echo cursor-reserved
touch /usr/made 2>/dev/null || echo system-readonly
touch ~/made 2>/dev/null || echo home-readonly
echo made > made && mkdir folder && mv made folder/moved
touch /tmp/mine /run/user/$(id -u)/mine && ls /tmp
cat extra/file && touch extra/new 2>/dev/null || echo extra-readonly
grep -E '^(CapEff|CapBnd|NoNewPrivs):' /proc/self/status
echo x > /proc/sys/kernel/core_pattern || echo sysctl-readonly
ls /dev | tr '\n' ' '; echo
ls /sys/class/net | tr '\n' ' '; echo
echo "ODD=$ODD"; test -z "$MY_PASSWORD" && echo scrubbed
mount | grep -c 9p
test -e /sandbox.control -o -e /request -o -e /init || echo no-parts
wc -c
echo err >&2
exit 7
"""


@pytest.mark.parametrize("identity", harness.SOME, indirect=True)
def test_one_boot(box):
    """Ids, files, masks, protections, devices, rights, environment, binary input, exit code."""
    box.identity.file(box.path("extra/file"), "extra\n")
    data = os.urandom(300_000)
    process = box.start(sh(SEEN), options=["--ro", box.path("extra"), "--env", "ODD=a b'c"],
                        env={"MY_PASSWORD": "hunter2"}, stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(data, timeout=TIMEOUT)
    lines, identity = harness.text(out).split("\n"), box.identity
    assert process.returncode == 7 and harness.text(err).endswith("err\n"), (out, err)
    assert lines[:3] == [str(identity.uid), str(identity.gid), box.project], lines
    assert lines[3] != os.uname().release and lines[4].startswith("sandbox-"), lines
    for word in ("env-hidden", "key-hidden", "ordinary", "config-protected", "git-pinned",
                 "cursor-reserved", "system-readonly", "home-readonly", "mine", "extra",
                 "extra-readonly", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000",
                 "NoNewPrivs:\t1", "sysctl-readonly", "ODD=a b'c", "scrubbed", "no-parts", "300000"):
        assert word in lines, (word, lines, err)
    assert "lo " in lines, "no other network device"
    devices = next(line for line in lines if line.startswith("fd ") or " null " in line)
    assert "vport" not in devices and "mem" not in devices and "kvm" not in devices, devices
    assert box.canary not in harness.text(out)
    status = os.stat(box.path("folder/moved"))
    assert (status.st_uid, status.st_gid) == (identity.uid, identity.gid)
    assert not os.path.exists("/usr/made") and not os.path.exists(box.path(".cursor/mcp.json"))


def test_limits_json_and_large_output(world, boxed):
    """Memory and processes are held in the guest; output of any size arrives whole."""
    box = boxed("vm", world.identity("root" if world.root else "user"))
    script = ("head -c 3000000 /dev/zero | tr '\\0' x; echo; "
              "for i in $(seq 60); do sleep 3 & done 2>/dev/null; echo forked; "
              "head -c 400000000 /dev/zero | tail -c 399999999 | wc -c")
    process = box.start(sh(script), options=["--json", "--memory", "192M", "--pids", "30", "--cpus", "0.9"],
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=TIMEOUT)
    answer = json.loads(out)
    log = box.plain([box.world.command, "audit", "--json", answer["sid"]])
    lines = [json.loads(line) for line in log.stdout.splitlines()]
    assert [line["event"] for line in lines if line["event"].startswith("session.")] == \
        ["session.start", "session.end"], lines
    assert (lines[0]["backend"], lines[0]["command"]) == ("vm", sh(script)), lines[0]
    assert answer["backend"] == "vm" and answer["resourceUsage"]["wallTime"] > 0
    assert answer["limits"]["processes"]["enforcedBy"] == "back end", answer["limits"]
    if world.root:
        assert answer["limits"]["cpu"]["enforcedBy"].startswith("cgroup"), answer["limits"]
    said = answer["stdout"].split("\n")
    assert len(said[0]) == 3_000_000, "not all of the output"
    assert "399999999" not in said, "memory was not limited"
    assert "fork" in answer["stderr"].lower() or "forked" not in said, (said[1:], answer["stderr"])


def test_a_terminal(world, boxed):
    box = boxed("vm", world.identity("user"))
    result = box.run(sh("test -t 0 && test -t 1 && stty size && tty"), tty=True, timeout=TIMEOUT)
    assert result.exit == 0 and "/dev/pts/0" in result.stdout and result.terminal_restored, result


def test_signals_and_sudden_death(world, boxed):
    """A signal reaches the command; nothing of QEMU stays when we are killed."""
    box = boxed("vm", world.identity("user"))
    check = harness.LeakCheck(box)
    process = box.start(sh("trap 'touch caught' TERM; touch up; while :; do sleep 0.1; done"),
                        stdout=subprocess.DEVNULL)
    wait_for(lambda: os.path.exists(box.path("up")), "the command")
    assert any("qemu" in line for line in harness.children(process.pid).values()), "control"
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    wait_for(lambda: os.path.exists(box.path("caught")), "the signal")
    process.kill()
    process.wait()
    wait_for(lambda: not any("qemu" in line for line in harness.children().values()), "QEMU's end", 10)
    # What a killed session leaves in its folders goes with the next start, of whatever kind.
    native = harness.Box.popen(box, [box.world.command, "run", "--static", "--", "true"])
    assert native.wait(harness.TIMEOUT) == 0
    problems = check.check(wait=3)
    assert not problems, "\n".join(problems)


def test_the_time_limit_holds_from_the_start(world, boxed):
    """Also while the guest boots; nothing of QEMU stays."""
    box = boxed("vm", world.identity("user"))
    check = harness.LeakCheck(box)
    result = box.run(["sleep", "600"], options=["--timeout", "2", "--json"], timeout=TIMEOUT)
    assert result.exit == 124 and json.loads(result.stdout)["limitHit"] == "time", result
    problems = check.check(wait=3)
    assert not problems, "\n".join(problems)


def test_words_that_boot(world, boxed):
    """`sandbox wrap`: bubblewrap around QEMU, by the words alone; afterwards nothing is left."""
    box = boxed("vm", world.identity("user"))
    check = harness.LeakCheck(box)
    script = ("uname -r; cat .env ~/.ssh/id_rsa; echo x >> .git/config || echo config-protected; "
              "touch .cursor/x || echo cursor-reserved; echo made > made; cat; exit 9")
    words = [world.command, "wrap", "--static", "--backend", "vm", "--", "sh", "-c", script]
    printed = box.plain(words, timeout=TIMEOUT)
    assert printed.exit == 0, printed.stderr
    result = subprocess.run(["bash", box.identity.file(box.home("words"), printed.stdout)],
                            input=b"through\n", capture_output=True, cwd=box.project, check=False,
                            env=box.identity.environment(), timeout=TIMEOUT, **box.identity.credentials())
    said = harness.text(result.stdout).split("\n")
    assert result.returncode == 9 and said[0] != os.uname().release, result
    for word in ("config-protected", "cursor-reserved", "through"):
        assert word in said, result
    assert box.canary not in harness.text(result.stdout) and os.path.exists(box.path("made"))
    problems = check.check(wait=3) + box.left_in_scratch()
    assert not problems, "\n".join(problems)


# ---- without booting ----


def test_words_as_json(world, boxed):
    box = boxed("vm", world.identity("user"))
    printed = box.plain([world.command, "wrap", "--static", "--json", "--backend", "vm", "--", "true"])
    answer = json.loads(printed.stdout)
    assert answer["backend"] == "vm" and "/usr/bin/qemu-system-x86_64" in answer["argv"], answer["argv"]
    initramfs = [file for file in answer["files"] if file["path"].endswith("/initramfs")]
    assert base64.b64decode(initramfs[0]["content_b64"])[:6] == b"070701"
    assert any(fd.get("content_b64") for fd in answer["fds"]) and answer["end_argv"]
    for option in ("--allow-network=good.test", "--cpus=0.5"):
        refusal = box.plain([world.command, "wrap", "--static", "--backend", "vm", option, "--", "true"])
        assert refusal.exit == 125 and "fix:" in refusal.stderr, refusal


def refused(box, options, *words, env=None):
    result = box.run(["touch", "made"], options=options, env=env, timeout=TIMEOUT)
    assert result.exit == 125 and "fix:" in result.stderr, result
    for word in words:
        assert word in result.stderr, result
    assert not os.path.exists(box.path("made"))


def test_bad_input(box):
    def policy(kernel):
        return ["--policy", box.identity.file(box.home("vm.yaml"),
                                              f"version: 1\nvm: {{kernel: {kernel}}}\n")]

    refused(box, policy("/nowhere/vmlinuz"), "/nowhere/vmlinuz", "No such file")
    refused(box, policy("/etc/hostname"), "not a kernel")
    lonely = box.identity.file(box.home("lonely"), "\177ELF" + " " * 100 + "Linux version 9.9.9 x")
    refused(box, policy(lonely), "modules", "9.9.9")
    refused(box, ["--memory", "32M"], "32 MB", "128M")
    refused(box, ["--publish", "8080:80", "--overlay", box.path("nowhere")], "nowhere")
    empty = os.path.join(box.world.base, "no-tools")
    os.makedirs(empty, exist_ok=True)
    refused(box, [], "qemu-system-x86", env={"PATH": empty})


# In QEMU's place: says by the control port that the guest could not be set up, and names a file.
FAILING_MACHINE = r"""#!/usr/bin/python3
import os, re, struct, sys, time
control = int(re.search(r"id=sandbox.control,fd=(\d+)", " ".join(sys.argv)).group(1))
text = b"in the guest: mounting 'a\x1b]0;title\x07b\nsandbox: allowed'"
os.write(control, struct.pack("=IIQQ", 7, len(text), 0, 0) + text)
time.sleep(60)
"""


def test_a_guests_words_are_plain_text(tmp_path):
    """A name in them may be one that a command chose."""
    machine = tmp_path / "machine"
    machine.write_text(FAILING_MACHINE)
    machine.chmod(0o755)
    launcher = os.path.join(os.environ["SANDBOX_BUILD"], "src", "backend", "sandbox-vm")
    result = subprocess.run([launcher, "tcg:1", tmp_path / "console", machine],
                            stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
    assert result.returncode == 125
    assert result.stderr == b"sandbox: in the guest: mounting 'a.]0;title.b.sandbox: allowed'\n"
