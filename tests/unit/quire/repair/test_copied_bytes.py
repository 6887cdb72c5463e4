"""Bytes copied for one ledger: the copies of all its fragments count."""

from ledger_client.copying import CopyProgress
from metadata.ids import BookieId, EntryId, LedgerId
from quire.repair.worker import CopiedBytes


def progress(first: int, target: str, entries: int, of: int = 4) -> CopyProgress:
    return CopyProgress(LedgerId(7), EntryId(first), BookieId(target), entries, of, 100 * entries)


def test_the_copies_of_several_fragments_are_added() -> None:
    copied = CopiedBytes()
    assert [copied.add(progress(0, "d", each)) for each in (1, 4, 4)] == [100, 400, 400]
    assert [copied.add(progress(50, "d", each, of=2)) for each in (1, 2)] == [500, 600]
    assert copied.add(progress(50, "e", 1, of=2)) == 700, "a second member of the same fragment"


def test_a_copy_that_fails_does_not_count_once_another_begins() -> None:
    copied = CopiedBytes()
    copied.add(progress(0, "d", 3))
    assert copied.add(progress(0, "e", 1)) == 100


def test_a_copy_that_begins_again_counts_once() -> None:
    copied = CopiedBytes()
    copied.add(progress(0, "d", 3))
    assert copied.add(progress(0, "d", 1)) == 100
