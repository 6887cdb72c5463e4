"""Bridge between the event loop and one kazoo client.

Leaves the meaning of calls and reports to `store.py`. kazoo is untyped and runs three threads:
everything untyped, and everything that crosses threads, stays in this module and in
`connections.py`, which opens the connections.

Invariants: reports reach the loop in the order in which kazoo's socket thread saw them; an attempt
to connect to one server takes at most `try_timeout_s`, so that a silent server does not use up the
session; the server tried last is the last one tried again; a server that is behind what this
process has seen refuses it, also when a new session begins: kazoo drops what it has seen then; what
ends kazoo's connecting thread before `stop` ends its session, and a new one begins.

Source: kazoo 2.10-2.11.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    EXCEPTIONS,
    AuthFailedError,
    ConnectionDropped,
    KazooException,
    NoAuthError,
    NodeExistsError,
    ZookeeperError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from metadata.store.uri import MetadataUri
from metadata.store.zookeeper.connections import ConnectionHandler, cut
from metadata.store.zookeeper.multi_read import MultiRead, ReadResult
from quire.identity.client_file import zookeeper_access_of
from quire.identity.zookeeper_access import DIGEST

RECONNECT_DELAY_S: Final = 0.05
RECONNECT_DELAY_MAX_S: Final = 0.2
RECONNECT_BACKOFF: Final = 2
RECONNECT_JITTER: Final = 0.4
"""Part of a pause that is added or taken away, so that clients do not connect in step."""
STOP_POLITE_S: Final = 1.0
STOP_MAX_S: Final = 5.0
TRY_TIMEOUT_MIN_S: Final = 0.1
WATCHER_TABLES: Final = ("_data_watchers", "_child_watchers")
"""Kazoo's tables of path -> functions."""
PRUNE_AFTER: Final = 1_000
"""Number of removed watchers after which the paths without any are removed from the tables."""

# An error code without a class would end kazoo's thread, and with it the session.
EXCEPTIONS.default_factory = lambda: ZookeeperError

_log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.CRITICAL)  # kazoo logs each failed attempt; `store.py` logs the result


def reconnect_retry(sleep: Callable[[float], None] = time.sleep) -> KazooRetry:
    """Return the policy of connecting again: for ever, with a pause of at least RECONNECT_DELAY_S /
    2 before each attempt.

    Kazoo multiplies the last pause, jitter included, by `backoff`. With a factor of 1 the pauses
    are a random walk that ends at zero within minutes; the smallest product of factor and jitter
    must be above 1.
    """
    return KazooRetry(
        max_tries=-1,
        delay=RECONNECT_DELAY_S,
        backoff=RECONNECT_BACKOFF,
        max_jitter=RECONNECT_JITTER,
        max_delay=RECONNECT_DELAY_MAX_S,
        sleep_func=sleep,
    )


@dataclass(frozen=True, slots=True)
class LinkUp:
    """A server answers: the session, its timeout without contact, and the time of the contact."""

    session_id: int
    session_timeout_s: float
    contacted_s: float


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The connection is gone; the session may still live."""


@dataclass(frozen=True, slots=True)
class SessionLost:
    """The server reported that the session has ended, or refused it."""


LinkEvent = LinkUp | LinkDown | SessionLost


def try_timeout_s(session_timeout_s: float, host_count: int) -> float:
    """Return the maximum time of one attempt at one server, in seconds; attempts at all servers fit
    into half a session.
    """
    return max(TRY_TIMEOUT_MIN_S, session_timeout_s / (4 * host_count))


class ZooKeeperSession:
    """One kazoo client; belongs to the loop and the process that created it.

    Raises SecurityError for a client's file that cannot be used.
    """

    def __init__(
        self,
        uri: MetadataUri,
        session_timeout_s: float,
        rng: Random,
        on_event: Callable[[LinkEvent], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_event = on_event
        self._chroot = uri.chroot
        self._pid = os.getpid()
        self._rng = Random(rng.getrandbits(64))  # used by kazoo's thread
        self._last_tried: object = None
        self._newest_zxid = 0
        self._dropped = 0
        self._try_timeout_s = try_timeout_s(session_timeout_s, len(uri.hosts))
        self._contacted_s = self._loop.time()
        access = zookeeper_access_of(uri.client_file)
        access.check_may_send([host for host, _ in uri.hosts])
        self.has_login = access.has_login
        self._handler = ConnectionHandler(self._try_timeout_s, access)
        credential = access.credential
        self._client: Any = KazooClient(
            hosts=uri.host_text,  # kazoo creates no chroot of several levels: `_full` adds it
            timeout=session_timeout_s,
            handler=self._handler,
            auth_data=[(DIGEST, credential)] if credential else [],
            randomize_hosts=False,
            connection_retry=reconnect_retry(),
            logger=_kazoo_log,
        )
        self._client.add_listener(self._state_changed)
        self._wrap_connection(self._client._connection)  # noqa: SLF001
        self._keep_connecting(self._client._connection)  # noqa: SLF001

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process created the client; after a fork the threads exist only in the
        parent.
        """
        return os.getpid() == self._pid

    @property
    def failure(self) -> str:
        """Why the last attempt to connect failed; empty if it did not."""
        reasons = (self._handler.failure, self._handler.unknown_names)
        return "; ".join(filter(None, reasons))

    def start(self) -> None:
        """Start connecting; returns at once."""
        self._client.start_async()

    def submit(
        self, method: str, path: str, *arguments: object, **options: object
    ) -> "asyncio.Future[Any]":
        """Call one of kazoo's `..._async` methods; the future carries kazoo's exceptions."""
        call = getattr(self._client, f"{method}_async")
        return self._bridge(call(self._full(path), *arguments, **options))

    def submit_reads(self, paths: Sequence[str]) -> "asyncio.Future[list[ReadResult]]":
        """Read several nodes in one request."""
        result = self._handler.async_result()
        self._client._call(MultiRead([*map(self._full, paths)]), result)  # noqa: SLF001
        return self._bridge(result)

    async def make_root(self) -> None:
        """Create the chroot if it is missing."""
        names = self._chroot.split("/")[1:]
        for count in range(1, len(names) + 1):
            path = "/" + "/".join(names[:count])
            with contextlib.suppress(NodeExistsError, NoAuthError):
                await self._bridge(self._client.create_async(path))

    def submit_transaction(self, operations: list[tuple[Any, ...]]) -> "asyncio.Future[Any]":
        """Send one transaction of (method, path, arguments...) tuples."""
        transaction = self._client.transaction()
        for method, path, *arguments in operations:
            getattr(transaction, method)(self._full(path), *arguments)
        return self._bridge(transaction.commit_async())

    async def stop(self) -> None:
        """End the session within STOP_MAX_S, cleanly if the server answers."""
        if not self.is_of_this_process:
            return
        stopping = self._loop.run_in_executor(None, self._stop)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_POLITE_S):
                await asyncio.shield(stopping)
                return
        self.cut()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_MAX_S):
                await asyncio.shield(stopping)

    def cut(self) -> None:
        """Cut the connection: kazoo's thread stops waiting for its server, and tries the others."""
        connected = self._client._connection._socket  # noqa: SLF001
        if connected is not None:
            with contextlib.suppress(OSError):
                cut(connected)

    def _full(self, path: str) -> str:
        return (self._chroot + path).rstrip("/") or "/"

    def _stop(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:  # noqa: BLE001  # nothing depends on it any more
            _log.debug("closing the connection: %s", error)

    def _bridge(self, result: Any) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = self._loop.create_future()

        def settle() -> None:
            if future.done():
                return
            error = result.exception
            if error is None:
                future.set_result(result.value)
            elif isinstance(error, KazooException):
                future.set_exception(error)
            else:  # kazoo could not read the answer
                future.set_exception(KazooException(f"{type(error).__name__}: {error}"))

        result.rawlink(lambda _: self._to_loop(settle))
        return future

    def _to_loop(self, callback: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for this
            self._loop.call_soon_threadsafe(callback)

    def watcher(self, callback: Callable[[], None]) -> Callable[[Any], None]:
        """Return a function for kazoo's `watch=` that calls back on the loop, except for a lost
        connection.
        """

        def fired(event: Any) -> None:
            if event.type != "NONE":
                self._to_loop(callback)

        return fired

    def drop_watcher(self, path: str, watcher: object, *, may_prune: bool) -> None:
        """Remove a function given as `watch=`, which kazoo would keep until the node changes.
        `may_prune`: no call with `watch=` is under way, so that kazoo's thread adds no path.
        """
        for name in WATCHER_TABLES:
            watchers = getattr(self._client, name).get(self._full(path))
            if watchers is not None:
                watchers.discard(watcher)
        self._dropped += 1
        if may_prune and self._dropped >= PRUNE_AFTER:
            self._dropped = 0
            for name in WATCHER_TABLES:  # kazoo's thread may be iterating over the old table
                left = [item for item in list(getattr(self._client, name).items()) if item[1]]
                setattr(self._client, name, defaultdict(set, left))

    def _state_changed(self, state: str) -> None:
        """Pass a state change to the loop; runs on kazoo's socket thread."""
        event: LinkEvent
        if state == KazooState.CONNECTED:
            # `connect`, below, reports it when it knows the session's timeout
            return
        event = LinkDown() if state == KazooState.SUSPENDED else SessionLost()
        self._to_loop(lambda: self._on_event(event))

    def _wrap_connection(self, connection: Any) -> None:
        """Limit the time of each attempt, order the servers, read values that kazoo does not
        expose, and connect again after an answer that kazoo cannot read.
        """
        plain_connect = connection._connect  # noqa: SLF001
        plain_invoke = connection._invoke  # noqa: SLF001
        plain_expand = connection._expand_client_hosts  # noqa: SLF001
        plain_read = connection._read_socket  # noqa: SLF001

        def connect(host: str, address: str, port: int) -> Any:
            self._last_tried = (host, address, port)
            self._newest_zxid = max(self._newest_zxid, self._client.last_zxid)
            self._client.last_zxid = self._newest_zxid
            contacted_s = self._loop.time()
            try:
                timeouts = plain_connect(host, address, port)
            except AuthFailedError as error:  # it would end kazoo's thread
                self._handler.failure = "the server refused the login"
                raise ConnectionDropped(self._handler.failure) from error
            except (ConnectionDropped, KazooTimeoutError) as error:
                self._handler.note_failure(error)
                raise
            self._handler.failure = ""
            negotiated_s = timeouts[0] / 1000 * 1.5  # kazoo's timeout is 2/3 of a session
            session_id = self._client._session_id  # noqa: SLF001
            event = LinkUp(session_id, negotiated_s, contacted_s)
            self._to_loop(lambda: self._on_event(event))
            return timeouts

        def invoke(timeout: float, request: Any, xid: Any = None) -> Any:
            if isinstance(request, Connect):
                timeout = min(timeout, self._try_timeout_s)
            return plain_invoke(timeout, request, xid)

        def read(timeout: float) -> Any:
            try:
                return plain_read(timeout)
            except (KazooException, KazooTimeoutError):
                raise
            except Exception as error:  # it would end kazoo's thread
                raise ConnectionDropped(f"an answer cannot be read: {error}") from error

        def expand() -> list[Any]:
            hosts = plain_expand()
            self._handler.note_names([name for name, _ in self._client.hosts], hosts)
            self._rng.shuffle(hosts)
            hosts.sort(key=lambda host: host == self._last_tried)
            return hosts  # type: ignore[no-any-return]

        connection._connect = connect  # noqa: SLF001
        connection._invoke = invoke  # noqa: SLF001
        connection._read_socket = read  # noqa: SLF001
        connection._expand_client_hosts = expand  # noqa: SLF001

    def _keep_connecting(self, connection: Any) -> None:
        """Begin kazoo's loop again when anything but `stop` has ended it. Its end has reported the
        session as lost, and has failed what was under way.
        """
        plain_loop = connection.zk_loop
        stopped = self._client._stopped  # noqa: SLF001

        def connect_until_stopped() -> None:
            while not stopped.is_set():
                try:
                    plain_loop()
                except Exception as error:  # noqa: BLE001  # it would end kazoo's thread
                    self._handler.note_failure(error)
                    _log.exception("connecting to ZooKeeper failed, and begins again")
                stopped.wait(RECONNECT_DELAY_MAX_S)

        connection.zk_loop = connect_until_stopped
