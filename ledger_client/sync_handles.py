"""Blocking handles of one ledger: the writer and the reader of `ledger_client.sync`.

Leaves the work to the asynchronous handles, and the thread in which they run to `sync_loop`.

Invariants: an asynchronous handle is used only on its loop; one writer admits entries in the order
of the calls; only `append` crosses threads once per entry.

Source: api design, "Client".
"""

import asyncio
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from itertools import accumulate, islice
from types import TracebackType
from typing import Final, Self

from ledger_client.errors import LedgerError, append_timed_out
from ledger_client.info import LedgerInfo
from ledger_client.reading.reader import LedgerReader as AsyncReader
from ledger_client.sync_loop import BackgroundLoop, BlockingHandle, blocking, iterating, wait
from ledger_client.writing.admission import EntryLike
from ledger_client.writing.writer import LedgerWriter as AsyncWriter
from metadata.ids import BookieId, EntryId, LedgerId


class CallOrder:
    """Turns of the threads that append to one writer.

    No call waits for a turn that never ends: in a forked child, where the thread that holds the
    turn does not exist, and in the thread that holds it, a call is refused. An interrupt
    (KeyboardInterrupt) ends the turn of its call at whatever step it comes: the lock itself knows
    who has it, so that a turn is ended by one step, whether the call learned that it has it or not.
    """

    def __init__(self, background: BackgroundLoop, ledger_id: LedgerId) -> None:
        self._background = background
        self._ledger_id = ledger_id
        self._lock = threading.RLock()

    @contextmanager
    def turn(self, timeout: float | None = None) -> Iterator[None]:
        """Context of one call; others wait, at most for `timeout` seconds.

        Raises ClientClosedError in a forked child, LedgerError in the thread that has the turn, and
        QuorumTimeoutError when the time is up; nothing was sent then.
        """
        self._background.require_process()
        if self._lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 - as Condition does
            raise LedgerError(
                "this call comes from inside another append to the same writer, from its iterable "
                "or a signal handler, and would wait for itself: append after that call",
                ledger_id=self._ledger_id,
            )
        limit = -1 if timeout is None else max(0.0, min(timeout, threading.TIMEOUT_MAX))
        try:
            if not self._lock.acquire(timeout=limit):
                raise append_timed_out(self._ledger_id, None, timeout)
            yield
        finally:
            try:  # noqa: SIM105 - `suppress` would be more steps
                self._lock.release()
            except RuntimeError:  # the time was up: this call has no turn
                pass


CHUNK_ENTRIES_MAX: Final = 65_536
CHUNK_ENTRIES_FIRST: Final = 4_096
FOLLOW_STEP_S: Final = 60.0
CHUNK_BYTES_MAX: Final = 16 * 1024 * 1024
"""Approximate size of the chunks in which an iterable is handed over, in bytes. Two chunks are
under way at a time.
"""


class LedgerWriter(BlockingHandle):
    """Appends to one open ledger. Leaving its block closes the ledger."""

    _handle: AsyncWriter

    def __init__(self, background: BackgroundLoop, writer: AsyncWriter) -> None:
        self._background = background
        self._handle = writer
        self._order = CallOrder(background, writer.ledger_id)

    @property
    def id(self) -> int:
        """The ledger's id."""
        return self._handle.id

    @property
    def ledger_id(self) -> int:
        """The same as `id`."""
        return self._handle.ledger_id

    @property
    def in_sync(self) -> tuple[BookieId, ...]:
        """In in-sync mode, the members that hold every entry, are alive and do not lag."""
        return self._handle.in_sync

    @property
    def under_replicated(self) -> tuple[tuple[EntryId, EntryId], ...]:
        """Ranges (first, last) of confirmed entries that are not on their complete write quorum."""
        return self._handle.under_replicated

    @property
    def fully_replicated_to(self) -> EntryId:
        """All entries up to this one are on their write quorum, except those in
        `under_replicated`.
        """
        return self._handle.fully_replicated_to

    @property
    def last_confirmed(self) -> int:
        """The LAC: this entry and all before it are acknowledged; -1 before the first."""
        return self._handle.last_confirmed

    @property
    def last_pushed(self) -> int:
        """The last assigned entry id; -1 before the first."""
        return self._handle.last_pushed

    @property
    def info(self) -> LedgerInfo:
        """The ledger as stored, as far as this writer knows."""
        return self._handle.info

    def append(self, data: EntryLike, *, timeout: float | None = None) -> int:
        """Append one entry; return its id once it is confirmed. `timeout` limits first the wait for
        earlier calls of other threads, then the append.
        """
        with self._order.turn(timeout):
            outcome = self._background.start(self._handle.append(data, timeout=timeout))
        return wait(outcome)

    def append_nowait(self, data: EntryLike) -> Future[int]:
        """Append one entry and return the future of its id. Raises BackpressureError."""
        confirmed: Future[int] = Future()
        confirmed.set_running_or_notify_cancel()  # an append cannot be cancelled

        async def admit() -> None:
            handle = self._handle.append_nowait(data)
            handle.add_done_callback(lambda done: _copy_outcome(done, confirmed))

        with self._order.turn():
            self._background.run(admit())
        return confirmed

    def append_many(self, entries: Iterable[EntryLike], *, timeout: float | None = None) -> range:
        """Append all entries, pipelined; return their ids, which form one range, once all are
        confirmed. `timeout` limits each chunk of about CHUNK_BYTES_MAX.
        """
        first, count = -1, 0
        pending: list[Future[range]] = []
        whole = _Parts(self._handle)
        try:
            with self._order.turn():  # other calls come before or after the complete range
                for chunk in _chunks(entries):
                    pending.append(self._background.start(whole.append(chunk, timeout)))
                    if len(pending) > 1:
                        ids = wait(pending.pop(0))
                        first, count = (ids.start if first < 0 else first), count + len(ids)
            while pending:
                ids = wait(pending.pop(0))
                first, count = (ids.start if first < 0 else first), count + len(ids)
        except LedgerError as error:
            for later in pending:
                failure = _failure_of(later)  # it usually fails together with the part before it
                if isinstance(failure, LedgerError):
                    error.admitted_count += failure.admitted_count
                elif failure is None:
                    error.admitted_count += len(later.result())
            if first >= 0:
                error.first_entry_id = EntryId(first)
                error.admitted_count += count
                error.confirmed_count += count
            raise
        return range(max(first, 0), max(first, 0) + count)

    wait_fully_replicated = blocking(AsyncWriter.wait_fully_replicated)
    close = aclose = blocking(AsyncWriter.aclose)
    abort = blocking(AsyncWriter.abort)

    def __del__(self) -> None:
        """Warn of a writer that was not closed: its ledger stays open until its client ends."""
        writer: AsyncWriter | None = getattr(self, "_handle", None)
        if writer is not None and not writer.has_ended and self._background.is_running:
            self._warn_dropped()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._background.run(self._handle.__aexit__(kind, error, traceback))


class LedgerReader(BlockingHandle):
    """Reads one ledger. Each iterator belongs to one thread."""

    _handle: AsyncReader

    def __init__(self, background: BackgroundLoop, reader: AsyncReader) -> None:
        self._background = background
        self._handle = reader
        self._following: Future[None] | None = None

    @property
    def id(self) -> int:
        """The ledger's id."""
        return self._handle.id

    @property
    def info(self) -> LedgerInfo:
        """The ledger's metadata as last read."""
        return self._handle.info

    @property
    def is_closed(self) -> bool:
        """Whether the ledger is closed."""
        return self._handle.is_closed

    @property
    def last_confirmed(self) -> int:
        """The last readable entry; -1 if there is none."""
        return self._handle.last_confirmed

    learn_last_confirmed = blocking(AsyncReader.learn_last_confirmed)
    refresh_last_confirmed = blocking(AsyncReader.refresh_last_confirmed)
    agreed_last = blocking(AsyncReader.agreed_last)
    read = iterating(AsyncReader.read)
    read_unconfirmed = iterating(AsyncReader.read_unconfirmed)
    read_entry = blocking(AsyncReader.read_entry)
    tail = iterating(AsyncReader.tail)
    wait_confirmed = blocking(AsyncReader.wait_confirmed)
    close = aclose = blocking(AsyncReader.aclose)

    def follow(self) -> None:
        """Keep `last_confirmed` up to date in the background, until the ledger or this handle is
        closed.
        """
        self._following = self._background.start(self._follow())

    @property
    def follow_failure(self) -> LedgerError | None:
        """Why `follow` ended other than by closing the ledger or this handle: the ledger was
        deleted, or the password is no longer accepted.
        """
        following = self._following
        if following is None or not following.done() or following.cancelled():
            return None
        failure = following.exception()
        return failure if isinstance(failure, LedgerError) else None

    async def _follow(self) -> None:
        while not self._handle.is_closed:
            lac = self._handle.last_confirmed
            await self._handle.wait_confirmed(lac, timeout=FOLLOW_STEP_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Parts:
    """Parts of one range. A part is admitted only if the part before it was admitted completely."""

    def __init__(self, writer: AsyncWriter) -> None:
        self._writer = writer
        self._has_failed = False

    async def append(self, chunk: list[EntryLike], timeout: float | None) -> range:
        """Append one part when it is next in order."""
        try:
            return await self._writer.append_many(_Part(self, chunk), timeout=timeout)
        except BaseException:
            self._has_failed = True
            raise

    def check(self) -> None:
        """Raise if an earlier part failed."""
        if self._has_failed:
            raise LedgerError(
                "nothing of this part was sent, because an earlier part of the range failed",
                ledger_id=self._writer.ledger_id,
            )


class _Part:
    """Entries of one part, once it is next in order."""

    def __init__(self, whole: _Parts, chunk: list[EntryLike]) -> None:
        self._whole = whole
        self._chunk = chunk

    def __iter__(self) -> Iterator[EntryLike]:
        self._whole.check()
        return iter(self._chunk)


def _chunks(entries: Iterable[EntryLike]) -> Iterator[list[EntryLike]]:
    """Split an iterable into lists of about CHUNK_BYTES_MAX."""
    items = iter(entries)
    count = min(CHUNK_ENTRIES_FIRST, CHUNK_ENTRIES_MAX)
    while chunk := list(islice(items, count)):
        sizes = list(map(len, chunk))
        size = sum(sizes)
        count = min(CHUNK_ENTRIES_MAX, max(1, CHUNK_BYTES_MAX * len(chunk) // max(1, size)))
        while size > CHUNK_BYTES_MAX and len(chunk) > 1:
            end = max(1, bisect_right(list(accumulate(sizes)), CHUNK_BYTES_MAX))
            yield chunk[:end]
            size -= sum(sizes[:end])
            chunk, sizes = chunk[end:], sizes[end:]
        yield chunk


def _failure_of(outcome: Future[range]) -> BaseException | None:
    try:
        return outcome.exception()
    except CancelledError as error:  # the client was closed
        return error


def _copy_outcome(done: asyncio.Future[int], confirmed: Future[int]) -> None:
    if done.cancelled():
        confirmed.set_exception(
            LedgerError("the client was closed before the entry was confirmed", outcome="unknown")
        )
    elif (error := done.exception()) is not None:
        confirmed.set_exception(error)
    else:
        confirmed.set_result(done.result())
