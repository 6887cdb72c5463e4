"""Order of marker requests between the connections of one broker process.

Leaves the names of connections to `broker_layer.peer`, which numbers them, and the answers to
`marker_handler`.

If a broker abandons a connection, bytes of it may still wait to be read here. A marker that was
sent again over a newer connection is then read before the first copy. If the first copy were
written late, it would end the next transaction of the same producer. Within one connection, the
order is kept anyway; between connections, this module refuses requests of older ones.

Invariants: after a request of connection n of a process, none of n - 1 or below is admitted.
"""

from collections import OrderedDict
from typing import Final

PROCESSES_MAX: Final = 10_000
"""Maximum number of known processes; the one that was silent for longest is dropped first."""


class PeerOrder:
    """The newest connection that sent a request, by process."""

    def __init__(self) -> None:
        self._newest: OrderedDict[str, int] = OrderedDict()

    def admit(self, client_id: str) -> bool:
        """Record a request of the connection `<process>#<number>`; return whether it is admitted.

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
