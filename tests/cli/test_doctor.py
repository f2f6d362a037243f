"""sandbox doctor from outside: each feature is taken away, and its row must notice.

$SANDBOX is the command under test. With SANDBOX_MUST_WORK=1 nothing may be skipped.
"""

import errno
import glob
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import time

import pytest

from refused_calls import KILL, refusing, refusing_with

COMMAND = shlex.split(os.environ.get("SANDBOX", "sandbox"))
STATES = {"ok", "degraded", "restricted", "missing"}
PLAIN_ID = "12345"
DOCUMENT = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "DOCTOR.md")


def need(condition, why):
    if condition:
        return
    if os.environ.get("SANDBOX_MUST_WORK"):
        pytest.fail(why)
    pytest.skip(why)


def works(*command):
    try:
        return subprocess.run(command, capture_output=True, timeout=10).returncode == 0
    except OSError:
        return False


def run(*options, before=(), command=None, **keywords):
    """Runs doctor; `before` is a command line that starts it."""
    argv = [*before, *(command or COMMAND), "doctor", *options]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, **keywords)


class Report:
    def __init__(self, result):
        self.status = result.returncode
        self.json = json.loads(result.stdout)
        self.rows = {row["id"]: row for row in self.json["rows"]}
        self.native = self.json["native"]

    def __getitem__(self, row):
        return self.rows[row]

    def state(self, row):
        return self.rows[row]["state"]


def doctor(**keywords):
    return Report(run("--json", "--quick", **keywords))


@pytest.fixture
def everyone_s_command():
    """A copy of the command that another user can reach and run."""
    folder = f"/tmp/sandbox-test-{os.getpid()}"
    os.makedirs(folder, mode=0o755, exist_ok=True)
    copy = os.path.join(folder, "sandbox")
    shutil.copy(shutil.which(COMMAND[0]), copy)
    os.chmod(copy, 0o755)
    yield [copy, *COMMAND[1:]]
    shutil.rmtree(folder)


def as_plain_user():
    """Starts a command as a user without any right."""
    command = ["setpriv", "--reuid", PLAIN_ID, "--regid", PLAIN_ID, "--clear-groups"]
    need(works(*command, "true"), "must start as root")
    return command


def userns_shell(script):
    """Starts doctor by a shell that is root in a user namespace and has run the script."""
    need(works("unshare", "-Ur", "true"), "no user namespaces here")
    return ["unshare", "-Ur", "sh", "-c", script + '; exec "$@"', "sh"]


# --- a machine as it is


def test_json_is_complete():
    result = run("--json")
    report = Report(result)
    assert result.stderr == ""
    assert len(report.rows) == len(report.json["rows"]) > 50
    for row in report.json["rows"]:
        assert set(row) == {"id", "group", "state", "found", "needed_for", "fix"}
        assert row["state"] in STATES
        assert row["found"] and row["needed_for"]
        assert bool(row["fix"]) == (row["state"] != "ok"), row
    assert report.native["available"] == (report.status == 0)
    assert bool(report.native["why"]) == (report.status != 0)


def test_every_row_is_documented():
    with open(DOCUMENT, encoding="utf-8") as document:
        text = document.read()
    documented = set(re.findall(r"^\| `([a-z0-9-]+)`", text, re.MULTILINE))
    assert documented == set(doctor().rows)


def test_table_is_for_people():
    result = run()
    lines = result.stdout.splitlines()
    assert lines[-1].startswith("native engine: ")
    assert "\033" not in result.stdout and result.stderr == ""
    assert "user namespaces" in result.stdout
    assert "needed for:" not in result.stdout
    assert "needed for:" in run("--verbose").stdout


@pytest.mark.parametrize("option", ["--quick", "--json"])
def test_a_report_that_cannot_be_written_is_an_error(option):
    with open("/dev/full", "w") as full:
        result = subprocess.run([*COMMAND, "doctor", "--quick", option], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 125 and "cannot write to standard output" in result.stderr, result


def test_colour_only_on_a_terminal():
    need(shutil.which("script"), "no script(1)")
    line = shlex.join([*COMMAND, "doctor"])
    coloured = subprocess.run(["script", "-qec", line, "/dev/null"], capture_output=True, timeout=30)
    assert b"\033[32mok" in coloured.stdout
    plain = subprocess.run(["script", "-qec", line, "/dev/null"], capture_output=True, timeout=30,
                           env={**os.environ, "NO_COLOR": "1"})
    assert b"\033" not in plain.stdout


def traces():
    """Everything of the doctor's that is still there: cgroups, temporary folders, mounts."""
    groups = [os.path.join(path, name) for path, folders, _ in os.walk("/sys/fs/cgroup")
              for name in folders if name.startswith("sandbox-doctor")]
    temporary = glob.glob("/tmp/*sandbox-doctor*") + glob.glob(os.path.expanduser("~/.sandbox-doc*"))
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        return groups, temporary, [line for line in mounts if "sandbox-doctor" in line]


def test_the_matrix_of_back_ends():
    listed = subprocess.run([*COMMAND, "backends", "--json"], capture_output=True, text=True, timeout=60)
    report = json.loads(run("--json").stdout)
    assert report["backends"] == json.loads(listed.stdout)["backends"]
    assert report["backends"][0]["features"]["network-none"] == "yes"
    assert "backends" not in json.loads(run("--json", "--quick").stdout)


def test_leaves_nothing_behind():
    run("--json", "--quick")
    assert traces() == ([], [], [])


def test_as_plain_user(everyone_s_command):
    report = doctor(before=as_plain_user(), command=everyone_s_command, cwd="/",
                    env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"})
    assert report.state("home") == "degraded"
    for row in ("openat2", "clone3", "pidfd-open", "seccomp-filter"):
        assert report.state(row) == doctor().state(row)
    if os.path.exists("/dev/kvm") and not os.stat("/dev/kvm").st_mode & stat.S_IRWXO:
        assert report.state("dev-kvm") == "restricted"
        assert "setfacl" in report["dev-kvm"]["fix"]
    assert traces() == ([], [], [])


# --- settings


def test_no_user_namespaces_by_limit():
    before = userns_shell("echo 0 > /proc/sys/user/max_user_namespaces")
    report = doctor(before=before)
    row = report["user-namespaces"]
    assert row["state"] == "restricted"
    assert row["found"] == "user.max_user_namespaces is 0"
    assert "sysctl -w user.max_user_namespaces=" in row["fix"]
    assert report.status == 1 and not report.native["available"]
    assert "user.max_user_namespaces is 0" in report.native["why"]
    assert report.native["fix"] == row["fix"]
    # what needs none must not be blamed
    assert report.state("openat2") == doctor().state("openat2")
    last = run(before=before).stdout.splitlines()[-1]
    assert last.startswith("native engine: not available: because user namespaces: ")
    assert "fix: sudo sysctl" in last


@pytest.mark.parametrize("kind,row", [("mnt", "mount"), ("pid", "pid"), ("net", "net"),
                                      ("ipc", "ipc"), ("uts", "uts"), ("cgroup", "cgroup"),
                                      ("time", "time")])
def test_a_limit_on_one_namespace(kind, row):
    need(os.path.exists(f"/proc/sys/user/max_{kind}_namespaces"), "kernel without it")
    report = doctor(before=userns_shell(f"echo 0 > /proc/sys/user/max_{kind}_namespaces"))
    assert report.state("user-namespaces") == "ok"
    found = report[f"{row}-namespace"]
    assert found["state"] == "restricted"
    assert f"user.max_{kind}_namespaces" in found["fix"]
    assert report.native["available"] == (kind in ("cgroup", "time"))
    assert report.state("namespace-limits") == "restricted"


def test_unmapped_user():
    need(works("unshare", "-U", "true"), "no user namespaces here")
    report = doctor(before=["unshare", "-U"])
    assert report.state("user-namespaces") == "restricted"
    assert "no mapping" in report["user-namespaces"]["found"]


def test_no_new_privs():
    need(shutil.which("setpriv"), "no setpriv")
    report = doctor(before=["setpriv", "--no-new-privs"])
    assert report.state("no-new-privs") == "degraded"
    assert "no-new-privileges=false" in report["no-new-privs"]["fix"]
    assert report.native["available"] == doctor().native["available"]


@pytest.mark.parametrize("option,row,fix", [("--nofile=64:4096", "rlimit-nofile", "ulimit -Sn 1024"),
                                            ("--nofile=64", "rlimit-nofile", "limits.conf"),
                                            ("--fsize=1000000", "rlimit-fsize", "unlimited"),
                                            # large enough for the shadow memory of a sanitized build
                                            (f"--as={1 << 46}", "rlimit-as", "unlimited")])
def test_resource_limits(option, row, fix):
    need(shutil.which("prlimit"), "no prlimit")
    report = doctor(before=["prlimit", option])
    assert report.state(row) == "degraded"
    assert fix in report[row]["fix"]


def test_few_processes(everyone_s_command):
    before = [*as_plain_user(), "prlimit", "--nproc=4"]
    report = doctor(before=before, command=everyone_s_command, cwd="/")
    assert report.state("rlimit-nproc") == "degraded"


# --- places and tools


@pytest.mark.parametrize("mode,state", [(0o700, "ok"), (0o755, "restricted"), (None, "degraded")])
def test_runtime_folder(tmp_path, mode, state):
    folder = tmp_path / "runtime"
    if mode is not None:
        folder.mkdir()
        folder.chmod(mode)
    report = doctor(env={**os.environ, "XDG_RUNTIME_DIR": str(folder)})
    assert report.state("runtime-folder") == state


def test_runtime_folder_that_nobody_named(everyone_s_command):
    """The place that it names is the one that a session uses."""
    bare = ["env", "-u", "XDG_RUNTIME_DIR"]
    report = doctor(before=[*as_plain_user(), *bare], command=everyone_s_command, cwd="/")
    row = report["runtime-folder"]
    assert row["state"] == "degraded", row
    named = re.search(r"not set: (\S+) is used", row["found"])[1]
    used = subprocess.run([*as_plain_user(), *bare, "HOME=/nonexistent", *everyone_s_command, "run",
                           "--detach"], capture_output=True, text=True, timeout=30, cwd="/usr")
    assert used.returncode == 0, used
    session = used.stdout.strip()
    try:
        assert os.path.exists(os.path.join(named, session, "state.json")), named
    finally:
        subprocess.run([*as_plain_user(), *bare, *everyone_s_command, "kill", "--now", session],
                       timeout=30, cwd="/usr", check=False)
        shutil.rmtree(named)


def test_state_folder_below_a_file(tmp_path):
    (tmp_path / "file").touch()
    report = doctor(env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "file")})
    assert report.state("state-folder") == "restricted"
    report = doctor(env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "new" / "deep")})
    assert report.state("state-folder") == "ok"
    assert not (tmp_path / "new").exists()


def fake_tool(folder, name, script):
    tool = folder / name
    tool.write_text("#!/bin/sh\n" + script)
    tool.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def test_a_tool_that_hangs_costs_its_row_only(tmp_path):
    env = fake_tool(tmp_path, "git", "sleep 987 & sleep 987\n")
    report = doctor(env=env)
    assert report.state("git") == "degraded"
    assert str(tmp_path) in report["git"]["found"]
    assert "does not answer" in report["git"]["fix"]
    assert not works("pgrep", "-fx", "sleep 987")


def test_a_tool_cannot_write_to_the_terminal(tmp_path):
    env = fake_tool(tmp_path, "git", "printf 'git \\033[2Jversion\\n'; echo noise >/dev/stderr\n")
    report = doctor(env=env)
    assert report["git"]["found"] == "git \\x1b[2Jversion"


def test_a_tool_that_fails(tmp_path):
    report = doctor(env=fake_tool(tmp_path, "bwrap", "echo no library >&2; exit 3\n"))
    assert report.state("bwrap") == "degraded"
    assert "no library" in report["bwrap"]["found"]


def test_missing_tools_have_a_package(tmp_path):
    report = doctor(env={**os.environ, "PATH": str(tmp_path)})
    assert report.state("git") == "missing"
    assert "install" in report["git"]["fix"] and "git" in report["git"]["fix"]


# --- containers


def libraries_of(program):
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return [word for line in listing.splitlines() for word in line.split() if word.startswith("/")]


def test_chroot_without_devices(tmp_path):
    need(works("unshare", "-Urm", "true"), "no user namespaces here")
    program = shutil.which(COMMAND[0])
    for file in [program, *libraries_of(program)]:
        target = tmp_path / file.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    (tmp_path / "proc").mkdir(exist_ok=True)
    (tmp_path / "tmp").mkdir(exist_ok=True)
    script = 'mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"'
    report = doctor(before=["unshare", "-Urm", "sh", "-c", script, str(tmp_path)],
                    command=[program, *COMMAND[1:]])
    assert report.state("dev-fuse") == "missing"
    assert report.state("user-namespaces") == "restricted"
    assert "chroot" in report["user-namespaces"]["found"]
    assert report.status == 1


def test_masked_proc_under_bwrap():
    before = ["bwrap", "--unshare-user", "--unshare-pid", "--dev-bind", "/", "/", "--proc", "/proc",
              "--tmpfs", "/proc/sys/fs"]
    need(works(*before, "true"), "bwrap does not work, or we are under a masked /proc already")
    fresh = doctor(before=["unshare", "-Urpfm", "--mount-proc"])
    assert fresh.state("proc-mount") == doctor().state("proc-mount")
    masked = doctor(before=before)
    assert masked.state("proc-mount") == "degraded"
    assert "systempaths=unconfined" in masked["proc-mount"]["fix"]
    assert masked.state("user-namespaces") == "ok"
    assert masked.native["available"]


def test_no_fuse_falls_back_to_seccomp():
    need(works("bwrap", "--unshare-user", "--bind", "/", "/", "--dev", "/dev", "true"),
         "bwrap does not work")
    report = doctor(before=["bwrap", "--unshare-user", "--bind", "/", "/", "--dev", "/dev"])
    assert report.state("dev-fuse") == "missing"
    assert report.state("fuse-mount") == "missing"
    assert report.native["gate"] == "notify"
    before = ["bwrap", "--unshare-user", "--bind", "/", "/", "--dev", "/dev"]
    last = run("--quick", before=before).stdout.splitlines()[-1]
    assert last == ("native engine: ready; asks by seccomp notify, which is slower, because "
                    + report["fuse-mount"]["found"])
    here = doctor()
    if here.native["gate"] == "fuse":
        assert run("--quick").stdout.splitlines()[-1] == "native engine: ready; asks by FUSE"


# --- a filter from outside, as a container has one

@pytest.mark.parametrize("name,row,required", [
    ("open_tree", "open-tree", True), ("move_mount", "move-mount", True),
    ("mount_setattr", "mount-setattr", True), ("fsopen", "fsopen", True),
    ("openat2", "openat2", True), ("close_range", "close-range", False),
    ("pidfd_open", "pidfd-open", False), ("clone3", "clone3", False),
    ("statmount", "statmount", False), ("landlock_create_ruleset", "landlock", False),
    ("process_vm_readv", "ptrace", False), ("seccomp", "seccomp-filter", True),
])
def test_a_call_taken_away(name, row, required):
    normal = doctor()
    need(normal.state(row) != "missing", "not in this kernel")
    for error, state in ((errno.ENOSYS, "missing"), (errno.EPERM, "restricted")):
        report = doctor(preexec_fn=refusing_with(name, error))
        assert report.state(row) == state
        assert "seccomp=unconfined" in report[row]["fix"]
        if required:
            assert not report.native["available"]
        else:
            assert report.native["available"] == normal.native["available"]


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS])
def test_user_namespaces_refused_by_a_filter(error):
    report = doctor(preexec_fn=refusing_with("unshare", error))
    row = report["user-namespaces"]
    assert row["state"] == "restricted"
    assert "seccomp filter from outside" in row["found"]
    assert "seccomp=unconfined" in row["fix"]
    assert "seccomp filter" in report["container"]["found"]


def test_a_filter_that_kills():
    report = doctor(preexec_fn=refusing("openat2", KILL))
    assert report.state("openat2") == "restricted"
    assert "killed" in report["openat2"]["found"]
    assert "seccomp=unconfined" in report["openat2"]["fix"]
