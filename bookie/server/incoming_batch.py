"""Looks at a batch that a client sends, before anything is done with it.

Leaves whether it is accepted to `bookie.storage.bookie_storage`.

Source: api, batch layout; storage design, "Limits and refusals".
"""

from bookie.server.server_answers import BATCH_BYTES_MAX
from bookie.wire.batch import BatchView
from bookie.wire.errors import BatchError


def checked_batch(body: memoryview, entry_bytes_max: int) -> BatchView:
    """Return a view of a whole frame's batch. Raises BatchError: it is damaged, too large, or one
    of its entries is.
    """
    batch = BatchView(body)
    if len(batch.data) != len(body):
        raise BatchError(f"{len(body) - len(batch.data)} bytes behind the batch")
    if len(body) > BATCH_BYTES_MAX:
        raise BatchError(f"a batch of {len(body)} bytes is over the limit of {BATCH_BYTES_MAX}")
    # A batch whose payloads together are below the limit needs no look at each.
    if batch.header.payload_bytes > entry_bytes_max and max(batch.lengths) > entry_bytes_max:
        raise BatchError(
            f"an entry of {max(batch.lengths)} bytes is over the limit of {entry_bytes_max}"
        )
    return batch
