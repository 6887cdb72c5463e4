"""Scrubs, shown and requested by operators."""

import pytest

from metadata.ids import BookieId, EntryId, LedgerId
from metadata.repair.scrub import BadRange, ScrubRecord
from metadata.repair.scrub_store import ScrubStore
from metadata.repair.settings_store import RepairSettingsStore
from quire.cli.repair import repair_manage
from quire.cli.repair.repair_manage import ScrubOffError
from quire.cli.repair.verbs import parser
from quire.operate.bookie_changes import NoSuchBookieError
from tests.support.quire.memory_cluster import MemoryCluster

NOW_MS = 1_700_000_000_000
A, B = BookieId("a"), BookieId("b")


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair_manage, "wall_clock_ms", lambda: NOW_MS)


async def test_scrubs_are_shown(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a", "b")
    bad = (BadRange(LedgerId(7), EntryId(3), EntryId(4)),)
    scrubs = ScrubStore(memory_cluster.store, memory_cluster.rng)
    await scrubs.put(B, ScrubRecord(ended_ms=NOW_MS - 5_000, bad=bad))
    _, rows = await memory_cluster.run(parser(), "scrub", "-o", "json")
    assert [(each["id"], each["scrub"], each["bad_entries"]) for each in rows] == [
        ("a", "none ended yet", 0),
        ("b", "ended 5 s ago", 2),
    ]
    assert rows[1]["bad_ranges"] == [[7, 3, 4]]
    _, text = await memory_cluster.text(parser(), "scrub", "b")
    assert "ended 5 s ago" in text
    assert "\na " not in text
    _, row = await memory_cluster.run(parser(), "status", "-o", "json")
    assert [each["id"] for each in row["scrubs"]] == ["b"]


async def test_all_bookies_are_scrubbed_at_once(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a", "b")
    _, rows = await memory_cluster.run(parser(), "scrub", "--now", "-o", "json")
    assert [each["scrub"] for each in rows] == ["requested, none ended yet"] * 2
    settings = await RepairSettingsStore(memory_cluster.store, memory_cluster.rng).get()
    assert settings.scrub_requested_ms == NOW_MS


async def test_one_bookie_is_scrubbed_at_once(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a", "b")
    await memory_cluster.run(parser(), "scrub", "--now", "b", "-o", "json")
    scrubs = ScrubStore(memory_cluster.store, memory_cluster.rng)
    assert await scrubs.get_all() == {B: ScrubRecord(requested_ms=NOW_MS)}
    settings = await RepairSettingsStore(memory_cluster.store, memory_cluster.rng).get()
    assert settings.scrub_requested_ms == 0


async def test_what_cannot_be_requested(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    with pytest.raises(NoSuchBookieError, match="no bookie c"):
        await memory_cluster.run(parser(), "scrub", "--now", "a", "c")
    settings = RepairSettingsStore(memory_cluster.store, memory_cluster.rng)
    await settings.change(scrub_bytes_per_s=0)
    with pytest.raises(ScrubOffError, match="scrubs are off"):
        await memory_cluster.run(parser(), "scrub", "--now")
    assert await ScrubStore(memory_cluster.store, memory_cluster.rng).get_all() == {}
