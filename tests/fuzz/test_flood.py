"""A short flood of strangers against a real bookie: a good client is served, memory is bounded."""

import pytest

from tests.fuzz.flood import Flood, run_flood

CONNECTIONS = 60
SECONDS = 2.0

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def test_a_flood_of_strangers_harms_nobody() -> None:
    summary = await run_flood(Flood(CONNECTIONS, SECONDS, is_short=True))
    assert summary["entries_wrong"] == 0, summary
    assert summary["is_memory_bounded"], summary
    assert summary["is_well"], summary
    phases = summary["phases"]
    assert isinstance(phases, list)
    assert [phase["connections"] for phase in phases] == [0, CONNECTIONS, 0]
    assert all(phase["appends"] for phase in phases)
