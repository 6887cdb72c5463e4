"""A poller of one ledger on in-memory bookies, for tests of tails in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from bookie.wire.codec import Entries
from bookie.wire.messages import Status, WaitLac
from ledger_client.batches import EntryBatch
from ledger_client.bookies.pool import BookieCallError
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from ledger_client.reading.followed_ledger import FollowedLedger
from ledger_client.reading.tailing import TailPoller
from metadata.ids import BookieId, EntryId, UpdateToken
from metadata.ledgers.ledger_metadata import DigestType
from quire.server.overriding import override
from tests.simulation.loop import simulation_loop
from tests.support.ledger_client.ledger_world import length, payloads
from tests.support.ledger_client.memory_bookies import MemoryBookies
from tests.support.ledger_client.recovery_world import World
from tests.support.ledger_client.recovery_world import run as run_world

TOKEN = UpdateToken(b"changed by tests")
POLL_S, READ_S = 4.5, 2.0
BYTES_MAX = 2_000


class Polls(MemoryBookies):
    """Bookies whose polls are noted; some refuse them, or return more than they should."""

    def __init__(self, keys: LedgerKeys) -> None:
        super().__init__("abcdef", keys)
        self.noted: list[tuple[float, str, WaitLac, float]] = []
        """Time, bookie, request and limit of each poll."""
        self.refused: Status | None = None
        self.meanwhile: Callable[[], None] | None = None
        """Called at about the same time as a refusal."""
        self.returns_up_to: int | None = None

    @override
    async def wait_lac(self, bookie_id: BookieId, request: WaitLac, *, timeout_s: float) -> Entries:
        self.noted.append((asyncio.get_running_loop().time(), bookie_id, request, timeout_s))
        if self.refused is not None:
            if self.meanwhile is not None:
                asyncio.get_running_loop().call_soon(self.meanwhile)
            raise BookieCallError(bookie_id, "as the test wants", status=self.refused)
        answer = await super().wait_lac(bookie_id, request, timeout_s=timeout_s)
        if self.returns_up_to is None:
            return answer
        bookie = self.bookies[bookie_id]
        return bookie.read(request.lac + 1, self.returns_up_to, request.bytes_max)

    @property
    def names(self) -> list[str]:
        return [name for _, name, _, _ in self.noted]

    @property
    def times(self) -> list[float]:
        return [time for time, _, _, _ in self.noted]


class Tail:
    """A poller of an open ledger. Its `preferred` bookie comes first."""

    def __init__(self, world: World, long_poll_s: float, seed: int) -> None:
        self.world = world
        self.bookies = Polls(world.keys)
        self.ledger = FollowedLedger(world.metadata, world.version, world.ledgers, Random(2))
        self.ledger.start()
        self.rng = Random(seed)
        self.preferred = Random(seed).choice(world.metadata.last_fragment.ensemble)
        config = ClientConfig(
            long_poll_s=long_poll_s, read_timeout_s=READ_S, read_bytes_max=BYTES_MAX
        )
        keys, pool = world.keys, self.bookies.pool
        self.poller = TailPoller(self.ledger, keys, pool, config, self.rng)

    def write(self, first: int, count: int, lac: int | None = None) -> None:
        """Store a batch on every member, and confirm it or less."""
        texts, before = payloads(first, count), length(first)
        members = self.world.metadata.last_fragment.ensemble
        self.bookies.write(first, texts, lac=-1, length_before=before, to=",".join(members))
        for name in members:
            self.bookies[name].advance(first + count - 1 if lac is None else lac)

    def later(self, delay_s: float, call: Callable[[], object]) -> None:
        simulation_loop().call_later(delay_s, call)

    async def taken(self) -> list[tuple[int, int]]:
        """Return the first and last entry of each batch that the next wait returns."""
        batches = await self.poller.wait()
        return [self.checked(batch) for batch in batches]

    def checked(self, batch: EntryBatch) -> tuple[int, int]:
        first, last = batch.first_entry_id, batch.last_entry_id
        assert [entry.data for entry in batch] == payloads(first, last - first + 1)
        return first, last

    async def change(self, first: int, names: str) -> None:
        world = self.world
        ensemble = tuple(map(BookieId, names))
        world.metadata = world.metadata.with_ensemble_change(EntryId(first), ensemble, TOKEN)
        world.version = await world.ledgers.compare_and_set(world.metadata, world.version)

    async def still_waits(self, seconds: float) -> "asyncio.Future[tuple[EntryBatch, ...]]":
        waiting = asyncio.ensure_future(self.poller.wait())
        await asyncio.sleep(seconds)
        assert not waiting.done()
        return waiting


def run(
    scenario: Callable[[Tail], Awaitable[None]],
    *,
    quorum: tuple[int, ...] = (3, 3, 2),
    digest: DigestType = DigestType.CRC32C,
    long_poll_s: float = POLL_S,
    seed: int = 7,
) -> None:
    async def main(world: World) -> None:
        tasks = asyncio.all_tasks()
        tail = Tail(world, long_poll_s, seed)
        await scenario(tail)
        await tail.poller.aclose()
        await tail.ledger.aclose()
        assert asyncio.all_tasks() - tasks == set(), "no poll is left"

    run_world(main, quorum=quorum, ensemble=",".join("abcde"[: quorum[0]]), digest=digest)


async def end(waiting: "asyncio.Future[tuple[EntryBatch, ...]]") -> None:
    waiting.cancel()
    await asyncio.wait((waiting,))
