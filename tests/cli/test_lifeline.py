"""A session ends when the other end of its lifeline is closed, whatever the command does."""

import os
import shutil
import subprocess

import pytest

IGNORING = ["sh", "-c", "trap '' TERM; echo > mark; sleep 60"]


def start(box, words, *options):
    """Returns the process and our end of the pipe."""
    ours, theirs = os.pipe()[::-1]
    argv = [box.world.command, "run", "--static", "--lifeline", str(theirs), *options, *words]
    process = box.popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE, text=True, pass_fds=[theirs])
    os.close(theirs)
    return process, ours


def wait_for(box, process, name="mark"):
    while not os.path.exists(box.path(name)):
        assert process.poll() is None, process.communicate()


@pytest.mark.parametrize("backend", ["native", "bwrap"])
def test_cut(box, backend):
    if backend == "bwrap" and not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    process, ours = start(box, ["--", *IGNORING], "--backend", backend)
    wait_for(box, process)
    os.close(ours)
    process.communicate(timeout=20)
    assert process.returncode == 137


def test_uncut(box):
    process, ours = start(box, ["--", "sh", "-c", "exit 5"])
    process.communicate(timeout=20)
    os.close(ours)
    assert process.returncode == 5


def test_cut_before_the_start(box):
    process, ours = start(box, ["--", "sleep", "60"])
    os.close(ours)
    process.communicate(timeout=20)
    assert process.returncode in (137, 143)


def test_detached(box):
    process, ours = start(box, [], "--detach")
    sid = process.communicate(timeout=20)[0].strip()
    assert sid in box.plain([box.world.command, "ps"]).stdout
    os.close(ours)
    while sid in box.plain([box.world.command, "ps"]).stdout:
        pass


@pytest.mark.parametrize("number", ["0", "2", "77", "x"])
def test_not_a_descriptor(box, number):
    result = box.plain([box.world.command, "run", "--static", "--lifeline", number, "--", "true"])
    assert result.exit == 125 and "--lifeline" in result.stderr, result


def test_a_detached_session_needs_a_sandbox(box):
    result = box.plain([box.world.command, "run", "--detach", "--require", "disabled"])
    assert result.exit == 125 and "--detach" in result.stderr, result
