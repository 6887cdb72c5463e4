"""Selection of the ledgers that a query names, and their present readable ends.

Leaves splitting them into parts to `spark_io.ledgers.splits`, and following them to
`spark_io.ledgers.stream`.

Invariants: no ledger is ever fenced or recovered; an open ledger may be read up to its LAC.

Source: Spark design, "Reading".
"""

import logging
from collections.abc import Iterable, Iterator

from ledger_client import LedgerInfo, LedgerNotFoundError
from ledger_client.sync import LedgerClient
from metadata.ids import NO_ENTRY
from metadata.ledgers.chain import LinkedLedger
from spark_io.errors import ChainTrimmedError
from spark_io.ledgers.options import Selection
from spark_io.ledgers.splits import ENTRY_BYTES_ASSUMED, KnownLedger

_log = logging.getLogger(__name__)


def find_ledgers(
    client: LedgerClient, selection: Selection, password: bytes, *, fail_on_data_loss: bool = True
) -> list[KnownLedger]:
    """Return the ledgers of a selection, in order. Raises LedgerNotFoundError for a named ledger
    that does not exist, ChainTrimmedError for a removed link, ChainNotFoundError.
    """
    if selection.chain:
        return [
            ledger
            for _, ledgers in read_links(
                client, selection.chain, password, fail_on_data_loss=fail_on_data_loss
            )
            for ledger in ledgers
        ]
    if selection.match:
        found = (info for info in client.list_ledgers() if _matches(info, selection.match))
        return [known_ledger(client, info, password) for info in found]
    known: list[KnownLedger] = []
    infos = client.ledger_infos(selection.ledger_ids)
    for ledger_id, info in zip(selection.ledger_ids, infos, strict=True):
        if info is None and not fail_on_data_loss:
            _log.warning("ledger %d no longer exists: it is left out", ledger_id)
            continue
        if info is None:
            raise LedgerNotFoundError(
                "it does not exist: it was never created, or was deleted; `quire ledger list` "
                f"shows the existing ledgers (option ledgers: {selection.describe()})",
                ledger_id=ledger_id,  # type: ignore[arg-type]  # checked with the options
            )
        known.append(known_ledger(client, info, password))
    return known


def read_links(
    client: LedgerClient,
    chain: str,
    password: bytes,
    *,
    first_index: int | None = None,
    end_index: int | None = None,
    fail_on_data_loss: bool = True,
) -> Iterator[tuple[int, list[KnownLedger]]]:
    """Yield the links of a chain with their ledgers; by default all present links."""
    handle = client.chain(chain)
    if first_index is None or end_index is None:
        info = handle.info()
        first_index, end_index = info.first_index, info.next_index
    for index, link in handle.links(first_index, end_index):
        if link is not None:
            yield (
                index,
                [_linked(client, each, password, fail_on_data_loss) for each in link.ledgers],
            )
        elif fail_on_data_loss:
            text = f"link {index} of chain {chain!r} was collected while the query ran"
            raise ChainTrimmedError(text)
        else:
            _log.warning("chain %r: link %d was collected: it is left out", chain, index)


def known_ledger(client: LedgerClient, info: LedgerInfo, password: bytes) -> KnownLedger:
    """Return a ledger with its readable end: its last entry, or its present LAC."""
    if info.last_entry_id is not None:
        return _closed(info.id, info.last_entry_id, info.length)
    with client.open_ledger(info.id, password=password) as reader:
        end = reader.last_confirmed + 1
        return KnownLedger(info.id, end, ENTRY_BYTES_ASSUMED, is_closed=reader.is_closed)


def _linked(
    client: LedgerClient,
    ledger: LinkedLedger,
    password: bytes,
    fail_on_data_loss: bool,  # noqa: FBT001 - as the option is called
) -> KnownLedger:
    """Return a ledger of a chain. The link has all facts about a ledger that was closed when it was
    linked. A deleted ledger keeps its place, without entries, if data loss is allowed.
    """
    if ledger.last_entry_id is not None:
        return _closed(ledger.ledger_id, ledger.last_entry_id, ledger.length)
    try:
        return known_ledger(client, client.ledger_info(ledger.ledger_id), password)
    except LedgerNotFoundError:
        if fail_on_data_loss:
            raise
    _log.warning("ledger %d of a chain no longer exists: it is left out", ledger.ledger_id)
    return _closed(ledger.ledger_id, NO_ENTRY, 0)


def _closed(ledger_id: int, last_entry_id: int, length: int | None) -> KnownLedger:
    end = last_entry_id + 1
    entry_bytes = ENTRY_BYTES_ASSUMED if length is None or not end else length / end
    return KnownLedger(ledger_id, end, entry_bytes, is_closed=True)


def _matches(info: LedgerInfo, wanted: Iterable[tuple[str, str]]) -> bool:
    for name, value in wanted:
        found = info.metadata.get(name)
        if (found.decode(errors="replace") if isinstance(found, bytes) else found) != value:
            return False
    return True
