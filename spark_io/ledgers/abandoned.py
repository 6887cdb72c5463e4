"""Open ledgers of a batch query whose writers are gone: a warning, or their recovery.

Leaves finding and recovering them to the ledger client, and how far a query reads to `batch`.

A writer that is killed leaves entries that it had acknowledged and that readers do not see, because
bookies do not know its last LAC. Only a recovery shows them, and it ends a writer that lives.

Invariants: one warning for each plan, with few ledgers; nothing is recovered without the option,
and never a ledger of a live writer.

Source: protocol rules 8.1 and 9.2; docs/spark.md, "Ledgers of dead writers".
"""

import logging
from collections.abc import Sequence
from typing import Final

from ledger_client import AbandonedLedgers, LedgerError
from ledger_client.sync import LedgerClient
from spark_io.ledgers.options import RECOVER_OPEN
from spark_io.ledgers.splits import KnownLedger

LEDGERS_NAMED_MAX: Final = 20
"""Maximum number of ledgers in a warning of failed recoveries; of the other warning, the client's
limit.
"""

_log = logging.getLogger(__name__)


def warn_of_hidden(client: LedgerClient, ledgers: Sequence[KnownLedger], password: bytes) -> None:
    """Log which open ledgers have no writer, and entries that this query does not read. A failure
    to find out is logged too: the query does not need it.
    """
    try:
        found = client.abandoned_ledgers([each.ledger_id for each in ledgers], password=password)
    except LedgerError as error:
        _log.warning("whether the writers of open ledgers are gone is not known: %s", error)
        return
    if found.ledgers or found.unasked_count:
        _log.warning(_described(found, needs_password=bool(password)))


def recover(client: LedgerClient, ledgers: Sequence[KnownLedger], password: bytes) -> bool:
    """Recover the open ledgers whose writers are gone, and log which ones could not be; return
    whether ledgers are closed or deleted since they were read. Raises MetadataUnavailableError and
    the other errors of the metadata service.
    """
    ends = {each.ledger_id: each.end for each in ledgers}
    done = client.recover_abandoned(ends, password=password)
    failed = [
        f"{error} (its entries before entry {ends[ledger_id]} are read)"
        for ledger_id, error in done.failures.items()
    ]
    if failed:
        more = len(failed) - LEDGERS_NAMED_MAX
        named = [*failed[:LEDGERS_NAMED_MAX], *([f"{more} more"] if more > 0 else [])]
        text = "open ledgers whose writers are gone were not recovered: %s"
        _log.warning(text, "; ".join(named))
    return bool(done.ended)


def _described(found: AbandonedLedgers, *, needs_password: bool) -> str:
    secret = " --password-file FILE" if needs_password else ""
    parts = [
        f"ledger {each.ledger_id}, entries {each.last_confirmed + 1} to {each.last_stored}, "
        f"{each.hidden_count} in all (`quire ledger recover {each.ledger_id}{secret}`)"
        for each in found.ledgers
    ]
    if found.unasked_count:
        parts.append(f"{found.unasked_count} more ledgers, whose bookies were not asked")
    return (
        "the writers of open ledgers are gone, and entries that they may have acknowledged are not "
        f"read: {'; '.join(parts)}. With the option {RECOVER_OPEN}=true a query recovers them first"
    )
