"""One simulated cluster: network, metadata service, bookies, clients and checkers.

Leaves the clients' work to `tests.simulation.workloads`, and faults to `tests.simulation.faults`.
"""

import asyncio
import itertools
import random
from collections.abc import Callable
from contextvars import Context, copy_context

from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.store.memory import MemoryMetadataServer
from tests.simulation.availability.fault_history import BookieStates
from tests.simulation.chains.answers import ChainAnswers
from tests.simulation.chains.chain_checker import ChainChecker
from tests.simulation.checkers.availability import AvailabilityChecker
from tests.simulation.checkers.bookie_answers import (
    DeletionChecker,
    DurabilityChecker,
    FencingChecker,
    HoldersChecker,
    MarksChecker,
    NegativesChecker,
)
from tests.simulation.checkers.checker import Checkers
from tests.simulation.checkers.client_promises import OneWriterChecker, OrderChecker, ReadingChecker
from tests.simulation.checkers.hosts import HostsChecker
from tests.simulation.checkers.stored_metadata import (
    CatchingUpChecker,
    ClosingChecker,
    CopiesChecker,
    FragmentsChecker,
    MembersChecker,
    SwapsChecker,
    UncleanChecker,
    WriterNodes,
)
from tests.simulation.clocks import TRUE_CLOCK
from tests.simulation.disk import Platter
from tests.simulation.loop import SimulationLoop
from tests.simulation.model import LedgerModel, Model
from tests.simulation.network import Network
from tests.simulation.nodes import BookieNode, ClientNode, Node
from tests.simulation.plan import Plan
from tests.simulation.store import LedgerNews, SimulatedStoreFaults
from tests.simulation.transport import Endpoint
from tests.simulation.wire_tap import BookieTap, ClientTap, ConnectionTap


class Cluster:
    """All parts of one run."""

    def __init__(self, loop: SimulationLoop, plan: Plan, model: Model) -> None:
        self.loop = loop
        self.plan = plan
        self.model = model
        self.rng = random.Random(f"cluster {plan.seed}")
        self.context: Context = copy_context()
        self.network = Network(loop, plan.seed, plan.network)
        self.network.install()
        self.network.make_taps = self._make_taps
        self.store_faults = SimulatedStoreFaults(plan.seed, plan.store, self.network.faults)
        self.metadata = MemoryMetadataServer(
            self.store_faults, clock_ms=lambda: TRUE_CLOCK.wall_clock_ms(loop.now_s)
        )
        self.damaged: dict[str, None] = {}
        """Hosts whose synced bytes were lost or altered."""
        self.choices = HostsChecker(model)
        self.availability = AvailabilityChecker(model, plan, self.network.faults, self.damaged)
        self.checkers = Checkers(
            model,
            [
                OrderChecker(model),
                ClosingChecker(model),
                CopiesChecker(model),
                FragmentsChecker(model),
                self.choices,
                self.availability,
                ReadingChecker(model),
                FencingChecker(model),
                NegativesChecker(model),
                HoldersChecker(model, self._is_running),
                DeletionChecker(model),
                DurabilityChecker(model, self._platter_of),
                MarksChecker(model, self.damaged),
                MembersChecker(model),
                CatchingUpChecker(model, self._sound_platter_of),
                UncleanChecker(model, lambda bookie_id: self.is_over and self.is_sound(bookie_id)),
                OneWriterChecker(model),
                SwapsChecker(model),
                *self._chain_checkers(),
            ],
        )
        LedgerNews(self.metadata, self._on_ledger)
        self.writer_nodes = WriterNodes(self.metadata, model, plan.session_timeout_s)
        self.bookies: list[BookieNode] = []
        self.bookie_states = BookieStates(self.metadata, self.network.faults, self.bookies)
        self.bookies += [BookieNode(self, number) for number in range(plan.bookie_count)]
        self.clients: list[ClientNode] = []
        self.repairers: list[Node] = []
        self.is_over = False
        self.live_ledgers: dict[int, str] = {}
        """Ledgers that a writer holds open, and the writer's host."""
        self.bursts_left = plan.reach.bursts
        self.failing_builds: dict[int, str] = {}
        """Processes whose next batch cannot be made, and their hosts."""
        self.handle_numbers = itertools.count(1)
        self._connection_count = 0
        self._by_host = {bookie.host: bookie for bookie in self.bookies}

    @property
    def chain_answers(self) -> ChainAnswers:
        """Return the judge of the answers that callers of chains receive."""
        assert self._chain_answers is not None
        return self._chain_answers

    def _chain_checkers(self) -> list[ChainChecker]:
        self._chain_answers: ChainAnswers | None = None
        if self.plan.chains is None:
            return []
        checker = ChainChecker(self.model, self.metadata)
        self._chain_answers = ChainAnswers(checker)
        return [checker]

    async def wait_until(
        self, is_so: Callable[[], bool], timeout_s: float, look_s: float = 0.1
    ) -> bool:
        """Wait until a condition is true; return whether it became true in time."""
        deadline_s = self.loop.now_s + timeout_s
        while not is_so():
            if self.loop.now_s >= deadline_s:
                return False
            await asyncio.sleep(look_s)
        return True

    def note_confirmed(self, ledger: LedgerModel, entry_id: int, expected: int) -> None:
        """Record that a caller saw an append succeed."""
        self.model.note("confirmed", f"ledger {ledger.ledger_id} entry {entry_id}")
        ledger.told = max(ledger.told, entry_id)
        self.model.confirmed_count += 1
        self.checkers.on_confirmed(ledger, entry_id, expected)

    def ledger_ids(self) -> list[int]:
        """List the ledgers that exist."""
        return [each for each, ledger in self.model.ledgers.items() if ledger.metadata is not None]

    def is_sound(self, bookie_id: str) -> bool:
        """Return whether a bookie serves and was never damaged."""
        bookie = self._sound_bookie(bookie_id)
        return bookie is not None and bookie.is_serving

    def _is_running(self, node: int) -> bool:
        return any(bookie.node == node for bookie in self.bookies)

    def _platter_of(self, host: str) -> Platter | None:
        bookie = self._by_host.get(host)
        return None if bookie is None else bookie.platter

    def _sound_bookie(self, bookie_id: str) -> BookieNode | None:
        sound = (bookie for bookie in self.bookies if bookie.host not in self.damaged)
        return next((node for node in sound if node.bookie_id == bookie_id), None)

    def _sound_platter_of(self, bookie_id: str) -> Platter | None:
        bookie = self._sound_bookie(bookie_id)
        return None if bookie is None else bookie.platter

    def _on_ledger(self, before: LedgerMetadata | None, now: LedgerMetadata | None) -> None:
        known = now or before
        assert known is not None
        ledger = self.model.ledger(known.ledger_id)
        if before is None:
            ledger.created_s = self.loop.now_s
        ledger.set_metadata(now, self.loop.now_s)
        text = "deleted" if now is None else f"{now.state} {now.last_entry_id} {now.fragments}"
        self.model.note("metadata", f"ledger {known.ledger_id}: {text}")
        self.checkers.on_metadata(ledger, before)

    def _make_taps(
        self, near: Endpoint, far: Endpoint, protocol: asyncio.BaseProtocol
    ) -> tuple[ClientTap, BookieTap] | None:
        if not isinstance(protocol, asyncio.BufferedProtocol):
            return None  # a bookie's administration
        self._connection_count += 1
        connection = ConnectionTap(self._connection_count, self.model, self.checkers, far)
        return ClientTap(connection), BookieTap(connection)
