"""The changes of a bookie that its state allows, as an operator chooses them. Pure.

Leaves the changes to `quire.operate.bookie_changes` and the bookie itself.

Source: protocol rule 9.1; docs/repair.md.
"""

from dataclasses import dataclass
from enum import StrEnum

from metadata.registry.registration import BookieRegistration
from metadata.repair.lifecycle import BookieLifecycle, Lifecycle, may_be_removed, may_become


class Act(StrEnum):
    """A change of one bookie."""

    DRAIN = "drain"
    UNDRAIN = "undrain"
    REMOVE = "remove"
    READ_ONLY = "read-only"
    WRITABLE = "writable"


@dataclass(frozen=True, slots=True)
class ActText:
    """What a page says of an act."""

    title: str
    consequence: str
    state: Lifecycle | None = None
    """State that the bookie gets; None if the bookie itself is asked."""


TEXTS = {
    Act.DRAIN: ActText(
        "Drain",
        "It takes no new entries, and repair moves its copies to other bookies. Undrain ends it.",
        Lifecycle.DRAINING,
    ),
    Act.UNDRAIN: ActText(
        "Use again", "It takes new entries again, and no more copies are moved.", Lifecycle.ACTIVE
    ),
    Act.REMOVE: ActText(
        "Remove for ever",
        "Its id is never used again. It is removed only if no ledger names it.",
        Lifecycle.REMOVED,
    ),
    Act.READ_ONLY: ActText(
        "Make read-only", "It takes no new entries, also after a restart; nothing is moved."
    ),
    Act.WRITABLE: ActText("Make writable", "It takes new entries if nothing else prevents that."),
}


def allowed_acts(
    record: BookieLifecycle, registration: BookieRegistration | None, *, is_read_only: bool
) -> list[Act]:
    """Return the changes that make sense for a bookie now."""
    state, found = record.state, list[Act]()
    if state is not Lifecycle.DRAINING and may_become(state, Lifecycle.DRAINING):
        found.append(Act.DRAIN)
    if state in (Lifecycle.DRAINING, Lifecycle.DRAINED) and not (
        registration is not None and registration.is_in_limbo
    ):
        found.append(Act.UNDRAIN)
    if state is not Lifecycle.REMOVED and may_be_removed(state):
        found.append(Act.REMOVE)
    if registration is not None and registration.admin_url:
        found.append(Act.WRITABLE if is_read_only else Act.READ_ONLY)
    return found
