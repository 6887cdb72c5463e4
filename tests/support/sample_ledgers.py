"""Ledgers by their fragments, whose ensembles are written with one letter for each bookie."""

from collections.abc import Iterable
from dataclasses import replace

from metadata.ids import BookieId, ClientId, EntryId, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumMode,
    QuorumSpec,
)
from quire.repair.standing import Standing, Standings

QUORUM = QuorumSpec(3, 3, 2)
IN_SYNC = QuorumSpec(3, 3, 3, mode=QuorumMode.IN_SYNC, min_in_sync=2)


def bookies(names: Iterable[str]) -> tuple[BookieId, ...]:
    """Return one bookie for each letter, or each name."""
    return tuple(BookieId(name) for name in names)


def standings(gone: str = "", draining: str = "", unproven: str = "") -> Standings:
    """Return the standings with these bookies gone, draining or unproven."""
    return Standings(
        dict.fromkeys(bookies(gone), Standing.GONE)
        | dict.fromkeys(bookies(draining), Standing.DRAINING)
        | dict.fromkeys(bookies(unproven), Standing.UNPROVEN)
    )


def fragments(*parts: tuple[int, Iterable[str]]) -> tuple[Fragment, ...]:
    """Return fragments by their first entries and their bookies."""
    return tuple(Fragment(EntryId(first), bookies(names)) for first, names in parts)


def ledger_of(
    *parts: tuple[int, Iterable[str]],
    ledger_id: int = 7,
    quorum: QuorumSpec = QUORUM,
    digest: DigestType = DigestType.CRC32C,
) -> LedgerMetadata:
    """Return an open ledger with these fragments."""
    return LedgerMetadata(
        ledger_id=LedgerId(ledger_id),
        state=LedgerState.OPEN,
        quorum=quorum,
        fragments=fragments(*parts),
        digest=digest,
        created_ms=0,
        creation_token=UpdateToken(bytes(16)),
        update_token=UpdateToken(bytes(16)),
        writer=ClientId("client-x"),
    )


def open_ledger(*ensembles: str, ledger_id: int = 7, quorum: QuorumSpec = QUORUM) -> LedgerMetadata:
    """Return an open ledger with one fragment of ten entries for each ensemble."""
    parts = [(10 * number, each) for number, each in enumerate(ensembles)]
    return ledger_of(*parts, ledger_id=ledger_id, quorum=quorum)


def closed_ledger(
    *ensembles: str, ledger_id: int = 7, quorum: QuorumSpec = QUORUM, length: int = 1_000
) -> LedgerMetadata:
    """Return the same ledger, closed at the end of its last fragment."""
    ledger = open_ledger(*ensembles, ledger_id=ledger_id, quorum=quorum)
    last = EntryId(10 * len(ensembles) - 1)
    return replace(ledger, state=LedgerState.CLOSED, last_entry_id=last, length=length)
