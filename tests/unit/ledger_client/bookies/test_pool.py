"""The pool against a scripted bookie on a real socket: every outcome arrives exactly once (4.2,
4.6).
"""

import asyncio

import pytest

from bookie.wire.codec import encode_acks
from bookie.wire.frames import FrameKind, frame_header
from bookie.wire.messages import (
    WIRE_VERSION,
    AttachLedger,
    DetachLedger,
    EntryRanges,
    Hello,
    ListEntries,
    Pong,
    ReadEntries,
    ReadLac,
    Refused,
    Status,
    WaitLac,
)
from ledger_client.bookies import connection
from ledger_client.bookies.pool import BookieCallError, CallFailure
from ledger_client.errors import UnauthorizedError
from ledger_client.observability import BookieConnected, BookieUnreachable
from metadata.ids import EntryId, LedgerId
from tests.support.ledger_client.pool_setting import (
    KEY,
    LEDGER,
    Outcomes,
    Setting,
    batch_at,
    reconnect,
    send,
)
from tests.support.ledger_client.scripted_bookie import ScriptedBookie
from tests.until import until


async def test_adds_before_the_connection_is_made_arrive_in_order(
    bookie: ScriptedBookie, setting: Setting
) -> None:
    sink = Outcomes()
    for first in range(50):
        send(setting.pool, bookie, sink, first)
    assert sink.outcomes == {}, "no sink is called from inside add()"
    await sink.wait_for(50)
    assert sink.outcomes == {first: [Status.OK] for first in range(50)}
    assert [batch.header.first_entry_id for _, batch in bookie.adds] == list(range(50))
    assert bookie.connection_count == 1
    assert setting.pool.unanswered_bytes(bookie.id) == 0
    assert setting.pool.oldest_unanswered_since(bookie.id) is None
    assert setting.pool.add_latency(bookie.id).quantile(1.0) is not None
    assert setting.observer.adds_sent == 50


async def test_the_hello_names_the_bookie_and_the_client(
    bookie: ScriptedBookie, setting: Setting
) -> None:
    assert await setting.pool.ping(bookie.id, timeout_s=5) == Pong(writable=True, append_p99_us=0)
    hello = bookie.requests[0]
    assert hello == Hello("bookie-a", 1, WIRE_VERSION, 0, b"token", "test")
    assert setting.events == [BookieConnected(bookie.id, is_again=False)]


async def test_frames_of_one_tick_are_sent_in_one_write(
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
    lac, entries, waited, ranges = await asyncio.gather(
        pool.read_lac(bookie.id, ReadLac(LEDGER, fence=True), timeout_s=5),
        pool.read_entries(
            bookie.id, ReadEntries(LEDGER, entry, entry, 9, fence=False), timeout_s=5
        ),
        pool.wait_lac(bookie.id, WaitLac(LEDGER, entry, 10, 9), timeout_s=5),
        pool.list_entries(bookie.id, ListEntries(LEDGER, entry), timeout_s=5),
    )
    assert lac.lac == 5
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


async def test_a_ledgers_key_is_sent_first_on_every_connection(
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
    assert sink.outcomes == {0: [Status.FENCED]}
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
    assert sink.outcomes == {first: [CallFailure.LOST] for first in range(10)}
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
    assert sink.outcomes == {0: [CallFailure.TIMEOUT]}
    late = encode_acks([(3, Status.OK)])  # after the hello and the ping
    bookie.send_raw(frame_header(FrameKind.ACKS, 0, len(late)) + late)
    bookie.is_silent = False
    await setting.pool.ping(bookie.id, timeout_s=5)
    assert sink.outcomes == {0: [CallFailure.TIMEOUT]}
    assert bookie.connection_count == 1


async def test_a_call_without_answer_times_out(bookie: ScriptedBookie, setting: Setting) -> None:
    await setting.pool.ping(bookie.id, timeout_s=5)
    bookie.is_silent = True
    with pytest.raises(BookieCallError, match="was not answered within") as caught:
        await setting.pool.ping(bookie.id, timeout_s=0.05)
    assert caught.value.failure is CallFailure.TIMEOUT


async def test_a_half_open_connection_is_closed(
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
    assert sink.outcomes == {2: [CallFailure.OVERFLOW], 3: [CallFailure.OVERFLOW]}


async def test_queued_bytes_are_bounded(bookie: ScriptedBookie, setting: Setting) -> None:
    bookie.is_silent = True
    sink = Outcomes()
    for first in range(4):
        send(setting.pool, bookie, sink, first, size=40_000)
    assert setting.pool.unanswered_bytes(bookie.id) > 80_000
    assert setting.pool.oldest_unanswered_since(bookie.id) is not None
    await sink.wait_for(4)
    assert sink.outcomes == {
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
    assert sink.outcomes == {0: [CallFailure.PROTOCOL], 1: [Status.OK]}
