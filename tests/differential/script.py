"""Every case of the differential check, in order."""

from collections.abc import Awaitable, Callable
from typing import Final

from tests.differential import (
    config_cases,
    consumer_group_cases,
    fetch_cases,
    group_cases,
    offset_cases,
    produce_cases,
    static_member_cases,
    topic_cases,
    transaction_cases,
    version_cases,
)
from tests.differential.run import Run

Case = Callable[[Run], Awaitable[None]]

CASES: Final[tuple[Case, ...]] = (
    *version_cases.CASES,
    *produce_cases.CASES,
    *fetch_cases.CASES,
    *offset_cases.CASES,
    *topic_cases.CASES,
    *config_cases.CASES,
    *group_cases.CASES,
    *static_member_cases.CASES,
    *consumer_group_cases.CASES,
    *transaction_cases.CASES,
)


def name_of(case: Case) -> str:
    """Return a case's name: "group.joining"."""
    family = case.__module__.rpartition(".")[2].removesuffix("_cases")
    return f"{family}.{getattr(case, '__name__', '')}"
