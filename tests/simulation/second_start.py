"""Fault: a copy of a bookie's directories starts on another machine while the original lives.

Leaves the times and the choice of bookies to `tests.simulation.faults`.

Invariant: if the original is registered when the copy starts, the copy serves no requests, and the
original is not ended while it runs and keeps its session. An original with a new session that is
not registered again yet may be displaced.
Source: protocol rule 2.6.
"""

import asyncio
import random
from typing import Final

from bookie.errors import PositionTakenError
from metadata.store.interface import SessionState
from tests.simulation.cluster import Cluster
from tests.simulation.nodes import BookieNode

NAME: Final = "identity"
COPY_S_MAX: Final = 45.0
"""More than a start waits for the session of a silent original."""
LOOK_EVERY_S: Final = 0.02
"""Less than a copy needs to replace an original whose session has expired."""


class CopyNode(BookieNode):
    """Machine on which a copy is started once."""

    def __init__(self, original: BookieNode, number: int, rng: random.Random) -> None:
        super().__init__(original.cluster, original.number)
        self.host = f"copy-{number}"
        self.platter = original.platter.copied(self.host if rng.random() < 0.5 else "")
        self.platter.crash(rng)
        self.is_on_purpose = True


class SecondStarts:
    """Copies that one run starts."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._count = 0

    async def start_copy(self, original: BookieNode) -> None:
        """Start a copy of a registered bookie, and end it afterwards."""
        life = _life_of(original)
        if life is None or not original.is_registered:
            return
        self._count += 1
        original.last_error = None
        copy = CopyNode(original, self._count, self._rng)
        deadline_s = self._cluster.loop.now_s + COPY_S_MAX
        copy.start()
        while copy.is_running and self._cluster.loop.now_s < deadline_s:
            await asyncio.sleep(LOOK_EVERY_S)
            if isinstance(original.last_error, PositionTakenError):
                self._report(f"{original.host} ended for its copy: {original.last_error}")
            if _life_of(original) != life:
                break  # the original may be replaced from here on
            if copy.is_serving:
                self._report(f"{copy.host} serves, and {original.host} lives")
                break
        copy.kill(power_off=True)

    def _report(self, text: str) -> None:
        self._cluster.model.report(NAME, text)


def _life_of(bookie: BookieNode) -> tuple[int | None, int] | None:
    """Return a value that changes when the process stops serving or loses its session."""
    store = bookie.store
    if store is None or not bookie.is_serving or bookie.is_paused or bookie.stopping.is_set():
        return None
    is_connected = store.session_state is SessionState.CONNECTED
    return (bookie.node, store.session_id) if is_connected else None
