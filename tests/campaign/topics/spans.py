"""Compact lists of record positions: one writer's successive records at successive offsets.

Leaves the contents of records to `payloads`, and the expected positions to `judge`.

Format in a history: a span is [writer, first sequence, first offset, count], per partition.

Invariant: memory grows with the spans, 32 bytes each, never with the records. Tens of millions of
records are some hundred thousand spans, since a batch is one.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.campaign.topics.payloads import Identity, identify, payload_at, prefix_of

SpanWords = Sequence[str | int]
WORDS: Final = 4
"""Fields of a span in a list: its writer's number, sequence, offset, count."""


@dataclass(frozen=True, slots=True)
class Span:
    """Records sequence, sequence + 1, ... of a writer, at offset, offset + 1, ..."""

    writer: str
    sequence: int
    offset: int
    count: int


class SpanList:
    """Spans in the order in which they were added.

    A span that continues the last one is joined to it.
    """

    __slots__ = ("_numbers", "_words")

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._numbers: dict[str, int] = {}
        self._words = array("q")
        for span in spans:
            self.add(span.writer, span.sequence, span.offset, span.count)

    def add(self, writer: str, sequence: int, offset: int, count: int) -> None:
        """Add a span at the end."""
        words = self._words
        number = self._numbers.setdefault(writer, len(self._numbers))
        if (
            words
            and words[-4] == number
            and words[-3] + words[-1] == sequence
            and words[-2] + words[-1] == offset
        ):
            words[-1] += count
        else:
            words.extend((number, sequence, offset, count))

    def __iter__(self) -> Iterator[Span]:
        names, words = list(self._numbers), self._words
        for at in range(0, len(words), WORDS):
            yield Span(names[words[at]], words[at + 1], words[at + 2], words[at + 3])

    def __len__(self) -> int:
        return len(self._words) // WORDS

    @property
    def count(self) -> int:
        """Number of records."""
        return sum(self._words[WORDS - 1 :: WORDS])

    @property
    def end(self) -> int:
        """Offset after the last record."""
        return self._words[-2] + self._words[-1] if self._words else 0

    def words(self) -> list[list[str | int]]:
        """Return the form that is written to a history."""
        return [[span.writer, span.sequence, span.offset, span.count] for span in self]


class SpanMaker:
    """Gathers records of known writers for each partition."""

    def __init__(self) -> None:
        self.spans: dict[int, SpanList] = {}

    def add(self, partition: int, writer: str, sequence: int, offset: int) -> None:
        """Add one record."""
        held = self.spans.get(partition)
        if held is None:
            held = self.spans[partition] = SpanList()
        held.add(writer, sequence, offset, 1)

    def take(self) -> dict[str, list[list[str | int]]]:
        """Return the history's form of all gathered records, and start again."""
        words = {str(key): spans.words() for key, spans in self.spans.items()}
        self.spans = {}
        return words


class Run:
    """Records of one writer that followed each other in a partition, as far as they were read."""

    __slots__ = ("count", "offset", "prefix", "sequence", "writer")

    def __init__(self, identity: Identity, offset: int) -> None:
        self.writer = identity.writer
        self.prefix = prefix_of(identity.writer, identity.partition)
        self.sequence = identity.sequence
        self.offset = offset
        self.count = 1


class Recogniser:
    """Identifies records and gathers them; fast if one follows the other."""

    def __init__(self) -> None:
        self._runs: dict[int, Run] = {}
        self._spans: dict[int, SpanList] = {}

    def take(self, partition: int, offset: int, value: bytes | None) -> bool:
        """Add one record; return whether a writer can have written it there."""
        run = self._runs.get(partition)
        if run is not None:
            count = run.count
            if offset == run.offset + count and value == payload_at(
                run.prefix, run.sequence + count
            ):
                run.count = count + 1
                return True
        identity = identify(value, partition)
        if identity is None:
            return False
        self._close(partition)
        self._runs[partition] = Run(identity, offset)
        return True

    def spans(self) -> dict[int, SpanList]:
        """Return all gathered spans, and start again."""
        for partition in self._runs:
            self._close(partition)
        spans, self._spans = self._spans, {}
        return spans

    def words(self) -> dict[str, list[list[str | int]]]:
        """Return the same as `spans`, in the form of a history."""
        return {str(key): spans.words() for key, spans in self.spans().items()}

    def _close(self, partition: int) -> None:
        """Turn a run into a span; the next record starts from there."""
        run = self._runs.get(partition)
        if run is None or not run.count:
            return
        spans = self._spans.setdefault(partition, SpanList())
        spans.add(run.writer, run.sequence, run.offset, run.count)
        run.sequence += run.count
        run.offset += run.count
        run.count = 0


def add_words(
    to: dict[int, SpanList], words_by_partition: Mapping[str, Sequence[SpanWords]]
) -> dict[int, int]:
    """Add the spans of one line of a history; return the number of records of each partition."""
    counts: dict[int, int] = {}
    for partition, spans in words_by_partition.items():
        held = to.setdefault(int(partition), SpanList())
        counts[int(partition)] = sum(int(words[3]) for words in spans)
        for writer, sequence, offset, count in spans:
            held.add(str(writer), int(sequence), int(offset), int(count))
    return counts
