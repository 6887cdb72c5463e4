"""Brings the metadata service in memory into a simulation: sessions of nodes, its faults, its news.

Leaves the meaning of operations to `metadata.memory`, and when which fault happens to
`tests.simulation.faults`.

Invariants: what a session tells its process runs in that process's context, whoever caused it;
delays, lost answers and stale reads are drawn from the seed; every change of a ledger's metadata is
seen by the checkers in the step in which it happens.
Source: protocol rule 1.3; assurance design.
"""

import asyncio
import random
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass

from typing_extensions import override

from metadata.codec import decode_ledger_metadata
from metadata.errors import NodeNotFoundError, OutcomeUnknownError, StoreUnavailableError
from metadata.ledger_metadata import LedgerMetadata
from metadata.memory import MemoryMetadataServer, MemoryMetadataStore
from metadata.memory_faults import StoreCall
from metadata.memory_tree import Change
from metadata.paths import LEDGERS, LEVEL_DIGITS
from metadata.store import SessionState
from tests.simulation.loop import NODE, simulation_loop

STALL_CHECK_S = 0.2


@dataclass(frozen=True, slots=True)
class StoreOdds:
    """How rough the metadata service is."""

    delay_s: float = 0.002
    slow_share: float = 0.0
    slow_delay_s: float = 2.0
    lost_share: float = 0.0
    """Of writes: those whose answer is lost."""
    refused_share: float = 0.0
    stale_share: float = 0.0
    stale_changes_max: int = 20
    watch_delay_s: float = 0.01
    slow_watch_share: float = 0.0


class SimulatedStoreFaults:
    """See `metadata.memory_faults.StoreFaults`."""

    def __init__(self, seed: int, odds: StoreOdds) -> None:
        self.odds = odds
        self.stalled_until_s = 0.0
        self.message_count = 0
        """Requests, answers and news."""
        self._rng = random.Random(f"store {seed}")

    async def before(self, call: StoreCall) -> None:
        """Take the time that a request takes, or refuse it."""
        self.message_count += 1
        await asyncio.sleep(self._delay_s())
        loop = asyncio.get_running_loop()
        while loop.time() < self.stalled_until_s:  # noqa: ASYNC110 - it may be put off again
            await asyncio.sleep(self.stalled_until_s - loop.time() + self._rng.random() * 0.1)
        if self._rng.random() < self.odds.refused_share:
            raise StoreUnavailableError("memory", "refused by the simulation")

    async def after(self, call: StoreCall) -> None:
        """Take the time that an answer takes, or lose it."""
        self.message_count += 1
        await asyncio.sleep(self._delay_s())
        if call.is_write and self._rng.random() < self.odds.lost_share:
            raise OutcomeUnknownError(call.path, "lost by the simulation")

    def missed_changes(self, call: StoreCall) -> int:
        """Draw how far behind the leader a read is."""
        if self._rng.random() < self.odds.stale_share:
            return self._rng.randint(1, self.odds.stale_changes_max)
        return 0

    def watch_delay_s(self, path: str) -> float:
        """Draw how long news is under way."""
        self.message_count += 1
        if self._rng.random() < self.odds.slow_watch_share:
            return self._rng.random() * self.odds.slow_delay_s
        return self._rng.random() * self.odds.watch_delay_s

    def _delay_s(self) -> float:
        draw = self._rng.random()
        if draw < self.odds.slow_share:
            return self._rng.random() * self.odds.slow_delay_s
        return self.odds.delay_s * (0.5 + draw)


class NodeStore(MemoryMetadataStore):
    """A session of one simulated process, made within it."""

    def __init__(self, server: MemoryMetadataServer, *, session_timeout_s: float) -> None:
        self._home = copy_context()
        self.node = self._home.get(NODE, 0)
        super().__init__(server, session_timeout_s=session_timeout_s)

    @override
    def notice(self, change: Change) -> None:
        self._at_home(lambda: MemoryMetadataStore.notice(self, change))

    @override
    def suspend(self) -> None:
        self._at_home(lambda: MemoryMetadataStore.suspend(self))

    @override
    def resume(self) -> None:
        self._at_home(lambda: MemoryMetadataStore.resume(self))

    @override
    def expire(self) -> None:
        self._at_home(lambda: MemoryMetadataStore.expire(self))

    def leave_behind(self, delay_s: float) -> None:
        """End the session of a process that was killed, once the service has missed it."""
        server, session_id = self._server, self.session_id
        loop = simulation_loop()
        loop.call_later(delay_s, server.end_session, session_id)

    @property
    def is_connected(self) -> bool:
        """Tell whether the session may be cut."""
        return self.session_state is SessionState.CONNECTED

    def _at_home(self, call: Callable[[], None]) -> None:
        if simulation_loop().is_alive(self.node):
            self._home.copy().run(call)


class LedgerNews:
    """Tells of every change of a ledger's stored metadata, in the step in which it happens."""

    def __init__(
        self,
        server: MemoryMetadataServer,
        on_change: Callable[[LedgerMetadata | None, LedgerMetadata | None], None],
    ) -> None:
        self._server = server
        self._on_change = on_change
        server.open_session(self)

    def notice(self, change: Change) -> None:
        """See `metadata.memory_server.Session`."""
        path = change.path
        if not path.startswith(LEDGERS) or path.count("/") != len(LEVEL_DIGITS) + 1:
            return
        try:
            now = decode_ledger_metadata(self._server.tree.get(path).value)
        except NodeNotFoundError:
            now = None
        before = None if change.before is None else decode_ledger_metadata(change.before.value)
        self._on_change(before, now)
