"""Selection of the ledgers that a query names, and their present readable ends.

Leaves splitting them into parts to `spark_io.ledgers.splits`, and following them to
`spark_io.ledgers.stream`.

Invariants: no ledger is ever fenced or recovered; an open ledger may be read up to its LAC.

Source: Spark design, "Reading".
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ledger_client import AS_STORED, ChainInfo, LedgerInfo, LedgerNotFoundError
from ledger_client.sync import LedgerClient
from metadata.ids import NO_ENTRY
from metadata.ledgers.chain import LinkedLedger
from spark_io.errors import ChainTrimmedError, RecreatedError
from spark_io.ledgers.options import Selection
from spark_io.ledgers.splits import ENTRY_BYTES_ASSUMED, KnownLedger

BEGAN: Final = "the query began"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SelectedLedgers:
    """Ledgers of a selection, in order."""

    ledgers: list[KnownLedger]
    chain_token: bytes | None = None
    """Identity of the chain that links them; None if they were not selected by a chain."""


def find_ledgers(
    client: LedgerClient, selection: Selection, password: bytes, *, fail_on_data_loss: bool = True
) -> SelectedLedgers:
    """Return the ledgers of a selection. Raises LedgerNotFoundError for a named ledger that does
    not exist, ChainTrimmedError for a removed link, ChainNotFoundError, RecreatedError.
    """
    if selection.chain:
        info = client.chain(selection.chain).info()
        links = read_links(client, info, password, fail_on_data_loss=fail_on_data_loss)
        return SelectedLedgers([each for _, found in links for each in found], info.creation_token)
    if selection.match:
        found = (info for info in client.list_ledgers() if _matches(info, selection.match))
        return SelectedLedgers([known_ledger(client, info, password) for info in found])
    return SelectedLedgers(
        _find_named(client, selection, password, fail_on_data_loss=fail_on_data_loss)
    )


def _find_named(
    client: LedgerClient, selection: Selection, password: bytes, *, fail_on_data_loss: bool
) -> list[KnownLedger]:
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
    chain: ChainInfo,
    password: bytes,
    *,
    fail_on_data_loss: bool = True,
) -> list[tuple[int, list[KnownLedger]]]:
    """Return the links of a chain with their ledgers. Raises ChainTrimmedError, RecreatedError."""
    links: list[tuple[int, list[KnownLedger]]] = []
    handle = client.chain(chain.name)
    for index, link in handle.links(chain.first_index, chain.next_index):
        if link is not None:
            known = [_linked(client, each, password, fail_on_data_loss) for each in link.ledgers]
            links.append((index, known))
        elif fail_on_data_loss:
            require_same_chain(client, chain.name, chain.creation_token, BEGAN)
            text = f"link {index} of chain {chain.name!r} was collected while the query ran"
            raise ChainTrimmedError(text)
        else:
            _log.warning("chain %r: link %d was collected: it is left out", chain.name, index)
    require_same_chain(client, chain.name, chain.creation_token, BEGAN)
    return links


def require_same_chain(client: LedgerClient, name: str, token: bytes, since: str) -> None:
    """Compare the present chain of a name with the one of a creation token.

    What was read of the chain before the call is of that chain: a token is never used again. Raises
    RecreatedError, ChainNotFoundError.
    """
    if client.chain(name).info().creation_token != token:
        raise RecreatedError("chain", name, since)


def known_ledger(client: LedgerClient, info: LedgerInfo, password: bytes) -> KnownLedger:
    """Return a ledger with its readable end: its last entry, or its present LAC."""
    if info.last_entry_id is not None:
        return _closed(info.id, info.last_entry_id, info.length, info.creation_token)
    with client.open_ledger(info.id, password=password, encryption=AS_STORED) as reader:
        end = reader.last_confirmed + 1
        return KnownLedger(
            info.id,
            end,
            ENTRY_BYTES_ASSUMED,
            is_closed=reader.is_closed,
            creation_token=info.creation_token,
        )


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


def _closed(
    ledger_id: int, last_entry_id: int, length: int | None, creation_token: bytes = b""
) -> KnownLedger:
    end = last_entry_id + 1
    entry_bytes = ENTRY_BYTES_ASSUMED if length is None or not end else length / end
    return KnownLedger(ledger_id, end, entry_bytes, is_closed=True, creation_token=creation_token)


def _matches(info: LedgerInfo, wanted: Iterable[tuple[str, str]]) -> bool:
    for name, value in wanted:
        found = info.metadata.get(name)
        if (found.decode(errors="replace") if isinstance(found, bytes) else found) != value:
            return False
    return True
