"""Tails while bookies fail and return, ensembles change and the metadata service pauses, in random
histories (protocol rules 8.2, 8.4, 8.5).
"""

import asyncio
from random import Random

import pytest

from ledger_client.bookies.pool import CallFailure
from ledger_client.errors import LedgerError
from ledger_client.reading.reader import LedgerReader
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import DigestType, QuorumSpec
from tests.simulation.loop import run_simulation
from tests.support.ledger_client.ledger_world import LEDGER, length, payloads
from tests.support.ledger_client.recovery_world import World
from tests.support.sample_ledgers import ledger_of
from tests.unit.ledger_client.reading.test_reader import TOKEN, close, confirm, open_reader

SEEDS = range(40)
FAILURES = (CallFailure.REFUSED, CallFailure.LOST, CallFailure.TIMEOUT)
QUORUMS = [(3, 3, 2, 16), (3, 3, 3, 1024), (4, 3, 2, 8), (5, 3, 2, 1), (2, 2, 1, 64)]


class History:
    """A writer, its failing bookies, and the readers."""

    def __init__(self, world: World, rng: Random) -> None:
        self.world = world
        self.rng = rng
        self.written = 0
        self.is_over = False

    async def write(self) -> None:
        """Append, sometimes change the ensemble, and close at the end."""
        for _ in range(self.rng.randint(5, 30)):
            await asyncio.sleep(self.rng.choice([0.0, 0.001, 0.05, 1.0]))
            if self.rng.random() < 0.15:
                await self.change_ensemble()
            self.append(self.rng.randint(1, 12))
            if self.rng.random() < 0.7:
                confirm(self.world, self.written - 1)
        self.is_over = True
        self.world.store.resume()
        await close(self.world, self.written - 1)

    def append(self, count: int) -> None:
        """Store one batch on at least an ack quorum of its write set, including bookies that are
        down.
        """
        quorum = self.world.metadata.quorum
        fragment = self.world.metadata.last_fragment
        first = self.written
        count = min(count, quorum.stripe_entries - first % quorum.stripe_entries)
        start = first // quorum.stripe_entries
        members = [
            fragment.ensemble[(start + i) % quorum.ensemble_size]
            for i in range(quorum.write_quorum)
        ]
        stored = self.rng.sample(members, self.rng.randint(quorum.ack_quorum, len(members)))
        self.world.bookies.write(
            first,
            payloads(first, count),
            lac=first - 1,
            length_before=length(first),
            to=",".join(stored),
        )
        self.written += count

    async def change_ensemble(self) -> None:
        metadata, version = await self.world.ledgers.get(LEDGER)
        names = sorted(self.world.bookies.bookies)
        size = metadata.quorum.ensemble_size
        ensemble = tuple(BookieId(b) for b in self.rng.sample(names, size))
        changed = metadata.with_ensemble_change(EntryId(self.written), ensemble, TOKEN)
        await self.world.ledgers.compare_and_set(changed, version)
        self.world.metadata = changed

    async def disturb(self) -> None:
        """Make at most one bookie fail at a time, and pause the readers' metadata service."""
        while not self.is_over:
            name = self.rng.choice(sorted(self.world.bookies.bookies))
            self.world.bookies[name].failure = self.rng.choice(FAILURES)
            await asyncio.sleep(self.rng.choice([0.01, 0.5, 3.0]))
            self.world.bookies[name].failure = None
            await asyncio.sleep(self.rng.choice([0.01, 0.2]))

    async def tail(self, reader: LedgerReader, start: int) -> int:
        expected, lac = start, -1
        async for batch in reader.tail(start):
            for entry in batch:
                assert (entry.id, entry.data) == (expected, payloads(expected, 1)[0])
                expected += 1
            assert reader.last_confirmed >= max(lac, expected - 1)
            lac = reader.last_confirmed
        return expected

    async def read(self, reader: LedgerReader) -> None:
        """Read confirmed ranges; a read may fail with an error, but must never return wrong
        entries.
        """
        while not self.is_over:
            await asyncio.sleep(0.1)
            last = reader.last_confirmed
            if last < 0:
                continue
            first = self.rng.randint(0, last)
            expected = first
            try:
                async for batch in reader.read(first, last, timeout=1):
                    for entry in batch:
                        assert (entry.id, entry.data) == (expected, payloads(expected, 1)[0])
                        expected += 1
            except LedgerError as error:
                if not error.retriable:
                    raise


@pytest.mark.parametrize("seed", SEEDS)
def test_every_tail_sees_every_entry_once_and_ends(seed: int) -> None:
    rng = Random(f"tail {seed}")
    ensemble_size, write, ack, stripe = rng.choice(QUORUMS)
    quorum = QuorumSpec(ensemble_size, write, ack, stripe)
    ledger = ledger_of(
        (0, "abcdef"[:ensemble_size]), quorum=quorum, digest=rng.choice(list(DigestType))
    )

    async def main() -> None:
        world = World(ledger)
        await world.create()
        history = History(world, rng)
        disturbing = asyncio.create_task(history.disturb())
        async with await open_reader(world) as one, await open_reader(world) as other:
            reading = asyncio.create_task(history.read(other))
            tails = [asyncio.create_task(history.tail(reader, 0)) for reader in (one, one, other)]
            await history.write()
            await disturbing
            ends = await asyncio.gather(*tails)
            await reading
            assert ends == [history.written] * 3
        assert world.bookies.attached == 0

    run_simulation(main, seed, until_s=3600)
