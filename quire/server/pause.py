"""Reasons to pause reading from a client.

Leaves pausing and resuming to `quire.server.connection`.
"""

from enum import Flag, auto


class Pause(Flag):
    """Reasons why no request is read from a client."""

    NONE = 0
    REQUESTS_WAIT = auto()
    ANSWERS_UNREAD = auto()
    HANDLER_FULL = auto()
    MEMORY_FULL = auto()
    FRAME_WAITS = auto()
    FRAMES_LEFT = auto()
    THROTTLED = auto()
    CLOSING = auto()
