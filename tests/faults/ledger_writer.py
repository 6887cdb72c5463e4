"""Process that writes one ledger after the other with small entries, and reports each append.

    python -m tests.faults.ledger_writer --uri zk://... --history FILE --seed N --ack 2

A ledger that fails (it was fenced, or its bookies are gone) is reported as failed and left for
others to recover; the next one is started. Leaves filling a ledger to
`tests.integration.faults.appender`, and judging to the campaigns. On SIGTERM it closes its ledger
and ends.
"""

import argparse
import asyncio
import signal
from pathlib import Path
from typing import Final

from ledger_client import ClientConfig, LedgerClient, LedgerError, Quorum
from tests.campaign.history import HistoryFile
from tests.campaign.orphans import end_with_parent
from tests.integration.faults.appender import Appender

MODULE: Final = "tests.faults.ledger_writer"
RETRY_S: Final = 0.2
PAUSE_S: Final = 0.05


async def _write_ledgers(given: argparse.Namespace) -> None:
    end_with_parent()
    loop = asyncio.get_running_loop()
    stopping, is_full = asyncio.Event(), asyncio.Event()

    def stop() -> None:
        stopping.set()
        is_full.set()

    loop.add_signal_handler(signal.SIGTERM, stop)
    quorum = Quorum(given.ensemble, given.write, given.ack)
    config = ClientConfig(
        metadata_timeout_s=given.metadata_timeout_s, session_timeout_s=given.session_timeout_s
    )
    file = HistoryFile(given.history)
    async with LedgerClient(given.uri, config=config, on_event=file.tell_change) as client:
        appender = Appender(file, given.seed)
        while not stopping.is_set():
            is_full.clear()
            end = loop.call_later(given.ledger_s, is_full.set)
            try:
                await appender.run(client, quorum, is_full)
            except LedgerError as error:  # there is no ledger yet
                file.tell("failed", ledger=-1, error=type(error).__name__, text=str(error))
                await asyncio.sleep(RETRY_S)
            end.cancel()
            if not is_full.is_set():
                await asyncio.sleep(PAUSE_S)  # it failed, and its bookies may be gone for a while


def main() -> None:
    """Run until SIGTERM."""
    defaults = ClientConfig()
    parser = argparse.ArgumentParser()
    parser.add_argument("--uri", required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--ensemble", type=int, default=3)
    parser.add_argument("--write", type=int, default=3)
    parser.add_argument("--ack", type=int, default=2)
    parser.add_argument("--ledger-s", type=float, default=3600.0, help="close each after this time")
    parser.add_argument("--metadata-timeout-s", type=float, default=defaults.metadata_timeout_s)
    parser.add_argument("--session-timeout-s", type=float, default=defaults.session_timeout_s)
    asyncio.run(_write_ledgers(parser.parse_args()))


if __name__ == "__main__":
    main()
