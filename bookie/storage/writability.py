"""Reasons why a bookie refuses ordinary adds or is in limbo, with their start times.

Leaves the detection of a reason to the module that can see it (for example
`bookie.storage.disk_watch`), and writing log lines to `bookie.bookie_process`. Pure: the clock is
an argument.

Invariants: a bookie is writable when no reason that blocks adds is active; a callback is called
once for each reason that begins or ends, after the change has taken effect.
Source: protocol rule 2.4; storage design, "Limits and refusals".
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from metadata.callbacks import Callbacks
from metadata.store.interface import Cancel


class Reason(StrEnum):
    """Reason why a bookie refuses ordinary adds, cannot give certain negatives, or does not
    collect.
    """

    OPERATOR = "operator"
    """An operator switched the bookie to read-only."""
    DISK_HIGH_MARK = "disk-high-mark"
    """The use of a mount reached the high mark and has not fallen below the low mark since."""
    DISK_FULL = "disk-full"
    """The disk refused a write because it is full."""
    DISK_HUNG = "disk-hung"
    """A write or sync has not returned for `disk_hung_s`."""
    RESERVE_MISSING = "reserve-missing"
    """There is no room for the reserve for fences and tombstones."""
    FENCES_LOST = "fences-lost"
    """The lost data may have included fences: a ledger never seen here may have been fenced."""
    LIMBO = "limbo"
    """Stored data may have been lost: the answer for an entry not found is UNKNOWN. Blocks no
    adds.
    """
    METADATA_OLD = "metadata-old"
    """The metadata service is older than before: nothing is collected. Blocks no adds."""


BLOCKS_NO_ADDS: Final = (Reason.LIMBO, Reason.METADATA_OLD)


DESCRIPTIONS: Final = {
    Reason.OPERATOR: "accepts no new entries: an operator made it read-only",
    Reason.DISK_HIGH_MARK: "accepts no new entries: the use of its disk is above the high mark",
    Reason.DISK_FULL: "accepts no new entries: its disk is full",
    Reason.DISK_HUNG: "accepts no new entries: its disk does not answer",
    Reason.RESERVE_MISSING: "accepts no new entries: its disk has no room for the reserve",
    Reason.FENCES_LOST: "accepts no new entries: it may have lost a fence",
    Reason.LIMBO: "answers UNKNOWN for entries that it does not find: it may have lost data",
    Reason.METADATA_OLD: "removes no deleted ledgers: the metadata service is older than it was",
}
"""Meaning of each reason for clients."""

ADVICE: Final = {
    Reason.OPERATOR: "quire bookie readonly ID off",
    Reason.DISK_HIGH_MARK: (
        "delete ledgers or add bookies: the bookie is writable again below the low mark"
    ),
    Reason.DISK_FULL: "delete ledgers or add bookies: the bookie is writable again by itself",
    Reason.DISK_HUNG: (
        "check the disk and the kernel's log; the bookie registers again when the disk answers"
    ),
    Reason.RESERVE_MISSING: "free space on the disk, or lower reserve_bytes_min and reserve_share",
    Reason.FENCES_LOST: "replace it by a new bookie; keep this one up until its ledgers are copied",
    Reason.LIMBO: "replace it by a new bookie; keep this one up until its ledgers are copied",
    Reason.METADATA_OLD: (
        "restore the newest state of the metadata service; or, if the ledgers missing from it may "
        "be removed, run: quire bookie accept-metadata ID"
    ),
}
"""Advice to an operator for each reason."""


CONDITION_PREFIX: Final = "condition:"
"""Prefix of a registration's feature that names an active reason."""


def reasons_of(features: Iterable[str]) -> list[Reason]:
    """Return the reasons in a registration's features; unknown reasons are left out."""
    names = [each.removeprefix(CONDITION_PREFIX) for each in features if is_condition(each)]
    return [Reason(name) for name in names if name in set(Reason)]


def is_condition(feature: str) -> bool:
    """Return whether a registration's feature names a reason."""
    return feature.startswith(CONDITION_PREFIX)


@dataclass(frozen=True, slots=True)
class Condition:
    """One active reason."""

    reason: Reason
    where: str
    """The affected mount; empty if the complete bookie is affected."""
    text: str
    """One sentence with figures, for operators."""
    since_s: float

    @property
    def blocks_adds(self) -> bool:
        """Whether ordinary adds are refused because of it."""
        return self.reason not in BLOCKS_NO_ADDS


@dataclass(frozen=True, slots=True)
class ConditionChange:
    """A condition that began or ended."""

    condition: Condition
    lasted_s: float | None
    """Duration in seconds; None for a condition that begins."""


class Writability:
    """Conditions of one storage, and whether it accepts ordinary adds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.is_writable = True
        self._now = now
        self._active: dict[tuple[Reason, str], Condition] = {}
        self._callbacks = Callbacks[ConditionChange]()

    def on_change(self, callback: Callable[[ConditionChange], None]) -> Cancel:
        """Register a callback, which is called when a condition begins or ends."""
        return self._callbacks.add(callback)

    def begin(self, reason: Reason, text: str, *, where: str = "") -> None:
        """Add a condition. If it is active already, only replace its text."""
        key = (reason, where)
        old = self._active.get(key)
        since_s = self._now() if old is None else old.since_s
        condition = self._active[key] = Condition(reason, where, text, since_s)
        if old is None:
            self._report_change(ConditionChange(condition, None))

    def end(self, reason: Reason, *, where: str = "") -> None:
        """Remove a condition, if it is active."""
        condition = self._active.pop((reason, where), None)
        if condition is not None:
            self._report_change(ConditionChange(condition, self._now() - condition.since_s))

    def set_by_operator(self, *, is_read_only: bool) -> None:
        """Refuse or accept ordinary adds, as requested by an operator. Fences, recovery adds and
        reads continue.
        """
        if is_read_only:
            self.begin(Reason.OPERATOR, "an operator made it read-only")
        else:
            self.end(Reason.OPERATOR)

    def explain_loss(self, text: str) -> None:
        """Replace the texts of limbo by one from a caller that knows more than the storage."""
        for reason in (Reason.LIMBO, Reason.FENCES_LOST):
            if self.has(reason):
                self.begin(reason, text)

    def report(self) -> list[dict[str, str | float | bool]]:
        """Return the active conditions for the admin server, with advice. Times are in seconds."""
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
        """Return the active reasons as features of a registration: `condition:<reason>`."""
        reasons = dict.fromkeys(reason for reason, _ in self._active)
        return tuple(f"{CONDITION_PREFIX}{reason.value}" for reason in reasons)

    def has(self, reason: Reason) -> bool:
        """Return whether a reason is active, for any mount."""
        return any(active is reason for active, _ in self._active)

    def conditions(self) -> tuple[Condition, ...]:
        """Return the active conditions, oldest first."""
        return tuple(self._active.values())

    def _report_change(self, change: ConditionChange) -> None:
        self.is_writable = not any(each.blocks_adds for each in self._active.values())
        self._callbacks.notify(change)
