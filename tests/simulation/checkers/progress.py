"""Check after healing: a writer, its tailing reader and a recovery continue after a bookie dies.

A hang is found only here: during faults, a deadline turns it into an error that a run allows.

Source: protocol rules 4.6, 5.1-5.7, 7.4, 8.4; invariants "every recovery ends", "every writer with
enough bookies progresses", "every tailer reaches LAC".
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ledger_client import LedgerClient, LedgerWriter, Quorum
from ledger_client.handle import AwaitableHandle
from tests.simulation.checkers.wholeness import RETURN_S
from tests.simulation.cluster import Cluster
from tests.simulation.model import LedgerModel
from tests.simulation.nodes import BookieNode
from tests.simulation.workloads import follow, read_all, recover

NAME: Final = "progress"
PROGRESS_S: Final = 60.0
"""More than the sum of all timeouts that one dead bookie may cause."""
SETTLE_S: Final = 5.0
"""Time after a bookie returned: more than a client waits before it connects again."""
ENTRIES: Final = 4
SURVIVABLE_ACK_MIN: Final = 2
CATCH_UP_S: Final = 15.0
"""More than the time to notice a missing member and copy a few entries to another."""


class ProgressCheck:
    """One ledger that is written and followed, and one that is abandoned and recovered."""

    def __init__(
        self,
        cluster: Cluster,
        client: LedgerClient,
        rng: random.Random,
        quorum: Quorum,
        *,
        has_spare: bool,
        is_sound: bool,
    ) -> None:
        """Start without ledgers; `is_sound` says that every bookie accepts all requests."""
        self._cluster = cluster
        self._client = client
        self._rng = rng
        self._quorum = quorum
        self._can_lose_one = _can_lose_one(cluster, quorum, has_spare=has_spare)
        # A bookie that may have lost fences refuses adds, and a delayed change omits its copies.
        self._wants_all_copies = is_sound and not cluster.plan.config.delay_ensemble_change
        self._seen = -1

    async def run(self) -> None:
        """Run all checks. Raises LedgerError for failures that may be retried."""
        await self._write_and_follow()
        if self._can_lose_one:
            await self._leave_and_recover()

    async def _write_and_follow(self) -> None:
        self._seen = -1
        dead: list[BookieNode] = []
        tail: asyncio.Task[None] | None = None
        try:
            async with self._create() as writer:
                ledger = self._adopt(writer)
                follows = follow(self._cluster, self._client, ledger, 0, self._note_seen)
                tail = asyncio.create_task(follows)
                await self._append(ledger, writer, dead)
                if self._wants_all_copies:
                    await self._in_time("the entries on all of their write set", writer, self._full)
                await self._in_time("the tailing reader at the LAC", writer, self._caught_up)
                if self._can_lose_one and await self._is_ready_to_lose_one(writer):
                    await self._append(ledger, writer, dead, kills=True)
                    await self._in_time(
                        "the tailing reader behind a change", writer, self._caught_up
                    )
            async with asyncio.timeout(PROGRESS_S):
                await tail
        except TimeoutError as error:
            self._report(f"it did not come to its end: {error!r}")
        finally:
            if tail is not None:
                tail.cancel()
                await asyncio.gather(tail, return_exceptions=True)
            await self._revive(dead)

    async def _leave_and_recover(self) -> None:
        dead: list[BookieNode] = []
        writer = await self._create()
        ledger = self._adopt(writer)
        try:
            async with asyncio.timeout(PROGRESS_S):
                await self._append(ledger, writer, dead)
            if not await self._is_ready_to_lose_one(writer):
                return
            async with asyncio.timeout(PROGRESS_S):
                dead.append(self._kill_member(writer))
                await recover(self._cluster, self._client, ledger, 2 * PROGRESS_S)
                count = await read_all(self._cluster, self._client, ledger)
            if ledger.closed_at is None or count != ledger.closed_at + 1:
                self._report(f"{count} entries were read behind a recovery at {ledger.closed_at}")
        except TimeoutError as error:
            self._report(f"a recovery without one bookie did not end: {error!r}")
        finally:
            await self._revive(dead)

    def _create(self) -> AwaitableHandle[LedgerWriter]:
        password = self._cluster.plan.workload.password
        return self._client.create_ledger(self._quorum, password=password)

    def _adopt(self, writer: LedgerWriter) -> LedgerModel:
        ledger = self._cluster.model.ledger(writer.id)
        ledger.writer = writer
        return ledger

    def _note_seen(self, entry_id: int) -> None:
        self._seen = entry_id

    async def _append(
        self,
        ledger: LedgerModel,
        writer: LedgerWriter,
        dead: list[BookieNode],
        *,
        kills: bool = False,
    ) -> None:
        """Append some entries; with half of them pending, kill a bookie of the ensemble."""
        handles: list[tuple[int, asyncio.Future[int]]] = []
        for number in range(ENTRIES):
            if kills and number == ENTRIES // 2:
                await asyncio.sleep(self._rng.choice((0.0, 0.001, 0.01)))
                dead.append(self._kill_member(writer))
            expected = writer.last_pushed + 1
            payload = b"after healing %d of ledger %d" % (expected, ledger.ledger_id)
            ledger.payloads[expected] = payload
            handles.append((expected, writer.append_nowait(payload)))
        async with asyncio.timeout(PROGRESS_S):
            for expected, handle in handles:
                self._cluster.note_confirmed(ledger, await handle, expected)

    async def _in_time(
        self, what: str, writer: LedgerWriter, reach: Callable[[LedgerWriter], Awaitable[None]]
    ) -> None:
        try:
            async with asyncio.timeout(PROGRESS_S):
                await reach(writer)
        except TimeoutError as error:
            self._report(f"{what}: not within {PROGRESS_S} s: {error!r}")

    async def _full(self, writer: LedgerWriter) -> None:
        await writer.wait_fully_replicated(writer.last_pushed, timeout=PROGRESS_S)

    async def _caught_up(self, writer: LedgerWriter) -> None:
        while self._seen < writer.last_confirmed:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.1)

    async def _is_ready_to_lose_one(self, writer: LedgerWriter) -> bool:
        """Wait until the ledger can continue without any one of its members; return whether it can.

        `wholeness` demands that it is complete some time after healing.
        """
        quorum = self._quorum
        return await self._cluster.wait_until(
            lambda: all(
                gets_on_without(quorum, writer.in_sync, each)
                for each in writer.info.fragments[-1].ensemble
            ),
            RETURN_S,
        )

    def _kill_member(self, writer: LedgerWriter) -> BookieNode:
        members = writer.info.fragments[-1].ensemble
        up = [each for each in self._cluster.bookies if each.bookie_id in members]
        bookie = self._rng.choice(up)
        bookie.kill(power_off=self._rng.random() < 0.5)
        self._wants_all_copies = False  # the next ledger may name it before it has returned
        bookie.is_on_purpose = True
        return bookie

    async def _revive(self, dead: list[BookieNode]) -> None:
        for bookie in dead:
            bookie.is_on_purpose = False
            bookie.start()
        is_up = await self._cluster.wait_until(
            lambda: all(each.is_serving for each in dead), PROGRESS_S
        )
        if dead:
            await asyncio.sleep(SETTLE_S)
        if not is_up:
            self._report(f"{[each.host for each in dead]} did not start again")

    def _report(self, text: str) -> None:
        self._cluster.model.report(NAME, f"{self._quorum}: {text}")


def gets_on_without(quorum: Quorum, in_sync: Sequence[str], bookie_id: str | None) -> bool:
    """Return whether enough members of an in-sync ledger are in sync without a bookie.

    Otherwise appends wait for that bookie, and a recovery cannot find the end of the ledger.
    """
    if not quorum.spec.is_in_sync:
        return True
    others = [each for each in in_sync if each != bookie_id]
    return len(others) >= min(quorum.min_in_sync, quorum.ensemble - 1)


def _can_lose_one(cluster: Cluster, quorum: Quorum, *, has_spare: bool) -> bool:
    """Return whether losing one bookie loses no entry, and appends continue in time."""
    if not quorum.spec.is_in_sync:
        # With a lower ack quorum, an entry may be on the dead bookie alone.
        return has_spare and quorum.ack >= SURVIVABLE_ACK_MIN
    if quorum.min_in_sync < quorum.ensemble:
        return True
    # Pending appends wait until a spare has caught up.
    config = cluster.plan.config
    is_patient = config.append_deadline_s > config.spare_after_s + CATCH_UP_S
    return has_spare and is_patient and quorum.ensemble >= SURVIVABLE_ACK_MIN
