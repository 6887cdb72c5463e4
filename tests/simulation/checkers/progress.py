"""Checks after healing that ledgers get on: they take appends, regain their members, and end."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from typing_extensions import override

from ledger_client import LedgerClient, LedgerWriter, Quorum, RecoveryUndecidedError
from ledger_client.handle import AwaitableHandle
from tests.simulation.cluster import Cluster
from tests.simulation.disk import Platter
from tests.simulation.model import LedgerModel
from tests.simulation.nodes import BookieNode
from tests.simulation.workloads import follow, read_all, recover
from tests.simulation.writing import RETURN_S, see_members_return

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
    """A writer, its tailing reader and a recovery continue after a bookie dies.

    A hang is found only here: during faults, a deadline turns it into an error that a run allows.

    Source: protocol rules 4.6, 5.1-5.7, 7.4, 8.4; invariants "every recovery ends", "every writer
    with enough bookies progresses", "every tailer reaches LAC".
    """

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

        `see_members_return` demands that it is complete some time after healing.
        """
        quorum = self._quorum
        return await self._cluster.wait_until(
            lambda: all(
                gets_on_without(quorum, writer.in_sync, bookie)
                for bookie in writer.info.fragments[-1].ensemble
            ),
            RETURN_S,
        )

    def _kill_member(self, writer: LedgerWriter) -> BookieNode:
        members = writer.info.fragments[-1].ensemble
        up = [node for node in self._cluster.bookies if node.bookie_id in members]
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
            lambda: all(node.is_serving for node in dead), PROGRESS_S
        )
        if dead:
            await asyncio.sleep(SETTLE_S)
        if not is_up:
            self._report(f"{[node.host for node in dead]} did not start again")

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


AWAY_S: Final = (0.0, 0.5, 20.0)
"""Time that a bookie stays dead: short, or until a spare replaced it if there is one."""


class ReturnCheck(ProgressCheck):
    """An in-sync ledger loses a member, and becomes complete again.

    Source: protocol rules 5.6, 9.1, 11.2, 11.3; invariants "every ledger back at WQ", "catch-up
    ends".
    """

    @override
    async def run(self) -> None:
        """Run the check. Raises LedgerError for failures that may be retried."""
        dead: list[BookieNode] = []
        try:
            async with self._create() as writer:
                ledger = self._adopt(writer)
                await self._append(ledger, writer, dead)
                if self._quorum.ensemble > 1:
                    await self._lose_one(ledger, writer, dead)
                await see_members_return(self._cluster, ledger, writer)
                await self._append(ledger, writer, dead)
            count = await read_all(self._cluster, self._client, ledger)
            self._look_at_end(ledger, count)
        except TimeoutError as error:
            self._report(f"a ledger that lost a member did not get on: {error!r}")
        finally:
            await self._revive(dead)

    async def _lose_one(
        self, ledger: LedgerModel, writer: LedgerWriter, dead: list[BookieNode]
    ) -> None:
        """Kill a member while the writer is idle or busy, and restart it some time later.

        It may be the only member in sync: then appends would wait for its return.
        """
        bookie = self._kill_member(writer)
        dead.append(bookie)
        away_s = self._rng.choice(AWAY_S)
        quorum = self._quorum
        takes_appends = quorum.min_in_sync < quorum.ensemble and gets_on_without(
            quorum, writer.in_sync, bookie.bookie_id
        )
        if takes_appends and self._rng.random() < 0.5:
            await self._append(ledger, writer, dead)
        await asyncio.sleep(away_s)
        await self._revive(dead)
        dead.clear()

    def _look_at_end(self, ledger: LedgerModel, count: int) -> None:
        metadata = ledger.metadata
        if metadata is None or ledger.closed_at is None or count != ledger.closed_at + 1:
            self._report(f"{count} entries were read of a ledger that ends at {ledger.closed_at}")
        elif any(part.incoming for part in metadata.fragments):
            self._report(f"a mark stayed behind in {metadata.fragments}")


WIPED_SHARE: Final = 0.7
RETURNS_SHARE: Final = 0.5
ALONE_S: Final = 15.0
"""Time to wait for a member that stays alone, in seconds."""


class GiveUpCheck(ProgressCheck):
    """An in-sync ledger that lost its last members is recovered uncleanly.

    In some runs the last member keeps its disk: then nothing may be given up. In others another
    member returns just before the last one loses its disk.

    Source: protocol rule 11.6.
    """

    @override
    async def run(self) -> None:
        """Run the check. Raises LedgerError for failures that may be retried."""
        dead: list[BookieNode] = []
        writer = await self._create()
        ledger = self._adopt(writer)
        try:
            async with asyncio.timeout(4 * PROGRESS_S):
                await self._append(ledger, writer, dead)
                await self._leave_alone(ledger, writer, dead)
                alone = writer.members
                if dead and self._rng.random() < RETURNS_SHARE:
                    await self._return_one(writer, dead)
                if self._rng.random() < WIPED_SHARE:
                    self._wipe(alone)
                # before the members return that the writer would add to the set
                await self._recover(ledger)
                await self._revive(dead)
                dead.clear()
                await self._recover(ledger)
        except TimeoutError as error:
            self._report(f"an unclean recovery did not end: {error!r}")
        finally:
            await self._revive(dead)

    async def _leave_alone(
        self, ledger: LedgerModel, writer: LedgerWriter, dead: list[BookieNode]
    ) -> None:
        """Kill all members but one, and append until only that one holds new entries."""
        while len(writer.info.fragments[-1].ensemble) > 1:
            count = len(writer.info.fragments[-1].ensemble)
            dead.append(self._kill_member(writer))
            await self._cluster.wait_until(
                lambda count=count: len(writer.info.fragments[-1].ensemble) < count,  # type: ignore[misc]
                ALONE_S,
            )
            if len(writer.info.fragments[-1].ensemble) >= count:
                return  # a spare was faster, or the remaining member does not answer
        await self._append(ledger, writer, dead)

    async def _return_one(self, writer: LedgerWriter, dead: list[BookieNode]) -> None:
        """Start a dead member, and wait until the writer adds it to the set, to catch up."""
        count = len(writer.members)
        bookie = dead.pop()
        bookie.is_on_purpose = False
        bookie.start()
        await self._cluster.wait_until(lambda: len(writer.members) > count, ALONE_S)

    def _wipe(self, members: tuple[str, ...]) -> None:
        """Wipe the disks of these members."""
        for bookie in self._cluster.bookies:
            if bookie.bookie_id in members:
                self._cluster.damaged[bookie.host] = None
                bookie.kill(power_off=True)
                bookie.platter = Platter()
                bookie.wipes += 1
                bookie.start()

    async def _recover(self, ledger: LedgerModel) -> None:
        try:
            await recover(self._cluster, self._client, ledger, 2 * PROGRESS_S, is_unclean=True)
        except RecoveryUndecidedError as error:
            assert ledger.metadata is not None
            earlier = [bookie for f in ledger.metadata.fragments[:-1] for bookie in f.ensemble]
            if any(map(self._cluster.is_sound, earlier)):
                self._report(
                    f"an unclean recovery does not close ledger {ledger.ledger_id}: {error}"
                )
            return  # no replica of the earlier fragments is up
        assert ledger.metadata is not None
        kept, given_up = ledger.metadata.fragments, ledger.metadata.given_up
        self._cluster.model.note("unclean", f"ledger {ledger.ledger_id}: {kept} {given_up}")
        count = await read_all(self._cluster, self._client, ledger)
        if ledger.closed_at is None or count != ledger.closed_at + 1:
            self._report(f"{count} entries were read behind an unclean close at {ledger.closed_at}")
