"""Check beyond the budget: an in-sync ledger that lost its last members is recovered uncleanly.

Leaves judging what it gives up to `unclean`. In some runs the last member keeps its disk: then
nothing may be given up. In others another member returns just before the last one loses its disk.

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
RETURNS_SHARE: Final = 0.5
ALONE_S: Final = 15.0
"""Time to wait for a member that stays alone, in seconds."""


class GiveUpCheck(ProgressCheck):
    """One in-sync ledger with one member left, which may then lose its disk."""

    @override
    async def run(self) -> None:
        """Run the check. Raises LedgerError for failures that may be retried."""
        dead: list[BookieNode] = []
        writer = await self._create()
        ledger = self._adopt(writer)
        try:
            async with asyncio.timeout(4 * PROGRESS_S):
                await self._append(ledger, writer, dead)
                await self._leave_alone(ledger, writer, dead)
                alone = writer.members
                if dead and self._rng.random() < RETURNS_SHARE:
                    await self._return_one(writer, dead)
                if self._rng.random() < WIPED_SHARE:
                    self._wipe(alone)
                # before the members return that the writer would add to the set
                await self._recover(ledger)
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
        """Kill all members but one, and append until only that one holds new entries."""
        while len(writer.info.fragments[-1].ensemble) > 1:
            count = len(writer.info.fragments[-1].ensemble)
            dead.append(self._kill_member(writer))
            await self._cluster.wait_until(
                lambda count=count: len(writer.info.fragments[-1].ensemble) < count,  # type: ignore[misc]
                ALONE_S,
            )
            if len(writer.info.fragments[-1].ensemble) >= count:
                return  # a spare was faster, or the remaining member does not answer
        await self._append(ledger, writer, dead)

    async def _return_one(self, writer: LedgerWriter, dead: list[BookieNode]) -> None:
        """Start a dead member, and wait until the writer adds it to the set, to catch up."""
        count = len(writer.members)
        bookie = dead.pop()
        bookie.is_on_purpose = False
        bookie.start()
        await self._cluster.wait_until(lambda: len(writer.members) > count, ALONE_S)

    def _wipe(self, members: tuple[str, ...]) -> None:
        """Wipe the disks of these members."""
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
        except RecoveryUndecidedError as error:
            assert ledger.metadata is not None
            earlier = [each for f in ledger.metadata.fragments[:-1] for each in f.ensemble]
            if any(map(self._cluster.is_sound, earlier)):
                self._report(
                    f"an unclean recovery does not close ledger {ledger.ledger_id}: {error}"
                )
            return  # no replica of the earlier fragments is up
        assert ledger.metadata is not None
        kept, given_up = ledger.metadata.fragments, ledger.metadata.given_up
        self._cluster.model.note("unclean", f"ledger {ledger.ledger_id}: {kept} {given_up}")
        count = await read_all(self._cluster, self._client, ledger)
        if ledger.closed_at is None or count != ledger.closed_at + 1:
            self._report(f"{count} entries were read behind an unclean close at {ledger.closed_at}")
