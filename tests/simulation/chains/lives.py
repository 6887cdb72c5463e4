"""Facts about chains: each life of a name, its states and its links, as they were stored.

Leaves the judgement of changes to `chain_checker`, and of answers to `answers`.

A life begins with the creation of a chain and ends with its removal. A chain that is created again
under the name of a deleted one is another life.
"""

from dataclasses import dataclass, field
from typing import Final

from metadata.ledgers.chain import ChainHead, ChainLink

STALE_S: Final = 5.0
"""A fresh read may miss the changes of the last seconds, at a leader that was replaced."""


@dataclass(slots=True)
class Life:
    """One chain, from its creation to its removal."""

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
        return any(each.ledger_id == ledger_id for link in shown for each in link.ledgers)

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
        return [each for each in self.of(name) if each.overlaps(began_s - STALE_S)]

    def current(self, name: str) -> Life | None:
        """Return the life that is stored now, also while it is being deleted."""
        last = self.of(name)[-1:]
        return last[0] if last and last[0].gone_s is None else None

    def by_token(self, token: bytes) -> Life | None:
        """Return the life with a creation token."""
        return next(
            (one for lives in self.all.values() for one in lives if one.token == token), None
        )
