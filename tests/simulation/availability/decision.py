"""Decision whether the faults of a simulated run explain an error that a writer gave. Pure.

Leaves recording the faults to `fault_history` and `bookie_states`, and the facts of a ledger to
`tests.simulation.checkers.availability`. docs/simulation.md lists the accepted errors.

Invariants: an error is accepted only for a fact of the ledger, or for faults of the parts that the
operation needs, within the stated time before it. Without faults no error is accepted.

Source: protocol rules 4.6, 4.7, 5.1-5.7, 11.3 and 11.4; invariant "every writer with enough bookies
progresses".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from metadata.ledgers.ledger_metadata import FRAGMENTS_MAX

SERVICE: Final = "metadata"
"""The metadata service, for all its clients."""
KNOWN_AFTER_S: Final = 3.0
"""Time after the end of a fault, in seconds, until every client knows it: a watch event, the read
that follows, and the pause between two connection attempts take up to 1 s each.
"""
STEP_S: Final = 2.0
"""Time in which a writer replaces one bookie that has failed, in seconds, without faults of the
metadata service.
"""
SHORT_LIMIT_S: Final = 1.0
"""Limit of an append that may end it without any fault, in seconds."""
CATCH_UP_S: Final = 15.0
"""Time in which a member of an in-sync ledger returns and catches up, without the copying."""


@dataclass(slots=True)
class FaultTime:
    """One fault: of a bookie or a client, by its host; of the way between two hosts (`link_of`); of
    one client's session (`session_of`) or memory (`memory_of`); or of the metadata service.
    """

    part: str
    began: float
    ended: float = math.inf
    """Infinity while it lasts."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Bookies of a run, and the time limit of its clients for one bookie's answer."""

    bookies: tuple[str, ...]
    damaged: tuple[str, ...] = ()
    """Bookies that lost or changed synced bytes: they may refuse appends from then on (2.4)."""
    add_timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """What is certain about the ledger of a writer when an error is given."""

    ensemble: int
    min_in_sync: int | None = None
    """In-sync mode; None for ordinary ledgers."""
    copy_s: float = 0.0
    """Time to copy the complete ledger, in seconds."""
    fragments: int = 1
    was_recovered: bool = False
    """Whether another client began to recover it."""
    is_deleted: bool = False
    is_ending: bool = False
    """Whether the caller has closed or left the writer."""
    has_pending: bool = False
    """Whether entries wait for their confirmation, or callers for room."""
    lags_by_entries: bool = False
    """Whether a member leaves once it lacks a number of entries, which needs no fault."""


@dataclass(frozen=True, slots=True)
class WriterError:
    """An error of a writer, or of the creation or the close of a ledger."""

    at: float
    host: str
    """Host of the client."""
    error: str
    """Name of the class."""
    limit_s: float
    """Time limit that ended the operation, or would have ended it."""
    ledger: LedgerFacts


def link_of(one: str, other: str) -> str:
    """Return the name of the way between two hosts, in both directions."""
    return " and ".join(sorted((one, other)))


def session_of(host: str) -> str:
    """Return the name of a process's session with the metadata service."""
    return f"session of {host}"


def memory_of(host: str) -> str:
    """Return the name of a process's memory."""
    return f"memory of {host}"


def is_explained(error: WriterError, faults: Sequence[FaultTime], setting: Setting) -> bool:
    """Return whether a fact of the ledger or the faults explain an error."""
    ledger, limit_s = error.ledger, error.limit_s
    match error.error:
        case "LedgerFencedError":
            return ledger.was_recovered or ledger.is_deleted
        case "LedgerNotFoundError":
            return ledger.is_deleted
        case "LedgerClosedError":
            return ledger.is_ending
        case "BackpressureError":
            return ledger.has_pending
        case "TooManyFragmentsError":
            return ledger.fragments >= FRAGMENTS_MAX
        case "NotEnoughBookiesError":
            hit = hit_bookies(error, faults, setting, 0.0)
            is_short = len(setting.bookies) - len(hit) < ledger.ensemble
            # A replaced leader may say OPEN, so that the fences of a recovery seem false (4.7).
            is_short = is_short or ledger.was_recovered
            return is_short or _had_fault(error, faults, (error.host,), 0.0)
        case "NotEnoughInSyncReplicasError":
            return ledger.lags_by_entries or _lacks_members(error, faults, setting, 0.0)
        case "QuorumTimeoutError":
            return _took_too_long(error, faults, setting)
        case "MetadataUnavailableError":
            return _had_fault(error, faults, _service_of(error), limit_s)
        case _:  # a bare LedgerError: an append that failed inside the client
            had_no_memory = _had_fault(error, faults, (memory_of(error.host),), 0.0)
            return error.error == "LedgerError" and had_no_memory


def hit_bookies(
    error: WriterError, faults: Sequence[FaultTime], setting: Setting, within_s: float
) -> list[str]:
    """Return the bookies that are damaged, or that had a fault or could not be reached by the
    client in the time before an error, and before its end was known.

    A client without the metadata service learns nothing: the time begins before that fault.
    """
    since = error.at - within_s - KNOWN_AFTER_S
    for fault in sorted(_of(faults, _service_of(error), error.at), key=lambda f: -f.ended):
        if fault.ended >= since:
            since = min(since, fault.began - KNOWN_AFTER_S)
    hit = {time.part: None for time in faults if time.began <= error.at and time.ended >= since}
    return [
        bookie
        for bookie in setting.bookies
        if bookie in hit or link_of(bookie, error.host) in hit or bookie in setting.damaged
    ]


def _service_of(error: WriterError) -> tuple[str, ...]:
    """Return the parts without which a client does not reach the metadata service."""
    return error.host, session_of(error.host), SERVICE


def _of(faults: Sequence[FaultTime], parts: tuple[str, ...], now: float) -> list[FaultTime]:
    return [fault for fault in faults if fault.part in parts and fault.began <= now]


def _had_fault(
    error: WriterError, faults: Sequence[FaultTime], parts: tuple[str, ...], within_s: float
) -> bool:
    """Return whether one of the parts had a fault in the time before an error."""
    since = error.at - within_s - KNOWN_AFTER_S
    return any(time.ended >= since for time in _of(faults, parts, error.at))


def _lacks_members(
    error: WriterError, faults: Sequence[FaultTime], setting: Setting, within_s: float
) -> bool:
    """Return whether so many bookies had a fault that too few members may have been in sync."""
    ledger = error.ledger
    if ledger.min_in_sync is None:
        return False
    within_s += CATCH_UP_S + ledger.copy_s
    lost = len(hit_bookies(error, faults, setting, within_s))
    is_held_up = _had_fault(error, faults, (error.host,), within_s)
    if lost and _had_fault(error, faults, _service_of(error), within_s):
        return True  # members are changed in the metadata
    return is_held_up or lost > ledger.ensemble - ledger.min_in_sync


def _took_too_long(error: WriterError, faults: Sequence[FaultTime], setting: Setting) -> bool:
    """Return whether faults explain that an append was not confirmed within its limit.

    Each bookie that fails costs a timeout and a replacement, which needs the metadata service.
    """
    ledger, limit_s = error.ledger, error.limit_s
    if limit_s < SHORT_LIMIT_S:
        return True
    lost = len(hit_bookies(error, faults, setting, limit_s))
    if _had_fault(error, faults, (error.host,), limit_s):
        return True
    if lost and _had_fault(error, faults, _service_of(error), limit_s):
        return True
    return (
        lost * (setting.add_timeout_s + STEP_S) >= limit_s
        or len(setting.bookies) - lost < ledger.ensemble
        or _lacks_members(error, faults, setting, limit_s)
    )


def is_late(
    began: float, now: float, healed_at: float, faults: Sequence[FaultTime], bound_s: float
) -> bool:
    """Return whether an append that ends now, or has not ended, took longer than the bound since
    its call, the healing and the end of the last fault. A fault that lasts excuses no append: after
    the healing, only a connection is left that no client has used since its bookie was killed.
    """
    ends = [fault.ended for fault in faults if not math.isinf(fault.ended)]
    return now > max(began, healed_at, *ends) + bound_s
