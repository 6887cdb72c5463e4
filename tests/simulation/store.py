"""Metadata service of a simulation: sessions of nodes, faults, and watch events.

Leaves the meaning of operations to `metadata.store.memory`, and the times of faults to
`tests.simulation.faults`.

Invariants: a session calls its process in that process's context, whichever process caused the
event. The seed draws delays, lost answers, lost events and stale reads. A watch event is lost only
together with its connection, and every watch calls back after a reconnection, as with ZooKeeper.
The checkers see every change of a ledger's metadata in the step in which it happens.
Source: protocol rule 1.3; `MetadataStore.watch_value`; assurance design.
"""

import asyncio
import random
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from metadata.errors import NodeNotFoundError, OutcomeUnknownError, StoreUnavailableError
from metadata.ledgers.codec import decode_ledger_metadata
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.paths import LEDGERS, LEVEL_DIGITS
from metadata.store.interface import SessionState
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from metadata.store.memory_faults import StoreCall
from metadata.store.memory_tree import NodeChange
from tests.simulation.availability.decision import FaultTime, session_of
from tests.simulation.availability.fault_history import FaultHistory
from tests.simulation.loop import NODE, simulation_loop
from tests.simulation.network import HOST

REPLACED_STEP_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class StoreOdds:
    """Delays and fault rates of the metadata service."""

    delay_s: float = 0.002
    slow_share: float = 0.0
    slow_delay_s: float = 2.0
    lost_share: float = 0.0
    """Share of writes whose answer is lost."""
    refused_share: float = 0.0
    stale_share: float = 0.0
    stale_changes_max: int = 20
    watch_delay_s: float = 0.01
    slow_watch_share: float = 0.0
    lost_watch_share: float = 0.0
    """Share of watch events that never arrive, because their connection breaks instead."""
    reconnect_delay_s_max: float = 0.1
    """Time until a session with such a broken connection reconnects; it may expire before."""


class SimulatedStoreFaults:
    """See `metadata.store.memory_faults.StoreFaults`."""

    def __init__(self, seed: int, odds: StoreOdds, history: FaultHistory | None = None) -> None:
        self.odds = odds
        self.history = history or FaultHistory(lambda: simulation_loop().now_s)
        self.stalled_until_s = 0.0
        self.message_count = 0
        """Number of requests, answers and watch events."""
        self.lost_watch_count = 0
        self.behind: dict[int, Callable[[], int]] = {}
        """By session: number of changes that its server's leader, which was replaced, missed."""
        self.behind_until_s = -1.0
        """Time when a session last left the server of a leader that was replaced."""
        self._rng = random.Random(f"store {seed}")

    def may_have_missed_changes(self, since_s: float) -> bool:
        """Return whether an agreed read may have come from a replaced leader since this time."""
        return bool(self.behind) or self.behind_until_s >= since_s

    async def before(self, call: StoreCall) -> None:
        """Wait for the delay of a request, or refuse it."""
        self.message_count += 1
        await asyncio.sleep(self._delay_s())
        loop = simulation_loop()
        while loop.now_s < self.stalled_until_s:  # noqa: ASYNC110 - it may be put off again
            await asyncio.sleep(self.stalled_until_s - loop.now_s + self._rng.random() * 0.1)
        if self._rng.random() < self.odds.refused_share:
            self.history.add(session_of(HOST.get()))
            raise StoreUnavailableError("memory", "refused by the simulation")
        if call.session_id in self.behind and (call.is_write or call.is_agreed):
            while call.session_id in self.behind:  # noqa: ASYNC110
                await asyncio.sleep(REPLACED_STEP_S)
            if call.is_write:
                raise OutcomeUnknownError(call.path, "the leader was replaced")

    async def after(self, call: StoreCall) -> None:
        """Wait for the delay of an answer, or lose it."""
        self.message_count += 1
        await asyncio.sleep(self._delay_s())
        if call.is_write and self._rng.random() < self.odds.lost_share:
            self.history.add(session_of(HOST.get()))
            raise OutcomeUnknownError(call.path, "lost by the simulation")

    def missed_changes(self, call: StoreCall) -> int:
        """Draw how many changes a read is behind the leader."""
        if call.session_id in self.behind:
            return self.behind[call.session_id]()
        if call.is_fresh:
            return 0
        if self._rng.random() < self.odds.stale_share:
            return self._rng.randint(1, self.odds.stale_changes_max)
        return 0

    def watch_delay_s(self, path: str) -> float:
        """Draw the delay of a watch event."""
        self.message_count += 1
        if self._rng.random() < self.odds.slow_watch_share:
            return self._slow_s()
        return self._rng.random() * self.odds.watch_delay_s

    def loses_watch(self) -> bool:
        """Draw whether the connection breaks before a watch event arrives."""
        return self._rng.random() < self.odds.lost_watch_share

    def reconnect_delay_s(self) -> float:
        """Draw how long a broken connection is missing."""
        self.lost_watch_count += 1
        return self._rng.random() * self.odds.reconnect_delay_s_max

    def _delay_s(self) -> float:
        draw = self._rng.random()
        if draw < self.odds.slow_share:
            return self._slow_s()
        return self.odds.delay_s * (0.5 + draw)

    def _slow_s(self) -> float:
        delay_s = self._rng.random() * self.odds.slow_delay_s
        self.history.note_delay(session_of(HOST.get()), delay_s)
        return delay_s


class NodeStore(MemoryMetadataStore):
    """Session of one simulated process, made within it."""

    def __init__(
        self,
        server: MemoryMetadataServer,
        faults: SimulatedStoreFaults,
        *,
        session_timeout_s: float,
    ) -> None:
        self._faults = faults
        self._home = copy_context()
        self.node = self._home.get(NODE, 0)
        self._connection = 0
        """Number of breaks: an event in flight on an earlier connection never arrives."""
        self._session_name = session_of(self._home.get(HOST, "outside"))
        self._break: FaultTime | None = None
        self._lag: FaultTime | None = None
        super().__init__(server, session_timeout_s=session_timeout_s)

    def follow_replaced_leader(self) -> None:
        """Be connected, from now on, to a server whose leader is replaced now, and does not know
        it: reads miss later changes, writes have no answer, and watches do not fire.
        """
        tree, since = self._tree, self._tree.change_count
        self._faults.behind[self.session_id] = lambda: tree.change_count - since
        self._faults.history.end(self._lag)
        self._lag = self._faults.history.begin(self._session_name)

    @property
    def is_behind(self) -> bool:
        """Return whether its server's leader was replaced, so that fresh reads miss changes."""
        return self.session_id in self._faults.behind

    def leave_replaced_leader(self) -> None:
        """Lose the connection, because the leader has learned that it was replaced."""
        self._faults.history.end(self._lag)
        if self._faults.behind.pop(self.session_id, None) is None:
            return
        self._faults.behind_until_s = simulation_loop().now_s
        if self.is_connected:
            self._lose()

    @override
    def notice(self, change: NodeChange) -> None:
        if self.is_behind:
            return
        self._at_home(lambda: MemoryMetadataStore.notice(self, change))

    @override
    def suspend(self) -> None:
        if self.is_connected:
            self._connection += 1
            self._break = self._faults.history.begin(self._session_name)
        self._at_home(lambda: MemoryMetadataStore.suspend(self))

    @override
    def resume(self) -> None:
        self._faults.history.end(self._break)
        if not self.is_behind:
            self._faults.history.end(self._lag)
        self._at_home(lambda: MemoryMetadataStore.resume(self))

    @override
    def expire(self) -> None:
        self._at_home(lambda: MemoryMetadataStore.expire(self))

    def leave_behind(self, delay_s: float) -> None:
        """End the session of a killed process, after the service noticed its absence."""
        server, session_id = self._server, self.session_id
        self._end_faults()
        loop = simulation_loop()
        loop.call_later(delay_s, server.end_session, session_id)

    @override
    async def aclose(self) -> None:
        self._end_faults()
        await super().aclose()

    def _end_faults(self) -> None:
        self._faults.history.end(self._break)
        self._faults.history.end(self._lag)

    @property
    def is_connected(self) -> bool:
        """Return whether the session may be cut."""
        return self.session_state is SessionState.CONNECTED

    @override
    def _call_back(self, number: int, change: NodeChange | None = None) -> None:
        delay_s = self._faults.watch_delay_s(self._watches[number].path)
        if change is not None:
            break_off = self._faults.loses_watch()
            self._bring(number, change.number, delay_s, instead=self._lose if break_off else None)
            return
        self._bring(number, 0, delay_s)
        # The session reconnected to a server that may lag: when it is notified of missed changes,
        # it may
        # read an older state once more. A watch set there fires when that server has caught up.
        late_s = self._faults.watch_delay_s(self._watches[number].path)
        self._bring(number, self._tree.change_count, delay_s + late_s)

    def _bring(
        self, number: int, seen: int, delay_s: float, *, instead: Callable[[], None] | None = None
    ) -> None:
        """Let a watch call back later, unless the connection has changed by then."""
        connection = self._connection

        def deliver() -> None:
            watch = self._watches.get(number)
            if watch is None or self._connection != connection:
                return
            if instead is not None:
                instead()
                return
            # a process that is notified of a change also reads it
            self._seen = max(self._seen, seen)
            watch.callback()

        simulation_loop().call_later(delay_s, deliver)

    def _lose(self) -> None:
        """Lose the connection and all events in flight; reconnect later."""
        self.suspend()
        simulation_loop().call_later(self._faults.reconnect_delay_s(), self.resume)

    def _at_home(self, call: Callable[[], None]) -> None:
        if simulation_loop().is_alive(self.node):
            self._home.copy().run(call)


class LedgerNews:
    """Reports every change of a ledger's stored metadata, in the step in which it happens."""

    def __init__(
        self,
        server: MemoryMetadataServer,
        on_change: Callable[[LedgerMetadata | None, LedgerMetadata | None], None],
    ) -> None:
        self._server = server
        self._on_change = on_change
        server.open_session(self)

    def notice(self, change: NodeChange) -> None:
        """See `metadata.store.memory_server.Session`."""
        path = change.path
        if not path.startswith(LEDGERS) or path.count("/") != len(LEVEL_DIGITS) + 1:
            return
        try:
            now = decode_ledger_metadata(self._server.tree.get(path).value)
        except NodeNotFoundError:
            now = None
        before = None if change.before is None else decode_ledger_metadata(change.before.value)
        self._on_change(before, now)
