"""Division of consecutive entries into batches, for a recovery or a copy.

Leaves building and sending the batches to their callers. `batcher` divides the entries of a writer.

Source: protocol rule 3.1; storage design, "The batch".
"""

from collections.abc import Iterator, Sequence

from bookie.wire.batch import BATCH_ENTRIES_MAX
from metadata.ids import EntryId
from metadata.ledgers.copies import stripe_end
from metadata.ledgers.ledger_metadata import QuorumSpec


def cut_batches(
    quorum: QuorumSpec, first_entry_id: EntryId, lengths: Sequence[int], bytes_max: int
) -> Iterator[tuple[EntryId, int]]:
    """Yield (first entry id, count) of the batches in which to send consecutive entries. No batch
    crosses a stripe or exceeds the entry limit, nor the byte limit unless it is a single entry.
    """
    begin = 0
    while begin < len(lengths):
        first = EntryId(first_entry_id + begin)
        stripe_left = stripe_end(quorum, first) - first + 1
        stop_max = min(len(lengths), begin + min(stripe_left, BATCH_ENTRIES_MAX))
        stop, size = begin + 1, lengths[begin]
        while stop < stop_max and size + lengths[stop] <= bytes_max:
            size += lengths[stop]
            stop += 1
        yield first, stop - begin
        begin = stop
