"""Lines in a broker's log about what its ledger client notices: bookies that fail, and ledgers that
change because of them.

Source: docs/reference/log.md.
"""

from ledger_client import (
    BookieDeparted,
    BookieQuarantined,
    BookieSuspected,
    ClientEvent,
    EnsembleChanged,
    LedgerRecovered,
    ReplicaDamaged,
)
from quire.server.server_log import ServerLog


def note_event(log: ServerLog, event: ClientEvent) -> None:
    """Write the line of an event, if operators need it."""
    match event:
        case EnsembleChanged():
            log.info(
                "bookies replaced",
                ledger=event.ledger_id,
                from_entry=event.first_entry_id,
                left=", ".join(event.replaced),
                joined=", ".join(event.joined),
            )
        case BookieDeparted():
            log.info("bookie departed", bookie=event.bookie_id)
        case BookieSuspected():
            log.info(
                "bookie silent",
                bookie=event.bookie_id,
                ledger=event.ledger_id,
                silent_s=round(event.silent_s, 1),
            )
        case BookieQuarantined():
            log.info("bookie avoided", bookie=event.bookie_id)
        case LedgerRecovered():
            log.info("ledger recovered", ledger=event.ledger_id, last_entry=event.last_entry_id)
        case ReplicaDamaged():
            log.warning(
                "replica damaged",
                bookie=event.bookie_id,
                ledger=event.ledger_id,
                entry=event.entry_id,
            )
        case _:
            pass
