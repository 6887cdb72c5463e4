"""Judgement of the answers that callers of chains receive.

Leaves the stored changes to `chain_checker`.

Invariants: an answer is compared with what was stored at some time of its call. A read may in
addition miss the changes of the last `STALE_S` seconds before it.

Source: protocol rules 1.3 and 1.6; `ledger_client/chains.py`.
"""

from collections.abc import Sequence

from ledger_client import LedgerInfo
from ledger_client.chains import ChainInfo
from metadata.ledgers.chain import ChainLink
from metadata.ledgers.chain_store import Published
from tests.simulation.chains.chain_checker import STALE_S, ChainChecker, Life


class ChainAnswers:
    """Compares the answers of one run with its chains."""

    def __init__(self, checker: ChainChecker) -> None:
        self._checker = checker
        self._lives = checker.lives
        self._claimers: dict[int, str] = {}

    def now_s(self) -> float:
        """Return the time, for the beginning of a call."""
        return self._checker.model.loop.now_s

    def on_created(self, name: str, began_s: float) -> None:
        """Check a call that created a chain."""
        born = [life for life in self._lives.of(name) if life.born_s >= began_s]
        mine = next((life for life in born if not life.is_acknowledged), None)
        if mine is None:
            self._report(f"chain {name!r}: a call since {began_s:.3f} s created nothing")
        else:
            mine.is_acknowledged = True

    def on_exists(self, name: str, began_s: float) -> None:
        """Check a creation that was refused because the chain exists."""
        if not self._lives.since(name, began_s):
            self._report(f"chain {name!r} does not exist, and cannot be created")

    def on_missing(self, name: str, began_s: float) -> None:
        """Check a call that did not find a chain."""
        for life in self._lives.of(name):
            if life.born_s < began_s - STALE_S and life.deleted_s is None:
                self._report(f"chain {name!r} was not found, and exists since {life.born_s:.3f} s")

    def on_deleted(self, name: str, began_s: float) -> None:
        """Check a call that deleted a chain."""
        for life in self._lives.of(name):
            if life.born_s < began_s and life.gone_s is None:
                self._report(f"chain {name!r} of {life.born_s:.3f} s was deleted, and is there")

    def on_published(
        self,
        name: str,
        began_s: float,
        wanted: tuple[Sequence[LedgerInfo], str, int | None],
        published: Published,
    ) -> None:
        """Check a publication that succeeded: exactly one stored link is that of its batch."""
        ledgers, application, batch = wanted
        ids = [ledger.id for ledger in ledgers]
        for life in self._lives.since(name, began_s):
            link = life.links.get(published.index)
            if link is None or link.application != application:
                continue
            linked = [ledger.ledger_id for ledger in link.ledgers]
            if published.is_new and linked == ids and (batch is None or batch == link.batch):
                return
            if not published.is_new and batch is not None and batch <= link.batch:
                return
        self._report(
            f"chain {name!r}: {published} was the answer for {ids}, batch {batch} of "
            f"{application!r}, and no such link was stored"
        )

    def on_collected(self, name: str, began_s: float, ledgers: Sequence[LedgerInfo]) -> None:
        """Check a publication that was refused because a ledger may be gone."""
        gone = [ledger.id for ledger in ledgers if self._is_gone(ledger.id)]
        oldest_ms = min((ledger.created_ms for ledger in ledgers), default=0)
        lives = self._lives.since(name, began_s)
        if not gone and all(oldest_ms >= life.head.collected_before_ms for life in lives):
            self._report(f"chain {name!r} refuses to link ledgers which exist")

    def on_withdrawn(
        self, name: str, began_s: float, ledgers: Sequence[LedgerInfo], deleted: Sequence[int]
    ) -> None:
        """Check that each withdrawn ledger is either linked or gone."""
        for ledger in ledgers:
            is_linked = any(
                ledger.id == linked.ledger_id
                for life in self._lives.since(name, began_s)
                for link in life.links.values()
                for linked in link.ledgers
            )
            if is_linked == self._is_gone(ledger.id) and (ledger.id in deleted or not is_linked):
                self._report(f"ledger {ledger.id} was withdrawn: {deleted}, and is neither or both")

    def on_gone(self, ledger_id: int) -> None:
        """Check a ledger that a collection reported as deleted."""
        if not self._is_gone(ledger_id):
            self._report(f"ledger {ledger_id} was collected, and exists")

    def on_info(self, info: ChainInfo, began_s: float) -> None:
        """Check the head of a chain that a caller received."""
        lives = self._lives.since(info.name, began_s)
        by_token = [live for live in lives if self._token_of(live) == info.creation_token]
        if info.creation_token and not by_token:
            self._report(f"{info} has a token that no chain had since {began_s:.3f} s")
        since = by_token[0].born_s if by_token else began_s - STALE_S
        if not any(
            life.born_s >= since
            and life.had_state(info.first_index, info.next_index, began_s - STALE_S)
            for life in lives
        ):
            self._report(f"{info} was no state of the chain since {began_s:.3f} s")

    def on_links(
        self, before: ChainInfo, links: Sequence[tuple[int, ChainLink | None]], after: ChainInfo
    ) -> None:
        """Check links that were read between two looks at the same chain."""
        if before.creation_token != after.creation_token:
            return
        life = next(
            each
            for each in self._lives.of(before.name)
            if self._token_of(each) == before.creation_token
        )
        for index, link in links:
            if link is not None and link != life.links.get(index):
                self._report(f"chain {before.name!r} shows {link} as link {index}, not the stored")
            elif link is None and index >= life.head.first_index and life.deleted_s is None:
                self._report(f"chain {before.name!r} hides link {index}")

    def on_claimed(self, ledger_id: int, host: str) -> None:
        """Check that a claimed ledger has one writer for life."""
        other = self._claimers.setdefault(ledger_id, host)
        if other != host:
            self._report(f"ledger {ledger_id} was claimed by {other} and by {host}")

    def _is_gone(self, ledger_id: int) -> bool:
        return self._checker.model.ledger(ledger_id).metadata is None

    def _token_of(self, life: Life) -> bytes:
        return life.token[-16:]

    def _report(self, text: str) -> None:
        self._checker.report(text)
