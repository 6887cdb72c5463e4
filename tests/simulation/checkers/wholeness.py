"""Check after healing: an in-sync ledger regains all its members, all of them in sync.

No mark of a copy remains, not even in a ledger without appends.

Source: protocol rules 5.6, 9.1, 11.2, 11.3; invariants "every ledger back at WQ", "catch-up ends".
"""

from collections.abc import Sequence
from typing import Final

from ledger_client import LedgerWriter
from metadata.ledgers.ledger_metadata import LedgerState
from tests.simulation.cluster import Cluster
from tests.simulation.model import LedgerModel, members_in_sync

NAME: Final = "wholeness"
UP_S: Final = 200.0
RETURN_S: Final = 300.0
"""More than the slowest copies of the largest ledgers, and every wait before them, in seconds."""


async def see_members_return(cluster: Cluster, ledger: LedgerModel, writer: LedgerWriter) -> None:
    """Wait until a ledger with an idle writer is complete or ended; report if it is neither."""
    await see_all_members_return(cluster, [(ledger, writer)])


async def see_all_members_return(
    cluster: Cluster, written: Sequence[tuple[LedgerModel, LedgerWriter]]
) -> None:
    """Do the same for many ledgers at once."""
    bookies = cluster.bookies
    is_up = await cluster.wait_until(lambda: all(each.is_serving for each in bookies), UP_S)
    if not is_up or cluster.damaged:
        return  # a bookie that may have lost fences accepts no adds: see protocol rule 2.4
    if await cluster.wait_until(lambda: all(_is_whole(*each) for each in written), RETURN_S):
        return
    for ledger, writer in written:
        if not _is_whole(ledger, writer):
            _report(cluster, ledger, writer)


def _report(cluster: Cluster, ledger: LedgerModel, writer: LedgerWriter) -> None:
    assert ledger.metadata is not None
    cluster.model.report(
        NAME,
        f"ledger {ledger.ledger_id} is not whole {RETURN_S} s after healing: its writer shows "
        f"{writer.in_sync}, stored is {ledger.metadata.quorum.ensemble_size}, "
        f"{ledger.metadata.fragments}",
    )


def _is_whole(ledger: LedgerModel, writer: LedgerWriter) -> bool:
    metadata = ledger.metadata
    if metadata is None or metadata.state is not LedgerState.OPEN:
        return True
    members = [str(each) for each in metadata.last_fragment.ensemble]
    return (
        len(members) == metadata.quorum.ensemble_size
        and members_in_sync(metadata) == members
        and sorted(writer.in_sync) == sorted(members)
        and not any(part.incoming for part in metadata.fragments)
    )
