"""Actions of a repair's copy, before each of which a story may do something.

Leaves the actions to `ledger_client.in_sync`: each runs as it is, once the story lets it.

Source: protocol rules 9.1 and 9.8.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from ledger_client.copying import CopySource, CopyTarget, FragmentCopier
from tests.simulation.loop import NODE
from tests.simulation.nodes import Node
from tests.support.repair.repair_world import World

BEFORE: Final = (
    (FragmentCopier, "_mark", "store the mark"),
    (CopySource, "read", "read"),
    (CopyTarget, "store", "store"),
    (CopyTarget, "_check", "read back"),
    (FragmentCopier, "_name", "decide"),
    (FragmentCopier, "_require_active", "read the state of the target"),
)
AFTER: Final = (
    (FragmentCopier, "_require_active", "swap"),
    (FragmentCopier, "copy_fragment", "end"),
)
ACTIONS: Final = tuple(action for _, _, action in BEFORE + AFTER)
"""Actions of one copy in their order; `end` comes after the swap."""

Act = Callable[[str], Awaitable[None]]


@contextmanager
def at_each_action(act: Act) -> Iterator[None]:
    """Call and await `act` before each action of each copy."""
    with ExitStack() as stack:
        for owner, name, action in BEFORE:
            stack.enter_context(patch.object(owner, name, _preceded(owner, name, act, action)))
        for owner, name, action in AFTER:
            stack.enter_context(patch.object(owner, name, _followed(owner, name, act, action)))
        yield


def _preceded(owner: type, name: str, act: Act, action: str) -> Any:
    original = getattr(owner, name)

    async def method(self: Any, *args: Any) -> Any:
        await act(action)
        return await original(self, *args)

    return method


def _followed(owner: type, name: str, act: Act, action: str) -> Any:
    original = getattr(owner, name)

    async def method(self: Any, *args: Any) -> Any:
        result = await original(self, *args)
        await act(action)
        return result

    return method


class Halt:
    """Halts copies right before an action: the first copy that comes to it, or all of them."""

    def __init__(self, action: str, *, is_for_all: bool = False) -> None:
        self._action = action
        self._is_for_all = is_for_all
        self._node = 0
        self.reached = asyncio.Event()
        self.released = asyncio.Event()

    async def at(self, action: str) -> None:
        """See `at_each_action`."""
        if action != self._action or self.released.is_set():
            return
        if self._is_for_all or not self.reached.is_set():
            self._node = self._node or NODE.get()
            self.reached.set()
            await self.released.wait()

    def process(self, world: World) -> Node:
        """Return the process of repair that came to the action first."""
        return next(repairer for repairer in world.repairers if repairer.node == self._node)
