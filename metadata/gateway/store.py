"""Metadata store over a gateway.

Leaves the session to `session.py`. What it guarantees is what `metadata.store.interface` says:

- A version is that of ZooKeeper: the gateway changes none.
- `fresh` and `agreed` are those of ZooKeeper. A gateway makes an agreed read before it answers a
  hello, so a client that moves to another gateway reads nothing older than before.
- A write is sent once. If the connection is lost before its reply, its outcome is unknown.
- A watch calls back after each change, and after each suspension.
- An ephemeral node ends with the session, see `session.py`.

In addition to the errors of the interface, every call may raise GatewayRefusedError: the client
does not have the right to it, and nothing was changed.

Source: docs/security.md, "A gateway for clients".
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from metadata.errors import (
    OutcomeUnknownError,
    StoreClosedError,
    StoreRefusedError,
    StoreUnavailableError,
)
from metadata.gateway.codec import NUMBER_MAX, names_of, stored_of, versions_of
from metadata.gateway.connection import GatewayConnection
from metadata.gateway.errors import GatewayFormatError
from metadata.gateway.messages import (
    Children,
    CreateNode,
    Get,
    Multi,
    Request,
    Unwatch,
    Watch,
    is_path,
)
from metadata.gateway.session import GatewaySession
from metadata.ids import Version
from metadata.msgpack_fields import Packed
from metadata.store.interface import (
    OPERATION_TIMEOUT_S,
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
from metadata.store.session_clock import SessionClock
from metadata.store.uri import MetadataUri
from quire.identity.tls import ContextSource


class GatewayMetadataStore:
    """One client of the gateways that a URI names."""

    def __init__(
        self,
        uri: MetadataUri,
        ssl: ContextSource | None,
        rng: Random,
        *,
        operation_timeout_s: float = OPERATION_TIMEOUT_S,
        session_timeout_s: float = SESSION_TIMEOUT_S,
    ) -> None:
        self._address = uri.text
        self._operation_timeout_s = operation_timeout_s
        self._clock = SessionClock(session_timeout_s, asyncio.get_running_loop().time())
        self._is_up = asyncio.Event()
        self._connection: GatewayConnection | None = None
        self._watches: dict[int, tuple[Watch, WatchCallback]] = {}
        self._last_number = 0
        self._session = GatewaySession(
            uri, ssl, self._clock, rng, on_event=self._call_back, on_change=self._note_connection
        )

    async def connect(self) -> None:
        """Begin the session. Raises StoreUnavailableError when no gateway answers in time."""
        self._session.start()
        try:
            async with asyncio.timeout(self._operation_timeout_s):
                await self._is_up.wait()
        except TimeoutError:
            raise self._unavailable() from None

    @property
    def address(self) -> str:
        """Address of the gateways, for messages."""
        return self._address

    @property
    def session_state(self) -> SessionState:
        """State of the session as known now."""
        return self._clock.state_at(asyncio.get_running_loop().time())

    @property
    def session_id(self) -> int:
        """Id of the session; changes with every new session."""
        return self._clock.session_id

    async def create(
        self, path: str, value: bytes, *, ephemeral: bool = False, make_parents: bool = True
    ) -> Version:
        """Create a node (see `MetadataStore`)."""
        operation = Create(path, value, ephemeral)
        check_multi([operation])
        return (await self._write(path, CreateNode(operation, make_parents), 1))[0]

    async def get(self, path: str, *, fresh: bool = False, agreed: bool = False) -> Stored:
        """Read a node (see `MetadataStore`)."""
        return stored_of(await self._read(path, Get(path, fresh, agreed)))

    async def compare_and_set(self, path: str, value: bytes, expected: Version) -> Version:
        """Write if the version matches (see `MetadataStore`)."""
        return (await self.multi([CompareAndSet(path, value, expected)]))[0]

    async def delete(self, path: str, expected: Version) -> None:
        """Delete if the version matches (see `MetadataStore`)."""
        await self.multi([Delete(path, expected)])

    async def children(self, path: str, *, fresh: bool = False, agreed: bool = False) -> list[str]:
        """Return the sorted names below a node (see `MetadataStore`)."""
        return names_of(await self._read(path, Children(path, fresh, agreed)))

    async def multi(self, operations: Sequence[Operation]) -> list[Version]:
        """Apply all operations or none (see `MetadataStore`)."""
        check_multi(operations)
        request = Multi(tuple(operations))
        return await self._write(operations[0].path, request, len(operations))

    def watch_value(self, path: str, callback: WatchCallback, *, holder: str = "") -> Cancel:
        """Call back after each change of a node (see `MetadataStore`)."""
        return self._watch(path, callback, of_children=False)

    def watch_children(self, path: str, callback: WatchCallback, *, holder: str = "") -> Cancel:
        """Call back after each change of the names below a node (see `MetadataStore`)."""
        return self._watch(path, callback, of_children=True)

    def on_session(self, callback: SessionCallback) -> Cancel:
        """Call back at every change of the session's state."""
        return self._clock.on_session(callback)

    async def aclose(self) -> None:
        """End the session. Its ephemeral nodes are removed at once, or after the session timeout if
        no gateway answers.
        """
        if self._clock.state is SessionState.CLOSED:
            return
        self._clock.close()
        self._is_up.set()  # calls that wait for a connection fail now
        self._watches.clear()
        await self._session.aclose()

    # -- calls

    async def _read(self, path: str, request: Request) -> Packed:
        """Repeat a read until it is answered, within the operation's time."""
        self._require_open(path)
        try:
            async with asyncio.timeout(self._operation_timeout_s):
                while True:
                    connection = await self._connected()
                    try:
                        return await connection.call(request)
                    except ConnectionError:
                        await asyncio.sleep(0)  # the loss is reported now
                    except OverflowError as error:
                        raise StoreUnavailableError(self._address, str(error)) from error
        except TimeoutError:
            raise self._unavailable() from None

    async def _write(self, path: str, request: Request, count: int) -> list[Version]:
        """Send a write once; return the versions after its `count` operations. Its outcome is known
        or unknown; it is never repeated here.
        """
        result = await self._sent(path, request)
        try:
            versions = versions_of(result)
        except GatewayFormatError as error:
            raise OutcomeUnknownError(path, str(error)) from error
        if len(versions) != count:
            why = f"{self._address} answered {count} operations with {len(versions)} versions"
            raise OutcomeUnknownError(path, why)
        return versions

    async def _sent(self, path: str, request: Request) -> Packed:
        self._require_open(path)
        is_sent = False
        try:
            async with asyncio.timeout(self._operation_timeout_s):
                connection = await self._connected()
                answer = connection.call(request)
                is_sent = True
                return await answer
        except OverflowError as error:
            raise StoreUnavailableError(self._address, str(error)) from error
        except ConnectionError as error:
            if self._clock.state is SessionState.CLOSED:
                raise self._closed() from error
            raise OutcomeUnknownError(path, str(error)) from error
        except TimeoutError:
            if not is_sent:
                raise self._unavailable() from None
            why = f"no answer from {self._address} within {self._operation_timeout_s} s"
            raise OutcomeUnknownError(path, why) from None

    async def _connected(self) -> GatewayConnection:
        while True:
            await self._is_up.wait()
            if self._clock.state is SessionState.CLOSED:
                raise self._closed()
            if self._connection is not None:
                return self._connection
            self._is_up.clear()

    def _require_open(self, path: str) -> None:
        if self._clock.state is SessionState.CLOSED:
            raise self._closed()
        if not is_path(path):
            raise StoreRefusedError(path, self._address, "it is not a path of plain names")

    def _closed(self) -> StoreClosedError:
        return StoreClosedError(f"the metadata store at {self._address} is closed")

    def _unavailable(self) -> StoreUnavailableError:
        why = f"no answer within {self._operation_timeout_s} s"
        failure = self._session.failure
        return StoreUnavailableError(self._address, f"{why}: {failure}" if failure else why)

    # -- watches

    def _watch(self, path: str, callback: WatchCallback, *, of_children: bool) -> Cancel:
        self._require_open(path)
        if len(self._watches) >= self._session.watches_max:
            why = f"this client has {len(self._watches)} watches, which is the gateway's limit"
            raise StoreRefusedError(path, self._address, why)
        self._last_number = (self._last_number + 1) % NUMBER_MAX
        watch = Watch(self._last_number, path, of_children)
        self._watches[watch.number] = (watch, callback)
        if self._connection is not None:
            self._connection.send(watch)

        def cancel() -> None:
            if self._watches.pop(watch.number, None) is not None and self._connection is not None:
                self._connection.send(Unwatch(watch.number))

        return cancel

    def _call_back(self, number: int) -> None:
        watch = self._watches.get(number)
        if watch is None:
            return  # it was cancelled meanwhile
        try:
            watch[1]()
        except Exception as error:  # noqa: BLE001 - it is reported, and others run
            what = {"message": f"callback {watch[1]} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(what)

    def _note_connection(self, connection: GatewayConnection | None) -> None:
        """Use a new connection, with all watches, which call back: changes may have been missed."""
        if self._clock.state is SessionState.CLOSED:
            return
        self._connection = connection
        if connection is None:
            self._is_up.clear()
            return
        for watch, _ in self._watches.values():
            connection.send(watch)
        self._is_up.set()
        for number in tuple(self._watches):
            self._call_back(number)


if TYPE_CHECKING:
    _: type[MetadataStore] = GatewayMetadataStore
