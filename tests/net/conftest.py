"""Fixtures of the network tests; see world.py."""

import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from world import Internet  # noqa: E402


def pytest_collection_finish(session):
    """A kernel that is not here yet is fetched now: soon we are in a network that leads nowhere."""
    guests = [item.module for item in session.items if item.path.name == "test_guest.py"]
    if guests:
        guests[0].fetch_kernel()


@pytest.fixture(scope="session")
def internet(world):
    if not world.root:
        pytest.skip("needs root on the host to make network namespaces")
    made = Internet()
    yield made
    made.close()


@pytest.fixture
def net(box, internet):
    """A planted project, and an internet around it."""
    box.internet = internet
    return box
