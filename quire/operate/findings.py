"""Problems that a check of a cluster found, and groups of ledgers with the same problem. Pure.

Invariant: a group keeps at most EXAMPLES_MAX ids, so that a check of many ledgers needs little
memory.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from metadata.ids import BookieId, LedgerId
from quire.operate.fields import Json

EXAMPLES_MAX: Final = 3
NAMES_SHOWN_MAX: Final = 10
AS_ABOVE: Final = "as above"


@dataclass(slots=True)
class LedgerSample:
    """Number of ledgers, and the first ids."""

    count: int = 0
    first: list[LedgerId] = field(default_factory=list)

    def add(self, ledger_id: LedgerId) -> None:
        """Count one more ledger."""
        self.count += 1
        if len(self.first) < EXAMPLES_MAX:
            self.first.append(ledger_id)

    @property
    def text(self) -> str:
        """The number of ledgers; the id if there is one."""
        return f"ledger {self.first[0]}" if self.count == 1 else f"{self.count} ledgers"

    @property
    def examples(self) -> str:
        """The first ids, as the rest of a sentence; empty if the text names the only one."""
        if self.count == 1:
            return ""
        ids = ", ".join(map(str, self.first))
        return f" (for example {ids})" if self.count > len(self.first) else f" ({ids})"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, and the next step for the operator."""

    where: str
    what: str
    advice: str
    ledgers: LedgerSample | None = None
    """The ledgers that it concerns; None if it does not concern ledgers, or they were not read."""

    def as_json(self) -> dict[str, Json]:
        """Return the fields."""
        row: dict[str, Json] = {"where": self.where, "what": self.what, "advice": self.advice}
        if self.ledgers is not None:
            row |= {"ledger_count": self.ledgers.count, "example_ledgers": list(self.ledgers.first)}
        return row


@dataclass(frozen=True, slots=True)
class LedgerFinding:
    """A problem of one ledger."""

    ledger_id: LedgerId
    cause: str
    """The problem in the same words for all ledgers that have it; empty if the findings about
    bookies say it.
    """
    what: str
    advice: str
    down: tuple[BookieId, ...] = ()
    """The bookies that cause it."""


@dataclass(slots=True)
class _Group:
    first: LedgerFinding
    ledgers: LedgerSample = field(default_factory=LedgerSample)
    down: dict[BookieId, None] = field(default_factory=dict)

    @property
    def finding(self) -> Finding:
        first, ledgers = self.first, self.ledgers
        if ledgers.count == 1:
            return Finding(ledgers.text, first.what, first.advice, ledgers)
        down = f"; these bookies are down: {names(self.down)}" if self.down else ""
        return Finding(
            ledgers.text, f"{first.cause}{down}{ledgers.examples}", first.advice, ledgers
        )


class LedgerGroups:
    """Groups of ledgers that have the same problem."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], _Group] = {}

    def add(self, findings: Iterable[LedgerFinding]) -> None:
        """Add the problems of a ledger to their groups."""
        for finding in findings:
            if finding.cause:
                group = self._groups.setdefault((finding.cause, finding.advice), _Group(finding))
                group.ledgers.add(finding.ledger_id)
                group.down |= dict.fromkeys(finding.down)

    def findings(self) -> list[Finding]:
        """Return one finding for each group."""
        return [group.finding for group in self._groups.values()]


def by_advice(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings with those of one advice after each other; all but the first of them refer
    to the one above.
    """
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.advice, []).append(finding)
    return [
        replace(finding, advice=AS_ABOVE) if position and finding.advice else finding
        for group in groups.values()
        for position, finding in enumerate(group)
    ]


def names(bookies: Iterable[str], shown_max: int = NAMES_SHOWN_MAX) -> str:
    """Return the names of some bookies, at most `shown_max` of them."""
    all_names = list(bookies)
    shown = ", ".join(all_names[:shown_max])
    more = len(all_names) - shown_max
    return f"{shown} and {more} more" if more > 0 else shown
