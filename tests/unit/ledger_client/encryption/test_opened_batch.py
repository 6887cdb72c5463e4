"""Batches with decrypted payloads look like received ones."""

import struct

from bookie.wire.batch import BatchView, build_batch
from ledger_client.batches import EntryBatch
from ledger_client.encryption.ledger_cipher import OpenedBatch
from metadata.ids import EntryId, LedgerId

SECRET = [b"a---", b"bcd---", b"---"]
PLAIN = [b"a", b"bcd", b""]


def test_lengths_are_those_of_the_decrypted_payloads() -> None:
    data = build_batch(LedgerId(7), EntryId(4), EntryId(-1), 0, SECRET, 0)
    received = EntryBatch(BatchView(data), EntryId(4), EntryId(6))
    payload = b"".join(PLAIN)
    view = OpenedBatch(
        received.header_of_shown(len(payload)), [*map(len, PLAIN)], memoryview(payload)
    )
    shown = EntryBatch(view, EntryId(4), EntryId(6))
    assert bytes(received.packed_lengths) == struct.pack("<3I", 4, 6, 3)
    assert bytes(shown.packed_lengths) == struct.pack("<3I", 1, 3, 0)
    assert bytes(shown.payload) == payload
    part = shown.clipped(EntryId(5), EntryId(6))
    assert part is not None
    assert bytes(part.packed_lengths) == struct.pack("<2I", 3, 0)
    assert bytes(part.payload) == b"bcd"
