"""Interface of a coordination service: a small tree of versioned values, sessions and watches.

Leaves the meaning of the paths to the modules that own them. `memory.py` is the reference
implementation, `zookeeper/store.py` the real one; one contract suite tests both.

Invariants: writes to one path are totally ordered; a client never reads an older state than before;
a read with `agreed=True` sees every write that ended before it began, and one with `fresh=True`
does too, unless a leader answers that was replaced and does not know it yet; a multi is all or
nothing.

Source: protocol rules 1.2, 1.3 and 1.6; ZooKeeper's data model; metadata design, "Fresh reads".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from metadata.errors import NodeNotFoundError, ValueTooLargeError
from metadata.ids import Version

OPERATION_TIMEOUT_S: Final = 10.0
SESSION_TIMEOUT_S: Final = 10.0
VALUE_BYTES_MAX: Final = 900_000
MULTI_OPERATIONS_MAX: Final = 100
MULTI_BYTES_MAX: Final = 512 * 1024
PARENT_ATTEMPTS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Stored:
    """A value as read, with the version for a conditional write and whether its node is
    ephemeral.

    The times are in ms since 1970, by the clock of the service; None where it does not say them, as
    behind a gateway.
    """

    value: bytes
    version: Version
    ephemeral: bool = False
    created_ms: int | None = field(default=None, compare=False)
    modified_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Create:
    """Create `path`, whose parents must exist (`MetadataStore.create` can make them). Part of a
    multi.
    """

    path: str
    value: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class CompareAndSet:
    """Write `path` if it is at `expected`. Part of a multi."""

    path: str
    value: bytes
    expected: Version


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete `path` if it is at `expected`. Part of a multi."""

    path: str
    expected: Version


@dataclass(frozen=True, slots=True)
class Check:
    """Fail the multi unless `path` is at `expected`."""

    path: str
    expected: Version


Operation = Create | CompareAndSet | Delete | Check


class SessionState(StrEnum):
    """State of the session as known to the client.

    CONNECTED: calls are answered. SUSPENDED: there is no connection; the session may still live,
    and every watch is lost. EXPIRED: by this process's clock the server must have ended the session
    (the server itself reports that only after a reconnect), so every ephemeral node of this session
    must be treated as gone. CONNECTED follows without a call: with a new session, or with the same
    one if the server kept it after all.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    CLOSED = "closed"


WatchCallback = Callable[[], None]
SessionCallback = Callable[[SessionState], None]
Cancel = Callable[[], None]


class MetadataStore(Protocol):
    """A coordination service as used by every process of Quire.

    Paths are absolute within the cluster's root, `/`-separated, without a trailing slash. Every
    call is bounded by the store's `operation_timeout_s` and raises `StoreUnavailableError` when it
    was certainly not applied, `OutcomeUnknownError` when a write may have been. A store belongs to
    one event loop.
    """

    @property
    def address(self) -> str:
        """Address of the service, for messages."""

    @property
    def session_state(self) -> SessionState:
        """State of the session as known now."""

    @property
    def session_id(self) -> int:
        """Id of the session. It changes with every new session; ephemeral nodes of an older session
        are gone.
        """

    async def create(
        self, path: str, value: bytes, *, ephemeral: bool = False, make_parents: bool = True
    ) -> Version:
        """Create a node. Raises NodeExistsError, ValueTooLargeError; NodeNotFoundError if its
        parent does not exist.
        """

    async def get(self, path: str, *, fresh: bool = False, agreed: bool = False) -> Stored:
        """Read a node. Raises NodeNotFoundError.

        `fresh` first waits until this server has caught up with its leader. `agreed` first has a
        quorum of servers commit a write without effect, which is as expensive as any write: use it
        where a read alone, without a compare-and-set after it, leads to a loss of data.
        """

    async def compare_and_set(self, path: str, value: bytes, expected: Version) -> Version:
        """Write if the version matches; return the new one.

        Raises VersionConflictError, NodeNotFoundError, ValueTooLargeError.
        """

    async def delete(self, path: str, expected: Version) -> None:
        """Delete if the version matches. Raises VersionConflictError, NodeNotFoundError,
        NodeNotEmptyError.
        """

    async def children(self, path: str, *, fresh: bool = False, agreed: bool = False) -> list[str]:
        """Return the sorted names below a node; an empty list if it does not exist. `fresh` and
        `agreed` as for `get`.
        """

    async def multi(self, operations: Sequence[Operation]) -> list[Version]:
        """Apply all operations or none; return the version after each (for a delete or check, the
        expected version).

        Raises the error of the first failing operation. The limits are MULTI_OPERATIONS_MAX and
        MULTI_BYTES_MAX.
        """

    def watch_value(self, path: str, callback: WatchCallback, *, holder: str = "") -> Cancel:
        """Call back, on the loop, after each change, creation or deletion of a node, until
        cancelled.

        The callback also runs after every suspension, because changes may have been missed: always
        read again. It may run more often than the node changed, and once for several changes.
        Changes before this call need not be reported: a caller that has read before reads once
        more.

        `holder` names the client for which the caller watches, if it does so for several: watches
        of one do not delay those of another.
        """

    def watch_children(self, path: str, callback: WatchCallback, *, holder: str = "") -> Cancel:
        """Call back as `watch_value` does, for the set of names below a node (which need not exist
        yet).
        """

    def on_session(self, callback: SessionCallback) -> Cancel:
        """Call back, on the loop, at every change of the session's state."""

    async def aclose(self) -> None:
        """End the session, which removes its ephemeral nodes at once. Later calls raise
        StoreClosedError.
        """


async def find(
    store: MetadataStore, path: str, *, fresh: bool = True, agreed: bool = False
) -> Stored | None:
    """Read a node that may be missing; as `MetadataStore.get`, but None if it is."""
    try:
        return await store.get(path, fresh=fresh, agreed=agreed)
    except NodeNotFoundError:
        return None


def check_value(path: str, value: bytes) -> None:
    """Raise ValueTooLargeError for a value over VALUE_BYTES_MAX."""
    if len(value) > VALUE_BYTES_MAX:
        raise ValueTooLargeError(path, len(value), VALUE_BYTES_MAX)


def check_multi(operations: Sequence[Operation]) -> None:
    """Raise ValueTooLargeError for values that together exceed MULTI_BYTES_MAX.

    More than MULTI_OPERATIONS_MAX operations are a bug in the caller.
    """
    assert 0 < len(operations) <= MULTI_OPERATIONS_MAX, "a multi has 1 to MULTI_OPERATIONS_MAX"
    size = multi_size(operations)
    if len(operations) > 1 and size > MULTI_BYTES_MAX:
        raise ValueTooLargeError(operations[0].path, size, MULTI_BYTES_MAX)
    for operation in operations:
        if isinstance(operation, Create | CompareAndSet):
            check_value(operation.path, operation.value)


def multi_size(operations: Sequence[Operation]) -> int:
    """Return the bytes that count towards MULTI_BYTES_MAX: paths and values."""
    return sum(
        len(operation.path)
        + (len(operation.value) if isinstance(operation, Create | CompareAndSet) else 0)
        for operation in operations
    )
