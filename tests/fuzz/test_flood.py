"""A short flood of bad clients against a real bookie: it serves a good client in bounded memory."""

import pytest

from tests.fuzz.flood import MIB, Flood, run_flood
from tests.fuzz.flood_clients import CONNECTION_BYTES_MAX, Kind

CONNECTIONS = 60
SECONDS = 2.0

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def test_a_flood_of_bad_clients_harms_nobody() -> None:
    summary = await run_flood(Flood(CONNECTIONS, SECONDS, is_short=True))
    assert summary["entries_wrong"] == 0, summary
    assert summary["is_memory_bounded"], summary
    assert summary["is_well"], summary
    phases = summary["phases"]
    assert isinstance(phases, list)
    assert [phase["connections"] for phase in phases] == [0, CONNECTIONS, 0]
    assert all(phase["appends"] for phase in phases)


async def test_who_announces_and_sends_nothing_costs_little() -> None:
    """What the flood allows is counted from the bookie's own limits: they are bounded here."""
    assert max(CONNECTION_BYTES_MAX[each] for each in (Kind.SILENT, Kind.DRIP, Kind.ANNOUNCE)) < MIB
