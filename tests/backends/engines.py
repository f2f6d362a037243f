"""The back ends under test. One list of behaviours (test_behaviour.py) runs on each of them.

To add one: an Engine in ENGINES. `prepare` lays the ground once per identity (an image, a daemon)
and returns options for `sandbox run`; it raises harness.Unavailable where this machine cannot run
it, which is a skip with that reason. What the back end cannot enforce is not repeated here: it is
taken from `sandbox backends --json`, and a behaviour that needs it is skipped by name.
"""

import json
import os
import subprocess

import harness


class Engine:
    sees_host = True  # the host's own files and tools are inside
    slow = False      # a start takes seconds: only behaviours marked `essential`
    accepts = True    # run with --weaken: what it lacks has its own tests

    def __init__(self, name, **attributes):
        self.name = name
        self.__dict__.update(attributes)

    def prepare(self, world, identity):
        """Options for `sandbox run`; called once per identity."""
        return []

    def is_slow(self, identity):
        """Only behaviours marked `essential` run."""
        return self.slow

    def left_out(self, identity):
        """Why the list does not run as this identity; nothing if it does."""

    def close(self):
        """Undoes what prepare did."""


def not_in_a_guest():
    """`tools/test-vm` runs at a tenth of the speed, and what these test does not depend on it."""
    if os.environ.get("SANDBOX_TEST_VM"):
        raise harness.Unavailable("a guest of tools/test-vm is too slow for it")


def described(world, identity, name, environment=None):
    """What `sandbox backends` says about it, as this identity."""
    result = subprocess.run([world.command, "backends", "--json"], capture_output=True, text=True,
                            cwd=identity.home, timeout=60, check=True,
                            env={**identity.environment(), **(environment or {})},
                            **identity.credentials())
    for entry in json.loads(result.stdout)["backends"]:
        if entry["name"] == name:
            return entry
    raise harness.Unavailable(f"{name}: not in this build")


def _engines():
    from containers import Docker, Podman  # they need Engine
    from machines import Machine

    return (Engine("native", accepts=False), Engine("bwrap"), Engine("landlock"),
            Engine("firejail"), Podman(), Docker(), Machine())


ENGINES = {engine.name: engine for engine in _engines()}
