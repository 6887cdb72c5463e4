"""Distinction between typed failures, which a caller may meet, and bugs."""

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ledger_client import LedgerError

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

FRAMES_SHOWN: Final = 6


def note_error(cluster: "Cluster", what: str, error: BaseException) -> None:
    """Add a failure to the history; an untyped failure is a violation."""
    name = type(error).__name__
    cluster.model.note("error", f"{what}: {name}: {error}")
    counts = cluster.model.error_counts
    counts[name] = counts.get(name, 0) + 1
    if not isinstance(error, LedgerError):
        cluster.model.report("errors", f"{what} failed, untyped: {described(error)}")


def described(error: BaseException) -> str:
    """Describe what failed, and where."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_SHOWN:]
    where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    return f"{error!r} at {where}"
