"""`quire cluster if-lost`: what the loss of some bookies would take from the ledgers.

Leaves counting copies to `quire.operate.copy_counts`.
"""

import argparse
from collections import Counter
from typing import Final

from ledger_client.cluster_access import Cluster, open_cluster
from metadata.errors import MetadataFormatError
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.repair.lifecycle import UNCHANGED, Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.cli.progress import each_ledger
from quire.errors import ExitCode
from quire.operate.bookie_changes import NoSuchBookieError
from quire.operate.copy_counts import Loss, fewest_copies, loss_of
from quire.operate.fields import Json

LEDGERS_SHOWN_MAX: Final = 100
DATA_AT_RISK: Final = (Loss.UNREADABLE, Loss.MAY_BE_UNREADABLE)


class _Losses:
    """Ledgers that would lack copies, counted by what they would lack."""

    def __init__(self) -> None:
        self.ledgers: Counter[Loss] = Counter()
        self.closed_bytes: Counter[Loss] = Counter()
        self.unreadable_records = 0
        self.shown: dict[Loss, list[dict[str, Json]]] = {each: [] for each in Loss}

    def add(self, ledger: LedgerMetadata, loss: Loss, first_entry_id: int) -> None:
        """Count one ledger."""
        self.ledgers[loss] += 1
        self.closed_bytes[loss] += ledger.length or 0
        if len(self.shown[loss]) < LEDGERS_SHOWN_MAX:
            row: dict[str, Json] = {
                "ledger": ledger.ledger_id,
                "state": str(ledger.state),
                "bytes": ledger.length,
                "loss": str(loss),
                "from_entry": first_entry_id,
            }
            self.shown[loss].append(row)

    @property
    def rows(self) -> list[dict[str, Json]]:
        """Ledgers to show, the worst losses first."""
        return [row for each in Loss for row in self.shown[each]][:LEDGERS_SHOWN_MAX]


async def show_loss(arguments: argparse.Namespace, output: Output) -> int:
    """Print what would be lost with the given bookies, besides those that are down already."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        known = await cluster.cookies.list_bookie_ids()
        unknown = [each for each in arguments.bookies if each not in known]
        if unknown:
            raise NoSuchBookieError(unknown[0])
        lost = dict.fromkeys(BookieId(each) for each in arguments.bookies)
        states = await LifecycleStore(cluster.store, cluster.rng).get_all()
        down = [
            each
            for each in known
            if each not in cluster.directory.bookies
            and states.get(each, UNCHANGED).state is not Lifecycle.REMOVED
        ]
        left = [each for each in cluster.directory.bookies if each not in lost]
        in_limbo = [e.bookie_id for e in cluster.directory.bookies.values() if e.is_in_limbo]
        losses = await _losses(cluster, left, in_limbo, output)
    row: dict[str, Json] = {
        "if_lost": list(lost),
        "down_already": [each for each in down if each not in lost],
        "bookies_left": len(left),
    }
    for each in Loss:
        row[f"{each.name.lower()}_ledgers"] = losses.ledgers[each]
        row[f"{each.name.lower()}_closed_bytes"] = losses.closed_bytes[each]
    row["ledgers_not_read"] = losses.unreadable_records
    _print(row, losses, output)
    is_at_risk = any(losses.ledgers[each] for each in DATA_AT_RISK) or losses.unreadable_records
    return ExitCode.FINDINGS if is_at_risk else ExitCode.DONE


async def _losses(
    cluster: Cluster, up: list[BookieId], in_limbo: list[BookieId], output: Output
) -> _Losses:
    losses = _Losses()
    async for _, ledger in each_ledger(cluster, output):
        if isinstance(ledger, MetadataFormatError):
            losses.unreadable_records += 1
            continue
        copies = fewest_copies(ledger, up, in_limbo)
        loss = None if copies is None else loss_of(copies)
        if copies is not None and loss is not None:
            losses.add(ledger, loss, copies.first_entry_id)
    return losses


def _print(row: dict[str, Json], losses: _Losses, output: Output) -> None:
    if output.as_json:
        output.record(row | {"ledgers": list(losses.rows)})
        return
    output.record(row)
    if losses.rows:
        output.line("")
        with output.listing("ledger", "state", "bytes", "loss", "from_entry") as listing:
            for each in losses.rows:
                listing.add(each)
    hidden = sum(losses.ledgers.values()) - len(losses.rows)
    if hidden:
        output.remark(f"and {hidden} more ledgers")
