"""What the throttle of a copy learns, and what a copy that waits learns of it (rule 9.3)."""

from collections import Counter

import pytest

from ledger_client.in_sync.copy_limits import RECHECK_S, CopyLimits, CopyThrottle
from metadata.ids import BookieId
from tests.simulation.loop import simulation_loop
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
