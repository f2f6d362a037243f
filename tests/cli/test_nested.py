"""Inside a container, and inside another sandbox: what is weaker is said, the rest holds."""

import os
import subprocess

import pytest

# A container's usual way to mask /proc; the kernel then refuses a fresh one in a user namespace.
MASKED_PROC = """
mount -t proc proc /proc &&
mount -t tmpfs -o ro tmpfs /proc/scsi 2>/dev/null || mount -t tmpfs -o ro tmpfs /proc/bus || exit 99
mount --bind /dev/null /proc/keys || exit 99
exec "$@"
"""
CONTAINER = ["unshare", "-m", "-p", "-f", "--kill-child", "sh", "-c", MASKED_PROC, "sh"]


def in_container(box):
    """The command line that makes the container; a plain user needs a user namespace for it."""
    if box.identity.name == "root":
        return CONTAINER
    return ["unshare", "--map-current-user", "-U", "--keep-caps", *CONTAINER[1:]]


@pytest.fixture
def container(box):
    before = in_container(box)
    probe = box.plain(["true"], before=before)
    if probe.exit != 0:
        pytest.skip(f"cannot build a container here: {probe.stderr}")
    # The control: here the kernel really refuses what an ordinary start does.
    control = box.plain(["unshare", "-Ur", "-p", "-f", "-m", "mount", "-t", "proc", "proc", "/proc"],
                        before=before)
    assert control.exit != 0, "a fresh /proc can be had here: the container is no container"
    return before


def test_works_and_says_so(box, container):
    """sandbox-runtime#214, bubblewrap#284 #505: "Can't mount proc" was the end."""
    result = box.run(["sh", "-c", "echo x > made && cat made; cat ~/.ssh/id_rsa"], before=container)
    assert result.stdout == "x\n", result
    assert "weaker nested mode" in result.stderr and "/proc" in result.stderr, result
    assert os.path.exists(box.path("made"))


def test_can_be_forbidden(box, container):
    file = box.identity.file(box.home("policy.yaml"), "version: 1\nweaker_nested: false\n")
    result = box.run(["touch", "made"], options=["--policy", file], before=container)
    assert result.exit == 125 and "weaker_nested" in result.stderr, result
    assert not os.path.exists(box.path("made"))


def test_said_once(box, container):
    result = box.run(["true"], before=container)
    assert result.exit == 0 and result.stderr.count("does not allow a /proc of our own") == 1, result


def test_outer_processes_stay_closed(box, container):
    """/proc shows them; their root, memory and descriptors must not be a way out."""
    inner = ("for name in root/etc/passwd root/home cwd fd/0 mem environ maps; do"
             ' ls /proc/$OUTER/$name/ >/dev/null 2>&1 && echo "OPEN $name";'
             ' head -c1 /proc/$OUTER/$name >/dev/null 2>&1 && echo "READ $name"; done; echo end')
    script = f'sleep 20 & export OUTER=$!; {{ {inner}; }} > control; "$@"; kill $OUTER'
    argv = box.wrap(["sh", "-c", inner], ["--env", "OUTER"])
    result = box.plain(["sh", "-c", script, "sh", *argv], before=container)
    with open(box.path("control")) as control:
        assert "OPEN cwd" in control.read(), "the control shows nothing"
    assert result.stdout == "end\n", result


def test_outer_processes_cannot_be_signalled(box, container):
    script = 'sleep 20 & export OUTER=$!; "$@"; kill -0 $OUTER && echo alive; kill $OUTER'
    argv = box.wrap(["sh", "-c", "kill -9 $OUTER; kill -9 -1; true"], ["--env", "OUTER"])
    result = box.plain(["sh", "-c", script, "sh", *argv], before=container)
    assert "alive" in result.stdout, result


def test_kernel_settings_stay_closed(box, container):
    result = box.run(["sh", "-c", "echo x > /proc/sys/kernel/domainname; echo b > /proc/sysrq-trigger;"
                      " head -c1 /proc/kcore"], before=container)
    assert result.exit != 0 and result.stdout == "", result


def test_job_control_and_debugging_in_a_container(box, container):
    result = box.run(["strace", "-e", "trace=execve", "true"], before=container)
    assert "execve" in result.stderr, result


def test_dynamic_mode_in_a_container(box, container):
    """By seccomp notify: the outer /proc is in the empty root, too, and allowed programs work."""
    argv = [box.world.command, "run", "--mode", "dynamic", "--gate", "notify", "--", "sh", "-c",
            "echo x > made && cat made; head -c 4 /proc/self/comm; cat ~/readable.txt ~/.ssh/id_rsa"]
    result = box.plain(argv, before=container)
    assert result.stdout == "x\nhead", result
    assert "weaker nested mode" in result.stderr and "denied" in result.stderr, result


def test_ordinary_start_is_not_called_weaker(box):
    assert "weaker" not in box.run(["true"]).stderr


# ---- a sandbox in a sandbox ----


def test_sandbox_in_sandbox_fails_clearly(box):
    """User namespaces are off inside: an error with a fix, not a mystery, and no downgrade."""
    result = box.run([box.world.command, "run", "--static", "--", "touch", "made"])
    assert result.exit == 125, result
    assert "user namespace" in result.stderr and "fix:" in result.stderr, result
    assert "this is a sandbox already" in result.stderr, result
    assert not os.path.exists(box.path("made"))
    looked = box.run([box.world.command, "doctor", "--quick"])
    assert "inside: " in looked.stdout and "a sandbox ($SANDBOX is its id)" in looked.stdout, looked


def test_sandbox_in_sandbox_preferred(box):
    """The inner one gives up its own walls (all, or all but Landlock), not the outer ones."""
    result = box.run([box.world.command, "run", "--static", "--require", "preferred", "--",
                      "sh", "-c", f"cat ~/.ssh/id_rsa; echo x > {box.home('outside')}; hostname"])
    said = "NOT SANDBOXED" in result.stderr or "WEAKENED" in result.stderr
    assert result.stdout.startswith("sandbox-") and said, result
    assert not os.path.exists(box.home("outside"))


def test_other_sandboxes_inside_fail(box):
    result = box.run(["bwrap", "--ro-bind", "/", "/", "true"])
    assert result.exit != 0, result
    assert subprocess.run(["bwrap", "--ro-bind", "/", "/", "true"], check=False).returncode == 0
    result = box.run(["unshare", "-Ur", "true"])
    assert result.exit != 0, result


def test_inside_bubblewrap(box):
    """Another sandbox around us, with a /proc of its own."""
    before = ["bwrap", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--"]
    result = box.run(["sh", "-c", "echo x > made; cat ~/.ssh/id_rsa; echo end"], before=before)
    assert result.exit == 0 and result.stdout == "end\n", result
    assert os.path.exists(box.path("made"))


# A /dev like the host's, but for one device: a start fails there before the policy has any say.
NO_FULL = """
mount -t proc proc /proc || exit 99
mkdir -p dev-without && mount -t tmpfs none dev-without || exit 99
for name in null zero random urandom tty; do
  : > dev-without/$name; mount --bind /dev/$name dev-without/$name || exit 99
done
mkdir dev-without/shm dev-without/pts
mount --rbind dev-without /dev || exit 99
exec "$@"
"""


def test_a_failure_of_the_base_names_its_operation(box):
    before = [word if word is not MASKED_PROC else NO_FULL for word in in_container(box)]
    control = box.plain(["sh", "-c", "test -c /dev/null && ! test -e /dev/full"], before=before)
    assert control.exit == 0, f"/dev is not as the test wants it: {control}"
    result = box.run(["touch", "made"], before=before)
    assert result.exit == 125 and "'/dev/full'" in result.stderr, result
    assert not os.path.exists(box.path("made"))
