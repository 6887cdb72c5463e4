"""Starts an appender as a process of its own, and checks at the end what it was told.

Leaves what it does to `appender`, and the check to `tests.campaign.checker`.
"""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

from tests.campaign.checker import CheckReport, check_campaign
from tests.campaign.history import History
from tests.campaign.writing_process import WritingProcess, writing_process

MODULE: Final = "tests.integration.faults.appender"
SEED: Final = 77


def appending(
    uri: str, directory: Path, *, ensemble: int = 3, ack: int = 2
) -> AbstractAsyncContextManager[WritingProcess]:
    """Start an appender; kill it at the end of the block if it still runs."""
    return writing_process(MODULE, uri, directory, "appender", SEED, ensemble=ensemble, ack=ack)


async def check_kept(uri: str, history: History) -> CheckReport:
    """Read everything twice, and require that every promise was kept; recovers what is open."""
    report = await check_campaign(uri, history, SEED, None, lambda _: None)
    assert report.violations == []
    assert history.complaints == []
    return report
