"""Faults that hit a coordinator in the middle of one piece of work, where chance rarely does.

Leaves the faults that come at any time to `topic_faults`.

- In the middle of the snapshot with which a coordinator begins a ledger, its broker dies, or no
  bookie takes its adds any more.
- While a coordinator loads a partition, the session of its broker lapses; then it serves.

Invariant: from `heal` on, there are no such faults.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, cast
from unittest.mock import patch

from broker_layer.log import state_log
from broker_layer.log.ledger_list import LedgerList
from broker_layer.log.settings.log_config import LogConfig
from broker_layer.log.state_loading import load_state
from broker_layer.log.state_log import StateLog
from ledger_client.writing.writer import LedgerWriter
from tests.simulation.network import HOST
from tests.simulation.topics.broker_nodes import BrokerNode
from tests.simulation.topics.topic_faults import TopicFaults

AFTER_LAPSE_S: Final = 4.0
"""Maximum time for which a load goes on after its session has lapsed."""


class MidwayFaults:
    """The faults of one run; none before `begin`."""

    def __init__(self, seed: int, share: float) -> None:
        self._rng = random.Random(f"midway faults {seed}")
        self._share = share
        self._faults: TopicFaults | None = None

    def begin(self, faults: TopicFaults) -> None:
        """Begin to hit coordinators, by means of other faults."""
        self._faults = faults

    def heal(self) -> None:
        """End these faults."""
        self._faults = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Follow what coordinators write and load."""
        fill, load = StateLog._fill, load_state

        async def begin_ledger(log: StateLog, writer: LedgerWriter) -> None:
            if self._is_due():
                writer = cast("LedgerWriter", _TornWriter(writer, self._rng, self._cut_off))
            await fill(log, writer)

        async def load_slowly(
            ledgers: LedgerList, each: Callable[[bytes], None], config: LogConfig
        ) -> bool:
            is_whole = await load(ledgers, each, config)
            if self._is_due():
                await self._lapse()
            return is_whole

        with (
            patch.object(StateLog, "_fill", begin_ledger),
            patch.object(state_log, "load_state", load_slowly),
        ):
            yield

    def _is_due(self) -> bool:
        return self._faults is not None and self._rng.random() < self._share

    async def _cut_off(self) -> None:
        """Kill the broker that runs now, or cut it off from all bookies."""
        if self._faults is not None:
            self._faults.cut_off_midway(_broker_of(self._faults))
            await asyncio.sleep(0)  # the process may be dead now

    async def _lapse(self) -> None:
        """Let the session of the broker that runs now lapse, and go on later."""
        assert self._faults is not None
        faults, broker = self._faults, _broker_of(self._faults)
        session_s = broker.topics.topics_plan.base.session_timeout_s
        faults.suspend_midway(broker, 2 * session_s + AFTER_LAPSE_S)
        await asyncio.sleep(session_s + AFTER_LAPSE_S * self._rng.random())


def _broker_of(faults: TopicFaults) -> BrokerNode:
    """Return the broker whose process runs now."""
    return next(each for each in faults.brokers if each.host == HOST.get())


class _TornWriter:
    """Writer that writes the first entries, and then is hit by a fault."""

    def __init__(
        self, writer: LedgerWriter, rng: random.Random, hit: Callable[[], Awaitable[None]]
    ) -> None:
        self._writer = writer
        self._rng = rng
        self._hit = hit

    async def append_many(self, entries: Iterable[bytes]) -> object:
        """See `LedgerWriter.append_many`."""
        given = list(entries)
        first = self._rng.randint(1, len(given))
        await self._writer.append_many(given[:first])
        await self._hit()
        return await self._writer.append_many(given[first:])
