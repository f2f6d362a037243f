"""Who meets which gate: each test of this folder runs with both triggers and both identities."""

import os
import platform

import pytest

import gates
import harness


@pytest.fixture(params=gates.PAIRS)
def pair(request):
    return request.param.split("-")


@pytest.fixture
def identity(pair, world):
    try:
        return world.identity(pair[1])
    except harness.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def gate(pair, world):
    try:
        gates.need(world, pair[0])
        return pair[0]
    except harness.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def ground(box):
    """A folder outside the project with everything that the ways need."""
    made = box.home("gated")
    box.identity.file(f"{made}/file", "content of the file\n")
    box.identity.file(f"{made}/sub/below", "content below\n")
    box.identity.file(f"{made}/exact", "content of the exact one\n")
    with open("/bin/echo", "rb") as source, open(f"{made}/program", "wb") as target:
        target.write(source.read())
    box.identity.file(f"{made}/script", f"#!{made}/program\n")
    os.symlink("file", f"{made}/link")
    os.symlink(f"{made}/sub", f"{made}/folder-link")
    os.symlink("nothing", f"{made}/dangling")
    for number in range(gates.LINKS):
        os.symlink("file" if number == 0 else f"deep{number - 1}", f"{made}/deep{number}")
    os.mkfifo(f"{made}/fifo")
    for name in ("program", "script"):
        os.chmod(f"{made}/{name}", 0o755)
    for path in (made, *(os.path.join(made, name) for name in os.listdir(made))):
        box.identity.own(path)
    return made


@pytest.fixture
def small(box, ground):
    """The 32-bit program; the control: this kernel runs it."""
    if platform.machine() != "x86_64" and not harness.find_built("gate-small"):
        pytest.skip("no compiler for 32-bit programs was there (fix: apt install clang lld)")
    program = gates.program(box.world, "gate-small")
    try:
        box.plain([program])
    except OSError as reason:
        pytest.skip(f"this kernel runs no 32-bit programs: {reason}")
    return program


@pytest.fixture
def top(box):
    made = gates.Top(box)
    yield made
    made.remove()
