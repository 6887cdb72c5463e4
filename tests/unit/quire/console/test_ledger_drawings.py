"""Drawings of a ledger's page: well-formed, escaped, and with patterns besides colours."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from metadata.ids import ENTRY_ID_MAX, BookieId
from metadata.ledgers.ledger_metadata import QuorumSpec
from quire.console.safety import (
    DRAWN_MAX,
    Column,
    Held,
    Zone,
    ZoneRange,
    definitions,
    draw_entry_grid,
    draw_fragment_map,
    map_of,
    parts,
    safety_strip,
    width_of,
    window_of,
)
from quire.console.safety import NARROWEST_RANGE as NARROWEST
from quire.console.safety import STRIP_WIDTH as WIDTH
from tests.support.sample_ledgers import bookies, closed_ledger

A, B, C = bookies("abc")
ALL = Held([(0, 99)], ENTRY_ID_MAX)
HOSTILE = BookieId('"><script>alert(1)</script>')


def patterns_of(drawn: ET.Element) -> Sequence[str]:
    fills = [element.get("fill", "") for element in drawn.iter("rect")]
    return [re.sub(r"url\(#pattern-(.*)\)", r"\1", fill) for fill in fills]


def zone(first: int, last: int, kind: Zone) -> ZoneRange:
    return ZoneRange(first, last, 0, kind, 2, 3, ())


def test_every_pattern_that_is_used_is_defined() -> None:
    names = {element.get("id") for element in ET.fromstring(definitions()).iter("pattern")}
    assert {f"pattern-{each}" for each in ("good", "warn", "bad", "dotted", "lined")} <= names


def test_the_strip_has_one_shape_for_each_zone() -> None:
    found = [zone(0, 59, Zone.FULL), zone(60, 79, Zone.ACK), zone(80, 99, Zone.UNCONFIRMED)]
    drawn = ET.fromstring(safety_strip(found, 99, 79, "<said> & done"))
    assert drawn.findtext("desc") == "<said> & done"
    assert drawn.get("role") == "img"
    widths = [float(element.get("width", "")) for element in drawn.iter("rect")]
    assert sorted(widths) == [200.0, 200.0, 600.0]
    assert sorted(patterns_of(drawn)) == ["dotted", "good", "warn"]


def test_small_islands_are_seen_and_what_is_worse_is_on_top() -> None:
    found = [zone(0, 999_998, Zone.FULL), zone(999_999, 999_999, Zone.SHORT)]
    drawn = ET.fromstring(safety_strip(found, 999_999, 999_999, ""))
    last = list(drawn.iter("rect"))[-1]
    assert float(last.get("width", "")) == NARROWEST
    assert float(last.get("x", "")) + NARROWEST <= WIDTH
    assert patterns_of(drawn)[-1] == "bad"


def test_the_number_of_shapes_is_limited() -> None:
    found = [zone(number, number, Zone.ACK) for number in range(2 * DRAWN_MAX)]
    drawn = ET.fromstring(safety_strip(found, 2 * DRAWN_MAX, 2 * DRAWN_MAX, ""))
    assert len(list(drawn.iter("rect"))) == DRAWN_MAX


def test_cells_of_the_map_are_links_with_names() -> None:
    ledger, held = closed_ledger("abc", "abd"), {A: ALL, B: ALL, C: Held(is_up=False)}
    found = map_of(ledger, parts(ledger, held, 0, 19, 19), held, window_of(ledger, None), 19)
    drawn = ET.fromstring(draw_fragment_map(found, "/ledgers/7?fragment=", "text"))
    cells = {element.get("aria-label"): element for element in drawn.iter("a")}
    assert len(cells) == 6
    cell = cells["c, fragment 0, entries 0 to 9: bookie down, 10 assigned"]
    assert cell.get("href") == "/ledgers/7?fragment=0#fragment"
    assert (cell.get("data-row"), cell.get("data-column")) == ("2", "0")
    assert all(float(element.get("width", "")) >= 24 for element in drawn.iter("rect"))
    assert all(int(element.get("height", "")) >= 24 for element in drawn.iter("rect"))


def test_the_width_of_a_fragment_grows_slowly() -> None:
    widths = [width_of(Column(0, 0, last)) for last in (None, 0, 1_000, 1_000_000)]
    assert widths == sorted(widths)
    assert widths[-1] < 5 * widths[0]


def test_the_grid_shows_what_the_write_sets_assign() -> None:
    striped = QuorumSpec(3, 2, 2, stripe_entries=4)
    ledger, held = closed_ledger("abc", quorum=striped), {A: ALL, B: ALL}
    found = list(parts(ledger, held, 0, 9, 9))
    drawn = ET.fromstring(draw_entry_grid(bookies("abc"), found, "text"))
    patterns = patterns_of(drawn)
    # Entries 0-3 are on a and b, 4-7 on b and c, 8-9 on c and a.
    assert (patterns.count("good"), patterns.count("lined")) == (14, 6)


def test_names_are_escaped() -> None:
    ledger = closed_ledger("abc")
    ensemble = (HOSTILE, *ledger.fragments[0].ensemble[1:])
    (part,) = parts(ledger, {A: ALL}, 0, 9, 9)
    grid = draw_entry_grid(ensemble, [part], "<b>")
    assert "<script>" not in grid
    assert ET.fromstring(grid).findtext("desc") == "<b>"
