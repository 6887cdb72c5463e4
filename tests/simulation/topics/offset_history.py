"""Promises to committers of offsets, and the check of each offset that a group receives.

Leaves records to `history`.

Every commit of a group for a partition has a new number as its offset, larger than all before it. A
request without an answer may take effect at any later time, unless it was shut out: the next owner
of the partition does so, in a group with members.

Invariants checked: an acknowledged offset is not lost (offset lost) nor replaced by an older one
(offset back). An offset of a transaction is returned only if the transaction may be committed
(aborted offset).
"""

from dataclasses import dataclass, field

from tests.simulation.model import Model
from tests.simulation.topics.history import Outcome, TransactionHistory

GroupPlace = tuple[str, int]
"""A group, and the partition that it commits for."""


@dataclass(slots=True)
class GroupHistory:
    """Commits of one group for one partition."""

    last: int = 0
    """Last number that was assigned."""
    acknowledged: int | None = None
    asked: dict[int, TransactionHistory | None] = field(default_factory=dict)
    """Offsets that may be committed, with their transaction if they have one."""


class OffsetHistory:
    """The offsets of all groups of a run."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.groups: dict[GroupPlace, GroupHistory] = {}

    def group(self, place: GroupPlace) -> GroupHistory:
        """Return the history of a group's partition."""
        found = self.groups.get(place)
        if found is None:
            found = self.groups[place] = GroupHistory()
        return found

    def ask(self, place: GroupPlace, transaction: TransactionHistory | None = None) -> int:
        """Return an offset that is about to be committed."""
        group = self.group(place)
        group.last += 1
        group.asked[group.last] = transaction
        return group.last

    def note_acknowledged(self, place: GroupPlace, offset: int) -> None:
        """Record that an offset is committed, and so is its transaction."""
        group = self.group(place)
        self._model.note("offset", f"{place} {offset}")
        group.acknowledged = max(offset, group.acknowledged or 0)
        if group.asked.get(offset) is None:
            group.asked.pop(offset, None)

    def note_refused(self, place: GroupPlace, offset: int) -> None:
        """Record that an offset is not, and will not be, committed."""
        self.group(place).asked.pop(offset, None)

    def note_taken_over(self, place: GroupPlace, asked: list[int], offset: int) -> None:
        """Record that a new owner received `offset`.

        `asked` are the offsets that others had requested to commit when it became the owner: none
        of them takes effect any more.
        """
        group = self.group(place)
        if offset >= 0:
            group.acknowledged = max(offset, group.acknowledged or 0)
        for each in asked:
            group.asked.pop(each, None)

    def note_told(self, who: str, place: GroupPlace, before: int | None, offset: int) -> None:
        """Check the offset that a group received, for a request sent when `before` was
        acknowledged.
        """
        group = self.group(place)
        if offset < 0:
            if before is not None:
                self._report("offset lost", place, f"{who} was told none, not {before}")
            return
        transaction = group.asked.get(offset)
        if transaction is not None and transaction.outcome in (Outcome.OPEN, Outcome.ABORTED):
            text = f"{who} was told {offset} of {transaction.name}, {transaction.outcome}"
            self._report("aborted offset", place, text)
        elif transaction is not None:
            transaction.seen = transaction.seen or f"{who} was told {offset} of it"
        is_late = offset in group.asked and transaction is None
        if before is not None and offset < before and not is_late:
            self._report("offset back", place, f"{who} was told {offset}, not {before}")
        if offset not in group.asked and offset > (group.acknowledged or 0):
            self._report(
                "offset back", place, f"{who} received {offset}, which no client committed"
            )

    def _report(self, kind: str, place: GroupPlace, text: str) -> None:
        self._model.report(kind, f"{place[0]}, partition {place[1]}: {text}")
