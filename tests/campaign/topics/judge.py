"""Kafka's guarantees that were broken, found from the recorded facts and the final contents.

Leaves gathering both to the processes and to `checker`, and comparing ranges to `ranges`.

Invariant: pure. A record without a recorded acknowledgement may be there, once, in its writer's
order. Every other difference is a violation.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.campaign.judge import Violation
from tests.campaign.topics.facts import Facts, GroupFacts, Outcome, Token
from tests.campaign.topics.ranges import Numbers, missing
from tests.campaign.topics.spans import Span, SpanList

Spans = Mapping[int, SpanList]
Place = tuple[str, int]
"""A writer, and the difference between the offsets and the numbers of its records."""


@dataclass(slots=True)
class Found:
    """What a new consumer read of a topic from its beginning to its end."""

    spans: dict[int, SpanList] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def count(self) -> int:
        """Number of records read."""
        return sum(spans.count for spans in self.spans.values())


def judge_log(topic: str, found: Found) -> list[Violation]:
    """Find duplicate records, records out of their writer's order, and records of no writer."""
    violations = [Violation("foreign", 0, 1, f"{topic}: {each}") for each in found.foreign]
    if found.error:
        violations.append(Violation("unreadable", 0, 1, f"{topic}: {found.error}"))
    for partition, spans in found.spans.items():
        last_offset = -1
        latest: dict[str, int] = {}
        seen: dict[str, Numbers] = {}
        for span in spans:
            where = f"{topic} {partition}, offset {span.offset}: {span.writer} {span.sequence}"
            if span.offset <= last_offset:
                text = f"{where} after {last_offset}"
                violations.append(Violation("offsets", partition, 1, text))
            last_offset = span.offset + span.count - 1
            end = span.sequence + span.count
            repeated = seen.setdefault(span.writer, Numbers()).add(span.sequence, end)
            if repeated:
                text = f"{where}: {repeated} records are there already"
                violations.append(Violation("duplicate", partition, repeated, text))
            elif span.sequence <= latest.get(span.writer, -1):
                text = f"{where} after {latest[span.writer]}"
                violations.append(Violation("order", partition, 1, text))
            latest[span.writer] = max(latest.get(span.writer, -1), end - 1)
    return violations


def judge_acked(facts: Facts, found: Found) -> list[Violation]:
    """Find acknowledged records that are missing, or not at their acknowledged offset."""
    violations = []
    for partition, spans in facts.acked.items():
        there = found.spans.get(partition, SpanList())
        lost = missing(_sequences(spans), _sequences(there))
        if lost.first is not None:
            text = f"plain {partition}: (record, writer) {lost.first}"
            violations.append(Violation("lost", partition, lost.count, text))
        unplaced = missing(_offsets(spans), _offsets(there))
        misplaced = unplaced.count - lost.count
        if misplaced and unplaced.first is not None:
            text = f"plain {partition}: one of (writer, record, offset) {_record(unplaced.first)}"
            violations.append(Violation("misplaced", partition, misplaced, text))
    return violations


def judge_tokens(tokens: Mapping[str, Token], committed: Found) -> list[Violation]:
    """Find tokens that are not all or nothing.

    These are committed tokens with missing records, aborted tokens with records, other tokens that
    are there in part, and records of no token.
    """
    violations = []
    held = {partition: _sequences(spans) for partition, spans in committed.spans.items()}
    owned, nothing = 0, Numbers()
    for name, token in tokens.items():
        there: Counter[int] = Counter()
        for partition, (first, count) in token.parts.items():
            numbers = held.get(partition, {}).get(token.writer, nothing)
            there[partition] = numbers.count(first, first + count)
        total, wanted = there.total(), sum(count for _, count in token.parts.values())
        owned += total
        text = f"token {name}: {dict(there)} of {token.parts}"
        if token.outcome is Outcome.COMMITTED and total < wanted:
            violations.append(Violation("token lost", 0, wanted - total, text))
        elif token.outcome is Outcome.ABORTED and total:
            violations.append(Violation("aborted token", 0, total, text))
        elif token.outcome is Outcome.UNKNOWN and 0 < total < wanted:
            violations.append(Violation("token in part", 0, wanted - total, text))
    strays = committed.count - owned
    if strays:
        violations.append(Violation("stray", 0, strays, "records of no token"))
    return violations


def judge_same(what: str, one: Spans, other: Spans) -> list[Violation]:
    """Find records of a first reading that a later one lacks at the same offset, or has others
    between.
    """
    violations = []
    for partition, spans in one.items():
        if not spans:
            continue
        theirs = list(_below(other.get(partition, SpanList()), spans.end))
        first, later = _offsets(spans), _offsets(theirs)
        gone, new = missing(first, later), missing(later, first)
        if gone.count or new.count or spans.count != sum(their.count for their in theirs):
            differing = [_record(each.first) for each in (gone, new) if each.first is not None]
            text = f"{what} {partition}: first (writer, record, offset) {differing}"
            count = gone.count + new.count
            violations.append(Violation("differs", partition, count, text))
    return violations


def judge_unseen(what: str, seen: Spans, committed: Spans) -> list[Violation]:
    """Find records after the end of what a reader saw that had to read to the end."""
    violations = []
    for partition, spans in committed.items():
        end = seen[partition].end if partition in seen else 0
        count = spans.count - sum(span.count for span in _below(spans, end))
        if count:
            text = f"{what} {partition}: {count} records from offset {end} on"
            violations.append(Violation("unseen", partition, count, text))
    return violations


def judge_group(name: str, group: GroupFacts, found: Found) -> list[Violation]:
    """Find violations of one group.

    These are committed offsets that went back, records read that are not there, and records before
    a committed offset that no member read.
    """
    highest, violations = _judge_offsets(name, group)
    for partition, end in highest.items():
        spans = found.spans.get(partition, SpanList())
        read = _offsets(group.read.get(partition, SpanList()))
        changed = missing(read, _offsets(spans))
        passed = missing(_offsets(_below(spans, end)), read)
        for kind, records in (("read otherwise", changed), ("passed over", passed)):
            if records.first is not None:
                text = f"{name}, {partition}: first {_record(records.first)}"
                violations.append(Violation(kind, partition, records.count, text))
    return violations


def _judge_offsets(name: str, group: GroupFacts) -> tuple[dict[int, int], list[Violation]]:
    """Return the highest committed offsets, and those that went back."""
    violations = []
    commits = sorted(group.commits, key=lambda each: each.at)
    highest: dict[int, int] = {}
    next_commit = 0
    for fetch in sorted(group.fetches, key=lambda each: each.asked):
        while next_commit < len(commits) and commits[next_commit].at < fetch.asked:
            _raise_to(highest, commits[next_commit].offsets)
            next_commit += 1
        for partition, least in highest.items():
            if fetch.offsets.get(partition, least) < least:
                text = f"{name}, {partition}: {fetch.offsets[partition]} after {least}: {fetch.by}"
                violations.append(Violation("offset went back", partition, 1, text))
    for commit in commits[next_commit:]:
        _raise_to(highest, commit.offsets)
    return highest, violations


def judge_ends(facts: Facts) -> list[Violation]:
    """Find ends of partitions that went back."""
    violations = []
    for (topic, level), answers in facts.ends.items():
        highest: dict[int, int] = {}
        for answer in answers:
            for partition, end in answer.items():
                if end < highest.get(partition, 0):
                    text = f"{topic} {partition}, {level}: {end} after {highest[partition]}"
                    violations.append(Violation("end went back", partition, 1, text))
            _raise_to(highest, answer)
    return violations


def _raise_to(highest: dict[int, int], offsets: Mapping[int, int]) -> None:
    for partition, offset in offsets.items():
        highest[partition] = max(offset, highest.get(partition, 0))


def _sequences(spans: Iterable[Span]) -> dict[str, Numbers]:
    """Return the records of each writer that are there."""
    found: dict[str, Numbers] = {}
    for span in spans:
        found.setdefault(span.writer, Numbers()).add(span.sequence, span.sequence + span.count)
    return found


def _offsets(spans: Iterable[Span]) -> dict[Place, Numbers]:
    """Return the offsets of the records of each place."""
    found: dict[Place, Numbers] = {}
    for span in spans:
        place = span.writer, span.offset - span.sequence
        found.setdefault(place, Numbers()).add(span.offset, span.offset + span.count)
    return found


def _below(spans: Iterable[Span], end: int) -> Iterable[Span]:
    """Yield spans, cut at an offset."""
    for span in spans:
        count = min(span.count, end - span.offset)
        if count > 0:
            yield Span(span.writer, span.sequence, span.offset, count)


def _record(first: tuple[int, Place]) -> tuple[str, int, int]:
    """Return writer, number and offset of a record that is missing at a place."""
    offset, (writer, shift) = first
    return writer, offset - shift, offset
