"""What a client, and its writers, readers and chains, have in common.

Leaves the checks of the event loop and of a forked child to `own_loop.py`.

Invariants: a description has no password, no key and no payload; a handle is never copied.

Source: api design, "Client".
"""

import warnings
from abc import ABC, abstractmethod
from typing import NoReturn


class Handle(ABC):
    """A handle of one process."""

    @abstractmethod
    def _description(self) -> str:
        """Return what `repr` says of it."""

    # (`typing.override` needs Python 3.12.)
    def __repr__(self) -> str:  # type: ignore[explicit-override]
        return f"<{type(self).__name__} {self._description()}>"

    def __reduce__(self) -> NoReturn:  # type: ignore[explicit-override]
        """Raise TypeError: another process, or a copy, cannot use its connections."""
        raise TypeError(
            f"{self!r} can be neither pickled nor copied, because its connections belong to this "
            "process: pass the metadata URI and ledger ids, and create a client there"
        )

    def _warn_dropped(self) -> None:
        """Warn that this handle is gone and was not closed."""
        text = f"{self!r} was dropped and is not closed: use `with`, or close it"
        warnings.warn(text, ResourceWarning, stacklevel=3, source=self)


def ledger_text(ledger_id: int, last_confirmed: int, *, is_open: bool) -> str:
    """Return the description of the handle of a ledger."""
    state = "open" if is_open else "closed"
    return f"of ledger {ledger_id}, last confirmed {last_confirmed}, {state}"
