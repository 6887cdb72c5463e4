"""End of a ledger that a log has written: closing it, and listing its end.

Both wait for the metadata service without a limit. Leaves what is listed to the log.

Invariant: `close_ledger` returns only if the ledger is closed with every entry written to it.

Source: protocol rule 6; topics design, "What a takeover does" (rolling).
"""

import asyncio
import logging
from typing import Final

from broker_layer.log.ledger_list import LedgerList, Transition, deposed
from ledger_client import LedgerClient
from ledger_client.errors import ClientClosedError, LedgerError, MetadataUnavailableError
from ledger_client.info import LedgerInfo
from ledger_client.writing.writer import LedgerWriter
from metadata.errors import MetadataError, StoreClosedError

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 2.0

log = logging.getLogger(__name__)


async def close_ledger(
    client: LedgerClient, writer: LedgerWriter, wait_s: float | None = None
) -> LedgerInfo:
    """Close a ledger; return its closed state. `wait_s` limits the wait for unconfirmed entries.

    Raises TopicError NOT_LEADER_OR_FOLLOWER if another broker closed it at another entry, or if it
    can never be closed here.
    """
    info, pause_s = None, RETRY_FIRST_S
    try:
        await writer.aclose(timeout=wait_s)
        info = writer.info
    except MetadataUnavailableError:
        pass
    except LedgerError as error:
        raise deposed(str(error)) from error
    while info is None or not info.is_closed:
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, RETRY_MAX_S)
        try:
            info = await client.recover_ledger(writer.id)
        except ClientClosedError as error:
            raise deposed(str(error)) from error
        except LedgerError as error:
            log.info("ledger %s cannot be closed yet: %s", writer.id, error)
    if info.last_entry_id != writer.last_pushed:
        text = f"ledger {writer.id} was closed at entry {info.last_entry_id} by another broker"
        raise deposed(text)
    return info


async def change_until_stored(ledger_list: LedgerList, transition: Transition) -> None:
    """Change the list of ledgers; try again until the metadata service answers.

    Raises TopicError if another leader has claimed the list, StoreClosedError.
    """
    pause_s = RETRY_FIRST_S
    while True:
        try:
            await ledger_list.change(transition)
        except StoreClosedError:
            raise
        except MetadataError as error:
            log.info("the end of a ledger cannot be listed yet: %s", error)
        else:
            return
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, RETRY_MAX_S)
