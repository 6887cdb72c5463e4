"""Errors of commands, and the exit status of every error.

Leaves failures of the cluster to the errors of the packages; `exit_code` maps them all.

Format: 0 done; 1 done, but a check found problems; 2 wrong usage or configuration; 3 not found; 4
refused in the present state; 5 the cluster did not respond (retry); 6 damaged data; 70 a defect of
Quire; 130 interrupted; 141 the reader of the output closed it.
"""

from enum import IntEnum

from quire.copyable import CopyableError


class ExitCode(IntEnum):
    """Exit status of a command; docs/operating.md explains each value."""

    DONE = 0
    FINDINGS = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    UNAVAILABLE = 5
    DAMAGED = 6
    DEFECT = 70
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141


class CommandError(CopyableError):
    """A command failed: what, why, and the next step."""

    code = ExitCode.REFUSED

    def __init__(self, message: str, *, try_next: str = "") -> None:
        super().__init__(message)
        self.try_next = try_next


class UsageError(CommandError):
    """The arguments or the configuration are not valid."""

    code = ExitCode.USAGE


class UnusableDirectoryError(UsageError):
    """A directory for data cannot be made or written to."""


class NeedsConsentError(CommandError):
    """A destructive verb printed its plan because --yes was not given."""


class DamagedFileError(CommandError):
    """A file given to `quire ledger import` fails its checksum or is truncated."""

    code = ExitCode.DAMAGED

    def __init__(self, message: str, *, try_next: str = "quire ledger export ID FILE") -> None:
        super().__init__(message, try_next=try_next)


class LocalClusterError(Exception):
    """A process of a local cluster did not start or stop in order; the text ends with its log."""


def exit_code(error: BaseException) -> ExitCode:
    """Return the status with which a command that failed with `error` ends."""
    from ledger_client.errors import LedgerError
    from metadata.errors import MetadataError

    if isinstance(error, CommandError):
        return error.code
    for types, code in _codes():
        if isinstance(error, types):
            return code
    if isinstance(error, LedgerError | MetadataError):
        # The class decides: a command that is run again has another writer.
        return ExitCode.UNAVAILABLE if type(error).retriable else ExitCode.REFUSED
    return ExitCode.DEFECT


def _codes() -> tuple[tuple[tuple[type[BaseException], ...], ExitCode], ...]:
    """Return the statuses of errors, by their types."""
    from bookie.wire.errors import BatchError
    from ledger_client import errors as ledger
    from metadata import errors as metadata
    from metadata.security import errors as users
    from metadata.security.access_errors import InvalidIdentityError
    from quire.identity.errors import SecurityError

    return (
        (
            (
                ledger.LedgerNotFoundError,
                ledger.EntryNotFoundError,
                ledger.ChainNotFoundError,
                ledger.ClusterNotFoundError,
            ),
            ExitCode.NOT_FOUND,
        ),
        ((ledger.DigestMismatchError, ledger.DecryptionError), ExitCode.DAMAGED),
        ((ledger.EntryLostError, BatchError), ExitCode.DAMAGED),
        ((ledger.KeyFileError, ledger.EncryptionUnavailableError), ExitCode.USAGE),
        ((metadata.MetadataFormatError, metadata.DumpFormatError), ExitCode.DAMAGED),
        (
            (
                metadata.InvalidUriError,
                metadata.InvalidChainNameError,
                metadata.InvalidRepairSettingError,
                InvalidIdentityError,
                users.InvalidUserNameError,
                users.InvalidGrantError,
                users.InvalidQuotaError,
            ),
            ExitCode.USAGE,
        ),
        (
            (
                metadata.NodeNotFoundError,
                metadata.ClusterNotFoundError,
                users.UserNotFoundError,
                users.GrantNotFoundError,
                users.QuotaNotFoundError,
            ),
            ExitCode.NOT_FOUND,
        ),
        ((LocalClusterError,), ExitCode.UNAVAILABLE),
        ((SecurityError,), ExitCode.USAGE),
    )
