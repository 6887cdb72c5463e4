"""Turns of the event loop during one large request, so that other clients' requests run too.

Leaves what a request does to its handler, which calls `pass_on` between two elements or `slices`,
where other requests may take effect, and who has the next turn to `quire.server.step_turns`.

Invariant: between two turns at most TURN_S pass, and the work on one element or slice.
"""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

TURN_S: Final = 0.0015
"""uvloop counts whole milliseconds: a turn takes one or two. A small request passes the loop three
or four times, and a large one may have a turn each time.
"""
SLICE_ELEMENTS: Final = 100
"""Number of elements of one slice, where each takes some microseconds."""

Element = TypeVar("Element")


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


def slices(elements: Iterable[Element]) -> Iterator[list[Element]]:
    """Yield SLICE_ELEMENTS elements at a time, after each of which a turn may end."""
    rest = iter(elements)
    while some := list(islice(rest, SLICE_ELEMENTS)):
        yield some
