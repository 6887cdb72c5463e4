"""Refuses what comes from a connection that its broker has replaced by a newer one.

Leaves the names of connections to `broker_layer.peer`, which counts them, and the answer to
`handlers`.

A marker that was sent twice may be read the second time first, if the connection of the first was
given up but its bytes still wait here. Written late, it would end the next transaction of the same
producer. Within one connection order holds; between connections this module keeps it.

Invariants: after a request of connection n of a process, none of n - 1 or below is admitted.
"""

from collections import OrderedDict
from typing import Final

PROCESSES_MAX: Final = 10_000
"""Processes that are remembered; the one that was silent for longest is forgotten first."""


class PeerOrder:
    """The newest connection that was heard from, by process."""

    def __init__(self) -> None:
        self._newest: OrderedDict[str, int] = OrderedDict()

    def admit(self, client_id: str) -> bool:
        """Note a request of the connection `<process>#<number>`; tell whether it may take effect.

        A name of another form belongs to a tool, which sends once and is always admitted.
        """
        process, sign, number = client_id.rpartition("#")
        if not sign or not (number.isascii() and number.isdecimal()) or len(number) > 18:  # noqa: PLR2004
            return True
        connection = int(number)
        if connection < self._newest.get(process, 0):
            return False
        self._newest[process] = connection
        self._newest.move_to_end(process)
        if len(self._newest) > PROCESSES_MAX:
            self._newest.popitem(last=False)
        return True
