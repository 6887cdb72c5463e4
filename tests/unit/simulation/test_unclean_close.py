"""Simulated clusters in which an operator closes a ledger uncleanly that a healthy writer writes.

The operator reaches member A only, and the writer reaches member B only (rules 11.6 and 11.7).
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import pytest

from ledger_client import (
    ClientConfig,
    LedgerClient,
    LedgerError,
    LedgerFencedError,
    LedgerInfo,
    LedgerWriter,
    Quorum,
)
from ledger_client.recovery.unclean_recovery import FENCE_FOR_S
from metadata.store.interface import SessionState
from tests.simulation.cluster import Cluster
from tests.simulation.loop import SimulationLoop
from tests.simulation.model import Model
from tests.simulation.network import NetworkOdds
from tests.simulation.nodes import ClientNode
from tests.simulation.plan import make_plan
from tests.simulation.run import forget
from tests.simulation.store import StoreOdds

LEARNED_WITHIN_S = 1.0
"""Time in which a writer with few ledgers learns of the close (docs/in-sync.md)."""
APPEND_EVERY_S = 0.25
LONG_S = 30.0


@dataclass(slots=True)
class Setting:
    """One cluster, its writer and its operator."""

    cluster: Cluster
    writer: ClientNode
    operator: ClientNode
    handle: LedgerWriter | None = None
    confirmed_at_s: list[float] = field(default_factory=list)
    error: LedgerError | None = None
    closed: LedgerInfo | None = None
    closed_at_s: float = 0.0
    not_fenced: tuple[str, ...] | None = None

    def cut(self, client: ClientNode, bookie_id: str) -> None:
        for source, target in self._ways(client, bookie_id):
            self.cluster.network.cut(source, target)

    def heal(self, client: ClientNode, bookie_id: str) -> None:
        for source, target in self._ways(client, bookie_id):
            self.cluster.network.heal(source, target)

    def _ways(self, client: ClientNode, bookie_id: str) -> list[tuple[str, str]]:
        host = next(b.host for b in self.cluster.bookies if b.bookie_id == bookie_id)
        return [(client.host, host), (host, client.host)]

    def confirmed_after(self, time_s: float) -> int:
        return len([each for each in self.confirmed_at_s if each > time_s])

    async def wait(self, is_so: Callable[[], bool]) -> None:
        assert await self.cluster.wait_until(is_so, 2 * FENCE_FOR_S)


PLAN = replace(
    make_plan(7),
    bookie_count=2,
    bookies_per_host=1,
    fault_every_s={},
    network=NetworkOdds(),
    store=StoreOdds(),
    config=ClientConfig(spare_after_s=1000.0),
)


def play(story: Callable[[Setting, str], Awaitable[None]]) -> Setting:
    """Write until only B is a member; then run the story, in which the ledger is closed."""
    loop = SimulationLoop(1)
    settings: list[Setting] = []

    async def write(_: ClientNode, client: LedgerClient, _rng: random.Random) -> None:
        setting = settings[0]
        writer = setting.handle = await client.create_ledger(Quorum.in_sync(2, 1))
        await writer.append_many([b"on both"] * 10)
        setting.cut(setting.writer, writer.members[0])
        try:
            while True:
                await writer.append(b"on B alone")
                setting.confirmed_at_s.append(loop.now_s)
                await asyncio.sleep(APPEND_EVERY_S)
        except LedgerError as error:
            setting.error = error
        await asyncio.Event().wait()  # a client that ends would be started again

    async def recover(_: ClientNode, client: LedgerClient, _rng: random.Random) -> None:
        setting = settings[0]
        assert setting.handle is not None
        setting.closed = await client.recover_ledger_unclean(
            setting.handle.id, even_if_writer_lives=True
        )
        setting.closed_at_s = loop.now_s
        setting.not_fenced = await client.wait_for_fences(setting.handle.id)
        await asyncio.Event().wait()

    async def main() -> None:
        cluster = Cluster(loop, PLAN, Model(loop))
        writer, operator = ClientNode(cluster, "w", write), ClientNode(cluster, "o", recover)
        setting = Setting(cluster, writer, operator)
        settings.append(setting)
        for bookie in cluster.bookies:
            bookie.start()
        await setting.wait(lambda: all(b.is_serving for b in cluster.bookies))
        writer.start()
        await setting.wait(lambda: len(setting.confirmed_at_s) > 5)
        assert setting.handle is not None
        (only,) = setting.handle.members
        setting.cut(operator, only)
        operator.start()
        await story(setting, only)

    try:
        loop.run_until_complete(asyncio.wait_for(main(), 1000.0))
    finally:
        forget(loop)
    (setting,) = settings
    assert setting.closed is not None
    assert setting.closed.last_entry_id == 9
    return setting


def test_writer_that_reaches_the_metadata_service_learns_of_an_unclean_close() -> None:
    async def story(setting: Setting, _: str) -> None:
        await setting.wait(lambda: setting.closed is not None)
        await asyncio.sleep(LONG_S)

    setting = play(story)

    assert setting.confirmed_after(setting.closed_at_s + LEARNED_WITHIN_S) == 0
    assert isinstance(setting.error, LedgerFencedError)


def test_unclean_recovery_fences_the_members_that_return_after_the_close() -> None:
    """Test that a writer without the metadata service ends, once the operator reaches B."""
    healed_at_s: list[float] = []

    async def story(setting: Setting, only: str) -> None:
        store = setting.writer.store
        assert store is not None
        store.suspend()
        await setting.wait(lambda: setting.closed is not None)
        await asyncio.sleep(LONG_S)
        assert store.session_state is not SessionState.CONNECTED
        assert setting.confirmed_after(setting.closed_at_s) > 50  # nothing can tell it
        setting.heal(setting.operator, only)
        healed_at_s.append(setting.cluster.loop.now_s)
        await setting.wait(lambda: setting.not_fenced is not None)
        await asyncio.sleep(LONG_S)

    setting = play(story)

    assert setting.not_fenced == ()
    assert setting.confirmed_after(healed_at_s[0] + 10.0) == 0


def test_members_that_stay_away_are_named_when_the_time_is_up() -> None:
    async def story(setting: Setting, only: str) -> None:
        await setting.wait(lambda: setting.not_fenced is not None)
        assert setting.not_fenced == (only,)
        now_s = setting.cluster.loop.now_s
        assert now_s == pytest.approx(setting.closed_at_s + FENCE_FOR_S, abs=5.0)

    play(story)
