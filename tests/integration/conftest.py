"""Quicker starts of the servers of all tests here."""

from collections.abc import Iterator

import pytest

from quire.local.child_process import ChildProcess
from tests.support.quire.forks.forked_server import STARTING, forked_servers


@pytest.fixture(scope="session", autouse=True)
def _quick_starts() -> Iterator[None]:
    with forked_servers():
        yield


@pytest.fixture
def starts_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start servers as a user starts them: with command lines and interpreters of their own."""
    for module in STARTING:
        monkeypatch.setattr(f"{module}.ChildProcess", ChildProcess)
