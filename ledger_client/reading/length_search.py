"""Search for a ledger's length before an entry, in bytes, from a complete batch at or before it.

Leaves reading from the replicas to `range_reader.py`.

Invariants: only headers of complete batches are used, because the writer wrote them and one CRC
covers them with the rest; of slices only the sizes of the entries are used. The start of the ledger
needs no batch. An earlier fragment is read only when all of a later one gave no complete batch: its
bookies may be lost. Entries whose loss was accepted have the sizes that later batches imply; if no
batch implies one, they count as empty.

Source: storage design, "The batch"; protocol rules 7.5 and 9.9.
"""

from typing import Final

from bookie.wire.batch import BatchView
from ledger_client.errors import EntryLostError
from ledger_client.reading.range_reader import RangeReader
from metadata.ids import EntryId

WIDEN_FACTOR: Final = 32


async def find_length_before(ranges: RangeReader, entry_id: EntryId, timeout_s: float) -> int:
    """Return the ledger's bytes before an entry; all entries before it must exist, or be accepted
    as lost. Raises the errors of a read.
    """
    window, first = 1, entry_id
    while True:
        fragment_start = ranges.fragment_start(EntryId(first - 1)) if first else first
        first = EntryId(max(fragment_start, entry_id - window))
        length = await _length_from(ranges, first, entry_id, timeout_s)
        if length is not None:
            return length
        window *= WIDEN_FACTOR


async def _length_from(
    ranges: RangeReader, first: EntryId, stop: EntryId, timeout_s: float
) -> int | None:
    """Return the length by adding from the first complete batch at or after `first`; None if there
    is none.
    """
    length = 0 if first == 0 else None
    position = first
    while position < stop:
        try:
            answer = await ranges.read_verified(position, EntryId(stop - 1), timeout_s)
        except EntryLostError as error:
            position = EntryId(error.lost_last + 1)
            continue
        for batch in answer.batches:
            if not batch.header.is_slice:
                length = batch.header.length_before + _bytes_before(batch, stop)
            elif length is not None:
                length += _bytes_before(batch, stop)
        position = answer.next_entry_id
    return length


def _bytes_before(batch: BatchView, stop: EntryId) -> int:
    return sum(batch.lengths[: stop - batch.header.first_entry_id])
