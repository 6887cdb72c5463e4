"""Which entries of a ledger are lost, from what its bookies answered. Pure.

Leaves asking the bookies to `quire.repair.losses.survey`, and storing the result to
`quire.repair.losses.acceptance`.

Invariants: what a bookie did not answer is unknown, because only certain answers are recorded; an
entry that one bookie returned is not lost; an unknown copy is lost only if the operator gives up
the bookies that did not answer.

Source: protocol rules 9.10 and 9.11.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from metadata.ids import ENTRY_ID_MAX, BookieId, EntryId
from metadata.ledgers.copies import negatives_needed, write_set
from metadata.ledgers.entry_ranges import Range, common, entry_count, merged, without
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, QuorumSpec
from metadata.ledgers.lost_entries import entries_left


@dataclass(slots=True)
class BookieAnswers:
    """What one bookie said about the entries that it should hold."""

    bookie_id: BookieId
    expected: list[Range]
    gone: str = ""
    """Reason why it counts as lost without a question; empty if it was asked."""
    readable: list[Range] = field(default_factory=list)
    """Entries that it returned, with valid digests."""
    missing: list[Range] = field(default_factory=list)
    """Entries of which it said that it has none."""
    damaged: list[Range] = field(default_factory=list)
    """Entries that it has, and returns damaged or not at all."""
    failure: str = ""
    """Why it did not answer for the others."""

    @property
    def unknown(self) -> list[Range]:
        """Entries of which it gave no certain answer."""
        if self.gone:
            return []
        return without(self.expected, [*self.readable, *self.missing, *self.damaged])


@dataclass(frozen=True, slots=True)
class LossReport:
    """Entries that no bookie returns."""

    answers: tuple[BookieAnswers, ...]
    lost: tuple[Range, ...]
    """Entries that no bookie can return."""
    unknown: tuple[Range, ...]
    """Entries that a bookie without a certain answer may return."""
    given_up: tuple[BookieId, ...] = ()
    """Bookies without a certain answer that the operator gives up."""

    @property
    def unsure_bookies(self) -> dict[BookieId, str]:
        """Bookies whose answers would decide on unknown entries, and what they did instead."""
        return {
            each.bookie_id: each.failure
            for each in self.answers
            if common(each.unknown, self.unknown or self.lost)
        }

    def standing_of(self, answers: BookieAnswers) -> str:
        """Return why a bookie returns none of the lost and the unknown entries, as text."""
        unread = [*self.lost, *self.unknown]
        if answers.gone:
            return answers.gone
        parts = {
            "does not have them": answers.missing,
            "returns them damaged": answers.damaged,
            answers.failure or "gave no certain answer": answers.unknown,
        }
        return "; ".join(text for text, ranges in parts.items() if common(ranges, unread))


def judge_losses(
    ledger: LedgerMetadata,
    answers: Sequence[BookieAnswers],
    given_up: Collection[BookieId] = (),
) -> LossReport:
    """Return the lost entries of a closed ledger, without those accepted before (rule 9.10). What
    the bookies that are `given_up` did not answer counts as lost.
    """
    assert ledger.last_entry_id is not None, "the ledger is closed"
    readable = [entries for each in answers for entries in each.readable]
    unread = without(entries_to_find(ledger), readable)
    asked = (each for each in answers if each.bookie_id not in given_up)
    unknown = common(unread, [entries for each in asked for entries in each.unknown])
    return LossReport(
        tuple(answers), tuple(without(unread, unknown)), tuple(unknown), tuple(given_up)
    )


def entries_to_find(ledger: LedgerMetadata) -> list[Range]:
    """Return the entries of a closed ledger, without those whose loss was accepted."""
    last = ledger.last_entry_id
    return [] if last is None else entries_left(ledger.lost, 0, last)


@dataclass(frozen=True, slots=True)
class AcceptedEnd:
    """End of a ledger whose recovery cannot be decided."""

    last_entry_id: EntryId
    is_proved: bool
    """Whether enough bookies never had the next entry: nothing after the end was acknowledged."""

    @property
    def lost_after(self) -> list[Range]:
        """Entries after the end that may have been acknowledged."""
        return [] if self.is_proved else [(self.last_entry_id + 1, ENTRY_ID_MAX)]


def accepted_end(
    quorum: QuorumSpec, fragment: Fragment, lac: EntryId, answers: Sequence[BookieAnswers]
) -> AcceptedEnd:
    """Return the end of the last fragment (rule 9.11). `lac` is the highest one of the fences, and
    `answers` are those of the members that were not given up, for entries from `lac` + 1 to behind
    the highest one that they hold.
    """
    held = {each.bookie_id: merged([*each.readable, *each.damaged]) for each in answers}
    missing = {each.bookie_id: merged(each.missing) for each in answers}
    highest = max((ranges[-1][1] for ranges in held.values() if ranges), default=lac)
    end = EntryId(max(lac, fragment.first_entry_id - 1))
    for entry_id in map(EntryId, range(end + 1, max(end, highest) + 2)):
        members = write_set(quorum, fragment, entry_id)
        if any(_contains(held.get(each, []), entry_id) for each in members):
            end = entry_id
            continue
        negatives = sum(_contains(missing.get(each, []), entry_id) for each in members)
        if negatives >= negatives_needed(quorum):
            return AcceptedEnd(end, is_proved=entry_id == end + 1)
    return AcceptedEnd(end, is_proved=False)


def lost_count(report: LossReport) -> int:
    """Return the number of lost entries."""
    return entry_count(report.lost)


def _contains(ranges: Sequence[Range], entry_id: EntryId) -> bool:
    return any(first <= entry_id <= last for first, last in ranges)
