"""Ledgers with their readable ends, as planning knows them.

Leaves which ledgers a query reads to `selecting`, and links of a chain to `chain_links`.

Invariants: no ledger is ever fenced or recovered; an open ledger may be read up to its LAC.

Source: Spark design, "Reading".
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence

from ledger_client import AS_STORED, LedgerInfo, LinkedLedger
from ledger_client.sync import LedgerClient
from spark_io.ledgers.splits import ENTRY_BYTES_ASSUMED, KnownLedger


class PackedLedgers:
    """Closed ledgers of one link in columns: 40 bytes for each, because a chain may have
    millions.
    """

    __slots__ = ("_created_ms", "_ends", "_entry_bytes", "_ids", "_link", "_tokens")

    def __init__(self, ledgers: Iterable[KnownLedger], link: int | None = None) -> None:
        self._link = link
        self._ids, self._ends, self._created_ms = array("q"), array("q"), array("q")
        self._entry_bytes = array("d")
        self._tokens: list[bytes] = []
        for each in ledgers:
            assert each.is_closed, "its end does not change"
            self._ids.append(each.ledger_id)
            self._ends.append(each.end)
            self._entry_bytes.append(each.entry_bytes)
            self._created_ms.append(each.created_ms)
            self._tokens.append(each.creation_token)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[KnownLedger]:
        columns = self._ids, self._ends, self._entry_bytes, self._tokens, self._created_ms
        for ledger_id, end, entry_bytes, token, created_ms in zip(*columns, strict=True):
            yield KnownLedger(
                ledger_id,
                end,
                entry_bytes,
                is_closed=True,
                creation_token=token,
                created_ms=created_ms,
                link=self._link,
            )


def known_ledger(client: LedgerClient, info: LedgerInfo, password: bytes) -> KnownLedger:
    """Return a ledger with its readable end: its last entry, or its present LAC."""
    token, created_ms = info.creation_token, info.created_ms
    if info.last_entry_id is not None:
        return closed_ledger(info.id, info.last_entry_id, info.length, created_ms, token)
    with client.open_ledger(info.id, password=password, encryption=AS_STORED) as reader:
        reader.learn_last_confirmed()
        is_closed = reader.is_closed  # read first: the end of a closed ledger does not change
        return KnownLedger(
            info.id,
            reader.last_confirmed + 1,
            ENTRY_BYTES_ASSUMED,
            is_closed=is_closed,
            creation_token=token,
            created_ms=created_ms,
        )


def linked_ledger(ledger: LinkedLedger) -> KnownLedger | None:
    """Return a ledger as its link describes it; None if it was open when it was linked."""
    if ledger.last_entry_id is None:
        return None
    return closed_ledger(ledger.ledger_id, ledger.last_entry_id, ledger.length, ledger.created_ms)


def closed_ledger(
    ledger_id: int,
    last_entry_id: int,
    length: int | None,
    created_ms: int,
    creation_token: bytes = b"",
) -> KnownLedger:
    """Return a closed ledger with these facts; a length of None is not known."""
    end = last_entry_id + 1
    entry_bytes = ENTRY_BYTES_ASSUMED if length is None or not end else length / end
    return KnownLedger(
        ledger_id,
        end,
        entry_bytes,
        is_closed=True,
        creation_token=creation_token,
        created_ms=created_ms,
    )


def infos_of(client: LedgerClient, ledger_ids: Sequence[int]) -> Iterator[LedgerInfo | None]:
    """Yield ledgers as they are stored, many reads at a time; None for one that does not exist."""
    return client.ledger_infos(ledger_ids) if ledger_ids else iter(())
