"""Every exception of kazoo has a meaning: none is passed on, and none is taken for another one."""

from collections.abc import Iterator

import pytest
from kazoo import exceptions as kazoo_errors

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
from metadata.security.access_errors import AccessRefusedError
from metadata.store.interface import CompareAndSet
from metadata.store.zookeeper.calls import BUSY_ERRORS, CONNECTION_ERRORS, REFUSALS, translated

WRITE = CompareAndSet("/a/b", b"", Version(3))
ANSWERS: dict[type[Exception], type[MetadataError]] = {
    kazoo_errors.NoNodeError: NodeNotFoundError,
    kazoo_errors.NodeExistsError: NodeExistsError,
    kazoo_errors.NotEmptyError: NodeNotEmptyError,
    kazoo_errors.BadVersionError: VersionConflictError,
    kazoo_errors.NoAuthError: AccessRefusedError,
}
UNKNOWN = (  # nothing shows whether the request was applied
    kazoo_errors.CancelledError,
    kazoo_errors.DataInconsistency,
    kazoo_errors.LockTimeout,
    kazoo_errors.RolledBackError,
    kazoo_errors.RuntimeInconsistency,
    kazoo_errors.SystemZookeeperError,
    kazoo_errors.UnknownSessionError,
    kazoo_errors.WriterNotClosedException,
    kazoo_errors.ZookeeperStoppedError,
)


def all_errors() -> Iterator[type[Exception]]:
    """Yield every class that kazoo raises: those of the first release are aliases of others."""
    for error in vars(kazoo_errors).values():
        if isinstance(error, type) and issubclass(error, kazoo_errors.KazooException):
            code = getattr(error, "code", None)
            is_root = error in (kazoo_errors.KazooException, kazoo_errors.ZookeeperError)
            is_alias = code is not None and error.__name__.endswith("Exception")
            if not is_root and not is_alias:
                yield error


@pytest.mark.parametrize("error", list(all_errors()), ids=lambda each: each.__name__)
def test_each_error_has_a_meaning(error: type[Exception]) -> None:
    expected = ANSWERS.get(error)
    if expected is None and error in BUSY_ERRORS:
        expected = StoreUnavailableError
    elif expected is None and error in REFUSALS:
        expected = StoreRefusedError
    elif expected is None:
        assert error in (*CONNECTION_ERRORS, *UNKNOWN), "a new error of kazoo: what does it mean?"
        expected = OutcomeUnknownError
    found = translated(error(), WRITE, "zk:2181")
    assert type(found) is expected
    assert "/a/b" in str(found) or "zk:2181" in str(found)


def test_an_error_that_kazoo_does_not_know_leaves_the_outcome_unknown() -> None:
    assert isinstance(translated(RuntimeError("new"), WRITE, "zk:2181"), OutcomeUnknownError)


def test_a_refusal_names_its_reason() -> None:
    refused = translated(kazoo_errors.QuotaExceededError(), WRITE, "zk:2181")
    assert str(refused).startswith(
        "the metadata service at zk:2181 refused a request for /a/b (QuotaExceededError): check"
    )
