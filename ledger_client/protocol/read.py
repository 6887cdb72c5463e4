"""Read protocol: which replica to read entries from, when to try another, and what their answers
mean.

Leaves sending, timers and digests to `range_reader.py`, and cutting a long read into ranges to
`reader.py`.

Invariants: "no such entry" only when every replica said exactly that; a timeout, a damaged or an
unsure answer leads to the next replica; each replica is asked once.

Source: protocol rule 8.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bookie.wire.messages import Status
from metadata.ids import BookieId

NEGATIVES: Final = (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER)
PENALTY_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class ReplicaAnswered:
    """A replica answered; the first `found_count` requested entries are valid.

    `status` is its answer for the entry after them; `is_damaged` means that this entry arrived but
    failed its digest.
    """

    bookie_id: BookieId
    found_count: int
    status: Status
    reason: str
    is_damaged: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaFailed:
    """A replica could not be reached, or its answer did not come in time."""

    bookie_id: BookieId
    reason: str


@dataclass(frozen=True, slots=True)
class DelayPassed:
    """No replica answered within the delay of the last `StartDelay`."""


ReadEvent = ReplicaAnswered | ReplicaFailed | DelayPassed


@dataclass(frozen=True, slots=True)
class AskReplica:
    """Send the read to a replica."""

    bookie_id: BookieId


@dataclass(frozen=True, slots=True)
class StartDelay:
    """Report DelayPassed after the speculative delay; replaces an earlier StartDelay."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """Use this replica's answer; the read is over."""

    bookie_id: BookieId


@dataclass(frozen=True, slots=True)
class ReportMissing:
    """Every replica answered that there is no such entry; the read is over."""


@dataclass(frozen=True, slots=True)
class ReportUnreadable:
    """No replica returned the entry, and not all of them denied it; the read is over."""

    reasons: Mapping[BookieId, str]
    is_damaged: bool
    """Whether every replica that was not negative returned bytes that fail their digest."""


@dataclass(frozen=True, slots=True)
class ReportUnauthorized:
    """A replica knows the ledger under another key; the read is over."""

    bookie_id: BookieId


ReadAction = (
    AskReplica | StartDelay | Deliver | ReportMissing | ReportUnreadable | ReportUnauthorized
)


class RangeRead:
    """One read, from the replicas of its first entry, in the given order."""

    __slots__ = ("_answers", "_asked_count", "_is_over", "_replicas")

    def __init__(self, replicas: tuple[BookieId, ...]) -> None:
        assert replicas, "an entry has at least one replica"
        self._replicas = replicas
        self._asked_count = 0
        self._answers: dict[BookieId, ReplicaAnswered | ReplicaFailed] = {}
        self._is_over = False

    def start(self) -> list[ReadAction]:
        """Read from the first replica."""
        return self._ask_next()

    def handle(self, event: ReadEvent) -> list[ReadAction]:
        """Advance by one event; the caller performs the returned actions in order."""
        if self._is_over:
            return []
        match event:
            case DelayPassed():
                return self._ask_next()
            case ReplicaAnswered(bookie_id, found_count) if found_count:
                return self._end(Deliver(bookie_id))
            case ReplicaAnswered(bookie_id, status=Status.UNAUTHORIZED):
                return self._end(ReportUnauthorized(bookie_id))
            case ReplicaAnswered(bookie_id) | ReplicaFailed(bookie_id):
                self._answers[bookie_id] = event
                return self._ask_next() or self._judge()

    def _ask_next(self) -> list[ReadAction]:
        if self._asked_count == len(self._replicas):
            return []
        asked = AskReplica(self._replicas[self._asked_count])
        self._asked_count += 1
        return [asked, StartDelay()] if self._asked_count < len(self._replicas) else [asked]

    def _judge(self) -> list[ReadAction]:
        """End the read once every replica has answered."""
        if len(self._answers) < len(self._replicas):
            return []
        unsure = [a for b in self._replicas if not _is_negative(a := self._answers[b])]
        if not unsure:
            return self._end(ReportMissing())
        reasons = {answer.bookie_id: answer.reason for answer in unsure}
        is_damaged = all(isinstance(a, ReplicaAnswered) and a.is_damaged for a in unsure)
        return self._end(ReportUnreadable(reasons, is_damaged))

    def _end(self, action: ReadAction) -> list[ReadAction]:
        self._is_over = True
        return [action]


class ReplicaOrder:
    """Order of a ledger's replicas for later reads, by how well they answered."""

    __slots__ = ("_last_good", "_penalties", "_rotation")

    def __init__(self, rotation: int) -> None:
        self._last_good: BookieId | None = None
        self._penalties: dict[BookieId, int] = {}
        self._rotation = rotation
        """Start position while there are no answers: differs between readers, to spread them."""

    def order(self, replicas: tuple[BookieId, ...]) -> tuple[BookieId, ...]:
        """Return the replicas in the order in which to try them: the last good one first, those
        that failed recently last.
        """
        start = self._rotation % len(replicas)
        rotated = replicas[start:] + replicas[:start]
        return tuple(sorted(rotated, key=self._rank))

    def note_good(self, bookie_id: BookieId) -> None:
        """Prefer a bookie that returned entries."""
        self._last_good = bookie_id
        self._penalties.pop(bookie_id, None)

    def note_bad(self, bookie_id: BookieId) -> None:
        """Prefer others to a bookie that failed, was slow, or lacked an entry that it
        should have.
        """
        self._penalties[bookie_id] = min(self._penalties.get(bookie_id, 0) + 1, PENALTY_MAX)
        if self._last_good == bookie_id:
            self._last_good = None

    def _rank(self, bookie_id: BookieId) -> tuple[int, bool]:
        return self._penalties.get(bookie_id, 0), bookie_id != self._last_good


def _is_negative(answer: ReplicaAnswered | ReplicaFailed) -> bool:
    return isinstance(answer, ReplicaAnswered) and answer.status in NEGATIVES
