"""What the throttle of a copy learns, and what a copy that waits learns of it (rule 9.3)."""

from collections import Counter

import pytest

from ledger_client.copying import (
    RECHECK_S,
    CopyLimits,
    CopyThrottle,
    wait_for_turn,
)
from metadata.ids import BookieId
from quire.server.overriding import override
from tests.simulation.loop import run_simulation, simulation_loop
from tests.support.ledger_client.copying_world import World, run, write


class NotedSources:
    """Throttle that notes who returned how much, and delays nothing."""

    def __init__(self) -> None:
        self.sizes = Counter[BookieId | None]()

    def take(self, size: int, now: float, source: BookieId | None) -> float:
        self.sizes[source] += size
        return 0.0

    def left_s(self, now: float) -> float:
        return 0.0


class WaitOfOneRecheck(NotedSources):
    """Throttle whose requests wait for exactly the longest time without a look at the limits."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    @override
    def take(self, size: int, now: float, source: BookieId | None) -> float:
        super().take(size, now, source)
        return RECHECK_S

    @override
    def left_s(self, now: float) -> float:
        self.looks += 1
        return 0.0


def test_a_wait_that_need_not_be_divided_does_not_look_at_the_limits() -> None:
    throttle = WaitOfOneRecheck()

    async def scenario() -> None:
        await wait_for_turn(throttle, 10, None)
        assert simulation_loop().time() == RECHECK_S

    run_simulation(scenario, 1)
    assert (throttle.sizes.total(), throttle.looks) == (10, 0)


def test_the_throttle_learns_which_bookie_returned_the_bytes() -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40)
        for entry_id in range(40):
            world.bookies.damage("a", entry_id)
        world.throttle = throttle = NotedSources()
        await world.copy()
        sent = sum(len(batch.data) for _, _, batch in world.bookies.adds)
        assert throttle.sizes.total() == sent
        assert set(throttle.sizes) <= {"b", "c"}, "what a returned was not used"

    run(scenario)


@pytest.mark.parametrize("raised", [None, 1_000_000.0])
def test_a_raised_limit_ends_the_waiting_of_copies_under_way(raised: float | None) -> None:
    async def scenario(world: World) -> None:
        write(world, 0, 40)
        world.throttle = throttle = CopyThrottle(0.01)
        simulation_loop().call_later(100.0, throttle.limit, raised)
        await world.copy()
        assert 100.0 < simulation_loop().time() < 100.0 + 2 * RECHECK_S

    run(scenario, limits=CopyLimits(64, 2))


def test_a_rate_that_was_much_too_low_delays_nothing_after_it_was_raised() -> None:
    throttle = CopyThrottle(1.0)
    assert [throttle.take(1_000, 10.0) for _ in range(2)] == [0.0, 1_000.0]
    throttle.limit(1_000.0)
    assert throttle.take(1_000, 10.0) == 2.0, "what was admitted passes at the new rate"
    throttle.limit(500.0)
    assert throttle.take(1_000, 11.0) == 2.0
    throttle.limit(None)
    assert throttle.take(1_000, 11.0) == 0.0
    throttle.limit(1_000.0)
    assert throttle.take(1_000, 13.0) == 1.0


def test_the_throttle_spaces_requests() -> None:
    throttle = CopyThrottle(100.0)
    assert [throttle.take(50, 10.0) for _ in range(3)] == [0.0, 0.5, 1.0]
    assert throttle.take(50, 11.0) == 0.5
    assert throttle.take(50, 100.0) == 0.0, "idle time is not saved up"
    assert throttle.take(50, 100.0) == 0.5
    assert [CopyThrottle(None).take(10**9, 0.0) for _ in range(2)] == [0.0, 0.0]


@pytest.mark.parametrize("bad", [{"requests_at_once": 0}, {"request_bytes_max": 0}])
def test_limits_are_positive(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        CopyLimits(**bad)  # type: ignore[arg-type]


def test_the_smallest_limits() -> None:
    least = CopyLimits(request_bytes_max=1, requests_at_once=1)
    assert (least.request_bytes_max, least.requests_at_once) == (1, 1)


def test_a_lower_rate_does_not_delay_what_was_admitted_before() -> None:
    throttle = CopyThrottle(100.0)
    throttle.take(1_000, 0.0)
    throttle.limit(10.0)
    assert [throttle.left_s(now) for now in (0.0, 0.0, 4.0)] == [10.0, 10.0, 6.0]


def test_a_higher_rate_counts_once_for_what_was_admitted_before() -> None:
    throttle = CopyThrottle(100.0)
    throttle.take(1_000, 0.0)
    throttle.limit(200.0)
    assert [throttle.left_s(now) for now in (2.0, 2.0, 5.0, 7.0)] == [4.0, 4.0, 1.0, 0.0]


def test_without_a_rate_nothing_is_left() -> None:
    throttle = CopyThrottle(None)
    assert (throttle.take(1_000, 0.0), throttle.left_s(0.0)) == (0.0, 0.0)
    throttle.limit(100.0)
    assert throttle.take(50, 0.0) == 0.0
    throttle.limit(None)
    assert throttle.left_s(0.0) == 0.0


@pytest.mark.parametrize("wait_s", [0.0, 0.25, 1.0, 3.5])
def test_a_request_waits_exactly_for_those_before_it(wait_s: float) -> None:
    """Later ones do not delay it."""

    async def main() -> float:
        loop = simulation_loop()
        throttle = CopyThrottle(1_000.0)
        throttle.take(int(1_000 * wait_s), 0.0)
        loop.call_later(0.5, lambda: throttle.take(1_000_000, loop.time()))
        await wait_for_turn(throttle, 10, None)
        return loop.time()

    assert run_simulation(main, 1, until_s=60) == pytest.approx(wait_s)
