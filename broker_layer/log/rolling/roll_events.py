"""Events and actions of `RollProtocol`.

Leaves the decisions to `roll_protocol`, and performing the actions to `ledger_roller`.
"""

from dataclasses import dataclass
from enum import Enum

from broker_layer.errors import TopicError


class Work(Enum):
    """Work that waits for other processes. The value completes "cannot ... now"."""

    CREATE = "create a ledger"
    LIST = "list a ledger"
    """Store one change of the list: the end of the draining ledger, if any, and the new ledger, if
    any."""
    FILL = "write the state into a ledger"
    CLOSE = "close a ledger"
    """Stop appends to the open ledger, and close it once all its entries are confirmed."""
    RECOVER = "recover a ledger"
    """Close the draining ledger without its writer, whose close has an unknown outcome."""
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class LedgerWanted:
    """An append waits for the first ledger."""


@dataclass(frozen=True, slots=True)
class LedgerGrown:
    """The open ledger has this share of its size; 1 if it is to be replaced whatever its size. The
    next one, if there is one, can be used or cannot: it has failed, or the replication was changed.
    """

    share: float
    is_next_usable: bool


@dataclass(frozen=True, slots=True)
class EndRequested:
    """The open ledger is to be closed, and none is to follow."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The log has failed, or no caller waits for its end."""


@dataclass(frozen=True, slots=True)
class WorkDone:
    """The work is done."""


@dataclass(frozen=True, slots=True)
class WorkRefused:
    """The work was not possible, and had no effect. It may be possible later."""

    error: TopicError


RollEvent = LedgerWanted | LedgerGrown | EndRequested | Abandoned | WorkDone | WorkRefused


@dataclass(frozen=True, slots=True)
class StartWork:
    """Start some work after a pause, and report its outcome. No other work is under way."""

    work: Work
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class UseNext:
    """Append to the created ledger, from the end of the log on."""


@dataclass(frozen=True, slots=True)
class Complete:
    """Count the entries of the new ledger, which is listed, and drop the draining one."""


@dataclass(frozen=True, slots=True)
class DropNext:
    """Abort the writer of the created ledger, if there is one. Delete the ledger unless it may be
    listed: then the next leader would find it.
    """

    is_listed: bool = False


@dataclass(frozen=True, slots=True)
class RefuseAppends:
    """Refuse the appends that wait for the first ledger."""

    error: TopicError


@dataclass(frozen=True, slots=True)
class AbortAll:
    """Stop the work, and abort the writers of the open and of the draining ledger."""


RollAction = StartWork | UseNext | Complete | DropNext | RefuseAppends | AbortAll
