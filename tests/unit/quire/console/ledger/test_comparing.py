"""Comparison of many fragments while the event loop serves others."""

import asyncio

from metadata.ids import ENTRY_ID_MAX
from quire.console.ledger.parts import PARTS_PER_SLICE, Held, compare_copies, parts
from tests.support.sample_ledgers import bookies, closed_ledger

FRAGMENTS = 10 * PARTS_PER_SLICE
LAST = 10 * FRAGMENTS - 1


async def test_others_go_on_between_slices() -> None:
    ledger = closed_ledger(*["abc", "bcd"] * (FRAGMENTS // 2))
    held = dict.fromkeys(bookies("abcd"), Held([(0, LAST)], ENTRY_ID_MAX))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count_turns())
    compared = await compare_copies(ledger, held, LAST)
    other.cancel()
    assert turns >= FRAGMENTS // PARTS_PER_SLICE - 1
    assert list(compared.parts) == list(parts(ledger, held, 0, LAST, LAST))
    assert (compared.last, compared.compared_to, compared.confirmed) == (LAST, LAST, LAST)
