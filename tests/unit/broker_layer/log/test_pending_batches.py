"""Tests of the search among batches that are not committed."""

import asyncio
from unittest.mock import sentinel

from broker_layer.log.pending_batches import PendingBatch, PendingBatches
from metadata.ids import EntryId
from quire.server.overriding import override

COUNT = 10_000


class _Offset(int):
    """An offset that counts how often offsets are compared."""

    compared = 0

    @override
    def __lt__(self, other: int) -> bool:
        _Offset.compared += 1
        return super().__lt__(other)

    @override
    def __eq__(self, other: object) -> bool:
        _Offset.compared += 1
        return super().__eq__(other)

    __hash__ = int.__hash__


async def test_a_repeated_batch_is_found_quickly_among_many() -> None:
    pending = PendingBatches(COUNT, COUNT)
    for number in range(COUNT):
        answer = asyncio.get_running_loop().create_future()
        is_after_state = number % 1_000 == 0
        for future in (None, answer) if is_after_state else (answer,):
            entry_id, base = EntryId(number), _Offset(2 * number)
            pending.add(PendingBatch(sentinel.ledger, entry_id, base, base + 2, 1, -1, future))
    for number in (0, 1, COUNT // 2, COUNT - 1):
        _Offset.compared = 0
        found = pending.find(2 * number)
        assert found is not None
        assert found.entry_id == number
        assert found.answer is not None
        assert _Offset.compared < 100
        assert pending.find(2 * number + 1) is None
    assert pending.find(2 * COUNT) is None
