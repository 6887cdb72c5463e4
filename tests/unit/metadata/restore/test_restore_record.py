"""The record of a restore, and its acceptance (10.6)."""

import pytest

from metadata.errors import MetadataFormatError, NeverRestoredError
from metadata.msgpack_fields import Packed, pack
from metadata.paths import RESTORE
from metadata.restore.restore_record import (
    RESTORE_NODE,
    RestoreRecord,
    RestoreState,
    accept_restore,
    is_unaccepted,
    read_restore,
)
from metadata.store.memory import MemoryMetadataStore

RECORD = RestoreRecord(b"t" * 16, RestoreState.FINISHED, 1_700_000_000_000, b"d" * 32)


@pytest.mark.parametrize("state", RestoreState)
def test_a_record_round_trips(state: RestoreState) -> None:
    record = RECORD.with_state(state)
    assert RESTORE_NODE.unpack(RESTORE_NODE.pack(record)) == record


def test_other_values_are_refused() -> None:
    wrong: list[list[Packed]] = [
        [1, b"t", "finished", 0, b"d" * 32],
        [1, b"t" * 16, "else", 0, b"d" * 32],
    ]
    for fields in wrong:
        with pytest.raises(MetadataFormatError):
            RESTORE_NODE.unpack(pack("x", fields))


async def test_metadata_that_was_not_restored(store: MemoryMetadataStore) -> None:
    assert await read_restore(store) is None
    assert not await is_unaccepted(store)
    with pytest.raises(NeverRestoredError):
        await accept_restore(store)


async def test_a_finished_restore_is_accepted_once(store: MemoryMetadataStore) -> None:
    await store.create(RESTORE, RESTORE_NODE.pack(RECORD))
    assert await is_unaccepted(store)
    for _ in range(2):
        assert (await accept_restore(store)).is_accepted
        assert not await is_unaccepted(store)


async def test_a_restore_that_runs_is_not_accepted(store: MemoryMetadataStore) -> None:
    await store.create(RESTORE, RESTORE_NODE.pack(RECORD.with_state(RestoreState.RUNNING)))
    with pytest.raises(NeverRestoredError, match="has not ended"):
        await accept_restore(store)
    assert await is_unaccepted(store)
