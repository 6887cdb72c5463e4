"""Published job of repair: one ledger that needs copies, its name and its bytes. Pure.

Leaves what a ledger needs, and the meaning of an urgency, to `quire.repair.needs`, and storing jobs
to `job_store.py`.

Format: the name is `<urgency, 1 digit>-<bytes, 16 digits>-<ledger id, 19 digits>`.

Invariant: names sort as jobs are to be done: by urgency, small ones first.

Source: protocol rules 9.1 and 9.3.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from metadata.ids import LedgerId, is_ledger_id
from metadata.paths import LEDGER_ID_DIGITS
from metadata.records import NOT_STORED, Ms, codec_of, whole

URGENCY_MAX: Final = 9
"""The largest urgency as a number, which is the least urgent."""
MOVING_URGENCY: Final = 3
"""Urgency of a ledger that has all its copies, some of them on bookies that drain."""
BYTES_DIGITS: Final = 16
BYTES_MAX: Final = 10**BYTES_DIGITS - 1

_NAME: Final = re.compile(rf"([0-9])-([0-9]{{{BYTES_DIGITS}}})-([0-9]{{{LEDGER_ID_DIGITS}}})")

Urgency = Annotated[int, whole(0, URGENCY_MAX)]


class JobState(StrEnum):
    """State of a job."""

    QUEUED = "queued"
    """A worker may claim it."""
    BLOCKED = "blocked"
    """Nothing can be done for the reason that it names, for example too few bookies."""
    LOST = "lost"
    """Some entries have no good copy."""


@dataclass(frozen=True, slots=True, order=True)
class JobName:
    """Name of a job. Names are ordered as the jobs are to be done."""

    urgency: int
    """The class of the ledger's needs: 0 is done first."""
    size_bytes: int
    """Bytes to copy, as estimated from the metadata; at most BYTES_MAX."""
    ledger_id: LedgerId

    @property
    def text(self) -> str:
        """The name as stored."""
        assert 0 <= self.urgency <= URGENCY_MAX, self.urgency
        assert 0 <= self.size_bytes <= BYTES_MAX, self.size_bytes
        size = f"{self.size_bytes:0{BYTES_DIGITS}}"
        return f"{self.urgency}-{size}-{self.ledger_id:0{LEDGER_ID_DIGITS}}"


@dataclass(frozen=True, slots=True)
class Job:
    """One ledger to repair."""

    name: Annotated[JobName, NOT_STORED]
    reasons: tuple[str, ...]
    """What the ledger needs, for operators."""
    since_ms: Ms
    """Time since which the ledger has needs, in ms since 1970."""
    state: JobState = JobState.QUEUED
    blocked_reason: str = ""
    """Why the job is blocked or lost, or why it still waits after many attempts; else empty."""

    @property
    def ledger_id(self) -> LedgerId:
        """The ledger to repair."""
        return self.name.ledger_id


JOB_CODEC: Final = codec_of(Job)


def job_name_of(text: str) -> JobName | None:
    """Return a stored name; None for a text that is not one."""
    match = _NAME.fullmatch(text)
    if match is None:
        return None
    urgency, size_bytes, ledger_id = map(int, match.groups())
    return JobName(urgency, size_bytes, LedgerId(ledger_id)) if is_ledger_id(ledger_id) else None
