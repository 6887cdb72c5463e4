"""Test of a real bookie with many bad clients: a good client is served, and memory is limited."""

import pytest

from tests.fuzz.flood import MIB, Flood, run_flood
from tests.fuzz.flood_clients import CONNECTION_BYTES_MAX, Kind

CONNECTIONS = 60
SECONDS = 2.0

pytestmark = [pytest.mark.integration, pytest.mark.long]


async def test_bad_clients_do_not_disturb_a_good_one() -> None:
    summary = await run_flood(Flood(CONNECTIONS, SECONDS, is_short=True))
    assert summary["entries_wrong"] == 0, summary
    assert summary["is_memory_bounded"], summary
    assert summary["is_well"], summary
    phases = summary["phases"]
    assert isinstance(phases, list)
    assert [phase["connections"] for phase in phases] == [0, CONNECTIONS, 0]
    assert all(phase["appends"] for phase in phases)


async def test_announced_frames_that_are_not_sent_cost_little() -> None:
    """The flood computes its limit from the bookie's own limits: check that those are small."""
    assert max(CONNECTION_BYTES_MAX[each] for each in (Kind.SILENT, Kind.DRIP, Kind.ANNOUNCE)) < MIB
