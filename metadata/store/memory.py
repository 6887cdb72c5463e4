"""Metadata store within one process: the reference implementation of `MetadataStore`, also under
faults.

Leaves the meaning of single operations to `memory_tree.py` and `memory_server.py`, and the choice
of faults to the given `StoreFaults`.

Invariants: several stores share one server object, and each is one session; as with a real service,
a sent request may be applied after its caller received an unknown outcome or was cancelled; the
order of all events depends only on the event loop.

Source: protocol rule 1.3; ZooKeeper's sessions.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from metadata.callbacks import Callbacks
from metadata.cancelling import cancel_and_wait
from metadata.errors import (
    MetadataError,
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreClosedError,
    StoreUnavailableError,
)
from metadata.ids import Version
from metadata.store.interface import (
    OPERATION_TIMEOUT_S,
    PARENT_ATTEMPTS_MAX,
    SESSION_TIMEOUT_S,
    Cancel,
    CompareAndSet,
    Create,
    Delete,
    MetadataStore,
    Operation,
    SessionCallback,
    SessionState,
    Stored,
    WatchCallback,
    check_multi,
)
from metadata.store.memory_faults import StoreCall
from metadata.store.memory_server import MemoryMetadataServer
from metadata.store.memory_tree import MemoryTree, NodeChange, check_path, parent_of

__all__ = ["MemoryMetadataServer", "MemoryMetadataStore"]

T = TypeVar("T")


@dataclass(slots=True)
class _Watch:
    path: str
    callback: WatchCallback
    of_children: bool


@dataclass(slots=True)
class _Request:
    call: StoreCall
    reply: "asyncio.Future[object]"
    is_sent: bool = False
    task: "asyncio.Task[None] | None" = None


class MemoryMetadataStore:
    """One session with a `MemoryMetadataServer`.

    `suspend`, `resume` and `expire` do what the network and the server do to a session.
    """

    def __init__(
        self,
        server: MemoryMetadataServer,
        *,
        operation_timeout_s: float = OPERATION_TIMEOUT_S,
        session_timeout_s: float = SESSION_TIMEOUT_S,
    ) -> None:
        self._server = server
        self._operation_timeout_s = operation_timeout_s
        self._session_timeout_s = session_timeout_s
        self._state = SessionState.CONNECTED
        self._connected = asyncio.Event()
        self._connected.set()
        self._session_id = server.open_session(self)
        self._seen = 0
        self._requests: dict[int, _Request] = {}
        self._watches: dict[int, _Watch] = {}
        self._session_callbacks = Callbacks[SessionState]()
        self._unreported: deque[SessionState] = deque()
        self._last_number = 0
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """Address of the service, for messages."""
        return self._server.address

    @property
    def session_state(self) -> SessionState:
        """State of the session as known now."""
        return self._state

    @property
    def session_id(self) -> int:
        """Id of the session; changes with every new session."""
        return self._session_id

    async def create(
        self, path: str, value: bytes, *, ephemeral: bool = False, make_parents: bool = True
    ) -> Version:
        """Create a node (see `MetadataStore`)."""
        operation = Create(path, value, ephemeral)
        for _ in range(PARENT_ATTEMPTS_MAX if make_parents else 0):
            try:
                await self._make_parents(path)
                return (await self._write("create", [operation]))[0]
            except NodeNotFoundError:
                continue  # an empty parent was removed concurrently
        return (await self._write("create", [operation]))[0]

    async def get(self, path: str, *, fresh: bool = False, agreed: bool = False) -> Stored:
        """Read a node (see `MetadataStore`)."""
        read = partial(self._tree.get, path)
        return await self._read("get", path, read, fresh=fresh, agreed=agreed)

    async def compare_and_set(self, path: str, value: bytes, expected: Version) -> Version:
        """Write if the version matches (see `MetadataStore`)."""
        operation = CompareAndSet(path, value, expected)
        return (await self._write("compare_and_set", [operation]))[0]

    async def delete(self, path: str, expected: Version) -> None:
        """Delete if the version matches (see `MetadataStore`)."""
        await self._write("delete", [Delete(path, expected)])

    async def children(self, path: str, *, fresh: bool = False, agreed: bool = False) -> list[str]:
        """Return the sorted names below a node (see `MetadataStore`)."""
        read = partial(self._tree.children, path)
        return await self._read("children", path, read, fresh=fresh, agreed=agreed)

    async def multi(self, operations: Sequence[Operation]) -> list[Version]:
        """Apply all operations or none (see `MetadataStore`)."""
        return await self._write("multi", list(operations))

    def watch_value(self, path: str, callback: WatchCallback, *, holder: str = "") -> Cancel:
        """Call back after each change of a node (see `MetadataStore`)."""
        return self._watch(_Watch(path, callback, of_children=False))

    def watch_children(self, path: str, callback: WatchCallback, *, holder: str = "") -> Cancel:
        """Call back after each change of the names below a node (see `MetadataStore`)."""
        return self._watch(_Watch(path, callback, of_children=True))

    def on_session(self, callback: SessionCallback) -> Cancel:
        """Call back at every change of the session's state."""
        return self._session_callbacks.add(callback)

    async def aclose(self) -> None:
        """End the session, which removes its ephemeral nodes at once."""
        if self._state is SessionState.CLOSED:
            return
        self._stop_expiry()
        self._enter(SessionState.CLOSED)
        self._watches.clear()
        self._server.end_session(self._session_id)
        requests = list(self._requests.values())
        self._fail(requests, lambda _: StoreClosedError("the metadata store is closed"))
        await cancel_and_wait(*[request.task for request in requests])

    def suspend(self) -> None:
        """Cut the connection: running calls have an unknown outcome, and the session ends after its
        timeout.
        """
        if self._state is not SessionState.CONNECTED:
            return
        self._connected.clear()
        self._enter(SessionState.SUSPENDED)
        sent = [request for request in self._requests.values() if request.is_sent]
        self._fail(sent, lambda request: self._lost(request, "connection lost"))
        loop = asyncio.get_running_loop()
        self._expiry = loop.call_later(self._session_timeout_s, self.expire)

    def resume(self) -> None:
        """Connect again, with a new session if the old one has ended. Every watch calls back."""
        if self._state not in (SessionState.SUSPENDED, SessionState.EXPIRED):
            return
        self._stop_expiry()
        if self._state is SessionState.EXPIRED:
            self._session_id = self._server.open_session(self)
        self._enter(SessionState.CONNECTED)
        self._connected.set()
        for number in list(self._watches):
            self._call_back(number)

    def expire(self) -> None:
        """End the session; if the connection is up, a new session follows at once."""
        if self._state in (SessionState.CLOSED, SessionState.EXPIRED):
            return
        connected = self._state is SessionState.CONNECTED
        if connected:
            self.suspend()
        self._stop_expiry()
        self._server.end_session(self._session_id)
        self._enter(SessionState.EXPIRED)
        if connected:
            self.resume()

    def notice(self, change: NodeChange) -> None:
        """Receive a change from the server."""
        if self._state is not SessionState.CONNECTED:
            return
        parent = parent_of(change.path) if change.alters_children else ""
        for number, watch in list(self._watches.items()):
            if watch.path == (parent if watch.of_children else change.path):
                self._call_back(number, change)

    @property
    def _tree(self) -> MemoryTree:
        return self._server.tree

    async def _make_parents(self, path: str) -> None:
        check_path(path)
        missing: list[str] = []
        above = parent_of(path)
        while above != "/" and not self._tree.exists(above):
            missing.append(above)
            above = parent_of(above)
        for parent in reversed(missing):
            try:
                await self._write("create", [Create(parent, b"")])
            except NodeExistsError:
                continue

    async def _write(self, name: str, operations: list[Operation]) -> list[Version]:
        check_multi(operations)
        versions: list[Version] = []

        def act(call: StoreCall) -> None:
            versions.extend(self._server.apply(call.session_id, operations))
            self._seen = self._tree.change_count

        await self._request(StoreCall(self._session_id, name, operations[0].path, True), act)  # noqa: FBT003
        return versions

    async def _read(
        self, name: str, path: str, read: Callable[[int], T], *, fresh: bool, agreed: bool
    ) -> T:
        answers: list[T] = []

        def act(call: StoreCall) -> None:
            newest = self._tree.change_count
            wanted = newest if agreed else newest - self._server.faults.missed_changes(call)
            # A session never reads an older state than before.
            self._seen = min(newest, max(self._seen, wanted))
            answers.append(read(newest - self._seen))

        call = StoreCall(self._session_id, name, path, False, fresh, agreed)  # noqa: FBT003
        await self._request(call, act)
        return answers[0]

    async def _request(self, call: StoreCall, act: Callable[[StoreCall], None]) -> None:
        check_path(call.path)
        if self._state is SessionState.CLOSED:
            raise StoreClosedError("the metadata store is closed")
        loop = asyncio.get_running_loop()
        request = _Request(call, loop.create_future())
        number = self._next_number()
        self._requests[number] = request
        request.task = loop.create_task(self._perform(number, request, act))
        try:
            async with asyncio.timeout(self._operation_timeout_s):
                await request.reply
        except TimeoutError:
            why = f"no answer within {self._operation_timeout_s} s"
            if not request.is_sent:
                request.task.cancel()
                raise StoreUnavailableError(self.address, why) from None
            raise self._lost(request, why) from None

    async def _perform(
        self, number: int, request: _Request, act: Callable[[StoreCall], None]
    ) -> None:
        """Send one request to the server and return its answer, even if the caller has been
        cancelled.
        """
        try:
            await self._connected.wait()
            request.call = replace(request.call, session_id=self._session_id)
            request.is_sent = True
            await self._server.faults.before(request.call)
            if not self._server.is_alive(request.call.session_id):
                raise self._lost(request, "the session ended")
            act(request.call)
            await self._server.faults.after(request.call)
        except MetadataError as error:
            if not request.reply.done():
                request.reply.set_exception(error)
        else:
            if not request.reply.done():
                request.reply.set_result(None)
        finally:
            del self._requests[number]

    def _lost(self, request: _Request, why: str) -> MetadataError:
        if request.call.is_write:
            return OutcomeUnknownError(request.call.path, why)
        return StoreUnavailableError(self.address, why)

    def _fail(
        self, requests: list[_Request], error_of: Callable[[_Request], MetadataError]
    ) -> None:
        for request in requests:
            if not request.reply.done():
                request.reply.set_exception(error_of(request))

    def _watch(self, watch: _Watch) -> Cancel:
        check_path(watch.path)
        number = self._next_number()
        self._watches[number] = watch

        def cancel() -> None:
            self._watches.pop(number, None)

        return cancel

    def _call_back(self, number: int, change: NodeChange | None = None) -> None:
        def deliver() -> None:
            watch = self._watches.get(number)
            if watch is not None:
                if change is not None:  # a session that was notified of a change can also read it
                    self._seen = max(self._seen, change.number)
                watch.callback()

        loop = asyncio.get_running_loop()
        loop.call_later(self._server.faults.watch_delay_s(self._watches[number].path), deliver)

    def _enter(self, state: SessionState) -> None:
        self._state = state
        self._unreported.append(state)
        asyncio.get_running_loop().call_soon(self._report_next)

    def _report_next(self) -> None:
        self._session_callbacks.notify(self._unreported.popleft())

    def _stop_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number


if TYPE_CHECKING:
    _: type[MetadataStore] = MemoryMetadataStore
