"""What the throttle of a copy learns (rule 9.3)."""

from collections import Counter

from metadata.ids import BookieId
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
