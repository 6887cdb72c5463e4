"""Appended entries are divided into batches that keep every limit and lose nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger_client.errors import EntryTooLargeError
from ledger_client.writing.batcher import BatchLimits, cut_batches, own_bytes
from metadata.ids import EntryId, LedgerId
from metadata.ledgers.ledger_metadata import QuorumSpec

LEDGER = LedgerId(1)


@given(
    st.lists(st.binary(max_size=40), min_size=1, max_size=60),
    st.integers(0, 50),
    st.integers(1, 12),
    st.integers(1, 9),
    st.integers(1, 80),
)
def test_batches_keep_the_limits(
    payloads: list[bytes], first: int, stripe: int, entries_max: int, bytes_max: int
) -> None:
    quorum = QuorumSpec(3, 3, 2, stripe)
    limits = BatchLimits(entries_max, bytes_max, 1000)
    cuts = list(cut_batches(payloads, EntryId(first), quorum, limits))
    assert [p for cut in cuts for p in cut.payloads] == payloads
    at = first
    for cut in cuts:
        assert cut.payload_bytes == sum(map(len, cut.payloads))
        assert 1 <= len(cut.payloads) <= entries_max
        assert cut.payload_bytes <= bytes_max or len(cut.payloads) == 1
        assert at // stripe == (at + len(cut.payloads) - 1) // stripe
        at += len(cut.payloads)


def test_mutable_entries_are_copied() -> None:
    mutable = bytearray(b"before")
    owned, size = own_bytes([mutable, b"x"], BatchLimits(10, 100, 100), LEDGER)
    mutable[:] = b"after!"
    assert (list(owned), size) == ([b"before", b"x"], 7)


def test_wrong_entries_are_refused() -> None:
    limits = BatchLimits(10, 100, 4)
    with pytest.raises(EntryTooLargeError, match="5 bytes is over the limit of 4"):
        own_bytes([b"12345"], limits, LEDGER)
    with pytest.raises(TypeError, match="not str"):
        own_bytes(["text"], limits, LEDGER)
