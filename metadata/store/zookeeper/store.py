"""Metadata store over ZooKeeper.

Leaves kazoo and its threads to `session.py`, contact with the server to
`heartbeat.py`, keeping watches armed to `watches.py`, and the rights of new
nodes to `metadata.security.followed_rights`.

Invariants: a write that reached kazoo and has no answer has an unknown outcome; a write that only
waited for a connection was certainly not sent; this process's own clock decides when the session
counts as expired, measured from the sending of the last answered request, because the server
reports it only after a reconnect.

Source: protocol rule 1.3; metadata design.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from metadata.cancelling import cancel_and_wait
from metadata.errors import (
    MetadataError,
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreClosedError,
    StoreRefusedError,
    StoreUnavailableError,
)
from metadata.ids import Version
from metadata.security.access_errors import AccessRefusedError
from metadata.security.followed_rights import FollowedRights
from metadata.security.rights_record import AccessList
from metadata.store.interface import (
    OPERATION_TIMEOUT_S,
    PARENT_ATTEMPTS_MAX,
    SESSION_TIMEOUT_S,
    Cancel,
    Check,
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
from metadata.store.uri import MetadataUri, parse_zookeeper_uri
from metadata.store.zookeeper.calls import (
    CONNECTION_ERRORS,
    CallError,
    access_list,
    is_bystander,
    kazoo_list,
    transaction_call,
    translated,
    version_of,
)
from metadata.store.zookeeper.grouped_reads import GroupedReads
from metadata.store.zookeeper.heartbeat import keep_alive
from metadata.store.zookeeper.session import LinkEvent, LinkUp, ZooKeeperSession
from metadata.store.zookeeper.watches import WatchArming, WatchKind, WatchTable

ROOT_EXISTS: Final = Check("/", Version(-1))
"""Succeeds at any version, and changes nothing."""

_log = logging.getLogger(__name__)


async def open_store(
    uri: str,
    *,
    rng: Random,
    operation_timeout_s: float = OPERATION_TIMEOUT_S,
    session_timeout_s: float = SESSION_TIMEOUT_S,
    make_root: bool = True,
) -> "ZooKeeperMetadataStore":
    """Connect to `zk://h1:2181,h2:2181/chroot`. With `make_root`, create a missing chroot.

    Raises InvalidUriError, SecurityError for a client's file that cannot be used,
    StoreUnavailableError when no server answers within `operation_timeout_s`, and
    AccessRefusedError for a login that is not one of the cluster.
    """
    store = ZooKeeperMetadataStore(
        parse_zookeeper_uri(uri),
        rng,
        operation_timeout_s=operation_timeout_s,
        session_timeout_s=session_timeout_s,
    )
    try:
        await store.connect(make_root=make_root)
    except BaseException:
        await store.aclose()
        raise
    return store


class ZooKeeperMetadataStore:
    """One session with a ZooKeeper service; created by `open_store`."""

    def __init__(
        self,
        uri: MetadataUri,
        rng: Random,
        *,
        operation_timeout_s: float = OPERATION_TIMEOUT_S,
        session_timeout_s: float = SESSION_TIMEOUT_S,
    ) -> None:
        self._address = uri.text
        self._operation_timeout_s = operation_timeout_s
        self._session_clock = SessionClock(session_timeout_s, asyncio.get_running_loop().time())
        self._is_up = asyncio.Event()
        self._session = ZooKeeperSession(uri, session_timeout_s, rng, self._on_link_event)
        arming = WatchArming(self._session)
        self._reads = GroupedReads(self._session)
        self._watches = WatchTable(arming.arm, arming.drop)
        self._rights = FollowedRights(self, rng)
        self._heart: asyncio.Task[None] | None = None

    async def connect(self, *, make_root: bool = True) -> None:
        """Begin the session. Raises StoreUnavailableError when no server answers in time,
        AccessRefusedError for a login that is not one of the cluster.
        """
        self._session.start()
        beating = keep_alive(self._session, self._session_clock, self._is_up)
        self._heart = asyncio.get_running_loop().create_task(beating)
        if make_root:
            await self._read("/", self._session.make_root)
        await self._read("/", lambda: self._session.submit("exists", "/"))
        if self._session.has_login:
            await self._rights.start()

    @property
    def address(self) -> str:
        """Address of the service, for messages."""
        return self._address

    @property
    def session_state(self) -> SessionState:
        """State of the session as known now."""
        return self._session_clock.state_at(asyncio.get_running_loop().time())

    @property
    def session_id(self) -> int:
        """Id of the session; changes with every new session."""
        return self._session_clock.session_id

    @property
    def session_timeout_s(self) -> float:
        """Time without contact after which the server ends the session, as it granted it."""
        return self._session_clock.session_timeout_s

    async def create(
        self, path: str, value: bytes, *, ephemeral: bool = False, make_parents: bool = True
    ) -> Version:
        """Create a node (see `MetadataStore`)."""
        operation = Create(path, value, ephemeral)
        check_multi([operation])
        refused: AccessRefusedError | None = None
        for _ in range(PARENT_ATTEMPTS_MAX if make_parents else 0):
            try:
                return await self._create(operation)
            except NodeNotFoundError as error:
                _raise_if_missing(refused, error)
                refused = await self._make_parents(path)
        return await self._create(operation)

    async def get(self, path: str, *, fresh: bool = False, agreed: bool = False) -> Stored:
        """Read a node (see `MetadataStore`)."""
        call = partial(self._reads.get, path)
        value, stat = await self._read(path, call, fresh=fresh, agreed=agreed)
        is_ephemeral = stat.ephemeralOwner != 0
        return Stored(value, Version(stat.version), is_ephemeral, stat.ctime, stat.mtime)

    async def compare_and_set(self, path: str, value: bytes, expected: Version) -> Version:
        """Write if the version matches (see `MetadataStore`)."""
        operation = CompareAndSet(path, value, expected)
        check_multi([operation])
        stat = await self._write(
            operation, lambda: self._session.submit("set", path, value, version=expected)
        )
        return Version(stat.version)

    async def delete(self, path: str, expected: Version) -> None:
        """Delete if the version matches (see `MetadataStore`)."""
        operation = Delete(path, expected)
        await self._write(operation, lambda: self._session.submit("delete", path, version=expected))

    async def children(self, path: str, *, fresh: bool = False, agreed: bool = False) -> list[str]:
        """Return the sorted names below a node (see `MetadataStore`)."""
        try:
            names, _stat = await self._read(
                path,
                lambda: self._session.submit("get_children", path, include_data=True),
                fresh=fresh,
                agreed=agreed,
            )
        except NodeNotFoundError:
            return []
        return sorted(names)

    async def multi(self, operations: Sequence[Operation]) -> list[Version]:
        """Apply all operations or none (see `MetadataStore`)."""
        check_multi(operations)
        rights = [self._rights.access_to(operation.path) for operation in operations]
        calls = [transaction_call(*call) for call in zip(operations, rights, strict=True)]
        results = await self._write(operations[0], lambda: self._session.submit_transaction(calls))
        for operation, result in zip(operations, results, strict=False):
            if isinstance(result, Exception) and not is_bystander(result):
                raise self._error_of(result, operation) from result
        if len(results) != len(operations) or any(isinstance(x, Exception) for x in results):
            why = f"the answers of a multi were {results}"
            raise StoreRefusedError(operations[0].path, self._address, why)
        return [version_of(*pair) for pair in zip(operations, results, strict=True)]

    def watch_value(self, path: str, callback: WatchCallback, *, holder: str = "") -> Cancel:
        """Call back after each change of a node (see `MetadataStore`)."""
        self._require_open()
        return self._watches.add(path, WatchKind.VALUE, callback, holder)

    def watch_children(self, path: str, callback: WatchCallback, *, holder: str = "") -> Cancel:
        """Call back after each change of the names below a node (see `MetadataStore`)."""
        self._require_open()
        return self._watches.add(path, WatchKind.CHILDREN, callback, holder)

    def on_session(self, callback: SessionCallback) -> Cancel:
        """Call back at every change of the session's state."""
        return self._session_clock.on_session(callback)

    async def aclose(self) -> None:
        """End the session. Its ephemeral nodes are removed at once, or after the session timeout if
        no server answers.
        """
        if self._session_clock.state is SessionState.CLOSED:
            return
        self._session_clock.close()
        self._is_up.set()  # calls that wait for a connection fail now
        await self._rights.aclose()
        await cancel_and_wait(self._heart)
        await self._watches.aclose()
        await self._session.stop()

    async def access_to(self, path: str) -> AccessList:
        """Return the rights on a node. Raises NodeNotFoundError."""
        entries, _ = await self._read(path, lambda: self._session.submit("get_acls", path))
        return access_list(entries)

    async def set_access(self, path: str, access: AccessList) -> None:
        """Replace the rights on a node. Raises NodeNotFoundError, AccessRefusedError."""
        call = partial(self._session.submit, "set_acls", path, kazoo_list(access))
        await self._write(Check(path, Version(0)), call)

    async def _create(self, operation: Create) -> Version:
        path, rights = operation.path, kazoo_list(self._rights.access_to(operation.path))
        options = {"acl": rights, "ephemeral": operation.ephemeral}
        call = partial(self._session.submit, "create", path, operation.value, **options)
        await self._write(operation, call)
        return Version(0)

    async def _make_parents(self, path: str) -> AccessRefusedError | None:
        """Create the missing nodes above a path, from the top. Return the last refusal: a node that
        this login may not create may exist.
        """
        refused: AccessRefusedError | None = None
        names = path.split("/")[1:-1]
        for count in range(1, len(names) + 1):
            try:
                await self._create(Create("/" + "/".join(names[:count]), b""))
            except NodeExistsError:
                continue
            except NodeNotFoundError as error:
                _raise_if_missing(refused, error)
            except AccessRefusedError as error:
                refused = error
        return refused

    def _require_open(self) -> None:
        if self._session_clock.state is SessionState.CLOSED:
            raise StoreClosedError(f"the metadata store at {self._address} is closed")
        if not self._session.is_of_this_process:
            raise StoreClosedError(
                f"the metadata store at {self._address} was opened before this process was forked: "
                "open another one in this process"
            )

    async def _read(
        self,
        path: str,
        call: Callable[[], Awaitable[Any]],
        *,
        fresh: bool = False,
        agreed: bool = False,
    ) -> Any:
        """Repeat a read until it is answered, within the operation's time."""
        self._require_open()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._operation_timeout_s):
                while True:
                    await self._wait_until_up()
                    sent_s = loop.time()
                    try:
                        ahead = self._submit_ahead(path, fresh=fresh, agreed=agreed)
                        reading = call()
                        if ahead:
                            answer, *_ = await asyncio.gather(reading, *ahead)
                        else:
                            answer = await reading
                    except CONNECTION_ERRORS:
                        await self._wait_after_loss()
                        continue
                    self._contacted(sent_s)
                    return answer
        except TimeoutError:
            raise self._unavailable() from None
        except CallError as error:
            meant = self._error_of(error, Check(path, Version(0)))
            if isinstance(meant, OutcomeUnknownError):  # a read changes nothing
                meant = StoreUnavailableError(self._address, meant.why)
            raise meant from error

    def _submit_ahead(self, path: str, *, fresh: bool, agreed: bool) -> list[Awaitable[Any]]:
        """Send what a read waits for: a sync, which the leader answers alone, or a transaction,
        which a quorum commits. A server answers in order, and one that is behind what kazoo has
        seen refuses the connection.
        """
        if agreed:
            return [self._session.submit_transaction([transaction_call(ROOT_EXISTS)])]
        return [self._session.submit("sync", path)] if fresh else []

    async def _write(self, operation: Operation, call: Callable[[], Awaitable[Any]]) -> Any:
        """Send a write once. Its outcome is known or unknown; it is never repeated here."""
        self._require_open()
        loop = asyncio.get_running_loop()
        is_sent = False
        try:
            async with asyncio.timeout(self._operation_timeout_s):
                await self._wait_until_up()
                is_sent = True
                sent_s = loop.time()
                answer = await call()
                self._contacted(sent_s)
                return answer
        except TimeoutError:
            if not is_sent:
                raise self._unavailable() from None
            why = f"no answer from {self._address} within {self._operation_timeout_s} s"
            raise OutcomeUnknownError(operation.path, why) from None
        except CallError as error:
            raise self._error_of(error, operation) from error

    async def _wait_until_up(self) -> None:
        await self._is_up.wait()
        self._require_open()

    async def _wait_after_loss(self) -> None:
        """Wait for the report of the lost connection, which is on its way."""
        await asyncio.sleep(0.01)

    def _unavailable(self) -> StoreUnavailableError:
        what = "no connection" if not self._is_up.is_set() else "no answer"
        why = f"{what} within {self._operation_timeout_s} s"
        failure = self._session.failure
        return StoreUnavailableError(self._address, f"{why}: {failure}" if failure else why)

    def _error_of(self, error: Exception, operation: Operation) -> MetadataError:
        if self._session_clock.state is SessionState.CLOSED:
            return StoreClosedError(f"the metadata store at {self._address} was closed")
        return translated(error, operation, self._address)

    def _on_link_event(self, event: LinkEvent) -> None:
        if self._session_clock.state is SessionState.CLOSED:
            return
        if isinstance(event, LinkUp):
            self._is_up.set()
        else:
            self._is_up.clear()
            self._watches.disconnected()
        _log.debug("%s: %s", self._address, event)
        self._session_clock.note_link(event)
        if isinstance(event, LinkUp):
            self._watches.rearm_all()

    def _contacted(self, sent_s: float) -> None:
        self._session_clock.contacted(sent_s, asyncio.get_running_loop().time())


def _raise_if_missing(refused: AccessRefusedError | None, error: NodeNotFoundError) -> None:
    """Raise the refusal if the missing node is the one whose creation was refused."""
    if refused is not None and refused.path == error.path:
        raise refused


if TYPE_CHECKING:
    _: type[MetadataStore] = ZooKeeperMetadataStore
