"""Selection of the ledgers that a query names, and how far each may be read.

Leaves following them to `following`.

A link of a chain has the ends of the ledgers that were closed when they were linked, so that
planning does not read each ledger. A ledger that was open then is read. A link of closed ledgers
never changes. So it is read once in a process: the next plan of the chain reads the chain's head
and the links that it does not remember.

A writer that is killed leaves entries that it had acknowledged and that readers do not see, because
bookies do not know its last LAC. Only a recovery shows them, and it ends a writer that lives. So a
plan warns of such ledgers once, and recovers them only with the option for it.

Invariants: without that option no ledger is fenced or recovered, and never one of a live writer; an
open ledger may be read up to its LAC. Which links a chain has now is read at every plan.

Source: Spark design, "Reading"; protocol rules 8.1 and 9.2.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain as joined
from typing import Final

from ledger_client import (
    AS_STORED,
    AbandonedLedgers,
    ChainInfo,
    ChainLink,
    LedgerError,
    LedgerInfo,
    LedgerNotFoundError,
)
from ledger_client.sync import LedgerClient
from metadata.ids import NO_ENTRY
from spark_io.common_options import ClientOptions
from spark_io.errors import ChainTrimmedError, LinkUnreadableError, RecreatedError
from spark_io.ledgers.options import NO_BOUNDS, RECOVER_OPEN, Bounds, Selection
from spark_io.ranges import ENTRY_BYTES_ASSUMED, EntryRange, LinkRanges, PackedRanges

BEGAN: Final = "the query began"
LEDGERS_REMEMBERED_MAX: Final = 2_000_000
"""Maximum number of ledgers in all remembered links of a process: about 100 MB."""
LINKS_PER_STEP: Final = 250
WARNED_LEDGERS_MAX: Final = 20
"""Maximum number of ledgers in a warning of failed recoveries; of the other warning, the client's
limit.
"""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SelectedLedgers:
    """Ledgers of a selection, in order, without a second copy of those that are packed."""

    groups: Sequence[Iterable[EntryRange]]
    chain_token: bytes | None = None
    """Identity of the chain that links them; None if they were not selected by a chain."""

    def __iter__(self) -> Iterator[EntryRange]:
        return joined.from_iterable(self.groups)

    def open_ledgers(self) -> Iterator[EntryRange]:
        """Yield the ledgers that were not closed when they were read. Packed ones are closed."""
        groups = (group for group in self.groups if not isinstance(group, PackedRanges))
        return (ledger for group in groups for ledger in group if ledger.is_open)


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
        end = info.next_index if bounds.end_link is None else bounds.end_link
        links = read_links(
            client,
            replace(
                info,
                first_index=max(info.first_index, bounds.first_link or 0),
                next_index=min(info.next_index, end),
            ),
            password,
            fail_on_data_loss=fail_on_data_loss,
            remembered=None if remember_for is None else remembered_links(remember_for, info),
        )
        published_ms = links[0].published_ms if links else None
        if trimmed := bounds.names_trimmed(info.first_index, published_ms):
            text = f"chain {selection.chain!r} begins at link {info.first_index} now"
            text = f"{text}: {trimmed} were trimmed or replaced"
            if fail_on_data_loss:
                raise ChainTrimmedError(text)
            _log.warning("%s; they are left out", text)
        ledgers = [link.ledgers for link in links if bounds.is_within_time(link.published_ms)]
        return SelectedLedgers(ledgers, info.creation_token)
    infos: Iterator[LedgerInfo]
    if selection.match:
        infos = (ledger for ledger in client.list_ledgers() if _matches(ledger, selection.match))
    else:
        infos = _named(client, selection, fail_on_data_loss=fail_on_data_loss)
    timely = (info for info in infos if bounds.is_within_time(info.created_ms))
    return SelectedLedgers([[known_ledger(client, info, password) for info in timely]])


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
        stored = info.metadata.get(name)
        if (stored.decode(errors="replace") if isinstance(stored, bytes) else stored) != value:
            return False
    return True


def known_ledger(client: LedgerClient, info: LedgerInfo, password: bytes) -> EntryRange:
    """Return a ledger up to its readable end: its last entry, or its present LAC."""
    token = info.creation_token
    if info.last_entry_id is not None:
        return closed_ledger(info.id, info.last_entry_id, info.length, token)
    with client.open_ledger(info.id, password=password, encryption=AS_STORED) as reader:
        reader.learn_last_confirmed()
        is_open = not reader.is_closed  # read first: the end of a closed ledger does not change
        last = reader.last_confirmed
        return EntryRange(info.id, 0, last, creation_token=token, is_open=is_open)


def closed_ledger(
    ledger_id: int, last_entry_id: int, length: int | None, creation_token: bytes = b""
) -> EntryRange:
    """Return a closed ledger with these facts; a length of None is not known."""
    end = last_entry_id + 1
    entry_bytes = ENTRY_BYTES_ASSUMED if length is None or not end else length / end
    return EntryRange(ledger_id, 0, last_entry_id, entry_bytes, creation_token)


def infos_of(client: LedgerClient, ledger_ids: Sequence[int]) -> Iterator[LedgerInfo | None]:
    """Yield ledgers as they are stored, many reads at a time; None for one that does not exist."""
    return client.ledger_infos(ledger_ids) if ledger_ids else iter(())


@dataclass(slots=True)
class RememberedLinks:
    """Links of one chain, by number, whose ledgers are all closed."""

    links: dict[int, LinkRanges] = field(default_factory=dict)
    count: int = 0
    """Number of ledgers in the links."""

    def add(self, link: LinkRanges) -> None:
        """Remember a link, if there is room."""
        if link.index not in self.links and _count() + len(link.ledgers) <= LEDGERS_REMEMBERED_MAX:
            self.links[link.index] = link
            self.count += len(link.ledgers)

    def drop_below(self, index: int) -> None:
        """Forget links that no longer belong to the chain."""
        for old in [link for link in self.links if link < index]:
            self.count -= len(self.links.pop(old).ledgers)


_remembered: dict[tuple[ClientOptions, str, bytes], RememberedLinks] = {}


def remembered_links(client: ClientOptions, chain: ChainInfo) -> RememberedLinks:
    """Return the remembered links of a chain. Those of the chain that was not planned for longest
    are dropped when there are too many.
    """
    key = client, chain.name, chain.creation_token
    links = _remembered.pop(key, None) or RememberedLinks()
    _remembered[key] = links  # the most recently used is the last
    while len(_remembered) > 1 and _count() > LEDGERS_REMEMBERED_MAX // 2:
        del _remembered[next(iter(_remembered))]
    links.drop_below(chain.first_index)
    return links


def _count() -> int:
    return sum(links.count for links in _remembered.values())


def read_links(
    client: LedgerClient,
    chain: ChainInfo,
    password: bytes,
    *,
    fail_on_data_loss: bool = True,
    remembered: RememberedLinks | None = None,
) -> list[LinkRanges]:
    """Return the links of a chain with their ledgers. Raises ChainTrimmedError, RecreatedError,
    LinkUnreadableError, LedgerNotFoundError.
    """
    known = RememberedLinks() if remembered is None else remembered
    read: list[LinkRanges] = []
    for start in range(chain.first_index, chain.next_index, LINKS_PER_STEP):
        wanted = range(start, min(start + LINKS_PER_STEP, chain.next_index))
        ranges = {index: known.links[index] for index in wanted if index in known.links}
        if missing := [index for index in wanted if index not in ranges]:
            links = client.chain(chain.name).links(missing[0], missing[-1] + 1)
            there = dict(_present(client, chain, links, fail_on_data_loss=fail_on_data_loss))
            for link in _with_ledgers(client, there, password, fail_on_data_loss=fail_on_data_loss):
                ranges[link.index] = link
                if remembered is not None and isinstance(link.ledgers, PackedRanges):
                    remembered.add(link)
        read += [ranges[index] for index in sorted(ranges)]
    require_same_chain(client, chain.name, chain.creation_token, BEGAN)
    return read


def require_same_chain(client: LedgerClient, name: str, token: bytes, since: str) -> None:
    """Compare the present chain of a name with the one of a creation token.

    What was read of the chain before the call is of that chain: a token is never used again. Raises
    RecreatedError, ChainNotFoundError.
    """
    if client.chain(name).info().creation_token != token:
        raise RecreatedError("chain", name, since)


def _present(
    client: LedgerClient,
    chain: ChainInfo,
    links: Iterator[tuple[int, ChainLink | None]],
    *,
    fail_on_data_loss: bool,
) -> Iterator[tuple[int, ChainLink]]:
    """Yield the links that were not collected. One that the chain still counts is not lost."""
    trimmed_below = 0
    for index, link in links:
        if link is None and index >= trimmed_below:
            now = client.chain(chain.name).info()
            if now.creation_token != chain.creation_token:
                raise RecreatedError("chain", chain.name, BEGAN)
            trimmed_below = now.first_index
        if link is not None:
            yield index, link
        elif index >= trimmed_below:
            raise LinkUnreadableError(chain.name, index)
        elif fail_on_data_loss:
            text = f"link {index} of chain {chain.name!r} was collected while the query ran"
            raise ChainTrimmedError(text)
        else:
            _log.warning("chain %r: link %d was collected: it is left out", chain.name, index)


def _with_ledgers(
    client: LedgerClient, links: dict[int, ChainLink], password: bytes, *, fail_on_data_loss: bool
) -> Iterator[LinkRanges]:
    """Yield links with their ledgers. A deleted ledger that was open when it was linked keeps its
    place, without entries, if data loss is allowed.
    """
    opened = [
        ledger.ledger_id
        for link in links.values()
        for ledger in link.ledgers
        if ledger.last_entry_id is None
    ]
    infos = infos_of(client, opened)
    for index, link in links.items():
        ledgers: list[EntryRange] = []
        is_whole = True
        for ledger in link.ledgers:
            if ledger.last_entry_id is not None:
                ledgers.append(closed_ledger(ledger.ledger_id, ledger.last_entry_id, ledger.length))
                continue
            info = next(infos)
            if info is not None:
                ledgers.append(known_ledger(client, info, password))
                continue
            if fail_on_data_loss:
                text = "it is linked in the chain, and was deleted"
                raise LedgerNotFoundError(text, ledger_id=ledger.ledger_id)
            text = "ledger %d of a chain no longer exists: it is left out"
            _log.warning(text, ledger.ledger_id)
            ledgers.append(closed_ledger(ledger.ledger_id, NO_ENTRY, 0))
            is_whole = False
        placed = [replace(ledger, link=index) for ledger in ledgers]
        if is_whole and not any(ledger.is_open for ledger in ledgers):
            packed = PackedRanges(placed, keeps_links=True)
            yield LinkRanges(index, link.published_ms, packed)
        else:
            yield LinkRanges(index, link.published_ms, tuple(placed))


def warn_of_hidden(client: LedgerClient, ledgers: Sequence[EntryRange], password: bytes) -> None:
    """Log which open ledgers have no writer, and entries that this query does not read. A failure
    to find out is logged too: the query does not need it.
    """
    try:
        hidden = client.abandoned_ledgers([part.ledger_id for part in ledgers], password=password)
    except LedgerError as error:
        _log.warning("whether the writers of open ledgers are gone is not known: %s", error)
        return
    if hidden.ledgers or hidden.unasked_count:
        _log.warning(_described(hidden, needs_password=bool(password)))


def recover(client: LedgerClient, ledgers: Sequence[EntryRange], password: bytes) -> bool:
    """Recover the open ledgers whose writers are gone, and log which ones could not be; return
    whether ledgers are closed or deleted since they were read. Raises MetadataUnavailableError and
    the other errors of the metadata service.
    """
    ends = {ledger.ledger_id: ledger.end for ledger in ledgers}
    done = client.recover_abandoned(ends, password=password)
    failed = [
        f"{error} (its entries before entry {ends[ledger_id]} are read)"
        for ledger_id, error in done.failures.items()
    ]
    if failed:
        more = len(failed) - WARNED_LEDGERS_MAX
        named = [*failed[:WARNED_LEDGERS_MAX], *([f"{more} more"] if more > 0 else [])]
        text = "open ledgers whose writers are gone were not recovered: %s"
        _log.warning(text, "; ".join(named))
    return bool(done.ended)


def _described(hidden: AbandonedLedgers, *, needs_password: bool) -> str:
    secret = " --password-file FILE" if needs_password else ""
    parts = [
        f"ledger {ledger.ledger_id}, entries {ledger.last_confirmed + 1} to {ledger.last_stored}, "
        f"{ledger.hidden_count} in all (`quire ledger recover {ledger.ledger_id}{secret}`)"
        for ledger in hidden.ledgers
    ]
    if hidden.unasked_count:
        parts.append(f"{hidden.unasked_count} more ledgers, whose bookies were not asked")
    return (
        "the writers of open ledgers are gone, and entries that they may have acknowledged are not "
        f"read: {'; '.join(parts)}. With the option {RECOVER_OPEN}=true a query recovers them first"
    )
