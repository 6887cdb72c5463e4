"""Links of a chain with their ledgers, and those that this process remembers.

Leaves ends of ledgers to `known_ledgers`.

A link has the ends of the ledgers that were closed when they were linked, so that planning does not
read each ledger. A ledger that was open then is read. A link of closed ledgers never changes.
So it is read once in a process: the next plan of the chain reads the chain's head and the links
that it does not remember.

Invariants: a remembered link belongs to the chain with the same creation token; which links the
chain has now is read at every plan; at most LEDGERS_REMEMBERED_MAX ledgers are remembered.

Source: Spark design, "Reading".
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ledger_client import ChainInfo, ChainLink, LedgerNotFoundError
from ledger_client.sync import LedgerClient
from metadata.ids import NO_ENTRY
from spark_io.common_options import ClientOptions
from spark_io.errors import ChainTrimmedError, LinkUnreadableError, RecreatedError
from spark_io.ledgers.known_ledgers import (
    PackedLedgers,
    closed_ledger,
    infos_of,
    known_ledger,
    linked_ledger,
)
from spark_io.ledgers.splits import KnownLedger

BEGAN: Final = "the query began"
LEDGERS_REMEMBERED_MAX: Final = 2_000_000
"""Maximum number of ledgers in all remembered links of a process: about 100 MB."""
LINKS_PER_STEP: Final = 250

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReadLink:
    """A link with its ledgers."""

    index: int
    published_ms: int
    ledgers: Sequence[KnownLedger] | PackedLedgers


@dataclass(slots=True)
class RememberedLinks:
    """Links of one chain, by number, whose ledgers are all closed."""

    links: dict[int, ReadLink] = field(default_factory=dict)
    count: int = 0
    """Number of ledgers in the links."""

    def add(self, link: ReadLink) -> None:
        """Remember a link, if there is room."""
        if link.index not in self.links and _count() + len(link.ledgers) <= LEDGERS_REMEMBERED_MAX:
            self.links[link.index] = link
            self.count += len(link.ledgers)

    def drop_below(self, index: int) -> None:
        """Forget links that no longer belong to the chain."""
        for old in [each for each in self.links if each < index]:
            self.count -= len(self.links.pop(old).ledgers)


_remembered: dict[tuple[ClientOptions, str, bytes], RememberedLinks] = {}


def remembered_links(client: ClientOptions, chain: ChainInfo) -> RememberedLinks:
    """Return the remembered links of a chain. Those of the chain that was not planned for longest
    are dropped when there are too many.
    """
    key = client, chain.name, chain.creation_token
    found = _remembered.pop(key, None) or RememberedLinks()
    _remembered[key] = found  # the most recently used is the last
    while len(_remembered) > 1 and _count() > LEDGERS_REMEMBERED_MAX // 2:
        del _remembered[next(iter(_remembered))]
    found.drop_below(chain.first_index)
    return found


def _count() -> int:
    return sum(each.count for each in _remembered.values())


def read_links(
    client: LedgerClient,
    chain: ChainInfo,
    password: bytes,
    *,
    fail_on_data_loss: bool = True,
    remembered: RememberedLinks | None = None,
) -> list[ReadLink]:
    """Return the links of a chain with their ledgers. Raises ChainTrimmedError, RecreatedError,
    LinkUnreadableError, LedgerNotFoundError.
    """
    known = RememberedLinks() if remembered is None else remembered
    read: list[ReadLink] = []
    for start in range(chain.first_index, chain.next_index, LINKS_PER_STEP):
        wanted = range(start, min(start + LINKS_PER_STEP, chain.next_index))
        found = {index: known.links[index] for index in wanted if index in known.links}
        if missing := [index for index in wanted if index not in found]:
            links = client.chain(chain.name).links(missing[0], missing[-1] + 1)
            there = dict(_present(client, chain, links, fail_on_data_loss=fail_on_data_loss))
            for link in _with_ledgers(client, there, password, fail_on_data_loss=fail_on_data_loss):
                found[link.index] = link
                if remembered is not None and isinstance(link.ledgers, PackedLedgers):
                    remembered.add(link)
        read += [found[index] for index in sorted(found)]
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
) -> Iterator[ReadLink]:
    """Yield links with their ledgers. A deleted ledger that was open when it was linked keeps its
    place, without entries, if data loss is allowed.
    """
    opened = [
        each.ledger_id
        for link in links.values()
        for each in link.ledgers
        if each.last_entry_id is None
    ]
    infos = infos_of(client, opened)
    for index, link in links.items():
        ledgers: list[KnownLedger] = []
        is_whole = True
        for each in link.ledgers:
            known = linked_ledger(each)
            if known is None:
                info = next(infos)
                if info is not None:
                    known = known_ledger(client, info, password)
                elif fail_on_data_loss:
                    text = "it is linked in the chain, and was deleted"
                    raise LedgerNotFoundError(text, ledger_id=each.ledger_id)
                else:
                    text = "ledger %d of a chain no longer exists: it is left out"
                    _log.warning(text, each.ledger_id)
                    known = closed_ledger(each.ledger_id, NO_ENTRY, 0, each.created_ms)
                    is_whole = False
            ledgers.append(known)
        if is_whole and all(each.is_closed for each in ledgers):
            yield ReadLink(index, link.published_ms, PackedLedgers(ledgers, index))
        else:
            placed = [replace(each, link=index) for each in ledgers]
            yield ReadLink(index, link.published_ms, placed)
