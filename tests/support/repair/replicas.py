"""Copies of a ledger in a story: which are absent, and whether one bookie alone has them all."""

from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from tests.simulation.model import fragment_of, write_set
from tests.support.repair.repair_world import World


def end(world: World, *bookie_ids: str) -> None:
    """End bookies for good."""
    for bookie_id in bookie_ids:
        world.bookie(bookie_id).is_wanted = False
        world.bookie(bookie_id).kill(power_off=True)


def start_again(world: World, *bookie_ids: str) -> None:
    """Start bookies that were ended."""
    for bookie_id in bookie_ids:
        world.bookie(bookie_id).is_wanted = True
        world.bookie(bookie_id).start()


def lacks(world: World, ledger: LedgerMetadata) -> dict[str, list[int]]:
    """Return the entries that the members of a ledger never acknowledged."""
    model, found = world.cluster.model, dict[str, list[int]]()
    for entry_id in range((ledger.last_entry_id or 0) + 1):
        wanted = write_set(ledger, fragment_of(ledger, entry_id), entry_id)
        held = model.copies(model.ledger(ledger.ledger_id), ledger, entry_id)
        for bookie_id in wanted:
            if bookie_id not in held:
                found.setdefault(bookie_id, []).append(entry_id)
    return found


def check_whole(world: World, ledger_id: int) -> None:
    """Check that every member has acknowledged its entries, that no mark is left, and that no
    bookie became a member before it had its entries.
    """
    ledger = world.ledger(ledger_id)
    assert lacks(world, ledger) == {}
    assert not any(fragment.incoming for fragment in ledger.fragments), "no mark is left"
    assert not [
        violation for violation in world.cluster.model.violations if violation.checker == "swaps"
    ]


async def read_from_one(world: World, ledger_id: int, bookie_id: str) -> None:
    """Check that one member has all entries of a ledger of `World.write(1)`: end all others."""
    others = {
        bookie for fragment in world.ledger(ledger_id).fragments for bookie in fragment.ensemble
    }
    end(world, *sorted(others - {BookieId(bookie_id)}))
    await world.read([ledger_id])
