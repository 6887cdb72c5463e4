"""Says which of Kafka's guarantees were broken, from what was told and what is there at the end.

Leaves gathering both to the processes and to `checker`.

Invariant: pure. A record that nobody was told of may be there, once, in its writer's order; every
other difference is a violation.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.campaign.judge import Violation
from tests.campaign.topics.facts import Facts, GroupFacts, Outcome, Token
from tests.campaign.topics.spans import Span

Spans = Mapping[int, list[Span]]
Place = tuple[str, int]
"""A writer, and which of its records in a partition."""


@dataclass(slots=True)
class Found:
    """What a fresh consumer read of a topic from beginning to end."""

    spans: dict[int, list[Span]] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def count(self) -> int:
        """How many records were read."""
        return sum(span.count for spans in self.spans.values() for span in spans)


def judge_log(topic: str, found: Found) -> list[Violation]:
    """Find records that are there twice, out of their writer's order, or written by nobody."""
    violations = [Violation("foreign", 0, 1, f"{topic}: {each}") for each in found.foreign]
    if found.error:
        violations.append(Violation("unreadable", 0, 1, f"{topic}: {found.error}"))
    for partition, spans in found.spans.items():
        last_offset = -1
        latest: dict[str, int] = {}
        seen: dict[Place, int] = {}
        for span in spans:
            where = f"{topic} {partition}, offset {span.offset}: {span.writer} {span.sequence}"
            if span.offset <= last_offset:
                violations.append(
                    Violation("offsets", partition, 1, f"{where} after {last_offset}")
                )
            last_offset = span.offset + span.count - 1
            repeated = [o for s, o in span.records() if (span.writer, s) in seen]
            if repeated:
                text = f"{where}: {len(repeated)} records are there already"
                violations.append(Violation("duplicate", partition, len(repeated), text))
            elif span.sequence <= latest.get(span.writer, -1):
                text = f"{where} after {latest[span.writer]}"
                violations.append(Violation("order", partition, 1, text))
            latest[span.writer] = max(latest.get(span.writer, -1), span.sequence + span.count - 1)
            seen |= {(span.writer, s): o for s, o in span.records()}
    return violations


def judge_acked(facts: Facts, found: Found) -> list[Violation]:
    """Find acknowledged records that are not there, or not where their producer was told."""
    violations = []
    for partition, spans in facts.acked.items():
        places = _places(found.spans.get(partition, []))
        for span in spans:
            lost = [s for s, _ in span.records() if (span.writer, s) not in places]
            if lost:
                text = f"plain {partition}: {span.writer} {lost[0]}..{lost[-1]}, told {span.offset}"
                violations.append(Violation("lost", partition, len(lost), text))
            elsewhere = [
                (s, o, places[span.writer, s])
                for s, o in span.records()
                if places.get((span.writer, s), o) != o
            ]
            if elsewhere:
                text = f"plain {partition}: {span.writer}: (record, told, is) {elsewhere[0]}"
                violations.append(Violation("misplaced", partition, len(elsewhere), text))
    return violations


def judge_tokens(tokens: Mapping[str, Token], committed: Found) -> list[Violation]:
    """Find committed tokens that are not there whole, aborted ones that are there, others that are
    there in part, and records that belong to none.
    """
    violations = []
    places = {partition: _places(spans) for partition, spans in committed.spans.items()}
    owned: Counter[int] = Counter()
    for name, token in tokens.items():
        there: Counter[int] = Counter()
        for partition, (first, count) in token.parts.items():
            held = places.get(partition, {})
            there[partition] = sum((token.writer, first + n) in held for n in range(count))
        owned.update(there)
        total, wanted = there.total(), sum(count for _, count in token.parts.values())
        text = f"token {name}: {dict(there)} of {token.parts}"
        if token.outcome is Outcome.COMMITTED and total < wanted:
            violations.append(Violation("token lost", 0, wanted - total, text))
        elif token.outcome is Outcome.ABORTED and total:
            violations.append(Violation("aborted token", 0, total, text))
        elif token.outcome is Outcome.UNKNOWN and 0 < total < wanted:
            violations.append(Violation("token in part", 0, wanted - total, text))
    strays = committed.count - owned.total()
    if strays:
        violations.append(Violation("stray", 0, strays, "records of no token"))
    return violations


def judge_same(what: str, one: Spans, other: Spans) -> list[Violation]:
    """Find what was read first and is not there later, at the same offset, or came in between."""
    violations = []
    for partition, spans in one.items():
        if not spans:
            continue
        end = spans[-1].offset + spans[-1].count
        mine = list(_records(spans))
        theirs = [each for each in _records(other.get(partition, [])) if each[2] < end]
        differing = set(mine) ^ set(theirs)
        if differing or len(mine) != len(theirs):
            text = (
                f"{what} {partition}: first (writer, record, offset) {min(differing, default=())}"
            )
            violations.append(Violation("differs", partition, len(differing), text))
    return violations


def judge_group(name: str, group: GroupFacts, found: Found) -> list[Violation]:
    """Find committed offsets that went back, records read that are not there, and records before a
    committed offset that nobody of the group read.
    """
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
    for each in commits[next_commit:]:
        _raise_to(highest, each.offsets)
    for partition, end in highest.items():
        there = set(_records(found.spans.get(partition, [])))
        read = set(_records(group.read.get(partition, [])))
        changed, passed = read - there, {each for each in there - read if each[2] < end}
        for kind, records in (("read otherwise", changed), ("passed over", passed)):
            if records:
                text = f"{name}, {partition}: first {min(records, key=lambda each: each[2])}"
                violations.append(Violation(kind, partition, len(records), text))
    return violations


def judge_ends(facts: Facts) -> list[Violation]:
    """Find ends of partitions that were shown once and taken back later."""
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


def _places(spans: Iterable[Span]) -> dict[Place, int]:
    return {(span.writer, s): o for span in spans for s, o in span.records()}


def _records(spans: Iterable[Span]) -> Iterable[tuple[str, int, int]]:
    return ((span.writer, s, o) for span in spans for s, o in span.records())
