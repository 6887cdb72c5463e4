"""What the offsets of ledgers and of topics share: identities, and limits of micro-batches.

Leaves positions to `ledgers.positions` and `topics.topic_offsets`.

A chain, a ledger or a topic that is deleted and created again under its name has another identity:
the creation token of the chain or of the ledger, or the topic's id. A position in the first one
means nothing in the second one.

Format: an offset has the key `$ids` beside its positions: an object with the identity, in
hexadecimal digits, of each chain, ledger or topic by its name. No ledger id, topic name or field of
a chain's position contains a `$`. Example:
{"link": 3, "ledger": 0, "entry": 12, "$ids": {"events": "5f0c..."}}. Only an offset that a user
gives as an option may lack `$ids`.

Invariants: a recorded position is used only with what it was recorded for. An end is exclusive, and
a position never goes back.

Source: Spark design, "Reading".
"""

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, TypeVar

from spark_io.errors import OffsetError, OptionError, RecreatedError
from spark_io.ranges import EntryRange

IDS_KEY: Final = "$ids"

Identities = Mapping[str, str]
"""Identity of each chain, ledger or topic, by name."""
Offset = dict[str, object]
"""Positions, and the identities of what they are in, as a checkpoint has them."""

PlaceT = TypeVar("PlaceT")

_log = logging.getLogger(__name__)


def with_identities(positions: Mapping[str, object], identities: Identities) -> Offset:
    """Return an offset: positions, and the identities of what they are in."""
    return {**positions, IDS_KEY: dict(sorted(identities.items()))}


def separated(offset: object) -> tuple[dict[str, object], Identities]:
    """Return the positions of an offset, and its identities. Raises OffsetError."""
    if not isinstance(offset, Mapping):
        raise OffsetError(f"{json.dumps(offset)} is not a JSON object")
    positions = dict(offset)
    recorded = positions.pop(IDS_KEY, {})
    if not isinstance(recorded, Mapping) or not all(
        isinstance(value, str) for value in recorded.values()
    ):
        raise OffsetError(f"{json.dumps(offset)}: {IDS_KEY} is not an object of names and ids")
    return positions, recorded


def check_option(option: str, kind: str, recorded: Identities, present: Identities) -> None:
    """Compare the identities in the offsets of an option, if it has some, with the present ones.
    Raises OptionError.
    """
    for name, identity in recorded.items():
        if present.get(name) != identity:
            raise OptionError(
                option,
                f"{IDS_KEY} names another {kind} {name!r} than the one that is read: it was "
                f"deleted and created again since. Give positions in the present {kind}, without "
                f"{IDS_KEY}",
            )


def require_order(
    first: Mapping[PlaceT, int],
    end: Mapping[PlaceT, int],
    name_of: Callable[[PlaceT], str],
    word: str,
) -> None:
    """Raise OptionError if an end of a batch query is before its start."""
    for place, stop in end.items():
        start = first.get(place, 0)
        if 0 <= stop < start:
            raise OptionError(
                "endingOffsets",
                f"{word} {stop} of {name_of(place)} is before its start, {word} {start} "
                "(startingOffsets): give an end that is not below the start",
            )


def shares(left: Sequence[int], wanted: int) -> list[int]:
    """Divide `wanted` among backlogs: each gets a share in proportion to its size, and remaining
    single entries go to the first ones.
    """
    total = sum(left)
    taken = [count * wanted // total if total else 0 for count in left]
    spare = wanted - sum(taken)
    for place, count in enumerate(left):
        if spare > 0 and taken[place] < count:
            taken[place] += 1
            spare -= 1
    return taken


@dataclass(frozen=True, slots=True)
class MicroBatchLimits:
    """Maximum size of one micro-batch; None means no limit."""

    entries: int | None = None
    size: int | None = None

    def count_of(self, entries: int, size: float) -> int:
        """Return the allowed number of entries of a backlog, at least one if it has any."""
        count = entries if self.entries is None else min(entries, self.entries)
        if self.size is not None and size > self.size:
            count = min(count, max(1, int(entries * self.size / size)))
        return count

    def entries_of(self, entry_bytes: float) -> float:
        """Return the allowed number of entries of a size."""
        by_size = float("inf") if self.size is None else max(1.0, self.size / max(1.0, entry_bytes))
        return min(float("inf") if self.entries is None else self.entries, by_size)

    def without(self, entries: int, entry_bytes: float) -> "MicroBatchLimits":
        """Return the rest of the limits after `entries` entries."""
        size = (
            None if self.size is None else max(0, self.size - ceil(entries * max(1.0, entry_bytes)))
        )
        return MicroBatchLimits(None if self.entries is None else self.entries - entries, size)

    @property
    def is_used_up(self) -> bool:
        """Whether the limits are used up."""
        return self.entries == 0 or self.size == 0


@dataclass(frozen=True, slots=True)
class IdentityCheck:
    """Comparison of what a stream reads now with the identities in an offset."""

    kind: str
    """Word for messages: chain, ledger or topic."""
    present: Identities
    fail_on_data_loss: bool

    def recreated(self, recorded: Identities, names: Iterable[str]) -> list[str]:
        """Return those of `names` that were deleted and created again since an offset recorded
        their identities. Names that are not read now are left out.

        Raises RecreatedError if there is one and data loss is not allowed; raises OffsetError if
        the offset has no identity of something that it names.
        """
        changed: list[str] = []
        for name in names:
            now = self.present.get(name)
            if now is None:
                continue
            before = recorded.get(name)
            if before is None:
                raise OffsetError(
                    f"the checkpoint does not record the identity of {self.kind} {name!r}: begin "
                    "with a new checkpoint"
                )
            if before != now:
                if self.fail_on_data_loss:
                    raise RecreatedError(self.kind, name, "the checkpoint was written")
                changed.append(name)
        return changed

    def log(self, changed: Iterable[str]) -> None:
        """Log which names were created again, so that positions in the old ones are left out."""
        for name in dict.fromkeys(changed):
            _log.warning(
                "%s %r was deleted and created again: left out what was not read before; the "
                "query continues at the start of the present %s",
                self.kind,
                name,
                self.kind,
            )


class FollowedSource(ABC):
    """What a stream reads, and how far it reaches now.

    Spark requests the newest offset about a hundred times per second. So no call waits for a bookie
    or for ZooKeeper once a stream runs: the ends are updated in the background.
    """

    chain_token: bytes | None = None
    """Identity of the chain that links the ledgers; None without a chain."""

    @abstractmethod
    def start(self, text: str) -> Offset:
        """Return the start of a new query: `earliest`, `latest` or a position. Raises
        OptionError.
        """

    @abstractmethod
    def latest(self) -> Offset:
        """Return the end of what can be read now."""

    def reported(self) -> Offset:
        """Return the same for reports of progress, with what only these need."""
        return self.latest()

    @abstractmethod
    def advance(self, start: Mapping[str, object], end: Offset, limits: MicroBatchLimits) -> Offset:
        """Return the end of the next micro-batch: `end`, or earlier because of the limits."""

    @abstractmethod
    def ranges(self, start: Mapping[str, object], end: Mapping[str, object]) -> list[EntryRange]:
        """Return the ranges of a micro-batch. It ends where its offset says, whatever is known of
        the ends now.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop following."""
