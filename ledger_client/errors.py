"""Errors of the ledger client, one class per fact.

Leaves the reaction to the caller. Each error says whether the same call on the same handle can
succeed later (`retriable`; an error that ended a writer never is) and what is known of the entries
to write (`outcome`). Its text says what was needed, what was seen and what to do.

Source: api design, "Errors".
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import ClassVar, Literal

from metadata.ids import NO_ENTRY, EntryId, LedgerId
from metadata.ledgers.lost_entries import LostRange
from quire.copyable import CopyableError, remade
from quire.distribution import pip_install

Outcome = Literal["not_written", "unknown"]


class LedgerError(CopyableError):
    """Root of all errors of the client.

    `ledger_id` is None if no single ledger is concerned. `entry_id` is the id of a failed append,
    if one was assigned. A failed `append_many` also sets `first_entry_id`, `admitted_count` and
    `confirmed_count`.
    """

    retriable: bool = False
    """Whether the same call on the same handle can succeed later."""
    default_outcome: ClassVar[Outcome] = "not_written"

    def __init__(
        self,
        message: str,
        *,
        ledger_id: LedgerId | None = None,
        outcome: Outcome | None = None,
        entry_id: EntryId | None = None,
    ) -> None:
        super().__init__(message if ledger_id is None else f"ledger {ledger_id}: {message}")
        self.message = message
        self.ledger_id = ledger_id
        self.outcome: Outcome = self.default_outcome if outcome is None else outcome
        self.entry_id = entry_id
        self.first_entry_id = EntryId(NO_ENTRY)
        self.admitted_count = 0
        self.confirmed_count = 0

    def fresh(self) -> "LedgerError":
        """Return this error as a new object: an object that is raised again and again keeps the
        frames of all its callers, with their entries.
        """
        copy = remade(self.__class__, self.args)
        copy.__dict__.update(self.__dict__)
        copy.__dict__.pop("__notes__", None)
        copy.__cause__ = self.__cause__
        return copy

    def as_end_of_writer(self) -> "LedgerError":
        """Return this error as the one that ended a writer: no later call of it can succeed."""
        ended = self.fresh()
        ended.retriable = False
        ended.message = f"this writer has ended: {self.message}"
        where = "" if self.ledger_id is None else f"ledger {self.ledger_id}: "
        ended.args = (where + ended.message,)
        return ended

    def for_entry(self, entry_id: EntryId, outcome: Outcome) -> "LedgerError":
        """Return this error for one entry: a new object with the same class and text."""
        copy = self.fresh()
        copy.entry_id = entry_id
        copy.outcome = outcome
        return copy


class LedgerFencedError(LedgerError):
    """Another client fenced the ledger: this writer has ended. Pending entries may or may not be in
    the ledger.
    """

    default_outcome = "unknown"


class LedgerClosedError(LedgerError):
    """The ledger, or this handle of it, is closed: nothing can be appended."""


class LedgerNotFoundError(LedgerError):
    """The ledger never existed or was deleted."""


class EntryNotFoundError(LedgerError):
    """Every replica answered that the entry does not exist, or it is beyond the last readable
    entry.
    """


class EntryLostError(LedgerError):
    """The entry is lost for good: no bookie holds a copy, and an operator accepted that at
    `accepted_ms` (since 1970). `lost_first` and `lost_last` are the range of entries that are lost
    with it (protocol rule 8.6); continue after `lost_last`.
    """

    def __init__(self, *, ledger_id: LedgerId, entry_id: EntryId, lost: LostRange) -> None:
        since = datetime.fromtimestamp(lost.accepted_ms / 1000, UTC).isoformat(" ", "seconds")
        which = f"entries {lost.first_entry_id} to {lost.last_entry_id} are lost for good"
        after = f"continue with entry {lost.last_entry_id + 1}"
        if lost.is_after_the_end:
            which = f"entries from {lost.first_entry_id} on, if there were any, are lost for good"
            after = f"the ledger ends at entry {lost.first_entry_id - 1}"
        super().__init__(
            f"entry {entry_id} cannot be read: {which}, which an operator accepted at {since}; "
            f"{after}",
            ledger_id=ledger_id,
            entry_id=entry_id,
        )
        self.lost_first = lost.first_entry_id
        self.lost_last = lost.last_entry_id
        self.accepted_ms = lost.accepted_ms


class NotEnoughBookiesError(LedgerError):
    """Placement found fewer bookies than the ensemble needs; see `needed`, `seen` and `excluded`
    (id -> reason).
    """

    retriable = True

    def __init__(
        self,
        message: str,
        *,
        needed: int,
        seen: int,
        excluded: Mapping[str, str],
        ledger_id: LedgerId | None = None,
        outcome: Outcome | None = None,
        entry_id: EntryId | None = None,
    ) -> None:
        super().__init__(message, ledger_id=ledger_id, outcome=outcome, entry_id=entry_id)
        self.needed = needed
        self.seen = seen
        self.excluded = dict(excluded)


class NotEnoughInSyncReplicasError(LedgerError):
    """Fewer members are in sync than the ledger requires (protocol rule 11.4)."""

    retriable = True


class QuorumTimeoutError(LedgerError, TimeoutError):
    """Too few bookies answered in time."""

    retriable = True
    default_outcome = "unknown"


class RecoveryUndecidedError(LedgerError):
    """Too many replicas are unreachable to decide where the ledger ends; `missing` lists them (rule
    7.3). Nothing is lost: the ledger stays in recovery until they answer. If
    `is_last_fragment_empty`, no entry of the last fragment was acknowledged, and only the bookies
    of earlier fragments are needed.
    """

    retriable = True

    def __init__(
        self,
        message: str,
        *,
        ledger_id: LedgerId,
        missing: Mapping[str, str],
        entry_id: EntryId | None = None,
        is_last_fragment_empty: bool = False,
    ) -> None:
        super().__init__(message, ledger_id=ledger_id, entry_id=entry_id)
        self.missing = dict(missing)
        self.is_last_fragment_empty = is_last_fragment_empty


class WriterAliveError(LedgerError):
    """The writer of a ledger to recover uncleanly is alive: nothing was done (protocol rule
    11.6).
    """


class DigestMismatchError(LedgerError):
    """Every replica that answered returned bytes that fail their digest or MAC."""


class MetadataConflictError(LedgerError):
    """The stored metadata changed in a way that stops this call."""


class MetadataUnavailableError(LedgerError):
    """The metadata service did not answer in time."""

    retriable = True


class MetadataRefusedError(LedgerError):
    """The metadata service refused the request: its access rights, quotas or configuration do not
    allow it.
    """


class MetadataTooLargeError(LedgerError):
    """The ledger's metadata would not fit into one stored value."""


class TooManyFragmentsError(LedgerError):
    """The ledger has reached its limit of ensemble changes; it was closed."""


class LedgerExistsError(LedgerError):
    """A ledger with the wanted id exists already."""


class EntryConflictError(LedgerError):
    """A bookie stores other bytes under an id of this writer: two writers used one ledger."""

    default_outcome = "unknown"


class UnauthorizedError(LedgerError):
    """The password or the credentials were refused, or a role is missing."""


class PrincipalUnknownError(LedgerError):
    """No bookie said who this client is, and a new ledger names its owner."""

    retriable = True


class BackpressureError(LedgerError):
    """The window of pending appends is full; wait until some are confirmed."""

    retriable = True


class EntryTooLargeError(LedgerError):
    """The entry exceeds the size limit; see `size` and `limit`."""

    def __init__(self, *, size: int, limit: int, ledger_id: LedgerId | None = None) -> None:
        super().__init__(
            f"an entry of {size} bytes is over the limit of {limit}: split it", ledger_id=ledger_id
        )
        self.size = size
        self.limit = limit


class EncryptionUnavailableError(LedgerError):
    """The package `cryptography` is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "payloads cannot be encrypted or decrypted without the package cryptography: "
            f"{pip_install('encryption')}"
        )


class EncryptedLedgerError(LedgerError):
    """The payloads are encrypted, and no key was given; `key_id` is the id of the needed one."""

    def __init__(self, *, key_id: str, ledger_id: LedgerId) -> None:
        super().__init__(
            f"its payloads are encrypted with the key {key_id!r}, and no key was given: open it "
            "with encryption=Encryption(...) or read_key_file(...) (commands: --key-file)",
            ledger_id=ledger_id,
        )
        self.key_id = key_id


class PlainLedgerError(LedgerError):
    """Keys were given for a ledger whose payloads are not encrypted."""


class EncryptionKeyError(LedgerError):
    """A key is unknown, is not 32 bytes, or is not the one with which the ledger was written; see
    `key_id`.
    """

    def __init__(self, message: str, *, key_id: str, ledger_id: LedgerId | None = None) -> None:
        super().__init__(message, ledger_id=ledger_id)
        self.key_id = key_id


class KeyFileError(LedgerError):
    """A file of keys cannot be read, is open to other users, or has another format; see `path`."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"the key file {path} cannot be used: {why}")
        self.path = path


class DecryptionError(LedgerError):
    """The stored bytes of an entry are not those that the ledger's writer encrypted."""

    def __init__(self, *, ledger_id: LedgerId, entry_id: EntryId) -> None:
        super().__init__(
            f"entry {entry_id} cannot be decrypted: its stored bytes, or the ledger's metadata, "
            "were changed after they were written. Find out who can write to the bookies; "
            f"`quire ledger verify {ledger_id}` compares the copies",
            ledger_id=ledger_id,
            entry_id=entry_id,
        )


class ClusterNotFoundError(LedgerError):
    """No cluster was created at the client's address: check it, or use `quire cluster init`."""


class ChainNotFoundError(LedgerError):
    """No chain has this name."""


class ChainExistsError(LedgerError):
    """A chain with this name exists already."""


class LedgersCollectedError(LedgerError):
    """A ledger to publish is so old that garbage collection may have deleted it."""


class ApplicationTakenError(LedgerError):
    """Another query numbers the batches of an application in a chain: use another name."""


class ClientClosedError(LedgerError):
    """The client is closed, or is used in another loop or a forked process."""


def agreed_end_unknown(
    ledger_id: LedgerId, end: EntryId | None, lac: EntryId, timeout_s: float
) -> QuorumTimeoutError:
    """Return the error of a read that found no agreed end (rule 8.7); `end` is the last entry that
    may be acknowledged, if enough bookies told one.
    """
    text = (
        f"too few bookies said within {timeout_s} s what they hold, so acknowledged entries may be "
        "missing: try again, or read without `agreed`"
    )
    if end is not None:
        text = (
            f"entries {lac + 1} to {end} are stored, and no writer confirmed them within "
            f"{timeout_s} s: try again, or recover the ledger if its writer is gone"
        )
    return QuorumTimeoutError(text, ledger_id=ledger_id, outcome="not_written")


def append_timed_out(
    ledger_id: LedgerId, entry_id: EntryId | None, timeout_s: float | None
) -> QuorumTimeoutError:
    """Return the error of an append whose time is up; the append may have no id yet."""
    if entry_id is None:
        text = f"the window had no room within {timeout_s} s: nothing was sent; append again later"
        return QuorumTimeoutError(text, ledger_id=ledger_id, outcome="not_written")
    text = (
        f"entry {entry_id} was not confirmed within {timeout_s} s, and may be confirmed later: "
        "read the ledger before you append the entry again"
    )
    return QuorumTimeoutError(text, ledger_id=ledger_id, entry_id=entry_id)
