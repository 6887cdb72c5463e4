"""Two writers store different bytes at the same entry ids at the same time (rule 4.3): of each
entry, the bookie acknowledges those of one of them, and returns them.
"""

import asyncio
import dataclasses
import random

import pytest

from bookie.wire.batch import BatchView
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from tests.simulation.loop import run_simulation
from tests.support.bookie.batches import make_batch
from tests.support.bookie.storage_fixture import SMALL, Bench, add, entries_of, read

LEDGER = LedgerId(7)
WRITERS = "ab"
TASKS_EACH = 3
BATCHES = 40
WINDOW = 6
"""Number of entries at the end, of which some are written again."""


def payload_of(writer: str, entry_id: int) -> bytes:
    return f"{entry_id} of {writer}".encode()


def batch_of(writer: str, first: int, count: int) -> BatchView:
    return make_batch(LEDGER, first, [payload_of(writer, first + i) for i in range(count)])


async def compete(bench: Bench, rng: random.Random) -> None:
    """Write with both writers, cut up differently, and check what was acknowledged."""
    storage = await bench.open()
    background = asyncio.create_task(storage.background())
    acknowledged: dict[int, str] = {}
    end = 0

    async def write(writer: str, rng: random.Random) -> None:
        nonlocal end
        for _ in range(BATCHES):
            await asyncio.sleep(rng.random() * rng.choice((0.0, 0.02)))
            first, count = rng.randrange(max(0, end - WINDOW), end + 2), rng.choice((1, 1, 2, 7))
            end = max(end, first + count)
            recovery = rng.random() < 0.5
            status = await add(storage, batch_of(writer, first, count), recovery=recovery)
            assert status in (Status.OK, Status.CONFLICT)
            for entry_id in range(first, first + count) if status is Status.OK else ():
                first_writer = acknowledged.setdefault(entry_id, writer)
                assert writer == first_writer, f"entry {entry_id} has two payloads"

    tasks = [write(each, random.Random(rng.random())) for each in WRITERS * TASKS_EACH]
    await asyncio.gather(*tasks)
    assert acknowledged
    for entry_id, writer in acknowledged.items():
        found = entries_of(await read(storage, LEDGER, entry_id, entry_id))
        assert found == {entry_id: payload_of(writer, entry_id)}
    background.cancel()
    await asyncio.wait((background,))
    await storage.close()


@pytest.mark.parametrize("seed", range(30))
def test_an_entry_is_acknowledged_with_one_payload(seed: int) -> None:
    rng = random.Random(f"two writers {seed}")
    config = dataclasses.replace(
        SMALL,
        checkpoint_records=rng.choice((5, 100)),
        recent_bytes_max=rng.choice((0, 5_000)),
        run_bytes_max=rng.choice((60, 1_000)),
    )
    run_simulation(lambda: compete(Bench(seed, config), rng), seed)
