"""Fault: an operator who does not reach the last members of an in-sync ledger closes it uncleanly.

The writer may reach them, and goes on. Leaves the times to `tests.simulation.faults`, and what is
stored to `tests.simulation.checkers.stored_metadata`.

Invariants: no fragment is given up that names a member which the operator reached all the time,
except a last one of which nothing was confirmed, with the one before it. A writer that
reaches the metadata service confirms nothing some time after the close.
Source: protocol rules 11.6, 11.7; docs/in-sync.md, "When a writer learns of a close".
"""

import asyncio
import random
from typing import Final

from ledger_client import LedgerClient, LedgerError, RecoveryUndecidedError
from metadata.ledgers.ledger_metadata import LedgerState
from tests.simulation.cluster import Cluster
from tests.simulation.model import LedgerModel
from tests.simulation.nodes import BookieNode, ClientNode
from tests.simulation.observing import note_error

NAME: Final = "unclean"
LOOK_EVERY_S: Final = 0.05
RECOVERY_S: Final = 40.0
LEARNS_S: Final = 10.0
"""More than a connected writer needs to learn of a close, apart from slow answers."""
HIDDEN_S: Final = (0.5, 5.0, 30.0)
HIDES_ALL_SHARE: Final = 0.8
SHRINKS_SHARE: Final = 0.7
LEAVES_S: Final = 10.0
"""More than a member that does not answer needs to leave."""
GIVES_UP_ALL_SHARE: Final = 0.5


class UncleanCloses:
    """Unclean recoveries of one run, during its faults."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._count = 0
        self._cuts: list[tuple[str, str]] = []
        self._takers: list[ClientNode] = []

    def heal(self) -> None:
        """End all operators, and connect what they did not reach."""
        for taker in self._takers:
            taker.kill(power_off=False)
        for source, target in self._cuts:
            self._cluster.network.heal(source, target)
        self._cuts.clear()

    async def close(self) -> None:
        """Close a ledger that is being written, and watch its writer."""
        ledger = self._choose()
        if ledger is None:
            return
        before = len(self._cuts)
        try:
            await self._close(ledger)
        finally:
            cuts, self._cuts = self._cuts[before:], self._cuts[:before]
            for source, target in cuts:
                self._cluster.network.heal(source, target)

    async def _close(self, ledger: LedgerModel) -> None:
        if self._rng.random() < SHRINKS_SHARE:
            await self._make_member_leave(ledger)
        if ledger.is_closed:
            return
        members = self._members(ledger)
        if self._rng.random() >= HIDES_ALL_SHARE:
            members = self._rng.sample(members, self._rng.randint(0, len(members)))
        taker = self._taker(ledger)
        self._cut(taker, members)
        taker.start()
        await self._watch_operator(ledger, taker)
        await self._watch_writer(ledger, self._rng.choice(HIDDEN_S))

    def _members(self, ledger: LedgerModel) -> list[str]:
        if ledger.metadata is None:
            return []
        return [str(bookie) for bookie in ledger.metadata.last_fragment.ensemble]

    def _cut(self, client: ClientNode, members: list[str]) -> None:
        for bookie in self._cluster.bookies:
            if bookie.bookie_id in members:
                for pair in ((bookie.host, client.host), (client.host, bookie.host)):
                    self._cluster.network.cut(*pair)
                    self._cuts.append(pair)

    async def _make_member_leave(self, ledger: LedgerModel) -> None:
        """Cut a member off from the writer until it has left, so that it lacks new entries."""
        members, writer = self._members(ledger), self._writer_of(ledger)
        if len(members) < 2 or writer is None:
            return
        left = self._rng.choice(members)
        self._cut(writer, [left])
        await self._cluster.wait_until(lambda: left not in self._members(ledger), LEAVES_S)
        await asyncio.sleep(self._rng.random())

    def _writer_of(self, ledger: LedgerModel) -> ClientNode | None:
        host = self._cluster.live_ledgers.get(ledger.ledger_id)
        return next((client for client in self._cluster.clients if client.host == host), None)

    def _choose(self) -> LedgerModel | None:
        """Choose an in-sync ledger that is written, if possible one that can lose a member."""
        ledgers = [self._cluster.model.ledger(ledger) for ledger in self._cluster.live_ledgers]
        found = [
            ledger for ledger in ledgers if ledger.metadata and ledger.metadata.quorum.is_in_sync
        ]
        shrinking = [model for model in found if self._can_shrink(model)]
        return self._rng.choice(shrinking or found) if found else None

    def _can_shrink(self, ledger: LedgerModel) -> bool:
        metadata = ledger.metadata
        return metadata is not None and len(self._members(ledger)) > metadata.quorum.min_in_sync

    def _taker(self, ledger: LedgerModel) -> ClientNode:
        gives_up_all = self._rng.random() < GIVES_UP_ALL_SHARE
        password = self._cluster.plan.workload.password

        async def work(node: ClientNode, client: LedgerClient, _: random.Random) -> None:
            try:
                info = await client.recover_ledger_unclean(
                    ledger.ledger_id,
                    password=password,
                    timeout=RECOVERY_S,
                    gives_up_all=gives_up_all,
                    even_if_writer_lives=True,
                )
                node.cluster.model.note("unclean", f"ledger {ledger.ledger_id}: {info}")
                await client.wait_for_fences(ledger.ledger_id)
            except RecoveryUndecidedError:
                return
            except LedgerError as error:
                note_error(node.cluster, "close uncleanly", error)

        self._count += 1
        taker = ClientNode(self._cluster, f"operator-{self._count}", work)
        taker.is_on_purpose = True
        self._takers.append(taker)
        return taker

    async def _watch_operator(self, ledger: LedgerModel, taker: ClientNode) -> None:
        """Wait for the close; report a fragment that should not have been given up."""
        steady = {bookie.host: bookie for bookie in self._cluster.bookies}
        deadline_s = self._cluster.loop.now_s + RECOVERY_S
        while taker.is_running and self._cluster.loop.now_s < deadline_s:
            steady = {h: node for h, node in steady.items() if self._is_reached(node, taker)}
            metadata = ledger.metadata
            if metadata is None or metadata.state is LedgerState.CLOSED:
                break
            await asyncio.sleep(LOOK_EVERY_S)
        metadata = ledger.metadata
        if metadata is None or self._cluster.plan.network.slow_share:
            return  # an answer may come too late
        ids = [node.bookie_id for node in steady.values()]
        parts = metadata.given_up
        if len(parts) > 1 and ledger.confirmed < parts[-1].first_entry_id:
            parts = parts[:-1]  # its members may answer that they have nothing of it
        for part in parts:
            asked = [bookie for bookie in part.ensemble if bookie in ids]
            if asked:
                self._report(f"ledger {ledger.ledger_id} gave up {part}; {asked} could be asked")

    def _is_reached(self, bookie: BookieNode, taker: ClientNode) -> bool:
        cluster, faults = self._cluster, bookie.disk_faults
        connections = cluster.network.connections()
        is_stalled = any(
            connection.stalled_until_s > cluster.loop.now_s for connection in connections
        )
        is_cut = cluster.network.is_cut(bookie.host, taker.host) or cluster.network.is_cut(
            taker.host, bookie.host
        )
        has_quick_disk = faults.delay_s_max <= cluster.plan.disk_delay_s and faults.paused is None
        has_room = faults.capacity_bytes == 2**40
        is_up = bookie.is_registered and not bookie.is_paused
        is_sound = bookie.bookie_id is not None and cluster.is_sound(bookie.bookie_id)
        return is_sound and is_up and not (is_cut or is_stalled) and has_quick_disk and has_room

    async def _watch_writer(self, ledger: LedgerModel, seconds: float) -> None:
        """Report a writer that confirms entries although it had time to learn of the close."""
        cluster, store = self._cluster, self._cluster.plan.store
        enough_s = LEARNS_S + store.watch_delay_s + 4 * store.slow_delay_s
        node = self._writer_of(ledger)
        until_s = cluster.loop.now_s + max(seconds, 2 * enough_s)
        lac, connected_s = ledger.confirmed, 0.0
        while node is not None and cluster.loop.now_s < until_s:
            await asyncio.sleep(LOOK_EVERY_S)
            metadata = ledger.metadata
            if metadata is None or not metadata.given_up:
                return
            connected_s = connected_s + LOOK_EVERY_S if self._hears_news(node) else 0.0
            if ledger.confirmed > lac and connected_s > enough_s:
                self._report(
                    f"ledger {ledger.ledger_id} was closed uncleanly at {ledger.closed_at}, and its"
                    f" writer confirms {ledger.confirmed} with a connection of {connected_s:.1f} s"
                )
                return
            lac = max(lac, ledger.confirmed)

    def _hears_news(self, node: ClientNode) -> bool:
        faults = self._cluster.store_faults
        is_served = faults.stalled_until_s < self._cluster.loop.now_s and not faults.behind
        store = node.store
        return is_served and not node.is_paused and store is not None and store.is_connected

    def _report(self, text: str) -> None:
        self._cluster.model.report(NAME, text)
