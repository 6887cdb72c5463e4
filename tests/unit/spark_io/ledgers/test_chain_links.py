"""Links of a chain as plans read them: what is read, and what is remembered."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from ledger_client import (
    ChainInfo,
    ChainLink,
    ClientConfig,
    LedgerInfo,
    LedgerNotFoundError,
    LinkedLedger,
)
from metadata.ids import EntryId, LedgerId, UpdateToken
from spark_io.common_options import ClientOptions
from spark_io.errors import ChainTrimmedError, LinkUnreadableError, RecreatedError
from spark_io.ledgers import selecting
from spark_io.ledgers.selecting import (
    RememberedLinks,
    read_links,
    remembered_links,
)
from spark_io.ranges import EntryRange, LinkRanges, PackedRanges

if TYPE_CHECKING:
    from ledger_client.sync import LedgerClient

TOKEN, OTHER = b"\x01" * 16, b"\x02" * 16


@dataclass
class OneChain:
    """A client of a cluster with one chain, which counts what is read."""

    links_: list[ChainLink | None]
    token: bytes = TOKEN
    first_index: int = 0
    closed: dict[int, int] = field(default_factory=dict)
    """End of each ledger that was linked open and was closed since."""
    links_read: list[int] = field(default_factory=list)
    ledgers_read: list[int] = field(default_factory=list)

    def chain(self, name: str) -> "OneChain":
        assert name == "events"
        return self

    def info(self) -> ChainInfo:
        return ChainInfo("events", self.first_index, len(self.links_), self.token)

    def links(self, first: int, end: int) -> Iterator[tuple[int, ChainLink | None]]:
        self.links_read += range(first, end)
        return iter([(index, self.links_[index]) for index in range(first, end)])

    def ledger_infos(self, ledger_ids: list[int]) -> Iterator[LedgerInfo | None]:
        self.ledgers_read += ledger_ids
        for ledger_id in ledger_ids:
            end = self.closed.get(ledger_id)
            info = SimpleNamespace(
                id=ledger_id,
                last_entry_id=(end or 0) - 1,
                length=10 * (end or 0),
                creation_token=b"%16d" % ledger_id,
                created_ms=7,
            )
            yield None if end is None else cast("LedgerInfo", info)


def link(*ledgers: tuple[int, int | None]) -> ChainLink:
    linked = (
        LinkedLedger(
            LedgerId(ledger_id),
            created_ms=5,
            last_entry_id=None if end is None else EntryId(end - 1),
            length=None if end is None else 100 * end,
        )
        for ledger_id, end in ledgers
    )
    return ChainLink(tuple(linked), published_ms=9, token=UpdateToken(b"t" * 16))


def read(
    chain: OneChain, remembered: RememberedLinks | None = None, *, fail_on_data_loss: bool = True
) -> list[LinkRanges]:
    return read_links(
        cast("LedgerClient", chain),
        replace(chain.info(), first_index=0),
        b"",
        fail_on_data_loss=fail_on_data_loss,
        remembered=remembered,
    )


def ends(links: list[LinkRanges]) -> list[list[tuple[int, int]]]:
    return [[(ledger.ledger_id, ledger.end) for ledger in found.ledgers] for found in links]


def test_ends_come_from_the_links_without_a_read_of_a_ledger() -> None:
    chain = OneChain([link((1, 20), (2, 0)), link((3, 5))])
    found = read(chain)
    assert ends(found) == [[(1, 20), (2, 0)], [(3, 5)]]
    first = next(iter(found[0].ledgers))
    assert first == EntryRange(1, 0, 19, 100.0, link=0)
    assert chain.ledgers_read == []


def test_ledgers_that_were_open_when_they_were_linked_are_read_together() -> None:
    chain = OneChain([link((1, None)), link((2, 7)), link((3, None))], closed={1: 4, 3: 6})
    found = read(chain)
    assert ends(found) == [[(1, 4)], [(2, 7)], [(3, 6)]]
    assert chain.ledgers_read == [1, 3]
    assert next(iter(found[2].ledgers)).creation_token == b"%16d" % 3


def test_a_second_plan_reads_only_links_that_are_new() -> None:
    chain = OneChain([link((1, 20)), link((2, None))], closed={2: 3})
    remembered = RememberedLinks()
    first = read(chain, remembered)
    chain.links_.append(link((3, 1)))
    assert ends(read(chain, remembered)) == [*ends(first), [(3, 1)]]
    assert chain.links_read == [0, 1, 2]
    assert chain.ledgers_read == [2]


def test_links_of_another_chain_with_the_name_are_not_remembered() -> None:
    client = ClientOptions("zk://h:1/a", b"", ClientConfig())
    old = remembered_links(client, ChainInfo("events", 0, 1, TOKEN))
    old.add(LinkRanges(0, 0, PackedRanges([EntryRange(1, 0, 4, 1.0)])))
    assert remembered_links(client, ChainInfo("events", 0, 1, TOKEN)) is old
    assert not remembered_links(client, ChainInfo("events", 0, 1, OTHER)).links
    assert not remembered_links(client, ChainInfo("events", 1, 2, TOKEN)).links, "trimmed"


def test_the_number_of_remembered_ledgers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selecting, "LEDGERS_REMEMBERED_MAX", 10)
    monkeypatch.setattr(selecting, "_remembered", {})
    client = ClientOptions("zk://h:1/b", b"", ClientConfig())
    six = PackedRanges([EntryRange(n, 0, 4, 1.0) for n in range(6)])
    first = remembered_links(client, ChainInfo("first", 0, 9, TOKEN))
    first.add(LinkRanges(0, 0, six))
    first.add(LinkRanges(1, 0, six))
    assert list(first.links) == [0], "there is no room for the second"
    remembered_links(client, ChainInfo("second", 0, 9, TOKEN))
    assert remembered_links(client, ChainInfo("first", 0, 9, TOKEN)) is not first


def test_a_chain_that_was_created_again_during_the_plan_is_noticed() -> None:
    chain = OneChain([link((1, 2))])
    info = chain.info()
    chain.token = OTHER
    with pytest.raises(RecreatedError, match="events"):
        read_links(cast("LedgerClient", chain), info, b"")


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_link_that_is_not_visible_yet_is_not_lost(*, fail_on_data_loss: bool) -> None:
    lagging = OneChain([link((1, 2)), None])
    with pytest.raises(LinkUnreadableError, match="link 1 of chain 'events' was not trimmed"):
        read(lagging, fail_on_data_loss=fail_on_data_loss)


def test_collected_links_and_deleted_ledgers_fail_by_name_or_are_left_out() -> None:
    collected = OneChain([link((1, 2)), None], first_index=2)
    with pytest.raises(ChainTrimmedError, match="link 1 of chain 'events'"):
        read(collected)
    assert ends(read(collected, fail_on_data_loss=False)) == [[(1, 2)]]
    deleted = OneChain([link((1, 2), (8, None))])
    with pytest.raises(LedgerNotFoundError, match="ledger 8"):
        read(deleted)
    remembered = RememberedLinks()
    assert ends(read(deleted, remembered, fail_on_data_loss=False)) == [[(1, 2), (8, 0)]]
    assert not remembered.links, "the ledger is looked for again"
