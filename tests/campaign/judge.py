"""Decision whether one ledger kept its guarantees, from its writer's history and the evidence.
Pure.

Leaves gathering the evidence to `checker`.

Source: protocol, "Invariants that the simulation checks at every step".
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tests.campaign.history import LedgerHistory

Range = tuple[int, int]
Reporter = Callable[[str, int, str], None]
"""Receives a kind, a count (0: no violation) and a text."""
EXAMPLES_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Copies:
    """Entries found at one bookie by direct reads."""

    bookie_id: str
    valid: tuple[Range, ...]
    """Entries with a valid digest and the same bytes as the client read."""
    differing: tuple[Range, ...] = ()
    """Entries with a valid digest and other bytes."""
    damaged: tuple[Range, ...] = ()
    """Entries that the bookie holds, but that fail their digest or are not readable."""
    missing: tuple[Range, ...] = ()
    """Entries that the bookie must hold, and denies."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """State of a ledger after it was closed and all bookies run again."""

    state: str
    last_entry_id: int | None
    length: int | None
    fragment_firsts: tuple[int, ...]
    ack_quorum: int
    read_digests: dict[Range, str]
    """For each acknowledged range, the digest of what a new client read; missing if the read did
    not reach it.
    """
    read_bytes: int
    foreign: tuple[int, ...]
    """Entries that a new client read, whose bytes are not those made for their ids."""
    copies: tuple[Copies, ...]
    copies_wanted: tuple[int, ...] = ()
    """For each fragment, if they differ: the expected copies of its acknowledged entries. Empty:
    `ack_quorum` for all."""
    tailed: int | None = None
    """Number of entries that a tailing reader got until the end of the ledger."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken guarantee; `count` is the number of entries where that applies."""

    kind: str
    ledger_id: int
    count: int
    text: str


def judge(history: LedgerHistory, evidence: Evidence) -> list[Violation]:
    """Return every broken guarantee of one ledger."""
    found: list[Violation] = []

    def report(kind: str, count: int, text: str) -> None:
        if count:
            found.append(Violation(kind, history.ledger_id, count, text))

    _judge_end(history, evidence, report)
    _judge_acked(history, evidence, report)
    _judge_copies(history, evidence, report)
    report("changed", len(evidence.foreign), f"bytes of other entries at {_few(evidence.foreign)}")
    report("lac went back", history.lac_regressions, "the LAC that its writer showed")
    if evidence.tailed is not None and evidence.last_entry_id is not None:
        off = abs(evidence.tailed - (evidence.last_entry_id + 1))
        text = f"a tailing reader was given {evidence.tailed} of {evidence.last_entry_id + 1}"
        report("tail", off, text)
    return found


def _judge_end(history: LedgerHistory, evidence: Evidence, report: Reporter) -> None:
    last = evidence.last_entry_id
    if evidence.state != "closed" or last is None:
        report("not closed", 1, f"its state is {evidence.state}")
        return
    beyond = max([history.lac, *(acked_range.last for acked_range in history.acked)]) - last
    report("lost", max(0, beyond), f"closed at {last}, before the last acknowledged entry")
    if history.end_last is not None and history.end_last != last:
        text = f"was told to end at {history.end_last}, and ends at {last}"
        report("two ends", abs(history.end_last - last), text)
    if evidence.read_bytes != evidence.length:
        text = f"has {evidence.read_bytes} bytes and says {evidence.length}"
        report("length", 1, text)
    firsts = evidence.fragment_firsts
    ok = bool(firsts) and firsts[0] == 0 and all(a < b for a, b in pairwise(firsts))
    report("fragments", int(not ok or firsts[-1] > last + 1), f"fragments start at {firsts}")


def _judge_acked(history: LedgerHistory, evidence: Evidence, report: Reporter) -> None:
    ranges = sorted((acked_range.first, acked_range.last) for acked_range in history.acked)
    twice = sum(max(0, before[1] - after[0] + 1) for before, after in pairwise(ranges))
    report("duplicate", twice, "ids that were given to two appends")
    for acked_range in history.acked:
        size, name = (
            acked_range.last - acked_range.first + 1,
            f"entries {acked_range.first}..{acked_range.last}",
        )
        digest = evidence.read_digests.get((acked_range.first, acked_range.last))
        if digest is None:
            report("lost", size, f"{name} were acknowledged and cannot be read")
        elif digest != acked_range.digest:
            report("changed", size, f"{name} are not what was acknowledged")


def _judge_copies(history: LedgerHistory, evidence: Evidence, report: Reporter) -> None:
    for copies in evidence.copies:
        where = f"at {copies.bookie_id}"
        differing, damaged = copies.differing, copies.damaged
        report("diverged", _count(differing), f"valid, with other bytes {where}: {_few(differing)}")
        report("damaged", _count(damaged), f"held, and not valid {where}: {_few(damaged)}")
        if history.is_closed_by_writer and copies.bookie_id not in history.members:
            text = f"not held {where}, which only repair made a member: {_few(copies.missing)}"
            report("incomplete", _count(copies.missing), text)
    confirmed = max([history.lac, *(acked_range.last for acked_range in history.acked)])
    if confirmed < 0:
        return
    valid = [copy.valid for copy in evidence.copies]
    for within, wanted in _copies_wanted(evidence, confirmed):
        thin = covered_less_than(wanted, within, valid)
        text = f"fewer than {wanted} valid copies of acknowledged entries: {_few(thin)}"
        report("under-replicated", _count(thin), text)


def _copies_wanted(evidence: Evidence, confirmed: int) -> list[tuple[Range, int]]:
    if not evidence.copies_wanted:
        return [((0, confirmed), evidence.ack_quorum)]
    ends = [*(first - 1 for first in evidence.fragment_firsts[1:]), confirmed]
    parts = zip(evidence.fragment_firsts, ends, evidence.copies_wanted, strict=True)
    return [
        ((first, min(last, confirmed)), wanted)
        for first, last, wanted in parts
        if first <= confirmed
    ]


def covered_less_than(times: int, within: Range, sets: Iterable[Sequence[Range]]) -> list[Range]:
    """Return the parts of `within` that fewer than `times` of the sets of ranges contain."""
    steps: dict[int, int] = {within[0]: 0, within[1] + 1: 0}
    for ranges in sets:
        for first, last in ranges:
            low, high = max(first, within[0]), min(last, within[1])
            if low <= high:
                steps[low] = steps.get(low, 0) + 1
                steps[high + 1] = steps.get(high + 1, 0) - 1
    thin: list[Range] = []
    depth = 0
    for at, after in pairwise(sorted(steps)):
        depth += steps[at]
        if depth < times:
            thin.append((at, after - 1))
    return thin


def _count(ranges: Iterable[Range]) -> int:
    return sum(last - first + 1 for first, last in ranges)


def _few(items: Sequence[object]) -> str:
    shown = ", ".join(map(str, items[:EXAMPLES_MAX]))
    return shown + (f" and {len(items) - EXAMPLES_MAX} more" if len(items) > EXAMPLES_MAX else "")
