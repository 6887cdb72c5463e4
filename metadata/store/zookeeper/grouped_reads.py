"""Reads of nodes that are asked for together, sent together.

Leaves repeating them to `store.py`, and calls to kazoo to `session.py`.

A request costs kazoo's thread far more than a node does, so the reads of one pass of the event loop
share requests: a listing of thousands of ledgers takes a quarter of the time.

Invariants: each read has its own result; a read is sent after everything that was submitted to the
session before it; a read without others is an ordinary request.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from metadata.store.zookeeper.calls import CallError
from metadata.store.zookeeper.multi_read import ReadResult
from metadata.store.zookeeper.session import ZooKeeperSession

if TYPE_CHECKING:
    from collections.abc import Sequence

READS_PER_REQUEST_MAX: Final = 64
"""Limit of the answer of a request: a ping waits behind it."""

Read = tuple[str, "asyncio.Future[tuple[bytes, Any]]"]


class GroupedReads:
    """Reads over one session."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Read] = []

    def get(self, path: str) -> "asyncio.Future[tuple[bytes, Any]]":
        """Read a node: its value, and kazoo's statistics of it. The future carries kazoo's
        exceptions.
        """
        future: asyncio.Future[tuple[bytes, Any]] = self._loop.create_future()
        if not self._waiting:
            self._loop.call_soon(self._send)
        self._waiting.append((path, future))
        return future

    def _send(self) -> None:
        waiting = [read for read in self._waiting if not read[1].done()]
        self._waiting = []
        for start in range(0, len(waiting), READS_PER_REQUEST_MAX):
            self._submit(waiting[start : start + READS_PER_REQUEST_MAX])

    def _submit(self, reads: list[Read]) -> None:
        paths = [path for path, _ in reads]
        sent: asyncio.Future[Any] = (
            self._session.submit("get", paths[0])
            if len(paths) == 1
            else self._session.submit_reads(paths)
        )

        def settle(sent: "asyncio.Future[Any]") -> None:
            if sent.cancelled():  # with the loop
                results: Sequence[ReadResult] = []
            elif isinstance(error := sent.exception(), CallError):
                results = [error] * len(reads)
            else:
                results = [sent.result()] if len(reads) == 1 else sent.result()
            for (_, future), result in zip(reads, results, strict=False):
                _settle(future, result)

        sent.add_done_callback(settle)


def _settle(future: "asyncio.Future[tuple[bytes, Any]]", result: ReadResult) -> None:
    if future.done():
        return
    if isinstance(result, CallError):
        future.set_exception(result)
    else:
        future.set_result(result)
