"""Calls of the metadata service for many ledgers or jobs, some at a time.

Leaves the calls to `quire.repair.ledger_pass` and `quire.repair.auditor`.

Invariant: at most CALLS_AT_ONCE calls of one `call_each` are under way.

Source: protocol rule 9.1; docs/repair.md, "The auditor".
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Final, TypeVar

CALLS_AT_ONCE: Final = 128

Item = TypeVar("Item")


async def call_each(items: Iterable[Item], call: Callable[[Item], Awaitable[None]]) -> None:
    """Call with every item, a group after the other. Raises the first error of a group, and calls
    none after it.
    """
    left = iter(items)
    while group := list(islice(left, CALLS_AT_ONCE)):
        await asyncio.gather(*map(call, group))
