"""The pool against a scripted bookie on a real socket: every outcome arrives, exactly once."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from bookie.wire.batch import build_batch
from bookie.wire.codec import encode_acks
from bookie.wire.frames import FrameKind, frame_header
from bookie.wire.messages import (
    WIRE_VERSION,
    AttachLedger,
    DetachLedger,
    EntryRanges,
    Hello,
    HelloReply,
    ListEntries,
    Pong,
    ReadEntries,
    ReadLac,
    Refused,
    Reply,
    Request,
    Status,
    WaitLac,
    WriteLac,
)
from ledger_client import connection
from ledger_client.config import ClientConfig
from ledger_client.errors import UnauthorizedError
from ledger_client.observability import BookieConnected, BookieUnreachable, ClientEvent, Observer
from ledger_client.pool import BookieCallError, BookiePool, CallFailure
from ledger_client.pool_link import BookieAddress
from metadata.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from tests.unit.ledger_client.scripted_bookie import ScriptedAddresses, ScriptedBookie, until

LEDGER = LedgerId(7)
KEY = bytes(range(32))


class Outcomes:
    """An AddSink that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: dict[int, list[Status | CallFailure]] = {}
        self.reasons: list[str] = []
        self._changed = asyncio.Event()

    def on_add_answered(self, bookie_id: BookieId, first_entry_id: EntryId, status: Status) -> None:
        self._hear(first_entry_id, status)

    def on_add_failed(
        self, bookie_id: BookieId, first_entry_id: EntryId, failure: CallFailure, reason: str
    ) -> None:
        self.reasons.append(reason)
        self._hear(first_entry_id, failure)

    async def wait_for(self, count: int) -> None:
        while len(self.heard) < count:
            self._changed.clear()
            await self._changed.wait()

    def _hear(self, first_entry_id: EntryId, outcome: Status | CallFailure) -> None:
        self.heard.setdefault(first_entry_id, []).append(outcome)
        self._changed.set()


def batch_at(first_entry_id: int, payload: bytes = b"x", ledger_id: int = LEDGER) -> bytearray:
    return build_batch(LedgerId(ledger_id), EntryId(first_entry_id), NO_ENTRY, 0, [payload], 1)


def send(
    pool: BookiePool, bookie: ScriptedBookie, sink: Outcomes, first: int, size: int = 1
) -> None:
    batch = batch_at(first, bytes(size))
    pool.add(bookie.id, LEDGER, batch, EntryId(first), recovery=False, sink=sink)


@pytest.fixture
async def bookie() -> AsyncIterator[ScriptedBookie]:
    bookie = ScriptedBookie("bookie-a")
    await bookie.start()
    yield bookie
    await bookie.stop()


class Setting:
    def __init__(self, bookie: ScriptedBookie, config: ClientConfig) -> None:
        self.addresses = ScriptedAddresses(bookie)
        self.events: list[ClientEvent] = []
        self.unavailable: list[tuple[BookieId, CallFailure]] = []
        self.observer = Observer(self.events.append)
        self.pool = BookiePool(
            self.addresses,
            config=config,
            rng=Random(1),
            credentials=b"token",
            client_name="test",
            observer=self.observer,
        )
        self.pool.on_unavailable(
            lambda bookie_id, failure, _: self.unavailable.append((bookie_id, failure))
        )


@pytest.fixture
async def setting(bookie: ScriptedBookie) -> AsyncIterator[Setting]:
    config = ClientConfig(add_timeout_s=0.6, connect_timeout_s=0.5, unanswered_bytes_max=100_000)
    setting = Setting(bookie, config)
    yield setting
    await setting.pool.aclose()


async def test_adds_before_the_connection_is_made_arrive_in_order(
    bookie: ScriptedBookie, setting: Setting
) -> None:
    sink = Outcomes()
    for first in range(50):
        send(setting.pool, bookie, sink, first)
    assert sink.heard == {}, "nothing is heard from inside add()"
    await sink.wait_for(50)
    assert sink.heard == {first: [Status.OK] for first in range(50)}
    assert [batch.header.first_entry_id for _, batch in bookie.adds] == list(range(50))
    assert bookie.connection_count == 1
    assert setting.pool.unanswered_bytes(bookie.id) == 0
    assert setting.pool.oldest_unanswered_since(bookie.id) is None
    assert setting.pool.add_latency(bookie.id).quantile(1.0) is not None
    assert setting.observer.adds_sent == 50


async def test_the_hello_says_who_is_meant_and_who_asks(
    bookie: ScriptedBookie, setting: Setting
) -> None:
    assert await setting.pool.ping(bookie.id, timeout_s=5) == Pong(writable=True)
    hello = bookie.requests[0]
    assert hello == Hello("bookie-a", 1, WIRE_VERSION, 0, b"token", "test")
    assert setting.events == [BookieConnected(bookie.id, is_again=False)]


async def test_frames_of_one_tick_leave_in_one_write(
    bookie: ScriptedBookie, setting: Setting
) -> None:
    await setting.pool.ping(bookie.id, timeout_s=5)
    before, sink = len(bookie.reads), Outcomes()
    for ledger_id in range(20):
        batch = batch_at(ledger_id, ledger_id=ledger_id)
        setting.pool.add(
            bookie.id, LedgerId(ledger_id), batch, EntryId(ledger_id), recovery=False, sink=sink
        )
    await sink.wait_for(20)
    assert len(bookie.reads) - before == 1


async def test_each_kind_of_request_gets_its_answer(
    bookie: ScriptedBookie, setting: Setting
) -> None:
    pool, entry = setting.pool, EntryId(3)
    lac, written, entries, waited, ranges = await asyncio.gather(
        pool.read_lac(bookie.id, ReadLac(LEDGER, fence=True), timeout_s=5),
        pool.write_lac(bookie.id, WriteLac(LEDGER, entry), timeout_s=5),
        pool.read_entries(
            bookie.id, ReadEntries(LEDGER, entry, entry, 9, fence=False), timeout_s=5
        ),
        pool.wait_lac(bookie.id, WaitLac(LEDGER, entry, 10, 9), timeout_s=5),
        pool.list_entries(bookie.id, ListEntries(LEDGER, entry), timeout_s=5),
    )
    assert lac.lac == written.lac == 5
    assert entries.status is waited.status is Status.NO_SUCH_ENTRY
    assert ranges == EntryRanges(Status.OK, ((0, 7),), complete=True)
    assert bookie.connection_count == 1


async def test_recovery_adds_carry_their_flag(bookie: ScriptedBookie, setting: Setting) -> None:
    sink = Outcomes()
    for first, recovery in ((0, False), (1, True)):
        setting.pool.add(
            bookie.id, LEDGER, batch_at(first), EntryId(first), recovery=recovery, sink=sink
        )
    await sink.wait_for(2)
    assert [flags for flags, _ in bookie.adds] == [0, 1]


async def test_a_ledgers_key_goes_first_on_every_connection(
    bookie: ScriptedBookie, setting: Setting
) -> None:
    pool, sink = setting.pool, Outcomes()
    pool.attach(LEDGER, KEY)
    pool.attach(LEDGER, KEY)
    send(pool, bookie, sink, 0)
    send(pool, bookie, sink, 1)
    await sink.wait_for(2)
    bookie.drop_connections()
    await until(lambda: bool(setting.unavailable))
    await reconnect(pool, bookie)
    await pool.read_lac(bookie.id, ReadLac(LEDGER, fence=False), timeout_s=5)
    pool.detach(LEDGER)
    await pool.ping(bookie.id, timeout_s=5)
    pool.detach(LEDGER)
    await pool.ping(bookie.id, timeout_s=5)
    seen = [name for name in bookie.order if name not in ("Ping", "Hello")]
    assert seen == [
        "AttachLedger",
        "add 7/0",
        "add 7/1",
        "AttachLedger",
        "ReadLac",
        "DetachLedger",
    ]
    assert AttachLedger(LEDGER, KEY) in bookie.requests
    assert DetachLedger(LEDGER) in bookie.requests


async def reconnect(pool: BookiePool, bookie: ScriptedBookie) -> None:
    while True:
        try:
            await pool.ping(bookie.id, timeout_s=5)
            return
        except BookieCallError:
            await asyncio.sleep(0.01)


async def test_one_client_uses_one_key_per_ledger(setting: Setting) -> None:
    setting.pool.attach(LEDGER, KEY)
    with pytest.raises(UnauthorizedError, match="another password"):
        setting.pool.attach(LEDGER, bytes(32))
    setting.pool.detach(LEDGER)
    setting.pool.attach(LEDGER, bytes(32))


async def test_a_refusal_is_an_answer(bookie: ScriptedBookie, setting: Setting) -> None:
    bookie.answer = lambda _: Refused(Status.UNAUTHORIZED, "no")
    bookie.add_status = Status.FENCED
    with pytest.raises(BookieCallError) as caught:
        await setting.pool.read_lac(bookie.id, ReadLac(LEDGER, fence=True), timeout_s=5)
    assert (caught.value.status, caught.value.failure) == (Status.UNAUTHORIZED, None)
    sink = Outcomes()
    send(setting.pool, bookie, sink, 0)
    await sink.wait_for(1)
    assert sink.heard == {0: [Status.FENCED]}
    assert setting.unavailable == []


async def test_a_lost_connection_fails_everything_once(
    bookie: ScriptedBookie, setting: Setting
) -> None:
    await setting.pool.ping(bookie.id, timeout_s=5)
    bookie.is_silent = True
    sink = Outcomes()
    for first in range(10):
        send(setting.pool, bookie, sink, first)
    call = asyncio.create_task(setting.pool.ping(bookie.id, timeout_s=5))
    await until(lambda: len(bookie.adds) == 10)
    assert setting.pool.unanswered_bytes(bookie.id) > 0
    since = setting.pool.oldest_unanswered_since(bookie.id)
    assert since is not None
    assert since <= asyncio.get_running_loop().time()
    bookie.drop_connections()
    await sink.wait_for(10)
    with pytest.raises(BookieCallError) as caught:
        await call
    assert caught.value.failure is CallFailure.LOST
    await setting.pool.aclose()
    assert sink.heard == {first: [CallFailure.LOST] for first in range(10)}
    assert setting.unavailable == [(bookie.id, CallFailure.LOST)]
    assert setting.pool.unanswered_bytes(bookie.id) == 0
    assert isinstance(setting.events[-1], BookieUnreachable)


async def test_an_add_without_answer_times_out_and_the_late_answer_changes_nothing(
    bookie: ScriptedBookie, setting: Setting
) -> None:
    await setting.pool.ping(bookie.id, timeout_s=5)
    bookie.is_silent = True
    sink = Outcomes()
    send(setting.pool, bookie, sink, 0)
    await sink.wait_for(1)
    assert sink.heard == {0: [CallFailure.TIMEOUT]}
    late = encode_acks([(3, Status.OK)])  # after the hello and the ping
    bookie.send_raw(frame_header(FrameKind.ACKS, 0, len(late)) + late)
    bookie.is_silent = False
    await setting.pool.ping(bookie.id, timeout_s=5)
    assert sink.heard == {0: [CallFailure.TIMEOUT]}
    assert bookie.connection_count == 1


async def test_a_call_without_answer_times_out(bookie: ScriptedBookie, setting: Setting) -> None:
    await setting.pool.ping(bookie.id, timeout_s=5)
    bookie.is_silent = True
    with pytest.raises(BookieCallError, match="was not answered within") as caught:
        await setting.pool.ping(bookie.id, timeout_s=0.05)
    assert caught.value.failure is CallFailure.TIMEOUT


async def test_a_half_open_connection_is_given_up(
    bookie: ScriptedBookie, setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PING_AFTER_S", 0.1)
    monkeypatch.setattr(connection, "PING_TIMEOUT_S", 0.1)
    await setting.pool.ping(bookie.id, timeout_s=5)
    bookie.is_silent = True
    with pytest.raises(BookieCallError) as caught:
        await setting.pool.read_lac(bookie.id, ReadLac(LEDGER, fence=True), timeout_s=20)
    assert caught.value.failure is CallFailure.LOST
    assert setting.unavailable == [(bookie.id, CallFailure.LOST)]


async def test_unanswered_bytes_are_bounded(bookie: ScriptedBookie, setting: Setting) -> None:
    await setting.pool.ping(bookie.id, timeout_s=5)
    bookie.is_silent = True
    sink = Outcomes()
    for first in range(4):
        send(setting.pool, bookie, sink, first, size=40_000)
    await sink.wait_for(2)
    assert sink.heard == {2: [CallFailure.OVERFLOW], 3: [CallFailure.OVERFLOW]}


async def test_queued_bytes_are_bounded(bookie: ScriptedBookie, setting: Setting) -> None:
    bookie.is_silent = True
    sink = Outcomes()
    for first in range(4):
        send(setting.pool, bookie, sink, first, size=40_000)
    assert setting.pool.unanswered_bytes(bookie.id) > 80_000
    assert setting.pool.oldest_unanswered_since(bookie.id) is not None
    await sink.wait_for(4)
    assert sink.heard == {
        0: [CallFailure.TIMEOUT],
        1: [CallFailure.TIMEOUT],
        2: [CallFailure.OVERFLOW],
        3: [CallFailure.OVERFLOW],
    }


async def test_a_batch_over_the_bookies_limit_is_not_sent(
    bookie: ScriptedBookie, setting: Setting
) -> None:
    bookie.frame_bytes_max = 1000
    sink = Outcomes()
    send(setting.pool, bookie, sink, 0, size=2000)
    send(setting.pool, bookie, sink, 1)
    await sink.wait_for(2)
    assert sink.heard == {0: [CallFailure.PROTOCOL], 1: [Status.OK]}


async def test_nobody_listens(bookie: ScriptedBookie, setting: Setting) -> None:
    await bookie.stop()
    sink = Outcomes()
    send(setting.pool, bookie, sink, 0)
    await sink.wait_for(1)
    assert sink.heard == {0: [CallFailure.REFUSED]}
    assert setting.unavailable == [(bookie.id, CallFailure.REFUSED)]
    send(setting.pool, bookie, sink, 1)  # between attempts: at once, with the same failure
    await sink.wait_for(2)
    assert sink.heard[1] == [CallFailure.REFUSED]
    assert len(setting.unavailable) == 1


async def test_a_bookie_that_returns_is_reached_again(
    bookie: ScriptedBookie, setting: Setting
) -> None:
    await bookie.stop()
    with pytest.raises(BookieCallError):
        await setting.pool.ping(bookie.id, timeout_s=5)
    await bookie.start()
    setting.addresses.known[bookie.id] = bookie.address
    await reconnect(setting.pool, bookie)


async def test_a_bookie_that_is_not_registered(setting: Setting) -> None:
    with pytest.raises(BookieCallError) as caught:
        await setting.pool.ping(BookieId("nobody"), timeout_s=5)
    assert caught.value.failure is CallFailure.NOT_REGISTERED


async def test_addresses_that_cannot_be_read(bookie: ScriptedBookie, setting: Setting) -> None:
    setting.addresses.is_down = True
    with pytest.raises(BookieCallError, match="nowhere") as caught:
        await setting.pool.ping(bookie.id, timeout_s=5)
    assert caught.value.failure is CallFailure.REFUSED


async def test_another_bookie_at_the_address(bookie: ScriptedBookie, setting: Setting) -> None:
    other = ScriptedBookie("bookie-b")
    await other.start()
    setting.addresses.known[bookie.id] = other.address
    setting.addresses.fresh[bookie.id] = bookie.address
    await setting.pool.ping(bookie.id, timeout_s=5)
    assert setting.addresses.asked == [(bookie.id, False), (bookie.id, True)]
    assert bookie.connection_count == other.connection_count == 1
    await other.stop()


async def test_another_bookie_for_good(bookie: ScriptedBookie, setting: Setting) -> None:
    wrong = BookieId("bookie-c")
    setting.addresses.known[wrong] = bookie.address
    with pytest.raises(BookieCallError, match="WRONG_BOOKIE") as caught:
        await setting.pool.ping(wrong, timeout_s=5)
    assert caught.value.failure is CallFailure.REFUSED
    assert bookie.connection_count == 2


@pytest.mark.parametrize("status", [Status.UNAUTHORIZED, Status.UNSUPPORTED_VERSION])
async def test_a_refused_hello(bookie: ScriptedBookie, setting: Setting, status: Status) -> None:
    bookie.hello = lambda _: HelloReply(status, "", 0, 0, 0, 0, "go away")
    with pytest.raises(BookieCallError, match="go away") as caught:
        await setting.pool.ping(bookie.id, timeout_s=5)
    assert caught.value.failure is CallFailure.REFUSED
    assert caught.value.status is status


@pytest.mark.parametrize(
    ("bookie_id", "wire_version"), [("bookie-z", WIRE_VERSION), ("bookie-a", WIRE_VERSION + 1)]
)
async def test_a_hello_that_cannot_be(
    bookie: ScriptedBookie, setting: Setting, bookie_id: str, wire_version: int
) -> None:
    bookie.hello = lambda _: HelloReply(Status.OK, bookie_id, wire_version, 0, 1000, 1000, "")
    with pytest.raises(BookieCallError) as caught:
        await setting.pool.ping(bookie.id, timeout_s=5)
    assert caught.value.failure is CallFailure.PROTOCOL


async def test_a_bookie_that_never_says_hello(bookie: ScriptedBookie, setting: Setting) -> None:
    bookie.hello = lambda _: None
    with pytest.raises(BookieCallError, match="not connected within") as caught:
        await setting.pool.ping(bookie.id, timeout_s=5)
    assert caught.value.failure is CallFailure.TIMEOUT


ANSWERS_OF_ANOTHER_FORM: list[Reply | bytes] = [
    EntryRanges(Status.OK, (), complete=True),
    Pong(writable=True),
    HelloReply(Status.OK, "bookie-a", WIRE_VERSION, 0, 1000, 1000, ""),
    bytes(24),
    b"short",
]


@pytest.mark.parametrize("answer", ANSWERS_OF_ANOTHER_FORM, ids=lambda a: type(a).__name__)
async def test_an_answer_of_another_form_ends_the_connection(
    bookie: ScriptedBookie, setting: Setting, answer: Reply | bytes
) -> None:
    def wrong(request: Request) -> Reply | bytes | None:
        return answer if isinstance(request, ReadLac) else bookie.usual_answer(request)

    bookie.answer = wrong
    bookie.add_status = Status.OK
    with pytest.raises(BookieCallError) as caught:
        await setting.pool.read_lac(bookie.id, ReadLac(LEDGER, fence=False), timeout_s=5)
    assert caught.value.failure is CallFailure.PROTOCOL
    await reconnect(setting.pool, bookie)
    assert bookie.connection_count == 2


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff" * 64,
        frame_header(FrameKind.ADD, 1, 0),
        frame_header(FrameKind.ACKS, 0, 3) + b"abc",
        frame_header(FrameKind.ACKS, 0, 8) + b"\x09\x00\x00\x00\xff\xff\xff\xff",
        frame_header(FrameKind.REPLY, 9, 4) + b"\xc1\xc1\xc1\xc1",
        frame_header(FrameKind.REPLY, 9, 0)[:8] + b"\xff\xff\xff\xff",
    ],
)
async def test_garbage_ends_the_connection_and_nothing_else(
    bookie: ScriptedBookie, setting: Setting, garbage: bytes
) -> None:
    await setting.pool.ping(bookie.id, timeout_s=5)
    bookie.is_silent = True
    sink = Outcomes()
    send(setting.pool, bookie, sink, 0)
    await until(lambda: bool(bookie.adds))
    bookie.send_raw(garbage)
    await sink.wait_for(1)
    assert sink.heard == {0: [CallFailure.PROTOCOL]}
    bookie.is_silent = False
    await reconnect(setting.pool, bookie)


async def test_cancelling_a_call_leaves_the_connection(
    bookie: ScriptedBookie, setting: Setting
) -> None:
    await setting.pool.ping(bookie.id, timeout_s=5)
    bookie.is_silent = True
    call = asyncio.create_task(setting.pool.ping(bookie.id, timeout_s=5))
    await asyncio.sleep(0.02)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    bookie.is_silent = False
    await setting.pool.ping(bookie.id, timeout_s=5)
    assert bookie.connection_count == 1


async def test_cancelling_one_caller_does_not_cancel_the_attempt(
    bookie: ScriptedBookie, setting: Setting
) -> None:
    first = asyncio.create_task(setting.pool.ping(bookie.id, timeout_s=5))
    second = asyncio.create_task(setting.pool.ping(bookie.id, timeout_s=5))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == Pong(writable=True)
    assert first.cancelled()
    assert bookie.connection_count == 1


async def test_closing_fails_everything_as_closed(bookie: ScriptedBookie, setting: Setting) -> None:
    sink = Outcomes()
    send(setting.pool, bookie, sink, 0)
    call = asyncio.create_task(setting.pool.ping(bookie.id, timeout_s=5))
    await asyncio.sleep(0)
    await setting.pool.aclose()
    send(setting.pool, bookie, sink, 1)
    await sink.wait_for(2)
    assert sink.heard == {0: [CallFailure.CLOSED], 1: [CallFailure.CLOSED]}
    for waiting in (call, asyncio.create_task(setting.pool.ping(bookie.id, timeout_s=5))):
        with pytest.raises(BookieCallError) as caught:
            await waiting
        assert caught.value.failure is CallFailure.CLOSED
    assert setting.unavailable == []


async def test_a_bookie_with_tls_is_not_spoken_to_in_the_clear(
    bookie: ScriptedBookie, setting: Setting
) -> None:
    address = bookie.address
    setting.addresses.known[bookie.id] = BookieAddress(address.host, address.port, is_tls=True)
    with pytest.raises(BookieCallError, match="see `ssl`"):
        await setting.pool.ping(bookie.id, timeout_s=5)
    assert bookie.connection_count == 0


async def test_a_departed_bookie_is_announced(setting: Setting) -> None:
    setting.pool.note_departed(BookieId("bookie-q"))
    assert setting.unavailable == [(BookieId("bookie-q"), CallFailure.NOT_REGISTERED)]
