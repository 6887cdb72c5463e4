"""Translation of operations into kazoo's calls, and of kazoo's answers and errors.

Leaves sending them to `store.py`, and the rights of nodes to `metadata.security`.

Source: kazoo 2.10-2.11; ZooKeeper's multi.
"""

from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.security import ACL, Id

from metadata.errors import (
    MetadataError,
    NodeExistsError,
    NodeNotEmptyError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
    VersionConflictError,
)
from metadata.ids import Version
from metadata.paths import Right
from metadata.security.access_errors import AccessRefusedError
from metadata.security.rights_record import AccessEntry, AccessList
from metadata.store.interface import Check, CompareAndSet, Create, Delete, Operation

CallError: Final = kazoo_errors.KazooException
NoNode: Final = kazoo_errors.NoNodeError
NoAuth: Final = kazoo_errors.NoAuthError

CONNECTION_ERRORS: Final = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.ConnectionClosedError,
    kazoo_errors.ConnectionDropped,
    kazoo_errors.SessionExpiredError,
    kazoo_errors.SessionMovedError,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.RequestTimeoutError,
)
"""A read is repeated, and the outcome of a write is unknown, as after any error not listed here."""
BUSY_ERRORS: Final = (kazoo_errors.NotReadOnlyCallError, kazoo_errors.ThrottledOpError)
"""The request was not applied, and may be repeated."""
REFUSALS: Final = (
    kazoo_errors.APIError,
    kazoo_errors.AuthFailedError,
    kazoo_errors.BadArgumentsError,
    kazoo_errors.ConfigurationError,
    kazoo_errors.EphemeralOnLocalSessionError,
    kazoo_errors.InvalidACLError,
    kazoo_errors.InvalidCallbackError,
    kazoo_errors.MarshallingError,
    kazoo_errors.NewConfigNoQuorumError,
    kazoo_errors.NoChildrenForEphemeralsError,
    kazoo_errors.NoWatcherError,
    kazoo_errors.QuotaExceededError,
    kazoo_errors.ReconfigDisabledError,
    kazoo_errors.ReconfigInProcessError,
    kazoo_errors.SASLException,
    kazoo_errors.SessionClosedRequireSaslError,
    kazoo_errors.UnimplementedError,
)
"""The request was not applied, and would be refused again."""


def kazoo_list(access: AccessList | None) -> list[Any] | None:
    """Return kazoo's form of the rights on a node; None means that the node is open."""
    if access is None:
        return None
    parts = [(entry.identity.partition(":"), int(entry.rights)) for entry in access]
    return [ACL(rights, Id(scheme, name)) for (scheme, _, name), rights in parts]


def access_list(entries: list[Any]) -> AccessList:
    """Return the rights on a node from kazoo's form."""
    return tuple(
        sorted(AccessEntry(f"{acl.id.scheme}:{acl.id.id}", Right(acl.perms)) for acl in entries)
    )


def transaction_call(operation: Operation, access: AccessList | None = None) -> tuple[Any, ...]:
    """Return the name of kazoo's transaction method, and its arguments; `access` are the rights of
    a new node.
    """
    match operation:
        case Create(path, value, ephemeral):
            return ("create", path, value, kazoo_list(access), ephemeral)
        case CompareAndSet(path, value, expected):
            return ("set_data", path, value, expected)
        case Delete(path, expected):
            return ("delete", path, expected)
        case Check(path, expected):
            return ("check", path, expected)


def is_bystander(error: Exception) -> bool:
    """Return whether an operation of a multi failed only because another one did."""
    return isinstance(error, kazoo_errors.RolledBackError | kazoo_errors.RuntimeInconsistency)


def version_of(operation: Operation, result: Any) -> Version:
    """Return the version after an operation of a multi."""
    match operation:
        case Create():
            return Version(0)
        case CompareAndSet():
            return Version(result.version)
        case Delete(_, expected) | Check(_, expected):
            return expected


def translated(error: Exception, operation: Operation, address: str) -> MetadataError:
    """Return the meaning of a failed call; a lost connection leaves a write's outcome unknown."""
    path, why = operation.path, " ".join((type(error).__name__, *map(str, error.args)))
    match error:
        case kazoo_errors.NoNodeError():
            above = path.rpartition("/")[0] or "/"
            return NodeNotFoundError(above if isinstance(operation, Create) else path)
        case kazoo_errors.NodeExistsError():
            return NodeExistsError(path)
        case kazoo_errors.NotEmptyError():
            return NodeNotEmptyError(path)
        case kazoo_errors.BadVersionError():
            expected = Version(0) if isinstance(operation, Create) else operation.expected
            return VersionConflictError(path, expected)
        case _ if isinstance(error, CONNECTION_ERRORS):
            return OutcomeUnknownError(path, f"connection to {address} lost")
        case _ if isinstance(error, BUSY_ERRORS):
            return StoreUnavailableError(address, why)
        case kazoo_errors.NoAuthError():
            return AccessRefusedError(path, address, why)
        case _ if isinstance(error, REFUSALS):
            return StoreRefusedError(path, address, why)
        case _:
            return OutcomeUnknownError(path, why)
