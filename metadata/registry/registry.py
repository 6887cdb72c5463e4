"""Names for registering processes and for finding live ones.

Leaves the work to `registration.py`, `registrar.py` and `directory.py`.
"""

from metadata.errors import NameHeldError
from metadata.registry.directory import (
    BookieChanged,
    BookieDirectory,
    BookieJoined,
    BookieLeft,
    DirectoryEvent,
)
from metadata.registry.registrar import BookieRegistrar, ClientRegistration
from metadata.registry.registration import BookieRegistration

__all__ = [
    "BookieChanged",
    "BookieDirectory",
    "BookieJoined",
    "BookieLeft",
    "BookieRegistrar",
    "BookieRegistration",
    "ClientRegistration",
    "DirectoryEvent",
    "NameHeldError",
]
