"""Campaign: a writer is paused, another process closes its ledger, and the writer resumes.

Leaves the writer to `ledger_writer`. Every cycle checks that nothing was acknowledged after the end
that the other process stored. `tests.campaign.checker` checks all bytes of every ledger after a
number of cycles.
Source: protocol rules 4.2, 7.
"""

import asyncio
import shutil
from pathlib import Path
from random import Random
from typing import Final

from ledger_client import LedgerClient, LedgerInfo
from quire.local_cluster import LocalCluster
from tests.campaign.checker import check_campaign
from tests.campaign.history import History, LedgerHistory
from tests.campaign.writing_process import WritingProcess, writing_process
from tests.faults.budget import Budget, Summary
from tests.faults.children import make_directory
from tests.faults.ledger_writer import MODULE

CYCLES_SMALL: Final = 10
CYCLES_FULL: Final = 1_000
CYCLES_OF_A_WRITER: Final = 100
BOOKIES: Final = 5
QUORUMS: Final = ((3, 3, 2), (3, 3, 3), (5, 3, 2))
WRITING_S_MAX: Final = 0.12
PAUSED_S_MAX: Final = 0.05
EARLY_SHARE: Final = 0.2
"""Share of cycles in which the writer resumes during the recovery."""
BOOKIE_TOO_SHARE: Final = 0.2
"""Share of cycles that also pause a bookie: adds wait in its socket while others are fenced."""
LEDGERS_CHECKED_MAX: Final = 25


class PauseFenceResume:
    """One campaign that runs."""

    def __init__(self, budget: Budget, directory: Path) -> None:
        wanted = budget.cycles(small=CYCLES_SMALL, full=CYCLES_FULL)
        self.summary = Summary("pause_fence_resume", budget, wanted)
        self._rng = Random(f"pause fence resume {budget.seed}")
        self._directory = directory

    async def run(self) -> None:
        """Run all cycles on one cluster."""
        async with (
            LocalCluster(BOOKIES, self._directory / "cluster") as cluster,
            LedgerClient(cluster.metadata_uri) as other,
        ):
            while self.summary.is_wanting():
                await self._use_one_writer(cluster, other)

    async def _use_one_writer(self, cluster: LocalCluster, other: LedgerClient) -> None:
        summary, seed = self.summary, self._rng.randrange(2**32)
        quorum = QUORUMS[self._rng.randrange(len(QUORUMS))]
        options = dict(zip(("ensemble", "write", "ack"), quorum, strict=True))
        name, uri = f"writer-{summary.cycles}", cluster.metadata_uri
        async with writing_process(MODULE, uri, self._directory, name, seed, **options) as writer:
            first = summary.cycles
            while summary.is_wanting() and summary.cycles < first + CYCLES_OF_A_WRITER:
                await self._do_cycle(cluster, other, writer)
                summary.cycles += 1
            history = await writer.stop()
        summary.counts["acknowledged entries"] += history.acked_count
        for name, count in history.failures.items():
            summary.counts[f"writer told {name}"] += count
        summary.violations += history.complaints
        checked = History(dict(list(history.ledgers.items())[-LEDGERS_CHECKED_MAX:]))
        report = await check_campaign(uri, checked, seed, None, lambda _: None)
        summary.counts["ledgers read whole"] += len(checked.ledgers)
        summary.counts["copies read"] += report.copies_read
        summary.violations += [
            f"{violation.kind}: {violation.text}" for violation in report.violations
        ]

    async def _do_cycle(
        self, cluster: LocalCluster, other: LedgerClient, writer: WritingProcess
    ) -> None:
        """Take over one ledger."""
        rng, counts = self._rng, self.summary.counts
        await writer.wait_until(lambda history: bool(_current(history)))
        await asyncio.sleep(rng.uniform(0.0, WRITING_S_MAX))
        bookie = rng.choice(cluster.bookies) if rng.random() < BOOKIE_TOO_SHARE else None
        if bookie is not None:
            bookie.pause()
            counts["with a bookie stopped"] += 1
        ledger = _current(writer.history)
        assert ledger is not None, "it writes one ledger after another, and was waited for"
        writer.pause()
        try:
            info = await self._recover(other, ledger.ledger_id, writer)
        finally:
            writer.resume()
            if bookie is not None:
                bookie.resume()
        failures = writer.failure_count
        await writer.wait_until(
            lambda history: (
                _current(history) is not ledger or sum(history.failures.values()) > failures
            )
        )
        self._judge(info, writer.history.ledgers[ledger.ledger_id])

    async def _recover(
        self, other: LedgerClient, ledger_id: int, writer: WritingProcess
    ) -> LedgerInfo:
        if self._rng.random() < EARLY_SHARE:
            self.summary.counts["resumed during the recovery"] += 1
            recovery = asyncio.ensure_future(other.recover_ledger(ledger_id))
            await asyncio.sleep(self._rng.uniform(0.0, PAUSED_S_MAX))
            writer.resume()
            return await recovery
        info = await other.recover_ledger(ledger_id)
        await asyncio.sleep(self._rng.uniform(0.0, PAUSED_S_MAX))
        return info

    def _judge(self, info: LedgerInfo, ledger: LedgerHistory) -> None:
        last = max([ledger.lac, *(acked_range.last for acked_range in ledger.acked)])
        end = info.last_entry_id
        self.summary.counts["taken over after an acknowledgement"] += bool(ledger.acked)
        if end is None or last > end:
            text = f"ledger {ledger.ledger_id} was closed at {end}, and {last} is acknowledged"
            self.summary.violations.append(text)


def _current(history: History) -> LedgerHistory | None:
    """Return the ledger that the writer uses: the last that it made, unless that has failed."""
    if not history.ledgers:
        return None
    last = list(history.ledgers.values())[-1]
    return last if last.ended is None and len(history.ledgers) > _failed(history) else None


def _failed(history: History) -> int:
    return sum(history.failures.values())


def run(budget: Budget) -> Summary:
    """Run the campaign."""
    directory = make_directory("pause-fence-resume", in_memory=False)
    try:
        campaign = PauseFenceResume(budget, directory)
        asyncio.run(campaign.run())
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return campaign.summary
