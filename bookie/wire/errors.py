"""Names the ways in which bytes from outside can be wrong.

Leaves what to do about it (close the connection, try the next replica) to the shells.
"""


class WireError(Exception):
    """Bytes that a peer sent, or that a disk returned, are not what they should be."""


class FrameError(WireError):
    """A frame's header is malformed, or its size is over the limit: the stream cannot be followed
    further.
    """


class MessageError(WireError):
    """A control message does not have the form of its kind."""


class BatchError(WireError):
    """A batch does not have the form that its header announces, or its checksum does not match."""
