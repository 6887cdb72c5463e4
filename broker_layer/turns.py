"""Turns of the event loop during one large request, so that other clients' requests run too.

Leaves what a request does to its handler, which calls `pass_on` between two elements, where other
requests may take effect.

Invariant: between two turns at most TURN_S pass, and the work on one element.
"""

import asyncio
from typing import Final

TURN_S: Final = 0.005


class Turns:
    """Turns of one request; the first begins when this is made."""

    __slots__ = ("_began_s", "_now")

    def __init__(self) -> None:
        self._now = asyncio.get_running_loop().time
        self._began_s = self._now()

    async def pass_on(self) -> None:
        """Let other work run, if this turn is over."""
        if self._now() - self._began_s > TURN_S:
            await asyncio.sleep(0)
            self._began_s = self._now()
