"""Fuzzer of the server's end of connections: damaged streams of bad clients, and one good client.

It uses the production connection, a real storage and the simulated disk. Leaves damage to
`tests.fuzz.streams`, and real sockets to `benchmarks.floods`.

Invariants checked: every frame that comes back decodes. No request is answered twice, and no answer
is without a request. While a connection is open, every complete request is answered. No request
fails by an error of the server. A good client's adds are stored and read back completely at the
same time. A connection leaves no state after its end.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from bookie.config import KIB, StorageConfig
from bookie.server.access import ServerAccess
from bookie.server.connection import ClientConnection
from bookie.server.server_context import ServerContext
from bookie.server.server_limits import ServerCounters, ServerLimits
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.batch import build_batch
from bookie.wire.codec import (
    decode_acks,
    decode_entries,
    decode_reply,
    decode_request,
    encode_message,
)
from bookie.wire.errors import MessageError
from bookie.wire.frames import Frame, FrameKind
from bookie.wire.messages import (
    AttachLedger,
    DetachLedger,
    FenceWithoutKey,
    Hello,
    ListEntries,
    Ping,
    ReadAccess,
    ReadEntries,
    ReadLac,
    ReadRights,
    ReportLac,
    Request,
    WaitLac,
    WriteLac,
)
from metadata.ids import BookieId, EntryId, LedgerId
from tests.fuzz.episodes import EpisodeTarget, RecordingLog
from tests.fuzz.findings import Finding, Tally, describe, require
from tests.fuzz.good_client import GoodClient
from tests.fuzz.memory_transport import MemoryTransport
from tests.fuzz.sealing import seal_batch
from tests.fuzz.streams import RawFrame, StreamDamage, cut_stream
from tests.fuzz.wire_targets import BATCHES, DIGEST_SEED, REQUESTS
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter
from tests.simulation.loop import simulation_loop

BOOKIE: Final = BookieId("bookie-a")
STREAMS_PER_EPISODE: Final = 24
FRAMES_MAX: Final = 40
LEDGERS: Final = 3
LAST_POLL_S: Final = 61.0
OVERDUE_S: Final = 31.0
LIMITS: Final = replace(
    ServerLimits(),
    frame_bytes_max=256 * KIB,
    requests_running_max=4,
    requests_waiting_max=16,
    attached_ledgers_max=8,
    long_polls_per_connection_max=8,
    ranges_per_answer_max=4,
)
CONFIG: Final = StorageConfig(
    segment_bytes_max=64 * KIB,
    checkpoint_log_bytes=128 * KIB,
    transaction_runs_max=50,
    index_map_bytes=KIB,
    run_bytes_max=8 * KIB,
    recent_bytes_max=16 * KIB,
    reserve_bytes_min=KIB,
    reserve_share=0.0,
    queue_bytes_max=64 * KIB,
)
_UNANSWERED: Final = (AttachLedger, DetachLedger, ReportLac)
_BODIES: Final = (*(encode_message(request) for request in REQUESTS), *BATCHES)


async def _read_key() -> bytes | None:
    return bytes(32)


class _Episode:
    """One bookie, one good client, and bad clients, one after the other or several at a time."""

    def __init__(self, rng: random.Random, tally: Tally, block: str, stream: bytes | None) -> None:
        self._rng = rng
        self._tally = tally
        self._block = block
        self._stream = stream
        self._next_entry = [0] * (LEDGERS + 1)
        self._damage = StreamDamage(rng, _BODIES, {int(FrameKind.ADD): seal_batch})
        self._log = RecordingLog()
        self._context: ServerContext

    async def run(self) -> None:
        """Run the episode; add findings to the tally."""
        rng, loop = self._rng, simulation_loop()
        disk = CrashableDisk(Platter(), rng, DiskFaults(delay_s_max=0.001))
        storage = await BookieStorage.open(disk, CONFIG, rng=rng)
        background = asyncio.create_task(storage.background())
        access = ServerAccess(_read_key, loop.time)
        self._context = ServerContext(
            BOOKIE, storage, access, LIMITS, ServerCounters(), self._log, loop.time
        )
        good = GoodClient(ClientConnection(self._context), BOOKIE)
        await good.greet()
        count = 1 if self._stream is not None else STREAMS_PER_EPISODE
        while count > 0:
            together = min(count, 1 + int(rng.random() * 3))
            count -= together
            await asyncio.gather(*[self._try(self._serve_bad_client) for _ in range(together)])
            await self._try(good.work)
        await self._try(good.leave)
        await self._try(self._check_nothing_left)
        await storage.close()
        background.cancel()
        ended = await asyncio.gather(background, return_exceptions=True)
        stopped = [exception for exception in ended if isinstance(exception, Exception)]
        for failure in [*self._log.failures, *loop.failures, *stopped]:
            self._note(failure, b"")
        loop.failures.clear()

    async def _try(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - this is what is looked for
            self._note(error, getattr(error, "stream", b""))

    def _note(self, error: BaseException, stream: bytes) -> None:
        what, where = describe(error)
        self._tally.note(Finding(SERVER.name, what, self._block, stream.hex(), where))

    async def _serve_bad_client(self) -> None:
        stream = self._make_stream() if self._stream is None else self._stream
        frames = cut_stream(stream)
        self._tally.inputs += 1
        self._tally.frames += len(frames) + 1
        failures_before = len(self._log.failures)
        try:
            await self._talk(stream, frames)
            require(len(self._log.failures) == failures_before, "no request fails by our own error")
        except Exception as error:
            error.stream = stream  # type: ignore[attr-defined]
            raise

    async def _talk(self, stream: bytes, sent: list[RawFrame]) -> None:
        rng = self._rng
        connection = ClientConnection(self._context)
        transport = MemoryTransport(connection)
        connection.connection_made(transport)
        await transport.deliver(stream, rng)
        if rng.random() < 0.1 and not transport.is_closing():
            connection.pause_writing()
            await asyncio.sleep(0.01)
            if not transport.is_closing():
                connection.resume_writing()
        is_leaving = rng.random() < 0.3
        await asyncio.sleep(0.001 if is_leaving else LAST_POLL_S)
        is_open = not transport.is_closing()
        answered = _answered_ids(transport.frames)
        self._tally.accepted += sum(answered.values())
        asked = _asked_ids(sent)
        require(not transport.is_mid_frame, "answers are sent whole")
        require(answered <= asked, "what is answered was asked, and is answered once")
        if is_open and not is_leaving:
            greeted = bool(answered)
            require(answered == asked or not greeted, "what was asked is answered")
            self._check_overdue(connection, stream, sent, is_greeted=greeted)
        transport.close()
        await asyncio.sleep(0.001)
        require(connection.is_idle or is_leaving, "nothing is under way behind the end")

    def _check_overdue(
        self,
        connection: ClientConnection,
        stream: bytes,
        sent: list[RawFrame],
        *,
        is_greeted: bool,
    ) -> None:
        """Check that a peer that owes a hello, or the rest of a frame, is disconnected."""
        is_whole = sum(len(frame.encode()) for frame in sent) == len(stream)
        overdue = connection.overdue(simulation_loop().time() + OVERDUE_S)
        if not is_greeted or not is_whole:
            require(overdue is not None, "a peer that does not go on is overdue")
        else:
            require(overdue is None, "a peer that waits for nothing is not overdue")

    async def _check_nothing_left(self) -> None:
        await asyncio.sleep(LAST_POLL_S)
        context = self._context
        require(not context.connections, "every connection is counted out")
        require(context.counters.long_polls_now == 0, "every long poll is counted out")
        require(not context._with_acks, "no ack waits for a connection that is gone")
        require(not context._held, "no ledger is held")

    def _make_stream(self) -> bytes:
        rng = self._rng
        frames: list[RawFrame] = []
        if rng.random() < 0.9:
            hello = Hello(BOOKIE if rng.random() < 0.95 else "", 1, 1, 0, b"", "bad client")
            frames.append(_request(1, hello))
        for ledger in range(1, LEDGERS + 1):
            key = bytes([ledger]) * 32
            frames.append(_request(1 + ledger, AttachLedger(LedgerId(ledger), key)))
        first_id = 10
        count = 1 + int(rng.random() * FRAMES_MAX)
        good = [self._make_frame(first_id + number) for number in range(count)]
        greeting = b"".join([frame.encode() for frame in frames])
        if rng.random() < 0.85:  # damage after a good greeting reaches more code
            return greeting + self._damage.damage(good)
        return self._damage.damage([*frames, *good])

    def _make_frame(self, request_id: int) -> RawFrame:
        rng = self._rng
        ledger = 1 + int(rng.random() * LEDGERS)
        ledger_id, known = LedgerId(ledger), self._next_entry[ledger]
        entry = EntryId(int(rng.random() * (known + 2)))
        if rng.random() < 0.5:
            count = 1 + int(rng.random() * 5)
            first = known if rng.random() < 0.9 else int(entry)
            payloads = [bytes(int(rng.random() * 90))] * count
            batch = build_batch(
                ledger_id, EntryId(first), EntryId(first - 1), 0, payloads, DIGEST_SEED
            )
            self._next_entry[ledger] = max(known, first + count)
            is_recovery = rng.random() < 0.1
            return RawFrame(FrameKind.ADD, request_id, bytes(batch), flags=int(is_recovery))
        requests: tuple[Request, ...] = (
            ReadEntries(ledger_id, entry, EntryId(known), 4_000, fence=rng.random() < 0.05),
            ReadEntries(ledger_id, EntryId(0), entry, 2**31, fence=False),
            ReadLac(ledger_id, fence=rng.random() < 0.05),
            WriteLac(ledger_id, EntryId(max(-1, entry - 1))),
            ReportLac(ledger_id, EntryId(max(-1, entry - 1))),
            WaitLac(ledger_id, EntryId(entry - 1), int(rng.random() * 2_000), 4_000),
            WaitLac(ledger_id, EntryId(known), 60_000, 4_000),
            ListEntries(ledger_id, entry),
            ReadAccess(ledger_id),
            FenceWithoutKey(ledger_id),
            ReadRights(ledger_id),
            Ping(),
            DetachLedger(ledger_id),
            AttachLedger(ledger_id, bytes([ledger]) * 32),
        )
        return _request(request_id, requests[int(rng.random() * len(requests))])


def _request(request_id: int, request: Request) -> RawFrame:
    return RawFrame(FrameKind.REQUEST, request_id, encode_message(request))


def _answered_ids(frames: list[Frame]) -> Counter[tuple[bool, int]]:
    """Count answers by (is it an add's, request id).

    Raises an error that a client would report as a broken answer.
    """
    found: Counter[tuple[bool, int]] = Counter()
    for frame in frames:
        if frame.kind is FrameKind.ACKS:
            found.update((True, request_id) for request_id, _ in decode_acks(frame.body))
            continue
        found[False, frame.request_id] += 1
        if frame.kind is FrameKind.ENTRIES:
            for batch in decode_entries(frame.body).batches:
                batch.verify_crc()
        else:
            require(frame.kind is FrameKind.REPLY, "a bookie sends acks, entries and replies")
            decode_reply(frame.body)
    return found


def _asked_ids(frames: list[RawFrame]) -> Counter[tuple[bool, int]]:
    """Count the expected answers, if all requests are served."""
    asked: Counter[tuple[bool, int]] = Counter()
    for frame in frames:
        if frame.kind == FrameKind.ADD:
            asked[True, frame.request_id] += 1
        elif frame.kind == FrameKind.REQUEST:
            try:
                request = decode_request(memoryview(frame.body))
            except MessageError:
                asked[False, frame.request_id] += 1
                continue
            if not isinstance(request, _UNANSWERED):
                asked[False, frame.request_id] += 1
    return asked


SERVER: Final = EpisodeTarget("server_connection", 1.0, _Episode)
