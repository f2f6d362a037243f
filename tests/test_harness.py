"""The harness itself: a leak that it does not see would make every other test worthless."""

import os
import signal
import time

import harness
import pytest


def problems(box, check):
    found = check.check(wait=0.1)
    return "\n".join(found)


@pytest.fixture
def unchecked(world, identity):
    """A box without the leak check, which these tests make fail on purpose."""
    return harness.Box(world, identity)


def test_sees_a_process(unchecked):
    check = harness.LeakCheck(unchecked)
    unchecked.plain(["sh", "-c", "setsid sleep 61 >/dev/null 2>&1 & echo"])
    time.sleep(0.05)
    assert "sleep 61" in problems(unchecked, check)


def test_sees_a_placeholder(unchecked):
    check = harness.LeakCheck(unchecked)
    unchecked.identity.folder(unchecked.path(".cursor"))
    assert "placeholder" in problems(unchecked, check)


@pytest.mark.parametrize("where", ["runtime", "state"])
def test_sees_a_file(unchecked, where):
    check = harness.LeakCheck(unchecked)
    path = os.path.join(getattr(unchecked.identity, where), "sandbox", "abc", "socket")
    unchecked.identity.file(path, "")
    try:
        assert path in problems(unchecked, check)
    finally:
        os.unlink(path)
        os.rmdir(os.path.dirname(path))


def test_plants_anew(unchecked):
    """Whatever a test does to the home, the next one finds it as planted."""
    os.unlink(unchecked.home(".netrc"))
    os.rename(unchecked.path(".git"), unchecked.path("away"))
    os.symlink("away", unchecked.path(".git"))
    unchecked.identity.file(unchecked.path("main.c"), "touched")
    unchecked.plant()
    assert unchecked.canary in open(unchecked.home(".netrc")).read()
    assert os.path.isdir(unchecked.path(".git/objects")) and not os.path.islink(unchecked.path(".git"))
    assert "touched" not in open(unchecked.path("main.c")).read()
    assert not os.path.lexists(unchecked.path("away"))


def test_reads_verdicts():
    assert harness.Result(0, "#OPEN x\r\n", "").verdict() == ("OPEN", "x")
    assert harness.Result(0, "DENIED EPERM\n", "").verdict() == ("DENIED", "EPERM")
    assert harness.Result(128 + signal.SIGSYS, "", "").verdict() == ("DENIED", "SIGSYS")
    assert harness.Result(125, "", "broken").verdict()[0] == "NOTHING"
    assert harness.Result(0, "", "").verdict()[0] == "NOTHING"


def test_patience_does_not_count_what_the_machine_could_not_give(monkeypatch):
    stalled = [5.0]
    monkeypatch.setattr(harness.Patience, "_stalled", staticmethod(lambda: stalled[0]))
    patience = harness.Patience(0.02)
    assert not patience.is_over()
    time.sleep(0.03)
    assert patience.is_over()
    stalled[0] += 1
    assert not patience.is_over()
