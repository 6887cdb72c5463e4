"""State of a bookie as operators and repair set it, its transitions, and its bytes. Pure.

Leaves storing it to `lifecycle_store.py`, and whether a bookie runs to its registration.

A bookie without a node is active.

    from      to        changed by
    active    draining  an operator
    draining  active    an operator
    drained   active    an operator
    draining  drained   the auditor: nothing names the bookie
    active    lost      the auditor: the bookie was away for `lost_after_s`
    limbo     lost      the auditor: the same
    lost      active    the auditor: the bookie is back
    lost      draining  an operator
    active    limbo     the auditor: the bookie registered in limbo
    draining  limbo     the auditor: the same
    lost      limbo     the auditor: the same
    limbo     drained   the auditor: nothing names the bookie
    lost      drained   an operator, or the auditor: it is to be removed if nothing names it
    drained   lost      the same: ledgers name it, or it is back
    drained   removed   an operator, or the auditor: nothing names the bookie at a pass that began
                        after it was drained
    unreadable draining an operator: it replaces a record that this release cannot read

Invariants: `unreadable` is never stored; `removed` is final, and its node stays, so that the id
stays known; only a bookie that refuses entries, as a drained one does, becomes removed; a bookie
that drains keeps its state while it is away.

Source: protocol rules 9.5 and 9.13.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from metadata.errors import InvalidLifecycleChangeError, MetadataFormatError
from metadata.ids import BookieId
from metadata.records import Ms, choice, codec_of


class Lifecycle(StrEnum):
    """State of a bookie."""

    ACTIVE = "active"
    DRAINING = "draining"
    """It takes no new entries, and its copies are moved to other bookies."""
    DRAINED = "drained"
    """Nothing names it any more; it may be removed."""
    REMOVED = "removed"
    """It never serves again."""
    LOST = "lost"
    """It was away for so long that its copies are made again elsewhere."""
    LIMBO = "limbo"
    """It may have lost data: its copies are not proven, and are made again elsewhere."""
    UNREADABLE = "unreadable"
    """This release cannot read its record: nothing new is placed on it, and nothing else follows
    from that.
    """

    @property
    def may_store(self) -> bool:
        """Whether a bookie in this state may be chosen for new entries and copies."""
        return self is Lifecycle.ACTIVE


@dataclass(frozen=True, slots=True)
class BookieLifecycle:
    """State of one bookie, since when, and why. The default is that of a bookie without a node."""

    state: Annotated[Lifecycle, choice(Lifecycle, without=(Lifecycle.UNREADABLE,))] = (
        Lifecycle.ACTIVE
    )
    since_ms: Ms = 0
    reason: str = ""


LIFECYCLE_CODEC: Final = codec_of(BookieLifecycle)
UNCHANGED: Final = BookieLifecycle()
"""The record of a bookie without a node."""

_ALLOWED: Final = frozenset(
    {
        (Lifecycle.ACTIVE, Lifecycle.DRAINING),
        (Lifecycle.ACTIVE, Lifecycle.LOST),
        (Lifecycle.ACTIVE, Lifecycle.LIMBO),
        (Lifecycle.DRAINING, Lifecycle.ACTIVE),
        (Lifecycle.DRAINING, Lifecycle.DRAINED),
        (Lifecycle.DRAINING, Lifecycle.LIMBO),
        (Lifecycle.DRAINED, Lifecycle.ACTIVE),
        (Lifecycle.DRAINED, Lifecycle.LOST),
        (Lifecycle.DRAINED, Lifecycle.REMOVED),
        (Lifecycle.LOST, Lifecycle.ACTIVE),
        (Lifecycle.LOST, Lifecycle.DRAINING),
        (Lifecycle.LOST, Lifecycle.LIMBO),
        (Lifecycle.LOST, Lifecycle.DRAINED),
        (Lifecycle.LIMBO, Lifecycle.DRAINED),
        (Lifecycle.LIMBO, Lifecycle.LOST),
        (Lifecycle.UNREADABLE, Lifecycle.DRAINING),
    }
)

_WHAT_NEXT: Final = {
    Lifecycle.ACTIVE: "drain it first with `quire bookie drain`",
    Lifecycle.DRAINING: "wait until it is drained (`quire repair status` shows what is left), or "
    "make it active with `quire bookie undrain`",
    Lifecycle.DRAINED: "make it active with `quire bookie undrain`, or remove it with `quire "
    "bookie remove`",
    Lifecycle.REMOVED: "an id is never used again; format the disks to make a new bookie",
    Lifecycle.LOST: "start it again, drain it with `quire bookie drain`, or remove it with `quire "
    "bookie remove`",
    Lifecycle.LIMBO: "wait until its copies are moved and it is drained (`quire repair status` "
    "shows what is left), then remove it with `quire bookie remove`, and format its disks",
    Lifecycle.UNREADABLE: "use the release that wrote its record, or write a new one with `quire "
    "bookie drain`",
}


def may_become(state: Lifecycle, wanted: Lifecycle) -> bool:
    """Return whether the table above has the transition; a state may always stay as it is."""
    return state is wanted or (state, wanted) in _ALLOWED


def may_be_removed(state: Lifecycle) -> bool:
    """Return whether an operator may remove a bookie in this state, if nothing names it. A lost one
    becomes drained first, so that it takes no entries while that is found out (rule 9.8).
    """
    return state in (Lifecycle.DRAINED, Lifecycle.LOST, Lifecycle.REMOVED)


def changed(
    bookie_id: BookieId,
    current: BookieLifecycle,
    to: Lifecycle,
    reason: str,
    now_ms: int,
    before: Lifecycle | None = None,
) -> BookieLifecycle:
    """Return the record after a transition; the current record if the bookie is in the state
    already.

    Raises InvalidLifecycleChangeError for a transition that the table above does not have, and for
    one that was decided for another state, `before`.
    """
    if current.state is to:
        return current
    if before not in (None, current.state) or not may_become(current.state, to):
        raise InvalidLifecycleChangeError(bookie_id, current.state, to, _WHAT_NEXT[current.state])
    return BookieLifecycle(to, now_ms, reason)


def unreadable_lifecycle(error: MetadataFormatError) -> BookieLifecycle:
    """Return what stands for a record that this release cannot read."""
    return BookieLifecycle(Lifecycle.UNREADABLE, reason=error.why)
