"""The blocking client, used from several threads; its cluster lives on the client's own loop."""

import asyncio
import os
import pickle
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from inspect import signature
from typing import Any, TypeVar

import pytest

from ledger_client import (
    AS_STORED,
    BackpressureError,
    ClientClosedError,
    ClientConfig,
    EncryptedLedgerError,
    Encryption,
    EntryNotFoundError,
    EntryTooLargeError,
    LedgerError,
    LedgerFencedError,
    LedgerNotFoundError,
    Quorum,
    chains,
    sync_handles,
)
from ledger_client import LedgerClient as AsyncClient
from ledger_client.reading.reader import LedgerReader as AsyncReader
from ledger_client.sync import Chain, LedgerClient, LedgerReader, LedgerWriter
from ledger_client.sync_loop import BackgroundLoop
from ledger_client.writing.writer import LedgerWriter as AsyncWriter
from tests.support.ledger_client.cluster import TestCluster

THREE = Quorum(ensemble=3, write=3, ack=2)
ResultT = TypeVar("ResultT")


class Blocking:
    """A blocking client, and its cluster."""

    def __init__(self, **changes: float) -> None:
        self.client = LedgerClient.over(lambda: self._make(changes))
        for _ in range(3):
            self.run(self.cluster.add_bookie())

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        return self.client._background.run(work)

    def close(self) -> None:
        self.run(self.cluster.aclose())
        self.client.close()

    def _make(self, changes: dict[str, float]) -> AsyncClient:
        self.cluster = TestCluster()
        return self.cluster.client(**changes)


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    blocking = Blocking()
    yield blocking
    blocking.close()


def test_encrypted_ledgers(blocking: Blocking) -> None:
    encryption = Encryption({"k": bytes(32)}.__getitem__, "k")
    client = blocking.client
    with client.create_ledger(THREE, encryption=encryption) as ledger:
        ledger.append(b"one")
        ledger.append_many([b"two", b"three"])
    with client.open_ledger(ledger.id, encryption=encryption) as reader:
        assert read_all(reader, 2) == [b"one", b"two", b"three"]
        assert [entry.data for batch in reader.tail() for entry in batch][2] == b"three"
    with pytest.raises(EncryptedLedgerError):
        client.open_ledger(ledger.id)
    with client.open_ledger(ledger.id, encryption=AS_STORED) as reader:
        assert [len(each) for each in read_all(reader, 2)] == [19, 19, 21]


def read_all(reader: LedgerReader, last: int) -> list[bytes]:
    return [entry.data for batch in reader.read(0, last) for entry in batch]


def test_append_close_and_read(blocking: Blocking) -> None:
    client = blocking.client
    with client.create_ledger(THREE, metadata={"app": "orders"}) as ledger:
        assert ledger.append(b"order-1") == 0
        assert ledger.append_many([b"order-2", b"order-3"]) == range(1, 3)
        assert ledger.append_nowait(bytearray(b"order-4")).result(10) == 3
        ledger.wait_fully_replicated(3)
        assert ledger.last_confirmed == ledger.last_pushed == 3
        assert ledger.info.state == "open"
    info = client.ledger_info(ledger.id)
    assert (info.state, info.last_entry_id) == ("closed", 3)
    with client.open_ledger(ledger.id) as reader:
        assert reader.is_closed
        assert reader.last_confirmed == reader.refresh_last_confirmed() == 3
        assert reader.learn_last_confirmed() == 3
        assert reader.read_entry(1).data == b"order-2"
        expected = [b"order-1", b"order-2", b"order-3", b"order-4"]
        assert read_all(reader, 3) == expected
        assert [entry.data for batch in reader.tail() for entry in batch] == expected
        assert len(list(reader.read_unconfirmed(0, 0))) == 1
        assert reader.info == info
    assert [ledger_info.id for ledger_info in client.list_ledgers()] == [ledger.id]
    assert client.recover_ledger(ledger.id) == info
    assert client.stats().ledgers_created == 1
    client.delete_ledger(ledger.id)
    with pytest.raises(LedgerNotFoundError):
        client.ledger_info(ledger.id)


def test_errors_come_through_as_they_are(blocking: Blocking) -> None:
    with blocking.client.create_ledger(THREE) as ledger:
        ledger.append(b"x")
        with pytest.raises(EntryTooLargeError):
            ledger.append(bytes(9 * 2**20))
        with blocking.client.open_ledger(ledger.id) as reader, pytest.raises(EntryNotFoundError):
            reader.read_entry(5)


def test_an_exception_in_the_block_is_not_hidden(blocking: Blocking) -> None:
    with pytest.raises(ZeroDivisionError), blocking.client.create_ledger(THREE, ledger_id=5):
        raise ZeroDivisionError
    assert blocking.client.ledger_info(5).state == "closed"


def test_a_fenced_writer_raises(blocking: Blocking) -> None:
    ledger = blocking.client.create_ledger(THREE)
    ledger.append(b"x")
    other = blocking.client.recover_ledger(ledger.id)
    assert other.last_entry_id == 0
    with pytest.raises(LedgerFencedError):
        ledger.append(b"y")
    with pytest.raises(LedgerFencedError):
        ledger.append_many([b"y", b"z"])


def test_many_threads_append_to_one_ledger(blocking: Blocking) -> None:
    with blocking.client.create_ledger(THREE) as ledger:

        def append(thread: int) -> list[tuple[int, bytes]]:
            wanted = [b"%d/%d" % (thread, number) for number in range(40)]
            alone = [(ledger.append(payload), payload) for payload in wanted[:20]]
            return alone + list(zip(ledger.append_many(wanted[20:]), wanted[20:], strict=True))

        with ThreadPoolExecutor(6) as threads:
            parts = list(threads.map(append, range(6)))
    given = dict(pair for part in parts for pair in part)
    assert sorted(given) == list(range(240)), "every id once"
    with blocking.client.open_ledger(ledger.id) as reader:
        assert read_all(reader, 239) == [given[entry_id] for entry_id in range(240)]


def test_many_threads_use_many_ledgers(blocking: Blocking) -> None:
    def work(thread: int) -> bool:
        with blocking.client.create_ledger(THREE) as ledger:
            ledger.append_many([b"%d" % thread] * 10)
        with blocking.client.open_ledger(ledger.id) as reader:
            return read_all(reader, 9) == [b"%d" % thread] * 10

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(16))) == [True] * 16


def test_a_long_range_sent_in_parts_is_one_range(
    blocking: Blocking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_handles, "CHUNK_ENTRIES_MAX", 64)
    monkeypatch.setattr(sync_handles, "CHUNK_BYTES_MAX", 500)
    with blocking.client.create_ledger(THREE) as ledger:
        appending = threading.Event()

        def disturb() -> None:
            while not appending.is_set():
                ledger.append(b"other")

        other = threading.Thread(target=disturb)
        other.start()
        ranges = [
            ledger.append_many(b"%05d" % number for number in range(1000)),
            ledger.append_many([]),
            ledger.append_many(iter([bytes(600), bytes(600), b"x"])),
        ]
        appending.set()
        other.join()
        last = ledger.last_confirmed
    assert [len(ids) for ids in ranges] == [1000, 0, 3]
    with blocking.client.open_ledger(ledger.id) as reader:
        found = read_all(reader, last)
    assert [found[entry_id] for entry_id in ranges[0]] == [b"%05d" % n for n in range(1000)]
    assert [len(found[entry_id]) for entry_id in ranges[2]] == [600, 600, 1]


def test_a_range_that_fails_halfway_reports_its_progress(
    blocking: Blocking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_handles, "CHUNK_ENTRIES_MAX", 10)
    ledger = blocking.client.create_ledger(THREE)
    ledger.append(b"first")

    def entries() -> Iterator[bytes]:
        for number in range(100):
            if number == 35:
                blocking.client.recover_ledger(ledger.id)
            yield b"%d" % number

    with pytest.raises(LedgerFencedError) as caught:
        ledger.append_many(entries())
    error = caught.value
    assert error.first_entry_id == 1
    assert 30 <= error.confirmed_count <= error.admitted_count <= 50
    end = blocking.client.ledger_info(ledger.id).last_entry_id
    assert end is not None
    assert end >= error.confirmed_count


def test_a_bad_entry_leaves_no_gap_in_a_range(
    blocking: Blocking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_handles, "CHUNK_ENTRIES_MAX", 10)
    ledger = blocking.client.create_ledger(THREE)
    too_large = bytes(ClientConfig().entry_bytes_max + 1)
    with pytest.raises(EntryTooLargeError) as caught:
        ledger.append_many([*[b"x"] * 15, too_large, *[b"x"] * 24])
    assert (caught.value.admitted_count, ledger.last_pushed) == (10, 9)
    assert ledger.append(b"y") == 10
    with pytest.raises(TypeError):
        ledger.append_many(["text", *[b"x"] * 20])  # type: ignore[list-item]
    assert ledger.append(b"z") == 11
    ledger.close()


def test_backpressure_is_raised_at_the_call() -> None:
    blocking = Blocking(window_entries_max=2)
    ledger = blocking.client.create_ledger(Quorum.all(3))
    for bookie in blocking.cluster.bookies:
        bookie.is_silent = True
    pending = [ledger.append_nowait(b"x"), ledger.append_nowait(b"y")]
    with pytest.raises(BackpressureError):
        ledger.append_nowait(b"z")
    ledger.abort()
    for outcome in pending:
        failure = outcome.exception(10)
        assert isinstance(failure, LedgerError)
        assert failure.outcome == "unknown"
    blocking.close()


def test_an_iterator_that_is_left_early_is_closed(blocking: Blocking) -> None:
    with blocking.client.create_ledger(THREE) as ledger:
        ledger.append_many([b"x"] * 100)
        with blocking.client.open_ledger(ledger.id) as reader:
            for batch in reader.tail(0):
                assert batch[0].data == b"x"
                break
            batches = reader.read(0, 99)
            next(batches)
            del batches


def test_closing_twice_and_using_it_afterwards() -> None:
    blocking = Blocking()
    ledger = blocking.client.create_ledger(THREE)
    blocking.close()
    blocking.client.close()
    for call in (lambda: blocking.client.ledger_info(1), lambda: ledger.append(b"x")):
        with pytest.raises(ClientClosedError):
            call()
    with pytest.raises(ClientClosedError):
        list(blocking.client.list_ledgers())


def test_a_client_that_was_never_used_closes() -> None:
    with LedgerClient("zk://127.0.0.1:1/nowhere"):
        assert LedgerClient("zk://127.0.0.1:1/nowhere").stats().adds_sent == 0


def test_a_blocking_call_from_the_loop_is_refused(blocking: Blocking) -> None:
    async def inside() -> None:
        with pytest.raises(LedgerError, match="wait for itself"):
            blocking.client.ledger_info(1)

    blocking.run(inside())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_calls_end_when_a_callback_has_ended_the_thread() -> None:
    background = BackgroundLoop()
    waiting = background.start(asyncio.sleep(3600))

    async def leave() -> None:
        raise SystemExit(1)

    with suppress(SystemExit, ClientClosedError):
        background.run(leave())
    with pytest.raises(CancelledError):
        waiting.result()
    with pytest.raises(ClientClosedError):
        background.run(asyncio.sleep(0))
    background.stop()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_after_a_fork_the_child_is_refused(blocking: Blocking) -> None:
    client = blocking.client
    ledger: LedgerWriter = client.create_ledger(THREE)
    ledger.append(b"x")
    child = os.fork()
    if not child:
        refused = 0
        for call in (lambda: client.ledger_info(1), lambda: ledger.append(b"y"), ledger.close):
            try:
                call()
            except ClientClosedError:
                refused += 1
        client.close()  # does not use the parent's connections
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    assert ledger.append(b"y") == 1
    ledger.close()


def test_a_writer_that_is_dropped_warns_and_handles_say_what_they_are(blocking: Blocking) -> None:
    client = blocking.client
    closed = client.create_ledger(THREE)
    assert repr(closed).startswith(f"<LedgerWriter over <LedgerWriter of ledger {closed.id}, last")
    with client.open_ledger(closed.id) as reader:
        assert repr(reader).startswith(f"<LedgerReader over <LedgerReader of ledger {closed.id}, ")
    assert repr(client.chain("a")) == "<Chain over <Chain 'a' of memory, connected>>"
    assert repr(client) == "<LedgerClient over <LedgerClient of memory, connected>>"
    for handle in (client, closed, reader, client.chain("a")):
        with pytest.raises(TypeError, match="pass the metadata URI"):
            pickle.dumps(handle)
    closed.close()
    del closed, handle
    dropped = [client.create_ledger(THREE)]
    dropped[0].append(b"a")
    with pytest.warns(ResourceWarning, match="last confirmed 0, open>> was dropped and is not"):
        dropped.clear()


ASYNC_ALONE: dict[type[object], set[str]] = {
    AsyncClient: {"from_parts", "ledger_info_pages", "ledger_pages"},
    chains.Chain: {"link_pages"},
    AsyncReader: {"start"},
    AsyncWriter: {
        "append_followed",
        "expect_stored",
        "follow",
        "has_ended",
        "is_usable",
        "members",
        "stop",
    },
}
"""Names that the blocking classes leave out: lists of pages, and parts for other modules."""


@pytest.mark.parametrize(
    ("asynchronous", "blocking"),
    [
        (AsyncClient, LedgerClient),
        (chains.Chain, Chain),
        (AsyncReader, LedgerReader),
        (AsyncWriter, LedgerWriter),
    ],
)
def test_each_call_has_the_same_arguments_in_both_faces(
    asynchronous: type[object], blocking: type[object]
) -> None:
    names = {name for name in vars(asynchronous) if not name.startswith("_")}
    assert names - {*vars(blocking)} == ASYNC_ALONE[asynchronous]
    for name in names - ASYNC_ALONE[asynchronous]:
        one, other = vars(asynchronous)[name], vars(blocking)[name]
        if not isinstance(one, property):
            assert arguments_of(one) == arguments_of(other), name


def arguments_of(method: Callable[..., object]) -> list[tuple[str, object, object]]:
    parameters = signature(method).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in parameters]
