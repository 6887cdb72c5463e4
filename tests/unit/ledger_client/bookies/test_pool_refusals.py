"""Bookies that are absent, replaced by others, or violate the protocol cause a typed failure (2.1,
2.3).
"""

import asyncio

import pytest

from bookie.wire.frames import FrameKind, frame_header
from bookie.wire.messages import (
    WIRE_VERSION,
    EntryRanges,
    HelloReply,
    Pong,
    ReadLac,
    Reply,
    Request,
    Status,
)
from ledger_client.bookies.pool import BookieCallError, CallFailure
from ledger_client.bookies.pool_link import BookieAddress
from metadata.ids import BookieId
from tests.support.ledger_client.pool_setting import LEDGER, Outcomes, Setting, reconnect, send
from tests.support.ledger_client.scripted_bookie import ScriptedBookie
from tests.until import until


async def test_a_refused_connection(bookie: ScriptedBookie, setting: Setting) -> None:
    await bookie.stop()
    sink = Outcomes()
    send(setting.pool, bookie, sink, 0)
    await sink.wait_for(1)
    assert sink.outcomes == {0: [CallFailure.REFUSED]}
    assert setting.unavailable == [(bookie.id, CallFailure.REFUSED)]
    send(setting.pool, bookie, sink, 1)  # between attempts: at once, with the same failure
    await sink.wait_for(2)
    assert sink.outcomes[1] == [CallFailure.REFUSED]
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
        await setting.pool.ping(BookieId("unregistered"), timeout_s=5)
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


async def test_another_bookie_permanently_at_the_address(
    bookie: ScriptedBookie, setting: Setting
) -> None:
    wrong = BookieId("bookie-c")
    setting.addresses.known[wrong] = bookie.address
    with pytest.raises(BookieCallError, match="WRONG_BOOKIE") as caught:
        await setting.pool.ping(wrong, timeout_s=5)
    assert caught.value.failure is CallFailure.REFUSED
    assert bookie.connection_count == 2


@pytest.mark.parametrize("status", [Status.UNAUTHORIZED, Status.UNSUPPORTED_VERSION])
async def test_a_refused_hello(bookie: ScriptedBookie, setting: Setting, status: Status) -> None:
    bookie.hello = lambda _: HelloReply(status, "", 0, 0, 0, 0, "go away", "")
    with pytest.raises(BookieCallError, match="go away") as caught:
        await setting.pool.ping(bookie.id, timeout_s=5)
    assert caught.value.failure is CallFailure.REFUSED
    assert caught.value.status is status


@pytest.mark.parametrize(
    ("bookie_id", "wire_version"), [("bookie-z", WIRE_VERSION), ("bookie-a", WIRE_VERSION + 1)]
)
async def test_an_impossible_hello(
    bookie: ScriptedBookie, setting: Setting, bookie_id: str, wire_version: int
) -> None:
    bookie.hello = lambda _: HelloReply(Status.OK, bookie_id, wire_version, 0, 1000, 1000, "", "")
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
    Pong(writable=True, append_p99_us=0),
    HelloReply(Status.OK, "bookie-a", WIRE_VERSION, 0, 1000, 1000, "", ""),
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
    assert sink.outcomes == {0: [CallFailure.PROTOCOL]}
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
    assert await second == Pong(writable=True, append_p99_us=0)
    assert first.cancelled()
    assert bookie.connection_count == 1


@pytest.mark.parametrize("error", [UnicodeError("label empty"), LookupError("a defect")])
async def test_an_error_of_any_class_is_a_failure_of_the_bookie(
    bookie: ScriptedBookie, setting: Setting, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Such as the resolver's UnicodeError for a name with an empty label."""

    async def open_none(*_: object, ssl: object) -> None:
        assert ssl is None
        raise error

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", open_none)
    sink = Outcomes()
    send(setting.pool, bookie, sink, 0)
    await sink.wait_for(1)
    assert sink.outcomes == {0: [CallFailure.REFUSED]}
    assert sink.reasons == [f"{type(error).__name__}: {error}"]
    assert setting.unavailable == [(bookie.id, CallFailure.REFUSED)]
    with pytest.raises(BookieCallError, match=type(error).__name__) as caught:
        await setting.pool.ping(bookie.id, timeout_s=5)
    assert caught.value.failure is CallFailure.REFUSED


async def test_closing_fails_everything_as_closed(bookie: ScriptedBookie, setting: Setting) -> None:
    sink = Outcomes()
    send(setting.pool, bookie, sink, 0)
    call = asyncio.create_task(setting.pool.ping(bookie.id, timeout_s=5))
    await asyncio.sleep(0)
    await setting.pool.aclose()
    send(setting.pool, bookie, sink, 1)
    await sink.wait_for(2)
    assert sink.outcomes == {0: [CallFailure.CLOSED], 1: [CallFailure.CLOSED]}
    for waiting in (call, asyncio.create_task(setting.pool.ping(bookie.id, timeout_s=5))):
        with pytest.raises(BookieCallError) as caught:
            await waiting
        assert caught.value.failure is CallFailure.CLOSED
    assert setting.unavailable == []


async def test_a_bookie_with_tls_is_not_contacted_without_tls(
    bookie: ScriptedBookie, setting: Setting
) -> None:
    address = bookie.address
    setting.addresses.known[bookie.id] = BookieAddress(
        address.host, address.port, is_tls=True, offers_tls=True
    )
    with pytest.raises(BookieCallError, match="or the option `ssl`"):
        await setting.pool.ping(bookie.id, timeout_s=5)
    assert bookie.connection_count == 0


async def test_a_departed_bookie_is_reported(setting: Setting) -> None:
    setting.pool.note_departed(BookieId("bookie-q"))
    assert setting.unavailable == [(BookieId("bookie-q"), CallFailure.NOT_REGISTERED)]
