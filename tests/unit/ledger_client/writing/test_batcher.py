"""Appended entries are divided into batches that keep every limit and lose nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger_client.errors import EntryTooLargeError
from ledger_client.writing.admission import BatchLimits, cut_batches, own_bytes, own_entry
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
    following = [cut.payloads[0] for cut in cuts[1:]]
    at = first
    for cut in cuts:
        assert cut.payload_bytes == sum(map(len, cut.payloads))
        assert 1 <= len(cut.payloads) <= entries_max
        assert cut.payload_bytes <= bytes_max or len(cut.payloads) == 1
        assert at // stripe == (at + len(cut.payloads) - 1) // stripe
        at += len(cut.payloads)
        if following:  # a batch ends only where the next entry would break a limit
            is_larger = cut.payload_bytes + len(following.pop(0)) > bytes_max
            assert len(cut.payloads) == entries_max or at % stripe == 0 or is_larger


def test_entries_that_fit_into_one_batch_are_not_copied() -> None:
    payloads = [b"a", b"b", b"c"]
    owned, size = own_bytes(payloads, BatchLimits(3, 3, 1), LEDGER)
    assert owned is payloads
    (cut,) = cut_batches(owned, EntryId(0), QuorumSpec(3, 3, 2, 8), BatchLimits(3, size, 1))
    assert cut.payloads is payloads


def test_mutable_entries_are_copied() -> None:
    mutable = bytearray(b"before")
    owned, size = own_bytes([mutable, b"x"], BatchLimits(10, 100, 100), LEDGER)
    mutable[:] = b"after!"
    assert (list(owned), size) == ([b"before", b"x"], 7)


class Text(bytes):
    """Bytes of a type of the caller."""


@pytest.mark.parametrize("entry", [b"1234", Text(b"1234"), bytearray(b"1234"), memoryview(b"1234")])
def test_every_kind_of_bytes_is_accepted_up_to_the_limit(entry: object) -> None:
    limits = BatchLimits(10, 100, 4)
    assert own_bytes([entry, b"1"], limits, LEDGER) == ([b"1234", b"1"], 5)
    assert own_entry(entry, limits, LEDGER) == b"1234"
    assert isinstance(own_entry(entry, limits, LEDGER), bytes)


def test_no_entries_are_within_every_limit() -> None:
    assert own_bytes([], BatchLimits(1, 1, 0), LEDGER) == ([], 0)


def test_wrong_entries_are_refused() -> None:
    limits = BatchLimits(10, 100, 4)
    for entries in ([b"12345"], [b"1", b"12345", b""], [b"1", bytearray(b"12345")]):
        with pytest.raises(EntryTooLargeError, match="5 bytes is over the limit of 4"):
            own_bytes(entries, limits, LEDGER)
    for entry in (b"12345", bytearray(b"12345")):
        with pytest.raises(EntryTooLargeError, match="5 bytes is over the limit of 4"):
            own_entry(entry, limits, LEDGER)
    for wrong in ("text", None, [1]):
        with pytest.raises(TypeError, match=f"not {type(wrong).__name__}"):
            own_bytes([wrong, b"1"], limits, LEDGER)
        with pytest.raises(TypeError, match=f"not {type(wrong).__name__}"):
            own_entry(wrong, limits, LEDGER)
