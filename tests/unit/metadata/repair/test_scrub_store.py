"""Scrub records: changed by compare-and-set by bookies and operators (1.2, 9.12), followed."""

import random
from dataclasses import replace

import pytest

from metadata.errors import MetadataFormatError
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.paths import SCRUBS
from metadata.repair.scrub import NEVER_SCRUBBED, BadRange, ScrubRecord
from metadata.repair.scrub_store import SCRUB_KIND, Scrubs, ScrubStore
from metadata.store.memory import MemoryMetadataStore
from tests.until import until

A, B = BookieId("bookie-a"), BookieId("bookie-b")
UNREADABLE = b"\x91\x63"
"""A msgpack array that begins with format version 99."""
BAD = ScrubRecord(began_ms=3, bad=(BadRange(LedgerId(7), EntryId(1), EntryId(2)),))


async def test_a_record_and_a_request_keep_each_other(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    scrubs = ScrubStore(store, rng)
    assert await scrubs.get(A) == NEVER_SCRUBBED
    assert await scrubs.get_all() == {}
    assert await scrubs.request(A, 5) == ScrubRecord(requested_ms=5)
    stored = replace(BAD, requested_ms=5)
    assert await scrubs.put(A, BAD) == stored
    assert await scrubs.request(A, 6) == replace(stored, requested_ms=6)
    assert await scrubs.get_all() == {A: replace(stored, requested_ms=6)}


async def test_records_are_followed(store: MemoryMetadataStore, rng: random.Random) -> None:
    scrubs, followed = ScrubStore(store, rng), Scrubs(store, rng)
    calls: list[int] = []
    followed.on_bad_change(lambda: calls.append(len(followed.records)))
    await store.create(f"{SCRUBS}/not a bookie", b"")
    await followed.start()
    await scrubs.put(A, BAD)
    await until(lambda: followed.records.get(A) == BAD)
    await scrubs.put(B, ScrubRecord(began_ms=1))
    await until(lambda: len(followed.records) == 2)
    await scrubs.put(A, replace(BAD, bad=()))
    await until(lambda: not followed.records[A].bad)
    assert calls == [1, 2], "progress alone wakes nothing"
    await followed.aclose()


async def test_a_record_that_cannot_be_read_stops_no_list_and_a_request_replaces_it(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    scrubs = ScrubStore(store, rng)
    await store.create(SCRUB_KIND.path(A), UNREADABLE)
    await scrubs.put(B, BAD)
    found = await scrubs.get_all()
    assert found == {A: ScrubRecord(is_unreadable=True), B: BAD}
    with pytest.raises(MetadataFormatError):
        await scrubs.put(A, BAD)
    assert await scrubs.request(A, 5) == ScrubRecord(requested_ms=5)
    assert await scrubs.put(A, BAD) == replace(BAD, requested_ms=5)
