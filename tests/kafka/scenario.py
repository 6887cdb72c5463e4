"""Interface of a scenario: a stock client uses a broker, and checks the results.

Leaves the actions to the `*_clients`, `kafka_tools` and `*_scenarios` modules.

Invariants: a scenario makes new topics, groups and ids, so that it can be repeated on the same
broker, at the same time as others. It returns if all checks passed, and raises otherwise.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from tests.kafka.endpoint import Endpoint

RECORDS = 60
TIMEOUT_S = 60.0


class UnavailableError(Exception):
    """A requirement of a scenario is not on this machine and cannot be fetched."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Name for the table, and function to run with an endpoint."""

    client: str
    name: str
    run: Callable[[Endpoint], None]
    is_long: bool = False
    """Whether many others run in its time: it starts servers in Java, kills brokers, or may have to
    build what it needs.
    """

    @property
    def title(self) -> str:
        """Text that `--only` is compared with."""
        return f"{self.client}: {self.name}"


def fresh(kind: str) -> str:
    """Return a new unique name."""
    return f"{kind}-{uuid.uuid4().hex[:10]}"


def values_of(count: int = RECORDS, start: int = 0) -> list[bytes]:
    """Return values that contain their index."""
    return [f"value {number:06}".encode() for number in range(start, start + count)]


def check(condition: object, *facts: object) -> None:
    """Raise AssertionError with the facts unless the condition is true."""
    if not condition:
        raise AssertionError("; ".join(map(str, facts)))
