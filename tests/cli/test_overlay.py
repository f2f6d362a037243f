"""Overlays as a workflow: run, diff, apply, discard; conflicts, crashes and hostile layers."""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import stat
import subprocess
import time

import pytest

COUNT, ROUNDS = (150, 8) if os.environ.get("SANDBOX_TEST_LONG") else (40, 4)


def tree(folder):
    """Everything below a folder: type, permissions and contents by name."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        status = path.lstat()
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = path.read_bytes()
        else:
            content = None
        found[str(path.relative_to(folder))] = (stat.filemode(status.st_mode), content)
    return found


def fill(caller, files):
    for name, content in files.items():
        path = caller.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    caller.own()
    time.sleep(0.02)  # stamps have the granularity of a tick


CHANGES = r"""
    echo two >> edited; rm -r gone; mkdir -p new/deep; echo n > new/deep/file
    chmod 755 mode; ln -s edited link; rm replaced; mkdir replaced; echo r > replaced/in
    rm -r folder; echo f > folder; printf 'no newline' > unended
    rm -r again; mkdir again; echo x > again/other
"""
FILES = {
    "edited": "one\n",
    "gone/a": "1\n",
    "gone/b/c": "2\n",
    "mode": "m\n",
    "replaced": "file\n",
    "folder/x": "x\n",
    "again/first": "1\n",
    "kept": "k\n",
}


def test_the_original_is_never_touched(caller):
    fill(caller, FILES)
    before = tree(caller.project)
    caller.overlay(CHANGES)
    assert tree(caller.project) == before


def test_git_folders_go_to_the_overlay_too(caller):
    subprocess.run(["git", "init", "-q", str(caller.project)], check=True)
    fill(caller, FILES)
    before = tree(caller.project)
    caller.overlay("touch .git/inside; echo x > .git/objects/info/x")
    assert tree(caller.project) == before


def test_apply_gives_what_the_session_saw(caller):
    fill(caller, FILES)
    sid = caller.overlay(CHANGES)
    applied = caller.run("apply", sid)
    assert applied.returncode == 0, applied.stderr
    after = tree(caller.project)
    assert after["edited"][1] == b"one\ntwo\n"
    assert "gone" not in after and "gone/b/c" not in after
    assert after["new/deep/file"][1] == b"n\n"
    assert after["mode"][0] == "-rwxr-xr-x"
    assert after["link"][1] == "edited"
    assert after["replaced/in"][1] == b"r\n"
    assert after["folder"][1] == b"f\n"
    assert sorted(name for name in after if name.startswith("again")) == ["again", "again/other"]
    assert after["kept"][1] == b"k\n"
    assert caller.sessions() == []  # nothing was left to keep


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a ramfs")
def test_a_state_folder_that_cannot_hold_one(caller):
    """Without extended attributes the kernel mounts it, and fails when a folder is removed."""
    fill(caller, FILES)
    script = 'mount -t ramfs ramfs "$0" && chmod 777 "$0" && "$@"; status=$?; find "$0" >&2; exit $status'
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, caller.state, *caller.words(
        "run", "--static", "--overlay", ".", "--", "touch", "started")], capture_output=True, text=True,
        **caller.options({}))
    assert done.returncode == 125 and "extended attributes" in done.stderr, done
    assert "XDG_STATE_HOME" in done.stderr and "overlays/" not in done.stderr.partition("fix:")[2], done


def test_nothing_changed_keeps_nothing(caller):
    fill(caller, FILES)
    done = caller.run("run", "--static", "--overlay", ".", "--", "sh", "-c", "touch edited; ls")
    assert done.returncode == 0 and "overlay" not in done.stderr
    assert caller.sessions() == []


def test_the_next_commands_are_said_unless_quiet(caller):
    fill(caller, FILES)
    command = ["--overlay", ".", "--", "sh", "-c", "echo x > n"]
    loud = caller.run("run", "--static", *command)
    assert all(f"sandbox {verb} {caller.sessions()[0]}" in loud.stderr
               for verb in ("diff", "apply", "discard"))
    assert caller.run("run", "--static", "--quiet", *command).stderr == ""


@pytest.mark.parametrize("tool", [["git", "apply", "--whitespace=nowarn"], ["patch", "-p1", "-s"]])
def test_the_diff_applies(caller, tool, tmp_path):
    chooser = random.Random(7)
    lines = [f"line {chooser.randrange(30)}\n" for _ in range(400)]
    files = {**FILES, "long": "".join(lines), "with space": "a\n", "ümlaut": "b\n"}
    for _ in range(60):
        lines[chooser.randrange(len(lines))] = f"other {chooser.randrange(30)}\n"
        del lines[chooser.randrange(len(lines))]
    fill(caller, {**files, "longer": "".join(lines)})
    copy = tmp_path / "copy"
    shutil.copytree(caller.project, copy, symlinks=True)
    script = """
        cat longer > long; echo more >> 'with space'; echo more >> 'ümlaut'
        echo two >> edited; rm -r gone; mkdir -p new; echo n > new/file; chmod 755 mode
        printf 'no newline' > unended; ln -s edited link; : > empty; rm kept
    """
    sid = caller.overlay(script)
    diff = caller.run("diff", sid, text=False)
    assert diff.returncode == 0
    done = subprocess.run(tool, cwd=copy, input=diff.stdout, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert caller.run("apply", sid).returncode == 0
    applied = {name: entry for name, entry in tree(caller.project).items() if entry[1] is not None}
    patched = {name: entry for name, entry in tree(copy).items() if entry[1] is not None}
    assert patched == applied


def test_diff_of_binaries_modes_and_specials(caller):
    fill(caller, {"bin": "a", "mode": "m"})
    sid = caller.overlay(r"printf 'a\000b' > bin; chmod 600 mode; mkfifo pipe; mkdir empty")
    shown = caller.run("diff", sid).stdout
    assert "Binary files a/bin and b/bin differ" in shown
    assert "# modified file: mode mode 0644 to 0600" in shown
    assert "# created fifo: pipe" in shown
    assert "# created folder: empty" in shown
    listed = caller.run("diff", "--name-only", sid).stdout.split()
    assert listed == ["bin", "empty", "mode", "pipe"]
    found = json.loads(caller.run("diff", "--json", sid).stdout)
    by_path = {change["path"]: change for change in found["changes"]}
    assert by_path["bin"]["binary"] is True and by_path["pipe"]["flags"] == ["fifo"]


def test_conflicts_refuse_everything(caller):
    fill(caller, FILES)
    sid = caller.overlay("echo two >> edited; echo x > other; rm mode")
    (caller.project / "edited").write_text("mine\n")
    (caller.project / "mode").write_text("mine\n")
    caller.own()
    before = tree(caller.project)
    refused = caller.run("apply", sid)
    assert refused.returncode == 125
    assert "edited: changed in the original" in refused.stderr
    assert "mode: changed in the original" in refused.stderr
    machine = json.loads(caller.run("apply", "--json", sid).stdout)
    assert machine["error"]["code"] == "conflict" and machine["applied"] == []
    assert [change["path"] for change in machine["conflicts"]] == ["edited", "mode"]
    assert tree(caller.project) == before
    assert caller.run("apply", "--only", "other", sid).returncode == 0
    assert (caller.project / "other").exists()
    assert (caller.project / "edited").read_text() == "mine\n"
    assert caller.run("apply", "--force", sid).returncode == 0
    assert (caller.project / "edited").read_text() == "one\ntwo\n"
    assert not (caller.project / "mode").exists()


def test_what_was_deleted_meanwhile_is_a_conflict(caller):
    fill(caller, FILES)
    sid = caller.overlay("echo two >> edited")
    (caller.project / "edited").unlink()
    assert "deleted in the original" in caller.run("apply", sid).stderr
    assert not (caller.project / "edited").exists()


def test_what_was_renamed_is_no_conflict(caller):
    """Its original is still there, under the old name; unless somebody deleted that."""
    fill(caller, FILES)
    (caller.project / "second").write_text("second\n")
    caller.own()
    script = "mv edited renamed; mkdir -p new; mv second new/second"
    sid, other = caller.overlay(script), caller.overlay(script)
    applied = caller.run("apply", sid)
    assert applied.returncode == 0, applied.stderr
    assert (caller.project / "renamed").read_text() == FILES["edited"]
    assert (caller.project / "new/second").read_text() == "second\n"
    assert not (caller.project / "edited").exists() and not (caller.project / "second").exists()
    for name in ("renamed", "new/second"):
        (caller.project / name).unlink()
    assert caller.run("apply", other).stderr.count("deleted in the original") == 2


def test_what_was_written_a_moment_before_is_no_conflict(caller):
    """Stamps of files are as old as the kernel's last tick: so may a start be that comes right after."""
    fill(caller, FILES)
    coarse = 5  # CLOCK_REALTIME_COARSE, which Python does not name
    for _ in range(20):
        last = time.clock_gettime_ns(coarse)
        while time.clock_gettime_ns(coarse) == last:  # as long as it can be until the next tick
            pass
        (caller.project / "edited").write_text("again\n")
        caller.own()
        sid = caller.overlay("echo more >> edited")
        applied = caller.run("apply", sid)
        assert applied.returncode == 0, applied.stderr


def test_new_files_in_a_deleted_folder_are_a_conflict(caller):
    fill(caller, FILES)
    sid = caller.overlay("rm -r gone")
    (caller.project / "gone/mine").write_text("mine")
    caller.own()
    assert caller.run("apply", sid).returncode == 125
    assert (caller.project / "gone/mine").exists() and (caller.project / "gone/a").exists()


@pytest.mark.parametrize("command", ["echo two >> src/in/file", "rm src/in/file", "rm -r src",
                                     "rm -r src/in; mkdir src/in"])
def test_what_lies_in_a_folder_that_was_moved_there_is_a_conflict(caller, command):
    """It was not what the command saw, although it is older than the session."""
    fill(caller, {"src/in/file": "one\n", "next/in/file": "mine\n"})
    sid = caller.overlay(command)
    (caller.project / "src").rename(caller.project / "old")
    (caller.project / "next").rename(caller.project / "src")
    refused = caller.run("apply", sid)
    assert refused.returncode == 125 and "src/in/file: its folder was moved" in refused.stderr, refused
    assert (caller.project / "src/in/file").read_text() == "mine\n"
    assert caller.run("apply", "--force", sid).returncode == 0
    assert not (caller.project / "src/in/file").exists() or "two" in (caller.project / "src/in/file").read_text()


@pytest.mark.parametrize("command", ["echo two >> src/in/file", "rm -r src"])
def test_names_that_come_and_go_around_it_are_no_conflict(caller, command):
    fill(caller, {"src/in/file": "one\n", "src/other": "other\n"})
    sid = caller.overlay(command)
    (caller.project / "src/in/mine").write_text("mine\n")
    (caller.project / "src/in/mine").unlink()
    (caller.project / "src/other").rename(caller.project / "other")
    assert caller.run("apply", sid).returncode == 0


def test_dangerous_things_need_a_word(caller):
    fill(caller, FILES)
    sid = caller.overlay(
        "mkdir -p sub/.vscode; echo x > sub/.vscode/tasks.json; ln -s /etc/passwd out;"
        "mkfifo pipe; echo ok > fine"
    )
    done = caller.run("apply", sid)
    assert done.returncode == 0 and "--include-protected" in done.stderr
    assert (caller.project / "fine").exists()
    assert not (caller.project / "out").is_symlink()
    assert not (caller.project / "sub/.vscode").exists()
    assert caller.run("apply", "--include-protected", sid).returncode == 0
    assert os.readlink(caller.project / "out") == "/etc/passwd"
    assert stat.S_ISFIFO((caller.project / "pipe").stat().st_mode)
    assert (caller.project / "sub/.vscode/tasks.json").exists()
    assert caller.sessions() == []


def test_discard(caller):
    fill(caller, FILES)
    before = tree(caller.project)
    first = caller.overlay("echo 1 > a; mkdir -p x/y; chmod 0 x/y")
    caller.overlay("echo 1 > a")
    assert caller.run("discard", first[:7]).returncode == 0
    assert len(caller.sessions()) == 1
    assert caller.run("discard", "--older-than", "1h").returncode == 0
    assert len(caller.sessions()) == 1
    assert caller.run("discard", "--all").returncode == 0
    assert caller.sessions() == []
    assert tree(caller.project) == before
    assert caller.run("discard", first).returncode == 125


@pytest.mark.parametrize("verb", ["apply", "discard"])
def test_a_removal_that_was_cut_off_at_its_end_is_finished(caller, verb):
    """The metadata goes last, and the empty folder after it."""
    fill(caller, FILES)
    sid = caller.overlay("echo 1 > a")
    folder = caller.state / "sandbox/overlays" / sid
    assert caller.run("discard", sid).returncode == 0
    folder.mkdir()
    os.chown(folder, folder.parent.stat().st_uid, -1)
    result = caller.run(verb, sid)
    assert result.returncode == 0 and caller.sessions() == [], result.stderr
    assert verb != "apply" or "had been applied or discarded already" in result.stderr


def test_a_running_session_is_left_alone(caller):
    fill(caller, FILES)
    child = caller.start("run", "--static", "--overlay", ".", "--", "sh", "-c",
                         "echo x > n; sleep 30")
    wait_for(lambda: any((caller.state / "sandbox/overlays").glob("*/0/upper/n")))
    sid = caller.sessions()[0]
    for verb in ("apply", "discard"):
        refused = caller.run(verb, sid)
        assert refused.returncode == 125 and "in use" in refused.stderr
    assert "+x" in caller.run("diff", sid).stdout
    child.kill()
    child.wait()


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def test_nothing_is_lost_when_the_monitor_dies(caller):
    fill(caller, FILES)
    child = caller.start("run", "--static", "--overlay", ".", "--", "sh", "-c",
                         "echo x > n; echo ready > m; sleep 60")
    wait_for(lambda: any((caller.state / "sandbox/overlays").glob("*/0/upper/m")))
    child.send_signal(signal.SIGKILL)
    child.wait()
    sid = caller.sessions()[0]
    time.sleep(0.5)
    assert "+x" in caller.run("diff", sid).stdout
    done = caller.run("apply", sid)
    assert done.returncode == 0, done.stderr
    assert (caller.project / "n").read_text() == "x\n"


MANY = f"i=0; while [ $i -lt {COUNT} ]; do" + r"""
      mkdir -p d$i; echo $i > d$i/new; echo $i >> f$i; rm -f g$i; rm -rf h$i; i=$((i+1))
    done
    rm -r type; echo file > type; chmod 700 d3; chmod 755 f3; chmod 500 d5
"""


def test_an_interrupted_apply_is_continued(caller):
    files = {"type/inner": "1"}
    for number in range(COUNT):  # each is synced to the disk
        files.update({f"f{number}": "1\n", f"g{number}": "1\n", f"h{number}/x": "1\n"})
    fill(caller, files)
    sid = caller.overlay(MANY)
    pristine = caller.folder / "pristine"
    for name in ("project", "state"):
        subprocess.run(["cp", "-a", str(caller.folder / name), str(pristine) + name], check=True)
    begin = time.monotonic()
    assert caller.run("apply", sid).returncode == 0
    duration = time.monotonic() - begin
    expected = tree(caller.project)

    for _ in range(ROUNDS):
        for name in ("project", "state"):
            shutil.rmtree(caller.folder / name)
            # Stamps of the copy would be newer than the session: the copy keeps the inodes' data
            # but not their change time, so the start is moved behind it.
            subprocess.run(["cp", "-a", str(pristine) + name, str(caller.folder / name)],
                           check=True)
        postpone_start(caller, sid)
        for _ in range(random.randrange(1, 4)):
            child = caller.start("apply", sid)
            time.sleep(random.random() * duration * 0.8)
            child.send_signal(signal.SIGKILL)
            child.wait()
        if caller.sessions():
            done = caller.run("apply", sid)
            assert done.returncode == 0, done.stderr
        assert tree(caller.project) == expected
        assert caller.sessions() == []


def postpone_start(caller, sid):
    time.sleep(0.02)
    path = caller.state / f"sandbox/overlays/{sid}/overlay.json"
    data = json.loads(path.read_text())
    now = time.clock_gettime_ns(time.CLOCK_REALTIME)
    data["started"], data["started_ns"] = divmod(now, 10**9)
    path.write_text(json.dumps(data))


def hostile(caller, sid):
    """The folder of the layer, to plant what no kernel would have let the workload make."""
    return caller.state / f"sandbox/overlays/{sid}/0/upper"


def test_a_parent_that_became_a_link_is_not_followed(caller):
    fill(caller, {"sub/file": "1\n"})
    sid = caller.overlay("echo 2 > sub/file; echo n > sub/new")
    outside = caller.folder / "outside"
    outside.mkdir()
    (outside / "file").write_text("untouched")
    shutil.rmtree(caller.project / "sub")
    (caller.project / "sub").symlink_to(outside)
    caller.own()
    caller.run("apply", sid)
    caller.run("apply", "--force", sid)
    assert tree(outside) == {"file": (stat.filemode((outside / "file").stat().st_mode),
                                      b"untouched")}


def test_a_link_in_the_layer_is_not_followed(caller):
    fill(caller, {"sub/file": "1\n"})
    sid = caller.overlay("echo 2 > sub/file")
    outside = caller.folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    shutil.rmtree(hostile(caller, sid) / "sub")
    (hostile(caller, sid) / "sub").symlink_to(outside)
    caller.own()
    assert "secret\n" not in caller.run("diff", sid).stdout
    caller.run("apply", "--force", "--include-protected", sid)
    assert (outside / "secret").read_text() == "secret"


def test_special_files_do_not_hang(caller):
    fill(caller, {"readme": "1\n"})
    sid = caller.overlay("rm readme; mkfifo readme; echo x > ok")
    upper = hostile(caller, sid)
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(upper)
        server.bind("sock")
        os.chdir(here)
    if os.geteuid() == 0:
        os.mknod(upper / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.link(upper / "ok", upper / "hard")
    caller.own(caller.state)  # the project's stamps must stay as they are
    os.chmod(upper / "ok", 0o4755)
    assert caller.run("diff", sid, timeout=20).returncode == 0
    done = caller.run("apply", "--include-protected", sid, timeout=20)
    assert done.returncode == 0, done.stderr
    after = tree(caller.project)
    assert after["readme"][0].startswith("p")
    assert after["ok"][0] == "-rwxr-xr-x" and after["hard"][0] == "-rwxr-xr-x"
    assert "sock" not in after and "device" not in after


def test_deep_and_unreadable_layers(caller):
    fill(caller, FILES)
    # A shell cannot go that deep by name, but step by step.
    sid = caller.overlay("i=0; while [ $i -lt 1200 ]; do mkdir d; cd d; i=$((i+1)); done; echo > f")
    shown = caller.run("diff", sid)
    assert shown.returncode == 0 and "nested too deeply" in shown.stdout
    done = caller.run("apply", sid)
    assert done.returncode == 0 and "nested too deeply" in done.stderr
    assert caller.run("discard", sid).returncode == 0
    assert caller.sessions() == []
    shutil.rmtree(caller.project / "d", ignore_errors=True)
    sid = caller.overlay("mkdir locked; echo x > locked/x; chmod 0 locked; echo x > f; chmod 0 f")
    assert caller.run("diff", sid).returncode == 0
    assert caller.run("apply", sid).returncode == 0
    caller.run("discard", "--all")
    assert caller.sessions() == []


def test_many_files(caller):
    fill(caller, FILES)
    sid = caller.overlay("mkdir many; cd many; seq 1 3000 | xargs touch")
    assert len(caller.run("diff", "--name-only", sid).stdout.split()) == 3001
    assert caller.run("apply", sid).returncode == 0
    assert len(os.listdir(caller.project / "many")) == 3000


def test_control_characters_reach_no_terminal(caller):
    fill(caller, FILES)
    sid = caller.overlay(r"""printf 'a\033[2Jb\n' > plain; touch "$(printf 'n\033[2J')" """)
    exact = caller.run("diff", sid).stdout
    assert "+a\x1b[2Jb" in exact
    assert '"a/n\\033[2J"' in exact
    words = " ".join(caller.words("diff", sid))
    shown = subprocess.run(["script", "-qec", words, "/dev/null"], capture_output=True, text=True,
                           **caller.options({}))
    assert "\x1b[2J" not in shown.stdout and "\\x1b[2Jb" in shown.stdout
