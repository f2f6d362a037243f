"""What the black-box tests share: the built command, and the build folder it came from."""

import os
import pathlib
import subprocess

import pytest

from users import caller, ordinary_user  # noqa: F401: fixtures

ROOT = pathlib.Path(__file__).resolve().parents[2]


def newest_build():
    commands = ROOT.glob("build*/src/cli/sandbox")
    newest = max(commands, key=lambda path: path.stat().st_mtime, default=None)
    return newest and newest.parents[2]


@pytest.fixture(scope="session")
def build():
    """The build folder: $SANDBOX_BUILD, or the newest one in the source tree."""
    folder = os.environ.get("SANDBOX_BUILD") or newest_build()
    assert folder, "no build found: set SANDBOX_BUILD, or run meson and ninja first"
    return pathlib.Path(folder).resolve()


@pytest.fixture(scope="session")
def sandbox(build):
    """The path of the command: $SANDBOX, or the one in the build folder."""
    return os.environ.get("SANDBOX") or str(build / "src/cli/sandbox")


@pytest.fixture(scope="session")
def run(sandbox):
    """Runs the command with these words and returns what it said."""

    def run_command(*words, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(
            [sandbox, *words], capture_output=True, text=True, timeout=20, **options
        )

    return run_command
