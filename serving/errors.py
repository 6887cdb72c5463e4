"""States what keeps any server from starting, one class per fact.

Leaves what only one kind of server can meet to `bookie.errors` and
`broker_layer.server.connections.server_errors`.
"""

from typing import ClassVar


class OptionError(Exception):
    """An option is unknown, of the wrong type, or out of bounds."""

    retriable: ClassVar[bool] = False
