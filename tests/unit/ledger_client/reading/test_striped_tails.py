"""A tail of a ledger whose write sets rotate sees each entry when the next one is written, although
only the bookies of that one hear of it (rules 3.1 and 8.4).
"""

import asyncio

import pytest

from ledger_client.reading.tailing import SILENCE_S
from metadata.ids import EntryId
from metadata.ledgers.copies import write_set
from tests.simulation.loop import simulation_loop
from tests.support.ledger_client.ledger_world import length, payloads
from tests.support.ledger_client.recovery_world import World
from tests.support.ledger_client.recovery_world import run as run_world
from tests.unit.ledger_client.reading.test_reader import open_reader

COUNT = 60
GAP_S = 0.02


async def write(world: World, *, down: str = "") -> dict[int, float]:
    """Write entries one after the other, and return when the LAC of each was written. A batch
    carries the LAC to its own write set only.
    """
    told: dict[int, float] = {}
    metadata = world.metadata
    for entry_id in range(COUNT):
        holders = write_set(metadata.quorum, metadata.last_fragment, EntryId(entry_id))
        names = ",".join(holder for holder in holders if holder not in down)
        lac, texts = entry_id - 1, payloads(entry_id, 1)
        world.bookies.write(entry_id, texts, lac=lac, length_before=length(entry_id), to=names)
        told[lac] = simulation_loop().time()
        await asyncio.sleep(GAP_S)
    return told


@pytest.mark.parametrize(
    "quorum", [(3, 1, 1, 4), (3, 2, 2, 4), (5, 2, 2, 4), (5, 3, 2, 8), (5, 1, 1, 1)]
)
def test_a_tail_follows_over_stripes(quorum: tuple[int, ...]) -> None:
    lags = run(quorum)
    assert max(lags) < 2 * GAP_S


def test_a_failed_bookie_delays_it_by_one_silence_at_most() -> None:
    lags = run((5, 3, 2, 8), down="b")
    assert max(lags) < SILENCE_S + 2 * GAP_S
    assert sorted(lags)[len(lags) * 3 // 4] < 2 * GAP_S


def run(quorum: tuple[int, ...], *, down: str = "") -> list[float]:
    lags: list[float] = []

    async def main(world: World) -> None:
        world.bookies.fail(down)
        seen: dict[int, float] = {}
        async with await open_reader(world) as reader:

            async def follow() -> None:
                async for batch in reader.tail(0):
                    for entry in batch:
                        seen[entry.id] = simulation_loop().time()

            following = asyncio.create_task(follow())
            told = await write(world, down=down)
            await asyncio.sleep(2 * SILENCE_S)
            following.cancel()
            await asyncio.wait((following,))
        assert sorted(seen) == list(range(COUNT - 1))
        lags.extend(seen[each] - told[each] for each in seen)

    run_world(main, quorum=quorum, ensemble=",".join("abcde"[: quorum[0]]))
    return lags
