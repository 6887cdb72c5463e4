"""Traces of the copies that repair makes."""

from ledger_client import Quorum
from metadata.repair.lifecycle import Lifecycle
from quire.tracing.spans import BOOKIE, FIRST_ENTRY, LEDGER
from tests.support.repair.repair_world import World, play
from tests.support.repair.replicas import end
from tests.support.tracing.kept_spans import kept_spans


def test_each_copy_is_a_span() -> None:
    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1, Quorum(ensemble=2, write=2, ack=2))
        lost, stayed = world.ledger(ledger_id).fragments[0].ensemble
        end(world, lost)
        await world.wait_for_state(lost, Lifecycle.LOST)
        assert await world.wait(lambda: lost not in world.ledger(ledger_id).fragments[0].ensemble)
        ensemble = world.ledger(ledger_id).fragments[0].ensemble
        (target,) = [bookie for bookie in ensemble if bookie != stayed]
        copies = [attributes for name, _, attributes, _, _ in kept.ended if name == "repair.copy"]
        assert copies == [{LEDGER: ledger_id, FIRST_ENTRY: 0, BOOKIE: target}]

    with kept_spans() as kept:
        play(story, bookies=4)
