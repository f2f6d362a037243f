"""E13, E37, E38: the host replaces, removes or creates names while a session runs.

Masks and protections are mounts on objects; the keeper mounts anew. Between a change and its answer
is a moment: what must hold holds "soon", and test_window prints how soon.
"""

import json
import os
import signal
import statistics
import subprocess
import time

import pytest

from harness import DYNAMIC
from rows import Live, eventually

pytestmark = pytest.mark.escape

# What takes longer and does not touch the gate is tested once.
static_only = pytest.mark.skipif(DYNAMIC, reason="no different with a gate; tested in static mode")

HOME_SECRETS = [".netrc", ".git-credentials", ".docker/config.json"]


def replace(box, path, text, mode=0o600, temporary="being-saved"):
    """As every careful program saves: the new file takes the old one's place."""
    new = os.path.join(os.path.dirname(path), temporary)
    box.identity.file(new, text, mode)
    os.rename(new, path)


def is_hidden(box, shell, path):
    """Soon, and then it stays so."""
    return eventually(lambda: box.canary not in shell.ask(f"cat {path}")) and \
        box.canary not in shell.ask(f"cat {path}; cat < {path}; cp {path} copied; cat copied")


def is_read_only(shell, path):
    """Soon, asked for without changing anything; and then it cannot be written."""
    probe = path if os.path.exists(path) else os.path.dirname(path)
    return eventually(lambda: shell.ask(f"[ -w {probe} ] || echo refused") == "refused") and \
        "Read-only file system" in shell.ask(f"echo PAYLOAD >>{path}")


def content(path):
    with open(path) as source:
        return source.read()


def events(box, name):
    """Of all sessions so far, from the audit log."""
    result = box.plain([os.environ["SANDBOX"], "audit", "--json", "--event", name])
    return [json.loads(line) for line in result.stdout.splitlines()]


# ---- secrets ----

def test_replaced_secrets(box):
    """E13.replaced: a mask sits on an object; the host puts another one under the same name."""
    names = ["project/.env", "project/sub/.env", *HOME_SECRETS]
    with Live(box, kept=True) as shell:
        for name in names:
            replace(box, box.home(name), box.canary + " replaced\n")
            assert is_hidden(box, shell, box.home(name)), name


def test_late_secrets(box):
    """E13.late: secrets that did not exist when the sandbox started."""
    names = ["project/.env", "project/sub/.env.local", ".netrc", ".ssh/id_ed25519",
             ".config/gh/hosts.yml", "late.pem"]
    for name in names:
        if os.path.exists(box.home(name)):
            os.unlink(box.home(name))
    subprocess.run(["rm", "-r", box.home(".ssh")], check=True)
    with Live(box, kept=True) as shell:
        for name in names:
            box.identity.file(box.home(name), box.canary + "\n", 0o600)
            assert is_hidden(box, shell, box.home(name)), name


def test_secret_replaced_before_anybody_watches(box):
    """What happened before the watch was set is found by comparing."""
    with Live(box) as shell:
        replace(box, box.path(".env"), box.canary + "\n")
        assert is_hidden(box, shell, box.path(".env"))


@static_only
def test_secret_behind_a_new_link(box):
    """E14: a link in a secret's place means what it leads to."""
    box.identity.file(box.path("settings"), box.canary + "\n")
    with Live(box, kept=True) as shell:
        assert box.canary in shell.ask("cat settings")
        os.symlink("settings", box.path("link"))
        os.rename(box.path("link"), box.path(".env"))
        assert is_hidden(box, shell, box.path(".env"))
        assert is_hidden(box, shell, box.path("settings"))


@static_only
def test_folder_of_a_secret_replaced(box):
    """The folder above is another one now, with another file in it."""
    with Live(box, kept=True) as shell:
        os.rename(box.home(".docker"), box.home("old"))
        box.identity.file(box.home("new/config.json"), box.canary + "\n", 0o600)
        os.rename(box.home("new"), box.home(".docker"))
        assert is_hidden(box, shell, box.home(".docker/config.json"))


@static_only
@pytest.mark.works
def test_own_file_with_a_secret_name(box):
    """The command may make one; the name is a secret's, so it cannot read it, unless allowed."""
    make = "sleep 0.15; cp README.md .env; sleep 0.1; echo more >>.env; cat .env"
    os.unlink(box.path(".env"))
    result = box.run(["sh", "-c", make])
    assert "Permission denied" in result.stderr and "is hidden from the command" in result.stderr
    assert content(box.path(".env")) == content(box.path("README.md"))
    os.unlink(box.path(".env"))
    result = box.run(["sh", "-c", make], options=("--rw", "**/.env"))
    assert "more" in result.stdout and not result.stderr, result
    box.identity.folder(box.path("empty"))  # a virtual environment may be called so
    result = box.run(["sh", "-c", "cd empty; sleep 0.15; mkdir .env; sleep 0.1; echo it >.env/works; "
                                  "cat .env/works"])
    assert result.stdout == "it\n", result


# ---- protected names ----

def test_git_config_on_the_host(box):
    """E38: `git config` replaces the file; core.fsmonitor would be run by the next `git status`."""
    with Live(box, kept=True) as shell:
        for value in range(3):
            result = box.plain(["git", "config", "some.key", str(value)])
            assert result.exit == 0, result
            assert is_read_only(shell, box.path(".git/config"))
            assert str(value) in shell.ask("git config some.key")
        assert "PAYLOAD" not in content(box.path(".git/config"))


def test_protected_files_replaced(box):
    """E38.replaced: the host's own tools save by rename."""
    names = [".git/config", ".mcp.json", ".envrc"]
    for name in names[1:]:
        box.identity.file(box.path(name), "before\n")
    with Live(box, kept=True) as shell:
        for name in names:
            replace(box, box.path(name), "of the host\n", 0o644)
            assert is_read_only(shell, box.path(name)), name
            assert "PAYLOAD" not in content(box.path(name))


def test_protected_folders_remade(box):
    """E37.remade: the hooks are removed and made again, with one in it."""
    box.identity.folder(box.path(".vscode"))
    with Live(box, kept=True) as shell:
        for name in (".git/hooks", ".vscode"):
            subprocess.run(["rm", "-r", box.path(name)], check=True)
            subprocess.run(["mkdir", "-p", box.path(name)], check=True)
            box.identity.own(box.path(name))  # or it would be refused at once, being root's
            box.identity.file(box.path(name, "mine"), "of the host\n")
            assert is_read_only(shell, box.path(name, "x")), name
            assert is_read_only(shell, box.path(name, "mine")), name
    assert os.listdir(box.path(".git/hooks")) == ["mine"]


def test_protected_names_removed(box):
    """What the host removes cannot be created by the command, and nothing is left at the end."""
    names = [".git/config", ".mcp.json", ".git/hooks"]
    box.identity.file(box.path(".mcp.json"), "{}\n")
    with Live(box, kept=True) as shell:
        for name in names:
            subprocess.run(["rm", "-r", box.path(name)], check=True)
            assert eventually(lambda: os.path.lexists(box.path(name))), name
            time.sleep(0.02)
            shell.ask(f"echo PAYLOAD >{name}; rm -rf {name}; mkdir {name}; echo PAYLOAD >{name}/x; "
                      f"ln -sf /dev/null {name}; mv README.md {name}")
            assert os.path.isfile(box.path(name)) and not content(box.path(name)) or \
                not os.listdir(box.path(name)), name
    assert not [name for name in names if os.path.lexists(box.path(name))]
    assert os.path.exists(box.path("README.md"))


def test_repository_replaced(box):
    """The whole repository goes, and another one comes."""
    with Live(box, kept=True) as shell:
        # The second time in place of the placeholders that stand there by then.
        box.plain(["sh", "-c", "mv .git old-git; git init -q --template= other; mkdir other/.git/hooks; "
                               "rm -rf .git; mv -T other/.git .git || cp -r other/.git/. .git"])
        assert is_read_only(shell, box.path(".git/hooks/x"))
        assert is_read_only(shell, box.path(".git/config"))
        shell.ask("mv .git away; mkdir -p .git/hooks; echo PAYLOAD >.git/hooks/x")
        assert not os.path.exists(box.path(".git/hooks/x"))
    subprocess.run(["rm", "-rf", box.path("old-git"), box.path("other")], check=True)


@static_only
def test_replaced_many_times(box):
    """200 times in a row, and the last one counts."""
    with Live(box, kept=True) as shell:
        for count in range(200):
            replace(box, box.path(".git/config"), f"# {count}\n", 0o644)
            replace(box, box.path(".env"), f"{box.canary} {count}\n")
        assert is_read_only(shell, box.path(".git/config"))
        assert is_hidden(box, shell, box.path(".env"))
        assert content(box.path(".git/config")) == "# 199\n"
        mounts = shell.ask("cat /proc/self/mountinfo").count(f"{box.project}/.git/config ")
        assert mounts == 2, "mounts pile up"  # as the object and as the place


# ---- the command tries to use it ----

FLOOD = """
import os, time
end = time.monotonic() + 0.6
count = 0
while time.monotonic() < end:
    for folder in (".", ".git", "sub"):
        for name in range(200):
            os.close(os.open(f"{folder}/flood{name}", os.O_CREAT | os.O_WRONLY))
            os.rename(f"{folder}/flood{name}", f"{folder}/flooded")
            count += 1
print(count)
"""


@static_only
def test_flood(box):
    """Events without end in the folders that are watched: the host's changes are not lost in it."""
    with Live(box, kept=True) as shell:
        shell.ask("(python3 - >flood-count 2>&1 <<'END'\n" + FLOOD + "END\n) &")
        for count in range(15):
            replace(box, box.path(".git/config"), f"# {count}\n", 0o644)
            replace(box, box.path(".env"), f"{box.canary} {count}\n")
            time.sleep(0.02)
        assert is_read_only(shell, box.path(".git/config"))
        assert is_hidden(box, shell, box.path(".env"))
        shell.ask("wait")
        assert int(content(box.path("flood-count"))) > 100


@static_only
def test_flood_of_secrets(box):
    """Names of secrets without end: each costs a mount. The session ends before it is too many."""
    result = box.run(["sh", "-c", "sleep 0.15; i=0; while [ $i -lt 4000 ]; do : >.env.$i; "
                                  "i=$((i+1)); done; sleep 20; echo still here"])
    assert result.exit == 137 and "still here" not in result.stdout, result
    assert "new names of secrets appeared" in result.stderr, result
    assert result.stderr.count("is hidden from the command") <= 5
    assert "new names of secrets appeared" in events(box, "protection.failed")[-1]["note"]


@static_only
def test_own_links_do_no_harm(box):
    """Links with a secret's name, made by the command, lead the keeper nowhere."""
    os.unlink(box.path(".env"))
    with Live(box, kept=True) as shell:
        for count, target in enumerate(("/", "..", ".", "/proc/self/root", "/proc/self/cwd", "loop",
                                        "nowhere", ".env.5", ".git", "/usr/bin/env")):
            shell.ask(f"ln -s {target} .env.{count}")
            assert eventually(lambda: shell.ask("cat README.md; ls .. /proc/self/fd/0")), target
        time.sleep(0.05)
        assert shell.ask("cat README.md /proc/self/stat && ls -d .. / && echo fine").endswith("fine")
        assert "rmission denied" in shell.ask("ls .git; env true"), "it hid something from itself"


@static_only
def test_flood_of_links(box):
    """One link after the other hides one thing after the other: there is an end to that, too."""
    make = "mkdir many; cd many; i=0; while [ $i -lt 100 ]; do : >$i; i=$((i+1)); done; cd ..; "
    result = box.run(["sh", "-c", make + "sleep 0.15; for file in many/*; do ln -sfn $file .env.x; "
                                         "sleep 0.002; done; sleep 5; echo still here"])
    assert result.exit == 137 and "too many new names of secrets" in result.stderr, result


@static_only
def test_folders_that_the_command_closes(box):
    """E37: who owns a folder can close it; the host's root goes in, but the keeper must, too."""
    with Live(box, kept=True) as shell:
        shell.ask("chmod 0 .git")
        replace(box, box.path(".git/config"), "# of the host\n", 0o644)
        subprocess.run(["rm", "-r", box.path(".git/hooks")], check=True)
        assert eventually(lambda: os.path.exists(box.path(".git/hooks")))
        time.sleep(0.05)
        shell.ask("chmod 755 .git; echo PAYLOAD >>.git/config; echo PAYLOAD >.git/hooks/x; "
                  "rmdir .git/hooks; mkdir .git/hooks; echo PAYLOAD >.git/hooks/x")
        assert content(box.path(".git/config")) == "# of the host\n"
        assert os.listdir(box.path(".git/hooks")) == []


@static_only
def test_from_within_the_folder(box):
    """Who stands in the folder, or has it open, meets the new mask as well."""
    os.unlink(box.path("sub/.env"))
    with Live(box, kept=True) as shell:
        shell.ask("cd sub; exec 8<.")
        box.identity.file(box.path("sub/.env"), box.canary + "\n", 0o600)
        assert eventually(lambda: box.canary not in shell.ask("cat .env"))
        assert box.canary not in shell.ask("cat ./.env /proc/self/fd/8/.env /dev/fd/8/../sub/.env")


@static_only
def test_open_for_writing_before_it_is_protected(box):
    """E38: whoever has the new file open keeps it: a mount comes too late. The session ends."""
    box.identity.file(box.path("prepared"), "# nothing\n")
    with Live(box, kept=True) as shell:
        shell.ask("exec 9>>prepared; rm -f unrelated")
        os.rename(box.path("prepared"), box.path(".git/config"))
        shell.process.wait(10)
        assert shell.process.returncode == 137
        assert "open for writing" in shell.process.stdout.read()


@static_only
def test_a_second_name_from_before_it_is_protected(box):
    """E38: whoever has linked the new file can write to it by that name, and in the next session, too. The session
    ends. The control: a program that links and unlinks, as some do to save, does not end it."""
    with Live(box, kept=True) as shell:
        for second in ("of-the-host", "of-the-command"):
            box.identity.file(box.path("prepared"), "# nothing\n")
            if second == "of-the-command":
                shell.ask(f"ln prepared {second}")
            else:
                os.link(box.path("prepared"), box.path(second))
            os.rename(box.path("prepared"), box.path(".git/config"))
            if second == "of-the-host":
                os.unlink(box.path(second))
                assert is_read_only(shell, box.path(".git/config"))
                time.sleep(1.2)
                assert shell.ask("echo alive") == "alive"
        shell.process.wait(10)
        assert shell.process.returncode == 137
        assert "second name" in shell.process.stdout.read()


HOLD = """
import ctypes, os, sys
os.chdir(sys.argv[1])
ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
os.read(0, 1)
"""


@static_only
@pytest.mark.parametrize("how", ["stands in it", "descriptor", "of a file", "not dumpable"])
def test_held_before_it_is_protected(box, how):
    """E38: a walk that begins in it does not meet the mount, and what is open for reading can be opened anew. The
    session ends. The control: it goes on if what is held is not what gets the name."""
    box.identity.file(box.path("hold.py"), HOLD)
    box.identity.file(box.path("prepared/in/file"), "# nothing\n")
    box.identity.file(box.path("other/in/file"), "# nothing\n")
    hold = {"stands in it": "cd prepared/in", "descriptor": "exec 9<prepared", "of a file": "exec 9<prepared/in/file",
            "not dumpable": "mkfifo held; sleep 100 >held & python3 hold.py prepared <held & sleep 0.5"}[how]
    with Live(box, kept=True) as shell:
        shell.ask(hold)
        for name in ("other", "prepared"):
            os.rename(box.path(".git/hooks"), box.path(f"hooks-before-{name}"))
            assert eventually(lambda: os.path.isdir(box.path(".git/hooks"))), "no placeholder"
            os.rename(box.path(name), box.path(".git/hooks"))
            if name == "other":
                assert is_read_only(shell, box.path(".git/hooks/in/file"))
                time.sleep(1.2)
                assert shell.ask("echo alive") == "alive"
        shell.process.wait(10)
        assert shell.process.returncode == 137
        assert "something in it, open" in shell.process.stdout.read()


@static_only
def test_link_to_something_writable(box):
    """E38: a protected name that becomes a link into the project cannot be protected any more: the
    command may have the target open already."""
    box.identity.file(box.path("target"), "# nothing\n")
    with Live(box, kept=True) as shell:
        os.symlink("../target", box.path("link"))
        os.rename(box.path("link"), box.path(".git/config"))
        shell.process.wait(10)
        assert shell.process.returncode == 137
        assert "a link to something that the command may write" in shell.process.stdout.read()


# ---- fail closed ----

def keepers_of(process):
    """Children of the monitor with that name."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = content(f"/proc/{entry}/stat")
        except OSError:
            continue
        name, rest = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2:].split()
        if name == "sandbox-keeper" and int(rest[1]) == process.pid:
            found.append(int(entry))
    return found


@static_only
def test_keeper_killed(box):
    """Nobody is left to keep the protections: the session ends, says so, and it is on record."""
    with Live(box, kept=True) as shell:
        keepers = keepers_of(shell.process)
        assert len(keepers) == 1
        os.kill(keepers[0], signal.SIGKILL)
        shell.process.wait(10)
        assert shell.process.returncode == 137
        assert "keeps masks and protections in place is gone" in shell.process.stdout.read()
    assert "is gone" in events(box, "protection.failed")[-1]["note"]


@static_only
@pytest.mark.works
def test_short_commands_have_no_keeper(box):
    """Most commands are over before; none of the time of their start is spent on it. On a busy machine not each of
    them is short."""
    log = os.path.join(box.identity.runtime, "short.log")

    def is_without():
        result = box.run(["true"], options=("--log", log, "--log-level", "debug"))
        said = content(log)
        os.unlink(log)
        assert result.exit == 0, result
        return '"kept"' not in said
    assert any(is_without() for _ in range(20))


EXHAUST = """
import ctypes, sys
while ctypes.CDLL(None).inotify_init() >= 0:
    pass
print("none left", flush=True)
sys.stdin.read()
"""


@static_only
def test_without_a_watch(box):
    """Other programs of the user have taken all: it is said, and looked at from time to time."""
    if box.identity.uid == 0:
        pytest.skip("root's watches are shared by the whole machine")
    os.unlink(box.path("sub/.env"))
    other = box.popen(["/usr/bin/python3", "-c", EXHAUST], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"none left\n"
    with other, Live(box, kept=True) as shell:
        replace(box, box.path(".git/config"), "# of the host\n", 0o644)
        assert is_read_only(shell, box.path(".git/config"))
        box.identity.file(box.path("sub/.env"), box.canary + "\n", 0o600)
        assert is_hidden(box, shell, box.path("sub/.env"))
        other.stdin.close()
    assert "no more files can be watched" in events(box, "protection.weaker")[-1]["note"]


# ---- control, and the measure ----

@static_only
@pytest.mark.control
def test_control(box):
    """Without the sandbox the same shell sees and changes what the host replaces."""
    with Live(box, inside=False) as shell:
        replace(box, box.home(".netrc"), box.canary + "\n")
        assert box.canary in shell.ask(f"cat {box.home('.netrc')}")
        replace(box, box.path(".git/config"), "# of the host\n", 0o644)
        shell.ask("echo PAYLOAD >>.git/config")
        assert "PAYLOAD" in content(box.path(".git/config"))


WINDOW = """
import os, time
print("ready", flush=True)
last = None
while not os.path.exists("enough"):
    try:
        fd = os.open(".git/config", os.O_WRONLY)
    except OSError:
        if last:
            print(int((time.monotonic() - last) * 1e6), flush=True)
        last = None
    else:
        os.close(fd)
        last = last or time.monotonic()
"""


@static_only
def test_window(box, capsys):
    """How long a replaced file can be opened: measured from inside by somebody who does nothing
    else. Printed, for SECURITY.md; only that there is an end to it is asserted."""
    box.identity.file(box.path("window.py"), WINDOW)
    process = box.start(["python3", "window.py"], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    for count in range(50):
        replace(box, box.path(".git/config"), f"# {count}\n", 0o644)
        time.sleep(0.005)
    time.sleep(0.1)
    box.identity.file(box.path("enough"), "")
    windows = [int(line) for line in process.communicate(timeout=30)[0].split()]
    assert process.returncode == 0
    with capsys.disabled():
        if windows:
            print(f"\n  a replaced .git/config could be opened {len(windows)} times of 50, for "
                  f"{statistics.median(windows):.0f} us (median), {max(windows)} us (longest)")
        else:
            print("\n  a replaced .git/config could never be opened in 50 attempts")
