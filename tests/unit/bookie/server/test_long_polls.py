"""Long polls end at a new LAC, at a fence or after their time; they never spin and never leak."""

from bookie.wire.codec import Entries
from bookie.wire.messages import ReadLac, Refused, Status, WaitLac
from metadata.ids import NO_ENTRY, EntryId, LedgerId
from tests.support.bookie.running_server import LIMITS, RunningServer
from tests.support.bookie.wire_client import WireClient, batch_of, payloads_of
from tests.until import until

ONE = LedgerId(1)
LONG_MS = 60_000


def _wait(lac: int, wait_ms: int = LONG_MS, bytes_max: int = 2**20) -> WaitLac:
    return WaitLac(ONE, EntryId(lac), wait_ms, bytes_max)


async def _parked(served: RunningServer, count: int) -> None:
    await until(lambda: served.storage.watch_count >= count)


async def _entries(client: WireClient, request_id: int) -> Entries:
    answer = await client.answer(request_id)
    assert isinstance(answer, Entries), answer
    return answer


async def test_a_new_lac_brings_its_entries(served: RunningServer) -> None:
    client = await served.client(1)
    assert await client.add(batch_of(1, 0, [b"zero", b"one"])) is Status.OK
    poll = client.send_request(_wait(NO_ENTRY))
    await _parked(served, 1)
    client.send_add(batch_of(1, 2, [b"two"], lac=1))
    answer = await _entries(client, poll)
    assert (answer.status, answer.lac, answer.next_entry_id) == (Status.OK, 1, 2)
    assert payloads_of(answer) == {0: b"zero", 1: b"one"}
    assert served.storage.watch_count == 0
    await client.close()


async def test_poll_is_answered_at_once_when_the_lac_is_newer(served: RunningServer) -> None:
    client = await served.client(1)
    for first, lac in ((0, -1), (1, 0)):
        assert await client.add(batch_of(1, first, lac=lac)) is Status.OK
    for cached in (False, True):
        served.storage.caches_reads = cached
        assert list(payloads_of(await client.request_entries(_wait(NO_ENTRY)))) == [0]
    await client.close()


async def test_poll_without_room_for_entries_returns_only_the_lac(served: RunningServer) -> None:
    client = await served.client(1)
    for first, lac in ((0, -1), (1, 0)):
        assert await client.add(batch_of(1, first, lac=lac)) is Status.OK
    answer = await client.request_entries(_wait(NO_ENTRY, bytes_max=0))
    assert (answer.status, answer.lac, answer.batches) == (Status.OK, 0, ())
    await client.close()


async def test_poll_ends_after_its_time(served: RunningServer) -> None:
    client = await served.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    answer = await client.request_entries(_wait(NO_ENTRY, wait_ms=1))
    assert (answer.status, answer.lac, answer.next_entry_id) == (Status.OK, NO_ENTRY, 0)
    assert served.counters.long_polls_expired == 1
    await client.close()


async def test_poll_of_an_unknown_ledger_waits(served: RunningServer) -> None:
    client = await served.client(1)
    poll = client.send_request(_wait(NO_ENTRY))
    await _parked(served, 1)
    for first, lac in ((0, -1), (1, 0)):
        assert await client.add(batch_of(1, first, lac=lac)) is Status.OK
    assert list(payloads_of(await _entries(client, poll))) == [0]
    unknown = await client.request_entries(WaitLac(LedgerId(1), EntryId(0), 1, 10))
    assert unknown.status is Status.OK
    await client.close()


async def test_a_fence_ends_a_poll_once_and_later_ones_wait(served: RunningServer) -> None:
    client = await served.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    poll = client.send_request(_wait(NO_ENTRY))
    await _parked(served, 1)
    await client.request(ReadLac(ONE, fence=True))
    assert (await _entries(client, poll)).lac == NO_ENTRY
    again = client.send_request(_wait(NO_ENTRY))
    await _parked(served, 1)
    assert await client.add(batch_of(1, 1, lac=0), recovery=True) is Status.OK
    assert list(payloads_of(await _entries(client, again))) == [0]
    await client.close()


async def test_progress_below_what_is_known_does_not_end_a_poll(served: RunningServer) -> None:
    client = await served.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    poll = client.send_request(_wait(1))
    await _parked(served, 1)
    for first in (1, 2):
        assert await client.add(batch_of(1, first, lac=first - 1)) is Status.OK
    assert served.counters.long_polls_woken == 0
    assert await client.add(batch_of(1, 3, lac=2)) is Status.OK
    assert list(payloads_of(await _entries(client, poll))) == [2]
    await client.close()


async def test_polls_are_bounded_per_connection_and_in_all(served: RunningServer) -> None:
    first, second = await served.client(1), await served.client(1)
    for _ in range(6):
        first.send_request(_wait(NO_ENTRY))
    refused = await first.request(_wait(NO_ENTRY))
    assert isinstance(refused, Refused)
    assert refused.status is Status.BAD_REQUEST
    for _ in range(3):
        second.send_request(_wait(NO_ENTRY))
    assert isinstance(await second.request(_wait(NO_ENTRY)), Refused)
    assert served.counters.long_polls_now == 9
    await first.close()
    await until(lambda: served.counters.connections_now == 1)
    assert served.counters.long_polls_now == 3
    await second.close()


async def test_refused_polls_do_not_count(served: RunningServer) -> None:
    client = await served.client(1)
    await served.storage.delete_ledger(ONE)
    for _ in range(2 * LIMITS.long_polls_per_connection_max):
        answer = await client.request_entries(_wait(NO_ENTRY))
        assert answer.status is Status.DELETED
    assert served.counters.long_polls_now == 0
    await client.close()


async def test_lost_connection_drops_its_polls(served: RunningServer) -> None:
    client = await served.client(1)
    for _ in range(3):
        client.send_request(_wait(NO_ENTRY))
    await _parked(served, 3)
    client.abort()
    await until(lambda: not served.counters.connections_now)
    assert (served.storage.watch_count, served.counters.long_polls_now) == (0, 0)
