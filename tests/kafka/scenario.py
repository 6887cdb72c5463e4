"""What a scenario is: a stock client does something with a broker, and checks what came of it.

Leaves what is done to the `*_clients`, `kafka_tools` and `*_scenarios` modules.

Invariants: a scenario makes topics, groups and ids of its own, so that it can run again on the same
broker, beside others; it returns if all was right and raises if not.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass

RECORDS = 60
TIMEOUT_S = 60.0


class UnavailableError(Exception):
    """What a scenario needs is not on this machine and cannot be fetched."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A name for the table, and what to run with a bootstrap address."""

    client: str
    name: str
    run: Callable[[str], None]

    @property
    def title(self) -> str:
        """What `--only` is compared with."""
        return f"{self.client}: {self.name}"


def fresh(kind: str) -> str:
    """Return a name that nobody has used."""
    return f"{kind}-{uuid.uuid4().hex[:10]}"


def values_of(count: int = RECORDS, start: int = 0) -> list[bytes]:
    """Return values that tell their place."""
    return [f"value {number:06}".encode() for number in range(start, start + count)]


def check(condition: object, *facts: object) -> None:
    """Raise AssertionError with the facts unless the condition holds."""
    if not condition:
        raise AssertionError("; ".join(map(str, facts)))
