"""How safe entries are."""

from dataclasses import replace

from metadata.ids import ENTRY_ID_MAX, BookieId, EntryId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.lost_entries import LostRange
from quire.console.safety import Held, Zone, ZoneRange, parts, reasons, sentence, zone_ranges
from tests.support.sample_ledgers import bookies, closed_ledger, open_ledger

A, B, C = bookies("abc")
ALL = Held([(0, 99)], ENTRY_ID_MAX)


def zones(
    ledger: LedgerMetadata, held: dict[BookieId, Held], last: int, confirmed: int
) -> list[ZoneRange]:
    return zone_ranges(parts(ledger, held, 0, last, confirmed))


def shape(found: list[ZoneRange]) -> list[tuple[int, int, Zone]]:
    return [(zone_range.first, zone_range.last, zone_range.zone) for zone_range in found]


def test_the_three_zones_of_an_open_ledger() -> None:
    held = {A: ALL, B: ALL, C: Held([(0, 5)], ENTRY_ID_MAX)}
    found = zones(open_ledger("abc"), held, 12, 9)
    assert shape(found) == [(0, 5, Zone.FULL), (6, 9, Zone.ACK), (10, 12, Zone.UNCONFIRMED)]
    assert sentence(found, is_end_known=True) == (
        "1 entry range (4 entries) has 2 of 3 copies. 6 other entries are on all of the write "
        "quorum."
    )


def test_islands_in_older_fragments_have_reasons() -> None:
    held = dict.fromkeys(bookies("abcde"), ALL)
    held[A] = Held([(0, 3), (5, 7)], ENTRY_ID_MAX)
    ledger = closed_ledger("abc", "bcd", "cde")
    found = zones(ledger, held, 29, 29)
    islands = [zone_range for zone_range in found if zone_range.zone is Zone.ACK]
    assert [(island.first, island.last) for island in islands] == [(4, 4), (8, 9)]
    (reason,) = reasons(ledger, islands[1], held)
    assert reason.startswith("a does not list them: it was replaced from entry 10 on")
    assert sentence(found, is_end_known=True).startswith(
        "2 entry ranges (3 entries) have 2 of 3 copies."
    )


def test_the_end_of_a_closed_ledger_may_be_at_the_ack_quorum() -> None:
    ledger = closed_ledger("abc")
    held = {A: ALL, B: ALL, C: Held([(0, 7)], ENTRY_ID_MAX)}
    found = zones(ledger, held, 9, 9)
    (reason,) = reasons(ledger, found[-1], held)
    assert "closed or recovered" in reason


def test_bookies_that_are_down_leave_it_open_whether_entries_are_safe() -> None:
    held = {A: ALL, B: Held(is_up=False), C: Held(problem="it did not answer")}
    ledger = closed_ledger("abc")
    found = zones(ledger, held, 9, 9)
    assert shape(found) == [(0, 9, Zone.UNKNOWN)]
    assert reasons(ledger, found[0], held) == [
        "b is down",
        "c was not checked: it did not answer",
    ]
    text = sentence(found, is_end_known=True)
    assert text == "1 entry range (10 entries) has 1 of 3 copies on the bookies that answered."


def test_fewer_copies_than_the_ack_quorum() -> None:
    nothing = Held((), ENTRY_ID_MAX)
    found = zones(closed_ledger("abc"), {A: ALL, B: nothing, C: nothing}, 9, 9)
    assert shape(found) == [(0, 9, Zone.SHORT)]
    assert sentence(found, is_end_known=True) == "1 entry range (10 entries) has 1 of 3 copies."


def test_lost_entries_are_their_own_zone() -> None:
    ledger = replace(closed_ledger("abc"), lost=(LostRange(EntryId(3), EntryId(4), 1),))
    found = zones(ledger, {A: ALL, B: ALL, C: ALL}, 9, 9)
    assert shape(found) == [(0, 2, Zone.FULL), (3, 4, Zone.LOST), (5, 9, Zone.FULL)]
    assert sentence(found, is_end_known=True) == "8 entries are on all of the write quorum."


def test_an_unknown_end_is_said() -> None:
    found = zones(open_ledger("abc"), {A: ALL, B: ALL, C: ALL}, 9, -1)
    assert sentence(found, is_end_known=False) == (
        "No entry is known to be confirmed. Which later entries are confirmed is not known."
    )
