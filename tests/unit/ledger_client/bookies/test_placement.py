"""Placement finds distinct, writable bookies, spreads over racks if possible, and explains a
shortage.
"""

import asyncio
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ledger_client.bookies.placement import Placement, Quarantine, Shortage, SpreadPolicy
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import QuorumSpec
from metadata.registry.registration import BookieRegistration
from quire.server.overriding import override
from tests.until import until

Bookies = dict[BookieId, BookieRegistration]


def bookie(
    number: int, rack: int = 0, *, free: int = 100, weight: float = 1.0, writable: bool = True
) -> BookieRegistration:
    return BookieRegistration(
        BookieId(f"bookie-{number:03}"),
        "host",
        1000 + number,
        location=f"/region/rack-{rack}/host-{number}",
        capacity_bytes=1000,
        free_bytes=free,
        weight=weight,
        writable=writable,
    )


def by_id(*registrations: BookieRegistration) -> Bookies:
    return {registration.bookie_id: registration for registration in registrations}


def racks_of_write_sets(
    quorum: QuorumSpec, ensemble: tuple[BookieId, ...], bookies: Bookies
) -> list[int]:
    size = quorum.ensemble_size
    racks = [bookies[each].place.rack for each in ensemble]
    return [
        len({racks[(start + i) % size] for i in range(quorum.write_quorum)})
        for start in range(size)
    ]


@st.composite
def quorums(draw: st.DrawFn) -> QuorumSpec:
    size = draw(st.integers(1, 6))
    write = draw(st.integers(1, size))
    return QuorumSpec(size, write, draw(st.integers(1, write)))


@st.composite
def clusters(draw: st.DrawFn) -> Bookies:
    shapes = draw(
        st.lists(
            st.tuples(st.integers(0, 4), st.integers(0, 10**12), st.booleans(), st.floats(0, 4)),
            max_size=12,
        )
    )
    return by_id(
        *(
            bookie(number, rack, free=free, writable=writable, weight=weight)
            for number, (rack, free, writable, weight) in enumerate(shapes)
        )
    )


policies = st.builds(SpreadPolicy, by_racks=st.booleans(), by_free_disk=st.booleans())


@given(quorums(), clusters(), policies, st.data())
def test_an_ensemble_is_found_exactly_when_there_are_enough(
    quorum: QuorumSpec, bookies: Bookies, policy: SpreadPolicy, data: st.DataObject
) -> None:
    names = st.sampled_from(sorted(bookies)) if bookies else st.nothing()
    excluded = dict.fromkeys(data.draw(st.lists(names, unique=True)), "a test says so")
    usable = [
        i for i, registration in bookies.items() if registration.writable and i not in excluded
    ]
    chosen = policy.new_ensemble(quorum, bookies, excluded, Random(1))
    if isinstance(chosen, Shortage):
        assert len(usable) < quorum.ensemble_size
        assert (chosen.needed, chosen.seen) == (quorum.ensemble_size, len(usable))
        assert sorted(chosen.excluded) == sorted(i for i in bookies if i not in usable)
    else:
        assert len(set(chosen)) == quorum.ensemble_size == len(chosen)
        assert all(each in usable for each in chosen)
    assert policy.new_ensemble(quorum, bookies, excluded, Random(1)) == chosen


@given(quorums(), clusters(), policies, st.data())
def test_replacements_are_other_bookies(
    quorum: QuorumSpec, bookies: Bookies, policy: SpreadPolicy, data: st.DataObject
) -> None:
    ensemble = policy.new_ensemble(quorum, bookies, {}, Random(1))
    assume(not isinstance(ensemble, Shortage))
    assert not isinstance(ensemble, Shortage)
    positions = frozenset(data.draw(st.sets(st.integers(0, quorum.ensemble_size - 1), min_size=1)))
    spares = [
        i for i, registration in bookies.items() if registration.writable and i not in ensemble
    ]
    found = policy.replacements(quorum, ensemble, positions, bookies, {}, Random(2))
    if isinstance(found, Shortage):
        assert len(spares) < len(positions)
    else:
        assert list(found) == sorted(positions)
        assert len(set(found.values())) == len(positions)
        assert all(each in spares for each in found.values())


@given(quorums(), st.integers(1, 6), st.integers(0, 2**32))
def test_with_enough_racks_every_write_set_is_spread(
    quorum: QuorumSpec, per_rack: int, seed: int
) -> None:
    rack_count = quorum.ensemble_size
    bookies = by_id(*(bookie(n, n % rack_count) for n in range(rack_count * per_rack)))
    chosen = SpreadPolicy().new_ensemble(quorum, bookies, {}, Random(seed))
    assert not isinstance(chosen, Shortage)
    assert racks_of_write_sets(quorum, chosen, bookies) == [quorum.write_quorum] * rack_count


@pytest.mark.parametrize("seed", range(20))
def test_two_racks_are_used_where_there_are_two(seed: int) -> None:
    bookies = by_id(*(bookie(n, int(n >= 5)) for n in range(6)))
    for quorum in (QuorumSpec(3, 3, 2), QuorumSpec(4, 4, 3)):
        chosen = SpreadPolicy().new_ensemble(quorum, bookies, {}, Random(seed))
        assert not isinstance(chosen, Shortage)
        assert min(racks_of_write_sets(quorum, chosen, bookies)) == 2


@given(quorums(), clusters(), st.integers(1, 3), st.integers(0, 2**32))
def test_the_hard_rule_holds(quorum: QuorumSpec, bookies: Bookies, racks: int, seed: int) -> None:
    policy = SpreadPolicy(min_racks_per_write_quorum=racks)
    chosen = policy.new_ensemble(quorum, bookies, {}, Random(seed))
    if not isinstance(chosen, Shortage):
        assert min(racks_of_write_sets(quorum, chosen, bookies)) >= racks


def test_a_shortage_names_the_hard_rule() -> None:
    bookies = by_id(*(bookie(n, 0) for n in range(5)))
    policy = SpreadPolicy(min_racks_per_write_quorum=2)
    chosen = policy.new_ensemble(QuorumSpec(3, 2, 2), bookies, {}, Random(1))
    assert isinstance(chosen, Shortage)
    assert (chosen.needed, chosen.seen) == (3, 5)
    assert "at least 2 racks" in chosen.rule


def test_a_replacement_keeps_the_racks_apart() -> None:
    bookies = by_id(bookie(0, 0), bookie(1, 1), bookie(2, 2), bookie(3, 0), bookie(4, 2))
    ensemble = (BookieId("bookie-000"), BookieId("bookie-001"), BookieId("bookie-002"))
    for seed in range(20):
        found = SpreadPolicy().replacements(
            QuorumSpec(3, 3, 2), ensemble, frozenset({2}), bookies, {}, Random(seed)
        )
        assert found == {2: "bookie-004"}


def test_load_follows_free_disk_and_weight() -> None:
    bookies = by_id(bookie(0, free=100), bookie(1, free=300), bookie(2, free=100, weight=0.1))
    rng, one = Random(5), QuorumSpec(1, 1, 1)
    counts = dict.fromkeys(bookies, 0)
    for _ in range(4000):
        chosen = SpreadPolicy().new_ensemble(one, bookies, {}, rng)
        assert not isinstance(chosen, Shortage)
        counts[chosen[0]] += 1
    small, large, light = (counts[count] for count in sorted(counts))
    assert 2.3 < large / small < 3.9
    assert small > 5 * light


def test_a_search_without_a_solution_ends() -> None:
    # 40 bookies in 20 racks, but the members that stay already break the rule.
    bookies = by_id(*(bookie(n, 0 if n < 8 else n) for n in range(40)))
    ensemble = tuple(sorted(bookies)[:8])
    policy = SpreadPolicy(min_racks_per_write_quorum=5)
    found = policy.replacements(
        QuorumSpec(8, 5, 3), ensemble, frozenset({0}), bookies, {}, Random(1)
    )
    assert isinstance(found, Shortage)


class Up:
    def __init__(self, bookies: Bookies) -> None:
        self.bookies = bookies

    async def refresh(self) -> None:
        return  # the live bookies are all known already


async def test_quarantined_bookies_are_the_last_resort() -> None:
    bookies = by_id(*(bookie(n) for n in range(4)))
    quarantine = Quarantine(longest_s=60)
    placement = Placement(Up(bookies), quarantine, Random(1))
    quarantine.record_failure(BookieId("bookie-000"), "refused", asyncio.get_running_loop().time())
    three = QuorumSpec(3, 2, 2)
    for _ in range(20):
        chosen = placement.new_ensemble(three)
        assert not isinstance(chosen, Shortage)
        assert "bookie-000" not in chosen
    rest = tuple(each for each in sorted(bookies) if each != "bookie-000")
    assert not placement.has_spare(rest)
    assert placement.replacements(three, rest, frozenset({1})) == {1: "bookie-000"}
    why = {BookieId("bookie-000"): "it failed"}
    short = placement.replacements(three, rest, frozenset({1}), excluded=why)
    assert isinstance(short, Shortage)
    assert short.excluded[BookieId("bookie-000")] == "it failed"


async def test_a_refresh_begins_a_read_after_its_call() -> None:
    """Callers that wait at the same time share it, but not the one that was under way before."""
    began, may_end = list[asyncio.Event](), asyncio.Event()

    class Reads(Up):
        @override
        async def refresh(self) -> None:
            began.append(may_end)
            await may_end.wait()

    placement = Placement(Reads({}), Quarantine(longest_s=60), Random(1))
    first = asyncio.create_task(placement.refresh())
    await until(lambda: len(began) == 1)
    later = [asyncio.create_task(placement.refresh()) for _ in range(3)]
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.gather(first, *later)
    assert len(began) == 2


async def test_a_spare_is_writable_and_outside() -> None:
    bookies = by_id(bookie(0), bookie(1), bookie(2, writable=False))
    placement = Placement(Up(bookies), Quarantine(longest_s=60), Random(1))
    first, second = BookieId("bookie-000"), BookieId("bookie-001")
    assert not placement.has_spare((first, second))
    assert placement.has_spare((first,))
    assert not placement.has_spare((first,), excluded={second: "it failed"})


async def test_as_many_are_replaced_as_there_are_spares_for() -> None:
    bookies = by_id(*(bookie(n) for n in range(4)))
    placement = Placement(Up(bookies), Quarantine(longest_s=60), Random(1))
    ensemble = tuple(BookieId(f"bookie-{n:03}") for n in range(3))
    three = QuorumSpec(3, 3, 2)
    assert placement.most_replacements(three, ensemble, (1, 2)) == {1: "bookie-003"}
    why = {BookieId("bookie-003"): "it failed"}
    short = placement.most_replacements(three, ensemble, (1, 2), why)
    assert isinstance(short, Shortage)
    assert short.needed == 2
