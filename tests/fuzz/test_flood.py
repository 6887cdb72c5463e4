"""A short flood of strangers against a real bookie: a good client is served, memory is bounded."""

import pytest

from tests.fuzz.flood import Flood, run_flood
from tests.fuzz.flood_clients import Kind

CONNECTIONS = 60
SECONDS = 1.5

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def test_a_flood_of_strangers_harms_nobody() -> None:
    summary = await run_flood(Flood(CONNECTIONS, SECONDS, tuple(Kind)))
    assert summary["entries_wrong"] == 0, summary
    assert summary["is_memory_bounded"], summary
    assert summary["is_well"], summary
    phases = summary["phases"]
    assert isinstance(phases, list)
    assert len(phases) == len(Kind) + 3
    assert all(phase["appends"] for phase in phases)
