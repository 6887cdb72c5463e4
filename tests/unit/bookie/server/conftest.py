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
async def patient() -> AsyncIterator[RunningServer]:
    """Serve with deadlines longer than any test."""
    made = await serve(replace(LIMITS, hello_deadline_s=60, frame_deadline_s=60, write_stall_s=60))
    yield made
    await made.server.close()
