"""Translation of a recovery's failures into the client's errors.

Leaves the reasons themselves to `protocol/recovery.py`.

Source: protocol rules 7.2-7.5; api design, "Errors".
"""

from typing import assert_never

from ledger_client.errors import (
    EntryConflictError,
    LedgerError,
    LedgerNotFoundError,
    MetadataConflictError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
    QuorumTimeoutError,
    RecoveryUndecidedError,
    UnauthorizedError,
)
from ledger_client.protocol import recovery_events as e
from metadata.ids import LedgerId


def timed_out(
    ledger_id: LedgerId,
    limit_s: float,
    newest_store: e.StoreInRecovery | e.StoreClosed | None,
    *,
    waits: bool,
) -> LedgerError:
    """Return the error of a recovery whose time is up, by the newest change of the metadata that it
    requested, and whether it `waits` for the metadata service.
    """
    match newest_store:
        case None:
            known = "the ledger was not changed"
        case e.StoreInRecovery() if waits:
            known = "the ledger may be in recovery now, which ends its writer"
        case e.StoreInRecovery():
            known = "the ledger stays in recovery, and its writer has ended"
        case e.StoreClosed():
            known = "the ledger is in recovery, its writer has ended, and it may be closed already"
        case _:
            assert_never(newest_store)
    if waits:
        text = f"the metadata service did not answer within the {limit_s} s of this recovery"
        return MetadataUnavailableError(
            f"{text}: {known}; recover it again",
            ledger_id=ledger_id,
            outcome="not_written" if newest_store is None else "unknown",
        )
    text = f"recovery did not end within {limit_s} s: {known}; try again"
    return QuorumTimeoutError(text, ledger_id=ledger_id)


def recovery_error(ledger_id: LedgerId, failure: e.RecoveryFailure) -> LedgerError:
    """Return the error for a failure."""
    match failure:
        case e.Undecided(entry_id, needed, missing, is_last_fragment_empty):
            where = "the ledger" if entry_id is None else f"entry {entry_id}"
            reasons = "; ".join(f"{bookie_id}: {reason}" for bookie_id, reason in missing.items())
            return RecoveryUndecidedError(
                f"the end of the ledger is undecided: {where} needs {needed}; missing: "
                f"{reasons or '-'}. Nothing is lost: the ledger stays in recovery; start these "
                "bookies and recover it again",
                ledger_id=ledger_id,
                missing={str(b): reason for b, reason in missing.items()},
                entry_id=entry_id,
                is_last_fragment_empty=is_last_fragment_empty,
            )
        case e.PasswordRefused(bookie_id):
            text = f"bookie {bookie_id} refused the password: recover it with the correct one"
            return UnauthorizedError(text, ledger_id=ledger_id)
        case e.OtherBytesStored(bookie_id, entry_id):
            return EntryConflictError(
                f"from entry {entry_id} on, bookie {bookie_id} stores other bytes than were read "
                "elsewhere, with valid digests: two writers used the ledger. It stays in recovery; "
                f"compare the copies: `quire bookie compare {bookie_id} OTHER_ID {ledger_id}`",
                ledger_id=ledger_id,
                entry_id=entry_id,
            )
        case e.NoReplacement(needed, seen, excluded, why):
            reasons = "; ".join(f"{bookie_id}: {reason}" for bookie_id, reason in excluded.items())
            return NotEnoughBookiesError(
                f"recovered entries cannot reach their ack quorum: {needed} more bookies are "
                f"needed and {seen} can be used ({reasons or 'none excluded'}){why}; start "
                "bookies and recover it again",
                needed=needed,
                seen=seen,
                excluded={str(b): reason for b, reason in excluded.items()},
                ledger_id=ledger_id,
                outcome="unknown",
            )
        case e.FragmentsChanged():
            text = (
                "the last fragment changed during recovery, which no rule allows: the ledger was "
                "not closed; recover it again"
            )
            return MetadataConflictError(text, ledger_id=ledger_id)
        case e.Deleted():
            return LedgerNotFoundError(
                "it does not exist: it was never created, or was deleted", ledger_id=ledger_id
            )
        case _:
            assert_never(failure)
