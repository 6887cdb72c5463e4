"""Clients that write ledgers in every way that the client offers, and end them in every way.

Leaves reading, recovering and deleting to `tests.simulation.workloads`.

Invariants: the bytes of every entry are recorded before the client gets them. The checkers see
every success in the step in which the caller receives it.
Source: api design, "Client"; protocol sections 4-6.
"""

import asyncio
import random
from collections import deque
from functools import partial

from ledger_client import LedgerClient, LedgerError, LedgerWriter, NotEnoughInSyncReplicasError
from tests.simulation.checkers.availability import Append
from tests.simulation.checkers.wholeness import see_members_return
from tests.simulation.cluster import Cluster
from tests.simulation.model import LedgerModel
from tests.simulation.nodes import ClientNode
from tests.simulation.observing import note_error
from tests.simulation.reach.bursts import Burst
from tests.simulation.reach.sharing import SharedAppends

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
