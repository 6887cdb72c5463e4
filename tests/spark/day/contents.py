"""Lines of files or of ledgers, and how they differ.

Invariants: equal digests mean the same lines in the same order, because a line has no line feed.
"""

import hashlib
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from ledger_client.sync import LedgerClient
from tests.spark.day.times import LATE_MS, WINDOW_MS, time_ms

EXAMPLES_MAX = 5

Windows = dict[int, tuple[int, int, int]]
"""Start of a window in milliseconds -> its lines, their bytes, the sum of their CRC-32."""


class Contents:
    """Numbers, lengths and checksums of lines in order, and one SHA-256 over the lines."""

    def __init__(self) -> None:
        self.numbers, self.lengths, self.checksums = array("q"), array("I"), array("I")
        self._hash = hashlib.sha256()

    def add(self, lines: Sequence[bytes]) -> None:
        """Add lines at the end."""
        self.numbers.extend(int(line[: line.index(b"\t")]) for line in lines)
        self.lengths.extend(map(len, lines))
        self.checksums.extend(map(zlib.crc32, lines))
        self._hash.update(b"".join(line + b"\n" for line in lines))

    @property
    def digest(self) -> str:
        """SHA-256 over the lines, each with a line feed."""
        return self._hash.hexdigest()

    def windows(self) -> Windows:
        """Return the windows that a query with a watermark has closed after these lines."""
        watermark = max(map(time_ms, self.numbers), default=0) - LATE_MS
        found: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        for number, length, checksum in zip(
            self.numbers, self.lengths, self.checksums, strict=True
        ):
            window = found[time_ms(number) // WINDOW_MS * WINDOW_MS]
            window[0] += 1
            window[1] += length
            window[2] += checksum
        return {
            start: (count, size, total)
            for start, (count, size, total) in found.items()
            if start + WINDOW_MS <= watermark
        }


def contents_of_files(paths: Iterable[Path]) -> Contents:
    """Read numbered files, one after the other."""
    found = Contents()
    for path in paths:
        found.add(path.read_bytes().removesuffix(b"\n").split(b"\n"))
    return found


def contents_of_ledgers(client: LedgerClient, ledger_ids: Iterable[int]) -> Contents:
    """Read ledgers, one after the other, with the ledger client."""
    found = Contents()
    for ledger_id in ledger_ids:
        with client.open_ledger(ledger_id) as reader:
            for batch in reader.read():
                found.add([entry.data for entry in batch])
    return found


def ledgers_of_chain(client: LedgerClient, name: str) -> list[int]:
    """Return the ids of a chain's ledgers, in order."""
    chain = client.chain(name)
    info = chain.info()
    links = chain.links(info.first_index, info.next_index)
    return [ledger.ledger_id for _, link in links if link is not None for ledger in link.ledgers]


def line_differences(name: str, expected: Contents, found: Contents) -> list[str]:
    """Return how lines differ: lost, repeated, unknown, in another order, with another text."""
    if expected.digest == found.digest:
        return []
    wanted, there = Counter(expected.numbers), Counter(found.numbers)
    kinds = {
        "lost": wanted - there,
        "too often or unknown": there - wanted,
    }
    differences = [
        f"{name}: {numbers.total()} lines {kind}, such as {sorted(numbers)[:EXAMPLES_MAX]}"
        for kind, numbers in kinds.items()
        if numbers
    ]
    if differences:
        return differences
    for position, (one, other) in enumerate(zip(expected.numbers, found.numbers, strict=True)):
        if one != other:
            return [f"{name}: line {other} is at position {position}, where line {one} belongs"]
    pairs = zip(found.numbers, expected.checksums, found.checksums, strict=True)
    changed = [number for number, one, other in pairs if one != other]
    return [f"{name}: {len(changed)} lines have another text, such as {changed[:EXAMPLES_MAX]}"]


def window_differences(expected: Windows, found: Sequence[tuple[int, int, int, int]]) -> list[str]:
    """Return how rows (start, lines, bytes, checksums) of a table differ from the windows."""
    starts = Counter(start for start, *_ in found)
    differences = [f"window {start}: {n} rows" for start, n in starts.items() if n > 1]
    rows: Windows = {start: (count, size, total) for start, count, size, total in found}
    differences += [
        f"window {start}: {rows.get(start)} in the table, {expected.get(start)} from the files"
        for start in sorted(expected.keys() | rows.keys())
        if rows.get(start) != expected.get(start)
    ]
    return differences
