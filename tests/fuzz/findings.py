"""Findings of the fuzzer, and how to reproduce them.

Leaves the search for them to the targets.
"""

import re
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Final

INPUT_HEX_MAX: Final = 8 * 1024
"""Number of printed characters of a reproducer; a longer one is generated again from its block."""
FINDINGS_MAX: Final = 20
"""Maximum number of kept findings of one target; one defect often causes thousands."""


class InvariantError(AssertionError):
    """An invariant does not hold for this input."""


def require(condition: object, what: str) -> None:
    """Raise InvariantError unless the condition holds."""
    if not condition:
        raise InvariantError(what)


@dataclass(frozen=True, slots=True)
class Finding:
    """One input for which a parser did something forbidden."""

    target: str
    what: str
    block: str
    """Name of its block: target, seed and number, for `--block`."""
    input_hex: str
    where: tuple[str, ...] = ()
    is_forged: bool = False
    """Whether its checksums were made after the change, which no damage does."""

    @property
    def shown_hex(self) -> str:
        """Input as far as it is printed; a longer one is generated again from its block."""
        if len(self.input_hex) <= INPUT_HEX_MAX:
            return self.input_hex
        return f"{self.input_hex[:INPUT_HEX_MAX]}... of {len(self.input_hex) // 2} bytes"


@dataclass(slots=True)
class Tally:
    """Inputs of a target, and their results."""

    frames: int = 0
    inputs: int = 0
    accepted: int = 0
    """Inputs that were at least partly accepted: how deep the fuzzer gets."""
    traced: int = 0
    """Inputs whose allocations were measured singly."""
    largest_allocation_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    findings_left_out: int = 0

    def note(self, finding: Finding) -> None:
        """Keep a finding, unless the same kind is known or there are too many."""
        is_repeated = any(_kind(each) == _kind(finding) for each in self.findings)
        if is_repeated or len(self.findings) >= FINDINGS_MAX:
            self.findings_left_out += 1
        else:
            self.findings.append(finding)

    def add(self, other: "Tally") -> None:
        """Add the results of another run of a target."""
        self.frames += other.frames
        self.inputs += other.inputs
        self.accepted += other.accepted
        self.traced += other.traced
        self.largest_allocation_bytes = max(
            self.largest_allocation_bytes, other.largest_allocation_bytes
        )
        self.findings_left_out += other.findings_left_out
        for finding in other.findings:
            self.note(finding)

    def as_json(self) -> dict[str, object]:
        """Return the form that is printed."""
        return asdict(self)


def describe(error: BaseException) -> tuple[str, tuple[str, ...]]:
    """Describe an error in one line, with the last places that it passed."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    places = tuple(f"{_short(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames)
    return f"{type(error).__name__}: {error}"[:300], places


def _kind(finding: Finding) -> tuple[str, bool]:
    """Return the part that all findings of one defect share: everything but the numbers."""
    return re.sub(r"-?\d+", "#", finding.what), finding.is_forged


def _short(path: str) -> str:
    return "/".join(path.split("/")[-3:])


Check = Callable[[bytes, bytes, bool], bool]
"""Feeds an input to a parser: (input, the sample that it was made from, are its checksums forged);
returns whether it was accepted. Whatever it raises is a finding.
"""
