"""Writers of a run: what each appends, in bursts or from several tasks, and how its ledgers end.

Invariant: the bytes of every entry are recorded before the client gets them, and every success in
the step in which the caller receives it.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final

from ledger_client import LedgerClient, LedgerError, LedgerWriter, NotEnoughInSyncReplicasError
from metadata.ledgers.ledger_metadata import LedgerState
from tests.simulation.checkers.availability import Append
from tests.simulation.checkers.client_promises import CallersChecker
from tests.simulation.cluster import Cluster
from tests.simulation.model import LedgerModel, members_in_sync
from tests.simulation.nodes import ClientNode
from tests.simulation.observing import note_error

SMALL_COUNT: Final = (1_100, 2_300)
LARGE_COUNT: Final = (2, 4)
LARGE_BYTES: Final = (150_000, 900_000)
LARGE_SHARE: Final = 0.5
PUSH_COUNT: Final = 400
"""Entries appended in one loop iteration."""
KILLED_EARLY_SHARE: Final = 0.25
KILLED_SHARE: Final = 0.5
"""Share of the bursts after whose last confirmation the writer's process is killed."""
EARLY_S_MAX: Final = 0.02


class Burst:
    """Bursts: more unconfirmed entries, or larger ones, than the usual workload has.

    A recovery reads 1,024 entries at a time and writes back spans of a megabyte. An answer to a
    read ends early at its size limit. Only a burst makes a recovery, a copy or a reader reach
    these limits.

    Invariant: a process that is killed right after a burst has sent no newer LAC, so that the
    recovery has to find all of the burst. Source: protocol rules 3.1, 7.3, 7.4, 8.4.
    """

    def __init__(
        self,
        cluster: Cluster,
        ledger: LedgerModel,
        writer: LedgerWriter,
        rng: random.Random,
        watch: Callable[[int, "asyncio.Future[int]"], None],
    ) -> None:
        """`watch` receives the expected id and the future of each append when it is called."""
        self._cluster = cluster
        self._ledger = ledger
        self._writer = writer
        self._rng = rng
        self._watch = watch

    async def run(self) -> None:
        """Append the burst, and await it; the process may be killed before or after that."""
        rng = self._rng
        is_large = rng.random() < LARGE_SHARE
        count = rng.randint(*(LARGE_COUNT if is_large else SMALL_COUNT))
        self._cluster.model.note("burst", f"ledger {self._ledger.ledger_id}: {count} entries")
        killed = rng.random()
        if killed < KILLED_EARLY_SHARE:
            self._kill_after(rng.random() * EARLY_S_MAX)
        futures: list[asyncio.Future[int]] = []
        for number in range(count):
            if number and number % PUSH_COUNT == 0:
                await asyncio.sleep(0)
            try:
                futures.append(self._append(rng.randint(*LARGE_BYTES) if is_large else 0))
            except LedgerError:
                break  # the writer has failed, or the window is full
        await asyncio.gather(*futures, return_exceptions=True)
        if KILLED_EARLY_SHARE <= killed < KILLED_EARLY_SHARE + KILLED_SHARE:
            self._kill_after(0.0)
            await asyncio.sleep(EARLY_S_MAX)

    def _append(self, size: int) -> "asyncio.Future[int]":
        expected = self._writer.last_pushed + 1
        payload = b"<%d/%d>" % (self._ledger.ledger_id, expected) + self._rng.randbytes(size)
        self._ledger.payloads[expected] = payload
        future = self._writer.append_nowait(payload)
        self._watch(expected, future)
        return future

    def _kill_after(self, delay_s: float) -> None:
        """Kill the writer's process, from outside of it, and start it again."""
        cluster = self._cluster
        host = cluster.live_ledgers.get(self._writer.id)
        for node in cluster.clients:
            if node.host == host:
                cluster.loop.call_later(
                    delay_s, partial(node.kill, power_off=False), context=cluster.context
                )
                cluster.loop.call_later(1.0, node.start, context=cluster.context)


RANGE_MAX: Final = 12
CANCELS_SHARE: Final = 0.2
"""Share of the calls whose end cancels another call."""
TURNS_MAX: Final = 3
"""Loop iterations between the end of a call and the cancellation of another one."""
TIMEOUTS_S: Final = (None, None, 0.002, 0.05, 5.0)
SOURCE_PAUSE_S: Final = 0.01


class SharedAppends:
    """Several tasks that append to one writer at the same time, some of which are cancelled.

    Invariants: every call has payloads of its own. A cancellation hits a call that waits in line,
    that waits for its confirmation, or that has its result and was not resumed yet. Source: api
    design, "Cancelling"; protocol rule 4.1.
    """

    def __init__(
        self,
        cluster: Cluster,
        ledger: LedgerModel,
        writer: LedgerWriter,
        rng: random.Random,
        fail: Callable[[LedgerError, float | None], bool],
    ) -> None:
        """`fail` records the error of a call with this limit, and returns whether the callers may
        go on.
        """
        self._cluster = cluster
        self._ledger = ledger
        self._writer = writer
        self._rng = rng
        self._fail = fail
        self._calls = CallersChecker(cluster.model, ledger)
        self._wanted = 0
        self._payload_count = 0
        self._under_way: dict[int, asyncio.Task[None]] = {}
        """By caller: the call that it makes now."""

    async def run(self, wanted: int) -> None:
        """Append entries, or stop when the writer fails."""
        self._wanted = wanted
        count = self._cluster.plan.reach.callers
        callers = [asyncio.create_task(self._call_repeatedly(number)) for number in range(count)]
        try:
            await asyncio.gather(*callers)
        finally:
            for task in (*callers, *self._under_way.values()):
                task.cancel()

    async def _call_repeatedly(self, number: int) -> None:
        gap_s = self._cluster.plan.workload.append_gap_s
        while self._wanted > 0 and not self._cluster.is_over:
            call = asyncio.create_task(self._call())
            self._under_way[number] = call
            await asyncio.gather(call, return_exceptions=True)
            del self._under_way[number]
            if not call.cancelled():
                call.result()
            await asyncio.sleep(gap_s * self._rng.random())

    async def _call(self) -> None:
        """Make one call in one of the ways in which the writer can be called."""
        style = self._rng.randrange(8)
        count = self._rng.randint(2, RANGE_MAX) if style < 2 else 1
        payloads = [self._payload() for _ in range(count)]
        timeout = self._rng.choice(TIMEOUTS_S)
        self._wanted -= count
        call = self._calls.begin(payloads)
        ids: Sequence[int]
        try:
            if style == 0:
                ids = await self._writer.append_many(payloads, timeout=timeout)
            elif style == 1:
                ids = await self._writer.append_many(self._source(payloads), timeout=timeout)
            elif style == 2:
                ids = (await self._writer.append_nowait(payloads[0]),)
            else:
                ids = (await self._writer.append(payloads[0], timeout=timeout),)
        except asyncio.CancelledError:
            self._calls.cancel(call)
            raise
        except LedgerError as error:
            self._calls.fail(call, error)
            if not self._fail(error, None if style == 2 else timeout):
                self._wanted = 0
        else:
            self._calls.succeed(call, ids)
            for entry_id in ids:
                self._cluster.note_confirmed(self._ledger, entry_id, entry_id)
        if self._rng.random() < CANCELS_SHARE:
            self._cancel_after(self._rng.randint(0, TURNS_MAX))

    async def _source(self, payloads: Sequence[bytes]) -> AsyncIterator[bytes]:
        for payload in payloads:
            if self._rng.random() < 0.3:
                await asyncio.sleep(SOURCE_PAUSE_S * self._rng.random())
            yield payload

    def _payload(self) -> bytes:
        self._payload_count += 1
        head = b"<%d/%d>" % (self._ledger.ledger_id, self._payload_count)
        size = self._rng.randrange(self._cluster.plan.workload.entry_bytes_max)
        return head + self._rng.randbytes(max(0, size - len(head)))

    def _cancel_after(self, turns: int) -> None:
        """Cancel one of the calls that are under way after some loop iterations."""
        if turns:
            asyncio.get_running_loop().call_soon(self._cancel_after, turns - 1)
            return
        calls = [task for task in self._under_way.values() if not task.done()]
        if calls:
            self._rng.choice(calls).cancel()


ENDINGS = ("close", "close", "abort", "abandon", "abandon", "block")
LINGER_S_MAX = 5.0
REPLICATED_S_MAX = 10.0
SHARED_SHARE = 0.6
"""Share of the ledgers with several callers, in the runs that have such ledgers."""
SHARED_ENTRIES_MAX = 60
BURST_SHARE = 0.2
"""Share of the steps of a writer that are a burst, while the run has bursts left."""
SLOW_DISK_OPERATIONS = 1_000
"""Product of the delay of a disk operation and this number: smallest stripe of a ledger with
bursts. A recovery compares each stripe with the disk; docs/assurance.md says what is not fixed.
"""
REFUSED_PAUSE_S = 0.5
"""Time before appends that were refused for lack of in-sync members are retried, in seconds."""


class Writing:
    """One ledger that is being written."""

    def __init__(
        self, node: ClientNode, ledger: LedgerModel, writer: LedgerWriter, rng: random.Random
    ) -> None:
        self.cluster = cluster = node.cluster
        self.ledger = ledger
        self.writer = writer
        self.rng = rng
        self.work = cluster.plan.workload
        self.is_failed = False
        self._is_refused = False
        self._pending: deque[asyncio.Future[int]] = deque()
        assert node.node is not None
        self._is_alive = partial(cluster.loop.is_alive, node.node)

    async def write(self) -> None:
        """Append the planned entries, or until the writer fails."""
        wanted = self.rng.randint(1, 2 * self.work.entries_per_ledger)
        if self.cluster.plan.reach.callers and self.rng.random() < SHARED_SHARE:
            await self._append_together(min(wanted, SHARED_ENTRIES_MAX))
            wanted = 0
        while wanted > 0 and not self.is_failed and not self.cluster.is_over:
            step = self.rng.randrange(8)
            if step == 0:
                wanted -= await self._append_many(min(wanted, self.rng.randint(1, 30)))
            elif step <= 2:
                wanted -= await self._append_one()
            else:
                wanted -= await self._append_some(min(wanted, self.rng.randint(1, 10)))
            if self._may_burst() and self.rng.random() < BURST_SHARE:
                self.cluster.bursts_left -= 1
                await self._settle()
                await Burst(self.cluster, self.ledger, self.writer, self.rng, self._watch).run()
            if self._is_refused:
                self._is_refused = False
                await asyncio.sleep(REFUSED_PAUSE_S * 2 * self.rng.random())
            if self.work.append_gap_s:
                await asyncio.sleep(self.work.append_gap_s * self.rng.random() * 2)
        if self.rng.random() < 0.5:
            await self._settle()
        if self.rng.random() < 0.2 and not self.is_failed:
            await self._see_all_copies()
        if self.cluster.is_over and self.writer.info.quorum.is_in_sync:
            await see_members_return(self.cluster, self.ledger, self.writer)

    def _may_burst(self) -> bool:
        """Return whether bursts are left, and a bookie compares one with its disk in seconds."""
        plan, stripe = self.cluster.plan, self.writer.info.quorum.stripe_entries
        is_slow = plan.disk_delay_s * SLOW_DISK_OPERATIONS > stripe
        return bool(self.cluster.bursts_left) and not is_slow

    async def _append_together(self, wanted: int) -> None:
        shared = SharedAppends(
            self.cluster, self.ledger, self.writer, self.rng, self._may_go_on_after
        )
        await shared.run(wanted)

    def _may_go_on_after(self, error: LedgerError, limit_s: float | None) -> bool:
        self.fail(error, limit_s, is_shared=True)
        return not self.is_failed

    def _payload(self, entry_id: int) -> bytes:
        size = self.rng.randrange(self.work.entry_bytes_max)
        if self.rng.random() < 0.02:
            payload = b""
        else:
            head = b"<%d/%d/%d>" % (self.ledger.ledger_id, entry_id, self.rng.getrandbits(48))
            payload = head + self.rng.randbytes(max(0, size - len(head)))
        self.ledger.payloads[entry_id] = payload
        return payload

    async def _append_some(self, count: int) -> int:
        for done in range(count):
            expected = self.writer.last_pushed + 1
            try:
                future = self.writer.append_nowait(self._payload(expected))
            except LedgerError as error:
                self.fail(error)
                return done + 1
            self._watch(expected, future)
            self._pending.append(future)
        while len(self._pending) > self.work.pending_max:
            await _ended(self._pending.popleft())
        return count

    async def _append_one(self) -> int:
        expected = self.writer.last_pushed + 1
        timeout = self.rng.choice((None, None, 5.0))
        append = self._begin_append()
        try:
            got = await self.writer.append(self._payload(expected), timeout=timeout)
        except LedgerError as error:
            self.fail(error, timeout)
        else:
            self._note(expected, got)
        self.cluster.availability.end_append(append)
        return 1

    async def _append_many(self, count: int) -> int:
        first = self.writer.last_pushed + 1
        payloads = [self._payload(first + index) for index in range(count)]
        append = self._begin_append()
        try:
            got = await self.writer.append_many(payloads)
        except LedgerError as error:
            self.fail(error)
        else:
            for expected, entry_id in zip(range(first, first + count), got, strict=True):
                self._note(expected, entry_id)
        self.cluster.availability.end_append(append)
        return count

    def _begin_append(self) -> Append:
        return self.cluster.availability.begin_append(self.ledger.ledger_id, self._is_alive)

    async def _see_all_copies(self) -> None:
        last = self.writer.last_pushed
        try:
            if last >= 0:
                await self.writer.wait_fully_replicated(last, timeout=REPLICATED_S_MAX)
                self.cluster.checkers.on_fully_replicated(self.ledger, last)
        except LedgerError as error:
            note_error(self.cluster, "replicate", error)

    async def _settle(self) -> None:
        while self._pending:
            await _ended(self._pending.popleft())

    def _watch(self, expected: int, future: "asyncio.Future[int]") -> None:
        """Judge an append when it is done."""
        future.add_done_callback(partial(self._on_done, self._begin_append(), expected))

    def _on_done(self, append: Append, expected: int, future: "asyncio.Future[int]") -> None:
        self.cluster.availability.end_append(append)
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._note(expected, future.result())
        elif isinstance(error, LedgerError):
            self.fail(error)
        else:
            note_error(self.cluster, "append", error)

    def _note(self, expected: int, entry_id: int) -> None:
        self.cluster.note_confirmed(self.ledger, entry_id, expected)

    def fail(
        self, error: LedgerError, limit_s: float | None = None, *, is_shared: bool = False
    ) -> None:
        """Record that the writer failed, is full, or that an append with this limit timed out."""
        note_error(self.cluster, "append", error)
        has_pending = is_shared or self.writer.last_pushed > self.writer.last_confirmed
        self.cluster.availability.on_append_failed(
            self.ledger.ledger_id, error, limit_s, has_pending=has_pending
        )
        if isinstance(error, NotEnoughInSyncReplicasError):
            self._is_refused = True
        elif type(error).__name__ not in ("BackpressureError", "QuorumTimeoutError"):
            self.is_failed = True


async def _ended(future: "asyncio.Future[int]") -> None:
    await asyncio.gather(future, return_exceptions=True)


async def write_ledgers(node: ClientNode, client: LedgerClient, rng: random.Random) -> None:
    """Create one ledger after the other, write each and end it, until the run is over."""
    cluster = node.cluster
    while not cluster.is_over:
        try:
            await _write_one(node, client, rng)
        except LedgerError as error:
            note_error(cluster, "write", error)
        node.writes = None
        await asyncio.sleep(cluster.plan.workload.pause_between_s * 2 * rng.random())


async def _write_one(node: ClientNode, client: LedgerClient, rng: random.Random) -> None:
    cluster = node.cluster
    quorum = rng.choice(cluster.plan.quorums)
    digest = "hmac-sha256" if rng.random() < 0.1 else "crc32c"
    opening = client.create_ledger(quorum, digest=digest, password=cluster.plan.workload.password)
    ending = rng.choice(ENDINGS)
    try:
        writer = await opening
    except LedgerError as error:
        cluster.availability.on_create_failed(node.host, quorum, error)
        raise
    try:
        await _use(node, writer, ending, rng)
    except LedgerError as error:
        cluster.availability.on_close_failed(writer.id, error)
        raise
    cluster.live_ledgers.pop(writer.id, None)


async def _use(node: ClientNode, writer: LedgerWriter, ending: str, rng: random.Random) -> None:
    cluster = node.cluster
    writing = _begin(node, writer, rng)
    if ending == "block":
        async with writer:
            await writing.write()
            cluster.availability.on_ending(writer.id)
        _check_closed(cluster, writer)
        return
    await writing.write()
    cluster.availability.on_ending(writer.id)
    if ending == "close":
        await writer.aclose()
        _check_closed(cluster, writer)
    elif ending == "abort":
        await writer.abort()
    else:
        await asyncio.sleep(rng.random() * LINGER_S_MAX)


def _begin(node: ClientNode, writer: LedgerWriter, rng: random.Random) -> Writing:
    cluster = node.cluster
    ledger = cluster.model.ledger(writer.id)
    ledger.writer = writer
    cluster.availability.on_writer(ledger, node.host, writer.admission.quorum)
    node.writes = ledger
    cluster.live_ledgers[writer.id] = node.host
    return Writing(node, ledger, writer, rng)


def _check_closed(cluster: Cluster, writer: LedgerWriter) -> None:
    """Check that a successful close is stored, unless the ledger was deleted since."""
    ledger = cluster.model.ledger(writer.id)
    cluster.live_ledgers.pop(writer.id, None)
    if ledger.metadata is not None and ledger.closed_at is None:
        cluster.model.report("closing", f"ledger {writer.id}: aclose() succeeded, and it is open")


WHOLENESS: Final = "wholeness"
UP_S: Final = 200.0
RETURN_S: Final = 300.0
"""More than the slowest copies of the largest ledgers, and every wait before them, in seconds."""


async def see_members_return(cluster: Cluster, ledger: LedgerModel, writer: LedgerWriter) -> None:
    """Wait until a ledger with an idle writer is complete or ended; report if it is neither."""
    await see_all_members_return(cluster, [(ledger, writer)])


async def see_all_members_return(
    cluster: Cluster, written: Sequence[tuple[LedgerModel, LedgerWriter]]
) -> None:
    """Do the same for many ledgers at once: each regains all its members, all of them in sync.

    No mark of a copy remains, not even in a ledger without appends.

    Source: protocol rules 5.6, 9.1, 11.2, 11.3; invariants "every ledger back at WQ", "catch-up
    ends".
    """
    bookies = cluster.bookies
    is_up = await cluster.wait_until(lambda: all(bookie.is_serving for bookie in bookies), UP_S)
    if not is_up or cluster.damaged:
        return  # a bookie that may have lost fences accepts no adds: see protocol rule 2.4
    if await cluster.wait_until(lambda: all(_is_whole(*each) for each in written), RETURN_S):
        return
    for ledger, writer in written:
        if not _is_whole(ledger, writer):
            _report(cluster, ledger, writer)


def _report(cluster: Cluster, ledger: LedgerModel, writer: LedgerWriter) -> None:
    assert ledger.metadata is not None
    cluster.model.report(
        WHOLENESS,
        f"ledger {ledger.ledger_id} is not whole {RETURN_S} s after healing: its writer shows "
        f"{writer.in_sync}, stored is {ledger.metadata.quorum.ensemble_size}, "
        f"{ledger.metadata.fragments}",
    )


def _is_whole(ledger: LedgerModel, writer: LedgerWriter) -> bool:
    metadata = ledger.metadata
    if metadata is None or metadata.state is not LedgerState.OPEN:
        return True
    members = [str(bookie) for bookie in metadata.last_fragment.ensemble]
    return (
        len(members) == metadata.quorum.ensemble_size
        and members_in_sync(metadata) == members
        and sorted(writer.in_sync) == sorted(members)
        and not any(part.incoming for part in metadata.fragments)
    )
