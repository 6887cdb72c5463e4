"""Errors in bytes that come from a peer or a disk.

Leaves the reaction (close the connection, try the next replica) to the shells.
"""


class WireError(Exception):
    """Bytes from a peer or a disk are not valid."""


class FrameError(WireError):
    """A frame's header is malformed or its size is over the limit. The stream cannot be read
    further.
    """


class MessageError(WireError):
    """A control message does not have the format of its kind."""


class BatchError(WireError):
    """A batch does not match its header or its checksum."""
