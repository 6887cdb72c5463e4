"""How safe the entries of a ledger are: in ranges, with reasons, and in a sentence. Pure.

Leaves counting copies to `parts`, and drawing to `quire.console.drawings`.

Source: protocol rules 3.1, 4.5, 5.1 and 9.9.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from quire.console.ledger.parts import Held, Part, Why


class Zone(StrEnum):
    """How safe entries are."""

    FULL = "on all of the write quorum"
    ACK = "at the ack quorum only"
    SHORT = "below the ack quorum"
    UNKNOWN = "not known"
    UNCONFIRMED = "unconfirmed"
    LOST = "loss accepted"


NOT_SAFE: Final = (Zone.ACK, Zone.SHORT, Zone.UNKNOWN)
"""Zones of confirmed entries that lack copies."""


@dataclass(frozen=True, slots=True)
class ZoneRange:
    """Consecutive entries of one fragment with equally many copies."""

    first: int
    last: int
    fragment_index: int
    zone: Zone
    copies: int
    wanted: int
    lacking: tuple[tuple[BookieId, Why], ...]

    @property
    def count(self) -> int:
        """Number of entries."""
        return self.last - self.first + 1

    def is_like(self, other: "ZoneRange") -> bool:
        """Return whether other entries differ only by their ids."""
        mine = (self.fragment_index, self.zone, self.copies, self.wanted, self.lacking)
        theirs = (other.fragment_index, other.zone, other.copies, other.wanted, other.lacking)
        return mine == theirs


def zone_of(part: Part) -> Zone:
    """Return how safe entries are."""
    if part.is_lost:
        return Zone.LOST
    if not part.is_confirmed:
        return Zone.UNCONFIRMED
    if not part.lacking:
        return Zone.FULL
    if part.copies >= part.ack_quorum:
        return Zone.ACK
    return Zone.SHORT if part.copies + part.unknown < part.ack_quorum else Zone.UNKNOWN


def zone_ranges(found: Iterable[Part]) -> list[ZoneRange]:
    """Return the zones of parts; neighbours that are alike are joined."""
    joined: list[ZoneRange] = []
    for part in found:
        each = ZoneRange(
            part.first,
            part.last,
            part.fragment_index,
            zone_of(part),
            part.copies,
            len(part.assigned),
            part.lacking,
        )
        if joined and joined[-1].is_like(each):
            joined[-1] = replace(joined[-1], last=each.last)
        else:
            joined.append(each)
    return joined


def sentence(ranges: Sequence[ZoneRange], *, is_end_known: bool) -> str:
    """Return how many copies the confirmed entries of a ledger have."""
    said = _copies_text(ranges)
    return said if is_end_known else f"{said} Which later entries are confirmed is not known."


def _copies_text(ranges: Sequence[ZoneRange]) -> str:
    groups: dict[tuple[int, int, str], list[ZoneRange]] = {}
    for each in ranges:
        if each.zone in NOT_SAFE:
            is_certain = all(why is Why.MISSING for _, why in each.lacking)
            limit = "" if is_certain else " on the bookies that answered"
            groups.setdefault((each.copies, each.wanted, limit), []).append(each)
    full = sum(each.count for each in ranges if each.zone is Zone.FULL)
    texts = [_group_text(*key, groups[key]) for key in sorted(groups)]
    if full:
        are = "is" if full == 1 else "are"
        others = f"{full:,} other entr{'y' if full == 1 else 'ies'}" if texts else _entries(full)
        texts.append(f"{others} {are} on all of the write quorum.")
    if texts:
        return " ".join(texts)
    return "No entry is known to be confirmed."


def reasons(ledger: LedgerMetadata, entries: ZoneRange, held: Mapping[BookieId, Held]) -> list[str]:
    """Return why copies are not known to exist, one text for each bookie."""
    return [_reason(ledger, entries, each, why, held.get(each)) for each, why in entries.lacking]


def _reason(
    ledger: LedgerMetadata, entries: ZoneRange, bookie_id: BookieId, why: Why, held: Held | None
) -> str:
    if why is Why.DOWN:
        return f"{bookie_id} is down"
    if why is Why.NOT_CHECKED:
        problem = "" if held is None else held.problem
        return f"{bookie_id} was not checked" + (f": {problem}" if problem else "")
    following = ledger.fragments[entries.fragment_index + 1 : entries.fragment_index + 2]
    if following and bookie_id not in following[0].ensemble:
        return (
            f"{bookie_id} does not list them: it was replaced from entry "
            f"{following[0].first_entry_id} on, and never stored them, or lost them"
        )
    if entries.last == ledger.last_entry_id:
        return (
            f"{bookie_id} does not list them: the ledger was closed or recovered before it stored "
            "them, or it lost them"
        )
    return f"{bookie_id} does not list them: it never stored them, or lost them"


def _group_text(copies: int, wanted: int, limit: str, group: Sequence[ZoneRange]) -> str:
    count, number = sum(each.count for each in group), _joined_count(group)
    text = f"{number:,} entry range{'' if number == 1 else 's'} ({_entries(count)}) "
    text += "has" if number == 1 else "have"
    return f"{text} {copies} of {wanted} copies{limit}."


def _joined_count(group: Sequence[ZoneRange]) -> int:
    """Return the number of ranges, where those that touch are one."""
    starts = {each.first for each in group}
    return sum(each.last + 1 not in starts for each in group)


def _entries(count: int) -> str:
    return f"{count:,} entr{'y' if count == 1 else 'ies'}"
