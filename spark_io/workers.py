"""Processes that Spark starts for Python code: clients that they keep, and errors that they report.

Leaves everything else to `ledger_client.sync`: Spark's Python workers are forked, reused by many
tasks and killed without notice, so a client is opened at its first use in a process and never
closed.

A worker collects garbage after each task, which visits all modules that it has imported: 50 ms
with those of a client, a third of its time in a scan. So what a task finds imported is kept out of
later collections.

Spark shows the report of a worker: a traceback, then the text of the error, at the end of many
lines. A worker reports the text only if its environment says so when it fails. It ends after that,
so no other code that runs in it loses its traceback. The traceback is in the log of the worker: the
driver's for planning and publishing, the executor's for tasks.

Source: measured: PySpark 4.2 and 4.3, whose workers end after an error of a data source, and which
set the property of a streaming query in its tasks.
"""

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, Protocol, TypeVar

from ledger_client import ClientEvent, LedgerError, LedgerUnreadable, ReplicaDamaged
from ledger_client.sync import LedgerClient
from spark_io.common_options import ClientOptions
from spark_io.errors import NoQueryIdError, SparkIoError

CLIENTS_MAX: Final = 8
"""Maximum number of clusters to which a process keeps connections of one kind."""
TEXT_ONLY: Final = "SPARK_HIDE_TRACEBACK"
"""PySpark's environment variable: a worker reports errors without their traceback."""
QUERY_ID: Final = "sql.streaming.queryId"
"""Local property with a streaming query's id, which is the same after each restart."""

_log = logging.getLogger(__name__)


def is_worker() -> bool:
    """Return whether this process is one that Spark started to run Python code."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


@contextmanager
def sentence_first() -> Iterator[None]:
    """Make the text of an error of the block the first line of Spark's message. Also a decorator,
    but not of a generator function, whose body runs later.

    Only the environment of a worker that ends with this error is changed.
    """
    try:
        yield
    except (SparkIoError, LedgerError) as error:
        if is_worker():
            _log.warning("%s", error, exc_info=True)
            os.environ[TEXT_ONLY] = "1"
        raise


def query_id_of_task() -> str:
    """Return the id of the task's streaming query; empty in a batch job."""
    from pyspark import TaskContext  # noqa: PLC0415 - clients need no PySpark

    context = TaskContext.get()
    return (context.getLocalProperty(QUERY_ID) or "") if context is not None else ""


def query_id_of_job(of_tasks: Iterable[str]) -> str:
    """Return the id of the streaming query whose foreachBatch runs a batch job, from those that the
    tasks returned; empty for other jobs.
    """
    return next(filter(None, of_tasks), "")


def query_id_of_stream(of_tasks: Iterable[str]) -> str:
    """Return the id of a streaming query from those that the tasks returned. Raises
    NoQueryIdError.
    """
    query_id = query_id_of_job(of_tasks)
    if not query_id:
        raise NoQueryIdError
    return query_id


class _Closeable(Protocol):
    def close(self) -> None: ...


HeldT = TypeVar("HeldT", bound=_Closeable)


class PerCluster(Generic[HeldT]):
    """One connection of a kind per process and cluster, opened at its first use.

    Each is used only in the process that opened it. Those that were not used for longest are closed
    when there are too many.
    """

    def __init__(self, open_to: Callable[[ClientOptions], HeldT]) -> None:
        self._open_to = open_to
        self._held: dict[tuple[int, ClientOptions], HeldT] = {}

    def of(self, options: ClientOptions) -> HeldT:
        """Return this process's connection to a cluster."""
        key = os.getpid(), options
        held = self._held.pop(key, None)
        if held is None:
            held = self._open_to(options)
        self._held[key] = held  # the most recently used is the last
        while len(self._held) > CLIENTS_MAX:
            oldest = next(iter(self._held))
            self._held.pop(oldest).close()
        return held


def client_of(options: ClientOptions) -> LedgerClient:
    """Return this process's client of a cluster."""
    return _clients.of(options)


def open_client(options: ClientOptions) -> LedgerClient:
    """Open a client that stays open as long as this process."""
    if is_worker():  # the process is not the user's
        gc.collect()
        gc.freeze()
    return LedgerClient(options.metadata, config=options.config, on_event=_log_event)


_clients = PerCluster(open_client)


def _log_event(event: ClientEvent) -> None:
    if isinstance(event, ReplicaDamaged):
        _log.warning(
            "bookie %s returned a damaged copy of entry %d of ledger %d: another one was read",
            event.bookie_id,
            event.entry_id,
            event.ledger_id,
        )
    elif isinstance(event, LedgerUnreadable):
        text = "ledger %d is left out: its metadata cannot be read (%s)"
        _log.warning(text, event.ledger_id, event.reason)
