"""The writer of one in-sync ledger on in-memory bookies, without its watchdog, in virtual time.

Leaves the checks of members to the tests, which say when one happens.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from random import Random

from bookie.wire.messages import Pong
from ledger_client import ClientConfig, ClientEvent, Quorum, Shortage, SpreadPolicy
from ledger_client.bookies.connection_calls import PendingAdd
from ledger_client.bookies.placement import Placement, Quarantine
from ledger_client.bookies.placement_policy import Candidates
from ledger_client.bookies.pool import CallFailure
from ledger_client.copying import CopyThrottle
from ledger_client.digest import LedgerKeys
from ledger_client.tasks import NextTick
from ledger_client.writing.append_shell import AppendShell
from ledger_client.writing.bookie_news import BookieProbes, WriterNews
from ledger_client.writing.in_sync_members import InSyncMembers
from ledger_client.writing.pacing import LedgerTurns, MetadataReads, Slices
from ledger_client.writing.writer_services import WriterServices
from metadata.callbacks import Callbacks
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import LedgerMetadata, QuorumSpec
from metadata.store.interface import Cancel
from tests.simulation.loop import run_simulation, simulation_loop
from tests.support.ledger_client.copying_world import Bookies
from tests.support.ledger_client.ledger_world import LEDGER, LedgerWorld, payloads
from tests.support.ledger_client.recovery_world import Up
from tests.support.sample_ledgers import ledger_of

CHECK_PERIOD_S = 0.05


class WriterBookies(Bookies):
    """Bookies that are also called as a writer does."""

    def __init__(self, names: str, keys: LedgerKeys) -> None:
        super().__init__(names, keys)
        self.pings: list[tuple[float, str]] = []
        """Time and bookie of each ping."""
        self._unavailable = Callbacks[BookieId, CallFailure, str]()

    def add_to(self, bookie_ids: Iterable[BookieId], add: PendingAdd) -> None:
        for bookie_id in bookie_ids:
            first, sink = add.first_entry_id, add.sink
            self.add(bookie_id, add.ledger_id, add.batch, first, recovery=add.recovery, sink=sink)

    def on_unavailable(self, callback: Callable[[BookieId, CallFailure, str], None]) -> Cancel:
        return self._unavailable.add(callback)

    async def ping(self, bookie_id: BookieId, *, timeout_s: float) -> Pong:
        self.pings.append((asyncio.get_running_loop().time(), bookie_id))
        await self._reach(bookie_id, timeout_s)
        return Pong(writable=True, append_p99_us=0)

    def unanswered_bytes(self, _bookie_id: BookieId) -> int:
        return 0


class NotedPolicy:
    """The usual policy, which notes the ensembles and the excluded bookies that it is given."""

    def __init__(self) -> None:
        self._usual = SpreadPolicy()
        self.given: list[tuple[str, dict[BookieId, str]]] = []

    def new_ensemble(
        self,
        quorum: QuorumSpec,
        candidates: Candidates,
        excluded: Mapping[BookieId, str],
        rng: Random,
    ) -> tuple[BookieId, ...] | Shortage:
        return self._usual.new_ensemble(quorum, candidates, excluded, rng)

    def replacements(
        self,
        quorum: QuorumSpec,
        ensemble: tuple[BookieId, ...],
        positions: frozenset[int],
        candidates: Candidates,
        excluded: Mapping[BookieId, str],
        rng: Random,
    ) -> Mapping[int, BookieId] | Shortage:
        self.given.append(("".join(ensemble), dict(excluded)))
        return self._usual.replacements(quorum, ensemble, positions, candidates, excluded, rng)


class World(LedgerWorld[WriterBookies]):
    """A ledger on a, b and c, its writer, and the spare bookies."""

    def __init__(
        self,
        quorum: Quorum,
        spares: str,
        config: ClientConfig,
        parts: tuple[tuple[int, str], ...],
    ) -> None:
        self.config = config
        self.first = ledger_of(*parts, quorum=quorum.spec)
        super().__init__(self.first, WriterBookies)
        self.up = Up(",".join("abc" + spares))
        self.policy = NotedPolicy()
        self.events: list[ClientEvent] = []
        self.dues: list[tuple[float, float | None]] = []
        """Time and result of each check."""

    async def start(self) -> None:
        """Create the ledger and its writer."""
        version = await self.ledgers.create(self.first)
        loop, config, pool, rng = simulation_loop(), self.config, self.bookies.pool, Random(3)
        slices = Slices(config.slice_max_s, loop.time, loop.call_soon)
        self.services = WriterServices(
            pool=pool,
            placement=Placement(self.up, Quarantine(60.0), rng, self.policy),
            ledgers=self.ledgers,
            config=config,
            rng=rng,
            on_refused=lambda _bookie_id, _status: None,
            report=self.events.append,
            next_tick=NextTick(),
            metadata_reads=MetadataReads(rng, 100, 10),
            slices=slices,
            turns=LedgerTurns(4, slices),
            news=WriterNews(pool, slices, self.up.bookies),
            probes=BookieProbes(pool, config.add_timeout_s, slices),
            copy_turns=LedgerTurns(4, slices),
            copy_throttle=CopyThrottle(config.copy_bytes_per_s),
        )
        observed: list[object] = []
        self.shell = AppendShell(self.first, version, self.keys, self.services, observed.append)
        self.members = InSyncMembers(self.shell, self.services, self.keys)
        pool.attach(LEDGER, self.keys.master_key)

    async def aclose(self) -> None:
        """End everything."""
        self.services.slices.close()
        await self.members.aclose()
        await self.shell.aclose()
        await self.services.metadata_reads.aclose()
        await self.services.probes.aclose()
        self.bookies.detach(LEDGER)
        assert self.bookies.attached == 0

    def append(self, count: int = 1) -> None:
        """Send one batch."""
        texts = payloads(self.shell.outbox.lap + 1, count)
        size = sum(map(len, texts))
        self.shell.window.take(size, count)
        self.shell.push(texts, size, simulation_loop().time())

    def check(self) -> float | None:
        """Check the members now."""
        now = simulation_loop().time()
        self.dues.append((now, self.members.check(now)))
        return self.dues[-1][1]

    async def check_for(self, seconds: float) -> None:
        """Check the members for some time, twenty times a second."""
        end = simulation_loop().time() + seconds
        while simulation_loop().time() < end:
            self.check()
            await asyncio.sleep(CHECK_PERIOD_S)

    async def check_until(self, is_done: Callable[[], bool], at_most_s: float) -> float:
        """Check the members until something is the case; return the time."""
        end = simulation_loop().time() + at_most_s
        while not is_done():
            assert simulation_loop().time() < end, "it takes longer"
            self.check()
            await asyncio.sleep(CHECK_PERIOD_S)
        return simulation_loop().time()

    async def lose(self, names: str) -> None:
        """Make members fail, and append until the writer notices."""
        self.bookies.fail(names)
        self.append()
        await asyncio.sleep(CHECK_PERIOD_S)

    @property
    def in_sync(self) -> str:
        return "".join(sorted(self.shell.protocol.in_sync))

    @property
    def metadata(self) -> LedgerMetadata:
        return self.shell.protocol.metadata

    @property
    def ensemble(self) -> str:
        return "".join(self.metadata.last_fragment.ensemble)

    @property
    def lac(self) -> EntryId:
        return self.shell.protocol.lac

    def held(self, name: str) -> list[int]:
        return sorted(self.bookies[name].entries)

    def reported(self, kind: type[ClientEvent]) -> list[ClientEvent]:
        return [event for event in self.events if isinstance(event, kind)]


def run(
    scenario: Callable[[World], Awaitable[None]],
    *,
    minimum: int = 2,
    size: int = 3,
    lag_max_s: float = 1000.0,
    spares: str = "",
    config: ClientConfig | None = None,
    parts: tuple[tuple[int, str], ...] = ((0, "abc"),),
) -> None:
    """Run a scenario with a writer that waits long for a member before it takes a spare."""
    quorum = Quorum.in_sync(size, minimum, replica_lag_time_max=lag_max_s)

    async def main() -> None:
        world = World(quorum, spares, config or ClientConfig(spare_after_s=1000.0), parts)
        await world.start()
        await scenario(world)
        await world.aclose()

    run_simulation(main, 1, until_s=10_000)
