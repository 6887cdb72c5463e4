"""Errors that prevent the start of any server, one class per fact.

Leaves errors of one kind of server to `bookie.errors` and
`broker_layer.server.connections.server_errors`.
"""

from typing import ClassVar


class OptionError(Exception):
    """An option is unknown, of the wrong type, or out of bounds."""

    retriable: ClassVar[bool] = False
