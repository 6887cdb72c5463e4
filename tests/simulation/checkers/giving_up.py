"""Beyond the budget: an in-sync ledger whose last members are lost is recovered uncleanly.

Leaves judging what it gives up to `unclean`. Here the last member loses its disk, or does not: then
nothing may be given up.

Source: protocol rule 11.6.
"""

import asyncio
from typing import Final

from typing_extensions import override

from ledger_client import LedgerWriter, RecoveryUndecidedError
from tests.simulation.checkers.progress import PROGRESS_S, ProgressCheck
from tests.simulation.disk import Platter
from tests.simulation.model import LedgerModel
from tests.simulation.nodes import BookieNode
from tests.simulation.workloads import read_all, recover

WIPED_SHARE: Final = 0.7
ALONE_S: Final = 15.0
"""How long a member that stays alone is waited for."""


class GiveUpCheck(ProgressCheck):
    """One in-sync ledger that comes to rest on one member, which may then lose its disk."""

    @override
    async def run(self) -> None:
        """Check it. Raises LedgerError for what may be tried again."""
        dead: list[BookieNode] = []
        writer = await self._create()
        ledger = self._adopt(writer)
        try:
            async with asyncio.timeout(4 * PROGRESS_S):
                await self._append(ledger, writer, dead)
                await self._leave_alone(ledger, writer, dead)
                if self._rng.random() < WIPED_SHARE:
                    self._wipe(writer)
                await self._recover(ledger)  # before those come back that the writer would take in
                await self._revive(dead)
                dead.clear()
                await self._recover(ledger)
        except TimeoutError as error:
            self._report(f"an unclean recovery did not end: {error!r}")
        finally:
            await self._revive(dead)

    async def _leave_alone(
        self, ledger: LedgerModel, writer: LedgerWriter, dead: list[BookieNode]
    ) -> None:
        """Kill all members but one, and append until it holds entries alone."""
        while len(writer.info.fragments[-1].ensemble) > 1:
            count = len(writer.info.fragments[-1].ensemble)
            dead.append(self._kill_member(writer))
            await self._cluster.wait_until(
                lambda count=count: len(writer.info.fragments[-1].ensemble) < count,  # type: ignore[misc]
                ALONE_S,
            )
            if len(writer.info.fragments[-1].ensemble) >= count:
                return  # a spare was quicker, or the one that is left does not answer
        await self._append(ledger, writer, dead)

    def _wipe(self, writer: LedgerWriter) -> None:
        """Let every member of the last fragment lose its disk."""
        members = writer.info.fragments[-1].ensemble
        for bookie in self._cluster.bookies:
            if bookie.bookie_id in members:
                self._cluster.damaged[bookie.host] = None
                bookie.kill(power_off=True)
                bookie.platter = Platter()
                bookie.wipes += 1
                bookie.start()

    async def _recover(self, ledger: LedgerModel) -> None:
        try:
            await recover(self._cluster, self._client, ledger, 2 * PROGRESS_S, is_unclean=True)
        except RecoveryUndecidedError:
            return  # no replica of the earlier fragments is up, or will ever be
        assert ledger.metadata is not None
        kept, given_up = ledger.metadata.fragments, ledger.metadata.given_up
        self._cluster.model.note("unclean", f"ledger {ledger.ledger_id}: {kept} {given_up}")
        count = await read_all(self._cluster, self._client, ledger)
        if ledger.closed_at is None or count != ledger.closed_at + 1:
            self._report(f"{count} entries were read behind an unclean close at {ledger.closed_at}")
