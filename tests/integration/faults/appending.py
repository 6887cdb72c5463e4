"""Start of an appender as a separate process, and the check of its history at the end.

Leaves the appends to `appender`, and the check to `tests.campaign.checker`; it also checks ledgers
that a test wrote itself.
"""

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

from ledger_client import LedgerClient
from tests.campaign.checker import Checker, CheckReport, check_campaign
from tests.campaign.direct import open_direct
from tests.campaign.history import AckedRange, History, LedgerHistory
from tests.campaign.payloads import digest_of_payloads
from tests.campaign.writing_process import WritingProcess, writing_process

MODULE: Final = "tests.integration.faults.appender"
SEED: Final = 77


def appending(
    uri: str, directory: Path, *, ensemble: int = 3, ack: int = 2
) -> AbstractAsyncContextManager[WritingProcess]:
    """Start an appender; kill it at the end of the block if it still runs."""
    return writing_process(MODULE, uri, directory, "appender", SEED, ensemble=ensemble, ack=ack)


async def check_kept(uri: str, history: History) -> CheckReport:
    """Read all ledgers twice, and require that every guarantee was kept; recovers open ledgers."""
    report = await check_campaign(uri, history, SEED, None, lambda _: None)
    assert not report.violations, report.violations
    assert not history.complaints, history.complaints
    return report


async def check_told(
    uri: str, ledger_id: int, payloads: Sequence[bytes], gone: Collection[str] = ()
) -> None:
    """Read a ledger, and every copy of it on bookies that are not gone.

    Require that its entries are the given ones, which were all acknowledged. Recovers an open
    ledger.
    """
    last = len(payloads) - 1
    told = LedgerHistory(ledger_id, end_last=last)
    told.acked.append(AckedRange(0, last, digest_of_payloads(payloads)))

    def make(_: int, entry_id: int) -> bytes | None:
        return payloads[entry_id] if entry_id <= last else None

    async with LedgerClient(uri) as client, open_direct(uri) as direct:
        checker = Checker(client, direct, make, gone)
        await checker.check(told, None)
    assert not checker.report.violations, checker.report.violations
    assert checker.report.copies_read >= len(payloads)
