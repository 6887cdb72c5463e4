"""A blocking client's calls of a stream, over ledgers and a chain in memory."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from ledger_client import (
    ChainInfo,
    ChainNotFoundError,
    LedgerError,
    LedgerInfo,
    LedgerNotFoundError,
)
from metadata.ids import EntryId, LedgerId, UpdateToken
from metadata.ledgers.chain import ChainLink, LinkedLedger
from spark_io.ledgers.following import FollowedLedgers, FollowedLinks, follow
from spark_io.ledgers.options import ReadOptions
from spark_io.offsets import MicroBatchLimits, Offset
from spark_io.ranges import EntryRange

if TYPE_CHECKING:
    from ledger_client.sync import LedgerClient

ADDRESS = {"metadata": "zk://127.0.0.1:2181/quire"}
FIRST, SECOND = b"\1" * 16, b"\2" * 16
ALL = MicroBatchLimits()
PUBLISHED_MS = 1_000
"""When link 0 is published; each further one a millisecond later."""
Followed = FollowedLedgers | FollowedLinks


@dataclass
class OneCluster:
    """A cluster with a chain and ledgers. All are closed, but perhaps the newest one."""

    token: bytes = FIRST
    counts: list[int] = field(default_factory=list)
    """Entries of the ledger in each link of the chain `events`."""
    first_index: int = 0
    ledgers: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    """Tokens and numbers of entries of named ledgers."""
    is_recreated_by_links: bool = False
    lac: int | None = None
    """The LAC that bookies know of the newest ledger, which is open; None if it is closed."""
    later_lacs: list[int] = field(default_factory=list)
    """What they know after each wait for it."""
    closed_at: int | None = None
    """The last entry of that ledger, once the metadata says that it is closed."""
    later_end: int | None = None
    """`closed_at` after a wait."""
    is_deleted: bool = False

    def open_ledger(self, ledger_id: int, **_options: object) -> "OneReader":
        return OneReader(self, ledger_id)

    def chain(self, name: str) -> "OneChain":
        return OneChain(self, name)

    def ledger_infos(self, ledger_ids: tuple[int, ...]) -> Iterator[LedgerInfo | None]:
        for ledger_id in ledger_ids:
            if self.lac is not None:
                yield cast("LedgerInfo", OneReader(self, ledger_id).info)
                continue
            token, count = self.ledgers.get(ledger_id, (b"", 0))
            info = SimpleNamespace(
                id=ledger_id,
                last_entry_id=count - 1,
                length=count,
                creation_token=token,
                created_ms=0,
            )
            yield cast("LedgerInfo", info) if token else None

    def create_chain_again(self, *counts: int) -> None:
        self.token, self.counts, self.first_index = SECOND, list(counts), 0


@dataclass
class OneChain:
    """A handle of the chain, and a followed one."""

    cluster: OneCluster
    name: str

    @property
    def head(self) -> ChainInfo:
        cluster = self.cluster
        if self.name != "events":
            raise ChainNotFoundError(f"there is no chain {self.name!r}")
        return ChainInfo(self.name, cluster.first_index, len(cluster.counts), cluster.token)

    def info(self) -> ChainInfo:
        return self.head

    def follow(self) -> "FollowedHead":
        assert self.head
        return FollowedHead(self)

    def links(self, first: int, end: int) -> Iterator[tuple[int, ChainLink | None]]:
        for index in range(first, end):
            count = self.cluster.counts[index]
            is_open = self.cluster.lac is not None and index == len(self.cluster.counts) - 1
            last, length = (None, None) if is_open else (EntryId(count - 1), 10 * count)
            ledger = LinkedLedger(LedgerId(100 + index), 1, last, length)
            yield index, ChainLink((ledger,), PUBLISHED_MS + index, UpdateToken(bytes(16)))
        if self.cluster.is_recreated_by_links:
            self.cluster.create_chain_again(99)


@dataclass
class OneReader:
    """A reader of the newest ledger, while it is open."""

    cluster: OneCluster
    id: int
    is_following: bool = False

    @property
    def info(self) -> SimpleNamespace:
        closed_at = self.cluster.closed_at
        return SimpleNamespace(
            id=self.id, last_entry_id=closed_at, length=9, creation_token=FIRST, created_ms=0
        )

    @property
    def is_closed(self) -> bool:
        return self.cluster.closed_at is not None

    @property
    def last_confirmed(self) -> int:
        assert self.cluster.lac is not None
        return self.cluster.lac

    @property
    def follow_failure(self) -> LedgerError | None:
        return None

    def learn_last_confirmed(self) -> int:
        return self.last_confirmed

    def follow(self) -> None:
        self.is_following = True

    def wait_confirmed(self, beyond: int, *, timeout: float) -> int:
        assert timeout > 0
        assert self.is_following
        while self.cluster.later_lacs and self.last_confirmed <= beyond and not self.is_closed:
            self.cluster.lac = self.cluster.later_lacs.pop(0)
        self.cluster.closed_at = self.cluster.later_end
        if self.cluster.is_deleted:
            raise LedgerNotFoundError("it was deleted", ledger_id=LedgerId(self.id))
        return self.last_confirmed

    def close(self) -> None:
        self.is_following = False

    def __enter__(self) -> "OneReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class FollowedHead:
    """The head of the chain, always current."""

    chain: OneChain

    @property
    def info(self) -> ChainInfo:
        return self.chain.head


def stream(cluster: OneCluster, **options: str) -> Followed:
    named = {} if "ledgers" in options else {"chain": "events"}
    checked = ReadOptions.of({**ADDRESS, **named, **options})
    return follow(cast("LedgerClient", cluster), checked)


def lenient(cluster: OneCluster, **options: str) -> Followed:
    return stream(cluster, failOnDataLoss="false", **options)


def read_all(source: Followed, start: Offset) -> tuple[Offset, list[EntryRange]]:
    end = source.advance(start, source.latest(), ALL)
    return end, source.ranges(start, end)


def counts_of(ranges: list[EntryRange]) -> list[tuple[int, int, int]]:
    return [(range_.ledger_id, range_.first, range_.last) for range_ in ranges]
