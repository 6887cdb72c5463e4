"""Checker of chains: every stored state of a chain follows from the one before it."""

from dataclasses import dataclass, field
from typing import Final

from typing_extensions import override

from metadata.errors import NodeNotFoundError
from metadata.ledgers.chain import HEAD_CODEC, LINK_CODEC, ChainHead, ChainLink
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.paths import (
    CHAINS,
    LINK_LEVEL_DIGITS,
    chain_creation_path,
    chain_link_path,
    chain_path,
)
from metadata.store.memory import MemoryMetadataServer
from metadata.store.memory_tree import NodeChange
from tests.simulation.checkers.checker import Checker
from tests.simulation.model import LedgerModel, Model

STALE_S: Final = 5.0
"""A fresh read may miss the changes of the last seconds, at a leader that was replaced."""


@dataclass(slots=True)
class Life:
    """One chain, from its creation to its removal.

    A chain that is created again under the name of a deleted one is another life.
    """

    name: str
    token: bytes
    born_s: float
    head: ChainHead
    links: dict[int, ChainLink] = field(default_factory=dict)
    """All links that were ever stored, by index."""
    states: list[tuple[float, int, int]] = field(default_factory=list)
    """Time, first index and next index of each state of the head."""
    batches: dict[str, int] = field(default_factory=dict)
    """Last batch of each application."""
    deleted_s: float | None = None
    """When it was marked as deleted."""
    gone_s: float | None = None
    is_acknowledged: bool = False
    """Whether a call has claimed its creation."""

    def holds(self, ledger_id: int) -> bool:
        """Return whether the chain links a ledger now."""
        if self.deleted_s is not None:
            return False
        shown = (link for index, link in self.links.items() if index >= self.head.first_index)
        return any(ledger.ledger_id == ledger_id for link in shown for ledger in link.ledgers)

    def overlaps(self, began_s: float) -> bool:
        """Return whether the life was not over at a time."""
        return self.gone_s is None or self.gone_s >= began_s

    def had_state(self, first_index: int, next_index: int, began_s: float) -> bool:
        """Return whether its head had these indices at some time from `began_s` on."""
        ends = [at_s for at_s, _, _ in self.states[1:]]
        ends.append(float("inf") if self.gone_s is None else self.gone_s)
        return any(
            (first, following) == (first_index, next_index) and end_s >= began_s
            for (_, first, following), end_s in zip(self.states, ends, strict=True)
        )


class Lives:
    """All lives of all names, in the order of their creation."""

    def __init__(self) -> None:
        self.all: dict[str, list[Life]] = {}

    def of(self, name: str) -> list[Life]:
        """Return all lives of a name."""
        return self.all.setdefault(name, [])

    def since(self, name: str, began_s: float) -> list[Life]:
        """Return the lives that a call since `began_s` may have met."""
        return [life for life in self.of(name) if life.overlaps(began_s - STALE_S)]

    def current(self, name: str) -> Life | None:
        """Return the life that is stored now, also while it is being deleted."""
        last = self.of(name)[-1:]
        return last[0] if last and last[0].gone_s is None else None

    def by_token(self, token: bytes) -> Life | None:
        """Return the life with a creation token."""
        return next(
            (one for lives in self.all.values() for one in lives if one.token == token), None
        )


class ChainChecker(Checker):
    """Every stored change of a chain is one that its rules allow.

    A batch is published at most once, links are in order, nothing published disappears except by a
    truncation or with its chain, and a chain that is created again has another creation token.

    Source: protocol rules 1.2, 1.3 and 10.1; Spark design, "Writing: exactly once".
    """

    name = "chains"

    def __init__(self, model: Model, server: MemoryMetadataServer) -> None:
        super().__init__(model)
        self.lives = Lives()
        self._tree = server.tree
        server.open_session(self)

    def notice(self, change: NodeChange) -> None:
        """See `metadata.store.memory_server.Session`."""
        if not change.path.startswith(f"{CHAINS}/"):
            return
        name, _, rest = change.path.removeprefix(f"{CHAINS}/").partition("/")
        if not rest:
            self._on_head(name, change)
        elif rest == "creation":
            self._on_creation(name, change)
        elif rest.startswith("links/") and rest.count("/") == len(LINK_LEVEL_DIGITS):
            self._on_link(name, int(rest.removeprefix("links/").replace("/", "")), change)

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        if ledger.metadata is not None:
            return
        for name in self.lives.all:
            life = self.lives.current(name)
            if life is not None and life.holds(ledger.ledger_id):
                self.report(f"ledger {ledger.ledger_id} was deleted while chain {name!r} links it")

    def _read(self, path: str) -> bytes | None:
        try:
            return self._tree.get(path).value
        except NodeNotFoundError:
            return None

    def _on_head(self, name: str, change: NodeChange) -> None:
        path, value = chain_path(name), self._read(chain_path(name))
        now = None if value is None else HEAD_CODEC.unpack(path, value)
        life = self.lives.current(name)
        at_s = self.model.loop.now_s
        self.model.note("chain", f"{name} {now}")
        if change.before is None:
            assert now is not None
            self._begin(name, now)
        elif now is None:
            assert life is not None
            life.gone_s = at_s
            if life.deleted_s is None:
                life.deleted_s = at_s
                self.report(f"chain {name!r} disappeared without a deletion")
        else:
            assert life is not None
            self._change(life, now)

    def _begin(self, name: str, head: ChainHead) -> None:
        at_s = self.model.loop.now_s
        token = self._read(chain_creation_path(name))
        if token is None:
            self.report(f"chain {name!r} was created without a creation token")
            token = b"none %f" % at_s
        if self.lives.by_token(token) is not None:
            self.report(f"chain {name!r} was created with the token of an earlier chain")
        if (head.first_index, head.next_index, head.is_deleted) != (0, 0, False):
            self.report(f"chain {name!r} begins as {head}")
        life = Life(name, token, at_s, head, states=[(at_s, 0, 0)])
        self.lives.of(name).append(life)

    def _change(self, life: Life, now: ChainHead) -> None:
        before, at_s = life.head, self.model.loop.now_s
        life.head = now
        life.states.append((at_s, now.first_index, now.next_index))
        where = f"chain {life.name!r}"
        if now.first_index < before.first_index or now.next_index < before.next_index:
            self.report(f"{where} went back from {before} to {now}")
        elif now.next_index > before.next_index + 1:
            self.report(f"{where} skipped links between {before} and {now}")
        elif now.next_index > before.next_index:
            self._link(life, now)
        if now.collected_before_ms < before.collected_before_ms:
            self.report(f"{where} again links older ledgers: {before}, {now}")
        if life.deleted_s is not None and not now.is_deleted:
            self.report(f"{where} came back from its deletion: {now}")
        elif now.is_deleted and life.deleted_s is None:
            life.deleted_s = at_s

    def _link(self, life: Life, now: ChainHead) -> None:
        index = now.next_index - 1
        where = f"link {index} of chain {life.name!r}"
        path = chain_link_path(life.name, index)
        value = self._read(path)
        if value is None:
            self.report(f"{where} is counted, and not stored")
            return
        link = LINK_CODEC.unpack(path, value)
        life.links[index] = link
        if life.deleted_s is not None:
            self.report(f"{where} was published in a deleted chain")
        if link.token != now.token:
            self.report(f"{where} is not the one that its head counts")
        self._look_at_batch(life, link, where)
        for linked_ledger in link.ledgers:
            ledger = self.model.ledgers.get(linked_ledger.ledger_id)
            if ledger is None or ledger.metadata is None:
                self.report(f"{where} names ledger {linked_ledger.ledger_id}, which does not exist")

    def _look_at_batch(self, life: Life, link: ChainLink, where: str) -> None:
        if not link.application:
            return
        last = life.batches.get(link.application)
        if last is not None and last >= link.batch:
            text = f"{where} publishes batch {link.batch} of {link.application!r} after {last}"
            self.report(text)
        life.batches[link.application] = link.batch

    def _on_creation(self, name: str, change: NodeChange) -> None:
        life = self.lives.current(name)
        if change.before is not None and life is not None and life.deleted_s is None:
            self.report(f"the creation token of chain {name!r} was changed or removed")

    def _on_link(self, name: str, index: int, change: NodeChange) -> None:
        life = self.lives.current(name)
        where = f"link {index} of chain {name!r}"
        if life is None:
            self.report(f"{where} changed without its chain")
        elif change.before is not None and change.exists_now:
            self.report(f"{where} was written again")
        elif change.before is None:
            if life.head.next_index != index + 1 and not self._is_counted(name, index):
                self.report(f"{where} was stored, and its head is {life.head}")
        elif index >= life.head.first_index and life.deleted_s is None:
            self.report(f"{where} was removed, and its head is {life.head}")

    def _is_counted(self, name: str, index: int) -> bool:
        """Return whether the head that is stored now counts a link as its last one."""
        value = self._read(chain_path(name))
        return value is not None and HEAD_CODEC.unpack("", value).next_index == index + 1
