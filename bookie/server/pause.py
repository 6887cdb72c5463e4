"""Reasons to pause reading from a client.

Leaves pausing and resuming to `bookie.server.connection`.
"""

from enum import Flag, auto


class Pause(Flag):
    """Reasons why no request is read from a client."""

    NONE = 0
    STORAGE_FULL = auto()
    REQUESTS_WAIT = auto()
    ANSWERS_UNREAD = auto()
