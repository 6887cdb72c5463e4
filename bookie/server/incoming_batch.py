"""Checks of the form and size of a batch from a client, before it is processed.

Leaves its CRC and the decision to accept it to `bookie.storage.bookie_storage`.

Source: storage design, "The batch"; storage design, "Limits and refusals".
"""

from bookie.server.server_answers import BATCH_BYTES_MAX
from bookie.wire.batch import BatchView
from bookie.wire.errors import BatchError


def checked_batch(body: memoryview, entry_bytes_max: int) -> BatchView:
    """Return a view of the batch in a frame's body. Raises BatchError when it is malformed, or when
    it or one of its entries is too large.
    """
    batch = BatchView(body)
    if len(batch.data) != len(body):
        raise BatchError(f"{len(body) - len(batch.data)} bytes after the batch")
    if len(body) > BATCH_BYTES_MAX:
        raise BatchError(f"a batch of {len(body)} bytes is over the limit of {BATCH_BYTES_MAX}")
    # If all payloads together are below the limit, each of them is.
    if batch.header.payload_bytes > entry_bytes_max and max(batch.lengths) > entry_bytes_max:
        raise BatchError(
            f"an entry of {max(batch.lengths)} bytes is over the limit of {entry_bytes_max}"
        )
    return batch
