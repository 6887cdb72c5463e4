"""Positions of the bookies' logs: stored form, and changes by compare-and-set (rules 1.2, 2.7)."""

from dataclasses import replace

import msgpack
import pytest

from metadata.errors import MetadataFormatError, OutcomeUnknownError, StoreUnavailableError
from metadata.ids import BookieId, Version
from metadata.paths import position_path
from metadata.registry.positions import (
    NO_POSITION,
    POSITION_CODEC,
    PositionRecord,
    PositionStore,
    StoredPosition,
)
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults

A = BookieId("bookie-a")
FIRST = PositionRecord(b"i" * 16, 0, files=("f1", "f2"), lock="lock")
SECOND = PositionRecord(b"j" * 16, 2**40, files=(), lock="", stopped_ms=1_700_000_000_000)


@pytest.mark.parametrize("record", [FIRST, SECOND, replace(SECOND, stopped_ms=0)])
def test_a_position_round_trips(record: PositionRecord) -> None:
    assert POSITION_CODEC.unpack("/a", POSITION_CODEC.pack("a position", record)) == record


@pytest.mark.parametrize(
    "fields",
    [
        [1, b"i" * 15, 0, [], "", None],
        [1, b"i" * 17, 0, [], "", None],
        [1, "i" * 16, 0, [], "", None],
        [1, b"i" * 16, -1, [], "", None],
        [1, b"i" * 16, 0, [7], "", None],
        [1, b"i" * 16, 0, "", "", None],
        [1, b"i" * 16, 0, [], b"", None],
        [1, b"i" * 16, 0, [], ""],
        [1, b"i" * 16, 0, [], "", -1],
        [1, b"i" * 16, 0, [], "", 5, 5],
        [2, b"i" * 16, 0, [], "", None],
    ],
)
def test_other_values_are_a_format_error(fields: list[object]) -> None:
    with pytest.raises(MetadataFormatError, match="/a"):
        POSITION_CODEC.unpack("/a", msgpack.packb(fields))


def test_the_fields_in_their_order() -> None:
    fields = msgpack.unpackb(POSITION_CODEC.pack("a position", FIRST))
    assert fields == [1, b"i" * 16, 0, ["f1", "f2"], "lock", None, "", ""]
    stopped = msgpack.unpackb(POSITION_CODEC.pack("a position", SECOND))
    assert stopped == [1, b"j" * 16, 2**40, [], "", 1_700_000_000_000, "", ""]
    assert (FIRST.is_orderly, SECOND.is_orderly) == (False, True)


async def test_a_position_is_written_only_over_the_version_that_was_read(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore
) -> None:
    here, there = PositionStore(store), PositionStore(other_store)
    assert await here.get(A) == StoredPosition(None, NO_POSITION)
    assert await here.put(A, FIRST, Version(0)) is None, "there is no such node"
    created = await here.put(A, FIRST, NO_POSITION)
    assert created is not None
    assert await there.put(A, SECOND, NO_POSITION) is None, "it exists"
    assert await there.get(A) == StoredPosition(FIRST, created)
    changed = await there.put(A, SECOND, created)
    assert changed is not None
    assert changed > created
    assert await here.put(A, FIRST, created) is None, "it is at another version"
    assert await here.get(A) == StoredPosition(SECOND, changed)


async def test_a_write_that_may_have_been_applied_is_not_reported_as_refused(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    positions = PositionStore(store)
    version = await positions.put(A, FIRST, NO_POSITION)
    assert version is not None
    faults.acts = ["lost"]
    with pytest.raises(OutcomeUnknownError):
        await positions.put(A, SECOND, version)
    assert (await PositionStore(other_store).get(A)).record == SECOND
    faults.acts = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await positions.put(A, FIRST, (await positions.get(A)).version)


async def test_a_damaged_node_names_its_path(store: MemoryMetadataStore) -> None:
    await store.create(position_path(A), b"x")
    with pytest.raises(MetadataFormatError, match=position_path(A)):
        await PositionStore(store).get(A)
