"""Reasons why a bookie refuses ordinary adds or is in limbo, with their start times.

Leaves the detection of a reason to the module that can see it (for example
`bookie.storage.disk_watch`), and writing log lines to `bookie.bookie_process`. Pure: the clock is
an argument.

Invariants: a bookie is writable when no reason that blocks adds is active, and offered to writers
when no such reason is active or begins after a grace time; a callback is called once for each
reason that begins, begins to block adds, or ends, after the change has taken effect.
Source: protocol rules 2.4 and 9.1; storage design, "Limits and refusals".
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
    DRAINING = "draining"
    """An operator takes the bookie out of service: its copies are moved to other bookies."""
    DRAINED = "drained"
    """No ledger names the bookie any more. It refuses recovery adds too, so that this stays so."""
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
BLOCKS_RECOVERY_ADDS: Final = (Reason.DRAINED,)

DESCRIPTIONS: Final = {
    Reason.OPERATOR: "accepts no new entries: an operator made it read-only",
    Reason.DRAINING: "accepts no new entries: it is being drained",
    Reason.DRAINED: "accepts no entries: it is drained",
    Reason.DISK_HIGH_MARK: "accepts no new entries: the use of its disk is above the high mark",
    Reason.DISK_FULL: "accepts no new entries: its disk is full",
    Reason.DISK_HUNG: "accepts no new entries: its disk does not answer",
    Reason.RESERVE_MISSING: "accepts no new entries: its disk has no room for the reserve",
    Reason.FENCES_LOST: "accepts no new entries: it may have lost a fence",
    Reason.LIMBO: "answers UNKNOWN for entries that it does not find: it may have lost data",
    Reason.METADATA_OLD: "removes no deleted ledgers: the metadata service is older than it was",
}
"""Meaning of each reason for clients."""

_WHILE_COPIED: Final = (
    "keep it up while repair copies its ledgers to other bookies; once it is drained: quire bookie "
    "remove ID"
)

ADVICE: Final = {
    Reason.OPERATOR: "quire bookie readonly ID off",
    Reason.DRAINING: "wait until it is drained, or use it again: quire bookie undrain ID",
    Reason.DRAINED: "quire bookie remove ID, or use it again: quire bookie undrain ID",
    Reason.DISK_HIGH_MARK: (
        "delete ledgers or add bookies: the bookie is writable again below the low mark"
    ),
    Reason.DISK_FULL: "delete ledgers or add bookies: the bookie is writable again by itself",
    Reason.DISK_HUNG: (
        "check the disk and the kernel's log; the bookie registers again when the disk answers"
    ),
    Reason.RESERVE_MISSING: "free space on the disk, or lower reserve_bytes_min and reserve_share",
    Reason.FENCES_LOST: _WHILE_COPIED,
    Reason.LIMBO: _WHILE_COPIED,
    Reason.METADATA_OLD: (
        "restore the newest state of the metadata service; or, if the ledgers missing from it may "
        "be removed, run: quire metadata accept-restore"
    ),
}
"""Advice to an operator for each reason."""


CONDITION_PREFIX: Final = "condition:"
"""Prefix of a registration's feature that names an active reason."""


def reasons_of(features: Iterable[str]) -> list[Reason]:
    """Return the reasons in a registration's features; unknown reasons are left out."""
    names = [name.removeprefix(CONDITION_PREFIX) for name in features if is_condition(name)]
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
    still_accepts: bool = False
    """Whether ordinary adds are accepted for a time, so that writers leave before they are refused.
    """

    @property
    def turns_away(self) -> bool:
        """Whether writers should use other bookies because of it."""
        return self.reason not in BLOCKS_NO_ADDS

    @property
    def blocks_adds(self) -> bool:
        """Whether ordinary adds are refused because of it."""
        return self.turns_away and not self.still_accepts


@dataclass(frozen=True, slots=True)
class ConditionChange:
    """A condition that began, began to block adds, or ended."""

    condition: Condition
    lasted_s: float | None
    """Duration in seconds of a condition that ended, else None."""


class Writability:
    """Conditions of one storage, and whether it accepts ordinary adds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.is_writable = True
        """Whether ordinary adds are accepted."""
        self.is_offered = True
        """Whether writers should use the bookie. If not, ordinary adds may still be accepted."""
        self.takes_recovery_adds = True
        self._now = now
        self._active: dict[tuple[Reason, str], Condition] = {}
        self._callbacks = Callbacks[ConditionChange]()

    def on_change(self, callback: Callable[[ConditionChange], None]) -> Cancel:
        """Register a callback, which is called when a condition begins, begins to block adds, or
        ends.
        """
        return self._callbacks.add(callback)

    def begin(
        self, reason: Reason, text: str, *, where: str = "", still_accepts: bool = False
    ) -> None:
        """Add a condition. If it is active already, replace its text and what it blocks."""
        key = (reason, where)
        old = self._active.get(key)
        since_s = self._now() if old is None else old.since_s
        condition = self._active[key] = Condition(reason, where, text, since_s, still_accepts)
        if old is None or old.blocks_adds is not condition.blocks_adds:
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
                "reason": condition.reason.value,
                "where": condition.where,
                "detail": condition.text,
                "blocks_adds": condition.blocks_adds,
                "lasts_s": round(self._now() - condition.since_s, 1),
                "try_next": ADVICE[condition.reason],
            }
            for condition in self._active.values()
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
        active = self._active.values()
        self.is_writable = not any(condition.blocks_adds for condition in active)
        self.is_offered = not any(condition.turns_away for condition in active)
        self.takes_recovery_adds = not any(cause.reason in BLOCKS_RECOVERY_ADDS for cause in active)
        self._callbacks.notify(change)
