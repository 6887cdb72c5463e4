"""Faults that are aimed at a moment or at a place that chance rarely hits."""

import asyncio
import contextlib
import random
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final
from unittest.mock import patch

from typing_extensions import override

from bookie.errors import PositionTakenError
from bookie.wire.batch import build_batch
from ledger_client.writing import outbox
from metadata.store.interface import SessionState
from tests.simulation.availability.decision import memory_of
from tests.simulation.cluster import Cluster
from tests.simulation.disk import SECTOR_BYTES, Platter
from tests.simulation.loop import NODE
from tests.simulation.nodes import BookieNode, ClientNode
from tests.simulation.workloads import recover_one

ANSWER_S_MAX: Final = 60.0


class _Exchange(asyncio.Protocol):
    def __init__(self, request: bytes) -> None:
        self._request = request
        self.ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answer = b""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    @override
    def data_received(self, data: bytes) -> None:
        self._answer += data

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(self._answer)


async def post(host: str, port: int, path: str, body: bytes = b"") -> int:
    """Send one request and return its HTTP status; 0 if no response arrived.

    HTTP client for the administration of a simulated bookie, as an operator's tool uses it.
    """
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            _, exchange = await asyncio.get_running_loop().create_connection(
                lambda: _Exchange(head.encode() + body), host, port
            )
            answer = await exchange.ended
    except (OSError, TimeoutError):
        return 0
    words = answer.split(b" ", 2)
    return int(words[1]) if len(words) > 1 else 0


_HEADER = struct.Struct("<HBBIQQII")
MAGIC: Final = 0x5152
SEGMENT_SHIFT: Final = 32


def draw_known_synced(platter: Platter, rng: random.Random) -> tuple[str, int] | None:
    """Return a file and an offset in it that is known to be synced; None if there is none.

    Choice of places in a bookie's log where damage is distinct from a torn tail.

    Invariant: a chosen place lies below the largest `synced_lsn` in a durable record. Damage there
    is corruption, while damage of the last group looks like a torn tail. Source: storage design,
    "One log", replay.
    """
    limit = 0
    sizes: dict[str, int] = {}
    for name in sorted(platter.names):
        if name.startswith("log/") and name.endswith(".log"):
            sizes[name], synced_lsn = _walk(platter.names[name].durable)
            limit = max(limit, synced_lsn)
    spans = []
    for name, size in sizes.items():
        below = limit - (int(name[4:12], 16) << SEGMENT_SHIFT)
        if below > 0 and size > 0:
            spans.append((name, min(size, below)))
    if not spans:
        return None
    name, span = rng.choice(spans)
    return name, rng.randrange(span)


def _walk(data: bytearray) -> tuple[int, int]:
    """Return where the records end, and the largest synced LSN among them."""
    at, synced_lsn = 0, 0
    while at + _HEADER.size <= len(data):
        magic, _, _, size, _, synced, _, _ = _HEADER.unpack_from(data, at)
        if magic != MAGIC or at + _HEADER.size + size > len(data):
            break
        synced_lsn = max(synced_lsn, synced)
        at += _HEADER.size + size
    return at, synced_lsn


class BadMedia:
    """Fault of a bookie's medium that its process meets while it runs: sectors that cannot be
    read.

    Invariant: only bytes that are known to be synced are lost, of a bookie within the budget.
    Source: protocol rule 2.4; reliability design.
    """

    def __init__(
        self, rng: random.Random, victim: Callable[[random.Random], BookieNode | None]
    ) -> None:
        """`victim` returns a bookie that may be damaged."""
        self._rng = rng
        self._victim = victim

    async def lose_sector(self) -> None:
        """Let no read of one synced sector of the log succeed from now on."""
        bookie = self._victim(self._rng)
        place = None if bookie is None else draw_known_synced(bookie.platter, self._rng)
        if bookie is not None and place is not None:
            name, offset = place
            first = offset - offset % SECTOR_BYTES
            bookie.platter.names[name].unreadable.append((first, first + SECTOR_BYTES))


HANG_S: Final = (0.05, 0.3, 1.0)
BEFORE_CUT_S: Final = (1.0, 4.0, 12.0)
DOWN_S: Final = 0.2
UP_S: Final = 30.0
"""More than the session time of a bookie whose power was cut."""
FENCE_S: Final = 15.0
FAILED_SYNC_SHARE: Final = 0.4


class UnsyncedDeaths:
    """Faults that end bookies between a write and its sync, and cut their power after the next
    start.

    Such a process leaves its writes in the page cache only. Its next start can read them, but must
    not rely on them. Only the power cut shows whether it did.

    Invariants: no disk hangs longer than a moment; nothing that was synced is lost. Source:
    protocol rule 2.5.
    """

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._taker_count = 0

    def heal(self) -> None:
        """Let every disk continue."""
        for bookie in self._cluster.bookies:
            faults = bookie.disk_faults
            if faults.paused is not None:
                faults.paused.set()
            faults.paused = None

    async def die_unsynced(self) -> None:
        """Let some bookies write without a sync, or with a failed one; cut the power some time
        later.
        """
        rng, running = self._rng, self._running(self._cluster.bookies)
        share = rng.choice((0.3, 1.0, 1.0))
        chosen = [node for node in running if rng.random() < share]
        if rng.random() < FAILED_SYNC_SHARE:
            for bookie in chosen:
                bookie.disk_faults.failing_syncs = 1  # its process ends, and is restarted
        else:
            await self._die_writing(chosen, rng.choice(HANG_S) * rng.random())
        await asyncio.sleep(rng.choice(BEFORE_CUT_S) * rng.random())
        self._cut_power([node for node in chosen if rng.random() < share])

    async def fence_unsynced(self) -> None:
        """Kill the bookies of an open ledger between the write and the sync of a fence.

        Then fence the ledger again, cut the power, and let the writer continue. The writer receives
        no news during this.
        """
        cluster, rng = self._cluster, self._rng
        live = list(cluster.live_ledgers.items())
        if not live:
            return
        ledger_id, host = rng.choice(live)
        metadata = cluster.model.ledger(ledger_id).metadata
        if metadata is None:
            return
        named = metadata.last_fragment.ensemble
        members = self._running([bookie for bookie in cluster.bookies if bookie.bookie_id in named])
        async with self.writer_away(ledger_id, host) as is_away:
            if not is_away:
                return
            first = self.taker(ledger_id)
            first.start()
            await self._die_writing(members, 0.1 + rng.choice(HANG_S))
            first.kill(power_off=False)
            await cluster.wait_until(lambda: all_serve(members), UP_S)
            second = self.taker(ledger_id)
            second.start()
            await cluster.wait_until(lambda: not second.is_running, FENCE_S)
            self._cut_power(members)
            await cluster.wait_until(lambda: all_serve(members), UP_S)

    @contextlib.asynccontextmanager
    async def writer_away(self, ledger_id: int, host: str) -> AsyncIterator[bool]:
        """Let the writer of an open ledger stand still and receive no news, until some time later.
        Yields False if it has no session.
        """
        writer = next(client for client in self._cluster.clients if client.host == host)
        store = writer.store
        if store is None:
            yield False
            return
        store.suspend()
        writer.pause()
        yield True
        writer.resume()
        await asyncio.sleep(FENCE_S * self._rng.random())
        store.resume()

    def taker(self, ledger_id: int) -> ClientNode:
        """Return a client that recovers a ledger once; it is not started."""
        self._taker_count += 1
        name = f"second-taker-{self._taker_count}"
        taker = ClientNode(self._cluster, name, recover_one(ledger_id, FENCE_S))
        taker.is_on_purpose = True
        return taker

    async def _die_writing(self, chosen: Sequence[BookieNode], hang_s: float) -> None:
        """Let disks hang before each sync, and then end the processes."""
        hung = asyncio.Event()
        for bookie in chosen:
            bookie.disk_faults.paused = hung
            self._cluster.network.faults.add(bookie.host, hang_s)
        await asyncio.sleep(hang_s)
        for bookie in chosen:
            bookie.disk_faults.paused = None
            bookie.kill(power_off=False)
            bookie.start_after(DOWN_S * self._rng.random())
        hung.set()  # processes that other faults started in the meantime

    def _cut_power(self, chosen: Sequence[BookieNode]) -> None:
        for bookie in self._running(chosen):
            bookie.kill(power_off=True)
            bookie.start_after(DOWN_S * self._rng.random())

    def _running(self, bookies: Sequence[BookieNode]) -> list[BookieNode]:
        return [bookie for bookie in bookies if bookie.is_running]


def all_serve(bookies: Sequence[BookieNode]) -> bool:
    """Return whether all of some bookies serve."""
    return all(bookie.is_serving for bookie in bookies)


BEGUN_S: Final = 0.05
"""Time within which a checkpoint that was asked for has begun."""
FENCED_S: Final = 2.0
"""Time within which a recovery has fenced."""
LOOK_S: Final = 0.001
ALONE_S: Final = 6.0
"""Time in which only the bookie with the checkpoint answers the writer, whose connection is to be
made again."""


class HeldCheckpoints:
    """Fault that fences a ledger while a checkpoint of a bookie stores what it took before.

    Such a fence is not among the changes of the checkpoint. If the checkpoint's mark lies above
    it, the next process does not know it.

    Invariant: no index hangs longer than a moment. Source: protocol rule 7.2; storage design,
    "Index".
    """

    def __init__(self, cluster: Cluster, rng: random.Random, deaths: UnsyncedDeaths) -> None:
        self._cluster = cluster
        self._rng = rng
        self._deaths = deaths

    def heal(self) -> None:
        """Let every index continue."""
        for bookie in self._cluster.bookies:
            self._release(bookie)

    async def fence_within(self) -> None:
        """Let a writer stand still, so that a checkpoint has all of its ledger, and clean, so that
        the next checkpoint stores first what was measured. Fence the ledger during that; a write
        back would be a change that is stored later. End the process with the checkpoint, and let
        the writer continue: this bookie answers first.
        """
        cluster, rng = self._cluster, self._rng
        live = list(cluster.live_ledgers.items())
        if not live:
            return
        ledger_id, host = rng.choice(live)
        metadata = cluster.model.ledger(ledger_id).metadata
        if metadata is None:
            return
        named = metadata.last_fragment.ensemble
        members = [node for node in cluster.bookies if node.bookie_id in named and node.is_serving]
        open_at = [member for member in members if not self._is_fenced(member, ledger_id)]
        if not open_at:
            return
        bookie = rng.choice(open_at)
        others = [member for member in members if member is not bookie]
        async with self._deaths.writer_away(ledger_id, host) as is_away:
            if not is_away:
                return
            await self._ask(bookie, "checkpoint")
            await self._ask(bookie, "clean")
            with cluster.network.faults.lasting(bookie.host):
                await self._fence(bookie, ledger_id)
                if bookie.is_running:
                    bookie.kill(power_off=False)
                    bookie.start_after(DOWN_S * rng.random())
                await cluster.wait_until(lambda: all_serve([bookie]), UP_S)
            for other in others:
                other.pause()
                cluster.network.faults.add(other.host, ALONE_S)
            alone = asyncio.create_task(self._resume_soon(others))
        await alone
        taker = self._deaths.taker(ledger_id)
        taker.start()
        await cluster.wait_until(lambda: not taker.is_running, FENCE_S)

    async def _fence(self, bookie: BookieNode, ledger_id: int) -> None:
        """Fence a ledger at a bookie whose checkpoint has begun; return once that has ended."""
        bookie.disk_faults.index_held = asyncio.Event()
        checkpoint = asyncio.create_task(self._ask(bookie, "checkpoint"))
        await asyncio.sleep(BEGUN_S)
        taker = self._deaths.taker(ledger_id)
        taker.start()
        is_fenced = partial(self._is_fenced, bookie, ledger_id)
        await self._cluster.wait_until(is_fenced, FENCED_S, LOOK_S)
        taker.kill(power_off=False)
        self._release(bookie)
        await checkpoint

    async def _resume_soon(self, bookies: Sequence[BookieNode]) -> None:
        await asyncio.sleep(ALONE_S)
        for bookie in bookies:
            bookie.resume()

    def _is_fenced(self, bookie: BookieNode, ledger_id: int) -> bool:
        return (str(bookie.bookie_id), ledger_id) in self._cluster.model.fenced_at_s

    def _release(self, bookie: BookieNode) -> None:
        held, bookie.disk_faults.index_held = bookie.disk_faults.index_held, None
        if held is not None:
            held.set()

    async def _ask(self, bookie: BookieNode, what: str) -> None:
        addresses = bookie.addresses
        if addresses is not None:
            await post(addresses.admin_host, addresses.admin_port, f"/api/v1/{what}")


STEPS_MAX: Final = 40
"""Maximum number of callbacks that the process runs before it stops."""


class Stops:
    """A process stops between two awaits of one of its tasks.

    A pause from outside stops a process only where the simulation's own tasks run.

    Source: protocol rules 4.7 and 9.2.
    """

    def __init__(self, cluster: Cluster, lengths_s: Sequence[float]) -> None:
        self._cluster = cluster
        self._lengths_s = lengths_s
        self._rng = random.Random(f"stops {cluster.plan.seed}")

    async def stop_within(self) -> None:
        """Stop a process after some more callbacks, for some time."""
        rng = self._rng
        node = rng.choice((*self._cluster.bookies, *self._cluster.clients))
        node.pause_within(rng.randint(1, STEPS_MAX))
        await asyncio.sleep(rng.choice(self._lengths_s) * rng.random())
        node.resume()


class DrawnMemoryError(MemoryError):
    """The failure that this module draws."""


class FailingBuilds:
    """A client has no memory for the bytes of a batch whose entries have their ids.

    Invariant: only the process that was chosen fails, at its next batch. The error that it reports
    to the loop is no finding.
    Source: protocol rule 4.1.
    """

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng

    async def fail_build(self) -> None:
        """Let the next batch of a client that writes fail."""
        writing = [node for node in self._cluster.clients if node.is_running and node.writes]
        if writing:
            client = self._rng.choice(writing)
            assert client.node is not None
            self._cluster.failing_builds[client.node] = client.host


@contextmanager
def failing_builds(cluster: Cluster) -> Iterator[None]:
    """Let the batches fail that `FailingBuilds` has drawn."""
    drawn = cluster.failing_builds

    def build_or_fail(*arguments: object) -> bytearray:
        host = drawn.pop(NODE.get(), None) if drawn else None
        if host is not None:
            cluster.network.faults.add(memory_of(host))
            raise DrawnMemoryError
        return build_batch(*arguments)  # type: ignore[arg-type]

    with patch.object(outbox, "build_batch", build_or_fail):
        yield


NAME: Final = "identity"
COPY_S_MAX: Final = 45.0
"""More than a start waits for the session of a silent original."""
LOOK_EVERY_S: Final = 0.02
"""Less than a copy needs to replace an original whose session has expired."""


class CopyNode(BookieNode):
    """Machine on which a copy is started once."""

    def __init__(self, original: BookieNode, number: int, rng: random.Random) -> None:
        super().__init__(original.cluster, original.number)
        self.host = f"copy-{number}"
        self.platter = original.platter.copied(self.host if rng.random() < 0.5 else "")
        self.platter.crash(rng)
        self.is_on_purpose = True


class SecondStarts:
    """A copy of a bookie's directories starts on another machine while the original lives.

    Invariant: if the original is registered when the copy starts, the copy serves no requests, and
    the original is not ended while it runs and keeps its session. An original with a new session
    that is not registered again yet may be displaced.
    Source: protocol rule 2.6.
    """

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._count = 0

    async def start_copy(self, original: BookieNode) -> None:
        """Start a copy of a registered bookie, and end it afterwards."""
        life = _life_of(original)
        if life is None or not original.is_registered:
            return
        self._count += 1
        original.last_error = None
        copy = CopyNode(original, self._count, self._rng)
        deadline_s = self._cluster.loop.now_s + COPY_S_MAX
        copy.start()
        while copy.is_running and self._cluster.loop.now_s < deadline_s:
            await asyncio.sleep(LOOK_EVERY_S)
            if isinstance(original.last_error, PositionTakenError):
                self._report(f"{original.host} ended for its copy: {original.last_error}")
            if _life_of(original) != life:
                break  # the original may be replaced from here on
            if copy.is_serving:
                self._report(f"{copy.host} serves, and {original.host} lives")
                break
        copy.kill(power_off=True)

    def _report(self, text: str) -> None:
        self._cluster.model.report(NAME, text)


def _life_of(bookie: BookieNode) -> tuple[int | None, int] | None:
    """Return a value that changes when the process stops serving or loses its session."""
    store = bookie.store
    if store is None or not bookie.is_serving or bookie.is_paused or bookie.stopping.is_set():
        return None
    is_connected = store.session_state is SessionState.CONNECTED
    return (bookie.node, store.session_id) if is_connected else None


AWAY_S_MAX = 10.0
"""Maximum time between the end of the session and the return of the bookie."""


class Leaving:
    """Fault of a client with many ledgers: a bookie that is away for longer than its session
    lasts.

    Source: protocol rules 5.6 and 11.3.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rng = random.Random(f"leaving {cluster.plan.seed}")

    async def leave(self) -> None:
        """End a bookie for longer than its session lasts."""
        bookie = self._rng.choice(self._cluster.bookies)
        if bookie.is_serving:
            bookie.kill(power_off=False)
            timeout_s = self._cluster.plan.session_timeout_s
            bookie.start_after(timeout_s + AWAY_S_MAX * self._rng.random())


WRITTEN_S: Final = 20.0
RESTORED_AFTER_S: Final = 3.0


class Restores:
    """Fault beyond the budget: all disks are replaced at once by copies of an earlier time.

    As after a rollback of all machines to a snapshot, no bookie has what was written since. The
    bookies must notice it: every answer about what they may have lost must be UNKNOWN, and every
    result built on these answers an error.

    Source: protocol rules 2.4 and 2.6.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rng = random.Random(f"restores {cluster.plan.seed}")
        self._count = 0

    async def restore_all(self) -> None:
        """Copy all disks, and put the copies in their places some time later."""
        cluster = self._cluster
        self._count += 1
        chosen = [node for node in cluster.bookies if node.platter.is_formatted]
        old = [node.platter.copied(f"snapshot {self._count}") for node in chosen]
        formats = [node.wipes for node in chosen]
        await asyncio.sleep(WRITTEN_S * self._rng.random())
        for bookie, platter, wipes in zip(chosen, old, formats, strict=True):
            if bookie.wipes != wipes:
                continue
            cluster.damaged[bookie.host] = None
            bookie.kill(power_off=True)
            platter.crash(self._rng)
            bookie.platter = platter
            bookie.start_after(RESTORED_AFTER_S * self._rng.random())
