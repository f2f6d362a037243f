"""Who meets which gate: each test of this folder runs with both triggers and both identities."""

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
