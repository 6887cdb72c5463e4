"""Commands of an operator in a campaign: `quire`, and what `quire repair status` reads.

Leaves what to do with the answers to `losses` and `world`.

Invariant: a command that could not reach the cluster is given again, because ZooKeeper may have a
fault.
"""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from typing import Any, Final

from ledger_client import LedgerError
from ledger_client.cluster_access import open_cluster
from metadata.errors import MetadataError
from metadata.ids import BookieId
from metadata.repair.lifecycle import UNCHANGED, Lifecycle
from quire.errors import ExitCode
from quire.operate.repair import RepairSummary, read_summary
from quire.repair.needs import RepairClass
from tests.campaign.repair.restoration import Left

TRIES_MAX: Final = 10
RETRY_S: Final = 2.0
COMMAND_S_MAX: Final = 120.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a command."""

    status: int
    rows: list[dict[str, Any]]
    error: str

    @property
    def row(self) -> dict[str, Any]:
        """The only row, or an empty one if it printed none."""
        return self.rows[0] if self.rows else {}


class Commands:
    """Commands for one cluster."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    async def quire(self, *words: str) -> Answer:
        """Run `quire` with these words, until the cluster answers."""
        for tries_left in reversed(range(TRIES_MAX)):
            answer = await self._once(*words)
            if answer.status != ExitCode.UNAVAILABLE or not tries_left:
                return answer
            await asyncio.sleep(RETRY_S)
        raise AssertionError("the last try returns")

    async def summary(self) -> RepairSummary | None:
        """Read what `quire repair status` prints; None if the cluster does not answer."""
        try:
            async with open_cluster(self._uri) as cluster:
                return await read_summary(cluster)
        except (MetadataError, LedgerError):
            return None

    async def _once(self, *words: str) -> Answer:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "quire.cli.main", *words),
            *("--metadata", self._uri, "--json"),
            stdout=PIPE,
            stderr=PIPE,
        )
        try:
            async with asyncio.timeout(COMMAND_S_MAX):
                output, error = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return Answer(ExitCode.DEFECT, [], f"no end within {COMMAND_S_MAX:.0f} s")
        assert process.returncode is not None, "it has ended"
        found = json.loads(output) if output.strip() else []
        rows = found if isinstance(found, list) else [found]
        return Answer(process.returncode, rows, error.decode().strip())


def left_of(summary: RepairSummary, bookie_id: str, wanted: Lifecycle) -> Left | None:
    """Return what is left to repair once a bookie is in a state; None before the first audit."""
    status = summary.status
    if summary.auditor_id is None or status is None or status.audited_ms is None:
        return None
    record = summary.lifecycles.get(BookieId(bookie_id), UNCHANGED)
    return Left(
        is_noticed=record.state is wanted,
        ledgers=sum(total.ledgers for total in status.totals if total.urgency != RepairClass.LOST),
        bytes_left=status.bytes_left,
        blocked=sum(total.ledgers for total in status.blocked),
    )
