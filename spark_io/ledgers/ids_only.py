"""Ranges of entries that need no payloads, in a Spark task, from metadata alone.

Leaves reads of payloads to `reading`, and failures to `unreadable`.

The ids follow from the planned range, and the numbers of fragments from the ledger's metadata. So
no bookie is asked, and no key of an encrypted ledger is needed. A damaged replica is not noticed.

Invariants: deleted ledgers, entries behind the end of a closed one, and entries whose loss was
accepted, are reported as by a read of payloads.

Source: Spark design, "Reading"; protocol rule 8.6.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ledger_client import (
    EntryLostError,
    EntryNotFoundError,
    LedgerError,
    LedgerInfo,
    LedgerNotFoundError,
    RangePart,
)
from ledger_client.sync import LedgerClient
from metadata.ids import EntryId, LedgerId
from metadata.ledgers.lost_entries import next_range, range_of
from spark_io.ledgers.known_ledgers import infos_of
from spark_io.ledgers.options import ReadOptions
from spark_io.ledgers.splits import EntryRange
from spark_io.ledgers.unreadable import is_planned, rest_after_failure, unreadable


@dataclass(frozen=True, slots=True)
class EntryIds:
    """Consecutive entries of a ledger that were confirmed and are not lost."""

    info: LedgerInfo
    link: int | None
    first: int
    last: int


def entry_ids(
    client: LedgerClient, ranges: Sequence[EntryRange], options: ReadOptions
) -> Iterator[EntryIds]:
    """Yield the entries of ranges, in order. Raises DataLostError, ReadFailedError,
    RecreatedError.
    """
    infos = _infos(client, ranges)
    for wanted in ranges:
        try:
            info = next(infos) or client.ledger_info(wanted.ledger_id)  # the newest metadata
        except LedgerNotFoundError as error:
            failed = RangePart(0, None, None, error)
            rest_after_failure(failed, wanted, wanted.first, options)
            continue
        except LedgerError as error:
            raise unreadable(wanted, error) from error
        if is_planned(wanted, info, options):
            yield from _not_lost(wanted, info, options)


def _infos(client: LedgerClient, ranges: Sequence[EntryRange]) -> Iterator[LedgerInfo | None]:
    return infos_of(client, [each.ledger_id for each in ranges])


def _not_lost(wanted: EntryRange, info: LedgerInfo, options: ReadOptions) -> Iterator[EntryIds]:
    ledger_id, rest = LedgerId(wanted.ledger_id), wanted
    if info.last_entry_id is not None and info.last_entry_id < wanted.last:
        behind = EntryNotFoundError("", ledger_id=ledger_id, entry_id=EntryId(wanted.last))
        rest = rest_after_failure(RangePart(0, info, None, behind), wanted, wanted.first, options)
    while rest.count > 0:
        at = rest.first
        lost = range_of(info.lost, at)
        if lost is not None:
            error = EntryLostError(ledger_id=ledger_id, entry_id=EntryId(at), lost=lost)
            rest = rest_after_failure(RangePart(0, info, None, error), rest, at, options)
            continue
        following = next_range(info.lost, at)
        end = rest.last if following is None else min(following.first_entry_id - 1, rest.last)
        yield EntryIds(info, wanted.link, at, end)
        rest = replace(rest, first=end + 1)
