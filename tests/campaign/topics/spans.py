"""Where records are, told in few words: one writer's successive records at successive offsets.

Leaves what a record holds to `payloads`, and what is to be where to `judge`.

Format in a history: a span is [writer, first sequence, first offset, count], per partition.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

SpanWords = Sequence[str | int]


@dataclass(frozen=True, slots=True)
class Span:
    """Records sequence, sequence + 1, ... of a writer, at offset, offset + 1, ..."""

    writer: str
    sequence: int
    offset: int
    count: int

    def records(self) -> Iterator[tuple[int, int]]:
        """Yield (sequence, offset) of each record."""
        for number in range(self.count):
            yield self.sequence + number, self.offset + number

    def words(self) -> list[str | int]:
        """Return what is written to a history."""
        return [self.writer, self.sequence, self.offset, self.count]


def span_of(words: SpanWords) -> Span:
    """Return what words of a history mean."""
    writer, sequence, offset, count = words
    return Span(str(writer), int(sequence), int(offset), int(count))


@dataclass(slots=True)
class SpanMaker:
    """Gathers records, partition by partition, in the order in which they come."""

    spans: dict[int, list[Span]] = field(default_factory=dict)

    def add(self, partition: int, writer: str, sequence: int, offset: int) -> None:
        """Add one record."""
        held = self.spans.setdefault(partition, [])
        if held:
            last = held[-1]
            follows = last.sequence + last.count == sequence and last.offset + last.count == offset
            if last.writer == writer and follows:
                held[-1] = Span(writer, last.sequence, last.offset, last.count + 1)
                return
        held.append(Span(writer, sequence, offset, 1))

    def take(self) -> dict[str, list[list[str | int]]]:
        """Return the words for all that was gathered, and begin anew."""
        words = {str(key): [each.words() for each in spans] for key, spans in self.spans.items()}
        self.spans = {}
        return words


def add_words(
    to: dict[int, list[Span]], words_by_partition: Mapping[str, Iterable[SpanWords]]
) -> None:
    """Add the spans of one line of a history."""
    for partition, spans in words_by_partition.items():
        to.setdefault(int(partition), []).extend(span_of(words) for words in spans)
