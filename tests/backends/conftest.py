"""One back end as one identity, ready to run commands; see engines.py."""

import dataclasses
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import harness  # noqa: E402
from engines import ENGINES, described  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(feature...): of the matrix of `sandbox backends`")
    config.addinivalue_line("markers", "host: only where the host's files are inside")
    config.addinivalue_line("markers", "once: only on bwrap: the runner is the same for all")
    config.addinivalue_line("markers", "essential: also on back ends that take seconds to start")


@dataclasses.dataclass
class Ready:
    engine: object
    entry: dict   # of `sandbox backends --json`
    options: list


class Prepared:
    """Each back end is prepared once for each identity, however many tests use it."""

    def __init__(self, world):
        self.world, self.known = world, {}

    def get(self, engine, identity):
        key = engine.name, identity.name
        if key not in self.known:
            try:
                self.known[key] = self._prepare(engine, identity)
            except harness.Unavailable as reason:
                self.known[key] = str(reason)
        if isinstance(self.known[key], str):
            pytest.skip(f"{engine.name} as {identity.name}: {self.known[key]}")
        return self.known[key]

    def _prepare(self, engine, identity):
        options = engine.prepare(self.world, identity)
        entry = described(self.world, identity, engine.name, getattr(engine, "environment", None))
        if not entry["available"]:
            raise harness.Unavailable(f"{entry['why']} (fix: {entry['fix']})")
        return Ready(engine, entry, ["--backend", engine.name, *options])


@pytest.fixture(scope="session")
def prepared(world):
    made = Prepared(world)
    yield made
    for engine in ENGINES.values():
        engine.close()


def pytest_generate_tests(metafunc):
    if "ready" in metafunc.fixturenames:
        once = metafunc.definition.get_closest_marker("once")
        metafunc.parametrize("ready", ["bwrap"] if once else sorted(ENGINES), indirect=True)


@pytest.fixture
def ready(request, prepared, identity):
    """Skips, with the reason, what this back end does not claim to do."""
    engine = ENGINES[request.param]
    if engine.left_out(identity):
        pytest.skip(engine.left_out(identity))
    if engine.is_slow(identity) and not request.node.get_closest_marker("essential"):
        pytest.skip(f"{engine.name} as {identity.name} is slow; the essential behaviours run")
    found = prepared.get(engine, identity)
    if request.node.get_closest_marker("host") and not engine.sees_host:
        pytest.skip(f"{engine.name} has files of its own")
    for mark in request.node.iter_markers("needs"):
        for feature in mark.args:
            if found.entry["features"][feature] != "yes":
                pytest.skip(f"{engine.name} as {identity.name} does not claim: {feature}")
    return found


class BackendBox(harness.Box):
    """Every command runs with the back end; the canary rule of Box.run holds here, too."""

    def __init__(self, world, identity, ready):
        super().__init__(world, identity)
        self.ready = ready
        # Not /tmp: what other tests leave there for a moment would look like ours.
        self.temporary = os.path.join(world.base, "tmp-" + identity.name)
        identity.folder(self.temporary, 0o700)
        self.hidden_in_project = ready.entry["features"]["hide-in-writable"] == "yes"

    @property
    def name(self):
        return self.ready.engine.name

    def wrap(self, argv, options=(), cwd=None):
        weaken = ["--weaken"] if self.ready.engine.accepts and "--strict" not in options else []
        options = [word for word in options if word != "--strict"]
        return [self.world.command, "run", "--static", "--quiet", *self.ready.options, *weaken,
                *options, "--", *argv]

    def popen(self, argv, cwd=None, env=None, **more):
        extra = getattr(self.ready.engine, "environment", None) or {}
        extra = {"TMPDIR": self.temporary, **extra}
        return super().popen(argv, cwd, {**extra, **(env or {})}, **more)

    def left_in_scratch(self):
        return [path for path, _, _ in os.walk(self.temporary)
                if os.path.relpath(path, self.temporary).count(os.sep) == 1]


@pytest.fixture
def boxed(world, prepared):
    """A box for one back end and one identity, for tests of their own."""
    return lambda name, identity: BackendBox(world, identity, prepared.get(ENGINES[name], identity))


@pytest.fixture
def box(world, identity, ready):
    made = BackendBox(world, identity, ready)
    check = harness.LeakCheck(made)
    yield made
    problems = [problem for problem in check.check(wait=3) if "left in /tmp" not in problem]
    problems += made.left_in_scratch()
    assert not problems, "\n".join(problems)
