"""Reasons why a bookie refuses ordinary adds or is in limbo, with the time each one began.

Leaves finding out about a reason to the part that knows it (`bookie.storage.upkeep`,
`bookie.server.admin`), and writing log lines to `bookie.bookie_process`. Pure: the clock is an
argument.

Invariants: a bookie is writable when no reason that blocks adds is active; a listener is called
once for each reason that begins or ends, after the change has taken effect.
Source: protocol rule 2.4; storage design, "Limits and refusals".
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """What keeps a bookie from taking ordinary adds, or from giving sure negatives."""

    OPERATOR = "operator"
    """An operator switched the bookie to read-only."""
    DISK_HIGH_MARK = "disk-high-mark"
    """A mount is used above its high mark, and has not yet fallen below the low mark."""
    DISK_FULL = "disk-full"
    """The disk refused a write for lack of room."""
    DISK_HUNG = "disk-hung"
    """A write or sync has not returned for long."""
    RESERVE_MISSING = "reserve-missing"
    """The reserve for fences and tombstones could not be made."""
    FENCES_LOST = "fences-lost"
    """A fence may be among what was lost: a ledger never seen may have been fenced."""
    LIMBO = "limbo"
    """Stored data may have been lost: what is not found is answered UNKNOWN. Blocks no adds."""
    METADATA_OLD = "metadata-old"
    """The metadata service is older than it was: nothing is collected. Blocks no adds."""


BLOCKS_NO_ADDS: Final = (Reason.LIMBO, Reason.METADATA_OLD)


DESCRIPTIONS: Final = {
    Reason.OPERATOR: "takes no new entries: an operator switched it to read-only",
    Reason.DISK_HIGH_MARK: "takes no new entries: its disk is used above the high mark",
    Reason.DISK_FULL: "takes no new entries: its disk is full",
    Reason.DISK_HUNG: "takes no new entries: its disk does not answer",
    Reason.RESERVE_MISSING: "takes no new entries: the reserve on its disk could not be made",
    Reason.FENCES_LOST: "takes no new entries: a fence may be among what it lost",
    Reason.LIMBO: "answers UNKNOWN for what it does not find: stored data may have been lost",
    Reason.METADATA_OLD: "removes no deleted ledgers: the metadata service is older than it was",
}
"""What each reason means for clients."""

ADVICE: Final = {
    Reason.OPERATOR: "quire bookie readonly ID off",
    Reason.DISK_HIGH_MARK: (
        "delete ledgers or add bookies: the bookie is writable again below the low mark"
    ),
    Reason.DISK_FULL: "delete ledgers or add bookies: the bookie is writable again by itself",
    Reason.DISK_HUNG: (
        "look at the disk and the kernel's log; the bookie registers again when the disk answers"
    ),
    Reason.RESERVE_MISSING: "free room on the disk, or lower reserve_bytes_min and reserve_share",
    Reason.FENCES_LOST: "replace it by a new bookie; keep this one up until its ledgers are copied",
    Reason.LIMBO: "replace it by a new bookie; keep this one up until its ledgers are copied",
    Reason.METADATA_OLD: (
        "restore the newest state of the metadata service; or, when the ledgers that it does not "
        "know may be removed: quire bookie accept-metadata ID"
    ),
}
"""What an operator can do about each reason."""


CONDITION_PREFIX: Final = "condition:"
"""Begins a registration's feature that names an active reason."""


def reasons_of(features: Iterable[str]) -> list[Reason]:
    """Return the reasons that a registration's features name; unknown ones are left out."""
    names = [each.removeprefix(CONDITION_PREFIX) for each in features if is_condition(each)]
    return [Reason(name) for name in names if name in set(Reason)]


def is_condition(feature: str) -> bool:
    """Return whether a registration's feature names a reason."""
    return feature.startswith(CONDITION_PREFIX)


@dataclass(frozen=True, slots=True)
class Condition:
    """One reason that is active."""

    reason: Reason
    where: str
    """The mount or part that it is about; empty when it is about the whole bookie."""
    text: str
    """One sentence with figures, for people."""
    since_s: float

    @property
    def blocks_adds(self) -> bool:
        """Return whether ordinary adds are refused because of it."""
        return self.reason not in BLOCKS_NO_ADDS


@dataclass(frozen=True, slots=True)
class Change:
    """A condition that began or ended."""

    condition: Condition
    lasted_s: float | None
    """How long it lasted; None when it begins."""


class Writability:
    """The conditions of one storage, and whether it takes ordinary adds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.is_writable = True
        self._now = now
        self._active: dict[tuple[Reason, str], Condition] = {}
        self._listeners: list[Callable[[Change], None]] = []

    def on_change(self, listener: Callable[[Change], None]) -> None:
        """Register what is called whenever a condition begins or ends."""
        self._listeners.append(listener)

    def begin(self, reason: Reason, text: str, *, where: str = "") -> None:
        """Add a condition; of one that is active, only replace the text."""
        key = (reason, where)
        old = self._active.get(key)
        since_s = self._now() if old is None else old.since_s
        condition = self._active[key] = Condition(reason, where, text, since_s)
        if old is None:
            self._tell(Change(condition, None))

    def end(self, reason: Reason, *, where: str = "") -> None:
        """Remove a condition, if it is active."""
        condition = self._active.pop((reason, where), None)
        if condition is not None:
            self._tell(Change(condition, self._now() - condition.since_s))

    def set_by_operator(self, *, is_read_only: bool) -> None:
        """Refuse (or accept again) ordinary adds at an operator's wish; fences, recovery adds and
        reads go on.
        """
        if is_read_only:
            self.begin(Reason.OPERATOR, "an operator switched it to read-only")
        else:
            self.end(Reason.OPERATOR)

    def explain_loss(self, text: str) -> None:
        """Replace the text of limbo where the caller knows more than the storage."""
        for reason in (Reason.LIMBO, Reason.FENCES_LOST):
            if self.has(reason):
                self.begin(reason, text)

    def report(self) -> list[dict[str, str | float | bool]]:
        """Return the active conditions for the admin server, with advice; times in seconds."""
        return [
            {
                "reason": each.reason.value,
                "where": each.where,
                "detail": each.text,
                "blocks_adds": each.blocks_adds,
                "lasts_s": round(self._now() - each.since_s, 1),
                "try_next": ADVICE[each.reason],
            }
            for each in self._active.values()
        ]

    def features(self) -> tuple[str, ...]:
        """Return the active reasons as a registration names them: `condition:<reason>`."""
        reasons = dict.fromkeys(reason for reason, _ in self._active)
        return tuple(f"{CONDITION_PREFIX}{reason.value}" for reason in reasons)

    def has(self, reason: Reason, *, where: str | None = None) -> bool:
        """Return whether a reason is active, anywhere or in one place."""
        if where is None:
            return any(active is reason for active, _ in self._active)
        return (reason, where) in self._active

    def conditions(self) -> tuple[Condition, ...]:
        """Return the active conditions, the oldest first."""
        return tuple(self._active.values())

    def _tell(self, change: Change) -> None:
        self.is_writable = not any(each.blocks_adds for each in self._active.values())
        for listener in list(self._listeners):
            listener(change)
