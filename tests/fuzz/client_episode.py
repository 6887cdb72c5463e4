"""Fuzzer of the client's end of a connection: a bookie that answers with damaged streams.

Leaves damage to `tests.fuzz.streams`, and the handling of outcomes to writers and readers.

Invariants checked: every add and every call ends exactly once, by an answer of its kind or by a
typed failure. No other exception is raised, in the connection or on the loop. The loss of the
connection is reported once. The count of waiting requests returns to 0.
"""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final

from bookie.wire.batch import build_batch
from bookie.wire.codec import Entries, encode_acks, encode_entries, encode_message
from bookie.wire.frames import FRAME_BYTES_MAX, FrameKind
from bookie.wire.messages import (
    EntryRanges,
    Hello,
    HelloReply,
    LacReply,
    ListEntries,
    Ping,
    Pong,
    ReadEntries,
    ReadLac,
    Refused,
    Reply,
    Request,
    Status,
)
from ledger_client.bookies.connection import Answer, BookieConnection
from ledger_client.bookies.connection_calls import BookieCallError, CallFailure, PendingAdd
from metadata.ids import BookieId, EntryId, LedgerId
from tests.fuzz.findings import Finding, Tally, describe, require
from tests.fuzz.memory_transport import MemoryTransport
from tests.fuzz.sealing import seal_batch
from tests.fuzz.streams import RawFrame, StreamDamage
from tests.fuzz.wire_targets import BATCHES, DIGEST_SEED, REPLIES, sample_answers
from tests.simulation.loop import run_simulation, simulation_loop

BOOKIE: Final = BookieId("bookie-a")
ONE: Final = LedgerId(1)
STREAMS_PER_EPISODE: Final = 24
ADDS_MAX: Final = 12
CALLS_MAX: Final = 12
ADD_TIMEOUT_S: Final = 5.0
END_S: Final = 12.0
"""Longer than every deadline: the adds' timeout, pings and their timeout."""
_BODIES: Final = (*(encode_message(reply) for reply in REPLIES), *sample_answers(), *BATCHES)


@dataclass(slots=True)
class Sink:
    """Counts the outcomes of one add."""

    outcomes: list[object] = field(default_factory=list)

    def on_add_answered(self, bookie_id: BookieId, first_entry_id: EntryId, status: Status) -> None:
        """Record an answer."""
        require(bookie_id == BOOKIE and first_entry_id >= 0, "an outcome names its add")
        self.outcomes.append(status)

    def on_add_failed(
        self, bookie_id: BookieId, first_entry_id: EntryId, failure: CallFailure, reason: str
    ) -> None:
        """Record a failure."""
        require(bookie_id == BOOKIE and first_entry_id >= 0, "an outcome names its add")
        self.outcomes.append(failure if reason else None)


class ClientTarget:
    """See `tests.fuzz.targets.Target`; a block is an episode of streams, one on each connection."""

    name = "client_connection"
    weight = 1.0

    def run_block(self, seed: int, number: int, tally: Tally) -> None:
        """See `Target`."""
        block = f"{self.name} {seed} {number}"
        rng = random.Random(block)

        async def episode() -> None:
            damage = StreamDamage(rng, _BODIES, {int(FrameKind.ENTRIES): _seal_first_batch})
            for _ in range(STREAMS_PER_EPISODE):
                await _feed(_Talk(rng, damage, None), tally, block)

        run_simulation(episode, number)

    def replay(self, data: bytes, *, is_forged: bool) -> Tally:
        """See `Target`."""
        del is_forged
        tally, rng = Tally(), random.Random(1)

        async def episode() -> None:
            damage = StreamDamage(rng, _BODIES, {})
            await _feed(_Talk(rng, damage, data), tally, "replay")

        run_simulation(episode, 1)
        return tally


async def _feed(talk: "_Talk", tally: Tally, block: str) -> None:
    tally.inputs += 1
    loop = simulation_loop()
    errors: list[BaseException] = []
    try:
        await talk.run()
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        errors.append(error)
    tally.frames += talk.frame_count
    tally.accepted += talk.answered_count
    for failure in [*errors, *loop.failures]:
        what, where = describe(failure)
        tally.note(Finding(ClientTarget.name, what, block, talk.stream.hex(), where))
    loop.failures.clear()


class _Talk:
    """One connection: a hello, some adds and calls, then the bookie's stream."""

    def __init__(self, rng: random.Random, damage: StreamDamage, stream: bytes | None) -> None:
        self.frame_count = 0
        self.answered_count = 0
        self.stream = b""
        self._given = stream
        self._rng = rng
        self._damage = damage
        self._lost: list[CallFailure] = []
        self._sinks: list[Sink] = []
        self._calls: list[asyncio.Task[Answer]] = []
        self._expected: list[type[object]] = []
        self._answers: list[RawFrame] = []
        self._answer_count = 0
        self._is_greeting_damaged = False
        self._is_damaged = True

    async def run(self) -> None:
        """Run the connection, and check how everything ended."""
        rng = self._rng
        hello = Hello(BOOKIE, 1, 1, 0, b"", "fuzz")
        connection = BookieConnection(
            BOOKIE,
            hello,
            add_timeout_s=ADD_TIMEOUT_S,
            on_lost=lambda _connection, failure, _reason: self._lost.append(failure),
            on_latency=lambda sent, answered, _count: require(sent <= answered, "time goes on"),
        )
        transport = MemoryTransport(connection)
        connection.connection_made(transport)
        await transport.deliver(self._greeting(), rng)
        if connection.is_open and not transport.is_closing():
            connection.is_welcome = True
            await self._ask(connection)
            await transport.deliver(self._make_stream(), rng)
            if rng.random() < 0.2:
                connection.pause_writing()
                connection.resume_writing()
            if rng.random() < 0.2:
                await asyncio.sleep(END_S)
        connection.close(CallFailure.CLOSED, "the test is over")
        await asyncio.sleep(0.001)
        await self._check_ends(connection, transport)

    def _greeting(self) -> bytes:
        reply = HelloReply(Status.OK, BOOKIE, 1, 0, FRAME_BYTES_MAX, 2**23, "", "")
        frame = RawFrame(FrameKind.REPLY, 1, encode_message(reply))
        self.frame_count += 1
        if self._given is not None or self._rng.random() < 0.9:
            return frame.encode()
        self.stream = self._damage.damage([frame])
        self._is_greeting_damaged = self.stream != frame.encode()
        return self.stream

    def _make_stream(self) -> bytes:
        if self._given is None:
            self._rng.shuffle(self._answers)
            self.frame_count += len(self._answers)
            self.stream = self._damage.damage(self._answers)
            undamaged = b"".join(frame.encode() for frame in self._answers)
            # Data that a greeting leaves over is part of what follows.
            self._is_damaged = self._is_greeting_damaged or self.stream != undamaged
        else:
            self.frame_count += 1
            self.stream = self._given
        return self.stream

    async def _ask(self, connection: BookieConnection) -> None:
        rng = self._rng
        connection.attach(ONE, bytes(32))
        acks: list[tuple[int, Status]] = []
        request_id = 2  # the hello and the attachment used 1 and 2
        for number in range(int(rng.random() * ADDS_MAX)):
            sink = Sink()
            self._sinks.append(sink)
            batch = build_batch(ONE, EntryId(number), EntryId(-1), 0, [b"x"], DIGEST_SEED)
            connection.send_add(PendingAdd(ONE, batch, EntryId(number), recovery=False, sink=sink))
            request_id += 1
            if rng.random() < 0.9:
                acks.append((request_id, Status.OK if rng.random() < 0.8 else Status.FENCED))
        for _ in range(int(rng.random() * CALLS_MAX)):
            request, expects, kind, body = self._make_call()
            before = len(connection._calls)
            self._calls.append(asyncio.ensure_future(connection.call(request, expects)))
            self._expected.append(expects)
            while len(connection._calls) == before:  # noqa: ASYNC110 - ids follow the calls
                await asyncio.sleep(0)
            request_id += 1
            if rng.random() < 0.9:
                self._answers.append(RawFrame(kind, request_id, body))
                self._answer_count += 1
        self._answer_count += len(acks)
        cut = int(rng.random() * (len(acks) + 1))
        for part in filter(None, (acks[:cut], acks[cut:])):
            self._answers.append(RawFrame(FrameKind.ACKS, 0, encode_acks(part)))

    def _make_call(self) -> tuple[Request, type[object], FrameKind, bytes]:
        rng = self._rng
        entry = EntryId(int(rng.random() * 9))
        batches = BATCHES[: int(rng.random() * 4)]
        entries = b"".join(encode_entries(Status.OK, entry, entry, batches))
        ranges = tuple((10 * i, 10 * i + 3) for i in range(int(rng.random() * 20)))
        calls: tuple[tuple[Request, type[object], FrameKind, bytes | Reply], ...] = (
            (ReadEntries(ONE, entry, entry, 9, fence=False), Entries, FrameKind.ENTRIES, entries),
            (
                ReadLac(ONE, fence=True),
                LacReply,
                FrameKind.REPLY,
                LacReply(Status.OK, entry, entry, fenced=True),
            ),
            (
                ListEntries(ONE, entry),
                EntryRanges,
                FrameKind.REPLY,
                EntryRanges(Status.OK, ranges, complete=True),
            ),
            (Ping(), Pong, FrameKind.REPLY, Pong(writable=True, append_p99_us=0)),
            (Ping(), Pong, FrameKind.REPLY, Refused(Status.CLOSING, "closing")),
        )
        request, expects, kind, answer = calls[int(rng.random() * len(calls))]
        body = answer if isinstance(answer, bytes) else encode_message(answer)
        return request, expects, kind, body

    async def _check_ends(self, connection: BookieConnection, transport: MemoryTransport) -> None:
        require(transport.is_lost, "the transport is closed")
        require(len(self._lost) == 1, f"the loss is reported once, not {self._lost}")
        require(connection.ended.done() and connection.opened.done(), "every waiter gets the end")
        require(not any(connection.unanswered), "what waited is counted out")
        for sink in self._sinks:
            require(len(sink.outcomes) == 1, f"an add ends once, not {sink.outcomes}")
            self.answered_count += isinstance(sink.outcomes[0], Status)
        require(all(call.done() for call in self._calls), "a call ends with its connection")
        results = await asyncio.gather(*self._calls, return_exceptions=True)
        for result, expects in zip(results, self._expected, strict=True):
            if isinstance(result, BaseException):
                if not isinstance(result, BookieCallError):
                    raise result
                self.answered_count += result.status is not None
            else:
                require(isinstance(result, expects), "an answer is of the form that was asked for")
                self.answered_count += 1
        is_all = self.answered_count == self._answer_count
        require(is_all or self._is_damaged, "each good answer of a bookie reaches its waiter")


def _seal_first_batch(data: bytearray, rng: random.Random) -> None:
    seal_batch(data, rng, 24)
