"""Fixtures of the black-box tests; see harness.py."""

import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import harness  # noqa: E402

MARKERS = {
    "escape": "an attempt to get out; the row of the corpus is in the test's id",
    "control": "shows that an attempt works without the sandbox",
    "works": "something that must keep working inside",
}

markers_of = {}  # of every test, by its id; a report's keywords hold names of folders, too


def pytest_configure(config):
    for name, what in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {what}")
    # No silent skips: always print why.
    for letter in "sxX":
        if letter not in config.option.reportchars:
            config.option.reportchars += letter


def is_of_root(item):
    """Where attacks are not, nor what is tried as root alone: there each identity counts."""
    folder, name = os.path.split(item.fspath)
    params = item.callspec.params if hasattr(item, "callspec") else {}
    if os.path.basename(folder) == "gate":
        return params.get("pair") == "notify-root" and name not in ("test_everyday.py", "test_races.py")
    return params.get("identity") == "root" and os.path.basename(folder) in ("cli", "net", "backends")


def is_slow(item):
    """Other sandboxes and networks take long, and change seldom; attacks on them are left alone."""
    return os.path.basename(os.path.dirname(item.fspath)) in ("backends", "net") and \
        not item.get_closest_marker("escape")


def leave_out(config, items, chosen):
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def part_of(items, variable):
    """"2 0": each second of them, from the first on."""
    step, first = map(int, os.environ.get(variable, "1 0").split())
    return set(items[first::step])


def pytest_collection_modifyitems(config, items):
    leave_out(config, items, part_of(items, "SANDBOX_TEST_EVERY"))
    for is_of, variable in (is_of_root, "SANDBOX_TEST_ROOT"), (is_slow, "SANDBOX_TEST_SLOW"):
        these = [item for item in items if is_of(item)]
        leave_out(config, items, set(items) - set(these) | part_of(these, variable))
    for item in items:
        markers_of[item.nodeid] = {mark.name for mark in item.iter_markers()}


def pytest_terminal_summary(terminalreporter):
    """One line that a caller can read: passed, failed and skipped per marker."""
    counts = {}
    for outcome in ("passed", "failed", "skipped", "xfailed", "xpassed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            for name in MARKERS:
                if name in markers_of.get(report.nodeid, ()):
                    counts.setdefault(name, {}).setdefault(outcome, set()).add(report.nodeid)
    for name, outcomes in sorted(counts.items()):
        words = " ".join(f"{outcome}={len(ids)}" for outcome, ids in sorted(outcomes.items()))
        terminalreporter.write_line(f"summary {name}: {words}")


@pytest.fixture(scope="session")
def world():
    created = harness.World()
    yield created
    created.close()


@pytest.fixture(params=harness.IDENTITIES)
def identity(request, world):
    try:
        return world.identity(request.param)
    except harness.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def box(request, world, identity):
    """A planted home and project; afterwards nothing of the sandbox may be left on the host."""
    made = harness.Box(world, identity)
    check = harness.LeakCheck(made)
    yield made
    problems = check.check()
    if not os.environ.get("SANDBOX_PEER"):
        assert not problems, "\n".join(problems)


@pytest.fixture
def host_root(world):
    """For tests whose ground only root can lay (mounts, setuid files, users)."""
    if not world.root:
        pytest.skip("needs root on the host to lay the ground")
    return world
