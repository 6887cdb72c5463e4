"""Fixtures: a bookie's server on a real socket, with a storage that the test controls."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.support.bookie.running_server import LIMITS, RunningServer, serve


@pytest.fixture
async def served() -> AsyncIterator[RunningServer]:
    made = await serve(LIMITS)
    yield made
    made.storage.commits_by_itself = True
    made.storage.commit()
    made.storage.reads_wait.set()
    made.storage.room.set()
    await made.server.close()
    assert made.counters.connections_now == 0
    assert made.counters.long_polls_now == 0


@pytest.fixture
async def hasty() -> AsyncIterator[RunningServer]:
    """Serve with a short deadline for the first message of a peer."""
    made = await serve(replace(LIMITS, hello_deadline_s=0.2))
    yield made
    await made.server.close()
