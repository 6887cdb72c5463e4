"""Check after healing: an in-sync ledger loses a member, and becomes complete again.

Leaves the definition of complete to `wholeness`.

Source: protocol rules 5.6, 9.1, 11.2, 11.3; invariants "every ledger back at WQ", "catch-up ends".
"""

import asyncio
from typing import Final

from typing_extensions import override

from ledger_client import LedgerWriter
from tests.simulation.checkers.progress import ProgressCheck, gets_on_without
from tests.simulation.checkers.wholeness import see_members_return
from tests.simulation.model import LedgerModel
from tests.simulation.nodes import BookieNode
from tests.simulation.workloads import read_all

AWAY_S: Final = (0.0, 0.5, 20.0)
"""Time that a bookie stays dead: short, or until a spare replaced it if there is one."""


class ReturnCheck(ProgressCheck):
    """One in-sync ledger that loses a member, and gets another one or the same one back."""

    @override
    async def run(self) -> None:
        """Run the check. Raises LedgerError for failures that may be retried."""
        dead: list[BookieNode] = []
        try:
            async with self._create() as writer:
                ledger = self._adopt(writer)
                await self._append(ledger, writer, dead)
                if self._quorum.ensemble > 1:
                    await self._lose_one(ledger, writer, dead)
                await see_members_return(self._cluster, ledger, writer)
                await self._append(ledger, writer, dead)
            count = await read_all(self._cluster, self._client, ledger)
            self._look_at_end(ledger, count)
        except TimeoutError as error:
            self._report(f"a ledger that lost a member did not get on: {error!r}")
        finally:
            await self._revive(dead)

    async def _lose_one(
        self, ledger: LedgerModel, writer: LedgerWriter, dead: list[BookieNode]
    ) -> None:
        """Kill a member while the writer is idle or busy, and restart it some time later.

        It may be the only member in sync: then appends would wait for its return.
        """
        bookie = self._kill_member(writer)
        dead.append(bookie)
        away_s = self._rng.choice(AWAY_S)
        quorum = self._quorum
        takes_appends = quorum.min_in_sync < quorum.ensemble and gets_on_without(
            quorum, writer.in_sync, bookie.bookie_id
        )
        if takes_appends and self._rng.random() < 0.5:
            await self._append(ledger, writer, dead)
        await asyncio.sleep(away_s)
        await self._revive(dead)
        dead.clear()

    def _look_at_end(self, ledger: LedgerModel, count: int) -> None:
        metadata = ledger.metadata
        if metadata is None or ledger.closed_at is None or count != ledger.closed_at + 1:
            self._report(f"{count} entries were read of a ledger that ends at {ledger.closed_at}")
        elif any(part.incoming for part in metadata.fragments):
            self._report(f"a mark stayed behind in {metadata.fragments}")
