"""Names the reasons for which nothing is read from a peer.

Leaves stopping and going on to `bookie.server.connection`.
"""

from enum import Flag, auto


class Pause(Flag):
    """Why nothing is read from a peer."""

    NONE = 0
    STORAGE_FULL = auto()
    REQUESTS_WAIT = auto()
    ANSWERS_UNREAD = auto()
