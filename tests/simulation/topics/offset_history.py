"""Keeps what committers of offsets were promised, and judges each offset that a group is told.

Leaves records to `history`.

Every commit of a group for a partition has a number of its own as its offset, larger than all
before it. What was asked and not answered may take effect at any later time, unless something shut
it out: the next owner of the partition does so, in a group with members.

Invariants checked: an offset that was acknowledged is not forgotten (offset lost) nor replaced by
an older one (offset back); an offset of a transaction is told only if the transaction may be
committed (aborted offset).
"""

from dataclasses import dataclass, field

from tests.simulation.model import Model
from tests.simulation.topics.history import Outcome, TransactionHistory

GroupPlace = tuple[str, int]
"""A group, and the partition that it commits for."""


@dataclass(slots=True)
class GroupHistory:
    """What one group commits for one partition."""

    last: int = 0
    """The last number that was given out."""
    acknowledged: int | None = None
    asked: dict[int, TransactionHistory | None] = field(default_factory=dict)
    """What may be committed, with its transaction if it is of one."""


class OffsetHistory:
    """The offsets of all groups of a run."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.groups: dict[GroupPlace, GroupHistory] = {}

    def group(self, place: GroupPlace) -> GroupHistory:
        """Return what is known of a group's partition."""
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
        """Take note that an offset is committed, and so is its transaction."""
        group = self.group(place)
        self._model.note("offset", f"{place} {offset}")
        group.acknowledged = max(offset, group.acknowledged or 0)
        if group.asked.get(offset) is None:
            group.asked.pop(offset, None)

    def note_refused(self, place: GroupPlace, offset: int) -> None:
        """Take note that an offset is not, and will not be, committed."""
        self.group(place).asked.pop(offset, None)

    def note_taken_over(self, place: GroupPlace, asked: list[int], offset: int) -> None:
        """Take note that a new owner was told `offset`, and what others had `asked` to commit when
        it became the owner: of that nothing takes effect any more.
        """
        group = self.group(place)
        if offset >= 0:
            group.acknowledged = max(offset, group.acknowledged or 0)
        for each in asked:
            group.asked.pop(each, None)

    def note_told(self, who: str, place: GroupPlace, before: int | None, offset: int) -> None:
        """Judge what a group was told, to what was asked when `before` was acknowledged."""
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
            self._report("offset back", place, f"{who} was told {offset}, of nobody")

    def _report(self, kind: str, place: GroupPlace, text: str) -> None:
        self._model.report(kind, f"{place[0]}, partition {place[1]}: {text}")
