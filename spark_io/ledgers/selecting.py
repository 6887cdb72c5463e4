"""Selection of the ledgers that a query names, and their present readable ends.

Leaves the ledgers of a chain to `chain_links`, splitting ledgers into parts to `splits`, and
following them to `stream`.

Source: Spark design, "Reading".
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ledger_client import LedgerInfo, LedgerNotFoundError
from ledger_client.sync import LedgerClient
from spark_io.common_options import ClientOptions
from spark_io.errors import ChainTrimmedError
from spark_io.ledgers.bounds import NO_BOUNDS, Bounds
from spark_io.ledgers.chain_links import ReadLink, read_links, remembered_links
from spark_io.ledgers.known_ledgers import PackedLedgers, infos_of, known_ledger
from spark_io.ledgers.options import Selection
from spark_io.ledgers.splits import KnownLedger

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LedgersOfLinks:
    """All ledgers of links, in order, without a second copy of them."""

    links: list[ReadLink]

    def __iter__(self) -> Iterator[KnownLedger]:
        for link in self.links:
            yield from link.ledgers

    def open_ledgers(self) -> Iterator[KnownLedger]:
        """Yield the ledgers that were not closed when they were read. Packed ones are closed."""
        for link in self.links:
            if not isinstance(link.ledgers, PackedLedgers):
                yield from _open(link.ledgers)


@dataclass(frozen=True, slots=True)
class SelectedLedgers:
    """Ledgers of a selection, in order."""

    ledgers: Iterable[KnownLedger]
    chain_token: bytes | None = None
    """Identity of the chain that links them; None if they were not selected by a chain."""

    def open_ledgers(self) -> Iterator[KnownLedger]:
        """Yield the ledgers that were not closed when they were read."""
        ledgers = self.ledgers
        return ledgers.open_ledgers() if isinstance(ledgers, LedgersOfLinks) else _open(ledgers)


def _open(ledgers: Iterable[KnownLedger]) -> Iterator[KnownLedger]:
    return (each for each in ledgers if not each.is_closed)


def find_ledgers(
    client: LedgerClient,
    selection: Selection,
    password: bytes,
    *,
    fail_on_data_loss: bool = True,
    remember_for: ClientOptions | None = None,
    bounds: Bounds = NO_BOUNDS,
) -> SelectedLedgers:
    """Return the ledgers of a selection that are within the bounds of links and of time. With
    `remember_for`, links of a chain are remembered in this process for this cluster.

    Raises LedgerNotFoundError for a named ledger that does not exist, ChainTrimmedError for a
    removed link, ChainNotFoundError, RecreatedError.
    """
    if selection.chain:
        info = client.chain(selection.chain).info()
        if 0 < bounds.first_link < info.first_index:
            text = (
                f"chain {selection.chain!r} begins at link {info.first_index} now, but "
                f"startingLink is {bounds.first_link}: the links between were trimmed or replaced"
            )
            if fail_on_data_loss:
                raise ChainTrimmedError(text)
            _log.warning("%s; they are left out", text)
        end = info.next_index if bounds.end_link is None else bounds.end_link
        links = read_links(
            client,
            replace(
                info,
                first_index=max(info.first_index, bounds.first_link),
                next_index=min(info.next_index, end),
            ),
            password,
            fail_on_data_loss=fail_on_data_loss,
            remembered=None if remember_for is None else remembered_links(remember_for, info),
        )
        timely = [each for each in links if bounds.is_within_time(each.published_ms)]
        return SelectedLedgers(LedgersOfLinks(timely), info.creation_token)
    if selection.match:
        found = (info for info in client.list_ledgers() if _matches(info, selection.match))
        return SelectedLedgers(_known(client, _timely(found, bounds), password))
    named = _named(client, selection, fail_on_data_loss=fail_on_data_loss)
    return SelectedLedgers(_known(client, _timely(named, bounds), password))


def _timely(infos: Iterable[LedgerInfo], bounds: Bounds) -> Iterator[LedgerInfo]:
    return (info for info in infos if bounds.is_within_time(info.created_ms))


def _known(client: LedgerClient, infos: Iterable[LedgerInfo], password: bytes) -> list[KnownLedger]:
    return [known_ledger(client, info, password) for info in infos]


def _named(
    client: LedgerClient, selection: Selection, *, fail_on_data_loss: bool
) -> Iterator[LedgerInfo]:
    infos = infos_of(client, selection.ledger_ids)
    for ledger_id, info in zip(selection.ledger_ids, infos, strict=True):
        if info is not None:
            yield info
        elif fail_on_data_loss:
            raise LedgerNotFoundError(
                "it does not exist: it was never created, or was deleted; `quire ledger list` "
                f"shows the existing ledgers (option ledgers: {selection.describe()})",
                ledger_id=ledger_id,  # type: ignore[arg-type]  # checked with the options
            )
        else:
            _log.warning("ledger %d no longer exists: it is left out", ledger_id)


def _matches(info: LedgerInfo, wanted: Iterable[tuple[str, str]]) -> bool:
    for name, value in wanted:
        found = info.metadata.get(name)
        if (found.decode(errors="replace") if isinstance(found, bytes) else found) != value:
            return False
    return True
