"""A process that writes a ledger and kills itself: `python -m tests.spark.dying_writer ADDRESS`.

It prints the ledger's id first. All entries are acknowledged, and their LAC was not sent.
"""

import os
import signal
import sys
from typing import Final

from ledger_client import ClientConfig
from ledger_client.sync import LedgerClient
from tests.spark.conftest import SEEN_BY_ALL

ENTRIES: Final = 50
SESSION_S: Final = 2.0
CONFIG: Final = ClientConfig(
    lac_delay_s=600.0, session_timeout_s=SESSION_S, add_timeout_s=60.0, append_deadline_s=90.0
)


def main(metadata: str) -> None:
    """Write, and end without closing anything."""
    writer = LedgerClient(metadata, config=CONFIG).create_ledger(SEEN_BY_ALL)
    writer.append_many([b"entry %d" % number for number in range(ENTRIES)])
    sys.stdout.write(f"{writer.id}\n")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
