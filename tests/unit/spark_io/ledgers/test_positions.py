"""Micro-batches read each entry exactly once, whatever their limits and however ledgers grow."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_io.errors import OffsetError, OptionError
from spark_io.ledgers.positions import (
    ChainPosition,
    advance_chain,
    advance_ledgers,
    chain_parts,
    check_bounds,
    end_of_chain,
    entries_between,
    ledger_offsets_of,
    starts_and_ends,
)
from spark_io.offsets import MicroBatchLimits
from spark_io.ranges import EntryRange, LinkRanges, PackedRanges

MISCOUNTED = {"link": 1, "ledger": 0, "entry": 0, "entries": -1}
allowances = st.builds(
    MicroBatchLimits, st.none() | st.integers(1, 40), st.none() | st.integers(1, 4_000)
)
counts = st.lists(st.lists(st.integers(0, 30), max_size=4), max_size=5)


def closed(ledger_id: int, end: int, size: float = 100.0) -> EntryRange:
    return EntryRange(ledger_id, 0, end - 1, size)


def chain_of(links: list[list[int]], first_index: int = 0) -> list[LinkRanges]:
    return [
        LinkRanges(
            first_index + index,
            0,
            tuple(closed(100 * index + n, end) for n, end in enumerate(ends)),
        )
        for index, ends in enumerate(links)
    ]


def ranges_of(
    chain: list[LinkRanges], start: ChainPosition, end: ChainPosition
) -> list[EntryRange]:
    return [part.ledger.part(part.first, part.end) for part in chain_parts(chain, start, end)]


@given(counts, allowances)
def test_a_chain_is_read_once_in_steps_of_any_size(
    links: list[list[int]], allowance: MicroBatchLimits
) -> None:
    chain = chain_of(links)
    end = end_of_chain(chain, len(links))
    at, seen, steps = ChainPosition(0), [], 0
    while at < end:
        to = advance_chain(chain, at, end, allowance)
        assert to > at
        ranges = ranges_of(chain, at, to)
        count = sum(range_.count for range_ in ranges)
        assert allowance.entries is None or count <= allowance.entries
        assert count > 0 or to == end, "only a micro-batch up to the end has no entries"
        seen += [
            (range_.ledger_id, n) for range_ in ranges for n in range(range_.first, range_.last + 1)
        ]
        at, steps = to, steps + 1
        assert at.entries == len(seen)
    wanted = [
        (ledger.ledger_id, n)
        for link in chain
        for ledger in link.ledgers
        for n in range(ledger.end)
    ]
    assert seen == wanted
    assert advance_chain(chain, end, end, allowance) == end
    assert entries_between(chain, ChainPosition(0), end) == len(wanted)


@given(counts, st.data())
def test_entries_between_positions_are_those_that_are_read(
    links: list[list[int]], data: st.DataObject
) -> None:
    chain = [replace(link, ledgers=PackedRanges(link.ledgers)) for link in chain_of(links)]
    places = st.builds(
        ChainPosition, st.integers(0, len(links)), st.integers(0, 4), st.integers(0, 30)
    )
    start, end = sorted([data.draw(places), data.draw(places)])
    read = [part.count for part in ranges_of(chain, start, end) if part.count > 0]
    assert entries_between(chain, start, end) == sum(read)


def test_a_limit_that_ends_at_the_end_of_a_ledger_makes_no_empty_micro_batch() -> None:
    chain = chain_of([[10], [0], [10], [0]])
    ten = MicroBatchLimits(entries=10)
    middle = advance_chain(chain, ChainPosition(0), ChainPosition(4), ten)
    assert middle == ChainPosition(2), "a position in a link that can still be trimmed"
    assert advance_chain(chain, middle, ChainPosition(4), ten) == ChainPosition(4)


@given(st.lists(st.integers(0, 8), min_size=1, max_size=8), allowances)
def test_an_open_ledger_at_the_end_is_read_once_while_it_grows(
    growth: list[int], allowance: MicroBatchLimits
) -> None:
    at, seen, reached = ChainPosition(0), [], 0
    for number, more in enumerate([*growth, 0]):
        reached += more
        is_closed = number == len(growth)
        tail = EntryRange(2, 0, reached - 1, 100.0, is_open=not is_closed)
        chain = [LinkRanges(0, 0, (closed(1, 3), tail))]
        end = end_of_chain(chain, 1)
        while at < end:
            to = advance_chain(chain, at, end, allowance)
            ranges = ranges_of(chain, at, to)
            seen += [(e.ledger_id, n) for e in ranges for n in range(e.first, e.last + 1)]
            at = to
    assert seen == [(1, n) for n in range(3)] + [(2, n) for n in range(reached)]
    assert at == ChainPosition(1)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5), allowances)
def test_named_ledgers_are_read_once_within_the_bounds(
    ends: list[int], allowance: MicroBatchLimits
) -> None:
    known = [closed(number, end) for number, end in enumerate(ends)]
    at = dict.fromkeys(range(len(ends)), 0)
    goal = dict(enumerate(ends))
    for _ in range(sum(ends) + 1):
        if at == goal:
            break
        to = advance_ledgers(known, at, allowance)
        count = sum(to[key] - at[key] for key in at)
        assert count > 0
        assert allowance.entries is None or count <= allowance.entries
        assert all(to[key] <= goal[key] for key in at)
        at = to
    assert at == goal


def test_no_step_passes_an_open_ledger_of_an_earlier_link() -> None:
    open_one = EntryRange(1, 0, 4, 100.0, is_open=True)
    chain = [LinkRanges(0, 0, (open_one,)), LinkRanges(1, 0, (closed(2, 10),))]
    assert end_of_chain(chain, 2) == ChainPosition(0, 0, 5)
    assert end_of_chain(chain, 2, ChainPosition(0, 0, 5)) == ChainPosition(0, 0, 5)
    assert end_of_chain(chain, 2, ChainPosition(1)) == ChainPosition(2)


def test_a_start_offset_after_the_end_is_kept() -> None:
    assert advance_ledgers([closed(1, 5)], {1: 9}, MicroBatchLimits()) == {1: 9}


def test_positions_are_json_and_back() -> None:
    position = ChainPosition(3, 1, 12)
    assert position.as_json() == {"link": 3, "ledger": 1, "entry": 12}
    assert ChainPosition.of_json(position.as_json()) == position
    counted = ChainPosition(3, 1, 12, entries=77)
    assert counted.as_json() == {"link": 3, "ledger": 1, "entry": 12, "entries": 77}
    assert ChainPosition.of_json(counted.as_json()).entries == 77
    assert ledger_offsets_of({"17": 5, "18": 0}) == {17: 5, 18: 0}


@pytest.mark.parametrize(
    "stored",
    [{}, {"link": 1}, {"link": -1, "ledger": 0, "entry": 0}, {"17": 5}, {"link": True}, MISCOUNTED],
)
def test_malformed_positions_are_refused(stored: dict[str, object]) -> None:
    with pytest.raises(OffsetError):
        ChainPosition.of_json(stored)


@pytest.mark.parametrize("stored", [{"a": 1}, {"1": -1}, {"1": "2"}, {"-1": 2}])
def test_malformed_offsets_are_refused(stored: dict[str, object]) -> None:
    with pytest.raises(OffsetError):
        ledger_offsets_of(stored)


def test_ranges_of_a_batch_query() -> None:
    known = [closed(1, 10), closed(2, 0), closed(3, 5)]
    ranges = list(starts_and_ends(known, '{"1": 4}', '{"1": 6, "3": 99}'))
    found = [(range_.ledger_id, range_.first, range_.last) for range_ in ranges]
    assert found == [(1, 4, 5), (3, 0, 98)], "an end that is given is not clipped"
    assert len(list(starts_and_ends(known, "earliest", "latest"))) == 2


def test_identities_in_options_of_a_batch_query() -> None:
    known = [EntryRange(1, 0, 9, 100.0, creation_token=b"\x05")]
    same = '{"1": 4, "$ids": {"1": "05"}}'
    assert [(end.first, end.last) for end in starts_and_ends(known, same, same)] == []
    ranges = list(starts_and_ends(known, same, "latest"))
    assert [(range_.first, range_.creation_token) for range_ in ranges] == [(4, b"\x05")]
    other = same.replace("05", "06")
    for starting, ending, option in ((other, "latest", "starting"), ("earliest", other, "ending")):
        with pytest.raises(OptionError, match=rf"{option}Offsets.*names another ledger '1'"):
            starts_and_ends(known, starting, ending)


@pytest.mark.parametrize("text", ["now", "{", "[1]", '{"9": 1}', "7"])
def test_invalid_start_positions_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="startingOffsets"):
        starts_and_ends([closed(1, 10)], text, "latest")


@pytest.mark.parametrize(
    ("starting", "ending"),
    [
        ("earliest", "latest"),
        ("earliest", '{"7": 0}'),
        ('{"7": 5}', '{"7": 5}'),
        ('{"7": 5}', '{"8": 1}'),
        ('{"7": 5, "$ids": {"7": "ab"}}', '{"7": 6}'),
    ],
)
def test_bounds_of_a_batch_query(starting: str, ending: str) -> None:
    check_bounds(starting, ending)


@pytest.mark.parametrize(
    ("starting", "ending", "said"),
    [
        ('{"7": 5}', '{"7": 4}', "entry 4 of ledger 7 is before its start, entry 5"),
        ("latest", "latest", "'startingOffsets'.*'latest' is neither 'earliest' nor offsets"),
        ("earliest", "earliest", "'endingOffsets'.*'earliest' is neither 'latest' nor offsets"),
        ('{"7": -1}', "latest", "is neither"),
        ("[7]", "latest", "is neither"),
    ],
)
def test_bounds_that_cannot_be_meant_are_refused(starting: str, ending: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        check_bounds(starting, ending)
