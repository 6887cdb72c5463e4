"""Answers of a connection: hellos, adds, reads, fences, lists; and its authorization."""

import asyncio
from dataclasses import replace

import pytest

from bookie.server import server_context
from bookie.server.connection import ClientConnection
from bookie.wire.codec import Entries
from bookie.wire.frames import Frame, FrameKind, frame_header
from bookie.wire.messages import (
    DetachLedger,
    EntryRanges,
    HelloReply,
    LacReply,
    ListEntries,
    Ping,
    Pong,
    ReadEntries,
    ReadLac,
    Refused,
    Status,
    WaitLac,
    WriteLac,
)
from metadata.ids import NO_ENTRY, EntryId, LedgerId
from quire.server import connection
from tests.support.bookie import wire_client
from tests.support.bookie.running_server import BOOKIE, RunningServer
from tests.support.bookie.wire_client import KEY, WireClient, batch_of, hello, payloads_of
from tests.support.loop_passes import counting_passes
from tests.until import until

ONE = LedgerId(1)
START = EntryId(0)


def _read(first: int, last: int, *, bytes_max: int = 2**20, fence: bool = False) -> ReadEntries:
    return ReadEntries(ONE, EntryId(first), EntryId(last), bytes_max, fence)


async def test_hello_reply_has_versions_and_limits(served: RunningServer) -> None:
    client = await WireClient.connect(served.address)
    reply = await client.request(hello(BOOKIE, 1, 9))
    assert isinstance(reply, HelloReply)
    assert (reply.status, reply.bookie_id, reply.wire_version) == (Status.OK, BOOKIE, 1)
    assert reply.frame_bytes_max == served.context.limits.frame_bytes_max
    await client.close()


async def test_a_client_of_the_tests_stops_waiting(
    served: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await WireClient.greeted(served.address, BOOKIE)
    with monkeypatch.context() as patch:
        patch.setattr(wire_client, "WAIT_S", 0.05)
        assert not await client.is_closed_by_peer()
        for answer in (client.answer(99), client.ack(99)):
            with pytest.raises(TimeoutError):
                await answer
    assert await client.is_offered()
    await client.close()


@pytest.mark.parametrize(
    ("greeting", "status", "says"),
    [
        (hello("bookie-other"), Status.WRONG_BOOKIE, BOOKIE),
        (hello(BOOKIE, 2, 9), Status.UNSUPPORTED_VERSION, "2..9"),
        (hello(BOOKIE, 0, 0), Status.UNSUPPORTED_VERSION, "0..0"),
        (hello(BOOKIE, 3, 1), Status.UNSUPPORTED_VERSION, "3..1"),
    ],
)
async def test_mismatched_hello_is_refused_with_a_reason(
    served: RunningServer, greeting: object, status: Status, says: str
) -> None:
    client = await WireClient.connect(served.address)
    assert isinstance(greeting, type(hello("")))
    reply = await client.request(greeting)
    assert isinstance(reply, HelloReply)
    assert reply.status is status
    assert says in reply.reason
    assert await client.is_closed_by_peer()


async def test_an_anonymous_hello_may_only_ping(served: RunningServer) -> None:
    client = await WireClient.greeted(served.address, "")
    assert await client.is_offered()
    refused = await client.request(ReadLac(ONE, fence=False))
    assert isinstance(refused, Refused)
    assert refused.status is Status.UNAUTHORIZED
    client.send_add(batch_of(1, 0))
    assert await client.is_closed_by_peer()
    assert served.storage.add_count == 0


async def test_adds_are_acknowledged_when_durable(served: RunningServer) -> None:
    served.storage.commits_by_itself = False
    client = await served.client(1)
    ids = [client.send_add(batch_of(1, first)) for first in range(3)]
    assert await client.is_offered()
    assert client.acks == {}
    served.storage.commit()
    assert [await client.ack(each) for each in ids] == [Status.OK] * 3
    assert client.ack_frames == 1, "the acks of a group leave as one frame"
    await client.close()


async def test_a_pong_says_how_slow_appends_are(served: RunningServer) -> None:
    """Without those of repair, which would delay itself otherwise."""
    client = await served.client(1)
    assert await client.add(batch_of(1, 0), recovery=True) is Status.OK
    assert await client.request(Ping()) == Pong(writable=True, append_p99_us=0)
    assert await client.add(batch_of(1, 1)) is Status.OK
    pong = await client.request(Ping())
    assert isinstance(pong, Pong)
    assert pong.append_p99_us > 0
    assert sum(served.counters.add_latency.counts) == 2
    await client.close()


async def test_refused_adds_name_their_reason(served: RunningServer) -> None:
    client = await served.client(1, 2)
    batch = batch_of(1, 0)
    assert await client.add(batch) is Status.OK
    assert await client.add(batch) is Status.OK, "the same bytes again are no conflict"
    assert await client.add(batch_of(1, 0, [b"other"])) is Status.CONFLICT
    assert await client.add(batch_of(7, 0)) is Status.UNAUTHORIZED, "not attached"
    served.storage.read_only = True
    assert await client.add(batch_of(1, 1)) is Status.READ_ONLY
    assert await client.add(batch_of(1, 1), recovery=True) is Status.OK
    assert served.counters.adds_by_status[Status.OK] == 3
    assert served.counters.adds_by_status[Status.CONFLICT] == 1
    await client.close()


async def test_a_wrong_password_is_unauthorized_everywhere(served: RunningServer) -> None:
    client = await served.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    client.attach(1, bytes(32))
    assert await client.add(batch_of(1, 1)) is Status.UNAUTHORIZED
    lac = await client.request(ReadLac(ONE, fence=False))
    assert isinstance(lac, LacReply)
    assert lac.status is Status.UNAUTHORIZED
    for request in (_read(0, 0), _read(0, 0, fence=True), WaitLac(ONE, NO_ENTRY, 5000, 100)):
        assert (await client.request_entries(request)).status is Status.UNAUTHORIZED
    client.attach(1, KEY)
    assert (await client.request_entries(_read(0, 0))).status is Status.OK
    await client.close()


async def test_detached_ledger_is_unauthorized(served: RunningServer) -> None:
    client = await served.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    client.send_request(DetachLedger(ONE))
    assert await client.add(batch_of(1, 1)) is Status.UNAUTHORIZED
    refused = await client.request(_read(0, 0))
    assert isinstance(refused, Refused)
    assert refused.status is Status.UNAUTHORIZED
    await client.close()


async def test_a_connection_attaches_a_bounded_number_of_ledgers(served: RunningServer) -> None:
    client = await served.client(1, 2, 3, 4, 5, 5, 5)
    too_many = client.send_request(DetachLedger(LedgerId(99)))
    client.attach(6)
    refused = await client.answer(too_many + 1)
    assert isinstance(refused, Refused)
    assert refused.status is Status.BAD_REQUEST
    assert await client.add(batch_of(5, 0)) is Status.OK, "nothing else is disturbed"
    await client.close()


@pytest.mark.parametrize("cached", [False, True])
async def test_ranges_are_read_in_batches(served: RunningServer, cached: bool) -> None:
    served.storage.caches_reads = cached
    client = await served.client(1)
    for first in range(0, 9, 3):
        payloads = [b"entry %d" % (first + i) for i in range(3)]
        assert await client.add(batch_of(1, first, payloads, lac=first - 1)) is Status.OK
    whole = await client.request_entries(_read(0, 8))
    assert payloads_of(whole) == {i: b"entry %d" % i for i in range(9)}
    assert (whole.status, whole.next_entry_id, whole.lac) == (Status.OK, 9, 5)
    part = await client.request_entries(_read(4, 100))
    assert list(payloads_of(part)) == [4, 5, 6, 7, 8]
    assert (part.status, part.next_entry_id) == (Status.NO_SUCH_ENTRY, 9)
    little = await client.request_entries(_read(0, 8, bytes_max=1))
    assert (list(payloads_of(little)), little.next_entry_id) == ([0, 1, 2], 3)
    assert (served.counters.reads_from_memory > 0) is cached
    await client.close()


async def test_read_of_a_reversed_range_is_a_bad_request(served: RunningServer) -> None:
    client = await served.client(1)
    refused = await client.request(_read(5, 4))
    assert isinstance(refused, Refused)
    assert refused.status is Status.BAD_REQUEST
    await client.close()


async def test_a_fence_stops_the_writer_and_not_the_recovery(served: RunningServer) -> None:
    writer, recoverer = await served.client(1), await served.client(1)
    assert await writer.add(batch_of(1, 0)) is Status.OK
    lac = await recoverer.request(ReadLac(ONE, fence=True))
    assert lac == LacReply(Status.OK, NO_ENTRY, EntryId(0), fenced=True)
    assert await writer.add(batch_of(1, 1)) is Status.FENCED
    assert await recoverer.add(batch_of(1, 1), recovery=True) is Status.OK
    await writer.close()
    await recoverer.close()


async def test_a_recovery_read_fences(served: RunningServer) -> None:
    client = await served.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    assert (await client.request_entries(_read(0, 3, fence=True))).status is Status.NO_SUCH_ENTRY
    assert await client.add(batch_of(1, 1)) is Status.FENCED
    await client.close()


async def test_explicit_lac_is_reported_to_readers(served: RunningServer) -> None:
    client = await served.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    reply = await client.request(WriteLac(ONE, START))
    assert isinstance(reply, LacReply)
    assert (reply.status, reply.lac) == (Status.OK, 0)
    await client.close()


async def test_held_ranges_are_listed_in_pages(served: RunningServer) -> None:
    client = await served.client(1)
    for first in range(0, 10, 2):
        assert await client.add(batch_of(1, first)) is Status.OK
    page = await client.request(ListEntries(ONE, START))
    assert page == EntryRanges(Status.OK, ((0, 0), (2, 2), (4, 4)), complete=False)
    page = await client.request(ListEntries(ONE, EntryId(5)))
    assert page == EntryRanges(Status.OK, ((6, 6), (8, 8)), complete=True)
    await client.close()


async def test_one_failing_request_disturbs_no_other(served: RunningServer) -> None:
    client, other = await served.client(1), await served.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    served.storage.raises = RuntimeError("broken")
    refused = await client.request(_read(0, 0))
    assert isinstance(refused, Refused)
    assert refused.status is Status.UNKNOWN, "a failure is never a negative"
    assert "broken" not in refused.reason
    client.send_add(batch_of(1, 1))
    assert await client.is_closed_by_peer()
    served.storage.raises = None
    assert await other.add(batch_of(1, 1)) is Status.OK
    assert served.counters.requests_failed == 2
    await other.close()


async def test_requests_run_a_few_at_a_time(served: RunningServer) -> None:
    client = await served.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    served.storage.reads_wait.clear()
    ids = [client.send_request(_read(0, 0)) for _ in range(300)]
    await until(lambda: served.counters.reading_paused > 0)
    assert served.storage.reads_running == served.context.limits.requests_running_max
    served.storage.reads_wait.set()
    for each in ids:
        answer = await client.answer(each)
        assert isinstance(answer, Entries)
        assert answer.status is Status.OK
    assert served.storage.reads_running_most == served.context.limits.requests_running_max
    await client.close()


async def test_reading_stops_while_the_storage_is_full(served: RunningServer) -> None:
    client, other = await served.client(1), await served.client(1)
    served.storage.room.clear()
    client.send_add(batch_of(1, 0))
    await until(lambda: served.counters.reading_paused > 0)
    late = client.send_add(batch_of(1, 1))
    assert await other.is_offered(), "a client that sends nothing is not paused"
    for _ in range(20):
        await asyncio.sleep(0)
    assert served.storage.add_count == 1
    served.storage.room.set()
    assert await client.ack(late) is Status.OK
    assert served.storage.add_count == 2
    await client.close()
    await other.close()


async def test_lost_connection_cancels_its_requests(served: RunningServer) -> None:
    client = await served.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    served.storage.reads_wait.clear()
    for _ in range(10):
        client.send_request(_read(0, 0))
    await until(lambda: served.storage.reads_running > 0)
    client.abort()
    await until(lambda: not (served.counters.connections_now or served.storage.reads_running))


async def test_adds_to_a_held_ledger_are_stored_only_afterwards(served: RunningServer) -> None:
    client = await served.client(1, 2)
    with served.context.hold(ONE):
        held = [client.send_add(batch_of(1, first)) for first in (0, 1)]
        assert await client.add(batch_of(2, 0)) is Status.OK, "other ledgers continue"
        assert served.storage.add_count == 1
        await served.storage.delete_ledger(ONE)
    assert [await client.ack(each) for each in held] == [Status.DELETED] * 2
    await client.close()


async def test_held_adds_are_bounded_and_free_their_bytes_with_their_ledger(
    served: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_context, "HELD_BYTES_MAX", len(batch_of(1, 0)))
    client = await served.client(1, 2)
    with served.context.hold(LedgerId(2)):
        with served.context.hold(ONE):
            held = client.send_add(batch_of(1, 0))
            await until(lambda: served.storage.queued.held_bytes > 0)
            assert await client.add(batch_of(2, 0)) is Status.UNKNOWN, "no room"
        assert await client.ack(held) is Status.OK
        assert served.storage.queued.held_bytes == 0
    await client.close()


async def test_closing_finishes_running_requests(served: RunningServer) -> None:
    served.storage.commits_by_itself = False
    client = await served.client(1)
    pending = client.send_add(batch_of(1, 0))
    poll = client.send_request(WaitLac(ONE, EntryId(50), 60_000, 0))
    assert await client.is_offered()
    await until(lambda: served.storage.watch_count > 0)
    closing = asyncio.create_task(served.server.close())
    refused = await client.answer(poll)
    assert isinstance(refused, Refused)
    assert refused.status is Status.CLOSING
    assert await client.add(batch_of(1, 1)) is Status.CLOSING
    late = await client.request(_read(0, 0))
    assert isinstance(late, Refused)
    assert late.status is Status.CLOSING
    served.storage.commit()
    assert await client.ack(pending) is Status.OK
    assert await client.is_closed_by_peer()
    await closing


async def test_the_number_of_connections_is_bounded(served: RunningServer) -> None:
    served.context.limits = replace(served.context.limits, connections_max=2)
    first, second = await served.client(1), await served.client(1)
    third = await WireClient.connect(served.address)
    assert await third.is_closed_by_peer()
    await second.close()
    await until(lambda: served.counters.connections_now == 1)
    fourth = await served.client(1)
    assert await first.add(batch_of(1, 0)) is Status.OK
    assert served.counters.connections_refused == 1
    await first.close()
    await fourth.close()


async def test_only_an_oversized_entry_is_refused(served: RunningServer) -> None:
    served.context.limits = replace(served.context.limits, entry_bytes_max=1000)
    client = await served.client(1)
    assert await client.add(batch_of(1, 0, [bytes(1001)])) is Status.BAD_REQUEST
    assert await client.add(batch_of(1, 0, [bytes(1000), bytes(1000)])) is Status.OK
    client.send(frame_header(FrameKind.ADD, 900, 3) + b"abc")
    assert await client.ack(900) is Status.BAD_REQUEST
    await client.close()


async def test_many_small_requests_are_served_in_later_passes_and_in_order(
    served: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FRAMES_S", 0.0)  # each frame ends a turn
    clients = [await WireClient.greeted(served.address, BOOKIE) for _ in range(3)]
    noted, serve_one = list[int](), ClientConnection._serve
    async with counting_passes() as passes:

        def note(self: ClientConnection, frame: Frame) -> None:
            noted.append(passes.now)
            serve_one(self, frame)

        monkeypatch.setattr(ClientConnection, "_serve", note)
        for client in clients:
            client.attach(1)
            adds = [client.send_add(batch_of(1, number)) for number in range(10)]
            pings = [client.send_request(Ping()) for _ in range(10)]
            assert [await client.ack(add) for add in adds] == [Status.OK] * 10
            assert [type(await client.answer(ping)) for ping in pings] == [Pong] * 10
    assert len(noted) == 3 * 21
    assert len(set(noted)) >= len(noted) - len(clients), "the first of a buffer, and one more"
    for client in clients:
        await client.close()
