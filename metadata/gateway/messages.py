"""Requests of a gateway's clients, and the replies. Pure.

Leaves their bytes to `codec.py`.

Invariants: values only. A path has one form: absolute, of printable ASCII, without an empty name,
`.` or `..`, so that no two paths are one node.

Source: docs/formats.md, "Connections to a gateway".
"""

import re
from dataclasses import dataclass
from typing import Final

from metadata.store.interface import Create, Operation

PROTOCOL_VERSION: Final = 1
PATH_BYTES_MAX: Final = 1_024
CLIENT_NAME_CHARACTERS_MAX: Final = 200
TOKEN_BYTES: Final = 16
NO_SESSION: Final = 0
"""Session id of a client that has none yet."""

_PATH: Final = re.compile(r"/|(?:/(?!\.{1,2}(?:/|$))[!-.0-~]+)+")


@dataclass(frozen=True, slots=True)
class Hello:
    """First request: the versions that the client speaks, and the session to go on with."""

    version_min: int
    version_max: int
    session_id: int
    token: bytes
    """Proves that the session is the client's; empty without a session."""
    session_timeout_ms: int
    client_name: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """Reply to a hello."""

    version: int
    session_id: int
    """Another id than that of the hello: the earlier session has ended."""
    token: bytes
    session_timeout_ms: int
    watches_max: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks whether the metadata service answers the gateway."""


@dataclass(frozen=True, slots=True)
class Get:
    """Read a node, as `MetadataStore.get` does."""

    path: str
    fresh: bool = False
    agreed: bool = False


@dataclass(frozen=True, slots=True)
class Children:
    """Read the names below a node, as `MetadataStore.children` does."""

    path: str
    fresh: bool = False
    agreed: bool = False


@dataclass(frozen=True, slots=True)
class CreateNode:
    """Create a node, as `MetadataStore.create` does."""

    operation: Create
    make_parents: bool


@dataclass(frozen=True, slots=True)
class Multi:
    """Apply all operations or none, as `MetadataStore.multi` does."""

    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Watch:
    """Report changes of a node, or of the names below it. It has no reply, only events with its
    number.
    """

    number: int
    path: str
    of_children: bool


@dataclass(frozen=True, slots=True)
class Unwatch:
    """End a watch. It has no reply."""

    number: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """End the session; answered when its ephemeral nodes are gone."""


Request = Hello | Ping | Get | Children | CreateNode | Multi | Watch | Unwatch | CloseSession


def is_path(text: str) -> bool:
    """Return whether a text is a path in its only form."""
    return len(text) <= PATH_BYTES_MAX and _PATH.fullmatch(text) is not None
