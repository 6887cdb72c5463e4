"""Ranges of entries that need no payloads, in a Spark task, from metadata alone.

Leaves reads of payloads to `reading`, and failures to `unreadable`.

The ids follow from the planned range, and the numbers of fragments from the ledger's metadata. So
no bookie is asked, and no key of an encrypted ledger is needed. A damaged replica is not noticed.

Invariants: deleted ledgers, and entries whose loss was accepted, are reported as by a read of
payloads.

Source: Spark design, "Reading"; protocol rule 8.6.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ledger_client import EntryLostError, LedgerError, LedgerInfo, LedgerNotFoundError, RangePart
from ledger_client.sync import LedgerClient
from metadata.ids import EntryId, LedgerId
from metadata.ledgers.lost_entries import next_range, range_of
from spark_io.ledgers.known_ledgers import infos_of
from spark_io.ledgers.options import ReadOptions
from spark_io.ledgers.splits import EntryRange
from spark_io.ledgers.unreadable import entry_after_failure, is_planned, unreadable


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
            entry_after_failure(failed, wanted, wanted.first, options)
            continue
        except LedgerError as error:
            raise unreadable(wanted, error) from error
        if is_planned(wanted, info, options):
            yield from _not_lost(wanted, info, options)


def _infos(client: LedgerClient, ranges: Sequence[EntryRange]) -> Iterator[LedgerInfo | None]:
    return infos_of(client, [each.ledger_id for each in ranges])


def _not_lost(wanted: EntryRange, info: LedgerInfo, options: ReadOptions) -> Iterator[EntryIds]:
    at = wanted.first
    while at <= wanted.last:
        lost = range_of(info.lost, at)
        if lost is not None:
            ledger_id, entry_id = LedgerId(wanted.ledger_id), EntryId(at)
            error = EntryLostError(ledger_id=ledger_id, entry_id=entry_id, lost=lost)
            at = entry_after_failure(RangePart(0, info, None, error), wanted, at, options)
            continue
        following = next_range(info.lost, at)
        end = wanted.last if following is None else following.first_entry_id - 1
        yield EntryIds(info, wanted.link, at, min(end, wanted.last))
        at = end + 1
