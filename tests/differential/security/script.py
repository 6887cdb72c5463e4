"""Every case of the differential check of security, in order."""

from collections.abc import Awaitable, Callable
from typing import Final

from tests.differential.security import (
    acl_cases,
    login_cases,
    pause_cases,
    quota_cases,
    rights_cases,
    user_cases,
)
from tests.differential.security.secure_run import SecureRun

Case = Callable[[SecureRun], Awaitable[None]]

CASES: Final[tuple[Case, ...]] = (
    *login_cases.CASES,
    *user_cases.CASES,
    *acl_cases.CASES,
    *rights_cases.CASES,
    *quota_cases.CASES,
    *pause_cases.CASES,
)


def name_of(case: Case) -> str:
    """Return a case's name: "acl.creating"."""
    family = case.__module__.rpartition(".")[2].removesuffix("_cases")
    return f"{family}.{getattr(case, '__name__', '')}"
