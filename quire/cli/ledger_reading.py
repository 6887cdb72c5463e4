"""Reading of every ledger's metadata, with progress, for commands about the complete cluster.

Leaves what is counted to the commands.
"""

from collections.abc import AsyncIterator

from ledger_client.cluster_access import Cluster
from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ids import LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from quire.cli.output import Output
from quire.cli.progress import Progress


async def each_ledger(
    cluster: Cluster, output: Output
) -> AsyncIterator[tuple[LedgerId, LedgerMetadata | MetadataFormatError]]:
    """Yield each ledger's metadata, or the error of a record that cannot be read. Skips ledgers
    that are deleted meanwhile.
    """
    with Progress(output, "checked", "ledgers") as progress:
        async for ledger_id in cluster.ledgers.list_ledger_ids():
            progress.advance(1)
            try:
                ledger, _ = await cluster.ledgers.get(ledger_id)
            except NodeNotFoundError:
                continue
            except MetadataFormatError as error:
                yield ledger_id, error
            else:
                yield ledger_id, ledger
