"""Received batch of an encrypted ledger with decrypted payloads.

Leaves the cipher to `ledger_cipher`. All entries that a batch shows are decrypted at once.

Source: docs/encryption.md, "How it works".
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bookie.wire.batch import BatchHeader
from ledger_client.batches import EntryBatch
from ledger_client.encryption.ledger_cipher import LedgerCipher


@dataclass(frozen=True, slots=True, repr=False)
class OpenedBatch:
    """Payloads in place of those of a batch. A `PayloadView`."""

    header: BatchHeader
    lengths: Sequence[int]
    payload: memoryview

    @property
    def packed_lengths(self) -> bytes:
        """Payload size of each entry, in 4 bytes each, little-endian."""
        return struct.pack(f"<{len(self.lengths)}I", *self.lengths)


def opened(batch: EntryBatch, cipher: LedgerCipher) -> EntryBatch:
    """Return the shown entries of a batch with decrypted payloads. Raises DecryptionError."""
    first = batch.first_entry_id
    joined, offsets = batch.buffers()
    ciphertexts = [joined[a:b] for a, b in pairwise(offsets)]
    payloads = cipher.decrypt(batch.ledger_id, first, ciphertexts)
    payload = b"".join(payloads)
    header = batch.header_of_shown(len(payload))
    view = OpenedBatch(header, [len(each) for each in payloads], memoryview(payload))
    return EntryBatch(view, first, batch.last_entry_id)
